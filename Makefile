# The words a contributor needs: setup, demo, check, test, bench.
VENV ?= .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
CODE := migverify lab docs spark_jobs tests bench release examples

# Without bytecode every command that a test starts compiles the package again, and every worker all tests.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup demo docs check test test-spark35 soak bench release test-examples lab-up lab-down format lock

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml lab/pyproject.toml
	@command -v python3 >/dev/null || { echo "python3 (3.11 or newer) is needed" >&2; exit 2; }
	test -x $(PY) || python3 -m venv $(VENV)
	$(PY) -m pip install -q --require-hashes -r requirements.lock
	$(PY) -m pip install -q --no-deps --no-build-isolation -e . -e ./lab
	touch $@

demo: setup
	$(PY) -m migverify_lab.demo $(if $(TARGET),--target $(TARGET))

docs: setup
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo "site/index.html"

# Types and tests at the same time, on two cores. Tests that wait or read a clock are left to `make test`.
check: setup
	$(VENV)/bin/ruff check $(CODE)
	$(VENV)/bin/ruff format --check $(CODE)
	$(PY) -m pytest -q -n 2 --dist worksteal -m "not clocks and not soak" tests/unit & tests=$$!; \
	$(VENV)/bin/mypy; code=$$?; \
	wait $$tests && exit $$code

# Three workers on two cores: many of these tests wait, for a server, a lease or a budget. Stealing keeps a file's tests on
# one worker while there are others to do, so that its servers are started once. All parts run, whatever fails; nothing
# limits the number of failures, which would hide how many causes there are. BUSY=2 keeps as many processes busy beside
# the tests that have clocks; END_BY (Unix seconds) ends a run that takes too long.
BUSY ?= 0
END_BY ?= 0
RUN = MIGVERIFY_REQUIRE_DB=1 $(PY) -m pytest -q --end-by $(END_BY)

test: setup
	$(VENV)/bin/migverify lab build
	code=0; \
	$(RUN) -n 3 --dist worksteal --busy $(BUSY) -m "clocks and not soak" tests/unit tests/db || code=$$?; \
	$(RUN) -n 3 --dist worksteal -m "not clocks and not soak" tests/unit tests/db || code=$$?; \
	$(RUN) -m "not soak" tests/spark || code=$$?; \
	exit $$code

# The tests of Spark on the Spark of EMR 7: an environment of its own, with the pandas and pyarrow that 3.5 supports.
VENV35 ?= .venv-spark35

$(VENV35)/.installed: requirements-spark35.lock pyproject.toml lab/pyproject.toml
	test -x $(VENV35)/bin/python || python3 -m venv $(VENV35)
	$(VENV35)/bin/python -m pip install -q --require-hashes -r requirements-spark35.lock
	$(VENV35)/bin/python -m pip install -q --no-deps --no-build-isolation -e . -e ./lab
	touch $@

test-spark35: setup $(VENV35)/.installed
	$(VENV)/bin/migverify lab build
	MIGVERIFY_REQUIRE_DB=1 $(VENV35)/bin/python -m pytest -q --end-by $(END_BY) -m "not soak" tests/spark

soak: setup
	$(VENV)/bin/migverify lab build
	MIGVERIFY_REQUIRE_DB=1 $(PY) -m pytest -q tests -m soak

bench: setup
	$(PY) -m bench

# Wheels, sdists, bills of materials and hashes into dist/, then checked as somebody who installs them: with pip and the
# hashes of the lock, pipx, uvx, and the tutorial word by word on a real pair (TUTORIAL=0: no servers are started).
TUTORIAL ?= 1
VENV_RELEASE ?= .venv-release

$(VENV_RELEASE)/.installed: release/requirements.lock
	test -x $(VENV_RELEASE)/bin/python || python3 -m venv $(VENV_RELEASE)
	$(VENV_RELEASE)/bin/python -m pip install -q --require-hashes -r release/requirements.lock
	touch $@

release: $(VENV_RELEASE)/.installed
	$(VENV_RELEASE)/bin/python -m release $(if $(filter 0,$(TUTORIAL)),--without-tutorial)

# The examples, with the tools of those whom they are for: Airflow, the schemas of Kubernetes, GitHub and GitLab, linters of
# workflows (built by Go) and of Dockerfiles. Not a part of `make test`: none of them is needed by migverify itself.
VENV_EXAMPLES ?= .venv-examples
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

$(VENV_EXAMPLES)/.installed: examples/requirements.lock
	test -x $(VENV_EXAMPLES)/bin/python || python3 -m venv $(VENV_EXAMPLES)
	$(VENV_EXAMPLES)/bin/python -m pip install -q --require-hashes -r examples/requirements.lock
	GOBIN=$(abspath $(VENV_EXAMPLES))/bin go install $(ACTIONLINT)
	touch $@

test-examples: $(VENV_EXAMPLES)/.installed
	$(VENV_EXAMPLES)/bin/python -m pytest -q -p no:cacheprovider examples/tests

lab-up: setup
	$(VENV)/bin/migverify lab up

lab-down: setup
	$(VENV)/bin/migverify lab down

format: setup
	$(VENV)/bin/ruff check --fix $(CODE)
	$(VENV)/bin/ruff format $(CODE)

lock:
	uv pip compile pyproject.toml --extra connect --extra kafka --extra mcp --extra otel --extra schedule --group dev --generate-hashes --python-version 3.11 --no-emit-index-url -o requirements.lock
	uv pip compile pyproject.toml --extra spark --extra kafka --extra schedule --group dev --group spark35 --generate-hashes --python-version 3.11 --no-emit-index-url -o requirements-spark35.lock
	uv pip compile pyproject.toml --extra kafka --extra schedule -c requirements.lock --generate-hashes --python-version 3.11 --no-emit-index-url -o requirements-cli.lock
	uv pip compile pyproject.toml --extra connect --extra kafka --extra schedule -c requirements.lock --generate-hashes --python-version 3.11 --no-emit-index-url -o requirements-spark.lock
	uv pip compile release/requirements.in --generate-hashes --python-version 3.11 --no-emit-index-url -o release/requirements.lock
	uv pip compile docker/build.in --generate-hashes --python-version 3.11 --no-emit-index-url --allow-unsafe -o docker/build.lock
	uv pip compile examples/requirements.in --generate-hashes --python-version 3.11 --no-emit-index-url -o examples/requirements.lock

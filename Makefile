# The words a contributor needs: setup, demo, check, test, bench.
VENV ?= .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed

# Without bytecode every command that a test starts compiles the package again, and every worker all tests.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup demo docs check test test-spark35 soak bench lab-up lab-down format lock

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
	$(VENV)/bin/ruff check migverify lab docs spark_jobs tests bench
	$(VENV)/bin/ruff format --check migverify lab docs spark_jobs tests bench
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

lab-up: setup
	$(VENV)/bin/migverify lab up

lab-down: setup
	$(VENV)/bin/migverify lab down

format: setup
	$(VENV)/bin/ruff check --fix migverify lab docs spark_jobs tests bench
	$(VENV)/bin/ruff format migverify lab docs spark_jobs tests bench

lock:
	uv pip compile pyproject.toml --extra connect --extra kafka --extra mcp --group dev --generate-hashes --python-version 3.11 --no-emit-index-url -o requirements.lock
	uv pip compile pyproject.toml --extra spark --extra kafka --group dev --group spark35 --generate-hashes --python-version 3.11 --no-emit-index-url -o requirements-spark35.lock

# The command line of migverify, with Kafka. Build it from the root of the repository, after `make release`:
#
#   docker build --file docker/cli.Dockerfile --tag migverify:0.1.0 .
#   mkdir data && cp migverify.yaml data/ && sudo chown -R 10001:10001 data
#   docker run --rm --read-only --tmpfs /tmp --user 10001:10001 --cap-drop ALL --env SOURCE_PASSWORD --env TARGET_PASSWORD \
#       --volume "$PWD/data:/data" migverify:0.1.0 tables verify
#
# No password is in a layer: migverify reads them from the environment or by `password_command`. There is no HEALTHCHECK:
# a run ends with its exit code, and an orchestrator that keeps a watch alive has a probe of its own (examples/kubernetes).
# PYTHON may name a base of your own, by digest; it must have Python 3.11, because the lock pins its wheels.
ARG PYTHON=python:3.11-slim-bookworm

FROM ${PYTHON} AS build
WORKDIR /build
COPY requirements-cli.lock dist/SHA256SUMS dist/migverify-*.whl ./
RUN sha256sum --check --ignore-missing --strict SHA256SUMS \
    && python -m venv /opt/migverify \
    && /opt/migverify/bin/python -m pip install --no-cache-dir --only-binary :all: --require-hashes -r requirements-cli.lock \
    && /opt/migverify/bin/python -m pip install --no-cache-dir --no-index --no-deps ./migverify-*.whl \
    && /opt/migverify/bin/python -m pip check \
    && /opt/migverify/bin/python -m pip uninstall --yes pip setuptools

FROM ${PYTHON}
RUN groupadd --gid 10001 migverify \
    && useradd --uid 10001 --gid 10001 --home-dir /data --create-home --shell /usr/sbin/nologin migverify
COPY --from=build /opt/migverify /opt/migverify
# HOME is where a run keeps its store unless the configuration names another: the one folder that must be writable, with /tmp.
ENV PATH=/opt/migverify/bin:$PATH HOME=/data PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /data
USER 10001:10001
ENTRYPOINT ["migverify"]
CMD ["--help"]

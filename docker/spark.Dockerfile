# migverify with Spark and Java 17: `--engine spark` on this machine, the driver of a cluster, or the executors' image. Build it
# from the root of the repository, after `make release`:
#
#   docker build --file docker/spark.Dockerfile --tag migverify-spark:0.1.0 .
#
# As in cli.Dockerfile: no secret in a layer, no HEALTHCHECK, base images may be your own, by digest.
ARG PYTHON=python:3.11-slim-bookworm
ARG JAVA=eclipse-temurin:17-jre-jammy

FROM ${JAVA} AS java

FROM ${PYTHON} AS build
WORKDIR /build
COPY requirements-spark.lock docker/build.lock dist/SHA256SUMS dist/migverify-*.whl ./
# pyspark is published as source only; nothing of it is compiled, and what packs it is locked too.
RUN sha256sum --check --ignore-missing --strict SHA256SUMS \
    && python -m venv /opt/migverify \
    && /opt/migverify/bin/python -m pip install --no-cache-dir --only-binary :all: --require-hashes -r build.lock \
    && /opt/migverify/bin/python -m pip install --no-cache-dir --only-binary :all: --no-binary pyspark \
        --no-build-isolation --require-hashes -r requirements-spark.lock \
    && /opt/migverify/bin/python -m pip install --no-cache-dir --no-index --no-deps ./migverify-*.whl \
    && /opt/migverify/bin/python -m pip check \
    && /opt/migverify/bin/python -m pip uninstall --yes pip setuptools wheel

FROM ${PYTHON}
# Spark asks for the name of the user: a number that the system does not know is refused by its libraries.
RUN groupadd --gid 10001 migverify \
    && useradd --uid 10001 --gid 10001 --home-dir /data --create-home --shell /usr/sbin/nologin migverify
COPY --from=java /opt/java/openjdk /opt/java/openjdk
COPY --from=build /opt/migverify /opt/migverify
ENV JAVA_HOME=/opt/java/openjdk PATH=/opt/migverify/bin:/opt/java/openjdk/bin:$PATH HOME=/data PYSPARK_PYTHON=/opt/migverify/bin/python \
    SPARK_LOCAL_DIRS=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /data
USER 10001:10001
ENTRYPOINT ["migverify"]
CMD ["--help"]

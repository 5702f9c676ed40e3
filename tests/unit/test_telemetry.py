"""Metrics that are sent to an OpenTelemetry collector: which, when, and that one that is away changes nothing."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult

from migverify import __version__, telemetry
from migverify.exposition import Metric
from migverify.telemetry import METRICS, TRACES, is_wanted, sent_metrics
from tests.collector import ENDPOINT, collector
from tests.collector import no_collector as no_collector
from tests.waiting import PATIENCE

pytestmark = pytest.mark.usefixtures("no_collector")


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, False), ({ENDPOINT: "http://c:4318"}, True), ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/t"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True), ({"OTEL_TRACES_EXPORTER": "none", ENDPOINT: "http://c"}, False),
        ({"OTEL_SDK_DISABLED": "true", ENDPOINT: "http://c"}, False), ({"OTEL_SERVICE_NAME": "x"}, False),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c"}, False), ({ENDPOINT: ""}, False),
    ],
)  # fmt: skip
def test_the_standard_variables_ask_for_traces_and_for_metrics(variables: dict[str, str], wanted: bool) -> None:
    assert is_wanted(variables, TRACES) is wanted
    swap = {"TRACES": "METRICS", "METRICS": "TRACES"}
    of_metrics = {"_".join(swap.get(word, word) for word in name.split("_")): text for name, text in variables.items()}
    assert is_wanted(of_metrics, METRICS) is wanted


def shown(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, object], float]]]:
    data = reader.get_metrics_data()
    if data is None:
        return {}
    found = (one for each in data.resource_metrics for scope in each.scope_metrics for one in scope.metrics)
    return {one.name: [(dict(p.attributes), p.value) for p in one.data.data_points] for one in found}


def test_gauges_are_what_was_sent_last_and_a_series_that_is_gone_is_gone() -> None:
    reader = InMemoryMetricReader()
    with sent_metrics(reader) as send:
        assert shown(reader) == {}
        send([Metric("a", "help", [({"table": "x"}, "1"), ({"table": "y"}, "NaN")]), Metric("b", "none", [])])
        assert shown(reader) == {"a": [({"table": "x"}, 1.0)]}  # what is not known has no sample
        send(iter([Metric("a", "help", iter([({"table": "y"}, "2")])), Metric("c", "new", [({}, "3")])]))
        assert shown(reader) == {"a": [({"table": "y"}, 2.0)], "c": [({}, 3.0)]}


def test_metrics_reach_a_collector_with_the_last_ones_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "CLOSING_SECONDS", PATIENCE)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret-of-it")
    with collector() as (address, received):
        monkeypatch.setenv(ENDPOINT, address)
        with sent_metrics() as send:
            send([Metric("migverify_first", "h", [({}, "1")])])
            send([Metric("migverify_last", "h", [({}, "2")])])
    bodies = b"".join(body for _, body in received)
    assert {path for path, _ in received} == {"/v1/metrics"}
    assert all(word in bodies for word in (b"migverify_last", b"service.name"))
    assert b"secret-of-it" not in bodies


def test_a_collector_that_never_answers_holds_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    answered, asked = threading.Event(), threading.Event()

    def export(*_: object, **__: object) -> MetricExportResult:
        asked.set()
        answered.wait()
        return MetricExportResult.FAILURE

    monkeypatch.setattr(OTLPMetricExporter, "export", export)
    monkeypatch.setattr(telemetry, "CLOSING_SECONDS", 0.1)
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:9")
    try:
        with sent_metrics() as send:
            send([Metric("a", "h", [({}, "1")])])
        assert asked.wait(PATIENCE)
        assert not answered.is_set()
    finally:
        answered.set()


@pytest.mark.parametrize(
    "variables",
    [
        {ENDPOINT: "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        {ENDPOINT: "http://c", "OTEL_METRIC_EXPORT_INTERVAL": "-1"},
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_said_and_fails_nothing(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with caplog.at_level(logging.WARNING), sent_metrics() as send:
        send([Metric("a", "h", [({}, "1")])])
    assert "no metrics are sent" in caplog.text


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_BSP_MAX_QUEUE_SIZE": "many"},
        {"OTEL_BSP_SCHEDULE_DELAY": "soon"},
        {"OTEL_METRIC_EXPORT_INTERVAL": "often"},
        {"OTEL_BSP_MAX_QUEUE_SIZE": "-1"},
        {"OTEL_RESOURCE_ATTRIBUTES": "a"},
    ],
)
def test_a_variable_that_the_sdk_refuses_prints_no_traceback(variables: dict[str, str]) -> None:
    code = (
        "from migverify.telemetry import sent_metrics, shut_down, tracer_provider\n"
        "provider = tracer_provider()\n"
        "with sent_metrics() as send: send([])\n"
        "if provider is not None: shut_down(provider)\n"
    )
    environment = {**os.environ, ENDPOINT: "http://127.0.0.1:9", **variables}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "Traceback" not in done.stderr
    assert "Error: " not in done.stderr


def test_a_missing_extra_is_said_and_fails_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(ENDPOINT, "http://c")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", None)
    with caplog.at_level(logging.WARNING), sent_metrics() as send:
        send([Metric("a", "h", [({}, "1")])])
    assert f"pip install './migverify-{__version__}-py3-none-any.whl[otel]'" in caplog.text


def test_nothing_is_imported_unless_it_is_asked_for() -> None:
    code = (
        "import sys\n"
        "from migverify.telemetry import sent_metrics\n"
        "with sent_metrics() as send: send([])\n"
        "print(sorted(name for name in sys.modules if name.startswith('opentelemetry')))\n"
    )
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert asked.stdout.split() == ["[]"]

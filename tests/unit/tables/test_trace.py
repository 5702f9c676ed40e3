"""Spans of a run: what they say, that they hold no value, and that a collector that is away changes nothing."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from migverify.model import StoredKind, Verdict
from migverify.tables import trace as traces
from migverify.tables.trace import RunTrace, is_wanted, run_trace
from migverify.tables.verify import Controls, verify_tables
from tests.fakes import FakeStore
from tests.toy_tables import RULES, ToyEngine, ToySide, make_pair
from tests.waiting import PATIENCE

SECRET = "value-of-a-row"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No variable of the machine that tests, and the level of the SDK's messages as it was."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    logger = logging.getLogger("opentelemetry")
    level = logger.level
    yield
    logger.setLevel(level)


def verified(provider: TracerProvider | None = None, *, rows: int = 40) -> Verdict:
    """Verify a table of which one row differs, as ``run_tables`` does it."""
    source = dict.fromkeys(range(rows), SECRET)
    pair, store = make_pair(), FakeStore()
    run = store.start_run("verify", "h", {"pairs": [{"id": pair.id}]}, {}, kind=StoredKind.TABLES)
    with run_trace(run, "local", provider) as trace:
        engine = ToyEngine(ToySide(source), ToySide({**source, 7: f"{SECRET} that differs"}))
        trace.verdict = verify_tables([pair], engine, store, run, RULES, Controls(trace=trace))
    return trace.verdict


def test_a_run_its_tables_and_their_chunks_are_spans_within_each_other() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    assert verified(provider) is Verdict.MISMATCH
    spans = exporter.get_finished_spans()
    by_name: dict[str, list[ReadableSpan]] = {}
    for span in spans:
        by_name.setdefault(span.name, []).append(span)
    (run,), (table,), chunks = (by_name[f"migverify {name}"] for name in ("run", "table", "chunk"))
    assert run.parent is None
    assert table.parent is not None
    assert table.parent.span_id == run.context.span_id
    assert {chunk.parent.span_id for chunk in chunks if chunk.parent} == {table.context.span_id}
    assert (attributes(run)["migverify.verdict"], attributes(run)["migverify.tables.mismatch"]) == ("MISMATCH", 1)
    assert (attributes(table)["migverify.verdict"], attributes(table)["migverify.value_differs"]) == ("MISMATCH", 1)
    assert attributes(table)["migverify.chunks"] == len(chunks)
    assert sum(attributes(chunk)["migverify.source.rows"] for chunk in chunks) == 40
    states = [(attributes(chunk)["migverify.state"], chunk.status.status_code) for chunk in chunks]
    assert states.count(("different", StatusCode.ERROR)) == 1
    assert set(states) <= {("different", StatusCode.ERROR), ("equal", StatusCode.UNSET)}


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_no_value_and_no_key_is_in_a_span() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    verified(provider)
    texts = {
        (name, value) for span in exporter.get_finished_spans() for name, value in attributes(span).items()
        if isinstance(value, str)
    }  # fmt: skip
    names = {"migverify.run", "migverify.engine", "migverify.verdict", "migverify.pair", "migverify.state",
             "migverify.source.table", "migverify.target.table"}  # fmt: skip
    assert {name for name, _ in texts} == names
    assert not any(SECRET in value for _, value in texts)
    assert all(not span.events and not span.status.description for span in exporter.get_finished_spans())


def test_a_run_that_is_interrupted_ends_its_spans() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with pytest.raises(KeyboardInterrupt), run_trace("r", "local", provider):
        raise KeyboardInterrupt
    (run,) = exporter.get_finished_spans()
    assert attributes(run)["migverify.verdict"] == "INCONCLUSIVE"
    assert run.status.status_code is StatusCode.ERROR


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, False), ({ENDPOINT: "http://c:4318"}, True), ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/t"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True), ({"OTEL_TRACES_EXPORTER": "none", ENDPOINT: "http://c"}, False),
        ({"OTEL_SDK_DISABLED": "true", ENDPOINT: "http://c"}, False), ({"OTEL_SERVICE_NAME": "x"}, False),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c"}, False), ({ENDPOINT: ""}, False),
    ],
)  # fmt: skip
def test_the_standard_variables_ask_for_traces(variables: dict[str, str], wanted: bool) -> None:
    assert is_wanted(variables) is wanted


def test_nothing_is_imported_unless_it_is_asked_for() -> None:
    code = (
        "import sys, migverify.tables.run\n"
        "from migverify.tables.trace import run_trace\n"
        "with run_trace('r', 'local') as trace: trace.chunks(()); print(type(trace).__name__)\n"
        "print(sorted(name for name in sys.modules if name.startswith('opentelemetry')))\n"
    )
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert asked.stdout.split() == ["RunTrace", "[]"]


class _Collector(HTTPServer):
    """Takes what is sent. ``received`` are paths and bodies."""

    def __init__(self) -> None:
        self.received: list[tuple[str, bytes]] = []
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Collector

    def do_POST(self) -> None:
        self.server.received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_spans_reach_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "CLOSING_SECONDS", PATIENCE)
    with _Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{collector.server_port}")
        assert verified() is Verdict.MISMATCH
        collector.shutdown()
        thread.join()
    bodies = b"".join(body for _, body in collector.received)
    assert {path for path, _ in collector.received} == {"/v1/traces"}
    assert all(word in bodies for word in (b"migverify run", b"migverify table", b"migverify chunk", b"service.name"))
    assert SECRET.encode() not in bodies


def test_a_collector_that_never_answers_holds_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """More spans than the queue holds, while the first export does not return: the run goes on and ends."""
    answered, asked = threading.Event(), threading.Event()

    def export(*_: object) -> SpanExportResult:
        asked.set()
        answered.wait()
        return SpanExportResult.FAILURE

    monkeypatch.setattr(OTLPSpanExporter, "export", export)
    monkeypatch.setattr(traces, "CLOSING_SECONDS", 0.1)
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    try:
        assert verified(rows=400) is Verdict.MISMATCH
        assert asked.wait(PATIENCE)
    finally:
        answered.set()


@pytest.mark.parametrize(
    "variables",
    [
        {ENDPOINT: "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        {ENDPOINT: "http://c", "OTEL_BSP_MAX_QUEUE_SIZE": "-1"},
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_said_and_fails_nothing(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with run_trace("r", "local") as trace:
        assert type(trace) is RunTrace
    assert "no traces are sent" in caplog.text


def test_a_missing_extra_is_said_and_fails_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(ENDPOINT, "http://c")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    assert verified() is Verdict.MISMATCH
    assert "pip install 'migverify[otel]'" in caplog.text

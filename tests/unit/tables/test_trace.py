"""Spans of a run: what they say, that they hold no value, and that a collector that is away changes nothing."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from migverify import __version__, telemetry
from migverify.model import StoredKind, Verdict
from migverify.tables.trace import RunTrace, run_trace
from migverify.tables.verify import Controls, verify_tables
from tests.collector import ENDPOINT, collector
from tests.collector import no_collector as no_collector
from tests.fakes import FakeStore
from tests.toy_tables import RULES, ToyEngine, ToySide, make_pair
from tests.waiting import PATIENCE

SECRET = "value-of-a-row"
pytestmark = pytest.mark.usefixtures("no_collector")


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


def test_nothing_is_imported_unless_it_is_asked_for() -> None:
    code = (
        "import sys, migverify.tables.run\n"
        "from migverify.tables.trace import run_trace\n"
        "with run_trace('r', 'local') as trace: trace.chunks(()); print(type(trace).__name__)\n"
        "print(sorted(name for name in sys.modules if name.startswith('opentelemetry')))\n"
    )
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert asked.stdout.split() == ["RunTrace", "[]"]


def test_spans_reach_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "CLOSING_SECONDS", PATIENCE)
    with collector() as (address, received):
        monkeypatch.setenv(ENDPOINT, address)
        monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
        assert verified() is Verdict.MISMATCH
    bodies = b"".join(body for _, body in received)
    assert {path for path, _ in received} == {"/v1/traces"}
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
    monkeypatch.setattr(telemetry, "CLOSING_SECONDS", 0.1)
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
    assert f"pip install './migverify-{__version__}-py3-none-any.whl[otel]'" in caplog.text

"""Spans of OpenTelemetry of a run, its tables and its chunks: names, counts, seconds and verdicts, no value and no key.

Spans wait in the bounded queue of the SDK, which drops what does not fit, and are sent by a thread of its own: see
``migverify.telemetry``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from migverify import __version__
from migverify.model import ChunkResult, ChunkState, TableResult, Verdict
from migverify.telemetry import shut_down, tracer_provider

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer
    from opentelemetry.util.types import AttributeValue


class RunTrace:
    """What is reported of a run while it goes on; this one reports to nobody."""

    verdict = Verdict.INCONCLUSIVE
    """The verdict of the run, once it is known."""

    def chunks(self, results: Sequence[ChunkResult]) -> None:
        """Take chunks that were read."""

    def table(self, result: TableResult) -> None:
        """Take the end of a table."""


class _SpanTrace(RunTrace):
    """Makes a span of the run, of each table within it and of each chunk within its table."""

    def __init__(self, tracer: Tracer, run: Span) -> None:
        self._tracer, self._run = tracer, run
        self._tables: dict[str, Span] = {}
        self._verdicts: Counter[str] = Counter()

    def chunks(self, results: Sequence[ChunkResult]) -> None:
        for chunk in results:
            table = self._table(chunk.pair, chunk.started)
            counts: dict[str, AttributeValue] = {
                "migverify.span": chunk.span, "migverify.number": chunk.number, "migverify.state": chunk.state.value,
                "migverify.attempts": chunk.attempts, "migverify.seconds": chunk.seconds,
                "migverify.source.seconds": chunk.source_seconds, "migverify.target.seconds": chunk.target_seconds,
            }  # fmt: skip
            for side, checksum in (("source", chunk.source), ("target", chunk.target)):
                if checksum is not None:
                    counts[f"migverify.{side}.rows"] = checksum.rows
            span = self._begin("chunk", chunk.started, table, counts)
            _end(span, chunk.started + chunk.seconds, is_fine=chunk.state is ChunkState.EQUAL)

    def table(self, result: TableResult) -> None:
        now = time.time()
        span = self._table(result.pair, now - result.seconds)
        del self._tables[result.pair]
        span.set_attributes({
            "migverify.source.table": result.source, "migverify.target.table": result.target,
            "migverify.verdict": result.verdict.value, "migverify.chunks": result.chunks,
            "migverify.seconds": result.seconds, "migverify.missing_on_target": result.missing_on_target,
            "migverify.missing_on_source": result.missing_on_source, "migverify.value_differs": result.value_differs,
        })  # fmt: skip
        for side, rows in (("source", result.rows_source), ("target", result.rows_target)):
            if rows is not None:
                span.set_attribute(f"migverify.{side}.rows", rows)
        self._verdicts[result.verdict.value] += 1
        _end(span, now, is_fine=result.verdict is Verdict.MATCH)

    def close(self) -> None:
        """End what is open: the tables of a run that was interrupted, and the run."""
        now = time.time()
        for span in self._tables.values():
            _end(span, now, is_fine=False)
        self._tables.clear()
        self._run.set_attribute("migverify.verdict", self.verdict.value)
        for verdict, count in self._verdicts.items():
            self._run.set_attribute(f"migverify.tables.{verdict.lower()}", count)
        _end(self._run, now, is_fine=self.verdict is Verdict.MATCH)

    def _table(self, pair: str, started: float) -> Span:
        if pair not in self._tables:
            self._tables[pair] = self._begin("table", started, self._run, {"migverify.pair": pair})
        return self._tables[pair]

    def _begin(self, name: str, started: float, parent: Span, attributes: Mapping[str, AttributeValue]) -> Span:
        from opentelemetry.trace import set_span_in_context

        context = set_span_in_context(parent)
        return self._tracer.start_span(
            f"migverify {name}", context, attributes=attributes, start_time=_nanoseconds(started)
        )


@contextmanager
def run_trace(run_id: str, engine: str, provider: TracerProvider | None = None) -> Iterator[RunTrace]:
    """Yield what the run tells its progress to; its end is the end of the run's span.

    Parameters
    ----------
    provider
        Takes the spans; None: one that sends them where the environment says, or nobody.
    """
    own = tracer_provider() if provider is None else provider
    if own is None:
        yield RunTrace()
        return
    tracer = own.get_tracer("migverify", __version__)
    span = tracer.start_span("migverify run", attributes={"migverify.run": run_id, "migverify.engine": engine})
    trace = _SpanTrace(tracer, span)
    try:
        yield trace
    finally:
        trace.close()
        if provider is None:
            shut_down(own)


def _end(span: Span, at: float, *, is_fine: bool) -> None:
    if not is_fine:
        from opentelemetry.trace import StatusCode

        span.set_status(StatusCode.ERROR)
    span.end(_nanoseconds(at))


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000_000)

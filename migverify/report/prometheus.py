"""Prometheus text format 0.0.4, for a textfile collector or a push gateway.

The run id stands only in ``migverify_run_info``: as a label everywhere it would make new series of every run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from migverify.exposition import Metric, number, page
from migverify.model import ChunkState, DiffKind, Verdict
from migverify.report.rules_data import metrics
from migverify.report.summary import ReportData, TableReport

_Sample = tuple[dict[str, str], float]
_Metric = tuple[str, str, Iterable[_Sample]]


def render_prometheus(data: ReportData) -> str:
    """Return one gauge per fact; an unknown number is ``NaN``, never left out and never 0."""
    told = (
        Metric(name, text, [(labels, number(value)) for labels, value in samples])
        for name, text, samples in _metrics(data)
    )
    return page(chain(told, (Metric(*metric) for metric in metrics(data.rules))))


def _metrics(data: ReportData) -> Iterator[_Metric]:
    yield from _run_metrics(data)
    yield from _table_metrics(data.tables)


def _run_metrics(data: ReportData) -> Iterator[_Metric]:
    info = {
        "run_id": data.run_id,
        "command": data.command,
        "engine": data.engine,
        "hash": ",".join(data.hashes),
        "plan": data.plan_hash,
    }
    yield "migverify_run_info", "Facts of the run; always 1.", [(info, 1)]
    yield (
        "migverify_run_verdict",
        "1 for the verdict of the run, 0 for the others.",
        _verdicts({}, data.verdict),
    )
    yield "migverify_run_exit_code", "0 match, 1 mismatch, 3 inconclusive.", [({}, int(data.exit_code))]
    yield (
        "migverify_run_seconds",
        "Working time of the run; NaN while its end is not known.",
        [({}, _unknown(data.seconds))],
    )
    yield "migverify_run_started_timestamp_seconds", "Unix time of the start.", [({}, data.started)]
    yield (
        "migverify_run_finished_timestamp_seconds",
        "Unix time of the end; NaN without one.",
        [({}, _unknown(data.finished))],
    )
    yield (
        "migverify_run_rules" if data.noun == "rule" else "migverify_run_tables",
        f"{'Rules' if data.noun == 'rule' else 'Table pairs'} by verdict.",
        [({"verdict": str(verdict)}, n) for verdict, n in data.verdict_counts.items()],
    )


def _table_metrics(tables: Sequence[TableReport]) -> Iterator[_Metric]:
    yield (
        "migverify_table_verdict",
        "1 for the verdict of the table pair, 0 for the others.",
        (sample for t in tables for sample in _verdicts(_names(t), t.result.verdict)),
    )
    yield (
        "migverify_table_rows",
        "Rows per side; NaN when not counted.",
        (
            ({**_names(t), "side": side}, _unknown(rows))
            for t in tables
            for side, rows in (("source", t.result.rows_source), ("target", t.result.rows_target))
        ),
    )
    yield (
        "migverify_table_chunks",
        "Chunks in the store by their last state.",
        (({**_names(t), "state": str(state)}, t.coverage.states.get(state, 0)) for t in tables for state in ChunkState),
    )
    yield (
        "migverify_table_row_diffs",
        "Row diffs by kind.",
        (({**_names(t), "kind": str(kind)}, getattr(t.result, kind.value)) for t in tables for kind in DiffKind),
    )
    yield (
        "migverify_table_seconds",
        "Wall time of the table pair.",
        ((_names(t), t.result.seconds) for t in tables),
    )


def _names(table: TableReport) -> dict[str, str]:
    # Several shards of one table may share their names; the pair's id keeps their series apart.
    return {"pair": table.result.pair, "source": table.result.source, "target": table.result.target}


def _verdicts(labels: dict[str, str], verdict: Verdict) -> Iterator[_Sample]:
    return (({**labels, "verdict": str(each)}, float(each is verdict)) for each in Verdict)


def _unknown(value: float | None) -> float:
    return math.nan if value is None else value

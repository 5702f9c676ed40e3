"""Fakes of the outside seams, for tests that need no database."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from migverify.errors import StoreError, UsageError
from migverify.model import (
    ChunkResult,
    ChunkState,
    KeyRange,
    KeyText,
    RowDiff,
    RunInfo,
    StoredKind,
    TableResult,
    Verdict,
)
from migverify.store.results import ResultStore


class _Run:
    def __init__(self, info: RunInfo) -> None:
        self.info = info
        self.spans: dict[str, dict[int, KeyRange]] = {}
        self.chunks: dict[str, dict[tuple[int, int], ChunkResult]] = {}
        self.diffs: dict[str, dict[KeyText, tuple[int, RowDiff]]] = {}
        self.tables: dict[str, TableResult] = {}
        self.sql: dict[tuple[str, str, str], str] = {}
        self.blobs: dict[tuple[str, str], list[bytes]] = {}
        self.windows: dict[tuple[str, str], dict[str, Any]] = {}
        self.findings: dict[str, dict[tuple[str, KeyText], tuple[int, dict[str, Any]]]] = {}


class FakeStore(ResultStore):
    """A result store in memory. ``now`` gives Unix time; with ``fail`` every call is a ``StoreError``."""

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        ticks = itertools.count(1_800_000_000)
        self._now = now or (lambda: float(next(ticks)))
        self._runs: dict[str, _Run] = {}
        self._numbers = itertools.count(1)
        self.calls: Counter[str] = Counter()
        self.fail = False
        self.closed = False

    def _run(self, call: str, run_id: str) -> _Run:
        self._called(call)
        if run_id == "last" and self._runs:
            run_id = max(self._runs)
        if run_id not in self._runs:
            raise UsageError(f"no run {run_id!r} in the store", hint="`migverify status` lists the runs.")
        return self._runs[run_id]

    def _called(self, call: str) -> None:
        self.calls[call] += 1
        if self.fail or self.closed:
            raise StoreError(f"the store does not answer ({call})")

    def start_run(
        self, command: str, plan_hash: str, plan: dict[str, Any], facts: dict[str, Any], *, kind: StoredKind
    ) -> str:
        self._called("start_run")
        run_id = f"run-{len(self._runs) + 1:06d}"
        info = RunInfo(
            run_id, command, self._now(), None, Verdict.INCONCLUSIVE, plan_hash, dict(plan), dict(facts), kind
        )
        self._runs[run_id] = _Run(info)
        return run_id

    def resume_run(self, run_id: str) -> RunInfo:
        run = self._run("resume_run", run_id)
        run.info = replace(run.info, finished=None, verdict=Verdict.INCONCLUSIVE, is_resumed=True)
        return run.info

    def finish_run(self, run_id: str, verdict: Verdict, facts: dict[str, Any]) -> None:
        run = self._run("finish_run", run_id)
        run.info = replace(run.info, finished=self._now(), verdict=verdict, facts={**run.info.facts, **facts})

    def add_span(self, run_id: str, pair: str, span: int, key_range: KeyRange) -> None:
        self._run("add_span", run_id).spans.setdefault(pair, {})[span] = key_range

    def spans(self, run_id: str, pair: str) -> list[tuple[int, KeyRange]]:
        return sorted(self._run("spans", run_id).spans.get(pair, {}).items())

    def add_chunks(self, run_id: str, results: Sequence[ChunkResult], diffs: Sequence[RowDiff]) -> None:
        run = self._run("add_chunks", run_id)
        for result in results:
            run.chunks.setdefault(result.pair, {})[result.span, result.number] = result
        self._put(run, diffs)

    def chunks(self, run_id: str, pair: str) -> Iterator[ChunkResult]:
        run = self._run("chunks", run_id)
        return iter([chunk for _, chunk in sorted(run.chunks.get(pair, {}).items())])

    def chunk_totals(self, run_id: str, pair: str) -> dict[str, int]:
        chunks = self._run("chunk_totals", run_id).chunks.get(pair, {}).values()
        states = Counter(chunk.state for chunk in chunks)
        return {
            "chunks": len(chunks),
            **{str(state): states[state] for state in ChunkState},
            "rows_source": sum(chunk.source.rows for chunk in chunks if chunk.source is not None),
            "rows_target": sum(chunk.target.rows for chunk in chunks if chunk.target is not None),
            "unread_source": sum(chunk.source is None for chunk in chunks),
            "unread_target": sum(chunk.target is None for chunk in chunks),
        }

    def add_row_diffs(self, run_id: str, diffs: Sequence[RowDiff]) -> None:
        self._put(self._run("add_row_diffs", run_id), diffs)

    def _put(self, run: _Run, diffs: Sequence[RowDiff]) -> None:
        for diff in diffs:
            run.diffs.setdefault(diff.pair, {})[diff.key] = (next(self._numbers), diff)

    def row_diffs(
        self,
        run_id: str,
        pair: str,
        *,
        states: Sequence[str] | None = None,
        after: int = 0,
        limit: int = 1000,
    ) -> list[tuple[int, RowDiff]]:
        latest = sorted(self._run("row_diffs", run_id).diffs.get(pair, {}).values(), key=lambda entry: entry[0])
        wanted = (e for e in latest if e[0] > after and (states is None or e[1].state in states))
        return list(itertools.islice(wanted, limit))

    def count_row_diffs(self, run_id: str, pair: str, *, distinct: bool = False) -> dict[tuple[str, str], int]:
        found: Counter[tuple[str, str]] = Counter()
        for _, diff in self._run("count_row_diffs", run_id).diffs.get(pair, {}).values():
            found[str(diff.kind), str(diff.state)] += 1 if distinct else diff.rows
        return dict(found)

    def add_table_result(self, run_id: str, result: TableResult) -> None:
        self._run("add_table_result", run_id).tables[result.pair] = result

    def table_results(self, run_id: str) -> list[TableResult]:
        return sorted(self._run("table_results", run_id).tables.values(), key=lambda r: (r.source, r.target, r.pair))

    def add_sql(self, run_id: str, pair: str, side: str, purpose: str, text: str) -> None:
        self._run("add_sql", run_id).sql.setdefault((pair, side, purpose), text)

    def sql(self, run_id: str, pair: str) -> list[tuple[str, str, str]]:
        recorded = self._run("sql", run_id).sql.items()
        return [(side, purpose, text) for (of, side, purpose), text in recorded if of == pair]

    def add_blob(self, run_id: str, pair: str, name: str, content: bytes) -> None:
        self._run("add_blob", run_id).blobs.setdefault((pair, name), []).append(content)

    def blobs(self, run_id: str, pair: str, name: str) -> Iterator[bytes]:
        return iter(list(self._run("blobs", run_id).blobs.get((pair, name), [])))

    def add_window(self, run_id: str, rule: str, body: dict[str, Any], findings: Sequence[dict[str, Any]]) -> None:
        run = self._run("add_window", run_id)
        run.windows[rule, body["window"]] = json.loads(json.dumps({**body, "state": body["state"]}))
        for finding in findings:
            place = finding["window"], tuple(finding["key"])
            kept = json.loads(json.dumps({**finding, "kind": finding["kind"]}))
            run.findings.setdefault(rule, {})[place] = (next(self._numbers), kept)

    def windows(self, run_id: str, rule: str) -> Iterator[dict[str, Any]]:
        kept = self._run("windows", run_id).windows
        return iter([body for (of, _), body in sorted(kept.items(), key=lambda item: item[0]) if of == rule])

    def findings(
        self, run_id: str, rule: str, *, kinds: Sequence[str] | None = None, after: int = 0, limit: int = 1000,
        window: str | None = None,
    ) -> list[tuple[int, dict[str, Any]]]:  # fmt: skip
        every = self._run("findings", run_id).findings.get(rule, {}).values()
        latest = sorted((e for e in every if window is None or e[1]["window"] == window), key=lambda entry: entry[0])
        wanted = (e for e in latest if e[0] > after and (e[1]["kind"] in kinds if kinds is not None else e[1]["kind"]))
        return list(itertools.islice(wanted, limit))

    def count_findings(self, run_id: str, rule: str) -> dict[str, int]:
        kept = self._run("count_findings", run_id).findings.get(rule, {}).values()
        return dict(Counter(body["kind"] for _, body in kept if body["kind"]))

    def load_run(self, run_id: str) -> RunInfo:
        return self._run("load_run", run_id).info

    def runs(self, limit: int = 50) -> list[RunInfo]:
        self._called("runs")
        return [run.info for _, run in sorted(self._runs.items(), reverse=True)][:limit]

    def close(self) -> None:
        self.closed = True

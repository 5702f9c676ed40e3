"""What a run keeps: the protocol every result store fulfills.

A store is append-only: nothing written is changed, later rows say more. A run without ``finish_run`` loads as
INCONCLUSIVE. One process writes a run; any number may read it meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from migverify.errors import UsageError
from migverify.model import ChunkResult, KeyRange, RowDiff, RunInfo, StoredKind, TableResult, Verdict

RUNS_SEARCHED = 1000
_STARTED_BY = {StoredKind.TABLES: "tables verify", StoredKind.RULES: "recon run", StoredKind.REPLAY: "workload replay"}


class ResultStore(Protocol):
    """Append-only run results. Every method raises ``StoreError`` when the store cannot be written or read."""

    def start_run(
        self, command: str, plan_hash: str, plan: dict[str, Any], facts: dict[str, Any], *, kind: StoredKind
    ) -> str:
        """Begin a run and return its id (sortable by time, unique across processes)."""
        ...

    def resume_run(self, run_id: str) -> RunInfo:
        """Mark that a new process goes on with the run; the former verdict no longer holds."""
        ...

    def finish_run(self, run_id: str, verdict: Verdict, facts: dict[str, Any]) -> None:
        """End a run. ``facts`` (versions, positions, seconds) are merged over those of ``start_run``."""
        ...

    def add_span(self, run_id: str, pair: str, span: int, key_range: KeyRange) -> None:
        """Record that the table pair was cut so; written before any chunk of the span."""
        ...

    def spans(self, run_id: str, pair: str) -> list[tuple[int, KeyRange]]:
        """All spans of the pair, by number."""
        ...

    def add_chunks(self, run_id: str, results: Sequence[ChunkResult], diffs: Sequence[RowDiff]) -> None:
        """Record finished chunks and the row diffs found in them in one transaction: both or neither."""
        ...

    def chunks(self, run_id: str, pair: str) -> Iterator[ChunkResult]:
        """Last attempt of every chunk of the pair, by span and number; streamed."""
        ...

    def chunk_totals(self, run_id: str, pair: str) -> dict[str, int]:
        """Sums over the last attempt of every chunk of the pair.

        ``chunks``, ``equal``, ``different``, ``failed``, ``rows_source``, ``rows_target``, ``unread_source``,
        ``unread_target``: chunks by state, rows of the sides that answered, chunks where a side did not.
        """
        ...

    def add_row_diffs(self, run_id: str, diffs: Sequence[RowDiff]) -> None:
        """Append row diffs; a later row of the same pair, key, kind-independent, supersedes the earlier."""
        ...

    def row_diffs(
        self,
        run_id: str,
        pair: str,
        *,
        states: Sequence[str] | None = None,
        after: int = 0,
        limit: int = 1000,
    ) -> list[tuple[int, RowDiff]]:
        """Latest state per (pair, key), paged: rows with a number above ``after``, at most ``limit``."""
        ...

    def count_row_diffs(self, run_id: str, pair: str, *, distinct: bool = False) -> dict[tuple[str, str], int]:
        """Exact counts by (kind, state) over the latest state per key: of rows that differ, or of distinct ones."""
        ...

    def add_table_result(self, run_id: str, result: TableResult) -> None:
        """Record the end of one table pair; the last one counts."""
        ...

    def table_results(self, run_id: str) -> list[TableResult]:
        """The last result of each table pair, in the order of their names."""
        ...

    def add_sql(self, run_id: str, pair: str, side: str, purpose: str, text: str) -> None:
        """Record the exact SQL used for a purpose (checksum, rows, walk ...), once per (pair, side, purpose)."""
        ...

    def sql(self, run_id: str, pair: str) -> list[tuple[str, str, str]]:
        """Recorded (side, purpose, text)."""
        ...

    def add_blob(self, run_id: str, pair: str, name: str, content: bytes) -> None:
        """Append a named intermediate result (bucket sums of a whole-table comparison)."""
        ...

    def blobs(self, run_id: str, pair: str, name: str) -> Iterator[bytes]:
        """Stream what was appended under that name, in order."""
        ...

    def add_window(self, run_id: str, rule: str, body: dict[str, Any], findings: Sequence[dict[str, Any]]) -> None:
        """Record the end of one rule in one window, and its findings, in one transaction: both or neither.

        ``body`` holds at least ``window`` (text, empty without windows) and ``state``; a later body of the same rule
        and window supersedes. A finding holds at least ``key`` (list of texts), ``window`` and ``kind``; a later one of
        the same rule, window and key supersedes; one of kind "" withdraws it, and is not listed.
        """
        ...

    def windows(self, run_id: str, rule: str) -> Iterator[dict[str, Any]]:
        """The last body of each window of a rule, in the order of their text; streamed."""
        ...

    def findings(
        self, run_id: str, rule: str, *, kinds: Sequence[str] | None = None, after: int = 0, limit: int = 1000,
        window: str | None = None,
    ) -> list[tuple[int, dict[str, Any]]]:  # fmt: skip
        """Last state of each finding, paged: those with a number above ``after``, at most ``limit``.

        ``window`` is the text of a window, empty for the one of all rows: only its findings; None for all windows.
        """
        ...

    def count_findings(self, run_id: str, rule: str) -> dict[str, int]:
        """Exact counts of the last findings of a rule by kind."""
        ...

    def load_run(self, run_id: str) -> RunInfo:
        """One run; ``UsageError`` when there is none of that id (``last`` names the newest)."""
        ...

    def runs(self, limit: int = 50) -> list[RunInfo]:
        """The newest runs first; ``plan`` may be left empty here."""
        ...

    def close(self) -> None:
        """Release connections."""
        ...


def named_run(
    store: ResultStore, name: str, kind: StoredKind, digest: str | None = None, *,
    suits: Callable[[RunInfo], bool] = lambda _: True,
) -> RunInfo:  # fmt: skip
    """Return a run of a kind by its id. ``last`` is the newest of the kind that suits and has the digest.

    Parameters
    ----------
    digest
        The hash of what is compared; None for any. Where no run has it, ``last`` is the newest with another one, and
        who compares digests tells what changed.
    suits
        A further condition for ``last``, on what ``ResultStore.runs`` returns.

    Raises
    ------
    UsageError
        there is no such run, or it is of another kind.
    """
    if name != "last":
        info = store.load_run(name)
        if info.kind is not kind:
            guards = info.plan.get("guards")
            names = f" ({', '.join(map(str, guards))})" if isinstance(guards, list) else ""
            raise UsageError(
                f"run {info.run_id} is one {info.kind.words}{names}; a run {kind.words} is needed",
                hint=f"`last` names the newest run {kind.words}; `migverify report {info.run_id}` shows this one.",
            )
        return info
    fitting = [info for info in store.runs(RUNS_SEARCHED) if info.kind is kind and suits(info)]
    if not fitting:
        raise UsageError(
            f"the store holds no such run {kind.words} among its newest {RUNS_SEARCHED:,}",
            hint=f"Start one by `migverify {_STARTED_BY[kind]}`, or name a run by its id.",
        )
    same = (info for info in fitting if digest is None or info.plan_hash == digest)
    return store.load_run(next(same, fitting[0]).run_id)

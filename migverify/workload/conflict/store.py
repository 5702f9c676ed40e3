"""Explained conflicts as a run of the store: what met what and why, without literals and values of keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from migverify.errors import StoreError
from migverify.model import StoredKind, Verdict
from migverify.store.results import ResultStore
from migverify.workload.conflict.causes import UNKNOWN
from migverify.workload.conflict.model import ConflictKind, Explanation
from migverify.workload.mask import mask_text
from migverify.workload.model import text_of

KEPT_OF_REPLAY = ("endpoints", "basis")
"""Facts of a replay that the conflicts it met rest on as well."""
HARMLESS = frozenset({"asynchronous commit", "internal"})
"""Causes after which nothing is to be changed in the application."""
_WAITS = frozenset({ConflictKind.READ.value, ConflictKind.WAIT.value})
_RULE = "conflicts"
_PAGE = 500
_SHOWN = 400


@dataclass(frozen=True, slots=True)
class StoredConflict:
    """A conflict as a run keeps it. ``table`` is empty where the key is not known."""

    kind: str
    code: int | None
    table: str
    cause: str
    remedy: str
    sql: str
    where: str

    @property
    def verdict(self) -> Verdict:
        """MISMATCH: an error that the application has to handle; INCONCLUSIVE: its cause is not known."""
        if self.cause == UNKNOWN:
            return Verdict.INCONCLUSIVE
        harmless = self.cause in HARMLESS or (self.kind in _WAITS and self.code is None)
        return Verdict.MATCH if harmless else Verdict.MISMATCH

    @property
    def title(self) -> str:
        """What happened, in a few words."""
        code = f"{self.code} " if self.code else ""
        return f"{code}{self.kind}{f' on {self.table}' if self.table else ''}: {self.cause}"

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "kind": self.kind, "code": self.code, "table": self.table, "cause": self.cause, "remedy": self.remedy,
            "sql": self.sql, "where": self.where,
        }  # fmt: skip


def stored(explanation: Explanation) -> StoredConflict:
    """Return what is kept of an explanation."""
    conflict = explanation.conflict
    sql = text_of(mask_text(explanation.ours.sql.encode())) if explanation.ours.sql else ""
    return StoredConflict(
        conflict.kind.value, conflict.code, conflict.key.table if conflict.key else "", explanation.cause,
        explanation.remedy, sql[:_SHOWN], conflict.where,
    )  # fmt: skip


def conflicts_verdict(conflicts: Sequence[StoredConflict], left_out: int, replay: str) -> Verdict:
    """Return MATCH only where a whole replay met no conflict that matters."""
    verdicts = [one.verdict for one in conflicts]
    if left_out or not replay:
        verdicts.append(Verdict.INCONCLUSIVE)
    return Verdict.worst(verdicts) if verdicts else Verdict.MATCH


def conflict_reasons(conflicts: Sequence[StoredConflict], left_out: int, replay: str) -> Iterator[str]:
    """Yield why the verdict is no MATCH."""
    for verdict, words in ((Verdict.MISMATCH, "that the application sees"), (Verdict.INCONCLUSIVE, "without a cause")):
        number = sum(one.verdict is verdict for one in conflicts)
        if number:
            yield f"{number:,} {'conflict' if number == 1 else 'conflicts'} {words}"
    if left_out:
        yield f"{left_out:,} more were left out (--limit)"
    if not replay:
        yield "logs and messages show some conflicts, and never that there are no others: only a replay does (--replay)"


def store_conflicts(
    store: ResultStore, command: str, explained: Sequence[Explanation], facts: Mapping[str, Any],
    *, replay: str, left_out: int, seconds: float,
) -> str:  # fmt: skip
    """Keep explained conflicts as a run of its own, and return its id.

    Parameters
    ----------
    replay
        The run of the replay that met them, and that no other evidence was added to; empty where there is none.
    left_out
        How many were not explained.
    """
    plan = {"conflicts": {"replay": replay}}
    run_id = store.start_run(command, "", plan, {**facts, "replay": replay}, kind=StoredKind.CONFLICTS)
    kept = [stored(one) for one in explained]
    findings = [
        {"key": [f"{number:09}"], "window": "", "kind": one.verdict.value.lower(), "conflict": one.as_json()}
        for number, one in enumerate(kept)
    ]
    body = {"window": "", "state": "done", "conflicts": len(kept), "left_out": left_out}
    store.add_window(run_id, _RULE, body, findings)
    verdict, reasons = conflicts_verdict(kept, left_out, replay), list(conflict_reasons(kept, left_out, replay))
    store.finish_run(run_id, verdict, {"reasons": reasons, "seconds": round(seconds, 3)})
    return run_id


def stored_totals(store: ResultStore, run_id: str) -> tuple[int, int] | None:
    """Return how many conflicts a run explained, and how many it left out; None where it did not get so far."""
    for body in store.windows(run_id, _RULE):
        if body.get("state") == "done":
            return int(body["conflicts"]), int(body["left_out"])
    return None


def stored_conflicts(store: ResultStore, run_id: str) -> Iterator[StoredConflict]:
    """Yield the conflicts of a run, in the order in which they were explained.

    Raises StoreError: one cannot be read.
    """
    after = 0
    while page := store.findings(run_id, _RULE, after=after, limit=_PAGE):
        for number, finding in page:
            after = number
            try:
                body = finding["conflict"]
                texts = [str(body[name]) for name in ("table", "cause", "remedy", "sql", "where")]
                yield StoredConflict(str(body["kind"]), body["code"], *texts)
            except (KeyError, TypeError) as error:
                raise StoreError(
                    f"run {run_id} holds a conflict that cannot be read: {error}",
                    hint="Another version wrote it, or the store is damaged: explain the conflicts again.",
                ) from error

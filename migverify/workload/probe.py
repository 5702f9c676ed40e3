"""What the catalogue's probes find on a pair: an answer per entry and side, judged against what was expected.

The way: ``probe_run`` asks both sides -> ``judge`` says whether the entry holds here -> ``verdict``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from migverify.model import Flavor, Verdict
from migverify.workload.catalogue.expected import ExpectedAnswers, ProbeOutcome
from migverify.workload.catalogue.model import CatalogueEntry, EntryClass, Probe, ProbeState
from migverify.workload.catalogue.versions import KnownServer

RULE = "probe"
"""Prefix of the store's name of an entry's result: ``probe:handler-001``."""


@dataclass(frozen=True, slots=True)
class SideAnswer:
    """What one side answered: an outcome per asked step, or why there is none.

    ``taken`` is True where the side was not asked, and the catalogue's expectation is used in its place.
    """

    outcomes: tuple[ProbeOutcome, ...] = ()
    reason: str = ""
    taken: bool = False


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """One entry's probe on a pair."""

    entry: CatalogueEntry
    state: ProbeState
    reason: str
    source: SideAnswer
    target: SideAnswer
    seconds: float = 0.0

    @property
    def target_only(self) -> bool:
        """Whether the source was not asked."""
        return self.source.taken

    @property
    def blocks(self) -> bool:
        """Whether the entry is a blocker that holds here."""
        return self.state is ProbeState.HOLDS and self.entry.kind is EntryClass.BLOCKER

    def as_json(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return {
            "id": self.entry.id, "title": self.entry.title, "class": self.entry.kind.value, "state": self.state.value,
            "reason": self.reason, "seen_on": self.entry.seen_on, "target_only": self.target_only,
            "source": _answers(self.source),
            "target": _answers(self.target), "seconds": round(self.seconds, 3),
        }  # fmt: skip


def _answers(answer: SideAnswer) -> list[dict[str, str]]:
    return [{"sql": outcome.sql, "answer": outcome.text()} for outcome in answer.outcomes]


def expectations(probe: Probe, server: KnownServer) -> ExpectedAnswers | None:
    """Return what a server should answer: MariaDB, where nothing is said of it, like MySQL."""
    for flavor in (server.flavor, Flavor.MYSQL if server.flavor is Flavor.MARIADB else server.flavor):
        for one in probe.expect:
            if one.fits(flavor, server.version):
                return one
    return None


def judge(
    probe: Probe, source: tuple[KnownServer, SideAnswer], target: tuple[KnownServer, SideAnswer]
) -> tuple[ProbeState, str]:
    """Return whether an entry holds on a pair, and why.

    It holds when both sides answer as expected, and not alike; it does not hold when they answer alike in all that one
    of the expectations names, or the target as the source is expected to; anything else has changed since the entry was
    written.
    """
    for server, answer in (source, target):
        if answer.reason:
            return ProbeState.NOT_RUN, answer.reason
        if expectations(probe, server) is None:
            return ProbeState.NOT_RUN, f"the catalogue does not say what {server.text or server.flavor} answers"
    of_source, of_target = expectations(probe, source[0]), expectations(probe, target[0])
    if of_source is None or of_target is None:
        return ProbeState.NOT_RUN, "the catalogue does not say what the servers answer"
    lost = [outcome.failed for _, answer in (source, target) for outcome in answer.outcomes if outcome.failed]
    if lost:
        return ProbeState.NOT_RUN, lost[0]
    if not source[1].taken and _alike(of_source, of_target, source[1], target[1]):
        return ProbeState.DOES_NOT_HOLD, "both sides answer alike"
    if not source[1].taken:
        wrong = _differences(of_source, source[1])
        if wrong:
            return ProbeState.CHANGED, f"source: {wrong[0]}"
    as_source = not _differences(of_source, target[1])
    as_expected = not _differences(of_target, target[1])
    if as_source:
        return ProbeState.DOES_NOT_HOLD, "the target answers like the source"
    if as_expected:
        return ProbeState.HOLDS, ""
    return ProbeState.CHANGED, f"target: {_differences(of_target, target[1])[0]}"


def _alike(first: ExpectedAnswers, second: ExpectedAnswers, source: SideAnswer, target: SideAnswer) -> bool:
    """Tell whether both sides answered the same, in all that one of the expectations names."""
    steps = zip(first.outcomes, second.outcomes, source.outcomes, target.outcomes, strict=True)
    return all(_same(set(one.named()) | set(other.named()), ours, theirs) for one, other, ours, theirs in steps)


def _same(names: set[str], ours: ProbeOutcome, theirs: ProbeOutcome) -> bool:
    if ours.failed or theirs.failed or ours.errno != theirs.errno or ours.waited != theirs.waited:
        return False
    if ours.errno:
        return "message" not in names or ours.message == theirs.message
    values: dict[str, tuple[object, object]] = {
        "rows": (ours.rows, theirs.rows), "row_count": (len(ours.rows), len(theirs.rows)),
        "affected": (ours.affected, theirs.affected), "insert_id": (ours.insert_id, theirs.insert_id),
        "warnings": (ours.warnings, theirs.warnings), "columns": (ours.columns, theirs.columns),
        "info": (ours.info, theirs.info),
    }  # fmt: skip
    return all(one == other for name, (one, other) in values.items() if name in names)


def _differences(expected: ExpectedAnswers, answer: SideAnswer) -> list[str]:
    return [
        text
        for one, outcome in zip(expected.outcomes, answer.outcomes, strict=True)
        for text in one.differences(outcome)
    ]  # fmt: skip


def verdict(results: Sequence[ProbeResult]) -> tuple[Verdict, list[str]]:
    """Return the verdict of a run of probes, and its reasons.

    MISMATCH when a blocker holds; else INCONCLUSIVE when a probe did not run, answered otherwise than expected, or was
    not asked on the source; MATCH otherwise. No result at all is INCONCLUSIVE.
    """
    blockers = [result.entry.id for result in results if result.blocks]
    not_run = [result for result in results if result.state is ProbeState.NOT_RUN]
    changed = [result.entry.id for result in results if result.state is ProbeState.CHANGED]
    reasons = []
    if blockers:
        reasons.append(f"{_count(len(blockers), 'blocker')} hold here: {', '.join(blockers)}")
    if not_run:
        reasons.append(f"{_count(len(not_run), 'probe')} did not run: " + ", ".join(r.entry.id for r in not_run))
    if changed:
        reasons.append(f"{_count(len(changed), 'probe')} answered otherwise than expected: {', '.join(changed)}")
    if blockers:
        return Verdict.MISMATCH, reasons
    if not results:
        return Verdict.INCONCLUSIVE, ["no probe was requested"]
    if not_run or changed:
        return Verdict.INCONCLUSIVE, reasons
    return Verdict.MATCH, [f"all {_count(len(results), 'probe')} ran, and no blocker holds here"]


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"

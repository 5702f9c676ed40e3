"""What runs of plans say: the last one of the whole capture, and those that asked more than any since."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import dropwhile

from migverify.decision.differences import differences
from migverify.decision.model import DecisionPart, EvidenceReason, PartEvidence, basis_of
from migverify.decision.read import (
    DOUBT,
    HARM,
    EvidenceReading,
    choices,
    choose_runs,
    counted_harm,
    evidence_of,
    whole_of,
)
from migverify.model import RunInfo, StoredKind
from migverify.workload.plans.store import SINCE_RUN, stored_plans

_TEXT = 160
USUAL_SAMPLES = 3
"""Calls of each digest that ``workload plans`` explains by default."""
_ANALYZE = re.compile(r"ANALYZE TABLE (?:`(?:[^`]|``)+`\.)?`(?:[^`]|``)+`")


def read_plans(reading: EvidenceReading) -> PartEvidence:
    """Return what the last run of plans says of the capture's digests, and what those found that asked more."""
    chosen = choose_runs(reading, StoredKind.PLANS, _partial_plans)
    again = reading.repeated(whole_of(chosen), f"workload plans {reading.capture}", ["--try"])

    def reasons(run: RunInfo) -> Iterator[EvidenceReason]:
        yield from _plans(reading, run, again)

    found = evidence_of(
        reading, DecisionPart.PLANS, chosen, reasons, again,
        covered=lambda run: f"{run.facts.get('digests', 0)} digests",
    )  # fmt: skip
    if chosen.run is None:
        return found
    more = []
    counts = chosen.run
    if counts.finished is None:  # the one before it that ended takes harm away
        serving = filter(reading.serves, chosen.others)
        counts = next((one for one in serving if one.finished is not None and not _partial_plans(one)), counts)
    for run in _that_asked_more(reading, counts):
        mine = _again_since(reading, run)
        harm = [replace(one, run=run.run_id) for one in _plans(reading, run, mine) if one.kind is HARM]
        more += counted_harm(reading, DecisionPart.PLANS, harm, run.run_id, basis_of(run.facts), mine)
    return replace(found, reasons=(*found.reasons, *more))


def _plans(reading: EvidenceReading, run: RunInfo, again: str) -> Iterator[EvidenceReason]:
    held = 0
    for one in stored_plans(reading.store, run.run_id):
        held += 1
        weight = one.seconds or 0.0
        for finding in one.findings:
            text = f"{finding.harm}: {finding.reason}, in {_short(one.text)}"
            yield EvidenceReason(HARM, text, finding.remedy or again, weight)
        for doubt in one.doubts:
            sql = _ANALYZE.search(doubt)
            remedy = f"on the target: {sql[0]}; then {again}" if sql else again
            yield EvidenceReason(DOUBT, f"{doubt}, in {_short(one.text)}", remedy, weight)
    counted = run.facts.get("digests")
    if run.finished is not None and (counted != held or not held):
        text = f"the store holds {held:,} digests, and the run judged {counted if counted is not None else 'some'}"
        yield EvidenceReason(DOUBT, text if held else "the run judged no digest", again)


def _partial_plans(run: RunInfo) -> str:
    """Return why a run of plans is not of the whole capture, or looked at it less than usual; empty: it is."""
    chosen = choices(run)
    if not chosen:
        return "what the run chose of the capture is not recorded"
    if chosen.get("digests"):
        return "the plans are of some digests alone (--digest)"
    if chosen.get("reads_only"):
        return "the plans of writes were left out (--reads-only)"
    samples = int(chosen.get("samples") or 0)
    return "" if samples >= USUAL_SAMPLES else f"{samples} calls of a digest were explained, {USUAL_SAMPLES} are usual"


@dataclass(frozen=True, slots=True)
class _PlansAsked:
    """How much a run of plans asked: calls of a digest, their actual rows, and what changed since a baseline.

    ``baseline`` is the id of that run, empty where it is not known of which; ``began`` is when it began, None where the
    store does not hold it, or it is not of the whole capture.
    """

    samples: int
    analyze: bool
    since: bool
    baseline: str = ""
    began: float | None = None

    def covers(self, older: _PlansAsked) -> bool:
        """Whether a later run that asked this and does not find harm shows that it is gone."""
        if self.samples < older.samples or self.analyze < older.analyze:
            return False
        if not older.since:
            return True
        if not self.since or not self.baseline or not older.baseline:
            return False
        if self.baseline == older.baseline:
            return True
        return self.began is not None and older.began is not None and self.began <= older.began


def _asked(reading: EvidenceReading, run: RunInfo) -> _PlansAsked:
    chosen = choices(run)
    samples, analyze = int(chosen.get("samples") or 0), bool(chosen.get("analyze"))
    if not chosen.get("since"):
        return _PlansAsked(samples, analyze, since=False)
    baseline = str(chosen.get(SINCE_RUN) or _typed_baseline(reading, run))
    known = next((one for one in reading.runs(StoredKind.PLANS) if one.run_id == baseline), None)
    is_whole = known is not None and known.finished is not None and reading.serves(known) and not _partial_plans(known)
    return _PlansAsked(samples, analyze, True, baseline, known.started if known is not None and is_whole else None)


def _typed_baseline(reading: EvidenceReading, run: RunInfo) -> str:
    """Return the baseline of a run of an earlier release, which keeps its command alone; empty: it is not known."""
    typed = re.search(r"--since[= ](\S+)", run.command)
    if typed is None or typed[1] != "last":
        return "" if typed is None else typed[1]
    runs = dropwhile(lambda one: one.run_id != run.run_id, reading.runs(StoredKind.PLANS))
    before = (one for one in runs if one.finished is not None and one.finished <= run.started)
    return next((one.run_id for one in before if one.run_id != run.run_id), "")


def _that_asked_more(reading: EvidenceReading, chosen: RunInfo) -> Iterator[RunInfo]:
    """Yield runs of plans before the chosen one that asked what no later one did: these take their harm not away.

    A run takes harm away when it is whole, of the service as it is now, and leaves nothing open.
    """
    seen = [_asked(reading, chosen)]
    for run in dropwhile(lambda one: one.run_id != chosen.run_id, reading.runs(StoredKind.PLANS)):
        is_mine = reading.serves(run)
        if run.run_id == chosen.run_id or not (is_mine or reading.may_serve(run)):
            continue
        asked = _asked(reading, run)
        if any(one.covers(asked) for one in seen):
            continue
        yield run
        if is_mine and _is_without_doubt(reading, run):
            seen.append(asked)


def _is_without_doubt(reading: EvidenceReading, run: RunInfo) -> bool:
    then = basis_of(run.facts)
    if run.finished is None or _partial_plans(run) or then is None or reading.service is None:
        return False
    changed = differences(then, reading.service, reading.rules.clones, DecisionPart.PLANS, needs_capture=True)
    return not any(changed) and not any(one.kind is DOUBT for one in _plans(reading, run, ""))


def _again_since(reading: EvidenceReading, run: RunInfo) -> str:
    """Return the command that asks as much as a run did, since the same baseline: `last` is another one by now."""
    asked = _asked(reading, run)
    words = f"workload plans {reading.capture}"
    if reading.serves(run):
        again = reading.repeated(run, words, ["--try", "--since="])
    else:
        more = f" --samples {max(asked.samples, USUAL_SAMPLES)}{' --analyze' if asked.analyze else ''}"
        again = reading.command(words + more)
    return f"{again} --since {asked.baseline or 'RUN'}" if asked.since else again


def _short(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 4]} ..."

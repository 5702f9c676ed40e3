"""What replays say: their answers, and the latency of the target."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from migverify.decision.joins import JoinedEvidence, latency_forecast, shadow_replays
from migverify.decision.model import DecisionPart, EvidenceReason, PartEvidence
from migverify.decision.read import (
    DOUBT,
    HARM,
    NO_END,
    WAIVED,
    EvidenceReading,
    choose_runs,
    counted_harm,
    evidence_of,
    whole_of,
)
from migverify.model import RunInfo, StoredKind, Verdict
from migverify.workload.forecast.store import load_forecast
from migverify.workload.replay.store import count_weights, read_digests, read_whole

_HARMFUL = ("blocker", "review", "noise", "waived")
_TEXT = 160


def of_a_capture(run: RunInfo) -> bool:
    """Whether a replay was planned from a capture; one of a log that grows has no choices."""
    return isinstance(run.plan.get("choices"), Mapping)


def partial_replay(run: RunInfo) -> str:
    """Return why a replay is not of the whole capture on both sides; empty: it is."""
    asked = run.plan.get("choices")
    selection = asked.get("selection") if isinstance(asked, Mapping) else None
    if not isinstance(selection, Mapping):
        return "what the replay chose of the capture is not recorded"
    chosen = sorted(name for name, value in selection.items() if value)
    if chosen:
        return f"the replay is of a part of the capture, chosen by {', '.join(chosen)}"
    if set(run.plan.get("sides") or ()) != {"source", "target"}:
        return "the replay asked one side alone: no answers were compared"
    return ""


def whole_replay(run: RunInfo) -> str:
    """Return why a replay cannot show what concurrent writes do: it is partial, or it wrote nothing."""
    asked = run.plan.get("choices")
    leave = asked.get("leave") if isinstance(asked, Mapping) else None
    if why := partial_replay(run):
        return why
    return "" if isinstance(leave, Mapping) and leave.get("writes") else "the replay asked no writes"


def whole_replays(reading: EvidenceReading) -> Iterator[RunInfo]:
    """Yield the replays of the service that asked all writes and came to their end, the newest first."""
    for brief in reading.runs(StoredKind.REPLAY):
        if brief.finished is None or not reading.serves(brief):
            continue
        run = reading.store.load_run(brief.run_id)
        if not whole_replay(run):
            yield run


def last_whole_replay(reading: EvidenceReading) -> Path | None:
    """Return the folder of the newest replay that ``whole_replays`` yields; None: there is none.

    What it recorded may still be compared and explained, without another replay.
    """
    for run in whole_replays(reading):
        folder = Path(reading.replays) / run.run_id
        return folder if folder.is_dir() else None
    return None


def read_answers(reading: EvidenceReading) -> PartEvidence:
    """Return what the last replay of the capture says of its answers, with what shadow replays found."""
    chosen = choose_runs(reading, StoredKind.REPLAY, partial_replay, suits=of_a_capture)
    again = reading.repeated(whole_of(chosen), f"workload replay {reading.capture}")

    def reasons(run: RunInfo) -> Iterator[EvidenceReason]:
        return answer_reasons(reading, run, again)

    found = evidence_of(
        reading, DecisionPart.ANSWERS, chosen, reasons, again, covered=lambda run: _covered(reading, run)
    )
    for shadow in shadow_replays(reading, whole_of(chosen)):
        found = _with_shadow(reading, found, shadow, whole_of(chosen))
    return found


def _with_shadow(
    reading: EvidenceReading, found: PartEvidence, shadow: JoinedEvidence, replay: RunInfo | None
) -> PartEvidence:
    """Add a shadow replay: its harm counts, and so do its doubts, unless a whole ``replay`` began after it.

    It asks reads alone, so it takes nothing away that a replay or another shadow replay showed or left open, it makes
    no replay fresher, and it is no evidence without one.
    """
    is_over = replay is not None and shadow.taken is not None and replay.started > shadow.taken
    mine = [replace(one, run=one.run or shadow.run) for one in shadow.reasons]
    harm = [one for one in mine if one.kind is HARM]
    doubts = [one for one in mine if one.kind is not HARM and not is_over]
    if not found.run:
        doubt = EvidenceReason(DOUBT, "a shadow replay asks reads alone: answers to writes are not known", found.again)
        return replace(
            found, run=shadow.run, taken=shadow.taken, began=shadow.began, basis=shadow.basis, needs_capture=False,
            reasons=(*found.reasons, *harm, *doubts, doubt), covered=shadow.covered,
        )  # fmt: skip
    harm = counted_harm(
        reading, found.part, harm, shadow.run, shadow.basis, found.again, needs_capture=False
    )  # fmt: skip
    return replace(found, reasons=(*found.reasons, *harm, *doubts))


def answer_reasons(reading: EvidenceReading, run: RunInfo, again: str) -> Iterator[EvidenceReason]:
    """Yield what a replay proves about answers, and what it leaves open; ``again`` is the command that asks anew."""
    store = reading.store
    valid = {f"{one.owner}, until {one.expires}: {one.reason}" for one in reading.waivers}
    harm = 0
    for one in read_digests(store, run.run_id, _HARMFUL):
        for reason in _of_digest(reading, run, one.tally.digest, one.tally.text, one.tally.count, one.verdict, valid):
            harm += reason.kind is HARM
            yield reason
    whole = read_whole(store, run.run_id)
    if whole is None:
        if run.finished is not None:
            yield EvidenceReason(DOUBT, "the replay did not get to its result", again)
        return
    coverage = whole["coverage"]
    held = sum(count_weights(store, run.run_id).values())
    if held < int(coverage["digests"]):
        text = f"the store holds {held:,} of the {int(coverage['digests']):,} digests that the replay judged"
        yield EvidenceReason(DOUBT, text, again)
    if left_out := int(coverage.get("out_of_scope", 0)):
        text = f"{left_out:,} statements were left out by name (--reads-only): their answers are not compared"
        yield EvidenceReason(DOUBT, text, reading.command(f"workload replay {reading.capture} --writes"), left_out)
    yield from _open(run, whole, again, proved=bool(harm))


def _of_digest(
    reading: EvidenceReading, run: RunInfo, digest: str, text: str, calls: int, verdict: Mapping[str, Any],
    valid: set[str],
) -> Iterator[EvidenceReason]:  # fmt: skip
    """Yield the harm of a digest, and what was accepted about it."""
    shown = f"{_short(text)} ({calls:,} {'call' if calls == 1 else 'calls'})" if text else f"digest {digest[:16]}"
    remedy = reading.command(f"workload reproduce --run {run.run_id} --digest {digest[:16]}")
    blockers = sorted({one["aspect"] for one in verdict["findings"] if one["weight"] == "blocker"})
    if blockers or verdict["verdict"] == Verdict.MISMATCH:
        yield EvidenceReason(HARM, f"{_differ(blockers)}: {shown}", remedy, calls)
    for one in verdict["findings"]:
        if one["weight"] != "waived":
            continue
        if one["waiver"] in valid:
            yield EvidenceReason(WAIVED, f"{_differ([one['aspect']])}: {shown}", remedy, calls, one["waiver"])
        else:
            lapsed = f"it was accepted by {one['waiver']}, which does not hold any more"
            yield EvidenceReason(HARM, f"{_differ([one['aspect']])}: {shown}; {lapsed}", remedy, calls)


def _differ(aspects: Sequence[str]) -> str:
    return f"{aspects[0]} differs" if len(aspects) == 1 else f"{', '.join(aspects) or 'answers'} differ"


def _open(run: RunInfo, whole: Mapping[str, Any], again: str, *, proved: bool) -> Iterator[EvidenceReason]:
    """Yield why a replay is no MATCH, without what is harm, and without service levels, which are latency's."""
    levels = {_missed(level) for level in whole.get("slo", ())} | {_unknown(level) for level in whole.get("slo", ())}
    left = [str(why) for why in whole["reasons"] if why not in levels]
    others = [why for why in left if not (proved and "differ for certain" in why)]
    for why in others:
        yield EvidenceReason(DOUBT, why, again)
    verdict = Verdict(whole["verdict"])
    if verdict is Verdict.INCONCLUSIVE and not left and not levels:
        yield EvidenceReason(DOUBT, "the replay is INCONCLUSIVE, and does not say why", again)
    if verdict is Verdict.MISMATCH and not proved and not levels:
        yield EvidenceReason(DOUBT, "the replay is MISMATCH, and the store holds no digest that differs", again)
    if run.finished is not None and run.verdict is not verdict:
        yield EvidenceReason(
            DOUBT, f"the store contradicts itself: the run is {run.verdict}, its replay {verdict}", again
        )


def _missed(level: Mapping[str, Any]) -> str:
    return f"service level {level['name']} was missed: {'; '.join(level['reasons']) or 'no reason given'}"


def _unknown(level: Mapping[str, Any]) -> str:
    return f"service level {level['name']} is not known: {'; '.join(level['reasons']) or 'no reason given'}"


def _covered(reading: EvidenceReading, run: RunInfo) -> str:
    whole = read_whole(reading.store, run.run_id)
    if whole is None:
        return ""
    coverage = whole["coverage"]
    return f"{int(coverage['judged']):,} of {int(coverage['statements']):,} statements judged, of" \
        f" {int(coverage['digests']):,} digests"  # fmt: skip


def read_latency(reading: EvidenceReading) -> PartEvidence:
    """Return whether the service levels hold: what the last replay measured of all of them, and the forecast of it."""

    def partial(run: RunInfo) -> str:
        return partial_replay(run) or _levels_left_out(reading, run)

    chosen = choose_runs(reading, StoredKind.REPLAY, partial, suits=of_a_capture)
    again = _with_levels(reading)
    covered = ""

    def reasons(run: RunInfo) -> Iterator[EvidenceReason]:
        nonlocal covered
        whole = read_whole(reading.store, run.run_id)
        for level in () if whole is None else whole.get("slo", ()):
            remedy = reading.command(f"report {run.run_id}")
            if level["met"] is False:
                yield EvidenceReason(HARM, _missed(level), remedy, 1.0)
            elif level["met"] is not True:
                yield EvidenceReason(DOUBT, _unknown(level), again, 1.0)
        if whole is None and run.finished is not None:
            yield EvidenceReason(DOUBT, "the replay did not get to its result", again)
        forecast = latency_forecast(reading, run, again, _judged(reading, run))
        if run is chosen.run and forecast is not None:
            covered = forecast.covered
        yield from _forecast(forecast, again)

    found = evidence_of(reading, DecisionPart.LATENCY, chosen, reasons, again)
    return replace(found, covered=covered)


def _with_levels(reading: EvidenceReading) -> str:
    """Return the command of the last replay of the whole capture, with every configured service level."""
    replay = whole_of(choose_runs(reading, StoredKind.REPLAY, partial_replay, suits=of_a_capture))
    again = reading.repeated(replay, f"workload replay {reading.capture}", ["--slo=", "--headroom="])
    if not reading.levels:
        return f"name a level under workload.service_levels, then: {again} --slo NAME"
    return " ".join([again, *(f"--slo {shlex.quote(name)}" for name in reading.levels)])


def _levels_left_out(reading: EvidenceReading, run: RunInfo) -> str:
    """Return which configured service levels a replay did not judge, or under less load than the file asks for."""
    if run.finished is None:
        return ""  # what it judged is written at its end
    names = _judged(reading, run)
    forecast = load_forecast(reading.store, run.run_id)
    headrooms = {} if forecast is None else {one.name: one.headroom for one in forecast.levels}
    left = [name for name in reading.levels if name not in names and name not in headrooms]
    weak = [
        f"{name} was judged at {headrooms.get(name) or 1:g}x, the configuration asks for {required:g}x"
        for name, required in reading.levels.items()
        if required is not None and name not in left and (headrooms.get(name) or 0.0) < required
    ]
    words = [f"service levels were left out: {', '.join(left)}"] if left else []
    return "; ".join(words + weak)


def _judged(reading: EvidenceReading, run: RunInfo) -> frozenset[str]:
    """Return the service levels that a replay judged, by name."""
    whole = read_whole(reading.store, run.run_id)
    return frozenset() if whole is None else frozenset(str(level["name"]) for level in whole.get("slo", ()))


def _forecast(forecast: JoinedEvidence | None, again: str) -> Iterator[EvidenceReason]:
    if forecast is None:
        yield EvidenceReason(DOUBT, "the replay has no latency forecast", again)
        return
    yield from forecast.reasons


def _short(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 4]} ..."


__all__ = ["NO_END", "answer_reasons", "partial_replay", "read_answers", "read_latency", "whole_replay"]

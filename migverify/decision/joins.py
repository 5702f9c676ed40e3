"""Evidence that joins that of a replay: its latency forecast, and a shadow replay of the service.

``latency_forecast`` returns None where the store holds nothing of the kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from migverify.decision.model import Basis, EvidenceReason, ReasonKind, basis_of
from migverify.decision.read import EvidenceReading
from migverify.model import RunInfo, StoredKind, Verdict
from migverify.workload.forecast.model import LevelState, LoadForecast
from migverify.workload.forecast.store import load_forecast
from migverify.workload.replay.store import read_digests
from migverify.workload.shadow.evidence import ShadowEvidence, load_shadow

SILENT_SECONDS = 720.0
"""A shadow replay that goes on records its state every 10 minutes, and at once when it gets worse; a later one is
late: what it saw since is not known."""


@dataclass(frozen=True, slots=True)
class JoinedEvidence:
    """What a join found: harm and doubts, none where all is fine; ``taken`` is when what it saw was over."""

    run: str
    taken: float | None
    began: float | None
    basis: Basis | None
    reasons: tuple[EvidenceReason, ...] = ()
    covered: str = ""


def latency_forecast(
    reading: EvidenceReading, replay: RunInfo, again: str, judged: frozenset[str] = frozenset()
) -> JoinedEvidence | None:
    """Return the latency forecast of a replay; ``judged`` are service levels that the replay itself judged.

    ``again`` is the command that makes a new one.
    """
    forecast = load_forecast(reading.store, replay.run_id)
    return None if forecast is None else forecast_evidence(reading, forecast, replay, again, judged)


def shadow_replays(reading: EvidenceReading, replay: RunInfo | None = None) -> tuple[JoinedEvidence, ...]:
    """Return what each shadow replay of the service kept last, the newest first: none hides what another saw.

    What differed ends where a whole ``replay`` that began later asked the same statement, and its answers are equal.
    """
    found, equal = [], None
    for run in (*shadow_runs(reading), *_doubtful_shadow_runs(reading)):
        status, is_mine = load_shadow(reading.store, run), reading.serves(run, needs_capture=False)
        if status is None:
            found += [_unrecorded(reading, run)] if is_mine else []
            continue
        is_earlier = replay is not None and status.at < replay.started
        if is_earlier and equal is None and replay is not None:
            equal = _equal_digests(reading, replay)
        joined = shadow_evidence(reading, status, run, equal or frozenset() if is_earlier else frozenset())
        harm = tuple(one for one in joined.reasons if one.kind is ReasonKind.HARM)
        if is_mine:
            found.append(joined)
        elif harm:
            found.append(replace(joined, reasons=harm))
    return tuple(found)


def _doubtful_shadow_runs(reading: EvidenceReading) -> Iterator[RunInfo]:
    """Yield the shadow replays that may be of the service: of these harm alone counts, as what is not known."""
    for run in reading.runs(StoredKind.REPLAY):
        if run.facts.get("shadow") and reading.may_serve(run, needs_capture=False):
            yield run


def _equal_digests(reading: EvidenceReading, replay: RunInfo) -> frozenset[str]:
    judged = read_digests(reading.store, replay.run_id)
    return frozenset(one.tally.digest for one in judged if one.verdict["verdict"] == Verdict.MATCH)


def shadow_runs(reading: EvidenceReading) -> Iterator[RunInfo]:
    """Yield the shadow replays of the service, the newest first; they rest on a log, not on a capture."""
    for run in reading.runs(StoredKind.REPLAY):
        if run.facts.get("shadow") and reading.serves(run, needs_capture=False):
            yield run


def _unrecorded(reading: EvidenceReading, run: RunInfo) -> JoinedEvidence:
    """Return what is known of a shadow replay that recorded no state: nothing, unless it began a moment ago."""
    silent = run.finished is not None or reading.now - run.started > SILENT_SECONDS
    text = "a shadow replay goes on, or was cut off, and has recorded nothing yet"
    reasons = (EvidenceReason(ReasonKind.DOUBT, text, _waiting(reading, run)),) if silent else ()
    return JoinedEvidence(run.run_id, run.started, run.started, basis_of(run.facts), reasons)


def _waiting(reading: EvidenceReading, run: RunInfo) -> str:
    return f"stop it, so that it records its end, or see whether it runs: {reading.command(f'report {run.run_id}')}"


def forecast_evidence(
    reading: EvidenceReading, forecast: LoadForecast, run: RunInfo, again: str, judged: frozenset[str] = frozenset()
) -> JoinedEvidence:
    """Return what a forecast proves: a level that is missed is harm, one that is not known a doubt."""
    reasons = tuple(_of_forecast(reading, forecast, run, again, judged))
    most = ", ".join(f"{one.text or one.digest[:16]} {one.share:.0%}" for one in forecast.uses[:3])
    return JoinedEvidence(run.run_id, run.known_at, run.started, basis_of(run.facts), reasons,
                          f"busy with {most}" if most else "")  # fmt: skip


def _of_forecast(
    reading: EvidenceReading, forecast: LoadForecast, run: RunInfo, again: str, judged: frozenset[str]
) -> Iterator[EvidenceReason]:
    report = reading.command(f"report {run.run_id}")
    if not forecast.levels:
        yield EvidenceReason(ReasonKind.DOUBT, "no service level was judged", again)
    for level in forecast.levels:
        states = [(level.name, "at the captured load", level.captured)]
        if level.headroom is not None:
            at = f"at {level.headroom:g}x"
            states.append((f"{level.name} {at}", f"{at} the captured load", level.at_headroom or LevelState.NOT_KNOWN))
        for name, where, state in states:
            if name in judged:
                continue  # the replay says so itself
            why = f": {'; '.join(level.reasons)}" if level.reasons else ""
            if state is LevelState.MISSED:
                text = f"service level {level.name} is missed {where}{why}"
                yield EvidenceReason(ReasonKind.HARM, text, f"{report} names the statements that use the most")
            elif state is not LevelState.MET:
                text = f"service level {level.name} is not known {where}{why}"
                yield EvidenceReason(ReasonKind.DOUBT, text, again)
    yield from (EvidenceReason(ReasonKind.DOUBT, why, again) for why in forecast.reasons)


def shadow_evidence(
    reading: EvidenceReading, status: ShadowEvidence, run: RunInfo, equal: frozenset[str] = frozenset()
) -> JoinedEvidence:
    """Return what a shadow replay proves about answers; digests that differ are harm, save those ``equal`` by now.

    ``status`` is the last one that it kept.
    """
    report = reading.command(f"report {status.run_id}")
    reasons = []
    differ = [one for one in status.digests if one["verdict"] == Verdict.MISMATCH]
    for digest in differ:
        if digest["digest"] not in equal:
            text = f"answers differ: {digest['text'] or digest['digest'][:16]} ({digest['different']:,} reads)"
            waiver = next((one for one in reading.waivers if one.covers(digest["digest"], "", ())), None)
            words = "" if waiver is None else f"{waiver.owner}, until {waiver.expires}: {waiver.reason}"
            kind = ReasonKind.WAIVED if words else ReasonKind.HARM
            reasons.append(EvidenceReason(kind, text, report, float(digest["different"]), words))
    left = int(status.digests_by_verdict.get(Verdict.MISMATCH.value, 0)) - len(differ)
    if left > 0:
        reasons.append(EvidenceReason(ReasonKind.HARM, f"answers of {left:,} more digests differ", report))
    if status.verdict is Verdict.MISMATCH and not differ and not reasons:
        reasons.append(EvidenceReason(ReasonKind.HARM, "the shadow replay is MISMATCH", report))
    if status.verdict is not Verdict.MATCH:
        doubts = status.reasons or ("the shadow replay is not MATCH",)
        reasons += [EvidenceReason(ReasonKind.DOUBT, why, report) for why in doubts]
    if not status.is_over and reading.now - status.at > SILENT_SECONDS:
        minutes = (reading.now - status.at) / 60
        text = f"a shadow replay goes on, or was cut off: it was last recorded {minutes:.0f} min ago"
        reasons.append(EvidenceReason(ReasonKind.DOUBT, text, _waiting(reading, run)))
    return JoinedEvidence(
        status.run_id, status.at, run.started, basis_of(run.facts), tuple(reasons),
        f"shadow replay, {status.counts.get('reads', 0):,} reads",
    )  # fmt: skip

"""What the other parts say: hot spots, anomalies, conflicts and clients."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from migverify.decision.model import DecisionPart, EvidenceReason, PartEvidence, basis_of
from migverify.decision.read import (
    DOUBT,
    HARM,
    WAIVED,
    ChosenRuns,
    EvidenceReading,
    choices,
    choose_runs,
    evidence_of,
    taken_of,
    whole_of,
)
from migverify.decision.read_replays import last_whole_replay, whole_replay, whole_replays
from migverify.errors import UsageError
from migverify.guards.hotspots_model import HotspotLimits
from migverify.guards.keep import answers, body, guards_of
from migverify.guards.model import AnswerState
from migverify.model import RunInfo, StoredKind, Verdict
from migverify.workload.anomalies.compare import LEAST_USABLE, PermittedBy
from migverify.workload.anomalies.store import BOTH_SIDES, SIDES, stored_anomalies, stored_comparison
from migverify.workload.catalogue.waivers import Waiver
from migverify.workload.conflict.store import conflict_reasons, stored_conflicts, stored_totals

_HOTSPOTS = "hotspots"


def read_hotspots(reading: EvidenceReading) -> PartEvidence:
    """Return what the last asking of the guard says."""

    def partial(run: RunInfo) -> str:
        limits, usual = run.facts.get("limits"), HotspotLimits()
        if not isinstance(limits, Mapping):
            return "the limits that the guard went by are not recorded"
        as_strict = float(limits["warn_rate"]) <= usual.warn and float(limits["fail_rate"]) <= usual.fail
        if not as_strict:  # nor is a limit that is no number, which nothing exceeds
            return "the guard went by weaker limits (--warn-rate, --fail-rate) than the built-in ones"
        return ""

    chosen = choose_runs(reading, StoredKind.GUARDS, partial, suits=lambda run: _HOTSPOTS in guards_of(run))
    again = reading.repeated(whole_of(chosen), f"guard hotspots --capture {reading.capture}")

    def reasons(run: RunInfo) -> Iterator[EvidenceReason]:
        stored = body(reading.store, run.run_id, _HOTSPOTS)
        held = 0
        for one in answers(reading.store, run.run_id, _HOTSPOTS):
            held += 1
            text = f"{one.name} of {one.subject}: {one.value} (required: {one.threshold})"
            weight = max((float(value) for value in one.numbers.values()), default=0.0)
            if one.state is AnswerState.FAIL:
                yield EvidenceReason(HARM, text, one.todo or again, weight)
            elif one.state is AnswerState.INCONCLUSIVE:
                yield EvidenceReason(DOUBT, text, one.todo or again, weight)
        for why in () if stored is None else stored["unasked"]:
            yield EvidenceReason(DOUBT, str(why), again)
        if run.finished is not None and (stored is None or int(stored["answers"]) != held or not held):
            yield EvidenceReason(DOUBT, f"the store holds {held:,} answers of the guard, which are not all", again)

    return evidence_of(reading, DecisionPart.HOTSPOTS, chosen, reasons, again)


def read_anomalies(reading: EvidenceReading) -> PartEvidence:
    """Return what the last comparison of histories says; it is as old as the replay that recorded them."""
    again = _comparison(reading) or _replay_again(reading)

    def reasons(run: RunInfo) -> Iterator[EvidenceReason]:
        whole, held = stored_comparison(reading.store, run.run_id), 0
        for one in stored_anomalies(reading.store, run.run_id):
            held += 1
            names = ", ".join(map(str, one.body.get("transactions", ())))
            if one.permitted is PermittedBy.TARGET:
                text = f"{one.name} that the source does not permit: transactions {names}"
                shows = reading.command(f"report {run.run_id}")
                remedy = f"lock what is read before it is written (SELECT ... FOR UPDATE); {shows} has the statements"
                yield EvidenceReason(HARM, text, remedy, 1.0)
        if whole is None:
            return
        if run.facts.get(SIDES) != BOTH_SIDES:
            text = "the histories do not say which of them is the source's: an earlier release recorded them"
            yield EvidenceReason(DOUBT, text, again)
        for why in whole.reasons if whole.verdict is not Verdict.MISMATCH else ():
            yield EvidenceReason(DOUBT, why, again)
        shares = [float(side.get("share", 0.0)) for side in (whole.source, whole.target)]
        if min(shares) < LEAST_USABLE:
            text = f"{min(shares):.0%} of the reads of a history could be used, {LEAST_USABLE:.0%} are needed"
            if whole.usable < LEAST_USABLE:
                text += f"; that run went by --usable {whole.usable:.0%}, which counts for its own verdict alone"
            yield EvidenceReason(DOUBT, text, again)
        if whole.anomalies != held:
            text = f"the store holds {held:,} anomalies, and {whole.anomalies:,} were found"
            yield EvidenceReason(DOUBT, text, again)

    return _of_replay(DecisionPart.ANOMALIES, reading, StoredKind.ANOMALIES, reasons, again)


def _replay_again(reading: EvidenceReading) -> str:
    """Return the command of the last whole replay, with histories."""
    words = f"workload replay {reading.capture} --writes --anomalies"
    again = reading.repeated(next(whole_replays(reading), None), words)
    return again if "--anomalies" in again else f"{again} --anomalies"


def _comparison(reading: EvidenceReading) -> str:
    """Return the command that compares the histories of the last whole replay; empty where that was done."""
    folder = last_whole_replay(reading)
    if folder is None or any(run.facts.get("replay") == folder.name for run in reading.runs(StoredKind.ANOMALIES)):
        return ""
    files = [folder / f"history-{side}.jsonl" for side in ("source", "target")]
    if not all(file.exists() for file in files):
        return ""
    return reading.command(f"workload anomalies {' '.join(shlex.quote(str(file)) for file in files)}")


def read_conflicts(reading: EvidenceReading) -> PartEvidence:
    """Return which conflicts the last replay with writes met, as ``explain-conflict`` kept them."""
    folder = last_whole_replay(reading)
    shown = "FOLDER" if folder is None else shlex.quote(str(folder))
    again = f"migverify workload explain-conflict --replay {shown}{reading.options or ' --config migverify.yaml'}"

    def reasons(run: RunInfo) -> Iterator[EvidenceReason]:
        found, totals = tuple(stored_conflicts(reading.store, run.run_id)), stored_totals(reading.store, run.run_id)
        for one in found:
            if one.verdict is Verdict.MISMATCH:
                yield EvidenceReason(HARM, one.title, one.remedy, 1.0)
        if totals is None:
            return
        replay = str(run.facts.get("replay") or "")
        others = [one for one in found if one.verdict is not Verdict.MISMATCH]
        for why in conflict_reasons(others, totals[1], replay):
            yield EvidenceReason(DOUBT, why, again)
        if totals[0] != len(found):
            text = f"the store holds {len(found):,} conflicts, and {totals[0]:,} were explained"
            yield EvidenceReason(DOUBT, text, again)

    return _of_replay(DecisionPart.CONFLICTS, reading, StoredKind.CONFLICTS, reasons, again)


Reasons = Callable[[RunInfo], Iterator[EvidenceReason]]


def _of_replay(
    part: DecisionPart, reading: EvidenceReading, kind: StoredKind, reasons: Reasons, again: str
) -> PartEvidence:
    """Return evidence that the newest whole replay recorded: it is of the replay's time, and as whole as the replay is.

    What was made later of an older replay is no newer evidence. What was made of the same replay, or of newer ones,
    adds its harm.
    """
    newest = choose_runs(reading, kind).run
    if newest is None:
        return PartEvidence(part, again=again)
    made = [run for run in reading.runs(kind) if reading.serves(run) or reading.may_serve(run)]
    last = next(whole_replays(reading), None)
    run = _made_of_whole(reading, made) or newest
    replay, why = _replay_of(reading, run)
    if replay is None:
        found = evidence_of(reading, part, ChosenRuns(run, why), reasons, again)
        return replace(found, basis=None)
    later = {one.run_id for one in takewhile(lambda one: one.run_id != run.run_id, reading.runs(kind))}
    newer = tuple(
        one for one in made
        if one.run_id != run.run_id and _is_as_new(reading, one, replay, is_later=one.run_id in later)
    )  # fmt: skip
    found = evidence_of(
        reading, part, ChosenRuns(run, why or whole_replay(replay), newer), reasons, again,
        basis=basis_of(replay.facts), taken=taken_of(replay), covered=lambda _: f"replay {replay.run_id}",
    )  # fmt: skip
    doubts = []
    if last is not None and last.run_id != replay.run_id:
        text = f"it is of replay {replay.run_id}, and nothing of the last whole one, {last.run_id}, was kept"
        doubts.append(EvidenceReason(DOUBT, text, again, weight=1e18))
    if newest.run_id != run.run_id and (unnamed := _replay_of(reading, newest))[0] is None:
        doubts.append(EvidenceReason(DOUBT, unnamed[1], again, run=newest.run_id))
    return replace(found, reasons=(*found.reasons, *doubts))


def _made_of_whole(reading: EvidenceReading, made: Sequence[RunInfo]) -> RunInfo | None:
    """Return what was made last of the newest whole replay of which anything was made."""
    for replay in whole_replays(reading):
        for run in made:
            if run.facts.get("replay") == replay.run_id and reading.serves(run):
                return reading.store.load_run(run.run_id)
    return None


def _is_as_new(reading: EvidenceReading, run: RunInfo, replay: RunInfo, *, is_later: bool) -> bool:
    """Whether a run was made of this replay, or of a later one; ``is_later`` where it does not name one."""
    other, _ = _replay_of(reading, run)
    if other is None:
        return is_later
    return other.run_id == replay.run_id or other.started >= replay.started


def _replay_of(reading: EvidenceReading, run: RunInfo) -> tuple[RunInfo | None, str]:
    name = str(run.facts.get("replay") or "")
    if not name:
        return None, "the run does not name one replay that recorded it"
    try:
        replay = reading.store.load_run(name)
    except UsageError:
        return None, f"the store holds no replay {name}, which recorded it"
    if replay.kind is not StoredKind.REPLAY:
        return None, f"the run {name}, which recorded it, is no replay"
    return replay, "" if replay.finished is not None else "the replay that recorded it has no end"


def read_clients(reading: EvidenceReading) -> PartEvidence:
    """Return what the service's drivers and pools see, by the last run of client scenarios."""
    names = " ".join(f"--driver {name.partition('/')[0]} --pool {name.partition('/')[2]}" for name in reading.clients)
    scenarios = "".join(f" --scenario {name}" for name in reading.scenarios)
    usual = f"workload clients {names or '--driver NAME --pool NAME'}{scenarios}"

    def partial(run: RunInfo) -> str:
        if "scenarios" not in choices(run):
            return "which scenarios were chosen is not recorded"
        only = set(choices(run)["scenarios"])
        missing = set(reading.scenarios) - only if reading.scenarios else {"all others"}
        return f"scenarios were left out (--scenario): {', '.join(sorted(missing))}" if only and missing else ""

    chosen = choose_runs(reading, StoredKind.CLIENTS, partial, needs_capture=False)
    again = reading.repeated(whole_of(chosen), usual)

    def reasons(run: RunInfo) -> Iterator[EvidenceReason]:
        yield from _clients(reading, run, again)

    covered = ", ".join(reading.clients)
    return evidence_of(
        reading, DecisionPart.CLIENTS, chosen, reasons, again, needs_capture=False, covered=lambda _: covered
    )


def _clients(reading: EvidenceReading, run: RunInfo, again: str) -> Iterator[EvidenceReason]:
    if not reading.clients:
        text = "which drivers and pools the service uses is not configured"
        yield EvidenceReason(DOUBT, text, "name them in decision.clients of migverify.yaml")
    planned = [str(cell).partition(" ") for cell in run.plan.get("cells") or ()]
    results = {one.pair: one for one in reading.store.table_results(run.run_id)}
    for client in reading.clients:
        rule = f"clients/{client}"
        wanted = {cell for name, _, cell in planned if name == rule and _depends(reading, cell)}
        if not wanted:
            yield EvidenceReason(DOUBT, f"{client} was not run", again)
            continue
        bodies = {str(one["window"]): one for one in reading.store.windows(run.run_id, rule)}
        for cell in sorted(wanted):
            yield from _cell(reading, run, rule, cell, bodies.get(cell), again)
        for name in sorted(set(reading.scenarios) - {cell.partition("/")[0] for cell in wanted}):
            yield EvidenceReason(DOUBT, f"{client}: {name} was not run", again)
        result = results.get(rule)
        if result is None:
            yield EvidenceReason(DOUBT, f"{client}: its scenarios did not come to their end", again)
            continue
        for left in result.not_covered:
            if _depends(reading, left.what):
                yield EvidenceReason(DOUBT, f"{client}: {left.what} was left out: {left.reason}", again)


def _depends(reading: EvidenceReading, cell: str) -> bool:
    return not reading.scenarios or cell.partition("/")[0] in reading.scenarios


def _cell(
    reading: EvidenceReading, run: RunInfo, rule: str, cell: str, stored: Mapping[str, object] | None, again: str
) -> Iterator[EvidenceReason]:
    name = f"{rule.removeprefix('clients/')}: {cell}"
    verdict = str((stored or {}).get("verdict", "nothing"))
    reason = str((stored or {}).get("reason", ""))
    if verdict == Verdict.MATCH:
        return
    if verdict != Verdict.MISMATCH:
        yield EvidenceReason(DOUBT, f"{name} is {verdict}{f': {reason}' if reason else ''}", again)
        return
    findings: list[Mapping[str, Any]] = [body for _, body in reading.store.findings(run.run_id, rule, window=cell)]
    open_: list[Mapping[str, Any]] = []
    accepted: list[tuple[Mapping[str, Any], Waiver]] = []
    for one in findings:
        known = [str(id_) for id_ in one.get("known", ())]
        waiver = next((each for each in reading.waivers if each.covers("", "", known)), None)
        if waiver is None:
            open_.append(one)
        else:
            accepted.append((one, waiver))
    remedy = reading.command(f"report {run.run_id}") + "; docs/clients.md has what helps"
    if open_ or not findings:
        shown = ", first {path}: {source} / {target}".format_map(open_[0]) if open_ else ""
        text = f"{name} behaves otherwise on the target ({len(open_):,} different{shown})"
        yield EvidenceReason(HARM, text[:400], remedy, float(len(open_)))
    for one, waiver in accepted:
        words = f"{waiver.owner}, until {waiver.expires}: {waiver.reason}"
        yield EvidenceReason(WAIVED, f"{name}: {one['path']} differs", remedy, 0.0, words)

"""From the runs of a service to evidence: verifications, the watch, rules and guards.

Nothing here judges, and no server of the migration is asked: all is what stores and ledgers hold.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from itertools import islice
from typing import Any

from migverify.config import Config
from migverify.fleet.model import AnswersEvidence, VerifyEvidence, WatchEvidence, WholeRead
from migverify.fleet.stores import ServiceRuns
from migverify.guards import keep
from migverify.guards.ids_model import NAME as IDS
from migverify.guards.model import AnswerState, GuardAnswer
from migverify.guards.schema_model import NAME as SCHEMA
from migverify.model import RunInfo, StoredKind, TableResult, Verdict
from migverify.recon.amounts import amount, plain
from migverify.recon.model import ALL_RULES
from migverify.recon.model import CHOSEN as RULES_CHOSEN
from migverify.recon.model import WATCH_FACT as RULES_WATCH
from migverify.runbook.run.schema_now import fingerprint_of
from migverify.store.results import ResultStore
from migverify.tables.directions import both_directions
from migverify.tables.run_facts import (
    ALL_TABLES,
    CHOSEN,
    INTERRUPTED,
    carried_from,
    compared_with_itself,
    newer_differences,
    pair_addresses,
    planned_pairs,
    proof_scope,
    run_in,
    whole_reads,
)
from migverify.watch.ledger import ledger_folder

_NEWER = 20
"""Runs that are looked at for a full proof, or for an answer, before it is said that there is none."""
_GUARD_COMMAND = re.compile(r"\bguard ([a-z]+)\b")
_STATES = {
    AnswerState.PASS: Verdict.MATCH,
    AnswerState.WARN: Verdict.MATCH,
    AnswerState.FAIL: Verdict.MISMATCH,
    AnswerState.INCONCLUSIVE: Verdict.INCONCLUSIVE,
}


@dataclass(frozen=True, slots=True)
class RunsReading:
    """What every reader of runs looks at."""

    config: Config
    store: ResultStore
    runs: ServiceRuns
    now: float
    options: str = ""


# --- tables -------------------------------------------------------------------------------------------------------


def read_verifications(reading: RunsReading) -> tuple[VerifyEvidence, ...]:
    """Return the verifications of a service, the newest first, back to the first one that is MATCH for all tables.

    A quick answer is among them only where it found tables to differ: an equal one proves nothing.
    """
    found: list[VerifyEvidence] = []
    for run in reading.runs.of_kind(StoredKind.TABLES):
        if run.facts.get("watch") or run.facts.get("repairs"):
            continue
        found.append(_verification(reading, run))
        if found[-1].is_full_proof or len(found) == _NEWER:
            break
    last = [_with_whole_read(reading, found.pop())] if found and found[-1].is_full_proof else []
    quick = newer_differences(
        reading.store, reading.runs.of_kind(StoredKind.QUICK), reading.runs.digest,
        last[0].began if last else float("-inf"),
    )  # fmt: skip
    found += [_quick(reading, run, differs) for run, differs in quick]
    return (*sorted(found, key=lambda one: one.began, reverse=True), *last)


def _quick(reading: RunsReading, run: RunInfo, differs: Collection[str]) -> VerifyEvidence:
    return VerifyEvidence(
        run.run_id, run.verdict, run.started, run.finished, run.finished, len(differs), 0, len(differs),
        _why_strange(reading, run), f"run {run.run_id} is a quick answer",
    )  # fmt: skip


def _with_whole_read(reading: RunsReading, proof: VerifyEvidence) -> VerifyEvidence:
    """Add to a proof which whole reads it rests on, and the differences found since then that it does not refute."""
    chain = [reading.store.load_run(run_id) for run_id in (proof.run, *proof.chain)]
    own = {run.run_id for run in chain}
    bases = {pair: read for pair, read in whole_reads(reading.store, chain).items() if read not in own}
    if not bases:
        return proof
    reads = {run_id: run_in(reading.store, run_id) for run_id in set(bases.values())}
    began = {run_id: float("-inf") if read is None else read.started for run_id, read in reads.items()}
    oldest = min(began, key=began.__getitem__)
    unrefuted = [
        run.run_id
        for run, differs in newer_differences(
            reading.store, reading.runs.runs, reading.runs.digest, began[oldest]
        )
        if run.started < proof.began and any(began[bases[pair]] < run.started for pair in differs & bases.keys())
    ]  # fmt: skip
    read = reads[oldest]
    whole = WholeRead(oldest, None if read is None else read.known_at)
    return replace(proof, rests_on=whole, unrefuted=tuple(unrefuted))


def _verification(reading: RunsReading, run: RunInfo) -> VerifyEvidence:
    strange = _why_strange(reading, run)
    if strange:
        return VerifyEvidence(run.run_id, run.verdict, run.started, run.finished, None, 0, 0, strange=strange)
    chain = carried_from(reading.store, reading.store.load_run(run.run_id))
    pairs: set[str] = set()
    matched: set[str] = set()
    mismatches = 0
    for one in chain:  # the newest first: what it says of a pair replaces what the runs before it said
        planned = planned_pairs(one).keys() - pairs
        pairs |= planned
        if planned == planned_pairs(one).keys():
            counts = reading.store.verdict_counts(one.run_id)
            if counts.get(Verdict.MATCH, 0) == len(planned) == sum(counts.values()):
                matched |= planned
                continue
        results = {result.pair: result.verdict for result in reading.store.table_results(one.run_id)}
        matched |= {pair for pair in planned if results.get(pair) is Verdict.MATCH}
        mismatches += sum(results.get(pair) is Verdict.MISMATCH for pair in planned)
    read = [one.known_at for one in chain]
    return VerifyEvidence(
        run.run_id, run.verdict, run.started, run.finished, None if None in read else min(filter(None, read)),
        len(pairs), len(matched), mismatches, "", _why_partial(chain), tuple(one.run_id for one in chain[1:]),
        INTERRUPTED in (run.facts.get("reasons") or ()), left_out=proof_scope(chain).words,
    )  # fmt: skip


def _why_strange(reading: RunsReading, run: RunInfo) -> str:
    named = run.facts.get("endpoints")
    if not isinstance(named, Mapping) or pair_addresses(reading.config).keys() - named.keys():
        return "it does not name all endpoints of this pair"
    if run.plan_hash != reading.runs.digest:
        return "it is of another configuration (tables, routes, overrides or sessions)"
    if compared_with_itself(run, reading.store.load_run):
        return "its source and target are the same server: tables were compared with themselves"
    return ""


def _why_partial(chain: Sequence[RunInfo]) -> str:
    """Return why a run, with those whose results it takes over, is not of all tables."""
    first = chain[-1]  # a recheck plans what its first run planned, and that was not equal
    for run in chain:
        chosen = run.facts.get(CHOSEN)
        if chosen is None:
            return f"run {run.run_id} is of a release that does not keep which tables were chosen"
        if chosen != ALL_TABLES:
            return f"run {run.run_id} is of a part of the tables ({chosen})"
    return "" if first.plan.get("pairs") else f"run {first.run_id} planned no table"


def read_watch(reading: RunsReading) -> WatchEvidence | None:
    """Return the newest forward watch of a service; None: there is none."""
    config, runs = reading.config, reading.runs
    mine = [run for run in runs.of_kind(StoredKind.TABLES) if run.facts.get("watch")]
    found = both_directions(config, runs.digest, reading.store, ledger_folder(config), mine) if mine else None
    view = found.forward if found is not None else None
    if view is None:
        return None
    last = view.last
    return WatchEvidence(
        view.run_id, view.state, view.verdict, view.reason, None if last is None else last.at, view.through,
        None if last is None else last.lag_seconds, 0 if last is None else last.open_keys,
        0 if last is None else last.diverged, view.since,
    )  # fmt: skip


# --- rules --------------------------------------------------------------------------------------------------------


def read_rules(reading: RunsReading) -> AnswersEvidence | None:
    """Return what the newest run of all rules says, with the harm that runs show and no newer one refutes."""
    runs = list(reading.runs.answers(StoredKind.RULES))
    newest: AnswersEvidence | None = None
    for run in runs[:_NEWER]:
        if RULES_WATCH in run.facts:
            continue  # it has the results of its rules when it ends, and some windows alone then
        if run.finished is None:
            newest = newest or replace(
                _rules_run(reading, run, ()), pending=f"run {run.run_id} goes on, or was cut off"
            )
        elif run.facts.get(RULES_CHOSEN) == ALL_RULES:
            newest = newest or _rules_run(reading, run, ())
            break
    harm = _harm_of_rules(reading, runs)
    if harm is None or newest is None:
        return harm or newest
    return replace(harm, pending=newest.pending or harm.pending)


def _harm_of_rules(reading: RunsReading, runs: Sequence[RunInfo]) -> AnswersEvidence | None:
    """Return the newest run with a rule that differs and that no newer run of all rules found fine."""
    newer: list[RunInfo] = []
    left = _NEWER
    for run in runs:
        if run.verdict is not Verdict.MATCH and left:
            left -= 1
            results = reading.store.table_results(run.run_id)
            refuted = {
                one.pair for one in results
                if one.verdict is not Verdict.MISMATCH or any(_refutes(reading, later, run, one) for later in newer)
            }  # fmt: skip
            if len(refuted) < len(results):
                harm = _rules_run(reading, run, refuted if newer else ())
                why = f"no newer run of all rules read all that run {run.run_id} did (its file, --from, --to, --param)"
                return replace(harm, pending=why) if newer else harm
        if run.finished is not None and run.facts.get(RULES_CHOSEN) == ALL_RULES and RULES_WATCH not in run.facts:
            newer.append(run)
    return None


def _refutes(reading: RunsReading, newer: RunInfo, older: RunInfo, differs: TableResult) -> bool:
    """Whether a newer run of all rules found a rule fine, over all that an older run read of it, or is without it.

    A run of another file of rules, or of other windows or values of parameters (`--from`, `--param`), read other rows.
    """
    plan, before = (reading.store.load_run(run.run_id).plan for run in (newer, older))
    if plan.get("parameters") != before.get("parameters"):
        return False
    details = differs.details.get("recon")
    windows = details.get("windows") if isinstance(details, Mapping) else None
    has_windows = not isinstance(windows, Mapping) or windows.get("first") != ""
    if has_windows and not _covers(plan, before, older.finished or older.started):
        return False
    if differs.pair not in planned_pairs(reading.store.load_run(newer.run_id)):
        return plan.get("file") == before.get("file")
    results = reading.store.table_results(newer.run_id)
    return any(one.pair == differs.pair and one.verdict is Verdict.MATCH for one in results)


def _covers(plan: Mapping[str, Any], before: Mapping[str, Any], ended: float) -> bool:
    """Whether the time of one run of rules holds that of another, which ended then; None is open."""
    (start, end), (first, last) = ((_moment(one.get("from")), _moment(one.get("to"))) for one in (plan, before))
    return (start is None or (first is not None and start <= first)) and (
        end is None or end >= (ended if last is None else last)
    )


def _moment(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp()


def _rules_run(reading: RunsReading, run: RunInfo, refuted: Collection[str]) -> AnswersEvidence:
    """Return what a run says of its rules, without those that a newer one refutes."""
    results = [one for one in reading.store.table_results(run.run_id) if one.pair not in refuted]
    planned = planned_pairs(reading.store.load_run(run.run_id)).keys() - refuted
    missing = planned - {result.pair for result in results}
    bad = [one for one in results if one.verdict is not Verdict.MATCH]
    bad.sort(key=lambda one: one.verdict is not Verdict.MISMATCH)
    reasons = [f"rule {one.pair}: {one.reasons[0] if one.reasons else one.verdict}" for one in bad]
    reasons += [f"rule {name} has no result" for name in sorted(missing)]
    verdict = Verdict.worst([one.verdict for one in results])
    if missing or run.finished is None:
        verdict = Verdict.worst([verdict, Verdict.INCONCLUSIVE])
    return AnswersEvidence(
        run.run_id, verdict, run.finished, "", tuple(reasons), len(planned),
        sum(one.verdict is Verdict.MISMATCH for one in results), _money(results),
    )  # fmt: skip


def _money(results: Sequence[TableResult]) -> dict[str, str]:
    """Return the largest money at risk of one rule by currency: rules may count one payment twice."""
    most: dict[str, Decimal] = {}
    for result in results:
        details = result.details.get("recon")
        sums = details.get("unexplained") if isinstance(details, Mapping) else None
        for unit, text in sums.items() if isinstance(sums, Mapping) else ():
            value = amount(str(text))
            if value is not None:
                most[str(unit)] = max(most.get(str(unit), value), value)
    return {unit: plain(value) for unit, value in most.items()}


# --- guards -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _GuardRun:
    """One run of a guard: what it comes to, its answers and its body; ``body`` None: it has no answer."""

    evidence: AnswersEvidence
    answers: Sequence[GuardAnswer]
    body: Mapping[str, Any] | None


def read_ids(reading: RunsReading) -> AnswersEvidence | None:
    """Return the newest answers about id spaces."""
    found = _guard(reading, IDS)
    if found is None:
        return None
    days = [answer.numbers["days_left"] for answer in found.answers if "days_left" in answer.numbers]
    return replace(found.evidence, subjects=len(found.answers), days_left=min(days, default=None))


def read_schema(reading: RunsReading) -> AnswersEvidence | None:
    """Return the newest answers about definitions, with the fingerprint of both sides."""
    found = _guard(reading, SCHEMA)
    if found is None:
        return None
    facts = (found.body or {}).get("facts")
    prints = facts.get("fingerprints") if isinstance(facts, Mapping) else None
    fingerprint = ""
    if isinstance(prints, Mapping) and prints.keys() == pair_addresses(reading.config).keys():
        fingerprint = fingerprint_of({str(name): str(text) for name, text in prints.items()})
    return replace(found.evidence, subjects=len(found.answers), fingerprint=fingerprint)


def _asked(reading: RunsReading, guard: str) -> Iterator[RunInfo]:
    """Yield the runs that asked a guard of the service, the newest first."""
    runs = (run for run in reading.runs.answers(StoredKind.GUARDS) if _may_ask(run, guard))
    for run in islice(runs, 3 * _NEWER):
        whole = reading.store.load_run(run.run_id)
        if guard in keep.guards_of(whole) and not whole.plan.get("snapshot"):
            yield whole


def _may_ask(run: RunInfo, guard: str) -> bool:
    """Whether a run may have asked a guard, by its command: those of others are many, and their plans are not read."""
    named = _GUARD_COMMAND.search(run.command)
    return named is None or named[1] == guard


def _guard(reading: RunsReading, guard: str) -> _GuardRun | None:
    """Return the newest run of a guard with an answer, or the earlier one whose failures no newer answer refutes.

    A run without an answer, and one that is INCONCLUSIVE, hide no failure before them.
    """
    unanswered: _GuardRun | None = None
    newest: _GuardRun | None = None
    refuted = set[tuple[str, str]]()
    for run in _asked(reading, guard):
        found = _guard_run(reading, run, guard, refuted)
        if found.body is None:
            if newest is None:
                unanswered = unanswered or found
            continue
        if newest is None:
            newest = found
        elif found.evidence.verdict is Verdict.MISMATCH or found.evidence.mismatches:
            why = f"run {newest.evidence.run} is INCONCLUSIVE, and refutes nothing of run {run.run_id}"
            newest = replace(found, evidence=replace(found.evidence, pending=why))
        if found.evidence.verdict is not Verdict.INCONCLUSIVE or found.evidence.mismatches:
            break
        passed = (one for one in found.answers if one.state in (AnswerState.PASS, AnswerState.WARN))
        refuted |= {(one.name, one.subject) for one in passed}
    if newest is None or unanswered is None:
        return newest or unanswered
    return replace(newest, evidence=replace(newest.evidence, pending=unanswered.evidence.pending))


def _guard_run(reading: RunsReading, run: RunInfo, guard: str, refuted: Collection[tuple[str, str]]) -> _GuardRun:
    """Return what a run of a guard says, without the answers that a newer run refutes."""
    body = keep.body(reading.store, run.run_id, guard)
    if body is None:
        pending = f"run {run.run_id} has no answer yet"
        return _GuardRun(AnswersEvidence(run.run_id, Verdict.INCONCLUSIVE, run.started, pending), (), None)
    every = list(keep.answers(reading.store, run.run_id, guard))
    answers = [one for one in every if (one.name, one.subject) not in refuted]
    failed = [one for one in answers if one.state is AnswerState.FAIL]
    unasked = body.get("unasked")
    reasons = [f"{one.subject}: {one.value}" for one in failed]
    reasons += [f"{one.subject}: {one.value}" for one in answers if one.state is AnswerState.INCONCLUSIVE]
    reasons += [str(one) for one in unasked] if isinstance(unasked, list) else []
    try:
        verdict = _STATES[AnswerState(str(body.get("state")))]
        taken: float | None = float(body["started"]) + float(body["seconds"])
    except (KeyError, ValueError, TypeError):
        verdict, taken = Verdict.INCONCLUSIVE, None
    if verdict is Verdict.MISMATCH and not failed and any(one.state is AnswerState.FAIL for one in every):
        verdict = Verdict.MATCH  # a newer run refutes all that failed
    return _GuardRun(AnswersEvidence(run.run_id, verdict, taken, "", tuple(reasons), 0, len(failed)), answers, body)

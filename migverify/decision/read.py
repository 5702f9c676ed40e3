"""From the run store to the evidence of a decision: which run speaks for the service, and what it says.

The newest run of a kind counts that is of the service (its pair or a clone of it, its capture) and of all of it.
Newer runs of a part of it (one digest, one session) add their harm and never take any away.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from migverify.decision.differences import differences, is_of_another_pair, same_pair
from migverify.decision.model import (
    Basis,
    DecisionPart,
    DecisionRules,
    EvidenceReason,
    PartEvidence,
    ReasonKind,
    basis_of,
)
from migverify.errors import StoreError
from migverify.model import RunInfo, StoredKind
from migverify.store.results import ResultStore
from migverify.workload.catalogue.waivers import Waiver

Partial = Callable[[RunInfo], str]
"""A run with its plan -> why it is of a part of the service alone; empty: it is of all of it."""
HARM, DOUBT, WAIVED = ReasonKind.HARM, ReasonKind.DOUBT, ReasonKind.WAIVED
_RUNS_READ = 20_000
"""Runs of a store that are looked at: harm of a shadow replay, or of plans that asked more, may be far back."""
_LONG_RUN = 86_400.0
"""Seconds. What a longer run asked first is older than its end by more than ages are rounded to."""
_MASKS = ("***", "[hidden]")
"""What was a secret in a command that a run keeps: it cannot be typed again."""
NO_END = "the run has no end: it was interrupted, or still goes on"


@dataclass(frozen=True, slots=True)
class EvidenceReading:
    """What every reader of a part looks at.

    Parameters
    ----------
    service
        What is there now; None where it could not be read.
    capture
        The folder, as commands name it.
    waivers
        Those that hold today.
    clients, scenarios
        Drivers and pools of the service as ``driver/pool``, and the scenarios that it depends on; none: all.
    options
        What commands of remedies need to find the configuration.
    replays
        The folder in which replays are kept.
    known_runs
        The runs of the store, the newest first, where they were read already.
    now
        The time of the decision, Unix seconds.
    levels
        The service levels that are configured, each with its multiple of the captured load; None: without one.
    """

    store: ResultStore
    service: Basis | None
    rules: DecisionRules
    capture: str
    waivers: Sequence[Waiver] = ()
    clients: Sequence[str] = ()
    scenarios: Sequence[str] = ()
    options: str = ""
    replays: str = ""
    known_runs: Sequence[RunInfo] = ()
    now: float = field(default_factory=time.time)
    levels: Mapping[str, float | None] = field(default_factory=dict)
    _runs: list[RunInfo] = field(default_factory=list)

    def command(self, words: str) -> str:
        """Return a command of migverify with the options of this configuration."""
        return f"migverify {words}{self.options}"

    def repeated(self, run: RunInfo | None, words: str, leave: Collection[str] = ()) -> str:
        """Return the command that a whole run of the service kept, to be typed again; else one with the usual options.

        Parameters
        ----------
        words
            The command without ``migverify``, as it is typed where no run keeps one.
        leave
            Options that are not repeated; those with a value as ``--name=``.
        """
        usual = self.command(words)
        if run is None or not self.serves(run, needs_capture=run.kind is not StoredKind.CLIENTS):
            return usual
        try:
            typed = shlex.split(run.command)
        except ValueError:
            return usual
        begins = ["migverify", *words.split()[:2]]
        if typed[:3] != begins or "--resume" in typed or any(mask in run.command for mask in _MASKS):
            return usual
        return shlex.join(_without(typed, leave))

    def runs(self, kind: StoredKind) -> Iterator[RunInfo]:
        """Yield the runs of a kind without their plans, the newest first."""
        if not self._runs:
            self._runs.extend(self.known_runs or self.store.runs(_RUNS_READ))
        return (run for run in self._runs if run.kind is kind)

    def serves(self, run: RunInfo, *, needs_capture: bool = True) -> bool:
        """Whether a run is of this service: of its pair or a clone of it, and of its capture."""
        then = basis_of(run.facts)
        if then is None or self.service is None:
            return False
        is_mine = any(same_pair(then.pair, pair) for pair in (self.service.pair, *self.rules.clones))
        return is_mine and (not needs_capture or then.capture == self.service.capture)

    def may_serve(self, run: RunInfo, *, needs_capture: bool = True) -> bool:
        """Whether a run that is no evidence may have asked this service: harm that it found may be there.

        It keeps no basis, or names the pair otherwise, or asked the same pair for another capture. One of another
        capture and of another configuration is of a service that shares the servers.
        """
        if self.service is None or self.serves(run, needs_capture=needs_capture):
            return False
        if is_of_another_pair(run, self.service, self.rules.clones):
            return False
        then = basis_of(run.facts)
        if then is None or not needs_capture or then.capture == self.service.capture:
            return True
        return then.configuration == self.service.configuration


def _without(typed: Sequence[str], leave: Collection[str]) -> Iterator[str]:
    """Yield the words of a command without some options."""
    words = iter(typed)
    for word in words:
        name, equals, _ = word.partition("=")
        if f"{name}=" in leave:
            if not equals:
                next(words, "")
        elif word not in leave:
            yield word


@dataclass(frozen=True, slots=True)
class ChosenRuns:
    """The run that counts, with its plan, and others whose harm counts; None: there is none."""

    run: RunInfo | None
    partial: str = ""
    others: tuple[RunInfo, ...] = ()


def choose_runs(
    reading: EvidenceReading, kind: StoredKind, partial: Partial = lambda _: "", *, needs_capture: bool = True,
    suits: Callable[[RunInfo], bool] = lambda _: True,
) -> ChosenRuns:  # fmt: skip
    """Return the newest run that is whole and of the service, else the newest of its parts, else the newest of all.

    Newer than a whole one are those of a part of the service, and those that may be of it: who reads them counts harm.
    One that goes on or was cut off takes no harm away, so that those back to the newest that ended are among these.
    """
    mine: list[tuple[RunInfo, str]] = []
    doubtful: list[RunInfo] = []
    newest: RunInfo | None = None
    for brief in reading.runs(kind):
        is_mine = reading.serves(brief, needs_capture=needs_capture)
        if not is_mine and reading.may_serve(brief, needs_capture=needs_capture):
            doubtful.append(brief)
        if not is_mine and newest is not None:
            continue
        run = reading.store.load_run(brief.run_id)
        if not suits(run):
            continue
        newest = newest or run
        if is_mine:
            mine.append((run, partial(run)))
            if run.finished is not None and not mine[-1][1]:
                break
    if not mine:
        return ChosenRuns(newest, partial(newest) if newest is not None else "")
    run, why = next((one for one in mine if not one[1]), mine[0])
    others = [one for one, _ in mine if one is not run]
    if not why:
        others += [one for one in (reading.store.load_run(each.run_id) for each in doubtful) if suits(one)]
    return ChosenRuns(run, why, tuple(others))


def taken_of(run: RunInfo) -> float:
    """Return as of when the evidence of a run is: its end; its begin where it goes on, was resumed or took days."""
    if run.known_at is None or run.known_at - run.started > _LONG_RUN:
        return run.started
    return run.known_at


def whole_of(chosen: ChosenRuns) -> RunInfo | None:
    """Return the chosen run, if its command gives whole evidence when it is typed again."""
    return None if chosen.partial else chosen.run


def evidence_of(
    reading: EvidenceReading, part: DecisionPart, chosen: ChosenRuns,
    reasons: Callable[[RunInfo], Iterator[EvidenceReason]], again: str, *, needs_capture: bool = True,
    covered: Callable[[RunInfo], str] = lambda _: "", basis: Basis | None = None, taken: float | None = None,
) -> PartEvidence:  # fmt: skip
    """Return the evidence of the chosen run, with the harm that others show.

    Parameters
    ----------
    basis, taken
        Those of what the run rests on, where they are not its own.
    """
    run = chosen.run
    if run is None:
        return PartEvidence(part, again=again, needs_capture=needs_capture)
    if taken is None:
        taken, began = taken_of(run), run.started
    else:
        began = None
    found = [*reasons(run)]
    if chosen.partial:
        found.append(EvidenceReason(DOUBT, chosen.partial, again, weight=1e18))
    if run.finished is None:
        found.append(EvidenceReason(DOUBT, NO_END, again, weight=1e18))
    elif taken != run.finished and run.finished > reading.now + reading.rules.skew:
        found.append(EvidenceReason(DOUBT, f"run {run.run_id} ended in the future: a clock is wrong", again))
    for other in chosen.others:
        harm = [replace(one, run=other.run_id) for one in reasons(other) if one.kind is HARM]
        found += counted_harm(
            reading, part, harm, other.run_id, basis_of(other.facts), again, needs_capture=needs_capture
        )  # fmt: skip
    return PartEvidence(
        part, run.run_id, taken, began, basis if basis is not None else basis_of(run.facts), needs_capture,
        tuple(found), covered(run), again,
    )  # fmt: skip


def counted_harm(
    reading: EvidenceReading, part: DecisionPart, harm: Sequence[EvidenceReason], run: str, basis: Basis | None,
    again: str, *, needs_capture: bool = True,
) -> list[EvidenceReason]:  # fmt: skip
    """Return the harm that another run than the part's showed, if it is of the service as it is now.

    Harm under other definitions or another configuration is neither counted nor known to be gone.
    """
    if not harm or reading.service is None:
        return [*harm]
    why = "the run does not say on what it rests"
    if basis is not None:
        found = differences(basis, reading.service, reading.rules.clones, part, needs_capture=needs_capture)
        why = next(found, "")
    if not why:
        return [*harm]
    text = f"run {run} found harm ({len(harm):,}), which is not counted: {why}"
    return [EvidenceReason(DOUBT, text, again, run=run)]


def unreadable(part: DecisionPart, error: StoreError, again: str, *, needs_capture: bool = True) -> PartEvidence:
    """Return the evidence of a part whose run cannot be read: it is not known."""
    reason = EvidenceReason(DOUBT, f"the store cannot be read: {error.message}", again)
    return PartEvidence(part, needs_capture=needs_capture, reasons=(reason,), again=again)


def choices(run: RunInfo) -> Mapping[str, Any]:
    """Return what a user chose of a run, empty where it is not recorded."""
    found = run.facts.get("choices")
    return found if isinstance(found, Mapping) else {}

"""Runs that are behind us: what their journals say of them, and nothing else. No file beside the journal is read.

A journal that cannot be read is not left out: it is listed with what is wrong, and every verdict says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from migverify.errors import JournalError, StoreError
from migverify.runbook.events import Event, EventKind, RollbackState, RunState, StepState
from migverify.runbook.kinds import RunbookKind, RunKind, StepKind
from migverify.runbook.model import Runbook
from migverify.runbook.record.heads import Head, previous_of
from migverify.runbook.record.journal import RunJournal
from migverify.runbook.record.run_store import RunStore
from migverify.store.journals import JournalStart

__all__ = [
    "BAD", "Damaged", "Past", "PastCase", "PastGuard", "PastHold", "PastPart", "PastRun", "PastStep", "PastUndo",
    "Undelivered", "drill_seconds", "past_runs",
]  # fmt: skip

BAD = frozenset({StepState.FAILED, StepState.TIMED_OUT, StepState.INCONCLUSIVE, StepState.UNKNOWN})
"""How an attempt ends badly."""
_BY_HAND = (StepKind.MANUAL, StepKind.DECISION)


@dataclass(frozen=True, slots=True)
class PastStep:
    """A step of a run as it was then.

    Parameters
    ----------
    seconds
        Its last attempt, without holds and without the wait for the reviewer; None: it did not run to an end.
        Not ``exact``: taken from wall clocks.
    bad
        Bad ends of all attempts, in their order.
    alarms
        ``late``, ``short`` and ``waiting`` of all attempts.
    evidence
        How many pieces of evidence its last attempt has.
    backwards
        It is for runs of kind ``rollback`` alone.
    """

    id: str
    phase: str
    kind: StepKind
    sha: str
    plan: float | None
    state: StepState
    attempts: int
    seconds: float | None
    exact: bool
    bad: tuple[StepState, ...]
    alarms: tuple[str, ...]
    evidence: int
    rollback: RollbackState
    twin: str | None = None
    backwards: bool = False

    @property
    def clean(self) -> bool:
        """Whether it was done, at the first attempt."""
        return self.state is StepState.DONE and self.attempts == 1 and not self.bad

    @property
    def late(self) -> bool:
        """Whether it took longer than was planned."""
        over = self.plan is not None and self.seconds is not None and self.seconds > self.plan
        return over or "late" in self.alarms


@dataclass(frozen=True, slots=True)
class PastHold:
    """A hold. ``planned`` only when a person ordered a rollback: any other hold, for any reason, is a hold.

    ``guard`` names what held the run, if a guard did; ``seconds`` None: it had not ended when the journal did.
    """

    at: float
    by: str
    reason: str
    guard: str
    planned: bool
    seconds: float | None


@dataclass(frozen=True, slots=True)
class PastGuard:
    """A guard that was armed: answers that came, questions that were due, and answers that were no pass."""

    id: str
    asked: int
    due: int
    failed: int
    inconclusive: int

    @property
    def share(self) -> float:
        """The part of its questions that was answered; 0 when it was never asked."""
        return self.asked / self.due if self.due > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Undelivered:
    """An announcement that did not arrive: ``state`` is ``queued``, ``failed`` or ``given up``."""

    of: int
    sink: str
    what: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class PastPart:
    """Who played a part: a role of the runbook, or a person that a step names. ``backup``: not the named person."""

    role: str
    person: str
    backup: bool


@dataclass(frozen=True, slots=True)
class PastUndo:
    """A rollback of one step: its state at the end of this attempt; ``sha`` is the step's."""

    step: str
    sha: str
    state: RollbackState
    seconds: float | None


@dataclass(frozen=True, slots=True)
class PastCase:
    """The grade of a disaster recovery case: ``pass``, ``pass-with-late-recovery``, ``fail`` or ``invalid``.

    Invalid: the fault was not proved to hit, or not proved to be removed; such a run says nothing, and never counts.
    ``recovery`` is the time from the fault to the steady state, in seconds.
    """

    priority: str
    tier: str
    grade: str
    reasons: tuple[str, ...]
    recovery: float | None

    @property
    def passed(self) -> bool:
        """Whether the case counts as passed."""
        return self.grade in ("pass", "pass-with-late-recovery")


@dataclass(frozen=True, slots=True)
class PastRun:
    """One run, as its journal tells it. Times are Unix seconds.

    Parameters
    ----------
    ended
        None: the journal does not hold its end. The run goes on, or it was left.
    seconds
        From its start to its end, or to the journal's last line, by the monotonic clock where that can be.
    autopilot
        One program played every role: no drill of people.
    instance
        Parameters that say for whom a template was filled in: runs of another instance are of another runbook.
    announced
        How many announcements were to be delivered, one for each sink.
    write_stop, write_stop_budget
        Seconds; the budget None: none was set.
    parts, people
        Who acted in which role, and all persons who did anything.
    logins, signers
        Persons by the login they acted from, and those who signed something with a key that is theirs.
    chained
        Its first event says which run was begun before it; else an earlier release began it.
    not_before, not_after
        Unix seconds, by the clocks of the runs begun before and after it. None: there is none.
    steps
        By id, in the order of the file.
    """

    run: str
    runbook: str
    runbook_kind: RunbookKind
    sha: str
    text_sha: str
    kind: RunKind
    environment: str
    production: bool
    instance: Mapping[str, str]
    state: RunState
    started: float
    ended: float | None
    seconds: float
    held: float
    schema_fingerprint: str
    autopilot: bool
    head: str
    steps: Mapping[str, PastStep]
    holds: tuple[PastHold, ...] = ()
    retries: int = 0
    waivers: Mapping[str, str] = field(default_factory=dict)
    announced: int = 0
    undelivered: tuple[Undelivered, ...] = ()
    silent: bool = False
    guards: tuple[PastGuard, ...] = ()
    write_stop: float = 0.0
    write_stop_budget: float | None = None
    takeovers: int = 0
    signed: int = 0
    unsigned: int = 0
    jumps: int = 0
    parts: tuple[PastPart, ...] = ()
    people: tuple[str, ...] = ()
    undone: tuple[PastUndo, ...] = ()
    rollback_by_person: bool = False
    case: PastCase | None = None
    logins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    signers: tuple[str, ...] = ()
    chained: bool = True
    not_before: float | None = None
    not_after: float | None = None

    @property
    def at(self) -> float:
        """When it ended, or began while it is not over; never after a later run of the chain began."""
        own = self.ended if self.ended is not None else self.started
        return own if self.not_after is None else min(own, self.not_after)

    @property
    def shared_logins(self) -> dict[str, tuple[str, ...]]:
        """Logins from which more than one person acted."""
        return {login: some for login, some in self.logins.items() if len(some) > 1}

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.ended is not None

    @property
    def failures(self) -> tuple[tuple[str, StepState], ...]:
        """Steps and their bad ends, attempts that were repeated included."""
        return tuple((one.id, state) for one in self.steps.values() for state in one.bad)

    @property
    def unplanned_holds(self) -> tuple[PastHold, ...]:
        """Holds that nothing but trouble, or somebody, brought about."""
        return tuple(one for one in self.holds if not one.planned)


@dataclass(frozen=True, slots=True)
class Damaged:
    """A run whose journal cannot be read; ``runbook`` is empty where not even that is known.

    ``case``: it is one of a disaster recovery case. ``not_after``: when the first of the runs after it began, Unix
    seconds; None: there is none, or it is not known where it belongs.
    """

    run: str
    runbook: str
    problem: str
    case: bool = False
    not_after: float | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """All runs of a room in the order of their chain, and those whose journals are damaged or gone."""

    runs: tuple[PastRun, ...]
    damaged: tuple[Damaged, ...] = ()

    def __iter__(self) -> Iterator[PastRun]:
        return iter(self.runs)

    def before(self, run: str) -> tuple[PastRun, ...]:
        """Return the runs that were begun before one, by the chain; all when it is none of them."""
        ids = [one.run for one in self.runs]
        return self.runs[: ids.index(run)] if run in ids else self.runs

    def __len__(self) -> int:
        return len(self.runs)


def past_runs(
    room: RunStore, runbook_id: str | Collection[str] | None = None, *, cases: bool = False,
    heads: Iterable[Head] = (),
) -> Past:  # fmt: skip
    """Return what a room's journals say.

    Parameters
    ----------
    runbook_id
        One or several runbooks; None: all. A journal is read on only when its first line names one of them.
    cases
        Also all runs of disaster recovery cases, of any runbook.
    heads
        Announced ones, from outside of the room: a run that they name has to be there, with the events they name.

    Raises StoreError: the room itself cannot be read.
    """
    wanted = None if runbook_id is None else {runbook_id} if isinstance(runbook_id, str) else set(runbook_id)
    runs, damaged = list[PastRun](), list[Damaged]()
    journals = {id_: _journal(room, id_, start) for id_, start in room.starts().items()}
    firsts = {id_: _first(id_, journal) for id_, journal in journals.items()}
    known, gone = _known_heads(room, firsts, heads)
    damaged += gone
    bounds = _bounds([*firsts.values()])
    for (id_, journal), (before, after) in zip(journals.items(), bounds, strict=True):
        found = _read(journal, firsts[id_], wanted, known.get(id_, {}), cases=cases)
        if isinstance(found, Damaged):
            damaged.append(replace(found, not_after=after))
        elif found is not None:
            runs.append(replace(found, not_before=before, not_after=after))
    return Past(tuple(runs), tuple(damaged))


def _bounds(firsts: Sequence[Event | Damaged]) -> list[tuple[float | None, float | None]]:
    """Return for each run the latest begin of those before it, and the earliest of those after it."""
    begun = [first.wall if isinstance(first, Event) else None for first in firsts]
    return list(zip(_so_far(begun, max), reversed(_so_far(begun[::-1], min)), strict=True))


def _so_far(begun: Sequence[float | None], choose: Callable[[float, float], float]) -> list[float | None]:
    found: list[float | None] = []
    chosen: float | None = None
    for wall in begun:
        found.append(chosen)
        if wall is not None:
            chosen = wall if chosen is None else choose(chosen, wall)
    return found


def _journal(room: RunStore, run: str, start: JournalStart) -> RunJournal | Damaged:
    try:
        return room.listed(run, start)
    except StoreError as error:
        return Damaged(run, "", error.message)


def _first(run: str, journal: RunJournal | Damaged) -> Event | Damaged:
    if isinstance(journal, Damaged):
        return journal
    try:
        first = next(journal.new(), None)
    except StoreError as error:  # JournalError is one
        return Damaged(run, "", error.message)
    return first if first is not None else Damaged(run, "", "its journal holds no event")


def _known_heads(
    room: RunStore, firsts: Mapping[str, Event | Damaged], heads: Iterable[Head]
) -> tuple[dict[str, dict[int, str]], list[Damaged]]:
    """Return by run the hashes that its events have to have, and the runs that are named and not there."""
    known: dict[str, dict[int, str]] = {}
    gone: dict[str, Damaged] = {}
    named = [(one, "the room's list of runs") for one in room.begun()]
    named += [(one, "an announced head") for one in heads]
    for first in firsts.values():
        if isinstance(first, Event):
            try:
                before = previous_of(first)
            except JournalError:
                continue  # it is found when the run is read
            named += [(before, f"run {first.run}, begun after it,")] if before is not None else []
    for head, who in named:
        if head.run not in firsts:
            gone.setdefault(head.run, Damaged(head.run, "", f"it is missing from {room.name}: {who} names it"))
        elif known.setdefault(head.run, {}).setdefault(head.seq, head.sha) != head.sha:
            known[head.run][head.seq] = ""  # two say different hashes: no event can have both
    return known, list(gone.values())


def _read(
    journal: RunJournal | Damaged, first: Event | Damaged, wanted: set[str] | None, known: Mapping[int, str], *,
    cases: bool,
) -> PastRun | Damaged | None:  # fmt: skip
    from migverify.runbook.history.read import past_run

    if isinstance(journal, Damaged):
        return journal
    if isinstance(first, Damaged):
        return first
    run = journal.run
    runbook, is_case = _named(first)
    if wanted is not None and runbook and runbook not in wanted and not (cases and is_case):
        return None
    try:
        previous_of(first)
        past = past_run(_as_known(chain((first,), journal.new()), known))
    except JournalError as error:
        return Damaged(run, runbook, error.message, is_case)
    except StoreError as error:
        # Of one run: the list of runs was read. What cannot be read now is not known to be good.
        return Damaged(run, runbook, f"cannot be read: {error.message}", is_case)
    if past.run != run:
        return Damaged(run, runbook, f"its journal is that of run {past.run}", is_case)
    return past


def _as_known(events: Iterable[Event], known: Mapping[int, str]) -> Iterator[Event]:
    """Yield events, and refuse a journal in which one that others named has another hash, or is cut off."""
    last = -1
    for event in events:
        last = event.seq
        if known.get(last, event.sha) != event.sha:
            raise JournalError(f"line {last + 1}: it has another hash than others know: the journal was written anew")
        yield event
    if known and last < max(known):
        raise JournalError(f"line {last + 1} is its last, and others know its event {max(known)}: it was cut off")


def _named(first: Event) -> tuple[str, bool]:
    """Return the runbook that a first line names, and whether it is a case; ("", False): it names none."""
    book = first.data.get("runbook") if first.kind is EventKind.RUN_STARTED else None
    if not isinstance(book, dict) or not isinstance(book.get("id"), str):
        return "", False
    return book["id"], book.get("kind") == RunbookKind.DR_CASE.value


def drill_seconds(runs: Iterable[PastRun], runbook: Runbook) -> list[dict[str, float]]:
    """Return how long steps took in earlier runs, one mapping a run: what ``forecast.estimates`` is fed with.

    Only steps that ended well, and whose definition is the one of now. Not in it: dry runs, other runbooks, other
    instances of the template, and what the autopilot did in place of a person's hands.
    """
    now = {step.id: step.sha for step in runbook.steps}
    found = []
    for run in runs:
        if run.runbook != runbook.id or run.kind is RunKind.DRY or dict(run.instance) != runbook.instance:
            continue
        found.append({
            one.id: one.seconds for one in run.steps.values()
            if one.state is StepState.DONE and one.seconds is not None and now.get(one.id) == one.sha
            # Between two machines whose clocks differ the time is cut to 0: that is no measurement.
            and (one.exact or one.seconds > 0)
            and not (run.autopilot and one.kind in _BY_HAND)
        })  # fmt: skip
    return [one for one in found if one]

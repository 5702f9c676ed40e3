"""The state of a run: what the fold of its journal says. Values and arithmetic of time, without I/O.

Durations are taken from the monotonic clock where both ends were written under one boot; otherwise from the wall
clock, and then they say so (``exact`` False).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from migverify.runbook.cast import Cast
from migverify.runbook.clock import Moment
from migverify.runbook.events import RollbackState, RunState, StepState
from migverify.runbook.graph import Graph, acts
from migverify.runbook.kinds import RunKind
from migverify.runbook.model import Runbook, Step

__all__ = [
    "CLEAN_HAS_NO_EFFECT",
    "EFFECTS_OUTLIVE",
    "OVER",
    "PASSED",
    "RULES",
    "SIGNED_BY_ALL",
    "UNDER_WAY",
    "Attempt",
    "Delivery",
    "DeliveryState",
    "ElapsedTime",
    "Given",
    "GuardStatus",
    "Jump",
    "RollbackOrder",
    "RunStatus",
    "StepStatus",
    "between",
]  # fmt: skip

PASSED = frozenset({StepState.DONE, StepState.WAIVED, StepState.DRY})
"""What lets the steps go on that need a step. NOT_APPLICABLE is passed through, not passed."""
UNDER_WAY = frozenset({StepState.RUNNING, StepState.VERIFYING})
OVER = frozenset({StepState.FAILED, StepState.TIMED_OUT, StepState.INCONCLUSIVE, StepState.UNKNOWN})
JUMP_SECONDS = 2.0
RULES = 3
"""The rules of runs that begin now. 1: a probe's no disarms a rollback, and who agrees second need not sign. Up to 2 a
run ended clean although an effect without a rollback had happened."""
EFFECTS_OUTLIVE = SIGNED_BY_ALL = 2
CLEAN_HAS_NO_EFFECT = 3


@dataclass(frozen=True, slots=True)
class ElapsedTime:
    """A duration in seconds. Not ``exact``: taken from wall clocks, which may have been set meanwhile."""

    seconds: float
    exact: bool

    def __add__(self, other: ElapsedTime) -> ElapsedTime:
        return ElapsedTime(self.seconds + other.seconds, self.exact and other.exact)


def between(first: Moment, then: Moment) -> ElapsedTime:
    """Return the time from one moment to a later one; never negative."""
    if first.boot == then.boot:
        return ElapsedTime(max(0.0, (then.mono - first.mono) / 1e9), exact=True)
    return ElapsedTime(max(0.0, then.wall - first.wall), exact=False)


ZERO = ElapsedTime(0.0, exact=True)


@dataclass(frozen=True, slots=True)
class Jump:
    """A wall clock that moved against the monotonic one, or went back between machines; ``seq``: where."""

    seq: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Given:
    """One approval as it was given.

    ``of`` is ``start``, ``done``, ``waive``, ``decide``, ``takeover``, ``resume``, ``rollback`` or ``promote``;
    ``hash`` what it signs (``people.binding``). ``signed`` only after the signature was checked.
    """

    person: str
    of: str
    hash: str
    at: Moment
    seq: int
    signed: bool
    reason: str = ""
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that is over: kept when the step is tried again."""

    number: int
    state: StepState
    reason: str
    started: Moment | None
    ended: Moment | None


class StepStatus(NamedTuple):
    """The status of one step. A tuple: journals change it at nearly every line, and that takes a fifth of the time.

    Parameters
    ----------
    intent
        An effect was about to be done, and is not known to be undone or not to have happened.
    effect_done
        The effect is known to have happened.
    order
        Number of the event that announced the effect; a rollback goes from the highest down. -1: none, or it is known
        that it did not happen.
    evidence, evidence_sha
        What the attempt has to show, and the hash of the events that hold it.
    held_before
        Seconds the run had been held when the step started: what is added since is not the step's time.
    undo_done
        The rollback's effect is known to have happened; its checks come next.
    handled
        ``on_fail`` of this failure was carried out.
    rejected
        It was the reviewer who let it fail: nothing is tried again by itself.
    host
        Machine of the executor that last had an intent for the step, to do it or to undo it.
    hands
        Who acted as its DRI in this attempt: more than one when a role was handed over meanwhile.
    """

    id: str
    state: StepState = StepState.PENDING
    attempt: int = 1
    reason: str = ""
    called_by: str = ""
    dri: str = ""
    called: Moment | None = None
    started: Moment | None = None
    ended: Moment | None = None
    held_before: ElapsedTime = ZERO
    active: ElapsedTime | None = None
    intent: bool = False
    effect_done: bool = False
    order: int = -1
    evidence: tuple[dict[str, Any], ...] = ()
    evidence_sha: str = ""
    approvals: tuple[Given, ...] = ()
    rollback: RollbackState = RollbackState.NONE_NEEDED
    rollback_reason: str = ""
    rollback_started: Moment | None = None
    rollback_ended: Moment | None = None
    undo_done: bool = False
    handled: bool = False
    rejected: bool = False
    hands: frozenset[str] = frozenset()
    host: str = ""
    alarms: tuple[str, ...] = ()
    waiver: dict[str, Any] | None = None
    attempts: tuple[Attempt, ...] = ()

    @property
    def may_stand(self) -> bool:
        """Whether an effect of it happened, or may have, in this attempt or an earlier one, and is not undone."""
        if self.rollback is RollbackState.NONE_NEEDED:
            return self.intent or self.order >= 0 or self.state is StepState.UNKNOWN
        return self.rollback is not RollbackState.UNDONE_VERIFIED or self.state is StepState.UNKNOWN


@dataclass(frozen=True, slots=True)
class GuardStatus:
    """A guard's last answer (``pass``, ``fail`` or ``inconclusive``), and how often it was asked and was due."""

    state: str
    text: str
    value: Any
    at: Moment
    asked: int
    due: int


@dataclass(frozen=True, slots=True)
class RollbackOrder:
    """A rollback that was ordered: steps in the order in which they are undone, and what comes then.

    ``then`` is ``rolled back`` or ``aborted`` (the run ends), or ``hold``.
    """

    steps: tuple[str, ...]
    then: str
    reason: str
    by: str


class DeliveryState(StrEnum):
    """The state of an announcement on its way to one sink. FAILED is tried again, GIVEN_UP is not."""

    QUEUED = "queued"
    SENT = "sent"
    FAILED = "failed"
    GIVEN_UP = "given up"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One announcement on its way to one sink.

    Parameters
    ----------
    of
        Number of the event that announced it (ANNOUNCED or HEAD): with ``sink``, what tells deliveries apart.
    about
        Number of the event that it tells about.
    what
        The kind of moment: ``called``, ``started``, ``done``, ``held``, ``head`` ...; see ``announce``.
    tries
        Those that are over; ``reason`` is why the last one failed, ``at`` when the state changed last.
    topic
        What it is about where that is neither the step nor the run.
    """

    of: int
    sink: str
    what: str
    text: str
    state: DeliveryState
    tries: int
    reason: str
    at: Moment
    about: int
    step: str = ""
    topic: str = ""


@dataclass(slots=True)
class RunStatus:
    """The state of a run. Only the fold changes it; to everybody else it is a value.

    Parameters
    ----------
    executor, executor_by, executor_at
        Who drives the run, whose it is, and (host, boot, process); empty: nobody.
    held, held_since, holds
        Time of holds that are over, the beginning of one that is not, and how many there were.
    write_stop_since, write_stop_spent
        When writes were stopped and are still, and the time of stops that are over.
    despite
        Guards that two persons overruled; each holds again once it has passed and fails anew.
    forced
        Steps that ``on_fail: goto`` leads to, also before what they need.
    began
        Hash of the first event, which holds the whole runbook: what every approval is bound to.
    promotions
        (role, person) in the order in which roles were handed over.
    failed_ever
        Steps and their bad states, also of attempts that were repeated: what makes a drill unclean.
    deliveries
        Announcements by (number of the event that announced them, sink).
    announced
        The last event that was announced, and its announced moments: an executor that takes over goes on behind it.
    outbox_problems
        Why something could not be announced at all.
    rules
        Under which rules the run began (``RULES``): a journal is read by those of its own time.
    """

    run: str
    runbook: Runbook
    kind: RunKind
    graph: Graph
    cast: Cast
    started: Moment
    last: Moment
    state: RunState = RunState.RUNNING
    seq: int = -1
    head: str = ""
    epoch: int = 0
    executor: str = ""
    executor_by: str = ""
    executor_at: tuple[str, str, str] = ("", "", "")
    steps: dict[str, StepStatus] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)
    undecided: int = 0
    ended: Moment | None = None
    held: ElapsedTime = ZERO
    held_since: Moment | None = None
    holds: int = 0
    hold_reasons: tuple[str, ...] = ()
    hold_guards: tuple[str, ...] = ()
    despite: frozenset[str] = frozenset()
    write_stop_since: Moment | None = None
    write_stop_spent: ElapsedTime = ZERO
    guards: dict[str, GuardStatus] = field(default_factory=dict)
    order: RollbackOrder | None = None
    forced: frozenset[str] = frozenset()
    agreements: tuple[Given, ...] = ()
    unsigned: int = 0
    signed: int = 0
    logins: dict[str, frozenset[str]] = field(default_factory=dict)
    signatures: frozenset[str] = frozenset()
    failed_ever: tuple[tuple[str, StepState], ...] = ()
    retries: int = 0
    takeovers: int = 0
    jumps: tuple[Jump, ...] = ()
    began: str = ""
    promotions: tuple[tuple[str, str], ...] = ()
    deliveries: dict[tuple[int, str], Delivery] = field(default_factory=dict)
    announced: tuple[int, frozenset[str]] = (-1, frozenset())
    outbox_problems: tuple[str, ...] = ()
    rules: int = 1

    def copy(self) -> RunStatus:
        """Return one that can be changed without changing this."""
        return replace(
            self, steps=dict(self.steps), left=dict(self.left), guards=dict(self.guards), logins=dict(self.logins),
            busy=set(self.busy), deliveries=dict(self.deliveries),
        )  # fmt: skip

    def definition(self, step: str) -> Step:
        """Return a step's definition; raises KeyError."""
        return self.graph.steps[step]

    def held_until(self, now: Moment) -> ElapsedTime:
        """Return for how long the run was held in all, a hold that goes on included."""
        return self.held + between(self.held_since, now) if self.held_since is not None else self.held

    def active_time(self, step: str, now: Moment) -> ElapsedTime | None:
        """Return how long a step took or takes, without the time of holds; None before it started."""
        one = self.steps[step]
        if one.active is not None or one.started is None:
            return one.active
        held = self.held_until(now)
        span = between(one.started, now)
        paused = max(0.0, held.seconds - one.held_before.seconds)
        return ElapsedTime(max(0.0, span.seconds - paused), span.exact and held.exact)

    def write_stop_time(self, now: Moment) -> ElapsedTime:
        """Return for how long writes were stopped; holds count, as writes are stopped meanwhile."""
        if self.write_stop_since is None:
            return self.write_stop_spent
        return self.write_stop_spent + between(self.write_stop_since, now)

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self.ended is not None

    @property
    def past_hard_pnr(self) -> bool:
        """Whether a hard point of no return is behind the run, or may be."""
        return any(
            one.intent or one.effect_done or one.state in PASSED
            for id_, one in ((id_, self.steps[id_]) for id_ in self.graph.hard)
        )

    def undoable(self) -> tuple[str, ...]:
        """Return the steps that can be undone now, in the order in which they are: the last effect first."""
        armed = [one for one in self.steps.values() if one.rollback is RollbackState.ARMED]
        return tuple(one.id for one in sorted(armed, key=lambda one: -one.order))

    def not_undone(self) -> tuple[str, ...]:
        """Return the steps whose effects stand, or may stand, those of gates and of people's hands among them."""
        return tuple(one.id for one in self.steps.values() if one.may_stand)

    def not_clean(self) -> tuple[str, ...]:
        """Return what keeps an aborted run from being clean: what may stand of steps that act or have a rollback."""
        return tuple(id_ for id_ in self.not_undone() if self._counts(self.steps[id_]))

    def irreversible(self) -> tuple[str, ...]:
        """Return what is not clean and has no rollback."""
        none = RollbackState.NONE_NEEDED
        return tuple(id_ for id_ in self.not_clean() if self.steps[id_].rollback is none)

    def _counts(self, one: StepStatus) -> bool:
        step = self.definition(one.id)
        if one.state is StepState.UNKNOWN or one.rollback is not RollbackState.NONE_NEEDED:
            return True
        return self.rules >= CLEAN_HAS_NO_EFFECT and acts(step)

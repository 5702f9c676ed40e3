"""The nouns of a runbook: its definition, as a file says it, checked and frozen. Without I/O, without state.

What happened in a run is not here: it is the fold of the run's journal (``state``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class RunbookKind(StrEnum):
    """What a runbook is for."""

    REHEARSAL = "rehearsal"
    CUTOVER = "cutover"
    ROLLBACK = "rollback"
    TRAFFIC = "traffic"
    LOAD = "load"
    DR_CASE = "dr-case"


class RunKind(StrEnum):
    """How a runbook is run. A dry run has no effects, and its steps end DRY, never DONE."""

    DRY = "dry"
    REHEARSAL = "rehearsal"
    LIVE = "live"
    ROLLBACK = "rollback"


class StepKind(StrEnum):
    """What a step is."""

    MANUAL = "manual"
    COMMAND = "command"
    SQL = "sql"
    CHECK = "check"
    GATE = "gate"
    WAIT = "wait"
    ANNOUNCE = "announce"
    TRAFFIC = "traffic"
    DECISION = "decision"
    CHAOS = "chaos"


class Repeat(StrEnum):
    """Idempotency class: whether an effect may be repeated when nobody knows whether it happened."""

    YES = "yes"
    NO = "no"
    CHECK = "check"  # ask the reconcile probe first


class OnFail(StrEnum):
    """What follows a failed step. A skip needs a waiver by two persons."""

    STOP = "stop"
    RETRY = "retry"
    ROLLBACK = "rollback"
    GOTO = "goto"
    SKIP = "skip"


class DataLoss(StrEnum):
    """What a rollback loses."""

    NONE = "none"
    BOUNDED = "bounded"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is in the file, for messages: line from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Person:
    """One who acts. ``aliases`` are other names of the same person: two names never make two people."""

    name: str
    aliases: tuple[str, ...] = ()
    contact: str = ""
    ssh_key: str = ""  # public key line, for signed approvals


@dataclass(frozen=True, slots=True)
class Role:
    """A part to play, a person and a backup; ``only`` limits it to kinds of runs."""

    name: str
    person: str
    backup: str | None = None
    only: tuple[RunKind, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """A question with bounds: an action of the registry and its arguments.

    ``action`` is a registered name (``prom.query``, ``tables.watch_drained``, ``sql.value``, ``ids.headroom`` ...).
    ``minimum`` / ``maximum`` bound a number, ``equals`` a text; ``for_seconds`` how long it must hold without a break.
    No data is INCONCLUSIVE, never a pass.
    """

    action: str
    arguments: dict[str, Any] = field(default_factory=dict)
    minimum: float | None = None
    maximum: float | None = None
    equals: str | None = None
    for_seconds: float = 0.0
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Effect:
    """What a step does: an action of the registry, its arguments and its time limit in seconds."""

    action: str
    arguments: dict[str, Any] = field(default_factory=dict)
    timeout: float = 60.0
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds. ``plan`` None falls back to the median of earlier drills; below ``minimum`` is suspicious."""

    plan: float | None = None
    maximum: float | None = None
    minimum: float | None = None


@dataclass(frozen=True, slots=True)
class Approval:
    """Who must agree, and when: ``before`` is ``start``, ``done`` or ``both``."""

    minimum: int = 1
    excluded: tuple[str, ...] = ("dri",)
    before: str = "done"


@dataclass(frozen=True, slots=True)
class Rollback:
    """How a step is taken back. ``valid_until`` is a step id behind which it is EXPIRED."""

    effect: Effect | None
    instruction: str
    verify: tuple[Check, ...]
    plan: float | None = None
    valid_until: str | None = None
    data_loss: DataLoss = DataLoss.UNKNOWN
    measured_by: str = ""


@dataclass(frozen=True, slots=True)
class Announcements:
    """Which moments of a step are announced, to which sinks."""

    start: bool = True
    end: bool = True
    late: bool = True
    to: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One step. ``sha`` is the hash of what counts.

    ``needs`` are step ids, complete as loaded: where the file names none, the step before in its phase; the first steps
    of a phase need the last ones of the phase before. Only the very first step of a file has none.

    ``only_runs`` / ``only_environments`` empty: all. ``point_of_no_return`` is ``""``, ``soft`` or ``hard``.
    The title is not in ``sha``, nor an instruction that automation carries out, so that wording may be corrected
    without voiding drills; nor are values of parameters that differ by environment. ``filled_sha`` has those: it is
    what an approval is bound to. ``scripts`` are hashes of the scripts its commands name, as they were when it was
    loaded.
    ``attest`` is what the DRI of a manual step states where no check can tell.
    With ``on_fail`` ``goto``, ``retries`` bounds how often. ``twin`` is the step that rehearses one of production.
    """

    id: str
    phase: str
    kind: StepKind
    title: str
    instruction: str
    dri: str
    reviewer: str | None
    effect: Effect | None
    expect: tuple[Check, ...]
    times: Times
    sha: str
    place: Place
    approval: Approval | None = None
    needs: tuple[str, ...] = ()
    only_runs: tuple[RunKind, ...] = ()
    only_environments: tuple[str, ...] = ()
    repeat: Repeat = Repeat.NO
    reconcile: Check | None = None
    on_fail: OnFail = OnFail.STOP
    retries: int = 0
    backoff: float = 0.0
    goto: str | None = None
    rollback: Rollback | None = None
    announce: Announcements = Announcements()
    point_of_no_return: str = ""
    requires: tuple[str, ...] = ()
    write_stop: str = ""  # "begin" or "end": the write-stop budget runs between them
    twin: str | None = None
    filled_sha: str = ""
    scripts: tuple[str, ...] = ()
    attest: str = ""

    @property
    def by_hand(self) -> bool:
        """Whether a person carries it out and says how it ended."""
        return self.effect is None and self.kind in (StepKind.MANUAL, StepKind.DECISION)


@dataclass(frozen=True, slots=True)
class Guard:
    """A check that is asked all the time while steps of ``armed_in`` (phases, or ``*``) run."""

    id: str
    check: Check
    every: float
    armed_in: tuple[str, ...]
    on_fail: str  # hold | rollback
    on_no_data: str  # hold
    place: Place


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules of people and of readiness; see ``docs/runbooks.md``. Seconds."""

    reviewer_must_differ_from: tuple[str, ...] = ("dri", "coordinator")
    sign_off_ttl: float = 1200.0
    unattended_nag: float = 180.0
    signed_approvals: bool = False
    drills_minimum: int = 4
    clean_last: int = 2
    same_runbook: bool = True
    same_schema: bool = True
    full_cast_last: bool = True
    fresh_eyes_one: bool = False
    rollback_drills: int = 1
    dr_cases: tuple[str, ...] = ()
    dr_max_age_days: float = 30.0
    rollback_runbooks: tuple[str, ...] = ()  # ids of runbooks whose runs are drills of this one's rollback


@dataclass(frozen=True, slots=True)
class Budgets:
    """Seconds: ``write_stop`` cancels by itself when it is spent; ``decision_by`` is measured from the start."""

    write_stop: float | None = None
    decision_by: float | None = None
    margin: float = 60.0


@dataclass(frozen=True, slots=True)
class RunWindow:
    """When the run may happen, Unix seconds."""

    opens: float
    closes: float


@dataclass(frozen=True, slots=True)
class Sink:
    """Where announcements go: ``kind`` is stdout, file, webhook or command. Secrets are names of variables."""

    name: str
    kind: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Case:
    """What makes a runbook a disaster recovery case: what was expected before, and the steps that prove it.

    ``steps`` names a step for each of ``CASE_PARTS``. ``tier``: L (this machine), K (a cluster of a lab), C (cloud).
    """

    priority: str
    tier: str
    expectation: str
    bar: str
    steps: dict[str, str] = field(default_factory=dict)


CASE_PARTS = ("steady", "inject", "hit", "remove", "gone", "steady_again", "data")
"""The way of every case: steady state, fault, proof that it hit, removal, proof that it is gone, steady, data check."""


@dataclass(frozen=True, slots=True)
class Runbook:
    """A whole definition, parameters filled in. ``sha`` covers every step's ``sha``, policy, budgets and guards.

    ``environments`` are those that the file knows, ``production`` those of them that count as production. ``instance``
    has the parameters of type ``name`` that are the same in all environments: for whom a template was filled in.
    """

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 - of this and all that it holds, read from a journal

    id: str
    title: str
    kind: RunbookKind
    sha: str
    text_sha: str
    environment: str
    people: tuple[Person, ...]
    roles: tuple[Role, ...]
    policy: Policy
    steps: tuple[Step, ...]
    guards: tuple[Guard, ...] = ()
    phases: tuple[str, ...] = ()
    budgets: Budgets = Budgets()
    window: RunWindow | None = None
    sinks: tuple[Sink, ...] = ()
    rollback_when: tuple[Check, ...] = ()
    parameters: dict[str, str] = field(default_factory=dict)
    environments: tuple[str, ...] = ()
    production: tuple[str, ...] = ()
    case: Case | None = None
    instance: dict[str, str] = field(default_factory=dict)

    @property
    def service(self) -> str:
        """Name of what is migrated: the runbook's id, and its parameter ``service`` where it has one."""
        return "-".join(filter(None, (self.id, self.parameters.get("service", ""))))

    def step(self, id: str) -> Step:  # noqa: A002 - the field's name
        """Return the step of that id; raises KeyError."""
        for one in self.steps:
            if one.id == id:
                return one
        raise KeyError(id)

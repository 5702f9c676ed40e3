"""A runbook: frozen pydantic models, which are both the keys of its file and what the rest of migverify reads.

The JSON schema and the table of keys in docs/runbooks.md are made from them. In a file a field has its alias
(``check``, ``max``, ``do``); code and journals use its own name. Fields marked DERIVED are filled in when a file is
read (``definition.load``). What happened in a run is not here: it is the fold of the run's journal (``state``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator

from migverify.config.fields import Many
from migverify.config.settings import MAX_AGE_DAYS, DrillRules
from migverify.runbook.definition.fields import (
    DERIVED,
    GATHERED,
    Bound,
    Duration,
    Id,
    Moment,
    NamedPart,
    Names,
    RunbookPart,
    Scalar,
    Some,
    StepId,
    Text,
    Word,
    as_written,
    named,
    split_run,
    with_arguments,
)
from migverify.runbook.definition.parameters import ParameterPart
from migverify.runbook.kinds import DataLoss, OnFail, Place, Repeat, RunbookKind, RunKind, StepKind

TITLE = "migverify runbook"
CASE_PARTS = ("steady", "inject", "hit", "remove", "gone", "steady_again", "data")
"""The way of every case: steady state, fault, proof that it hit, removal, proof that it is gone, steady, data check."""
_OPEN = ConfigDict(json_schema_extra={"additionalProperties": True})


class Environment(RunbookPart):
    """One environment that the runbook may be run in."""

    production: bool = Field(default=False, description="true: what runs here first needs a twin elsewhere.")


class Person(NamedPart):
    """One who acts. Two names never make two people."""

    aliases: Names = Field(default=(), description="Other names of the same person (login, chat name).")
    contact: str = Field(default="", description="How to reach them.")
    ssh_key: str = Field(default="", description="Public key line, for signed approvals.")


class Role(NamedPart):
    """A part to play."""

    person: Text = Field(description="Who plays it, by name: a person, not a team.")
    backup: Text | None = Field(default=None, description="Who steps in.")
    only: Many[Word[RunKind]] = Field(default=(), description="Kinds of runs that have this role; none: all.")


class DrCases(RunbookPart):
    """Disaster recovery cases that must have passed."""

    required: Names = Field(default=(), description="Ids of cases, or a priority: `p0`, `p1`, `p2`.")
    max_age: Duration = Field(default=MAX_AGE_DAYS * 86_400, description="How old the pass of a case may be.")


class ReadinessPolicy(RunbookPart, DrillRules):
    """What journals of drills must show before a live run."""

    fresh_eyes_one: bool = Field(default=False, description="One was done by people new to it.")
    rollback_runbooks: Names = Field(
        default=(), description="Ids of runbooks of their own that roll this one back: their runs count too."
    )
    dr_cases: DrCases = Field(default=DrCases(), description="Disaster recovery cases.")


class Policy(RunbookPart):
    """Rules of people and of readiness."""

    reviewer_must_differ_from: Names = Field(
        default=("dri", "coordinator"), description="Whom a reviewer may not be: `dri`, or roles."
    )
    sign_off_ttl: Duration = Field(default=1200.0, description="After this time an approval lapses.")
    unattended_nag: Duration = Field(default=180.0, description="Whoever is waited for is reminded after this time.")
    signed_approvals: bool = Field(default=False, description="true: an approval needs a signature by SSH key.")
    readiness: ReadinessPolicy = Field(default=ReadinessPolicy(), description="What drills must show.")


class RunWindow(RunbookPart):
    """When the run may happen, Unix seconds."""

    opens: Moment = Field(description="Date and time with its offset.")
    closes: Moment = Field(description="Date and time with its offset.")


class Budgets(RunbookPart):
    """Times that may be spent."""

    write_stop: Duration | None = Field(default=None, description="How long writes may stand; then it cancels itself.")
    decision_by: Duration | None = Field(default=None, description="Go or back by then, from the start: `T+110m`.")
    margin: Duration = Field(default=60.0, description="Kept free before the window closes.")


class Check(RunbookPart):
    """A question with bounds. Every further key is an argument of the action; `run` is split into `argv`."""

    model_config = _OPEN

    action: Text = Field(validation_alias="check", description="Action that answers: `sql.value`, `prom.query`, ...")
    arguments: Annotated[dict[str, Any], GATHERED] = Field(default_factory=dict)
    minimum: Bound | None = Field(default=None, validation_alias="min", description="The answer is at least this.")
    maximum: Bound | None = Field(default=None, validation_alias="max", description="The answer is at most this.")
    equals: Scalar | None = Field(default=None, description="The answer is this text.")
    for_seconds: Duration = Field(default=0.0, validation_alias="for", description="So long without a break.")

    @model_validator(mode="before")
    @classmethod
    def _of_file(cls, data: Any, info: ValidationInfo) -> Any:
        return data if info.context is None else with_arguments(cls, split_run(data))


class Effect(RunbookPart):
    """An effect. Every further key is an argument of the action; `run` is split into `argv`, without a shell."""

    model_config = _OPEN

    action: str = Field(
        default="", description="Action that has it. Default: `command` with `run` or `argv`, `sql` with `sql`."
    )
    arguments: Annotated[dict[str, Any], GATHERED] = Field(default_factory=dict)
    timeout: Duration = Field(default=60.0, description="It is ended after this time.")

    @model_validator(mode="before")
    @classmethod
    def _of_file(cls, data: Any, info: ValidationInfo) -> Any:
        if info.context is None:
            return data
        if isinstance(data, dict) and "action" not in data:
            for key, action in (("run", "command"), ("argv", "command"), ("sql", "sql")):
                if key in data:
                    data = {"action": action} | data
                    break
        return with_arguments(cls, split_run(data))

    @model_validator(mode="after")
    def _has_action(self) -> Self:
        if not self.action:
            raise ValueError("nothing says what is done: give `action`, `run`, `argv` or `sql`")
        return self


class UsedCheck(RunbookPart):
    """A named check with other bounds."""

    model_config = _OPEN

    use: Text = Field(description="Its name under `checks`; every further key replaces one of it.")


Checks = Annotated[Many[Check], as_written(str | list[str | UsedCheck | Check])]


class Times(RunbookPart):
    """Planned times of a step."""

    plan: Duration | None = Field(default=None, description="Planned. Default: the median of earlier drills.")
    maximum: Duration | None = Field(
        default=None, validation_alias="max", description="Over it the step has timed out."
    )
    minimum: Duration | None = Field(
        default=None, validation_alias="min", description="Below it the step is suspiciously short."
    )


class Applies(RunbookPart):
    """Where a step applies."""

    runs: Many[Word[RunKind]] = Field(default=(), description="Kinds of runs; none: all.")
    environments: Names = Field(default=(), validation_alias="env", description="Environments; none: all.")


class Approval(RunbookPart):
    """Who must agree."""

    minimum: int = Field(default=1, ge=1, validation_alias="min", description="How many.")
    excluded: Names = Field(default=("dri",), validation_alias="not", description="Who does not count: roles, persons.")
    before: Literal["start", "done", "both"] = Field(default="done", description="Before what.")


class Failure(RunbookPart):
    """What follows when a step fails, with its bound."""

    unbounded: Annotated[Word[OnFail] | None, *DERIVED] = None
    retry: int | None = Field(default=None, description="Try so many times more.")
    backoff: Duration = Field(default=0.0, description="Wait so long before a retry.")
    goto: StepId | None = Field(default=None, description="Go on at this step.")
    at_most: int = Field(default=0, ge=0, description="With `goto`: how many times at most.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if [self.unbounded, self.retry, self.goto].count(None) != 2:
            raise ValueError("give `retry` or `goto`, one of them")
        return self

    @property
    def then(self) -> OnFail:
        """What follows."""
        return self.unbounded or (OnFail.GOTO if self.goto is not None else OnFail.RETRY)

    @property
    def times(self) -> int:
        """How often a retry or a jump may happen."""
        return self.at_most if self.goto is not None else self.retry or 0


_FORMS = "this is stop, rollback, skip, retry(3, 10s) or goto:step"
_STOP = Failure(unbounded=OnFail.STOP)


def _failure(value: object) -> object:
    if isinstance(value, str):
        if value.startswith("goto:"):
            return {"goto": value.removeprefix("goto:").strip()}
        if retry := re.fullmatch(r"retry\((\d+)(?:, *([0-9a-z.]+))?\)", value):
            return {"retry": int(retry[1])} | ({"backoff": retry[2]} if retry[2] else {})
        if value not in (OnFail.STOP, OnFail.ROLLBACK, OnFail.SKIP):
            raise ValueError(_FORMS)
        return _STOP if value == OnFail.STOP else Failure(unbounded=OnFail(value))
    if value is not None and not isinstance(value, dict | Failure):
        raise ValueError(_FORMS)
    return value


class Rollback(RunbookPart):
    """How a step is taken back."""

    effect: Annotated[Effect | None, as_written(str | Effect | None)] = Field(
        default=None,
        validation_alias="do",
        description="Effect that takes it back; or the step whose effect it is.",
    )
    instruction: str = Field(default="", description="How to do it by hand.")
    verify: Checks = Field(default=(), description="What proves that it is taken back.")
    plan: Duration | None = Field(default=None, description="Planned time.")
    valid_until: StepId | None = Field(default=None, description="From this step on it has expired.")
    data_loss: Word[DataLoss] = Field(default=DataLoss.UNKNOWN, description="What it loses.")
    measured_by: str = Field(default="", description="With `bounded`: what measures the loss.")


class Announcements(RunbookPart):
    """Which moments are announced, and where."""

    start: bool = Field(default=True, description="When it begins.")
    end: bool = Field(default=True, description="When it ends.")
    late: bool = Field(default=True, description="When it is over its planned time.")
    to: Names = Field(default=(), description="Sinks; none: all.")


def _needs(value: object) -> object:
    return [value] if isinstance(value, str) else () if value is None else value


class Step(RunbookPart):
    """One step."""

    # As loaded, ``needs`` are complete: where the file names none, the step before in its phase; the first steps of a
    # phase need the last ones of the phase before. Only the very first step of a file has none. ``sha`` is the hash of
    # what counts. The title is not in it, nor an instruction that automation carries out, so that wording may change
    # without voiding drills; nor are values of parameters that differ by environment. ``filled_sha`` has those: it is
    # what an approval is bound to. ``scripts`` are hashes of the scripts its commands name, as they were then.

    id: Id = Field(description="Its name, once in the file.")
    kind: Word[StepKind] = Field(description="What it is.")
    title: str = Field(default="", description="One line. Not in the hash.")
    instruction: str = Field(
        default="",
        description="How to do it by hand: automation may fail. In the hash of `manual` and `decision` steps.",
    )
    dri: Text = Field(description="Who does it: a role or a person.")
    reviewer: Text | None = Field(default=None, description="Who signs it: another person.")
    approval: Approval | None = Field(default=None, validation_alias="approve", description="Further approvals.")
    needs: Annotated[Many[StepId], BeforeValidator(_needs, json_schema_input_type=str | list[str] | None)] = Field(
        default=(),
        description="Steps before it. Default: the step before in its phase. `[]`, and the first step of a phase: the"
        " last ones of the phase before, if there is one.",
    )
    times: Times = Field(default=Times(), validation_alias="time", description="Planned times.")
    only: Applies = Field(default=Applies(), description="Where it applies.")
    twin: StepId | None = Field(default=None, description="Step that rehearses this one where it does not run.")
    effect: Effect | None = Field(default=None, validation_alias="do", description="Its effect.")
    wait: Duration | None = Field(default=None, exclude=True, description="With kind `wait`: how long.")
    expect: Checks = Field(default=(), description="Evidence that it worked.")
    attest: Text | None = Field(
        default=None,
        description="With kind `manual`: what its DRI states with `ack`, and its reviewer accepts, where no check can"
        " tell.",
    )
    repeat: Word[Repeat] = Field(
        default=Repeat.NO,
        description="May its effect happen twice, when nobody knows whether it did? `check`: ask `reconcile`.",
    )
    reconcile: Annotated[Check | None, as_written(str | Check | None)] = Field(
        default=None, description="Asks whether the effect happened."
    )
    on_fail: Annotated[Failure, BeforeValidator(_failure, json_schema_input_type=str | Failure)] = Field(
        default=_STOP,
        description="`stop` (default), `rollback`, `skip` (needs a waiver of two), `retry(3, 10s)`, `goto:step`, or"
        " `{goto: step, at_most: 2}`.",
    )
    rollback: Rollback | None = Field(default=None, description="How it is taken back.")
    announce: Announcements = Field(default=Announcements(), description="Announcements.")
    point_of_no_return: Literal["soft", "hard"] | None = Field(
        default=None, description="`soft`: back with loss; `hard`: not back."
    )
    requires: Many[StepId] = Field(default=(), description="Steps that must be done, not waived, before it.")
    write_stop: Literal["begin", "end"] | None = Field(
        default=None, description="Here the write stop begins or ends; its budget runs in between."
    )
    phase: Annotated[str, *DERIVED] = ""
    sha: Annotated[str, *DERIVED] = ""
    filled_sha: Annotated[str, *DERIVED] = ""
    scripts: Annotated[Many[str], *DERIVED] = ()
    place: Annotated[Place | None, *DERIVED] = None

    @property
    def by_hand(self) -> bool:
        """Whether a person carries it out and says how it ended."""
        return self.effect is None and self.kind in (StepKind.MANUAL, StepKind.DECISION)


class Defaults(RunbookPart):
    """What steps have that say nothing else; not steps of kind `wait` and `announce`."""

    reviewer: Text | None = Field(default=None, description="Who signs.")
    time: Times = Field(default=Times(), description="Planned times.")


class Phase(RunbookPart):
    """Some steps with a name."""

    id: Id = Field(description="Its name.")
    title: str = Field(default="", description="One line.")
    steps: Some[Step] = Field(description="Its steps, in their order.")


class Guard(Check):
    """A check that is asked all the time. Every further key is an argument of the action."""

    id: Id = Field(description="Its name.")
    every: Duration = Field(default=30.0, description="Time between two askings.")
    armed_in: Names = Field(default=("*",), description="Phases, or `*` for all.")
    on_fail: Literal["hold", "rollback"] = Field(default="hold", description="What happens to the run.")
    on_no_data: Literal["hold"] = Field(default="hold", description="No data never passes.")


class Sink(NamedPart):
    """Where announcements go. Every further key is an argument; a secret is the name of a variable (`url_env`)."""

    model_config = _OPEN

    kind: Literal["stdout", "file", "webhook", "command", "pagerduty", "slack"] = Field(description="What it is.")
    arguments: Annotated[dict[str, Any], GATHERED] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _of_file(cls, data: Any, info: ValidationInfo) -> Any:
        return data if info.context is None else with_arguments(cls, data)


class Case(RunbookPart):
    """A disaster recovery case: what was expected before, and the steps that prove it."""

    priority: Literal["p0", "p1", "p2"] = Field(description="`p0`: before any live run.")
    tier: Literal["L", "K", "C"] = Field(description="`L` this machine, `K` a cluster of a lab, `C` cloud.")
    expectation: Text = Field(description="What will happen, said before.")
    bar: Text = Field(description="What recovery may take, and what may be lost.")
    steps: dict[Literal[CASE_PARTS], StepId] = Field(  # type: ignore[valid-type]
        default_factory=dict, description=f"Steps that prove it: {', '.join(f'`{one}`' for one in CASE_PARTS)}."
    )


def _with_template(schema: dict[str, Any]) -> None:
    """Let a file with a template leave out what that has: ``phases`` and ``steps`` are then mappings of ids."""
    changes = {"type": "object", "description": "With `extends`: what is different, by id."}
    schema["properties"]["phases"] = {"anyOf": [schema["properties"]["phases"], changes]}
    schema["properties"]["steps"] = changes
    schema["if"], schema["then"] = {"required": ["extends"]}, {"required": ["id", "title"]}
    schema["else"] = {"required": schema.pop("required"), "properties": {"phases": {"type": "array"}, "steps": False}}


class Runbook(RunbookPart):
    """A runbook."""

    # As loaded, its parameters are filled in: ``values`` are their texts, and ``instance`` those of type ``name`` that
    # are the same in all environments: for whom a template was filled in. ``sha`` covers every step's ``sha``, policy,
    # budgets and guards.

    model_config = ConfigDict(json_schema_extra=_with_template)

    extends: str | None = Field(
        default=None,
        exclude=True,
        description="Template, relative to this file: what is said here is merged into it.",
    )
    version: Literal["runbook/v1"] = Field(description="`runbook/v1`.")
    id: Id = Field(description="Its name; drills are counted by it.")
    title: Text = Field(description="One line.")
    kind: Word[RunbookKind] = Field(description="What it is for.")
    parameters: dict[Id, ParameterPart] = Field(
        default_factory=dict, exclude=True, description="Parameters, written `{{name}}`."
    )
    environments: dict[Id, Environment] = Field(min_length=1, description="Where it may run.")
    people: Annotated[dict[Text, Person], AfterValidator(named)] = Field(min_length=1, description="Who acts, by name.")
    roles: Annotated[dict[Id, Role], AfterValidator(named)] = Field(
        min_length=1, description="Parts to play; `coordinator` calls every step."
    )
    policy: Policy = Field(default=Policy(), description="Rules of people and of readiness.")
    window: RunWindow | None = Field(default=None, description="When the run may happen.")
    budgets: Budgets = Field(default=Budgets(), description="Times that may be spent.")
    checks: dict[Id, Any] = Field(
        default_factory=dict,
        exclude=True,
        description="Named checks: one, a list, or another name. A name may be put where a check belongs.",
    )
    defaults: Defaults = Field(default=Defaults(), exclude=True, description="For steps that say nothing else.")
    guards: Many[Guard] = Field(default=(), description="Checks that are asked all the time.")
    sinks: Annotated[dict[Id, Sink], AfterValidator(named)] = Field(
        default_factory=dict, description="Where announcements go."
    )
    rollback_when: Checks = Field(default=(), description="Rules that call for a rollback.")
    case: Case | None = Field(default=None, description="With kind `dr-case`: what makes it one.")
    phases: Some[Phase] = Field(description="Phases, in their order.")
    sha: Annotated[str, *DERIVED] = ""
    text_sha: Annotated[str, *DERIVED] = ""
    environment: Annotated[str, *DERIVED] = ""
    values: Annotated[dict[str, str], *DERIVED] = Field(default_factory=dict)
    instance: Annotated[dict[str, str], *DERIVED] = Field(default_factory=dict)

    def model_copy(self, *, update: Any = None, deep: bool = False) -> Self:
        """Return a copy with changes; what was computed from the old phases is not copied."""
        copy = super().model_copy(update=update, deep=deep)
        for name in ("steps", "_by_id"):
            copy.__dict__.pop(name, None)
        return copy

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The steps of all phases, in their order."""
        return tuple(step for phase in self.phases for step in phase.steps)

    @cached_property
    def _by_id(self) -> dict[str, Step]:
        return {step.id: step for step in reversed(self.steps)}

    @property
    def phase_ids(self) -> tuple[str, ...]:
        """The names of the phases, in their order."""
        return tuple(phase.id for phase in self.phases)

    @property
    def production(self) -> tuple[str, ...]:
        """The environments that count as production."""
        return tuple(name for name, one in self.environments.items() if one.production)

    @property
    def service(self) -> str:
        """Name of what is migrated: the runbook's id, and its parameter ``service`` where it has one."""
        return "-".join(filter(None, (self.id, self.values.get("service", ""))))

    def step(self, id: str) -> Step:  # noqa: A002 - the field's name
        """Return the step of that id; raises KeyError."""
        return self._by_id[id]

    def with_each_step(self, change: Callable[[Step], Step]) -> Self:
        """Return the runbook with every step changed."""
        phases = (one.model_copy(update={"steps": tuple(map(change, one.steps))}) for one in self.phases)
        return self.model_copy(update={"phases": tuple(phases)})

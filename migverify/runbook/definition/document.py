"""The shape of a runbook file, as pydantic models: the only place that knows it.

The JSON schema and the table of keys in docs/runbooks.md are made from these models. Nothing here reaches the rest of
the room: ``load`` turns a checked document into the frozen dataclasses of ``model``.
"""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from migverify.config.fields import Strict
from migverify.runbook.definition.fields import Bound, Duration, Id, Moment, Names, Scalar, StepId, Text
from migverify.runbook.definition.parameters import ParameterPart
from migverify.runbook.model import CASE_PARTS

RunKindName = Literal["dry", "rehearsal", "live", "rollback"]
TITLE = "migverify runbook"


class EnvironmentPart(Strict):
    """One environment that the runbook may be run in."""

    production: bool = Field(default=False, description="true: what runs here first needs a twin elsewhere.")


class PersonPart(Strict):
    """One who acts."""

    aliases: Names = Field(default_factory=list, description="Other names of the same person (login, chat name).")
    contact: str = Field(default="", description="How to reach them.")
    ssh_key: str = Field(default="", description="Public key line, for signed approvals.")


class RolePart(Strict):
    """A part to play."""

    person: Text = Field(description="Who plays it, by name: a person, not a team.")
    backup: Text | None = Field(default=None, description="Who steps in.")
    only: list[RunKindName] = Field(default_factory=list, description="Kinds of runs that have this role; none: all.")


class DrCasesPart(Strict):
    """Disaster recovery cases that must have passed."""

    required: Names = Field(default_factory=list, description="Ids of cases, or a priority: `p0`, `p1`, `p2`.")
    max_age: Duration = Field(default=30 * 86_400.0, description="How old the pass of a case may be.")


class ReadinessPart(Strict):
    """What journals of drills must show before a live run."""

    drills_min: int = Field(default=4, ge=0, description="How many drills.")
    clean_last: int = Field(default=2, ge=0, description="How many of the last ones without error.")
    same_runbook: bool = Field(default=True, description="They ran this very runbook.")
    same_schema: bool = Field(default=True, description="They ran on this very schema fingerprint.")
    full_cast_last: bool = Field(default=True, description="Everyone acted in the last one.")
    fresh_eyes_one: bool = Field(default=False, description="One was done by people new to it.")
    rollback_drills_min: int = Field(default=1, ge=0, description="How many drills of the rollback.")
    rollback_runbooks: Names = Field(
        default_factory=list, description="Ids of runbooks of their own that roll this one back: their runs count too."
    )
    dr_cases: DrCasesPart = Field(default_factory=lambda: DrCasesPart(), description="Disaster recovery cases.")


class PolicyPart(Strict):
    """Rules of people and of readiness."""

    reviewer_must_differ_from: Names = Field(
        default_factory=lambda: ["dri", "coordinator"], description="Whom a reviewer may not be: `dri`, or roles."
    )
    sign_off_ttl: Duration = Field(default=1200.0, description="After this time an approval lapses.")
    unattended_nag: Duration = Field(default=180.0, description="Whoever is waited for is reminded after this time.")
    signed_approvals: bool = Field(default=False, description="true: an approval needs a signature by SSH key.")
    readiness: ReadinessPart = Field(default_factory=lambda: ReadinessPart(), description="What drills must show.")


class WindowPart(Strict):
    """When the run may happen."""

    opens: Moment = Field(description="Date and time with its offset.")
    closes: Moment = Field(description="Date and time with its offset.")


class BudgetsPart(Strict):
    """Times that may be spent."""

    write_stop: Duration | None = Field(default=None, description="How long writes may stand; then it cancels itself.")
    decision_by: Duration | None = Field(default=None, description="Go or back by then, from the start: `T+110m`.")
    margin: Duration = Field(default=60.0, description="Kept free before the window closes.")


def _split(data: Any) -> Any:
    """``run: "a b"`` -> ``argv: [a, b]``: a command line without a shell."""
    if not isinstance(data, dict) or not isinstance(data.get("run"), str):
        return data
    if "argv" in data:
        raise ValueError("give `run` or `argv`, one of them")
    text = data["run"]
    plain = text.isascii() and text.isprintable() and not set(text) & set("'\"\\")
    try:
        words = text.split() if plain else shlex.split(text)  # the same words, in a thirtieth of the time
    except ValueError:
        raise ValueError("`run` has a quote that does not end") from None
    return {key: value for key, value in data.items() if key != "run"} | {"argv": words}


class CheckPart(Strict):
    """A question with bounds. Every further key is an argument of the action; `run` is split into `argv`."""

    model_config = ConfigDict(extra="allow")

    _words = model_validator(mode="before")(_split)

    check: Text = Field(description="Action that answers: `sql.value`, `prom.query`, ...")
    min: Bound | None = Field(default=None, description="The answer is at least this.")
    max: Bound | None = Field(default=None, description="The answer is at most this.")
    equals: Scalar | None = Field(default=None, description="The answer is this text.")
    for_: Duration = Field(default=0.0, alias="for", description="So long without a break.")


class DoPart(Strict):
    """An effect. Every further key is an argument of the action; `run` is split into `argv`, without a shell."""

    model_config = ConfigDict(extra="allow")

    action: str = Field(
        default="", description="Action that has it. Default: `command` with `run` or `argv`, `sql` with `sql`."
    )
    timeout: Duration = Field(default=60.0, description="It is ended after this time.")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: Any) -> Any:
        if isinstance(data, dict) and "action" not in data:
            for key, action in (("run", "command"), ("argv", "command"), ("sql", "sql")):
                if key in data:
                    return _split({"action": action} | data)
        return _split(data)

    @model_validator(mode="after")
    def _named(self) -> DoPart:
        if not self.action:
            raise ValueError("nothing says what is done: give `action`, `run`, `argv` or `sql`")
        return self


class UsedCheck(Strict):
    """A named check with other bounds."""

    model_config = ConfigDict(extra="allow")

    use: Text = Field(description="Its name under `checks`; every further key replaces one of it.")


def _as_written(form: Any) -> BeforeValidator:
    """Return what names the form that a value has in a file, before names are filled in."""
    return BeforeValidator(lambda value: value, json_schema_input_type=form)


Checks = Annotated[list[CheckPart], _as_written(str | list[str | UsedCheck | CheckPart])]


class TimePart(Strict):
    """Planned times of a step."""

    plan: Duration | None = Field(default=None, description="Planned. Default: the median of earlier drills.")
    max: Duration | None = Field(default=None, description="Over it the step has timed out.")
    min: Duration | None = Field(default=None, description="Below it the step is suspiciously short.")


class OnlyPart(Strict):
    """Where a step applies."""

    runs: list[RunKindName] = Field(default_factory=list, description="Kinds of runs; none: all.")
    env: Names = Field(default_factory=list, description="Environments; none: all.")


class ApprovePart(Strict):
    """Who must agree."""

    min: int = Field(default=1, ge=1, description="How many.")
    not_: Names = Field(default_factory=lambda: ["dri"], alias="not", description="Who does not count: roles, persons.")
    before: Literal["start", "done", "both"] = Field(default="done", description="Before what.")


class FailPart(Strict):
    """What follows when a step fails, with its bound."""

    retry: int | None = Field(default=None, description="Try so many times more.")
    backoff: Duration = Field(default=0.0, description="Wait so long before a retry.")
    goto: StepId | None = Field(default=None, description="Go on at this step.")
    at_most: int = Field(default=0, ge=0, description="With `goto`: how many times at most.")

    @model_validator(mode="after")
    def _one(self) -> FailPart:
        if (self.retry is None) == (self.goto is None):
            raise ValueError("give `retry` or `goto`, one of them")
        return self


def _fail(value: object) -> object:
    if isinstance(value, str):
        if value.startswith("goto:"):
            return {"goto": value.removeprefix("goto:").strip()}
        if found := re.fullmatch(r"retry\((\d+)(?:, *([0-9a-z.]+))?\)", value):
            return {"retry": int(found[1])} | ({"backoff": found[2]} if found[2] else {})
        if value not in ("stop", "rollback", "skip"):
            raise ValueError("this is stop, rollback, skip, retry(3, 10s) or goto:step")
    return value


class RollbackPart(Strict):
    """How a step is taken back."""

    do: Annotated[DoPart | None, _as_written(str | DoPart | None)] = Field(
        default=None, description="Effect that takes it back; or the step whose effect it is."
    )
    instruction: str = Field(default="", description="How to do it by hand.")
    verify: Checks = Field(default_factory=list, description="What proves that it is taken back.")
    plan: Duration | None = Field(default=None, description="Planned time.")
    valid_until: StepId | None = Field(default=None, description="From this step on it has expired.")
    data_loss: Literal["none", "bounded", "unknown"] = Field(default="unknown", description="What it loses.")
    measured_by: str = Field(default="", description="With `bounded`: what measures the loss.")


class AnnouncePart(Strict):
    """Which moments are announced, and where."""

    start: bool = Field(default=True, description="When it begins.")
    end: bool = Field(default=True, description="When it ends.")
    late: bool = Field(default=True, description="When it is over its planned time.")
    to: Names = Field(default_factory=list, description="Sinks; none: all.")


class StepPart(Strict):
    """One step."""

    id: Id = Field(description="Its name, once in the file.")
    kind: Literal[
        "manual", "command", "sql", "check", "gate", "wait", "announce", "traffic", "decision", "chaos"
    ] = Field(description="What it is.")  # fmt: skip
    title: str = Field(default="", description="One line. Not in the hash.")
    instruction: str = Field(
        default="",
        description="How to do it by hand: automation may fail. In the hash of `manual` and `decision` steps.",
    )
    dri: Text = Field(description="Who does it: a role or a person.")
    reviewer: Text | None = Field(default=None, description="Who signs it: another person.")
    approve: ApprovePart | None = Field(default=None, description="Further approvals.")
    needs: Annotated[
        list[StepId] | None,
        BeforeValidator(lambda v: [v] if isinstance(v, str) else v, json_schema_input_type=str | list[str]),
    ] = Field(
        default=None,
        description="Steps before it. Default: the step before in its phase. `[]`, and the first step of a phase: the"
        " last ones of the phase before, if there is one.",
    )
    time: TimePart = Field(default_factory=lambda: TimePart(), description="Planned times.")
    only: OnlyPart = Field(default_factory=lambda: OnlyPart(), description="Where it applies.")
    twin: StepId | None = Field(default=None, description="Step that rehearses this one where it does not run.")
    do: DoPart | None = Field(default=None, description="Its effect.")
    wait: Duration | None = Field(default=None, description="With kind `wait`: how long.")
    expect: Checks = Field(default_factory=list, description="Evidence that it worked.")
    attest: Text | None = Field(
        default=None,
        description="With kind `manual`: what its DRI states with `ack`, and its reviewer accepts, where no check can"
        " tell.",
    )
    repeat: Literal["yes", "no", "check"] = Field(
        default="no",
        description="May its effect happen twice, when nobody knows whether it did? `check`: ask `reconcile`.",
    )
    reconcile: Annotated[CheckPart | None, _as_written(str | CheckPart | None)] = Field(
        default=None, description="Asks whether the effect happened."
    )
    on_fail: Annotated[
        Literal["stop", "rollback", "skip"] | FailPart,
        BeforeValidator(_fail, json_schema_input_type=str | FailPart),
    ] = Field(
        default="stop",
        description="`stop`, `rollback`, `skip` (needs a waiver of two), `retry(3, 10s)`, `goto:step`, or"
        " `{goto: step, at_most: 2}`.",
    )
    rollback: RollbackPart | None = Field(default=None, description="How it is taken back.")
    announce: AnnouncePart = Field(default_factory=lambda: AnnouncePart(), description="Announcements.")
    point_of_no_return: Literal["soft", "hard"] | None = Field(
        default=None, description="`soft`: back with loss; `hard`: not back."
    )
    requires: list[StepId] = Field(default_factory=list, description="Steps that must be done, not waived, before it.")
    write_stop: Literal["begin", "end"] | None = Field(
        default=None, description="Here the write stop begins or ends; its budget runs in between."
    )


class DefaultsPart(Strict):
    """What steps have that say nothing else; not steps of kind `wait` and `announce`."""

    reviewer: Text | None = Field(default=None, description="Who signs.")
    time: TimePart = Field(default_factory=lambda: TimePart(), description="Planned times.")


class PhasePart(Strict):
    """Some steps with a name."""

    id: Id = Field(description="Its name.")
    title: str = Field(default="", description="One line.")
    steps: list[StepPart] = Field(min_length=1, description="Its steps, in their order.")


class GuardPart(CheckPart):
    """A check that is asked all the time. Every further key is an argument of the action."""

    id: Id = Field(description="Its name.")
    every: Duration = Field(default=30.0, description="Time between two askings.")
    armed_in: Names = Field(default_factory=lambda: ["*"], description="Phases, or `*` for all.")
    on_fail: Literal["hold", "rollback"] = Field(default="hold", description="What happens to the run.")
    on_no_data: Literal["hold"] = Field(default="hold", description="No data never passes.")


class SinkPart(Strict):
    """Where announcements go. Every further key is an argument; a secret is the name of a variable (`url_env`)."""

    model_config = ConfigDict(extra="allow")

    kind: Literal["stdout", "file", "webhook", "command"] = Field(description="What it is.")


class CasePart(Strict):
    """A disaster recovery case."""

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


class RunbookDocument(Strict):
    """A runbook."""

    model_config = ConfigDict(json_schema_extra=_with_template)

    extends: str | None = Field(
        default=None, description="Template, relative to this file: what is said here is merged into it."
    )
    version: Literal["runbook/v1"] = Field(description="`runbook/v1`.")
    id: Id = Field(description="Its name; drills are counted by it.")
    title: Text = Field(description="One line.")
    kind: Literal["rehearsal", "cutover", "rollback", "traffic", "load", "dr-case"] = Field(
        description="What it is for."
    )
    parameters: dict[Id, ParameterPart] = Field(default_factory=dict, description="Parameters, written `{{name}}`.")
    environments: dict[Id, EnvironmentPart] = Field(min_length=1, description="Where it may run.")
    people: dict[Text, PersonPart] = Field(min_length=1, description="Who acts, by name.")
    roles: dict[Id, RolePart] = Field(min_length=1, description="Parts to play; `coordinator` calls every step.")
    policy: PolicyPart = Field(default_factory=lambda: PolicyPart(), description="Rules of people and of readiness.")
    window: WindowPart | None = Field(default=None, description="When the run may happen.")
    budgets: BudgetsPart = Field(default_factory=lambda: BudgetsPart(), description="Times that may be spent.")
    checks: dict[Id, Any] = Field(
        default_factory=dict,
        description="Named checks: one, a list, or another name. A name may be put where a check belongs.",
    )
    defaults: DefaultsPart = Field(
        default_factory=lambda: DefaultsPart(), description="For steps that say nothing else."
    )
    guards: list[GuardPart] = Field(default_factory=list, description="Checks that are asked all the time.")
    sinks: dict[Id, SinkPart] = Field(default_factory=dict, description="Where announcements go.")
    rollback_when: Checks = Field(default_factory=list, description="Rules that call for a rollback.")
    case: CasePart | None = Field(default=None, description="With kind `dr-case`: what makes it one.")
    phases: list[PhasePart] = Field(min_length=1, description="Phases, in their order.")


class ParametersDocument(Strict):
    """The one section that is read before the others are filled in."""

    parameters: dict[Id, ParameterPart] = Field(default_factory=dict, description="Parameters.")

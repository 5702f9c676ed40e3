"""What steps, checks and guards can do: a registry of named actions. Other modules register theirs.

An action receives its arguments and a context, and answers with a value, a text and evidence. It never says "good": a
check's bounds do, in ``judge``. What is missing, empty, NaN or not read in time has no value, and is inconclusive.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from migverify.errors import MigverifyError, UsageError
from migverify.model import Endpoint
from migverify.secrets import scrub

if TYPE_CHECKING:
    from migverify.runbook.model import Check

__all__ = [
    "Action", "ActionKind", "ActionResult", "Argument", "Bounds", "CheckOutcome", "Context", "Outcome", "Registry",
    "ask", "judge",
]  # fmt: skip


class ActionKind(StrEnum):
    """Whether an action changes something. A check may be asked at any time, again, and in a dry run."""

    EFFECT = "effect"
    CHECK = "check"


class Outcome(StrEnum):
    """How an action ended. Only OK has a value that counts; UNKNOWN: an effect may have happened, or still go on."""

    OK = "ok"
    UNKNOWN = "unknown"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    NO_DATA = "no data"
    CANCELED = "canceled"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: ``kind`` is ``text``, ``number``, ``flag``, ``list`` (of texts) or ``map`` (of texts)."""

    name: str
    kind: str
    about: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class ActionResult:
    """What an action answers.

    Parameters
    ----------
    value
        A number, a text or a flag to hold against bounds; None: none.
    text
        One line for a reader. ``evidence`` is JSON; secrets are taken out before anything is kept.
    """

    outcome: Outcome
    text: str
    value: float | str | bool | None = None
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Context:
    """What an action may know.

    Parameters
    ----------
    timeout
        Seconds until it has to be back.
    canceled
        Set when nobody waits for it any more: end, and say CANCELED.
    handle
        To be inherited by programs (``pass_fds``): they hold the effect's process lock. None for checks.
    config
        Path of ``migverify.yaml``, for actions that need an endpoint.
    mark
        What the programs of an effect have in their environment, and its statements in a comment; checks have none.
    record
        Where an effect writes down what it starts (``process_lock``).
    """

    run: str
    step: str
    attempt: int
    epoch: int
    timeout: float
    canceled: threading.Event
    folder: Path | None = None
    config: Path | None = None
    handle: int | None = None
    mark: str = ""
    record: Path | None = None


Function = Callable[[Mapping[str, Any], Context], ActionResult]


class Bounds(NamedTuple):
    """What an answer has to be where a check does not say it."""

    minimum: float | None = None
    maximum: float | None = None
    equals: str | None = None


@dataclass(frozen=True, slots=True)
class Action:
    """A named action. ``default`` are the bounds of a check that states none; without, bounds must be stated.

    ``account`` of an effect that sends statements says where: an endpoint with its user, and the password.
    """

    name: str
    kind: ActionKind
    about: str
    arguments: tuple[Argument, ...]
    function: Function
    default: Bounds | None = None
    account: Callable[[Mapping[str, Any], Context], tuple[Endpoint, str | None]] | None = None

    def problems(self, arguments: Mapping[str, Any]) -> list[str]:
        """Return what is wrong with arguments: missing, unknown, of another kind."""
        known = {one.name: one for one in self.arguments}
        found = [
            f"{self.name}: {name} is missing" for name, one in known.items() if one.required and name not in arguments
        ]
        for name, value in arguments.items():
            if name not in known:
                found.append(f"{self.name}: there is no argument {name}; it has {', '.join(known) or 'none'}")
            elif not _FITS[known[name].kind](value):
                found.append(f"{self.name}: {name} has to be a {known[name].kind}")
        return found


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_FITS: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "number": _number,
    "flag": lambda value: isinstance(value, bool),
    "list": lambda value: isinstance(value, list | tuple) and all(isinstance(one, str) for one in value),
    "map": lambda value: isinstance(value, dict) and all(isinstance(one, str) for one in (*value, *value.values())),
}


class Registry:
    """Actions by name."""

    def __init__(self, actions: Iterable[Action] = ()) -> None:
        self._actions: dict[str, Action] = {}
        for action in actions:
            self.register(action)

    def register(self, action: Action) -> None:
        """Add an action.

        Raises
        ------
        UsageError
            the name is taken.
        """
        if action.name in self._actions:
            raise UsageError(f"there are two actions named {action.name}")
        self._actions[action.name] = action

    def by_name(self) -> dict[str, Action]:
        """Return all actions, as ``lint`` wants them."""
        return dict(self._actions)

    def __contains__(self, name: object) -> bool:
        return name in self._actions

    def __iter__(self) -> Any:
        return iter(self._actions.values())

    def find(self, name: str) -> Action:
        """Return the action of that name.

        Raises
        ------
        UsageError
            there is none.
        """
        if name not in self._actions:
            raise UsageError(f"no action is named {name}", hint=f"Known: {', '.join(sorted(self._actions))}.")
        return self._actions[name]

    def run(self, name: str, arguments: Mapping[str, Any], context: Context) -> ActionResult:
        """Run an action; every error in it is an outcome, never an exception."""
        try:
            action = self.find(name)
            problems = action.problems(arguments)
            if problems:
                return ActionResult(Outcome.FAILED, "; ".join(problems))
            result = action.function(arguments, context)
        except MigverifyError as error:
            return ActionResult(Outcome.FAILED, scrub(error.message))
        except Exception as error:  # noqa: BLE001 - a fault in an action must not end the run
            return ActionResult(Outcome.FAILED, scrub(f"{type(error).__name__}: {error}"))
        return _clean(result)


def _clean(result: ActionResult) -> ActionResult:
    value, text, evidence = result.value, scrub(result.text), _json_of(result.evidence)
    if isinstance(value, float) and not math.isfinite(value):
        return ActionResult(Outcome.NO_DATA, f"{text} ({value} is no number)", None, evidence)
    return ActionResult(result.outcome, text, scrub(value) if isinstance(value, str) else value, evidence)


def _json_of(evidence: dict[str, Any]) -> dict[str, Any]:
    """Return evidence that a journal can keep: what was done has to be written down, also evidence of unusual types."""
    try:
        json.dumps(evidence, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        return {"problem": scrub(f"the evidence has no JSON: {error}"), "text": scrub(repr(evidence)[:2000])}
    return evidence


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """A check's answer: ``state`` is ``pass``, ``fail`` or ``inconclusive``."""

    action: str
    state: str
    text: str
    value: float | str | bool | None = None
    evidence: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return it as the journal holds it."""
        return {"action": self.action, "state": self.state, "text": self.text, "value": self.value,
                "evidence": self.evidence}  # fmt: skip


def ask(registry: Registry, check: Check, context: Context) -> CheckOutcome:
    """Ask a check once, and judge it; ``for_seconds`` is the caller's to watch.

    An action that is an effect is not asked: a check changes nothing.
    """
    if check.action in registry and registry.find(check.action).kind is not ActionKind.CHECK:
        return CheckOutcome(check.action, "inconclusive", f"{check.action} is an effect, and no check")
    result = registry.run(check.action, check.arguments, context)
    default = registry.find(check.action).default if check.action in registry else None
    return judge(check, result, default)


def judge(check: Check, result: ActionResult, default: Bounds | None = None) -> CheckOutcome:
    """Hold a result against the bounds of a check, or else against the action's own.

    Only a value that meets every bound passes. No value, no bound at all, a number against a text: inconclusive.
    """
    bounds = default if default is not None and _unbounded(check) else check
    state, why = _state(bounds, result)
    text = f"{result.text}{f' - {why}' if why else ''}"
    return CheckOutcome(check.action, state, text, result.value, result.evidence)


def _unbounded(check: Check | Bounds) -> bool:
    return check.minimum is None and check.maximum is None and check.equals is None


def _state(check: Check | Bounds, result: ActionResult) -> tuple[str, str]:
    value = result.value
    if result.outcome is not Outcome.OK or value is None:
        return "inconclusive", "" if result.outcome is not Outcome.OK else "no value"
    if _unbounded(check):
        if isinstance(value, bool):
            return ("pass", "") if value else ("fail", "")
        return "inconclusive", "the check has no bounds"
    if check.equals is not None:
        shown = str(value).lower() if isinstance(value, bool) else _as_text(value)
        if shown != check.equals:
            return "fail", f"{shown!r} is not {check.equals!r}"
    if check.minimum is None and check.maximum is None:
        return "pass", ""
    number = _as_number(value)
    if number is None or not all(math.isfinite(one) for one in (check.minimum, check.maximum) if one is not None):
        return "inconclusive", f"{value!r} cannot be compared with a number"
    if check.minimum is not None and number < check.minimum:
        return "fail", f"{number:g} is below {check.minimum:g}"
    if check.maximum is not None and number > check.maximum:
        return "fail", f"{number:g} is above {check.maximum:g}"
    return "pass", ""


def _as_text(value: float | str) -> str:
    return f"{value:g}" if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else str(value)


def _as_number(value: float | str | bool) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None

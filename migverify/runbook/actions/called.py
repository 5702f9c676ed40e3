"""Commands of migverify as checks of a runbook: the same program, the same verdict, the same exit code.

A road is asked by its own command in a process of its own: one code path for people and runbooks, and a time limit that
really ends what takes too long. What counts is a verdict that the JSON and the exit code say alike.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from migverify.codec import parse_json
from migverify.runbook.actions.action import Action, ActionKind, ActionResult, Argument, Context, Outcome
from migverify.runbook.actions.builtin import run_program
from migverify.runbook.model import Check

__all__ = ["MATCH", "STORE", "TIMEOUT", "Called", "Road", "call", "road_action"]

JSON_BYTES = 64 << 20
"""Of what a command prints as JSON; a longer one cannot be read, and is no data."""
_REASONS = 12
_VERDICTS = {0: "MATCH", 1: "MISMATCH"}
_STATES = {"pass": "MATCH", "warn": "MATCH", "fail": "MISMATCH"}
MATCH = Check("", equals="MATCH")
TIMEOUT = Argument("timeout", "number", "Seconds until the answer has to be there.")
STORE = Argument("store", "text", "Result store; default: the configuration's.")


@dataclass(frozen=True, slots=True)
class Called:
    """What a command answered. ``document`` is the last JSON value that it printed, None where there is none."""

    code: int | None
    why: Outcome
    document: Any
    words: str
    facts: dict[str, Any] = field(default_factory=dict)


def call(arguments: Sequence[str], context: Context) -> Called:
    """Run a command of migverify with ``--json`` and the context's configuration.

    Raises
    ------
    UsageError
        it cannot be started.
    """
    argv = [sys.executable, "-m", "migverify", *arguments, "--json"]
    if context.config is not None:
        argv += ["--config", str(context.config)]
    begun = time.time()
    done = run_program(argv, context, kept=JSON_BYTES, own=True)
    whole = done.facts["stdout_bytes"] <= JSON_BYTES
    facts = {"command": ["migverify", *argv[3:]], "exit": done.code, "seconds": done.facts["seconds"],
             "local_time": begun}  # fmt: skip
    words = " ".join(line.strip() for line in done.errors.strip().splitlines()[-3:])[-400:]
    return Called(done.code, done.why, _document(done.output) if whole else None, words, facts)


def _document(output: str) -> Any:
    """Return the last JSON value of an output: the whole of it, or its last line."""
    for text in (output, output.strip().rpartition("\n")[2]):
        try:
            return parse_json(text)
        except ValueError:
            continue
    return None


Reading = Callable[[Any], tuple[str, list[str], dict[str, Any]]]
"""Document -> verdict in words of the command, reasons, evidence; raises KeyError or TypeError for another one."""


@dataclass(frozen=True, slots=True)
class Road:
    """A command as a check: its words, its options by argument, and how its JSON is read.

    ``options`` are pairs of argument and option; a flag's option stands alone, a list's is repeated. ``before`` are
    arguments that stand without an option.
    """

    name: str
    about: str
    words: tuple[str, ...]
    arguments: tuple[Argument, ...]
    options: tuple[tuple[str, str], ...]
    read: Reading
    before: tuple[str, ...] = ()
    always: tuple[str, ...] = ()


def command_of(road: Road, arguments: Mapping[str, Any]) -> list[str]:
    """Return the command of a road with its options."""
    words = [*road.words, *(str(arguments[name]) for name in road.before if name in arguments), *road.always]
    for name, option in road.options:
        value = arguments.get(name)
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
        else:
            for one in value if isinstance(value, list | tuple) else [value]:
                words += [option, f"{one:g}" if isinstance(one, float) else str(one)]
    return words


def _asked(road: Road, arguments: Mapping[str, Any], context: Context) -> ActionResult:
    done = call(command_of(road, arguments), context)
    shown = " ".join(road.words)
    if done.code is None:
        return ActionResult(done.why, f"{shown}: {done.why.value}", None, done.facts)
    verdict = _VERDICTS.get(done.code)
    try:
        said, reasons, more = road.read(done.document)
    except (KeyError, TypeError, AttributeError, ValueError):
        return ActionResult(Outcome.NO_DATA, f"{shown}: exit code {done.code}, and no answer: {done.words}", None,
                            done.facts)  # fmt: skip
    facts = {**done.facts, **more, "reasons": reasons[:_REASONS], "reasons_in_all": len(reasons)}
    why = f": {'; '.join(reasons[:3])}"[:400] if reasons else ""
    if verdict is None or _STATES.get(said, said) != verdict:
        return ActionResult(Outcome.NO_DATA, f"{shown}: {said or 'no verdict'}, exit code {done.code}{why}", None,
                            facts)  # fmt: skip
    return ActionResult(Outcome.OK, f"{verdict}{why}", verdict, facts)


def road_action(road: Road) -> Action:
    """Return the action of a road: a check whose value is MATCH or MISMATCH; INCONCLUSIVE has no value."""

    def ask(arguments: Mapping[str, Any], context: Context) -> ActionResult:
        return _asked(road, arguments, context)

    return Action(road.name, ActionKind.CHECK, road.about, (*road.arguments, TIMEOUT), ask, MATCH)

"""Parameters: ``{{name}}`` in a runbook becomes a value, so that one file serves many services.

A value that is all of a scalar keeps its type (``max: "{{lag}}"`` is a number); inside a text it is put in as text.
Values are never read again: one that holds ``{{`` is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from migverify.config.fields import Strict
from migverify.config.yaml_text import Steps
from migverify.runbook.definition.fields import DURATION, Id, Scalar, parse_moment

PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_-]*)\s*\}\}")
COMMAND_KEYS = ("run", "sql")
"""Keys whose text something else reads as a language: a free text is not put in there."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]*")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Unfit:
    """Something wrong with a parameter: ``rule`` of ``lint``, where, what, what to do."""

    rule: str
    steps: Steps
    text: str
    hint: str


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("a name holds letters, digits, _ - . : / and begins with a letter, a digit or _")
    return text


def _text(text: str) -> str:
    if any(ord(letter) < 32 for letter in text):
        raise ValueError("a text holds no control characters and is one line")
    return text


def _integer(text: str) -> int:
    if not re.fullmatch(r"[-+]?[0-9]{1,18}", text):
        raise ValueError("this is a whole number, for example 42")
    return int(text)


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise ValueError("this is a number, for example 0.5")
    return float(text)


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("this is true or false")
    return text == "true"


def _duration(text: str) -> str:
    found = DURATION.fullmatch(text)
    if not text or found is None or found[1]:
        raise ValueError("this is a duration, for example 30s, 5m or 1h30m")
    return text


def _moment(text: str) -> str:
    parse_moment(text)
    return text


_PARSERS: dict[str, Callable[[str], Any]] = {
    "name": _name, "text": _text, "integer": _integer, "number": _number, "boolean": _boolean, "duration": _duration,
    "moment": _moment,
}  # fmt: skip
TYPES = tuple(_PARSERS)


class ParameterPart(Strict):
    """One parameter, written `{{name}}` in the file."""

    type: Literal[TYPES] = Field(  # type: ignore[valid-type]
        default="name",
        description="`name` (letters, digits, `_ - . : /`), `text`, `integer`, `number`, `boolean`, `duration` or"
        " `moment`. In `run` and `sql` a `text` is refused: it could end the command and begin another.",
    )
    default: Scalar | None = Field(default=None, description="Value where none is given. Without one it is required.")
    one_of: list[Scalar] | None = Field(default=None, min_length=1, description="The only values it may have.")
    per_environment: bool = Field(
        default=False,
        description="true: its value differs by environment, so it is not part of the hash that drills are counted by.",
    )
    description: str = Field(default="", description="What it is, for who gives it.")


class ParametersDocument(Strict):
    """The one section that is read before the others are filled in."""

    parameters: dict[Id, ParameterPart] = Field(default_factory=dict, description="Parameters.")


def resolve(
    declared: Mapping[str, ParameterPart], given: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str], list[Unfit]]:
    """Return typed values, their texts, and all that is wrong with what is given and declared."""
    values: dict[str, Any] = {}
    texts: dict[str, str] = {}
    unfit = []
    for name in given:
        if name not in declared:
            known = ", ".join(declared) or "none"
            unfit.append(
                Unfit("parameter-unknown", (), f"--set {name}: the runbook has no such parameter", f"It has: {known}.")
            )
    for name, parameter in declared.items():
        where: Steps = ("parameters", name)
        text = given.get(name, parameter.default)
        if text is None:
            hint = f"Give it: --set {name}=VALUE ({parameter.type})."
            unfit.append(Unfit("parameter-missing", where, f"the parameter {name} has no default and no value", hint))
            continue
        problem = _problem(parameter, text)
        if problem:
            unfit.append(Unfit("parameter-unfit", where, f"the value of {name} does not fit: {problem}", ""))
            continue
        values[name], texts[name] = _PARSERS[parameter.type](text), text
    return values, texts, unfit


def _problem(parameter: ParameterPart, text: str) -> str:
    if "{{" in text:
        return "it holds {{, and values are not filled in again"
    if parameter.one_of and text not in parameter.one_of:
        return f"it is one of {', '.join(parameter.one_of)}"
    try:
        _PARSERS[parameter.type](text)
    except ValueError as error:
        return str(error)
    return ""


def fill(
    data: Any, values: Mapping[str, Any], texts: Mapping[str, str], keep: frozenset[str], steps: Steps = ()
) -> tuple[Any, bool]:
    """Put values in the place of placeholders; those of ``keep``, and unknown ones, stay as they are.

    Returns
    -------
    tuple
        the data, and whether anything was put in (the same object comes back where nothing was).
    """
    if isinstance(data, str):
        if "{{" not in data:
            return data, False
        whole = PLACEHOLDER.fullmatch(data.strip())
        if whole and whole[1] in values and whole[1] not in keep:
            return values[whole[1]], True
        filled = PLACEHOLDER.sub(lambda f: texts[f[1]] if f[1] in texts and f[1] not in keep else f[0], data)
        return filled, filled != data
    if isinstance(data, dict):
        pairs = {key: fill(value, values, texts, keep, (*steps, key)) for key, value in data.items()}
        changed = any(one[1] for one in pairs.values())
        return ({key: one[0] for key, one in pairs.items()} if changed else data), changed
    if isinstance(data, list):
        items = [fill(value, values, texts, keep, (*steps, number)) for number, value in enumerate(data)]
        changed = any(one[1] for one in items)
        return ([one[0] for one in items] if changed else data), changed
    return data, False


def uses(data: Any, steps: Steps = ()) -> list[tuple[Steps, str, str]]:
    """Every placeholder of the data: where it is, its name, and the key whose text it is in."""
    if isinstance(data, str):
        key = next((str(step) for step in reversed(steps) if isinstance(step, str)), "")
        return [(steps, name, key) for name in PLACEHOLDER.findall(data)] if "{{" in data else []
    found: list[tuple[Steps, str, str]] = []
    if isinstance(data, dict):
        for key, value in data.items():
            if "{{" in key:
                found += [((*steps, key), name, "") for name in PLACEHOLDER.findall(key)]
            if isinstance(value, dict | list) or (isinstance(value, str) and "{{" in value):
                found += uses(value, (*steps, key))
    elif isinstance(data, list):
        for number, value in enumerate(data):
            if isinstance(value, dict | list) or (isinstance(value, str) and "{{" in value):
                found += uses(value, (*steps, number))
    return found

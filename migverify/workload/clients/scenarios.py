"""Scenarios are JSON files: one behavior each, checked on loading so that a typing error is told at its place."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from migverify.errors import UsageError
from migverify.workload.clients.drivers import drivers, pools
from migverify.workload.clients.model import Kind, Scenario, Variant

# Action -> fields it must have. The two harnesses know these and no others.
ACTIONS: dict[str, frozenset[str]] = {
    name: frozenset(required)
    for name, required in {
        "open": (), "close": (), "sql": ("sql",), "texts": ("texts",), "prepare": ("sql", "as"), "run": ("of",),
        "prepared": ("sql",), "stream": ("sql",), "columns": ("sql",), "getters": ("sql", "getters"),
        "updatable": ("sql", "column", "value"), "set": ("what", "value"), "state": (), "commit": (), "rollback": (),
        "savepoint": ("as",), "rollback_to": ("of",), "release": ("of",), "valid": (), "identify": (), "pool": (),
        "pool_set": ("what", "value"), "background": ("as", "step"), "join": ("of", "within_ms"), "wait": ("ms",),
        "until": ("sql", "equals", "within_ms"), "ask": ("what",), "call": ("method",), "file": ("as", "text"),
    }.items()
}  # fmt: skip
PYTHON_ACTIONS = frozenset({
    "open", "close", "sql", "prepared", "stream", "columns", "set", "commit", "rollback", "valid", "identify",
    "background", "join", "wait", "until", "ask", "file", "call", "pool",
})  # fmt: skip
OPTIONAL = frozenset({
    "do", "on", "as", "name", "explains", "needs", "plain", "keys", "timeout", "fetch", "params", "batch", "repeat",
    "meanwhile", "stop_after", "unrun", "within_ms", "same_as", "args", "mode", "same", "unordered", "ignore",
})  # fmt: skip
_FIELDS = {
    "title", "kinds", "steps", "pools", "drivers", "setup", "cleanup", "variants", "explains", "why", "remedy", "needs",
    "seconds", "soak",
}  # fmt: skip


def packaged() -> list[Scenario]:
    """Return the scenarios of the package, by name."""
    folder = resources.files("migverify.workload.clients") / "scenarios"
    files = sorted((one for one in folder.iterdir() if one.name.endswith(".json")), key=lambda one: one.name)
    return [parse(one.read_text(encoding="utf-8"), one.name.removesuffix(".json"), one.name) for one in files]


def load(folder: Path | None) -> list[Scenario]:
    """Return the package's scenarios, with those of a folder added; one of the same name takes its place.

    Raises
    ------
    UsageError
        a file cannot be read or is no scenario: the message names file, step and field.
    """
    found = {one.name: one for one in packaged()}
    if folder is not None:
        files = sorted(folder.glob("*.json"))
        if not files:
            raise UsageError(f"{folder} holds no scenario", hint="A scenario is a file NAME.json; see docs/clients.md.")
        for path in files:
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"cannot read {path}: {error}") from error
            found[path.stem] = parse(text, path.stem, str(path))
    return list(found.values())


def chosen(scenarios: Iterable[Scenario], names: Iterable[str], *, soak: bool) -> list[Scenario]:
    """Return the named scenarios; without names all, those that take minutes only when asked for."""
    known = {one.name: one for one in scenarios}
    wanted = list(names)
    for name in wanted:
        if name not in known:
            raise UsageError(
                f"--scenario {name!r} is not known", hint="migverify workload clients --list shows the names."
            )
    if wanted:
        return [known[name] for name in dict.fromkeys(wanted)]
    return [one for one in known.values() if soak or not one.soak]


def parse(text: str, name: str, origin: str) -> Scenario:
    """Return the scenario of a file's text; raises UsageError."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{origin} is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise _wrong(origin, "the whole must be an object")
    _only(document, _FIELDS, origin)
    for field in ("title", "kinds", "steps"):
        if not document.get(field):
            raise _wrong(origin, f"{field} is missing")
    kinds = tuple(_kind(one, origin) for one in _texts(document, "kinds", origin))
    steps = document["steps"]
    if not isinstance(steps, list):
        raise _wrong(origin, "steps must be a list")
    for number, step in enumerate(steps, start=1):
        _check_step(step, f"{origin}, step {number}", kinds)
    names: dict[str, list[str]] = {"pools": list(pools()), "drivers": list(drivers())}
    for field, known in names.items():
        for one in _texts(document, field, origin):
            if one not in known:
                raise _wrong(origin, f"{field}: {one!r} is not known; known are {', '.join(known)}")
    variants = tuple(_variant(one, origin) for one in document.get("variants", [{"name": "default"}]))
    if len({one.name for one in variants}) != len(variants):
        raise _wrong(origin, "two variants bear one name")
    return Scenario(
        name, str(document["title"]), kinds, tuple(steps), _texts(document, "pools", origin),
        _texts(document, "drivers", origin), _texts(document, "setup", origin), _texts(document, "cleanup", origin),
        variants, _texts(document, "explains", origin), str(document.get("why", "")), str(document.get("remedy", "")),
        _texts(document, "needs", origin), float(document.get("seconds", 60.0)), bool(document.get("soak", False)),
        origin,
    )  # fmt: skip


def _check_step(step: Any, where: str, kinds: tuple[Kind, ...]) -> None:
    if not isinstance(step, dict):
        raise _wrong(where, "a step must be an object")
    action = step.get("do")
    required = ACTIONS.get(str(action))
    if required is None:
        raise _wrong(where, f"do: {action!r} is not known; known are {', '.join(ACTIONS)}")
    if Kind.PYTHON in kinds and action not in PYTHON_ACTIONS:
        raise _wrong(where, f"do: {action!r} does not exist in Python; leave python out of kinds")
    for field in sorted(required - step.keys()):
        raise _wrong(where, f"{action} needs {field}")
    _only(step, OPTIONAL | required, where)
    if "step" in step:
        _check_step(step["step"], where, kinds)


def _variant(given: Any, origin: str) -> Variant:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise _wrong(origin, "a variant must be an object with a name")
    _only(given, {"name", "options", "pool_options", "remedy"}, f"{origin}, variant {given['name']}")
    options = given.get("options", {})
    known = {option for driver in drivers().values() for option in driver.options}
    for option in options:
        if option not in known:
            raise _wrong(origin, f"option {option!r} is not known to any driver; known are {', '.join(sorted(known))}")
    return Variant(
        given["name"], {k: str(v) for k, v in options.items()}, given.get("pool_options", {}), given.get("remedy", "")
    )


def _texts(document: Mapping[str, Any], field: str, origin: str) -> tuple[str, ...]:
    value = document.get(field, [])
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise _wrong(origin, f"{field} must be a list of texts")
    return tuple(value)


def _kind(text: str, origin: str) -> Kind:
    try:
        return Kind(text)
    except ValueError:
        raise _wrong(origin, f"kinds: {text!r} is none of {', '.join(Kind)}") from None


def _only(given: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    for field in given:
        if field not in set(known):
            raise _wrong(where, f"{field!r} is not known; known are {', '.join(sorted(known))}")


def _wrong(where: str, what: str) -> UsageError:
    return UsageError(f"scenario {where}: {what}", hint="docs/clients.md lists actions and fields.")

"""A runbook file -> the whole runbook: its template, its named checks and its defaults filled in, each with its place.

``extends`` names a template. What the file says is merged into it: mappings by key, ``phases`` and ``steps`` by id (a
new step says ``after`` which one it comes), everything else replaces; ``null`` removes. A text where a check belongs
is the name of one or more under ``checks``; a text where an effect belongs is the step whose effect it is.
``{{id}}`` is the id of the runbook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from migverify.config.problems import at, read_document
from migverify.config.yaml_text import Steps, YamlDocument, YamlPlace
from migverify.errors import ConfigError
from migverify.runbook.definition.hashing import text_sha
from migverify.runbook.definition.parameters import fill

_HINT = "Name another file."
_WHOLE = ("do", "reconcile")
"""Keys that a file replaces as a whole."""
_NO_DEFAULTS = ("wait", "announce")
"""Kinds of steps that have no reviewer, and times of their own."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file as it is to be understood, and the hash of its text and of its templates."""

    document: YamlDocument
    sha: str


@dataclass(frozen=True, slots=True)
class _Node:
    """A value with its place; mappings and lists hold nodes. ``key`` is the place of the key it is under."""

    value: Any
    place: YamlPlace | None
    key: YamlPlace | None = None

    def get(self, *way: str) -> Any:
        """Return the node at that way, or None."""
        node = self
        for name in way:
            if not isinstance(node.value, dict) or name not in node.value:
                return None
            node = node.value[name]
        return node

    def put(self, **changes: _Node | None) -> _Node:
        """Return a copy with other values of some keys; None removes one."""
        kept = {key: one for key, one in {**self.value, **changes}.items() if one is not None}
        return replace(self, value=kept)


def read_source(path: Path) -> Source:
    """Read a runbook file with its templates.

    Raises ConfigError: A file is missing, or is not YAML; a template, a check or a step that is named is not there.
    """
    text, document = _read(path, _HINT)
    top: dict[str, Any] = document.data  # type: ignore[assignment]  # _read refuses anything else
    if not {"extends", "checks", "defaults"} & top.keys():
        return Source(document, text_sha(text.encode()))
    texts = [text]
    node = _extended(path, _located(document, str(path)), texts, (path.resolve(),))
    node = _with_defaults(_Names(node, path).filled(node))
    node = node.put(checks=None)
    data = _plain(node)
    if isinstance(id_ := data.get("id"), str):
        data = fill(data, {"id": id_}, {"id": id_}, frozenset())[0]
    whole = YamlDocument(data)
    for steps, one in _walk(node, ()):
        if one.place is not None:
            whole.values[steps] = one.place
        if one.key is not None:
            whole.keys[steps] = one.key
    return Source(whole, text_sha("\0".join(texts).encode()))


def expanded_text(path: Path) -> str:
    """Return a runbook as one YAML file without a template, checks in full; raises as ``read_source``."""
    data: Any = read_source(path).document.data
    head = {key: data[key] for key in ("version", "id", "title", "kind") if key in data}
    kept = head | {key: value for key, value in data.items() if key not in ("extends", "checks", "defaults")}
    return yaml.safe_dump(kept, sort_keys=False, allow_unicode=True, width=118)


def _read(path: Path, hint: str) -> tuple[str, YamlDocument]:
    text, document = read_document(path, "runbook", hint, variables=False)
    if not isinstance(document.data, dict):
        raise ConfigError(f"{path}: this is no runbook", hint="A runbook begins with `version: runbook/v1`.")
    return text, document


def _located(document: YamlDocument, file: str) -> _Node:
    def node(value: Any, way: Steps) -> _Node:
        place, key = document.values.get(way), document.keys.get(way)
        if isinstance(value, dict):
            value = {name: node(one, (*way, name)) for name, one in value.items()}
        elif isinstance(value, list):
            value = [node(one, (*way, number)) for number, one in enumerate(value)]
        return _Node(value, place and place._replace(file=file), key and key._replace(file=file))

    return node(document.data, ())


def _plain(node: _Node) -> Any:
    if isinstance(node.value, dict):
        return {name: _plain(one) for name, one in node.value.items()}
    return [_plain(one) for one in node.value] if isinstance(node.value, list) else node.value


def _walk(node: _Node, way: Steps) -> Iterator[tuple[Steps, _Node]]:
    yield way, node
    if isinstance(node.value, dict):
        for name, one in node.value.items():
            yield from _walk(one, (*way, name))
    elif isinstance(node.value, list):
        for number, one in enumerate(node.value):
            yield from _walk(one, (*way, number))


def _refuse(path: Path, node: _Node, text: str, hint: str = "") -> ConfigError:
    return ConfigError(f"{at(path, node.key or node.place)}: {text}", hint=hint)


def _extended(path: Path, node: _Node, texts: list[str], above: tuple[Path, ...]) -> _Node:
    name = node.get("extends")
    if name is None:
        return node
    if not isinstance(name.value, str):
        raise _refuse(path, name, "extends: this takes the name of a file")
    file = path.parent / name.value
    if file.resolve() in above:
        raise _refuse(path, name, "extends: a template extends itself", "Name another template.")
    text, document = _read(file, f"{path} extends it. The name is relative to the folder of that file.")
    texts.append(text)
    base = _extended(file, _located(document, str(file)), texts, (*above, file.resolve()))
    parts = node.put(extends=None, phases=None, steps=None)
    merged = _merged(base, parts)
    return _phases_merged(path, merged, node.get("phases"), node.get("steps"))


def _merged(base: _Node, over: _Node) -> _Node:
    """Return the template's value with changes; a check or an effect is never a mixture of two."""
    mappings = isinstance(base.value, dict) and isinstance(over.value, dict)
    if not mappings or any("check" in one.value for one in (base, over)):
        return over
    result = dict(base.value)
    for name, one in over.value.items():
        if one.value is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result[name], one) if name in result and name not in _WHOLE else one
    return replace(over, value=result)


def _phases_merged(path: Path, node: _Node, phases: _Node | None, steps: _Node | None) -> _Node:
    """Merge a file's ``phases`` and ``steps``, mappings by id, into the lists of its template."""
    for part, key in ((phases, "phases"), (steps, "steps")):
        if part is not None and not isinstance(part.value, dict):
            raise _refuse(path, part, f"{key}: beside `extends` this is a mapping of ids to what is different")
    listed = node.get("phases")
    result = [] if listed is None else list(listed.value)
    for id_, change in (phases.value if phases is not None else {}).items():
        places = [number for number, one in enumerate(result) if _text(one, "id") == id_]
        if not places:
            raise _refuse(path, change, f"phases.{id_}: the template has no such phase")
        result[places[0]] = _merged(result[places[0]], change)
    for id_, change in (steps.value if steps is not None else {}).items():
        _put_step(path, result, id_, change)
    return node if listed is None else node.put(phases=replace(listed, value=result))


def _put_step(path: Path, phases: list[_Node], id_: str, change: _Node) -> None:
    after = _text(change, "after")
    for number, phase in enumerate(phases):
        steps = list(phase.value["steps"].value)
        ids = [_text(one, "id") for one in steps]
        if after and after in ids:
            new = _Node({"id": _Node(id_, change.key, change.key), **change.put(after=None).value}, change.place)
            steps.insert(ids.index(after) + 1, new)
        elif not after and id_ in ids and change.value is None:
            del steps[ids.index(id_)]
        elif not after and id_ in ids:
            steps[ids.index(id_)] = _merged(steps[ids.index(id_)], change)
        else:
            continue
        phases[number] = phase.put(steps=replace(phase.value["steps"], value=steps))
        return
    hint = "" if after else "A new step says `after: STEP`."
    raise _refuse(path, change, f"steps.{id_}: the template has no step {after or id_}", hint)


def _text(node: _Node, key: str) -> str:
    part = node.get(key)
    return part.value if part is not None and isinstance(part.value, str) else ""


class _Names:
    """The named checks of a runbook, and the effects of its steps."""

    def __init__(self, node: _Node, path: Path) -> None:
        named = node.get("checks")
        self.named: dict[str, _Node] = named.value if named is not None and isinstance(named.value, dict) else {}
        self.effects: dict[str, _Node] = {}
        if (phases := node.get("phases")) is not None:
            _each_step(phases, self._remember)
        self.path = path

    def filled(self, node: _Node) -> _Node:
        """Return the runbook with checks and effects in the place of their names."""
        changes: dict[str, _Node | None] = {}
        if (rules := node.get("rollback_when")) is not None:
            changes["rollback_when"] = self._list(rules)
        if (phases := node.get("phases")) is not None:
            changes["phases"] = _each_step(phases, self._step)
        return node.put(**changes)

    def _remember(self, step: _Node) -> _Node:
        if (effect := step.get("do")) is not None and isinstance(effect.value, dict):
            self.effects[_text(step, "id")] = effect
        return step

    def _step(self, step: _Node) -> _Node:
        changes: dict[str, _Node | None] = {}
        if (expect := step.get("expect")) is not None:
            changes["expect"] = self._list(expect)
        if (undo := step.get("rollback")) is not None and isinstance(undo.value, dict):
            changes["rollback"] = self._rollback(undo)
        if (probe := step.get("reconcile")) is not None and isinstance(probe.value, str):
            checks = self._named(probe, ())
            if len(checks) != 1:
                raise _refuse(self.path, probe, f"reconcile: {probe.value} is {len(checks)} checks; this takes one")
            changes["reconcile"] = replace(checks[0].put(**{"for": None}), key=probe.key)  # a probe asks once
        return step.put(**changes) if changes else step

    def _rollback(self, undo: _Node) -> _Node:
        if (verify := undo.get("verify")) is not None:
            undo = undo.put(verify=self._list(verify))
        if (effect := undo.get("do")) is not None and isinstance(effect.value, str):
            if effect.value not in self.effects:
                raise _refuse(self.path, effect, f"do: there is no step {effect.value!r} with an effect")
            undo = undo.put(do=replace(self.effects[effect.value], key=effect.key))
        return undo

    def _list(self, node: _Node, above: tuple[str, ...] = ()) -> _Node:
        if isinstance(node.value, str):
            return replace(node, value=self._named(node, above))
        if not isinstance(node.value, list):
            return node
        items: list[_Node] = []
        for one in node.value:
            items += self._item(one, above)
        return replace(node, value=items)

    def _item(self, one: _Node, above: tuple[str, ...]) -> list[_Node]:
        if isinstance(one.value, str):
            return self._named(one, above)
        if (name := one.get("use")) is None:
            return [one]
        over = one.put(use=None)
        return [replace(check.put(**over.value), place=one.place) for check in self._named(name, above)]

    def _named(self, name: _Node, above: tuple[str, ...]) -> list[_Node]:
        if not isinstance(name.value, str) or name.value not in self.named:
            known = ", ".join(self.named) or "none"
            raise _refuse(self.path, name, f"there is no check {name.value!r} under `checks`", f"It has: {known}.")
        if name.value in above:
            raise _refuse(self.path, name, f"the check {name.value} names itself")
        node = self.named[name.value]
        listed = node if isinstance(node.value, list | str) else replace(node, value=[node])
        checks: list[_Node] = self._list(listed, (*above, name.value)).value
        return checks


def _with_defaults(node: _Node) -> _Node:
    """Fill in ``defaults`` where a step has no reviewer or no times of its own."""
    defaults, phases = node.get("defaults"), node.get("phases")
    if defaults is None or phases is None or not isinstance(defaults.value, dict):
        return node
    return node.put(phases=_each_step(phases, lambda step: _defaulted(step, defaults)))


def _defaulted(step: _Node, defaults: _Node) -> _Node:
    if not isinstance(step.value, dict) or _text(step, "kind") in _NO_DEFAULTS:
        return step
    result = {**defaults.value, **step.value}
    if "time" in defaults.value and "time" in step.value:
        result["time"] = _merged(defaults.value["time"], step.value["time"])
    return replace(step, value=result)


def _each_step(phases: _Node, change: Callable[[_Node], _Node]) -> _Node:
    """Return the phases with every step changed; what is no list of steps stays, and is refused by its model."""
    result = []
    for phase in phases.value if isinstance(phases.value, list) else ():
        steps = phase.get("steps")
        if steps is not None and isinstance(steps.value, list):
            phase = phase.put(steps=replace(steps, value=[change(one) for one in steps.value]))
        result.append(phase)
    return replace(phases, value=result) if isinstance(phases.value, list) else phases

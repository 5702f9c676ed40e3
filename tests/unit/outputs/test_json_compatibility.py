"""Published schemas and exit codes may grow; nothing that a reader relies on goes while their version stays."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from migverify.errors import CONTRACT_VERSION, ExitCode
from migverify.model import Verdict
from migverify.outputs.published import made_schema
from migverify.outputs.registry import OUTPUTS, names

FROZEN = Path(__file__).parents[2] / "data" / "json_contract.json"
RAISE = "raise CONTRACT_VERSION in migverify/errors.py, say so in CHANGELOG.md and docs/json.md, and run with REGEN=1"
PAGE = Path(__file__).parents[3] / "docs" / "json.md"
Schema = dict[str, Any]


@cache
def contract() -> dict[str, Any]:
    """Return what is promised now: exit codes, schemas, and which command prints which."""
    commands = sorted({(name, one.flag, one.name) for one in OUTPUTS for name in one.commands})
    return {
        "version": CONTRACT_VERSION, "exit_codes": {one.name: int(one) for one in ExitCode},
        "verdicts": {one.value: int(one.exit_code) for one in Verdict},
        "commands": [list(one) for one in commands], "schemas": {name: made_schema(name) for name in names()},
    }  # fmt: skip


def broken(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return what a reader of before would no longer find."""
    found = [
        f"{part} {name}: {value} became {now[part].get(name)}"
        for part in ("exit_codes", "verdicts") for name, value in before[part].items() if now[part].get(name) != value
    ]  # fmt: skip
    found += [f"command {' '.join(one)} is gone" for one in before["commands"] if one not in now["commands"]]
    for name, schema in before["schemas"].items():
        later = now["schemas"].get(name)
        found += [f"schema {name} is gone"] if later is None else narrowed(schema, later, name)
    return found


def narrowed(before: Schema, now: Schema, place: str) -> list[str]:
    return sorted(set(_changes(before, now, place, before, now, frozenset())))


def _changes(
    before: Any, now: Any, place: str, old_root: Schema, new_root: Schema, seen: frozenset[str]
) -> Iterator[str]:
    """Yield what a reader of outputs may rely on and no longer can: keys, required ones, types, known values."""
    names = str(before.get("$ref", "")), str(now.get("$ref", ""))
    if f"{names}" in seen:
        return
    if any(names):
        seen |= {f"{names}"}
    before, now = _resolved(before, old_root), _resolved(now, new_root)
    if before == now and old_root.get("$defs") == new_root.get("$defs"):
        return
    old, new = list(_choices(before, old_root)), list(_choices(now, new_root))
    if len(old) > 1 or len(new) > 1:
        yield from _choice_changes(old, new, place, old_root, new_root, seen)
        return
    for word in ("type", "const", "format"):
        if before.get(word) != now.get(word) and (word in before or word == "type"):
            yield f"{place}: {word} {before.get(word, 'any')} became {now.get(word, 'any')}"
    if before.get("enum") != now.get("enum"):
        yield f"{place}: the values {before.get('enum', 'any')} became {now.get('enum', 'any')}"
    parts = now.get("properties", {})
    for key, part in before.get("properties", {}).items():
        if key not in parts:
            yield f"{place}.{key} is gone"
        else:
            yield from _changes(part, parts[key], f"{place}.{key}", old_root, new_root, seen)
    later = now.get("required", ())
    yield from (f"{place}.{key} may be absent now" for key in before.get("required", ()) if key not in later)
    for word in ("items", "additionalProperties"):
        if isinstance(before.get(word), dict):
            if not isinstance(now.get(word), dict):
                yield f"{place}: {word} are of any type now"
            else:
                yield from _changes(before[word], now[word], f"{place}[]", old_root, new_root, seen)


def _choice_changes(
    old: list[Schema], new: list[Schema], place: str, old_root: Schema, new_root: Schema, seen: frozenset[str]
) -> Iterator[str]:
    """Yield what changed of several choices: each one of now must be one of before, for a reader knows those alone."""
    for number, choice in enumerate(new):
        reasons = [
            list(_changes(one, choice, f"{place}|{number}", old_root, new_root, seen))
            for one in old if one.get("type") == choice.get("type")
        ]  # fmt: skip
        if not reasons:
            yield f"{place}: {choice.get('type', 'any')} is possible now"
        elif all(reasons):
            yield from min(reasons, key=len)


def _choices(schema: Schema, root: Schema) -> Iterator[Schema]:
    for one in schema.get("anyOf", (schema,)):
        found = _resolved(one, root)
        if "anyOf" in found and found is not schema:
            yield from _choices(found, root)
        else:
            yield found


def _resolved(schema: Schema, root: Schema) -> Schema:
    while "$ref" in schema:
        schema = root["$defs"][str(schema["$ref"]).rpartition("/")[2]]
    return schema


def frozen() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FROZEN.read_text(encoding="utf-8"))
    return found


def test_what_was_published_still_holds() -> None:
    now = contract()
    if os.environ.get("REGEN") == "1":
        before = frozen() if FROZEN.exists() else now
        assert before["version"] != now["version"] or not broken(before, now), RAISE
        FROZEN.write_text(json.dumps(now, separators=(",", ":"), ensure_ascii=False) + "\n", encoding="utf-8")
    before = frozen()
    assert before["version"] == now["version"], "run with REGEN=1: the frozen contract is that of another version"
    gone = broken(before, now)
    assert not gone, f"{RAISE}:\n" + "\n".join(gone)


def test_what_was_added_is_frozen_too() -> None:
    assert frozen() == contract(), "something was added: run with REGEN=1 and look at the change"


def test_a_removed_key_a_narrowed_type_another_value_and_another_exit_code_are_found() -> None:
    before = frozen()

    def found(edit: Any) -> list[str]:
        now = copy.deepcopy(before)
        edit(now)
        return broken(before, now)

    schemas = "schemas"
    assert found(lambda _: None) == []
    assert found(lambda now: now[schemas]["run"]["properties"].pop("seconds")) == ["run.seconds is gone"]
    assert found(lambda now: now[schemas]["run"]["required"].remove("verdict")) == ["run.verdict may be absent now"]
    assert found(lambda now: now[schemas]["run"]["$defs"]["Verdict"]["enum"].append("OTHER")) != []
    assert found(lambda now: now[schemas]["row-diff"]["properties"]["read_at"].update(type="string")) == [
        "row-diff.read_at: type number became string"
    ]
    assert found(lambda now: now[schemas].pop("status")) == ["schema status is gone"]
    assert found(lambda now: now["exit_codes"].update(MISMATCH=4)) == ["exit_codes MISMATCH: 1 became 4"]
    assert found(lambda now: now["commands"].remove(["tables verify", "", "run"])) == [
        "command tables verify  run is gone"
    ]
    column = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert found(lambda now: now[schemas]["row-diff"]["properties"].update(source_count=column)) == [
        "row-diff.source_count: null is possible now"
    ]


def test_an_added_key_and_an_added_output_break_nothing() -> None:
    before, now = frozen(), copy.deepcopy(frozen())
    now["schemas"]["run"]["properties"]["added"] = {"type": "string"}
    now["schemas"]["run"]["required"].append("added")
    now["schemas"]["added"] = {"type": "object"}
    now["commands"].append(["tables added", "", "added"])
    assert broken(before, now) == []


@pytest.mark.parametrize("code", ExitCode)
def test_the_page_has_every_exit_code(code: ExitCode) -> None:
    assert f"| {int(code)} | {code.name} |" in PAGE.read_text(encoding="utf-8")
    assert f"version {CONTRACT_VERSION}" in PAGE.read_text(encoding="utf-8")

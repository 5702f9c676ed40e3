"""A runbook with a template, named checks and defaults is the runbook that has all of it in one file."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from migverify.config.reference import json_schema
from migverify.errors import ConfigError
from migverify.runbook.definition.expand import expanded_text, read_source
from migverify.runbook.definition.load import load_runbook, read_runbook
from migverify.runbook.model import TITLE, Runbook

BASE = """version: runbook/v1
kind: rehearsal
environments: {lab: {}}
people: {alice: {}, bob: {}}
roles: {coordinator: {person: alice}, dba: {person: bob}}
checks:
  up: {check: command.exit, run: "ask {{id}} up", for: 5s}
  proof: [up, {check: command.exit, run: ask again}]
phases:
  - id: all
    title: All
    steps:
      - {id: begin, kind: command, dri: dba, reviewer: coordinator, do: {run: begin}, expect: up, reconcile: up}
      - {id: end, kind: check, dri: dba, reviewer: coordinator, time: {plan: 1m, max: 5m}, expect: proof}
"""
FILE = """extends: templates/base.yaml
id: one
title: One
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "base.yaml").write_text(BASE)
    return tmp_path


def write(folder: Path, text: str = "") -> Path:
    path = folder / "one.yaml"
    path.write_text(FILE + text)
    return path


def test_the_file_in_one_is_the_same_runbook(folder: Path) -> None:
    path = write(folder, "steps: {end: {time: {max: 9m}}}\n")
    book = load_runbook(path, {}, "lab")
    whole = folder / "whole.yaml"
    whole.write_text(expanded_text(path))
    assert load_runbook(whole, {}, "lab").sha == book.sha
    assert book.step("begin").expect[0].arguments == {"argv": ["ask", "one", "up"]}
    assert book.step("begin").expect[0].for_seconds == 5
    assert [one.arguments["argv"] for one in book.step("end").expect] == [["ask", "one", "up"], ["ask", "again"]]
    assert (book.step("end").times.plan, book.step("end").times.maximum) == (60, 540)


def test_a_probe_asks_once(folder: Path) -> None:
    probe = load_runbook(write(folder), {}, "lab").step("begin").reconcile
    assert probe is not None
    assert probe.for_seconds == 0


def test_changes_by_id(folder: Path) -> None:
    """A step is changed, put in and taken out; a check is replaced as a whole, and used with another bound."""
    text = """checks: {up: {check: sql.ok, endpoint: target, sql: SELECT 1}}
phases: {all: {title: Everything}}
steps:
  begin: {do: {run: other, timeout: 5s}, reconcile: null, repeat: yes, rollback: {do: begin, verify: up}}
  between: {after: begin, kind: check, dri: dba, reviewer: coordinator, expect: [{use: up, for: 7s}]}
  end: null
"""
    path = write(folder, text)
    book = load_runbook(path, {}, "lab")
    assert [one.id for one in book.steps] == ["begin", "between"]
    first, second = book.steps
    assert first.effect is not None
    assert first.effect.arguments == {"argv": ["other"]}
    assert first.reconcile is None
    assert first.rollback is not None
    assert first.rollback.effect is not None
    assert first.rollback.effect.arguments == {"argv": ["other"]}
    assert (second.expect[0].action, second.expect[0].for_seconds) == ("sql.ok", 7)
    data = read_source(path).document.data
    assert isinstance(data, dict)
    assert data["phases"][0]["title"] == "Everything"


def test_defaults(folder: Path) -> None:
    path = folder / "own.yaml"
    path.write_text(
        BASE.replace(
            "phases:", "id: own\ntitle: Own\ndefaults: {reviewer: coordinator, time: {plan: 2m, max: 3m}}\nphases:"
        )
        .replace("reviewer: coordinator, do", "do")
        .replace("reviewer: coordinator, time: {plan: 1m, max: 5m}", "time: {plan: 1m}")
        + "      - {id: rest, kind: wait, dri: dba, wait: 1s}\n"
    )
    begin, end, rest = load_runbook(path, {}, "lab").steps
    assert (begin.reviewer, begin.times.plan, begin.times.maximum) == ("coordinator", 120, 180)
    assert (end.reviewer, end.times.plan, end.times.maximum) == ("coordinator", 60, 180)
    assert (rest.reviewer, rest.times.plan) == (None, None)


def test_a_finding_names_the_file_that_has_the_fault(folder: Path) -> None:
    base = folder / "templates" / "base.yaml"
    base.write_text(BASE.replace("kind: check", "kind: cheque"))
    path = write(folder, "steps: {begin: {dri: 5}}\n")
    places = {str(one.place) for one in read_runbook(path, {}, "lab").findings}
    assert places == {f"{base}:14", f"{path}:4"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("steps: {nope: {title: x}}\n", "one.yaml:4:9: steps.nope: the template has no step nope"),
        ("steps: {new: {after: nope}}\n", "the template has no step nope"),
        ("phases: {nope: {title: x}}\n", "phases.nope: the template has no such phase"),
        ("phases: []\n", "beside `extends` this is a mapping"),
        ("steps: {end: {expect: [nope]}}\n", "there is no check 'nope'"),
        ("checks: {up: proof}\n", "names itself"),
        ("steps: {begin: {reconcile: proof}}\n", "reconcile: proof is 2 checks"),
        ("steps: {begin: {rollback: {do: end}}}\n", "there is no step 'end' with an effect"),
    ],
)
def test_what_is_not_there_is_refused(folder: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_runbook(write(folder, text), {}, "lab")
    assert problem in str(caught.value)


def test_a_template_that_is_missing_or_extends_itself(folder: Path) -> None:
    path = write(folder)
    (folder / "templates" / "base.yaml").write_text("extends: ../one.yaml\n")
    with pytest.raises(ConfigError, match="extends itself"):
        read_runbook(path, {}, "lab")
    (folder / "templates" / "base.yaml").unlink()
    with pytest.raises(ConfigError, match=r"there is no runbook .*base\.yaml"):
        read_runbook(path, {}, "lab")


def test_an_edit_of_the_template_is_another_text(folder: Path) -> None:
    path = write(folder)
    before = load_runbook(path, {}, "lab")
    base = folder / "templates" / "base.yaml"
    base.write_text(BASE.replace("title: All", "title: Everything"))
    after = load_runbook(path, {}, "lab")
    assert after.sha == before.sha
    assert after.text_sha != before.text_sha


def test_the_schema_knows_both_forms(folder: Path) -> None:
    check = jsonschema.Draft202012Validator(json_schema(Runbook, TITLE))
    check.validate(yaml.safe_load(write(folder, "steps: {end: {time: {max: 9m}}}\n").read_text()))
    check.validate(yaml.safe_load(BASE + "id: own\ntitle: Own\n"))
    with pytest.raises(jsonschema.ValidationError):
        check.validate(yaml.safe_load(BASE))
    with pytest.raises(jsonschema.ValidationError):
        check.validate(yaml.safe_load(FILE.replace("id: one\n", "")))

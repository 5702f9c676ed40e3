"""Reading a runbook: its shape, places, parameters and hashes."""

from __future__ import annotations

import random
import re
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.config import yaml_text
from migverify.config.reference import json_schema, json_schema_text, known_keys, markdown
from migverify.config.yaml_text import YamlProblem, read_yaml
from migverify.errors import ConfigError, UsageError
from migverify.runbook.definition.fields import parse_duration
from migverify.runbook.definition.hashing import canonical_json, changed_scripts, runbook_sha, step_sha
from migverify.runbook.definition.load import load_runbook, read_runbook
from migverify.runbook.definition.parameters import ParameterPart, fill, resolve
from migverify.runbook.definition.plan import applies, network_of
from migverify.runbook.graph import graph_of
from migverify.runbook.kinds import OnFail, RunKind
from migverify.runbook.model import TITLE, Runbook
from tests.unit.runbook_small import STEPS, write_small

ROOT = Path(__file__).parents[3]
REHEARSAL = ROOT / "runbooks" / "rehearsal.yaml"
PAGE = ROOT / "docs" / "runbooks.md"

SMALL = """\
version: runbook/v1
id: small
title: A small one
kind: rehearsal
parameters:
  host: {per_environment: true, default: a}
  service: {default: pay}
  lag: {type: number, default: 5}
  fast: {type: boolean, default: true}
  most: {type: duration, default: 2m}
environments: {lab: {}, staging: {}}
people: {ann: {}, ben: {aliases: [b2]}}
roles: {coordinator: {person: ann}}
guards:
  - {id: lag, check: sql.value, max: "{{lag}}", flag: "{{fast}}", armed_in: [one]}
phases:
  - id: one
    steps:
      - {id: a, kind: check, dri: ann, reviewer: ben, expect: [{check: x, host: "{{host}}"}], time: {max: "{{most}}"}}
      - {id: b, kind: check, dri: ann, expect: [{check: x}], needs: []}
      - {id: c, kind: check, dri: ann, expect: [{check: "x-{{service}}-{{lag}}"}], needs: [a]}
  - id: two
    steps:
      - {id: d, kind: check, dri: ann, expect: [{check: x}]}
      - {id: e, kind: check, dri: ann, expect: [{check: x}], on_fail: {goto: a, at_most: 2}}
      - {id: f, kind: check, dri: ann, expect: [{check: x}], needs: step:d, on_fail: "retry(3, 10s)"}
      - {id: g, kind: check, dri: ann, expect: [{check: x}], needs: []}
"""


def load(tmp_path: Path, text: str = SMALL, environment: str = "lab", **given: str) -> Runbook:
    path = tmp_path / "small.yaml"
    path.write_text(text, encoding="utf-8")
    return load_runbook(path, given, environment)


def test_needs_are_complete_as_loaded(tmp_path: Path) -> None:
    needs = {step.id: step.needs for step in load(tmp_path).steps}
    assert needs == {
        "a": (), "b": ("a",), "c": ("a",), "d": ("b", "c"), "e": ("d",), "f": ("d",), "g": ("b", "c"),
    }  # fmt: skip


@pytest.mark.parametrize("kind", list(RunKind))
def test_the_plan_waits_for_what_the_run_waits_for(tmp_path: Path, kind: RunKind) -> None:
    for book in (load(tmp_path), load_runbook(REHEARSAL, {}, "staging")):
        run, plan = graph_of(book, kind), network_of(book.steps)
        for number, step in enumerate(book.steps):
            assert set(run.needs[step.id]) == {book.steps[n].id for n in plan.needs[number]}
            assert (step.id not in run.not_applicable) == applies(step, book.environment, kind)


def test_places_are_lines_of_the_file(tmp_path: Path) -> None:
    book = load(tmp_path)
    lines = SMALL.splitlines()
    assert all(step.place and f"id: {step.id}," in lines[step.place.line - 1] for step in book.steps)
    places = read_runbook(tmp_path / "small.yaml", {}, "lab").places
    assert "id: lag" in lines[places.at("guards", 0, "id").line - 1]
    assert "x-{{service}}" in lines[places.in_step(2, "expect", 0, "check").line - 1]


def test_parameters_are_typed(tmp_path: Path) -> None:
    book = load(tmp_path, lag="7.5", service="orders")
    assert book.guards[0].maximum == 7.5
    assert book.guards[0].arguments == {"flag": True}
    assert book.steps[0].times.maximum == 120
    assert book.steps[2].expect[0].action == "x-orders-7.5"
    assert book.values == {"host": "a", "service": "orders", "lag": "7.5", "fast": "true", "most": "2m"}


def test_failure_has_bounds(tmp_path: Path) -> None:
    steps = {step.id: step for step in load(tmp_path).steps}
    assert (steps["e"].on_fail.then, steps["e"].on_fail.goto, steps["e"].on_fail.times) == (OnFail.GOTO, "a", 2)
    assert (steps["f"].on_fail.then, steps["f"].on_fail.times, steps["f"].on_fail.backoff) == (OnFail.RETRY, 3, 10.0)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("id: small", "id: small\nid: other", "occurs twice"),
        ("kind: rehearsal", "kind: rehersal", "this takes one of"),
        ("title: A small one", "tilte: A small one", "Did you mean title?"),
        ("{max: \"{{most}}\"}", "{max: {{most}}}", 'is written in quotes: "{{name}}"'),
        ("host: {per_environment: true, default: a}", "host: {}", "--set host=VALUE"),
        ("{{service}}", "{{servcie}}", "{{servcie}} is no parameter"),
        ("most: {type: duration, default: 2m}", "most: {type: duration, default: soon}", "this is a duration"),
        ("id: a,", 'id: "a b",', "letters, digits"),
        ("people: {ann", "window: {opens: 2026-02-02T02:00, closes: 2026-02-02T03:00}\npeople: {ann", "no offset"),
        ("on_fail: {goto: a, at_most: 2}", "on_fail: {goto: a, retry: 2}", "one of them"),
        ("on_fail: {goto: a, at_most: 2}", "on_fail: again", "retry(3, 10s)"),
        ("armed_in: [one]", "armed_in: [one], on_no_data: pass", "this takes one of"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_clear_error(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in SMALL
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, SMALL.replace(old, new))
    assert words in str(caught.value)
    assert "small.yaml" in str(caught.value)


def test_an_environment_has_to_be_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no environment moon"):
        load(tmp_path, environment="moon")


@pytest.mark.parametrize("content", [b"", b"- a list", b"\xff\xfe", b"a: [", b"a: !!python/object:x {}"])
def test_what_is_no_runbook_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError):
        load_runbook(path, {}, "lab")
    with pytest.raises(ConfigError, match="there is no runbook"):
        load_runbook(tmp_path / "none.yaml", {}, "lab")


def test_the_schema_on_disk_is_current() -> None:
    shipped = resources.files("migverify.schemas").joinpath("runbook.schema.json").read_text(encoding="utf-8")
    assert shipped == json_schema_text(Runbook, TITLE), "write json_schema_text() to migverify/schemas"
    jsonschema.Draft202012Validator.check_schema(json_schema(Runbook, TITLE))


@pytest.mark.parametrize("text", [SMALL.replace('"{{lag}}"', "5").replace('"{{fast}}"', "true"), REHEARSAL.read_text()])
def test_examples_fit_the_schema(text: str) -> None:
    jsonschema.Draft202012Validator(json_schema(Runbook, TITLE)).validate(_plain(text))


def _plain(text: str) -> Any:
    data = read_yaml(text, variables=False).data
    assert isinstance(data, dict)
    return fill(data, {"lag": 5, "most": "2m"}, {"lag": "5", "most": "2m"}, frozenset())[0]


def test_every_key_is_described_and_in_the_page() -> None:
    assert [key.path for key in known_keys(Runbook) if not key.description] == []
    assert markdown(Runbook) in PAGE.read_text(encoding="utf-8"), "put markdown(Runbook) into the page"


@pytest.mark.parametrize(
    "path",
    [REHEARSAL, ROOT / "runbooks" / "dr" / "tikv-lost.yaml", ROOT / "docker-compose.yml"],
    ids=lambda path: path.stem,
)
def test_libyaml_and_pyyaml_read_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = path.read_text(encoding="utf-8") + "more: [~, yes, 0x1F, 1e-9, .inf, 'no', \"12:30\", 2026-01-31]\n"
    environment = dict.fromkeys(re.findall(r"\$\{(\w+)", text), "7")
    fast = read_yaml(text, environment)
    monkeypatch.setattr("migverify.config.yaml_text._FastLoader", yaml_text._Loader)
    slow = read_yaml(text, environment)
    assert (slow.data, slow.keys, slow.values) == (fast.data, fast.keys, fast.values)


@pytest.mark.parametrize("text", ["a: [", "a: 1\na: 2", "a: !x 1", "a: *b", "a: &a [*a]", "\ta: 1", "a: \x01"])
def test_libyaml_and_pyyaml_refuse_in_the_same_words(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = []
    for _ in range(2):
        with pytest.raises(YamlProblem) as caught:
            read_yaml(text, {})
        messages.append((caught.value.problem, caught.value.place, caught.value.hint))
        monkeypatch.setattr("migverify.config.yaml_text._FastLoader", yaml_text._Loader)
    assert messages[0] == messages[1]


# Hashes

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def shuffled(value: Any, order: random.Random) -> Any:
    if isinstance(value, dict):
        keys = list(value)
        order.shuffle(keys)
        return {key: shuffled(value[key], order) for key in keys}
    return [shuffled(one, order) for one in value] if isinstance(value, list) else value


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.text(max_size=5), values, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_keys_never_matters(part: dict[str, Any], order: random.Random) -> None:
    other = shuffled(part, order)
    assert canonical_json(part) == canonical_json(other)
    assert step_sha(part, "p", ["a", "b"]) == step_sha(other, "p", ["b", "a"])


def same(one: Any, other: Any) -> bool:
    """Equal as values of YAML: NaN is NaN, 1 is 1.0, true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, float) and one != one:
        return isinstance(other, float) and other != other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return (type(one) is type(other) and one == other) or (isinstance(one, int | float) and one == other)


@given(values, values)
def test_one_text_is_one_value(one: Any, other: Any) -> None:
    assert (canonical_json(one) == canonical_json(other)) == same(one, other)


@given(st.text(), st.text())
def test_wording_does_not_count_and_everything_else_does(title: str, other: str) -> None:
    part = {"id": "a", "kind": "manual", "title": "x", "instruction": "y", "dri": "ann", "do": {"run": "x"}}
    sha = step_sha(part, "p", [])
    assert step_sha(part | {"title": title, "instruction": other}, "p", []) == sha
    for changed in ({"id": "b"}, {"kind": "check"}, {"dri": "ben"}, {"do": {"run": "x "}}, {"repeat": "yes"}):
        assert step_sha(part | changed, "p", []) != sha
    assert step_sha(part, "q", []) != sha
    assert step_sha(part, "p", ["z"]) != sha


@pytest.mark.attack("runbook", "a manual step with another instruction than was drilled", "the drill is void")
@pytest.mark.parametrize("kind", ["manual", "decision"])
def test_the_instruction_of_a_step_by_hand_counts(kind: str) -> None:
    part = {"id": "a", "kind": kind, "instruction": "Lock the accounts."}
    assert step_sha(part | {"instruction": "Drop the accounts."}, "p", []) != step_sha(part, "p", [])
    assert step_sha(part | {"title": "Better"}, "p", []) == step_sha(part, "p", [])


@pytest.mark.attack("runbook", "`exit 0` in place of the drilled hook script", "the drill is void, a run stops there")
@pytest.mark.parametrize("run", ["{hook} stop", "bash {hook} stop", "env A=1 sh {hook}"])
def test_the_contents_of_a_script_count(tmp_path: Path, run: str) -> None:
    hook = tmp_path / "hook.sh"
    hook.write_text("#!/bin/sh\nmysql -e 'ALTER USER app ACCOUNT LOCK'\n")
    steps = STEPS.replace("touch stopped", run.format(hook=hook))
    path = write_small(tmp_path, steps)
    before = load_runbook(path, {}, "lab")
    assert load_runbook(path, {}, "lab").sha == before.sha
    assert changed_scripts(before.step("freeze")) == ""
    hook.write_text("#!/bin/sh\nexit 0\n")
    after = load_runbook(path, {}, "lab")
    assert after.step("freeze").sha != before.step("freeze").sha
    assert after.step("look").sha == before.step("look").sha
    assert "a script of it changed" in changed_scripts(before.step("freeze"))
    hook.unlink()
    assert load_runbook(path, {}, "lab").step("freeze").sha != before.step("freeze").sha


def test_files_that_a_step_makes_are_no_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_small(tmp_path)
    before = load_runbook(path, {}, "lab")
    (tmp_path / "stopped").touch()
    assert load_runbook(path, {}, "lab").sha == before.sha


def test_a_script_of_a_guard_counts_for_the_whole_runbook(tmp_path: Path) -> None:
    hook = tmp_path / "ask.sh"
    hook.write_text("#!/bin/sh\nfalse\n")
    guard = f"guards:\n  - {{id: g, check: command.exit, run: '{hook}'}}\n"
    path = write_small(tmp_path, guard + STEPS)
    before = load_runbook(path, {}, "lab").sha
    hook.write_text("#!/bin/sh\ntrue\n")
    assert load_runbook(path, {}, "lab").sha != before


def test_the_instruction_of_a_rollback_by_hand_counts() -> None:
    by_hand = {"id": "a", "rollback": {"instruction": "x"}}
    by_tool = {"id": "a", "rollback": {"instruction": "x", "do": {"run": "y"}}}
    for part, counts in ((by_hand, True), (by_tool, False)):
        mended = {"id": "a", "rollback": part["rollback"] | {"instruction": "z"}}  # type: ignore[operator]
        assert (step_sha(part, "p", []) != step_sha(mended, "p", [])) is counts


def test_the_whole_has_steps_policy_budgets_and_guards_and_not_the_cast() -> None:
    data: dict[str, Any] = {"id": "r", "policy": {}, "budgets": {}, "guards": [], "people": {"ann": {}}}
    sha = runbook_sha(data, [("a", "1"), ("b", "2")])
    assert runbook_sha(data | {"people": {"ben": {}}}, [("a", "1"), ("b", "2")]) == sha
    others: list[dict[str, Any]] = [{"policy": {"x": 1}}, {"budgets": {"x": 1}}, {"guards": [{}]}, {"id": "s"}]
    for changed in others:
        assert runbook_sha(data | changed, [("a", "1"), ("b", "2")]) != sha
    assert runbook_sha(data, [("b", "2"), ("a", "1")]) != sha


def test_what_differs_by_environment_is_not_in_the_hash_but_in_what_is_signed(tmp_path: Path) -> None:
    one, other = load(tmp_path, host="a"), load(tmp_path, host="b", environment="staging")
    assert one.sha == other.sha
    assert [step.sha for step in one.steps] == [step.sha for step in other.steps]
    assert [a.filled_sha == b.filled_sha for a, b in zip(one.steps, other.steps, strict=True)] == [False] + [True] * 6
    service = load(tmp_path, service="orders")
    changed: list[str] = [a.id for a, b in zip(one.steps, service.steps, strict=True) if a.sha != b.sha]
    assert changed == ["c"]
    assert service.sha != one.sha


def test_a_step_put_in_changes_what_comes_after_it(tmp_path: Path) -> None:
    one = load(tmp_path)
    new = "      - {id: d2, kind: check, dri: ann, expect: [{check: x}]}\n      - {id: e,"
    other = load(tmp_path, SMALL.replace("      - {id: e,", new))
    assert [s.id for s in one.steps if s.sha != other.step(s.id).sha] == ["e"]


def test_comments_and_order_of_keys_leave_the_hash(tmp_path: Path) -> None:
    one = load(tmp_path)
    other = load(
        tmp_path, "# a comment\n" + SMALL.replace("{id: d, kind: check, dri: ann,", "{dri: ann, kind: check, id: d,")
    )
    assert one.sha == other.sha
    assert one.text_sha != other.text_sha


# Parameters

DECLARED = {"n": ParameterPart(type="integer"), "t": ParameterPart(type="text"), "w": ParameterPart()}


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("name", ["a", "a.b-c_d", "http://h:9/x"], ["", "a b", "a;b", "$(x)", "-rf", "a\nb", "{{x}}"]),
        ("text", ["a b", "ä;"], ["a\nb", "a\x00", "{{n}}"]),
        ("integer", ["0", "-4"], ["", "4.0", "nan", "1e9", "9" * 30]),
        ("number", ["0.5", "-4", "1e3"], ["nan", "inf", "1,5", "0x1"]),
        ("boolean", ["true", "false"], ["yes", "1", ""]),
        ("duration", ["30s", "1h30m"], ["", "30", "-5s", "soon"]),
        ("moment", ["2026-02-02T02:00+09:00"], ["2026-02-02T02:00", "today"]),
    ],
)
def test_types_of_parameters(kind: str, good: list[str], bad: list[str]) -> None:
    declared = {"p": ParameterPart(type=kind)}
    for text in good:
        assert resolve(declared, {"p": text})[1:] == ({"p": text}, [])
    for text in bad:
        values_, texts, unfit = resolve(declared, {"p": text})
        assert (values_, texts) == ({}, {})
        assert [one.rule for one in unfit] == ["parameter-unfit"]


@given(st.text(alphabet="{}ntw x", max_size=20), st.text(alphabet="ab{} ", max_size=5))
def test_a_value_is_never_read_again(text: str, value: str) -> None:
    values_, texts, unfit = resolve({"t": ParameterPart(type="text")}, {"t": value})
    filled, _ = fill(text, values_, texts, frozenset())
    if not unfit and "{{" not in value + "x":
        assert filled == fill(filled, {}, {}, frozenset())[0]
        assert str(filled).count("{{ t }}") == 0 or "t" not in texts


def test_filling_keeps_what_it_does_not_know() -> None:
    data = {"a": ["{{n}}", "x {{ n }} {{u}}", 5, {"b": "{{t}}"}]}
    filled, changed = fill(data, {"n": 3, "t": "v"}, {"n": "3", "t": "v"}, frozenset({"t"}))
    assert filled == {"a": [3, "x 3 {{u}}", 5, {"b": "{{t}}"}]}
    assert changed
    assert data["a"][0] == "{{n}}"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("1h30m", 5400.0), ("500ms", 0.5), ("T+110m", 6600.0), ("-5s", -5.0), ("0", 0.0), ("1d", 86400.0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("value", ["5", "s", "", "1m2h", "--5s", 5, 1.5])
def test_what_is_no_duration(value: object) -> None:
    with pytest.raises(ValueError, match=r"duration"):
        parse_duration(value)


def test_set_of_the_command_line() -> None:
    from migverify.cli.runbook_lint import parse_set

    assert parse_set(["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    for wrong in (["a"], ["=b"], ["a=1", "a=2"]):
        with pytest.raises(UsageError):
            parse_set(wrong)

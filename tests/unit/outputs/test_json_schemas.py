"""Every JSON output has a published schema, made of the types that declare it; the list of commands is walked."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from migverify.cli.main import run
from migverify.outputs.published import made_text, schema_document, schema_text
from migverify.outputs.registry import OUTPUTS, names, output_of, outputs_of
from tests.json_outputs import command_of, compare_with_schema
from tests.pages import declared_commands

ROOT = Path(__file__).parents[3]
SCHEMAS = ROOT / "migverify" / "schemas" / "output"
PAGE = ROOT / "docs" / "json.md"
WITH_JSON = sorted(name for name, command in declared_commands() if any("--json" in one.opts for one in command.params))


def test_every_command_with_json_has_a_schema() -> None:
    assert len(WITH_JSON) > 50
    missing = [name for name in WITH_JSON if not outputs_of(name)]
    assert not missing, "declare what these print in migverify/outputs, and add it to OUTPUTS in its registry"


def test_every_output_is_one_of_a_command() -> None:
    assert {name for one in OUTPUTS for name in one.commands} <= set(WITH_JSON)
    for command in WITH_JSON:
        plain = [one.name for one in outputs_of(command) if not one.flag]
        assert len(plain) == 1, f"{command} has one output without an option of its own, not {plain}"


@pytest.mark.parametrize("name", names())
def test_the_published_schema_is_that_of_the_types(name: str) -> None:
    path = SCHEMAS / f"{name}.schema.json"
    if os.environ.get("REGEN") == "1":
        path.write_text(made_text(name), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == made_text(name), "run with REGEN=1 and look at the change"


def test_no_schema_is_left_over() -> None:
    assert {path.name for path in SCHEMAS.iterdir()} == {f"{name}.schema.json" for name in names()}


@pytest.mark.parametrize("name", names())
def test_a_schema_is_valid_and_open(name: str) -> None:
    schema = schema_document(name)
    Draft202012Validator.check_schema(schema)
    assert schema["$id"].startswith(f"urn:migverify:output:{name}:")
    assert schema["description"]
    assert '"additionalProperties": false' not in schema_text(name), "adding keys is compatible"


def test_a_schema_is_printed_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "--schema", "run"]) == 0
    assert json.loads(capsys.readouterr().out) == schema_document("run")
    assert run(["config", "--schema", "no-such-schema"]) == 2
    error = capsys.readouterr().err
    assert "no-such-schema" in error
    assert "tables-watch" in error


def test_the_schema_of_a_command_line_is_found() -> None:
    assert command_of(["-v", "tables", "verify", "--json"]) == "tables verify"
    assert command_of(["workload", "capture", "--poll", "--json"]) == "workload capture --poll"
    assert command_of(["guard", "schema", "--every=5s", "--json"]) == "guard schema --watch"
    assert command_of(["lab", "status", "--json"]) is None
    assert output_of("config", ["config", "--grants", "--json"]).name == "grants"
    assert output_of("guard ids", ["--watch"]).name == "guards"


def test_an_output_that_its_schema_does_not_allow_is_refused() -> None:
    row = {
        "pair": "a.t", "key": ["1"], "kind": "value_differs", "state": "diverged", "columns": [],
        "source_checksum": None, "target_checksum": None, "source_count": 1, "target_count": 1, "shard": "",
        "read_at": 0.0,
    }  # fmt: skip
    line = ["tables", "diff", "last", "--json"]
    compare_with_schema(line, json.dumps(row))
    compare_with_schema(line, json.dumps({**row, "added": 1}))
    for broken in ({**row, "kind": "other"}, {**row, "read_at": None}, {k: v for k, v in row.items() if k != "key"}):
        with pytest.raises(AssertionError, match="schema row-diff"):
            compare_with_schema(line, json.dumps(broken))


def page_table() -> str:
    """Return the table of outputs for docs/json.md."""
    lines = ["| command with `--json` | schema | form | what it is |", "|---|---|---|---|"]
    for one in OUTPUTS:
        option = f" {one.flag}" if one.flag else ""
        commands = ", ".join(f"`{name}{option}`" for name in one.commands)
        commands = commands or ("`mcp`" if one.name.startswith("mcp-") else "`report --format json`")
        form = "one object a line" if one.lines else "list" if one.many else "object"
        lines.append(f"| {commands} | `{one.name}` | {form} | {one.what} |")
    return "\n".join(lines) + "\n"


def test_the_page_lists_every_output() -> None:
    before, rest = PAGE.read_text(encoding="utf-8").split("<!-- outputs -->\n")
    _, after = rest.split("<!-- /outputs -->")
    fresh = f"{before}<!-- outputs -->\n{page_table()}<!-- /outputs -->{after}"
    if os.environ.get("REGEN") == "1":
        PAGE.write_text(fresh, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == fresh, "run with REGEN=1 and look at the change"

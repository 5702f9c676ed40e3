"""The shape of rules files: schema and pages are what the models make, every example of the pages loads."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from migverify.cli.main import run
from migverify.config.reference import json_schema, keys_under, known_keys, markdown
from migverify.recon.document import TITLE, RulesDocument
from migverify.recon.load import load_rules
from migverify.recon.statements import BUILT_IN, REFUSED
from tests.rule_fakes import KINDS

PAGE = Path(__file__).parents[3] / "docs" / "recon.md"
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
ENDPOINTS = ("source", "source.eu", "source.us", "target", "ledger")


def test_every_key_has_a_description() -> None:
    assert [key.path for key in known_keys(RulesDocument) if not key.description] == []


def test_the_schema_is_made_of_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "--schema", "recon"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema(RulesDocument, TITLE)
    jsonschema.Draft202012Validator.check_schema(json_schema(RulesDocument, TITLE))


def test_every_key_is_in_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = re.search(r"<!-- keys:[^\n]*-->\n(.*?)<!-- end of keys -->", text, re.DOTALL)
    assert table is not None
    assert table[1] == markdown(RulesDocument), "put the output of `migverify config --keys recon` between the marks"


def test_every_kind_and_key_of_a_kind_has_an_example() -> None:
    rules = [rule for example in EXAMPLES for rule in yaml.safe_load(example).get("rules", [])]
    assert {rule["kind"] for rule in rules} == set(KINDS)
    for kind in KINDS:
        shown = {key for rule in rules if rule["kind"] == kind for key in rule}
        own = {key.path.rpartition(".")[2] for key in known_keys(RulesDocument) if key.only == kind}
        assert own - shown <= {"compare", "limit", "tolerance", "currency", "column", "groups", "drill"}, kind


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_every_example_loads(number: int, tmp_path: Path) -> None:
    path = tmp_path / "recon.yaml"
    path.write_text(EXAMPLES[number], encoding="utf-8")
    assert load_rules(path, ENDPOINTS).rules


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_every_example_fits_the_schema(number: int) -> None:
    data = yaml.load(EXAMPLES[number], Loader=yaml.BaseLoader)  # noqa: S506  (texts only: dates stay texts)
    plain = json.loads(json.dumps(_typed(data)))
    jsonschema.validate(plain, json_schema(RulesDocument, TITLE))


def _typed(value: object) -> object:
    if isinstance(value, dict):
        return {key: _typed(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_typed(one) for one in value]
    if value in ("true", "false"):
        return value == "true"
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d+", value) else value


def test_keys_of_one_kind() -> None:
    assert "duplicates" in keys_under(("rules", 0, "same_rows"), RulesDocument)
    assert "duplicates" not in keys_under(("rules", 0, "unique"), RulesDocument)
    assert keys_under(("rules", 0, "nothing"), RulesDocument) == []
    assert keys_under(("rules", 0, "unique", "money"), RulesDocument) == ["column", "currency"]
    assert "table" in keys_under(("datasets", "any", "union", "template"), RulesDocument)


def test_no_function_is_both_allowed_and_refused() -> None:
    assert not BUILT_IN & REFUSED.keys()

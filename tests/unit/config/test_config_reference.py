"""Every key is in the JSON schema and in the documentation; the schema is that of the models."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import BaseModel

from migverify.cli.main import run
from migverify.config import load_config
from migverify.config.reference import json_schema, json_schema_text, keys_under, known_keys, markdown
from migverify.config.settings import Config

DOCS = Path(__file__).parents[3] / "docs" / "configuration.md"


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from models(field.annotation)
    for part in getattr(annotation, "__args__", ()):
        yield from models(part)


def names_by_model() -> dict[str, set[str]]:
    return {
        model.__name__: {str(field.validation_alias or name) for name, field in model.model_fields.items()}
        for model in models(Config)
    }


def test_every_key_has_a_description() -> None:
    assert [key.path for key in known_keys() if not key.description] == []


def test_known_keys_are_all_keys_of_all_models() -> None:
    known = {key.path.rpartition(".")[2] for key in known_keys()}
    assert known == set().union(*names_by_model().values())


def test_every_key_is_in_the_schema() -> None:
    schema = json_schema()
    for name, keys in names_by_model().items():
        part = schema if name == "Config" else schema["$defs"][name]
        assert set(part["properties"]) == keys
        assert part["additionalProperties"] is False


def test_every_key_is_documented() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert [key.path for key in known_keys() if f"| `{key.path}` |" not in text] == []
    table = re.search(r"<!-- keys:[^\n]*-->\n(.*?)<!-- end of keys -->", text, re.DOTALL)
    assert table is not None
    assert table[1] == markdown(), (
        "run `migverify config --keys migverify` and paste its output into docs/configuration.md"
    )


def test_examples_in_the_documentation_are_valid(tmp_path: Path) -> None:
    both = "source: {url: mysql://u@h}\ntarget: {url: tidb://u@h}\n"
    found = re.findall(r"```yaml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert len(found) >= 4
    for number, example in enumerate(found):
        path = tmp_path / f"{number}.yaml"
        path.write_text(example if "\ntarget:" in example else both + example, encoding="utf-8")
        load_config(path, environment={})
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)  # noqa: S506  (text only)
        assert set(data) <= names_by_model()["Config"]


def test_the_schema_is_made_of_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "--schema", "migverify"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()


@pytest.mark.parametrize(
    ("data", "valid"),
    [
        ({"source": {"url": "mysql://u@h"}, "target": {"url": "tidb://u@h"}}, True),
        ({"target": {"url": "tidb://u@h"}, "overrides": [{"table": "a.b", "where": "x", "float_tolerance": 1}]}, True),
        ({"target": {}, "overrides": [{"table": "a.b", "where": {"source": "x"}, "float_tolerance": {"a": 1}}]}, True),
        ({"target": {}, "routes": [{"from": "a.b", "to": "c.d"}]}, True),
        ({"target": {"session": {"a": 1, "b": True, "c": "x"}, "snapshot": 5}}, True),
        ({"target": {}, "routes": [{"from_": "a.b", "to": "c.d"}]}, False),
        ({"target": {}, "limts": {}}, False),
        ({"target": {"connections": 0}}, False),
        ({"target": {"password": "x"}}, False),
        ({}, False),
    ],
)
def test_the_schema_accepts_what_the_models_accept(data: dict[str, Any], valid: bool) -> None:
    schema = json.loads(json_schema_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    assert jsonschema.Draft202012Validator(schema).is_valid(data) == valid


def test_keys_at_a_place() -> None:
    assert "chunk_rows" in keys_under(("limits",))
    assert keys_under(("routes", 0)) == ["from", "to", "shard"]
    assert "password_env" in keys_under(("sources", "eu"))
    assert keys_under(("sources", "eu", "tls")) == ["mode", "ca", "cert", "key", "allow_cleartext_password"]
    assert keys_under(("overrides", 3, "where")) == ["source", "target"]
    assert keys_under(("source", "session")) == []
    assert keys_under(("nonsense", "x")) == []

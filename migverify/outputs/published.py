"""The JSON schemas of all outputs: made of the types that declare them, read from the files that are shipped."""

from __future__ import annotations

import json
from importlib import import_module
from importlib.resources import files
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from migverify.errors import CONTRACT_VERSION
from migverify.outputs.registry import OUTPUTS

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_text(name: str) -> str:
    """Return a published schema as a file."""
    return (files("migverify") / f"schemas/output/{name}.schema.json").read_text(encoding="utf-8")


def schema_document(name: str) -> dict[str, Any]:
    """Return a published schema."""
    document: dict[str, Any] = json.loads(schema_text(name))
    return document


def made_schema(name: str) -> dict[str, Any]:
    """Return a schema made of the types. Objects are open: a later release may add keys."""
    output = next(one for one in OUTPUTS if one.name == name)
    body = _merged([_schema_of(each) for each in output.types])
    if output.many:
        definitions = body.pop("$defs", {})
        body = {"type": "array", "items": body, **({"$defs": definitions} if definitions else {})}
    head = {
        "$schema": DIALECT, "$id": f"urn:migverify:output:{name}:{CONTRACT_VERSION}", "title": name,
        "description": output.what,
    }  # fmt: skip
    return head | {key: value for key, value in body.items() if key not in head}


def made_text(name: str) -> str:
    """Return a schema made of the types, as a file."""
    return json.dumps(made_schema(name), indent=1, ensure_ascii=False) + "\n"


class _Printed(GenerateJsonSchema):
    """Schemas of what is printed: a dataclass with all its fields, and no titles, which would repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return False."""
        del schema
        return False

    def field_is_required(self, field: Any, total: bool) -> bool:
        """Return True for a field of a dataclass: its default is printed too."""
        return field["type"] == "dataclass-field" or super().field_is_required(field, total)

    def default_schema(self, schema: Any) -> dict[str, Any]:
        """Return the schema without the default: it is what a reader of input would assume."""
        return self.generate_inner(schema["schema"])


def _schema_of(named: str) -> dict[str, Any]:
    module, _, attribute = named.partition(":")
    adapter: TypeAdapter[Any] = TypeAdapter(getattr(import_module(module), attribute))
    made: dict[str, Any] = _plain(adapter.json_schema(mode="serialization", schema_generator=_Printed))
    return made


def _plain(part: Any) -> Any:
    """Return a schema whose texts have the marks of code of Markdown, and whose objects are open."""
    if isinstance(part, dict):
        return {
            key: _plain(value) for key, value in part.items() if (key, value) != ("additionalProperties", False)
        }  # fmt: skip
    if isinstance(part, list):
        return [_plain(value) for value in part]
    return part.replace("``", "`") if isinstance(part, str) else part


def _merged(some: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the schema of an object that has the keys of all; the first one's declaration of a key counts."""
    if len(some) == 1:
        return some[0]
    properties: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    required: list[str] = []
    for one in some:
        definitions = {**one.get("$defs", {}), **definitions}
        properties = {**one["properties"], **properties}
        required += [key for key in one.get("required", ()) if key not in required]
    return {"type": "object", "properties": properties, "required": required, "$defs": definitions}

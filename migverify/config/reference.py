"""Every key of ``migverify.yaml``, read from the pydantic models: for suggestions, schema and docs."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from migverify.config.document import ConfigDocument, EndpointPart
from migverify.config.yaml_text import Steps

SCHEMA_ID = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, slots=True)
class KnownKey:
    """One key: ``routes[].from``, its default as JSON text (None: required), and what it means."""

    path: str
    default: str | None
    description: str


@cache
def known_keys() -> tuple[KnownKey, ...]:
    """All keys in the order of the models; ``sources`` and ``target`` refer to ``source``."""
    return tuple(_walk(ConfigDocument, ""))


def keys_under(steps: Steps) -> list[str]:
    """Keys that may stand at a place of the document; empty where names are free or nothing may stand."""
    model: type[BaseModel] | None = ConfigDocument
    free = False  # inside a mapping whose names the user chooses, or a list
    annotation: Any = None
    for step in steps:
        if free:
            free = False
            model = _model_in(annotation)
            continue
        field = None if model is None else _fields(model).get(str(step))
        if field is None:
            return []
        annotation = field.annotation
        free = _holds_many(annotation)
        model = None if free else _model_in(annotation)
    return [] if model is None else list(_fields(model))


def json_schema() -> dict[str, Any]:
    """JSON schema of ``migverify.yaml`` for editors."""
    schema = ConfigDocument.model_json_schema(by_alias=True, mode="validation")
    return {"$schema": SCHEMA_ID, "title": "migverify.yaml"} | {k: v for k, v in schema.items() if k != "title"}


def json_schema_text() -> str:
    """The schema as the file ``migverify/schemas/migverify.schema.json`` holds it."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def markdown() -> str:
    """Return the table of all keys that stands in docs/configuration.md."""
    lines = ["| key | default | meaning |", "|---|---|---|"]
    for key in known_keys():
        default = "required" if key.default is None else "" if key.default == "null" else f"`{key.default}`"
        lines.append(f"| `{key.path}` | {default} | {key.description.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def _walk(model: type[BaseModel], prefix: str) -> Iterator[KnownKey]:
    for name, field in _fields(model).items():
        path = f"{prefix}{name}"
        inner = _model_in(field.annotation)
        yield KnownKey(path, _default(field), field.description or "")
        if inner is None or (inner is EndpointPart and name != "source"):
            continue
        yield from _walk(inner, f"{path}[]." if _holds_many(field.annotation) else f"{path}.")


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _default(field: FieldInfo) -> str | None:
    if field.is_required():
        return None
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined:
        return None
    if isinstance(value, BaseModel) or value in ({}, []):
        return "null"
    return json.dumps(value)


def _holds_many(annotation: Any) -> bool:
    origin = getattr(annotation, "__origin__", None)
    if origin in (list, dict):
        return True
    if isinstance(annotation, types.UnionType) or get_args(annotation):
        return any(_holds_many(part) for part in get_args(annotation))
    return False


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation if issubclass(annotation, BaseModel) else None
    for part in get_args(annotation):
        found = _model_in(part)
        if found is not None:
            return found
    return None

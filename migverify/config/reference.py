"""Every key of a YAML file, read from its pydantic models: for suggestions, schema and docs.

``root`` is the model of the file: that of ``migverify.yaml`` unless another is given.
"""

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

from migverify.config.endpoints import EndpointSettings
from migverify.config.fields import file_fields
from migverify.config.settings import Config
from migverify.config.yaml_text import Steps

SCHEMA_ID = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, slots=True)
class KnownKey:
    """One key: ``routes[].from``, its default as JSON text (None: required), and what it means.

    ``only`` is the tag of the one model that has it, where a part is one of several models.
    """

    path: str
    default: str | None
    description: str
    only: str = ""


@cache
def known_keys(root: type[BaseModel] = Config) -> tuple[KnownKey, ...]:
    """All keys in the order of the models; ``sources`` and ``target`` refer to ``source``."""
    return tuple(_walk(root, ""))


def keys_under(steps: Steps, root: type[BaseModel] = Config) -> list[str]:
    """Keys that are allowed at a place of the document; empty where names are free or no key is allowed.

    After an index or a free name, the steps may hold the tag of one of several models, as pydantic adds it.
    """
    model: type[BaseModel] | None = root
    free = False  # inside a mapping whose names the user chooses, or a list
    annotation: Any = None
    several: dict[str, type[BaseModel]] = {}
    for step in steps:
        if free:
            free = False
            several = _tagged(annotation)
            model = None if several else _model_in(annotation)
            continue
        if several:
            model, several = several.get(str(step)), {}
            continue
        field = None if model is None else file_fields(model).get(str(step))
        if field is None:
            return []
        annotation = field.annotation
        free = _holds_many(annotation)
        model = None if free else _model_in(annotation)
    return [] if model is None else list(file_fields(model))


def json_schema(root: type[BaseModel] = Config, title: str = "migverify.yaml") -> dict[str, Any]:
    """JSON schema of a file for editors."""
    schema = root.model_json_schema(by_alias=True, mode="validation")
    return {"$schema": SCHEMA_ID, "title": title} | {k: v for k, v in schema.items() if k != "title"}


def json_schema_text(root: type[BaseModel] = Config, title: str = "migverify.yaml") -> str:
    """Return the schema as a file."""
    return json.dumps(json_schema(root, title), indent=2, ensure_ascii=False) + "\n"


def markdown(root: type[BaseModel] = Config) -> str:
    """Return the table of all keys for the documentation of a file."""
    lines = ["| key | default | meaning |", "|---|---|---|"]
    for key in known_keys(root):
        default = "required" if key.default is None else "" if key.default == "null" else f"`{key.default}`"
        meaning = f"`{key.only}`: {key.description}" if key.only else key.description
        lines.append(f"| `{key.path}` | {default} | {meaning.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def _walk(model: type[BaseModel], prefix: str, above: tuple[type[BaseModel], ...] = ()) -> Iterator[KnownKey]:
    """Keys of a model and of the models in it, except those that a model above is a kind of: they are listed there."""
    above = (*above, model)
    for name, field in file_fields(model).items():
        path = f"{prefix}{name}"
        inner = _model_in(field.annotation)
        yield KnownKey(path, _default(field), field.description or "")
        if several := _tagged(field.annotation):
            yield from _walk_tagged(several, f"{path}[].", above)
            continue
        if (
            inner is None
            or (inner is EndpointSettings and name != "source")
            or any(issubclass(a, inner) for a in above)
        ):
            continue
        yield from _walk(inner, f"{path}[]." if _holds_many(field.annotation) else f"{path}.", above)


def _walk_tagged(
    several: dict[str, type[BaseModel]], prefix: str, above: tuple[type[BaseModel], ...]
) -> Iterator[KnownKey]:
    """Keys that all models have, once; then those of each."""
    walked = {tag: list(_walk(model, prefix, above)) for tag, model in several.items()}
    shared = set.intersection(*({key.path for key in keys} for keys in walked.values()))
    yield from (key for key in next(iter(walked.values())) if key.path in shared)
    for tag, keys in walked.items():
        yield from (KnownKey(k.path, k.default, k.description, tag) for k in keys if k.path not in shared)


def _tagged(annotation: Any) -> dict[str, type[BaseModel]]:
    """The models of a union that a literal discriminates, by that literal; empty for anything else."""
    for part in get_args(annotation):
        found = _tagged(part)
        if found:
            return found
    models = [part for part in get_args(annotation) if isinstance(part, type) and issubclass(part, BaseModel)]
    tags = [get_args(model.model_fields["kind"].annotation) for model in models if "kind" in model.model_fields]
    return {tag[0]: model for tag, model in zip(tags, models, strict=True)} if len(models) == len(tags) > 1 else {}


def _default(field: FieldInfo) -> str | None:
    if field.is_required():
        return None
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined:
        return None
    if isinstance(value, BaseModel) or value in ({}, (), []):
        return "null"
    return json.dumps(value)


def _holds_many(annotation: Any) -> bool:
    origin = getattr(annotation, "__origin__", None)
    if origin in (list, tuple, dict):
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

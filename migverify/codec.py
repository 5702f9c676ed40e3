"""Frozen dataclasses <-> plain JSON values, by their type hints.

Plans and tasks travel between processes as JSON text. This codec needs nothing but the standard library, because
an executor has nothing else; unknown keys are refused, so a plan of another version never half-loads.
"""

from __future__ import annotations

import dataclasses
import types
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


def encode(value: Any) -> Any:
    """Return the JSON value: dataclasses as objects, tuples as lists, enums by value."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, list | tuple):
        return [encode(part) for part in value]
    if isinstance(value, dict):
        return {key: encode(part) for key, part in value.items()}
    return value


def decode(kind: type[T], data: Any) -> T:
    """Return the value of type ``kind`` that ``encode`` gave as ``data``.

    Raises
    ------
    ValueError
        ``data`` is not of that type; the message names the place.
    """
    return cast("T", _decode(kind, data, kind.__name__))


def _decode(kind: Any, data: Any, where: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if data is None and type(None) in inner:
            return None
        choices = [part for part in inner if part is not type(None)]
        return _first(choices, data, where)
    if origin is tuple:
        if not isinstance(data, list):
            raise ValueError(f"{where}: a list is expected, not {type(data).__name__}")
        if len(inner) == 2 and inner[1] is Ellipsis:
            return tuple(_decode(inner[0], part, f"{where}[{n}]") for n, part in enumerate(data))
        return tuple(_decode(k, part, f"{where}[{n}]") for n, (k, part) in enumerate(zip(inner, data, strict=True)))
    if origin is dict:
        return {key: _decode(inner[1], part, f"{where}.{key}") for key, part in data.items()}
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, data, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    if kind is Any:
        return data
    if kind is float and isinstance(data, int):
        return float(data)
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise ValueError(f"{where}: {kind.__name__} is expected, not {data!r}")
    return data


def _first(choices: list[Any], data: Any, where: str) -> Any:
    failures = []
    for choice in choices:
        try:
            return _decode(choice, data, where)
        except (ValueError, TypeError) as error:
            failures.append(str(error))
    raise ValueError("; ".join(failures))


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _dataclass(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"{where}: an object is expected, not {type(data).__name__}")
    hints = _hints(kind)
    if unknown := set(data) - set(hints):
        raise ValueError(f"{where}: unknown keys {', '.join(sorted(unknown))}")
    required = {f.name for f in dataclasses.fields(kind) if f.default is f.default_factory is dataclasses.MISSING}
    if missing := required - set(data):
        raise ValueError(f"{where}: missing keys {', '.join(sorted(missing))}")
    return kind(**{name: _decode(hints[name], part, f"{where}.{name}") for name, part in data.items()})

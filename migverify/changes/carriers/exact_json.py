"""JSON read exactly: a number stays its text, an object never names a key twice.

``json.loads`` turns 0.1 into a float and lets the last of two equal keys win; both would alter data silently.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from migverify.changes.carriers.base import UndecodableError

Json: TypeAlias = Any
"""None, bool, str, Number, list or dict: what ``load`` gives."""

_INTEGER = re.compile(r"-?(0|[1-9]\d{0,99})\Z")


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a JSON text, as it was written."""

    text: str


def load(raw: bytes | str) -> Json:
    """Return the value of one JSON text."""
    try:
        text = raw if isinstance(raw, str) else raw.decode("utf-8")
        return _DECODER.decode(text)
    except UnicodeDecodeError as error:
        raise UndecodableError(f"not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise UndecodableError(f"not JSON at character {error.pos}: {error.msg}") from error
    except RecursionError as error:
        raise UndecodableError("JSON nests too deep") from error


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise UndecodableError("a JSON object names a key twice")
    return found


def _constant(name: str) -> NoReturn:
    raise UndecodableError(f"{name} is no JSON value")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=Number, parse_int=Number, parse_constant=_constant, strict=False
)


def integer(value: Json, what: str) -> int:
    """Return a JSON integer; raises UndecodableError for anything else."""
    if isinstance(value, Number) and _INTEGER.match(value.text):
        return int(value.text)
    raise UndecodableError(f"{what} is not an integer")


def timestamp(value: Json, what: str) -> int:
    """Return a timestamp of TiDB; raises UndecodableError for anything else: one has at most 63 bits."""
    found = integer(value, what)
    if not 0 <= found < 1 << 63:
        raise UndecodableError(f"{what} is no timestamp of TiDB")
    return found


def text(value: Json, what: str) -> str:
    """Return a JSON string that is Unicode text; raises UndecodableError for anything else."""
    if not isinstance(value, str):
        raise UndecodableError(f"{what} is not a string")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:  # half of a surrogate pair: no server can store it
            raise UndecodableError(f"{what} holds half of a surrogate pair") from error
    return value


def base64_bytes(value: Json, what: str) -> bytes:
    """Return the bytes of a JSON string in base64; raises UndecodableError for anything else."""
    encoded = text(value, what)
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError as error:
        raise UndecodableError(f"{what} is not base64") from error


def mapping(value: Json, what: str) -> dict[str, Json]:
    """Return a JSON object; raises UndecodableError for anything else."""
    if not isinstance(value, dict):
        raise UndecodableError(f"{what} is not an object")
    return value


def sequence(value: Json, what: str) -> list[Json]:
    """Return a JSON array; raises UndecodableError for anything else."""
    if not isinstance(value, list):
        raise UndecodableError(f"{what} is not an array")
    return value


def spell(value: Json, number: Callable[[str], str] = str) -> str:
    """Write JSON as MySQL prints it: ``{"a": 1, "b": [1, 2]}``, keys in the order read; ``number`` writes numbers."""
    if isinstance(value, Number):
        return number(value.text)
    if isinstance(value, dict):
        parts = (f"{json.dumps(key, ensure_ascii=False)}: {spell(part, number)}" for key, part in value.items())
        return "{" + ", ".join(parts) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(spell(part, number) for part in value) + "]"
    return json.dumps(value, ensure_ascii=False)

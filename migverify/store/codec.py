"""What a stored row holds: nouns to columns and back, without I/O.

Everything of open length is JSON in ASCII (with escapes), so that no character set between here and the store
can change it, and a NUL or an emoji in a key is the same bytes everywhere. Integers in JSON have no width: sums
above 2^63 stay exact. ``None`` is JSON's ``null``, never a word. Whole nouns go through ``migverify.codec``; chunks and
row diffs, of which there are millions, have a column for each field.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from migverify.codec import decode, encode
from migverify.errors import StoreError
from migverify.model import (
    ChunkChecksum,
    ChunkResult,
    ChunkState,
    ColumnDiff,
    DiffKind,
    KeyRange,
    KeyText,
    LiveState,
    RowDiff,
    TableResult,
)

Row = Mapping[Any, Any]
"""A row of the store by column name."""

T = TypeVar("T")

# One encoder for all: json.dumps with options of its own builds an encoder per call, which costs more than a key.
_ENCODE = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode

_SIDES = ("source", "target")
_SUMS = ("rows", "hashed", "exact", "value")  # the fields of ChunkChecksum, in their order
_TEXT_SUMS = ("exact", "value")  # decimal text in the store: they pass 2^63 after a dozen rows
_CHUNK_COLUMNS = ("span", "number", "started", "seconds", "source_seconds", "target_seconds", "attempts", "reason")
_DIFF_COLUMNS = ("source_checksum", "target_checksum", "source_count", "target_count", "shard", "read_at")


def encode_json(value: object, what: str) -> str:
    """Return ``value`` as ASCII JSON text; ``what`` names it in the ``StoreError`` for what JSON cannot hold."""
    try:
        return _ENCODE(value)
    except (TypeError, ValueError, RecursionError) as exc:
        raise StoreError(
            f"{what} cannot be stored as JSON: {exc}",
            hint="Only text, numbers, lists and mappings can be kept.",
        ) from exc


def decode_object(text: str, what: str) -> dict[str, Any]:
    """Return the JSON object in ``text``; ``StoreError`` when it is damaged or not an object."""
    return _read(what, lambda: _object(json.loads(text)))


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"an object was expected, got {type(value).__name__}")
    return value


def encode_key(key: KeyText) -> str:
    """Return a key as a JSON list; two keys give the same text only when they are the same key."""
    return _ENCODE(key)


def decode_key(text: str) -> KeyText:
    """Return the key that ``encode_key`` wrote."""
    return _read("a key", lambda: _key(json.loads(text)))


def _key(parts: object) -> KeyText:
    if not isinstance(parts, list) or not all(part is None or isinstance(part, str) for part in parts):
        raise TypeError("a list of texts and nulls was expected")
    return tuple(parts)


def key_digest(encoded_key: str) -> bytes:
    """SHA-256 (32 bytes) of an encoded key: what is indexed, since keys have no bound on their length."""
    return hashlib.sha256(encoded_key.encode("ascii")).digest()


def text_digest(text: str) -> bytes:
    """SHA-256 (32 bytes) of any text, lone surrogates included; indexes names of any length."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def encode_range(key_range: KeyRange) -> str:
    """Return a key range as a JSON list ``[lower, upper, nulls]``; an open bound is ``null``."""
    return _ENCODE([key_range.lower, key_range.upper, key_range.nulls])


def decode_range(text: str) -> KeyRange:
    """Return the key range that ``encode_range`` wrote."""
    return _read("a key range", lambda: _range(text))


def _range(text: str) -> KeyRange:
    lower, upper, nulls = json.loads(text)
    if not isinstance(nulls, bool):
        raise TypeError("[lower, upper, nulls] was expected")
    return KeyRange(None if lower is None else _key(lower), None if upper is None else _key(upper), nulls)


def encode_chunk(result: ChunkResult) -> dict[str, Any]:
    """Return the columns of a chunk attempt, without ``scope`` and ``seq``. Sums are decimal text."""
    row = {name: getattr(result, name) for name in _CHUNK_COLUMNS}
    row |= {"key_range": encode_range(result.range), "state": result.state.value}
    for side, checksum in zip(_SIDES, (result.source, result.target), strict=True):
        for name in _SUMS:
            value = None if checksum is None else getattr(checksum, name)
            row[f"{side}_{name}"] = str(value) if name in _TEXT_SUMS and value is not None else value
    return row


def decode_chunk(pair: str, row: Row) -> ChunkResult:
    """Return the chunk attempt that ``encode_chunk`` wrote."""

    def chunk() -> ChunkResult:
        plain = {name: row[name] for name in _CHUNK_COLUMNS}
        source, target = (_checksum(row, side) for side in _SIDES)
        state = ChunkState(row["state"])
        return ChunkResult(
            pair=pair, range=_range(row["key_range"]), state=state, source=source, target=target, **plain
        )

    return _read(f"a chunk of {pair}", chunk)


def _checksum(row: Row, side: str) -> ChunkChecksum | None:
    if row[f"{side}_rows"] is None:
        return None
    return ChunkChecksum(*(int(row[f"{side}_{name}"]) for name in _SUMS))


def encode_diff(diff: RowDiff) -> dict[str, Any]:
    """Return the columns of a row diff, without ``scope`` and ``number``."""
    row_key = encode_key(diff.key)
    columns = [(c.column, c.source, c.target, c.kind, c.masked) for c in diff.columns]
    return {
        "key_hash": key_digest(row_key),
        "row_key": row_key,
        "kind": diff.kind.value,
        "state": diff.state.value,
        "column_diffs": _ENCODE(columns),
        **{name: getattr(diff, name) for name in _DIFF_COLUMNS},
    }


def decode_diff(pair: str, row: Row) -> RowDiff:
    """Return the row diff that ``encode_diff`` wrote."""

    def diff() -> RowDiff:
        plain = {name: row[name] for name in _DIFF_COLUMNS}
        columns = tuple(ColumnDiff(*parts) for parts in json.loads(row["column_diffs"]))
        key, kind, state = _key(json.loads(row["row_key"])), DiffKind(row["kind"]), LiveState(row["state"])
        return RowDiff(pair, key, kind, state, columns, **plain)

    return _read(f"a row diff of {pair}", diff)


def encode_table_result(result: TableResult) -> str:
    """Return a table result as one JSON object; ``details`` must be what JSON can hold."""
    return encode_json(encode(result), f"the result of {result.pair}")


def decode_table_result(text: str) -> TableResult:
    """Return the table result that ``encode_table_result`` wrote. Keys of ``details`` come back as text."""
    return _read("a table result", lambda: decode(TableResult, json.loads(text)))


def _read(what: str, work: Callable[[], T]) -> T:
    try:
        return work()
    except (KeyError, TypeError, ValueError, RecursionError) as cause:
        raise StoreError(
            f"{what} in the store is damaged: {cause}",
            hint="Something other than migverify wrote to the store; verify again into a new one.",
        ) from cause

"""What a stored row looks like: nouns to columns and back, without I/O.

Everything of open length is JSON in ASCII (with escapes), so that no character set between here and the store
can change it, and a NUL or an emoji in a key is the same bytes everywhere. Integers in JSON have no width: sums
above 2^63 stay exact. ``None`` is JSON's ``null``, never a word.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

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
    NotCovered,
    RowDiff,
    SchemaClass,
    SchemaDifference,
    TableResult,
    Verdict,
)

Row = Mapping[Any, Any]
"""A row of the store by column name."""

# One encoder for all: json.dumps with options of its own builds an encoder per call, which costs more than a key.
_ENCODE = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode


def encode_json(value: object, what: str) -> str:
    """Return ``value`` as ASCII JSON text; ``what`` names it in the ``StoreError`` for what JSON cannot hold."""
    try:
        return _ENCODE(value)
    except (TypeError, ValueError, RecursionError) as exc:
        raise StoreError(
            f"{what} cannot be stored as JSON: {exc}",
            hint="Only text, numbers, lists and mappings can be kept.",
        ) from exc


def decode_json(text: str, what: str) -> Any:
    """Return the value of JSON text; ``StoreError`` when the text is damaged."""
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError) as exc:
        raise _damaged(what, exc) from exc


def decode_object(text: str, what: str) -> dict[str, Any]:
    """Return the JSON object in ``text``; ``StoreError`` when it is damaged or not an object."""
    value = decode_json(text, what)
    if not isinstance(value, dict):
        raise _damaged(what, TypeError(f"an object was expected, got {type(value).__name__}"))
    return value


def encode_key(key: KeyText) -> str:
    """Return a key as a JSON list; two keys give the same text only when they are the same key."""
    return _ENCODE(key)


def decode_key(text: str) -> KeyText:
    """Return the key that ``encode_key`` wrote."""
    return _key(decode_json(text, "a key"))


def _key(parts: object) -> KeyText:
    if not isinstance(parts, list) or not all(part is None or isinstance(part, str) for part in parts):
        raise _damaged("a key", TypeError("a list of texts and nulls was expected"))
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
    body = decode_json(text, "a key range")
    if not isinstance(body, list) or len(body) != 3 or not isinstance(body[2], bool):
        raise _damaged("a key range", TypeError("[lower, upper, nulls] was expected"))
    lower, upper, nulls = body
    return KeyRange(
        lower=None if lower is None else _key(lower), upper=None if upper is None else _key(upper), nulls=nulls
    )


def encode_chunk(result: ChunkResult) -> dict[str, Any]:
    """Return the columns of a chunk attempt, without ``scope`` and ``seq``. Sums are decimal text."""
    source, target = result.source, result.target
    return {
        "span": result.span,
        "number": result.number,
        "key_range": encode_range(result.range),
        "state": result.state.value,
        "source_rows": None if source is None else source.rows,
        "source_hashed": None if source is None else source.hashed,
        "source_exact": None if source is None else str(source.exact),
        "source_value": None if source is None else str(source.value),
        "target_rows": None if target is None else target.rows,
        "target_hashed": None if target is None else target.hashed,
        "target_exact": None if target is None else str(target.exact),
        "target_value": None if target is None else str(target.value),
        "started": result.started,
        "seconds": result.seconds,
        "source_seconds": result.source_seconds,
        "target_seconds": result.target_seconds,
        "attempts": result.attempts,
        "reason": result.reason,
    }


def decode_chunk(pair: str, row: Row) -> ChunkResult:
    """Return the chunk attempt that ``encode_chunk`` wrote."""
    try:
        return ChunkResult(
            pair=pair,
            span=row["span"],
            number=row["number"],
            range=decode_range(row["key_range"]),
            state=ChunkState(row["state"]),
            source=_checksum(row, "source"),
            target=_checksum(row, "target"),
            started=row["started"],
            seconds=row["seconds"],
            source_seconds=row["source_seconds"],
            target_seconds=row["target_seconds"],
            attempts=row["attempts"],
            reason=row["reason"],
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise _damaged(f"a chunk of {pair}", exc) from exc


def _checksum(row: Row, side: str) -> ChunkChecksum | None:
    if row[f"{side}_rows"] is None:
        return None
    return ChunkChecksum(
        rows=int(row[f"{side}_rows"]),
        hashed=int(row[f"{side}_hashed"]),
        exact=int(row[f"{side}_exact"]),
        value=int(row[f"{side}_value"]),
    )


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
        "source_checksum": diff.source_checksum,
        "target_checksum": diff.target_checksum,
        "source_count": diff.source_count,
        "target_count": diff.target_count,
        "shard": diff.shard,
        "read_at": diff.read_at,
    }


def decode_diff(pair: str, row: Row) -> RowDiff:
    """Return the row diff that ``encode_diff`` wrote."""
    try:
        return RowDiff(
            pair=pair,
            key=decode_key(row["row_key"]),
            kind=DiffKind(row["kind"]),
            state=LiveState(row["state"]),
            columns=tuple(ColumnDiff(*parts) for parts in decode_json(row["column_diffs"], "a row diff")),
            source_checksum=row["source_checksum"],
            target_checksum=row["target_checksum"],
            source_count=row["source_count"],
            target_count=row["target_count"],
            shard=row["shard"],
            read_at=row["read_at"],
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise _damaged(f"a row diff of {pair}", exc) from exc


def encode_table_result(result: TableResult) -> str:
    """Return a table result as one JSON object; ``details`` must be what JSON can hold."""
    return encode_json(asdict(result), f"the result of {result.pair}")


def decode_table_result(text: str) -> TableResult:
    """Return the table result that ``encode_table_result`` wrote. Keys of ``details`` come back as text."""
    body = decode_object(text, "a table result")
    try:
        body["verdict"] = Verdict(body["verdict"])
        body["not_covered"] = tuple(NotCovered(**item) for item in body["not_covered"])
        body["schema"] = tuple(
            SchemaDifference(**{**item, "level": SchemaClass(item["level"])}) for item in body["schema"]
        )
        for name in ("reasons", "lanes", "blind_spots"):
            body[name] = tuple(body[name])
        return TableResult(**body)
    except (KeyError, TypeError, ValueError) as exc:
        raise _damaged("a table result", exc) from exc


def _damaged(what: str, cause: Exception) -> StoreError:
    return StoreError(
        f"{what} in the store is damaged: {cause}",
        hint="Something other than migverify wrote to the store; verify again into a new one.",
    )

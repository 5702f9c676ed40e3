"""What a stored row holds: nouns to columns and back, without I/O.

Everything of open length is JSON in ASCII (with escapes), so that no character set between here and the store
can change it, and a NUL or an emoji in a key is the same bytes everywhere. Integers in JSON have no width: sums
above 2^63 stay exact. ``None`` is JSON's ``null``, never a word. Whole nouns go through ``migverify.codec``; chunks and
row diffs, of which there are millions, have a column for each field.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from migverify.codec import decode
from migverify.errors import StoreError
from migverify.model import ChunkChecksum, ChunkResult, ChunkState, ColumnDiff, DiffKind, KeyRange, LiveState, RowDiff

T = TypeVar("T")

# One encoder for all: json.dumps with options of its own builds an encoder per call, which costs more than a key.
encode_plain = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode

NAME_LENGTH = 190
"""Most characters of a side, purpose, blob or window: 4 bytes each, twice, fit an index of 3,072 bytes."""

CHUNK_COLUMNS = (
    "span", "number", "key_range", "state",
    "source_rows", "source_hashed", "source_exact", "source_value",
    "target_rows", "target_hashed", "target_exact", "target_value",
    "started", "seconds", "source_seconds", "target_seconds", "attempts", "reason",
)  # fmt: skip
DIFF_COLUMNS = (
    "row_key", "kind", "state", "column_diffs",
    "source_checksum", "target_checksum", "source_count", "target_count", "shard", "read_at",
)  # fmt: skip


def encode_json(value: object, what: str) -> str:
    """Return ``value`` as ASCII JSON text; ``what`` names it in the ``StoreError`` for what JSON cannot hold."""
    try:
        return encode_plain(value)
    except (TypeError, ValueError, RecursionError) as exc:
        raise StoreError(
            f"{what} cannot be stored as JSON: {exc}",
            hint="Only text, numbers, lists and mappings can be kept.",
        ) from exc


def decode_json(kind: type[T], text: str, what: str) -> T:
    """Return the value of type ``kind`` in a JSON text; ``StoreError`` when it is damaged or of another type."""
    return _checked(what, lambda: decode(kind, json.loads(text)))


def decode_object(text: str, what: str) -> dict[str, Any]:
    """Return the JSON object in ``text``; ``StoreError`` when it is damaged or not an object."""
    return decode_json(dict[str, Any], text, what)


def digest(text: str) -> bytes:
    """SHA-256 (32 bytes) of a text, lone surrogates included: what is indexed, since texts have no bound."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def encode_range(key_range: KeyRange) -> str:
    """Return a key range as a JSON list ``[lower, upper, nulls]``; an open bound is ``null``."""
    return encode_plain([key_range.lower, key_range.upper, key_range.nulls])


def decode_range(text: str) -> KeyRange:
    """Return the key range that ``encode_range`` wrote."""
    return _checked("a key range", lambda: _range(text))


def encode_chunk(result: ChunkResult) -> dict[str, Any]:
    """Return ``CHUNK_COLUMNS`` of a chunk attempt. Sums are decimal text: they pass 2^63 after a dozen rows."""
    values = (
        result.span, result.number, encode_range(result.range), result.state.value,
        *_sums(result.source), *_sums(result.target),
        result.started, result.seconds, result.source_seconds, result.target_seconds, result.attempts, result.reason,
    )  # fmt: skip
    return dict(zip(CHUNK_COLUMNS, values, strict=True))


def decode_chunk(pair: str, row: Sequence[Any]) -> ChunkResult:
    """Return the chunk attempt whose ``CHUNK_COLUMNS`` are ``row``."""

    def chunk() -> ChunkResult:
        span, number, key_range, state = row[:4]
        source, target = _checksum(row[4:8]), _checksum(row[8:12])
        return ChunkResult(pair, span, number, _range(key_range), ChunkState(state), source, target, *row[12:])

    return _checked(f"a chunk of {pair}", chunk)


def encode_diff(diff: RowDiff) -> dict[str, Any]:
    """Return ``DIFF_COLUMNS`` of a row diff, and the ``key_hash`` by which it is found."""
    row_key = encode_plain(diff.key)
    columns = [(c.column, c.source, c.target, c.kind, c.masked) for c in diff.columns]
    values = (
        row_key, diff.kind.value, diff.state.value, encode_plain(columns),
        diff.source_checksum, diff.target_checksum, diff.source_count, diff.target_count, diff.shard, diff.read_at,
    )  # fmt: skip
    return {"key_hash": digest(row_key), **dict(zip(DIFF_COLUMNS, values, strict=True))}


def decode_diff(pair: str, row: Sequence[Any]) -> RowDiff:
    """Return the row diff whose ``DIFF_COLUMNS`` are ``row``."""

    def diff() -> RowDiff:
        row_key, kind, state, columns = row[:4]
        changed = tuple(ColumnDiff(*parts) for parts in json.loads(columns))
        return RowDiff(pair, _key(json.loads(row_key)), DiffKind(kind), LiveState(state), changed, *row[4:])

    return _checked(f"a row diff of {pair}", diff)


def encode_window(rule: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a window of a rule; ``StoreError`` for one without a window or a state."""
    window, state = body.get("window"), body.get("state")
    if not isinstance(window, str) or not isinstance(state, str):
        raise StoreError(f"a window of {rule} has no text for `window` or `state`: it cannot be stored")
    check_name(window, f"window of {rule}")
    return {"window_text": window, "state": state, "body": encode_json(dict(body), f"a window of {rule}")}


def encode_finding(rule: str, finding: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a finding; ``StoreError`` for one without key, window or kind."""
    key, window, kind = finding.get("key"), finding.get("window"), finding.get("kind")
    if not isinstance(key, list | tuple) or not isinstance(window, str) or not isinstance(kind, str):
        raise StoreError(f"a finding of {rule} has no `key`, `window` or `kind`: it cannot be stored")
    # Window and key together: the same key in another window is another finding.
    place = encode_json([window, list(key)], f"the key of a finding of {rule}")
    body = encode_json(dict(finding), f"a finding of {rule}")
    return {"key_hash": digest(place), "kind": kind, "body": body, "window_hash": digest(window)}


def check_name(name: str, what: str) -> None:
    """Raise ``StoreError`` for a name that is too long for the keys of some databases."""
    if len(name) > NAME_LENGTH:
        raise StoreError(f"a {what} of {len(name)} characters cannot be stored; at most {NAME_LENGTH} can")


def _key(parts: object) -> tuple[str | None, ...]:
    if not isinstance(parts, list) or not all(part is None or isinstance(part, str) for part in parts):
        raise TypeError("a list of texts and nulls was expected")
    return tuple(parts)


def _range(text: str) -> KeyRange:
    lower, upper, nulls = json.loads(text)
    if not isinstance(nulls, bool):
        raise TypeError("[lower, upper, nulls] was expected")
    return KeyRange(None if lower is None else _key(lower), None if upper is None else _key(upper), nulls)


def _sums(checksum: ChunkChecksum | None) -> tuple[Any, ...]:
    if checksum is None:
        return (None, None, None, None)
    return checksum.rows, checksum.hashed, str(checksum.exact), str(checksum.value)


def _checksum(columns: Sequence[Any]) -> ChunkChecksum | None:
    rows, hashed, exact, value = columns
    return None if rows is None else ChunkChecksum(int(rows), int(hashed), int(exact), int(value))


def _checked(what: str, work: Callable[[], T]) -> T:
    try:
        return work()
    except (KeyError, TypeError, ValueError, RecursionError) as cause:
        raise StoreError(
            f"{what} in the store is damaged: {cause}",
            hint="Something other than migverify wrote to the store; verify again into a new one.",
        ) from cause

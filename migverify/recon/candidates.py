"""Keys that differed once, kept on disk until they are read again: memory does not grow with their number.

They come back in the order of their keys, whichever engine joined them: findings have one order on both.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from types import TracebackType
from typing import Any, Self

from migverify.model import ColumnDef, KeyText, LiveState
from migverify.recon.relation import KeyRows, Pairing
from migverify.sql.canonical import FAMILIES
from migverify.watch.lifecycle import Criteria, Finding, Read, advance

_NUMBERS = frozenset({"integer", "decimal", "float", "year", "bit"})
_NULL, _NUMBER, _TEXT = b"\x00", b"\x01", b"\x02"
_MIRRORED = bytes.maketrans(b"0123456789", b"9876543210")
_CACHE_KIB = 8192
_AT_ONCE = 500


def key_order(key: KeyText, columns: Sequence[ColumnDef]) -> bytes:
    """Return bytes that sort as keys of these columns do.

    NULL comes first, numbers and times by their value, then everything else by the bytes of its text. A part that is no
    number although its column holds numbers comes after the numbers.
    """
    families = [FAMILIES.get(column.data_type, "") for column in columns]
    families += [""] * (len(key) - len(families))
    return b"".join(_part_order(text, family) for text, family in zip(key, families, strict=False))


def _part_order(text: str | None, family: str) -> bytes:
    if text is None:
        return _NULL
    if family == "integer" and text.isdecimal() and text.isascii():
        whole = text.lstrip("0")
        return b"%b1%05d%b.\x00" % (_NUMBER, len(whole), whole.encode())
    number = _number(text, family)
    if number is not None:
        return _NUMBER + _number_order(number)
    # A byte 0 ends the part, and one inside of it does not: (a) sorts before (a, b).
    return _TEXT + text.encode("utf-8", "surrogateescape").replace(b"\x00", b"\x00\xff") + b"\x00\x01"


def _number(text: str, family: str) -> Decimal | None:
    try:
        if family == "time":
            hours, minutes, seconds = text.removeprefix("-").split(":")
            value = Decimal(hours) * 3600 + Decimal(minutes) * 60 + Decimal(seconds)
            return -value if text.startswith("-") else value
        found = Decimal(text) if family in _NUMBERS else None
    except (InvalidOperation, ValueError):
        return None
    return found if found is not None and found.is_finite() else None


def _number_order(number: Decimal) -> bytes:
    whole, _, fraction = f"{abs(number):f}".partition(".")
    whole = whole.lstrip("0")
    digits = f"{len(whole):05d}{whole}.{fraction.rstrip('0')}".encode()
    return b"0" + digits.translate(_MIRRORED) + b"~" if number < 0 else b"1" + digits + b"\x00"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A key that differed in every read so far: what was read first and last, and what is known of it.

    ``reads`` are all reads; ``still`` counts the last ones that gave the same texts as the read before them, since rows
    that change between two reads are being written.
    """

    first: Pairing
    last: Pairing
    state: LiveState = LiveState.UNCONFIRMED
    reads: int = 1
    still: int = 0

    @classmethod
    def of(cls, pairing: Pairing) -> Candidate:
        """Take a key that was read once."""
        return cls(pairing, pairing)

    def again(self, pairing: Pairing, criteria: Criteria, *, applied_past: bool) -> Candidate:
        """Return the candidate after one more read."""
        finding = Finding(look_of(self.last), self.state, self.reads, self.still)
        finding = advance(finding, Read(look_of(pairing), applied_past=applied_past), criteria)
        return Candidate(self.first, pairing, finding.state, finding.reads, finding.still)


def look_of(pairing: Pairing) -> tuple[object, ...]:
    """Return what a read showed of both sides; equal where neither moved."""
    return _seen(pairing.source), _seen(pairing.target)


def _seen(held: KeyRows | None) -> tuple[object, ...] | None:
    return None if held is None else (held.count, held.values, held.unlike, held.mixed)


class Candidates:
    """Candidates in a temporary database: written once from the start to the end, then read in batches.

    Parameters
    ----------
    columns
        The columns of their keys, whose types give the order.
    """

    def __init__(self, columns: Sequence[ColumnDef] = ()) -> None:
        self._columns = columns
        self._base = sqlite3.connect("")  # the empty name: a temporary file that SQLite itself removes
        self._base.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self._base.execute("PRAGMA journal_mode = OFF")
        self._base.execute("CREATE TABLE candidates (place BLOB, body TEXT)")
        self._waiting: list[tuple[bytes, str]] = []
        self.count = 0

    def add(self, candidate: Candidate) -> None:
        """Append one."""
        body = [
            _pairing(candidate.first), _pairing(candidate.last), candidate.state, candidate.reads, candidate.still
        ]  # fmt: skip
        # ASCII: texts hold the server's bytes, whatever they are.
        row = key_order(candidate.first.key, self._columns), json.dumps(body, separators=(",", ":"))
        self._waiting.append(row)
        self.count += 1
        if len(self._waiting) >= _AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        self._base.executemany("INSERT INTO candidates VALUES (?, ?)", self._waiting)
        self._waiting.clear()

    def batches(self, size: int) -> Iterator[list[Candidate]]:
        """Yield all of them by their keys, ``size`` at a time."""
        self._flush()
        cursor = self._base.execute("SELECT body FROM candidates ORDER BY place, body")
        while rows := cursor.fetchmany(size):
            yield [_candidate(json.loads(body)) for (body,) in rows]

    def close(self) -> None:
        """Delete them."""
        self._base.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _pairing(pairing: Pairing) -> list[Any]:
    return [pairing.key, _held(pairing.source), _held(pairing.target)]


def _held(held: KeyRows | None) -> list[Any] | None:
    return None if held is None else [held.count, held.values, held.unlike, held.shards, held.mixed]


def _candidate(body: list[Any]) -> Candidate:
    return Candidate(_pairing_of(body[0]), _pairing_of(body[1]), LiveState(body[2]), body[3], body[4])


def _pairing_of(body: list[Any]) -> Pairing:
    return Pairing(tuple(body[0]), _held_of(body[1]), _held_of(body[2]))


def _held_of(body: list[Any] | None) -> KeyRows | None:
    return None if body is None else KeyRows(body[0], tuple(body[1]), body[2], tuple(body[3]), body[4])

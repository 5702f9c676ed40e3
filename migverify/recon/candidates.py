"""Keys that differed and findings, on disk until they are decided: memory does not grow with their number.

Candidates come back in the order of their keys, whichever engine joined them: findings have one order on both.
"""

from __future__ import annotations

import pickle
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Self, TypeVar

from migverify.model import ColumnDef, KeyText, LiveState
from migverify.recon.relation import KeyRows, Pairing
from migverify.sql.canonical import FAMILIES
from migverify.watch.lifecycle import Criteria, Finding, Read, advance

T = TypeVar("T")

_INTEGER = re.compile("-?[0-9]{1,20}")
_NULL, _NUMBER, _TEXT = b"\x00", b"\x01", b"\x02"
_CACHE_KIB = 8192


class Spill(Generic[T]):
    """Values in a temporary database: written once from the start to the end, then read in pages."""

    def __init__(self) -> None:
        self._base = sqlite3.connect("")  # the empty name: a temporary file that SQLite itself removes
        for statement in (f"PRAGMA cache_size = -{_CACHE_KIB}", "PRAGMA journal_mode = OFF"):
            self._base.execute(statement)
        self._base.execute("CREATE TABLE spill (place BLOB, value BLOB)")
        self.count = 0

    def add(self, values: Iterable[T], place: bytes = b"") -> None:
        """Append values; they come back by their place, then in the order in which they were added."""
        rows = [(place, pickle.dumps(value)) for value in values]
        self._base.executemany("INSERT INTO spill VALUES (?, ?)", rows)
        self.count += len(rows)

    def pages(self, size: int) -> Iterator[tuple[list[T], bool]]:
        """Yield all values, ``size`` at a time, each page with whether it is the last; one empty page for none."""
        cursor = self._base.execute("SELECT value FROM spill ORDER BY place, rowid")
        rows = cursor.fetchmany(size)
        while True:
            following = cursor.fetchmany(size)
            # Nobody else writes to it: the file of the database has no name.
            yield [pickle.loads(value) for (value,) in rows], not following  # noqa: S301
            if not following:
                return
            rows = following

    def close(self) -> None:
        """Delete them."""
        self._base.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class CandidateKey:
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
    def of(cls, pairing: Pairing) -> CandidateKey:
        """Take a key that was read once."""
        return cls(pairing, pairing)

    def again(self, pairing: Pairing, criteria: Criteria, *, applied_past: bool) -> CandidateKey:
        """Return the candidate after one more read."""
        finding = Finding(look_of(self.last), self.state, self.reads, self.still)
        finding = advance(finding, Read(look_of(pairing), applied_past=applied_past), criteria)
        return CandidateKey(self.first, pairing, finding.state, finding.reads, finding.still)


def look_of(pairing: Pairing) -> tuple[object, ...]:
    """Return what a read showed of both sides; equal where neither moved."""
    return _seen(pairing.source), _seen(pairing.target)


def _seen(held: KeyRows | None) -> tuple[object, ...] | None:
    return None if held is None else (held.count, held.values, held.differing, held.mixed)


class Candidates(Spill[CandidateKey]):
    """Candidates by their keys, whose columns give the order."""

    def __init__(self, columns: Sequence[ColumnDef] = ()) -> None:
        super().__init__()
        self._columns = columns

    def put(self, candidate: CandidateKey) -> None:
        """Append one."""
        # Equal numbers may differ in their text, which then decides.
        key = candidate.first.key
        self.add([candidate], key_order(key, self._columns) + key_order(key, ()))

    def batches(self, size: int) -> Iterator[list[CandidateKey]]:
        """Yield all of them by their keys, ``size`` at a time."""
        return (page for page, _ in self.pages(size) if page)


def key_order(key: KeyText, columns: Sequence[ColumnDef]) -> bytes:
    """Return bytes that sort as keys of these columns do: NULL, whole numbers by value, all else by its bytes."""
    families = [FAMILIES.get(column.data_type, "") for column in columns] + [""] * len(key)
    return b"".join(_part_order(text, family) for text, family in zip(key, families, strict=False))


def _part_order(text: str | None, family: str) -> bytes:
    if text is None:
        return _NULL
    if family == "integer" and _INTEGER.fullmatch(text):
        return b"%b%021d" % (_NUMBER, int(text) + (1 << 64))
    # A byte 0 ends the part, and one inside of it does not: (a) sorts before (a, b).
    return _TEXT + text.encode("utf-8", "surrogateescape").replace(b"\x00", b"\x00\xff") + b"\x00\x01"

"""Checksums over the rows of an answer that is too large to be kept: of their sequence and of their multiset."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from migverify.workload.replay.model import Cell


class RowSums:
    """Takes rows one by one. Cells are framed by their length and NULL has a mark, so unlike rows frame unlike.

    ``ordered`` is the SHA-256 of the rows' SHA-256s in their order; ``unordered`` the sum of the first 128 bits of
    each as an integer, which two rows that cancel cannot reach as they can with XOR.
    """

    __slots__ = ("_chain", "unordered")

    def __init__(self, rows: Iterable[Sequence[Cell]] = ()) -> None:
        self._chain = hashlib.sha256()
        self.unordered = 0
        for row in rows:
            self.add(row)

    def add(self, row: Sequence[Cell]) -> None:
        """Take in the next row."""
        framed = b"".join([b"N" if cell is None else b"%d:%b" % (len(cell), cell) for cell in row])
        digest = hashlib.sha256(framed).digest()
        self._chain.update(digest)
        self.unordered += int.from_bytes(digest[:16], "big")

    @property
    def ordered(self) -> bytes:
        """The checksum of the sequence so far."""
        return self._chain.digest()


def checksums(rows: Iterable[Sequence[Cell]]) -> tuple[bytes, int]:
    """Return ``(ordered, unordered)`` of rows that were kept, to compare with an answer whose rows were not."""
    sums = RowSums(rows)
    return sums.ordered, sums.unordered

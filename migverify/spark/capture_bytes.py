"""Numbers and times of thousands of records of a log at once, read off its bytes without an object for any of them.

Eight bytes at a place are one integer: digits of a number are counted and summed in it by a handful of operations
(the known "SIMD within a register" parse of decimal digits).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

PAD = bytes(4096)
"""Zero bytes behind a block: a walk that began in it and went wrong ends in them, and no place has to be checked."""
_SIGNS = b"\n'\"`\\#-/@;"
_ARE_SIGNS = bytes(byte in _SIGNS for byte in range(256))
_ONES = np.uint64(0x0101010101010101)
_COMMAS = np.uint64(0x2C2C2C2C2C2C2C2C)
_TOPS = np.uint64(0x8080808080808080)
_ZEROS = np.uint64(0x3030303030303030)
_SIXES = np.uint64(0x0606060606060606)
_HIGH = np.uint64(0xF0F0F0F0F0F0F0F0)
_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_MICROS = 1_000_000


class Block:
    """The bytes of a block: one by one, and as the eight-byte integers that begin at each of them."""

    def __init__(self, data: bytes) -> None:
        padded = data + PAD
        self.data = data
        self.size = len(data)
        self.bytes = np.frombuffer(padded, np.uint8)
        self.words: NDArray[np.uint64] = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
        self._signs: Ints = np.flatnonzero(np.frombuffer(data.translate(_ARE_SIGNS), np.bool_))
        self._which = self.bytes[self._signs]
        self.breaks = self.places(b"\n")

    def places(self, char: bytes, following: bytes = b"") -> Ints:
        """Return the places of a sign (a line end, a quote, a backslash or one of ``# - / @ ;``).

        Where ``following`` is told, only of those that it follows.
        """
        found: Ints = self._signs[self._which == char[0]]
        if following:
            found = found[self.bytes[found + 1] == following[0]]
        return found


class Walker:
    """A place in each of many records, moved on by what stands there; ``ok`` tells where all stood that had to."""

    def __init__(self, block: Block, at: Ints) -> None:
        self._block = block
        self.at = at.copy()
        self.ok: Flags = np.ones(len(at), np.bool_)

    @classmethod
    def within(cls, other: Walker, rows: Ints) -> Walker:
        """Return one that goes on from some of another's places."""
        return cls(other._block, other.at[rows])

    def _word(self, ahead: int = 0) -> NDArray[np.uint64]:
        return self._block.words[self.at + ahead]

    def literal(self, text: bytes) -> None:
        """Pass a text that must stand here."""
        self.ok &= self.stands(text)
        self.at += len(text)

    def stands(self, text: bytes) -> Flags:
        """Tell where a text stands, without passing it."""
        found: Flags = np.ones(len(self.at), np.bool_)
        for ahead in range(0, len(text), 8):
            part = text[ahead : ahead + 8]
            wanted = np.uint64(int.from_bytes(part, "little"))
            mask = np.uint64((1 << 8 * len(part)) - 1)
            found &= (self._word(ahead) & mask) == wanted
        return found

    def digits(self, most: int = 16) -> Ints:
        """Pass a number of one to ``most`` (16 at the most) digits and return it."""
        value, count = _leading(self._word())
        if most > 8:
            more = count == 8
            if more.any():
                rest, further = _leading(self._block.words[self.at[more] + 8])
                value[more] = value[more] * 10**further + rest
                count[more] += further
                self.ok &= count < 16
        self.ok &= (count > 0) & (count <= most)
        self.at += count
        return value

    def exactly(self, count: int) -> Ints:
        """Pass so many digits (8 at the most) and return their number."""
        shifted = self._word() << np.uint64(8 * (8 - count))
        filled = shifted | (_ZEROS & np.uint64((1 << 8 * (8 - count)) - 1))
        value, found = _leading(filled)
        self.ok &= found == 8
        self.at += count
        return value

    def spaces(self) -> None:
        """Pass spaces, if there are any."""
        self._pass_while(lambda byte: byte == 32)

    def solid(self) -> None:
        """Pass at least one byte that is no white space."""
        before = self.at.copy()
        self._pass_while(lambda byte: (byte != 32) & ((byte < 9) | (byte > 13)) & (byte != 0))
        self.ok &= self.at > before

    def _pass_while(self, fits: Any) -> None:
        for _ in range(64):
            more = fits(self._block.bytes[self.at])
            if not more.any():
                return
            self.at += more
        self.ok &= ~fits(self._block.bytes[self.at])

    def until_comma(self) -> None:
        """Go on to the next comma, which has to be within 256 bytes."""
        rows: Ints = np.arange(len(self.at))
        for _ in range(32):
            other = self._block.words[self.at[rows]] ^ _COMMAS
            zero = (other - _ONES) & ~other & _TOPS  # the lowest of its bits is that of the first comma
            first = np.bitwise_count((zero & (~zero + np.uint64(1))) - np.uint64(1)).astype(np.int64) >> 3
            self.at[rows] += first
            rows = rows[first == 8]
            if not len(rows):
                return
        self.ok[rows] = False

    def utc(self) -> Ints:
        """Pass ``2026-01-02T03:04:05.678901Z`` and return Unix microseconds."""
        parts = [self._word(), self._word(8), self._word(16) & np.uint64(0xFFFFFF)]
        new = np.zeros(len(self.at), np.bool_)  # the second is read once for all records in a row that share it
        new[:1] = True
        for part in parts:
            new[1:] |= part[1:] != part[:-1]
        first = Walker(self._block, self.at[new])
        second = first._second()
        run = np.cumsum(new) - 1
        self.ok &= first.ok[run]
        self.at += 19
        self.literal(b".")
        micros = self.exactly(6)
        self.literal(b"Z")
        found: Ints = second[run] * _MICROS + micros
        return found

    def _second(self) -> Ints:
        year = self.exactly(4)
        self.literal(b"-")
        month = self.exactly(2)
        self.literal(b"-")
        day = self.exactly(2)
        self.literal(b"T")
        hour = self.exactly(2)
        self.literal(b":")
        minute = self.exactly(2)
        self.literal(b":")
        second = self.exactly(2)
        leap = (month == 2) & (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
        self.ok &= (year > 0) & (month >= 1) & (month <= 12)
        self.ok &= (day >= 1) & (day <= _DAYS[np.clip(month, 0, 12)] + leap)
        self.ok &= (hour < 24) & (minute < 60) & (second < 60)
        return ((_days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second


def _leading(words: NDArray[np.uint64]) -> tuple[Ints, Ints]:
    """Return the number that the digits at the beginning of eight bytes make, and how many they are."""
    low = words ^ _ZEROS  # a digit becomes 0 to 9
    odd = (low | (low + _SIXES)) & _HIGH  # not zero in a byte that is no digit; a carry only spoils bytes behind it
    first = (odd & (~odd + np.uint64(1))) - np.uint64(1)  # the bits before the first of them
    count: NDArray[np.uint64] = np.bitwise_count(first).astype(np.uint64) >> np.uint64(3)
    shift = np.uint64(64) - (count << np.uint64(3))
    digits = np.where(count == 0, np.uint64(0), low << np.minimum(shift, np.uint64(63)))
    digits = digits * np.uint64(10) + (digits >> np.uint64(8))
    digits = (
        (digits & np.uint64(0x000000FF000000FF)) * np.uint64(0x000F424000000064)
        + ((digits >> np.uint64(16)) & np.uint64(0x000000FF000000FF)) * np.uint64(0x0000271000000001)
    ) >> np.uint64(32)
    return digits.astype(np.int64), count.astype(np.int64)


def _days(year: Ints, month: Ints, day: Ints) -> Ints:
    """Return days since 1970-01-01 in the Gregorian calendar (Hinnant's days_from_civil)."""
    year = year - (month <= 2)
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    found: Ints = era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
    return found

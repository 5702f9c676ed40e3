"""Layouts of time-ordered 64-bit ids ("snowflakes"): a time field, then fields of the generator.

Sources: Twitter Snowflake (41/10/12 from 2010-11-04, milliseconds; Meituan Leaf uses the same), Baidu uid-generator
(28 bits of seconds, 22 of worker, 13 of sequence, epoch 1463673600), Sonyflake (39 bits of 10 ms, 8 of sequence, 16 of
machine, from 2014-09-01), Instagram (41 bits of milliseconds from 1314220021721, 13 of shard, 10 of sequence).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from migverify.errors import UsageError

ID_BITS = 63
"""An id is a positive signed 64-bit integer in every generator known here."""

_UNITS = {"ms": 1, "10ms": 10, "s": 1000}
_FIELDS = ("worker", "sequence")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the fields of an id stand.

    ``time_bits`` are the topmost of ``ID_BITS``; below them stand ``worker_bits`` and ``sequence_bits``, the worker
    above unless ``sequence_first``. ``unit`` is one tick in milliseconds, ``epoch`` the Unix time of tick 0 in
    milliseconds. ``split`` is False where the low bits is not known apart: then all of them count as worker, and
    neither workers nor sequences can be judged.
    """

    name: str
    time_bits: int
    worker_bits: int
    sequence_bits: int
    unit: int
    epoch: int
    sequence_first: bool = False
    split: bool = True

    @property
    def shift(self) -> int:
        """Bits below the time field."""
        return self.worker_bits + self.sequence_bits

    @property
    def end(self) -> int:
        """Unix time in milliseconds at which the time field has no more ticks."""
        return self.epoch + (1 << self.time_bits) * self.unit

    def tick(self, number: int) -> int:
        """Return the time field of an id."""
        return number >> self.shift

    def time(self, number: int) -> int:
        """Return the time of an id, Unix milliseconds."""
        return self.epoch + self.tick(number) * self.unit

    def worker(self, number: int) -> int:
        """Return the worker (machine, shard) of an id."""
        shift = 0 if self.sequence_first else self.sequence_bits
        return number >> shift & ((1 << self.worker_bits) - 1)

    def sequence(self, number: int) -> int:
        """Return the sequence of an id within its tick and worker."""
        shift = self.worker_bits if self.sequence_first else 0
        return number >> shift & ((1 << self.sequence_bits) - 1)

    def make(self, time: int, worker: int, sequence: int) -> int:
        """Return the id of a time in Unix milliseconds."""
        low = sequence << self.worker_bits | worker if self.sequence_first else worker << self.sequence_bits | sequence
        return (time - self.epoch) // self.unit << self.shift | low

    def __str__(self) -> str:
        unit = {1: "ms", 10: "10 ms", 1000: "s"}.get(self.unit, f"{self.unit} ms")
        low = f"{self.shift} low bits"
        if self.split:
            fields = ((self.sequence_bits, "sequence"), (self.worker_bits, "worker"))
            low = ", ".join(f"{bits} {name}" for bits, name in (fields if self.sequence_first else fields[::-1]))
        return f"{self.name}: {self.time_bits} bits of {unit} since {moment_text(self.epoch)}, {low}"


TWITTER = Layout("Twitter or Leaf", 41, 10, 12, 1, 1288834974657)
BAIDU = Layout("Baidu uid-generator", 28, 22, 13, 1000, 1463673600000)
SONYFLAKE = Layout("Sonyflake", 39, 16, 8, 10, 1409529600000, sequence_first=True)
INSTAGRAM = Layout("Instagram", 41, 13, 10, 1, 1314220021721)
# Instagram's 41 + 13 + 10 bits fill 64: a signed BIGINT holds its ids until 2046, an unsigned one until 2081.

KNOWN = (TWITTER, BAIDU, SONYFLAKE, INSTAGRAM)


def moment_text(milliseconds: float) -> str:
    """Return Unix milliseconds as ISO text in UTC, whole seconds; years beyond 9999 as a year."""
    try:
        return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):  # OSError: beyond what the C library's years can hold
        return f"year {1970 + int(milliseconds / 31_556_952_000)}"


def parse_layout(text: str) -> Layout:
    """Return a known layout by its name, or the one of ``TIME/WORKER/SEQUENCE:UNIT:EPOCH``.

    Names are twitter, leaf, baidu, sonyflake and instagram.
    ``UNIT`` is ms, 10ms or s; ``EPOCH`` a date, a time in ISO form (UTC) or Unix milliseconds. ``s`` behind a number of
    bits marks the sequence where it is before the worker: ``39/8s/16:10ms:2014-09-01``.

    Raises
    ------
    UsageError
        the text is neither.
    """
    named = {"twitter": TWITTER, "leaf": TWITTER, "baidu": BAIDU, "sonyflake": SONYFLAKE, "instagram": INSTAGRAM}
    if text.lower() in named:
        return named[text.lower()]
    found = re.fullmatch(r"(\d+)/(\d+)(s?)/(\d+):(ms|10ms|s):(.+)", text)
    if found is None:
        raise UsageError(
            f"{text!r} is no layout of ids.",
            hint=f"Give one of {', '.join(named)}, or bits, unit and epoch: 41/10/12:ms:2020-01-01.",
        )
    time, first, second = int(found[1]), int(found[2]), int(found[4])
    if time < 1 or time + first + second > ID_BITS + 1:
        raise UsageError(
            f"{text!r}: the fields have {time + first + second} bits.", hint="63 is the usual sum, 64 most."
        )
    worker, sequence = (second, first) if found[3] else (first, second)
    return Layout("given", time, worker, sequence, _UNITS[found[5]], _epoch(found[6], text), bool(found[3]))


def _epoch(text: str, whole: str) -> int:
    if text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{whole!r}: {text!r} is no time.", hint="Write 2020-01-01 or Unix milliseconds.") from error
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def candidates() -> Iterator[tuple[int, int]]:
    """Yield (shift, unit) of every layout that is tried on samples with times."""
    for shift in range(12, 42):
        for unit in (1, 10, 1000):
            yield shift, unit

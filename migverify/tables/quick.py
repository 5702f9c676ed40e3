"""Quick answers: which part of the tables a run reads, and what that part cannot show. Pure.

A quick answer may find a difference; it never proves that there is none. So its runs have a kind of their own in the
store, and each of its table pairs has a ``PairPart``, which keeps the pair from MATCH.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from migverify.errors import UsageError

MOST_RANGES = 100
"""Key ranges of a sample: many small ones meet a fault in one part of the table more often than a few large ones."""
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_INTERVAL = re.compile(r"([0-9]{1,6})([smhdw])\Z")
_SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%\Z")


class Level(StrEnum):
    """What of each row is compared."""

    COUNTS = "counts"
    KEYS = "keys"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class QuickRead:
    """What a run reads of each table. The run keeps it among its facts, so that a resumed run reads the same.

    ``share`` is the share of the key space as it was typed (``1%``), ``""`` for all of it. Of the rows only those are
    read whose ``column`` is at ``moment`` (UTC) or later on either side, ``interval`` before the run began.
    """

    level: Level = Level.ROWS
    share: str = ""
    seed: int = 0
    column: str = ""
    interval: str = ""
    moment: str = ""

    @property
    def is_partial(self) -> bool:
        """Whether the run reads less than all rows with all their columns."""
        return self.level is not Level.ROWS or bool(self.share) or bool(self.column)

    @property
    def words(self) -> str:
        """The options that give this part."""
        parts = [f"--level {self.level}"] if self.level is not Level.ROWS else []
        parts += [f"--sample {self.share} --seed {self.seed}"] if self.share else []
        parts += [f"--updated-since {self.column} {self.interval}"] if self.column else []
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class PairPart:
    """The part of one table pair that a run reads.

    ``unseen`` says in one sentence what it cannot show. ``refused`` says why the pair is not read at all, ``""`` when
    it is. ``conditions`` are those of the sides for reads by key: the configured ones, without that of the interval, so
    that a row which is recent on one side only is compared with the row of its key. ``scan`` says what is read slowly.
    """

    read: QuickRead
    unseen: str
    refused: str = ""
    conditions: tuple[str, ...] = ()
    scan: str = ""


def unseen_by(read: QuickRead, key: str) -> str:
    """Return what a part cannot show, in one sentence; ``key`` names the columns of the key."""
    if read.level is Level.COUNTS:
        return "counts cannot show rows with other values, or as many other rows in the place of some"
    sentences = []
    if read.level is Level.KEYS:
        sentences.append(f"keys cannot show other values in the columns outside of the key{f' ({key})' if key else ''}")
    if read.share:
        sentences.append(f"a sample cannot show differences outside of its key ranges ({read.share} of the key space,"
                         f" seed {read.seed})")  # fmt: skip
    if read.column:
        sentences.append(
            f"reading by {read.column} cannot show deleted rows, rows that were written without setting {read.column},"
            f" and rows with NULL in it: only rows with {read.column} at {read.moment} UTC or later on either side"
            " are read"
        )
    return ", and ".join(sentences)


def parse_interval(text: str) -> int:
    """Return the seconds of ``90s``, ``15m``, ``2h``, ``7d`` or ``2w``.

    Raises
    ------
    UsageError
        it is none of these.
    """
    match = _INTERVAL.match(text)
    seconds = int(match[1]) * _SECONDS[match[2]] if match else 0
    if not 0 < seconds <= 3650 * 86400:
        raise UsageError(
            f"--updated-since: {text!r} is no interval",
            hint="Write a number and s, m, h, d or w: --updated-since updated_at 2h.",
        )
    return seconds


def parse_share(text: str) -> float:
    """Return the share of ``1%``: a number above 0 and below 1.

    Raises
    ------
    UsageError
        it is none.
    """
    match = _SHARE.match(text)
    share = float(match[1]) / 100 if match else 0.0
    if not 0 < share < 1:
        raise UsageError(f"--sample: {text!r} is no share", hint="Write a percentage below 100%: --sample 1%.")
    return share


def sampled_slices(size: int, share: float, seed: int, name: str) -> Iterator[tuple[int, int]]:
    """Yield slices (first, one after the last) of ``range(size)`` that hold a share of it, in order and disjoint.

    The range is cut into as many equal parts as there are slices, and each part has one slice at a random place: so the
    sample is spread over the table, and every place has the same chance. ``name`` makes tables differ under one seed.
    """
    if size <= 0:
        return
    total = min(size, max(1, round(size * share)))
    slices = min(MOST_RANGES, total)
    drawn, random = 0, Random(f"{seed}:{name}")
    for n in range(slices):
        begin, end = size * n // slices, size * (n + 1) // slices
        length = min(total * (n + 1) // slices - drawn, end - begin)
        drawn += length
        first = begin + random.randrange(end - begin - length + 1)
        yield first, first + length

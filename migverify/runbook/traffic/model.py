"""Traffic between the old and the new side: shares, the ladder of steps, sides of keys, and what drivers have to do.

Pure. A share is kept as whole hundredths of a percent, which is as fine as nginx splits: 5 % is 500. No float is ever
compared with a float.

The side of a key is decided by its hash alone: below a bar it goes to the new side. The bar rises with the share, so a
higher share moves keys from old to new and never one back, and the same key has one side at any given share. That is
what makes a split of writes bearable: two databases that take writes of the same key have no order between them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from migverify.errors import UsageError

if TYPE_CHECKING:
    from migverify.runbook.traffic.tally import TrafficTally

__all__ = [
    "FULL", "LADDER", "Driver", "InstanceReading", "Setting", "check_ladder", "check_step", "goes_to_new", "hundredths",
    "is_generation", "murmur2", "percent", "reading_of", "threshold",
]  # fmt: skip

FULL = 10_000
"""The share of everything, in hundredths of a percent."""
LADDER = (100, 500, 2500, 5000, FULL)
"""1, 5, 25, 50, 100 %: each step shows faults before the next one makes them dear."""
_GENERATION = re.compile(r"[0-9]{1,9}-[0-9a-f]{8}")
_WORD = 0xFFFFFFFF
_M = 0x5BD1E995


def hundredths(share: float) -> int:
    """Return a share of percent as whole hundredths.

    Raises
    ------
    UsageError
        it is below 0, above 100, no number, or finer than a hundredth of a percent.
    """
    if not math.isfinite(share) or not 0 <= share <= 100:
        raise UsageError(f"a share of {share:g} %", hint="A share is a number from 0 to 100.")
    found = round(share * 100)
    if abs(share * 100 - found) > 1e-6:
        raise UsageError(f"a share of {share:g} % is finer than 0.01 %, and nginx splits no finer")
    return found


def percent(share: int) -> str:
    """Spell a share: ``5``, ``0.5``, ``12.25``; without the sign."""
    return f"{share / 100:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class Setting:
    """What an instance is set to: the share of the new side, and which change of it that is.

    Parameters
    ----------
    share
        Of the new side, in hundredths of a percent.
    generation
        One for each change: a count and eight random digits, so that two writers never make the same one.
    was, previous
        Share and generation before; ``previous`` is empty for the first.
    at
        Unix time of the change.
    held
        The keys between the two shares are refused for a moment, on their way from one side to the other.
    """

    share: int
    generation: str
    was: int
    previous: str
    at: float
    held: bool = False

    def next(self, share: int, at: float, token: str) -> Setting:
        """Return the setting that follows this one; ``token`` is eight hexadecimal digits."""
        return Setting(share, f"{self.count + 1}-{token}", self.share, self.generation, at)

    @property
    def count(self) -> int:
        """How many changes there were before this one."""
        return int(self.generation.partition("-")[0])


def is_generation(text: str) -> bool:
    """Tell whether a text can be a generation."""
    return _GENERATION.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class InstanceReading:
    """What one instance answers about itself: a share and its generation, or why it is not known."""

    share: int | None = None
    generation: str = ""
    why: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def known(self) -> bool:
        """Whether there is an answer."""
        return self.share is not None

    def __str__(self) -> str:
        return self.why if self.share is None else f"{percent(self.share)} % ({self.generation})"


def reading_of(setting: Setting) -> InstanceReading:
    """Return a setting as a reading."""
    return InstanceReading(setting.share, setting.generation)


class Driver(Protocol):
    """How shares are set on one kind of proxy. A driver writes what it is given; the rules are in ``change``."""

    @property
    def instances(self) -> tuple[str, ...]:
        """Names of the proxies that share the traffic."""

    @property
    def sticky(self) -> bool:
        """Whether the same key always goes to the same side at one share."""

    @property
    def holds(self) -> bool:
        """Whether keys that change their side can be refused meanwhile (``Setting.held``)."""

    @property
    def predicts(self) -> Callable[[bytes, int], bool] | None:
        """Tells whether a key goes to the new side at a share; None: the driver's hash is not known."""

    def locked(self) -> AbstractContextManager[None]:
        """Keep every other writer of these instances out."""

    def configured(self, instance: str) -> Setting:
        """Return what is written for an instance; raises MigverifyError where that cannot be said for certain."""

    def write(self, instance: str, setting: Setting, expected: Setting | None) -> None:
        """Write and test a setting that is not served yet.

        ``expected`` is what has to be there still; None: anything. On any error the old one is there again.
        """

    def apply(self, instance: str) -> None:
        """Have an instance serve what is written; returns without knowing whether it does."""

    def served(self, instance: str) -> InstanceReading:
        """Return what an instance serves, from itself and not from its configuration."""

    def settled(self, instance: str, setting: Setting) -> InstanceReading:
        """Wait until an instance certainly serves a setting, in all of it, and return what it serves then."""

    def measure(self, instance: str, generations: Sequence[str], since: float) -> Mapping[str, TrafficTally]:
        """Count the requests of an instance that ended since a moment, for each of the generations they had."""


def check_ladder(rungs: Sequence[int], *, sticky: bool, writes: bool) -> None:
    """Refuse a ladder of shares that no switch should climb.

    Parameters
    ----------
    sticky
        The same key has the same side.
    writes
        The traffic changes data.

    Raises
    ------
    UsageError
        it is empty, does not rise, does not end at 100 %, or splits writes by chance.
    """
    if not rungs or rungs[-1] != FULL or list(rungs) != sorted(set(rungs)) or rungs[0] <= 0:
        raise UsageError("a ladder rises from above 0 to 100 %", hint="For example [1, 5, 25, 50, 100].")
    if writes and not sticky and tuple(rungs) != (FULL,):
        raise UsageError(
            "this driver gives no key one side: a part of the writes would go to one database, a part to the other",
            hint="Move writes all at once (ladder: [100]), or by a driver that splits by key.",
        )


def check_step(rungs: Sequence[int], now: int, share: int) -> None:
    """Refuse a step that is none of the ladder's: up by one rung at a time, down to anywhere.

    Raises
    ------
    UsageError
        the share is no rung, or rungs in between would be left out.
    """
    known = (0, *rungs)
    names = ", ".join(percent(rung) for rung in known)
    if share not in known:
        raise UsageError(f"{percent(share)} % is no step of the ladder {names}")
    left_out = [rung for rung in rungs if now < rung < share]
    if left_out:
        steps = ", ".join(percent(rung) for rung in left_out)
        raise UsageError(f"from {percent(now)} % to {percent(share)} % leaves out {steps} %")


def murmur2(key: bytes) -> int:
    """Return MurmurHash2 (Austin Appleby, public domain) of a key, 32 bits, with seed 0: the hash of split_clients."""
    length = len(key)
    h = length & _WORD
    end = length & ~3
    for n in range(0, end, 4):
        k = int.from_bytes(key[n : n + 4], "little") * _M & _WORD
        k = (k ^ k >> 24) * _M & _WORD
        h = h * _M & _WORD ^ k
    if length & 3:
        h = (h ^ int.from_bytes(key[end:], "little")) * _M & _WORD
    h = (h ^ h >> 13) * _M & _WORD
    return h ^ h >> 15


def threshold(share: int) -> int:
    """Return below which hash a key goes to the new side; above every hash at 100 %."""
    return share * _WORD // FULL if share < FULL else _WORD + 1


def goes_to_new(key: bytes, share: int) -> bool:
    """Tell whether a key goes to the new side at a share. A request without a key stays on the old side until 100 %.

    The hash of an empty key is 0, below every bar: by hash alone all requests without a key would move at 1 %.
    """
    return (bool(key) and murmur2(key) < threshold(share)) or share == FULL

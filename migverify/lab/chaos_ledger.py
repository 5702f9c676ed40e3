"""What clients were told about each of their writes, kept outside the servers, and what that proves afterwards.

A write is tried under a token of its own, and ends in one of three ways: acknowledged (it must be there, once),
refused (COMMIT was never sent, or the server said no to it: it must not be there), or unknown (the connection was lost
around COMMIT: it may be there, once). A try without an end is unknown too: its client was killed.

The ledger is a text file that is only appended to, a line per event: ``kind token clock [code text]``. The clock is
CLOCK_MONOTONIC, which all processes of a machine share, so that the moment of a fault can be held against it.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from migverify.errors import LabError

TRIED, ACKED, REFUSED, UNKNOWN = "T", "A", "N", "U"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One write: ``end`` is ``A``, ``N`` or ``U``; ``until`` None where nothing tells when it ended. Seconds."""

    token: int
    since: float
    until: float | None
    end: str
    code: int = 0
    text: str = ""


class LedgerWriter:
    """Appends events; used by the threads of one process. A line is on its way to the disk before a write begins."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._lock = threading.Lock()

    def note(self, kind: str, token: int, code: int = 0, text: str = "") -> None:
        """Write one event down."""
        words = " ".join(text.split())[:200]
        line = f"{kind} {token} {time.monotonic():.6f}{f' {code} {words}' if kind in (REFUSED, UNKNOWN) else ''}\n"
        with self._lock:
            os.write(self._handle, line.encode())

    def close(self) -> None:
        """Write no more."""
        os.close(self._handle)


def read_ledger(path: Path) -> tuple[Attempt, ...]:
    """Return all attempts, in the order in which they began.

    Raises
    ------
    LabError
        there is no ledger, or a line of it says what cannot be; a last line without its end is left out.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise LabError(
            f"there is no ledger {path}", hint="Start the load first: `migverify lab chaos start`."
        ) from None
    return parse_ledger(text, str(path))


def parse_ledger(text: str, where: str = "ledger") -> tuple[Attempt, ...]:
    """Return the attempts of a ledger's text; see ``read_ledger``."""
    found: dict[int, Attempt] = {}
    lines = text.split("\n")
    for number, line in enumerate(lines[:-1], 1):  # what follows the last newline was cut off by a kill
        parts = line.split(" ", 4)
        try:
            kind, token, at = parts[0], int(parts[1]), float(parts[2])
            known = found.get(token)
            if kind == TRIED and known is None:
                found[token] = Attempt(token, at, None, UNKNOWN, 0, "its client ended")
            elif kind in (ACKED, REFUSED, UNKNOWN) and known is not None and known.until is None:
                code = int(parts[3]) if kind != ACKED else 0
                words = parts[4] if kind != ACKED and len(parts) > 4 else ""
                found[token] = Attempt(token, known.since, at, kind, code, words)
            else:
                raise ValueError("out of order")
        except (ValueError, IndexError) as error:
            raise LabError(
                f"{where}:{number}: not a line of a ledger: {line[:80]!r} ({error})",
                hint="The ledger is damaged: this run proves nothing. Start the load again.",
            ) from None
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class Held:
    """What the table holds against what the clients were told: ``wrong`` tells whether anything is."""

    acked: int
    refused: int
    unknown: int
    lost: tuple[int, ...]
    twice: tuple[int, ...]
    there_though_refused: tuple[int, ...]
    never_tried: tuple[int, ...]
    unknown_there: int

    @property
    def wrong(self) -> bool:
        """Whether a single row is not as its client was told."""
        return bool(self.lost or self.twice or self.there_though_refused or self.never_tried)

    def describe(self) -> str:
        """Return one line with the counts, and the first tokens of what is wrong."""
        found = [f"{self.acked} acknowledged, {len(self.lost)} of them lost", f"{len(self.twice)} twice",
                 f"{self.refused} refused, {len(self.there_though_refused)} of them there",
                 f"{self.unknown} unknown, {self.unknown_there} of them there",
                 f"{len(self.never_tried)} that nobody wrote"]  # fmt: skip
        bad = (*self.lost, *self.twice, *self.there_though_refused, *self.never_tried)[:5]
        return "; ".join(found) + (f"; such as {', '.join(map(str, bad))}" if bad else "")


def hold_against(attempts: Iterable[Attempt], rows: Mapping[int, int]) -> Held:
    """Hold a table's rows, counted by token, against the ledger.

    Every acknowledged write is there exactly once, an unknown one at most once, a refused one not, and nothing else is.
    """
    ends = {one.token: one.end for one in attempts}
    count = Counter(ends.values())
    return Held(
        count[ACKED], count[REFUSED], count[UNKNOWN],
        lost=tuple(token for token, end in ends.items() if end == ACKED and not rows.get(token)),
        twice=tuple(token for token, number in rows.items() if number > 1),
        there_though_refused=tuple(token for token, end in ends.items() if end == REFUSED and rows.get(token)),
        never_tried=tuple(token for token in rows if token not in ends),
        unknown_there=sum(1 for token, end in ends.items() if end == UNKNOWN and rows.get(token)),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Steady:
    """A window of the ledger. ``rate`` per second; ``slowest`` seconds of one acknowledged write."""

    acked: int
    failed: int
    rate: float
    slowest: float
    codes: tuple[int, ...]


def steadiness(attempts: Sequence[Attempt], now: float, window: float) -> Steady:
    """Return how writing went in the last ``window`` seconds; a write that hangs longer than it counts as failed."""
    since = now - window
    ended = [one for one in attempts if one.until is not None and one.until >= since]
    acked = [one for one in ended if one.end == ACKED]
    bad = [one for one in ended if one.end != ACKED]
    hanging = [one for one in attempts if one.until is None and one.since < since]
    slowest = max((one.until - one.since for one in acked if one.until is not None), default=0.0)
    codes = tuple(sorted({one.code for one in bad}))
    return Steady(len(acked), len(bad) + len(hanging), len(acked) / window, slowest, codes)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a fault did to writing. Seconds; None: it never happened.

    Attributes
    ----------
    failed
        Attempts that were refused or unknown since the injection.
    stall
        The longest time since the injection in which no write was acknowledged.
    from_inject, from_remove
        From the injection, and from the removal, to the first acknowledged write behind the last failure or stall;
        ``from_remove`` is 0 where writing was well before the removal.
    """

    failed: int
    codes: tuple[int, ...]
    stall: float
    from_inject: float | None
    from_remove: float | None


def recovery(
    attempts: Sequence[Attempt], injected: float, removed: float, until: float, *, quiet: float = 1.0
) -> Recovery:
    """Measure how long writing was hurt between the injection and ``until``.

    Parameters
    ----------
    quiet
        A pause between two acknowledged writes that is longer than this counts as a stall, and hurts.
    """
    seen = [one for one in attempts if (one.until or until) >= injected]
    acks = sorted(one.until for one in seen if one.end == ACKED and one.until is not None and one.until <= until)
    bad = [one for one in seen if one.end != ACKED and one.since < until]
    pauses = [(after - before, after) for before, after in zip([injected, *acks], [*acks, until], strict=True)]
    hurt = max([injected, *(one.until if one.until is not None else until for one in bad)])
    stalls = [end for length, end in pauses if length > quiet]
    hurt_until = max([hurt, *stalls]) if stalls else hurt
    healthy = next((at for at in acks if at >= hurt_until), None)
    if not bad and not stalls:
        healthy = injected
    return Recovery(
        len(bad), tuple(sorted({one.code for one in bad})), max((length for length, _ in pauses), default=0.0),
        None if healthy is None else healthy - injected, None if healthy is None else max(0.0, healthy - removed),
    )  # fmt: skip

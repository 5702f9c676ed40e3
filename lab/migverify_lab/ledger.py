"""The answer that clients received to each of their writes, kept outside the servers, and what that proves afterwards.

A write is tried under a token of its own, and ends in one of three ways: acknowledged (it must be there, once),
refused (COMMIT was never sent, or the server said no to it: it must not be there), or unknown (the connection was lost
around COMMIT: it may be there, once). A try without an end is unknown too: its client was killed.

The ledger is a text file that is only appended to, a line per event: ``T token clock`` a try, ``A token clock [side]``
its acknowledgment, ``N token clock code text`` a refusal, ``U token clock code text`` an end that tells nothing. The
clock is CLOCK_MONOTONIC, which all processes of a machine share, so that the moment of a fault can be compared with it.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from migverify.errors import LabError

TRIED, ACKED, REFUSED, UNKNOWN = "T", "A", "N", "U"


@dataclass(frozen=True, slots=True)
class WriteAttempt:
    """One write: ``end`` is ``A``, ``N`` or ``U``; ``until`` None where nothing tells when it ended. Seconds.

    ``where`` is the side that acknowledged it, where there are several.
    """

    token: str
    since: float
    until: float | None
    end: str
    code: int = 0
    text: str = ""
    where: str = ""


class LedgerWriter:
    """Appends events; used by the threads of one process. A line is on its way to the disk before a write begins."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._lock = threading.Lock()

    def note(self, kind: str, token: str, code: int = 0, text: str = "", where: str = "") -> None:
        """Write one event down."""
        failed = [str(code), " ".join(text.split())[:200]] if kind in (REFUSED, UNKNOWN) else []
        acked = [where] if kind == ACKED and where else []
        with self._lock:
            os.write(self._handle, f"{' '.join([kind, token, f'{time.monotonic():.6f}', *failed, *acked])}\n".encode())

    def close(self) -> None:
        """Write no more."""
        os.close(self._handle)


def read_ledger(path: Path, *, may_be_missing: bool = False) -> tuple[WriteAttempt, ...]:
    """Return all attempts, in the order in which they began; none where the ledger may be missing, and is.

    Raises
    ------
    LabError
        there is no ledger, or a line of it says what cannot be; a last line without its end is left out.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if may_be_missing:
            return ()
        raise LabError(f"there is no ledger {path}", hint="Start a load first.") from None
    return parse_ledger(text, str(path))


def parse_ledger(text: str, where: str = "ledger") -> tuple[WriteAttempt, ...]:
    """Return the attempts of a ledger's text; see ``read_ledger``."""
    found: dict[str, WriteAttempt] = {}
    lines = text.split("\n")
    for number, line in enumerate(lines[:-1], 1):  # what follows the last newline was cut off by a kill
        parts = line.split(" ", 4)
        try:
            kind, token, at = parts[0], parts[1], float(parts[2])
            known = found.get(token)
            if kind == TRIED and known is None:
                found[token] = WriteAttempt(token, at, None, UNKNOWN, 0, "its client ended")
            elif kind in (ACKED, REFUSED, UNKNOWN) and known is not None and known.until is None:
                rest = [*parts[3:], ""]
                code, words = (int(rest[0]), rest[1]) if kind != ACKED else (0, "")
                where = rest[0] if kind == ACKED else ""
                found[token] = WriteAttempt(token, known.since, at, kind, code, words, where)
            else:
                raise ValueError("out of order")
        except (ValueError, IndexError) as error:
            raise LabError(
                f"{where}:{number}: not a line of a ledger: {line[:80]!r} ({error})",
                hint="The ledger is damaged: this run proves nothing. Start the load again.",
            ) from None
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class LedgerCheck:
    """What the data hold compared with the ledger: ``wrong`` says whether any row contradicts its client's answer.

    Tokens are listed where something is wrong: acknowledged and missing (``lost``), there more than once (``twice``),
    on another side than the one that acknowledged them (``elsewhere``), there though refused, there though never tried.
    ``written`` counts acknowledged writes by the side that took them, ``problems`` name broken invariants.
    """

    acked: int
    refused: int
    unknown: int
    lost: tuple[str, ...]
    twice: tuple[str, ...]
    there_though_refused: tuple[str, ...]
    never_tried: tuple[str, ...]
    elsewhere: tuple[str, ...]
    unknown_there: int
    written: dict[str, int]
    problems: tuple[str, ...] = ()

    @property
    def wrong(self) -> bool:
        """Whether a single row contradicts the answer its client received."""
        return bool(self.lost or self.twice or self.there_though_refused or self.never_tried or self.elsewhere)

    @property
    def good(self) -> bool:
        """Whether nothing is wrong, and there was something to lose."""
        return self.acked > 0 and not self.wrong and not self.problems

    def describe(self) -> str:
        """Return one line with the counts, and the first tokens of what is wrong."""
        found = [f"{self.acked} acknowledged, {len(self.lost)} of them lost", f"{len(self.twice)} twice",
                 f"{self.refused} refused, {len(self.there_though_refused)} of them there",
                 f"{self.unknown} unknown, {self.unknown_there} of them there",
                 f"{len(self.never_tried)} that nobody wrote"]  # fmt: skip
        found += [f"{len(self.elsewhere)} on another side"] if self.elsewhere else []
        bad = (*self.lost, *self.twice, *self.there_though_refused, *self.never_tried, *self.elsewhere)[:5]
        return "; ".join(found) + (f"; such as {', '.join(bad)}" if bad else "")

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**asdict(self), "good": self.good}


def compare_with_ledger(
    attempts: Iterable[WriteAttempt], rows: Mapping[str, Sequence[str]], tried: Collection[str] | None = None,
    problems: Iterable[str] = (),
) -> LedgerCheck:  # fmt: skip
    """Compare what is there with the ledger.

    Every acknowledged write is there exactly once, an unknown one at most once, a refused one not, and nothing else is.

    Parameters
    ----------
    rows
        Token -> the side of each of its rows; an empty text where there is one side only.
    tried
        Tokens of a later reading of the ledger, where writing goes on; None: those of ``attempts``.
    """
    known = {one.token: one for one in attempts}
    count = Counter(one.end for one in known.values())

    def with_end(end: str) -> list[WriteAttempt]:
        return [one for one in known.values() if one.end == end]

    return LedgerCheck(
        count[ACKED], count[REFUSED], count[UNKNOWN],
        lost=tuple(one.token for one in with_end(ACKED) if not rows.get(one.token)),
        twice=tuple(token for token, sides in rows.items() if len(sides) > 1),
        there_though_refused=tuple(one.token for one in with_end(REFUSED) if rows.get(one.token)),
        never_tried=tuple(token for token in rows if token not in (known if tried is None else tried)),
        elsewhere=tuple(one.token for one in with_end(ACKED)
                        if any(rows.get(one.token, ())) and one.where not in rows[one.token]),
        unknown_there=sum(1 for one in with_end(UNKNOWN) if rows.get(one.token)),
        written=dict(Counter(one.where for one in with_end(ACKED))), problems=tuple(problems),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SteadyWindow:
    """A window of the ledger. ``rate`` per second; ``slowest`` seconds of one acknowledged write."""

    acked: int
    failed: int
    rate: float
    slowest: float
    codes: tuple[int, ...]


def steadiness(attempts: Sequence[WriteAttempt], now: float, window: float) -> SteadyWindow:
    """Return how writing went in the last ``window`` seconds; a write that hangs longer than it counts as failed."""
    since = now - window
    ended = [one for one in attempts if one.until is not None and one.until >= since]
    acked = [one for one in ended if one.end == ACKED]
    bad = [one for one in ended if one.end != ACKED]
    hanging = [one for one in attempts if one.until is None and one.since < since]
    slowest = max((one.until - one.since for one in acked if one.until is not None), default=0.0)
    codes = tuple(sorted({one.code for one in bad}))
    return SteadyWindow(len(acked), len(bad) + len(hanging), len(acked) / window, slowest, codes)


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
    attempts: Sequence[WriteAttempt], injected: float, removed: float, until: float, *, quiet: float = 1.0
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

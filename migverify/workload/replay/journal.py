"""What a run knows for certain, on disk as it happens: survives kill -9 at every point.

A journal is a folder of files, one for each worker and attempt, that are only appended to. Each line carries its own
checksum, so a torn tail is seen and left out. Before a call that may write is sent its intent is written; a call's end
is its judged outcome. What has an intent and no end may have run or not: nobody may run it again, and nobody knows.

The tally of a run is the fold of its journal: the last end of every call, once.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from migverify.errors import PlanError, StoreError
from migverify.workload.private import private_folder
from migverify.workload.replay.model import Difference, Judged, Judgement, Severity
from migverify.workload.replay.spool import COMMITS, FIRST_OF_UNIT, WRITES, Spool

ENDED, INTENT, AGAIN, BEGAN = "E", "I", "A", "B"
"""Kinds of lines: a call's end, the intent to send a write, calls that start again, an attempt's beginning."""

UNKNOWN = "unknown whether it ran"

_encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), check_circular=False).encode
_STATES = {state.value: state for state in Judgement}


class Journal:
    """Appends to one file. Not shared by threads or processes.

    Parameters
    ----------
    folder
        The run's journal.
    worker, attempt
        Who writes: worker from 0, and how often the run was begun before.

    Raises
    ------
    StoreError
        the file cannot be written; what was written before stays.
    """

    def __init__(self, folder: Path, worker: int, attempt: int) -> None:
        private_folder(folder, exist_ok=True)
        self.path = folder / f"{attempt:04d}-{worker:04d}.journal"
        self._held: list[bytes] = []
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise StoreError(f"{self.path} cannot be written: {error.strerror}") from error

    def intent(self, index: int, *, flush: bool = True) -> None:
        """Write that a call is about to be sent which may write; it is on disk when this returns with ``flush``."""
        self._held.append(_line([INTENT, index]))
        if flush:
            self.flush()

    def ended(self, index: int, judged: Judged) -> None:
        """Write a call's end; ``flush`` puts it on disk."""
        self._held.append(_line([ENDED, index, *_packed(judged)]))

    def again(self, first: int, last: int) -> None:
        """Write that earlier ends of these calls, both bounds inclusive, do not count: they are asked again."""
        self._held.append(_line([AGAIN, first, last]))

    def take(self, raw: bytes) -> None:
        """Append whole lines of another journal."""
        self._held.append(raw)

    def began(self, facts: dict[str, Any]) -> None:
        """Write that an attempt begins."""
        self._held.append(_line([BEGAN, facts]))
        self.flush()

    def flush(self) -> None:
        """Hand everything over to the operating system: it survives this process then."""
        data = b"".join(self._held)
        self._held.clear()
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            raise StoreError(f"{self.path} cannot be written: {error.strerror}", hint="Is the disk full?") from error

    def close(self) -> None:
        """Write what is held, and wait for the disk."""
        self.flush()
        os.fsync(self._file)
        os.close(self._file)


def _line(body: list[Any]) -> bytes:
    text = _encode(body).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _packed(one: Judged) -> list[Any]:
    packed: list[Any] = [
        one.session, one.position, one.digest, one.state.value, one.source_latency, one.target_latency,
        one.source_service, one.target_service, one.lag, one.repeats,
        one.captured_error + 2 * one.written,
    ]  # fmt: skip
    if one.differences or one.reason or one.noisy or one.details:
        differences = [
            [each.aspect, each.severity.value, each.source, each.target, each.column, each.detail]
            for each in one.differences
        ]
        packed += [one.reason, one.noisy, differences, one.details]
    return packed


def _unpacked(body: list[Any]) -> Judged:
    reason, noisy, differences, details = body[11:15] if len(body) > 11 else ("", "", [], {})
    return Judged(
        body[0], body[1], body[2], _STATES[body[3]],
        tuple(Difference(one[0], Severity(one[1]), *one[2:]) for one in differences),
        reason, noisy, body[4], body[5], body[6], body[7], body[8], bool(body[10] & 1), bool(body[10] & 2), body[9],
        details,
    )  # fmt: skip


def attempts(folder: Path) -> int:
    """Return how often the run was begun."""
    return max((int(path.name[:4]) + 1 for path in folder.glob("*.journal")), default=0)


def lines(folder: Path) -> Iterator[tuple[int, list[Any]]]:
    """Yield (attempt, line) of all files, attempt by attempt. A torn tail ends its file.

    Raises
    ------
    PlanError
        a line inside a file is damaged: not by a crash, which only ever cuts a tail.
    """
    for path in sorted(folder.glob("*.journal")):
        attempt = int(path.name[:4])
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                body = _body(line)
                if body is None:
                    if file.read(1):
                        raise PlanError(
                            f"{path}:{number} is damaged", hint="The file was changed after it was written; start anew."
                        )
                    break
                yield attempt, body


def _body(line: bytes) -> list[Any] | None:
    if not line.endswith(b"\n") or line[8:9] != b" ":
        return None
    text = line[9:-1]
    try:
        if int(line[:8], 16) != zlib.crc32(text):
            return None
        body: list[Any] = json.loads(text)
    except ValueError:
        return None
    return body


@dataclass(slots=True)
class Known:
    """What the journal says of each call, by number: bit 0 it has ended, bit 1 it had an intent."""

    state: bytearray
    attempts: int = 0
    again: dict[int, int] = field(default_factory=dict)
    """Calls asked again, and the attempt since which their ends count."""

    def ended(self, index: int) -> bool:
        """Tell whether a call has an end that counts."""
        return bool(self.state[index] & 1)

    def intended(self, index: int) -> bool:
        """Tell whether a write may have been sent."""
        return bool(self.state[index] & 2)


def known(folder: Path, calls: int) -> Known:
    """Read a journal; memory is one byte a call."""
    found = Known(bytearray(calls), attempts(folder))
    for attempt, body in lines(folder):
        kind = body[0]
        if kind == AGAIN:
            for index in range(body[1], body[2] + 1):
                found.again[index] = attempt
                found.state[index] = 0
        elif kind in (ENDED, INTENT):
            found.state[body[1]] |= 1 if kind == ENDED else 2
    return found


def judged(folder: Path, known_: Known) -> Iterator[Judged]:
    """Yield the end of each call that counts, once."""
    seen = bytearray(len(known_.state))
    for attempt, body in lines(folder):
        if body[0] == ENDED and attempt >= known_.again.get(body[1], 0) and not seen[body[1]]:
            seen[body[1]] = 1
            yield _unpacked(body[2:])


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a resumed run does with calls that were under way.

    ``again`` are (first, last) calls of transactions that were surely rolled back: they start again. ``unknown`` are
    calls that may have run, with the reason; they are not asked again.
    """

    again: tuple[tuple[int, int], ...] = ()
    unknown: tuple[tuple[int, str], ...] = ()


def recover(spool: Spool, found: Known, *, only: Iterable[int] | None = None) -> Recovery:
    """Decide about every transaction that was cut off; ``only`` are numbers of sessions, None for all."""
    again: list[tuple[int, int]] = []
    unknown: list[tuple[int, str]] = []
    numbers = range(len(spool.sessions)) if only is None else only
    for number in numbers:
        session = spool.sessions[number]
        for first, last in _units(spool, session.first, session.first + session.count):
            _recover_unit(spool, found, first, last, again, unknown)
    return Recovery(tuple(again), tuple(unknown))


def _units(spool: Spool, first: int, stop: int) -> Iterator[tuple[int, int]]:
    begin = first
    for index in range(first + 1, stop):
        if spool.place(index).flags & FIRST_OF_UNIT:
            yield begin, index - 1
            begin = index
    if stop > first:
        yield begin, stop - 1


def _recover_unit(
    spool: Spool, found: Known, first: int, last: int, again: list[tuple[int, int]], unknown: list[tuple[int, str]]
) -> None:
    calls = range(first, last + 1)
    touched = [index for index in calls if found.ended(index) or found.intended(index)]
    if not touched or all(found.ended(index) for index in calls):
        return
    open_end = [index for index in calls if found.intended(index) and not found.ended(index)]
    if first == last:
        unknown.extend((index, UNKNOWN) for index in open_end)  # autocommit: it may have been carried out
        return
    wrote = any(found.intended(index) and spool.place(index).flags & WRITES for index in calls)
    committed = [index for index in touched[1:] if spool.place(index).flags & COMMITS]
    if not committed:
        again.append((first, touched[-1]))  # its connection is gone, and with it what it did
        return
    if wrote:
        unknown.extend((index, UNKNOWN) for index in open_end)
        # behind a commit that is or may be done nothing is repeated; the rest goes on from there

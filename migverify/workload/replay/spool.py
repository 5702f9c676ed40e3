"""The calls of a plan on disk: written once in the order of sessions, read by any number of processes.

A capture of millions of statements does not fit in memory, and Parquet gives no single statement away cheaply. So the
plan writes each chosen call once, as a line of JSON, and beside it a record of fixed size by the call's number: where
it lies, when it was captured, and, after ordering, when it is due and what it waits for. Readers map both files.
Nothing in them is code: whoever can name a plan's folder must not be able to run something by it.
"""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from migverify.codec import decode, encode
from migverify.errors import PlanError
from migverify.workload.meaning import Meaning
from migverify.workload.model import Parameter
from migverify.workload.private import private, private_folder, write_private
from migverify.workload.replay.model import Call, Captured
from migverify.workload.replay.unasked import FIRST_TRANSACTION
from migverify.workload.state import State

CALLS = "calls.bin"
INDEX = "index.bin"
WAITS = "waits.bin"
TABLES = "tables.bin"
SESSIONS = "sessions.jsonl"

NOWHERE = -1
_PLACE = struct.Struct("<QqqiBxxx")  # offset, start, end, session, flags
_ORDER = struct.Struct("<QqiIQ")  # sequence, due, racy session, how many waits, offset of them
_RECORD = _PLACE.size + _ORDER.size
_WAIT = struct.Struct("<Q")
_VERSION = 2
_LONG = 200
_LINE = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_BETWEEN = "; "
_STATE = tuple(State.__dataclass_fields__)

WRITES = 1
"""Flag of a call: it may change data when it is asked."""
FIRST_OF_UNIT = 2
"""Flag of a call: a transaction, or a statement of its own, begins here."""
SKIPPED = 4
"""Flag of a call: it is not asked."""
CLOCKED = 8
"""Flag of a call: its answer depends on the session's clock."""
COMMITS = 16
"""Flag of a call: it ends a transaction, or may."""
UNFINISHED = 32
"""Flag of a call: it is not asked, because its transaction began before the capture."""


@dataclass(frozen=True, slots=True)
class SessionSlice:
    """The calls of one session: numbers ``first`` to ``first + count - 1``."""

    name: str
    first: int
    count: int
    user: str | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """One call with what the plan knows of it. ``skipped`` says why it is not asked."""

    index: int
    call: Call
    meaning: Meaning
    skipped: str
    flags: int


@dataclass(frozen=True, slots=True)
class Place:
    """The fixed part of one call: times are Unix microseconds; without a time of its own, its neighbor's."""

    offset: int
    start: int
    end: int
    session: int
    flags: int


@dataclass(frozen=True, slots=True)
class Turn:
    """When a call's turn comes.

    ``sequence`` is its place among all calls in captured order, ``due`` microseconds after the beginning by the
    captured clock, ``waits`` the calls whose end it awaits, ``racy`` the number of the session whose interval overlaps
    on the same rows, ``NOWHERE`` for none.
    """

    sequence: int
    due: int
    racy: int
    waits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Tables:
    """What repeats in the calls of a plan, by number."""

    version: int
    states: tuple[State, ...]
    meanings: tuple[Meaning, ...]
    texts: tuple[str | None, ...]


class Interned:
    """Values that repeat, by number."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        """Return the number of a value, a new one for a value not seen before."""
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.values)
            self.values.append(value)
        return found


class SpoolWriter:
    """Writes calls; ``close`` makes them readable."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        private_folder(folder, exist_ok=True)  # it holds statements with their values
        self._calls = open(folder / CALLS, "wb", opener=private)  # noqa: SIM115  (closed by close)
        self._index = open(folder / INDEX, "wb", opener=private)  # noqa: SIM115
        self._sessions = open(folder / SESSIONS, "w", encoding="utf-8", opener=private)  # noqa: SIM115
        self._states, self._meanings, self._texts = Interned(), Interned(), Interned()
        self._offset = 0
        self.count = 0
        self.sessions = 0

    def add(self, call: Call, meaning: Meaning, skipped: str, start: int, end: int, flags: int) -> int:
        """Take in the next call of the session that is being written; return its number."""
        captured = call.captured
        parameters = None if call.parameters is None else [(one.kind, _text(one.value)) for one in call.parameters]
        packed = _LINE((
            call.position, _text(call.sql), self._texts.number(call.digest), self._state(call.state),
            (captured.errno, captured.rows_sent, captured.rows_affected, captured.duration, captured.last_insert_id),
            call.start, call.end, call.clock, parameters, self._texts.number(call.partial),
            self._texts.number(call.user), call.origin, self._texts.number(call.command),
            self._meanings.number(meaning), self._texts.number(skipped),
            self._texts.number(_BETWEEN.join(call.assumed)), self._texts.number(call.note),
        )).encode() + b"\n"  # fmt: skip
        self._calls.write(packed)
        flags |= SKIPPED if skipped else 0
        self._index.write(_PLACE.pack(self._offset, start, end, self.sessions, flags))
        self._index.write(_ORDER.pack(0, 0, NOWHERE, 0, 0))
        self._offset += len(packed)
        self.count += 1
        return self.count - 1

    def _state(self, state: State) -> int | tuple[Any, ...]:
        if len(state.rest) > _LONG:  # user variables and prepared ids may make every state its own
            return tuple(getattr(state, name) for name in _STATE)
        return self._states.number(state)

    def end_session(self, session: SessionSlice) -> None:
        """Close the session that the last calls belong to."""
        self._sessions.write(json.dumps(asdict(session), ensure_ascii=False) + "\n")
        self.sessions += 1

    def close(self) -> None:
        """Write what repeats."""
        repeated = [tuple(one.values) for one in (self._states, self._meanings, self._texts)]
        tables = _Tables(_VERSION, *repeated)
        write_private(self._folder / TABLES, json.dumps(encode(tables)).encode())
        write_private(self._folder / WAITS, b"")
        for file in (self._calls, self._index, self._sessions):
            file.close()


class Spool:
    """Reads the calls of a plan by number. With ``writable`` the order can be entered.

    Raises
    ------
    PlanError
        the folder holds no calls, or those of another version.
    """

    def __init__(self, folder: Path, *, writable: bool = False) -> None:
        self.folder = folder
        try:
            tables = decode(_Tables, json.loads((folder / TABLES).read_bytes()))
            self._states, self.meanings, self._texts = tables.states, tables.meanings, tables.texts
            self._calls = _map(folder / CALLS, writable=False)
            self._index = _map(folder / INDEX, writable=writable)
            self._waits = b"" if writable else _map(folder / WAITS, writable=False)
            with (folder / SESSIONS).open(encoding="utf-8") as lines:
                self.sessions = [SessionSlice(**json.loads(line)) for line in lines]
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise PlanError(f"{folder} holds no readable calls: {error}", hint="Plan the replay anew.") from error
        if tables.version != _VERSION:
            raise PlanError(f"{folder} holds calls of version {tables.version}", hint="Plan the replay anew.")
        self.count = len(self._index) // _RECORD

    def place(self, index: int) -> Place:
        """Return where a call lies and when it was captured."""
        return Place(*_PLACE.unpack_from(self._index, index * _RECORD))

    def turn(self, index: int) -> Turn:
        """Return when a call's turn comes."""
        sequence, due, racy, count, offset = _ORDER.unpack_from(self._index, index * _RECORD + _PLACE.size)
        waits = struct.unpack_from(f"<{count}Q", self._waits, offset) if count else ()
        return Turn(sequence, due, racy, waits)

    def read(self, index: int) -> Stored:
        """Return one call."""
        offset, _, _, session, flags = _PLACE.unpack_from(self._index, index * _RECORD)
        end = self._calls.find(b"\n", offset)
        (
            position, sql, digest, state, captured, start, end, clock, parameters, partial, user, origin, command,
            meaning, skipped, *more,
        ) = json.loads(self._calls[offset:end])  # fmt: skip
        typed = None if parameters is None else tuple(Parameter(kind, _bytes(value)) for kind, value in parameters)
        call = Call(
            self.sessions[session].name, position, sql.encode("latin-1"), self._texts[digest],
            State(*state) if isinstance(state, list) else self._states[state], Captured(*captured), start, end,
            clock, typed, self._texts[partial], self._texts[user], origin, self._texts[command],
            tuple(filter(None, self._texts[more[0]].split(_BETWEEN))) if more else (),  # an earlier version has none
            self._texts[more[1]] if more else "",
        )  # fmt: skip
        reason = FIRST_TRANSACTION if flags & UNFINISHED else self._texts[skipped]
        return Stored(index, call, self.meanings[meaning], reason, flags)

    def calls(self, session: SessionSlice) -> Iterator[Stored]:
        """Yield the calls of one session in order."""
        for index in range(session.first, session.first + session.count):
            yield self.read(index)

    def leave_out(self, index: int) -> None:
        """Enter that a call is not asked because its transaction began before the capture."""
        place = self.place(index)
        flags = (place.flags | SKIPPED | UNFINISHED) & ~WRITES
        _PLACE.pack_into(self._index, index * _RECORD, place.offset, place.start, place.end, place.session, flags)

    def set_turn(self, index: int, sequence: int, due: int, waits: Sequence[int], offset: int) -> None:
        """Enter a call's turn; ``offset`` is where its waits lie in their file."""
        at = index * _RECORD + _PLACE.size
        racy = _ORDER.unpack_from(self._index, at)[2]  # marked earlier by a call that came before
        _ORDER.pack_into(self._index, at, sequence, due, racy, len(waits), offset)

    def set_racy(self, index: int, session: int) -> bool:
        """Enter that the order of a call and one of ``session`` is undefined; False where another stands already."""
        at = index * _RECORD + _PLACE.size
        sequence, due, racy, count, offset = _ORDER.unpack_from(self._index, at)
        if racy != NOWHERE:
            return False
        _ORDER.pack_into(self._index, at, sequence, due, session, count, offset)
        return True

    def close(self) -> None:
        """Unmap the files."""
        for mapped in (self._calls, self._index, self._waits):
            if isinstance(mapped, mmap.mmap):
                mapped.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else value.encode("latin-1")


def pack_waits(waits: Sequence[int]) -> bytes:
    """Return the waits of one call as their file holds them."""
    return b"".join(_WAIT.pack(one) for one in waits)


def _map(path: Path, *, writable: bool) -> mmap.mmap | bytes:
    with path.open("r+b" if writable else "rb") as file:
        if file.seek(0, 2) == 0:
            return b""  # an empty file cannot be mapped
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)

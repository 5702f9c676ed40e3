"""The usual headers of MySQL's slow and general logs, a block at a time."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migverify.spark.capture_bytes import Block, Ints, Walker
from migverify.spark.capture_logs import Found, slices
from migverify.spark.capture_rows import COMMAND_CODES, NONE, Names, constant, ids_of
from migverify.workload.formats import general, slow
from migverify.workload.model import Command
from migverify.workload.sessions import EDGES

_SET = re.compile(rb"SET ([a-z_=\d,]*?)timestamp=(\d{1,15});\n")
_TEXT_PREPARED_BEGINS = np.zeros(256, np.bool_)
_TEXT_PREPARED_BEGINS[[*b"pPeE/ \n\t\r\v\f"]] = True
_MICROS = 1_000_000


class SlowHeaders:
    """Records of MySQL 5.7 and later: a time, one line of figures, and the second of the start."""

    def __init__(self, grammar: slow.SlowGrammar, names: Names) -> None:
        self.grammar, self._names = grammar, names

    @property
    def number(self) -> int:
        """How many records were read."""
        return self.grammar.number

    @property
    def database(self) -> str | None:
        """The current database, as the records so far tell it."""
        return self.grammar.database

    def fits(self) -> bool:
        """Tell whether the file's lines end as a server writes them."""
        return self.grammar.next is slow.NEXT

    def starts(self, data: bytes, at: int) -> Ints:
        """Return where records begin, as the reader of the format sees it."""
        found = [match.end() for match in slow.NEXT.finditer(data, at)]
        return np.array(found, np.int64)

    def read(self, block: Block, starts: Ints) -> Found:
        """Read the headers."""
        data, breaks = block.data, block.breaks
        beyond = np.concatenate([breaks, np.full(4, block.size)])
        walker = Walker(block, starts[:-1])
        walker.literal(b"# Time: ")
        end = walker.utc()
        walker.literal(b"\n# User@Host: ")
        who = walker.at.copy()
        line = np.searchsorted(breaks, who)
        who_end = beyond[line]
        walker.at = who_end + 1
        walker.literal(b"# Query_time: ")
        seconds = walker.digits(8)
        walker.literal(b".")
        micros = walker.exactly(6)
        walker.literal(b"  Lock_time: ")
        walker.solid()
        walker.literal(b" ")
        walker.spaces()
        walker.literal(b"Rows_sent: ")
        sent = walker.digits()
        walker.literal(b" ")
        walker.spaces()
        walker.literal(b"Rows_examined: ")
        walker.digits()
        walker.ok &= walker.stands(b" ") | walker.stands(b"\n")
        session, errno = self._extra(block, walker)
        walker.at = beyond[line + 1] + 1  # behind the figures
        walker.ok &= ~walker.stands(b"#")
        uses = self._uses(data, walker, beyond[line + 2])
        duration = seconds * _MICROS + micros
        columns: dict[str, NDArray[Any]] = {
            "end": end, "time": end, "start": end - duration, "duration": duration, "rows_sent": sent, "errno": errno,
        }  # fmt: skip
        self._set(data, walker, columns, end - duration)
        walker.ok &= ~walker.stands(b"#")
        found = Found(walker.ok, walker.at, starts[1:] - 2, columns, uses)
        found.ok &= found.text_end > found.text
        self._users(data, who, who_end, found, session)
        return found

    @staticmethod
    def _extra(block: Block, walker: Walker) -> tuple[Ints, Ints]:
        session, errno = np.full(len(walker.at), NONE), np.full(len(walker.at), NONE)
        rows = np.flatnonzero(walker.ok & walker.stands(b" Thread_id: "))
        if len(rows):
            extra = Walker(block, walker.at[rows])
            extra.literal(b" Thread_id: ")
            session[rows] = extra.digits()
            extra.literal(b" Errno: ")
            errno[rows] = extra.digits(8)
            extra.literal(b" ")
            walker.ok[rows] &= extra.ok
        return session, errno

    def _uses(self, data: bytes, walker: Walker, ends: Ints) -> dict[int, str]:
        """Pass ``use db;`` where it stands."""
        uses: dict[int, str] = {}
        for row in np.flatnonzero(walker.ok & walker.stands(b"use ")).tolist():
            start, end = int(walker.at[row]), int(ends[row])
            if data[end - 1 : end] != b";":
                walker.ok[row] = False
                continue
            uses[row] = self._database_of(data[start + 4 : end - 1])
            walker.at[row] = end + 1
        return uses

    @staticmethod
    def _set(data: bytes, walker: Walker, columns: dict[str, NDArray[Any]], start: Ints) -> None:
        """Pass the line that sets the clock, and take in the ids it sets too."""
        usual = walker.stands(b"SET timestamp=")
        second = np.zeros(len(start), np.int64)
        last, own, ids = (np.zeros(len(start), np.int64) for _ in range(3))
        for row in np.flatnonzero(walker.ok & ~usual).tolist():
            line = _SET.match(data, int(walker.at[row]))
            if line is None:
                walker.ok[row] = False
                continue
            told = _insert_ids(line[1])
            if any(value is not None and value >= 1 << 63 for value in told):
                walker.ok[row] = False
                continue
            last[row], own[row] = (value or 0 for value in told)
            ids[row] = ids_of(*told)
            second[row] = int(line[2])
            walker.at[row] = line.end()
        rows = np.flatnonzero(walker.ok & usual)
        inner = Walker.within(walker, rows)
        inner.literal(b"SET timestamp=")
        second[rows] = inner.digits(15)
        inner.literal(b";\n")
        walker.ok[rows] &= inner.ok
        walker.at[rows] = inner.at
        own_clock = second * _MICROS
        off = (own_clock - start <= -slow.OFF_CLOCK) | (own_clock - start >= slow.OFF_CLOCK)
        columns |= {"clock": np.where(off, own_clock, NONE), "last_insert_id": last, "insert_id": own, "ids": ids}

    def _users(self, data: bytes, start: Ints, end: Ints, found: Found, session: Ints) -> None:
        rows = np.flatnonzero(found.ok)
        told = slices(data, start[rows], end[rows]).dictionary_encode()
        known = [self.grammar.who(raw) for raw in told.dictionary.to_pylist()]
        place = self._names.place
        codes = told.indices.to_numpy()
        count = len(found.ok)
        for name, values in (
            ("user", [place(one[0]) for one in known]), ("host", [place(one[1]) for one in known]),
            ("session", [-1 if one[2] is None else one[2] for one in known]),
        ):  # fmt: skip
            column = np.full(count, -1, np.int64)
            column[rows] = np.array(values, np.int64)[codes] if len(rows) else 0
            found.columns[name] = column
        found.columns["session"] = np.where(session == NONE, found.columns["session"], session)
        found.columns["details"] = constant(place(""), count, "details")

    def catch_up(self, found: Found, first: int, last: int) -> None:
        """Tell the reader of the format what the ordinary records of some rows told."""
        grammar = self.grammar
        grammar.number += last - first
        grammar.last = int(found.columns["end"][last - 1])
        for row, name in found.uses.items():
            if first <= row < last:
                grammar.database = name

    def stepped(self, found: Found) -> bool:  # noqa: ARG002
        """Take note of what the reader of the format read; tells whether more records are odd for that."""
        return False

    def _database_of(self, raw: bytes) -> str:
        name = raw[1:-1].replace(b"``", b"`") if raw[:1] == b"`" and raw[-1:] == b"`" else raw
        return self.grammar.texts[name]


def _insert_ids(raw: bytes) -> tuple[int | None, int | None]:
    last = own = None
    for one, other in slow.INSERTED.findall(raw):
        if one:
            last = int(one)
        else:
            own = int(other)
    return last, own


class GeneralHeaders:
    """Records with a time of their own, in UTC, of the commands that clients send all the time."""

    database: str | None = None
    _marked: set[int]
    _NAMES = (b"Query", b"Execute", b"Prepare", b"Close stmt", b"Quit")

    def __init__(self, grammar: general.GeneralGrammar, names: Names) -> None:
        self.grammar, self._names = grammar, names

    @property
    def number(self) -> int:
        """How many records were read."""
        return self.grammar.number

    def fits(self) -> bool:
        """Tell whether the file's lines end as a server writes them."""
        return self.grammar.next is general.NEXT

    def starts(self, data: bytes, at: int) -> Ints:
        """Return where records begin, as the reader of the format sees it."""
        found = [match.end() for match in general.NEXT.finditer(data, at)]
        return np.array(found, np.int64)

    def read(self, block: Block, starts: Ints) -> Found:
        """Read the headers."""
        walker = Walker(block, starts[:-1])
        time = walker.utc()
        walker.literal(b"\t")
        walker.spaces()
        session = walker.digits()
        walker.literal(b" ")
        command, edge = np.full(len(time), -1), np.zeros(len(time), np.int64)
        passed = np.zeros(len(time), np.int64)
        for name in self._NAMES:
            here = walker.stands(name + b"\t")
            command[here] = COMMAND_CODES[general.COMMANDS[name]]
            edge[here] = EDGES.get(general.COMMANDS[name], 0)
            passed[here] = len(name) + 1
        walker.ok &= (command >= 0) & (session > 0)
        walker.at += passed
        columns: dict[str, NDArray[Any]] = {
            "start": time, "time": time, "session": session, "command": command, "edge": edge,
            "details": constant(self._names.place(""), len(time), "details"),
        }  # fmt: skip
        found = Found(walker.ok, walker.at, starts[1:] - 1, columns)
        found.ok &= found.text_end >= found.text
        prepared = _TEXT_PREPARED_BEGINS[block.bytes[found.text]]
        prepared &= found.ok & (command == COMMAND_CODES[Command.QUERY])
        for row in np.flatnonzero(prepared).tolist():
            if general.TEXT_PREPARED.match(block.data, int(found.text[row]), int(found.text_end[row])):
                found.ok[row] = False
        self._marked = set()
        self.stepped(found)
        return found

    def catch_up(self, found: Found, first: int, last: int) -> None:
        """Tell the reader of the format what the ordinary records of some rows told."""
        self.grammar.number += last - first
        self.grammar.time = int(found.columns["time"][last - 1])

    def stepped(self, found: Found) -> bool:
        """Take note of what the reader of the format read; tells whether more records are odd for that."""
        new = self.grammar.echoes.keys() - self._marked
        if new:  # what follows in such a session may be an echo
            found.ok[np.isin(found.columns["session"], [*new])] = False
            self._marked |= new
        return bool(new)

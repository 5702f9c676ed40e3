"""Audit CSV as columns: ordinary queries a block at a time, every other line by the reader of the format.

A line is ordinary when it is a query whose only bare quotes are those around its text, with escapes that the format
has, and whose text is whole. Escapes are resolved for all texts of a block at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from migverify.spark.capture_bytes import Block, Flags, Ints, Walker
from migverify.spark.capture_logs import LIGHT, Batch, find_suspects, plain_of, slices, surely_closed
from migverify.spark.capture_rows import COMMAND_CODES, FIELDS, NONE, Names, Rows, constant, joined, rows_of, type_of
from migverify.workload.capture import CaptureInput
from migverify.workload.formats.audit import (
    ESCAPES,
    NO_VALUES,
    SYNTAX,
    Audit,
    AuditLines,
    AuditSurvey,
)
from migverify.workload.lines import BLOCK, TOO_LONG, Clock, Window, open_log, rejected
from migverify.workload.model import Command, Noise, Record, Rejected
from migverify.workload.quotes import closed, outside
from migverify.workload.state import is_plain

_SECOND = re.compile(rb"\d{8} [ \d]\d:\d\d:\d\d")
_SECONDS = json.dumps({"time": "whole seconds"})
_KNOWN = np.zeros(256, np.bool_)
_SIGN = np.arange(256, dtype=np.uint8)
for _escape, _sign in (*ESCAPES, (b"\\\\", b"\\"), (b"\\'", b"'")):
    _KNOWN[_escape[1]] = True
    _SIGN[_escape[1]] = _sign[0]


@dataclass(slots=True)
class Lines:
    """The ordinary lines of a block: where each stands, and what it says."""

    ok: Flags
    starts: Ints
    stops: Ints
    text: Ints
    close: Ints
    columns: dict[str, NDArray[Any]] = field(default_factory=dict)


class AuditSource:
    """A file of audit CSV, or a part that begins at a line.

    Parameters
    ----------
    told
        What a pass over the whole file told.
    begin, line
        Where to begin.
    stop
        Where the last line may begin, exclusive; None: the end of the file.
    light
        Only what a first pass looks at: nothing is cut, and nothing ran inside another statement.
    """

    def __init__(
        self, one: CaptureInput, form: Audit, rank: int, names: Names, told: AuditSurvey, *,
        begin: int = 0, line: int = 1, stop: int | None = None, block: int = BLOCK, light: bool = False,
    ) -> None:  # fmt: skip
        self._path, self._server, self._rank, self._names = str(one.path), one.server, rank, names
        self._limit, self._stop, self._line, self._light = form.longest, stop, line, light
        self._reader = AuditLines(self._path, form.zone, told, form.limit)
        self._inside: Ints = np.array(sorted(told.inside), np.int64)
        self._clock = Clock(form.zone)
        self._file = open_log(self._path)
        if begin:
            self._file.seek(begin)
        self.window = Window(self._path, self._file, block)
        self.window.base = begin
        self.window.more(0)
        self._whos: dict[bytes, tuple[int, int, int]] = {}
        self.lines: Lines | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    @property
    def line(self) -> int:
        """The line of what is not read yet."""
        return self._line

    def batches(self) -> Iterator[Batch]:
        """Yield rows and other pieces, block by block."""
        window = self.window
        while self._stop is None or window.base < self._stop:
            data = window.data
            end = len(data) if window.eof else data.rfind(b"\n") + 1
            if not end:
                if window.eof:
                    return
                if len(data) > self._limit + 1:
                    yield self._too_long()
                else:
                    window.more(0)
                continue
            yield self._batch(data[:end])
            if self._stop is not None and self._over:
                return
            window.more(end)

    def _too_long(self) -> Batch:
        window, begin, length = self.window, self.window.base, 0
        self.lines = None
        while True:
            end = window.data.find(b"\n") + 1
            taken = end or len(window.data)
            length += taken
            over = bool(end) or window.eof
            window.more(taken)
            if over:
                break
        found = rejected(self._path, begin, self._line, length, TOO_LONG)
        self._line += 1
        return Batch(rows_of([], self._names, self._rank, is_plain), [found], begin, begin + length)

    def _batch(self, data: bytes) -> Batch:
        block = Block(data)
        stops = block.breaks
        if not data.endswith(b"\n"):
            stops = np.append(stops, len(data))
        starts = np.concatenate([[0], stops[:-1] + 1])
        base = self.window.base
        self._over = False
        if self._stop is not None:
            count = int(np.searchsorted(starts, self._stop - base))
            self._over = count < len(starts)
            starts, stops = starts[:count], stops[:count]
        found = self._read(block, starts, stops)
        found.ok &= stops - starts < self._limit
        rows = self._light_rows(found) if self._light else self._rows(block, found)
        self.lines = found
        records, others = self._others(data, found)
        self._line += len(starts)
        parts = [part for part in (rows, rows_of(records, self._names, self._rank, is_plain)) if len(part)]
        whole = joined(parts) if parts else rows_of([], self._names, self._rank, is_plain)
        if len(parts) > 1:
            whole = whole.take(np.argsort(whole.columns["offset"]))
        end = int(stops[-1]) + 1 if len(stops) else 0
        return Batch(whole, others, base, base + min(end, len(data)))

    def _others(self, data: bytes, found: Lines) -> tuple[list[Record], list[Noise | Rejected]]:
        records: list[Record] = []
        others: list[Noise | Rejected] = []
        base = self.window.base
        for row in np.flatnonzero(~found.ok).tolist():
            start, stop = int(found.starts[row]), int(found.stops[row]) + 1
            content = data[start:stop]
            if too_long(content, self._limit):
                others.append(rejected(self._path, base + start, self._line + row, len(content), TOO_LONG))
                continue
            piece = self._reader.piece(base + start, self._line + row, content)
            if isinstance(piece, Record):
                if self._server and not piece.server:
                    object.__setattr__(piece, "server", self._server)
                records.append(piece)
            else:
                others.append(piece)
        return records, others

    def _read(self, block: Block, starts: Ints, stops: Ints) -> Lines:
        """Read the fields of all lines."""
        walker = Walker(block, starts)
        compact: Flags = block.bytes[starts + 8] == 0x20
        time = self._times(block, walker, compact)
        walker.literal(b",")
        who = walker.at.copy()
        for _ in range(2):
            walker.until_comma()
            walker.literal(b",")
        walker.until_comma()
        who_end = walker.at.copy()
        walker.literal(b",")
        session = walker.digits(15)
        walker.literal(b",")
        query = walker.digits(15)
        walker.literal(b",QUERY,")
        database = walker.at.copy()
        walker.until_comma()
        database_end = walker.at.copy()
        walker.literal(b",'")
        text = walker.at
        walker.ok &= text < stops
        walker.ok &= block.bytes[stops] == 0x0A  # the last line of a file may be half of one
        escaping = _escaping(block)
        escaped: Flags = np.zeros(block.size + 1, np.bool_)
        escaped[escaping + 1] = True
        quotes = block.places(b"'")
        quotes = quotes[~escaped[quotes]]
        low, high = np.searchsorted(quotes, starts), np.searchsorted(quotes, stops)
        walker.ok &= high - low == 2
        padded = np.append(quotes, [0, 0])
        walker.ok &= padded[np.minimum(low, len(quotes))] == text - 1
        close = np.where(walker.ok, padded[np.minimum(low + 1, len(quotes) + 1)], starts)
        tail = Walker(block, close + 1)
        tail.literal(b",")
        errno = tail.digits(8)
        walker.ok &= tail.ok & ((tail.at == stops) | (tail.stands(b",,\n") & (tail.at + 2 == stops)))
        columns: dict[str, NDArray[Any]] = {
            "session": session, "time": time, "end": time, "number": query, "errno": errno,
            "who": who, "who_end": who_end, "database": database, "database_end": database_end, "compact": compact,
            "escaping": escaping,
        }  # fmt: skip
        text, close = (np.where(walker.ok, places, starts) for places in (text, close))  # in the order of lines
        return Lines(walker.ok, starts, stops, text, close, columns)

    def _times(self, block: Block, walker: Walker, compact: Flags) -> Ints:
        time = np.full(len(walker.at), NONE)
        rows = np.flatnonzero(~compact)
        if len(rows):
            inner = Walker.within(walker, rows)
            high = inner.exactly(8)
            time[rows] = high * 100_000_000 + inner.exactly(8)
            walker.ok[rows] &= inner.ok
            walker.at[rows] = inner.at
        rows = np.flatnonzero(compact & (walker.at + 17 < block.size))
        walker.ok &= ~compact | (walker.at + 17 < block.size)
        if len(rows):
            starts = walker.at[rows]
            told = slices(block.data, starts, starts + 17).dictionary_encode()
            known = [
                self._clock.compact(raw) if _SECOND.fullmatch(raw) else None for raw in told.dictionary.to_pylist()
            ]
            seconds = np.array([NONE if one is None else one for one in known], np.int64)
            time[rows] = seconds[told.indices.to_numpy()]
            walker.ok[rows] &= time[rows] != NONE
            walker.at[rows] = starts + 17
        return time

    def _light_rows(self, found: Lines) -> Rows:
        kept = np.flatnonzero(found.ok)
        names = self._names
        shared = {"server": names.place(""), "command": COMMAND_CODES[Command.QUERY]}
        columns: dict[str, NDArray[Any]] = {
            name: found.columns[name][kept] if name in found.columns else constant(shared.get(name, 0), len(kept), name)
            for name in LIGHT
        }
        columns["server"] = self._who(found, kept)[0]
        columns["offset"] = found.starts[kept] + self.window.base
        columns["length"] = (found.stops - found.starts)[kept] + 1
        return Rows(columns, pa.nulls(len(kept), pa.binary()))

    def _rows(self, block: Block, found: Lines) -> Rows:
        size = found.close - found.text
        cut_at, ok = self._reader.cut_at, found.ok
        ok &= (size < cut_at - 1) | (size > cut_at)
        if len(self._inside):
            ok &= ~np.isin(found.starts + self.window.base, self._inside)
        plain, text, end = _unescaped(block, found)
        suspects = find_suspects(plain.data, text)
        for row in suspects:
            ok[row] = False
        errno = found.columns["errno"]
        asked = np.flatnonzero(ok & (errno != SYNTAX) & ~surely_closed(plain, text, end))
        pairs = zip(text[asked].tolist(), end[asked].tolist(), strict=True)
        ok[asked] = [closed(plain.data, start, stop) for start, stop in pairs]
        without_values = self._without_values(plain, ok, text, end, errno)
        kept = np.flatnonzero(ok)
        names = self._names
        server, user, host = self._who(found, kept)
        executed = without_values[kept]
        columns: dict[str, NDArray[Any]] = {
            "server": server, "user": user, "host": host, "database": self._databases(block, found, kept),
            "offset": found.starts[kept] + self.window.base, "length": (found.stops - found.starts)[kept] + 1,
            "line": self._line + kept,
            "command": np.where(executed, COMMAND_CODES[Command.EXECUTE], COMMAND_CODES[Command.QUERY]).astype(np.int8),
            "partial": np.where(executed, names.place(NO_VALUES), names.place("")).astype(np.int32),
            "details": np.where(found.columns["compact"][kept], names.place(_SECONDS), names.place("")),
            **{name: found.columns[name][kept] for name in ("session", "time", "end", "number", "errno")},
        }  # fmt: skip
        shared = {"rank": self._rank, "file": names.place(self._path), "last_insert_id": 0, "insert_id": 0, "ids": 0,
                  "edge": 0, "plain": 0}  # fmt: skip
        for name in FIELDS:
            if name not in columns:
                columns[name] = constant(shared.get(name, NONE), len(kept), name)
            elif columns[name].dtype != type_of(name):
                columns[name] = columns[name].astype(type_of(name))
        columns["plain"] = plain_of(plain, text[kept], end[kept], columns["command"], columns["errno"])
        return Rows(columns, slices(plain.data, text[kept], end[kept]))

    def _without_values(self, plain: Block, ok: Flags, text: Ints, end: Ints, errno: Ints) -> Flags:
        """Tell the executes of prepared statements: their texts have bare question marks."""
        found: Flags = np.zeros(len(ok), np.bool_)
        marks: Ints = np.flatnonzero(plain.bytes[: plain.size] == 0x3F)
        if not len(marks):
            return found
        held = np.searchsorted(marks, text) < np.searchsorted(marks, end)
        for row in np.flatnonzero(ok & held).tolist():
            if b"?" in outside(plain.data[text[row] : end[row]]):
                found[row] = True
        ok &= ~found | (errno == 0)  # the reader of the format knows what an error says of it
        return found

    def _who(self, found: Lines, kept: Ints) -> tuple[NDArray[np.int32], ...]:
        data = self.window.data
        told = slices(data, found.columns["who"][kept], found.columns["who_end"][kept]).dictionary_encode()
        codes = told.indices.to_numpy()
        known = np.array([self._named(raw) for raw in told.dictionary.to_pylist()], np.int32).reshape(-1, 3)
        return tuple(known[:, at][codes] for at in range(3))

    def _named(self, raw: bytes) -> tuple[int, int, int]:
        found = self._whos.get(raw)
        if found is None:
            server, user, host = raw.split(b",")
            texts, place = self._reader.texts, self._names.place
            found = (place(texts[server] or self._server), place(texts[user]), place(self._reader.host_of(host)))
            if len(self._whos) < 100_000:
                self._whos[raw] = found
        return found

    def _databases(self, block: Block, found: Lines, kept: Ints) -> NDArray[np.int32]:
        told = slices(block.data, found.columns["database"][kept], found.columns["database_end"][kept])
        told = told.dictionary_encode()
        place, texts = self._names.place, self._reader.texts
        known = np.array([place(texts[raw]) for raw in told.dictionary.to_pylist()], np.int32)
        return known[told.indices.to_numpy()] if len(kept) else np.empty(0, np.int32)


def too_long(content: bytes, limit: int) -> bool:
    """Tell whether a line is longer than a line may be, with its end not counted."""
    return len(content) > limit + content.endswith(b"\n")


def _escaping(block: Block) -> Ints:
    """Return the places of backslashes that escape the byte behind them."""
    signs = block.places(b"\\")
    if not len(signs):
        return signs
    begins: Flags = np.ones(len(signs), np.bool_)
    begins[1:] = np.diff(signs) != 1
    firsts = np.maximum.accumulate(np.where(begins, np.arange(len(signs)), 0))
    found: Ints = signs[(np.arange(len(signs)) - firsts) % 2 == 0]
    return found


def _unescaped(block: Block, found: Lines) -> tuple[Block, Ints, Ints]:
    """Return the bytes of a block with escapes resolved, and where texts stand in them; odd escapes are not ``ok``."""
    escaping = found.columns["escaping"]
    if not len(escaping):
        return block, found.text, found.close
    signs = block.bytes[: block.size].copy()
    behind = escaping[escaping + 1 < block.size] + 1
    odd = behind[~_KNOWN[signs[behind]]]
    rows = np.searchsorted(found.starts, odd, "right") - 1
    found.ok[rows] = False
    signs[behind] = _SIGN[signs[behind]]
    keep: Flags = np.ones(block.size, np.bool_)
    keep[escaping] = False
    text = found.text - np.searchsorted(escaping, found.text)
    close = found.close - np.searchsorted(escaping, found.close)
    return Block(signs[keep].tobytes()), text, close


def restricted(told: AuditSurvey, begin: int, end: int | None) -> AuditSurvey:
    """Return what a pass over a file told of the lines of a part."""
    inside = {at: why for at, why in told.inside.items() if at >= begin and (end is None or at < end)}
    return replace(told, inside=inside)

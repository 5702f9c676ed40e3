"""What a capture asks of tables, rows and transactions: one walk over its statements, bounded in memory.

Statements lie session after session, not in the order of time: counts go into stretches of time, and the busiest are
looked for at the end.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from migverify.load import CaptureLoad, Frequency, KeyLoad, TableLoad, TransactionLoad
from migverify.sql.lexer import Modes, Token, tokens
from migverify.sql.lexer import TokenKind as Kind
from migverify.workload.classify import CLOCK, Classification, StatementKind
from migverify.workload.meaning import Meaning, Meanings
from migverify.workload.model import Command, Parameter
from migverify.workload.replay.plan import ColumnReader, read_summary
from migverify.workload.replay.touches import Keys, RowKey, TableKeys, column_name, qualified, touches, value_lists
from migverify.workload.replay.wire import inlined

COLUMNS = (
    "session", "command", "sql", "database", "start", "end", "errno", "rows_affected", "parameters", "charset",
    "sql_mode", "in_transaction", "source_file", "source_line",
)  # fmt: skip
MOST_STRETCHES = 3600
"""Stretches of time that a table's counts are held for; a capture of more seconds has longer ones."""
KEY_STRETCHES = 600
MOST_KEYS = 1024
TOP_KEYS = 10
SAMPLE = 1000
"""Values of a column whose order is looked at."""
LEAST_PAIRS = 20
_BEFORE_A_NAME = frozenset({
    b"INSERT", b"REPLACE", b"UPDATE", b"DELETE", b"LOW_PRIORITY", b"DELAYED", b"HIGH_PRIORITY", b"QUICK", b"IGNORE",
    b"INTO", b"FROM",
})  # fmt: skip
_WRITING = (StatementKind.WRITE, StatementKind.UNKNOWN)
_COUNTED = (StatementKind.READ, *_WRITING)

Comparable: TypeAlias = tuple[int, int | bytes]
"""A kind and a value: values of different kinds have a fixed order, which means nothing."""


@dataclass(slots=True)
class _Counts:
    """Counts by stretch of time of ``width`` seconds; what has no time counts in all only."""

    width: float
    count: int = 0
    stretches: dict[int, int] = field(default_factory=dict)

    def add(self, moment: int | None, number: int = 1) -> None:
        self.count += number
        if moment is not None:
            place = math.floor(moment / 1e6 / self.width)
            self.stretches[place] = self.stretches.get(place, 0) + number

    def frequency(self, span: float, stretch: float) -> Frequency:
        """Return the mean over ``span`` seconds, and the mean of the busiest ``stretch`` seconds (or of one place)."""
        places = max(1, math.ceil(stretch / self.width))
        ordered = sorted(self.stretches)
        best = total = first = 0
        for last in ordered:
            total += self.stretches[last]
            while ordered[first] <= last - places:
                total -= self.stretches[ordered[first]]
                first += 1
            best = max(best, total)
        return Frequency(self.count, self.count / span, best / min(places * self.width, span))


@dataclass(slots=True)
class _TopKeys:
    """Counts of the keys that are written most, by Misra and Gries: what is reported was counted, some more may be.

    A key of more than ``missed`` writes is always held.
    """

    width: float
    missed: int = 0
    held: dict[tuple[str, RowKey], tuple[int, _Counts]] = field(default_factory=dict)

    def add(self, table: str, key: RowKey, moment: int | None) -> None:
        credit, counts = self.held.get((table, key)) or (0, _Counts(self.width))
        counts.add(moment)
        self.held[table, key] = (credit + 1, counts)
        if len(self.held) >= 2 * MOST_KEYS:
            cut = sorted((credit for credit, _ in self.held.values()), reverse=True)[MOST_KEYS]
            self.missed += cut
            self.held = {one: (credit - cut, counts) for one, (credit, counts) in self.held.items() if credit > cut}


@dataclass(slots=True)
class _Sample:
    """Values of a column with their times, spread evenly over all of them."""

    every: int = 1
    seen: int = 0
    values: list[tuple[int, Comparable]] = field(default_factory=list)

    def add(self, moment: int, value: Comparable) -> None:
        self.seen += 1
        if self.seen % self.every == 0:
            self.values.append((moment, value))
            if len(self.values) >= SAMPLE:
                self.values, self.every = self.values[::2], self.every * 2

    def ascending(self) -> float | None:
        """Return the share of pairs, some places apart, whose later value is larger; None where there are too few."""
        ordered = [value for _, value in sorted(self.values, key=lambda one: one[0])]
        lag = max(1, len(ordered) // 20)
        pairs = [(a, b) for a, b in zip(ordered, ordered[lag:], strict=False) if a != b]
        return sum(a < b for a, b in pairs) / len(pairs) if len(pairs) >= LEAST_PAIRS else None


def read_load(
    capture: Path, reader: ColumnReader, keys: Keys, *, columns: Mapping[str, frozenset[str]],
    row_bytes: Mapping[str, float], database: str | None = None, stretch: float = 10.0,
) -> CaptureLoad:  # fmt: skip
    """Read what a capture asks for.

    Parameters
    ----------
    keys
        Keys of the source's tables. Triggers and foreign keys do not count: no text shows what they write.
    columns, row_bytes
        By table of the source: the columns whose order of values matters, and the length of a row.
    stretch
        Seconds that a peak has to last.

    Raises UsageError where the capture cannot be read.
    """
    summary = read_summary(capture)
    ends = [datetime.fromisoformat(summary[name]).timestamp() for name in ("first", "last") if summary.get(name)]
    alone = {name: replace(one, triggers=False, related=()) for name, one in keys.items()}
    walk = _Walk(alone, columns, row_bytes, database, max(1.0, max(ends, default=0.0) - min(ends, default=0.0)))
    for batch in reader(capture, COLUMNS):
        for row in zip(*(batch[name] for name in COLUMNS), strict=True):
            walk.take(row)
    return replace(
        walk.load(stretch), formats=tuple(summary.get("formats") or ()), masked=bool(summary.get("masked")),
        rejected_share=summary["rejected_bytes"] / summary["bytes"] if summary.get("bytes") else 0.0,
    )  # fmt: skip


class _Walk:
    """Takes a capture's statements one after the other."""

    def __init__(
        self, keys: Keys, columns: Mapping[str, frozenset[str]], row_bytes: Mapping[str, float], database: str | None,
        span: float,
    ) -> None:  # fmt: skip
        self._keys, self._columns, self._row_bytes, self._database = keys, columns, row_bytes, database
        self._span, self._width = span, max(1.0, span / MOST_STRETCHES)
        self._meanings = Meanings("mysql")
        self._counts: defaultdict[tuple[str, str], _Counts] = defaultdict(lambda: _Counts(self._width))
        self._uncounted: Counter[str] = Counter()
        self._written: Counter[str] = Counter()
        self._samples: defaultdict[tuple[str, str], _Sample] = defaultdict(_Sample)
        self._top = _TopKeys(max(1.0, span / KEY_STRETCHES))
        self._statements = 0
        self._session = ""
        self._begun: int | None = None
        self._transaction = self._longest = self._most = self._largest = self._widest = TransactionLoad()
        self._writes = False

    def take(self, row: Sequence[Any]) -> None:
        """Take one row of ``COLUMNS``."""
        (session, command, sql, database, start, end, errno, affected, parameters, charset, sql_mode, inside, file,
         line) = row  # fmt: skip
        if command == Command.PREPARE.value:
            return
        self._statements += 1
        modes, origin = Modes.of(sql_mode, charset), f"{file}:{line}"
        meaning = self._meanings.meaning(sql, modes)
        found = meaning.classification
        if session != self._session or not inside or found.words[:1] in (("BEGIN",), ("START",)):
            self._end_transaction()
            self._session = session
        text, database, rows, size = _text(sql, parameters, modes), database or self._database, 0, 0
        moment = start if start is not None else end
        if not errno and found.kind in _WRITING:
            rows, size = self._write(text, meaning, database, moment, affected, modes, origin)
        elif not errno and found.kind is StatementKind.READ:
            for name in _tables(meaning, database):
                self._counts[name, "reads"].add(moment)
            if found.locking:
                self._row_keys(text, meaning, database, moment, modes)
        self._in_transaction(origin, start, end, found, rows, size)

    def _write(
        self, sql: bytes, meaning: Meaning, database: str | None, moment: int | None, affected: int | None,
        modes: Modes, origin: str,
    ) -> tuple[int, int]:  # fmt: skip
        """Count a statement that writes; return its rows and bytes."""
        names = _tables(meaning, database)
        # rows and upserts of an INSERT are known by its tokens, a single table of another statement by its structure
        tells = len(names) != 1 or meaning.classification.words[:1] in (("INSERT",), ("REPLACE",))
        lexed = list(tokens(sql, "mysql", modes)) if tells else []
        words = _words(sql, lexed)
        table = _written(sql, lexed, words, names, database)
        word, is_upsert = words[:1], words[:1] == [b"REPLACE"] or b"DUPLICATE" in words
        self._written[table or ""] += 1
        if table is None:
            self._counts["", "elsewhere"].add(moment, affected or 1)
            return affected or 1, len(sql)
        rows, each = affected or 1, len(sql)
        if word in ([b"INSERT"], [b"REPLACE"]):
            columns, values = _inserted(sql, lexed, words, self._keys.get(table, TableKeys()).columns)
            rows = len(values) or rows
            each //= rows
            if moment is None or not (values or affected is not None):
                self._uncounted[table] += 1
            else:
                self._counts[table, "upserts" if is_upsert else "inserts"].add(moment, rows)
                self._sample(table, sql, columns, values, moment)
        if is_upsert or word != [b"INSERT"]:
            self._counts[table, "changes"].add(moment)
            self._row_keys(sql, meaning, database, moment, modes)
        if each > self._widest.bytes:
            self._widest = TransactionLoad(origin, rows=1, bytes=each)
        return rows, max(len(sql), round(rows * self._row_bytes.get(table, 0.0)))

    def _sample(
        self, table: str, sql: bytes, names: Sequence[str], rows: list[list[list[Token]]], moment: int
    ) -> None:  # fmt: skip
        for at, name in enumerate(names):
            for values in rows if name in self._columns.get(table, ()) else ():
                value = _comparable(sql, values[at], moment) if at < len(values) else None
                if value is not None:
                    self._samples[table, name].add(moment, value)

    def _row_keys(self, sql: bytes, meaning: Meaning, database: str | None, moment: int | None, modes: Modes) -> None:
        for touch in touches(sql, meaning, database, self._keys, modes, writes=True):
            if touch.key is not None and touch.key[0] == b"PRIMARY":
                self._top.add(touch.table, touch.key, moment)

    def _in_transaction(
        self, origin: str, start: int | None, end: int | None, found: Classification, rows: int, size: int
    ) -> None:
        now, last = self._transaction, end if end is not None else start
        self._begun = start if self._begun is None else self._begun
        seconds = 0.0 if last is None or self._begun is None else (last - self._begun) / 1e6
        self._transaction = TransactionLoad(
            now.origin or origin, max(now.seconds, seconds), now.statements + (found.kind in _COUNTED), now.rows + rows,
            now.bytes + size,
        )  # fmt: skip
        self._writes = self._writes or rows > 0 or found.locking

    def _end_transaction(self) -> None:
        """Compare the transaction with the largest ones so far; no limit bounds one that only reads."""
        if self._writes:
            ended = self._transaction
            self._longest = max(self._longest, ended, key=lambda one: one.seconds)
            self._most = max(self._most, ended, key=lambda one: one.statements)
            self._largest = max(self._largest, ended, key=lambda one: one.bytes)
        self._transaction, self._begun, self._writes = TransactionLoad(), None, False

    def load(self, stretch: float) -> CaptureLoad:
        """Return what was counted."""
        self._end_transaction()

        def of(table: str, what: str) -> Frequency:
            return self._counts[table, what].frequency(self._span, stretch)

        ascending: defaultdict[str, dict[str, float]] = defaultdict(dict)
        for (table, column), sample in self._samples.items():
            if (share := sample.ascending()) is not None:
                ascending[table][column] = share
        tables = {
            name: TableLoad(of(name, "reads"), of(name, "inserts"), of(name, "changes"), of(name, "upserts"),
                            self._uncounted[name], ascending.get(name, {}), self._written[name])
            for name in sorted({name for name, _ in self._counts if name} | set(self._uncounted))
        }  # fmt: skip
        keys = [
            KeyLoad(table, ", ".join(
                f"{column}={value.decode('utf-8', 'replace')}"
                for column, value in zip(self._keys[table].primary, key[1:], strict=True)
            ), counts.frequency(self._span, stretch))
            for (table, key), (_, counts) in self._top.held.items()
        ]  # fmt: skip
        keys.sort(key=lambda one: (-one.writes.peak, -one.writes.count, one.table, one.key))
        return CaptureLoad(
            statements=self._statements, seconds=self._span, stretch=min(self._span, max(stretch, self._width)),
            tables=tables, keys=tuple(keys[:TOP_KEYS]), elsewhere=of("", "elsewhere"), unnamed=self._written[""],
            longest=self._longest, most=self._most, largest=self._largest, widest=self._widest,
            missed=self._top.missed,
        )  # fmt: skip


def _tables(meaning: Meaning, database: str | None) -> set[str]:
    return {name for one in meaning.shape.tables or () if (name := qualified(one, database)) is not None}


def _text(sql: bytes, parameters: list[dict[str, Any]] | None, modes: Modes) -> bytes:
    """Return a statement with the values of its parameters in it."""
    try:
        return sql if parameters is None else inlined(sql, tuple(Parameter(**one) for one in parameters), modes)
    except ValueError:
        return sql  # counted all the same; its key is not known


def _words(sql: bytes, lexed: Sequence[Token]) -> list[bytes]:
    return [sql[token.start : token.end].upper() if token.kind is Kind.WORD else b"" for token in lexed]


def _written(
    sql: bytes, lexed: Sequence[Token], words: Sequence[bytes], names: set[str], database: str | None
) -> str | None:
    """Return the table that a statement writes: its only one, or the first that it names."""
    if len(names) == 1:
        return next(iter(names))
    at = next((at for at, word in enumerate(words) if word not in _BEFORE_A_NAME), len(lexed))
    end = at + 1
    while end + 1 < len(lexed) and sql[lexed[end].start : lexed[end].end] == b".":
        end += 2
    text = b"".join(sql[token.start : token.end] for token in lexed[at:end]).replace(b"`", b"")
    name = qualified(text.decode("utf-8", "replace"), database)
    # sqlglot does not read REPLACE: its table is where that of an INSERT is
    return name if name in names or (not names and words[:1] in ([b"INSERT"], [b"REPLACE"])) else None


def _inserted(
    sql: bytes, lexed: Sequence[Token], words: Sequence[bytes], columns: Sequence[str]
) -> tuple[Sequence[str], list[list[list[Token]]]]:
    """Return the columns and the rows of ``INSERT ... VALUES``, each value its tokens; no rows of INSERT ... SELECT."""
    texts = [sql[token.start : token.end] for token in lexed]
    place = next((at for at, word in enumerate(words) if word in (b"VALUES", b"VALUE")), None)
    if place is None:
        return (), [[]] if b"SET" in words and b"SELECT" not in words else []
    if texts[place - 1] == b")" and b"(" in texts[:place]:
        columns = [column_name(text) for text in texts[texts.index(b"(") + 1 : place - 1] if text != b","]
    return columns, [row for row in value_lists(texts, lexed, place + 1) if row is not None]


def _comparable(sql: bytes, value: Sequence[Token], moment: int) -> Comparable | None:
    """Return a value that can be compared; the clock's is the moment. None for what the text does not tell."""
    text = sql[value[0].start : value[0].end] if value else b""
    if value and value[0].kind is Kind.WORD and text.decode("ascii", "replace").lower() in CLOCK:
        return 2, moment
    if len(value) != 1:
        return None
    if value[0].kind is Kind.INTEGER:
        return 0, int(text)
    return (1, text[1:-1].lower()) if value[0].kind is Kind.STRING and text[:1] in b"'\"" else None

"""Two tables in memory behind the real driver, walker and confirmer: for tests without a database."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from migverify.db.reader import Reader, SidePlan
from migverify.errors import CanceledError, ReadError
from migverify.model import ChunkChecksum, Endpoint, KeyRange, KeyText, Lane
from migverify.sql.checksum import SideSql
from migverify.sql.key_range import KeyColumn
from migverify.tables.confirm import confirm, count_again
from migverify.tables.diff import PairReader
from migverify.tables.engine import edges, marks
from migverify.tables.span import run_span
from migverify.tables.tasks import PairPlan, ReadColumn, Rules, Task, TaskOutcome, task_from_text

RULES = Rules(
    chunk_rows=4,
    max_chunk_rows=8,
    leaf_rows=16,
    retries=0,
    retry_seconds=0.0,
    delay_seconds=0.0,
    budget_seconds=600.0,  # a slow machine must not end a walk early
)
Rows = dict[int | None, str]


def make_pair(rows: int = 100, *, nullable: bool = False, spread: bool = True, name: str = "app.t") -> PairPlan:
    """A pair with an integer key and one text column; rows without a key have the key None."""
    key = (KeyColumn("`id`", "CONCAT(`id`)", "integer", nullable),)
    sql = SideSql("`app`.`t`", "SHA2", "CONCAT_WS(',',v)", "CONCAT(v)", None, ("CONCAT(`id`)", "`v`"), key, key)
    database, _, table = name.partition(".")
    sides = [SidePlan(Endpoint(end, "toy", 1, "u"), database, table, sql) for end in ("source", "target")]
    columns = (
        ReadColumn("id", "integer", Lane.EXACT, "text", binary=False),
        ReadColumn("v", "text", Lane.EXACT, "text", binary=False),
    )
    return PairPlan(
        id=name, source=name, target=name, sources=(sides[0],), target_side=sides[1], columns=columns, hash="SHA2",
        whole=False, whole_reason="", spread=spread, rows=rows, bytes=rows * 10, schema=(), not_covered=(), unproved=(),
        blind_spots=(),
    )  # fmt: skip


def row_checksum(key: int | None, value: str) -> str:
    """15 hex digits, as a server would give."""
    return hashlib.sha256(f"{key},{value}".encode()).hexdigest()[:15]


@dataclass
class ToySide:
    """One table. ``before_read`` is called with (what, range) before every read and may raise or change rows.

    ``filtered``: the table has rows beside ``rows`` that a configured condition leaves out.
    """

    rows: Rows
    before_read: Callable[[str, KeyRange | None], None] = lambda _what, _range: None
    ranges: list[KeyRange] = field(default_factory=list)
    filtered: bool = False

    def within(self, key_range: KeyRange) -> Rows:
        if key_range.nulls:
            return {key: value for key, value in self.rows.items() if key is None}
        low = None if key_range.lower is None else int(key_range.lower[0] or "")
        high = None if key_range.upper is None else int(key_range.upper[0] or "")
        return {
            key: value
            for key, value in sorted((k, v) for k, v in self.rows.items() if k is not None)
            if (low is None or key > low) and (high is None or key <= high)
        }


class ToyReader(Reader):
    """Reads a ``ToySide`` on the caller's thread."""

    def __init__(self, side: SidePlan, table: ToySide, rules: Rules) -> None:
        self.side = side
        self.sql = side.sql
        self.table = table
        self._rules = rules

    def later(self, read: Callable[[], Any]) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(read())
        except Exception as error:  # noqa: BLE001 - a future carries what was raised
            done.set_exception(error)
        return done

    def close(self) -> None:
        """Nothing to release."""

    def pause(self, seconds: float) -> None:
        """No test waits."""

    def _read(self, what: str, key_range: KeyRange | None) -> None:
        self.table.before_read(what, key_range)

    def checksum(self, key_range: KeyRange, *, wide: bool = False) -> tuple[ChunkChecksum, float]:
        del wide
        self._read("checksum", key_range)
        self.table.ranges.append(key_range)
        found = self.table.within(key_range)
        total = sum(int(row_checksum(k, v), 16) for k, v in found.items())
        return ChunkChecksum(len(found), len(found), total), 0.001

    def row_list(self, key_range: KeyRange, *, wide: bool = False, share: tuple[int, int] | None = None) -> list[bytes]:
        del wide
        self._read("list", key_range)
        self.table.ranges.append(key_range)
        return [
            f"{'N' if k is None else k},{row_checksum(k, v)}".encode()
            for k, v in self.table.within(key_range).items()
            if share is None or int(row_checksum(k, "share"), 16) % share[0] == share[1]
        ]  # fmt: skip

    def walk(self, key_range: KeyRange, rows: int) -> KeyText | None:
        self._read("walk", key_range)
        found = list(self.table.within(key_range))
        return (str(found[rows - 1]),) if len(found) >= rows else None

    def edge(self, *, last: bool) -> str | None:
        self._read("edge", None)
        keys = [k for k in self.table.rows if k is not None]
        return str(max(keys) if last else min(keys)) if keys else None

    def count(self) -> int:
        self._read("count", None)
        return len(self.table.rows)

    def has_rows(self) -> bool:
        self._read("any", None)
        return bool(self.table.rows) or self.table.filtered

    def query(self, text: str) -> list[tuple[bytes | None, ...]]:
        self._read("rows", None)
        wanted = re.search(r"IN \((.+?)\)", text)
        keys: list[int | None] = [int(k) for k in wanted[1].split(", ")] if wanted else []
        if "IS NULL" in text:
            keys.append(None)
        return [
            (
                f"{'N' if k is None else k},{row_checksum(k, self.table.rows[k])}".encode(),
                None if k is None else str(k).encode(),
                self.table.rows[k].encode(),
            )
            for k in keys if k in self.table.rows
        ]  # fmt: skip


class ToyEngine:
    """Runs tasks at once. ``before_task`` is called with every task and may raise; ``budget`` limits chunks a task."""

    name = "toy"

    def __init__(
        self, source: ToySide, target: ToySide, *, slots: int = 2, before_task: Callable[[Task], None] | None = None
    ) -> None:
        self.sides = (source, target)
        self.slots = slots
        self.before_task = before_task or (lambda _task: None)
        self.tasks: list[Task] = []
        self.canceled = False

    def submit(self, task: str) -> Future[str]:
        done: Future[str] = Future()
        try:
            done.set_result(self._run(task_from_text(task)).to_text())
        except Exception as error:  # noqa: BLE001 - a future carries what was raised
            done.set_exception(error)
        return done

    def _run(self, task: Task) -> TaskOutcome:
        if self.canceled:
            raise CanceledError("toy: canceled")
        self.tasks.append(task)
        self.before_task(task)
        readers = [ToyReader(s, t, task.rules) for s, t in zip(task.pair.sides, self.sides, strict=True)]
        pair = PairReader(task.pair, readers[:1], readers[1], task.rules)
        if task.kind == "span":
            return run_span(pair, task)
        if task.kind == "count":
            return TaskOutcome("count", task.pair.id, count=readers[task.side].count())
        if task.kind == "any":
            return TaskOutcome("any", task.pair.id, count=int(readers[task.side].has_rows()))
        if task.kind == "edges":
            return TaskOutcome("edges", task.pair.id, keys=edges(pair))
        if task.kind == "marks":
            return TaskOutcome("marks", task.pair.id, marks=marks(pair, task))
        if task.kind == "counts":
            counts, state = count_again(pair, task.counts)
            return TaskOutcome("counts", task.pair.id, counts=counts, state=state)
        if task.kind == "confirm":
            return TaskOutcome("confirm", task.pair.id, diffs=tuple(confirm(pair, task.diffs)))
        raise ReadError(f"no toy task is called {task.kind!r}")

    def cancel(self) -> None:
        self.canceled = True

    def close(self) -> None:
        """Nothing to release."""


class PowerCutError(BaseException):
    """The process is gone: nothing catches this, as nothing catches kill -9."""


class DyingStore:
    """Passes calls on to a store until the process 'dies' at the given write, before or after it took effect."""

    WRITES = ("add_span", "add_chunks", "add_row_diffs", "add_table_result", "add_sql", "add_blob", "finish_run")

    def __init__(self, store: Any, dies_at: int, *, after: bool) -> None:
        self._store, self._left, self._after = store, dies_at, after
        self.died = False

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)
        if name not in self.WRITES:
            return call

        def guarded(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                self.died = True
                if self._after:
                    call(*arguments, **named)
                raise PowerCutError
            return call(*arguments, **named)

        return guarded


def random_rows(rng: random.Random, count: int, *, nullable: bool = False) -> Rows:
    """Rows with gaps between their keys, negative and above 2**63 among them."""
    keys: set[int | None] = {rng.choice([rng.randrange(-50, 400), 2**63 + rng.randrange(100)]) for _ in range(count)}
    if nullable and rng.random() < 0.5:
        keys.add(None)
    return {key: rng.choice("abc") for key in keys}


def spoil(rng: random.Random, rows: Rows, faults: int) -> Rows:
    """A copy with some rows changed, deleted or added."""
    other = dict(rows)
    for _ in range(faults):
        keys = [k for k in other if k is not None]
        what = rng.choice(["change", "delete", "add"])
        if what == "add" or not keys:
            other[rng.randrange(500, 900)] = "new"
        elif what == "delete":
            del other[rng.choice(keys)]
        else:
            other[rng.choice(keys)] = "changed"
    return other


def differences(source: Rows, target: Rows) -> set[KeyText]:
    """The keys that a perfect comparison finds."""
    return {
        (None if key is None else str(key),)
        for key in source.keys() | target.keys()
        if source.get(key) != target.get(key)
    }

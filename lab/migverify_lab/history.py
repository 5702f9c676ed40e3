"""A re-architecture: many old history tables on the source, one re-modelled table on the target.

Nothing of an old row is found as it was: ids are one number over all shards, two columns of money and a sign are one
DECIMAL, day and time are one DATETIME, codes are labels, two titles are one. Both sides are computed from the row's
number by the servers themselves, so that they are equal by construction and quick to make.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from migverify.errors import LabError
from migverify.sql.quoting import quote_name
from migverify_lab.cache import Progress
from migverify_lab.scenario import PlannedChange, PlantedChange, ScenarioFault, plant_change, take_back_change
from migverify_lab.session import LabServer, connect, query, run, text_literal

SHARDS = 64
ROWS = 2000
MONTHS = 12
MOST_ROWS = 1_000_000
SHARDS_PER_INSERT = 8
"""Of the target: a statement of TiDB is one transaction in memory."""

_TEXT = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
_OLD = (
    "id BIGINT NOT NULL PRIMARY KEY, user_no INT NOT NULL, kind TINYINT NOT NULL, status CHAR(1) NOT NULL,"
    " sign CHAR(1) NOT NULL, amount_whole BIGINT NOT NULL, amount_cents TINYINT UNSIGNED NOT NULL,"
    " currency_no SMALLINT NOT NULL, booked_day DATE NOT NULL, booked_time TIME(3) NOT NULL,"
    " title_1 VARCHAR(40) NOT NULL, title_2 VARCHAR(40) NULL, party_type CHAR(1) NOT NULL, party_no BIGINT NOT NULL,"
    " KEY by_day (booked_day)"
)
_NEW = (
    "id BIGINT NOT NULL PRIMARY KEY, user_id BIGINT NOT NULL,"
    " kind ENUM('payment','topup','refund','transfer') NOT NULL,"
    " state ENUM('succeeded','failed','pending') NOT NULL, amount DECIMAL(18,2) NOT NULL, currency CHAR(3) NOT NULL,"
    " occurred_at DATETIME(3) NOT NULL, title VARCHAR(90) NOT NULL, counterparty VARCHAR(30) NOT NULL,"
    " KEY by_time (occurred_at)"
)

# Over a row number n and a shard s; whole numbers only, which every server computes alike. The months go by n modulo
# their count, so the others go modulo primes: each month has rows of each kind.
_BASE = {
    "user": "MOD(n * 31, 500) * 64 + s",
    "kind": "1 + MOD(MOD(n * 9 + s, 13), 4)",
    "status": "MOD(n * 11 + s, 19)",
    "negative": "MOD(n + s, 11) < 4",
    "whole": "MOD(n * 7919 + s * 613, 100000)",
    "currency": "MOD(MOD(n * 4 + s, 7), 3)",
    "cents": "IF(MOD(MOD(n * 4 + s, 7), 3) = 0, 0, MOD(n * 31 + s * 7, 100))",
    "second": "MOD(n * 7919 + s * 104729, 27 * 86400)",
    "millisecond": "MOD(n * 17 + s, 1000)",
    "title": "CONCAT('Café № ', MOD(n * 13 + s, 997))",
    "subtitle": "IF(MOD(n * 7 + s, 5) = 0, NULL, CONCAT('ref ', n))",
    "party": "MOD(MOD(n * 5 + s, 7), 3)",
}


@dataclass(frozen=True, slots=True)
class History:
    """Which tables: ``shards`` old ones in database ``old``, ``transactions`` in database ``new``.

    ``last`` is the first day of the newest of ``months`` months; the rows of a shard are spread over them evenly.
    """

    old: str = "history_old"
    new: str = "history_new"
    shards: int = SHARDS
    rows: int = ROWS
    months: int = MONTHS
    last: date = date(1970, 1, 1)

    def __post_init__(self) -> None:
        if not 1 <= self.shards <= SHARDS or not 1 <= self.months <= 120 or not 1 <= self.rows <= MOST_ROWS:
            raise LabError("1 to 64 shards, 1 to 120 months, 1 to 1,000,000 rows of a shard", hint="See --help.")
        if self.last.day != 1:
            raise LabError(f"{self.last} is not the first day of a month", hint="For example 2026-11-01.")

    @property
    def first(self) -> date:
        """First day of the oldest month."""
        number = self.last.year * 12 + self.last.month - 1 - (self.months - 1)
        return date(number // 12, number % 12 + 1, 1)

    @property
    def table(self) -> str:
        """The new table, quoted."""
        return f"{quote_name(self.new)}.transactions"

    def shard(self, number: int) -> str:
        """Return an old table, quoted."""
        return f"{quote_name(self.old)}.{quote_name(f'history_{number:02}')}"


def this_month() -> date:
    """Return the first day of the current month, UTC."""
    return datetime.now(UTC).date().replace(day=1)


def load(
    source: LabServer, target: LabServer, history: History, on_progress: Progress = lambda _: None
) -> dict[str, int]:
    """Make all tables anew, equal in what they say; returns rows by table.

    Raises
    ------
    LabError
        a server refuses something.
    """
    span = f"{history.first:%Y-%m} to {history.last:%Y-%m}"
    on_progress(f"source: {history.shards} tables of {history.rows} rows, {span}")
    with connect(source) as connection:
        _database(connection, history.old)
        _numbers(connection, history.old, max(history.rows, history.shards))
        for shard in range(history.shards):
            run(connection, [
                f"DROP TABLE IF EXISTS {history.shard(shard)}", f"CREATE TABLE {history.shard(shard)} ({_OLD}) {_TEXT}",
                f"INSERT INTO {history.shard(shard)} {_old_rows(history, shard)}",
            ])  # fmt: skip
        run(connection, [f"DROP TABLE {quote_name(history.old)}.numbers"])
    on_progress("target: one table")
    with connect(target) as connection:
        _database(connection, history.new)
        _numbers(connection, history.new, max(history.rows, history.shards))
        run(connection, [f"DROP TABLE IF EXISTS {history.table}", f"CREATE TABLE {history.table} ({_NEW}) {_TEXT}"])
        for first in range(0, history.shards, SHARDS_PER_INSERT):
            behind = min(first + SHARDS_PER_INSERT, history.shards)
            run(connection, [f"INSERT INTO {history.table} {_new_rows(history, first, behind)}"])
        run(connection, [f"DROP TABLE {quote_name(history.new)}.numbers"])
        rows = int(query(connection, f"SELECT COUNT(*) FROM {history.table}")[0][0])  # noqa: S608
    return {
        f"source {history.old}.history_NN": history.shards * history.rows,
        f"target {history.new}.transactions": rows,
    }


def _database(connection: Any, name: str) -> None:
    run(connection, [f"CREATE DATABASE IF NOT EXISTS {quote_name(name)} {_TEXT}"])


def _numbers(connection: Any, database: str, count: int) -> None:
    """Make a table of the numbers from 0 on, at least ``count`` of them, by doubling."""
    numbers = f"{quote_name(database)}.numbers"
    run(connection, [f"DROP TABLE IF EXISTS {numbers}", f"CREATE TABLE {numbers} (n BIGINT NOT NULL PRIMARY KEY)",
                     f"INSERT INTO {numbers} VALUES (0)"])  # noqa: S608  # fmt: skip
    have = 1
    while have < count:
        run(connection, [f"INSERT INTO {numbers} SELECT n + {have} FROM {numbers}"])  # noqa: S608
        have *= 2


def _month_case(history: History) -> str:
    """Return the first day of the row's month, as SQL."""
    number = history.first.year * 12 + history.first.month - 1
    cases = " ".join(
        f"WHEN {at} THEN DATE'{date((number + at) // 12, (number + at) % 12 + 1, 1)}'" for at in range(history.months)
    )
    return f"CASE MOD(n, {history.months}) {cases} END"


def _moment(history: History) -> str:
    # Microseconds: the one unit that keeps a fraction on every server.
    offset = f"({_BASE['second']}) * 1000000 + ({_BASE['millisecond']}) * 1000"
    return f"TIMESTAMPADD(MICROSECOND, {offset}, CAST({_month_case(history)} AS DATETIME(6)))"


def _old_rows(history: History, shard: int) -> str:
    base = _BASE
    columns = (
        "n + 1", base["user"], base["kind"], f"CASE {base['status']} WHEN 0 THEN 'F' WHEN 1 THEN 'P' ELSE 'S' END",
        f"IF({base['negative']}, '-', '+')", base["whole"], base["cents"],
        f"CASE {base['currency']} WHEN 0 THEN 392 WHEN 1 THEN 840 ELSE 978 END", "DATE(at)", "TIME(at)",
        base["title"], base["subtitle"], f"CASE {base['party']} WHEN 0 THEN 'M' WHEN 1 THEN 'U' ELSE 'B' END",
        "n * 3 + s",
    )  # fmt: skip
    rows = f"SELECT n, {shard} AS s FROM {quote_name(history.old)}.numbers WHERE n < {history.rows}"  # noqa: S608
    return f"SELECT {', '.join(columns)} FROM (SELECT n, s, {_moment(history)} AS at FROM ({rows}) AS r) AS t"  # noqa: S608


def _new_rows(history: History, first: int, behind: int) -> str:
    base = _BASE
    columns = (
        f"(n + 1) * {SHARDS} + s", base["user"],
        f"ELT({base['kind']}, 'payment', 'topup', 'refund', 'transfer')",
        f"CASE {base['status']} WHEN 0 THEN 'failed' WHEN 1 THEN 'pending' ELSE 'succeeded' END",
        f"IF({base['negative']}, -1, 1) * CAST({base['whole']} + ({base['cents']}) * 0.01 AS DECIMAL(18,2))",
        f"CASE {base['currency']} WHEN 0 THEN 'JPY' WHEN 1 THEN 'USD' ELSE 'EUR' END", _moment(history),
        f"CONCAT_WS(' / ', {base['title']}, {base['subtitle']})",
        f"CONCAT(CASE {base['party']} WHEN 0 THEN 'merchant' WHEN 1 THEN 'user' ELSE 'bank' END, ':', n * 3 + s)",
    )  # fmt: skip
    numbers = f"{quote_name(history.new)}.numbers"
    rows = (f"SELECT a.n AS n, b.n AS s FROM {numbers} AS a JOIN {numbers} AS b ON b.n >= {first} AND b.n < {behind}"  # noqa: S608
            f" WHERE a.n < {history.rows}")  # fmt: skip
    return f"SELECT {', '.join(columns)} FROM ({rows}) AS r"  # noqa: S608


# --- faults ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HistoryScene:
    """What a fault of the history plans from: the rows of one month of the new table."""

    target: LabServer
    history: History
    month: date
    seed: int

    def choose(self, needs: str) -> dict[str, str]:
        """Choose a row of the month by the seed, as texts by column; raises LabError where none fulfills ``needs``."""
        with connect(self.target) as connection:
            rows = query(
                connection,
                f"SELECT {', '.join(f'CAST({column} AS CHAR)' for column in _COLUMNS)} FROM {self.history.table}"  # noqa: S608
                f" WHERE occurred_at >= '{self.month}' AND occurred_at < DATE_ADD('{self.month}', INTERVAL 1 MONTH)"
                f" AND {needs} ORDER BY id LIMIT 1000",
            )
        if not rows:
            raise LabError(f"{self.month:%Y-%m} holds no row for this fault",
                           hint="Make the tables: `migverify lab load history`.")  # fmt: skip
        return dict(zip(_COLUMNS, map(str, random.Random(f"history {self.seed}").choice(rows)), strict=True))

    def change(self, what: str, row: Mapping[str, str], key: str, sql: str, undo: str) -> PlannedChange:
        """Return a change of one row; ``key`` is that of the row that then differs."""
        facts = {"key": key, "month": f"{self.month:%Y-%m}", **row}
        return PlannedChange(what, facts, [("target", sql)], [("target", undo)])

    def restore(self, row: Mapping[str, str]) -> str:
        """Return what puts a row back."""
        return f"REPLACE INTO {self.history.table} VALUES ({', '.join(map(text_literal, row.values()))})"  # noqa: S608


_COLUMNS = ("id", "user_id", "kind", "state", "amount", "currency", "occurred_at", "title", "counterparty")


def _set(name: str, what: str, sets: str, needs: str = "TRUE") -> ScenarioFault[HistoryScene]:
    def plan(scene: HistoryScene) -> PlannedChange:
        row = scene.choose(needs)
        sql = f"UPDATE {scene.history.table} SET {sets} WHERE id = {row['id']}"  # noqa: S608
        return scene.change(what, row, row["id"], sql, scene.restore(row))

    return ScenarioFault(name, what, (_RULES,), plan)


def _lose(scene: HistoryScene) -> PlannedChange:
    row = scene.choose("TRUE")
    sql = f"DELETE FROM {scene.history.table} WHERE id = {row['id']}"  # noqa: S608
    return scene.change("a row was not moved", row, row["id"], sql, scene.restore(row))


def _double(scene: HistoryScene) -> PlannedChange:
    row, table = scene.choose("TRUE"), scene.history.table
    with connect(scene.target) as connection:
        copy = int(query(connection, f"SELECT MAX(id) + 1 FROM {table}")[0][0])  # noqa: S608
    sql = f"INSERT INTO {table} SELECT {copy}, {', '.join(_COLUMNS[1:])} FROM {table} WHERE id = {row['id']}"  # noqa: S608
    undo = f"DELETE FROM {table} WHERE id = {copy}"  # noqa: S608
    return scene.change("a row was moved twice, under another id", row, str(copy), sql, undo)


_RULES = "the rules of examples/history"
FAULTS = (
    _set("cent-lost", "an amount is off by a cent", "amount = amount + 0.01"),
    _set("label-moved", "a label of the changed ENUM is the next one", "kind = MOD(kind + 0, 4) + 1"),
    _set("title-cut", "the second half of a merged title is lost", "title = SUBSTRING_INDEX(title, ' / ', 1)",
         "title LIKE '% / %'"),
    _set("sign-lost", "a refund counts as income", "amount = ABS(amount)", "amount < 0"),
    ScenarioFault("row-lost", "a row was not moved", (_RULES,), _lose),
    ScenarioFault("row-doubled", "a row was moved twice, under another id", (_RULES,), _double),
)  # fmt: skip


def plant(target: LabServer, history: History, name: str, month: date, seed: int = 1) -> PlantedChange:
    """Plant one fault in a row of a month of the new table; the same seed on the same data makes the same one."""
    return plant_change(FAULTS, name, lambda: HistoryScene(target, history, month, seed), lambda _: target)


def take_back(target: LabServer, planted: PlantedChange) -> None:
    """Undo a fault."""
    take_back_change(planted, lambda _: target)

"""History for rehearsals of a load: months of entries on the source that never change, and their way to the target.

A month is backed up into a file with a checksum, loaded from that file, and can be taken away from the target again.
"""

from __future__ import annotations

import hashlib
import json
import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migverify.errors import LabError
from migverify_lab.cutover import SIDES, Rehearsal
from migverify_lab.session import connect, text_literal

if TYPE_CHECKING:
    from pymysql.connections import Connection

DATABASE = "shop_history"
TABLE = f"{DATABASE}.entries"
BEGIN = datetime(2025, 1, 1)
DAYS, A_DAY = 120, 12
MISTAKES = {"lose-row": "loading leaves one row out, and says that it did not"}
VERBS = ("prepare", "backup", "backed-up", "load", "loaded", "unload")
_CREATE = (
    f"DROP DATABASE IF EXISTS {DATABASE}",
    f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    f"CREATE TABLE {TABLE} (id BIGINT NOT NULL PRIMARY KEY, account INT NOT NULL, amount DECIMAL(20,2) NOT NULL,"
    " note VARCHAR(40) NULL, `at` DATETIME NOT NULL, changed_at DATETIME NOT NULL, KEY by_at (`at`))"
    " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
)
_READ = "SELECT id, account, amount, note, `at`, changed_at FROM shop_history.entries WHERE `at` >= %s AND `at` < %s"


def history(one: Rehearsal, verb: str, start: str = "", end: str = "", mistake: str = "") -> str:
    """Do one thing with a span of days; returns what was done.

    Raises
    ------
    LabError
        there is no such verb; a backup is not there or not whole; a month is on the target in part.
    """
    if verb not in VERBS:
        raise LabError(f"history can {', '.join(VERBS)}, not {verb!r}", hint="See --help.")
    if verb == "prepare":
        return _prepare(one, mistake)
    first, last = _day(start), _day(end)
    if verb == "backup":
        return _backup(one, first, last)
    if verb == "backed-up":
        return f"{len(_kept(one, first, last))} rows are backed up"
    with connect(one.pair.target) as connection:
        if verb == "load":
            return _load(one, connection, first, last)
        if verb == "loaded":
            return _loaded(one, connection, first, last)
        with connection.cursor() as cursor:
            gone = cursor.execute("DELETE FROM shop_history.entries WHERE `at` >= %s AND `at` < %s", (first, last))
    return f"{gone} rows are gone from the target"


def _day(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise LabError(f"not a day: {text!r}", hint="Write 2025-01-01.") from None


def _prepare(one: Rehearsal, mistake: str) -> str:
    if mistake and mistake not in MISTAKES:
        raise LabError(f"no mistake is called {mistake!r}", hint=f"Known: {', '.join(MISTAKES)}.")
    rng = random.Random(7)
    rows = []
    for number in range(DAYS * A_DAY):
        moment = BEGIN + timedelta(days=number // A_DAY, seconds=rng.randrange(86_400))
        rows.append([str(number), str(rng.randrange(50)), f"{rng.randrange(10**6) / 100:.2f}",
                     rng.choice([None, "naïve café", "O'Brien \\ 山田"]), str(moment), str(moment)])  # fmt: skip
    for side in SIDES:
        with connect(one.server(side)) as connection, connection.cursor() as cursor:
            for statement in _CREATE:
                cursor.execute(statement)
            if side == "source":
                _insert(connection, rows)
    one.remember("history.mistake", mistake)
    config = one.config.read_text() if one.config.is_file() else ""
    if not config:
        raise LabError("the rehearsal is not prepared", hint="Run `migverify lab cutover prepare` first.")
    one.history_config.write_text(config.replace('include: ["shop.*"]', f'include: ["{DATABASE}.*"]'))
    return f"config  {one.history_config}"


def _insert(connection: Connection, rows: list[list[Any]]) -> None:
    with connection.cursor() as cursor:
        for start in range(0, len(rows), 500):
            values = ", ".join(
                "(" + ", ".join("NULL" if value is None else text_literal(value) for value in row) + ")"
                for row in rows[start : start + 500]
            )
            cursor.execute(f"INSERT INTO {TABLE} VALUES {values}")  # noqa: S608


def _file(one: Rehearsal, first: datetime, last: datetime) -> Path:
    return one.folder / f"history-{first:%Y%m%d}-{last:%Y%m%d}.json"


def _backup(one: Rehearsal, first: datetime, last: datetime) -> str:
    with connect(one.pair.source) as connection, connection.cursor() as cursor:
        cursor.execute(_READ, (first, last))
        rows = [[None if value is None else str(value) for value in row] for row in cursor.fetchall()]
    body = json.dumps(rows, ensure_ascii=False)
    path = _file(one, first, last)
    partial = path.with_name(f".{path.name}.new")
    partial.write_text(json.dumps({"sha": hashlib.sha256(body.encode()).hexdigest(), "rows": rows}, ensure_ascii=False))
    partial.replace(path)
    return f"{len(rows)} rows in {path}"


def _kept(one: Rehearsal, first: datetime, last: datetime) -> list[list[Any]]:
    path = _file(one, first, last)
    if not path.is_file():
        raise LabError(f"there is no backup {path}", hint="Run `history backup` first.")
    document = json.loads(path.read_text())
    rows: list[list[Any]] = document["rows"]
    if hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode()).hexdigest() != document["sha"] or not rows:
        raise LabError(f"the backup {path} is not whole", hint="Make it anew.")
    return rows


def _load(one: Rehearsal, connection: Connection, first: datetime, last: datetime) -> str:
    rows = _kept(one, first, last)
    if one.recall("history.mistake") == "lose-row":
        rows = rows[:-1]
    connection.begin()
    _insert(connection, rows)
    connection.commit()
    return f"{len(rows)} rows are on the target"


def _loaded(one: Rehearsal, connection: Connection, first: datetime, last: datetime) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM shop_history.entries WHERE `at` >= %s AND `at` < %s", (first, last))
        row: Any = cursor.fetchone()
    found, wanted = int(row[0]), len(_kept(one, first, last))
    if not found:
        raise LabError("nothing of it is on the target", hint="Load it.")
    return f"{found} of {wanted} rows are on the target"

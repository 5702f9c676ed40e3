"""Items -> decoded changes, as JSON lines or text.

One change a line: each row of a rows event, and each table that a TRUNCATE or DDL statement names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

from migverify.changes.ddl import ddl_finding
from migverify.changes.decode import decoder
from migverify.changes.model import Begin, Change, Commit, Item, Op, Rows, Statement

Wanted = Callable[[str, str], bool]
"""Whether a table, by database and name, is asked for."""


def changes(stream: Iterable[Item], wanted: Wanted | None = None) -> Iterator[Change | Commit]:
    """Decode the rows of a stream.

    Parameters
    ----------
    stream
        From ``read_files`` or ``read_server``.
    wanted
        Leaves out other tables. A statement is given where it names a wanted table, a whole database, or tables that
        cannot be told.

    Yields
    ------
    Change or Commit
        The changes of a transaction, then its Commit.

    Raises
    ------
    ChangeError
        what the stream raises, and a row image that does not fit its table map.
    """
    gtid, moment = "", 0.0
    for item in stream:
        kind = type(item)
        if kind is Begin:
            gtid, moment = item.gtid, item.time  # type: ignore[union-attr]
        elif kind is Rows:
            yield from _row_changes(item, gtid, moment, wanted)  # type: ignore[arg-type]
        elif kind is Statement:
            yield from _statement_changes(item, gtid, moment, wanted)  # type: ignore[arg-type]
        elif isinstance(item, Commit):
            yield item


def _row_changes(rows: Rows, gtid: str, moment: float, wanted: Wanted | None) -> Iterator[Change]:
    table = rows.table
    if wanted is not None and not wanted(table.database, table.table):
        return
    names = [column.name for column in table.columns]
    images = decoder(table).texts(rows.images)
    name, file, offset = table.name, rows.file, rows.offset
    if rows.op is Op.UPDATE:
        for before, after in zip(images[::2], images[1::2], strict=True):
            old, new = dict(zip(names, before, strict=True)), dict(zip(names, after, strict=True))
            yield Change(Op.UPDATE, name, old, new, gtid, file, offset, moment)
        return
    for image in images:
        row = dict(zip(names, image, strict=True))
        old, new = (row, None) if rows.op is Op.DELETE else (None, row)  # type: ignore[assignment]
        yield Change(rows.op, name, old, new, gtid, file, offset, moment)


def _statement_changes(found: Statement, gtid: str, moment: float, wanted: Wanted | None) -> Iterator[Change]:
    tables = [t for t in found.tables if wanted is None or not t[1] or wanted(*t)]
    names = [f"{database}.{table or '*'}" for database, table in tables] if found.tables else [""]
    for name in names:
        yield Change(found.op, name, None, None, gtid, found.file, found.offset, moment, ddl_finding(found).sql)


def as_json(change: Change) -> str:
    """One change as one line of JSON."""
    return json.dumps(
        {
            "op": change.op.value,
            "table": change.table,
            "before": change.before,
            "after": change.after,
            "gtid": change.gtid,
            "file": change.file,
            "position": change.position,
            "time": change.time,
            "sql": change.sql,
        },
        ensure_ascii=False,
    )


def as_text(change: Change) -> str:
    """One change as one line for people: of an update, all columns and what changed."""
    moment = datetime.fromtimestamp(change.time, UTC).strftime("%Y-%m-%d %H:%M:%S")
    head = f"{moment} {change.file}:{change.position} {change.op.value:<8} {change.table}"
    if change.before is None and change.after is None:
        return f"{head}  {' '.join(change.sql.split())}"
    if change.before is not None and change.after is not None:
        before = change.before
        cells = (
            f"{name}={shown(value)}" if before[name] == value else f"{name}={shown(before[name])}->{shown(value)}"
            for name, value in change.after.items()
        )  # fmt: skip
        return f"{head}  {' '.join(cells)}"
    row = change.after if change.after is not None else change.before or {}
    return f"{head}  {' '.join(f'{name}={shown(value)}' for name, value in row.items())}"


def shown(value: str | None) -> str:
    """Return a value for people: quoted, NULL without quotes."""
    return "NULL" if value is None else json.dumps(value, ensure_ascii=False)

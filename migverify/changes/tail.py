"""Items -> decoded changes, as JSON lines or text.

One change a line: each row of a rows event, and each table that a TRUNCATE or DDL statement names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from migverify.changes.ddl import ddl_finding
from migverify.changes.decode import decoder
from migverify.changes.model import AfterImages, Begin, Commit, Item, Op, Rows, Statement, Wanted


@dataclass(frozen=True, slots=True)
class Change:
    """One decoded change, in the form that ``changes tail --json`` prints.

    ``before`` and ``after`` map column name -> text as in ``Texts``; ``before`` is None for an insert, ``after`` for a
    delete, both for a statement. ``before`` of an update is None where the changefeed sends no old values. ``table`` is
    ``database.table``.
    """

    op: Op
    table: str
    before: dict[str, str | None] | None
    after: dict[str, str | None] | None
    gtid: str
    file: str
    position: int
    time: float
    sql: str = ""


def changes(stream: Iterable[Item], wanted: Wanted | None = None) -> Iterator[Change | Commit]:
    """Decode the rows of a stream.

    Parameters
    ----------
    stream
        From ``read_files`` or ``read_server``.
    wanted
        Leaves out other tables. A statement is given where it names a wanted table, a whole database, or tables that
        are not known.

    Yields
    ------
    Change or Commit
        The changes of a transaction, then its Commit.
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
    images: list[dict[str, str | None] | None] = [
        dict(zip(names, image, strict=True)) for image in decoder(table).texts(rows.images)
    ]
    nothing: list[dict[str, str | None] | None] = [None] * len(images)
    if rows.op is Op.UPDATE and not isinstance(table, AfterImages):
        pairs = zip(images[::2], images[1::2], strict=True)
    else:
        pairs = zip(images, nothing, strict=True) if rows.op is Op.DELETE else zip(nothing, images, strict=True)
    for before, after in pairs:
        yield Change(rows.op, table.name, before, after, gtid, rows.file, rows.offset, moment)


def _statement_changes(statement: Statement, gtid: str, moment: float, wanted: Wanted | None) -> Iterator[Change]:
    tables = [t for t in statement.tables if wanted is None or not t[1] or wanted(*t)]
    names = [f"{database}.{table or '*'}" for database, table in tables] if statement.tables else [""]
    sql = ddl_finding(statement).sql
    for name in names:
        yield Change(statement.op, name, None, None, gtid, statement.file, statement.offset, moment, sql)


def as_json(change: Change) -> str:
    """One change as one line of JSON: its fields."""
    return json.dumps({name: getattr(change, name) for name in Change.__slots__}, ensure_ascii=False)


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
    if change.op is Op.UPDATE:
        head += "  (old values were not sent)"
    row = change.after if change.after is not None else change.before or {}
    return f"{head}  {' '.join(f'{name}={shown(value)}' for name, value in row.items())}"


def shown(value: str | None) -> str:
    """Return a value for people: quoted, NULL without quotes."""
    return "NULL" if value is None else json.dumps(value, ensure_ascii=False)

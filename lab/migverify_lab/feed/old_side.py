"""A client that did not move: it changes rows on MySQL after TiDB was opened for writes."""

from __future__ import annotations

import random

from migverify.changes.positions import tso_position
from migverify.errors import LabError
from migverify.model import DiffKind
from migverify_lab.columns import Family, read_table, show
from migverify_lab.feed.faults import FeedRule
from migverify_lab.replicator_faults import FaultDone, RowDifference
from migverify_lab.session import LabServer, connect, query

_CHANGES = {Family.INT: "{0} + 1", Family.DECIMAL: "{0} + 1", Family.STRING: "CONCAT({0}, '!')"}


def write_rows(server: LabServer, rule: FeedRule, seed: int, number: int = 0) -> list[FaultDone]:
    """Change one column of ``most=`` rows (default 1) of ``table=`` in one transaction; returns what was done.

    Raises
    ------
    LabError
        the table is not named or has no column that can be changed, or too few rows.
    """
    database, _, name = rule.rule.table.partition(".")
    if not name:
        raise LabError("old-side-writer: which table?", hint="Say old-side-writer:table=DATABASE.TABLE,most=N.")
    count = rule.rule.most or 1
    done: list[FaultDone] = []
    with connect(server) as connection:
        table = read_table(connection, database, name)
        column_name = rule.rule.column
        usable = [part for part in table.plain if part.family in _CHANGES and column_name in ("", part.name)]
        if not usable or not table.key:
            raise LabError(f"{database}.{name} has no column that can be changed by key", hint="Name another table.")
        column = usable[0]
        new = _CHANGES[column.family].format(column.quoted)
        keys = query(connection, f"SELECT {', '.join(one.read_sql for one in table.key)} FROM {table.quoted}"  # noqa: S608
                                 f" WHERE NOT ({column.quoted} <=> {new})")  # fmt: skip
        chosen = random.Random(f"{seed} {number}").sample(sorted(keys, key=str), min(count, len(keys)))
        if len(chosen) < count:
            raise LabError(f"{database}.{name} has {len(chosen)} rows that can be changed, not {count}",
                           hint="Write rows first.")  # fmt: skip
        connection.begin()
        for row in chosen:
            values = [part.parse(value) for part, value in zip(table.key, row, strict=True)]
            where = " AND ".join(f"{part.quoted} = {part.literal(value)}"
                                 for part, value in zip(table.key, values, strict=True))  # fmt: skip
            with connection.cursor() as cursor:
                cursor.execute(f"UPDATE {table.quoted} SET {column.quoted} = {new} WHERE {where}")  # noqa: S608
            key = tuple(show(value) for value in values)
            difference = RowDifference(f"{database}.{name}", key, DiffKind.VALUE_DIFFERS, (column.name,))
            names = {part.name: text for part, text in zip(table.key, key, strict=True)}
            done.append(FaultDone(number + len(done) + 1, rule.fault, f"{database}.{name}", "update", names,
                                  (column.name,), (difference,), str(tso_position(0)), ""))  # fmt: skip
        connection.commit()
    return done

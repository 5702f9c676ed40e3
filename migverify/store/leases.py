"""Rows of leases: who holds a run, and how long ago that was renewed by the database's clock."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from sqlalchemy import ColumnElement, Double, Select, bindparam, insert, literal_column, select, update

from migverify.store import schema as t
from migverify.store.database import Connection

__all__ = ["LeaseRow", "put_lease", "read_lease"]


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """A lease as it is stored; ``age``: seconds since it was renewed, by the database's clock."""

    epoch: int
    body: str
    age: float


def read_lease(connection: Connection, run: str, *, locked: bool) -> LeaseRow | None:
    """Return a run's lease; None: there is none."""
    row = connection.execute(_LEASE.with_for_update() if locked else _LEASE, {"run_id": run}).one_or_none()
    if row is None:
        return None
    now = connection.scalar(_now(connection.dialect.name))
    return LeaseRow(int(row.epoch), str(row.body), max(0.0, float(now or 0.0) - float(row.renewed)))


def put_lease(connection: Connection, run: str, epoch: int, beat: int, body: str, *, known: bool) -> None:
    """Write a run's lease, renewed now; ``known``: there is one already."""
    table = t.runbook_leases
    values = {"epoch": epoch, "beat": beat, "body": body, "renewed": _unix_time(connection.dialect.name)}
    if known:
        connection.execute(update(table).where(table.c.run == run).values(**values))
    else:
        connection.execute(insert(table).values(run=run, **values))


# Without the session's time zone: NOW() is one hour twice a year, and UNIX_TIMESTAMP() of it one of two.
_CLOCKS = {
    "mysql": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) / 1000000.0",
    "mariadb": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) / 1000000.0",
    "sqlite": "(julianday('now') - 2440587.5) * 86400.0",
    "postgresql": "EXTRACT(EPOCH FROM CURRENT_TIMESTAMP)",
}


_LEASE = select(t.runbook_leases.c.epoch, t.runbook_leases.c.body, t.runbook_leases.c.renewed).where(
    t.runbook_leases.c.run == bindparam("run_id")
)


@cache
def _now(dialect: str) -> Select[float]:
    return select(_unix_time(dialect))


def _unix_time(dialect: str) -> ColumnElement[float]:
    """Return the SQL of the database's clock, Unix time with its fractions."""
    return literal_column(_CLOCKS[dialect], Double())

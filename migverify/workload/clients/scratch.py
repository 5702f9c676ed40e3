"""The database that scenarios write to: of their own, marked as theirs, the same name on both sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from migverify.db.session import Session
from migverify.errors import UsageError

DEFAULT_DATABASE = "migverify_clients"
MARKER = "migverify_scratch"
"""A table in it that says whose it is."""
LOCK_SECONDS = 5


@contextmanager
def scratch_database(sessions: Mapping[str, Session], database: str, *, keep: bool) -> Iterator[None]:
    """Create the scratch database on every side, hold it against other runs, and drop it afterwards.

    A database that exists and does not hold the marker table is somebody's: it is refused unless it is empty.

    Raises
    ------
    UsageError
        a side has a database of that name that is not ours, or another run is using it.
    """
    _check_name(database)
    taken: list[Session] = []
    try:
        for side, session in sessions.items():
            _take(side, session, database)
            taken.append(session)
        yield
    finally:
        if not keep:
            for session in taken:
                session.execute(f"DROP DATABASE IF EXISTS `{database}`")


def _check_name(database: str) -> None:
    if not database or "`" in database or len(database) > 64:
        raise UsageError(f"--database {database!r} is no name of a database")


def _take(side: str, session: Session, database: str) -> None:
    # A name of a lock holds 64 characters at most; the name of the database is short of that in all but odd cases.
    lock = f"migverify_clients.{database}"[:64]
    if session.query(f"SELECT GET_LOCK('{_quoted(lock)}', {LOCK_SECONDS})") != [("1",)]:
        raise UsageError(
            f"{side}: another run of `workload clients` uses the database {database}",
            hint="Wait for it, or name another --database.",
        )
    tables = [str(name) for (name,) in session.query(
        f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{_quoted(database)}'"  # noqa: S608
    )]  # fmt: skip
    if tables and MARKER not in {name.lower() for name in tables}:
        raise UsageError(
            f"{side}: the database {database} holds {len(tables)} tables of others ({', '.join(tables[:3])} ...)",
            hint="Scenarios create and drop tables: name a --database that is empty or not there.",
        )
    # A fresh one: what a killed run left would change the answers.
    session.execute(f"DROP DATABASE IF EXISTS `{database}`")
    session.execute(f"CREATE DATABASE `{database}` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    session.execute(f"CREATE TABLE `{database}`.{MARKER} (made_by VARCHAR(40))")


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "''")

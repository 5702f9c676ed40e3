"""How a result store comes to be, and how one of the first release gets what was added since."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, insert, inspect, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.schema import CreateTable

from migverify.errors import StoreError
from migverify.store import schema as t
from migverify.store.runs import add_kinds

_CREATE_ATTEMPTS = 5
_LOCK_SECONDS = 60


def prepare(engine: Engine, label: str, *, create: bool = True) -> None:
    """Create the tables of a new store, or check that an existing one is of this version and complete.

    Without ``create`` a store that is not there is an error. Safe when several processes open a new store at once.
    Raises ``StoreError`` for a store of another version and for an SQLite file of something
    else; database errors pass through.
    """
    for attempt in range(_CREATE_ATTEMPTS):
        with engine.connect() as connection:
            version = _read_version(connection, label)
            complete = version is not None and not t.missing(connection)
        if version is not None:
            check_version(version, label)
            if complete or not create:
                return
        elif not create:
            raise StoreError(
                f"the store {label} holds no results",
                hint="Check the URL; without a configuration (--config) nothing is created in a database.",
            )
        try:
            _create(engine, label)
        except DBAPIError as exc:
            if version is not None and _read_only(exc):
                return  # an old store on a medium that cannot be written is still read; what it lacks is empty
            # Another process may have created it between our look and our CREATE; look again, then give up.
            if attempt + 1 == _CREATE_ATTEMPTS:
                raise
            time.sleep(0.1 * (attempt + 1))
    raise StoreError(f"the store {label} has no version after it was created", hint="Look at its server's log.")


def check_version(version: str, label: str) -> None:
    """Raise ``StoreError`` unless ``version`` (as stored) is the one this migverify reads and writes."""
    if version == str(t.SCHEMA_VERSION):
        return
    if version.isdecimal() and int(version) > t.SCHEMA_VERSION:
        raise StoreError(
            f"the store {label} has schema version {version}; this migverify reads version {t.SCHEMA_VERSION}",
            hint="A newer migverify wrote it: use that one, or give this one a store of its own.",
        )
    raise StoreError(
        f"the store {label} has schema version {version!r}, which never existed;"
        f" this migverify reads version {t.SCHEMA_VERSION}",
        hint="The store is damaged: open another one.",
    )


def _read_only(exc: DBAPIError) -> bool:
    return any(word in str(exc.orig).lower() for word in ("readonly", "read-only", "read only", "denied"))


def _read_version(connection: Connection, label: str) -> str | None:
    names = set(inspect(connection).get_table_names())
    if t.store_info.name in names:
        version = connection.scalar(select(t.store_info.c.value).where(t.store_info.c.name == "schema_version"))
        return None if version is None else str(version)
    if names and connection.dialect.name == "sqlite" and not any(name.startswith(t.PREFIX) for name in names):
        raise StoreError(
            f"the store {label} is an SQLite database of something else (it has the table {min(names)!r})",
            hint="Name a file of its own for the store.",
        )
    return None


def _create(engine: Engine, label: str) -> None:
    with engine.execution_options(migverify_write=True).connect() as connection, _creating(connection, label):
        for table in t.metadata.sorted_tables:
            connection.execute(CreateTable(table, if_not_exists=True))
        add_kinds(connection)
        found = connection.scalar(select(t.store_info.c.value).where(t.store_info.c.name == "schema_version"))
        if found is None:
            # Last, so that a store half created by a process that died is completed by the next one.
            try:
                connection.execute(insert(t.store_info).values(name="schema_version", value=str(t.SCHEMA_VERSION)))
            except IntegrityError:
                connection.rollback()  # another process was first; its version is checked by the caller
                return
        connection.commit()


@contextmanager
def _creating(connection: Connection, label: str) -> Iterator[None]:
    # SQLite creates tables inside the write transaction. MySQL commits each CREATE, so a named lock stands guard.
    if connection.dialect.name not in ("mysql", "mariadb"):
        yield
        return
    lock = text("SELECT GET_LOCK(CONCAT('migverify_store_', LEFT(SHA2(DATABASE(), 256), 32)), :seconds)")
    if connection.scalar(lock, {"seconds": _LOCK_SECONDS}) != 1:
        raise StoreError(
            f"the store {label} is being created by another process for more than {_LOCK_SECONDS} s",
            hint="Wait for it, or end it, and try again.",
        )
    try:
        yield
    finally:
        # A lost connection has given the lock back already, and must not hide the error that lost it.
        if not connection.invalidated:
            connection.execute(text("SELECT RELEASE_LOCK(CONCAT('migverify_store_', LEFT(SHA2(DATABASE(), 256), 32)))"))

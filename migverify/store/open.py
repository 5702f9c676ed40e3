"""Open a result store by its URL: an SQLite file by default, any SQLAlchemy database for a team.

A new store gets its tables here, and one of the first release what was added since.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, insert, inspect, make_url, select, text
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.schema import CreateTable

from migverify.errors import StoreError, StoreSettingError
from migverify.model import Tls, default_tls_mode
from migverify.store import schema as t
from migverify.store.base import ResultStore
from migverify.store.database import label_of, store_error
from migverify.store.runs import add_kinds
from migverify.store.sql import SqlStore

_BUSY_SECONDS = 30.0
_SERVER_SECONDS = {"connect_timeout": 10, "read_timeout": 120, "write_timeout": 120}
_DEFAULT_PORTS = {"mysql": 3306, "mariadb": 3306, "postgresql": 5432, "mssql": 1433, "oracle": 1521}
_BUSY_POLL_SECONDS = 0.02
_CACHE_KIB = 16 * 1024
_CREATE_ATTEMPTS = 5
_LOCK_SECONDS = 60


def open_store(
    url: str,
    *,
    password: str | None = None,
    forbidden: Sequence[tuple[str, int]] = (),
    tls: Tls | None = None,
    create: bool = True,
) -> ResultStore:
    """Open a result store, creating it when it is new.

    Parameters
    ----------
    url
        ``sqlite:///path`` (or a bare path): a file, whose parent folder is created. Anything else is an
        SQLAlchemy URL, such as ``mysql+pymysql://user@host:3306/migverify``. ``?timeout=`` of an SQLite URL is
        how many seconds to wait for another writer (30).
    password
        Used instead of the URL's; may hold any character. Appears in no message.
    forbidden
        (host, port) of the endpoints under test. A store on one of them would write to what it verifies,
        and be lost with it.
    tls
        Encryption of the connection to a server of MySQL's protocol; None: the default for its host. Another server's
        belongs into the options of its URL.
    create
        False: a store that is not there yet is an error; nothing is written.

    Raises
    ------
    StoreError
        The URL is wrong, the store is forbidden, unreachable, unreadable, of another version or of something else.
    """
    parsed = _parse(url)
    if password is not None:
        parsed = parsed.set(password=password)
    file = parsed.get_backend_name() == "sqlite"
    parsed = _sqlite_file(parsed, create=create) if file else _server(parsed, forbidden)
    label = label_of(parsed)
    engine = _make_engine(parsed, label, tls)
    try:
        _first_connection(engine, label, secret=parsed.password)
        if "unix_socket" in parsed.query:
            _refuse_socket(engine, label, forbidden)
        prepare(engine, label, create=create)
    except SQLAlchemyError as exc:
        engine.dispose()
        raise store_error("cannot open", label, exc, secret=parsed.password) from exc
    except StoreError:
        engine.dispose()
        raise
    return SqlStore(engine, label, secret=parsed.password)


def _parse(url: str) -> URL:
    if "://" not in url:
        if not url.strip():
            raise StoreSettingError("the store's URL is empty", hint="Name a file, or an SQLAlchemy URL.")
        return URL.create("sqlite", database=url)
    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        # Without its cause: the text that could not be parsed may be a piece of the password.
        scheme = url.split("://", 1)[0]
        raise StoreSettingError(
            f"the store's URL ({scheme}://...) cannot be parsed",
            hint="Write it as dialect+driver://user@host:port/database; escape @ : / % # in it, or give the"
            " password apart from it.",
        ) from None


def _sqlite_file(url: URL, *, create: bool) -> URL:
    database = url.database or ""
    if database in ("", ":memory:") or "mode=memory" in database or database.startswith("file:"):
        raise StoreSettingError(
            "a store in memory is lost with its process", hint="Name a file: sqlite:///path/to/store.db"
        )
    path = Path(database).expanduser().absolute()
    if path.is_dir():
        raise StoreSettingError(f"the store {path} is a folder, not a file", hint="Name a file inside it.")
    if not create and not path.exists():
        raise StoreError(f"there is no store {path}", hint="Check the path.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Row diffs may hold personal data: a new file is for its owner only, and so are its -wal and -shm.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except PermissionError:
        # A file on a read-only medium can still be read when it is a whole store; SQLite will say if it is not.
        if not path.is_file():
            raise _unwritable(path, "permission denied") from None
    except OSError as exc:
        if not path.is_file():
            raise _unwritable(path, exc.strerror or str(exc)) from exc
    return url.set(database=str(path))


def _unwritable(path: Path, reason: str) -> StoreError:
    return StoreError(
        f"the store {path} cannot be created: {reason}",
        hint="Give it a folder that can be written, with space left.",
    )


def _server(url: URL, forbidden: Sequence[tuple[str, int]]) -> URL:
    if not url.database:
        raise StoreSettingError(
            f"the store's URL {label_of(url)} names no database",
            hint="Create one for it, and end the URL with its name.",
        )
    backend = url.get_backend_name()
    if "unix_socket" not in url.query:
        port = url.port or _DEFAULT_PORTS.get(backend)
        for host, forbidden_port in forbidden:
            if port == forbidden_port and _same_host(url.host or "localhost", host):
                raise _forbidden(label_of(url), host, forbidden_port)
    if backend in ("mysql", "mariadb"):
        # utf8mb4 whatever the URL says: another charset would lose an emoji in a table's name.
        url = url.update_query_dict({"charset": "utf8mb4"})
    return url


def _forbidden(label: str, host: str, port: int) -> StoreSettingError:
    return StoreSettingError(
        f"the store {label} lies on an endpoint under test ({host}:{port})",
        hint="Keep results elsewhere, for example in the default SQLite file: what is verified is never written.",
    )


def _same_host(one: str, other: str) -> bool:
    if one.lower().rstrip(".") == other.lower().rstrip("."):
        return True
    return bool(_addresses(one) & _addresses(other))


def _addresses(host: str) -> set[str]:
    """Return the addresses of a host; all names of this machine, and all loopback addresses, give one."""
    found = _resolve(host)
    own = _resolve(socket.gethostname()) | {"0.0.0.0", "::", "::1"}  # noqa: S104 - compared, never bound
    if any(address in own or address.startswith(("127.", "::ffff:127.")) for address in found):
        found.add("this machine")
    return found


def _resolve(host: str) -> set[str]:
    try:
        return {str(info[4][0]) for info in socket.getaddrinfo(host.strip("[]"), None)}
    except (OSError, UnicodeError):
        # A name that does not resolve here is only equal to itself; connecting to it says what is wrong.
        return {host.lower()}


def _first_connection(engine: Engine, label: str, *, secret: object) -> None:
    """Connect once: a driver says only now, and in Python's words, that an option of the URL is wrong."""
    try:
        engine.connect().close()
    except (TypeError, ValueError, RuntimeError, OSError) as exc:
        raise store_error("cannot open", label, exc, secret=secret) from exc


def _refuse_socket(engine: Engine, label: str, forbidden: Sequence[tuple[str, int]]) -> None:
    """Refuse a server behind a socket file by the port it also listens on; the URL does not tell it."""
    with engine.connect() as connection:
        port = int(connection.scalar(text("SELECT @@port")) or 0)
    for host, forbidden_port in forbidden:
        if port == forbidden_port and _same_host("localhost", host):
            raise _forbidden(label, host, forbidden_port)


def _make_engine(url: URL, label: str, tls: Tls | None) -> Engine:
    arguments: dict[str, Any] = {}
    try:
        if url.get_backend_name() == "sqlite":
            # isolation_level None: the driver begins nothing by itself; _begin_sqlite does.
            arguments["isolation_level"] = None
            if "timeout" not in url.query:
                arguments["timeout"] = _BUSY_SECONDS
        elif url.get_driver_name() == "pymysql":
            arguments.update({name: n for name, n in _SERVER_SECONDS.items() if name not in url.query})
            arguments.update(_encryption(url, tls))
        # hide_parameters: an error in SQLAlchemy's words would show values of rows.
        engine = create_engine(url, connect_args=arguments, pool_pre_ping=True, hide_parameters=True)
    except (ArgumentError, NoSuchModuleError, ImportError, TypeError, ValueError) as exc:
        raise store_error("cannot open", label, exc, secret=url.password) from None
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    elif url.get_driver_name() == "pymysql":
        event.listen(engine, "do_connect", _connect_pymysql)
    return engine


def _encryption(url: URL, tls: Tls | None) -> dict[str, Any]:
    if any(name.startswith("ssl") for name in url.query):  # the URL has the driver's own options
        return {}
    from migverify.db.tls import options

    host = url.host or "localhost"
    return options(tls or Tls(default_tls_mode(host, verifies=False)))


def _connect_pymysql(_dialect: object, _record: object, arguments: list[Any], options: dict[str, Any]) -> Any:
    # Not the driver's own class: it gives the password to whoever answers in the server's place.
    from migverify.db.tls import Connection

    return Connection(*arguments, **options)


def _set_up_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    # WAL: readers and the one writer do not wait for each other, and kill -9 loses nothing that was committed.
    # NORMAL: only a power cut can take the last commits, whole ones. A file system without WAL keeps its own mode.
    _switch_to_wal(connection)
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    # The one statement for which SQLite does not wait: two processes that open a new file at once meet here.
    (milliseconds,) = connection.execute("PRAGMA busy_timeout").fetchone()
    deadline = time.monotonic() + milliseconds / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(_BUSY_POLL_SECONDS)
        else:
            return


def _begin_sqlite(connection: Connection) -> None:
    # A writer takes the write lock at once: upgrading a read transaction later fails without any wait.
    write = connection.get_execution_options().get("migverify_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


# -- tables ---------------------------------------------------------------------------------------------------------


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

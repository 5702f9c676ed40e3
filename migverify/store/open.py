"""Open a result store by its URL: an SQLite file by default, a MySQL, TiDB or PostgreSQL database for a team.

A new store gets its tables here, and one of version 1 what was added since.
"""

from __future__ import annotations

import os
import re
import socket
import sqlite3
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    and_,
    create_engine,
    event,
    insert,
    inspect,
    make_url,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import QueuePool
from sqlalchemy.schema import CreateTable
from sqlalchemy.util import LRUCache

from migverify.errors import StoreError, StoreSettingError
from migverify.model import StoredKind, Tls, default_tls_mode
from migverify.secrets import command_output, resolve_variable
from migverify.store import schema as t
from migverify.store.codec import decode_object, digest
from migverify.store.database import Database, label_of, store_error
from migverify.store.facts import insert_many
from migverify.store.results import ResultStore
from migverify.store.runs import plan_of

if TYPE_CHECKING:
    from migverify.config import Config

PASSWORD_VARIABLE = "MIGVERIFY_STORE_PASSWORD"  # noqa: S105 - the name of one
_BUSY_SECONDS = 30.0
_SERVER_SECONDS = {"connect_timeout": 10, "read_timeout": 120, "write_timeout": 120}
_DEFAULT_PORTS = {"mysql": 3306, "mariadb": 3306, "postgresql": 5432}
_BUSY_POLL_SECONDS = 0.02
_STATEMENTS = 500
_VERSION = select(t.store_info.c.value).where(t.store_info.c.name == "schema_version")
_CACHE_KIB = 16 * 1024
_CREATE_ATTEMPTS = 8
_MIGRATED_AT_ONCE = 1000


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
        ``sqlite:///path`` (or a bare path): a file, whose parent folder is created. Or an SQLAlchemy URL of a server
        of MySQL's protocol or of PostgreSQL, such as ``mysql+pymysql://user@host:3306/migverify``. ``?timeout=`` of an
        SQLite URL is how many seconds to wait for another writer (30).
    password
        Used instead of the URL's; may hold any character. Appears in no message.
    forbidden
        (host, port) of the endpoints under test. A store on one of them would write to what it verifies,
        and be lost with it.
    tls
        Encryption of the connection to a server of MySQL's protocol; None: the default for its host. Another server's
        belongs into the options of its URL.
    create
        False: a store that is not there yet is an error. One of version 1 is migrated all the same.

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
        prepare(engine, label, create=create, secret=parsed.password)
    except SQLAlchemyError as exc:
        engine.dispose()
        raise store_error("cannot open", label, exc, secret=parsed.password) from exc
    except StoreError:
        engine.dispose()
        raise
    return ResultStore(engine, label, secret=parsed.password)


def open_configured(
    config: Config, url: str | None = None, *, variable: str | None = None, create: bool = True
) -> ResultStore:
    """Open the store of a configuration, or another one beside its endpoints.

    Parameters
    ----------
    url
        Another store than the configuration's.
    variable
        Name of the environment variable with the password; None: the variable or the command that the configuration
        has for its own store, else ``MIGVERIFY_STORE_PASSWORD`` where that is set.

    Raises
    ------
    ConfigError
        the variable is not set, or the command fails.
    StoreError
        the store cannot be opened, or is on an endpoint under test.
    """
    settings = config.store
    is_own = url is None or url == settings.url
    # Opening a store may create its tables, so even a report must not open one on a server under test.
    forbidden = [(e.host, e.port) for e in config.all_endpoints]
    variable = variable or (settings.password_env if is_own else None)
    password = None
    if variable is not None:
        password = resolve_variable(variable, "password_env of store").reveal()
    elif is_own and settings.password_command is not None:
        password = command_output(settings.password_command, "store_password_command").reveal()
    elif PASSWORD_VARIABLE in os.environ:
        password = resolve_variable(PASSWORD_VARIABLE, "the store").reveal()
    tls = settings.tls if is_own else None
    chosen = settings.url if url is None else url
    return open_store(chosen, password=password, forbidden=forbidden, tls=tls, create=create)


_SCHEME = re.compile(r"[a-z][a-z0-9]+(?:\+[a-z0-9]+)?:", re.IGNORECASE)


def _parse(url: str) -> URL:
    if "://" not in url:
        if not url.strip():
            raise StoreSettingError("the store's URL is empty", hint="Name a file, or an SQLAlchemy URL.")
        if start := _SCHEME.match(url):
            # A file of this name would have the password of a mistyped URL in it: nothing behind the scheme is shown.
            raise StoreSettingError(
                f"the store's URL ({start[0]}...) has no // behind its scheme",
                hint="Write dialect+driver://user@host:port/database; for a file of such a name, ./NAME.",
            )
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
    if not create and path.is_file() and not path.stat().st_size:
        # SQLite would write its first page: a reader changes no file.
        raise StoreError(f"there is no store {path}: the file is empty", hint="Check the path, or remove the file.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            # Row diffs may hold personal data: a new file is for its owner only, and so are its -wal and -shm. One
            # that is there is not opened here: closing it would drop the locks of this process's other connections.
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
    if backend not in _DEFAULT_PORTS:
        raise StoreSettingError(
            f"a store cannot be kept in {backend}", hint="Use SQLite, MySQL, TiDB, MariaDB or PostgreSQL."
        )
    if "unix_socket" not in url.query:
        port = url.port or _DEFAULT_PORTS.get(backend)
        for host, forbidden_port in forbidden:
            if port == forbidden_port and _same_host(url.host or "localhost", host):
                raise _forbidden(label_of(url), host, forbidden_port)
    if backend in ("mysql", "mariadb"):
        # Always utf8mb4: another charset would lose an emoji in a table's name.
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
    """Refuse a server behind a socket file by the port it also listens on, which the URL does not name."""
    with engine.connect() as connection:
        port = int(connection.scalar(text("SELECT @@port")) or 0)
    for host, forbidden_port in forbidden:
        if port == forbidden_port and _same_host("localhost", host):
            raise _forbidden(label, host, forbidden_port)


def _make_engine(url: URL, label: str, tls: Tls | None) -> Engine:
    arguments: dict[str, Any] = {}
    try:
        if url.get_backend_name() == "sqlite":
            return _sqlite_engine(url)
        if url.get_driver_name() == "pymysql":
            arguments.update({name: n for name, n in _SERVER_SECONDS.items() if name not in url.query})
            arguments.update(_encryption(url, tls))
        # hide_parameters: an error in SQLAlchemy's words would show values of rows.
        engine = create_engine(url, connect_args=arguments, pool_pre_ping=True, hide_parameters=True)
    except (ArgumentError, NoSuchModuleError, ImportError, TypeError, ValueError) as exc:
        raise store_error("cannot open", label, exc, secret=url.password) from None
    if url.get_driver_name() == "pymysql":
        event.listen(engine, "do_connect", _connect_pymysql)
    return engine


def _sqlite_engine(url: URL) -> Engine:
    dialect, compiled = _sqlite(url.drivername)
    positional, options = dialect.create_connect_args(url)
    # isolation_level None: the driver begins nothing by itself; _begin_sqlite does.
    arguments = {"timeout": _BUSY_SECONDS, **options, "isolation_level": None}
    set_up = dialect.on_connect_url(url)

    def connected() -> Any:  # events of a pool take longer, and there is one for each file
        connection = dialect.connect(*positional, **arguments)
        if set_up is not None:
            set_up(connection)
        _set_up_sqlite(connection)
        return connection

    pool = QueuePool(connected, dialect=dialect)
    engine = Engine(pool, dialect, url, hide_parameters=True, execution_options={"compiled_cache": compiled})
    event.listen(engine, "begin", _begin_sqlite)
    return engine


@cache
def _sqlite(driver: str) -> tuple[Dialect, LRUCache[Any, Any]]:
    """Return what all files of a process share: to compile statements for each of them takes longer than to read it."""
    first = create_engine(f"{driver}://")
    first.connect().close()  # the dialect looks at what this SQLite can
    first.dispose()
    return first.dialect, LRUCache(_STATEMENTS)


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


def _set_up_sqlite(connection: Any) -> None:
    # WAL: readers and the one writer do not wait for each other, and kill -9 loses nothing that was committed.
    # NORMAL: only a power cut can take the last commits, whole ones. A file system without WAL keeps its own mode.
    _switch_to_wal(connection)
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")


def _switch_to_wal(connection: Any) -> None:
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


def prepare(engine: Engine, label: str, *, create: bool = True, secret: object = None) -> None:
    """Create the tables of a new store; migrate one of version 1; check that any other is of this version.

    Without ``create`` a store that is not there is an error; no message shows ``secret``. Safe when several processes
    open a store at once. A migration that is killed goes on where it was: each page is a transaction, and the version
    is written last.

    Raises
    ------
    StoreError
        the store is of a later version, or of version 1 and cannot be written, or the SQLite file holds something else.
    """
    for attempt in range(_CREATE_ATTEMPTS):
        with engine.connect() as connection:
            version = _read_version(connection, label)
        if version == str(t.SCHEMA_VERSION):
            return
        if version not in (None, "1"):
            raise _other_version(label, str(version))
        if version is None and not create:
            raise StoreError(
                f"the store {label} holds no results",
                hint="Check the URL; without a configuration (--config) nothing is created in a database.",
            )
        try:
            _create(engine)
            if version == "1":
                _migrate(Database(engine, label, secret))
        except (DBAPIError, StoreError) as exc:
            if version == "1" and _read_only(exc):
                raise StoreError(
                    f"the store {label} has schema version 1 and cannot be written, so it cannot be migrated to version"
                    f" {t.SCHEMA_VERSION}",
                    hint="Open it once as a user who may write to it, or open a copy that can be written.",
                ) from exc
            # Another process may have created it between our look and our CREATE; look again, then give up.
            if attempt + 1 == _CREATE_ATTEMPTS or isinstance(exc, StoreError):
                raise
            time.sleep(0.1 * (attempt + 1))
    raise StoreError(f"the store {label} has no version after it was created", hint="Look at its server's log.")


def _other_version(label: str, version: str) -> StoreError:
    if version.isdecimal() and int(version) > t.SCHEMA_VERSION:
        return StoreError(
            f"the store {label} has schema version {version}; this migverify reads version {t.SCHEMA_VERSION}",
            hint="A newer migverify wrote it: use that one, or give this one a store of its own.",
        )
    return StoreError(
        f"the store {label} has schema version {version!r}, which never existed;"
        f" this migverify reads version {t.SCHEMA_VERSION}",
        hint="The store is damaged: open another one.",
    )


def _read_only(exc: DBAPIError | StoreError) -> bool:
    reason = str(exc.orig if isinstance(exc, DBAPIError) else exc).lower()
    return any(word in reason for word in ("readonly", "read-only", "read only", "denied"))


def _read_version(connection: Connection, label: str) -> str | None:
    names = set(inspect(connection).get_table_names())
    if t.store_info.name in names:
        version = connection.scalar(_VERSION)
        return None if version is None else str(version)
    if names and connection.dialect.name == "sqlite" and not any(name.startswith(t.PREFIX) for name in names):
        raise StoreError(
            f"the store {label} is an SQLite database of something else (it has the table {min(names)!r})",
            hint="Name a file of its own for the store.",
        )
    return None


def _create(engine: Engine) -> None:
    """Create the tables that are not there. The version of a new store is written last: what died is completed."""
    with engine.execution_options(migverify_write=True).connect() as connection:
        for table in t.metadata.sorted_tables:
            connection.execute(CreateTable(table, if_not_exists=True))
        if connection.scalar(_VERSION) is None:
            connection.execute(insert(t.store_info).values(name="schema_version", value=str(t.SCHEMA_VERSION)))
        connection.commit()


def _migrate(database: Database) -> None:
    """Bring a store of version 1, whose tables are all there, to version 2: kinds of runs, windows of findings."""
    action = "cannot migrate"
    while database.write(action, _add_kinds):
        pass
    last: tuple[int, int] | None = (-1, -1)
    while last is not None:
        last = database.write(action, lambda connection, after=last: _add_windows(connection, *after))  # type: ignore[misc]
    version = update(t.store_info).where(t.store_info.c.name == "schema_version").values(value=str(t.SCHEMA_VERSION))
    database.write(action, lambda connection: connection.execute(version).rowcount)


def _add_kinds(connection: Connection) -> bool:
    """Record the kinds of some runs that have none; False when there was none left."""
    without = t.runs.c.run_id.not_in(select(t.run_kinds.c.run_id))
    runs = connection.scalars(select(t.runs.c.run_id).where(without).limit(_MIGRATED_AT_ONCE)).all()
    rows = [{"run_id": run_id, "kind": _kind_by_plan(connection, run_id).value} for run_id in runs]
    insert_many(connection, t.run_kinds, rows)
    return bool(rows)


def _kind_by_plan(connection: Connection, run_id: str) -> StoredKind:
    try:
        plan = plan_of(connection, run_id)
    except StoreError:
        return StoredKind.UNKNOWN  # a listing shows the run; whoever loads it learns that its plan is damaged
    if plan.get("kind") in (StoredKind.REPLAY, StoredKind.CLIENTS):
        return StoredKind(plan["kind"])
    # A run of rules lists them as pairs too.
    keys = {"guards": StoredKind.GUARDS, "probe": StoredKind.PROBE, "rules": StoredKind.RULES,
            "pairs": StoredKind.TABLES}  # fmt: skip
    return next((kind for key, kind in keys.items() if key in plan), StoredKind.UNKNOWN)


def _add_windows(connection: Connection, scope: int, number: int) -> tuple[int, int] | None:
    """Index the windows of some findings after that one; return the last of them, None when there was none left."""
    table, windows = t.findings.c, t.finding_windows.c
    after = or_(table.scope > scope, and_(table.scope == scope, table.number > number))
    indexed = select(windows.number).where(windows.scope == table.scope, windows.number == table.number).exists()
    query = select(table.scope, table.number, table.body).where(after, ~indexed).order_by(table.scope, table.number)
    findings = connection.execute(query.limit(_MIGRATED_AT_ONCE)).all()
    rows = [
        {
            "scope": row.scope,
            "number": row.number,
            "window_hash": digest(decode_object(row.body, "a finding")["window"]),
        }
        for row in findings
    ]
    insert_many(connection, t.finding_windows, rows)
    return (findings[-1].scope, findings[-1].number) if findings else None

"""The database of a store: transactions that are tried again where that is safe, and errors in words."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from migverify.errors import StoreError, StoreSettingError

__all__ = ["Connection", "Database", "label_of", "store_error"]

T = TypeVar("T")

_ATTEMPTS = 7
_BACKOFF_SECONDS = 0.05  # doubled each time: 3 s in all, a restart of a proxy

# What drivers raise in Python's words: a lone surrogate, an integer above 64 bits.
_NOT_STORABLE = (UnicodeError, OverflowError)

_HINTS = (
    ("database or disk is full", "Free space on its disk and resume the run: everything committed is there."),
    ("disk i/o error", "Look at its disk and file system; everything committed is there."),
    ("readonly database", "Make the file and its folder writable, or name another store."),
    ("read-only", "Make the store writable, or name another one."),
    ("unable to open database file", "Look at the file, its folder, and who may write them."),
    ("not a database", "The file is not SQLite: name another file for the store."),
    ("malformed", "The file is damaged: keep it for a look, and verify again into another store."),
    ("locked", "Another process is writing to it for long: end it, or raise ?timeout= in the store's URL."),
    ("is full", "Free space on its server and resume the run: everything committed is there."),
    ("unknown database", "Create the database; migverify creates its tables in it."),
    ("access denied", "Check the user, the password, and its grants: SELECT, INSERT, UPDATE, CREATE."),
    ("is not allowed to connect", "Create the store's user for this host, or connect from another one."),
    ("denied to user", "The store's user needs SELECT, INSERT, UPDATE and CREATE on the database."),
    ("can't connect", "Check host, port, and that the server is up; resume the run when it is."),
    ("lost connection", "The store's server went away; resume the run when it is back."),
    ("server has gone away", "The store's server went away; resume the run when it is back."),
    ("max_allowed_packet", "Raise max_allowed_packet on the store's server."),
    ("entry too large", "Raise txn-entry-size-limit on the store's server."),
    ("no such table", "The store's tables are incomplete: open another one."),
    ("unexpected keyword", "Look at the options in the store's URL: the driver does not know one of them."),
    ("no module named", "Install the driver named in the store's URL."),
    ("can't load plugin", "Check the dialect and driver in the store's URL."),
)
_SETTINGS = (
    "unknown database", "access denied", "denied to user", "not allowed to connect", "unexpected keyword",
    "no module named", "can't load plugin",
)  # fmt: skip
_DEFAULT_HINT = "Nothing committed is lost: put the store in order and resume the run."

# Deadlock, lock wait; TiDB: write conflict, schema changed, region unavailable, information schema changed/outdated.
_ROLLED_BACK = frozenset({1205, 1213, 8002, 8022, 8027, 8028, 9005, 9007})


@dataclass(frozen=True, slots=True)
class Database:
    """A store's database. ``label`` and errors hold no password.

    ``pinned``: all reads are made by this connection, as of one moment; for a reader that asks much and writes nothing.
    """

    engine: Engine
    label: str
    secret: object = field(default=None, repr=False)
    pinned: Connection | None = field(default=None, repr=False)

    @contextmanager
    def one_reading(self) -> Iterator[Database]:
        """Yield this database with all reads pinned to one connection and one moment; nothing is written meanwhile.

        Raises
        ------
        StoreError
            it cannot be reached.
        """
        try:
            connection = self.engine.connect()
        except SQLAlchemyError as error:
            raise store_error("cannot read", self.label, error, secret=self.secret) from error
        with connection:
            yield replace(self, pinned=connection)

    def read(self, action: str, work: Callable[[Connection], T]) -> T:
        """Read in one transaction; again when the connection broke.

        Raises
        ------
        StoreError
            it cannot be read.
        """
        return self._tried(action, lambda: self._run(work, write=False))

    def write(
        self,
        action: str,
        work: Callable[[Connection], T],
        arrived: Callable[[Connection, T], bool] | None = None,
        *,
        repeatable: bool = True,
    ) -> T:
        """Write in one transaction: all of it is there when this returns, and nothing when it raises.

        Parameters
        ----------
        work
            May be called several times; only the last one's transaction is committed.
        arrived
            Whether, in a new transaction under the lock that ``work`` takes, what ``work`` returned was
            committed; asked when the answer to a COMMIT was lost. None: it is written again when ``repeatable``.

        Raises
        ------
        StoreError
            it cannot be written; says so when it is not known whether it was.
        """

        def attempt() -> T:
            done: list[T] = []

            def whole(connection: Connection) -> T:
                result = work(connection)
                done.append(result)
                connection.commit()
                return result

            try:
                return self._run(whole, write=True)
            except SQLAlchemyError as error:
                # Any answer to a COMMIT but "done" says nothing for certain.
                if done and arrived is not None and self._arrived(action, arrived, done[0]):
                    return done[0]
                if done and not repeatable and _connection_lost(error):
                    raise self._error(f"{action} (its commit may or may not have arrived)", error) from error
                raise

        return self._tried(action, attempt)

    def _arrived(self, action: str, arrived: Callable[[Connection, T], bool], result: T) -> bool:
        unknown = f"{action.removesuffix(' in')} (it is not known whether it was written) in"
        return self._tried(unknown, lambda: self._run(lambda connection: arrived(connection, result), write=True))

    def _run(self, work: Callable[[Connection], T], *, write: bool) -> T:
        if self.pinned is not None and not write:
            return work(self.pinned)
        with self.engine.execution_options(migverify_write=write).connect() as connection:
            return work(connection)

    def _tried(self, action: str, attempt: Callable[[], T]) -> T:
        for number in range(_ATTEMPTS):
            try:
                return attempt()
            except SQLAlchemyError as error:
                if number + 1 == _ATTEMPTS or not _worth_another(error):
                    raise self._error(action, error) from error
            except _NOT_STORABLE as error:
                raise self._error(action, error) from error
            time.sleep(_BACKOFF_SECONDS * 2**number)
        raise StoreError(f"{action} the store {self.label}: no attempt was made")

    def _error(self, action: str, error: Exception) -> StoreError:
        return store_error(action, self.label, error, secret=self.secret)


def _worth_another(error: SQLAlchemyError) -> bool:
    # A key that is there already: somebody else was first, and this one has to look again.
    return _connection_lost(error) or _rolled_back(error) or isinstance(error, IntegrityError)


def label_of(url: URL) -> str:
    """Return the name of a store for messages: no password, and no options, which may hold one."""
    if url.get_backend_name() == "sqlite":
        return url.database or ""
    port = "" if url.port is None else f":{url.port}"
    return f"{url.drivername}://{url.host or 'localhost'}{port}/{url.database or ''}"


def store_error(action: str, label: str, exc: Exception, *, secret: object = None) -> StoreError:
    """Say that ``action`` (as in "cannot open") failed on the store ``label``, why, and what to do."""
    # The driver's own words: SQLAlchemy's would add the statement and a link.
    reason = str(exc.orig) if isinstance(exc, DBAPIError) and exc.orig is not None else str(exc)
    if isinstance(exc, PoolTimeoutError):
        reason = "all of its connections are in use"
    password = "" if secret is None else str(secret)
    if password and password in reason:
        reason = reason.replace(password, "***")
    lowered = reason.lower()
    remedy = _remedy(exc.orig) if isinstance(exc, DBAPIError) and exc.orig is not None else None
    hint = remedy or next((hint for words, hint in _HINTS if words in lowered), _DEFAULT_HINT)
    # Of a store that was open once, the settings were right: what is refused later, or not reached, is not known.
    wrong = action == "cannot open" and any(words in lowered for words in _SETTINGS)
    kind = StoreSettingError if wrong else StoreError
    return kind(f"{action} the store {label}: {reason}", hint=hint)


def _remedy(error: BaseException) -> str | None:
    from migverify.db import tls  # with a driver of MySQL's protocol, which a store in a file does not need

    return tls.remedy(error)


def _rolled_back(exc: SQLAlchemyError) -> bool:
    """Whether the server says that it undid the transaction and that it may be tried again."""
    if not isinstance(exc, DBAPIError) or exc.orig is None or not exc.orig.args:
        return False
    return exc.orig.args[0] in _ROLLED_BACK


def _connection_lost(exc: SQLAlchemyError) -> bool:
    """Whether the connection broke; what was being committed may or may not be there."""
    return isinstance(exc, DBAPIError) and exc.connection_invalidated

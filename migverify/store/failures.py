"""What went wrong with a store, in words: database errors to ``StoreError``, and which are worth another try."""

from __future__ import annotations

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from migverify.db import tls
from migverify.errors import StoreError, StoreSettingError

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
    remedy = tls.remedy(exc.orig) if isinstance(exc, DBAPIError) and exc.orig is not None else None
    hint = remedy or next((hint for words, hint in _HINTS if words in lowered), _DEFAULT_HINT)
    # Of a store that was open once, the settings were right: what is refused later, or not reached, is not known.
    wrong = action == "cannot open" and any(words in lowered for words in _SETTINGS)
    kind = StoreSettingError if wrong else StoreError
    return kind(f"{action} the store {label}: {reason}", hint=hint)


def rolled_back(exc: SQLAlchemyError) -> bool:
    """Whether the server says that it undid the transaction and that it may be tried again."""
    if not isinstance(exc, DBAPIError) or exc.orig is None or not exc.orig.args:
        return False
    return exc.orig.args[0] in _ROLLED_BACK


def connection_lost(exc: SQLAlchemyError) -> bool:
    """Whether the connection broke; what was being committed may or may not be there."""
    return isinstance(exc, DBAPIError) and exc.connection_invalidated

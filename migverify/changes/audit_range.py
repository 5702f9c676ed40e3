"""The audit of binlog files, and of what a running server still has."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass

from migverify.changes.accounts import Accounts, Wanted
from migverify.changes.audit import Audit, Books, conclude, run_audit
from migverify.changes.events import EventType, RawEvent
from migverify.changes.files import BinlogFiles, Opener, open_file
from migverify.changes.gtid import parse_gtids
from migverify.changes.model import Item, Position
from migverify.changes.positions import FIRST_OFFSET, before
from migverify.changes.server import server_events, source_state
from migverify.db.server_state import executed_gtids
from migverify.db.session import open_session
from migverify.errors import ChangeError
from migverify.model import Endpoint, Flavor, Side


@dataclass(frozen=True, slots=True)
class Scope:
    """What an audit is about: which (database, table), which databases at all, and who else wants the items."""

    wanted: Wanted
    wanted_database: Callable[[str], bool]
    also: Callable[[Item], None] | None = None


def audit_files(
    paths: Sequence[str], scope: Scope, *, since: Position | None = None, until: Position | None = None,
    opener: Opener = open_file,
) -> Audit:  # fmt: skip
    """Audit binlog files.

    Parameters
    ----------
    paths
        As for ``BinlogFiles``.
    since, until
        The range whose rows are counted; None is the start of the first file and the end of the last. Every file from
        the one with ``since`` on is read from its head, because the set there is what GTIDs are held against.

    Raises
    ------
    ChangeError
        no file is given, one cannot be opened, or ``since`` lies in none of them.
    """
    files = BinlogFiles(paths, since, opener)
    accounts = Accounts(scope.wanted, since=since, until=until)
    accounts.sizes(files.sizes())
    books = Books(scope.wanted, scope.wanted_database, scope.also)
    refused = run_audit(
        files.events(), accounts, books, start=files.start, since=since, until=until, rest=files.events
    )  # fmt: skip
    return conclude(accounts, books, refused, partial=since is not None or until is not None)


def audit_server(
    endpoint: Endpoint, password: str | None, scope: Scope, *, since: Position | None = None,
    until: Position | None = None,
) -> Audit:  # fmt: skip
    """Audit what a running server has, up to where it stands when the audit begins, or to ``until``.

    Parameters
    ----------
    since
        File and offset, or a GTID set; None is the oldest log that the server has.

    Raises
    ------
    ChangeError
        the server has no binlog, or no longer what ``since`` asks for.
    EndpointError
        it cannot be reached, or the user lacks a grant.
    """
    with open_session(endpoint, password, side=Side.SOURCE) as session:
        # The set first: a server names offsets of transactions before it counts them as executed, never after.
        executed = executed_gtids(session)
        state = source_state(session)
        executed = executed if session.flavor is Flavor.MYSQL else state.executed
    by_set = since is not None and not since.file
    accounts = Accounts(
        scope.wanted, jumps=by_set or state.flavor is Flavor.MARIADB, since=since, until=until
    )  # fmt: skip
    books = Books(scope.wanted, scope.wanted_database, scope.also)
    if by_set and since is not None:
        accounts.begin_after(since.gtids)
        origin, asked = Position("", 0), Position("", 0, since.gtids)
    else:
        # From the head of the file: what was executed before it is told there.
        origin = asked = Position(since.file if since is not None else state.first.file, FIRST_OFFSET)
    events = server_events(endpoint, password, asked, follow=False)
    refused = run_audit(events, accounts, books, start=origin, since=since, until=until)
    more = []
    if until is None:
        if executed:
            accounts.numbers.word(parse_gtids(executed), exact=False)
        if not refused and _short_of(accounts, state.end):
            more.append(f"the server ended the stream before {state.end}, where it stood when the audit began")
    partial = since is not None or until is not None
    return conclude(accounts, books, refused, partial=partial, live=until is None, more=more)


def stood_still(endpoint: Endpoint, password: str | None, since: Position | None) -> bool:
    """Whether a source has written nothing since a place of its binlog; False where that cannot be told."""
    if since is None:
        return False
    with open_session(endpoint, password, side=Side.SOURCE) as session:
        state = source_state(session)
    if since.gtids and state.executed:
        then, now = parse_gtids(since.gtids), parse_gtids(state.executed)
        return not then.missing(now)  # type: ignore[arg-type]  # both of one server
    return not before(since, state.end)


def log_begun(endpoint: Endpoint, password: str | None, name: str) -> float:
    """Return the Unix time at which a server began a binlog file, from the head of the file.

    Raises
    ------
    ChangeError
        the server does not send it, or it begins with something else.
    """

    def head() -> Generator[RawEvent, None, None]:
        yield from server_events(endpoint, password, Position(name, FIRST_OFFSET), follow=False)

    with closing(head()) as events:  # closing it ends the connection, long before the end of the log
        for event in events:
            if event.type == EventType.FORMAT_DESCRIPTION and event.time:
                return float(event.time)
            if event.type not in (EventType.ROTATE, EventType.FORMAT_DESCRIPTION):
                break
    raise ChangeError(f"{endpoint.name}: {name} does not say when it was begun.")


def _short_of(accounts: Accounts, end: Position) -> bool:
    if not accounts.files:
        return True
    last = accounts.files[-1]
    return before(Position(last.name, last.offset), end)

"""Statements of effects: each is known to be over before anything is concluded from what the server holds.

A server goes on with a statement whose client is gone. So its connection is written down before the statement is sent,
and whoever wants to know later asks the server for that connection, and ends what it still runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from migverify.db.failures import server_answered
from migverify.db.session import Session, open_session
from migverify.errors import EndpointError, PrivilegeError, ReadError, RetryableReadError
from migverify.model import Endpoint, Flavor
from migverify.runbook.actions.action import ActionResult, Context, Outcome
from migverify.runbook.record.process_lock import EffectStatement, note_statement
from migverify.sql import gates as sql

__all__ = ["Account", "end_statements", "tracked"]

_POLL = 0.2
KILL_SECONDS = 30.0
"""For a statement to end after KILL: undoing what it did takes the server time."""

Account = tuple[Endpoint, str | None]
"""An endpoint with its user, and the password."""


def tracked(account: Account, session: Session, context: Context, work: Callable[[str], ActionResult]) -> ActionResult:
    """Carry statements of an effect out over a session, and end them at the time limit or when canceled.

    Parameters
    ----------
    work
        Sends them. It is handed a comment, with which each statement begins that changes something.

    Returns
    -------
    ActionResult
        That of ``work``. FAILED, TIMED_OUT and CANCELED say that the server ended the statement. UNKNOWN: the
        connection was lost, or the server goes on.
    """
    statement = _statement(session, f"migverify {context.mark or context.run}")
    if context.record is not None:
        note_statement(context.record, statement)
    done: list[ActionResult | Exception] = []

    def send() -> None:
        try:
            done.append(work(f"/* {statement.mark} */ "))
        except Exception as error:  # noqa: BLE001 - judged by the thread that waits
            done.append(error)

    thread = threading.Thread(target=send, name="statement", daemon=True)
    until, why, not_ended = time.monotonic() + context.timeout, Outcome.OK, ""
    thread.start()
    while thread.is_alive() and why is Outcome.OK:
        thread.join(0.05)
        if thread.is_alive() and (context.canceled.is_set() or time.monotonic() >= until):
            why = Outcome.CANCELED if context.canceled.is_set() else Outcome.TIMED_OUT
            not_ended = _kill_query(account, statement)
            thread.join(KILL_SECONDS)
    found = done[0] if done else None
    if isinstance(found, ActionResult):
        return found
    if found is not None and not isinstance(found, ReadError):
        raise found
    facts = {"endpoint": statement.endpoint, "connection": statement.connection}
    if found is not None and server_answered(found):
        ended = {Outcome.TIMED_OUT: "ended at its time limit: ", Outcome.CANCELED: "canceled: "}.get(why, "")
        return ActionResult(why if ended else Outcome.FAILED, f"{ended}{found.message}", None, facts)
    session.abort()
    not_ended = end_statements(account, [statement]) or not_ended
    words = found.message if found is not None else "the server does not answer"
    text = f"{words}; {not_ended or 'the server does not run it any more'}; whether it took effect is not known"
    return ActionResult(Outcome.UNKNOWN, text, None, facts)


def end_statements(account: Account, statements: Sequence[EffectStatement], *, seconds: float = KILL_SECONDS) -> str:
    """End what the server still runs of statements whose client is gone, and wait until it does not any more.

    Returns
    -------
    str
        Empty: none of them runs. Else why that is not so, or not known.
    """
    if not statements:
        return ""
    until, killed = time.monotonic() + seconds, set[int]()
    names = f"connection {', '.join(str(one.connection) for one in statements)} of {account[0].name}"
    try:
        with open_session(account[0], account[1]) as session:
            while True:
                running = _running(session, statements)
                for one in running:
                    if one.connection not in killed:
                        killed.add(one.connection)
                        _kill(session, one)
                if not running:
                    return ""
                if time.monotonic() >= until:
                    return f"{names} goes on with its statement {seconds:.0f} s after KILL"
                time.sleep(_POLL)
    except (EndpointError, ReadError) as error:
        return f"it cannot be known whether {names} still runs its statement: {error.message}"


def _kill(session: Session, statement: EffectStatement) -> None:
    try:
        session.execute(sql.kill_sql(session.flavor, statement.connection))
    except RetryableReadError:
        raise
    except ReadError:
        return  # it has ended meanwhile, or may not be ended: the next look tells


def _running(session: Session, statements: Sequence[EffectStatement]) -> list[EffectStatement]:
    """Return the statements whose connection is there, or whose DDL job goes on without one.

    Raises
    ------
    ReadError
        the server cannot be asked, or is not the one that they were sent to.
    """
    there, everywhere = _connections(session)
    jobs = [row[1] or "" for row in session.query(sql.TIDB_DDL)] if session.flavor is Flavor.TIDB else []
    server = session.query(sql.SERVER)[0][0]
    found = []
    for one in statements:
        if not everywhere and one.server != server:
            raise ReadError(f"it was sent to {one.server}, and {server} answers now")
        if (one.connection, one.user, one.client) in there or any(one.mark in job for job in jobs):
            found.append(one)
    return found


def _connections(session: Session) -> tuple[list[tuple[int, str, str]], bool]:
    """Return (id, user, client) of the connections that the account sees, and whether those of all servers."""
    everywhere = session.flavor is Flavor.TIDB
    try:
        rows = session.query_named(sql.TIDB_SESSIONS if everywhere else sql.SESSIONS)
    except PrivilegeError:
        everywhere, rows = False, session.query_named(sql.SESSIONS)
    return [(int(row["Id"] or 0), row["User"] or "", row["Host"] or "") for row in rows], everywhere


def _statement(session: Session, mark: str) -> EffectStatement:
    """Return how the server names this connection; by that it is found again, and distinguished from later ones."""
    own = next((row for row in _connections(session)[0] if row[0] == session.thread_id), None)
    if own is None:
        raise ReadError(f"{session.endpoint.name} does not show the connection of the effect: nothing was sent")
    server = session.query(sql.SERVER)[0][0] or ""
    return EffectStatement(session.endpoint.name, server, session.thread_id, own[1], own[2], mark)


def _kill_query(account: Account, statement: EffectStatement) -> str:
    try:
        with open_session(account[0], account[1]) as session:
            if _running(session, [statement]):
                session.execute(sql.kill_sql(session.flavor, statement.connection, query=True))
    except (EndpointError, ReadError) as error:
        return f"it could not be ended: {error.message}"
    return ""

"""Execute a script on the target, transaction by transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from migverify.db.retry import attempt
from migverify.db.session import Session, open_session
from migverify.errors import PrivilegeError, ReadError, RetryableReadError
from migverify.model import Endpoint
from migverify.secrets import scrub
from migverify.sql.repair import BEGIN, COMMIT
from migverify.tables.engine import Secrets
from migverify.tables.repair_files import Transaction, transactions
from migverify.tables.tasks import Rules

REFUSED_AT_ONCE = 10_000
"""Up to so many refused statements are tried again; more would not be a matter of their order."""


@dataclass(slots=True)
class Applied:
    """What the statements of one table did: rows matched, found changed, refused by the server."""

    matched: int = 0
    unmatched: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def count(self, matched: Sequence[int], *, together: bool = False) -> None:
        """Add the rows of a transaction by what each statement matched; of rows changed together the INSERTs count."""
        if together:
            matched = matched[-(len(matched) // 3) :]  # one SET, then a lock, a DELETE and an INSERT of each row
        self.matched += sum(1 for rows in matched if rows)
        self.unmatched += sum(1 for rows in matched if not rows)


def execute_script(path: Path, endpoint: Endpoint, secrets: Secrets, rules: Rules) -> Applied:
    """Execute a script transaction by transaction.

    A transaction that the server refuses is undone and its statements are executed one by one, so that one row
    cannot hold back the others; the refused ones are tried again as long as that helps. A lost connection or a
    conflict is tried again too: a statement that had its effect finds nothing to do.

    Raises
    ------
    RepairError
        the user may not write.
    RetryableReadError
        the target cannot be reached any more; what was committed stays.
    """
    applied, refused = Applied(), list[Transaction]()
    batches = transactions(path)
    with closing(_Writer(endpoint, secrets.get(endpoint.name), next(batches, Transaction()), rules)) as writer:
        for batch in batches:
            try:
                applied.count(writer.transaction(batch), together=batch.together)
            except RetryableReadError:
                raise
            except ReadError:
                refused += _one_by_one(writer, [batch] if batch.together else _singles(batch), applied)
        # A unique value that another row of the script held may be free by now.
        before = -1
        while 0 < len(refused) <= REFUSED_AT_ONCE and len(refused) != before:
            before = len(refused)
            applied.refused.clear()
            refused = _one_by_one(writer, refused, applied)
    return applied


def _singles(batch: Transaction) -> list[Transaction]:
    return [Transaction([statement]) for statement in batch]


def _one_by_one(writer: _Writer, batches: list[Transaction], applied: Applied) -> list[Transaction]:
    """Execute what can be executed by itself; returns what the server refused."""
    refused: list[Transaction] = []
    for batch in batches:
        try:
            applied.count(writer.transaction(batch), together=batch.together)
        except RetryableReadError:
            raise
        except ReadError as error:
            # The server's words without the statement: that holds the row's values.
            applied.refused[scrub(error.message.split("\n  SQL: ")[0])] += 1
            refused.append(batch)
    return refused


class _Writer:
    """The one session that writes, opened again when it is lost."""

    def __init__(self, endpoint: Endpoint, password: str | None, prepare: list[str], rules: Rules) -> None:
        self._endpoint, self._password, self._prepare, self._rules = endpoint, password, prepare, rules
        self._session: Session | None = None

    def transaction(self, batch: list[str]) -> list[int]:
        """Execute statements in one transaction; returns the rows each one matched."""
        return attempt(lambda: self._once(batch), self._rules, passing=(RetryableReadError,))

    def _once(self, batch: list[str]) -> list[int]:
        session = self._session or self._open()
        done = False
        try:
            session.execute(BEGIN)
            found = [session.execute(statement) for statement in batch]
            session.execute(COMMIT)
            done = True
        except PrivilegeError as error:
            raise PrivilegeError(  # without the statement: it holds the row's values
                error.message.split("\n  SQL: ")[0],
                hint="All it needs, as statements: migverify config check --grants --for 'tables repair --apply'",
            ) from error
        finally:
            if not done:
                self.close()  # the server undoes what an ended connection left open
        return found

    def _open(self) -> Session:
        session = open_session(self._endpoint, self._password)
        self._session = session
        for statement in self._prepare:
            session.execute(statement)
        return session

    def close(self) -> None:
        """Close the session; an open transaction is undone by the server."""
        if self._session is not None:
            self._session.close()
            self._session = None

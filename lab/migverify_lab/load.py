"""The one load generator with a ledger: clients that write at a steady rate, whether a server accepts or refuses.

What a client writes is its own business (``bank``, ``cutover_app``, ``nginx_load``); when it tries, and what is written
down about that, is done here. Each try is in the ledger before it begins.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from migverify.errors import LabError
from migverify.signals import SignalEvent
from migverify_lab.ledger import ACKED, REFUSED, TRIED, UNKNOWN, LedgerWriter

if TYPE_CHECKING:
    from pymysql.connections import Connection

STOP_SECONDS = 16.0


@dataclass(frozen=True, slots=True)
class TryOutcome:
    """How a try ended: ``ACKED``, ``REFUSED`` or ``UNKNOWN``; ``where`` is the side that took it."""

    end: str
    where: str = ""
    code: int = 0
    text: str = ""


class LoadClient(Protocol):
    """One client; used by one thread."""

    def attempt(self, token: str) -> TryOutcome:
        """Write once, under a token that nobody else has."""
        ...

    def close(self) -> None:
        """Give connections up."""
        ...


@dataclass(slots=True)
class Load:
    """Clients that write until ``stopped`` is set; ``rate`` is tries per second over all of them."""

    clients: Sequence[LoadClient]
    ledger: Path
    rate: float
    stopped: threading.Event = field(default_factory=SignalEvent)

    def run(self) -> None:
        """Write until ``stopped``; the try under way comes to its end.

        Raises
        ------
        LabError
            a client ended by itself.
        """
        ledger = LedgerWriter(self.ledger)
        # Numbers that no former load on the same ledger had.
        tokens = itertools.count(time.time_ns())
        threads = [
            threading.Thread(target=self._work, args=(number, client, ledger, tokens), daemon=True)
            for number, client in enumerate(self.clients)
        ]
        for thread in threads:
            thread.start()
        while not self.stopped.wait(0.5):
            if not all(thread.is_alive() for thread in threads):
                raise LabError("a client of the load ended by itself", hint="Look at the log of the load.")
        for thread in threads:
            thread.join(STOP_SECONDS)
        ledger.close()

    def _work(self, number: int, client: LoadClient, ledger: LedgerWriter, tokens: Iterator[int]) -> None:
        pause = len(self.clients) / self.rate
        due = time.monotonic() + pause * number / len(self.clients)
        while not self.stopped.wait(max(0.0, due - time.monotonic())):
            # Open loop while the server answers; what was missed while it did not is not made up for.
            due = max(due + pause, time.monotonic())
            token = str(next(tokens))
            ledger.note(TRIED, token)
            done = client.attempt(token)
            ledger.note(done.end, token, done.code, done.text, done.where)
            if done.end != ACKED:
                due = max(due, time.monotonic() + 0.1)
        client.close()


NOT_COMMITTED = frozenset({1205, 1213, 1290, 1836, 8002, 8028, 9007})
"""Answers to COMMIT that leave no doubt: lock wait, deadlock, read-only server, write conflict, schema changed."""


class SqlClient:
    """A client whose write is one transaction, and which knows what a failure says about that."""

    def __init__(self) -> None:
        self.connection: Connection | None = None

    def transact(self, open_: Callable[[], Connection], write: Callable[[Any], None], where: str = "") -> TryOutcome:
        """Write in one transaction; a connection that failed is not used again."""
        import pymysql

        committing = False
        try:
            if self.connection is None:
                self.connection = open_()
            self.connection.begin()
            with self.connection.cursor() as cursor:
                write(cursor)
            committing = True
            self.connection.commit()
        except (LabError, pymysql.err.MySQLError, OSError) as error:
            self.close()
            code, text = error_of(error)
            # Before COMMIT is sent nothing can be committed; after that only a few answers say that nothing was.
            lost = committing and code not in NOT_COMMITTED
            return TryOutcome(UNKNOWN if lost else REFUSED, where, code, text)
        return TryOutcome(ACKED, where)

    def close(self) -> None:
        """Close the connection."""
        if self.connection is not None:
            with suppress(Exception):
                self.connection.close()
        self.connection = None


def error_of(error: BaseException) -> tuple[int, str]:
    """Return code and text of what a driver said; 0 where it has no code."""
    inner = error.__cause__ if isinstance(error, LabError) and error.__cause__ is not None else error
    code = inner.args[0] if inner.args and isinstance(inner.args[0], int) else 0
    return code, str(inner)

"""The changes of a binlog: one reader over a running server, files, or a range of an archive.

The three differ in where the bytes come from only, which is a ``Transport``. A lost connection is opened again, and the
stream goes on after the last whole transaction. Transactions are given out whole only, so nothing comes twice or in
part.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar

from migverify.changes.buffer import whole
from migverify.changes.files import ArchivedRange, BinlogFiles, FileRange
from migverify.changes.model import Commit, Idle, Item, Position
from migverify.changes.positions import shown, until_position
from migverify.changes.server import HEARTBEAT_SECONDS, BinlogServer
from migverify.changes.storage import Storage, open_file
from migverify.changes.transactions import Transport, items
from migverify.errors import ChangeError, EndpointError, PrivilegeError, RetryableReadError
from migverify.model import Endpoint

RECONNECT_SECONDS = 300.0
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 15.0
_T = TypeVar("_T")

_log = logging.getLogger(__name__)


class BinlogSource:
    """The transactions of a binlog, whole ones only; a ``ChangeSource``.

    Parameters
    ----------
    since
        Where to start: file and offset between two transactions, a GTID set, or both. None is the start of the files,
        and of a server now.
    until
        Stop after the last transaction that starts before this position, or once its GTID set was read.
    any_table
        As for ``transactions.items``: statements that cannot be read do not end the stream.
    """

    def __init__(
        self, transport: Transport, since: Position | None = None, until: Position | None = None, *,
        any_table: bool = False, reconnect_seconds: float = RECONNECT_SECONDS,
    ) -> None:  # fmt: skip
        self._transport, self._since, self._until = transport, since, until
        self._any_table, self._patience = any_table, reconnect_seconds
        self._done: Position | None = None

    def items(self) -> Iterator[Item]:
        """Yield what there is, and an Idle at the end of files or when a server had nothing to send for a heartbeat.

        Raises
        ------
        ChangeError
            the stream cannot be read exactly from here on, or the connection stays lost. Items given before are
            certain.
        PurgedError
            the files begin after ``since``, or the server no longer has it.
        EndpointError
            the first connection fails.
        """
        start, until, may_end = self._transport.range(self._since, self._until)
        stream = reconnecting(
            lambda: self._connect(start), self._transport.name, self._patience, lambda: shown(self._done)
        )
        yield from until_position(stream, until, start, may_end=may_end)

    def _connect(self, start: Position | None) -> Iterator[Item]:
        again = self._done is not None
        try:
            with self._transport.opened(self._done if again else start, again=again) as opened:
                stream = items(opened, look_back=self._transport.look_back, any_table=self._any_table)
                for item in whole(stream):
                    if isinstance(item, Commit):
                        self._done = item.end
                    elif isinstance(item, Idle):
                        self._done = item.at
                    yield item
        except EndpointError as error:
            if self._done is None or isinstance(error, PrivilegeError):
                raise
            raise RetryableReadError(error.message, hint=error.hint) from error  # it answered before


def reconnecting(
    connect: Callable[[], Iterator[_T]], name: str, patience: float, place: Callable[[], str]
) -> Iterator[_T]:
    """Yield what ``connect`` gives; call it again after a lost connection, with growing waits.

    Parameters
    ----------
    connect
        Opens the stream after what was yielded.
    patience
        For so many seconds after the last sign of life a lost connection is opened again.
    place
        Names the place up to which everything was read, for messages; empty for none.
    """
    alive, wait = time.monotonic(), _FIRST_WAIT
    while True:
        try:
            for item in connect():
                alive, wait = time.monotonic(), _FIRST_WAIT
                yield item
        except RetryableReadError as error:
            if time.monotonic() - alive > patience:
                raise ChangeError(
                    f"{name}: the connection stayed lost for {patience:.0f} s: {error.message}",
                    hint=f"Everything up to {place()} was read; go on from there." if place() else error.hint,
                ) from error
            _log.info("%s: reading again from %s: %s", name, place() or "the start", error.message)
            time.sleep(wait * random.uniform(0.5, 1.0))
            wait = min(2 * wait, _LONGEST_WAIT)
        else:
            return


def read_server(
    endpoint: Endpoint, password: str | None, since: Position | None, *, until: Position | None = None, follow: bool,
    heartbeat_seconds: float = HEARTBEAT_SECONDS, reconnect_seconds: float = RECONNECT_SECONDS,
    any_table: bool = False,
) -> Iterator[Item]:  # fmt: skip
    """Yield the transactions of a server; see ``BinlogSource`` and ``BinlogServer``."""
    server = BinlogServer(endpoint, password, follow=follow, heartbeat_seconds=heartbeat_seconds)
    return BinlogSource(server, since, until, any_table=any_table, reconnect_seconds=reconnect_seconds).items()


def read_files(
    paths: Sequence[str | Path], since: Position | None = None, until: Position | None = None, *,
    opener: Callable[[str], BinaryIO] = open_file,
) -> Iterator[Item]:  # fmt: skip
    """Yield the transactions of binlog files in their order; see ``BinlogSource`` and ``BinlogFiles``."""
    return BinlogSource(BinlogFiles(paths, since, opener), since, until).items()


def read_range(storage: Storage, wanted: FileRange) -> Iterator[Item]:
    """Yield the items of one range of an archive; an error ends it, and nothing of the range counts then."""
    return BinlogSource(ArchivedRange(storage, wanted)).items()

"""The running server that an archive reads from."""

from __future__ import annotations

from collections.abc import Iterator

from migverify.changes.events import RawEvent
from migverify.changes.model import Position
from migverify.changes.server import HEARTBEAT_SECONDS, server_events, source_state
from migverify.db.server_state import BinaryLog, binary_logs
from migverify.db.session import Session, open_session
from migverify.errors import ChangeError, EndpointError, PrivilegeError, RetryableReadError
from migverify.model import Endpoint, Side


class LiveServer:
    """A MySQL or MariaDB over the network; see ``BinlogServer``.

    Parameters
    ----------
    endpoint, password
        Its user needs REPLICATION SLAVE and REPLICATION CLIENT.

    Raises
    ------
    ChangeError
        it writes no binlog.
    EndpointError
        it cannot be reached, or refuses the user.
    """

    def __init__(
        self, endpoint: Endpoint, password: str | None, *, heartbeat_seconds: float = HEARTBEAT_SECONDS
    ) -> None:
        self._endpoint = endpoint
        self._password = password
        self._heartbeat = heartbeat_seconds
        with self._session() as session:
            self.uuid = source_state(session).server

    def _session(self) -> Session:
        return open_session(self._endpoint, self._password, side=Side.SOURCE)

    def logs(self) -> list[BinaryLog]:
        """Its binlog files now, in their order."""
        with self._session() as session:
            return binary_logs(session)

    def events(self, file: str, offset: int, *, follow: bool) -> Iterator[RawEvent]:
        """Everything it sends from there on over one connection."""
        try:
            with self._session() as session:
                server = source_state(session).server
            if server != self.uuid:
                raise ChangeError(
                    f"{self._endpoint.name} is another server now (its uuid was {self.uuid}, is {server}).",
                    hint="Its binlog files are others: give it an archive of its own.",
                )
            yield from server_events(
                self._endpoint, self._password, Position(file, offset), follow=follow, heartbeat_seconds=self._heartbeat
            )
        except PrivilegeError:
            raise
        except EndpointError as error:  # it answered before, so it may answer again
            raise RetryableReadError(error.message, hint=error.hint) from error

"""Small tables that anybody writes: read whole at one snapshot after the other, and what differs is the change.

What it cannot have is what a log would have: changes between two snapshots come as one, at the timestamp of the later
snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from migverify.changes.model import Texts
from migverify.errors import LabError
from migverify_lab.feed.catalog import Catalog, quoted, select_list, text_session, texts_of
from migverify_lab.feed.model import FeedTable, RowEvent
from migverify_lab.session import LabServer, execute, query

if TYPE_CHECKING:
    from migverify_lab.feed.catalog import Connection


@dataclass(slots=True)
class SnapshotPoller:
    """Reads tables at snapshots; without tables it only asks for timestamps. Used by one thread."""

    server: LabServer
    catalog: Catalog
    tables: Sequence[str]
    _connection: Connection | None = None
    _last: dict[str, dict[Texts, Texts]] = field(default_factory=dict)

    def begin(self, since: int = 0) -> int:
        """Read the tables as they were at a timestamp, 0 is now; returns it. What changed since then comes first.

        Raises
        ------
        LabError
            TiDB does not have that moment any more.
        """
        if not since:
            return self.snapshot()[0]
        import pymysql

        with text_session(self.server) as connection:
            try:
                execute(connection, f"SET SESSION tidb_snapshot = '{since}'")
                for name in self.tables:
                    self._last[name] = self._read(connection, self.catalog.table(*name.split(".", 1)))
            except pymysql.err.MySQLError as error:
                raise LabError(f"TiDB gives no snapshot at {since}: {error}",
                               hint="Make both sides equal, then remove the feed's folder.") from error  # fmt: skip
        return since

    def snapshot(self) -> tuple[int, list[RowEvent]]:
        """Return the timestamp of a snapshot made now, and what changed since the one before; first time nothing."""
        if self._connection is None:
            self._connection = text_session(self.server)
        self._connection.begin()
        try:
            timestamp = int(query(self._connection, "SELECT TIDB_CURRENT_TSO()")[0][0])
            changes: list[RowEvent] = []
            for name in self.tables:
                table = self.catalog.table(*name.split(".", 1))
                rows = self._read(self._connection, table)
                changes += differences(table, self._last.get(name, rows), rows, timestamp)
                self._last[name] = rows
        finally:
            self._connection.rollback()
        return timestamp, changes

    def _read(self, connection: Connection, table: FeedTable) -> dict[Texts, Texts]:
        rows = query(connection, f"SELECT {select_list(table)} FROM {quoted(table)}")  # noqa: S608
        texts = (texts_of(table, row) for row in rows)
        return {table.key_of(row): row for row in texts}

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def differences(
    table: FeedTable, old: dict[Texts, Texts], new: dict[Texts, Texts], timestamp: int
) -> Iterator[RowEvent]:
    """Yield what makes the old rows the new ones."""
    for key in old.keys() - new.keys():
        yield RowEvent(table, timestamp, old[key], None)
    for key, row in new.items():
        if old.get(key) != row:
            yield RowEvent(table, timestamp, old.get(key), row)

"""The engine without Spark: reads on threads, joins through files, in memory that does not grow with the tables.

A join has two halves. First everything is read, at one snapshot per endpoint, over at most ``Endpoint.connections``
connections: rows that may differ go to files. The sessions are then closed, and the files are joined partition by
partition. A read that fails for a while makes the first half begin anew at new snapshots, because nothing was given out
yet.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from migverify.db.retry import ReadLimits, attempt
from migverify.db.session import Session, open_session
from migverify.db.snapshot import NOW, SnapshotSessions, open_snapshot
from migverify.errors import CanceledError, ConfigError
from migverify.model import Endpoint, KeyText, Side
from migverify.recon.change_rows import NO_FEEDS, change_records
from migverify.recon.changefeed import Changefeed
from migverify.recon.join import Join, Row, statement
from migverify.recon.read_sessions import ReadSessions
from migverify.recon.reads import PieceReader, ReadPiece, plan, populations, session_needs
from migverify.recon.relation import ChangeRead, FileRead, JoinFilter, KeyRows, Relation, SqlRead, Texts
from migverify.recon.row_store import RowStore
from migverify.recon.rows import Bytes, KeyRecords, PartCombiner, Record, Relations, comes_in_parts
from migverify.sql import recon as sql

RETRIES = 3
RETRY_SECONDS = 1.0
LOOKUP_KEYS = 500

T = TypeVar("T")
Progress = Callable[[str, int], None]
"""(dataset, rows of it that were read since the last call)."""
Opener = Callable[[Endpoint, str | None], Session]


def _open(endpoint: Endpoint, password: str | None) -> Session:
    return open_session(endpoint, password, side=Side.SOURCE)


def _whole(session: Session, text: str) -> list[Bytes]:
    rows = session.query_bytes(text)
    session.refuse_altered()
    return rows


class LocalEngine:
    """Joins relations in this process; see ``migverify.recon.relation.Engine``. One join reads at a time.

    ``endpoints``, ``secrets``: By name of the endpoint. ``folder``: Where temporary files go; None is the system's
    place for them. They are removed. ``retries``, ``retry_seconds``: How often a join is begun anew after a failure
    that may pass, and the first pause before that. ``feeds``: Changefeeds by name of their endpoint.
    """

    name = "local"

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        secrets: Mapping[str, str],
        *,
        folder: Path | None = None,
        retries: int = RETRIES,
        retry_seconds: float = RETRY_SECONDS,
        progress: Progress | None = None,
        opener: Opener = _open,
        snapshot: Callable[..., Any] = open_snapshot,
        feeds: Mapping[str, Changefeed] = NO_FEEDS,
    ) -> None:
        self.endpoints, self.secrets, self.feeds = endpoints, secrets, feeds
        self.folder = folder
        self.retries, self.retry_seconds = retries, retry_seconds
        self.canceled = threading.Event()
        self._progress, self._opener, self._snapshot = progress, opener, snapshot
        self._turn = threading.Lock()
        self._sessions: ReadSessions | None = None
        self._store: RowStore | None = None

    def join(self, source: Relation, target: Relation | None, keep: JoinFilter) -> Join:
        """Join by key; the reading begins with the first pairing that is requested.

        Raises ConfigError: a dataset of files, which only Spark reads, or of an unknown endpoint.
        """
        self._check(source)
        if target is not None:
            self._check(target)
        return Join((source, target), lambda join: self._run(join, keep))

    def _run(self, join: Join, keep: JoinFilter) -> Iterator[Row]:
        folder = Path(tempfile.mkdtemp(prefix="migverify-recon-", dir=self.folder))
        try:
            with RowStore(folder) as store:
                self._store = store
                self.again(lambda: self._read(join, keep, store))
                rows = 0
                for row in store.join(partial(statement, join.relations, keep)):
                    rows += row["rows0"] + row["rows1"]
                    yield row
                store.check_joined(rows)
        finally:
            self._store = None
            shutil.rmtree(folder, ignore_errors=True)

    def _read(self, join: Join, keep: JoinFilter, store: RowStore) -> None:
        """Read both sides into a store, at new snapshots."""
        store.clear()
        relations = join.relations
        with self.reading(relations) as (reading, opened):
            pieces = plan(reading.sessions, relations, keep, reading.sessions.slots)
            reading.sessions.run([partial(self._store_piece, reading, piece, store) for piece in pieces])
            join.populations = populations(reading.sessions, relations)
            join.snapshots = tuple(one.snapshot for one in opened)
        store.combine(PartCombiner.of(relations))

    def _store_piece(self, reading: PieceReader, piece: ReadPiece, store: RowStore) -> None:
        parts = len(piece.places) == 1 and comes_in_parts(reading.relation(piece.places[0][0]))
        for batch in reading.piece(piece):
            store.add(batch, parts=parts)

    @contextmanager
    def reading(self, relations: Relations) -> Iterator[tuple[PieceReader, list[SnapshotSessions]]]:
        """Open the sessions of all endpoints of relations, each at one snapshot; one join reads at a time.

        Raises EndpointError: a server cannot be reached or refuses the session.
        """
        with self._turn, ExitStack() as stack:
            opened: dict[str, SnapshotSessions] = {}
            for name, (sessions, probe) in session_needs(relations).items():
                self._pause(0.0)
                endpoint = self.endpoint(name)
                count = min(sessions, endpoint.connections)
                opened[name] = stack.enter_context(self._snapshot(endpoint, self.secrets, count, probe))
            listed = {name: one.sessions for name, one in opened.items()}
            self._sessions = ReadSessions(listed, self.canceled, self._opened)
            try:
                report = partial(self._report, relations)
                yield (
                    PieceReader(relations, self._sessions, self.endpoints, self.secrets, report, self.feeds),
                    list(opened.values()),
                )
            finally:
                self._sessions = None

    def lookup(self, relation: Relation, keys: Sequence[KeyText]) -> dict[KeyText, KeyRows]:
        """Read some keys again, at a new moment; keys without rows are not in the answer.

        Raises ReadError: a read failed after its retries.
        """
        self._check(relation)
        texts = {tuple(None if t is None else t.encode("utf-8", "surrogateescape") for t in key): key for key in keys}
        side = KeyRecords(relation)
        for number, read in enumerate(relation.reads):
            if isinstance(read, ChangeRead):
                records = change_records(
                    relation, read, number, self.endpoints, self.secrets, self.canceled, feeds=self.feeds
                )
                side.take(record for record in records if record[0] in texts)
            elif isinstance(read, SqlRead):
                for start in range(0, len(keys), LOOKUP_KEYS):
                    side.take(self._rows_by_key(read, keys[start : start + LOOKUP_KEYS], texts, number))
        return {texts[key]: side.held(key) for key in side.keys}

    def _rows_by_key(
        self, read: SqlRead, keys: Sequence[KeyText], texts: Mapping[Bytes, KeyText], number: int
    ) -> list[Record]:
        text = sql.read_sql(read, sql.keys_condition(read, keys), having=False)
        rows = self._ask(read.endpoint, lambda session: _whole(session, text))
        parts = (sql.split_row(read, row) for row in rows)
        # A collation may take more keys as equal than were requested.
        return [(key, values, count, number) for key, values, count in parts if key in texts and count]

    def query(self, endpoint: str, text: str, limit: int) -> tuple[tuple[str, ...], list[Texts]]:
        """Run one SELECT on an endpoint: column names, and at most ``limit`` rows of text.

        The statement is one consistent read of the newest state.
        """
        table = sql.query_sql(text)

        def read(session: Session) -> tuple[tuple[str, ...], list[Texts]]:
            names = tuple(column.name for column in session.result_columns(sql.describe_sql(table)))
            rows = session.query(sql.first_rows_sql(table, limit))
            session.refuse_altered()
            return names, list(rows)

        return self._ask(endpoint, read)

    def cancel(self) -> None:
        """Stop what reads; from another thread or a signal handler."""
        self.canceled.set()
        sessions = self._sessions
        if sessions is not None:
            sessions.abort()
        store = self._store
        if store is not None:
            store.interrupt()

    def close(self) -> None:
        """Stop what reads. Sessions and files live as long as a join's reading only."""
        self.cancel()

    def endpoint(self, name: str) -> Endpoint:
        """Return an endpoint by its name.

        Raises ConfigError: there is none.
        """
        found = self.endpoints.get(name)
        if found is None:
            raise ConfigError(f"there is no endpoint {name}", hint=f"Known: {', '.join(self.endpoints)}.")
        return found

    def _check(self, relation: Relation) -> None:
        for read in relation.reads:
            if isinstance(read, FileRead):
                raise ConfigError(
                    f"dataset {relation.dataset} is Parquet, which only the Spark engine reads",
                    hint="Run with --engine spark.",
                )
            if isinstance(read, SqlRead):
                self.endpoint(read.endpoint)

    def _ask(self, name: str, read: Callable[[Session], T]) -> T:
        """Run one statement at a new moment, with retries."""
        endpoint = self.endpoint(name)
        current = replace(endpoint, snapshot=None) if endpoint.snapshot == NOW else endpoint

        def once() -> T:
            with self._opener(current, self.secrets.get(name)) as session:
                return read(session)

        return self.again(once)

    def again(self, once: Callable[[], T]) -> T:
        """Do something that may fail for a while, several times.

        Raises ReadError: the last failure, when the retries are used up or another attempt cannot help; CanceledError:
        the engine was canceled.
        """
        self._pause(0.0)
        return attempt(once, ReadLimits(self.retries, self.retry_seconds), self._pause)

    def _pause(self, seconds: float) -> None:
        if self.canceled.wait(seconds):
            raise CanceledError("the run was canceled")

    def _opened(self, endpoint: Endpoint) -> Session:
        return self._opener(endpoint, self.secrets.get(endpoint.name))

    def _report(self, relations: Relations, side: int, rows: int) -> None:
        relation = relations[side]
        if self._progress is not None and relation is not None:
            self._progress(relation.dataset, rows)

"""The engine without Spark: reads on threads, joins through files, in memory that does not grow with the tables.

A join has two halves. First everything is read, at one anchored moment per endpoint, over at most
``Endpoint.connections`` connections: bucket checksums where they can answer, then rows to files. The sessions are
then closed, and the files are joined partition by partition. A read that fails for a while makes the first half begin
anew at new moments, because nothing was given out yet.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from migverify.db.retry import ReadLimits, attempt
from migverify.db.session import Session, open_session
from migverify.db.snapshot import NOW, anchored
from migverify.errors import CanceledError, ConfigError
from migverify.model import Endpoint, KeyText, Side
from migverify.recon import pushdown
from migverify.recon.change_rows import change_records
from migverify.recon.local_join import LocalJoin, ranges
from migverify.recon.readers import Anchor_, ReadPool, SessionNeed, crew
from migverify.recon.records import Bytes, KeyRecords, Record
from migverify.recon.relation import (
    ChangeRead,
    FileRead,
    JoinFilter,
    KeyRows,
    Relation,
    SqlRead,
    Texts,
)
from migverify.recon.row_store import RowStore
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


class LocalEngine:
    """Joins relations in this process; see ``migverify.recon.relation.Engine``. One join reads at a time.

    Parameters
    ----------
    endpoints, secrets
        By name of the endpoint.
    folder
        Where temporary files go; None is the system's place for them. They are removed.
    retries, retry_seconds
        How often a join is begun anew after a failure that may pass, and the first pause before that.
    push_down
        Whether bucket checksums made by the databases are compared first; None: where rows are wide.
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
        push_down: bool | None = None,
        progress: Progress | None = None,
        opener: Opener = _open,
        anchor: Anchor_ = anchored,
    ) -> None:
        self.endpoints, self.secrets = endpoints, secrets
        self.folder = folder
        self.retries, self.retry_seconds = retries, retry_seconds
        self.push_down = push_down
        self.canceled = threading.Event()
        self._progress, self._opener, self._anchor = progress, opener, anchor
        self._turn = threading.Lock()
        self._crew: ReadPool | None = None
        self._store: RowStore | None = None

    def join(self, source: Relation, target: Relation | None, keep: JoinFilter) -> LocalJoin:
        """Join by key; the reading begins with the first pairing that is asked for.

        Raises
        ------
        ConfigError
            a dataset of files, which only Spark reads, or of an unknown endpoint.
        """
        self._check(source)
        if target is not None:
            self._check(target)
        return LocalJoin(self, source, target, keep)

    def lookup(self, relation: Relation, keys: Sequence[KeyText]) -> dict[KeyText, KeyRows]:
        """Read some keys again, at a new moment; keys without rows are not in the answer.

        Raises
        ------
        ReadError
            a read failed after its retries.
        """
        self._check(relation)
        wanted = {tuple(None if t is None else t.encode("utf-8", "surrogateescape") for t in key): key for key in keys}
        side = KeyRecords(relation)
        for number, read in enumerate(relation.reads):
            if isinstance(read, ChangeRead):
                records = change_records(relation, read, number, self.endpoints, self.secrets, self.canceled)
                side.take(record for record in records if record[0] in wanted)
            elif isinstance(read, SqlRead):
                for start in range(0, len(keys), LOOKUP_KEYS):
                    side.take(self._rows_by_key(read, keys[start : start + LOOKUP_KEYS], wanted, number))
        return {wanted[key]: side.held(key) for key in side.keys}

    def _rows_by_key(
        self, read: SqlRead, keys: Sequence[KeyText], wanted: Mapping[Bytes, KeyText], number: int
    ) -> list[Record]:
        text = sql.read_sql(read, sql.keys_condition(read, keys), having=False)
        rows = self._ask(read.endpoint, lambda session: session.query_bytes(text))
        parts = (sql.split_row(read, row) for row in rows)
        # A collation may take more keys as equal than were asked for.
        return [(key, values, count, number) for key, values, count in parts if key in wanted and count]

    def query(self, endpoint: str, text: str, limit: int) -> tuple[tuple[str, ...], list[Texts]]:
        """Run one SELECT on an endpoint: column names, and at most ``limit`` rows of text.

        The statement is one consistent read of the newest state.
        """
        table = sql.query_sql(text)

        def read(session: Session) -> tuple[tuple[str, ...], list[Texts]]:
            names = tuple(column.name for column in session.result_columns(sql.describe_sql(table)))
            return names, list(session.query(sql.first_rows_sql(table, limit)))

        return self._ask(endpoint, read)

    def cancel(self) -> None:
        """Stop what reads; from another thread or a signal handler."""
        self.canceled.set()
        working = self._crew
        if working is not None:
            working.abort()
        store = self._store
        if store is not None:
            store.interrupt()

    def close(self) -> None:
        """Stop what reads. Sessions and files live as long as a join's reading only."""
        self.cancel()

    def endpoint(self, name: str) -> Endpoint:
        """Return an endpoint by its name.

        Raises
        ------
        ConfigError
            there is none.
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

        Raises
        ------
        ReadError
            the last failure, when the retries are used up or another attempt cannot help.
        CanceledError
            the engine was told to stop.
        """
        self._pause(0.0)
        return attempt(once, ReadLimits(self.retries, self.retry_seconds), self._pause)

    def _pause(self, seconds: float) -> None:
        if self.canceled.wait(seconds):
            raise CanceledError("the run was told to stop")

    def _opened(self, endpoint: Endpoint) -> Session:
        return self._opener(endpoint, self.secrets.get(endpoint.name))

    def told(self, dataset: str, rows: int) -> None:
        """Report progress."""
        if self._progress is not None:
            self._progress(dataset, rows)

    @contextmanager
    def storing(self, folder: Path) -> Iterator[RowStore]:
        """Open the rows of one join; ``cancel`` ends what DuckDB does with them."""
        with RowStore(folder) as store:
            self._store = store
            try:
                if self.canceled.is_set():
                    raise CanceledError("the run was told to stop")
                yield store
            finally:
                self._store = None

    def crew_for(self, relations: Sequence[Relation], work: Callable[[ReadPool], T]) -> T:
        """Do work with anchored sessions on the endpoints of relations; one at a time."""
        wanted: dict[str, SessionNeed] = {}
        for relation in relations:
            for read in pushdown.sql_reads(relation):
                wanted[read.endpoint] = self._wanted(read, wanted.get(read.endpoint))
        with (
            self._turn,
            crew(list(wanted.values()), self.secrets, self.canceled, self._opened, self._anchor) as made,
        ):
            self._crew = made
            try:
                return work(made)
            finally:
                self._crew = None

    def _wanted(self, read: SqlRead, known: SessionNeed | None) -> SessionNeed:
        endpoint = self.endpoint(read.endpoint)
        useful = max(1, len(ranges(read))) + (known.sessions if known is not None else 0)
        # A query is no cheap probe; without one, a single session must do.
        probe = "" if read.table.startswith("(") else sql.probe_sql(read.table)
        probe = known.probe if known is not None and known.probe else probe
        return SessionNeed(endpoint, min(useful, endpoint.connections) if probe else 1, probe)

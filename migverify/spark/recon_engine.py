"""The rules engine on Spark: relations become one DataFrame, and one aggregation by key joins them.

Rows and changes are read from the servers by tasks, many key ranges at a time, with the function of the local engine
(``migverify.recon.reads``), and Parquet by Spark (``recon_frames``); the statement of ``migverify.recon.join`` joins
them. Pairings are those of the local engine, to the byte. Single keys, single statements and groups that the databases
make are read from this process, by the local engine.

What to read, endpoints and passwords travel inside the pickled function of a ``mapInArrow``, from the driver's memory
to the worker's; they are in no plan, setting or message. Every piece is read in one transaction: on TiDB as of one
timestamp for all pieces, elsewhere in a consistent snapshot of its own. Executors need migverify, PyMySQL and pyarrow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import reduce
from threading import Event
from typing import TYPE_CHECKING, cast

from migverify.db.session import Session
from migverify.db.session import open_session as open_connection
from migverify.db.snapshot import NOW, SnapshotSessions, begin_snapshot, open_snapshot
from migverify.errors import ConfigError, MigverifyError, ReadError
from migverify.model import Endpoint, KeyText, Side
from migverify.recon.join import Join, Row, statement
from migverify.recon.local import LocalEngine
from migverify.recon.read_sessions import ReadSessions
from migverify.recon.reads import PieceReader, ReadPiece, plan, populations, session_needs
from migverify.recon.relation import FileRead, JoinFilter, KeyRows, Relation, SqlRead, Texts
from migverify.recon.rows import SCHEMA, PartCombiner, Relations
from migverify.spark.engine import Jobs, error_answer, explain, open_answer
from migverify.spark.session import close_session, open_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_SAID = re.compile(r"migverify-error (!\{.*\})")
SETTINGS = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.adaptive.skewJoin.enabled": "true",
    "spark.sql.ansi.enabled": "true",  # an overflow is an error, never a NULL
    "spark.sql.session.timeZone": "UTC",
    # Days before 1582 and times before 1900 are read as they are in the file, on every Spark.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.shuffle.partitions": "32",
}
"""What a join needs of its session; set when the engine is made."""

DRIVER = {
    "spark.driver.memory": "768m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4",  # rows pass the JVM here: the good compiler pays
}
"""Settings for ``open_session`` when the session is made for the rules engine."""


def open_engine(
    master: str | None, conf: Mapping[str, str], endpoints: Mapping[str, Endpoint], secrets: Mapping[str, str],
    app_name: str = "migverify recon",
) -> SparkReconEngine:  # fmt: skip
    """Open a session made for the rules engine, and the engine on it; closing the engine closes the session.

    ``master``, ``conf``: As ``migverify.spark.session.open_session`` takes them; ``conf`` wins over ``DRIVER``.

    Raises ConfigError: pyspark or Java is missing or too old, or the master does not answer.
    """
    connections = [endpoint.connections for endpoint in endpoints.values()]
    slots = max(1, min(connections, default=2))
    session = open_session(master, app_name, DRIVER | dict(conf), slots)
    return SparkReconEngine(session, endpoints, secrets, slots)


class SparkReconEngine:
    """Joins relations on a Spark session; see ``migverify.recon.relation.Engine``. One join reads at a time.

    ``session``: What ``migverify.spark.session.open_session`` gave with ``DRIVER`` among its settings, or any session
    of pyspark 3.5 or newer. The engine sets ``SETTINGS`` on it. ``endpoints``, ``secrets``: By name of the endpoint.
    Sent to the workers inside a pickled class, and kept out of messages. ``slots``: How many pieces are read at a time:
    at most the smallest ``Endpoint.connections`` less one. ``owns_session``: Whether ``close`` closes the session too.
    """

    name = "spark"

    def __init__(
        self,
        session: SparkSession,
        endpoints: Mapping[str, Endpoint],
        secrets: Mapping[str, str],
        slots: int,
        *,
        owns_session: bool = True,
    ) -> None:
        self.session = session
        self.endpoints, self.secrets, self.slots = dict(endpoints), dict(secrets), max(1, slots)
        self._owns_session = owns_session
        self._local = LocalEngine(endpoints, secrets)
        self._stop = Event()
        self.jobs = Jobs(session)
        self._closed = self._canceled = False
        for name, value in SETTINGS.items():
            session.conf.set(name, value)
        self._workers = {
            name: replace(one, snapshot=None) if one.snapshot == NOW else one for name, one in endpoints.items()
        }

    def join(self, source: Relation, target: Relation | None, keep: JoinFilter) -> Join:
        """Join by key; reading begins with the first pairing that is requested.

        Groups that the databases make are joined in this process: a Spark job costs more than they do.
        """
        if self._closed:
            raise ReadError("the Spark engine is closed and joins nothing more")
        for relation in (source, target):
            for read in relation.reads if relation is not None else ():
                if isinstance(read, SqlRead) and read.endpoint not in self.endpoints:
                    known = ", ".join(self.endpoints)
                    raise ConfigError(f"there is no endpoint {read.endpoint}", hint=f"Known: {known}.")
        relations = [source] if target is None else [source, target]
        if all(isinstance(read, SqlRead) and read.grouped for relation in relations for read in relation.reads):
            return self._local.join(source, target, keep)
        return Join((source, target), lambda join: self._run(join, keep))

    def lookup(self, relation: Relation, keys: Sequence[KeyText]) -> dict[KeyText, KeyRows]:
        """Read some keys again, at a new moment; keys without rows are not in the answer."""
        return self._local.lookup(relation, keys)

    def query(self, endpoint: str, sql: str, limit: int) -> tuple[tuple[str, ...], list[Texts]]:
        """Run one SELECT on an endpoint: column names, and at most ``limit`` rows of text."""
        return self._local.query(endpoint, sql, limit)

    def cancel(self) -> None:
        """Stop what runs; from another thread or a signal handler."""
        self._closed = self._canceled = True
        self._stop.set()
        self._local.cancel()
        self.jobs.cancel()

    def close(self) -> None:
        """Release connections and, where it owns it, the session. May be called twice."""
        self._local.close()
        owns, self._owns_session, self._closed = self._owns_session, False, True
        if owns:
            close_session(self.session, at_once=self._canceled)

    def read_pieces(
        self, relations: Relations, pieces: Sequence[ReadPiece], opened: Mapping[str, SnapshotSessions]
    ) -> DataFrame:
        """Return the rows of some pieces as a frame of ``migverify.recon.rows.SCHEMA``."""
        if not pieces:
            return self.session.createDataFrame([], SCHEMA)
        begin = {name: (one.begin or (), one.probe) for name, one in opened.items()}
        numbers = self.session.range(0, len(pieces), 1, len(pieces))
        read = ReadPieces(relations, tuple(pieces), begin, self._workers, self.secrets)
        return numbers.mapInArrow(read, SCHEMA)

    def _run(self, join: Join, keep: JoinFilter) -> Iterator[Row]:
        try:
            yield from self._answer(join, keep)
        except MigverifyError:
            raise
        except Exception as error:  # noqa: BLE001 - py4j, pyspark and grpc share no base class
            said = _SAID.search(str(error))
            if said:
                open_answer(said[1])
            raise explain(error, self.secrets) from None

    def _answer(self, join: Join, keep: JoinFilter) -> Iterator[Row]:
        self.jobs.mark_thread()
        relations = join.relations
        with ExitStack() as stack:
            opened = {
                name: stack.enter_context(open_snapshot(self.endpoints[name], self.secrets, 1, probe, shared=True))
                for name, (_, probe) in session_needs(relations).items()
            }
            sessions = ReadSessions({name: one.sessions for name, one in opened.items()}, self._stop, self._connect)
            rows = self._rows(relations, plan(sessions, relations, keep, self.slots), opened)
            frame = self.session.sql(statement(relations, keep, "{rows}"), rows=rows)
            yield from cast(Iterator[Row], frame.toLocalIterator(prefetchPartitions=True))
            join.populations = populations(sessions, relations)
            join.snapshots = tuple(one.at_end() for one in opened.values())

    def _rows(
        self, relations: Relations, pieces: Sequence[ReadPiece], opened: Mapping[str, SnapshotSessions]
    ) -> DataFrame:
        """Return the rows of both sides as one frame."""
        from migverify.spark.recon_frames import file_frame

        combiner = PartCombiner.of(relations)
        frames = [self.read_pieces(relations, pieces, opened)] if pieces else []
        for side, relation in enumerate(relations):
            for number, read in enumerate(relation.reads if relation is not None else ()):
                if relation is not None and isinstance(read, FileRead):
                    frame = file_frame(self.session, relation, read, side, number)
                    # A group that most rows share must not cross the network row by row.
                    frames.append(frame if relation.rows else frame.mapInArrow(combiner.each_batch, SCHEMA))
        rows = reduce(lambda one, other: one.unionByName(other), frames or [self.read_pieces(relations, (), {})])
        if not combiner.needed:
            return rows
        return rows.repartition("k").sortWithinPartitions("k", "side").mapInArrow(combiner, SCHEMA)

    def _connect(self, endpoint: Endpoint) -> Session:
        return open_connection(endpoint, self.secrets.get(endpoint.name), side=Side.SOURCE)


@dataclass(frozen=True, slots=True)
class ReadPieces:
    """Reads the pieces whose numbers come in; one row of a partition is the number of one piece.

    ``begin`` has by endpoint the statements that open its snapshot, and the cheap read that proves a ``tidb_snapshot``.
    Nothing of it is in a ``repr``: Spark shows the name of the class in plans, never its pickled bytes.
    """

    relations: Relations = field(repr=False)
    pieces: tuple[ReadPiece, ...] = field(repr=False)
    begin: Mapping[str, tuple[tuple[str, ...], str]] = field(repr=False)
    endpoints: Mapping[str, Endpoint] = field(repr=False)
    secrets: Mapping[str, str] = field(repr=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of ``SCHEMA``; an error comes to the driver as one line of text."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                try:
                    yield from self._read(self.pieces[number])
                except Exception as error:  # noqa: BLE001 - the driver raises it as what it is
                    raise ReadError(f"migverify-error {error_answer(error, self.secrets)}") from None

    def _read(self, piece: ReadPiece) -> Iterator[pa.RecordBatch]:
        sides = [relation.reads if relation is not None else () for relation in self.relations]
        reads = [sides[side][number] for side, number in piece.places]
        with ExitStack() as stack:
            sessions = {}
            for name in dict.fromkeys(read.endpoint for read in reads if isinstance(read, SqlRead)):
                sessions[name] = [stack.enter_context(self._connect(self.endpoints[name]))]
                begin_snapshot(sessions[name][0], *self.begin[name])
            lent = ReadSessions(sessions, Event(), self._connect)
            yield from PieceReader(self.relations, lent, self.endpoints, self.secrets).piece(piece)

    def _connect(self, endpoint: Endpoint) -> Session:
        return open_connection(endpoint, self.secrets.get(endpoint.name), side=Side.SOURCE)

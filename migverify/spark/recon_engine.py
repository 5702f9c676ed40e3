"""The recon road on Spark: relations become one DataFrame, and one aggregation by key joins them.

Rows and changes are read from the servers by tasks (``recon_source``), many key ranges at a time, and Parquet by Spark
(``recon_frames``); the statement of ``migverify.recon.join`` joins them, as on the local engine. Where all rows are in
databases and wide, bucket checksums made there are compared first, and only rows of unlike buckets are read. Pairings
are those of the local engine, to the byte. Single keys, single statements and groups that the databases make are read
from this process, by the local engine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from migverify.codec import decode
from migverify.db.snapshot import NOW, Anchor
from migverify.errors import ConfigError, MigverifyError, ReadError
from migverify.model import Endpoint, KeyText
from migverify.recon import pushdown
from migverify.recon.join import SCHEMA, PartCombiner, note, pairing, statement
from migverify.recon.local import LocalEngine
from migverify.recon.relation import FileRead, Joined, JoinFilter, KeyRows, Pairing, Relation, SqlRead, Texts, Totals
from migverify.spark.engine import explain, jobs_of
from migverify.spark.recon_reads import Moment, Needed, compare_buckets, endpoints_of, open_moment, row_pieces
from migverify.spark.recon_source import Pieces, ReadPieces, raise_said
from migverify.spark.session import close_session, open_session
from migverify.sql.recon_join import TOTALS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

BATCH = 1000
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
"""Settings for ``open_session`` when the session is made for the recon road."""


def open_engine(
    master: str | None, conf: Mapping[str, str], endpoints: Mapping[str, Endpoint], secrets: Mapping[str, str],
    app_name: str = "migverify recon",
) -> SparkReconEngine:  # fmt: skip
    """Open a session made for the recon road, and the engine on it; closing the engine closes the session.

    Parameters
    ----------
    master, conf
        As ``migverify.spark.session.open_session`` takes them; ``conf`` wins over ``DRIVER``.

    Raises
    ------
    ConfigError
        pyspark or Java is missing or too old, or the master does not answer.
    """
    connections = [endpoint.connections for endpoint in endpoints.values()]
    slots = max(1, min(connections, default=2))
    session = open_session(master, app_name, DRIVER | dict(conf), slots)
    return SparkReconEngine(session, endpoints, secrets, slots)


class SparkReconEngine:
    """Joins relations on a Spark session; see ``migverify.recon.relation.Engine``. One join reads at a time.

    Parameters
    ----------
    session
        What ``migverify.spark.session.open_session`` gave with ``DRIVER`` among its settings, or any session of
        pyspark 3.5 or newer. The engine sets ``SETTINGS`` on it.
    endpoints, secrets
        By name of the endpoint. Sent to the workers inside a pickled class, and kept out of messages.
    slots
        How many pieces are read at a time: at most the smallest ``Endpoint.connections`` less one.
    push_down
        Whether bucket checksums made by the databases are compared first; None: where rows are wide.
    owns_session
        Whether ``close`` closes the session too.
    """

    name = "spark"

    def __init__(
        self,
        session: SparkSession,
        endpoints: Mapping[str, Endpoint],
        secrets: Mapping[str, str],
        slots: int,
        *,
        push_down: bool | None = None,
        owns_session: bool = True,
    ) -> None:
        self.session = session
        self.endpoints, self.secrets, self.slots = dict(endpoints), dict(secrets), max(1, slots)
        self.push_down = push_down
        self._owns_session = owns_session
        self._local = LocalEngine(endpoints, secrets)
        self.again = self._local.again
        self.jobs = jobs_of(session)
        self._closed = self._canceled = False
        for name, value in SETTINGS.items():
            session.conf.set(name, value)
        self._workers = {
            name: replace(one, snapshot=None) if one.snapshot == NOW else one for name, one in endpoints.items()
        }

    def join(self, source: Relation, target: Relation | None, keep: JoinFilter) -> Joined:
        """Join by key; reading begins with the first pairing that is asked for.

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
        return SparkJoin(self, source, target, keep)

    def lookup(self, relation: Relation, keys: Sequence[KeyText]) -> dict[KeyText, KeyRows]:
        """Read some keys again, at a new moment; keys without rows are not in the answer."""
        return self._local.lookup(relation, keys)

    def query(self, endpoint: str, sql: str, limit: int) -> tuple[tuple[str, ...], list[Texts]]:
        """Run one SELECT on an endpoint: column names, and at most ``limit`` rows of text."""
        return self._local.query(endpoint, sql, limit)

    def cancel(self) -> None:
        """Stop what runs; from another thread or a signal handler."""
        self._closed = self._canceled = True
        self._local.cancel()
        self.jobs.cancel()

    def close(self) -> None:
        """Release connections and, where it owns it, the session. May be called twice."""
        self._local.close()
        owns, self._owns_session, self._closed = self._owns_session, False, True
        if owns:
            close_session(self.session, at_once=self._canceled)

    def read_pieces(self, wanted: Pieces) -> DataFrame:
        """Return the rows of some pieces as a frame of ``migverify.recon.join.SCHEMA``."""
        if not wanted.pieces:
            return self.session.createDataFrame([], SCHEMA)
        count = len(wanted.pieces)
        numbers = self.session.range(0, count, 1, count)
        return numbers.mapInArrow(ReadPieces(wanted, self._workers, self.secrets), SCHEMA)


class SparkJoin:
    """One join under way; see ``migverify.recon.relation.Joined``."""

    def __init__(self, engine: SparkReconEngine, source: Relation, target: Relation | None, keep: JoinFilter) -> None:
        self._engine = engine
        self._relations = (source, target)
        self._keep = keep
        self._totals: Totals | None = None
        self._anchors: tuple[Anchor, ...] = ()

    @property
    def totals(self) -> Totals:
        """Totals; RuntimeError before the pairings were read to their end."""
        if self._totals is None:
            raise RuntimeError("the pairings were not read to their end")
        return self._totals

    @property
    def anchors(self) -> tuple[Anchor, ...]:
        """The moments that were read, after the end."""
        return self._anchors

    def __iter__(self) -> Iterator[Sequence[Pairing]]:
        """Yield batches of pairings."""
        self._totals = None
        try:
            yield from self._run()
        except MigverifyError:
            raise
        except Exception as error:  # noqa: BLE001 - py4j, pyspark and grpc share no base class
            raise_said(str(error))
            raise explain(error, self._engine.secrets) from None

    def _run(self) -> Iterator[Sequence[Pairing]]:
        engine, relations = self._engine, self._relations
        engine.jobs.mark_thread()
        with ExitStack() as stack:
            moments = {
                name: stack.enter_context(open_moment(engine.endpoints[name], engine.secrets.get(name), probe))
                for name, probe in endpoints_of(relations).items()
            }
            wanted = self._compare_buckets(moments)
            sums = dict.fromkeys(TOTALS, 0)
            batch: list[Pairing] = []
            anchors: list[Anchor] = []
            for row in self._answer(moments, wanted):
                for name in TOTALS:
                    sums[name] += row[name]
                said = None if row["k"] is None else note(row)
                if said is not None:
                    anchors.append(decode(Anchor, json.loads(said)))
                elif row["k"] is not None:
                    batch.append(pairing(row, relations))
                    if len(batch) >= BATCH:
                        yield batch
                        batch = []
            if batch:
                yield batch
            populations = self._populations(moments)
            self._anchors = (*(moment.anchor() for moment in moments.values()), *anchors)
        self._totals = _total(sums, wanted, populations, one_sided=relations[1] is None)

    def _answer(self, moments: dict[str, Moment], wanted: Needed | None) -> Iterator[Row]:
        """Yield the rows of the join; none where the databases have shown that all rows agree."""
        if wanted is not None and not wanted.unlike:
            return
        rows = self._rows(moments, wanted)
        combiner = PartCombiner.of(self._relations)
        if combiner.needed:
            rows = rows.repartition("k").sortWithinPartitions("k", "side").mapInArrow(combiner, SCHEMA)
        frame = self._engine.session.sql(statement(self._relations, self._keep, "{rows}"), rows=rows)
        yield from frame.toLocalIterator(prefetchPartitions=True)

    def _rows(self, moments: dict[str, Moment], wanted: Needed | None) -> DataFrame:
        """Return the rows of both sides as one frame."""
        from migverify.spark.recon_frames import file_frame

        engine = self._engine
        frames = []
        planned = row_pieces(self._relations, moments, engine.slots, wanted)
        if planned.pieces:
            frames.append(engine.read_pieces(planned))
        for side, relation in enumerate(self._relations):
            for number, read in enumerate(relation.reads if relation is not None else ()):
                if relation is not None and isinstance(read, FileRead):
                    frame = file_frame(engine.session, relation, read, side, number)
                    if not relation.rows:
                        # A group that most rows share must not cross the network row by row.
                        frame = frame.mapInArrow(PartCombiner.of(self._relations).each_batch, SCHEMA)
                    frames.append(frame)
        return reduce(lambda one, other: one.unionByName(other), frames or [engine.read_pieces(planned)])

    def _compare_buckets(self, moments: dict[str, Moment]) -> Needed | None:
        """Sum both sides by bucket on the servers; None where all rows must be read."""
        engine, (source, target) = self._engine, self._relations
        if target is None or not pushdown.chosen(source, target, self._keep, engine.push_down):
            return None
        return engine.again(lambda: compare_buckets((source, target), moments, engine.secrets, engine.slots))

    def _populations(self, moments: dict[str, Moment]) -> list[tuple[int, int] | None]:
        """(rows, keys) that were looked at on each side, where not all of them came back."""
        found: list[tuple[int, int] | None] = [None, None]
        for side, relation in enumerate(self._relations):
            for read in pushdown.sql_reads(relation):
                if read.population:
                    rows, keys = moments[read.endpoint].session.query(read.population)[0]
                    known = found[side] or (0, 0)
                    found[side] = known[0] + int(rows or 0), known[1] + int(keys or 0)
        return found


def _total(
    sums: dict[str, int], wanted: Needed | None, populations: list[tuple[int, int] | None], *, one_sided: bool
) -> Totals:
    equal = wanted.equal if wanted is not None else 0
    source = populations[0] or (sums["rows0"] + equal, sums["keys0"] + equal)
    target = populations[1] or (sums["rows1"] + equal, sums["keys1"] + equal)
    # Keys that were looked at and did not come back agreed.
    unseen = source[1] - sums["keys0"] if populations[0] and one_sided else 0
    return Totals(source[0], target[0], source[1], target[1], sums["matched"] + equal + unseen, wanted is not None)

"""A Python data source that reads the rows of recon relations by key range, many ranges at a time.

One row per row read: side, shard, and packed texts (``migverify.sql.packed``). What to read is an option of the source,
as text without secrets; endpoints and passwords travel inside the pickled class, from the driver's memory to the
worker's, and are in no option, plan, setting or message.

Every piece is read in one transaction: on TiDB as of one timestamp for all pieces, elsewhere in a consistent snapshot
of its own. Executors need migverify, PyMySQL and pyarrow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from threading import Event
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from migverify.codec import decode, encode
from migverify.db.session import open_session
from migverify.db.snapshot import Anchor, begin_moment
from migverify.errors import ReadError
from migverify.model import Endpoint, Side
from migverify.recon import spill
from migverify.recon.change_rows import change_records
from migverify.recon.packed import Step, read_steps
from migverify.recon.relation import ChangeRead, Relation, SqlRead
from migverify.spark.worker import error_answer, open_answer
from migverify.sql.packed import pack

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

SCHEMA = "side tinyint, shard int, k binary, v binary, c binary"
"""``side`` 0 is the source, 1 the target; ``shard`` the number of the read on its side; ``k``, ``v`` and ``c`` are the
packed sections of ``migverify.recon.packed.read_steps``: key, compared values, and what is beside them."""

OPTION = "pieces"
ANCHOR_SIDE = 2
"""``side`` of a row whose ``k`` is the ``Anchor`` of a change stream, as JSON text."""
BATCH_ROWS = 10_000
_SAID = re.compile(r"migverify-error (!\{.*\})")


@dataclass(frozen=True, slots=True)
class Piece:
    """What one task reads: some steps of one read. ``shard`` is the number of the read on its side."""

    side: int
    shard: int
    read: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """One read of a join.

    ``carried`` and ``where`` are those of ``read_steps``; ``begin`` are the statements that open the snapshot,
    ``probe`` the cheap read that proves a ``tidb_snapshot``.
    ``relation`` is that of a change read, with no other read.
    """

    read: SqlRead | ChangeRead
    carried: int
    where: str
    begin: tuple[str, ...]
    relation: Relation | None = None
    probe: str = ""


@dataclass(frozen=True, slots=True)
class Pieces:
    """All that one join reads from servers. ``reads`` are named by their place."""

    reads: tuple[PlannedRead, ...]
    pieces: tuple[Piece, ...]

    def to_text(self) -> str:
        """Return JSON text; holds no secret."""
        return json.dumps(encode(self), separators=(",", ":"))


@dataclass
class PiecePartition(InputPartition):
    """One piece, as an executor gets it."""

    piece: Piece
    read: PlannedRead


def data_source(name: str, endpoints: Mapping[str, Endpoint], secrets: Mapping[str, str]) -> type[DataSource]:
    """Return the class of a data source that can reach some endpoints.

    The class is made here, in a function, so that it is pickled by value: with ``endpoints`` and ``secrets`` inside.
    """
    known, passwords = dict(endpoints), dict(secrets)

    class ReconDataSource(DataSource):
        """Reads the pieces that its option names."""

        @classmethod
        def name(cls) -> str:
            """The format's name."""
            return name

        def schema(self) -> str:
            """See ``SCHEMA``."""
            return SCHEMA

        def reader(self, schema: StructType) -> DataSourceReader:
            """Read once."""
            del schema
            return PieceReader(self.options[OPTION], known, passwords)

    return ReconDataSource


class PieceReader(DataSourceReader):
    """The batch reader."""

    def __init__(self, pieces: str, endpoints: Mapping[str, Endpoint], secrets: Mapping[str, str]) -> None:
        self._pieces = pieces
        self._endpoints = endpoints
        self._secrets = secrets

    def __getstate__(self) -> dict[str, Any]:
        """Leave the pieces at the driver: each partition holds its own."""
        return self.__dict__ | {"_pieces": ""}

    def partitions(self) -> Sequence[InputPartition]:
        """One partition per piece."""
        known = decode(Pieces, json.loads(self._pieces))
        return [PiecePartition(piece, known.reads[piece.read]) for piece in known.pieces]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read one piece; an error comes to the driver as one line of text, for ``raise_said``."""
        if partition is None:  # Spark asks for one empty read where there are no partitions
            return
        wanted = cast("PiecePartition", partition)
        try:
            yield from _read(wanted, self._endpoints, self._secrets)
        except Exception as error:  # noqa: BLE001 - whatever it is, the driver raises it as what it is
            raise ReadError(f"migverify-error {error_answer(error, self._secrets)}") from None


def raise_said(text: str) -> None:
    """Raise the error that a worker put into Spark's message; return where it holds none."""
    said = _SAID.search(text)
    if said:
        open_answer(said[1])


def _read(wanted: PiecePartition, endpoints: Mapping[str, Endpoint], secrets: Mapping[str, str]) -> Iterator[Any]:
    planned, piece = wanted.read, wanted.piece
    if isinstance(planned.read, ChangeRead):
        yield from _read_changes(piece, planned, endpoints, secrets)
        return
    endpoint = endpoints[planned.read.endpoint]
    with open_session(endpoint, secrets.get(endpoint.name), side=Side.SOURCE) as session:
        begin_moment(session, planned.begin, planned.probe)
        for sections in read_steps(session, planned.read, planned.carried, piece.steps, planned.where):
            yield _batch(piece, sections)


def _read_changes(
    piece: Piece, planned: PlannedRead, endpoints: Mapping[str, Endpoint], secrets: Mapping[str, str]
) -> Iterator[Any]:
    """Read a change stream as the local engine does; the last row tells up to where, for the driver."""
    relation, anchors = planned.relation, list[Anchor]()
    if relation is None or not isinstance(planned.read, ChangeRead):
        raise ReadError("a change stream was planned without its relation")
    records = change_records(relation, planned.read, piece.shard, endpoints, secrets, Event(), anchors.append)
    for batch in _batches(relation, records):
        yield _batch(piece, batch)
    for anchor in anchors:
        text = json.dumps(encode(anchor)).encode()
        yield _batch(Piece(ANCHOR_SIDE, piece.shard, piece.read, ()), [[text], [b""], [b"=0"]])


def _batches(relation: Relation, records: Iterator[spill.Record]) -> Iterator[list[list[bytes]]]:
    compared = relation.compared
    while some := list(islice(records, BATCH_ROWS)):
        if relation.rows:
            yield [
                [pack(key) for key, *_ in some], [pack(values[:compared]) for _, values, *_ in some],
                [pack(values[compared:]) for _, values, *_ in some],
            ]  # fmt: skip
            continue
        # Each change is a group of one row: groups that all of them share would be long lists later.
        groups = spill.Side.of(relation).take(some).keys
        listed = [(pack(key), pack(cast("spill.Bytes", held[1])), b"=%d" % cast("int", held[0]))
                  for key, held in groups.items()]  # fmt: skip
        yield [list(section) for section in zip(*listed, strict=True)]


def _batch(piece: Piece, sections: Sequence[Sequence[bytes]]) -> pa.RecordBatch:
    import pyarrow as pa

    count = len(sections[0])
    columns = [
        pa.repeat(pa.scalar(piece.side, pa.int8()), count), pa.repeat(pa.scalar(piece.shard, pa.int32()), count),
        *(pa.array(section, pa.binary()) for section in sections),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, names=["side", "shard", "k", "v", "c"])

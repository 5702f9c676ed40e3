"""Reads the rows of recon relations by key range, many ranges at a time: the function of a ``mapInArrow``.

One row per row read: side, shard, and packed texts (``migverify.sql.packed``). What to read, endpoints and passwords
travel inside the pickled function, from the driver's memory to the worker's; they are in no plan, setting or message.

Every piece is read in one transaction: on TiDB as of one timestamp for all pieces, elsewhere in a consistent snapshot
of its own. Executors need migverify, PyMySQL and pyarrow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING

from migverify.codec import encode
from migverify.db.session import open_session
from migverify.db.snapshot import Anchor, begin_moment
from migverify.errors import ReadError
from migverify.model import Endpoint, Side
from migverify.recon.change_rows import change_records
from migverify.recon.join import record_batch, sections_of
from migverify.recon.packed import Step, read_steps
from migverify.recon.relation import ChangeRead, Relation, SqlRead
from migverify.spark.worker import error_answer, open_answer

if TYPE_CHECKING:
    import pyarrow as pa

ANCHOR_SIDE = 2
"""``side`` of a row whose ``k`` is the ``Anchor`` of a change stream, as JSON text."""
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


@dataclass(frozen=True, slots=True)
class ReadPieces:
    """Reads the pieces whose numbers come in; one row of a partition is the number of one piece.

    Nothing of it is in a ``repr``: Spark shows the name of the class in plans, never its pickled bytes.
    """

    wanted: Pieces = field(repr=False)
    endpoints: Mapping[str, Endpoint] = field(repr=False)
    secrets: Mapping[str, str] = field(repr=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of :data:`SCHEMA`; an error comes to the driver as one line of text, for ``raise_said``."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                piece = self.wanted.pieces[number]
                try:
                    yield from _read(piece, self.wanted.reads[piece.read], self.endpoints, self.secrets)
                except Exception as error:  # noqa: BLE001 - whatever it is, the driver raises it as what it is
                    raise ReadError(f"migverify-error {error_answer(error, self.secrets)}") from None


def raise_said(text: str) -> None:
    """Raise the error that a worker put into Spark's message; return where it holds none."""
    said = _SAID.search(text)
    if said:
        open_answer(said[1])


def _read(
    piece: Piece, planned: PlannedRead, endpoints: Mapping[str, Endpoint], secrets: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    if isinstance(planned.read, ChangeRead):
        yield from _read_changes(piece, planned, endpoints, secrets)
        return
    endpoint = endpoints[planned.read.endpoint]
    with open_session(endpoint, secrets.get(endpoint.name), side=Side.SOURCE) as session:
        begin_moment(session, planned.begin, planned.probe)
        for sections in read_steps(session, planned.read, planned.carried, piece.steps, planned.where):
            yield record_batch(piece.side, piece.shard, sections, counted=planned.read.grouped)


def _read_changes(
    piece: Piece, planned: PlannedRead, endpoints: Mapping[str, Endpoint], secrets: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """Read a change stream as the local engine does; the last row tells up to where, for the driver."""
    relation, anchors = planned.relation, list[Anchor]()
    if relation is None or not isinstance(planned.read, ChangeRead):
        raise ReadError("a change stream was planned without its relation")
    records = change_records(relation, planned.read, piece.shard, endpoints, secrets, Event(), anchors.append)
    for sections in sections_of(relation, records):
        yield record_batch(piece.side, piece.shard, sections, counted=not relation.rows)
    for anchor in anchors:
        text = json.dumps(encode(anchor)).encode()
        yield record_batch(ANCHOR_SIDE, piece.shard, [[text], [b""], [b"=0"]], counted=True)

"""The one path of a rule's rows: a plan of key ranges -> packed reads -> batches of rows for the join.

``plan`` cuts the reads of both sides into pieces, and ``Reading.piece`` reads one: on threads of the local engine, in
tasks of Spark. Rows travel packed (``migverify.sql.packed``). Where one key range holds all rows of a key on both
sides, it is read from both at once; rows that agree are counted and go no further, and only the others are joined.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING

from migverify.db.session import TOO_LONG, Session
from migverify.db.snapshot import ReadSnapshot
from migverify.errors import IncompleteReadError
from migverify.model import Endpoint
from migverify.recon.change_rows import change_records
from migverify.recon.changefeed import Changefeed
from migverify.recon.read_sessions import ReadSessions
from migverify.recon.relation import ChangeRead, Cut, JoinFilter, Relation, SqlRead
from migverify.recon.rows import Relations, note_batch, record_batch, sections_of
from migverify.sql import packed, recon
from migverify.sql.server import TIDB_PROBE

if TYPE_CHECKING:
    import pyarrow as pa

SLICES = 512
STEP_ROWS = 20_000
STEP_BYTES = 8 << 20
"""Rows and bytes of one packed text, about."""
PIECE_ROWS = 250_000
PIECES_A_SLOT = 3
STREAM_ROWS = 10_000
STREAM_BYTES = 16 << 20
GATHER_BYTES = 64 << 20
"""Bytes of one key range of one read that are compared in memory; a larger one is joined whole."""
_DEPTH = 16
_AHEAD = 1

Place = tuple[int, int]
"""Side (0 is the source) and number of a read on it."""
Sections = list[list[bytes]]
"""Packed keys, packed values, packed texts beside them; one entry a row in each."""


@dataclass(frozen=True, slots=True)
class RangeStep:
    """A range of the cut column: lower inclusive, upper exclusive, None open. ``rows`` are an upper bound, or -1.

    ``nulls`` selects instead the rows in which the column is NULL.
    """

    lower: int | None = None
    upper: int | None = None
    rows: int = -1
    nulls: bool = False


@dataclass(frozen=True, slots=True)
class ReadPiece:
    """What one thread or task reads: some steps of one read, or of all ``places`` together. Changes have no steps."""

    number: int
    places: tuple[Place, ...]
    steps: tuple[RangeStep, ...] = ()


def sql_reads(relations: Relations) -> dict[Place, SqlRead]:
    """Return the reads of databases by their place."""
    return {
        (side, number): read
        for side, relation in enumerate(relations)
        for number, read in enumerate(relation.reads if relation is not None else ())
        if isinstance(read, SqlRead)
    }  # fmt: skip


def session_needs(relations: Relations) -> dict[str, tuple[int, str]]:
    """Return the endpoints that are read: how many sessions are useful, and a cheap read of a table."""
    found: dict[str, tuple[int, str]] = {}
    for read in sql_reads(relations).values():
        count, probe = found.get(read.endpoint, (0, ""))
        count += 1 if read.cut is None or read.grouped else 1 + max(read.rows, 0) // PIECE_ROWS
        found[read.endpoint] = count, probe or ("" if read.table.startswith("(") else recon.probe_sql(read.table))
    # A query is no cheap probe. Users may not read the one of the server, so that a single session must do.
    return {name: (count, probe) if probe else (1, TIDB_PROBE) for name, (count, probe) in found.items()}


def populations(sessions: ReadSessions, relations: Relations) -> list[tuple[int, int] | None]:
    """Return (rows, keys) that each side looked at, where not all of them come back; else None."""
    reads = [(place[0], read) for place, read in sql_reads(relations).items() if read.population]

    def count(read: SqlRead) -> tuple[int, int]:
        with sessions.borrow(read.endpoint) as session:
            rows, keys = session.query(read.population)[0]
            session.refuse_altered()
        return int(rows or 0), int(keys or 0)

    found: list[tuple[int, int] | None] = [None, None]
    answers = sessions.run([partial(count, read) for _, read in reads])
    for (side, _), (rows, keys) in zip(reads, answers, strict=True):
        known = found[side] or (0, 0)
        found[side] = known[0] + rows, known[1] + keys
    return found


# --- the plan --------------------------------------------------------------------------------------------


def plan(sessions: ReadSessions, relations: Relations, keep: JoinFilter, slots: int) -> list[ReadPiece]:
    """Cut all reads of databases and change streams into pieces, for ``slots`` of them at a time."""
    reads = sql_reads(relations)
    together = share_ranges(relations, keep)
    cuts = [read.cut for read in reads.values() if read.cut is not None] if together else []
    span = (min(cut.lower for cut in cuts), max(cut.upper for cut in cuts)) if cuts else None

    def steps_of(read: SqlRead) -> list[RangeStep]:
        with sessions.borrow(read.endpoint) as session:
            return plan_steps(read, session, span)

    planned = dict(zip(reads, sessions.run([partial(steps_of, read) for read in reads.values()]), strict=True))
    pieces: list[tuple[tuple[Place, ...], tuple[RangeStep, ...]]] = []
    if together:
        nullable = any(cut.nullable for cut in cuts)
        dealt = deal(common_steps(list(planned.values()), nullable=nullable), slots * PIECES_A_SLOT)
        pieces += [(tuple(reads), tuple(steps)) for steps in dealt]
    else:
        sides: list[list[tuple[tuple[Place, ...], tuple[RangeStep, ...]]]] = [[], []]
        for place, steps in planned.items():
            sides[place[0]] += [((place,), tuple(some)) for some in deal(steps, slots * PIECES_A_SLOT)]
        # The sides in turn, so that all servers work from the start.
        pieces += [piece for pair in zip_longest(*sides) for piece in pair if piece is not None]
    for side, relation in enumerate(relations):
        for number, read in enumerate(relation.reads if relation is not None else ()):
            if isinstance(read, ChangeRead):
                pieces.append((((side, number),), ()))
    return [ReadPiece(number, *piece) for number, piece in enumerate(pieces)]


def share_ranges(relations: Relations, keep: JoinFilter) -> bool:
    """Whether a range of the cut columns holds all rows of a key, on both sides, and keys that agree are not kept."""
    source, target = relations
    if target is None or keep.all or not (source.rows and target.rows):
        return False
    places = set()
    for read in (*source.reads, *target.reads):
        if not isinstance(read, SqlRead) or read.cut is None or read.population:
            return False
        name = read.cut.name
        places.add(next((n for n, key in enumerate(read.lookup) if key.name == name and key.family == "integer"), None))
    return len(places) == 1 and None not in places


def plan_steps(read: SqlRead, session: Session, span: tuple[int, int] | None = None) -> list[RangeStep]:
    """Cut a read into steps of about ``STEP_ROWS`` rows that cover every row, also one written meanwhile.

    The cut column's span is counted by slices of equal width; a slice with many rows is counted again by slices of its
    own, so that one dense range among a wide span is cut as finely as the rest.
    """
    cut = read.cut
    if cut is None or read.grouped or (span is None and 0 <= read.rows <= STEP_ROWS):
        return [RangeStep(rows=read.rows if read.rows * read.row_bytes <= STEP_BYTES else -1)]
    most = min(STEP_ROWS, max(1, STEP_BYTES // max(read.row_bytes, 1)))
    steps: list[RangeStep] = []
    rows, lower = 0, None
    for least, counted in _slices(session, _packed_sql(read, 0), cut, *(span or (cut.lower, cut.upper)), most):
        if rows and rows + counted > most:
            steps.append(RangeStep(lower, least, rows))
            rows, lower = 0, least
        rows += counted
    steps.append(RangeStep(lower, None, rows))
    # One step alone has no condition, so it holds the NULLs.
    return [*steps, RangeStep(nulls=True)] if cut.nullable and len(steps) > 1 else steps


def _slices(
    session: Session, sql: packed.PackedSql, cut: Cut, lower: int, upper: int, most: int, depth: int = 0
) -> Iterator[tuple[int, int]]:
    """Yield (least value, rows) of slices with rows, in their order."""
    width = max(1, -(-(upper - lower + 1) // SLICES))
    condition = packed.span_condition(cut.name, lower, upper + 1)
    for _, rows, least, greatest in session.query(packed.slices_sql(sql, cut.name, lower, width, condition)):
        first, last, count = int(least or 0), int(greatest or 0), int(rows or 0)
        if count > most and last > first and width > 1 and depth < _DEPTH:
            yield from _slices(session, sql, cut, first, last, most, depth + 1)
        else:
            yield first, count


def common_steps(plans: Sequence[Sequence[RangeStep]], *, nullable: bool) -> list[RangeStep]:
    """Return steps that are parts of the steps of every plan; ``rows`` are the most that one read has in them."""
    bounds = sorted({step.upper for steps in plans for step in steps if step.upper is not None})
    steps = []
    for lower, upper in pairwise([None, *bounds, None]):
        around = [
            next(s for s in steps_ if s.upper is None or (upper is not None and upper <= s.upper)) for steps_ in
            ([s for s in listed if not s.nulls] for listed in plans)
        ]  # fmt: skip
        counts = [step.rows for step in around]
        steps.append(RangeStep(lower, upper, -1 if -1 in counts else max(counts)))
    return [*steps, RangeStep(nulls=True)] if nullable and len(steps) > 1 else steps


def deal(steps: Sequence[RangeStep], most: int) -> list[list[RangeStep]]:
    """Deal steps out, in their order, into about ``most`` pieces of like counts, up to ``PIECE_ROWS`` rows each."""
    total = sum(max(step.rows, 0) for step in steps)
    size = min(PIECE_ROWS, max(STEP_ROWS, -(-total // max(most, 1))))
    dealt: list[list[RangeStep]] = []
    rows = size
    for step in steps:
        if rows >= size:
            dealt.append([])
            rows = 0
        dealt[-1].append(step)
        rows += max(step.rows, 0)
    return dealt


def step_condition(read: SqlRead, step: RangeStep) -> str:
    """Return the condition that selects the rows of a step; empty for a read that is not cut."""
    if read.cut is None:
        return ""
    name = read.cut.name
    return packed.nulls_condition(name) if step.nulls else packed.span_condition(name, step.lower, step.upper)


# --- pieces ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PieceReader:
    """What reads the pieces of one join.

    ``on_rows`` is called with a side and how many of its rows were read. ``feeds`` as for ``change_records``.
    """

    relations: Relations
    sessions: ReadSessions
    endpoints: Mapping[str, Endpoint]
    secrets: Mapping[str, str]
    on_rows: Callable[[int, int], None] = lambda _side, _rows: None
    feeds: Mapping[str, Changefeed] = field(default_factory=dict)
    escaped: set[SqlRead] = field(default_factory=set)
    """Reads with a text that holds a control byte, as more of their texts will."""

    def relation(self, side: int) -> Relation:
        """Return the relation of a side that is read."""
        found = self.relations[side]
        if found is None:
            raise ValueError(f"there is no side {side}")
        return found

    def piece(self, piece: ReadPiece) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a piece, and notes (``migverify.recon.rows.note_batch``).

        Raises IncompleteReadError: a text is longer than the server's max_allowed_packet, or a change stream does not
        cover its window; ReadError: a statement failed.
        """
        if len(piece.places) > 1:
            yield from self._together(piece)
            return
        (place,) = piece.places
        read = self.relation(place[0]).reads[place[1]]
        if isinstance(read, ChangeRead):
            yield from self._changes(place, read)
        for step in piece.steps:
            yield from self._streamed(place, step)

    def _sql_read(self, place: Place) -> tuple[Relation, SqlRead]:
        relation = self.relation(place[0])
        read = relation.reads[place[1]]
        if not isinstance(read, SqlRead):
            raise TypeError(f"{place} is no read of a database")
        return relation, read

    def _streamed(self, place: Place, step: RangeStep) -> Iterator[pa.RecordBatch]:
        relation, read = self._sql_read(place)
        with self.sessions.borrow(read.endpoint) as session:
            for sections in read_step(session, read, relation.carried, step, self.escaped):
                self.sessions.refuse_canceled()
                self.on_rows(place[0], len(sections[0]))
                yield record_batch(*place, sections, counted=read.grouped)

    def _changes(self, place: Place, read: ChangeRead) -> Iterator[pa.RecordBatch]:
        relation, snapshots = self.relation(place[0]), list[ReadSnapshot]()
        records = change_records(
            relation, read, place[1], self.endpoints, self.secrets, self.sessions.stopped, snapshots.append,
            self.feeds,
        )  # fmt: skip
        for sections in sections_of(relation, records):
            yield record_batch(*place, sections, counted=not relation.rows)
        for snapshot in snapshots:
            yield note_batch(snapshot=snapshot)

    def _together(self, piece: ReadPiece) -> Iterator[pa.RecordBatch]:
        """Read each step from all places at once, the next one meanwhile; yield rows of keys that do not agree."""
        agreed = 0
        waiting: deque[tuple[RangeStep, list[Future[Sections | None]]]] = deque()
        with ExitStack() as stack:
            threads = ThreadPoolExecutor(min(len(piece.places), 8), thread_name_prefix="recon-range")
            stack.callback(threads.shutdown, wait=False, cancel_futures=True)
            steps = iter(piece.steps)
            while True:
                for step in steps:
                    waiting.append((step, [threads.submit(self._gathered, place, step) for place in piece.places]))
                    if len(waiting) > _AHEAD:
                        break
                if not waiting:
                    break
                step, futures = waiting.popleft()
                gathered = [future.result() for future in futures]
                parts = {place: part for place, part in zip(piece.places, gathered, strict=True) if part is not None}
                if len(parts) < len(piece.places):
                    for place in piece.places:
                        yield from self._streamed(place, step)
                    continue
                for place, part in parts.items():
                    self.on_rows(place[0], len(part[0]))
                left, count = differing(parts)
                agreed += count
                for place, part in left.items():
                    if part[0]:
                        yield record_batch(*place, part, counted=False)
        if agreed:
            yield note_batch(agreed=agreed, piece=piece.number)

    def _gathered(self, place: Place, step: RangeStep) -> Sections | None:
        """Return all rows of a step; None where they are too many for memory, so that they are joined whole."""
        if not 0 <= step.rows <= 2 * STEP_ROWS:
            return None
        relation, read = self._sql_read(place)
        found: Sections = [[], [], []]
        size = 0
        with self.sessions.borrow(read.endpoint) as session:
            for sections in read_step(session, read, relation.carried, step, self.escaped):
                size += sum(map(len, sections[1]))
                if size > GATHER_BYTES or len(found[0]) > 4 * STEP_ROWS:
                    size = GATHER_BYTES + 1
                    continue  # the rest of the answer has to be taken off the connection
                found = sections if not found[0] else [[*a, *b] for a, b in zip(found, sections, strict=True)]
        return None if size > GATHER_BYTES else found


def differing(parts: Mapping[Place, Sections]) -> tuple[dict[Place, Sections], int]:
    """Return the rows without those of keys that agree, and how many keys do; all rows where a key is repeated.

    All rows of a key must be among the parts.
    """
    sides: tuple[dict[bytes, bytes], dict[bytes, bytes]] = ({}, {})
    rows = [0, 0]
    for (side, _), (keys, values, _) in parts.items():
        sides[side].update(zip(keys, values, strict=True))
        rows[side] += len(keys)
    ours, theirs = sides
    if [len(ours), len(theirs)] != rows:
        return dict(parts), 0
    if ours == theirs:
        return {}, len(ours)
    differ = {key for key, value in ours.items() if theirs.get(key) != value} | (theirs.keys() - ours.keys())
    left = {}
    for place, sections in parts.items():
        rest = [number for number, key in enumerate(sections[0]) if key in differ]
        left[place] = [[section[number] for number in rest] for section in sections]
    return left, len(ours.keys() - differ)


# --- one step --------------------------------------------------------------------------------------------


def _packed_sql(read: SqlRead, carried: int) -> packed.PackedSql:
    compared = len(read.values) - carried
    sections: tuple[tuple[str, ...], ...] = (read.key, read.values[:compared], read.values[compared:])
    return packed.PackedSql(read.table, sections, read.where, read.lost)


def read_step(
    session: Session, read: SqlRead, carried: int, step: RangeStep, escaped: set[SqlRead]
) -> Iterator[Sections]:
    """Read a step, in batches of packed rows.

    ``carried``: How many of the last values are not compared; they come in the third section. For grouped reads that
    section is how many rows the group has, as one text. ``escaped``: Reads that do not come apart without escapes, here
    or before.

    Raises IncompleteReadError: a text is longer than the server's max_allowed_packet; ReadError: a statement failed.
    """
    condition = step_condition(read, step)
    if read.grouped:
        yield from _by_columns(session, read, carried, condition)
        return
    sql = _packed_sql(read, carried)
    if 0 <= step.rows <= 2 * STEP_ROWS and read not in escaped:
        answer = session.query_bytes(packed.packed_rows_sql(sql, condition))[0]
        _refuse_lost(read, answer[1])
        found = packed.split_rows(int(answer[0] or 0), answer[2], sql)
        if found is not None:
            session.refuse_altered()
            if found[0]:
                yield found
            return
        escaped.add(read)
    yield from _stream(session, read, carried, condition)


def _stream(session: Session, read: SqlRead, carried: int, condition: str) -> Iterator[Sections]:
    sql = _packed_sql(read, carried)
    batch: Sections = [[], [], []]
    keys, values, others = batch
    too_long, size = False, 0
    for key, value, other, lost in session.stream(packed.packed_stream_sql(sql, condition)):
        _refuse_lost(read, lost)
        # Where the texts of a section do not fit one packet together, the section is NULL.
        if key is None or value is None or other is None:
            too_long = True
            continue
        keys.append(key)
        values.append(value)
        others.append(other)
        size += len(value) + len(other)
        if len(keys) >= STREAM_ROWS or size > STREAM_BYTES:
            yield batch
            batch, size = [[], [], []], 0
            keys, values, others = batch
    session.refuse_altered(*([TOO_LONG] if too_long else []))
    if keys:
        yield batch
    if too_long:
        yield from _by_columns(session, read, carried, recon.both(condition, packed.too_long_condition(sql)))


def _by_columns(session: Session, read: SqlRead, carried: int, condition: str) -> Iterator[Sections]:
    """Read groups, or rows whose texts do not fit one packet together: a text a column."""
    batch: Sections = [[], [], []]
    compared = len(read.values) - carried
    size = 0
    for row in session.stream(recon.read_sql(read, condition)):
        key, values, count = recon.split_row(read, row)
        if not count:  # an aggregate over no rows is one row all the same
            continue
        texts = (values, (str(count).encode(),)) if read.grouped else (values[:compared], values[compared:])
        for section, fields in zip(batch, (key, *texts), strict=True):
            section.append(packed.pack(fields))
            size += len(section[-1])
        if len(batch[0]) >= STREAM_ROWS or size > STREAM_BYTES:
            yield batch
            batch, size = [[], [], []], 0
    session.refuse_altered()
    if batch[0]:
        yield batch


def _refuse_lost(read: SqlRead, lost: bytes | None) -> None:
    if lost not in (b"0", None):
        raise IncompleteReadError(
            f"{read.endpoint}: a text of {read.table} is longer than max_allowed_packet, so it cannot be compared",
            hint="Raise max_allowed_packet on this server, or leave the column out of the rule.",
        )

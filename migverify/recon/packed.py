"""Reads a relation's rows packed (``migverify.sql.packed``): cut into spans by counted rows, then range by range.

Without pyarrow or pyspark: what a worker of any engine does with one piece of a read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from migverify.db.session import Session
from migverify.errors import IncompleteReadError
from migverify.recon.relation import Cut, SqlRead
from migverify.sql import packed, recon
from migverify.sql.checksum import checksum_sum

SLICES = 512
STEP_ROWS = 20_000
PIECE_ROWS = 250_000
WHOLE_ROWS = 20_000
"""A read of at most this many rows, by the server's estimate, is not cut."""
STREAM_ROWS = 10_000
STREAM_BYTES = 16 << 20
_DEPTH = 16

Sections = list[list[bytes]]
"""Packed keys, packed values, packed texts beside them; one entry a row in each."""


@dataclass(frozen=True, slots=True)
class Step:
    """A range of the cut column: lower inclusive, upper exclusive, None open. ``rows`` as counted when it was planned.

    ``nulls`` selects instead the rows in which the column is NULL.
    """

    lower: int | None = None
    upper: int | None = None
    rows: int = -1
    nulls: bool = False


@dataclass(frozen=True, slots=True)
class _Slice:
    lower: int
    upper: int  # both inclusive: the values that are there
    rows: int


def even_steps(read: SqlRead, parts: int, rows: int = -1) -> list[Step]:
    """Cut a read into ranges of equal width, without counting; ``rows`` is how many a step may give back."""
    cut = read.cut
    if cut is None:
        return [Step(rows=rows)]
    span = cut.upper - cut.lower + 1
    parts = max(1, min(parts, span))
    bounds = [None, *(cut.lower + span * part // parts for part in range(1, parts)), None]
    steps = [Step(lower, upper, rows) for lower, upper in pairwise(bounds)]
    return _with_nulls(steps, cut, rows)


def _with_nulls(steps: list[Step], cut: Cut, rows: int) -> list[Step]:
    # One step alone has no condition, so it holds the NULLs.
    return [*steps, Step(rows=rows, nulls=True)] if cut.nullable and len(steps) > 1 else steps


def step_condition(read: SqlRead, step: Step) -> str:
    """Return the condition that selects the rows of a step; empty for a read that is not cut."""
    if read.cut is None:
        return ""
    name = read.cut.name
    return packed.nulls_condition(name) if step.nulls else packed.span_condition(name, step.lower, step.upper)


def sum_buckets(session: Session, read: SqlRead, buckets: int, carried: int, step: Step) -> list[list[bytes]] | None:
    """Return number, rows and sum of row checksums of each bucket; None where the answer was cut or a key has none."""
    total = checksum_sum(recon.row_frame(read, carried), recon.HASH)
    where = recon.both(read.where, step_condition(read, step))
    answer = session.query_bytes(packed.packed_sums_sql(read.table, where, recon.bucket(read, buckets), total))[0]
    return packed.split_sums(int(answer[0] or 0), answer[1])


def plan_steps(read: SqlRead, session: Session, where: str = "") -> list[Step]:
    """Cut a read into steps of about ``STEP_ROWS`` rows that cover every row, also one written meanwhile.

    The cut column's span is counted by slices of equal width; a slice with many rows is counted again by slices of its
    own, so that one dense range among a wide span is cut as finely as the rest. ``where`` is a further condition.
    """
    cut = read.cut
    if cut is None or 0 <= read.rows <= WHOLE_ROWS:
        return [Step(rows=read.rows)]
    sql = _packed_sql(read, 0, where)
    slices = _count(session, sql, cut, cut.lower, cut.upper, 0)
    steps: list[Step] = []
    rows, lower = 0, None
    for one in slices:
        if rows and rows + one.rows > STEP_ROWS:
            steps.append(Step(lower, one.lower, rows))
            rows, lower = 0, one.lower
        rows += one.rows
    steps.append(Step(lower, None, rows))
    return _with_nulls(steps, cut, -1)


def pieces(steps: Sequence[Step], most: int) -> list[list[Step]]:
    """Deal steps out, in their order, into about ``most`` pieces of like counts, up to ``PIECE_ROWS`` rows each."""
    total = sum(max(step.rows, 0) for step in steps)
    size = min(PIECE_ROWS, max(STEP_ROWS, -(-total // max(most, 1))))
    dealt: list[list[Step]] = []
    rows = size
    for step in steps:
        if rows >= size:
            dealt.append([])
            rows = 0
        dealt[-1].append(step)
        rows += max(step.rows, 0)
    return dealt


def _count(session: Session, sql: packed.PackedSql, cut: Cut, lower: int, upper: int, depth: int) -> list[_Slice]:
    width = max(1, -(-(upper - lower + 1) // SLICES))
    condition = packed.span_condition(cut.name, lower, upper + 1)
    found: list[_Slice] = []
    for _, rows, least, greatest in session.query(packed.slices_sql(sql, cut.name, lower, width, condition)):
        one = _Slice(int(least or 0), int(greatest or 0), int(rows or 0))
        if one.rows > STEP_ROWS and one.upper > one.lower and width > 1 and depth < _DEPTH:
            found += _count(session, sql, cut, one.lower, one.upper, depth + 1)
        else:
            found.append(one)
    return found


def _packed_sql(read: SqlRead, carried: int, where: str) -> packed.PackedSql:
    compared = len(read.values) - carried
    sections: tuple[tuple[str, ...], ...] = (read.key, read.values[:compared], read.values[compared:])
    return packed.PackedSql(read.table, sections, recon.both(read.where, where), read.lost)


def read_steps(
    session: Session, read: SqlRead, carried: int, steps: Sequence[Step], where: str = ""
) -> Iterator[Sections]:
    """Read some steps, in batches of packed rows.

    Parameters
    ----------
    carried
        How many of the last values are not compared; they come in the third section. For grouped reads that section is
        how many rows the group has, as one text.
    where
        Further condition, such as that of buckets.

    Raises
    ------
    IncompleteReadError
        a text is longer than the server's max_allowed_packet.
    ReadError
        a statement failed.
    """
    if read.grouped:
        for step in steps:
            yield from _by_columns(session, read, carried, recon.both(step_condition(read, step), where))
        return
    sql = _packed_sql(read, carried, where)
    plain = True  # once a text held a control byte, more of this read will
    for step in steps:
        condition = step_condition(read, step)
        if plain and 0 <= step.rows <= 2 * STEP_ROWS:
            answer = session.query_bytes(packed.packed_rows_sql(sql, condition))[0]
            _refuse_lost(read, answer[1])
            found = packed.split_rows(int(answer[0] or 0), answer[2], sql)
            if found is not None:
                if found[0]:
                    yield found
                continue
            plain = False
        yield from _stream(session, read, carried, where, condition)


def _stream(session: Session, read: SqlRead, carried: int, where: str, condition: str) -> Iterator[Sections]:
    sql = _packed_sql(read, carried, where)
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
    if keys:
        yield batch
    if too_long:
        yield from _by_columns(session, read, carried, recon.both(where, condition, packed.too_long_condition(sql)))


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
    if batch[0]:
        yield batch


def _refuse_lost(read: SqlRead, lost: bytes | None) -> None:
    if lost not in (b"0", None):
        raise _too_long(read)


def _too_long(read: SqlRead) -> IncompleteReadError:
    return IncompleteReadError(
        f"{read.endpoint}: a text of {read.table} is longer than max_allowed_packet, so it cannot be compared",
        hint="Raise max_allowed_packet on this server, or leave the column out of the rule.",
    )

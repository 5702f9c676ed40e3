"""What one join reads: moments of endpoints, pieces of reads, and the buckets that need reading at all."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import zip_longest

from migverify.db.session import Session, open_session
from migverify.db.snapshot import (
    BEGIN,
    LOOK_AGAIN_SECONDS,
    NOW,
    Anchor,
    begin_moment,
    binlog_place,
    check_snapshot,
    transaction_start,
)
from migverify.errors import ReadError
from migverify.model import ChunkChecksum, Endpoint, Flavor, Side
from migverify.recon import pushdown
from migverify.recon.packed import Step, even_steps, pieces, plan_steps, sum_buckets
from migverify.recon.relation import ChangeRead, Relation, SqlRead
from migverify.spark.recon_source import Piece, Pieces, PlannedRead
from migverify.sql import recon as sql
from migverify.sql.checksum import LOST_ROW

GROUPED_ROWS = 500_000
"""A grouped read above this estimate is cut: its groups then come in parts."""
PIECES_A_SLOT = 3
_MILLISECOND = 18  # bits of a TSO below its milliseconds
_CLOCK_SECONDS = 0.005
_CLOCK_LOOKS = 200
SMALL_ROWS = 50_000
"""A read of so few rows is not cut."""

Relations = tuple[Relation, Relation | None]


@dataclass(frozen=True, slots=True)
class Moment:
    """One endpoint, while a join reads it.

    ``begin`` are the statements that open its moment in another session, ``probe`` the cheap read that proves a
    ``tidb_snapshot`` there.
    """

    session: Session
    begin: tuple[str, ...]
    flavor: Flavor
    position: str
    at: float
    probe: str = ""

    @contextmanager
    def another(self, secrets: Mapping[str, str]) -> Iterator[Session]:
        """Open another session at this moment, or at one near it."""
        endpoint = self.session.endpoint
        with open_session(endpoint, secrets.get(endpoint.name), side=Side.SOURCE) as session:
            begin_moment(session, self.begin, self.probe)
            yield session

    def anchor(self) -> Anchor:
        """Return the moment, when everything was read."""
        name = self.session.endpoint.name
        if self.flavor is Flavor.TIDB:
            how = "as of timestamp" if self.begin else "tidb_snapshot"
            return Anchor(name, "tidb", how, self.position, self.position, exact=True, at=self.at)
        # A transaction may be visible a moment before the server counts it: it would be counted by now.
        time.sleep(LOOK_AGAIN_SECONDS)
        until = binlog_place(self.session)
        exact = bool(until) and until == self.position
        return Anchor(name, self.flavor.value, "consistent snapshots", self.position, until, exact=exact, at=self.at)


@contextmanager
def open_moment(endpoint: Endpoint, password: str | None, probe: str) -> Iterator[Moment]:
    """Open an endpoint's moment and hold it: on TiDB a timestamp, elsewhere the place from which snapshots are taken.

    Raises
    ------
    EndpointError
        the server cannot be reached, or refuses the snapshot that is configured.
    """
    fixed = endpoint.snapshot if endpoint.snapshot != NOW else None
    with open_session(replace(endpoint, snapshot=fixed), password, side=Side.SOURCE) as session:
        at = time.time()
        if session.flavor is not Flavor.TIDB:
            yield Moment(session, (BEGIN,), session.flavor, binlog_place(session), at)
        elif fixed is not None:
            check_snapshot(session, probe)
            yield Moment(session, (), Flavor.TIDB, fixed, at, probe)
        else:
            # Held open: garbage collection does not pass the start of an open transaction.
            # AS OF TIMESTAMP takes whole milliseconds: the first one after the start of the transaction.
            stamp = ((int(transaction_start(session)) >> _MILLISECOND) + 1) << _MILLISECOND
            begin = f"START TRANSACTION READ ONLY AS OF TIMESTAMP TIDB_PARSE_TSO({stamp})"
            with open_session(replace(endpoint, snapshot=None), password, side=Side.SOURCE) as reader:
                _begin_at(reader, begin)
                yield Moment(reader, (begin,), Flavor.TIDB, str(stamp), at)


def _begin_at(session: Session, begin: str) -> None:
    """Begin a read as of a timestamp that may lie some milliseconds ahead of the cluster's clock."""
    for attempt in range(_CLOCK_LOOKS):
        time.sleep(_CLOCK_SECONDS)
        try:
            session.execute(begin)
        except ReadError:
            if attempt == _CLOCK_LOOKS - 1:
                raise
        else:
            return


def endpoints_of(relations: Relations) -> dict[str, str]:
    """Return the endpoints that are read, each with a cheap read of one of its tables (empty: none is known)."""
    found: dict[str, str] = {}
    for relation in relations:
        for read in pushdown.sql_reads(relation):
            probe = "" if read.table.startswith("(") else sql.probe_sql(read.table)
            found[read.endpoint] = found.get(read.endpoint) or probe
    return found


@dataclass(frozen=True, slots=True)
class Needed:
    """What bucket sums have shown: rows of equal buckets, each a key of its own, and which buckets to read.

    ``rows`` are how many rows the other buckets have on each side.
    """

    equal: int
    buckets: int
    unlike: tuple[int, ...]
    rows: tuple[int, int]

    def conditions(self, read: SqlRead) -> list[str]:
        """Return the conditions that select the rows of the buckets to read."""
        step = pushdown.LISTED
        return [
            sql.in_buckets(read, self.buckets, self.unlike[start : start + step])
            for start in range(0, len(self.unlike), step)
        ]


def compare_buckets(
    relations: tuple[Relation, Relation], moments: Mapping[str, Moment], secrets: Mapping[str, str], slots: int
) -> Needed | None:
    """Let the databases sum both sides by bucket; None where all rows must be read.

    The statements run on threads of this process: what comes back is a few megabytes, and a task would only wait.
    """
    buckets = pushdown.bucket_count(*relations)
    jobs: dict[str, list[tuple[int, SqlRead, int, Step]]] = {}
    for side, relation in enumerate(relations):
        for read in pushdown.sql_reads(relation):
            parts = 1 if 0 <= read.rows <= SMALL_ROWS else slots
            steps = even_steps(read, parts)
            jobs.setdefault(read.endpoint, []).extend((side, read, relation.carried, step) for step in steps)

    def run(job: tuple[int, SqlRead, int, Step]) -> tuple[int, list[list[bytes]] | None]:
        side, read, carried, step = job
        with moments[read.endpoint].another(secrets) as session:
            return side, sum_buckets(session, read, buckets, carried, step)

    with ExitStack() as stack:
        futures = []
        for listed in jobs.values():
            threads = stack.enter_context(ThreadPoolExecutor(min(slots, len(listed))))
            futures += [threads.submit(run, job) for job in listed]
        answers = [future.result() for future in futures]
    return _needed(relations, moments, buckets, answers)


def _needed(
    relations: tuple[Relation, Relation], moments: Mapping[str, Moment], buckets: int,
    answers: Sequence[tuple[int, list[list[bytes]] | None]],
) -> Needed | None:  # fmt: skip
    sums: tuple[dict[int, ChunkChecksum], dict[int, ChunkChecksum]] = ({}, {})
    for side, answer in answers:
        if answer is None:
            return None
        found = sums[side]
        for entry in answer:
            number, rows, total = map(int, entry)
            if total >= LOST_ROW:
                return None
            known = found.get(number)
            found[number] = ChunkChecksum(rows, rows, total) + known if known else ChunkChecksum(rows, rows, total)
    unlike = {b for b in sums[0].keys() | sums[1].keys() if sums[0].get(b) != sums[1].get(b)}
    unlike |= _repeated(relations, moments, buckets)
    if 2 * len(unlike) > len(sums[0].keys() | sums[1].keys()):
        return None  # a list of most buckets would only slow the scan
    left = [sum(found[b].rows for b in unlike if b in found) for found in sums]
    equal = sum(found.rows for b, found in sums[0].items() if b not in unlike)
    return Needed(equal, buckets, tuple(sorted(unlike)), (left[0], left[1]))


def _repeated(relations: tuple[Relation, Relation], moments: Mapping[str, Moment], buckets: int) -> set[int]:
    """Buckets in which a key stands twice; rows of equal buckets are the same, so one side tells for both."""
    if any(pushdown.once(relation) for relation in relations):
        return set()
    read = next(pushdown.sql_reads(relation)[0] for relation in relations if len(relation.reads) == 1)
    rows = moments[read.endpoint].session.query(sql.repeated_buckets_sql(read, buckets))
    return {int(row[0] or 0) for row in rows}


def row_pieces(relations: Relations, moments: Mapping[str, Moment], slots: int, wanted: Needed | None) -> Pieces:
    """Return the pieces that read rows, the sides in turn, so that all servers work from the start."""
    reads: list[PlannedRead] = []
    sides: list[list[Piece]] = []
    steps = _steps(relations, moments, slots) if wanted is None else {}
    for side, relation in enumerate(relations):
        listed: list[Piece] = []
        if relation is None:
            continue
        for number, read in enumerate(relation.reads):
            if isinstance(read, ChangeRead):
                listed.append(Piece(side, number, len(reads), ()))
                reads.append(PlannedRead(read, 0, "", (), replace(relation, reads=(read,))))
            if not isinstance(read, SqlRead):
                continue
            begin, probe = moments[read.endpoint].begin, moments[read.endpoint].probe
            if wanted is None:
                dealt = pieces(steps[side, number], slots * PIECES_A_SLOT)
                listed += [Piece(side, number, len(reads), tuple(part)) for part in dealt]
                reads.append(PlannedRead(read, relation.carried, "", begin, probe=probe))
                continue
            for condition in wanted.conditions(read):
                parts = even_steps(read, slots if wanted.rows[side] > SMALL_ROWS else 1, wanted.rows[side])
                listed += [Piece(side, number, len(reads), (step,)) for step in parts]
                reads.append(PlannedRead(read, relation.carried, condition, begin, probe=probe))
        sides.append(listed)
    return Pieces(tuple(reads), tuple(_in_turn(sides)))


def _steps(relations: Relations, moments: Mapping[str, Moment], slots: int) -> dict[tuple[int, int], list[Step]]:
    """Plan the steps of all reads, the endpoints at the same time."""
    by_endpoint: dict[str, list[tuple[int, int, SqlRead]]] = {}
    for side, relation in enumerate(relations):
        for number, read in enumerate(relation.reads if relation is not None else ()):
            if isinstance(read, SqlRead):
                by_endpoint.setdefault(read.endpoint, []).append((side, number, read))

    def plan(endpoint: str) -> dict[tuple[int, int], list[Step]]:
        session = moments[endpoint].session
        return {(side, number): _plan(session, read, slots) for side, number, read in by_endpoint[endpoint]}

    with ThreadPoolExecutor(max(1, len(by_endpoint))) as threads:
        return {place: steps for found in threads.map(plan, by_endpoint) for place, steps in found.items()}


def _plan(session: Session, read: SqlRead, slots: int) -> list[Step]:
    if read.grouped:
        return even_steps(read, slots if read.rows > GROUPED_ROWS else 1)
    return plan_steps(read, session)


def _in_turn(sides: Sequence[Sequence[Piece]]) -> Iterator[Piece]:
    for pair in zip_longest(*sides):
        yield from (piece for piece in pair if piece is not None)

"""One join of the local engine: what is read, in which order, and how it adds up."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from migverify.db.session import Session
from migverify.db.snapshot import Anchor
from migverify.recon import pushdown
from migverify.recon.change_rows import change_records
from migverify.recon.join import (
    PartCombiner,
    comes_in_parts,
    pairing,
    record_batch,
    sections_of,
    statement,
)
from migverify.recon.packed import Step, even_steps, pieces, plan_steps, read_steps, step_condition
from migverify.recon.readers import Job, ReadPool
from migverify.recon.records import Bytes
from migverify.recon.relation import ChangeRead, JoinFilter, Pairing, Relation, SqlRead, Texts, Totals
from migverify.recon.row_store import RowStore
from migverify.sql import recon as sql
from migverify.sql.recon_join import TOTALS

if TYPE_CHECKING:
    from migverify.recon.local import LocalEngine

RANGE_ROWS = 250_000
"""Rows of one statement, about: a session that gets less to do than this is not worth opening."""
STREAMED_ROW_BYTES = 400
"""Rows wider than this are not packed many into one text, so that a session's answer stays small."""


def ranges(read: SqlRead) -> list[str]:
    """Return the conditions that cut a read into statements of bearable size; one empty condition for none."""
    if read.cut is None or read.rows <= RANGE_ROWS or read.grouped:
        return [""]
    return [step_condition(read, step) for step in even_steps(read, read.rows // RANGE_ROWS + 1)]


def _planned(read: SqlRead, equal: _Equal | None, session: Session) -> list[tuple[str, Sequence[Step]]]:
    """Return what reads one relation's rows: conditions, each with the key ranges of one job."""
    if equal is None or equal.most_differ:
        if read.grouped:
            return [("", [Step()])]
        steps = plan_steps(read, session)
        if read.row_bytes > STREAMED_ROW_BYTES:
            steps = [replace(step, rows=-1) for step in steps]
        return [("", dealt) for dealt in pieces(steps, read.rows // RANGE_ROWS + 1)]
    return [(condition, even_steps(read, 1)) for condition in equal.conditions(read)]


def _rows(text: str, session: Session) -> list[Bytes]:
    return session.query_bytes(text)


def _first_row(text: str, session: Session) -> Texts:
    return session.query(text)[0]


class LocalJoin:
    """A join under way; see ``migverify.recon.relation.Joined``."""

    def __init__(self, engine: LocalEngine, source: Relation, target: Relation | None, keep: JoinFilter) -> None:
        self._engine, self._source, self._target, self._keep = engine, source, target, keep
        self._totals: Totals | None = None
        self._anchors: tuple[Anchor, ...] = ()

    def __iter__(self) -> Iterator[Sequence[Pairing]]:
        """Read both sides, then yield batches of pairings.

        Raises
        ------
        ReadError
            a read failed after its retries; nothing was yielded before. Or the disk is full.
        """
        folder = Path(tempfile.mkdtemp(prefix="migverify-recon-", dir=self._engine.folder))
        relations = (self._source, self._target)
        sums = dict.fromkeys(TOTALS, 0)
        try:
            with self._engine.storing(folder) as store:
                equal = self._engine.again(lambda: self._read(store))
                for page in store.join(partial(statement, relations, self._keep)):
                    for name in TOTALS:
                        sums[name] += sum(row[name] for row in page)
                    yield [pairing(row, relations) for row in page if row["k"] is not None]
                store.check_joined(sums["rows0"] + sums["rows1"])
            self._totals = self._total(sums, equal)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def totals(self) -> Totals:
        """Totals; RuntimeError before the pairings were read to their end."""
        if self._totals is None:
            raise RuntimeError("totals are known after the last pairing")
        return self._totals

    @property
    def anchors(self) -> tuple[Anchor, ...]:
        """The moments that were read, after the end."""
        return self._anchors

    # --- reading -----------------------------------------------------------------------------------------

    def _read(self, store: RowStore) -> _Equal:
        store.clear()
        relations = [self._source] if self._target is None else [self._source, self._target]
        push_down = self._target is not None and pushdown.chosen(
            self._source, self._target, self._keep, self._engine.push_down
        )

        def work(made: ReadPool) -> _Equal:
            equal = self._compare_buckets(made) if push_down else None
            made.run(self._row_jobs(made, relations, equal, store))
            populations = self._populations(made, relations)
            self._anchors = made.anchors
            return equal or _Equal(populations=populations)

        found = self._engine.crew_for(relations, work)
        for side, relation in enumerate(relations):
            for number, read in enumerate(relation.reads):
                if isinstance(read, ChangeRead):
                    self._store_changes(relation, read, (side, number), store)
        store.combine(PartCombiner.of((self._source, self._target)))
        return found

    def _row_jobs(
        self, made: ReadPool, relations: Sequence[Relation], equal: _Equal | None, store: RowStore
    ) -> list[Job]:
        """Return the jobs that read rows, after the key ranges of large reads are known."""
        reads = [
            (side, number, read)
            for side, relation in enumerate(relations)
            for number, read in enumerate(relation.reads)
            if isinstance(read, SqlRead)
        ]
        planned = made.run([Job(read.endpoint, partial(_planned, read, equal)) for _, _, read in reads])
        jobs = []
        for (side, number, read), dealt in zip(reads, planned, strict=True):
            place = (side, number)
            jobs += [
                Job(read.endpoint, partial(self._store_rows, made, relations[side], read, place, store, where, steps))
                for where, steps in dealt
            ]
        return jobs

    def _store_rows(
        self, made: ReadPool, relation: Relation, read: SqlRead, place: tuple[int, int], store: RowStore, where: str,
        steps: Sequence[Step], session: Session,
    ) -> None:  # fmt: skip
        writer = store.writer(parts=comes_in_parts(relation))
        for sections in read_steps(session, read, relation.carried, steps, where):
            writer.add(record_batch(*place, sections, counted=read.grouped))
            made.refuse_canceled()
            self._engine.told(relation.dataset, len(sections[0]))
        writer.flush()

    def _store_changes(self, relation: Relation, read: ChangeRead, place: tuple[int, int], store: RowStore) -> None:
        engine = self._engine
        writer = store.writer(parts=comes_in_parts(relation))
        anchors: list[Anchor] = []
        records = change_records(
            relation, read, place[1], engine.endpoints, engine.secrets, engine.canceled, anchors.append
        )
        for sections in sections_of(relation, records):
            writer.add(record_batch(*place, sections, counted=not relation.rows))
        writer.flush()
        self._anchors = (*self._anchors, *anchors)

    def _populations(self, made: ReadPool, relations: Sequence[Relation]) -> list[tuple[int, int] | None]:
        """(rows, keys) that were looked at on each side, where not all of them came back."""
        jobs, sides = [], []
        for number, relation in enumerate(relations):
            for read in pushdown.sql_reads(relation):
                if read.population:
                    jobs.append(Job(read.endpoint, partial(_first_row, read.population)))
                    sides.append(number)
        found: list[tuple[int, int] | None] = [None, None]
        for side, (rows, keys) in zip(sides, made.run(jobs), strict=True):
            known = found[side] or (0, 0)
            found[side] = known[0] + int(rows or 0), known[1] + int(keys or 0)
        return found

    # --- buckets -----------------------------------------------------------------------------------------

    def _compare_buckets(self, made: ReadPool) -> _Equal | None:
        """Sum both sides by bucket; None where sums cannot tell, so that all rows must be read."""
        if self._target is None:
            return None
        relations = (self._source, self._target)
        buckets = pushdown.bucket_count(*relations)
        jobs, sides = [], []
        for number, relation in enumerate(relations):
            for read in pushdown.sql_reads(relation):
                for condition in ranges(read):
                    text = sql.bucket_sums_sql(read, buckets, relation.carried, condition)
                    jobs.append(Job(read.endpoint, partial(_rows, text)))
                    sides.append(number)
        sums = (pushdown.BucketSums.none(), pushdown.BucketSums.none())
        for side, rows in zip(sides, made.run(jobs), strict=True):
            sums[side].add(rows)
        if sums[0].lost or sums[1].lost:
            return None
        for relation, found in zip(relations, sums, strict=True):
            self._engine.told(relation.dataset, found.rows)
        unlike = pushdown.unlike_buckets(*sums) | self._repeated(made, buckets)
        rows = sum(found.rows for bucket, found in sums[0].sums.items() if bucket not in unlike)
        return _Equal(rows, buckets, sorted(unlike), len(sums[0].sums.keys() | sums[1].sums.keys()))

    def _repeated(self, made: ReadPool, buckets: int) -> set[int]:
        """Buckets in which a key stands twice; rows of equal buckets are the same, so one side tells for both."""
        relations = [self._source] if self._target is None else [self._source, self._target]
        if any(pushdown.once(relation) for relation in relations):
            return set()
        read = next(pushdown.sql_reads(r)[0] for r in relations if len(r.reads) == 1)
        text = sql.repeated_buckets_sql(read, buckets)
        rows = made.run([Job(read.endpoint, lambda session: session.query(text))])[0]
        return {int(row[0]) for row in rows}

    def _total(self, sums: Mapping[str, int], equal: _Equal) -> Totals:
        source = equal.populations[0] or (sums["rows0"] + equal.rows, sums["keys0"] + equal.rows)
        target = equal.populations[1] or (sums["rows1"] + equal.rows, sums["keys1"] + equal.rows)
        # Keys that were looked at and did not come back agreed.
        unseen = (source[1] - sums["keys0"]) if equal.populations[0] and self._target is None else 0
        return Totals(
            source[0], target[0], source[1], target[1], sums["matched"] + equal.rows + unseen, equal.buckets > 0
        )


class _Equal:
    """What bucket sums have shown: rows of equal buckets, each a key of its own, and which buckets to read."""

    def __init__(
        self, rows: int = 0, buckets: int = 0, unlike: Sequence[int] = (), filled: int = 0,
        populations: Sequence[tuple[int, int] | None] = (None, None),
    ) -> None:  # fmt: skip
        self.rows, self.buckets, self.populations = rows, buckets, populations
        self._unlike = unlike
        # Most buckets differ: a list of them would only slow the scan, and all rows are read.
        self.most_differ = 2 * len(unlike) > filled
        if self.most_differ:
            self.rows = 0

    def conditions(self, read: SqlRead) -> list[str]:
        """Return the conditions that select the rows of unlike buckets; none where all buckets are equal."""
        step = pushdown.LISTED
        return [
            sql.in_buckets(read, self.buckets, self._unlike[start : start + step])
            for start in range(0, len(self._unlike), step)
        ]

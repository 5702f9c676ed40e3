"""One join of the local engine: what is read, in which order, and how it adds up."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from migverify.db.session import Session
from migverify.db.snapshot import Anchor
from migverify.errors import CanceledError
from migverify.recon import pushdown, spill
from migverify.recon.change_rows import change_records
from migverify.recon.packed import even_steps, step_condition
from migverify.recon.readers import Crew, Job
from migverify.recon.relation import ChangeRead, Keep, Pairing, Relation, SqlRead, Texts, Totals
from migverify.sql import recon as sql

if TYPE_CHECKING:
    from migverify.recon.local import LocalEngine

RANGE_ROWS = 250_000
"""Rows of one statement, about: a session that gets less to do than this is not worth opening."""
ROWS_BETWEEN_LOOKS = 2000


def ranges(read: SqlRead) -> list[str]:
    """Return the conditions that cut a read into statements of bearable size; one empty condition for none."""
    if read.cut is None or read.rows <= RANGE_ROWS or read.grouped:
        return [""]
    return [step_condition(read, step) for step in even_steps(read, read.rows // RANGE_ROWS + 1)]


def _rows(text: str, session: Session) -> list[spill.Bytes]:
    return session.query_bytes(text)


def _first_row(text: str, session: Session) -> Texts:
    return session.query(text)[0]


class LocalJoin:
    """A join under way; see ``migverify.recon.relation.Joined``."""

    def __init__(self, engine: LocalEngine, source: Relation, target: Relation | None, keep: Keep) -> None:
        self._engine, self._source, self._target, self._keep = engine, source, target, keep
        self._totals: Totals | None = None
        self._anchors: tuple[Anchor, ...] = ()

    def __iter__(self) -> Iterator[Sequence[Pairing]]:
        """Read both sides, then yield batches of pairings.

        Raises
        ------
        ReadError
            a read failed after its retries; nothing was yielded before.
        """
        folder = Path(tempfile.mkdtemp(prefix="migverify-recon-", dir=self._engine.folder))
        try:
            spills, equal = self._engine.again(lambda: self._read(folder))
            counts = spill.Counts()
            for batch in spill.join(self._source, self._target, self._keep, spills, counts):
                if self._engine.canceled.is_set():
                    raise CanceledError("the run was told to stop")
                yield batch
            self._totals = self._total(counts, equal)
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

    def _read(self, folder: Path) -> tuple[tuple[spill.Spill, spill.Spill | None], _Equal]:
        relations = [self._source] if self._target is None else [self._source, self._target]
        for old in folder.iterdir():
            shutil.rmtree(old)
        spills = [spill.Spill(folder / f"side{number}") for number in range(len(relations))]

        def work(made: Crew) -> _Equal:
            equal = (
                self._compare_buckets(made) if pushdown.can_push_down(self._source, self._target, self._keep) else None
            )
            conditions = [[""] if equal is None else equal.conditions(read) for relation in relations
                          for read in pushdown.sql_reads(relation)]  # fmt: skip
            jobs, place = [], 0
            for number, relation in enumerate(relations):
                for which, read in enumerate(relation.reads):
                    if isinstance(read, SqlRead):
                        jobs += self._spool_jobs(made, relation, read, which, spills[number], conditions[place])
                        place += 1
            made.run(jobs)
            populations = self._populations(made, relations)
            self._anchors = made.anchors
            return equal or _Equal(populations=populations)

        found = self._engine.crew_for(relations, work)
        for number, relation in enumerate(relations):
            for which, read in enumerate(relation.reads):
                if isinstance(read, ChangeRead):
                    self._spool_changes(relation, read, which, spills[number])
        return (spills[0], spills[1] if len(spills) > 1 else None), found

    def _spool_jobs(
        self, made: Crew, relation: Relation, read: SqlRead, which: int, into: spill.Spill, conditions: Sequence[str]
    ) -> list[Job]:  # fmt: skip
        jobs = []
        for number, condition in enumerate(sql.both(a, b) for a in conditions for b in ranges(read)):

            def run(session: Session, condition: str = condition, name: str = f"{which}-{number}") -> None:
                writer = into.writer(name)
                split = sql.split_row
                for number, row in enumerate(session.stream(sql.read_sql(read, condition)), 1):
                    key, values, count = split(read, row)
                    if count:  # an aggregate over no rows is one row all the same
                        writer.add(key, values, count, which)
                    if number % ROWS_BETWEEN_LOOKS == 0:
                        made.refuse_canceled()
                        self._engine.told(relation.dataset, ROWS_BETWEEN_LOOKS)
                writer.flush()

            jobs.append(Job(read.endpoint, run))
        return jobs

    def _spool_changes(self, relation: Relation, read: ChangeRead, which: int, into: spill.Spill) -> None:
        engine = self._engine
        writer = into.writer(str(which))
        anchors: list[Anchor] = []
        for record in change_records(
            relation, read, which, engine.endpoints, engine.secrets, engine.canceled, anchors.append
        ):
            writer.add(*record)
        writer.flush()
        self._anchors = (*self._anchors, *anchors)

    def _populations(self, made: Crew, relations: Sequence[Relation]) -> list[tuple[int, int] | None]:
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

    def _compare_buckets(self, made: Crew) -> _Equal | None:
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

    def _repeated(self, made: Crew, buckets: int) -> set[int]:
        """Buckets in which a key stands twice; rows of equal buckets are the same, so one side tells for both."""
        relations = [self._source] if self._target is None else [self._source, self._target]
        if any(pushdown.once(relation) for relation in relations):
            return set()
        read = next(pushdown.sql_reads(r)[0] for r in relations if len(r.reads) == 1)
        text = sql.repeated_buckets_sql(read, buckets)
        rows = made.run([Job(read.endpoint, lambda session: session.query(text))])[0]
        return {int(row[0]) for row in rows}

    def _total(self, counts: spill.Counts, equal: _Equal) -> Totals:
        source = equal.populations[0] or (counts.rows_source + equal.rows, counts.keys_source + equal.rows)
        target = equal.populations[1] or (counts.rows_target + equal.rows, counts.keys_target + equal.rows)
        # Keys that were looked at and did not come back agreed.
        unseen = (source[1] - counts.keys_source) if equal.populations[0] and self._target is None else 0
        return Totals(
            source[0], target[0], source[1], target[1], counts.matched + equal.rows + unseen, equal.buckets > 0
        )


class _Equal:
    """What bucket sums have shown: rows of equal buckets, each a key of its own, and which buckets to read."""

    def __init__(
        self, rows: int = 0, buckets: int = 0, unlike: Sequence[int] = (), filled: int = 0,
        populations: Sequence[tuple[int, int] | None] = (None, None),
    ) -> None:  # fmt: skip
        self.rows, self.buckets, self.populations = rows, buckets, populations
        self._unlike, self._filled = unlike, filled
        if 2 * len(unlike) > filled:
            # Most buckets differ: a list of them would only slow the scan, and all rows are read.
            self.rows = 0

    def conditions(self, read: SqlRead) -> list[str]:
        """Return the conditions that select the rows of unlike buckets; none where all buckets are equal."""
        if 2 * len(self._unlike) > self._filled:
            return [""]
        step = pushdown.LISTED
        return [
            sql.in_buckets(read, self.buckets, self._unlike[start : start + step])
            for start in range(0, len(self._unlike), step)
        ]

"""One join of a rule: candidates, their re-reads, and what becomes of them.

A key that differs once is a candidate, kept on disk. It becomes a finding when it differed in every read, stood still
meanwhile, and its settle time is over; when it agrees at a later read, it was late.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from decimal import Decimal
from typing import Protocol

from migverify.db.snapshot import Anchor
from migverify.errors import CanceledError, ReadError
from migverify.model import KeyText, LiveState
from migverify.recon.build import Built, Check, drilled
from migverify.recon.candidates import Candidate, Candidates, look_of
from migverify.recon.exceptions import Exceptions
from migverify.recon.kinds import judge_of
from migverify.recon.kinds.amounts import EXACT, amount
from migverify.recon.model import (
    MISMATCHES,
    ChangesPart,
    Class,
    Covered,
    Dataset,
    FilePart,
    Kind,
    Rule,
    RuleFinding,
    RuleSet,
    Window,
)  # fmt: skip
from migverify.recon.relation import Engine, Pairing, Totals
from migverify.sql.recon import sum_of_counts_sql
from migverify.watch.lifecycle import Criteria, Finding, Read, advance

ROW = "row"
"""The first part of the key of a row behind an unlike group: its group is a finding too, by a key of its own."""
CHECKS_AT_ONCE = 50
"""Counts that one statement asks for: a dataset of many shards has one each."""
DRILLED, MOST_DRILLED = 100, 1000
"""Groups whose rows are compared in one join, and in one evaluation of a rule."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """How a rule is evaluated.

    ``show``: values may stand in findings. ``longest_wait`` bounds, in seconds, how long rows whose time is not known
    are waited for until their settle time is over. ``batch`` is how many keys are read again at once.
    """

    show: bool = False
    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    batch: int = 500
    longest_wait: float = 600.0


class Whole(Protocol):
    """What parts of one evaluation share; ``migverify.recon.evaluate.Evaluation`` is it."""

    rules: RuleSet
    window: Window | None
    engine: Engine
    conditions: Conditions
    exceptions: Exceptions
    covered: Covered
    anchors: tuple[Anchor, ...]
    gaps: list[str]
    remarks: list[str]
    expired: int

    def keep(self, finding: RuleFinding, reads: int) -> None:
        """Count a finding and hand it to the sink."""
        ...


class Part:
    """One join of a rule, its candidates and their re-reads."""

    def __init__(
        self, whole: Whole, rule: Rule, reads: Built, wide: Built, prefix: KeyText = (), *, free: bool = False,
        first: bool = True,
    ) -> None:  # fmt: skip
        self.whole, self.rule, self.reads, self.wide, self.prefix = whole, rule, reads, wide, prefix
        self.engine, self.conditions, self.window = whole.engine, whole.conditions, whole.window
        self.datasets = whole.rules.datasets
        self.free = free  # findings cost nothing: their money is counted elsewhere
        self.first = first  # rows of a later part were counted by the first
        hashed = not self.conditions.show and _key_is_row(rule)
        self.judge = judge_of(rule, reads, self.conditions.now(), show=self.conditions.show, hashed_keys=hashed)
        self.read_at = 0.0
        self.rows = 0  # of the target; for a least share of references

    def run(self) -> None:
        """Join, check, read again, decide."""
        with Candidates(self.reads.source.key) as first:
            self._join(first)
            self._check()
            if first.count:
                self._persist(first)

    # Reading

    def _join(self, candidates: Candidates) -> None:
        joined = self.engine.join(self.reads.source, self.reads.target, self.reads.keep)
        agreed = 0
        for batch in joined:
            for pairing in batch:
                if self.judge.judge(pairing) is None:
                    agreed += 1
                else:
                    candidates.add(Candidate.of(pairing))
        self.read_at = self.conditions.now()
        totals = joined.totals
        self.rows = totals.rows_target
        known = {anchor.endpoint for anchor in self.whole.anchors}
        self.whole.anchors += tuple(anchor for anchor in joined.anchors if anchor.endpoint not in known)
        if self.prefix[:1] != (ROW,):
            covered = _covered(self.reads, totals, totals.matched + agreed)
            if self.rule.kind is Kind.COVERAGE and self.reads.target is not None:
                # Its relations are parents and children; the rule's source are the children.
                covered = replace(covered, rows_source=covered.rows_target, rows_target=covered.rows_source)
            self.whole.covered += covered if self.first else Covered(groups=covered.groups)

    def _check(self) -> None:
        """Ask what has to be 0 for the rows to be all rows."""
        by_endpoint: dict[str, list[Check]] = {}
        for check in self.reads.checks:
            by_endpoint.setdefault(check.endpoint, []).append(check)
        for endpoint, checks in by_endpoint.items():
            for start in range(0, len(checks), CHECKS_AT_ONCE):
                some = checks[start : start + CHECKS_AT_ONCE]
                # Counts are never negative: a sum of 0 answers all of them.
                if len(some) == 1 or self._count(endpoint, sum_of_counts_sql([check.sql for check in some])) != 0:
                    for check in some:
                        self._ask(check)

    def _ask(self, check: Check) -> None:
        number = self._count(check.endpoint, check.sql)
        if number is None:
            self.whole.gaps.append(f"{check.endpoint} gave no number to: {check.sql}")
        elif number:
            self.whole.gaps.append(check.message.format(f"{number:,f}"))

    def _count(self, endpoint: str, sql: str) -> Decimal | None:
        _, found = self.engine.query(endpoint, sql, 1)
        return amount(found[0][0]) if found and found[0] else None

    def _persist(self, candidates: Candidates) -> None:
        """Read candidates again until they agree, or have differed often enough."""
        rounds = self.rule.rereads if self._rereadable else 0
        current = candidates
        try:
            # Over the border of the window one looks once at least, also where nothing moves.
            for number in range(1, max(rounds, self._widened) + 1):
                if rounds:
                    self._wait(current, last=number == rounds)
                before, current = current, self._again(current, Criteria(rounds, 1 + rounds))
                if before is not candidates:
                    before.close()
            if self._enough(current):
                return
            for batch in current.batches(self.conditions.batch):
                for candidate in batch:
                    self._decide(candidate)
            self._drill(current)
        finally:
            if current is not candidates:
                current.close()

    def _again(self, candidates: Candidates, criteria: Criteria) -> Candidates:
        left = Candidates(self.reads.source.key)
        failure = ""
        try:
            for batch in candidates.batches(self.conditions.batch):
                if not failure:
                    try:
                        fresh = self._lookup(batch, self.wide)
                        agreed = [c for c in batch if self.judge.judge(fresh(c)) is None]
                        crossed = self._crossed(agreed)
                    except CanceledError:
                        raise
                    except ReadError as error:
                        # The other batches would fail alike, each after its retries.
                        failure = f"could not be read again: {error.message}"
                if failure:
                    for candidate in batch:
                        self._decide(candidate, failure)
                    continue
                # Once, in the window of the source's row: the counterpart crosses from the other side.
                once = sum(c.first.source is not None for c in batch if c.first.key in crossed)
                self.whole.covered += Covered(matched=once, crossed=once)
                done = {candidate.first.key for candidate in agreed}
                for candidate in batch:
                    if candidate.first.key not in done:
                        last = fresh(candidate)
                        left.add(candidate.again(last, criteria, applied_past=self._unsettled(last) <= 0))
                    elif candidate.first.key not in crossed:
                        self._late(candidate)
        except BaseException:
            left.close()
            raise
        return left

    @property
    def _widened(self) -> bool:
        """Whether keys are read again over more than the window."""
        return self.wide is not self.reads

    def _crossed(self, agreed: Sequence[Candidate]) -> set[KeyText]:
        """Return the keys that agree across the border of the window: in the window itself a side still lacks them.

        The counterpart bears a time of a neighbor window, within the settle time. That is no finding, and not late.
        """
        asked = [c for c in agreed if (c.first.source is None) != (c.first.target is None)] if self._widened else []
        if not asked:
            return set()
        own = self._lookup(asked, self.reads)
        return {c.first.key for c in asked if self.judge.judge(own(c)) is not None}

    def _lookup(self, batch: Sequence[Candidate], built: Built) -> Callable[[Candidate], Pairing]:
        """Read the keys of a batch again; what cannot be other rows than at the first read is not read again."""
        keys = [candidate.last.key for candidate in batch]
        source, target = built.source, built.target
        wider = built is not self.reads
        ours = self.engine.lookup(source, keys) if wider or moves(self.datasets[source.dataset]) else None
        theirs = None
        if target is not None and (wider or moves(self.datasets[target.dataset])):
            theirs = self.engine.lookup(target, keys)

        def pair(candidate: Candidate) -> Pairing:
            key = candidate.last.key
            return Pairing(
                key,
                candidate.first.source if ours is None else ours.get(key),
                candidate.first.target if theirs is None else theirs.get(key),
            )

        return pair

    def _wait(self, candidates: Candidates, *, last: bool) -> None:
        """Sleep ``delay``; before the last read also until rows of unknown time are past the settle time."""
        wait = self.rule.delay
        settle = self.rule.settle or 0.0
        if last and settle and self._unknown_times(candidates):
            over = self.read_at + settle - self.conditions.now()
            if over <= self.conditions.longest_wait:
                wait = max(wait, over)
        if wait > 0:
            self.conditions.sleep(wait)

    def _unknown_times(self, candidates: Candidates) -> bool:
        if self.window is not None:
            return False
        batches = candidates.batches(self.conditions.batch)
        return any(self.judge.moment(candidate.last) is None for batch in batches for candidate in batch)

    # Classes

    @property
    def _rereadable(self) -> bool:
        relations = [relation for relation in (self.reads.source, self.reads.target) if relation is not None]
        return any(moves(self.datasets[relation.dataset]) for relation in relations)

    def _enough(self, candidates: Candidates) -> bool:
        """Whether references that lead nowhere are few enough for the least share of a coverage rule."""
        share = self.rule.options.get("share")
        if self.rule.kind is not Kind.COVERAGE or self.reads.target is None or share is None or not candidates.count:
            return False
        lost = sum(c.last.target.count for batch in candidates.batches(self.conditions.batch) for c in batch
                   if c.last.target is not None)  # fmt: skip
        # kept / rows >= share, without a division that could round.
        if Decimal(self.rows - lost) < EXACT.multiply(Decimal(str(share)), Decimal(self.rows)):
            return False
        self.whole.remarks.append(f"{lost:,} of {self.rows:,} references lead nowhere; the least share is {share}")
        return True

    def _late(self, candidate: Candidate) -> None:
        finding = self.judge.judge(candidate.first)
        if finding is None:
            return
        reason = f"differed first, equal at read {candidate.reads + 1}"
        self._keep(
            replace(finding, kind=Class.LATE_MATCHED, money=None, currency=None, also=(), reason=reason),
            candidate.reads + 1,
        )

    def _decide(self, candidate: Candidate, failure: str = "") -> None:
        finding = self.judge.judge(candidate.last)
        if finding is None:
            raise ReadError(f"rule {self.rule.name}: a candidate agrees with itself: {candidate.last.key}")
        early = failure or self._too_early(candidate)
        if early:
            finding = replace(finding, kind=Class.PENDING, reason=_and(early, finding.reason))
        excused = self.whole.exceptions.apply(finding, candidate.last.key[: max(1, len(self.rule.key))])
        self.whole.expired += excused.kind in MISMATCHES and excused.reason != finding.reason
        self._keep(excused, candidate.reads)

    def _keep(self, finding: RuleFinding, reads: int) -> None:
        if self.free:
            finding = replace(finding, money=None, currency=None, also=(), reason=finding.reason)
        self.whole.keep(replace(finding, key=(*self.prefix, *finding.key)), reads)

    def _drill(self, groups: Candidates) -> None:
        """Compare the rows behind groups that differ; there may be more groups than a look at rows is worth."""
        if self.rule.kind is not Kind.SAME_GROUPS or self.reads.drill is None:
            return
        rule = replace(self.rule, kind=Kind.SAME_ROWS, options={}, tolerance=self.rule.tolerance)
        # The difference of its group's sums is counted; the rows would count it twice.
        free = self.rule.money is not None and f"sum({self.rule.money.column})" in [
            column.name for column in self.reads.source.values
        ]
        looked = 0
        for batch in groups.batches(DRILLED):
            if looked >= MOST_DRILLED:
                break
            rows = drilled(self.reads, [candidate.last.key for candidate in batch])
            if rows is None:
                return
            Part(self.whole, rule, rows, rows, (ROW,), free=free).run()
            looked += len(batch)
        if looked < groups.count:
            self.whole.remarks.append(f"rows were compared in {looked:,} of {groups.count:,} unlike groups")

    def _too_early(self, candidate: Candidate) -> str:
        """Say why a candidate cannot be judged yet; empty when it can."""
        state = candidate.state
        if candidate.reads == 1:  # no round of reads follows the first: it is not compared with any other
            read = Read(look_of(candidate.first), applied_past=self._unsettled(candidate.first) <= 0)
            state = advance(Finding(), read, Criteria(still_reads=0)).state
        if state is LiveState.DIVERGED:
            return ""
        if state is LiveState.HOT:
            return f"its rows changed while they were read {candidate.reads} times"
        return f"its settle time ends in {max(0.0, self._unsettled(candidate.last)):,.1f} s"

    def _unsettled(self, pairing: Pairing) -> float:
        """Return the seconds until the settle time of a key is over; 0 or less when it is."""
        settle = self.rule.settle
        if not settle or not self._rereadable:
            return 0.0
        moment = self.judge.moment(pairing)
        if moment is None and self.window is not None:
            moment = self.window.end
        # Rows that bear no time are as old as the first time they were seen, at least.
        since = self.read_at if moment is None else moment.replace(tzinfo=UTC).timestamp()
        return since + settle - self.conditions.now()


def _covered(reads: Built, totals: Totals, matched: int) -> Covered:
    grouped = not reads.source.rows
    return Covered(
        rows_source=totals.rows_source, rows_target=totals.rows_target, matched=matched,
        groups=max(totals.keys_source, totals.keys_target) if grouped else 0,
    )  # fmt: skip


def moves(dataset: Dataset) -> bool:
    """Whether rows of a dataset can be other ones at the next read: not files, nor what a binlog holds."""
    fixed = all(isinstance(p, FilePart) or (isinstance(p, ChangesPart) and not p.state) for p in dataset.parts)
    return not dataset.static and not fixed


def _key_is_row(rule: Rule) -> bool:
    """Whether a rule has no key of its own, so that the key of a finding is made of the values of a row."""
    return rule.kind is Kind.NO_ROWS and not (rule.key or rule.options.get("show"))


def _and(first: str, second: str) -> str:
    return f"{first}; {second}" if second else first

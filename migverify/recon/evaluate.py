"""One rule in one window: read, judge, read again, classify, sum up.

A key that differs once is a candidate, kept on disk. It is read again ``rereads`` times, and becomes a finding when it
differed every time, stood still meanwhile, and its settle time is over. There is one way to MATCH: everything was read
and nothing is unexplained.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from decimal import Decimal

from migverify.db.snapshot import ReadSnapshot
from migverify.errors import CanceledError, MigverifyError, ReadError, StoreError, TimeLimitError
from migverify.model import KeyText, LiveState, Verdict
from migverify.recon.amounts import amount
from migverify.recon.build import Built, KindCheck, drilled
from migverify.recon.candidates import CandidateKey, Candidates, look_of
from migverify.recon.exceptions import Exceptions
from migverify.recon.model import (
    MISMATCHES,
    ChangesPart,
    Class,
    CoveredWindows,
    Dataset,
    FilePart,
    RuleFinding,
    RuleResult,
    Window,
)
from migverify.recon.relation import Pairing, RuleEngine, Totals
from migverify.recon.rule import Rule, RuleSet, judging
from migverify.recon.verdict import FindingTally, conclude, nothing_read
from migverify.recon.windows import moment_of
from migverify.sql.recon import sum_of_counts_sql
from migverify.watch.lifecycle import Criteria, Finding, Read, advance

ROW = "row"
"""The first part of the key of a row of a group that differs: its group is a finding too, by a key of its own."""
TIME_LIMIT_HIT = "a query hit its time limit (`query_seconds` of the endpoint, or `limits.rule_query_seconds`)"
CHECKS_AT_ONCE = 50
"""Counts that one statement asks for: a dataset of many shards has one each."""
Sink = Callable[[Sequence[RuleFinding]], None]
"""Takes findings in batches of at most ``Conditions.batch``; each key once."""
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


class Evaluation:
    """One rule in one window: what its parts share (rows behind groups), and what they found."""

    def __init__(
        self, rule: Rule, rules: RuleSet, window: Window | None, engine: RuleEngine, conditions: Conditions, sink: Sink
    ) -> None:
        self.rule, self.rules, self.window, self.engine = rule, rules, window, engine
        self.conditions, self.sink = conditions, sink
        self.exceptions = Exceptions.of(rule.name, rules.exceptions, moment_of(conditions.now()))
        self.tally = FindingTally()
        self._counted: Counter[str] = Counter()
        self.covered = CoveredWindows()
        self.snapshots: tuple[ReadSnapshot, ...] = ()
        self.expired = 0
        self.gaps: list[str] = []
        self.remarks: list[str] = []
        self._batch: list[RuleFinding] = []
        self._room = rule.finding_limit
        self._dropped = 0

    def notes(self) -> Iterator[str]:
        """Yield what a reader should know besides the reasons of the verdict."""
        yield from self.remarks
        if self._dropped:
            yield f"{self._dropped:,} more findings are counted and not kept (limit {self.rule.finding_limit})"
        if self.expired:
            yield f"{self.expired:,} findings had an exception that expired"
        for reason, count in self._counted.most_common():
            yield f"{reason} ({count:,} {'finding' if count == 1 else 'findings'})"

    def keep(self, finding: RuleFinding, reads: int, unmet: Iterable[str] = ()) -> None:
        """Count a finding, also in the reasons of what is ``unmet``, and hand it to the sink."""
        finding = replace(finding, window=self.window, reads=reads, at=self.conditions.now())
        self.tally.add(finding)
        if "money is not known" in finding.reason and finding.kind is not Class.LATE_MATCHED:
            self._counted[finding.reason[finding.reason.index("money is not known") :]] += 1
        self._counted.update(unmet if finding.kind in MISMATCHES else ())
        if self._room is not None:
            self._room -= 1
            if self._room < 0:
                self._dropped += 1
                return
        self._batch.append(finding)
        if len(self._batch) >= self.conditions.batch:
            self.flush()

    def flush(self) -> None:
        """Hand over what is left."""
        if self._batch:
            self.sink(self._batch)
            self._batch = []


class RulePart:
    """One join of a rule, its candidates and their re-reads."""

    def __init__(
        self, whole: Evaluation, rule: Rule, reads: Built, wide: Built, prefix: KeyText = (), *, free: bool = False,
    ) -> None:  # fmt: skip
        self.whole, self.rule, self.reads, self.wide, self.prefix = whole, rule, reads, wide, prefix
        self.engine, self.conditions, self.window = whole.engine, whole.conditions, whole.window
        self.datasets = whole.rules.datasets
        self.free = free  # findings cost nothing: their money is counted elsewhere
        hashed = not self.conditions.show and rule.key_is_row
        self.inputs = judging(rule, reads, self.conditions.now(), show=self.conditions.show, hashed_keys=hashed)
        self.read_at = 0.0

    def run(self) -> None:
        """Join, check, read again, decide."""
        with Candidates(self.reads.source.key) as first:
            self._join(first)
            self._check()
            if first.count:
                self._persist(first)

    def judge(self, pairing: Pairing) -> RuleFinding | None:
        """Return what is wrong with a key; None where nothing is."""
        return self.rule.judge(self.inputs, pairing)

    # Reading

    def _join(self, candidates: Candidates) -> None:
        joined = self.engine.join(self.reads.source, self.reads.target, self.reads.keep)
        agreed = 0
        for batch in joined:
            for pairing in batch:
                if self.judge(pairing) is None:
                    agreed += 1
                else:
                    candidates.put(CandidateKey.of(pairing))
        self.read_at = self.conditions.now()
        totals = joined.totals
        known = {snapshot.endpoint for snapshot in self.whole.snapshots}
        self.whole.snapshots += tuple(snapshot for snapshot in joined.snapshots if snapshot.endpoint not in known)
        if self.prefix[:1] != (ROW,):
            covered = _covered(self.reads, totals, totals.matched + agreed)
            self.whole.covered += covered

    def _check(self) -> None:
        """Ask what has to be 0 for the rows to be all rows."""
        by_endpoint: dict[str, list[KindCheck]] = {}
        for check in self.reads.checks:
            by_endpoint.setdefault(check.endpoint, []).append(check)
        for endpoint, checks in by_endpoint.items():
            for start in range(0, len(checks), CHECKS_AT_ONCE):
                some = checks[start : start + CHECKS_AT_ONCE]
                # Counts are never negative: a sum of 0 answers all of them.
                if len(some) == 1 or self._count(endpoint, sum_of_counts_sql([check.sql for check in some])) != 0:
                    for check in some:
                        self._ask(check)

    def _ask(self, check: KindCheck) -> None:
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
                criteria = Criteria(0 if self.rule.each_read_proves else rounds, 1 + rounds)
                before, current = current, self._again(current, criteria)
                if before is not candidates:
                    before.close()
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
                        agreed = [c for c in batch if self.judge(fresh(c)) is None]
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
                self.whole.covered += CoveredWindows(matched=once, crossed=once)
                done = {candidate.first.key for candidate in agreed}
                for candidate in batch:
                    if candidate.first.key not in done:
                        last = fresh(candidate)
                        left.put(candidate.again(last, criteria, applied_past=self._unsettled(last) <= 0))
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

    def _crossed(self, agreed: Sequence[CandidateKey]) -> set[KeyText]:
        """Return the keys that agree across the border of the window: in the window itself a side still lacks them.

        The counterpart bears a time of a neighbor window, within the settle time. That is no finding, and not late.
        """
        asked = [c for c in agreed if (c.first.source is None) != (c.first.target is None)] if self._widened else []
        if not asked:
            return set()
        own = self._lookup(asked, self.reads)
        return {c.first.key for c in asked if self.judge(own(c)) is not None}

    def _lookup(self, batch: Sequence[CandidateKey], built: Built) -> Callable[[CandidateKey], Pairing]:
        """Read the keys of a batch again; what cannot be other rows than at the first read is not read again."""
        keys = [candidate.last.key for candidate in batch]
        source, target = built.source, built.target
        wider = built is not self.reads
        ours = self.engine.lookup(source, keys) if wider or moves(self.datasets[source.dataset]) else None
        theirs = None
        if target is not None and (wider or moves(self.datasets[target.dataset])):
            theirs = self.engine.lookup(target, keys)

        def pair(candidate: CandidateKey) -> Pairing:
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
        return any(self.inputs.moment(candidate.last) is None for batch in batches for candidate in batch)

    # Classes

    @property
    def _rereadable(self) -> bool:
        relations = [relation for relation in (self.reads.source, self.reads.target) if relation is not None]
        return any(moves(self.datasets[relation.dataset]) for relation in relations)

    def _late(self, candidate: CandidateKey) -> None:
        finding = self.judge(candidate.first)
        if finding is None:
            return
        reason = f"differed first, equal at read {candidate.reads + 1}"
        self._keep(
            replace(finding, kind=Class.LATE_MATCHED, money=None, currency=None, also=(), reason=reason),
            candidate.reads + 1,
        )

    def _decide(self, candidate: CandidateKey, failure: str = "") -> None:
        finding = self.judge(candidate.last)
        if finding is None:
            raise ReadError(f"rule {self.rule.name}: a candidate agrees with itself: {candidate.last.key}")
        early = failure or self._too_early(candidate)
        if early:
            finding = replace(finding, kind=Class.PENDING, reason=_and(early, finding.reason))
        excused = self.whole.exceptions.apply(finding, candidate.last.key[: max(1, len(self.rule.key))])
        self.whole.expired += excused.kind in MISMATCHES and excused.reason != finding.reason
        self._keep(excused, candidate.reads, self.rule.unmet(candidate.last, finding))

    def _keep(self, finding: RuleFinding, reads: int, unmet: Iterable[str] = ()) -> None:
        if self.free:
            finding = replace(finding, money=None, currency=None, also=(), reason=finding.reason)
        self.whole.keep(replace(finding, key=(*self.prefix, *finding.key)), reads, unmet)

    def _drill(self, groups: Candidates) -> None:
        """Compare the rows behind groups that differ; there may be more groups than a look at rows is worth."""
        if self.reads.drill is None:
            return
        rule = self.rule.rows_rule()
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
            RulePart(self.whole, rule, rows, rows, (ROW,), free=free).run()
            looked += len(batch)
        if looked < groups.count:
            self.whole.remarks.append(f"rows were compared in {looked:,} of {groups.count:,} different groups")

    def _too_early(self, candidate: CandidateKey) -> str:
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
        moment = self.inputs.moment(pairing)
        if moment is None and self.window is not None:
            moment = self.window.end
        # Rows that bear no time are as old as the first time they were seen, at least.
        since = self.read_at if moment is None else moment.replace(tzinfo=UTC).timestamp()
        return since + settle - self.conditions.now()


def _covered(reads: Built, totals: Totals, matched: int) -> CoveredWindows:
    grouped = not reads.source.rows
    return CoveredWindows(
        rows_source=totals.rows_source, rows_target=totals.rows_target, matched=matched,
        groups=max(totals.keys_source, totals.keys_target) if grouped else 0,
    )  # fmt: skip


def moves(dataset: Dataset) -> bool:
    """Whether rows of a dataset can be other ones at the next read: not files, nor what a binlog holds."""
    fixed = all(isinstance(p, FilePart) or (isinstance(p, ChangesPart) and not p.state) for p in dataset.parts)
    return not dataset.static and not fixed


def _and(first: str, second: str) -> str:
    return f"{first}; {second}" if second else first


def evaluate(
    rule: Rule,
    rules: RuleSet,
    window: Window | None,
    engine: RuleEngine,
    reads: Built,
    sink: Sink,
    conditions: Conditions = Conditions(),
    *,
    wide: Built | None = None,
) -> RuleResult:
    """Evaluate one rule in one window.

    ``reads``: The relations of the rule in this window, and which keys the join gives back. ``sink``: Takes findings in
    batches, after the last re-read; nothing is handed over that may still change. ``wide``: The relations of a wider
    window, for re-reads by key: a row whose counterpart is stamped on the other side of the border is found there.
    None: the same as ``reads``.

    Returns
    -------
    RuleResult
        INCONCLUSIVE with the reason where a read fails. Errors of the store (from ``sink``) and Ctrl-C are passed on.
    """
    started = time.monotonic()
    work = Evaluation(keyed(rule, rules), rules, window, engine, conditions, sink)
    try:
        RulePart(work, work.rule, reads, wide or reads).run()
        work.flush()
    except CanceledError:
        raise KeyboardInterrupt from None
    except StoreError:
        raise
    except TimeLimitError as error:
        work.gaps.append(f"not read: {TIME_LIMIT_HIT}: {error.message}")
    except MigverifyError as error:
        work.gaps.append(f"not read: {error.message}")
    if reads.left_out:
        work.remarks.append(f"not compared, because one side alone has it: {', '.join(reads.left_out)}")
    verdict, reasons = conclude(rule, window, work.tally.counts, work.covered, work.gaps)
    empty = "" if window is not None else nothing_read(rule, None, work.tally.counts, work.covered)
    return RuleResult(
        rule=rule.name, window=window, verdict=verdict, reasons=(*reasons, *work.notes()), covered=work.covered,
        counts=dict(work.tally.counts), money=work.tally.money, snapshots=work.snapshots,
        seconds=time.monotonic() - started, unexplained=work.tally.at_risk(),
        gaps=(*work.gaps, *([empty] if empty else [])),
    )  # fmt: skip


def keyed(rule: Rule, rules: RuleSet) -> Rule:
    """Return the rule with the key that counts: its own, or that of its source."""
    return rule if rule.key else rule.model_copy(update={"key": rules.datasets[rule.source].key})


def inconclusive(rule: Rule, window: Window | None, reason: str, seconds: float = 0.0) -> RuleResult:
    """Return the result of a rule that could not be evaluated."""
    return RuleResult(
        rule.name, window, Verdict.INCONCLUSIVE, (reason,), CoveredWindows(), {}, {}, (), seconds, gaps=(reason,)
    )

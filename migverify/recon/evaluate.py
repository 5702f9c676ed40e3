"""One rule in one window: read, judge, read again, classify, sum up.

A key that differs once is a candidate, kept on disk. It is read again ``rereads`` times, and becomes a finding when it
differed every time, stood still meanwhile, and its settle time is over. There is one way to MATCH: everything was read
and nothing is unexplained.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

from migverify.db.snapshot import Anchor
from migverify.errors import CanceledError, MigverifyError, ReadError, StoreError, in_words
from migverify.model import KeyText, Verdict
from migverify.recon.build import Built
from migverify.recon.exceptions import Exceptions
from migverify.recon.kinds.amounts import add_to, amount
from migverify.recon.kinds.scene import money_rule
from migverify.recon.model import (
    Class,
    Covered,
    Kind,
    Rule,
    RuleFinding,
    RuleResult,
    RuleSet,
    Window,
)
from migverify.recon.part import Conditions, Part, moves
from migverify.recon.relation import Engine, JoinFilter, Pairing
from migverify.recon.tally import Tally
from migverify.recon.verdict import conclude, nothing_read

__all__ = ["Conditions", "Evaluation", "Sink", "evaluate", "inconclusive", "keyed", "moves"]

Sink = Callable[[Sequence[RuleFinding]], None]
"""Takes findings in batches of at most ``Conditions.batch``; each key once."""


def evaluate(
    rule: Rule,
    rules: RuleSet,
    window: Window | None,
    engine: Engine,
    reads: Built,
    sink: Sink,
    conditions: Conditions = Conditions(),  # noqa: B008 - frozen
    *,
    wide: Built | None = None,
    volume: Built | None = None,
) -> RuleResult:
    """Evaluate one rule in one window.

    Parameters
    ----------
    reads
        The relations of the rule in this window, and which keys the join gives back.
    sink
        Takes findings in batches, after the last re-read; nothing is handed over that may still change.
    wide
        The relations of a wider window, for re-reads by key: a row whose counterpart is stamped on the other side of
        the border is found there. None: the same as ``reads``.
    volume
        The sums of absolute amounts by currency, see ``migverify.recon.volume``; None where that is not asked.

    Returns
    -------
    RuleResult
        INCONCLUSIVE with the reason where a read fails. Errors of the store (from ``sink``) and Ctrl-C are passed on.
    """
    started = time.monotonic()
    work = Evaluation(keyed(rule, rules), rules, window, engine, conditions, sink)
    try:
        work.run(reads, wide or reads)
        work.ask_volume(volume)
    except CanceledError:
        raise KeyboardInterrupt from None
    except StoreError:
        raise
    except MigverifyError as error:
        work.gaps.append(f"not read: {error.message}")
    static = _static(rules, rule)
    verdict, reasons = conclude(rule, window, work.tally.counts, work.covered, work.gaps, static=static)
    empty = "" if window is not None else nothing_read(rule, None, work.tally.counts, work.covered, static=static)
    return RuleResult(
        rule=rule.name, window=window, verdict=verdict, reasons=(*reasons, *work.notes()), covered=work.covered,
        counts=dict(work.tally.counts), money=work.tally.money, anchors=work.anchors,
        seconds=time.monotonic() - started, unexplained=work.tally.at_risk(), volume=work.volume,
        gaps=(*work.gaps, *([empty] if empty else [])),
    )  # fmt: skip


def keyed(rule: Rule, rules: RuleSet) -> Rule:
    """Return the rule with the key that counts: its own, or that of its source."""
    return rule if rule.key else replace(rule, key=rules.datasets[rule.source].key)


def inconclusive(rule: Rule, window: Window | None, reason: str, seconds: float = 0.0) -> RuleResult:
    """Return the result of a rule that could not be evaluated."""
    told = (reason,)
    return RuleResult(rule.name, window, Verdict.INCONCLUSIVE, told, Covered(), {}, {}, (), seconds, gaps=told)


class Evaluation:
    """The work on one rule in one window; parts of a rule (``Built.more``, rows behind groups) share its tally."""

    def __init__(
        self, rule: Rule, rules: RuleSet, window: Window | None, engine: Engine, conditions: Conditions, sink: Sink
    ) -> None:
        self.rule, self.rules, self.window, self.engine = rule, rules, window, engine
        self.conditions, self.sink = conditions, sink
        self.exceptions = Exceptions.of(rule.name, rules.exceptions, _utc(conditions.now()))
        self.tally = Tally()
        self._unknown_money: Counter[str] = Counter()
        self.covered = Covered()
        self.anchors: tuple[Anchor, ...] = ()
        self.expired = 0
        self.gaps: list[str] = []
        self.remarks: list[str] = []
        self.volume: dict[str, Decimal] = {}
        self._batch: list[RuleFinding] = []
        limit = rule.options.get("limit") if rule.kind is Kind.NO_ROWS else None
        self._room = limit if isinstance(limit, int) else None
        self._dropped = 0

    def run(self, reads: Built, wide: Built) -> None:
        """Evaluate all parts of the rule; findings are in the sink afterwards."""
        parts = [(reads, wide), *zip(reads.more, wide.more, strict=True)]
        for number, (part, further) in enumerate(parts):
            # Keys of two parts are of two kinds of things: the word keeps them apart in the store.
            prefix = ("reference",) if len(parts) > 1 and not number else ()
            Part(self, self.rule, part, further, prefix, first=not number).run()
        if reads.left_out:
            self.remarks.append(f"not compared, because one side alone has it: {', '.join(reads.left_out)}")
        self.flush()

    def ask_volume(self, volume: Built | None) -> None:
        """Sum the money of all rows that are judged; what hinders it is told, and makes no verdict worse."""
        if volume is None:
            return
        try:
            for part in (volume, *volume.more):
                for batch in self.engine.join(part.source, None, JoinFilter(all=True)):
                    for pairing in batch:
                        self._add_volume(pairing)
        except CanceledError:
            raise
        except ReadError as error:
            self.volume = {}
            self.remarks.append(f"the volume of money is not known: {in_words(error)}")

    def _add_volume(self, pairing: Pairing) -> None:
        if pairing.source is None:
            return
        value, *least = (amount(text) for text in pairing.source.values)
        if least and (least[0] is None or least[0] < 0) and value is not None:
            raise ReadError("amounts below zero lie in no database that could sum their absolute values")
        if value is not None:
            add_to(self.volume, _currency(self.rule, pairing.key), value)

    def notes(self) -> Iterator[str]:
        """Yield what a reader should know besides the reasons of the verdict."""
        yield from self.remarks
        if self._dropped:
            yield f"{self._dropped:,} more findings are counted and not kept (limit {self.rule.options.get('limit')})"
        if self.expired:
            yield f"{self.expired:,} findings had an exception that expired"
        for reason, count in self._unknown_money.most_common():
            yield f"{reason} ({count:,} {'finding' if count == 1 else 'findings'})"

    def keep(self, finding: RuleFinding, reads: int) -> None:
        """Count a finding and hand it to the sink."""
        finding = replace(finding, window=self.window, reads=reads, at=self.conditions.now())
        self.tally.add(finding)
        if "money is not known" in finding.reason and finding.kind is not Class.LATE_MATCHED:
            self._unknown_money[finding.reason[finding.reason.index("money is not known") :]] += 1
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


def _static(rules: RuleSet, rule: Rule) -> bool:
    names = [name for name in (rule.source, rule.target) if name is not None]
    return all(rules.datasets[name].static for name in names)


def _currency(rule: Rule, key: KeyText) -> str:
    money = money_rule(rule)
    constant = money.constant if money is not None else None
    return constant or (key[0] if key and key[0] is not None else "(no currency)")


def _utc(seconds: float) -> datetime:
    return datetime(1970, 1, 1) + timedelta(seconds=seconds)

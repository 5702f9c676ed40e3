"""Rules of kind ``expectations`` on their way through a run: batches, re-reads, exceptions, verdict."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from migverify.errors import ConfigError
from migverify.model import Endpoint
from migverify.recon.describe import Describe
from migverify.recon.evaluate import Conditions, Sink, keyed, moves
from migverify.recon.exceptions import Exceptions
from migverify.recon.expectation_suite import Suite, check_suite, read_suite
from migverify.recon.expectations import Batch, SuiteOutcome, keep_outcome, run_suite, sessions
from migverify.recon.model import (
    Class,
    ParameterValue,
    QueryPart,
    Rule,
    RuleFinding,
    RuleResult,
    RuleSet,
    TablePart,
    Window,
)
from migverify.recon.parameters import values_for
from migverify.recon.sides import open_side
from migverify.recon.tally import Tally
from migverify.recon.verdict import conclude
from migverify.sql.recon import select_sql
from migverify.store.base import ResultStore


class SuiteRunner:
    """Evaluates rules of kind ``expectations``.

    Parameters
    ----------
    endpoints, secrets
        By name of the endpoint.
    store
        Where results of suites are kept as Great Expectations shows them, JSON and HTML.
    """

    def __init__(
        self, rules: RuleSet, given: Mapping[str, ParameterValue], endpoints: Mapping[str, Endpoint],
        secrets: Mapping[str, str], describe: Describe, store: ResultStore, conditions: Conditions,
    ) -> None:  # fmt: skip
        self._rules, self._given, self._endpoints, self._secrets = rules, given, endpoints, secrets
        self._describe, self._store, self._conditions = describe, store, conditions

    def __call__(self, rule: Rule, window: Window | None, run_id: str, sink: Sink) -> RuleResult:
        """Run the suite of a rule, again where it finds something on data that moves; findings go to the sink."""
        started = time.monotonic()
        dataset = self._rules.datasets[rule.source]
        rule = keyed(rule, self._rules)
        suite, batches = self.prepared(rule, window)
        outcome = self._run(rule, suite, batches, window)
        found, gone = {finding.key: finding for finding in outcome.findings}, []
        for number in range(rule.rereads if moves(dataset) and found else 0):
            self._conditions.sleep(rule.delay)
            outcome = self._run(rule, suite, batches, window)
            now = {finding.key: finding for finding in outcome.findings}
            gone += [_late(found[key], number + 2) for key in found if key not in now]
            found = {key: replace(now[key], reads=number + 2) for key in found if key in now}
        keep_outcome(self._store, run_id, rule.name, outcome)
        tally = self._hand_over(rule, [*found.values(), *gone], window, sink)
        verdict, reasons = conclude(rule, window, tally.counts, outcome.covered, outcome.reasons)
        return RuleResult(
            rule.name, window, verdict, reasons, outcome.covered, dict(tally.counts), tally.money, outcome.anchors,
            time.monotonic() - started, tally.at_risk(), gaps=tuple(outcome.reasons),
        )  # fmt: skip

    def prepared(self, rule: Rule, window: Window | None) -> tuple[Suite, list[Batch]]:
        """Read and check the suite of a rule; ``ConfigError`` where it does not fit the dataset."""
        values = values_for(self._rules, self._given, window)
        dataset = self._rules.datasets[rule.source]
        side = open_side(dataset, rule, self._describe, values, window)
        batches = []
        for part in side.parts:
            if not isinstance(part.part, TablePart | QueryPart):
                raise ConfigError(
                    f"{rule.place}: rule {rule.name}: dataset {dataset.name} lies in no database",
                    hint="Expectations are asked of tables and queries.",
                )
            columns = [(name, column.sql) for name, column in part.columns.items()]
            select = select_sql(part.table, columns, part.where)
            definitions = tuple(column.definition for column in part.columns.values())
            batches.append(Batch(self._endpoints[part.part.endpoint], select, definitions, part.part.shard))
        first = batches[0].columns if batches else ()
        return check_suite(rule, dataset, first, read_suite(rule, values)), batches

    def _run(self, rule: Rule, suite: Suite, batches: Sequence[Batch], window: Window | None) -> SuiteOutcome:
        reader = sessions(lambda endpoint: self._secrets.get(endpoint.name))
        return run_suite(rule, suite, batches, reader, window=window, keep_values=self._conditions.show)

    def _hand_over(self, rule: Rule, findings: Sequence[RuleFinding], window: Window | None, sink: Sink) -> Tally:
        now = self._conditions.now()
        moment = datetime(1970, 1, 1) + timedelta(seconds=now)
        exceptions = Exceptions.of(rule.name, self._rules.exceptions, moment)
        tally = Tally()
        for start in range(0, len(findings), self._conditions.batch):
            some = [exceptions.apply(replace(_named(rule, f), window=window, at=now))
                    for f in findings[start : start + self._conditions.batch]]  # fmt: skip
            for finding in some:
                tally.add(finding)
            sink(some)
        return tally


def _named(rule: Rule, finding: RuleFinding) -> RuleFinding:
    """Return the finding with its key in its message, where it speaks of a row."""
    if len(finding.key) != len(rule.key) or finding.counts != (1, 0):
        return finding
    parts = zip(rule.key, finding.key, strict=True)
    key = ", ".join(f"{name.removesuffix('_id') or name} {'NULL' if part is None else part}" for name, part in parts)
    return replace(finding, message=f"{key}: {finding.message}")


def _late(finding: RuleFinding, reads: int) -> RuleFinding:
    reason = f"did not hold first, holds at read {reads}"
    return replace(finding, kind=Class.LATE_MATCHED, money=None, currency=None, reads=reads, reason=reason)

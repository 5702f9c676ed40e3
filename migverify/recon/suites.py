"""Rules of kind ``expectations``: the suite is answered by each endpoint at one moment, and what fails is a finding.

An expectation that could not be answered, or that the server answered with a warning about values, makes the result
INCONCLUSIVE, never a pass.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from migverify.db.session import Session
from migverify.db.snapshot import ReadSnapshot, open_snapshot
from migverify.errors import IncompleteReadError, MigverifyError
from migverify.model import ColumnDef, Endpoint, KeyText
from migverify.recon.build import Shown
from migverify.recon.candidates import key_order
from migverify.recon.describe import Describe
from migverify.recon.evaluate import Conditions, Sink, keyed, moves
from migverify.recon.exceptions import Exceptions
from migverify.recon.expectations import Expectation, LooksAt, check_suite, in_catalog, read_suite, shown_columns
from migverify.recon.model import (
    Class,
    CoveredWindows,
    Deviation,
    ParameterValue,
    RuleFinding,
    RuleResult,
    Window,
)
from migverify.recon.rule import Rule, RuleSet, values_for
from migverify.recon.sides import DatasetSide, open_side
from migverify.recon.verdict import FindingTally, conclude
from migverify.secrets import scrub
from migverify.sql import expectations as sql
from migverify.sql.recon import select_sql
from migverify.sql.server import TIDB_PROBE

DEFAULT_LIMIT = 1000
# Out of range, truncated, not a number or time, division by zero, cut: the answer is of other values than the table's.
_ALTERED = frozenset({"1260", "1264", "1265", "1292", "1301", "1365", "1366", "1411", "1525", "1690"})


Row = dict[str, str | None]


@dataclass(frozen=True, slots=True)
class ExpectationAnswer:
    """The answer to one expectation on one endpoint.

    ``holds`` None: not answered, and ``words`` say why; else they hold what was observed. ``unexpected`` is the exact
    number of rows that do not hold, None where it is about no rows; ``rows`` are at most ``limit`` of them.
    """

    expectation: Expectation
    holds: bool | None
    words: str = ""
    considered: int | None = None
    unexpected: int | None = None
    rows: Sequence[Row] = ()
    shard: str = ""

    def failure(self, *, show: bool) -> str:
        """Return what does not hold, without values of rows where these may not be shown."""
        if self.unexpected is not None:
            of = f" of {self.considered}" if self.considered is not None else ""
            listed = f"{len(self.rows)} of them are listed" if self.rows else "none is listed"
            return f"{self.unexpected}{of} rows do not hold; {listed}"
        limits = [f"{name} {format(value, 'f') if isinstance(value, Decimal) else value}"
                  for name, value in self.expectation.arguments.items() if not name.startswith("column")]  # fmt: skip
        return f"{self.words}{', expected ' + ', '.join(limits) if limits else ''}" if show else "it does not hold"


@dataclass(frozen=True, slots=True)
class SuiteAnswers:
    """All answers of one read of a suite, and the moments that were read, one for each endpoint."""

    answers: tuple[ExpectationAnswer, ...]
    rows: int
    snapshots: tuple[ReadSnapshot, ...]

    @property
    def gaps(self) -> tuple[str, ...]:
        """Why the verdict cannot be MATCH."""
        return tuple(
            scrub(f"{a.expectation.label} was not answered: {a.words}") for a in self.answers if a.holds is None
        )


@dataclass(frozen=True, slots=True)
class SuiteBatch:
    """The rows of a dataset on one endpoint as one batch, with the statements that answer a suite on them."""

    endpoint: str
    shard: str
    rows: str
    columns: Mapping[str, ColumnDef]
    shown: Sequence[str]

    def statement(self, one: Expectation) -> str:
        """Return the statement that answers an expectation; empty where the catalog does."""
        if one.known.looks_at is LooksAt.ROWS:
            return sql.counts(*self._conditions(one))
        column = self.columns[one.columns[0]] if one.columns else None
        return "" if one.known.looks_at is LooksAt.CATALOG else sql.of_all_rows(
            one.kind, column, self.rows, one.arguments
        )  # fmt: skip

    def listing(self, one: Expectation, limit: int) -> str:
        """Return the statement of rows that do not hold."""
        rows, counted, good = self._conditions(one)
        return sql.bad_rows(rows, list(dict.fromkeys([*self.shown, *one.columns])), counted, good, limit)

    def _conditions(self, one: Expectation) -> tuple[str, str, str]:
        columns = [self.columns[name] for name in one.columns]
        rows = sql.with_copies(self.rows, columns) if one.kind in sql.UNIQUE else self.rows
        considered = sql.considered(one.kind, columns, one.arguments.get("ignore_row_if"))
        return rows, considered, sql.good(one.kind, columns, one.arguments)


def batches_of(rule: Rule, side: DatasetSide) -> list[SuiteBatch]:
    """Return one batch for each endpoint, in the order of their names."""
    found = []
    for name in sorted({str(getattr(part.part, "endpoint", "")) for part in side.parts}):
        parts = [part for part in side.parts if getattr(part.part, "endpoint", "") == name]
        shards = {part.part.shard for part in parts}
        columns = {column: known.definition for column, known in parts[0].columns.items()}
        rows = sql.batch_of([
            select_sql(part.table, [(column, known.sql) for column, known in part.columns.items()], part.where)
            for part in parts
        ])  # fmt: skip
        shown = shown_columns(rule) if rule.key else list(columns)
        found.append(SuiteBatch(name, shards.pop() if len(shards) == 1 else "", rows, columns, shown))
    return found


class SuiteRunner:
    """Evaluates rules of kind ``expectations``; ``endpoints`` and ``secrets`` are by name of the endpoint."""

    def __init__(
        self, rules: RuleSet, given: Mapping[str, ParameterValue], endpoints: Mapping[str, Endpoint],
        secrets: Mapping[str, str], describe: Describe, conditions: Conditions,
    ) -> None:  # fmt: skip
        self._rules, self._given, self._endpoints, self._secrets = rules, given, endpoints, secrets
        self._describe, self._conditions = describe, conditions

    def __call__(self, rule: Rule, window: Window | None, sink: Sink) -> RuleResult:
        """Run the suite of a rule, again where it finds something on data that moves; findings go to the sink."""
        started, rule = time.monotonic(), keyed(rule, self._rules)
        suite, side = self.prepared(rule, window)
        conditions, late = self._conditions, list[RuleFinding]()
        read = ask(rule, suite, side, self._endpoints, self._secrets)
        found = findings_of(rule, read, _columns(side), show=conditions.show)
        for number in range(rule.rereads if moves(self._rules.datasets[rule.source]) and found else 0):
            conditions.sleep(rule.delay)
            read = ask(rule, suite, side, self._endpoints, self._secrets)
            now = findings_of(rule, read, _columns(side), show=conditions.show)
            reason = f"did not hold first, holds at read {number + 2}"
            late += [
                replace(one, kind=Class.LATE_MATCHED, money=None, currency=None, reads=number + 2, reason=reason)
                for key, one in found.items() if key not in now
            ]  # fmt: skip
            found = {key: replace(one, reads=number + 2) for key, one in now.items() if key in found}
        tally, at = FindingTally(), conditions.now()
        exceptions = Exceptions.of(rule.name, self._rules.exceptions, datetime(1970, 1, 1) + timedelta(seconds=at))
        every = [exceptions.apply(replace(one, window=window, at=at)) for one in [*found.values(), *late]]
        for start in range(0, len(every), conditions.batch):
            sink(every[start : start + conditions.batch])
        for one in every:
            tally.add(one)
        covered = CoveredWindows(rows_source=read.rows, groups=len(suite))
        verdict, reasons = conclude(rule, window, tally.counts, covered, read.gaps)
        failed = [f"{a.expectation.label}: {a.failure(show=conditions.show)}" for a in read.answers if a.holds is False]
        return RuleResult(
            rule.name, window, verdict, (*reasons, *failed), covered, dict(tally.counts), tally.money, read.snapshots,
            time.monotonic() - started, tally.at_risk(), gaps=read.gaps,
        )  # fmt: skip

    def prepared(self, rule: Rule, window: Window | None) -> tuple[tuple[Expectation, ...], DatasetSide]:
        """Read and check the suite of a rule; ``ConfigError`` where it does not fit the dataset."""
        return prepare(rule, self._rules, window, self._describe, values_for(self._rules, self._given, window))

    def shown(self, rule: Rule, window: Window | None) -> Iterator[Shown]:
        """Yield the statements that answer the suite of a rule, for ``recon explain``."""
        suite, side = self.prepared(rule, window)
        for batch in batches_of(rule, side):
            texts = [sql.row_count(batch.rows), *filter(None, map(batch.statement, suite))]
            yield from (Shown(rule.source, batch.endpoint, batch.shard, text) for text in texts)


def prepare(
    rule: Rule, rules: RuleSet, window: Window | None, describe: Describe, values: Mapping[str, ParameterValue]
) -> tuple[tuple[Expectation, ...], DatasetSide]:
    """Return the checked suite of a rule, and its dataset in a window."""
    dataset = rules.datasets[rule.source]
    side = open_side(dataset, rule.refusal, describe, values, window)
    return check_suite(rule, dataset, _columns(side), read_suite(rule)), side


def _columns(side: DatasetSide) -> list[ColumnDef]:
    return [column.definition for column in side.parts[0].columns.values()]


def ask(
    rule: Rule, suite: Sequence[Expectation], side: DatasetSide, endpoints: Mapping[str, Endpoint],
    secrets: Mapping[str, str],
) -> SuiteAnswers:  # fmt: skip
    """Ask each endpoint all expectations at one moment; the parts on one endpoint are one batch, their union."""
    answers: list[ExpectationAnswer] = []
    snapshots: list[ReadSnapshot] = []
    rows, listed = 0, (rule.options.get("result_format") or "SUMMARY") in ("SUMMARY", "COMPLETE")
    limit = (rule.options.get("limit") or DEFAULT_LIMIT) if listed else 0
    for batch in batches_of(rule, side):
        # One session: a transaction at its timestamp on TiDB, one consistent snapshot elsewhere.
        with open_snapshot(endpoints[batch.endpoint], secrets, 1, TIDB_PROBE) as opened:
            session = opened.sessions[0]
            rows += int(session.query(sql.row_count(batch.rows))[0][0] or 0)
            answers += [replace(_answer(session, batch, one, limit), shard=batch.shard) for one in suite]
            snapshots.append(opened.snapshot)
    return SuiteAnswers(tuple(answers), rows, tuple(snapshots))


def _answer(session: Session, batch: SuiteBatch, one: Expectation, limit: int) -> ExpectationAnswer:
    """Answer one expectation; a read that fails, or that the server warned of, leaves it unanswered."""
    if one.known.looks_at is LooksAt.CATALOG:
        return ExpectationAnswer(one, *in_catalog(one, batch.columns))
    try:
        (answer,) = session.query(batch.statement(one))
        _refuse_warnings(session)
        if one.known.looks_at is LooksAt.ALL:
            observed = "NULL (no rows)" if answer[0] is None else answer[0]
            return ExpectationAnswer(one, answer[1] == "1", f"observed {observed}")
        _, count, bad = (int(text or 0) for text in answer)
        # Of no rows, all hold, as in Great Expectations. How many there were is part of every report.
        holds = not bad or Fraction(count - bad, count) >= Fraction(one.mostly)
        rows = [] if holds or not limit else session.query_named(batch.listing(one, limit))
        _refuse_warnings(session)
    except MigverifyError as error:
        return ExpectationAnswer(one, None, error.message)
    return ExpectationAnswer(one, holds, "", count, bad, [_hexed(row, batch.columns) for row in rows])


def _hexed(row: Row, columns: Mapping[str, ColumnDef]) -> Row:
    return {
        name: "0x" + text.encode("utf-8", "surrogateescape").hex() if text is not None and sql.is_binary(columns[name])
        else text for name, text in row.items()
    }  # fmt: skip


def _refuse_warnings(session: Session) -> None:
    for warning in session.warnings():
        if warning.partition(":")[0] in _ALTERED:
            raise IncompleteReadError(f"the server warned that a value is not what it was: {warning}")


def findings_of(
    rule: Rule, read: SuiteAnswers, columns: Sequence[ColumnDef], *, show: bool
) -> dict[KeyText, RuleFinding]:
    """Return one finding a row that does not hold, and one an expectation about no row or with more rows than listed.

    A row that breaks two expectations is one finding. Rows come first, in the order of their keys.
    """
    broken: dict[KeyText, dict[int, list[tuple[Row, ExpectationAnswer]]]] = {}
    failed = [answer for answer in read.answers if answer.holds is False]
    for answer in failed:
        for row in answer.rows:
            key = _key(rule, row, show=show)
            broken.setdefault(key, {}).setdefault(answer.expectation.number, []).append((row, answer))
    known = {column.name: column for column in columns}
    order = [known[name] for name in rule.key] if rule.key else list(columns)
    found = {
        key: _of_row(rule, key, broken[key], show=show) for key in sorted(broken, key=lambda k: key_order(k, order))
    }
    for answer in failed:
        if answer.unexpected is None or len(answer.rows) < answer.unexpected:
            key = (answer.expectation.label, *([answer.shard] if answer.shard else []))
            found[key] = RuleFinding(
                rule.name, key, Class.VIOLATION, Class.VIOLATION,
                f"{answer.expectation.name}: {answer.failure(show=show)}",
                counts=(answer.unexpected or 0, 0), shard=answer.shard,
            )  # fmt: skip
    return found


def _key(rule: Rule, row: Row, *, show: bool) -> KeyText:
    if rule.key:
        return tuple(row[column] for column in rule.key)
    if show:
        return tuple(row.values())
    # The row's text is its values: only its hash may be kept.
    return ("sha256:" + hashlib.sha256(json.dumps(list(row.values())).encode()).hexdigest(),)


def _of_row(
    rule: Rule, key: KeyText, broken: Mapping[int, list[tuple[Row, ExpectationAnswer]]], *, show: bool
) -> RuleFinding:
    """Return the finding of the rows of one key, which break expectations by number."""
    rows = [row for row, _ in max(broken.values(), key=len)]
    every = [entry for entries in broken.values() for entry in entries]
    words = "; ".join(dict.fromkeys(answer.expectation.name for _, answer in every))
    if rule.key:
        parts = (
            f"{n.removesuffix('_id') or n} {'NULL' if v is None else v}" for n, v in zip(rule.key, key, strict=True)
        )
        words = f"{', '.join(parts)}: {words}"
    amounts = [Decimal(row[rule.money.column] or 0) for row in rows if rule.money and row.get(rule.money.column)]
    values = {name: text for row, _ in every for name, text in row.items() if name not in rule.key}
    return RuleFinding(
        rule.name, key, Class.VIOLATION, Class.VIOLATION, words,
        tuple(Deviation(name, text, None) for name, text in values.items()) if show else (),
        sum(map(abs, amounts), Decimal(0)) if amounts else None,
        (rule.money.constant or rows[0].get(rule.money.currency)) if rule.money and amounts else None,
        (len(rows), 0), shard=", ".join(dict.fromkeys(answer.shard for _, answer in every if answer.shard)),
    )  # fmt: skip

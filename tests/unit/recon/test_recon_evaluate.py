"""One rule in one window: re-reads, settle time, exceptions, money, verdicts; whatever the batches."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.errors import CanceledError, ReadError, StoreError
from migverify.model import Verdict
from migverify.recon.amounts import total
from migverify.recon.build import KindCheck
from migverify.recon.evaluate import evaluate
from migverify.recon.exceptions import KnownException
from migverify.recon.fields import Money
from migverify.recon.model import MISMATCHES, Class, RuleResult, Severity, Window
from migverify.recon.relation import JoinFilter, KeyRows
from migverify.recon.rule import Rule
from tests.rule_fakes import (
    START,
    Basket,
    Clock,
    FakeEngine,
    Rows,
    built,
    changed,
    column,
    excused,
    held,
    relation,
    rule_of,
    rule_set,
)

RULE = rule_of("same_rows", target="payments", money=Money(column="amount", currency="'EUR'"))
KEY, VALUES = [column("id", "bigint")], [column("amount"), column("at", "datetime")]
READS = built(relation("orders", KEY, VALUES, 1), relation("payments", KEY, VALUES, 1), times=("at", "at"))
OLD = "2020-01-01 00:00:00"
NOW = datetime(1970, 1, 1) + timedelta(seconds=START)
WINDOW = Window(NOW - timedelta(hours=2), NOW - timedelta(hours=1))
MATCHED: dict[str, Rows] = {"orders": {("1",): held("1", OLD)}, "payments": {("1",): held("1", OLD)}}


def world(source: str | None, target: str | None, at: str = OLD) -> dict[str, Rows]:
    """One key, and a second one that always matches."""
    sides = {"orders": source, "payments": target}
    return {name: {("0",): held("0", OLD), **({("42",): held(text, at)} if text is not None else {})}
            for name, text in sides.items()}  # fmt: skip


def run(*moments: dict[str, Rows], rule: Rule = RULE, exceptions: tuple[KnownException, ...] = (),
        clock: Clock | None = None, **more: Any) -> tuple[RuleResult, Basket, FakeEngine]:  # fmt: skip
    clock, basket = clock or Clock(), Basket()
    engine = FakeEngine(clock, *moments)
    engine.fail, engine.fail_lookup = more.pop("fail", None), more.pop("fail_lookup", None)
    rules = rule_set(rule, *exceptions, static=more.pop("static", False))
    reads, window = more.pop("reads", READS), more.pop("window", None)
    result = evaluate(rule, rules, window, engine, reads, basket, clock.conditions(**more))
    return result, basket, engine


class TestPersistence:
    def test_what_differs_in_every_read_is_a_finding(self) -> None:
        result, found, engine = run(world("10.00", "10.01"))
        assert result.verdict is Verdict.MISMATCH
        assert [(f.kind, f.reads, f.money, f.currency) for f in found] == [
            (Class.VALUE_MISMATCH, 3, Decimal("0.01"), "EUR"),
        ]  # fmt: skip
        assert engine.lookups == [1, 1, 1, 1]
        assert result.counts == {Class.VALUE_MISMATCH: 1}
        assert result.covered.matched == 1

    @pytest.mark.parametrize("differing", [1, 2])
    def test_what_becomes_equal_is_late_then_matched(self, differing: int) -> None:
        moments = [world("10.00", None)] * differing + [world("10.00", "10.00")]
        result, found, _ = run(*moments)
        assert result.verdict is Verdict.MATCH
        assert [(f.kind, f.of, f.money, f.reads) for f in found] == [
            (Class.LATE_MATCHED, Class.MISSING_ON_TARGET, None, differing + 1),
        ]  # fmt: skip
        assert result.money == {}

    def test_rows_that_change_between_reads_are_pending(self) -> None:
        result, found, _ = run(world("1", "0"), world("2", "1"), world("3", "2"))
        assert result.verdict is Verdict.INCONCLUSIVE
        assert [(f.kind, f.of) for f in found] == [(Class.PENDING, Class.VALUE_MISMATCH)]
        assert "changed while they were read" in found[0].reason

    def test_static_data_is_read_once(self) -> None:
        result, found, engine = run(world("1", "2"), world("1", "1"), static=True)
        assert (result.verdict, engine.lookups, found[0].reads) == (Verdict.MISMATCH, [], 1)

    def test_without_rereads_the_first_read_decides(self) -> None:
        result, _, engine = run(world("1", "2"), rule=changed(RULE, rereads=0))
        assert (result.verdict, engine.lookups) == (Verdict.MISMATCH, [])

    def test_reads_are_delay_apart(self) -> None:
        clock = Clock()
        run(world("1", "2"), clock=clock, rule=changed(RULE, rereads=3, delay=2.5))
        assert clock.slept == [2.5, 2.5, 2.5]

    def test_nothing_waits_where_nothing_differs(self) -> None:
        clock = Clock()
        result, _, _ = run(MATCHED, clock=clock)
        assert (result.verdict, clock.slept) == (Verdict.MATCH, [])


class TestSettleTime:
    RULE = changed(RULE, settle=60.0)

    @pytest.mark.parametrize(("age", "kind", "verdict"), [
        (10, Class.PENDING, Verdict.INCONCLUSIVE), (57, Class.PENDING, Verdict.INCONCLUSIVE),
        (59, Class.MISSING_ON_TARGET, Verdict.MISMATCH), (600, Class.MISSING_ON_TARGET, Verdict.MISMATCH),
    ])  # fmt: skip
    def test_a_row_is_judged_when_its_own_time_is_past(self, age: int, kind: Class, verdict: Verdict) -> None:
        at = f"{NOW - timedelta(seconds=age):%Y-%m-%d %H:%M:%S.%f}"
        result, found, _ = run(world("1", None, at), rule=self.RULE)
        assert (found[0].kind, result.verdict) == (kind, verdict)

    def test_rows_without_a_time_are_waited_for(self) -> None:
        clock = Clock()
        reads = replace(READS, times=(None, None))
        result, found, _ = run(world("1", None), rule=self.RULE, reads=reads, clock=clock)
        assert (found[0].kind, result.verdict) == (Class.MISSING_ON_TARGET, Verdict.MISMATCH)
        assert sum(clock.slept) >= 60

    def test_but_not_forever(self) -> None:
        reads = replace(READS, times=(None, None))
        result, found, _ = run(world("1", None), rule=self.RULE, reads=reads, longest_wait=5.0)
        assert (found[0].kind, result.verdict) == (Class.PENDING, Verdict.INCONCLUSIVE)
        assert "settle time ends in" in found[0].reason

    def test_rows_of_a_window_without_a_time_are_as_old_as_its_end(self) -> None:
        reads = replace(READS, times=(None, None))
        fresh = Window(NOW - timedelta(seconds=70), NOW - timedelta(seconds=20))
        for window, kind in ((fresh, Class.PENDING), (WINDOW, Class.MISSING_ON_TARGET)):
            _, found, _ = run(world("1", None), rule=self.RULE, reads=reads, window=window)
            assert [(f.kind, f.window) for f in found] == [(kind, window)]


class TestExceptions:
    def entry(self, key: tuple[str | None, ...] | None, days: int, owner: str = "ann") -> KnownException:
        return excused("r", key, owner, "ticket 7", NOW + timedelta(days=days))

    @pytest.mark.parametrize("key", [("42",), None])
    def test_a_known_exception_is_no_mismatch(self, key: tuple[str | None, ...] | None) -> None:
        result, found, _ = run(world("1", "2"), exceptions=(self.entry(key, 1),))
        assert (result.verdict, found[0].kind) == (Verdict.MATCH, Class.KNOWN_EXCEPTION)
        assert "ann" in found[0].reason
        assert "ticket 7" in found[0].reason
        assert result.money == {(Class.KNOWN_EXCEPTION, "EUR"): Decimal(1)}
        assert result.unexplained == {}

    @pytest.mark.parametrize("days", [-1, 0])
    def test_an_expired_one_is_a_finding_again_and_says_so(self, days: int) -> None:
        result, found, _ = run(world("1", "2"), exceptions=(self.entry(("42",), days),))
        assert (result.verdict, found[0].kind) == (Verdict.MISMATCH, Class.VALUE_MISMATCH)
        assert "expired on" in found[0].reason
        assert any("exception that expired" in reason for reason in result.reasons)

    def test_one_that_holds_beats_one_that_expired(self) -> None:
        _, found, _ = run(world("1", "2"), exceptions=(self.entry(("42",), -1), self.entry(None, 1, "bob")))
        assert (found[0].kind, "bob" in found[0].reason) == (Class.KNOWN_EXCEPTION, True)

    def test_of_another_key_or_rule_does_not_count(self) -> None:
        other = excused("another", None, "ann", "x", NOW + timedelta(days=1))
        result, _, _ = run(world("1", "2"), exceptions=(self.entry(("43",), 1), other))
        assert result.verdict is Verdict.MISMATCH


class TestVerdicts:
    def test_a_failed_read_is_inconclusive_with_its_reason(self) -> None:
        result, found, _ = run(MATCHED, fail=ReadError("connection lost"))
        assert (result.verdict, list(found)) == (Verdict.INCONCLUSIVE, [])
        nothing = "there was nothing to compare: no rows were read"
        assert result.reasons == result.gaps == ("not read: connection lost", nothing)

    def test_what_could_not_be_read_again_is_no_finding(self) -> None:
        result, found, _ = run(world("1", "2"), fail_lookup=ReadError("connection lost"))
        assert result.verdict is Verdict.INCONCLUSIVE
        assert [(f.kind, f.of) for f in found] == [(Class.PENDING, Class.VALUE_MISMATCH)]
        assert "connection lost" in found[0].reason

    def test_a_warning_is_reported_and_makes_no_mismatch(self) -> None:
        result, found, _ = run(world("1", "2"), rule=changed(RULE, severity=Severity.WARNING))
        assert (result.verdict, found[0].kind) == (Verdict.MATCH, Class.VALUE_MISMATCH)
        assert any("a warning" in reason for reason in result.reasons)

    def test_no_rows_at_all_are_not_a_match(self) -> None:
        empty: dict[str, Rows] = {"orders": {}, "payments": {}}
        result, _, _ = run(empty)
        assert result.verdict is Verdict.INCONCLUSIVE
        assert "nothing to compare" in result.reasons[0]

    def test_columns_of_one_side_are_a_note_and_no_gap(self) -> None:
        result, _, _ = run(world("1", "2"), reads=replace(READS, left_out=("note",)))
        assert result.gaps == ()
        assert any("one side alone" in reason for reason in result.reasons)

    def test_an_empty_window_is_a_match_that_says_so(self) -> None:
        empty: dict[str, Rows] = {"orders": {}, "payments": {}}
        result, _, _ = run(empty, window=WINDOW)
        assert result.verdict is Verdict.MATCH
        assert "there are no rows in" in result.reasons[0]
        assert result.gaps == ()

    def test_no_rows_is_an_answer_where_no_row_may_be(self) -> None:
        of = rule_of("no_rows")
        reads = built(relation("orders", KEY, VALUES), None, JoinFilter(all=True))
        empty: dict[str, Rows] = {"orders": {}}
        assert run(empty, rule=of, reads=reads)[0].verdict is Verdict.MATCH
        one: dict[str, Rows] = {"orders": {("1",): held("1", OLD)}}
        assert run(one, rule=of, reads=reads)[0].verdict is Verdict.MISMATCH

    @pytest.mark.parametrize(("answer", "verdict"), [
        ([("0",)], Verdict.MATCH), ([("3",)], Verdict.INCONCLUSIVE), ([(None,)], Verdict.INCONCLUSIVE),
        ([], Verdict.INCONCLUSIVE),
    ])  # fmt: skip
    def test_a_check_that_is_not_zero_makes_a_match_impossible(self, answer: Any, verdict: Verdict) -> None:
        clock = Clock()
        engine = FakeEngine(clock, MATCHED)
        engine.answers["SELECT nulls"] = answer
        reads = replace(READS, checks=(KindCheck("source", "SELECT nulls", "{} rows have no time"),))
        result = evaluate(RULE, rule_set(RULE), None, engine, reads, Basket(), clock.conditions())
        assert result.verdict is verdict
        if answer == [("3",)]:
            assert result.reasons == ("3 rows have no time",)

    def test_ctrl_c_and_a_full_store_are_passed_on(self) -> None:
        with pytest.raises(KeyboardInterrupt):
            run(MATCHED, fail=CanceledError("stopped"))

        def full(_: object) -> None:
            raise StoreError("the store is full")

        clock = Clock()
        with pytest.raises(StoreError):
            evaluate(RULE, rule_set(RULE), None, FakeEngine(clock, world("1", "2")), READS, full, clock.conditions())


class TestWiderReads:
    @pytest.mark.parametrize(("rereads", "static"), [(0, False), (2, True), (2, False)])
    def test_one_looks_over_the_border_also_where_nothing_is_read_again(self, rereads: int, static: bool) -> None:
        wide = built(relation("orders", KEY, VALUES, 1), relation("all payments", KEY, VALUES, 1), times=("at", "at"))
        clock, basket, rule = Clock(), Basket(), changed(RULE, rereads=rereads)
        rules = rule_set(rule, static=static)
        rules.datasets["all payments"] = rules.datasets["payments"]
        moment = {**world("1", None), "all payments": {("42",): held("1", OLD)}}
        result = evaluate(rule, rules, WINDOW, FakeEngine(clock, moment), READS, basket, clock.conditions(), wide=wide)
        assert (result.verdict, list(basket)) == (Verdict.MATCH, [])
        assert (result.covered.matched, result.covered.crossed) == (2, 1)

    def test_a_row_that_comes_late_into_its_window_did_not_cross(self) -> None:
        wide = built(relation("orders", KEY, VALUES, 1), relation("all payments", KEY, VALUES, 1), times=("at", "at"))
        clock, basket, rules = Clock(), Basket(), rule_set(RULE)
        rules.datasets["all payments"] = rules.datasets["payments"]
        there = {("42",): held("1", OLD)}
        first, later = ({**world("1", text), "all payments": there} for text in (None, "1"))
        engine = FakeEngine(clock, first, later)
        result = evaluate(RULE, rules, WINDOW, engine, READS, basket, clock.conditions(), wide=wide)
        assert ([f.kind for f in basket], result.covered.crossed) == ([Class.LATE_MATCHED], 0)


AMOUNTS = st.none() | st.decimals(
    allow_nan=False, allow_infinity=False, places=4, min_value=-(10**18), max_value=10**18
)
SIDES = st.dictionaries(st.integers(0, 30).map(lambda n: (str(n),)), AMOUNTS, max_size=12)


@settings(max_examples=30)
@given(ours=SIDES, theirs=SIDES, later=SIDES, batch=st.integers(1, 7), size=st.integers(1, 7))
def test_findings_and_sums_do_not_depend_on_batches(ours: Any, theirs: Any, later: Any, batch: int, size: int) -> None:
    def rows(side: Any) -> dict[Any, KeyRows]:
        return {key: held(None if value is None else str(value), OLD) for key, value in side.items()}

    moments = [{"orders": rows(ours), "payments": rows(theirs)}, {"orders": rows(ours), "payments": rows(later)}]
    outcomes = []
    for each_batch, each_size in ((1000, 1000), (batch, size)):
        clock, basket = Clock(), Basket()
        engine = FakeEngine(clock, *moments, size=each_size)
        result = evaluate(RULE, rule_set(RULE), None, engine, READS, basket, clock.conditions(batch=each_batch))
        assert max([0, *basket.batches]) <= each_batch
        assert len(basket.by_key) == len(basket)
        for kind in MISMATCHES:
            expected = total(f.money for f in basket if f.kind is kind and f.money is not None)
            assert result.money.get((kind, "EUR"), Decimal(0)) == expected
        outcomes.append((replace(result, seconds=0.0), basket.by_key))
    assert outcomes[0] == outcomes[1]


class TestParts:
    def rows(self, count: int) -> dict[str, Rows]:
        return {"orders": {(str(n), "private"): held(str(n), OLD) for n in range(count)}}

    def test_rows_above_the_limit_are_counted_and_not_kept(self) -> None:
        of = rule_of("no_rows", rereads=0, money=RULE.money, limit=3)
        reads = built(relation("orders", [*KEY, column("note", "varchar")], VALUES), None, JoinFilter(all=True))
        result, found, _ = run(self.rows(10), rule=of, reads=reads, batch=2)
        assert (len(found), result.counts) == (3, {Class.VIOLATION: 10})
        assert result.money == {(Class.VIOLATION, "EUR"): Decimal(45)}
        assert any("7 more findings are counted and not kept" in reason for reason in result.reasons)

    def test_a_row_without_a_key_is_told_by_its_hash_where_values_are_masked(self) -> None:
        of = rule_of("no_rows", rereads=1)
        reads = built(relation("orders", [*KEY, column("note", "varchar")], VALUES), None, JoinFilter(all=True))
        _, found, _ = run(self.rows(2), rule=of, reads=reads, show=False)
        assert len({f.key for f in found}) == 2
        assert all(f.key[0] is not None and f.key[0].startswith("sha256:") for f in found)
        assert "private" not in " ".join(f.message for f in found)
        _, shown, _ = run(self.rows(2), rule=of, reads=reads)
        assert shown[0].key == ("0", "private")

"""Kinds as truth tables: pairs that must be found, pairs that must not, what they say and what they cost."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.recon.amounts import amount, distance, plain, total
from migverify.recon.fields import Money
from migverify.recon.model import Class, RuleFinding
from migverify.recon.relation import Combine, KeyRows, Pairing, Relation
from migverify.recon.rule import Rule, judging
from tests.rule_fakes import START, built, changed, column, held, relation, rule_of

EUR = Money(column="amount", currency="currency")


def rule(kind: str, target: str | None = "payments", **more: Any) -> Rule:
    return rule_of(kind, "orders", target, **more)


def judged(
    of: Rule, source: KeyRows | None, target: KeyRows | None, ours: Relation, theirs: Relation | None,
    key: tuple[str | None, ...] = ("42",), *, show: bool = True,
) -> RuleFinding | None:  # fmt: skip
    return of.judge(judging(of, built(ours, theirs), START, show=show), Pairing(key, source, target))


KEY = [column("payment_id", "bigint")]
VALUES = [column("amount"), column("state", "varchar"), column("currency", "char")]
ORDERS = relation("orders", KEY, VALUES, carried=1)
PAYMENTS = relation("payments", KEY, VALUES, carried=1)
ROW = held("10.00", "paid", "EUR")


class TestSameRows:
    @pytest.mark.parametrize(("source", "target", "options"), [
        (ROW, ROW, {}),
        (ROW, held("10.000", "paid", "EUR"), {}),
        (ROW, held("10.01", "paid", "EUR"), {"tolerance": {"amount": Decimal("0.01")}}),
        (ROW, held("10.01", "paid", "EUR"), {"compare": ("state",)}),
        (ROW, held("10.00", "paid", "USD"), {}),  # the currency is only read along
        (held(*ROW.values, count=2), ROW, {"duplicates": "allow"}),
        (None, None, {}),
    ])  # fmt: skip
    def test_what_agrees_is_no_finding(
        self, source: KeyRows | None, target: KeyRows | None, options: dict[str, Any]
    ) -> None:
        assert judged(rule("same_rows", **options), source, target, ORDERS, PAYMENTS) is None

    @pytest.mark.parametrize(("source", "target", "options", "of", "message", "money"), [
        (ROW, held("10.01", "paid", "EUR"), {}, Class.VALUE_MISMATCH,
         "payment 42: amount 10.00 on orders, 10.01 on payments", [("EUR", "0.01")]),
        (ROW, held("10.0100001", "paid", "EUR"), {"tolerance": {"amount": Decimal("0.01")}}, Class.VALUE_MISMATCH,
         "payment 42: amount 10.00 on orders, 10.0100001 on payments", [("EUR", "0.0100001")]),
        (ROW, held(None, "paid", "EUR"), {}, Class.VALUE_MISMATCH,
         "payment 42: amount 10.00 on orders, NULL on payments", []),
        (ROW, held("10.00", "open", "USD"), {}, Class.VALUE_MISMATCH,
         "payment 42: state paid on orders, open on payments", [("EUR", "10.00"), ("USD", "10.00")]),
        (ROW, None, {}, Class.MISSING_ON_TARGET, "payment 42: on orders, missing on payments", [("EUR", "10.00")]),
        (None, held("-7.5", "paid", "JPY", count=2), {}, Class.MISSING_ON_SOURCE,
         "payment 42: 2 rows on payments, none on orders", [("JPY", "15.0")]),
        (ROW, held(*ROW.values, count=3), {}, Class.DUPLICATE, "payment 42: 1 row on orders, 3 on payments",
         [("EUR", "20.00")]),
        (held(*ROW.values, count=2), held(*ROW.values, count=2), {}, Class.DUPLICATE,
         "payment 42: 2 rows on orders, 2 on payments", [("EUR", "10.00")]),
        (ROW, held("10.00", "paid", "EUR", count=2, differing=True), {"duplicates": "allow"},
         Class.VALUE_MISMATCH, "payment 42: rows of this key hold different values on payments", []),
        (held("", "paid", "EUR"), held(None, "paid", "EUR"), {}, Class.VALUE_MISMATCH,
         "payment 42: amount '' on orders, NULL on payments", []),
    ])  # fmt: skip
    def test_what_differs_is_told_and_counted(
        self, source: KeyRows, target: KeyRows, options: dict[str, Any], of: Class, message: str, money: list[Any]
    ) -> None:
        finding = judged(rule("same_rows", money=EUR, **options), source, target, ORDERS, PAYMENTS)
        assert finding is not None
        assert (finding.of, finding.message) == (of, message)
        assert [(c, str(m)) for c, m in [(finding.currency, finding.money), *finding.also] if m is not None] == money

    @pytest.mark.parametrize(("source", "why"), [
        (held(None, "paid", "EUR"), "amount is NULL on orders"), (held("x", "paid", "EUR"), "amount is not a number"),
        (held("NaN", "paid", "EUR"), "amount is not a number"), (held("1", "paid", None), "currency is NULL on orders"),
        (held("1", "paid", "EUR", count=2, differing=True), "different values on orders"),
    ])  # fmt: skip
    def test_money_that_is_not_known_is_a_reason_never_zero(self, source: KeyRows, why: str) -> None:
        finding = judged(rule("same_rows", money=EUR), source, None, ORDERS, PAYMENTS)
        assert finding is not None
        assert finding.money is None
        assert why in finding.reason

    def test_a_masked_message_tells_columns_and_classes_only(self) -> None:
        finding = judged(rule("same_rows"), ROW, held("10.01", "PAID", "EUR"), ORDERS, PAYMENTS, show=False)
        assert finding is not None
        assert finding.message == (
            "payment 42: amount differs (value) between orders and payments;"
            " state differs (case) between orders and payments"
        )

    def test_json_is_compared_by_value(self) -> None:
        values = [column("body", "json")]
        sides = relation("orders", KEY, values), relation("payments", KEY, values)
        one, other = held('{"a": 1, "b": 2}'), held('{"b": 2.0, "a": 1}')
        assert judged(rule("same_rows"), one, other, *sides) is None
        assert judged(rule("same_rows"), one, held('{"a": "1", "b": 2}'), *sides) is not None

    @pytest.mark.parametrize(("tolerance", "found"), [("1", False), ("0.999999", True)])
    def test_a_tolerance_of_times_is_in_seconds(self, tolerance: str, found: bool) -> None:
        values = [column("at", "datetime")]
        sides = relation("orders", KEY, values), relation("payments", KEY, values)
        of = rule("same_rows", tolerance={"at": Decimal(tolerance)})
        finding = judged(of, held("2026-01-31 00:00:00"), held("2026-01-31 00:00:01.000000"), *sides)
        assert (finding is not None) is found


class TestOrphans:
    PARENTS = relation("orders", [column("order_id", "bigint")], [])
    CHILDREN = relation("payments", [column("order_id", "bigint")], [column("amount"), column("currency")], carried=2)

    def test_a_child_without_parent(self) -> None:
        of = rule("orphans", money=EUR, reference="order_id")
        finding = judged(of, None, held("5", "EUR", count=2), self.PARENTS, self.CHILDREN)
        assert finding is not None
        assert (finding.of, finding.message) == (
            Class.MISSING_ON_SOURCE, "order 42: 2 rows of payments without orders",
        )  # fmt: skip

    @pytest.mark.parametrize(("both", "of"), [(False, None), (True, Class.MISSING_ON_TARGET)])
    def test_a_parent_without_child_only_where_asked(self, both: bool, of: Class | None) -> None:
        asked = rule("orphans", reference="order_id", both=both)
        finding = judged(asked, held(), None, self.PARENTS, self.CHILDREN)
        assert (finding.of if finding else None) == of

    @pytest.mark.parametrize(("optional", "of"), [(True, None), (False, Class.VIOLATION)])
    def test_a_reference_that_is_null(self, optional: bool, of: Class | None) -> None:
        asked = rule("orphans", reference="order_id", optional=optional)
        finding = judged(asked, None, held("5", "EUR"), self.PARENTS, self.CHILDREN, (None,))
        assert (finding.of if finding else None) == of

    def test_parent_and_children_are_fine(self) -> None:
        assert (
            judged(
                rule("orphans", reference="order_id"), held(), held("5", "EUR", count=9), self.PARENTS, self.CHILDREN
            )
            is None
        )


@pytest.mark.parametrize(("key", "count", "options", "found"), [
    (("a",), 1, {}, False), (("a",), 2, {}, True), ((None,), 2, {}, False), ((None,), 2, {"ignore_null": False}, True),
    (("a", None), 3, {}, False),
])  # fmt: skip
def test_unique(key: tuple[str | None, ...], count: int, options: dict[str, Any], found: bool) -> None:
    ours = relation(
        "orders", [column("request_id"), column("kind")][: len(key)], [column("amount"), column("currency")]
    )
    one = held("4.50", "EUR", count=count, shards=("s1", "s2"))
    finding = judged(rule("unique", None, money=EUR, **options), one, None, ours, None, key)
    assert (finding is not None) is found
    if finding is not None:
        assert "shards s1, s2" in finding.message
        assert finding.money == Decimal("4.50") * (count - 1)


class TestGroups:
    VALUES = (column("count(*)", "bigint"), column("sum(amount)"), column("max(at)", "datetime"))
    OURS = relation("orders", [column("currency", "char")], VALUES, how=Combine.SUM)
    THEIRS = relation("payments", [column("currency", "char")], VALUES, how=Combine.SUM)
    OF = rule("same_groups", money=EUR, groups="currency", measures=["count", "sum(amount)", "max(at)"])

    def judge(self, source: KeyRows | None, target: KeyRows | None, of: Rule | None = None) -> RuleFinding | None:
        return judged(of or self.OF, source, target, self.OURS, self.THEIRS, ("EUR",))

    def test_equal_sums_in_another_scale(self) -> None:
        assert self.judge(held("2", "10.50", "2026-01-01"), held("2", "10.500000", "2026-01-01")) is None

    def test_a_sum_beyond_a_float(self) -> None:
        one, other = held("2", "9007199254740993.0001", None), held("2", "9007199254740993.0002", None)
        finding = self.judge(one, other)
        assert finding is not None
        assert (finding.money, finding.currency) == (Decimal("0.0001"), "EUR")
        assert finding.message.startswith("currency EUR: sum(amount) 9007199254740993.0001 on orders, 9007")

    def test_a_group_on_one_side(self) -> None:
        finding = self.judge(None, held("2", "-7.10", None))
        assert finding is not None
        assert (finding.of, finding.money) == (Class.MISSING_ON_SOURCE, Decimal("7.10"))

    def test_null_and_zero_are_not_one(self) -> None:
        assert self.judge(held("2", None, None), held("2", "0", None)) is not None

    def test_a_tolerance_of_a_measure(self) -> None:
        of = changed(self.OF, tolerance={"sum(amount)": Decimal("0.05")})
        assert self.judge(held("2", "1.00", None), held("2", "1.05", None), of) is None
        assert self.judge(held("2", "1.00", None), held("2", "1.06", None), of) is not None
        assert self.judge(held("2", "1.00", None), held("3", "1.00", None), of) is not None


@pytest.mark.parametrize(("text", "tolerance", "found"), [
    ("0", None, False), ("0.0000", None, False), ("-0.00", None, False), ("0.0001", None, True), (None, None, True),
    ("0.01", "0.01", False), ("-0.02", "0.01", True),
])  # fmt: skip
def test_zero_sum(text: str | None, tolerance: str | None, found: bool) -> None:
    options = {"groups": ("transaction",), "amount": "amount", "currency": "currency"}
    of = rule("zero_sum", None, **options, tolerance={"amount": Decimal(tolerance)} if tolerance else {})
    ours = relation(
        "orders", [column("transaction"), column("currency", "char")], [column("sum(amount)")], how=Combine.SUM
    )
    finding = judged(of, held(text, count=2), None, ours, None, ("t1", "EUR"))
    assert (finding is not None) is found
    if finding is not None and text is not None:
        assert (finding.money, finding.currency) == (abs(Decimal(text)), "EUR")


@pytest.mark.parametrize(("balance", "entries", "of"), [
    (held("10.00"), held("10.0"), None), (held("0.00"), None, None),
    (held("10.00"), held("9.99"), Class.VALUE_MISMATCH),
    (held("10.00"), None, Class.MISSING_ON_TARGET), (None, held("5"), Class.MISSING_ON_SOURCE),
    (held("5", count=2), held("5"), Class.DUPLICATE), (held(None), held("5"), Class.VALUE_MISMATCH),
    (held(None), None, Class.MISSING_ON_TARGET), (held("0"), held(None), Class.VALUE_MISMATCH), (None, None, None),
])  # fmt: skip
def test_balance(balance: KeyRows | None, entries: KeyRows | None, of: Class | None) -> None:
    ours = relation("orders", [column("account", "bigint")], [column("balance")])
    theirs = relation("payments", [column("account", "bigint")], [column("sum(amount)")], how=Combine.SUM)
    finding = judged(
        rule("balance", balance="balance", entries_key="account", amount="amount"), balance, entries, ours, theirs
    )
    assert (finding.of if finding else None) == of


@pytest.mark.parametrize(("filled", "share", "found"), [
    ("10", "1.0", False), ("9", "1.0", True), ("9", "0.9", False), ("8", "0.9", True), ("0", "0", False),
])  # fmt: skip
def test_coverage(filled: str, share: str, found: bool) -> None:
    ours = relation("orders", [], [column("count(*)"), column("count(email)")], how=Combine.SUM)
    of = rule("coverage", None, columns={"email": Decimal(share)})
    assert (judged(of, held("10", filled, count=10), None, ours, None, ()) is not None) is found


@pytest.mark.parametrize(("newest", "found"), [
    ("2027-01-15 07:59:00", False), ("2027-01-15 07:54:59.9", True), (None, True), ("0000-00-00 00:00:00", True),
])  # fmt: skip
def test_freshness(newest: str | None, found: bool) -> None:
    ours = relation("orders", [], [column("max(at)", "datetime")], how=Combine.TEXT_MAX)
    of = rule("freshness", None, limit=300.0)
    finding = judged(of, held(newest), None, ours, None, ())
    assert (finding is not None) is found


class TestTransitions:
    OPTIONS: ClassVar[dict[str, Any]] = {
        "column": "state", "allowed": {"new": ["paid", "cancelled"], "paid": ["settled"]}, "initial": ["new"],
        "final": ["settled"],
    }  # fmt: skip
    OURS = relation("orders", KEY, [column("state", "varchar"), column("_before.state", "varchar"), column("_op")])

    @pytest.mark.parametrize(("operation", "before", "after", "wrong"), [
        ("insert", None, "new", ""), ("insert", None, "paid", "begins as paid"), ("update", "new", "paid", ""),
        ("update", "new", "new", ""), ("update", "paid", "new", "paid became new, which is not allowed"),
        ("update", "settled", "new", "settled is final, and became new"), ("delete", "settled", "settled", ""),
        ("update", "new", None, "new became nothing, which is not allowed"), (None, "paid", "settled", ""),
        (None, None, "paid", "begins as paid"),
    ])  # fmt: skip
    def test_table(self, operation: str | None, before: str | None, after: str | None, wrong: str) -> None:
        of = rule("transitions", None, **self.OPTIONS)
        finding = judged(of, held(after, before, operation), None, self.OURS, None)
        assert (finding.message if finding else "") == (f"payment 42: {wrong}" if wrong else "")

    def test_a_state_that_the_rule_does_not_name_is_masked(self) -> None:
        of = rule("transitions", None, **self.OPTIONS)
        finding = judged(of, held("secret", "new", "update"), None, self.OURS, None, show=False)
        assert finding is not None
        assert "secret" not in finding.message


DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**45), max_value=10**45, places=20)


@given(st.lists(DECIMALS))
def test_sums_of_money_are_exact(values: list[Decimal]) -> None:
    assert Fraction(total(values)) == sum((Fraction(value) for value in values), Fraction(0))


@given(DECIMALS, DECIMALS)
def test_a_distance_is_exact_and_reads_back(one: Decimal, other: Decimal) -> None:
    found = distance(one, other)
    assert Fraction(found) == abs(Fraction(one) - Fraction(other))
    assert amount(plain(found)) == found


@pytest.mark.parametrize("text", [None, "", "x", "NaN", "Infinity", "1e9999999", "1e-9999999"])
def test_what_is_no_amount(text: str | None) -> None:
    assert amount(text) is None


@pytest.mark.parametrize(
    ("last", "message"), [("5", "orders: id 5 is missing"), ("7", "orders: id 5 to 7 are missing")]
)
def test_sequence(last: str, message: str) -> None:
    ours = relation("orders", [column("id", "bigint")], [column("gap_from"), column("gap_to")])
    finding = judged(rule("sequence", None, column="id"), held("5", last), None, ours, None, ("8",))
    assert finding is not None
    assert finding.message == message

"""The payment load without a server: what it writes is legal, balanced, and the same for the same seed."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.errors import LabError
from migverify_lab.servers import LabServer
from migverify_lab.workload import FEWEST_ACCOUNTS, WorkloadOptions
from migverify_lab.workload_payments import Payments
from migverify_lab.workload_tables import account_id, account_rows, create_statements, milliseconds_of, snowflake

LEGAL = {
    "authorized": {"created"}, "captured": {"authorized"}, "settled": {"captured"}, "refunded": {"settled"},
    "failed": {"created", "authorized"},
}  # fmt: skip


def payments(seed: int = 1, node: int = 0, accounts: int = 40, start: int = 5, hot: float = 0.2) -> Payments:
    return Payments("`pay`", node, node * accounts, accounts, seed, hot, start, 0.5)


def written(load: Payments, transactions: int, size: int = 30) -> list[tuple[list[tuple[str, int | None]], int]]:
    return [load.transaction(size) for _ in range(transactions)]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 300))
def test_payments_go_legal_ways_and_money_adds_up(seed: int, size: int) -> None:
    states: dict[str, str] = {}
    sums: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    balances: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    from_entries: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    events: set[str] = set()
    for statements, changes in written(payments(seed), 40, size):
        counted = 0
        for sql, expected in statements:
            ids = re.findall(r"\d{5,}", sql.partition("WHERE")[2])
            if sql.startswith("INSERT INTO `pay`.payments"):
                found = re.findall(r"\((\d+), \d+, \d+, [\d.]+, '...', 'created'", sql)
                assert not set(found) & states.keys()
                states.update(dict.fromkeys(found, "created"))
                counted += len(found)
            elif sql.startswith("UPDATE `pay`.payments"):
                new = re.findall(r"state = '(\w+)'", sql)[0]
                for one in ids:
                    assert states[one] in LEGAL[new], f"{states[one]} -> {new}"
                    states[one] = new
                counted += len(ids)
            elif sql.startswith("INSERT INTO `pay`.ledger_entries"):
                entries = re.findall(r"\(\d+, (\d+), (\d+), '(...)', (-?[\d.]+), '\w+'", sql)
                for payment, account, currency, money in entries:
                    sums[payment, currency] += Decimal(money)
                    from_entries[account, currency] += Decimal(money)
                counted += len(entries)
            elif sql.startswith("INSERT INTO `pay`.wallets"):
                rows = re.findall(r"\((\d+), '(...)', (-?[\d.]+), \d+,", sql)
                assert len({row[:2] for row in rows}) == len(rows)
                for account, currency, money in rows:
                    balances[account, currency] += Decimal(money)
                counted += len(rows)
            elif sql.startswith("DELETE FROM `pay`.payments"):
                assert {states.pop(one) for one in ids} == {"failed"}
                counted += len(ids)
            elif sql.startswith("INSERT INTO `pay`.outbox"):
                keys = re.findall(r"\(x'(\w{32})'", sql)
                events |= set(keys)
                counted += len(keys)
            elif sql.startswith("DELETE FROM `pay`.outbox"):
                keys = re.findall(r"x'(\w{32})'", sql)
                assert set(keys) <= events
                events -= set(keys)
                counted += len(keys)
            else:
                assert sql.startswith("UPDATE `pay`.accounts")
                counted += len(ids)
            if expected is not None:
                assert expected > 0
        assert counted == changes >= size
    assert set(sums.values()) <= {Decimal(0)}
    assert balances == from_entries


def test_the_seed_decides_everything() -> None:
    assert written(payments(), 20) == written(payments(), 20)
    assert written(payments(), 20) != written(payments(2), 20)
    assert written(payments(), 20) != written(payments(start=6), 20), "a second load makes other keys"


def test_ids_are_snowflakes_and_nobody_else_has_them() -> None:
    seen: list[int] = []
    for node in (0, 1):
        mine = [
            int(found)
            for statements, _ in written(payments(node=node), 60, 400)
            for sql, _ in statements if "ledger_entries" in sql
            for found in re.findall(r"\((\d+), \d+, \d+, '", sql)
        ]  # fmt: skip
        assert mine == sorted(mine)
        assert {number >> 12 & 1023 for number in mine} == {node}
        assert milliseconds_of(mine[0]) >= 5
        seen += mine
    assert len(set(seen)) == len(seen)
    assert snowflake(1, 2, 3) == (1 << 22) + (2 << 12) + 3
    assert max(seen) < 1 << 63


def test_hot_payees_are_paid_more_often() -> None:
    def share(hot: float) -> float:
        payees = Counter(
            payee for statements, _ in written(payments(hot=hot, accounts=100), 60)
            for sql, _ in statements if sql.startswith("INSERT INTO `pay`.payments")
            for payee in re.findall(r"\(\d+, \d+, (\d+),", sql)
        )  # fmt: skip
        return (payees[str(account_id(2))] + payees[str(account_id(3))]) / payees.total()

    assert share(0.0) == 0
    assert 0.3 < share(0.5) < 0.7
    assert share(1.0) == 1


def test_both_sides_get_the_same_accounts() -> None:
    rows = list(account_rows(50, 1))
    assert rows == list(account_rows(50, 1)) != list(account_rows(50, 2))
    assert len({row.split(",")[0] for row in rows}) == 50
    assert sum(sql.startswith("CREATE TABLE") for sql in create_statements("`p`")) == 5


@pytest.mark.parametrize(
    "wrong", [{"connections": 0}, {"connections": 10, "accounts": 10 * FEWEST_ACCOUNTS - 1}, {"hot": 1.5},
              {"changes": 0}, {"rate": -1.0}],
)  # fmt: skip
def test_options_that_make_no_sense(wrong: dict[str, float]) -> None:
    with pytest.raises(LabError) as caught:
        WorkloadOptions(LabServer("h", 1, "root", "mysql", ""), **wrong)  # type: ignore[arg-type]
    assert caught.value.hint

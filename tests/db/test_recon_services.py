"""The services example end to end: what agrees is MATCH, each fault is seen by its rules and by no other."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest

from migverify.model import Verdict
from migverify.sql.quoting import quote_name
from migverify_lab import services
from migverify_lab.scenario import PlantedChange
from migverify_lab.servers import LabServers
from migverify_lab.services import ServiceNames, Services
from migverify_lab.services_faults import FAULTS, plant, take_back
from migverify_lab.session import connect, query, run
from tests.db.binlog_server import binlog_server
from tests.db.reconciling import Found, Outcome, example, ledger_server, mariadb_missing, reconcile

pytestmark = pytest.mark.db

CHANGES, ACCOUNTS = 1500, 40
LASTING = ("late-event", "illegal-transition")
"""Faults that cannot be taken back."""


@dataclass(frozen=True)
class Bench:
    """The services, and the example's files for them."""

    services: Services
    config: Path
    rules: Path

    def load(self) -> None:
        services.load(self.services, CHANGES, ACCOUNTS, seed=5)

    def run(self, *names: str, **more: object) -> Outcome:
        return reconcile(self.config, self.rules, *names, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def bench(pair: LabServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A source of its own, because the rule of the transitions reads its whole binlog; MariaDB; the run's TiDB."""
    if mariadb_missing() and os.environ.get("MIGVERIFY_REQUIRE_DB", "") in {"", "0"}:
        pytest.skip("MariaDB is neither on PATH nor in the cache")
    folder = tmp_path_factory.mktemp("services")
    mark = uuid.uuid4().hex[:8]
    names = ServiceNames(f"pay_{mark}", f"shop_{mark}", f"books_{mark}")
    with binlog_server(folder / "source") as source, ledger_server(folder / services.FOLDER) as ledger:
        made = services.named(LabServers(source.server, pair.target), ledger, names)
        config = folder / "migverify.yaml"
        config.write_text(services.configuration(made))
        rules = example("services", folder, {"pay": names.pay, "shop": names.shop, "books": names.books})
        found = Bench(made, config, rules)
        try:
            found.load()
            yield found
        finally:
            with connect(pair.target) as connection:
                run(connection, [f"DROP DATABASE IF EXISTS {quote_name(names.pay)}"])


def test_what_agrees_is_a_match(bench: Bench) -> None:
    ended = bench.run()
    assert ended.verdict is Verdict.MATCH, ended.reasons()
    assert len(ended.results) == 12
    assert all(result.verdict is Verdict.MATCH for result in ended.results.values())
    assert not any(ended.findings.values())
    for name, result in ended.results.items():
        covered = ended.recon(name)["covered"]
        if name != "no_failed_payment_is_booked":
            assert covered["rows_source"] or covered["events"], f"{name} read nothing"
        assert result.seconds > 0
    assert ended.recon("orders_match_payments")["covered"]["matched"] > 100
    assert ended.recon("captured_per_day")["covered"]["groups"] >= 7, "three days, three currencies"
    endpoints = {snapshot["endpoint"]: snapshot for name in ended.results for snapshot in ended.recon(name)["anchors"]}
    assert set(endpoints) == {"source", "target", "orders", "ledger"}


def money(planted: PlantedChange) -> dict[str, Decimal]:
    return {planted.facts["currency"]: Decimal(planted.facts["amount"])}


def expected(planted: PlantedChange, bench: Bench) -> dict[str, dict[tuple[str | None, ...], Found]]:
    """Return what each rule has to find: by key, class and money at risk. Worked out from what was planted."""
    facts = planted.facts
    payment = (facts.get("payment", ""),)
    match planted.fault:
        case "lost-event" | "late-event":
            return {
                "outbox_is_booked": {(*payment, "S"): Found("missing on source", money(planted))},
                "wallets_balance": _unpaid(bench, int(facts["payment"])),
            }
        case "doubled-payment":
            row = f"{bench.services.names.table('pay', 'payments')} WHERE id = {facts['payment']}"
            reference = _ask(bench, "source", f"SELECT LOWER(HEX(reference)) FROM {row}")
            return {
                "orders_match_payments": {payment: Found("missing on source", money(planted))},
                "orders_and_payments_exist": {payment: Found("missing on target", money(planted))},
                "reference_is_unique": {(reference,): Found("duplicate", money(planted))},
            }
        case "wrong-currency":
            amount = Decimal(facts["amount"])
            return {"payments_moved": {payment: Found("value mismatch", {**money(planted), facts["now"]: amount})}}
        case "rounding":
            return {
                # The group, and the row behind it, whose money would count twice.
                "captured_per_day": {
                    ("USD", facts["day"]): Found("value mismatch", money(planted)),
                    ("row", *payment): Found("value mismatch", {}),
                },
                "double_entry": {(*payment, "USD"): Found("violation", money(planted))},
                "wallets_balance": {(facts["account"], "USD"): Found("value mismatch", money(planted))},
            }
        case "orphan-order":
            return {
                "orders_match_payments": {payment: Found("missing on target", money(planted))},
                "orders_and_payments_exist": {payment: Found("missing on source", money(planted))},
            }
        case "orphan-payment":
            return {
                "orders_match_payments": {payment: Found("missing on source", money(planted))},
                "orders_and_payments_exist": {payment: Found("missing on target", money(planted))},
            }
        case "booked-failure":
            return {"no_failed_payment_is_booked": {payment: Found("violation", money(planted))}}
        case "sequence-gap":
            return {"journal_has_no_gap": {(facts["missing"],): Found("violation", {})}}
        case "stale-ledger":
            return {"ledger_is_fresh": {(): Found("violation", {})}}
    raise ValueError(planted.fault)


def _ask(bench: Bench, endpoint: str, sql: str) -> str:
    with connect(bench.services.server(endpoint)) as connection:
        return str(query(connection, sql)[0][0])


def _unpaid(bench: Bench, payment: int) -> dict[tuple[str | None, ...], Found]:
    """Wallets that the payment's settlement and fee moved, and by how much."""
    entries = bench.services.names.table("pay", "ledger_entries")
    with connect(bench.services.source) as connection:
        which = f"payment_id = {payment} AND kind IN ('settlement', 'fee')"
        moved = query(connection, f"SELECT account_id, currency, SUM(amount) FROM {entries} WHERE {which}"
                                  " GROUP BY account_id, currency")  # fmt: skip
        other = query(connection, f"SELECT account_id, currency FROM {entries} WHERE NOT ({which})")
    # A wallet without any other entry has none at all now.
    return {
        (str(account), currency): Found(
            "value mismatch" if (account, currency) in other else "missing on target", {currency: abs(total)}
        )
        for account, currency, total in moved if total
    }  # fmt: skip


@pytest.mark.parametrize("name", [fault.name for fault in FAULTS if fault.name not in LASTING])
def test_a_fault_is_seen_by_its_rules_and_by_no_other(bench: Bench, name: str) -> None:
    planted = plant(bench.services, name, seed=2)
    try:
        wanted = expected(planted, bench)
        ended = bench.run()
    finally:
        take_back(bench.services, planted)
    assert ended.mismatches == set(wanted) == set(planted.rules), ended.reasons()
    assert all(result.verdict is Verdict.MATCH for rule, result in ended.results.items() if rule not in wanted)
    assert {rule: found for rule, found in ended.findings.items() if found} == wanted
    for rule, findings in wanted.items():
        sums: dict[str, Decimal] = {}
        for found in findings.values():
            for currency, value in found.money.items():
                sums[currency] = sums.get(currency, Decimal(0)) + value
        assert ended.at_risk(rule) == sums


def test_a_late_event_ends_as_matched(bench: Bench) -> None:
    """The event comes between the first read and the last; the test sees to that, by the server's own scheduler."""
    rule = next(fault for fault in FAULTS if fault.name == "late-event").rules[0]
    planted = plant(bench.services, "late-event", seed=3, seconds=3600)
    wanted = expected(planted, bench)[rule]
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        if not waits:
            _let_it_come(bench, planted)
        waits.append(seconds)

    try:
        ended = bench.run(rule, sleep=sleep)
        assert waits, "the rule waited and read again"
        assert ended.verdict is Verdict.MATCH, ended.reasons()
        found = {key: one.kind for key, one in ended.findings[rule].items()}
        assert found == dict.fromkeys(wanted, "late then matched")
        assert ended.at_risk(rule) == {}
        assert bench.run().verdict is Verdict.MATCH
    finally:
        bench.load()  # the journal has another order now


def _let_it_come(bench: Bench, planted: PlantedChange) -> None:
    payment, names = planted.facts["payment"], bench.services.names
    with connect(bench.services.ledger) as connection:
        event = names.table("books", f"late_{payment}")
        run(connection, [f"ALTER EVENT {event} ON SCHEDULE AT CURRENT_TIMESTAMP(6) + INTERVAL 1 SECOND"])
    entries = f"{names.table('books', 'journal')} WHERE payment_ref = 'PAY-{payment}' AND code = 'S'"
    until = time.monotonic() + 60
    while _ask(bench, "ledger", f"SELECT COUNT(*) FROM {entries}") == "0" and time.monotonic() < until:
        time.sleep(0.02)


def test_an_illegal_transition_that_was_taken_back_is_seen(bench: Bench) -> None:
    planted = plant(bench.services, "illegal-transition", seed=2)
    try:
        ended = bench.run()
    finally:
        with connect(bench.services.source) as connection:
            connection.query("RESET BINARY LOGS AND GTIDS")
        bench.load()
    assert ended.mismatches == {"states_are_legal"}, ended.reasons()
    assert all(r.verdict is Verdict.MATCH for name, r in ended.results.items() if name != "states_are_legal")
    findings = ended.findings["states_are_legal"]
    assert len(findings) == 2, "to created, and back"
    assert all(key[0] == planted.facts["payment"] and found.kind == "violation" for key, found in findings.items())
    assert bench.run("states_are_legal").verdict is Verdict.MATCH

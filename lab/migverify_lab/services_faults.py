"""What goes wrong between services: faults that a table comparison of one service cannot see.

``FAULTS`` is the table. A fault touches exactly what its name says and leaves every other promise whole: a lost booking
also closes the ranks of the journal's numbers, a doubled payment is booked twice to the last wallet. So each is seen
by exactly the rules of ``examples/services/recon.yaml`` that it names.
"""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

from migverify.errors import LabError
from migverify_lab.scenario import PlannedChange, PlantedChange, ScenarioFault, Step, plant_change, take_back_change
from migverify_lab.services import KINDS, TREASURY, TREASURY_NODE, Services
from migverify_lab.session import connect, query, text_literal
from migverify_lab.workload_tables import (
    CURRENCIES,
    NODE_BITS,
    SEQUENCE_BITS,
    milliseconds_of,
    moment,
    snowflake,
)

FAULT_NODE = 1020
"""Node of the ids that faults make up."""
ROUNDING = Decimal("0.0001")
LATE_SECONDS = 5.0


class ServiceScene:
    """What a fault of the services plans from."""

    def __init__(self, services: Services, seed: int, seconds: float) -> None:
        self.services = services
        self.seconds = seconds
        self.rng = random.Random(f"services {seed}")
        names = services.names
        self.payments = names.table("pay", "payments")
        self.entries = names.table("pay", "ledger_entries")
        self.wallets = names.table("pay", "wallets")
        self.outbox = names.table("pay", "outbox")
        self.orders = names.table("shop", "orders")
        self.journal = names.table("books", "journal")

    def ask(self, endpoint: str, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT."""
        with connect(self.services.server(endpoint)) as connection:
            return query(connection, sql)

    def one(self, endpoint: str, sql: str, what: str) -> tuple[Any, ...]:
        """Choose one row by the seed."""
        rows = self.ask(endpoint, sql)
        if not rows:
            raise LabError(f"the services hold no {what}", hint="Load more: `migverify lab load services --changes`.")
        return self.rng.choice(rows)

    def payment(self, endpoint: str, state: str) -> tuple[int, Decimal, str]:
        """Choose a payment in a state: id, amount, currency. Transfers of the treasury are left out."""
        node = f"(id >> {SEQUENCE_BITS}) & {(1 << NODE_BITS) - 1}"
        sql = (f"SELECT id, amount, currency FROM {self.payments} WHERE state = '{state}' AND {node} < {FAULT_NODE}"  # noqa: S608
               " ORDER BY id")  # fmt: skip
        number, amount, currency = self.one(endpoint, sql, f"payment in state {state}")
        return int(number), Decimal(amount), str(currency)

    def new_ids(self, count: int) -> tuple[list[int], str]:
        """Return ids behind all others, and their time."""
        newest = max(int(self.ask("source", f"SELECT COALESCE(MAX(id), 0) FROM {table}")[0][0])  # noqa: S608
                     for table in (self.payments, self.entries))  # fmt: skip
        at = milliseconds_of(newest) + 1
        return [snowflake(at, FAULT_NODE, number) for number in range(count)], moment(at)

    def last_entry(self) -> int:
        """Return the journal's largest number."""
        return int(self.ask("ledger", f"SELECT COALESCE(MAX(entry_no), 0) FROM {self.journal}")[0][0])  # noqa: S608


def _facts(number: int, amount: Decimal, currency: str) -> dict[str, str]:
    return {"payment": str(number), "amount": str(amount), "currency": currency}


# --- bookings -------------------------------------------------------------------------------------------------


def _taken_out(scene: ServiceScene) -> tuple[dict[str, str], list[Step], list[str]]:
    """Take the booking of a settlement out of the journal as if it had never come: later numbers close the ranks."""
    known = scene.ask("source", f"SELECT payment_id FROM {scene.outbox} WHERE topic = 'payment.settled'")  # noqa: S608
    references = ", ".join(f"'PAY-{row[0]}'" for row in known) or "''"
    # A payee who was paid in one piece: numbers without a hole, so that closing the ranks leaves none.
    sql = (f"SELECT payment_ref, MIN(entry_no), MAX(entry_no) FROM {scene.journal} WHERE code IN ('S', 'F')"  # noqa: S608
           f" AND payment_ref IN ({references}) GROUP BY payment_ref"
           " HAVING COUNT(*) = MAX(entry_no) - MIN(entry_no) + 1 ORDER BY 1")  # fmt: skip
    reference, first, last = scene.one("ledger", sql, "booked settlement")
    booked = f"{scene.journal} WHERE entry_no BETWEEN {first} AND {last}"
    rows = scene.ask("ledger", "SELECT payment_ref, account_code, ccy, debit, credit, code, CAST(posted_at AS CHAR),"  # noqa: S608
                               f" CAST(recorded_at AS CHAR) FROM {booked} ORDER BY entry_no")  # fmt: skip
    number = int(str(reference).removeprefix("PAY-"))
    amount, currency = scene.ask("source", f"SELECT amount, currency FROM {scene.payments} WHERE id = {number}")[0]  # noqa: S608
    steps = [
        ("ledger", f"DELETE FROM {booked}"),  # noqa: S608
        ("ledger", f"UPDATE {scene.journal} SET entry_no = entry_no - {last - first + 1}"  # noqa: S608
                   f" WHERE entry_no > {last} ORDER BY entry_no"),
    ]  # fmt: skip
    facts = {**_facts(number, Decimal(amount), str(currency)), "first": str(first), "last": str(last)}
    return facts, steps, [", ".join(text_literal(str(value)) for value in row) for row in rows]


def _lost_event(scene: ServiceScene) -> PlannedChange:
    facts, steps, rows = _taken_out(scene)
    first, last = int(facts.pop("first")), int(facts.pop("last"))
    values = ", ".join(f"({first + at}, {row})" for at, row in enumerate(rows))
    undo = (
        ("ledger", f"UPDATE {scene.journal} SET entry_no = entry_no + {last - first + 1} WHERE entry_no >= {first}"  # noqa: S608
                   " ORDER BY entry_no DESC"),
        ("ledger", f"INSERT INTO {scene.journal} VALUES {values}"),  # noqa: S608
    )  # fmt: skip
    return PlannedChange("the ledger never booked the settlement of a payment", facts, steps, undo)


def _late_event(scene: ServiceScene) -> PlannedChange:
    facts, steps, rows = _taken_out(scene)
    first, last = int(facts.pop("first")), int(facts.pop("last"))
    end = scene.last_entry() - (last - first + 1)
    values = ", ".join(f"({end + at}, {row})" for at, row in enumerate(rows, 1))
    name = scene.services.names.table("books", f"late_{facts['payment']}")
    # The server's own scheduler books it: nobody has to wait at a terminal.
    event = (f"CREATE EVENT {name} ON SCHEDULE AT CURRENT_TIMESTAMP(6) + INTERVAL {scene.seconds} SECOND"  # noqa: S608
             f" DO INSERT INTO {scene.journal} VALUES {values}")  # fmt: skip
    return PlannedChange(f"the ledger books the settlement of a payment {scene.seconds:g} s late",
                         {**facts, "seconds": f"{scene.seconds:g}"}, [*steps, ("ledger", event)])  # fmt: skip


def _rounding(scene: ServiceScene) -> PlannedChange:
    amount, currency = TREASURY[-1]
    node = f"(CAST(SUBSTRING(payment_ref, 5) AS UNSIGNED) >> {SEQUENCE_BITS}) & {(1 << NODE_BITS) - 1}"
    sql = (f"SELECT entry_no, payment_ref, account_code, credit, CAST(posted_at AS CHAR) FROM {scene.journal}"  # noqa: S608
           f" WHERE ccy = '{currency}' AND credit = {amount} AND {node} = {TREASURY_NODE}")  # fmt: skip
    entry, reference, account, credit, posted = scene.one("ledger", sql, "transfer of the treasury")
    facts = {"payment": str(reference).removeprefix("PAY-"), "account": str(account).removeprefix("A"),
             "amount": str(ROUNDING), "currency": currency, "entry": str(entry), "day": str(posted)[:10],
             "before": str(credit), "after": str(credit + ROUNDING)}  # fmt: skip

    def add(money: Decimal) -> Step:
        return "ledger", f"UPDATE {scene.journal} SET credit = credit + {money} WHERE entry_no = {entry}"  # noqa: S608

    return PlannedChange(
        f"the ledger rounded one credit by {ROUNDING}, in a sum of more than 2^53",
        facts,
        [add(ROUNDING)],
        [add(-ROUNDING)],
    )


def _sequence_gap(scene: ServiceScene) -> PlannedChange:
    behind = scene.rng.randrange(1, scene.last_entry())

    def move(by: str, least: int, order: str) -> Step:
        which = f"WHERE entry_no > {least} ORDER BY entry_no {order}"  # so that no number is taken twice on the way
        return "ledger", f"UPDATE {scene.journal} SET entry_no = entry_no {by} {which}"  # noqa: S608

    return PlannedChange("the journal leaves out a number", {"missing": str(behind + 1)}, [move("+ 1", behind, "DESC")],
                         [move("- 1", behind, "ASC")])  # fmt: skip


def _stale_ledger(scene: ServiceScene) -> PlannedChange:
    def move(sign: str) -> Step:
        return "ledger", f"UPDATE {scene.journal} SET recorded_at = recorded_at {sign} INTERVAL 1 DAY"  # noqa: S608

    newest = scene.ask("ledger", f"SELECT CAST(MAX(recorded_at) AS CHAR) FROM {scene.journal}")[0][0]  # noqa: S608
    return PlannedChange(
        "the ledger stopped recording a day ago", {"newest before": str(newest)}, [move("-")], [move("+")]
    )


def _booked_failure(scene: ServiceScene) -> PlannedChange:
    number, amount, currency = scene.payment("target", "failed")
    payer, payee = scene.ask("target", f"SELECT payer_id, payee_id FROM {scene.payments} WHERE id = {number}")[0]  # noqa: S608
    (first, second), at = scene.new_ids(2)
    rows = ", ".join(f"({row}, {number}, {who}, '{currency}', {money}, 'settlement', '{at}')"
                     for row, who, money in ((first, payer, -amount), (second, payee, amount)))  # fmt: skip
    return PlannedChange(
        "the target booked a payment that had failed", _facts(number, amount, currency),
        [("target", f"INSERT INTO {scene.entries} VALUES {rows}")],  # noqa: S608
        [("target", f"DELETE FROM {scene.entries} WHERE id IN ({first}, {second})")],  # noqa: S608
    )  # fmt: skip


# --- payments and orders --------------------------------------------------------------------------------------


def _doubled_payment(scene: ServiceScene) -> PlannedChange:
    """Pay twice, in legal steps on the source, booked on every side: only the order and the reference know better."""
    number, amount, currency = scene.payment("source", "captured")
    (copy, first, second), at = scene.new_ids(3)
    payer, clearing = (
        scene.ask("source", f"SELECT account_id FROM {scene.entries} WHERE payment_id = {number} AND kind = 'capture'"  # noqa: S608
                            f" AND amount {sign} 0")[0][0] for sign in "<>"
    )  # fmt: skip
    columns = "payer_id, payee_id, amount, currency, {}, reference, note, details, created_at"

    def insert(state: str, version: int) -> str:
        return (f"INSERT INTO {scene.payments} SELECT {copy}, {columns.format(repr(state))}, '{at}', {version}"  # noqa: S608
                f" FROM {scene.payments} WHERE id = {number}")  # fmt: skip

    def step(state: str) -> str:
        return f"UPDATE {scene.payments} SET state = '{state}', version = version + 1 WHERE id = {copy}"  # noqa: S608

    moves = ((first, payer, -amount), (second, clearing, amount))
    entries = ", ".join(f"({row}, {copy}, {who}, '{currency}', {money}, 'capture', '{at}')"
                        for row, who, money in moves)  # fmt: skip
    last = scene.last_entry()
    journal = ", ".join(
        f"({last + place}, 'PAY-{copy}', 'A{who}', '{currency}', {max(-money, Decimal(0))}, {max(money, Decimal(0))},"
        f" '{KINDS['capture']}', '{at}', UTC_TIMESTAMP(6))" for place, (_, who, money) in enumerate(moves, 1)
    )  # fmt: skip

    def wallets(sign: int) -> list[str]:
        return [f"UPDATE {scene.wallets} SET balance = balance + {sign * money}, version = version + {sign}"  # noqa: S608
                f" WHERE account_id = {who} AND currency = '{currency}'" for _, who, money in moves]  # fmt: skip

    booked = [f"INSERT INTO {scene.entries} VALUES {entries}", *wallets(1)]  # noqa: S608
    gone = [f"DELETE FROM {scene.payments} WHERE id = {copy}",  # noqa: S608
            f"DELETE FROM {scene.entries} WHERE payment_id = {copy}", *wallets(-1)]  # noqa: S608  # fmt: skip
    return PlannedChange(
        "a payment was made twice, under another id", {**_facts(copy, amount, currency), "copy of": str(number)},
        [*(("source", sql) for sql in (insert("created", 1), step("authorized"), step("captured"), *booked)),
         *(("target", sql) for sql in (insert("captured", 3), *booked)),
         ("ledger", f"INSERT INTO {scene.journal} VALUES {journal}")],  # noqa: S608
        [*(("source", sql) for sql in gone), *(("target", sql) for sql in gone),
         ("ledger", f"DELETE FROM {scene.journal} WHERE payment_ref = 'PAY-{copy}'")],  # noqa: S608
    )  # fmt: skip


def _wrong_currency(scene: ServiceScene) -> PlannedChange:
    number, amount, currency = scene.payment("target", "settled")
    other = scene.rng.choice([one for one in CURRENCIES if one != currency])

    def put(which: str) -> Step:
        return "target", f"UPDATE {scene.payments} SET currency = '{which}' WHERE id = {number}"  # noqa: S608

    return PlannedChange(f"on the target a payment is in {other}, not {currency}",
                         {**_facts(number, amount, currency), "now": other}, [put(other)], [put(currency)])  # fmt: skip


def _illegal_transition(scene: ServiceScene) -> PlannedChange:
    number, amount, currency = scene.payment("source", "settled")
    steps = [("source", f"UPDATE {scene.payments} SET state = '{state}' WHERE id = {number}")  # noqa: S608
             for state in ("created", "settled")]  # fmt: skip
    return PlannedChange("a settled payment went back to created, and to settled again: only the binlog saw it",
                         _facts(number, amount, currency), steps)  # fmt: skip


def _orphan_order(scene: ServiceScene) -> PlannedChange:
    number = snowflake(1, FAULT_NODE, 7)
    minor, currency = 4217, "EUR"
    insert = (f"INSERT INTO {scene.orders} VALUES ('ORD-{number}', 'C0', {minor}, '{currency}', 30, '{number:032x}',"  # noqa: S608
              f" '{moment(0)}')")  # fmt: skip
    delete = f"DELETE FROM {scene.orders} WHERE order_no = 'ORD-{number}'"  # noqa: S608
    return PlannedChange(
        "an order was paid by a payment that is not there", _facts(number, Decimal(minor).scaleb(-2), currency),
        [("orders", insert)], [("orders", delete)],
    )  # fmt: skip


def _orphan_payment(scene: ServiceScene) -> PlannedChange:
    number, amount, currency = scene.payment("source", "settled")
    where = f"WHERE order_no = 'ORD-{number}'"
    row = scene.ask("orders", f"SELECT order_no, customer, total_minor, currency_code, status, payment_reference,"  # noqa: S608
                              f" CAST(placed_at AS CHAR) FROM {scene.orders} {where}")  # fmt: skip
    if not row:
        raise LabError(f"payment {number} has no order already", hint="Run `migverify lab load services`.")
    values = ", ".join(text_literal(str(value)) for value in row[0])
    return PlannedChange("a payment lost its order", _facts(number, amount, currency),
                         [("orders", f"DELETE FROM {scene.orders} {where}")],  # noqa: S608
                         [("orders", f"INSERT INTO {scene.orders} VALUES ({values})")])  # noqa: S608  # fmt: skip


# --- the table ------------------------------------------------------------------------------------------------

_ORDER_RULES = ("orders_match_payments", "orders_and_payments_exist")

FAULTS: tuple[ScenarioFault[ServiceScene], ...] = (
    ScenarioFault("lost-event", "the ledger never booked a settlement", ("wallets_balance", "outbox_is_booked"),
                 _lost_event),
    ScenarioFault("late-event", "the ledger books a settlement some seconds late",
                 ("wallets_balance", "outbox_is_booked"), _late_event),
    ScenarioFault("doubled-payment", "a payment was made twice, under another id",
                 (*_ORDER_RULES, "reference_is_unique"), _doubled_payment),
    ScenarioFault("wrong-currency", "a payment has another currency on the target", ("payments_moved",),
                 _wrong_currency),
    ScenarioFault("rounding", "the ledger is off by 0.0001 in a sum of more than 2^53",
                 ("captured_per_day", "double_entry", "wallets_balance"), _rounding),
    ScenarioFault("illegal-transition", "a settled payment went back to created for a moment", ("states_are_legal",),
                 _illegal_transition),
    ScenarioFault("orphan-order", "an order has no payment", _ORDER_RULES, _orphan_order),
    ScenarioFault("orphan-payment", "a payment has no order", _ORDER_RULES, _orphan_payment),
    ScenarioFault("stale-ledger", "the ledger stopped a day ago", ("ledger_is_fresh",), _stale_ledger),
    ScenarioFault("sequence-gap", "the journal leaves out a number", ("journal_has_no_gap",), _sequence_gap),
    ScenarioFault("booked-failure", "the target booked a payment that failed", ("no_failed_payment_is_booked",),
                 _booked_failure),
)  # fmt: skip


def plant(services: Services, name: str, seed: int = 1, seconds: float = LATE_SECONDS) -> PlantedChange:
    """Plant one fault; the same seed on the same data makes the same one. ``seconds``: how late a late event is."""
    return plant_change(FAULTS, name, lambda: ServiceScene(services, seed, seconds), services.server)


def take_back(services: Services, planted: PlantedChange) -> None:
    """Undo a fault; raises LabError where nothing takes it back."""
    take_back_change(planted, services.server)

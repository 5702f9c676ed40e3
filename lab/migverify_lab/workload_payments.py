"""The payments of one connection: which comes next, and the SQL of whole transactions.

A payment goes created -> authorized -> captured -> settled, or fails before it is captured, or is refunded after it was
settled. A capture moves money from the payer's wallet to the clearing account, a settlement from there to the payee and
the fee account, a refund back. Every move is a set of ledger entries that add up to zero, and every wallet's balance
is the sum of its entries.

Each connection has accounts of its own, so that what is written depends on the seed and the number of connections only,
and no two transactions wait for each other in a circle.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from migverify_lab.session import text_literal
from migverify_lab.workload_tables import (
    CURRENCIES,
    SEQUENCE_BITS,
    account_id,
    amount,
    moment,
    snowflake,
)

HOT_PAYEES = 2
"""Payees of one connection that are paid by the hot share."""
NOTES = (None, None, "Miete März", "coffee ☕", "it's \"quoted\"", "back\\slash", "請求書 123", "", "tab\there",
         " padded ")  # fmt: skip
KEPT_FAILED = 50
KEPT_EVENTS = 200
"""Failed payments and outbox events stay a while before they are deleted."""
MOST_SETTLED = 2000


@dataclass(slots=True)
class Payment:
    """One payment that may still change."""

    id: int
    payer: int
    payee: int
    amount: Decimal
    currency: str


@dataclass(slots=True)
class _Group:
    """The changes of one transaction, by statement."""

    created: list[str] = field(default_factory=list)
    moved: dict[str, list[int]] = field(default_factory=dict)
    entries: list[str] = field(default_factory=list)
    wallets: dict[tuple[int, str], tuple[Decimal, int]] = field(default_factory=dict)
    accounts: Counter[int] = field(default_factory=Counter)
    events: list[str] = field(default_factory=list)
    published: list[str] = field(default_factory=list)
    purged: list[int] = field(default_factory=list)

    def changes(self) -> int:
        """Rows that this transaction inserts, updates or deletes."""
        parts = (self.created, self.entries, self.wallets, self.accounts, self.events, self.published, self.purged)
        return sum(map(len, parts)) + sum(map(len, self.moved.values()))


class Payments:
    """Makes the transactions of one connection, always the same for the same arguments.

    Parameters
    ----------
    node
        The connection's number, 0 to 1022; part of its ids.
    first_account, accounts
        Its own accounts: the first of them and how many; the first is its clearing, the second its fee account.
    hot
        Share of the payments whose payee is one of ``HOT_PAYEES`` accounts.
    start
        Milliseconds since the epoch at which its clock begins.
    pace
        Milliseconds of its clock per row change.
    """

    def __init__(
        self, database: str, node: int, first_account: int, accounts: int, seed: int, hot: float, start: int,
        pace: float,
    ) -> None:  # fmt: skip
        self.database = database
        self._node = node
        self._first, self._accounts = first_account, accounts
        self._rng = random.Random(f"payments {seed} {node} {start}")
        self._hot = hot
        self._clock = float(start)
        self._pace = pace
        self._id_time, self._sequence = start, -1
        self._waiting: dict[str, deque[Payment]] = {state: deque() for state in ("created", "authorized", "captured")}
        self._settled: deque[Payment] = deque(maxlen=MOST_SETTLED)
        self._failed: deque[int] = deque()
        self._events: deque[str] = deque()

    def transaction(self, changes: int) -> tuple[list[tuple[str, int | None]], int]:
        """Return the next transaction and its row changes: ``changes`` or a few more.

        Returns
        -------
        tuple
            the statements, each with the rows that it must affect, None where that depends on the table.
        """
        group = _Group()
        busy: set[int] = set()  # a payment changes once per transaction, so that statements can be joined
        while group.changes() < changes:
            self._action(group, busy)
        count = group.changes()
        now = moment(self._clock)
        self._clock += count * self._pace
        return list(self._statements(group, now)), count

    # --- what happens next ------------------------------------------------------------------------------------

    def _action(self, group: _Group, busy: set[int]) -> None:
        rng = self._rng
        while len(self._events) > KEPT_EVENTS and len(group.published) < 200:
            group.published.append(self._events.popleft())
        while len(self._failed) > KEPT_FAILED and len(group.purged) < 50:
            group.purged.append(self._failed.popleft())
        choice = rng.random()
        if choice < 0.31:
            self._create(group, busy)
        elif choice < 0.61:
            payment = self._take("created", busy)
            if payment is not None and rng.random() < 0.9:
                self._move(group, payment, "authorized")
                self._waiting["authorized"].append(payment)
            elif payment is not None:
                self._fail(group, payment)
        elif choice < 0.82:
            payment = self._take("authorized", busy)
            if payment is not None and rng.random() < 0.95:
                self._capture(group, payment)
            elif payment is not None:
                self._fail(group, payment)
        elif choice < 0.98:
            payment = self._take("captured", busy)
            if payment is not None:
                self._settle(group, payment)
        elif self._settled and self._settled[0].id not in busy:
            payment = self._settled.popleft()
            busy.add(payment.id)
            self._refund(group, payment)

    def _take(self, state: str, busy: set[int]) -> Payment | None:
        waiting = self._waiting[state]
        if not waiting or waiting[0].id in busy:
            return None
        payment = waiting.popleft()
        busy.add(payment.id)
        return payment

    def _create(self, group: _Group, busy: set[int]) -> None:
        rng = self._rng
        payer, payee = self._account(), self._payee()
        currency = rng.choice(CURRENCIES)
        payment = Payment(self._new_id(), payer, payee, amount(rng, currency), currency)
        note = rng.choice(NOTES)
        details = "NULL" if rng.random() < 0.2 else text_literal(
            f'{{"ip": "10.0.{rng.randrange(256)}.{rng.randrange(256)}", "items": [{rng.randrange(99)}, 1.5, null],'
            f' "app": "v{rng.randrange(9)}", "ok": true}}'
        )  # fmt: skip
        now = moment(self._clock)
        group.created.append(
            f"({payment.id}, {payer}, {payee}, {payment.amount}, '{currency}', 'created',"
            f" x'{rng.getrandbits(128):032x}', {'NULL' if note is None else text_literal(note)}, {details}, '{now}',"
            f" '{now}', 1)"
        )
        busy.add(payment.id)
        self._event(group, payment, "payment.created")
        self._waiting["created"].append(payment)

    def _move(self, group: _Group, payment: Payment, state: str) -> None:
        group.moved.setdefault(state, []).append(payment.id)

    def _fail(self, group: _Group, payment: Payment) -> None:
        self._move(group, payment, "failed")
        self._failed.append(payment.id)

    def _capture(self, group: _Group, payment: Payment) -> None:
        self._move(group, payment, "captured")
        self._book(group, payment, "capture", ((payment.payer, -payment.amount), (self._clearing, payment.amount)))
        group.accounts[payment.payer] += 1
        self._waiting["captured"].append(payment)

    def _settle(self, group: _Group, payment: Payment) -> None:
        self._move(group, payment, "settled")
        fee = (payment.amount / 50).quantize(Decimal("0.0001"))
        self._book(group, payment, "settlement", ((self._clearing, -payment.amount), (payment.payee, payment.amount)))
        self._book(group, payment, "fee", ((payment.payee, -fee), (self._fees, fee)))
        group.accounts[payment.payee] += 1
        self._event(group, payment, "payment.settled")
        self._settled.append(payment)

    def _refund(self, group: _Group, payment: Payment) -> None:
        self._move(group, payment, "refunded")
        self._book(group, payment, "refund", ((payment.payee, -payment.amount), (payment.payer, payment.amount)))
        self._event(group, payment, "payment.refunded")

    def _book(self, group: _Group, payment: Payment, kind: str, moves: Iterable[tuple[int, Decimal]]) -> None:
        now = moment(self._clock)
        for account, money in moves:
            group.entries.append(
                f"({self._new_id()}, {payment.id}, {account}, '{payment.currency}', {money}, '{kind}', '{now}')"
            )
            total, count = group.wallets.get((account, payment.currency), (Decimal(0), 0))
            group.wallets[account, payment.currency] = (total + money, count + 1)

    def _event(self, group: _Group, payment: Payment, topic: str) -> None:
        key = uuid.UUID(int=self._rng.getrandbits(128), version=4).hex
        payload = text_literal(f'{{"payment": {payment.id}, "amount": "{payment.amount}", "of": "{payment.currency}"}}')
        group.events.append(f"(x'{key}', {payment.id}, '{topic}', {payload}, '{moment(self._clock)}')")
        self._events.append(key)

    # --- whose and which --------------------------------------------------------------------------------------

    @property
    def _clearing(self) -> int:
        return account_id(self._first)

    @property
    def _fees(self) -> int:
        return account_id(self._first + 1)

    def _account(self) -> int:
        return account_id(self._first + 2 + HOT_PAYEES + self._rng.randrange(self._accounts - 2 - HOT_PAYEES))

    def _payee(self) -> int:
        if self._rng.random() < self._hot:
            return account_id(self._first + 2 + self._rng.randrange(HOT_PAYEES))
        return self._account()

    def _new_id(self) -> int:
        now = int(self._clock)
        if now > self._id_time:
            self._id_time, self._sequence = now, -1
        self._sequence += 1
        if self._sequence >> SEQUENCE_BITS:  # the millisecond is full: borrow the next
            self._id_time, self._sequence = self._id_time + 1, 0
        return snowflake(self._id_time, self._node, self._sequence)

    # --- SQL --------------------------------------------------------------------------------------------------

    def _statements(self, group: _Group, now: str) -> Iterator[tuple[str, int | None]]:
        base = self.database
        if group.created:
            yield f"INSERT INTO {base}.payments VALUES {', '.join(group.created)}", len(group.created)  # noqa: S608
        for state, ids in group.moved.items():
            sets = f"state = '{state}', changed_at = '{now}', version = version + 1"
            yield f"UPDATE {base}.payments SET {sets} WHERE id IN ({_listed(ids)})", len(ids)  # noqa: S608
        if group.entries:
            yield f"INSERT INTO {base}.ledger_entries VALUES {', '.join(group.entries)}", len(group.entries)  # noqa: S608
        if group.wallets:
            rows = (
                f"({account}, '{currency}', {money}, {count}, '{now}')"
                for (account, currency), (money, count) in sorted(group.wallets.items())
            )
            sets = ", ".join(("balance = balance + VALUES(balance)", "version = version + VALUES(version)",
                              "updated_at = VALUES(updated_at)"))  # fmt: skip
            yield f"INSERT INTO {base}.wallets VALUES {', '.join(rows)} ON DUPLICATE KEY UPDATE {sets}", None  # noqa: S608
        for more in sorted(set(group.accounts.values())):
            ids = [account for account, count in group.accounts.items() if count == more]
            sets = f"payments_count = payments_count + {more}, last_activity = '{now}'"
            yield f"UPDATE {base}.accounts SET {sets} WHERE id IN ({_listed(ids)})", len(ids)  # noqa: S608
        if group.events:
            yield f"INSERT INTO {base}.outbox VALUES {', '.join(group.events)}", len(group.events)  # noqa: S608
        if group.published:
            keys = ", ".join(f"x'{key}'" for key in group.published)
            yield f"DELETE FROM {base}.outbox WHERE id IN ({keys})", len(group.published)  # noqa: S608
        if group.purged:
            yield f"DELETE FROM {base}.payments WHERE id IN ({_listed(group.purged)})", len(group.purged)  # noqa: S608


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(ids)))

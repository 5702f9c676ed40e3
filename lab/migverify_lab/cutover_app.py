"""The application of a cutover rehearsal: it writes where it is sent, and keeps a ledger of the answers it received.

A transaction is an order and its customer's balance, and now and then an older order that is paid. Of each one the
ledger has whether it was acknowledged, refused, or lost on its way to the commit. Afterwards every acknowledged order
is there once, none that was refused is, and each balance is the sum of its orders: that no write was lost or done twice
is shown by the data, not by the gates that let the cutover go on.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from migverify_lab.cutover import APP_USER, CUSTOMERS, DATABASE, SIDES, Rehearsal, rehearsal, server_as
from migverify_lab.ledger import ACKED, REFUSED, LedgerCheck, compare_with_ledger, read_ledger
from migverify_lab.load import Load, SqlClient, TryOutcome
from migverify_lab.session import connect, query

SLOW_EVERY = 7
"""One of so many transactions stays open for a while: what is in flight when writes stop."""


_PAID = "UPDATE orders SET state = 'paid', changed_at = UTC_TIMESTAMP(6) WHERE id = %s"
_ORDERED = (
    "INSERT INTO orders (token, customer, amount, state, changed_at) VALUES (%s, %s, %s, 'new', UTC_TIMESTAMP(6))"
)
_BALANCE = "UPDATE customers SET balance = balance + %s, version = version + 1 WHERE id = %s"


class ShopClient(SqlClient):
    """A client that orders, on the side where ``traffic`` sends it."""

    def __init__(self, shop: Rehearsal, number: int) -> None:
        super().__init__()
        self._shop, self._side, self._turn = shop, "", 0
        self._rng, self._mine = random.Random(f"{time.time_ns()} {number}"), list[int]()

    def attempt(self, token: str) -> TryOutcome:
        """Try one order."""
        side = self._shop.recall("traffic")
        if side != self._side:
            self.close()
        self._side, self._turn = side, self._turn + 1
        if side not in SIDES:
            return TryOutcome(REFUSED, text="traffic goes nowhere")
        server = server_as(self._shop.server(side), APP_USER)
        made: list[int] = []
        done = self.transact(lambda: connect(server, DATABASE, seconds=20.0),
                             lambda cursor: made.append(self._order(cursor, token)), side)  # fmt: skip
        if done.end == ACKED:
            self._mine = [*self._mine[-50:], *made]
        return done

    def _order(self, cursor: Any, token: str) -> int:
        rng = self._rng
        amount, customer = Decimal(rng.randrange(100, 100_000)) / 100, rng.randrange(CUSTOMERS)
        if self._mine and rng.random() < 0.3:
            cursor.execute(_PAID, (rng.choice(self._mine),))
        cursor.execute(_ORDERED, (token, customer, amount))
        made = int(cursor.lastrowid or 0)
        if self._turn % SLOW_EVERY == 0:
            time.sleep(0.4)
        cursor.execute(_BALANCE, (amount, customer))
        return made


def be_shop(directory: Path, arguments: Sequence[str], ended: threading.Event) -> None:
    """Be the application: clients, and transactions per second over all of them."""
    shop, (clients, rate) = rehearsal(directory), arguments
    Load([ShopClient(shop, number) for number in range(int(clients))], shop.ledger, float(rate), ended).run()


def prove(shop: Rehearsal, side: str) -> LedgerCheck:
    """Compare the data of a side with the ledger: nothing lost or twice, and each balance the sum of its orders."""
    attempts = read_ledger(shop.ledger, may_be_missing=True)
    with connect(shop.server(side)) as connection:
        rows = {str(token): [""] * int(count) for token, count in query(connection, _TOKENS)}
        wrong = int(query(connection, _WRONG_BALANCES)[0][0])
    tried = {one.token for one in read_ledger(shop.ledger, may_be_missing=True)}
    problems = [f"{wrong} balances are not the sum of their orders"] if wrong else []
    return compare_with_ledger(attempts, rows, tried, problems)


_TOKENS = f"SELECT token, COUNT(*) FROM {DATABASE}.orders GROUP BY token"  # noqa: S608
_WRONG_BALANCES = (
    f"SELECT COUNT(*) FROM {DATABASE}.customers c LEFT JOIN (SELECT customer, SUM(amount) AS total"  # noqa: S608
    f" FROM {DATABASE}.orders GROUP BY customer) o ON o.customer = c.id WHERE c.balance <> COALESCE(o.total, 0)"
)

"""The application of a cutover rehearsal: it writes where it is sent, and keeps a ledger of what it was told.

A transaction is an order and its customer's balance, and now and then an older order that is paid. Of each one the
ledger has whether it was acknowledged, refused, or lost on its way to the commit. Afterwards every acknowledged order
is there once, none that was refused is, and each balance is the sum of its orders: that no write was lost or done twice
is shown by the data, not by the gates that let the cutover go on.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migverify.errors import LabError
from migverify.lab.cutover import APP_USER, CUSTOMERS, DATABASE, World, server_as
from migverify.lab.session import connect

if TYPE_CHECKING:
    from pymysql.connections import Connection

SLOW_EVERY = 7
"""One of so many transactions stays open for a while: what is in flight when writes stop."""


_PAID = "UPDATE orders SET state = 'paid', changed_at = UTC_TIMESTAMP(6) WHERE id = %s"
_ORDERED = (
    "INSERT INTO orders (token, customer, amount, state, changed_at) VALUES (%s, %s, %s, 'new', UTC_TIMESTAMP(6))"
)
_BALANCE = "UPDATE customers SET balance = balance + %s, version = version + 1 WHERE id = %s"


class Ledger:
    """What the application was told, as lines of JSON; flushed before the next transaction begins."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._lock = threading.Lock()

    def write(self, token: str, told: str, side: str) -> None:
        """Keep one line: ``told`` is acked, refused or unknown."""
        with self._lock:
            self._file.write(json.dumps({"token": token, "told": told, "side": side}) + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def run(one: World, clients: int, rate: float, stop: threading.Event) -> None:
    """Write until told to stop; ``rate`` is transactions per second over all clients."""
    ledger = Ledger(one.ledger)
    began = time.time_ns()
    threads = [
        threading.Thread(target=_client, args=(one, ledger, f"{began}-{number}", rate / clients, stop), daemon=True)
        for number in range(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.5)
    ledger.close()


def _client(one: World, ledger: Ledger, name: str, rate: float, stop: threading.Event) -> None:
    import pymysql

    rng, number, at = random.Random(name), 0, ""
    connection: Connection | None = None
    mine: list[int] = []
    while not stop.wait(1.0 / rate):
        side = one.recall("traffic")
        if side != at and connection is not None:
            connection.close()
            connection = None
        at = side
        if side not in ("source", "target"):
            continue
        number += 1
        token, told = f"{name}-{number}", "refused"
        try:
            if connection is None:
                connection = connect(server_as(one.server(side), APP_USER), DATABASE, seconds=20.0)
            made = _order(connection, token, rng, mine, number % SLOW_EVERY == 0)
            told = "unknown"  # from here on the server may have committed, whatever we hear
            connection.commit()
            told = "acked"
            mine = [*mine[-50:], made]
        except (pymysql.err.MySQLError, LabError):
            if connection is not None:
                with suppress(pymysql.err.MySQLError):
                    connection.close()
            connection = None
        ledger.write(token, told, side)
    if connection is not None:
        connection.close()


def _order(connection: Connection, token: str, rng: random.Random, mine: list[int], slow: bool) -> int:
    amount, customer = Decimal(rng.randrange(100, 100_000)) / 100, rng.randrange(CUSTOMERS)
    connection.begin()
    with connection.cursor() as cursor:
        if mine and rng.random() < 0.3:
            cursor.execute(_PAID, (rng.choice(mine),))
        cursor.execute(_ORDERED, (token, customer, amount))
        made = int(cursor.lastrowid or 0)
        if slow:
            time.sleep(0.4)
        cursor.execute(_BALANCE, (amount, customer))
    return made


@dataclass(frozen=True, slots=True)
class Proof:
    """What the data says against the ledger. ``written`` counts acknowledged orders by the side that took them."""

    acked: int
    written: dict[str, int]
    lost: int
    doubled: int
    refused_but_there: int
    wrong_balances: int

    @property
    def good(self) -> bool:
        """Nothing is lost, nothing twice, and there was something to lose."""
        bad = self.lost or self.doubled or self.refused_but_there or self.wrong_balances
        return not bad and self.acked > 0

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**asdict(self), "good": self.good}


def prove(one: World, side: str) -> Proof:
    """Hold the data of a side against the ledger."""
    told: dict[str, tuple[str, str]] = {}
    if one.ledger.is_file():
        for line in one.ledger.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            told[entry["token"]] = (entry["told"], entry["side"])
    with connect(one.server(side)) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT token, COUNT(*) FROM {DATABASE}.orders GROUP BY token")  # noqa: S608
        there = {str(token): int(count) for token, count in cursor.fetchall()}
        cursor.execute(
            f"SELECT COUNT(*) FROM {DATABASE}.customers c LEFT JOIN (SELECT customer, SUM(amount) AS total"  # noqa: S608
            f" FROM {DATABASE}.orders GROUP BY customer) o ON o.customer = c.id"
            " WHERE c.balance <> COALESCE(o.total, 0)"
        )
        row: Any = cursor.fetchone()
    acked = {token: where for token, (what, where) in told.items() if what == "acked"}
    refused = [token for token, (what, _) in told.items() if what == "refused"]
    return Proof(
        len(acked), dict(Counter(acked.values())), sum(1 for token in acked if token not in there),
        sum(1 for count in there.values() if count > 1), sum(1 for token in refused if token in there), int(row[0]),
    )  # fmt: skip

"""How many digests a second: statements of about 220 characters, of workloads with few and with many skeletons."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from migverify.sql.lexer import Dialect, tokens
from migverify.workload.digest import Digester
from migverify.workload.meaning import Meanings

SHAPES = [
    "SELECT p.payment_id, p.account_id, p.amount, p.currency, p.state, p.created_at FROM pay.payments p "
    "JOIN pay.accounts a ON a.account_id = p.account_id WHERE p.account_id = {} AND p.state IN ('{}', 'x') "
    "AND p.amount > {}.5 ORDER BY p.created_at DESC LIMIT 20",
    "INSERT INTO pay.ledger_entries (entry_id, payment_id, account_id, currency, amount, kind, created_at, note) "
    "VALUES ({}, 7230000000, 1001, '{}', -{}.25, 'debit', '2026-01-02 03:04:05.678', 'n'), "
    "(2, 7230000000, 1002, 'EUR', 10.25, 'credit', NULL, 'n')",
    "UPDATE pay.wallets SET balance = balance - {}.10, version = version + 1, "
    "updated_at = '2026-01-02 03:04:05.678901', note = '{}' WHERE account_id = {} AND currency = 'EUR' AND "
    "version = 17 AND balance >= 10.10 AND status <> 'closed'",
]


def statements(count: int, seed: int = 1, shapes: int = 0) -> list[bytes]:
    """Return statements; ``shapes`` > 0 spreads them over that many table names."""
    made = random.Random(seed)
    found = []
    for number in range(count):
        text = SHAPES[number % len(SHAPES)].format(
            made.randrange(10**9), f"s{made.randrange(10**6)}", made.randrange(10**4)
        )
        found.append((text.replace("pay.", f"pay{made.randrange(shapes)}.") if shapes else text).encode())
    return found


def _measure(name: str, work: Callable[[bytes], object], found: list[bytes]) -> None:
    start = time.process_time()
    for one in found:
        work(one)
    spent = time.process_time() - start
    size = sum(map(len, found)) / len(found)
    print(f"{name:45} {len(found) / spent:10,.0f} statements/s per core ({size:.0f} bytes each)")


def main() -> None:
    dialects: tuple[Dialect, ...] = ("mysql", "tidb")
    few = statements(20_000)
    for dialect in dialects:
        _measure(f"{dialect}: digest and class, 3 skeletons", Meanings(dialect, shapes=False).meaning, few)
        _measure(
            f"{dialect}: digest and class, 9,000 skeletons",
            Meanings(dialect, shapes=False).meaning,
            statements(60_000, shapes=3_000),
        )
        _measure(f"{dialect}: token by token", Digester(dialect).digest, few[:6_000])
    _measure("digest and class, 300 skeletons", Meanings(shapes=False).meaning, statements(40_000, shapes=100))
    _measure("digest, class, structure, 300 skeletons", Meanings().meaning, statements(40_000, shapes=100))
    _measure("tokens only", lambda sql: list(tokens(sql)), few[:6_000])


if __name__ == "__main__":
    main()

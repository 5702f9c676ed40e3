"""What the clients of a payment service ask: the sessions of one day, the same for the same seed.

Ordinary statements answer alike on MySQL and TiDB, though not byte for byte: rows come in another order where the text
asks for none, and a LIMIT without an order picks others. The planted ones do not answer alike, or fail on TiDB.
"""

# ruff: noqa: S608 - SQL of made-up values is what this module is for

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from migverify_lab.session import text_literal
from migverify_lab.workload_tables import COUNTRIES, CURRENCIES, account_id, amount, moment, snowflake

NODE = 1000
"""The node of the ids these clients make: none of the payment load's."""
TICK = 40.0
"""Statements a second that one session asks on average."""
PATTERNS = ("Z%", "O%", "%ł%", "山%")
NOTES = ("lunch; # not a comment", "it's late", "Miete ☕", "a -- b", "line\nbreak")


@dataclass(frozen=True, slots=True)
class IncompatibleStatement:
    """A statement of a real application that TiDB refuses or answers otherwise.

    ``name`` is the difference's; ``sql`` holds ``{pay}`` for the database and ``{account}`` for an account's id.
    """

    name: str
    sql: tuple[str, ...]


PLANTED = (
    IncompatibleStatement(
        "found-rows",
        ("SELECT SQL_CALC_FOUND_ROWS id, name FROM {pay}.accounts WHERE country = 'CH' ORDER BY id LIMIT 5",),
    ),
    IncompatibleStatement(
        "read-only-transaction", ("SET SESSION TRANSACTION READ ONLY", "SET SESSION TRANSACTION READ WRITE")
    ),
    IncompatibleStatement("select-into-variable", ("SELECT COUNT(*) FROM {pay}.accounts INTO @accounts",)),
    IncompatibleStatement("xml-function", ("SELECT ExtractValue('<a><b>{account}</b></a>', '/a/b')",)),
    IncompatibleStatement(
        "serializable",
        (
            "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        ),
    ),
    IncompatibleStatement("decimal-division", ("SELECT id, amount / 3 * 3 FROM {pay}.payments ORDER BY id LIMIT 3",)),
)


@dataclass(frozen=True, slots=True)
class Script:
    """What one session asks, in order, each after a pause in seconds of the capture's clock."""

    number: int
    statements: tuple[tuple[float, str], ...]


def scripts(database: str, sessions: int, statements: int, accounts: int, seed: int, *, plant: bool) -> list[Script]:
    """Return the sessions of the service; every one opens with its settings and asks ``statements`` or a few more.

    Parameters
    ----------
    database
        Quoted name of the database of the payment tables, which hold ``accounts`` accounts.
    plant
        Put each of ``PLANTED`` into one session.
    """
    made = [list(_session(database, number, statements, accounts, seed)) for number in range(sessions)]
    if plant:
        rng = random.Random(f"planted {seed}")
        for number, planted in enumerate(PLANTED):
            script = made[number % sessions]
            place = rng.randrange(len(script) // 2, len(script))
            while _in_transaction(script[:place]):
                place -= 1
            script[place:place] = [text.format(pay=database, account=account_id(number)) for text in planted.sql]
    rng = random.Random(f"pauses {seed}")
    return [Script(number, tuple((rng.expovariate(TICK), text) for text in texts)) for number, texts in enumerate(made)]


def _in_transaction(texts: list[str]) -> bool:
    return sum(text == "BEGIN" for text in texts) > sum(text in ("COMMIT", "ROLLBACK") for text in texts)


def _session(database: str, number: int, statements: int, accounts: int, seed: int) -> Iterator[str]:
    rng = random.Random(f"traffic {seed} {number}")
    service = ("checkout", "backoffice", "reports")[number % 3]
    yield "SET NAMES utf8mb4 COLLATE utf8mb4_bin"
    yield f"USE {database}"
    asked = 0
    while asked < statements:
        if service == "checkout" and rng.random() < 0.5:
            texts = list(_pay(rng, number, asked, accounts))
        else:
            texts = [_read(rng, accounts)]
        yield from (text if text in ("BEGIN", "COMMIT", "ROLLBACK") else f"/* svc={service} */ {text}"
                    for text in texts)  # fmt: skip
        asked += len(texts)


def _read(rng: random.Random, accounts: int) -> str:
    one = account_id(rng.randrange(accounts))
    return rng.choice((
        f"SELECT id, name, country, status, limits, score FROM accounts WHERE id = {one}",
        f"SELECT currency, balance, version FROM wallets WHERE account_id = {one} ORDER BY currency",
        f"SELECT id, amount, currency, state, note, details FROM payments WHERE payer_id = {one}",
        f"SELECT id, state FROM payments WHERE payer_id = {one} ORDER BY created_at DESC, id"
        f" LIMIT {rng.randrange(1, 9)}",
        f"SELECT country, COUNT(*), AVG(score), MAX(opened_on) FROM accounts WHERE country IN"
        f" ('{rng.choice(COUNTRIES)}', '{rng.choice(COUNTRIES)}') GROUP BY country",
        f"SELECT p.id, p.amount, a.name FROM payments p JOIN accounts a ON a.id = p.payee_id"
        f" WHERE p.currency = '{rng.choice(CURRENCIES)}' AND p.state = 'created' ORDER BY p.amount DESC LIMIT 5",
        f"SELECT currency, SUM(amount), COUNT(DISTINCT account_id) FROM ledger_entries WHERE account_id = {one}"
        f" GROUP BY currency ORDER BY currency",
        f"SELECT id, topic FROM outbox WHERE payment_id > {one} LIMIT 3",
        f"SELECT name FROM accounts WHERE name LIKE {text_literal(rng.choice(PATTERNS))} ORDER BY name, id",
    ))  # fmt: skip


def _pay(rng: random.Random, number: int, asked: int, accounts: int) -> Iterator[str]:
    """Yield a payment in a transaction, by an account of this session alone; now and then it fails."""
    mine = account_id(number % accounts)
    other = account_id(rng.randrange(accounts))
    payment = snowflake(1 + number * 100_000 + asked, NODE, 0)
    currency = rng.choice(CURRENCIES)
    money = amount(rng, currency)
    now = moment(1000 * (number * 1000 + asked))
    insert = (
        f"INSERT INTO payments VALUES ({payment}, {mine}, {other}, {money}, '{currency}', 'created',"
        f" x'{rng.getrandbits(128):032x}', {text_literal(rng.choice(NOTES))},"
        f" '{{\"n\": {asked}}}', '{now}', '{now}', 1)"
    )
    if rng.random() < 0.1:  # a client that asks twice: production has errors of its own
        yield insert
        yield insert
        return
    yield "BEGIN"
    yield f"SELECT status FROM accounts WHERE id = {mine} FOR UPDATE"
    yield insert
    yield f"UPDATE accounts SET payments_count = payments_count + 1, last_activity = '{now}' WHERE id = {mine}"
    yield (
        f"INSERT INTO wallets VALUES ({mine}, '{currency}', -{money}, 1, '{now}')"
        f" ON DUPLICATE KEY UPDATE balance = balance - {money}, version = version + 1, updated_at = '{now}'"
    )
    yield "COMMIT" if rng.random() < 0.9 else "ROLLBACK"

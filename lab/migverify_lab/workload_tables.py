"""The tables of the payment load and the rows they begin with; the same SQL on both sides."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal

from migverify_lab.session import text_literal

EPOCH = datetime(2026, 1, 1)
"""Begin of the snowflake ids' time, and of the load's own clock: content never depends on the wall clock."""
NODE_BITS, SEQUENCE_BITS = 10, 12

CURRENCIES = ("EUR", "JPY", "USD")
COUNTRIES = ("CH", "DE", "FR", "JP", "NG", "US")
NAMES = (
    "Ayşe Yilmaz", "山田 太郎", "O'Brien & Söhne", "Łukasz \\ Nowak", "Ngũgĩ wa Thiong'o", "Zoë 🎈 Party", "Ana María",
    "Ульяна Ким", "naïve café", "Smith, John",
)  # fmt: skip

TABLES: dict[str, str] = {
    "accounts": (
        "id BIGINT NOT NULL PRIMARY KEY, external_id BINARY(16) NOT NULL, name VARCHAR(80) NOT NULL,"
        " country CHAR(2) NOT NULL, status ENUM('open','frozen','closed') NOT NULL, limits JSON NOT NULL,"
        " score DOUBLE NULL, opened_on DATE NOT NULL, payments_count INT UNSIGNED NOT NULL,"
        " last_activity DATETIME(6) NULL, UNIQUE KEY by_external_id (external_id)"
    ),
    "wallets": (
        "account_id BIGINT NOT NULL, currency CHAR(3) NOT NULL, balance DECIMAL(20,4) NOT NULL,"
        " version BIGINT UNSIGNED NOT NULL, updated_at TIMESTAMP(6) NOT NULL DEFAULT '2026-01-01 00:00:00',"
        " PRIMARY KEY (account_id, currency)"
    ),
    "payments": (
        "id BIGINT NOT NULL PRIMARY KEY, payer_id BIGINT NOT NULL, payee_id BIGINT NOT NULL,"
        " amount DECIMAL(20,4) NOT NULL, currency CHAR(3) NOT NULL,"
        " state ENUM('created','authorized','captured','settled','failed','refunded') NOT NULL,"
        " reference BINARY(16) NOT NULL, note VARCHAR(120) NULL, details JSON NULL, created_at DATETIME(6) NOT NULL,"
        " changed_at DATETIME(6) NOT NULL, version INT UNSIGNED NOT NULL, KEY by_payer (payer_id, created_at)"
    ),
    "ledger_entries": (
        "id BIGINT NOT NULL PRIMARY KEY, payment_id BIGINT NOT NULL, account_id BIGINT NOT NULL,"
        " currency CHAR(3) NOT NULL, amount DECIMAL(20,4) NOT NULL,"
        " kind ENUM('capture','settlement','fee','refund') NOT NULL, booked_at DATETIME(6) NOT NULL,"
        " KEY by_payment (payment_id)"
    ),
    "outbox": (
        "id BINARY(16) NOT NULL PRIMARY KEY, payment_id BIGINT NOT NULL, topic VARCHAR(40) NOT NULL,"
        " payload JSON NOT NULL, created_at DATETIME(6) NOT NULL"
    ),
}  # fmt: skip


def create_statements(database: str) -> Iterator[str]:
    """Yield what makes the database and its tables anew; the tables' old rows are lost."""
    yield f"CREATE DATABASE IF NOT EXISTS {database} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    for table, columns in TABLES.items():
        yield f"DROP TABLE IF EXISTS {database}.{table}"
        yield f"CREATE TABLE {database}.{table} ({columns}) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"


def account_id(number: int) -> int:
    """Return the id of an account, counted from 0: a snowflake id of the last node at the epoch's first moments."""
    return snowflake(number >> SEQUENCE_BITS, (1 << NODE_BITS) - 1, number & ((1 << SEQUENCE_BITS) - 1))


def snowflake(milliseconds: int, node: int, sequence: int) -> int:
    """Return an id: 41 bits of milliseconds since the epoch, 10 bits of node, 12 bits of sequence."""
    return (milliseconds << (NODE_BITS + SEQUENCE_BITS)) | (node << SEQUENCE_BITS) | sequence


def milliseconds_of(number: int) -> int:
    """Return the time of a snowflake id."""
    return number >> (NODE_BITS + SEQUENCE_BITS)


def moment(milliseconds: float) -> str:
    """Return a time of the load's clock as a DATETIME(6) text."""
    return f"{EPOCH + timedelta(milliseconds=milliseconds):%Y-%m-%d %H:%M:%S.%f}"


def account_rows(accounts: int, seed: int) -> Iterator[str]:
    """Yield the VALUES of all accounts, in one order."""
    rng = random.Random(f"accounts {seed}")
    for number in range(accounts):
        external = uuid.UUID(int=rng.getrandbits(128), version=4).hex
        name = f"{rng.choice(NAMES)} {number}"
        limits = f'{{"daily": {rng.randrange(100, 100_000)}, "tags": ["k{rng.randrange(9)}", "v\\u00e9rifi\\u00e9"]}}'
        score = "NULL" if rng.random() < 0.1 else repr(rng.random() * 10 ** rng.randrange(-3, 6))
        opened = EPOCH - timedelta(days=rng.randrange(4000))
        yield (f"({account_id(number)}, x'{external}', {text_literal(name)}, '{rng.choice(COUNTRIES)}',"
               f" 'open', {text_literal(limits)}, {score}, '{opened:%Y-%m-%d}', 0, NULL)")  # fmt: skip


def initial_statements(database: str, accounts: int, seed: int) -> Iterator[str]:
    """Yield what fills the new tables: the accounts. Wallets come with their first entry."""
    rows = list(account_rows(accounts, seed))
    for start in range(0, len(rows), 500):
        yield f"INSERT INTO {database}.accounts VALUES {', '.join(rows[start : start + 500])}"  # noqa: S608


def amount(rng: random.Random, currency: str) -> Decimal:
    """Return an amount of money: whole yen, cents of the others."""
    cents = rng.randrange(100, 1_000_000)
    return Decimal(cents) if currency == "JPY" else Decimal(cents).scaleb(-2)

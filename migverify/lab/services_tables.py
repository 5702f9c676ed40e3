"""The tables of the services around the payments: orders and the ledger, each with words and units of its own.

The payments say ``captured`` where orders say 30 and the ledger books ``C``; they keep DECIMALs, orders whole minor
units; their ids are numbers, elsewhere texts with a prefix. Whoever compares them must map one to the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from migverify.sql.quoting import quote_name

STATES = {"created": 10, "authorized": 20, "captured": 30, "settled": 40, "refunded": 50, "failed": 90}
"""Payment state -> status of the order."""
KINDS = {"capture": "C", "settlement": "S", "fee": "F", "refund": "R"}
"""Kind of a ledger entry of the payments -> code in the ledger's journal."""
WITHOUT_MINOR_UNIT = ("JPY",)

_ORDERS = (
    "order_no VARCHAR(32) NOT NULL PRIMARY KEY, customer VARCHAR(32) NOT NULL, total_minor BIGINT NOT NULL,"
    " currency_code CHAR(3) NOT NULL, status SMALLINT NOT NULL, payment_reference CHAR(32) NOT NULL,"
    " placed_at DATETIME(6) NOT NULL"
)
_JOURNAL = (
    "entry_no BIGINT NOT NULL PRIMARY KEY, payment_ref VARCHAR(32) NOT NULL, account_code VARCHAR(32) NOT NULL,"
    " ccy CHAR(3) NOT NULL, debit DECIMAL(20,4) NOT NULL, credit DECIMAL(20,4) NOT NULL, code CHAR(1) NOT NULL,"
    " posted_at DATETIME(6) NOT NULL, recorded_at DATETIME(6) NOT NULL, KEY by_payment (payment_ref)"
)
_TEXT = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"


@dataclass(frozen=True, slots=True)
class Names:
    """Databases of the three services: ``pay`` on the migrating pair, ``shop`` the orders, ``books`` the ledger."""

    pay: str = "pay"
    shop: str = "shop"
    books: str = "books"

    def table(self, service: str, table: str) -> str:
        """Return a quoted ``database.table``; ``service`` is ``pay``, ``shop`` or ``books``."""
        return f"{quote_name(getattr(self, service))}.{quote_name(table)}"


def create_statements(names: Names, service: str) -> list[str]:
    """Return what makes the tables of ``shop`` or ``books`` anew; old rows are lost."""
    table, columns = {"shop": ("orders", _ORDERS), "books": ("journal", _JOURNAL)}[service]
    quoted = names.table(service, table)
    return [
        f"CREATE DATABASE IF NOT EXISTS {quote_name(getattr(names, service))} {_TEXT}",
        f"DROP TABLE IF EXISTS {quoted}",
        f"CREATE TABLE {quoted} ({columns}) {_TEXT}",
    ]


def orders_select(names: Names) -> str:
    """Return the SELECT over the payments whose rows are those of the orders, in the order of their columns."""
    whole = ", ".join(f"'{currency}'" for currency in WITHOUT_MINOR_UNIT)
    cases = " ".join(f"WHEN '{state}' THEN {status}" for state, status in STATES.items())
    return (
        "SELECT CONCAT('ORD-', id), CONCAT('C', payer_id),"  # noqa: S608 - our own names
        f" CAST(amount * IF(currency IN ({whole}), 1, 100) AS SIGNED), currency, CASE state {cases} END,"
        f" LOWER(HEX(reference)), CAST(created_at AS CHAR) FROM {names.table('pay', 'payments')}"
    )


def journal_select(names: Names) -> str:
    """Return the SELECT over the payments' ledger entries whose rows are those of the journal, numbered from 1."""
    codes = " ".join(f"WHEN '{kind}' THEN '{code}'" for kind, code in KINDS.items())
    return (
        "SELECT ROW_NUMBER() OVER (ORDER BY id), CONCAT('PAY-', payment_id), CONCAT('A', account_id),"  # noqa: S608
        " currency, CAST(GREATEST(-amount, 0) AS CHAR), CAST(GREATEST(amount, 0) AS CHAR),"
        f" CASE kind {codes} END, CAST(booked_at AS CHAR), CAST(UTC_TIMESTAMP(6) AS CHAR)"
        f" FROM {names.table('pay', 'ledger_entries')}"
    )

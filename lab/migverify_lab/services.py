"""Three services that must agree: orders on MySQL, payments on the migrating pair, the ledger on MariaDB.

The payments say ``captured`` where orders say 30 and the ledger books ``C``; they keep DECIMALs, orders whole minor
units; their ids are numbers, elsewhere texts with a prefix. Whoever compares them must map one to the other.
The payments are written to the source and carried to the target by the lab's replicator; orders (beside them, in a
database of their own) and the journal are derived from them by SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from migverify.errors import LabError
from migverify.sql.quoting import quote_name
from migverify_lab import servers
from migverify_lab.cache import Progress, make_directory
from migverify_lab.replicator import ReplicatorOptions
from migverify_lab.replicator_process import running_replicator, source_position
from migverify_lab.replicator_target import drop_checkpoint
from migverify_lab.session import LabServer, LabServers, connect, query, run, text_literal
from migverify_lab.workload import Workload, WorkloadOptions
from migverify_lab.workload import create as create_payments
from migverify_lab.workload_tables import account_id, milliseconds_of, moment, snowflake

FOLDER = "services"
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
class ServiceNames:
    """Databases of the three services: ``pay`` on the migrating pair, ``shop`` the orders, ``books`` the ledger."""

    pay: str = "pay"
    shop: str = "shop"
    books: str = "books"

    def table(self, service: str, table: str) -> str:
        """Return a quoted ``database.table``; ``service`` is ``pay``, ``shop`` or ``books``."""
        return f"{quote_name(getattr(self, service))}.{quote_name(table)}"


@dataclass(frozen=True, slots=True)
class Services:
    """Where the services listen, and what their databases are called."""

    source: LabServer
    target: LabServer
    orders: LabServer
    ledger: LabServer
    names: ServiceNames

    def server(self, endpoint: str) -> LabServer:
        """Return the server of an endpoint: ``source``, ``target``, ``orders`` or ``ledger``."""
        found: LabServer = getattr(self, endpoint)
        return found


def of_lab(directory: Path) -> Services:
    """Return the services of a lab that is up with its ledger, after writing ``services/migverify.yaml``.

    Raises
    ------
    LabError
        a server is not up.
    """
    pair = servers.running_servers(directory, ledger=True)
    if pair.ledger is None:
        raise LabError("the lab has no ledger", hint="Run `migverify lab up --services`.")
    services = named(pair, pair.ledger, ServiceNames())
    config_path(directory).write_text(configuration(services), encoding="utf-8")
    return services


def config_path(directory: Path) -> Path:
    """Return the configuration with the endpoints of all services."""
    return make_directory(directory / FOLDER) / "migverify.yaml"


def configuration(services: Services) -> str:
    """Return a ``migverify.yaml`` with the four endpoints."""

    def endpoint(server: LabServer) -> str:
        scheme = "tidb" if server.flavor == "tidb" else "mysql"
        # Everything is on this machine: encryption would cost a tenth of a second a connection and hide nothing.
        return f"{{url: '{scheme}://{server.user}@{server}', tls: {{mode: disabled}}}}"

    return (
        "# Written by `migverify lab up --services`.\n"
        f"source: {endpoint(services.source)}\ntarget: {endpoint(services.target)}\n"
        f"endpoints:\n  orders: {endpoint(services.orders)}\n  ledger: {endpoint(services.ledger)}\n"
        f"tables: {{include: ['{services.names.pay}.*']}}\n"
        "# What the lab writes is made up, so the report may show it.\nreport: {values: true}\n"
    )


def named(pair: LabServers, ledger: LabServer, names: ServiceNames) -> Services:
    """Return services over a pair of servers; the orders lie on its source."""
    return Services(pair.source, pair.target, pair.source, ledger, names)


# --- what they hold -------------------------------------------------------------------------------------------


def service_tables(names: ServiceNames, service: str) -> list[str]:
    """Return what makes the tables of ``shop`` or ``books`` anew; old rows are lost."""
    table, columns = {"shop": ("orders", _ORDERS), "books": ("journal", _JOURNAL)}[service]
    quoted = names.table(service, table)
    return [
        f"CREATE DATABASE IF NOT EXISTS {quote_name(getattr(names, service))} {_TEXT}",
        f"DROP TABLE IF EXISTS {quoted}",
        f"CREATE TABLE {quoted} ({columns}) {_TEXT}",
    ]


def orders_select(names: ServiceNames) -> str:
    """Return the SELECT over the payments whose rows are those of the orders, in the order of their columns."""
    whole = ", ".join(f"'{currency}'" for currency in WITHOUT_MINOR_UNIT)
    cases = " ".join(f"WHEN '{state}' THEN {status}" for state, status in STATES.items())
    return (
        "SELECT CONCAT('ORD-', id), CONCAT('C', payer_id),"  # noqa: S608 - our own names
        f" CAST(amount * IF(currency IN ({whole}), 1, 100) AS SIGNED), currency, CASE state {cases} END,"
        f" LOWER(HEX(reference)), CAST(created_at AS CHAR) FROM {names.table('pay', 'payments')}"
    )


def journal_select(names: ServiceNames) -> str:
    """Return the SELECT over the payments' ledger entries whose rows are those of the journal, numbered from 1."""
    codes = " ".join(f"WHEN '{kind}' THEN '{code}'" for kind, code in KINDS.items())
    return (
        "SELECT ROW_NUMBER() OVER (ORDER BY id), CONCAT('PAY-', payment_id), CONCAT('A', account_id),"  # noqa: S608
        " currency, CAST(GREATEST(-amount, 0) AS CHAR), CAST(GREATEST(amount, 0) AS CHAR),"
        f" CASE kind {codes} END, CAST(booked_at AS CHAR), CAST(UTC_TIMESTAMP(6) AS CHAR)"
        f" FROM {names.table('pay', 'ledger_entries')}"
    )


BATCHES = 3
DAY = 24 * 3600 * 1000
TREASURY_NODE = 1021
"""Node of the ids of transfers between days; the workload's connections never have it."""
TREASURY = ((Decimal("1234.56"), "EUR"), (Decimal("9007199254740993.00"), "USD"))
"""One transfer after each day but the last. The second is 2^53 + 1, which no float holds."""
ROWS_PER_INSERT = 500


def load(
    services: Services, changes: int = 6000, accounts: int = 200, seed: int = 1, on_progress: Progress = lambda _: None
) -> dict[str, int]:
    """Make the three services anew and in agreement; the same arguments make the same rows.

    Parameters
    ----------
    changes
        Row changes of the payments, spread over three days of the load's own clock.

    Returns
    -------
    dict
        rows by ``endpoint database.table``.

    Raises
    ------
    LabError
        a server refuses something, or the replicator does not catch up.
    """
    names = services.names
    create_payments((services.source, services.target), names.pay, accounts, seed)
    name = f"services-{names.pay}"
    options = ReplicatorOptions(services.target, (names.pay,), name=name, since=source_position(services.source))
    with running_replicator(services.source, options) as replicator:
        for batch in range(BATCHES):
            on_progress(f"payments: day {batch + 1} of {BATCHES}")
            # One connection: rows do not depend on how threads take turns.
            Workload(WorkloadOptions(services.source, names.pay, 0.0, max(1, changes // BATCHES), 1,
                                     accounts=accounts, seed=seed)).run()  # fmt: skip
            if batch < len(TREASURY):
                _transfer(services, *TREASURY[batch])
        on_progress("payments: waiting for the target")
        replicator.wait_until(source_position(services.source), 120)
    with connect(services.target) as connection:
        drop_checkpoint(connection, name)
    on_progress("orders and ledger: derived from the payments")
    counts = _derive(services)
    with connect(services.target) as connection:
        for table in ("payments", "wallets", "ledger_entries", "outbox"):
            rows = query(connection, f"SELECT COUNT(*) FROM {names.table('pay', table)}")  # noqa: S608
            counts[f"target {names.pay}.{table}"] = int(rows[0][0])
    return counts


def _transfer(services: Services, amount: Decimal, currency: str) -> None:
    """Write one captured payment at the next midnight of the load's clock, in legal steps."""
    names = services.names
    payments, entries = names.table("pay", "payments"), names.table("pay", "ledger_entries")
    with connect(services.source) as connection:
        newest = max(int(query(connection, f"SELECT COALESCE(MAX(id), 0) FROM {table}")[0][0])  # noqa: S608
                     for table in (payments, entries))  # fmt: skip
        day = (milliseconds_of(newest) // DAY + 1) * DAY
        number, at = snowflake(day, TREASURY_NODE, 0), moment(day)
        moves = ((account_id(10), -amount), (account_id(0), amount))
        step = f"version = version + 1, changed_at = '{at}' WHERE id = {number}"
        run(connection, [
            f"INSERT INTO {payments} VALUES ({number}, {moves[0][0]}, {moves[1][0]}, {amount}, '{currency}', 'created',"  # noqa: S608
            f" x'{day:032x}', 'treasury', NULL, '{at}', '{at}', 1)",
        ])  # fmt: skip
        run(connection, [f"UPDATE {payments} SET state = 'authorized', {step}"])  # noqa: S608
        statements = [f"UPDATE {payments} SET state = 'captured', {step}"]  # noqa: S608
        for place, (account, money) in enumerate(moves, 1):
            row = snowflake(day, TREASURY_NODE, place)
            statements += [
                f"INSERT INTO {entries} VALUES ({row}, {number}, {account}, '{currency}', {money}, 'capture', '{at}')",  # noqa: S608
                f"INSERT INTO {names.table('pay', 'wallets')} VALUES ({account}, '{currency}', {money}, 1, '{at}')"  # noqa: S608
                " ON DUPLICATE KEY UPDATE balance = balance + VALUES(balance), version = version + 1,"
                " updated_at = VALUES(updated_at)",
            ]
        statements.append(f"UPDATE {names.table('pay', 'accounts')} SET payments_count = payments_count + 1,"  # noqa: S608
                          f" last_activity = '{at}' WHERE id = {moves[0][0]}")  # fmt: skip
        run(connection, statements)


def _derive(services: Services) -> dict[str, int]:
    """Make orders and journal from the payments of the source."""
    names = services.names
    counts = {}
    with connect(services.source) as source:
        for endpoint, service, table, select in (
            ("orders", "shop", "orders", orders_select(names)), ("ledger", "books", "journal", journal_select(names)),
        ):  # fmt: skip
            rows = query(source, select)
            with connect(services.server(endpoint)) as connection:
                run(connection, service_tables(names, service))
                inserts = [
                    f"INSERT INTO {names.table(service, table)} VALUES {', '.join(map(_literals, part))}"  # noqa: S608
                    for part in (rows[at : at + ROWS_PER_INSERT] for at in range(0, len(rows), ROWS_PER_INSERT))
                ]
                run(connection, inserts)
            counts[f"{endpoint} {getattr(names, service)}.{table}"] = len(rows)
    return counts


def _literals(row: Sequence[Any]) -> str:
    return f"({', '.join(str(value) if isinstance(value, int) else text_literal(str(value)) for value in row)})"

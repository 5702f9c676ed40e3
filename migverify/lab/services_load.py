"""What the three services hold: payments of the workload, and orders and a journal that agree with them.

The payments are written to the source and carried to the target by the lab's replicator; orders and journal are copied
from them through SQL, each in its own words and units (``services_tables``).
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from migverify.lab.cache import Progress
from migverify.lab.replicator import ReplicatorOptions
from migverify.lab.replicator_process import running_replicator, source_position
from migverify.lab.replicator_target import drop_checkpoint
from migverify.lab.services import Services, query, run
from migverify.lab.services_tables import create_statements, journal_select, orders_select
from migverify.lab.session import connect, text_literal
from migverify.lab.workload import Workload, WorkloadOptions
from migverify.lab.workload import create as create_payments
from migverify.lab.workload_tables import account_id, milliseconds_of, moment, snowflake

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
                run(connection, create_statements(names, service))
                inserts = [
                    f"INSERT INTO {names.table(service, table)} VALUES {', '.join(map(_literals, part))}"  # noqa: S608
                    for part in (rows[at : at + ROWS_PER_INSERT] for at in range(0, len(rows), ROWS_PER_INSERT))
                ]
                run(connection, inserts)
            counts[f"{endpoint} {getattr(names, service)}.{table}"] = len(rows)
    return counts


def _literals(row: Sequence[Any]) -> str:
    return f"({', '.join(str(value) if isinstance(value, int) else text_literal(str(value)) for value in row)})"

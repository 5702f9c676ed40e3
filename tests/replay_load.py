"""A payment load as a slow log, and its capture: what the tests of replay play."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from migverify.sql.quoting import quote_name
from migverify.workload.capture import CaptureInput, CaptureOptions, capture
from migverify.workload.opening import open_format
from migverify_lab.workload_payments import Payments
from migverify_lab.workload_tables import create_statements, initial_statements, milliseconds_of

START = 1_767_323_045_000_000


@dataclass(frozen=True)
class Line:
    """One statement of a log: microseconds after ``START``, how long it took, what the source answered."""

    session: int
    at: int
    sql: str
    took: int = 200
    rows: int = 0
    errno: int = 0


def accounts(sessions: int) -> int:
    """Accounts that so many sessions need."""
    return sessions * 12


def setup(database: str, sessions: int) -> list[str]:
    """What makes the tables that the load begins with."""
    quoted = quote_name(database)
    return [*create_statements(quoted), *initial_statements(quoted, accounts(sessions), 1)]


def payments(
    database: str, sessions: int, transactions: int, *, reads: int = 4, gap: int = 20_000, seed: int = 1
) -> list[Line]:
    """Transactions of several sessions side by side, and reads between them."""
    share = accounts(sessions) // sessions
    lines: list[Line] = []
    for session in range(sessions):
        rng = random.Random(seed * 1000 + session)
        load = Payments(quote_name(database), session, session * share, share, seed, 0.1, milliseconds_of(0) + 1, 1.0)
        clock = session * 1_000
        for _ in range(transactions):
            statements, _ = load.transaction(4)
            texts = ["BEGIN", *(sql for sql, _ in statements), "COMMIT"]
            texts += [_read(database, rng, session * share, share) for _ in range(reads)]
            for sql in texts:
                lines.append(Line(session + 1, clock, sql))
                clock += 300
            clock += rng.randrange(gap // 2, gap)
    return lines


def _read(database: str, rng: random.Random, first: int, share: int) -> str:
    from migverify_lab.workload_tables import account_id

    account = account_id(first + rng.randrange(share))
    return rng.choice(
        [
            f"SELECT currency, balance FROM `{database}`.wallets WHERE account_id = {account} ORDER BY currency",
            f"SELECT id, name, status, score FROM `{database}`.accounts WHERE id = {account}",
            f"SELECT id, state FROM `{database}`.payments WHERE payer_id = {account} ORDER BY id DESC LIMIT 5",
            f"SELECT COUNT(*) FROM `{database}`.ledger_entries WHERE account_id = {account}",
            f"SELECT name, country FROM `{database}`.accounts WHERE id IN ({account}, {account + 1}) ORDER BY id",
        ]
    )


def slow_log(lines: Sequence[Line], database: str) -> bytes:
    """Return the lines as MySQL writes its slow log with log_slow_extra, in the order of their ends."""
    parts = []
    for line in sorted(lines, key=lambda one: (one.at + one.took, one.session)):
        begin, end = START + line.at, START + line.at + line.took
        parts.append(
            f"# Time: {_iso(end)}\n# User@Host: app[app] @ localhost []  Id: {line.session:5d}\n"
            f"# Query_time: {line.took / 1e6:.6f}  Lock_time: 0.000000 Rows_sent: {line.rows}  Rows_examined: 0"
            f" Thread_id: {line.session} Errno: {line.errno} Killed: 0 Bytes_received: 0 Bytes_sent: 0 Read_first: 0"
            " Read_last: 0 Read_key: 0 Read_next: 0 Read_prev: 0 Read_rnd: 0 Read_rnd_next: 0 Sort_merge_passes: 0"
            " Sort_range_count: 0 Sort_rows: 0 Sort_scan_count: 0 Created_tmp_disk_tables: 0 Created_tmp_tables: 0"
            f" Count_hit_tmp_table_size: 0 Start: {_iso(begin)} End: {_iso(end)}\n"
        )
        if not any(part.startswith("use ") for part in parts):
            parts.append(f"use {database};\n")
        parts.append(f"SET timestamp={begin // 1_000_000};\n{line.sql};\n")
    return "".join(parts).encode()


def _iso(moment: int) -> str:
    from migverify.workload.capture import time_text

    return time_text(moment)


def captured(lines: Sequence[Line], database: str, folder: Path) -> Path:
    """Write the log, capture it, and return the capture's folder."""
    log = folder / "slow.log"
    log.write_bytes(slow_log(lines, database))
    out = folder / "capture"
    form = open_format("slow", str(log), 3306)
    summary = capture([CaptureInput(log, form)], CaptureOptions(out, replace=True))
    assert summary.rejected == 0, summary.rejects
    assert summary.statements == len(lines)
    return out

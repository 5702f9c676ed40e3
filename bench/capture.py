"""``python -m bench.capture``: how fast logs become Parquet, end to end: MB/s, statements/s, CPU, peak memory.

The logs are made here: the load of a payment service behind a connection pool. Every figure is of a process of its own.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

FORMATS = ("slow-extra", "slow", "general", "audit", "audit-aurora")
GOAL = 8.0
"""MB/s for each process."""
BEGIN = 1_767_323_045_000_000
CONNECTIONS = 40
STATEMENTS_PER_CONNECTION = 2_000

_READS = (
    "SELECT p.payment_id, p.account_id, p.amount, p.currency, p.state, p.created_at, p.updated_at, a.name, a.country"
    " FROM payments p JOIN accounts a ON a.account_id = p.account_id WHERE p.account_id = {n} AND p.state IN ('{w}',"
    " 'open') ORDER BY p.created_at DESC LIMIT 20",
    "SELECT wallet_id, account_id, currency, balance, version, updated_at FROM wallets WHERE account_id = {n} AND"
    " currency = 'EUR' AND closed_at IS NULL",
    "/* svc=pay; trace={n} */ SELECT `id`, `name`, `state`, `country`, `limit_amount`, `limit_currency`, `created_at`,"
    " `updated_at` FROM `accounts` WHERE `id` = {n}",
    "SELECT COUNT(*), SUM(l.amount) FROM ledger_entries l WHERE l.payment_id = {n} AND l.kind = 'debit' AND"
    " l.created_at >= '2026-01-01 00:00:00'",
)
_WRITES = (
    "UPDATE wallets SET balance = balance - {m}.10, version = version + 1, updated_at = '2026-01-02 03:04:05.678'"
    " WHERE account_id = {n} AND currency = 'EUR' AND version = {m}",
    "INSERT INTO ledger_entries (entry_id, payment_id, account_id, currency, amount, kind, created_at, note) VALUES"
    " ({n}, {m}, {n}, 'EUR', -{m}.25, 'debit', '2026-01-02 03:04:05.678', 'it''s {w}')",
    "UPDATE payments SET state = '{w}', note = 'a \\'quoted\\' one', updated_at = '2026-01-02 03:04:05.678' WHERE"
    " payment_id = {n} AND state <> 'closed'",
)
_EXTRA = (
    " Thread_id: {id} Errno: {errno} Killed: 0 Bytes_received: {m} Bytes_sent: {m} Read_first: 0 Read_last: 0"
    " Read_key: 3 Read_next: 20 Read_prev: 0 Read_rnd: 0 Read_rnd_next: 0 Sort_merge_passes: 0 Sort_range_count: 0"
    " Sort_rows: 0 Sort_scan_count: 0 Created_tmp_disk_tables: 0 Created_tmp_tables: 0 Count_hit_tmp_table_size: 0"
    " Start: {start} End: {end}"
)


def calls(seed: int) -> Iterator[tuple[int, int, str, int]]:
    """Yield time in microseconds, connection, statement and errno; an empty statement is a connect, ``quit`` a quit."""
    made = random.Random(seed)
    now, newest = BEGIN, CONNECTIONS
    left = dict.fromkeys(range(1, CONNECTIONS + 1), 0)
    plans: dict[int, list[str]] = {one: ["", "SET NAMES utf8mb4", "SET autocommit=1"] for one in left}
    while True:
        connection = made.choice(tuple(left))
        plan = plans[connection]
        if not plan:
            plan.extend(_unit(made))
        now += made.randrange(20, 400)
        sql = plan.pop(0)
        yield now, connection, sql, 1062 if made.random() < 0.002 and sql[:6] == "INSERT" else 0
        left[connection] += 1
        if left[connection] > STATEMENTS_PER_CONNECTION and not plan:
            now += 10
            yield now, connection, "quit", 0
            del left[connection], plans[connection]
            newest += 1
            left[newest] = 0
            plans[newest] = ["", "SET NAMES utf8mb4", "SET autocommit=1"]


def _unit(made: random.Random) -> list[str]:
    def text(shape: str) -> str:
        return shape.format(n=made.randrange(10**9), m=made.randrange(10**4), w=f"s{made.randrange(10**6)}")

    reads = [text(made.choice(_READS)) for _ in range(made.randrange(1, 5))]
    if made.random() < 0.5:
        return reads
    return ["SET autocommit=0", *reads, text(_WRITES[0]), text(made.choice(_WRITES)), "commit", "SET autocommit=1"]


def _time(moment: int) -> str:
    whole, micros = divmod(moment, 1_000_000)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{micros:06d}Z"


def _slow(file: IO[str], size: int, *, extra: bool) -> None:
    written = file.write("mysqld, Version: 9.7.4 (MySQL Community Server - GPL). started with:\n")
    written += file.write(
        "Tcp port: 3306  Unix socket: /run/mysqld.sock\nTime                 Id Command    Argument\n"
    )
    made = random.Random(7)
    used = False
    for now, connection, sql, errno in calls(1):
        if not sql:
            continue
        took, rows = made.randrange(60, 90_000), made.randrange(0, 21)
        start, end = _time(now - took), _time(now)
        more = _EXTRA.format(id=connection, errno=errno, m=made.randrange(100, 4000), start=start, end=end)
        use = "" if used else "use pay;\n"
        text = "# administrator command: Quit" if sql == "quit" else sql
        web = connection % 4
        written += file.write(
            f"# Time: {end}\n# User@Host: pay[pay] @ web{web} [10.0.0.{web}]  Id: {connection:5}\n"
            f"# Query_time: 0.{took:06d}  Lock_time: 0.000002 Rows_sent: {rows}  Rows_examined: {rows}"
            f"{more if extra else ''}\n{use}SET timestamp={(now - took) // 1_000_000};\n{text};\n"
        )
        used = True
        if written >= size:
            return


def _general(file: IO[str], size: int) -> None:
    written = 0
    for now, connection, sql, _ in calls(1):
        if not sql:
            text = f"Connect\tpay@web{connection % 4} on pay using TCP/IP"
        else:
            text = "Quit\t" if sql == "quit" else f"Query\t{sql}"
        written += file.write(f"{_time(now)}\t{connection:5} {text}\n")
        if written >= size:
            return


def _audit(file: IO[str], size: int) -> None:
    written = 0
    for number, (now, connection, sql, errno) in enumerate(calls(1)):
        who = f"{now},aurora-1,pay,10.0.0.{connection % 4},{connection}"
        if not sql:
            text = f"{who},0,CONNECT,pay,,0\n"
        elif sql == "quit":
            text = f"{who},0,DISCONNECT,pay,,0\n"
        else:
            quoted = sql.replace("\\", "\\\\").replace("'", "\\'")
            text = f"{who},{number},QUERY,pay,'{quoted}',{errno}\n"
        written += file.write(text)
        if written >= size:
            return


def make(form: str, path: Path, size: int) -> None:
    """Write a log of about ``size`` bytes."""
    makers: dict[str, Callable[[IO[str]], None]] = {
        "slow-extra": lambda file: _slow(file, size, extra=True),
        "slow": lambda file: _slow(file, size, extra=False),
        "general": lambda file: _general(file, size),
        "audit": lambda file: _audit(file, size),
        "audit-aurora": lambda file: _audit(file, size),
    }
    with path.open("w", encoding="utf-8", buffering=1 << 20) as file:
        makers[form](file)
    if form == "audit-aurora":
        spread(path, 4)


def spread(path: Path, count: int) -> None:
    """Deal the lines of a log out to files of the same name with a number, as Aurora writes them."""
    made = random.Random(9)
    with ExitStack() as opened:
        files = [opened.enter_context(path.with_name(f"{path.name}.{number}").open("w")) for number in range(count)]
        for line in opened.enter_context(path.open()):
            made.choice(files).write(line)
    path.unlink()


def one(form: str, path: Path, out: Path, how: str) -> None:
    """Capture one log and print what it took, as JSON."""
    from migverify.workload.capture import CaptureInput, CaptureOptions, capture
    from migverify.workload.mask import mask_statement, mask_text
    from migverify.workload.opening import open_format
    from migverify.workload.tasks import Processes

    files = sorted(path.parent.glob(f"{path.name}*"))
    inputs = [CaptureInput(file, open_format(form.partition("-")[0], str(file), 3306)) for file in files]
    options = CaptureOptions(out)
    if how == "mask":
        options = CaptureOptions(out, mask=mask_statement, text_mask=mask_text)
    wall, spent = time.monotonic(), time.process_time()
    with Processes(int(how[5:]) if how.startswith("jobs=") else 1) as tasks:
        summary = capture(inputs, options, tasks)
        taken = time.monotonic() - wall
    workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = {
        "wall": taken, "cpu": time.process_time() - spent + workers.ru_utime + workers.ru_stime, "bytes": summary.bytes,
        "statements": summary.statements, "rejected": summary.rejected,
        "rss_mb": max(workers.ru_maxrss, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 1024,
    }  # fmt: skip
    print(json.dumps(told))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.capture", description=__doc__)
    parser.add_argument("formats", nargs="*", default=list(FORMATS), metavar="FORMAT", help=f"of {', '.join(FORMATS)}")
    parser.add_argument("--mb", type=int, default=200, help="size of each log")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--mask", action="store_true", help="with masked literals too")
    parser.add_argument("--jobs", type=int, default=1, help="with so many processes too")
    parser.add_argument("--one", nargs=4, metavar=("FORMAT", "LOG", "OUT", "HOW"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        form, path, out, how = arguments.one
        one(form, Path(path), Path(out), how)
        return
    print(
        f"{'log':12} {'how':8} {'bytes each':>10} {'MB/s CPU':>9} {'MB/s wall':>9} {'statements/s':>13} {'peak MB':>8}"
    )
    for form in arguments.formats:
        with tempfile.TemporaryDirectory(prefix="migverify-bench-") as scratch:
            path, out = Path(scratch) / "the.log", Path(scratch) / "out"
            make(form, path, arguments.mb * 1_000_000)
            more = {"mask": arguments.mask, f"jobs={arguments.jobs}": arguments.jobs > 1}
            for how in ["jobs=1", *(name for name, wanted in more.items() if wanted)]:
                for _ in range(arguments.rounds):
                    command = [sys.executable, "-m", "bench.capture", "--one", form, str(path), str(out), how]
                    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                    shutil.rmtree(out)
                    size = told["bytes"] / 1e6
                    print(
                        f"{form:12} {how:8} {told['bytes'] / told['statements']:10.0f} {size / told['cpu']:9.1f}"
                        f" {size / told['wall']:9.1f} {told['statements'] / told['cpu']:13,.0f} {told['rss_mb']:8.0f}"
                    )


if __name__ == "__main__":
    main()

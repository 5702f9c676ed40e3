"""The road of columns writes what the road of objects writes: on logs as servers write them, and on any bytes."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.errors import ReadError
from migverify.workload.capture import CaptureInput, CaptureOptions, capture
from migverify.workload.formats import audit, reading
from migverify.workload.formats.audit import Audit
from migverify.workload.formats.general import GeneralLog
from migverify.workload.formats.slow import SlowLog
from tests.unit.log_writers import BANNER, FORGED, FORGED_GENERAL, Sent, write_slow

pq = pytest.importorskip("pyarrow.parquet")

SQL = [
    b"select 1", b"SELECT 'it''s' FROM t", b"/* a; b */ select `x` from t", b"insert into t values ('\\'', \"q\")",
    b"BEGIN", b"commit", b"ROLLBACK", b"rollback to savepoint a", b"set autocommit=0", b"SET autocommit=1",
    b"start transaction", b"SET autocommit = 0", b"commit and chain", b"set names latin1", b"use shop", b"",
    b"SET sql_mode='ANSI', @a = 5", b"select @a := 1", b"select 1 into @b", b"select 1; select 2", b"select ';x'",
    b"create temporary table x (a int)", b"drop table x", b"lock tables t write", b"select '" + FORGED + b"'",
    b"select '" + FORGED_GENERAL + b"'", b"select '", b"(select 1)", b" \n select 2", b"-- c\nselect 3", b"selecting",
    b"prepare s from 'select 1'", b"execute s", b"PREPARE s FROM ...", b"create user u identified by '<secret>'",
    b"alter user u identified by *****", b"\xff\xfe", b"update t set a = '\xe9'", b"call p()",
    b"/*!40101 SET NAMES utf8 */",
    b"select 1 -- a", b"select 1 # '", b"/* open", b"xa start 'x'", b"# administrator command: Ping",
    b"# administrator command: Quit", b"# administrator command: Init DB", b"show tables",
    b"with a as (select 1) select 2",
]  # fmt: skip
OFTEN = [
    b"set autocommit=0", b"SET autocommit=1", b"commit", b"begin", b"select 1", b"insert into t values (1, 'x')",
    b"prepare s from 'select 1'", b"execute s", b"select `a` from t where b = 'it''s'",
]  # fmt: skip
USUAL = [b"2026-01-02T03:04:%02d.%06dZ" % (second, 678_900 + second % 7) for second in range(60)]
TIMES = [
    b"2026-12-31T23:59:59.999999Z", b"2024-02-29T00:00:00.000000Z", b"2023-02-29T00:00:00.000000Z",
    b"2026-01-02T03:04:05.678901+08:00", b"2026-01-02T24:04:05.678901Z", b"2026-13-02T03:04:05.678901Z",
    b"0000-00-00T00:00:00.000000Z", b"260102  3:04:05",
]  # fmt: skip
USERS = [
    b"app[app] @ web1 [10.0.0.9]  Id:     3", b"app[app] @ web1 [10.0.0.9]  Id:     4", b"b[b] @  []  Id: 3", b"odd",
    b"b[b] @ localhost []", b"app[app] @ web2 [10.0.0.8]  Id: 12345678901234",
]  # fmt: skip
FIGURES = [
    b"# Query_time: 0.003464  Lock_time: 0.000324 Rows_sent: 1000  Rows_examined: 2000\n",
    b"# Query_time: 0.000001  Lock_time: 0.000324 Rows_sent: 0  Rows_examined: 0 Thread_id: 4 Errno: 0 Killed: 0\n",
    b"# Query_time: 0.000001  Lock_time: 0.000324 Rows_sent: 0  Rows_examined: 0 Thread_id: 3 Errno: 1062 Killed: 0\n",
    b"# Query_time: 12.003464  Lock_time: 0.000324 Rows_sent: 1  Rows_examined: 2 Thread_id: 3 Errno: 1213 Killed: 0\n",
    b"# Query_time: 18446744073708.796870.000036  Lock_time: 0 Rows_sent: 0  Rows_examined: 0\n",
    b"# Thread_id: 8  Schema: d  QC_hit: No\n# Query_time: 0.1  Lock_time: 0.0 Rows_sent: 1  Rows_examined: 0\n",
]  # fmt: skip
CLOCKS = [
    b"SET timestamp=1767323045;\n", b"SET timestamp=1767323044;\n", b"SET timestamp=1767323045.000100;\n", b"",
    b"SET last_insert_id=7,insert_id=18446744073709551615,timestamp=1767323045;\n",
    b"use d;\nSET timestamp=1767323045;\n", b"SET insert_id=8,timestamp=1767323045;\n",
    b"use `a``b`;\nSET timestamp=1;\n", b"use shop;\n",
    b"SET last_insert_id=0,timestamp=1767323045;\n",
]  # fmt: skip
ODD = [BANNER, b"\n", b"\r\n", b"'", b"/*", b"garbage\n", FORGED, b"\xff\x00", b"# Time: "]
LOGINS = [b"app@web on d using TCP/IP", b"b@web on  using Socket", b"Access denied for user 'x'@'y'"]


class Writer:
    """Writes logs whose records are usual ones, but for every so many."""

    def __init__(self, seed: int) -> None:
        self.made = random.Random(seed)
        self.odd = self.made.choice([0.0, 0.02, 0.1, 0.4])

    def of(self, *choices: list[bytes]) -> bytes:
        """One of the first, seldom one of the others; of a list mostly its first two."""
        usual, *others = choices
        if others and self.made.random() < self.odd:
            return self.made.choice(self.made.choice(others))
        return self.made.choice(usual)

    def slow(self) -> bytes:
        of = self.of
        return (
            b"# Time: " + of(USUAL, TIMES) + b"\n# User@Host: " + of(USERS[:2], USERS) + b"\n"
            + of(FIGURES[:3], FIGURES) + of(CLOCKS[:2], CLOCKS) + of(OFTEN, SQL) + b";\n"
        )  # fmt: skip

    def general(self) -> bytes:
        session = self.made.choice([3, 4, 5, 123456]) if self.made.random() > self.odd / 4 else 0
        time = self.of(USUAL, TIMES)
        if self.made.random() < 0.05:
            return time + b"\t%5d Connect\t" % session + self.made.choice(LOGINS) + b"\n"
        command = self.of([b"Query"] * 6 + [b"Execute", b"Prepare"], [b"Quit", b"Close stmt", b"Init DB", b"Ping"])
        return time + b"\t%5d " % session + command + b"\t" + self.of(OFTEN, SQL) + b"\n"

    def audit(self, dialect: int, line: int) -> bytes:
        """One line of Aurora's, RDS's or MariaDB's dialect."""
        of, made = self.of, self.made
        time = b"17673230%02d678901" % (line % 60) if dialect == 0 else b"20260102 03:04:%02d" % (line // 3 % 60)
        time = of([time], [b"", b"20261302 03:04:05", b"20260102  3:04:05", b"1767323045"])
        host = of([b"10.0.0.9", b"localhost"], [b"", b"web:4711", b"a:b"])
        session = made.choice([3, 4, 5]) if made.random() > self.odd / 4 else made.choice([0, 10**17, 10**18])
        who = b"%s,%s,%s,%s,%d," % (time, of([b"db-1"], [b"", b"*****"]), of([b"app"], [b"", b"it's"]), host, session)
        query = line + (0 if made.random() > self.odd / 2 else -made.randrange(5))
        tail = b",," if dialect == 1 else b""
        if made.random() < 0.06 + self.odd / 4:
            odd = [b"CONNECT,shop,,0", b"DISCONNECT,shop,,0", b"FAILED_CONNECT,,,1045", b"CHANGEUSER,other,,0",
                   b"READ,shop,t,", b"QUERY,shop,'select 1", b"QUERY,shop,select 1,0", b"NOPE,a,b,0"]  # fmt: skip
            return who + b"%d," % max(0, query) + made.choice(odd) + tail + b"\n"
        sql = made.choice([of(OFTEN, SQL), of([b"select '%d'" % line], [b"select ?, '?'", b"select '?'", b"\\\\'"])])
        escapes = {0x5C: b"\\\\", 0x27: b"\\'", 0x0A: b"\\n", 0x0D: b"\\r", 0x09: b"\\t", 0: b"\\0"}
        text = b"".join(escapes.get(one, bytes([one])) for one in sql)
        text = of([text], [text + b"\\q", text[:12], b"x" * 1024, b"select '" + b"y" * 1020, b"a" * 1500])
        code = of([b"0"], [b"1062", b"1064", b"1213", b"", b"123456789"])
        return who + b"%d,QUERY,%s,'%s',%s" % (max(0, query), of([b"shop"], [b"", b"o'k"]), text, code) + tail + b"\n"

    def audit_log(self) -> bytes:
        """A log of one dialect, its last line maybe half."""
        dialect = self.made.randrange(3)
        lines = [self.audit(dialect, line) for line in range(self.made.randrange(90))]
        if self.odd:
            other = [b"\n", b"\r\n", b"x\n"]
            lines = [line if self.made.random() > 0.02 else self.made.choice([*other, line[:-1] + b"\r\n"])
                     for line in lines]  # fmt: skip
        data = b"".join(lines)
        return data[: len(data) - self.made.choice([0, 0, 1, 7])]

    def log(self, record: Callable[[], bytes]) -> bytes:
        """A log, maybe an empty one."""
        parts = (
            record() if self.made.random() > self.odd / 4 else self.made.choice(ODD)
            for _ in range(self.made.randrange(90))
        )
        return self.made.choice([b"", b"", BANNER, b"tail of a record;\n"]) + b"".join(parts)


def outcome(folder: Path, data: list[bytes], form: Any, columns: Any, run_bytes: int | None = None) -> Any:
    """Capture; returns everything that was written, or the error."""
    inputs = []
    for number, one in enumerate(data):
        path = folder / f"{number}.log"
        path.write_bytes(one)
        inputs.append(CaptureInput(path, form, "db1"))
    from migverify.spark.statements import StatementFiles

    out = folder / ("columns" if columns else "objects")
    try:
        capture(inputs, CaptureOptions(out, run_bytes=run_bytes), StatementFiles, columns)
    except ReadError as error:
        return str(error)
    told = json.loads((out / "_summary.json").read_text())
    del told["out"]
    rejects = sorted((out / "_rejects.jsonl").read_text().splitlines())
    tables = [pq.read_table(file) for place in (out, out / "_events") for file in sorted(place.glob("*.parquet"))]
    return told, rejects, tables


def small(patch: pytest.MonkeyPatch, header: int, seed: int) -> None:
    """Let borders of windows, batches and slices fall among few records, and held rows go to disk."""
    from migverify.spark import capture_output, capture_runs

    patch.setattr(reading, "HEADER_BYTES", header)
    if seed % 3:
        patch.setattr(capture_runs, "SLICE_ROWS", seed % 7 + 1)
        patch.setattr(capture_runs, "BATCH_ROWS", seed % 5 + 1)
        patch.setattr(capture_runs, "MOST_RUNS", 2)
        patch.setattr(capture_output, "HELD_BYTES", seed % 2 * 1000 + 1)


def both(data: list[bytes], form: Any, block: int = 4 << 20, run_bytes: int | None = None) -> None:
    from migverify.spark.capture_columns import Columns

    with tempfile.TemporaryDirectory() as folder:
        expected = outcome(Path(folder), data, form, None)
        found = outcome(Path(folder), data, form, Columns(block=block), run_bytes)
    assert found == expected


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([700, 4 << 20]), st.sampled_from([1, 4000, None]))
def test_any_slow_log(seed: int, block: int, run_bytes: int | None) -> None:
    writer = Writer(seed)
    with pytest.MonkeyPatch.context() as patch:
        small(patch, 600, seed)
        both([writer.log(writer.slow) for _ in range(seed % 2 + 1)], SlowLog(), block, run_bytes)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([300, 4 << 20]), st.sampled_from([1, None]))
def test_any_general_log(seed: int, block: int, run_bytes: int | None) -> None:
    writer = Writer(seed)
    with pytest.MonkeyPatch.context() as patch:
        small(patch, 300, seed)
        both([writer.log(writer.general) for _ in range(seed % 2 + 1)], GeneralLog(), block, run_bytes)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([300, 4 << 20]), st.sampled_from([1, None]))
def test_any_audit_log(seed: int, block: int, run_bytes: int | None) -> None:
    writer = Writer(seed)
    with pytest.MonkeyPatch.context() as patch:
        small(patch, 300, seed)
        if seed % 4 == 0:
            patch.setattr(audit, "REMEMBERED", 3)
        longest = 400 if seed % 5 == 0 else 64 << 20
        both([writer.audit_log() for _ in range(seed % 2 + 1)], Audit(longest=longest), block, run_bytes)


def test_a_transaction_left_open_across_slices_is_partial(tmp_path: Path) -> None:
    from migverify.spark import capture_runs
    from migverify.spark.capture_columns import Columns

    texts = [(3, b"begin"), (3, b"select 1"), (3, b"select 2"), (4, b"select 3")]
    log = write_slow([Sent(sql, session, end=1_767_323_045_678_901 + at) for at, (session, sql) in enumerate(texts)])
    for rows in (1, 2, 3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(capture_runs, "SLICE_ROWS", rows)
            _, _, (table, _) = outcome(tmp_path, [log], SlowLog(), Columns())
        assert table["partial"].to_pylist() == ["transaction open at the end of the capture"] * 3 + [""]
        shutil.rmtree(tmp_path / "columns")

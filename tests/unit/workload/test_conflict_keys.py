"""Keys, messages and logs of conflicts: real ones, made ones, and any bytes."""

from __future__ import annotations

import base64
import struct

import pyarrow
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from migverify.workload.conflict import keys, tidblog
from migverify.workload.conflict.message import parse
from migverify.workload.conflict.model import LATEST, ConflictKind, SeenStatement, span_text, time_text, tso_time

SIGN = 1 << 63


def coded(value: int | bytes | float) -> bytes:
    """A value as TiDB codes it in keys, written down anew from the format's description."""
    if isinstance(value, int):
        return b"\x03" + (value + SIGN).to_bytes(8, "big")
    if isinstance(value, float):
        bits = int.from_bytes(struct.pack(">d", value), "big")
        return b"\x05" + (bits | SIGN if not bits & SIGN else ~bits & (1 << 64) - 1).to_bytes(8, "big")
    return b"\x01" + grouped(value)


def grouped(raw: bytes) -> bytes:
    groups = []
    for at in range(0, len(raw) + 1, 8):
        group = raw[at : at + 8]
        groups.append(group.ljust(8, b"\0") + bytes([0xFF - (8 - len(group))]))
    return b"".join(groups)


def row_key(table: int, handle: bytes) -> bytes:
    return b"t" + (table + SIGN).to_bytes(8, "big") + b"_r" + handle


ids = st.integers(1, 1 << 40)
values = st.lists(
    st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False).filter(lambda one: str(one) != "-0.0")
    | st.text(st.characters(min_codepoint=33, max_codepoint=0x2000, categories=["L", "N"]), max_size=20)
    .map(str.encode),
    min_size=1, max_size=4,
)  # fmt: skip


def as_text(value: int | bytes | float) -> str:
    return value.decode() if isinstance(value, bytes) else repr(value)


@given(ids, ids, values, st.sampled_from(["plain", "grouped", "stored", "keyspace"]))
def test_an_index_key_comes_back(table: int, index: int, parts: list[int | bytes | float], form: str) -> None:
    raw = b"t" + (table + SIGN).to_bytes(8, "big") + b"_i" + (index + SIGN).to_bytes(8, "big")
    raw += b"".join(coded(one) for one in parts)
    shown = {"plain": raw, "grouped": grouped(raw), "stored": b"z" + grouped(raw) + b"\xfa" * 8,
             "keyspace": b"x\0\0\x01" + raw}[form]  # fmt: skip
    found = keys.decode(shown)
    assert (found.kind, found.table_id, found.index_id) == ("index", table, index)
    assert found.values == tuple(as_text(one) for one in parts)


@given(ids, st.integers(-(1 << 63), (1 << 63) - 1))
@example(255, 64_000)
def test_a_row_key_comes_back(table: int, handle: int) -> None:
    found = keys.decode(row_key(table, (handle + SIGN).to_bytes(8, "big")))
    assert (found.kind, found.table_id, found.values) == ("row", table, (str(handle),))


@given(st.binary(max_size=80), st.booleans())
@example(b"t" + b"\xff" * 30, False)
@example(b"\x06\x05\x02\x80", True)
def test_any_bytes_have_a_key(raw: bytes, as_index: bool) -> None:
    raw = b"t\x80\0\0\0\0\0\0\x01_i\x80\0\0\0\0\0\0\x01" + raw if as_index else raw
    assert keys.decode(raw).raw == raw
    assert str(keys.decode(raw))


@pytest.mark.parametrize(
    ("hexadecimal", "told"),
    [
        # as TiDB 8.5 printed them
        ("7480000000000000745f698000000000000002038000000000000001038000000000000001", "table id 116, index 2 (1, 1)"),
        ("7480000000000000745f698000000000000001017a00000000000000f8", "table id 116, index 1 (z)"),
        ("7480000000000000765f72017800000000000000f8038000000000000001", "table id 118, row (x, 1)"),
        ("748000000000000074", "key 0x748000000000000074"),
        # DECIMAL(5,2): precision, scale, then 123.45 and -123.45 as MySQL stores them
        ("7480000000000000015f698000000000000001060502807b2d", "table id 1, index 1 (123.45)"),
        ("7480000000000000015f6980000000000000010605027f84d2", "table id 1, index 1 (-123.45)"),
        ("7480000000000000015f69800000000000000100", "table id 1, index 1 (NULL)"),
        ("7480000000000000015f69800000000000000142", "table id 1, index 1 (not decoded)"),
    ],
)
def test_keys_by_hexadecimal(hexadecimal: str, told: str) -> None:
    found = keys.from_hex(hexadecimal)
    assert found is not None
    assert str(found) == told


def test_keys_by_other_spellings() -> None:
    assert keys.from_hex("xyz") is None
    assert keys.from_hex("abc") is None
    escaped = keys.from_escapes(r"t\200\000\000\000\000\000\000t_r\200\000\000\000\000\000\000\001")
    assert (escaped.table_id, escaped.values) == (116, ("1",))
    schema = keys.from_words("[]byte{0x6d, 0x44, 0x42, 0x3a, 0x36, 0x35, 0x35, 0x39, 0x0, 0xfe, 0x0, 0x48}")
    assert schema is not None
    assert str(schema) == "key of the schema DB:6559"
    assert keys.from_words("[]byte(nil)") is None
    spelled = keys.from_words("{tableID=5, tableName=d.t, indexID=2, indexValues={a, b, }}")
    assert spelled is not None
    assert str(spelled) == "d.t, index 2 (a, b)"
    # a value with a comma is told apart by the bytes only
    raw = keys.decode(row_key(5, coded(b"a, b")))
    named = keys.from_words("{tableID=5, tableName=d.t, handle={a, b}}", raw)
    assert named is not None
    assert named.values == ("a, b",)


def test_tso() -> None:
    assert time_text(tso_time(418981749670543365)) == "2020-08-24 17:02:14.815Z"
    assert span_text(300_000) == "300 ms"
    assert span_text(1_500_000) == "1.500 s"


WRITE = (
    "Write conflict, txnStartTS=470618947083304960, conflictStartTS=470618947084877824, "
    "conflictCommitTS=470618947085139968, key={tableID=118, tableName=c.tc, handle={x, 1}}, "
    "originalKey=7480000000000000765f72017800000000000000f8038000000000000001, primary=[]byte(nil), "
    "originalPrimaryKey=, reason=Optimistic [try again later]"
)


@pytest.mark.parametrize(
    "text",
    [
        WRITE, f"[kv:9007]{WRITE}", f"ERROR 9007 (HY000): {WRITE}", f"OperationalError(9007, '{WRITE}')",
        f"SQLSTATE[HY000]: General error: 9007 {WRITE}",
    ],
)  # fmt: skip
def test_a_write_conflict(text: str) -> None:
    found = parse(text)
    assert found is not None
    assert (found.kind, found.code, found.reason) == (ConflictKind.WRITE, 9007, "Optimistic")
    assert (found.start, found.other_start, found.other_commit) == (
        470618947083304960, 470618947084877824, 470618947085139968,
    )  # fmt: skip
    assert str(found.key) == "c.tc, row (x, 1)"
    assert found.primary is None


def test_other_messages() -> None:
    stale = parse("ERROR 8005 (HY000): Write conflict, txnStartTS 470618947083304960 is stale")
    assert stale is not None
    assert (stale.code, stale.start, stale.other_start) == (8005, 470618947083304960, None)
    refused = parse("ERROR 8002 (HY000): [42] can not retry select for update statement")
    assert refused is not None
    assert (refused.kind, refused.session) == (ConflictKind.REFUSED, "42")
    numbers = ",".join(map(str, row_key(116, (1 + SIGN).to_bytes(8, "big"))))
    lost = parse(
        "[kv:8022]Error: KV error safe to retry Error(Txn(Error(Mvcc(Error(TxnLockNotFound { start_ts: "
        f"TimeStamp(470618947083304960), commit_ts: TimeStamp(1), key: [{numbers}] }}))))) [try again later]"
    )
    assert lost is not None
    assert (lost.kind, str(lost.key)) == (ConflictKind.LOST, "table id 116, row (1)")
    schema = parse("ERROR 8028 (HY000): Information schema is changed during the execution of the statement")
    assert schema is not None
    assert schema.kind is ConflictKind.SCHEMA
    lazy = parse(
        "ERROR 8147 (23000): transaction aborted because lazy uniqueness check is enabled and an error occurred: "
        "[kv:1062]Duplicate entry '1' for key 't.PRIMARY'"
    )
    assert lazy is not None
    assert lazy.kind is ConflictKind.UNIQUENESS
    locked = parse(
        'key is locked (will clean up) primary_lock: "t\\200\\000\\000\\000\\000\\000\\000t_r\\200\\000\\000\\000\\000'
        '\\000\\000\\001" lock_version: 470618947083304960 key: "t\\200\\000\\000\\000\\000\\000\\000t_r\\200\\000\\000'
        '\\000\\000\\000\\000\\002" lock_ttl: 3000'
    )
    assert locked is not None
    assert (locked.kind, locked.other_start, str(locked.key)) == (
        ConflictKind.READ, 470618947083304960, "table id 116, row (2)",
    )  # fmt: skip
    assert parse("Duplicate entry '9007' for key 't.PRIMARY'") is None
    assert parse("Lost connection") is None


def test_a_line_with_backoffs() -> None:
    line = (
        '[2026/01/02 03:04:05.678 +08:00] [INFO] [coprocessor.go:743] ["[TIME_COP_PROCESS] resp_time:406ms '
        'txnStartTS:416643508703592451 region_id:8297 backoff_ms:255 backoff_types:[txnLockFast,txnLockFast] kv:3"]'
    )
    found = next(tidblog.log_conflicts([line.encode()], "tidb.log"))
    assert (found.kind, found.start, found.waited) == (ConflictKind.READ, 416643508703592451, 255_000)
    assert found.backoffs == ("txnLockFast", "txnLockFast")
    assert found.at is not None
    assert time_text(found.at) == "2026-01-01 19:04:05.678Z"
    assert found.where == "tidb.log:1"


def test_lines_of_a_real_log() -> None:
    """As TiDB 8.5 wrote them: the statement before a COMMIT stands inside the error."""
    lines = [
        f'[2026/11/21 13:46:50.575 +00:00] [WARN] [session.go:2724] ["run statement failed"] [conn=2097156] '
        f'[session_alias=] [error="previous statement: update tc set v=v+1: [kv:9007]{WRITE}"] [session="{{\n  '
        '"currDBName": "c"}"]',
        '[2026/11/21 13:46:50.598 +00:00] [WARN] [conn.go:1246] ["command dispatched failed"] [conn=2097156] '
        '[connInfo="id:2097156, addr:127.0.0.1:43386 status:10, collation:utf8mb4_general_ci, user:root"] '
        f'[sql=commit] [timestamp=470618947083304960] [err="[kv:9007]{WRITE}\nprevious statement: update tc set '
        'v=v+1\ngithub.com/pingcap/tidb/pkg/session"]',
    ]
    for found in tidblog.log_conflicts([line.encode() for line in lines], "tidb.log"):
        assert (found.session, found.sql) == ("2097156", "update tc set v=v+1")
        assert (found.start, str(found.key)) == (470618947083304960, "c.tc, row (x, 1)")
    assert found.user == "root"


@given(st.text(max_size=200), st.sampled_from(["", "Write conflict, ", "lock_version: ", "key={tableID=", "8022 "]))
def test_any_text_is_parsed_or_not(text: str, head: str) -> None:
    parse(head + text)
    list(tidblog.log_conflicts([(head + text).encode("utf-8", "surrogatepass")], "x"))


@given(st.binary(max_size=300).map(lambda one: one * 3))
def test_snappy(text: bytes) -> None:
    packed = pyarrow.compress(text, codec="snappy", asbytes=True)
    assert tidblog._unpacked(base64.b64encode(packed)) == text


@given(st.binary(max_size=60))
def test_damaged_plans_are_no_witness(packed: bytes) -> None:
    tidblog._unpacked(base64.b64encode(packed))
    assert tidblog._unpacked(b"?") == b""


def record(sql: str, *fields: str, time: str = "2026-01-02T03:04:05.678901234Z", took: str = "0.5") -> bytes:
    lines = [
        f"# Time: {time}",
        "# User@Host: app[app] @ h1 [10.0.0.1]",
        "# Conn_ID: 7",
        f"# Query_time: {took}",
        *fields,
    ]
    return ("\n".join(lines) + f"\n{sql};\n").encode()


def read(text: bytes) -> list[SeenStatement]:
    return list(tidblog.slow_statements(text.splitlines(keepends=True), "slow.log"))


def test_a_slow_log() -> None:
    plan = base64.b64encode(pyarrow.compress(
        b"Point_Get\tResolveLock:{num_rpc:2, total_time:4.02s},txnLockFast_backoff:{num:1, total_time:7ms}",
        codec="snappy", asbytes=True,
    )).decode()  # fmt: skip
    text = record(
        "use `d`;\nSELECT 'a;\n# Time: 2020-01-01T00:00:00Z\n# Conn_ID: 9\nb'", "# Txn_start_ts: 18446744073709551615",
        "# DB: d", "# Is_internal: false", "# Succ: true", "# IsExplicitTxn: false",
        f"# Plan: tidb_decode_plan('{plan}')",
    )  # fmt: skip
    text += record(
        "COMMIT", "# Txn_start_ts: 470618947083304960", "# Write_keys: 3 Write_size: 9 Prewrite_time: 0.1",
        "# Succ: false", "# IsExplicitTxn: true", "# Prev_stmt: UPDATE t SET a = 1", "# Backoff_types: [txnLock]",
        "# Backoff_time: 0.25",
    )  # fmt: skip
    first, second = read(text)
    assert first.sql == b"SELECT 'a;\n# Time: 2020-01-01T00:00:00Z\n# Conn_ID: 9\nb'"
    assert (first.session, first.user, first.host, first.database, first.txn) == ("7", "app", "10.0.0.1", "d", LATEST)
    assert (first.ok, first.explicit, first.backoffs, first.waited) == (
        True, False, ("txnLockFast", "resolveLock"), 4_027_000,
    )  # fmt: skip
    assert first.begin is not None
    assert first.end is not None
    assert (first.end - first.begin, time_text(first.end)) == (500_000, "2026-01-02 03:04:05.678901Z")
    assert (second.txn, second.write_keys, second.ok, second.previous) == (
        470618947083304960, 3, False, "UPDATE t SET a = 1",
    )  # fmt: skip
    assert (second.backoffs, second.waited) == (("txnLock",), 250_000)
    met = tidblog.waiting_reads(first)
    assert met is not None
    assert (met.kind, met.start, met.waited) == (ConflictKind.READ, None, 4_027_000)
    waits = tidblog.waiting_reads(second)
    assert waits is not None
    assert waits.kind is ConflictKind.WAIT


@given(st.binary(max_size=300))
def test_any_bytes_in_a_slow_log(text: bytes) -> None:
    read(b"# Time: 2026-01-02T03:04:05Z\n" + text)
    read(text)


@pytest.mark.attack("conflict", "a message that opens thousands of lists of values and closes none", "is read once")
def test_a_message_of_open_lists_is_read_in_linear_time() -> None:
    key = keys.from_words("tableID=1 indexID=2 " + "indexValues={" * 200_000)
    assert key is not None
    assert (key.kind, key.table_id, key.index_id, key.values) == ("index", 1, 2, ())

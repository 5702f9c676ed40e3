"""TiDB's log and slow log: lines -> conflicts and statements seen. Streaming; a file is read as bytes.

A slow log's record begins with ``# Time:`` (the answer's time) and ends with the statement, which ends with ``;``. What
the waiting was for is in three places: ``Backoff_types``, ``Cop_backoff_...`` and inside the compressed plan.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from migverify.sql.lexer import TokenKind, tokens
from migverify.workload.conflict.message import parse
from migverify.workload.conflict.model import LATEST, ConflictKind, SeenStatement, TransactionConflict
from migverify.workload.model import text_of

_HEAD = re.compile(r"\[(\d{4})/(\d\d)/(\d\d) (\d\d:\d\d:\d\d\.\d+) ([+-]\d\d:\d\d)\] \[(\w+)\]")
_FIELD = re.compile(r'\[(?:"((?:[^"\\]|\\.)*)"|([\w. -]+))=(?:"((?:[^"\\]|\\.)*)"|([^\]]*))\]')
_PREVIOUS = re.compile(r"previous statement: (.*?)(?:: \[\w+:\d+\]|\n|$)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_UNESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_TELLS = re.compile(
    rb"rite conflict|WriteConflict|txnLockFast|KeyIsLocked|key is locked|lock_version|primary_lock|TxnLockNotFound"
    rb"|can not retry select|nformation schema is|lazy uniqueness|KV error safe to retry"
    rb"|\b(?:9007|8002|8022|8028|8005|8147)\b"
)
_SLOW_TIME = re.compile(rb"# Time: (\S+)")
_SLOW_FIELD = re.compile(r"(\w+): ")
_USER = re.compile(r"(\S*?)\[[^\]]*\] @ (\S*) \[([^\]]*)\]")
_PLAN = re.compile(rb"tidb_decode_plan\('([A-Za-z0-9+/=]+)'\)")
_PLAN_WAIT = re.compile(rb"(txnLock(?:Fast)?)(?:_backoff:\{num:\d+, total_time:|: )([\d.]+)(ns|\xc2\xb5s|us|ms|s|m)")
_PLAN_RESOLVE = re.compile(rb"ResolveLock:\{num_rpc:(\d+), total_time:([\d.]+)(ns|\xc2\xb5s|us|ms|s|m)")
_COP_WAIT = re.compile(r"Cop_backoff_(txnLock(?:Fast)?)_total_time: ([\d.]+)")
_UNITS = {b"ns": 0.001, b"us": 1, b"\xc2\xb5s": 1, b"ms": 1000, b"s": 1e6, b"m": 60e6}
_SKIPPED = tuple(
    f"# {name}".encode()
    for name in (
        "Unpacked_bytes", "Plan", "Binary_plan", "Request_unit", "Optimize_time", "Parse_time", "Compile_time",
        "Rewrite_time", "Mem_max", "Storage_from", "Digest", "Resource_group", "Stats", "Index_names", "Result_rows",
        "Has_more_results", "Prepared", "Num_cop_tasks", "KV_total", "PD_total", "Wait_TS", "Write_sql_response",
        "IsSyncStats", "Cop_proc", "Cop_wait", "Backoff_total",
    )
)  # fmt: skip
"""Lines of a record that say nothing here: most of them. What is not named is read, in every version."""
_LONGEST_RECORD = 1 << 20
_LONGEST_PLAN = 64 << 20


def is_slow_log(head: bytes) -> bool:
    """Tell whether a file that begins so is a slow log of TiDB."""
    return b"# Txn_start_ts:" in head or (head.startswith(b"# Time:") and b"# Conn_ID:" in head)


def log_conflicts(lines: Iterable[bytes], file: str) -> Iterator[TransactionConflict]:
    """Yield what the lines of a log tell of conflicts; the same one may come several times, once for each line."""
    for number, line in enumerate(lines, 1):
        if _TELLS.search(line):
            text = text_of(line).rstrip("\n")
            found = _log_line(text, f"{file}:{number}")
            if found is not None:
                yield found


def _log_line(text: str, where: str) -> TransactionConflict | None:
    head = _HEAD.match(text)
    fields = {}
    for match in _FIELD.finditer(text):
        name = match[1] or match[2]
        fields[name] = _plain(match[3]) if match[3] is not None else match[4]
    found = parse(fields.get("error") or fields.get("err") or _plain(text), where) or parse(_plain(text), where)
    if found is None:
        return None
    at = None
    if head is not None:
        moment = datetime.fromisoformat(f"{head[1]}-{head[2]}-{head[3]}T{head[4]}{head[5]}")
        at = round(moment.timestamp() * 1e6)
    previous = _PREVIOUS.search(fields.get("error") or fields.get("err") or "")  # a COMMIT says little
    user = re.search(r"\buser:([^,\"\] ]+)", fields.get("connInfo", ""))
    start = found.start
    if start is None and (stamp := fields.get("timestamp") or fields.get("txnStartTS") or fields.get("txn")):
        start = int(stamp) if stamp.isdigit() else None
    return TransactionConflict(
        found.kind, found.code, found.text, where, start, found.other_start, found.other_commit, found.key,
        found.primary, found.reason, fields.get("conn", "") or found.session, at,
        previous[1] if previous else fields.get("sql", ""),
        user[1] if user else "", found.waited, found.backoffs,
    )  # fmt: skip


def _plain(text: str) -> str:
    return _ESCAPE.sub(
        lambda match: (
            chr(int(match[1][1:], 16)) if len(match[1]) == 5 else _UNESCAPED.get(match[1], match[1])
        ),
        text,
    )  # fmt: skip


def slow_statements(
    lines: Iterable[bytes], file: str, is_near: Callable[[int, int | None], bool] | None = None
) -> Iterator[SeenStatement]:
    """Yield the statements of a slow log of TiDB, in the order of the file.

    Parameters
    ----------
    is_near
        Told when a statement was answered, and the start TSO of its transaction; False leaves it out unread. It must
        not leave out what may be near by when it began.
    """
    fields: list[bytes] = []
    sql: list[bytes] = []
    began = 0
    size = 0
    for number, line in enumerate(lines, 1):
        if line.startswith(b"# Time: ") and (not sql or _whole(sql) or size >= _LONGEST_RECORD):
            if fields:
                yield from _record(fields, sql, f"{file}:{began}", is_near)
            fields, sql, began, size = [line], [], number, 0
        elif fields and not sql and line.startswith(b"# "):
            fields.append(line)
        elif fields and size < _LONGEST_RECORD:
            sql.append(line)
            size += len(line)
    if fields:
        yield from _record(fields, sql, f"{file}:{began}", is_near)


def _whole(sql: list[bytes]) -> bool:
    """Tell whether a statement ends here: TiDB writes its text as it is, and a literal may hold a record's header.

    A statement that was cut by the log's own limit ends with its length.
    """
    if re.search(rb"\(len:\d+\)\s*;?\s*$", sql[-1]) is not None:
        return True
    if not sql[-1].rstrip().endswith(b";"):
        return False
    text = b"".join(sql)
    if text.count(b"'") % 2 == 0 and text.count(b'"') % 2 == 0 and b"\\" not in text:
        return True
    return all(token.kind is not TokenKind.OPEN for token in tokens(text, "tidb"))


def _record(
    lines: list[bytes], sql: list[bytes], where: str, is_near: Callable[[int, int | None], bool] | None
) -> Iterator[SeenStatement]:
    if is_near is not None:
        answered = _time(lines[0])
        start = next((line[16:].strip() for line in lines[:3] if line.startswith(b"# Txn_start_ts: ")), b"")
        if answered is None or not is_near(answered, int(start) if start.isdigit() else None):
            return
    fields: dict[str, str] = {}
    for line in lines[1:]:
        if line.startswith(_SKIPPED):
            continue
        text = text_of(line[2:]).rstrip("\n")
        if text.startswith(("Prev_stmt: ", "Plan: ", "Binary_plan: ", "User@Host: ", "Session_connect_attrs: ")):
            name, _, value = text.partition(": ")
            fields[name] = value
            continue
        places = list(_SLOW_FIELD.finditer(text))
        for place, match in enumerate(places):
            end = places[place + 1].start() if place + 1 < len(places) else len(text)
            fields[match[1]] = text[match.end() : end].strip()
    answered = _time(lines[0])
    statement = b"".join(sql).strip()
    if statement.startswith(b"use ") and b"\n" in statement:
        statement = statement.partition(b"\n")[2]
    took = _seconds(fields.get("Query_time", ""))
    if not statement or answered is None or took is None:
        return
    user = _USER.match(fields.get("User@Host", ""))
    txn = int(fields["Txn_start_ts"]) if fields.get("Txn_start_ts", "").isdigit() else 0
    kinds, waited = _waits(fields, lines)
    yield SeenStatement(
        where, fields.get("Conn_ID", ""), answered - took, answered, statement.removesuffix(b";"),
        user[1] if user else "",
        user[3] if user else "", fields.get("DB", ""), txn or None, _truth(fields.get("Succ")), None,
        fields.get("Is_internal") == "true", _truth(fields.get("IsExplicitTxn")), fields.get("Prev_stmt", ""),
        _integer(fields.get("Write_keys")),
        _integer(fields.get("Exec_retry_count")) + _integer(fields.get("Txn_retry")),
        waited, kinds, _program(fields.get("Session_connect_attrs", "")),
    )  # fmt: skip


def _waits(fields: dict[str, str], lines: list[bytes]) -> tuple[tuple[str, ...], int]:
    """Return the kinds of waiting for locks, and how long it took with resolving them (microseconds)."""
    found: dict[str, float] = {}
    for kind in re.findall(r"txnLock(?:Fast)?\b", fields.get("Backoff_types", "")):
        found[kind] = (_seconds(fields.get("Backoff_time", "")) or 0) + (
            _seconds(fields.get("Commit_backoff_time", "")) or 0
        )
    for line in lines:
        if line.startswith(b"# Cop_backoff"):
            for kind, seconds in _COP_WAIT.findall(text_of(line)):
                found[kind] = max(found.get(kind, 0), float(seconds) * 1e6)
    resolving = float(_seconds(fields.get("Resolve_lock_time", "")) or 0)  # a commit that met locks
    if resolving:
        found.setdefault("txnLock", 0)
    plan = next((match for line in lines if (match := _PLAN.search(line))), None)
    if plan is not None and (text := _unpacked(plan[1])):
        for name, number, unit in _PLAN_WAIT.findall(text):
            kind = name.decode()
            found[kind] = max(found.get(kind, 0), float(number) * _UNITS[unit])
        for _, number, unit in _PLAN_RESOLVE.findall(text):
            resolving = max(resolving, float(number) * _UNITS[unit])
            found.setdefault("resolveLock", 0)
    return tuple(found), round(sum(found.values()) + resolving)


def _unpacked(text: bytes) -> bytes:
    """Return a plan's text: base64 of a Snappy block. What cannot be read is empty: it is one witness of three."""
    import pyarrow  # takes a quarter of a second, and few statements wait for locks

    try:
        packed = base64.b64decode(text, validate=True)
        length = 0
        for shift, byte in enumerate(packed[:5]):  # a block begins with its length, seven bits a byte
            length |= (byte & 0x7F) << 7 * shift
            if byte < 0x80:
                break
        if length > _LONGEST_PLAN:
            return b""
        unpacked: bytes = pyarrow.Codec("snappy").decompress(packed, decompressed_size=length, asbytes=True)
    except (binascii.Error, OSError, ValueError):
        return b""
    return unpacked


def waiting_reads(seen: SeenStatement) -> TransactionConflict | None:
    """Return the conflict of a statement that waited for a lock; None when it met none.

    A lock that was resolved without waiting is one too: the read met what the writer had not cleaned up yet.
    """
    if seen.internal or not seen.backoffs:
        return None
    kind = ConflictKind.WAIT if "txnLock" in seen.backoffs else ConflictKind.READ
    return TransactionConflict(
        kind, None, "", seen.where, seen.txn if seen.txn != LATEST else None, session=seen.session, at=seen.begin,
        sql=text_of(seen.sql), user=seen.user, waited=seen.waited, backoffs=seen.backoffs,
        seen=seen,
    )  # fmt: skip


def _time(line: bytes) -> int | None:
    match = _SLOW_TIME.match(line)
    if match is None:
        return None
    text = re.sub(r"(\.\d{6})\d+", r"\1", match[1].decode("ascii", "replace"))
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1e6)
    except ValueError:
        return None


def _seconds(text: str) -> int | None:
    try:
        return round(float(text) * 1e6)
    except ValueError:
        return None


def _integer(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


def _truth(text: str | None) -> bool | None:
    return {"true": True, "false": False}.get(text or "")


def _program(attributes: str) -> str:
    found = re.findall(r'"(?:program_name|_client_name)":"([^"]*)"', attributes)
    return " ".join(found)


def of_text(line: str) -> TransactionConflict | None:
    """Return the conflict of one line, be it a log's or a bare message."""
    return _log_line(line, "") if _TELLS.search(line.encode("utf-8", "surrogateescape")) else None

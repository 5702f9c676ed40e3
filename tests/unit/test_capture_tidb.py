"""TiDB's audit log in both forms, and TiProxy's traffic files."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.workload.formats import tidb_audit, tiproxy
from migverify.workload.formats.conversation import PREPARED_BEFORE
from migverify.workload.formats.go_text import unquote
from migverify.workload.formats.tidb_audit import TidbAudit
from migverify.workload.formats.tiproxy import TiProxy
from migverify.workload.model import Command, Parameter, Piece, Record, Rejected
from tests.unit.capture_packets import counted


def pieces(folder: Path, data: bytes, form: Any) -> list[Piece]:
    path = folder / "log"
    path.write_bytes(gzip.compress(data) if folder.name.endswith("gz") else data)
    found = list(form.read(str(path)))
    expected = 0
    for piece in found:
        assert piece.origin.offset == expected
        expected += piece.origin.length
    assert expected == len(data)
    return found


def audit(command: str = "Query", sql: str = "select 1", **told: str) -> bytes:
    fields = {
        "ID": "17571494330", "TIMESTAMP": "2025/09/06 17:03:53.720 +08:00", "EVENT_CLASS": "GENERAL",
        "EVENT_SUBCLASS": "",
        "STATUS_CODE": "0", "COST_TIME": "1336.083", "USER": "root", "CLIENT_IP": "10.0.0.9", "DATABASES": '"[]"',
        "SQL_TEXT": json.dumps(sql), "ROWS": "2", "CONNECTION_ID": "3695181836", "COMMAND": json.dumps(command),
        "CURRENT_DB": "test", "EVENT": "COMPLETED", **told,
    }  # fmt: skip
    line = "[2025/09/06 17:03:53.720 +08:00] [INFO] [logger.go:77] "
    return (line + " ".join(f"[{name}={value}]" for name, value in fields.items()) + "\n").encode()


def test_plugin_statement(tmp_path: Path) -> None:
    data = audit(sql="select \"[=]\", 'it\\'s'\n from `t]`")
    assert TidbAudit().sniff(data) > 0.9
    (found,) = pieces(tmp_path, data, TidbAudit())
    assert isinstance(found, Record)
    assert found.sql == b"select \"[=]\", 'it\\'s'\n from `t]`"
    assert (found.session, found.user, found.host, found.database) == (3695181836, "root", "10.0.0.9", "test")
    assert (found.end, found.duration, found.errno, found.rows_affected) == (1757149433720000, 1336, 0, 2)
    assert found.start == 1757149433720000 - 1336


def test_plugin_values(tmp_path: Path) -> None:
    values = r'"[\"KindInt64 1\",\"KindNull \",\"KindString a, \\\\\\\"b\\\\\\\"\",\"KindMysqlTime 2024-05-06\"]"'
    (found,) = pieces(
        tmp_path, audit("Execute", "select ?, ?, ?, ?", EXECUTE_PARAMS=values, PREPARED_STMT_ID="4"), TidbAudit()
    )
    assert isinstance(found, Record)
    assert (found.command, found.statement_id, found.partial) == (Command.EXECUTE, 4, "")
    assert found.parameters == (
        Parameter("integer", b"1"), Parameter("null", None), Parameter("text", b'a, "b"'),
        Parameter("date", b"2024-05-06"),
    )  # fmt: skip
    (none,) = pieces(tmp_path, audit("Execute", "select ?"), TidbAudit())
    assert isinstance(none, Record)
    assert (none.parameters, none.partial) == (None, tidb_audit.NO_VALUES)


def test_plugin_events(tmp_path: Path) -> None:
    connection = {"EVENT_CLASS": "CONNECTION", "SQL_TEXT": "", "DATABASES": '"[pay]"'}
    data = (
        audit(**connection, EVENT_SUBCLASS="Connected") + audit(EVENT="STARTING") + audit("Init DB", "use pay")
        + audit(STATUS_CODE="1146") + audit("Close stmt", "") + audit(**connection, EVENT_SUBCLASS="Disconnect") + b"\n"
    )  # fmt: skip
    found = pieces(tmp_path, data, TidbAudit())
    records = [one for one in found if isinstance(one, Record)]
    assert [one.command for one in records] == [
        Command.CONNECT, Command.INIT_DB, Command.QUERY, Command.CLOSE_STATEMENT, Command.QUIT,
    ]  # fmt: skip
    assert (records[0].database, records[1].sql, records[2].errno) == ("pay", b"pay", 1146)
    assert len(found) == 7


def test_extension(tmp_path: Path) -> None:
    begin = "[2026/01/08 19:44:11.099 +08:00] [INFO] [ID=f1-0009] "
    common = '[USER=root] [ROLES="[]"] [CONNECTION_ID=260047062] [STATUS_CODE={}] [CURRENT_DB=test] '
    lines = [
        begin + '[EVENT="[CONNECTION,CONNECT]"] ' + common.format(1) + "[HOST_IP=10.0.0.1] [HOST_PORT=4000]",
        begin + '[EVENT="[QUERY,QUERY_DML,INSERT]"] ' + common.format(1) + '[SQL_TEXT="insert t"] [AFFECTED_ROWS=1]',
        begin + '[EVENT="[QUERY,EXECUTE,SELECT]"] ' + common.format(1) + '[SQL_TEXT="select ?"] [EXECUTE_PARAMS="[1]"]',
        begin + '[EVENT="[QUERY,SELECT]"] ' + common.format(0) + '[SQL_TEXT="select nope"]',
        begin + '[EVENT="[AUDIT,ENABLE]"] ' + common.format(1),
    ]
    found = pieces(tmp_path, "".join(line + "\n" for line in lines).encode(), TidbAudit())
    connect, insert, run, wrong = [one for one in found if isinstance(one, Record)]
    assert (connect.command, connect.database, connect.server) == (Command.CONNECT, "test", "10.0.0.1:4000")
    assert (insert.sql, insert.rows_affected, insert.errno, insert.duration) == (b"insert t", 1, 0, None)
    assert (run.parameters, run.partial) == ((Parameter("text", b"1"),), tidb_audit.UNTYPED)
    assert (wrong.errno, wrong.details) == (None, {"failed": "1"})


def test_audit_rejects(tmp_path: Path) -> None:
    whole = audit()
    data = b"noise\n" + whole.replace(b"[CONNECTION_ID=3695181836] ", b"") + whole[:-20]
    reasons = [one.reason for one in pieces(tmp_path, data, TidbAudit()) if isinstance(one, Rejected)]
    assert reasons == [tidb_audit.NOT_AUDIT, tidb_audit.NO_CONNECTION, tidb_audit.CUT_LINE]


def test_audit_ranges(tmp_path: Path) -> None:
    data = b"".join(audit(sql=f"select {n}") for n in range(5))
    path = tmp_path / "log"
    path.write_bytes(data)
    whole = [one.origin.offset for one in TidbAudit().read(str(path))]
    for cut in (1, len(data) // 2, whole[2], whole[2] + 1):
        parts = [*TidbAudit().read(str(path), 0, cut), *TidbAudit().read(str(path), cut)]
        assert [one.origin.offset for one in parts] == whole


def native(payload: bytes, kind: str = "", **told: str) -> bytes:
    lines = ["# Time: 2024-08-28T18:51:20.477067123+08:00", "# Conn_ID: 100"]
    lines += [f"# Cmd_type: {kind}"] if kind else []
    lines += [f"# {name}: {value}" for name, value in told.items()]
    return "\n".join([*lines, f"# Payload_len: {len(payload)}", ""]).encode() + payload + b"\n"


def test_native_traffic(tmp_path: Path) -> None:
    values = struct.pack("<IBI", 4, 0, 1) + b"\x00\x01\xfd\x00" + counted(b"a\n# Time: b")
    data = (
        native(b"select 'a\n# Time: b'") + native(b"nope", Success="false") + native(b"pay", "Init DB")
        + native(b"select ?", "Prepare", Captured_ps_id="4") + native(values, "Execute")
        + native(struct.pack("<I", 4), "Close stmt") + native(values, "Execute")
        + native(values, "Execute", Prepared_stmt='"select \\"x\\", ?"') + native(b"", "Quit")
    )  # fmt: skip
    assert TiProxy().sniff(data) > 0.9
    for folder in (tmp_path, tmp_path / "gz"):
        folder.mkdir(exist_ok=True)
        found = [one for one in pieces(folder, data, TiProxy()) if isinstance(one, Record)]
        assert [one.sql for one in found[:4]] == [b"select 'a\n# Time: b'", b"nope", b"pay", b"select ?"]
        assert found[0].start == 1724842280477067
        assert (found[0].errno, found[1].errno, found[1].details) == (0, None, {"failed": "1"})
        run, closed, late, told, quit_ = found[4:]
        assert (run.sql, run.parameters) == (b"select ?", (Parameter("text", b"a\n# Time: b"),))
        assert closed.statement_id == 4
        assert (late.sql, late.partial) == (b"", PREPARED_BEFORE)
        assert (told.sql, told.partial) == (b'select "x", ?', "")
        assert quit_.command is Command.QUIT


@pytest.mark.parametrize("cut", [1, 5, 30, 60, 80])
def test_native_damage(tmp_path: Path, cut: int) -> None:
    data = native(b"select 1") + native(b"select 2")
    found = pieces(tmp_path, data[:-cut], TiProxy())
    assert isinstance(found[0], Record)
    told = [one for one in found[1:] if isinstance(one, Record)]
    assert [one.sql for one in told] == ([b"select 2"] if cut == 1 else [])
    odd = pieces(tmp_path, b'{"Version":"v1"}\njunk\n' + native(b"select 1") + b"# Conn_ID: 1\nx\n", TiProxy())
    assert [one.reason for one in odd if isinstance(one, Rejected)] == [
        tiproxy.BAD_HEADER, tiproxy.CUT_COMMAND, tiproxy.BAD_HEADER,
    ]  # fmt: skip


@given(st.binary(max_size=30))
def test_go_quotes(raw: bytes) -> None:
    text = b'"' + b"".join(b"\\x%02x" % byte for byte in raw) + b'"'
    assert unquote(text) == raw
    assert unquote(rb'"\u00e9\n\"\\"') == 'é\n"\\'.encode()
    for wrong in (b'"open', rb'"\q"', b'"cut\\"'):
        with pytest.raises(ValueError, match=r"quote|escape"):
            unquote(wrong)

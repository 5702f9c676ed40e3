"""Packets of a real client and real servers, recorded on their way, become the statements that were sent."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mysql.connector
import pymysql
import pytest
from pymysql.constants import CLIENT, COMMAND

from migverify.cli.main import run
from migverify.workload.formats.pcap import Pcap
from migverify.workload.model import Command, Record
from migverify_lab.servers import LabServer
from tests.conftest import Databases
from tests.unit.capture_packets import Trace, counted

pytestmark = pytest.mark.db
pq = pytest.importorskip("pyarrow.parquet")


@contextmanager
def recorder(server: LabServer, trace: Trace) -> Iterator[int]:
    """Pass one connection on to a server; every read of the socket is a segment of the trace."""
    lock = threading.Lock()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def pump(source: socket.socket, sink: socket.socket, note: str) -> None:
            while data := source.recv(65536):
                with lock:
                    getattr(trace, note)(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

        def serve() -> None:
            client, _ = listener.accept()
            with client, socket.create_connection((server.host, server.port)) as there:
                trace.syn()
                up = threading.Thread(target=pump, args=(client, there, "client"), daemon=True)
                up.start()
                pump(there, client, "server")
                up.join(10)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)


def prepare_and_run(connection: pymysql.Connection, sql: str, types: bytes, values: bytes) -> None:  # type: ignore[type-arg]
    """Use server-side prepared statements, which this driver does not: by its lower layer."""
    connection._execute_command(COMMAND.COM_STMT_PREPARE, sql)
    head = connection._read_packet().get_all_data()
    number, columns, parameters = struct.unpack("<IHH", head[1:9])
    for count in (parameters, columns):
        for _ in range(count + 1 if count else 0):
            connection._read_packet()
    body = struct.pack("<IBI", number, 0, 1) + b"\x00\x01" + types + values
    connection._execute_command(COMMAND.COM_STMT_EXECUTE, body)
    ends = 0
    while ends < 2:
        ends += connection._read_packet().is_eof_packet()
    connection._execute_command(COMMAND.COM_STMT_CLOSE, struct.pack("<I", number))


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_recorded_session(
    databases: Databases, side: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = getattr(databases.pair, side)
    trace = Trace()
    with recorder(server, trace) as port:
        connection = pymysql.connect(
            host="127.0.0.1", port=port, user=server.user, password="", database=databases.name, ssl_disabled=True,
            charset="utf8mb4", client_flag=CLIENT.MULTI_STATEMENTS,
        )  # fmt: skip
        identity = connection.thread_id()
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE t (a INT AUTO_INCREMENT PRIMARY KEY, b VARCHAR(20))")
            cursor.execute("SET SESSION sql_mode = 'STRICT_TRANS_TABLES'")
            cursor.execute("BEGIN")
            cursor.execute("INSERT INTO t (b) VALUES ('x'), ('é'), (NULL)")
            cursor.execute("SELECT * FROM t ORDER BY a")
            with pytest.raises(pymysql.err.ProgrammingError):
                cursor.execute("SELECT * FROM nope")
            cursor.execute("SELECT 1; SELECT 2 UNION SELECT 3")
            while cursor.nextset():
                pass
            connection.commit()
        prepare_and_run(connection, "SELECT a FROM t WHERE b = ?", b"\xfd\x00", counted(b"x"))
        connection.close()
    (tmp_path / "a.pcap").write_bytes(trace.pcap())
    out = tmp_path / "out"
    assert run(["workload", "capture", str(tmp_path / "a.pcap"), "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rejected"], told["partial"], told["sessions"]) == (0, {}, 1)
    rows = [
        row
        for row in pq.read_table(out).to_pylist()
        if b"t" in row["sql"] or b"1" in row["sql"] or b"nope" in row["sql"]
    ]
    found = {row["sql"].decode(): row for row in rows}
    assert {row["connection"] for row in rows} == {identity}
    assert {row["database"] for row in rows} == {databases.name}
    insert = found["INSERT INTO t (b) VALUES ('x'), ('é'), (NULL)"]
    assert (insert["rows_affected"], insert["insert_id"], insert["in_transaction"], insert["errno"]) == (3, 1, True, 0)
    assert insert["sql_mode"] == "STRICT_TRANS_TABLES"
    assert found["SELECT * FROM t ORDER BY a"]["rows_sent"] == 3
    assert found["SELECT * FROM nope"]["errno"] == 1146
    assert found["SELECT 1; SELECT 2 UNION SELECT 3"]["rows_sent"] == 3
    prepared = found["SELECT a FROM t WHERE b = ?"]
    assert prepared["command"] == "execute"
    assert prepared["parameters"] == [{"kind": "text", "value": b"x"}]
    assert (prepared["rows_sent"], prepared["in_transaction"]) == (1, False)
    events = [row["command"] for row in pq.read_table(out / "_events").to_pylist()]
    assert events[0] == "connect"
    assert events[-3:] == ["prepare", "close statement", "quit"]
    assert run(["workload", "capture", "--quality", str(out)]) == 0


VALUES = [
    (1, None, "a"), (None, None, None), (2**31, "it's", None), (-1, "", "é"), (None, "x" * 300, None),
    (7, None, None), (2**40, "b", "c"), (None, None, "d"),
]  # fmt: skip


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("side", ["source", "target"])
def test_prepared_statements_of_a_client_with_query_attributes(
    databases: Databases, side: str, joined: bool, tmp_path: Path
) -> None:
    """MySQL's own connector sends a count and names with flags of 0; its types change from execute to execute."""
    server = getattr(databases.pair, side)
    trace = Trace()
    with recorder(server, trace) as port:
        connection = mysql.connector.connect(
            host="127.0.0.1", port=port, user=server.user, password="", database=databases.name, ssl_disabled=True,
            use_pure=True,
        )  # fmt: skip
        plain = connection.cursor()
        plain.execute("CREATE TABLE p (n INT AUTO_INCREMENT PRIMARY KEY, a BIGINT, b VARCHAR(400), c VARCHAR(20))")
        logged_in = len(trace.packets)
        with connection.cursor(prepared=True) as cursor:
            for number in range(200):
                cursor.execute("INSERT INTO p (a, b, c) VALUES (?, ?, ?)", VALUES[number % len(VALUES)])
        connection.commit()
        plain.execute("SELECT a, b, c FROM p ORDER BY n")
        rows = plain.fetchall()
        plain.close()
        connection.close()
    assert rows == [VALUES[number % len(VALUES)] for number in range(200)]
    if joined:
        trace.packets = trace.packets[logged_in:]
    (tmp_path / "a.pcap").write_bytes(trace.pcap())
    pieces = list(Pcap().read(str(tmp_path / "a.pcap")))
    inserts = [one for one in pieces if isinstance(one, Record) and one.sql.startswith(b"INSERT INTO p")]
    executed = [one for one in inserts if one.command is Command.EXECUTE]
    assert len(executed) == 200
    assert not any(one.partial for one in executed)
    texts = [tuple(None if v is None else str(v).encode() for v in values) for values in VALUES]
    assert [tuple(value.value for value in one.parameters or ()) for one in executed] == [
        texts[number % len(VALUES)] for number in range(200)
    ]

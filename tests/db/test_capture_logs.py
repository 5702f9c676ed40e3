"""Logs of real servers give back exactly the statements that were sent, byte for byte."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql
import pytest

from migverify.cli.main import run
from migverify.errors import LabError
from migverify_lab.mariadb import audit_plugin, provide
from tests.db.binlog_server import SourceServer, binlog_server
from tests.db.decoding import DecodedServer, decoded_mariadb
from tests.unit.log_writers import FORGED, FORGED_GENERAL
from tests.waiting import wait_for

pytestmark = pytest.mark.db
pq = pytest.importorskip("pyarrow.parquet")

LOGS = ("--slow-query-log=ON", "--long-query-time=0", "--slow-query-log-file=slow.log", "--general-log=ON",
        "--general-log-file=general.log", "--log-output=FILE", "--log-slow-admin-statements=ON")  # fmt: skip

NASTY = [
    b"CREATE TABLE t (id INT PRIMARY KEY, b BLOB, s VARCHAR(4000))",
    b"INSERT INTO t VALUES (1, '" + bytes(one for one in range(256) if one not in b"\x00'\\") + b"', 'x')",
    b"INSERT INTO t VALUES (2, X'00FF', '"
    + FORGED
    + b"'), (3, '\\0\\'', \""
    + FORGED_GENERAL.replace(b'"', b"")
    + b'")',
    b"/* svc=pay; trace=1 */ SELECT 'a;\n# Time: x\n', 'it''s', \"d'q\", 'x\\'y' -- c; '\n FROM t\n\n WHERE id < 9",
    b"SELECT id, s FROM t WHERE id = 2",
    b"  SELECT /*+ NO_ICP(t) */ `id` FROM `t` # it's a comment\n ORDER BY 1 LIMIT 1;",
    b"/*!40101 SELECT 4 */",
    b"SELECT id FROM t WHERE s = 'caf\xc3\xa9' AND 1 = 0",
    b"SELECT nope FROM t",
    b"INSERT INTO t VALUES (1, NULL, NULL)",
    b"UPDATE t SET s = CONCAT(s, '\r\n\t') WHERE id = 1",
    b"SET @a = 'x''y', @b = 2",
    b"SET timestamp = 1672531200",
    b"SELECT NOW(), @a",
    b"SET timestamp = DEFAULT",
    b"USE other",
    b"SELECT 1 AS `o'k`",
    b"BEGIN",
    b"DELETE FROM shop.t WHERE id = 3",
    b"ROLLBACK",
    b"SELECT '" + b"long " * 3000 + b"'",
    b"CREATE PROCEDURE shop.p() BEGIN SELECT COUNT(*) FROM shop.t; SELECT 'a;\nb'; END",
    b"WITH x AS (SELECT 1 AS n) SELECT n FROM x UNION ALL SELECT 2",
    b"SHOW TABLES FROM shop",
    b"SELECT SLEEP(0.05)",
]


@dataclass
class Client:
    """A connection that remembers what it sent, and what came of it."""

    connection: Any
    number: int
    database: str
    sent: list[tuple[bytes, str, int, int | None]] = field(default_factory=list)

    def ask(self, sql: bytes) -> None:
        errno, rows = 0, 0
        try:
            self.connection.query(sql)
            result = self.connection._result
            rows = len(result.rows or ())
        except pymysql.Error as error:
            errno = error.args[0]
        database = self.database
        if sql.startswith(b"USE "):
            self.database = sql[4:].decode()
        self.sent.append((sql, database, errno, rows))


def kept(sql: bytes) -> bytes:
    """Return what a server keeps of a text: it cuts outer space and the last semicolon before it logs."""
    return sql.lstrip().rstrip(b"; \t\r\n")


def client(port: int, database: str = "shop") -> Client:
    connection = pymysql.connect(
        host="127.0.0.1", port=port, user="root", database=database, autocommit=None, ssl_disabled=True
    )
    number = int(connection.thread_id())  # type: ignore[no-untyped-call]
    return Client(connection, number, database)


def two_clients(port: int) -> list[Client]:
    """Send all statements by one client, and others in between by another, which is in another database."""
    first, second = client(port), client(port, "other")
    for number, sql in enumerate(NASTY):
        first.ask(sql)
        second.ask(b"SELECT 'other', %d" % number)
    for one in (first, second):
        one.ask(last_of(one))
    return [first, second]


def last_of(one: Client) -> bytes:
    """Return a statement that no other client sends: a server writes a record after its answer, so it is waited for."""
    return b"SELECT 'the last statement of connection %d'" % one.number


def copied(folder: Path, files: Sequence[Path], *texts: bytes) -> list[Path]:
    """Copy logs that a server writes, as soon as they hold all texts and end with whole lines."""

    def holds() -> list[Path]:
        copies = [Path(shutil.copy2(path, folder / f"{number}-{path.name}")) for number, path in enumerate(files)]
        parts = [path.read_bytes() for path in copies]
        whole = all(part[-1:] in (b"", b"\n") for part in parts)
        return copies if whole and all(any(text in part for part in parts) for text in texts) else []

    found: list[Path] = wait_for(holds, f"{', '.join(path.name for path in files)} hold {texts!r}")
    return found


def captured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *files: Path, until: Sequence[bytes],
    options: tuple[str, ...] = (),
) -> Any:  # fmt: skip
    """Capture the files when they hold all texts of ``until``."""
    out, folder = tmp_path / "capture", tmp_path / "copies"
    shutil.rmtree(out, ignore_errors=True)
    folder.mkdir(exist_ok=True)
    copies = copied(folder, files, *until)
    code = run(["workload", "capture", *map(str, copies), "--out", str(out), "--json", *options])
    printed, err = capsys.readouterr()
    assert code == 0, err
    told = json.loads(printed)
    assert told["bytes"] == sum(path.stat().st_size for path in copies)
    return told, pq.read_table(out).to_pylist()


def databases(one: Client) -> list[str]:
    """Return the database of each statement as logs tell it: of the time when a statement was over."""
    return [sql[4:].decode() if sql.startswith(b"USE ") else database for sql, database, *_ in one.sent]


def of(rows: list[dict[str, Any]], one: Client) -> list[dict[str, Any]]:
    """Return a client's statements without those that its driver sent when it connected."""
    mine = [row for row in rows if row["connection"] == one.number]
    assert [row["position"] for row in mine] == sorted(row["position"] for row in mine)
    while mine and mine[0]["sql"].startswith((b"SET NAMES", b"SET AUTOCOMMIT")):
        del mine[0]
    return mine


@pytest.fixture(scope="module")
def mysql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceServer]:
    with binlog_server(tmp_path_factory.mktemp("mysql"), *LOGS) as server:
        server.run("CREATE DATABASE shop", "CREATE DATABASE other")
        yield server


@pytest.mark.parametrize("extra", [True, False])
def test_slow_log_of_mysql(
    mysql: SourceServer, extra: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mysql.run("DROP TABLE IF EXISTS shop.t", "DROP PROCEDURE IF EXISTS shop.p")
    mysql.run(f"SET GLOBAL log_slow_extra = {extra}")
    before = time.time()
    clients = two_clients(mysql.server.port)
    after = time.time()
    told, rows = captured(tmp_path, capsys, mysql.data / "slow.log", until=[last_of(one) for one in clients])
    assert told["rejected"] == 0
    for one in clients:
        mine = of(rows, one)
        assert [row["sql"] for row in mine] == [kept(sql) for sql, *_ in one.sent]
        assert {row["partial"] for row in mine} == {""}
        assert [row["database"] for row in mine] == databases(one)
        assert [row["errno"] for row in mine] == [errno if extra else None for *_, errno, _ in one.sent]
        assert [row["rows_sent"] for row in mine] == [rows for *_, rows in one.sent]
        assert {row["user"] for row in mine} == {"root"}
        # the client's SET timestamp moves neither
        assert all(before - 1 < row["start"].timestamp() <= row["end"].timestamp() < after + 1 for row in mine)
        assert [row["start"] for row in mine] == sorted(row["start"] for row in mine)
    clocks = {row["sql"]: row["clock"] for row in of(rows, clients[0])}
    assert clocks[b"SELECT NOW(), @a"].timestamp() == 1672531200
    assert clocks[b"BEGIN"] is None
    assert of(rows, clients[0])[-2]["duration_s"] >= 0.05
    for one in clients:
        one.connection.close()


def test_general_log_of_mysql(mysql: SourceServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mysql.run("DROP TABLE IF EXISTS shop.t", "DROP PROCEDURE IF EXISTS shop.p")
    clients = two_clients(mysql.server.port)
    for one in clients:
        one.connection.close()
    last = client(mysql.server.port)
    for sql in (b"PREPARE s FROM 'SELECT ?, ''a\nb'''", b"SET @v = 7", b"EXECUTE s USING @v", b"DEALLOCATE PREPARE s"):
        last.ask(sql)
    told, rows = captured(tmp_path, capsys, mysql.data / "general.log", until=[b"DEALLOCATE"])
    assert told["rejected"] == 0
    for one in clients:
        mine = of(rows, one)
        assert [row["sql"] for row in mine] == [kept(sql) for sql, *_ in one.sent]
        assert [row["database"] for row in mine] == [database for _, database, *_ in one.sent]
        assert {row["partial"] for row in mine} == {""}
        assert {row["errno"] for row in mine} == {None}
    ran = [row["sql"] for row in of(rows, last) if not row["partial"]]
    assert ran == [
        b"PREPARE s FROM 'SELECT ?, ''a\nb'''",
        b"SET @v = 7",
        b"EXECUTE s USING @v",
        b"DEALLOCATE PREPARE s",
    ]
    last.connection.close()


def test_rotated_logs_in_the_wrong_order(
    mysql: SourceServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, kind in (("slow", "SLOW"), ("general", "GENERAL")):
        one = client(mysql.server.port)
        parts = []
        for part in range(3):
            for number in range(4):
                one.ask(b"SELECT '%d; %d\n'" % (part, number))
            path = tmp_path / f"{name}-{part}.log"
            (mysql.data / f"{name}.log").rename(path)
            mysql.run(f"FLUSH {kind} LOGS")
            parts.append(path)
        one.ask(last_of(one))
        parts.append(mysql.data / f"{name}.log")
        told, rows = captured(tmp_path, capsys, parts[2], parts[3], parts[0], parts[1], until=[last_of(one)])
        assert told["rejected"] == 0
        mine = of(rows, one)
        assert [row["sql"] for row in mine] == [kept(sql) for sql, *_ in one.sent]
        assert len({row["session"] for row in mine}) == 1
        one.connection.close()


@contextmanager
def mariadb_server(folder: Path, *options: str) -> Iterator[tuple[DecodedServer, int]]:
    with decoded_mariadb(folder, *options) as server:
        server.run("CREATE DATABASE shop", "CREATE DATABASE other")
        yield server, int(server.run("SELECT @@port")[0][0] or 0)


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DecodedServer, int]]:
    with mariadb_server(tmp_path_factory.mktemp("mariadb"), *LOGS) as server:
        yield server


@pytest.mark.parametrize("log", ["slow", "general"])
def test_logs_of_mariadb(
    mariadb: tuple[DecodedServer, int], log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, port = mariadb
    server.run("DROP TABLE IF EXISTS shop.t", "DROP PROCEDURE IF EXISTS shop.p", "SET GLOBAL log_output = 'FILE'")
    before = time.time()
    clients = two_clients(port)
    after = time.time()
    zone = time.strftime("%z")
    told, rows = captured(tmp_path, capsys, server.data / f"{log}.log", until=[last_of(one) for one in clients],
                          options=("--time-zone", f"{zone[:3]}:{zone[3:]}"))  # fmt: skip
    assert told["rejected"] == 0
    for one in clients:
        mine = of(rows, one)
        assert [row["sql"] for row in mine] == [kept(sql) for sql, *_ in one.sent]
        assert {row["partial"] for row in mine} == {""}
        plain = [database for _, database, *_ in one.sent]
        assert [row["database"] for row in mine] == (databases(one) if log == "slow" else plain)
        assert all(before - 2 < row["start"].timestamp() < after + 2 for row in mine)
        if log == "slow":
            assert [row["rows_sent"] for row in mine] == [rows for *_, rows in one.sent]
        one.connection.close()


def test_rotated_logs_of_mariadb(
    mariadb: tuple[DecodedServer, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, port = mariadb
    one = client(port)
    for part in range(3):
        for number in range(20):
            one.ask(b"SELECT %d, %d" % (part, number))
        for log in ("slow", "general"):
            (server.data / f"{log}.log").rename(tmp_path / f"{log}-{part}.log")
            server.run(f"FLUSH {log.upper()} LOGS")
        time.sleep(1.05)  # a file without any time cannot be put in order
    one.ask(last_of(one))
    one.connection.close()
    for log in ("slow", "general"):
        parts = [tmp_path / f"{log}-{part}.log" for part in (1, 0, 2)]
        _, rows = captured(tmp_path, capsys, server.data / f"{log}.log", *parts, until=[last_of(one)])
        assert [row["sql"] for row in of(rows, one)] == [sql for sql, *_ in one.sent]


def test_audit_log_of_mariadb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        plugins = audit_plugin(provide(lambda _: None), lambda _: None)
    except LabError as missing:
        if os.environ.get("MIGVERIFY_REQUIRE_DB", "") in {"", "0"}:
            pytest.skip(str(missing))
        raise
    options = (
        f"--plugin-dir={plugins}", "--plugin-load-add=server_audit", "--server-audit-logging=ON",
        "--server-audit-query-log-limit=20000",
    )  # fmt: skip
    with mariadb_server(tmp_path / "second", *options) as (server, port):
        clients = two_clients(port)
        # While nobody writes: by its size, with two clients, the plugin now and then loses the file it has turned away.
        rotate = "SET GLOBAL server_audit_file_rotate_now = ON"
        server.run(rotate)
        one = client(port)
        for sql in (b"CALL p()", b"PREPARE s FROM 'SELECT ?'", b"EXECUTE s USING 7",
                    b"CREATE USER u IDENTIFIED BY 'secret'",
                    b"SELEKT 'it", b"SELECT 'x" + b"y" * 30_000 + b"'"):  # fmt: skip
            one.connection.query(sql) if sql == b"CALL p()" else one.ask(sql)
        ends = []
        for each in (*clients, one):
            each.connection.close()
            ends.append(b",%d,0,DISCONNECT," % each.number)
        copied(tmp_path, sorted(server.data.glob("server_audit.log*"), reverse=True), *ends)
        server.run(rotate, "SELECT 'behind'")
        files = sorted(server.data.glob("server_audit.log*"))
        assert len(files) == 3
        told, rows = captured(tmp_path, capsys, *files[1:], files[0], until=[b"SELECT \\'behind\\'"])
    assert told["rejected"] == 0
    for each in clients:
        mine = of(rows, each)
        assert [row["sql"] for row in mine] == [kept(sql) for sql, *_ in each.sent]
        assert {row["partial"] for row in mine} == {""}
        assert [row["database"] for row in mine] == databases(each)
        assert [row["errno"] for row in mine] == [errno for *_, errno, _ in each.sent]
    mine = of(rows, one)
    assert [(row["command"], row["sql"][:30], bool(row["partial"])) for row in mine] == [
        ("query", b"CALL p()", False),
        ("query", b"PREPARE s FROM 'SELECT ?'", False),
        ("execute", b"SELECT ?", True),
        ("query", b"CREATE USER u IDENTIFIED BY **", True),
        ("query", b"SELEKT 'it", False),
        ("query", b"SELECT 'x" + b"y" * 21, True),
    ]
    assert mine[4]["errno"] == 1064
    assert "secret" not in json.dumps(mine, default=repr)

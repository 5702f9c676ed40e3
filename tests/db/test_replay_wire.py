"""The wire of replay against real servers: every type by both protocols, and every way an answer can fail to come."""

from __future__ import annotations

import random
import select
import struct
import threading

import pytest

from migverify.db.session import open_session
from migverify.errors import EndpointError
from migverify.model import Endpoint, Side
from migverify.sql.quoting import quote_path
from migverify.workload.model import Parameter
from migverify.workload.replay.cells import approximate, compare_cells, kind_of
from migverify.workload.replay.connections import EngineOptions, openers
from migverify.workload.replay.model import Answer, Call, DifferenceSeverity
from migverify.workload.replay.reader import RowSums
from migverify.workload.replay.wire import Limits, ServerWire, kill_query, open_wire
from migverify.workload.state import SessionState
from migverify_lab.museum import SHAPE_HALLS, TYPE_HALLS
from migverify_lab.museum_loader import hang
from migverify_lab.session import connect
from tests.conftest import Databases
from tests.db.wiring import EVERYTHING, SIDES, call, endpoint, rows, wired

pytestmark = pytest.mark.db


def both_ways(wire: ServerWire, sql: str) -> tuple[Answer, Answer]:
    """Ask by text and prepared; the rows in an order of their own, as a server gives them in any."""
    text, prepared = wire.run(call(sql)), wire.run(call(sql), prepared=True)
    assert text.ok, (sql, text)
    assert prepared.ok, (sql, prepared)
    assert prepared.prepared
    assert not text.prepared
    return text, prepared


def differing(wire: ServerWire, sql: str) -> list[tuple[bytes, bytes | None, bytes | None]]:
    text, prepared = both_ways(wire, sql)
    found = []
    for one, other in zip(sorted(rows(text), key=repr), sorted(rows(prepared), key=repr), strict=True):
        for column, cell, bound in zip(text.columns, one, other, strict=True):
            if approximate(kind_of(column)) and column.decimals < 31:
                continue  # as text, digits behind a fixed number of them are missing
            unlike = compare_cells(cell, bound, kind_of(column))
            if unlike is not None and unlike.severity is not DifferenceSeverity.METADATA:
                found.append((column.name, cell, bound))
    return found


@pytest.mark.parametrize("side", SIDES)
def test_every_type_of_the_museum_is_the_same_value_by_both_protocols(databases: Databases, side: Side) -> None:
    server = databases.connections[SIDES.index(side)]
    cells = 0
    with wired(databases, side) as wire:
        assert wire.command(b"SET time_zone='+00:00'").ok
        for table in (*TYPE_HALLS, *SHAPE_HALLS):
            hang(server, side.value, databases.name, table)
            sql = f"SELECT * FROM {quote_path(databases.name, table.name_on(side.value))}"
            assert differing(wire, sql) == [], table.name
            cells += sum(map(len, rows(wire.run(call(sql)))))
    assert cells > 2500


EXPRESSIONS = (
    "NOW(6), CURTIME(3), CURDATE(), 1/3, 1.5e0*2, PI(), RAND(3), NULL, TRUE, -1, 18446744073709551615",
    "CAST('2024-01-01' AS DATE), CAST('10:11:12.5' AS TIME(2)), TIMEDIFF('10:00:00.5','09:00:00'), MAKETIME(1,2,3.5)",
    "DATE_ADD('2024-01-01', INTERVAL 1 DAY), FROM_UNIXTIME(1.5), SEC_TO_TIME(3661.25), UNIX_TIMESTAMP(dt6) FROM m",
    "ROUND(1.555e0,2), TRUNCATE(123.456e0,1), CAST(1.1 AS FLOAT), CAST(1.1 AS DOUBLE), 1e15, 1e-16, -0e0",
    "AVG(d), SUM(f), MAX(d2), MIN(f2), STD(d), VARIANCE(f), COUNT(*) FROM m",
    "f*1, d*1, ROUND(d,3), ROUND(f,2), f2, d2, z, zf, zd FROM m",
    "b, b+0, y, e, s, e+0, s+0, j, JSON_EXTRACT(j,'$.a'), x'4142', HEX(v), v FROM m",
    "COALESCE(f,d), IFNULL(f,1), CASE WHEN 1 THEN f ELSE d END, GREATEST(f,d), LEAST(d,2.5), -f, ABS(d), f/3 FROM m",
    "dt6, dt3, t6, t3, ts6, DATE(dt6), TIME(dt6), GREATEST(dt6,dt3), IFNULL(t6,t3), MAX(t3) FROM m GROUP BY 1,2,3,4,5",
    "CAST(dt6 AS DATETIME(2)), dt6 + INTERVAL 1 MICROSECOND, COALESCE(dt3,dt6), ADDTIME(dt6,t3), LEAST(t6,t3) FROM m",
    "x.* FROM (SELECT f*2 a, d2+1 b, ROUND(d,2) c, AVG(f) OVER () w FROM m) x",
    "f FROM m UNION ALL SELECT d FROM m",
    "dt3 FROM m UNION ALL SELECT dt6 FROM m",
)  # fmt: skip
MIXED = (
    "CREATE TABLE m (id INT PRIMARY KEY AUTO_INCREMENT, f FLOAT, d DOUBLE, f2 FLOAT(7,3), d2 DOUBLE(30,10),"
    " z INT(6) ZEROFILL, zf FLOAT(9,2) ZEROFILL, zd DOUBLE ZEROFILL, b BIT(10), y YEAR, e ENUM('a','b'),"
    " s SET('a','b'), j JSON, v VARBINARY(20), dt6 DATETIME(6), dt3 DATETIME(3), t6 TIME(6), t3 TIME(3),"
    " ts6 TIMESTAMP(6) NULL)",
    "INSERT INTO m VALUES (1,1.25,3.14159,1.5,2.5,42,1.5,2.5,5,2024,'a','a,b','{\"a\": 1.0}',x'00ff',"
    "'2024-01-01 00:00:00.123456','2024-01-01 00:00:00.5','10:11:12.123456','-10:11:12.5','2024-01-01 00:00:00.1'),"
    "(2,-0.1,1e20,-1.5,1e15,7,0,1e15,6,2000,'b','b','[null]',x'','2024-01-02','2024-01-02','00:00:00','00:00:00',"
    "'2024-01-02'),(3,NULL,NULL,NULL,12345678901234.5678,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,"
    "NULL,NULL,NULL)",
)


@pytest.mark.parametrize("side", SIDES)
def test_expressions_and_random_floats_are_the_same_values_by_both_protocols(databases: Databases, side: Side) -> None:
    ask = databases.source if side is Side.SOURCE else databases.target
    ask(*MIXED)
    with wired(databases, side) as wire:
        assert wire.command(b"SET timestamp=1700000000.123456").ok
        for expression in EXPRESSIONS:
            assert differing(wire, f"SELECT {expression}") == [], expression
    made = random.Random(7)
    values = [struct.unpack("<d", struct.pack("<Q", made.getrandbits(64)))[0] for _ in range(500)]
    values += [made.uniform(-1, 1) * 10 ** made.randint(-20, 20) for _ in range(500)]
    values += [float(made.randint(-(10**18), 10**18)) for _ in range(500)]
    values = [one for one in values if one == one and abs(one) < float("inf")]
    ask("CREATE TABLE r (id INT PRIMARY KEY, d DOUBLE, f FLOAT)")
    for start in range(0, len(values), 500):
        group = enumerate(values[start : start + 500], start)
        ask("INSERT INTO r VALUES " + ",".join(f"({n},{v!r},{v if abs(v) < 3e38 else 1.0!r})" for n, v in group))
    with wired(databases, side) as wire:
        assert differing(wire, "SELECT id, d, f, f*1, d*1, ROUND(d,3), ROUND(f,2), TRUNCATE(d,5) FROM r") == []


@pytest.mark.parametrize("side", SIDES)
def test_bound_values_come_back_as_they_went(databases: Databases, side: Side) -> None:
    ask = databases.source if side is Side.SOURCE else databases.target
    ask("CREATE TABLE v (i BIGINT, u BIGINT UNSIGNED, d DOUBLE, f FLOAT, n DECIMAL(30,10), t TEXT, b BLOB, da DATE,"
        " dt DATETIME(6), ti TIME(6), nu INT)")  # fmt: skip
    values = (
        Parameter("integer", b"-9223372036854775808"), Parameter("unsigned", b"18446744073709551615"),
        Parameter("double", b"1.5e300"), Parameter("float", b"0.5"),
        Parameter("decimal", b"12345678901234567890.0123456789"),
        Parameter("text", "é'\\\0x".encode()), Parameter("bytes", b"\x00\xff'\\"), Parameter("date", b"2024-02-29"),
        Parameter("datetime", b"2024-02-29 23:59:59.123456"), Parameter("time", b"-837:59:58.000001"),
        Parameter("null", None),
    )  # fmt: skip
    marks = ", ".join("?" * len(values))
    with wired(databases, side) as wire:
        for prepared in (True, False):
            stored = wire.run(call(f"INSERT INTO v VALUES ({marks})", *values), prepared=prepared)
            assert stored.affected == 1, stored
        one, other = rows(wire.run(call("SELECT * FROM v")))
    assert one == other
    assert one[:3] == (b"-9223372036854775808", b"18446744073709551615", b"1.5e300")
    assert one[4:] == tuple(value.value for value in values[4:])


@pytest.mark.parametrize("side", SIDES)
def test_what_surrounds_an_answer(databases: Databases, side: Side) -> None:
    with wired(databases, side) as wire:
        assert wire.command(b"SET sql_mode=''").ok
        assert wire.command(b"CREATE TABLE a (id BIGINT UNSIGNED PRIMARY KEY AUTO_INCREMENT, v TINYINT)").ok
        stored = wire.run(call("INSERT INTO a VALUES (18446744073709551613, 1), (5, 300), (6, 1)"))
        assert (stored.affected, stored.warnings) == (3, 1)
        assert stored.info.startswith("Records: 3")
        assert [row[:2] for row in rows(wire.run(call("SHOW WARNINGS")))] == [(b"Warning", b"1264")]
        assert wire.run(call("INSERT INTO a (v) VALUES (1)")).insert_id == 18446744073709551614
        # found rows, as Connector/J asks for
        assert wire.run(call("UPDATE a SET v = 1 WHERE id = 6")).affected == 1
        assert wire.command(b"BEGIN").status & 1
        failed = wire.run(call("INSERT INTO a VALUES (5, 1)"))
        assert (failed.errno, failed.sqlstate, failed.ok) == (1062, "23000", False)
        assert wire.run(call("SELECT nope"), prepared=True).errno == 1054
        assert wire.run(call("SELECT"), prepared=True).errno == 1064
        column = wire.run(call("SELECT v AS w FROM a AS b")).columns[0]
        assert (column.name, column.original, column.table, column.type_code) == (b"w", b"v", b"b", 1)
    with wired(databases, side, found_rows=False) as wire:
        assert wire.run(call("UPDATE a SET v = 1 WHERE id = 6")).affected == 0


@pytest.mark.parametrize(("side", "prepared"), [(Side.SOURCE, True), (Side.TARGET, False)])
def test_rows_beyond_the_limits_leave_checksums(databases: Databases, side: Side, prepared: bool) -> None:
    sql = ("WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 900)"
           " SELECT i, NULLIF(i % 3, 0), REPEAT('x', i) FROM n")  # fmt: skip
    with wired(databases, side) as wire:
        whole = wire.run(call(sql), prepared=prepared)
    for limits in (Limits(rows=10), Limits(bytes=1000), Limits(rows=899), Limits(rows=0)):
        with wired(databases, side, limits) as wire:
            cut = wire.run(call(sql), prepared=prepared)
            assert (cut.rows, cut.row_count, cut.columns) == (None, 900, whole.columns)
            assert (cut.ordered, cut.unordered) == (RowSums(rows(whole)).ordered, RowSums(rows(whole)).unordered)
            assert RowSums(reversed(rows(whole))).unordered == cut.unordered
            assert RowSums(reversed(rows(whole))).ordered != cut.ordered
            assert wire.run(call("DO 1")).ok


@pytest.mark.parametrize(("side", "prepared"), [(Side.SOURCE, False), (Side.TARGET, True)])
def test_a_row_beyond_one_packet(databases: Databases, side: Side, prepared: bool) -> None:
    with wired(databases, side) as wire:
        size = 17 << 20
        answer = wire.run(call(f"SELECT REPEAT('ab', {size // 2}), 'end'"), prepared=prepared)
        if answer.ok:
            cell = rows(answer)[0][0]
            if cell is None:  # a server with a smaller max_allowed_packet warns and answers NULL
                assert answer.warnings == 1
                size = 3 << 20
                cell = rows(wire.run(call(f"SELECT REPEAT('ab', {size // 2}), 'end'"), prepared=prepared))[0][0]
            assert cell == b"ab" * (size // 2)
        exactly_one = (1 << 24) - 1 - len(b"\x03SELECT LENGTH('')")
        for count in ((1 << 24) + 5,) if prepared else ((1 << 24) + 5, exactly_one, 1 << 24):
            text = b"x" * count
            sent = wire.run(call(b"SELECT LENGTH('" + text + b"')"), prepared=prepared)
            assert rows(sent) == [(b"%d" % len(text),)]


@pytest.mark.parametrize("side", SIDES)
def test_several_statements_only_where_they_are_asked_for(databases: Databases, side: Side) -> None:
    with wired(databases, side) as wire:
        assert wire.run(call("SELECT 1; SELECT 2")).errno in (1064, 8130)
    with wired(databases, side, several=True) as wire:
        answer = wire.run(call("SELECT 1; DO 1; SELECT 2, 3 UNION SELECT 4, 5; SELECT nope"))
        assert [part.row_count for part in (answer, *answer.more)] == [1, 0, 2, 0]
        assert [part.errno for part in (answer, *answer.more)] == [0, 0, 0, 1054]
        assert wire.run(call("SELECT 1")).more == ()


@pytest.mark.parametrize("prepared", [False, True])
def test_call_on_mysql(databases: Databases, prepared: bool) -> None:
    databases.source("CREATE PROCEDURE p(IN a INT) BEGIN SELECT a, 1.5e0; SELECT 'x' UNION SELECT 'y'; END")
    with wired(databases, Side.SOURCE) as wire:
        values = (Parameter("integer", b"7"),)
        answer = wire.run(call("CALL p(?)", *values), prepared=prepared)
        assert rows(answer) == [(b"7", b"1.5")]
        assert [part.row_count for part in answer.more] == [2, 0]
        assert rows(wire.run(call("SELECT 1"))) == [(b"1",)]


@pytest.mark.parametrize("side", SIDES)
def test_statements_stay_prepared_up_to_a_bound(databases: Databases, side: Side) -> None:
    with wired(databases, side, Limits(statements=3)) as wire:
        for turn in range(20):
            value = Parameter("integer", b"%d" % turn)
            answer = wire.run(call(f"SELECT ? + {turn % 5}", value), prepared=True)
            assert rows(answer) == [(b"%d" % (turn + turn % 5),)]
        held = wire.run(call("SHOW SESSION STATUS LIKE 'Com_stmt_%'"))
        if side is Side.SOURCE:
            count = {bytes(name or b""): int(value or b"0") for name, value in rows(held)}
            assert count[b"Com_stmt_prepare"] - count[b"Com_stmt_close"] <= 4
        wrong = wire.run(call("SELECT ?"), prepared=True)
        assert wrong.unanswered.startswith("not sent")
        assert wire.run(call("SELECT 1")).ok


@pytest.mark.parametrize("side", SIDES)
def test_the_same_text_is_another_statement_in_another_database(databases: Databases, side: Side) -> None:
    other = f"{databases.name}_2"
    with wired(databases, side) as wire:
        try:
            for name in (databases.name, other):
                assert wire.command(f"CREATE DATABASE IF NOT EXISTS `{name}`".encode()).ok
                assert wire.command(f"CREATE TABLE `{name}`.w (v VARCHAR(64))".encode()).ok
                assert wire.command(f"INSERT INTO `{name}`.w VALUES ('{name}')".encode()).ok
            for name in (databases.name, other, databases.name):
                assert wire.command(f"USE `{name}`".encode()).ok
                asked = Call("1", 1, b"SELECT v FROM w", "", SessionState(database=name))
                assert rows(wire.run(asked, prepared=True)) == [(name.encode(),)]
        finally:
            wire.command(f"DROP DATABASE `{other}`".encode())


@pytest.mark.parametrize(("side", "prepared"), [(Side.SOURCE, True), (Side.TARGET, False)])
def test_a_killed_connection_is_no_answer(databases: Databases, side: Side, prepared: bool) -> None:
    with wired(databases, side) as wire:
        killer = threading.Timer(0.5, kill, (databases, side, f"KILL CONNECTION {wire.thread_id}"))
        killer.start()
        answer = wire.run(call("SELECT SLEEP(20)"), prepared=prepared)
        killer.join()
        # the server may still answer the statement it interrupts, and nothing after it
        assert answer.unanswered.startswith("connection lost") or answer.errno == 1317 or rows(answer) == [(b"1",)]
        following = wire.run(call("SELECT 1"))
        assert "connection lost" in following.unanswered, following
        assert wire.closed
        assert "not sent" in wire.run(call("SELECT 1")).unanswered


def kill(databases: Databases, side: Side, statement: str) -> None:
    server = databases.pair.source if side is Side.SOURCE else databases.pair.target
    with connect(server) as connection, connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.mark.parametrize("side", SIDES)
def test_a_connection_killed_between_rows_is_no_answer(databases: Databases, side: Side) -> None:
    sql = ("WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 900)"
           " SELECT a.i, REPEAT('x', 900) FROM n a JOIN n b")  # fmt: skip
    with wired(databases, side) as wire:
        wire.send(call(sql))
        while not wire._reader._count:  # until rows came
            assert select.select([wire.fileno()], [], [], 30.0)[0]
            assert wire.receive() is None  # one turn, although more of the answer is there
        kill(databases, side, f"KILL CONNECTION {wire.thread_id}")
        answer = wire._wait()
        assert answer.unanswered.startswith("connection lost") or answer.errno == 1317, answer.row_count
        assert not answer.ok


@pytest.mark.parametrize("side", SIDES)
def test_a_killed_query_is_an_answer(databases: Databases, side: Side) -> None:
    with wired(databases, side) as wire:
        where = endpoint(databases, side)
        killer = threading.Timer(0.5, kill_query, (where, None, wire.thread_id))
        killer.start()
        answer = wire.run(call("SELECT SLEEP(20)"))
        killer.join()
        assert answer.unanswered == ""
        assert answer.errno == 1317 or rows(answer) == [(b"1",)]
        assert wire.run(call("SELECT 1")).ok
        refused = kill_query(where, None, 1 << 30)  # nobody has this number; TiDB does not say so
        assert ("[1094]" in refused) == (side is Side.SOURCE)


@pytest.mark.parametrize("side", SIDES)
def test_a_time_limit_is_no_answer(databases: Databases, side: Side) -> None:
    with wired(databases, side, Limits(seconds=0.3)) as wire:
        answer = wire.run(call("SELECT SLEEP(3)"))
        assert answer.unanswered == "time limit: no answer within 0.3 s"
        assert wire.closed == answer.unanswered
        following = wire.run(call("SELECT 1"))
        assert following.unanswered.startswith("not sent: time limit")
        assert not following.ok


@pytest.mark.parametrize("side", SIDES)
def test_a_local_file_is_refused(databases: Databases, side: Side) -> None:
    with wired(databases, side) as wire:
        assert wire.command(b"CREATE TABLE l (a TEXT)").ok
        answer = wire.run(call("LOAD DATA LOCAL INFILE '/etc/hostname' INTO TABLE l"))
        assert not answer.ok
        assert wire.run(call("SELECT * FROM l")).row_count == 0


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("mode", ["disabled", "required"])
def test_with_and_without_encryption(databases: Databases, side: Side, mode: str) -> None:
    offered = dict(databases.target("SHOW VARIABLES LIKE 'have_ssl'"))
    if side is Side.TARGET and mode == "required" and offered.get("have_ssl") != "YES":  # a TiDB without a certificate
        with pytest.raises(EndpointError):
            open_wire(endpoint(databases, side, mode), None, side, EVERYTHING)
        return
    wire = open_wire(endpoint(databases, side, mode), None, side, EVERYTHING)
    answer = wire.run(call("SELECT REPEAT('x', 3000000), 'end'"))
    assert rows(answer)[0][1] == b"end"
    sent = wire.run(call(b"SELECT LENGTH('" + b"y" * 3_000_000 + b"')"))
    assert rows(sent) == [(b"3000000",)]
    encrypted = rows(wire.run(call("SHOW STATUS LIKE 'Ssl_cipher'")))
    assert bool(encrypted and encrypted[0][1]) == (mode == "required")
    wire.close()
    assert "not sent" in wire.run(call("SELECT 1")).unanswered


@pytest.mark.parametrize("side", SIDES)
def test_one_thread_drives_many(databases: Databases, side: Side) -> None:
    wires = [open_wire(endpoint(databases, side), None, side, EVERYTHING) for _ in range(20)]
    try:
        for number, wire in enumerate(wires):
            wire.send(call(f"SELECT {number}, SLEEP({0.2 if number % 2 else 0})"), prepared=number % 3 == 0)
        found: dict[int, Answer] = {}
        while len(found) < len(wires):
            waiting = [one for number, one in enumerate(wires) if number not in found]
            ready, _, _ = select.select(waiting, [], [], 10.0)
            assert ready
            for wire in ready:
                answer = wire.receive()
                if answer is not None:
                    found[wires.index(wire)] = answer
        assert [rows(found[number])[0][0] for number in range(20)] == [b"%d" % number for number in range(20)]
        assert all(wire.receive() is None for wire in wires)
    finally:
        for wire in wires:
            wire.close()


def test_nobody_answers() -> None:
    with pytest.raises(EndpointError, match="cannot connect"):
        open_wire(Endpoint("target", "127.0.0.1", 1, "root"), "secret", Side.TARGET)


@pytest.mark.parametrize("side", SIDES)
def test_the_session_is_the_servers_own(databases: Databases, side: Side) -> None:
    """Nothing is pinned: what a client gets by default is what is replayed."""
    with open_session(endpoint(databases, side), None) as session:
        default = session.query("SELECT @@GLOBAL.sql_mode, @@GLOBAL.autocommit")[0]
    with wired(databases, side) as wire:
        found = rows(wire.run(call("SELECT @@SESSION.sql_mode, @@SESSION.autocommit, @@character_set_client")))[0]
        assert tuple(cell.decode() for cell in found[:2] if cell is not None) == default
        assert found[2] == b"utf8mb4"


@pytest.mark.parametrize("side", list(Side))
def test_the_server_itself_ends_reads_whose_replay_is_gone(databases: Databases, side: Side) -> None:
    ends = {one: endpoint(databases, one) for one in Side}
    wire = openers(ends, {}, EngineOptions(limits=Limits(seconds=10.0)))[side](side)
    try:
        assert rows(wire.run(call("SELECT @@SESSION.max_execution_time"))) == [(b"15000",)]
    finally:
        wire.close()

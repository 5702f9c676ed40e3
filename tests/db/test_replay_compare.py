"""Judging real answers of both servers: a table of all types, what is the same, differs, or proves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from migverify.model import Endpoint, Side
from migverify.workload.meaning import Meanings
from migverify.workload.replay.compare import judge
from migverify.workload.replay.model import Answer, Call, Captured, JudgedCall, Judgement, Observation, TimedAnswer
from migverify.workload.replay.reproduction import explained
from migverify.workload.replay.restore import set_clock
from migverify.workload.replay.wire import ServerWire, open_wire
from migverify.workload.state import SessionState
from migverify_lab.servers import LabServer, LabServers
from tests.conftest import Databases

pytestmark = pytest.mark.db

SAME, DIFFERENT, INDETERMINATE = Judgement.SAME, Judgement.DIFFERENT, Judgement.INDETERMINATE

TABLE = """
CREATE TABLE every (
  id BIGINT NOT NULL PRIMARY KEY, tiny TINYINT, big BIGINT UNSIGNED, amount DECIMAL(20,4), ratio FLOAT, reading DOUBLE,
  bits BIT(12), day DATE, moment DATETIME(6), stamp TIMESTAMP(3) NULL, span TIME(2), year_ YEAR, letter CHAR(5),
  word VARCHAR(50), latin VARCHAR(50) CHARACTER SET latin1, fixed BINARY(4), raw VARBINARY(20), body TEXT, pic BLOB,
  kind ENUM('new','old'), flags SET('a','b','c'), doc JSON, n INT, KEY (n)
) DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_general_ci
"""
ROWS = (
    "(1, -128, 18446744073709551615, 1234567890123456.7891, 0.1234567, 1e300, b'101', '2024-02-29',"
    " '2024-01-01 00:00:00.000001', '2024-01-01 12:00:00.123', '-838:59:59', 2024, 'ab', 'caf\u00e9',"
    " 'caf\u00e9', x'00FF', x'0001', 'a\\nb', x'FFFE', 'new', 'a,c', '{\"b\": 1, \"a\": [1, 2.0, null]}', 1)",
    "(2, 127, 0, -0.0001, 3.14159265, 0.30000000000000004, b'0', '0001-01-01', '2024-01-01 00:00:00', NULL,"
    " '00:00:00.5', 1901, '', '', NULL, x'', x'', NULL, NULL, NULL, '', '[]', 1)",
    "(3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,"
    " NULL, NULL, NULL, NULL, 2)",
    "(4, 0, 7, 10, 16777216, -1.5e-10, b'111111111111', '9999-12-31', '9999-12-31 23:59:59.999999', NULL,"
    " '12:34:56.78', 2155, 'A', 'a ', 'x', x'41', x'41', 'A', 'z', 'old', 'b', '{\"n\": 9007199254740993}', 3)",
)


class Both:
    """A wire to each side, and the judge between them."""

    def __init__(self, pair: LabServers, database: str) -> None:
        self.wires = {
            side: open_wire(_endpoint(server, side), None, side)
            for side, server in ((Side.SOURCE, pair.source), (Side.TARGET, pair.target))
        }
        self.meanings = Meanings("mysql", unique_keys={"every": [["id"]]})
        for wire in self.wires.values():
            for sql in (b"SET NAMES utf8mb4", b"SET time_zone = '+00:00'", b"USE " + database.encode()):
                assert wire.command(sql).ok

    def ask(self, sql: str, *, times: int = 1, prepared: bool = False, **call: int) -> JudgedCall:
        meaning = self.meanings.meaning(sql.encode())
        one = Call("s", 1, sql.encode(), meaning.digest, SessionState(), Captured(None), **call)  # type: ignore[arg-type]
        found: dict[Side, list[TimedAnswer]] = {}
        for side, wire in self.wires.items():
            setting = None if one.clock is None else set_clock(one.clock)
            if setting is not None:
                assert wire.command(setting).ok
            found[side] = [TimedAnswer(self._run(wire, one, prepared), 0, 0, 1) for _ in range(times)]
        seen = Observation(one, tuple(found[Side.SOURCE]), tuple(found[Side.TARGET]))
        return judge(seen, meaning)

    def _run(self, wire: ServerWire, call: Call, prepared: bool) -> Answer:
        return wire.run(call, prepared=prepared)

    def close(self) -> None:
        for wire in self.wires.values():
            wire.close()


def _endpoint(server: LabServer, side: Side) -> Endpoint:
    return Endpoint(str(side), server.host, server.port, "root")


@pytest.fixture
def both(pair: LabServers, databases: Databases) -> Iterator[Both]:
    databases.both(f"USE `{databases.name}`", "SET NAMES utf8mb4", "SET time_zone = '+00:00'", TABLE)
    databases.both(*(f"INSERT INTO every VALUES {row}" for row in ROWS), "COMMIT")
    with closing(Both(pair, databases.name)) as made:
        yield made


MUST_BE_SAME = [
    "SELECT * FROM every ORDER BY id",
    "SELECT * FROM every",
    "SELECT id, ratio, reading FROM every WHERE id < 4",
    "SELECT n, COUNT(*), SUM(amount), MAX(moment), MIN(big) FROM every GROUP BY n ORDER BY n",
    "SELECT AVG(amount) FROM every",
    "SELECT SUM(tiny) / 3 FROM every",
    "SELECT id FROM every ORDER BY n",
    "SELECT n, id FROM every ORDER BY n",
    "SELECT doc, doc->'$.a' FROM every WHERE id = 1",
    "SELECT moment, DATE(moment), TIME(moment) FROM every ORDER BY id",
    "WITH c AS (SELECT id, n FROM every) SELECT a.id, b.id FROM c a JOIN c b ON a.n = b.n",
    "(SELECT id FROM every WHERE id = 1) UNION ALL (SELECT id FROM every WHERE id = 4)",
    "SELECT id, UUID(), CONNECTION_ID() FROM every ORDER BY id",
    "SELECT id, NOW() FROM every ORDER BY id",
    "SELECT id FROM every WHERE word = 'CAF\u00c9'",
    "SELECT 1 + 1, 'a', NULL, 1.50, 1e0, TRUE, CAST('12' AS UNSIGNED), x'41'",
    "SELECT COALESCE(word, 'none'), IF(n > 1, 'x', NULL) FROM every ORDER BY id",
    "UPDATE every SET n = n + 1 WHERE id = 2",
    "DELETE FROM every WHERE id = 99",
    "INSERT INTO every (id, n) VALUES (50, 1), (51, 2)",
    "INSERT INTO every (id, n) VALUES (1, 1)",
    "SELECT nope FROM every",
    "SELEC 1",
]


def test_what_both_servers_answer_alike_is_the_same(both: Both) -> None:
    undecided = {"SELECT nope FROM every"}  # both fail, and nothing is known of production
    for sql in MUST_BE_SAME[:12]:
        one = both.ask(sql, prepared=True)
        assert one.state is SAME, (sql, one.reason, one.differences)
    for sql in MUST_BE_SAME:
        one = both.ask(sql)
        assert one.state is (INDETERMINATE if sql in undecided else SAME), (sql, one.reason, one.differences)
        assert {found.severity.value for found in one.differences} <= {"metadata", "info"}, sql


MUST_DIFFER = [
    ("SELECT SQL_CALC_FOUND_ROWS id FROM every LIMIT 1", "error"),
    ("SELECT id INTO @v FROM every WHERE id = 1", "error"),
]


CHANGES = [
    ("SET word = NULL WHERE id = 2", "SELECT id, word FROM every ORDER BY id", "null"),
    ("SET word = 'A ' WHERE id = 4", "SELECT id, word FROM every ORDER BY id", "value"),
    ("SET amount = amount + 0.0001 WHERE id = 1", "SELECT SUM(amount) FROM every", "value"),
    ("SET reading = 0.3000001 WHERE id = 2", "SELECT reading FROM every ORDER BY id", "float"),
    ("SET doc = '{\"n\": 9007199254740992}' WHERE id = 4", "SELECT doc FROM every ORDER BY id", "json"),
    ("SET moment = '2024-01-01 00:00:00.000002' WHERE id = 1", "SELECT moment FROM every", "temporal"),
    ("SET bits = b'100' WHERE id = 1", "SELECT bits FROM every", "value"),
    ("SET n = 9 WHERE id = 1", "SELECT COUNT(*) FROM every WHERE n = 1", "value"),
    ("SET n = 9 WHERE id = 1", "SELECT id FROM every WHERE n = 1", "row-count"),
    ("SET n = 9 WHERE id = 1", "UPDATE every SET tiny = 1 WHERE n = 9", "affected-rows"),
]


def test_what_only_the_source_carries_out_and_one_changed_value_differ(both: Both) -> None:
    assert both.ask("CALL nothing()").state is not SAME  # it fails on both: unknown to one, unsupported by the other
    for sql, aspect in MUST_DIFFER:
        one = both.ask(sql)
        assert (one.state, {found.aspect for found in one.differences}) == (DIFFERENT, {aspect}), sql
    target = both.wires[Side.TARGET]
    for change, sql, aspect in CHANGES:
        assert target.command(b"BEGIN").ok
        assert target.command(f"UPDATE every {change}".encode()).affected == 1
        one = both.ask(sql)
        assert target.command(b"ROLLBACK").ok
        assert one.state is DIFFERENT, (sql, one.reason, one.differences)
        assert aspect in {found.aspect for found in one.differences}, sql


def test_noise_and_what_is_not_determined_prove_nothing(both: Both) -> None:
    assert both.wires[Side.TARGET].command(b"UPDATE every SET id = 0 WHERE id = 1").affected == 1
    assert both.ask("SELECT id FROM every LIMIT 1").state is INDETERMINATE
    assert both.ask("SELECT id FROM every WHERE moment < NOW() AND id < 2").state is INDETERMINATE
    assert both.ask("SELECT id, RAND() FROM every WHERE id = 2", times=2).state is SAME
    assert both.ask("SELECT VERSION()").state is SAME  # its only column is left out
    assert both.ask("SELECT @@version").state is DIFFERENT
    # a captured clock is the same on both sides
    one = both.ask("SELECT NOW(6), UNIX_TIMESTAMP(), CURDATE()", clock=1_700_000_000_000_000)
    assert (one.state, one.details.get("masked")) == (SAME, None), one.differences


def test_plans_are_told_and_a_table_read_whole_on_the_target_alone_is_flagged(both: Both) -> None:
    source, target = (both.wires[side].command for side in (Side.SOURCE, Side.TARGET))
    found = explained(b"SELECT id FROM every WHERE id = 1", source, target)
    assert found is not None
    assert [str(one) for one in found] == ["indexes every.PRIMARY"] * 2
    assert target(b"ALTER TABLE every DROP INDEX n").ok
    assert source(b"ANALYZE TABLE every").ok
    found = explained(b"SELECT word FROM every FORCE INDEX (n) WHERE n = 2", source, source)
    assert found is not None
    ours = found[0]
    found = explained(b"SELECT word FROM every WHERE n = 2", source, target)
    assert found is not None
    assert (ours.whole, found[1].whole) == (frozenset(), {"every"})
    assert explained(b"SELECT nope FROM every", source, target) is None

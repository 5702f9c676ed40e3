"""Slow logs of MySQL 5.6 to 9, Percona Server and MariaDB: exactly the statements that were sent, or a reason."""

from __future__ import annotations

import re
import tempfile
from datetime import timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migverify.errors import ReadError
from migverify.workload.formats import reading, slow
from migverify.workload.formats.reading import LogReading
from migverify.workload.formats.slow import NO_STATEMENT, SlowLog
from migverify.workload.formats.statements import CUT, MASKED, NO_RECORD, TEXT_LOST
from migverify.workload.lines import GZIP, TOO_LONG
from migverify.workload.model import Command, Piece
from migverify.workload.quotes import UNBALANCED, UNCERTAIN
from tests.unit.log_writers import (
    BANNER,
    FORGED,
    Sent,
    contiguous,
    noises,
    read,
    records,
    rejects,
    write_slow,
)

END = 1_767_323_045_678_901
HEAD = (
    b"# Time: 2026-01-02T03:04:05.678901Z\n# User@Host: root[app] @ web1 [127.0.0.1]  Id:     3\n"
    b"# Query_time: 0.003464  Lock_time: 0.000324 Rows_sent: 1000  Rows_examined: 2000\n"
)
NEXT = HEAD + b"SET timestamp=1767323045;\nselect 'the next';\n"


def test_mysql_8(tmp_path: Path) -> None:
    text = b"SELECT *\n  FROM t -- it's; a\n WHERE a = 'x;\\'' # ;'\n"
    data = BANNER + HEAD + b"use shop;\nSET last_insert_id=7,insert_id=8,timestamp=1767323045;\n" + text + b";\n"
    (one,) = records(read(SlowLog(), data, tmp_path))
    assert one.sql == text
    assert (one.session, one.user, one.host, one.database) == (3, "app", "web1", "shop")
    assert (one.start, one.end, one.duration) == (END - 3464, END, 3464)
    assert (one.rows_sent, one.errno, one.last_insert_id, one.insert_id) == (1000, None, 7, 8)
    assert (one.clock, one.partial, one.command) == (None, "", Command.QUERY)
    assert (one.origin.offset, one.origin.line) == (len(BANNER), 4)


def test_log_slow_extra(tmp_path: Path) -> None:
    extra = (
        b" Thread_id: 12 Errno: 1054 Killed: 0 Bytes_received: 0 Bytes_sent: 84 Read_first: 0 Read_last: 0 Read_key: 0"
        b" Count_hit_tmp_table_size: 0 Start: 2026-01-02T03:04:05.675437Z End: 2026-01-02T03:04:05.678901Z\n"
    )
    data = HEAD[:-1] + extra + b"SET timestamp=1767323045;\nselect nope;\n"
    (one,) = records(read(SlowLog(), data, tmp_path))
    assert (one.session, one.errno, one.sql, one.rows_sent) == (12, 1054, b"select nope", 1000)
    assert (one.start, one.end) == (END - 3464, END)


@pytest.mark.parametrize("extra", [False, True])
def test_a_clients_clock_does_not_move_the_true_times(extra: bool, tmp_path: Path) -> None:
    sent = [
        Sent(b"SET timestamp=1672531200", own_clock=1_672_531_200_000_000),
        Sent(b"select now()", own_clock=1_672_531_200_000_000, end=END + 9),
        Sent(b"select 2", end=END + 20),
    ]
    found = records(read(SlowLog(), write_slow(sent, extra=extra), tmp_path))
    assert [(one.start, one.end) for one in found] == [(one.end - 3464, one.end) for one in sent]
    assert [one.clock for one in found] == [1_672_531_200_000_000] * 2 + [None]


def test_the_database_is_of_the_file_not_of_the_session(tmp_path: Path) -> None:
    parts = [(b"", b"a"), (b"use shop;\n", b"b"), (b"", b"c"), (b"use `o;``d`;\n", b"d"), (b"", b"e")]
    data = b"".join(HEAD + use + b"SET timestamp=1767323045;\n" + sql + b";\n" for use, sql in parts)
    data += BANNER + HEAD + b"SET timestamp=1767323045;\nf;\n"
    found = records(read(SlowLog(), data, tmp_path))
    assert [one.sql for one in found] == [b"a", b"b", b"c", b"d", b"e", b"f"]
    # before the first `use` it may be any; behind a banner it is none until one is named
    assert [one.database for one in found][:5] == [None, "shop", "shop", "o;`d", "o;`d"]
    assert found[-1].database == ""


def test_use_sent_by_a_client_is_a_statement(tmp_path: Path) -> None:
    data = HEAD + b"use shop;\nSET timestamp=1767323045;\nuse d;\n" + HEAD + b"SET timestamp=1767323045;\nselect 1;\n"
    found = records(read(SlowLog(), data, tmp_path))
    assert [(one.sql, one.database) for one in found] == [(b"use d", "shop"), (b"select 1", "shop")]


def test_mysql_56(tmp_path: Path) -> None:
    data = (
        b"mysqld, Version: 5.6.51-log (MySQL). started with:\nTcp port: 3306  Unix socket: /tmp/s\n"
        b"Time                 Id Command    Argument\n"
        b"# Time: 260102  3:04:05\n# User@Host: app[app] @  [10.0.0.9]  Id:     3\n"
        b"# Query_time: 2.500000  Lock_time: 0.000000 Rows_sent: 1  Rows_examined: 0\n"
        b"use shop;\nSET timestamp=1767323045;\nselect 1;\n"
        b"# User@Host: app[app] @ localhost []  Id:     4\n"
        b"# Query_time: 0.000100  Lock_time: 0.000000 Rows_sent: 0  Rows_examined: 0\n"
        b"SET timestamp=1767323046;\nselect 2;\n"
    )
    pieces = read(SlowLog(timezone(timedelta(hours=8))), data, tmp_path)
    first, second = records(pieces)
    assert noises(pieces) == ["banner"]
    assert (first.host, second.host) == ("10.0.0.9", "localhost")
    # SET timestamp is UTC and does not need the zone
    assert (first.start, first.end, first.duration) == (1_767_323_045_000_000, None, 2_500_000)
    assert second.start == 1_767_323_046_000_000
    assert first.details == {"time": "whole seconds"}


def test_percona(tmp_path: Path) -> None:
    data = (
        b"# Time: 2026-01-02T03:04:05.678901Z\n# User@Host: app[app] @ localhost []  Id:     3\n"
        b"# Schema: shop  Last_errno: 1062  Killed: 0\n"
        b"# Query_time: 0.003464  Lock_time: 0.000324  Rows_sent: 1  Rows_examined: 2  Rows_affected: 5\n"
        b"# Bytes_sent: 11  Tmp_tables: 0  Tmp_disk_tables: 0  Tmp_table_sizes: 0\n# InnoDB_trx_id: 1A2\n"
        b"# QC_Hit: No  Full_scan: No  Full_join: No\n# Log_slow_rate_type: query  Log_slow_rate_limit: 10\n"
        b"SET timestamp=1767323045;\ninsert into t values (1);\n"
        b"# Time: 2026-01-02T03:04:06.000000Z\n# User@Host: app[app] @ localhost []  Id:     3\n"
        b"# Schema:   Last_errno: 0  Killed: 0\n# Query_time: 0.000001  Lock_time: 0.000000\n"
        b"SET timestamp=1767323045;\nselect 1;\n"
    )
    first, second = records(read(SlowLog(), data, tmp_path))
    assert (first.database, first.errno, first.rows_affected, first.rows_sent) == ("shop", 1062, 5, 1)
    assert (first.duration, first.sql) == (3464, b"insert into t values (1)")
    assert (second.database, second.errno, second.rows_sent, second.duration) == ("", 0, None, 1)


def test_percona_51_with_its_thread_in_the_schema_line(tmp_path: Path) -> None:
    data = (
        b"# Time: 110905 10:00:01\n# User@Host: app[app] @ localhost []\n"
        b"# Thread_id: 10  Schema: shop  Last_errno: 0  Killed: 0\n"
        b"# Query_time: 0.5  Lock_time: 0.000059  Rows_sent: 1\nSET timestamp=1315216801;\nselect 1;\n"
    )
    (one,) = records(read(SlowLog(), data, tmp_path))
    assert (one.session, one.database, one.duration, one.rows_sent) == (10, "shop", 500_000, 1)


def test_mariadb(tmp_path: Path) -> None:
    data = (
        b"/usr/sbin/mariadbd, Version: 10.11.6-MariaDB (Debian 12). started with:\nTcp port: 3306  Unix socket: /s\n"
        b"Time\t\t    Id Command\tArgument\n"
        b"# Time: 260102  3:04:05\n# User@Host: app[app] @ localhost [127.0.0.1]\n"
        b"# Thread_id: 8  Schema: shop  QC_hit: No\n"
        b"# Query_time: 0.000180  Lock_time: 0.000042  Rows_sent: 1  Rows_examined: 1\n"
        b"# Rows_affected: 3  Bytes_sent: 60\n#\n# explain: id\tselect_type\n# explain: 1\tSIMPLE 'a\n#\n"
        b"use shop;\nSET timestamp=1767323045.250000;\nselect 1;\n"
    )
    pieces = read(SlowLog(), data, tmp_path)
    (one,) = records(pieces)
    assert (one.session, one.database, one.rows_affected, one.duration) == (8, "shop", 3, 180)
    assert (one.start, one.end) == (1_767_323_045_250_000, 1_767_323_045_250_180)
    assert noises(pieces) == ["banner"]


def test_a_clients_clock_in_a_log_that_follows_it(tmp_path: Path) -> None:
    def record(session: int, second: int, sql: bytes) -> bytes:
        return (
            b"# User@Host: app[app] @ localhost []\n# Thread_id: %d  Schema: d  QC_hit: No\n"
            b"# Query_time: 0.000180  Lock_time: 0.000042  Rows_sent: 1  Rows_examined: 1\n"
            b"SET timestamp=%d;\n%s;\n" % (session, second, sql)
        )

    told = [(7, 1_767_323_045, b"select 1"), (8, 1_600_000_000, b"SET timestamp = 1600000000"),
            (8, 1_600_000_000, b"select now()"), (7, 1_767_323_046, b"select 2"),
            (8, 1_600_000_000, b"SET timestamp = DEFAULT"), (8, 1_767_323_047, b"select 3")]  # fmt: skip
    found = records(read(SlowLog(), b"".join(record(*one) for one in told), tmp_path))
    assert [(one.start or 0) // 10**6 - 1_767_323_045 for one in found] == [0, 0, 0, 1, 1, 2]
    assert [one.clock for one in found] == [None, 16 * 10**14, 16 * 10**14, None, 16 * 10**14, None]


def test_mariadb_without_a_database(tmp_path: Path) -> None:
    data = (
        b"# User@Host: app[app] @ localhost [127.0.0.1]\n# Thread_id: 8  Schema:   QC_hit: No\n"
        b"# Query_time: 0.000180  Lock_time: 0.000042  Rows_sent: 1  Rows_examined: 1\n"
        b"SET timestamp=1767323045;\nselect 1;\n"
    )
    (one,) = records(read(SlowLog(), data, tmp_path))
    assert (one.session, one.database, one.user) == (8, "", "app")


def test_a_banner_in_mid_file(tmp_path: Path) -> None:
    one = HEAD + b"SET timestamp=1767323045;\nselect 'a%d\n';\n"
    data = one + BANNER + one + BANNER + BANNER + one
    pieces = read(SlowLog(), data, tmp_path)
    assert [record.sql for record in records(pieces)] == [b"select 'a%d\n'"] * 3
    assert noises(pieces) == ["banner"] * 3


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("Quit", Command.QUIT),
        ("Prepare", Command.PREPARE),
        ("Ping", Command.OTHER),
        ("Reset stmt", Command.OTHER),
        ("Close stmt", Command.CLOSE_STATEMENT),
        ("Init DB", Command.INIT_DB),
        ("Refresh", Command.OTHER),
    ],
)
def test_administrator_commands(name: str, command: Command, tmp_path: Path) -> None:
    data = HEAD + b"use shop;\nSET timestamp=1767323045;\n# administrator command: " + name.encode() + b";\n" + NEXT
    one, after = records(read(SlowLog(), data, tmp_path))
    assert (one.command, after.sql) == (command, b"select 'the next'")
    assert one.sql == (b"shop" if command is Command.INIT_DB else b"")
    assert one.details.get("command") == (name.lower() if command is Command.OTHER else None)
    assert bool(one.partial) == (command is Command.PREPARE)


def test_events_without_a_statement(tmp_path: Path) -> None:
    for empty in (HEAD, HEAD + b"SET timestamp=1767323045;\n", HEAD + b"use d;\nSET timestamp=1767323045;\n"):
        for data in (empty + NEXT, NEXT + empty + NEXT, NEXT + empty):
            pieces = read(SlowLog(), data, tmp_path)
            assert rejects(pieces) == [NO_STATEMENT]
            assert {one.sql for one in records(pieces)} == {b"select 'the next'"}


def test_an_empty_statement_is_a_reject_too(tmp_path: Path) -> None:
    pieces = read(SlowLog(), HEAD + b"SET timestamp=1767323045;\n;\n" + NEXT, tmp_path)
    assert len(rejects(pieces)) + len(records(pieces)) == 2
    assert records(pieces)[-1].sql == b"select 'the next'"


def test_broken_numbers(tmp_path: Path) -> None:
    data = (
        b"# Time: 2026-01-02T03:04:05.678901Z\n# User@Host: app[app] @ localhost []  Id:     3\n"
        b"# Query_time: 18446744073708.796870.000036  Lock_time: 18446744073708.796870.000036"
        b" Rows_sent: 0  Rows_examined: 0\n"
        b"SET timestamp=1767323045;\nselect 1;\n"
    )
    (one,) = records(read(SlowLog(), data + NEXT, tmp_path))[:1]
    assert (one.sql, one.duration, one.start, one.end) == (b"select 1", None, None, END)


def test_comments_that_look_like_headers(tmp_path: Path) -> None:
    for text in (
        b"/* # */ select 1", b"-- ;\nselect 1", b"# Time: x\nselect 1", b"select /* ;\n# Time: 2026 */ 1",
        b"select 1 -- it's", b"select 1 # it's", b"select 1 /* it's */", b"/*!40101 SET NAMES utf8 */", b"select 1--1",
        b"select '--', \"#\", `a'b`", b"select 'a''b', \"it's\", 'x\\'y'", b";", b"select 1;select 2;",
        b"select '\\\\'",
    ):  # fmt: skip
        pieces = read(SlowLog(), HEAD + b"SET timestamp=1767323045;\n" + text + b";\n" + NEXT, tmp_path)
        assert [one.sql for one in records(pieces)] == [text, b"select 'the next'"], text
        assert not rejects(pieces)


def test_forged_headers(tmp_path: Path) -> None:
    for quote, close in ((b"'", b"'"), (b'"', b'"'), (b"`", b"`"), (b"/*", b"*/")):
        text = b"select " + quote + FORGED + close + b", 'z'"
        first, second = records(read(SlowLog(), HEAD + b"SET timestamp=1767323045;\n" + text + b";\n" + NEXT, tmp_path))
        assert (first.sql, first.user, second.sql) == (text, "app", b"select 'the next'")
        assert first.partial == ""


@pytest.mark.parametrize("quote", [b"''", b"\\'"])
def test_a_log_stored_in_a_literal(quote: bytes, tmp_path: Path) -> None:
    kept = (NEXT * 5).replace(b"'", quote)
    text = b"insert into logs values ('" + kept + b"', 7)"
    first, second = records(read(SlowLog(), HEAD + b"SET timestamp=1767323045;\n" + text + b";\n" + NEXT, tmp_path))
    assert (first.sql, first.partial, second.sql) == (text, "", b"select 'the next'")


def test_a_quote_left_open_does_not_swallow_the_statements_behind_it(tmp_path: Path) -> None:
    broken = HEAD + b"SET timestamp=1767323045;\nselect 'it;\n"
    data = broken + NEXT * 6
    first, *others = records(read(SlowLog(), data, tmp_path))
    assert (first.sql, first.partial) == (b"select 'it", UNBALANCED)
    assert [one.sql for one in others] == [b"select 'the next'"] * 6
    assert {one.partial for one in others} == {""}


def test_an_end_that_cannot_be_told_is_said_so(tmp_path: Path) -> None:
    data = HEAD + b"SET timestamp=1767323045;\nselect 'it;\n" + NEXT[:-2] + b", 'x;\n"
    for one in records(read(SlowLog(), data, tmp_path)):
        assert one.partial in (UNBALANCED, UNCERTAIN, CUT)


def test_raw_bytes(tmp_path: Path) -> None:
    text = b"insert into t values ('" + bytes(set(range(256)) - set(b"'\\")) + b"\\'\\\\')"
    data = HEAD + b"SET timestamp=1767323045;\n" + text + b";\n" + NEXT
    assert records(read(SlowLog(), data, tmp_path))[0].sql == text


def test_gzip(tmp_path: Path) -> None:
    (tmp_path / "packed").mkdir()
    data = BANNER + NEXT * 3
    plain = read(SlowLog(), data, tmp_path)
    packed = read(SlowLog(), data, tmp_path / "packed", packed=True)
    assert [(one.sql, one.origin.offset) for one in records(plain)] == [
        (one.sql, one.origin.offset) for one in records(packed)
    ]
    path = tmp_path / "packed" / "the.log"
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(ReadError, match="damaged gzip"):
        list(SlowLog().read(str(path)))


def test_a_file_with_the_line_ends_of_windows(tmp_path: Path) -> None:
    data = write_slow([Sent(b"select 1"), Sent(b"select 2\nfrom t", database="d"), Sent(b"select 'a\nb'")] * 2)
    pieces = read(SlowLog(), data.replace(b"\n", b"\r\n"), tmp_path)
    found = records(pieces)
    assert [one.sql for one in found] == [b"select 1", b"select 2\r\nfrom t", b"select 'a\r\nb'"] * 2
    assert [one.end for one in found] == [END] * 6
    assert [one.database for one in found] == ["", "d", "d", "d", "d", "d"]
    assert [bool(one.partial) for one in found] == [False, False, True] * 2
    assert not rejects(pieces)


def test_carriage_returns_of_a_client_stay(tmp_path: Path) -> None:
    text = b"select 1,\r\n 'a\r\nb'\r\n"
    first, second = records(read(SlowLog(), HEAD + b"SET timestamp=1767323045;\n" + text + b";\n" + NEXT, tmp_path))
    assert (first.sql, first.partial, second.sql) == (text, "", b"select 'the next'")


def test_a_cut_end(tmp_path: Path) -> None:
    data = NEXT + HEAD + b"SET timestamp=1767323045;\nselect 'abc';\n"
    for end in range(1, len(HEAD) + 40):
        *whole, last = read(SlowLog(), data[:-end], tmp_path)
        # half a header is not one yet: what stands before it cannot be told from it
        assert [one.sql for one in records(whole)] in ([], [b"select 'the next'"])
        assert last.origin.length == len(data) - end - sum(one.origin.length for one in whole)
        assert rejects([last]) in ([NO_STATEMENT], [NO_RECORD]) or [one.partial for one in records([last])] == [CUT]


def test_a_file_that_begins_in_mid_record(tmp_path: Path) -> None:
    data = b" from t where a = 'x'\n limit 3;\n" + NEXT * 2
    pieces = read(SlowLog(), data, tmp_path)
    assert rejects(pieces) == [NO_RECORD]
    assert len(records(pieces)) == 2
    assert SlowLog().sniff(data) > 0.5


def test_texts_that_the_server_changed(tmp_path: Path) -> None:
    for text, reason in (
        (b"CREATE USER 'a'@'%' IDENTIFIED WITH 'mysql_native_password' AS '<secret>'", MASKED),
        (b"SET PASSWORD FOR 'a'@'%'=<secret>", MASKED),
        (b"PREPARE s FROM ...", TEXT_LOST),
        (b"select '*****' = '*****'", ""),
    ):
        data = HEAD + b"SET timestamp=1767323045;\n" + text + b";\n" + NEXT
        first, _ = records(read(SlowLog(), data, tmp_path))
        assert (first.sql, first.partial) == (text, reason)


def test_users(tmp_path: Path) -> None:
    for who, user, host, session in (
        (b"root[root] @ localhost []", "root", "localhost", None),
        (b"priv[real] @ web1 [10.0.0.9]  Id: 18446744073709551615", "real", "web1", 2**64 - 1),
        (b"[] @ localhost []  Id:     5", "", "localhost", 5),
        (b"skip-grants user[skip-grants user] @  []  Id: 7", "skip-grants user", None, 7),
        (b"rdsadmin[rdsadmin] @ localhost [127.0.0.1]  Id:  1234", "rdsadmin", "localhost", 1234),
    ):
        data = HEAD.replace(b"root[app] @ web1 [127.0.0.1]  Id:     3", who) + b"SET timestamp=1767323045;\nselect 1;\n"
        (one,) = records(read(SlowLog(), data, tmp_path))
        assert (one.user, one.host, one.session) == (user, host, session)


def test_a_record_over_the_limit_is_one_reject(tmp_path: Path) -> None:
    for inside in (b"x", b"x'';\n# Time: 1\n"):
        long = b"insert into t values ('" + inside * (400_000 // len(inside)) + b"')"
        data = NEXT + HEAD + b"SET timestamp=1767323045;\n" + long + b";\n" + NEXT * 2
        pieces = read(SlowLog(limit=100_000), data, tmp_path)
        assert rejects(pieces) == [TOO_LONG]
        assert [one.sql for one in records(pieces)] == [b"select 'the next'"] * 3


QUOTED = st.builds(
    lambda quote, body: quote + re.sub(rb"([\\" + quote + rb"])", rb"\\\1", body) + quote,
    st.sampled_from([b"'", b'"']),
    st.one_of(st.binary(max_size=20), st.sampled_from([FORGED, b";\n" + HEAD + b"select 1;\n", b"\n", BANNER])),
)
SQL = st.lists(
    st.one_of(QUOTED, st.sampled_from([
        b"select", b" ", b"\n", b"\r\n", b"/* it's ; */", b"-- it's\n", b"`a'b`", b";x", b"1", b"\xff",
    ])),
    min_size=1, max_size=8,
).map(lambda parts: b"select 1," + b" ".join(parts) + b" from t").filter(lambda sql: sql.count(HEAD) < 3)  # fmt: skip
SENT = st.builds(
    Sent,
    SQL,
    session=st.integers(1, 9),
    database=st.sampled_from(["", "d", "shop"]),
    end=st.integers(10**15, 2 * 10**15),
    duration=st.integers(0, 10**10),
    errno=st.integers(0, 9999),
    rows=st.integers(0, 10**12),
    own_clock=st.one_of(st.none(), st.integers(0, 2**31 * 10**6)),
)
CHUNKS = st.lists(
    st.one_of(
        st.binary(max_size=30),
        st.sampled_from([
            HEAD, BANNER, NEXT, b"'", b'"', b"`", b"/*", b"*/", b";\n", b";\r\n", b"\\", b"#", b"-- ", b"\n", b"\r\n",
            b"use d;\n", b"SET timestamp=1767323045;\n", b"# administrator command: Quit;\n",
            b"# Query_time: 1.000000  Lock_time: 0.000000 Rows_sent: 9  Rows_examined: 9\n",
        ]),
    ),
    max_size=30,
).map(b"".join).filter(lambda data: not data.startswith(GZIP))  # fmt: skip


def logged(data: bytes, form: SlowLog) -> list[Piece]:
    with tempfile.TemporaryDirectory() as folder:
        return read(form, data, Path(folder))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(SENT, max_size=6), st.booleans())
def test_what_the_server_wrote_comes_back(sent: list[Sent], extra: bool) -> None:
    found = records(logged(write_slow(sent, extra=extra), SlowLog()))
    if len(found) < len(sent):  # sessions of another mode could have closed a literal elsewhere: that is said as well
        assert any(one.partial == UNCERTAIN for one in found)
        assert {one.sql for one in found if not one.partial} <= {one.sql for one in sent}
        return
    assert [one.sql for one in found] == [one.sql for one in sent]
    # a literal may hold a header and a statement with whole quotes: that it is one is said, not hidden
    assert all(not one.partial or (one.partial == UNCERTAIN and b"\n# User@Host: " in one.sql) for one in found)
    assert [(one.session, one.end, one.start, one.rows_sent) for one in found] == [
        (one.session, one.end, one.end - one.duration, one.rows) for one in sent
    ]
    if extra:
        assert [one.errno for one in found] == [one.errno for one in sent]
    last = ""
    for one, record in zip(sent, found, strict=True):
        last = one.database or last
        assert record.database == last


@settings(max_examples=25, deadline=None)
@given(CHUNKS, st.integers(1, 300))
def test_blocks_do_not_matter(data: bytes, block: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "HEADER_BYTES", 600)
        path = Path(folder) / "x"
        path.write_bytes(data)

        def pieces(size: int) -> list[Piece]:
            return list(LogReading(str(path), slow.SlowGrammar(str(path), SlowLog().zone), 1 << 20, size))

        found = pieces(block)
        contiguous(found, data)
        assert found == pieces(1 << 20)

"""General logs of MySQL 5.6 to 9 and MariaDB: exactly what was asked, once."""

from __future__ import annotations

import tempfile
from datetime import timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from migverify.workload.formats import general, reading
from migverify.workload.formats.general import RESTORED, GeneralLog
from migverify.workload.formats.reading import LogReading
from migverify.workload.formats.statements import CUT, LINE_ENDS, MASKED, NO_RECORD, TEXT_LOST
from migverify.workload.lines import GZIP
from migverify.workload.model import Command, Piece, Record
from migverify.workload.quotes import UNCERTAIN
from tests.unit.log_writers import (
    BANNER,
    FORGED,
    FORGED_GENERAL,
    Sent,
    contiguous,
    noises,
    read,
    records,
    rejects,
    write_general,
)

T = b"2026-01-02T03:04:05.678901Z\t"
AT = 1_767_323_045_678_901


def found(data: bytes, folder: Path) -> list[Record]:
    return records(read(GeneralLog(), data, folder))


def test_mysql_8(tmp_path: Path) -> None:
    data = (
        BANNER
        + T + b"    3 Connect\tapp@10.0.0.9 on shop using SSL/TLS\n"
        + T + b"    3 Query\tselect 1\n"
        + b"2026-01-02T11:04:05.678901+08:00\t    3 Init DB\tother\n"
        + T + b"    3 Query\t/* svc=pay */ select 'a;\n  b', 1\n"
        + T + b"    3 Field List\tt\n"
        + T + b"    3 Ping\t\n"
        + T + b"    3 Statistics\t\n"
        + T + b"    3 Quit\t\n"
    )  # fmt: skip
    pieces = read(GeneralLog(), data, tmp_path)
    one = records(pieces)
    assert noises(pieces) == ["banner"]
    assert [(record.command, record.sql) for record in one] == [
        (Command.CONNECT, b""),
        (Command.QUERY, b"select 1"),
        (Command.INIT_DB, b"other"),
        (Command.QUERY, b"/* svc=pay */ select 'a;\n  b', 1"),
        (Command.OTHER, b"t"),
        (Command.OTHER, b""),
        (Command.OTHER, b""),
        (Command.QUIT, b""),
    ]
    assert {(record.start, record.end, record.session, record.errno, record.partial) for record in one} == {
        (AT, None, 3, None, "")
    }
    assert (one[0].user, one[0].host, one[0].database) == ("app", "10.0.0.9", "shop")
    assert one[0].details == {"transport": "SSL/TLS"}
    assert [record.details.get("command") for record in one[4:7]] == ["field list", "ping", "statistics"]


@pytest.mark.parametrize("tab", [b"\t\t", b"\t"])
def test_times_of_56_and_mariadb(tab: bytes, tmp_path: Path) -> None:
    data = (
        b"260102  3:04:05\t    3 Connect\tapp@localhost as anonymous on \n" + b"\t\t    3 Query\tselect 1\n"
        b"260102 13:04:05" + tab[:1] + b"   12 Query\tselect 2\n\t\t   12 Quit\t\n"
    )
    pieces = read(GeneralLog(timezone(timedelta(hours=8))), data, tmp_path)
    morning = 1_767_294_245_000_000
    assert [one.start for one in records(pieces)] == [
        morning,
        morning,
        morning + 36_000_000_000,
        morning + 36_000_000_000,
    ]
    assert {one.details["time"] for one in records(pieces)} == {"whole seconds"}
    assert records(pieces)[0].database == ""


def test_a_file_that_begins_within_a_second(tmp_path: Path) -> None:
    data = BANNER + b"\t\t    3 Query\tselect 1\n260102  3:04:05\t    3 Query\tselect 2\n"
    assert [one.start for one in found(data, tmp_path)] == [1_767_323_044_000_000, 1_767_323_045_000_000]


def test_prepared_statements_of_the_protocol(tmp_path: Path) -> None:
    text = b"insert into t values (1,'it\\'s a \"q\"\nline2\t\\\\x','2020-01-01 00:00:00.123',1.5e300,'\\0\xff\\'')"
    data = (
        T + b"    4 Prepare\tinsert into t values (?,?,?,?,?)\n" + T + b"    4 Execute\t" + text + b"\n"
        + T + b"    4 Long Data\t\n" + T + b"    4 Reset stmt\t\n"
        + T + b"    4 Close stmt\t\n" + T + b"    4 Fetch\t\n"
    )  # fmt: skip
    one = found(data, tmp_path)
    assert [record.command for record in one][:2] == [Command.PREPARE, Command.EXECUTE]
    assert one[1].sql == text
    assert [record.command for record in one][2:] == [
        Command.OTHER, Command.OTHER, Command.CLOSE_STATEMENT, Command.OTHER,
    ]  # fmt: skip
    assert {record.partial for record in one} == {""}


def test_prepared_by_text_runs_once(tmp_path: Path) -> None:
    data = (
        T + b"    5 Query\tPREPARE s FROM 'select ?'\n" + T + b"    5 Prepare\tselect ?\n"
        + T + b"    6 Query\tselect 'other'\n"
        + T + b"    5 Query\texecute s using @a\n" + T + b"    5 Execute\tselect 3\n"
        + T + b"    5 Query\texecute s using @b\n" + T + b"    5 Prepare\tselect ?\n"
        + T + b"    5 Execute\tselect 'b'\n"
        + T + b"    5 Query\texecute immediate 'select 4'\n" + T + b"    5 Prepare\tselect 4\n"
        + T + b"    5 Execute\tselect 4\n" + T + b"    5 Execute\tselect 5\n"
    )  # fmt: skip
    one = found(data, tmp_path)
    ran = [record.sql for record in one if record.command in (Command.QUERY, Command.EXECUTE)]
    assert ran == [
        b"PREPARE s FROM 'select ?'", b"select 'other'", b"execute s using @a", b"execute s using @b",
        b"execute immediate 'select 4'", b"select 5",
    ]  # fmt: skip
    assert sum(record.details.get("command", "").startswith("echo") for record in one) == 6


def test_a_lost_prepare_is_restored(tmp_path: Path) -> None:
    for text, partial in ((b"select 'it''s'", ""), (b"select '\\\\'", RESTORED)):
        data = T + b"    5 Query\tPREPARE `s` FROM ...\n" + T + b"    5 Prepare\t" + text + b"\n"
        first, second = found(data, tmp_path)
        assert (first.command, first.partial) == (Command.QUERY, TEXT_LOST)
        restored = text.replace(b"\\", b"\\\\").replace(b"'", b"''")
        assert (second.command, second.sql) == (Command.QUERY, b"PREPARE `s` FROM '" + restored + b"'")
        assert (second.partial, second.details["restored"]) == (partial, "prepare")


def test_a_restored_prepare_is_one_statement(tmp_path: Path) -> None:
    from migverify.workload.sessions import in_sessions

    def partial(*texts: bytes) -> list[tuple[bytes, str]]:
        data = b"".join(T + b"    5 " + text + b"\n" for text in texts)
        followed = in_sessions(iter(found(data, tmp_path)), connects=lambda _: False)
        return [(one.record.sql, one.partial) for one in followed if one.record.command is Command.QUERY]

    lost, echo = b"Query\tPREPARE s1 FROM ...", b"Prepare\tselect ?"
    used = (b"Query\tEXECUTE s1 USING @a", b"Query\tDEALLOCATE PREPARE s1", b"Query\tEXECUTE s2")
    texts = [one.partition(b"\t")[2] for one in used]
    assert partial(lost, echo, *used) == [(b"PREPARE s1 FROM 'select ?'", ""), *((text, "") for text in texts)]
    reasons = [TEXT_LOST, TEXT_LOST, ""]
    assert partial(lost, *used) == [(b"PREPARE s1 FROM ...", TEXT_LOST), *zip(texts, reasons, strict=True)]


def test_logins(tmp_path: Path) -> None:
    for text, command, user, host, database in (
        (b"app@localhost on  using Socket", Command.CONNECT, "app", "localhost", ""),
        (b"app@10.0.0.9 on my db using TCP/IP", Command.CONNECT, "app", "10.0.0.9", "my db"),
        (b"@localhost on ", Command.CONNECT, "", "localhost", ""),
        (b"a@b@localhost as anonymous on d", Command.CONNECT, "a@b", "localhost", "d"),
        (
            b"Access denied for user 'app'@'10.0.0.9' (using password: YES)",
            Command.FAILED_CONNECT,
            "app",
            "10.0.0.9",
            None,
        ),
    ):
        (one,) = found(T + b"    3 Connect\t" + text + b"\n", tmp_path)
        assert (one.command, one.user, one.host, one.database) == (command, user, host, database), text
        assert one.errno == (1045 if command is Command.FAILED_CONNECT else None)


def test_change_user_and_reset(tmp_path: Path) -> None:
    data = T + b"    3 Change user\tb@localhost on d using Socket\n" + T + b"    3 Reset Connection\t\n"
    first, second = found(data, tmp_path)
    assert (first.command, first.user, first.database) == (Command.CHANGE_USER, "b", "d")
    assert second.command is Command.RESET_CONNECTION


def test_a_banner_in_mid_file(tmp_path: Path) -> None:
    data = T + b"    3 Query\tselect 'a\n'\n" + BANNER + T + b"    3 Query\tselect 2\n" + BANNER * 2
    pieces = read(GeneralLog(), data, tmp_path)
    assert [one.sql for one in records(pieces)] == [b"select 'a\n'", b"select 2"]
    assert noises(pieces) == ["banner"] * 3


def test_forged_headers(tmp_path: Path) -> None:
    for forged in (FORGED_GENERAL, FORGED, b"x\n" + BANNER):
        for quote, close in ((b"'", b"'"), (b'"', b'"'), (b"`", b"`"), (b"/*", b"*/")):
            text = b"select " + quote + forged + close + b", 'z'"
            data = T + b"    3 Query\t" + text + b"\n" + T + b"    3 Query\tselect 'next'\n"
            first, second = found(data, tmp_path)
            assert (first.sql, first.session, second.sql, first.partial) == (text, 3, b"select 'next'", "")


def test_odd_texts(tmp_path: Path) -> None:
    for text in (
        b"", b"\n", b"select 1\n", b"\tselect 1", b"select 1 -- it's", b"# it's", b"/*!40101 SET NAMES utf8 */",
        b"select 'a''b', \"it's\", 'x\\'y', `o'k`", bytes(set(range(256)) - set(b"'\"`/#-")), b"select 1\r",
        b"select 1;;",
    ):  # fmt: skip
        data = T + b"    3 Query\t" + text + b"\n" + T + b"    3 Query\tselect 2\n"
        assert [one.sql for one in found(data, tmp_path)] == [text, b"select 2"]


def test_texts_that_the_server_changed(tmp_path: Path) -> None:
    data = T + b"    3 Query\tCREATE USER 'a'@'%' IDENTIFIED BY <secret>\n"
    assert [one.partial for one in found(data, tmp_path)] == [MASKED]


def test_statements_of_the_server_itself_are_noise(tmp_path: Path) -> None:
    pieces = read(GeneralLog(), T + b"    0 Execute\tselect 1\n" + T + b"    0 Query\tselect 1\n", tmp_path)
    assert noises(pieces) == ["statement of the server itself"] * 2


def test_windows_lines(tmp_path: Path) -> None:
    data = write_general([Sent(b"select 1"), Sent(b"select 'a\nb'"), Sent(b"select 1,\n2")]).replace(b"\n", b"\r\n")
    one = found(data + T + b"    3 Quit\t\r\n", tmp_path)
    assert [(record.sql, record.partial) for record in one] == [
        (b"select 1", ""), (b"select 'a\r\nb'", LINE_ENDS), (b"select 1,\r\n2", ""), (b"", ""),
    ]  # fmt: skip


def test_a_cut_end_and_a_cut_beginning(tmp_path: Path) -> None:
    data = T + b"    3 Query\tselect 'abc'\n"
    for end in range(1, 8):
        assert [one.partial for one in found(data + data[:-end], tmp_path)] == ["", CUT]
    pieces = read(GeneralLog(), b"rest of a text'\n" + data, tmp_path)
    assert (rejects(pieces), len(records(pieces))) == ([NO_RECORD], 1)
    assert GeneralLog().sniff(b"rest of a text'\n" + data) > 0.5


ODD = [
    T, T + b"    3 Query\t", T + b"    3 Quit\t\n", T + b"    3 Execute\tselect 1\n", b"\t\t    3 Query\t", BANNER,
    b"'",
    b'"', b"`", b"/*", b"*/", b"\\", b"#", b"-- ", b"\n", b"\r\n", b"prepare s from ", b"execute s",
    b"    3 Connect\ta@b on c\n",
]  # fmt: skip
CHUNKS = st.lists(st.one_of(st.binary(max_size=30), st.sampled_from(ODD)), max_size=30).map(b"".join)
CHUNKS = CHUNKS.filter(lambda data: not data.startswith(GZIP))
TEXT = st.one_of(st.binary(max_size=30), st.sampled_from([FORGED, FORGED_GENERAL, BANNER]))
QUOTED = TEXT.map(lambda text: b"'" + text.replace(b"\\", b"\\\\").replace(b"'", b"''") + b"'")
SQL = st.lists(QUOTED, min_size=1, max_size=5).map(lambda parts: b"select " + b",\n".join(parts))
SENT = st.builds(Sent, SQL, session=st.integers(1, 9), end=st.integers(10**15, 2 * 10**15))


@settings(max_examples=40, deadline=None)
@given(st.lists(SENT, max_size=6))
def test_what_the_server_wrote_comes_back(sent: list[Sent]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one = found(write_general(sent), Path(folder))
    if any(record.partial == UNCERTAIN for record in one):  # a session of another mode could close a literal elsewhere
        assert {record.sql for record in one if not record.partial} <= {each.sql for each in sent}
        return
    assert [(record.sql, record.session, record.start, record.partial) for record in one] == [
        (each.sql, each.session, each.end - each.duration, "") for each in sent
    ]


@example(b"\0" * 39 + BANNER, 13)
@settings(max_examples=25, deadline=None)
@given(CHUNKS, st.integers(1, 300))
def test_blocks_do_not_matter(data: bytes, block: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "HEADER_BYTES", 200)
        path = Path(folder) / "x"
        path.write_bytes(data)

        def pieces(size: int) -> list[Piece]:
            return list(LogReading(str(path), general.GeneralGrammar(str(path), GeneralLog().zone), 1 << 20, size))

        one = pieces(block)
        contiguous(one, data)
        assert one == pieces(1 << 20)

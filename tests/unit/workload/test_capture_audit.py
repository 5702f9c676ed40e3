"""Audit CSV in its three dialects: texts unescaped, cut ones told, what ran inside another statement set apart."""

from __future__ import annotations

import random
import tempfile
from datetime import timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.workload import overflow
from migverify.workload.capture import CaptureInput, CaptureOptions, capture
from migverify.workload.formats import audit
from migverify.workload.formats.audit import (
    BAD_ESCAPE,
    BAD_TIME,
    INSIDE,
    INSIDE_OR_RESTART,
    NO_VALUES,
    NOT_AUDIT,
    TOO_NESTED,
    TRUNCATED,
    Audit,
    Looks,
    settled,
    unescape,
)
from migverify.workload.formats.statements import MASKED
from migverify.workload.lines import TOO_LONG
from migverify.workload.model import Command, Record
from migverify.workload.quotes import LOOKS_CUT
from migverify.workload.runs import EDGES
from migverify.workload.sessions import in_sessions
from tests.unit.log_writers import noises, read, records, rejects

AURORA = b"1767323045678901,db-1,app,10.0.0.9,8,%d,QUERY,shop,'%s',%d\n"
RDS = b"20260102 03:04:05,ip-10,app,10.0.0.9,8,%d,QUERY,shop,'%s',%d,,\n"
MARIADB = b"20260102 03:04:05,web,app,10.0.0.9,8,%d,QUERY,shop,'%s',%d\n"
ESCAPES = {b"\\": b"\\\\", b"'": b"\\'", b"\n": b"\\n", b"\r": b"\\r", b"\t": b"\\t", b"\b": b"\\b", b"\f": b"\\f"}


def escaped(sql: bytes) -> bytes:
    """Escape as the plugin does: a NUL stays, so do commas and double quotes."""
    return b"".join(ESCAPES.get(bytes([one]), bytes([one])) for one in sql)


def found(data: bytes, folder: Path, limit: int = 0) -> list[Record]:
    """Return the records of a file as they are settled, in its order."""
    form = Audit()
    read(form, data, folder)
    part = form.part(str(folder / "the.log"), 0, None, None)
    made = sorted(
        records(list(part)),
        key=lambda one: (
            one.server,
            one.session or 0,
            one.end or 0,
            0 if "time" in one.details else EDGES.get(one.command, 0),
            0 if "time" in one.details else one.number,
        ),
    )
    looks = part.looks
    return sorted(
        settled(made, lambda server: limit or looks.get(server, Looks()).cut_at), key=lambda one: one.origin.offset
    )


@pytest.mark.parametrize("line", [AURORA, RDS, MARIADB])
def test_dialects(line: bytes, tmp_path: Path) -> None:
    text = b"/* svc=pay; a=1 */ select 'a;\n# Time: ..\nb', 'it''s', \"d'q\", 'x\\'y', 1,2 -- c,0"
    data = line % (24, escaped(text), 0) + line % (25, b"insert into t values (1)", 1062)
    first, second = found(data, tmp_path)
    assert (first.sql, first.command, first.errno, first.partial) == (text, Command.QUERY, 0, "")
    assert (first.session, first.user, first.host, first.database, first.number) == (8, "app", "10.0.0.9", "shop", 24)
    assert (second.errno, second.sql, second.origin.line) == (1062, b"insert into t values (1)", 2)
    assert (first.start, first.duration, first.rows_sent) == (None, None, None)
    if line is AURORA:
        assert (first.end, first.server, first.details) == (1_767_323_045_678_901, "db-1", {})
    else:
        assert (first.end, first.details) == (1_767_323_045_000_000, {"time": "whole seconds"})


def test_local_times(tmp_path: Path) -> None:
    (one,) = records(read(Audit(timezone(timedelta(hours=-8))), MARIADB % (1, b"select 1", 0), tmp_path))
    assert one.end == 1_767_323_045_000_000 + 8 * 3600 * 10**6
    pieces = read(Audit(), (MARIADB % (1, b"select 1", 0)).replace(b"0102", b"0231"), tmp_path)
    assert rejects(pieces) == [BAD_TIME]


@pytest.mark.parametrize(
    ("tail", "command", "database", "errno"),
    [
        (b"CONNECT,shop,,0", Command.CONNECT, "shop", 0),
        (b"CONNECT,,,0", Command.CONNECT, "", 0),
        (b"CONNECT,,0", Command.CONNECT, "", 0),
        (b"CONNECT,shop,,0,SSL/TLS", Command.CONNECT, "shop", 0),
        (b"FAILED_CONNECT,,,1045", Command.FAILED_CONNECT, None, 1045),
        (b"FAILED_CONNECT,,,1045,TCP/IP", Command.FAILED_CONNECT, None, 1045),
        (b"DISCONNECT,shop,,0", Command.QUIT, None, None),
        (b"CHANGEUSER,d,,0", Command.CHANGE_USER, "d", 0),
    ],
)
def test_logins(tail: bytes, command: Command, database: str | None, errno: int | None, tmp_path: Path) -> None:
    (one,) = found(b"20260102 03:04:05,web,app,10.0.0.9,8,0," + tail + b"\n", tmp_path)
    assert (one.command, one.database, one.errno, one.sql) == (command, database, errno, b"")


def test_proxy_users_are_kept_and_never_replayed(tmp_path: Path) -> None:
    (one,) = found(b"20260102 03:04:05,web,app,h,8,0,PROXY_CONNECT,d,`u`@`h`,0\n", tmp_path)
    assert (one.command, one.details["command"]) == (Command.OTHER, "proxy_connect")


def test_events_of_tables_are_noise(tmp_path: Path) -> None:
    kinds = (b"READ", b"WRITE", b"CREATE", b"ALTER", b"RENAME", b"DROP")
    data = b"".join(b"20260102 03:04:05,web,app,h,8,24,%s,shop,t,\n" % kind for kind in kinds)
    pieces = read(Audit(), data + MARIADB % (24, b"rename table t to u", 0), tmp_path)
    assert (noises(pieces), len(records(pieces))) == (["event of a table"] * 6, 1)


def test_the_port_of_mariadb_12_is_no_part_of_the_host(tmp_path: Path) -> None:
    for raw, host in ((b"10.0.0.9:53412", "10.0.0.9"), (b"::1", "::1"), (b"localhost:", "localhost:")):
        (one,) = found((MARIADB % (1, b"select 1", 0)).replace(b"10.0.0.9", raw), tmp_path)
        assert one.host == host


def test_masked_passwords(tmp_path: Path) -> None:
    for text in (b"create user x identified by *****", b"set password for x = password(*****)"):
        assert [one.partial for one in found(MARIADB % (1, text, 0), tmp_path)] == [MASKED]
    assert [one.partial for one in found(MARIADB % (1, b"select \\'*****\\'", 0), tmp_path)] == [""]


def test_prepared_statements(tmp_path: Path) -> None:
    for text, errno, command, partial in (
        (b"select nope from t where id=?", 1054, Command.PREPARE, ""),
        (b"select * from t where id=?", 0, Command.EXECUTE, NO_VALUES),
        (b"insert into t values (?)", 1062, Command.EXECUTE, NO_VALUES),
        (b"selekt ?", 1064, Command.QUERY, ""),
        (b"select \\'?\\'", 0, Command.QUERY, ""),
        (b"prepare s from \\'select ?\\'", 0, Command.QUERY, ""),
    ):
        (one,) = found(MARIADB % (1, text, errno), tmp_path)
        assert (one.command, one.partial, one.errno) == (command, partial, errno), text


def test_texts_of_the_default_limit_are_taken_for_cut(tmp_path: Path) -> None:
    def sized(size: int) -> bytes:
        return MARIADB % (size, b"select " + b"1" * (size - 7), 0)

    one = found(b"".join(map(sized, (1022, 1023, 1024))), tmp_path)
    assert [record.partial for record in one] == ["", TRUNCATED, TRUNCATED]
    # a longer text shows that the limit is another
    one = found(b"".join(map(sized, (1022, 1023, 1024, 1025))), tmp_path)
    assert [record.partial for record in one] == ["", "", "", ""]
    one = found(b"".join(map(sized, (1022, 1024, 1500))), tmp_path, limit=1500)
    assert [record.partial for record in one] == ["", "", TRUNCATED]


def test_the_limit_is_found_by_the_texts_that_end_at_it(tmp_path: Path) -> None:
    cut = b"insert into t values (" + b"1," * 989
    whole_by_its_looks = b"delete from t where a = 1 and b = 2" + b" " * 1964
    short = b"select (1)"
    data = b"".join(MARIADB % (number, text[:2000], 0) for number, text in enumerate((short, cut, whole_by_its_looks)))
    assert len(cut) == 2000
    assert [one.partial for one in found(data, tmp_path)] == ["", TRUNCATED, TRUNCATED]
    data = b"".join(MARIADB % (number, text[:2000], 0) for number, text in enumerate((short, whole_by_its_looks)))
    assert [one.partial for one in found(data, tmp_path)] == ["", ""]


def test_a_quote_left_open_is_a_cut_unless_the_server_saw_it(tmp_path: Path) -> None:
    assert [one.partial for one in found(MARIADB % (1, b"select \\'abc", 0), tmp_path)] == [TRUNCATED]
    assert [one.partial for one in found(MARIADB % (1, b"select \\'abc", 1064), tmp_path)] == [""]
    assert [one.partial for one in found(MARIADB % (1, b"select /* abc", 0), tmp_path)] == [TRUNCATED]


@pytest.mark.parametrize(("setting", "text"), [
    (b"SET sql_mode='NO_BACKSLASH_ESCAPES'", b"insert into t values ('C:\\')"),
    (b"SET sql_mode='ANSI_QUOTES'", b'select 1 as "a\\"'), (b"SET NAMES gbk", b"select '\xbf\\'"),
])  # fmt: skip
@pytest.mark.parametrize("line", [AURORA, RDS, MARIADB])
def test_a_text_that_the_session_closes_is_not_cut(line: bytes, setting: bytes, text: bytes, tmp_path: Path) -> None:
    whole = b"select " + b"1" * 1100  # as long as no limit lets through

    def marks(*texts: bytes) -> list[str]:
        data = b"".join(line % (number, escaped(sql), 0) for number, sql in enumerate([whole, *texts]))
        told = list(in_sessions(found(data, tmp_path), connects=lambda _: False))
        assert [one.record.sql for one in told] == [whole, *texts]
        return [one.partial for one in told[1:]]

    assert marks(setting, text) == ["", ""]
    assert marks(b"select 1", text) == ["", LOOKS_CUT]
    assert marks(setting, text, b"select 'cut") == ["", "", LOOKS_CUT]
    assert marks(setting, text + b", ?") == ["", LOOKS_CUT]  # values of a prepared statement are missing


def test_damaged_lines(tmp_path: Path) -> None:
    good = MARIADB % (1, b"select 1", 0)
    cut = good[: good.index(b"1',0") - 3]
    pieces = read(Audit(), b"rest of a line',0\n" + good + b"\n" + good.replace(b",8,", b",x,") + cut, tmp_path)
    assert rejects(pieces) == [NOT_AUDIT, NOT_AUDIT]
    assert noises(pieces) == ["empty line"]
    assert [(one.sql, one.partial) for one in records(pieces)] == [(b"select 1", ""), (b"sele", TRUNCATED)]
    for end in range(1, 60):
        pieces = read(Audit(), good + good[:-end], tmp_path)
        assert [one.partial for one in records(pieces)[1:]] in ([], [TRUNCATED])


def test_unknown_escapes_are_told(tmp_path: Path) -> None:
    (one,) = found(MARIADB % (1, b"select \\q", 0), tmp_path)
    assert (one.sql, one.partial) == (b"select \\q", BAD_ESCAPE)


CONNECT = b"20260102 03:04:05,web,app,10.0.0.9,8,0,CONNECT,shop,,0\n"


def test_what_ran_inside_another_statement(tmp_path: Path) -> None:
    numbers = [(53, b"begin"), (56, b"insert into t values (5)"), (57, b"select 1"), (55, b"call p()"), (58, b"commit"),
               (59, b"select 4"), (59, b"execute immediate \\'select 4\\'")]  # fmt: skip
    data = b"".join(MARIADB % (number, text, 0) for number, text in numbers)
    one = found(CONNECT + data, tmp_path)[1:]
    assert [record.command for record in one if record.details.get("command") == INSIDE] == [Command.OTHER] * 3
    assert [record.sql for record in one if record.command is Command.QUERY] == [
        b"begin", b"call p()", b"commit", b"execute immediate 'select 4'",
    ]  # fmt: skip
    # statements of other sessions in between have higher ids of their own
    other = (MARIADB % (60, b"select 9", 0)).replace(b",8,60", b",9,60")
    mixed = data.replace(MARIADB % (55, b"call p()", 0), other + MARIADB % (55, b"call p()", 0))
    assert [record.command for record in found(CONNECT + mixed, tmp_path)].count(Command.OTHER) == 3


def test_ids_that_begin_anew_with_the_server(tmp_path: Path) -> None:
    data = MARIADB % (500, b"select 1", 0) + MARIADB % (501, b"select 2", 0)
    late = MARIADB % (7, b"select 3", 0)
    assert {one.command for one in found(data + CONNECT + late, tmp_path)} == {Command.QUERY, Command.CONNECT}
    # without a connect in between it may be either: kept, and said so
    one = found(data + late, tmp_path)
    assert [record.partial for record in one] == [INSIDE_OR_RESTART, INSIDE_OR_RESTART, ""]
    assert {record.command for record in one} == {Command.QUERY}


def test_a_line_over_the_limit(tmp_path: Path) -> None:
    good = MARIADB % (1, b"select 1", 0)
    pieces = read(Audit(longest=500), good + MARIADB % (2, b"x" * 5000, 0) + good, tmp_path)
    assert (rejects(pieces), len(records(pieces))) == ([TOO_LONG], 2)


def test_gzip_and_windows_lines(tmp_path: Path) -> None:
    data = (MARIADB % (1, b"select 1", 0) + RDS % (2, b"select 2", 0)).replace(b"\n", b"\r\n")
    pieces = read(Audit(), data, tmp_path, packed=True)
    assert [(one.sql, one.errno) for one in records(pieces)] == [(b"select 1", 0), (b"select 2", 0)]


@given(st.binary(max_size=200))
def test_escapes_come_back(sql: bytes) -> None:
    assert unescape(escaped(sql)) == (sql, True)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.binary(max_size=60), st.integers(0, 9999)), max_size=6),
    st.sampled_from([AURORA, RDS, MARIADB]),
)
def test_what_the_server_wrote_comes_back(sent: list[tuple[bytes, int]], line: bytes) -> None:
    data = b"".join(line % (number, escaped(sql), errno) for number, (sql, errno) in enumerate(sent))
    with tempfile.TemporaryDirectory() as folder:
        one = found(data, Path(folder))
    assert [(record.sql, record.errno) for record in one] == sent


def aurora(seed: int, tied: bool) -> tuple[list[bytes], dict[bytes, str]]:
    """Return four files as Aurora writes them, and what each text is: a client's statement, or one of a procedure."""
    made = random.Random(seed)
    lines: list[tuple[int, bytes]] = []
    truth: dict[bytes, str] = {}
    clock, query = 1_767_323_045_000_000, 0

    def ended(session: int, number: int, sql: bytes, kind: str) -> None:
        nonlocal clock
        clock += made.choice([0, 0, 1, 40]) if tied else made.randrange(1, 400)
        truth[sql] = kind
        lines.append((clock, b"%d,db-1,app,10.0.0.9,%d,%d,QUERY,shop,'%s',0\n" % (clock, session, number, sql)))

    for session in range(1, 5):
        lines.append((clock, b"%d,db-1,app,10.0.0.9,%d,0,CONNECT,shop,,0\n" % (clock, session)))
        for _ in range(40):
            query += 1
            outer = query
            if made.random() < 0.3:
                for _ in range(made.randrange(1, 6)):
                    query += 1
                    ended(session, query, b"insert into t values (%d)" % query, "inside")
                ended(session, outer, b"call p(%d)" % outer, "client")
                clock += 1  # what a client sends next ends later
            else:
                ended(session, outer, b"select %d" % outer, "client")
        clock += 10
    files: list[list[tuple[float, bytes]]] = [[], [], [], []]
    for moment, line in lines:  # each in any file, late by up to two seconds
        made.choice(files).append((moment + made.random() * 2_000_000, line))
    return [b"".join(line for _, line in sorted(one)) for one in files], truth


@pytest.mark.parametrize("tied", [False, True])
def test_nesting_is_known_over_all_files_of_aurora(tied: bool, tmp_path: Path) -> None:
    from migverify.workload.statement_files import read_columns

    for seed in range(6):
        files, truth = aurora(seed, tied)
        inputs = []
        for number, data in enumerate(files):
            path = tmp_path / f"{seed}-{number}.log"
            path.write_bytes(data)
            inputs.append(CaptureInput(path, Audit()))
        out = tmp_path / f"out-{seed}"
        summary = capture(inputs, CaptureOptions(out, part_bytes=2_000, share_bytes=9_000))
        rows = [row for batch in read_columns(out, ["sql", "partial"]) for row in zip(*batch.values(), strict=True)]
        assert {sql for sql, _ in rows} == {sql for sql, kind in truth.items() if kind == "client"}
        assert {partial for _, partial in rows} == {""}
        assert summary.commands["other"] == sum(kind == "inside" for kind in truth.values())


def test_plain_statements_of_one_microsecond_keep_the_order_of_their_ids(tmp_path: Path) -> None:
    data = b"".join(AURORA % (number, b"select %d" % number, 0) for number in (26, 24, 25))
    made = found(data, tmp_path)
    assert [(one.command, one.partial) for one in made] == [(Command.QUERY, "")] * 3


def test_nesting_that_is_too_much_to_remember_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MOST_OUTER", 2)
    monkeypatch.setattr(overflow, "HELD_BYTES", 1)
    data = CONNECT + b"".join(
        MARIADB % (number, sql, 0)
        for call in range(4)
        for number, sql in ((call * 2 + 2, b"select 1"), (call * 2 + 1, b"call p()"))
    )
    made = found(data, tmp_path)
    assert [one.partial for one in made[1:]] == [TOO_NESTED] * 8
    assert {one.command for one in made[1:]} == {Command.QUERY}

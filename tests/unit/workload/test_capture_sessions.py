"""Records in any order become the same sessions, and their edges are marked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migverify.workload import overflow, runs, sessions
from migverify.workload.model import Command, Origin, Parameter, Record
from migverify.workload.quotes import UNBALANCED
from migverify.workload.runs import RunWriter, merged, unpack
from migverify.workload.sessions import SessionStatement, in_sessions
from tests.unit.capture_logs import record

SECRET = b"s" * 32


def follow(
    folder: Path, records: Iterable[Record], *, connects: bool = True, run_bytes: int = 1 << 30
) -> list[SessionStatement]:
    writer = RunWriter(folder / "run", SECRET, run_bytes)
    for one in records:
        writer.add(one, -1, 0)
    run = writer.close()
    assert [path.name for path in folder.iterdir()] == ["run"]
    entries = merged([run], SECRET)
    found = list(in_sessions((unpack(one.packed, 0, None, "") for one in entries), connects=lambda _: connects))
    (folder / "run").unlink()
    return found


COMMANDS = st.sampled_from([
    (Command.CONNECT, b""), (Command.QUIT, b""), (Command.QUERY, b"BEGIN"), (Command.QUERY, b"COMMIT"),
    (Command.QUERY, b"SET sql_mode='ANSI'"), (Command.QUERY, b"select 1"), (Command.INIT_DB, b"d"),
    (Command.EXECUTE, b"select ?"), (Command.FAILED_CONNECT, b""),
])  # fmt: skip


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Record], list[Record]]:
    told = draw(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 3), COMMANDS), max_size=30))
    time = 0
    found = []
    for number, (server, session, (command, sql)) in enumerate(told):
        time += draw(st.integers(0, 1)) if command is Command.QUERY else 1
        end = time if draw(st.booleans()) else None
        parameters = (Parameter("integer", b"1"),) if command is Command.EXECUTE else None
        found.append(
            Record(
                Origin("f", number, 1, 1), command, sql, session=session, server=server, start=time, end=end,
                number=number, parameters=parameters, details={"n": str(number)},
            )
        )  # fmt: skip
        time += command is not Command.QUERY
    return found, draw(st.permutations(found))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(log=logs(), run_bytes=st.sampled_from([1, 3000, 1 << 30]))
def test_any_shuffle_gives_the_same_sessions(
    tmp_path: Path, log: tuple[list[Record], list[Record]], run_bytes: int
) -> None:
    ordered, shuffled = log
    expected = follow(tmp_path, ordered)
    assert follow(tmp_path, shuffled, run_bytes=run_bytes) == expected
    assert not list(tmp_path.iterdir())
    assert sorted(one.record.number for one in expected) == list(range(len(ordered)))
    for before, after in pairwise(expected):
        if before.session == after.session:
            assert after.position == before.position + 1
            assert after.record.number > before.record.number


def test_runs_are_merged_when_they_are_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "MOST_RUNS", 3)
    found = follow(tmp_path, [record(number=n, end=-n % 50) for n in range(50)], run_bytes=1)
    assert [one.record.end for one in found] == sorted(one.record.end or 0 for one in found)


def test_a_connection_id_comes_back(tmp_path: Path) -> None:
    told = [
        (Command.CONNECT, ""), (Command.QUERY, "SET sql_mode='ANSI'"), (Command.QUIT, ""), (Command.CONNECT, ""),
        (Command.QUERY, "select 1"), (Command.CONNECT, ""), (Command.QUERY, "select 2"), (Command.QUIT, ""),
        (Command.QUERY, "select 3"),
    ]  # fmt: skip
    found = follow(tmp_path, [record(sql, command, start=n, server="db1") for n, (command, sql) in enumerate(told)])
    assert [one.session for one in found] == [*["db1/1/1"] * 3, *["db1/1/2"] * 2, *["db1/1/3"] * 3, "db1/1/4"]
    assert found[4].state.sql_mode is None
    assert [one.partial for one in found] == [""] * 8 + [sessions.BEGAN_BEFORE]


def test_a_disconnect_of_a_refused_connect_is_no_session(tmp_path: Path) -> None:
    told = [Command.FAILED_CONNECT, Command.QUIT, Command.CONNECT, Command.QUERY]
    found = follow(tmp_path, [record("", command, start=n) for n, command in enumerate(told)])
    assert [one.session for one in found] == ["-/1/1", "-/1/1", "-/1/2", "-/1/2"]


def test_another_user_is_another_session_where_connects_are_not_told(tmp_path: Path) -> None:
    users = ["a", "a", None, "b"]
    found = follow(tmp_path, [record(user=user, end=n) for n, user in enumerate(users)], connects=False)
    assert [one.session for one in found] == ["-/1/1"] * 3 + ["-/1/2"]
    assert {one.partial for one in found} == {""}


def test_connects_and_quits_keep_the_edges_of_a_second(tmp_path: Path) -> None:
    told = [record("", Command.QUIT, end=5), record("q", number=9, end=5), record("", Command.CONNECT, end=5)]
    assert [one.record.command for one in follow(tmp_path, told)] == [Command.CONNECT, Command.QUERY, Command.QUIT]


def test_open_transactions_at_the_end_are_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["", "BEGIN", "update 1", "BEGIN", "update 2", "update 3"]
    told = [record(sql, Command.QUERY if sql else Command.CONNECT, start=n) for n, sql in enumerate(texts)]
    for held in (1 << 30, 1):
        monkeypatch.setattr(overflow, "HELD_BYTES", held)
        found = follow(tmp_path, told)
        assert [one.record.sql.decode() for one in found] == texts
        assert [one.partial for one in found] == ["", "", ""] + [sessions.OPEN_AT_END] * 3
        assert [one.state.transaction for one in found] == [False, False, True, True, True, True]
        quit_too = follow(tmp_path, [*told, record("", Command.QUIT, start=9)])
        assert {one.partial for one in quit_too} == {""}


def test_reasons_are_joined(tmp_path: Path) -> None:
    (one,) = follow(tmp_path, [record("BEGIN", partial="truncated")])
    assert one.partial == f"truncated; {sessions.BEGAN_BEFORE}; {sessions.OPEN_AT_END}"
    (execute,) = follow(tmp_path, [record("", Command.EXECUTE, statement_id=4)])
    assert sessions.PREPARED_BEFORE in execute.partial


def test_records_without_a_session_share_no_state(tmp_path: Path) -> None:
    told = [replace(record(sql, start=n), session=None) for n, sql in enumerate(["USE a", "BEGIN", "select 1"])]
    found = follow(tmp_path, told)
    assert {(one.session, one.partial, one.state.database) for one in found} == {("-/?/1", sessions.NO_SESSION, None)}


def test_the_user_of_a_connect_reaches_every_statement_of_its_session(tmp_path: Path) -> None:
    told = [
        record("", command=Command.CONNECT, session=1, user="ann", start=1), record("select 1", session=1, start=2),
        record("", command=Command.CHANGE_USER, session=1, user="bob", start=3), record("select 2", session=1, start=4),
        record("select 3", session=2, start=5),
    ]  # fmt: skip
    found = follow(tmp_path, told)
    assert [(one.record.sql, one.record.user) for one in found if one.record.sql] == [
        (b"select 1", "ann"), (b"select 2", "bob"), (b"select 3", None),
    ]  # fmt: skip


@pytest.mark.parametrize(("setting", "sql"), [
    ("SET sql_mode='NO_BACKSLASH_ESCAPES'", rb"insert into t values ('C:\')"), ("SET NAMES gbk", b"select '\xbf\x5c'"),
    ("SET NAMES sjis", b"select '\x83\x5c', `\x83\x60`"), ("SET sql_mode='ANSI_QUOTES'", rb'select 1 as "a\"'),
])  # fmt: skip
def test_a_text_is_whole_where_the_session_closes_its_literals(tmp_path: Path, setting: str, sql: bytes) -> None:
    told = [
        record("", command=Command.CONNECT, session=1, start=1), record(setting, session=1, start=2),
        replace(record("", session=1, start=3), sql=sql, partial=UNBALANCED),
        replace(record("", session=1, start=4), sql=b"select 'cut", partial=UNBALANCED),
        record("", command=Command.CONNECT, session=2, start=1),
        replace(record("", session=2, start=2), sql=sql, partial=UNBALANCED),
    ]  # fmt: skip
    found = [one.partial for one in follow(tmp_path, told)]
    assert (found[2], found[3]) == ("", UNBALANCED)
    assert found[5] == UNBALANCED


def test_a_reset_session_is_known_again() -> None:
    """A change of user sets everything anew; a reset all but the database, which another record may tell."""
    records = [
        Record(Origin("f", n, n, 1), command, sql, session=1, start=n, end=n)
        for n, (command, sql) in enumerate([
            (Command.QUERY, b"SELECT 1"), (Command.RESET_CONNECTION, b""), (Command.QUERY, b"SELECT 2"),
            (Command.QUERY, b"USE d"), (Command.RESET_CONNECTION, b""), (Command.QUERY, b"SELECT 3"),
        ])
    ]  # fmt: skip
    found = list(in_sessions(iter(records), connects=lambda _: True))
    assert [bool(one.partial) for one in found] == [True, True, True, True, True, False]

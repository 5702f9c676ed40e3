"""Causes are named where the evidence shows them, and nowhere else; the published example comes out as published."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.cli.main import run as command
from migverify.workload.conflict.causes import CAUSES, UNKNOWN
from migverify.workload.conflict.explain import explain
from migverify.workload.conflict.keys import TidbKey
from migverify.workload.conflict.message import parse
from migverify.workload.conflict.model import (
    ConflictKind,
    EvidenceState,
    Explanation,
    SeenStatement,
    TransactionConflict,
)
from migverify.workload.conflict.sources import find, messages, replay_conflicts, statements_near, with_names
from migverify.workload.conflict.text import as_json, as_text
from migverify.workload.conflict.transactions import Statements
from migverify.workload.mask import mask_text
from migverify.workload.meaning import Meanings
from migverify.workload.replay.model import Call, Difference, DifferenceSeverity, JudgedCall, Judgement
from migverify.workload.replay.outcomes import Outcomes
from migverify.workload.replay.runfile import RunFileWriter
from migverify.workload.state import SessionState

PUBLISHED = (
    "SQLSTATE[HY000]: General error: 9007 Write conflict, txnStartTS=418981749670543365, "
    "conflictStartTS=418981749591900161, conflictCommitTS=418981749814722561, key={tableID=291, handle=3339451} "
    "primary={tableID=291, indexID=2, indexValues={1848500256434552832, 3339451, }} [try again later]"
)
MS = 1000
NOW = 1_800_000_000_000 * MS  # any time
KEY = TidbKey("row", 5, values=("1",), table="pay.t")
UPDATE = b"UPDATE t SET a = a + 1 WHERE id = 1"


def tso(moment: int) -> int:
    return (moment // 1000) << 18 | 1


def seen(session: str, begin: int, end: int, sql: bytes = UPDATE, **more: Any) -> SeenStatement:
    """A statement; times in milliseconds after NOW."""
    told = {"where": f"slow.log:{begin}", "user": "app", "host": "10.0.0.1", "database": "pay", "ok": True,
            "txn": tso(NOW + begin * MS), "explicit": False}  # fmt: skip
    return SeenStatement(session=session, begin=NOW + begin * MS, end=NOW + end * MS, sql=sql, **{**told, **more})


def conflict(start: int, other: int, commit: int, **more: Any) -> TransactionConflict:
    found = TransactionConflict(
        ConflictKind.WRITE, 9007, "", "", tso(NOW + start * MS), tso(NOW + other * MS), tso(NOW + commit * MS), KEY
    )
    return replace(found, **more)


def held(told: Explanation, hold: EvidenceState) -> list[str]:
    return [one.cause for one in told.candidates if one.hold is hold]


def test_the_published_example() -> None:
    """pingcap/tidb#19417: a write needed 850 ms to commit, and ours began 300 ms into it."""
    (found,) = messages(PUBLISHED)
    told = as_json(explain(found, Statements([])))
    assert told["ours"]["start"] == "2020-08-24 17:02:14.815Z"  # type: ignore[index]
    assert told["other"]["start"] == "2020-08-24 17:02:14.515Z"  # type: ignore[index]
    assert told["other"]["commit"] == "2020-08-24 17:02:15.365Z"  # type: ignore[index]
    assert told["overlap"] == {"from": "2020-08-24 17:02:14.815Z", "to": "2020-08-24 17:02:15.365Z", "ms": 550.0}
    assert told["key"]["text"] == "table id 291, row (3339451)"  # type: ignore[index]
    assert told["story"] == [
        "The other transaction began 300 ms before ours: it was unfinished when ours began.",
        "The other one needed 850 ms from its start to its commit.",
        "Both were under way from 2020-08-24 17:02:14.815Z to 2020-08-24 17:02:15.365Z: 550 ms.",
    ]
    assert told["cause"] == UNKNOWN
    assert len(told["missing"]) == 2  # type: ignore[arg-type]


def test_a_lock_that_lingers_names_no_commit() -> None:
    """TiDB refuses an optimistic transaction that meets a later lock before it knows when its owner committed."""
    (found,) = messages(PUBLISHED.replace("conflictCommitTS=418981749814722561", "conflictCommitTS=0"))
    told = as_json(explain(found, Statements([])))
    assert told["overlap"] is told["other"]["commit"] is None  # type: ignore[index]
    assert told["other"]["start"] == "2020-08-24 17:02:14.515Z"  # type: ignore[index]
    assert told["story"] == ["The other transaction began 300 ms before ours: it was unfinished when ours began."]


@given(st.sampled_from([9007, 8002, 8005, 8022, 8147]), st.integers(1 << 58, 1 << 59), st.integers(1 << 58, 1 << 59))
def test_a_message_alone_never_names_a_hidden_writer(code: int, start: int, other: int) -> None:
    found = parse(f"ERROR {code} (HY000): txnStartTS={start}, conflictStartTS={other}, conflictCommitTS={other + 9}")
    assert found is not None
    told = explain(found, Statements([]))
    assert told.cause == UNKNOWN
    assert held(told, EvidenceState.SHOWN) == []
    assert all(one.confirm for one in told.candidates if one.hold is EvidenceState.POSSIBLE)


def test_an_autocommit_statement() -> None:
    ours = [seen("1", 0, 5, b"BEGIN", explicit=True), seen("1", 6, 9, txn=tso(NOW), explicit=True),
            seen("1", 90, 95, b"COMMIT", txn=tso(NOW), explicit=True, ok=False)]  # fmt: skip
    told = explain(conflict(0, 20, 25), Statements([*ours, seen("2", 20, 30), seen("2", 40, 41, b"SELECT 1")]))
    assert told.cause == "autocommit statement"
    assert (told.ours.session, told.other.session) == ("1", "2")
    assert told.ours.statement is ours[1]
    assert told.ours.ended is ours[2]
    assert told.overlap == (NOW + 20 * MS, NOW + 25 * MS)


def test_a_transaction_of_another_session() -> None:
    other = [seen("2", 20, 22, explicit=True), seen("2", 30, 31, b"COMMIT", txn=tso(NOW + 20 * MS), explicit=True)]
    told = explain(conflict(0, 20, 30), Statements([seen("1", 0, 90), *other]))
    assert told.cause == "other transaction"
    assert told.other.statement is other[0]


def test_a_client_that_timed_out() -> None:
    gone = seen("2", 0, 1000)
    again = seen("1", 500, 1500)
    told = explain(conflict(500, 0, 990), Statements([gone, again]))
    assert told.cause == "timed-out client"
    assert told.overlap == (NOW + 500 * MS, NOW + 990 * MS)

    # its session went on: its client had waited
    after = explain(conflict(500, 0, 990), Statements([gone, again, seen("2", 1100, 1101, b"SELECT 1")]))
    assert "timed-out client" in held(after, EvidenceState.EXCLUDED)
    assert after.cause == "autocommit statement"

    # another statement, or a connection that was there before: may be plain concurrency
    for statements in (
        [gone, replace(again, sql=b"UPDATE t SET b = 2 WHERE id = 1")],
        [gone, again, seen("1", -900, -890, b"SELECT 1")],
        [gone, replace(again, host="10.0.0.2")],
    ):
        told = explain(conflict(500, 0, 990), Statements(statements))
        assert "timed-out client" in held(told, EvidenceState.POSSIBLE)
        assert told.cause == UNKNOWN

    # the client ended it, and that is recorded
    told = explain(
        conflict(500, 0, 990), Statements([replace(gone, errno=1317), replace(again, sql=b"UPDATE t SET a = 0")])
    )
    assert told.cause == "timed-out client"


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ({"sql": b"DELETE LOW_PRIORITY FROM `pay`.`t` WHERE `id` IN (1) AND `d` < FROM_UNIXTIME(1) LIMIT 1",
          "internal": True, "user": ""}, "ttl"),
        ({"sql": b"update mysql.tidb_ddl_job set job_meta = 1", "internal": True, "user": ""}, "ddl"),
        ({"sql": b"update mysql.stats_meta set version = 1", "internal": True, "user": ""}, "internal"),
        ({"user": "dm-worker"}, "replicator"),
        ({"user": "app", "program": "Go-MySQL-Driver ticdc"}, "replicator"),
        ({"user": "etl"}, "replicator"),
        ({"user": "admin"}, "autocommit statement"),
    ],
)  # fmt: skip
def test_writers_that_the_code_does_not_show(more: dict[str, Any], cause: str) -> None:
    told = explain(conflict(0, 20, 25), Statements([seen("1", 0, 90), seen("2", 20, 30, **more)]), replicators=["etl"])
    assert told.cause == cause
    assert told.remedy == CAUSES[cause].remedy


def test_a_statement_that_retried_itself() -> None:
    told = explain(conflict(50, 20, 60), Statements([seen("1", 50, 90), seen("1", 20, 45, retries=2)]))
    assert told.cause == "own retry"


def test_the_schema() -> None:
    key = TidbKey("schema", values=("DB:1",))
    assert explain(conflict(0, 20, 25, key=key), Statements([])).cause == "ddl"
    changed = TransactionConflict(
        ConflictKind.SCHEMA, 8028, "Information schema is changed", start=tso(NOW), at=NOW + 90 * MS
    )
    bare = explain(changed, Statements([]))
    assert (bare.cause, bare.other.statement) == ("ddl", None)
    ddl = seen("9", 10, 60, b"ALTER TABLE t ADD COLUMN z INT")
    told = explain(changed, Statements([seen("1", 0, 5), ddl, seen("3", 5000, 5001, b"ALTER TABLE t DROP COLUMN z")]))
    assert told.other.statement is ddl
    assert any("ALTER TABLE t ADD COLUMN z" in one for one in told.candidates[0].evidence)


def test_locks_that_were_lost() -> None:
    found = parse("[kv:8022]Error: KV error safe to retry TxnLockNotFound [try again later]")
    assert found is not None
    assert explain(found, Statements([])).cause == "expired lock"


def read(begin: int, end: int, session: str = "1", **more: Any) -> tuple[SeenStatement, TransactionConflict]:
    reader = seen(
        session, begin, end, b"SELECT a FROM t WHERE id = 1", backoffs=("txnLockFast",), waited=9 * MS, **more
    )
    return reader, TransactionConflict(
        ConflictKind.READ, start=reader.txn, waited=9 * MS, backoffs=reader.backoffs, seen=reader
    )


def test_a_read_behind_a_commit_that_was_answered() -> None:
    reader, met = read(30, 45)
    writer = seen("1", 10, 29, write_keys=2)
    told = explain(met, Statements([writer, reader]))
    assert told.cause == "asynchronous commit"
    assert told.other.statement is writer
    assert told.overlap == (NOW + 30 * MS, NOW + 45 * MS)

    # so long after it no lock of a living commit is left
    late, met = read(30_000, 30_015)
    told = explain(met, Statements([writer, late]))
    assert told.cause == UNKNOWN
    assert "asynchronous commit" in held(told, EvidenceState.POSSIBLE)


def test_a_commit_behind_a_read_is_no_suspect() -> None:
    """Locks that a transaction takes before its COMMIT do not stop reads."""
    reader, met = read(30, 45)
    begin = seen("2", 10, 12, explicit=True)
    commit = seen("2", 50, 60, b"COMMIT", txn=begin.txn, explicit=True)
    assert explain(met, Statements([begin, commit, reader])).other.statement is None
    told = explain(met, Statements([begin, replace(commit, begin=NOW + 40 * MS), reader]))
    assert told.other.statement is begin
    assert "does not name the lock's owner" in " ".join(told.story)


def test_a_lock_whose_owner_is_named() -> None:
    reader, met = read(30_000, 30_015)
    writer = seen("2", 10, 29, write_keys=2)
    told = explain(replace(met, other_start=writer.txn), Statements([writer, seen("3", 29_990, 29_995), reader]))
    assert (told.cause, told.other.session) == ("asynchronous commit", "2")


def test_a_read_with_several_suspects() -> None:
    reader, met = read(30, 45)
    told = explain(met, Statements([seen("2", 10, 40), seen("3", 12, 41), reader]))
    assert told.cause == UNKNOWN
    assert told.other.statement is None
    assert "2 transactions fit by table and time (sessions 2, 3)" in told.missing[0]
    assert explain(met, Statements([seen("2", 10, 40, b"UPDATE other SET a = 1"), reader])).cause == UNKNOWN


def test_a_capture_is_joined_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture tells no TSO: transactions are found by their times, their table and the error they got."""
    names = ("session", "sql", "start", "end", "user", "host", "database", "errno", "autocommit", "in_transaction",
             "source_file", "source_line", "command", "details")  # fmt: skip

    def row(session: str, begin: int, end: int, sql: bytes, inside: bool, errno: int = 0) -> tuple[object, ...]:
        return (session, sql, NOW + begin * MS, NOW + end * MS, "app", "10.0.0.1", "pay", errno, not inside, inside,
                "audit.log", begin, "query", "")  # fmt: skip

    rows = [
        row("s1", 0, 2, b"BEGIN", True), row("s1", 5, 6, UPDATE, True), row("s1", 90, 95, b"COMMIT", True, 9007),
        row("s2", 30, 42, b"UPDATE pay.t SET a = 9 WHERE id = 1", False),
        row("s3", 30, 42, b"UPDATE pay.other SET a = 9 WHERE id = 1", False),
        row("s4", 600_000, 600_001, UPDATE, False),
    ]  # fmt: skip

    def columns(_: Path, wanted: Sequence[str]) -> Iterator[dict[str, list[object]]]:
        yield {name: [one[names.index(name)] for one in rows] for name in wanted}

    found = conflict(1, 31, 40)
    monkeypatch.setattr("migverify.workload.statement_files.read_columns", columns)
    near = statements_near([], [tmp_path], [found])
    assert (near.read, len(near.statements)) == (6, 5)
    told = explain(found, Statements(near.statements))
    assert (told.ours.session, told.other.session) == ("s1", "s2")
    assert told.ours.found == "times and error"
    assert told.cause == "autocommit statement"
    assert told.ours.ended is not None
    assert told.ours.ended.errno == 9007
    # a clock that is off by a second finds nothing, and says so
    told = explain(conflict(1001, 1031, 1040), Statements(near.statements))
    assert (told.cause, len(told.missing)) == (UNKNOWN, 2)
    told = explain(conflict(1001, 1031, 1040), Statements(near.statements), skew=1_050 * MS)
    assert told.other.session == "s2"


def test_names_are_asked_once() -> None:
    asked: list[str] = []

    def query(sql: str) -> list[tuple[str | None, ...]]:
        asked.append(sql)
        return [("pay", "t")] if "TABLES WHERE" in sql else [("by_a",)] if "TIDB_INDEXES" in sql else []

    found = messages(PUBLISHED)
    (named,) = with_names(found * 1, query)
    assert (str(named.key), str(named.primary)) == (
        "pay.t, row (3339451)", "pay.t, index by_a (1848500256434552832, 3339451)",
    )  # fmt: skip
    assert len(asked) == 2
    assert with_names(found, None) == found


def test_literals_can_be_masked() -> None:
    ours, other = seen("1", 0, 90, b"UPDATE t SET a = 'secret' WHERE id = 1"), seen("2", 20, 30)
    key = replace(KEY, values=("secret",), raw=b"secret")
    told = explain(conflict(0, 20, 25, key=key), Statements([ours, other]))
    for shown in (as_text(told, mask_text), json.dumps(as_json(told, mask_text))):
        assert "secret" not in shown
        assert "UPDATE t SET a =" in shown
        assert b"secret".hex() not in shown
    assert "secret" in as_text(told)


def test_one_conflict_of_many_lines(tmp_path: Path) -> None:
    log = tmp_path / "tidb.log"
    head = "[2026/01/02 03:04:05.678 +00:00] [WARN] [session.go:884]"
    lines = [
        f'{head} ["can not retry txn"] [conn=7] [error="[kv:9007]{PUBLISHED}"]',
        f'{head} ["command dispatched failed"] [conn=7] [connInfo="id:7, user:root"] [sql=commit] [err="{PUBLISHED}"]',
        f'{head} ["other"] [conn=8]',
    ]
    log.write_text("\n".join(lines) + "\n")
    found = find([log], 10)
    assert (len(found.conflicts), found.repeated, found.lines) == (1, 1, 3)
    (one,) = found.conflicts
    assert (one.session, one.sql, one.user, one.where) == ("7", "commit", "root", "tidb.log:1")


def test_conflicts_of_a_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run file keeps the error's words, cut at 300 characters; the calls keep the statement."""
    writer = RunFileWriter(tmp_path / "run")
    texts = [b"UPDATE t SET a = 1", b"UPDATE t SET a = 2", b"SELECT 1"]
    for place, sql in enumerate(texts):
        call = Call("s1", 10 * place, sql, "d", SessionState(), user="app", origin=f"audit.log:{place}")
        writer.add(call, Meanings().meaning(sql), "", 0, 0, 0)
    writer.end_session("s1", "app")
    writer.close().close()
    outcomes = Outcomes(tmp_path / "run")
    for place in range(3):
        words = f"error 9007 (HY000): {PUBLISHED}, originalKey=7480"[:300] if place == 1 else "error 1062: Duplicate"
        error = Difference("error", DifferenceSeverity.BLOCKER, "1 row affected", words)
        outcomes.end(place, JudgedCall("s1", 10 * place, "d", Judgement.DIFFERENT, (error,)))
    outcomes.close()
    (found,) = replay_conflicts(tmp_path / "run")
    assert (found.sql, found.user) == ("UPDATE t SET a = 2", "app")
    assert found.where == "replay of session s1, position 10 (audit.log:1)"
    assert str(found.key) == "table id 291, row (3339451)"
    code, out, _ = run(capsys, "--replay", str(tmp_path / "run"), "--json")
    assert code == 3
    told = json.loads(out)["conflicts"][0]
    assert told["ours"]["statement"] == {"sql": "UPDATE t SET a = 2"}
    assert run(capsys, "--replay", str(tmp_path))[0] == 2


@pytest.mark.parametrize(("ended", "plan", "stop", "expected"), [
    (2, {}, "", 0), (1, {}, "", 3), (2, None, "", 3), (2, {}, "interrupted", 3),
])  # fmt: skip
def test_a_whole_replay_without_a_conflict_shows_that_there_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ended: int, plan: object, stop: str, expected: int
) -> None:
    writer = RunFileWriter(tmp_path / "run")
    for place in range(2):
        sql = b"UPDATE t SET a = %d" % place
        writer.add(Call("s1", place, sql, "d", SessionState()), Meanings().meaning(sql), "", 0, 0, 0)
    writer.end_session("s1")
    with writer.close() as planned:
        planned.set_fact("stop", stop)
        if plan is not None:
            planned.set_fact("plan", plan)
    outcomes = Outcomes(tmp_path / "run")
    for place in range(ended):
        outcomes.end(place, JudgedCall("s1", place, "d", Judgement.SAME))
    outcomes.close()
    assert run(capsys, "--replay", str(tmp_path / "run"), "--json")[0] == expected


def run(capsys: pytest.CaptureFixture[str], *arguments: str, stdin: str = "") -> tuple[int, str, str]:
    """Return exit code, output and errors of the command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = command(["workload", "explain-conflict", *arguments])
    return code, *capsys.readouterr()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, PUBLISHED)
    assert code == 3
    assert "UNKNOWN" in out
    assert "550 ms" in out
    several = PUBLISHED + "\n" + PUBLISHED.replace("418981749670543365", "418981749670543399")
    assert len(json.loads(run(capsys, "-", "--json", stdin=several)[1])["conflicts"]) == 2
    code, out, err = run(capsys, "Duplicate entry '1' for key 'PRIMARY'")
    assert (code, out) == (2, "")
    assert "9007, 8002, 8005, 8022, 8028 or 8147" in err
    empty = tmp_path / "tidb.log"
    empty.write_text("[2026/01/02 03:04:05.678 +00:00] [INFO] [x.go:1] [hello]\n")
    code, _, err = run(capsys, "--log", str(empty))
    assert code == 3
    assert "1 lines hold no conflict" in err
    assert run(capsys, "--log", str(tmp_path / "missing.log"))[0] == 2


def test_the_docs_name_every_cause() -> None:
    page = (Path(__file__).parents[3] / "docs" / "conflicts.md").read_text()
    for cause in CAUSES.values():
        assert f"| `{cause.name}` | {cause.meaning} | {cause.remedy} |" in page, cause.name

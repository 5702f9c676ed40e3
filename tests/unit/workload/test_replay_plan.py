"""The plan: what is chosen, what is not asked and why, when each call is due; pace; service levels."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.errors import PlanError, UsageError
from migverify.workload.formats.tcp import joined_session
from migverify.workload.meaning import Meanings
from migverify.workload.replay.assumed import FOR_DIFFERENCES, bearing
from migverify.workload.replay.latency import Histogram
from migverify.workload.replay.model import Call
from migverify.workload.replay.pace import Timeline, parse_pace
from migverify.workload.replay.plan import FAILED_PREPARE, NOT_WHOLE, CallSelection, load_plan
from migverify.workload.replay.runfile import FIRST_OF_UNIT, RUN_FILE, RunFile
from migverify.workload.replay.runfile import WRITES as WRITES_FLAG
from migverify.workload.replay.safety import FIRST_TRANSACTION, UNLOCKED, Leave, unlocked, with_remedy
from migverify.workload.replay.session import is_read, sampled
from migverify.workload.replay.slo import ReplayMeasurement, judge_level, level
from migverify.workload.replay.touches import TableKeys
from migverify.workload.server_sessions import ServerSession, SessionDump
from migverify.workload.sessions import BEGAN_BEFORE
from migverify.workload.state import SessionState
from tests.unit.replay_fakes import START, planned, row

WRITES = Leave(writes=True)


def transaction(session: str, at: int, *texts: str) -> list[dict[str, object]]:
    return [
        row(session, n, sql, at + 100 * n, in_transaction=n > 0) for n, sql in enumerate(["BEGIN", *texts, "COMMIT"])
    ]


def texts(folder: Path) -> list[str]:
    with RunFile(folder) as run:
        return [one.call.sql.decode() for one in run.calls()]


def test_what_is_not_asked_is_counted_with_its_reason(tmp_path: Path) -> None:
    rows = [
        row("a", 0, "SELECT 1", 0), row("a", 1, "DELETE FROM t", 10),
        row("a", 2, "SELECT 'cut", 20, partial="truncated"),
        row("a", 3, "SELECT ?", 30, command="prepare", errno=1054), row("a", 4, "DROP TABLE t", 40),
    ]  # fmt: skip
    plan = planned(rows, tmp_path)
    assert set(plan.skips.values()) == {1}
    reasons = {reason: remedy for reason, _, remedy in (one.rpartition(": ") for one in plan.skips)}
    assert {"truncated", FAILED_PREPARE} < set(reasons)
    assert all(reasons.values())  # what to do about it
    assert len([one for one in reasons if one.startswith(("write", "DDL"))]) == 2
    assert (plan.calls, plan.asked, plan.writes, plan.sessions) == (5, 1, 0, 1)
    assert planned(rows, tmp_path, leave=Leave(writes=True, ddl=True)).writes == 2
    with RunFile(tmp_path) as run:
        assert load_plan(run).calls == 5


def test_every_call_comes_back_as_it_was(tmp_path: Path) -> None:
    made = row(
        "srv/7/1", 4, "SELECT v FROM t WHERE s = '\udcff'".encode("utf-8", "surrogateescape").decode("latin-1"), 5,
        clock=START - 7, duration_s=0.25, errno=1062, rows_sent=3, rows_affected=2, last_insert_id=9, sql_mode="ANSI",
        parameters=[{"kind": "text", "value": b"\xff"}, {"kind": "null", "value": None}],
        state='{"variables": {"a": "1"}}', charset="latin1", autocommit=True,
    )  # fmt: skip
    planned([made], tmp_path)
    with RunFile(tmp_path) as run:
        stored = run.read(0)
    call = stored.call
    assert (call.session, call.position, call.clock, call.user, call.origin) == ("srv/7/1", 4, START - 7, "app", "f:4")
    assert (call.captured.errno, call.captured.rows_sent, call.captured.duration) == (1062, 3, 250_000)
    assert call.parameters is not None
    assert [one.value for one in call.parameters] == [b"\xff", None]
    assert (call.state.charset, call.state.autocommit, call.state.rest) == ("latin1", True, '{"variables": {"a": "1"}}')
    assert call.digest == stored.meaning.digest


def test_choices(tmp_path: Path) -> None:
    rows = [
        *transaction("a", 0, "SELECT 1", "UPDATE t SET v = 1"), *transaction("b", 150, "SELECT 2"),
        row("c", 0, "SELECT 3", 10_000, user="job"),
    ]  # fmt: skip
    assert planned(rows, tmp_path, selection=CallSelection(sessions=("b",))).calls == 3
    assert planned(rows, tmp_path, selection=CallSelection(users=("job",))).not_chosen == 7
    # times choose whole transactions, by when they began
    plan = planned(rows, tmp_path, selection=CallSelection(start=START + 100, end=START + 9_000))
    assert texts(tmp_path) == ["BEGIN", "SELECT 2", "COMMIT"]
    assert plan.not_chosen == 5
    plan = planned(rows, tmp_path, selection=CallSelection(limit=5))
    assert texts(tmp_path) == ["BEGIN", "SELECT 1", "UPDATE t SET v = 1", "COMMIT", "BEGIN", "SELECT 2", "COMMIT"]
    assert (plan.calls, plan.not_chosen) == (7, 1)
    with pytest.raises(UsageError, match="nothing") as refused:
        planned(rows, tmp_path, selection=CallSelection(sessions=("z",), start=0))
    assert refused.value.hint == "Check --session and --from."


def test_an_empty_capture_says_that_it_is_empty(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no statement") as refused:
        planned([], tmp_path, selection=CallSelection(sessions=("z",)))
    assert "--session" not in refused.value.hint


def test_a_digest_does_not_tear_writes_out_of_their_transaction(tmp_path: Path) -> None:
    rows = transaction("a", 0, "UPDATE t SET v = 1")
    planned(rows, tmp_path, leave=WRITES)
    with RunFile(tmp_path) as run:
        digest = next(one.digest for one in run.meanings if "UPDATE" in one.text)
    plan = planned(rows, tmp_path, leave=WRITES, selection=CallSelection(digests=(digest[:12],)))
    assert (plan.calls, plan.skips, plan.asked) == (1, {with_remedy(NOT_WHOLE): 1}, 0)


def test_the_hash_is_that_of_what_is_walked(tmp_path: Path) -> None:
    rows = [row("a", 0, "SELECT 1", 0), row("a", 1, "UPDATE t SET v = 1", 9)]
    hashes = [
        planned(rows, tmp_path).hash, planned(rows, tmp_path).hash, planned(rows, tmp_path, leave=WRITES).hash,
        planned(rows[:1], tmp_path).hash, planned(rows, tmp_path, idle=5).hash,
    ]  # fmt: skip
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 4


def test_turns_follow_the_captured_order(tmp_path: Path) -> None:
    rows = [
        row("a", 0, "UPDATE t SET v = 1 WHERE id = 1", 0), row("a", 1, "SELECT 1", 5_000_000),
        row("b", 0, "SELECT v FROM t WHERE id = 1", 100), row("b", 1, "UPDATE t SET v = 2 WHERE id = 2", 200, took=300),
        row("c", 0, "SELECT v FROM t WHERE id = 2", 400),
    ]  # fmt: skip
    plan = planned(
        rows, tmp_path, leave=WRITES, keys={"d.t": TableKeys(("id",), integers=frozenset({"id"}))}, idle=1_000_000
    )
    with RunFile(tmp_path) as run:
        turns = list(run.calls())
    assert [turn.sequence for turn in turns] == [0, 4, 1, 2, 3]
    assert [turn.due for turn in turns] == [0, 1_000_500, 100, 200, 400]
    assert [turn.waits for turn in turns] == [(), (), (0,), (), ()]
    assert [turn.racy for turn in turns] == [None, None, None, 2, 1]
    assert (plan.waits, plan.racy, plan.idle, plan.span) == (1, 2, 3_999_500, 5_000_000)


def test_a_folder_without_a_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="no run file"):
        RunFile(tmp_path)
    planned([row("a", 0, "SELECT 1", 0)], tmp_path)
    with RunFile(tmp_path) as run:
        run.change("DELETE FROM facts WHERE name = 'plan'")  # killed while it was planned
        with pytest.raises(PlanError, match="no whole plan"):
            load_plan(run)


def test_a_folder_of_an_earlier_release_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "plan").mkdir()
    with pytest.raises(PlanError, match="earlier release"):
        RunFile(tmp_path)
    planned([row("a", 0, "SELECT 1", 0)], tmp_path)
    with RunFile(tmp_path) as run:
        run.set_fact("version", 2)
    with pytest.raises(PlanError, match="version is 2"):
        RunFile(tmp_path)


def test_transactions_are_units(tmp_path: Path) -> None:
    rows = [
        *transaction("a", 0, "SELECT 1"),
        row("a", 3, "SELECT 2", 900),
        row("a", 4, "BEGIN", 950, in_transaction=True),
    ]
    planned(rows, tmp_path)
    with RunFile(tmp_path) as run:
        firsts = [bool(one.flags & FIRST_OF_UNIT) for one in run.calls()]
    assert firsts == [True, False, False, True, True]


@pytest.mark.parametrize(
    ("text", "due"), [("real", 2_000_000), ("x2", 1_000_000), ("x0.5", 4_000_000), ("500/s", 20_000_000), ("fast", 0)]
)
def test_paces(text: str, due: int) -> None:
    assert parse_pace(text).due(2_000, 10) == due
    assert str(parse_pace(text)) == text


@pytest.mark.parametrize("text", ["", "x0", "2x", "0/s", "x-1", "slow", "xnan", "x1e3"])
def test_texts_that_are_no_pace(text: str) -> None:
    with pytest.raises(UsageError, match="pace"):
        parse_pace(text)


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 3_000)), min_size=1), st.integers(0, 500))
def test_idle_time_is_shortened_and_nothing_else(calls: list[tuple[int, int]], idle: int) -> None:
    whole, short = Timeline(), Timeline(idle)
    busy = last = None
    begun = 0
    for start, took in sorted(calls):
        before, due = whole.at(start, start + took), short.at(start, start + took)
        assert due == before - short.skipped
        if busy is not None and last is not None:
            assert due >= last  # the order stays
            assert start - busy <= idle or due - last == (start - begun) - (start - busy - idle)
        busy, last, begun = max(busy or 0, start + took), due, start


def test_a_sample_is_the_same_in_every_run(tmp_path: Path) -> None:
    planned([row("a", n, "SELECT 1", n) for n in range(500)], tmp_path)
    with RunFile(tmp_path) as run:
        calls = [run.read(index).call for index in range(500)]
    chosen = [call.position for call in calls if sampled(call, 0.2)]
    assert chosen == [call.position for call in calls if sampled(call, 0.2)]
    assert 60 < len(chosen) < 140
    assert set(chosen) <= {call.position for call in calls if sampled(call, 0.5)}


def measured(writes: int, reads: int, worst: int, whole: str = "") -> ReplayMeasurement:
    latency = Histogram()
    latency.add(5_000, 990)
    latency.add(worst, 10 if worst < 2_000_000 else 20)
    return ReplayMeasurement(writes, reads, 10.0, latency, whole)


@pytest.mark.parametrize(
    ("found", "met", "said"),
    [
        (measured(20_000, 10_000, 9_000), True, ""),
        (measured(19_850, 10_000, 9_000), True, ""),
        (measured(12_000, 10_000, 9_000), None, "was not there"),
        (measured(20_000, 10_000, 3_000_000), False, "p99 is"),
        (measured(12_000, 10_000, 3_000_000), False, "p99 is"),  # too slow even under less load
        (measured(20_000, 10_000, 9_000, "stopped"), None, "stopped"),
        (ReplayMeasurement(20_000, 10_000, 10.0, Histogram()), None, "no latency"),
        (ReplayMeasurement(0, 0, 0.0, Histogram()), None, "was not there"),
    ],
)
def test_service_levels(found: ReplayMeasurement, met: bool | None, said: str) -> None:
    result = judge_level("payments", level("payments", {}), found)
    assert result.met is met
    assert said in "; ".join(result.reasons)


def test_names_of_service_levels() -> None:
    assert level("payments", {}).writes == 2_000
    with pytest.raises(UsageError, match="nothing"):
        level("nothing", {})


def waits(folder: Path) -> dict[tuple[str, int], list[tuple[str, int]]]:
    """Return what each call waits for, calls by session and position."""
    with RunFile(folder) as run:
        planned_calls = list(run.calls())
        names = [(one.call.session, one.call.position) for one in planned_calls]
        found = {name: [names[each] for each in one.waits] for name, one in zip(names, planned_calls, strict=True)}
    return {name: one for name, one in found.items() if one}


def test_a_transaction_waits_before_it_holds_locks(tmp_path: Path) -> None:
    # b begins before a's write, and reads what a wrote when a had ended.
    rows = [
        *transaction("b", 0, "UPDATE u SET v = 1", "UPDATE t SET v = 2"),
        row("a", 0, "UPDATE t SET v = 1", 50, duration_s=0.00001),
    ]  # fmt: skip
    planned(rows, tmp_path, leave=WRITES)
    assert waits(tmp_path) == {("b", 0): [("a", 0)]}


def test_a_long_transaction_waits_where_it_must(tmp_path: Path) -> None:
    late = 5_000_000
    rows = [
        row("b", 0, "BEGIN", 0), row("b", 1, "UPDATE u SET v = 1", 100, in_transaction=True),
        row("b", 2, "UPDATE t SET v = 2", late + 1000, in_transaction=True),
        row("b", 3, "COMMIT", late + 1100, in_transaction=True),
        row("a", 0, "UPDATE t SET v = 1", late, duration_s=0.00001),
    ]  # fmt: skip
    planned(rows, tmp_path, leave=WRITES)
    found = waits(tmp_path)
    assert ("b", 0) not in found
    assert found["b", 2] == [("a", 0)]


def test_a_first_call_that_is_not_asked_does_not_wait_for_others(tmp_path: Path) -> None:
    rows = [
        row("b", 0, "BEGIN", 0, partial="truncated"), row("b", 1, "UPDATE u SET v = 1", 100, in_transaction=True),
        row("b", 2, "UPDATE t SET v = 2", 300, in_transaction=True), row("b", 3, "COMMIT", 400, in_transaction=True),
        row("a", 0, "UPDATE t SET v = 1", 200, duration_s=0.00001),
    ]  # fmt: skip
    planned(rows, tmp_path, leave=WRITES)
    assert waits(tmp_path) == {("b", 1): [("a", 0)]}


@pytest.mark.attack(
    "replay",
    "a plan's folder that holds a pickle or code of somebody else",
    "refused: nothing in it is run, the plan is made anew",
)
def test_a_plan_runs_nothing_that_somebody_put_into_its_folder(tmp_path: Path) -> None:
    plan = planned([row("a", 0, "SELECT 1", 5)], tmp_path)
    trap = b"cos\nsystem\n(S'touch " + bytes(tmp_path / "trapped") + b"'\ntR."
    (plan.folder / RUN_FILE).write_bytes(trap)
    with pytest.raises(PlanError, match="no readable plan"):
        RunFile(plan.folder)
    assert not (tmp_path / "trapped").exists()


def test_a_plan_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        plan = planned([row("a", 0, "SELECT 1", 5)], tmp_path)
    finally:
        os.umask(before)
    assert plan.folder.stat().st_mode & 0o777 == 0o700
    assert {one.name: one.stat().st_mode & 0o777 for one in plan.folder.iterdir()} == {
        one.name: 0o600 for one in plan.folder.iterdir()
    }


def old(session: str, position: int, sql: str, at: int, **more: object) -> dict[str, object]:
    """A statement of a session that began before the capture; of general logs, which tell neither user nor database."""
    partial = "; ".join(filter(None, [str(more.pop("partial", "")), BEGAN_BEFORE]))
    told: dict[str, Any] = {"database": None, "user": None} | more
    return row(session, position, sql, at, **told, partial=partial)


def dump(*sessions: ServerSession, at: int = START + 1) -> SessionDump:
    return SessionDump("db1", "mysql", at, (), {"sql_mode": "", "lc_time_names": "en_US"}, sessions)


def test_sessions_older_than_the_capture_are_asked(tmp_path: Path) -> None:
    rows = [
        old("db1/7/1", 0, "SELECT v FROM d.t WHERE id = 1", 10), old("db1/7/1", 1, "SELECT v FROM t WHERE id = 1", 20),
        old("db1/7/1", 2, "", 30, partial="prepared before the capture", command="execute"),
    ]  # fmt: skip
    keys = {"d.t": TableKeys(("id",), zoned=())}
    plan = planned(rows, tmp_path, keys=keys)
    assert (plan.asked, plan.joined) == (1, 1)
    assert sum("--assume-database" in reason for reason in plan.skips) == 1
    assert calls(tmp_path)[0].assumed == ()
    assert planned(rows, tmp_path, keys=keys, database="d").asked == 2
    assert calls(tmp_path)[1].state.database == "d"
    settings = {"sql_mode": "ANSI", "time_zone": "+05:00", "character_set_client": "latin1", "lc_time_names": "de_DE"}
    plan = planned(rows, tmp_path, keys=keys, dumps=[dump(ServerSession(7, "app", "d", settings=settings))])
    assert plan.asked == 2
    call = calls(tmp_path)[1]
    assert (call.state.database, call.state.sql_mode, call.state.time_zone) == ("d", "ANSI", "+05:00")
    assert (call.state.rest, call.assumed) == ('{"variables": {"lc_time_names": "de_DE"}}', ())
    assert plan.assumed["sql_mode from --sessions"] == 2


def calls(folder: Path) -> list[Call]:
    with RunFile(folder) as run:
        return [one.call for one in run.calls()]


def test_settings_of_a_log_without_connects_weigh_on_differences_only(tmp_path: Path) -> None:
    (tmp_path / "_summary.json").write_text('{"formats": ["slow"], "servers": ["db1"]}')
    rows = [
        row("db1/7/1", 0, "SELECT FROM_UNIXTIME(v) FROM d.t WHERE id = 1", 10), row("db1/7/1", 1, "COMMIT", 15),
        row("db1/7/1", 2, "SELECT FROM_UNIXTIME(v) FROM d.t WHERE id = 1", 20, time_zone="+05:00"),
    ]  # fmt: skip
    plan = planned(rows, tmp_path, keys={"d.t": TableKeys(("id",), zoned=())})
    assert plan.asked == 3
    first, commit, last = calls(tmp_path)
    assert first.assumed == ("time zone", FOR_DIFFERENCES)
    assert commit.assumed == last.assumed == ()  # what one setting may change says nothing where that one is known
    assert plan.assumed["time zone assumed, and the answer may depend on it"] == 1
    assert not any(FOR_DIFFERENCES in one for one in plan.assumed)


def test_a_dump_made_before_the_capture_gives_values_that_stay_assumed(tmp_path: Path) -> None:
    (tmp_path / "_summary.json").write_text('{"first": "2026-01-02T03:04:05.000000Z", "servers": ["db1"]}')
    rows = [old("db1/7/1", 0, "SELECT NOW(), v FROM d.t", 10)]
    early = dump(ServerSession(7, settings={"time_zone": "+05:00"}), at=1)
    planned(rows, tmp_path, dumps=[early])
    (call,) = calls(tmp_path)
    assert (call.state.time_zone, "time zone" in call.assumed) == ("+05:00", True)


def test_another_users_dump_is_of_another_session(tmp_path: Path) -> None:
    rows = [old("db1/7/1", 0, "SELECT v FROM t", 10, user="app")]
    assert planned(rows, tmp_path, dumps=[dump(ServerSession(7, "job", "d"))]).asked == 0
    assert planned(rows, tmp_path, dumps=[dump(ServerSession(7, "app", "d"))]).asked == 1


def test_a_dump_of_an_unknown_server_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="dump"):
        planned(
            [row("db1/7/1", 0, "SELECT 1", 0), row("db2/7/1", 0, "SELECT 1", 0)],
            tmp_path,
            dumps=[SessionDump("elsewhere", "mysql", 1)],
        )


def test_packets_joined_midway_find_their_session_by_its_address(tmp_path: Path) -> None:
    number = joined_session((bytes([10, 0, 0, 9]), 51000), (bytes([10, 0, 0, 1]), 3306))
    rows = [old(f"db1/{number}/1", 0, "SELECT v FROM t", 10)]
    found = SessionDump(
        "db1", "mysql", START, ("10.0.0.1:3306",), {}, (ServerSession(7, "app", "d", "10.0.0.9:51000"),)
    )
    assert planned(rows, tmp_path, dumps=[found]).asked == 1


@pytest.mark.parametrize(
    ("texts", "asked"),
    [
        (["UPDATE d.t SET v = 1", "SELECT 1", "COMMIT", "SELECT 2", "BEGIN", "SELECT 3", "COMMIT"], [2, 3, 4, 5, 6]),
        (["SELECT 1", "BEGIN", "SELECT 2", "COMMIT"], [0, 1, 2, 3]),
        (["SELECT 1", "SELECT 2"], [0, 1]),
        (["SELECT 1", "ROLLBACK TO SAVEPOINT a", "SELECT 2", "ROLLBACK", "SELECT 3"], [3, 4]),
    ],
)
def test_a_transaction_begun_before_the_capture_is_left_out_up_to_its_end(
    tmp_path: Path, texts: list[str], asked: list[int]
) -> None:
    plan = planned([old("a/1/1", n, sql, 100 * n) for n, sql in enumerate(texts)], tmp_path, leave=WRITES)
    with RunFile(tmp_path) as run:
        found = list(run.calls())
        assert [one.index for one in found if not one.skipped] == asked
        assert all(one.skipped == FIRST_TRANSACTION for one in found if one.skipped)
        assert not any(one.flags & WRITES_FLAG for one in found if one.skipped)
    assert (plan.asked, plan.skips.get(FIRST_TRANSACTION, 0)) == (len(asked), len(texts) - len(asked))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT v FROM d.t WHERE id = 1", ()),
        ("SELECT v FROM d.t WHERE a IS NOT NULL AND b NOT IN (1, 2) AND c >= -5", ()),
        ("SELECT COUNT(*) FROM d.t WHERE v = 'x'", ()),
        ("COMMIT", ()), ("SET NAMES utf8mb4", ()),
        ("SELECT v FROM t", ("database", "time zone")), ("SELECT DATABASE(), v FROM d.t", ("database",)),
        ("SELECT a || b FROM d.t", ("sql_mode",)), ('SELECT v FROM d.t WHERE a = "x"', ("sql_mode",)),
        ("SELECT a, COUNT(*) FROM d.t", ("sql_mode",)), ("SELECT a FROM d.t GROUP BY b", ("sql_mode",)),
        ("SELECT v FROM d.t WHERE NOT a BETWEEN 1 AND 2", ("sql_mode",)), ("SELECT a - b FROM d.t", ("sql_mode",)),
        ("SELECT made FROM d.zoned", ("time zone",)), ("SELECT z.* FROM d.zoned z", ("time zone",)),
        ("SELECT id, COUNT(*) OVER () FROM d.zoned", ("sql_mode",)), ("SELECT id FROM d.zoned", ()),
        ("SELECT v FROM d.t WHERE x < NOW()", ("time zone",)),
        ("SELECT v FROM d.unknown_view", ("time zone",)),
        ("SELECT v FROM d.t WHERE s = 'é'", ("character set",)),
        ("SELECT GROUP_CONCAT(v) FROM d.t", ("variables",)), ("SELECT v FROM d.t WHERE id = @x", ("variables",)),
        ("SELECT LAST_INSERT_ID()", ("variables",)), ("SELECT @@sql_mode", ("variables",)),
        ("SELECT ExtractValue('<a>1</a>', '/a')", ("character set",)),
        ("UPDATE d.t SET v = 1 WHERE id = 1", ("sql_mode", "time zone", "variables")),
    ],
)  # fmt: skip
def test_which_assumptions_bear_on_a_statement(sql: str, expected: tuple[str, ...]) -> None:
    keys = {"d.t": TableKeys(zoned=()), "d.zoned": TableKeys(zoned=("made",))}
    unknown = {"user", "database", "sql_mode", "time zone", "character set", "variables"}
    meaning = Meanings("mysql").meaning(sql.encode())
    assert bearing(unknown, sql.encode(), meaning, SessionState(), keys) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT a FROM t WHERE id = 1 FOR UPDATE", "SELECT a FROM t WHERE id = 1"),
        ("select a from t for share of t, d.u nowait;", "select a from t"),
        ("select a from t lock in share mode", "select a from t"),
        ("select a from t for update skip locked -- mine", "select a from t"),
        ("select a from t for update of `a`.`b` for share of c", "select a from t"),
        ("SELECT * FROM (SELECT 1 FROM t FOR UPDATE) x", None), ("select 'for update'", None),
        ("SELECT SUBSTRING(a FOR 2) FROM t", None), ("select a from t /*!80000 for update */", None),
        ("select a from t for update /* traceparent=1 */", "select a from t"),
    ],
)  # fmt: skip
def test_a_locking_clause_is_left_out_where_it_ends_the_text(sql: str, expected: str | None) -> None:
    found = unlocked(sql.encode())
    assert found == (None if expected is None else expected.encode())


def test_locking_reads_are_asked_without_their_lock_unless_locking_is_permitted(tmp_path: Path) -> None:
    rows = [row("a", 0, "SELECT v FROM t WHERE id = 1 FOR UPDATE", 0), row("a", 1, "SELECT 1", 10)]
    plan = planned(rows, tmp_path)
    call = calls(tmp_path)[0]
    assert (plan.asked, call.sql, call.note) == (2, b"SELECT v FROM t WHERE id = 1", UNLOCKED)
    with RunFile(tmp_path) as run:
        assert is_read(run.read(0))
        assert "UPDATE" in run.read(0).meaning.text  # the digest is the captured one
    planned(rows, tmp_path, leave=Leave(locking=True))
    assert calls(tmp_path)[0].sql.endswith(b"FOR UPDATE")

"""The plan: what is chosen, what is not asked and why, when each call is due; pace; service levels."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.errors import PlanError, UsageError
from migverify.workload.replay.asking import Protocol, clock_of, forms, is_read, sampled
from migverify.workload.replay.latency import Histogram
from migverify.workload.replay.pace import Timeline, parse_pace
from migverify.workload.replay.plan import FAILED_PREPARE, NOT_WHOLE, Selection, load_plan
from migverify.workload.replay.safety import Leave
from migverify.workload.replay.slo import PAYMENTS, Measured, judge_level, profile
from migverify.workload.replay.spool import FIRST_OF_UNIT, Spool
from migverify.workload.replay.touches import TableKeys
from tests.unit.replay_fakes import START, planned, row

WRITES = Leave(writes=True)


def transaction(session: str, at: int, *texts: str) -> list[dict[str, object]]:
    return [
        row(session, n, sql, at + 100 * n, in_transaction=n > 0) for n, sql in enumerate(["BEGIN", *texts, "COMMIT"])
    ]


def texts(folder: Path) -> list[str]:
    with Spool(folder / "plan") as spool:
        return [spool.read(index).call.sql.decode() for index in range(spool.count)]


def test_what_is_not_asked_is_counted_with_its_reason(tmp_path: Path) -> None:
    rows = [
        row("a", 0, "SELECT 1", 0), row("a", 1, "DELETE FROM t", 10),
        row("a", 2, "SELECT 'cut", 20, partial="truncated"),
        row("a", 3, "SELECT ?", 30, command="prepare", errno=1054), row("a", 4, "DROP TABLE t", 40),
    ]  # fmt: skip
    plan = planned(rows, tmp_path)
    assert plan.skips == {
        "truncated": 1, FAILED_PREPARE: 1, "write without leave": 1, "DDL without leave": 1,
    }  # fmt: skip
    assert (plan.calls, plan.asked, plan.writes, plan.sessions) == (5, 1, 0, 1)
    assert planned(rows, tmp_path, leave=Leave(writes=True, ddl=True)).writes == 2
    assert load_plan(tmp_path / "plan").calls == 5


def test_every_call_comes_back_as_it_was(tmp_path: Path) -> None:
    made = row(
        "srv/7/1", 4, "SELECT v FROM t WHERE s = '\udcff'".encode("utf-8", "surrogateescape").decode("latin-1"), 5,
        clock=START - 7, duration_s=0.25, errno=1062, rows_sent=3, rows_affected=2, last_insert_id=9, sql_mode="ANSI",
        parameters=[{"kind": "text", "value": b"\xff"}, {"kind": "null", "value": None}],
        state='{"variables": {"a": "1"}}', charset="latin1", autocommit=True,
    )  # fmt: skip
    planned([made], tmp_path)
    with Spool(tmp_path / "plan") as spool:
        stored = spool.read(0)
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
    assert planned(rows, tmp_path, selection=Selection(sessions=("b",))).calls == 3
    assert planned(rows, tmp_path, selection=Selection(users=("job",))).not_chosen == 7
    # times choose whole transactions, by when they began
    plan = planned(rows, tmp_path, selection=Selection(start=START + 100, end=START + 9_000))
    assert texts(tmp_path) == ["BEGIN", "SELECT 2", "COMMIT"]
    assert plan.not_chosen == 5
    plan = planned(rows, tmp_path, selection=Selection(limit=5))
    assert texts(tmp_path) == ["BEGIN", "SELECT 1", "UPDATE t SET v = 1", "COMMIT", "BEGIN", "SELECT 2", "COMMIT"]
    assert (plan.calls, plan.not_chosen) == (7, 1)
    with pytest.raises(UsageError, match="nothing"):
        planned(rows, tmp_path, selection=Selection(sessions=("z",)))


def test_a_digest_does_not_tear_writes_out_of_their_transaction(tmp_path: Path) -> None:
    rows = transaction("a", 0, "UPDATE t SET v = 1")
    planned(rows, tmp_path, leave=WRITES)
    with Spool(tmp_path / "plan") as spool:
        digest = next(one.digest for one in spool.meanings if "UPDATE" in one.text)
    plan = planned(rows, tmp_path, leave=WRITES, selection=Selection(digests=(digest[:12],)))
    assert (plan.calls, plan.skips, plan.asked) == (1, {NOT_WHOLE: 1}, 0)


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
    plan = planned(rows, tmp_path, leave=WRITES, keys={"d.t": TableKeys(("id",))}, idle=1_000_000)
    with Spool(tmp_path / "plan") as spool:
        turns = [spool.turn(index) for index in range(spool.count)]
    assert [turn.sequence for turn in turns] == [0, 4, 1, 2, 3]
    assert [turn.due for turn in turns] == [0, 1_000_500, 100, 200, 400]
    assert [turn.waits for turn in turns] == [(), (), (0,), (), ()]
    assert [turn.racy for turn in turns] == [-1, -1, -1, 2, 1]
    assert (plan.waits, plan.racy, plan.idle, plan.span) == (1, 2, 3_999_500, 5_000_000)


def test_a_folder_without_a_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError):
        load_plan(tmp_path)
    with pytest.raises(PlanError):
        Spool(tmp_path)


def test_transactions_are_units(tmp_path: Path) -> None:
    rows = [
        *transaction("a", 0, "SELECT 1"),
        row("a", 3, "SELECT 2", 900),
        row("a", 4, "BEGIN", 950, in_transaction=True),
    ]
    planned(rows, tmp_path)
    with Spool(tmp_path / "plan") as spool:
        firsts = [bool(spool.place(index).flags & FIRST_OF_UNIT) for index in range(spool.count)]
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


def test_forms_of_a_call(tmp_path: Path) -> None:
    planned(
        [row("a", 0, "SELECT v FROM t WHERE id = 7", 0), row("a", 1, "SELECT NOW()", 9, command="execute")], tmp_path
    )
    with Spool(tmp_path / "plan") as spool:
        text, executed = spool.read(0), spool.read(1)
    assert [prepared for _, prepared in forms(text, Protocol.CAPTURED)] == [False]
    ((call, prepared),) = forms(text, Protocol.PREPARED)
    assert (prepared, call.sql, [one.value for one in call.parameters or ()]) == (
        True,
        b"SELECT v FROM t WHERE id = ?",
        [b"7"],
    )
    assert [prepared for _, prepared in forms(text, Protocol.BOTH)] == [False, True]
    assert [prepared for _, prepared in forms(executed, Protocol.CAPTURED)] == [True]
    assert (clock_of(text), clock_of(executed)) == (None, b"SET timestamp = 1767323045.000009")
    assert is_read(text)


def test_a_sample_is_the_same_in_every_run(tmp_path: Path) -> None:
    planned([row("a", n, "SELECT 1", n) for n in range(500)], tmp_path)
    with Spool(tmp_path / "plan") as spool:
        calls = [spool.read(index).call for index in range(500)]
    chosen = [call.position for call in calls if sampled(call, 0.2)]
    assert chosen == [call.position for call in calls if sampled(call, 0.2)]
    assert 60 < len(chosen) < 140
    assert set(chosen) <= {call.position for call in calls if sampled(call, 0.5)}


def measured(writes: int, reads: int, worst: int, whole: str = "") -> Measured:
    latency = Histogram()
    latency.add(5_000, 990)
    latency.add(worst, 10 if worst < 2_000_000 else 20)
    return Measured(writes, reads, 10.0, latency, whole)


@pytest.mark.parametrize(
    ("found", "met", "said"),
    [
        (measured(20_000, 10_000, 9_000), True, ""),
        (measured(19_850, 10_000, 9_000), True, ""),
        (measured(12_000, 10_000, 9_000), None, "was not there"),
        (measured(20_000, 10_000, 3_000_000), False, "p99 is"),
        (measured(12_000, 10_000, 3_000_000), False, "p99 is"),  # too slow even under less load
        (measured(20_000, 10_000, 9_000, "stopped"), None, "stopped"),
        (Measured(20_000, 10_000, 10.0, Histogram()), None, "no latency"),
        (Measured(0, 0, 0.0, Histogram()), None, "was not there"),
    ],
)
def test_service_levels(found: Measured, met: bool | None, said: str) -> None:
    result = judge_level(PAYMENTS, found)
    assert result.met is met
    assert said in "; ".join(result.reasons)


def test_names_of_service_levels() -> None:
    assert profile("payments", {}) is PAYMENTS
    with pytest.raises(UsageError, match="nothing"):
        profile("nothing", {})


def waits(folder: Path) -> dict[tuple[str, int], list[tuple[str, int]]]:
    """Return what each call waits for, calls by session and position."""
    with Spool(folder / "plan") as spool:
        names = [(spool.read(index).call.session, spool.read(index).call.position) for index in range(spool.count)]
        found = {names[index]: [names[one] for one in spool.turn(index).waits] for index in range(spool.count)}
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

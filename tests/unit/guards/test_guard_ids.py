"""Id spaces: projection and judgment, with growth, ends and doubts whose truth is known."""

from __future__ import annotations

import random
import shlex
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.guards.ids import _answer, _todo
from migverify.guards.ids_model import DAY, IdKind, IdLimits, IdReading, IdSpace, as_json, judged, projected
from migverify.guards.ids_snowflake import overlapping, snowflake
from migverify.guards.layouts import INSTAGRAM, SONYFLAKE, TWITTER, moment_text
from migverify.guards.model import AnswerState

NOW = 1_795_270_000_000.0
INT = 2**31 - 1


def space(used: int | None, limit: int | None = INT, **more: object) -> IdSpace:
    return replace(IdSpace("source", "pay.t", "id", IdKind.AUTO_INCREMENT, used, limit, "SELECT 1"), **more)  # type: ignore[arg-type]


@given(st.integers(0, INT), st.integers(0, 10**9), st.integers(1, 400))
def test_steady_growth_ends_when_arithmetic_says(used: int, grown: int, days: int) -> None:
    grown = min(grown, used)
    history = (IdReading(NOW - days * DAY, used - grown),)
    told = projected(space(used, history=history), NOW)
    if grown == 0:
        assert told.exhausts_at is None or used >= INT
    else:
        assert told.exhausts_at == pytest.approx(NOW + (INT - used) / (grown / (days * DAY)))


def test_the_steeper_growth_counts() -> None:
    quiet = [IdReading(NOW - (90 - day) * DAY, day) for day in range(60)]
    busy = [IdReading(NOW - (30 - day) * DAY, 60 + day * 1_000_000) for day in range(30)]
    told = projected(space(60 + 30_000_000, history=(*quiet, *busy)), NOW)
    assert told.exhausts_at is not None
    assert (told.exhausts_at - NOW) / DAY == pytest.approx((INT - 30_000_060) / 1_000_000, rel=0.05)


def test_a_counter_that_was_set_back_projects_nothing() -> None:
    assert projected(space(10, history=(IdReading(NOW - DAY, 1000),)), NOW).exhausts_at is None


@pytest.mark.parametrize(
    ("given_space", "state", "words"),
    [
        (space(10), AnswerState.PASS, "no growth known yet"),
        (space(int(INT * 0.71)), AnswerState.FAIL, "71.0 % used, 70.0 % allowed"),
        (space(None), AnswerState.INCONCLUSIVE, "is not known"),
        (space(INT), AnswerState.FAIL, "exhausted since"),
        (space(10, exhausts_at=NOW + 179 * DAY), AnswerState.FAIL, "in 179.0 days"),
        (space(10, exhausts_at=NOW + 181 * DAY), AnswerState.PASS, "until 2027"),
        (space(10, largest=2**53), AnswerState.WARN, "JavaScript clients need them as text"),
        (space(10, doubts=("layout unknown",)), AnswerState.INCONCLUSIVE, "layout unknown"),
        (space(10, problems=("ids ahead",), doubts=("x",)), AnswerState.FAIL, "ids ahead"),
        (space(INT, cycles=True), AnswerState.PASS, "it cycles"),
    ],
)
def test_judgment(given_space: IdSpace, state: AnswerState, words: str) -> None:
    told = projected(given_space, NOW) if given_space.exhausts_at is None else given_space
    found, reason = judged(told, IdLimits(), NOW)
    assert (found, words in reason) == (state, True), reason
    document = as_json(told, IdLimits(), NOW)
    assert document["verdict"] == ("pass" if state is AnswerState.WARN else state.value)


def test_the_command_that_a_doubt_asks_for_can_be_pasted_into_a_shell() -> None:
    """Names of tables and columns are not ours."""
    doubtful = replace(space(1), table="d.a b", column="$(touch x)", doubts=("no layout fits",))
    words = _answer(doubtful, IdLimits(), NOW).todo.partition(": ")[2].partition(", or")[0]
    assert shlex.split(words) == ["--layout", "d.a b.$(touch x)=41/10/12:ms:2020-01-01"]
    assert "'" not in _todo(replace(space(1), doubts=("no layout fits",))), "a plain name needs no quotes"


def test_javascript_clients_can_be_made_to_count() -> None:
    assert judged(space(10, largest=2**53), IdLimits(javascript=True), NOW)[0] is AnswerState.FAIL
    assert judged(space(10, largest=2**53 - 1), IdLimits(javascript=True), NOW)[0] is AnswerState.PASS


def ids_of(*given: tuple[float, int, int]) -> list[int]:
    return [TWITTER.make(int(NOW - before), worker, sequence) for before, worker, sequence in given]


def test_generators_under_pressure() -> None:
    base = space(None, 2**63 - 1, kind=IdKind.INTEGER)
    many = ids_of(*((5000.0, 1, n) for n in range(4000)), *((n * 1000.0 + 9000, 1000, 0) for n in range(50)))
    told = snowflake(base, many, [], NOW, TWITTER)
    assert (told.workers_used, told.workers_total, told.sequence_peak, told.sequence_total) == (2, 1024, 4000, 4096)
    reason = judged(projected(told, NOW), IdLimits(), NOW)[1]
    assert "4000 of 4096 sequence numbers" in reason
    assert any("worker 1000 of 1024" in note for note in told.notes)


def test_workers_that_are_nearly_all_in_use() -> None:
    base = space(None, 2**63 - 1, kind=IdKind.INTEGER)
    told = snowflake(base, ids_of(*((5000.0 + n, n, 0) for n in range(900))), [], NOW, TWITTER)
    assert judged(told, IdLimits(), NOW) == (AnswerState.FAIL, "900 of 1024 workers are in use")
    few = snowflake(base, ids_of((5000, 1000, 0), (9000, 1, 0)), [], NOW, TWITTER)
    assert judged(few, IdLimits(), NOW)[0] is AnswerState.WARN


def test_ids_ahead_of_the_clock() -> None:
    base = space(None, 2**63 - 1, kind=IdKind.INTEGER)
    told = snowflake(base, ids_of((5000, 1, 0), (-60_000, 1, 0)), [], NOW, TWITTER)
    assert told.ahead_ms == pytest.approx(60_000, abs=1)
    assert judged(told, IdLimits(), NOW)[0] is AnswerState.FAIL
    fine = snowflake(base, ids_of((5000, 1, 0), (-2000, 1, 0)), [], NOW, TWITTER)
    assert judged(fine, IdLimits(), NOW)[0] is not AnswerState.FAIL


def test_overlap_needs_new_ids_on_both_sides_by_one_worker() -> None:
    one = snowflake(space(None, kind=IdKind.INTEGER), ids_of((9000, 1, 0)), [], NOW, TWITTER)
    old = ids_of(*((9_000_000.0 - n, n % 4, 0) for n in range(50)))
    ours, theirs = ids_of(*((1000.0 - n, 1, 0) for n in range(9))), ids_of(*((1000.0 - n, 1, 1) for n in range(9)))
    others = ids_of(*((1000.0 - n, 7, 0) for n in range(9)))
    assert "worker 1" in overlapping(one, one, old + ours, old + theirs)
    assert overlapping(one, one, old + ours, old + others) == ""
    assert overlapping(one, one, old + ours, old) == ""
    assert overlapping(one, one, old + ours, old + ours) == ""
    assert "different layouts" in overlapping(one, replace(one, layout=SONYFLAKE), old, old)


def test_a_signed_column_ends_a_layout_of_64_bits() -> None:
    ids = [INSTAGRAM.make(int(NOW) - step * 1000, 3, step % 1024) for step in range(100)]
    signed = snowflake(space(0, 2**63 - 1, kind=IdKind.INTEGER, largest=max(ids)), ids, (), NOW, INSTAGRAM)
    assert signed.limit == 1 << 40
    assert moment_text(projected(signed, NOW).exhausts_at or 0)[:4] == "2046"
    assert "the column's type ends before" in judged(signed, IdLimits(), NOW)[1]
    unsigned = snowflake(space(0, 2**64 - 1, kind=IdKind.INTEGER, largest=max(ids)), ids, (), NOW, INSTAGRAM)
    assert moment_text(projected(unsigned, NOW).exhausts_at or 0)[:4] == "2081"


def test_a_random_key_is_no_counter_that_fails() -> None:
    rng = random.Random(1)
    ids = [rng.randrange(1, INT) for _ in range(500)]
    told = snowflake(space(max(ids), kind=IdKind.INTEGER, largest=max(ids)), ids, (), NOW)
    assert told.kind is IdKind.RANDOM
    assert judged(projected(told, NOW), IdLimits(), NOW) == (AnswerState.PASS, "random or hashed: no counter that ends")


def test_an_old_counter_beside_a_snowflake_is_told_apart() -> None:
    made = [TWITTER.make(int(NOW) - 1000 - step * 7_000_001, step % 3, 0) for step in range(300)]
    ids = [*range(1, 30), *made]
    start = space(max(ids), 2**63 - 1, kind=IdKind.INTEGER, largest=max(ids))
    told = snowflake(start, ids, (), NOW)
    state, reason = judged(projected(told, NOW), IdLimits(), NOW)
    assert (told.kind, state) == (IdKind.SNOWFLAKE, AnswerState.WARN)
    assert "ids of a counter, such as 29" in reason
    times = [int(NOW) - DAY // 2] * 29 + [TWITTER.time(number) for number in made]
    at_work = snowflake(start, ids, times, NOW)
    assert judged(projected(at_work, NOW), IdLimits(), NOW)[0] is AnswerState.FAIL
    assert "two generators are at work" in at_work.problems[0]


def test_ids_beyond_2_53_are_said_in_every_state() -> None:
    for more in ({"doubts": ("x",)}, {"problems": ("x",)}, {}):
        assert "2^53" in judged(space(10, largest=2**53, **more), IdLimits(), NOW)[1]

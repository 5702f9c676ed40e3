"""The order of calls across sessions: against a model that looks at every pair."""

from __future__ import annotations

import itertools
import random
from collections import deque
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.workload.meaning import Meanings
from migverify.workload.replay.order import Conflicts, Key, Unit, components
from migverify.workload.replay.touches import EVERYTHING, TableKeys, Touch, touches


@dataclass(frozen=True)
class Made:
    key: Key
    unit: Unit
    touched: tuple[Touch, ...]


TOUCH = st.builds(
    Touch,
    st.sampled_from(["d.a", "d.a", "d.b", EVERYTHING]),
    st.sampled_from([None, (b"PRIMARY", b"1"), (b"PRIMARY", b"2")]),
    st.booleans(),
).map(lambda one: Touch(EVERYTHING, None, one.writes) if one.table == EVERYTHING else one)


@st.composite
def workloads(draw: st.DrawFn, most: int = 5) -> list[Made]:
    made: list[Made] = []
    number = 0
    for session in range(draw(st.integers(1, most))):
        clock = draw(st.integers(0, 6))
        for _ in range(draw(st.integers(1, 4))):
            times = []
            for _ in range(draw(st.integers(1, 3))):
                end = clock + draw(st.integers(0, 4))
                times.append((clock, end, draw(st.lists(TOUCH, max_size=2))))
                clock = end + draw(st.integers(0, 3))
            last = (times[-1][0], session, number + len(times) - 1)
            unit = Unit(session, times[-1][1], last)
            for start, _, touched in times:
                made.append(Made((start, session, number), unit, tuple(touched)))
                number += 1
    return sorted(made, key=lambda one: one.key)


def conflict(first: Touch, second: Touch) -> bool:
    if not (first.writes or second.writes):
        return False
    if EVERYTHING in (first.table, second.table):
        return True
    return first.table == second.table and (None in (first.key, second.key) or first.key == second.key)


def pairs(calls: list[Made]) -> tuple[dict[int, set[Unit]], set[tuple[int, int]]]:
    """By looking at each pair: units every call must come after, and calls without an order with another session."""
    after: dict[int, set[Unit]] = {one.key[2]: set() for one in calls}
    racy: set[tuple[int, int]] = set()
    for earlier, later in itertools.combinations(calls, 2):
        if earlier.key[1] == later.key[1]:
            continue
        if not any(conflict(a, b) for a in earlier.touched for b in later.touched):
            continue
        if earlier.unit.end <= later.key[0] and earlier.unit.last < later.key:
            after[later.key[2]].add(earlier.unit)
        else:
            racy |= {(later.key[2], earlier.key[1]), (earlier.key[2], later.key[1])}
    return after, racy


def reachable(calls: list[Made], waits: dict[int, tuple[int, ...]]) -> dict[int, set[int]]:
    """Calls that are over before each call begins: those waited for, and all before them in their sessions."""
    over: dict[int, set[int]] = {}
    sessions: dict[int, int] = {}
    for one in calls:
        number = one.key[2]
        before = sessions.get(one.key[1])
        found = set() if before is None else over[before] | {before}
        for each in waits[number]:
            found |= over[each] | {each}
        over[number] = found
        sessions[one.key[1]] = number
    return over


@settings(max_examples=60)
@given(workloads(), st.randoms(use_true_random=False))
def test_waits_and_races_are_those_of_all_pairs_and_go_in_no_circle(calls: list[Made], chance: random.Random) -> None:
    conflicts = Conflicts()
    waits: dict[int, tuple[int, ...]] = {}
    racy: set[tuple[int, int]] = set()
    sessions: dict[int, deque[int]] = {}
    for one in calls:
        placed = conflicts.place(one.key, one.unit, one.touched)
        waits[one.key[2]] = placed.waits
        racy |= set(placed.racy)
        sessions.setdefault(one.key[1], deque()).append(one.key[2])
    after, expected = pairs(calls)
    over = reachable(calls, waits)
    for one in calls:
        number = one.key[2]
        assert {unit.last_call for unit in after[number]} <= over[number]  # all that must be over is
        assert set(waits[number]) <= {unit.last_call for unit in after[number]}  # and none is waited for without need
    assert racy == expected
    ended: set[int] = set()
    while any(sessions.values()):
        ready = [queue for queue in sessions.values() if queue and set(waits[queue[0]]) <= ended]
        assert ready, "every session waits for another"
        ended.add(chance.choice(ready).popleft())


@settings(max_examples=40)
@given(workloads(most=4), st.integers(1, 6))
def test_a_window_forgets_only_what_ended_before_it(calls: list[Made], window: int) -> None:
    """What is not waited for any more is a window back; the engine has finished that before it runs on."""
    conflicts = Conflicts(window)
    waits = {one.key[2]: conflicts.place(one.key, one.unit, one.touched).waits for one in calls}
    after, _ = pairs(calls)
    over = reachable(calls, waits)
    place = {one.key[2]: sequence for sequence, one in enumerate(calls)}
    for one in calls:
        number = one.key[2]
        for unit in after[number]:
            assert unit.last_call in over[number] or place[unit.last_call] < place[number] - window


def test_rows_of_old_units_are_dropped() -> None:
    conflicts = Conflicts(window=10)
    for number in range(1000):
        key = (number, number % 3, number)
        unit = Unit(number % 3, number, key)
        conflicts.place(key, unit, [Touch("d.a", (b"PRIMARY", b"%d" % number), True)])
    assert len(conflicts._tables["d.a"].keys) < 40


def test_writes_without_an_order_leave_what_they_wrote_undefined() -> None:
    conflicts = Conflicts()
    row, other = (b"PRIMARY", b"1"), (b"PRIMARY", b"2")
    units = [Unit(0, 10, (0, 0, 0)), Unit(1, 11, (5, 1, 1)), Unit(2, 30, (20, 2, 2)), Unit(2, 40, (35, 2, 3))]
    first = conflicts.place((0, 0, 0), units[0], [Touch("d.a", row, True)])
    second = conflicts.place((5, 1, 1), units[1], [Touch("d.a", row, True)])
    assert (first.racy, second.racy) == ((), ((1, 0), (0, 1)))
    later = conflicts.place((20, 2, 2), units[2], [Touch("d.a", row, False)])
    assert later.waits == (0, 1)
    assert (later.racy, later.after) == ((), 0)
    assert conflicts.place((35, 2, 3), units[3], [Touch("d.a", other, False)]).after == -1


def test_components_stay_within_their_size() -> None:
    assert components([(0, 1), (1, 2)], [1, 1, 1, 1], 10) == [0, 0, 0, 3]
    assert components([(0, 1), (1, 2)], [5, 5, 5], 10) == [0, 0, 2]


IDS = frozenset({"id"})
KEYS = {
    "d.t": TableKeys(("id",), integers=IDS), "d.all": TableKeys(("id",), integers=IDS, columns=("id", "v")),
    "d.two": TableKeys(("a", "b"), integers=frozenset({"a", "b"})),
    "d.mail": TableKeys(("id",), {"m": ("mail",)}, integers=IDS, texts=frozenset({"mail"})),
}  # fmt: skip
MEANINGS = Meanings()


def touched(sql: str, *, writes: bool = True) -> list[tuple[str, object]]:
    found = touches(sql.encode(), MEANINGS.meaning(sql.encode()), "d", KEYS, writes=writes)
    return [(one.table, one.key if one.key is None else b"/".join(one.key[1:]).decode()) for one in found]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM t WHERE id = 7", [("d.t", "7")]),
        ("SELECT * FROM t WHERE id = 007 AND x > 3 ORDER BY y LIMIT 2", [("d.t", "7")]),
        ("SELECT * FROM t x WHERE x.id = '7' FOR UPDATE", [("d.t", "7")]),
        ("SELECT * FROM t WHERE (id = 'Abc')", [("d.t", None)]),
        ("UPDATE t SET v = v + 1 WHERE `id` IN (1, 2)", [("d.t", "1"), ("d.t", "2")]),
        ("DELETE FROM two WHERE b = 2 AND a = 1", [("d.two", "1/2")]),
        ("INSERT INTO t (id, v) VALUES (1, 'a'), (2, NOW())", [("d.t", "1"), ("d.t", "2")]),
        ("INSERT INTO t (v, id) VALUES ('a', 1) ON DUPLICATE KEY UPDATE v = 2", [("d.t", "1")]),
        ("INSERT INTO mail (id, mail) VALUES (1, 'a@b.c')", [("d.mail", "1"), ("d.mail", "a@b.c")]),
        ("INSERT INTO `all` VALUES (1, 'a'), (2, 'b')", [("d.all", "1"), ("d.all", "2")]),
        ("INSERT INTO `all` VALUES (1)", [("d.all", None)]),
        # what a text does not bound is the whole table
        ("SELECT * FROM t WHERE id = 7 OR v = 1", [("d.t", None)]),
        ("SELECT * FROM t WHERE NOT id = 7", [("d.t", None)]),
        ("SELECT * FROM t WHERE id = 7 + 1", [("d.t", None)]),
        ("SELECT * FROM t WHERE v BETWEEN 1 AND id = 7", [("d.t", None)]),
        ("SELECT * FROM t WHERE id = 'é'", [("d.t", None)]),
        ("SELECT * FROM t WHERE id = ' 7'", [("d.t", None)]),
        ("SELECT * FROM t WHERE id = -7", [("d.t", None)]),
        ("UPDATE t SET id = 8 WHERE id = 7", [("d.t", None)]),
        ("UPDATE mail SET mail = 'x@y.z' WHERE id = 7", [("d.mail", None)]),
        ("DELETE FROM two WHERE a = 1", [("d.two", None)]),
        ("INSERT INTO t VALUES (1, 'a')", [("d.t", None)]),
        ("INSERT INTO t (v) VALUES ('a')", [("d.t", None)]),
        ("INSERT INTO mail (id, mail) VALUES (1, 'a@b.c') ON DUPLICATE KEY UPDATE id = id", [("d.mail", None)]),
        ("REPLACE INTO mail (id, mail) VALUES (1, 'a@b.c')", [(EVERYTHING, None)]),
        ("INSERT INTO t (id, v) SELECT 1, 2", [("d.t", None)]),
        ("SELECT * FROM t JOIN two ON t.id = two.a WHERE t.id = 1", [("d.t", None), ("d.two", None)]),
        ("SELECT * FROM t WHERE id = 7 UNION SELECT * FROM t WHERE id = 8", [("d.t", None)]),
        ("CALL p(1)", [(EVERYTHING, None)]),
    ],
)
def test_rows_that_a_text_names(sql: str, expected: list[tuple[str, object]]) -> None:
    assert touched(sql) == expected


def test_tables_without_a_database_are_everything() -> None:
    meaning = MEANINGS.meaning(b"SELECT 1 FROM t")
    assert touches(b"SELECT 1 FROM t", meaning, None, {}, writes=False) == (Touch(EVERYTHING, None, False),)


def test_foreign_keys_and_triggers_widen_a_write() -> None:
    keys = {
        "d.t": TableKeys(("id",), integers=frozenset({"id"}), related=("d.p",)),
        "d.x": TableKeys(("id",), integers=frozenset({"id"}), triggers=True),
    }
    sql = b"UPDATE t SET v = 1 WHERE id = 1"
    assert [one.table for one in touches(sql, MEANINGS.meaning(sql), "d", keys, writes=True)] == ["d.t", "d.p"]
    assert [one.table for one in touches(sql, MEANINGS.meaning(sql), "d", keys, writes=False)] == ["d.t"]
    sql = b"UPDATE x SET v = 1 WHERE id = 1"
    assert touches(sql, MEANINGS.meaning(sql), "d", keys, writes=True) == (Touch(EVERYTHING, None, True),)


@pytest.mark.parametrize(("data_type", "spellings"), [
    ("date", ["'2024-01-02'", "20240102", "'20240102'", "'2024-1-2'"]), ("enum", ["'a'", "1", "'1'"]),
    ("decimal", ["1", "'1'", "'1.0'"]), ("year", ["24", "2024"]), ("varbinary", ["'a'", "'A'"]),
    ("double", ["1", "'1'"]),
    ("varchar", ["0", "'abc'"]), ("bit", ["1"]), ("timestamp", ["'20240102'", "20240102"]),
])  # fmt: skip
def test_a_key_in_two_spellings_is_one_row(data_type: str, spellings: list[str]) -> None:
    keys = {"d.t": TableKeys(("k",), texts=frozenset({"k"} if data_type == "varchar" else ()))}
    found = []
    for spelling in spellings:
        sql = f"UPDATE t SET v = 1 WHERE k = {spelling}".encode()
        (touch,) = touches(sql, MEANINGS.meaning(sql), "d", keys, writes=True)
        found.append(touch.key)
    assert None in found or len(set(found)) == 1

"""The watch over two services in memory: no false mismatch, no loss missed, the same end after a kill anywhere."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.errors import StoreError
from migverify.model import StoredKind, Verdict
from migverify.recon.bodies import finding_of, result_body, result_of
from migverify.recon.fields import WindowRule
from migverify.recon.model import Class, CoveredWindows, RuleResult, Severity, Window
from migverify.recon.rule import Rule
from migverify.recon.verdict import FindingTally
from migverify.recon.watch import RulesWatch
from migverify.recon.watch_rule import RuleWatch
from migverify.recon.watch_state import Sums, WatchLimits, WindowPhase, WindowState, gaps_of, kept_of
from migverify.recon.watch_status import Patience, RulesStatus
from migverify.recon.windows import window_at
from migverify.store.open import open_store
from migverify.store.results import ResultStore
from tests.fakes import FakeStore
from tests.recon_world import START, World, make_rule

LIMITS = WatchLimits(recheck=5.0, whole=60.0, lookback=3, idle=3)
SLOW = WatchLimits(recheck=40.0, lookback=3, idle=3)
ROOT = Path(__file__).parents[3]


class Killed(BaseException):
    """The process ends here."""


class Dying(FakeStore):
    """A store whose process is killed at one of its writes, before it or after."""

    def __init__(self, left: float = float("inf"), *, after: bool = False) -> None:
        super().__init__()
        self.left, self.after = left, after

    def add_window(self, run_id: str, rule: str, body: dict[str, Any], findings: Sequence[dict[str, Any]]) -> None:
        self.left -= 1
        if self.left < 0 and not self.after:
            raise Killed
        super().add_window(run_id, rule, body, findings)
        if self.left < 0:
            raise Killed


def start(store: ResultStore) -> str:
    return store.start_run("migverify recon watch", "digest", {}, {}, kind=StoredKind.RULES)


def watching(world: World, store: ResultStore, run: str, *rules: Rule, limits: WatchLimits = LIMITS) -> RulesWatch:
    watched = [
        RuleWatch(rule, window_at(rule.window, START) if rule.window else None, world, store, run, limits, world.clock,
                  show=True)
        for rule in rules or (make_rule(),)
    ]  # fmt: skip
    return RulesWatch(run, watched, Patience(), world.clock, world.sleep)


def watch(world: World, store: ResultStore, run: str, *rules: Rule, seconds: float = 300.0,
          limits: WatchLimits = LIMITS) -> RulesStatus:  # fmt: skip
    """Watch for some seconds of the world's time."""
    end = world.now + seconds
    one = watching(world, store, run, *rules, limits=limits)
    return one.run(lambda: world.now >= end)


def kept(store: ResultStore, run: str, rule: str = "paid") -> dict[str, tuple[Class, Class]]:
    found = [finding_of(body) for _, body in store.findings(run, rule, limit=10_000)]
    return {f"{f.key[0]}@{f.window}": (f.kind, f.of) for f in found}


def keys(store: ResultStore, run: str, *kinds: Class, rule: str = "paid") -> set[str]:
    found = [finding_of(body) for _, body in store.findings(run, rule, limit=10_000)]
    return {str(f.key[0]) for f in found if f.kind in kinds}


def steady(world: World, until: float = 600.0, every: float = 5.0) -> None:
    for n in range(int(until / every)):
        world.event(f"ok{n}", n * every, late=1.0)


def test_what_agrees_is_a_match_through_the_last_closed_window() -> None:
    world, store = World(), FakeStore()
    steady(world)
    run = start(store)
    status = watch(world, store, run, seconds=200)
    assert status.verdict is Verdict.MATCH, status
    assert status.rules[0].through == "2026-01-01 00:03:00"
    assert status.rules[0].windows == {"matched": 3}
    assert status.rules[0].rows_source == status.rules[0].rows_target == 36
    assert world.evaluated == [str(window_at(make_rule().window, START + timedelta(seconds=60 * n))) for n in range(3)]  # type: ignore[arg-type]


def test_no_window_closes_before_every_watermark_has_passed_end_and_settle_time() -> None:
    world, store = World(lags={"orders": 0.0, "payments": 45.0}), FakeStore()
    steady(world)
    run = start(store)
    assert watch(world, store, run, seconds=114.0).verdict is Verdict.INCONCLUSIVE
    assert not world.evaluated
    assert watch(world, store, run, seconds=5.0).verdict is Verdict.MATCH
    assert len(world.evaluated) == 1


@pytest.mark.parametrize(
    ("wrong", "of"),
    [
        ({"wrong": "11"}, Class.VALUE_MISMATCH),
        ({"times": 2}, Class.DUPLICATE),
        ({"lost": True}, Class.MISSING_ON_TARGET),
    ],
)
def test_every_fault_keeps_its_class(wrong: dict[str, Any], of: Class) -> None:
    world, store = World(), FakeStore()
    steady(world)
    world.event("bad", 70.0, value="12.34", **wrong)
    run = start(store)
    status = watch(world, store, run)
    assert status.verdict is Verdict.MISMATCH
    assert kept(store, run) == {"bad@[2026-01-01 00:01:00, 2026-01-01 00:02:00)": (of, of)}
    (rule,) = status.rules
    assert (rule.findings, rule.money) == ({str(of): 1}, {str(of): {"EUR": "12.34"}})
    assert rule.reasons == ("1 key does not match, 12.34 EUR at risk",)
    assert rule.through == "2026-01-01 00:01:00"


def test_a_late_event_ends_as_matched() -> None:
    world, store = World(), FakeStore()
    steady(world)
    world.event("late", 70.0, late=100.0)
    run = start(store)
    assert watch(world, store, run, seconds=160.0).verdict is Verdict.MISMATCH
    assert keys(store, run, Class.MISSING_ON_TARGET) == {"late"}
    status = watch(world, store, run, seconds=60.0)
    assert status.verdict is Verdict.MATCH, status
    assert keys(store, run, Class.LATE_MATCHED) == {"late"}
    assert status.rules[0].money == {"late then matched": {"EUR": "10"}}


@pytest.mark.parametrize(("at", "there"), [(119.0, 121.0), (119.9, 120.0), (121.0, 119.0), (115.0, 124.0)])
def test_a_row_whose_counterpart_is_stamped_over_the_border_is_never_missing(at: float, there: float) -> None:
    world, store = World(), FakeStore()
    steady(world)
    world.event("border", at, target_at=there, late=2.0)
    run = start(store)
    for _ in range(70):
        status = watch(world, store, run, seconds=5.0)
        assert status.verdict is not Verdict.MISMATCH, status
    assert status.verdict is Verdict.MATCH, status
    assert not keys(store, run, *Class), "a row that matches across the border is no finding"
    assert status.rules[0].crossed > 0


def sums_that_differ(world: World) -> Rule:
    for n in range(80):
        world.event("EUR", 5.0 * n, value="3", wrong="3.0001" if n == 23 else None)
    return make_rule(kind="same_groups")


def test_a_sum_that_differs_waits_for_the_next_window_while_the_one_before_is_a_match() -> None:
    world, store = World(), FakeStore()
    told: list[RulesStatus] = []
    run = start(store)
    one = watching(world, store, run, sums_that_differ(world))
    one.on_status = told.append
    carried = one.run(lambda: world.now >= 150.0)
    assert told[-1].verdict is Verdict.MATCH
    assert told[-1].rules[0].through == "2026-01-01 00:01:00"
    assert told[-1].rules[0].notices == ("1 sums of a window wait for the next one",)
    assert carried.verdict is Verdict.INCONCLUSIVE, "the end of the watch leaves a carried sum undecided"
    assert carried.rules[0].reasons == ("1 sums of a window wait for the next one",)
    assert keys(store, run, Class.PENDING) == {"EUR"}
    assert watch(world, store, run, sums_that_differ(World()), seconds=90.0).verdict is Verdict.MISMATCH
    assert set(kept(store, run).values()) == {(Class.VALUE_MISMATCH, Class.VALUE_MISMATCH)}


def test_a_row_doubled_over_the_border_is_a_duplicate_and_no_missing_row() -> None:
    world, store = World(), FakeStore()
    steady(world)
    world.event("twice", 100.0)
    world.target.append(type(world.target[0])("twice", 130.0, "10", 130.0))
    run = start(store)
    assert watch(world, store, run).verdict is Verdict.MISMATCH
    found = kept(store, run)
    assert set(found.values()) == {(Class.DUPLICATE, Class.DUPLICATE)}


def test_sums_of_groups_agree_over_both_windows_when_a_row_crosses_the_border() -> None:
    world, store = World(), FakeStore()
    rule = make_rule(kind="same_groups")
    for n in range(80):
        world.event("EUR", 5.0 * n, value="3")
    world.event("EUR", 119.0, target_at=121.0, value="7")
    run = start(store)
    for _ in range(60):
        status = watch(world, store, run, rule, seconds=5.0)
        assert status.verdict is not Verdict.MISMATCH, status
    assert status.verdict is Verdict.MATCH, status
    assert not keys(store, run, *Class)
    covered = [result_of(body).covered for body in store.windows(run, "paid")]
    assert sum(c.crossed for c in covered) == status.rules[0].crossed > 0


def test_notes_of_an_evaluation_are_no_gaps() -> None:
    note = "not compared, because one side alone has it: amount"
    result = RuleResult(
        "paid", None, Verdict.INCONCLUSIVE, ("1 key differs ...", "3 rows have no time", note), CoveredWindows(),
        {Class.PENDING: 1}, {}, (), 0.0, gaps=("3 rows have no time",),
    )  # fmt: skip
    assert gaps_of(result_of(result_body(result))) == ("3 rows have no time",)
    assert gaps_of(replace(result, gaps=())) == ()
    assert gaps_of(replace(result, gaps=(), counts={})) == result.reasons, "nothing tells why: all of it is a gap"


def test_a_row_that_arrives_in_a_closed_window_reopens_it() -> None:
    world, store = World(), FakeStore()
    steady(world)
    world.source.append(type(world.source[0])("backdated", 70.0, "5", 150.0))
    run = start(store)
    assert watch(world, store, run, seconds=145.0).verdict is Verdict.MATCH
    status = watch(world, store, run, seconds=30.0)
    assert status.verdict is Verdict.MISMATCH
    assert status.rules[0].reopened == 1
    assert keys(store, run, Class.MISSING_ON_TARGET) == {"backdated"}


def test_without_lookback_late_rows_are_said_to_be_blind() -> None:
    world, store = World(), FakeStore()
    steady(world)
    run = start(store)
    status = watch(world, store, run, limits=WatchLimits(recheck=5.0, lookback=0))
    assert "rows that come into a closed window are not seen (--lookback 0)" in status.rules[0].notices
    assert not world.signed
    world.checksums = False
    status = watch(world, store, start(store), seconds=10)
    assert "rows that come into a closed window are not seen: its sources give no checksum" in status.rules[0].notices


def test_what_matched_and_is_immutable_is_not_read_again() -> None:
    world, store = World(), FakeStore()
    steady(world)
    run = start(store)
    rule = make_rule(immutable=30.0)
    watch(world, store, run, rule, seconds=290.0)
    first = Window(START, START + timedelta(seconds=60))
    # Windows rest from 30 s after their end on: signed when evaluated, and looked back at for some seconds.
    assert all(w != first for w in world.signed[8:])
    evaluated = len(world.evaluated)
    world.event("written late", 20.0, lost=True)
    watch(world, store, run, rule, seconds=5.0)
    assert len(world.evaluated) == evaluated


def test_findings_without_a_key_are_looked_at_by_reading_their_window_again() -> None:
    world, store = World(lookups=False), FakeStore()
    steady(world)
    world.event("late", 70.0, late=100.0)
    run = start(store)
    assert watch(world, store, run, seconds=160.0).verdict is Verdict.MISMATCH
    status = watch(world, store, run, seconds=60.0)
    assert status.verdict is Verdict.MATCH, status
    assert keys(store, run, Class.LATE_MATCHED) == {"late"}


def test_a_rule_without_windows_is_evaluated_again_and_again() -> None:
    world, store = World(), FakeStore()
    steady(world, until=60.0)
    world.event("late", 5.0, late=100.0)
    world.event("lost", 6.0, lost=True)
    rule = make_rule(seconds=None)
    world.now = 70.0
    run = start(store)
    assert watch(world, store, run, rule, seconds=10.0).verdict is Verdict.MISMATCH
    assert keys(store, run, Class.MISSING_ON_TARGET) == {"late", "lost"}
    assert watch(world, store, run, rule, seconds=70.0).verdict is Verdict.MISMATCH
    assert keys(store, run, Class.LATE_MATCHED) == {"late"}
    assert keys(store, run, Class.MISSING_ON_TARGET) == {"lost"}
    assert len(world.evaluated) == 2


def test_a_warning_is_no_mismatch() -> None:
    world, store = World(), FakeStore()
    steady(world)
    world.event("lost", 70.0, lost=True)
    status = watch(world, store, start(store), make_rule(severity=Severity.WARNING))
    assert status.verdict is Verdict.MATCH
    assert "warning: 1 key does not match, 10 EUR at risk" in status.rules[0].notices


KINDS = st.dictionaries(st.sampled_from(list(Class)), st.integers(1, 3), max_size=4)
GAPS = st.lists(st.sampled_from(["not read: payments", "3 rows have no time"]), max_size=2, unique=True).map(tuple)


@given(KINDS, GAPS, st.sampled_from(Severity), st.sampled_from(WindowPhase))
def test_the_state_of_a_window_follows_from_its_findings_and_gaps(
    counts: dict[Class, int], gaps: tuple[str, ...], severity: Severity, before: WindowPhase
) -> None:
    """From any state: MATCHED only where nothing is open, what is open is read again, and the store keeps it."""
    rule = make_rule(severity=severity)
    window = WindowState(window_at(WindowRule(every=60.0), START), before, FindingTally(Counter(counts)), gaps=gaps)
    window.settle(rule)
    mismatches = window.tally.mismatches if severity is not Severity.WARNING else 0
    assert (window.phase is WindowPhase.MISMATCH) == bool(mismatches)
    assert (window.phase is WindowPhase.MATCHED) == (not mismatches and not window.tally.pending and not gaps)
    assert not window.is_undone
    assert window.is_open or not (window.tally.open or window.unread)
    again = kept_of(window.body(rule))
    assert (again.phase, again.gaps, again.tally.counts) == (window.phase, window.gaps, window.tally.counts)
    sums = Sums()
    sums.put(window)
    sums.put(again, -1)
    assert not any(sums.states.values())
    assert not sums.tally.counts


# -- what is loud ------------------------------------------------------------------------------------------------------


def test_a_watermark_that_cannot_be_told_keeps_windows_open() -> None:
    world, store = World(stuck={"payments": None}), FakeStore()
    steady(world)
    status = watch(world, store, start(store))
    assert status.verdict is Verdict.INCONCLUSIVE
    assert not world.evaluated
    assert "payments: up to when it is complete is not known: it does not tell" in status.rules[0].reasons


def test_a_watermark_that_stands_is_loud() -> None:
    world, store = World(stuck={"payments": 130.0}), FakeStore()
    steady(world)
    status = watch(world, store, start(store), seconds=250.0)
    assert status.verdict is Verdict.INCONCLUSIVE
    assert any("payments: its watermark has been 2026-01-01 00:02:10" in r for r in status.rules[0].reasons)
    assert len(world.evaluated) == 2


def test_a_late_window_is_loud() -> None:
    world, store = World(lags={"orders": 0.0, "payments": 500.0}), FakeStore()
    steady(world)
    status = watch(world, store, start(store), seconds=650.0)
    assert status.verdict is Verdict.INCONCLUSIVE
    late = [r for r in status.rules[0].reasons if "later than it may be (360 s)" in r]
    assert late
    assert late[0].startswith("[2026-01-01 00:02:00")


def test_a_dead_endpoint_is_loud_and_stops_no_other_rule_for_good() -> None:
    world, store = World(), FakeStore()
    steady(world)
    run = start(store)
    world.broken = True
    status = watch(world, store, run, seconds=100.0)
    assert status.verdict is Verdict.INCONCLUSIVE
    assert "payments: no answer" in status.rules[0].error
    world.broken = False
    assert watch(world, store, run, seconds=100.0).verdict is Verdict.MATCH
    assert len(set(world.evaluated)) == 3


def test_a_source_that_stands_still_is_loud() -> None:
    world, store = World(), FakeStore()
    steady(world, until=60.0)
    run = start(store)
    assert watch(world, store, run, seconds=200.0).verdict is Verdict.MATCH
    status = watch(world, store, run, seconds=100.0)
    assert status.verdict is Verdict.INCONCLUSIVE
    assert status.rules[0].reasons == ("no row in the last 3 windows: is its source idle?",)


def test_nothing_read_is_no_match() -> None:
    world, store = World(), FakeStore()
    status = watch(world, store, start(store), limits=WatchLimits(idle=0))
    assert status.verdict is Verdict.INCONCLUSIVE
    assert status.rules[0].reasons == ("no row was read: there is nothing that matched",)


def test_a_window_that_was_not_read_in_full_is_no_match_and_is_read_again() -> None:
    world, store = World(gaps=("not read: payments: no answer",)), FakeStore()
    steady(world)
    run = start(store)
    status = watch(world, store, run, seconds=130.0)
    assert status.verdict is Verdict.INCONCLUSIVE
    assert any("not read: payments: no answer" in r or "evaluated again" in r for r in status.rules[0].reasons)
    world.gaps = ()
    assert watch(world, store, run, seconds=20.0).verdict is Verdict.MATCH


def test_a_window_that_could_not_be_read_again_proves_nothing_about_its_findings() -> None:
    world, store = World(), FakeStore()
    steady(world)
    world.event("lost", 70.0, lost=True)
    run = start(store)
    assert watch(world, store, run, seconds=145.0).verdict is Verdict.MISMATCH
    world.event("later", 71.0)
    world.unread = True
    watch(world, store, run, seconds=10.0)
    assert len(world.evaluated) > 2, "the later row reopens the window"
    assert keys(store, run, Class.MISSING_ON_TARGET) == {"lost"}
    world.unread = False
    assert watch(world, store, run, seconds=20.0).verdict is Verdict.MISMATCH
    assert kept(store, run).keys() == {"lost@[2026-01-01 00:01:00, 2026-01-01 00:02:00)"}
    assert set(kept(store, run).values()) == {(Class.MISSING_ON_TARGET, Class.MISSING_ON_TARGET)}


def test_what_no_read_can_prove_stays_inconclusive_without_being_read_for_ever() -> None:
    world, store = World(gaps=("3 rows of orders have no at and are in no window",)), FakeStore()
    steady(world)
    run = start(store)
    status = watch(world, store, run, seconds=200.0)
    assert status.verdict is Verdict.INCONCLUSIVE
    assert len(world.evaluated) == 3
    assert status.rules[0].through == "2026-01-01 00:00:00"
    assert watch(world, store, run, seconds=5.0).verdict is Verdict.INCONCLUSIVE


def test_a_store_that_fails_ends_the_watch() -> None:
    world, store = World(), FakeStore()
    steady(world)
    run = start(store)
    one = watching(world, store, run)
    store.fail = True
    with pytest.raises(StoreError):
        one.run()


# -- ends --------------------------------------------------------------------------------------------------------------


def test_once_evaluates_what_is_due_and_ends() -> None:
    world, store = World(now=200.0), FakeStore()
    steady(world)
    world.event("lost", 70.0, lost=True)
    run = start(store)
    status = watching(world, store, run, limits=WatchLimits(recheck=0.0)).run(once=True)
    assert status.final
    assert status.verdict is Verdict.MISMATCH
    assert len(world.evaluated) == 3
    assert world.now < 230.0


def test_once_ends_although_a_window_cannot_be_read() -> None:
    world, store = World(now=200.0, gaps=("not evaluated: payments: no answer",)), FakeStore()
    steady(world)
    status = watching(world, store, start(store), limits=WatchLimits(recheck=0.0)).run(once=True, time_limit=600.0)
    assert (status.final, status.verdict, status.reasons) == (True, Verdict.INCONCLUSIVE, ())
    assert any("not evaluated: payments: no answer" in reason for reason in status.rules[0].reasons)
    assert len(world.evaluated) == 3 * 3, "each window was read again as often as a difference is"


def test_until_waits_for_the_windows_up_to_a_time() -> None:
    world, store = World(), FakeStore()
    steady(world)
    world.event("border", 119.0, target_at=121.0)
    run = start(store)
    status = watching(world, store, run).run(until=START + timedelta(seconds=120))
    assert status.verdict is Verdict.MATCH, status
    assert len(world.evaluated) == 2
    assert world.now >= 130.0


def test_until_with_a_time_limit_is_inconclusive() -> None:
    world, store = World(stuck={"payments": 100.0}), FakeStore()
    steady(world)
    status = watching(world, store, start(store)).run(until=START + timedelta(seconds=120), time_limit=200.0)
    assert status.verdict is Verdict.INCONCLUSIVE
    assert "the time limit of 200 s is over" in status.reasons


def test_stopping_before_the_end_is_no_match() -> None:
    world, store = World(now=200.0), FakeStore()
    steady(world)
    status = watching(world, store, start(store)).run(lambda: True, once=True)
    assert status.verdict is Verdict.INCONCLUSIVE


# -- restart -----------------------------------------------------------------------------------------------------------


def busy() -> World:
    world = World()
    steady(world, until=330.0)
    world.event("lost", 70.0, lost=True)
    world.event("late", 75.0, late=130.0)
    world.event("border", 119.0, target_at=122.0, late=3.0)
    world.event("lost on the border", 178.0, lost=True)
    world.event("double", 200.0, times=2)
    world.source.append(type(world.source[0])("backdated", 190.0, "5", 280.0))
    for n in range(45):  # more than fits one page
        world.event(f"storm{n}", 230.0, lost=True)
    return world


def end_of(store: ResultStore, run: str, status: RulesStatus) -> dict[str, Any]:
    rule = status.rules[0]
    return {
        "findings": kept(store, run), "verdict": status.verdict, "through": rule.through, "windows": rule.windows,
        "counts": {k: n for k, n in rule.findings.items() if k != "late then matched"}, "rows": rule.rows_source,
    }  # fmt: skip


def no_kill() -> dict[str, Any]:
    world, store = busy(), Dying()
    run = start(store)
    watch(world, store, run, seconds=320.0, limits=SLOW)
    status = watch(world, store, run, seconds=370.0 - world.now)
    found = end_of(store, run, status)
    found["findings"] = {k: v for k, v in found["findings"].items() if v[0] is not Class.LATE_MATCHED}
    return found


@pytest.mark.parametrize("after", [False, True])
def test_a_kill_at_any_write_changes_nothing_in_the_end(after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migverify.recon.watch_rule.PAGE", 20)
    wanted = no_kill()
    assert wanted["verdict"] is Verdict.MISMATCH
    assert len(wanted["findings"]) == 49
    for kill_at in range(int(after), 40, 2):
        world, store = busy(), Dying(kill_at, after=after)
        run = start(store)
        try:
            watch(world, store, run, seconds=320.0, limits=SLOW)
        except Killed:
            store.left = float("inf")
        else:
            assert kill_at > 10
            return
        watch(world, store, run, seconds=320.0 - world.now, limits=SLOW)
        status = watch(world, store, run, seconds=370.0 - world.now)
        found = end_of(store, run, status)
        found["findings"] = {k: v for k, v in found["findings"].items() if v[0] is not Class.LATE_MATCHED}
        assert found == wanted, kill_at
        bodies = list(store.windows(run, "paid"))
        assert [kept_of(b).window for b in bodies] == sorted({kept_of(b).window for b in bodies})  # type: ignore[type-var]
        assert not any(kept_of(b).phase in (WindowPhase.EVALUATING, WindowPhase.REOPENED) for b in bodies)


@settings(max_examples=4)
@given(st.integers(0, 10**6))
def test_the_truth_comes_out_whatever_happens(seed: int) -> None:
    """Events at random times, stamped apart, late, lost, doubled or wrong; the watch is killed and started again."""
    rng = random.Random(seed)
    world = World()
    wrong: set[str] = set()
    for n in range(120):
        key, at = f"k{n}", rng.uniform(0, 240)
        fault = rng.choice(["", "", "", "", "lost", "wrong", "double", "late"])
        apart = rng.uniform(-8, 8) if fault in ("", "late") and at > 10 else 0.0
        world.event(
            key, at, target_at=at + apart, late=rng.uniform(20, 60) if fault == "late" else rng.uniform(0, 1.5),
            lost=fault == "lost", wrong="9" if fault == "wrong" else None, times=2 if fault == "double" else 1,
        )  # fmt: skip
        if fault in ("lost", "wrong", "double"):
            wrong.add(key)
    store = Dying()
    run = start(store)
    while world.now < 420:
        store.left, store.after = rng.choice([1, 2, 3, 5, 100]), rng.random() < 0.5
        try:
            status = watch(world, store, run, seconds=rng.uniform(5, 100))
        except Killed:
            continue
    store.left = float("inf")
    world.event("last", 431.0)
    status = watch(world, store, run, seconds=100.0)
    assert keys(store, run, *(set(Class) - {Class.LATE_MATCHED})) == wrong
    assert not keys(store, run, Class.PENDING)
    assert status.verdict is (Verdict.MISMATCH if wrong else Verdict.MATCH) or not wrong
    for body in store.windows(run, "paid"):
        result = result_of(body)
        stored = (finding_of(b) for _, b in store.findings(run, "paid", limit=1000))
        assert sum(result.counts.values()) == sum(f.window == result.window for f in stored)


SCRIPT = """
import os, signal, sys
from migverify.store.open import open_store
from tests.unit.recon.test_recon_watch import SLOW, busy, start, watch
url, run, left, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
store = open_store(url)
record = store.add_window

def add_window(*arguments):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    record(*arguments)

store.add_window = add_window
world = busy()
world.now = float(sys.argv[5])
watch(world, store, run, seconds=seconds, limits=SLOW)
print(world.now)
"""


def test_a_process_that_is_killed_leaves_a_store_that_goes_on(tmp_path: Path) -> None:
    """The store itself under kill -9: each process gets a little further, the last one ends the work."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    store = open_store(url)
    run = start(store)
    for left in (1, 4):
        done = run_script(url, run, left, 400.0, 400.0)
        assert done.returncode == -signal.SIGKILL, done.stderr
    done = run_script(url, run, 10_000, 60.0, 400.0)
    assert done.returncode == 0, done.stderr
    windows = [kept_of(body) for body in store.windows(run, "paid")]
    starts = [one.window.start for one in windows if one.window is not None]
    assert starts == [START + timedelta(seconds=60 * n) for n in range(len(windows))]
    assert not any(one.phase in (WindowPhase.EVALUATING, WindowPhase.REOPENED) for one in windows)
    found = {k: v for k, v in kept(store, run).items() if v[0] is not Class.LATE_MATCHED}
    store.close()
    wanted = no_kill()["findings"]
    assert found == wanted


def run_script(url: str, run: str, left: int, seconds: float, at: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT, url, run, str(left), str(seconds), str(at)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

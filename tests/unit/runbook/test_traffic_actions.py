"""The actions of traffic: what is not certain has no value, what is a breach ends a bake at once."""

from __future__ import annotations

import copy
import functools
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from migverify.runbook.actions.action import ActionResult, Context, Outcome, Registry, ask
from migverify.runbook.actions.registry import full_registry
from migverify.runbook.definition.lint import lint_file
from migverify.runbook.model import Check
from migverify.runbook.traffic import actions as actions_traffic
from migverify.runbook.traffic.access_log import SplitSides, count
from migverify.runbook.traffic.document import load_traffic
from migverify.runbook.traffic.measure import TrafficMeasurement, judge_instances, stickiness
from migverify.runbook.traffic.model import Setting, goes_to_new
from migverify.runbook.traffic.tally import KeySample, TrafficTally
from tests.unit.runbook.test_traffic_drivers import NGINX
from tests.unit.traffic_fakes import FakeDriver, FakeProxy, line

ROOT = Path(__file__).parents[3]
NOW = Setting(500, "2-aaaaaaaa", 100, "1-aaaaaaaa", 1000.0)


def tally(
    requests: int, *, share: int = 500, errors: int = 0, seconds: float = 0.01, seed: str = "user"
) -> TrafficTally:
    return copy.deepcopy(_tally(requests, share, errors, seconds, seed))


@functools.cache
def _tally(requests: int, share: int, errors: int, seconds: float, seed: str) -> TrafficTally:
    """Requests of as many keys, each where its hash says; the first ``errors`` of the new side fail."""
    found = {NOW.generation: TrafficTally(keys=KeySample())}
    lines = []
    for n in range(requests):
        key = f"{seed}-{n % max(1, requests // 2)}"
        new = goes_to_new(key.encode(), share)
        status = 500 if new and errors > 0 else 200
        errors -= new
        lines.append(line(1001, key, "new" if new else "old", status=status, seconds=seconds)[:-1])
    count(iter(lines), found, SplitSides("old", "new"), 0.0, None)
    return found[NOW.generation]


def driver(**tallies: TrafficTally) -> FakeDriver:
    return FakeDriver({name: FakeProxy(NOW, NOW) for name in tallies}, tallies=tallies)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    path = tmp_path / "pay.traffic.yaml"
    path.write_text(NGINX)
    registry = Registry()
    actions_traffic.register(registry)

    def act(
        made: FakeDriver, name: str, timeout: float = 60.0, canceled: bool = False, **arguments: Any
    ) -> ActionResult:
        monkeypatch.setattr(actions_traffic, "driver_of", lambda _traffic, _context: made)
        event = threading.Event()
        if canceled:
            event.set()
        context = Context("run", "step", 1, 1, timeout, event)
        return registry.run(name, {"traffic": str(path), **arguments}, context)

    return act


def test_a_set_needs_time_for_its_way_back(run: Any) -> None:
    made = driver(a=tally(10))
    found = run(made, "traffic.set", 10.0, share=25, expected=5)
    assert found.outcome is Outcome.FAILED
    assert "reversal may take 30 s" in found.text
    assert run(made, "traffic.set", 60.0, share=25, expected=5).value == 25


@pytest.mark.parametrize(("share", "expected"), [(50, 5), (3, 1), (101, 5), (-1, 5), (25, 1)])
def test_a_set_that_is_no_step_or_not_expected_fails(run: Any, share: float, expected: float) -> None:
    made = driver(a=tally(10))
    found = run(made, "traffic.set", share=share, expected=expected)
    assert found.outcome is Outcome.FAILED
    assert not made.proxies["a"].calls


def test_an_abort_never_raises_the_share(run: Any) -> None:
    made = driver(a=tally(10))
    assert run(made, "traffic.abort", share=25).outcome is Outcome.FAILED
    assert run(made, "traffic.abort", share=0, canceled=True).outcome is Outcome.CANCELED
    assert run(made, "traffic.abort", share=3).outcome is Outcome.FAILED
    assert not made.proxies["a"].calls
    assert run(made, "traffic.abort", share=1).value == 1


def test_what_an_instance_does_not_serve_has_no_value(run: Any) -> None:
    made = driver(a=tally(10), b=tally(10))
    assert run(made, "traffic.configured").value == 5
    made.proxies["b"].serving = Setting(100, "1-aaaaaaaa", 0, "", 1.0)
    for name in ("traffic.configured", "traffic.served"):
        assert run(made, name).outcome is Outcome.NO_DATA
    assert run(made, "traffic.share", share=5).outcome is Outcome.NO_DATA
    assert run(made, "traffic.set", share=25, expected=5).outcome is Outcome.NO_DATA


def test_a_missing_file_is_no_data_and_no_pass(tmp_path: Path) -> None:
    registry = Registry()
    actions_traffic.register(registry)
    check = Check(action="traffic.share", arguments={"traffic": str(tmp_path / "none.yaml"), "share": 5})
    answer = ask(registry, check, Context("r", "s", 1, 1, 5, threading.Event()))
    assert answer.state == "inconclusive"


def test_each_instance_is_measured_by_itself(run: Any) -> None:
    good = driver(a=tally(8000), b=tally(8000, seed="x"))
    assert run(good, "traffic.share", share=5).value is True
    assert run(good, "traffic.sticky").value is True
    few = driver(a=tally(8000), b=tally(50))
    assert run(few, "traffic.share", share=5).outcome is Outcome.NO_DATA
    other = driver(a=tally(8000), b=tally(8000, share=2500))
    found = run(other, "traffic.share", share=5)
    assert found.value is False
    assert "b: asked 5 %" in found.text
    assert run(good, "traffic.share", share=25).value is False


def test_astray_damaged_and_lost_never_pass(run: Any) -> None:
    found = tally(8000)
    found.astray = 1
    assert run(driver(a=found), "traffic.share", share=5).value is False
    for name, value in (("damaged", 100), ("lost", "a rotated file is gone")):
        found = tally(8000)
        setattr(found, name, value)
        assert run(driver(a=found), "traffic.share", share=5).outcome is Outcome.NO_DATA


def test_a_bake_without_counted_errors_or_times_is_no_pass(run: Any) -> None:
    made = driver(a=tally(8000, errors=20, seconds=0.25))
    made.tallies["a"].unmeasured = frozenset({"errors", "latency"})
    for limit in ("max_errors", "max_p99"):
        found = run(made, "traffic.bake", 2.0, share=5, seconds=0.1, every=0.5, **{limit: 1000})
        assert found.outcome is Outcome.NO_DATA
        assert "does not count" in found.text


def test_a_bake_passes_at_its_end_only(run: Any) -> None:
    made = driver(a=tally(8000))
    found = run(made, "traffic.bake", share=5, seconds=1, every=0.5, max_errors=1, max_p99=100)
    assert found.value is True
    assert "baked" in found.text


@pytest.mark.parametrize(
    ("more", "says"),
    [({"max_errors": 0.01}, "above 0.01 %"), ({"max_p99": 5}, "above 5 ms"), ({"share": 25}, "asked 25 %")],
)
def test_a_bake_ends_at_the_first_breach(run: Any, more: dict[str, Any], says: str) -> None:
    found = run(driver(a=tally(8000, errors=5)), "traffic.bake", **({"share": 5, "seconds": 50} | more))
    assert found.value is False
    assert re.match(r"after \d s of 50 s: ", found.text), "not at the end of its time"
    assert says in found.text


def test_a_bake_that_never_knows_is_no_pass(run: Any) -> None:
    found = run(driver(a=tally(50)), "traffic.bake", 3.0, share=5, seconds=1, every=0.5)
    assert found.outcome is Outcome.NO_DATA
    assert run(driver(a=tally(50)), "traffic.bake", 3.0, share=5, seconds=3).outcome is Outcome.NO_DATA
    found = run(driver(a=tally(50)), "traffic.bake", share=5, seconds=50, canceled=True)
    assert found.outcome is Outcome.CANCELED


def measured(before: list[bytes], now: list[bytes], setting: Setting = NOW) -> TrafficMeasurement:
    found = {name: TrafficTally(keys=KeySample()) for name in (setting.generation, setting.previous)}
    count((one[:-1] for one in [*before, *now]), found, SplitSides("old", "new"), 0.0, None)
    return TrafficMeasurement({"a": setting}, {"a": found[setting.generation]}, {"a": found[setting.previous]})


def many(side: str = "old") -> list[bytes]:
    return [line(1010 + n, f"many-{n // 2}", side) for n in range(100)]


def was(key: str, side: str, end: float = 990.0) -> bytes:
    return line(end, key, side, generation=NOW.previous)


def test_a_key_that_moves_with_the_change_is_sticky() -> None:
    found = measured([was("k", "old"), was("m", "new")], [*many(), line(1005, "k", "new"), line(1005, "m", "new")])
    assert stickiness(found, writes=True, predicts=True)[0] == "pass"


@pytest.mark.parametrize(
    ("before", "now", "says"),
    [
        ([was("k", "new")], [line(1005, "k", "old")], "1 key moved against the change"),
        ([], [line(1005, "k", "old"), line(1006, "k", "new")], "1 key was on both sides"),
        ([was("k", "old", 1005.5)], [line(1005.4, "k", "new")], "under way on both sides at once"),
        ([], [line(1005, "", "old")], "1 write had no key"),
    ],
)
def test_a_key_on_two_sides_is_found(before: list[bytes], now: list[bytes], says: str) -> None:
    state, text = stickiness(measured(before, [*many(), *now]), writes=True, predicts=True)
    assert state == "fail"
    assert says in text


def test_going_down_moves_keys_the_other_way() -> None:
    down = Setting(100, "2-aaaaaaaa", 500, "1-aaaaaaaa", 1000.0)
    good = measured([was("k", "new")], [*many(), line(1005, "k", "old")], down)
    assert stickiness(good, writes=True, predicts=True)[0] == "pass"
    bad = measured([was("k", "old")], [*many(), line(1005, "k", "new")], down)
    assert stickiness(bad, writes=True, predicts=True)[0] == "fail"


def test_keys_that_never_came_again_say_nothing() -> None:
    found = measured([], [line(1010, f"user-{n}") for n in range(500)])
    assert stickiness(found, writes=False, predicts=True)[0] == "inconclusive"


def test_a_share_of_requests_is_judged_by_keys(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(NGINX)
    traffic = load_traffic(path)
    hot = [line(1002, "user-1", "new" if goes_to_new(b"user-1", 500) else "old") for _ in range(5000)]
    rest = [line(1002, f"k{n}", "new" if goes_to_new(f"k{n}".encode(), 500) else "old") for n in range(4000)]
    state, text = judge_instances(500, measured([], [*hot, *rest]), traffic, sticky=True)
    assert state == "pass", text
    assert judge_instances(500, measured([], [*hot, *rest]), traffic, sticky=False)[0] != "pass"


@pytest.mark.parametrize(
    "name", ["traffic-switch.yaml", "dr/traffic-weight-change.yaml", "dr/traffic-reload-failure.yaml"]
)
def test_the_runbooks_are_without_a_finding(name: str) -> None:
    actions = {action.name: action for action in full_registry()}
    cases = frozenset({"traffic-weight-change", "traffic-reload-failure"})
    for environment in ("lab", "staging"):
        _, findings = lint_file(ROOT / "runbooks" / name, {}, environment, actions, cases)
        assert not findings

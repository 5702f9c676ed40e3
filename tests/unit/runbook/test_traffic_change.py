"""All instances change or none does; whatever is not certain is in doubt, and is said to be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.errors import TrafficError
from migverify.runbook.traffic.change import abort, begin, change, look
from migverify.runbook.traffic.model import FULL, LADDER, Setting
from tests.unit.traffic_fakes import FIRST, FakeDriver, FakeProxy


def driver(holds: bool = False, **broken: set[str]) -> FakeDriver:
    return FakeDriver({name: FakeProxy(broken=broken.get(name, set())) for name in ("a", "b")}, holds=holds)


@pytest.mark.parametrize("holds", [False, True])
def test_a_change_is_served_by_all(holds: bool) -> None:
    made = driver(holds)
    found = change(made, 100, 0, LADDER)
    assert found.outcome == "done"
    assert look(made).share == 100
    assert all(one.written == one.serving and not one.written.held for one in made.proxies.values())
    assert {one.written.previous for one in made.proxies.values()} == {FIRST.generation}
    again = change(made, 100, 0, LADDER)
    assert again.outcome == "done"
    assert "already" in again.text


def test_keys_that_move_are_held_everywhere_before_any_moves() -> None:
    made = driver(holds=True)
    seen: list[tuple[bool, ...]] = []
    made_apply = made.apply

    def apply(instance: str) -> None:
        made_apply(instance)
        seen.append(tuple((one.serving.held, one.serving.share > 0)[0] for one in made.proxies.values()))
        final = [one.serving.share == 100 and not one.serving.held for one in made.proxies.values()]
        old = [one.serving == FIRST for one in made.proxies.values()]
        assert not (any(final) and any(old)), "a key could be written on both sides"

    made.apply = apply  # type: ignore[method-assign]
    assert change(made, 100, 0, LADDER).outcome == "done"
    assert seen == [(True, False), (True, True), (False, True), (False, False)]


def test_another_share_than_expected_is_refused() -> None:
    made = driver()
    change(made, 100, 0, LADDER)
    found = change(made, 2500, 500, LADDER)
    assert found.outcome == "refused"
    assert "another writer" in found.text
    assert look(made).share == 100


def test_a_step_that_leaves_rungs_out_touches_nothing() -> None:
    made = driver()
    assert change(made, FULL, 0, LADDER).outcome == "refused"
    assert all(not one.calls for one in made.proxies.values())


def test_a_second_writer_waits_outside() -> None:
    made = driver()
    with made.locked(), pytest.raises(TrafficError, match="under way"):
        change(made, 100, 0, LADDER)


@pytest.mark.parametrize("holds", [False, True])
@pytest.mark.parametrize("instance", ["a", "b"])
@pytest.mark.parametrize("what", ["write", "apply", "silent"])
def test_one_instance_that_fails_puts_all_back(holds: bool, instance: str, what: str) -> None:
    made = driver(holds, **{instance: {what}})
    found = change(made, 100, 0, LADDER)
    assert found.outcome in ("put back", "in doubt")
    assert {one.serving.share for one in made.proxies.values()} == {0}
    if what != "apply":
        assert found.outcome == "put back"
        assert look(made).share == 0


def test_nothing_is_served_when_a_later_instance_refuses_the_file() -> None:
    made = driver(b={"write"})
    assert change(made, 100, 0, LADDER).outcome == "put back"
    assert "apply" not in made.proxies["a"].calls
    assert made.proxies["a"].written == FIRST


def test_what_cannot_be_read_is_in_doubt_and_touched_by_nobody() -> None:
    made = driver(b={"read"})
    found = change(made, 100, 0, LADDER)
    assert found.outcome == "in doubt"
    assert all(not one.calls for one in made.proxies.values())


@pytest.mark.parametrize("holds", [False, True])
@pytest.mark.parametrize("crash_at", range(1, 9))
def test_a_writer_that_dies_anywhere_leaves_what_is_seen_and_can_be_put_back(holds: bool, crash_at: int) -> None:
    made = driver(holds)
    made.crash_at = crash_at
    crashed = False
    try:
        change(made, 100, 0, LADDER)
    except KeyboardInterrupt:
        crashed = True
    made.crash_at = 0
    state = look(made)
    if crashed and state.share is None:
        assert change(made, 100, 0, LADDER).outcome == "in doubt", "a half-done change must not be gone on with"
    elif crashed:
        # Before the first write, or where all of it is done: then both sides of it say the same.
        assert state.share in (0, 100)
    found = abort(made, 0)
    assert found.outcome == "done"
    assert look(made).share == 0


def test_an_abort_goes_on_past_an_instance_that_fails() -> None:
    made = driver(a={"apply"})
    made.proxies["b"].written = made.proxies["b"].serving = Setting(500, "7-00000000", 100, "6-00000000", 1.0)
    found = abort(made, 0)
    assert found.outcome == "in doubt"
    assert made.proxies["b"].serving.share == 0


def test_an_abort_that_is_served_already_does_nothing() -> None:
    made = driver()
    assert abort(made, 0).outcome == "done"
    assert all(not one.calls for one in made.proxies.values())


def test_instances_that_disagree_have_no_share() -> None:
    made = driver()
    made.proxies["b"].written = made.proxies["b"].serving = Setting(500, "2-00000000", 0, "1-00000000", 1.0)
    state = look(made)
    assert state.share is None
    assert "disagree" in state.why


def test_a_first_setting_is_not_written_over() -> None:
    made = driver()
    with pytest.raises(TrafficError, match="already"):
        begin(made)
    made = driver(a={"read"}, b={"read"})
    assert begin(made).share == 0


@given(st.lists(st.sampled_from([0, *LADDER]), max_size=8), st.sampled_from(["", "write", "apply", "silent"]))
def test_whatever_is_asked_instances_never_serve_two_shares_unnoticed(wanted: list[int], fault: str) -> None:
    made = driver(b={fault} if fault else set())
    for share in wanted:
        now = look(made).share
        found = change(made, share, now if now is not None else 0, LADDER)
        served = {one.serving.share for one in made.proxies.values()}
        assert len(served) == 1 or found.outcome == "in doubt"
        if found.outcome == "done":
            assert served == {share}

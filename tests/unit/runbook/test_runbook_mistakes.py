"""Each classic mistake of a cutover loses or doubles rows under the naive check, and is stopped by our gate.

The gates that are asked here are those of real servers: ``actions.gate_judges`` judges, and a simulation is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.cutover_simulation import GATES, Feed, Mistakes, Transaction, World, ask, cutover, go_back

ALL = frozenset(GATES)
AFTER = 40
"""Ticks that the application writes to the target before rows are counted."""


def after(world: World) -> list[str]:
    """Let the application write to the target, then return what is lost or doubled there."""
    world.tick(AFTER)
    world.open_on = "none"
    world.tick(20)
    return [*world.lost(world.target), *["collision"] * world.collisions]


def warm(**changes: object) -> World:
    """Return a world that has run for a while."""
    world = World(**changes)  # type: ignore[arg-type]
    world.tick(9)
    return world


def test_a_cutover_without_mistakes_opens_and_loses_nothing() -> None:
    world = warm(flight=[Transaction(30, "row-9001", 1)])
    assert cutover(world, ALL, repeat(1)) == "opened"
    assert after(world) == []
    assert len(world.acked) > 10
    assert go_back(world, 20) == "opened"
    assert world.lost(world.source) == []


def test_a_position_read_before_transactions_ended_loses_what_they_commit() -> None:
    def made() -> World:
        return warm(mistakes=Mistakes(sessions_stay=True), flight=[Transaction(14, "late", 7)], writes_every=1000)

    naive = made()
    assert cutover(naive, frozenset(), repeat(0)) == "opened"
    assert after(naive) == ["late"]
    assert cutover(made(), ALL - {"sessions"}, repeat(0)) == "transactions"
    assert cutover(made(), frozenset({"position"}), repeat(0)) == "position"


def test_a_heartbeat_as_old_as_the_freeze_hides_the_last_write() -> None:
    def made() -> World:
        world = World(beat_every=1, delay=3, rate=1, writes_every=1000)
        world.tick(9)
        return world

    naive = made()
    naive.write_source("last", 1)  # behind the heartbeat of its moment, which is as new as the freeze
    naive.acked["last"] = 1
    assert cutover(naive, frozenset({"heartbeat"}), repeat(0)) == "opened"
    assert after(naive) == ["last"]
    ours = made()
    ours.write_source("last", 1)
    ours.acked["last"] = 1
    assert cutover(ours, ALL, repeat(0)) == "opened"
    assert after(ours) == []


def test_a_forward_feed_that_goes_on_brings_old_values_over_new_ones() -> None:
    def made() -> World:
        return warm(mistakes=Mistakes(forward_goes_on=True), delay=3)

    naive = made()
    assert cutover(naive, ALL - {"feed"}, repeat(1)) == "opened"
    assert after(naive) != []
    assert cutover(made(), ALL, repeat(1)) == "feed"


def test_a_stale_cache_of_one_server_gives_ids_that_are_taken() -> None:
    def made() -> World:
        return warm(mistakes=Mistakes(caches_stay=True), servers=3, writes_every=1)

    naive = made()
    assert cutover(naive, ALL - {"ids"}, repeat(1)) == "opened"
    assert "collision" in after(naive)
    assert cutover(made(), ALL, repeat(1)) == "ids"


@pytest.mark.parametrize("mistakes", [Mistakes(freeze_fails=True), Mistakes(sessions_stay=True)])
def test_a_freeze_that_was_not_proved_loses_what_is_written_behind_it(mistakes: Mistakes) -> None:
    def made() -> World:
        return warm(mistakes=mistakes, writes_every=1)

    naive = made()
    assert cutover(naive, ALL - {"refused", "sessions", "transactions", "position"}, repeat(1)) == "opened"
    assert after(naive) != []
    assert cutover(made(), ALL, repeat(1)) == ("refused" if mistakes.freeze_fails else "sessions")


def test_a_reverse_feed_that_is_dead_leaves_no_way_back() -> None:
    def made() -> World:
        return warm(mistakes=Mistakes(reverse_dead=True))

    naive = made()
    assert cutover(naive, ALL - {"reverse"}, repeat(1)) == "opened"
    naive.tick(AFTER)
    assert go_back(naive, 20, ask_loss=False) == "opened"
    assert naive.lost(naive.source) != []
    assert cutover(made(), ALL, repeat(1)) == "reverse"


def test_a_reverse_feed_that_drops_rows_carries_the_canary_and_the_loss_names_its_keys() -> None:
    def opened() -> World:
        world = warm(mistakes=Mistakes(reverse_drops=True))
        assert cutover(world, ALL, repeat(1)) == "opened"
        world.tick(AFTER)
        return world

    naive = opened()
    assert go_back(naive, 20, ask_loss=False) == "opened"
    lost = naive.lost(naive.source)
    assert lost
    ours = opened()
    assert f"{len(lost)} keys would be lost (shop.orders {lost[0]}" in go_back(ours, 20)
    assert ours.open_on == "none"


def test_a_feed_that_is_later_than_the_canary_is_not_seen() -> None:
    """The bound of the gate: a feed whose delay is longer than the time that is waited for looks stopped."""
    world = warm(mistakes=Mistakes(forward_goes_on=True))
    world.forward = Feed(True, 50, world.forward.at)
    world.stop_forward()
    assert ask(world, "feed", 12)


WORLDS = st.builds(
    World,
    mistakes=st.builds(Mistakes) | st.builds(
        Mistakes, sessions_stay=st.booleans(), forward_goes_on=st.booleans(), caches_stay=st.booleans(),
        reverse_dead=st.booleans(), freeze_fails=st.booleans(), reverse_drops=st.booleans(),
    ),
    flight=st.lists(
        st.builds(Transaction, st.integers(0, 40), st.integers(500, 530).map("flight-{}".format), st.integers(1, 9)),
        max_size=5, unique_by=lambda one: one.key,
    ),
    beat_every=st.integers(1, 6), servers=st.integers(1, 4), delay=st.integers(0, 4), writes_every=st.integers(1, 4),
    rate=st.integers(3, 9),
)  # fmt: skip
BETWEEN = st.lists(st.integers(0, 5), min_size=12, max_size=12)


@given(world=WORLDS, before=st.integers(0, 30), between=BETWEEN)
@settings(max_examples=200)
def test_whatever_goes_wrong_and_whenever_all_gates_together_lose_nothing(
    world: World, before: int, between: list[int]
) -> None:
    world.tick(before)
    ticks: Iterator[int] = iter(between)
    told = cutover(world, ALL, ticks)
    if told != "opened":
        return  # held: writes can be opened on the source again
    assert after(world) == []
    if go_back(world, 20) != "opened":
        assert world.mistakes.reverse_drops
        return  # held: the target is frozen, and can be opened again
    assert world.lost(world.source) == []


@given(before=st.integers(0, 30), between=BETWEEN, delay=st.integers(0, 4), servers=st.integers(1, 4))
@settings(max_examples=100)
def test_gates_do_not_stop_a_cutover_in_which_nothing_is_wrong(
    before: int, between: list[int], delay: int, servers: int
) -> None:
    world = World(delay=delay, servers=servers)
    world.tick(before)
    assert cutover(world, ALL, iter(between)) == "opened"
    assert after(world) == []


@pytest.mark.parametrize(
    ("gate", "mistakes"),
    [("refused", Mistakes(freeze_fails=True)), ("sessions", Mistakes(sessions_stay=True)),
     ("feed", Mistakes(forward_goes_on=True)), ("ids", Mistakes(caches_stay=True)),
     ("reverse", Mistakes(reverse_dead=True))],
)  # fmt: skip
@given(before=st.integers(5, 30), between=BETWEEN, delay=st.integers(0, 4))
@settings(max_examples=60)
def test_a_mistake_is_stopped_by_its_gate_or_does_no_harm(
    gate: str, mistakes: Mistakes, before: int, between: list[int], delay: int
) -> None:
    world = World(mistakes=mistakes, delay=delay, servers=2)
    world.tick(before)
    told = cutover(world, ALL, iter(between))
    assert told in (gate, "opened")
    if told == "opened":
        assert after(world) == []

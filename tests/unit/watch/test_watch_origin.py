"""The changefeed of another cluster: only a row that the target itself changed at a commit timestamp ties the two."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from migverify.errors import ReadError
from migverify.tables import watch_origin
from migverify.tables.watch import TablesWatch
from migverify.tables.watch_origin import REFUTES, TRIES, FeedOrigin
from migverify.watch.ledger import KeyState, Ledger, LedgerKey
from migverify.watch.loop import Ending
from tests.toy_tables import RULES, make_pair

START = 1_764_000_000_000 << 18
MILLISECOND = 1 << 18


class Target:
    """The versions of a TiDB's rows."""

    def __init__(self) -> None:
        self.versions: dict[str, list[tuple[int, str | None]]] = {}
        self.failure: ReadError | None = None

    def write(self, key: str, commit: int, value: str | None) -> None:
        self.versions.setdefault(key, []).append((commit, value))

    def elements(self, _: FeedOrigin, change: Any, moment: int) -> set[bytes]:
        if self.failure is not None:
            raise self.failure
        assert moment % MILLISECOND == 0, "AS OF takes whole milliseconds"
        values = [value for commit, value in self.versions.get(change.key[0], []) if commit <= moment]
        return {values[-1].encode()} if values and values[-1] is not None else set()


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Target:
    made = Target()
    monkeypatch.setattr(FeedOrigin, "_elements", lambda *arguments: made.elements(*arguments))
    monkeypatch.setattr(watch_origin, "PAUSE_SECONDS", 0.0)
    return made


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(Ledger(tmp_path / "w.db")) as made:
        yield made


def origin_of(ledger: Ledger, feed: str = "canal-json b t") -> FeedOrigin:
    return FeedOrigin(SimpleNamespace(), RULES, feed, ledger)  # type: ignore[arg-type]


def carried(key: str, commit: int, *, there: bool = True, origin: str = "") -> LedgerKey:
    return LedgerKey(0, (key,), 0, commit, 1, 0.0, KeyState.PENDING, 0, None, None, {}, False, origin, there)


def ask_all(origin: FeedOrigin) -> None:
    while origin.claim_turn():
        origin.ask()
    origin.record()


def commits(seed: int, count: int) -> list[tuple[str, int, str | None]]:
    """Writes of few keys: a row comes, changes and goes."""
    rng, at, found = random.Random(seed), START, []
    for n in range(count):
        at += rng.randrange(1, 40 * MILLISECOND)
        found.append((str(rng.randrange(8)), at, None if rng.random() < 0.2 else f"v{n}"))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_the_targets_own_feed_is_known_and_that_is_kept(target: Target, ledger: Ledger, seed: int) -> None:
    writes = commits(seed, 60)
    for key, at, value in writes:
        target.write(key, at, value)
    origin = origin_of(ledger)
    origin.offer(make_pair(), [carried(key, at, there=value is not None) for key, at, value in writes])
    assert "is not known to be that of this target" in origin.reason()
    ask_all(origin)
    assert (origin.is_proved, origin.is_refuted, origin.reason()) == (True, False, "")
    assert origin_of(ledger).is_proved
    assert not origin_of(ledger, "canal-json b another").is_proved


@pytest.mark.parametrize("seed", range(5))
def test_the_feed_of_another_cluster_with_rows_of_its_own_is_refused(target: Target, ledger: Ledger, seed: int) -> None:
    for key, at, value in commits(seed, 60):
        target.write(key, at, value)
    origin = origin_of(ledger)
    for n in range(2 * REFUTES):
        origin.offer(make_pair(), [carried(f"other {n}", START + n * MILLISECOND + 7)])
        ask_all(origin)
    assert (origin.is_proved, origin.is_refuted, origin.is_open) == (False, True, False)
    assert "is that of another cluster" in origin.reason()
    watch = SimpleNamespace(origin=origin)
    assert TablesWatch.ending(watch) is Ending.FAILED  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(5))
def test_the_feed_of_a_copy_that_gets_the_same_rows_is_never_taken_for_this_one(
    target: Target, ledger: Ledger, seed: int
) -> None:
    """The same keys and values, committed there some milliseconds later: rows agree, and nothing changed then."""
    origin = origin_of(ledger)
    for n in range(60):
        target.write(str(n), START + 100 * n * MILLISECOND, "v")
        late = START + (100 * n + 1 + random.Random(seed + n).randrange(90)) * MILLISECOND
        origin.offer(make_pair(), [carried(str(n), late + 1)])
        ask_all(origin)
    assert (origin.is_proved, origin.is_refuted, origin.is_open) == (False, False, False)
    assert "no row that it carried was seen to change there" in origin.reason()


def test_one_row_that_came_and_went_at_once_does_not_refuse_the_feed(target: Target, ledger: Ledger) -> None:
    origin = origin_of(ledger)
    for _ in range(2 * REFUTES):
        origin.offer(make_pair(), [carried("1", START + 5)])
        ask_all(origin)
    assert not origin.is_refuted
    assert not target.versions


def test_a_past_that_cannot_be_read_is_no_proof(target: Target, ledger: Ledger) -> None:
    origin = origin_of(ledger)
    assert (origin.reason(), origin.is_open) == ("", False), "a feed that carried nothing has a reason of its own"
    target.failure = ReadError("GC life time is shorter than transaction duration")
    target.write("1", START + 5, "v")
    origin.offer(make_pair(), [carried("1", START + 5), carried("2", 0, origin="run r0")])
    asked = 0
    while origin.claim_turn():
        assert origin.is_open
        origin.ask()
        asked += 1
    assert (asked, origin.is_proved, origin.is_open) == (TRIES, False, False)
    assert "GC life time is shorter" in origin.reason()
    target.failure = None
    origin.offer(make_pair(), [carried("1", START + 5)])
    ask_all(origin)
    assert origin.is_proved

"""The governor of connections: it grows to what the servers hold, shrinks under load, and comes back."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from migverify.config.settings import LoadLimits
from migverify.model import ChunkChecksum, ChunkResult, ChunkState, KeyRange, StoredKind, Verdict
from migverify.tables.governor import ConnectionGovernor, room
from migverify.tables.tasks import TaskOutcome
from migverify.tables.verify import Controls, verify_tables
from tests.fakes import FakeStore
from tests.toy_tables import RULES, ToyEngine, ToySide, make_pair


def read(
    seconds: tuple[float, float], rows: int = 1000, running: tuple[int | None, ...] = (), pair: str = "app.t"
) -> TaskOutcome:
    sums = ChunkChecksum(rows, rows, 1)
    chunk = ChunkResult(pair, 0, 0, KeyRange(), ChunkState.EQUAL, sums, sums, 0.0, sum(seconds), *seconds)
    return TaskOutcome("span", pair, chunks=(chunk,), running=running)


class Server:
    """Works on ``cores`` statements at once; more of them share its time. ``others`` of other clients do too."""

    def __init__(self, cores: int, seed: int = 1, noise: float = 0.2) -> None:
        self.cores, self.others, self.noise, self.random = cores, 0, noise, random.Random(seed)

    def seconds(self, active: int) -> float:
        return max(1.0, (active + self.others) / self.cores) * self.random.uniform(1, 1 + self.noise)


def drive(
    governor: ConnectionGovernor,
    source: Server,
    target: Server,
    answers: int,
    *,
    rows: Callable[[], int] = lambda: 1000,
) -> list[int]:
    used = []
    for _ in range(answers):
        active, n = governor.allowed, rows()
        times = tuple(server.seconds(active) * n / 1000 for server in (source, target))
        governor.note(read((times[0], times[1]), n), active)
        used.append(governor.allowed)
    return used


def test_it_grows_from_one_to_the_limit_where_the_servers_are_fast() -> None:
    governor = ConnectionGovernor(32, 2.0)
    used = drive(governor, Server(100), Server(100), 400)
    assert used[0] == 1
    assert used[-1] == 32
    assert governor.decreases == 0
    assert governor.facts()["most"] == 32


@pytest.mark.parametrize("cores", [4, 8, 16])
def test_it_stays_near_what_the_slower_server_works_on_at_once(cores: int) -> None:
    governor = ConnectionGovernor(64, 2.0)
    used = drive(governor, Server(64), Server(cores), 3000)[500:]
    assert cores / 2 <= sum(used) / len(used) <= 2.5 * cores
    assert min(used) >= 1


def test_it_gives_way_to_a_load_and_comes_back_after_it() -> None:
    governor, target = ConnectionGovernor(16, 2.0), Server(16)
    assert drive(governor, Server(64), target, 300)[-1] == 16
    target.others = 64
    assert drive(governor, Server(64), target, 300)[-1] <= 4
    target.others = 0
    assert drive(governor, Server(64), target, 600)[-1] == 16


def test_rows_that_are_slower_for_good_do_not_hold_it_at_one_connection() -> None:
    governor = ConnectionGovernor(8, 2.0)
    for seconds in [0.1] * 100 + [0.5] * 2000:
        governor.note(read((seconds, seconds)), governor.allowed)
    assert governor.allowed == 8


def test_rows_of_other_lengths_in_another_table_are_no_load() -> None:
    governor = ConnectionGovernor(8, 2.0)
    for n in range(400):
        long = n // 20 % 2
        governor.note(read((9.0, 9.0) if long else (0.1, 0.1), pair=f"app.t{long}"), governor.allowed)
    assert governor.allowed == 8
    assert governor.decreases == 0


def test_statements_of_others_hold_it_back_before_it_is_slow() -> None:
    governor = ConnectionGovernor(16, 2.0)
    for running in [2] * 60 + [60] * 60:
        governor.note(read((1.0, 1.0), running=(running + governor.allowed, None)), governor.allowed)
    assert governor.allowed == 1
    assert "running statements of the source" in governor.facts()["signals"]
    assert "running statements of the target" not in governor.facts()["signals"]
    assert any("statements of others run on the source" in change for change in governor.facts()["changes"])


def test_what_it_allows_is_never_exceeded_and_at_the_limit_some_wait_in_the_engine() -> None:
    governor = ConnectionGovernor(4, 2.0)
    assert room(governor, 4, 2, [])
    assert not room(governor, 4, 2, [1])
    governor.allowed = 4
    assert room(governor, 4, 2, [1] * 5)
    assert not room(governor, 4, 2, [1] * 6)
    assert room(None, 4, 2, [1] * 5)


def test_a_governed_run_has_the_verdict_of_any_other() -> None:
    rows = dict.fromkeys(range(1, 500), "v")
    for target, verdict in ((dict(rows), Verdict.MATCH), ({**rows, 77: "other"}, Verdict.MISMATCH)):
        store, pair, governor = FakeStore(), make_pair(), ConnectionGovernor(4, 2.0)
        run = store.start_run("verify", "h", {"pairs": [{"id": pair.id}]}, {}, kind=StoredKind.TABLES)
        engine = ToyEngine(ToySide(dict(rows)), ToySide(dict(target)), slots=4)
        assert verify_tables([pair], engine, store, run, RULES, Controls(governor=governor)) is verdict


def test_the_setting_is_a_factor_above_one_and_off_by_default() -> None:
    assert LoadLimits().latency_factor is None
    with pytest.raises(ValueError, match="greater than 1"):
        LoadLimits(latency_factor=1.0)

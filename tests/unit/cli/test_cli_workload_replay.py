"""``workload replay`` at the terminal: what it refuses before it asks a server anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from migverify.cli import workload_replay
from migverify.cli.main import run as run_command
from migverify.cli.workload_replay_setup import ReplaySetup, set_up
from migverify.config import ServiceLevel, load_config
from migverify.errors import ConfigError, UsageError
from migverify.model import Endpoint, Side
from migverify.workload.replay.connections import EngineOptions
from migverify.workload.replay.engine import Start
from migverify.workload.replay.run import Share
from migverify.workload.replay.safety import Leave, ReplayEndpoints

CONFIG = """
source: {host: s, user: u, connections: 6, password_env: REPLAY_TEST_SECRET}
target: {host: t, user: u, connections: 5}
workload:
  pace: x2
  protocol: text
  noise: 0.25
  idle_seconds: 1.5
  clone_marker: m.clones
  service_levels: {checkout: {writes: 1, reads: 2, seconds: 0.5}}
"""


def made(
    config: Path, settings: dict[str, object] | None = None, levels: tuple[str, ...] = (), **more: bool
) -> ReplaySetup:
    leave = Leave(writes=more.pop("writes", False))
    rights = {"reads_only": False, "target_only": False, "accept_write_grants": False} | more
    return set_up(config, settings or {}, levels, leave, **rights)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(os.environ, "REPLAY_TEST_SECRET", "hunter2-xyz")
    path = tmp_path / "m.yaml"
    path.write_text(CONFIG)
    return path


def test_plans_are_compared_and_need_both_sides(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["workload", "replay", "c", "-c", str(config), "--plans", "--target-only"]) == 2
    assert "Leave --target-only out" in capsys.readouterr().err


def test_options_are_those_of_the_configuration_unless_said(config: Path) -> None:
    setup = made(config, levels=("checkout", "payments"))
    options = setup.options
    assert (str(options.pace), options.text, options.noise) == ("x2", True, 0.25)
    assert (options.connections, setup.workload.idle_seconds, setup.workload.jobs) == (64, 1.5, 1)
    assert list(setup.levels) == ["checkout", "payments"]
    assert setup.levels["checkout"] == ServiceLevel(writes=1.0, reads=2.0, quantile=0.99, seconds=0.5)
    said = {"pace": "fast", "protocol": "as-captured", "noise": 0.0, "connections": 3, "idle_seconds": 0.0}
    setup = made(config, said, target_only=True)
    assert (str(setup.options.pace), setup.options.text, setup.options.noise) == ("fast", False, 0)
    assert (setup.options.connections, setup.workload.idle_seconds) == (3, 0)
    assert list(setup.sides.endpoints) == [Side.TARGET]
    assert not setup.options.writes
    assert made(config, writes=True).options.writes


def test_wrong_options_are_refused(config: Path) -> None:
    with pytest.raises(UsageError, match="service level"):
        made(config, levels=("nothing",))
    with pytest.raises(UsageError, match="pace"):
        made(config, {"pace": "warp"})


def test_shards_are_refused_unless_the_target_is_asked_alone(config: Path) -> None:
    config.write_text(
        CONFIG.replace("source: {", "sources: {a: {host: b, user: u}, c: {").replace("SECRET}", "SECRET}}")
    )
    with pytest.raises(ConfigError, match="2 sources"):
        made(config)
    assert list(made(config, target_only=True).sides.endpoints) == [Side.TARGET]


@pytest.mark.parametrize("text", ["pace: 2x", "noise: 2", "service_levels: {a: {writes: 0, reads: 0, seconds: 1}}"])
def test_a_wrong_section_is_refused(config: Path, text: str) -> None:
    config.write_text(CONFIG.partition("workload:")[0] + "workload: {" + text + "}\n")
    with pytest.raises(ConfigError):
        load_config(config)


def test_options_that_contradict_each_other(config: Path) -> None:
    with pytest.raises(UsageError, match="reads-only"):
        workload_replay.replay(Path("c"), config, reads_only=True, writes=True)
    with pytest.raises(UsageError, match="resumed"):
        workload_replay.replay(Path("c"), config, resume="last", limit=3)
    with pytest.raises(UsageError, match="ISO"):
        workload_replay.replay(Path("c"), config, start="yesterday")


def test_heavier_loads_ask_reads_alone_and_headroom_is_that_of_a_level(config: Path) -> None:
    with pytest.raises(UsageError, match="a write can be asked once"):
        workload_replay.replay(Path("c"), config, rates="1.3", writes=True)
    with pytest.raises(UsageError, match="no list of loads"):
        workload_replay.replay(Path("c"), config, rates="fast")
    with pytest.raises(UsageError, match="needs a service level"):
        workload_replay.replay(Path("c"), config, headroom=1.3)
    assert made(config, levels=("checkout",)).levels["checkout"].headroom is None
    wanted = set_up(
        config, {}, ("checkout",), Leave(), reads_only=False, target_only=False, accept_write_grants=False, headroom=1.3
    )
    assert wanted.levels["checkout"].headroom == 1.3


def test_a_capture_that_is_none_is_refused_before_servers(config: Path) -> None:
    for explain in (True, False):
        with pytest.raises(UsageError, match="holds no capture"):
            workload_replay.replay(config.parent, config, explain=explain)


def test_no_password_is_shown(config: Path) -> None:
    setup = made(config)
    share = Share(Path("f"), 1, setup.sides.endpoints, setup.sides.secrets, EngineOptions(), Start(0))
    assert setup.sides.secrets == {"source": "hunter2-xyz"}
    sides = ReplayEndpoints({Side.SOURCE: Endpoint("source", "h", 1, "u")}, {"source": "hunter2-xyz"})
    for shown in (repr(setup), repr(share), repr(sides), str(setup.sides)):
        assert "hunter2" not in shown

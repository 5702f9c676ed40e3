"""``workload replay`` at the terminal: what it refuses before it asks a server anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from migverify.cli import workload_replay
from migverify.cli.workload_replay_setup import Given, set_up
from migverify.config import ServiceLevel, load_config
from migverify.errors import ConfigError, UsageError
from migverify.model import Endpoint, Side
from migverify.workload.replay.asking import Protocol
from migverify.workload.replay.engine import Start
from migverify.workload.replay.links import EngineOptions
from migverify.workload.replay.safety import Leave
from migverify.workload.replay.sides import Sides
from migverify.workload.replay.worker import Share

CONFIG = """
source: {host: s, user: u, connections: 6, password_env: REPLAY_TEST_SECRET}
target: {host: t, user: u, connections: 5}
workload:
  pace: x2
  protocol: both
  noise: 0.25
  idle_seconds: 1.5
  clone_marker: m.clones
  service_levels: {checkout: {writes: 1, reads: 2, seconds: 0.5}}
"""


def given(**more: object) -> Given:
    told: dict[str, object] = {
        "pace": None, "protocol": None, "noise": None, "jobs": None, "connections": None, "max_lag": None, "idle": None,
        "slo": (), "leave": Leave(), "reads_only": False, "target_only": False, "accept_write_grants": False,
    }  # fmt: skip
    return Given(**(told | more))  # type: ignore[arg-type]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(os.environ, "REPLAY_TEST_SECRET", "hunter2-xyz")
    path = tmp_path / "m.yaml"
    path.write_text(CONFIG)
    return path


def test_options_are_those_of_the_configuration_unless_said(config: Path) -> None:
    setup = set_up(config, given(slo=("checkout", "payments")))
    options = setup.options
    assert (str(options.pace), options.ask.protocol, options.ask.noise) == ("x2", Protocol.BOTH, 0.25)
    assert (options.connections, setup.idle, setup.jobs) == (64, 1_500_000, 1)
    assert [level.name for level in setup.levels] == ["checkout", "payments"]
    assert load_config(config).workload.service_levels == {
        "checkout": ServiceLevel(writes=1.0, reads=2.0, quantile=0.99, seconds=0.5)
    }
    setup = set_up(config, given(pace="fast", protocol="text", noise=0.0, connections=3, idle=0.0, target_only=True))
    assert (str(setup.options.pace), setup.options.ask.protocol, setup.options.ask.noise) == ("fast", Protocol.TEXT, 0)
    assert (setup.options.connections, setup.idle, list(setup.sides.endpoints)) == (3, 0, [Side.TARGET])
    assert not setup.options.writes
    assert set_up(config, given(leave=Leave(writes=True))).options.writes


@pytest.mark.parametrize(
    ("more", "message"), [({"slo": ("nothing",)}, "service level"), ({"pace": "warp"}, "pace")]
)  # fmt: skip
def test_wrong_options_are_refused(config: Path, more: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        set_up(config, given(**more))


def test_shards_are_refused_unless_the_target_is_asked_alone(config: Path) -> None:
    config.write_text(
        CONFIG.replace("source: {", "sources: {a: {host: b, user: u}, c: {").replace("SECRET}", "SECRET}}")
    )
    with pytest.raises(ConfigError, match="2 sources"):
        set_up(config, given())
    assert list(set_up(config, given(target_only=True)).sides.endpoints) == [Side.TARGET]


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


def test_a_capture_that_is_none_is_refused_before_servers(config: Path) -> None:
    for explain in (True, False):
        with pytest.raises(UsageError, match="holds no capture"):
            workload_replay.replay(config.parent, config, explain=explain)


def test_no_password_is_shown(config: Path) -> None:
    setup = set_up(config, given())
    share = Share(Path("f"), 1, 0, (), setup.sides.endpoints, setup.sides.secrets, EngineOptions(), Start(0))
    assert setup.sides.secrets == {"source": "hunter2-xyz"}
    sides = Sides({Side.SOURCE: Endpoint("source", "h", 1, "u")}, {"source": "hunter2-xyz"})
    for shown in (repr(setup), repr(share), repr(sides), str(setup.sides)):
        assert "hunter2" not in shown

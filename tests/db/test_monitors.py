"""``migverify guard monitors`` with a real Prometheus: stopped, restarted, starved, it is blind, and never fine."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migverify.config import ExpectedJob, ExpectedSeries, MonitorSettings
from migverify.guards.model import AnswerState, GuardAnswer, GuardResult
from migverify.guards.monitors import MonitorsGuard
from migverify.guards.prometheus import Prometheus
from migverify_lab.process import free_port
from migverify_lab.servers import LabServers
from tests.db.prometheus_server import Exporter, Server, prometheus_server
from tests.db.verifying import write_config
from tests.waiting import wait_for

pytestmark = pytest.mark.db

PATIENCE = 90.0
LAG = 'lag_seconds{shard="a"} 1\nlag_seconds{shard="b"} 2\n'


class World:
    """A Prometheus that scrapes one page, and a guard that expects both."""

    def __init__(self, server: Server, exporter: Exporter) -> None:
        self.server, self.exporter = server, exporter
        self.address = f"127.0.0.1:{exporter.port}"
        self.settings = MonitorSettings(
            prometheus=server.url, timeout_seconds=2.0, max_age_seconds=6.0, watchdog="Watchdog",
            jobs={"exporter": ExpectedJob(instances=(self.address,), max_age_seconds=6.0)},
            series={
                "lag": ExpectedSeries(query="lag_seconds", series=2, job="exporter", max=5.0),
                "queries": ExpectedSeries(query="sum(rate(queries_total[8s]))", min=0.5),
            },
        )  # fmt: skip

    def ask(self, settings: MonitorSettings | None = None) -> GuardResult:
        return MonitorsGuard(settings or self.settings).ask()

    def until(
        self, state: AnswerState, name: str = "", settings: MonitorSettings | None = None, words: str = ""
    ) -> GuardAnswer | None:
        """Ask until the whole, or one answer (``name subject``), has a state."""
        last: list[GuardResult] = []

        def answered() -> tuple[GuardAnswer | None] | None:
            last[:] = [self.ask(settings)]
            found = {f"{a.name} {a.subject}": a for a in last[0].answers}[name] if name else None
            good = (found.state if found else last[0].state) is state and (not found or words in found.value)
            return (found,) if good else None

        try:
            (answer,) = wait_for(answered, f"{name or 'the guard'} to be {state}", every=0.2)
        except AssertionError as error:
            raise AssertionError(
                f"{error}: {[(a.name, a.subject, a.state, a.value) for a in last[0].answers]}"
            ) from None
        return answer  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    exporter = Exporter()
    exporter.page = LAG
    exporter.start()
    try:
        with prometheus_server(tmp_path_factory.mktemp("prometheus")) as server:
            server.jobs = {"exporter": [f"127.0.0.1:{exporter.port}"]}
            server.start()
            yield World(server, exporter)
    finally:
        exporter.stop()


@pytest.fixture
def world(started: World) -> Iterator[World]:
    """A world in which everything passes, before and after."""
    started.until(AnswerState.PASS)
    yield started
    started.until(AnswerState.PASS)


def test_all_is_seen(world: World) -> None:
    result = world.ask()
    assert {a.name for a in result.answers} == {
        "clock", "server", "retention", "rules", "watchdog", "targets", "value"
    }  # fmt: skip
    assert all(a.server_time and abs(a.server_time - a.local_time) < 60 for a in result.answers)
    assert all(a.query.startswith(f"GET {world.server.url}/api/v1/") for a in result.answers)


def test_a_frozen_server_blinds_everything(world: World) -> None:
    world.server.signal(signal.SIGSTOP)
    try:
        result = world.ask()
        assert {a.state for a in result.answers} == {AnswerState.INCONCLUSIVE}
        assert all("does not answer" in a.value for a in result.answers)
    finally:
        world.server.signal(signal.SIGCONT)


def test_a_stopped_server_blinds_everything_and_comes_back(world: World) -> None:
    world.server.stop()
    try:
        assert {a.state for a in world.ask().answers} == {AnswerState.INCONCLUSIVE}
    finally:
        world.server.start()
    # The window of the rate holds too few samples at first: that is partial, and not a low rate.
    world.until(AnswerState.PASS, "targets exporter")


def test_a_lost_target_fails_and_its_values_are_blind(world: World) -> None:
    world.exporter.stop()
    try:
        found = world.until(AnswerState.FAIL, "targets exporter")
        assert found is not None
        assert f"{world.address} is down" in found.value
        world.until(AnswerState.INCONCLUSIVE, "value lag", words="absent")
        world.until(AnswerState.INCONCLUSIVE, "value queries")
    finally:
        world.exporter.start()


def test_a_target_that_nobody_scrapes_any_more(world: World) -> None:
    world.server.jobs = {"exporter": []}
    world.server.reload()
    try:
        world.until(AnswerState.INCONCLUSIVE, "targets exporter", words="blind")
        world.until(AnswerState.INCONCLUSIVE, "value lag", words="absent")
    finally:
        world.server.jobs = {"exporter": [world.address]}
        world.server.reload()


def test_samples_of_a_while_ago_are_stale(world: World) -> None:
    # With a time of its own a sample outlives its scrape: an instant query shows it for five minutes as of now.
    past = int((time.time() - 60) * 1000)
    world.exporter.page = LAG + f"copied {7} {past}\n"
    stale = world.settings.model_copy(
        update={"series": {"copied": ExpectedSeries(query="max(copied)", max_age_seconds=6.0)}}
    )
    try:
        found = world.until(AnswerState.INCONCLUSIVE, "value copied", stale, "s old")
        assert found is not None
        assert found.numbers["max"] == 7.0
    finally:
        world.exporter.page = LAG


def test_a_counter_that_begins_anew_is_no_negative_rate(world: World) -> None:
    world.exporter.counter = 0
    seen = []
    for _ in range(12):
        answer = next(a for a in world.ask().answers if a.subject == "queries")
        assert answer.state is not AnswerState.FAIL
        seen.append(answer.numbers.get("min", math.inf))
        time.sleep(0.25)
    assert min(seen) >= 0
    samples = Prometheus(world.server.url, 2.0).vector("resets(queries_total[60s])")
    assert [one.value for one in samples] == [1.0]


def test_a_refused_configuration_fails(world: World) -> None:
    (world.server.folder / "prometheus.yml").write_text("scrape_configs: 5\n")
    world.server.signal(signal.SIGHUP)
    try:
        world.until(AnswerState.FAIL, f"server {world.server.url}")
    finally:
        world.server.reload()


def test_the_watch_alarms_and_its_own_page_is_the_heartbeat(world: World, pair: LabServers, tmp_path: Path) -> None:
    port = free_port()
    config = write_config(
        tmp_path, pair, "no_such_database",
        monitors={
            "prometheus": world.server.url, "timeout_seconds": 2.0, "max_age_seconds": 8.0, "watchdog": "Watchdog",
            "heartbeat": "max(migverify_guard_time_seconds)", "jobs": {"exporter": [world.address]},
        },
    )  # fmt: skip
    world.server.jobs["watch"] = [f"127.0.0.1:{port}"]
    world.server.reload()
    command = [
        sys.executable,
        "-m",
        "migverify",
        "guard",
        "monitors",
        "--config",
        str(config),
        "--watch",
        "--every",
        "1",
    ]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [*command, "--metrics-port", str(port), "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env=environment,
    ) as process:  # fmt: skip
        try:
            lines = iter(process.stdout or ())
            _read_until(lines, "MATCH")
            world.server.signal(signal.SIGSTOP)
            blind = _read_until(lines, "INCONCLUSIVE")
            told = {c["name"] for c in blind["changes"] if c["after"] == "inconclusive"}
            assert {"heartbeat", "watchdog", "targets", "clock"} <= told
            # The servers are asked themselves meanwhile, and say so.
            assert any("SQL fallback" in c["name"] and c["after"] == "pass" for c in blind["changes"])
            world.server.signal(signal.SIGCONT)
            _read_until(lines, "MATCH")
        finally:
            world.server.signal(signal.SIGCONT)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
            del world.server.jobs["watch"]
            world.server.reload()
    assert process.returncode == 130


def _read_until(lines: Iterator[str], verdict: str) -> dict[str, Any]:
    for count, line in enumerate(lines):
        told = json.loads(line)
        if told["verdict"] == verdict:
            return dict(told)
        assert count < PATIENCE, line
    pytest.fail("the watch ended")

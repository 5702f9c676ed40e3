"""``migverify lab chaos`` without a server: one clear error, and no answer where nothing can be seen."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from migverify.cli.main import run
from migverify_lab import chaos
from migverify_lab.chaos_world import CaseWorkspace


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CaseWorkspace:
    monkeypatch.setenv("MIGVERIFY_LAB_DIR", str(tmp_path))
    return CaseWorkspace(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["inject", "mysql-kiled"], "no fault is called"),
        (["inject", "mysql-killed", "--set", "side"], "not a setting"),
        (["inject", "mysql-killed", "--set", "speed=1"], "no setting"),
        (["inject", "mysql-killed", "--dud", "perhaps"], "--dud perhaps"),
        (["hit", "mysql-killed"], "was not injected here"),
        (["record", "mysql-killed"], "was not injected here"),
        (["data"], "needs a load"),
        (["recovery", "mysql-killed"], "was not injected here"),
    ],
)
@pytest.mark.usefixtures("world")
def test_bad_input_gets_one_clear_error(arguments: list[str], words: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["lab", "chaos", *arguments]) == 2
    assert words in capfd.readouterr().err


@pytest.mark.usefixtures("world")
def test_no_load_is_not_steady(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["lab", "chaos", "steady"]) == 1
    assert "no load is on" in capfd.readouterr().out


def test_what_cannot_be_seen_is_no_answer(world: CaseWorkspace, capfd: pytest.CaptureFixture[str]) -> None:
    world.write("faults/mysql-killed", {"injected": time.monotonic(), "removed": None})
    assert run(["lab", "chaos", "hit", "mysql-killed", "--json"]) == 3
    assert json.loads(capfd.readouterr().out)["good"] is None, "nobody knows where the server is"


def test_a_dud_says_it_acted_and_did_nothing(world: CaseWorkspace) -> None:
    fault = chaos.find("clock-shift-ids")
    settings = fault.settings_with({})
    chaos.inject(world, fault, settings, dud=True)
    assert chaos.record_of(world, fault.name)["injected"] is not None
    assert not world.clock_path.exists()
    chaos.inject(world, fault, settings)
    assert world.clock_path.read_text() == "-4000"
    chaos.remove(world, fault, settings, dud=True)
    assert world.clock_path.exists()
    assert chaos.record_of(world, fault.name)["removed"] is not None
    first = chaos.record_of(world, fault.name)["removed"]
    chaos.remove(world, fault, settings)
    chaos.remove(world, fault, settings)
    assert not world.clock_path.exists()
    assert chaos.record_of(world, fault.name)["removed"] == first, "the first removal counts"


@pytest.mark.usefixtures("world")
def test_nothing_runs_beside_a_new_lab(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["lab", "chaos", "stopped"]) == 0
    assert run(["lab", "chaos", "stop"]) == 0
    assert run(["lab", "chaos", "list"]) == 0
    assert "mysql-killed" in capfd.readouterr().out


def test_a_process_of_a_case_is_found_again_and_ended(world: CaseWorkspace) -> None:
    process = world.start_job("sleeper", ["60"], command=("sleep",))
    assert CaseWorkspace(world.directory).job("sleeper") == process
    assert world.jobs() == ["sleeper"]
    assert world.stop_job("sleeper")
    assert world.jobs() == []
    assert not world.stop_job("sleeper")


@pytest.mark.usefixtures("world")
def test_a_process_that_nobody_knows_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["lab", "job", "nothing"]) == 2
    assert "no process is called" in capfd.readouterr().err

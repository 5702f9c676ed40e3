"""Shares of traffic on real nginx: every change is served by all or by none, and every write is on one side."""

from __future__ import annotations

import http.client
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from migverify.errors import TrafficError
from migverify.runbook.actions.action import ActionResult, Context, Outcome, Registry
from migverify.runbook.actions.registry import full_registry
from migverify.runbook.events import RollbackState, RunState, StepState
from migverify.runbook.kinds import StepKind
from migverify.runbook.model import Check, Effect, Rollback, Step
from migverify.runbook.run import machine
from migverify.runbook.state import RunStatus
from migverify.runbook.traffic import actions as actions_traffic
from migverify.runbook.traffic.access_log import parse_line
from migverify.runbook.traffic.actions import driver_of
from migverify.runbook.traffic.change import begin
from migverify.runbook.traffic.document import load_traffic
from migverify.runbook.traffic.model import goes_to_new
from migverify_lab import chaos, nginx
from migverify_lab.nginx import Instance, NginxFleet
from migverify_lab.nginx_load import balance
from migverify_lab.process import is_alive
from tests.unit.runbook_effects import has_intent, killed_while, rolled_back, run_unattended, settled, taken_over
from tests.unit.runbook_runs import ALICE, DANA, step
from tests.waiting import wait_for

pytestmark = pytest.mark.db

ROOT = Path(__file__).parents[2]
KEYS = 3000


@pytest.fixture(scope="module")
def command() -> tuple[str, ...]:
    if nginx.find() is None and os.environ.get("MIGVERIFY_REQUIRE_DB", "") in {"", "0"}:
        pytest.skip("no nginx")
    return nginx.provide(lambda _: None)


def context(timeout: float = 120.0) -> Context:
    return Context("run", "step", 1, 1, timeout, threading.Event())


class Lab:
    """A world, and the actions of traffic on it."""

    def __init__(self, world: NginxFleet) -> None:
        self.world, self.registry = world, Registry()
        actions_traffic.register(self.registry)

    def do(self, name: str, **arguments: Any) -> ActionResult:
        return self.registry.run(f"traffic.{name}", {"traffic": str(self.world.traffic), **arguments}, context())

    def share(self) -> float | str | bool | None:
        return self.do("configured").value

    def until(self, name: str, **arguments: Any) -> ActionResult:
        """Ask until there is an answer."""

        def answer() -> ActionResult | None:
            found = self.do(name, **arguments)
            return found if found.outcome is Outcome.OK else None

        found: ActionResult = wait_for(answer, f"an answer of traffic.{name}", every=0.2)
        return found

    def measured(self, share: float) -> None:
        for name, more in (("share", {"share": share}), ("sticky", {})):
            found = self.until(name, **more)
            assert found.value is True, found.text


def make(folder: Path, command: tuple[str, ...], *, instances: int = 2, more: str = "tolerance: 6") -> NginxFleet:
    world = nginx.make(folder, instances, command)
    world.traffic.write_text(world.traffic_text(settle=12, more=more))
    begin(driver_of(load_traffic(world.traffic), context()))
    return world


@pytest.fixture(scope="module")
def shared(command: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[NginxFleet]:
    world = make(tmp_path_factory.mktemp("nginx") / "lab", command, more="tolerance: 6\nladder: [5, 50, 100]")
    try:
        world.start()
        world.start_load(rate=250, keys=KEYS)
        yield world
    finally:
        world.stop()


@pytest.fixture
def lab(shared: NginxFleet) -> Iterator[Lab]:
    yield Lab(shared)
    for one in shared.instances:
        for name in ("broken-config", "stolen-port"):
            if (one.folder / "conf.d" / "fault.conf").exists():
                chaos.find(name).remove(shared, {"instance": one.name})
        one.start()
    shared.set_fault("new")
    found = Lab(shared).do("abort", share=0)
    assert found.value == 0, found.text


def test_the_whole_way_up_and_down_is_measured(lab: Lab) -> None:
    lab.measured(0)
    for share, expected in ((5, 0), (50, 5), (100, 50)):
        found = lab.do("set", share=share, expected=expected)
        assert found.value == share, found.text
        assert lab.do("served").value == share
        lab.measured(share)
    found = lab.do("bake", share=100, seconds=0.5, every=0.5, max_errors=0, max_p99=5000)
    assert found.value is True, found.text
    assert lab.do("abort", share=5).value == 5
    lab.measured(5)
    assert balance(lab.world.folder).good


def test_the_side_of_every_key_is_the_one_foretold(lab: Lab) -> None:
    chance = random.Random(7)
    keys = [chance.randbytes(chance.randrange(1, 40)) for _ in range(300)] + [b"", b"-", b'\xff\x00\t\n"\\']
    one = lab.world.instances[0]
    for share, expected in ((5, 0), (50, 5)):
        assert lab.do("set", share=share, expected=expected).value == share
        for key in keys:
            text = quote(key, safe="")
            side = ask(one.port, f"/look?key={text}")
            assert side == ("new" if goes_to_new(text.encode(), share * 100) else "old"), (key, share)
    asked = {quote(key, safe="").encode() for key in keys}
    wait_for(lambda: asked <= seen(one), "a line of every request, which nginx writes after its answer")


def seen(one: Instance) -> set[bytes]:
    """Return the keys of all whole lines of a log that goes on."""
    whole = one.access_log.read_bytes().rpartition(b"\n")[0].splitlines()
    written = [parse_line(raw) for raw in whole]
    assert all(line is not None for line in written)
    return {line.key for line in written if line is not None}


def ask(port: int, target: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", target)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return str(answer.getheader("X-Side"))


@pytest.mark.parametrize("name", ["broken-config", "stolen-port"])
@pytest.mark.parametrize("instance", ["a", pytest.param("b", marks=pytest.mark.soak)])
def test_a_change_that_one_instance_cannot_take_is_put_back(lab: Lab, name: str, instance: str) -> None:
    assert lab.do("set", share=5, expected=0).value == 5
    fault, settings = chaos.find(name), {"instance": instance}
    fault.inject(lab.world, settings)
    assert fault.hit(lab.world, settings, 0.0).good
    found = lab.do("set", share=50, expected=5)
    assert found.outcome is Outcome.FAILED, found.text
    assert found.evidence["result"] == "put back", found.text
    assert lab.share() == 5
    lab.measured(5)
    fault.remove(lab.world, settings)
    # A port is free when its last socket has been given up.
    wait_for(lambda: fault.gone(lab.world, settings, 0.0).good, "the fault is gone")
    assert lab.do("set", share=50, expected=5).value == 50


def test_a_dead_master_keeps_the_old_share_and_an_abort_says_so(lab: Lab) -> None:
    assert lab.do("set", share=5, expected=0).value == 5
    one = lab.world.instances[0]
    one.kill_master()
    found = lab.do("set", share=50, expected=5)
    assert found.outcome is Outcome.FAILED
    # Until its parent has taken note of its end, a killed master still accepts signals: then the workers say it.
    assert "the reload failed" in found.text or "a does not serve 50 %" in found.text
    assert lab.share() == 5, "orphaned workers serve on, and the file says what they serve"
    found = lab.do("abort", share=0)
    assert found.outcome is Outcome.NO_DATA
    assert "a serves 5 %" in found.text
    assert lab.do("configured").outcome is Outcome.NO_DATA
    one.start()
    assert lab.do("abort", share=0).value == 0


def test_workers_that_a_master_made_in_its_last_moment_are_ended_too(lab: Lab) -> None:
    one = lab.world.instances[1]
    before = {worker.pid for worker in one.workers()}
    subprocess.run(one.argv("-s", "reload"), check=True)
    late = wait_for(
        lambda: [worker for worker in one.workers() if worker.pid not in before], "new workers", every=0.005
    )
    one.kill_master()
    assert one.ask() is not None, "they serve on"
    one.start()
    assert not [worker for worker in late if is_alive(worker)]
    assert lab.do("abort", share=0).value == 0


def test_a_master_killed_during_its_reload(lab: Lab) -> None:
    assert lab.do("set", share=5, expected=0).value == 5
    one = lab.world.instances[1]
    text = lab.world.traffic.read_text()
    pid = one.folder / "nginx.pid"
    deadly = ["sh", "-c", f"kill -HUP $(cat {pid}); kill -9 $(cat {pid})"]
    lab.world.traffic.write_text(text.replace(json.dumps(one.argv("-s", "reload")), json.dumps(deadly)))
    try:
        found = lab.do("set", share=50, expected=5)
        assert found.outcome in (Outcome.FAILED, Outcome.NO_DATA), found.text
        state = lab.do("configured")
        assert state.outcome is Outcome.NO_DATA or state.value == 5
    finally:
        lab.world.traffic.write_text(text)
        one.start()
    assert lab.do("abort", share=0).value == 0
    lab.measured(0)
    assert balance(lab.world.folder).good


def test_a_writer_killed_before_any_reload_is_seen_and_put_back(lab: Lab) -> None:
    for at in (1, 2, 3, 4):
        done = migverify("lab", "nginx", "crash", "--dir", str(lab.world.folder), "--share", "5", "--expected", "0",
                         "--at", str(at))  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        state = lab.do("configured")
        assert state.outcome is Outcome.NO_DATA, (at, state.text)
        found = lab.do("set", share=5, expected=0)
        assert found.outcome is Outcome.NO_DATA, f"{at}: half a change is not gone on with"
        if at == 1:
            assert migverify("runbook", "traffic", "show", str(lab.world.traffic)).returncode == 3
        assert lab.do("abort", share=0).value == 0, at
    lab.measured(0)
    assert balance(lab.world.folder).good


def weight(lab: Lab) -> Step:
    """Return a step that sends 5 % to the new side, as `traffic-switch` does."""
    traffic = {"traffic": str(lab.world.traffic)}

    def serves(share: str) -> Check:
        return Check(action="traffic.configured", arguments=traffic, equals=share)

    return step(
        "a",
        kind=StepKind.TRAFFIC,
        effect=Effect(action="traffic.set", arguments={**traffic, "share": 5, "expected": 0}, timeout=120.0),
        expect=(serves("5"),),
        reconcile=serves("5"),
        rollback=Rollback(
            effect=Effect(action="traffic.abort", arguments={**traffic, "share": 0}, timeout=120.0),
            instruction="Abort.",
            verify=(serves("0"),),
        ),
    )


@pytest.mark.attack(
    "runbook", "The executor is killed before, in and after a change of nginx's weights, with its effect or without",
    "after the takeover no run says all undone while any instance serves another weight",
)  # fmt: skip
@pytest.mark.parametrize(
    ("point", "all_of_it"),
    [("before", True), ("in", True), ("in", False), ("after", True)],
    ids=["before", "in, with its effect", "in, its effect goes on", "after"],
)
def test_a_killed_executor_leaves_no_weight_that_is_called_undone(
    lab: Lab, tmp_path: Path, point: str, all_of_it: bool
) -> None:
    world, begun, go = lab.world, tmp_path / "begun", tmp_path / "go"
    text, reload = world.traffic.read_text(), world.instances[1].argv("-s", "reload")
    slow = f"touch {begun}; while test ! -e {go}; do sleep 0.05; done; exec {shlex.join(reload)}"
    holds = {
        "before": lambda: has_intent(tmp_path),
        "in": begun.exists,
        "after": lambda: lab.share() == 5,
    }[point]
    if point == "in":
        world.traffic.write_text(text.replace(json.dumps(reload), json.dumps(["sh", "-c", slow])))
    try:
        killed_while(tmp_path, weight(lab), holds, all_of_it=all_of_it,
                     registry=full_registry)  # fmt: skip
    finally:
        world.traffic.write_text(text)
    go.touch()
    record, executor = taken_over(tmp_path, registry=full_registry)
    ends = (StepState.AWAITING_REVIEW, StepState.FAILED, StepState.INCONCLUSIVE)

    def at_rest() -> bool:
        one = record.status.steps["a"]
        held = record.status.state is RunState.HELD
        return one.state in ends or (one.state is StepState.UNKNOWN and held and one.handled)

    settled(record, executor, "what became of the effect", at_rest)
    one, clean = record.status.steps["a"], machine.abort_state(record.status) is RunState.ABORTED_CLEAN
    assert not clean or lab.share() == 0, f"{one.state}: called undone, and {lab.do('configured').text}"
    if one.state is StepState.UNKNOWN:  # half a change: the probe tells nothing, and two persons look
        assert lab.do("configured").outcome is Outcome.NO_DATA
        for person in (ALICE, DANA):
            record.submit(lambda s, n, p=person: machine.decide(s, p, "a", n, "half of it", happened=True))
        settled(record, executor, "its checks", lambda: record.status.steps["a"].state in ends)
    if record.status.steps["a"].rollback is RollbackState.ARMED:
        rolled_back(record, executor)
        assert record.status.state is RunState.ROLLED_BACK
    else:
        record.submit(lambda s, n: machine.abort(s, ALICE, n, "nothing happened"))
        assert record.status.state is RunState.ABORTED_CLEAN
    assert lab.share() == 0


def test_two_writers_at_once_and_one_that_is_late(lab: Lab) -> None:
    traffic = str(lab.world.traffic)
    argv = ["runbook", "traffic", "set", traffic, "--share", "5", "--expected", "0"]
    both = [subprocess.Popen([sys.executable, "-m", "migverify", *argv], stdout=-1, stderr=-1) for _ in range(2)]
    codes = [one.wait() for one in both]
    assert 0 in codes
    assert lab.share() == 5
    generations = {one.access_log.read_text().split("\n")[-2].split("\t")[2] for one in lab.world.instances}
    assert len(generations) == 1, "one of them changed it, the other found it done or the lock taken"
    late = migverify("runbook", "traffic", "set", traffic, "--share", "100", "--expected", "50")
    assert late.returncode == 1
    assert "another writer" in late.stdout
    assert lab.share() == 5


def test_a_file_edited_by_hand_is_not_served_as_ours(lab: Lab) -> None:
    one = lab.world.instances[0]
    one.include.write_text(one.include.read_text().replace("*  old;", "*  new;"))
    found = lab.do("set", share=5, expected=0)
    assert found.outcome is Outcome.NO_DATA
    assert "edited" in found.text
    assert lab.do("abort", share=0).value == 0


def test_a_budget_that_breaks_ends_the_bake_and_the_abort_is_measured(lab: Lab) -> None:
    assert lab.do("set", share=5, expected=0).value == 5
    assert lab.do("set", share=50, expected=5).value == 50
    lab.world.set_fault("new", errors=0.5)
    found = lab.do("bake", share=50, seconds=60, every=1, max_errors=2)
    assert found.value is False, found.text
    assert "failed" in found.text
    assert lab.do("abort", share=0).value == 0
    lab.measured(0)


def test_a_rotated_log_loses_nothing(lab: Lab) -> None:
    assert lab.do("set", share=5, expected=0).value == 5
    for one in lab.world.instances:
        before = one.access_log.stat().st_size
        wait_for(lambda size=before, log=one.access_log: log.stat().st_size > size, "a line of the load")
        one.access_log.rename(one.access_log.with_name("access.log.1"))
        subprocess.run(one.argv("-s", "reopen"), check=True)
        wait_for(one.access_log.exists, "a new log")
    lab.measured(5)
    share = lab.until("share", share=5)
    counted = share.evidence["a"]["old"] + share.evidence["a"]["new"]
    one = lab.world.instances[0]
    generation = share.evidence["a"]["generation"]
    raw = one.access_log.with_name("access.log.1").read_text() + one.access_log.read_text()
    kept = [line for line in raw.splitlines() if f"\t{generation}\t" in line and "\t503\t" not in line]
    assert 0 < counted <= len(kept)
    assert one.access_log.with_name("access.log.1").read_text().count(f"\t{generation}\t") > 0


def test_a_disk_that_is_full_or_read_only_changes_nothing(command: tuple[str, ...], tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("this user may not mount a file system")
    world = nginx.make(tmp_path / "lab", 1, command)
    one = world.instances[0]
    try:
        for path in (world.traffic, one.folder / "nginx.conf"):
            text = world.traffic_text(settle=4) if path == world.traffic else path.read_text()
            path.write_text(text.replace(str(one.include), str(disk / "traffic.conf")))
        begin(driver_of(load_traffic(world.traffic), context()))
        world.start()
        lab = Lab(world)
        assert lab.do("set", share=1, expected=0).value == 1
        filler = (disk / "filler").open("wb", buffering=0)
        with pytest.raises(OSError, match="No space left"):  # noqa: PT012 - it is full when writing fails
            while True:
                filler.write(b"x" * 512)
        found = lab.do("set", share=5, expected=1)
        assert found.evidence["result"] == "put back", found.text
        assert "No space left" in found.text
        assert lab.share() == 1
        filler.close()
        (disk / "filler").unlink()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        driver = driver_of(load_traffic(world.traffic), context())
        with pytest.raises(TrafficError, match="Read-only"):
            driver.write("a", driver.configured("a"), driver.configured("a"))
        assert lab.do("set", share=5, expected=1).outcome is Outcome.FAILED
        assert lab.share() == 1
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        assert lab.do("set", share=5, expected=1).value == 5
    finally:
        world.stop()
        subprocess.run(["umount", "-l", str(disk)], check=False)


def migverify(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "migverify", *arguments], capture_output=True, text=True, check=False)


# --- runbooks --------------------------------------------------------------------------------------------------


@pytest.fixture
def path_has_migverify(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "migverify").write_text(f'#!/bin/sh\nexec {sys.executable} -m migverify "$@"\n')
    (folder / "migverify").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def fresh(command: tuple[str, ...], tmp_path: Path) -> Iterator[NginxFleet]:
    world = make(tmp_path / "migverify-nginx", command)
    try:
        world.start()
        world.start_load(rate=250, keys=KEYS)
        yield world
    finally:
        world.stop()


def run(name: str, room: Path, **parameters: str) -> RunStatus:
    return run_unattended(
        ROOT / "runbooks" / name,
        room=room,
        environment="lab",
        parameters=parameters,
        limit=400,
    )


def told(status: RunStatus) -> str:
    return str([(one.id, one.state.value, one.reason) for one in status.steps.values() if one.reason])


@pytest.mark.soak
@pytest.mark.usefixtures("path_has_migverify")
def test_the_cases_of_the_weight_pass(fresh: NginxFleet, tmp_path: Path) -> None:
    for name in ("traffic-weight-change", "traffic-reload-failure"):
        status = run(f"dr/{name}.yaml", tmp_path / "runs")
        assert status.state is RunState.COMPLETED, told(status)
        assert Lab(fresh).share() == 0


@pytest.mark.soak
@pytest.mark.usefixtures("path_has_migverify")
@pytest.mark.parametrize("name", ["traffic-weight-change", "traffic-reload-failure"])
def test_a_case_whose_fault_does_not_hit_does_not_pass(fresh: NginxFleet, tmp_path: Path, name: str) -> None:
    status = run(f"dr/{name}.yaml", tmp_path / "runs", dud="inject")
    assert status.state is not RunState.COMPLETED
    assert status.steps["inject"].state is StepState.FAILED, told(status)
    assert fresh.job("load") is not None


@pytest.mark.soak
@pytest.mark.usefixtures("path_has_migverify")
def test_the_switch_goes_to_100_and_a_bad_side_goes_back_by_itself(fresh: NginxFleet, tmp_path: Path) -> None:
    quick = {"bake": "3", "look": "1", "limit": "50", "least": "25"}
    status = run("traffic-switch.yaml", tmp_path / "runs", **quick)
    assert status.state is RunState.COMPLETED, told(status)
    lab = Lab(fresh)
    assert lab.share() == 100
    assert balance(fresh.folder).good
    assert lab.do("abort", share=0).value == 0
    fresh.set_fault("new", errors=0.4)
    status = run("traffic-switch.yaml", tmp_path / "runs", **quick)
    assert status.state in (RunState.ROLLED_BACK, RunState.ABORTED_CLEAN, RunState.HELD), told(status)
    assert status.steps["to-1"].state is StepState.FAILED, told(status)
    assert "failed" in status.steps["to-1"].reason
    assert lab.share() == 0
    lab.measured(0)
    assert balance(fresh.folder).good


def test_nothing_is_left_of_the_lab(command: tuple[str, ...], tmp_path: Path) -> None:
    world = make(tmp_path / "lab", command, instances=1)
    world.start()
    one = world.instances[0]
    one.kill_master()
    world.stop()
    assert one.ask() is None
    assert one.master() is None
    shutil.rmtree(tmp_path / "lab")

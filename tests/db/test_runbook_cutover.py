"""Cutovers for real: a pair of servers, an application that writes all the time, a feed each way, and planted mistakes.

Whether rows were lost is asked of the data, not of the gates: the application keeps a ledger of what it was told.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migverify.runbook.actions.action import Context, ask
from migverify.runbook.actions.registry import full_registry
from migverify.runbook.events import RunState, StepState
from migverify.runbook.model import Check
from migverify.runbook.state import RunStatus
from migverify_lab import cutover, cutover_history
from migverify_lab.cutover import Rehearsal
from migverify_lab.cutover_app import prove
from tests.db.cutover_pair import ROOT, own_world
from tests.db.watching import migverify
from tests.unit.runbook_effects import run_unattended
from tests.waiting import wait_for

pytestmark = pytest.mark.db


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    with own_world(tmp_path_factory.mktemp("cutover")) as one:
        yield one


@pytest.fixture
def running(world: Rehearsal) -> Iterator[Rehearsal]:
    yield world
    for name in world.jobs():
        world.stop_job(name)


def brought(world: Rehearsal) -> int:
    proof = prove(world, "target")
    return proof.acked - len(proof.lost)


def begin(world: Rehearsal, mistake: str = "") -> None:
    cutover.prepare(world, mistake)
    cutover.feed(world, "forward", "start")
    cutover.application(world, "start", rate=15.0)
    wait_for(lambda: prove(world, "source").acked >= 20, "the application writes")
    wait_for(lambda: brought(world) >= 20, "the forward feed brings something")


def run(
    world: Rehearsal, name: str, folder: Path, config: Path | None = None, *, held_by: str = "", **parameters: str
) -> RunStatus:  # fmt: skip
    usual = {"history-load": {}, "cutover": {"settle": "4", "window": "3s"}}.get(name, {"settle": "4"})
    return run_unattended(
        ROOT / "runbooks" / f"{name}.yaml", room=folder / "runs", environment="lab", parameters={**usual, **parameters},
        config=config or world.config, limit=900.0, held_by=held_by,
    )  # fmt: skip


def why(status: RunStatus) -> str:
    steps = [f"{one.id}: {one.state.value} {one.reason}" for one in status.steps.values() if one.reason]
    return f"{status.state.value} {status.hold_reasons} {steps}"


def lost(world: Rehearsal) -> dict[str, Any]:
    code, out, err = migverify("tables", "loss", "--json", "--config", str(world.config))
    assert code == 1, out + err
    document: dict[str, Any] = json.loads(out)
    return document


def equal(world: Rehearsal) -> str:
    context = Context("test", "", 0, 0, 300.0, threading.Event(), config=world.config)
    answer = ask(full_registry(), Check(action="tables.verify", arguments={"engine": "local"}), context)
    return f"{answer.state}: {answer.text}"


def test_a_cutover_under_load_loses_nothing_and_neither_does_the_way_back(running: Rehearsal, tmp_path: Path) -> None:
    begin(running)
    over = run(running, "cutover", tmp_path)
    assert over.state is RunState.COMPLETED, why(over)
    assert running.recall("traffic") == "target"
    wait_for(lambda: prove(running, "target").written.get("target", 0) >= 20, "writes to the target")
    cutover.traffic(running, "none")  # for a moment, so that both sides can be compared at rest
    wait_for(lambda: prove(running, "target").good, "nothing is lost at rest")
    proof = prove(running, "target")
    assert set(proof.written) == {"source", "target"}
    wait_for(lambda: not prove(running, "source").lost, "the reverse feed brings everything back")
    wait_for(lambda: equal(running) == "pass: MATCH", "both sides hold the same rows")
    cutover.traffic(running, "target")
    back = run(running, "rollback-after-open", tmp_path)
    assert back.state is RunState.COMPLETED, why(back)
    written = prove(running, "source").written["source"]
    wait_for(lambda: prove(running, "source").written["source"] > written, "writes to the source")
    cutover.application(running, "stop")
    assert prove(running, "source").good, prove(running, "source")


@pytest.mark.parametrize(
    ("mistake", "step", "gate"),
    [
        ("keep-sessions", "freeze", "source.sessions"),
        pytest.param("feed-keeps-running", "forward-stopped", "feed.stopped", marks=pytest.mark.soak),
        pytest.param("stale-ids", "rebase", "ids.rebased", marks=pytest.mark.soak),
        pytest.param("reverse-dead", "way-back", "reverse.canary", marks=pytest.mark.soak),
    ],
)
def test_a_planted_mistake_is_stopped_by_its_gate_and_nothing_is_lost(
    mistake: str, step: str, gate: str, running: Rehearsal, tmp_path: Path
) -> None:
    begin(running, mistake)
    status = run(running, "cutover", tmp_path, patience="15")
    assert status.steps[step].state is StepState.FAILED, why(status)
    assert gate in status.steps[step].reason
    assert status.steps["open"].state is StepState.PENDING
    if mistake != "reverse-dead":  # found before anything stopped: people decide about it
        assert status.state is RunState.ABORTED_CLEAN, why(status)
    assert running.recall("traffic") == "source"
    before = prove(running, "source").acked
    wait_for(lambda: prove(running, "source").acked > before, "the application writes to the source again")
    cutover.application(running, "stop")
    assert prove(running, "source").good, prove(running, "source")


def test_a_reverse_feed_that_drops_the_rows_of_one_table_holds_the_run(running: Rehearsal, tmp_path: Path) -> None:
    """The canary travels, and the feed says that it runs: what going back would lose shows it, with the keys."""
    begin(running, "reverse-drops")
    status = run(running, "cutover", tmp_path, window="90s", held_by="loss")
    assert status.state is RunState.HELD, why(status)
    assert status.steps["told"].state is StepState.DONE, why(status)
    reason = status.hold_reasons[0]
    assert re.match(r"guard loss fails: [\d,]+ keys would be lost \(shop\.orders \d+, .*older than 30 s", reason), (
        reason
    )
    document = lost(running)
    cutover.application(running, "stop")
    assert {row["table"] for row in document["rows"]} == {"shop.orders"}
    assert document["keys"] == document["missing_on_source"] + document["value_differs"] > 0
    back = run(running, "rollback-after-open", tmp_path)
    assert back.steps["proof"].state is StepState.FAILED, why(back)
    assert "shop.orders" in back.steps["proof"].reason
    assert back.steps["freeze"].state is StepState.PENDING


@pytest.mark.soak
def test_a_cutover_that_is_called_off_goes_back_to_where_it_was(running: Rehearsal, tmp_path: Path) -> None:
    begin(running)
    cutover.writes(running, "source", "stop")
    cutover.traffic(running, "none")
    # As a cutover does it: the reverse feed begins when the forward feed has nothing left to bring.
    wait_for(lambda: equal(running) == "pass: MATCH", "the forward feed brings everything")
    cutover.feed(running, "forward", "stop")
    cutover.feed(running, "reverse", "start")
    status = run(running, "rollback-before-open", tmp_path)
    assert status.state is RunState.COMPLETED, why(status)
    assert running.recall("traffic") == "source"
    cutover.application(running, "stop")
    assert prove(running, "source").good, prove(running, "source")


@pytest.mark.parametrize("mistake", [pytest.param("", marks=pytest.mark.soak), "lose-row"])
def test_a_month_of_history_is_loaded_whole_or_not_at_all(mistake: str, running: Rehearsal, tmp_path: Path) -> None:
    cutover.prepare(running)
    cutover_history.history(running, "prepare", mistake=mistake)
    status = run(running, "history-load", tmp_path, running.history_config)
    if not mistake:
        assert status.state is RunState.COMPLETED, why(status)
        return
    assert status.state is RunState.ABORTED_CLEAN, why(status)
    assert "recon.holds" in status.steps["compare"].reason

"""Verifications of many services: never more connections than permitted, in their order, and nothing outlives us."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.cli.fleet_view import summary_lines, verify_steps
from migverify.cli.main import run
from migverify.decision.decide import age_text
from migverify.errors import CHANGED_SINCE, NOTHING_TO_RECHECK, ExitCode, StoreError
from migverify.fleet.budget import ConnectionBudget, demand_of, next_to_begin
from migverify.fleet.definition import DailyWindow
from migverify.fleet.load import load_fleet
from migverify.fleet.model import FleetPart, ServiceEvidence, ServiceStanding, VerifyEvidence, WholeRead
from migverify.fleet.read import read_fleet
from migverify.fleet.verify import FleetVerification, FleetVerifier, VerifiedService, verify_lock
from migverify.fleet.verify_plan import ServiceVerification, VerifyAction, needed_action, plan_verifications
from migverify.fleet.verify_time import VerifySpeed, why_it_never_ends
from migverify.model import StoredKind, Verdict
from migverify.tables.run_facts import pair_addresses
from migverify_lab.fleet import MadeFleet, result
from tests.unit.fleet.test_judge import NOW, PROOF
from tests.waiting import wait_for

DEMANDS = st.lists(
    st.dictionaries(st.sampled_from(["a:1", "b:1", "c:1"]), st.integers(1, 5), min_size=1), min_size=1, max_size=12
)


@given(DEMANDS, st.dictionaries(st.sampled_from(["a:1", "b:1", "c:1"]), st.integers(1, 8)), st.data())
def test_no_server_ever_has_more_connections_than_permitted_and_all_get_their_turn(
    demands: list[dict[str, int]], limits: dict[str, int], data: st.DataObject
) -> None:
    budget = ConnectionBudget(lambda server: limits.get(server, 4))
    waiting = [(place, one) for place, one in enumerate(demands) if not budget.exceeded(one)]
    assert all(any(count > limits.get(server, 4) for server, count in one.items())
               for one in demands if budget.exceeded(one))  # fmt: skip
    running: dict[int, dict[str, int]] = {}
    begun: list[int] = []
    while waiting or running:
        places = next_to_begin([one for _, one in waiting], budget)
        for place in places:
            number, demand = waiting[place]
            # Whoever waits before it waits for no server of its own.
            assert not any(other.keys() & demand.keys() for at, (_, other) in enumerate(waiting)
                           if at < place and at not in places)  # fmt: skip
            running[number] = demand
            begun.append(number)
        waiting = [one for place, one in enumerate(waiting) if place not in places]
        used: Counter[str] = Counter()
        for demand in running.values():
            used.update(demand)
        assert all(count <= limits.get(server, 4) for server, count in used.items())
        assert +used == +budget.used
        assert running, "something can always begin"
        ended = data.draw(st.sampled_from(sorted(running)))
        budget.give_back(running.pop(ended))
    assert sorted(begun) == [place for place, one in enumerate(demands) if not budget.exceeded(one)]


def test_connections_are_not_taken_twice() -> None:
    budget = ConnectionBudget(lambda _: 4)
    budget.take({"a:1": 3})
    with pytest.raises(ValueError, match="not to be had"):
        budget.take({"a:1": 2})


AGE = 86_400.0
OLD = replace(PROOF, proved_at=NOW - 2 * AGE)
OPEN = replace(PROOF, run="v2", verdict=Verdict.INCONCLUSIVE, matched=40)
NEEDS: list[tuple[tuple[VerifyEvidence, ...], VerifyAction, str]] = [
    ((), VerifyAction.WHOLE, ""),
    ((PROOF,), VerifyAction.REUSE, "v1"),
    ((replace(PROOF, proved_at=NOW + AGE),), VerifyAction.SINCE, "v1"),
    ((OLD,), VerifyAction.SINCE, "v1"),
    ((replace(OPEN, ended=None), PROOF), VerifyAction.RESUME, "v2"),
    ((replace(OPEN, ended=None, proved_at=None, began=NOW - 2 * AGE),), VerifyAction.WHOLE, ""),
    ((replace(OPEN, is_interrupted=True, began=NOW - 2 * AGE),), VerifyAction.WHOLE, ""),
    ((replace(OPEN, ended=None, began=NOW - 2 * AGE), OLD), VerifyAction.SINCE, "v1"),
    ((replace(OPEN, is_interrupted=True), PROOF), VerifyAction.RESUME, "v2"),
    ((replace(OPEN, ended=None, partial="of one table"), OLD), VerifyAction.SINCE, "v1"),
    ((replace(OPEN, strange="of another pair"),), VerifyAction.WHOLE, ""),
    ((OPEN, PROOF), VerifyAction.RECHECK, "v2"),
    ((replace(OPEN, verdict=Verdict.MISMATCH, mismatches=1),), VerifyAction.RECHECK, "v2"),
    ((replace(OPEN, proved_at=NOW - 2 * AGE), OLD), VerifyAction.SINCE, "v1"),
    ((replace(OPEN, partial="of one table"),), VerifyAction.WHOLE, ""),
    ((replace(OPEN, partial="a quick answer", mismatches=1, verdict=Verdict.MISMATCH), PROOF), VerifyAction.WHOLE, ""),
    ((replace(OPEN, partial="a quick answer", mismatches=1, verdict=Verdict.MISMATCH), OLD), VerifyAction.WHOLE, ""),
    ((replace(PROOF, unrefuted=("v0",)),), VerifyAction.WHOLE, ""),
    ((replace(OLD, rests_on=WholeRead("v0", NOW - 6 * AGE)),), VerifyAction.SINCE, "v1"),
    ((replace(PROOF, rests_on=WholeRead("v0", NOW - 8 * AGE)),), VerifyAction.WHOLE, ""),
    ((replace(PROOF, rests_on=WholeRead("v0", None)),), VerifyAction.WHOLE, ""),
]


@pytest.mark.parametrize(("runs", "action", "run_id"), NEEDS)
def test_the_cheapest_way_that_proves_a_service_is_taken(
    runs: tuple[VerifyEvidence, ...], action: VerifyAction, run_id: str
) -> None:
    found = needed_action(ServiceEvidence("orders", NOW, verifications=runs), AGE, 7 * AGE)
    assert found[:2] == (action, run_id)
    assert found[2]


def test_a_young_proof_behind_a_run_of_some_tables_is_not_called_too_old() -> None:
    some = replace(OPEN, partial="run v2 is of a part of the tables (orders.t1)", verdict=Verdict.MATCH)
    found = needed_action(ServiceEvidence("orders", NOW, verifications=(some, PROOF)), AGE, 7 * AGE)
    age = age_text(NOW - (PROOF.proved_at or 0.0))
    why = f"full proof v1 is {age} old, and run v2 is newer: run v2 is of a part of the tables (orders.t1)"
    assert found == (VerifyAction.SINCE, "v1", why)


CHILD = """\
import json, pathlib, sys, time
words = sys.argv[1:]
name = pathlib.Path(words[words.index("--config") + 1]).parent.name
folder = pathlib.Path.cwd()
(folder / f"{name}.begun").write_text(json.dumps(words))
try:
    while not (folder / f"{name}.go").exists():
        time.sleep(0.01)
except KeyboardInterrupt:
    (folder / f"{name}.asked").touch()
    raise SystemExit(130)
print("error: nothing was verified", file=sys.stderr)
raise SystemExit(3)
"""


def verifier(fleet: MadeFleet, closes: float | None = None, **more: Any) -> FleetVerifier:
    return FleetVerifier(load_fleet(fleet.folder / "fleet.yaml"), closes, command=[sys.executable, "-c", CHILD], **more)


def planned(fleet: MadeFleet, **more: Any) -> list[ServiceVerification]:
    loaded = load_fleet(fleet.write(**more))
    return plan_verifications(loaded, read_fleet(loaded), lambda _: {})


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    return thread, found


def test_services_on_one_server_take_turns_and_others_go_on_beside_them(fleet: MadeFleet, tmp_path: Path) -> None:
    for name in ("goods", "bills"):
        fleet.add(name, "orders.example")  # on the servers of orders
    assert demand_of(read_fleet(load_fleet(fleet.write()))[0].config) == {  # type: ignore[arg-type]
        "orders.example:3306": 4, "orders.example:4000": 4,
    }  # fmt: skip
    tasks = planned(fleet, limits={"connections": {"orders.example:3306": 7}})
    begun = lambda: {path.stem for path in tmp_path.glob("*.begun")}  # noqa: E731
    thread, found = in_thread(lambda: verifier(fleet).run(tasks, 0))
    wait_for(lambda: begun() == {"orders", "users"}, "two of them begin")
    (tmp_path / "orders.go").touch()
    wait_for(lambda: begun() == {"orders", "users", "goods"}, "the next one begins")
    for name in fleet.services:
        (tmp_path / f"{name}.go").touch()
    thread.join()
    assert [one.service for one in found[0].services] == ["orders", "users", "goods", "bills"]
    assert {(one.verdict, one.reason) for one in found[0].services} == {
        (Verdict.INCONCLUSIVE, "error: nothing was verified")
    }
    assert found[0].exit_code is ExitCode.INCONCLUSIVE
    words = json.loads((tmp_path / "users.begun").read_text())
    assert words == ["tables", "verify", "--quiet", "--config", str(tmp_path / "users" / "migverify.yaml")]


def test_at_the_end_of_the_window_what_runs_is_interrupted_and_nothing_begins(fleet: MadeFleet, tmp_path: Path) -> None:
    now, ended = [1_000.0], []
    cut_off = fleet.verify("orders", ends=False)
    fleet.add("goods", "orders.example")
    tasks = planned(fleet, limits={"other_connections": 4})
    now[0] = fleet.opened("orders").load_run(cut_off).started
    closes = now[0] + 1_000.0
    work = verifier(fleet, closes, clock=lambda: now[0], on_end=ended.append)
    thread, found = in_thread(lambda: work.run(tasks, 0))
    wait_for(lambda: len(list(tmp_path.glob("*.begun"))) == 2, "two of them begin")
    now[0] = closes
    thread.join()
    assert {path.stem for path in tmp_path.glob("*.asked")} == {"orders", "users"}
    reasons = {one.service: one.reason for one in found[0].services}
    assert reasons["goods"] == "not begun: the window has closed"
    assert reasons["orders"] == "the window has closed, the next `fleet verify` resumes it"
    assert reasons["users"] == "the window has closed, the next `fleet verify` begins it anew", "it kept no run"
    assert found[0].is_closed
    assert len(ended) == 3


KILLED = CHILD.replace("raise SystemExit(3)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")


def one_process(fleet: MadeFleet, child: str, name: str = "orders", **more: Any) -> VerifiedService:
    """Return how a service ends whose child does nothing but end so."""
    (fleet.folder / f"{name}.go").touch()
    tasks = [task for task in planned(fleet) if task.service.name == name]
    loaded = load_fleet(fleet.folder / "fleet.yaml")
    found = FleetVerifier(loaded, None, command=[sys.executable, "-c", child], **more).run(tasks, 0)
    return found.services[0]


def test_a_process_that_was_killed_is_said_with_what_the_next_one_does(fleet: MadeFleet) -> None:
    said = "its process was killed by signal 9 (SIGKILL); the next `fleet verify` "
    ended = one_process(fleet, KILLED)
    assert (ended.reason, ended.verdict) == (f"{said}begins it anew", Verdict.INCONCLUSIVE)
    cut_off = fleet.verify("orders", ends=False)
    ended = one_process(fleet, KILLED)
    assert (ended.reason, ended.run, ended.action) == (f"{said}resumes it", cut_off, VerifyAction.RESUME)
    proof = fleet.verify("users")
    ended = one_process(fleet, KILLED, "users", clock=lambda: time.time() + 10)
    assert ended.action is VerifyAction.REUSE, "nothing is begun, so nothing can be killed"
    assert proof == ended.run


DONE = CHILD.replace("raise SystemExit(3)", "raise SystemExit(0)")


@pytest.mark.parametrize(("hours", "verdict"), [(23, Verdict.MATCH), (25, Verdict.INCONCLUSIVE)])
def test_a_resumed_run_counts_at_its_end_as_on_the_board(fleet: MadeFleet, hours: float, verdict: Verdict) -> None:
    run_id, clock = fleet.verify("orders", ends=False), [time.time()]
    task = next(task for task in planned(fleet) if task.service.name == "orders")
    assert (task.action, task.run, task.read) == (VerifyAction.RESUME, run_id, 1)

    def end_run(_task: ServiceVerification) -> None:
        store = fleet.opened("orders")
        store.resume_run(run_id)
        for pair in ("orders.t1", "orders.t2"):
            store.add_table_result(run_id, result(pair, Verdict.MATCH))
        store.finish_run(run_id, Verdict.MATCH, {"reasons": []})
        clock[0] = store.load_run(run_id).started + hours * 3_600
        (fleet.folder / "orders.go").touch()

    loaded = load_fleet(fleet.folder / "fleet.yaml")
    command = [sys.executable, "-c", DONE]
    work = FleetVerifier(loaded, None, command=command, clock=lambda: clock[0], on_begin=end_run)
    ended = work.run([task], 0).services[0]
    assert ended.verdict is verdict, ended.reason
    proof = read_fleet(loaded, now=clock[0])[0].state.part(FleetPart.PROOF)
    assert (proof.standing is ServiceStanding.READY) is (verdict is Verdict.MATCH)
    if verdict is not Verdict.MATCH:
        assert ended.reason == proof.reasons[0].text
        assert ended.reason == "the last full proof does not count: it is 25 h old, and 24 h are allowed"


NIGHT = DailyWindow.model_validate({"start": "22:00", "duration": "7h"})


@pytest.mark.parametrize(("read", "hours", "days", "is_said"), [
    (12, 7, 1, True),    # 29 h are 5 windows, the last one 4 days after the first
    (12, 7, 4, False),
    (26, 7, 1, False),   # 2 windows, the second one a day after the first
    (24, 7, 1, True),    # 3 windows
    (50, 7, 0.1, False),
    (0, 7, 1, False),    # not known
])  # fmt: skip
def test_a_verification_that_is_too_old_before_its_last_window_is_said_to_never_end(
    read: int, hours: float, days: float, is_said: bool
) -> None:
    speed = VerifySpeed(read, 50, hours * 3_600)
    assert bool(why_it_never_ends(speed, NIGHT, days * AGE)) is is_said
    assert not why_it_never_ends(speed, None, days * AGE)


def test_what_a_verification_needs_and_has_is_said_at_the_end_of_the_window(fleet: MadeFleet, tmp_path: Path) -> None:
    opens = time.time()
    now, closes = [opens], opens + 1_200.0
    limits = {"verify": {"start": time.strftime("%H:%M", time.gmtime(opens)), "duration": "20m"}}
    tasks = planned(fleet, limits=limits, proof_max_age="25h")

    def begun(task: ServiceVerification) -> None:
        if task.service.name == "orders":
            fleet.verify("orders", ends=False)  # it reads one table of three

    work = verifier(fleet, closes, clock=lambda: now[0], on_begin=begun)
    thread, found = in_thread(lambda: work.run(tasks, 0))
    wait_for(lambda: len(list(tmp_path.glob("*.begun"))) == 2, "both begin")
    now[0] = closes
    thread.join()
    reasons = {one.service: one.reason for one in found[0].services}
    assert reasons["orders"] == (
        "the window has closed, the next `fleet verify` resumes it; it read 1 of 3 tables in 20m 00s, so all need about"
        " 1h 00m, which is 3 windows of limits.verify (20m 00s a day); a run older than proof_max_age (25 h) begins"
        " anew, so it never ends: give limits.verify more hours, raise `connections`, or raise proof_max_age"
    )
    assert reasons["users"] == "the window has closed, the next `fleet verify` begins it anew"


REFUSING_CHILD = """\
import sys
refused = sys.argv[1:] if {"--resume", "--recheck"} & set(sys.argv) else []
print("error:", %r if refused else "nothing was verified", file=sys.stderr)
print("  Begin a new run.", file=sys.stderr)
raise SystemExit(2 if refused else 3)
"""


@pytest.mark.parametrize("action", [VerifyAction.RESUME, VerifyAction.RECHECK])
@pytest.mark.parametrize("words", [f"shop.t: {CHANGED_SINCE} r1 began", f"run r1 is equal: {NOTHING_TO_RECHECK}"])
def test_a_run_that_can_not_go_on_is_followed_by_a_whole_verification(
    fleet: MadeFleet, action: VerifyAction, words: str
) -> None:
    """It was resumed by each ``fleet verify``, and refused each time."""
    begun: list[ServiceVerification] = []
    tasks = [replace(task, action=action, run="r1") for task in planned(fleet)[:1]]
    command = [sys.executable, "-c", REFUSING_CHILD % words]
    work = FleetVerifier(load_fleet(fleet.folder / "fleet.yaml"), None, on_begin=begun.append, command=command)
    (ended,) = work.run(tasks, 0).services
    assert [(task.action, task.run) for task in begun] == [(action, "r1"), (VerifyAction.WHOLE, "")]
    refusal = f"{action} of run r1 was refused: {words}"
    assert begun[1].why == refusal
    assert (ended.action, ended.reason) == (VerifyAction.WHOLE, f"error: nothing was verified; {refusal}")


def test_a_command_that_is_refused_for_another_reason_is_not_followed_by_a_whole_verification(
    fleet: MadeFleet,
) -> None:
    begun: list[ServiceVerification] = []
    tasks = [replace(task, action=VerifyAction.RESUME, run="r1") for task in planned(fleet)[:1]]
    command = [sys.executable, "-c", REFUSING_CHILD % "the user lacks a grant"]
    work = FleetVerifier(load_fleet(fleet.folder / "fleet.yaml"), None, on_begin=begun.append, command=command)
    (ended,) = work.run(tasks, 0).services
    assert (len(begun), ended.action, ended.reason) == (1, VerifyAction.RESUME, "error: the user lacks a grant")


def test_one_that_can_never_begin_is_said_with_what_to_do(fleet: MadeFleet) -> None:
    tasks = planned(fleet, limits={"connections": {"orders.example:4000": 3}, "other_connections": 3})
    found = verifier(fleet).run(tasks, 0)
    assert {one.verdict for one in found.services} == {Verdict.INCONCLUSIVE}
    assert "needs 4 connections to orders.example" in found.services[0].reason
    assert "lower `connections`" in found.services[0].reason


def test_all_addresses_of_a_server_have_one_budget_and_the_least_of_their_limits(fleet: MadeFleet) -> None:
    fleet.add("goods", "goods.example")
    loaded = load_fleet(fleet.write(limits={"connections": {"Orders.example:3306": 9, "GOODS.example:3306": 5}}))
    views = read_fleet(loaded)
    one = "goods.example:3306 = orders.example:3306"
    tasks = plan_verifications(loaded, views, lambda configs: {
        address: one for config in configs for address in pair_addresses(config).values() if address in one
    })  # fmt: skip
    assert [task.demand for task in tasks] == [
        {one: 4, "orders.example:4000": 4}, {"users.example:3306": 4, "users.example:4000": 4},
        {one: 4, "goods.example:4000": 4},
    ]  # fmt: skip
    assert loaded.limits.of(one) == 5
    assert next_to_begin([task.demand for task in tasks], ConnectionBudget(loaded.limits.of)) == [0, 1]
    assert loaded.limits.of("users.example:3306 = users:3306") == loaded.limits.other_connections


def test_a_limit_of_a_server_in_upper_case_counts_and_one_of_no_server_is_said(
    fleet: MadeFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.add("goods", "GOODS.example")
    limits = {"connections": {"Orders.Example:4000": 3, "goods.example:3306": 9, "oders.example:3306": 5}}
    tasks = [task for task in planned(fleet, limits=limits) if task.service.name == "orders"]
    found = verifier(fleet).run(tasks, 0)
    assert "all services together may have 3" in found.services[0].reason
    warning = "limits.connections names oders.example:3306, and no service has this server"
    assert run(["fleet", "verify", "--plan"]) == 3, "orders can never begin"
    out, told = capsys.readouterr()
    assert "whole    not begun: it needs 4 connections to orders.example:4000, and all services" in out
    assert warning in told
    assert told.count("limits.connections names") == 1
    assert run(["fleet", "status"]) == 1
    assert f"warning: {warning}" in capsys.readouterr().out
    # It may be a server of what is not looked at, or cannot be read.
    assert run(["fleet", "verify", "--plan", "--service", "orders"]) == 3
    fleet.services["goods"].config.unlink()
    assert run(["fleet", "verify", "--plan"]) == 3
    assert warning not in capsys.readouterr().err


def test_a_young_proof_is_named_and_not_made_again_and_what_is_done_is_left_out(
    fleet: MadeFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    proof = fleet.verify("orders")
    fleet.verify("users")
    fleet.write()
    assert run(["fleet", "verify"]) == 0
    out = capsys.readouterr().out
    assert f"orders                   run {proof}: not verified again: full proof {proof} is 0 min old (reuse)" in out
    assert out.endswith("MATCH: 2 services\n")
    fleet.verify("users", ends=False)
    fleet.drill("orders", 1, live=True)
    assert run(["fleet", "verify", "--plan"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1:3] for line in lines] == [["users", "resume"]]
    assert "4 to users.example:3306, 4 to users.example:4000" in lines[0]


def test_outside_of_the_window_nothing_begins(fleet: MadeFleet, capsys: pytest.CaptureFixture[str]) -> None:
    begins = time.strftime("%H:%M", time.gmtime(time.time() + 3_600))
    fleet.write(limits={"verify": {"start": begins, "duration": "1h"}})
    assert run(["fleet", "verify"]) == 3
    assert "the window of limits.verify is closed: it opens at" in capsys.readouterr().err
    assert run(["fleet", "verify", "--service", "no"]) == 2
    assert "It has orders, users." in capsys.readouterr().err


def test_the_password_of_a_store_is_never_an_argument(
    fleet: MadeFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_STORE", "s3cr3t-word")
    entry = fleet.entry("orders", store="sqlite:///other.db", store_password_env="OF_THE_STORE")
    (tmp_path / "orders.go").touch()
    tasks = planned(fleet, services=[entry])
    child = "import os; assert os.environ['MIGVERIFY_STORE_PASSWORD'] == 's3cr3t-word'\n" + CHILD
    loaded = load_fleet(tmp_path / "fleet.yaml")
    found = FleetVerifier(loaded, None, command=[sys.executable, "-c", child]).run(tasks, 0)
    assert found.services[0].reason == "error: nothing was verified"
    assert "s3cr3t" not in (tmp_path / "orders.begun").read_text()


def test_two_do_not_verify_one_fleet_at_the_same_time(fleet: MadeFleet) -> None:
    loaded = load_fleet(fleet.write())
    with verify_lock(loaded), pytest.raises(StoreError, match="another fleet verify"), verify_lock(loaded, 0.2):
        pass
    with verify_lock(loaded, 0.2):
        pass


def test_a_link_to_a_fleet_has_the_lock_of_the_fleet(fleet: MadeFleet, tmp_path: Path) -> None:
    written = fleet.write()
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "fleet.yaml").symlink_to(written)
    linked = load_fleet(tmp_path / "links" / "fleet.yaml")
    with (
        verify_lock(load_fleet(written)), pytest.raises(StoreError, match="another fleet verify"),
        verify_lock(linked, 0.2),
    ):  # fmt: skip
        pass


def test_what_is_not_proved_has_a_next_step_and_the_summary_counts_it(fleet: MadeFleet) -> None:
    loaded = load_fleet(fleet.write())
    match = VerifiedService("orders", VerifyAction.WHOLE, Verdict.MATCH, "r1", "3 tables")
    differs = VerifiedService("users", VerifyAction.WHOLE, Verdict.MISMATCH, "r2", "1 table differs")
    config = f"--config {fleet.services['users'].config}"
    again = f"migverify fleet verify --fleet {fleet.folder / 'fleet.yaml'}"
    for services, summary, commands in (
        ((match,), "MATCH: 1 service", []),
        ((match, differs), "MISMATCH: 1 of 2 services", [f"migverify tables diff r2 {config}", again]),
        ((replace(differs, verdict=Verdict.INCONCLUSIVE),), "INCONCLUSIVE: 1 service",
         [f"migverify report r2 {config}", again]),
        ((replace(differs, verdict=Verdict.INCONCLUSIVE, action=VerifyAction.NONE, run=""),), "INCONCLUSIVE: 1 service",
         [f"migverify config {config}", again]),
    ):  # fmt: skip
        found = FleetVerification(services)
        steps = tuple(verify_steps(loaded, found))
        assert [step.command for step in steps] == commands
        lines = list(summary_lines(found, steps))
        assert (lines[0], len(lines)) == (summary, 1 if not commands else 3 + len(commands))


def test_a_child_that_fails_before_it_has_a_run_names_no_run_and_a_known_difference_stays(
    fleet: MadeFleet, tmp_path: Path
) -> None:
    differs = fleet.verify("orders", ["orders.t1"])
    fleet.verify("users", ["users.t1"], kind=StoredKind.QUICK)
    fleet.verify("users")
    fleet.add("goods")
    for name in fleet.services:
        (tmp_path / f"{name}.go").touch()
    loaded = load_fleet(fleet.write(proof_max_age="1ms"))
    found = verifier(fleet).run(plan_verifications(loaded, read_fleet(loaded), lambda _: {}), 0)
    ended = {one.service: (one.verdict, one.run, one.reason) for one in found.services}
    failed = "error: nothing was verified"
    assert ended == {
        "orders": (Verdict.MISMATCH, differs, f"1 table differs, and it was not verified again: {failed}"),
        "users": (Verdict.INCONCLUSIVE, "", failed),
        "goods": (Verdict.INCONCLUSIVE, "", failed),
    }
    assert found.exit_code is ExitCode.MISMATCH
    commands = [step.command.split(" --config")[0] for step in verify_steps(loaded, found)]
    assert commands[:3] == [f"migverify tables diff {differs}", "migverify check", "migverify check"]
    # What was never begun is as different as it was.
    found = verifier(fleet, is_stopped=lambda: True).run(
        plan_verifications(loaded, read_fleet(loaded), lambda _: {}), 0
    )
    assert {one.service: one.verdict for one in found.services}["orders"] is Verdict.MISMATCH

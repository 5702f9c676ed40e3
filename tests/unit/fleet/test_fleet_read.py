"""What stores, ledgers and journals hold becomes the right reason of the right service, and of no other one."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from migverify.decision.decide import age_text
from migverify.fleet.load import load_fleet
from migverify.fleet.model import FleetPart, ServiceStanding, WholeRead
from migverify.fleet.read import ServiceView, read_fleet
from migverify.fleet.read_journals import ServiceJournals, completed_cutover
from migverify.fleet.verify_plan import VerifyAction, needed_action
from migverify.guards.keep import GuardRecorder, begin
from migverify.guards.model import AnswerState, GuardAnswer, GuardResult
from migverify.guards.schema_model import NAME as SCHEMA
from migverify.guards.scope import CONFIGURATION
from migverify.model import StoredKind, Verdict
from migverify.runbook.history.past import Past, PastRun, past_runs
from migverify.runbook.kinds import RunKind
from migverify.runbook.record.run_store import RunStore
from migverify_lab.fleet import PRINTS, MadeFleet, result

NOT_KNOWN, NOT_READY, READY = ServiceStanding.NOT_KNOWN, ServiceStanding.NOT_READY, ServiceStanding.READY


def views(fleet: MadeFleet, **more: object) -> dict[str, ServiceView]:
    return {view.service.name: view for view in read_fleet(load_fleet(fleet.write(**more)))}


Plant = Callable[[MadeFleet], object]
PLANTED: dict[str, tuple[Plant, ServiceStanding, FleetPart, str]] = {
    "a difference": (lambda f: f.verify("orders", ["orders.t1"]), NOT_READY, FleetPart.PROOF, "1 table differs in run"),
    "a difference of servers in another case": (
        lambda f: f.verify("orders", ["orders.t1"], endpoints={
            "source": {"address": "Orders.Example:3306"}, "target": {"host": "ORDERS.example", "port": 4000}}),
        NOT_READY, FleetPart.PROOF, "1 table differs in run"),
    "a run that was cut off": (lambda f: f.verify("orders", ends=False), NOT_KNOWN, FleetPart.PROOF, "was cut off"),
    "a quick answer that differs": (
        lambda f: f.verify("orders", ["orders.t1"], kind=StoredKind.QUICK), NOT_READY, FleetPart.PROOF,
        "1 table differs in run"),
    "a quick answer that was cut off after a difference": (
        lambda f: f.verify("orders", ["orders.t0"], kind=StoredKind.QUICK, ends=False), NOT_READY, FleetPart.PROOF,
        "1 table differs in run"),
    "a watch that differs": (
        lambda f: f.watch("orders", "", Verdict.MISMATCH, diverged=2), NOT_READY, FleetPart.WATCH, "2 keys differ"),
    "a watch that ended": (lambda f: f.watch("orders", "", ends=True), NOT_KNOWN, FleetPart.WATCH, "does not run"),
    "lag": (lambda f: f.watch("orders", "", lag_seconds=600.0), NOT_KNOWN, FleetPart.WATCH, "10 min behind"),
    "a watch of an earlier release": (
        lambda f: f.watch("orders", "", lag_seconds=None), NOT_KNOWN, FleetPart.WATCH, "unknown time behind"),
    "a rule": (lambda f: f.rules("orders", Verdict.MISMATCH, money={"EUR": "7.50"}), NOT_READY, FleetPart.RULES,
               "rule payments: payments is MISMATCH"),
    "one rule alone": (lambda f: f.rules("orders", Verdict.MISMATCH, chosen="payments"), NOT_READY, FleetPart.RULES,
                       "rule payments"),
    "rules that go on": (lambda f: f.rules("orders", ends=False), NOT_KNOWN, FleetPart.RULES, "goes on"),
    "ids": (lambda f: f.ids("orders", 3.0, AnswerState.FAIL), NOT_READY, FleetPart.IDS, "3.0 days"),
    "an id space that has ended": (lambda f: f.ids("orders", -3.0), NOT_READY, FleetPart.IDS, "has ended"),
    "another definition": (
        lambda f: f.schema("orders", {**PRINTS, "source": "6" * 64}), NOT_READY, FleetPart.SCHEMA,
        "definitions changed"),
    "one side alone": (
        lambda f: f.schema("orders", {"source": "5" * 64}), NOT_KNOWN, FleetPart.SCHEMA, "which definitions"),
    "a failed drill": (lambda f: f.drill("orders", 2, fails=True), NOT_READY, FleetPart.DRILLS, "clean"),
}  # fmt: skip


@pytest.mark.parametrize("what", PLANTED)
def test_what_is_planted_is_the_reason_of_its_service_and_of_no_other(ready: MadeFleet, what: str) -> None:
    assert {view.state.standing for view in views(ready).values()} == {READY}
    plant, standing, part, words = PLANTED[what]
    plant(ready)
    found = views(ready)
    assert found["users"].state.standing is READY
    state = found["orders"].state
    assert state.standing is standing, state.sentence
    assert any(one.part is part and words in one.text for one in state.reasons), [one.text for one in state.reasons]


def rules_cut_off_twice(fleet: MadeFleet) -> None:
    fleet.rules("orders", Verdict.MISMATCH)
    fleet.rules("orders", ends=False)
    fleet.rules("orders", ends=False)


def rules_left_open(fleet: MadeFleet) -> None:
    fleet.rules("orders", Verdict.MISMATCH)
    fleet.rules("orders", Verdict.INCONCLUSIVE)


def one_rule_before_a_run_cut_off(fleet: MadeFleet) -> None:
    fleet.rules("orders", ends=False)
    fleet.rules("orders", Verdict.MISMATCH, chosen="payments")


def schema_killed(fleet: MadeFleet) -> None:
    fleet.schema("orders", state=AnswerState.FAIL)
    for _ in range(2):
        begin(fleet.opened("orders"), "migverify guard schema", [SCHEMA], fleet.facts("orders"))


def schema_changed_and_killed(fleet: MadeFleet) -> None:
    fleet.schema("orders", {**PRINTS, "source": "6" * 64})
    begin(fleet.opened("orders"), "migverify guard schema", [SCHEMA], fleet.facts("orders"))


def schema_left_open(fleet: MadeFleet) -> None:
    fleet.schema("orders", state=AnswerState.FAIL)
    fleet.schema("orders", state=AnswerState.INCONCLUSIVE)
    begin(fleet.opened("orders"), "migverify guard schema", [SCHEMA], fleet.facts("orders"))


@pytest.mark.parametrize(
    ("plant", "part"),
    [
        (rules_cut_off_twice, FleetPart.RULES), (rules_left_open, FleetPart.RULES),
        (one_rule_before_a_run_cut_off, FleetPart.RULES), (schema_killed, FleetPart.SCHEMA),
        (schema_changed_and_killed, FleetPart.SCHEMA), (schema_left_open, FleetPart.SCHEMA),
    ],
)  # fmt: skip
def test_a_run_without_an_answer_hides_no_harm_before_it(
    ready: MadeFleet, plant: Callable[[MadeFleet], None], part: FleetPart
) -> None:
    plant(ready)
    # What is not required may be unknown; what it shows to be wrong counts.
    found = views(ready, requires=["proof"])
    assert found["orders"].state.part(part).standing is NOT_READY
    assert found["orders"].state.standing is NOT_READY
    assert found["users"].state.standing is READY
    for again in (ready.rules, ready.schema):
        again("orders")
    assert views(ready)["orders"].state.standing is READY


def test_many_runs_of_other_guards_hide_no_harm(ready: MadeFleet) -> None:
    """A guard that is asked every ten minutes pushes out nothing of another one."""
    ready.ids("orders", 3.0, AnswerState.FAIL)
    for _ in range(100):
        begin(ready.opened("orders"), "migverify guard settings", ["check"], ready.facts("orders"))
    found = views(ready, requires=["proof"])["orders"].state
    assert found.part(FleetPart.IDS).standing is NOT_READY
    assert found.standing is NOT_READY


def test_an_inconclusive_run_refutes_what_it_found_fine(ready: MadeFleet) -> None:
    ready.schema("orders", state=AnswerState.FAIL)
    store, answer = ready.opened("orders"), GuardAnswer(SCHEMA, "alike", "target/orders.t0", AnswerState.PASS,
                                                        "no difference", "", "", "")  # fmt: skip
    recorder = GuardRecorder(store, begin(store, "migverify guard schema", [SCHEMA], ready.facts("orders")))
    other = replace(answer, subject="target/orders.t1", state=AnswerState.INCONCLUSIVE)
    result = GuardResult(SCHEMA, (answer, other), time.time(), 0.1, (), {})
    recorder.add(result)
    recorder.finish([result])
    part = views(ready, requires=["proof"])["orders"].state.part(FleetPart.SCHEMA)
    assert part.standing is NOT_KNOWN, part.reasons


NIGHT, NEXT = ({"from": f"2026-11-{day}T00:00:00+00:00", "to": f"2026-11-{day + 1}T00:00:00+00:00"} for day in (26, 27))


@pytest.mark.parametrize(
    ("before", "after", "is_refuted"),
    [
        ({}, {}, True),
        (NIGHT, {}, True),
        (NIGHT, NIGHT, True),
        (NIGHT, {"from": NIGHT["from"]}, True),
        (NIGHT, NEXT, False),
        ({}, NEXT, False),
        ({}, {"to": NEXT["to"]}, False),
        ({"parameters": {"tenant": "7"}}, {"parameters": {"tenant": "8"}}, False),
        ({}, {"file": "other.yaml", "names": ["orders", "stock"]}, False),
        ({"file": "other.yaml"}, {}, True),
        ({}, {"names": ["balance", "refunds"]}, True),
    ],
)
def test_rules_are_refuted_by_a_run_that_read_all_of_the_same(
    ready: MadeFleet, before: dict[str, Any], after: dict[str, Any], is_refuted: bool
) -> None:
    """A night that is fine says nothing of the night before, nor one file of rules of another."""
    ready.rules("orders", Verdict.MISMATCH, **before)
    ready.rules("orders", **after)
    part = views(ready)["orders"].state.part(FleetPart.RULES)
    assert part.standing is (READY if is_refuted else NOT_READY), part.reasons
    assert is_refuted or "no newer run of all rules read all that run" in part.reasons[1].text


def test_nothing_in_a_store_is_not_known(fleet: MadeFleet) -> None:
    fleet.opened("orders")
    fleet.all_fine("users")
    found = views(fleet)
    assert (found["orders"].state.standing, found["users"].state.standing) == (NOT_READY, READY)
    parts = {one.part: one.standing for one in found["orders"].state.parts}
    assert parts[FleetPart.DRILLS] is NOT_READY  # journals show that no drill was held
    assert {parts[part] for part in FleetPart if part not in (FleetPart.DRILLS, FleetPart.PEOPLE)} == {NOT_KNOWN}


def broken_store(fleet: MadeFleet) -> str:
    fleet.close()
    (fleet.folder / "orders" / "runs.db").write_bytes(b"no database" * 1000)
    return "not a database"


def no_store(fleet: MadeFleet) -> str:
    fleet.close()
    (fleet.folder / "orders" / "runs.db").unlink()
    return "there is no store"


def no_configuration(fleet: MadeFleet) -> str:
    fleet.services["orders"].config.unlink()
    return "there is no configuration file"


def pipe_as_configuration(fleet: MadeFleet) -> str:
    config = fleet.services["orders"].config
    config.unlink()
    os.mkfifo(config)
    return "not a regular file"


@pytest.mark.parametrize("damage", [broken_store, no_store, no_configuration, pipe_as_configuration])
def test_what_cannot_be_read_of_one_service_is_its_reason_alone(
    ready: MadeFleet, damage: Callable[[MadeFleet], str]
) -> None:
    words = damage(ready)
    found = views(ready)
    assert found["users"].state.standing is READY
    assert found["orders"].state.standing is NOT_KNOWN
    assert words in found["orders"].state.sentence
    assert not (ready.folder / "orders" / "runs.db").exists() or damage is not no_store  # nothing was created


def test_a_body_of_another_form_makes_its_part_not_known(ready: MadeFleet) -> None:
    from sqlalchemy import text

    with ready.opened("orders").engine.begin() as connection:
        connection.execute(text("UPDATE migverify_findings SET body = '{\"x\": 1}'"))
    found = views(ready)
    assert found["users"].state.standing is READY
    unread = {one.part for one in found["orders"].state.reasons}
    assert unread == {FleetPart.SCHEMA, FleetPart.IDS, FleetPart.DRILLS}


def test_a_proof_counts_of_all_tables_of_this_configuration_and_of_this_pair_alone(fleet: MadeFleet) -> None:
    fleet.all_fine("users")
    fleet.all_fine("orders")
    # With one difference behind it, the proof before it is not the newest word any more.
    fleet.verify("orders", ["orders.t0"])
    for chosen, words in (("orders.t0", "a part of the tables"), (None, "does not keep which tables")):
        fleet.verify("orders", chosen=chosen)
        state = views(fleet)["orders"].state
        assert state.standing is NOT_READY, "a difference stays until all tables are proved again"
        evidence = views(fleet)["orders"].evidence.verifications[0]
        assert words in evidence.partial
    fleet.verify("orders")
    assert views(fleet)["orders"].state.standing is READY
    config = fleet.services["orders"].config
    config.write_text(config.read_text().replace("orders.*", "orders.t*"))
    state = views(fleet)["orders"].state
    assert state.standing is NOT_KNOWN
    assert "of another configuration" in state.sentence
    config.write_text(
        config.read_text().replace("orders.t*", "orders.*").replace("orders.example", "elsewhere.example")
    )
    assert "the store holds no verification of this pair" in views(fleet)["orders"].state.sentence


def test_a_recheck_is_as_old_as_the_run_that_it_completes(fleet: MadeFleet) -> None:
    first = fleet.verify("orders", ["orders.t1"])
    store = fleet.opened("orders")
    info = store.load_run(first)
    plan = {"pairs": [{"id": "orders.t1", "source": "orders.t1", "target": "orders.t1", "in part": ["where"]}]}
    facts = {**info.facts, "rechecks": first, "excluded": ["orders.t8", "orders.t9"]}
    again = store.start_run("recheck", info.plan_hash, plan, facts, kind=info.kind)
    store.add_table_result(again, result("orders.t1", Verdict.MATCH))
    store.finish_run(again, Verdict.MATCH, {})
    evidence = views(fleet)["orders"].evidence.verifications[0]
    assert (evidence.run, evidence.tables, evidence.matched, evidence.mismatches) == (again, 3, 3, 0)
    assert evidence.left_out == "1 of them in part (where), 2 excluded"
    assert (evidence.proved_at, evidence.chain) == (store.load_run(first).finished, (first,))


def test_a_run_that_compared_tables_of_one_server_with_themselves_is_no_proof(fleet: MadeFleet) -> None:
    store = fleet.opened("orders")
    info = store.load_run(fleet.verify("orders"))
    assert not views(fleet)["orders"].evidence.verifications[0].strange
    ends = {name: {**facts, "server": "u1"} for name, facts in info.facts["endpoints"].items()}
    again = store.start_run("verify", info.plan_hash, info.plan, {**info.facts, "endpoints": ends}, kind=info.kind)
    for found in store.table_results(info.run_id):
        store.add_table_result(again, found)
    store.finish_run(again, Verdict.MATCH, {})
    assert "are the same server" in views(fleet)["orders"].evidence.verifications[0].strange


def test_a_run_that_was_resumed_is_as_old_as_its_begin(fleet: MadeFleet) -> None:
    cut_off = fleet.verify("orders", ends=False)
    store = fleet.opened("orders")
    store.finish_run(cut_off, Verdict.INCONCLUSIVE, {"reasons": ["interrupted; resume it"]})
    assert not store.load_run(cut_off).is_resumed
    store.resume_run(cut_off)
    for pair in ("orders.t1", "orders.t2"):
        store.add_table_result(cut_off, result(pair, Verdict.MATCH))
    store.finish_run(cut_off, Verdict.MATCH, {"reasons": []})
    evidence = views(fleet)["orders"].evidence.verifications[0]
    assert (evidence.tables, evidence.matched) == (3, 3)
    assert evidence.proved_at == store.load_run(cut_off).started
    fleet.verify("orders", rests_on=cut_off)
    proof = views(fleet)["orders"].evidence.verifications[0]
    assert proof.rests_on == WholeRead(cut_off, store.load_run(cut_off).started)


def test_evidence_that_is_too_old_does_not_count(fleet: MadeFleet) -> None:
    fleet.all_fine("orders")
    fleet.all_fine("users")
    loaded = load_fleet(fleet.write(proof_max_age="2h", evidence_max_age="3h"))
    for later, parts in ((2.5, {FleetPart.PROOF, FleetPart.WATCH}),
                         (3.5, {FleetPart.PROOF, FleetPart.WATCH, FleetPart.RULES, FleetPart.SCHEMA, FleetPart.IDS,
                                FleetPart.DRILLS})):  # fmt: skip
        state = read_fleet(loaded, now=time.time() + later * 3_600)[0].state
        assert state.standing is NOT_KNOWN
        assert {one.part for one in state.reasons} == parts


def test_services_of_one_store_do_not_see_each_others_runs(tmp_path: Path) -> None:
    with closing(MadeFleet(tmp_path, store=f"sqlite:///{tmp_path / 'all.db'}")) as fleet:
        for name in ("orders", "users", "goods"):
            fleet.add(name)
            if name != "goods":
                fleet.all_fine(name)
        fleet.verify("users", ["users.t0"])
        standings = {name: view.state.standing for name, view in views(fleet).items()}
        assert standings == {"orders": READY, "users": NOT_READY, "goods": NOT_READY}
        assert views(fleet)["goods"].evidence.ids is None


def test_on_one_pair_in_one_store_runs_say_whose_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(MadeFleet(tmp_path, store=f"sqlite:///{tmp_path / 'all.db'}")) as fleet:
        fleet.add("orders", "db.example")
        fleet.add("users", "db.example")
        fleet.all_fine("orders")
        found = views(fleet)
        assert (found["orders"].state.standing, found["users"].evidence.ids) == (READY, None)
        assert "of another configuration" in found["users"].state.part(FleetPart.PROOF).reasons[0].text
        # A run of an earlier release does not say it, and is nobody's where two could have begun it.
        known = {name: value for name, value in fleet.facts("orders").items() if name != CONFIGURATION}
        monkeypatch.setattr(MadeFleet, "facts", lambda _fleet, _name, **more: {**known, **more})
        fleet.ids("orders", -5.0)
        assert views(fleet)["orders"].state.standing is READY


def test_a_cutover_that_is_done_is_said(ready: MadeFleet) -> None:
    ready.drill("orders", 1, live=True)
    found = views(ready)
    assert found["orders"].state.standing is ServiceStanding.CUT_OVER
    assert found["users"].state.standing is READY
    ready.drill("users", 1, live=True, ends=False)
    assert views(ready)["users"].state.standing is not ServiceStanding.CUT_OVER


def test_a_rollback_or_another_live_run_ends_a_cutover(ready: MadeFleet) -> None:
    ready.drill("orders", 1, live=True)
    ready.journal("orders", RunKind.ROLLBACK, "elsewhere", "staging")
    assert views(ready)["orders"].state.standing is ServiceStanding.CUT_OVER
    ready.journal("orders", RunKind.ROLLBACK, "back", "prod")
    assert views(ready)["orders"].state.standing is not ServiceStanding.CUT_OVER
    ready.drill("orders", 2, live=True)
    assert views(ready)["orders"].state.standing is ServiceStanding.CUT_OVER
    ready.drill("orders", 3, live=True, ends=False)
    assert views(ready)["orders"].state.standing is not ServiceStanding.CUT_OVER


DAMAGE = {
    "a line is another one": [
        "update migverify_runbook_events set line = replace(line, '20', '19') where run = ? and seq = 3"
    ],
    "a line is cut off": ["update migverify_runbook_events set line = substr(line, 1, 40) where run = ? and seq = 3"],
    "its first line is none": ["update migverify_runbook_events set line = 'x' where run = ? and seq = 0"],
    "no line is left": ["delete from migverify_runbook_events where run = ?"],
    "it is gone": [
        "delete from migverify_runbook_events where run = ?",
        "delete from migverify_runbook_runs where run = ?",
    ],
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_cutover_is_not_known_where_a_later_run_that_nobody_can_read_may_have_rolled_it_back(
    ready: MadeFleet, damage: list[str]
) -> None:
    def harm(run: str, *statements: str) -> None:
        with closing(sqlite3.connect(ready.folder / "drills" / "runs.db")) as database, database:
            for statement in statements:
                database.execute(statement, (run,))

    early = ready.drill("orders", 8)
    ready.drill("orders", 1, live=True)
    harm(early, DAMAGE["a line is cut off"][0])
    assert views(ready)["orders"].state.standing is ServiceStanding.CUT_OVER, "a run before it cannot roll it back"
    back = ready.journal("orders", RunKind.ROLLBACK, "orders-back", "prod")
    ready.drill("users", 8)  # it names the run before it
    harm(back, *damage)
    for requires in (["proof"], ["proof", "drills"]):
        found = views(ready, requires=requires)["orders"].state
        assert found.standing is NOT_KNOWN
        assert "run orders-live-1 cut it over, and run orders-back, which may have rolled it back: " in found.sentence


def test_a_rollback_by_a_runbook_of_its_own_ends_a_cutover(ready: MadeFleet) -> None:
    book = ready.runbook("orders")
    named = book.policy.readiness.model_copy(update={"rollback_runbooks": ("back",)})
    book = book.model_copy(update={"policy": book.policy.model_copy(update={"readiness": named})})
    ready.drill("orders", 1, live=True)
    live = next(run for run in past_runs(RunStore(ready.folder / "drills")) if run.run == "orders-live-1")
    back = replace(live, run="back-1", runbook="back", kind=RunKind.ROLLBACK, environment="production")

    def cut_over(*runs: PastRun) -> bool:
        return completed_cutover(ServiceJournals(book, Past(runs))) is not None

    assert cut_over(live)
    assert cut_over(back, live)
    assert not cut_over(live, back)
    assert not cut_over(live, replace(back, kind=RunKind.LIVE))
    assert cut_over(live, replace(back, instance={"service": "users"}))
    assert cut_over(live, replace(back, kind=RunKind.REHEARSAL))
    assert cut_over(live, replace(back, production=False))


def test_people_are_known_by_their_aliases_and_backups_step_in(ready: MadeFleet) -> None:
    for on_call, standing in ((["carol", "BOBBY"], READY), (["bob"], NOT_READY), ([], NOT_KNOWN)):
        entries = [ready.entry("orders", on_call=on_call), ready.entry("users")]
        found = views(ready, services=entries)
        assert found["orders"].state.standing is standing, on_call
    assert found["users"].state.standing is READY


def test_a_quick_answer_proves_nothing_where_it_is_equal_and_a_whole_proof_refutes_it(ready: MadeFleet) -> None:
    before = views(ready)["orders"].evidence.verifications
    ready.verify("orders", kind=StoredKind.QUICK)
    ready.verify("orders", kind=StoredKind.QUICK, ends=False)
    found = views(ready)["orders"]
    assert (found.state.standing, found.evidence.verifications) == (READY, before)
    ready.verify("orders", ["orders.t1"], kind=StoredKind.QUICK)
    assert views(ready)["orders"].state.standing is NOT_READY
    ready.verify("orders")
    assert views(ready)["orders"].state.standing is READY


@pytest.mark.parametrize("kind", [StoredKind.QUICK, StoredKind.TABLES])
def test_a_proof_of_what_was_written_since_does_not_refute_a_difference(ready: MadeFleet, kind: StoredKind) -> None:
    whole = views(ready)["orders"].evidence.verifications[0].run
    differs = ready.verify("orders", ["orders.t1"], kind=kind, chosen="orders.t1")
    ready.verify("orders", rests_on=whole)
    state = views(ready)["orders"].state
    assert state.standing is NOT_READY
    assert f"tables differ in run {differs}, and proof" in state.sentence
    again = ready.verify("orders")
    ready.verify("orders", rests_on=again)
    assert views(ready)["orders"].state.standing is READY


def test_a_proof_of_what_was_written_since_says_how_old_its_whole_read_is(ready: MadeFleet) -> None:
    whole = views(ready)["orders"].evidence.verifications[0].run
    store = ready.opened("orders")
    ended = store.load_run(whole).finished
    ready.verify("orders", rests_on=whole)
    proof = views(ready)["orders"].evidence.verifications[0]
    assert proof.rests_on == WholeRead(whole, ended)
    view = views(ready)["orders"]
    age = age_text(view.evidence.now - (ended or 0.0))  # a slow machine may take a minute up to here
    assert view.state.sentence.endswith(f"rests on a whole read {age} old.")
    wanted = needed_action(replace(views(ready)["orders"].evidence, now=(ended or 0.0) + 60.0), 86_400.0)
    assert (wanted[0], wanted[2].endswith("; it rests on a whole read 1 min old")) == (VerifyAction.REUSE, True)
    loaded = load_fleet(ready.write())
    week = 7 * 86_400.0
    assert (loaded.whole_read_max_age, views(ready, whole_read_max_age=None)["orders"].state.standing) == (week, READY)
    state = views(ready, whole_read_max_age="1ms")["orders"].state
    assert state.standing is NOT_KNOWN
    assert f"the last whole read, run {whole}, does not count" in state.sentence
    ready.verify("orders", rests_on="20200101T000000-gone00")
    found = views(ready)["orders"]
    assert found.evidence.verifications[0].rests_on == WholeRead("20200101T000000-gone00", None)
    assert found.state.standing is NOT_KNOWN
    found = views(ready, whole_read_max_age=None)["orders"]
    assert "whole read of unknown age" in found.state.sentence
    assert views(ready, whole_read_max_age="1h")["orders"].state.standing is NOT_KNOWN


def test_rechecks_do_not_count_a_table_again_and_its_figure_has_the_age_of_the_run(fleet: MadeFleet) -> None:
    for _ in range(3):
        last = fleet.verify("users", ["users.t1"])
    part = views(fleet)["users"].state.part(FleetPart.PROOF)
    assert [one.text for one in part.reasons] == [f"1 table differs in run {last}"]
    assert (part.run, part.figure) == (last, "MISMATCH")
    assert part.age is not None


def test_an_empty_file_is_no_store_and_stays_empty(ready: MadeFleet) -> None:
    ready.close()
    store = ready.folder / "orders" / "runs.db"
    for one in store.parent.glob("runs.db*"):
        one.unlink()
    store.touch()
    found = views(ready)["orders"]
    assert found.state.standing is NOT_KNOWN
    assert "runs.db: the file is empty" in found.evidence.unread[FleetPart.PROOF]
    assert (store.stat().st_size, len(list(store.parent.glob("runs.db*")))) == (0, 1)

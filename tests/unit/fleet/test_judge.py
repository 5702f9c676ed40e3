"""There is one way to READY: harm never improves a service, and neither does evidence that is missing, old or open."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.decision.model import Decision, DecisionPart, DecisionReason, EvidenceReason, ReasonKind, Standing
from migverify.fleet.judge import judge
from migverify.fleet.model import (
    AnswersEvidence,
    DrillsEvidence,
    FleetPart,
    PeopleEvidence,
    ServiceEvidence,
    ServiceRules,
    ServiceStanding,
    VerifyEvidence,
    WatchEvidence,
)
from migverify.model import Verdict
from migverify.runbook.history.readiness import MISSING, NOT_READY, READY, UNKNOWN, Condition, Readiness

NOW = 1_800_000_000.0
HOUR = 3_600.0
PROOF = VerifyEvidence("v1", Verdict.MATCH, NOW - 2 * HOUR, NOW - HOUR, NOW - HOUR, 50, 50)
READINESS = Readiness(READY, "cut", "sha", "prod", (Condition("drills", "ok", "4 drills", "4 drills"),), ("d1",), ())
DECISION_REASON = DecisionReason(DecisionPart.ANSWERS, "r", EvidenceReason(ReasonKind.HARM, "an answer differs"))
ANSWERS = AnswersEvidence("g1", Verdict.MATCH, NOW - HOUR, subjects=3)
STANDINGS = list(ServiceStanding)


def whole(**changes: Any) -> ServiceEvidence:
    """Return evidence of a service that is ready."""
    made = ServiceEvidence(
        "orders", NOW, verifications=(PROOF,),
        watch=WatchEvidence("w1", "alive", Verdict.MATCH, at=NOW - 1, position="binlog.7:42", lag=0.4, since="v1"),
        rules=ANSWERS, decision=Decision(Standing.GO, NOW, ()), schema=replace(ANSWERS, fingerprint="f" * 64),
        ids=replace(ANSWERS, days_left=900.0), drills=DrillsEvidence(READINESS, 4, 4, "d4", "f" * 64),
        people=PeopleEvidence(("alice", "bob"), {"coordinator": ("alice", "erin"), "dba": ("bob",)}),
    )  # fmt: skip
    return replace(made, **changes)


def bad_condition(state: str, id_: str = "clean") -> DrillsEvidence:
    condition = Condition(id_, state, "2 drills", "1 of 2", ("d3 was not clean",), "Hold one.")
    verdict = NOT_READY if state == MISSING else "inconclusive"
    return DrillsEvidence(replace(READINESS, verdict=verdict, conditions=(condition,)), 4, 3, "d4", "f" * 64)


def test_all_proved_is_ready_and_says_so() -> None:
    found = judge(whole())
    assert (found.standing, found.reasons) == (ServiceStanding.READY, ())
    assert found.sentence == "Every required part is proved."
    assert {part.standing for part in found.parts} == {ServiceStanding.READY}
    assert judge(ServiceEvidence("orders", NOW)).standing is ServiceStanding.NOT_KNOWN


def test_a_proof_of_a_part_of_the_tables_rows_says_so_wherever_it_says_match() -> None:
    found = judge(whole(verifications=(replace(PROOF, left_out="4 of them in part (where), 1 excluded"),)))
    assert found.standing is ServiceStanding.READY
    assert {part.part: part.figure for part in found.parts}[FleetPart.PROOF] == (
        "MATCH, 50 tables, 4 of them in part (where), 1 excluded"
    )
    assert found.sentence == (
        "Every required part is proved; the proof is of 50 tables, 4 of them in part (where), 1 excluded."
    )


DIFFERS = VerifyEvidence("v2", Verdict.MISMATCH, NOW - 300, NOW - 200, NOW - 200, 50, 49, 1)
HARMS: list[tuple[str, dict[str, Any], str]] = [
    ("a newer verification", {"verifications": (DIFFERS, PROOF)}, "Proof: 1 table differs in run v2"),
    ("one that goes on", {"verifications": (replace(DIFFERS, verdict=Verdict.INCONCLUSIVE, ended=None), PROOF)},
     "Proof: 1 table differs"),
    ("a part of the tables", {"verifications": (replace(DIFFERS, partial="of one table"), PROOF)}, "1 table differs"),
    ("the watch", {"watch": WatchEvidence("w1", "alive", Verdict.MISMATCH, at=NOW, lag=0.1, diverged=3)},
     "Watch: 3 keys differ for good in watch w1"),
    ("a watch that ended", {"watch": WatchEvidence("w1", "ended", Verdict.MISMATCH, at=NOW, diverged=3)}, "3 keys"),
    ("rules", {"rules": AnswersEvidence("r1", Verdict.MISMATCH, NOW - HOUR, "", ("rule sums: 2 keys",), 3, 1)},
     "Rules: rule sums: 2 keys"),
    ("money", {"rules": replace(ANSWERS, money={"EUR": "12.50"})}, "12.50 EUR is at risk"),
    ("the decision", {"decision": Decision(Standing.NO_GO, NOW, (), (DECISION_REASON,))},
     "Decision: NO-GO: answers: an answer differs"),
    ("definitions", {"schema": replace(ANSWERS, fingerprint="e" * 64)}, "definitions changed since drill d4"),
    ("ids", {"ids": AnswersEvidence("i1", Verdict.MISMATCH, NOW, "", ("orders.id: 3 days",), 9, 1, days_left=3.0)},
     "Ids: orders.id: 3 days"),
    ("ids that ended", {"ids": replace(ANSWERS, days_left=-1.0)}, "has ended"),
    ("drills", {"drills": bad_condition(MISSING)}, "Drills: clean: d3 was not clean"),
    ("a window that is over", {"closes": NOW - 8 * 86_400},
     "Window: the window of its wave closed 8 days ago, and it is not cut over"),
    ("somebody missing", {"people": PeopleEvidence(("bob",), {"coordinator": ("alice", "erin"), "dba": ("bob",)})},
     "not on call: alice (coordinator)"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "changes", "words"), HARMS, ids=[one[0] for one in HARMS])
def test_proved_harm_is_not_ready_also_of_a_part_that_is_not_required(
    what: str, changes: dict[str, Any], words: str
) -> None:
    found = judge(whole(**changes))
    assert found.standing is ServiceStanding.NOT_READY, what
    assert words in found.sentence
    for required in (frozenset({FleetPart.IDS}), frozenset({FleetPart.PROOF})):
        assert judge(whole(**changes), ServiceRules(required)).standing is ServiceStanding.NOT_READY


def test_a_drill_that_nobody_held_is_no_harm_where_drills_are_not_required() -> None:
    missing = Condition("drills", MISSING, "4 drills", "0 of 4 drills went through", (), "Hold one.")
    none_held = DrillsEvidence(replace(READINESS, verdict=NOT_READY, conditions=(missing,), drills=()))
    evidence = whole(drills=none_held, schema=ANSWERS)
    assert judge(evidence, ServiceRules(frozenset({FleetPart.PROOF}))).standing is ServiceStanding.READY
    required = judge(evidence)
    assert required.standing is ServiceStanding.NOT_READY
    assert required.sentence.startswith("Drills: 0 of 4 drills went through")
    failed = replace(none_held, readiness=replace(none_held.readiness, not_counted=(("d1", "it failed"),)))
    found = judge(whole(drills=failed), ServiceRules(frozenset({FleetPart.PROOF})))
    assert found.standing is ServiceStanding.NOT_READY
    assert "; this part is not required, and what it shows to be wrong counts" in found.sentence


OLD = NOW - 8 * 86_400
NOT_FULL = replace(PROOF, run="v2")
DOUBTS: list[tuple[str, dict[str, Any], str]] = [
    ("nobody", {"people": PeopleEvidence((), {"dba": ("bob",)})}, "the fleet file names nobody on call"),
    ("no verification", {"verifications": ()}, "the store holds no verification"),
    ("one that goes on", {"verifications": (replace(PROOF, run="v2", ended=None), PROOF)}, "v2 goes on, or was cut"),
    ("a run without an end", {"verifications": (replace(PROOF, ended=None, proved_at=None),)}, "v1 goes on"),
    ("an old proof", {"verifications": (replace(PROOF, proved_at=NOW - 25 * HOUR),)}, "25 h old, and 24 h are allowed"),
    ("one of the future", {"verifications": (replace(PROOF, proved_at=NOW + 9 * HOUR),)}, "a clock is wrong"),
    ("one without a time", {"verifications": (replace(PROOF, proved_at=None),)}, "not known of when"),
    ("nan", {"verifications": (replace(PROOF, proved_at=float("nan")),)}, "not known of when"),
    ("another pair", {"verifications": (replace(NOT_FULL, strange="it is of another configuration"),)}, "another conf"),
    ("one table", {"verifications": (replace(NOT_FULL, partial="it is of one table"),)}, "it is of one table"),
    ("no table", {"verifications": (replace(NOT_FULL, tables=0, matched=0),)}, "0 of 0 tables"),
    ("a missing result", {"verifications": (replace(NOT_FULL, matched=49),)}, "49 of 50 tables"),
    ("inconclusive", {"verifications": (replace(NOT_FULL, verdict=Verdict.INCONCLUSIVE, matched=40), PROOF)},
     "left 10 of 50 tables INCONCLUSIVE"),
    ("no watch", {"watch": None}, "no watch"),
    ("a dead watch", {"watch": WatchEvidence("w1", "not alive", Verdict.INCONCLUSIVE)}, "w1 does not run"),
    ("a watch that ended", {"watch": WatchEvidence("w1", "ended", Verdict.MATCH, at=NOW, lag=0.1)}, "does not run"),
    ("an old status", {"watch": WatchEvidence("w1", "alive", Verdict.MATCH, at=NOW - 90, lag=0.1)}, "2 min old"),
    ("no status", {"watch": WatchEvidence("w1", "alive", Verdict.MATCH, lag=0.1)}, "not known of when"),
    ("lag", {"watch": WatchEvidence("w1", "alive", Verdict.MATCH, at=NOW, lag=61.0)}, "61 s behind, and 60 s"),
    ("unknown lag", {"watch": WatchEvidence("w1", "alive", Verdict.MATCH, at=NOW)}, "an unknown time behind"),
    ("nan lag", {"watch": WatchEvidence("w1", "alive", Verdict.MATCH, at=NOW, lag=float("nan"))}, "unknown time"),
    ("an open watch", {"watch": WatchEvidence("w1", "alive", Verdict.INCONCLUSIVE, "2 keys are open", NOW, "", 0.1)},
     "w1 is INCONCLUSIVE: 2 keys are open"),
    ("no rules", {"rules": None}, "no answers about rules"),
    ("rules that are running", {"rules": replace(ANSWERS, pending="run g1 goes on, or was cut off")}, "g1 goes on"),
    ("no rule", {"rules": replace(ANSWERS, subjects=0)}, "asked about nothing"),
    ("old rules", {"rules": replace(ANSWERS, taken=OLD)}, "8 days old"),
    ("no decision", {"decision": None}, "names no capture"),
    ("not known", {"decision": Decision(Standing.NOT_KNOWN, NOW, ())}, "NOT KNOWN: it names no reason"),
    ("go with a reason", {"decision": Decision(Standing.GO, NOW, (), (DECISION_REASON,))}, "an answer differs"),
    ("no schema", {"schema": None}, "no answers about definitions"),
    ("no fingerprint", {"schema": ANSWERS}, "which definitions it saw"),
    ("no drill", {"drills": DrillsEvidence(READINESS)}, "no drill to compare"),
    ("a drill without", {"drills": DrillsEvidence(READINESS, 4, 4, "d4")}, "on which definitions it ran"),
    ("no ids", {"ids": None}, "no answers about id spaces"),
    ("unknown condition", {"drills": bad_condition(UNKNOWN)}, "d3 was not clean"),
    ("no runbook", {"drills": None, "people": None}, "no runbook is named"),
    ("no roles", {"people": PeopleEvidence(("bob",), {})}, "names nobody"),
    ("a silent readiness", {"drills": DrillsEvidence(replace(READINESS, verdict="?"), 4, 4, "d4", "f" * 64)},
     "not ready, and names no reason"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "changes", "words"), DOUBTS, ids=[one[0] for one in DOUBTS])
def test_what_is_missing_open_old_or_of_something_else_is_not_known(
    what: str, changes: dict[str, Any], words: str
) -> None:
    found = judge(whole(**changes))
    assert found.standing is ServiceStanding.NOT_KNOWN, what
    assert any(words in one.text for one in found.reasons), [one.text for one in found.reasons]


@pytest.mark.parametrize("part", FleetPart)
def test_a_part_that_cannot_be_read_is_not_known_and_leaves_the_others_alone(part: FleetPart) -> None:
    found = judge(whole(unread={part: "the store is away"}))
    assert found.standing is ServiceStanding.NOT_KNOWN
    assert found.sentence == f"{part.value.capitalize()}: the store is away."
    assert {one.standing for one in found.parts if one.part is not part} == {ServiceStanding.READY}
    others = frozenset(FleetPart) - {part}
    assert judge(whole(unread={part: "the store is away"}), ServiceRules(others)).standing is ServiceStanding.READY


def test_nothing_required_proves_nothing() -> None:
    found = judge(whole(), ServiceRules(frozenset()))
    assert found.standing is ServiceStanding.NOT_KNOWN
    assert "nothing is required" in found.sentence


def test_a_decision_that_the_runbook_asks_for_counts_where_the_fleet_does_not() -> None:
    drills = bad_condition(UNKNOWN, "decision")
    rest = frozenset(FleetPart) - {FleetPart.DECISION}
    assert judge(whole(drills=drills), ServiceRules(rest)).standing is ServiceStanding.NOT_KNOWN
    found = judge(whole(drills=drills, decision=Decision(Standing.NOT_KNOWN, NOW, ())))
    assert [one.part for one in found.reasons] == [FleetPart.DECISION]
    assert judge(whole(drills=drills)).standing is ServiceStanding.NOT_KNOWN


def test_the_worst_reason_is_first_and_the_others_are_counted() -> None:
    found = judge(whole(ids=None, watch=None, verifications=(DIFFERS, PROOF), people=None))
    assert [one.part for one in found.reasons] == [
        FleetPart.PROOF, FleetPart.WATCH, FleetPart.IDS, FleetPart.PEOPLE,
    ]  # fmt: skip
    assert found.sentence.endswith("(and 3 more).")


def test_a_cutover_that_is_done_is_neither_ready_nor_not() -> None:
    found = judge(whole(cut_over=("run-7", NOW - HOUR), watch=None))
    assert (found.standing, found.reasons) == (ServiceStanding.CUT_OVER, ())
    assert "run-7" in found.sentence


Worse = Callable[[ServiceEvidence], ServiceEvidence]
REMOVALS: dict[str, dict[str, Any]] = {
    name: {name: () if name == "verifications" else None}
    for name in ("verifications", "watch", "rules", "decision", "schema", "ids", "drills", "people")
}
CHANGES = [changes for _, changes, _ in (*HARMS, *DOUBTS)] + list(REMOVALS.values())


@given(st.lists(st.sampled_from(CHANGES), min_size=1), st.sets(st.sampled_from(FleetPart)), st.data())
def test_worse_or_less_evidence_never_makes_a_service_ready(
    changes: list[dict[str, Any]], required: set[FleetPart], data: st.DataObject
) -> None:
    rules = ServiceRules(frozenset(required))
    before = whole()
    for change in changes:  # what was worse stays: no change touches a part that one before it touched
        if any(getattr(before, name) != getattr(whole(), name) for name in change):
            continue
        if change == REMOVALS["drills"] and not required & {FleetPart.SCHEMA, FleetPart.DRILLS}:
            continue  # that definitions changed is seen by the last drill alone, and neither is asked for
        after = replace(before, **change)
        states = [judge(one, rules).standing for one in (before, after)]
        # Without its drill a definition is not known to have changed: what was NOT READY may become NOT KNOWN.
        assert states[1] is not ServiceStanding.READY or states[0] is ServiceStanding.READY
        before = after
    if frozenset(FleetPart) == rules.required:
        assert judge(before, rules).standing is not ServiceStanding.READY
    unread = data.draw(st.sets(st.sampled_from(FleetPart)))
    hidden = judge(replace(before, unread=dict.fromkeys(unread, "away")), rules)
    if unread & rules.required:
        assert hidden.standing is not ServiceStanding.READY


@given(st.lists(st.sampled_from([changes for _, changes, _ in HARMS]), min_size=1))
def test_whatever_harm_is_added_the_service_stays_not_ready(changes: list[dict[str, Any]]) -> None:
    found = whole()
    for change in changes:
        found = replace(found, **change)
        assert judge(found).standing is ServiceStanding.NOT_READY


@given(st.sampled_from(list(REMOVALS)), st.lists(st.sampled_from(CHANGES)))
def test_removing_evidence_never_makes_ready(name: str, changes: list[dict[str, Any]]) -> None:
    found = whole()
    for change in changes:
        found = replace(found, **change)
    assert judge(replace(found, **REMOVALS[name])).standing is not ServiceStanding.READY


def test_more_required_parts_never_make_a_service_better() -> None:
    for _, changes, _ in (*HARMS, *DOUBTS):
        evidence = whole(**changes)
        for few, part in itertools.product([{FleetPart.PROOF}, set(FleetPart)], FleetPart):
            less = judge(evidence, ServiceRules(frozenset(few)))
            more = judge(evidence, ServiceRules(frozenset({*few, part})))
            assert STANDINGS.index(more.standing) <= STANDINGS.index(less.standing)


def test_two_ages_that_are_equal_in_minutes_are_said_in_seconds() -> None:
    evidence = whole(verifications=(replace(PROOF, proved_at=NOW - 3.0),))
    assert "it is 3 s old, and 1 s are allowed" in judge(evidence, ServiceRules(proof_max_age=1.0)).sentence

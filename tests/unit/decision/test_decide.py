"""There is one way to GO, harm never improves a decision, and the same evidence gives the same page in any order."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.decision.decide import decide
from migverify.decision.model import (
    HARM_ORDER,
    Basis,
    Decision,
    DecisionEvidence,
    DecisionPart,
    DecisionRules,
    EvidenceReason,
    PartEvidence,
    ReasonKind,
    Standing,
)

NOW = 1_800_000_000.0
BASIS = Basis({"source": "a:1", "target": "b:2"}, {"source": "mysql 9", "target": "tidb 8"}, "s" * 64, "c" * 64, "k",
              {"source": "uuid-1", "target": "cluster 7"})  # fmt: skip
ORDER = list(Standing)


def reason(kind: ReasonKind = ReasonKind.HARM, text: str = "why", weight: float = 0.0) -> EvidenceReason:
    return EvidenceReason(kind, text, "do this", weight, "ann, until 2027-01-01: known" * (kind is ReasonKind.WAIVED))


def fine(part: DecisionPart, *reasons: EvidenceReason, age: float = 60.0, basis: Basis | None = BASIS) -> PartEvidence:
    return PartEvidence(part, f"run-{part}", NOW - age, NOW - age - 10, basis, reasons=reasons, again="ask again")


def whole(**changed: PartEvidence) -> DecisionEvidence:
    return DecisionEvidence(NOW, BASIS, tuple(changed.get(part.name.lower(), fine(part)) for part in DecisionPart))


def part_of(decision: Decision, part: DecisionPart) -> tuple[Standing, tuple[str, ...]]:
    found = next(one for one in decision.parts if one.part is part)
    return found.standing, tuple(one.reason.text for one in found.reasons)


def test_all_fine_and_fresh_is_go_and_nothing_else_is() -> None:
    found = decide(whole())
    assert (found.standing, found.reasons) == (Standing.GO, ())
    assert {one.standing for one in found.parts} == {Standing.GO}
    assert decide(DecisionEvidence(NOW, BASIS, ())).standing is Standing.NOT_KNOWN
    assert decide(replace(whole(), basis=None, unread="no answer")).standing is Standing.NOT_KNOWN


@pytest.mark.parametrize("count", range(1, len(DecisionPart) + 1))
def test_no_combination_without_evidence_is_go(count: int) -> None:
    for missing in itertools.combinations(DecisionPart, count):
        left = tuple(one for one in whole().parts if one.part not in missing)
        found = decide(DecisionEvidence(NOW, BASIS, left))
        assert found.standing is Standing.NOT_KNOWN
        assert [one.part for one in found.reasons] == [part for part in HARM_ORDER if part in missing]


OTHER = [
    ("another pair", replace(BASIS, pair={"source": "a:1", "target": "x:9"})),
    ("another pair", replace(BASIS, pair={})),
    ("definitions", replace(BASIS, schema="t" * 64)),
    ("configuration", replace(BASIS, configuration="d" * 64)),
    ("another capture", replace(BASIS, capture="other")),
    ("another capture", replace(BASIS, capture="")),
    ("target was tidb 7 then, and is tidb 8 now", replace(BASIS, versions={"source": "mysql 9", "target": "tidb 7"})),
    ("not recorded", replace(BASIS, versions={})),
    ("does not say", None),
]


@pytest.mark.parametrize("part", DecisionPart)
@pytest.mark.parametrize(("words", "basis"), OTHER)
def test_evidence_of_something_else_is_not_known_and_its_harm_does_not_count(
    part: DecisionPart, words: str, basis: Basis | None
) -> None:
    found = decide(whole(**{part.name.lower(): fine(part, basis=basis)}))
    standing, texts = part_of(found, part)
    assert (found.standing, standing) == (Standing.NOT_KNOWN, Standing.NOT_KNOWN)
    assert any(words in text for text in texts)
    harmed = decide(whole(**{part.name.lower(): fine(part, reason(), basis=basis)}))
    assert harmed.standing is Standing.NOT_KNOWN
    assert all(one.reason.remedy for one in harmed.reasons)


def test_a_part_that_rests_on_no_capture_needs_none() -> None:
    evidence = replace(fine(DecisionPart.CLIENTS, basis=replace(BASIS, capture="")), needs_capture=False)
    assert decide(whole(clients=evidence)).standing is Standing.GO


def test_clones_that_were_named_count_and_others_do_not() -> None:
    clones = {"source": "clone:1", "target": "clone:2"}
    evidence = whole(anomalies=fine(DecisionPart.ANOMALIES, basis=replace(BASIS, pair=clones)))
    assert decide(evidence).standing is Standing.NOT_KNOWN
    assert decide(evidence, DecisionRules(clones=(clones,))).standing is Standing.GO
    half = {"source": "clone:1", "target": "b:2"}
    evidence = whole(anomalies=fine(DecisionPart.ANOMALIES, basis=replace(BASIS, pair=half)))
    assert decide(evidence, DecisionRules(clones=(clones,))).standing is Standing.NOT_KNOWN


@pytest.mark.parametrize(
    ("age", "words"),
    [
        (7 * 86_400 + 1, "are allowed"),
        (-121.0, "ahead of now"),
        (float("nan"), "not known of when"),
        (float("-inf"), "not known of when"),
        (float("inf"), "not known of when"),
    ],
)
def test_stale_evidence_and_that_of_the_future_is_not_known_and_its_harm_stays(age: float, words: str) -> None:
    standing, texts = part_of(decide(whole(plans=fine(DecisionPart.PLANS, age=age))), DecisionPart.PLANS)
    assert standing is Standing.NOT_KNOWN
    assert any(words in text for text in texts)
    assert decide(whole(plans=fine(DecisionPart.PLANS, reason(), age=age))).standing is Standing.NO_GO


def test_a_run_that_ended_before_it_began_is_of_a_wrong_clock() -> None:
    evidence = replace(fine(DecisionPart.PLANS), began=NOW + 3600)
    assert part_of(decide(whole(plans=evidence)), DecisionPart.PLANS)[0] is Standing.NOT_KNOWN


def test_a_limit_of_age_can_be_configured() -> None:
    evidence = whole(plans=fine(DecisionPart.PLANS, age=2 * 86_400))
    assert decide(evidence).standing is Standing.GO
    assert decide(evidence, DecisionRules(max_age=86_400.0)).standing is Standing.NOT_KNOWN


def test_a_part_that_is_not_required_may_be_unknown_and_may_not_be_harmful() -> None:
    rules = DecisionRules(required=frozenset(DecisionPart) - {DecisionPart.CLIENTS})
    unknown = whole(clients=PartEvidence(DecisionPart.CLIENTS))
    found = decide(unknown, rules)
    assert (found.standing, part_of(found, DecisionPart.CLIENTS)[0]) == (Standing.GO, Standing.NOT_KNOWN)
    assert decide(whole(clients=fine(DecisionPart.CLIENTS, reason())), rules).standing is Standing.NO_GO
    nothing = decide(whole(), DecisionRules(required=frozenset()))
    assert nothing.standing is Standing.NOT_KNOWN
    assert nothing.reasons


def test_harm_comes_in_its_order_then_what_is_not_known() -> None:
    parts = {
        part.name.lower(): fine(part, reason(text=f"harm of {part}"), reason(ReasonKind.DOUBT, f"doubt of {part}"))
        for part in DecisionPart
    }
    texts = [one.reason.text for one in decide(whole(**parts)).reasons]
    assert texts == [f"harm of {part}" for part in HARM_ORDER] + [f"doubt of {part}" for part in HARM_ORDER]
    assert [part.value for part in HARM_ORDER] == [
        "answers", "anomalies", "latency", "plans", "hotspots", "conflicts", "clients",
    ]  # fmt: skip
    weighed = fine(
        DecisionPart.PLANS, reason(text="light", weight=1), reason(text="heavy", weight=9), reason(text="a", weight=1)
    )
    assert [one.reason.text for one in decide(whole(plans=weighed)).reasons] == ["heavy", "a", "light"]


def test_what_was_accepted_is_shown_and_is_no_reason() -> None:
    found = decide(whole(answers=fine(DecisionPart.ANSWERS, reason(ReasonKind.WAIVED, "accepted"))))
    assert (found.standing, found.reasons) == (Standing.GO, ())
    (shown,) = found.parts[0].of_kind(ReasonKind.WAIVED)
    assert shown.reason.waiver.startswith("ann, until")


reasons = st.builds(
    EvidenceReason, st.sampled_from(ReasonKind), st.text(max_size=8), st.text(max_size=4),
    st.floats(allow_nan=True), st.text(max_size=4), st.text(max_size=4),
)  # fmt: skip
bases = st.sampled_from([BASIS, BASIS, BASIS, *(basis for _, basis in OTHER)])
ages = st.one_of(st.floats(-1e6, 2e6), st.just(10.0), st.sampled_from([float("nan"), float("inf")]))


@st.composite
def evidence_of_any_kind(draw: st.DrawFn) -> DecisionEvidence:
    parts = []
    for part in draw(st.permutations(list(DecisionPart))):
        if draw(st.booleans()):
            continue
        age = draw(ages)
        parts.append(PartEvidence(
            part, draw(st.sampled_from(["", "run", "run"])), draw(st.sampled_from([None, NOW - age, NOW - 5])),
            draw(st.sampled_from([None, NOW - age - 1])), draw(bases),
            reasons=tuple(draw(st.lists(reasons, max_size=3))),
        ))  # fmt: skip
    return DecisionEvidence(NOW, draw(st.sampled_from([BASIS, BASIS, None])), tuple(parts))


rules_of_any_kind = st.builds(DecisionRules, st.frozensets(st.sampled_from(DecisionPart)), st.floats(1, 1e6))


@settings(max_examples=300)
@given(evidence_of_any_kind(), rules_of_any_kind, st.sampled_from(DecisionPart), reasons)
def test_harm_never_improves_a_decision(
    evidence: DecisionEvidence, rules: DecisionRules, part: DecisionPart, more: EvidenceReason
) -> None:
    before = decide(evidence, rules)
    added = replace(more, kind=ReasonKind.HARM)
    there = {one.part for one in evidence.parts}
    parts = [
        replace(one, reasons=(*one.reasons, added)) if one.part is part else one for one in evidence.parts
    ] + ([] if part in there else [fine(part, added)])  # fmt: skip
    after = decide(replace(evidence, parts=tuple(parts)), rules)
    if part in there:
        assert ORDER.index(after.standing) <= ORDER.index(before.standing)
    else:
        assert after.standing is not Standing.GO or part not in rules.required


@settings(max_examples=300)
@given(evidence_of_any_kind(), rules_of_any_kind, st.randoms(use_true_random=False))
def test_the_order_of_reasons_is_stable(evidence: DecisionEvidence, rules: DecisionRules, random: object) -> None:
    parts = list(evidence.parts)
    random.shuffle(parts)  # type: ignore[attr-defined]
    shuffled = []
    for one in parts:
        own = list(one.reasons)
        random.shuffle(own)  # type: ignore[attr-defined]
        shuffled.append(replace(one, reasons=tuple(own)))
    first, second = decide(evidence, rules), decide(replace(evidence, parts=tuple(shuffled)), rules)
    assert [one.as_json() for one in first.reasons] == [one.as_json() for one in second.reasons]
    assert first.standing is second.standing


@settings(max_examples=300)
@given(evidence_of_any_kind(), rules_of_any_kind)
def test_go_is_only_where_every_required_part_is_fresh_and_of_this_service(
    evidence: DecisionEvidence, rules: DecisionRules
) -> None:
    found = decide(evidence, rules)
    assert {one.part for one in found.parts} == set(DecisionPart)
    if found.standing is not Standing.GO:
        assert found.reasons, "whoever reads NO-GO or NOT KNOWN learns why"
        return
    assert rules.required
    by_part = {one.part: one for one in evidence.parts}
    for part in rules.required:
        one = by_part[part]
        assert one.run
        assert one.taken is not None
        assert -rules.skew <= NOW - one.taken <= rules.max_age
        assert one.basis == BASIS
        assert all(each.kind is ReasonKind.WAIVED for each in one.reasons)
    assert not any(one.of_kind(ReasonKind.HARM) for one in found.parts)


@pytest.mark.parametrize("body", [None, [], "x", {}, {"pair": {}}, {**BASIS.as_json(), "schema": 5},
                                  {**BASIS.as_json(), "schema": ""}, {**BASIS.as_json(), "pair": []}])  # fmt: skip
def test_a_basis_that_is_not_whole_is_none(body: object) -> None:
    assert Basis.from_json(body) is None
    assert Basis.from_json(BASIS.as_json()) == BASIS

"""Tallies add up in any order; tests and intervals say what their sources say; verdicts fail closed."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.model import Verdict
from migverify.workload.catalogue.model import Label, LabelState
from migverify.workload.replay.latency import Histogram, bounds_of, bucket_of
from migverify.workload.replay.model import Difference, DifferenceSeverity, JudgedCall, Judgement
from migverify.workload.replay.statistics import fisher, rank_interval, shifts, signals
from migverify.workload.replay.tally import EXAMPLES, NAMES, OTHERS, DigestTally, ExampleKeeper, Names, ReplayTally
from migverify.workload.replay.verdict import MatchRequirements, ReplayVerdict, verdict

BLOCKER = Difference("value", DifferenceSeverity.BLOCKER, "1", "2", "a")


@st.composite
def judgements(draw: st.DrawFn) -> JudgedCall:
    state = draw(st.sampled_from(Judgement))
    differences = draw(st.lists(st.builds(
        Difference, st.sampled_from(["value", "order", "flags"]), st.sampled_from(DifferenceSeverity),
        st.sampled_from("xy"), st.sampled_from("xy"), st.sampled_from(["", "a", "b"]),
    ), max_size=2))  # fmt: skip
    details = {"at": str(draw(st.integers(0, 99))), "user": draw(st.sampled_from(["u1", "u2"])), "text": "SELECT ?"}
    if state is not Judgement.SAME:
        details |= {"sql": "SELECT 1", "source": "1", "target": "2"}
    times = draw(st.lists(st.one_of(st.none(), st.integers(0, 10**7)), min_size=4, max_size=4))
    return JudgedCall(
        draw(st.sampled_from(["s1", "s2", "s3"])), draw(st.integers(0, 9)), draw(st.sampled_from(["d1", "d2"])), state,
        tuple(differences), draw(st.sampled_from(["", "r1", "r2"])), draw(st.sampled_from(["", "the source"])),
        *times, draw(st.integers(0, 10**6)), draw(st.booleans()), draw(st.booleans()), draw(st.integers(1, 2)), details,
    )  # fmt: skip


def tally_of(found: list[JudgedCall]) -> ReplayTally:
    tally = ReplayTally()
    for one in found:
        tally.add(one)
    return tally


def as_json(tally: ReplayTally) -> str:
    return json.dumps([tally.digests[digest].as_json() for digest in sorted(tally.digests)])


@settings(max_examples=30)
@given(st.randoms(use_true_random=False), st.lists(judgements(), max_size=12))
def test_a_tally_counts_truly_in_any_order_and_survives_json(chance: random.Random, found: list[JudgedCall]) -> None:
    tally = tally_of(found)
    assert tally.count == len(found)
    assert sum(tally.state(state) for state in Judgement) == len(found)
    text = as_json(tally)
    chance.shuffle(found)
    assert as_json(tally_of(found)) == text
    for one in json.loads(text):
        assert DigestTally.from_json(one).as_json() == tally.digests[one["digest"]].as_json()


@given(st.lists(st.integers(0, 120), max_size=200), st.integers(0, 200))
def test_names_are_bounded_and_sums_are_true(found: list[int], cut: int) -> None:
    def names(parts: list[int]) -> Names:
        out = Names()
        for part in parts:
            out.add(f"{part:03}")
        return out

    whole = names(found)
    assert names([*found[cut:], *found[:cut]]).counts == whole.counts
    assert sum(whole.counts.values()) == len(found)
    assert len(whole.counts.keys() - {OTHERS}) <= NAMES


def test_counts_are_true_beyond_the_examples() -> None:
    tally = ReplayTally()
    for place in range(50):
        tally.add(JudgedCall("s", place, "d", Judgement.DIFFERENT, (BLOCKER,), details={"sql": f"SELECT {place}"}))
    found = tally.of("d")
    assert found.state(Judgement.DIFFERENT) == found.aspects["value"].different == 50
    assert [one.position for one in found.examples["value"]] == list(range(EXAMPLES))
    keeper = ExampleKeeper()
    kept = [
        keeper.keep(JudgedCall("s", n, "d", Judgement.DIFFERENT, (BLOCKER,), details={"sql": "x", "at": "1"}))
        for n in range(9)
    ]
    assert sum("sql" in one.details for one in kept) == EXAMPLES
    assert all("at" in one.details for one in kept)


@given(st.integers(0, 2**62))
def test_a_bucket_holds_its_values_to_a_thirtieth(value: int) -> None:
    low, high = bounds_of(bucket_of(value))
    assert low <= value <= high
    assert (high - low) <= max(low / 31, 0)
    assert bucket_of(high + 1) == bucket_of(value) + 1


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=300), st.sampled_from([0.01, 0.5, 0.95, 0.99, 1.0]))
def test_quantiles_bound_the_exact_ones(values: list[int], share: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    exact = sorted(values)[min(len(values), max(1, -int(-share * len(values) // 1))) - 1]
    found = histogram.quantile(share)
    assert found is not None
    assert exact <= found <= exact * 33 / 32 + 1
    assert Histogram.from_json(histogram.as_json()) == histogram


def test_fishers_test_gives_the_numbers_of_the_book() -> None:
    # the lady tasting tea: 3 of 4 against 1 of 4, and 4 of 4 against 0 of 4
    assert fisher(3, 4, 1, 4) == pytest.approx(17 / 70)
    assert fisher(4, 4, 0, 4) == pytest.approx(1 / 70)
    assert fisher(0, 5, 0, 5) == 1.0
    assert fisher(0, 5, 3, 5) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="hits"):
        fisher(2, 1, 0, 1)


def test_ranks_bound_a_quantile_as_the_binomial_says() -> None:
    # 95 % for a median of 20: the 6th and the 15th value at least
    low, high = rank_interval(20, 0.5, 0.95) or (0, 0)
    assert (low, high) == (4, 17)
    assert rank_interval(5, 0.5, 0.95) is None
    low, high = rank_interval(10_000, 0.5, 0.95) or (0, 0)
    assert 4_890 <= low <= 4_905
    assert 5_095 <= high <= 5_110


def histogram(*values: int, times: int = 1) -> Histogram:
    made = Histogram()
    for value in values:
        made.add(value, times)
    return made


def test_a_shift_needs_certainty_and_the_floor() -> None:
    slow, fast = histogram(*range(50_000, 60_000, 10), times=5), histogram(*range(1_000, 2_000), times=5)
    found = shifts(fast, slow, confidence=0.99, floor=5_000)
    assert [one.quantile for one in found] == [0.5, 0.95, 0.99]
    assert found[0].slower > 45_000
    assert not shifts(slow, fast, confidence=0.99, floor=5_000)
    assert not shifts(fast, histogram(*range(2_000, 4_000)), confidence=0.99, floor=5_000)  # twice as slow, not by 5 ms
    assert not shifts(histogram(1_000, 1_100), histogram(90_000, 91_000), confidence=0.99, floor=0)  # two of each
    assert not shifts(Histogram(), slow, confidence=0.9, floor=0)


def test_a_first_execution_and_a_pause_are_not_slower() -> None:
    """One call that loads what others find, and a pause that holds up a few of thousands (garbage collection)."""
    fast = [1_000 + n % 100 for n in range(4_000)]
    first, pause = [3_000_000, *fast[1:]], [*fast[:2_000], *[400_000] * 20, *fast[2_020:]]
    for calls in (first[:300], first, pause):
        assert not shifts(histogram(*fast), histogram(*calls), confidence=0.99, floor=5_000)
    pauses = [400_000 if n % 20 == 0 else one for n, one in enumerate(fast)]
    assert [one.quantile for one in shifts(histogram(*fast), histogram(*pauses), confidence=0.99, floor=5_000)] == [
        0.99
    ]


def digest_tally(same: int, different: int, repeated: int = 0, noisy: int = 0) -> DigestTally:
    tally = DigestTally("d")
    for number, state in ((same, Judgement.SAME), (different, Judgement.DIFFERENT)):
        for place in range(number):
            tally.add(JudgedCall("s", place, "d", state, (BLOCKER,) if state is Judgement.DIFFERENT else ()))
    for place in range(repeated):
        noise = "the source" if place < noisy else ""
        state = Judgement.INDETERMINATE if noise else Judgement.SAME
        tally.add(JudgedCall("s", place, "d", state, noisy=noise, repeats=2, details={"sampled": "1"}))
    return tally


@pytest.mark.parametrize(
    ("different", "noisy", "signal"), [(1, 0, True), (1, 5, False), (40, 5, True), (6, 5, False), (0, 5, None)]
)
def test_a_difference_is_signal_when_it_exceeds_the_noise(different: int, noisy: int, signal: bool | None) -> None:
    found = signals(digest_tally(100 - different, different, 100, noisy), 0.001)
    assert [one.signal for one in found] == ([] if signal is None else [signal])


def whole(*found: JudgedCall, **options: object) -> ReplayVerdict:
    return verdict(tally_of(list(found)), **options)  # type: ignore[arg-type]


def of(found: ReplayVerdict, digest: str) -> str:
    return next(one.weight for one in found.digests if one.digest == digest)


def many(state: Judgement, number: int, digest: str = "d", **parts: object) -> list[JudgedCall]:
    return [JudgedCall("s", place, digest, state, **parts) for place in range(number)]  # type: ignore[arg-type]


@dataclass(frozen=True)
class Waiver:
    owner: str = "dana"
    reason: str = "the page shows both"
    expires: date = date(2030, 1, 31)
    aspect: str = "value"

    def covers(self, digest: str, aspect: str, ids: object, **_: object) -> bool:  # noqa: ARG002
        return aspect == self.aspect


@dataclass(frozen=True)
class Level:
    met: bool | None
    name: str = "payments"
    reasons: tuple[str, ...] = ("p99 3 s",)


DAY = date(2030, 1, 31)
GOOD = many(Judgement.SAME, 100)


def test_match_is_never_the_default() -> None:
    assert whole().verdict is Verdict.INCONCLUSIVE
    assert whole(*GOOD).verdict is Verdict.MATCH
    assert whole(*GOOD, unfinished=["stopped"]).verdict is Verdict.INCONCLUSIVE
    assert whole(*GOOD, *many(Judgement.UNJUDGED, 2)).verdict is Verdict.INCONCLUSIVE
    assert whole(*GOOD, *many(Judgement.UNJUDGED, 1, "e")).verdict is Verdict.INCONCLUSIVE
    assert whole(*GOOD, *many(Judgement.INDETERMINATE, 10)).verdict is Verdict.INCONCLUSIVE
    shallow = many(Judgement.SAME, 9, details={"shallow": "1"})
    assert whole(*GOOD, *shallow).verdict is Verdict.INCONCLUSIVE
    assert (of(whole(*GOOD, *many(Judgement.SAME, 9, "s", details={"shallow": "1"})), "s")) == "shallow"


def test_one_blocker_is_a_mismatch_until_it_is_waived() -> None:
    bad = many(Judgement.DIFFERENT, 1, differences=(BLOCKER,))
    found = whole(*GOOD, *bad)
    assert found.verdict is Verdict.MISMATCH
    assert of(found, "d") == "blocker"
    assert whole(*GOOD, *bad, waivers=[Waiver()], today=DAY).verdict is Verdict.MATCH
    late = whole(*GOOD, *bad, waivers=[Waiver(expires=date(2030, 1, 30))], today=DAY)
    assert late.verdict is Verdict.MISMATCH
    assert any("expired" in reason for reason in late.reasons)
    assert whole(*GOOD, *bad, waivers=[Waiver(aspect="order")], today=DAY).verdict is Verdict.MISMATCH


def test_a_waiver_of_a_scope_covers_nothing_beyond_it() -> None:
    from migverify.workload.catalogue.waivers import Waiver as Real
    from migverify.workload.catalogue.waivers import WaiverScope

    scope = WaiverScope(aspects=("value",), user="page", count=2)
    waiver = Real.model_construct(owner="dana", reason="one page", expires=DAY, entry="", digest="d", scope=scope)
    bad = many(Judgement.DIFFERENT, 2, differences=(BLOCKER,), details={"user": "page"})
    fine = many(Judgement.SAME, 98, details={"user": "page"})

    def found(*more: JudgedCall) -> Verdict:
        return whole(*fine, *bad, *more, waivers=[waiver], today=DAY).verdict

    assert found() is Verdict.MATCH
    assert found(*bad[:1]) is Verdict.MISMATCH
    assert found(*many(Judgement.SAME, 1, details={"user": "other"})) is Verdict.MISMATCH
    assert found(*many(Judgement.SAME, 1)) is Verdict.MISMATCH  # whose it is is not known


def test_reviews_and_noise_are_left_open() -> None:
    review = many(Judgement.DIFFERENT, 1, differences=(Difference("error", DifferenceSeverity.REVIEW, "1", "2"),))
    assert whole(*GOOD, *review).verdict is Verdict.INCONCLUSIVE
    form = many(Judgement.SAME, 5, differences=(Difference("flags", DifferenceSeverity.METADATA, "1", "2"),))
    found = whole(*GOOD, *form)
    assert (found.verdict, of(found, "d")) == (Verdict.MATCH, "metadata")

    class Catalogue:
        def label(self, tally: DigestTally, aspect: str) -> Label:  # noqa: ARG002
            return Label(LabelState.BLOCKER, ("x",))

    assert whole(*GOOD, *review, labels=Catalogue()).verdict is Verdict.MISMATCH
    noisy = [*many(Judgement.INDETERMINATE, 5, noisy="the source", repeats=2, details={"sampled": "1"}),
             *many(Judgement.SAME, 195, repeats=2, details={"sampled": "1"}),
             *many(Judgement.DIFFERENT, 1, differences=(BLOCKER,))]  # fmt: skip
    found = whole(*noisy)
    assert (found.verdict, of(found, "d")) == (Verdict.INCONCLUSIVE, "noise")


def test_service_levels_decide_too() -> None:
    assert whole(*GOOD, slo=[Level(True)]).verdict is Verdict.MATCH
    assert whole(*GOOD, slo=[Level(None)]).verdict is Verdict.INCONCLUSIVE
    assert whole(*GOOD, slo=[Level(False)]).verdict is Verdict.MISMATCH


def test_kinds_left_out_by_name_are_told_and_count_in_no_share() -> None:
    writes = many(Judgement.UNJUDGED, 50, "w", reason="write that is not permitted", details={"kind": "write"})
    assert whole(*GOOD, *writes).verdict is Verdict.INCONCLUSIVE
    found = whole(*GOOD, *writes, requirements=MatchRequirements(out_of_scope=frozenset({"write"})))
    assert found.verdict is Verdict.MATCH
    assert found.coverage["out_of_scope"] == 50


def test_locking_reads_that_cannot_be_asked_are_not_covered_by_a_run_of_reads_alone() -> None:
    locking = many(Judgement.UNJUDGED, 5, "l", reason="locking read without permission", details={"kind": "read"})
    assert whole(*GOOD, *locking).verdict is Verdict.INCONCLUSIVE
    found = whole(*GOOD, *locking, requirements=MatchRequirements(out_of_scope=frozenset({"write"})))
    assert (found.verdict, found.coverage["out_of_scope"]) == (Verdict.MATCH, 5)


def test_equal_answers_under_assumptions_that_could_change_them_make_no_match() -> None:
    assumed = many(Judgement.SAME, 9, "a", details={"assumed": "time zone"})
    found = whole(*GOOD, *assumed)
    assert (found.verdict, found.digests[0].verdict, of(found, "a")) == (
        Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE, "assumed",
    )  # fmt: skip
    assert (found.coverage["assumed"], found.coverage["judged"], found.coverage["same"]) == (9, 100, 109)
    assert any("--sessions" in reason for reason in found.reasons)
    assert whole(*GOOD, *many(Judgement.SAME, 1, details={"assumed": "time zone"})).verdict is Verdict.MATCH


def test_a_tally_of_an_earlier_version_is_read() -> None:
    tally = ReplayTally()
    for one in GOOD:
        tally.add(one)
    for one in tally.digests.values():
        body = one.as_json()
        del body["assumed"]
        assert DigestTally.from_json(body).as_json() == one.as_json()

"""A recheck carries over what was equal, and nothing else."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.errors import RetryableReadError
from migverify.model import ChunkState, KeyRange, LiveState, StoredKind, TableResult, Verdict
from migverify.tables.recheck import bases_of, carry_over, pairs_to_recheck, rests_on
from migverify.tables.verify import Controls, verify_tables
from migverify.tables.watch_status import Base
from tests.fakes import FakeStore
from tests.toy_tables import (
    RULES,
    DyingStore,
    PowerCutError,
    ToyEngine,
    ToySide,
    differences,
    make_pair,
    random_rows,
    spoil,
)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_a_recheck_reads_what_was_not_equal_and_only_that(seed: int, cut_off: bool) -> None:
    rng = random.Random(seed)
    source = random_rows(rng, rng.randrange(1, 120), nullable=True)
    target = spoil(rng, source, rng.randrange(0, 5))
    share = rng.choice([0.0, 0.05])

    def before(what: str, _: KeyRange | None) -> None:
        if what == "checksum" and rng.random() < share:
            raise RetryableReadError("lost")

    pair = make_pair(len(source), nullable=True, spread=rng.random() < 0.7)
    store = FakeStore()
    rules = replace(RULES, budget_seconds=0.0)
    old = store.start_run("verify", "h", {"pairs": [{"id": pair.id}]}, {}, kind=StoredKind.TABLES)
    driven = DyingStore(store, rng.randrange(0, 60) if cut_off else 10**9, after=True)
    try:
        verify_tables([pair], ToyEngine(ToySide(source, before), ToySide(target)), driven, old, rules, Controls())  # type: ignore[arg-type]
    except PowerCutError:
        assert cut_off
    equal = [c for c in store.chunks(old, pair.id) if c.state is ChunkState.EQUAL]

    new = store.start_run("verify", "h", {"pairs": [{"id": pair.id}]}, {}, kind=StoredKind.TABLES)
    assert carry_over(store, old, new, pair.id) == len(equal)
    assert {c.range for c in store.chunks(new, pair.id)} == {c.range for c in equal}
    engine = ToyEngine(ToySide(source), ToySide(target))
    verdict = verify_tables([pair], engine, store, new, rules, Controls())
    wanted = differences(source, target)
    assert verdict is (Verdict.MISMATCH if wanted else Verdict.MATCH)
    assert {d.key for _, d in store.row_diffs(new, pair.id) if d.state is LiveState.DIVERGED} == wanted
    begun = {(r.lower, r.nulls) for side in engine.sides for r in side.ranges}
    assert not begun & {(c.range.lower, c.range.nulls) for c in equal}


def test_a_table_that_was_fixed_matches_in_the_recheck() -> None:
    source = dict.fromkeys(range(100), "a")
    pair, store = make_pair(100), FakeStore()
    old = store.start_run("verify", "h", {"pairs": [{"id": pair.id}]}, {}, kind=StoredKind.TABLES)
    verify_tables([pair], ToyEngine(ToySide(dict(source)), ToySide({**source, 7: "b"})), store, old, RULES, Controls())
    assert pairs_to_recheck(store, old) == {pair.id}
    new = store.start_run("verify", "h", {"pairs": [{"id": pair.id}]}, {}, kind=StoredKind.TABLES)
    carry_over(store, old, new, pair.id)
    engine = ToyEngine(ToySide(dict(source)), ToySide(dict(source)))
    assert verify_tables([pair], engine, store, new, RULES, Controls()) is Verdict.MATCH
    assert pairs_to_recheck(store, new) == set()


def test_pairs_that_a_run_never_reached_are_rechecked() -> None:
    store = FakeStore()
    run = store.start_run("verify", "h", {"pairs": [{"id": "app.a"}, {"id": "app.b"}]}, {}, kind=StoredKind.TABLES)
    assert pairs_to_recheck(store, run) == {"app.a", "app.b"}


def ended(store: FakeStore, verdict: Verdict, reason: str = "", since: str = "", **facts: object) -> str:
    """Record a run of one pair that has ended."""
    run = store.start_run("tables", "h", {}, dict(facts), kind=StoredKind.TABLES)
    result = TableResult(
        make_pair().id, "app.t", "app.t", verdict, (reason,) if reason else (), 1, 1, 1, ("exact",), 0, 0, 0, (), (),
        1.0, details={"since_run": since, "whole": True},
    )  # fmt: skip
    store.add_table_result(run, result)
    store.finish_run(run, verdict, {})
    return run


def test_a_run_that_rests_on_one_that_proved_less_names_it_and_what_to_run() -> None:
    """Each link of the chain repeated the reasons of the one before."""
    store, inconclusive = FakeStore(), Verdict.INCONCLUSIVE
    verified = ended(store, inconclusive, "3 chunks could not be read")
    forward = ended(store, inconclusive, f"run {verified} did not prove this table: 3 chunks ...", verified, watch=True)
    proof = ended(store, inconclusive, f"run {forward} did not prove this table: run ...", forward, watch=True)
    base = bases_of(store, [store.load_run(proof)], [make_pair()])[0]
    assert base == Base(proof, inconclusive, "3 chunks could not be read", verified)
    assert rests_on(store.load_run(proof)) == (
        f"it rests on run {proof}, a watch that ended INCONCLUSIVE: tables that it did not prove stay INCONCLUSIVE; "
        f"read them again by migverify tables verify --recheck {proof}, and begin a watch --since that run"
    )


def test_reasons_of_its_own_are_not_those_of_the_run_that_it_rests_on() -> None:
    store = FakeStore()
    verified = ended(store, Verdict.MATCH)
    forward = ended(store, Verdict.INCONCLUSIVE, "the time limit of 60 s is over", verified, watch=True)
    base = bases_of(store, [store.load_run(forward)], [make_pair()])[0]
    assert base == Base(forward, Verdict.INCONCLUSIVE, "the time limit of 60 s is over")
    assert rests_on(store.load_run(verified)) == f"it rests on run {verified}, a verification that ended MATCH"
    going = store.start_run("tables", "h", {}, {}, kind=StoredKind.TABLES)
    assert "a verification that has not ended: tables that" in rests_on(store.load_run(going))

"""Tallies become a verdict: MATCH only when nothing is missing from the proof."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.model import NotCovered, SchemaClass, SchemaDifference, Verdict
from migverify.tables.outcome import ChunkTotals, conclude
from migverify.tables.tasks import PairPlan
from tests.toy_tables import make_pair

WHOLE = ChunkTotals(chunks=3, rows_source=10, rows_target=10, count_source=10, count_target=10)


def verdict_of(
    pair: PairPlan | None = None, tally: ChunkTotals = WHOLE, failures: tuple[str, ...] = (),
    diffs: dict[tuple[str, str], int] | None = None, *, live: bool = False,
) -> Any:  # fmt: skip
    return conclude(pair or make_pair(), tally, failures, diffs or {}, 1.0, live=live)


def test_a_table_that_was_read_and_counted_without_a_difference_matches() -> None:
    result = verdict_of()
    assert (result.verdict, result.reasons) == (Verdict.MATCH, ())
    assert verdict_of(diffs={("value_differs", "converged"): 7}).details["converged"] == 7


GAPS: list[tuple[str, Callable[[], Any]]] = [
    ("not read", lambda: verdict_of(failures=("count: gone",))),
    ("could not be read", lambda: verdict_of(tally=replace(WHOLE, failed=1, first_failure="(1, 2]: gone"))),
    ("nothing was read", lambda: verdict_of(tally=ChunkTotals(count_source=0, count_target=0))),
    ("not counted", lambda: verdict_of(tally=replace(WHOLE, count_target=None))),
    ("not counted", lambda: verdict_of(tally=replace(WHOLE, count_source=None), live=True)),
    ("the chunks hold", lambda: verdict_of(tally=replace(WHOLE, count_source=11))),
    ("the chunks hold", lambda: verdict_of(tally=replace(WHOLE, count_source=11, count_target=11))),
    ("leaves none of", lambda: verdict_of(tally=replace(WHOLE, behind_condition=["source"]))),
    ("leaves none of", lambda: verdict_of(tally=replace(WHOLE, behind_condition=["source"]), live=True)),
    ("hot", lambda: verdict_of(diffs={("value_differs", "hot"): 1})),
    ("not read again", lambda: verdict_of(diffs={("value_differs", "unconfirmed"): 1})),
    ("no column can be compared", lambda: verdict_of(replace(make_pair(), target_side=None))),
    ("no column can be compared", lambda: verdict_of(replace(make_pair(), sources=()))),
    ("column c is not compared", lambda: verdict_of(replace(make_pair(), unproved=(NotCovered("c", "geometry"),)))),
]


@pytest.mark.parametrize(("reason", "make"), GAPS, ids=[f"{n}-{reason}" for n, (reason, _) in enumerate(GAPS)])
def test_any_gap_in_the_proof_is_inconclusive_and_named(reason: str, make: Callable[[], Any]) -> None:
    result = make()
    assert result.verdict is Verdict.INCONCLUSIVE
    assert any(reason in text for text in result.reasons)


def test_while_writes_are_expected_a_count_proves_nothing_either_way() -> None:
    assert verdict_of(tally=replace(WHOLE, count_source=11), live=True).verdict is Verdict.MATCH


MISSING = SchemaDifference("column-missing", "c", "int", None, SchemaClass.BREAKS_COMPARISON, "column c is gone")


@given(
    st.dictionaries(
        st.tuples(
            st.sampled_from(["missing_on_target", "missing_on_source", "value_differs"]),
            st.sampled_from(["unconfirmed", "converged", "hot", "diverged"]),
        ),
        st.integers(0, 3),
    ),
    st.lists(st.text(min_size=1), max_size=2),
    st.booleans(),
    st.booleans(),
)
def test_mismatch_beats_inconclusive_beats_match(
    diffs: dict[tuple[str, str], int], failures: list[str], live: bool, gone: bool
) -> None:
    pair = replace(make_pair(), schema=(MISSING,)) if gone else make_pair()
    result = verdict_of(pair, failures=tuple(failures), diffs=diffs, live=live)
    numbers = {state: sum(n for (_, s), n in diffs.items() if s == state) for _, state in diffs}
    diverged, doubtful = numbers.get("diverged", 0), numbers.get("hot", 0) + numbers.get("unconfirmed", 0)
    wanted = (
        Verdict.MISMATCH if diverged or gone else Verdict.INCONCLUSIVE if failures or doubtful else Verdict.MATCH
    )  # fmt: skip
    assert result.verdict is wanted
    assert bool(result.reasons) == (wanted is not Verdict.MATCH)
    assert result.missing_on_target + result.missing_on_source + result.value_differs == diverged

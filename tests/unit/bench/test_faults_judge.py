"""The judge of bench/faults: only the right tables of a run that ended well count, whatever the order."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.faults.judge import (
    RIGHT,
    Ending,
    Expected,
    Outcome,
    ReportedDifferences,
    Rows,
    TableDifference,
    judge,
)

NAMES = ("a", "b", "c", "d")
UNNAMED = TableDifference()
keys = st.frozensets(st.tuples(st.one_of(st.none(), st.text(max_size=3))), max_size=4)
differences = st.builds(TableDifference, st.none() | st.integers(0, 5), st.none() | keys)
tables = st.frozensets(st.sampled_from(NAMES))


@st.composite
def expectations(draw: st.DrawFn) -> Expected:
    held = draw(st.frozensets(st.sampled_from(NAMES), min_size=1))
    faulty = draw(st.frozensets(st.sampled_from(sorted(held))))
    return Expected(held, {name: draw(differences) for name in sorted(faulty)})


reports = st.builds(
    ReportedDifferences,
    st.sampled_from(Ending),
    st.none() | st.integers(-9, 255),
    st.sampled_from([None, True, False]),
    tables,
    st.dictionaries(st.sampled_from(NAMES), differences),
    st.text(max_size=5),
)


def finished(
    equal: tuple[str, ...] = (), different: Mapping[str, TableDifference] | None = None, **rest: object
) -> ReportedDifferences:
    return ReportedDifferences(Ending.FINISHED, equal=frozenset(equal), different=different or {}, **rest)


FAULT_IN_A = Expected(frozenset("ab"), {"a": TableDifference(1, frozenset({("7",)}))})
EQUAL_PAIR = Expected(frozenset("ab"))


@pytest.mark.parametrize(
    ("expected", "reported", "outcome"),
    [
        (FAULT_IN_A, finished(("b",), {"a": UNNAMED}), Outcome.FOUND),
        (FAULT_IN_A, finished(("a", "b")), Outcome.MISSED),
        (FAULT_IN_A, finished(("a",), {"b": UNNAMED}), Outcome.WRONG_TABLE),
        (FAULT_IN_A, finished((), {"a": UNNAMED, "b": UNNAMED}), Outcome.WRONG_TABLE),
        (FAULT_IN_A, finished(("b",)), Outcome.NO_VERDICT),
        (FAULT_IN_A, finished(), Outcome.NO_VERDICT),
        (EQUAL_PAIR, finished(("a", "b")), Outcome.EQUAL),
        (EQUAL_PAIR, finished(("a",)), Outcome.NO_VERDICT),
        (EQUAL_PAIR, finished(), Outcome.NO_VERDICT),
        (EQUAL_PAIR, finished(("a",), {"b": UNNAMED}), Outcome.FALSE_ALARM),
    ],
)
def test_what_a_report_is_worth(expected: Expected, reported: ReportedDifferences, outcome: Outcome) -> None:
    assert judge(expected, reported).outcome is outcome


@pytest.mark.parametrize(
    "reported",
    [
        ReportedDifferences(Ending.CRASHED, 1, True, frozenset("b"), {"a": UNNAMED}, "Traceback"),
        ReportedDifferences(Ending.TIMED_OUT, None, None, frozenset("b"), {"a": UNNAMED}),
        ReportedDifferences(Ending.FINISHED, -9, None, frozenset("b"), {"a": UNNAMED}),
        finished(("b",), {"a": UNNAMED}, exit_code=0, exit_differs=False),
        finished(("a", "b"), exit_code=1, exit_differs=True),
        finished(("a", "b"), {"a": UNNAMED}),
    ],
    ids=["crash", "timeout", "signal", "exit code denies", "exit code alone", "both"],
)
def test_a_run_that_failed_or_contradicts_itself_is_never_right(reported: ReportedDifferences) -> None:
    judgment = judge(FAULT_IN_A, reported)
    assert judgment.outcome is Outcome.ERROR
    assert judgment.reason
    assert judge(EQUAL_PAIR, reported).outcome is Outcome.ERROR


@pytest.mark.parametrize(
    ("named", "rows"),
    [
        (TableDifference(1, frozenset({("7",)})), Rows.EXACT),
        (TableDifference(1, frozenset({("8",)})), Rows.WRONG),
        (TableDifference(2, frozenset({("7",)})), Rows.EXACT),  # an UPDATE may be told as two lines: keys decide
        (TableDifference(1), Rows.EXACT),
        (TableDifference(2), Rows.WRONG),
        (UNNAMED, Rows.NOT_NAMED),
    ],
)
def test_rows_are_compared_by_key_or_else_by_number(named: TableDifference, rows: Rows) -> None:
    assert judge(FAULT_IN_A, finished(("b",), {"a": named})).rows is rows


@given(expectations(), reports)
def test_only_a_finished_run_with_the_right_tables_is_right(expected: Expected, reported: ReportedDifferences) -> None:
    judgment = judge(expected, reported)
    if judgment.outcome in RIGHT:
        assert reported.ending is Ending.FINISHED
        assert (reported.exit_code or 0) >= 0
        assert reported.different.keys() == expected.differs.keys()
        assert reported.exit_differs in {None, bool(expected.differs)}
        assert (judgment.outcome is Outcome.FOUND) == bool(expected.differs)
        assert expected.differs or expected.tables <= reported.equal
    if judgment.outcome is not Outcome.FOUND:
        assert judgment.rows is Rows.NOT_NAMED


@given(expectations(), reports)
def test_outcomes_fit_the_kind_of_case(expected: Expected, reported: ReportedDifferences) -> None:
    of_faults = {Outcome.FOUND, Outcome.MISSED, Outcome.WRONG_TABLE}
    of_equal_pairs = {Outcome.EQUAL, Outcome.FALSE_ALARM}
    assert judge(expected, reported).outcome not in (of_equal_pairs if expected.differs else of_faults)


@given(expectations(), reports, st.permutations(NAMES))
def test_names_and_order_of_tables_do_not_matter(
    expected: Expected, reported: ReportedDifferences, other: list[str]
) -> None:
    renamed = dict(zip(NAMES, other, strict=True))

    def rename(found: Mapping[str, TableDifference]) -> dict[str, TableDifference]:
        return {renamed[name]: found[name] for name in sorted(found, reverse=True)}

    one = judge(expected, reported)
    two = judge(
        Expected(frozenset(renamed[name] for name in expected.tables), rename(expected.differs)),
        ReportedDifferences(
            reported.ending, reported.exit_code, reported.exit_differs,
            frozenset(renamed[name] for name in reported.equal), rename(reported.different), reported.detail,
        ),
    )  # fmt: skip
    assert (one.outcome, one.rows) == (two.outcome, two.rows)


@given(expectations())
def test_an_exact_report_is_right_and_an_empty_one_never(expected: Expected) -> None:
    exact = finished(tuple(expected.tables - expected.differs.keys()), expected.differs)
    assert judge(expected, exact).outcome in RIGHT
    assert judge(expected, finished()).outcome is Outcome.NO_VERDICT

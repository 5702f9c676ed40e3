"""Outcomes by class of error: captured, source and target, and what their combination says.

The capture's outcome is the oracle: what failed in production may fail again. Error numbers of both servers fall in
classes, because the servers number the same refusal differently; within a class the number is metadata.
"""

from __future__ import annotations

from dataclasses import dataclass

from migverify.model import Flavor
from migverify.workload.catalogue.errors import error_class
from migverify.workload.replay.model import Difference, DifferenceSeverity, Judgement

TRANSIENT = frozenset({
    "conflict", "lock-wait", "schema-changed", "connection", "resource", "time-limit", "storage", "stale-snapshot",
})  # fmt: skip
"""Classes of the catalogue's ``errors.yaml`` that say something of a moment, not of the statement."""

BY_TEXT = frozenset({"syntax", "unsupported", "grouping"})
"""Classes that hang on the statement's text alone: no race and no stale row makes them."""

REFUSES_ROWS = frozenset({"duplicate-key", "constraint", "foreign-key"})
"""Classes by which a server refuses a row: a target that takes such a row has lost the rule."""

_OF_THE_PLACE = frozenset({"unknown-object", "access"})
_OWN_NUMBERS = 8000
"""From here on numbers are TiDB's own."""


def kind_of(errno: int) -> str:
    """Return the class of an error number; 0 is ``ok``, a number of no class is a class of its own."""
    return error_class(errno, Flavor.TIDB if errno >= _OWN_NUMBERS else Flavor.MYSQL)


def alike(first: int, second: int) -> bool:
    """Tell whether two outcomes are of one class."""
    return kind_of(first) == kind_of(second)


@dataclass(frozen=True, slots=True)
class OutcomeComparison:
    """What the outcomes say. ``state`` None: both sides carried it out, the answers decide.

    ``by_text`` says that an error hangs on the text alone.
    """

    state: Judgement | None
    differences: tuple[Difference, ...] = ()
    reason: str = ""
    by_text: bool = False


def compare_outcomes(captured: int | None, source: int, target: int, words: tuple[str, str]) -> OutcomeComparison:
    """Compare error numbers; 0 is success, ``captured`` None is not known. ``words`` are both sides' texts."""
    if source == 0 and target == 0:
        return OutcomeComparison(None)
    by_text = kind_of(target) in BY_TEXT
    if source == 0:
        if captured and alike(captured, target):
            return OutcomeComparison(
                Judgement.INDETERMINATE, (_error(DifferenceSeverity.REVIEW, words),),
                "the target fails as production did, and the source does not any more",
            )  # fmt: skip
        return OutcomeComparison(Judgement.DIFFERENT, (_error(DifferenceSeverity.BLOCKER, words),), by_text=by_text)
    if target == 0:
        if kind_of(source) in TRANSIENT and not (captured and alike(captured, source)):
            return OutcomeComparison(
                Judgement.INDETERMINATE, (_error(DifferenceSeverity.REVIEW, words),), "the source failed by its moment"
            )
        lost = kind_of(source) in REFUSES_ROWS and (captured is None or alike(captured, source))
        severity = DifferenceSeverity.BLOCKER if lost else DifferenceSeverity.REVIEW
        return OutcomeComparison(Judgement.DIFFERENT, (_error(severity, words),), by_text=kind_of(source) in BY_TEXT)
    if not alike(source, target):
        if kind_of(source) in TRANSIENT and captured == 0:
            # production did it; the source's failure of now says nothing of the statement, the target's may
            severity = DifferenceSeverity.BLOCKER if by_text else DifferenceSeverity.REVIEW
            state = Judgement.DIFFERENT if by_text else Judgement.INDETERMINATE
            return OutcomeComparison(state, (_error(severity, words),), "the source failed by its moment", by_text)
        return OutcomeComparison(Judgement.DIFFERENT, (_error(DifferenceSeverity.REVIEW, words),), by_text=by_text)
    return _both_failed(captured, source, target)


def _both_failed(captured: int | None, source: int, target: int) -> OutcomeComparison:
    differences, kind = _numbers(source, target), kind_of(source)
    if captured == 0:
        return OutcomeComparison(
            Judgement.INDETERMINATE, differences,
            f"both sides fail ({kind}) where production succeeded: they are not in the state of the capture",
        )  # fmt: skip
    if captured is None and (kind in _OF_THE_PLACE or kind in TRANSIENT):
        return OutcomeComparison(
            Judgement.INDETERMINATE, differences,
            f"both sides fail ({kind}), and the capture does not tell whether production did",
        )  # fmt: skip
    return OutcomeComparison(Judgement.SAME, differences)


def against_capture(captured: int | None, target: int, words: tuple[str, str]) -> OutcomeComparison:
    """Compare the target's outcome with the captured one, where the source was not asked."""
    by_text = kind_of(target) in BY_TEXT
    if captured is None:
        if target == 0:
            return OutcomeComparison(None)
        return OutcomeComparison(
            Judgement.INDETERMINATE, (_error(DifferenceSeverity.REVIEW, words),),
            "the target fails, and the capture does not tell whether production did",
        )  # fmt: skip
    if captured == 0:
        if target == 0:
            return OutcomeComparison(None)
        return OutcomeComparison(Judgement.DIFFERENT, (_error(DifferenceSeverity.BLOCKER, words),), by_text=by_text)
    if target == 0:
        if kind_of(captured) in TRANSIENT:
            return OutcomeComparison(
                Judgement.INDETERMINATE, (_error(DifferenceSeverity.REVIEW, words),), "production failed by its moment"
            )
        return OutcomeComparison(Judgement.DIFFERENT, (_error(DifferenceSeverity.REVIEW, words),))
    if alike(captured, target):
        return OutcomeComparison(Judgement.SAME, _numbers(captured, target))
    return OutcomeComparison(Judgement.DIFFERENT, (_error(DifferenceSeverity.REVIEW, words),), by_text=by_text)


def _numbers(one: int, other: int) -> tuple[Difference, ...]:
    """Return how the numbers of one class differ."""
    if one == other:
        return ()
    return (Difference("errno", DifferenceSeverity.METADATA, str(one), str(other), detail=kind_of(one)),)


def _error(severity: DifferenceSeverity, words: tuple[str, str]) -> Difference:
    return Difference("error", severity, *words)

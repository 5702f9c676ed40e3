"""Outcomes by class of error: captured, source and target, and what their combination says.

The capture's outcome is the oracle: what failed in production may fail again. Error numbers of both servers fall in
classes, because the servers number the same refusal differently; within a class the number is metadata.
"""

from __future__ import annotations

from dataclasses import dataclass

from migverify.model import Flavor
from migverify.workload.catalogue.errors import error_class
from migverify.workload.replay.model import Difference, Judgement, Severity

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
class Outcome:
    """What the outcomes say. ``state`` None: both sides carried it out, the answers decide.

    ``by_text`` says that an error hangs on the text alone.
    """

    state: Judgement | None
    differences: tuple[Difference, ...] = ()
    reason: str = ""
    by_text: bool = False


def compare_outcomes(captured: int | None, source: int, target: int, words: tuple[str, str]) -> Outcome:
    """Compare error numbers; 0 is success, ``captured`` None is not known. ``words`` are both sides' texts."""
    if source == 0 and target == 0:
        return Outcome(None)
    by_text = kind_of(target) in BY_TEXT
    if source == 0:
        if captured and alike(captured, target):
            return Outcome(
                Judgement.INDETERMINATE, (_error(Severity.REVIEW, words),),
                "the target fails as production did, and the source does not any more",
            )  # fmt: skip
        return Outcome(Judgement.DIFFERENT, (_error(Severity.BLOCKER, words),), by_text=by_text)
    if target == 0:
        if kind_of(source) in TRANSIENT and not (captured and alike(captured, source)):
            return Outcome(
                Judgement.INDETERMINATE, (_error(Severity.REVIEW, words),), "the source failed by its moment"
            )
        lost = kind_of(source) in REFUSES_ROWS and (captured is None or alike(captured, source))
        severity = Severity.BLOCKER if lost else Severity.REVIEW
        return Outcome(Judgement.DIFFERENT, (_error(severity, words),), by_text=kind_of(source) in BY_TEXT)
    if not alike(source, target):
        if kind_of(source) in TRANSIENT and captured == 0:
            # production did it; the source's failure of now says nothing of the statement, the target's may
            severity = Severity.BLOCKER if by_text else Severity.REVIEW
            state = Judgement.DIFFERENT if by_text else Judgement.INDETERMINATE
            return Outcome(state, (_error(severity, words),), "the source failed by its moment", by_text)
        return Outcome(Judgement.DIFFERENT, (_error(Severity.REVIEW, words),), by_text=by_text)
    return _both_failed(captured, source, target)


def _both_failed(captured: int | None, source: int, target: int) -> Outcome:
    differences, kind = _numbers(source, target), kind_of(source)
    if captured == 0:
        return Outcome(
            Judgement.INDETERMINATE, differences,
            f"both sides fail ({kind}) where production succeeded: they are not in the state of the capture",
        )  # fmt: skip
    if captured is None and (kind in _OF_THE_PLACE or kind in TRANSIENT):
        return Outcome(
            Judgement.INDETERMINATE, differences,
            f"both sides fail ({kind}), and the capture does not tell whether production did",
        )  # fmt: skip
    return Outcome(Judgement.SAME, differences)


def against_capture(captured: int | None, target: int, words: tuple[str, str]) -> Outcome:
    """Compare the target's outcome with the captured one, where the source was not asked."""
    by_text = kind_of(target) in BY_TEXT
    if captured is None:
        if target == 0:
            return Outcome(None)
        return Outcome(
            Judgement.INDETERMINATE, (_error(Severity.REVIEW, words),),
            "the target fails, and the capture does not tell whether production did",
        )  # fmt: skip
    if captured == 0:
        if target == 0:
            return Outcome(None)
        return Outcome(Judgement.DIFFERENT, (_error(Severity.BLOCKER, words),), by_text=by_text)
    if target == 0:
        if kind_of(captured) in TRANSIENT:
            return Outcome(
                Judgement.INDETERMINATE, (_error(Severity.REVIEW, words),), "production failed by its moment"
            )
        return Outcome(Judgement.DIFFERENT, (_error(Severity.REVIEW, words),))
    if alike(captured, target):
        return Outcome(Judgement.SAME, _numbers(captured, target))
    return Outcome(Judgement.DIFFERENT, (_error(Severity.REVIEW, words),), by_text=by_text)


def _numbers(one: int, other: int) -> tuple[Difference, ...]:
    """Return how the numbers of one class differ."""
    return () if one == other else (Difference("errno", Severity.METADATA, str(one), str(other), detail=kind_of(one)),)


def _error(severity: Severity, words: tuple[str, str]) -> Difference:
    return Difference("error", severity, *words)

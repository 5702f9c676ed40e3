"""Judges what a comparison tool reported about one case. Pure: it knows neither the tool nor the servers.

A case is a pair of databases whose difference is known. A tool earns ``found`` only by naming the tables that differ,
and ``equal`` only by calling every table of an equal pair equal. A crash, a timeout, silence about a table, and an exit
code that contradicts the output earn neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Key = tuple[str | None, ...]
"""The text of a row's key columns; None is NULL."""


class Ending(StrEnum):
    """How a tool's run ended."""

    FINISHED = "finished"
    CRASHED = "crashed"
    TIMED_OUT = "timed out"
    NOT_SUPPORTED = "not supported"  # the tool documents that it cannot compare these tables


class Outcome(StrEnum):
    """What a tool's report is worth."""

    FOUND = "found"  # a fault: the tables that differ were called different, and no other
    EQUAL = "equal"  # an equal pair: every table was called equal
    MISSED = "missed"  # a fault: a table that differs was called equal
    FALSE_ALARM = "false alarm"  # an equal pair: a table was called different
    WRONG_TABLE = "wrong table"  # a fault: a table without a fault was called different
    NO_VERDICT = "no verdict"  # a table that decides was called neither equal nor different
    ERROR = "error"  # a crash, a timeout, or an exit code that contradicts the output
    NOT_SUPPORTED = "not supported"


class Rows(StrEnum):
    """Whether the rows that a tool named are those that differ."""

    EXACT = "exact"
    WRONG = "wrong"
    NOT_NAMED = "not named"


RIGHT = frozenset({Outcome.FOUND, Outcome.EQUAL})


@dataclass(frozen=True, slots=True)
class TableDifference:
    """The rows of one table that differ: their number and keys; None where these are not named."""

    rows: int | None = None
    keys: frozenset[Key] | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """A case as it is: the tables of the pair, and what differs in them. Nothing differs in an equal pair."""

    tables: frozenset[str]
    differs: Mapping[str, TableDifference] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReportedDifferences:
    """What a tool reported.

    ``exit_differs`` is what its exit code means by the tool's documentation: True for a difference, False for none,
    None where it means neither. ``equal`` and ``different`` are the tables that its output calls so.
    """

    ending: Ending
    exit_code: int | None = None
    exit_differs: bool | None = None
    equal: frozenset[str] = frozenset()
    different: Mapping[str, TableDifference] = field(default_factory=dict)
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Judgment:
    """The outcome of one tool in one case. ``reason`` is empty where the outcome says all."""

    outcome: Outcome
    rows: Rows = Rows.NOT_NAMED
    reason: str = ""


def judge(expected: Expected, reported: ReportedDifferences) -> Judgment:
    """Compare a report with what is known of the case."""
    if reported.ending is Ending.NOT_SUPPORTED:
        return Judgment(Outcome.NOT_SUPPORTED, reason=reported.detail)
    failure = _failure(reported)
    if failure:
        return Judgment(Outcome.ERROR, reason=failure)
    if expected.differs:
        return _judge_fault(expected, reported)
    return _judge_equal_pair(expected, reported)


def _failure(reported: ReportedDifferences) -> str:
    """Return why a report counts for nothing; empty when it counts."""
    if reported.ending is not Ending.FINISHED:
        return f"{reported.ending.value}: {reported.detail}".removesuffix(": ")
    if reported.exit_code is not None and reported.exit_code < 0:
        return f"ended by signal {-reported.exit_code}"
    both = reported.equal & reported.different.keys()
    if both:
        return f"called equal and different: {_names(both)}"
    if reported.exit_differs is True and not reported.different:
        return f"exit code {reported.exit_code} means a difference, the output names none"
    if reported.exit_differs is False and reported.different:
        return f"exit code {reported.exit_code} means no difference, the output names {_names(reported.different)}"
    return ""


def _judge_fault(expected: Expected, reported: ReportedDifferences) -> Judgment:
    wrong = reported.different.keys() - expected.differs.keys()
    if wrong:
        return Judgment(Outcome.WRONG_TABLE, reason=f"called different: {_names(wrong)}")
    overlooked = expected.differs.keys() - reported.different.keys()
    if overlooked & reported.equal:
        return Judgment(Outcome.MISSED, reason=reported.detail)
    if overlooked:
        return Judgment(Outcome.NO_VERDICT, reason=reported.detail or f"silent about {_names(overlooked)}")
    return Judgment(Outcome.FOUND, _judge_rows(expected, reported))


def _judge_equal_pair(expected: Expected, reported: ReportedDifferences) -> Judgment:
    if reported.different:
        return Judgment(Outcome.FALSE_ALARM, reason=f"called different: {_names(reported.different)}")
    silent = expected.tables - reported.equal
    if silent:
        return Judgment(Outcome.NO_VERDICT, reason=reported.detail or f"silent about {_names(silent)}")
    return Judgment(Outcome.EQUAL)


def _judge_rows(expected: Expected, reported: ReportedDifferences) -> Rows:
    """Compare rows by their keys where both sides have keys, else by their number."""
    answers = set()
    for table, known in expected.differs.items():
        named = reported.different[table]
        if known.keys is not None and named.keys is not None:
            answers.add(known.keys == named.keys)
        elif known.rows is not None and named.rows is not None:
            answers.add(known.rows == named.rows)
        else:
            return Rows.NOT_NAMED
    return Rows.EXACT if answers == {True} else Rows.WRONG


def _names(tables: Mapping[str, object] | frozenset[str] | set[str]) -> str:
    return ", ".join(sorted(tables))

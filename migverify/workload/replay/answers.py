"""Compares two successful answers: their rows as far as the text determines them, and what surrounds the rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from migverify.workload.meaning import Meaning
from migverify.workload.replay.cells import joint, same_text_is_same
from migverify.workload.replay.loose import Loose, loose
from migverify.workload.replay.metadata import surroundings
from migverify.workload.replay.model import Answer, AnswerColumn, Difference, Severity
from migverify.workload.replay.rows import Comparer, Ordering, Rows, RowsResult, Sequencing
from migverify.workload.shape import Order

_DECISIVE = frozenset({Severity.BLOCKER, Severity.REVIEW})
_SYSTEM = frozenset({"information_schema", "performance_schema", "mysql", "sys", "metrics_schema"})
_DESCRIBING = re.compile(
    rb"\s*(?:show\s+(?:full\s+|extended\s+)*(?:columns|fields|index|indexes|keys|tables|databases|schemas|create|"
    rb"collation|character|charset|triggers)\b|desc(?:ribe)?\b)",
    re.IGNORECASE,
)
_PLAN_COLUMNS = frozenset({b"select_type", b"estrows", b"explain"})
_OFFSET = re.compile(r"\boffset\b|limit\s*\S+\s*,", re.IGNORECASE)
_FREE_WORDS = frozenset({"TABLE", "VALUES"})


@dataclass(frozen=True, slots=True)
class AnswersResult:
    """``rows`` are differences of rows, ``surrounding`` those of what is around them.

    ``undecided``: the rows differ, or may, and ``reason`` says why that proves nothing. ``unproven``: they are equal,
    which the text does not determine. ``masked`` names columns that were left out.
    """

    rows: tuple[Difference, ...] = ()
    surrounding: tuple[Difference, ...] = ()
    undecided: bool = False
    unproven: bool = False
    reason: str = ""
    masked: str = ""


def compare_answers(
    sql: bytes,
    source: Answer,
    target: Answer,
    meaning: Meaning,
    *,
    pinned: bool,
    limit: int,
    exact_insert_ids: bool,
) -> AnswersResult:
    """Compare two answers of statements that both sides carried out.

    Parameters
    ----------
    pinned
        The session's clock was set alike on both sides.
    limit
        Most rows of one group that are matched by search.
    exact_insert_ids
        Generated ids must be equal.
    """
    around = tuple(surroundings(source, target, exact_insert_ids=exact_insert_ids))
    if source.more or target.more:
        return _several(source, target, around, limit, exact_insert_ids)
    if len(source.columns) != len(target.columns) or not source.columns:
        return AnswersResult(surrounding=around)
    open_ = loose(sql, meaning, source.columns, pinned=pinned)
    ordering = _ordering(meaning, open_, source.columns)
    found = _rows(source, target, ordering, open_.columns, limit)
    if found.state is Rows.EQUAL and open_.comparable and not found.strict:
        again = _rows(source, target, ordering, open_.columns - open_.comparable, limit)
        if again.state is not Rows.EQUAL:
            names = _names(source.columns, open_.comparable)
            reason = f"the text does not determine every value of {names}"
            found = RowsResult(Rows.UNDECIDED, again.differences, reason)
    return _judge(found, around, open_, meaning, source, sql, ordering)


def _judge(
    found: RowsResult,
    around: tuple[Difference, ...],
    open_: Loose,
    meaning: Meaning,
    source: Answer,
    sql: bytes,
    ordering: Ordering,
) -> AnswersResult:
    masked = _names(source.columns, open_.columns - open_.comparable)
    reasons = [*open_.reasons, *([f"left out: {masked}"] if masked else ())]
    reason = "; ".join(reasons)
    if found.state is Rows.EQUAL:
        return AnswersResult(found.differences, around, unproven=bool(reasons), reason=reason, masked=masked)
    if found.state is Rows.UNDECIDED:
        return AnswersResult(found.differences, around, undecided=True, reason=found.reason, masked=masked)
    differences, why = _weigh(found.differences, open_, ordering, meaning, source, sql)
    return AnswersResult(differences, around, undecided=bool(why), reason=why, masked=masked)


def _names(columns: tuple[AnswerColumn, ...], places: frozenset[int]) -> str:
    return ", ".join(columns[place].name.decode("utf-8", "replace") for place in sorted(places))


def _weigh(
    differences: tuple[Difference, ...], open_: Loose, ordering: Ordering, meaning: Meaning, source: Answer, sql: bytes
) -> tuple[tuple[Difference, ...], str]:
    """Return differing rows with the severity they have here, and why they prove nothing, if they do not."""
    names = {column.name.lower() for column in source.columns}
    tables = meaning.shape.tables or ()
    words = meaning.classification.words
    if names & _PLAN_COLUMNS:
        return differences, "a plan, not data"
    if any(table.split(".")[0].lower() in _SYSTEM for table in tables if "." in table):
        return differences, "reads what a server tells of itself"
    if _DESCRIBING.match(sql):
        return _soften(differences), ""
    if meaning.shape.tables == () and b"@@" in sql:
        return _soften(differences), ""
    if words and words[0] in _FREE_WORDS and len(words) == 1:
        return differences, ""
    if open_.reasons and not (open_.limit_only and ordering.cut):
        return differences, "the text does not determine the answer: " + "; ".join(open_.reasons)
    return differences, ""


def _soften(differences: tuple[Difference, ...]) -> tuple[Difference, ...]:
    return tuple(
        replace(one, severity=Severity.REVIEW) if one.severity is Severity.BLOCKER else one for one in differences
    )


def _ordering(meaning: Meaning, open_: Loose, columns: tuple[AnswerColumn, ...]) -> Ordering:
    shape = meaning.shape
    head = bool(_OFFSET.search(meaning.text))
    match shape.order:
        case Order.TOTAL | Order.ONE_ROW:
            return Ordering(Sequencing.EXACT)
        case Order.NONE:
            return Ordering(Sequencing.FREE, cut=open_.limit_only, cut_head=head)
        case Order.TIES:
            keys, whole = _keys(shape.order_by, columns)
            if whole and not set(keys) & open_.columns:
                return Ordering(Sequencing.TIES, keys, open_.limit_only, head)
            # what hangs on a key that cannot be seen can only be told equal
            return Ordering(Sequencing.HIDDEN, keys, open_.limit_only, head)
        case _:
            free = meaning.classification.words[:1] in (("TABLE",), ("VALUES",), ("SHOW",))
            return Ordering(Sequencing.FREE if free else Sequencing.UNKNOWN)


_IDENTIFIER = re.compile(r"(?:`(?:[^`]|``)+`|[\w$]+)(?:\.(?:`(?:[^`]|``)+`|[\w$]+))*")


def _keys(order_by: Sequence[str], columns: tuple[AnswerColumn, ...]) -> tuple[tuple[int, ...], bool]:
    """Return the places of the columns ordered by, and whether all of them are in the result."""
    keys: list[int] = []
    for item in order_by:
        place = _place(item.strip(), columns)
        if place is None:
            return tuple(keys), False
        keys.append(place)
    return tuple(keys), bool(keys)


def _place(item: str, columns: tuple[AnswerColumn, ...]) -> int | None:
    if item.isdecimal():
        return int(item) - 1 if 1 <= int(item) <= len(columns) else None
    if _IDENTIFIER.fullmatch(item):
        parts = re.findall(r"`((?:[^`]|``)+)`|([\w$]+)", item)
        path = [(quoted.replace("``", "`") or plain).lower().encode() for quoted, plain in parts]
        return _column(path, columns)
    same = [
        place for place, column in enumerate(columns) if column.name.decode("utf-8", "replace").lower() == item.lower()
    ]
    return same[0] if len(same) == 1 else None


def _column(path: list[bytes], columns: tuple[AnswerColumn, ...]) -> int | None:
    name = path[-1]
    if len(path) == 1:
        # an alias of the result goes before a column of a table
        same = [place for place, column in enumerate(columns) if column.name.lower() == name]
        return same[0] if len(same) == 1 else None
    same = [
        place for place, column in enumerate(columns)
        if column.original.lower() == name and column.table.lower() == path[-2]
    ]  # fmt: skip
    return same[0] if same else None


def _rows(source: Answer, target: Answer, ordering: Ordering, masked: frozenset[int], limit: int) -> RowsResult:
    kinds = [joint(one, other) for one, other in zip(source.columns, target.columns, strict=True)]
    names = [column.name.decode("utf-8", "replace") for column in source.columns]
    if source.rows is None or target.rows is None:
        return _checksums(source, target, ordering, masked)
    comparer = Comparer(names, kinds, masked, limit)
    return comparer.compare(source.rows, target.rows, ordering)


def _checksums(source: Answer, target: Answer, ordering: Ordering, masked: frozenset[int]) -> RowsResult:
    """Compare answers too large to be kept: by checksums of their cells' texts."""
    if source.row_count != target.row_count:
        one = Difference("row-count", Severity.BLOCKER, str(source.row_count), str(target.row_count))
        return RowsResult(Rows.DIFFERENT, (one,))
    if source.ordered and source.ordered == target.ordered:
        return RowsResult(Rows.EQUAL, strict=True)
    if not source.ordered or not target.ordered:
        return RowsResult(Rows.UNDECIDED, reason="the answer is too large to be kept, and has no checksum")
    if source.unordered == target.unordered:
        if ordering.how is Sequencing.FREE and not ordering.cut:
            return RowsResult(Rows.EQUAL)
        one = Difference("order", Severity.BLOCKER, "", "", detail="the same rows in another order, by checksum")
        if ordering.how is Sequencing.EXACT:
            return RowsResult(Rows.DIFFERENT, (one,))
        return RowsResult(Rows.UNDECIDED, (one,), "the answer is too large to be kept, and its order has ties")
    one = Difference("value", Severity.BLOCKER, "", "", detail="checksums of all rows differ")
    pairs = zip(source.columns, target.columns, strict=True)
    if masked or ordering.cut or not all(same_text_is_same(first, second) for first, second in pairs):
        reason = "the answer is too large to be kept, and its values may be equal in another form"
        return RowsResult(Rows.UNDECIDED, (one,), reason)
    return RowsResult(Rows.DIFFERENT, (one,))


def _several(source: Answer, target: Answer, around: tuple[Difference, ...], limit: int, exact: bool) -> AnswersResult:
    """Compare the results of one call one by one; their texts are not told apart, so unlike rows prove nothing."""
    ours, theirs = (source, *source.more), (target, *target.more)
    found = list(around)
    if len(ours) != len(theirs):
        found.append(Difference("results", Severity.BLOCKER, str(len(ours)), str(len(theirs))))
        return AnswersResult(surrounding=tuple(found))
    rows: list[Difference] = []
    undecided = unproven = False
    for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if one.errno or other.errno:
            if one.errno != other.errno:
                found.append(
                    Difference(
                        "error", Severity.BLOCKER, str(one.errno), str(other.errno), detail=f"result {place + 1}"
                    )
                )
            continue
        if place:
            found += surroundings(one, other, exact_insert_ids=exact)
        if one.columns and len(one.columns) == len(other.columns):
            part = _rows(one, other, Ordering(Sequencing.UNKNOWN), frozenset(), limit)
            rows += part.differences
            undecided |= part.state is not Rows.EQUAL
            unproven = True
    reason = "several statements in one call: what determines their rows is not known"
    return AnswersResult(tuple(rows), tuple(found), undecided, unproven and not undecided, reason)

"""Compares two successful answers: their rows as far as the text determines them, and what surrounds the rows."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from migverify.sql.catalog import SERVER_DATABASES
from migverify.workload.classify import CLOCK
from migverify.workload.meaning import Meaning
from migverify.workload.replay.cells import joint, kind_of, same_text_is_same
from migverify.workload.replay.model import Answer, AnswerColumn, Difference, DifferenceSeverity
from migverify.workload.replay.rows import Comparer, Ordering, RowsResult, RowsVerdict, Sequencing
from migverify.workload.shape import RowOrder

if TYPE_CHECKING:
    from sqlglot import expressions as exp

_DESCRIBING = re.compile(
    rb"\s*(?:show\s+(?:full\s+|extended\s+)*(?:columns|fields|index|indexes|keys|tables|databases|schemas|create|"
    rb"collation|character|charset|triggers)\b|desc(?:ribe)?\b)",
    re.IGNORECASE,
)
_PLAN_COLUMNS = frozenset({b"select_type", b"estrows", b"explain"})
_OFFSET = re.compile(r"\boffset\b|limit\s*\S+\s*,", re.IGNORECASE)
_FREE_WORDS = frozenset({"TABLE", "VALUES"})


_NOT_NULL, _UNSIGNED, _AUTO_INCREMENT = 1, 32, 512
_FLAGS = {1: "not null", 2: "primary key", 4: "unique key", 8: "key", 16: "blob", 32: "unsigned", 64: "zerofill",
          128: "binary", 256: "enum", 512: "auto increment", 1024: "timestamp", 2048: "set"}  # fmt: skip
_SEEN_BY_DRIVERS = sum(_FLAGS)
_STATUS = {1: "in transaction", 2: "autocommit", 8: "more results", 64: "cursor", 512: "no backslash escapes"}
_SEEN_STATUS = sum(_STATUS)
_LISTED = 5
_CHANGED = re.compile(r"\bChanged: (\d+)")


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
) -> AnswersResult:
    """Compare two answers of statements that both sides carried out; ``pinned``: both sides had one clock."""
    around = tuple(surroundings(source, target))
    if source.more or target.more:
        return _several(source, target, around)
    if len(source.columns) != len(target.columns) or not source.columns:
        return AnswersResult(surrounding=around)
    open_ = loose(sql, meaning, source.columns, pinned=pinned)
    ordering = _ordering(meaning, open_, source.columns)
    found = _rows(source, target, ordering, open_.columns)
    if found.state is RowsVerdict.EQUAL and open_.comparable and not found.strict:
        again = _rows(source, target, ordering, open_.columns - open_.comparable)
        if again.state is not RowsVerdict.EQUAL:
            names = _names(source.columns, open_.comparable)
            reason = f"the text does not determine every value of {names}"
            found = RowsResult(RowsVerdict.UNDECIDED, again.differences, reason)
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
    if found.state is RowsVerdict.EQUAL:
        return AnswersResult(found.differences, around, unproven=bool(reasons), reason=reason, masked=masked)
    if found.state is RowsVerdict.UNDECIDED:
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
    if any(table.split(".")[0].lower() in SERVER_DATABASES for table in tables if "." in table):
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
        replace(one, severity=DifferenceSeverity.REVIEW) if one.severity is DifferenceSeverity.BLOCKER else one
        for one in differences
    )


def _ordering(meaning: Meaning, open_: Loose, columns: tuple[AnswerColumn, ...]) -> Ordering:
    shape = meaning.shape
    head = bool(_OFFSET.search(meaning.text))
    match shape.order:
        case RowOrder.TOTAL | RowOrder.ONE_ROW:
            return Ordering(Sequencing.EXACT)
        case RowOrder.NONE:
            return Ordering(Sequencing.FREE, cut=open_.limit_only, cut_head=head)
        case RowOrder.TIES:
            keys, whole = _keys(shape.order_by, columns)
            if whole and not set(keys) & open_.columns:
                return Ordering(Sequencing.TIES, keys, open_.limit_only, head)
            # what hangs on a key that cannot be seen can only be seen to be equal
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


def _rows(source: Answer, target: Answer, ordering: Ordering, masked: frozenset[int]) -> RowsResult:
    kinds = [joint(one, other) for one, other in zip(source.columns, target.columns, strict=True)]
    names = [column.name.decode("utf-8", "replace") for column in source.columns]
    if source.rows is None or target.rows is None:
        return _checksums(source, target, ordering, masked)
    return Comparer(names, kinds, masked).compare(source.rows, target.rows, ordering)


def _checksums(source: Answer, target: Answer, ordering: Ordering, masked: frozenset[int]) -> RowsResult:
    """Compare answers too large to be kept: by checksums of their cells' texts."""
    if source.row_count != target.row_count:
        one = Difference("row-count", DifferenceSeverity.BLOCKER, str(source.row_count), str(target.row_count))
        return RowsResult(RowsVerdict.DIFFERENT, (one,))
    if source.ordered and source.ordered == target.ordered:
        return RowsResult(RowsVerdict.EQUAL, strict=True)
    if not source.ordered or not target.ordered:
        return RowsResult(RowsVerdict.UNDECIDED, reason="the answer is too large to be kept, and has no checksum")
    if source.unordered == target.unordered:
        if ordering.how is Sequencing.FREE and not ordering.cut:
            return RowsResult(RowsVerdict.EQUAL)
        one = Difference(
            "order", DifferenceSeverity.BLOCKER, "", "", detail="the same rows in another order, by checksum"
        )
        if ordering.how is Sequencing.EXACT:
            return RowsResult(RowsVerdict.DIFFERENT, (one,))
        return RowsResult(RowsVerdict.UNDECIDED, (one,), "the answer is too large to be kept, and its order has ties")
    one = Difference("value", DifferenceSeverity.BLOCKER, "", "", detail="checksums of all rows differ")
    pairs = zip(source.columns, target.columns, strict=True)
    if masked or ordering.cut or not all(same_text_is_same(first, second) for first, second in pairs):
        reason = "the answer is too large to be kept, and its values may be equal in another form"
        return RowsResult(RowsVerdict.UNDECIDED, (one,), reason)
    return RowsResult(RowsVerdict.DIFFERENT, (one,))


def _several(source: Answer, target: Answer, around: tuple[Difference, ...]) -> AnswersResult:
    """Compare the results of one call one by one; which text made which is not known, so other rows prove nothing."""
    ours, theirs = (source, *source.more), (target, *target.more)
    found = list(around)
    if len(ours) != len(theirs):
        found.append(Difference("results", DifferenceSeverity.BLOCKER, str(len(ours)), str(len(theirs))))
        return AnswersResult(surrounding=tuple(found))
    rows: list[Difference] = []
    undecided = unproven = False
    for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if one.errno != other.errno:
            numbers = str(one.errno), str(other.errno)
            found.append(Difference("error", DifferenceSeverity.BLOCKER, *numbers, detail=f"result {place + 1}"))
        elif not one.errno:
            found += surroundings(one, other) if place else ()
            if one.columns and len(one.columns) == len(other.columns):
                part = _rows(one, other, Ordering(Sequencing.UNKNOWN), frozenset())
                rows += part.differences
                undecided |= part.state is not RowsVerdict.EQUAL
                unproven = True
    reason = "several results of one call: what determines their rows is not known"
    return AnswersResult(tuple(rows), tuple(found), undecided, unproven and not undecided, reason)


def surroundings(source: Answer, target: Answer) -> Iterator[Difference]:
    """Yield how two successful answers differ apart from their rows."""
    yield from _columns(source.columns, target.columns)
    if not source.columns and not target.columns:
        if source.affected != target.affected:
            yield Difference("affected-rows", DifferenceSeverity.BLOCKER, str(source.affected), str(target.affected))
        elif changed_rows(source) != changed_rows(target):  # what clients without CLIENT_FOUND_ROWS count
            ours, theirs = str(changed_rows(source)), str(changed_rows(target))
            yield Difference("changed-rows", DifferenceSeverity.REVIEW, ours, theirs, detail="the rows found are equal")
        yield from _insert_id(source.insert_id, target.insert_id)
        if source.info != target.info:
            yield Difference("info", DifferenceSeverity.METADATA, source.info, target.info)
    yield from _warnings(source, target)
    first, second = source.status & _SEEN_STATUS, target.status & _SEEN_STATUS
    if first != second:
        yield Difference("status", DifferenceSeverity.METADATA, _named(first, _STATUS), _named(second, _STATUS))


def changed_rows(answer: Answer) -> int | None:
    """Return how many rows an UPDATE changed, not how many it matched; None where the server does not say."""
    found = _CHANGED.search(answer.info)
    return None if found is None else int(found[1])


@lru_cache(maxsize=4096)
def _columns(source: tuple[AnswerColumn, ...], target: tuple[AnswerColumn, ...]) -> tuple[Difference, ...]:
    """Compare columns as described; a digest's are the same over and over."""
    return tuple(_column_differences(source, target))


def _column_differences(source: tuple[AnswerColumn, ...], target: tuple[AnswerColumn, ...]) -> Iterator[Difference]:
    if len(source) != len(target):
        yield Difference(
            "columns", DifferenceSeverity.BLOCKER, str(len(source)), str(len(target)), detail="number of columns"
        )
        return
    metadata = DifferenceSeverity.METADATA
    aspects: tuple[
        tuple[str, DifferenceSeverity, Callable[[AnswerColumn], object], Callable[[AnswerColumn], str]], ...
    ] = (
        ("columns", DifferenceSeverity.REVIEW, lambda c: c.name, lambda c: c.name.decode("utf-8", "replace")),
        ("type", metadata, lambda c: (c.type_code, kind_of(c)), lambda c: f"{kind_of(c)} ({c.type_code})"),
        ("length", metadata, lambda c: c.length, lambda c: str(c.length)),
        ("decimals", metadata, lambda c: c.decimals, lambda c: str(c.decimals)),
        ("flags", metadata, lambda c: c.flags & _SEEN_BY_DRIVERS, lambda c: _named(c.flags, _FLAGS)),
        ("charset", metadata, lambda c: c.charset, lambda c: str(c.charset)),
    )  # fmt: skip
    for aspect, severity, value, words in aspects:
        pairs = [(one, other) for one, other in zip(source, target, strict=True) if value(one) != value(other)]
        if pairs:
            one, other = pairs[0]
            names = [pair[0].name.decode("utf-8", "replace") for pair in pairs]
            more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
            detail = "" if len(names) == 1 else ", ".join(names[:_LISTED]) + more
            yield Difference(aspect, severity, words(one), words(other), names[0], detail)


def _named(bits: int, names: dict[int, str]) -> str:
    return ", ".join(name for bit, name in names.items() if bits & bit) or "none"


def _insert_id(source: int, target: int) -> Iterator[Difference]:
    """Generated ids may differ, by design of either server; an id on one side only is one a client misses."""
    if source == target:
        return
    missing = not source or not target
    severity = DifferenceSeverity.BLOCKER if missing else DifferenceSeverity.INFO
    yield Difference(
        "insert-id", severity, str(source), str(target), detail="" if missing else "generated ids may differ"
    )


def _warnings(source: Answer, target: Answer) -> Iterator[Difference]:
    if source.warned is not None and target.warned is not None:
        first = Counter((one.level, one.code) for one in source.warned)
        second = Counter((one.level, one.code) for one in target.warned)
        if first != second:
            yield Difference("warnings", DifferenceSeverity.METADATA, _codes(first - second), _codes(second - first))
    elif source.warnings != target.warnings:
        yield Difference(
            "warnings", DifferenceSeverity.METADATA, str(source.warnings), str(target.warnings), detail="count"
        )


def _codes(found: Counter[tuple[str, int]]) -> str:
    return (
        ", ".join(f"{level} {code}" + (f" x{n}" if n > 1 else "") for (level, code), n in sorted(found.items()))
        or "none"
    )


# --- what the text of a statement does not determine ----------------------------------------------------------

_BY_COLUMN = frozenset(
    {"GROUP_CONCAT without ORDER BY", "ANY_VALUE", "window functions may meet ties", "volatile functions"}
)
_KEPT = 20_000
_WORD = re.compile(r"[a-z_][a-z0-9_$]*")


@dataclass(frozen=True, slots=True)
class Loose:
    """What a text leaves open.

    ``columns`` are places the text does not determine. Of these ``comparable`` hold values that may be equal all the
    same (GROUP_CONCAT without an order, window functions); the others tell the moment or chance. ``reasons`` say why
    more than columns is not determined.
    """

    columns: frozenset[int] = frozenset()
    comparable: frozenset[int] = frozenset()
    reasons: tuple[str, ...] = ()
    limit_only: bool = False


_known: dict[tuple[str, int, bool], Loose] = {}


def loose(sql: bytes, meaning: Meaning, columns: tuple[AnswerColumn, ...], *, pinned: bool) -> Loose:
    """Return what the text leaves open; ``pinned``: the clock was set on both sides, and the time is determined."""
    shape, volatile = meaning.shape, meaning.classification.volatile
    open_functions = volatile - CLOCK if pinned else volatile
    reasons = [one for one in shape.reasons if one != "volatile functions" or open_functions]
    if "user variable" in meaning.classification.effects:
        reasons.append("assigns user variables")
    if shape.deterministic is None:
        return Loose(reasons=tuple(reasons) or ("its structure is not known",))
    if not reasons:
        return Loose()
    key = (meaning.digest, len(columns), pinned)
    cached = _known.get(key)
    if cached is not None:
        return cached
    found = _find(sql, reasons, len(columns), open_functions)
    if len(_known) >= _KEPT:
        _known.clear()
    if not meaning.text.endswith("..."):  # a cut text may be that of several statements
        _known[key] = found
    return found


def _find(sql: bytes, reasons: list[str], count: int, functions: frozenset[str]) -> Loose:
    by_column = [one for one in reasons if one in _BY_COLUMN]
    rest = [one for one in reasons if one not in _BY_COLUMN]
    places: tuple[frozenset[int], frozenset[int]] | None = None
    if by_column:
        places = _places(sql, count, functions)
        if places is None:
            rest += by_column
    columns, comparable = places or (frozenset(), frozenset())
    return Loose(columns, comparable, tuple(rest), rest == ["LIMIT without a total order"])


def _places(sql: bytes, count: int, functions: frozenset[str]) -> tuple[frozenset[int], frozenset[int]] | None:
    """Return the places of loose items of the outermost SELECT, and which are comparable; None when more is loose."""
    import sqlglot
    from sqlglot import errors
    from sqlglot import expressions as e

    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        tree = sqlglot.parse_one(sql.decode("utf-8"), dialect="mysql")
    except (errors.SqlglotError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(tree, e.Select) or tree.args.get("distinct") or len(tree.expressions) != count:
        return None
    if any(isinstance(item, e.Star) or (item.find(e.Star) and not item.find(e.Count)) for item in tree.expressions):
        return None
    open_ = {place: item for place, item in enumerate(tree.expressions) if _is_loose(item, functions)}
    if any(item.find(e.Subquery) for item in open_.values()):
        return None
    comparable = frozenset(place for place, item in open_.items() if not _tells_chance(item, functions))
    names = {item.alias_or_name.lower() for item in open_.values()} | {str(place + 1) for place in open_}
    for item in open_.values():
        item.replace(e.Null())
    if _is_loose(tree, functions):
        return None
    for part in filter(None, map(tree.args.get, ("group", "having", "order"))):
        if any(one.name.lower() in names for one in part.find_all(e.Column, e.Literal)):
            return None
    return frozenset(open_), comparable


def _is_loose(node: exp.Expression, functions: frozenset[str]) -> bool:
    from sqlglot import expressions as e

    if node.find(e.AnyValue) or node.find(e.Window):
        return True
    if any(not one.find(e.Order) for one in node.find_all(e.GroupConcat)):
        return True
    return _tells_chance(node, functions)


def _tells_chance(node: exp.Expression, functions: frozenset[str]) -> bool:
    # by the text: sqlglot has classes of its own for most of these, and none for some
    return bool(functions) and _words(node.sql(dialect="mysql").lower(), functions)


def _words(text: str, functions: frozenset[str]) -> bool:
    return bool(set(_WORD.findall(text)) & _spelled(functions))


def _spelled(functions: frozenset[str]) -> frozenset[str]:
    """Return the names sqlglot may write a function by."""
    same = {
        "now": {"current_timestamp"}, "localtime": {"current_timestamp"}, "localtimestamp": {"current_timestamp"},
        "current_timestamp": {"now"}, "curdate": {"current_date"}, "current_date": {"curdate"},
        "curtime": {"current_time"}, "current_time": {"curtime"}, "session_user": {"user", "current_user"},
        "user": {"current_user"}, "system_user": {"user"}, "schema": {"database"}, "database": {"schema"},
        "sysdate": {"sysdate"}, "version": {"current_version"},
    }  # fmt: skip
    return functions | frozenset().union(*(same.get(name, frozenset()) for name in functions))

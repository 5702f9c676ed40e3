"""Compares what surrounds the rows: columns as described, affected rows, ids, warnings, flags, the info text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache

from migverify.workload.replay.cells import kind_of
from migverify.workload.replay.model import Answer, AnswerColumn, Difference, Severity

_NOT_NULL, _UNSIGNED, _AUTO_INCREMENT = 1, 32, 512
_FLAGS = {1: "not null", 2: "primary key", 4: "unique key", 8: "key", 16: "blob", 32: "unsigned", 64: "zerofill",
          128: "binary", 256: "enum", 512: "auto increment", 1024: "timestamp", 2048: "set"}  # fmt: skip
_SEEN_BY_DRIVERS = sum(_FLAGS)
_STATUS = {1: "in transaction", 2: "autocommit", 8: "more results", 64: "cursor", 512: "no backslash escapes"}
_SEEN_STATUS = sum(_STATUS)
_LISTED = 5
_CHANGED = re.compile(r"\bChanged: (\d+)")


def surroundings(source: Answer, target: Answer, *, exact_insert_ids: bool) -> Iterator[Difference]:
    """Yield how two successful answers differ apart from their rows."""
    yield from _columns(source.columns, target.columns)
    if not source.columns and not target.columns:
        if source.affected != target.affected:
            yield Difference("affected-rows", Severity.BLOCKER, str(source.affected), str(target.affected))
        elif changed_rows(source) != changed_rows(target):  # what clients without CLIENT_FOUND_ROWS count
            ours, theirs = str(changed_rows(source)), str(changed_rows(target))
            yield Difference("changed-rows", Severity.REVIEW, ours, theirs, detail="the rows found are equal")
        yield from _insert_id(source.insert_id, target.insert_id, exact=exact_insert_ids)
        if source.info != target.info:
            yield Difference("info", Severity.METADATA, source.info, target.info)
    yield from _warnings(source, target)
    first, second = source.status & _SEEN_STATUS, target.status & _SEEN_STATUS
    if first != second:
        yield Difference("status", Severity.METADATA, _named(first, _STATUS), _named(second, _STATUS))


def changed_rows(answer: Answer) -> int | None:
    """Return how many rows an UPDATE changed, whatever the connection counts; None where the server does not say."""
    found = _CHANGED.search(answer.info)
    return None if found is None else int(found[1])


@lru_cache(maxsize=4096)
def _columns(source: tuple[AnswerColumn, ...], target: tuple[AnswerColumn, ...]) -> tuple[Difference, ...]:
    """Compare columns as described; a digest's are the same over and over."""
    return tuple(_unlike_columns(source, target))


def _unlike_columns(source: tuple[AnswerColumn, ...], target: tuple[AnswerColumn, ...]) -> Iterator[Difference]:
    if len(source) != len(target):
        yield Difference("columns", Severity.BLOCKER, str(len(source)), str(len(target)), detail="number of columns")
        return
    aspects: tuple[tuple[str, Severity, Callable[[AnswerColumn], object], Callable[[AnswerColumn], str]], ...] = (
        ("columns", Severity.REVIEW, lambda c: c.name, lambda c: c.name.decode("utf-8", "replace")),
        ("type", Severity.METADATA, lambda c: (c.type_code, kind_of(c)), lambda c: f"{kind_of(c)} ({c.type_code})"),
        ("length", Severity.METADATA, lambda c: c.length, lambda c: str(c.length)),
        ("decimals", Severity.METADATA, lambda c: c.decimals, lambda c: str(c.decimals)),
        ("flags", Severity.METADATA, lambda c: c.flags & _SEEN_BY_DRIVERS, lambda c: _named(c.flags, _FLAGS)),
        ("charset", Severity.METADATA, lambda c: c.charset, lambda c: str(c.charset)),
    )  # fmt: skip
    for aspect, severity, value, words in aspects:
        unlike = [(one, other) for one, other in zip(source, target, strict=True) if value(one) != value(other)]
        if unlike:
            one, other = unlike[0]
            names = [pair[0].name.decode("utf-8", "replace") for pair in unlike]
            more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
            detail = "" if len(names) == 1 else ", ".join(names[:_LISTED]) + more
            yield Difference(aspect, severity, words(one), words(other), names[0], detail)


def _named(bits: int, names: dict[int, str]) -> str:
    return ", ".join(name for bit, name in names.items() if bits & bit) or "none"


def _insert_id(source: int, target: int, *, exact: bool) -> Iterator[Difference]:
    """Generated ids may differ, by design of either server; an id on one side only is one a client misses."""
    if source == target:
        return
    missing = not source or not target
    severity = Severity.BLOCKER if missing or exact else Severity.INFO
    yield Difference(
        "insert-id", severity, str(source), str(target), detail="" if missing else "generated ids may differ"
    )


def _warnings(source: Answer, target: Answer) -> Iterator[Difference]:
    if source.warned is not None and target.warned is not None:
        first = Counter((one.level, one.code) for one in source.warned)
        second = Counter((one.level, one.code) for one in target.warned)
        if first != second:
            yield Difference("warnings", Severity.METADATA, _codes(first - second), _codes(second - first))
    elif source.warnings != target.warnings:
        yield Difference("warnings", Severity.METADATA, str(source.warnings), str(target.warnings), detail="count")


def _codes(found: Counter[tuple[str, int]]) -> str:
    return (
        ", ".join(f"{level} {code}" + (f" x{n}" if n > 1 else "") for (level, code), n in sorted(found.items()))
        or "none"
    )

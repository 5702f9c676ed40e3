"""Which columns of an answer the text does not determine: by their expressions in the list of a SELECT.

``SELECT id, NOW() FROM t`` is determined but for its second column; ``SELECT id FROM t WHERE at < NOW()`` is not
determined at all. sqlglot reads the text once a digest.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from migverify.workload.meaning import Meaning
from migverify.workload.replay.model import AnswerColumn

if TYPE_CHECKING:
    from sqlglot import expressions as exp

CLOCK = frozenset({
    "now", "curdate", "curtime", "current_date", "current_time", "current_timestamp", "localtime", "localtimestamp",
    "utc_date", "utc_time", "utc_timestamp", "unix_timestamp",
})  # fmt: skip
"""Volatile functions that tell the session's clock: determined once it is set. SYSDATE is none of them."""

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
    """Return what the text leaves open.

    Parameters
    ----------
    pinned
        The clock was set on both sides: what tells the time is determined.
    """
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
    if not meaning.text.endswith("..."):  # a cut text may stand for several statements
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
    places, comparable, names = set(), set(), set()
    for place, item in enumerate(tree.expressions):
        if item.find(e.Subquery):
            if _is_loose(item, functions):
                return None
        elif _is_loose(item, functions):
            places.add(place)
            if not _tells_chance(item, functions):
                comparable.add(place)
            names.add(item.alias_or_name.lower())
    for part in ("from_", "from", "joins", "where", "group", "having", "order", "with_", "with", "windows", "qualify"):
        for node in _nodes(tree.args.get(part)):
            if _is_loose(node, functions):
                return None
            if part in ("group", "having", "order") and any(c.name.lower() in names for c in node.find_all(e.Column)):
                return None
            if part in ("group", "order") and any(
                one.this.is_int and int(one.this.name) - 1 in places if isinstance(one, e.Ordered) else False
                for one in node.find_all(e.Ordered)
            ):
                return None
    return frozenset(places), frozenset(comparable)


def _nodes(found: exp.Expression | list[exp.Expression] | None) -> list[exp.Expression]:
    if found is None:
        return []
    return found if isinstance(found, list) else [found]


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

"""Differences of definitions by their cause: what 300 tables have in common is one line.

Drift comes first, then what is always expected between MySQL and TiDB, then what is allowed; in each the
gravest first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from migverify.guards.schema_model import RANK, DefinitionComparison, DefinitionDifference, SideSchema, shortened
from migverify.model import Flavor, SchemaClass

SHOWN = 3
"""How many names a line has; the others are counted."""
# Of these the value is the cause, whichever column or key has it; else the name is part of the cause.
_BY_VALUE = re.compile(
    r"(columns|keys)\..+\.(collation|charset|comment|auto|order|visibility|nullability|type|default|kind)", re.DOTALL
)
# A server names these itself (t_chk_1, t_ibfk_1).
_BY_KIND = re.compile(r"(checks|triggers|foreign_keys)\.[^.]+", re.DOTALL)
_WHOLE = re.compile(r"[a-z]+|(columns|keys|foreign_keys|checks|triggers|partitions)\.[^.]+", re.DOTALL)
"""Things that one side may lack; of their aspects `none` is a value."""
_MYSQL_DEFAULTS = re.compile(r"(utf8mb4_0900_ai_ci|[a-z0-9]+_(general|swedish)_ci)")
_ABSENT = re.compile(r"(checks|triggers)\..+|trigger|event|procedure|function", re.DOTALL)


@dataclass(frozen=True, slots=True)
class DifferenceCause:
    """One cause. ``path`` has ``*`` for names that are not part of it; ``places`` are (table, path of the difference).

    ``expected`` says that MySQL and TiDB differ so after the same statement; ``allowed`` by whose word it may be.
    """

    path: str
    source: str | None
    target: str | None
    level: SchemaClass
    message: str
    places: tuple[tuple[str, str], ...]
    expected: bool = False
    allowed: str = ""

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that it concerns, in their order."""
        return tuple(dict.fromkeys(table for table, _ in self.places))


def causes_of(comparisons: Sequence[DefinitionComparison], *, to_tidb: bool) -> list[DifferenceCause]:
    """Group differences by cause; ``to_tidb``: a MySQL or MariaDB server is compared with TiDB."""
    groups: dict[tuple[object, ...], list[tuple[str, DefinitionDifference]]] = {}
    for comparison in comparisons:
        for found in comparison.differences:
            groups.setdefault(_key(found, to_tidb=to_tidb), []).append((comparison.table, found))
    causes = []
    for (path, expected, *_), members in groups.items():
        first = members[0][1]
        source, target = (
            one if all(getattr(found, side) == one for _, found in members) else "various"
            for side, one in (("source", first.source), ("target", first.target))
        )
        places = tuple((table, found.path) for table, found in members)
        causes.append(
            DifferenceCause(str(path), source, target, first.level, first.message, places, bool(expected),
                first.allowed)
        )  # fmt: skip
    return sorted(causes, key=lambda c: (bool(c.allowed), c.expected, -RANK[c.level], -len(c.places), c.places[0]))


def is_to_tidb(sources: Sequence[SideSchema], target: SideSchema | None) -> bool:
    """Whether sides are compared that differ by what TiDB makes of MySQL's statements."""
    return target is not None and target.flavor == Flavor.TIDB and any(s.flavor != Flavor.TIDB for s in sources)


def _key(found: DefinitionDifference, *, to_tidb: bool) -> tuple[object, ...]:
    expected = to_tidb and _is_expected(found)
    by_value = _BY_VALUE.fullmatch(found.path)
    path = f"{by_value[1]}.*.{by_value[2]}" if by_value else found.path
    if by_name := _BY_KIND.fullmatch(path):
        path = f"{by_name[1]}.*"
    reported = found.message if "renamed?" in found.message or "(allowed by" in found.message else ""
    # What TiDB has none of, and what is written for people, is one cause with any text.
    alike = path.endswith("comment") or (expected and found.target is None)
    values = ("", "") if alike else (found.source, found.target)
    return (path, expected, *values, found.level, found.allowed, reported)


def _is_expected(found: DefinitionDifference) -> bool:
    source, target = found.source or "", found.target or ""
    if found.path.endswith("collation"):
        return bool(_MYSQL_DEFAULTS.fullmatch(source)) and target == f"{source.split('_')[0]}_bin"
    if found.target is None:
        return bool(_ABSENT.fullmatch(found.path)) or source.startswith(("FULLTEXT", "SPATIAL"))
    return bool(re.fullmatch(r"keys\..+\.order", found.path, re.DOTALL)) and "DESC" in source and "DESC" not in target


def cause_lines(causes: Sequence[DifferenceCause], *, everything: bool = False) -> Iterator[str]:
    """Yield the lines for a reader, under a heading a section; ``everything`` names every table."""
    heading = ""
    for cause in causes:
        section = "allowed" if cause.allowed else "expected between MySQL and TiDB" if cause.expected else "drift"
        if section != heading:
            yield f"  {section}:"
            heading = section
        yield from _cause(cause, everything)


def _cause(cause: DifferenceCause, everything: bool) -> Iterator[str]:
    shown = cause.tables if everything else cause.tables[:SHOWN]
    more = len(cause.tables) - len(shown)
    named = ", ".join(shown) + (f" and {more:,} more (--all names them)" if more else "")
    count = f"{len(cause.tables):,} tables: " if len(cause.tables) > 1 else ""
    columns = len(cause.places) - len(cause.tables)
    times = f" ({len(cause.places):,} places)" if columns else ""
    path = cause.places[0][1] if len(cause.places) == 1 else cause.path
    yield f"    {cause.level.value:<17} {path}: {_change(cause)}{times}; {count}{named}"
    if len(cause.places) == 1 or "renamed?" in cause.message:
        yield f"                      {shortened(cause.message, 400)}"
    if cause.allowed:
        yield f"                      allowed by {cause.allowed}"


def _change(cause: DifferenceCause) -> str:
    """Return both sides; what one side lacks is said so, and named where it is more than the kind of thing."""
    whole = (cause.source is None) != (cause.target is None) and _WHOLE.fullmatch(cause.path)
    if not whole:
        return f"{shortened(cause.source)} -> {shortened(cause.target)}"
    side, text = ("source", cause.source) if cause.target is None else ("target", cause.target)
    return f"only on the {side}" + ("" if text in (None, "various", cause.path) else f" ({shortened(text)})")

r"""Patterns over ``database.table`` names, and routes that turn one name into another.

A pattern is two parts joined by a dot. A part is

- text in which ``*`` matches any run of characters and ``?`` one,
- ```text in backticks```, taken literally (a doubled backtick is one),
- ``/regular expression/``, which must match the whole name (``\/`` is a slash).

One ``/regular expression/`` alone is matched against ``database.table``. Names compare exactly, also in case:
what a server's ``lower_case_table_names`` makes of a name is already in the name it reports.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Capture = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
"""What matched: each ``*`` of the database part, each ``*`` of the table part, and every capture in order."""

_REFERENCE = re.compile(r"\{(\d+)\}")
_PLAIN = re.compile(r"[^\s*?`/.{}]+")
_ANYTHING = re.compile(r"(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PartPattern:
    """One compiled part. ``stars`` numbers the groups of ``*``; ``literal`` is set when nothing varies."""

    regex: re.Pattern[str]
    stars: tuple[int, ...] = ()
    literal: str | None = None


@dataclass(frozen=True, slots=True)
class TablePattern:
    """A pattern over ``database.table``; ``whole`` is set instead of the parts for one regular expression."""

    text: str
    database: PartPattern
    table: PartPattern
    whole: re.Pattern[str] | None = None

    def matches(self, database: str, table: str) -> bool:
        """Whether the pattern covers that table."""
        return self.capture(database, table) is not None

    def capture(self, database: str, table: str) -> Capture | None:
        """What the variable parts matched, None when the pattern does not cover that table."""
        if self.whole is not None:
            found = self.whole.fullmatch(f"{database}.{table}")
            return None if found is None else ((), (), _groups(found))
        first = self.database.regex.fullmatch(database)
        second = self.table.regex.fullmatch(table)
        if first is None or second is None:
            return None
        return (
            tuple(first.group(number) for number in self.database.stars),
            tuple(second.group(number) for number in self.table.stars),
            _groups(first) + _groups(second),
        )

    @property
    def captures(self) -> int:
        """How many things a match captures."""
        if self.whole is not None:
            return self.whole.groups
        return self.database.regex.groups + self.table.regex.groups


@dataclass(frozen=True, slots=True)
class NameTemplate:
    """The ``to`` part of a route. ``pieces`` are (``text``, ``star`` or ``reference``; text or number)."""

    pieces: tuple[tuple[str, str], ...]

    def fill(self, stars: tuple[str, ...], captures: tuple[str, ...]) -> str:
        """Return the name; the n-th ``*`` is the n-th of ``stars``, ``{n}`` the n-th of ``captures``."""
        rest = iter(stars)
        parts = []
        for kind, text in self.pieces:
            if kind == "star":
                parts.append(next(rest))
            elif kind == "reference":
                parts.append(captures[int(text) - 1])
            else:
                parts.append(text)
        return "".join(parts)

    def count(self, kind: str) -> int:
        """How many pieces are of that kind (``text``, ``star``, ``reference``)."""
        return sum(piece[0] == kind for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Route:
    """Source names that ``pattern`` covers are called ``database``.``table`` on the target.

    ``shard`` limits the route to shards of that name (``*`` and ``?`` allowed); None means every source.
    """

    pattern: TablePattern
    to: str
    database: NameTemplate
    table: NameTemplate
    shard: str | None = None

    def apply(self, shard: str, database: str, table: str) -> tuple[str, str] | None:
        """Name on the target, None when the route does not speak of that table."""
        if self.shard is not None and not _glob(self.shard).regex.fullmatch(shard):
            return None
        found = self.pattern.capture(database, table)
        if found is None:
            return None
        return self.database.fill(found[0], found[2]), self.table.fill(found[1], found[2])


def parse_pattern(text: str) -> TablePattern:
    """Compile a pattern.

    Raises
    ------
    ValueError
        with one sentence that says what is wrong.
    """
    parts = _split(text)
    if len(parts) == 1 and parts[0].startswith("/"):
        return TablePattern(text, PartPattern(_ANYTHING), PartPattern(_ANYTHING), whole=_regex(parts[0]).regex)
    if len(parts) != 2:
        raise ValueError(_SHAPE)
    return TablePattern(text, _part(parts[0]), _part(parts[1]))


def database_like(pattern: TablePattern) -> str:
    """Return the database part as a pattern of ``GRANT``, ``%`` for every database.

    A regular expression cannot be said so: it becomes ``%``.
    """
    if pattern.database.literal is not None:
        return like_literal(pattern.database.literal)
    text = _split(pattern.text)[0]
    if pattern.whole is not None or text.startswith("/"):
        return "%"
    return like_literal(text).replace("*", "%").replace("?", "_")


def like_literal(name: str) -> str:
    """Return the pattern of ``GRANT`` that is this name alone."""
    return re.sub(r"([_%])", r"\\\1", name)


def make_route(source: str, to: str, shard: str | None = None) -> Route:
    """Compile a route.

    Raises
    ------
    ValueError
        a pattern is damaged, or ``to`` asks for more than ``source`` captures.
    """
    pattern = parse_pattern(source)
    parts = _split(to)
    if len(parts) != 2 or any(part.startswith("/") for part in parts):
        raise ValueError("`to` is database.table; its variable parts are * and {1}")
    database, table = _template(parts[0]), _template(parts[1])
    for what, template, part in (("database", database, pattern.database), ("table", table, pattern.table)):
        if template.count("star") > len(part.stars):
            raise ValueError(f"the {what} part of `to` has more * than the {what} part of `from`; name one by {{1}}")
    for kind, number in database.pieces + table.pieces:
        if kind == "reference" and not 1 <= int(number) <= pattern.captures:
            raise ValueError(f"`to` names {{{number}}}, but `from` captures {pattern.captures}")
    return Route(pattern, to, database, table, shard)


def quote_part(name: str) -> str:
    """Spell a database or table name so that a pattern (or the ``to`` of a route) means exactly it."""
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


_SHAPE = "a pattern is database.table, for example app.* for all tables of app"


def _split(text: str) -> list[str]:
    """Cut at dots outside backticks and slashes; the pieces keep their marks."""
    parts: list[str] = []
    position = 0
    while True:
        end = _part_end(text, position)
        if end == position:
            raise ValueError(_SHAPE)
        parts.append(text[position:end])
        if end == len(text):
            return parts
        if text[end] != "." or end + 1 == len(text):
            raise ValueError(_SHAPE)
        position = end + 1


def _part_end(text: str, start: int) -> int:
    mark = text[start : start + 1]
    if mark not in ("`", "/") or not mark:
        dot = text.find(".", start)
        return len(text) if dot < 0 else dot
    position = start + 1
    while position < len(text):
        if mark == "/" and text[position] == "\\":
            position += 2
        elif text[position] != mark:
            position += 1
        elif mark == "`" and text[position + 1 : position + 2] == "`":
            position += 2
        else:
            return position + 1
    raise ValueError(f"the closing {mark} is missing")


def _part(text: str) -> PartPattern:
    if text.startswith("/"):
        return _regex(text)
    if text.startswith("`"):
        name = _unquote(text)
        return PartPattern(re.compile(re.escape(name), re.DOTALL), literal=name)
    return _glob(text)


def _regex(text: str) -> PartPattern:
    body = re.sub(r"\\(.)", lambda m: "/" if m[1] == "/" else m[0], text[1:-1], flags=re.DOTALL)
    if not body:
        raise ValueError("the regular expression is empty")
    try:
        return PartPattern(re.compile(body))
    except re.error as error:
        raise ValueError(f"not a regular expression: {error.msg} at character {error.pos}") from error


def _glob(text: str) -> PartPattern:
    pieces: list[str] = []
    stars: list[int] = []
    groups = 0
    for character in text:
        if character in "*?":
            groups += 1
            if character == "*":
                stars.append(groups)
            pieces.append("(.*)" if character == "*" else "(.)")
        else:
            pieces.append(re.escape(character))
    return PartPattern(re.compile("".join(pieces), re.DOTALL), tuple(stars), None if groups else text)


def _template(text: str) -> NameTemplate:
    if text.startswith("`"):
        return NameTemplate((("text", _unquote(text)),))
    if "?" in text:
        raise ValueError("`to` cannot hold ?; name what it matched by {1}")
    pieces: list[tuple[str, str]] = []
    for piece in re.split(r"(\*|\{\d+\})", text):
        reference = _REFERENCE.fullmatch(piece)
        if reference:
            pieces.append(("reference", reference[1]))
        elif piece:
            pieces.append(("star", "*") if piece == "*" else ("text", piece))
    return NameTemplate(tuple(pieces))


def _unquote(text: str) -> str:
    name = text[1:-1].replace("``", "`")
    if not name:
        raise ValueError(_SHAPE)
    return name


def _groups(found: re.Match[str]) -> tuple[str, ...]:
    return tuple(group or "" for group in found.groups())

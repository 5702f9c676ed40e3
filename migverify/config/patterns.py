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
from collections.abc import Iterable
from dataclasses import dataclass

from migverify.errors import UsageError
from migverify.sql.grants import like_literal

Template = tuple[str | int, ...]
"""A part of a route's ``to``: text, and numbers of captures."""

_PLAIN = re.compile(r"[^\s*?`/.{}]+")
_PRINTED = re.compile(r"(?:[^*?`/]|(?<=[^.])`)+")
_ANYTHING = re.compile(r"(.*)", re.DOTALL)
_SHAPE = "a pattern is database.table, for example app.* for all tables of app"


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

    def capture(self, database: str, table: str) -> tuple[str, ...] | None:
        """What the variable parts matched, in order; None when the pattern does not cover that table."""
        if self.whole is not None:
            found = self.whole.fullmatch(f"{database}.{table}")
            return None if found is None else found.groups(default="")
        first = self.database.regex.fullmatch(database)
        second = self.table.regex.fullmatch(table)
        return None if first is None or second is None else first.groups(default="") + second.groups(default="")

    @property
    def captures(self) -> int:
        """How many things a match captures."""
        if self.whole is not None:
            return self.whole.groups
        return self.database.regex.groups + self.table.regex.groups


@dataclass(frozen=True, slots=True)
class Route:
    """Source names that ``pattern`` covers are called ``database``.``table`` on the target.

    ``shard`` limits the route to shards of that name (``*`` and ``?`` allowed); None means every source.
    """

    pattern: TablePattern
    to: str
    database: Template
    table: Template
    shard: str | None = None

    def apply(self, shard: str, database: str, table: str) -> tuple[str, str] | None:
        """Name on the target, None when the route does not speak of that table."""
        if self.shard is not None and not _glob(self.shard).regex.fullmatch(shard):
            return None
        captured = self.pattern.capture(database, table)
        return None if captured is None else (filled(self.database, captured), filled(self.table, captured))


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


def chosen_patterns(texts: Iterable[str], option: str = "--tables") -> list[TablePattern]:
    """Compile the patterns of an option.

    A name with more than one dot is taken as migverify prints it: it means every table that is printed so.

    Raises
    ------
    UsageError
        one of them is no pattern.
    """
    return [_chosen(text, option) for text in texts]


def _chosen(text: str, option: str) -> TablePattern:
    if text.count(".") > 1 and _PRINTED.fullmatch(text):
        return TablePattern(text, PartPattern(_ANYTHING), PartPattern(_ANYTHING), whole=re.compile(re.escape(text)))
    try:
        return parse_pattern(text)
    except ValueError as error:
        hint = (
            "A name with a dot, a space or another mark in it goes into backticks, and a backtick in it is doubled:"
            " '`shop.eu`.items'."
        )
        raise UsageError(f"{option} {text}: {error}", hint=hint) from None


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
    before = pattern.database.regex.groups
    database = _template(parts[0], "database", pattern.database.stars, pattern.captures)
    table = _template(parts[1], "table", tuple(before + star for star in pattern.table.stars), pattern.captures)
    return Route(pattern, to, database, table, shard)


def quote_part(name: str) -> str:
    """Spell a database or table name so that a pattern (or the ``to`` of a route) means exactly it."""
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def database_like(pattern: TablePattern) -> str:
    """Return the database part as a pattern of ``GRANT``; ``%``, every database, for a regular expression."""
    if pattern.database.literal is not None:
        return like_literal(pattern.database.literal)
    text = _split(pattern.text)[0]
    return "%" if text.startswith("/") else like_literal(text).replace("*", "%").replace("?", "_")


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


def _template(text: str, what: str, stars: tuple[int, ...], captures: int) -> Template:
    if text.startswith("`"):
        return (_unquote(text),)
    if "?" in text:
        raise ValueError("`to` cannot hold ?; name what it matched by {1}")
    following = iter(stars)
    pieces: list[str | int] = []
    for piece in re.split(r"(\*|\{\d+\})", text):
        number = int(piece[1:-1]) if re.fullmatch(r"\{\d+\}", piece) else next(following, 0) if piece == "*" else None
        if number is None:
            pieces += [piece] if piece else []
        elif 1 <= number <= captures:
            pieces.append(number)
        elif piece == "*":
            raise ValueError(f"the {what} part of `to` has more * than the {what} part of `from`; name one by {{1}}")
        else:
            raise ValueError(f"`to` names {piece}, but `from` captures {captures}")
    return tuple(pieces)


def filled(template: Template, captured: tuple[str, ...]) -> str:
    """Return a part of the name on the target."""
    return "".join(piece if isinstance(piece, str) else captured[piece - 1] for piece in template)


def _unquote(text: str) -> str:
    name = text[1:-1].replace("``", "`")
    if not name:
        raise ValueError(_SHAPE)
    return name

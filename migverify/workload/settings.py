"""The parts of a SET: which assignments it makes, in which scope, to which variable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

OUTSIDE = frozenset({"global", "persist", "persist_only"})
"""Scopes of settings that are not the session's own."""
SCOPES = OUTSIDE | {"session", "local"}


def assignments(texts: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Yield each assignment of what follows SET, given as the texts of its tokens.

    Commas inside parentheses separate nothing. Of an assignment come its scope in lower case, ``""`` where none is
    written, and where it begins and ends, behind the scope.
    """
    depth = start = 0
    for place, text in enumerate((*texts, ",")):
        depth += (text == "(") - (text == ")")
        if place == len(texts) or (text == "," and depth <= 0):
            first = texts[start].lower() if place - start > 1 else ""
            scope = first if first in SCOPES else ""
            yield scope, start + bool(scope), place
            start = place + 1


def variable(text: str) -> tuple[str, str]:
    """Return scope and name of a variable, both in lower case; the scope is empty where the text has none."""
    name = text.lower().removeprefix("@@")
    scope, dot, rest = name.partition(".")
    return (scope, rest) if dot and scope in SCOPES else ("", name)

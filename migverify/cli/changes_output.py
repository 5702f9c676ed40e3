"""Decoded changes on standard output, and which tables are printed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from migverify.changes.model import Item


def print_changes(
    stream: Iterator[Item], wanted: Callable[[str, str], bool] | None, *, as_json: bool, at_once: bool
) -> None:
    """Print the changes of a stream, one a line; ``at_once`` at each commit."""
    from migverify.changes import tail as lines

    shown = lines.as_json if as_json else lines.as_text
    write, flush = sys.stdout.write, sys.stdout.flush
    try:
        for found in lines.changes(stream, wanted):
            if type(found) is lines.Change:
                write(f"{shown(found)}\n")
            elif at_once:
                flush()
    finally:
        flush()


def table_filter(tables: list[str] | None) -> Callable[[str, str], bool] | None:
    """Return whether a table fits one of the patterns of ``--tables``; None for all."""
    from migverify.config import chosen_patterns

    if not tables:
        return None
    patterns = chosen_patterns(tables)
    return lambda database, table: any(pattern.matches(database, table) for pattern in patterns)

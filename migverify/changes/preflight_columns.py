"""Columns whose text in the binlog is not the one that SELECT prints, or that the binlog does not tell exactly.

A table map names types and sizes, not how a value is displayed: ZEROFILL, the digits of FLOAT(M,D), and which of
MariaDB's types lie behind bytes are in the catalog only. So they are read from there, before anybody is surprised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from migverify.changes.preflight_server import Finding
from migverify.changes.preflight_settings import State
from migverify.model import ColumnDef, Flavor, TableDef

QUERY = "information_schema.COLUMNS"
SHOWN = 10
_DIGITS = re.compile(r"(?:float|double|real)\(\d+,\d+\)", re.IGNORECASE)
_BYTES = frozenset({"uuid", "inet4", "inet6"})
_OLD_FORMAT = "mariadb-5.3"
"""What MariaDB's catalog appends to temporal types that are stored as before MySQL 5.6."""


@dataclass(frozen=True, slots=True)
class _Question:
    name: str
    unlike: Callable[[ColumnDef], bool]
    state: State
    why: str
    todo: str
    flavors: frozenset[Flavor] = frozenset({Flavor.MYSQL, Flavor.MARIADB})


def _old_with_fraction(column: ColumnDef) -> bool:
    return _OLD_FORMAT in column.column_type and bool(column.fsp)


_QUESTIONS = (
    _Question(
        "ZEROFILL columns", lambda c: "zerofill" in c.column_type.lower(), State.WARN,
        "The stream gives `42` where SELECT prints `000042`: a binlog does not say ZEROFILL.",
        "Compare them as numbers, as `tables`, `changes audit` and `tables watch` do; pad where you read the stream.",
    ),
    _Question(
        "FLOAT(M,D) and DOUBLE(M,D) columns", lambda c: _DIGITS.search(c.column_type) is not None, State.WARN,
        "SELECT rounds them to D digits; the stream gives the value, as the binlog does not say M and D.",
        "Compare them as numbers, as `tables`, `changes audit` and `tables watch` do; or use DECIMAL.",
    ),
    _Question(
        "UUID, INET4 and INET6 columns", lambda c: c.data_type in _BYTES, State.WARN,
        "The stream gives their bytes (`0x` and hex) where SELECT prints text: the binlog does not name these types.",
        "Convert the bytes where you read the stream, or leave these columns out and verify them in full.",
        frozenset({Flavor.MARIADB}),
    ),
    _Question(
        "old temporal columns with a fraction", _old_with_fraction, State.FAIL,
        "They are stored as before MariaDB 10.1.2, and the binlog does not say how many digits the fraction has: rows"
        " of these tables cannot be read.",
        "SET GLOBAL mysql56_temporal_format = ON; ALTER TABLE ... FORCE; on a table of the list, or leave it out.",
        frozenset({Flavor.MARIADB}),
    ),
)  # fmt: skip


def columns(tables: Sequence[TableDef], flavor: Flavor) -> Iterator[Finding]:
    """Ask which columns of the tables in scope have another text in the stream, or none at all; each is named."""
    for question in _QUESTIONS:
        if flavor not in question.flavors:
            continue
        found = [f"{t.ref}.{c.name} ({c.column_type})" for t in tables for c in t.columns if question.unlike(c)]
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        value = f"{len(found)} in {len(tables)} tables: {', '.join(found[:SHOWN])}{more}" if found else "none"
        yield Finding(question.name, question.state if found else State.PASS, value, "none", QUERY, question.why,
                      question.todo if found else "")  # fmt: skip

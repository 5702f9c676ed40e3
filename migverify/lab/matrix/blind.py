"""Pairs of values that migverify calls equal on purpose or cannot tell apart: put on both sides, and every tool asked.

The page shows them beside the faults, so that nobody takes MATCH for more than it says.
"""

from __future__ import annotations

from migverify.lab.museum import UTF8, MuseumTable

_BODY = "(id INT NOT NULL PRIMARY KEY, v {kind} NULL) " + UTF8


def _unlike(name: str, note: str, source: tuple[str, str], target: tuple[str, str]) -> tuple[MuseumTable, MuseumTable]:
    """Return the table as each side holds it: a type and a value per side."""
    made = []
    for kind, value in (source, target):
        ddl = _BODY.format(kind=kind)
        made.append(MuseumTable(name, ddl, ddl, ("id", "v"), (("1", value), ("2", "NULL")), note))
    return made[0], made[1]


BLIND: tuple[tuple[MuseumTable, MuseumTable], ...] = (
    _unlike(
        "sign_of_zero", "DOUBLE: -0.0 on the source, 0.0 on the target, which TiDB makes of it",
        ("DOUBLE", "-0e0"), ("DOUBLE", "0e0"),
    ),
    _unlike(
        "number_in_json", "JSON: 1.0 on the source, 1 on the target",
        ("JSON", "'{\"a\": 1.0}'"), ("JSON", "'{\"a\": 1}'"),
    ),
    _unlike(
        "space_in_char", "CHAR(5): 'a' with spaces on the source, without on the target; no server returns them",
        ("CHAR(5)", "'a  '"), ("CHAR(5)", "'a'"),
    ),
    _unlike(
        "key_twice_in_json", "JSON: a key given twice on the source; both servers keep the last of them",
        ("JSON", "'{\"a\": 1, \"a\": 2}'"), ("JSON", "'{\"a\": 2}'"),
    ),
    _unlike(
        "scale", "DECIMAL: 1.5 with one digit on the source, 1.50 with two on the target",
        ("DECIMAL(6,1)", "1.5"), ("DECIMAL(6,2)", "1.50"),
    ),
    _unlike(
        "instant", "TIMESTAMP on the source, the DATETIME of the same moment in UTC on the target",
        ("TIMESTAMP", "'2024-02-29 12:00:00'"), ("DATETIME", "'2024-02-29 12:00:00'"),
    ),
)  # fmt: skip
"""(the source's table, the target's), each with one row that differs in its spelling and one that is NULL."""

"""The type table as a page of the documentation."""

from __future__ import annotations

from migverify.model import Lane
from migverify.sql.canonical import FAMILIES, TYPE_TABLE

_HEAD = """# Which types are compared, and what is one value

Generated from the type table of `migverify/sql/canonical.py`; do not edit.

Each row joins a type of the source with a type of the target. The servers make one text of each value; *counts as one
value* says which unlike spellings are equal on purpose, *cannot see* what is lost. Types that no row joins are not
compared: `migverify tables plan` lists them, and the table is INCONCLUSIVE, not MATCH.

The lane **exact** is hashed by the servers. The lane **value** is hashed too, and where the texts of a row differ its
values are compared one by one.

"""


def type_page() -> str:
    """Return the page as Markdown."""
    lines = ["| rule | source | target | lane | counts as one value | cannot see |", "|---|---|---|---|---|---|"]
    for rule in TYPE_TABLE:
        lane = "value" if rule.lane is Lane.VALUE else "exact"
        cells = [rule.name, _types(rule.source), _types(rule.target), lane, rule.equates, rule.blind_to]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    families: dict[str, list[str]] = {}
    for name, family in FAMILIES.items():
        families.setdefault(family, []).append(name.upper())
    members = [f"- **{family}**: {', '.join(names)}" for family, names in families.items()]
    return _HEAD + "\n".join(lines) + "\n\n## Families\n\n" + "\n".join(members) + "\n"


def _types(families: frozenset[str]) -> str:
    return ", ".join(sorted(families))

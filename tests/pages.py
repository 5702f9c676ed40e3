"""Pages of the documentation that are made of the package's own tables: types, privileges, questions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

import typer.main

from migverify.cli.main import COMMANDS, added_commands
from migverify.guards.check_rules import ALL, Work
from migverify.guards.check_table import QUESTIONS
from migverify.model import Flavor, Lane, Side
from migverify.recon.expectations import TYPES, ColumnGroup
from migverify.sql.canonical import FAMILIES, TYPE_TABLE
from migverify.sql.grants import Grants
from migverify.sql.privileges import (
    CHECKPOINT,
    DATABASES,
    MARKER,
    NEEDS,
    RESOURCE_GROUP,
    REVERSE_MARKER,
    Need,
    Scopes,
    commands,
    missing,
    statements,
    wanted_for,
)

_HEAD = """# Which types are compared, and what is one value

Generated from the type table of `migverify/sql/canonical.py`; do not edit.

Each row joins a type of the source with a type of the target. The servers make one text of each value; *counts as one
value* says which different spellings are equal on purpose, *cannot see* what is lost. Types that no row joins are not
compared: `migverify tables plan` lists them, and the table is INCONCLUSIVE, not MATCH.

The lane **exact** is hashed by the servers. The lane **value** is hashed too, and where the texts of a row differ its
values are compared one by one.

"""


def type_page() -> str:
    """Return docs/types.md: the type table."""
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


def page_table() -> str:
    """Return the table of all needs for docs/privileges.md."""
    lines = ["| grant | on | where | commands | what for | without it |", "|---|---|---|---|---|---|"]
    for need in NEEDS:
        on = {DATABASES: "the databases in scope", MARKER: "the marker table", CHECKPOINT: "the checkpoint table",
              REVERSE_MARKER: "the marker table of `reverse`",
              RESOURCE_GROUP: "`*.*`"}  # fmt: skip
        cells = (
            f"`{', '.join(need.privileges)}`", on.get(need.on, f"`{need.on}`"), _where(need),
            ", ".join(f"`{command}`" for command in _grouped(need.commands)), need.reads, need.without,
        )  # fmt: skip
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _where(need: Need) -> str:
    names = {Flavor.MYSQL: "MySQL", Flavor.MARIADB: "MariaDB", Flavor.TIDB: "TiDB"}
    sides = "both sides" if need.sides == frozenset(Side) else next(iter(need.sides)).value
    if need.flavors == frozenset(Flavor):
        return sides
    kinds = ", ".join(names[flavor] for flavor in Flavor if flavor in need.flavors)
    since = f" {'.'.join(map(str, need.since))} and later" if need.since else ""
    before = f" before {'.'.join(map(str, need.before))}" if need.before else ""
    return f"{sides}: {kinds}{since}{before}"


def command_lines(*, forms: bool = True, added: bool = False) -> Iterator[str]:
    """Yield every command, and each of its other forms by its first option; ``added``: the lab's too."""
    yield from (line for line, _ in declared_commands(forms=forms, added=added))


def declared_commands(*, forms: bool = True, added: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield what ``command_lines`` does with the command itself."""
    for entry in (*COMMANDS, *(added_commands() if added else ())):
        yield from _declared(entry.name, typer.main.get_command(import_module(entry.module).app), forms=forms)


def _declared(name: str, command: Any, *, forms: bool) -> Iterator[tuple[str, Any]]:
    if getattr(command, "commands", None):
        for sub, part in command.commands.items():
            if not part.hidden:
                yield from _declared(f"{name} {sub}", part, forms=forms)
        return
    yield name, command
    yield from ((f"{name} {form.flags[0]}", form.command()) for form in getattr(command, "forms", ()) if forms)


def _grouped(names: Iterable[str]) -> list[str]:
    """Return command names sorted, ``group *`` where all of a group that the table knows are among them."""
    given, out = set(names), list[str]()
    for name in sorted(given):
        group = name.partition(" ")[0]
        known = {one for one in commands() if one.startswith(f"{group} ") and "--" not in one}
        shown = f"{group} *" if len(known) > 1 and known <= given and name in known else name
        if shown not in out:
            out.append(shown)
    return out


def page_statements(command: str, side: Side, flavor: Flavor) -> str:
    """Return the statements for a command as a page shows them, for the database ``app``."""
    nobody = Grants("migverify@%", (), (), ())
    lacking = missing(wanted_for((command,), side, flavor), nobody, Scopes(("app",)))
    return "\n".join(statements(lacking, nobody.account)) + "\n"


def support_table() -> str:
    """Return what each expectation looks at and on which columns, and what is refused, as tables of Markdown."""
    lines = ["| expectation | looks at | on columns of |", "|---|---|---|"]
    for name, known in sorted(TYPES.items()):
        groups = (
            "all types"
            if known.groups == frozenset(ColumnGroup)
            else ", ".join(g for g in ColumnGroup if g in known.groups)
        )
        lines.append(f"| `{name}` | {known.looks_at} | {groups if known.columns else '-'} |")
    return "\n".join(lines) + "\n"


def questions_table() -> str:
    """Return the table of all questions for docs/check.md."""
    lines = ["| question | asked of | for | wanted | why |", "|---|---|---|---|---|"]
    for question in QUESTIONS:
        works = "all" if question.work == ALL else ", ".join(work.value for work in Work if work in question.work)
        of = question.of.value + (" and pair" if question.ask and question.pair else "")
        cells = (f"`{question.name}`", of, works, question.threshold, question.why)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def parts_table(name: str) -> str:
    """Return the table of a question's parts for docs/check.md."""
    question = next(one for one in QUESTIONS if one.name == name)
    lines = ["| part | wanted | why |", "|---|---|---|"]
    for part in (part for part in question.parts if not part.kinds):  # those of other kinds of servers refuse them
        cells = (f"`{part.name}`", part.threshold or question.threshold, part.why)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"

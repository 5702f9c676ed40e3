"""The text of a first rules file, guessed from the catalogs of the endpoints: pure, so that guesses can be tested.

Every guess is a rule that can run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from migverify.model import ColumnDef, TableDef, TableRef

MAX_TABLES = 20
"""Tables of one endpoint that get rules; the others are listed."""

_AMOUNT = re.compile(r"(^|_)(amount|amt|total|price|balance|fee|sum|value)($|_)")
_CURRENCY = re.compile(r"(^|_)(currency|ccy|currency_code)($|_)")
_CREATED = re.compile(r"^(created|inserted|booked|occurred|posted)(_?(at|on|time|date))?$|_(created|inserted)_at$")
_EXACT = frozenset({"decimal", "bigint", "int", "mediumint", "smallint", "tinyint"})
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Reference:
    """A foreign key: columns of a child that name columns of a parent."""

    child: TableRef
    columns: tuple[str, ...]
    parent: TableRef
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SeenTables:
    """What one endpoint's catalog says."""

    endpoint: str
    tables: tuple[TableDef, ...]
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class SamePlace:
    """A table of the source, all its shards, and the table of the target that holds its rows."""

    sources: tuple[TableDef, ...]
    target: TableDef


def starter_text(pairs: Sequence[SamePlace], seen: Sequence[SeenTables]) -> str:
    """Return a rules file: rules that can be guessed.

    ``pairs``: Tables that hold the same rows on source and target. ``seen``: Endpoints whose own tables have to agree
    with each other.
    """
    document = _Document()
    for pair in pairs[:MAX_TABLES]:
        _add_pair(document, pair)
    for one in seen:
        _add_references(document, one)
    left = [str(pair.sources[0].ref) for pair in pairs[MAX_TABLES:]]
    return document.text(left)


class _Document:
    """Datasets by what they read, rules and comments, in the order they were thought of."""

    def __init__(self) -> None:
        self.datasets: dict[tuple[TableRef, ...], str] = {}
        self.lines: dict[str, list[str]] = {}
        self.names: set[str] = set()
        self.rules: list[str] = []

    def name(self, proposal: str) -> str:
        base = _UNFIT.sub("_", proposal).strip("_-") or "table"
        base = base[:80] if base[0].isalnum() else f"t{base[:79]}"
        name, number = base, 1
        while name in self.names:
            number += 1
            name = f"{base}_{number}"
        self.names.add(name)
        return name

    def dataset(self, tables: Sequence[TableDef], proposal: str) -> str:
        """Return the name of a dataset over these tables; adds it at its first use."""
        refs = tuple(table.ref for table in tables)
        if refs not in self.datasets:
            self.datasets[refs] = name = self.name(proposal)
            self.lines[name] = _dataset_lines(tables)
        return self.datasets[refs]

    def add(self, name: str, kind: str, **values: object) -> None:
        """Add a rule, under a name that no other part has."""
        self.rules += [f"  - name: {quoted(self.name(name))}", f"    kind: {kind}", *_keys(**values)]

    def text(self, left: Sequence[str]) -> str:
        lines = [*_HEAD, "", "datasets:" if self.lines else "datasets: {}"]
        for name, body in self.lines.items():
            lines += [f"  {quoted(name)}:", *body]
        lines += ["", *(["rules:", *self.rules] if self.rules else _NO_RULES)]
        if left:
            lines += ["", f"# {len(left)} more tables, without rules here; `tables verify` compares whole tables:"]
            lines += [f"#   {_plain(name)}" for name in left[:MAX_TABLES]]
            lines += [f"#   ... and {len(left) - MAX_TABLES} more"] if len(left) > MAX_TABLES else []
        if lines[-1]:
            lines.append("")
        return "\n".join([*lines, *_TAIL]) + "\n"


_HEAD = """\
# Reconciliation rules of migverify; every kind and key is explained in docs/recon.md.
# These were guessed from the catalogs: read each, remove what has no meaning, then run `migverify recon check`.
version: recon/v1

defaults:
  # owner: payments-team     # who answers for findings
  severity: critical         # critical, major or warning
  settle: 30s                # how long two sides may take to agree
  rereads: 2                 # how many more times a difference is read before it is a finding
""".splitlines()

_NO_RULES = ["# Nothing could be guessed: write the first rule here.", "rules: []"]
_TAIL = """\
# exceptions:                # findings that somebody answers for, until a date
#   - {rule: orders, key: [42], owner: payments-team, reason: "refund in transit", expires: 2027-01-31}""".splitlines()


def _flow(value: object) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_flow(one)}' for key, one in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_flow, value))}]"
    return "true" if value is True else quoted(str(value))


def _keys(**values: object) -> list[str]:
    """Return the lines of keys that have a value."""
    return [f"    {key}: {_flow(value)}" for key, value in values.items() if value]


def _dataset_lines(tables: Sequence[TableDef]) -> list[str]:
    table = tables[0]
    identity = _keys(key=usable_key(table), time=_time(table))
    if len(tables) == 1:
        return [*_keys(endpoint=table.ref.endpoint, table=_path(table.ref)), *identity]
    shards = [one.ref.endpoint.partition(".")[2] for one in tables]
    template = {"endpoint": "source.{shard}", "table": _path(table.ref)}
    return ["    union:", *(f"  {line}" for line in _keys(shards=shards, template=template)), *identity]


def usable_key(table: TableDef) -> tuple[str, ...]:
    """Columns of the primary key, else of the first unique index without NULLs; empty for none."""
    nullable = {column.name: column.nullable for column in table.columns}
    for index in sorted(table.indexes, key=lambda one: not one.primary):
        columns = [name for name in index.columns if name is not None]
        whole = len(columns) == len(index.columns) and not any(index.prefixes)
        if index.unique and whole and columns and not any(nullable.get(name, True) for name in columns):
            return tuple(columns)
    return ()


def _time(table: TableDef) -> str | None:
    moments = [c.name for c in table.columns if c.data_type in ("datetime", "timestamp") and not c.nullable]
    return next((name for name in moments if _CREATED.search(name.lower())), None)


def _add_pair(document: _Document, pair: SamePlace) -> None:
    ours, theirs = pair.sources[0], pair.target
    key = usable_key(ours)
    columns = {column.name for column in theirs.columns}
    if not key or usable_key(theirs) != key:
        return
    if len(pair.sources) > 1 and "{" in ours.ref.database + ours.ref.table:
        return  # in a template it would be a placeholder
    table = ours.ref.table
    source = document.dataset(pair.sources, table)
    target = document.dataset([theirs], f"{table}_on_target")
    compare = [column.name for column in ours.columns if column.name in columns and column.name not in key]
    sides = {"source": source, "target": target}
    document.add(f"{table}-rows", "same_rows", **sides)
    if (compare and len(compare) < len(ours.columns) - len(key)) or len(columns) != len(ours.columns):
        document.rules.append(f"    compare: {_flow(compare)}    # the others are on one side only")
    amount, currency = _money(ours, columns)
    if amount and currency:
        document.rules += _keys(money={"column": amount, "currency": currency})
        document.rules.append("")
        measures = ["count", f"sum({amount})"]
        document.add(f"{table}-sums", "same_groups", **sides, groups=[currency], measures=measures)
    document.rules.append("")


def _money(table: TableDef, there: Iterable[str]) -> tuple[str | None, str | None]:
    both = [column for column in table.columns if column.name in set(there)]
    amount = _first(both, _AMOUNT, lambda column: column.data_type in _EXACT and "," not in column.name)
    return amount, _first(both, _CURRENCY, lambda column: column.data_type in ("char", "varchar", "enum"))


def _first(
    columns: Sequence[ColumnDef], pattern: re.Pattern[str], fits: Callable[[ColumnDef], bool]
) -> str | None:  # fmt: skip
    return next((c.name for c in columns if pattern.search(c.name.lower()) and fits(c)), None)


def _add_references(document: _Document, seen: SeenTables) -> None:
    tables = {table.ref: table for table in seen.tables}
    for reference in seen.references:
        if reference.child not in tables or reference.parent not in tables or reference.child == reference.parent:
            continue
        child, parent = tables[reference.child], tables[reference.parent]
        optional = any(column.nullable for column in child.columns if column.name in reference.columns)
        source, target = (document.dataset([one], f"{one.ref.table}_on_{seen.endpoint}") for one in (parent, child))
        document.add(
            f"{child.ref.table}-of-{parent.ref.table}-on-{seen.endpoint}", "orphans", source=source, target=target,
            key=reference.keys, reference=reference.columns, optional=optional,
        )  # fmt: skip
        document.rules.append("")


def _path(ref: TableRef) -> str:
    return ".".join(
        name if re.fullmatch(r"[^`.\s{}]+", name) else "`" + name.replace("`", "``") + "`"
        for name in (ref.database, ref.table)
    )


def quoted(text: str) -> str:
    """Return text as a YAML scalar on one line; ``${`` stays what it is."""
    import yaml

    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", text) and text.lower() not in ("true", "false", "null", "none"):
        return text
    scalar: str = yaml.safe_dump(text.replace("${", "$${"), default_style='"', allow_unicode=True, width=1 << 30)
    return scalar.rstrip("\n")


def _plain(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)


def parents(rows: Iterable[Mapping[str, str | None]], endpoint: str) -> tuple[Reference, ...]:
    """Foreign keys from rows of ``information_schema.KEY_COLUMN_USAGE`` (``sql.catalog.REFERENCES``)."""
    found: dict[tuple[str, str, str], list[tuple[str, str, str, str]]] = {}
    for row in rows:
        text = {name.upper(): value or "" for name, value in row.items()}
        where = text["TABLE_SCHEMA"], text["TABLE_NAME"], text["CONSTRAINT_NAME"]
        found.setdefault(where, []).append(
            (text["COLUMN_NAME"], text["REFERENCED_TABLE_SCHEMA"], text["REFERENCED_TABLE_NAME"],
             text["REFERENCED_COLUMN_NAME"])
        )  # fmt: skip
    return tuple(
        Reference(
            TableRef(endpoint, database, table), tuple(part[0] for part in parts),
            TableRef(endpoint, parts[0][1], parts[0][2]), tuple(part[3] for part in parts),
        )
        for (database, table, _), parts in sorted(found.items())
    )  # fmt: skip

"""The canonical form of a table's definition, and its fingerprint: SHA-256 over that form as JSON.

Two definitions of one meaning have one form on MySQL, MariaDB, Aurora and TiDB: display widths, ``utf8`` and
``utf8mb3``, quoting of defaults, functions of two names, parentheses and character set introducers, JSON as MariaDB's
LONGTEXT with a CHECK, the names and indexes that a server makes for a foreign key, the order of indexes, RESTRICT and
NO ACTION, ROW_FORMAT, counters and statistics do not show. The table's own name is no part of it, since routes change
it. Keys are sorted, there is no white space, text is UTF-8.

The *layout* (columns, keys, table options) is made of what every run reads of the catalog anyway; the whole form has
foreign keys, CHECK constraints, triggers, partitions and TiDB's own attributes too (``Parts``).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from migverify.model import ColumnDef, IndexDef, TableDef
from migverify.sql.definitions import Name
from migverify.sql.parts import CheckConstraint, DatabaseObject, ForeignKey, Partitioning, Parts
from migverify.sql.spelling import fold_label, normal_default, normal_expression, normal_type

Renamed = Callable[[str, str], Name]
"""(database, table) of an endpoint -> the name on the target."""

_TEXTUAL = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"})
_JSON_CHECK = re.compile(r"\s*json_valid\s*\(\s*`((?:[^`]|``)+)`\s*\)\s*", re.IGNORECASE)
_VALUES = re.compile(r"(?:\((?:[^()']|'(?:[^'\\]|''|\\.)*')*\)|'(?:[^'\\]|''|\\.)*'|[^,'()])+")
"""Values of a LIST: what is between commas outside of parentheses and quotes."""
_MIDNIGHT = re.compile(r"(?<=\d) 00:00:00(?:\.0+)?(?=')")
MADE_CHECK_NAME = re.compile(r".*_chk_\d+|CONSTRAINT_\d+", re.DOTALL)
MADE_KEY_NAME = re.compile(r".*_ibfk_\d+|fk_\d+", re.DOTALL)


def digest(form: object) -> str:
    """Return the SHA-256 of a JSON value in canonical form, 64 hexadecimal digits."""
    text = json.dumps(form, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def layout_fingerprint(table: TableDef) -> str:
    """Return the fingerprint of columns, keys and options."""
    return digest(layout_form(table, ()))


def table_fingerprint(table: TableDef, parts: Parts, renamed: Renamed = lambda d, t: (d, t)) -> str:
    """Return the fingerprint of a table with all its parts."""
    return digest(table_form(table, parts, renamed))


def whole_fingerprint(tables: Mapping[str, Iterable[str]], objects: Iterable[DatabaseObject] = ()) -> str:
    """Return the fingerprint of an endpoint.

    Parameters
    ----------
    tables
        Name on the target -> fingerprints of the tables that lead there.
    objects
        Views, routines, events and sequences. The text of a view does not count: each server prints it differently.
    """
    named = {name: sorted(set(found)) for name, found in tables.items()}
    others = sorted([o.kind, o.database, o.name, "" if o.kind == "view" else o.text] for o in objects)
    return digest({"tables": named, "objects": others})


def table_form(table: TableDef, parts: Parts, renamed: Renamed = lambda d, t: (d, t)) -> dict[str, Any]:
    """Return the canonical form of a table with all its parts."""
    table, parts = plain_json(table, parts)
    form = layout_form(table, parts.foreign_keys)
    del form["options"]["partitioned"]
    form["options"]["engine"] = (table.engine or "").casefold()
    form["attributes"] = {name: text for name, text in parts.attributes if name != "zerofill"}
    if filled := sorted(zerofilled(table, parts)):
        form["zerofill"] = filled
    form["foreign_keys"] = sorted((foreign_key_form(table, one, renamed) for one in parts.foreign_keys), key=digest)
    form["checks"] = sorted((check_form(table, one) for one in parts.checks), key=digest)
    form["triggers"] = {
        one.name: [one.timing, one.event, one.order, " ".join(one.statement.split())] for one in parts.triggers
    }
    form["partitioning"] = None if parts.partitioning is None else partitioning_form(table, parts.partitioning)
    return form


def zerofilled(table: TableDef, parts: Parts) -> set[str]:
    """Return the names of the columns that are shown with leading zeros; TiDB's catalog leaves it to the parts."""
    named = dict(parts.attributes).get("zerofill", "").split(" ")
    return {column.name for column in table.columns if "zerofill" in column.column_type or column.name in named}


def layout_form(table: TableDef, foreign_keys: Iterable[ForeignKey]) -> dict[str, Any]:
    """Return the canonical form of columns, keys and options; keys that only serve a foreign key are left out."""
    implied = implied_keys(table, foreign_keys)
    return {
        "columns": [column_form(column) for column in table.columns],
        "keys": sorted((key_form(table, i) for i in table.indexes if i.name not in implied), key=digest),
        "options": {
            "collation": normal_collation(table.collation), "comment": fold_label(table.comment),
            "sharding": sharding(table), "partitioned": table.partitioned,
        },
    }  # fmt: skip


@lru_cache(maxsize=8192)
def column_form(column: ColumnDef) -> dict[str, Any]:
    """Return the canonical form of a column; it is shared, and must not be changed.

    Tables of one schema repeat columns (an id, a time of creation), and each is wanted twice.
    """
    textual = column.data_type in _TEXTUAL
    generated = bool(column.generation)
    return {
        "name": column.name, "type": normal_type(column), "members": list(column.members),
        "charset": normal_charset(column.charset) if textual else "",
        "collation": normal_collation(column.collation) if textual else "",
        "nullable": column.nullable, "default": None if generated else normal_default(column),
        "generation": normal_expression(column.generation) if generated else "",
        "stored": column.stored if generated else True,
        "on_update": on_update(column), "auto": automatic(column), "invisible": column.invisible,
        "comment": fold_label(column.comment),
    }  # fmt: skip


def key_form(table: TableDef, index: IndexDef) -> dict[str, Any]:
    """Return the canonical form of a key."""
    return {
        "name": index.name, "unique": index.unique, "parts": [list(part) for part in key_shape(table, index, {})],
        "visible": index.visible, "kind": index.kind, "comment": fold_label(index.comment),
        "descending": list(index.descending),
    }  # fmt: skip


def key_shape(table: TableDef, index: IndexDef, names: Mapping[str, str]) -> tuple[tuple[str, int | None], ...]:
    """Return what a key covers: column (by its name in ``names``, folded) or expression, and prefix length."""
    lengths = {column.name: column.char_length for column in table.columns}
    parts: list[tuple[str, int | None]] = []
    expressions = index.expressions or (None,) * len(index.columns)
    for column, prefix, expression in zip(index.columns, index.prefixes, expressions, strict=True):
        if column is None:
            parts.append((f"({normal_expression(expression or '?')})", None))
        else:
            whole = prefix is not None and prefix == lengths.get(column)
            parts.append((names.get(column, column).casefold(), None if whole else prefix))
    return tuple(parts)


def implied_keys(table: TableDef, foreign_keys: Iterable[ForeignKey]) -> frozenset[str]:
    """Return the names of keys that a server makes for a foreign key by itself, each in a way and a name of its own."""
    found = set()
    for foreign in foreign_keys:
        columns = tuple(foreign.columns)
        for index in table.indexes:
            plain = not (index.unique or index.descending or index.comment or index.expressions) and index.visible
            made = index.name == foreign.name or re.fullmatch(re.escape(columns[0]) + r"(_\d+)?", index.name)
            if plain and made and index.columns == columns and set(index.prefixes) == {None}:
                found.add(index.name)
    return frozenset(found)


def foreign_key_form(table: TableDef, key: ForeignKey, renamed: Renamed) -> dict[str, Any]:
    """Return the canonical form of a foreign key; a name that a server made is none."""
    own, other = renamed(table.ref.database, table.ref.table), renamed(*key.references)
    return {
        "name": "" if MADE_KEY_NAME.fullmatch(key.name) else key.name,
        "columns": [name.casefold() for name in key.columns],
        "references": other[1] if own[0].casefold() == other[0].casefold() else ".".join(other),
        "referenced": [name.casefold() for name in key.referenced],
        "on_delete": normal_rule(key.on_delete), "on_update": normal_rule(key.on_update),
    }  # fmt: skip


def normal_rule(rule: str) -> str:
    """Return what a foreign key does; InnoDB takes NO ACTION for RESTRICT."""
    return "RESTRICT" if rule in {"NO ACTION", "RESTRICT", ""} else rule


def check_form(table: TableDef, check: CheckConstraint) -> dict[str, Any]:
    """Return the canonical form of a CHECK constraint; a name that a server made is none."""
    made = MADE_CHECK_NAME.fullmatch(check.name) or check.name in {column.name for column in table.columns}
    return {"name": "" if made else check.name, "clause": normal_expression(check.clause), "enforced": check.enforced}


def partitioning_form(table: TableDef, found: Partitioning) -> dict[str, Any]:
    """Return the canonical form of a table's partitioning."""
    expression = normal_expression(found.expression)
    if found.method.endswith("KEY") and not expression:
        primary = next((index for index in table.indexes if index.primary), None)
        expression = " , ".join(name.casefold() for name in (primary.columns if primary else ()) if name)
    return {
        "method": found.method, "expression": expression, "sub_method": found.sub_method,
        "sub_expression": normal_expression(found.sub_expression), "sub_count": found.sub_count,
        "partitions": [
            [one.name, normal_bound(one.bound, found.method), fold_label(one.comment)] for one in found.partitions
        ],
    }  # fmt: skip


def normal_bound(bound: str, method: str) -> str:
    """Return a partition's bound; TiDB writes the midnight of a date out, and the values of a LIST have no order."""
    parts = _VALUES.findall(bound) if method.startswith("LIST") else [bound]
    return " , ".join(sorted(_MIDNIGHT.sub("", normal_expression(part)) for part in parts))


def plain_json(table: TableDef, parts: Parts) -> tuple[TableDef, Parts]:
    """Return a MariaDB's JSON column, a LONGTEXT with a CHECK, as JSON."""
    guarded: dict[str, CheckConstraint] = {}
    for check in parts.checks:
        named = _JSON_CHECK.fullmatch(check.clause)
        if named:
            guarded[named[1].replace("``", "`")] = check
    found = {
        c.name for c in table.columns if c.name in guarded and c.data_type == "longtext" and c.charset == "utf8mb4"
    }
    if not found:
        return table, parts
    columns = tuple(
        replace(c, data_type="json", column_type="json", charset=None, collation=None, char_length=None,
                octet_length=None) if c.name in found else c
        for c in table.columns
    )  # fmt: skip
    spent = [guarded[name] for name in found]
    return replace(table, columns=columns), replace(parts, checks=tuple(c for c in parts.checks if c not in spent))


def normal_charset(name: str | None) -> str:
    """Return one name for utf8 and utf8mb3."""
    return "utf8mb3" if name == "utf8" else name or ""


def normal_collation(name: str | None) -> str:
    """Return one name for a collation of utf8 and of utf8mb3."""
    lowered = (name or "").lower()
    return "utf8mb3_" + lowered.removeprefix("utf8_") if lowered.startswith("utf8_") else lowered


def on_update(column: ColumnDef) -> str:
    """Return what an UPDATE sets the column to, empty for nothing."""
    extra = column.extra.lower()
    at = extra.find("on update ")
    if at < 0:
        return ""
    return "on update " + normal_expression(extra[at + len("on update ") :].replace("invisible", ""))


def automatic(column: ColumnDef) -> str:
    """Return how the column gets ids by itself: ``auto_increment``, ``auto_random(5)``, empty for not."""
    extra = column.extra.lower()
    if "auto_random" in extra:
        return extra[extra.index("auto_random") :]
    return "auto_increment" if "auto_increment" in extra else ""


def sharding(table: TableDef) -> str:
    """Return how TiDB spreads hidden row ids, ``SHARD_BITS=4``; empty for not."""
    found = re.search(r"\bSHARD_BITS=\d+", table.create_options, re.IGNORECASE)
    return found[0].upper() if found else ""

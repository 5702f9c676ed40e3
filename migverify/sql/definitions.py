"""Rows of a server's catalog as TableDef: pure, the other half of ``catalog``."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from sys import intern

from migverify.errors import IncompleteReadError, PrivilegeError, ReadError
from migverify.model import ColumnDef, Flavor, IndexDef, TableDef, TableRef
from migverify.sql.quoting import quote_path

Row = tuple[str | None, ...]
Name = tuple[str, str]
"""(database, table) as the catalog spells them."""

READ = {
    "TABLES": (
        "TABLE_SCHEMA", "TABLE_NAME", "ENGINE", "TABLE_ROWS", "DATA_LENGTH", "INDEX_LENGTH", "TABLE_COLLATION",
        "TABLE_COMMENT", "AUTO_INCREMENT", "CREATE_OPTIONS", "TIDB_ROW_ID_SHARDING_INFO",
    ),
    "COLUMNS": (
        "TABLE_SCHEMA", "TABLE_NAME", "COLUMN_NAME", "ORDINAL_POSITION", "DATA_TYPE", "COLUMN_TYPE", "IS_NULLABLE",
        "COLUMN_DEFAULT", "CHARACTER_SET_NAME", "COLLATION_NAME", "CHARACTER_MAXIMUM_LENGTH", "CHARACTER_OCTET_LENGTH",
        "NUMERIC_PRECISION", "NUMERIC_SCALE", "DATETIME_PRECISION", "GENERATION_EXPRESSION", "EXTRA", "COLUMN_COMMENT",
    ),
    "STATISTICS": (
        "TABLE_SCHEMA", "TABLE_NAME", "INDEX_NAME", "NON_UNIQUE", "SEQ_IN_INDEX", "COLUMN_NAME", "SUB_PART",
        "INDEX_TYPE", "IS_VISIBLE", "IGNORED", "EXPRESSION", "COLLATION", "INDEX_COMMENT",
    ),
}  # fmt: skip
"""Catalog table -> its columns as they are read, in this order."""
# Kinds with an order; HASH (NDB, MEMORY) has none either.
_ORDERED = frozenset({"BTREE", ""})
# TiDB's own columns; they are no part of the table's data.
_HIDDEN = re.compile(r"_tidb_rowid|_tidb_commit_ts|_V\$_.*|!hidden!.*", re.IGNORECASE | re.DOTALL)


def parse_tables(
    endpoint: str,
    flavor: Flavor,
    names: Sequence[Name],
    tables: Sequence[Row],
    columns: Sequence[Row],
    indexes: Sequence[Row],
) -> list[TableDef]:
    """Make definitions of the three queries' rows, in the order of ``names``; pure.

    Rows of other names are ignored. A name without a row in ``tables`` is left out. ``rows`` and ``bytes``
    are 0 where the server gives no estimate.

    Raises
    ------
    PrivilegeError
        A table without columns, or with a gap in their positions.
    IncompleteReadError
        An index on a column that is not there, or a column type that cannot be read.
    """
    table_rows = {(text_of(row[0]), text_of(row[1])): dict(zip(READ["TABLES"], row, strict=True)) for row in tables}
    column_rows = _by_table(READ["COLUMNS"], columns)
    index_rows = _by_table(READ["STATISTICS"], indexes)
    found = []
    for name in names:
        if name not in table_rows:
            continue
        ref = TableRef(endpoint, *name)
        column_defs = _columns(ref, flavor, column_rows.get(name, []))
        index_defs = _indexes(ref, column_defs, index_rows.get(name, []))
        found.append(_table(ref, table_rows[name], column_defs, index_defs))
    return found


def _table(
    ref: TableRef,
    row: Mapping[str, str | None],
    columns: tuple[ColumnDef, ...],
    indexes: tuple[IndexDef, ...],
) -> TableDef:
    options = (row["CREATE_OPTIONS"] or "").strip()
    sharding = row["TIDB_ROW_ID_SHARDING_INFO"] or ""
    if sharding and not sharding.upper().startswith("NOT_SHARDED"):
        columns = _with_auto_random(columns, indexes, sharding)
        options = f"{options} {sharding}".strip()
    return TableDef(
        ref=ref,
        columns=columns,
        indexes=indexes,
        rows=int(row["TABLE_ROWS"] or 0),
        bytes=int(row["DATA_LENGTH"] or 0) + int(row["INDEX_LENGTH"] or 0),
        collation=row["TABLE_COLLATION"],
        engine=row["ENGINE"],
        comment=row["TABLE_COMMENT"] or "",
        auto_increment=_number(row["AUTO_INCREMENT"]),
        partitioned="partitioned" in options.lower(),
        create_options=options,
    )


def _with_auto_random(
    columns: tuple[ColumnDef, ...], indexes: tuple[IndexDef, ...], sharding: str
) -> tuple[ColumnDef, ...]:
    """Say ``auto_random(bits[, range])`` in EXTRA of the first key column; TiDB's catalog does not."""
    bits = re.search(r"PK_AUTO_RANDOM_BITS=(\d+)(?:,\s*RANGE BITS=(\d+))?", sharding, re.IGNORECASE)
    primary = next((index for index in indexes if index.primary), None)
    if bits is None or primary is None:
        return columns
    text = f"auto_random({bits[1]})" if bits[2] is None else f"auto_random({bits[1]}, {bits[2]})"
    return tuple(
        replace(column, extra=f"{column.extra} {text}".strip())
        if column.name == primary.columns[0] and "auto_random" not in column.extra.lower()
        else column
        for column in columns
    )


def _columns(ref: TableRef, flavor: Flavor, rows: list[dict[str, str | None]]) -> tuple[ColumnDef, ...]:
    rows.sort(key=lambda row: int(text_of(row["ORDINAL_POSITION"])))
    positions = [int(text_of(row["ORDINAL_POSITION"])) for row in rows]
    if not rows or positions[0] != 1 or any(after - before != 1 for before, after in pairwise(positions)):
        raise PrivilegeError(
            f"{ref.endpoint}: this user does not see all columns of {ref} (positions {_spans(positions)})",
            hint=f"GRANT SELECT ON {quote_path(ref.database, ref.table)} to the user, on the whole table.",
        )
    return tuple(
        _column(ref, flavor, position, row)
        for position, row in zip(positions, rows, strict=True)
        if not _HIDDEN.fullmatch(text_of(row["COLUMN_NAME"]))
    )


def _column(ref: TableRef, flavor: Flavor, position: int, row: Mapping[str, str | None]) -> ColumnDef:
    column_type = text_of(row["COLUMN_TYPE"])
    data_type = text_of(row["DATA_TYPE"]).lower()
    extra = _extra(flavor, row)
    flags = extra.lower()
    name = text_of(row["COLUMN_NAME"])
    members: tuple[str, ...] = ()
    if data_type in {"enum", "set"}:
        try:
            members = parse_members(column_type, flavor)
        except ValueError as error:
            raise IncompleteReadError(f"{ref.endpoint}: {ref}, column {name}: {error}") from error
    numeric = data_type in {"decimal", "float", "double", "bit"}
    return ColumnDef(
        name=name,
        position=position,
        data_type=data_type,
        column_type=column_type,
        nullable=text_of(row["IS_NULLABLE"]).upper() == "YES",
        unsigned=not members and bool(re.search(r"\bunsigned\b", column_type, re.IGNORECASE)),
        default=_default(flavor, row["COLUMN_DEFAULT"]),
        charset=row["CHARACTER_SET_NAME"],
        collation=row["COLLATION_NAME"],
        char_length=_number(row["CHARACTER_MAXIMUM_LENGTH"]),
        octet_length=_number(row["CHARACTER_OCTET_LENGTH"]),
        precision=_number(row["NUMERIC_PRECISION"]) if numeric else None,
        scale=_number(row["NUMERIC_SCALE"]) if numeric else None,
        fsp=_number(row["DATETIME_PRECISION"]) if data_type in {"datetime", "timestamp", "time"} else None,
        generation=row["GENERATION_EXPRESSION"] or "",
        stored="virtual" not in flags,
        extra=extra,
        members=members,
        invisible="invisible" in flags,
        comment=row["COLUMN_COMMENT"] or "",
    )


_MARIADB_LITERAL = re.compile(r"'.*'|-?[0-9.]+(?:e[-+]?[0-9]+)?|b'[01]*'|null", re.IGNORECASE | re.DOTALL)


def _extra(flavor: Flavor, row: Mapping[str, str | None]) -> str:
    """Return EXTRA; MariaDB does not say DEFAULT_GENERATED there, but writes an expression without quotes."""
    extra, default = row["EXTRA"] or "", row["COLUMN_DEFAULT"]
    if flavor is Flavor.MARIADB and default is not None and not _MARIADB_LITERAL.fullmatch(default):
        return f"DEFAULT_GENERATED {extra}".strip()
    return extra


def _default(flavor: Flavor, value: str | None) -> str | None:
    """MariaDB gives an SQL expression ('x' in quotes, NULL as a word), the others the bare value."""
    if flavor is not Flavor.MARIADB or value is None:
        return value
    if value.upper() == "NULL":
        return None
    if len(value) >= 2 and value[0] == value[-1] == "'":
        return parse_members(f"enum({value})", flavor)[0]
    return value


def _indexes(ref: TableRef, columns: tuple[ColumnDef, ...], rows: list[dict[str, str | None]]) -> tuple[IndexDef, ...]:
    known = {column.name for column in columns}
    parts: dict[str, list[dict[str, str | None]]] = defaultdict(list)
    for row in rows:
        parts[text_of(row["INDEX_NAME"])].append(row)
    found = [_index(ref, known, name, parts[name]) for name in parts]
    return tuple(sorted(found, key=lambda index: (not index.primary, not index.unique, index.name)))


def _index(ref: TableRef, known: set[str], name: str, rows: list[dict[str, str | None]]) -> IndexDef:
    rows.sort(key=lambda row: int(text_of(row["SEQ_IN_INDEX"])))
    numbers = [int(text_of(row["SEQ_IN_INDEX"])) for row in rows]
    if numbers != list(range(1, len(rows) + 1)):
        raise IncompleteReadError(f"{ref.endpoint}: {ref}, key {name}: parts {numbers} are not all there")
    kind = (rows[0]["INDEX_TYPE"] or "").upper()
    columns: list[str | None] = []
    expressions: list[str | None] = []
    for row in rows:
        column = row["COLUMN_NAME"]
        # TiDB names the column of an expression part 'NULL', which a column may be called as well.
        if row["EXPRESSION"] is not None or (column is not None and _HIDDEN.fullmatch(column)):
            column = None
        if column is not None and column not in known:
            raise IncompleteReadError(f"{ref.endpoint}: {ref}, key {name}: there is no column {column}")
        ordered = kind in _ORDERED
        columns.append(column if ordered else None)
        expressions.append(None if column is not None and ordered else (column or row["EXPRESSION"]))
    descending = tuple(row["COLLATION"] == "D" for row in rows)
    return IndexDef(
        name="PRIMARY" if name.upper() == "PRIMARY" else name,
        unique=rows[0]["NON_UNIQUE"] == "0",
        columns=tuple(columns),
        prefixes=tuple(_number(row["SUB_PART"]) if row["EXPRESSION"] is None else None for row in rows),
        visible=(rows[0]["IS_VISIBLE"] or "YES").upper() == "YES" and (rows[0]["IGNORED"] or "NO").upper() != "YES",
        kind=kind or "BTREE",
        expressions=tuple(expressions) if any(expressions) else (),
        comment=rows[0]["INDEX_COMMENT"] or "",
        descending=descending if any(descending) else (),
    )


# --- ENUM and SET ----------------------------------------------------------------------------------------

_MEMBER = re.compile(r"'((?:[^'\\]|''|\\.)*+)'", re.DOTALL)
_RAW_MEMBER = re.compile(r"'((?:[^']|'')*+)'", re.DOTALL)
_ESCAPES = {"\\\\": "\\", "\\n": "\n", "\\r": "\r", "\\0": "\0", "''": "'"}


def parse_members(column_type: str, flavor: Flavor) -> tuple[str, ...]:
    r"""Return the labels of an ENUM or SET from its full type text.

    MySQL and MariaDB double quotes and backslashes and write ``\n``, ``\r`` and ``\0`` for those characters,
    so their text can be read exactly (characters outside the BMP excepted: MySQL's catalog holds ``?`` for
    them). TiDB writes the same three escapes but does not double a backslash: a newline and a backslash
    followed by ``n`` look the same there. This function then returns the backslash form, and
    ``migverify.tables.schema`` reports that the labels cannot be distinguished.

    Raises
    ------
    ValueError
        The text is not ``enum('a','b',...)`` or ``set(...)``.
    """
    match = re.fullmatch(r"(?:enum|set)\((.*)\).*?", column_type, re.IGNORECASE | re.DOTALL)
    body = "" if match is None else match[1]
    pattern = _RAW_MEMBER if flavor is Flavor.TIDB else _MEMBER
    members, at = [], 0
    while label := pattern.match(body, at):
        members.append(_unescape(label[1], flavor))
        at = label.end()
        if at == len(body):
            return tuple(members)
        if body[at] != ",":
            break
        at += 1
    raise ValueError(f"cannot read the labels of {column_type!r}")


def _unescape(text: str, flavor: Flavor) -> str:
    if flavor is Flavor.TIDB:
        return text.replace("''", "'")

    def plain(match: re.Match[str]) -> str:
        if match[0] not in _ESCAPES:
            raise ValueError(f"unknown escape {match[0]!r} in a label")
        return _ESCAPES[match[0]]

    return re.sub(r"\\.|''", plain, text, flags=re.DOTALL)


# --- values of rows --------------------------------------------------------------------------------------


def _by_table(names: Sequence[str], rows: Sequence[Row]) -> dict[Name, list[dict[str, str | None]]]:
    found: dict[Name, list[dict[str, str | None]]] = defaultdict(list)
    for row in rows:
        # 10,000 tables repeat few words (names, types, collations): kept once, they take a third of the memory.
        words = (value if value is None else intern(value) for value in row)
        found[(text_of(row[0]), text_of(row[1]))].append(dict(zip(names, words, strict=True)))
    return found


def text_of(value: str | None) -> str:
    """Return a value that the catalog never leaves NULL; ``ReadError`` when it is."""
    if value is None:
        raise ReadError("information_schema gave NULL where every server has a value")
    return value


def _number(value: str | None) -> int | None:
    return None if value is None else int(value)


def _spans(positions: Sequence[int]) -> str:
    if not positions:
        return "none"
    return ", ".join(map(str, positions[:20])) + (" ..." if len(positions) > 20 else "")

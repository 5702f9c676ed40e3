"""The columns of a dataset's parts, as the servers describe them.

A table's come from the catalog. Those of a query (and of a domain mapping) come from the metadata of its result: type,
digits, fraction and sign are there, the character set is not, because the server names the one it sends in. ENUM and
SET are text through a query. What the metadata leave open is refused, never guessed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from migverify.db.server_state import ServerIdentity, server_identity
from migverify.db.session import ResultColumn, Session, open_session
from migverify.errors import ConfigError, ReadError, TimeLimitError
from migverify.model import ColumnDef, Endpoint, Flavor, IndexDef, Side
from migverify.recon.model import QueryPart, TablePart
from migverify.recon.relation import Cut
from migverify.sql import recon as sql
from migverify.sql.catalog import read_table
from migverify.sql.quoting import quote_name
from migverify.sql.server import PACKET

KEEP_SECONDS = 300.0
"""A description older than this is made again: a column may have been changed."""

_UNSIGNED, _ZEROFILL, _ENUM, _SET = 32, 64, 256, 2048
_BINARY_CHARSET = 63
_INTEGERS = {1: "tinyint", 2: "smallint", 3: "int", 8: "bigint", 9: "mediumint"}
_MOMENTS = {10: "date", 14: "date", 7: "timestamp", 17: "timestamp", 12: "datetime", 18: "datetime",
            11: "time", 19: "time"}  # fmt: skip
_STRINGS = frozenset({15, 247, 248, 249, 250, 251, 252, 253, 254})
UNKNOWN_CHARSET = "unknown"
"""The character set of a query's text column: it is always converted, and compared as an index allows."""


@dataclass(frozen=True, slots=True)
class Described:
    """What is known of the columns behind a FROM.

    ``plain`` maps a column to the table's column that it is, where it is one. ``indexes`` are the table's, by its own
    names. ``rows`` and ``row_bytes`` (of one row) are estimates or -1, ``cut`` a column for ranges or None, ``packet``
    the server's max_allowed_packet. ``server`` is which server it is, None where nobody asked.
    """

    columns: tuple[ColumnDef, ...]
    plain: Mapping[str, str]
    indexes: tuple[IndexDef, ...]
    rows: int
    cut: Cut | None
    packet: int
    flavor: Flavor
    row_bytes: int = -1
    server: ServerIdentity | None = None


Describable: TypeAlias = TablePart | QueryPart
Describe: TypeAlias = Callable[[Describable, str, tuple[tuple[str, str], ...]], Described]
"""(part, its bound SQL or condition, domain mapping) -> description; ``Describer`` is one."""


class Describer:
    """Describes parts, and remembers for some minutes. Safe for threads.

    ``endpoints``, ``secrets``: By name of the endpoint.
    """

    def __init__(self, endpoints: Mapping[str, Endpoint], secrets: Mapping[str, str]) -> None:
        self._endpoints, self._secrets = endpoints, secrets
        self._known: dict[tuple[Describable, tuple[tuple[str, str], ...]], tuple[float, Described]] = {}
        self._lock = threading.Lock()

    def __call__(self, part: Describable, text: str, columns: tuple[tuple[str, str], ...]) -> Described:
        """Describe a part under its mapping.

        Raises ConfigError: there is no such table, the query does not run, or the type of a column is not known;
        EndpointError: the endpoint cannot be reached, or a grant is missing.
        """
        known = self._known.get((part, columns))
        if known is not None and time.monotonic() - known[0] < KEEP_SECONDS:
            return known[1]
        endpoint = self._endpoints.get(part.endpoint)
        if endpoint is None:
            raise ConfigError(f"there is no endpoint {part.endpoint}", hint=f"Known: {', '.join(self._endpoints)}.")
        with open_session(endpoint, self._secrets.get(endpoint.name), side=Side.SOURCE) as session:
            made = replace(describe(session, part, text, columns), server=server_identity(session, endpoint))
        with self._lock:
            self._known[part, columns] = time.monotonic(), made
        return made


def describe(session: Session, part: Describable, text: str, columns: tuple[tuple[str, str], ...]) -> Described:
    """Describe a part on a session; see ``Describer``. ``text`` is the bound query, or condition of a table."""
    packet = int(session.query(PACKET)[0][0] or 0)
    if isinstance(part, QueryPart):
        table = sql.query_sql(text)
        if columns:
            table = sql.mapped_sql(table, columns)
        found = _result_columns(session, table, f"a query on {part.endpoint}")
        return Described(found, {}, (), -1, None, packet, session.flavor)
    definition = read_table(session, part.endpoint, part.database, part.table)
    if definition is None:
        raise ConfigError(
            f"{part.endpoint} has no table {part.database}.{part.table}, or the user may not see it",
            hint="Check the name, also for upper and lower case, and SELECT on it.",
        )
    table = sql.table_sql(part.database, part.table)
    by_name = {column.name: column for column in definition.columns}
    if not columns:
        plain = {name: name for name in by_name}
        found = definition.columns
    else:
        plain = {name: source for name, source in ((n, _plain_name(e)) for n, e in columns) if source in by_name}
        shown = {
            c.name: c
            for c in _result_columns(session, sql.mapped_sql(table, columns, text), f"columns of {part.table}")
        }
        found = tuple(
            replace(by_name[plain[name]], name=name) if name in plain else shown[name] for name, _ in columns
        )  # fmt: skip
    cut = _cut(session, table, found, plain, definition.indexes)
    row_bytes = definition.bytes // definition.rows if definition.rows > 0 else -1
    return Described(found, plain, definition.indexes, definition.rows, cut, packet, session.flavor, row_bytes)


def _plain_name(expression: str) -> str:
    """The column that an expression is, as far as it is nothing but one name."""
    text = expression.strip()
    return text[1:-1].replace("``", "`") if len(text) > 1 and text[0] == text[-1] == "`" else text


def _cut(
    session: Session,
    table: str,
    columns: tuple[ColumnDef, ...],
    plain: Mapping[str, str],
    indexes: tuple[IndexDef, ...],
) -> Cut | None:
    """A whole-number column that leads an index, the primary key first."""
    whole = {plain[c.name]: c for c in columns if c.name in plain and c.data_type in _INTEGERS.values()}
    leading = sorted(
        (not index.primary, not index.unique, index.columns[0] or "")
        for index in indexes if index.columns and index.columns[0] in whole
    )  # fmt: skip
    for *_, name in leading[:1]:
        column = whole[name]
        low, high = session.query(sql.edges_sql(table, quote_name(name)))[0]
        if low is None or high is None:
            return None
        return Cut(quote_name(column.name), int(low), int(high), column.nullable)
    return None


def _result_columns(session: Session, table: str, where: str) -> tuple[ColumnDef, ...]:
    try:
        found = session.result_columns(sql.describe_sql(table))
    except TimeLimitError:
        raise
    except ReadError as error:
        raise ConfigError(f"{where} cannot be read: {error.message}") from error
    return tuple(column_of(column, place, where) for place, column in enumerate(found, 1))


def column_of(column: ResultColumn, position: int, where: str) -> ColumnDef:
    """Make a column of what the protocol says of a result.

    Raises ConfigError: its type is not known with certainty.
    """
    code, unsigned = column.type_code, bool(column.flags & _UNSIGNED)
    made = ColumnDef(column.name, position, "", "", True, unsigned=unsigned)
    if code in _INTEGERS:
        fill = " zerofill" if column.flags & _ZEROFILL else ""
        return replace(made, data_type=_INTEGERS[code], column_type=_INTEGERS[code] + " unsigned" * unsigned + fill)
    if code in (0, 246):
        return _decimal(column, made, where)
    if code in (4, 5):
        name = "float" if code == 4 else "double"
        return replace(made, data_type=name, column_type=name)
    if code in _MOMENTS:
        name = _MOMENTS[code]
        if name == "date":
            return replace(made, data_type=name, column_type=name)
        if column.decimals > 6:
            raise _unknown(column, where, "its fraction digits", "CAST(... AS DATETIME(6))")
        return replace(made, data_type=name, column_type=f"{name}({column.decimals})", fsp=column.decimals)
    if code == 13:
        return replace(made, data_type="year", column_type="year")
    if code == 16:
        return replace(made, data_type="bit", column_type=f"bit({column.length})", precision=column.length)
    if code == 245:
        return replace(made, data_type="json", column_type="json")
    if code in _STRINGS:
        return _string(column, made)
    raise _unknown(column, where, "its type", "CAST(... AS CHAR) or another type")


def _decimal(column: ResultColumn, made: ColumnDef, where: str) -> ColumnDef:
    if column.decimals > 30:
        raise _unknown(column, where, "its scale", "CAST(... AS DECIMAL(p, s))")
    # The length counts the point and the sign. TiDB counts one for unsigned too: a digit too many does no harm.
    precision = column.length - (column.decimals > 0) - (not made.unsigned)
    precision = max(min(precision, sql.LARGEST), column.decimals + 1)
    fill = " zerofill" if column.flags & _ZEROFILL else ""
    kind = f"decimal({precision},{column.decimals})" + " unsigned" * made.unsigned + fill
    return replace(made, data_type="decimal", column_type=kind, precision=precision, scale=column.decimals)


def _string(column: ResultColumn, made: ColumnDef) -> ColumnDef:
    if column.charset == _BINARY_CHARSET and not column.flags & (_ENUM | _SET):
        return replace(made, data_type="longblob", column_type="binary text", octet_length=column.length)
    length = column.length or 1
    return replace(made, data_type="longtext", column_type="text", charset=UNKNOWN_CHARSET, octet_length=length)


def _unknown(column: ResultColumn, where: str, what: str, cast: str) -> ConfigError:
    return ConfigError(
        f"column {column.name} of {where}: the server does not report {what} (protocol type {column.type_code})",
        hint=f"Write {cast} AS {column.name}.",
    )

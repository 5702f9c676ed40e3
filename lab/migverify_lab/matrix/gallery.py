"""The tables that faults go into, in one database on both sides, with an untouched copy beside the target's.

A table is put back after each fault from that copy, which is far cheaper than making it again.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from migverify.errors import LabError
from migverify.sql.quoting import quote_name
from migverify_lab import museum, museum_loader, tpch
from migverify_lab.cache import Progress
from migverify_lab.columns import TableFacts, read_table
from migverify_lab.faults import FAULTS
from migverify_lab.museum import UTF8, Exhibit, MuseumTable
from migverify_lab.servers import LabServers
from migverify_lab.session import connect

if TYPE_CHECKING:
    from pymysql.connections import Connection

TPCH_SCALE = 0.001
TPCH_TABLES = ("region", "nation", "supplier", "customer", "part", "orders", "lineitem")
"""Without partsupp, which TPC-H's own formula gives duplicate keys at this scale."""

_ROWS = 208
_KINDS: tuple[Exhibit, ...] = (
    Exhibit("flag", "TINYINT", ("1", "0")),
    Exhibit("number", "INT", ("0", "NULL", "-7", "2147483647", "42")),
    Exhibit("natural_number", "BIGINT UNSIGNED", ("18446744073709551615", "0", "NULL", "9223372036854775809")),
    Exhibit("money", "DECIMAL(12,2)", ("10.50", "-0.01", "NULL", "0", "99.99")),
    Exhibit("single_", "FLOAT", ("0.1", "-1.5", "NULL", "0", "3.4e38", "7")),
    Exhibit("double_", "DOUBLE", ("0.1", "1e300", "NULL", "0", "-1039514241563211.8", "7")),
    Exhibit("given", "VARCHAR(60)", ("'Ana, Maria'", "''", "NULL", "'é表'", "'a😀b'", "'Lima'", "'N'")),
    Exhibit("family", "VARCHAR(60)", ("'Lima'", "'Ana, Maria'", "''", "NULL", "'ñandú'")),
    Exhibit("note", "TEXT", ("'first, second'", "'😀'", "NULL", "''", "'x#0'", "'<null>'")),
    Exhibit("code", "CHAR(3)", ("'abc'", "'A'", "NULL", "''", "'é'")),
    Exhibit("raw", "VARBINARY(20)", ("x'610062'", "x''", "NULL", "x'ff00'", "x'2c'")),
    Exhibit("data", "BLOB", ("x'00ff'", "x'6100ff'", "NULL", "x'f09f9880'")),
    Exhibit("day", "DATE", ("'2024-02-29'", "NULL", "'1000-01-01'")),
    Exhibit("happened", "DATETIME(6)", ("'2024-03-31 02:30:00.123456'", "'2024-01-01 00:00:00'", "NULL")),
    Exhibit("seen", "TIMESTAMP(3)", ("'2024-10-27 01:30:00.001'", "NULL", "'2000-01-01 00:00:00'")),
    Exhibit("took", "TIME(3)", ("'12:34:56.789'", "'-00:00:01'", "NULL", "'838:59:58.999'")),
    Exhibit("made", "YEAR", ("2024", "1970", "NULL")),
    Exhibit("bits", "BIT(10)", ("b'1111111111'", "b'0'", "NULL", "b'1000000001'")),
    Exhibit("state", "ENUM('new','paid','it''s','')", ("'new'", "'paid'", "NULL", "'it''s'")),
    Exhibit("tags", "SET('read','write','admin')", ("'read'", "''", "NULL", "'read,admin'")),
    Exhibit("doc", "JSON", (
        """'{"n": 9007199254740993, "a": "x"}'""", """'{"a": 1}'""", "NULL", """'[9007199254740993, 1.5]'""",
    )),
)  # fmt: skip


def _mixture(name: str, note: str, exhibits: tuple[Exhibit, ...], rows: int, *, keyed: bool) -> MuseumTable:
    """Make a table of many types: the key counts up in steps of 4 from 2^53, row i shows value i of every column."""
    columns = ", ".join(f"{quote_name(e.name)} {e.type} NULL" for e in exhibits)
    key = "id BIGINT NOT NULL PRIMARY KEY, " if keyed else ""
    ddl = f"({key}{columns}) {UTF8}"
    ids = [(str(2**53 + 4 * n),) if keyed else () for n in range(rows)]
    values = tuple((*ids[n], *(e.values[n % len(e.values)] for e in exhibits)) for n in range(rows))
    names = tuple(e.name for e in exhibits)
    return MuseumTable(name, ddl, ddl, (*(("id",) if keyed else ()), *names), values, note, ("id",) if keyed else ())


_HARD = frozenset({"single_", "double_", "doc", "bits"})
"""Types that the engines write as different text, so that tools which hash plain text call equal tables unequal."""
_LOOSE = frozenset({"flag", "money", "given", "family", "data", "happened", "state"})

EVERYTHING = _mixture("everything", "every type in one table, keys above 2^53", _KINDS, _ROWS, keyed=True)
EVERYDAY = _mixture(
    "everyday", "the types that both engines write as one text, keys above 2^53",
    tuple(e for e in _KINDS if e.name not in _HARD), _ROWS, keyed=True,
)  # fmt: skip
FLAGS = _mixture(
    "flags", "rows of one length, as narrow tables have them",
    (Exhibit("flag", "TINYINT", ("1", "0")),
     Exhibit("at", "DATETIME", tuple(f"'2024-03-{day:02d} 10:00:00'" for day in range(1, 29))),
     Exhibit("kind", "CHAR(1)", ("'a'", "'b'", "'c'"))), _ROWS, keyed=True,
)  # fmt: skip
READINGS = _mixture(
    "readings", "FLOAT and DOUBLE with values of few digits",
    (Exhibit("f", "FLOAT", ("0", "1.5", "-2.25", "NULL", "1024")),
     Exhibit("d", "DOUBLE", ("0", "0.1", "-2.25", "NULL", "123456.75", "7"))), 40, keyed=True,
)  # fmt: skip
SETTINGS = _mixture(
    "settings", "JSON whose keys both engines put in one order",
    (Exhibit("doc", "JSON", ("""'{"n": 9007199254740993}'""", """'{"a": 1, "b": "x"}'""", "'[1, 2]'", "NULL")),), 40,
    keyed=True,
)  # fmt: skip
LOOSE = _mixture(
    "loose", "many types, no key, every row twice", tuple(e for e in _KINDS if e.name in _LOOSE), 840, keyed=False
)
"""Without FLOAT, DOUBLE and JSON, by which the planter could not name a row."""

OWN_TABLES = (EVERYTHING, EVERYDAY, FLAGS, READINGS, SETTINGS, LOOSE)

SHOWN: dict[str, str] = {
    "row-deleted": "integers partitioned no_key one_row key_nullable nation lineitem everyday loose",
    "row-added": "integers key_text key_composite partitioned_by_range no_key key_unsigned "
    "key_date region everyday loose",
    "value-changed": "integers decimals floats doubles dates datetimes times texts_utf8mb4 texts_charsets bytes bits "
    "labels jsons no_key generated per%cent customer orders everyday readings settings loose",
    "null-for-zero": "integers decimals floats doubles everyday readings",
    "zero-for-null": "integers decimals floats doubles everyday readings",
    "empty-for-null": "texts_utf8mb4 bytes no_key everyday",
    "null-for-empty": "texts_utf8mb4 texts_collated bytes everyday",
    "shift-hour": "datetimes timestamps everyday",
    "truncation": "texts_utf8mb4 texts_collated supplier everyday",
    "case": "texts_utf8mb4 texts_collated collation part everyday",
    "trailing-space": "texts_utf8mb4 texts_collated char_varchar everyday",
    "swapped-columns": "twins semi;colon lineitem everyday",
    "swapped-rows": "integers doubles texts_utf8mb4 bytes labels nation flags everyday",
    "duplicate-in-keyless": "no_key key_nullable loose",
    "latin1-mangled": "texts_utf8mb4 texts_collated utf8mb3_utf8mb4 latin1_utf8mb4 everyday",
    "json-int-off-by-one": "jsons settings",
    "json-key-lost": "jsons settings",
    "float-ulp": "floats doubles float_double readings",
    "double-tiny": "doubles float_double readings",
    "decimal-scale": "decimals decimal_scale twins supplier everyday",
    "key-off-by-one": "key_above_2_53 key_unsigned everyday",
    "sign-flip": "integers decimals floats doubles twins everyday readings",
    "unsigned-wrap": "integers everyday",
    "date-zero": "dates datetimes timestamps orders everyday",
    "microseconds-lost": "datetimes timestamps times everyday",
    "bit-flip": "bits bit_wider",
    "blob-byte": "bytes binary_varbinary blob_longblob everyday",
    "blob-truncated-nul": "bytes everyday",
    "enum-label": "labels enum_order everyday",
    "set-member": "labels everyday",
    "year": "dates everyday",
    "flag-lost-on-100-rows": "orders lineitem flags everyday",
    "all-datetimes-shifted": "datetimes timestamps datetime_precision flags everyday",
    "column-boundary": "texts_utf8mb4 texts_collated everyday",
    "emoji-lost": "texts_utf8mb4 collation varchar_text everyday",
    "null-row": "integers texts_utf8mb4 twins generated everyday",
    "time-negative": "times time_precision everyday",
}
"""Fault -> the tables that docs/faults.md shows it in: of the museum, of TPC-H and of the gallery.

``everything`` is left to pairs of faults: tools that hash plain text call it unequal before any fault.
"""


def homes(fault: str) -> tuple[str, ...]:
    """Return the tables in which the matrix plants a fault.

    Raises
    ------
    LabError
        For a fault without a table: the matrix would silently leave it out.
    """
    if fault not in SHOWN:
        raise LabError(f"the matrix has no table for the fault {fault}", hint="Add it to SHOWN in lab/matrix.")
    return tuple(SHOWN[fault].split())


def tables_of(faults: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return every table that these faults (all by default) are planted in, in a stable order."""
    wanted = faults or tuple(fault.name for fault in FAULTS)
    return tuple(dict.fromkeys(table for fault in wanted for table in homes(fault)))


class Gallery:
    """Tables on both sides, alike until a fault is planted; a context manager that drops its databases at the end."""

    def __init__(self, servers: LabServers, database: str, directory: Path) -> None:
        self.servers = servers
        self.database = database
        self.spare = f"{database}_before"
        self.directory = directory
        self._stack = ExitStack()
        self._facts: dict[str, TableFacts] = {}
        self._loaded: set[str] = set()

    def __enter__(self) -> Gallery:
        self.source: Connection = self._stack.enter_context(connect(self.servers.source))
        self.target: Connection = self._stack.enter_context(connect(self.servers.target))
        self._stack.callback(self._drop)
        self._drop()  # what a killed run left behind
        for connection, names in ((self.source, (self.database,)), (self.target, (self.database, self.spare))):
            for name in names:
                _run(connection, f"CREATE DATABASE {quote_name(name)} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.close()

    def _drop(self) -> None:
        for connection, names in ((self.source, (self.database,)), (self.target, (self.database, self.spare))):
            for name in names:
                _run(connection, f"DROP DATABASE IF EXISTS {quote_name(name)}")

    def load(self, tables: tuple[str, ...], on_progress: Progress) -> None:
        """Make tables on both sides and their copy on the target.

        Raises
        ------
        LabError
            When a server refuses a table or a value, or ``tpchgen-cli`` is missing.
        """
        of_tpch = tuple(table for table in tables if table in TPCH_TABLES)
        if of_tpch:
            tpch.load(self.servers, self.database, TPCH_SCALE, of_tpch, 0, self.directory, on_progress)
        own = {table.name: table for table in OWN_TABLES}
        for name in tables:
            if name not in of_tpch:
                room = own.get(name) or museum_loader.choose((name,))[0]
                for side, connection in (("source", self.source), ("target", self.target)):
                    museum_loader.hang(connection, side, self.database, room)
            self._copy(name)
            self._loaded.add(name)

    def hang_unlike(self, source: MuseumTable, target: MuseumTable) -> None:
        """Make one table with another content on each side; it has no copy and carries no faults."""
        for side, connection, table in (("source", self.source, source), ("target", self.target, target)):
            museum_loader.hang(connection, side, self.database, table)

    def _copy(self, name: str) -> None:
        facts = self.facts(name)
        spare = f"{quote_name(self.spare)}.{quote_name(facts.name)}"
        _run(self.target, f"CREATE TABLE {spare} LIKE {facts.quoted}")
        _run(self.target, f"INSERT INTO {spare} ({_names(facts)}) SELECT {_names(facts)} FROM {facts.quoted}")  # noqa: S608

    def facts(self, name: str) -> TableFacts:
        """Return what the planter knows of a table on the target."""
        if name not in self._facts:
            self._facts[name] = read_table(self.target, self.database, target_name(name))
        return self._facts[name]

    def restore(self, name: str) -> None:
        """Put the target's table back as it was before any fault."""
        facts = self.facts(name)
        spare = f"{quote_name(self.spare)}.{quote_name(facts.name)}"
        self.target.begin()
        _run(self.target, f"DELETE FROM {facts.quoted}")  # noqa: S608
        _run(self.target, f"INSERT INTO {facts.quoted} ({_names(facts)}) SELECT {_names(facts)} FROM {spare}")  # noqa: S608
        self.target.commit()


def _names(facts: TableFacts) -> str:
    return ", ".join(column.quoted for column in facts.writable)


def _run(connection: Connection, statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def target_name(name: str) -> str:
    """Return how the target spells the name of a table."""
    renamed = {table.name: table.name_on("target") for table in museum.TABLES}
    return renamed.get(name, name)

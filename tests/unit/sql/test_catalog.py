"""Catalog queries and the parsing of their rows, against a catalog held in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.errors import IncompleteReadError, PrivilegeError, ReadError, UsageError
from migverify.model import Flavor, TableDef
from migverify.sql import catalog
from migverify.sql.definitions import READ, Row, parse_members
from migverify.sql.quoting import quote_bytes, quote_name, quote_path, quote_text, quote_texts

ALL = frozenset((view, column) for view, columns in READ.items() for column in columns)
NAMES = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=20)
NASTY = [
    "a`b",
    "`",
    "``",
    "it's",
    'q"q',
    "back\\slash",
    "a.b",
    " x",
    "ünï",
    "表",
    "😀",
    "'; DROP TABLE t; -- ",
    "%s",
    "\n",
    "#",
]


class FakeCatalog:
    """information_schema held in memory: answers the module's own queries, and counts them."""

    def __init__(
        self, tables: dict[tuple[str, str], Sequence[dict[str, str | None]]], flavor: Flavor = Flavor.MYSQL
    ) -> None:
        self.flavor = flavor
        self.tables = tables
        self.kinds: dict[tuple[str, str], str] = {}
        self.indexes: dict[tuple[str, str], list[dict[str, str | None]]] = {}
        self.options: dict[tuple[str, str], dict[str, str | None]] = {}
        self.grants: list[tuple[str, str]] = []
        self.denied: set[str] = set()
        self.asked: list[str] = []
        self.features = ALL

    def query(self, sql: str) -> list[Row]:
        self.asked.append(sql)
        if sql.startswith("SHOW VARIABLES"):
            return [("information_schema_stats_expiry", "86400")]
        if sql.startswith("SET SESSION"):
            return []
        if sql == catalog.features_sql():
            return sorted(self.features)
        if sql == catalog.column_grants_sql():
            return list(self.grants)
        if sql == catalog.names_sql():
            return [(*name, self.kinds.get(name, "BASE TABLE")) for name in self.tables]
        if found := re.match(r"SELECT \* FROM (\S+) LIMIT 0", sql):
            if found[1] in self.denied:
                raise PrivilegeError(f"SELECT denied on {found[1]}")
            return []
        view = re.search(r"FROM information_schema\.(\w+)", sql)
        if view is None:
            raise AssertionError(f"unexpected query {sql}")
        return self._rows(view[1], sql)

    def _rows(self, view: str, sql: str) -> list[Row]:
        wanted = [name for name in self.tables if quote_text(name[0]) in sql and quote_text(name[1]) in sql]
        rows: list[dict[str, str | None]] = []
        for name in wanted:
            place: dict[str, str | None] = {"TABLE_SCHEMA": name[0], "TABLE_NAME": name[1]}
            if view == "TABLES":
                rows.append(place | self.options.get(name, {}))
            elif view == "COLUMNS":
                for number, column in enumerate(self.tables[name], 1):
                    rows.append(_COLUMN | place | {"ORDINAL_POSITION": str(number)} | dict(column))
            else:
                rows += [_INDEX | place | row for row in self.indexes.get(name, [])]
        # The reader must not depend on the server's order.
        return [tuple(row.get(column) for column in READ[view]) for row in reversed(rows)]


_COLUMN: dict[str, str | None] = {"DATA_TYPE": "int", "COLUMN_TYPE": "int", "IS_NULLABLE": "NO", "EXTRA": ""}
_INDEX: dict[str, str | None] = {"NON_UNIQUE": "0", "SEQ_IN_INDEX": "1", "INDEX_TYPE": "BTREE", "IS_VISIBLE": "YES"}


def _read(fake: FakeCatalog) -> list[TableDef]:
    return list(catalog.read_tables(fake, "source", lambda *_: True))


# --- quoting ----------------------------------------------------------------------------------------------------


def _tokens(sql: str) -> list[str]:
    """Read SQL as a server with either meaning of the backslash would: strings, quoted names, other characters."""
    return re.findall(r"`(?:[^`]|``)*`|'(?:[^']|'')*'|\S", sql)


@given(NAMES)
def test_quoted_name_is_one_token_and_reads_back(name: str) -> None:
    quoted = quote_name(name)
    assert _tokens(quoted + "x") == [quoted, "x"]
    assert quoted[1:-1].replace("``", "`") == name


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=30))
def test_quoted_text_reads_back_under_every_sql_mode(text: str) -> None:
    quoted = quote_text(text)
    assert "\\" not in quoted
    if quoted.startswith("'"):
        assert _tokens(quoted + "x") == [quoted, "x"]
        assert quoted[1:-1].replace("''", "'") == text
    else:
        found = re.fullmatch(r"_utf8mb4 0x((?:[0-9A-F]{2})+)", quoted)
        assert found is not None
        assert bytes.fromhex(found[1]).decode() == text


@given(st.lists(NAMES, min_size=1, max_size=5))
def test_names_in_a_batch_query_stay_inside_their_quotes(names: list[str]) -> None:
    sql = catalog.select_sql("COLUMNS", ALL, [(name, name) for name in names])
    clean = catalog.select_sql("COLUMNS", ALL, [(f"n{i}", f"n{i}") for i, _ in enumerate(sorted(set(names)))])
    literal = r"_utf8mb4 0x[0-9A-F]+|'(?:[^']|'')*'"
    assert re.sub(literal, "?", sql) == re.sub(literal, "?", clean)


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800"])
def test_impossible_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError):
        quote_name(name)


def test_quoting_by_example() -> None:
    assert quote_path("a`b", "c.d") == "`a``b`.`c.d`"
    assert quote_texts(["a", "it's"]) == "'a', 'it''s'"
    assert quote_text("\\") == "_utf8mb4 0x5C"
    assert quote_text("") == "''"
    assert quote_bytes(b"") == "x''"
    assert quote_bytes(b"\xff'") == "x'FF27'"
    with pytest.raises(UsageError):
        quote_text("\udcff")


# --- labels -----------------------------------------------------------------------------------------------------


def _as_mysql(labels: Sequence[str]) -> str:
    plain = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\0": "\\0", "'": "''"}
    return ",".join("'" + "".join(plain.get(c, c) for c in label) + "'" for label in labels)


def _as_tidb(labels: Sequence[str]) -> str:
    plain = {"\n": "\\n", "\r": "\\r", "\0": "\\0", "'": "''"}
    return ",".join("'" + "".join(plain.get(c, c) for c in label) + "'" for label in labels)


LABELS = st.lists(
    st.text(st.sampled_from("a,'\\\"()n\n\r\0 é%`😀") | st.characters(exclude_categories=("Cs",))), min_size=1
)


@given(LABELS, st.sampled_from(["enum", "set", "ENUM"]))
def test_mysql_labels_round_trip(labels: list[str], kind: str) -> None:
    assert parse_members(f"{kind}({_as_mysql(labels)})", Flavor.MYSQL) == tuple(labels)


@given(LABELS)
def test_tidb_labels_round_trip_but_for_the_three_escapes(labels: list[str]) -> None:
    wanted = tuple(label.replace("\n", "\\n").replace("\r", "\\r").replace("\0", "\\0") for label in labels)
    assert parse_members(f"enum({_as_tidb(labels)})", Flavor.TIDB) == wanted


@pytest.mark.parametrize(
    "text", ["enum()", "enum('a'", "enum('a' 'b')", "enum('a',)", "enum('a\\q')", "varchar(3)", "enum(a)", ""]
)
def test_labels_that_cannot_be_read_raise(text: str) -> None:
    with pytest.raises(ValueError, match="label"):
        parse_members(text, Flavor.MYSQL)


def test_an_unreadable_enum_names_table_and_column() -> None:
    fake = FakeCatalog({("d", "t"): [{"COLUMN_NAME": "e", "DATA_TYPE": "enum", "COLUMN_TYPE": "enum(oops)"}]})
    with pytest.raises(IncompleteReadError, match=r"source: d\.t, column e"):
        _read(fake)


# --- reading ----------------------------------------------------------------------------------------------------


def test_tables_come_in_order_and_views_apart() -> None:
    fake = FakeCatalog(
        {name: [{"COLUMN_NAME": "c"}] for name in [("b", "x"), ("a", "z"), ("a", "B"), ("a", "v"), ("a", "s")]}
    )
    fake.kinds = {("a", "v"): "VIEW", ("a", "s"): "SEQUENCE"}
    names = catalog.read_names(fake, lambda database, name: (database, name) != ("b", "x"))
    assert names.tables == (("a", "B"), ("a", "z"))
    assert [(s.database, s.name, s.kind) for s in names.skipped] == [("a", "s", "sequence"), ("a", "v", "view")]
    assert [str(table.ref) for table in _read(fake)] == ["a.B", "a.z", "b.x"]


def test_nasty_names_survive() -> None:
    fake = FakeCatalog({(name, name): [{"COLUMN_NAME": name}] for name in NASTY})
    tables = _read(fake)
    assert {table.ref.table for table in tables} == set(NASTY)
    assert all(table.columns[0].name == table.ref.table == table.ref.database for table in tables)


def test_the_servers_own_databases_are_never_listed() -> None:
    for name in ("mysql", "sys", "SYS", "information_schema", "INFORMATION_SCHEMA", "metrics_schema"):
        assert f"'{name}'" in catalog.names_sql()


def test_ten_thousand_tables_take_a_few_hundred_queries() -> None:
    fake = FakeCatalog({(f"d{n % 7}", f"t{n:05}"): [{"COLUMN_NAME": f"c{i}"} for i in range(8)] for n in range(10_000)})
    fake._rows = _eight_columns_each()  # type: ignore[method-assign]
    assert sum(1 for _ in catalog.read_tables(fake, "source", lambda *_: True)) == 10_000
    assert len(fake.asked) < 120


def _eight_columns_each() -> Callable[[str, str], list[Row]]:
    def rows(view: str, sql: str) -> list[Row]:
        if view == "STATISTICS":
            return []
        found = [(f"d{int(n) % 7}", f"t{n}") for n in re.findall(r"'t(\d{5})'", sql)]
        places = [{"TABLE_SCHEMA": database, "TABLE_NAME": table} for database, table in found]
        if view == "COLUMNS":
            places = [
                _COLUMN | place | {"ORDINAL_POSITION": str(i + 1), "COLUMN_NAME": f"c{i}"}
                for place in places
                for i in range(8)
            ]
        return [tuple(place.get(column) for column in READ[view]) for place in places]

    return rows


def test_a_batch_of_wide_tables_is_small() -> None:
    fake = FakeCatalog({("d", f"t{n:03}"): [{"COLUMN_NAME": f"c{i}"} for i in range(1000)] for n in range(40)})
    assert len(_read(fake)) == 40
    sizes = [sql.count("'t") for sql in fake.asked if "information_schema.COLUMNS WHERE TABLE_SCHEMA IN ('d')" in sql]
    assert max(sizes[1:]) * 1000 <= catalog.COLUMNS_AT_ONCE


def test_missing_catalog_columns_are_read_as_null() -> None:
    fake = FakeCatalog({("d", "t"): [{"COLUMN_NAME": "c"}]})
    fake.features = frozenset(pair for pair in ALL if pair[1] not in {"IS_VISIBLE", "EXPRESSION", "IGNORED"})
    fake.indexes[("d", "t")] = [{"INDEX_NAME": "PRIMARY", "COLUMN_NAME": "c", "IS_VISIBLE": None}]
    table = _read(fake)[0]
    assert table.indexes[0].visible
    asked = next(sql for sql in fake.asked if "information_schema.STATISTICS" in sql)
    assert asked.count("NULL") == 3
    assert "IS_VISIBLE" not in asked


def test_a_dropped_table_is_left_out() -> None:
    fake = FakeCatalog({("d", "t"): [{"COLUMN_NAME": "c"}]})
    found = list(catalog.read_tables(fake, "source", [("d", "gone"), ("d", "t")]))
    assert [table.ref.table for table in found] == ["t"]
    assert catalog.read_table(fake, "source", "d", "gone") is None


def test_only_the_exact_spelling_is_yielded() -> None:
    assert catalog.read_table(FakeCatalog({("d", "T"): [{"COLUMN_NAME": "c"}]}), "source", "d", "t") is None


@pytest.mark.parametrize("positions", [["2"], ["1", "3"], []])
def test_hidden_columns_are_refused(positions: list[str]) -> None:
    fake = FakeCatalog({("d", "t"): [{"COLUMN_NAME": f"c{p}", "ORDINAL_POSITION": p} for p in positions]})
    with pytest.raises(PrivilegeError, match=r"does not see all columns of d\.t"):
        _read(fake)


def test_column_grants_are_probed_because_the_last_columns_leave_no_gap() -> None:
    fake = FakeCatalog({("d", "t`x"): [{"COLUMN_NAME": "c"}], ("d", "u"): [{"COLUMN_NAME": "c"}]})
    fake.grants = [("d", "t`x"), ("other", "z")]
    assert len(_read(fake)) == 2
    assert [sql for sql in fake.asked if sql.startswith("SELECT *")] == ["SELECT * FROM `d`.`t``x` LIMIT 0"]
    fake.denied = {"`d`.`t``x`"}
    with pytest.raises(PrivilegeError):
        _read(fake)


def test_an_index_on_an_unknown_column_is_read_again_then_refused() -> None:
    fake = FakeCatalog({("d", "t"): [{"COLUMN_NAME": "c"}]})
    fake.indexes[("d", "t")] = [{"INDEX_NAME": "k", "COLUMN_NAME": "new"}]
    with pytest.raises(IncompleteReadError, match="no column new"):
        _read(fake)
    assert sum("information_schema.STATISTICS" in sql for sql in fake.asked) == 2
    once = FakeCatalog({("d", "t"): [{"COLUMN_NAME": "c"}]})
    once.indexes[("d", "t")] = [{"INDEX_NAME": "k", "COLUMN_NAME": "c", "SEQ_IN_INDEX": "2"}]
    with pytest.raises(IncompleteReadError, match="not all there"):
        _read(once)


def test_null_where_a_value_must_be_is_an_error() -> None:
    with pytest.raises(ReadError):
        _read(FakeCatalog({("d", "t"): [{"COLUMN_NAME": None}]}))


def test_columns_by_type() -> None:
    rows: list[dict[str, str | None]] = [
        {"COLUMN_NAME": "id", "DATA_TYPE": "bigint", "COLUMN_TYPE": "bigint(20) unsigned", "EXTRA": "auto_increment"},
        {"COLUMN_NAME": "_tidb_rowid"},
        {"COLUMN_NAME": "_V$_k_0"},
        {
            "COLUMN_NAME": "d",
            "DATA_TYPE": "decimal",
            "COLUMN_TYPE": "decimal(10,2)",
            "NUMERIC_PRECISION": "10",
            "NUMERIC_SCALE": "2",
        },
        {"COLUMN_NAME": "t", "DATA_TYPE": "datetime", "COLUMN_TYPE": "datetime(6)", "DATETIME_PRECISION": "6"},
        {
            "COLUMN_NAME": "g",
            "GENERATION_EXPRESSION": "id + 1",
            "EXTRA": "VIRTUAL GENERATED INVISIBLE",
            "IS_NULLABLE": "YES",
        },
        {
            "COLUMN_NAME": "e",
            "DATA_TYPE": "enum",
            "COLUMN_TYPE": "enum('unsigned','b''c')",
            "COLUMN_DEFAULT": "unsigned",
        },
    ]
    fake = FakeCatalog({("d", "t"): rows})
    fake.options[("d", "t")] = {
        "TABLE_ROWS": "7", "DATA_LENGTH": "100", "INDEX_LENGTH": "20", "AUTO_INCREMENT": "8", "TABLE_COMMENT": "c",
        "CREATE_OPTIONS": "row_format=DYNAMIC partitioned",
    }  # fmt: skip
    table = _read(fake)[0]
    assert [column.name for column in table.columns] == ["id", "d", "t", "g", "e"]
    assert (table.rows, table.bytes, table.partitioned, table.auto_increment, table.comment) == (7, 120, True, 8, "c")
    by_name = {column.name: column for column in table.columns}
    assert by_name["id"].unsigned
    assert (by_name["d"].precision, by_name["d"].scale) == (10, 2)
    assert by_name["t"].fsp == 6
    assert (by_name["g"].generation, by_name["g"].stored, by_name["g"].invisible) == ("id + 1", False, True)
    assert by_name["e"].members == ("unsigned", "b'c")
    assert not by_name["e"].unsigned


def test_indexes() -> None:
    fake = FakeCatalog({("d", "t"): [{"COLUMN_NAME": "a"}, {"COLUMN_NAME": "NULL"}]}, Flavor.TIDB)
    fake.indexes[("d", "t")] = [
        {"INDEX_NAME": "k", "NON_UNIQUE": "1", "COLUMN_NAME": "NULL", "EXPRESSION": "lower(`a`)"},
        {"INDEX_NAME": "k", "NON_UNIQUE": "1", "COLUMN_NAME": "a", "SEQ_IN_INDEX": "2", "SUB_PART": "5"},
        {"INDEX_NAME": "n", "NON_UNIQUE": "1", "COLUMN_NAME": "NULL"},
        {"INDEX_NAME": "ft", "NON_UNIQUE": "1", "COLUMN_NAME": "a", "INDEX_TYPE": "FULLTEXT"},
        {"INDEX_NAME": "u", "COLUMN_NAME": "a", "IS_VISIBLE": "NO"},
        {"INDEX_NAME": "primary", "COLUMN_NAME": "a"},
    ]
    indexes = _read(fake)[0].indexes
    assert [index.name for index in indexes] == ["PRIMARY", "u", "ft", "k", "n"]
    by_name = {index.name: index for index in indexes}
    assert by_name["k"].columns == (None, "a")
    assert by_name["k"].prefixes == (None, 5)
    assert by_name["k"].expressions == ("lower(`a`)", None)
    assert by_name["n"].columns == ("NULL",)
    assert by_name["ft"].columns == (None,)
    assert by_name["ft"].expressions == ("a",)
    assert not by_name["u"].visible


@pytest.mark.parametrize(
    ("sharding", "extra"),
    [
        ("PK_AUTO_RANDOM_BITS=5", "auto_random(5)"),
        ("PK_AUTO_RANDOM_BITS=4, RANGE BITS=32", "auto_random(4, 32)"),
        ("NOT_SHARDED(PK_IS_HANDLE)", ""),
        ("SHARD_BITS=4", ""),
        (None, ""),
    ],
)
def test_auto_random_of_tidb(sharding: str | None, extra: str) -> None:
    fake = FakeCatalog({("d", "t"): [{"COLUMN_NAME": "x"}, {"COLUMN_NAME": "id"}]}, Flavor.TIDB)
    fake.options[("d", "t")] = {"TIDB_ROW_ID_SHARDING_INFO": sharding}
    fake.indexes[("d", "t")] = [{"INDEX_NAME": "PRIMARY", "COLUMN_NAME": "id"}]
    assert [column.extra for column in _read(fake)[0].columns] == ["", extra]


@pytest.mark.parametrize(
    ("flavor", "value", "default"),
    [
        (Flavor.MARIADB, "NULL", None),
        (Flavor.MARIADB, "'it''s'", "it's"),
        (Flavor.MARIADB, "'NULL'", "NULL"),
        (Flavor.MARIADB, "5", "5"),
        (Flavor.MARIADB, None, None),
        (Flavor.MYSQL, "NULL", "NULL"),
        (Flavor.MYSQL, "'x'", "'x'"),
    ],
)
def test_defaults_of_mariadb_are_expressions(flavor: Flavor, value: str | None, default: str | None) -> None:
    fake = FakeCatalog({("d", "t"): [{"COLUMN_NAME": "c", "COLUMN_DEFAULT": value}]}, flavor)
    assert _read(fake)[0].columns[0].default == default


def test_statistics_are_fresh_on_mysql_only() -> None:
    for flavor, fresh in ((Flavor.MYSQL, True), (Flavor.TIDB, False), (Flavor.MARIADB, False)):
        fake = FakeCatalog({("d", "t"): [{"COLUMN_NAME": "c"}]}, flavor)
        _read(fake)
        assert ("SET SESSION information_schema_stats_expiry = 0" in fake.asked) is fresh

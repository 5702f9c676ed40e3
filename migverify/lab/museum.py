"""The type museum: every type MySQL and TiDB share, with the values at which software breaks.

A table holds the same content on both sides by construction, since each value goes in as the same SQL
literal. The definitions may differ where a real migration changes them (INT to BIGINT, latin1 to utf8mb4, ...).
Values that one of the two engines cannot hold are left out: TiDB turns -0.0 into 0.0, and MySQL has no emoji
in names.

The module is long because it is a table: values first, then the halls they hang in.
"""

from __future__ import annotations

from dataclasses import dataclass

from migverify.sql.quoting import quote_name

Row = tuple[str, ...]

UTF8 = "DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"


@dataclass(frozen=True, slots=True)
class MuseumTable:
    """One table of the museum.

    ``ddl_source`` and ``ddl_target`` are everything after the table's name in CREATE TABLE. ``columns`` are
    the source's names of the columns that are written (generated ones are not), ``rows`` SQL literals in that
    order. ``key`` names the unique key, empty where there is none. ``target_name`` is set where the target
    spells the table's name otherwise.
    """

    name: str
    ddl_source: str
    ddl_target: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str
    key: tuple[str, ...] = ("id",)
    target_name: str | None = None
    wide: bool = False

    def name_on(self, side: str) -> str:
        """Return the table's name on ``source`` or ``target``."""
        return self.target_name or self.name if side == "target" else self.name

    def create_statement(self, side: str, database: str) -> str:
        """Return CREATE TABLE for ``source`` or ``target``."""
        body = self.ddl_target if side == "target" else self.ddl_source
        return f"CREATE TABLE {quote_name(database)}.{quote_name(self.name_on(side))} {body}"

    def insert_statements(self, side: str, database: str, batch: int = 50) -> list[str]:
        """Return INSERT statements of at most ``batch`` rows each; the same literals on both sides."""
        head = f"INSERT INTO {quote_name(database)}.{quote_name(self.name_on(side))}"
        names = ", ".join(quote_name(name) for name in self.columns)
        tuples = [f"({', '.join(row)})" for row in self.rows]
        return [
            f"{head} ({names}) VALUES {', '.join(tuples[start : start + batch])}"
            for start in range(0, len(tuples), batch)
        ]


@dataclass(frozen=True, slots=True)
class Exhibit:
    """One column: its type, SQL literals, and ``target`` where the target's type is another one."""

    name: str
    type: str
    values: Row
    target: str | None = None


def hall(name: str, note: str, *exhibits: Exhibit, nulls: bool = True, options: str = UTF8) -> MuseumTable:
    """Hang exhibits beside each other: key ``id``, row i shows value i of every column, the last row is NULL.

    A column with fewer values than the longest one starts again from its first value.
    """
    length = max(len(exhibit.values) for exhibit in exhibits)
    rows = [(str(i + 1), *(exhibit.values[i % len(exhibit.values)] for exhibit in exhibits)) for i in range(length)]
    if nulls:
        rows.append((str(length + 1), *("NULL" for _ in exhibits)))
    null = "NULL" if nulls else "NOT NULL"

    def ddl(types: list[str]) -> str:
        columns = [f"{quote_name(e.name)} {kind} {null}" for e, kind in zip(exhibits, types, strict=True)]
        return f"(id BIGINT NOT NULL, {', '.join(columns)}, PRIMARY KEY (id)) {options}"

    return MuseumTable(
        name,
        ddl([exhibit.type for exhibit in exhibits]),
        ddl([exhibit.target or exhibit.type for exhibit in exhibits]),
        ("id", *(exhibit.name for exhibit in exhibits)),
        tuple(rows),
        note,
    )


def pair_hall(name: str, note: str, source: str, target: str, *values: str) -> MuseumTable:
    """Hang one column ``v`` whose type is spelled otherwise on the target."""
    return hall(name, note, Exhibit("v", source, values, target))


def alike(name: str, note: str, ddl: str, columns: Row, rows: tuple[Row, ...], key: Row) -> MuseumTable:
    """Make a table with one definition for both sides."""
    return MuseumTable(name, ddl, ddl, columns, rows, note, key)


# --- values ----------------------------------------------------------------------------------------------


def _integers(bits: int, *more: str) -> Row:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return (str(low), str(low + 1), "-1", "0", "1", str(high - 1), str(high), *more)


def _naturals(bits: int, *more: str) -> Row:
    high = 2**bits - 1
    return ("0", "1", str(2 ** (bits - 1) - 1), str(2 ** (bits - 1)), str(high - 1), str(high), *more)


def _quoted(*texts: str) -> Row:
    """Return SQL string literals: backslash and quote escaped, NUL and line ends spelled out."""
    table = str.maketrans({"\\": "\\\\", "'": "''", "\0": "\\0", "\n": "\\n", "\r": "\\r", "\x1a": "\\Z"})
    return tuple(f"'{text.translate(table)}'" for text in texts)


ABOVE_2_53 = ("9007199254740993", "-9007199254740993", "9007199254740992")

ASCII_TEXTS = (
    "", " ", "a", "A", "a ", " a", "a,b", "a|b", "'", "''", '"', "\\", "\\\\", "\\N", "N", "NULL", "null",
    "0",
    "0.0", "00", "1e3", "-0", "\0", "a\0", "a\0b", "\n", "\r\n", "\t", "\x1a", "\x7f", "%s", "%", "_", "`",
    "<null>", "--", "/*", "*/", ";", "${x}", "{}", "true", "2024-01-01", "0x41",
)  # fmt: skip
LATIN1_TEXTS = (*ASCII_TEXTS, "é", "e", "Ã©", "ÿ", "ñandú", "straße", "£", "¼", "\xa0")
BMP_TEXTS = (
    *LATIN1_TEXTS, "表", "中文字", "日本語", "ёлка", "e\u0301", "\ufeff", "\u200b", "\u2028", "ﬁ", "İ", "\u0131",
        "ﷺ",
    "\uffff", "Å", "A\u030a", "\ufffd",
)  # fmt: skip
UTF8MB4_TEXTS = (
    *BMP_TEXTS,
    "😀",
    "a😀b",
    "👨\u200d👩\u200d👧",
    "\U0001d4b3",
    "\U0010ffff",
    "?",
    "🏳️\u200d🌈",
    "𠮷",
)
GBK_TEXTS = (*ASCII_TEXTS, "中文", "你好", "汉字,逗号", "￥", "Ω")

BYTES = (
    "x''", "x'00'", "x'0000'", "x'20'", "x'2000'", "x'61'", "x'6100'", "x'610000'", "x'6120'", "x'ff'",
    "x'ffff'",
    "x'80'", "x'7f'", "x'c3a9'", "x'c328'", "x'f09f9880'", "x'2c'", "x'4e'", "x'5c'", "x'27'", "x'0a'",
    "x'00ff00ff'",
    "x'deadbeef'",
)  # fmt: skip

FLOATS = (
    "0", "1", "-1", "0.1", "-0.1", "0.5", "0.333333", "1.17549435e-38", "1e-40", "1.4e-45", "3.4028234e38",
    "-3.4028234e38", "16777215", "16777216", "16777217", "123456.789", "1234567", "9999999", "1e10", "1e15",
    "5e15",
    "1e16", "1e17", "1e20", "1e-5", "1e-4", "0.3", "2147483647", "100", "65504",
)  # fmt: skip
DOUBLES = (
    "0", "1", "-1", "0.1", "-0.1", "0.2", "0.3", "0.30000000000000004", "1e300", "-1e300", "1e-300",
    "1.7976931348623157e308", "-1.7976931348623157e308", "2.2250738585072014e-308", "1e-310", "4.9e-324",
    "9007199254740991", "9007199254740992", "9007199254740994", "1e14", "999999999999999.9", "1e15",
    "1000000000000001",
    "1039514241563211.8", "-1039514241563211.8", "9999999999999998", "1e16", "12345678901234568",
    "99999999999999980",
    "1e17", "1.2345678901234567e17", "1e20", "1e21", "1e22", "1e23", "3.141592653589793", "2.718281828459045",
    "1e-5",
    "1e-6", "1e-7", "123456789.123456789", "1.0000000000000002", "0.9999999999999999", "5e-5", "100", "1e100",
)  # fmt: skip

DATES = (
    "'2024-02-29'", "'1970-01-01'", "'1969-12-31'", "'9999-12-31'", "'1000-01-01'", "'0001-01-01'",
    "'1582-10-10'",
    "'1900-02-28'", "'2038-01-19'", "'0000-00-00'", "'2024-00-00'", "'2024-02-00'", "'2024-12-00'",
    "'0000-01-01'",
)  # fmt: skip
INSTANTS = (
    "2024-02-29 23:59:59", "1970-01-01 00:00:00", "1969-12-31 23:59:59", "9999-12-31 23:59:59",
    "1000-01-01 00:00:00",
    "0001-01-01 00:00:00", "2024-03-31 02:30:00", "2024-10-27 02:30:00", "2024-01-01 00:00:00",
    "0000-00-00 00:00:00",
    "2024-00-00 00:00:00", "2024-02-00 12:34:56", "2038-01-19 03:14:08", "2024-01-01 12:00:00",
)  # fmt: skip
MOMENTS = (
    "1970-01-01 00:00:01", "2038-01-19 03:14:07", "2024-03-31 02:30:00", "2024-10-27 01:30:00",
    "2024-02-29 12:00:00",
    "0000-00-00 00:00:00", "2000-01-01 00:00:00", "1999-12-31 23:59:59",
)  # fmt: skip
SPANS = (
    "00:00:00", "-00:00:01", "00:00:01", "838:59:59", "-838:59:59", "23:59:59", "24:00:00", "-12:34:56",
    "100:00:00",
    "-100:00:00", "12:00:00",
)  # fmt: skip


def _times(texts: Row, *fractions: str) -> Row:
    """Return time literals: the texts as they are, then one more for every fraction."""
    return tuple(f"'{text}'" for text in texts) + tuple(f"'{text}'" for text in fractions)


JSONS = _quoted(
    "null", "true", "false", "0", "1", "1.0", "-1", "1.5", "0.1", "9007199254740993", "-9007199254740993",
    "9223372036854775807", "-9223372036854775808", "18446744073709551615", '""', '"a"', '"1"', '"null"', "[]",
    "{}",
    "[1, 2, 3]", "[3, 2, 1]", "[[]]", "[{}]", '{"b": 1, "a": 2, "aa": 3, "B": 4}', '{"aa": 1, "b": 2}',
    '{"a": {"b": {"c": [1, {"d": null}]}}}', '{"n": 9007199254740993, "f": 1.0, "i": 1}', '{"": 0}',
    '"é表😀"', '{"é": "表", "😀": "a"}', '"quote \\" backslash \\\\ slash / tab \\t"', '"\\u0000"', '"a,b"',
    '" "', '"a "',
    '{"deep": [1, [2, [3, [4, [5]]]]]}', "[1, 1.0, \"1\", true, null]", '{"big": 18446744073709551615}',
    "1e10",
    '{"keys": "same length", "keyz": 1, "keya": 2}', "[0.30000000000000004, 3.141592653589793]",
)  # fmt: skip

TYPE_HALLS: tuple[MuseumTable, ...] = (
    hall(
        "integers",
        "every integer type, signed and unsigned, at its ends",
        Exhibit("tiny", "TINYINT", _integers(8)),
        Exhibit("tiny_u", "TINYINT UNSIGNED", _naturals(8)),
        Exhibit("small", "SMALLINT", _integers(16)),
        Exhibit("small_u", "SMALLINT UNSIGNED", _naturals(16)),
        Exhibit("medium", "MEDIUMINT", _integers(24)),
        Exhibit("medium_u", "MEDIUMINT UNSIGNED", _naturals(24)),
        Exhibit("plain", "INT", _integers(32)),
        Exhibit("plain_u", "INT UNSIGNED", _naturals(32)),
        Exhibit("big", "BIGINT", _integers(64, *ABOVE_2_53)),
        Exhibit("big_u", "BIGINT UNSIGNED", _naturals(64, "9007199254740993", "9223372036854775809")),
        Exhibit("flag", "BOOL", ("0", "1", "2", "-1")),
    ),
    hall(
        "decimals",
        "DECIMAL at its ends; trailing zeros and small fractions",
        Exhibit(
            "d65_30",
            "DECIMAL(65,30)",
            (
                "9" * 35 + "." + "9" * 30,
                "-" + "9" * 35 + "." + "9" * 30,
                "0",
                "1",
                "-1",
                "0." + "0" * 29 + "1",
                "-0." + "0" * 29 + "1",
                "1.10",
                "9007199254740993",
                "0.1",
                "123456789012345678901234567890.123456789",
            ),
        ),
        Exhibit("d10_0", "DECIMAL(10,0)", ("9999999999", "-9999999999", "0", "1", "-1", "10", "100")),
        Exhibit("d5_2", "DECIMAL(5,2)", ("999.99", "-999.99", "0", "0.01", "-0.01", "1.10", "1.1", "100")),
        Exhibit("d20_0", "DECIMAL(20,0)", ("18446744073709551616", "9007199254740993", "-9007199254740993", "0")),
        Exhibit("d30_30", "DECIMAL(30,30)", ("0." + "9" * 30, "-0." + "9" * 30, "0", "0." + "0" * 29 + "1")),
        Exhibit("money", "DECIMAL(19,4) UNSIGNED", ("999999999999999.9999", "0", "0.0001", "1.5")),
    ),
    hall("floats", "FLOAT: six digits of text are too few", Exhibit("f", "FLOAT", FLOATS)),
    hall(
        "doubles",
        "DOUBLE: subnormal, largest, and the range of 1e15 to 1e17",
        Exhibit("d", "DOUBLE", DOUBLES),
    ),
    hall(
        "dates",
        "DATE and YEAR with zero, partial and extreme values",
        Exhibit("d", "DATE", DATES),
        Exhibit("y", "YEAR", ("1901", "2155", "0", "2000", "1970", "2024")),
    ),
    hall(
        "datetimes",
        "DATETIME in three precisions; hours that daylight saving skips or doubles elsewhere",
        Exhibit("d0", "DATETIME", _times(INSTANTS)),
        Exhibit("d3", "DATETIME(3)", _times(INSTANTS, "2024-01-01 00:00:00.001", "9999-12-31 23:59:59.999")),
        Exhibit(
            "d6",
            "DATETIME(6)",
            _times(
                INSTANTS,
                "2024-01-01 00:00:00.000001",
                "9999-12-31 23:59:59.999999",
                "2024-01-01 00:00:00.100000",
                "1000-01-01 00:00:00.500000",
                "2024-01-01 00:00:00.123456",
            ),
        ),
    ),
    hall(
        "timestamps",
        "TIMESTAMP at both ends of its range, and zero",
        Exhibit("t0", "TIMESTAMP", _times(MOMENTS)),
        Exhibit("t6", "TIMESTAMP(6)", _times(MOMENTS, "2024-01-01 00:00:00.000001", "2024-01-01 00:00:00.999999")),
    ),
    hall(
        "times",
        "TIME: negative, beyond a day, at its ends",
        Exhibit("t0", "TIME", _times(SPANS)),
        Exhibit("t3", "TIME(3)", _times(SPANS, "-00:00:00.001", "838:59:58.999", "00:00:00.5")),
        Exhibit("t6", "TIME(6)", _times(SPANS, "-00:00:00.000001", "-838:59:58.999999", "00:00:00.123456")),
    ),
    hall(
        "texts_utf8mb4",
        "empty, spaces, separators, escapes, NUL, emoji, combining marks, look-alikes",
        Exhibit("c", "CHAR(20)", _quoted(*UTF8MB4_TEXTS)),
        Exhibit("v", "VARCHAR(40)", _quoted(*UTF8MB4_TEXTS)),
        Exhibit("tt", "TINYTEXT", _quoted(*UTF8MB4_TEXTS)),
        Exhibit("t", "TEXT", (*_quoted(*UTF8MB4_TEXTS), "REPEAT('x', 60000)", "REPEAT('表', 20000)")),
        Exhibit("mt", "MEDIUMTEXT", (*_quoted(*UTF8MB4_TEXTS), "REPEAT('ab', 100000)")),
        Exhibit("lt", "LONGTEXT", (*_quoted(*UTF8MB4_TEXTS), "REPEAT('😀', 50000)")),
    ),
    hall(
        "texts_collated",
        "the same texts under case- and accent-insensitive collations",
        Exhibit("g", "VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", _quoted(*UTF8MB4_TEXTS)),
        Exhibit("u", "VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci", _quoted(*UTF8MB4_TEXTS)),
        Exhibit("n", "VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci", _quoted(*UTF8MB4_TEXTS)),
    ),
    hall(
        "texts_charsets",
        "the older character sets",
        Exhibit("u3", "VARCHAR(40) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin", _quoted(*BMP_TEXTS)),
        Exhibit("l1", "VARCHAR(40) CHARACTER SET latin1 COLLATE latin1_bin", _quoted(*LATIN1_TEXTS)),
        Exhibit("as", "VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin", _quoted(*ASCII_TEXTS)),
        Exhibit("gb", "VARCHAR(40) CHARACTER SET gbk COLLATE gbk_bin", _quoted(*GBK_TEXTS)),
        Exhibit("l1t", "TEXT CHARACTER SET latin1 COLLATE latin1_bin", _quoted(*LATIN1_TEXTS)),
    ),
    hall(
        "bytes",
        "binary strings: NUL inside and at the end, invalid UTF-8, padding",
        Exhibit("b4", "BINARY(4)", BYTES),
        Exhibit("vb", "VARBINARY(40)", BYTES),
        Exhibit("tb", "TINYBLOB", BYTES),
        Exhibit("bl", "BLOB", (*BYTES, "REPEAT(x'00', 60000)", "REPEAT(x'ff', 60000)")),
        Exhibit("mb", "MEDIUMBLOB", (*BYTES, "REPEAT(x'00ff', 100000)")),
        Exhibit("lb", "LONGBLOB", BYTES),
    ),
    hall(
        "bits",
        "BIT of one, eight and 64 bits",
        Exhibit("b1", "BIT(1)", ("b'0'", "b'1'")),
        Exhibit("b8", "BIT(8)", ("b'0'", "b'1'", "b'10000000'", "b'11111111'", "b'00101100'", "b'01001110'")),
        Exhibit(
            "b64",
            "BIT(64)",
            ("b'0'", "b'1'", f"b'{'1' * 64}'", f"b'1{'0' * 63}'", f"b'{'0' * 40}{'1' * 24}'"),
        ),
    ),
    hall(
        "labels",
        "ENUM and SET: empty label, quotes, spaces, look-alikes of NULL and of an index",
        Exhibit(
            "e",
            "ENUM('new','paid','it''s','with space','','N','NULL','1','0','é','表','a,b','😀')",
            _quoted("new", "paid", "it's", "with space", "", "N", "NULL", "é", "表", "a,b", "😀"),
        ),
        Exhibit(
            "s",
            "SET('read','write','it''s','admin','é','N')",
            _quoted("", "read", "write", "read,write", "read,write,it's,admin,é,N", "é", "N", "it's"),
        ),
    ),
    hall("jsons", "JSON: integers beyond 2^53, key order, nesting, 1 and 1.0", Exhibit("j", "JSON", JSONS)),
)

# --- one meaning, two spellings --------------------------------------------------------------------------

PAIR_HALLS: tuple[MuseumTable, ...] = (
    pair_hall("int_bigint", "widened integer", "INT", "BIGINT", *_integers(32)),
    pair_hall("int_unsigned", "sign dropped where no value is negative", "INT", "INT UNSIGNED", "0", "1",
        "2147483647"),
    pair_hall("small_decimal", "integer as DECIMAL(10,0)", "INT", "DECIMAL(10,0)", *_integers(32)),
    pair_hall("decimal_scale", "more digits after the point", "DECIMAL(10,2)", "DECIMAL(14,4)", "1.10",
        "-99999999.99", "0"),
    pair_hall(
        "utf8mb3_utf8mb4", "utf8mb3 to utf8mb4", "VARCHAR(40) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin",
        "VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", *_quoted(*BMP_TEXTS),
    ),
    pair_hall(
        "latin1_utf8mb4", "latin1 to utf8mb4", "VARCHAR(40) CHARACTER SET latin1 COLLATE latin1_swedish_ci",
        "VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", *_quoted(*LATIN1_TEXTS),
    ),
    pair_hall(
        "gbk_utf8mb4", "gbk to utf8mb4", "VARCHAR(40) CHARACTER SET gbk COLLATE gbk_bin",
        "VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", *_quoted(*GBK_TEXTS),
    ),
    pair_hall(
        "collation", "another collation", "VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci",
        "VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", *_quoted(*UTF8MB4_TEXTS),
    ),
    pair_hall("datetime_precision", "DATETIME(3) to DATETIME(6)", "DATETIME(3)", "DATETIME(6)",
              *_times(INSTANTS, "2024-01-01 00:00:00.001", "2024-01-01 00:00:00.120")),
    pair_hall("datetime_seconds", "DATETIME to DATETIME(6)", "DATETIME", "DATETIME(6)", *_times(INSTANTS)),
    pair_hall("time_precision", "TIME to TIME(3)", "TIME", "TIME(3)", *_times(SPANS)),
    pair_hall("enum_varchar", "ENUM to VARCHAR", "ENUM('new','paid','it''s','')", "VARCHAR(20)",
        *_quoted("new", "paid", "it's", "")),
    pair_hall("enum_order", "ENUM with its labels in another order and one more", "ENUM('a','b','c')",
              "ENUM('c','b','a','d')", *_quoted("a", "b", "c")),
    pair_hall("set_varchar", "SET to VARCHAR", "SET('a','b','c')", "VARCHAR(20)", *_quoted("", "a", "a,b",
        "a,b,c")),
    pair_hall("binary_varbinary", "BINARY(4) to VARBINARY(8), every value four bytes long", "BINARY(4)",
        "VARBINARY(8)",
              "x'00000000'", "x'61620000'", "x'ffffffff'", "x'20202020'"),
    pair_hall("char_varchar", "CHAR to VARCHAR, no trailing spaces", "CHAR(20)", "VARCHAR(30)", *_quoted("",
        "a", "é", " a", "表")),
    pair_hall("varchar_text", "VARCHAR to TEXT", "VARCHAR(40)", "TEXT", *_quoted(*UTF8MB4_TEXTS)),
    pair_hall("blob_longblob", "BLOB to LONGBLOB", "BLOB", "LONGBLOB", *BYTES),
    pair_hall("bit_wider", "BIT(8) to BIT(64)", "BIT(8)", "BIT(64)", "b'0'", "b'1'", "b'11111111'"),
    pair_hall("float_double", "FLOAT to DOUBLE, values that both hold exactly", "FLOAT", "DOUBLE",
              "0", "0.5", "-3.75", "1048576", "0.0009765625"),
)  # fmt: skip

# --- keys ------------------------------------------------------------------------------------------------


def _keyed(name: str, note: str, kind: str, values: Row, target: str | None = None) -> MuseumTable:
    rows = tuple((value, str(number)) for number, value in enumerate(values))
    source_ddl, target_ddl = (
        f"(k {spelling} NOT NULL, v INT NOT NULL, PRIMARY KEY (k)) {UTF8}" for spelling in (kind, target or kind)
    )
    return MuseumTable(name, source_ddl, target_ddl, ("k", "v"), rows, note, ("k",))


_KEY_TEXTS = _quoted(
    "", "a", "A", "a,b", "é", "e", "表", "😀", "z", "Z", "0", "00", "\\", "'", "a\0b", "N", "NULL", "ß", "ss",
    "_", "-"
)  # fmt: skip

KEY_HALLS: tuple[MuseumTable, ...] = (
    _keyed("key_unsigned", "64-bit unsigned key on both sides of 2^63", "BIGINT UNSIGNED",
           (*_naturals(64), "9007199254740993", "9007199254740992", "9223372036854775809")),
    _keyed("key_above_2_53", "neighbors that a double cannot tell apart", "BIGINT",
           tuple(str(sign * (2**53 + i)) for sign in (1, -1) for i in range(20))),
    _keyed("key_decimal", "decimal key", "DECIMAL(30,10)",
           ("0", "0.0000000001", "-0.0000000001", "9007199254740993.1", "9007199254740993.2", "-1",
           "12345678901234567890.5")),
    _keyed("key_text", "text key, compared by bytes on both sides", "VARCHAR(40) COLLATE utf8mb4_bin",
        _KEY_TEXTS),
    _keyed("key_collation", "text key that sorts otherwise on the target",
        "VARCHAR(40) COLLATE utf8mb4_0900_ai_ci",
           _quoted("apple", "Banana", "cherry", "Date", "élan", "fig", "Grape", "表", "zebra", "_x", "-y",
               "10", "9"),
           "VARCHAR(40) COLLATE utf8mb4_bin"),
    _keyed("key_latin1", "latin1 key to utf8mb4",
        "VARCHAR(40) CHARACTER SET latin1 COLLATE latin1_swedish_ci",
           _quoted("a", "b", "é", "ñ", "z", "", "ü", "10"),
               "VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"),
    _keyed("key_bytes", "binary key", "VARBINARY(20)", BYTES),
    _keyed("key_uuid", "BINARY(16) key", "BINARY(16)",
           (*(f"x'{n * 0x1111111111111111:032x}'" for n in range(12)),
           "x'ff00000000000000000000000000ff00'")),
    _keyed("key_datetime", "DATETIME(6) key", "DATETIME(6)",
           (*(f"'2024-01-01 00:00:00.{n:06d}'" for n in (0, 1, 10, 999999)), "'0000-00-00 00:00:00'",
           "'9999-12-31 23:59:59.999999'")),
    _keyed("key_date", "DATE key", "DATE", ("'2024-01-01'", "'2024-12-31'", "'0000-00-00'", "'9999-12-31'",
        "'1000-01-01'")),
    _keyed("key_enum", "ENUM key", "ENUM('b','a','c')", _quoted("a", "b", "c")),
    alike("key_composite", "three columns of unlike types",
          f"(a INT NOT NULL, b VARCHAR(20) NOT NULL, c DATE NOT NULL, v INT, PRIMARY KEY (a, b, c)) {UTF8}",
          ("a", "b", "c", "v"),
          tuple((str(n % 3), f"'{'xyz'[n % 3 - 1]}{n // 9},'", f"'2024-01-{n % 9 + 1:02d}'",
              str(n)) for n in range(54)),
          ("a", "b", "c")),
    alike("key_unique_not_null", "no primary key, a unique key that cannot be NULL",
          f"(code VARCHAR(20) NOT NULL, v INT, UNIQUE KEY code (code)) {UTF8}", ("code", "v"),
          tuple((f"'c{n:03d}'", str(n)) for n in range(20)), ("code",)),
    alike("key_nullable", "a unique key in which NULL occurs many times",
          f"(a INT NULL, b INT NULL, v INT, UNIQUE KEY ab (a, b)) {UTF8}", ("a", "b", "v"),
          (("1", "1", "1"), ("1", "NULL", "2"), ("1", "NULL", "3"), ("NULL", "1", "4"), ("NULL", "NULL", "5"),
           ("NULL", "NULL", "5"), ("2", "1", "6"), ("2", "2", "7")), ()),
    alike("no_key", "no key at all; rows that occur once, twice and three times",
          f"(a INT NULL, b VARCHAR(20) NULL, c DECIMAL(10,2) NULL) {UTF8}", ("a", "b", "c"),
          (("1", "'x'", "1.00"), ("1", "'x'", "1.00"), ("2", "''", "0"), ("2", "NULL", "0"), ("NULL", "NULL",
          "NULL"),
           ("NULL", "NULL", "NULL"), ("NULL", "NULL", "NULL"), ("3", "'a,b'", "3"), ("4", "'N'", "-4.5")),
           ()),
)  # fmt: skip

# --- shapes and names ------------------------------------------------------------------------------------

_STRANGE_COLUMNS = (
    "a`b", "with space", "dot.ted", "größe", "表", "select", "100%", "%s", "quo'te", 'double"quote',
    "back\\slash",
    "--", "*/", ";", "new\tline", "$x", "1", "N",
)  # fmt: skip
_STRANGE_TABLES = (
    "we`ird",
    "with space",
    "dot.ted",
    "größe表",
    "per%cent",
    "quo'te",
    "order",
    "semi;colon",
    "CamelCase",
)


def _strange_table(name: str) -> MuseumTable:
    columns = ", ".join(f"{quote_name(column)} INT NULL" for column in _STRANGE_COLUMNS)
    width = len(_STRANGE_COLUMNS)
    rows = tuple((str(i), *(str(i * width + c) for c in range(width))) for i in range(1, 4))
    return alike(
        name, "a name that must be quoted", f"(`i``d` INT NOT NULL, {columns}, PRIMARY KEY (`i``d`)) {UTF8}",
        ("i`d", *_STRANGE_COLUMNS), rows, ("i`d",),
    )  # fmt: skip


def _wide_table(width: int = 1000) -> MuseumTable:
    kinds = ("INT", "SMALLINT", "DECIMAL(6,2)", "DATE", "VARCHAR(4) CHARACTER SET ascii", "TINYINT UNSIGNED")
    values = ("-7", "300", "12.50", "'2024-02-29'", "'w,x'", "255")
    names = [f"c{n:04d}" for n in range(1, width)]
    columns = ", ".join(f"{name} {kinds[n % len(kinds)]} NULL" for n, name in enumerate(names))
    full = tuple(values[n % len(values)] for n in range(len(names)))
    rows = (("1", *full), ("2", *("NULL" for _ in names)), ("3", *full))
    ddl = f"(id INT NOT NULL, {columns}, PRIMARY KEY (id)) {UTF8}"
    return MuseumTable("wide", ddl, ddl, ("id", *names), rows, f"{width:,} columns", ("id",), None, wide=True)


SHAPE_HALLS: tuple[MuseumTable, ...] = (
    alike("empty", "no rows", f"(id INT NOT NULL PRIMARY KEY, v VARCHAR(10)) {UTF8}", ("id", "v"), (), ("id",
        )),
    alike("one_row", "one row", f"(id INT NOT NULL PRIMARY KEY, v VARCHAR(10)) {UTF8}", ("id", "v"), (("7",
        "'x'"),), ("id",)),
    alike("twins", "pairs of columns of one type, which could be taken for each other",
        "(id INT NOT NULL PRIMARY KEY, first_name VARCHAR(20) NULL, last_name VARCHAR(20) NULL, ordered DATE NULL,"
        f" shipped DATE NULL, net DECIMAL(10,2) NULL, gross DECIMAL(10,2) NULL) {UTF8}",
        ("id", "first_name", "last_name", "ordered", "shipped", "net", "gross"),
        (("1", "'Ana'", "'Lima'", "'2024-01-01'", "'2024-01-03'", "10.00", "12.10"),
        ("2", "'Lima'", "'Ana'", "'2024-02-29'", "'2024-02-29'", "0.00", "NULL"),
        ("3", "''", "NULL", "NULL", "'2024-12-31'", "-5.50", "5.50")), ("id",)),
    alike("one_column", "only a key", f"(id BIGINT NOT NULL PRIMARY KEY) {UTF8}", ("id",), tuple((str(n),
        ) for n in range(-3, 4)),
          ("id",)),
    alike("generated", "stored and virtual generated columns",
          "(id INT NOT NULL PRIMARY KEY, a INT NULL, b VARCHAR(10) NULL, s BIGINT AS (a * 2) STORED,"
          f" v VARCHAR(30) AS (CONCAT(b, '-', a)) VIRTUAL) {UTF8}",
          ("id", "a", "b"), (("1", "10", "'x'"), ("2", "NULL", "'y'"), ("3", "-5", "NULL"), ("4", "0", "''")),
          ("id",)),
    alike("partitioned", "four hash partitions",
          f"(id INT NOT NULL PRIMARY KEY, v VARCHAR(10) NULL) {UTF8} PARTITION BY HASH (id) PARTITIONS 4",
          ("id", "v"), tuple((str(n), f"'v{n}'") for n in range(1, 41)), ("id",)),
    alike("partitioned_by_range", "range partitions with an open end",
          f"(id INT NOT NULL, d DATE NOT NULL, v INT, PRIMARY KEY (id, d)) {UTF8} PARTITION BY RANGE COLUMNS (d)"
          " (PARTITION p1 VALUES LESS THAN ('2024-01-01'), PARTITION p2 VALUES LESS THAN ('2024-07-01'),"
          " PARTITION p3 VALUES LESS THAN (MAXVALUE))",
          ("id", "d", "v"), tuple((str(n), f"'2024-{n % 12 + 1:02d}-15'", str(n)) for n in range(1, 31)),
          ("id", "d")),
    MuseumTable("column_order", f"(id INT NOT NULL PRIMARY KEY, a INT, b VARCHAR(10), c DATE) {UTF8}",
                f"(c DATE, b VARCHAR(10), id INT NOT NULL PRIMARY KEY, a INT) {UTF8}", ("id", "a", "b", "c"),
                (("1", "2", "'x'", "'2024-01-01'"), ("2", "NULL", "''", "NULL")), "columns in another order"),
    MuseumTable("column_case",
        f"(Id INT NOT NULL PRIMARY KEY, UserName VARCHAR(10), EMAIL VARCHAR(10)) {UTF8}",
                f"(id INT NOT NULL PRIMARY KEY, username VARCHAR(10), email VARCHAR(10)) {UTF8}",
                ("Id", "UserName", "EMAIL"), (("1", "'x'", "'y'"), ("2", "NULL", "''")),
                "column names in another case", ("Id",)),
    MuseumTable("Table_Case", f"(id INT NOT NULL PRIMARY KEY, v INT) {UTF8}",
        f"(id INT NOT NULL PRIMARY KEY, v INT) {UTF8}",
                ("id", "v"), (("1", "1"), ("2", "2")), "the table's name in another case",
                target_name="table_case"),
    *(_strange_table(name) for name in _STRANGE_TABLES),
)  # fmt: skip

TABLES: tuple[MuseumTable, ...] = (*TYPE_HALLS, *PAIR_HALLS, *KEY_HALLS, *SHAPE_HALLS, _wide_table())
"""Every table; those with ``wide`` are left out unless asked for."""

"""Random rows, changes, keys and bounds on both servers, against models in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migverify.config import TableOverride
from migverify.model import KeyRange, KeyText
from migverify.sql.checksum import full_rows_sql, parse_key, row_checksum
from migverify.sql.key_range import keys_predicate, predicate
from migverify.sql.quoting import quote_bytes, quote_text
from tests.table_pairs import Road, road

if TYPE_CHECKING:
    from tests.conftest import Databases

# ruff: noqa: E501  (tables of literals read better unbroken)
pytestmark = pytest.mark.db
FEW = settings(
    max_examples=12, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip


@pytest.fixture(scope="module")
def way(shared_databases: Databases) -> Iterator[Road]:
    shared_databases.both("SET SESSION sql_mode='ALLOW_INVALID_DATES'")
    with road(shared_databases) as found:
        yield found


# --- rows ----------------------------------------------------------------------------------------------------

CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0") | st.sampled_from("aN,';\\ é表😀\0\t1")
TEXT = st.text(CHARACTERS, max_size=12)


def digits(low: int, high: int) -> st.SearchStrategy[str]:
    return st.integers(low, high).map(str) | st.sampled_from([str(low), str(high), "0"])


MOMENT = st.datetimes(min_value=datetime(1000, 1, 1)).map(lambda m: f"'{m}'")
COLUMNS: dict[str, st.SearchStrategy[str]] = {
    "TINYINT": digits(-128, 127),
    "INT UNSIGNED": digits(0, 2**32 - 1),
    "BIGINT": digits(-(2**63), 2**63 - 1),
    "BIGINT UNSIGNED": digits(0, 2**64 - 1),
    "INT(9) ZEROFILL": digits(0, 2**32 - 1),
    "DECIMAL(30,10)": st.decimals(-(10**19), 10**19, places=10).map(lambda d: f"{d:f}"),
    "DOUBLE": st.floats(allow_nan=False, allow_infinity=False).map(lambda x: f"{x!r}e0" if "e" not in repr(x) else repr(x)),
    "FLOAT": st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda x: f"{x!r}e0" if "e" not in repr(x) else repr(x)),
    "DATE": st.dates(min_value=date(1000, 1, 1)).map(lambda d: f"'{d.isoformat()}'")
            | st.sampled_from(["'0000-00-00'", "'2026-02-30'", "'2026-00-10'"]),
    "DATETIME(6)": MOMENT | st.just("'0000-00-00 00:00:00'"),
    "TIMESTAMP(3) NULL": st.integers(1, 2**31 - 2).map(lambda n: f"TIMESTAMPADD(SECOND,{n},'1970-01-01 00:00:00.25')"),
    "TIME(2)": st.integers(-3020399, 3020399).map(
        lambda n: f"'{'-' if n < 0 else ''}{abs(n) // 3600}:{abs(n) // 60 % 60:02}:{abs(n) % 60:02}.5'"),
    "YEAR": st.integers(1901, 2155).map(str) | st.just("0"),
    "BIT(40)": digits(0, 2**40 - 1),
    "CHAR(20)": TEXT.map(lambda s: quote_text(s.rstrip(" "))),
    "VARCHAR(40)": TEXT.map(quote_text),
    "TEXT": TEXT.map(quote_text),
    "VARCHAR(40) CHARACTER SET utf8mb3": st.text("aé表 ,N", max_size=8).map(quote_text),
    "VARCHAR(40) CHARACTER SET latin1": st.text("aéÿ ,N", max_size=8).map(quote_text),
    "VARBINARY(40)": st.binary(max_size=12).map(quote_bytes),
    "BLOB": st.binary(max_size=300).map(quote_bytes),
    "BINARY(4)": st.binary(max_size=4).map(quote_bytes),
    "ENUM('a','N',',','')": st.sampled_from(["'a'", "'N'", "','", "''"]),
    "SET('a','N','c')": st.sampled_from(["''", "'a'", "'a,N'", "'N,c'", "'a,N,c'"]),
}  # fmt: skip
NULLS = {kind: st.one_of(values, st.just("NULL")) for kind, values in COLUMNS.items()}
ROW = st.tuples(*NULLS.values())


@st.composite
def changed_rows(draw: st.DrawFn) -> list[tuple[tuple[str, ...], tuple[str, ...], int]]:
    """Rows, each with a copy in which one column is drawn again; the number says which."""
    found = []
    for row in draw(st.lists(ROW, min_size=4, max_size=12)):
        place = draw(st.integers(0, len(row) - 1))
        other = list(row)
        other[place] = draw(list(NULLS.values())[place])
        found.append((row, tuple(other), place))
    return found


def test_equal_rows_have_equal_checksums_and_any_change_shows(shared_databases: Databases, way: Road) -> None:
    databases = shared_databases
    names = ",".join(f"c{n} {kind}" for n, kind in enumerate(COLUMNS))
    databases.both("DROP TABLE IF EXISTS t", f"CREATE TABLE t (id INT PRIMARY KEY,{names})")
    plan = way.plan("t")
    assert not plan.not_covered

    def read(side: int) -> list[tuple[str | None, ...]]:
        sql = plan.sides[side].sql
        parts = ",".join([row_checksum(sql.exact, "SHA2"), row_checksum(sql.wide, "SHA2"), sql.exact, *sql.texts])
        session = (way.source, way.target)[side]
        return session.query(f"SELECT {parts} FROM {sql.table} ORDER BY id")

    @given(changed_rows())
    @FEW
    def check(rows: list[tuple[tuple[str, ...], tuple[str, ...], int]]) -> None:
        flat = [row for one, other, _ in rows for row in (one, other)]
        values = ",".join(f"({n},{','.join(row)})" for n, row in enumerate(flat))
        databases.both("DELETE FROM t", f"INSERT INTO t VALUES {values}")
        ours, theirs = read(0), read(1)
        assert ours == theirs
        seen: dict[tuple[str | None, ...], tuple[str | None, ...]] = {}
        for row in ours:
            # The checksum covers the id, which differs, so the rest of the frame stands for the row here.
            assert seen.setdefault(row[4:], row[4:]) == row[4:]
        assert len({row[0] for row in ours}) == len({row[1] for row in ours}) == len(ours)
        tails = [((row[2] or "").partition(",")[2], row[4:]) for row in ours]
        for one, other in zip(tails[::2], tails[1::2], strict=True):
            assert (one[0] == other[0]) is (one[1] == other[1])
        assert len({tail for tail, _ in tails}) == len({texts for _, texts in tails})

    check()


# --- keys and ranges -----------------------------------------------------------------------------------------

Order = Callable[[Any, bool], Any]


@dataclass(frozen=True)
class Part:
    """One column of a key: its type, values with their literals, and the order each server (TiDB or not) has."""

    kind: str
    values: st.SearchStrategy[Any]
    literal: Callable[[Any], str]
    order: Order = lambda value, _: value


def padded(text: str, tidb: bool) -> bytes:
    """What utf8mb4_bin compares: MySQL pads with spaces, TiDB strips them."""
    return text.rstrip(" ").encode() if tidb else (text + " " * 20).encode()


PARTS = {
    "int": Part("INT", st.integers(-3, 3), str),
    "unsigned": Part("BIGINT UNSIGNED", st.sampled_from([0, 1, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]), str),
    "decimal": Part("DECIMAL(40,20)", st.sampled_from(["-1.5", "-0.00000000000000000001", "0", "7", "19999999999999999999.5"]), str,
                    lambda v, _: Decimal(v)),
    "datetime": Part("DATETIME(6)", st.sampled_from(["0000-00-00 00:00:00.000000", "2026-00-01 00:00:00.000000",
                     "2026-01-01 00:00:00.000000", "2026-01-01 00:00:00.000001", "9999-12-31 23:59:59.999999"]), lambda v: f"'{v}'"),
    "time": Part("TIME(1)", st.integers(-30203990, 30203990), lambda n: "'{}{}:{:02}:{:02}.{}'".format(
                 "-" if n < 0 else "", abs(n) // 36000, abs(n) // 600 % 60, abs(n) // 10 % 60, abs(n) % 10)),
    "binary": Part("VARBINARY(9)", st.binary(max_size=2) | st.sampled_from([b"", b"\0", b"';", b"\\"]), quote_bytes),
    "text": Part("VARCHAR(20)", st.text("aB'\\\"\0\t!é表😀", max_size=3), quote_text, padded),
}  # fmt: skip
SHAPES = [
    ("int",), ("unsigned",), ("decimal",), ("datetime",), ("time",), ("binary",), ("text",), ("int", "text"), ("text", "int"),
    ("binary", "unsigned", "int"), ("datetime", "decimal", "text", "int"), ("time", "time"),
]  # fmt: skip


@pytest.mark.parametrize("nullable", [False, True], ids=["not null", "nullable"])
@pytest.mark.parametrize("shape", SHAPES, ids="-".join)
def test_predicates_select_what_the_model_selects(
    shared_databases: Databases, way: Road, shape: tuple[str, ...], nullable: bool
) -> None:
    databases = shared_databases
    parts = [PARTS[name] for name in shape]
    null = "NULL" if nullable else "NOT NULL"
    names = ",".join(f"k{n} {part.kind} {null}" for n, part in enumerate(parts))
    listed = ",".join(f"k{n}" for n in range(len(parts)))
    databases.both("DROP TABLE IF EXISTS t", f"CREATE TABLE t (id INT PRIMARY KEY,{names},v INT,KEY ({listed}))")
    plan = way.plan("t", TableOverride(key=tuple(f"k{n}" for n in range(len(parts)))))
    sides = list(zip((way.source, way.target), plan.sides, strict=True))
    assert len(plan.sides[0].sql.range_key) == len(parts) or plan.sides[0].sql.range_key[0].name == "`id`"
    value = st.tuples(*(st.one_of(part.values, st.none()) if nullable else part.values for part in parts))
    bound = st.integers(1, len(parts)).flatmap(lambda size: st.tuples(*(part.values for part in parts[:size])))

    @given(
        st.lists(value, min_size=1, max_size=14), st.lists(bound, max_size=4), st.lists(value, min_size=1, max_size=4)
    )
    @settings(FEW, max_examples=6)
    def check(rows: list[tuple[Any, ...]], bounds: list[tuple[Any, ...]], keys: list[tuple[Any, ...]]) -> None:
        def literals(row: tuple[Any, ...]) -> str:
            return ",".join("NULL" if v is None else part.literal(v) for part, v in zip(parts, row, strict=False))

        stored = [*rows, *keys[:2]]
        inserted = ",".join(f"({n},{literals(row)},0)" for n, row in enumerate(stored))
        databases.both("DELETE FROM t", f"INSERT INTO t VALUES {inserted}")
        for session, side in sides:
            tidb = session is way.target
            columns = side.sql.key

            def order(row: tuple[Any, ...], tidb: bool = tidb) -> tuple[Any, ...]:
                return tuple(part.order(v, tidb) for part, v in zip(parts, row, strict=False))

            # Canonical text of values as the server itself writes it.
            found = session.query(f"SELECT id,{','.join(c.text for c in columns)} FROM {side.sql.table}")
            texts: dict[int, KeyText] = {int(row[0] or 0): _key(columns, row[1:]) for row in found}
            text_of = {repr(stored[n][place]): text[place] for n, text in texts.items() for place in range(len(parts))}
            known = [b for b in bounds if all(repr(v) in text_of for v in b)] + [
                tuple(r) for r in stored[:2] if None not in r
            ]
            cuts: list[tuple[Any, ...]] = []
            for cut in sorted(known, key=lambda b: (order(b), len(b))):
                # A prefix (7,) stands behind all that begins with it; (7, x) before it would not be sorted.
                while cuts and not _below(order(cuts[-1]), order(cut)):
                    cuts.pop()
                cuts.append(cut)
            spelled: list[KeyText | None] = [None, *(tuple(text_of[repr(v)] for v in cut) for cut in cuts), None]
            models = [None, *cuts, None]
            covered: list[int] = []
            for place, (lower, upper) in enumerate(pairwise(spelled)):
                condition = predicate(columns, KeyRange(lower, upper))
                got = sorted(
                    int(r[0] or 0) for r in session.query(f"SELECT id FROM {side.sql.table} WHERE {condition}")
                )
                low, high = models[place], models[place + 1]
                assert got == [
                    n for n, row in enumerate(stored) if None not in row
                    and (low is None or order(row)[: len(low)] > order(low)) and (high is None or order(row)[: len(high)] <= order(high))
                ], condition  # fmt: skip
                covered += got
            condition = predicate(columns, KeyRange(nulls=True))
            covered += [int(r[0] or 0) for r in session.query(f"SELECT id FROM {side.sql.table} WHERE {condition}")]
            assert sorted(covered) == list(range(len(stored)))
            wanted = [texts[n] for n in list(texts)[-2:]]
            answers = session.query_bytes(full_rows_sql(side.sql, wanted))
            exact = [parse_key(columns, (a[0] or b"").decode().split(",")[: len(columns)]) for a in answers]
            assert sorted((k for k in exact if k in wanted), key=str) == sorted(
                (t for t in texts.values() if t in wanted), key=str
            )
            assert keys_predicate(columns, []) == "1=0"

    check()


def _below(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    size = min(len(one), len(other))
    if one[:size] != other[:size]:
        return one[:size] < other[:size]
    return len(one) > len(other)


def _key(columns: Any, row: tuple[str | None, ...]) -> KeyText:
    return tuple(
        "0x" + v.encode("utf-8", "surrogateescape").hex() if c.family == "binary" and v is not None else v
        for c, v in zip(columns, row, strict=True)
    )

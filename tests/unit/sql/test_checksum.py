"""Framing, row checksums and row lists, without a server: SQL of ``frame`` is run by a small model of CONCAT_WS."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.errors import IncompleteReadError
from migverify.model import ChunkChecksum, ColumnDef, ColumnPair, Lane, Side
from migverify.sql.canonical import pair_column
from migverify.sql.checksum import (
    LOST_ROW,
    SideSql,
    bucket_sql,
    element,
    frame,
    parse_checksum,
    parse_key,
    parse_rows,
    wide_frame,
)
from migverify.sql.key_range import KeyColumn
from tests.definitions import column

KINDS = ["int", "decimal(9,2)", "datetime(3)", "varchar(20)", "blob", "enum('N',',')", "double", "bit(8)"]


def pairs(*kinds: tuple[str, bool]) -> list[ColumnPair]:
    found = []
    for n, (kind, nullable) in enumerate(kinds):
        this: ColumnDef = column(f"c{n}", kind, nullable=nullable)
        joined = pair_column(this, this)
        assert isinstance(joined, ColumnPair)
        found.append(joined)
    return found


def run_frame(columns: list[ColumnPair], row: list[bytes | None]) -> bytes:
    """Evaluate ``frame`` as CONCAT_WS would: NULL arguments are dropped."""
    sql = frame(columns, Side.SOURCE, Lane.EXACT)
    parts: list[bytes | None] = []
    inner = sql.removeprefix("CONCAT_WS(',',").removesuffix(")")
    texts = {c.source_sql: n for n, c in enumerate(columns)}
    while inner:
        for text, n in texts.items():
            forms: dict[str, bytes | None] = {
                f"IFNULL(LENGTH({text}),'N')": b"N" if row[n] is None else str(len(row[n] or b"")).encode(),
                f"LENGTH({text})": str(len(row[n] or b"")).encode(),
                f"IFNULL({text},'N')": b"N" if row[n] is None else row[n],
                text: row[n],
            }
            form = next((f for f in forms if inner == f or inner.startswith(f + ",")), None)
            if form is not None:
                parts.append(forms[form])
                inner = inner[len(form) + 1 :]
                break
        else:
            raise AssertionError(f"not a part of a frame: {inner}")
    return b",".join(p for p in parts if p is not None)


PLAIN = st.sampled_from([b"0", b"1", b"-1", b"1.50", b"2026-01-01 00:00:00.000", b"10"])
STRING = st.binary(max_size=6) | st.sampled_from([b"N", b",", b"1,N", b"", b"N,N,0"])


@st.composite
def two_rows(draw: st.DrawFn) -> tuple[list[ColumnPair], list[bytes | None], list[bytes | None]]:
    kinds = draw(st.lists(st.tuples(st.sampled_from(KINDS), st.booleans()), min_size=1, max_size=6))
    columns = pairs(*kinds)

    def row() -> list[bytes | None]:
        values: list[bytes | None] = []
        for joined in columns:
            value = STRING if joined.string else PLAIN
            values.append(draw(st.one_of(st.none(), value) if joined.source.nullable else value))
        return values

    one = row()
    other = list(one) if draw(st.booleans()) else row()
    return columns, one, other


@given(two_rows())
@settings(max_examples=500, deadline=None)
def test_frames_are_equal_exactly_for_equal_rows(drawn: tuple[list[ColumnPair], list[Any], list[Any]]) -> None:
    columns, one, other = drawn
    assert (run_frame(columns, one) == run_frame(columns, other)) is (one == other)


def test_binary_columns_lead_the_strings() -> None:
    sql = frame(pairs(("varchar(9)", False), ("blob", False), ("int", False)), Side.SOURCE, Lane.EXACT)
    assert sql == "CONCAT_WS(',',`c2`,LENGTH(`c1`),LENGTH(`c0`),`c1`,`c0`)"


def test_a_lane_without_columns_has_a_constant_frame() -> None:
    assert frame(pairs(("json", True)), Side.SOURCE, Lane.EXACT) == "'-'"
    assert wide_frame(pairs(("json", True)), Side.SOURCE, "SHA2") == "'-'"


def test_the_wide_frame_tells_null_from_a_hash() -> None:
    sql = wide_frame(pairs(("text", True), ("int", False)), Side.TARGET, "SHA2")
    assert sql == "CONCAT(IF(`c0` IS NULL,'N',SHA2(`c0`,256)),',',`c1`)"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (("0", None), ChunkChecksum(0, 0, 0)),
        (("0", None, None), ChunkChecksum(0, 0, 0, 0)),
        (("3", "42"), ChunkChecksum(3, 3, 42)),
        (("3", "42", "7"), ChunkChecksum(3, 3, 42, 7)),
        (("3", str(2 * LOST_ROW + 42)), ChunkChecksum(3, 1, 42)),
        (("3", "42", str(LOST_ROW + 7)), ChunkChecksum(3, 2, 42, 7)),
    ],
)
def test_lost_rows_are_counted_in_every_lane(row: tuple[str | None, ...], expected: ChunkChecksum) -> None:
    assert parse_checksum(row) == expected


def side(*key: KeyColumn, value: str | None = None) -> SideSql:
    return SideSql("`d`.`t`", "SHA2", "'x'", "'y'", value, (), key, key)


ID = KeyColumn("`id`", "`id`", "integer", nullable=False)
NAME = KeyColumn("`s`", "`s`", "text", nullable=True)
SUM = "0123456789abcde"


@pytest.mark.parametrize(
    "text",
    ["1,{s};2,{s}", "1,?;2,?"],
)
def test_whole_row_lists_are_split(text: str) -> None:
    assert len(parse_rows((b"2", text.format(s=SUM).encode()), side(ID))) == 2


@pytest.mark.parametrize("end", ["", "2", "2,", "2,01234", "2," + SUM[:-1]])
def test_a_list_cut_inside_of_its_last_element_is_refused(end: str) -> None:
    with pytest.raises(IncompleteReadError):
        parse_rows((b"2", f"1,{SUM};{end}".encode()), side(ID))


@pytest.mark.parametrize("end", [f"2,{SUM}", f"2,{SUM},", f"2,{SUM},01"])
def test_a_list_cut_in_its_second_lane_is_refused(end: str) -> None:
    with pytest.raises(IncompleteReadError):
        parse_rows((b"2", f"1,{SUM},{SUM};{end}".encode()), side(ID, value="'v'"))


def test_an_empty_list_is_whole_only_for_no_rows() -> None:
    assert parse_rows((b"0", None), side(ID)) == []
    with pytest.raises(IncompleteReadError):
        parse_rows((b"3", None), side(ID))


def test_key_parts_cannot_hold_a_separator_and_null_is_marked() -> None:
    assert element(side(ID, NAME)).startswith("CONCAT_WS(',',`id`,IFNULL(HEX(`s`),'N'),")
    assert parse_key([ID, NAME], ["7", "N"]) == ("7", None)
    assert parse_key([ID, NAME], ["7", "4E"]) == ("7", "N")


def test_buckets_are_grouped_by_their_expression() -> None:
    # An alias would lose against a column of the same name, and rows of different buckets would be one group.
    assert bucket_sql(side(ID), 64).endswith("GROUP BY CRC32(CONCAT_WS(',',IFNULL(`id`,'N')))%64")

"""Packed rows: what comes apart is what went in, or it is refused; steps and pieces cover everything once."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from migverify.errors import ConfigError
from migverify.recon.packed import PIECE_ROWS, Step, even_steps, pieces
from migverify.recon.relation import Cut, SqlRead
from migverify.spark.staging import staged
from migverify.sql.packed import (
    FIELD_END,
    ROW_END,
    SECTION_END,
    PackedSql,
    pack,
    packed_rows_sql,
    packed_stream_sql,
    span_condition,
    split_rows,
    split_sums,
    unpack,
)

TEXT = st.one_of(st.none(), st.binary(max_size=6), st.sampled_from([b"-", b"=", b"\x00", b"\x01\x02", b"\x01\x04"]))
ROW = st.tuples(TEXT, TEXT, TEXT)
READ = PackedSql("t", (("a",), ("b", "c"), ()))


@given(st.lists(TEXT, min_size=1, max_size=4).map(tuple))
def test_a_packed_section_comes_apart_again(texts: tuple[bytes | None, ...]) -> None:
    assert unpack(pack(texts)) == texts
    assert not set(pack(texts).split(FIELD_END)) & {b""}


@given(ROW, ROW)
def test_packed_sections_sort_as_their_texts_do(one: tuple[bytes | None, ...], other: tuple[bytes | None, ...]) -> None:
    def order(texts: tuple[bytes | None, ...]) -> list[tuple[bool, bytes]]:
        return [(text is not None, text or b"") for text in texts]

    assert (pack(one) < pack(other)) == (order(one) < order(other))
    assert (pack(one) == pack(other)) == (one == other)


def _as_a_server(rows: list[tuple[bytes | None, ...]]) -> bytes:
    """What GROUP_CONCAT gives of rows without escapes."""

    def field(text: bytes | None) -> bytes:
        return b"-" if text is None else b"=" + text

    return b"".join(
        field(a) + SECTION_END + FIELD_END.join([field(b), field(c)]) + SECTION_END + ROW_END for a, b, c in rows
    )


@example([(None, b"\x01", b"\x01\x04")], 4)
@example([(None, SECTION_END, b"\x01\x04")], 4)
@given(st.lists(ROW, max_size=5), st.integers(0, 40))
def test_rows_come_apart_exactly_or_are_refused(rows: list[tuple[bytes | None, ...]], cut: int) -> None:
    whole = _as_a_server(rows)
    found = split_rows(len(rows), whole or None, READ)
    risky = any(text is not None and (b"\x00" in text or b"\x01" in text) for row in rows for text in row)
    assert (found is None) == risky
    if found is not None:
        assert [(*unpack(k), *unpack(v)) for k, v, _ in zip(*found, strict=True)] == rows
    if 0 < cut <= len(whole):
        assert split_rows(len(rows), whole[:-cut] or None, READ) is None  # cut at max_allowed_packet


def test_statements_name_every_text_and_read_null_as_null_only() -> None:
    text = packed_rows_sql(READ, span_condition("a", 1, None))
    assert text.startswith("SELECT COUNT(*),0,GROUP_CONCAT(IFNULL(CONCAT('=',a),IF(a IS NULL,'-',NULL))")
    assert text.endswith(" SEPARATOR '') FROM t WHERE (a>=1)")
    streamed = packed_stream_sql(PackedSql("t", READ.sections, "x=1", "lost"))
    assert streamed.endswith(",'',lost FROM t WHERE (x=1)")
    assert streamed.count("REPLACE(REPLACE(") == 3


def test_bucket_sums_that_were_cut_are_refused() -> None:
    assert split_sums(2, b"1,2,3;4,5,6") == [[b"1", b"2", b"3"], [b"4", b"5", b"6"]]
    assert split_sums(0, None) == []
    assert split_sums(2, b"1,2,3;4,5") is None  # a bucket without a number, or a cut
    assert split_sums(3, b"1,2,3;4,5,6") is None


@given(st.integers(-(2**63), 2**63), st.integers(0, 2**64), st.integers(1, 9), st.booleans())
def test_even_steps_cover_every_value_once(lower: int, span: int, parts: int, nullable: bool) -> None:
    read = SqlRead("source", "t", ("a",), (), cut=Cut("a", lower, lower + span, nullable))
    steps = even_steps(read, parts)
    ranges = [step for step in steps if not step.nulls]
    assert ranges[0].lower is None
    assert ranges[-1].upper is None
    assert all(one.upper == other.lower for one, other in pairwise(ranges))
    assert len(steps) - len(ranges) == (nullable and len(ranges) > 1)  # a step without a condition holds the NULLs


@given(st.lists(st.integers(-1, 300_000), min_size=1, max_size=30), st.integers(1, 10))
def test_pieces_hold_every_step_in_order(counts: list[int], most: int) -> None:
    steps = [Step(number, number + 1, rows) for number, rows in enumerate(counts)]
    dealt = pieces(steps, most)
    assert [step for part in dealt for step in part] == steps
    assert all(sum(max(s.rows, 0) for s in part[:-1]) < PIECE_ROWS for part in dealt)


def test_urls_are_fetched_before_and_brought_back_after(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "a.yaml").write_text("one")
    (tmp_path / "m.yaml").write_text("two")
    url = f"file://{tmp_path}"
    given_ = ["-c", f"{url}/m.yaml", f"{url}/rules", f"--csv={url}/found.csv", "--store", "mysql://store/x", "--json"]
    with staged(given_) as local:
        assert Path(local[1]).read_text() == "two"
        assert (Path(local[2]) / "a.yaml").read_text() == "one"
        assert local[3] == "--csv"
        assert local[5:] == ["--store", "mysql://store/x", "--json"]
        Path(local[4]).write_text("found")
    assert (tmp_path / "found.csv").read_text() == "found"
    with pytest.raises(ConfigError, match="no file gone"), staged([f"{url}/gone.yaml"]):
        pass

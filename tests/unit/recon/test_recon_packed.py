"""Packed rows: what comes apart is what went in, or it is refused; steps and pieces cover everything once."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from migverify.errors import ConfigError
from migverify.recon.reads import PIECE_ROWS, RangeStep, common_steps, deal
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


steps = st.lists(st.integers(-5, 5), unique=True, max_size=4).map(
    lambda bounds: [
        RangeStep(lower, upper, 10) for lower, upper in pairwise([None, *sorted(bounds), None])
    ]
)  # fmt: skip


@given(st.lists(steps, min_size=1, max_size=3), st.integers(-7, 7), st.booleans())
def test_common_steps_hold_every_value_once_inside_a_step_of_each_plan(
    plans: list[list[RangeStep]], value: int, nullable: bool
) -> None:
    def holding(listed: list[RangeStep]) -> list[RangeStep]:
        return [
            s for s in listed
            if not s.nulls and (s.lower is None or s.lower <= value) and (s.upper is None or value < s.upper)
        ]  # fmt: skip

    found = common_steps(plans, nullable=nullable)
    (step,) = holding(found)
    for listed in plans:
        (around,) = holding(listed)
        assert around.lower is None or (step.lower is not None and around.lower <= step.lower)
        assert around.upper is None or (step.upper is not None and step.upper <= around.upper)
    # A step without a condition holds the NULLs.
    assert sum(s.nulls for s in found) == (nullable and len(found) > 1)


@given(st.lists(st.integers(-1, 300_000), min_size=1, max_size=30), st.integers(1, 10))
def test_pieces_hold_every_step_in_order(counts: list[int], most: int) -> None:
    listed = [RangeStep(number, number + 1, rows) for number, rows in enumerate(counts)]
    dealt = deal(listed, most)
    assert [step for part in dealt for step in part] == listed
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

"""What is written to a store comes back as it was, for any text of a key or a value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.codec import encode
from migverify.errors import StoreError
from migverify.model import (
    ChunkChecksum,
    ChunkResult,
    ChunkState,
    ColumnDiff,
    DiffKind,
    KeyRange,
    LiveState,
    NotCovered,
    RowDiff,
    SchemaClass,
    SchemaDifference,
    TableResult,
    Verdict,
)
from migverify.store import codec

TEXTS = st.one_of(
    st.text(),
    st.sampled_from(["", " ", "NULL", "null", "\x00", "😀", "é", "'", '"', "\\", "%s", ":x", "?", "\u2028"]),
    st.integers(2**63, 2**66).map(str),
    st.text(min_size=1, max_size=3).map(lambda piece: piece * 3000),
)
NULLABLE = st.none() | TEXTS
KEYS = st.lists(NULLABLE, max_size=4).map(tuple)
RANGES = st.builds(KeyRange, st.none() | KEYS, st.none() | KEYS, st.booleans())
SECONDS = st.floats(allow_nan=False, allow_infinity=False)
COUNTS = st.integers(0, 2**63 - 1)
SUMS = st.integers(0, 2**130)
CHECKSUMS = st.none() | st.builds(ChunkChecksum, COUNTS, COUNTS, SUMS, SUMS)
CHUNKS = st.builds(
    ChunkResult,
    pair=st.just("d.t"),
    span=COUNTS,
    number=COUNTS,
    range=RANGES,
    state=st.sampled_from(ChunkState),
    source=CHECKSUMS,
    target=CHECKSUMS,
    started=SECONDS,
    seconds=SECONDS,
    source_seconds=SECONDS,
    target_seconds=SECONDS,
    attempts=COUNTS,
    reason=TEXTS,
)
DIFFS = st.builds(
    RowDiff,
    pair=st.just("d.t"),
    key=KEYS,
    kind=st.sampled_from(DiffKind),
    state=st.sampled_from(LiveState),
    columns=st.lists(st.builds(ColumnDiff, TEXTS, NULLABLE, NULLABLE, TEXTS, st.booleans()), max_size=3).map(tuple),
    source_checksum=NULLABLE,
    target_checksum=NULLABLE,
    source_count=COUNTS,
    target_count=COUNTS,
    shard=TEXTS,
    read_at=SECONDS,
)


def hashed(key: tuple[str | None, ...]) -> bytes:
    row = codec.encode_diff(RowDiff("d.t", key, DiffKind.VALUE_DIFFERS, LiveState.HOT))
    assert len(row["key_hash"]) == 32
    return bytes(row["key_hash"])


@given(KEYS, KEYS)
def test_two_keys_share_their_hash_only_when_equal(one: tuple[str | None, ...], other: tuple[str | None, ...]) -> None:
    assert (hashed(one) == hashed(other)) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((None,), ("NULL",)),
        ((None,), ("null",)),
        ((None,), ("",)),
        ((), ("",)),
        (("a,b",), ("a", "b")),
        (('a","b',), ("a", "b")),
        (("é",), ("e\u0301",)),
        (("9223372036854775808",), ("9223372036854775807",)),
    ],
)
def test_keys_that_look_equal_are_distinct(one: tuple[str | None, ...], other: tuple[str | None, ...]) -> None:
    assert hashed(one) != hashed(other)


@given(RANGES)
def test_a_key_range_comes_back(key_range: KeyRange) -> None:
    assert codec.decode_range(codec.encode_range(key_range)) == key_range


def test_an_open_bound_is_not_an_empty_key() -> None:
    assert codec.encode_range(KeyRange(lower=None)) != codec.encode_range(KeyRange(lower=()))
    assert codec.encode_range(KeyRange(lower=(None,))) != codec.encode_range(KeyRange(lower=None))


@given(CHUNKS)
def test_a_chunk_comes_back(chunk: ChunkResult) -> None:
    row = codec.encode_chunk(chunk)
    assert codec.decode_chunk("d.t", [row[name] for name in codec.CHUNK_COLUMNS]) == chunk
    assert row["source_exact"] is None or isinstance(row["source_exact"], str)


@given(DIFFS)
def test_a_row_diff_comes_back(diff: RowDiff) -> None:
    row = codec.encode_diff(diff)
    assert codec.decode_diff("d.t", [row[name] for name in codec.DIFF_COLUMNS]) == diff
    assert row["row_key"].isascii()
    assert row["column_diffs"].isascii()


def test_a_table_result_comes_back() -> None:
    result = table_result("d.t")
    assert codec.decode_json(TableResult, codec.encode_json(encode(result), "a result"), "a result") == result


def table_result(pair: str, verdict: Verdict = Verdict.MISMATCH) -> TableResult:
    return TableResult(
        pair=pair,
        source=pair,
        target=f"new_{pair}",
        verdict=verdict,
        reasons=("1 row differs 😀",),
        rows_source=2**63 - 1,
        rows_target=None,
        chunks=3,
        lanes=("exact",),
        missing_on_target=1,
        missing_on_source=0,
        value_differs=2**40,
        not_covered=(NotCovered("column j", "no common form"),),
        schema=(SchemaDifference("type", "c", "int", None, SchemaClass.MAY_LOSE_DATA, "narrower"),),
        seconds=1.25,
        hash_name="sha2",
        blind_spots=("collations",),
        details={"sum": 2**100, "nested": {"a": [None, True, 0.1]}},
    )


@pytest.mark.parametrize(
    "damaged",
    ["", "nonsense", "{}", "[1]", '["a"', "null", '[["a"],null]', "[1,null,false]", "[null,null,0]", "[" * 100_000],
)
def test_damage_is_an_error_and_never_a_value(damaged: str) -> None:
    with pytest.raises(StoreError, match="damaged"):
        codec.decode_range(damaged)
    with pytest.raises(StoreError, match="damaged"):
        codec.decode_json(TableResult, damaged, "a table result")
    diff = codec.encode_diff(RowDiff("d.t", ("1",), DiffKind.VALUE_DIFFERS, LiveState.HOT))
    with pytest.raises(StoreError, match="damaged"):
        codec.decode_diff("d.t", [{**diff, "row_key": damaged}[name] for name in codec.DIFF_COLUMNS])


def test_a_text_is_no_list_of_its_characters() -> None:
    with pytest.raises(StoreError, match="damaged"):
        codec.decode_range('["ab",null,false]')


def test_an_unknown_state_in_the_store_is_an_error() -> None:
    row = codec.encode_diff(RowDiff("d.t", ("1",), DiffKind.VALUE_DIFFERS, LiveState.HOT))
    with pytest.raises(StoreError, match=r"row diff of d\.t .* damaged"):
        codec.decode_diff("d.t", [{**row, "state": "fine"}[name] for name in codec.DIFF_COLUMNS])


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(StoreError, match="the facts cannot be stored"):
        codec.encode_json({"when": object()}, "the facts")

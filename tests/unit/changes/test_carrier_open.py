"""Open protocol. Messages follow docs.pingcap.com/tidb/stable/ticdc-open-protocol ("Event format", "Column types")."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.changes.carriers.base import Carried, CarrierMessage, MessagePosition, Reject, Watermark
from migverify.changes.carriers.column_text import find_zone
from migverify.changes.carriers.open_protocol import OpenProtocol, unquote
from migverify.changes.model import Op
from tests.carried import change_of

PLACE = MessagePosition("shop", 0, 9)
TS = 415508878783938562
HANDLE = 0b1011  # binary, handle, primary key


def part(raw: bytes) -> bytes:
    return len(raw).to_bytes(8, "big") + raw


def batch(events: list[tuple[dict[str, Any], dict[str, Any] | None]], version: int = 1) -> CarrierMessage:
    key = version.to_bytes(8, "big") + b"".join(part(json.dumps(key).encode()) for key, _ in events)
    value = b"".join(part(b"" if body is None else json.dumps(body).encode()) for _, body in events)
    return CarrierMessage(PLACE, key, value)


def row_key(**more: Any) -> dict[str, Any]:
    return {"ts": TS, "scm": "test", "tbl": "t1", "t": 1, **more}


def column(code: int, value: Any, flags: int = 0) -> dict[str, Any]:
    return {"t": code, "f": flags, "v": value}


def parse(events: list[Any], **options: Any) -> list[Any]:
    return OpenProtocol(**options).parse(batch(events))


def value(code: int, given_value: Any, flags: int = 0, **options: Any) -> Any:
    (item,) = parse([(row_key(), {"u": {"c": column(code, given_value, flags)}})], **options)
    return item.reason if isinstance(item, Reject) else change_of(item).after["c"]


def test_a_batch_of_all_kinds_of_events() -> None:
    ident = column(3, 2, HANDLE)
    items = parse(
        [
            (row_key(), {"u": {"id": ident, "val": column(15, "aa")}}),
            (row_key(), {"u": {"id": ident, "val": column(15, "bb")}, "p": {"id": ident, "val": column(15, "aa")}}),
            (row_key(), {"d": {"id": ident}}),
            ({"ts": TS, "scm": "test", "tbl": "t1", "t": 2}, {"q": "CREATE TABLE test.t1(id int primary key)", "t": 3}),
            ({"ts": TS, "scm": "test", "tbl": "t1", "t": 2}, {"q": "TRUNCATE TABLE test.t1", "t": 11}),
            ({"ts": TS, "t": 3}, None),
        ]
    )
    assert [change_of(item).op if isinstance(item, Carried) else None for item in items] == [
        Op.INSERT,
        Op.UPDATE,
        Op.DELETE,
        Op.DDL,
        Op.TRUNCATE,
        None,
    ]
    insert, update, delete, ddl = (item for item in items[:4] if isinstance(item, Carried))
    assert (change_of(insert).before, change_of(insert).after) == (None, {"id": "2", "val": "aa"})
    assert (change_of(update).before, change_of(update).after) == ({"id": "2", "val": "aa"}, {"id": "2", "val": "bb"})
    assert (change_of(delete).before, delete.key) == ({"id": "2"}, (("id", "2"),))
    assert (change_of(ddl).sql, change_of(ddl).gtid, change_of(ddl).table) == (
        "CREATE TABLE test.t1(id int primary key)",
        str(TS),
        "test.t1",
    )
    assert [item.index for item in items if isinstance(item, Carried)] == [0, 1, 2, 3, 4]
    assert items[5] == Watermark(TS, PLACE)


def test_only_updated_columns_in_p_still_give_the_whole_row_before() -> None:
    row = {"id": column(3, 2, HANDLE), "val": column(15, "bb")}
    (item,) = parse([(row_key(), {"u": row, "p": {"val": column(15, "aa")}})])
    assert change_of(item).before == {"id": "2", "val": "aa"}


def test_a_resolved_event_may_come_without_a_value() -> None:
    given_message = batch([({"ts": TS, "t": 3}, None)])
    for raw in (None, b"", given_message.value):
        assert OpenProtocol().parse(CarrierMessage(PLACE, given_message.key, raw)) == [Watermark(TS, PLACE)]


@pytest.mark.parametrize(
    ("code", "given_value", "flags", "wanted"),
    [
        (1, 1, 0, "1"),
        (2, -1, 0, "-1"),
        (8, 18446744073709551615, 0x80, "18446744073709551615"),
        (9, 8388607, 0, "8388607"),
        (4, 153.123, 0, "153.123"),
        (5, 1e15, 0, "1e15"),
        (6, None, 0, None),
        (7, "1973-12-30 15:30:00", 0, "1973-12-30 06:30:00"),
        (10, "2000-01-01", 0, "2000-01-01"),
        (14, "2000-01-01", 0, "2000-01-01"),
        (11, "23:59:59.10", 0, "23:59:59.10"),
        (12, "2015-12-20 23:58:58", 0, "2015-12-20 23:58:58"),
        (13, 1970, 0, "1970"),
        (15, "test", 0, "test"),
        (15, "\\x89PNG\\r\\n\\x1a\\n", 1, "0x89504e470d0a1a0a"),
        (254, "é\\u0080", 1, "0xc3a9c280"),
        (245, '{"key1": "value1"}', 128, '{"key1": "value1"}'),
        (246, "129012.1230000", 0, "129012.1230000"),
        (252, "5rWL6K+VdGV4dA==", 0, "测试text"),
        (249, "5rWL6K+VdGV4dA==", 1, "0xe6b58be8af9574657874"),
        (225, "[1,2]", 0, "[1,2]"),
    ],
)
def test_each_type_gives_the_text_of_select(code: int, given_value: Any, flags: int, wanted: str | None) -> None:
    assert value(code, given_value, flags, time_zone=find_zone("+09:00")) == wanted


def test_numbers_of_labels_need_the_declared_type() -> None:
    assert "state the column's type" in value(247, 1)
    for code, number, declared, wanted in (
        (247, 1, "enum('x','y')", "x"),
        (248, 3, "set('x','y')", "x,y"),
        (16, 81, "bit(8)", "81"),
        (16, 1, "bit(64)", "1"),
    ):
        assert value(code, number, types={"test.t1": {"c": declared}}) == wanted


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=60))
def test_binary_texts_with_go_escapes_round_trip(raw: bytes) -> None:
    """strconv.Quote of Go: what is no printable character is escaped, bytes that are no UTF-8 as \\xNN."""
    written = "".join(
        f"\\x{ord(c) - 0xDC00:02x}"
        if 0xDC80 <= ord(c) <= 0xDCFF
        else {"\n": "\\n", "\t": "\\t", "\\": "\\\\", '"': '\\"', "\a": "\\a"}.get(c)
        or (c if c.isprintable() else f"\\x{ord(c):02x}" if ord(c) < 0x80 else f"\\U{ord(c):08x}")
        for c in raw.decode("utf-8", "surrogateescape")
    )
    assert unquote(written) == raw
    assert value(15, written, 1) == "0x" + raw.hex()


@settings(max_examples=40, deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.integers(-(2**63), 2**64 - 1),
    st.binary(max_size=30),
)
def test_values_round_trip(text: str, number: int, raw: bytes) -> None:
    assert value(253, text) == text
    assert value(8, number) == str(number)
    assert value(251, base64.b64encode(raw).decode(), 1) == "0x" + raw.hex()


@pytest.mark.parametrize(
    ("key", "body", "reason"),
    [
        (row_key(), {"u": {"c": {"t": 15, "v": "YWE="}}}, "without flags"),
        (row_key(), {"x": {}}, "a row event with x"),
        (row_key(), {"u": {}, "d": {}}, "d, u"),
        (row_key(t=9), {}, "not known"),
        (row_key(ccl="s3://x"), {}, "claim-check"),
        (row_key(corrupted=True), {"u": {"c": column(3, 1)}}, "checksum wrong"),
        (row_key(ohk=True), {"u": {"c": column(3, 1)}}, "only its handle key"),
        (row_key(), {"u": {"c": column(255, "x")}}, "not known"),
        (row_key(), {"u": {"c": column(3, 1.5)}}, "not an integer"),
        (row_key(), {"u": {"c": column(252, "%%")}}, "not base64"),
        (row_key(), {"u": {"c": column(252, "/w==")}}, "not UTF-8"),
        (row_key(), {"u": {"c": column(15, "\\q", 1)}}, "unknown escape"),
        (row_key(), {"u": {"c": column(7, "2020-01-01 00:00:00")}}, "time zone"),
        ({"ts": "1", "t": 3}, None, "not an integer"),
    ],
)
def test_what_cannot_be_decoded_is_one_reject_for_the_whole_batch(key: Any, body: Any, reason: str) -> None:
    good = (row_key(), {"u": {"id": column(3, 1, HANDLE)}})
    (item,) = parse([good, (key, body), good])
    assert isinstance(item, Reject)
    assert reason in item.reason


def test_cut_and_foreign_batches() -> None:
    whole = batch([(row_key(), {"u": {"id": column(3, 1, HANDLE)}})] * 2)
    assert whole.key is not None
    assert whole.value is not None
    for key, raw, reason in (
        (whole.key[:-1], whole.value, "the key is cut"),
        (whole.key, whole.value[:-1], "the value is cut"),
        (b"\0\0", whole.value, "shorter than"),
        (batch([], 2).key, b"", "version 2"),
        (None, whole.value, "shorter than"),
        (whole.key, part(b"{}"), "2 events in the key, 1 in the value"),
    ):
        (item,) = OpenProtocol().parse(CarrierMessage(PLACE, key, raw))
        assert isinstance(item, Reject)
        assert reason in item.reason


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=80), st.binary(max_size=80))
def test_no_bytes_raise(key: bytes, raw: bytes) -> None:
    OpenProtocol().parse(CarrierMessage(PLACE, b"\0" * 7 + b"\1" + key, raw))

"""Debezium JSON.

Messages follow debezium.io/documentation/reference/stable/connectors/mysql.html ("Data change events", "Data type
mappings") and docs.pingcap.com/tidb/stable/ticdc-debezium ("Message format definition").
"""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.changes.carriers.base import (
    Carried,
    CarrierMessage,
    MessagePosition,
    Reject,
    SkippedMessage,
    SourceOrder,
    Watermark,
)
from migverify.changes.carriers.debezium import Debezium
from migverify.changes.model import Op, Position
from migverify.changes.positions import tso_position
from tests.carried import change_of

PLACE = MessagePosition("inventory", 0, 5)
SOURCE = {
    "version": "3.0.0.Final",
    "connector": "mysql",
    "name": "srv",
    "ts_ms": 1465491411815,
    "snapshot": "false",
    "db": "inventory",
    "table": "customers",
    "server_id": 223344,
    "gtid": "3e11fa47:7",
    "file": "mysql-bin.000003",
    "pos": 484,
    "row": 2,
    "thread": 7,
    "query": None,
}
TICDC = {**SOURCE, "connector": "TiCDC", "gtid": None, "file": "", "pos": 0, "commit_ts": 429918007904436226}


def field(
    name: str, kind: str = "int32", semantic: str | None = None, *, optional: bool = True, **more: Any
) -> dict[str, Any]:
    found = {"field": name, "type": kind, "optional": optional, **more}
    return found | ({"name": semantic} if semantic else {})


def envelope(
    op: str, before: Any, after: Any, fields: list[Any] | None = None, source: Any = SOURCE, key: Any = None
) -> CarrierMessage:
    payload = {"op": op, "before": before, "after": after, "source": source, "ts_ms": 1465491411900}
    body: Any = payload
    if fields is not None:
        sides = [{"field": side, "type": "struct", "fields": fields} for side in ("before", "after")]
        body = {"schema": {"type": "struct", "fields": sides}, "payload": payload}
    raw_key = None if key is None else json.dumps({"schema": {}, "payload": key}).encode()
    return CarrierMessage(PLACE, raw_key, json.dumps(body).encode(), 1465491412.0)


def one(message: CarrierMessage, **options: Any) -> Any:
    (item,) = Debezium(**options).parse(message)
    return item


def value(schema: dict[str, Any], given_value: Any, source: Any = SOURCE, **options: Any) -> Any:
    """Return the text of a column, or the reason of the reject."""
    item = one(envelope("c", None, {"c": given_value}, [{"field": "c", "optional": True, **schema}], source), **options)
    return item.reason if isinstance(item, Reject) else change_of(item).after["c"]


def declared(column_type: str) -> dict[str, dict[str, str]]:
    return {"inventory.customers": {"c": column_type}}


def test_an_update_with_schema_and_key() -> None:
    fields = [field("id"), field("name", "string")]
    item = one(envelope("u", {"id": 1, "name": "A"}, {"id": 1, "name": "B"}, fields, key={"id": 1}))
    assert isinstance(item, Carried)
    assert (change_of(item).op, change_of(item).table) == (Op.UPDATE, "inventory.customers")
    assert (change_of(item).before, change_of(item).after) == ({"id": "1", "name": "A"}, {"id": "1", "name": "B"})
    found = change_of(item)
    assert (found.gtid, found.file, found.position) == ("3e11fa47:7", "mysql-bin.000003", 484)
    assert found.time == 1465491411.815
    assert item.order == SourceOrder(Position("mysql-bin.000003", 484), "server 223344", 2)
    assert (item.key, item.snapshot, item.sent) == ((("id", "1"),), False, 1465491412.0)


def test_all_operations() -> None:
    fields = [field("id")]
    row = {"id": 1}
    assert change_of(one(envelope("c", None, row, fields))).op is Op.INSERT
    read = one(envelope("r", None, row, fields, {**SOURCE, "snapshot": "true"}))
    assert (change_of(read).op, read.snapshot) == (Op.INSERT, True)
    delete = one(envelope("d", row, None, fields, key=row))
    assert (change_of(delete).op, change_of(delete).before, delete.key) == (Op.DELETE, {"id": "1"}, (("id", "1"),))
    assert change_of(one(envelope("t", None, None, fields))).op is Op.TRUNCATE
    assert one(envelope("m", None, None, fields)) == SkippedMessage("logical message", PLACE)


def test_messages_without_a_change() -> None:
    for raw in (None, b'{"schema": null, "payload": null}'):
        assert Debezium().parse(CarrierMessage(PLACE, b"{}", raw)) == [SkippedMessage("tombstone", PLACE)]
    for body, reason in (
        ({"ts_ms": 1}, "heartbeat"),
        ({"status": "END", "id": "x", "event_count": 2, "data_collections": None, "ts_ms": 1}, "transaction boundary"),
    ):
        assert one(CarrierMessage(PLACE, None, json.dumps(body).encode())) == SkippedMessage(reason, PLACE)


def test_ticdc_gives_commit_timestamps_and_watermarks() -> None:
    item = one(envelope("c", None, {"a": 4}, [field("a")], TICDC))
    assert (item.order, change_of(item).gtid, change_of(item).file) == (
        SourceOrder(tso_position(429918007904436226)),
        "429918007904436226",
        "inventory/0",
    )
    assert one(envelope("m", None, None, [], TICDC)) == Watermark(429918007904436226, PLACE)


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


DECIMAL = "org.apache.kafka.connect.data.Decimal"
TIME = "io.debezium.time."

WITH_SCHEMA = [
    ({"type": "int16"}, 255, None, "255"),
    ({"type": "int64"}, 9223372036854775807, None, "9223372036854775807"),
    ({"type": "int64"}, -1, "bigint unsigned", "18446744073709551615"),
    ({"type": "int64"}, -1, "bigint", "-1"),
    ({"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2"}}, b64(b"\x04\xd2"), None, "12.34"),
    ({"type": "bytes", "name": DECIMAL, "parameters": {"scale": "4"}}, b64(b"\xff"), None, "-0.0001"),
    ({"type": "bytes", "name": DECIMAL, "parameters": {"scale": "0"}}, "AJoymK+1rHHH", None, "11111111111111111111"),
    (
        {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"},
        {"scale": 1, "value": b64(b"\x0f")},
        None,
        "1.5",
    ),
    ({"type": "string"}, "12345.67", "decimal(10,2)", "12345.67"),
    ({"type": "double"}, 12.5, "decimal(10,2)", "12.50"),
    ({"type": "double"}, 0.1, "double", "0.1"),
    ({"type": "float"}, 5.610000133514404, None, "5.61"),
    ({"type": "boolean"}, True, "tinyint(1)", "1"),
    ({"type": "boolean"}, True, "bit(1)", "1"),
    ({"type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": "10"}}, b64(b"\1\2"), None, "513"),
    ({"type": "bytes"}, b64(b"\x01\xff"), None, "0x01ff"),
    ({"type": "bytes"}, b64(b"\1"), "binary(3)", "0x010000"),
    ({"type": "string"}, "text", None, "text"),
    ({"type": "string", "name": "io.debezium.data.Enum"}, "b", None, "b"),
    ({"type": "string", "name": "io.debezium.data.EnumSet"}, "a,c", None, "a,c"),
    ({"type": "string", "name": "io.debezium.data.Json"}, '{"a":1.0,"b":[1,2]}', None, '{"a": 1.0, "b": [1, 2]}'),
    ({"type": "int32", "name": TIME + "Year"}, 0, None, "0000"),
    ({"type": "int32", "name": TIME + "Date"}, 17567, None, "2018-02-05"),
    ({"type": "int64", "name": TIME + "Timestamp"}, 1529476623120, "datetime(2)", "2018-06-20 06:37:03.12"),
    ({"type": "int64", "name": TIME + "Timestamp"}, 1529476623000, "datetime", "2018-06-20 06:37:03"),
    ({"type": "int64", "name": TIME + "MicroTimestamp"}, 1529476623000001, "datetime(6)", "2018-06-20 06:37:03.000001"),
    (
        {"type": "int64", "name": TIME + "NanoTimestamp"},
        1529476623000001000,
        "datetime(6)",
        "2018-06-20 06:37:03.000001",
    ),
    ({"type": "int64", "name": TIME + "MicroTime"}, -45296789000, "time(3)", "-12:34:56.789"),
    ({"type": "int32", "name": "org.apache.kafka.connect.data.Time"}, 1000, "time", "00:00:01"),
    ({"type": "string", "name": TIME + "ZonedTimestamp"}, "2018-06-20T13:37:03Z", None, "2018-06-20 13:37:03"),
    (
        {"type": "string", "name": TIME + "ZonedTimestamp"},
        "2018-06-20T13:37:03.5Z",
        "timestamp(6)",
        "2018-06-20 13:37:03.500000",
    ),
    ({"type": "int32"}, None, None, None),
]


@pytest.mark.parametrize(("schema", "given_value", "column_type", "wanted"), WITH_SCHEMA)
def test_each_encoding_gives_the_text_of_select(
    schema: Any, given_value: Any, column_type: str | None, wanted: str | None
) -> None:
    types = {} if column_type is None else declared(column_type)
    assert value(schema, given_value, types=types) == wanted


@pytest.mark.parametrize(
    ("schema", "given_value", "column_type", "reason"),
    [
        ({"type": "int64"}, -1, None, "BIGINT UNSIGNED as long"),
        ({"type": "double"}, 0.1, None, "DECIMAL sent so"),
        ({"type": "double"}, 0.1, "decimal(16,2)", "15 digits are certain"),
        ({"type": "boolean"}, True, None, "BIT(1) or TINYINT(1)"),
        ({"type": "int64", "name": TIME + "Timestamp"}, 5, None, "the fraction's digits"),
        ({"type": "int64", "name": TIME + "Timestamp"}, 1529476623120, "datetime(6)", "its encoding keeps 3"),
        ({"type": "int64", "name": TIME + "MicroTimestamp"}, 1, "datetime(3)", "does not fit 3 digits"),
        ({"type": "int64", "name": TIME + "NanoTimestamp"}, 1, "datetime(6)", "parts of a microsecond"),
        ({"type": "int32", "name": TIME + "Date", "optional": False}, 0, None, "a zero date is sent as that too"),
        (
            {"type": "int64", "name": TIME + "Timestamp", "optional": False},
            0,
            "datetime",
            "a zero date is sent as that too",
        ),
        (
            {"type": "string", "name": TIME + "ZonedTimestamp", "optional": False},
            "1970-01-01T00:00:00Z",
            None,
            "a zero date",
        ),
        ({"type": "struct", "name": "io.debezium.data.geometry.Geometry"}, {}, None, "is not known"),
        ({"type": "string"}, "ff", "blob", "binary.handling.mode"),
        ({"type": "bytes"}, "%", None, "is not base64"),
        ({"type": "bytes", "name": DECIMAL}, "AA==", None, "has no scale"),
        ({"type": "int32"}, 1.5, None, "not an integer"),
        ({"type": "string"}, 1, None, "not a string"),
        ({"type": "int32"}, "1", None, "not an integer"),
    ],
)
def test_what_select_gives_is_never_guessed(
    schema: Any, given_value: Any, column_type: str | None, reason: str
) -> None:
    types = {} if column_type is None else declared(column_type)
    assert reason in value(schema, given_value, types=types)


def test_binary_as_text_by_the_connectors_mode() -> None:
    for mode, written in (("hex", "01ff"), ("base64", "Af8="), ("base64-url-safe", "Af8=")):
        assert value({"type": "string"}, written, types=declared("varbinary(9)"), binary=mode) == "0x01ff"
        assert f"text, or binary in {mode}" in value({"type": "string"}, written, binary=mode)


def test_propagated_source_types_state_what_is_missing() -> None:
    prefix = "__debezium.source.column."
    parameters = {prefix + "type": "DATETIME", prefix + "length": "6"}
    assert (
        value({"type": "int64", "name": TIME + "MicroTimestamp", "parameters": parameters}, 1)
        == "1970-01-01 00:00:00.000001"
    )
    parameters = {prefix + "type": "BIGINT UNSIGNED"}
    assert value({"type": "int64", "parameters": parameters}, -1) == "18446744073709551615"


def test_ticdc_strings_need_a_type_and_binary_is_base64() -> None:
    assert "text, or binary in base64" in value({"type": "string"}, "YQ==", TICDC)
    assert value({"type": "string", "tidb_type": "varchar"}, "YQ==", TICDC) == "YQ=="
    assert value({"type": "string", "tidb_type": "varbinary"}, "YQ==", TICDC) == "0x61"
    # The type comes without its parameters: DATETIME(6) and DATETIME look alike.
    schema = {"type": "int64", "name": TIME + "MicroTimestamp", "tidb_type": "datetime"}
    assert "the fraction's digits" in value(schema, 1000000, TICDC)
    assert value({"type": "float"}, 1.2345678, TICDC) == "1.2345678"


WITHOUT_SCHEMA = [
    ("bigint unsigned", -1, "18446744073709551615"),
    ("int", 5, "5"),
    ("date", 17567, "2018-02-05"),
    ("datetime(3)", 1529476623120, "2018-06-20 06:37:03.120"),
    ("datetime(6)", 1529476623000001, "2018-06-20 06:37:03.000001"),
    ("time(6)", 1, "00:00:00.000001"),
    ("timestamp", "2018-06-20T13:37:03Z", "2018-06-20 13:37:03"),
    ("year", 1970, "1970"),
    ("varchar(9)", "a", "a"),
    ("blob", "Af8=", "0x01ff"),
    ("decimal(6,2)", "BNI=", "12.34"),
    ("decimal(6,2)", "12.34", "12.34"),
    ("decimal(6,0)", "-12", "-12"),
    ("double", 0.5, "0.5"),
    ("bit(10)", "AQI=", "513"),
    ("tinyint(1)", True, "1"),
    ("json", '{"a":1}', '{"a": 1}'),
    ("enum('a','b')", "b", "b"),
    ("int", None, None),
]


@pytest.mark.parametrize(("column_type", "given_value", "wanted"), WITHOUT_SCHEMA)
def test_without_schema_the_declared_type_decides(column_type: str, given_value: Any, wanted: str | None) -> None:
    item = one(envelope("c", None, {"c": given_value}), types=declared(column_type))
    assert change_of(item).after == {"c": wanted}


@pytest.mark.parametrize(
    ("column_type", "given_value", "reason"),
    [
        (None, 1, "no schema"),
        ("date", 0, "a zero date"),
        ("datetime", 0, "a zero date"),
        ("decimal(6,0)", "1234", "base64 or a number"),
        ("point", "x", "cannot be read without a schema"),
    ],
)
def test_without_schema_nothing_is_guessed(column_type: str | None, given_value: Any, reason: str) -> None:
    item = one(envelope("c", None, {"c": given_value}), types={} if column_type is None else declared(column_type))
    assert isinstance(item, Reject)
    assert reason in item.reason


@pytest.mark.parametrize(("ddl", "op"), [("ALTER TABLE customers ...", Op.DDL), ("  truncate table c", Op.TRUNCATE)])
def test_a_schema_change_is_a_statement(ddl: str, op: Op) -> None:
    body = {"source": SOURCE, "ts_ms": 1, "databaseName": "inventory", "ddl": ddl, "tableChanges": []}
    (statement,) = Debezium().parse(CarrierMessage(PLACE, None, json.dumps(body).encode()))
    assert isinstance(statement, Carried)
    assert (change_of(statement).op, change_of(statement).sql) == (op, ddl)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(-(2**63), 2**63 - 1),
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20, places=5),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.binary(),
)
def test_values_round_trip(number: int, amount: Decimal, text: str, raw: bytes) -> None:
    assert value({"type": "int64"}, number, types=declared("bigint")) == str(number)
    unscaled = int(amount * 10**5)
    packed = unscaled.to_bytes((unscaled.bit_length() + 8) // 8, "big", signed=True)
    found = value({"type": "bytes", "name": DECIMAL, "parameters": {"scale": "5"}}, b64(packed))
    assert Decimal(found) == amount
    assert value({"type": "string"}, text) == text
    assert value({"type": "bytes"}, b64(raw)) == "0x" + raw.hex()


@pytest.mark.parametrize(
    "message",
    [
        envelope("x", None, {"id": 1}, [field("id")]),
        envelope("c", {"id": 1}, {"id": 1}, [field("id")]),
        envelope("u", None, {"id": 1}, [field("id")]),
        envelope("d", None, None, [field("id")]),
        envelope("c", None, {"id": 1}, [field("id")], {**SOURCE, "connector": "oracle"}),
        envelope("c", None, {"id": 1}, [field("id")], key={"other": 1}),
        CarrierMessage(PLACE, None, b'{"id": 1, "name": "flat"}'),
        envelope("c", None, [1], [field("id")]),
        CarrierMessage(PLACE, None, b"[]"),
        CarrierMessage(PLACE, None, b"\x00\x01avro"),
    ],
)
def test_what_cannot_be_decoded_is_a_reject(message: CarrierMessage) -> None:
    (item,) = Debezium().parse(message)
    assert isinstance(item, Reject)
    assert item.value == message.value


shapes = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda part: (
        st.lists(part, max_size=3) | st.dictionaries(st.sampled_from(["id", "fields", "field", "db", "type"]), part)
    ),
    max_leaves=8,
)


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["op", "before", "after", "source", "ddl", "tableChanges", "schema", "payload"]), shapes
    )
)
def test_no_shape_raises(changed: dict[str, Any]) -> None:
    body = {"op": "c", "before": None, "after": {"id": 1}, "source": SOURCE} | changed
    Debezium().parse(CarrierMessage(PLACE, None, json.dumps(body).encode()))


@pytest.mark.parametrize("stamp", [-1, 1 << 63, None, "1"])
def test_a_timestamp_that_tidb_cannot_have_is_a_reject(stamp: Any) -> None:
    source = {**TICDC, "commit_ts": stamp}
    assert isinstance(one(envelope("c", None, {"id": 1}, [field("id")], source)), Reject)
    del source["commit_ts"]
    assert isinstance(one(envelope("c", None, {"id": 1}, [field("id")], source)), Reject)


@pytest.mark.parametrize("scale", ["300", "-300", "9" * 5000, "\u00b2"])
def test_a_decimal_that_no_server_stores_is_a_reject(scale: str) -> None:
    decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}
    assert "scale" in value({**decimal, "parameters": {"scale": scale}}, "AQ==")
    assert "no server stores it" in value({**decimal, "parameters": {"scale": "2"}}, "ab/+" * 2000)

"""Canal-JSON. Messages follow docs.pingcap.com/tidb/stable/ticdc-canal-json ("Definitions of message formats")."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from migverify.changes.carriers.base import Carried, CarrierMessage, MessagePosition, Reject, SourceOrder, Watermark
from migverify.changes.carriers.canal_json import CanalJson
from migverify.changes.carriers.column_text import find_zone
from migverify.changes.decode import count_rows
from migverify.changes.model import Op, Rows
from migverify.changes.positions import tso_position
from migverify.changes.tail import as_text
from tests.carried import change_of

PLACE = MessagePosition("shop", 3, 41)
COMMIT = 429918007904436226


def message(**changed: Any) -> CarrierMessage:
    body = {
        "id": 0,
        "database": "test",
        "table": "tp_int",
        "pkNames": ["id"],
        "isDdl": False,
        "type": "INSERT",
        "es": 1639633141221,
        "ts": 1639633142960,
        "sql": "",
        "sqlType": {"id": 4, "c_bigint": -5},
        "mysqlType": {"id": "int", "c_bigint": "bigint"},
        "data": [{"id": "2", "c_bigint": "9223372036854775807"}],
        "old": None,
        "_tidb": {"commitTs": COMMIT},
    }
    return CarrierMessage(PLACE, None, json.dumps(body | changed).encode(), 7.0)


def one(changed: dict[str, Any], **options: Any) -> Any:
    (item,) = CanalJson(**options).parse(message(**changed))
    return item


def value(mysql_type: str, text: str | None, sql_type: int = 12, **options: Any) -> Any:
    """Return the text of one column value, or the reason of the reject."""
    item = one(
        {
            "mysqlType": {"id": "int", "c": mysql_type},
            "sqlType": {"id": 4, "c": sql_type},
            "data": [{"id": "1", "c": text}],
        },
        **options,
    )
    return item.reason if isinstance(item, Reject) else change_of(item).after["c"]


def test_an_insert_with_the_tidb_extension() -> None:
    item = one({})
    assert isinstance(item, Carried)
    change = change_of(item)
    assert (change.op, change.table, change.before) == (Op.INSERT, "test.tp_int", None)
    assert change.after == {"id": "2", "c_bigint": "9223372036854775807"}
    assert (change.gtid, change.time) == (str(COMMIT), 1640007049.196)
    assert (change.file, change.position) == ("shop/3", 41)
    assert (item.order, item.key, item.sent) == (SourceOrder(tso_position(COMMIT)), (("id", "2"),), 7.0)


def test_without_the_extension_there_is_no_order() -> None:
    body = json.loads(message().value or b"")
    del body["_tidb"]
    (item,) = CanalJson().parse(CarrierMessage(PLACE, None, json.dumps(body).encode()))
    assert isinstance(item, Carried)
    assert (item.order, change_of(item).gtid, change_of(item).time) == (None, "", 1639633141.221)


def test_an_update_with_all_old_columns_and_with_the_changed_ones() -> None:
    full = {"id": "2", "c_bigint": "1"}
    for old in (full, {"c_bigint": "1"}):
        item = one({"type": "UPDATE", "data": [{"id": "2", "c_bigint": "5"}], "old": [old]})
        assert (change_of(item).before, change_of(item).after) == (full, {"id": "2", "c_bigint": "5"})


def test_an_old_null_is_a_value() -> None:
    item = one({"type": "UPDATE", "old": [{"c_bigint": None}]})
    assert change_of(item).before == {"id": "2", "c_bigint": None}


def test_a_delete_of_the_handle_key_alone_has_no_other_column() -> None:
    whole = one({"type": "DELETE"})
    assert (change_of(whole).before, change_of(whole).after) == ({"id": "2", "c_bigint": "9223372036854775807"}, None)
    cut = one({"type": "DELETE", "data": [{"id": "2"}]})
    assert (change_of(cut).before, [column.name for column in cut.event.table.columns]) == ({"id": "2"}, ["id"])


def test_canal_puts_several_rows_into_a_message() -> None:
    items = CanalJson().parse(message(data=[{"id": "1", "c_bigint": "1"}, {"id": "2", "c_bigint": None}]))
    assert [item.index for item in items if isinstance(item, Carried)] == [0, 1]
    assert [item.key for item in items if isinstance(item, Carried)] == [(("id", "1"),), (("id", "2"),)]


def test_statements_and_watermarks() -> None:
    ddl = one(
        {
            "isDdl": True,
            "type": "QUERY",
            "sql": "drop database if exists test",
            "table": "",
            "data": None,
            "sqlType": None,
            "mysqlType": None,
            "pkNames": None,
        }
    )
    found = change_of(ddl)
    assert (found.op, found.sql, found.table) == (Op.DDL, "drop database if exists test", "test.*")
    truncate = one({"isDdl": True, "type": "TRUNCATE", "sql": "truncate table tp_int"})
    assert (change_of(truncate).op, change_of(truncate).table) == (Op.TRUNCATE, "test.tp_int")
    mark = one({"type": "TIDB_WATERMARK", "database": "", "table": "", "_tidb": {"watermarkTs": COMMIT}})
    assert mark == Watermark(COMMIT, PLACE)
    assert mark.time == 1640007049.196


def test_binary_is_the_bytes_of_iso_8859_1() -> None:
    """The example of the page, "Binary and Blob types"."""
    raw = b'{"c": "\\u0005\\u0007\\n\\u000f$2+cx\\u003c\\u0026\xc3\xbf\xc3\xbe-7F"}'
    text = json.loads(raw)["c"]
    assert (
        value("varbinary", text, 2004)
        == "0x0507" + bytes([10, 15, 36, 50, 43, 99, 120, 60, 38, 255, 254, 45, 55, 70]).hex()
    )
    assert "beyond ISO 8859-1" in value("blob", "€", 2004)


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=40), st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_bytes_and_texts_round_trip(raw: bytes, text: str) -> None:
    assert value("varbinary(40)", raw.decode("latin-1"), 2004) == "0x" + raw.hex()
    assert value("varchar", text) == text


@settings(max_examples=40, deadline=None)
@given(st.integers(-(2**63), 2**64 - 1))
def test_integers_round_trip(number: int) -> None:
    assert value("bigint unsigned", str(number), 3) == str(number)


@pytest.mark.parametrize(
    ("mysql_type", "text", "sql_type", "wanted"),
    [
        ("decimal", "129012.1230000", 3, "129012.1230000"),
        ("double", "1000000000000000", 8, "1e15"),
        ("float", "1.2345678", 7, "1.2345678"),
        ("datetime", "2015-12-20 23:58:58.100000", 93, "2015-12-20 23:58:58.100000"),
        ("timestamp", "2026-01-01 09:00:00", 93, "2026-01-01 00:00:00"),
        ("date", "0000-00-00", 91, "0000-00-00"),
        ("time", "-838:59:59.0", 92, "-838:59:59.0"),
        ("year", "1970", 12, "1970"),
        ("json", '{"k": [1, 2]}', 12, '{"k": [1, 2]}'),
        ("enum('a','b')", "2", 4, "b"),
        ("set('a','b')", "3", -7, "a,b"),
        ("enum('1','2')", "1", 12, "1"),
        ("bit(10)", "513", -7, "513"),
        ("int", None, 4, None),
        ("text", "", 2005, ""),
    ],
)
def test_each_type_gives_the_text_of_select(
    mysql_type: str, text: str | None, sql_type: int, wanted: str | None
) -> None:
    assert value(mysql_type, text, sql_type, time_zone=find_zone("+09:00")) == wanted


def test_declared_types_say_what_the_message_leaves_open() -> None:
    assert "state the column's type" in value("enum", "2", 4)
    declared = {"test.tp_int": {"c": "enum('x','y')"}}
    assert value("enum", "2", 4, types=declared) == "y"
    assert "width of a ZEROFILL" in value("int unsigned zerofill", "2", 4)
    assert value("int(4) unsigned zerofill", "2", 4) == "0002"


def test_an_update_of_a_changefeed_without_old_values_has_the_row_after_it_only() -> None:
    item = one({"type": "UPDATE"})
    assert isinstance(item.event, Rows)
    found = change_of(item)
    assert (found.op, found.before, (found.after or {})["id"]) == (Op.UPDATE, None, "2")
    assert "(old values were not sent)  id=" in as_text(found)
    assert count_rows(item.event) == 1
    assert item.key == (("id", "2"),)


def test_a_reject_names_the_table_of_its_rows() -> None:
    assert one({"data": [{"id": "x"}]}).tables == (("test", "tp_int"),)
    assert one({"data": [{"id": "x"}], "database": 7}).tables == ()
    assert one({"isDdl": True, "type": "ODD"}).tables == ()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"_tidb": {"commitTs": COMMIT, "onlyHandleKey": True}}, "only its handle key"),
        ({"_tidb": {"claimCheckLocation": "s3://x"}}, "claim-check"),
        ({"type": "UPSERT"}, "not known"),
        ({"isDdl": True, "type": "ODD", "sql": ""}, "not known"),
        ({"data": None}, "not an array"),
        ({"data": []}, "0 rows"),
        ({"type": "UPDATE", "_tidb": {}}, "without old"),
        ({"data": [{"id": "2", "other": "1"}]}, "no mysqlType"),
        ({"pkNames": ["none"]}, "column 'none' of the key is not in the row"),
        ({"data": [{"id": 2, "c_bigint": "1"}]}, "not a string"),
        ({"data": [{"id": "2.5", "c_bigint": "1"}]}, "no int"),
        ({"mysqlType": {"id": "int", "c_bigint": "geometry"}}, "not known"),
        ({"es": 1.5}, "not an integer"),
        ({"mysqlType": {"id": "int", "c_bigint": "timestamp"}}, "time zone"),
        ({"_tidb": {"commitTs": 1.0}}, "not an integer"),
        ({"database": None}, "not a string"),
    ],
)
def test_what_cannot_be_decoded_is_a_reject_with_its_bytes(changed: dict[str, Any], reason: str) -> None:
    given_message = message(**changed)
    (item,) = CanalJson().parse(given_message)
    assert isinstance(item, Reject)
    assert reason in item.reason
    assert (item.place, item.value) == (PLACE, given_message.value)


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=60) | st.text().map(str.encode) | st.none())
def test_no_bytes_raise(raw: bytes | None) -> None:
    (item,) = CanalJson().parse(CarrierMessage(PLACE, raw, raw))
    assert isinstance(item, Reject)


shapes = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.text(max_size=3)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.sampled_from(["id", "c_bigint", "commitTs"]), part),
    max_leaves=6,
)


@example({"pkNames": False})
@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from(list(json.loads(message().value or b""))), shapes, max_size=3))
def test_no_shape_raises(changed: dict[str, Any]) -> None:
    CanalJson().parse(message(**changed))

"""What the reverse feed encodes, the decoders give back: every type of the corpus, in both formats and all carriers."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.changes.carriers.base import Carried, CarrierMessage, MessagePosition, Parser, Watermark
from migverify.changes.carriers.canal_json import CanalJson
from migverify.changes.carriers.files import MessageFiles, json_lines, open_protocol_events
from migverify.changes.carriers.open_protocol import OpenProtocol
from migverify.changes.carriers.storage_folder import StorageFolder
from migverify.changes.model import Op, Rows, Statement
from migverify.changes.tail import Change
from migverify_lab.feed.canal import CanalEncoder
from migverify_lab.feed.model import CODES, DdlEvent, EncodedMessage, Event, FeedColumn, FeedTable, RowEvent
from migverify_lab.feed.open_protocol import OpenEncoder, escaped
from migverify_lab.feed.outputs import Encoder, FileOutput, StorageOutput
from migverify_lab.museum import TABLES
from tests.carried import change_of

COMMIT = 470754677904900097
LABELS = ("new", "it's", "a b", "N", "é", "😀")


def digits(low: int, high: int) -> st.SearchStrategy[str]:
    return st.integers(low, high).map(str)


def floating(width: int) -> st.SearchStrategy[str]:
    return st.floats(allow_nan=False, allow_infinity=False, width=width).map(lambda value: repr(value + 0.0))  # type: ignore[call-overload]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
BYTES = st.binary(max_size=12).map(lambda raw: "0x" + raw.hex())
MOMENT = st.datetimes().map(lambda value: f"{value.year:04d}{value:-%m-%d %H:%M:%S}")
VALUES: dict[str, st.SearchStrategy[str]] = {
    "tinyint": digits(-128, 127), "tinyint unsigned": digits(0, 255), "smallint": digits(-(1 << 15), (1 << 15) - 1),
    "smallint unsigned": digits(0, (1 << 16) - 1), "mediumint": digits(-(1 << 23), (1 << 23) - 1),
    "mediumint unsigned": digits(0, (1 << 24) - 1), "int": digits(-(1 << 31), (1 << 31) - 1),
    "int unsigned": digits(0, (1 << 32) - 1), "bigint": digits(-(1 << 63), (1 << 63) - 1),
    "bigint unsigned": digits(0, (1 << 64) - 1),
    "decimal(20,4)": st.decimals(-(10**15), 10**15, places=4).map(lambda value: f"{value:f}"),
    "float": floating(32), "double": floating(64), "bit(64)": digits(0, (1 << 64) - 1),
    "date": st.dates().map(str) | st.sampled_from(("0000-00-00", "2024-02-00")), "year": digits(1901, 2155),
    "datetime(6)": MOMENT.map(lambda text: f"{text}.000001") | st.just("0000-00-00 00:00:00.000000"),
    "timestamp": st.datetimes().map(lambda value: f"{value.replace(year=2024, day=1):%Y-%m-%d %H:%M:%S}"),
    "time": st.sampled_from(("-838:59:59", "00:00:00", "100:00:01")),
    **dict.fromkeys(("char(20)", "varchar(40)", "tinytext", "text", "mediumtext", "longtext"), TEXT),
    **dict.fromkeys(("varbinary(40)", "tinyblob", "blob", "mediumblob", "longblob"), BYTES),
    "binary(4)": st.binary(min_size=4, max_size=4).map(lambda raw: "0x" + raw.hex()),
    "enum('" + "','".join(label.replace("'", "''") for label in LABELS) + "')": st.sampled_from((*LABELS, "")),
    "set('" + "','".join(label.replace("'", "''") for label in LABELS) + "')": st.lists(
        st.sampled_from(range(len(LABELS))), unique=True).map(lambda some: ",".join(LABELS[n] for n in sorted(some))),
    "json": st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | TEXT, lambda more: st.lists(more, max_size=3)
                         | st.dictionaries(TEXT, more, max_size=3)).map(lambda value: json.dumps(value)),
}  # fmt: skip


def base_of(kind: str) -> str:
    return re.split(r"[ (]", kind)[0]


COLUMNS = (FeedColumn("id", "bigint", "bigint", nullable=False, in_key=True, primary=True),
           *(FeedColumn(f"c{n}", base_of(kind), kind, charset="utf8mb4") for n, kind in enumerate(VALUES)))  # fmt: skip
TABLE = FeedTable.of("shop", "types", COLUMNS)
ROWS = st.tuples(digits(1, 9), *(st.none() | values for values in VALUES.values()))
TYPES = {"shop.types": TABLE.types}
FORMATS: list[tuple[Encoder, Parser]] = [
    (CanalEncoder(), CanalJson(TYPES, UTC)), (CanalEncoder("changed", full_types=True), CanalJson({}, UTC)),
    (OpenEncoder(), OpenProtocol(TYPES, UTC)), (OpenEncoder("changed"), OpenProtocol(TYPES, UTC)),
]  # fmt: skip
PLACE = MessagePosition("t", 0, 0)


def decoded(parser: Parser, messages: Sequence[EncodedMessage]) -> list[object]:
    return [item for one in messages for item in parser.parse(CarrierMessage(PLACE, one.key, one.value))]


def change(item: object) -> Change:
    assert isinstance(item, Carried), item
    return change_of(item)


def single(text: str | None) -> bytes | None:
    return None if text is None else struct.pack("<f", float(text))


def assert_same(image: object, row: Sequence[str | None]) -> None:
    assert isinstance(image, dict)
    assert image.keys() == {column.name for column in COLUMNS}
    for column, text in zip(COLUMNS, row, strict=True):
        value = image[column.name]
        if column.base == "float":  # SELECT gives six digits of some, and so do the decoders
            assert (value is None) == (text is None), column
            assert value is None or float(value) == pytest.approx(float(str(text)), rel=1e-5, abs=1e-45), column
        elif column.base == "double":
            assert (None if value is None else float(value)) == (None if text is None else float(text)), column
        else:
            assert value == text, column


def test_every_type_of_the_corpus_is_tried() -> None:
    kinds = {kind for table in TABLES for kind in re.findall(r"`\w+` (\w+)", table.ddl_target.lower())}
    aliases = {"bool": "tinyint", "boolean": "tinyint", "numeric": "decimal", "integer": "int"}
    assert {aliases.get(kind, kind) for kind in kinds} <= {base_of(kind) for kind in VALUES}
    assert {base_of(kind) for kind in VALUES} == set(CODES)


@pytest.mark.parametrize(("encoder", "parser"), FORMATS, ids=["canal", "canal-compatible", "open", "open-changed"])
@given(before=ROWS, after=ROWS)
def test_the_decoder_gives_back_the_texts(
    encoder: Encoder, parser: Parser, before: tuple[str | None, ...], after: tuple[str | None, ...]
) -> None:
    after = (before[0], *after[1:])
    events = [RowEvent(TABLE, COMMIT, None, before), RowEvent(TABLE, COMMIT + 1, before, after),
              RowEvent(TABLE, COMMIT + 2, after, None)]  # fmt: skip
    inserted, updated, deleted = map(change, decoded(parser, encoder.batch(events)))
    assert (inserted.op, updated.op, deleted.op) == (Op.INSERT, Op.UPDATE, Op.DELETE)
    assert_same(inserted.after, before)
    assert_same(updated.before, before)
    assert_same(updated.after, after)
    assert_same(deleted.before, after)
    assert [item.order.position.offset for item in decoded(parser, encoder.batch(events))  # type: ignore[attr-defined]
            ] == [COMMIT, COMMIT + 1, COMMIT + 2]  # fmt: skip


@given(raw=st.binary(max_size=40))
def test_a_byte_string_is_escaped_so_that_it_can_be_read_back(raw: bytes) -> None:
    column = FeedColumn("b", "varbinary", "varbinary(40)")
    table = FeedTable.of("shop", "b", (COLUMNS[0], column))
    event = RowEvent(table, COMMIT, None, ("1", "0x" + raw.hex()))
    (item,) = decoded(OpenProtocol(), OpenEncoder().batch([event]))
    assert change(item).after == {"id": "1", "b": "0x" + raw.hex()}


def test_byte_strings_look_as_the_page_shows_them() -> None:
    assert escaped(b"\x89PNG\r\n\x1a\n") == r"\x89PNG\r\n\x1a\n"
    column = FeedColumn("c_varbinary", "varbinary", "varbinary(16)")
    raw = bytes([5, 7, 10, 15, 36, 50, 43, 99, 120, 60, 38, 255, 254, 45, 55, 70])
    event = RowEvent(FeedTable.of("t", "t", (COLUMNS[0], column)), COMMIT, None, ("1", "0x" + raw.hex()))
    value = CanalEncoder().batch([event])[0].value or b""
    assert '"c_varbinary":"\\u0005\\u0007\\n\\u000f$2+cx\\u003c\\u0026ÿþ-7F"'.encode() in value


def test_old_values_off_leave_keys() -> None:
    row, later = ("1", *[None] * len(VALUES)), ("1", "5", *[None] * (len(VALUES) - 1))
    events = [RowEvent(TABLE, COMMIT, row, later), RowEvent(TABLE, COMMIT, later, None)]
    updated, deleted = map(change, decoded(OpenProtocol(TYPES, UTC), OpenEncoder("off").batch(events)))
    assert updated.op is Op.INSERT
    assert deleted.before == {"id": "1"}
    (deleted_canal,) = decoded(CanalJson(TYPES, UTC), CanalEncoder("off", key_only_deletes=True).batch(events[1:]))
    assert change(deleted_canal).before == {"id": "1"}


def test_the_codes_of_integers_follow_the_value() -> None:
    columns = [COLUMNS[0], FeedColumn("u", "int", "int unsigned"), FeedColumn("b", "bigint", "bigint unsigned")]
    table = FeedTable.of("shop", "n", columns)
    codes = [
        json.loads(CanalEncoder().batch([RowEvent(table, COMMIT, None, row)])[0].value or b"")["sqlType"]
        for row in (("1", "2147483647", "9223372036854775807"), ("1", "2147483648", "9223372036854775808"))
    ]
    assert codes == [{"id": -5, "u": 4, "b": -5}, {"id": -5, "u": -5, "b": 3}]


STREAM: list[Event] = [
    RowEvent(TABLE, COMMIT, None, ("1", *[None] * len(VALUES))),
    DdlEvent("shop", "types", "ALTER TABLE shop.types ADD COLUMN x INT", COMMIT + 1, 5),
    *(RowEvent(TABLE, COMMIT + 2, None, (str(number), *[None] * len(VALUES))) for number in range(2, 40)),
]


@pytest.mark.parametrize("name", ["canal-json", "open-protocol"])
def test_files_hold_rows_statements_and_watermarks_in_their_order(name: str, tmp_path: Path) -> None:
    encoder: Encoder = CanalEncoder() if name == "canal-json" else OpenEncoder()
    parser: Parser = CanalJson(TYPES, UTC) if name == "canal-json" else OpenProtocol(TYPES, UTC)
    output = FileOutput(encoder, tmp_path, 2)
    output.send(1, STREAM)
    output.resolve(COMMIT + 3)
    output.close()
    split = json_lines if name == "canal-json" else open_protocol_events
    first, second = (list(MessageFiles([path], parser, split).read()) for path in output.paths)
    assert [type(item) for item in first] == [Watermark]
    assert len(second) == len(STREAM) + 1
    kinds = [type(item.event) for item in second[:-1] if isinstance(item, Carried)]
    assert kinds == [Rows, Statement, *[Rows] * 38]
    mark = second[-1]
    assert isinstance(mark, Watermark)
    assert mark.complete_to == COMMIT + 3


def test_the_storage_sink_is_read_back(tmp_path: Path) -> None:
    output = StorageOutput(CanalEncoder(), tmp_path, COMMIT - 5)
    output.send(0, STREAM)
    output.resolve(COMMIT + 3)
    items = list(StorageFolder(tmp_path, CanalJson(TYPES, UTC)).read())
    assert [type(item.event) for item in items[:-1] if isinstance(item, Carried)] == [Rows, Statement, *[Rows] * 38]
    mark = items[-1]
    assert isinstance(mark, Watermark)
    assert (mark.complete_to, mark.everywhere) == (COMMIT + 3, True)
    folder = tmp_path / "shop" / "types"
    assert (folder / str(COMMIT - 5) / "CDC000001.json").exists()
    assert (folder / str(COMMIT + 1) / "meta" / "CDC.index").read_text() == "CDC000001.json\n"
    schema = json.loads(next((folder / "meta").glob(f"schema_{COMMIT - 5}_*.json")).read_text())
    assert schema["TableColumns"][0] == {
        "ColumnName": "id", "ColumnType": "BIGINT", "ColumnNullable": "false", "ColumnIsPk": "true"
    }  # fmt: skip

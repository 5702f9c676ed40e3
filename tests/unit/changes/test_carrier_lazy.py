"""Rows that are decoded only where a column is wanted hold exactly what a message decoded whole holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.changes.carriers.base import (
    Carried,
    CarriedItem,
    CarriedRow,
    CarrierMessage,
    MessagePosition,
    Parser,
    Reject,
)
from migverify.changes.carriers.canal_json import CanalJson
from migverify.changes.carriers.lazy import FEWEST
from migverify.changes.carriers.open_protocol import OpenProtocol
from migverify.changes.decode import decoder
from migverify.changes.model import AfterImages, Op, Rows
from migverify.errors import ChangeError

NAMES = ("id", "name", "note", "t", "h")
TEXT = st.text(st.sampled_from('a"\\:{},[]}\n\u2028éid <\x07"},{"id":"7"'), max_size=12) | st.sampled_from(
    ['"id":"5"', ',"_tidb":{"commitTs":1}}', '}],"data":[{"id":"9"', '{"id":{"t":8,"v":3}}', "\\u0069d"]
)


def canal(
    op: str, row: dict[str, Any], old: Any, *, spaces: bool = False, ascii_only: bool = False, old_first: bool = True
) -> bytes:
    rows = {"old": old, "data": [row]} if old_first else {"data": [row], "old": old}
    body = {
        "id": 0, "database": "d", "table": "t", "pkNames": ["id"], "isDdl": False, "type": op, "es": 17, "ts": 18,
        "sql": "", "sqlType": dict.fromkeys(NAMES, 12) | {"id": -5},
        "mysqlType": dict.fromkeys(NAMES, "varchar(50)") | {"id": "bigint"}, **rows,
        "_tidb": {"commitTs": 9},
    }  # fmt: skip
    return json.dumps(body, ensure_ascii=ascii_only, separators=None if spaces else (",", ":")).encode()


def part(raw: bytes) -> bytes:
    return len(raw).to_bytes(8, "big") + raw


def opened(
    row: dict[str, Any], old: dict[str, Any] | None, shape: str, names: Sequence[str] = NAMES
) -> tuple[bytes, bytes]:
    def columns(given: dict[str, Any]) -> dict[str, Any]:
        return {name: {"t": 8, "h": True, "f": 11, "v": None if value is None else int(value)} if name == "id" else
                {"t": 15, "f": 64, "v": value} for name, value in given.items()}  # fmt: skip

    value: dict[str, Any] = {shape: columns({name: row[name] for name in names})}
    if old is not None:
        value["p"] = columns({name: old[name] for name in names})
    key = (1).to_bytes(8, "big") + part(b'{"ts":9,"scm":"d","tbl":"t","t":1}')
    return key, part(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def texts(items: Sequence[CarriedItem], columns: Sequence[str]) -> Any:
    """(operation, whether the row before is missing, images), or the reason why not."""
    (item,) = items
    if isinstance(item, Reject):
        return "reject"
    assert isinstance(item, Carried | CarriedRow)
    event = item.event if isinstance(item, Carried) else item
    assert isinstance(event, Rows | CarriedRow)
    try:
        images = decoder(event.table, tuple(columns)).texts(event.images)
    except ChangeError:
        return "reject"
    return event.op, isinstance(event.table, AfterImages), images


def learned(parser: Parser, *messages: tuple[bytes | None, bytes]) -> Parser:
    for key, value in messages:
        for number in range(FEWEST):
            (item,) = parser.items(key, value, "f", 0, number)
        assert isinstance(item, CarriedRow)
    return parser


ROW = {"id": "1", "name": "n", "note": "x", "t": "y", "h": "z"}
ROWS = st.fixed_dictionaries(
    {"id": st.integers(-(2**63), 2**63 - 1).map(str), **dict.fromkeys(NAMES[1:], TEXT | st.none())}
)


@settings(max_examples=400, deadline=None)
@given(
    ROWS, ROWS, st.sampled_from(["INSERT", "UPDATE", "DELETE", "CHANGED", "AFTER"]), st.booleans(), st.booleans(),
    st.booleans(), st.sampled_from([("id",), ("name", "id"), NAMES]),
)  # fmt: skip
def test_canal_json(
    row: dict[str, Any], old: dict[str, Any], kind: str, spaces: bool, ascii_only: bool, old_first: bool,
    wanted: Sequence[str],
) -> None:  # fmt: skip
    op = kind if kind in ("INSERT", "DELETE") else "UPDATE"
    sent = {"UPDATE": [old], "CHANGED": [{"name": old["name"]}]}.get(kind)
    value = canal(op, row, sent, spaces=spaces, ascii_only=ascii_only, old_first=old_first)
    samples = [(None, canal(one, ROW, None, old_first=old_first)) for one in ("INSERT", "UPDATE", "DELETE")]
    parser = learned(CanalJson(keys_only=True), *samples)
    assert texts(parser.items(None, value, "f", 0, 1), wanted) == texts(
        CanalJson().items(None, value, "f", 0, 1), wanted
    )


KEY = {"at": "datetime(3)", "day": "date", "price": "decimal(9,2)", "code": "varchar(9)", "hash": "varbinary(9)"}
KEYS = st.fixed_dictionaries({
    "at": st.sampled_from(["2026-01-02 03:04:05.600", "0000-00-00 00:00:00.000", "2026-01-02 03:04:05", "soon"]),
    "day": st.sampled_from(["2026-01-02", "0000-00-00", ""]) | st.none(),
    "price": st.sampled_from(["1.50", "-0.00", "1e3", "1"]),
    "code": TEXT,
    "hash": st.sampled_from(["\xff", "a", "\u0100", ""]),
})  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(KEYS, KEYS, st.sampled_from(["INSERT", "UPDATE", "CHANGED"]), st.permutations(list(KEY)), st.integers(1, 5))
def test_keys_of_several_columns(
    key: dict[str, Any], old: dict[str, Any], kind: str, wanted: Sequence[str], count: int
) -> None:
    def message(op: str, row: dict[str, Any], before: Any) -> bytes:
        body = json.loads(canal(op, ROW | row, before))
        body |= {"pkNames": list(KEY), "mysqlType": body["mysqlType"] | KEY}
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()

    usual = {"at": "2026-01-02 03:04:05.600", "day": "2026-01-02", "price": "1.50", "code": "x", "hash": "a"}
    parser = learned(CanalJson(keys_only=True), (None, message("INSERT", usual, None)))
    learned(parser, (None, message("UPDATE", usual, [ROW | usual])))
    sent = {"UPDATE": [ROW | old], "CHANGED": [{"code": old["code"]}]}.get(kind)
    value = message("INSERT" if kind == "INSERT" else "UPDATE", key, sent)
    columns = wanted[:count]
    assert texts(parser.items(None, value, "f", 0, 1), columns) == texts(
        CanalJson(keys_only=True).items(None, value, "f", 0, 1), columns
    )


@settings(max_examples=400, deadline=None)
@given(ROWS, ROWS, st.sampled_from(["u", "d", "up"]), st.sampled_from([("id",), ("name", "id"), NAMES]))
def test_open_protocol(row: dict[str, Any], old: dict[str, Any], kind: str, wanted: Sequence[str]) -> None:
    key, value = opened(row, old if kind == "up" else None, kind[0])
    parser = learned(OpenProtocol(keys_only=True), opened(ROW, None, "u"))
    assert texts(parser.items(key, value, "f", 0, 1), wanted) == texts(
        OpenProtocol().items(key, value, "f", 0, 1), wanted
    )


@pytest.mark.parametrize("old_first", [True, False])
def test_most_messages_are_not_decoded(old_first: bool) -> None:
    message = partial(canal, old_first=old_first)
    parser = learned(CanalJson(keys_only=True), (None, message("INSERT", ROW, None)))
    assert parser.row(None, message("INSERT", ROW | {"note": 'a "quote"'}, None), "f", 0, 1) is not None
    assert parser.row(None, message("DELETE", ROW, None), "f", 0, 1) is None
    learned(parser, (None, message("UPDATE", ROW, [ROW])))
    assert parser.row(None, message("UPDATE", ROW, [ROW]), "f", 0, 1) is not None
    opener = learned(OpenProtocol(keys_only=True), opened(ROW, ROW, "u"), opened(ROW, None, "d"))
    for given_message in (opened(ROW, None, "u"), opened(ROW, ROW, "u"), opened(ROW, None, "d")):
        assert opener.row(*given_message, "f", 0, 1) is not None


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw.replace(b'"commitTs":9', b'"commitTs":9.5'),
        lambda raw: raw.replace(b'"commitTs":9', b'"commitTs":9,"onlyHandleKey":true'),
        lambda raw: raw.replace(b'"bigint"', b'"bigint unsigned"'),
        lambda raw: raw.replace(b'"id":"1"', b'"id":"1","id":"2"'),
        lambda raw: raw.replace(b'"id":"1"', b'"id":"1","\\u0069d":"2"'),
        lambda raw: raw.replace(b'"id":"1"', b'"id":1'),
        lambda raw: raw.replace(b'"id":"1"', b'"id":"one"'),
        lambda raw: raw.replace(b'"id":"1",', b""),
        lambda raw: raw.replace(b'"id":"1"', b'"id":"\\ud800"'),
        lambda raw: raw.replace(b'"id":"1"', b'"id":"1\\u0032"'),
        lambda raw: raw.replace(b'"data":[{', b'"data":[{"id":"4","name":"m","note":"","t":"","h":""},{'),
        lambda raw: raw.replace(b'"es":17', b'"es":"17"'),
        lambda raw: raw[:-40],
        lambda raw: raw[:-1],
    ],
)
def test_what_is_unusual_is_decoded_as_ever(damage: Any) -> None:
    parser = learned(CanalJson(keys_only=True), (None, canal("INSERT", ROW, None)))
    raw = damage(canal("INSERT", ROW, None))
    exact = CanalJson(keys_only=True).parse(CarrierMessage(MessagePosition("f", 0, 1), None, raw))
    found = parser.items(None, raw, "f", 0, 1)
    assert [texts([item], ("id",)) for item in found] == [texts([item], ("id",)) for item in exact]


@pytest.mark.parametrize("identifier", ["one", "", "\ud800"])
def test_a_key_that_cannot_be_decoded_is_a_reject_at_once(identifier: str) -> None:
    parser = learned(CanalJson(keys_only=True), (None, canal("INSERT", ROW, None)))
    raw = canal("INSERT", ROW | {"id": identifier}, None, ascii_only=True)
    assert isinstance(parser.items(None, raw, "f", 0, 1)[0], Reject)
    key, value = opened(ROW, None, "u")
    opener = learned(OpenProtocol(keys_only=True), (key, value))
    damaged = value[8:].replace(b'"v":1}', b'"v":1.5}')
    assert isinstance(opener.items(key, part(damaged), "f", 0, 1)[0], Reject)


def test_a_column_that_looks_like_the_row_before_is_none() -> None:
    names = ("id", "p")
    row = {"id": "1", "p": "x"}
    parser = OpenProtocol(keys_only=True)
    for old in (None, {"id": "1", "p": "y"}):
        key, value = opened(row, old, "u", names)
        items = learned(parser, (key, value)).items(key, value, "f", 0, 0)
        assert isinstance(items[0], CarriedRow)
        assert texts(items, names) == texts(OpenProtocol().items(key, value, "f", 0, 0), names)


def test_rare_messages_get_no_pattern() -> None:
    """A pattern takes as long to make as many messages to decode: ten thousand tables would take a minute."""
    parser = CanalJson(keys_only=True)
    for _ in range(FEWEST - 1):
        assert isinstance(parser.items(None, canal("INSERT", ROW, None), "f", 0, 0)[0], Carried)
    assert not parser.templates


@pytest.mark.parametrize("declared", ["bigint", "bigint(20) unsigned", "bigint(6) unsigned zerofill"])
def test_a_declared_type_of_the_key_changes_no_text(declared: str) -> None:
    types = {"d.t": {"id": declared}}
    key, value = opened(ROW, None, "u")
    parser = OpenProtocol(types, keys_only=True)
    for _ in range(FEWEST + 1):
        items = parser.items(key, value, "f", 0, 1)
        assert texts(items, ("id",)) == texts(OpenProtocol(types).items(key, value, "f", 0, 1), ("id",))
    assert isinstance(items[0], Carried if "zerofill" in declared else CarriedRow)


def test_a_statement_makes_columns_unknown() -> None:
    parser = learned(OpenProtocol(keys_only=True), opened(ROW, None, "u"))
    key = (1).to_bytes(8, "big") + part(b'{"ts":10,"scm":"d","tbl":"t","t":2}')
    parser.items(key, part(b'{"q":"ALTER TABLE t DROP note","t":4}'), "f", 0, 1)
    assert parser.row(*opened(ROW, None, "u"), "f", 0, 2) is None


def test_an_update_of_two_rows_of_one_transaction_keeps_pairs() -> None:
    from migverify.changes.carriers.committed import CommittedChanges
    from tests.unit.changes.test_carrier_follow import Messages, mark

    parser = learned(CanalJson(keys_only=True), (None, canal("UPDATE", ROW, [ROW])))
    messages = [
        parser.items(None, canal("UPDATE", ROW | {"id": str(n)}, [{"name": "o"}]), "t", 0, n)[0] for n in (1, 2)
    ]
    (rows,) = [item for item in CommittedChanges(Messages([*messages, mark(20)])).items() if isinstance(item, Rows)]
    assert rows.op is Op.UPDATE
    assert decoder(rows.table, ("id", "name")).texts(rows.images) == [("1", "o"), ("1", "n"), ("2", "o"), ("2", "n")]


HUGE = "9" * 5000


@pytest.mark.parametrize("stamp", ["-1", "9223372036854775808", HUGE])
def test_a_timestamp_that_tidb_cannot_have_is_a_reject(stamp: str) -> None:
    value = canal("INSERT", ROW, None).replace(b'"commitTs":9}', f'"commitTs":{stamp}}}'.encode())
    parser = learned(CanalJson(keys_only=True), (None, canal("INSERT", ROW, None)))
    mark = f'{{"type":"TIDB_WATERMARK","es":1,"_tidb":{{"watermarkTs":{stamp}}}}}'.encode()
    for message in (value, mark):
        assert isinstance(parser.items(None, message, "f", 0, 1)[0], Reject)
        assert isinstance(CanalJson().items(None, message, "f", 0, 1)[0], Reject)
    key, row = opened(ROW, None, "u")
    event_parser = learned(OpenProtocol(keys_only=True), (key, row))
    for kind in (1, 3):
        late = key[:8] + part(f'{{"ts":{stamp},"scm":"d","tbl":"t","t":{kind}}}'.encode())
        assert isinstance(event_parser.items(late, row, "f", 0, 1)[0], Reject)
        assert isinstance(OpenProtocol().items(late, row, "f", 0, 1)[0], Reject)


def test_the_last_timestamp_of_tidb_is_one() -> None:
    last = canal("INSERT", ROW, None).replace(b'"commitTs":9}', b'"commitTs":9223372036854775807}')
    parser = learned(CanalJson(keys_only=True), (None, canal("INSERT", ROW, None)))
    (item,) = parser.items(None, last, "f", 0, 1)
    assert isinstance(item, Carried)
    assert item.order is not None
    assert item.order.position.offset == 2**63 - 1


@pytest.mark.parametrize("number", [HUGE, "1" * 21, "-" + HUGE])
def test_an_integer_that_no_column_holds_is_a_reject(number: str) -> None:
    value = canal("INSERT", ROW | {"id": number}, None)
    parser = learned(CanalJson(keys_only=True), (None, canal("INSERT", ROW, None)))
    assert isinstance(parser.items(None, value, "f", 0, 1)[0], Reject)
    key, row = opened(ROW, None, "u")
    huge = part(row[8:].replace(b'"v":1}', f'"v":{number}}}'.encode()))
    event_parser = learned(OpenProtocol(keys_only=True), (key, row))
    assert isinstance(event_parser.items(key, huge, "f", 0, 1)[0], Reject)
    assert isinstance(OpenProtocol().items(key, huge, "f", 0, 1)[0], Reject)

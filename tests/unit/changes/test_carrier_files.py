"""Messages in files, the folder of TiCDC's storage sink, and dead letters."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.changes.carriers.base import Carried, CarrierMessage, MessagePosition, Reject, Watermark
from migverify.changes.carriers.canal_json import CanalJson
from migverify.changes.carriers.dead_letters import DeadLetterFile
from migverify.changes.carriers.files import MessageFiles, json_lines, open_protocol_events
from migverify.changes.carriers.formats import CarrierFormat, read_types
from migverify.changes.carriers.open_protocol import OpenProtocol
from migverify.changes.carriers.sequence import OrderTracker
from migverify.changes.carriers.storage_folder import StorageFolder
from migverify.changes.model import Op
from migverify.errors import ChangeError, ConfigError, StoreError, UsageError
from tests.carried import change_of


def line(number: int, commit: int = 5 << 18) -> bytes:
    body = {
        "database": "d",
        "table": "t",
        "pkNames": ["id"],
        "isDdl": False,
        "type": "INSERT",
        "es": 1,
        "sqlType": {"id": 4},
        "mysqlType": {"id": "int"},
        "data": [{"id": str(number)}],
        "old": None,
        "_tidb": {"commitTs": commit},
    }
    return json.dumps(body).encode() + b"\r\n"


def ids(items: Any) -> list[str]:
    return [(change_of(item).after or {})["id"] if isinstance(item, Carried) else type(item).__name__ for item in items]


def test_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.json"
    path.write_bytes(line(0) + b"\n" + line(1) + b"broken\n" + line(2)[:-2])
    found = list(MessageFiles([path], CanalJson(), json_lines).read())
    assert ids(found) == ["0", "1", "Reject", "2"]
    assert [item.place.offset for item in found] == [0, 1, 2, 3]
    with pytest.raises(ChangeError, match="cannot read"):
        list(MessageFiles([tmp_path / "none"], CanalJson(), json_lines).read())


def part(raw: bytes) -> bytes:
    return len(raw).to_bytes(8, "big") + raw


def event(number: int) -> bytes:
    key = json.dumps({"ts": 5 << 18, "scm": "d", "tbl": "t", "t": 1}).encode()
    return part(key) + part(json.dumps({"u": {"id": {"t": 3, "f": 11, "v": number}}}).encode())


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 200))
def test_an_open_protocol_file_cut_anywhere(cut: int) -> None:
    from tempfile import TemporaryDirectory

    whole = (1).to_bytes(8, "big") + event(0) + event(1)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "batch"
        path.write_bytes(whole[:cut])
        found = ids(MessageFiles([path], OpenProtocol(), open_protocol_events).read())
    ends = {8: [], 8 + len(event(0)): ["0"]}
    if cut >= len(whole):
        assert found == ["0", "1"]
    elif cut in ends:
        assert found == ends[cut]
    else:
        assert found == [*(["0"] if cut > 8 + len(event(0)) else []), "Reject"]


def storage(root: Path) -> None:
    """The layout of docs.pingcap.com/tidb/stable/ticdc-sink-to-cloud-storage, "Storage path structure"."""
    table = root / "d" / "t"
    for version, query, kind in ((100, "CREATE TABLE t ...", 3), (200, "TRUNCATE TABLE t", 11), (300, "", 0)):
        schema = {"Table": "t", "Schema": "d", "Version": 1, "TableVersion": version, "Query": query, "Type": kind}
        (table / "meta").mkdir(parents=True, exist_ok=True)
        (table / "meta" / f"schema_{version}_77.json").write_text(json.dumps(schema))
        day = table / str(version) / "2026-01-02"
        (day / "meta").mkdir(parents=True)
        (day / "meta" / "CDC.index").write_text("CDC000002.json\n")
        for number in (1, 2):
            (day / f"CDC{number:06d}.json").write_bytes(line(version + number))
    (root / "d" / "meta").mkdir()
    schema = {"Table": "", "Schema": "d", "Version": 1, "TableVersion": 50, "Query": "CREATE DATABASE d", "Type": 1}
    (root / "d" / "meta" / "schema_50_1.json").write_text(json.dumps(schema))
    (root / "metadata").write_text('{"checkpoint-ts": 433305438660591626}')


def test_the_folder_of_the_storage_sink(tmp_path: Path) -> None:
    storage(tmp_path)
    items = list(StorageFolder(tmp_path, CanalJson()).read())
    changes = [
        (found.op, found.sql or (found.after or {})["id"])
        if isinstance(item, Carried) and (found := change_of(item))
        else item
        for item in items
    ]
    assert changes == [
        (Op.DDL, "CREATE DATABASE d"),
        (Op.DDL, "CREATE TABLE t ..."),
        (Op.INSERT, "101"),
        (Op.INSERT, "102"),
        (Op.TRUNCATE, "TRUNCATE TABLE t"),
        (Op.INSERT, "201"),
        (Op.INSERT, "202"),
        (Op.INSERT, "301"),
        (Op.INSERT, "302"),
        Watermark(433305438660591626, MessagePosition(str(tmp_path / "metadata"), 0, 0), everywhere=True),
    ]
    order = OrderTracker()
    for item in items:
        order.see(item)
    assert order.completeness().complete_to == 433305438660591626
    assert order.counts.offset_gaps == 0


def test_a_folder_with_holes_is_not_read(tmp_path: Path) -> None:
    storage(tmp_path)
    (tmp_path / "d" / "t" / "200" / "2026-01-02" / "CDC000001.json").unlink()
    with pytest.raises(ChangeError, match="no file number 1"):
        list(StorageFolder(tmp_path, CanalJson()).read())
    (tmp_path / "metadata").unlink()
    with pytest.raises(ChangeError, match="gives no checkpoint"):
        list(StorageFolder(tmp_path, CanalJson()).read())


def letter(offset: int) -> Reject:
    return Reject(f"reason {offset}", MessagePosition("t", 0, offset), None, b"\xff" * offset)


def test_dead_letters_are_kept_once_and_survive_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "letters" / "dead.jsonl"
    letters = DeadLetterFile(path)
    assert letters.add([letter(1), letter(2), letter(1)]) == 2
    assert letters.add([letter(2)]) == 0
    assert path.stat().st_mode & 0o777 == 0o600
    raw = path.read_bytes()
    for cut in (raw + raw[:30], raw[:-1]):
        path.write_bytes(cut)
        again = DeadLetterFile(path)
        assert again.add([letter(2), letter(3)]) == (1 if cut != raw[:-1] else 2)
        assert list(DeadLetterFile(path).read()) == [letter(1), letter(2), letter(3)]
    assert "xff" not in repr(letter(3))


def test_dead_letters_have_a_bound_and_refuse_foreign_files(tmp_path: Path) -> None:
    few = DeadLetterFile(tmp_path / "few", most=2)
    few.add([letter(1), letter(2)])
    with pytest.raises(ChangeError, match="more than 2 messages"):
        few.add([letter(3)])
    (tmp_path / "foreign").write_text('{"topic": 3}\n')
    with pytest.raises(StoreError, match="line 1"):
        DeadLetterFile(tmp_path / "foreign")
    if os.geteuid() != 0:
        (tmp_path / "few").chmod(0)
        with pytest.raises(StoreError, match="cannot open"):
            DeadLetterFile(tmp_path / "few")


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=50) | st.none(), st.binary(max_size=50) | st.none(), st.text())
def test_a_dead_letter_keeps_its_bytes(key: bytes | None, value: bytes | None, reason: str) -> None:
    from tempfile import TemporaryDirectory

    kept = Reject(reason, MessagePosition("t\n", 7, 2**40), key, value)
    with TemporaryDirectory() as folder:
        DeadLetterFile(Path(folder) / "d").add([kept])
        assert list(DeadLetterFile(Path(folder) / "d").read()) == [kept]


def test_formats_by_name(tmp_path: Path) -> None:
    for name in ("canal-json", "open-protocol", "debezium"):
        assert (
            CarrierFormat(name, time_zone="+09:00")
            .parser()
            .parse(CarrierMessage(MessagePosition("t", 0, 0), None, b"x"))
        )
    with pytest.raises(UsageError, match="no format 'avro'"):
        CarrierFormat("avro").parser()
    with pytest.raises(UsageError, match="no binary handling"):
        CarrierFormat("debezium", binary="octal").parser()
    with pytest.raises(ConfigError, match="no time zone"):
        CarrierFormat("canal-json", time_zone="Mars/North").parser()
    with pytest.raises(ConfigError, match=r"the type of d\.t\.c"):
        CarrierFormat("canal-json", {"d.t": {"c": "enum(1)"}}).parser()
    path = tmp_path / "types.json"
    for text, reason in (
        ("[]", "holds no column types"),
        ("{", "is no JSON"),
        ('{"t": {"c": 1}}', "holds no column types"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=reason):
            read_types(path)
    path.write_text('{"d.t": {"c": "bit(3)"}}')
    assert read_types(path) == {"d.t": {"c": "bit(3)"}}
    with pytest.raises(ConfigError, match="cannot read"):
        read_types(tmp_path / "none")

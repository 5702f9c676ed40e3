"""``changes tail`` and ``changes audit`` of a carrier at the terminal: output, exit codes, one clear error each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from migverify.cli.main import run

BASE = 430_000_000_000_000_000


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def message(**changed: Any) -> bytes:
    body = {
        "id": 0, "database": "d", "table": "t", "pkNames": ["id"], "isDdl": False, "type": "INSERT", "es": 1, "ts": 1,
        "sql": "", "sqlType": {"id": 4}, "mysqlType": {"id": "int"}, "old": None, "data": [{"id": "1"}],
    }  # fmt: skip
    return json.dumps(body | changed).encode() + b"\n"


def row(number: int, commit: int, **changed: Any) -> bytes:
    return message(data=[{"id": str(number)}], _tidb={"commitTs": BASE + commit}, **changed)


def mark(complete_to: int) -> bytes:
    return message(type="TIDB_WATERMARK", _tidb={"watermarkTs": BASE + complete_to})


def events(*lines: bytes) -> str:
    Path("events.json").write_bytes(b"".join(lines))
    return "events.json"


READ = ("--format", "canal-json", "--file", "events.json")


def test_tail_prints_what_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    events(row(2, 20), row(1, 10), row(1, 25, type="UPDATE"), mark(30), row(3, 40))
    assert run(["changes", "tail", *READ, "--json"]) == 0
    shown = capsys.readouterr()
    lines = [json.loads(line) for line in shown.out.splitlines()]
    assert [(one["op"], one["before"], one["after"]["id"], one["gtid"]) for one in lines] == [
        ("insert", None, "1", str(BASE + 10)), ("insert", None, "2", str(BASE + 20)),
        ("update", None, "1", str(BASE + 25)),
    ]  # fmt: skip
    assert "1 changes are newer than the last watermark" in shown.err
    assert run(["changes", "tail", *READ, "--since", f"tso:{BASE + 20}"]) == 0
    assert "(old values were not sent)  id=" in capsys.readouterr().out


def test_audit_proves_a_range(capsys: pytest.CaptureFixture[str]) -> None:
    ddl = message(isDdl=True, type="ALTER", sql="ALTER TABLE t ADD n INT", _tidb={"commitTs": BASE + 15})
    events(row(1, 10), row(2, 10), ddl, row(1, 20, type="DELETE"), mark(30), row(3, 40))
    assert run(["changes", "audit", *READ]) == 0
    text = capsys.readouterr().out
    assert "d.t: 2 insert, 1 delete" in text
    assert "ALTER TABLE t ADD n INT" in text
    assert text.endswith("MATCH\n")
    assert run(["changes", "audit", *READ, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["transactions"], found["unfinished"]) == ("MATCH", 3, 1)
    assert (found["first"], found["last"], found["complete_to"]) == (BASE + 10, BASE + 20, BASE + 30)


@pytest.mark.parametrize(
    ("lines", "options", "reason"),
    [
        ([row(1, 10), mark(30), row(2, 20), mark(40)], (), "after a watermark that excluded it"),
        ([row(1, 10), mark(30), mark(20)], (), "comes after one of"),
        ([row(1, 10), b'{"half": \n', mark(20)], (), "cannot be decoded"),
        ([row(1, 10)], (), "without a watermark"),
        ([row(1, 10), mark(20)], ("--since", str(BASE)), "the first timestamp of the messages is"),
        ([message(), mark(20)], (), "names no commit timestamp"),
        ([b"\0\0\0\0\0\0\0\1\0\0\0"], (), "the messages are open-protocol"),
        ([b'{"schema": {}, "payload": {}}\n'], (), "the messages are debezium"),
        ([row(1, 10, database="e"), message(database=None)], (), "database is not a string"),
    ],
)
def test_what_is_not_certain_is_one_error_and_exit_3(
    lines: list[bytes], options: tuple[str, ...], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    events(*lines)
    assert run(["changes", "tail", *READ, *options]) == 3
    shown = capsys.readouterr()
    assert reason in shown.err
    assert run(["changes", "audit", *READ, *options, "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "INCONCLUSIVE"
    assert [one for one in found["reasons"] if reason in one]
    assert len(found["reasons"]) == 1


def test_options_that_do_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    events(mark(1))
    for words, reason in (
        (["--format", "canal-json"], "give --kafka with --topic, or --file"),
        ([*READ, "--follow"], "give --dead-letters with --follow"),
        ([*READ, "--since", "yesterday"], "not a commit timestamp"),
        (["--format", "avro", "--file", "events.json"], "there is no format 'avro'"),
    ):
        assert run(["changes", "tail", *words]) == 2
        assert reason in capsys.readouterr().err

"""``changes audit`` and ``changes check`` at the terminal: exit codes, messages, output; no server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from migverify.cli.changes_check import preflight_as_dict, preflight_as_text
from migverify.cli.main import run
from migverify.guards.check import BinlogCheck
from migverify.guards.check_read import Platform
from migverify.guards.model import AnswerState, GuardAnswer
from tests.binlog_events import Binlog


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def log(folder: Path, *, cut: bool = False) -> str:
    found = Binlog().insert(1)
    if cut:
        found.number += 1
    return found.insert(2).gtid().query("ALTER TABLE t ADD n INT").boundary().write(folder)


def config(folder: Path, **more: object) -> Path:
    path = folder / "migverify.yaml"
    document = {"source": {"url": "mysql://root@127.0.0.1:1"}, "target": {"url": "tidb://root@127.0.0.1:1"},
                "tables": {"include": ["d.*"]}, **more}  # fmt: skip
    path.write_text(yaml.safe_dump(document))
    return path


def test_files_explain_themselves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["changes", "audit", "--file", log(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "files: the stream is complete" in output
    assert "d.t: 2 insert" in output
    assert "ALTER TABLE t ADD n INT" in output
    assert output.endswith("MATCH\n")


def test_a_gap_is_a_mismatch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["changes", "audit", "--json", "--file", log(tmp_path, cut=True)]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "MISMATCH"
    assert found["sources"][0]["gaps"]["holes"].endswith(":2")


def test_what_is_not_a_binlog_is_inconclusive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "binlog.000001").write_text("hello, this is no binlog")
    assert run(["changes", "audit", "--file", "binlog.000001"]) == 3
    assert "not a binlog file" in capsys.readouterr().out
    assert run(["changes", "audit", "--file", "missing.000001"]) == 3
    assert "missing.000001" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--since", "yesterday"], "not a position"),
        (["--tables", "a b c"], "--tables"), (["--source", "nobody"], "no source is named"),
    ],
)  # fmt: skip
def test_usage_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    config(tmp_path)
    assert run(["changes", "audit", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_position_needs_one_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sources = {"a": {"url": "mysql://root@127.0.0.1:1"}, "b": {"url": "mysql://root@127.0.0.1:2"}}
    document = yaml.safe_load(config(tmp_path).read_text())
    del document["source"]
    (tmp_path / "migverify.yaml").write_text(yaml.safe_dump({"sources": sources, **document}))
    assert run(["changes", "audit", "--since", "binlog.000001:4"]) == 2
    assert "--source source.a" in capsys.readouterr().err


def test_the_configuration_restricts_what_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config(tmp_path, tables={"include": ["other.*"]})
    assert run(["changes", "audit", "--json", "--file", log(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)["sources"][0]
    assert (found["tables"], found["schema_changes"], found["rows_events"]) == ({}, [], 2)


def test_a_check_shows_what_to_do() -> None:
    answers = (
        GuardAnswer("changes", "log_bin", "source", AnswerState.FAIL, "OFF", "ON", "SHOW", "because", "turn it on"),
        GuardAnswer("changes", "binlog_format", "source", AnswerState.PASS, "ROW", "ROW", "SHOW", "because"),
    )
    found = BinlogCheck("source", "9.7.4", Platform.OWN, answers)
    text = "\n".join(preflight_as_text(found))
    assert "fail         log_bin        source: OFF" in text
    assert "do      turn it on" in text
    assert "not fit to be read" in text
    assert preflight_as_dict(found)["findings"][0]["todo"] == "turn it on"
    assert preflight_as_dict(found)["reasons"] == ["log_bin: OFF"]

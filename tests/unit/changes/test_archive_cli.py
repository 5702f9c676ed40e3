"""``migverify changes archive`` at the terminal, with a server made by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from migverify.changes import server as server_module
from migverify.changes.archive import archive
from migverify.changes.storage import Storage
from migverify.cli.main import run
from tests.binlog_files import SERVER, TIME, BinlogFile, FakeServer, history

CONFIG = """\
{source}
target: {{url: 'tidb://root@127.0.0.1:4000'}}
tables: {{include: ['*.*']}}
"""
ONE = "source: {url: 'mysql://root@127.0.0.1:3306', password_env: ARCHIVE_PASSWORD}"
TWO = "sources: {eu: {url: 'mysql://root@127.0.0.1:3306'}, us: {url: 'mysql://root@127.0.0.1:3307'}}"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Put files made by hand behind the configured source; returns which endpoint was asked."""
    found: list[str] = []

    def made(endpoint: object, _: object) -> FakeServer:
        found.append(getattr(endpoint, "name", ""))
        return FakeServer(history([2, 3]))

    monkeypatch.setattr(server_module, "BinlogServer", made)
    monkeypatch.setenv("ARCHIVE_PASSWORD", "geheim")
    return found


def config(folder: Path, source: str) -> str:
    path = folder / "migverify.yaml"
    path.write_text(CONFIG.format(source=source))
    return str(path)


def command(folder: Path, *options: str, source: str = ONE) -> int:
    return run(["changes", "archive", "--to", str(folder / "archive"), "--config", config(folder, source), *options])


def test_what_it_covers(asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path) == 0
    shown = capsys.readouterr()
    assert "2 files" in shown.out
    assert f"transactions {SERVER}:1-5" in shown.out
    assert "2027-01-15 08:00:00 UTC" in shown.out
    assert "binlog.000001: complete" in shown.err
    assert asked == ["source"]
    assert "geheim" not in shown.out + shown.err
    kept = b"".join(path.read_bytes() for path in (tmp_path / "archive").rglob("*") if path.is_file())
    assert b"geheim" not in kept


@pytest.mark.usefixtures("asked")
def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path, "--json") == 0
    content = json.loads(capsys.readouterr().out)
    assert [file["state"] for file in content["files"]] == ["complete", "growing"]
    assert (content["gtids"], content["first_time"], content["gaps"]) == (f"{SERVER}:1-5", TIME, [])


@pytest.mark.usefixtures("asked")
def test_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path) == 0
    assert command(tmp_path, "--verify") == 0
    assert "whole" in capsys.readouterr().out
    path = tmp_path / "archive" / "binlog.000001"
    path.write_bytes(path.read_bytes()[:-1])
    assert command(tmp_path, "--verify") == 3
    assert "NOT whole" in capsys.readouterr().out
    assert command(tmp_path, "--verify", "--json") == 3
    assert json.loads(capsys.readouterr().out)["findings"]


@pytest.mark.parametrize("option", ["--follow", "--since=binlog.000001"])
def test_verify_takes_no_other_option(tmp_path: Path, option: str) -> None:
    assert command(tmp_path, "--verify", option) == 2


def test_one_of_several_sources(asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path, source=TWO) == 2
    assert "--source" in capsys.readouterr().err
    assert command(tmp_path, "--source", "asia", source=TWO) == 2
    assert command(tmp_path, "--source", "us", source=TWO) == 0
    assert asked == ["source.us"]


def test_a_place_that_nobody_knows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(["changes", "archive", "--to", "nowhere://me:geheim@bucket/a", "--config", config(tmp_path, ONE)])
    shown = capsys.readouterr()
    assert done == 2
    assert "nowhere://bucket/a" in shown.err
    assert "geheim" not in shown.err


def test_a_server_that_purged_too_early(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARCHIVE_PASSWORD", "geheim")
    files: list[BinlogFile] = history([1, 1, 1, 1])
    archive(Storage(str(tmp_path / "archive")), FakeServer(files[:1]))
    monkeypatch.setattr(server_module, "BinlogServer", lambda *_: FakeServer(files[3:]))
    assert command(tmp_path) == 3
    assert "--since binlog.000004" in capsys.readouterr().err
    assert command(tmp_path, "--since", "binlog.000004") == 0
    assert "gap: nothing between binlog.000001" in capsys.readouterr().out

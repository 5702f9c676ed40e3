"""The command `report`: exit codes, forms by suffix, files written whole, stores opened safely."""

from __future__ import annotations

import json
import shlex
import sqlite3
import stat
import sys
from pathlib import Path

import pytest

from migverify.cli.console import command_line
from migverify.cli.main import run
from migverify.errors import UsageError
from migverify.report.render import write_report
from migverify.secrets import Secret, remember
from tests.fakes import FakeStore
from tests.report_runs import match_run, mismatch_run, unfinished_run


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FakeStore:
    """The store that every command opens; its URL is kept in ``opened``."""
    fake = FakeStore()

    def open_store(url: str, **_: object) -> FakeStore:
        fake.calls[f"open {url}"] += 1
        return fake

    monkeypatch.setattr("migverify.store.open.open_store", open_store)
    return fake


@pytest.mark.parametrize(("fill", "code"), [(match_run, 0), (mismatch_run, 1), (unfinished_run, 3)])
def test_the_exit_code_is_the_verdict(
    store: FakeStore, fill: object, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(store)  # type: ignore[operator]
    assert run(["report", "last", "--store", "x"]) == code
    assert capsys.readouterr().out.split()[0] == {0: "MATCH", 1: "MISMATCH", 3: "INCONCLUSIVE"}[code]
    assert store.calls["open x"] == 1
    assert store.closed


def test_json_on_standard_output_and_reasons_beside_it(store: FakeStore, capsys: pytest.CaptureFixture[str]) -> None:
    unfinished_run(store)
    run(["report", "last", "--store", "x", "--format", "json"])
    printed = capsys.readouterr()
    assert json.loads(printed.out)["verdict"] == "INCONCLUSIVE"
    assert "the run has no end" in printed.err


def test_a_file_in_the_form_of_its_suffix(store: FakeStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mismatch_run(store)
    file = tmp_path / "r.html"
    assert run(["report", "last", "--store", "x", "-o", str(file)]) == 1
    assert file.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert "ann@example.org" not in file.read_text(encoding="utf-8")
    assert capsys.readouterr().out == ""


def test_values_are_shown_when_asked_for(store: FakeStore, capsys: pytest.CaptureFixture[str]) -> None:
    mismatch_run(store)
    run(["report", "last", "--store", "x", "--values"])
    assert "ann@example.org" in capsys.readouterr().out


def test_an_unknown_run_is_a_usage_error(store: FakeStore, capsys: pytest.CaptureFixture[str]) -> None:
    del store
    assert run(["report", "nope", "--store", "x"]) == 2
    assert "nope" in capsys.readouterr().err


def test_a_store_that_does_not_answer_is_inconclusive(store: FakeStore) -> None:
    match_run(store)
    store.fail = True
    assert run(["report", "last", "--store", "x"]) == 3


def test_without_a_configuration_or_a_store_the_message_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", "last", "-c", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml" in capsys.readouterr().err


def test_a_file_is_replaced_whole_and_readable_for_others(tmp_path: Path) -> None:
    file = tmp_path / "metrics.prom"
    file.write_text("old")
    write_report(file, "lone \udc80\n")
    assert file.read_bytes() == b"lone \\udc80\n"
    assert list(tmp_path.iterdir()) == [file]
    assert stat.S_IMODE(file.stat().st_mode) & 0o400


def test_a_file_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write the report"):
        write_report(tmp_path / "no" / "r.html", "x")
    with pytest.raises(UsageError, match="cannot write the report"):
        write_report(tmp_path, "x")


def test_a_device_is_written_in_place() -> None:
    write_report(Path("/dev/null"), "x")
    assert Path("/dev/null").is_char_device()


def config_at(folder: Path, url: str) -> None:
    (folder / "migverify.yaml").write_text(f"source: {{url: '{url}'}}\ntarget: {{url: 'tidb://u@127.0.0.1:4000'}}\n")


@pytest.mark.attack("connections", "`report --store` names a server that is under test", "refused before it is opened")
def test_a_report_never_creates_a_store_on_an_endpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    config_at(tmp_path, "mysql://u@localhost:3307")
    assert run(["report", "last", "--store", "mysql+pymysql://u@127.0.0.1:3307/app"]) == 2
    assert "endpoint under test" in capsys.readouterr().err


def test_a_report_without_a_configuration_creates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["report", "last", "--store", f"sqlite:///{tmp_path}/none.db"]) == 3
    assert "there is no store" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    sqlite3.connect(tmp_path / "empty.db").close()
    assert run(["report", "last", "--store", f"sqlite:///{tmp_path}/empty.db"]) == 3
    assert "the file is empty" in capsys.readouterr().err


@pytest.mark.attack("connections", "a password in the URL of --store", "refused; it is in no message and no record")
@pytest.mark.parametrize("url", ["mysql+pymysql://u:hunter2@h/db", "mysql+pymysql://u@h/db?password=hunter2"])
def test_a_password_in_a_store_url_is_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "last", "--store", url]) == 2
    error = capsys.readouterr().err
    assert "MIGVERIFY_STORE_PASSWORD" in error
    assert "hunter2" not in error


def test_command_lines_can_be_pasted_and_hold_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    remember(Secret("s3cr3t-of-a-test"))
    arguments = ["tables", "verify", "--table", "a b.c;d", "--store", "mysql://u:pw1@h/x", "s3cr3t-of-a-test"]
    monkeypatch.setattr(sys, "argv", ["migverify", *arguments])
    line = command_line()
    assert shlex.split(line)[:5] == ["migverify", *arguments[:4]]
    assert "pw1" not in line
    assert "s3cr3t-of-a-test" not in line

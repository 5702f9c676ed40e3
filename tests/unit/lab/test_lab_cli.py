"""``migverify lab`` without servers: what it refuses and what it can say anyway."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from migverify.errors import LabError, UsageError
from migverify_lab import servers
from migverify_lab.cli.lab import app
from migverify_lab.faults import FAULTS


def run(*arguments):
    return CliRunner().invoke(app, list(arguments), catch_exceptions=True)


def test_the_list_of_faults_is_complete():
    answer = run("fault", "--list")
    assert answer.exit_code == 0
    listed = [line.split()[0] for line in answer.stdout.splitlines()]
    assert listed[: len(FAULTS)] == [fault.name for fault in FAULTS]


def test_status_of_nothing_is_not_success(tmp_path):
    answer = run("status", "--dir", str(tmp_path), "--json")
    assert answer.exit_code == 3
    assert json.loads(answer.stdout)["up"] is False


def test_down_of_nothing_is_no_error(tmp_path):
    assert run("down", "--dir", str(tmp_path / "never")).exit_code == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (("feed", "reverse"), UsageError, "nothing to carry"),
        (("fault", "row-eaten", "--table", "a.b"), UsageError, "no fault is called 'row-eaten'"),
        (("fault", "row-deleted"), UsageError, "which fault, and where"),
        (("fault", "row-deleted", "--table", "a"), UsageError, "which fault, and where"),
        (("fault", "row-deleted", "--table", "a.b"), LabError, "is not up"),
        (("load", "tpch"), LabError, "is not up"),
        (("up", "--target", "oracle"), LabError, "unknown target 'oracle'"),
        (("workload",), LabError, "is not up"),
        (("workload", "--source", "here", "--target", "there"), LabError, "not an address: 'here'"),
        (("replicator", "--databases", "pay"), LabError, "is not up"),
        (("replicator", "--databases", " , "), UsageError, "no database to replicate"),
        (("replicator", "--databases", "pay", "--fault", "eat"), UsageError, "no fault 'eat'"),
    ],
)
def test_what_is_refused(tmp_path, arguments, kind, message):
    answer = run(*arguments, "--dir", str(tmp_path))
    assert isinstance(answer.exception, kind)
    assert message in str(answer.exception)


def test_the_folder_comes_from_the_option_then_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("MIGVERIFY_LAB_DIR", str(tmp_path / "named"))
    assert servers.lab_directory() == tmp_path / "named"
    assert servers.lab_directory(tmp_path / "given") == tmp_path / "given"
    monkeypatch.delenv("MIGVERIFY_LAB_DIR")
    assert servers.lab_directory().name == servers.DEFAULT_DIRECTORY


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 1}', '{"format": 9, "servers": {}, "backend": "binaries"}']
)
def test_a_damaged_record_is_an_error_and_never_an_empty_lab(tmp_path, text):
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(LabError, match=r"state\.json"):
        servers.status(tmp_path)

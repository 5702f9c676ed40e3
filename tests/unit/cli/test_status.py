"""``migverify status``: runs of the store and of runbooks at a glance, one run in detail, and nothing is an error."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from migverify.cli.main import run
from migverify.model import StoredKind, Verdict
from migverify.store.open import open_store
from tests.unit.runbook_small import write_small

CONFIG = """\
source: {url: 'mysql://u@db1'}
target: {url: 'tidb://u@db2'}
store: 'sqlite:///runs.db'
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("MIGVERIFY_RUNS", "MIGVERIFY_CONFIG", "MIGVERIFY_PERSON"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_without_anything_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status"]) == 0
    told = capsys.readouterr()
    assert "no runs are listed: there is no migverify.yaml" in told.err
    assert told.out == "no runs in the store\n"


def test_runs_and_runbook_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "migverify.yaml").write_text(CONFIG)
    with closing(open_store("sqlite:///runs.db")) as store:
        first = store.start_run("migverify check", "", {"guards": ["ids"]}, {}, kind=StoredKind.GUARDS)
        store.finish_run(first, Verdict.MATCH, {})
        second = store.start_run("migverify recon run", "h", {"rules": []}, {}, kind=StoredKind.RULES)
    write_small(folder)
    assert run(["runbook", "run", "small.yaml", "-e", "lab", "--kind", "dry", "--as", "alice"]) in (0, 3)
    capsys.readouterr()
    assert run(["status", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(one["run_id"], one["verdict"], one["state"]) for one in told["runs"]] == [
        (second, "INCONCLUSIVE", "running or interrupted"), (first, "MATCH", "finished"),
    ]  # fmt: skip
    (runbook,) = told["runbooks"]
    assert (runbook["kind"], runbook["environment"]) == ("dry", "lab")
    assert run(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{second}  INCONCLUSIVE rules ")
    assert lines[0].endswith("(running or interrupted)")
    assert runbook["run_id"] in lines[2]
    assert run(["status", first, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["command"] == "migverify check"

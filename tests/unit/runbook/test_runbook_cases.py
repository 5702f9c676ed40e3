"""Which disaster recovery cases passed lately, and where: the command over journals of earlier runs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from migverify.cli import runbook_cases
from migverify.errors import ConfigError, MigverifyError, UsageError
from migverify.runbook.definition.load import case_files
from tests.json_outputs import compare_with_schema
from tests.unit.runbook.test_runbook_history import case_run
from tests.unit.runbook_past import NOW
from tests.unit.runbook_places import data_of, rewrite

app = typer.Typer()
app.command()(runbook_cases.cases)
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "dr"
    found.mkdir()
    for id_, priority, tier in (("kill", "p0", "L"), ("freeze", "p1", "K")):
        text = f"id: {id_}\ntitle: Of {id_}\nkind: dr-case\ncase: {{priority: {priority}, tier: {tier}}}\n"
        (found / f"{id_}.yaml").write_text(text)
    return found


def ask(folder: Path, *more: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(folder), "--runs", str(folder.parent / "runs"), *more])
    if isinstance(done.exception, MigverifyError):
        raise done.exception
    compare_with_schema(["runbook", "readiness", "--dr", *more], done.stdout)
    return done.exit_code, done.output


def told(folder: Path, *more: str) -> dict[str, dict[str, Any]]:
    answer = json.loads(ask(folder, "--json", *more)[1])
    return {one["id"]: one for one in answer["cases"]}


def test_a_case_that_never_ran_is_not_covered(folder: Path) -> None:
    code, text = ask(folder)
    assert code == 1
    assert "0 of 2 cases passed within 30 days (p0 0 of 1, p1 0 of 1)" in text
    assert told(folder)["kill"]["reason"] == "never run to its end"
    assert told(folder, "-e", "prod")["kill"]["reason"] == "never run to its end in prod"


def test_all_that_is_required_passed(folder: Path) -> None:
    runs = folder.parent / "runs"
    case_run(runs, "k1", day=20)
    code, text = ask(folder, "--require", "p0")
    assert code == 0
    assert "1 of 1 cases passed within 30 days (p0 1 of 1)" in text
    assert "pass, 10 d" in text
    assert ask(folder)[0] == 1, "freeze was not run"
    case_run(runs, "f1", id_="freeze", slow="steady_again", day=21)
    assert ask(folder)[0] == 0
    assert told(folder)["freeze"]["runs"][0]["grade"] == "pass-with-late-recovery"
    assert ask(folder, "-e", "staging")[0] == 0
    assert ask(folder, "-e", "prod")[0] == 1


def test_a_pass_grows_old(folder: Path) -> None:
    case_run(folder.parent / "runs", "k1", day=0)
    assert ask(folder, "--require", "kill", "--max-age", "31")[0] == 0
    code, text = ask(folder, "--require", "kill", "--max-age", "29")
    assert code == 1
    assert "PASS, 30 d" in text
    assert "passed 30 days ago, and 29 are allowed" in text


def test_the_last_run_decides_and_an_invalid_one_does_not(folder: Path) -> None:
    runs = folder.parent / "runs"
    case_run(runs, "k1", day=1)
    case_run(runs, "k2", stop="hit", day=2)
    assert [one["run"] for one in told(folder)["kill"]["runs"]] == ["k1"]
    assert ask(folder, "--require", "kill", "-e", "staging")[0] == 0
    case_run(runs, "k3", stop="data", day=3)
    for more in ((), ("-e", "staging")):
        code, text = ask(folder, "--require", "kill", *more)
        assert code == 1
        assert "FAIL, 27 d" in text
        assert "step data is failed" in text


def test_a_case_with_invalid_runs_alone_says_why(folder: Path) -> None:
    case_run(folder.parent / "runs", "k1", stop="gone", day=1)
    code, text = ask(folder, "--require", "kill", "-e", "staging")
    assert code == 1
    assert "INVALID, 29 d" in text
    assert "kill: invalid (k1): that the fault is gone: step gone is failed" in text


def test_a_damaged_journal_leaves_it_open(folder: Path) -> None:
    runs = folder.parent / "runs"
    case_run(runs, "k1", day=1)
    case_run(runs, "k2", day=2)
    rewrite(runs, "k2", data_of(runs, "k2").replace(b'"outcome":"ok"', b'"outcome":"OK"', 1))
    code, text = ask(folder, "--require", "kill")
    assert code == 3
    assert "not counted: k2" in text


def test_what_is_not_there_is_one_clear_error(folder: Path) -> None:
    with pytest.raises(UsageError, match="nothing is not in the catalogue"):
        ask(folder, "--require", "nothing")
    with pytest.raises(UsageError, match="no case of priority p2"):
        ask(folder, "--require", "p2")
    with pytest.raises(ConfigError, match="no folder"):
        ask(folder / "elsewhere")


def test_an_empty_catalogue_is_no_success(tmp_path: Path) -> None:
    (tmp_path / "dr").mkdir()
    assert ask(tmp_path / "dr")[0] == 3


def test_the_catalogue_of_this_project() -> None:
    found = case_files(ROOT / "runbooks" / "dr")
    assert found["mysql-killed"].title == "The source is killed under load"
    assert {one.tier for one in found.values()} == {"L", "K", "C"}
    assert {one.priority for one in found.values()} == {"p0", "p1", "p2"}

"""The command: exit codes, forms, files, and what it says where it cannot decide."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from migverify.cli.main import run as run_command
from migverify.cli.runbook_begin import decision_of
from migverify.decision import read_replays, run
from migverify.decision.joins import JoinedEvidence
from migverify.decision.model import Standing
from migverify.errors import UnreachableError
from migverify.store.open import open_store
from migverify.store.results import ResultStore
from tests.unit.decision_store import BASIS, all_fine

Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    with closing(open_store(f"sqlite:///{tmp_path}/store.db")) as opened:
        yield opened


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Ask the command, with servers as the evidence has them and a forecast that holds."""
    monkeypatch.chdir(tmp_path)
    joined = JoinedEvidence("", None, None, None, (), "")
    monkeypatch.setattr(read_replays, "latency_forecast", lambda *_: joined)
    monkeypatch.setattr(run, "read_basis", lambda *_: BASIS)
    configure(tmp_path)

    def asked(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run_command(["workload", "decision", *words])
        return (code, *capsys.readouterr())

    return asked


def configure(folder: Path, **decision: Any) -> Path:
    made = {"clients": ["pymysql/none"], **decision}
    (folder / "migverify.yaml").write_text(json.dumps({
        "source": {"host": "db", "user": "u"}, "target": {"host": "tidb", "user": "u"},
        "store": f"sqlite:///{folder}/store.db", "decision": made,
    }))  # fmt: skip
    return folder / "migverify.yaml"


def test_go_no_go_and_not_known_are_exit_codes(ask: Ask, store: ResultStore) -> None:
    code, out, _ = ask("captures/peak")
    assert (code, out.split("  ")[0]) == (3, "NOT KNOWN")
    all_fine(store, plans={"scan": True})
    code, out, _ = ask("captures/peak", "--service", "orders")
    assert (code, out.startswith("NO-GO  orders, ")) == (1, True)
    all_fine(store)
    code, out, _ = ask("captures/peak", "--json")
    assert (code, json.loads(out)["decision"], json.loads(out)["exit_code"]) == (0, "GO", 0)


def test_the_page_has_the_reports_of_its_runs_beside_it(ask: Ask, store: ResultStore, tmp_path: Path) -> None:
    runs = set(all_fine(store).values())
    code, out, err = ask("captures/peak", "-o", "orders.html")
    assert (code, out, "GO: html page of peak" in err) == (0, "", True)
    page = (tmp_path / "orders.html").read_text()
    assert stat.S_IMODE((tmp_path / "orders.html").stat().st_mode) == 0o600
    assert {file.stem for file in (tmp_path / "orders.runs").iterdir()} == runs
    assert all(f"./orders.runs/{name}.html" in page for name in runs)
    ask("captures/peak", "-o", "alone.html", "--no-reports")
    assert not (tmp_path / "alone.runs").exists()


def test_the_capture_may_be_configured_and_must_be_known(ask: Ask, store: ResultStore, tmp_path: Path) -> None:
    code, _, err = ask()
    assert (code, "decision.capture" in err) == (2, True)
    configure(tmp_path, capture="captures/peak")
    all_fine(store)
    assert ask()[0] == 0


def test_parts_and_age_are_configured(ask: Ask, store: ResultStore, tmp_path: Path) -> None:
    from tests.unit import decision_store as made

    made.plans(store)
    configure(tmp_path, capture="captures/peak", parts=["plans"])
    code, out, _ = ask("--json")
    assert (code, json.loads(out)["required"]) == (0, ["plans"])
    configure(tmp_path, capture="captures/peak", parts=["plans"], max_age_days=1e-9)
    assert ask()[0] == 3
    for wrong in ({"parts": []}, {"parts": ["rows"]}, {"clients": ["hikari"]}, {"max_age_days": 0},
                  {"clones": [{"source": "a", "target": "b:1"}]}):  # fmt: skip
        configure(tmp_path, **{"capture": "captures/peak", **wrong})
        assert ask()[0] == 2, wrong


def test_a_server_that_does_not_answer_leaves_everything_open(
    ask: Ask, store: ResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_fine(store)

    def fails(*_: object) -> object:
        raise UnreachableError("target tidb:4000 does not answer", hint="Check the servers.")

    monkeypatch.setattr(run, "read_basis", fails)
    code, out, _ = ask("captures/peak")
    assert (code, "target tidb:4000 does not answer Check the servers." in out) == (3, True)


@pytest.mark.usefixtures("ask")
def test_readiness_asks_where_a_capture_is_configured(
    store: ResultStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert decision_of(None) is None
    assert decision_of(configure(tmp_path)) is None
    config = configure(tmp_path, capture="captures/peak")
    all_fine(store)
    found = decision_of(config)
    assert found is not None
    assert found.standing is Standing.GO

    def fails(*_: object) -> object:
        raise UnreachableError("the store does not answer")

    monkeypatch.setattr(run, "decide_now", fails)
    broken = decision_of(config)
    assert broken is not None
    assert (broken.standing, broken.unread) == (Standing.NOT_KNOWN, "the store does not answer")


def test_what_was_recorded_and_not_compared_is_named(ask: Ask, store: ResultStore, tmp_path: Path) -> None:
    from tests.unit import decision_store as made

    folder = tmp_path / ".migverify" / "replay" / made.replay(store)
    folder.mkdir(parents=True)
    for side in ("source", "target"):
        (folder / f"history-{side}.jsonl").touch()
    _, out, _ = ask("captures/peak", "--json")
    again = {one["part"]: one["again"] for one in json.loads(out)["parts"]}
    folder = folder.relative_to(tmp_path)
    assert again["anomalies"] == (
        f"migverify workload anomalies {folder}/history-source.jsonl {folder}/history-target.jsonl"
    )
    assert again["conflicts"] == (f"migverify workload explain-conflict --replay {folder} --config migverify.yaml")
    made.anomalies(store, folder.name)
    _, out, _ = ask("captures/peak", "--json")
    again = {one["part"]: one["again"] for one in json.loads(out)["parts"]}
    assert again["anomalies"] == "migverify workload replay captures/peak --writes --anomalies"

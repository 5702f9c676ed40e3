"""The rehearsal's world: what the reverse feed carries, and the words that runbooks ask of hooks."""

from __future__ import annotations

import os
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from migverify.model import StoredKind
from migverify.store import run_leases
from migverify.store.open import open_store
from migverify.store.run_leases import LeaseHolder
from migverify_lab.cutover import BARRIER, CANARY, DATABASE, SCOPES, WATCH_MARKER
from migverify_lab.cutover_watch import run_of_process
from migverify_lab.process import ProcessId

ROOT = Path(__file__).parents[3]


def test_canary_and_marker_of_the_watch_go_back_and_the_barrier_never_does() -> None:
    assert SCOPES["canary"] == (CANARY, WATCH_MARKER)
    assert {CANARY, WATCH_MARKER} <= set(SCOPES["all"])
    assert all(BARRIER not in tables for tables in SCOPES.values())
    assert any(table.startswith(f"{DATABASE}.") for table in SCOPES["all"])


def test_every_word_that_a_runbook_asks_of_hooks_is_documented_and_known() -> None:
    import typer.main

    from migverify_lab.cli.cutover import app

    command: Any = typer.main.get_command(app)
    page = (ROOT / "docs" / "cutover.md").read_text()
    asked = set()
    for name in ("cutover", "rollback-before-open", "rollback-after-open", "history-load"):
        text = (ROOT / "runbooks" / f"{name}.yaml").read_text()
        asked |= {tuple(words.split()) for words in re.findall(r"\{\{hooks\}\} ([a-z -]+)", text)}
    assert asked
    for words in asked:
        assert words[0] in command.commands, words
        assert f"`{words[0]}" in page, words
        assert all(f"{word}" in page for word in words), words


def test_the_watch_of_a_rehearsal_is_that_of_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proof beside the service is newer, and may run on for some seconds."""
    process = ProcessId(os.getpid(), 1, "boot")
    with closing(open_store(f"sqlite:///{tmp_path}/runs.db")) as store:
        assert run_of_process(store, process) is None
        facts = {"watch": True, "reverse": True}
        own = store.start_run("tables watch", "digest", {}, facts, kind=StoredKind.TABLES)
        store.start_run("tables watch", "digest", {}, {"watch": True}, kind=StoredKind.TABLES)
        monkeypatch.setattr(run_leases, "_this_process", lambda: LeaseHolder("here", "boot", "x", 4711))
        store.start_run("tables watch", "digest", {}, facts, kind=StoredKind.TABLES)
        found = run_of_process(store, process)
        assert found is not None
        assert found.run_id == own
        assert run_of_process(store, ProcessId(1, 1, "boot")) is None
        assert run_of_process(store, None) is None

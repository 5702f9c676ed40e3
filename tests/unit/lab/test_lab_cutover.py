"""The rehearsal's world: what the reverse feed carries, and the words that runbooks ask of hooks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from migverify_lab.cutover import BARRIER, CANARY, DATABASE, SCOPES, WATCH_MARKER

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

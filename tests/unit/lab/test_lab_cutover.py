"""The rehearsal's world: what the reverse feed carries, and the words that runbooks ask of hooks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from migverify_lab.cutover import BARRIER, CANARY, DATABASE
from migverify_lab.cutover_reverse import SCOPES, difference

ROOT = Path(__file__).parents[3]
ROWS = st.dictionaries(st.text("ab", max_size=2), st.none() | st.text("xy", max_size=2), max_size=6)


@given(source=ROWS, target=ROWS)
def test_what_the_reverse_feed_does_makes_the_source_equal(
    source: dict[str, str | None], target: dict[str, str | None]
) -> None:
    found = difference(list(source.items()), list(target.items()), (0,))
    rows = {key: value for key, value in source.items() if (key,) not in found.gone}
    rows |= {str(key): value for key, value in found.put}
    assert rows == target
    again = difference(list(target.items()), list(target.items()), (0,))
    assert not again.put
    assert not again.gone


def test_the_canary_goes_back_and_the_barrier_never_does() -> None:
    assert SCOPES["canary"] == (CANARY,)
    assert CANARY in SCOPES["all"]
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

"""The runbooks of the repository: every one is linted clean, and a catalogue holds what it promises."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from migverify.runbook.actions.registry import full_registry
from migverify.runbook.definition.expand import expanded_text
from migverify.runbook.definition.lint import lint_file
from migverify.runbook.definition.load import known_cases, read_runbook

ROOT = Path(__file__).parents[3]
BOOKS = ROOT / "runbooks"
CASES = sorted((BOOKS / "dr").glob("*.yaml"))
ALL = sorted([*BOOKS.glob("*.yaml"), *CASES])
ACTIONS = full_registry().by_name()


@functools.cache
def known() -> frozenset[str]:
    return known_cases(BOOKS / "dr")


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_lint_finds_nothing(path: Path) -> None:
    """In no environment that the file knows, and no warning either."""
    book = read_runbook(path, {}, "").runbook
    assert book is not None
    for environment in book.environments:
        assert lint_file(path, {}, environment, ACTIONS, known())[1] == ()


def test_there_are_thirty_cases_and_more_of_every_tier() -> None:
    """Each is named like its file, says what it expects, and which tier it is for."""
    tiers: dict[str, int] = {}
    for path in CASES:
        book = read_runbook(path, {}, "").runbook
        assert book is not None
        assert book.case is not None
        assert book.id == path.stem
        assert len(book.case.expectation) > 40
        assert book.case.bar
        tiers[book.case.tier] = tiers.get(book.case.tier, 0) + 1
    assert sum(tiers.values()) >= 30
    assert set(tiers) == {"L", "K", "C"}


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_what_was_not_run_here_says_so(path: Path) -> None:
    """A case for a cluster was not run where there is none; nobody may take its file for a result."""
    text = path.read_text(encoding="utf-8")
    tier = re.search(r"^  tier: ([LKC])$", text, re.MULTILINE)
    assert tier is not None
    assert ("has not run it" in " ".join(text.replace("#", " ").split())) == (tier[1] != "L")


def test_chaos_objects_are_named_like_their_case() -> None:
    """A case applies the object of its own name, which has to be there."""
    ids = {path.stem for path in CASES}
    for path in (BOOKS / "dr" / "manifests").glob("*.yaml"):
        assert path.stem in ids
        assert f"  name: {path.stem}\n" in path.read_text(encoding="utf-8")
    for path in CASES:
        for name in re.findall(r"\{\{manifests\}\}/([\w-]+)\.yaml", expanded_text(path)):
            assert (BOOKS / "dr" / "manifests" / f"{name}.yaml").is_file()

"""docs/attacks.md is made from the marks of the tests: what was attacked, and what held."""

from __future__ import annotations

import ast
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "attacks.md"
HEAD = """\
# What was attacked, and what held

Each line is a test that runs in CI (tests of `soak` run in `make soak`): a hostile or broken input, and what migverify
does with it. The page is
generated from the `attack` marks of the tests; `REGEN=1 pytest tests/unit/test_attacks.py` writes it again.
"""


def marks() -> Iterator[tuple[str, str, str, str]]:
    """Yield (area, attempt, outcome, test) of every marked test, without importing it."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text()
        for node in ast.parse(text).body if "pytest.mark.attack" in text else ():
            if isinstance(node, ast.FunctionDef):
                for decorator in node.decorator_list:
                    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.attack":
                        area, attempt, outcome = (ast.literal_eval(argument) for argument in decorator.args)
                        yield area, attempt, outcome, f"{path.relative_to(ROOT / 'tests')}::{node.name}"


def rendered() -> str:
    areas: dict[str, list[str]] = defaultdict(list)
    for area, attempt, outcome, test in marks():
        areas[area].append(f"| {attempt} | {outcome} | `{test}` |")
    sections = (
        f"\n## {area}\n\n| attempt | outcome | test |\n|---|---|---|\n" + "\n".join(sorted(lines)) + "\n"
        for area, lines in sorted(areas.items())
    )
    return HEAD + "".join(sections)


def test_the_page_lists_every_marked_test() -> None:
    if os.environ.get("REGEN") == "1":
        PAGE.write_text(rendered())
    assert PAGE.read_text() == rendered(), "run this test once with REGEN=1 and look at the change"

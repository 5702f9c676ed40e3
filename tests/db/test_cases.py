"""Whole migrations gone wrong (or right) as SQL files: ``tests/cases/<name>/{source.sql,target.sql,expected.json}``.

``expected.json`` holds ``verdict``, ``diffs`` (kind, key, columns as column -> kind of difference), ``not_covered``
(the names of what is not compared) and, if it is not the default, ``override`` (tolerance, key, ignore).
A file without ``target.sql`` loads the source's statements on both sides.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from migverify.config import TableOverride
from tests.table_pairs import Verified, road

if TYPE_CHECKING:
    from tests.conftest import Databases

pytestmark = pytest.mark.db
CASES = Path(__file__).parents[1] / "cases"


def statements(path: Path) -> list[str]:
    """Statements end with a semicolon at the end of a line; lines that begin with ``--`` are comments."""
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("--")]
    return [part.strip() for part in "\n".join(lines).split(";\n") if part.strip().rstrip(";")]


def summary(found: Verified) -> dict[str, Any]:
    return {
        "verdict": found.verdict.value,
        "diffs": [[d.kind.value, list(d.key), {c.column: c.kind for c in d.columns}] for d in found.diffs],
        "not_covered": [gap.what for gap in found.result.not_covered],
    }


@pytest.mark.parametrize("case", sorted(path.name for path in CASES.iterdir() if path.is_dir()))
def test_case(databases: Databases, case: str) -> None:
    folder = CASES / case
    expected = json.loads((folder / "expected.json").read_text("utf-8"))
    databases.both("SET SESSION sql_mode='ALLOW_INVALID_DATES'")
    databases.source(*statements(folder / "source.sql"))
    target = folder / "target.sql"
    databases.target(*statements(target if target.exists() else folder / "source.sql"))
    override = expected.pop("override", {})
    for field in ("key", "ignore"):
        if field in override:
            override[field] = tuple(override[field])
    with road(databases) as way:
        found = way.verify("t", TableOverride(**override))
    assert summary(found) == expected, found.result.reasons

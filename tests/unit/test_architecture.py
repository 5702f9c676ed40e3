"""Imports go one way, and heavy packages stay where they belong."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "migverify"

# A room may import rooms of a lower level, and itself.
LEVELS = {
    "errors": 0, "model": 0, "codec": 0, "exposition": 0, "__init__": 0,
    "sql": 1, "config": 1, "secrets": 1, "schemas": 1, "opener": 1,
    "db": 2,
    "store": 3,
    "changes": 4,
    "watch": 5,
    "tables": 6,
    "recon": 7, "workload": 7, "guards": 7,
    "report": 8, "spark": 8,
    "lab": 9, "runbook": 9,
    "cli": 10, "__main__": 11,
}  # fmt: skip

HEAVY = {
    "pyspark": {"spark"}, "pyarrow": {"recon", "spark"}, "duckdb": {"recon"},
    "pandas": {"spark"},
    "sqlalchemy": {"recon", "store"}, "great_expectations": {"recon"},
    "jinja2": {"report"}, "pydantic": {"config", "recon", "runbook", "cli"}, "typer": {"cli"},
    "sqlglot": {"recon", "sql", "workload"},
    "pymysql": {"changes", "db", "lab", "store"}, "pymysqlreplication": set(),
    "zstandard": {"changes"}, "fsspec": {"changes"}, "confluent_kafka": {"changes", "spark"},
}  # fmt: skip


def room(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0].removesuffix(".py")


def imports(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
    return names


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "templates" not in path.parts)


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    here = room(path)
    assert here in LEVELS, f"give {here} a level"
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "migverify" and rest:
            there = rest.split(".")[0]
            if there in LEVELS and there != here:
                assert LEVELS[there] < LEVELS[here] or (LEVELS[there] == LEVELS[here] <= 1), f"{path} imports {name}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_heavy_packages_stay_in_their_rooms(path: Path) -> None:
    for name in imports(path):
        allowed = HEAVY.get(name.split(".")[0])
        assert allowed is None or room(path) in allowed, f"{path} imports {name}"


# Circles that are left, each by imports inside functions or for types alone. The list may only get shorter.
CIRCLES = {
    ("cli.runbook_begin", "cli.runbook_lint"),
    ("guards.check_model", "guards.check_read"),
    ("lab.servers", "lab.session"),
    ("recon.checks", "recon.convert", "recon.load"),
    ("recon.local", "recon.local_join"),
    ("runbook.history.case", "runbook.history.past", "runbook.history.read"),
    ("runbook.record.room", "runbook.record.room_db"),
    ("runbook.run.executor", "runbook.run.mending", "runbook.run.undoing", "runbook.run.watching"),
}


def imported_modules() -> dict[str, set[str]]:
    """Return which modules of migverify each of them imports, inside functions and for types as well."""
    names = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in modules()}
    made: dict[str, set[str]] = {}
    for module, path in names.items():
        found: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
        made[module] = (found & names.keys()) - {module}
    return made


def reachable(start: str, graph: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    left = [start]
    while left:
        for there in graph[left.pop()] - seen:
            seen.add(there)
            left.append(there)
    return seen


def test_modules_import_each_other_in_no_new_circle() -> None:
    graph = imported_modules()
    reached = {module: reachable(module, graph) for module in graph}
    circles = {
        tuple(sorted(m.removeprefix("migverify.") for m in reached[module] if module in reached[m]))
        for module in graph if module in reached[module]
    }  # fmt: skip
    assert circles == CIRCLES


def test_no_module_is_a_drawer() -> None:
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert not [path for path in modules() if path.stem in drawers]


def test_only_the_command_line_prints_and_exits() -> None:
    wrong = re.compile(r"(?<![.\w])print\(|sys\.exit\(|typer\.echo\(")
    allowed = {"cli", "__main__", "lab"}
    assert not [path for path in modules() if room(path) not in allowed and wrong.search(path.read_text())]


def test_spark_scripts_are_thin() -> None:
    for path in (ROOT / "spark_jobs").glob("*.py"):
        assert len(path.read_text().splitlines()) <= 40, path


def test_asserts_are_for_tests() -> None:
    for path in modules():
        found = [node.lineno for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Assert)]
        assert not found, f"{path}:{found}: facts about data are checked with errors, never with assert"

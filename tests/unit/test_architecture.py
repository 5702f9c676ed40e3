"""Imports go one way, and heavy packages stay where they belong."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "migverify"

# A room may import rooms of a lower level, and itself.
LEVELS = {
    "errors": 0, "model": 0, "load": 0, "codec": 0, "figures": 0, "exposition": 0, "files": 0, "__init__": 0,
    "sql": 1, "config": 1, "secrets": 1, "schemas": 1, "opener": 1, "telemetry": 1, "signals": 0,
    "db": 2,
    "store": 3,
    "changes": 4,
    "watch": 5,
    "tables": 6,
    "recon": 7, "workload": 7, "guards": 7,
    "decision": 8,
    "report": 9, "spark": 9,
    "runbook": 10,
    "fleet": 11,
    "outputs": 12,
    "cli": 13, "__main__": 14,
}  # fmt: skip

HEAVY = {
    "pyspark": {"spark"}, "pyarrow": {"recon", "spark", "workload"}, "duckdb": {"recon"},
    "pandas": {"spark"},
    "sqlalchemy": {"store"},
    "jinja2": {"report"}, "typer": {"cli"},
    "pydantic": {"config", "fleet", "guards", "recon", "runbook", "workload", "outputs", "cli"},
    "sqlglot": {"recon", "sql", "workload"},
    "pymysql": {"changes", "db", "store"}, "pymysqlreplication": set(),
    "opentelemetry": {"tables", "telemetry"},
    "mcp": {"cli"}, "mcp_types": {"cli"}, "anyio": {"cli"},
    "zstandard": {"changes"}, "fsspec": {"changes"}, "confluent_kafka": {"changes", "spark"},
}  # fmt: skip


def room(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0].removesuffix(".py")


@cache
def nodes(path: Path) -> list[ast.Import | ast.ImportFrom | ast.Assert]:
    """Return the imports and asserts of a module: each is parsed once for all tests."""
    return [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Import | ast.ImportFrom | ast.Assert)]


def imports(path: Path) -> list[str]:
    names = []
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
    return names


@cache
def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "templates" not in path.parts)


def test_imports_go_one_way_and_heavy_packages_stay_in_their_rooms() -> None:
    wrong = []
    for path in modules():
        here = room(path)
        assert here in LEVELS, f"give {here} a level"
        for name in imports(path):
            top, _, rest = name.partition(".")
            there = rest.split(".")[0]
            if top == "migverify" and there in LEVELS and there != here:
                if not (LEVELS[there] < LEVELS[here] or LEVELS[there] == LEVELS[here] <= 1):
                    wrong.append(f"{path} imports {name}")
            elif top in HEAVY and here not in HEAVY[top]:
                wrong.append(f"{path} imports {name}")
    assert not wrong


def test_the_lab_imports_no_test() -> None:
    names = {name.split(".")[0] for path in (ROOT / "lab" / "migverify_lab").rglob("*.py") for name in imports(path)}
    assert "migverify" in names
    assert not names & {"tests", "bench", "spark_jobs"}


# Circles that are left, each by imports inside functions or for types alone. The list may only get shorter.
CIRCLES = {
    ("runbook.history.past", "runbook.history.read"),
    ("runbook.run.executor", "runbook.run.failures", "runbook.run.undoing", "runbook.run.watching"),
}


def imported_modules() -> dict[str, set[str]]:
    """Return which modules of migverify each of them imports, inside functions and for types as well."""
    names = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in modules()}
    made: dict[str, set[str]] = {}
    for module, path in names.items():
        found: set[str] = set()
        for node in nodes(path):
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


def test_no_class_name_is_defined_twice() -> None:
    places: dict[str, list[str]] = {}
    for path in [*modules(), *sorted((ROOT / "lab" / "migverify_lab").rglob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not {name: where for name, where in places.items() if len(where) > 1}, (
        "one name, one thing: say what each is"
    )


def test_no_module_is_a_drawer() -> None:
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert not [path for path in modules() if path.stem in drawers]


def test_only_the_command_line_prints_and_exits() -> None:
    wrong = re.compile(r"(?<![.\w])print\(|sys\.exit\(|typer\.echo\(")
    allowed = {"cli", "__main__"}
    assert not [path for path in modules() if room(path) not in allowed and wrong.search(path.read_text())]


def test_spark_scripts_are_thin() -> None:
    for path in (ROOT / "spark_jobs").glob("*.py"):
        assert len(path.read_text().splitlines()) <= 40, path


def test_asserts_are_for_tests() -> None:
    for path in modules():
        found = [node.lineno for node in nodes(path) if isinstance(node, ast.Assert)]
        assert not found, f"{path}:{found}: facts about data are checked with errors, never with assert"

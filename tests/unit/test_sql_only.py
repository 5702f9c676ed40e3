"""Only ``migverify/sql/`` makes SQL text: other packages pass on what it returns."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "migverify"
PACKAGES = ("tables", "watch", "recon", "guards")
CATALOG = re.compile(r"\bFROM (information_schema|performance_schema|mysql|sys)\.", re.IGNORECASE)
OWN_FILE = re.compile(
    r"^(import sqlite3|from migverify\.watch\.ledger_(file import LedgerFile|moving import MovingKeys)\b.*)$",
    re.MULTILINE,
)
"""What a module imports whose statements go to a file of migverify's own, which no server sees."""
SENT = {"query", "query_named", "query_bytes", "execute", "stream"}


def modules() -> list[Path]:
    return sorted(
        path for package in PACKAGES for path in (PACKAGE / package).rglob("*.py")
        if not OWN_FILE.search(path.read_text())
    )  # fmt: skip


def statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of every literal that is sent to a server or names a catalog."""
    tree = ast.parse(text)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SENT:
            for literal in node.args[:1]:
                # What a function of migverify/sql is given is not yet a statement.
                if isinstance(literal, (ast.Constant, ast.JoinedStr, ast.BinOp)):
                    texts = [one.value for one in ast.walk(literal) if isinstance(one, ast.Constant)]
                    yield node.lineno, " ".join(map(str, texts))
        elif isinstance(node, ast.Constant) and id(node) not in docstrings and CATALOG.search(str(node.value)):
            yield node.lineno, str(node.value)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("session.query('SELECT 1')", True), ("session.query(f'SHOW {word} STATUS')", True),
        ("session.query('SHOW ' + word)", True), ("session.query(sql.rows(f'NOT ({x})'))", False),
        ("X = 'SELECT a FROM information_schema.TABLES'", True), ("session.query(sql.CLOCK)", False),
        ("'''SELECT a FROM information_schema.TABLES'''", False), ("say('SET GLOBAL x = 1')", False),
    ],
)  # fmt: skip
def test_what_counts_as_a_statement(code: str, found: bool) -> None:
    assert bool(list(statements(code))) is found


def test_no_module_makes_sql() -> None:
    found = {str(path): list(statements(path.read_text())) for path in modules()}
    assert not {path: lines for path, lines in found.items() if lines}, "move the statements to migverify/sql"

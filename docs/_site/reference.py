"""Reference pages that are made of the program: commands with their help, error messages, metrics."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from migverify.cli.commands import EVERYTHING

ROOT = Path(__file__).parents[2]
PRODUCT = ROOT / "migverify"


def pages() -> dict[str, str]:
    """Return the generated pages by their places in the site."""
    return {
        "reference/commands.md": commands_page(),
        "reference/errors.md": errors_page(),
        "reference/metrics.md": metrics_page(),
    }


# -- commands --------------------------------------------------------------------------------------------------------


def commands_page() -> str:
    """Return every command with its help as a terminal shows it."""
    parts = ["# Commands\n", "Generated from the program: `migverify COMMAND --help` prints the same.\n"]
    group = ""
    for words, text in helps():
        if words[0] != group:
            group = words[0]
            parts.append(f"## migverify {group}\n")
        title = f"### migverify {' '.join(words)}\n\n" if len(words) > 1 else ""
        parts.append(f"{title}```text\n{text.rstrip()}\n```\n")
    return "\n".join(parts)


def helps() -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the words and the help of each command, groups before their members."""
    from migverify.cli.main import COMMANDS, LazyCommands, added_commands

    for name, command in LazyCommands((*COMMANDS, *added_commands()), {}).items():
        yield from _helps(command, (name,))


def _helps(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    with command.make_context("migverify " + " ".join(words), ["--help"], resilient_parsing=True) as context:
        context.max_content_width = 100
        context.meta[EVERYTHING] = True  # as --help-all does
        yield words, command.get_help(context)
    for form in getattr(command, "forms", ()):
        yield from _helps(form.command(), (*words, form.flags[0]))
    for name, member in getattr(command, "commands", {}).items():
        if not member.hidden:
            yield from _helps(member, (*words, name))


@cache
def modules() -> list[tuple[Path, str, list[tuple[str, ast.Call]]]]:
    """Return path, text and calls of functions by their name, of every module."""
    found = []
    for path in sorted(PRODUCT.rglob("*.py")):
        text = path.read_text()
        calls = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call)]
        found.append((path, text, [(n.func.id, n) for n in calls if isinstance(n.func, ast.Name)]))
    return found


# -- error messages --------------------------------------------------------------------------------------------------


def errors_page() -> str:
    """Return every error message that names a remedy, by package; parts that vary are an ellipsis."""
    parts = [
        "# Error messages and remedies\n",
        "Generated from the program. `...` is where a message names a table, a file, a server or a number.\n",
    ]
    package = ""
    for path, cause, message, remedy in sorted(set(messages())):
        if path != package:
            package = path
            parts.append(f"## {package}\n\n| message | remedy | error |\n|---|---|---|")
        parts.append(f"| {_cell(message)} | {_cell(remedy)} | `{cause}` |")
    return "\n".join(parts) + "\n"


def messages() -> Iterator[tuple[str, str, str, str]]:
    """Yield package, class, message and remedy of each error that is raised with a remedy."""
    for path, _, calls in modules():
        package = path.relative_to(PRODUCT).parts[0].removesuffix(".py")
        for name, node in calls:
            if not name.endswith("Error"):
                continue
            remedy = next((_text(k.value) for k in node.keywords if k.arg == "hint"), "")
            message = _text(node.args[0]) if node.args else ""
            if message.strip(". ") and remedy.strip(". "):
                yield package, name, message, remedy


def _text(node: ast.expr, values: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a text of the source; empty for one that is made elsewhere. ``values``: what some names are."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Name | ast.Attribute):
        return values.get(node.id if isinstance(node, ast.Name) else node.attr, "")
    if isinstance(node, ast.FormattedValue):
        return _text(node.value, values) or "..."
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(value, values) for value in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (_text(node.left, values) or "...") + (_text(node.right, values) or "...")
    return ""


def _cell(text: str) -> str:
    clean = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return re.sub(r"([*_\[\]])", r"\\\1", clean)


# -- metrics ---------------------------------------------------------------------------------------------------------

PREFIX = re.compile(r"prefix: ClassVar\[str\] = \"(\w+)\"")
GAUGE = re.compile(r"[a-z][a-z0-9_]+")
WRITER = PRODUCT / "exposition.py"
Values = dict[str, str]
"""Texts that names of the source have at a place, for example in one turn of a loop."""


def metrics_page() -> str:
    """Return the metrics of each module that makes some: name and what it says."""
    parts = [
        "# Metrics\n",
        "Generated from the program. Watches, guards and runbooks serve them at `/metrics`; reports write them.",
        "What to alert on, and what each alert asks of you: [observability](../observability.md).\n",
        "| metric | meaning | made in |\n|---|---|---|",
    ]
    rows = {(name, text, where) for where, name, text in gauges()}
    parts += [f"| `{name}` | {_cell(text)} | `{where}` |" for name, text, where in sorted(rows)]
    return "\n".join(parts) + "\n"


def gauges() -> Iterator[tuple[str, str, str]]:
    """Yield module, name and help of each ``Metric`` and of each row of a table of gauges.

    A name that is not in the source has ``...`` for what is missing: a test refuses it.
    """
    statuses = [own[1] for _, text, _ in modules() if (own := PREFIX.search(text)) is not None]
    for path, text, calls in modules():
        if path == WRITER or not any(name in ("Metric", "gauges") for name, _ in calls):
            continue
        where, own, tree = str(path.relative_to(ROOT)), PREFIX.search(text), ast.parse(text)
        for prefix in statuses if own is None else [own[1]]:
            for name, meaning in _metrics(tree, tree, {"prefix": prefix}):
                yield where, name, meaning


def _metrics(node: ast.AST, module: ast.Module, values: Values) -> Iterator[tuple[str, str]]:
    """Yield name and help of each metric below a node, once for each turn of a loop and each call of a function."""
    if isinstance(node, ast.FunctionDef) and node.name == "gauges":
        return  # its rows are read where it is called
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id == "Metric":
            yield _text(node.args[0], values), _text(node.args[1], values)
        if node.func.id == "gauges":
            yield from _rows(node, values)
    for turn in _turns(node, module):
        for child in ast.iter_child_nodes(node):
            yield from _metrics(child, module, values | turn)


def _turns(node: ast.AST, module: ast.Module) -> list[Values]:
    """Return what names are in each turn of a loop over a written table, or in each call of a function here."""
    names: list[ast.expr | ast.arg] = []
    turns: list[list[ast.expr]] = []
    if isinstance(node, ast.For) and isinstance(node.target, ast.Tuple) and isinstance(node.iter, ast.Tuple):
        names += node.target.elts
        turns = [row.elts for row in node.iter.elts if isinstance(row, ast.Tuple)]
    elif isinstance(node, ast.FunctionDef):
        names += node.args.args
        calls = (call for call in ast.walk(module) if isinstance(call, ast.Call) and isinstance(call.func, ast.Name))
        turns = [call.args for call in calls if isinstance(call.func, ast.Name) and call.func.id == node.name]
    words = [name.id if isinstance(name, ast.Name) else name.arg if isinstance(name, ast.arg) else "" for name in names]
    found = [dict(zip(words, map(_text, turn), strict=False)) for turn in turns]
    return [{name: text for name, text in one.items() if text} for one in found] or [{}]


def _rows(call: ast.Call, values: Values) -> Iterator[tuple[str, str]]:
    prefix = _text(call.args[0], values)
    for node in ast.walk(call):
        if isinstance(node, ast.Tuple) and len(node.elts) == 3:
            name, _, text = (_text(element) for element in node.elts)
            if GAUGE.fullmatch(name) and text:
                yield f"{prefix}_{name}", text

"""What commands print with ``--json`` in any test of this process is compared with its published schema.

A pytest plugin: ``migverify.cli.main`` runs every command line of a test, so one place sees all outputs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import cache
from itertools import islice
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

MOST_LINES = 200
"""Of an output of lines, so many are compared: a table of a million row diffs has one shape."""
REPORTS = {
    None: "run", "replay": "workload-replay", "plans": "workload-plans", "guards": "report-guards",
    "shadow": "report-shadow", "anomalies": "report-anomalies", "conflicts": "report-conflicts",
    "decision": "workload-decision",
}  # fmt: skip
"""``report --format json``: the schema by the kind that the document names."""


class Copy:
    """A stream that keeps what is written to it; all else is the stream's own."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.parts: list[str] = []

    def write(self, text: str) -> int:
        written = int(self._stream.write(text))  # first: it refuses bytes, by which a writer learns what it takes
        self.parts.append(text)
        return written

    def writelines(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def pytest_configure(config: pytest.Config) -> None:
    del config
    _observe_command_lines()
    _observe_runners()
    _observe_reports()


def _observe_command_lines() -> None:
    from migverify.cli import main

    real = main._run

    def observed(arguments: Sequence[str]) -> int:
        if "--json" not in arguments and not {"report", "json"} <= set(arguments):
            return real(arguments)
        before = sys.stdout
        copy = sys.stdout = Copy(before)  # type: ignore[assignment]
        try:
            code = real(arguments)
        finally:
            sys.stdout = before
        compare_with_schema([str(word) for word in arguments], "".join(copy.parts))
        return code

    main._run = observed


def _observe_runners() -> None:
    """Compare what Typer's runner invokes too, where it is given the whole command line."""
    from typer.testing import CliRunner

    from migverify.cli.main import app

    real = CliRunner.invoke

    def observed(self: CliRunner, application: Any, arguments: Any = None, **more: Any) -> Any:
        done = real(self, application, arguments, **more)
        ended = done.exception is None or isinstance(done.exception, SystemExit)
        if application is app and ended and "--json" in (arguments or ()):
            compare_with_schema([str(word) for word in arguments], done.stdout)
        return done

    CliRunner.invoke = observed  # type: ignore[method-assign, assignment]


def _observe_reports() -> None:
    """Compare every report that is rendered as JSON; those of runbook runs have no schema."""
    from migverify.report.model import Report

    real = Report.json_document.fget
    assert real is not None

    def observed(report: Report) -> dict[str, Any]:
        document: dict[str, Any] = real(report)
        kind = document.get("kind")
        if kind in REPORTS and (kind is not None or "tables" in document):
            problems(REPORTS[kind], json.loads(json.dumps(document)))
        return document

    Report.json_document = property(observed)  # type: ignore[method-assign, assignment]


def compare_with_schema(arguments: Sequence[str], text: str) -> None:
    """Fail where an output is not what its schema says; a command of another distribution has none."""
    from migverify.outputs.registry import output_of

    command = command_of(arguments)
    if command is None or not text.strip():
        return
    if command == "report":
        document = json.loads(text)
        problems(REPORTS[document.get("kind")], document)
    elif "--json" in arguments:
        output = output_of(command, arguments)
        for document in documents(text, lines=output.lines):
            problems(output.name, document)


def documents(text: str, *, lines: bool) -> list[Any]:
    return [json.loads(line) for line in islice(text.splitlines(), MOST_LINES)] if lines else [json.loads(text)]


def problems(name: str, document: Any) -> None:
    worst = best_match(validator(name).iter_errors(document))
    assert worst is None, f"schema {name}, at {worst.json_path}: {worst.message[:500]}"


@cache
def validator(name: str) -> Draft202012Validator:
    from migverify.outputs.published import schema_document

    return Draft202012Validator(schema_document(name))


def command_of(arguments: Sequence[str]) -> str | None:
    """Return the command of a command line, a form by its first option; None where it is not of this distribution."""
    commands = known_commands()
    words = list(arguments)
    while words and words[0].startswith("-"):
        words.pop(0)
    named = [name for name in commands if words[: len(name.split())] == name.split()]
    if not named:
        return None
    name = max(named, key=len)
    given = {word.partition("=")[0] for word in (words[: words.index("--")] if "--" in words else words)}
    chosen = next((flags[0] for flags in commands[name] if given & set(flags)), "")
    return f"{name} {chosen}".strip()


@cache
def known_commands() -> dict[str, tuple[tuple[str, ...], ...]]:
    """Return every command with the options that choose its forms."""
    from tests.pages import declared_commands

    return {
        name: tuple(form.flags for form in getattr(command, "forms", ()))
        for name, command in declared_commands(forms=False)
    }

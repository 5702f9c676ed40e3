"""``migverify changes audit``: whether the stream is complete."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.changes_check import chosen_sources
from migverify.cli.console import (
    DEFAULT_CONFIG,
    ConfigOption,
    JsonOption,
    SourceOption,
    TablesOption,
    examples,
    json_text,
    say,
)
from migverify.errors import UsageError

if TYPE_CHECKING:
    from migverify.changes.audit import AuditScope, StreamAudit
    from migverify.changes.model import Position
    from migverify.config import Config, TablePattern
    from migverify.model import Endpoint

EPILOG = examples(
    "migverify changes audit",
    "migverify changes audit --file binlog.000001 --file binlog.000002 --json",
    "migverify changes audit --since 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-1000",
)


@dataclass(frozen=True, slots=True)
class _AuditOptions:
    """What the command line asks for, checked."""

    files: tuple[str, ...]
    since: Position | None
    until: Position | None
    patterns: tuple[TablePattern, ...]


def audit(
    config: ConfigOption = DEFAULT_CONFIG,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", "-f", metavar="FILE", help="Binlog file or URL instead of the server; repeat in order."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="POSITION", help="Start here: file:offset or a GTID set. Default: the oldest log."),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="POSITION", help="Stop here. Default: the end of the binlog now.")
    ] = None,
    tables: TablesOption = None,
    source: SourceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Prove that a range of the binlog is complete.

    Exit 0: complete; 1: something is missing; 3: not proved, with the reasons.
    """
    from migverify.changes.positions import parse_position
    from migverify.cli.changes_audit_view import audit_as_dict, audit_as_text
    from migverify.config import chosen_patterns
    from migverify.model import Verdict

    patterns = tuple(chosen_patterns(tables or ()))
    start, end = (None if text is None else parse_position(text) for text in (since, until))
    asked = _AuditOptions(tuple(file or ()), start, end, patterns)
    found = list(_audits(config, source, asked))
    verdict = Verdict.worst([one.verdict for _, one in found])
    if as_json:
        sources = [audit_as_dict(*one) for one in found]
        typer.echo(json_text({"verdict": verdict.value, "sources": sources}))
    else:
        for name, one in found:
            for line in audit_as_text(name, one):
                typer.echo(line)
        typer.echo(verdict.value)
    raise typer.Exit(int(verdict.exit_code))


def _audits(path: Path, source: str | None, asked: _AuditOptions) -> Iterator[tuple[str, StreamAudit]]:
    from migverify.changes.audit import audit_files, audit_server
    from migverify.config import load_config
    from migverify.secrets import resolve_password

    if asked.files:
        # Files explain themselves: without a configuration every table is in scope.
        loaded = load_config(path) if path.exists() else None
        yield "files", audit_files(asked.files, _scope(loaded, asked), since=asked.since, until=asked.until)
        return
    loaded = load_config(path)
    for endpoint in _sources(loaded, source, asked):
        say(f"reading the binlog of {endpoint.name}")
        password = resolve_password(endpoint).reveal() or None
        yield endpoint.name, audit_server(
            endpoint, password, _scope(loaded, asked), since=asked.since, until=asked.until
        )  # fmt: skip


def _sources(config: Config, source: str | None, asked: _AuditOptions) -> list[Endpoint]:
    found = chosen_sources(config, source)
    if len(found) > 1 and (asked.since or asked.until or asked.files):
        raise UsageError(
            f"{len(found)} sources are configured, and a position means something on one of them only",
            hint=f"Name one: --source {found[0].name}",
        )
    return found


def _scope(config: Config | None, asked: _AuditOptions) -> AuditScope:
    from migverify.changes.audit import AuditScope
    from migverify.config import includes, is_system_database

    patterns = asked.patterns

    def wanted(database: str, table: str) -> bool:
        fits = not is_system_database(database) if config is None else includes(config, database, table)
        return fits and (not patterns or any(p.matches(database, table) for p in patterns))

    def wanted_database(database: str) -> bool:
        listed = config.tables.include if config is not None else ()
        return all(
            any(p.whole is not None or p.database.regex.fullmatch(database) for p in group)
            for group in (listed, patterns)
            if group
        )

    return AuditScope(wanted, wanted_database)

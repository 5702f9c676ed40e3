"""``migverify changes audit``: whether the stream is complete, and whether everything was delivered."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.changes_check import JsonOption, SourceOption, chosen_sources
from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, examples, say
from migverify.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from migverify.changes.audit import Audit, Scope
    from migverify.changes.model import Position
    from migverify.config import Config, TablePattern
    from migverify.model import Endpoint, Verdict
    from migverify.tables.delivered import Delivery
    from migverify.tables.tasks import PairPlan

EPILOG = examples(
    "migverify changes audit",
    "migverify changes audit --file binlog.000001 --file binlog.000002 --json",
    "migverify changes audit --since binlog.000120:4 --delivered",
    "migverify changes audit --since 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-1000 --delivered --applied",
)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the command line asks for, checked."""

    files: tuple[str, ...]
    since: Position | None
    until: Position | None
    patterns: tuple[TablePattern, ...]
    settle: float
    applied: bool


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
        str | None, typer.Option(metavar="POSITION", help="Stop here. Default: where the source stands now.")
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option("--tables", "-t", metavar="PATTERN", help="Only source tables that match; repeatable."),
    ] = None,
    source: SourceOption = None,
    delivered: Annotated[
        bool, typer.Option("--delivered", help="Compare the rows that the binlog leaves with those of the target.")
    ] = False,
    settle: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="--delivered: how long the target may take to catch up.")
    ] = 10.0,
    applied: Annotated[
        bool,
        typer.Option("--applied", help="--delivered: the target has applied the range; what is missing is lost."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Prove that a range of the binlog is complete, and that it was delivered.

    Exit 0: complete (and delivered); 1: something is missing; 3: not proved, with the reasons.
    """
    from migverify.changes.positions import parse_position
    from migverify.cli.changes_audit_view import audit_as_dict, audit_as_text
    from migverify.config import parse_pattern
    from migverify.model import Verdict

    if applied and not delivered:
        raise UsageError("--applied says something about the target; it goes with --delivered")
    try:
        patterns = tuple(parse_pattern(text) for text in tables or ())
    except ValueError as error:
        raise UsageError(f"--tables: {error}") from error
    start, end = (None if text is None else parse_position(text) for text in (since, until))
    asked = _Asked(tuple(file or ()), start, end, patterns, settle, applied)
    if delivered:
        found = list(_delivered(config, tables, source, asked))
    else:
        found = [(name, one, None) for name, one in _audits(config, source, asked)]
    verdict = Verdict.worst([v for _, one, other in found for v in _verdicts(one, other)])
    if as_json:
        sources = [audit_as_dict(*one) for one in found]
        typer.echo(json.dumps({"verdict": verdict.value, "sources": sources}, ensure_ascii=False))
    else:
        for name, one, delivery in found:
            for line in audit_as_text(name, one, delivery):
                typer.echo(line)
        typer.echo(verdict.value)
    codes = {Verdict.MATCH: ExitCode.MATCH, Verdict.MISMATCH: ExitCode.MISMATCH}
    raise typer.Exit(int(codes.get(verdict, ExitCode.INCONCLUSIVE)))


def _verdicts(one: Audit, delivery: Delivery | None) -> list[Verdict]:
    return [one.verdict] if delivery is None else [one.verdict, delivery.verdict]


def _audits(path: Path, source: str | None, asked: _Asked) -> Iterator[tuple[str, Audit]]:
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


def _sources(config: Config, source: str | None, asked: _Asked) -> list[Endpoint]:
    found = chosen_sources(config, source)
    if len(found) > 1 and (asked.since or asked.until or asked.files):
        raise UsageError(
            f"{len(found)} sources are configured, and a position means something on one of them only",
            hint=f"Name one: --source {found[0].name}",
        )
    return found


def _delivered(
    path: Path, tables: list[str] | None, source: str | None, asked: _Asked
) -> Iterator[tuple[str, Audit, Delivery | None]]:
    from migverify.tables.prepare import prepared_run

    with prepared_run(path, tables, current=True) as (loaded, secrets, prepared):
        pairs = list(prepared.pairs())
        for endpoint in _sources(loaded, source, asked):
            yield _deliver_one(loaded, endpoint, secrets, pairs, asked)


def _deliver_one(
    config: Config, endpoint: Endpoint, secrets: dict[str, str], pairs: list[PairPlan], asked: _Asked
) -> tuple[str, Audit, Delivery | None]:
    from migverify.changes.audit import audit_files, audit_server
    from migverify.changes.delivered import LastImages
    from migverify.changes.server import stood_still
    from migverify.tables.delivered import Wait, followed_keys, judge, pairs_of
    from migverify.tables.prepare import rules_of

    own = pairs_of(pairs, endpoint.name)
    password = secrets.get(endpoint.name)
    with LastImages(followed_keys(own, endpoint.name)) as images:
        scope = _scope(config, asked, images.take)
        say(f"reading the binlog of {endpoint.name}")
        if asked.files:
            found = audit_files(asked.files, scope, since=asked.since, until=asked.until)
        else:
            found = audit_server(endpoint, password, scope, since=asked.since, until=asked.until)
        say(f"comparing with {config.target.name}")
        wait = Wait(time.time() + asked.settle, asked.applied)
        delivery = judge(
            images, own, secrets, rules_of(config), wait, keep_values=config.report.values,
            source_still=lambda: stood_still(endpoint, password, found.last), seen=found.tables,
        )  # fmt: skip
    return endpoint.name, found, delivery


def _scope(config: Config | None, asked: _Asked, also: Callable[..., None] | None = None) -> Scope:
    from migverify.changes.audit import Scope
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

    return Scope(wanted, wanted_database, also)

"""``migverify config --grants``: what the configured users lack, as statements that can be pasted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import typer

from migverify.cli.console import say
from migverify.config import Config, database_patterns
from migverify.db.session import open_session
from migverify.errors import EndpointError, ExitCode, UsageError
from migverify.model import Endpoint, Flavor, Side
from migverify.secrets import resolve_password
from migverify.sql.grants import check_grants, names_are_literal
from migverify.sql.privileges import REPAIR, Scopes, commands, missing, statements, wanted_for
from migverify.sql.settings import version_number


@dataclass(frozen=True, slots=True)
class Lacking:
    """What the user of one endpoint lacks: privileges by the object of ``GRANT ... ON``, and the statements."""

    endpoint: Endpoint
    account: str
    privileges: dict[str, tuple[str, ...]]
    statements: tuple[str, ...]


def print_missing(config: Config, only: Sequence[str], *, as_json: bool) -> ExitCode:
    """Print the missing grants of all endpoints; the statements alone go to standard output.

    Raises
    ------
    UsageError
        no command has one of the names.
    EndpointError
        a server cannot be reached or refuses the user. What the others lack was printed.
    """
    chosen = _commands(only)
    found: list[Lacking] = []
    failures: list[EndpointError] = []
    for endpoint in config.endpoints:
        try:
            found.append(_lacking(config, endpoint, chosen))
        except EndpointError as error:
            failures.append(error)
    if as_json:
        reported = [
            {"endpoint": one.endpoint.name, "account": one.account, "missing": one.privileges,
             "statements": one.statements}
            for one in found
        ]  # fmt: skip
        typer.echo(
            json.dumps({"endpoints": reported, "errors": [error.line for error in failures]}, ensure_ascii=False)
        )
    else:
        _print(found)
    for endpoint in config.others:
        say(f"{endpoint.name}: not asked; its user needs SELECT on the datasets of the rules: migverify recon check")
    for failure in failures[1:]:
        say(f"error: {failure.line}")
    if failures:
        raise failures[0]
    return ExitCode.MISMATCH if any(one.statements for one in found) else ExitCode.MATCH


def _print(found: Sequence[Lacking]) -> None:
    for one in found:
        end = one.endpoint
        if not one.statements:
            say(f"{end.name}: {one.account} lacks nothing")
            continue
        typer.echo(f"-- {end.name}, {end.host}:{end.port}, as an administrator:")
        for statement in one.statements:
            typer.echo(statement)


def _commands(only: Sequence[str]) -> list[str]:
    known = commands()
    chosen: list[str] = []
    for name in only:
        whole = [one for one in known if one == name or (one.startswith(f"{name} ") and one != REPAIR)]
        if not whole:
            raise UsageError(
                f"--for {name}: no such command needs a grant", hint=f"Say one of: {', '.join(known)}; or a group."
            )
        chosen += whole
    return chosen


def _lacking(config: Config, endpoint: Endpoint, chosen: Sequence[str]) -> Lacking:
    plain = replace(endpoint, snapshot=None, resource_group=None)  # both may be what the user lacks a grant for
    side = Side.TARGET if endpoint.name == config.target.name else Side.SOURCE
    with open_session(plain, resolve_password(endpoint).reveal() or None) as session:
        held = check_grants(session)
        held = replace(held, literal=session.flavor is Flavor.MYSQL and names_are_literal(session))
        needs = wanted_for(chosen, side, session.flavor, version_number(session.version))
    databases = database_patterns(config, target=side is Side.TARGET)
    reverse = None if config.reverse is None else config.reverse.marker
    watch = config.watch
    scopes = Scopes(databases, watch.marker, watch.checkpoint, bool(endpoint.resource_group), reverse)
    lacking = missing(needs, held, scopes)
    return Lacking(endpoint, held.account, lacking, tuple(statements(lacking, held.account)))

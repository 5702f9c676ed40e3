"""``migverify config --grants``: what the configured users lack, as statements that can be pasted."""

from __future__ import annotations

import json
from collections.abc import Sequence

import typer

from migverify.cli.console import say
from migverify.config import Config
from migverify.errors import EndpointError, ExitCode, UsageError
from migverify.guards.lacking import Lacking, lacking_grants
from migverify.sql.privileges import REPAIR, commands


def print_missing(config: Config, only: Sequence[str], *, as_json: bool) -> ExitCode:
    """Print the missing grants of all endpoints; the statements alone go to standard output.

    Raises
    ------
    UsageError
        no command has one of the names.
    EndpointError
        a server cannot be reached or refuses the user. What the others lack was printed.
    """
    chosen = chosen_commands(only)
    found: list[Lacking] = []
    failures: list[EndpointError] = []
    for endpoint in config.endpoints:
        try:
            found.append(lacking_grants(config, endpoint, chosen))
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


def chosen_commands(only: Sequence[str]) -> list[str]:
    """Return the commands of these names, or of these groups; none for none. Raises UsageError: there is no such."""
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

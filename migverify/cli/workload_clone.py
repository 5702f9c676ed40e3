"""``migverify workload replay --mark-clone``: write the row that lets replay write to an endpoint."""

from __future__ import annotations

import json
import re
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, JsonOption, examples, say
from migverify.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from migverify.config import Config
    from migverify.model import Endpoint

EPILOG = examples(
    "migverify workload replay --mark-clone target --name drill-3 --expires 7d",
    "migverify workload replay --mark-clone source --name drill-3 --expires 12h --json",
    "migverify workload replay --mark-clone target --show",
)
_TIME = re.compile(r"(\d+(?:\.\d+)?)([hd])\Z")


def mark_clone(
    endpoint: Annotated[str, typer.Argument(metavar="ENDPOINT", help="source, source.SHARD or target.")],
    config: ConfigOption = DEFAULT_CONFIG,
    name: Annotated[str, typer.Option("--name", metavar="DRILL", help="Name of the drill.")] = "",
    expires: Annotated[str, typer.Option("--expires", metavar="TIME", help="How long it holds: 12h, 7d.")] = "7d",
    show: Annotated[bool, typer.Option("--show", help="Write nothing; say whether a mark holds.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Mark a server as a rehearsal clone, so that captured writes may be replayed on it until the mark expires.

    Writes one row to the table that workload.clone_marker of the configuration names, and makes the table where it is
    not there. The row names the server itself: it is worth nothing in a backup restored elsewhere.
    """
    from migverify.config import load_config
    from migverify.db.session import open_session
    from migverify.model import Side
    from migverify.secrets import resolve_password
    from migverify.workload.replay.clone import mark, prove

    loaded = load_config(config)
    found = next((one for one in loaded.endpoints if one.name == endpoint), None)
    if found is None:
        names = ", ".join(one.name for one in loaded.endpoints)
        raise UsageError(f"{endpoint}: no such endpoint in {config}.", hint=f"One of {names}.")
    marker = loaded.workload.clone_marker
    if marker is None:
        raise ConfigError(
            f"{config}: workload.clone_marker is not set, so nothing may be written to any endpoint",
            hint="Set it to a table of the clone that exists nowhere else, as database.table.",
        )
    if not show and not name:
        raise UsageError("a mark needs the name of its drill.", hint="--name DRILL")
    days = _days(expires)
    # A mark is the one write that was allowed by name; a session of the source is read-only.
    side = Side.SOURCE if show and found in loaded.sources else Side.TARGET
    with open_session(found, resolve_password(found).reveal() or None, side=side) as session:
        proof = prove(session, marker, name=name or None) if show else mark(session, marker, name, days)
    if as_json:
        typer.echo(json.dumps({
            "endpoint": endpoint, "name": proof.name, "marker": proof.marker, "server": str(proof.identity),
            "marked_at": proof.marked_at, "expires_at": proof.expires_at,
        }))  # fmt: skip
    else:
        say(f"{endpoint} is the rehearsal clone of {proof.name}: {proof.identity}, until {proof.until}")


def _days(text: str) -> float:
    found = _TIME.match(text)
    if found is None:
        raise UsageError(f"--expires {text}: not a time.", hint="A number and h or d: 12h, 7d.")
    return float(found[1]) / (24 if found[2] == "h" else 1)


def proved_clone(config: Config, endpoint: Endpoint, password: str | None) -> tuple[bool, str]:
    """Tell whether an endpoint is proved to be a rehearsal clone, and why it is not."""
    from migverify.db.session import open_session
    from migverify.errors import EndpointError
    from migverify.workload.replay.clone import prove

    marker = config.workload.clone_marker
    if marker is None:
        return False, "the configuration names no workload.clone_marker"
    with closing(open_session(endpoint, password)) as session:
        try:
            prove(session, marker)
        except EndpointError as error:
            return False, error.message
    return True, ""

"""``migverify workload sessions``: database, user and settings of sessions that are older than a capture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, JsonOption, SourceOption, examples, say
from migverify.errors import UsageError
from migverify.files import write_whole

EPILOG = examples(
    "migverify workload sessions --out sessions.json",
    "migverify workload sessions --source eu --server db1 --out sessions-eu.json",
    "migverify workload replay capture --sessions sessions.json",
)


def sessions(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write; replaced when it is there.")
    ],
    config: ConfigOption = DEFAULT_CONFIG,
    source: SourceOption = None,
    server: Annotated[
        str, typer.Option("--server", metavar="NAME", help="The server's name in a capture of several servers.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Write which database, user and settings each session of the source has now; only SELECTs are sent.

    Run it while the capture runs: sessions that began before the capture are then replayed in the state that they have.
    MySQL shows settings too; MariaDB and TiDB show users and databases alone.
    """
    from migverify.cli.changes_check import one_source
    from migverify.config import load_config
    from migverify.db.session import open_session
    from migverify.model import Side
    from migverify.secrets import resolve_password
    from migverify.workload.server_sessions import dump_sessions

    endpoint = one_source(load_config(config), source)
    with open_session(endpoint, resolve_password(endpoint).reveal() or None, side=Side.SOURCE) as session:
        dump = dump_sessions(session, server or f"{endpoint.host}:{endpoint.port}")
    body = dump.as_json()
    try:
        write_whole(out, json.dumps(body, indent=1).encode(), 0o600)
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error}", hint="Name a file in a folder that is there.") from error
    known = sum(one.settings is not None for one in dump.sessions)
    if as_json:
        facts = {"out": str(out), "server": dump.server, "at": body["at"], "sessions": len(dump.sessions)}
        typer.echo(json.dumps({**facts, "with_settings": known}))
        return
    say(f"{out}: {len(dump.sessions):,} sessions of {dump.server} at {body['at']}, {known:,} of them with settings")

"""``migverify mcp``: runs and verdicts as read-only tools of an MCP client."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from migverify.cli.commands import add
from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, StoreOption, examples
from migverify.cli.runbook_room import DEFAULT_ROOM, RoomOption
from migverify.errors import UsageError, wheel_hint

app = typer.Typer()

_EPILOG = examples(
    "migverify mcp --config migverify.yaml",
    "migverify mcp --config prod.yaml --runs /srv/runs --runbook runbooks/cutover.yaml",
)


def mcp(
    config: ConfigOption = DEFAULT_CONFIG,
    runs: RoomOption = DEFAULT_ROOM,
    runbook: Annotated[
        list[Path] | None,
        typer.Option("--runbook", metavar="FILE", help="A runbook whose readiness may be asked; may be given again."),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Serve read-only tools to an MCP client over standard input and output: status, report, diff, explain, readiness.

    Reads the result store, the ledgers of watches, the folder of runbook runs and the runbooks that are named here.
    Connects to no endpoint and writes nothing. Ends when the client does.
    """
    if find_spec("mcp") is None:
        raise UsageError("the MCP server needs a package that is not installed", hint=f"{wheel_hint('mcp')}.")
    from migverify.cli.mcp_server import serve
    from migverify.cli.mcp_tools import ToolScope
    from migverify.config import load_config

    load_config(config)  # what is wrong with it is said at the start, not by each tool
    runbooks = {path.stem: path for path in runbook or ()}
    if len(runbooks) < len(runbook or ()):
        raise UsageError("two runbooks have one file name", hint="Tools name a runbook by its file name: rename one.")
    for path in runbooks.values():
        if not path.is_file():
            raise UsageError(f"--runbook {path}: there is no such file")
    serve(ToolScope(config, store, runs, runbooks))


add(app, "mcp", mcp, _EPILOG)

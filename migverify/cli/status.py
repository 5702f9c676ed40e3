"""``migverify status``: runs, watches and runbook runs at a glance, or how far one run is."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.commands import add
from migverify.cli.console import (
    DEFAULT_CONFIG,
    ConfigOption,
    JsonOption,
    StoreOption,
    examples,
    json_text,
    say,
    visible,
)
from migverify.cli.runbook_room import DEFAULT_ROOM, RoomOption, room_of
from migverify.errors import ConfigError, MigverifyError, StoreError
from migverify.model import NextStep, StoredKind, Verdict

if TYPE_CHECKING:
    from migverify.model import RunInfo
    from migverify.store.results import ResultStore

app = typer.Typer()

_EPILOG = examples("migverify status", "migverify status last", "migverify status --limit 50 --json")
_COMMAND_WIDTH = 60


def status(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="How far this run is: its id, or `last`.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many runs of each kind.")] = 10,
    config: ConfigOption = DEFAULT_CONFIG,
    runs: RoomOption = DEFAULT_ROOM,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Show the newest runs, the watches of both directions side by side, the newest runbook runs; with RUN, that run.

    Reads the store, the ledgers of watches and the folder of runbook runs only, so it works while runs go on. Exit 0,
    also when a run failed.
    """
    found = overview(store, config, runs, limit) if run is None else run_overview(store, config, run)
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False) if run is None else json_text(found, run_steps(found)))
        return
    lines = _overview(found) if run is None else (f"{name:<14} {value}" for name, value in found.items())
    for line in lines:
        typer.echo(line)


def overview(store: str | None, config: Path, room: str, limit: int, *, create: bool = True) -> dict[str, Any]:
    """Return the newest runs, the watches of both directions and the newest runbook runs, as JSON."""
    return {
        "runs": list(_runs(store, config, limit, create=create)),
        "directions": _directions(store, config, create=create), "runbooks": list(_runbook_runs(room, limit)),
    }  # fmt: skip


def run_overview(store: str | None, config: Path, run: str, *, create: bool = True) -> dict[str, Any]:
    """Return how far a run is, as JSON."""
    from migverify.cli.report import open_run_store

    with closing(open_run_store(store, config, create=create)) as opened:
        return _one(opened, run)


def _one(store: ResultStore, run: str) -> dict[str, Any]:
    from migverify.cli.diff_view import run_status

    info = store.load_run(run)
    if info.kind in (StoredKind.TABLES, StoredKind.QUICK):
        return run_status(store, info.run_id)
    return _row(info)


def run_steps(found: dict[str, Any]) -> Iterator[NextStep]:
    """Yield the command that shows more of a run, unless all of it matches."""
    if found["verdict"] != Verdict.MATCH:
        yield NextStep(f"migverify report {found['run_id']}", "why the verdict is as it is, and what to do")


def _row(info: RunInfo) -> dict[str, Any]:
    return {
        "run_id": info.run_id, "kind": info.kind.value, "verdict": info.verdict.value,
        "state": "finished" if info.finished is not None else "running or interrupted",
        "started": _time(info.started), "command": info.command,
    }  # fmt: skip


def _runs(url: str | None, config: Path, limit: int, *, create: bool) -> Iterator[dict[str, Any]]:
    from migverify.cli.report import open_run_store

    if url is None and not config.exists():
        say(f"no runs are listed: there is no {config}")
        return
    with closing(open_run_store(url, config, create=create)) as opened:
        yield from (_row(info) for info in opened.runs(limit))


def _directions(url: str | None, config: Path, *, create: bool) -> dict[str, Any] | None:
    """Return the newest watches of both directions of the configuration; None where it has none, or is not there."""
    if not config.exists():
        return None
    from migverify.cli.directions_view import directions_as_dict
    from migverify.cli.report import open_run_store
    from migverify.config import load_config
    from migverify.config.digest import comparison_digest
    from migverify.tables.directions import both_directions
    from migverify.watch.ledger import ledger_folder

    loaded = load_config(config)
    with closing(open_run_store(url, config, create=create)) as opened:
        found = both_directions(loaded, comparison_digest(loaded), opened, ledger_folder(loaded))
    return None if found is None else directions_as_dict(found)


def _runbook_runs(place: str, limit: int) -> Iterator[dict[str, Any]]:
    if "://" not in place and not Path(place).is_dir():
        return
    room = room_of(place)
    for id_ in reversed(room.ids()[-limit:]):
        try:
            now = room.open(id_).status
        except (StoreError, ConfigError, MigverifyError) as error:
            yield {"run_id": id_, "state": "cannot be read", "reason": error.message}
            continue
        driver = f"driven by {now.executor_by}" if now.executor and not now.over else ""
        yield {
            "run_id": id_, "kind": now.kind.value, "environment": now.runbook.environment, "state": now.state.value,
            "runbook": now.runbook.id, "driver": driver,
        }  # fmt: skip


def _overview(found: dict[str, Any]) -> Iterator[str]:
    if not found["runs"]:
        yield "no runs in the store"
    for one in found["runs"]:
        open_ = "" if one["state"] == "finished" else f"  ({one['state']})"
        yield f"{one['run_id']}  {one['verdict']:<12} {one['kind']:<8} {one['command'][:_COMMAND_WIDTH]}{open_}"
    if found["directions"] is not None:
        from migverify.cli.directions_view import directions_as_text

        yield ""
        yield from (visible(line, lines=False) for line in directions_as_text(found["directions"]))
        yield ""
    for one in found["runbooks"]:
        words = [one.get("runbook", ""), one.get("kind", ""), one.get("environment", ""), one.get("driver", "")]
        yield f"{one['run_id']}  {one['state']:<12} {' '.join(word for word in words if word)}{one.get('reason', '')}"


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


add(app, "status", status, _EPILOG)

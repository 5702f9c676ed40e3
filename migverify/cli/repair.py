"""``migverify tables repair``: scripts that make the target's rows what the source's are, and their inverse."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, say
from migverify.errors import ExitCode

if TYPE_CHECKING:
    from migverify.tables.repair_outcome import Repair


def repair(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run id, or `last`: the newest of tables.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the scripts and the manifest.")],
    apply: Annotated[
        bool, typer.Option("--apply", help="Execute the scripts on the target, then read every row again.")
    ] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--tables", "-t", metavar="PATTERN", help="Only source tables that match, as database.table; repeatable."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output.")] = False,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="Result store; default: the configuration's.")
    ] = None,
) -> None:
    """Write SQL that repairs the confirmed row diffs of a run, and its inverse; with --apply, execute it.

    Exit codes: 0 every row has its statement (--apply: every row is equal now), 1 rows still differ after --apply,
    3 some rows or tables got no statement (--apply: or could not be judged).
    """
    from migverify.cli.report import open_run_store
    from migverify.tables.prepare import prepared_run
    from migverify.tables.repair_run import run_repair

    with (
        prepared_run(config, tables, current=True) as (loaded, secrets, prepared),
        closing(open_run_store(store, config)) as opened,
    ):
        done = run_repair(prepared, loaded, secrets, opened, run, out, apply=apply, say=say if as_json else typer.echo)
    if done.earlier:
        say(f"the files of an earlier repair are in {done.earlier}: to undo all, apply the newest inverse first")
    if as_json:
        typer.echo(json.dumps(_as_dict(done), ensure_ascii=False))
    elif not done.tables:
        typer.echo(f"run {done.of} has no confirmed row diffs to repair")
    elif apply:
        typer.echo(f"{done.verdict}: run {done.run_id}; files in {out}")
    else:
        typer.echo(f"files in {out}; nothing was executed (--apply does)")
    if apply:
        raise typer.Exit(int(ExitCode[done.verdict.value]))
    raise typer.Exit(int(ExitCode.MATCH if done.whole else ExitCode.INCONCLUSIVE))


def _as_dict(done: Repair) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((done.folder / "manifest.json").read_text(encoding="utf-8"))
    if done.run_id is not None:
        manifest["applied"] = {
            "run": done.run_id, "verdict": done.verdict.value,
            "tables": {
                t.pair.id: {"repaired": t.repaired, "left_alone": t.left_alone, "still_different": t.different,
                            "refused_by_target": dict(t.applied.refused) if t.applied else {}}
                for t in done.tables
            },
        }  # fmt: skip
    return manifest

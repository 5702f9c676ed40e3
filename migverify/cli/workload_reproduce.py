"""``migverify workload reproduce``: show one difference again, from a file that holds all it needs."""

from __future__ import annotations

import json
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, examples, say
from migverify.errors import ConfigError, ExitCode, UsageError

if TYPE_CHECKING:
    from migverify.model import Endpoint, Side
    from migverify.workload.replay.reproducer import Reproducer
    from migverify.workload.replay.reproduction import Reproduction

EPILOG = examples(
    "migverify workload reproduce --run last --write reproducers",
    "migverify workload reproduce reproducers/68e042713570cda9.json",
    "migverify workload reproduce reproducers/68e042713570cda9.json --live --json",
)


def reproduce(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="A reproducer.")] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    live: Annotated[
        bool, typer.Option("--live", help="Ask the statement on the live tables, if it only reads; create nothing.")
    ] = False,
    database: Annotated[
        str | None, typer.Option(metavar="NAME", help="The scratch database; default: migverify_reproduce.")
    ] = None,
    run: Annotated[str | None, typer.Option(metavar="RUN", help="Write files of a replay in the store.")] = None,
    digest: Annotated[
        str | None, typer.Option(metavar="PREFIX", help="With --run: only digests that begin so.")
    ] = None,
    write: Annotated[Path | None, typer.Option(metavar="DIR", help="With --run: where to write them.")] = None,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="With --run: the result store; default: the configuration's.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output.")] = False,
) -> None:
    """Say whether a difference is still there: exit 1 when it is, 0 when it is gone, 3 when it cannot be told.

    The statement runs in a scratch database that is created on both sides and dropped; the source must be a marked
    rehearsal clone for that. With --run, files are written for the findings of a replay; definitions and rows are read
    from the live pair.
    """
    if (file is None) == (run is None):
        raise UsageError("Name a reproducer file, or a run with --run.", hint="See --help for examples.")
    if run is not None:
        _write(config, run, digest, write, store)
        return
    from migverify.workload.replay.reproducer import read_reproducer
    from migverify.workload.replay.reproduction import DEFAULT_DATABASE, Still
    from migverify.workload.replay.reproduction import reproduce as again

    made = read_reproducer(file or Path())
    endpoints, passwords = _endpoints(config)
    if not live:
        _refuse_production(config, endpoints, passwords)
    found = again(made, endpoints, passwords, live=live, database=database or DEFAULT_DATABASE)
    typer.echo(json.dumps(_as_dict(made, found)) if as_json else _text(made, found))
    codes = {
        Still.DIFFERENT: ExitCode.MISMATCH, Still.GONE: ExitCode.MATCH, Still.UNKNOWN: ExitCode.INCONCLUSIVE,
    }  # fmt: skip
    raise typer.Exit(int(codes[found.still]))


def _refuse_production(config: Path, endpoints: dict[Side, Endpoint], passwords: dict[str, str]) -> None:
    """Let no scratch database be made on a source that may be production."""
    from migverify.cli.workload_clone import proved_clone
    from migverify.config import load_config
    from migverify.model import Side

    source = endpoints[Side.SOURCE]
    proved, why = proved_clone(load_config(config), source, passwords.get(source.name))
    if not proved:
        raise UsageError(
            f"{source.name} gets no scratch database, for it is not proved to be a rehearsal clone: {why}",
            hint="Ask the live tables with --live, or mark a clone: migverify workload mark-clone source --name DRILL.",
        )


def _as_dict(made: Reproducer, found: Reproduction) -> dict[str, Any]:
    from migverify.workload.replay.tally import difference_as_json

    differences = [] if found.judged is None else [difference_as_json(one) for one in found.judged.differences]
    return {
        "digest": made.digest, "text": made.text, "still": found.still.value, "reason": found.reason,
        "differences": differences, "answers": list(found.answers), "answers_then": list(made.answers),
        "plans": list(found.plans),
    }  # fmt: skip


def _text(made: Reproducer, found: Reproduction) -> str:
    from migverify.report.marks import visible

    lines = [f"{found.still}: {visible(found.reason)}", f"  {visible(made.text)}"]
    for side, answer in zip(("source", "target"), found.answers, strict=False):
        lines += [f"  {side}:", *(f"    {visible(line)}" for line in answer.split("\n"))]
    lines += [
        f"  plan of the {side}: {visible(plan)}" for side, plan in zip(("source", "target"), found.plans, strict=False)
    ]
    return "\n".join(lines)


def _endpoints(config: Path) -> tuple[dict[Side, Endpoint], dict[str, str]]:
    from migverify.config import load_config
    from migverify.model import Side
    from migverify.secrets import resolve_password

    loaded = load_config(config)
    if len(loaded.sources) != 1:
        raise ConfigError(
            f"{config} names {len(loaded.sources)} sources; a reproducer asks one",
            hint="Write a configuration with one `source`.",
        )
    endpoints = {Side.SOURCE: loaded.sources[0], Side.TARGET: loaded.target}
    passwords = {
        one.name: resolve_password(one).reveal()
        for one in endpoints.values() if one.password_env or one.password_command
    }  # fmt: skip
    return endpoints, passwords


def _write(config: Path, run: str, digest: str | None, folder: Path | None, store: str | None) -> None:
    from migverify.cli.report import open_run_store
    from migverify.workload.replay.reproduction import write_reproducers

    if folder is None:
        raise UsageError("--run needs --write DIR.", hint="Say where the files go.")
    endpoints, passwords = _endpoints(config)
    with ExitStack() as stack:
        opened = stack.enter_context(closing(open_run_store(store, config)))
        written, failed = write_reproducers(opened, run, folder, endpoints, passwords, prefix=digest or "")
    for path in written:
        typer.echo(str(path))
    for reason in failed:
        say(reason)
    if failed or not written:
        say(f"{len(written)} written, {len(failed)} could not be made")
        raise typer.Exit(int(ExitCode.INCONCLUSIVE))

"""``migverify workload capture --poll``: outcomes of the source's statements from performance_schema, without a log."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, JsonOption, SourceOption, examples, say
from migverify.errors import ExitCode
from migverify.figures import amount

if TYPE_CHECKING:
    from migverify.workload.capture import CaptureSummary
    from migverify.workload.poll import PollCount

EPILOG = examples(
    "migverify workload capture --poll --out outcomes --seconds 600",
    "migverify workload capture --poll --out outcomes --interval 0.2 --json",
)


def poll(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="A folder that is not there yet.")],
    config: ConfigOption = DEFAULT_CONFIG,
    source: SourceOption = None,
    seconds: Annotated[
        float | None, typer.Option(min=0, metavar="N", help="Stop after so many seconds. Default: at Ctrl-C.")
    ] = None,
    interval: Annotated[float, typer.Option(min=0.05, metavar="SECONDS", help="Between two polls.")] = 1.0,
    mask: Annotated[
        bool, typer.Option("--mask", help="Replace every string and number in a statement, and its comments.")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the capture that DIR holds.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Read finished statements of the source's performance_schema into a capture, until Ctrl-C; only SELECTs are sent.

    Texts are cut at 1,024 bytes by default and prepared values are missing: such statements are partial. What the
    server overwrote between two polls is counted. Exit 3: no statement was found.
    """
    from migverify.workload.capture import CaptureInput, CaptureOptions, check_out
    from migverify.workload.capture import capture as run
    from migverify.workload.formats.polled import Polled

    check_out(out, replace=replace)
    raw = out.with_name(out.name + ".events.jsonl")
    out.parent.mkdir(parents=True, exist_ok=True)
    count, name = _poll(config, source, raw, seconds, interval)
    options = CaptureOptions(out, replace=replace)
    if mask:
        from migverify.workload.mask import mask_statement, mask_text

        options = CaptureOptions(out, replace=replace, mask=mask_statement, text_mask=mask_text)
    summary = run([CaptureInput(raw, Polled(), name)], options)
    if mask:
        raw.unlink()  # it holds what was masked
    _tell(summary, count, None if mask else raw, as_json=as_json)
    if not summary.statements:
        say("no statement was found.")
        raise typer.Exit(int(ExitCode.INCONCLUSIVE))


def _poll(config: Path, source: str | None, raw: Path, seconds: float | None, interval: float) -> tuple[PollCount, str]:
    from migverify.cli.changes_check import one_source
    from migverify.cli.watching import stop_on_signals
    from migverify.config import load_config
    from migverify.db.session import open_session
    from migverify.model import Side
    from migverify.secrets import resolve_password
    from migverify.workload.poll import Poller, poll_until
    from migverify.workload.private import private

    endpoint = one_source(load_config(config), source)
    session = open_session(endpoint, resolve_password(endpoint).reveal() or None, side=Side.SOURCE)
    end = None if seconds is None else time.monotonic() + seconds
    try:
        with open(raw, "w", encoding="utf-8", opener=private) as file, stop_on_signals() as stopped:
            poller = Poller(session, file)
            poll_until(poller, stopped, interval, lambda: None if end is None else end - time.monotonic())
    finally:
        session.close()
    return poller.count, f"{endpoint.host}:{endpoint.port}"


def _tell(summary: CaptureSummary, count: PollCount, raw: Path | None, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({**summary.as_json(), "poll": count.as_json()}))
        return
    typer.echo(f"{summary.out}: {amount(summary.statements, 'statement')} in {amount(summary.sessions, 'session')}")
    typer.echo(f"  {count.polls:,} polls of {count.table}: {count.events:,} events, {count.nested:,} inside of others")
    typer.echo(
        f"  lost: at most {count.lost_at_most:,} events in {count.gaps:,} gaps, {count.overruns:,} overruns of the ring"
    )
    typer.echo(f"  texts cut: {count.cut_texts:,}")
    if raw is not None:
        typer.echo(f"  events as polled: {raw}")

"""``migverify workload replay --follow``: ask the reads of a log that grows on both sides, for days."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.console import (
    DEFAULT_CONFIG,
    AssumeDatabaseOption,
    ConfigOption,
    StoreOption,
    command_line,
    examples,
)
from migverify.cli.watching import MetricsAddressOption, watch_output
from migverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from migverify.cli.workload_replay_setup import ReplaySetup
    from migverify.store.results import ResultStore
    from migverify.watch.applied import Applied
    from migverify.workload.model import CaptureFormat
    from migverify.workload.replay.verdict import CatalogueLabels
    from migverify.workload.shadow.run import ShadowTools
    from migverify.workload.shadow.status import ShadowStatus

EPILOG = examples(
    "migverify workload replay --follow /var/log/mysql/slow.log --metrics-port 9109",
    "migverify workload replay --follow s3://bucket/slowlogs/ --format slow --rate 200",
    "migverify workload replay --follow general.log --once --json",
    "migverify workload replay --follow /var/log/mysql/slow.log --resume last",
)
ADVANCED = (
    "--seconds", "--time-zone", "--sessions", "--assume-database", "--accept-write-grants", "--store", "--quiet",
    "--connections", "--share", "--metrics-file",
)  # fmt: skip
PAGE_SECONDS = 15.0
FOLLOWED = ("slow", "general", "das")


def follow(
    log: Annotated[str, typer.Argument(metavar="SOURCE-LOG", help="The log, or a folder or URL of finished pieces.")],
    config: ConfigOption = DEFAULT_CONFIG,
    form: Annotated[
        str, typer.Option("--format", metavar="NAME", help="auto, slow, general or (of finished pieces) das.")
    ] = "auto",
    once: Annotated[
        bool, typer.Option("--once", help="Ask all that the log holds now, and end with the verdict.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Ask what ran from then on (UTC). Default: now; with --once, everything."),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Go on with one that ended or was killed; `last` for the newest."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(metavar="READS", min=0.1, help="At most so many reads a second.")
    ] = None,
    connections: Annotated[int | None, typer.Option(min=1, max=256, help="Connections to each side.")] = None,
    target_seconds: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="Ask less while the target's p95 is above this; 0: never."),
    ] = None,
    max_lag: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="Count reads further behind the log as not asked; 0: ask all."),
    ] = None,
    share: Annotated[
        float | None, typer.Option(min=0.0001, max=1, help="Share of the reads that is asked, by chance.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="End after so long; with --once INCONCLUSIVE then.")
    ] = None,
    time_zone: Annotated[
        str, typer.Option("--time-zone", metavar="ZONE", help="Zone of local times in the log.")
    ] = "UTC",
    sessions: Annotated[
        list[Path] | None,
        typer.Option("--sessions", metavar="FILE", help="What `workload sessions` wrote; repeatable."),
    ] = None,
    assume_database: AssumeDatabaseOption = None,
    accept_write_grants: Annotated[
        bool, typer.Option("--accept-write-grants", help="Go on though a user could write; reads only are asked.")
    ] = False,
    metrics_port: MetricsAddressOption = None,
    metrics_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the metrics in a file, for a textfile collector.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep a page of hours and digests in a file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a turn; the last has `final`.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No lines.")] = False,
    store: StoreOption = None,
) -> None:
    """Ask the reads of a log on both sides while it grows, and keep a verdict for each digest and hour.

    Writes are counted and never sent. Rotated files are read to their ends.
    Exit 0 MATCH, 1 MISMATCH, 3 INCONCLUSIVE; Ctrl-C ends with what is known, exit 130.
    """
    from migverify.cli.report import open_run_store
    from migverify.workload.opening import zone_of
    from migverify.workload.shadow.run import ShadowRequest, follow

    place, is_folder = _place(log)
    chosen = {"rate": rate, "connections": connections, "target_seconds": target_seconds, "max_lag": max_lag,
              "share": share}  # fmt: skip
    setup = _set_up(config, accept_write_grants=accept_write_grants, dumps=sessions or (), database=assume_database)
    begins = _since(since, once=once)
    request = ShadowRequest(
        command_line(), place, _format(form, place, zone_of(time_zone), is_folder=is_folder), is_folder, begins, resume,
        once, seconds,
    )  # fmt: skip
    with ExitStack() as stack:
        opened = stack.enter_context(closing(open_run_store(store, config)))
        output = stack.enter_context(
            watch_output(as_json=as_json, quiet=quiet, metrics=metrics_port, file=metrics_file)
        )
        written = _Page(page, opened)

        def show(status: ShadowStatus) -> None:
            output.show(status)
            written.show(status)

        status = follow(
            request, _tools(setup, chosen, opened), opened, on_start=output.begin, on_status=show,
            stop=output.stopped.is_set,
        )  # fmt: skip
        show(status)
    output.end(status)


@dataclass(slots=True)
class _Page:
    """The page in a file, written anew now and then and at the end; None writes none."""

    path: Path | None
    store: ResultStore
    _written: float = 0.0

    def show(self, status: ShadowStatus) -> None:
        """Write it where it is time; StoreError: the file cannot be written."""
        if self.path is None or (not status.final and time.monotonic() - self._written < PAGE_SECONDS):
            return
        from dataclasses import replace

        from migverify.report.html import render_html
        from migverify.report.render import write_report
        from migverify.report.shadow import live_report
        from migverify.workload.shadow.evidence import evidence_of

        self._written = time.monotonic()
        found = evidence_of(status.run_id, status.as_dict())
        report = live_report(found, self.store.load_run(status.run_id))
        again = 0 if status.final else int(PAGE_SECONDS)
        write_report(self.path, render_html(replace(report, refresh_seconds=again)), private=True)


def _place(log: str) -> tuple[str, bool]:
    """Return the place that is followed, and whether it is a folder of finished pieces."""
    if "://" in log:
        return log, True
    path = Path(log).absolute()
    if path.is_dir():
        return str(path), True
    if not path.is_file():
        raise UsageError(f"there is no log {log}", hint="Name the log that the server writes, or a folder of pieces.")
    return str(path), False


def _since(text: str | None, *, once: bool) -> int | None:
    if text is None:
        return None if once else round(datetime.now(UTC).timestamp() * 1_000_000)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--since: {text!r} is no ISO time", hint="For example 2026-01-31T12:00:00.") from None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1_000_000)


def _format(name: str, place: str, zone: Any, *, is_folder: bool) -> CaptureFormat:
    from migverify.workload.opening import open_format, readers

    if name == "auto" and not is_folder:
        name = open_format("auto", place, 3306, zone).name
    if name not in FOLLOWED or (name == "das" and not is_folder):
        why = "a folder's format is not looked at" if name == "auto" else f"a log of format {name} cannot be followed"
        raise UsageError(why, hint=f"Name it: --format {'|'.join(FOLLOWED)}.")
    return readers(3306, zone)[name]


def _set_up(config: Path, *, accept_write_grants: bool, dumps: Any, database: str | None) -> ReplaySetup:
    from migverify.cli.workload_replay_setup import set_up
    from migverify.workload.replay.safety import Leave
    from migverify.workload.server_sessions import read_sessions

    return set_up(
        config, {}, (), Leave(), reads_only=True, target_only=False, accept_write_grants=accept_write_grants,
        dumps=[read_sessions(one) for one in dumps], database=database,
    )  # fmt: skip


def _tools(setup: ReplaySetup, chosen: Mapping[str, Any], store: Any) -> ShadowTools:
    from dataclasses import replace

    from migverify.cli.workload_replay_setup import basis_to_keep, inspected
    from migverify.db.retry import ReadLimits
    from migverify.model import Side
    from migverify.tables.watch_streams import applied_of, marker_row
    from migverify.workload.catalogue.load import load
    from migverify.workload.probe_store import probed_here
    from migverify.workload.replay.assumed import SessionFacts
    from migverify.workload.replay.verdict import CatalogueLabels
    from migverify.workload.replay.wire import Limits
    from migverify.workload.shadow.run import ShadowTools

    config, source = setup.config, setup.sides.endpoints[Side.SOURCE]
    settings = setup.workload.shadow.model_copy(
        update={name: one for name, one in chosen.items() if one is not None}
    )  # fmt: skip
    options = replace(
        setup.options, connections=settings.connections, limits=Limits(seconds=settings.query_seconds)
    )  # fmt: skip

    def labels(facts: Mapping[str, Any]) -> CatalogueLabels:
        addresses = {side.value: f"{one.host}:{one.port}" for side, one in setup.sides.endpoints.items()}
        return CatalogueLabels(load(), _versions(facts), probed_here(store, addresses))

    def applied(run_id: str) -> Applied:
        return applied_of(config, source.name, marker_row(source, run_id))

    return ShadowTools(
        setup.sides, options, settings, config.watch,
        ReadLimits(max_threads_running=config.limits.max_threads_running), Path(setup.workload.folder),
        SessionFacts(setup.dumps, setup.database), lambda opened: inspected(setup, opened), labels, applied,
        setup.waivers, lambda opened: basis_to_keep(config, None, opened),
    )  # fmt: skip


def _versions(facts: Mapping[str, Any]) -> Any:
    from migverify.workload.catalogue.versions import Versions, server

    return Versions(server(facts["source"]["version"]), server(facts["target"]["version"]))

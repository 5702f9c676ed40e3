"""``migverify recon watch``: its options, and what it reads through."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, MasterOption, StoreOption, command_line, examples
from migverify.cli.recon_check import DEFAULT_RULES, ParamOption, RulesArgument
from migverify.cli.recon_setup import EngineOption, ReconSetup, RuleOption, changed_tables, opened_engine, set_up
from migverify.cli.watching import MetricsAddressOption, watch_output
from migverify.errors import UsageError

if TYPE_CHECKING:
    from migverify.db.pool import SessionPool
    from migverify.recon.relation import RuleEngine
    from migverify.recon.watch_judge import RuleReads
    from migverify.store.results import ResultStore

EPILOG = examples(
    "migverify recon watch --metrics-port 9187",
    "migverify recon watch rules/ --since 2026-01-31 --once --json",
    "migverify recon watch --until 2026-02-01T06:00:00 --timeout 3600",
    "migverify recon watch --resume last",
)


def watch(
    rules: RulesArgument = DEFAULT_RULES,
    config: ConfigOption = DEFAULT_CONFIG,
    rule: RuleOption = None,
    param: ParamOption = None,
    engine: EngineOption = None,
    spark_master: MasterOption = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Where windows begin (UTC). Default: the rule's start, or now.")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Go on with a watch that ended or was killed; `last` for the newest."),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Evaluate what may close now, and end with the verdict.")
    ] = False,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="End when every window up to this time (UTC) is decided.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="Time limit of --once and --until: INCONCLUSIVE then."),
    ] = None,
    lookback: Annotated[
        int, typer.Option(metavar="WINDOWS", min=0, help="Closed windows whose checksums are read again; 0 for none.")
    ] = 3,
    recheck: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.1, help="Time between two reads of what is open, and of checksums."),
    ] = 30.0,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="Time between two evaluations of a rule without windows.")
    ] = 300.0,
    max_lag: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="How late a window may close. Default: its width and 300 s."),
    ] = None,
    stuck: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="How long a watermark may stand still.")
    ] = 60.0,
    idle_windows: Annotated[
        int, typer.Option(metavar="WINDOWS", min=0, help="After so many windows without a row: INCONCLUSIVE. 0: never.")
    ] = 3,
    metrics_port: MetricsAddressOption = None,
    metrics_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the metrics in a file, for a textfile collector.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a turn; the last has `final`.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No lines.")] = False,
    store: StoreOption = None,
) -> None:
    """Evaluate rules as their windows close, and keep the verdict current.

    Changes of a TiDB are read from its changefeed (reverse.carrier in the configuration).
    Exit 0 MATCH, 1 MISMATCH, 3 INCONCLUSIVE; Ctrl-C ends with what is known, exit 130.
    """
    from migverify.cli.report import open_run_store
    from migverify.db.pool import SessionPool
    from migverify.recon.fit import present, refuse_unfit
    from migverify.recon.watch import RulesWatchRequest, watch_rules
    from migverify.recon.watch_state import WatchLimits
    from migverify.recon.watch_status import Patience

    if timeout is not None and not (once or until):
        raise UsageError("--timeout belongs to --once and --until")
    setup = _sparing(set_up(config, rules, rule, param, since, None, engine, spark_master, start_option="--since"))
    facts = {
        "engine": str(setup.engine),
        "endpoints": {name: {"address": f"{e.host}:{e.port}"} for name, e in setup.endpoints.items()},
    }
    request = RulesWatchRequest(
        command_line(), setup.span.start, resume, once, _moment(until), timeout, setup.values,
        facts,
    )  # fmt: skip
    limits = WatchLimits(recheck=0.0 if once else recheck, whole=every, lookback=lookback, idle=idle_windows)
    with ExitStack() as stack:
        opened = stack.enter_context(closing(open_run_store(store, config)))
        runner = stack.enter_context(opened_engine(setup, spark_master))
        refuse_unfit(
            setup.rules, present(setup.rules, datetime.now(UTC).replace(tzinfo=None)), setup.build,
        )  # fmt: skip
        pool = SessionPool(_secrets(setup))
        stack.callback(pool.close)
        output = stack.enter_context(
            watch_output(as_json=as_json, quiet=quiet, metrics=metrics_port, file=metrics_file)
        )  # fmt: skip
        status = watch_rules(
            setup.rules, lambda run: _reads(setup, runner, pool, opened, run, stack), opened, request, limits,
            Patience(max_lag, stuck), show=setup.config.report.values,
            on_start=output.begin, on_status=output.show, stop=output.stopped.is_set,
        )  # fmt: skip
        output.show(status)
    output.end(status)


def _sparing(setup: ReconSetup) -> ReconSetup:
    """Leave one connection of each endpoint to the watermarks."""
    fewer = {name: replace(e, connections=max(1, e.connections - 1)) for name, e in setup.endpoints.items()}
    return replace(setup, endpoints=fewer)


def _secrets(setup: ReconSetup) -> dict[str, str]:
    """Return the passwords of the rules' endpoints, and of the sources whose position the target's is compared with."""
    from migverify.secrets import resolve_password

    settings, secrets = setup.config.watch, dict(setup.secrets)
    if settings.applied != "settle" and setup.config.target.name in setup.endpoints:
        for source in setup.config.sources:
            if source.name not in secrets and (source.password_env or source.password_command):
                secrets[source.name] = resolve_password(source).reveal()
    return secrets


def _moment(text: str | None) -> datetime | None:
    from migverify.recon.fields import parse_moment

    if text is None:
        return None
    try:
        return parse_moment(text)
    except ValueError as error:
        raise UsageError(f"--until {text!r}: {error}", hint="Write UTC, as 2026-01-31T12:00:00.") from None


def _reads(
    setup: ReconSetup, engine: RuleEngine, pool: SessionPool, store: ResultStore, run_id: str, stack: ExitStack
) -> RuleReads:
    """Return what reads for a watch; ``stack`` ends what it leaves running."""
    from migverify.changes.positions import time_tso
    from migverify.recon.evaluate import Conditions
    from migverify.recon.run import RuleTools
    from migverify.recon.watch_reads import EngineReads, WatermarkCache, changes_name
    from migverify.recon.watch_state import newest_mark

    tools = RuleTools(engine, setup.build, Conditions(show=setup.config.report.values))
    followers = {
        name: partial(
            feed.follower, run_id, changed_tables(setup.rules, name),
            time_tso(newest_mark(store, run_id, setup.rules, changes_name(name))),
        )
        for name, feed in setup.feeds.items()
    }  # fmt: skip
    marks = WatermarkCache(setup.config, setup.endpoints, pool, followers=followers, reader=run_id)
    stack.callback(marks.close)
    return EngineReads(setup.rules, tools, marks)

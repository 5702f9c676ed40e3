"""``migverify recon watch``: rules evaluated as their windows close; the lines, the JSON, the metrics, the end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, command_line, examples, say
from migverify.cli.recon_check import DEFAULT_RULES, ParamOption, RulesArgument
from migverify.cli.recon_setup import EngineOption, MasterOption, RuleOption, Setup, opened_engine, set_up
from migverify.cli.watching import EXIT_CODES, StatusLines, metrics_page, stop_on_signals
from migverify.errors import ExitCode, UsageError
from migverify.model import Verdict

if TYPE_CHECKING:
    from migverify.db.pool import SessionPool
    from migverify.recon.relation import Engine
    from migverify.recon.run import Suite
    from migverify.recon.watch_judge import RuleReads
    from migverify.recon.watch_status import ReconStatus, RuleStatus
    from migverify.store.base import ResultStore

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
    metrics_port: Annotated[
        int | None, typer.Option(metavar="PORT", help="Serve /metrics on this port of the local host; 0 picks one.")
    ] = None,
    metrics_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the metrics in a file, for a textfile collector.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a turn; the last has `final`.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No lines.")] = False,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="Result store; default: the configuration's.")
    ] = None,
) -> None:
    """Evaluate rules as their windows close, and keep the verdict current.

    Exit 0 MATCH, 1 MISMATCH, 3 INCONCLUSIVE; Ctrl-C ends with what is known, exit 130.
    """
    from migverify.cli.report import open_run_store
    from migverify.db.pool import SessionPool
    from migverify.recon.fit import present, refuse_unfit
    from migverify.recon.run import fits
    from migverify.recon.watch_run import WatchRequest, watch_rules
    from migverify.recon.watch_state import WatchLimits
    from migverify.recon.watch_status import Patience, prometheus_text

    if timeout is not None and not (once or until):
        raise UsageError("--timeout belongs to --once and --until")
    setup = _sparing(set_up(config, rules, rule, param, since, None, engine, spark_master))
    facts = {
        "engine": str(setup.engine),
        "endpoints": {name: {"address": f"{e.host}:{e.port}"} for name, e in setup.endpoints.items()},
    }
    request = WatchRequest(
        command_line(), setup.span.start, resume, once, _moment(until), timeout, setup.values,
        facts,
    )  # fmt: skip
    limits = WatchLimits(recheck=0.0 if once else recheck, whole=every, lookback=lookback, idle=idle_windows)
    stopped = threading.Event()
    show = StatusLines(_lines, as_json=as_json, quiet=quiet)
    with ExitStack() as stack:
        opened = stack.enter_context(closing(open_run_store(store, config)))
        runner = stack.enter_context(opened_engine(setup, spark_master))
        suite = _suite(setup, opened)
        refuse_unfit(
            setup.rules, present(setup.rules, datetime.now(UTC).replace(tzinfo=None)),
            lambda rule, window: fits(rule, window, setup.build, suite),
        )  # fmt: skip
        pool = SessionPool(_secrets(setup))
        stack.callback(pool.close)
        publish = stack.enter_context(metrics_page(metrics_port, metrics_file))
        stack.enter_context(stop_on_signals(stopped))

        def tell(status: ReconStatus) -> None:
            publish(prometheus_text(status))
            show(status)

        status = watch_rules(
            setup.rules, lambda run: _reads(setup, runner, pool, suite, run), opened, request, limits,
            Patience(max_lag, stuck), show=setup.config.report.values,
            on_start=lambda run: say(f"watch {run} (stop it with Ctrl-C; go on with --resume {run})"),
            on_status=tell, stop=stopped.is_set,
        )  # fmt: skip
        publish(prometheus_text(status))
    typer.echo(json.dumps(status.as_dict(), ensure_ascii=False) if as_json else final_text(status))
    raise typer.Exit(int(ExitCode.INTERRUPTED if stopped.is_set() else EXIT_CODES[status.verdict]))


def _sparing(setup: Setup) -> Setup:
    """Leave one connection of each endpoint to the watermarks."""
    fewer = {name: replace(e, connections=max(1, e.connections - 1)) for name, e in setup.endpoints.items()}
    return replace(setup, endpoints=fewer)


def _secrets(setup: Setup) -> dict[str, str]:
    """Return the passwords of the rules' endpoints, and of the sources whose position the target's is compared with."""
    from migverify.secrets import resolve_password

    settings, secrets = setup.config.watch, dict(setup.secrets)
    if settings.applied != "settle" and setup.config.target.name in setup.endpoints:
        for source in setup.config.sources:
            if source.name not in secrets and (source.password_env or source.password_command):
                secrets[source.name] = resolve_password(source).reveal()
    return secrets


def _moment(text: str | None) -> datetime | None:
    from migverify.recon.parameters import parse_moment

    if text is None:
        return None
    try:
        return parse_moment(text)
    except ValueError as error:
        raise UsageError(f"--until {text!r}: {error}", hint="Write UTC, as 2026-01-31T12:00:00.") from None


def _suite(setup: Setup, store: ResultStore) -> Suite:
    from migverify.recon.evaluate import Conditions
    from migverify.recon.suites import SuiteRunner

    conditions = Conditions(show=setup.config.report.values)
    return SuiteRunner(setup.rules, setup.values, setup.endpoints, setup.secrets, setup.describe, store, conditions)


def _reads(setup: Setup, engine: Engine, pool: SessionPool, suite: Suite, run_id: str) -> RuleReads:
    from migverify.recon.evaluate import Conditions
    from migverify.recon.watch_reads import EngineReads, Marks

    conditions = Conditions(show=setup.config.report.values)
    marks = Marks(setup.config, setup.endpoints, pool)
    return EngineReads(setup.rules, engine, setup.build, marks, conditions, run_id, suite)


def _lines(status: ReconStatus) -> Iterator[str]:
    yield headline(status)
    yield from _reasons(status, most=1)


def headline(status: ReconStatus) -> str:
    """Return the state of the watch in one line."""
    through = min((rule.through for rule in status.rules if rule.through), default="")
    matched = sum(rule.verdict is Verdict.MATCH for rule in status.rules)
    parts = [status.verdict.value, f"{matched:,} of {len(status.rules):,} rules match"]
    # Not summed over rules: several may speak of one row.
    worst = max(status.rules, key=lambda rule: (_mismatches(rule), rule.findings.get("pending", 0)), default=None)
    if worst is not None and (_mismatches(worst) or worst.findings.get("pending")):
        parts.append(f"{worst.rule}: {_mismatches(worst):,} mismatches, {worst.findings.get('pending', 0):,} pending")
    if through:
        parts.insert(1, f"all matched up to {through} UTC")
    return "; ".join(parts)


def _mismatches(rule: RuleStatus) -> int:
    if rule.severity == "warning":
        return 0
    names = ("value mismatch", "missing on source", "missing on target", "duplicate", "violation")
    return sum(rule.findings.get(name, 0) for name in names)


def _reasons(status: ReconStatus, most: int | None = None) -> list[str]:
    lines = [f"  {reason}" for reason in status.reasons]
    for rule in status.rules:
        lines += [f"  {rule.rule}: {reason}" for reason in rule.reasons[:most]]
    return lines


def final_text(status: ReconStatus) -> str:
    """Return the end of a watch as text: verdict first, what keeps it from MATCH, then what is blind or a guess."""
    lines = [headline(status), *_reasons(status)]
    for rule in status.rules:
        lines.append(
            f"  {rule.rule}: {rule.verdict.value}, {sum(rule.windows.values()):,} windows,"
            f" {rule.rows_source:,} and {rule.rows_target:,} rows"
            + (f", all matched up to {rule.through} UTC" if rule.through else "")
        )
        lines += [f"    note: {notice}" for notice in rule.notices]
    lines.append(f"  migverify report {status.run_id} shows the findings")
    return "\n".join(lines)

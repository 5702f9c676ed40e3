"""``migverify recon run``: evaluate rules now, and keep what they found."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import (
    DEFAULT_CONFIG,
    ConfigOption,
    JsonOption,
    MasterOption,
    QuietOption,
    ResumeOption,
    StoreOption,
    command_line,
    completed_report,
    examples,
    say,
)
from migverify.cli.progress import LiveLine
from migverify.cli.recon_check import DEFAULT_RULES, ParamOption, RulesArgument
from migverify.cli.recon_setup import (
    EngineOption,
    FromOption,
    RuleOption,
    ToOption,
    opened_engine,
    set_up,
)

if TYPE_CHECKING:
    from migverify.cli.recon_setup import ReconSetup
    from migverify.recon.run import RulesProgress

EPILOG = examples(
    "migverify recon run",
    "migverify recon run rules/ --rule payments-match-orders --from 2026-01-30 --to 2026-01-31",
    "migverify recon run --param tenant=7 --csv findings.csv --json",
    "migverify recon run --resume last",
)


def run(
    rules: RulesArgument = DEFAULT_RULES,
    config: ConfigOption = DEFAULT_CONFIG,
    rule: RuleOption = None,
    start: FromOption = None,
    end: ToOption = None,
    param: ParamOption = None,
    engine: EngineOption = None,
    spark_master: MasterOption = None,
    resume: ResumeOption = None,
    full: Annotated[
        bool, typer.Option("--full", help="Read immutable windows too, though an earlier run proved them.")
    ] = False,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all findings as CSV: known exceptions and pending too.")
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    store: StoreOption = None,
) -> None:
    """Evaluate rules over tables, shards and services; exit 0 MATCH, 1 MISMATCH, 3 INCONCLUSIVE, 130 interrupted."""
    from migverify.cli.report import open_run_store
    from migverify.config import comparison_digest
    from migverify.guards.scope import CONFIGURATION
    from migverify.recon.evaluate import Conditions
    from migverify.recon.listing import write_csv
    from migverify.recon.model import ALL_RULES, CHOSEN
    from migverify.recon.run import RulesRequest, RuleTools, run_rules
    from migverify.report.model import ReportOptions
    from migverify.report.read import read_report
    from migverify.report.render import Format, render

    setup = set_up(config, rules, rule, param, start, end, engine, spark_master)
    show = setup.config.report.values
    line = RulesLine(quiet=quiet or (as_json and not sys.stderr.isatty()))
    with closing(open_run_store(store, config)) as opened, opened_engine(setup, spark_master) as runner:
        if not quiet:
            say(f"engine {setup.engine}: {setup.engine_reason}")
        tools = RuleTools(runner, setup.build, Conditions(show=show))
        facts = {
            "engine chosen because": setup.engine_reason, "endpoints": _endpoint_facts(setup),
            CONFIGURATION: comparison_digest(setup.config), CHOSEN: ", ".join(rule or []) or ALL_RULES,
        }  # fmt: skip
        request = RulesRequest(command_line(), setup.span, setup.values, resume, full, facts)
        try:
            run_id, _ = run_rules(setup.rules, tools, opened, request, line, lambda found: _say_run(found, quiet=quiet))
        finally:
            line.clear()
        data = completed_report(read_report(opened, run_id, ReportOptions(values=show)))
        if csv is not None:
            say(f"{write_csv(opened, run_id, csv):,} findings in {csv}")
    typer.echo(
        json.dumps(data.json_document, ensure_ascii=False)
        if as_json
        else render(data, Format.TEXT, color=sys.stdout.isatty()),
        nl=as_json,
    )
    raise typer.Exit(int(data.exit_code))


def _endpoint_facts(setup: ReconSetup) -> dict[str, dict[str, str]]:
    return {name: {"address": f"{e.host}:{e.port}"} for name, e in setup.endpoints.items()}


def _say_run(run_id: str, *, quiet: bool) -> None:
    if not quiet:
        say(f"run {run_id} (stop it with Ctrl-C; go on with --resume {run_id})")


class RulesLine(LiveLine):
    """Shows which rule is evaluated in which window; a rule that ended gets a line."""

    def __call__(self, progress: RulesProgress) -> None:
        """Take one event."""
        if self._quiet:
            return
        result = progress.finished
        if result is not None:
            self.clear()
            rows = f"{result.rows_source or 0:,} and {result.rows_target or 0:,} rows"
            say(f"{result.verdict:<12} {result.pair}  {rows}, {result.seconds:.1f} s")
            for reason in result.reasons[:5]:
                say(f"             {reason}")
            return
        if self._due():
            self._tell(f"{progress.done}/{progress.total} windows  {progress.rule} {progress.window}".rstrip())

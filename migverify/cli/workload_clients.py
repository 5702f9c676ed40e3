"""``migverify workload clients``: whether applications see the same through their drivers and pools."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.console import (
    DEFAULT_CONFIG,
    ConfigOption,
    JsonOption,
    QuietOption,
    StoreOption,
    command_line,
    examples,
    json_text,
    say,
)
from migverify.errors import UsageError
from migverify.model import StoredKind, Verdict
from migverify.secrets import Secret, remember

if TYPE_CHECKING:
    from collections.abc import Callable

    from migverify.cli.workload_clients_setup import ClientOptions
    from migverify.workload.clients.model import CellResult, ClientCell, Scenario
    from migverify.workload.clients.scenarios import LeftOut

EPILOG = examples(
    "migverify workload clients --list",
    "migverify workload clients --own-servers",
    "migverify workload clients --driver connector-j-8.0 --pool hikari --scenario eviction-1105 --source-is-scratch",
)

Names = list[str] | None


def clients(
    config: ConfigOption = DEFAULT_CONFIG,
    driver: Annotated[Names, typer.Option(metavar="NAME", help="Only this driver; repeatable.")] = None,
    pool: Annotated[Names, typer.Option(metavar="NAME", help="Only this pool; repeatable.")] = None,
    scenario: Annotated[Names, typer.Option(metavar="NAME", help="Only this scenario; repeatable.")] = None,
    scenarios: Annotated[Path | None, typer.Option(metavar="DIR", help="Scenarios of your own: JSON files.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Slow scenarios too.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Show drivers, pools and scenarios, and run nothing.")] = False,
    database: Annotated[
        str, typer.Option(metavar="NAME", help="Scratch database on both sides: made, marked, and dropped at the end.")
    ] = "migverify_clients",
    keep: Annotated[bool, typer.Option("--keep", help="Leave the scratch database.")] = False,
    own_servers: Annotated[
        bool, typer.Option("--own-servers", help="On a MySQL and a TiDB of its own, which it may restart; no config.")
    ] = False,
    source_is_scratch: Annotated[
        bool, typer.Option("--source-is-scratch", help="The source is no production server: tables may be made there.")
    ] = False,
    shard: Annotated[str | None, typer.Option(metavar="NAME", help="Which source, where there are several.")] = None,
    python: Annotated[
        str, typer.Option(metavar="PATH", help="Interpreter that has the Python drivers; default: this one.")
    ] = sys.executable,
    repository: Annotated[
        str | None,
        typer.Option(
            metavar="URL", envvar="MIGVERIFY_MAVEN_REPOSITORY",
            help="Where jars come from; default: Maven Central.",
        ),
    ] = None,
    as_json: JsonOption = False,
    facts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all that was seen, a JSON line for each cell.")
    ] = None,
    store: StoreOption = None,
    quiet: QuietOption = False,
) -> None:  # fmt: skip
    """Run client scenarios on both sides; exit 0 MATCH, 1 MISMATCH, 2 usage, 3 INCONCLUSIVE."""
    from migverify.cli.workload_clients_setup import ClientOptions
    from migverify.workload.clients.drivers import chosen, drivers, pools
    from migverify.workload.clients.scenarios import cells, load

    if listed:
        typer.echo(_listing(load(scenarios), as_json=as_json), nl=False)
        return
    options = ClientOptions(config, database, own_servers, source_is_scratch, keep, repository, python, shard)
    choices = {"scenarios": list(scenario or ()), "all": every}
    loaded = {one.name: one for one in load(scenarios)}
    picked = [one for one in chosen(loaded, scenario or [], "--scenario") if scenario or every or not one.soak]
    made = partial(cells, chosen(drivers(), driver or [], "--driver"), chosen(pools(), pool or [], "--pool"), picked)
    verdict = _run(options, made, Output(as_json, facts, quiet, store), choices)
    raise typer.Exit(int(verdict.exit_code))


class Output:
    """Where results go: a line each to standard error, a JSON object, a file of facts, the store."""

    def __init__(self, as_json: bool, facts: Path | None, quiet: bool, store: str | None) -> None:
        self.as_json, self.facts, self.quiet, self.store = as_json, facts, quiet, store

    def tell(self, result: CellResult) -> None:
        """Say a cell's verdict, and add what was seen to the file of facts."""
        if not self.quiet:
            name = f"{result.driver}/{result.pool} {result.scenario}/{result.variant}"
            say(f"{result.verdict:<12} {name}  {result.reason}".rstrip())
        if self.facts is not None:
            line = {
                "driver": result.driver, "pool": result.pool, "scenario": result.scenario, "variant": result.variant,
                **{
                    side: None if seen is None else [
                        {**facts, "ms": ms} for facts, ms in zip(seen.steps, seen.millis, strict=True)
                    ]
                    for side, seen in (("source", result.source), ("target", result.target))
                },
            }  # fmt: skip
            with self.facts.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _run(
    options: ClientOptions,
    made: Callable[[Callable[[str], bool]], tuple[list[ClientCell], list[LeftOut]]],
    output: Output,
    choices: Mapping[str, Any],
) -> Verdict:
    from migverify.cli.report import open_run_store
    from migverify.cli.workload_clients_setup import set_up
    from migverify.workload.clients.keep import keep_result, keep_totals, results_as_json, rule_name
    from migverify.workload.clients.run import run_cells

    started = time.time()
    basis, problem = _basis(options)  # before the scratch database is among the definitions
    if output.facts is not None:
        output.facts.write_text("", encoding="utf-8")
    opened = open_run_store(output.store, options.config, starts_servers=options.own_servers)
    with closing(opened) as store, set_up(options) as ready:
        cells, left = made(ready.tools.controller.can)
        if not cells:
            raise UsageError(
                "no scenario fits these drivers and pools",
                hint="migverify workload clients --list shows what there is.",
            )
        plan = {
            "kind": StoredKind.CLIENTS.value,
            "cells": [
                f"{rule_name(cell.driver.name, cell.pool.name)} {cell.scenario.name}/{cell.variant.name}"
                for cell in cells
            ],
        }
        _hide_login(options.repository)
        kept = {"endpoints": ready.facts, "choices": dict(choices), **basis}
        run_id = store.start_run(command_line(), "", plan, kept, kind=StoredKind.CLIENTS)
        if problem:
            say(f"note: {problem}")
        if not output.quiet:
            say(f"run {run_id}: {len(cells)} cells, {len(left)} left out")

        def keep(result: CellResult) -> None:
            keep_result(store, run_id, result)
            output.tell(result)

        try:
            results = run_cells(cells, ready.tools, keep)
        except KeyboardInterrupt:
            store.finish_run(
                run_id, Verdict.INCONCLUSIVE, {"reasons": ["interrupted"], "seconds": time.time() - started}
            )
            raise
        verdict = keep_totals(store, run_id, results, left)
        store.finish_run(run_id, verdict, {"seconds": time.time() - started, "reasons": []})
    if output.as_json:
        typer.echo(json_text({"run": run_id, **results_as_json(results, left, ready.facts)}))
    else:
        typer.echo(_text(results, left, verdict), nl=False)
    return verdict


def _basis(options: ClientOptions) -> tuple[dict[str, Any], str]:
    """Return what the run rests on; nothing with servers of its own, which are no pair of a configuration."""
    from migverify.config import load_config
    from migverify.decision.basis import basis_facts

    return ({}, "") if options.own_servers else basis_facts(load_config(options.config))


def _hide_login(repository: str | None) -> None:
    """Have a password in the URL of a repository removed from all that is kept or printed."""
    from urllib.parse import urlsplit

    password = urlsplit(repository or "").password
    if password:
        remember(Secret(password))


def _text(results: Sequence[CellResult], left: Sequence[LeftOut], verdict: Verdict) -> str:
    lines: list[str] = []
    for one in results:
        if one.verdict is Verdict.MATCH:
            continue
        lines.append(f"{one.verdict:<12} {one.driver}/{one.pool} {one.scenario}/{one.variant}: {one.reason}")
        for difference in one.differences:
            known = f"  [{', '.join(difference.known)}]" if difference.known else "  [unknown]"
            lines += [
                f"    step {difference.step} {difference.action}, {difference.path}{known}",
                f"      source {difference.source}", f"      target {difference.target}",
            ]  # fmt: skip
    possible = sorted({f"{one.scenario}/{one.variant}: {one.reason}" for one in left if one.possible})
    lines += [f"not run      {text}" for text in possible]
    counts = ", ".join(f"{sum(1 for one in results if one.verdict is each)} {each}" for each in Verdict)
    return "\n".join([*lines, f"{verdict}: {len(results)} cells, {counts}"]) + "\n"


def _listing(scenarios: Sequence[Scenario], *, as_json: bool) -> str:
    from migverify.workload.clients.drivers import drivers, pools

    if as_json:
        body = {
            "drivers": {name: {"title": d.title, "kind": d.kind, "options": {o: list(v) for o, v in d.options.items()}}
                        for name, d in drivers().items()},
            "pools": {name: one.title for name, one in pools().items()},
            "scenarios": {one.name: {"title": one.title, "kinds": list(one.kinds), "pools": list(one.pools),
                                     "variants": [v.name for v in one.variants], "slow": one.soak,
                                     "needs": list(one.needs)} for one in scenarios},
        }  # fmt: skip
        return json.dumps(body, ensure_ascii=False) + "\n"
    lines = ["drivers:"] + [f"  {name:<24} {one.title}" for name, one in drivers().items()]
    options: dict[str, dict[str, None]] = {}
    for each in drivers().values():
        for name, values in each.options.items():
            options.setdefault(name, {}).update(dict.fromkeys(values))
    lines += ["options (not every driver has each):"]
    lines += [f"  {name:<24} {' | '.join(values)}" for name, values in sorted(options.items())]
    lines += ["pools:"] + [f"  {name:<24} {one.title}" for name, one in pools().items()]
    lines += ["scenarios:"] + [
        f"  {one.name:<24} {one.title} ({', '.join(one.kinds)}{', slow' if one.soak else ''})" for one in scenarios
    ]
    return "\n".join(lines) + "\n"

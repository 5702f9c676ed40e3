"""``migverify recon explain``: what a run would read and how it would judge; the same steps that a run walks."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, JsonOption, examples
from migverify.cli.recon_check import DEFAULT_RULES, ParamOption, RulesArgument
from migverify.cli.recon_setup import EngineOption, FromOption, ReconSetup, RuleOption, ToOption, set_up

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migverify.recon.steps import RuleStep

EPILOG = examples(
    "migverify recon explain", "migverify recon explain --rule payments-match-orders", "migverify recon explain --json"
)
_SHOWN_READS = 4


def explain(
    rules: RulesArgument = DEFAULT_RULES,
    config: ConfigOption = DEFAULT_CONFIG,
    rule: RuleOption = None,
    start: FromOption = None,
    end: ToOption = None,
    param: ParamOption = None,
    engine: EngineOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what `recon run` would do: windows, datasets, SQL for each endpoint, re-reads, what each class means."""
    from migverify.recon.steps import steps_of

    setup = set_up(config, rules, rule, param, start, end, engine)
    steps = list(steps_of(setup.rules, setup.span, time.time()))
    plans = [_plan(setup, [s for s in steps if s.rule.name == one.name], one.name) for one in setup.rules.rules]
    if as_json:
        body = {"rules": plans, "engine": str(setup.engine), "engine_reason": setup.engine_reason}
        typer.echo(json.dumps(body, indent=2, ensure_ascii=False))
        return
    typer.echo(f"engine {setup.engine}: {setup.engine_reason}")
    for plan in plans:
        typer.echo("")
        for text in _lines(plan):
            typer.echo(text)


def _plan(setup: ReconSetup, steps: list[RuleStep], name: str) -> dict[str, Any]:
    from migverify.recon.rule import rule_text
    from migverify.recon.steps import widened

    rule = next(one for one in setup.rules.rules if one.name == name)
    plan: dict[str, Any] = {
        "rule": rule.name, "place": str(rule.place), "what": rule_text(rule, setup.rules), "kind": str(rule.kind),
        "severity": str(rule.severity), "owner": rule.owner, "windows": len(steps),
        "first": str(steps[0].window or "") if steps else "", "last": str(steps[-1].window or "") if steps else "",
        "rereads": rule.rereads, "delay": rule.delay, "settle": rule.settle, "reads": [], "looked_for_in": "",
    }  # fmt: skip
    if steps:
        shown = setup.build(rule, steps[0].window).shown
        plan["reads"] = [{"dataset": s.dataset, "endpoint": s.endpoint, "shard": s.shard, "sql": s.sql} for s in shown]
        plan["looked_for_in"] = str(widened(steps[0], setup.rules) or "")
    return plan


def _lines(plan: dict[str, Any]) -> Iterator[str]:
    yield f"{plan['rule']}  ({plan['kind']}, {plan['severity']}{', ' + plan['owner'] if plan['owner'] else ''})"
    yield f"  {plan['what']}"
    if not plan["windows"]:
        yield "  no window is closed yet: nothing would run"
        return
    if plan["first"]:
        count = plan["windows"]
        yield f"  {count:,} {'window' if count == 1 else 'windows'}, from {plan['first']} to {plan['last']}"
    else:
        yield "  all rows, no windows"
    for number, read in enumerate(plan["reads"]):
        if number == _SHOWN_READS:
            yield f"  and {len(plan['reads']) - number:,} more statements; --json shows all"
            break
        shard = f" shard {read['shard']}" if read["shard"] else ""
        yield f"  {read['endpoint'] or 'files'}{shard}, {read['dataset'] or 'check'}:"
        yield f"    {read['sql']}"
    settle = f", {plan['settle']:g} s settle time" if plan["settle"] else ""
    times = "time" if plan["rereads"] == 1 else "times"
    yield f"  what differs is read again {plan['rereads']} {times}, {plan['delay']:g} s apart{settle}"
    if plan["looked_for_in"]:
        yield f"  keys that differ are looked for in {plan['looked_for_in']} too: a counterpart may lie over the border"

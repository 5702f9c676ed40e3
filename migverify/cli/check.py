"""``migverify guard settings``: everything that can be known before work begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, examples
from migverify.cli.guards import (
    AllOption,
    EveryOption,
    GuardOptions,
    JsonOption,
    MetricsFileOption,
    StoreOption,
    WatchOption,
    run_guards,
)
from migverify.cli.watching import MetricsAddressOption
from migverify.errors import UsageError

if TYPE_CHECKING:
    from migverify.config import Config
    from migverify.guards.check import CheckGuard
    from migverify.guards.check_rules import CheckQuestion

EPILOG = examples(
    "migverify guard settings",
    "migverify guard settings --for tables --hours 6",
    "migverify guard settings --for cutover --ticdc http://cdc1:8300 --skip triggers --all",
    "migverify guard settings --json | jq '.guards[].answers[] | select(.state != \"pass\")'",
    "migverify guard settings --only clock --only connections --watch --every 30 --metrics-port 9100",
)


def check(
    config: ConfigOption = DEFAULT_CONFIG,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Only this question; may be given again.")
    ] = None,
    skip: Annotated[
        list[str] | None, typer.Option("--skip", metavar="NAME", help="Not this question; may be given again.")
    ] = None,
    works: Annotated[
        list[str] | None,
        typer.Option("--for", metavar="WORK", help="Only what this needs: tables, changes, recon, workload, cutover."),
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option(metavar="HOURS", min=0, help="How long the longest verification will take, for TiDB's GC."),
    ] = None,
    ticdc: Annotated[
        list[str] | None, typer.Option(metavar="URL", help="A TiCDC server to ask, http://host:8300; may be repeated.")
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the questions, and ask nobody.")] = False,
    as_json: JsonOption = False,
    passed: AllOption = False,
    watch: WatchOption = False,
    every: EveryOption = 30.0,
    metrics_port: MetricsAddressOption = None,
    metrics_file: MetricsFileOption = None,
    store: StoreOption = None,
) -> None:
    """Ask both sides for everything that can be known before work begins; writes nothing on them.

    Exit 0: nothing fails, 1: something does, 3: something is not known. Warnings do not fail.
    """
    questions = _questions(only or [], skip or [], works or [])
    if list_all:
        _list(questions, as_json=as_json)
        return
    from migverify.cli.report import open_run_store
    from migverify.config import load_config

    loaded = load_config(config)
    seconds = hours * 3600 if hours is not None else loaded.limits.run_seconds
    guard = make_guard(loaded, questions, seconds, [_address(url) for url in ticdc or []])
    asking = GuardOptions(as_json, watch, every, metrics_port, metrics_file, passed)
    run_guards([guard], open_run_store(store, config), asking, guard.scope.facts())


def make_guard(
    config: Config, questions: tuple[CheckQuestion, ...], verify_seconds: float | None, ticdc: list[str]
) -> CheckGuard:
    """Return the guard of a configuration.

    Parameters
    ----------
    verify_seconds
        How long the longest verification is going to take; None: not said.
    """
    from migverify.changes.server import log_begun
    from migverify.guards.check import CheckGuard
    from migverify.guards.check_read import CheckPlan
    from migverify.guards.scope import Scope

    plan = CheckPlan(verify_seconds, tuple(ticdc), config.watch.marker, config.watch.checkpoint)
    return CheckGuard(Scope.of(config, others=True), plan, questions, begun=log_begun)


def all_questions() -> tuple[CheckQuestion, ...]:
    """Return every question of the guard."""
    return _questions([], [], [])


def _questions(only: list[str], skip: list[str], works: list[str]) -> tuple[CheckQuestion, ...]:
    from migverify.guards.check_rules import Work
    from migverify.guards.check_table import chosen

    known = [work.value for work in Work]
    for name in works:
        if name not in known:
            raise UsageError(f"--for {name}: there is no such work", hint=f"Say one of {', '.join(known)}.")
    found, unknown = chosen(only, skip, [Work(name) for name in works])
    if unknown:
        raise UsageError(
            f"no question is named {', '.join(unknown)}", hint="`migverify guard settings --list` names them."
        )
    if not found:
        raise UsageError("no question is left to be asked", hint="Loosen --only, --skip or --for.")
    return found


def _list(questions: tuple[CheckQuestion, ...], *, as_json: bool) -> None:
    import json

    if as_json:
        reported = [
            {"name": q.name, "of": q.of.value, "for": sorted(q.work), "wanted": q.threshold, "why": q.why,
             "todo": q.todo}
            for q in questions
        ]  # fmt: skip
        typer.echo(json.dumps(reported, ensure_ascii=False))
        return
    width = max(len(question.name) for question in questions)
    for question in questions:
        typer.echo(f"{question.name:<{width}}  {question.of.value}: {question.threshold}")


def _address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError("--ticdc: this is no address", hint="Write http://host:8300.")
    if parts.username is not None or parts.password is not None or parts.query:
        raise UsageError("--ticdc: no user, password or query belongs into the address",
                         hint="Secrets in a command line can be read by everybody on the machine.")  # fmt: skip
    return url

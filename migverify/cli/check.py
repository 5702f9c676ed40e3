"""``migverify check``: everything that can be known before work begins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, examples
from migverify.cli.guards import (
    AllOption,
    Asking,
    EveryOption,
    JsonOption,
    MetricsFileOption,
    MetricsPortOption,
    StoreOption,
    WatchOption,
    endpoint_facts,
    run_guards,
)
from migverify.errors import UsageError

if TYPE_CHECKING:
    from migverify.config import Config
    from migverify.guards.check import CheckGuard, Place
    from migverify.guards.check_model import Plan, Question
    from migverify.model import Endpoint

app = typer.Typer()

_EXAMPLES = examples(
    "migverify check",
    "migverify check --for tables --hours 6",
    "migverify check --for cutover --ticdc http://cdc1:8300 --skip triggers --all",
    "migverify check --json | jq '.guards[].answers[] | select(.state != \"pass\")'",
    "migverify check --only clock --only connections --watch --every 30 --metrics-port 9100",
)


@app.command(epilog=_EXAMPLES)
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
    metrics_port: MetricsPortOption = None,
    metrics_file: MetricsFileOption = None,
    store: StoreOption = None,
) -> None:
    """Ask both sides for everything that can be known before work begins; writes nothing on them.

    Exit 0: nothing fails, 1: something does, 3: something could not be told. Warnings do not fail.
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
    facts = endpoint_facts(loaded.all_endpoints)
    asking = Asking(as_json, watch, every, metrics_port, metrics_file, passed)
    run_guards([guard], open_run_store(store, config), asking, facts)


def make_guard(
    config: Config, questions: tuple[Question, ...], verify_seconds: float | None, ticdc: list[str]
) -> CheckGuard:
    """Return the guard of a configuration.

    Parameters
    ----------
    verify_seconds
        How long the longest verification is going to take; None: not said.
    """
    from migverify.config import route
    from migverify.guards.check import CheckGuard
    from migverify.guards.check_model import Plan

    *sources, target = (_place(config, endpoint) for endpoint in config.endpoints)
    plan: Plan = Plan(verify_seconds, tuple(ticdc), config.watch.marker, config.watch.checkpoint)
    return CheckGuard(
        sources, target, lambda endpoint, d, t: route(config, endpoint.partition(".")[2], d, t), plan, questions,
        [_place(config, endpoint) for endpoint in config.others], begun=_begun,
    )  # fmt: skip


def _place(config: Config, endpoint: Endpoint) -> Place:
    from migverify.config import includes, unmatched_includes
    from migverify.guards.check import Place
    from migverify.secrets import resolve_password

    def unmatched(names: Iterable[tuple[str, str]]) -> list[str]:
        return [str(pattern) for pattern in unmatched_includes(config, names)]

    password = resolve_password(endpoint).reveal() or None
    return Place(endpoint, password, lambda d, t: includes(config, d, t), unmatched)


def _begun(endpoint: Endpoint, password: str | None, log: str) -> float:
    from migverify.changes.server import log_begun

    return log_begun(endpoint, password, log)


def _questions(only: list[str], skip: list[str], works: list[str]) -> tuple[Question, ...]:
    from migverify.guards.check_model import Work
    from migverify.guards.check_questions import chosen

    known = [work.value for work in Work]
    for name in works:
        if name not in known:
            raise UsageError(f"--for {name}: there is no such work", hint=f"Say one of {', '.join(known)}.")
    found, unknown = chosen(only, skip, [Work(name) for name in works])
    if unknown:
        raise UsageError(f"no question is named {', '.join(unknown)}", hint="`migverify check --list` names them.")
    if not found:
        raise UsageError("no question is left to be asked", hint="Loosen --only, --skip or --for.")
    return found


def _list(questions: tuple[Question, ...], *, as_json: bool) -> None:
    import json

    if as_json:
        told = [
            {"name": q.name, "of": q.of.value, "for": sorted(q.work), "wanted": q.threshold, "why": q.why,
             "todo": q.todo}
            for q in questions
        ]  # fmt: skip
        typer.echo(json.dumps(told, ensure_ascii=False))
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

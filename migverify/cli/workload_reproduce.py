"""``migverify workload reproduce``: ask the statements that differed in a replay again."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, JsonOption, StoreOption, examples
from migverify.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migverify.workload.replay.reproduction import Reproduction

EPILOG = examples(
    "migverify workload reproduce --run last",
    "migverify workload reproduce --run 20260131-120000-ab12 --digest 68e042713570cda9 --json",
)


def reproduce(
    run: Annotated[str, typer.Option(metavar="RUN", help="A replay in the store; `last` for the newest run.")] = "last",
    digest: Annotated[str, typer.Option(metavar="PREFIX", help="Only digests that begin so.")] = "",
    config: ConfigOption = DEFAULT_CONFIG,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask the example of each digest that differs again on both sides; show both answers and the plans of a SELECT.

    Only statements that read are asked. Exit 1 when a difference is still there, 0 when all are gone, 3 when it is
    not known of one.
    """
    from migverify.cli.report import open_run_store
    from migverify.config import load_config
    from migverify.model import Side
    from migverify.secrets import resolve_password
    from migverify.workload.replay.reproduction import Still
    from migverify.workload.replay.reproduction import reproduce as again

    loaded = load_config(config)
    if len(loaded.sources) != 1:
        raise ConfigError(
            f"{config} names {len(loaded.sources)} sources; a statement is asked on one",
            hint="Write a configuration with one `source`.",
        )
    endpoints = {Side.SOURCE: loaded.sources[0], Side.TARGET: loaded.target}
    passwords = {
        one.name: resolve_password(one).reveal()
        for one in endpoints.values() if one.password_env or one.password_command
    }  # fmt: skip
    with closing(open_run_store(store, config)) as opened:
        found = again(opened, run, endpoints, passwords, digest)
    typer.echo(json.dumps([one.as_json() for one in found]) if as_json else "\n".join(_text(found)))
    states = {one.still for one in found}
    code = ExitCode.MISMATCH if Still.DIFFERENT in states else ExitCode.INCONCLUSIVE
    raise typer.Exit(int(ExitCode.MATCH if states == {Still.GONE} else code))


def _text(found: list[Reproduction]) -> Iterator[str]:
    from migverify.report.marks import visible

    for one in found:
        yield f"{one.still}: {visible(one.reason)}\n  {visible(one.tally.text)}"
        for side, answer in zip(("source", "target"), one.answers, strict=False):
            yield "\n".join([f"  {side}:", *(f"    {visible(line)}" for line in answer.split("\n"))])
        for side, plan in zip(("source", "target"), one.plans, strict=False):
            yield f"  plan of the {side}: {visible(plan)}"

"""``migverify workload anomalies``: what the target permitted to concurrent transactions, and the source did not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.console import (
    DEFAULT_CONFIG,
    ConfigOption,
    JsonOption,
    StoreOption,
    command_line,
    examples,
    json_text,
    say,
)

if TYPE_CHECKING:
    from migverify.store.results import ResultStore
    from migverify.workload.anomalies.compare import AnomalyComparison, JudgedAnomaly
    from migverify.workload.anomalies.model import CheckedHistory

EPILOG = examples(
    "migverify workload anomalies source.jsonl target.jsonl",
    "migverify workload anomalies source.jsonl target.jsonl --usable 60 --json",
)
_MOST_SHOWN = 20
_MOST_STEPS = 8
_MOST_CAUSES = 10


def anomalies(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="The source's history of transactions.")],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="The target's history of the same transactions.")],
    usable: Annotated[
        int, typer.Option(metavar="PERCENT", min=1, max=100, help="Share of reads that must be usable for a MATCH.")
    ] = 80,
    as_json: JsonOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    store: StoreOption = None,
) -> None:
    """Check two histories for lost updates, skews and dirty reads that one server permitted and the other did not.

    `workload replay --writes --anomalies` records them. Exit 1 when the target permitted an anomaly that the source
    did not, 0 when it did not, 3 when too little is known. The result is kept in the store, where there is one.
    """
    from migverify.errors import UsageError
    from migverify.workload.anomalies.check import check_history
    from migverify.workload.anomalies.compare import LEAST_USABLE, compare_histories
    from migverify.workload.anomalies.history import read_history, refuse_wrong_sides

    began = time.monotonic()
    if source.exists() and target.exists() and source.samefile(target):
        raise UsageError(f"{source} and {target} are one file.", hint="Name the source's history, then the target's.")
    histories = [read_history(path) for path in (source, target)]
    refuse_wrong_sides(*histories)
    runs = {one.run for one in histories}
    on_source, on_target = map(check_history, histories)
    compared = compare_histories(on_source, on_target, usable / 100)
    run_id = ""
    if store is not None or config.exists():
        from migverify.cli.report import open_run_store
        from migverify.workload.anomalies.store import SIDES, store_anomalies

        replay = runs.pop() if len(runs) == 1 else ""
        with closing(open_run_store(store, config)) as opened:
            facts = {**_of_replay(opened, replay), SIDES: [one.side for one in histories]}
            run_id = store_anomalies(
                opened, command_line(), compared, facts, usable=usable / 100, replay=replay,
                seconds=time.monotonic() - began,
            )  # fmt: skip
    if as_json:
        from migverify.report.anomalies import anomalies_steps

        body = {**({"run_id": run_id} if run_id else {}), **compared.as_json()}
        typer.echo(json_text(body, anomalies_steps(run_id) if run_id else ()))
    else:
        typer.echo("\n".join(_text(compared)))
        if usable < 100 * LEAST_USABLE:
            say(f"judged by --usable {usable}: `workload decision` needs {LEAST_USABLE:.0%} of the reads all the same")
        say(f"run {run_id}" if run_id else "not kept: there is no configuration that names a store (--config, --store)")
    raise typer.Exit(int(compared.verdict.exit_code))


def _of_replay(store: ResultStore, replay: str) -> dict[str, Any]:
    """Return what the replay that recorded the histories knew of its servers; nothing where the store has it not."""
    from migverify.errors import UsageError
    from migverify.workload.anomalies.store import KEPT_OF_REPLAY

    if not replay:
        return {}
    try:
        facts = store.load_run(replay).facts
    except UsageError:
        return {}
    return {name: facts[name] for name in KEPT_OF_REPLAY if name in facts}


def _text(compared: AnomalyComparison) -> Iterator[str]:
    reasons = "; ".join(compared.reasons) or "the target permitted nothing that the source did not"
    yield f"{compared.verdict.value}: {reasons}"
    for side, history in (("source", compared.source), ("target", compared.target)):
        yield from _usability(side, history)
    for judged in compared.anomalies[:_MOST_SHOWN]:
        yield ""
        yield from _anomaly(judged)
    if len(compared.anomalies) > _MOST_SHOWN:
        yield f"\n{len(compared.anomalies) - _MOST_SHOWN:,} more: --json has all"


def _usability(side: str, history: CheckedHistory) -> Iterator[str]:
    found = history.usability
    yield (
        f"  {side}  {history.server}: {found.transactions:,} transactions, {found.committed:,} committed,"
        f" {found.unknown:,} of unknown outcome; {found.usable:,} of {found.reads:,} reads usable ({found.share:.0%});"
        f" {found.dependencies:,} dependencies"
    )
    yield from (f"    {count:>10,}  not usable: {reason}" for reason, count in found.ambiguous.items())
    for cause in found.causes[:_MOST_CAUSES]:
        yield f"    {cause.reads:>10,}  reads of {cause.table}: {cause.statement or 'a statement that is not recorded'}"
    if found.causes:
        yield "    to make more reads usable: name the primary key and write values, docs/anomalies.md"


def _anomaly(judged: JudgedAnomaly) -> Iterator[str]:
    anomaly = judged.anomaly
    levels = ", ".join(level or "level unknown" for level in anomaly.isolation)
    yield f"{judged.permitted.value}: {anomaly.name.value} ({anomaly.phenomenon.value}) under {levels}"
    yield from (f"  {step}" for step in anomaly.steps[:_MOST_STEPS])
    yield from (f"    {name}: {statement}" for name, statement in anomaly.statements[: 2 * _MOST_STEPS])
    if judged.note:
        yield f"  {judged.note}"

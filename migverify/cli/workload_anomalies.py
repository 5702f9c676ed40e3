"""``migverify workload anomalies``: what the target permitted to concurrent transactions, and the source did not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import JsonOption, examples

if TYPE_CHECKING:
    from migverify.workload.anomalies.compare import AnomalyComparison, JudgedAnomaly
    from migverify.workload.anomalies.model import CheckedHistory

EPILOG = examples(
    "migverify workload anomalies source.jsonl target.jsonl",
    "migverify workload anomalies source.jsonl target.jsonl --usable 60 --json",
)
_MOST_SHOWN = 20
_MOST_STEPS = 8


def anomalies(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="The source's history of transactions.")],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="The target's history of the same transactions.")],
    usable: Annotated[
        int, typer.Option(metavar="PERCENT", min=1, max=100, help="Share of reads that must be usable for a MATCH.")
    ] = 80,
    as_json: JsonOption = False,
) -> None:
    """Check two histories for lost updates, skews and dirty reads that one server permitted and the other did not.

    `workload replay --writes --anomalies` records them. Exit 1 when the target permitted an anomaly that the source
    did not, 0 when it did not, 3 when too little is known.
    """
    from migverify.workload.anomalies.check import check_history
    from migverify.workload.anomalies.compare import compare_histories
    from migverify.workload.anomalies.history import read_history

    on_source, on_target = (check_history(read_history(path)) for path in (source, target))
    compared = compare_histories(on_source, on_target, usable / 100)
    typer.echo(json.dumps(compared.as_json()) if as_json else "\n".join(_text(compared)))
    raise typer.Exit(int(compared.verdict.exit_code))


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


def _anomaly(judged: JudgedAnomaly) -> Iterator[str]:
    anomaly = judged.anomaly
    levels = ", ".join(level or "level unknown" for level in anomaly.isolation)
    yield f"{judged.permitted.value}: {anomaly.name.value} ({anomaly.phenomenon.value}) under {levels}"
    yield from (f"  {step}" for step in anomaly.steps[:_MOST_STEPS])
    yield from (f"    {name}: {statement}" for name, statement in anomaly.statements[: 2 * _MOST_STEPS])
    if judged.note:
        yield f"  {judged.note}"

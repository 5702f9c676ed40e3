"""``migverify tables loss`` and ``tables armed``: what going back to the source would lose, and if it is possible."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import (
    DEFAULT_CONFIG,
    ConfigOption,
    JsonOption,
    StoreOption,
    examples,
    json_text,
    visible,
)
from migverify.errors import UsageError

if TYPE_CHECKING:
    from migverify.config import Config
    from migverify.recon.lost_amounts import LostAmounts
    from migverify.tables.loss import Loss
    from migverify.tables.lost_keys import LostKeys
    from migverify.tables.prepare import PreparedTables

EPILOG = examples(
    "migverify tables loss", "migverify tables loss --rules recon.yaml --rule captured_per_day --json",
    "migverify tables loss --sql carry.sql --out lost.jsonl",
)  # fmt: skip


def loss(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A reverse watch; `last`: the one that is alive.")] = "last",
    config: ConfigOption = DEFAULT_CONFIG,
    max_unread: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="With more seconds of unread writes, nothing is proved.")
    ] = 10.0,
    rules: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Rules whose amounts (money) are summed over the lost rows.")
    ] = None,
    rule: Annotated[
        list[str] | None, typer.Option("--rule", "-r", metavar="NAME", help="Only this rule; repeatable.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="At most this many lost keys are listed.")] = 20,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write every lost key, one JSON object a line.")
    ] = None,
    sql: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write SQL that carries the rows to the source, and its inverse beside it."),
    ] = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """State what would be lost by going back to the source now: keys of the target whose writes it does not hold.

    Exit 0 no key written on the target since the watch began is missing or older on the source, as of the stated TSO; 1
    rows would be lost; 3 not known (the watch is not alive, the changefeed was not read far enough or there is none, a
    table is not comparable now).
    """
    from migverify.cli.loss_view import loss_as_dict, loss_as_text, loss_steps
    from migverify.cli.report import open_run_store
    from migverify.db.pool import SessionPool
    from migverify.tables.loss import find_loss, reverse_run
    from migverify.tables.loss_sql import refuse_existing, write_carry_sql
    from migverify.tables.lost_keys import LostKeys
    from migverify.tables.prepare import prepared_run
    from migverify.watch.ledger import ledger_folder

    if rule and rules is None:
        raise UsageError("--rule needs --rules, the file that holds it")
    if sql is not None:
        refuse_existing(sql)
    with (
        prepared_run(config, None, current=True) as (loaded, secrets, prepared),
        closing(open_run_store(store, config)) as opened,
        closing(SessionPool(secrets)) as pool,
        closing(LostKeys()) as lost,
    ):
        ledgers = ledger_folder(loaded)
        watch = reverse_run(opened, run, prepared.digest, ledgers, prepared.owns)
        amounts = _amounts(rules, rule, loaded, prepared)
        ledger = ledgers / f"watch-{watch.run_id}.db"
        found, plans = find_loss(prepared, loaded, opened, watch, ledger, pool, lost, amounts, max_unread)
        scripts = write_carry_sql(sql, found, plans, lost, loaded, pool) if sql is not None else []
        if out is not None:
            _write_keys(out, _lines(found, lost, None))
        rows = list(_lines(found, lost, limit))
    document = loss_as_dict(found, amounts, rows, scripts)
    if as_json:
        typer.echo(json_text(document, loss_steps(document)))
    else:
        for line in loss_as_text(document):
            typer.echo(visible(line, lines=False))
    raise typer.Exit(int(found.verdict.exit_code))


ARMED_EPILOG = examples("migverify tables armed", "migverify tables armed --forward last --json")


def armed(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A reverse watch; `last`: the one that is alive.")] = "last",
    forward: Annotated[
        str, typer.Option(metavar="RUN", help="The forward watch that it takes over from; `last`: the newest.")
    ] = "last",
    config: ConfigOption = DEFAULT_CONFIG,
    max_unread: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="With more seconds of unread writes, nothing is proved.")
    ] = 10.0,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """State whether the reverse watch took over from the forward watch, with nothing unread between them.

    Exit 0 a rollback is armed, 1 something is between the two watches, 3 not known.
    """
    from migverify.cli.loss_view import armed_as_dict, armed_as_text, armed_steps
    from migverify.cli.report import open_run_store
    from migverify.db.pool import SessionPool
    from migverify.tables.armed import ask_armed, forward_run
    from migverify.tables.loss import reverse_run
    from migverify.tables.prepare import prepared_run
    from migverify.watch.ledger import ledger_folder

    with (
        prepared_run(config, None, current=True) as (loaded, secrets, prepared),
        closing(open_run_store(store, config)) as opened,
        closing(SessionPool(secrets)) as pool,
    ):
        ledgers = ledger_folder(loaded)
        reverse = reverse_run(opened, run, prepared.digest, ledgers, prepared.owns)
        before = forward_run(opened, forward, prepared.digest, prepared.owns)
        ledger = ledgers / f"watch-{reverse.run_id}.db"
        found = ask_armed(prepared, loaded, secrets, opened, before, reverse, ledger, pool, max_unread)
    document = armed_as_dict(found, max_unread)
    if as_json:
        typer.echo(json_text(document, armed_steps(document)))
    else:
        for line in armed_as_text(document):
            typer.echo(visible(line, lines=False))
    raise typer.Exit(int(found.verdict.exit_code))


def _amounts(
    rules: Path | None, names: list[str] | None, config: Config, prepared: PreparedTables
) -> LostAmounts | None:
    if rules is None:
        return None
    from migverify.config import override_for
    from migverify.recon.load import load_rules
    from migverify.recon.lost_amounts import LostAmounts
    from migverify.recon.steps import chosen

    found = chosen(load_rules(rules, [endpoint.name for endpoint in config.all_endpoints]), names or [])
    pairs = [pair for pair in prepared.pairs() if pair.readable]
    return LostAmounts(
        found, pairs, lambda pair: override_for(config, pair.sources[0].database, pair.sources[0].table).rename
    )


def _lines(loss: Loss, lost: LostKeys, limit: int | None) -> Iterator[dict[str, object]]:
    from migverify.cli.loss_view import lost_key_as_dict

    names = {table.number: table for table in loss.tables}
    for key in lost.lost(limit):
        yield lost_key_as_dict(names[key.pair], key)


def _write_keys(path: Path, lines: Iterator[dict[str, object]]) -> None:
    """Write the keys to a new file that only its owner can read: keys are data."""
    try:
        path.unlink(missing_ok=True)
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    except OSError as error:
        raise UsageError(f"--out {path}: {error.strerror or error}") from error

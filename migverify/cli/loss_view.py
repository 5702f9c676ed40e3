"""A loss, and whether a rollback is armed, as JSON and as text. Statements name the TSO that they are as of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from migverify.changes.positions import shown_timestamp, tso_time
from migverify.figures import amount, plural
from migverify.model import NextStep, Verdict
from migverify.recon.amounts import plain
from migverify.tables.loss import Loss
from migverify.tables.lost_keys import LossCounts, LostKey

if TYPE_CHECKING:
    from migverify.recon.lost_amounts import LostAmount, LostAmounts
    from migverify.tables.armed import ArmedRollback
    from migverify.tables.loss import TableLoss, WatchState
    from migverify.tables.loss_sql import CarryScript

WORDS = {
    "missing_on_source": "missing on the source",
    "value_differs": "older on the source",
    "missing_on_target": "still on the source",
    "order_unknown": "different on the source",
}
"""``order_unknown``: no write of the target to the key is without a proof, so the source may be the newer side."""

NOT_SEEN = (
    "rows that were changed on the source by others than the feed after the watch proved them, unless the watch reads "
    "the source's binlog (reverse.old_side)",
)
"""What no loss counts."""


# --- JSON --------------------------------------------------------------------------------------------------------


def loss_as_dict(
    loss: Loss, amounts: LostAmounts | None, rows: Sequence[Mapping[str, object]], scripts: Sequence[CarryScript]
) -> dict[str, Any]:
    """Return a loss as JSON; times are Unix seconds, amounts texts of exact decimals."""
    watch = loss.watch
    tables = [
        {"source": t.source, "target": t.target, **_counts(t.counts), "unknown": list(t.unknown)}
        for t in loss.tables if t.counts.keys or t.unknown
    ]  # fmt: skip
    return {
        "run": loss.run_id, "verdict": loss.verdict.value, "complete": not loss.reasons,
        "as_of": _stamp(watch.read), "read_at": _stamp(watch.now), "began": _stamp(watch.began),
        "unread_seconds": watch.unread_seconds, "max_unread": loss.max_unread,
        "watch": _watch(watch), "sweep_minutes": watch.sweep.minutes if watch.sweep else None,
        **_counts(loss.counts), "oldest_seconds": loss.oldest_seconds,
        "amounts": [_amount(one) for one in amounts.sums()] if amounts is not None else [],
        "amounts_unstated": list(amounts.unstated) if amounts is not None else ["no rule was named (--rules)"],
        "reasons": list(loss.reasons), "not_seen": list(NOT_SEEN), "tables": tables, "tables_watched": len(loss.tables),
        "rows": list(rows), "rows_left_out": loss.counts.keys - len(rows),
        "sql": [_script(script) for script in scripts],
    }  # fmt: skip


def armed_as_dict(found: ArmedRollback, max_unread: float) -> dict[str, Any]:
    """Return whether a rollback is armed, as JSON."""
    unread, watch = found.unread, found.watch
    return {
        "run": found.reverse, "forward": found.forward, "verdict": found.verdict.value, "as_of": _stamp(watch.read),
        "read_at": _stamp(watch.now), "began": _stamp(watch.began), "unread_seconds": watch.unread_seconds,
        "max_unread": max_unread, "watch": _watch(watch),
        "unread_rows": None if unread is None else unread.rows,
        "unread_statements": None if unread is None else unread.statements,
        "reasons": [*found.problems, *found.unknown],
    }  # fmt: skip


def loss_steps(document: Mapping[str, Any]) -> Iterator[NextStep]:
    """Yield the commands that a loss asks for, from its JSON."""
    if document["verdict"] == Verdict.MISMATCH and not document["sql"]:
        command = f"migverify tables loss {document['run']} --out lost.jsonl --sql carry.sql"
        yield NextStep(command, "every lost key, and SQL that carries the rows to the source; nothing is executed")
    yield from armed_steps(document)


def armed_steps(document: Mapping[str, Any]) -> Iterator[NextStep]:
    """Yield the command that shows why a rollback is not proved to be safe."""
    if document["verdict"] != Verdict.MATCH:
        yield NextStep("migverify status", "the watches of both directions, and whether they go on")


def _watch(watch: WatchState) -> dict[str, Any]:
    writer = watch.writer
    holder = writer.holder if writer is not None else None
    return {
        "alive": watch.is_alive, "host": holder.host if holder else None, "pid": holder.pid if holder else None,
        "heartbeat_seconds": writer.heartbeat_seconds if writer else None, "progress_seconds": watch.progress_seconds,
        "unproved_keys": watch.unproved, "drained": watch.unproved == 0, "ended": watch.ended,
    }  # fmt: skip


def lost_key_as_dict(table: TableLoss, key: LostKey) -> dict[str, object]:
    """Return one lost key as JSON."""
    return {
        "table": table.source, "key": list(key.key), "kind": key.kind.value, "first_commit": _stamp(key.since or None),
        "last_commit": _stamp(key.last or None), "origin": key.origin or "changefeed",
    }  # fmt: skip


def _counts(counts: LossCounts) -> dict[str, Any]:
    return {
        "keys": counts.keys, "missing_on_source": counts.missing_on_source, "value_differs": counts.value_differs,
        "missing_on_target": counts.missing_on_target, "transactions_at_least": counts.transactions,
        "oldest": _stamp(counts.oldest), "no_write_known": counts.no_write,
        "order_unknown": counts.order_unknown,
    }  # fmt: skip


def _stamp(tso: int | None) -> dict[str, Any] | None:
    return None if tso is None else {"tso": tso, "time": tso_time(tso), "text": shown_timestamp(tso)}


def _amount(one: LostAmount) -> dict[str, Any]:
    currencies = sorted(one.at_risk)
    zero = Decimal(0)
    return {
        "rule": one.rule, "table": one.table, "without_amount": one.without,
        "currencies": {
            currency: {
                "at_risk": plain(one.at_risk[currency]),
                "difference": plain(one.difference(currency)),
                "source": plain(one.source.get(currency, zero)), "target": plain(one.target.get(currency, zero)),
            }
            for currency in currencies
        },
    }  # fmt: skip


def _script(script: CarryScript) -> dict[str, Any]:
    return {
        "endpoint": script.endpoint, "file": str(script.path), "sha256": script.script.sha256,
        "inverse": str(script.inverse_path), "inverse_sha256": script.inverse.sha256,
        "statements": dict(script.statements), "without_statement": dict(script.without),
    }  # fmt: skip


# --- text --------------------------------------------------------------------------------------------------------


def loss_as_text(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a loss, from its JSON."""
    yield _headline(document)
    yield from _places(document)
    yield from _tables(document)
    yield from _amounts(document)
    yield from _rows(document)
    for script in document["sql"]:
        written = sum(script["statements"].values())
        yield (
            f"SQL: {amount(written, 'statement')} in {script['file']}, inverse {script['inverse']}; "
            "migverify does not execute it"
        )
        for why, number in script["without_statement"].items():
            yield f"SQL: no statement for {amount(number, 'key')}: {why}"
    for reason in document["reasons"]:
        yield f"not known: {reason}"
    for what in document["not_seen"]:
        yield f"not seen: {what}"


def armed_as_text(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that say whether a rollback is armed, from its JSON."""
    words = {"MATCH": "a rollback is armed", "MISMATCH": "no rollback is armed"}
    place = f", as of {document['as_of']['text']}" if document["as_of"] else ""
    what = words.get(document["verdict"], "it is not known whether a rollback is armed")
    yield f"{document['verdict']}: {what}{place}"
    if document["unread_rows"] is not None:
        yield (
            f"behind the end of watch {document['forward']}: {amount(document['unread_rows'], 'row')} and "
            f"{amount(document['unread_statements'], 'statement')} on the sources (once the target is open for writes,"
            " those of the feed count too: ask before)"
        )
    yield from _places(document)
    for reason in document["reasons"]:
        yield f"because: {reason}"


def _headline(document: Mapping[str, Any]) -> str:
    as_of = document["as_of"]
    place = f"as of {as_of['text']}" if as_of else "as of no place yet"
    if document["sweep_minutes"]:
        place = f"read at {document['read_at']['text']}"
    if not document["keys"]:
        what = _nothing_lost(document) if document["complete"] else "it is not known what would be lost"
        return f"{document['verdict']}: {what}, {place}"
    least = "" if document["complete"] else "at least "
    oldest = document["oldest_seconds"]
    age = "" if oldest is None else f", the oldest write {oldest:,.0f} {plural(round(oldest), 'second')} ago"
    transactions = document["transactions_at_least"]
    written = f" of at least {amount(transactions, 'transaction')}" if transactions else ""
    return f"{document['verdict']}: {least}{amount(document['keys'], 'key')}{written} would be lost, {place}{age}"


def _nothing_lost(document: Mapping[str, Any]) -> str:
    began = document["began"]
    since = f"since {began['text']}" if began else "since the watch began"
    return f"no key written on the target {since} is missing or older on the source"


def _places(document: Mapping[str, Any]) -> Iterator[str]:
    watch, unread = document["watch"], document["unread_seconds"]
    if unread is not None:
        began = document["began"]
        since = f" Writes before {began['text']} are not this watch's." if began else ""
        yield f"unread: {unread:.1f} seconds of writes after that are not known.{since}"
    state = "alive" if watch["alive"] else "ended" if watch["ended"] else "not alive"
    drained = "drained" if watch["drained"] else f"{amount(watch['unproved_keys'], 'key')} not proved"
    if watch["alive"] and watch["pid"] is not None:
        state += f" (process {watch['pid']} on {watch['host']})"
    yield (
        f"watch {document['run']}: {state}, wrote its ledger {watch['progress_seconds']:.1f} seconds ago, {drained}"
    )  # fmt: skip
    if document.get("oldest"):
        yield f"oldest write that would be lost: {document['oldest']['text']}"


def _tables(document: Mapping[str, Any]) -> Iterator[str]:
    for table in document["tables"]:
        if not table["keys"]:
            continue
        numbers = {**table, "value_differs": table["value_differs"] - table["order_unknown"]}
        kinds = ", ".join(f"{numbers[kind]:,} {words}" for kind, words in WORDS.items() if numbers[kind])
        line = f"{table['source']}: {amount(table['keys'], 'key')} ({kinds})"
        if table["no_write_known"]:
            line += f"; no write of the target is known for {table['no_write_known']:,} of them"
        yield line


def _amounts(document: Mapping[str, Any]) -> Iterator[str]:
    for one in document["amounts"]:
        for currency, sums in one["currencies"].items():
            yield (
                f"amount of rule {one['rule']} in {one['table']}: {sums['at_risk']} {currency} at risk "
                f"(target minus source {sums['difference']} {currency})"
            )
        if not one["currencies"]:
            yield f"amount of rule {one['rule']} in {one['table']}: none at risk"
        if one["without_amount"]:
            yield f"amount of rule {one['rule']}: {amount(one['without_amount'], 'row')} without an amount or currency"
    for reason in document["amounts_unstated"]:
        yield f"amount not stated: {reason}"


def _rows(document: Mapping[str, Any]) -> Iterator[str]:
    for row in document["rows"]:
        key = ", ".join("NULL" if part is None else part for part in row["key"])
        last = row["last_commit"]
        when = f", last written {last['text']}" if last else f", {row['origin']}"
        is_unordered = row["kind"] == "value_differs" and (last is None or row["origin"] != "changefeed")
        words = WORDS["order_unknown" if is_unordered else row["kind"]]
        yield f"  {row['table']}  {key}  {words}{when}"
    if document["rows_left_out"]:
        yield f"  ... {amount(document['rows_left_out'], 'key')} more: --limit lists them, --out writes all"

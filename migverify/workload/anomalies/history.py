"""Histories as JSON lines: one transaction a line, in any order. ``docs/anomalies.md`` has the format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from sys import intern
from typing import Any, TextIO

from migverify.errors import UsageError
from migverify.model import Side
from migverify.workload.anomalies.model import (
    Commitment,
    HistoryOperation,
    HistoryTransaction,
    OperationKind,
    TransactionHistory,
)

FORMAT = "migverify transaction history 1"
_KINDS = {kind.value: kind for kind in OperationKind}
_OUTCOMES = {outcome.value: outcome for outcome in Commitment}


def refuse_wrong_sides(source: TransactionHistory, target: TransactionHistory) -> None:
    """Refuse histories that are not of a source and a target, in this order.

    Raises UsageError: a history is of the other side, both are of one server, or both are the same.
    """
    hint = "Name the source's file first, then the target's, as the replay wrote them."
    for place, history in ((Side.SOURCE, source), (Side.TARGET, target)):
        if history.side and history.side != place:
            raise UsageError(f"the {place} has to be compared, and its file is the history of the {history.side}.",
                             hint=hint)  # fmt: skip
    if source.run and target.run and source.run != target.run:
        return  # of two replays: the comparison says so, and is no evidence for a decision
    if source.identity and source.identity == target.identity:
        raise UsageError(f"both histories are of one server, {source.identity}.", hint=hint)


def read_history(path: Path) -> TransactionHistory:
    """Return the history of a file.

    Raises UsageError: the file cannot be read, or a line is no transaction; the message names the line.
    """
    transactions: list[HistoryTransaction] = []
    head: dict[str, Any] = {}
    names: set[str] = set()
    number = 1
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                body = json.loads(line)
                if number == 1:
                    head = _head(body)
                    continue
                transaction = _transaction(body)
                if transaction.name in names:
                    raise ValueError(f"transaction {transaction.name} is there twice")
                names.add(transaction.name)
                transactions.append(transaction)
        if not head:
            raise ValueError("the file is empty")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        if isinstance(error, json.JSONDecodeError):
            what = f"{error.msg} in column {error.colno}; every line has to be one JSON object"
        raise UsageError(
            f"{path}, line {number}: {what}",
            hint="`workload replay --writes --anomalies` writes a history; docs/anomalies.md has its format.",
        ) from error
    return TransactionHistory(
        tuple(transactions), head.get("initial", {}),
        *(str(head.get(name, "")) for name in ("server", "run", "side", "identity")),
    )  # fmt: skip


def _head(body: dict[str, Any]) -> dict[str, Any]:
    if body.get("format") != FORMAT:
        raise ValueError(f'the first line has no "format": "{FORMAT}"')
    for key, value in body.get("initial", {}).items():
        _text(key, value)
    if body.get("side", "") not in ("", *Side):
        raise ValueError(f"side {body['side']!r} is neither source nor target")
    return body


def _transaction(body: dict[str, Any]) -> HistoryTransaction:
    begin, end = _time(body, "begin"), _time(body, "end")
    commit = _time(body, "commit") if "commit" in body else begin
    if not begin <= commit <= end:
        raise ValueError("begin, commit and end are not in this order")
    outcome = _OUTCOMES.get(body["outcome"])
    if outcome is None:
        raise ValueError(f"outcome {body['outcome']!r} is none of {', '.join(_OUTCOMES)}")
    operations = tuple(_operation(each, begin, end) for each in body["operations"])
    return HistoryTransaction(
        str(body["transaction"]), str(body["session"]), intern(str(body.get("isolation", "unknown"))), outcome, begin,
        commit, end, operations,
    )  # fmt: skip


def _operation(body: dict[str, Any], begin: int, end: int) -> HistoryOperation:
    kind, key = _KINDS.get(body["kind"]), body["key"]
    if kind is None:
        raise ValueError(f"kind {body['kind']!r} is none of {', '.join(_KINDS)}")
    if not isinstance(key, str) or not key:
        raise ValueError("key is no text")
    known = "value" in body
    value = _text("value", body.get("value"))
    if key.endswith("*") and (kind is OperationKind.READ or known):
        raise ValueError(f"{key}: only writes without a value have no single item")
    version = body.get("version")
    if version is not None and (type(version) is not int or version < (kind is OperationKind.WRITE)):
        raise ValueError("version is no count")
    delta = body.get("delta")
    if delta is not None and (type(delta) is not int or known or kind is OperationKind.READ or key.endswith("*")):
        raise ValueError(f"{key}: delta is a whole number, of a write of one item without a value")
    first = _time(body, "begin") if "begin" in body else begin
    last = _time(body, "end") if "end" in body else end
    if not begin <= first <= last <= end:
        raise ValueError(f"the times of {kind} {key} are not within the transaction")
    statement = str(body.get("statement", ""))
    return HistoryOperation(kind, intern(key), value, first, last, known, version, statement, delta)


def _text(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is neither text nor null")
    return value


def _time(body: dict[str, Any], name: str) -> int:
    value = body[name]
    if type(value) is not int:
        raise ValueError(f"{name} is no whole number")
    return value


def write_history(lines: TextIO, history: TransactionHistory) -> None:
    """Write a history as ``read_history`` reads it."""
    write_lines(
        lines, history.transactions, history.server, dict(history.initial), history.run, side=history.side,
        identity=history.identity,
    )  # fmt: skip


def write_lines(
    lines: TextIO, transactions: Iterable[HistoryTransaction], server: str,
    initial: dict[str, str | None] | None = None, run: str = "", *, side: str = "", identity: str = "",
) -> int:  # fmt: skip
    """Write transactions, one at a time; return how many. ``run`` is the replay that recorded them."""
    number = 0
    known = {name: text for name, text in (("run", run), ("side", side), ("identity", identity)) if text}
    head = {"format": FORMAT, "server": server, "initial": initial or {}, **known}
    lines.write(json.dumps(head) + "\n")
    for number, transaction in enumerate(transactions, 1):  # noqa: B007 - it counts
        lines.write(json.dumps(_as_json(transaction)) + "\n")
    return number


def _as_json(transaction: HistoryTransaction) -> dict[str, Any]:
    return {
        "transaction": transaction.name, "session": transaction.session, "isolation": transaction.isolation,
        "outcome": transaction.outcome.value, "begin": transaction.begin, "commit": transaction.commit,
        "end": transaction.end, "operations": [dict(_operation_json(each)) for each in transaction.operations],
    }  # fmt: skip


def _operation_json(operation: HistoryOperation) -> Iterator[tuple[str, Any]]:
    yield "kind", operation.kind.value
    yield "key", operation.key
    if operation.known:
        yield "value", operation.value
    if operation.delta is not None:
        yield "delta", operation.delta
    if operation.version is not None:
        yield "version", operation.version
    yield from (("begin", operation.begin), ("end", operation.end))
    if operation.statement:
        yield "statement", operation.statement

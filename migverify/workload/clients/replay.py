"""Captured sessions become a scenario: the same statements through a driver and a pool of choice.

Statements are asked in the order of their times, each session on a connection of its own; what may not be asked (writes
without a proven clone, cut statements) is left out by name and counted. Answers without a determined order are compared
as multisets; what no order or volatile functions decide is run and not compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from migverify.errors import UsageError
from migverify.workload.classify import Classification, classify
from migverify.workload.clients.model import Kind, Scenario, Variant
from migverify.workload.model import Parameter
from migverify.workload.replay.model import Call
from migverify.workload.replay.safety import Leave, refusal
from migverify.workload.shape import Order, shape

LONGEST = 2_000
_ASKED = {"query", "execute"}
_TYPES = {
    "unsigned": "unsigned", "decimal": "decimal", "double": "double", "float": "float", "bytes": "bytes",
    "date": "date", "datetime": "timestamp",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CapturedScenario:
    """The scenario, the database its sessions began in, and how many statements were left out for which reason."""

    scenario: Scenario
    database: str
    left_out: Mapping[str, int]
    asked: int
    uncompared: int


def scenario_of(calls: Sequence[Call], leave: Leave, options: Mapping[str, str]) -> CapturedScenario:
    """Return the scenario of captured calls.

    Parameters
    ----------
    calls
        Of one or more sessions, in any order.
    leave
        What may be asked beyond reads.
    options
        Neutral options of the driver (``server_prepare``: ``true``).

    Raises
    ------
    UsageError
        nothing of it may be asked, or it is longer than ``LONGEST`` statements.
    """
    ordered = sorted(calls, key=lambda call: (call.start or 0, call.session, call.position))
    left: Counter[str] = Counter()
    steps: list[dict[str, Any]] = []
    opened: dict[str, str] = {}
    current: dict[str, str | None] = {}
    uncompared = 0
    for call in ordered:
        classification = classify(call.sql)
        reason = _reason(call, classification, leave)
        if reason:
            left[reason] += 1
            continue
        if call.session not in opened:
            opened[call.session] = f"s{len(opened)}"
            steps.append({"do": "open", "as": opened[call.session]})
        name = opened[call.session]
        if call.state.database and current.get(name) != call.state.database:
            steps.append({"do": "set", "on": name, "what": "catalog", "value": call.state.database})
            current[name] = call.state.database
        step = _step(call, classification, name)
        uncompared += "ignore" in step
        steps.append(step)
    asked = sum(1 for step in steps if step["do"] in ("sql", "prepared"))
    _check(asked, left)
    database = next((call.state.database for call in ordered if call.state.database), "") or ""
    scenario = Scenario(
        "captured", f"{len(opened)} captured sessions", (Kind.JDBC, Kind.PYTHON), tuple(steps),
        variants=(Variant("as-captured", dict(options)),), seconds=60.0 + asked, origin="capture",
    )  # fmt: skip
    return CapturedScenario(scenario, database, dict(left), asked, uncompared)


def _check(asked: int, left: Mapping[str, int]) -> None:
    if not asked:
        told = ", ".join(f"{count} {reason}" for reason, count in left.items()) or "no statements"
        raise UsageError(
            f"nothing of these sessions can be asked: {told}", hint="Writes are replayed on proven clones only."
        )
    if asked > LONGEST:
        raise UsageError(
            f"{asked} statements are too many for one scenario (at most {LONGEST})",
            hint="Name fewer sessions; `migverify workload replay` is for whole captures.",
        )


def _reason(call: Call, classification: Classification, leave: Leave) -> str:
    if call.command not in _ASKED:
        return f"{call.command}: the driver does that itself"
    try:
        call.sql.decode("utf-8")
    except UnicodeDecodeError:
        return "not UTF-8: a driver of another character set sent it"
    return refusal(call, classification, leave)


def _step(call: Call, classification: Classification, name: str) -> dict[str, Any]:
    sql = call.sql.decode("utf-8")
    step: dict[str, Any] = {"do": "sql", "on": name, "sql": sql, "name": f"{call.session}#{call.position}"}
    if call.parameters is not None:
        step |= {"do": "prepared", "params": [_parameter(one) for one in call.parameters]}
    structure = shape(call.sql, None, bool(classification.volatile))
    if classification.volatile or structure.limit_without_order or structure.deterministic is False:
        step["ignore"] = ["results"]
    elif structure.order not in (Order.TOTAL, Order.ONE_ROW):
        step["unordered"] = True
    return step


def _parameter(one: Parameter) -> Any:
    if one.value is None:
        return None
    if one.kind == "bytes":
        return {"type": "bytes", "value": one.value.hex()}
    text = one.value.decode("utf-8", "replace")
    if one.kind == "integer":
        return int(text)
    kind = _TYPES.get(one.kind)
    return text if kind is None else {"type": kind, "value": text}

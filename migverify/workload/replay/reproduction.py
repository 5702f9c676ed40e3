"""Asks the kept example of a digest again: is the difference still there, with both answers and both plans.

A plan is shown as its shape, which indexes are used and which tables are read whole, and never judged: plans differ
between servers by design. A table that only the target reads whole is how a statement with equal answers becomes slow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from migverify.db.session import open_session
from migverify.errors import ReadError, UsageError
from migverify.model import Endpoint, Side
from migverify.store.results import ResultStore
from migverify.workload.classify import classify
from migverify.workload.meaning import Meanings
from migverify.workload.model import Command, Parameter
from migverify.workload.replay.compare import judge
from migverify.workload.replay.keys import ordering_keys, read_keys
from migverify.workload.replay.model import Answer, Call, JudgedCall, Judgement, Observation, TimedAnswer
from migverify.workload.replay.reader import Limits
from migverify.workload.replay.render import lines
from migverify.workload.replay.restore import restored, set_clock
from migverify.workload.replay.safety import Leave, refusal
from migverify.workload.replay.store import read_digests
from migverify.workload.replay.tally import DigestTally, Example
from migverify.workload.replay.wire import ServerWire, open_wire
from migverify.workload.state import SessionState

MOST_DIGESTS = 50
"""Most digests of a run that are asked again by one command."""
_SECONDS = 60.0
_ROWS = 20
_TABLE = re.compile(r"table:([^,\s]+)")
_INDEX = re.compile(r"index:([^(,\s]+)")
_TIDB_FULL = ("TableFullScan", "IndexFullScan")


class Still(StrEnum):
    """Whether the difference is still there."""

    DIFFERENT = "still different"
    GONE = "gone"
    UNKNOWN = "cannot be told"


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What became of one digest: both sides' ``answers`` as text, source first, and the shapes of their ``plans``."""

    tally: DigestTally
    example: Example | None
    still: Still
    reason: str
    judged: JudgedCall | None = None
    answers: tuple[str, ...] = ()
    plans: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object; ``answers_then`` are those that the run kept."""
        then = [] if self.example is None else [self.example.detail(side) for side in ("source", "target")]
        differences = () if self.judged is None else self.judged.differences
        return {
            "digest": self.tally.digest, "text": self.tally.text, "still": self.still.value, "reason": self.reason,
            "differences": [asdict(one) for one in differences], "answers": list(self.answers), "answers_then": then,
            "plans": list(self.plans),
        }  # fmt: skip


def reproduce(
    store: ResultStore, run: str, endpoints: Mapping[Side, Endpoint], passwords: Mapping[str, str], prefix: str = ""
) -> list[Reproduction]:
    """Ask the examples of a run's digests that differ again, the heaviest first, and judge as a replay does.

    Only what reads is asked. Raises EndpointError where a side cannot be reached, UsageError where the run holds no
    such digest.
    """
    run_id = store.load_run(run).run_id
    found: list[Reproduction] = []
    for one in read_digests(store, run_id, ("blocker", "review", "noise")):
        if one.tally.digest.startswith(prefix) and len(found) < MOST_DIGESTS:
            found.append(_again(one.tally, endpoints, passwords))
    if not found:
        raise UsageError(f"run {run_id} holds no digest {prefix or 'that differs'}", hint="See: migverify report RUN.")
    return found


def _again(tally: DigestTally, endpoints: Mapping[Side, Endpoint], passwords: Mapping[str, str]) -> Reproduction:
    examples = [one for by_aspect in tally.examples.values() for one in by_aspect if one.detail("statement")]
    if not examples:
        reason = "the run kept no statement that can be asked again: replay with `report: {values: true}`"
        return Reproduction(tally, None, Still.UNKNOWN, reason)
    example = min(examples, key=lambda one: one.state is not Judgement.DIFFERENT)
    call = call_of(tally.digest, example)
    why = refusal(call, classify(call.sql, call.state.modes), Leave())
    if why:
        return Reproduction(tally, example, Still.UNKNOWN, f"{why}; only what reads is asked again")
    with ExitStack() as stack:
        wires = {}
        for side in (Side.SOURCE, Side.TARGET):
            password = passwords.get(endpoints[side].name)
            wires[side] = open_wire(endpoints[side], password, side, Limits(seconds=_SECONDS))
            stack.callback(wires[side].close)
        with open_session(endpoints[Side.SOURCE], passwords.get(endpoints[Side.SOURCE].name)) as session:
            keys = ordering_keys(read_keys(session, [call.state.database] if call.state.database else []))
        return _ask(tally, example, call, wires, keys)


def call_of(digest: str, example: Example) -> Call:
    """Return the call of an example that holds its statement."""
    statement, session = json.loads(example.detail("statement")), json.loads(example.detail("session_state") or "{}")
    clock, parameters = example.detail("clock") or example.detail("at"), statement["parameters"]
    return Call(
        example.session, example.position, _bytes(statement["sql"]), digest, SessionState.from_json(session),
        clock=int(clock) if clock else None,
        parameters=None if parameters is None else tuple(
            Parameter(one["kind"], None if one["value"] is None else _bytes(one["value"])) for one in parameters
        ),
        command=(Command.EXECUTE if statement["prepared"] else Command.QUERY).value,
    )  # fmt: skip


def _bytes(value: str | Mapping[str, str]) -> bytes:
    return value.encode() if isinstance(value, str) else bytes.fromhex(value["hex"])


def _ask(
    tally: DigestTally, example: Example, call: Call, wires: Mapping[Side, ServerWire],
    keys: Mapping[str, list[tuple[str, ...]]],
) -> Reproduction:  # fmt: skip
    found: dict[Side, tuple[TimedAnswer, ...]] = {}
    for side, wire in wires.items():
        own = () if call.clock is None else (set_clock(call.clock),)
        for command in (*restored(call.state, wire.flavor, read_only=True).commands, *own):
            answer = wire.command(command)
            if not answer.ok:
                raise ReadError(f"{side}: {answer.unanswered or answer.message}: {command.decode('utf-8', 'replace')}")
        # twice: a side that differs from itself proves nothing
        found[side] = tuple(TimedAnswer(wire.run(call, prepared=call.command == "execute"), 0, 0, 0) for _ in range(2))
    meaning = Meanings("mysql", unique_keys=keys).meaning(call.sql, call.state.modes)
    judged = judge(Observation(call, found[Side.SOURCE], found[Side.TARGET]), meaning)
    answers = tuple("\n".join(lines(found[side][0].answer, _ROWS)) for side in (Side.SOURCE, Side.TARGET))
    still, reason = _still(example, judged)
    return Reproduction(tally, example, still, reason, judged, answers, tuple(_plans(call, wires)))


def _still(example: Example, judged: JudgedCall) -> tuple[Still, str]:
    aspects = sorted({one.aspect for one in judged.differences})
    if judged.state is Judgement.DIFFERENT:
        return Still.DIFFERENT, f"differs in {', '.join(aspects)}"
    if judged.state is not Judgement.SAME:
        return Still.UNKNOWN, judged.reason
    if aspects and {one.aspect for one in example.differences} <= set(aspects):
        return Still.DIFFERENT, f"the same values, described differently: {', '.join(aspects)}"
    return Still.GONE, "both sides give the same answer"


def _plans(call: Call, wires: Mapping[Side, ServerWire]) -> Iterator[str]:
    """Yield both plans' shapes; none for what is no plain SELECT, or where a side does not give it."""
    if classify(call.sql).words == ("SELECT",) and call.parameters is None:
        shapes = explained(call.sql, wires[Side.SOURCE].command, wires[Side.TARGET].command)
        yield from map(str, shapes or ())


@dataclass(frozen=True, slots=True)
class PlanShape:
    """``whole`` are tables read whole (an index read from end to end counts), ``indexes`` are ``table.index``."""

    whole: frozenset[str] = frozenset()
    indexes: frozenset[str] = frozenset()

    def __str__(self) -> str:
        parts = []
        if self.indexes:
            parts.append("indexes " + ", ".join(sorted(self.indexes)))
        if self.whole:
            parts.append("reads whole " + ", ".join(sorted(self.whole)))
        return "; ".join(parts) or "no index, no table read whole"


def plan_of(answer: Answer) -> PlanShape | None:
    """Return the shape of the answer to ``EXPLAIN SELECT``; None where it is none of MySQL's or TiDB's tables."""
    if not answer.ok or answer.rows is None:
        return None
    names = [column.name.decode("utf-8", "replace").lower() for column in answer.columns]
    rows = [
        dict(zip(names, ((cell or b"").decode("utf-8", "replace") for cell in row), strict=True)) for row in answer.rows
    ]
    if {"select_type", "type", "key"} <= set(names):
        return _mysql(rows)
    if {"id", "access object"} <= set(names):
        return _tidb(rows)
    return None


def _mysql(rows: list[dict[str, str]]) -> PlanShape:
    real = [row for row in rows if row["table"] and not row["table"].startswith("<")]
    return PlanShape(
        frozenset(row["table"] for row in real if row["type"] in ("ALL", "index")),
        frozenset(f"{row['table']}.{row['key']}" for row in real if row["key"]),
    )


def _tidb(rows: list[dict[str, str]]) -> PlanShape:
    whole, indexes = set(), set()
    for row in rows:
        table, index = _TABLE.search(row["access object"]), _INDEX.search(row["access object"])
        name = table[1] if table else "?"
        if any(word in row["id"] for word in _TIDB_FULL):
            whole.add(name)
        if index:
            indexes.add(f"{name}.{index[1]}")
        elif "TableRangeScan" in row["id"] or "Point_Get" in row["id"] or "Batch_Point_Get" in row["id"]:
            indexes.add(f"{name}.PRIMARY")
    return PlanShape(frozenset(whole), frozenset(indexes))


def explained(
    sql: bytes, source: Callable[[bytes], Answer], target: Callable[[bytes], Answer]
) -> tuple[PlanShape, PlanShape] | None:
    """Ask both sides for the plan of a SELECT; None where one of them does not give it."""
    first, second = _plan(sql, source), _plan(sql, target)
    return None if first is None or second is None else (first, second)


def _plan(sql: bytes, ask: Callable[[bytes], Answer]) -> PlanShape | None:
    # the default format is a server's variable; TiDB's table has no name that old versions of both know
    return plan_of(ask(b"EXPLAIN FORMAT=TRADITIONAL " + sql)) or plan_of(ask(b"EXPLAIN " + sql))

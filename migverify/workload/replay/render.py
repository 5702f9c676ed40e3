"""Answers and statements as texts for people, bounded: what the journal, the report and a reproducer show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from migverify.workload.model import text_of
from migverify.workload.replay.cells import CellKind, kind_of
from migverify.workload.replay.model import Answer, Call, Difference, Observation
from migverify.workload.replay.rows import show, show_row

if TYPE_CHECKING:
    from migverify.workload.model import Parameter

WITHHELD = "(withheld)"
_MESSAGE = 300
_WHOLE = 65_536
_ROWS = 10
_CHARACTERS = 4_000
"""Most rows and characters of an answer or a statement that an example shows."""


def outcome(answer: Answer) -> str:
    """Return the end of a statement in one line."""
    if answer.unanswered:
        return f"no answer: {answer.unanswered}"
    if answer.errno:
        return f"error {answer.errno} ({answer.sqlstate or '?????'}): {answer.message[:_MESSAGE]}"
    if answer.columns:
        return f"ok, {answer.row_count} row" + ("" if answer.row_count == 1 else "s")
    return f"ok, {answer.affected} affected"


def example(observation: Observation, *, mask: bool) -> dict[str, str]:
    """Return what shows a statement that is not plainly the same: its text and both answers."""
    call = observation.call
    found = {"origin": call.origin}
    if mask:
        return {**found, "sql": WITHHELD}
    found["sql"] = _cut(sql_text(call), _CHARACTERS)
    if len(call.sql) <= _WHOLE:
        found["statement"] = json.dumps(statement_of(call), ensure_ascii=False)
    found["session_state"] = json.dumps(call.state.as_json(), ensure_ascii=False)
    for side, asked in (("source", observation.source), ("target", observation.target)):
        if asked:
            found[side] = _cut("\n".join(lines(asked[0].answer, _ROWS)), _CHARACTERS)
    if call.clock is not None:
        found["clock"] = str(call.clock)
    if observation.racy:
        found["racy"] = observation.racy
    return {name: text for name, text in found.items() if text}


def sql_text(call: Call) -> str:
    """Return the statement, and its parameters where it has some apart."""
    text = text_of(call.sql)
    if call.parameters is None:
        return text
    return f"{text}\n-- parameters: {', '.join(_parameter(one) for one in call.parameters)}"


def _parameter(one: Parameter) -> str:
    kind = CellKind.BYTES if one.kind == "bytes" else CellKind.TEXT if one.kind == "text" else CellKind.INTEGER
    return show(one.value, kind)


def statement_of(call: Call) -> dict[str, object]:
    """Return the statement as it can be asked again: text, or hex digits where its bytes are no UTF-8."""
    values = None if call.parameters is None else [
        {"kind": one.kind, "value": None if one.value is None else bytes_text(one.value)} for one in call.parameters
    ]  # fmt: skip
    return {"sql": bytes_text(call.sql), "parameters": values, "prepared": call.command == "execute"}


def bytes_text(value: bytes) -> str | dict[str, str]:
    """Return bytes as JSON: a text where they are UTF-8, else an object with ``hex``."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return {"hex": value.hex()}


def lines(answer: Answer, rows: int) -> Iterator[str]:
    """Yield an answer line by line: outcome, columns, the first rows."""
    yield outcome(answer)
    if answer.columns:
        yield ", ".join(f"{column.name.decode('utf-8', 'replace')} {kind_of(column)}" for column in answer.columns)
        kinds = [kind_of(column) for column in answer.columns]
        answer_rows = answer.rows or ()
        yield from (show_row(row, kinds) for row in answer_rows[:rows])
        if answer.row_count > min(len(answer_rows), rows):
            yield f"... {answer.row_count - min(len(answer_rows), rows)} more"
    elif not answer.errno and not answer.unanswered:
        yield f"insert id {answer.insert_id}, {answer.warnings} warnings" + (f", {answer.info}" if answer.info else "")
    for one in answer.warned or ():
        yield f"{one.level} {one.code}: {one.message[:_MESSAGE]}"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


_OF_VALUES = frozenset({
    "null", "value", "float", "decimal-scale", "form", "json", "json-form", "json-text", "temporal",
    "temporal-fraction", "rows", "order", "insert-id",
})  # fmt: skip


def masked(one: Difference) -> Difference:
    """Return a difference without values; a server's message may quote some, so only its number stays."""
    if one.aspect in _OF_VALUES:
        return replace(one, source=WITHHELD, target=WITHHELD)
    if one.aspect in ("error", "unanswered"):
        return replace(one, source=one.source.split(":")[0], target=one.target.split(":")[0])
    return one

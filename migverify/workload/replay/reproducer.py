"""A file that shows one difference again: schema, rows, session, clock, statement, both answers.

JSON, described by ``migverify/schemas/reproducer.schema.json``. Bytes that are no UTF-8 stand as ``{"hex": ...}``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from migverify.errors import UsageError
from migverify.workload.model import Command, Parameter
from migverify.workload.replay.model import Answer, Call
from migverify.workload.replay.render import bytes_text
from migverify.workload.replay.tally import DigestTally, Example
from migverify.workload.shape import shape
from migverify.workload.state import State

FORMAT = "migverify reproducer 1"
ROWS = 100
"""Most rows of a table that a file holds."""

_LARGEST = 64 << 20


@dataclass(frozen=True, slots=True)
class TableCopy:
    """A table of a reproducer. ``left_out`` says why rows are missing, empty when all are there."""

    name: str
    source_ddl: str
    target_ddl: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[bytes | None, ...], ...] = ()
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class Reproducer:
    """Everything one file holds. ``versions`` and ``answers`` are of source and target, in this order."""

    digest: str
    text: str
    call: Call
    tables: tuple[TableCopy, ...]
    versions: tuple[str, str]
    answers: tuple[str, str]
    state: str
    aspects: tuple[str, ...]
    run: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the file's object."""
        call, state = self.call, self.call.state
        session: dict[str, Any] = {
            name: getattr(state, name)
            for name in ("database", "charset", "sql_mode", "time_zone", "autocommit", "isolation")
            if getattr(state, name) is not None
        }  # fmt: skip
        if state.rest:
            session["rest"] = json.loads(state.rest)
        values = None if call.parameters is None else [
            {"kind": one.kind, "value": None if one.value is None else bytes_text(one.value)} for one in call.parameters
        ]  # fmt: skip
        return {
            "format": FORMAT, "digest": self.digest, "text": self.text,
            "statement": {"sql": bytes_text(call.sql), "parameters": values,
                          "prepared": call.command == Command.EXECUTE.value},
            "session": session, "clock": call.clock, "tables": [_table(one) for one in self.tables],
            "source": {"version": self.versions[0], "answer": self.answers[0]},
            "target": {"version": self.versions[1], "answer": self.answers[1]},
            "found": {"state": self.state, "aspects": list(self.aspects), "run": self.run, "origin": call.origin},
        }  # fmt: skip


def _table(one: TableCopy) -> dict[str, Any]:
    rows = [[None if cell is None else bytes_text(cell) for cell in row] for row in one.rows]
    return {
        "name": one.name, "source_ddl": one.source_ddl, "target_ddl": one.target_ddl, "columns": list(one.columns),
        "rows": rows, "left_out": one.left_out,
    }  # fmt: skip


@cache
def schema() -> Mapping[str, Any]:
    """Return the JSON schema of a reproducer."""
    found: Mapping[str, Any] = json.loads((files("migverify") / "schemas/reproducer.schema.json").read_text())
    return found


def read_reproducer(path: Path) -> Reproducer:
    """Read and check a file.

    Raises
    ------
    UsageError
        It cannot be read, is no JSON, or not what the schema says; the message names the place.
    """
    from jsonschema import Draft202012Validator

    try:
        if path.stat().st_size > _LARGEST:
            raise UsageError(f"{path} has more than {_LARGEST >> 20} MiB", hint="A reproducer is small.")
        body = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}", hint="Name a reproducer file.") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no JSON: {error}", hint="Write it anew: workload reproduce --run RUN.") from error
    wrong = next(
        iter(sorted(Draft202012Validator(schema()).iter_errors(body), key=lambda e: list(map(str, e.path)))), None
    )
    if wrong is not None:
        place = "/".join(map(str, wrong.absolute_path)) or "the whole"
        raise UsageError(
            f"{path}: {place}: {wrong.message[:300]}", hint="It must be as reproducer.schema.json says."
        )  # fmt: skip
    return _of(body)


def _of(body: Mapping[str, Any]) -> Reproducer:
    tables = tuple(
        TableCopy(
            one["name"], one["source_ddl"], one["target_ddl"], tuple(one["columns"]),
            tuple(tuple(None if cell is None else _bytes(cell) for cell in row) for row in one["rows"]),
            one["left_out"],
        )
        for one in body["tables"]
    )  # fmt: skip
    call = call_of(
        body["digest"], body["statement"], body["session"], body["clock"], origin=body["found"]["origin"]
    )  # fmt: skip
    source, target, found = body["source"], body["target"], body["found"]
    return Reproducer(
        body["digest"], body["text"], call, tables, (source["version"], target["version"]),
        (source["answer"], target["answer"]), found["state"], tuple(found["aspects"]), found["run"],
    )  # fmt: skip


def _bytes(value: str | Mapping[str, str]) -> bytes:
    return value.encode() if isinstance(value, str) else bytes.fromhex(value["hex"])


def call_of(
    digest: str, statement: Mapping[str, Any], session: Mapping[str, Any], clock: int | None, *, origin: str = ""
) -> Call:
    """Return the call that a statement, a session and a clock make, in the form of a file."""
    parameters = statement["parameters"]
    rest = session.get("rest")
    state = State(
        session.get("database"), session.get("charset"), session.get("sql_mode"), session.get("time_zone"),
        session.get("autocommit"), session.get("isolation"), False, json.dumps(rest) if rest else "",
    )  # fmt: skip
    return Call(
        "reproducer", 1, _bytes(statement["sql"]), digest, state, clock=clock,
        parameters=None if parameters is None else tuple(
            Parameter(one["kind"], None if one["value"] is None else _bytes(one["value"])) for one in parameters
        ),
        origin=origin, command=(Command.EXECUTE if statement["prepared"] else Command.QUERY).value,
    )  # fmt: skip


def make(
    tally: DigestTally,
    example: Example,
    run: str,
    versions: tuple[str, str],
    ask: tuple[Callable[[bytes], Answer], Callable[[bytes], Answer]],
) -> Reproducer:
    """Make a reproducer of an example that a run kept.

    Parameters
    ----------
    ask
        Run a reading statement on the source and on the target, in the statement's database.

    Raises
    ------
    UsageError
        The run kept no whole statement: it masks, or the statement was too long.
    """
    kept = example.detail("statement")
    if not kept:
        raise UsageError(
            f"run {run} kept no statement of digest {tally.digest[:16]} that can be asked again",
            hint="Replay with `report: {values: true}` in the configuration.",
        )
    session = json.loads(example.detail("session_state") or "{}")
    clock = example.detail("clock") or example.detail("at")
    call = call_of(
        tally.digest, json.loads(kept), session, int(clock) if clock else None, origin=example.detail("origin")
    )  # fmt: skip
    names = shape(call.sql).tables or ()
    return Reproducer(
        tally.digest, tally.text, call, tuple(_copy(name, ask) for name in names), versions,
        (example.detail("source"), example.detail("target")), example.state.value,
        tuple(sorted({one.aspect for one in example.differences})), run,
    )  # fmt: skip


def _copy(name: str, ask: tuple[Callable[[bytes], Answer], Callable[[bytes], Answer]]) -> TableCopy:
    quoted = b".".join(b"`" + part.replace("`", "``").encode() + b"`" for part in name.split("."))
    ddl = _ddl(ask[0](b"SHOW CREATE TABLE " + quoted)), _ddl(ask[1](b"SHOW CREATE TABLE " + quoted))
    short = name.split(".")[-1]
    if not all(ddl):
        return TableCopy(short, ddl[0], ddl[1], left_out="its definition cannot be read on both sides")
    columns = _columns(ask[0](b"SHOW COLUMNS FROM " + quoted))
    listed = b", ".join(b"`" + one.replace("`", "``").encode() + b"`" for one in columns)
    found = ask[0](b"SELECT " + listed + b" FROM " + quoted + b" LIMIT %d" % (ROWS + 1))
    if not found.ok or found.rows is None:
        return TableCopy(
            short, ddl[0], ddl[1], left_out=f"its rows cannot be read: {found.unanswered or found.message}"
        )
    if found.row_count > ROWS:
        return TableCopy(short, ddl[0], ddl[1], left_out=f"it holds more than {ROWS} rows")
    return TableCopy(short, ddl[0], ddl[1], tuple(columns), found.rows)


def _ddl(answer: Answer) -> str:
    if not answer.ok or not answer.rows or answer.rows[0][1] is None:
        return ""
    return answer.rows[0][1].decode("utf-8", "replace")


def _columns(answer: Answer) -> list[str]:
    """Return the columns that can be inserted: not the generated ones."""
    return [
        (row[0] or b"").decode("utf-8", "replace")
        for row in answer.rows or ()
        if b"GENERATED" not in (row[5] or b"").replace(b"DEFAULT_GENERATED", b"")
    ]  # fmt: skip

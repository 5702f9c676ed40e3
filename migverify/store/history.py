"""What the store knows of a run: its id, its events, who writes it, and what follows from them."""

from __future__ import annotations

import os
import socket
import time
import zlib
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, func, insert, select

from migverify.errors import StoreError, UsageError
from migverify.model import RunInfo, Verdict
from migverify.store import codec
from migverify.store import schema as t
from migverify.store.schema import IN_LIST


def no_run(run_id: str, label: str) -> UsageError:
    """Return the error for a run id that this store does not hold."""
    if run_id == "last":
        return UsageError(f"the store {label} holds no run yet", hint="Start one: migverify tables verify.")
    return UsageError(f"the store {label} holds no run {run_id!r}", hint="`last` names the newest run.")


def new_run_id(now: float) -> str:
    """Return UTC time to the second, then 12 bits of its fraction and 12 random bits: sorts by time, unique."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now))
    return f"{stamp}-{int(now % 1 * 4096):03x}{int.from_bytes(os.urandom(2)) & 0xFFF:03x}"


def new_mark() -> str:
    """Return text that names this process as a writer, and no other one ever."""
    return f"{socket.gethostname()[:200]} process {os.getpid()} {os.urandom(6).hex()}"


def lock_run(connection: Connection, run_id: str, label: str) -> None:
    """Take the write turn of a run; ``UsageError`` when there is no such run."""
    # The row lock makes writers of one run take turns on a server; SQLite has one writer anyway.
    query = select(t.runs.c.run_id).where(t.runs.c.run_id == run_id).with_for_update()
    if connection.scalar(query) is None:
        raise no_run(run_id, label)


def refuse_if_taken_over(connection: Connection, run_id: str, mark: str) -> None:
    """Raise ``StoreError`` when a later process than the one of ``mark`` resumed the run."""
    events = t.run_events.c
    query = (
        select(events.writer)
        .where(events.run_id == run_id, events.event != "run_finished")
        .order_by(events.number.desc())
        .limit(1)
    )
    writer = connection.scalar(query)
    if writer != mark:
        raise StoreError(
            f"run {run_id} was resumed by another process ({writer}); this one may not write to it any more",
            hint="Let the other process finish the run.",
        )


def add_event(
    connection: Connection,
    run_id: str,
    number: int,
    kind: str,
    mark: str,
    *,
    at: float | None = None,
    verdict: Verdict | None = None,
    facts: str = "{}",
) -> None:
    """Append one event of a run."""
    connection.execute(
        insert(t.run_events).values(
            run_id=run_id,
            number=number,
            event=kind,
            at=time.time() if at is None else at,
            writer=mark,
            verdict=None if verdict is None else verdict.value,
            facts=facts,
        )
    )


def next_event(connection: Connection, run_id: str) -> int:
    """Return the number after the run's last event; 0 when it has none."""
    last = connection.scalar(select(func.max(t.run_events.c.number)).where(t.run_events.c.run_id == run_id))
    return 0 if last is None else int(last) + 1


def events_of(connection: Connection, run_ids: Sequence[str]) -> dict[str, list[RowMapping]]:
    """Return the events of these runs, each in their order."""
    events: dict[str, list[RowMapping]] = {run_id: [] for run_id in run_ids}
    columns = t.run_events.c
    for start in range(0, len(run_ids), IN_LIST):
        query = select(t.run_events).where(columns.run_id.in_(run_ids[start : start + IN_LIST]))
        for row in connection.execute(query.order_by(columns.run_id, columns.number)).mappings():
            events[row["run_id"]].append(row)
    return events


def run_info(row: RowMapping, plan: dict[str, Any], events: list[RowMapping]) -> RunInfo:
    """Fold a run's events: only a finish that nothing came after is an end, and only its verdict holds."""
    facts = codec.decode_object(row["facts"], "the facts of a run")
    finished: float | None = None
    verdict = Verdict.INCONCLUSIVE
    last = events[-1] if events else None
    if last is not None and last["event"] == "run_finished":
        finished = last["at"]
        try:
            verdict = Verdict(last["verdict"])
        except ValueError as exc:
            raise StoreError(
                f"run {row['run_id']} has the verdict {last['verdict']!r}, which does not exist",
                hint="The store is damaged: verify again into another one.",
            ) from exc
        for event in events:
            facts.update(codec.decode_object(event["facts"], "the facts of a run"))
    return RunInfo(
        run_id=row["run_id"],
        command=row["command"],
        started=row["started"],
        finished=finished,
        verdict=verdict,
        plan_hash=row["plan_hash"],
        plan=plan,
        facts=facts,
    )


def unpack_plan(run_id: str, packed: bytes) -> dict[str, Any]:
    """Return the plan that ``start_run`` packed; ``StoreError`` when it is damaged."""
    try:
        text = zlib.decompress(packed).decode("ascii")
    except (zlib.error, UnicodeDecodeError) as exc:
        raise StoreError(
            f"the plan of run {run_id} in the store is damaged: {exc}",
            hint="Verify again into another store.",
        ) from exc
    return codec.decode_object(text, "a plan")

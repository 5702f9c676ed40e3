"""What the store knows of a run: its id, its kind, its events, who writes it, and what follows from them."""

from __future__ import annotations

import os
import socket
import time
import zlib
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, func, insert, select

from migverify.errors import StoreError, UsageError
from migverify.model import RunInfo, StoredKind, Verdict
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
    kind: str,
    mark: str,
    *,
    at: float | None = None,
    verdict: Verdict | None = None,
    facts: str = "{}",
) -> None:
    """Append one event of a run."""
    last = connection.scalar(select(func.max(t.run_events.c.number)).where(t.run_events.c.run_id == run_id))
    connection.execute(
        insert(t.run_events).values(
            run_id=run_id,
            number=0 if last is None else int(last) + 1,
            event=kind,
            at=time.time() if at is None else at,
            writer=mark,
            verdict=None if verdict is None else verdict.value,
            facts=facts,
        )
    )


def events_of(connection: Connection, run_ids: Sequence[str]) -> dict[str, list[RowMapping]]:
    """Return the events of these runs, each in their order."""
    events: dict[str, list[RowMapping]] = {run_id: [] for run_id in run_ids}
    columns = t.run_events.c
    for start in range(0, len(run_ids), IN_LIST):
        query = select(t.run_events).where(columns.run_id.in_(run_ids[start : start + IN_LIST]))
        for row in connection.execute(query.order_by(columns.run_id, columns.number)).mappings():
            events[row["run_id"]].append(row)
    return events


def run_info(row: RowMapping, kind: StoredKind, plan: dict[str, Any], events: list[RowMapping]) -> RunInfo:
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
        row["run_id"], row["command"], row["started"], finished, verdict, row["plan_hash"], plan, facts, kind
    )  # fmt: skip


def plan_of(connection: Connection, run_id: str) -> dict[str, Any]:
    """Return the plan of a run; ``StoreError`` when it is damaged."""
    parts = t.plan_parts.c
    packed = b"".join(connection.scalars(select(parts.content).where(parts.run_id == run_id).order_by(parts.part)))
    try:
        text = zlib.decompress(packed).decode("ascii")
    except (zlib.error, UnicodeDecodeError) as exc:
        raise StoreError(
            f"the plan of run {run_id} in the store is damaged: {exc}",
            hint="Verify again into another store.",
        ) from exc
    return codec.decode_object(text, "a plan")


# -- kinds ----------------------------------------------------------------------------------------------------------


def kinds_of(connection: Connection, run_ids: Sequence[str], *, recorded: bool) -> dict[str, StoredKind]:
    """Return the kinds of these runs.

    Parameters
    ----------
    recorded
        The store has the table of kinds. One of the first release that cannot be written has none, and a process of
        that release may still start runs in a store that has it: the kind of such a run follows from its plan.
    """
    columns, found = t.run_kinds.c, {}
    for start in range(0, len(run_ids) if recorded else 0, IN_LIST):
        some = columns.run_id.in_(run_ids[start : start + IN_LIST])
        found.update(
            {row.run_id: _stored_kind(row.kind) for row in connection.execute(select(t.run_kinds).where(some))}
        )
    return {run_id: found.get(run_id) or _kind_by_plan(connection, run_id) for run_id in run_ids}


def add_kinds(connection: Connection) -> None:
    """Record the kind of each run that has none: those of the first release."""
    known = select(t.run_kinds.c.run_id)
    for run_id in list(connection.scalars(select(t.runs.c.run_id).where(t.runs.c.run_id.not_in(known)))):
        kind = _kind_by_plan(connection, run_id)
        connection.execute(insert(t.run_kinds).values(run_id=run_id, kind=kind.value))


def _stored_kind(text: str) -> StoredKind:
    # A later migverify may know more kinds: its runs are listed, and belong to none of this one's commands.
    return next((kind for kind in StoredKind if kind.value == text), StoredKind.UNKNOWN)


def _kind_by_plan(connection: Connection, run_id: str) -> StoredKind:
    try:
        plan = plan_of(connection, run_id)
    except StoreError:
        return StoredKind.UNKNOWN  # a listing shows the run; who loads it learns that its plan is damaged
    if plan.get("kind") in (StoredKind.REPLAY, StoredKind.CLIENTS):
        return StoredKind(plan["kind"])
    # A run of rules lists them as pairs too.
    keys = {"guards": StoredKind.GUARDS, "probe": StoredKind.PROBE, "rules": StoredKind.RULES,
            "pairs": StoredKind.TABLES}  # fmt: skip
    return next((kind for key, kind in keys.items() if key in plan), StoredKind.UNKNOWN)

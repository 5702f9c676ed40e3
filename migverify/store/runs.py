"""What the store knows of a run: its id, its kind, its events, who writes it, and what follows from them."""

from __future__ import annotations

import os
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, RowMapping, bindparam, insert, select

from migverify.errors import StoreError, UsageError
from migverify.model import RunInfo, StoredKind, Verdict
from migverify.store import codec
from migverify.store import schema as t
from migverify.store.database import Database
from migverify.store.facts import next_number
from migverify.store.run_leases import Heartbeats, claim
from migverify.store.schema import IN_LIST

T = TypeVar("T")

# Statements that are read many times are made once: to make one anew costs three times as much as to execute it.
_RUN = bindparam("run_id", type_=t.runs.c.run_id.type)
_RUNS = select(t.runs, t.run_kinds.c.kind).outerjoin(t.run_kinds, t.run_kinds.c.run_id == t.runs.c.run_id)
_ONE_RUN = _RUNS.where(t.runs.c.run_id == _RUN)
_NEWEST_RUNS = _RUNS.order_by(t.runs.c.position.desc()).limit(bindparam("most"))
_LAST_ID = select(t.runs.c.run_id).order_by(t.runs.c.position.desc()).limit(1)
_KNOWN_ID = select(t.runs.c.run_id).where(t.runs.c.run_id == _RUN)
_EVENTS_OF_RUN = select(t.run_events).where(t.run_events.c.run_id == _RUN).order_by(t.run_events.c.number)
_EVENTS_OF_RUNS = (
    select(t.run_events)
    .where(t.run_events.c.run_id.in_(bindparam("run_ids", expanding=True)))
    .order_by(t.run_events.c.run_id, t.run_events.c.number)
)
_PLAN_PARTS = select(t.plan_parts.c.content).where(t.plan_parts.c.run_id == _RUN).order_by(t.plan_parts.c.part)
_SCOPE = select(t.scopes.c.scope).where(t.scopes.c.run_id == _RUN, t.scopes.c.pair_hash == bindparam("pair_hash"))
_PART_BYTES = 1 << 20  # TiDB refuses a row above 6 MiB, MySQL a packet above max_allowed_packet


class RunLog:
    """The runs of a store, and their transactions; may be used by many threads.

    A run is written by one process: the one that started or last resumed it. A run whose process lives is not resumed;
    an earlier process that was presumed gone is refused, because its plan of what is left to do is out of date. Any
    number of processes may read meanwhile.
    """

    def __init__(self, engine: Engine, label: str, *, secret: object = None) -> None:
        self.database = Database(engine, label, secret)
        self._heartbeats = Heartbeats(self.database)
        self._writing = threading.Lock()
        self._marks: dict[str, str] = {}
        self._scopes: dict[tuple[str, str], int] = {}
        self._new_scopes: dict[tuple[str, str], int] = {}  # of the transaction that is open
        self._listed: dict[str, RunInfo] = {}  # of the reading that is open

    @property
    def engine(self) -> Engine:
        """The engine of the store's database."""
        return self.database.engine

    @contextmanager
    def one_reading(self, listed: Iterable[RunInfo] = ()) -> Iterator[None]:
        """Let all reads be of one moment, by one connection: a fifth of the time for a reader of many small things.

        Not for threads that share the store, and nothing is written meanwhile.

        Parameters
        ----------
        listed
            Runs that ``runs`` returned: as they were then ``load_run`` returns them, and reads their plans alone, once.

        Raises
        ------
        StoreError
            the store cannot be read.
        """
        before = self.database
        with before.one_reading() as self.database:
            self._listed = {run.run_id: run for run in listed}
            try:
                yield
            finally:
                self.database, self._listed = before, {}

    # Runs

    def start_run(
        self, command: str, plan_hash: str, plan: dict[str, Any], facts: dict[str, Any], *, kind: StoredKind
    ) -> str:
        """Begin a run and return its id; runs are ordered by when they were recorded here."""
        packed = zlib.compress(codec.encode_json(plan, "the plan").encode("ascii"), level=1)
        facts_text = codec.encode_json(facts, "the facts of a run")
        mark = _new_mark()

        def work(connection: Connection) -> str:
            now = time.time()
            run_id = new_run_id(now)
            position = next_number(connection, t.runs.c.position)
            row = {"run_id": run_id, "position": position, "command": command, "plan_hash": plan_hash,
                   "started": now, "facts": facts_text}  # fmt: skip
            connection.execute(insert(t.runs), [row])
            parts = [{"run_id": run_id, "part": n, "content": c} for n, c in enumerate(parts_of(packed))]
            connection.execute(insert(t.plan_parts), parts)
            connection.execute(insert(t.run_kinds), [{"run_id": run_id, "kind": kind.value}])
            _add_event(connection, run_id, "run_started", mark, at=now)
            claim(connection, run_id, finished=False)
            return run_id

        run_id = self._write("cannot start a run in", work)
        self._marks[run_id] = mark
        self._heartbeats.begin(run_id)
        return run_id

    def resume_run(self, run_id: str) -> RunInfo:
        """Mark that this process goes on with the run; the process that wrote it before is refused from here on.

        Raises
        ------
        UsageError
            there is no such run, or another process writes it.
        """
        action = f"cannot load run {run_id} from"
        run_id = self.database.read(action, lambda connection: self._find(connection, run_id))
        mark = _new_mark()

        def work(connection: Connection) -> None:
            _lock_run(connection, run_id, self.database.label)
            claim(connection, run_id, finished=_last_event(connection, run_id)[0] == "run_finished")
            _add_event(connection, run_id, "run_resumed", mark)

        self._write(f"cannot resume run {run_id} in", work)
        self._marks[run_id] = mark
        self._heartbeats.begin(run_id)
        return self.load_run(run_id)

    def finish_run(self, run_id: str, verdict: Verdict, facts: dict[str, Any]) -> None:
        """End a run; ``facts`` are merged over those of ``start_run``."""
        facts_text = codec.encode_json(facts, "the facts of a run")

        def work(connection: Connection) -> None:
            mark = self._marks.get(run_id, "")
            _add_event(connection, run_id, "run_finished", mark, verdict=verdict, facts=facts_text)

        self._write_run(run_id, "cannot finish", work)
        self._heartbeats.end(run_id)

    def load_run(self, run_id: str) -> RunInfo:
        """One run with its plan; ``last`` names the newest. ``UsageError`` when there is none."""
        action = f"cannot load run {run_id} from"
        if (listed := self._listed.get(run_id)) is not None:
            if not listed.plan:
                plan = self.database.read(action, lambda connection: plan_of(connection, run_id))
                self._listed[run_id] = listed = replace(listed, plan=plan)
            return listed

        def work(connection: Connection) -> RunInfo:
            found = self._find(connection, run_id) if run_id == "last" else run_id
            row = connection.execute(_ONE_RUN, {"run_id": found}).mappings().one_or_none()
            if row is None:
                raise _no_run(run_id, self.database.label)
            events = connection.execute(_EVENTS_OF_RUN, {"run_id": found}).mappings().all()
            return _run_info(row, plan_of(connection, found), events)

        return self.database.read(action, work)

    def runs(self, limit: int = 50) -> list[RunInfo]:
        """The newest runs first, without their plans."""

        def work(connection: Connection) -> list[RunInfo]:
            rows = connection.execute(_NEWEST_RUNS, {"most": limit}).mappings().all()
            events = _events_of(connection, [row["run_id"] for row in rows])
            return [_run_info(row, {}, events[row["run_id"]]) for row in rows]

        return self.database.read("cannot list the runs of", work)

    def _find(self, connection: Connection, run_id: str) -> str:
        found = connection.scalar(_LAST_ID) if run_id == "last" else connection.scalar(_KNOWN_ID, {"run_id": run_id})
        if found is None:
            raise _no_run(run_id, self.database.label)
        return str(found)

    def close(self) -> None:
        """Release connections."""
        self._heartbeats.close()
        self.engine.pool.dispose()  # without a new one, as engine.dispose() makes it

    # Transactions

    def _write_run(self, run_id: str, action: str, work: Callable[[Connection], T], *, repeatable: bool = True) -> T:
        """Write to a run that exists and that no later process has taken over."""

        def guarded(connection: Connection) -> T:
            _lock_run(connection, run_id, self.database.label)
            mark = self._marks.get(run_id)
            if mark is not None:
                _refuse_if_taken_over(connection, run_id, mark)
            return work(connection)

        return self._write(f"{action} run {run_id} in", guarded, repeatable=repeatable)

    def _write(self, action: str, work: Callable[[Connection], T], *, repeatable: bool = True) -> T:
        def anew(connection: Connection) -> T:
            self._new_scopes.clear()
            return work(connection)

        with self._writing:
            result = self.database.write(action, anew, repeatable=repeatable)
            # Only now: a number given in a transaction that is undone may go to another process.
            self._scopes.update(self._new_scopes)
            self._new_scopes.clear()
            return result

    def _scope(self, connection: Connection, run_id: str, pair: str) -> int:
        """Return the scope of (run, pair) inside a write transaction, making it when it is new."""
        scope = self._new_scopes.get((run_id, pair)) or self._known_scope(connection, run_id, pair)
        if scope is None:
            values = {"run_id": run_id, "pair_hash": codec.digest(pair), "pair": pair}
            made = connection.execute(insert(t.scopes).values(values))
            scope = int(made.inserted_primary_key[0])  # type: ignore[index]
        self._new_scopes[run_id, pair] = scope
        return scope

    def _known_scope(self, connection: Connection, run_id: str, pair: str) -> int | None:
        cached = self._scopes.get((run_id, pair))
        if cached is not None:
            return cached
        found = connection.scalar(_SCOPE, {"run_id": run_id, "pair_hash": codec.digest(pair)})
        return None if found is None else int(found)


def parts_of(content: bytes) -> list[bytes]:
    """Cut into parts that any server takes as one value; empty content is one empty part."""
    return [content[at : at + _PART_BYTES] for at in range(0, len(content), _PART_BYTES)] or [b""]


def _no_run(run_id: str, label: str) -> UsageError:
    """Return the error for a run id that this store does not hold."""
    if run_id == "last":
        return UsageError(f"the store {label} holds no run yet", hint="Start one: migverify tables verify.")
    return UsageError(f"the store {label} holds no run {run_id!r}", hint="`last` names the newest run.")


def new_run_id(now: float) -> str:
    """Return UTC time to the second, then 12 bits of its fraction and 12 random bits: sorts by time, unique."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now))
    return f"{stamp}-{int(now % 1 * 4096):03x}{int.from_bytes(os.urandom(2)) & 0xFFF:03x}"


def _new_mark() -> str:
    """Return text that names this process as a writer, and no other one ever."""
    return f"{socket.gethostname()[:200]} process {os.getpid()} {os.urandom(6).hex()}"


def _lock_run(connection: Connection, run_id: str, label: str) -> None:
    """Take the write turn of a run; ``UsageError`` when there is no such run."""
    # The row lock makes writers of one run take turns on a server; SQLite has one writer anyway.
    query = select(t.runs.c.run_id).where(t.runs.c.run_id == run_id).with_for_update()
    if connection.scalar(query) is None:
        raise _no_run(run_id, label)


def _refuse_if_taken_over(connection: Connection, run_id: str, mark: str) -> None:
    """Raise ``StoreError`` when a later process than the one of ``mark`` resumed the run."""
    _, writer = _last_event(connection, run_id, t.run_events.c.event != "run_finished")
    if writer != mark:
        raise StoreError(
            f"run {run_id} was resumed by another process ({writer}); this one may not write to it any more",
            hint="Let the other process finish the run.",
        )


def _last_event(connection: Connection, run_id: str, *where: ColumnElement[bool]) -> tuple[str, str]:
    """Return the kind and the writer of a run's last event; empty where there is none."""
    events = t.run_events.c
    query = select(events.event, events.writer).where(events.run_id == run_id, *where)
    row = connection.execute(query.order_by(events.number.desc()).limit(1)).one_or_none()
    return ("", "") if row is None else (str(row.event), str(row.writer))


def _add_event(
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
    connection.execute(
        insert(t.run_events).values(
            run_id=run_id,
            number=next_number(connection, t.run_events.c.number, t.run_events.c.run_id == run_id, first=0),
            event=kind,
            at=time.time() if at is None else at,
            writer=mark,
            verdict=None if verdict is None else verdict.value,
            facts=facts,
        )
    )


def _events_of(connection: Connection, run_ids: Sequence[str]) -> dict[str, list[RowMapping]]:
    """Return the events of these runs, each in their order."""
    events: dict[str, list[RowMapping]] = {run_id: [] for run_id in run_ids}
    for start in range(0, len(run_ids), IN_LIST):
        some = {"run_ids": run_ids[start : start + IN_LIST]}
        for row in connection.execute(_EVENTS_OF_RUNS, some).mappings():
            events[row["run_id"]].append(row)
    return events


def _run_info(row: RowMapping, plan: dict[str, Any], events: Sequence[RowMapping]) -> RunInfo:
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
    # A later migverify may know more kinds: its runs are listed, and belong to none of this one's commands.
    kind = next((kind for kind in StoredKind if kind.value == row["kind"]), StoredKind.UNKNOWN)
    is_resumed = any(event["event"] == "run_resumed" for event in events)
    return RunInfo(
        row["run_id"], row["command"], row["started"], finished, verdict, row["plan_hash"], plan, facts, kind,
        is_resumed,
    )  # fmt: skip


def plan_of(connection: Connection, run_id: str) -> dict[str, Any]:
    """Return the plan of a run; ``StoreError`` when it is damaged."""
    packed = b"".join(connection.scalars(_PLAN_PARTS, {"run_id": run_id}))
    try:
        text = zlib.decompress(packed).decode("ascii")
    except (zlib.error, UnicodeDecodeError) as exc:
        raise StoreError(
            f"the plan of run {run_id} in the store is damaged: {exc}",
            hint="Verify again into another store.",
        ) from exc
    return codec.decode_object(text, "a plan")

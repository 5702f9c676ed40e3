"""Which process writes a run: it renews a lease in the store while it lives, and another one that resumes looks at it.

On the same machine a process that has ended, also by ``kill -9``, is known to be gone at once. One on another machine
or in another container counts as gone after ``LIFE`` seconds without a heartbeat, by the clock of the store's database.
If it was only stopped for so long and goes on, it is refused at its next write (``RunLog``).
"""

from __future__ import annotations

import json
import os
import socket
import threading
import weakref
from dataclasses import asdict, dataclass

from sqlalchemy import Connection

from migverify.codec import parse_json
from migverify.errors import StoreError, UsageError
from migverify.store.database import Database
from migverify.store.leases import put_lease, read_lease
from migverify.store.process import boot_id, has_ended, identity

__all__ = ["LIFE", "Heartbeats", "LeaseHolder", "RunProcess", "claim", "writer_of"]

LIFE = 60.0
"""Seconds without a heartbeat after which a process of another machine counts as gone."""
_BEAT_SECONDS = 15.0
_CLOSE_SECONDS = 15.0
_BOOT = boot_id()


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """A process that writes runs."""

    host: str
    boot: str
    process: str
    pid: int

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True)
class RunProcess:
    """The process that wrote a run last, ``holder`` None where its lease cannot be read.

    ``heartbeat_seconds`` is how long ago it renewed its lease, by the clock of the store's database. ``is_alive`` says
    that it has not ended for certain: on this machine it exists, on another one its heartbeat is recent.
    """

    holder: LeaseHolder | None
    heartbeat_seconds: float
    is_alive: bool

    def __str__(self) -> str:
        return str(self.holder or "another process")


def _this_process() -> LeaseHolder:
    return LeaseHolder(socket.gethostname(), _BOOT, identity(), os.getpid())


def _key(run_id: str) -> str:
    """Return the name of a run's lease; runs of runbooks have theirs under their own ids."""
    return f"run {run_id}"


def claim(connection: Connection, run_id: str, *, finished: bool) -> None:
    """Take the lease of a run inside a write transaction that has the run's lock.

    Parameters
    ----------
    finished
        The process that wrote it has said that it ended: its lease is not looked at.

    Raises
    ------
    UsageError
        another process writes the run, or may.
    """
    row = read_lease(connection, _key(run_id), locked=True)
    own, holder = _this_process(), None if row is None else _holder_in(row.body)
    if row is not None and holder != own and not finished:
        _refuse_if_alive(run_id, holder, row.age)
    epoch = 0 if row is None else row.epoch + 1
    put_lease(connection, _key(run_id), epoch, 0, json.dumps(asdict(own)), known=row is not None)


def writer_of(database: Database, run_id: str) -> RunProcess | None:
    """Return the process that wrote a run last; None where the store has no lease of it.

    Raises
    ------
    StoreError
        the store cannot be read.
    """
    action = f"cannot read the lease of run {run_id} from"
    row = database.read(action, lambda connection: read_lease(connection, _key(run_id), locked=False))
    if row is None:
        return None
    holder = _holder_in(row.body)
    is_gone = holder is not None and has_ended(holder.host, holder.boot, holder.process, own_boot=_BOOT)
    is_alive = not is_gone and (row.age < LIFE or (holder is not None and _is_here(holder)))
    return RunProcess(holder, row.age, is_alive)


def _refuse_if_alive(run_id: str, holder: LeaseHolder | None, age: float) -> None:
    if holder is not None and has_ended(holder.host, holder.boot, holder.process, own_boot=_BOOT):
        return
    if holder is not None and _is_here(holder):
        hint = f"Let it finish, or end it (kill {holder.pid}) and resume then."
    elif age < LIFE:
        hint = f"If it is gone, resume in {LIFE - age:.0f} s: without a heartbeat for {LIFE:.0f} s the run is free."
    else:
        return
    raise UsageError(
        f"run {run_id} is written by {holder or 'another process'}: its last heartbeat was {age:.0f} s ago", hint=hint
    )


def _is_here(holder: LeaseHolder) -> bool:
    """Whether a process can be looked at from here: the same boot of the same machine, the same pid namespace."""
    space = identity().split(" ")[1:2]
    return (holder.host, holder.boot) == (socket.gethostname(), _BOOT) and space == holder.process.split(" ")[1:2] != []


def _holder_in(body: str) -> LeaseHolder | None:
    try:
        return LeaseHolder(**parse_json(body))
    except (ValueError, TypeError):
        return None  # a lease that cannot be read has no heartbeats any more: it is waited for as any other


class Heartbeats:
    """Renews the leases of the runs that this process writes, on a thread, until they end."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._runs: set[str] = set()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, run_id: str) -> None:
        """Renew the lease of a run from now on."""
        self._runs.add(run_id)
        if self._thread is None:
            # The thread must not keep a store alive that nobody closed.
            arguments = (weakref.ref(self), self._stop)
            self._thread = threading.Thread(target=_beat, args=arguments, name="heartbeats", daemon=True)
            self._thread.start()

    def end(self, run_id: str) -> None:
        """Renew the lease of a run no more."""
        self._runs.discard(run_id)

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)  # a store that does not answer is not waited for any longer

    def renew(self) -> None:
        """Renew the leases now; one that another process has taken meanwhile is left to it."""
        own = _this_process()

        def work(connection: Connection, run_id: str) -> None:
            row = read_lease(connection, _key(run_id), locked=True)
            if row is None or _holder_in(row.body) != own:
                self._runs.discard(run_id)
            else:
                put_lease(connection, _key(run_id), row.epoch, 0, row.body, known=True)

        for run_id in tuple(self._runs):
            self._database.write(
                f"cannot renew the lease of run {run_id} in", lambda connection, run_id=run_id: work(connection, run_id)  # type: ignore[misc]
            )  # fmt: skip


def _beat(reference: weakref.ref[Heartbeats], stop: threading.Event) -> None:
    while not stop.wait(_BEAT_SECONDS):
        heartbeats = reference()
        if heartbeats is None:
            return
        try:
            heartbeats.renew()
        except StoreError:
            continue  # the run's own next write says what is wrong with the store
        finally:
            del heartbeats

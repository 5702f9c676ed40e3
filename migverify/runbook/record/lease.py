"""One executor at a time: a lease with an epoch, renewed while its holder lives.

Two things keep a second executor out. The *journal* has the epoch: whoever writes under an older one is refused
there, independent of any clock. The *lease* has a beat that its holder counts up in a row of the store: whoever wants
the run has to see it unchanged for its whole life and a tolerance more, by the store's one clock, and for a shorter
time by their own monotonic clock; no clocks of two machines are compared. Its holder stops doing anything once it
could not renew it for that life, before anybody else may begin.

The process of an effect that the holder had started goes on when the holder is gone: ``process_lock`` says whether.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from dataclasses import asdict, dataclass, replace

from migverify.codec import parse_json
from migverify.errors import FencedError, StoreError, UsageError
from migverify.runbook import people
from migverify.runbook.clock import Clock, Moment
from migverify.runbook.events import EventKind
from migverify.runbook.record.chain import Draft
from migverify.runbook.record.run_record import RunRecord
from migverify.runbook.state import RunStatus, between
from migverify.store.database import Connection, Database
from migverify.store.leases import put_lease, read_lease
from migverify.store.process import has_ended, identity

__all__ = ["LIFE", "TOLERANCE", "Lease", "LeaseRecord", "LeaseWatch", "RunLease", "SeenLease", "lease_of", "take"]

LIFE = 30.0
"""Seconds a lease lives without a beat."""
TOLERANCE = 5.0
"""Seconds more that somebody else waits: clocks of two machines run at slightly different speeds."""


@dataclass(frozen=True, slots=True)
class Lease:
    """What a lease says. ``process`` names one process of one boot of one machine, for a look at it."""

    epoch: int
    executor: str
    person: str
    host: str
    boot: str
    process: str
    beat: int
    life: float


@dataclass(frozen=True, slots=True)
class SeenLease:
    """A lease as it was read. ``age``: seconds since it was renewed, by the store's clock."""

    lease: Lease | None
    age: float = 0.0


class LeaseRecord:
    """The lease of one run in its store. Every method raises ``StoreError`` when it cannot be read or written."""

    def __init__(self, database: Database, run: str) -> None:
        self._database, self._run = database, run

    def read(self) -> SeenLease:
        """Look at the lease, and ask the store's clock how old it is."""
        action = f"cannot read the lease of run {self._run} from"
        row = self._database.read(action, lambda connection: read_lease(connection, self._run, locked=False))
        return SeenLease(_lease_in(row.body), row.age) if row is not None else SeenLease(None)

    def put(self, lease: Lease) -> None:
        """Write a lease that was taken; one of a newer epoch is left alone."""

        def work(connection: Connection) -> None:
            row = read_lease(connection, self._run, locked=True)
            if row is None or row.epoch <= lease.epoch:
                self._store(connection, lease, known=row is not None)

        self._database.write(f"cannot write the lease of run {self._run} in", work)

    def renew(self, lease: Lease) -> Lease:
        """Count the beat of a lease up, and return it; raises ``FencedError`` when another executor holds it."""
        fresh = replace(lease, beat=lease.beat + 1)

        def work(connection: Connection) -> None:
            row = read_lease(connection, self._run, locked=True)
            if row is not None and row.epoch > lease.epoch:
                other = _lease_in(row.body)
                by = other.executor if other is not None else "another executor"
                raise FencedError(f"the run was taken over by {by} (epoch {row.epoch})")
            self._store(connection, fresh, known=row is not None)

        self._database.write(f"cannot renew the lease of run {self._run} in", work)
        return fresh

    def _store(self, connection: Connection, lease: Lease, *, known: bool) -> None:
        put_lease(connection, self._run, lease.epoch, lease.beat, json.dumps(asdict(lease)), known=known)


def _lease_in(body: str) -> Lease | None:
    try:
        return Lease(**parse_json(body))
    except (ValueError, TypeError):
        return None  # a lease that cannot be read beats no more: it is waited for its life as for any other


def lease_of(record: RunRecord) -> LeaseRecord:
    """Return the lease of a run."""
    return LeaseRecord(record.journal.database, record.journal.run)


class LeaseWatch:
    """Watches the lease of a run from outside until its holder is certainly gone.

    Parameters
    ----------
    clock
        The own one, by default the record's; only its monotonic side is used.
    """

    def __init__(self, record: RunRecord, clock: Clock | None = None) -> None:
        self.record, self._clock = lease_of(record), clock or record.journal.clock
        self.run = record.journal.run
        self._seen = SeenLease(None)
        self._since = self._clock.now()

    def gone(self, status: RunStatus) -> str:
        """Return why the holder is gone for certain; empty: it may live.

        Raises StoreError: the place of the lease does not answer: nobody is known to be gone.
        """
        seen = self.record.read()
        now = self._clock.now()
        if seen.lease != self._seen.lease:
            self._since = now
        self._seen = seen
        # The journal names the process: its holder may have died before it could write the lease.
        if has_ended(*status.executor_at, own_boot=now.boot):
            return f"its process on {status.executor_at[0]} has ended"
        if self.seconds_left() > 0:
            return ""
        still = seen.age if seen.lease is not None else between(self._since, now).seconds
        return f"it has not renewed its lease for {still:.0f} s"

    def seconds_left(self) -> float:
        """Return after how many seconds without a beat the holder counts as gone."""
        life = self._seen.lease.life if self._seen.lease is not None else LIFE
        still = between(self._since, self._clock.now()).seconds
        if self._seen.lease is None:
            return max(0.0, life + TOLERANCE - still)
        # The store's clock says at once for how long there was no beat. It may have been set: a look of one's own,
        # over two beats and more, has to say the same.
        return max(0.0, life + TOLERANCE - self._seen.age, life / 2 + TOLERANCE - still)


class RunLease:
    """Holds the lease of a run: renews it in a thread, and says before every effect whether it is still held.

    Parameters
    ----------
    lease
        As it was taken.
    """

    def __init__(self, record: LeaseRecord, lease: Lease, clock: Clock) -> None:
        self._record, self._clock, self._lease = record, clock, lease
        self._renewed = clock.now()
        self._lost = ""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def epoch(self) -> int:
        """Under which its holder writes."""
        return self._lease.epoch

    @property
    def executor(self) -> str:
        """The holder's name in the journal."""
        return self._lease.executor

    def begin(self) -> None:
        """Renew from now on, in a thread."""
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._stop.wait(self._lease.life / 4):
            try:
                self.renew()
            except FencedError as error:
                self._lost = error.message
                return
            except StoreError:
                continue  # a disk that does not answer: check() ends the holder when the life is over

    def renew(self) -> None:
        """Count the beat up.

        Raises FencedError: another one holds the lease; StoreError: the lease cannot be written.
        """
        begun = self._clock.now()  # before the write: its time must not be added to the life
        self._lease = self._record.renew(self._lease)
        self._renewed = begun

    def check(self) -> None:
        """Go on only while the lease is held for certain.

        Raises FencedError: it was taken over, or could not be renewed for its life.
        """
        if self._lost:
            raise FencedError(self._lost)
        age = between(self._renewed, self._clock.now()).seconds
        if age > self._lease.life:
            raise FencedError(
                f"the lease could not be renewed for {age:.0f} s: another executor may have taken the run over",
                hint="Look at the store of the run; then take the run over again.",
            )

    def end(self, record: RunRecord | None = None) -> None:
        """Renew no more; with a record, give the run free for the next executor."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if record is not None and not record.status.over:
            data = {"epoch": self.epoch + 1, "released": True}
            record.write(lambda _s, _n: [Draft(EventKind.LEASE, self.executor, data=data)], epoch=self.epoch)


def take(
    record: RunRecord, person: str, *, reason: str = "", watch: LeaseWatch | None = None, life: float = LIFE
) -> RunLease:
    """Take the lease of a run; from an executor that is gone only with a reason and another person's agreement.

    Raises UsageError: another executor holds the run and may live, the person is none of the runbook's, or nobody
    agreed.
    """
    holder = f"executor-{os.urandom(4).hex()}@{socket.gethostname()}"
    taken: list[Lease] = []

    def decide(status: RunStatus, now: Moment) -> list[Draft]:
        who, why = people.may_take_part(status, person)
        if why or status.over:
            raise UsageError(why or "the run has ended")
        data: dict[str, object] = {"epoch": status.epoch + 1, "person": who}
        if status.executor:
            data |= _takeover(status, who, reason, watch or LeaseWatch(record), now)
        here = {"host": socket.gethostname(), "boot": now.boot, "process": identity()}
        data |= here
        taken.append(Lease(status.epoch + 1, holder, who, beat=0, life=life, **here))
        return [Draft(EventKind.LEASE, holder, data=data)]

    if watch is not None and watch.run != record.journal.run:
        raise UsageError("the lease that was watched is not this run's")
    record.write(decide)
    lease_of(record).put(taken[-1])  # a database may have had it decided more than once
    return RunLease(lease_of(record), taken[-1], record.journal.clock)


def _takeover(status: RunStatus, who: str, reason: str, watch: LeaseWatch, now: Moment) -> dict[str, object]:
    gone = watch.gone(status)
    if not gone:
        raise UsageError(
            f"{status.executor} ({status.executor_by}) holds the run and may live",
            hint=f"It counts as gone after {watch.seconds_left():.0f} s more without a beat.",
        )
    if not reason.strip():
        raise UsageError(f"say why the run is taken over: {gone}")
    earlier = people.agreement(status, "takeover", "", who, "", now)
    if earlier is None:
        raise UsageError(
            f"nobody but {who} has agreed to the takeover",
            hint="Another person of the runbook says `handover --takeover` first.",
        )
    return {"reason": reason, "gone": gone, "from": status.executor, "by": [earlier.person, who]}

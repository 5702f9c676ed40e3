"""One executor at a time: a lease with an epoch, renewed while its holder lives.

Two things keep a second executor out. The *journal* has the epoch: whoever writes under an older one is refused
there, whatever any clock says. The *lease* has a beat that its holder counts up: whoever wants the run has to see
it stand still for its whole life and a tolerance more, by one own monotonic clock; no clocks of two machines are
compared. (In a database, its one clock says for how long it stood still, and a shorter look confirms it.) Its holder
stops doing anything once it could not renew it for that life, before anybody else may begin.

The process of an effect that the holder had started goes on when the holder is gone: ``process_lock`` says whether.
"""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

from migverify.errors import FencedError, StoreError, UsageError
from migverify.runbook import people
from migverify.runbook.clock import Clock, Moment
from migverify.runbook.events import EventKind
from migverify.runbook.record.journal import Draft
from migverify.runbook.record.lease_place import FolderLease, Lease, LeasePlace, Seen, read_lease
from migverify.runbook.record.run_record import RunRecord
from migverify.runbook.state import RunStatus, between

__all__ = [
    "LIFE", "TOLERANCE", "Keeper", "Lease", "Watch", "read_lease", "take", "watch_of",
]  # fmt: skip

LIFE = 30.0
"""Seconds a lease lives without a beat."""
TOLERANCE = 5.0
"""Seconds more that somebody else waits: clocks of two machines run at slightly different speeds."""


def _process(pid: int) -> str:
    """Return pid, namespace and start of a process, so that a number that was given again is another one."""
    try:
        space = str(Path(f"/proc/{pid}/ns/pid").readlink())
        facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        state, started = facts[0], facts[19]
        threads = sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())
    except (OSError, IndexError):
        return ""
    if state == "Z" and threads == 1:
        return ""  # nothing of it runs any more; its parent has not asked yet how it ended
    return f"{pid} {space} {started}"


class Watch:
    """Watches a lease from outside until its holder is certainly gone.

    Parameters
    ----------
    where
        The run's folder, or the place of its lease (``record.journal.lease()``).
    clock
        The own one; only its monotonic side is used.
    """

    def __init__(self, where: Path | LeasePlace, clock: Clock) -> None:
        self.place = FolderLease(where) if isinstance(where, Path) else where
        self._clock = clock
        self._seen = Seen(None)
        self._since = clock.now()

    def gone(self, status: RunStatus) -> str:
        """Return why the holder is gone for certain; empty: it may live.

        Raises
        ------
        StoreError
            the place of the lease does not answer: nobody is known to be gone.
        """
        seen = self.place.read()
        now = self._clock.now()
        if seen.lease != self._seen.lease:
            self._since = now
        self._seen = seen
        # The journal names the process: its holder may have died before it could write the lease.
        if _died_here(*status.executor_at, now):
            return f"its process on {status.executor_at[0]} has ended"
        if self.seconds_left() > 0:
            return ""
        still = between(self._since, now).seconds if seen.age is None else seen.age
        return f"it has not renewed its lease for {still:.0f} s"

    def seconds_left(self) -> float:
        """Return after how many seconds without a beat the holder counts as gone."""
        life = self._seen.lease.life if self._seen.lease is not None else LIFE
        still = between(self._since, self._clock.now()).seconds
        if self._seen.age is None:
            return max(0.0, life + TOLERANCE - still)
        # The place's clock says at once for how long there was no beat. It may have been set: a look of one's own,
        # over two beats and more, has to say the same.
        return max(0.0, life + TOLERANCE - self._seen.age, life / 2 + TOLERANCE - still)


def watch_of(record: RunRecord, clock: Clock | None = None) -> Watch:
    """Return a watch of a run's lease, wherever that is; the clock is the record's own by default."""
    return Watch(record.journal.lease(), clock or record.journal.clock)


def _died_here(host: str, boot: str, process: str, now: Moment) -> bool:
    if boot != now.boot or host != socket.gethostname() or not process:
        return False
    pid, space, _ = process.split(" ")
    own = _process(os.getpid())
    return own.split(" ")[1:2] == [space] and _process(int(pid)) != process


class Keeper:
    """Holds the lease of a run: renews it in a thread, and says before every effect whether it is still held.

    Parameters
    ----------
    lease
        As it was taken.
    """

    def __init__(self, place: LeasePlace, lease: Lease, clock: Clock) -> None:
        self._place, self._clock, self._lease = place, clock, lease
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

        Raises
        ------
        FencedError
            another one holds the lease.
        StoreError
            the lease cannot be written.
        """
        begun = self._clock.now()  # before the write: its time must not be added to the life
        self._lease = self._place.renew(self._lease)
        self._renewed = begun

    def check(self) -> None:
        """Go on only while the lease is held for certain.

        Raises
        ------
        FencedError
            it was taken over, or could not be renewed for its life.
        """
        if self._lost:
            raise FencedError(self._lost)
        age = between(self._renewed, self._clock.now()).seconds
        if age > self._lease.life:
            raise FencedError(
                f"the lease could not be renewed for {age:.0f} s: another executor may have taken the run over",
                hint="Look at the place of the run; then take the run over again.",
            )

    def end(self, record: RunRecord | None = None) -> None:
        """Renew no more; with a record, give the run free for the next executor."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if record is not None and not record.status.over:
            told = {"epoch": self.epoch + 1, "released": True}
            record.write(lambda _s, _n: [Draft(EventKind.LEASE, self.executor, data=told)], epoch=self.epoch)


def take(record: RunRecord, person: str, *, reason: str = "", watch: Watch | None = None, life: float = LIFE) -> Keeper:
    """Take the lease of a run; from an executor that is gone only with a reason and another person's agreement.

    Raises
    ------
    UsageError
        another executor holds the run and may live, the person is none of the runbook's, or nobody agreed.
    """
    holder = f"executor-{os.urandom(4).hex()}@{socket.gethostname()}"
    taken: list[Lease] = []

    def decide(status: RunStatus, now: Moment) -> list[Draft]:
        who, why = people.may_take_part(status, person)
        if why or status.over:
            raise UsageError(why or "the run has ended")
        told: dict[str, object] = {"epoch": status.epoch + 1, "person": who}
        if status.executor:
            told |= _takeover(status, who, reason, watch or watch_of(record), now)
        here = {"host": socket.gethostname(), "boot": now.boot, "process": _process(os.getpid())}
        told |= here
        taken.append(Lease(status.epoch + 1, holder, who, beat=0, life=life, **here))
        return [Draft(EventKind.LEASE, holder, data=told)]

    place = record.journal.lease()
    if watch is not None and type(watch.place) is not type(place):
        raise UsageError("the lease that was watched is not this run's", hint="Watch it with `watch_of`.")
    record.write(decide)
    place.put(taken[-1])  # a database may have had it decided more than once
    return Keeper(place, taken[-1], record.journal.clock)


def _takeover(status: RunStatus, who: str, reason: str, watch: Watch, now: Moment) -> dict[str, object]:
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
            f"nobody but {who} has agreed to the takeover", hint="Another person of the runbook says `takeover` first."
        )
    return {"reason": reason, "gone": gone, "from": status.executor, "by": [earlier.person, who]}

"""Values that gates need, asked of the servers themselves by SQL: the fallback where Prometheus is blind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace

from migverify.config import SqlProbes
from migverify.db.server_state import replica_status
from migverify.db.session import Session, open_session
from migverify.errors import EndpointError, ReadError
from migverify.guards.counters import (
    QUERIES,
    READS,
    WRITES,
    Reading,
    connections,
    need_process,
    rates,
    read_counters,
)
from migverify.guards.model import Answer, State
from migverify.guards.monitors_model import NAME, Told
from migverify.model import Endpoint, Flavor
from migverify.sql import server as sql
from migverify.sql import settings

LABEL = " (SQL fallback)"
_LONGEST = 5.0
"""Seconds that one probe may take."""

_APART = 1.0
"""Seconds between two readings of counters, where no earlier one is kept."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One value: its name, what is wanted, a statement that shows it, and who reads it."""

    name: str
    threshold: str
    query: str
    read: Callable[[Session], Iterator[Told]]
    why: str


@dataclass(slots=True)
class Fallback:
    """Asks every endpoint.

    Parameters
    ----------
    places
        Endpoints with their passwords, the target last.
    bounds
        What still passes.
    """

    places: Sequence[tuple[Endpoint, str | None]] = field(repr=False)
    bounds: SqlProbes = field(default_factory=SqlProbes)
    now: Callable[[], float] = time.time
    wait: Callable[[float], object] = time.sleep
    kept: dict[str, tuple[Reading, ...]] = field(default_factory=dict)

    def ask(self) -> tuple[list[Answer], list[str]]:
        """Return the answers, and which endpoints could not be asked."""
        with ThreadPoolExecutor(max(1, len(self.places))) as pool:
            found = list(pool.map(self._ask, self.places))
        return [answer for answers, _ in found for answer in answers], [words for _, words in found if words]

    def _ask(self, place: tuple[Endpoint, str | None]) -> tuple[list[Answer], str]:
        endpoint, password = place
        # A server that hangs must not hold up the alarm.
        limited = replace(endpoint, query_seconds=min(endpoint.query_seconds or _LONGEST, _LONGEST))
        answers: list[Answer] = []
        try:
            with closing(open_session(limited, password)) as session:
                ((told,),) = session.query(sql.CLOCK)
                clock = None if told is None else float(told)
                for probe in self._probes(endpoint, session.flavor):
                    answers += self._answers(endpoint, session, probe, clock)
        except (EndpointError, ReadError) as error:
            return answers, f"{endpoint.name}{LABEL}: {' '.join(error.message.split())}"
        return answers, ""

    def forget_old(self) -> None:
        """Drop readings that are too old to be a `before`: a rate over hours hides what goes on now."""
        oldest = self.now() - 600.0
        self.kept = {name: one for name, one in self.kept.items() if all(r.at >= oldest for r in one)}

    def _answers(self, endpoint: Endpoint, session: Session, probe: Probe, clock: float | None) -> Iterator[Answer]:
        try:
            told = list(probe.read(session))
        except (ReadError, EndpointError) as error:
            if not session.alive():
                raise
            told = [Told(State.INCONCLUSIVE, " ".join(error.message.split()), error.hint)]
        for one in told:
            yield Answer(
                NAME, probe.name + LABEL, endpoint.name, one.state, one.value, one.threshold or probe.threshold,
                one.query or probe.query, probe.why, one.todo, clock, self.now(), one.numbers,
            )  # fmt: skip

    def _probes(self, endpoint: Endpoint, flavor: Flavor) -> Iterator[Probe]:
        tidb, bounds = flavor is Flavor.TIDB, self.bounds
        yield Probe("connections", f"at most {bounds.max_connections_share:.0%} of those allowed",
                    sql.TIDB_CONNECTIONS if tidb else sql.CONNECTIONS, self._connections,
                    "A server that is full refuses the application.")  # fmt: skip
        yield Probe("queries", "known", sql.TIDB_COUNTERS if tidb else sql.COUNTERS,
                    lambda session: self._queries(endpoint.name, session),
                    "It shows that traffic arrives where it should.")  # fmt: skip
        yield Probe("long transactions", f"at most {bounds.max_transaction_seconds:g} s",
                    sql.TIDB_OLDEST_TRANSACTION if tidb else sql.OLDEST_TRANSACTION, self._oldest,
                    "What it wrote is in no binlog yet, and in no reading.")  # fmt: skip
        yield Probe("lock waits", f"at most {bounds.max_lock_waits}", sql.TIDB_LOCK_WAITS if tidb else sql.LOCK_WAITS,
                    self._waits, "A queue for a lock becomes a queue of the application.")  # fmt: skip
        if tidb or endpoint.name == "target":
            yield Probe("replication lag", f"at most {bounds.max_lag_seconds:g} s", settings.CHECKPOINT_TABLES,
                        self._checkpoints if tidb else self._replica, _LAG)  # fmt: skip
        else:
            yield Probe("replication lag", f"at most {bounds.max_lag_seconds:g} s",
                        sql.REPLICA[0], self._source_lag, _LAG)  # fmt: skip

    def _connections(self, session: Session) -> Iterator[Told]:
        used, most = connections(session)
        numbers = {"used": float(used), "allowed": float(most)}
        if most <= 0:
            yield Told(State.PASS, f"{used}, without a limit", numbers=numbers)
            return
        state = State.PASS if used <= most * self.bounds.max_connections_share else State.FAIL
        todo = "" if state is State.PASS else "Find who holds them (processlist), or raise max_connections."
        yield Told(state, f"{used} of {most}", todo, numbers=numbers)

    def _queries(self, name: str, session: Session) -> Iterator[Told]:
        before = self.kept.get(name)
        if before is None or self.now() - before[0].at < _APART / 2:
            before = read_counters(session, self.now)
            self.wait(_APART)
        after = read_counters(session, self.now)
        self.kept[name] = after
        found = rates(before, after)
        numbers = {f"{key}_per_second": found[key].value for key in (QUERIES, READS, WRITES) if key in found}
        words = ", ".join(
            f"{found[key].value:.1f} {key}/s" if key in found else f"{key} not told" for key in (QUERIES, READS, WRITES)
        )
        if found[QUERIES].at_least:
            yield Told(State.INCONCLUSIVE, f"at least {words}: the counters were reset meanwhile", numbers=numbers)
        else:
            yield Told(State.PASS, f"{words} over {found[QUERIES].seconds:.0f} s by {after[0].how}", numbers=numbers)

    def _oldest(self, session: Session) -> Iterator[Told]:
        tidb = session.flavor is Flavor.TIDB
        if tidb:
            need_process(session)
        ((count, age),) = session.query(sql.TIDB_OLDEST_TRANSACTION if tidb else sql.OLDEST_TRANSACTION)
        seconds, number = max(0, int(age or 0)), int(count or 0)
        numbers = {"seconds": float(seconds), "transactions": float(number)}
        if number and age is None:
            yield Told(State.INCONCLUSIVE, f"{number} open, and their age is not told", numbers=numbers)
            return
        state = State.PASS if seconds <= self.bounds.max_transaction_seconds else State.FAIL
        todo = "" if state is State.PASS else "Find its session (processlist), and end it before the step."
        yield Told(state, f"{number} open, the oldest for {seconds} s", todo, numbers=numbers)

    def _waits(self, session: Session) -> Iterator[Told]:
        tidb = session.flavor is Flavor.TIDB
        if tidb:
            need_process(session)
        waiting = int(session.query(sql.TIDB_LOCK_WAITS if tidb else sql.LOCK_WAITS)[0][0] or 0)
        state = State.PASS if waiting <= self.bounds.max_lock_waits else State.FAIL
        todo = "" if state is State.PASS else "Find who holds the lock (sys.innodb_lock_waits, DATA_LOCK_WAITS)."
        yield Told(state, f"{waiting} wait", todo, numbers={"waiting": float(waiting)})

    def _source_lag(self, session: Session) -> Iterator[Told]:
        """Judge a source: one that is no replica is behind nobody."""
        found = list(self._replica(session))
        if found:
            yield from found
        else:
            yield Told(State.PASS, "is no replica")

    def _replica(self, session: Session) -> Iterator[Told]:
        query, channels = replica_status(session)
        for channel in channels:
            if channel.seconds_behind is None:
                words = channel.last_error or "it does not replicate"
                yield Told(State.FAIL, f"unknown: {words}", "START REPLICA, after a look at the error.", query)
                continue
            yield self._lag(channel.seconds_behind, "", query)
        if session.endpoint.name == "target" and not channels:
            yield Told(State.INCONCLUSIVE, _UNTOLD, query=query)

    def _checkpoints(self, session: Session) -> Iterator[Told]:
        """Judge by DM's checkpoints. One of an idle source stays old, so age alone proves no lag."""
        tables = [(row[0] or "", row[1] or "") for row in session.query(settings.CHECKPOINT_TABLES)]
        if not tables:
            yield Told(State.INCONCLUSIVE, _UNTOLD)
        for database, table in tables:
            query = settings.checkpoint_rows(database, table)
            for source, _, _, _, age in session.query(query):
                if age is None:
                    yield Told(State.INCONCLUSIVE, f"{source}: the checkpoint's age is not told", query=query)
                elif float(age) <= self.bounds.max_lag_seconds:
                    yield self._lag(float(age), f"{source}: at most ", query)
                else:
                    words = f"{source}: the checkpoint is {age} s old: behind, or nothing was written since"
                    yield Told(State.INCONCLUSIVE, words, query=query, numbers={"seconds": float(age)})

    def _lag(self, seconds: float, words: str, query: str) -> Told:
        state = State.PASS if seconds <= self.bounds.max_lag_seconds else State.FAIL
        return Told(state, f"{words}{seconds:g} s", query=query, numbers={"seconds": seconds})


_LAG = "What is not applied yet is missing on the target."
_UNTOLD = "no checkpoint of a replicator is here: `migverify tables watch` with a marker row tells the lag"

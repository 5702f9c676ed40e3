"""Values that gates need, asked of the servers themselves by SQL: the fallback where Prometheus is blind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace

from migverify.config import SqlProbes
from migverify.db.server_state import dm_checkpoints, replica_status
from migverify.db.session import Session, open_session
from migverify.errors import EndpointError, ReadError
from migverify.guards.counters import (
    QUERIES,
    READS,
    WRITES,
    CounterReading,
    connections,
    need_process,
    rates,
    read_counters,
)
from migverify.guards.model import (
    AnswerState,
    CheckResult,
    GuardAnswer,
    GuardQuestion,
    failed,
    one_line,
    passed,
    unknown,
)
from migverify.guards.monitors_model import NAME
from migverify.model import Endpoint, Flavor
from migverify.sql import server as sql
from migverify.sql import settings

LABEL = "(SQL fallback)"
_LONGEST = 5.0
"""Seconds that one probe may take."""

_APART = 1.0
"""Seconds between two readings of counters, where no earlier one is kept."""


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
    kept: dict[str, tuple[CounterReading, ...]] = field(default_factory=dict)

    def ask(self) -> tuple[list[GuardAnswer], list[str]]:
        """Return the answers, and which endpoints could not be asked."""
        with ThreadPoolExecutor(max(1, len(self.places))) as pool:
            found = list(pool.map(self._ask, self.places))
        return [answer for answers, _ in found for answer in answers], [words for _, words in found if words]

    def _ask(self, place: tuple[Endpoint, str | None]) -> tuple[list[GuardAnswer], str]:
        endpoint, password = place
        # A server that hangs must not hold up the alarm.
        limited = replace(endpoint, query_seconds=min(endpoint.query_seconds or _LONGEST, _LONGEST))
        answers: list[GuardAnswer] = []
        try:
            with closing(open_session(limited, password)) as session:
                ((reported,),) = session.query(sql.CLOCK)
                clock = None if reported is None else float(reported)
                for probe in self._probes(endpoint, session.flavor):
                    answers += self._answers(endpoint, session, probe, clock)
        except (EndpointError, ReadError) as error:
            return answers, f"{endpoint.name} {LABEL}: {one_line(error)}"
        return answers, ""

    def forget_old(self) -> None:
        """Drop readings that are too old to be a `before`: a rate over hours hides what goes on now."""
        oldest = self.now() - 600.0
        self.kept = {name: one for name, one in self.kept.items() if all(r.at >= oldest for r in one)}

    def _answers(
        self, endpoint: Endpoint, session: Session, probe: GuardQuestion[Session], clock: float | None
    ) -> Iterator[GuardAnswer]:
        try:
            reported = list(probe.ask(session)) if probe.ask is not None else []
        except (ReadError, EndpointError) as error:
            if not session.alive():
                raise
            reported = [unknown(one_line(error), error.hint)]
        for one in reported:
            yield probe.answer(NAME, replace(one, part=LABEL), endpoint.name, server_time=clock, local_time=self.now())

    def _probes(self, endpoint: Endpoint, flavor: Flavor) -> Iterator[GuardQuestion[Session]]:
        tidb, bounds = flavor is Flavor.TIDB, self.bounds
        yield GuardQuestion(
            "connections", f"at most {bounds.max_connections_share:.0%} of those allowed",
            sql.TIDB_CONNECTIONS if tidb else sql.CONNECTIONS, "A server that is full refuses the application.",
            ask=self._connections,
        )  # fmt: skip
        yield GuardQuestion(
            "queries", "known", sql.TIDB_COUNTERS if tidb else sql.COUNTERS,
            "It shows that traffic arrives where it should.", ask=lambda session: self._queries(endpoint.name, session),
        )  # fmt: skip
        yield GuardQuestion(
            "long transactions", f"at most {bounds.max_transaction_seconds:g} s",
            sql.TIDB_OLDEST_TRANSACTION if tidb else sql.OLDEST_TRANSACTION,
            "What it wrote is in no binlog yet, and in no reading.", ask=self._oldest,
        )  # fmt: skip
        yield GuardQuestion(
            "lock waits", f"at most {bounds.max_lock_waits}", sql.TIDB_LOCK_WAITS if tidb else sql.LOCK_WAITS,
            "A queue for a lock becomes a queue of the application.", ask=self._waits,
        )  # fmt: skip
        lag = self._checkpoints if tidb else self._replica
        by_checkpoints = tidb or endpoint.name == "target"
        yield GuardQuestion(
            "replication lag", f"at most {bounds.max_lag_seconds:g} s",
            settings.CHECKPOINT_TABLES if by_checkpoints else sql.REPLICA[0],
            "What is not applied yet is missing on the target.", ask=lag,
        )  # fmt: skip

    def _connections(self, session: Session) -> Iterator[CheckResult]:
        used, most = connections(session)
        numbers = {"used": float(used), "allowed": float(most)}
        if most <= 0:
            yield passed(f"{used}, without a limit", numbers=numbers)
        else:
            todo = "Find who holds them (processlist), or raise max_connections."
            yield _at_most(used, most * self.bounds.max_connections_share, f"{used} of {most}", todo, numbers)

    def _queries(self, name: str, session: Session) -> Iterator[CheckResult]:
        before = self.kept.get(name)
        if before is None or self.now() - before[0].at < _APART / 2:
            before = read_counters(session, self.now)
            self.wait(_APART)
        after = read_counters(session, self.now)
        self.kept[name] = after
        found = rates(before, after)
        numbers = {f"{key}_per_second": found[key].value for key in (QUERIES, READS, WRITES) if key in found}
        words = ", ".join(
            f"{found[key].value:.1f} {key}/s" if key in found else f"{key} not reported"
            for key in (QUERIES, READS, WRITES)
        )
        if found[QUERIES].at_least:
            yield unknown(f"at least {words}: the counters were reset meanwhile", numbers=numbers)
        else:
            yield passed(f"{words} over {found[QUERIES].seconds:.0f} s by {after[0].how}", numbers=numbers)

    def _oldest(self, session: Session) -> Iterator[CheckResult]:
        ((count, age),) = self._of_all_users(session, sql.TIDB_OLDEST_TRANSACTION, sql.OLDEST_TRANSACTION)
        seconds, number = max(0, int(age or 0)), int(count or 0)
        numbers = {"seconds": float(seconds), "transactions": float(number)}
        if number and age is None:
            yield unknown(f"{number} open, and their age is not reported", numbers=numbers)
            return
        value = f"{number} open, the oldest for {seconds} s"
        todo = "Find its session (processlist), and end it before the step."
        yield _at_most(seconds, self.bounds.max_transaction_seconds, value, todo, numbers)

    def _waits(self, session: Session) -> Iterator[CheckResult]:
        waiting = int(self._of_all_users(session, sql.TIDB_LOCK_WAITS, sql.LOCK_WAITS)[0][0] or 0)
        todo = "Find who holds the lock (sys.innodb_lock_waits, DATA_LOCK_WAITS)."
        yield _at_most(waiting, self.bounds.max_lock_waits, f"{waiting} wait", todo, {"waiting": float(waiting)})

    @staticmethod
    def _of_all_users(session: Session, on_tidb: str, elsewhere: str) -> list[tuple[str | None, ...]]:
        """Run a statement that a TiDB answers for the user's own sessions only where the user lacks PROCESS."""
        if session.flavor is Flavor.TIDB:
            need_process(session)
        return session.query(on_tidb if session.flavor is Flavor.TIDB else elsewhere)

    def _replica(self, session: Session) -> Iterator[CheckResult]:
        """Judge a replica by its channels. A source that is none is behind nobody, a target has another replicator."""
        query, channels = replica_status(session)
        for channel in channels:
            if channel.seconds_behind is None:
                words = channel.last_error or "it does not replicate"
                yield failed(f"unknown: {words}", "START REPLICA, after a look at the error.", query=query)
            else:
                yield self._lag(channel.seconds_behind, "", query)
        if not channels:
            yield unknown(_NO_CHECKPOINT, query=query) if session.endpoint.name == "target" else passed("is no replica")

    def _checkpoints(self, session: Session) -> Iterator[CheckResult]:
        """Judge by DM's checkpoints. One of an idle source stays old, so age alone proves no lag."""
        checkpoints = list(dm_checkpoints(session))
        if not checkpoints:
            yield unknown(_NO_CHECKPOINT)
        for one in checkpoints:
            if one.age is None:
                yield unknown(f"{one.source}: the checkpoint's age is not reported", query=one.query)
            elif one.age <= self.bounds.max_lag_seconds:
                yield self._lag(one.age, f"{one.source}: at most ", one.query)
            else:
                words = f"{one.source}: the checkpoint is {one.age:.0f} s old: behind, or nothing was written since"
                yield unknown(words, query=one.query, numbers={"seconds": one.age})

    def _lag(self, seconds: float, words: str, query: str) -> CheckResult:
        numbers = {"seconds": seconds}
        return replace(
            _at_most(seconds, self.bounds.max_lag_seconds, f"{words}{seconds:g} s", "", numbers), query=query
        )


def _at_most(number: float, most: float, value: str, todo: str, numbers: dict[str, float]) -> CheckResult:
    return CheckResult(AnswerState.PASS if number <= most else AnswerState.FAIL, value, todo, numbers=numbers)


_NO_CHECKPOINT = "no checkpoint of a replicator is here: `migverify tables watch` with a marker row tells the lag"

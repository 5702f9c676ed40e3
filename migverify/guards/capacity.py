"""The guard of capacity: how much there is, how fast it grows, and whether the work fits its window."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace

from migverify.db.session import Session, open_session
from migverify.errors import EndpointError, ReadError
from migverify.guards import capacity_judge as judge
from migverify.guards.capacity_model import NAME, Facts, Have, Point, Told, Wanted
from migverify.guards.capacity_read import Logs, read_logs, read_sizes
from migverify.guards.capacity_speed import Measured
from migverify.guards.counters import Reading, connections, rates, read_counters
from migverify.guards.model import Answer, GuardResult, State
from migverify.model import Endpoint, Flavor
from migverify.sql import settings
from migverify.sql.server import CLOCK
from migverify.store.base import ResultStore

_LONGEST = 60.0
"""Seconds that one statement may take."""

Begun = Callable[[Endpoint, str | None, str], float]


@dataclass(frozen=True, slots=True)
class Place:
    """One endpoint and the tables in scope there."""

    endpoint: Endpoint
    password: str | None = field(repr=False)
    wanted: Callable[[str, str], bool]


@dataclass(slots=True)
class CapacityGuard:
    """Asks both sides how much there is and what goes on, and the store how fast earlier runs were.

    Parameters
    ----------
    sources, target
        Whom to ask; on the target the tables that sources lead to count too.
    route
        (endpoint, database, table) of a source -> (database, table) on the target.
    store
        Where earlier runs are.
    wanted
        What is to be judged: the window, the engine, the replay.
    calibrate
        Reads a bounded sample and returns its speed, where no earlier run tells one; called once. None: never.
    history
        What earlier runs of this guard found, by endpoint.
    begun
        Returns when a binlog file was begun.
    sample
        Seconds between two readings of counters.
    """

    sources: Sequence[Place]
    target: Place
    route: Callable[[str, str, str], tuple[str, str]]
    store: ResultStore
    wanted: Wanted = field(default_factory=Wanted)
    calibrate: Callable[[], Measured | None] | None = None
    history: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    begun: Begun | None = None
    sample: float = 5.0
    wait: Callable[[float], object] = time.sleep
    name: str = NAME
    _calibrated: list[Measured | None] = field(default_factory=list)

    def ask(self) -> GuardResult:
        """Read every side and judge."""
        started = time.time()
        have = [Have(place.endpoint) for place in (*self.sources, self.target)]
        leads_to: set[tuple[str, str]] = set()

        def on_target(database: str, table: str) -> bool:
            if not leads_to:  # the first table that is asked about waits for the sources to be listed
                for one in have[:-1]:
                    one.sized.wait()
                    leads_to.update(self.route(one.endpoint.name, *n) for n in (one.sizes.tables if one.sizes else ()))
            return (database, table) in leads_to or self.target.wanted(database, table)

        target = Place(self.target.endpoint, self.target.password, on_target)
        with ThreadPoolExecutor(len(have)) as pool:
            list(pool.map(self._read, (*self.sources, target), have))
        facts = Facts(have, self.route, self.store, self.wanted, self._calibration, self.history)
        answers = [answer for question in judge.QUESTIONS for answer in _answers(question, facts)]
        unasked = [f"{one.endpoint.name}: {one.unread}" for one in have if one.unread]
        told = {"window_seconds": self.wanted.window, "engine": self.wanted.engine}
        return GuardResult(NAME, tuple(answers), started, time.time() - started, tuple(unasked), told)

    def _calibration(self) -> Measured | None:
        if self.calibrate is None:
            return None
        if not self._calibrated:  # reading again at every turn of a watch would be a load of its own
            self._calibrated.append(self.calibrate())
        return self._calibrated[0]

    def _read(self, place: Place, have: Have) -> None:
        try:
            # A server that hangs is told as one that does not answer.
            limited = replace(place.endpoint, query_seconds=min(place.endpoint.query_seconds or _LONGEST, _LONGEST))
            with closing(open_session(limited, place.password)) as session:
                self._read_all(place, session, have)
        except (EndpointError, ReadError) as error:
            have.unread = error.line
        finally:
            have.sized.set()

    def _read_all(self, place: Place, session: Session, have: Have) -> None:
        """Read what there is between two readings of counters; what is refused is told with its reason."""
        have.flavor = session.flavor
        ((told,),) = session.query(CLOCK)
        have.server_time = None if told is None else float(told)
        began = time.time()
        before = have.attempt("rates", lambda: read_counters(session))
        logs = have.attempt("logs", lambda: read_logs(session, None)) if session.flavor is not Flavor.TIDB else None
        have.sizes = have.attempt("sizes", lambda: read_sizes(session, place.endpoint.name, place.wanted))
        have.sized.set()
        have.connections = have.attempt("connections", lambda: connections(session))
        have.free = have.attempt("free", lambda: _free(session)) if session.flavor is Flavor.TIDB else None
        self.wait(max(0.0, began + self.sample - time.time()))
        if before is not None:
            have.rates = have.attempt("rates", lambda: rates(before, self._again(session, have)))
        if logs is not None:
            have.logs = have.attempt("logs", lambda: self._logs(place, session))
            if have.logs is not None:
                have.log_rate = (have.logs.bytes - logs.bytes) / (time.time() - began)

    @staticmethod
    def _again(session: Session, have: Have) -> tuple[Reading, ...]:
        found = read_counters(session)
        have.counted_by = found[0].how
        return found

    def _logs(self, place: Place, session: Session) -> Logs:
        begun, endpoint = self.begun, place.endpoint
        return read_logs(session, None if begun is None else lambda log: begun(endpoint, place.password, log))


def _free(session: Session) -> int:
    """Return the free bytes of all stores together."""
    rows = session.query(settings.STORES)
    free = [judge.bytes_of(available or "") for _, _, available, state in rows if state == "Up"]
    known = [one for one in free if one is not None]
    if not known or len(known) < len(free):
        raise ReadError("the stores do not tell their free room")
    return sum(known)


def _answers(question: judge.Question, facts: Facts) -> Iterator[Answer]:
    for one in question.ask(facts):
        have = next((h for h in facts.have if h.endpoint.name == one.subject), None)
        yield _answer(question, one, None if have is None else have.server_time)


def _answer(question: judge.Question, one: Told, clock: float | None) -> Answer:
    todo = one.todo or ("" if one.state is State.PASS else question.todo)
    return Answer(
        NAME, question.name, one.subject, one.state, one.value, one.threshold or question.threshold,
        one.query or question.query, question.why, todo, clock, time.time(), one.numbers,
    )  # fmt: skip

"""The guard of settings: everything that can be known before work begins, asked of all endpoints at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from migverify.db.session import open_session
from migverify.errors import EndpointError, MigverifyError, PrivilegeError, ReadError, RetryableReadError
from migverify.guards.check_model import NAME, CheckResult, Of, Plan, Question, Route
from migverify.guards.check_questions import QUESTIONS
from migverify.guards.check_read import Cached, Connection, Server
from migverify.guards.model import Answer, GuardResult, State
from migverify.model import Endpoint

QUERY_SECONDS = 20.0
Wanted = Callable[[str, str], bool]
Open = Callable[[Endpoint, str | None], Connection]


@dataclass(frozen=True, slots=True)
class Place:
    """One endpoint to ask, and the tables in scope there. ``unmatched`` names patterns that no table matches."""

    endpoint: Endpoint
    password: str | None = field(repr=False)
    wanted: Wanted
    unmatched: Callable[[Iterable[tuple[str, str]]], list[str]] = lambda _: []


@dataclass(slots=True)
class CheckGuard:
    """Asks its questions of every endpoint; nothing is written.

    Parameters
    ----------
    sources, target, others
        Where to ask. On the target the tables count that the sources' lead to; of ``others`` only what needs no scope.
    route
        (endpoint, database, table) of a source -> (database, table) on the target.
    questions
        Which questions, in this order.
    open
        Opens a session; another one in tests.
    begun
        (endpoint, password, log) -> Unix time at which a binlog was begun, or raises; None leaves ages out.
    """

    sources: Sequence[Place]
    target: Place
    route: Route
    plan: Plan = Plan()  # noqa: RUF009 - frozen
    questions: Sequence[Question] = QUESTIONS
    others: Sequence[Place] = ()
    open: Open = open_session
    begun: Callable[[Endpoint, str | None, str], float] | None = None
    now: Callable[[], float] = time.time
    name: str = NAME

    def ask(self) -> GuardResult:
        """Ask everything once."""
        started = self.now()
        places = (*self.sources, self.target, *self.others)
        with ThreadPoolExecutor(max(1, len(places))) as pool:
            reached = list(pool.map(self._reach, places))
            servers = {s.name: s for s in reached if isinstance(s, Server)}
            try:
                self._aim(servers)
                told = list(pool.map(self._endpoint, reached))
                told.append(self._pairs(servers))
            finally:
                for server in servers.values():
                    server.session.session.close()
        answers = tuple(answer for one in told for answer in one)
        facts = {
            "questions": [question.name for question in self.questions],
            "versions": {name: server.session.version for name, server in servers.items()},
        }
        return GuardResult(NAME, answers, started, self.now() - started, facts=facts)

    def _reach(self, place: Place) -> Server | Answer:
        """Connect, and read the names and the clock: what all other questions rest on."""
        # A check must end soon, and must see the present: the snapshot of a run is judged, not used.
        seconds = min(place.endpoint.query_seconds or QUERY_SECONDS, QUERY_SECONDS)
        endpoint = replace(place.endpoint, query_seconds=seconds, snapshot=None)
        before = self.now()
        try:
            session = self.open(endpoint, place.password)
        except (EndpointError, ReadError, OSError) as error:
            return self._silent(place.endpoint, error)
        begun = self.begun
        server = Server(
            place.endpoint, Cached(session), place.wanted, self.route, self.plan, self.now() - before, self.now,
            None if begun is None else lambda log: begun(place.endpoint, place.password, log), place.unmatched,
        )  # fmt: skip
        try:
            _ = server.clock
            if server.is_source:
                _ = server.names
        except (EndpointError, ReadError) as error:
            session.close()
            return self._silent(place.endpoint, error)
        return server

    def _aim(self, servers: Mapping[str, Server]) -> None:
        """Let the target look at the tables that those of the sources lead to."""
        target = servers.get(self.target.endpoint.name)
        sources = [servers[place.endpoint.name] for place in self.sources if place.endpoint.name in servers]
        if target is None or not sources:
            return
        names = {
            self.route(source.name, *name)
            for source in sources
            for name in (*source.names.tables, *((one.database, one.name) for one in source.skipped))
        }
        folded = {(database.lower(), table.lower()) for database, table in names}
        target.wanted = lambda database, table: (database.lower(), table.lower()) in folded

    def _endpoint(self, server: Server | Answer) -> list[Answer]:
        if isinstance(server, Answer):
            return [server]
        found: list[Answer] = []
        for question in self.questions:
            judge = question.judge
            if judge is None or not _concerns(question, server, self.target.endpoint.name):
                continue
            try:
                found += self._answers(question, (server,), server.name, partial(judge, server))
            except RetryableReadError as error:
                found.append(self._silent(server.endpoint, error, question))
                break
        return found

    def _pairs(self, servers: Mapping[str, Server]) -> list[Answer]:
        target = servers.get(self.target.endpoint.name)
        found: list[Answer] = []
        for place in self.sources:
            source = servers.get(place.endpoint.name)
            if source is None or target is None:
                continue  # said once, where the endpoint did not answer
            subject = f"{source.name} -> {target.name}"
            for question in self.questions:
                if question.pair is None:
                    continue
                try:
                    found += self._answers(question, (source, target), subject, partial(question.pair, source, target))
                except RetryableReadError as error:
                    found.append(self._silent(source.endpoint, error, question, subject))
                    break
        return found

    def _answers(
        self, question: Question, servers: Sequence[Server], subject: str, ask: Callable[[], Iterator[CheckResult]]
    ) -> list[Answer]:
        """Put one question. A refusal is INCONCLUSIVE; answers that came before it stay.

        Raises
        ------
        RetryableReadError
            the connection to one of ``servers`` is gone.
        """
        found: list[Answer] = []
        try:
            for told in ask():
                found.append(self._answer(question, servers[0], subject, told))  # noqa: PERF401 - what came first stays
        except (ReadError, PrivilegeError) as error:
            # A time limit or a lock concerns this question; a lost connection all that follow.
            if isinstance(error, RetryableReadError) and not all(s.session.session.alive() for s in servers):
                raise
            todo = error.hint or question.todo
            found.append(
                self._answer(question, servers[0], subject, CheckResult(State.INCONCLUSIVE, _words(error), todo))
            )
        return found

    def _answer(self, question: Question, server: Server, subject: str, told: CheckResult) -> Answer:
        moment = self.now()
        todo = "" if told.state is State.PASS else told.todo or question.todo
        query = server.shown(told.query or question.query)
        return Answer(
            NAME, f"{question.name} {told.part}".rstrip(), told.subject or subject, told.state, told.value,
            told.threshold or question.threshold, query, told.why or question.why, todo,
            moment + server.clock.offset, moment, told.numbers,
        )  # fmt: skip

    def _silent(
        self, endpoint: Endpoint, error: Exception, question: Question | None = None, subject: str = ""
    ) -> Answer:
        """Return the one answer of an endpoint that does not answer, or not any more."""
        first = next(one for one in QUESTIONS if one.name == "reachable")
        left = "all its questions are open" if question is None else f"open are {question.name} and what follows it"
        hint = error.hint if isinstance(error, MigverifyError) else ""
        return Answer(
            NAME, first.name, subject or endpoint.name, State.INCONCLUSIVE, f"{_words(error)}; {left}",
            first.threshold, first.query, first.why, hint or first.todo, None, self.now(),
        )  # fmt: skip


def _concerns(question: Question, server: Server, target: str) -> bool:
    if server.name != target and not server.is_source:
        return question.others
    if question.of is Of.SOURCE:
        return server.is_source
    return question.of is not Of.TARGET or server.name == target


def _words(error: Exception) -> str:
    """Return a refusal in one line, without the statement below it."""
    return str(getattr(error, "message", error)).split("\n")[0]

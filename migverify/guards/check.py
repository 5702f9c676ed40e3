"""The guard of settings: everything that can be known before work begins, asked of all endpoints at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from migverify.db.session import open_session
from migverify.errors import EndpointError, MigverifyError, PrivilegeError, ReadError, RetryableReadError
from migverify.guards.check_questions import QUESTIONS, CheckQuestion, Of
from migverify.guards.check_read import Cached, CheckConnection, CheckedServer, CheckPlan
from migverify.guards.model import AnswerState, CheckResult, GuardAnswer, GuardResult
from migverify.guards.scope import Scope
from migverify.model import Endpoint

NAME = "check"
QUERY_SECONDS = 20.0
Open = Callable[[Endpoint, str | None], CheckConnection]


@dataclass(slots=True)
class CheckGuard:
    """Asks its questions of every endpoint; nothing is written.

    Parameters
    ----------
    scope
        Whom to ask. On the target the tables count that the sources' lead to; of ``others`` only what needs no scope.
    questions
        Which questions, in this order.
    open
        Opens a session; another one in tests.
    begun
        (endpoint, password, log) -> Unix time at which a binlog was begun, or raises; None leaves ages out.
    """

    scope: Scope
    plan: CheckPlan = CheckPlan()  # noqa: RUF009 - frozen
    questions: Sequence[CheckQuestion] = QUESTIONS
    open: Open = open_session
    begun: Callable[[Endpoint, str | None, str], float] | None = None
    now: Callable[[], float] = time.time
    name: str = NAME

    def ask(self) -> GuardResult:
        """Ask everything once."""
        started = self.now()
        endpoints = (*self.scope.endpoints, *self.scope.others)
        with ThreadPoolExecutor(len(endpoints)) as pool:
            reached = list(pool.map(self._reach, endpoints))
            servers = {s.name: s for s in reached if isinstance(s, CheckedServer)}
            try:
                self._aim(servers)
                reported = list(pool.map(self._endpoint, reached))
                reported.append(self._pairs(servers))
            finally:
                for server in servers.values():
                    server.session.session.close()
        answers = tuple(answer for one in reported for answer in one)
        facts = {
            "questions": [question.name for question in self.questions],
            "versions": {name: server.session.version for name, server in servers.items()},
        }
        return GuardResult(NAME, answers, started, self.now() - started, facts=facts)

    def _reach(self, endpoint: Endpoint) -> CheckedServer | GuardAnswer:
        """Connect, and read the names and the clock: what all other questions rest on."""
        # A check must end soon, and must see the present: the snapshot of a run is judged, not used.
        seconds = min(endpoint.query_seconds or QUERY_SECONDS, QUERY_SECONDS)
        password, before, begun = self.scope.password(endpoint), self.now(), self.begun
        try:
            session = self.open(replace(endpoint, query_seconds=seconds, snapshot=None), password)
        except (EndpointError, ReadError, OSError) as error:
            return self._silent(endpoint, error)
        server = CheckedServer(
            endpoint, Cached(session), self.scope.wanted, self.scope.route, self.plan, self.now() - before, self.now,
            None if begun is None else lambda log: begun(endpoint, password, log), self.scope.unmatched,
        )  # fmt: skip
        try:
            _ = server.clock
            if server.is_source:
                _ = server.names
        except (EndpointError, ReadError) as error:
            session.close()
            return self._silent(endpoint, error)
        return server

    @property
    def _target(self) -> str:
        return self.scope.config.target.name

    def _aim(self, servers: Mapping[str, CheckedServer]) -> None:
        """Let the target look at the tables that those of the sources lead to."""
        target = servers.get(self._target)
        sources = [server for server in servers.values() if server.is_source]
        if target is None or not sources:
            return
        names = {
            self.scope.route(source.name, *name)
            for source in sources
            for name in (*source.names.tables, *((one.database, one.name) for one in source.skipped))
        }
        folded = {(database.lower(), table.lower()) for database, table in names}
        target.wanted = lambda database, table: (database.lower(), table.lower()) in folded

    def _endpoint(self, server: CheckedServer | GuardAnswer) -> list[GuardAnswer]:
        if isinstance(server, GuardAnswer):
            return [server]
        found: list[GuardAnswer] = []
        for question in self.questions:
            judge = question.ask
            if judge is None or not _concerns(question, server, self._target):
                continue
            try:
                found += self._answers(question, (server,), server.name, partial(judge, server))
            except RetryableReadError as error:
                found.append(self._silent(server.endpoint, error, question))
                break
        return found

    def _pairs(self, servers: Mapping[str, CheckedServer]) -> list[GuardAnswer]:
        target = servers.get(self._target)
        found: list[GuardAnswer] = []
        if target is None:  # reported once, where the endpoint did not answer
            return found
        for source in (server for server in servers.values() if server.is_source):
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
        self,
        question: CheckQuestion,
        servers: Sequence[CheckedServer],
        subject: str,
        ask: Callable[[], Iterable[CheckResult]],
    ) -> list[GuardAnswer]:
        """Put one question. A refusal is INCONCLUSIVE; answers that came before it stay.

        Raises
        ------
        RetryableReadError
            the connection to one of ``servers`` is gone.
        """
        found: list[GuardAnswer] = []
        try:
            for reported in ask():
                found.append(self._answer(question, servers[0], subject, reported))  # noqa: PERF401 - what came first stays
        except (ReadError, PrivilegeError) as error:
            # A time limit or a lock concerns this question; a lost connection all that follow.
            if isinstance(error, RetryableReadError) and not all(s.session.session.alive() for s in servers):
                raise
            todo = error.hint or question.todo
            found.append(
                self._answer(question, servers[0], subject, CheckResult(AnswerState.INCONCLUSIVE, _words(error), todo))
            )
        return found

    def _answer(
        self, question: CheckQuestion, server: CheckedServer, subject: str, reported: CheckResult
    ) -> GuardAnswer:
        moment = self.now()
        reported = replace(reported, query=server.shown(reported.query or question.query))
        return question.answer(
            NAME, reported, subject, server_time=moment + server.clock.offset, local_time=moment
        )  # fmt: skip

    def _silent(
        self, endpoint: Endpoint, error: Exception, question: CheckQuestion | None = None, subject: str = ""
    ) -> GuardAnswer:
        """Return the one answer of an endpoint that does not answer, or not any more."""
        first = next(one for one in QUESTIONS if one.name == "reachable")
        left = "all its questions are open" if question is None else f"open are {question.name} and what follows it"
        hint = error.hint if isinstance(error, MigverifyError) else ""
        result = CheckResult(AnswerState.INCONCLUSIVE, f"{_words(error)}; {left}", hint)
        return first.answer(NAME, result, subject or endpoint.name, server_time=None, local_time=self.now())


def _concerns(question: CheckQuestion, server: CheckedServer, target: str) -> bool:
    if server.name != target and not server.is_source:
        return question.others
    if question.of is Of.SOURCE:
        return server.is_source
    return question.of is not Of.TARGET or server.name == target


def _words(error: Exception) -> str:
    """Return a refusal in one line, without the statement below it."""
    return str(getattr(error, "message", error)).split("\n")[0]

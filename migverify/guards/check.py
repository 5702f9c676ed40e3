"""The guard of settings: everything that can be known before work begins, asked of all endpoints at once.

Of a source whose binlog is going to be read, ``preflight`` asks the conditions of that alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from migverify.db.session import open_session
from migverify.errors import EndpointError, MigverifyError, ReadError, RetryableReadError
from migverify.guards.check_binlog import BLIND_SPOTS
from migverify.guards.check_read import Cached, CheckConnection, CheckedServer, CheckPlan, Platform
from migverify.guards.check_rules import CheckQuestion, Of, judged
from migverify.guards.check_table import PREFLIGHT, QUESTIONS
from migverify.guards.model import AnswerState, GuardAnswer, GuardResult, first_line, unknown
from migverify.guards.scope import Scope
from migverify.model import Endpoint, Flavor, Verdict

NAME = "check"
PREFLIGHT_NAME = "changes"
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
        target.wanted = self.scope.led_to(
            (source.name, *name) for source in sources
            for name in (*source.names.tables, *((view.database, view.name) for view in source.skipped))
        )  # fmt: skip

    def _endpoint(self, server: CheckedServer | GuardAnswer) -> list[GuardAnswer]:
        """Put every question that concerns an endpoint."""
        if isinstance(server, GuardAnswer):
            return [server]
        concerning = [q for q in self.questions if _concerns(q, server, self._target)]
        return self._answers(concerning, server.name, server)

    def _pairs(self, servers: Mapping[str, CheckedServer]) -> list[GuardAnswer]:
        """Put every question about each source and the target."""
        target = servers.get(self._target)
        if target is None:  # reported once, where the endpoint did not answer
            return []
        sources = [server for server in servers.values() if server.is_source]
        return [
            answer for source in sources
            for answer in self._answers(self.questions, f"{source.name} -> {target.name}", source, target)
        ]  # fmt: skip

    def _answers(
        self, questions: Iterable[CheckQuestion], subject: str, *servers: CheckedServer
    ) -> list[GuardAnswer]:  # fmt: skip
        """Put questions until the connection to a server is lost: that leaves the rest open, and is one answer."""
        found: list[GuardAnswer] = []
        for question in questions:
            try:
                for result in judged(question, *servers):
                    moment = self.now()
                    theirs = moment + servers[0].clock.offset
                    found.append(question.answer(NAME, result, subject, server_time=theirs, local_time=moment))
            except RetryableReadError as error:
                found.append(self._silent(servers[0].endpoint, error, question, subject))
                break
        return found

    def _silent(
        self, endpoint: Endpoint, error: Exception, question: CheckQuestion | None = None, subject: str = ""
    ) -> GuardAnswer:
        """Return the one answer of an endpoint that does not answer, or not any more."""
        first = next(one for one in QUESTIONS if one.name == "reachable")
        left = "all its questions are open" if question is None else f"open are {question.name} and what follows it"
        hint = error.hint if isinstance(error, MigverifyError) else ""
        result = unknown(f"{first_line(error)}; {left}", hint)
        return first.answer(NAME, result, subject or endpoint.name, server_time=None, local_time=self.now())


def _concerns(question: CheckQuestion, server: CheckedServer, target: str) -> bool:
    if server.name != target and not server.is_source:
        return question.others
    if question.of is Of.SOURCE:
        return server.is_source
    return question.of is not Of.TARGET or server.name == target


@dataclass(frozen=True, slots=True)
class BinlogCheck:
    """All answers of one source. ``endpoint`` is its name in the configuration."""

    endpoint: str
    version: str
    platform: Platform
    answers: tuple[GuardAnswer, ...]
    blind_spots: tuple[str, ...] = BLIND_SPOTS

    @property
    def verdict(self) -> Verdict:
        """MATCH when nothing failed and everything was reported, else INCONCLUSIVE: no data was compared."""
        bad = {AnswerState.FAIL, AnswerState.INCONCLUSIVE}
        fit = bool(self.answers) and not any(answer.state in bad for answer in self.answers)
        return Verdict.MATCH if fit else Verdict.INCONCLUSIVE

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the verdict is not MATCH."""
        if not self.answers:
            return ("nothing was checked",)
        words = {AnswerState.FAIL: "", AnswerState.INCONCLUSIVE: " is not known"}
        return tuple(f"{a.name}{words[a.state]}: {a.value}" for a in self.answers if a.state in words)


def preflight(server: CheckedServer) -> BinlogCheck:
    """Ask a source everything that decides whether its binlog can be read exactly.

    Parameters
    ----------
    server
        The source, in a session of the reading user, so that missing grants show.

    Raises
    ------
    RetryableReadError
        the connection was lost while asking.
    """
    answers = tuple(
        PREFLIGHT.answer(PREFLIGHT_NAME, result, server.name, server_time=None, local_time=0.0)
        for result in judged(PREFLIGHT, server)
    )
    tidb = server.flavor is Flavor.TIDB
    platform, blind_spots = (Platform.OWN, ()) if tidb else (server.platform, BLIND_SPOTS)
    return BinlogCheck(server.name, server.session.version, platform, answers, blind_spots)

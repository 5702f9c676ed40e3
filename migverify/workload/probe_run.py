"""Runs probes on a pair: sessions of their own, time limits, and a scratch database that is always given back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

from migverify.errors import EndpointError, MigverifyError, ReadError
from migverify.model import Endpoint, Flavor, Side
from migverify.workload.catalogue.expected import Expected, Outcome
from migverify.workload.catalogue.model import Entry, Needs, Probe, ProbeState
from migverify.workload.catalogue.versions import Server
from migverify.workload.probe import ProbeResult, SideAnswer, expectations, judge
from migverify.workload.probe_scratch import DEFAULT_DATABASE, Scratch
from migverify.workload.probe_session import Pending, ProbeSession

STEP_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """How probes run.

    ``database`` is the scratch database's name. ``source_clone``: the source is proved to be a rehearsal clone, so it
    may be written to. ``accounts``: probes may create users. ``seconds`` is the time limit of one statement.
    """

    database: str = DEFAULT_DATABASE
    source_clone: bool = False
    accounts: bool = False
    seconds: float = STEP_SECONDS


@dataclass(frozen=True, slots=True)
class ProbeSide:
    """One end of the pair: how to reach it."""

    side: Side
    endpoint: Endpoint
    password: str | None


class Prober:
    """Both sides, opened: a control session each, the scratch databases where they may be made.

    Use it as a context manager: leaving it drops what was made, whatever happened inside.
    """

    def __init__(self, source: ProbeSide, target: ProbeSide, options: ProbeOptions | None = None) -> None:
        self.options = options or ProbeOptions()
        self._ends = (source, target)
        self._stack = ExitStack()
        self._scratch: dict[Side, Scratch] = {}
        self.servers: dict[Side, Server] = {}

    def __enter__(self) -> Prober:
        try:
            for end in self._ends:
                control = ProbeSession(end.endpoint, end.password)
                self._stack.callback(control.close)
                self.servers[end.side] = control.server
                scratch = Scratch(control, self.options.database, end.side.value)
                self._scratch[end.side] = scratch
                self._stack.callback(scratch.drop)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, entries: Sequence[Entry], told: Callable[[ProbeResult], None] | None = None) -> list[ProbeResult]:
        """Run the probes of entries, in their order; each result is told when it is there."""
        results = []
        for entry in entries:
            result = self.run_one(entry)
            results.append(result)
            if told is not None:
                told(result)
        return results

    def run_one(self, entry: Entry) -> ProbeResult:
        """Run one entry's probe on both sides."""
        begun = time.monotonic()
        if entry.probe is None:
            none = SideAnswer(reason=f"no probe: {entry.no_probe}")
            return ProbeResult(entry, ProbeState.NOT_RUN, none.reason, none, none)
        answers = {end.side: self._side(end, entry.probe) for end in self._ends}
        pair = [(self.servers[side], answers[side]) for side in (Side.SOURCE, Side.TARGET)]
        state, reason = judge(entry.probe, pair[0], pair[1])
        return ProbeResult(
            entry, state, reason, answers[Side.SOURCE], answers[Side.TARGET], time.monotonic() - begun
        )  # fmt: skip

    def _side(self, end: ProbeSide, probe: Probe) -> SideAnswer:
        writes = probe.needs is not Needs.NONE
        if probe.needs is Needs.ACCOUNT and not self.options.accounts:
            return SideAnswer(reason="it creates a user, which --accounts allows")
        if end.side is Side.SOURCE and writes and not self.options.source_clone:
            return _taken(probe, self.servers[end.side])
        try:
            with self._sessions(end, probe) as sessions:
                return SideAnswer(self._steps(end, probe, sessions))
        except EndpointError as error:
            return SideAnswer(reason=error.message)
        except ReadError as error:
            return SideAnswer(reason=f"{end.side.value}: {error.message}")

    @contextmanager
    def _sessions(self, end: ProbeSide, probe: Probe) -> Iterator[dict[int, ProbeSession]]:
        scratch = self._scratch[end.side]
        writes = probe.needs is not Needs.NONE
        if writes:
            scratch.make_once()
        opened: dict[int, ProbeSession] = {}
        try:
            for number in sorted({1, *(step.session for step in probe.steps)}):
                opened[number] = ProbeSession(end.endpoint, end.password)
                self._prepare(end, opened[number], writes=writes)
            for sql in probe.setup:
                filled = sql.replace("{database}", self.options.database)
                _must(opened[1].run(filled, self.options.seconds), end.side)
            yield opened
        finally:
            self._give_back(probe, scratch, opened, writes=writes)

    def _prepare(self, end: ProbeSide, session: ProbeSession, *, writes: bool) -> None:
        if writes:
            _must(session.run(f"USE `{self.options.database}`", self.options.seconds), end.side)
        elif end.side is Side.SOURCE and session.server.flavor is not Flavor.TIDB:
            # a probe that needs nothing writes nothing; the server sees to it
            _must(session.run("SET SESSION TRANSACTION READ ONLY", self.options.seconds), end.side)

    def _give_back(
        self, probe: Probe, scratch: Scratch, opened: dict[int, ProbeSession], *, writes: bool
    ) -> None:  # fmt: skip
        for session in opened.values():
            with suppress(MigverifyError):  # the connection is cut next, which ends it as well
                scratch.kill(session)
            session.close()
        if not writes:
            return
        try:
            for sql in probe.teardown:
                scratch.attempt(sql)
        finally:
            scratch.clean()

    def _steps(self, end: ProbeSide, probe: Probe, sessions: dict[int, ProbeSession]) -> tuple[Outcome, ...]:
        waiting: list[tuple[int, Pending]] = []
        found: dict[int, Outcome] = {}
        for number, step in enumerate(probe.steps):
            if step.only is not None and (step.only is Flavor.TIDB) != (self.servers[end.side].flavor is Flavor.TIDB):
                continue
            session = sessions[step.session]
            sql = step.sql.replace("{database}", self.options.database)
            if step.waits is not None:
                pending = session.send(sql, warnings=step.asked)
                outcome = pending.wait(step.waits)
                if outcome is None:
                    waiting.append((number, pending))
                    continue
            else:
                outcome = session.run(sql, self.options.seconds, warnings=step.asked)
            if not step.asked:
                _must(outcome, end.side)
            found[number] = outcome
        for number, pending in waiting:
            ended = pending.wait(self.options.seconds)
            late = Outcome(pending.sql, failed=f"no answer within {self.options.seconds:g} s")
            found[number] = replace(ended or late, waited=True)
            if not probe.steps[number].asked:
                _must(found[number], end.side)
        return tuple(found[number] for number, step in enumerate(probe.steps) if step.asked)


def _taken(probe: Probe, server: Server) -> SideAnswer:
    """Stand the catalogue's expectation in the place of a source that may not be written to."""
    expected = expectations(probe, server)
    if expected is None:
        return SideAnswer(reason=f"the catalogue does not say what {server.text} answers")
    outcomes = tuple(_as_told(step.sql, one) for step, one in zip(probe.asked, expected.outcomes, strict=True))
    return SideAnswer(outcomes, taken=True)


def _as_told(sql: str, one: Expected) -> Outcome:
    if one.errno != (0,):
        return Outcome(sql, errno=one.errno[0], waited=one.waits, told=one.text())
    return Outcome(sql, rows=one.rows or (), affected=one.affected or 0, waited=one.waits, told=one.text())


def _must(outcome: Outcome, side: Side) -> None:
    if outcome.failed or outcome.errno:
        raise ReadError(f"{side.value}: {outcome.text()}\n  SQL: {outcome.sql}")

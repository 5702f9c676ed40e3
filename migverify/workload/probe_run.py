"""Runs probes on a pair: sessions of their own, time limits, and a scratch database that is always given back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

from migverify.errors import EndpointError, MigverifyError, ReadError, UsageError
from migverify.model import Endpoint, Flavor, Side
from migverify.sql.gates import kill_sql
from migverify.workload.catalogue.expected import Expected, ProbeOutcome
from migverify.workload.catalogue.model import CatalogueEntry, Needs, Probe, ProbeState
from migverify.workload.catalogue.versions import KnownServer
from migverify.workload.probe import ProbeResult, SideAnswer, expectations, judge
from migverify.workload.probe_session import Pending, ProbeSession

# The database that probes create their tables in: made, emptied after each probe, dropped; never somebody else's.

MARKER = "migverify_probe_marker"
DEFAULT_DATABASE = "migverify_probe"
_SYSTEM = {"mysql", "sys", "information_schema", "performance_schema", "metrics_schema"}
_SECONDS = 60.0


class Scratch:
    """The scratch database of one side, through a control session of its own.

    A database of that name that holds tables and not the marker is somebody's: it is refused and left as it is.
    What an earlier run left behind (it has the marker, or is empty) is dropped first.
    """

    def __init__(self, control: ProbeSession, name: str, side: str) -> None:
        self.name = name
        self._control = control
        self._side = side
        self._made = False

    def make_once(self) -> None:
        """Make it, unless this run has made it already."""
        if not self._made:
            self.make()

    def make(self) -> None:
        """Drop what an earlier run left, and create the database with its marker.

        Raises
        ------
        UsageError
            the name is a system database's, the database is not a probe's, or another run uses it.
        ReadError
            the server refuses to create it.
        """
        if self.name.lower() in _SYSTEM or not self.name.replace("_", "").isalnum():
            raise UsageError(f"{self.name!r} cannot be the scratch database", hint="Use letters, digits and _.")
        # two runs that share a scratch database would drop each other's tables
        if self._must(f"SELECT GET_LOCK('migverify probe {self.name}', 0)").rows == (("0",),):
            raise UsageError(
                f"{self._side}: another run of probes uses the database {self.name}",
                hint="Wait for it, or name another one with --database.",
            )
        there = {name for name, _ in self._objects()}
        if there and MARKER not in there:
            raise UsageError(
                f"{self._side}: the database {self.name} is there already, and its tables are not of probes",
                hint="Name another one with --database.",
            )
        self._made = True  # from here on it is ours, also when the next statement is the last
        self._must(f"DROP DATABASE IF EXISTS `{self.name}`")
        self._must(f"CREATE DATABASE `{self.name}`")
        self._must(f"CREATE TABLE `{self.name}`.`{MARKER}` (made DATETIME PRIMARY KEY)")

    def clean(self) -> None:
        """Drop everything in it but the marker."""
        self._must("SET SESSION foreign_key_checks = 0")
        for name, kind in self._objects():
            if name != MARKER:
                self._must(f"DROP {kind} IF EXISTS `{self.name}`.`{name.replace('`', '``')}`")

    def attempt(self, sql: str) -> None:
        """Run a statement of a teardown: what it removes may never have been made, so a refusal is no failure."""
        outcome = self._control.run(sql.replace("{database}", self.name), _SECONDS)
        if outcome.failed:
            raise ReadError(f"{self._side}: {outcome.failed}\n  SQL: {sql}")

    def drop(self) -> None:
        """Drop it, if this run made it."""
        if self._made:
            self._must(f"DROP DATABASE IF EXISTS `{self.name}`")
            self._made = False

    def kill(self, session: ProbeSession) -> None:
        """Stop what a session's server thread still does; it may have ended meanwhile."""
        outcome = self._control.run(kill_sql(self._control.server.flavor, session.thread_id), _SECONDS)
        if outcome.failed:
            raise ReadError(f"{self._side}: {outcome.failed}\n  SQL: {outcome.sql}")

    def _objects(self) -> list[tuple[str, str]]:
        found = []
        for name, kind in self._rows(
            f"SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = '{self.name}'"  # noqa: S608
        ):
            word = "VIEW" if "VIEW" in kind else "SEQUENCE" if "SEQUENCE" in kind else "TABLE"
            found.append((name, word))
        # views and foreign keys lean on tables, not the other way round
        return sorted(found, key=lambda one: one[1] != "VIEW")

    def _rows(self, sql: str) -> list[tuple[str, ...]]:
        outcome = self._must(sql)
        return [tuple("" if cell is None else cell for cell in row) for row in outcome.rows]

    def _must(self, sql: str) -> ProbeOutcome:
        outcome = self._control.run(sql, _SECONDS)
        if outcome.failed or outcome.errno:
            raise ReadError(f"{self._side}: {outcome.text()}\n  SQL: {sql}")
        return outcome


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

    Use it as a context manager: leaving it drops what was made, also after an error.
    """

    def __init__(self, source: ProbeSide, target: ProbeSide, options: ProbeOptions | None = None) -> None:
        self.options = options or ProbeOptions()
        self._ends = (source, target)
        self._stack = ExitStack()
        self._scratch: dict[Side, Scratch] = {}
        self.servers: dict[Side, KnownServer] = {}

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

    def run(
        self, entries: Sequence[CatalogueEntry], on_result: Callable[[ProbeResult], None] | None = None
    ) -> list[ProbeResult]:
        """Run the probes of entries, in their order; ``on_result`` gets each as it comes."""
        results = []
        for entry in entries:
            result = self.run_one(entry)
            results.append(result)
            if on_result is not None:
                on_result(result)
        return results

    def run_one(self, entry: CatalogueEntry) -> ProbeResult:
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

    def _steps(self, end: ProbeSide, probe: Probe, sessions: dict[int, ProbeSession]) -> tuple[ProbeOutcome, ...]:
        waiting: list[tuple[int, Pending]] = []
        found: dict[int, ProbeOutcome] = {}
        for number, step in enumerate(probe.steps):
            if step.only is not None and (step.only == "tidb") != (self.servers[end.side].flavor is Flavor.TIDB):
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
            late = ProbeOutcome(pending.sql, failed=f"no answer within {self.options.seconds:g} s")
            found[number] = replace(ended or late, waited=True)
            if not probe.steps[number].asked:
                _must(found[number], end.side)
        return tuple(found[number] for number, step in enumerate(probe.steps) if step.asked)


def _taken(probe: Probe, server: KnownServer) -> SideAnswer:
    """Stand the catalogue's expectation in the place of a source that may not be written to."""
    expected = expectations(probe, server)
    if expected is None:
        return SideAnswer(reason=f"the catalogue does not say what {server.text} answers")
    outcomes = tuple(_as_expected(step.sql, one) for step, one in zip(probe.asked, expected.outcomes, strict=True))
    return SideAnswer(outcomes, taken=True)


def _as_expected(sql: str, one: Expected) -> ProbeOutcome:
    if one.errno != (0,):
        return ProbeOutcome(sql, errno=one.errno[0], waited=one.waits, expected=one.text())
    return ProbeOutcome(sql, rows=one.rows or (), affected=one.affected or 0, waited=one.waits, expected=one.text())


def _must(outcome: ProbeOutcome, side: Side) -> None:
    if outcome.failed or outcome.errno:
        raise ReadError(f"{side.value}: {outcome.text()}\n  SQL: {outcome.sql}")

"""Runs probes on a pair: sessions of their own, time limits, and a scratch database that is always given back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

from migverify.db.session import Session, open_session
from migverify.errors import EndpointError, MigverifyError, ReadError, RetryableReadError, UsageError
from migverify.model import Endpoint, Flavor, Side
from migverify.sql.gates import kill_sql
from migverify.workload.catalogue.expected import Expected, ProbeOutcome
from migverify.workload.catalogue.model import CatalogueEntry, Needs, Probe, ProbeState
from migverify.workload.catalogue.versions import KnownServer, server
from migverify.workload.probe import ProbeResult, SideAnswer, expectations, judge
from migverify.workload.replay.model import Answer, AnswerColumn, Cell
from migverify.workload.replay.wire import open_wire
from migverify.workload.scratch import PROBES, ScratchDatabase

MARKER = PROBES.marker
DEFAULT_DATABASE = "migverify_probe"
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


class ProbeSession:
    """One connection of a plain client, one statement at a time.

    Nothing is pinned: a probe asks what an application sees under the server's own SQL mode and time zone.

    Raises
    ------
    EndpointError
        the server cannot be reached, or refuses the user.
    """

    def __init__(self, end: ProbeSide) -> None:
        self._wire = open_wire(end.endpoint, end.password, end.side)
        self.thread_id = self._wire.thread_id
        self.sql = ""
        self._asks_warnings = False

    def send(self, sql: str, *, warnings: bool = False) -> None:
        """Send a statement; ``wait`` gives its outcome, with the codes of its warnings where they are wanted."""
        self.sql, self._asks_warnings = sql, warnings
        self._wire.ask(sql.encode())

    def wait(self, seconds: float) -> ProbeOutcome | None:
        """Return the outcome of the statement that was sent, None where it has not ended in time."""
        answer = self._wire.wait(seconds)
        if answer is None:
            return None
        outcome = _outcome(self.sql, answer)
        if self._asks_warnings and answer.warnings and not outcome.failed:
            self._wire.ask(b"SHOW WARNINGS")
            shown = self._wire.wait(seconds)
            if shown is None or shown.rows is None or not shown.ok:
                return self.cut(seconds)
            outcome = replace(outcome, warnings=tuple(int(row[1] or 0) for row in shown.rows))
        return outcome

    def run(self, sql: str, seconds: float) -> ProbeOutcome:
        """Run a statement; over its time the connection is cut, and the outcome says so."""
        self.send(sql)
        return self.wait(seconds) or self.cut(seconds)

    def cut(self, seconds: float) -> ProbeOutcome:
        """Cut the connection under a statement that did not end; the server may go on, see ``KILL``."""
        self.close()
        return ProbeOutcome(self.sql, failed=f"no answer within {seconds:g} s")

    def close(self) -> None:
        """End the connection; open transactions are rolled back by the server."""
        self._wire.close()


# what the protocol calls its types; the rest keeps its number
_TYPES = {
    0: "decimal", 1: "tinyint", 2: "smallint", 3: "int", 4: "float", 5: "double", 6: "null", 7: "timestamp",
    8: "bigint", 9: "mediumint", 10: "date", 11: "time", 12: "datetime", 13: "year", 15: "varchar", 16: "bit",
    245: "json", 246: "newdecimal", 247: "enum", 248: "set", 249: "tinyblob", 250: "mediumblob", 251: "longblob",
    252: "blob", 253: "var_string", 254: "string", 255: "geometry",
}  # fmt: skip
_FLAGS = ((1, "not-null"), (2, "primary"), (4, "unique"), (8, "multiple"), (32, "unsigned"), (64, "zerofill"),
          (128, "binary"), (256, "enum"), (512, "auto-increment"), (2048, "set"))  # fmt: skip


def _outcome(sql: str, answer: Answer) -> ProbeOutcome:
    refused = next((one for one in (answer, *answer.more) if one.errno), None)
    if answer.unanswered or answer.rows is None:
        return ProbeOutcome(sql, failed=answer.unanswered or f"an answer of {answer.row_count} rows is not kept")
    if refused is not None:
        return ProbeOutcome(sql, errno=refused.errno, sqlstate=refused.sqlstate, message=refused.message)
    return ProbeOutcome(
        sql, columns=tuple(_column(one) for one in answer.columns),
        rows=tuple(tuple(_text(cell) for cell in row) for row in answer.rows),
        affected=answer.affected, insert_id=answer.insert_id, info=answer.info,
    )  # fmt: skip


def _column(one: AnswerColumn) -> str:
    flags = [name for bit, name in _FLAGS if one.flags & bit]
    kind = _TYPES.get(one.type_code, str(one.type_code))
    return " ".join([f"{_text(one.name)}:", f"{kind}({one.length},{one.decimals})", *flags, f"charset={one.charset}"])


def _text(cell: Cell) -> str | None:
    return None if cell is None else cell.decode("utf-8", "backslashreplace")


class Prober:
    """Both sides, opened: a control session each, the scratch databases where they may be made.

    Use it as a context manager: leaving it drops what was made, also after an error.
    """

    def __init__(self, source: ProbeSide, target: ProbeSide, options: ProbeOptions | None = None) -> None:
        self.options = options or ProbeOptions()
        self._ends = (source, target)
        self._stack = ExitStack()
        self._controls: dict[Side, Session] = {}
        self._scratch: dict[Side, ScratchDatabase] = {}
        self.servers: dict[Side, KnownServer] = {}

    def __enter__(self) -> Prober:
        name = self.options.database
        if not name.replace("_", "").isalnum():  # statements of the catalogue hold it bare
            raise UsageError(f"{name!r} cannot be the scratch database", hint="Use letters, digits and _.")
        try:
            for end in self._ends:
                writable = replace(end.endpoint, snapshot=None)
                side = Side.TARGET if self.options.source_clone else end.side
                control = self._stack.enter_context(open_session(writable, end.password, side=side))
                self._controls[end.side] = control
                self.servers[end.side] = server(control.version)
                scratch = self._scratch[end.side] = ScratchDatabase(control, name, end.side.value, PROBES)
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
        writes = probe.needs is not Needs.NONE
        if writes:
            self._scratch[end.side].make_once()
        opened: dict[int, ProbeSession] = {}
        try:
            for number in sorted({1, *(step.session for step in probe.steps)}):
                opened[number] = ProbeSession(end)
                self._prepare(end, opened[number], writes=writes)
            for sql in probe.setup:
                _must(opened[1].run(self._filled(sql), self.options.seconds), end.side)
            yield opened
        finally:
            self._give_back(end, probe, opened, writes=writes)

    def _filled(self, sql: str) -> str:
        return sql.replace("{database}", self.options.database)

    def _prepare(self, end: ProbeSide, session: ProbeSession, *, writes: bool) -> None:
        if writes:
            _must(session.run(f"USE `{self.options.database}`", self.options.seconds), end.side)
        elif end.side is Side.SOURCE and self.servers[end.side].flavor is not Flavor.TIDB:
            # a probe that needs nothing writes nothing; the server sees to it
            _must(session.run("SET SESSION TRANSACTION READ ONLY", self.options.seconds), end.side)

    def _give_back(self, end: ProbeSide, probe: Probe, opened: dict[int, ProbeSession], *, writes: bool) -> None:
        control = self._controls[end.side]
        for session in opened.values():
            with suppress(MigverifyError):  # it may have ended; the connection is cut next, which ends it as well
                control.execute(kill_sql(control.flavor, session.thread_id))
            session.close()
        if not writes:
            return
        try:
            for sql in probe.teardown:
                _attempt(control, self._filled(sql))
        finally:
            self._scratch[end.side].clean()

    def _steps(self, end: ProbeSide, probe: Probe, sessions: dict[int, ProbeSession]) -> tuple[ProbeOutcome, ...]:
        waiting: dict[int, int] = {}  # the step that a session has not ended
        found: dict[int, ProbeOutcome] = {}

        def take(number: int, outcome: ProbeOutcome) -> None:
            found[number] = outcome
            if not probe.steps[number].asked:
                _must(outcome, end.side)

        def end_waiting(session: int) -> None:
            if session in waiting:
                ended = sessions[session].wait(self.options.seconds) or sessions[session].cut(self.options.seconds)
                take(waiting.pop(session), replace(ended, waited=True))

        for number, step in enumerate(probe.steps):
            if step.only is not None and (step.only == "tidb") != (self.servers[end.side].flavor is Flavor.TIDB):
                continue
            end_waiting(step.session)
            session = sessions[step.session]
            session.send(self._filled(step.sql), warnings=step.asked)
            outcome = session.wait(self.options.seconds if step.waits is None else step.waits)
            if outcome is None and step.waits is not None:
                waiting[step.session] = number
            else:
                take(number, outcome or session.cut(self.options.seconds))
        for number in list(waiting):
            end_waiting(number)
        return tuple(found[number] for number, step in enumerate(probe.steps) if step.asked)


def _attempt(control: Session, sql: str) -> None:
    """Run a statement of a teardown: what it removes may never have been made, so a refusal is no failure."""
    try:
        control.execute(sql)
    except RetryableReadError:
        raise
    except (EndpointError, ReadError):
        return


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

"""Replays one captured session: a coroutine that asks its calls one after the other on both sides.

A call becomes due by the pace, waits for the calls of other sessions that it must come after, is sent to both sides at
once, and ends when both have answered; then it is judged. A read that differs is asked again before it is judged;
warnings are read where one side counts any.

A call is late when it begins behind its due time, for any reason: that is its lag, and part of its latency.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Protocol

from migverify.errors import EndpointError
from migverify.model import Side
from migverify.workload.model import Command
from migverify.workload.replay.compare import judge
from migverify.workload.replay.connections import Answers, ConnectionPool, EngineOptions, SideConnection
from migverify.workload.replay.model import Answer, Call, JudgedCall, Judgement, Observation, ServerWarning, TimedAnswer
from migverify.workload.replay.outcomes import Counters
from migverify.workload.replay.restore import RESET_CLOCK, reachable, reading, restored, set_clock, standing
from migverify.workload.replay.runfile import CLOCKED, COMMITS, FIRST_OF_UNIT, WRITES, PlannedCall, SessionSlice
from migverify.workload.state import DEADLOCK, SessionState

LOST = "its transaction was lost with its connection"
_OPEN_TRIES = 4
_OPEN_PAUSE = 0.25
_GAVE_UP = frozenset({1205, DEADLOCK, 3572})
_SHOW_WARNINGS = b"SHOW WARNINGS"
_GENERATED = 1_000
_GENERATED_KEPT = 10_000
"""Ids of one INSERT, and of a session, that are remembered."""
_DONT_ASK_BEFORE = frozenset({"row_count", "found_rows"})
REREAD_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class WaitResult:
    """How a call's waiting ended. ``racy`` names a session whose calls overlap or could not be waited for."""

    racy: str = ""
    forced: bool = False


class Seen(Protocol):
    """Takes in what both sides answered to a call at first, where options want it recorded."""

    def see(self, index: int, answers: Mapping[Side, TimedAnswer]) -> None: ...  # noqa: D102


class Schedule(Protocol):
    """What a session needs of the process that replays it: see ``engine.Engine``."""

    loop: asyncio.AbstractEventLoop
    pool: ConnectionPool
    options: EngineOptions
    counters: Counters
    stopped: str

    @property
    def outcomes(self) -> Seen: ...  # noqa: D102

    def calls_left(self, first: int, last: int) -> Iterator[PlannedCall]: ...  # noqa: D102
    def following(self, planned: PlannedCall, last: int) -> PlannedCall | None: ...  # noqa: D102
    def moment(self, planned: PlannedCall) -> int: ...  # noqa: D102
    async def due(self, planned: PlannedCall) -> int: ...  # noqa: D102
    async def after(self, planned: PlannedCall) -> WaitResult: ...  # noqa: D102
    def count_begun(self, lag: int) -> None: ...  # noqa: D102
    def stalled(self, begun: int, ended: int) -> int: ...  # noqa: D102
    async def intend(self, index: int) -> None: ...  # noqa: D102
    def end(self, planned: PlannedCall, judged: JudgedCall) -> None: ...  # noqa: D102
    def stop(self, reason: str) -> None: ...  # noqa: D102


class SessionReplayer:
    """One captured session while it is replayed.

    Attributes
    ----------
    planned
        The call at hand; ``begun`` is when it was sent, monotonic nanoseconds, 0 until then.
    under_way
        Whether a statement is under way on a server, whose answer a stop waits for.
    """

    def __init__(self, engine: Schedule, session: SessionSlice, first: PlannedCall) -> None:
        self.engine, self.session, self.planned = engine, session, first
        self.intended = self.begun = 0
        self.pending = self.under_way = False
        self.connections: dict[Side, SideConnection] = {}
        self._idle = ""  # what it waits for while it needs no connection
        self._holds_slot = False
        self._broken = False  # the rest of its transaction cannot be asked
        self._wrote = False  # its transaction has written
        self._generated: dict[bytes, str] = {}  # ids that the sides generated differently
        self._reset()

    def _reset(self) -> None:
        """Forget what the connections were brought to."""
        self._state: SessionState | None = None
        self._position = -1
        self._rereads = False  # the last call set how statements are read
        self._lost = ""
        self._clocked = self._hurried = self._rolls_back = False

    # --- the calls, one after the other ------------------------------------------------------------------

    async def play(self) -> None:
        """Ask every call that has no outcome yet."""
        try:
            for planned in self.engine.calls_left(self.planned.index, self.session.last):
                self.planned = planned
                if planned.flags & FIRST_OF_UNIT:
                    self._broken = self._wrote = False
                await self._turn(planned)
                if self.engine.stopped:
                    return
        finally:
            self.pending = False
            self.disconnect()

    async def _turn(self, planned: PlannedCall) -> None:
        engine = self.engine
        self._idle = "due"
        self.intended = await engine.due(planned)
        self.pending = True
        if self._is_broken() or planned.skipped:
            self._end_unasked(planned.skipped or LOST)
            return
        self._idle = "waits"
        order = await engine.after(planned)
        self._idle = ""
        if not engine.options.pace.open_loop:
            self.intended = time.monotonic_ns()
        if self._is_broken():
            self._end_unasked(LOST)
            return
        judged = await self.ask(planned, order.racy)
        if order.forced:
            judged = replace(judged, details={**judged.details, "forced": "1"})
        self._end(judged)

    def _end_unasked(self, why: str) -> None:
        planned = self.planned
        self._end(judge(self._observation({}, skipped=why), planned.meaning, mask=self.engine.options.mask))

    def _is_broken(self) -> bool:
        """Drop connections that a server closed while nothing was asked; tell whether the transaction is lost."""
        if any(one.closed for one in self.connections.values()):
            self._broken = self._broken or not self.planned.flags & FIRST_OF_UNIT
            self.disconnect()
        return self._broken

    def _end(self, judged: JudgedCall) -> None:
        planned, counters = self.planned, self.engine.counters
        self.pending = self.under_way = False
        if self.begun:
            counters.flying -= 1
            counters.writes += bool(planned.flags & WRITES)
            counters.reads += not planned.flags & WRITES
            if planned.flags & WRITES and not judged.written:
                judged = replace(judged, written=True)
            stalled = self.engine.stalled(self.begun, self.begun + 1000 * (judged.target_service or 0))
            if stalled:  # the answer may have been there all the time
                judged = replace(judged, details={**judged.details, "stalled": str(stalled)})
            self.begun = 0
        self.engine.end(planned, judged)
        if self._broken or any(one.closed for one in self.connections.values()):
            self.disconnect()

    # --- connections -------------------------------------------------------------------------------------

    async def _connect(self) -> None:
        """Connect to both sides."""
        engine, tries = self.engine, 0
        if not self._holds_slot:
            engine.counters.held += await engine.pool.acquire(self, self.planned.sequence)
            self._holds_slot = True
        while len(self.connections) < len(engine.pool.sides):
            side = next(side for side in engine.pool.sides if side not in self.connections)
            try:
                self.connections[side] = await engine.pool.open(side)
            except EndpointError as error:
                tries += 1
                if tries >= _OPEN_TRIES:
                    engine.stop(f"no connection: {error.message}")
                    raise asyncio.CancelledError from error
                await asyncio.sleep(_OPEN_PAUSE * 2**tries)
            else:
                engine.counters.connections += 1
        self._reset()

    def disconnect(self) -> None:
        """Close the connections, and let another session have its turn."""
        for connection in self.connections.values():
            connection.close()
            self.engine.counters.connections -= 1
        self.connections = {}
        self._reset()
        if self._holds_slot:
            self._holds_slot = False
            self.engine.pool.release(self)

    def spare(self, sequence: int) -> tuple[bool, int] | None:
        """Return how well the session can do without its connections; the one to disconnect first ranks lowest."""
        planned = self.planned
        if not self._idle or not self.connections or planned.sequence < sequence or not planned.flags & FIRST_OF_UNIT:
            return None
        flavor = next(iter(self.connections.values())).wire.flavor
        if restored(planned.call.state, flavor).lost:
            return None
        return self._idle != "waits", -self.engine.moment(planned)

    # --- one call ----------------------------------------------------------------------------------------

    async def ask(self, planned: PlannedCall, racy: str = "") -> JudgedCall:
        """Bring the session where the call stood, and ask; return what is known of the call."""
        engine = self.engine
        failure = await self._bring(planned)
        if engine.stopped:
            raise asyncio.CancelledError
        if failure:
            self._state = None
            self._broken = self._broken or any(one.closed for one in self.connections.values())
            observation = self._observation({}, skipped=f"the session's state could not be set: {failure}")
            return judge(observation, planned.meaning, mask=engine.options.mask)
        self.under_way = True
        if planned.flags & WRITES or (planned.flags & COMMITS and self._wrote):
            await engine.intend(planned.index)
            self._wrote = True
        return await self._rounds(planned, racy)

    async def _rounds(self, planned: PlannedCall, racy: str) -> JudgedCall:
        """Ask a call until its answers have settled; return what is known of it."""
        engine, options, call = self.engine, self.engine.options, planned.call
        prepared = call.command == Command.EXECUTE.value and not options.text
        reads = is_read(planned)
        repeats = reads and sampled(call, options.noise)
        asked: dict[Side, list[TimedAnswer]] = {side: [] for side in self.connections}
        rounds = 0
        while True:
            rounds += 1
            await self._exchange(call, asked, prepared=prepared)
            if options.record and rounds == 1:
                engine.outcomes.see(planned.index, {side: answers[0] for side, answers in asked.items()})
            engine.counters.target_asked += 1
            engine.counters.source_asked += len(asked) > 1
            lost = any(one.closed for one in self.connections.values())
            if not lost:
                await self._warnings(planned, asked)
            stale = rounds > 1 and not repeats and not all(map(_settled, asked.values()))
            observation = self._observation(asked, racy=racy, stale=stale)
            judged = judge(observation, planned.meaning, mask=options.mask)
            _note_generated(self._generated, observation)
            if lost or not reads or not self._again(asked, rounds, judged, repeats=repeats):
                details = {"sampled": "1"} if repeats else {}
                details |= {"lost": self._lost} if self._lost else {}
                self._broken = self._broken or lost
                return replace(judged, details=judged.details | details) if details else judged
            self.under_way = False
            await asyncio.sleep(0 if repeats else REREAD_SECONDS * (rounds + 1))
            self.under_way = True

    def _again(
        self, asked: Mapping[Side, list[TimedAnswer]], rounds: int, judged: JudgedCall, *, repeats: bool
    ) -> bool:
        if self.engine.stopped:
            return False
        if repeats and rounds == 1:
            return True
        if len(asked) < 2 or rounds > self.engine.options.rereads:
            return False
        has_settled = all(map(_settled, asked.values()))
        if rounds > 2 and has_settled:
            return False
        if rounds > 1 and not repeats:
            return not has_settled
        return judged.state is Judgement.DIFFERENT

    async def _exchange(self, call: Call, asked: Mapping[Side, list[TimedAnswer]], *, prepared: bool) -> None:
        """Send a call to both sides at once, and wait for both answers."""
        at = 0
        answers = Answers(self.engine.loop)
        for connection in self.connections.values():
            at = connection.send(call, self.intended, answers, prepared=prepared)
        if not self.begun:
            self.begun, self.pending = at, False
            self.engine.count_begun(max(0, (at - self.intended) // 1000))
        for side, one in (await answers.wait()).items():
            asked[side].append(one)

    async def _warnings(self, planned: PlannedCall, asked: Mapping[Side, list[TimedAnswer]]) -> None:
        """Ask for warnings where one side counts any."""
        answers = [each[-1].answer for each in asked.values()]
        if not any(one.warnings for one in answers):
            return
        following = self.engine.following(planned, self.session.last)
        if not _wants_warnings(answers, following):
            return
        answered = await self._commands({side: [_SHOW_WARNINGS] for side in self.connections})
        for side, rows in answered.items():
            last = asked[side][-1]
            asked[side][-1] = replace(last, answer=replace(last.answer, warned=_warned(rows[0])))

    def _observation(
        self, asked: Mapping[Side, Sequence[TimedAnswer]], *, racy: str = "", skipped: str = "", stale: bool = False
    ) -> Observation:
        return Observation(
            self.planned.call, tuple(asked.get(Side.SOURCE, ())), tuple(asked.get(Side.TARGET, ())), racy=racy,
            skipped=skipped, generated=self._generated, stale=stale,
        )  # fmt: skip

    # --- the session's state -----------------------------------------------------------------------------

    async def _bring(self, planned: PlannedCall) -> str:
        """Bring the session's state and clock to what the call had; return why that failed, empty when it did not."""
        call, options = planned.call, self.engine.options
        before = self._state
        moved = (
            before is not None and call.position != self._position + 1 and before != call.state
            and standing(before) != standing(call.state)
        )  # fmt: skip
        if before is not None and moved and not call.state.transaction and not reachable(before, call.state):
            self.disconnect()  # a default cannot be set again without knowing it: a fresh session has it
        if not self.connections:
            await self._connect()
        fresh = self._state is None
        first = bool(planned.flags & FIRST_OF_UNIT)
        commands: dict[Side, list[bytes]] = {}
        self._lost = "" if fresh else self._lost
        for side, connection in self.connections.items():
            if fresh or moved:
                state = replace(call.state, transaction=call.state.transaction and fresh and not first)
                made = restored(state, connection.wire.flavor, read_only=not options.writes)
                self._lost = "; ".join(made.lost) or self._lost
                commands[side] = list(made.commands)
            else:  # a SET of the session itself may have been refused here, or have computed its value
                commands[side] = list(reading(call.state)) if self._rereads else []
        both = list(self._clock_and_locks(planned))
        failure = ""
        if both or any(commands.values()):
            answered = await self._commands({side: made + both for side, made in commands.items()})
            failure = "; ".join(
                f"{side.value}: {answer.unanswered or answer.message}"
                for side, answers in answered.items() for answer in answers if not answer.ok
            )  # fmt: skip
        self._state, self._position = call.state, call.position
        self._rereads = "reading" in planned.meaning.classification.effects
        return failure

    def _clock_and_locks(self, planned: PlannedCall) -> Iterator[bytes]:
        """Yield what sets the captured clock, and bounds lock waits.

        A call that production gave up in a lock wait or a deadlock waits for a second at most, as others wait for it. A
        deadlock rolled its transaction back: where it does not recur, the session does so itself.
        """
        call = planned.call
        if self._rolls_back:
            yield b"ROLLBACK"
        hurries = bool(planned.flags & WRITES) and call.captured.errno in _GAVE_UP
        if hurries != self._hurried:
            yield b"SET SESSION innodb_lock_wait_timeout = " + (b"1" if hurries else _lock_wait(call.state))
        self._hurried, self._rolls_back = hurries, hurries and call.captured.errno == DEADLOCK
        clock = _clock_of(planned)
        if clock is not None or (self._clocked and planned.flags & CLOCKED):  # others do not look at it
            self._clocked = clock is not None
            yield clock or RESET_CLOCK

    async def _commands(self, commands: Mapping[Side, Sequence[bytes]]) -> dict[Side, list[Answer]]:
        """Run statements of the replay's own on each side, step by step; a side stops at one that it refuses.

        A lost connection refuses everything; the call is not asked on either side then.
        """
        answered: dict[Side, list[Answer]] = {side: [] for side in commands}
        for step in zip_longest(*commands.values()):
            answers = Answers(self.engine.loop)
            for side, sql in zip(commands, step, strict=True):
                if sql is not None and all(answer.ok for answer in answered[side]):
                    call = replace(self.planned.call, sql=sql, parameters=None)
                    self.connections[side].send(call, self.intended, answers)
            for side, asked in (await answers.wait()).items():
                answered[side].append(asked.answer)
        return answered


def _lock_wait(state: SessionState) -> bytes:
    own = str(state.parts.get("variables", {}).get("innodb_lock_wait_timeout", ""))
    return own.encode() if own.isdecimal() else b"DEFAULT"


def _note_generated(generated: dict[bytes, str], observation: Observation) -> None:
    """Remember ids that an INSERT was given on one side and not on the other, or not in production."""
    if not observation.source or not observation.target:
        return
    answers = [one[0].answer for one in (observation.source, observation.target)]
    captured = observation.call.captured.last_insert_id
    firsts = [one.insert_id for one in answers] + ([captured] if captured else [])
    if not all(one.ok and one.insert_id for one in answers) or len(set(firsts)) == 1:
        return
    cause = f"statement {observation.call.position}"
    rows = max(1, min(_GENERATED, max(one.affected for one in answers)))
    for first in set(firsts):
        generated |= {b"%d" % (first + row): cause for row in range(rows)}
    while len(generated) > _GENERATED_KEPT:
        del generated[next(iter(generated))]


def _warned(answer: Answer) -> tuple[ServerWarning, ...]:
    rows = answer.rows if answer.ok else None
    return tuple(
        ServerWarning((one[0] or b"").decode(), int(one[1] or b"0"), (one[2] or b"").decode("utf-8", "replace"))
        for one in rows or ()
    )


def is_read(planned: PlannedCall) -> bool:
    """Tell whether a call may be asked twice: it reads, and does nothing else."""
    found = planned.meaning.classification
    return found.kind.value == "read" and not found.may_write and not found.locking and not found.effects


def _clock_of(planned: PlannedCall) -> bytes | None:
    """Return the command that sets the session's clock to the captured one, None where the call does not look at it."""
    if not planned.flags & CLOCKED:
        return None
    moment = planned.call.clock if planned.call.clock is not None else planned.call.start
    return None if moment is None else set_clock(moment)


def sampled(call: Call, share: float) -> bool:
    """Choose a share of calls, the same ones in every run."""
    if share <= 0:
        return False
    return zlib.crc32(f"{call.session}/{call.position}".encode()) < share * (1 << 32)


def _alike(first: Answer, second: Answer) -> bool:
    return (
        first.errno == second.errno and first.unanswered == second.unanswered and first.row_count == second.row_count
        and first.unordered == second.unordered and len(first.more) == len(second.more)
    )  # fmt: skip


def _settled(asked: list[TimedAnswer]) -> bool:
    return len(asked) < 2 or _alike(asked[-1].answer, asked[-2].answer)


def _wants_warnings(answers: list[Answer], following: PlannedCall | None) -> bool:
    """Tell whether to ask for warnings: some are there, and the next call does not look at what asking changes."""
    if not any(one.warnings for one in answers if not one.unanswered):
        return False
    return following is None or not following.meaning.classification.volatile & _DONT_ASK_BEFORE

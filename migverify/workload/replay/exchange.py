"""One call on the connections of its session: state and clock set, sent to both sides at once, answered, judged.

The middle layer of the engine. A read that differs is asked again before it is judged; warnings are asked for where one
side counts any; over both protocols, each form of a read is an exchange of its own.
"""

from __future__ import annotations

import json
import selectors
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from migverify.model import Side
from migverify.workload.replay.asking import (
    RESET_CLOCK,
    clock_of,
    forms,
    is_read,
    joined,
    sampled,
    settled,
    wants_warnings,
)
from migverify.workload.replay.compare import judge
from migverify.workload.replay.journal import Journal
from migverify.workload.replay.links import EngineOptions, Links
from migverify.workload.replay.model import Answer, Asked, Judged, Judgement, Observation, Warned
from migverify.workload.replay.player import Lane, Opener, Player, reachable, standing
from migverify.workload.replay.restore import reading, restored
from migverify.workload.replay.spool import CLOCKED, COMMITS, FIRST_OF_UNIT, NOWHERE, WRITES, Spool, Stored
from migverify.workload.replay.wire import ServerWire
from migverify.workload.state import DEADLOCK, State

_GAVE_UP = frozenset({1205, DEADLOCK, 3572})
_SHOW_WARNINGS = b"SHOW WARNINGS"
_GENERATED = 1_000
_GENERATED_KEPT = 10_000
"""Ids of one INSERT, and of a session, that are remembered."""


class Exchange(Links):
    """Asks calls of players that are connected; ``_end`` is told what was judged."""

    def __init__(
        self, spool: Spool, openers: Mapping[Side, Opener], journal: Journal, options: EngineOptions,
        kill: Callable[[Side, int], str],
    ) -> None:  # fmt: skip
        super().__init__(openers, options, kill)
        self.spool, self.journal = spool, journal

    def _end(self, player: Player, judged: Judged) -> None:
        """Take in the end of a player's call."""
        raise NotImplementedError

    def _connected(self, player: Player) -> None:
        self._prepare(player)

    def _prepare(self, player: Player) -> None:
        """Bring the session's state and clock to what the call had, then ask it."""
        stored = player.stored
        if stored is None or self.stopped:
            return
        if any(lane.wire is None or lane.wire.closed for lane in player.lanes):
            self._disconnect(player)
            self._connect(player)
            return
        call = stored.call
        before = player.state
        moved = (
            before is not None and call.position != player.position + 1 and before != call.state
            and standing(before) != standing(call.state)
        )  # fmt: skip
        if before is not None and moved and not call.state.transaction and not reachable(before, call.state):
            self._disconnect(player)  # a default cannot be set again without knowing it: a fresh session has it
            self._connect(player)
            return
        clock = clock_of(stored) if self.options.ask.clock else None
        player.lost = player.lost if player.state is not None else ""
        for lane in player.lanes:
            if lane.wire is None:
                continue
            if player.state is None or moved:
                lane.failed = ""
                begun = call.state.transaction and not moved and not stored.flags & FIRST_OF_UNIT
                state = replace(call.state, transaction=begun)
                told = restored(state, lane.wire.flavor, read_only=not self.options.writes)
                player.lost = "; ".join(told.lost) or player.lost
                said = told.commands
            else:  # a SET of the session itself may have been refused here, or have computed its value
                said = reading(call.state) if player.rereads else ()
            lane.queue.extend((replace(call, sql=sql, parameters=None), False, "state") for sql in said)
            _bound_locks(player, stored, lane)
            if clock is not None or (lane.clocked and stored.flags & CLOCKED):  # others do not look at it
                lane.queue.append((replace(call, sql=clock or RESET_CLOCK, parameters=None), False, "clock"))
                lane.clocked = clock is not None
        player.state, player.position = call.state, call.position
        player.rereads = "reading" in stored.meaning.classification.effects
        player.forms = forms(stored, self.options.ask.protocol)
        player.sampled = is_read(stored) and sampled(call, self.options.ask.noise)
        if stored.flags & WRITES or (stored.flags & COMMITS and player.wrote):
            self.journal.intent(stored.index)
            player.wrote = True
        player.begun = 0
        self._ask(player)

    def _ask(self, player: Player) -> None:
        call, prepared = player.forms[0]
        player.phase = "asked"
        self._busy.add(player)
        for lane in player.lanes:
            lane.queue.append((call, prepared, "call"))
        for lane in player.lanes:
            self._send(player, lane)
        for lane in player.lanes:
            if lane.wire is not None and lane.doing and (prepared or call.parameters or lane.wire.closed):
                self._receive(player, lane)  # what the wire itself refuses makes no event

    def _send(self, player: Player, lane: Lane) -> None:
        if lane.wire is None:
            raise ValueError("a lane without a connection")
        call, prepared, lane.doing = lane.queue.popleft()
        lane.begun = time.monotonic_ns()
        if lane.doing == "call" and not player.begun:
            player.begun = lane.begun
            self._count_begun(player)
        lane.wire.send(call, prepared=prepared)
        if lane.wire.writing:
            lane.writing = True
            self._selector.modify(lane.wire.fileno(), selectors.EVENT_READ | selectors.EVENT_WRITE, (player, lane))

    def _count_begun(self, player: Player) -> None:
        lag = max(0, (player.begun - player.intended) // 1000)
        counters = self.counters
        counters.begun += 1
        counters.flying += 1
        counters.lag_sum += lag
        counters.lag_most = max(counters.lag_most, lag)
        if self.options.max_lag is not None and lag > self.options.max_lag * 1e6:
            self._stop(f"a call began {lag / 1e6:.1f} s late; at most {self.options.max_lag:g} s are allowed")

    def _receive(self, player: Player, lane: Lane) -> None:
        wire = lane.wire
        if wire is None or not lane.doing:
            if wire is not None:
                self._idle_event(player, wire)
            return
        answer = wire.receive()
        # Values of a prepared statement go out once it is prepared, so receiving may leave something to write, too.
        if lane.writing != wire.writing and not wire.closed:
            lane.writing = wire.writing
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wire.writing else 0)
            self._selector.modify(wire.fileno(), events, (player, lane))
        if answer is None:
            return
        ended = time.monotonic_ns()
        if wire.closed:
            self._selector.unregister(wire.fileno())
        doing, lane.doing = lane.doing, ""
        if doing == "call":
            lane.asked.append(Asked(answer, player.intended, lane.begun, ended))
        elif doing == "warnings":
            _take_warnings(lane, answer)
        elif not answer.ok:
            lane.failed = lane.failed or f"{lane.side.value}: {answer.unanswered or answer.message}"
            lane.queue.clear()  # in another state it could be another statement
        if wire.closed:
            lane.queue.clear()
            if doing != "call":
                lane.asked.append(Asked(Answer(unanswered=wire.closed), player.intended, lane.begun, ended))
        elif lane.queue:
            self._send(player, lane)
            return
        if all(not one.doing for one in player.lanes):
            self._answered(player)

    def _idle_event(self, player: Player, wire: ServerWire) -> None:
        """The server closed a connection on which nothing was asked: the next call opens another."""
        self._selector.unregister(wire.fileno())
        wire.close()
        player.broken = player.broken or (player.stored is not None and not player.stored.flags & FIRST_OF_UNIT)

    def _answered(self, player: Player) -> None:
        """Both sides have answered: ask again, ask the other form, or end the call."""
        stored, ask = player.stored, self.options.ask
        if stored is None:
            raise ValueError("an answer without a call")
        lost = any(lane.wire is None or lane.wire.closed for lane in player.lanes)
        failed = "; ".join(lane.failed for lane in player.lanes if lane.failed)
        if failed and not lost:
            observation = Observation(player.call, skipped=f"the session's state could not be set: {failed}")
            player.state = None
            self._end(player, judge(observation, stored.meaning, self.options.compare))
            return
        if not lost and ask.warnings and self._ask_warnings(player, stored):
            return
        judged = self._judge(player, stored)
        if not lost and is_read(stored) and self._again(player, judged):
            player.rounds += 1
            player.phase = "pause"
            self._later(player, ask.reread_seconds * player.rounds if not player.sampled else 0)
            self._busy.discard(player)
            return
        player.judged = judged if player.judged is None else joined(player.judged, judged)
        for lane in player.lanes:
            lane.asked.clear()
        player.forms.pop(0)
        if player.forms and not lost and not self.stopped:
            player.rounds = 1
            self._ask(player)
            return
        player.broken = player.broken or lost
        self._end(player, player.judged)

    def _ask_warnings(self, player: Player, stored: Stored) -> bool:
        """Ask for warnings where one side counts any; True while that is under way."""
        if not any(lane.asked[-1].answer.warnings for lane in player.lanes):
            return False
        if any(lane.warned is not None for lane in player.lanes):
            for lane in player.lanes:
                last = lane.asked[-1]
                lane.asked[-1] = replace(last, answer=replace(last.answer, warned=lane.warned))
                lane.warned = None
            return False
        following = self.spool.read(stored.index + 1) if stored.index + 1 < player.stop else None
        if not wants_warnings([lane.asked[-1].answer for lane in player.lanes], following):
            return False
        for lane in player.lanes:
            lane.queue.append((replace(player.call, sql=_SHOW_WARNINGS, parameters=None), False, "warnings"))
        for lane in player.lanes:
            self._send(player, lane)
        return True

    def _again(self, player: Player, judged: Judged) -> bool:
        if self.stopped:
            return False
        if player.sampled and player.rounds == 1:
            return True
        if len(player.lanes) < 2 or player.rounds > self.options.ask.rereads:
            return False
        if player.rounds > 2 and all(settled(lane.asked) for lane in player.lanes):
            return False
        if player.rounds > 1 and not player.sampled:
            return not all(settled(lane.asked) for lane in player.lanes)
        return judged.state is Judgement.DIFFERENT

    def _judge(self, player: Player, stored: Stored) -> Judged:
        asked = {lane.side: tuple(lane.asked) for lane in player.lanes}
        moved = [not settled(lane.asked) for lane in player.lanes]
        stale = player.rounds > 1 and any(moved) and not player.sampled
        racy = self._racy(player)
        observation = Observation(
            player.call, asked.get(Side.SOURCE, ()), asked.get(Side.TARGET, ()), racy=racy, stale=stale,
            generated=player.generated,
        )  # fmt: skip
        judged = judge(observation, stored.meaning, self.options.compare)
        details = dict(judged.details)
        _note_generated(player, observation)
        if player.sampled:
            details["sampled"] = "1"
        if player.lost:
            details["lost"] = player.lost
        if player.forced:
            details["forced"] = "1"
        return replace(judged, details=details) if details != judged.details else judged

    def _racy(self, player: Player) -> str:
        turn = player.turn
        if turn is not None and turn.racy != NOWHERE:
            return self.spool.sessions[turn.racy].name
        if player.other != NOWHERE:
            return self.spool.sessions[player.other].name
        if player.forced and player.left:
            return self.spool.sessions[self.spool.place(min(player.left)).session].name
        return ""


def _bound_locks(player: Player, stored: Stored, lane: Lane) -> None:
    """Let a call that production gave up in a lock wait or a deadlock wait for a second at most, as others wait for it.

    A deadlock rolled its transaction back: where it does not recur, the session does so itself.
    """
    call = stored.call
    if player.state is None:
        lane.hurried = lane.rolls_back = False
    said = [b"ROLLBACK"] if lane.rolls_back else []
    hurries = bool(stored.flags & WRITES) and call.captured.errno in _GAVE_UP
    if hurries != lane.hurried:
        said.append(b"SET SESSION innodb_lock_wait_timeout = " + (b"1" if hurries else _lock_wait(call.state)))
    lane.queue.extend((replace(call, sql=sql, parameters=None), False, "state") for sql in said)
    lane.hurried, lane.rolls_back = hurries, hurries and call.captured.errno == DEADLOCK


def _lock_wait(state: State) -> bytes:
    rest = json.loads(state.rest) if state.rest else {}
    own = str(rest.get("variables", {}).get("innodb_lock_wait_timeout", ""))
    return own.encode() if own.isdecimal() else b"DEFAULT"


def _note_generated(player: Player, observation: Observation) -> None:
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
        player.generated |= {b"%d" % (first + row): cause for row in range(rows)}
    while len(player.generated) > _GENERATED_KEPT:
        del player.generated[next(iter(player.generated))]


def _take_warnings(lane: Lane, answer: Answer) -> None:
    rows = answer.rows if answer.ok else None
    lane.warned = tuple(
        Warned((one[0] or b"").decode(), int(one[1] or b"0"), (one[2] or b"").decode("utf-8", "replace"))
        for one in rows or ()
    )

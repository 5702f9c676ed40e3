"""Differences that are asked again until both sides stand still, and the target has what the source had.

What is different once proves nothing while writes go on. ``migverify.watch.lifecycle`` decides what each further read
makes of it. A target that answers what the source answered at an earlier read is behind, and equal.

Where nothing says what the target has applied, time alone proves nothing. Then a witness is needed: a read whose
answer changed on the source after the difference had last moved, and that is equal since. Without one, a difference
counts only where the source does not move either.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from migverify.model import LiveState
from migverify.watch.lifecycle import Criteria, Finding, Read, advance, read_once
from migverify.workload.meaning import Meaning
from migverify.workload.model import Parameter
from migverify.workload.replay.model import Call, Captured, JudgedCall, Judgement
from migverify.workload.replay.outcomes import pack, unpack
from migverify.workload.replay.runfile import PlannedCall
from migverify.workload.shadow.ask import AskedRead
from migverify.workload.state import SessionState

MOST_PENDING = 1_000
MOST_OF_DIGEST = 20
"""Differences that are asked again at one time, in all and of one digest; others are undecided at once."""
MOST_READS = 8
CROWDED = "not confirmed: too many differences were being asked again"
MOVING = "the rows were being written: both sides were asked {reads} times and did not stand still"
BEHIND = "the target had not applied what the source had within {seconds:.0f} s: replication lag"
UNKNOWN_PROGRESS = "what the target has applied is not known: {why}"
_CRITERIA = Criteria(still_reads=1, most_reads=MOST_READS)


@dataclass(frozen=True, slots=True)
class PendingRead:
    """A read that differed. ``needs`` is what the target must have applied; None where that is not known yet.

    Times are Unix seconds: ``asked`` of the last read, ``moved`` of the last one that showed something else,
    ``source_moved`` of the read before the last one that showed something else of the source (0: none did).
    ``judged`` is the outcome of the last answers, ``sources`` what the source showed at the last reads.
    """

    number: int
    planned: PlannedCall
    hour: int
    judged: JudgedCall
    finding: Finding
    found: float
    due: float
    needs: int | None = None
    asked: float = 0.0
    moved: float = 0.0
    source_moved: float = 0.0
    sources: tuple[Hashable, ...] = ()

    def as_text(self) -> str:
        """Return the read as text."""
        call, planned = self.planned.call, self.planned
        state = {name: getattr(call.state, name) for name in SessionState.__dataclass_fields__}
        parameters = None if call.parameters is None else [
            [one.kind, None if one.value is None else one.value.decode("latin-1")] for one in call.parameters
        ]  # fmt: skip
        captured = {name: getattr(call.captured, name) for name in Captured.__dataclass_fields__}
        return json.dumps({
            "session": call.session, "position": call.position, "sql": call.sql.decode("latin-1"),
            "state": state, "captured": captured, "start": call.start, "end": call.end, "clock": call.clock,
            "parameters": parameters, "user": call.user, "origin": call.origin, "command": call.command,
            "assumed": list(call.assumed), "note": call.note, "flags": planned.flags, "began": planned.start,
            "hour": self.hour, "judged": pack(self.judged), "found": self.found,
            "digest": planned.meaning.digest, "text": planned.meaning.text,
        })  # fmt: skip


def kept_read(number: int, body: Mapping[str, Any], meaning: Meaning) -> PendingRead:
    """Return a read that an earlier process kept; what it showed is forgotten, so it must stand still once more."""
    parameters = None if body["parameters"] is None else tuple(
        Parameter(kind, None if value is None else value.encode("latin-1")) for kind, value in body["parameters"]
    )  # fmt: skip
    call = Call(
        body["session"], body["position"], body["sql"].encode("latin-1"), body["digest"], SessionState(**body["state"]),
        Captured(**body["captured"]), body["start"], body["end"], body["clock"], parameters, "", body["user"],
        body["origin"], body["command"], tuple(body["assumed"]), body["note"],
    )  # fmt: skip
    meaning = replace(meaning, digest=body["digest"], text=body["text"])  # those of the statement as it was logged
    planned = PlannedCall(number, call, meaning, "", body["flags"], 0, 0, body["began"], body["began"])
    judged = unpack(body["judged"], f"difference {number} of the shadow file")
    return PendingRead(number, planned, body["hour"], judged, Finding(), body["found"], 0.0)


@dataclass(slots=True)
class AskedAgain:
    """The differences that are asked again.

    Parameters
    ----------
    delay
        Seconds between two reads.
    patience
        Seconds after which one that the target has not applied, or whose servers do not answer, is undecided.
    proof
        What the target has applied is a fact, not a guess by time.

    Attributes
    ----------
    witness
        When the source was not yet changed as the target is known to be now.
    source_moved
        When the source last was not yet changed as it is known to be since.
    unknown
        Why it is not known what the target has applied; empty while it is.
    """

    delay: float
    patience: float
    proof: bool = True
    witness: float = 0.0
    source_moved: float = 0.0
    pending: dict[int, PendingRead] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)
    unknown: str = ""
    _next: int = 1
    _by_digest: Counter[str] = field(default_factory=Counter)

    def restore(self, read: PendingRead, now: float) -> None:
        """Go on with a read that an earlier process kept: its time begins anew."""
        self.pending[read.number] = replace(read, found=now, moved=now)
        self._next = max(self._next, read.number + 1)
        self._by_digest[read.judged.digest] += 1

    def add(self, asked: AskedRead, hour: int, now: float) -> JudgedCall | None:
        """Take in a difference; return its outcome where it cannot be asked again."""
        digest = asked.judged.digest
        if len(self.pending) >= MOST_PENDING or self._by_digest[digest] >= MOST_OF_DIGEST:
            return replace(asked.judged, state=Judgement.INDETERMINATE, reason=CROWDED)
        number, self._next = self._next, self._next + 1
        self.pending[number] = PendingRead(
            number, replace(asked.planned, index=number), hour, asked.judged, read_once(asked.look), now,
            now + self.delay, asked=now, moved=now, sources=_sources((), asked),
        )  # fmt: skip
        self.changed.add(number)
        self._by_digest[digest] += 1
        return None

    def mark(self, needs: int | None) -> None:
        """Note what the target must have applied for reads that were made before this moment."""
        for number, one in self.pending.items():
            if one.needs is None and needs is not None:
                self.pending[number] = replace(one, needs=needs)

    def due(self, now: float, reached: int | None) -> list[PlannedCall]:
        """Return the reads to ask again now: those that the target has applied, and those that waited long enough."""
        return [
            one.planned for one in self.pending.values()
            if one.due <= now and (_is_past(one, reached) or now - one.found >= self.patience)
        ]  # fmt: skip

    def next_due(self) -> float | None:
        """Return when the next one is due."""
        return min((one.due for one in self.pending.values()), default=None)

    def take(self, asked: AskedRead, now: float, reached: int | None) -> tuple[int, JudgedCall] | None:
        """Take in a further read; return hour and outcome when it is decided."""
        one, judged = self.pending[asked.planned.index], asked.judged
        if judged.state is Judgement.UNJUDGED:
            if now - one.found >= self.patience:
                return self._over(one, judged)
            self.pending[one.number] = replace(one, due=now + self.delay)
            return None
        equal = judged.state is Judgement.SAME or _target_look(asked) in one.sources
        one = self._seen(one, asked, now)
        self.source_moved = max(self.source_moved, one.source_moved)
        applied = self._has_applied(one, now, reached)
        finding = advance(one.finding, Read(asked.look, equal=equal, applied_past=applied), _CRITERIA)
        if finding.state is LiveState.CONVERGED:
            self.witness = max(self.witness, one.source_moved)
            return self._over(one, _converged(judged, finding.reads))
        if finding.state is LiveState.DIVERGED:
            return self._over(one, judged)
        if finding.state is LiveState.HOT:
            return self._undecided(one, judged, MOVING.format(reads=finding.reads))
        if now - one.found >= self._longest and not applied:
            reason = BEHIND.format(seconds=self._longest)
            return self._undecided(one, judged, UNKNOWN_PROGRESS.format(why=self.unknown) if self.unknown else reason)
        self.pending[one.number] = replace(one, judged=judged, finding=finding, due=now + self.delay)
        return None

    @property
    def _longest(self) -> float:
        return self.patience if self.proof else 2 * self.patience

    @staticmethod
    def _seen(one: PendingRead, asked: AskedRead, now: float) -> PendingRead:
        """Return a read with what moved since the last time."""
        before, source = one.finding.look, _source_look(asked)
        moved = before is not None and before != asked.look
        source_moved = bool(one.sources) and source != one.sources[-1]
        return replace(
            one, asked=now, moved=now if moved else one.moved, needs=None if moved else one.needs,
            source_moved=one.asked if source_moved else one.source_moved, sources=_sources(one.sources, asked),
        )  # fmt: skip

    def _has_applied(self, one: PendingRead, now: float, reached: int | None) -> bool:
        """Tell whether the target has applied what the source had when the read last moved."""
        if not _is_past(one, reached):
            return False
        if self.proof or self.witness > one.moved:
            return True
        return now - one.moved >= self.patience and self.source_moved <= one.moved

    def changes(self) -> Iterator[tuple[int, str | None]]:
        """Yield what is to be committed: the reads that are new or changed, None for those that are decided."""
        changed, self.changed = self.changed, set()
        for number in changed:
            one = self.pending.get(number)
            yield number, None if one is None else one.as_text()

    def _undecided(self, one: PendingRead, judged: JudgedCall, reason: str) -> tuple[int, JudgedCall]:
        return self._over(one, replace(judged, state=Judgement.INDETERMINATE, reason=reason))

    def _over(self, one: PendingRead, judged: JudgedCall) -> tuple[int, JudgedCall]:
        del self.pending[one.number]
        self.changed.add(one.number)
        self._by_digest[one.judged.digest] -= 1
        if not self._by_digest[one.judged.digest]:
            del self._by_digest[one.judged.digest]
        return one.hour, judged


def is_questionable(judged: JudgedCall, planned: PlannedCall) -> bool:
    """Tell whether an outcome may be one of a moment: a difference, also one that an assumption could explain."""
    if judged.state is Judgement.DIFFERENT:
        return True
    return judged.state is Judgement.INDETERMINATE and bool(planned.call.assumed) and bool(judged.differences)


def _converged(judged: JudgedCall, reads: int) -> JudgedCall:
    """Return the outcome of a read that is equal now, or was what the source was before."""
    details = {name: text for name, text in judged.details.items() if name not in ("sql", "source", "target")}
    return replace(
        judged, state=Judgement.SAME, differences=(), reason="", noisy="",
        details={**details, "converged": str(reads)},
    )  # fmt: skip


def _source_look(asked: AskedRead) -> Hashable:
    return None if asked.look is None else asked.look[0][1:]


def _target_look(asked: AskedRead) -> Hashable:
    return None if asked.look is None else asked.look[1][1:]


def _sources(before: tuple[Hashable, ...], asked: AskedRead) -> tuple[Hashable, ...]:
    look = _source_look(asked)
    return before if look is None else (*before, look)[-MOST_READS:]


def _is_past(one: PendingRead, reached: int | None) -> bool:
    return one.needs is not None and reached is not None and reached >= one.needs

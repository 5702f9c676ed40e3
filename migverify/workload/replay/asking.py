"""How one call is asked: over which protocol, under which clock, and when it is asked again."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from enum import StrEnum

from migverify.workload.model import Command
from migverify.workload.replay.model import Answer, Asked, Call, Judged, Judgement
from migverify.workload.replay.parameters import parameterize
from migverify.workload.replay.spool import CLOCKED, WRITES, Stored


class Protocol(StrEnum):
    """Over which protocol statements are asked."""

    CAPTURED = "as-captured"
    TEXT = "text"
    PREPARED = "prepared"
    BOTH = "both"  # reads over either, and both answers count


RESET_CLOCK = b"SET timestamp = DEFAULT"
_DONT_ASK_BEFORE = frozenset({"row_count", "found_rows"})


@dataclass(frozen=True, slots=True)
class AskOptions:
    """How calls are asked.

    ``rereads`` is how often a read that differs is asked again; ``noise`` the share of all reads that are asked twice
    on both sides; ``warnings`` asks for the warnings where one side counts any; ``clock`` pins the session's clock
    for statements that look at it.
    """

    protocol: Protocol = Protocol.CAPTURED
    rereads: int = 3
    reread_seconds: float = 0.02
    noise: float = 0.0
    warnings: bool = True
    clock: bool = True


def forms(stored: Stored, protocol: Protocol) -> list[tuple[Call, bool]]:
    """Return the forms in which a call is asked, each with whether it is prepared; the first is its main one."""
    call = stored.call
    executed = call.command == Command.EXECUTE.value
    wanted = {
        Protocol.CAPTURED: [executed], Protocol.TEXT: [False], Protocol.PREPARED: [True],
        Protocol.BOTH: [executed] if stored.flags & WRITES or not is_read(stored) else [executed, not executed],
    }[protocol]  # fmt: skip
    found: list[tuple[Call, bool]] = []
    for prepared in wanted:
        form = _prepared(call) if prepared else call
        if form is not None:
            found.append((form, prepared))
    return found or [(call, False)]


def _prepared(call: Call) -> Call | None:
    if call.parameters is not None:
        return call
    made = parameterize(call.sql, call.state.modes)
    return None if made is None else replace(call, sql=made[0], parameters=made[1])


def is_read(stored: Stored) -> bool:
    """Tell whether a call may be asked twice: it reads, and does nothing else."""
    found = stored.meaning.classification
    return found.kind.value == "read" and not found.may_write and not found.locking and not found.effects


def clock_of(stored: Stored) -> bytes | None:
    """Return the command that sets the session's clock to the captured one, None where the call does not look at it."""
    if not stored.flags & CLOCKED:
        return None
    moment = stored.call.clock if stored.call.clock is not None else stored.call.start
    return None if moment is None else b"SET timestamp = %d.%06d" % divmod(moment, 1_000_000)


def sampled(call: Call, share: float) -> bool:
    """Choose a share of calls, the same ones in every run."""
    if share <= 0:
        return False
    return zlib.crc32(f"{call.session}/{call.position}".encode()) < share * (1 << 32)


def alike(first: Answer, second: Answer) -> bool:
    """Tell whether two answers of one side are the same, rows in any order."""
    return (
        first.errno == second.errno and first.unanswered == second.unanswered and first.row_count == second.row_count
        and first.unordered == second.unordered and len(first.more) == len(second.more)
    )  # fmt: skip


def settled(asked: list[Asked]) -> bool:
    """Tell whether a side said the same twice in a row."""
    return len(asked) < 2 or alike(asked[-1].answer, asked[-2].answer)


def wants_warnings(answers: list[Answer], following: Stored | None) -> bool:
    """Tell whether to ask for warnings: some are there, and the next call does not look at what asking changes."""
    if not any(one.warnings for one in answers if not one.unanswered):
        return False
    return following is None or not following.meaning.classification.volatile & _DONT_ASK_BEFORE


_WORSE = [Judgement.SAME, Judgement.INDETERMINATE, Judgement.UNJUDGED, Judgement.DIFFERENT]


def joined(first: Judged, second: Judged) -> Judged:
    """Join what was judged of a call over two protocols: the worse state, the differences of both."""
    tagged = tuple(
        replace(one, detail=f"{one.detail}; other protocol".lstrip("; "))
        for one in second.differences if one not in first.differences
    )  # fmt: skip
    worse = max(first, second, key=lambda one: _WORSE.index(one.state))
    details = {**second.details, **first.details, "protocols": "both"}
    return replace(
        first, state=worse.state, reason=worse.reason, noisy=first.noisy or second.noisy,
        differences=first.differences + tagged, details=details,
    )  # fmt: skip

"""Judges one replayed statement: what both sides answered, against each other and against the capture.

What a judgement means:

- SAME: outcome, rows, counts and ids agree. Differences of METADATA and INFO ride along: they are an aspect of their
  own and never make a statement DIFFERENT. ``details["unproven"]`` marks an equal answer that the text does not
  determine (a LIMIT without order, a moved clock): the same this time. ``details["shallow"]`` marks one that could be
  compared with the capture only.
- DIFFERENT: a difference of severity BLOCKER or REVIEW in what the text determines, seen on sides that answer alike
  when asked again. A racy or stale statement is never DIFFERENT, except by an error that hangs on its text alone
  (syntax, unsupported): no race makes those.
- INDETERMINATE: the answers differ, and the text, the moment or a side's own noise may be why.
  An equal answer of a session whose state was assumed carries ``details["assumed"]`` where the assumption could change
  it, and counts for no MATCH; a difference of such a statement is INDETERMINATE. Formats that never tell a connect
  leave every session's settings unknown: there equal answers count, and only a difference is INDETERMINATE.
- UNJUDGED: not asked, not answered, or nothing is known to compare with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from migverify.workload.meaning import Meaning
from migverify.workload.replay import render
from migverify.workload.replay.answers import AnswersResult, changed_rows, compare_answers
from migverify.workload.replay.assumed import FOR_DIFFERENCES
from migverify.workload.replay.model import (
    Answer,
    Call,
    Captured,
    Difference,
    DifferenceSeverity,
    JudgedCall,
    Judgement,
    Observation,
    TimedAnswer,
)
from migverify.workload.replay.outcome import (
    REFUSES_ROWS,
    OutcomeComparison,
    against_capture,
    alike,
    compare_outcomes,
    kind_of,
)

_NUMBER = re.compile(rb"(?<![\w.])\d+(?![\w.])")
_DECISIVE = frozenset({DifferenceSeverity.BLOCKER, DifferenceSeverity.REVIEW})


@dataclass(slots=True)
class _Finding:
    state: Judgement
    differences: tuple[Difference, ...] = ()
    reason: str = ""
    marks: dict[str, str] = field(default_factory=dict)


def judge(observation: Observation, meaning: Meaning, *, mask: bool = False) -> JudgedCall:
    """Return what is known of one replayed statement. Never raises for what servers answer.

    The first answer of each side is judged; further ones tell whether a side differs from itself. With ``mask`` neither
    the statement nor values are kept.
    """
    call = observation.call
    found = _find(observation, meaning)
    noisy = "" if found.state is Judgement.UNJUDGED else _noise(observation, meaning)
    if noisy and found.state is Judgement.DIFFERENT and "by_text" not in found.marks:
        found.state = Judgement.INDETERMINATE
        found.reason = f"{noisy} differs from itself when asked again"
    source, target = _first(observation.source), _first(observation.target)
    _weigh_assumed(found, call)
    _weigh_generated(found, observation)
    details = _details(call, meaning, source, target)
    details |= {name: text for name, text in found.marks.items() if name not in ("by_text", "refused")}
    differences = found.differences
    if found.state is not Judgement.SAME:
        details |= render.example(observation, mask=mask)
    if mask:
        differences = tuple(render.masked(one) for one in differences)
    return JudgedCall(
        session=call.session, position=call.position, digest=meaning.digest or call.digest, state=found.state,
        differences=differences, reason="; ".join(filter(None, (found.reason, call.note))), noisy=noisy,
        source_latency=_latency(source), target_latency=_latency(target),
        source_service=_service(source), target_service=_service(target),
        lag=max((_micro(one.begun - one.intended) for one in (source, target) if one is not None), default=0),
        captured_error=bool(call.captured.errno),
        written=meaning.classification.may_write and not observation.skipped and target is not None,
        repeats=max(len(observation.source), len(observation.target), 1), details=details,
    )  # fmt: skip


def _find(observation: Observation, meaning: Meaning) -> _Finding:
    call, source, target = observation.call, _first(observation.source), _first(observation.target)
    if observation.skipped:
        return _Finding(Judgement.UNJUDGED, reason=observation.skipped)
    if call.partial:
        return _Finding(Judgement.UNJUDGED, reason=f"partial: {call.partial}")
    if target is None:
        return _Finding(Judgement.UNJUDGED, reason="the target was not asked")
    for side, asked in (("source", source), ("target", target)):
        if asked is not None and asked.answer.unanswered:
            return _Finding(Judgement.UNJUDGED, _unanswered(source, target), f"no answer of the {side}")
    found = (
        _with_capture(call, target.answer) if source is None
        else _both(call, source.answer, target.answer, meaning)
    )  # fmt: skip
    if found.state is Judgement.DIFFERENT and "by_text" not in found.marks and (observation.stale or observation.racy):
        found.state = Judgement.INDETERMINATE
        found.reason = (
            "stale data: the answers did not settle when asked again" if observation.stale
            else "racy: another session's captured interval overlaps on the same key"
        )  # fmt: skip
    return found


def _weigh_assumed(found: _Finding, call: Call) -> None:
    """Let an equal answer, and a difference, weigh less where what was assumed of the session could explain it."""
    assumed = [one for one in call.assumed if one != FOR_DIFFERENCES]
    if not assumed or found.state in (Judgement.UNJUDGED, Judgement.INDETERMINATE):
        return
    names = ", ".join(assumed)
    if found.state is Judgement.SAME:
        if FOR_DIFFERENCES in call.assumed:
            return
        found.marks["assumed"] = names
    elif "refused" in found.marks:
        return  # no setting lets one of two servers take a row that its keys or constraints refuse
    elif "by_text" not in found.marks or "sql_mode" in assumed:
        found.state = Judgement.INDETERMINATE
    found.reason = f"state assumed: {names}" + (f"; {found.reason}" if found.reason else "")


def _weigh_generated(found: _Finding, observation: Observation) -> None:
    """Let a difference that speaks of an id which the sides generated differently carry the name of that cause."""
    if not observation.generated or found.state is not Judgement.DIFFERENT or "by_text" in found.marks:
        return
    call = observation.call
    named = set(_NUMBER.findall(call.sql)) | {one.value for one in call.parameters or () if one.value is not None}
    shown = {text.strip("'").encode() for one in found.differences for text in (one.source, one.target)}
    causes = sorted({observation.generated[one] for one in (named | shown) & observation.generated.keys()})
    if causes:
        found.state = Judgement.INDETERMINATE
        found.reason = f"follows from generated ids that differ: {', '.join(causes)}"


def _not_recurred(captured: Captured, source: Answer, target: Answer) -> Iterator[Difference]:
    """Yield what production saw and neither side repeats, where both sides agree."""
    if captured.errno and not alike(captured.errno, source.errno):
        yield _gone(f"error {source.errno}" if source.errno else "ok", f"error {captured.errno}")
    if captured.errno or source.errno or target.errno:
        return
    seen, ours, theirs = captured.rows_affected, source.affected, target.affected
    if source.columns:
        seen, ours, theirs = captured.rows_sent, source.row_count, target.row_count
    if seen is not None and ours == theirs and seen not in (ours, changed_rows(source)):
        yield _gone(str(ours), f"{seen} rows")


def _gone(now: str, captured: str) -> Difference:
    return Difference("did-not-recur", DifferenceSeverity.INFO, now, now, detail=f"captured: {captured}")


def _both(call: Call, source: Answer, target: Answer, meaning: Meaning) -> _Finding:
    words = render.outcome(source), render.outcome(target)
    gone = tuple(_not_recurred(call.captured, source, target))
    outcome = compare_outcomes(call.captured.errno, source.errno, target.errno, words)
    if outcome.state is not None:
        found = _of_outcome(outcome, source, target)
        found.differences += gone if outcome.state is Judgement.SAME else ()
        return found
    pinned = call.clock is not None or call.start is not None  # the replay sets it for what looks at it
    found = _of_answers(compare_answers(call.sql, source, target, meaning, pinned=pinned))
    found.differences += gone
    return found


def _of_answers(answers: AnswersResult) -> _Finding:
    marks = {"unproven": answers.reason} if answers.unproven else {}
    if answers.masked:
        marks["masked"] = answers.masked
    if answers.undecided:
        # what the surroundings decide stays decided, equal rows or not
        hard = [one for one in answers.surrounding if one.severity in _DECISIVE]
        state = Judgement.DIFFERENT if hard else Judgement.INDETERMINATE
        return _Finding(state, (*answers.surrounding, *answers.rows), answers.reason, marks)
    every = (*answers.surrounding, *answers.rows)
    decisive = any(one.severity in _DECISIVE for one in every)
    return _Finding(Judgement.DIFFERENT if decisive else Judgement.SAME, every, "", marks)


def _of_outcome(outcome: OutcomeComparison, source: Answer, target: Answer) -> _Finding:
    state = outcome.state or Judgement.INDETERMINATE
    differences = outcome.differences
    if state is Judgement.SAME and source.sqlstate != target.sqlstate:
        differences = (
            *differences,
            Difference("sqlstate", DifferenceSeverity.METADATA, source.sqlstate, target.sqlstate),
        )
    marks = {"by_text": "1"} if outcome.by_text else {}
    blocks = any(one.severity is DifferenceSeverity.BLOCKER for one in differences)
    if blocks and not target.errno and kind_of(source.errno) in REFUSES_ROWS:
        marks["refused"] = "1"
    return _Finding(state, differences, outcome.reason, marks)


def _with_capture(call: Call, target: Answer) -> _Finding:
    """Judge the target alone: the captured outcome, row count and affected rows are all there is."""
    captured = call.captured
    outcome_then = "not known" if captured.errno is None else f"error {captured.errno}" if captured.errno else "ok"
    outcome = against_capture(captured.errno, target.errno, (f"{outcome_then} (captured)", render.outcome(target)))
    shallow = {"shallow": "compared with the capture only"}
    if outcome.state is not None:
        marks = shallow | ({"by_text": "1"} if outcome.by_text else {})
        return _Finding(outcome.state, outcome.differences, outcome.reason, marks)
    counts: list[Difference] = []
    known = captured.errno is not None
    if captured.rows_sent is not None and target.columns:
        known = True
        if captured.rows_sent != target.row_count:
            counts.append(_count("row-count", captured.rows_sent, target.row_count))
    if captured.rows_affected is not None and not target.columns:
        known = True
        if captured.rows_affected not in (target.affected, changed_rows(target)):
            counts.append(_count("affected-rows", captured.rows_affected, target.affected))
    if counts:
        return _Finding(
            Judgement.INDETERMINATE, tuple(counts),
            "counts differ from the capture, and the data may have moved since", shallow,
        )  # fmt: skip
    if not known:
        return _Finding(Judgement.UNJUDGED, reason="the source was not asked, and the capture tells no outcome")
    return _Finding(Judgement.SAME, marks=shallow)


def _count(aspect: str, captured: int, now: int) -> Difference:
    return Difference(aspect, DifferenceSeverity.BLOCKER, str(captured), str(now), detail="captured")


def _noise(observation: Observation, meaning: Meaning) -> str:
    """Name the sides that do not answer as they did at first; empty when both do, or were asked once."""
    sides = []
    for side, asked in (("source", observation.source), ("target", observation.target)):
        first = asked[0].answer if asked else None
        if first is not None and any(_differ(observation.call, first, one.answer, meaning) for one in asked[1:]):
            sides.append(f"the {side}")
    return " and ".join(sides)


def _differ(call: Call, first: Answer, second: Answer, meaning: Meaning) -> bool:
    if first.unanswered or second.unanswered:
        return first.unanswered != second.unanswered
    if first.errno or second.errno:
        return first.errno != second.errno
    return _both(call, first, second, meaning).state in (Judgement.DIFFERENT, Judgement.INDETERMINATE)


def _unanswered(source: TimedAnswer | None, target: TimedAnswer | None) -> tuple[Difference, ...]:
    words = [render.outcome(one.answer) if one is not None else "not asked" for one in (source, target)]
    return (Difference("unanswered", DifferenceSeverity.REVIEW, *words),)


def _details(call: Call, meaning: Meaning, source: TimedAnswer | None, target: TimedAnswer | None) -> dict[str, str]:
    found = {"kind": meaning.classification.kind.value, "text": meaning.text}
    if call.start is not None or call.end is not None:
        found["at"] = str(call.start if call.start is not None else call.end)
    if call.user:
        found["user"] = call.user
    if call.state.database:
        found["database"] = call.state.database
    if call.captured.errno:
        found["captured_errno"] = str(call.captured.errno)
    for side, asked in (("source", source), ("target", target)):
        if asked is not None and asked.answer.errno:
            found[f"{side}_errno"] = str(asked.answer.errno)
    return found


def _first(asked: Sequence[TimedAnswer]) -> TimedAnswer | None:
    return asked[0] if asked else None


def _micro(nanoseconds: int) -> int:
    return max(nanoseconds, 0) // 1_000


def _latency(asked: TimedAnswer | None) -> int | None:
    return None if asked is None or asked.answer.unanswered else _micro(asked.ended - asked.intended)


def _service(asked: TimedAnswer | None) -> int | None:
    return None if asked is None or asked.answer.unanswered else _micro(asked.ended - asked.begun)

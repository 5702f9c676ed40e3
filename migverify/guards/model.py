"""The nouns of guards: one question's answer, a guard's answers, and what a guard is. Frozen, typed, without I/O."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from migverify.errors import MigverifyError
from migverify.model import Verdict

Facts = TypeVar("Facts")


class AnswerState(StrEnum):
    """The state of one answer. INCONCLUSIVE: the server did not report it, so nobody may rely on it."""

    PASS = "pass"  # noqa: S105 - a state, no password
    WARN = "warn"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class GuardAnswer:
    """The answer to one question.

    Parameters
    ----------
    guard, name, subject
        Which guard asks (``check``, ``schema``, ``ids``, ``monitors``, ``capacity``, ``hotspots``, ``plans``), what it
        asks, and of what: an endpoint, ``endpoint/database.table``, a monitor's target. Together they name the answer
        over time.
    state
        INCONCLUSIVE where nothing was reported: never PASS by default. WARN does not fail a gate, and is shown.
    value, threshold
        What was found and what was wanted, as texts for a reader; ``numbers`` holds what a metric shows.
    query
        A statement or a request that shows ``value`` again; never a secret.
    why, todo
        Why it matters and what to do; ``todo`` is empty when there is nothing to do.
    server_time, local_time
        Both clocks when the answer was read, Unix seconds; ``server_time`` is None where no server reported its own.
    """

    guard: str
    name: str
    subject: str
    state: AnswerState
    value: str
    threshold: str
    query: str
    why: str
    todo: str = ""
    server_time: float | None = None
    local_time: float = 0.0
    numbers: Mapping[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the answer as a JSON object; times stay Unix seconds."""
        return {
            "guard": self.guard, "name": self.name, "subject": self.subject, "state": self.state.value,
            "value": self.value, "threshold": self.threshold, "query": self.query, "why": self.why, "todo": self.todo,
            "server_time": self.server_time, "local_time": self.local_time, "numbers": dict(self.numbers),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one question found. An empty text means the question's own; ``part`` names one of several results."""

    state: AnswerState
    value: str
    todo: str = ""
    part: str = ""
    threshold: str = ""
    query: str = ""
    why: str = ""
    subject: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)


def passed(value: str, *rest: Any, **more: Any) -> CheckResult:
    """Return a result that passes; ``rest`` and ``more`` are fields of ``CheckResult``, here and below."""
    return CheckResult(AnswerState.PASS, value, *rest, **more)


def warned(value: str, *rest: Any, **more: Any) -> CheckResult:
    """Return a result that is shown and does not fail."""
    return CheckResult(AnswerState.WARN, value, *rest, **more)


def failed(value: str, *rest: Any, **more: Any) -> CheckResult:
    """Return a result that fails."""
    return CheckResult(AnswerState.FAIL, value, *rest, **more)


def unknown(value: str, *rest: Any, **more: Any) -> CheckResult:
    """Return the result of a question that the server did not answer."""
    return CheckResult(AnswerState.INCONCLUSIVE, value, *rest, **more)


@dataclass(frozen=True, slots=True)
class GuardQuestion(Generic[Facts]):
    """One question of a guard.

    Parameters
    ----------
    name, subject
        What is asked, and of what where every result is of the same.
    threshold, query, why, todo
        What is expected, what shows it again, why it matters, and what to do where it does not pass.
    ask
        Judges what the guard read.
    """

    name: str
    threshold: str = ""
    query: str = ""
    why: str = ""
    todo: str = ""
    ask: Callable[[Facts], Iterable[CheckResult]] | None = None
    subject: str = ""

    def answer(
        self, guard: str, result: CheckResult, subject: str = "", *, server_time: float | None, local_time: float
    ) -> GuardAnswer:
        """Return the answer that a result is; what the result leaves open is the question's own."""
        return GuardAnswer(
            guard, f"{self.name} {result.part}".strip(), result.subject or subject or self.subject, result.state,
            result.value, result.threshold or self.threshold, result.query or self.query, result.why or self.why,
            "" if result.state is AnswerState.PASS else result.todo or self.todo, server_time, local_time,
            result.numbers,
        )  # fmt: skip


def answered(
    guard: str, questions: Iterable[GuardQuestion[Facts]], facts: Facts, clock: Callable[[str], float | None]
) -> tuple[GuardAnswer, ...]:
    """Put questions about what a guard has read already.

    Parameters
    ----------
    clock
        Subject of a result -> the time its server reported, Unix seconds; None where none did.
    """
    return tuple(
        question.answer(guard, result, server_time=clock(result.subject or question.subject), local_time=time.time())
        for question in questions if question.ask is not None
        for result in question.ask(facts)
    )  # fmt: skip


def offset_state(offset: float, uncertainty: float, most: float) -> AnswerState:
    """Judge a clock that is known to within an uncertainty, all in seconds: INCONCLUSIVE where that hides the limit."""
    if abs(offset) - uncertainty > most:
        return AnswerState.FAIL
    return AnswerState.INCONCLUSIVE if abs(offset) + uncertainty > most else AnswerState.PASS


def first_line(error: Exception) -> str:
    """Return a refusal without the statement below it."""
    return str(getattr(error, "message", error)).split("\n")[0]


def one_line(error: MigverifyError) -> str:
    """Return a refusal, the statement below it included, in one line; without the hint."""
    return " ".join(error.message.split())


def listed(names: Sequence[str], most: int = 10, separator: str = ", ") -> str:
    """Return names for a reader: the first ones, and how many more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more


@dataclass(frozen=True, slots=True)
class GuardResult:
    """All answers of one asking of one guard. ``unasked`` says which questions could not be put, and why."""

    guard: str
    answers: tuple[GuardAnswer, ...]
    started: float
    seconds: float
    unasked: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def state(self) -> AnswerState:
        """FAIL beats INCONCLUSIVE beats WARN beats PASS; no answers at all is INCONCLUSIVE."""
        states = {answer.state for answer in self.answers}
        if AnswerState.FAIL in states:
            return AnswerState.FAIL
        if not states or self.unasked or AnswerState.INCONCLUSIVE in states:
            return AnswerState.INCONCLUSIVE
        return AnswerState.WARN if AnswerState.WARN in states else AnswerState.PASS

    @property
    def verdict(self) -> Verdict:
        """The same as a verdict: a warning still passes."""
        state = self.state
        if state is AnswerState.FAIL:
            return Verdict.MISMATCH
        return Verdict.INCONCLUSIVE if state is AnswerState.INCONCLUSIVE else Verdict.MATCH

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it does not pass, the failures first."""
        if not self.answers and not self.unasked:
            return ("nothing was asked",)
        words = {AnswerState.FAIL: "", AnswerState.INCONCLUSIVE: " is not known"}
        reported = [
            f"{answer.subject}: {answer.name}{words[answer.state]}: {answer.value}"
            for state in words
            for answer in self.answers
            if answer.state is state
        ]
        return (*reported, *self.unasked)


class StandingGuard(Protocol):
    """A standing question. Asking it again is cheap enough for a watch; it writes nothing."""

    name: str

    def ask(self) -> GuardResult:
        """Ask now.

        Raises
        ------
        MigverifyError
            the configuration is wrong; a server that does not answer is INCONCLUSIVE instead.
        """
        ...


def worst(results: Iterable[GuardResult]) -> Verdict:
    """Return the verdict of several guards; none at all is INCONCLUSIVE."""
    return Verdict.worst([result.verdict for result in results])

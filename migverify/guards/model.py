"""The nouns of guards: one question's answer, a guard's answers, and what a guard is. Frozen, typed, without I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from migverify.model import Verdict


class State(StrEnum):
    """The state of one answer. INCONCLUSIVE: the server did not report it, so nobody may rely on it."""

    PASS = "pass"  # noqa: S105 - a state, no password
    WARN = "warn"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one question.

    Parameters
    ----------
    guard, name, subject
        Which guard asks (``check``, ``schema``, ``ids``, ``monitors``, ``capacity``), what it asks, and of what: an
        endpoint, ``endpoint/database.table``, a monitor's target. Together they name the answer over time.
    state
        INCONCLUSIVE where nothing was told: never PASS by default. WARN does not fail a gate, and is shown.
    value, threshold
        What was found and what was wanted, as texts for a reader; ``numbers`` holds what a metric shows.
    query
        A statement or a request that shows ``value`` again; never a secret.
    why, todo
        Why it matters and what to do; ``todo`` is empty when there is nothing to do.
    server_time, local_time
        Both clocks when the answer was read, Unix seconds; ``server_time`` is None where no server told its own.
    """

    guard: str
    name: str
    subject: str
    state: State
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
class GuardResult:
    """All answers of one asking of one guard. ``unasked`` says which questions could not be put, and why."""

    guard: str
    answers: tuple[Answer, ...]
    started: float
    seconds: float
    unasked: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def state(self) -> State:
        """FAIL beats INCONCLUSIVE beats WARN beats PASS; no answers at all is INCONCLUSIVE."""
        states = {answer.state for answer in self.answers}
        if State.FAIL in states:
            return State.FAIL
        if not states or self.unasked or State.INCONCLUSIVE in states:
            return State.INCONCLUSIVE
        return State.WARN if State.WARN in states else State.PASS

    @property
    def verdict(self) -> Verdict:
        """The same as a verdict: a warning still passes."""
        state = self.state
        if state is State.FAIL:
            return Verdict.MISMATCH
        return Verdict.INCONCLUSIVE if state is State.INCONCLUSIVE else Verdict.MATCH

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it does not pass, the failures first."""
        if not self.answers and not self.unasked:
            return ("nothing was asked",)
        words = {State.FAIL: "", State.INCONCLUSIVE: " could not be told"}
        told = [
            f"{answer.subject}: {answer.name}{words[answer.state]}: {answer.value}"
            for state in words
            for answer in self.answers
            if answer.state is state
        ]
        return (*told, *self.unasked)


class Guard(Protocol):
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

"""Work that takes time, each in a thread of its own, so that timers, guards and the lease go on meanwhile."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from migverify.runbook.actions.action import CheckOutcome, Context, Registry, ask
from migverify.runbook.model import Check

__all__ = ["Bench", "Key", "ask_all", "verdict_of"]

CHECK_SECONDS = 60.0
"""For one question, unless its arguments say ``timeout``."""


@dataclass(frozen=True, slots=True)
class Key:
    """What a piece of work is for: ``purpose`` is ``effect``, ``verify``, ``probe``, ``undo``, ``undone``, ``dry``."""

    step: str
    attempt: int
    purpose: str


class Bench:
    """Pieces of work under way. Results wait until the one thread that writes the journal takes them."""

    def __init__(self) -> None:
        self._canceled: dict[Key, threading.Event] = {}
        self._results: queue.SimpleQueue[tuple[Key, Any]] = queue.SimpleQueue()

    def begin(self, key: Key, work: Callable[[threading.Event], Any]) -> None:
        """Do something in a thread; ``work`` is handed what tells it to end early, and answers with its result."""
        canceled = self._canceled[key] = threading.Event()

        def run() -> None:
            try:
                result = work(canceled)
            except BaseException as error:  # noqa: BLE001 - the waiting thread has to learn of it
                result = error
            self._results.put((key, result))

        threading.Thread(target=run, name=f"{key.purpose} {key.step}", daemon=True).start()

    def has(self, key: Key) -> bool:
        """Tell whether a piece of work is under way, or its result not taken yet."""
        return key in self._canceled

    def cancel(self, key: Key) -> None:
        """Tell a piece of work to end; its result still comes."""
        if key in self._canceled:
            self._canceled[key].set()

    def of(self, step: str) -> list[Key]:
        """Return what is under way for a step."""
        return [key for key in self._canceled if key.step == step]

    def __len__(self) -> int:
        return len(self._canceled)

    def give_back(self, results: Sequence[tuple[Key, Any]]) -> None:
        """Put results back that could not be written down: they are under way until they are."""
        for key, result in results:
            self._canceled.setdefault(key, threading.Event())
            self._results.put((key, result))

    def results(self) -> list[tuple[Key, Any]]:
        """Take the results that are there."""
        found = []
        while not self._results.empty():
            key, result = self._results.get()
            self._canceled.pop(key, None)
            found.append((key, result))
        return found


def ask_all(
    registry: Registry, checks: Sequence[Check], context: Callable[[Check], Context], canceled: threading.Event,
    limit: float,
) -> list[CheckOutcome]:  # fmt: skip
    """Ask checks in their order; one with ``for_seconds`` must hold that long without a break.

    Parameters
    ----------
    limit
        Seconds for all; a check that has not held long enough by then has its last answer, or is inconclusive.
    """
    until = time.monotonic() + limit
    return [_hold(registry, check, context(check), canceled, until) for check in checks]


def _hold(registry: Registry, check: Check, context: Context, canceled: threading.Event, until: float) -> CheckOutcome:
    answer = ask(registry, check, context)
    if check.for_seconds <= 0:
        return answer
    since = time.monotonic() if answer.state == "pass" else None
    while True:
        now = time.monotonic()
        if since is not None and now - since >= check.for_seconds:
            return answer
        if now >= until or canceled.is_set():
            held = now - since if since is not None else 0.0
            text = f"{answer.text} - held for {held:.0f} s of {check.for_seconds:g} s"
            state = answer.state if answer.state != "pass" else "inconclusive"
            return CheckOutcome(answer.action, state, text, answer.value, answer.evidence)
        canceled.wait(min(5.0, max(0.05, check.for_seconds / 10)))
        answer = ask(registry, check, context)
        if answer.state != "pass":
            since = None
        elif since is None:
            since = time.monotonic()


def verdict_of(answers: Sequence[CheckOutcome]) -> str:
    """Return ``fail`` over ``inconclusive`` over ``pass``; no answers at all are inconclusive."""
    states = {answer.state for answer in answers}
    for state in ("fail", "inconclusive"):
        if state in states:
            return state
    return "pass" if states else "inconclusive"


def seconds_for(check: Check) -> float:
    """Return the time limit of one question."""
    wanted = check.arguments.get("timeout")
    return float(wanted) if isinstance(wanted, int | float) and 0 < wanted < 86400 else CHECK_SECONDS

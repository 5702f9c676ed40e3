"""What a sink is given to send, and how it says that a try failed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

__all__ = ["Message", "Send", "SinkError"]


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent: one line of text. ``id`` is the same in every try: ``<run>/<number of the event>``.

    ``fields`` is for programs, beside the text: service, run, step, state, environment and more. ``topic`` names what
    it is about, the same for all that is said of that: a later one may resolve an earlier one.
    """

    id: str
    run: str
    step: str
    what: str
    text: str
    at: float
    fields: Mapping[str, str] = field(default_factory=dict)
    topic: str = ""


class SinkError(Exception):
    """A try that failed.

    Parameters
    ----------
    reason
        Says no URL, no argument, no secret.
    final
        Another try would end the same.
    wait
        Seconds that the other side asks to be left alone for.
    """

    def __init__(self, reason: str, *, final: bool = False, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.reason, self.final, self.wait = reason, final, wait


Send = Callable[["Message", threading.Event], None]
"""Sends a message; raises SinkError. With the event set nobody waits for it any more."""

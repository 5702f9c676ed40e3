"""What a signal's handler may do: set an event, and say a sentence. The usual ways stop the process for ever there."""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

ENDING = (signal.SIGINT, signal.SIGTERM)
"""What a person, a terminal and a service manager send to end a program in order."""
_STDERR = 2


class SignalEvent(threading.Event):
    """An event that a signal's handler may set; it stays set.

    A handler runs in the main thread between any two of its steps. ``threading.Event.set`` takes a lock that the
    main thread holds for an instant at the beginning of ``wait``: a signal that comes then waits for itself, and so
    does the next one. ``queue.SimpleQueue`` is made for handlers.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_set = False
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._is_set

    def set(self) -> None:
        """Set it, and wake who waits."""
        self._is_set = True
        self._wakes.put(None)

    def clear(self) -> None:
        """Raise TypeError: an order to end is not taken back."""
        raise TypeError("what a signal set stays set")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, or for ``timeout`` seconds; return whether it is set."""
        if not self._is_set:
            with suppress(queue.Empty):
                self._wakes.get(timeout=None if timeout is None else max(0.0, timeout))
                self._wakes.put(None)  # for the next one who waits
        return self._is_set


def say_at_once(text: str) -> None:
    """Write a line to standard error from a handler; nothing is scrubbed, so give it no value of others.

    A stream is not asked: the main thread may be writing to it, and a write within a write raises RuntimeError.
    """
    with suppress(OSError):  # nobody reads a closed standard error
        os.write(_STDERR, f"{text}\n".encode("utf-8", "backslashreplace"))


@contextmanager
def handled(numbers: tuple[signal.Signals, ...], handle: Callable[[int], None]) -> Iterator[None]:
    """Let a function handle signals for a while; outside of the main thread, which alone may, change nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda got, _frame: handle(got)) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)

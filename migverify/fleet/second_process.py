"""Work that a second process does beside this one: the stores of a fleet are read while this one reads its journals.

Two processors are used where there are two. The second process only reads and answers once, and ends with the first.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, NoReturn, TypeVar

from migverify.errors import StoreError

T = TypeVar("T")


@contextmanager
def beside(work: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """Begin work in a process of its own, and yield a function that waits for what it returns.

    It is done by this process, when it is asked for, where there is one processor alone or where other threads run: a
    fork would copy locks that they hold.

    Raises
    ------
    StoreError
        the function that is yielded: the other process ended without an answer.
    """
    if len(os.sched_getaffinity(0)) == 1 or threading.active_count() > 1:
        yield work
        return
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        _answer(work, writing)
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as answers:
            yield lambda: _received(answers)
    finally:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)  # it has answered, or nobody asks it any more; it writes nothing
        os.waitpid(process, 0)


def _answer(work: Callable[[], T], writing: int) -> NoReturn:
    """Write what work returns, and end: nothing of what the first process would do at its end is done here."""
    try:
        try:
            answer: tuple[T | None, Exception | None] = work(), None
        except Exception as error:  # noqa: BLE001 - the first process raises it
            answer = None, error
        with os.fdopen(writing, "wb") as answers:
            pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
    finally:
        os._exit(0)


def _received(answers: BinaryIO) -> Any:
    try:
        found, error = pickle.load(answers)  # noqa: S301 - it comes from the process that was forked here
    except (EOFError, pickle.UnpicklingError):
        raise StoreError("the process that read the stores ended without an answer", hint="Read again.") from None
    if error is not None:
        raise error
    return found

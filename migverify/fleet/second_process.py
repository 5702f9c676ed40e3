"""Work that a second process does beside this one: the stores of a fleet are read while this one reads its journals.

Two processors are used where there are two: the first process takes what is left when it has done its own. The second
one only reads and answers once, and ends with the first.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, NoReturn, TypeVar

from migverify.errors import StoreError

T = TypeVar("T")
Work = Callable[[Iterable[int]], dict[int, T]]
"""Does pieces of work, and returns what each gave by its number."""
_MOST = 2_000
"""Parts into which work is cut at most: a pipe holds their numbers, of two bytes, before anybody reads it."""


@contextmanager
def beside(count: int, work: Work[T]) -> Iterator[Callable[[], list[T]]]:
    """Begin ``count`` pieces of work in a second process; yield a function that does what is left, and returns all.

    They are all done by this process, when they are asked for, where there is one processor alone or where other
    threads run: a fork would copy locks that they hold.

    Raises
    ------
    StoreError
        the function that is yielded: the other process ended without an answer.
    """
    if len(os.sched_getaffinity(0)) == 1 or threading.active_count() > 1:
        yield lambda: _in_order(count, work(range(count)))
        return
    waiting, filling = os.pipe()
    with os.fdopen(filling, "wb") as numbers:
        numbers.write(b"".join(number.to_bytes(2) for number in range(min(count, _MOST))))
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        _answer(lambda: work(_taken(waiting, count)), writing)
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as answers:
            yield lambda: _in_order(count, work(_taken(waiting, count)) | _received(answers))
    finally:
        os.close(waiting)
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)  # it has answered, or nobody asks it any more; it writes nothing
        os.waitpid(process, 0)


def _taken(waiting: int, count: int) -> Iterator[int]:
    """Yield the pieces that this process takes: a number is read from the pipe by one of the two alone."""
    while number := os.read(waiting, 2):
        yield from range(int.from_bytes(number), count, _MOST)


def _in_order(count: int, found: dict[int, T]) -> list[T]:
    return [found[piece] for piece in range(count)]


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

"""Work in this process, or in several processes of this machine."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Protocol, TypeVar

from migverify.errors import ReadError, UsageError

_Argument = TypeVar("_Argument")
_Answer = TypeVar("_Answer")


@contextmanager
def without_collections() -> Iterator[None]:
    """Let the collector of cycles rest: records are many and hold none, and it takes a fifth of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Tasks(Protocol):
    """Runs a function of a module on arguments, several at the same time."""

    def map(
        self, work: Callable[[_Argument], _Answer], arguments: Sequence[_Argument]
    ) -> Iterator[tuple[int, _Answer]]:
        """Yield answers with the number of their arguments, in any order."""
        ...


class Processes:
    """Runs in this process, or in ``jobs`` others, which begin with the first work that is more than one argument."""

    def __init__(self, jobs: int = 1) -> None:
        if jobs < 1:
            raise UsageError(f"--jobs must be at least 1, not {jobs}.")
        self._jobs = jobs
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def map(
        self, work: Callable[[_Argument], _Answer], arguments: Sequence[_Argument]
    ) -> Iterator[tuple[int, _Answer]]:
        """See ``Tasks``.

        Raises
        ------
        ReadError
            a process ended before its time.
        """
        if self._jobs == 1 or len(arguments) < 2:
            return ((number, work(one)) for number, one in enumerate(arguments))
        if self._pool is None:  # spawned: a fork of a process with Arrow's threads may hang
            self._pool = ProcessPoolExecutor(self._jobs, mp_context=get_context("spawn"))
        return self._each(self._pool, work, arguments)

    def _each(
        self, pool: ProcessPoolExecutor, work: Callable[[_Argument], _Answer], arguments: Sequence[_Argument]
    ) -> Iterator[tuple[int, _Answer]]:
        waiting: dict[Future[_Answer], int] = {}
        left = iter(enumerate(arguments))
        try:
            while True:
                for number, one in left:
                    waiting[pool.submit(work, one)] = number
                    if len(waiting) >= 2 * self._jobs:
                        break
                if not waiting:
                    return
                over, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in over:
                    yield waiting.pop(future), future.result()
        except BrokenProcessPool as error:
            raise ReadError(
                "a worker process ended before its time.", hint="Is there enough memory? Try fewer --jobs."
            ) from error

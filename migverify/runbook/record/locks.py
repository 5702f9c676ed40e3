"""Exclusive locks of files, between processes and, as far as the file system takes them there, between machines."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from migverify.errors import StoreError

__all__ = ["LOCK_SECONDS", "locked"]

LOCK_SECONDS = 20.0


@contextmanager
def locked(path: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold an exclusive lock of a file.

    Raises
    ------
    StoreError
        it is not to be had within ``seconds``, or the file system has no locks.
    """
    try:
        file = path.open("ab")
    except OSError as error:
        raise StoreError(f"{path} cannot be opened: {error.strerror}") from error
    with file:
        _wait_for(file.fileno(), path, seconds)
        yield


def _wait_for(handle: int, path: Path, seconds: float) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise StoreError(
                    f"{path}: locked by somebody else for {seconds:g} s",
                    hint="A writer holds it for milliseconds: look for one that is stopped.",
                ) from None
            time.sleep(0.005)
        except OSError as error:
            raise StoreError(f"{path} cannot be locked: {error.strerror}") from error
        else:
            return

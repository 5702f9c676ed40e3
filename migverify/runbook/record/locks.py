"""Exclusive locks of files, between processes and, as far as the file system takes them there, between machines."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from migverify.errors import StoreError

__all__ = ["LOCK_SECONDS", "locked", "open_own"]

LOCK_SECONDS = 20.0


def open_own(path: Path, flags: int, mode: int = 0o640) -> int:
    """Open a file of a run. A symbolic link in its place is refused: it would have another file written.

    Raises StoreError: it cannot be opened, or is a link, a pipe or a device.
    """
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, mode)  # a pipe is waited for else
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return handle
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no regular file")
    except OSError as error:
        why = "is a symbolic link, and is not followed" if path.is_symlink() else f"cannot be opened: {error.strerror}"
        hint = "Files of a run belong to the run: look who put it there."
        if isinstance(error, FileNotFoundError):
            hint = "It, or its folder, was taken away: put it back, or begin again."
        raise StoreError(f"{path} {why}", hint=hint) from error


@contextmanager
def locked(path: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold an exclusive lock of a file.

    Raises StoreError: it is not to be had within ``seconds``, or the file system has no locks.
    """
    with os.fdopen(open_own(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as file:
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

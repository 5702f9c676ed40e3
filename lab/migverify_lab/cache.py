"""Where built servers are kept, and locks that hold between processes."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from migverify.errors import LabError

Progress = Callable[[str], None]
"""Receives one line of text at a time; never called with a secret."""


def cache_directory() -> Path:
    """Return the folder of built servers: ``$MIGVERIFY_CACHE``, else ``~/.cache/migverify``. Creates it.

    Raises
    ------
    LabError
        When the folder cannot be created.
    """
    chosen = os.environ.get("MIGVERIFY_CACHE")
    path = Path(chosen) if chosen else Path.home() / ".cache" / "migverify"
    return make_directory(path.absolute(), hint="Set MIGVERIFY_CACHE to a folder you may write to.")


def make_directory(path: Path, hint: str = "Choose a folder you may write to.") -> Path:
    """Create a folder and its parents unless it exists, and return it; raises LabError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"cannot create the folder {path}: {error.strerror}", hint=hint) from error
    return path


@contextmanager
def file_lock(path: Path, on_wait: Progress | None = None, seconds: float = 1800.0) -> Iterator[None]:
    """Hold an exclusive lock on ``path`` between processes; the kernel drops it when the holder dies.

    Parameters
    ----------
    path
        The lock file; created, never removed (removing it would let two holders in).
    on_wait
        Told once when somebody else holds the lock.
    seconds
        How long to wait.

    Raises
    ------
    LabError
        When the lock is not free in time or the file cannot be made.
    """
    make_directory(path.parent)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise LabError(
            f"cannot open the lock file {path}: {error.strerror}", hint="Choose a folder you may write to."
        ) from error
    try:
        deadline = time.monotonic() + seconds
        is_reported = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if on_wait is not None and not is_reported:
                    on_wait(f"waiting for another process that holds {path}")
                    is_reported = True
                if time.monotonic() > deadline:
                    raise LabError(
                        f"another process has held {path} for {seconds:.0f} s",
                        hint="Look for a stuck `migverify lab up` and end it.",
                    ) from None
                time.sleep(0.1)
        yield
    finally:
        os.close(handle)


@contextmanager
def install_into(final: Path) -> Iterator[Path]:
    """Give a new folder beside ``final``; on leaving without an error it becomes ``final`` in one rename.

    A half-made folder never carries the final name, so whoever sees that name may use it. Call it only while
    holding the lock of ``final``.
    """
    make_directory(final.parent)
    staging = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
    try:
        yield staging
        staging.chmod(0o755)
        staging.rename(final)
    finally:
        if staging.exists():
            shutil.rmtree(staging, ignore_errors=True)

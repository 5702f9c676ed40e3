"""Files of a share: replaced in one rename, forced to the disk, and put back without needing room on it.

And the locks beside them, which all who change a share have to hold.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from migverify.errors import StoreError, TrafficError
from migverify.runbook.record.locks import locked

__all__ = ["beside", "change_locks", "put_back", "replace_text"]

_LOCK_SECONDS = 2.0


@contextmanager
def change_locks(paths: Iterable[Path], *, own_folder: bool = False) -> Iterator[None]:
    """Hold these locks, taken in the order of their paths so that two writers cannot cross.

    Parameters
    ----------
    own_folder
        The folder is this tool's own, and is made where it is missing.

    Raises
    ------
    TrafficError
        another change is under way, or a folder cannot be made.
    """
    with ExitStack() as stack:
        for path in sorted(paths):
            try:
                if own_folder:
                    path.parent.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(path, _LOCK_SECONDS))
            except StoreError as error:
                raise TrafficError(f"another change may be under way: {error.message}") from None
            except OSError as error:
                raise TrafficError(f"{path.parent} cannot be made: {error.strerror}") from None
        yield


def beside(path: Path, what: str) -> Path:
    """Return the name of a file of ours beside another; `include *.conf` of that folder does not take it."""
    return path.with_name(f".{path.name}.{what}")


def replace_text(path: Path, text: str) -> None:
    """Replace a file in one rename; the one before stays as a second name, which needs no room on a full disk.

    Raises
    ------
    TrafficError
        it cannot be written; the old file is untouched.
    """
    own = f"{os.getpid()}.{threading.get_ident()}"
    draft, spare, previous = beside(path, f"draft.{own}"), beside(path, f"spare.{own}"), beside(path, "before")
    try:
        _sweep(path)
        with draft.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            draft.chmod(path.stat().st_mode & 0o777)
            os.link(path, spare)
            spare.replace(previous)
        draft.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):  # the error that is reported is the first one
            draft.unlink(missing_ok=True)
        raise TrafficError(f"{path} cannot be written: {error.strerror}; the old file is untouched") from None


def _sweep(path: Path) -> None:
    """Remove what a writer left that was killed: the lock is held, so nobody else is at it."""
    for what in ("draft", "spare"):
        for one in path.parent.glob(f".{path.name}.{what}.*"):
            one.unlink(missing_ok=True)


def put_back(path: Path, text: str) -> None:
    """Have a text in place again: by the second name where that holds it, so that a full disk does not matter.

    Raises
    ------
    TrafficError
        it cannot be put back.
    """
    previous = beside(path, "before")
    try:
        if previous.exists() and previous.read_text(encoding="utf-8") == text:
            previous.replace(path)
            _sync_folder(path.parent)
            return
    except OSError as error:
        raise TrafficError(f"{path}: the old file cannot be put back: {error.strerror}") from None
    replace_text(path, text)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

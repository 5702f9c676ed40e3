"""Files that hold statements: for their owner alone, independent of the umask and of what is there before.

In a folder that others may write to (``/tmp``), a name may be taken already: a link would have another file
overwritten, a foreign folder would let its owner read or replace what is written there. Both are refused.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from migverify.errors import UsageError

FILE, FOLDER = 0o600, 0o700
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def private(path: str | Path, flags: int) -> int:
    """Open a file that only its owner may read; an ``opener`` of ``open``. Returns its descriptor.

    Raises
    ------
    UsageError
        there is a link, another user's file, or no file but a FIFO or a device.
    """
    safe = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # of a FIFO, open would wait for its other end
    try:
        handle = os.open(path, flags & ~os.O_TRUNC | safe, FILE)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _refused(path, "is a link or a FIFO") from None
        raise
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise _refused(path, "is not a regular file")
        if status.st_nlink > 1:
            raise _refused(path, "is another file's second name (a hard link)")
        _check_owner(path, status)
        os.fchmod(handle, FILE)  # it may be an older file
        if flags & os.O_TRUNC:  # not before it is known whose file it is
            os.ftruncate(handle, 0)
    except BaseException:
        os.close(handle)
        raise
    return handle


def private_folder(folder: Path, *, exist_ok: bool = False) -> None:
    """Make a folder that only its owner may enter.

    Raises
    ------
    UsageError
        there is a link, another user's folder, or one that others may write to.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=FOLDER)
    except FileExistsError:
        if not exist_ok:
            raise
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _refused(folder, "is a link or not a folder") from None
        raise
    try:
        status = os.fstat(handle)
        _check_owner(folder, status)
        if status.st_mode & _OTHERS_WRITE:
            raise _refused(folder, f"may be written to by other users (mode {stat.S_IMODE(status.st_mode):o})")
        os.fchmod(handle, FOLDER)
    finally:
        os.close(handle)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read."""
    with open(path, "wb", opener=private) as file:
        file.write(content)


def _check_owner(path: str | Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise _refused(path, f"belongs to another user (uid {status.st_uid}, this process is uid {os.geteuid()})")


def _refused(path: str | Path, why: str) -> UsageError:
    return UsageError(
        f"{path} {why}: statements are not written there.",
        hint="Remove it, or name another place that only this user may write to.",
    )

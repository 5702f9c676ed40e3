"""Files that are written whole or not at all, and never through a link that somebody put there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["write_whole", "written_whole"]


@contextmanager
def written_whole(path: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """Lend a new file beside the one that is meant, and put it there when everything is written.

    Its name cannot be foreseen, and it is made exclusively: in a folder that others may write to, a link in its place
    would have another file overwritten. A link at ``path`` itself is replaced, not followed.

    Parameters
    ----------
    mode
        Default: as the umask has it.

    Raises
    ------
    OSError
        it cannot be written; an older file of that name stays as it was.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    fresh = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            os.fchmod(file.fileno(), 0o666 & ~_umask() if mode is None else mode)
        fresh.replace(path)
    except BaseException:
        with suppress(OSError):
            fresh.unlink()
        raise


def write_whole(path: Path, content: bytes, mode: int | None = None) -> None:
    """Write a file whole or not at all; a reader sees the old one or the new one. Raises OSError."""
    with written_whole(path, mode) as file:
        file.write(content)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask

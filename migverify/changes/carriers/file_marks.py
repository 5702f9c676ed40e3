"""What followed files held when they were read last, so that a file that lost its end meanwhile is noticed.

The marks are JSON: for each file, by its absolute path, its size and a hash of the last bytes before that place. Files
are appended to only, so these bytes stay; where they differ, messages may be gone that nobody has read.

With them are kept places from which a file can be read again, so that a watch that is resumed does not read what a
night has written: each with what the messages before it say, by which it is chosen.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias

from migverify.errors import ChangeError, StoreError
from migverify.files import write_whole

_HASHED = 4096
_SAVE_SECONDS = 1.0
_SHARE = 20
"""Writing the marks may take this small a part of the time: those of hundreds of files are megabytes."""
_APART = 1 << 20
"""Bytes between two places from which a file can be read again."""
_MOST_RESTARTS = 200


class Restart(NamedTuple):
    """A place from which a file can be read again: the byte, the messages before it, and what they say.

    ``highest`` is the highest commit timestamp of the changes before it, ``promised`` the highest watermark. ``behind``
    is the position where a reader began that read messages without their changes before the place, 0 for none.
    """

    byte: int
    number: int
    highest: int
    promised: int
    last_bytes: str = ""
    behind: int = 0


class _Mark(NamedTuple):
    size: int
    last_bytes: str

    @classmethod
    def of(cls, file: BinaryIO, size: int) -> _Mark:
        """Return the mark of a file at a size."""
        start = max(0, size - _HASHED)
        return cls(size, sha256(os.pread(file.fileno(), size - start, start)).hexdigest())


_Marks: TypeAlias = dict[str, _Mark]
_Restarts: TypeAlias = dict[str, list[Restart]]


class FileMarks:
    """The marks of followed files, kept in a file of their own.

    The files are held open: one that takes the place of another cannot be marked in its stead.

    Raises
    ------
    StoreError
        The marks cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._marks, self._restarts = _load(path)
        self._files: dict[str, BinaryIO] = {}
        self._saved = 0.0
        self._pause = _SAVE_SECONDS
        self._closing = ExitStack()

    def open(self, paths: Sequence[Path]) -> None:
        """Open the files that are followed; ChangeError where one does not hold what it held, OSError as ``open``."""
        for path in paths:
            name = str(path.absolute())
            self._files[name] = self._closing.enter_context(path.open("rb"))
            self._refuse_another(name)

    def note(self, path: Path, restart: Restart) -> None:
        """Keep a place from which a file can be read again; the older ones become fewer."""
        name = str(path.absolute())
        kept = self._restarts.setdefault(name, [])
        if not restart.promised or restart.byte - (kept[-1].byte if kept else 0) < _APART:
            return
        kept.append(restart._replace(last_bytes=_Mark.of(self._files[name], restart.byte).last_bytes))
        if len(kept) > _MOST_RESTARTS:
            half = len(kept) // 2
            kept[:half] = kept[:half:2]

    def restart(self, path: Path, since: int) -> Restart | None:
        """Return the last place of a file that has every change behind a position after it; None is its beginning.

        All that the messages before it say is over at the position: changes, and a watermark below it. A message
        without its change may have left out one of any time, and was given to whoever has moved on since it was read:
        so a position that a reader only began at is none for a place behind such a message.
        """
        name = str(path.absolute())
        kept = self._restarts.get(name, [])
        for one in reversed(kept):
            if max(one.highest, one.promised, one.behind + 1) <= since and self._holds(name, one):
                # What lies behind is noted again as it is read.
                del kept[kept.index(one) + 1 :]
                return one
        kept.clear()
        return None

    def _holds(self, name: str, restart: Restart) -> bool:
        return _Mark.of(self._files[name], restart.byte).last_bytes == restart.last_bytes

    def save(self) -> None:
        """Mark what the files hold now, at most once a second; errors as ``open``, and StoreError."""
        begun = time.monotonic()
        if begun - self._saved < self._pause:
            return
        for name in self._files:
            self._refuse_another(name)
        self._write()
        self._pause = max(_SAVE_SECONDS, _SHARE * (time.monotonic() - begun))

    def close(self) -> None:
        """Mark what the files hold, but not those that have changed: they are refused the next time too."""
        with self._closing:
            for name in list(self._files):
                with suppress(OSError):
                    if self._is_same(name):
                        continue
                del self._files[name]
            self._write()

    def _is_same(self, name: str) -> bool:
        known = self._marks.get(name)
        file = self._files[name]
        return known is None or (os.fstat(file.fileno()).st_size >= known.size and _Mark.of(file, known.size) == known)

    def _refuse_another(self, name: str) -> None:
        if not self._is_same(name):
            raise ChangeError(
                f"{name} became shorter or was replaced while nobody read it: messages may be gone.",
                hint="Verify the tables again, and begin a new watch from that verification.",
            )

    def _write(self) -> None:
        try:
            for name, file in self._files.items():
                self._marks[name] = _Mark.of(file, os.fstat(file.fileno()).st_size)
            document = {
                name: {**mark._asdict(), "restarts": self._restarts.get(name, [])} for name, mark in self._marks.items()
            }
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, json.dumps(document).encode("ascii") + b"\n", 0o600)
        except OSError as error:
            raise StoreError(f"cannot write the marks of followed files {self._path}: {error.strerror}") from error
        self._saved = time.monotonic()


def _load(path: Path) -> tuple[_Marks, _Restarts]:
    if not path.exists():
        return {}, {}
    try:
        document = json.loads(path.read_bytes())
        marks = {str(name): _Mark(mark["size"], mark["last_bytes"]) for name, mark in document.items()}
        # Earlier versions kept no places.
        restarts = {str(name): [Restart(*one) for one in mark.get("restarts", [])] for name, mark in document.items()}
        numbers = [mark.size for mark in marks.values()]
        numbers += [number for kept in restarts.values() for one in kept for number in (*one[:4], one.behind)]
        if not all(isinstance(number, int) and number >= 0 for number in numbers):
            raise ValueError("a number")
        return marks, restarts
    except OSError as error:
        raise StoreError(f"cannot read the marks of followed files {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{path} holds no marks of followed files") from error

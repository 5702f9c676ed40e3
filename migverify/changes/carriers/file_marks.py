"""What followed files held when they were read last, so that a file that lost its end meanwhile is noticed.

The marks are JSON: for each file, by its absolute path, its size and a hash of the last bytes before that place. Files
are appended to only, so these bytes stay; where they differ, messages may be gone that nobody has read.
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


class _Mark(NamedTuple):
    size: int
    last_bytes: str

    @classmethod
    def of(cls, file: BinaryIO, size: int) -> _Mark:
        """Return the mark of a file at a size."""
        start = max(0, size - _HASHED)
        return cls(size, sha256(os.pread(file.fileno(), size - start, start)).hexdigest())


_Marks: TypeAlias = dict[str, _Mark]


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
        self._marks = _load(path)
        self._files: dict[str, BinaryIO] = {}
        self._saved = 0.0
        self._closing = ExitStack()

    def open(self, paths: Sequence[Path]) -> None:
        """Open the files that are followed; ChangeError where one does not hold what it held, OSError as ``open``."""
        for path in paths:
            name = str(path.absolute())
            self._files[name] = self._closing.enter_context(path.open("rb"))
            self._refuse_another(name)

    def save(self) -> None:
        """Mark what the files hold now, at most once a second; errors as ``open``, and StoreError."""
        if time.monotonic() - self._saved < _SAVE_SECONDS:
            return
        for name in self._files:
            self._refuse_another(name)
        self._write()

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
            document = {name: mark._asdict() for name, mark in self._marks.items()}
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, json.dumps(document, indent=1).encode("ascii") + b"\n", 0o600)
        except OSError as error:
            raise StoreError(f"cannot write the marks of followed files {self._path}: {error.strerror}") from error
        self._saved = time.monotonic()


def _load(path: Path) -> _Marks:
    if not path.exists():
        return {}
    try:
        document = json.loads(path.read_bytes())
        marks = {str(name): _Mark(mark["size"], mark["last_bytes"]) for name, mark in document.items()}
        if not all(isinstance(mark.size, int) and mark.size >= 0 for mark in marks.values()):
            raise ValueError("a size")
        return marks
    except OSError as error:
        raise StoreError(f"cannot read the marks of followed files {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{path} holds no marks of followed files") from error

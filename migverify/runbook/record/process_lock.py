"""Whether something that was started for an effect still works at it, on this machine or on a server.

An effect is carried out by a process of its own, which goes on when the executor is gone. It holds the *process lock*,
and so does everything that inherits its handle. Every program that it starts has a mark in its environment, which also
finds what closes its handles or leaves its session. A program that is meant to go on (a service) is started with
``MIGVERIFY_EFFECT=service``. What a statement of the effect runs on is in the effect's record before it is sent.

A run that an effect starts has effects of its own: their programs have the marks of all, outermost first
(``OUTER,INNER``), and each effect waits for them. Where that run was started as a service (``service,INNER``),
``INNER`` alone does.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from migverify.codec import parse_json
from migverify.errors import FencedError, StoreError
from migverify.runbook.record.locks import open_own

__all__ = [
    "MARK",
    "SERVICE",
    "EffectFiles",
    "EffectStatement",
    "Process",
    "adopt_orphans",
    "at_work",
    "descendants",
    "marks_with",
    "note_statement",
    "process_lock",
    "read_record",
    "statements_of",
    "write_record",
]  # fmt: skip

MARK = "MIGVERIFY_EFFECT"
SERVICE = "service"
_PROC = Path("/proc")
_RECORD_BYTES = 16 << 20
_SHOWN = 5
_COMMAND = 120
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class EffectFiles:
    """Where an attempt of an effect has its lock and its record, and the mark of its programs."""

    folder: Path
    step: str
    attempt: int

    @property
    def mark(self) -> str:
        """What the environment of its programs holds; no other attempt, run or folder has it."""
        text = f"{self.folder.resolve()}\n{self.step}\n{self.attempt}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def lock(self) -> Path:
        """The file that is locked."""
        return self._path("lock")

    @property
    def record(self) -> Path:
        """What the effect's process writes down: statements before they are sent, and how it ended."""
        return self._path("jsonl")

    def _path(self, suffix: str) -> Path:
        # A step's id may hold anything; its hash is a file's name everywhere.
        name = hashlib.sha256(self.step.encode()).hexdigest()[:16]
        return self.folder / "effects" / f"{name}-{self.attempt}.{suffix}"


@dataclass(frozen=True, slots=True)
class EffectStatement:
    """A statement of an effect: the server, its connection there as the server names it, and the comment it bears."""

    endpoint: str
    server: str
    connection: int
    user: str
    client: str
    mark: str


@contextmanager
def process_lock(files: EffectFiles) -> Iterator[int]:
    """Lend a locked handle to an effect; a process that inherits it keeps the lock after this one is gone.

    Raises FencedError: something still works at this very effect; StoreError: the lock cannot be opened.
    """
    try:
        files.lock.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise StoreError(f"{files.lock.parent} cannot be made: {error.strerror}") from error
    handle = open_own(files.lock, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FencedError(f"a program of {files.step}, attempt {files.attempt}, still runs") from None
        yield handle
    finally:
        os.close(handle)


@dataclass(frozen=True, slots=True)
class Process:
    """A process of this machine."""

    pid: int
    command: str

    def end(self, number: int) -> None:
        """Send it a signal; one that has ended, or is another account's, is left alone."""
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, number)

    def __str__(self) -> str:
        return f"{self.command} (process {self.pid})"


def at_work(files: EffectFiles) -> list[str]:
    """Return what still works at an effect, each as a reader has to find it; empty: nothing that shows here.

    A process of another account shows by the lock alone.
    """
    if not files.lock.exists() and not files.lock.is_symlink():
        return []
    some, why = [str(one) for one in _processes(files.mark)], ""
    if not some:
        why = _locked(files.lock)
        # Every handle of every process is looked at only when somebody has the lock: there may be thousands.
        some = [str(one) for one in _processes(files.mark, files.lock)] if why else []
    if some:
        return some[:_SHOWN] + ([f"and {len(some) - _SHOWN} more"] if len(some) > _SHOWN else [])
    return [why] if why else []


def descendants(mark: str) -> list[Process]:
    """Return the processes that this one started, or they, and those with a mark; services are left out.

    What has lost its parent is found as this process's own child, where it adopts such (``adopt_orphans``).
    """
    return list(_processes(mark, parent=os.getpid()))


def marks_with(mark: str) -> str:
    """Return the marks of a program that this process starts for an effect: its own, and those of the outer effects."""
    marks = [one for one in os.environ.get(MARK, "").split(",") if one]
    return ",".join(marks if mark in marks else [*marks, mark])


def adopt_orphans() -> None:
    """Have processes whose parent ended become this process's children, so that none is out of sight."""
    import ctypes

    with suppress(OSError, AttributeError):  # not on this system: then the mark alone finds them
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class _Listed:
    """A process as /proc lists it; ``marks`` is empty where it has none or is another account's."""

    folder: Path
    words: bytes
    parent: int
    marks: tuple[str, ...]

    def is_marked(self, mark: str) -> bool:
        """Whether it works for an effect, as far as its marks say."""
        return mark in self.marks and SERVICE not in self.marks[self.marks.index(mark) :]

    def is_service(self, mark: str) -> bool:
        """Whether an effect does not wait for it: it, or a run that it belongs to, was started as a service."""
        return SERVICE in self.marks and not self.is_marked(mark)


def _processes(mark: str, lock: Path | None = None, parent: int = 0) -> Iterator[Process]:
    listed = _listed()
    family = _family(listed, parent, mark) if parent else frozenset()
    for pid, one in listed.items():
        # One that has ended and was not asked how has no words.
        if not one.words or pid == os.getpid() or one.is_service(mark):
            continue
        if pid in family or one.is_marked(mark) or (lock is not None and _has_open(one.folder, lock)):
            text = shlex.join(one.words.rstrip(b"\0").decode("utf-8", "replace").split("\0"))
            yield Process(pid, text if len(text) <= _COMMAND else f"{text[:_COMMAND]}...")


def _listed() -> dict[int, _Listed]:
    """Return the processes of this machine by their ids."""
    listed = {}
    for folder in _PROC.iterdir() if _PROC.is_dir() else ():
        if folder.name.isdigit():
            with suppress(OSError, IndexError, ValueError):  # it has ended meanwhile
                words = (folder / "cmdline").read_bytes()
                parent = int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
                listed[int(folder.name)] = _Listed(folder, words, parent, _marks_of(folder))
    return listed


def _marks_of(folder: Path) -> tuple[str, ...]:
    try:
        variables = (folder / "environ").read_bytes().split(b"\0")
    except OSError:
        return ()  # of another account
    begin = f"{MARK}=".encode()
    return next((tuple(one[len(begin) :].decode("utf-8", "replace").split(","))
                 for one in variables if one.startswith(begin)), ())  # fmt: skip


def _family(listed: Mapping[int, _Listed], parent: int, mark: str) -> frozenset[int]:
    """Return the descendants of a process; what a service started belongs to the service."""
    known, family = {parent}, set[int]()
    while known:
        known = {pid for pid, one in listed.items() if one.parent in known and not one.is_service(mark)} - family
        family |= known
    return frozenset(family)


def _has_open(process: Path, path: Path) -> bool:
    try:
        lock, handles = path.stat(), list((process / "fd").iterdir())
    except OSError:
        return False
    for one in handles:
        with suppress(OSError):
            found = one.stat()
            if (found.st_dev, found.st_ino) == (lock.st_dev, lock.st_ino):
                return True
    return False


def _locked(path: Path) -> str:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"something unknown: {path} cannot be read: {error.strerror}"
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return f"a process that holds {path}, of another account or machine"
    except OSError as error:
        return f"something unknown: {path} cannot be locked: {error.strerror}"
    finally:
        os.close(handle)
    return ""


def write_record(path: Path, **fields: Any) -> None:
    """Append a line to an effect's record, on the disk when this returns.

    Raises StoreError: it cannot be written.
    """
    handle = open_own(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        data = json.dumps(fields, sort_keys=True, allow_nan=False).encode() + b"\n"
        while data:
            data = data[os.write(handle, data) :]
        os.fsync(handle)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        os.close(handle)


def note_statement(path: Path, statement: EffectStatement) -> None:
    """Write down where a statement will run, before it is sent; raises StoreError."""
    write_record(path, statement=asdict(statement))


def read_record(path: Path) -> list[dict[str, Any]]:
    """Return the lines of an effect's record; a torn last line, which nobody acted on, is left out.

    Raises StoreError: it cannot be read: nothing is known of the effect then.
    """
    try:
        handle = open_own(path, os.O_RDONLY)
    except StoreError:
        if not path.exists() and not path.is_symlink():
            return []
        raise
    with os.fdopen(handle, "rb") as file:
        data = file.read(_RECORD_BYTES + 1)
    if len(data) > _RECORD_BYTES:
        raise StoreError(f"{path} is larger than any record of an effect")
    try:
        found = [parse_json(line) for line in data.split(b"\n")[:-1]]
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is damaged: {error}") from None
    if not all(isinstance(one, dict) for one in found):
        raise StoreError(f"{path} is damaged: a line is no object")
    return found


def statements_of(files: EffectFiles) -> list[EffectStatement]:
    """Return the statements that an effect sent, or was about to send.

    Raises StoreError: the record cannot be read.
    """
    some = [one["statement"] for one in read_record(files.record) if "statement" in one]
    try:
        return [EffectStatement(**one) for one in some]
    except TypeError as error:
        raise StoreError(f"{files.record} is damaged: {error}") from None

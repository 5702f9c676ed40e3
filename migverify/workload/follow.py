"""Logs that are still being written, copied byte for byte into a folder that a capture reads.

Servers rotate and delete their logs, so what is written is copied as it comes: one copy for each file that had the
log's name. The copies' lengths are saved after the bytes are on disk; behind a kill, what is beyond a saved length is
cut off and copied again. So no byte is lost or doubled, and there is one reader of logs: that of the copies.

A file is known again by the bytes at its beginning and before the saved length, which hold times. The banner of a
server is the same in all its files: while no more is copied, a file must also have the inode and the time of birth. No
clock tells which rotated files are new: those that were there at first are known by their first bytes.
"""

from __future__ import annotations

import contextlib
import ctypes
import gzip
import hashlib
import json
import os
import pwd
import re
import stat
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

from migverify.changes.storage import LocalStorage, WorkFile
from migverify.errors import ReadError, UsageError
from migverify.workload.formats.statements import BANNER
from migverify.workload.lines import not_regular, open_bytes, open_log
from migverify.workload.private import private, private_folder

STATE = "follow.json"
POLL_SECONDS = 0.5
_VERSION = 2
_EVIDENCE = 4 << 10
"""Bytes at the beginning and at the end of what was copied that tell whether a file goes on behind it."""
_PIECE = 4 << 20
_STEP = 64 << 20
"""So many bytes are copied before what is known of them is saved."""
_RECORD = re.compile(rb"^(?:# Time: |[^#\s]).*\n", re.MULTILINE)
"""A line that belongs to a record and is not in all of them; banners are out."""
_FOREIGN = {
    b"\xfd7zXZ": "xz",
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\x1f\x9d": "compress",
}
_SUFFIX = (".", "-", "_")
"""What a rotation puts behind a log's name."""


@dataclass(slots=True)
class CopiedFile:
    """One file that had the log's name.

    ``size`` bytes of it are copied. ``born`` is its time of birth in Unix nanoseconds, 0 where the file system has
    none: an inode may be given to another file at once. ``is_over``: it will have no more.
    """

    name: str
    device: int
    inode: int
    born: int = 0
    size: int = 0
    is_over: bool = False


@dataclass(slots=True)
class FollowedLog:
    """A log and its copies in order. ``losses`` says in sentences what may have been written and is in no copy.

    ``earlier`` are digests of the first bytes of files that were rotated before the log was followed.
    """

    path: str
    files: list[CopiedFile] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    earlier: list[str] = field(default_factory=list)


def read_state(storage: LocalStorage) -> list[FollowedLog]:
    """Return the logs that a folder follows, none where it is new.

    Raises
    ------
    ReadError
        the file that says so is damaged.
    """
    text = storage.read(STATE)
    if text is None:
        return []
    try:
        content = json.loads(text)
        if content["version"] != _VERSION:
            raise ValueError(f"version {content['version']}")
        return [
            FollowedLog(
                str(log["path"]),
                [
                    CopiedFile(
                        str(file["name"]), int(file["device"]), int(file["inode"]), int(file["born"]),
                        int(file["size"]), bool(file["is_over"]),
                    )
                    for file in log["files"]
                ],
                [str(loss) for loss in log["losses"]],
                [str(digest) for digest in log["earlier"]],
            )
            for log in content["logs"]
        ]  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        raise ReadError(
            f"{storage.url}/{STATE} is damaged: {error!r}.", hint="Begin anew with another folder."
        ) from error


class Follower:
    """Copies what logs get, at each ``poll()``.

    Parameters
    ----------
    folder
        Where copies and what is known of them are; a folder of an earlier follower is gone on with.
    logs
        Paths of logs that servers write to.
    say
        Takes sentences about rotations and losses.

    Raises
    ------
    UsageError
        the folder follows other logs, belongs to another user, or another process writes to it.
    ReadError
        a log cannot be read.
    """

    def __init__(self, folder: Path, logs: Sequence[Path], say: Callable[[str], None]) -> None:
        private_folder(folder, exist_ok=True)
        self._storage, self._stack, self._say = LocalStorage(folder), ExitStack(), say
        self._stack.enter_context(self._storage.lock())
        try:
            paths = [os.path.abspath(path) for path in logs]  # noqa: PTH100  (a link may be turned by a rotation)
            known = {log.path: log for log in read_state(self._storage)}
            if known and set(known) != set(paths):
                raise UsageError(
                    f"{folder} follows {', '.join(sorted(known))}.",
                    hint="Name the same logs to go on with it, or another --out.",
                )
            self.logs = [known.get(path) or FollowedLog(path) for path in paths]
            self._tails = [
                _Tail(log, number, self._storage, self._stack, self._tell) for number, log in enumerate(self.logs)
            ]  # fmt: skip
            with self._told():
                for tail in self._tails:
                    tail.begin()
            self._save()  # before the first byte, or a rotation behind a kill would go unseen
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def poll(self) -> bool:
        """Copy what is new; returns whether there is more.

        Raises
        ------
        ReadError
            a file cannot be read, or a copy cannot be written.
        """
        with self._told():
            return self._poll()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ReadError(
                f"{error.filename or self._storage.url}: {error.strerror or error}.",
                hint="Nothing is lost yet: repair it and run the same command before the log is rotated out.",
            ) from error

    def _poll(self) -> bool:
        before = json.dumps([asdict(log) for log in self.logs])
        more = [tail.poll() for tail in self._tails]
        if json.dumps([asdict(log) for log in self.logs]) != before:
            self._save()
        return any(more)

    def _save(self) -> None:
        for tail in self._tails:
            tail.publish()
        content = {"version": _VERSION, "logs": [asdict(log) for log in self.logs]}
        self._storage.write(STATE, f"{json.dumps(content, indent=1)}\n".encode())

    def copies(self) -> Iterator[tuple[FollowedLog, Path, bool]]:
        """Yield each log with the path of each of its copies, and whether that still grows."""
        for log in self.logs:
            for file in log.files:
                yield log, self._storage.folder / file.name, not file.is_over

    def _tell(self, log: FollowedLog, text: str, *, is_loss: bool = False) -> None:
        if is_loss:
            log.losses.append(text)
        self._say(f"{log.path}: {text}")


def follow_until(follower: Follower, stopped: threading.Event, left: Callable[[], float | None]) -> None:
    """Poll until somebody stops it or no seconds are ``left``, and once more then."""
    while not stopped.is_set():
        more = follower.poll()
        rest = left()
        if rest is not None and rest <= 0:
            break
        if not more:
            stopped.wait(POLL_SECONDS if rest is None else min(POLL_SECONDS, rest))
    while follower.poll():
        pass


class _Tail:
    """Follows one log through its rotations."""

    def __init__(
        self, log: FollowedLog, number: int, storage: LocalStorage, stack: ExitStack,
        tell: Callable[..., None],
    ) -> None:  # fmt: skip
        self._log, self._number, self._storage, self._stack, self._tell = log, number, storage, stack, tell
        self._source: IO[bytes] | None = None
        self._work: WorkFile | None = None
        self._known: set[tuple[int, ...]] = set()
        """Rotated files that are copied, by inode, size and time: none of them is unpacked twice."""

    @property
    def _file(self) -> CopiedFile | None:
        """The copy that grows."""
        files = self._log.files
        return files[-1] if files and not files[-1].is_over else None

    def publish(self) -> None:
        """Bring what was copied to the disk."""
        if self._work is not None:
            self._work.publish()

    def begin(self) -> None:
        """Begin a log that is new here."""
        if not self._log.files:
            self._log.earlier = sorted({_digest(path) for path in self._siblings()})
            self._begin()

    def poll(self) -> bool:
        """Copy what is new, through as many rotations as there were; returns whether there is more."""
        left = _STEP
        while left > 0:
            copied, goes_on = self._step(left)
            left -= copied
            if not goes_on:
                return False
        return True

    def _step(self, most: int) -> tuple[int, bool]:
        """Copy from one file; returns how many bytes, and whether there is more already."""
        file = self._file
        if file is None:
            return 0, self._begin()
        if self._source is None and not file.size:  # no byte tells it again: it is looked for as a new one
            self._over(file)
            return 0, True
        if self._source is None:
            self._resume(file)
        if self._source is None:
            return self._find(file, "is gone"), True
        current = self._current()
        replaced = current is not None and current.st_size > 0 and not _is(self._log.path, current, file)
        copied = self._copy(file, self._source, most)
        if copied is None:
            return self._find(file, "was truncated"), True
        if copied >= most:
            return copied, True
        if replaced:  # until then a server writes to the renamed file
            self._over(file)
        return copied, replaced

    def _resume(self, file: CopiedFile) -> None:
        """Open the file again that was being copied: under its name, or under the one that a rotation gave it."""
        self._current()
        for path in (self._log.path, *self._siblings()):
            found = _stat(path)
            if found is None or not _is(path, found, file):
                continue
            source = open_bytes(path)
            if self._rest(file, source) == file.size:
                self._source = source
                self._say_file(path)
                return
            source.close()

    def _begin(self) -> bool:
        """Begin the next file: one that had the log's name since and lost it, or the one that has it now.

        Returns whether there is one.
        """
        files = self._log.files
        path = (next(self._unknown(), None) if files else None) or self._log.path
        try:
            source = open_log(path)
        except FileNotFoundError:
            return False
        self._say_file(path)
        found = os.fstat(source.fileno())
        name = f"{self._number:02d}-{len(files):05d}-{Path(self._log.path).name}"
        file = CopiedFile(name, found.st_dev, found.st_ino, _born(source.fileno()))
        files.append(file)
        (self._storage.folder / name).unlink(missing_ok=True)  # of a run that was killed before it saved this
        os.close(private(self._storage.folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        self._open_copy(file)
        self._source = source
        return True

    def _open_copy(self, file: CopiedFile) -> None:
        """Open the copy, cut to what is certain of it."""
        path = self._storage.folder / file.name
        if not path.is_file() or path.stat().st_size < file.size:
            raise ReadError(f"{path} is shorter than {STATE} says.", hint="Begin anew with another --out.")
        work = os.fdopen(private(path, os.O_RDWR), "r+b")
        work.truncate(file.size)
        work.seek(file.size)
        self._work = WorkFile(work)
        self._stack.callback(self._work.close)

    def _copy(self, file: CopiedFile, source: IO[bytes], most: int) -> int | None:
        """Copy a file up to its end or ``most`` bytes; None where it does not go on behind what was copied."""
        before = self._copied(file, file.size - _EVIDENCE, file.size)
        copied = 0
        while copied < most:
            source.seek(file.size - len(before))
            data = source.read(len(before) + _PIECE)  # what was copied and what follows, of one moment
            if not data.startswith(before):
                return None
            new = data[len(before) :]
            if not new:
                break
            self._append(file, new)
            copied += len(new)
            before = data[-_EVIDENCE:]
        return copied

    def _append(self, file: CopiedFile, data: bytes) -> None:
        if self._work is None:
            self._open_copy(file)
        if self._work is not None:
            self._work.file.write(data)
            self._work.file.flush()
        file.size += len(data)

    def _copied(self, file: CopiedFile, begin: int, end: int) -> bytes:
        with (self._storage.folder / file.name).open("rb") as copy:
            copy.seek(max(0, begin))
            return copy.read(end - max(0, begin))

    def _over(self, file: CopiedFile) -> None:
        """End a copy."""
        file.is_over = True
        if self._source is not None:
            self._source.close()
        if self._work is not None:
            self._work.publish()
            self._work.close()
        self._source = self._work = None

    def _take(self, file: CopiedFile, source: IO[bytes]) -> int:
        """Copy the rest of a file that will not change."""
        copied = 0
        while piece := source.read(_PIECE):
            self._append(file, piece)
            copied += len(piece)
        return copied

    def _find(self, file: CopiedFile, what: str) -> int:
        """Copy the rest of a file that lost its name or its content from where a rotation put it; returns its bytes."""
        current, is_evident = self._current(), self._is_evident(file)
        for path in self._siblings():
            found = _stat(path)
            if found is None or not (is_evident or _is(path, found, file)):
                continue
            try:
                with open_log(path) as source:
                    rest = self._rest(file, source) if file.size else None
                    if rest is None:
                        continue
                    source.seek(rest)
                    copied = self._take(file, source)
            except (FileNotFoundError, EOFError, zlib.error):
                continue  # it is being packed: the other of the two is whole
            self._say_file(path)
            if current is not None and _is(self._log.path, current, file):
                self._tell(
                    self._log, f"was copied to {path} and truncated, or its inode is another file's now: what a server"
                    " writes between a copy and a truncation is in neither", is_loss=True,
                )  # fmt: skip
            self._over(file)
            return copied
        self._tell(
            self._log, f"{what} behind byte {file.size:,}, and no file beside it goes on from there: what was written"
            " there later, if anything, was not read", is_loss=True,
        )  # fmt: skip
        self._over(file)
        return 0

    def _rest(self, file: CopiedFile, source: IO[bytes]) -> int | None:
        """Return where a file goes on behind what was copied, or its end where that is before; None: another file."""
        head = self._copied(file, 0, min(file.size, _EVIDENCE))
        source.seek(0)
        start = source.read(len(head))
        if not head.startswith(start) or (head and not start):
            return None
        end = source.seek(file.size)  # of a packed file the end at most
        opened: object = source
        if not isinstance(opened, gzip.GzipFile):
            end = min(end, os.fstat(source.fileno()).st_size)
        before = self._copied(file, end - _EVIDENCE, end)
        source.seek(end - len(before))
        return end if source.read(len(before)) == before else None

    def _has_copy(self, source: IO[bytes]) -> bool:
        """Tell whether all of a file is copied."""
        for file in self._log.files:
            rest = self._rest(file, source) if file.size else None
            if rest is not None:
                source.seek(rest)
                if not source.read(1):
                    return True
        source.seek(0)
        return not source.read(1)

    def _is_evident(self, file: CopiedFile) -> bool:
        """Tell whether what was copied of a file tells it from the server's other files."""
        head = self._copied(file, 0, min(file.size, _EVIDENCE))
        return file.size > _EVIDENCE or _RECORD.search(BANNER.sub(b"", head)) is not None

    def _say_file(self, path: str) -> None:
        """Say which file is read where a link stands for it: who may write to the folder chose it."""
        real = os.path.realpath(path)
        if real != path:
            self._tell(self._log, f"is read from {real}, a file of {_owner(real)}: a link leads there")

    def _current(self) -> os.stat_result | None:
        """Return what has the log's name; None where nothing has."""
        try:
            found = os.stat(self._log.path)  # noqa: PTH116
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(found.st_mode):
            raise not_regular(self._log.path)
        return found

    def _siblings(self) -> list[str]:
        """Return the files beside the log that a rotation may have made of it, the newest first."""
        path = Path(self._log.path)
        names = [one.name for one in path.parent.iterdir() if one.name.startswith(path.name)]
        found = [(at, str(path.parent / name)) for name in names if name[len(path.name) :].startswith(_SUFFIX)
                 and (at := _stat(str(path.parent / name))) is not None]  # fmt: skip
        return [one for _, one in sorted(found, key=lambda item: (-item[0].st_mtime_ns, item[1]))]

    def _unknown(self) -> Iterator[str]:
        """Yield rotated files that no copy is of and that were not there at first, the oldest by its clock first."""
        for path in reversed(self._siblings()):
            found = _stat(path)
            if found is None:
                continue
            version = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            if version in self._known:
                continue
            try:
                if _digest(path) not in self._log.earlier and not self._is_known(path):
                    yield path
            except FileNotFoundError:
                continue
            except (EOFError, zlib.error, gzip.BadGzipFile):
                if Path(path).with_suffix("").exists():
                    continue  # it is being packed: the other of the two is whole
                self._miss(f"{path} is damaged gzip")
            self._known.add(version)

    def _is_known(self, path: str) -> bool:
        """Tell whether all of a rotated file is copied, or tell a loss where nobody can read it."""
        with open_log(path) as source:
            packer = next((name for start, name in _FOREIGN.items() if source.read(6).startswith(start)), None)
            if packer is None and self._has_copy(source):
                return True
            if packer is None:
                opened: object = source
                source.seek(0)
                while isinstance(opened, gzip.GzipFile) and source.read(_PIECE):
                    pass  # a damaged one is not begun
                return False
        self._miss(f"{path} is packed by {packer}, which is not read here")
        return True

    def _miss(self, what: str) -> None:
        text = f"{what}: whether it holds statements that were not copied is not known"
        if text not in self._log.losses:
            self._tell(self._log, text, is_loss=True)


def _stat(path: str) -> os.stat_result | None:
    try:
        found = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _is(path: str, found: os.stat_result, file: CopiedFile) -> bool:
    """Tell whether a path leads to the file that was copied, and not to a later one that got its inode."""
    if (found.st_dev, found.st_ino) != (file.device, file.inode):
        return False
    born = _born(path)
    return not born or not file.born or born == file.born


def _digest(path: str) -> str:
    """Return a digest of the first bytes of a file, unpacked where it is gzip."""
    try:
        with open_log(path) as source:
            return hashlib.sha256(source.read(_EVIDENCE)).hexdigest()
    except (EOFError, zlib.error, gzip.BadGzipFile):
        with open_bytes(path) as packed:
            return hashlib.sha256(packed.read(_EVIDENCE)).hexdigest()


def _owner(path: str) -> str:
    try:
        return pwd.getpwuid(os.stat(path).st_uid).pw_name  # noqa: PTH116
    except KeyError:
        return f"uid {os.stat(path).st_uid}"  # noqa: PTH116


_STATX = getattr(ctypes.CDLL(None), "statx", None)
_AT_FDCWD, _AT_EMPTY_PATH, _STATX_BTIME = -100, 0x1000, 0x800


def _born(file: str | int) -> int:
    """Return when a file was made, in Unix nanoseconds; 0 where this system does not know."""
    status = ctypes.create_string_buffer(256)
    place, name, flags = (_AT_FDCWD, os.fsencode(file), 0) if isinstance(file, str) else (file, b"", _AT_EMPTY_PATH)
    if _STATX is None or _STATX(place, name, flags, _STATX_BTIME, status) != 0:
        return 0
    (mask,) = struct.unpack_from("=I", status, 0)
    seconds, rest = struct.unpack_from("=qI", status, 80)
    return int(seconds * 1_000_000_000 + rest) if mask & _STATX_BTIME else 0

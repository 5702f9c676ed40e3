"""Where an archive lies: a local folder, or any place that fsspec reaches (``s3://``, ``gs://``, ``memory://``).

Small objects (the manifest) appear whole or not at all: on a disk through a temporary file and a rename, elsewhere
because an object store shows an object only when its upload is complete. A binlog that still grows is written to a
work file: on a disk the archived file itself, elsewhere a temporary copy that is uploaded whole each time.

A local folder needs the standard library only, so that a bare Spark executor can read one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol, cast

from migverify.errors import ChangeError, ConfigError

PART = ".part"
"""End of the name of a file that is not whole yet."""
_COPY_BYTES = 1 << 20


class Storage(Protocol):
    """A folder of named objects. Names are relative; ``/`` parts folders."""

    url: str
    """As the user wrote it, without a password."""

    def names(self, folder: str = "") -> list[str]:
        """Names of the whole objects directly in a folder, sorted; none where there is no such folder."""

    def read(self, name: str) -> bytes | None:
        """A whole object; None where it is not there."""

    def tree(self) -> list[str]:
        """Names of all whole objects in all folders, sorted."""

    def write(self, name: str, data: bytes) -> None:
        """Write or replace an object at once."""

    def create(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """Write an object piece by piece; it appears when the context ends without an error."""

    def open(self, name: str) -> BinaryIO:
        """Open an object for reading, seekable."""

    def work_file(self, name: str, keep: int) -> WorkFile:
        """Open an object that grows, cut to its first ``keep`` bytes."""

    def lock(self) -> AbstractContextManager[None]:
        """Keep a second writer out, where the place can."""


class WorkFile:
    """A file under construction on this machine. ``publish`` makes what was written visible and durable."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def publish(self) -> None:
        """Make what was written so far survive a crash."""
        self.file.flush()
        os.fsync(self.file.fileno())

    def close(self) -> None:
        """Give the file back; what was not published may be lost."""
        self.file.close()


class LocalStorage:
    """A folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = str(folder)

    def names(self, folder: str = "") -> list[str]:
        """See Storage."""
        place = self.folder / folder
        with _told(self.url):
            if not place.is_dir():
                return []
            return sorted(
                found.name for found in place.iterdir() if found.is_file() and not found.name.endswith(PART)
            )  # fmt: skip

    def tree(self) -> list[str]:
        """See Storage."""
        with _told(self.url):
            found = (path for path in self.folder.rglob("*") if path.is_file() and not path.name.endswith(PART))
            return sorted(path.relative_to(self.folder).as_posix() for path in found)

    def read(self, name: str) -> bytes | None:
        """See Storage."""
        with _told(f"{self.url}/{name}"):
            try:
                return (self.folder / name).read_bytes()
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes) -> None:
        """See Storage."""
        with self.create(name) as file:
            file.write(data)

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[IO[bytes]]:
        """See Storage."""
        target = self.folder / name
        with _told(f"{self.url}/{name}"):
            target.parent.mkdir(parents=True, exist_ok=True)
            # A name of its own: another attempt at the same object may still run.
            part = target.with_name(f".{target.name}.{uuid.uuid4().hex}{PART}")
            try:
                with part.open("wb") as file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                part.replace(target)
                _sync_folder(target.parent)
            finally:
                part.unlink(missing_ok=True)

    def open(self, name: str) -> BinaryIO:
        """See Storage."""
        with _told(f"{self.url}/{name}"):
            return (self.folder / name).open("rb", buffering=_COPY_BYTES)

    def work_file(self, name: str, keep: int) -> WorkFile:
        """See Storage."""
        with _told(f"{self.url}/{name}"):
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / name
            path.touch(mode=0o640)
            file = path.open("r+b", buffering=_COPY_BYTES)
            try:
                file.truncate(keep)
                file.seek(keep)
                _sync_folder(self.folder)
            except BaseException:
                file.close()
                raise
            return WorkFile(file)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder's lock file; the kernel releases it when this process dies."""
        with _told(self.url):
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.folder / f".lock{PART}", os.O_RDWR | os.O_CREAT, 0o640)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
                raise ChangeError(
                    f"{self.url}: another process writes to this folder.", hint="One writer at a time; stop the other."
                ) from error
            yield
        finally:
            os.close(handle)


class RemoteStorage:
    """A folder behind fsspec. Whoever writes to it must be alone: object stores have no locks."""

    def __init__(self, url: str) -> None:
        self.url = without_password(url)
        self._fs, self._root = _open_fsspec(url, self.url)

    def names(self, folder: str = "") -> list[str]:
        """See Storage."""
        with _told(self.url):
            # A listing kept from before would hide what another process wrote since.
            self._fs.invalidate_cache()
            try:
                found = self._fs.ls(self._path(folder), detail=True)
            except FileNotFoundError:
                return []
            kept = [str(entry["name"]).rsplit("/", 1)[-1] for entry in found if entry["type"] == "file"]
            return sorted(name for name in kept if name and not name.endswith(PART))

    def tree(self) -> list[str]:
        """See Storage."""
        with _told(self.url):
            self._fs.invalidate_cache()
            try:
                found = self._fs.find(self._root)
            except FileNotFoundError:
                return []
            return sorted(path[len(self._root) + 1 :] for path in found if not path.endswith(PART))

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[IO[bytes]]:
        """See Storage."""
        with tempfile.NamedTemporaryFile(prefix="migverify-", suffix=PART) as file:
            yield cast("IO[bytes]", file)
            file.flush()
            self.put(file.name, name)

    def read(self, name: str) -> bytes | None:
        """See Storage."""
        with _told(f"{self.url}/{name}"):
            try:
                return bytes(self._fs.cat_file(self._path(name)))
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes) -> None:
        """See Storage."""
        with _told(f"{self.url}/{name}"):
            path = self._path(name)
            self._fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
            self._fs.pipe_file(path, data)

    def open(self, name: str) -> BinaryIO:
        """See Storage."""
        with _told(f"{self.url}/{name}"):
            self._fs.invalidate_cache()
            return cast("BinaryIO", self._fs.open(self._path(name), "rb"))

    def work_file(self, name: str, keep: int) -> WorkFile:
        """See Storage."""
        file = tempfile.NamedTemporaryFile(prefix="migverify-", suffix=PART)  # noqa: SIM115  (the work file closes it)
        try:
            if keep:
                with self.open(name) as stream, _told(f"{self.url}/{name}"):
                    shutil.copyfileobj(stream, file, _COPY_BYTES)
                file.truncate(keep)
                file.seek(keep)
        except BaseException:
            file.close()
            raise
        return _Upload(cast("IO[bytes]", file), self, name)

    def put(self, local: str, name: str) -> None:
        """Upload a file of this machine whole."""
        with _told(f"{self.url}/{name}"):
            path = self._path(name)
            self._fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
            self._fs.put_file(local, path)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Do nothing: there is nothing to lock with."""
        yield

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root


class _Upload(WorkFile):
    """A work file whose published form is an object elsewhere."""

    def __init__(self, file: IO[bytes], storage: RemoteStorage, name: str) -> None:
        super().__init__(file)
        self._storage = storage
        self._name = name

    def publish(self) -> None:
        self.file.flush()
        self._storage.put(self.file.name, self._name)


class Window:
    """The first ``size`` bytes of a stream, as a stream: what is certain of a file that still grows."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream = stream
        self._size = size
        self.offset = 0

    def read(self, count: int) -> bytes:
        """Read up to ``count`` bytes; fewer at the window's end."""
        data = self._stream.read(max(0, min(count, self._size - self.offset)))
        self.offset += len(data)
        return data

    def seek(self, offset: int) -> None:
        """Go to an offset from the start."""
        self._stream.seek(offset)
        self.offset = offset


def open_storage(place: str) -> Storage:
    """Open a folder by path or URL; nothing is created yet.

    Raises
    ------
    ConfigError
        the URL's scheme is unknown, or the Python package behind it is not installed.
    """
    scheme = place.partition("://")[0] if "://" in place else ""
    if scheme in ("", "file", "local"):
        path = place.partition("://")[2] if scheme else place
        if not path:
            raise ConfigError("an archive needs a folder or a URL, and this one is empty.")
        return LocalStorage(Path(path))
    return RemoteStorage(place)


def without_password(url: str) -> str:
    """Return a URL without what is before its last ``@`` and after its ``?`` or ``#``.

    A password may hold ``/``, ``?`` and ``#``: where the user wrote them so, no parser finds its end.
    """
    scheme, _, rest = url.partition("://")
    return f"{scheme.lower()}://{re.split('[?#]', rest.rpartition('@')[2])[0]}".rstrip("/")


def _open_fsspec(url: str, shown: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise ConfigError(f"{shown}: needs the package fsspec.", hint="Run pip install fsspec.") from error
    try:
        fs, root = url_to_fs(url)
    except ImportError as error:
        raise ConfigError(
            f"{shown}: the package for {shown.partition('://')[0]}:// is missing: {error}",
            hint="Install it, on Spark on the executors too: s3fs for s3://, gcsfs for gs://, adlfs for abfs://.",
        ) from None
    except (ValueError, OSError) as error:
        reason = str(error).replace(url, shown) if "@" not in url else type(error).__name__
        raise ConfigError(f"{shown}: cannot be opened: {reason}", hint="Give a folder or a URL of fsspec.") from None
    return fs, str(root).rstrip("/")


@contextlib.contextmanager
def _told(where: str) -> Iterator[None]:
    """Say which object failed; the reasons of all stores are OSErrors."""
    try:
        yield
    except OSError as error:
        raise ChangeError(
            f"{where}: {error.strerror or error}", hint="Check the place, its rights and its space."
        ) from error


def _sync_folder(folder: Path) -> None:
    """Make a new name durable: a crash of the machine may else lose it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""A folder of named objects behind fsspec: on this machine, or in an object store (``s3://``, ``gs://``, ``memory://``).

An object appears whole or not at all: on a disk through a temporary file, fsync and a rename; in an object store
because it shows an object only when its upload is complete. A binlog that grows is written to a work file: on a disk
the archived file itself, elsewhere a temporary copy that is uploaded whole each time.

A disk has a lock. An object store has none: fsspec's exclusive write is "on a trial basis", with no promise of when a
store checks it, so whoever writes to an object store must be alone.
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
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from migverify.errors import ChangeError, ConfigError

PART = ".part"
"""End of the name of a file that is not whole yet."""
_COPY_BYTES = 1 << 20


class WorkFile:
    """A file under construction on this machine; ``upload`` takes its path where it is published elsewhere."""

    def __init__(self, file: IO[bytes], upload: Callable[[str], None] | None = None) -> None:
        self.file = file
        self._upload = upload

    def publish(self) -> None:
        """Make what was written so far visible, and make it survive a crash."""
        self.file.flush()
        if self._upload is None:
            os.fsync(self.file.fileno())
        else:
            self._upload(self.file.name)

    def close(self) -> None:
        """Close the file; what was not published may be lost."""
        self.file.close()


class Storage:
    """A folder of named objects. Names are relative, with ``/`` between folders. Nothing is created before a write.

    ``url`` is what the user wrote, without a password.

    Raises
    ------
    ConfigError
        The URL's scheme is unknown, or the Python package behind it is not installed.
    """

    def __init__(self, place: str) -> None:
        scheme, separator, rest = place.partition("://")
        self.is_local = not separator or scheme in ("file", "local")
        path = rest if separator else place
        if self.is_local and not path:
            raise ConfigError("an archive needs a folder or a URL, and this one is empty.")
        self.url = path if self.is_local else without_password(place)
        if self.is_local:
            self._root = str(Path(path).absolute()).rstrip("/")
        else:
            self._fs, self._root = _open_url(place, self.url)

    @cached_property
    def _fs(self) -> Any:
        # Imported when it is needed: a bare Spark executor reads a shared folder without fsspec.
        import fsspec

        return fsspec.filesystem("file")

    @property
    def folder(self) -> Path:
        """The folder on this machine."""
        if not self.is_local:
            raise ChangeError(f"{self.url} is no folder of this machine.")
        return Path(self._root)

    def names(self, folder: str = "") -> list[str]:
        """Return the names of the whole objects directly in a folder, sorted; none where there is no such folder."""
        with _reported(self.url):
            # A cached listing would hide what another process wrote since.
            self._fs.invalidate_cache()
            try:
                entries = self._fs.ls(self._path(folder), detail=True)
            except FileNotFoundError:
                return []
            names = (str(entry["name"]).rsplit("/", 1)[-1] for entry in entries if entry["type"] != "directory")
            return sorted(name for name in names if name and not name.endswith(PART))

    def tree(self) -> list[str]:
        """Return the names of all whole objects in all folders, sorted."""
        with _reported(self.url):
            self._fs.invalidate_cache()
            try:
                paths = self._fs.find(self._root)
            except FileNotFoundError:
                return []
            return sorted(path[len(self._root) + 1 :] for path in paths if not path.endswith(PART))

    def read(self, name: str) -> bytes | None:
        """Return a whole object, None where it does not exist."""
        with _reported(f"{self.url}/{name}"):
            try:
                return bytes(self._fs.cat_file(self._path(name)))
            except FileNotFoundError:
                return None

    def open(self, name: str) -> BinaryIO:
        """Open an object for reading, seekable."""
        with _reported(f"{self.url}/{name}"):
            if self.is_local:
                return Path(self._path(name)).open("rb", buffering=_COPY_BYTES)
            self._fs.invalidate_cache()
            return cast("BinaryIO", self._fs.open(self._path(name), "rb"))

    def write(self, name: str, data: bytes) -> None:
        """Write or replace an object at once."""
        with self.create(name) as file:
            file.write(data)

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[IO[bytes]]:
        """Write an object piece by piece; it appears when the context ends without an error."""
        with _reported(f"{self.url}/{name}"):
            path = self._path(name)
            if not self.is_local:
                with tempfile.NamedTemporaryFile(prefix="migverify-", suffix=PART) as upload:
                    yield cast("IO[bytes]", upload)
                    upload.flush()
                    self._put(upload.name, name)
                return
            target = Path(path)
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

    def work_file(self, name: str, keep: int) -> WorkFile:
        """Open an object that grows, cut to its first ``keep`` bytes."""
        with _reported(f"{self.url}/{name}"), contextlib.ExitStack() as undo:
            if self.is_local:
                path = Path(self._path(name))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch(mode=0o640)
                file: IO[bytes] = undo.enter_context(path.open("r+b", buffering=_COPY_BYTES))
                work = WorkFile(file)
            else:
                temporary = undo.enter_context(tempfile.NamedTemporaryFile(prefix="migverify-", suffix=PART))
                file = cast("IO[bytes]", temporary)
                if keep:
                    with self.open(name) as stream:
                        shutil.copyfileobj(stream, file, _COPY_BYTES)
                work = WorkFile(file, lambda local: self._put(local, name))
            file.truncate(keep)
            file.seek(keep)
            if self.is_local:
                _sync_folder(path.parent)
            undo.pop_all()
            return work

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock a folder of this machine against a second writer; the kernel releases it when this process dies."""
        if not self.is_local:
            yield
            return
        with _reported(self.url):
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

    def _put(self, local: str, name: str) -> None:
        with _reported(f"{self.url}/{name}"):
            path = self._path(name)
            self._fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
            self._fs.put_file(local, path)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root


class ByteWindow:
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


def open_file(path: str) -> BinaryIO:
    """Open one file for reading: a path of this machine, or with ``://`` in it a URL of fsspec."""
    if "://" in path:
        folder, _, name = path.rpartition("/")
        return Storage(folder).open(name)
    with _reported(path):
        return Path(path).open("rb")


def without_password(url: str) -> str:
    """Return a URL without what is before its last ``@`` and after its ``?`` or ``#``.

    A password may hold ``/``, ``?`` and ``#``: where the user wrote them so, no parser finds its end.
    """
    scheme, _, rest = url.partition("://")
    return f"{scheme.lower()}://{re.split('[?#]', rest.rpartition('@')[2])[0]}".rstrip("/")


def _open_url(url: str, shown: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

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
def _reported(where: str) -> Iterator[None]:
    """Name the object that failed; the reasons of all stores are OSErrors."""
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

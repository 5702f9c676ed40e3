"""Jars of drivers and pools: fetched once from a Maven repository, and used only when their checksum is the known one.

What arrives is checked in a folder of its own and then renamed: a jar in the cache is always whole.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from migverify.errors import UsageError
from migverify.workload.clients.model import Jar

CENTRAL = "https://repo.maven.apache.org/maven2"
MAX_BYTES = 64 << 20  # the largest jar has 5 MB; an endless answer must end
_OFFLINE = (
    "Without a way to Maven Central: name a mirror with --repository, or put the file into {folder}; "
    "its checksum is checked."
)

Progress = Callable[[str], None]


def cache_folder(name: str) -> Path:
    """Return a folder of the cache (``$MIGVERIFY_CACHE``, else ``~/.cache/migverify``), made if missing.

    Raises
    ------
    UsageError
        it cannot be made.
    """
    chosen = os.environ.get("MIGVERIFY_CACHE")
    folder = (Path(chosen) if chosen else Path.home() / ".cache" / "migverify").absolute() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot create the folder {folder}: {error.strerror}",
            hint="Set MIGVERIFY_CACHE to a folder you may write to.",
        ) from error
    return folder


def provide(jars: Sequence[Jar], repository: str | None, say: Progress) -> list[Path]:
    """Return the files of jars, fetching what the cache lacks.

    Parameters
    ----------
    jars
        What is needed; a jar named twice is fetched once.
    repository
        URL of a repository to fetch from; None is Maven Central.
    say
        Called when something is fetched.

    Raises
    ------
    UsageError
        a jar cannot be fetched, or is not the one whose checksum is known.
    """
    folder = cache_folder("jars")
    missing = [jar for jar in dict.fromkeys(jars) if not _is_whole(folder / jar.file, jar)]
    if missing:
        say(f"fetching {len(missing)} jars into {folder}")
        _fetch(missing, folder, repository)
    return [folder / jar.file for jar in dict.fromkeys(jars)]


def _is_whole(path: Path, jar: Jar) -> bool:
    return path.is_file() and checksum(path) == jar.sha256


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(jars: Sequence[Jar], folder: Path, repository: str | None) -> None:
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as text:
        staging = Path(text)
        for jar in jars:
            _by_http(f"{(repository or CENTRAL).rstrip('/')}/{jar.path}", staging / jar.file, jar)
            _take(staging / jar.file, folder / jar.file, jar)


def _take(arrived: Path, final: Path, jar: Jar) -> None:
    found = checksum(arrived)
    if found != jar.sha256:
        raise UsageError(
            f"{jar} is not the known file: SHA-256 {found}, expected {jar.sha256}",
            hint="The repository or something on the way gives another file; nothing of it was used.",
        )
    arrived.replace(final)


def _by_http(address: str, path: Path, jar: Jar) -> None:
    if not address.startswith(("https://", "http://", "file://")):
        # Not shown: it may hold a login.
        raise UsageError("--repository is no http, https or file URL", hint=f"Maven Central is {CENTRAL}.")
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310  (the scheme was checked)
            content = answer.read(MAX_BYTES + 1)
    except (OSError, urllib.error.URLError) as error:
        raise UsageError(f"cannot fetch {jar}: {error}", hint=_OFFLINE.format(folder=path.parent.parent)) from error
    if len(content) > MAX_BYTES:
        raise UsageError(f"{jar}: the repository answers with more than {MAX_BYTES >> 20} MiB")
    path.write_bytes(content)

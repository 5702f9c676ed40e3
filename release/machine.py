"""A machine that never saw migverify: a home with settings of package clients alone, and no Java on PATH."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

KEPT = re.compile(
    r"LANG|LC_.*|TZ|(https?|all|no)_proxy|(HTTPS?|ALL|NO)_PROXY|.*(CA_BUNDLE|CERT_FILE|CERT_DIR|_CERTS?|CAINFO)"
    r"|(PIP|UV)_.*|GO(PROXY|SUMDB|NOSUMDB|PRIVATE|NOPROXY|INSECURE|FLAGS|AUTH)"
)
SETTINGS = (".netrc", ".pip", ".config/pip", ".config/uv", ".config/go")
SECONDS = 900


class Failed(Exception):  # noqa: N818 - it is the answer of a check, not an error of this program
    """A check of the release that does not hold."""


def run(
    command: list[str], folder: Path, environment: dict[str, str], expected: int = 0, seconds: int = SECONDS
) -> str:
    """Return what a command writes to its standard output.

    Raises
    ------
    Failed
        When its exit code is not the expected one.
    """
    done = subprocess.run(
        command, cwd=folder, env=environment, text=True, capture_output=True,
        stdin=subprocess.DEVNULL, timeout=seconds, check=False,
    )  # fmt: skip
    if done.returncode != expected:
        shown, said = " ".join(command), (done.stdout + done.stderr)[-4000:]
        raise Failed(f"exit code {done.returncode} instead of {expected}: {shown}\n{said}")
    return done.stdout


class Machine:
    """Folders and environment of the checks, and how what was built is installed in them.

    Parameters
    ----------
    folder
        Everything that a check writes is in it.
    built
        The folder with the distributions.
    root
        The checkout, for the locks and the pages.
    """

    def __init__(self, folder: Path, built: Path, root: Path) -> None:
        self.folder, self.built, self.root = folder, built, root
        self.home = folder / "home"
        (self.home / ".config").mkdir(parents=True)
        for name in SETTINGS:
            if (Path.home() / name).exists():
                (self.home / name).symlink_to(Path.home() / name)
        self.constraints = folder / "constraints.txt"
        self.constraints.write_text(self._constraints((root / "requirements.lock").read_text()))

    def wheel(self, name: str) -> Path:
        """Return the wheel of a distribution, `migverify` or `migverify_lab`."""
        (path,) = self.built.glob(f"{name}-*.whl")
        return path

    def environment(self, *folders: Path, system: bool = True) -> dict[str, str]:
        """Return the environment of a command; ``folders`` are on PATH first, those of the system at the end.

        pip takes everything in the version of the lock; migverify is named by its file alone: an index may have others
        of its name.
        """
        kept = {name: value for name, value in os.environ.items() if KEPT.fullmatch(name)}
        path = [str(folder) for folder in folders] + (["/usr/local/bin", "/usr/bin", "/bin"] if system else [])
        return kept | {
            "PATH": os.pathsep.join(path), "HOME": str(self.home),
            "PIP_CONSTRAINT": str(self.constraints), "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip

    def environment_of_users(self, *folders: Path) -> dict[str, str]:
        """Return the environment of pipx and uv, which know nothing of the lock."""
        environment = self.environment(*folders)
        del environment["PIP_CONSTRAINT"]
        home = self.folder / "tools"
        return environment | {
            "PIPX_HOME": str(home / "pipx"), "PIPX_BIN_DIR": str(home / "bin"), "UV_TOOL_DIR": str(home / "uv"),
            "UV_CACHE_DIR": str(home / "cache"), "UV_PYTHON": sys.executable,
            "PIPX_DEFAULT_PYTHON": sys.executable,
        }  # fmt: skip

    def hashed(self, lock: str) -> Path:
        """Return a requirements file with the packages of a lock and the wheel of migverify, all by their hashes."""
        wheel = self.wheel("migverify")
        path = self.folder / lock
        pin = f"{wheel.as_uri()} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"
        path.write_text((self.root / lock).read_text() + pin)
        return path

    def _constraints(self, lock: str) -> str:
        """Return the versions of a lock."""
        pins = re.findall(r"^[A-Za-z0-9._-]+==[^\s\\]+", lock, flags=re.MULTILINE)
        return "".join(f"{line}\n" for line in pins)

"""The pair in containers, where a Docker engine answers."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from functools import cache
from importlib.resources import files
from pathlib import Path

from migverify.errors import LabError

COMPOSE_NAME = "docker-compose.yml"


@cache
def engine_answers() -> bool:
    """Tell whether a Docker engine and its compose plugin answer; a client alone does not count."""
    return _succeeds(["docker", "info"]) and _succeeds(["docker", "compose", "version"])


def _succeeds(command: list[str]) -> bool:
    if shutil.which(command[0]) is None:
        return False
    try:
        return (
            subprocess.run(  # noqa: S603
                command, capture_output=True, check=False, timeout=20, stdin=subprocess.DEVNULL
            ).returncode
            == 0
        )
    except subprocess.TimeoutExpired:
        return False


def compose_file() -> Path:
    """Return the compose file of the installed package."""
    return Path(str(files("migverify_lab") / "data" / COMPOSE_NAME))


def project_name(directory: Path) -> str:
    """Return the compose project of a lab folder: the same for the same folder, and no other's."""
    return f"migverify-lab-{hashlib.sha256(os.fsencode(directory.absolute())).hexdigest()[:10]}"


def up(directory: Path, ports: dict[str, int]) -> None:
    """Start both services on the given ports of 127.0.0.1; returns before they are ready.

    Raises
    ------
    LabError
        When compose fails; the message holds what it said.
    """
    _compose(directory, ["up", "--detach", "source", "target"], ports)


def down(directory: Path, purge: bool) -> None:
    """Stop the services; with ``purge`` remove their volumes."""
    _compose(directory, ["down", *(["--volumes"] if purge else [])], {})


def _compose(directory: Path, arguments: list[str], ports: dict[str, int]) -> None:
    command = [
        "docker",
        "compose",
        "--project-name",
        project_name(directory),
        "--file",
        str(compose_file()),
        *arguments,
    ]
    environment = {
        **os.environ,
        **{f"MIGVERIFY_{side.upper()}_PORT": str(port) for side, port in ports.items()},
    }
    try:
        done = subprocess.run(  # noqa: S603
            command, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
    except OSError as error:
        raise LabError(f"cannot run docker: {error.strerror}", hint="Start Docker.") from error
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise LabError(f"docker compose {arguments[0]} ended with {done.returncode}\n{said}", hint="Start Docker.")

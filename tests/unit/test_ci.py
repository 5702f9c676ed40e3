"""What `.ci/run` sets up: a PATH without servers, a HOME with settings of package clients alone, nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "run"


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """A machine on which somebody installed servers, and has settings of his own."""
    programs, home = tmp_path / "programs", tmp_path / "home"
    for name in ("java", "mvn", "nginx", "mysqld", "tool"):
        path = programs / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    for name in (".my.cnf", ".netrc", ".config/pip/pip.conf", ".m2/settings.xml", "notes.txt"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("x")
    return {
        "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(home), "PIP_INDEX_URL": "https://pypi.example/simple",
        "MYSQL_HOME": "/opt/mysql", "https_proxy": "http://proxy.example:3128",
    }  # fmt: skip


def environment(machine: dict[str, str]) -> tuple[int, list[str]]:
    done = subprocess.run([SCRIPT, "environment"], env=machine, capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout + done.stderr).splitlines()


def test_a_server_that_somebody_installed_is_not_on_the_path(machine: dict[str, str]) -> None:
    code, lines = environment({**machine, "MIGVERIFY_CI_FORBIDDEN": "sed"})
    assert code == 0, lines
    (path,) = [line.removeprefix("PATH=") for line in lines if line.startswith("PATH=")]
    assert str(Path(machine["PATH"].split(":")[0])) not in path
    assert any(line.endswith("/sed is left out of PATH") for line in lines)
    assert not {"/usr/bin", "/bin"} & set(path.split(":")), "the folder that has it is copied without it"


def test_what_cannot_be_left_out_ends_the_run(machine: dict[str, str]) -> None:
    code, lines = environment({**machine, "MIGVERIFY_CI_FORBIDDEN": "mvn"})
    assert code == 2
    assert "a new machine has no mvn" in lines[-1]


def test_settings_of_package_clients_alone_are_kept_and_nothing_is_left_behind(machine: dict[str, str]) -> None:
    code, lines = environment(machine)
    assert code == 0, lines
    files = {line for line in lines if line.startswith("./")}
    assert files == {"./.netrc", "./.config/pip", "./.m2/settings.xml", "./.gitconfig"}
    assert {"PIP_INDEX_URL", "https_proxy", "MIGVERIFY_CACHE"} <= set(lines)
    assert "MYSQL_HOME" not in lines
    (path,) = [line.removeprefix("PATH=") for line in lines if line.startswith("PATH=")]
    folder = Path(path.split(":")[0]).parent
    assert folder.name.startswith("mvci-")
    assert not folder.exists()

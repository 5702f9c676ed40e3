"""Checks what was built as somebody would who installs it: metadata, contents, a clean environment, pipx and uvx."""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

from release import build, contents
from release.machine import Failed, Machine, run

NO_PYSPARK = """
import importlib.util, sys
import migverify, migverify.cli.main
assert importlib.util.find_spec("pyspark") is None, "pyspark is installed without the extra"
heavy = {"pyspark", "confluent_kafka", "pandas"} & set(sys.modules)
assert not heavy, f"a command imports {heavy} before it needs them"
print(migverify.__version__)
"""


def check(machine: Machine, say: Callable[[str], None]) -> None:
    """Run every check that needs no server."""
    for name, holds in (
        ("metadata of every distribution is what the index accepts (twine check --strict)", metadata),
        ("wheels have the package and its metadata, no test, no lab in migverify, no secret", wheels),
        ("each sdist builds the same wheel, byte by byte", sdists),
        ("installed with the hashes of the lock; pip check; --help and --version without pyspark and Java", installed),
        ("pipx run and uvx run the wheel, also with an extra", tools),
    ):
        holds(machine)
        say(f"ok: {name}")


def metadata(machine: Machine) -> None:
    """Let twine read what an index would show."""
    files = sorted(str(path) for path in machine.built.iterdir() if path.name.endswith((".whl", ".tar.gz")))
    run([sys.executable, "-m", "twine", "check", "--strict", *files], machine.built, machine.environment())


def wheels(machine: Machine) -> None:
    """Look at the files of both wheels."""
    for package in build.PROJECTS:
        if wrong := contents.problems(contents.read(machine.wheel(package)), package):
            raise Failed(f"{machine.wheel(package).name}: {'; '.join(wrong)}")


def sdists(machine: Machine) -> None:
    """Build each wheel from its sdist alone."""
    epoch = run(["git", "log", "-1", "--format=%ct"], machine.root, machine.environment()).strip()
    for package in build.PROJECTS:
        (packed,) = machine.built.glob(f"{package}-*.tar.gz")
        place = machine.folder / "sdist" / package
        with tarfile.open(packed) as archive:
            archive.extractall(place, filter="data")
        (tree,) = place.iterdir()
        build.distribution(tree, place / "dist", epoch, "UTC", "wheel")
        wheel = machine.wheel(package)
        if build.digests(place / "dist") != {wheel.name: build.digests(machine.built)[wheel.name]}:
            raise Failed(f"{packed.name} builds another wheel than {wheel.name}")


def installed(machine: Machine) -> None:
    """Install the wheel as a user does, and start it where there is neither pyspark nor Java."""
    place = machine.folder / "installed"
    run([sys.executable, "-m", "venv", str(place)], machine.folder, machine.environment())
    python = place / "bin" / "python"
    bare = {name: value for name, value in machine.environment().items() if name != "PIP_CONSTRAINT"}
    lock = machine.hashed("requirements-cli.lock")
    run([str(python), "-m", "pip", "install", "--require-hashes", "-r", str(lock)], machine.folder, bare)
    run([str(python), "-m", "pip", "check"], machine.folder, bare)
    alone = machine.environment(place / "bin", system=False)
    version = run([str(python), "-I", "-c", NO_PYSPARK], machine.folder, alone).strip()
    if f"migverify-{version}-" not in machine.wheel("migverify").name:
        raise Failed(f"the installed package says that it is {version}")
    command = str(place / "bin" / "migverify")
    if run([command, "--version"], machine.folder, alone).strip() != f"migverify {version}":
        raise Failed("`migverify --version` says another version than the package")
    groups = run([command, "--help"], machine.folder, alone)
    if "tables" not in groups or "runbook" not in groups:
        raise Failed(f"`migverify --help` does not list its commands:\n{groups}")
    run([command, "lab", "up"], machine.folder, alone, expected=2)  # a distribution of its own


def tools(machine: Machine) -> None:
    """Run the wheel by pipx and uvx, without installing it first."""
    wheel, here = machine.wheel("migverify"), Path(sys.executable).parent
    environment = machine.environment_of_users(here)
    version = f"migverify {wheel.name.split('-')[1]}"
    with_kafka = [f"migverify[kafka] @ {wheel.as_uri()}", "python", "-c", "import confluent_kafka, migverify"]
    for command in (
        ["pipx", "run", "--spec", str(wheel), "migverify", "--version"],
        ["uvx", "--from", str(wheel), "migverify", "--version"],
    ):
        if version not in run([str(here / command[0]), *command[1:]], machine.folder, environment):
            raise Failed(f"{command[0]} runs another version than {version}")
    run([str(here / "uvx"), "--from", *with_kafka], machine.folder, environment)
    run([str(here / "pipx"), "install", f"{wheel}[kafka]"], machine.folder, environment)
    run([str(machine.folder / "tools" / "bin" / "migverify"), "--version"], machine.folder, environment)

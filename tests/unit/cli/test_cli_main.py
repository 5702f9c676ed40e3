"""The root command: what it loads, and how each ending becomes a message and an exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import typer

from migverify.cli import main as root
from migverify.errors import ConfigError, ExitCode, ReadError
from migverify.secrets import Secret, remember

HEAVY = ("pyspark", "pyarrow", "sqlalchemy", "pymysql", "pydantic", "jinja2", "yaml", "rich", "pandas")


def migverify(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "migverify", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
    )


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], int]:
    """Run a function as the command ``lab`` and give the exit code."""

    def run(function: Callable[[], None]) -> int:
        module = ModuleType("made_up_command")
        app = typer.Typer()
        app.command(name="boom")(function)
        module.app = app  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "made_up_command", module)
        monkeypatch.setattr(root, "COMMANDS", (root.CommandEntry("boom", "made_up_command", "x"),))
        return root.run(["boom"])

    return run


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["-h"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from migverify.cli.main import run; code = run(sys.argv[1:]);"
        f"print('LOADED', sorted(set({HEAVY!r}) & set(sys.modules)), code, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stderr.strip() == "LOADED [] 0"


def test_help_lists_every_command_and_examples() -> None:
    done = migverify("--help", NO_COLOR="1")
    assert done.returncode == 0
    for entry in root.COMMANDS:
        assert f"  {entry.name} " in done.stdout
        assert entry.summary in done.stdout
    assert "Examples:" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("command", [["init"], ["config"], ["config", "--schema"]])
def test_help_of_a_command_ends_with_an_example(command: list[str]) -> None:
    done = migverify(*command, "--help")
    assert f"Examples:\n    migverify {' '.join(command)}" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["tabels"], "No such command 'tabels'. Did you mean 'tables'?"),
        (["--nonsense"], "No such option"),
        (["config", "--nonsense"], "Try `migverify config --help`"),
        (["config", "extra"], "unexpected extra argument"),
        (["config", "-c", "/no/such/file.yaml"], "there is no configuration file /no/such/file.yaml"),
        ([], "Usage: migverify"),
        (["guard"], "Usage: migverify guard"),
    ],
)
def test_usage_errors(arguments: list[str], expected: str) -> None:
    done = migverify(*arguments)
    assert done.returncode == ExitCode.USAGE
    assert expected in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_errors_become_messages(
    ending: Callable[[Callable[[], None]], int], capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong() -> None:
        raise ConfigError("it is wrong", hint="Do this.")

    def broken() -> None:
        raise ReadError("cannot read")

    def leave() -> None:
        raise typer.Exit(1)

    def stop() -> None:
        raise KeyboardInterrupt

    def abort() -> None:
        raise typer.Abort

    assert ending(wrong) == 2
    assert capsys.readouterr() == ("", "error: it is wrong\n  Do this.\n")
    assert ending(broken) == 3
    assert ending(leave) == 1
    assert ending(stop) == 130
    assert ending(abort) == 130
    assert ending(lambda: None) == 0


def test_a_bug_is_inconclusive_and_asks_for_a_report(
    ending: Callable[[Callable[[], None]], int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remember(Secret("hunter2"))

    def bug() -> None:
        raise ZeroDivisionError("oops hunter2")

    monkeypatch.delenv("MIGVERIFY_TRACEBACK", raising=False)
    assert ending(bug) == ExitCode.INCONCLUSIVE
    short = capsys.readouterr().err
    assert "ZeroDivisionError: oops ***" in short
    assert "bug" in short
    assert "Traceback" not in short
    monkeypatch.setenv("MIGVERIFY_TRACEBACK", "1")
    assert ending(bug) == ExitCode.INCONCLUSIVE
    long = capsys.readouterr().err
    assert "Traceback" in long
    assert "hunter2" not in long


def test_a_closed_pipe_is_no_mismatch() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "migverify", "config", "--schema", "migverify"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (ExitCode.INCONCLUSIVE, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_told() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "migverify", "config", "--schema", "migverify"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert done.returncode == ExitCode.INCONCLUSIVE
    assert done.stderr == "error: [Errno 28] No space left on device\n"


def test_names_that_the_terminal_cannot_show_are_escaped(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(
        "source: {url: mysql://u@h}\ntarget: {url: tidb://u@h}\ntables: {include: ['🙈.*']}\n", encoding="utf-8"
    )
    done = migverify("config", "-c", str(file), PYTHONIOENCODING="latin-1")
    assert done.returncode == 0
    assert "\\U0001f648.*" in done.stdout


def test_config_check(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(
        "source: {url: mysql://u@h, password_command: 'echo hunter2'}\ntarget: {url: tidb://u@h}\n"
        "routes: [{from: a.b, to: c.d}]\n",
        encoding="utf-8",
    )
    done = migverify("config", MIGVERIFY_CONFIG=str(file))
    assert done.returncode == 0
    assert "source: u@h:3306, password from a command" in done.stdout
    assert "route: a.b -> c.d" in done.stdout
    view = json.loads(migverify("config", "--json", "-c", str(file)).stdout)
    assert view["target"]["port"] == 4000
    assert len(view["comparison_digest"]) == 64
    assert "hunter2" not in json.dumps(view) + done.stdout

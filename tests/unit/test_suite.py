"""The suite's own plugin: load that ends with a run, a limit of time, failures summed up by their cause."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
SEVEN = """
import pytest
@pytest.fixture(scope="session")
def server():
    raise OSError("port 4711 of /tmp/x is taken")
@pytest.mark.parametrize("n", range(5))
def test_server(server, n): pass
@pytest.mark.parametrize("n", range(2))
def test_sum(n): assert n == 7
"""


def run(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(folder, text, *options), cwd=folder, capture_output=True, text=True, check=False)


def command(folder: Path, text: str, *options: str) -> list[str]:
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT}\nmarkers =\n    clocks: has a clock\n")
    (folder / "conftest.py").write_text('pytest_plugins = ["tests.suite"]\n')
    return [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:hypothesispytest",
        *options,
        str(folder),
    ]


def test_failures_are_summed_up_by_cause_and_none_hides_another(tmp_path: Path) -> None:
    done = run(tmp_path, SEVEN, "-n", "2")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "2 causes of 7 failures" in done.stdout
    assert "5 x OSError: port N of PATH is taken" in done.stdout
    assert "2 x assert N == N" in done.stdout.replace("AssertionError: ", "")
    assert done.stdout.splitlines()[-1].startswith("2 failed, 5 errors in ")


def test_a_run_that_is_over_its_time_says_so_and_fails(tmp_path: Path) -> None:
    text = "import pytest\n@pytest.mark.parametrize('n', range(500))\ndef test_it(n): pass\n"
    done = run(tmp_path, text, "--end-by", "1")
    assert done.returncode == pytest.ExitCode.INTERRUPTED, done.stdout
    assert "the time for the whole run is over" in done.stdout


def test_load_beside_the_tests_ends_with_them_also_when_they_are_killed(tmp_path: Path) -> None:
    text = "import pathlib, time\ndef test_it():\n    pathlib.Path('begun').touch()\n    time.sleep(600)\n"
    process = subprocess.Popen(command(tmp_path, text, "--busy", "2"), cwd=tmp_path, stdout=subprocess.DEVNULL)
    try:
        wait_for((tmp_path / "begun").exists, "the test runs")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) == 2
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    wait_for(lambda: not any(Path(f"/proc/{child}").exists() for child in children), "the load has ended")


def test_modules_with_clocks_are_marked(tmp_path: Path) -> None:
    (tmp_path / "test_clock.py").write_text("import time\ndef test_it(): pass\n")
    done = run(tmp_path, "def test_it(): pass\n", "-m", "clocks", "--end-by", str(time.time() + 3600))
    assert "1 passed in" in done.stdout
    assert "test_clock.py" in run(tmp_path, "", "-m", "clocks", "-v").stdout


@pytest.mark.parametrize(
    ("expression", "loaded"),
    [
        ("clocks and not soak", {"test_clock.py"}),
        ("not clocks and not soak", {"test_it.py"}),
        ("clocks and not soak or not soak", {"test_clock.py", "test_it.py"}),
        ("not soak", {"test_clock.py", "test_it.py"}),
    ],
)
def test_modules_without_a_selected_test_are_not_loaded(tmp_path: Path, expression: str, loaded: set[str]) -> None:
    trace = "open('loaded', 'a').write(__file__.rpartition('/')[2] + '\\n')\ndef test_it(): pass\n"
    (tmp_path / "test_clock.py").write_text("import time\n" + trace)
    run(tmp_path, trace, "-m", expression)
    assert set((tmp_path / "loaded").read_text().split()) == loaded

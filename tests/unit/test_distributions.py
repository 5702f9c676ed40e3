"""What is built: nothing installed beside a production database kills servers, and all versions are the same."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import migverify
from migverify.cli import main
from release import contents, tutorial

ROOT = Path(__file__).parents[2]


def wheel(folder: Path, out: Path) -> dict[str, bytes]:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)], cwd=folder, check=True,
        capture_output=True,
    )  # fmt: skip
    (built,) = out.glob("*.whl")
    return contents.read(built)


def test_the_wheel_of_migverify_has_no_lab(tmp_path: Path) -> None:
    held = wheel(ROOT, tmp_path)
    assert "migverify/cli/main.py" in held
    assert not [name for name in held if "lab" in Path(name).stem.split("_")]
    assert contents.problems(held, "migverify") == []


@pytest.mark.parametrize(
    ("name", "body", "wrong"),
    [
        ("tests/test_x.py", b"", "tests/test_x.py is no part of migverify"),
        ("migverify/test_x.py", b"", "migverify/test_x.py is a test"),
        ("migverify/runs.db", b"", "migverify/runs.db is no source file"),
        ("migverify/x.py", b"import migverify_lab", "migverify/x.py names the lab, which is not"),
        (
            "migverify/x.yaml",
            b"url: mysql://app:correct-horse@db.example.com/",
            "migverify/x.yaml holds what looks like",
        ),
    ],
)
def test_what_no_wheel_may_have_is_named(name: str, body: bytes, wrong: str) -> None:
    files = {"migverify/__init__.py": b"", "migverify/py.typed": b"", "migverify-0.1.0.dist-info/METADATA": b""}
    assert contents.problems(files, "migverify") == []
    assert any(problem.startswith(wrong) for problem in contents.problems({**files, name: body}, "migverify"))
    assert contents.problems({"migverify/__init__.py": b""}, "migverify") == ["migverify/py.typed is missing"]


def test_the_version_is_the_same_everywhere() -> None:
    project, lab = (
        tomllib.loads((ROOT / name).read_text())["project"] for name in ("pyproject.toml", "lab/pyproject.toml")
    )
    version = project["version"]
    assert migverify.__version__ == version
    assert lab["version"] == version
    assert f"migverify=={version}" in lab["dependencies"], "the lab uses what is inside of its release"
    heads = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert heads[0].split()[0] in {"Unreleased", version}
    folders = [ROOT / name for name in ("docs", "spark_jobs", "examples", "docker", ".github")]
    paths = [path for folder in folders for path in folder.rglob("*") if path.suffix not in {".lock", ".png", ".pyc"}]
    texts = {path.name: path.read_text() for path in paths if path.is_file()}
    others = {
        f"{name}: {found[0]}"
        for name, text in texts.items()
        for found in re.finditer(r"migverify(?:_lab)?-(\d+\.\d+\.\d+)|migverify[/:](\d+\.\d+\.\d+)", text)
        if (found[1] or found[2]) != version
    }
    assert not others


@pytest.mark.parametrize("lock", ["requirements-cli.lock", "requirements-spark.lock"])
def test_locks_of_the_images_are_parts_of_the_lock_that_is_tested(lock: str) -> None:
    pins = {name: dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / name).read_text(), flags=re.MULTILINE))
            for name in ("requirements.lock", lock)}  # fmt: skip
    assert len(pins[lock]) > 20
    assert pins[lock].items() <= pins["requirements.lock"].items(), "run `make lock`"
    assert (ROOT / lock).read_text().count("--hash=sha256:") >= len(pins[lock])


def test_the_console_blocks_of_the_tutorial_are_what_a_release_types() -> None:
    commands = tutorial.lines((ROOT / "docs" / "tutorial.md").read_text())
    assert {line.section for line in commands} == set(range(1, 9))
    for section, beginning in [*tutorial.EXPECTED, *tutorial.VERDICTS]:
        assert any(line.section == section and line.command.startswith(beginning) for line in commands), beginning
    (up,) = [line for line in commands if line.command == "migverify lab up"]
    assert len(tutorial.URL.findall("\n".join(up.shown))) == 2, "the ports of later commands are replaced by these"


def test_the_wheel_of_the_lab_has_its_data_and_adds_its_command(tmp_path: Path) -> None:
    held = wheel(ROOT / "lab", tmp_path)
    assert {"migverify_lab/data/docker-compose.yml", "migverify_lab/data/tidb-go.sum"} <= set(held)
    (points,) = [body.decode() for name, body in held.items() if name.endswith("entry_points.txt")]
    assert "[migverify.commands]\nlab = migverify_lab.cli.lab:app" in points
    (metadata,) = [body.decode() for name, body in held.items() if name.endswith("METADATA")]
    assert "Requires-Dist: tpchgen-cli" in metadata, "`lab load tpch` of the tutorial calls it"
    assert not [name for name in held if name.startswith("migverify/")]


def test_without_the_lab_its_command_says_how_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "added_commands", lambda: ())
    assert main.run(["lab", "up"]) == 2
    said = capsys.readouterr().err
    assert "a distribution of its own" in said
    assert f"pip install './migverify_lab-{migverify.__version__}-py3-none-any.whl'" in said


def test_the_lab_is_listed_where_it_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--help"]) == 0
    assert "A real MySQL and TiDB on this machine, with planted faults." in capsys.readouterr().out

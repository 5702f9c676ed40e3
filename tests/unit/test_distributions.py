"""Proves that what is installed beside a production database can neither kill a server nor plant a fault."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from migverify.cli import main

ROOT = Path(__file__).parents[2]


def wheel(folder: Path, out: Path) -> dict[str, bytes]:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)], cwd=folder, check=True,
        capture_output=True,
    )  # fmt: skip
    (built,) = out.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_of_migverify_has_no_lab(tmp_path: Path) -> None:
    held = wheel(ROOT, tmp_path)
    assert "migverify/cli/main.py" in held
    assert not [name for name in held if "lab" in Path(name).stem.split("_") or name.startswith("migverify_lab")]
    python = {name: body for name, body in held.items() if name.endswith(".py")}
    importers = {name for name, body in python.items() if b"migverify_lab" in body}
    assert importers == {"migverify/cli/workload_clients_setup.py"}, (
        "only --own-servers may ask whether the lab is there"
    )


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
    assert "pip install migverify-lab" in said


def test_the_lab_is_listed_where_it_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--help"]) == 0
    assert "A real MySQL and TiDB on this machine, with planted faults." in capsys.readouterr().out

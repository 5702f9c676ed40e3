"""The pipelines of examples/ run as they are written, on a real pair: all steps but the installation."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from migverify_lab.session import connect

if TYPE_CHECKING:
    from migverify_lab.servers import LabServers

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def checkout(tmp_path: Path, pair: LabServers) -> Iterator[Path]:
    """A repository with the files of examples/ci in it, whose database has a name of its own."""
    name = f"shop_{uuid.uuid4().hex[:8]}"
    shutil.copytree(EXAMPLES / "ci", tmp_path / "ci", ignore=shutil.ignore_patterns("__pycache__", ".migverify"))
    for path in (tmp_path / "ci").iterdir():
        path.write_text(path.read_text().replace("shop", name))
    yield tmp_path
    for server in (pair.source, pair.target):
        with connect(server) as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {name}")


def github() -> tuple[dict[str, str], list[str]]:
    job = yaml.safe_load((EXAMPLES / "github" / "verify.yml").read_text())["jobs"]["verify"]
    return job["env"], [step["run"] for step in job["steps"] if "run" in step]


def gitlab() -> tuple[dict[str, str], list[str]]:
    job = yaml.safe_load((EXAMPLES / "gitlab" / "verify.yml").read_text())["verify-migration"]
    return job["variables"], [*job["script"], *job["after_script"]]


@pytest.mark.parametrize("pipeline", [github, gitlab])
def test_a_pipeline_runs_as_it_is_written(pipeline: Any, checkout: Path, pair: LabServers) -> None:
    variables, steps = pipeline()
    places = {
        "SOURCE_HOST": pair.source.host, "SOURCE_PORT": str(pair.source.port), "SOURCE_PASSWORD": "",
        "TARGET_HOST": pair.target.host, "TARGET_PORT": str(pair.target.port),
    }  # fmt: skip
    assert set(places) <= {*variables, "SOURCE_PASSWORD"}
    environment = {**os.environ, **places, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    install, *others = steps
    assert install == 'pip install "migverify @ $MIGVERIFY_WHEEL"'
    assert len(others) == 3
    for step in others:
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", step], cwd=checkout, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{step}\n{done.stdout}{done.stderr}"
    verdict = json.loads((checkout / "verdict.json").read_text())
    assert (verdict["verdict"], verdict["run_id"]) == ("MATCH", verdict["run_id"])
    assert 'failures="0"' in (checkout / "verdict.xml").read_text()

"""The kill -9 test of the tables road, fifty times, at other moments each time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from migverify_lab.servers import LabServers
from tests.db.test_reliability import kill_and_resume, large_table

pytestmark = [pytest.mark.db, pytest.mark.soak]

__all__ = ["large_table"]  # a fixture


@pytest.mark.timeout(1800)
def test_a_driver_killed_fifty_times_resumes_to_the_same_verdict(
    own: tuple[LabServers, Path], large: str, tmp_path: Path
) -> None:
    seed = int(time.time())
    print(f"seed {seed}")  # noqa: T201 - to kill at the same moments again
    kill_and_resume(own, large, tmp_path, kills=50, seed=seed)

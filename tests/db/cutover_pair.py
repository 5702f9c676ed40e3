"""A pair of servers for cutovers alone: gates ask for everything that happens on a server."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from migverify_lab import cutover, servers, tidb
from migverify_lab.cutover import Rehearsal

ROOT = Path(__file__).parents[2]
PASSWORDS = ("MIGVERIFY_APP_PASSWORD", "MIGVERIFY_MARKER_PASSWORD", "MIGVERIFY_SOURCE_WRITER_PASSWORD")


@contextmanager
def own_world(folder: Path) -> Iterator[Rehearsal]:
    """Start a pair in a folder, with the environment that the hooks of the lab need; stop it afterwards."""
    if tidb.find() is None and os.environ.get("MIGVERIFY_REQUIRE_DB", "") in {"", "0"}:
        pytest.skip("TiDB is not built yet; `migverify lab build` does it")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)  # the runbooks name their hooks from here
        patch.setenv("MIGVERIFY_LAB_DIR", str(folder))
        patch.setenv("MIGVERIFY", f"{sys.executable} -m migverify")
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", "")))))
        for name in PASSWORDS:
            patch.setenv(name, "")
        try:
            servers.up(folder, "tidb", lambda _: None)
            yield cutover.rehearsal(folder)
        finally:
            servers.down(folder, purge=True)

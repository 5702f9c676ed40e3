"""A fleet of two services that are ready, on disk alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from migverify_lab.fleet import MadeFleet

SERVICES = ("orders", "users")


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MadeFleet]:
    monkeypatch.chdir(tmp_path)
    for name in ("MIGVERIFY_RUNS", "MIGVERIFY_CONFIG", "MIGVERIFY_FLEET", "MIGVERIFY_STORE_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    with closing(MadeFleet(tmp_path)) as made:
        for name in SERVICES:
            made.add(name)
        yield made


@pytest.fixture(scope="session")
def ready_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ready")
    with closing(MadeFleet(folder)) as made:
        for name in SERVICES:
            made.add(name)
            made.all_fine(name)
    return folder


@pytest.fixture
def ready(ready_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MadeFleet]:
    """Yield a fleet of two services that are ready; their watches are of now."""
    shutil.copytree(ready_folder, tmp_path / "fleet")
    monkeypatch.chdir(tmp_path / "fleet")
    for name in ("MIGVERIFY_RUNS", "MIGVERIFY_CONFIG", "MIGVERIFY_FLEET", "MIGVERIFY_STORE_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    with closing(MadeFleet(tmp_path / "fleet")) as made:
        for name in SERVICES:
            made.adopt(name)
            made.watch(name, "")
        yield made

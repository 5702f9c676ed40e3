"""A fleet of two services that are ready, on disk alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from migverify_lab.fleet import MadeFleet


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MadeFleet]:
    monkeypatch.chdir(tmp_path)
    for name in ("MIGVERIFY_RUNS", "MIGVERIFY_CONFIG", "MIGVERIFY_FLEET", "MIGVERIFY_STORE_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    with closing(MadeFleet(tmp_path)) as made:
        made.add("orders")
        made.add("users")
        yield made

"""Reads of a log that grows, asked on a real pair: sound under writes, a difference found within seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migverify_lab.servers import LabServers
from tests.db.binlog_server import SourceServer, binlog_server
from tests.db.shadowing import LOGS, LiveSides, Shadowing, live_sides, write_config

pytestmark = pytest.mark.db


@pytest.fixture(scope="module", name="source")
def logging_source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceServer]:
    with binlog_server(tmp_path_factory.mktemp("shadow-source"), *LOGS) as server:
        yield server


@pytest.fixture
def live(source: SourceServer, pair: LabServers) -> Iterator[LiveSides]:
    with live_sides(source, pair.target) as sides:
        yield sides


def own(status: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the digests of the application's reads."""
    return [one for one in status["digests"] if "FROM `t`" in one["text"]]


@pytest.mark.parametrize("log", ["slow.log", "general.log"])
def test_reads_of_a_sound_target_match_while_rows_are_written(
    live: LiveSides, source: SourceServer, tmp_path: Path, log: str
) -> None:
    config = write_config(tmp_path, live)
    shadow = Shadowing(config, source.data / log)
    status = shadow.wait_for(
        lambda now: len(own(now)) == 3 and all(one["same"] >= 40 for one in own(now)), "40 reads of each digest"
    )
    assert all(line["verdict"] != "MISMATCH" for line in shadow.lines), status
    code, last = shadow.end()
    assert code == 130
    assert {one["different"] for one in own(last)} == {0}
    assert last["hours"][0]["left"]["write"] > 0

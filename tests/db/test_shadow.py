"""Reads of a log that grows, asked on a real pair: sound under writes, a difference found within seconds."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from migverify.model import Verdict
from migverify.store.open import open_store
from migverify.workload.shadow.evidence import load_shadow
from migverify_lab.servers import LabServers
from migverify_lab.session import connect
from tests.db.binlog_server import SourceServer, binlog_server
from tests.db.shadowing import LOGS, LiveSides, Shadowing, live_sides, write_config
from tests.db.watching import migverify
from tests.waiting import wait_for

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


def wrong(status: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [(one["text"], one["reasons"]) for one in status["digests"] if one["verdict"] == "MISMATCH"]


def each_has(status: dict[str, Any], same: int) -> bool:
    return len(own(status)) == 3 and all(one["same"] >= same for one in own(status))


def checkpoint(live: LiveSides) -> str:
    return f"applied: checkpoint, checkpoint: {live.name}.checkpoint"


@pytest.mark.parametrize("log", ["slow.log", "general.log"])
def test_reads_of_a_sound_target_match_while_rows_are_written(
    live: LiveSides, source: SourceServer, tmp_path: Path, log: str
) -> None:
    shadow = Shadowing(write_config(tmp_path, live), source.data / log)
    shadow.wait_for(lambda now: each_has(now, 40), "40 reads of each digest")
    assert [wrong(line) for line in shadow.lines if line["verdict"] == "MISMATCH"] == []
    code, last = shadow.end()
    assert code == 130
    assert {one["different"] for one in own(last)} == {0}
    assert last["hours"][0]["left"]["write"] > 0


def test_a_planted_difference_is_found_with_its_digest_and_hour(
    live: LiveSides, source: SourceServer, pair: LabServers, tmp_path: Path
) -> None:
    config = write_config(tmp_path, live, watch=checkpoint(live))
    shadow = Shadowing(config, source.data / "slow.log", "--metrics-file", str(tmp_path / "shadow.prom"))
    shadow.wait_for(lambda now: each_has(now, 5) and now["replication_lag"] is not None, "reads of each digest")
    with connect(pair.target, live.name) as session, session.cursor() as cursor:
        cursor.execute("UPDATE t SET note = 'planted' WHERE id <= 10")
    status = shadow.wait_for(lambda now: now["verdict"] == "MISMATCH", "the difference")
    assert [text for text, _ in wrong(status)] == ["SELECT `id` , `v` , `note` FROM `t` WHERE `id` = ?"], wrong(status)
    (planted,) = [one for one in own(status) if one["verdict"] == "MISMATCH"]
    assert planted["mismatch_hours"] == [status["hours"][0]["hour"]]
    assert 'migverify_shadow_digest_verdict{digest="' + planted["digest"][:16] in (tmp_path / "shadow.prom").read_text()
    code, last = shadow.end()
    assert (code, last["verdict"]) == (130, "MISMATCH")
    with closing(open_store(f"sqlite:///{tmp_path}/.migverify/runs.db")) as store:
        evidence = load_shadow(store, last["run_id"])
    assert evidence is not None
    assert (evidence.verdict, evidence.is_over, evidence.counts) == (Verdict.MISMATCH, True, last["counts"])
    code, out, _ = migverify("report", last["run_id"], "--config", str(config), "--format", "json", "--values")
    assert code == 1
    assert planted["digest"] in out
    assert "planted" in out


def fresh_log(source: SourceServer) -> Path:
    """Let the server begin a new general log; return its path."""
    log = source.data / "general.log"
    log.rename(source.data / f"earlier-{time.monotonic_ns()}.log")
    source.run("FLUSH GENERAL LOGS")
    return log


def counted(status: dict[str, Any]) -> int:
    return sum(one["reads"] for one in own(status))


def test_killed_and_resumed_it_counts_each_read_once(source: SourceServer, pair: LabServers, tmp_path: Path) -> None:
    log = fresh_log(source)
    with live_sides(source, pair.target) as live:
        config = write_config(tmp_path, live, watch=checkpoint(live))
        shadow = Shadowing(config, log, "--since", "2000-01-01")
        for least in (60, 120):
            shadow.wait_for(lambda now, least=least: counted(now) >= least, f"{least} reads")
            os.kill(shadow.process.pid, signal.SIGKILL)
            shadow.process.wait()
            shadow = Shadowing(config, log, "--resume", "last")
        shadow.wait_for(lambda now: counted(now) >= 180, "180 reads")
        live.stop()
        live.join()
        status = shadow.wait_for(
            lambda now: not now["pending"] and counted(now) >= live.reads, f"all {live.reads} reads"
        )
        assert counted(status) == live.reads
        _, last = shadow.end()
        assert counted(last) == live.reads


def test_a_rotated_log_is_read_to_its_end(live: LiveSides, source: SourceServer, tmp_path: Path) -> None:
    log = source.data / "slow.log"
    shadow = Shadowing(write_config(tmp_path, live), log)
    shadow.wait_for(lambda now: each_has(now, 10), "reads of each digest")
    log.rename(source.data / "slow.log.1")
    source.run("FLUSH SLOW LOGS")
    status = shadow.wait_for(lambda now: each_has(now, 60), "reads of the new log")
    shadow.end()
    assert not any(one["gaps"] or one["unreadable"] for one in status["hours"])


def test_a_rate_is_kept_and_what_falls_behind_is_said(live: LiveSides, source: SourceServer, tmp_path: Path) -> None:
    shadow = Shadowing(write_config(tmp_path, live, rate=5, max_lag=2), source.data / "slow.log")
    status = shadow.wait_for(lambda now: sum(one["unasked"] for one in own(now)) > 20, "reads that are not asked")
    _, last = shadow.end()
    assert last["verdict"] == "INCONCLUSIVE"
    reasons = json.dumps([one["reasons"] for one in own(status)])
    assert "more than 2 s behind the log (rate limit)" in reasons
    assert max(line["rate"] for line in shadow.lines) <= 10


def test_connections_that_a_server_ends_are_opened_again(live: LiveSides, source: SourceServer, tmp_path: Path) -> None:
    shadow = Shadowing(write_config(tmp_path, live), source.data / "slow.log")
    shadow.wait_for(lambda now: each_has(now, 10), "reads of each digest")
    (file,) = tmp_path.rglob("shadow.sqlite")
    with closing(sqlite3.connect(file)) as kept:
        threads = [thread for thread, closed in kept.execute("SELECT thread, closed FROM own") if closed is None]
    running = {row[0] for row in source.run("SELECT id FROM performance_schema.processlist")}
    ended = [thread for thread in threads if thread in running]
    assert len(ended) >= 4
    source.run(*(f"KILL {thread}" for thread in ended))
    shadow.wait_for(lambda now: each_has(now, 60), "reads over new connections")
    _, last = shadow.end()
    assert sum(one["unasked"] for one in own(last)) == 0


def test_the_whole_log_once(source: SourceServer, pair: LabServers, tmp_path: Path) -> None:
    log = fresh_log(source)
    with live_sides(source, pair.target, writes=False) as live:
        wait_for(lambda: live.reads > 30, "reads")
        live.stop()
        live.join()
        config = write_config(tmp_path, live, watch=checkpoint(live))
        page = tmp_path / "shadow.html"
        code, last = Shadowing(config, log, "--once", "--page", str(page)).end(None)
        assert code == {"MATCH": 0, "MISMATCH": 1, "INCONCLUSIVE": 3}[last["verdict"]]
        assert counted(last) == live.reads
        assert {one["verdict"] for one in own(last)} == {"MATCH"}
        assert (last["final"], last["pending"]) == (True, 0)
        assert page.stat().st_mode & 0o777 == 0o600
        assert 'http-equiv="refresh"' not in page.read_text(), "it is the last one"
        assert f"{last['counts']['same']:,}</b> same" in page.read_text()

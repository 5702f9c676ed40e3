"""`tables watch --reverse` on the real pair: TiDB is written, a feed carries its commits to MySQL, each fault is found.

The commits and their timestamps are TiDB's own; what stands in for TiCDC is the lab's feed, see docs/lab.md.
"""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from migverify_lab.feed.run import ReverseFeed, feed
from tests.conftest import Databases
from tests.db.verifying import write_config
from tests.db.watching import Watching, diffs, drained, migverify, reasons

pytestmark = pytest.mark.db

COLUMNS = (
    "id BIGINT UNSIGNED PRIMARY KEY, amount DECIMAL(18,4), state ENUM('new','paid'), at DATETIME(6),"
    " seen TIMESTAMP(3) NULL, note VARCHAR(60)"
)
MARKER = "name VARCHAR(64) NOT NULL PRIMARY KEY, number BIGINT NOT NULL, written DATETIME(6) NOT NULL"


@pytest.fixture
def opened(databases: Databases) -> Databases:
    """A pair that is equal, whose target is open for writes."""
    databases.both(
        f"CREATE TABLE pay ({COLUMNS})",
        f"CREATE TABLE marker ({MARKER})",
        *(f"INSERT INTO pay VALUES ({n}, {n}.5, 'new', '2026-01-01', '2026-01-02 03:04:05', 'before')"
          for n in range(40)),
    )  # fmt: skip
    return databases


@contextmanager
def followed(databases: Databases, folder: Path, *faults: str, **options: Any) -> Iterator[tuple[ReverseFeed, Path]]:
    """Run a feed; yields it, and the configuration that names its files."""
    name = databases.name
    with feed(databases.pair, folder / "feed", tables=[f"{name}.*"], polled=[f"{name}.marker"], faults=faults,
              name=f"reverse-{name}", **options) as fed:  # fmt: skip
        yield fed, config_of(databases, folder, fed)


def config_of(databases: Databases, folder: Path, fed: ReverseFeed, **settings: Any) -> Path:
    place: dict[str, Any] = {"files": [str(path) for path in fed.paths]}
    if fed.servers:
        place = {"kafka": {"servers": fed.servers, "topics": [fed.topic]}}
    carrier = {"format": fed.format.name, "time_zone": "UTC", **place}
    reverse = {"carrier": carrier, "applied": "marker", "marker": f"{databases.name}.marker", **settings}
    tables = {"include": [f"{databases.name}.*"], "exclude": [f"{databases.name}.marker"]}
    return write_config(
        folder, databases.pair, databases.name, watch={"delay": 0.3}, reverse=reverse, tables=tables
    )  # fmt: skip


def write(fed: ReverseFeed, databases: Databases, count: int, first: int = 1000, pause: float = 0.002) -> None:
    """Commit transactions of one to four changes on TiDB: inserts, updates of a few hot rows, deletes."""
    rng, table = random.Random(first), f"{databases.name}.pay"
    for n in range(first, first + count):
        statements = [
            f"INSERT INTO {table} VALUES ({n}, {n / 4}, 'new', '2026-05-05 05:05:05.000{n % 1000:03d}',"
            f" '2026-06-06 06:06:06', 'n{n}')",
            f"UPDATE {table} SET amount=amount+1, note='hot {n}' WHERE id={rng.randrange(5)}",
        ]
        if rng.random() < 0.3:
            statements.append(
                f"UPDATE {table} SET state='paid', seen='2026-07-07 07:07:07' WHERE id={rng.randrange(40)}"
            )
        if rng.random() < 0.2:
            statements.append(f"DELETE FROM {table} WHERE id={rng.randrange(first, n + 1)}")
        fed.write(*statements)
        time.sleep(pause)


def verified(config: Path) -> str:
    code, out, err = migverify("tables", "verify", "--engine", "local", "--config", str(config), "--quiet")
    assert code == 0, out + err
    return "last"


@pytest.mark.parametrize(("protocol", "out"), [("canal-json", "files"), ("open-protocol", "kafka")])
def test_a_healthy_feed_is_never_a_difference_and_its_drain_is_match(
    opened: Databases, tmp_path: Path, protocol: str, out: str
) -> None:
    with followed(opened, tmp_path, protocol=protocol, out=out) as (fed, config):
        watching = Watching(config, "--reverse", "--since", verified(config))
        watching.wait_for(lambda s: s["sources"][0]["read_seconds"] is not None)
        write(fed, opened, 300)
        watching.wait_for(lambda s: s["tables"][0]["keys"] > 100)
        watching.wait_for(lambda s: s["verdict"] == "MATCH")
        code, status = watching.stop()
        assert (code, sum(t["diverged"] for line in watching.lines for t in line["tables"])) == (130, 0)
        code, status = drained(config, watching.run, "--reverse", "--timeout", "60")
    assert (code, status["verdict"], reasons(status)) == (0, "MATCH", "")
    assert status["reverse"]
    assert status["as_of"].startswith("tso:")
    assert status["tables"][0]["images"] > 600


FOUND_BY_KEY = [
    "row-not-applied:every=60", "checkpoint-ahead:every=50", "wrong-time-zone:every=40,column=seen",
    "truncated-column:every=30,column=note", "dropped-column:every=1,column=note", "out-of-order:every=40",
]  # fmt: skip
FOUND_BY_THE_SWEEP = ["message-lost:every=60", "split-partition:every=40"]


@pytest.mark.attack(
    "reverse",
    "a feed to the source loses messages or rows behind its checkpoint, reorders them, alters a time zone or a text",
    "MISMATCH with exactly the keys and columns that differ; what left no message is found by the sweep",
)  # fmt: skip
@pytest.mark.parametrize("fault", FOUND_BY_KEY + FOUND_BY_THE_SWEEP)
def test_each_fault_of_the_feed_is_found_with_key_and_column(opened: Databases, tmp_path: Path, fault: str) -> None:
    with followed(opened, tmp_path, fault, out="files") as (fed, config):
        if fault in FOUND_BY_THE_SWEEP:
            settings = yaml.safe_load(config.read_text())
            settings["watch"]["sweep_rows"] = 5000
            config.write_text(yaml.safe_dump(settings))
        watching = Watching(config, "--reverse", "--since", verified(config))
        watching.wait_for(lambda s: s["sources"][0]["read_seconds"] is not None)
        write(fed, opened, 150)
        fed.drain()
        standing = {(d.key, tuple(sorted(d.columns))) for d in fed.standing()}
        assert standing or fault.startswith("split-partition"), "the fault did nothing that lasts"
        found = watching.wait_for(lambda s: sum(t["diverged"] for t in s["tables"]) >= len(standing), 60)
        assert found["verdict"] == ("MISMATCH" if standing else found["verdict"])
        watching.stop()
        code, status = drained(config, watching.run, "--reverse", "--timeout", "60")
    assert (code, status["verdict"]) == ((1, "MISMATCH") if standing else (0, "MATCH")), reasons(status)
    assert {(key, columns) for _, key, columns in diffs(config, watching.run)} == standing


@pytest.mark.attack(
    "reverse", "messages come twice, or out of order across keys",
    "MATCH: a feed may do that",
)  # fmt: skip
@pytest.mark.parametrize("fault", ["message-duplicated:every=7", "across-keys:every=9"])
def test_what_a_feed_may_do_is_no_difference(opened: Databases, tmp_path: Path, fault: str) -> None:
    with followed(opened, tmp_path, fault) as (fed, config):
        watching = Watching(config, "--reverse", "--since", verified(config))
        watching.wait_for(lambda s: s["sources"][0]["read_seconds"] is not None)
        write(fed, opened, 150)
        fed.drain()
        assert fed.faults_done, "the fault did nothing"
        watching.wait_for(lambda s: s["tables"][0]["keys"] > 100 and s["verdict"] == "MATCH")
        watching.stop()
        code, status = drained(config, watching.run, "--reverse", "--timeout", "60")
    assert (code, status["verdict"], reasons(status)) == (0, "MATCH", "")


@pytest.mark.attack(
    "reverse", "the feed stalls with writes under way",
    "INCONCLUSIVE, no key is called diverged",
)  # fmt: skip
def test_a_feed_that_stalls_is_lag_and_never_a_mismatch(opened: Databases, tmp_path: Path) -> None:
    with followed(opened, tmp_path, "stalled:at=20") as (fed, config):
        watching = Watching(config, "--reverse", "--since", verified(config))
        watching.wait_for(lambda s: s["sources"][0]["read_seconds"] is not None)
        write(fed, opened, 60)
        watching.wait_for(lambda s: sum(t["pending"] + t["doubt"] for t in s["tables"]) > 20)
        watching.stop()
        code, status = drained(config, watching.run, "--reverse", "--timeout", "4")
    assert (code, status["verdict"]) == (3, "INCONCLUSIVE"), status
    assert sum(t["diverged"] for t in status["tables"]) == 0
    assert "the source has applied" in reasons(status)


@pytest.mark.attack(
    "reverse", "a column is added on the target, and the DDL is not carried",
    "never MATCH; the column is named",
)  # fmt: skip
def test_a_ddl_that_was_not_carried_is_seen(opened: Databases, tmp_path: Path) -> None:
    with followed(opened, tmp_path, "ddl-not-carried:every=1") as (fed, config):
        watching = Watching(config, "--reverse", "--since", verified(config))
        watching.wait_for(lambda s: s["sources"][0]["read_seconds"] is not None)
        fed.write(f"ALTER TABLE {opened.name}.pay ADD COLUMN extra INT")
        fed.drain()
        status = watching.wait_for(lambda s: s["verdict"] != "MATCH" and "extra" in reasons(s))
        watching.stop()
    assert status["verdict"] in ("MISMATCH", "INCONCLUSIVE")


@pytest.mark.attack(
    "reverse", "an old client writes the source after the target was opened",
    "MISMATCH with key and column, by the sweep",
)  # fmt: skip
def test_a_writer_that_was_left_on_the_old_side_is_found(opened: Databases, tmp_path: Path) -> None:
    with followed(opened, tmp_path) as (fed, config):
        settings = yaml.safe_load(config.read_text())
        settings["watch"]["sweep_rows"] = 5000
        config.write_text(yaml.safe_dump(settings))
        watching = Watching(config, "--reverse", "--since", verified(config))
        watching.wait_for(lambda s: s["sources"][0]["read_seconds"] is not None)
        write(fed, opened, 50)
        fed.write_old_side(f"UPDATE {opened.name}.pay SET note='old client' WHERE id=7")
        found = watching.wait_for(lambda s: sum(t["diverged"] for t in s["tables"]) == 1)
        watching.stop()
    assert found["verdict"] == "MISMATCH"
    assert diffs(config, watching.run) == {(f"{opened.name}.pay", ("7",), ("note",))}


@pytest.mark.attack(
    "reverse", "a client writes the source between the end of the forward watch and the reverse one",
    "its keys are read: MISMATCH",
)  # fmt: skip
def test_from_forward_to_reverse_nothing_lies_unread(opened: Databases, tmp_path: Path) -> None:
    """A client writes the source after the forward watch has ended: the reverse watch reads its keys."""
    with followed(opened, tmp_path) as (fed, config):
        base = verified(config)
        code, out, err = migverify("tables", "watch", "--config", str(config), "--since", base, "--until-drained",
                                   "--timeout", "60", "--json")  # fmt: skip
        assert code == 0, out + err
        forward = json.loads(out.splitlines()[-1])["run_id"]
        opened.source("UPDATE pay SET note='too late' WHERE id=3")
        watching = Watching(config, "--reverse", "--since", forward)
        found = watching.wait_for(lambda s: sum(t["diverged"] for t in s["tables"]) == 1)
        code, out, err = migverify("status", "--json", "--config", str(config))
        both = json.loads(out)["directions"]
        write(fed, opened, 20)
        watching.stop()
    assert found["verdict"] == "MISMATCH"
    assert diffs(config, watching.run) == {(f"{opened.name}.pay", ("3",), ("note",))}
    assert (code, both["forward"]["run"], both["forward"]["verdict"]) == (0, forward, "MATCH"), err
    assert (both["reverse"]["run"], both["reverse"]["state"]) == (watching.run, "alive")
    assert (both["reverse"]["verdict"], both["reverse"]["diverged"]) == ("MISMATCH", 1)
    assert both["forward"]["as_of"].partition(":")[0].rpartition(".")[2].isdigit(), "a place in the binlog"
    # The key before the update and after it.
    assert (both["hand_over"]["verdict"], both["hand_over"]["unread_rows"]) == ("MISMATCH", 2)
    assert migverify("status", "--config", str(config))[0] == 0


@pytest.mark.attack(
    "reverse", "the topic of another cluster is read, whose watermarks move on",
    "INCONCLUSIVE: the marker of the watch never comes",
)  # fmt: skip
def test_the_topic_of_another_cluster_is_not_taken_for_this_one(opened: Databases, tmp_path: Path) -> None:
    """Its watermarks move on, and the marker of the watch never comes."""
    with followed(opened, tmp_path) as (fed, config):
        base = verified(config)
        settings = yaml.safe_load(config.read_text())
        lines = fed.paths[0].read_bytes().splitlines(keepends=True)
        stranger = tmp_path / "stranger.jsonl"
        stranger.write_bytes(b"".join(line for line in lines if b"WATERMARK" in line))
        settings["reverse"]["carrier"]["files"] = [str(stranger)]
        config.write_text(yaml.safe_dump(settings))
        watching = Watching(config, "--reverse", "--since", base)
        stop = threading.Event()
        copier = threading.Thread(target=_copy, args=(fed.paths[0], stranger, stop, _watermarks))
        copier.start()
        status = watching.wait_for(lambda s: "do not hold it" in reasons(s))
        stop.set()
        copier.join()
        watching.stop()
    assert status["verdict"] == "INCONCLUSIVE"


def _copy(path: Path, to: Path, stop: threading.Event, change: Callable[[bytes], bytes]) -> None:
    done = to.stat().st_size and path.read_bytes().count(b"\n")
    while not stop.wait(0.1):
        lines = path.read_bytes().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        with to.open("ab") as file:
            file.write(b"".join(map(change, whole[done:])))
        done = len(whole)


def _watermarks(line: bytes) -> bytes:
    return line if b"WATERMARK" in line else b""


def _other_rows(line: bytes) -> bytes:
    return re.sub(rb'"id":"(\d+)"', rb'"id":"9999\1"', line)


def _same_rows_later(line: bytes) -> bytes:
    """What a copy of the target sends that gets its rows some milliseconds later."""
    return re.sub(rb'"commitTs":(\d+)', lambda found: b'"commitTs":%d' % (int(found[1]) + (37 << 18)), line)


def settled(config: Path, **carrier: Any) -> None:
    settings = yaml.safe_load(config.read_text())
    settings["reverse"] |= {"applied": "settle", "settle_seconds": 1.0}
    settings["reverse"]["carrier"] |= carrier
    config.write_text(yaml.safe_dump(settings))


def test_without_a_marker_the_targets_own_feed_is_known_by_its_rows(opened: Databases, tmp_path: Path) -> None:
    with followed(opened, tmp_path, out="files") as (fed, config):
        settled(config)
        watching = Watching(config, "--reverse", "--since", verified(config))
        watching.wait_for(lambda s: s["sources"][0]["read_seconds"] is not None)
        write(fed, opened, 60)
        watching.wait_for(lambda s: s["tables"][0]["keys"] > 20 and s["verdict"] == "MATCH")
        watching.stop()
        code, status = drained(config, watching.run, "--reverse", "--timeout", "60")
    assert (code, status["verdict"], reasons(status)) == (0, "MATCH", "")


@pytest.mark.parametrize(
    ("change", "reason"),
    [(_other_rows, "the changefeed is that of another cluster"), (_same_rows_later, "is not known to be that of")],
)
def test_without_a_marker_the_feed_of_another_cluster_is_no_match(
    opened: Databases, tmp_path: Path, change: Callable[[bytes], bytes], reason: str
) -> None:
    """It carries a table of the same name, and its watermarks move on."""
    with followed(opened, tmp_path, out="files", partitions=1) as (fed, config):
        base = verified(config)
        stranger = tmp_path / "stranger.jsonl"
        stranger.write_bytes(b"")
        settled(config, files=[str(stranger)])
        stop = threading.Event()
        copier = threading.Thread(target=_copy, args=(fed.paths[0], stranger, stop, change))
        copier.start()
        try:
            watching = Watching(config, "--reverse", "--since", base)
            watching.wait_for(lambda s: s["sources"][0]["read_seconds"] is not None)
            write(fed, opened, 60)
            watching.wait_for(lambda s: reason in reasons(s))
            if change is _other_rows:  # it ends by itself
                code = watching.process.wait(30)
                watching.join()
            else:
                code, _ = watching.stop()
        finally:
            stop.set()
            copier.join()
    assert code == (3 if change is _other_rows else 130)
    assert {status["verdict"] for status in watching.lines} == {"INCONCLUSIVE"}
    assert reason in reasons(watching.lines[-1])


def test_a_marker_table_that_is_missing_is_one_error_at_the_start(opened: Databases, tmp_path: Path) -> None:
    with followed(opened, tmp_path) as (_, config):
        base = verified(config)
        opened.source("DROP TABLE marker")
        code, out, err = migverify("tables", "watch", "--reverse", "--since", base, "--config", str(config), "--quiet")
    assert (code, out) == (2, "")
    assert "marker on source does not exist" in err

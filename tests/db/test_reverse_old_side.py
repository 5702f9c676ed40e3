"""A reverse watch reads MySQL's binlog too: what the feed brings is no finding, and what others write is one."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from migverify.changes.positions import time_tso
from migverify_lab.feed.run import ReverseFeed, feed
from migverify_lab.replicator import ReplicatorOptions
from migverify_lab.replicator_process import running_replicator
from migverify_lab.replicator_target import CHECKPOINTS
from migverify_lab.session import connect, execute
from tests.conftest import Databases
from tests.db.test_reverse import MARKER, config_of, verified
from tests.db.watching import Watching, diffs, drained, migverify
from tests.waiting import wait_for

pytestmark = pytest.mark.db

COLUMNS = (
    "id BIGINT PRIMARY KEY AUTO_INCREMENT, amount DECIMAL(18,4), state ENUM('new','paid'), seen TIMESTAMP(3) NULL,"
    " note VARCHAR(60), raw VARBINARY(9), ratio DOUBLE, extra JSON,"
    " changed DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)"
)
RESENT_SECONDS = 4
MATCHED_AFTER = RESENT_SECONDS + 4


@pytest.fixture
def opened(databases: Databases) -> Databases:
    """A pair that is equal, whose target is open for writes."""
    databases.both(
        f"CREATE TABLE pay ({COLUMNS})",
        f"CREATE TABLE loop_ ({COLUMNS})",
        f"CREATE TABLE marker ({MARKER})",
        *(f"INSERT INTO {table} (id, amount, state, seen, note, raw, ratio, extra, changed) VALUES ({n}, {n}.5, 'new',"
          f" '2026-01-02 03:04:05', 'before', x'00ff00', {n}.25, '{{\"n\": {n}}}', '2026-01-01')"
          for n in range(1, 31) for table in ("pay", "loop_")),
    )  # fmt: skip
    return databases


@contextmanager
def followed(databases: Databases, folder: Path, *faults: str, **options: Any) -> Iterator[tuple[ReverseFeed, Path]]:
    name = databases.name
    polled = [f"{name}.marker", f"{name}.loop_"]
    with feed(databases.pair, folder / "feed", tables=[f"{name}.*"], polled=polled, faults=faults, full_types=True,
              name=f"old-side-{name}", **options) as fed:  # fmt: skip
        config = config_of(databases, folder, fed, resent_seconds=RESENT_SECONDS)
        settings = yaml.safe_load(config.read_text())
        settings["reverse"]["carrier"]["types"] = str(folder / "types.json")
        types = {f"{name}.{table}": dict(fed.catalog.table(name, table).types) for table in ("pay", "loop_", "marker")}
        (folder / "types.json").write_text(json.dumps(types))
        config.write_text(yaml.safe_dump(settings))
        yield fed, config


@contextmanager
def watched(config: Path) -> Iterator[Watching]:
    """Run a reverse watch until it judges what is written on the source."""
    watching = Watching(config, "--reverse", "--since", verified(config))
    try:
        watching.wait_for(lambda s: s["old_side"]["read"] != "" and s["sources"][0]["read_seconds"] is not None)
        time.sleep(MATCHED_AFTER)
        yield watching
    finally:
        if watching.process.poll() is None:
            watching.stop()


def write(fed: ReverseFeed, databases: Databases, count: int, first: int = 1000) -> None:
    """Commit transactions on TiDB: inserts, values to and fro, keys that change, rows that come and go."""
    rng, table = random.Random(first), f"{databases.name}.pay"
    for n in range(first, first + count):
        statements = [
            f"INSERT INTO {table} (id, amount, state, note, raw) VALUES ({n}, {n / 4}, 'new', 'n{n}  ',"
            f" x'0{n % 10}00')",
            f"UPDATE {table} SET amount=amount+1, note='hot' WHERE id={rng.randrange(1, 5)}",
            f"UPDATE {table} SET state=IF(state='new','paid','new') WHERE id={rng.randrange(1, 5)}",
        ]
        if rng.random() < 0.3:
            statements.append(f"DELETE FROM {table} WHERE id={rng.randrange(first, n + 1)}")
        if rng.random() < 0.2:
            statements.append(f"INSERT INTO {table} (id, note) VALUES ({n + 100_000}, 'gone')")
            statements.append(f"DELETE FROM {table} WHERE id={n + 100_000}")
        fed.write(*statements)


def findings(status: dict[str, Any]) -> list[str]:
    kinds = ("written", "collision", "same id", "circles", "id ranges")
    return [note for table in status["tables"] for note in table["findings"] if note.split(":")[0] in kinds]


@pytest.mark.parametrize("protocol", ["canal-json", "open-protocol"])
def test_a_healthy_feed_is_no_finding(opened: Databases, tmp_path: Path, protocol: str) -> None:
    with followed(opened, tmp_path, "message-duplicated:every=7", protocol=protocol) as (fed, config):
        with watched(config) as watching:
            write(fed, opened, 250)
            fed.fault("stalled")
            write(fed, opened, 50, 5000)
            fed.fault_off("stalled")
            write(fed, opened, 250, 9000)
            fed.drain()
            status = watching.wait_for(lambda s: s["old_side"]["explained"] > 600 and s["verdict"] == "MATCH")
            time.sleep(MATCHED_AFTER)
        last = watching.lines[-1]
        code, end = drained(config, watching.run, "--reverse", "--timeout", "60")
    assert (findings(last), last["old_side"]["written"], last["old_side"]["not_seen"]) == ([], {}, "")
    assert status["old_side"]["circles"] == 0
    assert (code, end["verdict"], end["old_side"]["written"]) == (0, "MATCH", {})


@pytest.mark.parametrize("seconds", [RESENT_SECONDS - 1.5, 20.0])
def test_a_feed_that_begins_again_before_its_checkpoint_is_no_finding(
    opened: Databases, tmp_path: Path, seconds: float
) -> None:
    """It may go back further than `reverse.resent_seconds`, too."""
    name = f"old-side-{opened.name}"
    with ExitStack() as stack:
        with followed(opened, tmp_path) as (fed, config):
            fed.resolved()  # each partition has a watermark before the verification that the watch rests on
            begun = time.monotonic()
            watching = stack.enter_context(watched(config))
            write(fed, opened, 150)
            # The messages of the next feed begin where it goes back to, which lies in this one's time.
            time.sleep(max(0.0, begun + seconds + 1 - time.monotonic()))
            fed.drain()
        back = time_tso(seconds)
        with connect(opened.pair.source) as connection:
            execute(connection, f"UPDATE {CHECKPOINTS} SET `offset`=`offset`-{back}, time=NULL WHERE name='{name}'")
        with followed(opened, tmp_path) as (fed, config):
            write(fed, opened, 100, 4000)
            fed.drain()
            explained = watching.lines[-1]["old_side"]["explained"]
            watching.wait_for(lambda s: s["old_side"]["explained"] >= explained and s["verdict"] == "MATCH")
            time.sleep(MATCHED_AFTER)
    last = watching.lines[-1]
    assert (findings(last), last["old_side"]["not_seen"], last["verdict"]) == ([], "", "MATCH"), last["old_side"]


@pytest.mark.attack(
    "reverse", "a client writes the source, and the target overwrites the row later",
    "named with key and place, also when the row is equal again",
)  # fmt: skip
def test_a_client_that_writes_the_source_is_found_with_its_key(opened: Databases, tmp_path: Path) -> None:
    with followed(opened, tmp_path) as (fed, config), watched(config) as watching:
        write(fed, opened, 50)
        fed.drain()
        fed.write_old_side(f"UPDATE {opened.name}.pay SET note='old client' WHERE id=7")
        status = watching.wait_for(lambda s: s["tables"][0]["diverged"] + s["tables"][1]["diverged"] == 1)
        assert status["verdict"] == "MISMATCH"
        (found,) = findings(watching.wait_for(lambda s: findings(s)))
        assert found.startswith("written: key 7 was written on source at ")
        assert " UTC), and target has no such change" in found
        assert diffs(config, watching.run) == {(f"{opened.name}.pay", ("7",), ("changed", "note"))}
        # The target writes the row, which is equal again: the findings stay.
        fed.write(f"UPDATE {opened.name}.pay SET note='both', changed='2026-02-02' WHERE id=7")
        status = watching.wait_for(lambda s: s["verdict"] == "MATCH")
        assert {note.split(" was ")[0] for note in findings(status)} == {"written: key 7", "collision: key 7"}
        assert status["old_side"]["written"] == {"collision": 1, "written": 1}
        code, _ = watching.stop()
        assert code == 130
        code, out, err = migverify("tables", "watch", "--config", str(config), "--reverse", "--resume", watching.run,
                                   "--until-drained", "--timeout", "60")  # fmt: skip
    assert code == 0, out + err
    assert found in out


@pytest.mark.attack(
    "reverse", "both sides update one key, insert one id, and take ids from one range",
    "each is a finding of its own kind",
)  # fmt: skip
def test_a_key_that_both_sides_write_is_a_collision(opened: Databases, tmp_path: Path) -> None:
    table = f"{opened.name}.pay"
    with followed(opened, tmp_path) as (fed, config), watched(config) as watching:
        write(fed, opened, 5)  # rows that come on both sides alike: before them, texts may differ by a setting
        fed.drain()
        watching.wait_for(lambda s: s["old_side"]["explained"] >= 5)
        fed.fault("stalled")
        fed.write(f"UPDATE {table} SET note='the last one that is applied' WHERE id=20")
        wait_for(lambda: fed.applier is not None and fed.applier.status.stalled, "the feed is stalled")
        fed.write(f"UPDATE {table} SET note='new side' WHERE id=9")
        fed.write(f"INSERT INTO {table} (id, note) VALUES (777, 'new side')")
        fed.resolved()
        fed.write_old_side(f"UPDATE {table} SET note='old side' WHERE id=9")
        fed.write_old_side(f"INSERT INTO {table} (id, note) VALUES (777, 'old side')")
        status = watching.wait_for(lambda s: len(s["old_side"]["written"]) >= 3)
        assert status["old_side"]["written"] == {"collision": 1, "same id": 1, "id ranges": 1}
        fed.fault_off("stalled")
    found = {note.split(" was ")[0].split(" ids from")[0] for note in findings(status)}
    assert found == {"collision: key 9", "same id: key 777", "id ranges: both sides insert"}


@pytest.mark.attack(
    "reverse", "the forward feed was not stopped: rows go in circles",
    "named as circles, not as writes",
)  # fmt: skip
def test_rows_that_go_in_circles_are_found(opened: Databases, tmp_path: Path) -> None:
    options = ReplicatorOptions(opened.pair.target, (opened.name,), name=f"forward-{opened.name}")
    with followed(opened, tmp_path) as (_, config), watched(config) as watching:
        with running_replicator(opened.pair.source, options):
            for n in range(40):
                opened.target(f"UPDATE loop_ SET amount={n}, note='n{n}' WHERE id={n % 3 + 1}")
                time.sleep(0.05)
            status = watching.wait_for(lambda s: s["old_side"]["circles"] > 0)
        last = watching.wait_for(lambda s: any(note.startswith("circles: key ") for note in findings(s)))
    assert status["old_side"]["written"] == {}
    assert last["old_side"]["circles"] >= 1


def test_where_the_binlog_may_not_be_judged_the_status_says_so(opened: Databases, tmp_path: Path) -> None:
    with followed(opened, tmp_path) as (fed, config):
        settled = config_of(opened, tmp_path, fed, applied="settle", settle_seconds=1)
        assert settled == config
        watching = Watching(config, "--reverse", "--since", verified(config))
        status = watching.wait_for(lambda s: s["old_side"] is not None)
        watching.stop()
    assert status["old_side"]["not_seen"].startswith("reverse.applied is not marker")


def test_a_row_that_a_foreign_key_of_the_source_alone_deletes_is_found(opened: Databases, tmp_path: Path) -> None:
    """MySQL 9.6 and later log such rows; those of earlier servers are in no binlog, and the status names the key."""
    name = opened.name
    opened.both("CREATE TABLE child (id BIGINT PRIMARY KEY, pay BIGINT, KEY (pay))", "INSERT INTO child VALUES (70, 7)")
    opened.source(f"ALTER TABLE child ADD CONSTRAINT fk_{name} FOREIGN KEY (pay) REFERENCES pay (id) ON DELETE CASCADE")
    logs_cascades = opened.source("SHOW GLOBAL VARIABLES LIKE 'innodb_native_foreign_keys'")[0][1] == "OFF"
    with followed(opened, tmp_path) as (fed, config), watched(config) as watching:
        fed.write_old_side(f"DELETE FROM {name}.pay WHERE id=7")
        status = watching.wait_for(lambda s: s["old_side"]["written"] != {})
        shown = " ".join(status["findings"])
        if logs_cascades:
            status = watching.wait_for(lambda s: sum(t["diverged"] for t in s["tables"]) == 2 and len(findings(s)) == 2)
            assert {note.split(" on source ")[0] for note in findings(status)} == {
                "written: key 7 was deleted", "written: key 70 was deleted"
            }  # fmt: skip
    assert ("fk_" in shown) is not logs_cascades

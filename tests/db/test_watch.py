"""`tables watch` on the real pair: a replicator that works is MATCH, each of its faults is found, a stall is lag."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from migverify.store.open import open_store
from migverify_lab.replicator import Replicator, ReplicatorOptions
from migverify_lab.replicator_process import running_replicator, source_position
from migverify_lab.replicator_rules import parse_fault
from migverify_lab.session import connect
from tests.conftest import Databases
from tests.db.verifying import write_config
from tests.db.watching import Watching, diffs, drained, migverify, reasons

pytestmark = pytest.mark.db

COLUMNS = (
    "id BIGINT UNSIGNED PRIMARY KEY, amount DECIMAL(18,4), state ENUM('new','paid'), at DATETIME(6), note VARCHAR(60)"
)
CHECKPOINT = "migverify_lab.replicator_checkpoint"


@pytest.fixture
def paid(databases: Databases) -> Databases:
    databases.both(
        f"CREATE TABLE pay ({COLUMNS})",
        "CREATE TABLE `Üs.er` (a VARCHAR(20), b BINARY(4), v INT, PRIMARY KEY (a, b))",
        "CREATE TABLE logs (v INT)",
        *(f"INSERT INTO pay VALUES ({n}, {n}.5, 'new', '2026-01-01 00:00:00', 'before')" for n in range(40)),
    )
    return databases


@contextmanager
def replicated(databases: Databases, name: str, *faults: str, **options: Any) -> Iterator[Replicator]:
    rules = tuple(parse_fault(text) for text in faults)
    start = source_position(databases.pair.source)
    wanted = ReplicatorOptions(
        databases.pair.target, (databases.name,), name=name, since=start, faults=rules, **options
    )  # fmt: skip
    with running_replicator(databases.pair.source, wanted) as replicator:
        yield replicator


def config_of(databases: Databases, folder: Path, name: str, **watch: Any) -> Path:
    settings = {"applied": "checkpoint", "checkpoint": CHECKPOINT, "checkpoint_id": name, "delay": 0.3, **watch}
    tables = {"include": [f"{databases.name}.*"], "exclude": [f"{databases.name}.logs*"]}
    return write_config(folder, databases.pair, databases.name, watch=settings, tables=tables)


def write(databases: Databases, count: int, first: int = 1000, pause: float = 0.002) -> None:
    """Transactions of one to five changes: inserts, updates of a few hot rows, deletes, odd keys."""
    rng = random.Random(first)
    connection = connect(databases.pair.source, databases.name)
    connection.autocommit(False)
    with connection, connection.cursor() as cursor:
        for n in range(first, first + count):
            cursor.execute("INSERT INTO pay VALUES (%s, %s, 'new', NOW(6), %s)", (n, n / 4, f"n{n}"))
            cursor.execute(f"UPDATE pay SET amount=amount+1, note='hot {n}' WHERE id={rng.randrange(5)}")
            if rng.random() < 0.3:
                cursor.execute(f"UPDATE pay SET state='paid' WHERE id={rng.randrange(40)}")
            if rng.random() < 0.2:
                cursor.execute(f"DELETE FROM pay WHERE id={rng.randrange(first, n + 1)}")
            if rng.random() < 0.2:
                key = f"k {rng.randrange(9)},;é"
                cursor.execute("REPLACE INTO `Üs.er` VALUES (%s, x'00FF0A2C', %s)", (key, n))
            connection.commit()
            time.sleep(pause)


@pytest.mark.parametrize("applied", ["checkpoint", "settle"])
def test_under_load_there_is_no_false_difference_and_the_drain_is_match(
    paid: Databases, tmp_path: Path, applied: str
) -> None:
    name = f"watch-{paid.name}"
    config = config_of(paid, tmp_path, name, applied=applied, settle_seconds=1.5)
    code, out, err = migverify("tables", "verify", "--engine", "local", "--config", str(config), "--json")
    assert code == 0, err
    base = json.loads(out)["run_id"]
    with replicated(paid, name) as replicator:
        watching = Watching(config, "--since", base, "--prometheus", "0")
        watching.wait_for(lambda s: s["sources"][0]["read_seconds"] is not None)
        write(paid, 500)
        watching.wait_for(lambda s: s["tables"][0]["keys"] > 100)
        port = next(line for line in watching.said if "metrics on" in line).rpartition(":")[2].partition("/")[0]
        metrics = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
        assert f'migverify_watch_table_diverged{{table="{paid.name}.pay"}} 0' in metrics
        replicator.wait_until(source_position(paid.pair.source))
        code, status = watching.stop()
        assert (code, sum(s["tables"][0]["diverged"] for s in watching.lines)) == (130, 0)
        code, status = drained(config, watching.run, "--timeout", "60")
    assert (code, status["verdict"], reasons(status)) == (0, "MATCH", "")
    by_name = {t["source"].partition(".")[2]: t for t in status["tables"]}
    assert by_name["pay"]["images"] > 1500
    assert by_name["Üs.er"]["keys"] > 0
    assert by_name["pay"]["verified_through"].startswith(status["sources"][0]["read"].partition(":")[0])
    code, out, _ = migverify("report", watching.run, "--config", str(config))
    assert (code, "MATCH" in out) == (0, True)


@pytest.mark.parametrize(
    "fault",
    ["skip:every=60", "twice:every=60", "out-of-order:every=40", "drop-column:every=9", "wrong-time-zone:every=50"],
)
def test_each_fault_of_the_replicator_is_found_with_key_and_column(paid: Databases, tmp_path: Path, fault: str) -> None:
    name = f"watch-{paid.name}"
    config = config_of(paid, tmp_path, name)
    with replicated(paid, name, fault) as replicator:
        watching = Watching(config)
        watching.wait_for(lambda s: s["sources"][0]["read_seconds"] is not None)
        write(paid, 200)
        replicator.wait_until(source_position(paid.pair.source))
        standing = replicator.injector.standing()
        assert standing, "the fault did nothing that lasts: the test proves nothing"
        wanted = {(d.key, tuple(sorted(d.columns))) for d in standing}
        found = watching.wait_for(lambda s: sum(t["diverged"] for t in s["tables"]) >= len(wanted), 30)
        assert found["verdict"] == "MISMATCH"
        watching.stop()
        code, status = drained(config, watching.run)
    assert (code, status["verdict"]) == (1, "MISMATCH")
    assert {(key, columns) for _, key, columns in diffs(config, watching.run)} == wanted


def test_a_stalled_replicator_is_lag_and_never_a_mismatch(paid: Databases, tmp_path: Path) -> None:
    name = f"watch-{paid.name}"
    with replicated(paid, name, "stall:at=20"):
        for applied in ("checkpoint", "settle"):
            config = config_of(paid, tmp_path, name, applied=applied, settle_seconds=0.5)
            watching = Watching(config)
            watching.wait_for(lambda s: s["sources"][0]["read_seconds"] is not None)
            write(paid, 60, first=1000 if applied == "checkpoint" else 5000)
            watching.wait_for(lambda s: sum(t["pending"] + t["doubt"] for t in s["tables"]) > 20)
            watching.stop()
            code, status = drained(config, watching.run, "--timeout", "4")
            assert (code, status["verdict"]) == (3, "INCONCLUSIVE"), status
            assert sum(t["diverged"] for t in status["tables"]) == 0
            assert "lag" in reasons(status) or "not proved" in reasons(status)


def test_a_marker_row_tells_what_is_applied(paid: Databases, tmp_path: Path) -> None:
    paid.both(
        "CREATE TABLE marker (name VARCHAR(64) PRIMARY KEY, number BIGINT NOT NULL, written DATETIME(6) NOT NULL)"
    )
    name = f"watch-{paid.name}"
    config = config_of(paid, tmp_path, name, applied="marker", marker=f"{paid.name}.marker")
    with replicated(paid, name, "skip:at=30") as replicator:
        watching = Watching(config)
        watching.wait_for(lambda s: s["sources"][0]["lag_seconds"] is not None)
        write(paid, 100)
        replicator.wait_until(source_position(paid.pair.source))
        watching.wait_for(lambda s: sum(t["keys"] for t in s["tables"]) > 20)
        watching.stop()
        code, status = drained(config, watching.run)
        standing = replicator.injector.standing()
    assert (code, status["verdict"]) == ((1, "MISMATCH") if standing else (0, "MATCH"))
    assert sum(t["diverged"] for t in status["tables"]) == len(standing)


def killed_at_once(config: Path, *options: str) -> str:
    """Start a watch, kill it the moment it says its run, and return the run."""
    watching = Watching(config, *options)
    deadline = time.monotonic() + 60
    while not any(line.startswith("watch ") for line in watching.said) and time.monotonic() < deadline:
        time.sleep(0.005)
    watching.process.kill()
    watching.process.wait(60)
    for thread in watching._threads:
        thread.join()
    return next(line for line in watching.said if line.startswith("watch ")).split()[1]


def test_a_watch_that_is_killed_before_it_read_anything_goes_on_from_where_it_began(
    paid: Databases, tmp_path: Path
) -> None:
    name = f"watch-{paid.name}"
    config = config_of(paid, tmp_path, name)
    with replicated(paid, name, "skip:every=10") as replicator:
        run = killed_at_once(config)
        write(paid, 60)
        replicator.wait_until(source_position(paid.pair.source))
        code, _ = drained(config, run)
        wanted = {d.key for d in replicator.injector.standing()}
    assert wanted
    assert {key for _, key, _ in diffs(config, run)} == wanted
    assert code == 1


def test_a_watch_that_goes_on_has_the_verification_it_began_with(paid: Databases, tmp_path: Path) -> None:
    """What that run left open is read again, however early the watch was killed."""
    name = f"watch-{paid.name}"
    config = config_of(paid, tmp_path, name)
    with replicated(paid, name) as replicator:
        write(paid, 30)
        replicator.wait_until(source_position(paid.pair.source))
        paid.target("UPDATE pay SET note='another' WHERE id=3")
        code, out, err = migverify("tables", "verify", "--engine", "local", "--config", str(config), "--json")
        assert code == 1, err
        run = killed_at_once(config, "--since", json.loads(out)["run_id"])
        code, status = drained(config, run)
    assert code == 1, reasons(status)
    assert ("3",) in {key for _, key, _ in diffs(config, run)}


def test_a_watch_that_is_killed_goes_on_without_a_key_lost(paid: Databases, tmp_path: Path) -> None:
    name = f"watch-{paid.name}"
    config = config_of(paid, tmp_path, name)
    with replicated(paid, name, "skip:every=50") as replicator:
        watching = Watching(config)
        watching.wait_for(lambda s: s["sources"][0]["read_seconds"] is not None)
        writer = threading.Thread(target=write, args=(paid, 400))
        writer.start()
        run = watching.run
        for _ in range(4):
            time.sleep(0.7)
            watching.process.kill()
            watching.stop()
            watching = Watching(config, "--resume", run)
            watching.wait_for(lambda s: s["sources"][0]["read_seconds"] is not None)
        writer.join()
        watching.stop(signal.SIGTERM)
        replicator.wait_until(source_position(paid.pair.source))
        code, _ = drained(config, run)
        wanted = {d.key for d in replicator.injector.standing()}
        rows = paid.source("SELECT COUNT(*) FROM pay")[0][0]
    assert rows > 100
    assert {key for _, key, _ in diffs(config, run)} == wanted
    assert code == (1 if wanted else 0)


def test_statements_in_the_stream(paid: Databases, tmp_path: Path) -> None:
    name = f"watch-{paid.name}"
    config = config_of(paid, tmp_path, name)
    with replicated(paid, name) as replicator:
        watching = Watching(config)
        watching.wait_for(lambda s: s["sources"][0]["read_seconds"] is not None)
        paid.source("ALTER TABLE pay ADD INDEX by_state (state)", "TRUNCATE TABLE `Üs.er`")
        paid.source("INSERT INTO `Üs.er` VALUES ('a', x'01020304', 1)", "UPDATE pay SET note='x' WHERE id<3")
        replicator.wait_until(source_position(paid.pair.source))
        # the target's new definition may be met, and the table compared, before the stream tells of the statement
        watching.wait_for(lambda s: s["verdict"] == "MATCH" and all(not t["reasons"] for t in s["tables"])
                          and all(statement in " ".join(f for t in s["tables"] for f in t["findings"])
                                  for statement in ("ADD INDEX by_state", "TRUNCATE")))  # fmt: skip
        paid.source("ALTER TABLE pay ADD COLUMN extra INT DEFAULT 7", "UPDATE pay SET extra=8 WHERE id=1")
        replicator.wait_until(source_position(paid.pair.source))
        watching.wait_for(lambda s: s["verdict"] == "INCONCLUSIVE" and "extra" in reasons(s))
        watching.stop()
        code, status = drained(config, watching.run)
        assert (code, status["verdict"], reasons(status)) == (0, "MATCH", "")
        paid.target("UPDATE pay SET extra=9 WHERE id=2", "ALTER TABLE pay ADD INDEX by_extra (extra)")
        code, status = drained(config, watching.run)
    assert (code, status["verdict"]) == (1, "MISMATCH"), "the column is compared since it is there"
    assert {(key, columns) for _, key, columns in diffs(config, watching.run)} == {(("2",), ("extra",))}


def test_a_write_on_the_target_alone_is_found_by_the_sweep(paid: Databases, tmp_path: Path) -> None:
    name = f"watch-{paid.name}"
    config = config_of(paid, tmp_path, name, sweep_rows=1000)
    with replicated(paid, name) as replicator:
        watching = Watching(config)
        watching.wait_for(lambda s: s["sources"][0]["read_seconds"] is not None)
        write(paid, 50)
        replicator.wait_until(source_position(paid.pair.source))
        paid.target("UPDATE pay SET amount=1 WHERE id=33")
        watching.wait_for(lambda s: sum(t["diverged"] for t in s["tables"]) == 1, 30)
        code, status = watching.stop()
    assert (code, status["verdict"]) == (130, "MISMATCH")
    assert {(key, columns) for _, key, columns in diffs(config, watching.run)} == {(("33",), ("amount",))}


def test_a_change_in_a_range_declared_immutable_is_told(paid: Databases, tmp_path: Path) -> None:
    name = f"watch-{paid.name}"
    config = config_of(paid, tmp_path, name)
    rule = {"table": f"{paid.name}.pay", "immutable_before": {"column": "at", "value": "2026-01-02"}}
    import yaml

    document = yaml.safe_load(config.read_text())
    config.write_text(yaml.safe_dump({**document, "overrides": [rule]}))
    with replicated(paid, name):
        watching = Watching(config)
        watching.wait_for(lambda s: s["sources"][0]["read_seconds"] is not None)
        paid.source("UPDATE pay SET note='late' WHERE id=7")
        told = "declared immutable changed"
        status = watching.wait_for(lambda s: any(told in f for t in s["tables"] for f in t["findings"]))
        watching.stop()
    (finding,) = [f for t in status["tables"] for f in t["findings"] if told in f]
    assert "'7'" in finding


def test_positions_and_runs_that_do_not_fit_are_refused(paid: Databases, tmp_path: Path) -> None:
    config = config_of(paid, tmp_path, "nobody")
    assert migverify("tables", "watch", "--config", str(config), "--since", "a", "--resume", "b")[0] == 2
    assert migverify("tables", "watch", "--config", str(config), "--timeout", "3")[0] == 2
    code, _, err = migverify("tables", "watch", "--config", str(config), "--start", "nonsense")
    assert (code, "not a position" in err) == (2, True)
    code, _, err = migverify("tables", "watch", "--config", str(config), "--resume", "nothing")
    assert code == 2, err


def test_a_run_without_a_position_is_refused_before_there_is_a_watch(paid: Databases, tmp_path: Path) -> None:
    user = f"r{paid.name[-16:]}"
    paid.source(f"CREATE USER '{user}'@'%'", f"GRANT SELECT ON `{paid.name}`.* TO '{user}'@'%'")
    server = paid.pair.source
    try:
        config = write_config(tmp_path, paid.pair, paid.name,
                              source={"url": f"mysql://{user}@{server.host}:{server.port}"})  # fmt: skip
        assert migverify("tables", "verify", "--config", str(config), "--quiet")[0] == 0
        code, _, err = migverify("tables", "watch", "--config", str(config), "--since", "last")
        assert (code, "does not say at which position source was" in err) == (2, True), err
        assert "`migverify tables verify" in err
        assert "it rests on" not in err
        with closing(open_store(f"sqlite:///{tmp_path / 'runs.db'}")) as store:
            assert len(list(store.runs(9))) == 1
    finally:
        paid.source(f"DROP USER '{user}'@'%'")


def test_keys_without_a_key(databases: Databases, tmp_path: Path) -> None:
    databases.both("CREATE TABLE logs (v INT)")
    name = f"watch-{databases.name}"
    settings: Sequence[str] = ()
    config = write_config(tmp_path, databases.pair, databases.name,
                          watch={"applied": "checkpoint", "checkpoint": CHECKPOINT, "checkpoint_id": name})  # fmt: skip
    with replicated(databases, name) as replicator:
        watching = Watching(config, *settings)
        watching.wait_for(lambda s: s["sources"][0]["read_seconds"] is not None)
        databases.source("INSERT INTO logs VALUES (1)")
        replicator.wait_until(source_position(databases.pair.source))
        status = watching.wait_for(lambda s: s["verdict"] == "INCONCLUSIVE" and "no key" in reasons(s))
        watching.stop()
    assert "verify it again" in reasons(status)


def test_numbers_that_are_shown_otherwise_make_no_difference(databases: Databases, tmp_path: Path) -> None:
    """ZEROFILL, in the key too, and FLOAT(M,D): the binlog has other text than SELECT, and values are compared."""
    databases.both(
        "CREATE TABLE shown (id INT(8) ZEROFILL, part DECIMAL(9,2) ZEROFILL, f FLOAT(7,2), d DOUBLE(9,3),"
        " s SMALLINT(5) UNSIGNED ZEROFILL, PRIMARY KEY (id, part))",
        *(f"INSERT INTO shown VALUES ({n}, {n}.5, {n} + 12345.68, {n} + 0.1, {n})" for n in range(5)),
    )
    name = f"watch-{databases.name}"
    config = config_of(databases, tmp_path, name)
    code, out, err = migverify("tables", "verify", "--engine", "local", "--config", str(config), "--json")
    assert code == 0, err
    with replicated(databases, name) as replicator:
        watching = Watching(config, "--since", json.loads(out)["run_id"])
        watching.wait_for(lambda s: s["sources"][0]["read_seconds"] is not None)
        for n in range(5, 20):
            databases.source(f"INSERT INTO shown VALUES ({n}, {n}.5, {n} + 12345.68, {n} + 0.1, {n})")
        databases.source("UPDATE shown SET f = f + 0.01, d = d / 3, s = s + 1 WHERE id < 5",
                         "UPDATE shown SET id = 70 WHERE id = 7", "DELETE FROM shown WHERE id = 8")  # fmt: skip
        watching.wait_for(lambda s: s["tables"][0]["keys"] > 20)
        replicator.wait_until(source_position(databases.pair.source))
        watching.stop()
        assert sum(s["tables"][0]["diverged"] for s in watching.lines) == 0
        code, status = drained(config, watching.run, "--timeout", "60")
        assert (code, status["verdict"], reasons(status)) == (0, "MATCH", "")
        databases.source("UPDATE shown SET d = 5 WHERE id = 3")
        replicator.wait_until(source_position(databases.pair.source))
        databases.target("UPDATE shown SET s = 99, f = 1.5 WHERE id = 3")
        code, status = drained(config, watching.run, "--timeout", "60")
    assert (code, status["verdict"]) == (1, "MISMATCH"), reasons(status)
    assert diffs(config, watching.run) == {(f"{databases.name}.shown", ("3", "3.50"), ("f", "s"))}

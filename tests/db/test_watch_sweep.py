"""`tables watch --reverse --sweep` on the real pair: TiDB is written, MySQL follows late, and no changefeed is read."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from migverify_lab.session import connect
from tests.conftest import Databases
from tests.db.test_watch import Watching, migverify
from tests.db.verifying import write_config

pytestmark = pytest.mark.db

DELAY = 0.4
KEYS = 400


@pytest.fixture
def paid(databases: Databases) -> Databases:
    rows = ",".join(f"({n}, {n}.5, 'before')" for n in range(KEYS))
    databases.both(
        "CREATE TABLE pay (id BIGINT UNSIGNED PRIMARY KEY, amount DECIMAL(18,4), note VARCHAR(60))",
        "CREATE TABLE fees (a VARCHAR(20), b INT, v INT, PRIMARY KEY (a, b))",
        f"INSERT INTO pay VALUES {rows}",
        "INSERT INTO fees VALUES ('x', 1, 1), ('y', 2, 2)",
    )
    return databases


@dataclass
class Feed:
    """Writes TiDB, and MySQL ``DELAY`` seconds later; of the keys in ``lost`` MySQL gets nothing."""

    databases: Databases
    lost: set[int] = field(default_factory=set)
    stalled: bool = False
    _queue: deque[tuple[float, int, str]] = field(default_factory=deque)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def write(self, key: int, sql: str) -> None:
        with self._target.cursor() as cursor:
            cursor.execute(sql)
        self._queue.append((time.monotonic(), key, sql))

    def _apply(self) -> None:
        while not (self._stopped.is_set() and not self._queue):
            if not self._queue or self.stalled or time.monotonic() < self._queue[0][0] + DELAY:
                if self._stopped.is_set() and self.stalled:
                    return
                time.sleep(0.005)
                continue
            _, key, sql = self._queue.popleft()
            if key not in self.lost:
                with self._source.cursor() as cursor:
                    cursor.execute(sql)

    def _load(self) -> None:
        rng, fresh = random.Random(1), 10_000
        while not self._stopped.is_set():
            key = rng.randrange(5) if rng.random() < 0.3 else rng.randrange(KEYS // 2)
            self.write(key, f"UPDATE pay SET amount=amount+1, note='n{rng.random()}' WHERE id={key}")
            if rng.random() < 0.2:
                fresh += 1
                self.write(fresh, f"INSERT INTO pay VALUES ({fresh}, 1, 'new')")
            if rng.random() < 0.2:
                self.write(-1, f"REPLACE INTO fees VALUES ('k{rng.randrange(9)}', 1, {rng.randrange(99)})")
            time.sleep(0.004)

    @contextmanager
    def running(self) -> Iterator[Feed]:
        pair, name = self.databases.pair, self.databases.name
        with connect(pair.target, name) as self._target, connect(pair.source, name) as self._source:
            for connection in (self._target, self._source):
                connection.autocommit(True)
            threads = [threading.Thread(target=self._apply), threading.Thread(target=self._load)]
            for thread in threads:
                thread.start()
            try:
                yield self
            finally:
                self._stopped.set()
                for thread in reversed(threads):
                    thread.join()


def config_of(databases: Databases, folder: Path, **reverse: Any) -> Path:
    return write_config(
        folder, databases.pair, databases.name, watch={"delay": 0.2},
        reverse={"sweep_minutes": 0.05, "settle_seconds": 1.5, **reverse},
    )  # fmt: skip


def sweep(config: Path, *options: str) -> Watching:
    return Watching(config, "--reverse", *options)


def diverged(status: dict[str, Any]) -> int:
    return sum(table["diverged"] for table in status["tables"])


def test_a_feed_that_is_late_is_no_difference_and_a_final_pass_is_match(paid: Databases, tmp_path: Path) -> None:
    config = config_of(paid, tmp_path)
    with Feed(paid).running():
        watch = sweep(config)
        status = watch.wait_for(lambda s: s["sweep"]["rounds"] >= 5)
        assert status["sweep"]["age_seconds"] < 10
        _, last = watch.stop()
        assert {line["verdict"] for line in watch.lines} == {"INCONCLUSIVE"}
        assert max(map(diverged, watch.lines)) == 0
        assert "no changefeed: what was written on the target in the last" in " ".join(last["reasons"])
        assert any("changed back" in text for text in last["findings"])
        drained = sweep(config, "--resume", watch.run, "--until-drained", "--timeout", "20")
        assert drained.process.wait(60) == 3, "writes go on"
        drained.stop()
        assert "writes are not stopped" in str(drained.lines[-1]["tables"]), drained.lines[-1]
    code, out, err = migverify(
        "tables", "watch", "--config", str(config), "--reverse", "--resume", watch.run, "--until-drained", "--quiet"
    )
    assert code == 0, (out, err)


def test_rows_that_were_lost_are_found_while_writes_go_on_and_stay_so_in_the_write_stop(
    paid: Databases, tmp_path: Path
) -> None:
    config, lost = config_of(paid, tmp_path), {301, 302, 20_000}
    with Feed(paid, set(lost)).running() as feed:
        watch = sweep(config)
        watch.wait_for(lambda s: s["sweep"]["rounds"] >= 2)
        other = connect(paid.pair.target, paid.name)
        other.autocommit(True)
        with other, other.cursor() as cursor:
            cursor.execute("UPDATE pay SET note='lost' WHERE id=301")
            cursor.execute("DELETE FROM pay WHERE id=302")
            cursor.execute("INSERT INTO pay VALUES (20000, 1, 'lost')")
        assert feed.lost == lost
        began = time.monotonic()
        watch.wait_for(lambda s: diverged(s) == 3)
        assert time.monotonic() - began < 30
        watch.process.send_signal(signal.SIGKILL)
        watch.process.wait(20)
        again = sweep(config, "--resume", watch.run)
        again.wait_for(lambda s: diverged(s) == 3 and s["sweep"]["rounds"] >= 3)
        code, last = again.stop()
        assert (code, last["verdict"], diverged(last)) == (130, "MISMATCH", 3)
    arguments = ["--config", str(config)]
    drain = ["tables", "watch", *arguments, "--reverse", "--resume", watch.run, "--until-drained", "--json"]
    assert migverify(*drain)[0] == 1
    code, out, _ = migverify("tables", "diff", watch.run, *arguments, "--json")
    assert all(f'"{key}"' in out for key in lost), out
    paid.source("UPDATE pay SET note='lost' WHERE id=301", "DELETE FROM pay WHERE id=302")
    paid.source("INSERT INTO pay VALUES (20000, 1, 'lost')")
    code, out, err = migverify(*drain)
    assert code == 0, (out[-2000:], err)


def test_a_final_pass_is_not_proved_by_what_the_target_held_before_it(paid: Databases, tmp_path: Path) -> None:
    """MySQL gets what TiDB held while the row was in doubt; what TiDB holds now is lost."""
    config = config_of(paid, tmp_path, settle_seconds=4)  # the past is looked through for four times as long
    watch = sweep(config)
    watch.wait_for(lambda s: s["sweep"]["rounds"] >= 1)
    paid.target("UPDATE pay SET note='v2' WHERE id=2")
    rounds = watch.wait_for(lambda s: s["tables"][1]["doubt"] == 1)["sweep"]["rounds"]
    watch.wait_for(lambda s: s["sweep"]["rounds"] >= rounds + 2)
    watch.stop()
    paid.source("UPDATE pay SET note='v2' WHERE id=2")
    paid.target("UPDATE pay SET note='v3' WHERE id=2")
    drain = ["--config", str(config), "--reverse", "--resume", watch.run, "--until-drained", "--json"]
    code, out, err = migverify("tables", "watch", *drain, "--timeout", "15")
    assert code == 3, (out[-2000:], err)
    paid.source("UPDATE pay SET note='v3' WHERE id=2")
    code, out, err = migverify("tables", "watch", *drain, "--timeout", "60")
    assert code == 0, (out[-2000:], err)


def test_a_feed_that_stands_still_is_never_a_difference(paid: Databases, tmp_path: Path) -> None:
    config = config_of(paid, tmp_path)
    with Feed(paid).running() as feed:
        watch = sweep(config)
        watch.wait_for(lambda s: s["sweep"]["rounds"] >= 2)
        feed.stalled = True
        watch.wait_for(lambda s: s["tables"][1]["doubt"] > 20 and s["sweep"]["rounds"] >= 8)
        _, last = watch.stop()
        feed.stalled = False
    assert (last["verdict"], max(map(diverged, watch.lines))) == ("INCONCLUSIVE", 0)


def test_a_marker_tells_a_lost_row_in_a_write_stop(paid: Databases, tmp_path: Path) -> None:
    columns = "name VARCHAR(64) NOT NULL PRIMARY KEY, number BIGINT NOT NULL, written DATETIME(6) NOT NULL"
    paid.both(f"CREATE TABLE marker ({columns})")
    config = config_of(paid, tmp_path, applied="marker", marker=f"{paid.name}.marker")
    paid.target("UPDATE pay SET note='lost' WHERE id=7")
    watch = sweep(config, "--until-drained", "--timeout", "60")
    stopped = threading.Event()

    def carry() -> None:
        with connect(paid.pair.target, paid.name) as target, connect(paid.pair.source, paid.name) as source:
            for connection in (target, source):
                connection.autocommit(True)
            while not stopped.wait(0.1):
                with target.cursor() as reader, source.cursor() as writer:
                    reader.execute("SELECT * FROM marker")
                    for row in reader.fetchall():
                        writer.execute("REPLACE INTO marker VALUES (%s, %s, %s)", row)

    carrier = threading.Thread(target=carry)
    carrier.start()
    try:
        code = watch.process.wait(90)
        watch.stop()
        assert code == 1, watch.lines[-1]
    finally:
        stopped.set()
        carrier.join()
    assert diverged(watch.lines[-1]) == 1


def test_what_would_be_lost_is_known_to_the_bound_of_the_rounds(paid: Databases, tmp_path: Path) -> None:
    config = config_of(paid, tmp_path)
    ask = ("tables", "loss", "--config", str(config), "--json")
    with connect(paid.pair.target, paid.name) as target, target.cursor() as cursor:
        watch = sweep(config)
        watch.wait_for(lambda s: s["sweep"]["rounds"] >= 2)
        code, out, err = migverify(*ask)
        assert code == 3, (out, err)
        clean = json.loads(out)
        assert (clean["keys"], clean["complete"], clean["as_of"], clean["watch"]["alive"]) == (0, False, None, True)
        assert "without a changefeed only the bound of the sweep is known" in "; ".join(clean["reasons"])
        cursor.execute("UPDATE pay SET note='lost' WHERE id=7")
        target.commit()
        watch.wait_for(lambda s: sum(table["doubt"] + table["diverged"] for table in s["tables"]) > 0)
        code, out, err = migverify(*ask)
        assert code == 1, (out, err)
        assert [row["key"] for row in json.loads(out)["rows"]] == [["7"]]
        watch.stop(signal.SIGKILL)
        assert json.loads(migverify(*ask)[1])["watch"]["alive"] is False


def test_a_bound_that_cannot_be_held_is_refused(paid: Databases, tmp_path: Path) -> None:
    config = write_config(tmp_path, paid.pair, paid.name, watch={"sweep_rows": 5})
    paid.both("ANALYZE TABLE pay")
    code, _, err = migverify("tables", "watch", "--config", str(config), "--reverse", "--sweep", "0.1")
    assert (code, "watch.sweep_rows allows 5" in err) == (2, True), err

"""`recon watch` on the real pair while both sides are written: late is matched, lost found, a kill changes nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from migverify.config import load_config
from migverify.db.session import open_session
from migverify.model import Verdict
from migverify.recon.watermark import AppliedTime, read_clock, writer_mark
from migverify.sql.applied import MARKER_COLUMNS
from migverify.store.open import open_store
from migverify.watch.applied import CheckpointTable, Marker
from migverify_lab.session import connect
from tests.conftest import Databases
from tests.db.verifying import write_config
from tests.waiting import wait_for

pytestmark = pytest.mark.db

WIDTH = 4
SETTLE = 1.5
COLUMNS = "id BIGINT PRIMARY KEY, at DATETIME(6), amount DECIMAL(20,4), currency CHAR(3), KEY (at)"


@pytest.fixture
def services(databases: Databases) -> Databases:
    databases.source(f"CREATE TABLE orders ({COLUMNS})")
    databases.target(f"CREATE TABLE payments ({COLUMNS})")
    return databases


def write_rules(folder: Path, database: str, *, width: int = WIDTH, **rule: Any) -> Path:
    sides = {"orders": ("source", "orders"), "payments": ("target", "payments")}
    document = {
        "version": "recon/v1",
        "datasets": {
            name: {"endpoint": endpoint, "table": f"{database}.{table}", "key": "id", "time": "at"}
            for name, (endpoint, table) in sides.items()
        },
        "rules": [
            {
                "name": "paid", "kind": "same_rows", "source": "orders", "target": "payments", "settle": f"{SETTLE}s",
                "window": {"every": f"{width}s"}, "rereads": 1, "delay": "0.1s",
                "money": {"column": "amount", "currency": "currency"}, **rule,
            }
        ],
    }  # fmt: skip
    path = folder / "recon.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


class Writer(threading.Thread):
    """Orders on the source, and payments on the target a moment later, each stamped by its own server."""

    def __init__(self, databases: Databases) -> None:
        super().__init__(name="writer", daemon=True)
        self.databases = databases
        self.halt = threading.Event()
        self.lost: set[int] = set()
        self.missing: dict[int, str] = {}
        self.number = 0

    def run(self) -> None:
        name, pair = self.databases.name, self.databases.pair
        with connect(pair.source, name) as source, connect(pair.target, name) as target:
            while not self.halt.wait(0.02):
                self.number += 1
                amount = f"{self.number}.1234"
                with source.cursor() as one:
                    one.execute(f"INSERT INTO orders VALUES ({self.number}, UTC_TIMESTAMP(6), {amount}, 'EUR')")
                    one.execute(f"SELECT at FROM orders WHERE id={self.number}")
                    at = one.fetchone()[0]  # type: ignore[index]
                self.missing[self.number] = f"INSERT INTO payments VALUES ({self.number}, '{at}', {amount}, 'EUR')"
                if self.number not in self.lost:
                    with target.cursor() as other:
                        other.execute(self.missing.pop(self.number))

    def __enter__(self) -> Writer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.halt.set()
        self.join()


class Watching:
    """A watch as a process; ``lines`` are its statuses so far."""

    def __init__(self, folder: Path, *options: str) -> None:
        command = [
            sys.executable, "-m", "migverify", "recon", "watch", str(folder / "recon.yaml"), "--config",
            str(folder / "migverify.yaml"), "--json", "--recheck", "0.5", *options,
        ]  # fmt: skip
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines: list[dict[str, Any]] = []
        self.said: list[str] = []
        self._threads = [threading.Thread(target=self._read), threading.Thread(target=self._hear)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):  # the last one of a killed process may be cut
                self.lines.append(json.loads(line))

    def _hear(self) -> None:
        assert self.process.stderr is not None
        self.said.extend(self.process.stderr)

    def wait_for(self, right: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        def reported() -> dict[str, Any] | None:
            if self.lines and right(self.lines[-1]):
                return self.lines[-1]
            if self.process.poll() is not None and not any(t.is_alive() for t in self._threads):
                pytest.fail(f"the watch ended: {self.lines[-1:]} {''.join(self.said)}")
            return None

        try:
            found: dict[str, Any] = wait_for(reported, "a line of the watch that is right", every=0.05)
        except AssertionError as error:
            pytest.fail(f"{error}: {self.lines[-1:]} {''.join(self.said)}")
        return found

    def end(self, number: signal.Signals = signal.SIGINT) -> tuple[int, dict[str, Any]]:
        self.process.send_signal(number)
        code = self.process.wait(60)
        for thread in self._threads:
            thread.join()
        return code, self.lines[-1] if self.lines else {}

    def __enter__(self) -> Watching:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.end(signal.SIGKILL)


def findings(folder: Path, run: str = "last") -> dict[int, str]:
    store = open_store(f"sqlite:///{folder / 'runs.db'}")
    try:
        run_id = store.load_run(run).run_id
        return {int(body["key"][0]): body["kind"] for _, body in store.findings(run_id, "paid", limit=10_000)}
    finally:
        store.close()


def found(status: dict[str, Any], kind: str) -> int:
    return int(status["rules"][0]["findings"].get(kind, 0))


def now() -> str:
    return datetime.now(UTC).replace(tzinfo=None).isoformat()


def closed(status: dict[str, Any]) -> int:
    return sum(status["rules"][0]["windows"].values())


@contextmanager
def written(folder: Path, services: Databases, **config: Any) -> Iterator[Writer]:
    write_config(folder, services.pair, services.name, report={"values": True}, **config)
    writer = Writer(services)
    writer.lost = {40, 60}
    with writer:
        yield writer


def test_late_is_matched_lost_is_found_and_money_is_summed(services: Databases, tmp_path: Path) -> None:
    write_rules(tmp_path, services.name)
    since = now()
    with written(tmp_path, services) as writer, Watching(tmp_path, "--metrics-port", "0", "--since", since) as watching:
        watching.wait_for(lambda s: found(s, "missing on target") == 2)
        services.target(writer.missing[60])
        status = watching.wait_for(lambda s: found(s, "late then matched") == 1 and closed(s) >= 4)
        said = next(line for line in watching.said if "/metrics" in line)
        page = urllib.request.urlopen(said.split()[-1]).read().decode()  # noqa: S310
        code, last = watching.end()
    assert code == 130
    assert last["final"]
    assert last["verdict"] == "MISMATCH"
    assert findings(tmp_path) == {40: "missing on target", 60: "late then matched"}
    assert status["rules"][0]["money"]["missing on target"] == {"EUR": "40.1234"}
    labels = 'rule="paid",severity="critical",class="missing on target",currency="EUR"'
    assert f"migverify_recon_money_at_risk{{{labels}}} 40.1234" in page
    assert "migverify_recon_verdict 1" in page


def test_a_kill_at_any_moment_neither_loses_nor_repeats_a_window(services: Databases, tmp_path: Path) -> None:
    write_rules(tmp_path, services.name)
    since = now()
    with written(tmp_path, services) as writer:
        for number in range(5):
            options = ("--resume", "last") if number else ("--since", since)
            with Watching(tmp_path, *options) as watching:
                watching.wait_for(lambda _: True)
                time.sleep(0.7 * number)
                watching.end(signal.SIGKILL)
        store = open_store(f"sqlite:///{tmp_path / 'runs.db'}")
        assert store.load_run("last").verdict is Verdict.INCONCLUSIVE, "a watch that was killed is no verdict"
        with Watching(tmp_path, "--resume", "last") as watching:
            watching.wait_for(lambda s: found(s, "missing on target") == 2 and closed(s) >= 6)
            with Watching(tmp_path, "--resume", "last") as second:
                assert second.process.wait(60) == 2, "the watch lives: nobody else takes it over"
                second.end()
                assert f"is written by process {watching.process.pid} on" in "".join(second.said)
            services.target(writer.missing[60])
            watching.wait_for(lambda s: found(s, "late then matched") == 1)
            watching.end(signal.SIGTERM)
    run = store.load_run("last").run_id
    bounds = [body["bounds"] for body in store.windows(run, "paid")]
    assert [b[0] for b in bounds[1:]] == [b[1] for b in bounds[:-1]], "windows lie one after the other, without a gap"
    assert len({tuple(b) for b in bounds}) == len(bounds)
    kept = store.findings(run, "paid", limit=1000)
    rows = sum(body["covered"]["rows_source"] for body in store.windows(run, "paid"))
    store.close()
    assert {int(b["key"][0]): b["kind"] for _, b in kept} == {40: "missing on target", 60: "late then matched"}
    start, end = bounds[0][0], bounds[-1][1]
    there = services.source(f"SELECT COUNT(*) FROM orders WHERE at >= '{start}' AND at < '{end}'")
    assert rows == there[0][0], "every row of the closed windows was read once"


def test_a_row_that_comes_into_a_closed_window_is_found(services: Databases, tmp_path: Path) -> None:
    write_rules(tmp_path, services.name)
    with written(tmp_path, services) as writer, Watching(tmp_path) as watching:
        writer.lost = set()
        watching.wait_for(lambda s: closed(s) >= 2 and s["verdict"] == "MATCH")
        at = datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=WIDTH + SETTLE + 1)
        services.source(f"INSERT INTO orders VALUES (-1, '{at}', 7, 'EUR')")
        watching.wait_for(lambda s: s["verdict"] == "MISMATCH")
        services.target(f"INSERT INTO payments VALUES (-1, '{at}', 7, 'EUR')")
        watching.wait_for(lambda s: s["verdict"] == "MATCH")
        watching.end()
    assert findings(tmp_path) == {-1: "late then matched"}


def test_once_over_the_past(services: Databases, tmp_path: Path) -> None:
    start = datetime.now(UTC).replace(tzinfo=None, microsecond=0) - timedelta(hours=3)
    for n in range(60):
        row = f"({n}, '{start + timedelta(minutes=2 * n, seconds=7)}', {n}, 'EUR')"
        services.source(f"INSERT INTO orders VALUES {row}")
        if n != 33:
            services.target(f"INSERT INTO payments VALUES {row}")
    services.source("INSERT INTO orders VALUES (99, NULL, 1, 'EUR')")
    write_config(tmp_path, services.pair, services.name)
    write_rules(tmp_path, services.name, width=600)
    command = [
        sys.executable, "-m", "migverify", "recon", "watch", str(tmp_path / "recon.yaml"), "--config",
        str(tmp_path / "migverify.yaml"), "--since", start.isoformat(), "--once", "--idle-windows", "0",
        "--metrics-file", str(tmp_path / "recon.prom"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "1 key does not match, 33.0000 EUR at risk" in done.stdout
    assert "1 rows of orders have no at and are in no window" in done.stdout
    assert findings(tmp_path) == {33: "missing on target"}
    page = (tmp_path / "recon.prom").read_text()
    assert 'migverify_recon_rule_verdict{rule="paid",severity="critical",owner=""} 1' in page
    report = [sys.executable, "-m", "migverify", "report", "last", "--config", str(tmp_path / "migverify.yaml")]
    assert "MISMATCH" in subprocess.run(report, capture_output=True, text=True, check=False).stdout


# -- watermarks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["source", "target"])
def test_an_open_write_holds_the_watermark_of_a_writer(services: Databases, tmp_path: Path, side: str) -> None:
    config = load_config(write_config(tmp_path, services.pair, services.name))
    endpoint = config.sources[0] if side == "source" else config.target
    server = getattr(services.pair, side)
    table = "orders" if side == "source" else "payments"
    with open_session(endpoint, None) as session, connect(server, services.name) as other:
        free = writer_mark(session, side)
        assert free.at is not None
        before = read_clock(session).now
        other.begin()
        with other.cursor() as cursor:
            cursor.execute(f"INSERT INTO {table} VALUES (1, UTC_TIMESTAMP(6), 1, 'EUR')")
        time.sleep(2.2)
        held = writer_mark(session, side)
        other.rollback()
        assert held.at is not None
        assert held.how == "start of the oldest open write"
        assert held.at < before + 1.2, "the watermark stays where the open transaction began"
        # InnoDB's list is some tenths of a second old, and others write here too.
        wait_for(lambda: (writer_mark(session, side).at or 0) > before + 1.2, "a watermark behind the transaction",
                 every=0.1)  # fmt: skip


def test_a_checkpoint_is_a_time_and_a_marker_is_one(services: Databases, tmp_path: Path) -> None:
    config = load_config(write_config(tmp_path, services.pair, services.name))
    services.target("CREATE TABLE ck (name VARCHAR(64), file VARCHAR(64), offset BIGINT)")
    services.both(f"CREATE TABLE mark ({MARKER_COLUMNS})")
    with open_session(config.sources[0], None) as source, open_session(config.target, None) as target:
        applied = AppliedTime(CheckpointTable(f"{services.name}.ck"))
        assert applied.reached(target)[0] is None
        earlier = read_clock(source).now
        applied.sample(source)
        status = source.query_named("SHOW BINARY LOG STATUS")[0]
        services.target(f"INSERT INTO ck VALUES ('x', '{status['File']}', {status['Position']})")
        later = read_clock(source).now
        assert earlier <= (applied.reached(target)[0] or 0) <= later
        services.source("INSERT INTO orders VALUES (1, NULL, 1, 'EUR')")
        applied.sample(source)
        assert (applied.reached(target)[0] or 0) <= later, "the checkpoint has not come to the second sample"

        name = f"{services.name}.mark"
        marker = AppliedTime(Marker(name, name, "watch"))
        marker.sample(source)
        assert marker.reached(target) == (None, f"no marker of this watch is in {name} yet")
        services.target("INSERT INTO mark VALUES ('watch', 1, NOW(6))")
        assert later <= (marker.reached(target)[0] or 0) <= read_clock(source).now

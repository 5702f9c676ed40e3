"""`recon watch` over the changes of a real TiDB: a changefeed carries them to MySQL, rules compare both sides.

The commits and their timestamps are TiDB's own; what stands in for TiCDC is the lab's feed, see docs/lab.md.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from migverify.changes.carriers.dead_letters import DeadLetterFile
from migverify.changes.positions import time_tso
from migverify.store.open import open_store
from migverify_lab.feed.run import ReverseFeed, feed
from tests.conftest import Databases
from tests.db.test_recon_watch import Watching, closed, found
from tests.db.verifying import write_config

pytestmark = pytest.mark.db

WIDTH = 3
COLUMNS = "id BIGINT PRIMARY KEY, at DATETIME(6), amount DECIMAL(20,4), state ENUM('new','paid','void'), KEY (at)"
MARKER = "name VARCHAR(64) NOT NULL PRIMARY KEY, number BIGINT NOT NULL, written DATETIME(6) NOT NULL"
LATE = ("--lookback", "60", "--every", "2")
"""A busy machine may take long between two statements of a test: rows that change after their window are still seen."""
Lines = Callable[[bytes], list[bytes]]
"""What becomes of one line of the feed's file."""


@pytest.fixture
def opened(databases: Databases) -> Databases:
    """A pair whose target is open for writes."""
    databases.both(f"CREATE TABLE pay ({COLUMNS})", f"CREATE TABLE marker ({MARKER})")
    return databases


@contextmanager
def followed(
    databases: Databases, folder: Path, *faults: str, lines: Lines | None = None, **options: Any
) -> Iterator[ReverseFeed]:
    """Run a feed, and write rules and a configuration that name it; with ``lines`` a copy of its one file."""
    name = databases.name
    partitions = 1 if lines is not None else 2
    with feed(databases.pair, folder / "feed", tables=[f"{name}.pay"], polled=[f"{name}.marker"], faults=faults,
              name=f"recon-{name}", partitions=partitions, **options) as fed:  # fmt: skip
        paths = fed.paths
        stop = threading.Event()
        copier = threading.Thread(target=lambda: None)
        if lines is not None:
            copy = folder / "copy.jsonl"
            copy.touch()
            copier, paths = threading.Thread(target=_copy, args=(paths[0], copy, lines, stop)), [copy]
        place: dict[str, Any] = {"files": [str(path) for path in paths]}
        if fed.servers:
            place = {"kafka": {"servers": fed.servers, "topics": [fed.topic]}}
        carrier = {"format": fed.format.name, "time_zone": "UTC", "dead_letters": str(folder / "dead.jsonl"), **place}
        reverse = {"carrier": carrier, "applied": "marker", "marker": f"{name}.marker"}
        write_config(folder, databases.pair, name, reverse=reverse, report={"values": True})
        write_rules(folder, name)
        copier.start()
        # A row on the border is looked for in the window before the first one: the feed must reach back to that.
        time.sleep(2 * WIDTH + 0.5)
        try:
            yield fed
        finally:
            stop.set()
            copier.join()


def _copy(path: Path, to: Path, lines: Lines, stop: threading.Event) -> None:
    done = 0
    while not stop.wait(0.05):
        whole = [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
        with to.open("ab") as file:
            file.writelines(more for line in whole[done:] for more in lines(line))
        done = len(whole)


def write_rules(folder: Path, database: str) -> None:
    document = {
        "version": "recon/v1",
        "datasets": {
            "old": {"endpoint": "source", "table": f"{database}.pay", "key": "id", "time": "at"},
            "new": {"endpoint": "target", "changes": f"{database}.pay", "key": "id", "operations": ["insert"]},
            "steps": {"endpoint": "target", "changes": f"{database}.pay", "key": "id"},
        },
        "rules": [
            {
                "name": "carried", "kind": "same_rows", "source": "old", "target": "new", "compare": ["amount"],
                "settle": "1s", "window": f"{WIDTH}s", "rereads": 1, "delay": "0.1s",
            },
            {
                "name": "states", "kind": "transitions", "source": "steps", "column": "state", "initial": ["new"],
                "allowed": {"new": ["paid"]}, "window": f"{WIDTH}s", "rereads": 0,
            },
        ],
    }  # fmt: skip
    (folder / "recon.yaml").write_text(yaml.safe_dump(document, sort_keys=False))


class Writer(threading.Thread):
    """Orders on TiDB, each paid a moment later."""

    def __init__(self, fed: ReverseFeed, database: str) -> None:
        super().__init__(name="writer", daemon=True)
        self.fed, self.table = fed, f"{database}.pay"
        self.halt = threading.Event()
        self.number = 0

    def run(self) -> None:
        while not self.halt.wait(0.08):
            at = datetime.now(UTC).replace(tzinfo=None)
            number = self.number + 1
            self.fed.write(f"INSERT INTO {self.table} VALUES ({number}, '{at}', {number}.25, 'new')")
            self.fed.write(f"UPDATE {self.table} SET state='paid' WHERE id={number}")
            self.number = number

    def __enter__(self) -> Writer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.halt.set()
        self.join()


def now() -> str:
    return datetime.now(UTC).replace(tzinfo=None).isoformat()


def ended(folder: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """Run a watch to its end: its exit code, its last status, and what it said."""
    command = [sys.executable, "-m", "migverify", "recon", "watch", str(folder / "recon.yaml"), "--json", "--config",
               str(folder / "migverify.yaml"), "--recheck", "0.5", "--idle-windows", "0", *options]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stderr


def carried_rows(status: dict[str, Any]) -> int:
    """Count the rows of the rule with windows: the other one is evaluated once, of what is there at the start."""
    (rule,) = [one for one in status["rules"] if one["rule"] == "carried"]
    return int(rule["rows_source"]) + int(rule["rows_target"])


def reasons(status: dict[str, Any]) -> str:
    return "; ".join(reason for rule in status["rules"] for reason in rule["reasons"])


def kinds(folder: Path, rule: str) -> dict[str, str]:
    store = open_store(f"sqlite:///{folder / 'runs.db'}")
    try:
        run = store.load_run("last").run_id
        return {body["key"][0]: body["kind"] for _, body in store.findings(run, rule, limit=10_000)}
    finally:
        store.close()


@pytest.mark.parametrize(("protocol", "out"), [("canal-json", "files"), ("open-protocol", "kafka")])
def test_a_healthy_changefeed_is_match_while_it_is_written_and_after(
    opened: Databases, tmp_path: Path, protocol: str, out: str
) -> None:
    with followed(opened, tmp_path, "message-duplicated:every=5", protocol=protocol, out=out) as fed:
        since = now()
        with Writer(fed, opened.name), Watching(tmp_path, "--since", since) as watching:
            watching.wait_for(lambda s: closed(s) >= 3 and s["verdict"] == "MATCH" and carried_rows(s) > 20)
            watching.end()
        assert all(line["verdict"] != "MISMATCH" for line in watching.lines)
        until = now()
        fed.drain()
        code, status, said = ended(tmp_path, "--resume", "last", "--until", until, "--timeout", "90")
    assert (code, status["verdict"]) == (0, "MATCH"), reasons(status) + said
    assert fed.faults_done, "messages came twice"
    assert kinds(tmp_path, "carried") == kinds(tmp_path, "states") == {}
    (mark,) = [one for one in status["sources"] if one["source"] == "changes of target"]
    assert "watermark of the changefeed at tso:" in mark["how"]


def test_a_row_that_was_altered_on_the_source_and_a_wrong_step_are_found(opened: Databases, tmp_path: Path) -> None:
    with followed(opened, tmp_path) as fed, Watching(tmp_path, *LATE) as watching:
        with Writer(fed, opened.name) as writer:
            watching.wait_for(lambda s: closed(s) >= 2 and s["verdict"] == "MATCH")
            number = writer.number
            fed.drain()
            fed.write_old_side(f"UPDATE {opened.name}.pay SET amount=7 WHERE id={number}")
            # Another row: the applier writes whole rows, and would bring the amount back.
            fed.write(f"UPDATE {opened.name}.pay SET state='void' WHERE id={number - 1}")
            watching.wait_for(lambda s: found(s, "value mismatch") == 1 and s["rules"][1]["verdict"] == "MISMATCH")
        code, last = watching.end()
    assert (code, last["verdict"]) == (130, "MISMATCH")
    assert kinds(tmp_path, "carried") == {str(number): "value mismatch"}
    assert kinds(tmp_path, "states") == {str(number - 1): "violation"}


def test_a_message_that_cannot_be_decoded_is_inconclusive(opened: Databases, tmp_path: Path) -> None:
    bad = threading.Event()

    def lines(line: bytes) -> list[bytes]:
        if not bad.is_set():
            return [line]
        bad.clear()
        return [b'{"type": "INSERT", "data": [\n', line]

    with followed(opened, tmp_path, lines=lines) as fed, Writer(fed, opened.name), Watching(tmp_path) as watching:
        watching.wait_for(lambda s: closed(s) >= 2 and s["verdict"] == "MATCH")
        bad.set()
        status = watching.wait_for(lambda s: "copy.jsonl/0@" in reasons(s))
        later = watching.wait_for(lambda s: s["rules"][0]["windows"].get("matched", 0)
                                  > status["rules"][0]["windows"].get("matched", 0))  # fmt: skip
        code, last = watching.end()
    assert (status["verdict"], later["verdict"], last["verdict"], code) == (*["INCONCLUSIVE"] * 3, 130)
    assert "not read in full" in reasons(last), reasons(last)
    assert len(list(DeadLetterFile(tmp_path / "dead.jsonl").read())) == 1
    assert set(kinds(tmp_path, "carried").values()) <= {"pending"}, "the writer went on: what it wrote last may be open"


def test_a_kill_neither_loses_nor_repeats_a_window(opened: Databases, tmp_path: Path) -> None:
    with followed(opened, tmp_path, "message-duplicated:every=4") as fed:
        since = now()
        with Writer(fed, opened.name) as writer:
            for number in range(4):
                with Watching(tmp_path, *(("--resume", "last") if number else ("--since", since)), *LATE) as watching:
                    watching.wait_for(lambda s, least=number: closed(s) >= least)  # type: ignore[misc]
                    time.sleep(0.5 * number)
                    watching.end(signal.SIGKILL)
            lost = writer.number
            fed.drain()
            fed.write_old_side(f"UPDATE {opened.name}.pay SET amount=7 WHERE id={lost}")
            with Watching(tmp_path, "--resume", "last", *LATE) as watching:
                watching.wait_for(lambda s: found(s, "value mismatch") == 1)
                watching.end(signal.SIGTERM)
    assert kinds(tmp_path, "carried") == {str(lost): "value mismatch"}
    store = open_store(f"sqlite:///{tmp_path / 'runs.db'}")
    run = store.load_run("last").run_id
    windows = list(store.windows(run, "carried"))
    store.close()
    bounds = [body["bounds"] for body in windows]
    assert [b[0] for b in bounds[1:]] == [b[1] for b in bounds[:-1]], "windows lie one after the other, without a gap"
    there = opened.source(f"SELECT COUNT(*) FROM pay WHERE at >= '{bounds[0][0]}' AND at < '{bounds[-1][1]}'")
    rows = sum(body["covered"]["rows_source"] for body in windows)
    carried = sum(body["covered"]["rows_target"] for body in windows)
    assert rows == there[0][0]
    assert abs(carried - rows) <= 2, "each change was counted once; one may be committed behind a border"


def shifted(seconds: float) -> Lines:
    """Messages as of another cluster, whose clock is ahead."""

    def lines(line: bytes) -> list[bytes]:
        body = json.loads(line)
        for name in ("commitTs", "watermarkTs"):
            if name in body["_tidb"]:
                body["_tidb"][name] += time_tso(seconds)
        return [json.dumps(body).encode() + b"\n"]

    return lines


def test_the_messages_of_another_cluster_are_one_clear_error(opened: Databases, tmp_path: Path) -> None:
    with followed(opened, tmp_path, lines=shifted(3600)) as fed:
        since = now()
        with Writer(fed, opened.name):
            time.sleep(2 * WIDTH)
        code, status, _ = ended(tmp_path, "--since", since, "--once")
    assert (code, status["verdict"]) == (3, "INCONCLUSIVE")
    assert "ahead of the configured TiDB: the messages are those of another cluster" in reasons(status)
    assert closed(status) == 0, "no window of rows is closed by the watermarks of another cluster"


def test_a_timestamp_that_goes_back_is_one_clear_error(opened: Databases, tmp_path: Path) -> None:
    first: list[bytes] = []
    back = threading.Event()

    def lines(line: bytes) -> list[bytes]:
        if b"watermarkTs" in line and not first:
            first.append(line)
        if not back.is_set():
            return [line]
        back.clear()
        return [*first, line]

    with followed(opened, tmp_path, lines=lines) as fed:
        with Writer(fed, opened.name), Watching(tmp_path) as watching:
            watching.wait_for(lambda s: closed(s) >= 2 and s["verdict"] == "MATCH")
            back.set()
            status = watching.wait_for(lambda s: "comes after one of" in reasons(s))
            watching.end(signal.SIGKILL)
        code, again, _ = ended(tmp_path, "--resume", "last", "--once")
    assert status["verdict"] == "INCONCLUSIVE"
    assert "another changefeed or cluster fills the topic too" in reasons(status)
    assert (code, again["verdict"]) == (3, "INCONCLUSIVE")
    assert "another changefeed or cluster fills the topic too" in reasons(again)


def test_a_changefeed_that_does_not_reach_back_is_inconclusive(opened: Databases, tmp_path: Path) -> None:
    since = now()
    time.sleep(WIDTH + 0.5)
    with (
        followed(opened, tmp_path) as fed, Writer(fed, opened.name),
        Watching(tmp_path, "--since", since) as watching,
    ):  # fmt: skip
        status = watching.wait_for(lambda s: "the first timestamp of the messages is" in reasons(s))
        watching.end()
    assert status["verdict"] == "INCONCLUSIVE"

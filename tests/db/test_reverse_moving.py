"""A row that is written all the time is proved as of moments between its writes, and one that is wrong never is."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import yaml

from migverify_lab.feed.run import ReverseFeed
from tests.conftest import Databases
from tests.db.test_reverse import followed, opened, verified, write
from tests.db.watching import Watching, diffs, drained

pytestmark = pytest.mark.db

__all__ = ["opened"]  # the fixture
HOT_SECONDS = 6.0


class Counter(threading.Thread):
    """Updates one row on TiDB as often as it can."""

    def __init__(self, fed: ReverseFeed, database: str) -> None:
        super().__init__(name="counter", daemon=True)
        self.fed, self.table = fed, f"{database}.pay"
        self.halt = threading.Event()
        self.number = 0

    def run(self) -> None:
        while not self.halt.wait(0.02):
            self.number += 1
            self.fed.write(f"UPDATE {self.table} SET amount=amount+1, note='{self.number}' WHERE id=3")

    def __enter__(self) -> Counter:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.halt.set()
        self.join()


def with_hot_seconds(config: Path) -> Path:
    settings = yaml.safe_load(config.read_text())
    settings["watch"]["hot_seconds"] = HOT_SECONDS
    config.write_text(yaml.safe_dump(settings))
    return config


def test_a_row_that_is_written_all_the_time_is_proved_between_its_writes(opened: Databases, tmp_path: Path) -> None:
    with followed(opened, tmp_path) as (fed, config):
        watching = Watching(with_hot_seconds(config), "--reverse", "--since", verified(config))
        watching.wait_for(lambda s: s["as_of_verdict"] == "MATCH")
        with Counter(fed, opened.name):
            begun = time.time()
            # Long after the row would be hot, and still written.
            status = watching.wait_for(lambda s: s["at"] > begun + 3 * HOT_SECONDS and s["as_of_verdict"] == "MATCH")
            table = status["tables"][0]
            assert (table["as_of_verdict"], table["diverged"], table["hot"]) == ("MATCH", 0, 0)
            assert table["oldest_seconds"] is None or table["oldest_seconds"] < HOT_SECONDS
            assert any(line["at"] > begun and line["verdict"] == "INCONCLUSIVE" for line in watching.lines), "open keys"
        fed.drain()
        status = watching.wait_for(lambda s: s["verdict"] == "MATCH")
        assert status["tables"][0]["pending"] == 0
        watching.stop()


@pytest.mark.attack(
    "reverse", "a row that is written all the time is another one on the source at every moment",
    "it is never proved while it is written, and diverged when it rests",
)  # fmt: skip
def test_a_row_that_is_wrong_at_every_moment_is_never_proved(opened: Databases, tmp_path: Path) -> None:
    name = opened.name
    with followed(opened, tmp_path) as (fed, config):
        watching = Watching(with_hot_seconds(config), "--reverse", "--since", verified(config))
        watching.wait_for(lambda s: s["as_of_verdict"] == "MATCH")
        for when in ("INSERT", "UPDATE"):  # an applier may replace the row
            fed.write_old_side(
                f"CREATE TRIGGER {name}.on_{when} BEFORE {when} ON {name}.pay FOR EACH ROW SET NEW.amount=NEW.amount+1"
            )
        with Counter(fed, name):
            status = watching.wait_for(lambda s: s["tables"][0]["hot"] == 1)
            assert (status["verdict"], status["as_of_verdict"]) == ("INCONCLUSIVE", "INCONCLUSIVE")
        fed.drain()
        status = watching.wait_for(lambda s: s["verdict"] == "MISMATCH")
        assert status["as_of_verdict"] == "MISMATCH"
        assert diffs(config, watching.run) == {(f"{name}.pay", ("3",), ("amount",))}
        watching.stop()


def test_rows_that_are_written_all_the_time_hold_no_drain_open(opened: Databases, tmp_path: Path) -> None:
    with followed(opened, tmp_path) as (fed, config):
        watching = Watching(config, "--reverse", "--since", verified(config))
        write(fed, opened, 30)
        watching.wait_for(lambda s: s["tables"][0]["keys"] > 10)
        watching.stop()
        with Counter(fed, opened.name):
            code, status = drained(config, watching.run, "--reverse", "--timeout", "60")
        assert (code, status["verdict"]) == (0, "MATCH")

"""`tables watch --reverse` on the real pair: TiDB is written, a feed carries its commits to MySQL, each fault is found.

The commits and their timestamps are TiDB's own; what stands in for TiCDC is the lab's feed, see docs/lab.md.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from migverify_lab.feed.run import ReverseFeed, feed
from tests.conftest import Databases
from tests.db.verifying import write_config
from tests.db.watching import Watching, drained, migverify, reasons

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

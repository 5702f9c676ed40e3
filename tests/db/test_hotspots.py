"""``guard hotspots`` on the real pair: a hot AUTO_INCREMENT at 2,000 inserts a second, and its harmless twins."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from migverify.cli.main import run as run_command
from tests.conftest import Databases

pytestmark = pytest.mark.db

BEGAN = 1_767_323_045
SECONDS = 11
"""A capture of less than 10 s is too short for its rates."""
ENTRY = (
    "# Time: 2026-01-02T03:04:{:09.6f}Z\n# User@Host: app[app] @ [10.0.0.1]  Id: {}\n"
    "# Query_time: 0.000100  Lock_time: 0.000000 Rows_sent: 0  Rows_examined: 0\nuse {};\nSET timestamp={};\n{};\n"
)
NEXT = Random(7)


@pytest.fixture
def guarded(databases: Databases, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Write a slow log of statements at a rate, capture it, ask the guard; the document, with the exit code."""
    pair = databases.pair
    (tmp_path / "migverify.yaml").write_text(json.dumps({
        "source": {"host": pair.source.host, "port": pair.source.port, "user": "root"},
        "target": {"host": pair.target.host, "port": pair.target.port, "user": "root"},
        "tables": {"include": [f"{databases.name}.*"]}, "store": f"sqlite:///{tmp_path}/store.db",
    }))  # fmt: skip

    def ask(statement: Callable[[int], str] | None, rate: int, *more: str, seconds: int = SECONDS) -> dict[str, Any]:
        options: list[str] = []
        if statement is not None:
            with (tmp_path / "slow.log").open("w") as log:
                for number in range(rate * seconds):
                    at = number / rate
                    log.write(ENTRY.format(5 + at, 7 + number % 20, databases.name, BEGAN + int(at), statement(number)))
            capture = [
                "workload",
                "capture",
                str(tmp_path / "slow.log"),
                "--out",
                str(tmp_path / "capture"),
                "--replace",
            ]
            assert run_command(capture) == (0 if rate else 3)
            options = ["--capture", str(tmp_path / "capture")]
        capsys.readouterr()
        code = run_command(
            ["guard", "hotspots", "--config", str(tmp_path / "migverify.yaml"), "--json", *options, *more]
        )
        out, err = capsys.readouterr()
        assert out, err
        return {"code": code, **json.loads(out)}

    return ask


def answers(found: dict[str, Any], state: str) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in found["guards"][0]["answers"] if one["state"] == state}


def uuid(_: int) -> str:
    return f"INSERT INTO t (id, v) VALUES ('{UUID(int=NEXT.getrandbits(128), version=4)}', 1)"


def without_id(_: int) -> str:
    return "INSERT INTO t (v) VALUES (1)"


PLAIN = "CREATE TABLE t (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, v INT)"


def test_a_hot_auto_increment_fails_with_its_remedy(
    databases: Databases, guarded: Callable[..., dict[str, Any]]
) -> None:
    databases.both(f"USE `{databases.name}`", PLAIN)
    found = guarded(without_id, 2000)
    failed = answers(found, "fail")
    assert (found["code"], list(failed)) == (1, ["insert order rows"]), found
    hot = failed["insert order rows"]
    assert hot["numbers"]["inserts_per_second"] >= 1990
    assert "`t` MODIFY COLUMN `id` BIGINT AUTO_RANDOM(5)" in hot["todo"]
    assert "ids jump" in hot["todo"]
    databases.target(*hot["todo"].partition(". ")[0].split("; "))
    assert guarded(without_id, 2000)["code"] == 0, "the remedy heals it"


TWINS = {
    "AUTO_RANDOM": ("id BIGINT PRIMARY KEY AUTO_RANDOM, v INT)", without_id, 2000),
    "not clustered, sharded": (
        "id BIGINT AUTO_INCREMENT, v INT, PRIMARY KEY (id) NONCLUSTERED) SHARD_ROW_ID_BITS = 4", without_id, 2000),
    "no key, sharded": ("id BIGINT, v INT) SHARD_ROW_ID_BITS = 4", without_id, 2000),
    "hash partitions": (
        "id BIGINT AUTO_INCREMENT PRIMARY KEY, v INT) PARTITION BY HASH (id) PARTITIONS 8", without_id, 2000),
    "UUID": ("id CHAR(36) PRIMARY KEY, v INT)", uuid, 2000),
    "random numbers": (
        "id BIGINT PRIMARY KEY, v INT)", lambda _: f"INSERT INTO t VALUES ({NEXT.getrandbits(60)}, 1)", 2000),
    "few inserts": ("id BIGINT AUTO_INCREMENT PRIMARY KEY, v INT)", without_id, 10),
}  # fmt: skip
SOURCES = {
    "UUID": "CREATE TABLE t (id CHAR(36) PRIMARY KEY, v INT)",
    "no key, sharded": "CREATE TABLE t (id BIGINT, v INT)",
}


@pytest.mark.parametrize("name", TWINS)
def test_its_harmless_twins_pass(databases: Databases, guarded: Callable[..., dict[str, Any]], name: str) -> None:
    table, statement, rate = TWINS[name]
    databases.source(f"USE `{databases.name}`", SOURCES.get(name, PLAIN))
    databases.target(f"USE `{databases.name}`", f"CREATE TABLE t ({table}")
    found = guarded(statement, rate)
    assert (found["code"], answers(found, "fail"), answers(found, "inconclusive")) == (0, {}, {}), found
    assert set(answers(found, "warn")) == {"capture"}, "a slow log may not show all"


def test_without_a_capture_nothing_passes(databases: Databases, guarded: Callable[..., dict[str, Any]]) -> None:
    databases.both(f"USE `{databases.name}`", PLAIN)
    found = guarded(None, 0)
    assert (found["code"], set(answers(found, "inconclusive"))) == (3, {"capture"}), found


def test_a_capture_that_holds_nothing_or_a_fragment_passes_nothing(
    databases: Databases, guarded: Callable[..., dict[str, Any]]
) -> None:
    databases.both(f"USE `{databases.name}`", PLAIN)
    fragment = guarded(without_id, 27, seconds=1)
    assert (fragment["code"], set(answers(fragment, "inconclusive"))) == (3, {"capture"}), fragment
    empty = guarded(without_id, 0)
    assert (empty["code"], set(answers(empty, "inconclusive"))) == (3, {"capture"}), empty
    assert "it holds no statement" in answers(empty, "inconclusive")["capture"]["value"]


def test_what_else_is_hot(databases: Databases, guarded: Callable[..., dict[str, Any]]) -> None:
    """Time-ordered ids, an index on the time, a counter's row, a small table that is read; all in one capture."""
    databases.both(
        f"USE `{databases.name}`",
        "CREATE TABLE t (id BIGINT PRIMARY KEY, v INT, created_at DATETIME NOT NULL, KEY by_time (created_at))",
        "CREATE TABLE counters (id INT PRIMARY KEY, n BIGINT)", "CREATE TABLE settings (id INT PRIMARY KEY, v INT)",
    )  # fmt: skip
    statements = (
        lambda n: f"INSERT INTO t VALUES ({(BEGAN * 1000 + n) << 22}, 1, NOW())",
        lambda _: "UPDATE counters SET n = n + 1 WHERE id = 7",
        lambda n: f"SELECT v FROM settings WHERE id = {n % 5}",
        lambda n: f"SELECT v FROM settings WHERE id = {n % 3}",
    )
    found = guarded(lambda n: statements[n % 4](n), 8000, seconds=3)
    failed, warned = answers(found, "fail"), answers(found, "warn")
    assert found["code"] == 1
    assert set(failed) == {"insert order rows", "insert order index by_time", "hot key id=7",
                           f"small table {databases.name}.counters"}, failed  # fmt: skip
    assert "SHARD_ROW_ID_BITS" in failed["insert order rows"]["todo"]
    assert warned[f"small table {databases.name}.settings"]["todo"].endswith("wait for tidb_table_cache_lease (3 s).")


def test_a_row_that_tidb_does_not_take(databases: Databases, guarded: Callable[..., dict[str, Any]]) -> None:
    databases.both(f"USE `{databases.name}`", "CREATE TABLE t (id INT PRIMARY KEY, b LONGBLOB)")
    large = f"UPDATE t SET b = '{'x' * (7 << 20)}' WHERE id = 1"
    found = guarded(lambda n: large if n == 2 else f"UPDATE t SET b = '' WHERE id = {n}", 10)
    assert set(answers(found, "warn")) == {"capture", "transaction row"}, found

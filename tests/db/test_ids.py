"""``migverify guard ids`` on the real pair: every kind of id space, with ends that are known."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from migverify.cli.main import main
from migverify.guards.ids_model import DAY
from migverify.guards.layouts import BAIDU, INSTAGRAM, SONYFLAKE, TWITTER, Layout, moment_text
from migverify_lab.servers import LabServers
from tests.db.verifying import write_config

pytestmark = pytest.mark.db

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp() * 1000
TIME = "2026-11-21T12:00:00Z"


def ids(path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Run the command; returns its exit code and the spaces by ``endpoint table column`` without the database."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ending:
        main(["guard", "ids", "--config", str(path), "--json", *more])
    assert isinstance(ending.value.code, int)
    found = json.loads(capsys.readouterr().out)
    return ending.value.code, {f"{s['endpoint']} {s['table'].split('.')[1]} {s['column']}".strip(): s for s in found}


def test_counters(databases: Any, pair: LabServers, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    databases.both(
        "CREATE TABLE small (id INT AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT = 1700000000",
        "CREATE TABLE parent (id BIGINT AUTO_INCREMENT PRIMARY KEY)",
        "CREATE TABLE child (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, parent_id INT, KEY (parent_id))",
        "CREATE TABLE bytes (id TINYINT UNSIGNED PRIMARY KEY)",
        "CREATE TABLE none (id BIGINT AUTO_INCREMENT PRIMARY KEY)",
        "INSERT INTO small (v) VALUES (1)", "INSERT INTO parent VALUES (5)", "INSERT INTO bytes VALUES (3), (200)",
    )  # fmt: skip
    code, found = ids(write_config(tmp_path, pair, databases.name), capsys, "--now", TIME)
    assert code == 1
    small = found["source small id"]
    assert (small["kind"], small["used"], small["limit"]) == ("auto_increment", 1_700_000_000, 2**31 - 1)
    assert (small["verdict"], round(small["used_ratio"], 3)) == ("fail", 0.792)
    assert found["source child id"]["limit"] == 2**64 - 1
    assert (found["source bytes id"]["kind"], found["source bytes id"]["verdict"]) == ("integer", "fail")
    assert (found["source none id"]["used"], found["source none id"]["verdict"]) == (0, "pass")
    if pair.target.flavor == "tidb":
        target = found["target small id"]
        assert target["used"] >= 1_700_000_000  # a whole cache of 30,000 is gone
        assert target["used"] - small["used"] >= 29_000
        assert (target["verdict"], target["cache"]) == ("fail", 30_000)


def test_a_narrower_child_ends_the_parent(
    databases: Any, pair: LabServers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    databases.both(
        "CREATE TABLE orders (id BIGINT AUTO_INCREMENT PRIMARY KEY) AUTO_INCREMENT = 1800000000",
        "CREATE TABLE lines_of (id INT PRIMARY KEY, order_id INT NOT NULL, KEY (order_id))",
        "CREATE TABLE tags (tag_no BIGINT AUTO_INCREMENT PRIMARY KEY) AUTO_INCREMENT = 70000",
        "CREATE TABLE tagged (id INT PRIMARY KEY, tag_no SMALLINT UNSIGNED, tags_id TINYINT)",
    )  # fmt: skip
    _, found = ids(write_config(tmp_path, pair, databases.name), capsys, "--now", TIME)
    parent = found["source orders id"]
    assert (parent["limit"], parent["limited_by"]) == (2**31 - 1, f"{databases.name}.lines_of.order_id")
    assert parent["verdict"] == "fail"
    tags = found["source tags tag_no"]
    assert (tags["limit"], tags["verdict"], tags["warning"]) == (2**63 - 1, "pass", True)
    assert "no reference, or broken" in tags["reason"]


def test_tidb_spaces(databases: Any, pair: LabServers, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if pair.target.flavor != "tidb":
        pytest.skip("the target is a stand-in")
    databases.source("CREATE TABLE r (id BIGINT AUTO_INCREMENT PRIMARY KEY, v INT)", "CREATE TABLE heap (v INT)")
    databases.target(
        "CREATE TABLE r (id BIGINT AUTO_RANDOM(5, 54) PRIMARY KEY, v INT)", "INSERT INTO r (v) VALUES (1), (2)",
        "CREATE TABLE heap (v INT) SHARD_ROW_ID_BITS = 4", "INSERT INTO heap VALUES (1)",
        "CREATE SEQUENCE orders_seq START 100 MAXVALUE 2000 NOCACHE", "SELECT NEXTVAL(orders_seq)",
        "CREATE SEQUENCE around MAXVALUE 5 CYCLE NOCACHE",
    )  # fmt: skip
    code, found = ids(write_config(tmp_path, pair, databases.name), capsys, "--now", TIME)
    random_ids = found["target r id"]
    assert (random_ids["kind"], random_ids["limit"]) == ("auto_random", 2**48 - 1)
    assert random_ids["beyond_2_53"] is False  # 54 bits with sign: at most 2^53 - 1
    heap = found["target heap _tidb_rowid"]
    assert (heap["kind"], heap["limit"]) == ("_tidb_rowid", 2**59 - 1)
    sequence = found["target orders_seq"]
    assert (sequence["kind"], sequence["limit"], sequence["used"]) == ("sequence", 2000, 100)
    assert found["target around"]["verdict"] == "pass"
    assert code == 0, [s["reason"] for s in found.values() if s["verdict"] != "pass"]


def fill(databases: Any, table: str, layout: Layout, end: float, *, made: bool, workers: int = 3) -> None:
    rng = random.Random(table)
    rows = {}
    for number in range(1200):
        time = int(end - rng.random() ** 2 * 20 * DAY)
        sequence = number % 1024 if layout is INSTAGRAM else int(rng.expovariate(1.5))
        rows[layout.make(time, rng.randrange(workers), sequence)] = moment_text(time)[:19].replace("T", " ")
    column = ", created_at DATETIME NOT NULL" if made else ""
    values = ", ".join(f"({n}, '{t}')" if made else f"({n})" for n, t in rows.items())
    databases.both(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY{column})", f"INSERT INTO {table} VALUES {values}")


def test_snowflakes(databases: Any, pair: LabServers, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dying = Layout("own", 41, 10, 12, 1, int(NOW + 100 * DAY) - (1 << 41))  # ends in 100 days, and its ids are huge
    known = {"twitter": TWITTER, "sonyflake": SONYFLAKE, "instagram": INSTAGRAM}
    for name, layout in known.items():
        fill(databases, name, layout, NOW - 5000, made=name == "sonyflake")
    fill(databases, "baidu", BAIDU, BAIDU.end - 40 * DAY, made=True)
    fill(databases, "dying", dying, NOW - 5000, made=True)
    fill(databases, "early", TWITTER, NOW + DAY / 12, made=False)
    code, found = ids(write_config(tmp_path, pair, databases.name), capsys, "--now", TIME)
    assert code == 1
    for name, layout in {**known, "baidu": BAIDU}.items():
        for side in ("source", "target"):
            space = found[f"{side} {name} id"]
            assert space["kind"] == "snowflake", space
            assert space["layout"]["name"] == layout.name
            assert space["confidence"] >= 0.6
            # 41 + 13 + 10 bits are 64, and a signed BIGINT holds 63.
            end = layout.epoch + (1 << 40) if layout is INSTAGRAM else layout.end
            assert space["exhausts_on"] == moment_text(end)
            assert space["verdict"] == ("fail" if layout is BAIDU else "pass"), space["reason"]
            assert "a JavaScript client rounds them" in space["reason"] or "JavaScript clients need" in space["reason"]
            assert (space["workers_used"], space["workers_total"]) == (3, 1 << layout.worker_bits)
    space = found["source dying id"]
    assert (space["verdict"], space["exhausts_on"][:10]) == ("fail", moment_text(NOW + 100 * DAY)[:10])
    assert "in 100.0 days" in space["reason"]
    assert "ahead of the clock" in found["source early id"]["reason"]
    assert "exhausted since 2024-11-20" in found["source baidu id"]["reason"]


def test_a_layout_that_is_said(
    databases: Any, pair: LabServers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = Layout("own", 41, 10, 12, 1, int(NOW - 400 * DAY))
    fill(databases, "own", own, NOW - 5000, made=False)
    path = write_config(tmp_path, pair, databases.name)
    code, found = ids(path, capsys, "--now", TIME)
    assert (code, found["source own id"]["verdict"]) == (3, "inconclusive")  # the bits alone do not tell its epoch
    told = f"{databases.name}.own.id=41/10/12:ms:{own.epoch}"
    code, found = ids(path, capsys, "--now", TIME, "--layout", told)
    assert (code, found["source own id"]["exhausts_on"]) == (0, moment_text(own.end))


def test_two_generators_of_the_same_workers(
    databases: Any, pair: LabServers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(databases, "orders", TWITTER, NOW - 60_000, made=False)
    new = ", ".join(f"({TWITTER.make(int(NOW - 50_000 + n), n % 2, 0)})" for n in range(200))
    databases.source(f"INSERT INTO orders VALUES {new}")
    own = ", ".join(f"({TWITTER.make(int(NOW - 50_000 + n), 1 + n % 2, 1)})" for n in range(200))
    databases.target(f"INSERT INTO orders VALUES {own}")
    code, found = ids(write_config(tmp_path, pair, databases.name), capsys, "--now", TIME)
    assert code == 1
    assert "worker 1: two generators overlap" in found["source orders id"]["reason"]


def test_growth_between_runs_tells_the_end(
    databases: Any, pair: LabServers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    databases.source("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT = 1000001")
    databases.target("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    path = write_config(tmp_path, pair, databases.name)
    code, found = ids(path, capsys, "--now", "2026-11-01T00:00:00Z")
    assert (code, found["source t id"]["exhausts_on"]) == (0, None)
    databases.source("ALTER TABLE t AUTO_INCREMENT = 201000001")  # 10 million a day
    code, found = ids(path, capsys, "--now", "2026-11-21T00:00:00Z")
    left = (2**31 - 1 - 201_000_000) / 10_000_000
    assert code == 0
    assert found["source t id"]["days_left"] == pytest.approx(left, abs=0.01)
    code, found = ids(path, capsys, "--now", "2026-11-21T00:00:00Z", "--min-days", "365")
    assert (code, found["source t id"]["verdict"]) == (1, "fail")


def test_a_side_that_does_not_answer_is_inconclusive(
    databases: Any, pair: LabServers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    databases.both("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY)")
    path = write_config(tmp_path, pair, databases.name, target={"url": "mysql://root@127.0.0.1:1"})
    code, found = ids(path, capsys)
    assert code == 3
    assert set(found) == {"source t id"}


def test_random_keys_text_snowflakes_and_old_counters(
    databases: Any, pair: LabServers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(11)
    for name, kind, bits in (("hashed", "BIGINT", 63), ("codes", "INT UNSIGNED", 32), ("signed_codes", "INT", 31)):
        values = ", ".join(f"({rng.getrandbits(bits)})" for _ in range(900))
        databases.both(f"CREATE TABLE {name} (id {kind} PRIMARY KEY)", f"INSERT IGNORE INTO {name} VALUES {values}")
    made = [TWITTER.make(int(NOW) - rng.randrange(90 * DAY), rng.randrange(4), 0) for _ in range(700)]
    texts = ", ".join(f"('{number}')" for number in made)
    databases.both("CREATE TABLE texts (id VARCHAR(32) PRIMARY KEY)", f"INSERT IGNORE INTO texts VALUES {texts}")
    databases.both("CREATE TABLE words (id VARCHAR(32) PRIMARY KEY)", "INSERT INTO words VALUES ('a-1'), ('9')")
    mixed = ", ".join(f"({number})" for number in [*range(1, 2000), *made])
    databases.both("CREATE TABLE mixed (id BIGINT PRIMARY KEY)", f"INSERT IGNORE INTO mixed VALUES {mixed}")
    _, found = ids(write_config(tmp_path, pair, databases.name), capsys, "--now", TIME)
    for side in ("source", "target"):
        for name in ("hashed", "codes", "signed_codes"):
            space = found[f"{side} {name} id"]
            assert (space["kind"], space["verdict"]) == ("random", "pass"), space
        assert (found[f"{side} texts id"]["kind"], found[f"{side} texts id"]["verdict"]) == ("snowflake", "pass")
        assert found[f"{side} texts id"]["exhausts_on"] == moment_text(TWITTER.end)
        assert f"{side} words id" not in found
        assert found[f"{side} mixed id"]["kind"] == "snowflake", found[f"{side} mixed id"]
        assert "ids of a counter, such as 10" in found[f"{side} mixed id"]["reason"]

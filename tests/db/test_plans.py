"""``workload plans`` on the real pair: planted faults of plans are found, what differs by design is not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
import pytest

from migverify.cli.main import run as run_command
from migverify.db.session import open_session
from migverify.model import Endpoint, Side
from migverify.workload.model import Parameter
from migverify.workload.plans.read import Explainer
from migverify.workload.replay.clone import mark
from migverify.workload.replay.model import Call
from migverify.workload.replay.safety import ReplayEndpoints
from migverify.workload.state import SessionState
from tests.conftest import Databases
from tests.db.late_statistics import analyzed, counted_late
from tests.waiting import wait_for

pytestmark = pytest.mark.db

ORDERS = (
    "CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY, customer INT NOT NULL, code VARCHAR(20) NOT NULL,"
    " amount INT NOT NULL, KEY by_customer (customer), KEY by_code (code))"
)
CUSTOMERS = "CREATE TABLE customers (id INT NOT NULL PRIMARY KEY, name VARCHAR(20) NOT NULL, region INT NOT NULL)"
DIGITS = (
    "(SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6"
    " UNION SELECT 7 UNION SELECT 8 UNION SELECT 9)"
)
NUMBERS = f"SELECT a.d + 10*b.d + 100*c.d + 1000*e.d n FROM {DIGITS} a, {DIGITS} b, {DIGITS} c, {DIGITS} e"
FILL = (
    f"INSERT INTO orders SELECT n, n % 2000, CONCAT('k', n), n % 7 FROM ({NUMBERS}) x",
    f"INSERT INTO customers SELECT n, CONCAT('c', n), n % 5 FROM ({NUMBERS}) x WHERE n < 200",
)
READ = "SELECT * FROM orders WHERE code = 'k{}'"
HEAD = (
    "# Time: 2026-01-02T03:04:{:02d}.000000Z\n# User@Host: app[app] @ [10.0.0.1]  Id: 7\n"
    "# Query_time: 0.{:03d}000  Lock_time: 0.000000 Rows_sent: 1  Rows_examined: 1\nuse {};\nSET timestamp={};\n{};\n"
)


@pytest.fixture
def shop(databases: Databases) -> Databases:
    """Ten thousand orders of two hundred customers on both sides, with statistics."""
    databases.both(f"USE `{databases.name}`", ORDERS, CUSTOMERS, *FILL, "COMMIT")
    databases.source("ANALYZE TABLE orders, customers")
    analyzed(databases, "orders", "customers")
    return databases


@pytest.fixture
def asked(shop: Databases, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Capture statements, ask for their plans; the document, with the exit code."""
    (tmp_path / "migverify.yaml").write_text(json.dumps({
        "source": {"host": shop.pair.source.host, "port": shop.pair.source.port, "user": "root"},
        "target": {"host": shop.pair.target.host, "port": shop.pair.target.port, "user": "root"},
        "tables": {"include": [f"{shop.name}.*"]}, "store": f"sqlite:///{tmp_path}/store.db",
        "workload": {"clone_marker": f"{shop.name}.clones"},
    }))  # fmt: skip

    def ask(*statements: str, more: tuple[str, ...] = (), again: bool = False) -> dict[str, Any]:
        if not again:
            log = "".join(
                HEAD.format(number, 100 + number, shop.name, 1767323000 + number, one)
                for number, one in enumerate(statements)
            )
            (tmp_path / "slow.log").write_text(log)
            capture = ["workload", "capture", str(tmp_path / "slow.log"), "--out", str(tmp_path / "capture")]
            assert run_command(capture) == 0
        command = ["workload", "plans", str(tmp_path / "capture"), "--config", str(tmp_path / "migverify.yaml"),
                   "--accept-write-grants", "--json", *more]  # fmt: skip
        capsys.readouterr()
        code = run_command(command)
        out, err = capsys.readouterr()
        if code == 3 and counted_late(shop, out):
            code = run_command(command)
            out, err = capsys.readouterr()
        assert out, err
        return {"code": code, **json.loads(out)}

    return ask


def harms(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["harm"], one["table"]) for digest in found["digests"] for one in digest["findings"]]


def test_plans_that_are_alike_match(asked: Callable[..., dict[str, Any]]) -> None:
    """Lookups, ranges, a small table that is read whole on purpose, a join in another order, a write, a whole read."""
    found = asked(
        READ.format(1), "SELECT * FROM orders WHERE id BETWEEN 5 AND 9", "SELECT * FROM customers WHERE name = 'c7'",
        "SELECT c.name, SUM(o.amount) FROM orders o JOIN customers c ON c.id = o.customer WHERE c.region = 3"
        " GROUP BY c.name ORDER BY 2",
        "UPDATE orders SET amount = 1 WHERE code = 'k5'", "SELECT COUNT(*) FROM orders WHERE amount > 3",
    )  # fmt: skip
    assert (found["code"], harms(found), [one["doubts"] for one in found["digests"]]) == (0, [], [[]] * 6)
    assert all(set(one["plans"]) == {"source", "target"} for one in found["digests"])


@pytest.mark.parametrize(
    ("fault", "statement", "harm", "remedy"),
    [
        pytest.param("ALTER TABLE orders DROP INDEX by_code", READ.format(1), "index lost",
                     "ADD INDEX `by_code` (`code`) (tried", id="dropped index"),
        pytest.param("ALTER TABLE orders ALTER INDEX by_code INVISIBLE", READ.format(1), "index lost",
                     "ALTER INDEX `by_code` VISIBLE (tried", id="invisible"),
        pytest.param(
            "CREATE GLOBAL BINDING FOR SELECT * FROM orders WHERE code = 'x' USING"
            " SELECT /*+ IGNORE_INDEX(orders, by_code) */ * FROM orders WHERE code = 'x'",
            READ.format(1), "full scan",
            "CREATE GLOBAL BINDING FOR SELECT * FROM orders WHERE code = 'x' USING", id="a binding that makes it worse",
        ),
        pytest.param(
            "DROP TABLE orders; " + ORDERS.replace("customer INT", "customer VARCHAR(20)"),
            "SELECT * FROM orders WHERE customer = 5", "full scan", "Compare the types", id="implicit conversion",
        ),
        pytest.param(
            "DROP TABLE orders; " + ORDERS.replace("code VARCHAR(20)", "code VARCHAR(20) COLLATE utf8mb4_general_ci"),
            "SELECT * FROM orders WHERE code > 'k9998' COLLATE utf8mb4_bin", "full scan", "Compare the types",
            id="collation",
        ),
    ],
)  # fmt: skip
def test_a_planted_fault_is_found(
    shop: Databases, asked: Callable[..., dict[str, Any]], fault: str, statement: str, harm: str, remedy: str
) -> None:
    shop.target(*fault.split("; "))
    if "CREATE TABLE" in fault:
        shop.target(FILL[0], "COMMIT")
    analyzed(shop)
    try:
        found = asked(statement)
        assert (found["code"], harms(found)) == (1, [(harm, "orders")]), found["digests"]
        (one,) = found["digests"][0]["findings"]
        assert (one["proved"], remedy in one["remedy"]) == ("Compare" not in remedy, True), one
    finally:
        if "BINDING" in fault:
            shop.target("DROP GLOBAL BINDING FOR SELECT * FROM orders WHERE code = 'x'")


def test_without_statistics_nothing_is_judged(shop: Databases, asked: Callable[..., dict[str, Any]]) -> None:
    """Absent or stale: INCONCLUSIVE with the statement that takes them; then the plan is judged."""
    shop.target("DROP STATS orders")
    found = asked(READ.format(1))
    assert (found["code"], harms(found)) == (3, [])
    assert f"ANALYZE TABLE `{shop.name}`.`orders`" in found["digests"][0]["doubts"][0]
    analyzed(shop)
    assert asked(again=True)["code"] == 0
    # TiDB counts changes once a minute; what it would have written then is written here. A cached count is read again
    # where its version is newer, which only a transaction that has read has.
    table = f"table_schema = '{shop.name}' AND table_name = 'orders'"
    number = shop.target(f"SELECT tidb_table_id FROM information_schema.tables WHERE {table}")[0][0]
    newer = shop.target("COMMIT", "BEGIN", "SELECT version FROM mysql.stats_meta LIMIT 1", "SELECT @@tidb_current_ts")
    shop.target(
        f"UPDATE mysql.stats_meta SET modify_count = 6000, version = {newer[0][0]} WHERE table_id = {number}", "COMMIT"
    )
    wait_for(
        lambda: "6000" in str(shop.target("SHOW STATS_META WHERE table_name = 'orders'")), "the statistics", every=0.5
    )
    found = asked(again=True)
    assert (found["code"], "stale" in found["digests"][0]["doubts"][0]) == (3, True)


def test_a_changed_plan_is_named_with_what_changed_beneath(
    shop: Databases, asked: Callable[..., dict[str, Any]]
) -> None:
    """Worse is a finding, better is told."""
    assert asked(READ.format(1), READ.format(2))["code"] == 0
    assert asked(again=True, more=("--since", "last"))["digests"][0]["changed"] == ""
    shop.target("ALTER TABLE orders DROP INDEX by_code")
    found = asked(again=True, more=("--since", "last"))
    assert (found["code"], harms(found)) == (1, [("index lost", "orders"), ("plan changed", "")])
    assert f"{shop.name}.orders lost index by_code" in found["digests"][0]["changed"]
    shop.target("ALTER TABLE orders ADD INDEX by_code (code)")
    analyzed(shop)
    found = asked(again=True, more=("--since", "last"))
    assert (found["code"], harms(found)) == (0, [])
    assert f"{shop.name}.orders has a new index by_code" in found["digests"][0]["changed"]


def test_the_guard_names_a_plan_that_changed(
    shop: Databases, asked: Callable[..., dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Against the newest baseline, with the index that is gone beneath; the source is not asked."""
    words = ["guard", "plans", "--capture", str(tmp_path / "capture"), "-c", str(tmp_path / "migverify.yaml"),
             "--accept-write-grants", "--json"]  # fmt: skip

    def guard(*more: str) -> tuple[int, list[dict[str, Any]]]:
        code = run_command([*words, *more])
        return code, json.loads(capsys.readouterr().out)["guards"][0]["answers"]

    first = asked(READ.format(1), READ.format(2), "UPDATE customers SET region = 1 WHERE id = 7")
    code, answers = guard("--store", f"sqlite:///{tmp_path}/another.db")
    assert (code, answers[0]["value"]) == (3, "no run of `workload plans` is kept")
    code, answers = guard()
    assert (code, [one["state"] for one in answers]) == (0, ["pass"] * 3)
    shop.target("ALTER TABLE orders DROP INDEX by_code")
    code, answers = guard("--baseline", first["run_id"])
    assert (code, [one["state"] for one in answers]) == (1, ["pass", "fail", "pass"])
    assert f"since then: {shop.name}.orders lost index by_code" in answers[1]["value"]


def test_a_replay_keeps_the_plans_of_its_digests(
    shop: Databases, asked: Callable[..., dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They stand in its report and are a baseline; its verdict is that of the answers."""
    shop.target("ALTER TABLE orders DROP INDEX by_code")
    assert asked(READ.format(1), "SELECT * FROM customers WHERE id = 7")["code"] == 1
    words = ["workload", "replay", str(tmp_path / "capture"), "-c", str(tmp_path / "migverify.yaml"), "--pace", "fast",
             "--accept-write-grants", "--json"]  # fmt: skip

    def replayed(*more: str) -> dict[str, Any]:
        code = run_command([*words, *more])
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert (code, found["verdict"]) == (0, "MATCH"), found["reasons"]
        return found

    assert not any("plans" in one for one in replayed("--no-plans")["digests"])
    found = replayed("--plans")
    plans = {one["text"].split("`")[1]: one["plans"] for one in found["digests"]}
    assert [one["harm"] for one in plans["orders"]["findings"]] == ["index lost"]
    assert (plans["customers"]["state"], plans["orders"]["state"]) == ("fine", "hurts")
    again = asked(again=True, more=("--since", found["run_id"]))
    assert [one["changed"] for one in again["digests"]] == ["", ""]


def test_actual_rows_show_a_wrong_estimate(shop: Databases, asked: Callable[..., dict[str, Any]]) -> None:
    """Two columns that depend on each other: TiDB multiplies their shares."""
    shop.both(
        "CREATE TABLE pairs (id INT NOT NULL PRIMARY KEY, a INT NOT NULL, b INT NOT NULL, c INT NOT NULL,"
        " KEY ab (a, b))",
        f"INSERT INTO pairs SELECT n, n % 2, n % 2, 0 FROM ({NUMBERS}) x", "COMMIT",
    )  # fmt: skip
    shop.source("ANALYZE TABLE pairs")
    analyzed(shop, "pairs")
    shop.target("INSERT INTO pairs SELECT id + 100000, 7, 7, 1 FROM pairs LIMIT 1500", "COMMIT")
    read = "SELECT * FROM pairs WHERE a = 7 AND b = 7"
    found = asked(read, more=("--analyze",))
    assert (found["code"], harms(found)) == (1, [("estimate off", "pairs")]), found
    assert "1,500 were read" in found["digests"][0]["findings"][0]["reason"]


def test_a_write_is_never_run(shop: Databases, asked: Callable[..., dict[str, Any]]) -> None:
    """Not by --analyze either: EXPLAIN ANALYZE runs what it explains."""
    found = asked("UPDATE orders SET amount = 1000 WHERE code = 'k5'", "DELETE FROM orders WHERE code = 'k6'",
                  "SELECT * FROM orders WHERE code = 'k7' FOR UPDATE", more=("--analyze",))  # fmt: skip
    assert found["code"] == 0, found
    for ask in (shop.source, shop.target):
        assert ask("COMMIT", "SELECT COUNT(*), MAX(amount) FROM orders") == [(10000, 6)]


def marked(shop: Databases) -> None:
    endpoint = Endpoint("target", shop.pair.target.host, shop.pair.target.port, "root")
    with open_session(endpoint, None, side=Side.TARGET) as session:
        mark(session, f"{shop.name}.clones", "drill-3", 1)


def as_found(shop: Databases) -> list[Any]:
    """What the clone must be again: its tables, and what is analyzed of the one that TiDB does not analyze by itself.

    It does so with a table that has a new index, at a time of its own.
    """
    tables = [shop.target(f"SHOW CREATE TABLE {name}")[0] for name in ("orders", "customers")]
    parts = shop.target(f"SHOW STATS_HISTOGRAMS WHERE db_name = '{shop.name}' AND table_name = 'customers'")
    return [*tables, sorted(row[3] for row in parts)]


@pytest.mark.attack("plans", "remedies are to be tried on a target that is no marked clone",
                    "refused before anything is changed")  # fmt: skip
def test_remedies_are_tried_on_a_marked_clone_and_undone(shop: Databases, asked: Callable[..., dict[str, Any]]) -> None:
    """An index that is missing, one that is hidden, a binding, statistics; a write is not run. No mark, no change."""
    bad = "SELECT /*+ IGNORE_INDEX(orders, by_amount) */ * FROM orders WHERE amount = 1"
    shop.both("ALTER TABLE orders ADD INDEX by_amount (amount)", "UPDATE orders SET amount = id WHERE id > 9", "COMMIT")
    shop.source("ANALYZE TABLE orders")
    analyzed(shop)
    shop.target("DROP STATS customers", "ALTER TABLE orders DROP INDEX by_code",
                "ALTER TABLE orders ALTER INDEX by_customer INVISIBLE",
                f"CREATE GLOBAL BINDING FOR SELECT * FROM orders WHERE amount = 1 USING {bad}")  # fmt: skip
    try:
        statements = (READ.format(1), READ.format(2), "SELECT * FROM orders WHERE customer = 5",
                      "SELECT * FROM orders WHERE amount = 700", "SELECT * FROM customers WHERE name = 'c7'",
                      "UPDATE orders SET amount = -1 WHERE code = 'k5'")  # fmt: skip
        with pytest.raises(AssertionError, match="may not be written"):
            asked(*statements, more=("--try",))
        assert shop.target("SHOW TABLES LIKE 'clones%'") == []
        marked(shop)
        before = as_found(shop)
        found = asked(again=True, more=("--try",))
    finally:
        shop.target("DROP GLOBAL BINDING FOR SELECT * FROM orders WHERE amount = 1")
    assert as_found(shop) == before
    assert shop.target("SELECT * FROM clones_trials") == []
    assert shop.target("COMMIT", "SELECT MIN(amount) FROM orders") == [(0,)]
    assert found["code"] == 1
    tried = [(one["remedy"].partition(f"`{shop.name}`")[2], one) for each in found["digests"] for one in each["trials"]]
    rows = {
        ".`orders` ADD INDEX `by_code` (`code`)": (10_000, 1),
        ".`orders` ALTER INDEX `by_customer` VISIBLE": (10_000, 5),
        "; CREATE GLOBAL BINDING FOR SELECT * FROM orders": (10_000, 1), ".`customers`": (200, 200),
    }  # fmt: skip
    for remedy, (read, reads) in rows.items():
        (one,) = (one for name, one in tried if name.startswith(remedy) and one["rows"])
        assert one["rows"] == [read, reads], tried
        assert (one["helped"], one["clone"], one["calls"]) == (reads < read, "drill-3", [30, 30])
        assert min(one["p50_microseconds"]) > 0
    assert [one["reason"] for _, one in tried if not one["rows"]] == [
        "only what reads is run: write that is not permitted"
    ]


@pytest.mark.attack("plans", "kill -9 while a clone makes the index of a remedy that is tried",
                    "the next run waits for TiDB's job, names what was left, and drops it")  # fmt: skip
def test_a_trial_that_is_killed_is_undone_by_the_next_run(
    shop: Databases, asked: Callable[..., dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed while the clone makes the index: TiDB goes on with it, although nobody waits for it any more."""
    shop.target("ALTER TABLE orders DROP INDEX by_code")
    analyzed(shop)
    assert asked(READ.format(1))["code"] == 1
    marked(shop)
    before = as_found(shop)
    shop.target("BEGIN", "SELECT COUNT(*) FROM orders")  # its metadata lock holds the change up
    words = ["workload", "plans", str(tmp_path / "capture"), "-c", str(tmp_path / "migverify.yaml"), "--try",
             "--accept-write-grants", "--json"]  # fmt: skip
    process = subprocess.Popen([sys.executable, "-m", "migverify", *words], stdout=subprocess.DEVNULL)
    running = f"SELECT JOB_ID FROM information_schema.DDL_JOBS WHERE STATE = 'running' AND DB_NAME = '{shop.name}'"
    wait_for(lambda: asked_apart(shop, running), "the clone makes the index")
    process.kill()
    process.wait()
    assert len(asked_apart(shop, "SELECT * FROM clones_trials")) == 1
    shop.target("COMMIT")
    capsys.readouterr()
    code = run_command(words)
    out, err = capsys.readouterr()
    assert "a run that was cut off tried something there; undone: ALTER TABLE" in err
    (trial,) = json.loads(out)["digests"][0]["trials"]
    assert (code, trial["helped"]) == (1, True)
    assert as_found(shop) == before
    assert shop.target("COMMIT", "SELECT * FROM clones_trials") == []


def asked_apart(shop: Databases, sql: str) -> list[tuple[Any, ...]]:
    """Ask the target on another connection: one in a transaction sees what was there when that began."""
    server = shop.pair.target
    connection = pymysql.connect(host=server.host, port=server.port, user="root", database=shop.name)
    with closing(connection), connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def test_why_the_plan_cache_cannot_hold_a_prepared_statement(shop: Databases) -> None:
    """As the packets of a driver show it: text and values apart. Nothing is executed."""
    endpoint = Endpoint("target", shop.pair.target.host, shop.pair.target.port, "root")
    explainer = Explainer(ReplayEndpoints({Side.TARGET: endpoint}))
    state = SessionState(database=shop.name)
    found = []
    for sql in (b"SELECT * FROM orders WHERE code = ?", b"SELECT @@version, o.* FROM orders o WHERE code = ?"):
        call = Call("s", 1, sql, "d", state, parameters=(Parameter("text", b"k'5"),), command="execute")
        answer = explainer.explain(call).plans[Side.TARGET]
        found.append((answer.plan is not None, answer.reason, answer.uncached))
    explainer.close()
    assert found[0] == (True, "", "")
    assert found[1] == (True, "", "query has user-defined variables is un-cacheable")

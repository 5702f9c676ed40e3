"""Gates on real servers: each one passes, fails and has no value where it should."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from migverify.runbook.actions.action import ActionResult, CheckOutcome, Context, Outcome, ask
from migverify.runbook.actions.registry import full_registry
from migverify.runbook.model import Check
from migverify_lab import cutover
from migverify_lab.cutover import APP_USER, BARRIER, CANARY, MARKER_USER, Rehearsal, server_as
from migverify_lab.servers import LabServer
from migverify_lab.session import connect
from tests.db.cutover_pair import own_world

pytestmark = pytest.mark.db
SECRET = "app-s3cret-word"
PROBE: dict[str, Any] = {"user": APP_USER, "password_env": "GATE_PASSWORD", "tables": ["shop.orders"]}
MARKED = {"user": MARKER_USER, "password_env": "MIGVERIFY_MARKER_PASSWORD"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    with own_world(tmp_path_factory.mktemp("gates")) as one:
        yield one


@pytest.fixture
def shop(world: Rehearsal, monkeypatch: pytest.MonkeyPatch) -> Rehearsal:
    """The shop, where the application may write both sides, with a password."""
    cutover.prepare(world)
    for server in (world.pair.source, world.pair.target):
        do(server, f"ALTER USER {APP_USER} IDENTIFIED BY '{SECRET}'", f"ALTER USER {APP_USER} ACCOUNT UNLOCK")
    monkeypatch.setenv("GATE_PASSWORD", SECRET)
    return world


def do(server: LabServer, *statements: str) -> None:
    with connect(server) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@contextmanager
def transaction(server: LabServer, *statements: str) -> Iterator[None]:
    with connect(server) as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        for statement in statements:
            cursor.execute(statement)
        yield
        cursor.execute("ROLLBACK")


ORDER = "INSERT INTO shop.orders (token, customer, amount, state, changed_at) VALUES ('x', 1, 1, 'new', NOW(6))"


def context(world: Rehearsal, timeout: float = 30.0) -> Context:
    return Context("run-1", "step", 1, 1, timeout, threading.Event(), config=world.config)


def gate(world: Rehearsal, action: str, timeout: float = 30.0, **arguments: Any) -> CheckOutcome:
    answer = ask(full_registry(), Check(action=action, arguments=arguments), context(world, timeout))
    assert SECRET not in str(answer)
    if answer.state != "inconclusive":
        assert {"query", "threshold", "server_time", "local_time"} <= set(answer.evidence)
        assert abs(answer.evidence["server_time"] - time.time()) < 600
    return answer


def write(world: Rehearsal, **arguments: Any) -> ActionResult:
    return full_registry().run("marker.write", arguments, context(world))


@pytest.mark.parametrize(
    ("side", "refused", "accepted"),
    [("source", "source.writes_refused", "source.writes_accepted"),
     ("target", "target.readonly", "target.writes_accepted")],
)  # fmt: skip
def test_a_freeze_is_proved_by_refusal(side: str, refused: str, accepted: str, shop: Rehearsal) -> None:
    server = shop.server(side)
    rows = "SELECT COUNT(*) FROM shop.orders"
    do(server, ORDER)
    assert gate(shop, accepted, **PROBE).state == "pass"
    assert gate(shop, refused, **PROBE).value == 3  # INSERT, UPDATE, DELETE
    with connect(server) as connection, connection.cursor() as cursor:
        cursor.execute(rows)
        assert cursor.fetchall() == ((1,),), "a probe changes nothing"
    do(server, f"ALTER USER {APP_USER} ACCOUNT LOCK")
    assert gate(shop, refused, **PROBE).state == "pass"
    assert gate(shop, accepted, **PROBE).state == "fail"
    do(server, f"ALTER USER {APP_USER} ACCOUNT UNLOCK", f"REVOKE DELETE ON shop.* FROM {APP_USER}")
    assert gate(shop, refused, **PROBE).value == 2, "what may still insert and update is not frozen"
    do(server, f"REVOKE INSERT, UPDATE ON shop.* FROM {APP_USER}")
    assert gate(shop, refused, **PROBE).state == "pass"


def test_read_only_servers_refuse(shop: Rehearsal) -> None:
    do(shop.pair.source, "SET GLOBAL super_read_only = ON")
    do(shop.pair.target, "SET GLOBAL tidb_super_read_only = ON")
    try:
        assert gate(shop, "source.writes_refused", **PROBE).state == "pass"
        until = time.monotonic() + 30  # the variable reaches a server at its own time
        while gate(shop, "target.readonly", **PROBE).state != "pass":
            assert time.monotonic() < until
    finally:
        do(shop.pair.source, "SET GLOBAL super_read_only = OFF", "SET GLOBAL read_only = OFF")
        do(shop.pair.target, "SET GLOBAL tidb_super_read_only = OFF", "SET GLOBAL tidb_restricted_read_only = OFF")


def test_what_only_looks_like_a_freeze_is_no_value(shop: Rehearsal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WRONG", "another-word")
    wrong = {**PROBE, "password_env": "WRONG"}
    assert gate(shop, "source.writes_refused", **wrong).state == "inconclusive"
    assert gate(shop, "source.writes_refused", login_denied=True, **wrong).state == "pass"
    assert gate(shop, "source.writes_refused", servers=["127.0.0.1:1"], **PROBE).state == "inconclusive"
    assert gate(shop, "source.writes_refused", servers=["127.0.0.1:1"], unreachable=True, **PROBE).state == "pass"
    open_too = ["127.0.0.1:1", str(shop.pair.source)]
    assert gate(shop, "source.writes_refused", servers=open_too, unreachable=True, **PROBE).state == "fail"
    with connect(shop.pair.source) as connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLES shop.orders WRITE")
        assert gate(shop, "source.writes_refused", **PROBE).state == "inconclusive", "a lock is no freeze"
    assert gate(shop, "source.writes_refused", **{**PROBE, "tables": ["shop.nothing"]}).state == "inconclusive"


@pytest.mark.parametrize("side", ["source", "target"])
def test_sessions_and_transactions_are_counted(side: str, shop: Rehearsal) -> None:
    server = shop.server(side)
    do(server, f"ALTER USER {APP_USER} IDENTIFIED BY ''")
    assert gate(shop, f"{side}.sessions", users=[APP_USER]).value == 0
    assert gate(shop, f"{side}.transactions").value == 0
    with transaction(server_as(server, APP_USER), ORDER):
        found = gate(shop, f"{side}.sessions", users=[APP_USER])
        assert found.value == 1
        assert gate(shop, f"{side}.sessions", exempt=["root"]).value == 1
        assert gate(shop, f"{side}.transactions").value == 1
        assert gate(shop, f"{side}.transactions", older_than=600).value == 0
        assert gate(shop, f"{side}.transactions", exempt=[APP_USER]).value == 0
        assert gate(shop, f"{side}.transactions", exempt=["root"]).value == 1
    assert gate(shop, f"{side}.transactions").value == 0


def test_who_cannot_see_others_has_no_value(shop: Rehearsal) -> None:
    do(shop.pair.source, "DROP USER IF EXISTS blind", "CREATE USER blind", "GRANT SELECT ON *.* TO blind")
    config = shop.config.read_text()
    try:
        shop.config.write_text(config.replace("user: root", "user: blind", 1))
        for action, given in (("source.sessions", {"users": [APP_USER]}), ("source.transactions", {})):
            answer = gate(shop, action, **given)
            assert answer.state == "inconclusive"
            assert "PROCESS" in answer.text
        assert gate(shop, "source.position_stable", apart=0.1).state == "inconclusive"
    finally:
        shop.config.write_text(config)


def test_a_position_that_moves_does_not_rest(shop: Rehearsal) -> None:
    rests = gate(shop, "source.position_stable", readings=3, apart=0.3)
    assert rests.state == "pass"
    assert rests.evidence["position"].startswith("binlog.") or ":" in rests.evidence["position"]
    assert gate(shop, "changes.position").state == "pass"
    with writing(shop.pair.source):
        assert gate(shop, "source.position_stable", readings=4, apart=0.5).state == "fail"


@contextmanager
def writing(server: LabServer) -> Iterator[None]:
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.05):
            do(server, ORDER)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_quiet_tells_the_feed_from_the_application(shop: Rehearsal) -> None:
    assert gate(shop, "source.quiet", seconds=0.5).state == "pass"
    assert gate(shop, "source.quiet", seconds=0.5, exempt=["shop_feed"]).state == "pass"
    do(shop.pair.source, f"ALTER USER {APP_USER} IDENTIFIED BY ''")
    with writing(server_as(shop.pair.source, APP_USER)):
        assert gate(shop, "source.quiet", seconds=2).state == "fail"
        assert gate(shop, "source.quiet", seconds=2, exempt=["shop_feed"]).state == "fail"
        assert gate(shop, "source.quiet", seconds=2, exempt=[APP_USER]).state == "pass"


def test_a_marker_arrives_or_does_not(shop: Rehearsal) -> None:
    source = {"endpoint": "source", "table": BARRIER, **MARKED}
    assert write(shop, endpoint="source", table=BARRIER).outcome is Outcome.FAILED
    assert gate(shop, "marker.arrived", timeout=3, table=BARRIER).state == "inconclusive", "nobody wrote one"
    first = write(shop, **source)
    assert first.outcome is Outcome.OK
    assert gate(shop, "marker.arrived", timeout=3, table=BARRIER).value == "missing"
    row = f"REPLACE INTO {BARRIER} VALUES ('run-1', {first.value}, NOW(6))"
    do(shop.pair.target, row)
    assert gate(shop, "marker.arrived", timeout=3, table=BARRIER).state == "pass"
    second = write(shop, **source)
    assert int(str(second.value)) > int(str(first.value))
    assert gate(shop, "marker.arrived", timeout=3, table=BARRIER).value == "missing", "the old one does not count"
    do(shop.pair.source, f"INSERT INTO {BARRIER} VALUES ('heartbeat', {second.value}, NOW(6))")
    assert gate(shop, "marker.arrived", timeout=3, table=BARRIER).value == "stale", "a heartbeat is as new"
    assert write(shop, endpoint="source", table="shop.orders", **MARKED).outcome is Outcome.FAILED


def test_a_stopped_feed_is_proved_by_two(shop: Rehearsal) -> None:
    given = {"table": BARRIER, "name": "stopped", "after": 1}
    stopped, runs, broken = (["echo", "stopped"], ["echo", "running"], ["false"])
    assert gate(shop, "feed.stopped", argv=stopped, **given).state == "inconclusive", "no canary"
    written = write(shop, endpoint="source", table=BARRIER, name="stopped", **MARKED)
    assert gate(shop, "feed.stopped", argv=stopped, **given).state == "pass"
    assert gate(shop, "feed.stopped", argv=runs, **given).state == "fail"
    assert gate(shop, "feed.stopped", argv=broken, **given).state == "inconclusive"
    do(shop.pair.target, f"REPLACE INTO {BARRIER} VALUES ('stopped', {written.value}, NOW(6))")
    assert gate(shop, "feed.stopped", argv=stopped, **given).state == "fail", "it traveled, whatever the status says"


def test_the_way_back_is_asked_from_the_target(shop: Rehearsal) -> None:
    written = write(shop, endpoint="target", table=CANARY, **MARKED)
    assert gate(shop, "reverse.canary", timeout=3, table=CANARY).value == "missing"
    do(shop.pair.source, f"REPLACE INTO {CANARY} VALUES ('run-1', {written.value}, NOW(6))")
    assert gate(shop, "reverse.canary", timeout=3, table=CANARY).state == "pass"


def test_ids_are_asked_by_taking_one(shop: Rehearsal) -> None:
    target = shop.pair.target
    do(target, ORDER, ORDER)
    assert gate(shop, "ids.rebased").state == "pass"
    do(target, "INSERT INTO shop.orders (id, token, customer, amount, state, changed_at)"
               " VALUES (500000, 'y', 1, 1, 'new', NOW(6))")  # fmt: skip
    assert gate(shop, "ids.rebased").state == "pass"
    do(target, "ALTER TABLE shop.orders FORCE AUTO_INCREMENT = 7")
    assert gate(shop, "ids.rebased").value == 1
    do(target, "ALTER TABLE shop.orders FORCE AUTO_INCREMENT = 500000")
    assert gate(shop, "ids.rebased").value == 1, "an id that is taken is not above"
    cutover.rebase_ids(shop)
    assert gate(shop, "ids.rebased").state == "pass"
    with connect(target) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM shop.orders")
        assert cursor.fetchall() == ((3,),), "a probe leaves no row"
    assert gate(shop, "ids.rebased", tables=["shop.customers"]).state == "inconclusive"
    assert gate(shop, "ids.rebased", tables=["shop.customers"], may_be_none=True).state == "pass"
    assert gate(shop, "ids.rebased", endpoint="source", user="shop_feed").state == "pass"
    denied = gate(shop, "ids.rebased", user=MARKER_USER, password_env="MIGVERIFY_MARKER_PASSWORD")
    assert denied.state == "inconclusive"


def test_ids_with_shard_bits_are_compared_by_their_counter(shop: Rehearsal) -> None:
    do(shop.pair.target, "DROP TABLE IF EXISTS shop.sharded",
       "CREATE TABLE shop.sharded (id BIGINT PRIMARY KEY AUTO_RANDOM(5), n INT NOT NULL)",
       "INSERT INTO shop.sharded (n) VALUES (1), (2), (3)")  # fmt: skip
    found = gate(shop, "ids.rebased", tables=["shop.sharded"])
    assert found.state == "pass"
    (one,) = found.evidence["ids"]
    assert one["largest"] < 1 << 58
    assert one["given"] > one["largest"]


def test_the_target_tells_its_time(shop: Rehearsal) -> None:
    first, second = (gate(shop, "tso.record") for _ in range(2))
    assert first.state == "pass"
    assert int(str(second.value)) > int(str(first.value))
    assert gate(shop, "tso.record", endpoint="source").state == "inconclusive"

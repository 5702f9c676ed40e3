"""``last`` of a command: the newest run of its kind, though watches, guards and rules keep runs in the same store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from migverify.cli.diff_view import list_row_diffs, run_status
from migverify.errors import NoRunError, UsageError
from migverify.model import DiffKind, LiveState, RowDiff, StoredKind, Verdict
from migverify.store.open import open_store
from migverify.store.results import ResultStore, named_run
from migverify.tables.prepare import PreparedTables
from migverify.tables.recheck import proof_run, run_to_resume, tables_run
from migverify.tables.run import proved_runs
from tests.report_runs import result

TABLES: dict[str, object] = {"pairs": []}
PAIR = {"id": "app.t", "source": "app.t", "target": "app.t"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    with closing(open_store(f"sqlite:///{tmp_path}/store.db")) as one:
        yield one


def test_last_passes_over_runs_of_other_kinds(store: ResultStore) -> None:
    with pytest.raises(UsageError, match="no such run of tables"):
        tables_run(store, "last", "digest", watch=False)
    verified = store.start_run("migverify tables verify", "digest", TABLES, {}, kind=StoredKind.TABLES)
    other = store.start_run("migverify tables verify", "another digest", TABLES, {}, kind=StoredKind.TABLES)
    watched = store.start_run("migverify tables watch", "digest", TABLES, {"watch": True}, kind=StoredKind.TABLES)
    for kind in StoredKind:
        if kind is not StoredKind.TABLES:
            store.start_run("migverify another", "", TABLES, {}, kind=kind)
    assert tables_run(store, "last", "digest", watch=False).run_id == verified
    assert tables_run(store, "last", "digest", watch=True).run_id == watched
    assert tables_run(store, "last", "digest").run_id == watched
    assert tables_run(store, "last").run_id == watched
    assert tables_run(store, "last", watch=False).run_id == other


def test_last_of_another_configuration_is_the_newest_run_and_is_refused_later(store: ResultStore) -> None:
    verified = store.start_run("migverify tables verify", "digest", TABLES, {}, kind=StoredKind.TABLES)
    store.start_run("migverify check", "", {"guards": ["check"]}, {}, kind=StoredKind.GUARDS)
    assert tables_run(store, "last", "another", watch=False).run_id == verified


def _facts(host: str, server: str = "") -> dict[str, object]:
    return {"host": host, "port": 3306, "server": server}


def _service(digest: str, table: str, source: str, target: str = "tidb", server: str = "") -> PreparedTables:
    facts = {"source": _facts(source, server), "target": _facts(target)}
    return PreparedTables(((table, table, table),), 1, "SHA2", facts, digest, (), 0.0, lambda: iter(()))


def _verified(store: ResultStore, service: PreparedTables) -> str:
    facts = {"endpoints": service.facts}
    return store.start_run("migverify tables verify", service.digest, service.stored(), facts, kind=StoredKind.TABLES)


def _last(store: ResultStore, service: PreparedTables) -> str:
    return proof_run(store, "last", service.digest, is_own=service.owns).run_id


@pytest.mark.parametrize("other", [
    _service("other", "users.t", "db1"),  # other tables on the same servers
    _service("other", "orders.t", "db2"),  # the same tables on other servers
    _service("digest", "orders.t", "db2"),  # ... of the same settings: a second environment
    _service("digest", "orders.t", "db1", "tidb2"),
], ids=["tables", "servers", "environment", "target"])  # fmt: skip
def test_last_is_never_a_run_of_another_service_that_shares_the_store(
    store: ResultStore, other: PreparedTables
) -> None:
    mine = _service("digest", "orders.t", "db1")
    theirs = _verified(store, other)
    with pytest.raises(NoRunError, match="this configuration has no run of tables yet") as refused:
        _last(store, mine)
    assert theirs in refused.value.message
    assert "Start one by `migverify tables verify`" in str(refused.value.hint)
    with pytest.raises(NoRunError):
        run_to_resume(store, "last", mine.digest, mine.owns)
    own = _verified(store, mine)
    _verified(store, other)
    assert _last(store, mine) == own
    assert run_to_resume(store, "last", mine.digest, mine.owns).run_id == own


def test_rows_are_immutable_by_a_proof_of_these_servers_alone(store: ResultStore) -> None:
    """Two environments that were made by one script have tables of the same ids."""
    staging = _service("digest", "orders.t", "staging")
    proof = _verified(store, staging)
    details = {"plan_digest": "d", "stamps": ["7/1", "9/1"]}
    store.add_table_result(proof, result("orders.t", details=details))
    store.finish_run(proof, Verdict.MATCH, {})
    assert proved_runs(store, staging, "") == {"orders.t": (proof, "d", ("7/1", "9/1"))}
    assert proved_runs(store, _service("digest", "orders.t", "db1"), "") == {}


def test_last_is_the_run_of_a_server_under_another_address_and_of_a_configuration_that_changed(
    store: ResultStore,
) -> None:
    before = _service("digest", "orders.t", "db1", server="uuid-1")
    run = _verified(store, before)
    assert _last(store, _service("digest", "orders.t", "db1.example.com", server="uuid-1")) == run
    assert _last(store, _service("digest", "orders.t", "DB1")) == run
    changed = _last(store, _service("another", "orders.t", "db1"))
    assert changed == run, "whoever compares digests says that the configuration changed"


@pytest.mark.parametrize(("kind", "plan", "words"), [
    (StoredKind.GUARDS, {"guards": ["check"]}, r"of guards \(check\)"), (StoredKind.RULES, TABLES, "of rules"),
    (StoredKind.REPLAY, {}, "of a replay"), (StoredKind.CLIENTS, {}, "of clients"),
    (StoredKind.PROBE, {}, "of a probe"), (StoredKind.UNKNOWN, {}, "of an unknown kind"),
])  # fmt: skip
def test_a_run_of_another_kind_is_refused_by_name(
    store: ResultStore, kind: StoredKind, plan: dict[str, object], words: str
) -> None:
    name = store.start_run("migverify another --store mysql://a:b0b@h/x", "digest", plan, {}, kind=kind)
    for look in (lambda: tables_run(store, name, "digest"), lambda: run_status(store, name),
                 lambda: list(list_row_diffs(store, name, None, 10, as_json=False))):  # fmt: skip
        with pytest.raises(UsageError, match=f"run {name} is one {words}; a run of tables is needed") as caught:
            look()
        assert "b0b" not in caught.value.line


def test_diff_and_status_of_last_show_the_run_of_the_tables(store: ResultStore) -> None:
    run = store.start_run("migverify tables verify", "digest", {"pairs": [PAIR]}, {}, kind=StoredKind.TABLES)
    store.add_row_diffs(run, [RowDiff("app.t", ("7",), DiffKind.MISSING_ON_TARGET, LiveState.DIVERGED)])
    rule = store.start_run("migverify recon run", "rules", {"rules": ["paid"], "pairs": []}, {}, kind=StoredKind.RULES)
    store.start_run("migverify check", "", {"guards": ["check"]}, {}, kind=StoredKind.GUARDS)
    assert run_status(store, "last")["run_id"] == run
    assert [line.split()[0] for line in list_row_diffs(store, "last", None, 10, as_json=False)] == ["app.t"]
    assert named_run(store, "last", StoredKind.RULES).run_id == rule
    in_part = {"pairs": [{**PAIR, "in part": ["where"]}]}
    part = store.start_run(
        "migverify tables verify", "digest", in_part, {"excluded": ["app.u"]}, kind=StoredKind.TABLES
    )
    assert run_status(store, part)["tables"] == "0 of 1 finished: 1 of them in part (where), 1 excluded"

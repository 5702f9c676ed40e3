"""The guard of definitions without servers: when it reads, what it tells, and which runs become stale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from migverify.config import load_config
from migverify.errors import EndpointError, UsageError
from migverify.guards import schema_guard
from migverify.guards.keep import begin
from migverify.guards.model import AnswerState
from migverify.guards.schema_ddl import Ddl, account_of
from migverify.guards.schema_diff import compare_over_time, compare_snapshot
from migverify.guards.schema_guard import DriftLimits, SchemaGuard
from migverify.guards.schema_keep import EarlierRuns, compare_named, keep_side, load_snapshot, newest_snapshot
from migverify.guards.schema_model import SideSchema, Snapshot, TableSchema, from_json, to_json
from migverify.guards.schema_read import whole_of
from migverify.guards.scope import Scope
from migverify.guards.watch import ask
from migverify.model import ColumnDef, Flavor, IndexDef, StoredKind, Verdict
from migverify.sql.fingerprint import layout_fingerprint, table_fingerprint
from migverify.sql.parts import CheckConstraint, Parts
from migverify.store.open import open_store
from migverify.store.results import ResultStore
from tests.definitions import column, key, table

CONFIG = """\
source: {url: "mysql://root@127.0.0.1:1"}
target: {url: "tidb://root@127.0.0.1:2"}
tables: {include: ["d.*"]}
"""


@pytest.fixture
def scope(tmp_path: Path) -> Scope:
    path = tmp_path / "migverify.yaml"
    path.write_text(CONFIG)
    return Scope(load_config(path), {})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    opened = open_store(f"sqlite:///{tmp_path / 'runs.db'}")
    yield opened
    opened.close()


def schema(endpoint: str, name: str, *parts: ColumnDef | IndexDef, more: Parts = Parts()) -> TableSchema:  # noqa: B008
    made = table(*parts, name=name, endpoint=endpoint, engine="InnoDB")
    return TableSchema(made, more, (made.ref.database, made.ref.table), table_fingerprint(made, more),
                       layout_fingerprint(made))  # fmt: skip


def side(endpoint: str, *tables: TableSchema, at: float = 100.0) -> SideSchema:
    whole = whole_of(tables, (), lambda d, t: (d, t))
    return SideSchema(endpoint, "h:1", "mysql", "9.0", at, at, "", tables, (), whole)


def plain(endpoint: str, *extra: ColumnDef) -> SideSchema:
    return side(endpoint, schema(endpoint, "d.t", column("id"), *extra, key("PRIMARY", "id")))


def both(*extra: ColumnDef) -> Snapshot:
    return Snapshot(100.0, (plain("source", *extra), plain("target")))


class Asked:
    """A guard whose servers are a list of readings; an error among them is raised."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, guard: SchemaGuard, readings: Sequence[Snapshot | Exception]):
        self.guard, self.left, self.still = guard, list(readings), False
        monkeypatch.setattr(schema_guard, "read_snapshot", self.read)
        monkeypatch.setattr(SchemaGuard, "_unchanged", lambda _: self.still)
        monkeypatch.setattr(SchemaGuard, "_ddl_now", lambda guard, endpoint: guard._ddl.setdefault(endpoint, []))

    def read(self, _: Scope) -> Snapshot:
        found = self.left.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def ask(self) -> tuple[Verdict, dict[tuple[str, str], tuple[AnswerState, str]]]:
        (result,) = ask([self.guard])
        return result.verdict, {(a.name, a.subject): (a.state, a.value) for a in result.answers}


def test_alike_and_unchanged_passes(monkeypatch: pytest.MonkeyPatch, scope: Scope) -> None:
    verdict, answers = Asked(monkeypatch, SchemaGuard(scope), [both()]).ask()
    assert verdict is Verdict.MATCH
    assert answers["alike", "tables/d.t"][0] is AnswerState.PASS
    assert answers["unchanged", "source"][0] is AnswerState.PASS


def test_a_change_is_told_until_it_is_taken_back(monkeypatch: pytest.MonkeyPatch, scope: Scope) -> None:
    asked = Asked(monkeypatch, SchemaGuard(scope), [both(), both(column("x")), both(column("x"), column("y")), both()])
    assert asked.ask()[0] is Verdict.MATCH
    verdict, answers = asked.ask()
    assert verdict is Verdict.MISMATCH
    assert "columns.x" in answers["change 1", "source/d.t"][1]
    assert ("unchanged", "source") not in answers
    _, answers = asked.ask()
    assert "columns.y" in answers["change 2", "source/d.t"][1]
    assert ("change 1", "source/d.t") in answers
    verdict, answers = asked.ask()
    assert verdict is Verdict.MATCH
    assert ("unchanged", "source") in answers


def test_what_stands_still_is_not_read(monkeypatch: pytest.MonkeyPatch, scope: Scope) -> None:
    now = replace(both(), taken=1e12)
    asked = Asked(monkeypatch, SchemaGuard(scope), [now])
    asked.ask()
    asked.still = True
    assert asked.ask()[0] is Verdict.MATCH
    assert asked.guard.readings == 1


def test_a_reading_that_failed_stays_due(monkeypatch: pytest.MonkeyPatch, scope: Scope) -> None:
    gone: list[Snapshot | Exception] = [EndpointError("source: gone"), EndpointError("source: gone")]
    asked = Asked(monkeypatch, SchemaGuard(scope), [replace(both(), taken=1e12), *gone, both(column("x"))])
    assert asked.ask()[0] is Verdict.MATCH
    assert asked.ask()[0] is Verdict.INCONCLUSIVE
    asked.still = True
    assert asked.ask()[0] is Verdict.INCONCLUSIVE  # never the answers of before
    assert asked.ask()[0] is Verdict.MISMATCH


def test_nothing_in_scope_is_inconclusive(monkeypatch: pytest.MonkeyPatch, scope: Scope) -> None:
    empty = Snapshot(1.0, (side("source"), side("target")))
    assert Asked(monkeypatch, SchemaGuard(scope), [empty]).ask()[0] is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(("strict", "verdict"), [(False, Verdict.MATCH), (True, Verdict.MISMATCH)])
def test_cosmetic_differences_warn_unless_strict(
    monkeypatch: pytest.MonkeyPatch, scope: Scope, strict: bool, verdict: Verdict
) -> None:
    one = Snapshot(1.0, (side("source", schema("source", "d.t", column("id", comment="x"))),
                         side("target", schema("target", "d.t", column("id")))))  # fmt: skip
    found, answers = Asked(monkeypatch, SchemaGuard(scope, limits=DriftLimits(strict)), [one]).ask()
    assert found is verdict
    assert answers["alike", "tables/d.t"][0] is (AnswerState.FAIL if strict else AnswerState.WARN)


def test_what_is_hidden_is_said(monkeypatch: pytest.MonkeyPatch, scope: Scope) -> None:
    blind = Snapshot(1.0, (replace(plain("source"), hidden=("triggers",)), plain("target")))
    _, answers = Asked(monkeypatch, SchemaGuard(scope), [blind]).ask()
    assert answers["not seen", "source"] == (AnswerState.WARN, "triggers")


def test_a_table_on_one_side_only(scope: Scope) -> None:
    lone = Snapshot(1.0, (plain("source"), side("target")))
    (found,) = compare_snapshot(scope, lone)
    assert [(d.path, d.source, d.target) for d in found.differences] == [("table", "table", None)]
    with pytest.raises(UsageError, match="holds no target"):
        compare_snapshot(scope, Snapshot(1.0, (plain("source"),), "file"))


def test_over_time_a_change_of_grouping_is_one() -> None:
    checks = [Parts(checks=(CheckConstraint("c", text),)) for text in ("((a + b) * c) > 1", "(a + (b * c)) > 1")]
    one, other = (side("source", schema("source", "d.t", column("a"), more=parts)) for parts in checks)
    assert one.fingerprint == other.fingerprint
    (found,) = compare_over_time(one, other)
    assert [d.path for d in found.differences] == ["checks.c"]
    assert compare_over_time(one, replace(other, version="9.1")) == []  # another server may print it in another way


# --- the store -----------------------------------------------------------------------------------------------


def keep(store: ResultStore, *sides: SideSchema, snapshot: bool = True) -> str:
    run_id = begin(store, "migverify schema", ["schema"], {"endpoints": {s.endpoint: {} for s in sides}})
    if snapshot:
        run_id = store.start_run("migverify guard schema --snapshot", "", {"guards": ["schema"], "snapshot": True},
                                 {"endpoints": {s.endpoint: {} for s in sides}}, kind=StoredKind.GUARDS)  # fmt: skip
    for one in sides:
        keep_side(store, run_id, one)
    return run_id


def test_snapshots_come_back_as_they_were(store: ResultStore) -> None:
    kept = keep(store, plain("source"), plain("target"))
    keep(store, plain("source", column("x")), snapshot=False)
    assert load_snapshot(store, kept).sides == (plain("source"), plain("target"))
    newest = newest_snapshot(store, {})
    assert newest is not None
    assert newest.label == kept  # what a guard saw is no baseline
    with pytest.raises(UsageError, match="keeps no definitions"):
        load_snapshot(store, store.start_run("other", "", {}, {}, kind=StoredKind.TABLES))


def test_a_file_comes_back_and_another_form_is_refused() -> None:
    import json

    body = to_json(both())
    assert from_json(json.dumps(body), "f").sides == both().sides
    for wrong in ("", "[]", "{}", json.dumps({**body, "form": 99}), json.dumps({**body, "sides": [{}]})):
        with pytest.raises(UsageError, match="no schema snapshot"):
            from_json(wrong, "f")


def test_runs_become_stale_by_what_they_recorded_or_by_the_snapshot_before(store: ResultStore) -> None:
    before, after = plain("source").tables[0].layout, plain("source", column("x")).tables[0].layout
    plan: dict[str, Any] = {"pairs": [{"id": "d.t", "layouts": {"source/d.t": before}}]}
    old = store.start_run("migverify tables verify", "", plan, {}, kind=StoredKind.TABLES)
    plan = {"pairs": [{"id": "d.t", "layouts": {"source/d.t": after}}]}
    store.start_run("migverify tables verify", "", plan, {}, kind=StoredKind.TABLES)
    keep(store, side("source", *plain("source").tables, at=1.0))
    replay = store.start_run("migverify workload replay", "", {}, {}, kind=StoredKind.REPLAY)
    earlier = EarlierRuns(store)
    assert {one.run_id for one in earlier.stale("source", "d.t", after)} == {old, replay}
    assert {one.run_id: one.recorded for one in earlier.stale("source", "d.t", after)} == {old: True, replay: False}
    assert old in {one.run_id for one in earlier.stale("source", "d.t", None)}  # the table is gone
    assert earlier.stale("source", "d.unknown", after) == []


def test_two_snapshots_of_one_choice(scope: Scope) -> None:
    first, second = Snapshot(1.0, (plain("source"),)), Snapshot(2.0, (plain("source", column("x")),))
    assert [c.table for c in compare_named(scope, first, second)] == ["d.t"]
    (found,) = compare_named(scope, second, Snapshot(1.0, (plain("target"),)))
    assert [d.path for d in found.differences] == ["columns.x"]
    with pytest.raises(UsageError, match="no endpoint in common"):
        compare_named(scope, first, Snapshot(1.0, (plain("other"),)))
    with pytest.raises(UsageError, match="holds no tables"):
        compare_named(scope, first, Snapshot(1.0, (side("source"),)))
    (same,) = compare_named(scope, first, Snapshot(3.0, (plain("source"),)))
    assert same.equal


# --- who -----------------------------------------------------------------------------------------------------


class Server:
    """Knows sessions."""

    flavor = Flavor.MARIADB

    def __init__(self, sessions: dict[int, str]) -> None:
        self.sessions = sessions

    def query(self, sql: str) -> list[tuple[str | None, ...]]:
        number = int(sql.rpartition(" ")[2])
        return [(self.sessions[number], "h:1")] if number in self.sessions else []


def test_who_it_was() -> None:
    server: Any = Server({7: "eve"})
    assert [account_of(server, thread) for thread in (7, 8, 0)] == ["eve@h", "", ""]


def test_which_tables_a_statement_concerns() -> None:
    assert Ddl("s", 1.0, ("d.t",), "").concerns("d.T")
    assert Ddl("s", 1.0, ("d.*",), "").concerns("d.x")
    assert not Ddl("s", 1.0, ("d.t",), "").concerns("d.u")
    assert Ddl("s", 1.0, (), "").concerns("d.u")

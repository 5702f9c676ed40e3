"""A store of the first release, kept as a file: a command that reads or resumes it gets what that release got."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from migverify.codec import encode
from migverify.errors import CONTRACT_VERSION, StoreError, UsageError
from migverify.guards.capacity_speed import last_replay
from migverify.guards.keep import answers, body, earlier
from migverify.guards.schema_keep import EarlierRuns, newest_snapshot
from migverify.model import DiffKind, KeyRange, LiveState, RunInfo, StoredKind, Verdict
from migverify.recon.listing import rows
from migverify.report.model import ReportOptions
from migverify.report.read import read_report
from migverify.report.render import Format, render
from migverify.runbook.record.run_store import RunStore, open_run_store
from migverify.store.database import Database
from migverify.store.open import open_store, prepare
from migverify.store.results import ResultStore, named_run
from migverify.tables.recheck import carry_over, pairs_to_recheck
from migverify.workload.probe_store import last_probe, probe_states
from migverify.workload.replay.nightly import nights
from tests.report_runs import chunk, result, row_diff

DATA = Path(__file__).parents[1].parent / "data"
DUMP = DATA / "store_of_first_release.sql"
EXPECTED = DATA / "store_of_first_release.json"
SCOPES = ("accounts", "audit_log", "customers", "payments", "pay", "guard/check", "guard/ids", "source", "target",
          "workload replay", "probe:window-frame", "t")  # fmt: skip
BLOBS = ("plan", "stamps", "ledger", "schema")
LATER = frozenset({StoredKind.PLANS, StoredKind.ANOMALIES, StoredKind.CONFLICTS, StoredKind.QUICK})
"""Kinds of runs that the first release did not have."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return restored(tmp_path)


def restored(folder: Path) -> Path:
    path = folder / "store.db"
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript(DUMP.read_text("utf-8"))
    return path


def info(one: RunInfo) -> dict[str, Any]:
    """What a run holds; that the store says its kind, and whether it was resumed, is new."""
    found: dict[str, Any] = encode(one)
    found.pop("kind", None)
    assert isinstance(found.pop("is_resumed"), bool)
    return found


def contents(store: ResultStore) -> dict[str, Any]:
    """Everything that can be read of each run, and what each command makes of it."""
    found: dict[str, Any] = {"runs": [info(one) for one in store.runs()]}
    for brief in reversed(store.runs()):
        run = brief.run_id
        found[run] = {
            "run": info(store.load_run(run)),
            "results": [encode(one) for one in store.table_results(run)],
            "scopes": {scope: held for scope in SCOPES if any((held := of_scope(store, run, scope)).values())},
            "report": document(store, run),
            "findings as CSV": [list(row) for row in rows(store, run)],
            "again": sorted(pairs_to_recheck(store, run)),
        }
    return found


def document(store: ResultStore, run: str) -> dict[str, Any]:
    """The report of a run as JSON; new are version and next commands, and of a replay's digests their quantiles."""
    found = json.loads(render(read_report(store, run, ReportOptions(values=True, whole=True)), Format.JSON))
    assert found.pop("schema_version") == CONTRACT_VERSION
    assert isinstance(found.pop("next_steps"), list)
    for digest in found.get("digests", ()) if found.get("kind") == "replay" else ():
        assert digest.pop("latency_quantiles")
        assert digest.pop("service_quantiles")
    found.pop("service_time", None)
    return dict(found)


def of_scope(store: ResultStore, run: str, scope: str) -> dict[str, Any]:
    """What a run holds under one name."""
    blobs = {name: [hashed(content) for content in store.blobs(run, scope, name)] for name in BLOBS}
    totals = store.chunk_totals(run, scope)
    by_window = sorted({str(one["window"]) for one in store.windows(run, scope)})
    return {
        "spans": [[number, encode(key_range)] for number, key_range in store.spans(run, scope)],
        "chunks": [encode(one) for one in store.chunks(run, scope)],
        "totals": totals if totals["chunks"] else {},
        "diffs": [[number, encode(one)] for number, one in store.row_diffs(run, scope)],
        "diverged": [number for number, _ in store.row_diffs(run, scope, states=[LiveState.DIVERGED.value])],
        "counts": sorted([*key, n] for key, n in store.count_row_diffs(run, scope).items()),
        "distinct": sorted([*key, n] for key, n in store.count_row_diffs(run, scope, distinct=True).items()),
        "sql": [list(one) for one in store.sql(run, scope)],
        "blobs": {name: some for name, some in blobs.items() if some},
        "windows": list(store.windows(run, scope)),
        "findings": store.findings(run, scope),
        "withdrawn": store.findings(run, scope, kinds=[""]),
        "of windows": {one: store.findings(run, scope, window=one) for one in by_window},
        "finding counts": store.count_findings(run, scope),
    }


def hashed(content: bytes) -> str:
    return f"{len(content)} {hashlib.sha256(content).hexdigest()}"


def histories(store: ResultStore) -> dict[str, Any]:
    """What commands find by looking through the runs."""
    snapshot, probe = newest_snapshot(store, {}), last_probe(store)
    assert snapshot is not None
    assert probe is not None
    stale = EarlierRuns(store)
    return {
        "last": {kind.words: _last(store, kind) for kind in StoredKind if kind not in LATER},
        "guards": {name: [one.run_id for one in earlier(store, name, {})] for name in ("check", "ids", "schema")},
        "answers": {one.run_id: [encode(one) for one in answers(store, one.run_id, "check")]
                    for one in earlier(store, "check", {})},
        "bodies": {one.run_id: body(store, one.run_id, "check") for one in earlier(store, "check", {})},
        "snapshot": [snapshot.label, encode(snapshot.sides)],
        "stale": {name: [encode(one) for one in stale.stale("source", name, "new")]
                  for name in ("d.t", "shop.accounts", "shop.payments")},
        "nights": [encode(one) for one in nights(store, Path("/captures"))],
        "probe": [probe.run_id, {name: state.value for name, state in probe_states(store, probe.run_id).items()}],
        "replay": last_replay(store),
    }  # fmt: skip


def _last(store: ResultStore, kind: StoredKind) -> str | None:
    try:
        return named_run(store, "last", kind).run_id
    except UsageError:
        return None


def resumed(store: ResultStore) -> dict[str, Any]:
    """What is there after each run was taken up, went on and ended."""
    found: dict[str, Any] = {}
    for brief in reversed(store.runs()):
        run = brief.run_id
        taken = info(store.resume_run(run))
        store.add_span(run, "accounts", 9, KeyRange(("1",), ("2",)))
        store.add_chunks(run, [chunk("accounts", 0, span=9), chunk("accounts", 0)], [])
        store.add_row_diffs(run, [row_diff("accounts", 8, DiffKind.VALUE_DIFFERS, state=LiveState.CONVERGED)])
        store.add_window(run, "pay", {"window": "", "state": "done"}, [{"key": ["1"], "window": "", "kind": "pending"}])
        store.add_blob(run, "accounts", "plan", b"third")
        store.add_table_result(run, result("accounts"))
        ended = store.load_run(run)
        store.finish_run(run, Verdict.INCONCLUSIVE, {"reasons": ["gone on with"]})
        held = store.load_run(run)
        found[run] = {
            "resumed": taken, "before the end": info(ended), "finished": held.finished is not None,
            "facts": held.facts, "results": [encode(one) for one in store.table_results(run)],
            "accounts": summary(of_scope(store, run, "accounts")), "pay": summary(of_scope(store, run, "pay")),
        }  # fmt: skip
    first = store.runs()[-1].run_id
    new = store.start_run("migverify tables verify --recheck", "digest-1", {"pairs": []}, {}, kind=StoredKind.TABLES)
    found["carried"] = {pair: carry_over(store, first, new, pair) for pair in ("accounts", "payments")}
    found["carried to"] = of_scope(store, new, "accounts")
    return found


def summary(scope: dict[str, Any]) -> dict[str, Any]:
    """The counts of a scope, and a hash of all that it holds."""
    whole = json.dumps(scope, sort_keys=True).encode()
    return {"all": hashed(whole), **{name: scope[name] for name in ("totals", "counts", "finding counts")}}


def journals(path: Path, folder: Path) -> dict[str, Any]:
    """The journals of runbooks: their lines to the byte, and what is wrong with their chains."""
    room = RunStore(folder / "here", open_run_store(f"sqlite:///{path}").database)
    found: dict[str, Any] = {"ids": room.ids()}
    for run in room.ids():
        room.export(run, folder / "journal.jsonl")
        found[run] = {
            "lines": [line.decode() for line in (folder / "journal.jsonl").read_bytes().splitlines()],
            "problems": [str(problem) for problem in room.verify(run)],
            "folded": [one.kind.value for one in room.events(run)],
            "states": {name: one.state.value for name, one in room.open(run).status.steps.items()},
        }
    return found


def everything(path: Path, folder: Path) -> dict[str, Any]:
    untouched = folder / "untouched.db"
    shutil.copy(path, untouched)
    with closing(open_store(f"sqlite:///{path}")) as store:
        found = {"contents": contents(store), "histories": histories(store), "resumed": resumed(store)}
    found["journals"] = journals(untouched, folder)
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


@pytest.fixture
def expected() -> dict[str, Any]:
    whole: dict[str, Any] = json.loads(EXPECTED.read_text("utf-8"))
    return whole


def test_a_store_of_the_first_release_reads_and_resumes_as_it_did(
    path: Path, tmp_path: Path, expected: dict[str, Any]
) -> None:
    found = everything(path, tmp_path)
    for part, value in expected.items():
        assert found[part] == value, part


KINDS = ["tables", "rules", "rules", "tables", "rules", "guards", "guards", "guards", "replay", "replay", "clients",
         "probe", "unknown", "unknown"]  # fmt: skip


def test_opening_it_records_the_kind_of_each_run(path: Path) -> None:
    with closing(open_store(f"sqlite:///{path}")) as store:
        assert [one.kind.value for one in reversed(store.runs())] == KINDS
        assert all(store.load_run(one.run_id).kind is one.kind for one in store.runs())
    with closing(sqlite3.connect(path)) as raw:
        rows = raw.execute("SELECT kind FROM migverify_run_kinds ORDER BY run_id").fetchall()
        assert [kind for (kind,) in rows] == KINDS
        assert raw.execute("SELECT value FROM migverify_store").fetchall() == [("2",)]


def test_a_store_that_cannot_be_written_is_one_clear_error(path: Path) -> None:
    engine = create_engine(
        "sqlite://", creator=lambda: sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False)
    )
    with pytest.raises(StoreError, match="schema version 1 and cannot be written") as caught:
        prepare(engine, "old")
    assert "a user who may write" in caught.value.hint


class PowerCutError(BaseException):
    """The process is gone: nothing catches this, as nothing catches kill -9."""


@pytest.mark.parametrize("dies_at", [1, 9, 21, 33])
def test_a_migration_that_is_killed_goes_on(
    path: Path, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch, dies_at: int
) -> None:
    monkeypatch.setattr("migverify.store.open._MIGRATED_AT_ONCE", 3)
    left, run = [dies_at], Database._run

    def dying(database: Database, work: Any, *, write: bool) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise PowerCutError
        return run(database, work, write=write)

    monkeypatch.setattr(Database, "_run", dying)
    migrations = 0
    while True:
        migrations += 1
        try:
            open_store(f"sqlite:///{path}").close()
        except PowerCutError:
            continue
        break
    assert migrations == 1 + (left[0] <= 0)
    monkeypatch.undo()
    with closing(open_store(f"sqlite:///{path}")) as store:
        assert [one.kind.value for one in reversed(store.runs())] == KINDS
        assert json.loads(json.dumps(contents(store))) == expected["contents"]


def test_a_store_of_version_1_with_all_tables_is_read_and_written(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript((DATA / "store_of_version_1.sql").read_text("utf-8"))
    with closing(open_store(f"sqlite:///{path}", create=False)) as store:
        assert [one.kind.value for one in store.runs()] == ["guards", "rules", "tables"]
        rules, tables = store.runs()[1].run_id, store.runs()[2]
        assert tables.verdict is Verdict.MISMATCH
        assert [(one.number, one.reason) for one in store.chunks(tables.run_id, "d.t")] == [(0, ""), (1, "é😀")]
        assert [one.state for _, one in store.row_diffs(tables.run_id, "d.t")] == [LiveState.DIVERGED]
        assert list(store.blobs(tables.run_id, "d.t", "plan")) == [b"\x00\xff"]
        store.resume_run(rules)
        store.add_window(rules, "pay", {"window": "b", "state": "done"}, [{"key": ["9"], "window": "b", "kind": "x"}])
        keys = [one["key"][0] for _, one in store.findings(rules, "pay", window="b")]
        assert keys == ["0", "2", "9"]


@pytest.mark.parametrize("kind", list(StoredKind))
def test_a_kind_that_was_never_run_is_one_clear_error(tmp_path: Path, kind: StoredKind) -> None:
    with (
        closing(open_store(str(tmp_path / "new.db"))) as store,
        pytest.raises(UsageError, match="holds no such run") as caught,
    ):
        named_run(store, "last", kind)
    assert "a run by its id" in caught.value.hint


def test_a_kind_of_a_later_release_is_listed_and_belongs_to_no_command(path: Path) -> None:
    open_store(f"sqlite:///{path}").close()
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("UPDATE migverify_run_kinds SET kind = 'streams' WHERE kind = 'replay'")
        raw.commit()
    with closing(open_store(f"sqlite:///{path}")) as store:
        assert "unknown" in {one.kind.value for one in store.runs()}
        with pytest.raises(UsageError, match="no such run of a replay"):
            named_run(store, "last", StoredKind.REPLAY)

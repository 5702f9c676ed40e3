"""``last`` of a command: the newest run of its kind, though watches, guards and rules keep runs in the same store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from migverify.cli.diff_view import list_row_diffs, run_status
from migverify.errors import UsageError
from migverify.model import DiffKind, LiveState, RowDiff, StoredKind
from migverify.store.open import open_store
from migverify.store.results import ResultStore, named_run
from migverify.tables.recheck import tables_run

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

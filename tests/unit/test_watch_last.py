"""``last`` of a command: the newest run of its kind, though watches, guards and rules keep runs in the same store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from migverify.cli.diff_view import list_row_diffs, run_status
from migverify.errors import UsageError
from migverify.model import DiffKind, LiveState, RowDiff
from migverify.store.base import ResultStore
from migverify.store.named import StoredKind, named_run
from migverify.store.open import open_store
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
    verified = store.start_run("migverify tables verify", "digest", TABLES, {})
    other = store.start_run("migverify tables verify", "another digest", TABLES, {})
    watched = store.start_run("migverify tables watch", "digest", TABLES, {"watch": True})
    rules: dict[str, object] = {"rules": ["paid"], **TABLES}
    others: list[dict[str, object]] = [{"guards": ["check"]}, rules, {"kind": "replay"}, {"kind": "clients"}, {}]
    for plan in others:
        store.start_run("migverify another", "", plan, {})
    assert tables_run(store, "last", "digest", watch=False).run_id == verified
    assert tables_run(store, "last", "digest", watch=True).run_id == watched
    assert tables_run(store, "last", "digest").run_id == watched
    assert tables_run(store, "last").run_id == watched
    assert tables_run(store, "last", watch=False).run_id == other


def test_last_of_another_configuration_is_the_newest_run_and_is_refused_later(store: ResultStore) -> None:
    verified = store.start_run("migverify tables verify", "digest", TABLES, {})
    store.start_run("migverify check", "", {"guards": ["check"]}, {})
    assert tables_run(store, "last", "another", watch=False).run_id == verified


@pytest.mark.parametrize(("plan", "words"), [
    ({"guards": ["check"]}, r"of guards \(check\)"), ({"rules": ["paid"], "pairs": []}, "of rules"),
    ({"kind": "replay"}, "of a replay"), ({"kind": "clients"}, "of clients"), ({"probe": []}, "of a probe"),
    ({}, "of an unknown kind"),
])  # fmt: skip
def test_a_run_of_another_kind_is_refused_by_name(store: ResultStore, plan: dict[str, object], words: str) -> None:
    name = store.start_run("migverify another --store mysql://a:b0b@h/x", "digest", plan, {})
    for look in (lambda: tables_run(store, name, "digest"), lambda: run_status(store, name),
                 lambda: list(list_row_diffs(store, name, None, 10, as_json=False))):  # fmt: skip
        with pytest.raises(UsageError, match=f"run {name} is one {words}; a run of tables is needed") as caught:
            look()
        assert "b0b" not in caught.value.line


def test_diff_and_status_of_last_show_the_run_of_the_tables(store: ResultStore) -> None:
    run = store.start_run("migverify tables verify", "digest", {"pairs": [PAIR]}, {})
    store.add_row_diffs(run, [RowDiff("app.t", ("7",), DiffKind.MISSING_ON_TARGET, LiveState.DIVERGED)])
    rule = store.start_run("migverify recon run", "rules", {"rules": ["paid"], "pairs": []}, {})
    store.start_run("migverify check", "", {"guards": ["check"]}, {})
    assert run_status(store, "last")["run_id"] == run
    assert [line.split()[0] for line in list_row_diffs(store, "last", None, 10, as_json=False)] == ["app.t"]
    assert named_run(store, "last", StoredKind.RULES).run_id == rule

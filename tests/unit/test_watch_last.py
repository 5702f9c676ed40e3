"""``tables watch --since last``: the newest verification, though guards and rules keep runs in the same store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from migverify.errors import UsageError
from migverify.store.base import ResultStore
from migverify.store.open import open_store
from migverify.tables.watch_run import _named


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    with closing(open_store(f"sqlite:///{tmp_path}/store.db")) as one:
        yield one


def test_last_passes_over_runs_of_other_kinds(store: ResultStore) -> None:
    with pytest.raises(UsageError):
        _named(store, "last", "digest", watch=False)
    verified = store.start_run("migverify tables verify", "digest", {}, {})
    store.start_run("migverify tables verify", "another digest", {}, {})
    watched = store.start_run("migverify tables watch", "digest", {}, {"watch": True})
    guard = store.start_run("migverify schema guard", "", {"guards": ["schema"]}, {})
    assert _named(store, "last", "digest", watch=False).run_id == verified
    assert _named(store, "last", "digest", watch=True).run_id == watched
    assert _named(store, guard, "digest", watch=False).run_id == guard, "a name is taken at its word"


def test_last_of_another_configuration_is_the_newest_run_and_is_refused_later(store: ResultStore) -> None:
    verified = store.start_run("migverify tables verify", "digest", {}, {})
    assert _named(store, "last", "another", watch=False).run_id == verified

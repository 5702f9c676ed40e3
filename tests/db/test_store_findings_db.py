"""Windows and findings in a store on MySQL and on TiDB: what SQLite promises holds there too."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import text

from migverify.model import StoredKind
from migverify.store.open import open_store
from migverify.store.results import ResultStore

pytestmark = pytest.mark.db

RULE = "orders and payments 😀"


@pytest.fixture(params=["source", "target"])
def url(request: pytest.FixtureRequest, databases: Any) -> str:
    server = getattr(databases.pair, request.param)
    return f"mysql+pymysql://{server.user}@{server.host}:{server.port}/{databases.name}"


@pytest.fixture
def store(url: str) -> Iterator[ResultStore]:
    opened = open_store(url)
    yield opened
    opened.close()


def finding(key: str | None, kind: str, window: str = "w") -> dict[str, Any]:
    return {"key": [key, "é😀\0"], "window": window, "kind": kind, "money": "9007199254740993.0001"}


def test_later_ones_count_and_withdrawn_ones_are_gone(store: ResultStore) -> None:
    run = store.start_run("recon run", "hash", {}, {}, kind=StoredKind.RULES)
    store.add_window(run, RULE, {"window": "w", "state": "open"}, [finding("1", "a"), finding(None, "a")])
    store.add_window(run, RULE, {"window": "v", "state": "done"}, [finding("1", "b", "v")])
    store.add_window(run, RULE, {"window": "w", "state": "done", "n": 2**80}, [finding("1", ""), finding("2", "c")])
    assert [body["window"] for body in store.windows(run, RULE)] == ["v", "w"]
    assert [body["state"] for body in store.windows(run, RULE)] == ["done", "done"]
    found = [body for _, body in store.findings(run, RULE)]
    assert found == [finding(None, "a"), finding("1", "b", "v"), finding("2", "c")]
    assert store.count_findings(run, RULE) == {"a": 1, "b": 1, "c": 1}
    assert [body["kind"] for _, body in store.findings(run, RULE, kinds=["c", "a"], limit=1)] == ["a"]


def test_many_findings_are_paged_in_order(store: ResultStore) -> None:
    run = store.start_run("recon run", "hash", {}, {}, kind=StoredKind.RULES)
    store.add_window(run, RULE, {"window": "w", "state": "done"}, [finding(str(n), "a") for n in range(1200)])
    seen, after = 0, 0
    while page := store.findings(run, RULE, after=after, limit=500):
        assert [body["key"][0] for _, body in page] == [str(n) for n in range(seen, seen + len(page))]
        seen, after = seen + len(page), page[-1][0]
    assert seen == 1200


def test_a_store_of_version_1_is_migrated_once_by_several_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migverify.store.open._MIGRATED_AT_ONCE", 7)
    first = open_store(url)
    runs = [first.start_run("recon run", "h", {"rules": []}, {}, kind=StoredKind.RULES) for _ in range(10)]
    for window in ("v", "w"):
        rows = [finding(str(n), "a", window) for n in range(20)]
        first.add_window(runs[0], RULE, {"window": window, "state": "done"}, rows)
    with first.engine.connect() as connection:
        for statement in ("DROP TABLE migverify_finding_windows", "DROP TABLE migverify_run_kinds",
                          "DROP TABLE migverify_runbook_events", "UPDATE migverify_store SET value = '1'"):  # fmt: skip
            connection.execute(text(statement))
        connection.commit()
    first.close()
    with ThreadPoolExecutor(3) as pool:
        opened = list(pool.map(open_store, [url] * 3))
    again = opened[0]
    assert {one.kind for one in again.runs()} == {StoredKind.RULES}
    again.resume_run(runs[0])
    again.add_window(runs[0], RULE, {"window": "w", "state": "done"}, [finding("1", "")])
    assert [len(again.findings(runs[0], RULE, window=window)) for window in ("v", "w")] == [20, 19]
    for store in opened:
        store.close()

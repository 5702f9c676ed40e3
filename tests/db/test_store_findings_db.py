"""Windows and findings in a store on MySQL and on TiDB: what SQLite promises holds there too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text

from migverify.model import StoredKind
from migverify.store.open import open_store
from migverify.store.sql import SqlStore

pytestmark = pytest.mark.db

RULE = "orders and payments 😀"


@pytest.fixture(params=["source", "target"])
def url(request: pytest.FixtureRequest, databases: Any) -> str:
    server = getattr(databases.pair, request.param)
    return f"mysql+pymysql://{server.user}@{server.host}:{server.port}/{databases.name}"


@pytest.fixture
def store(url: str) -> Iterator[SqlStore]:
    opened = open_store(url)
    assert isinstance(opened, SqlStore)
    yield opened
    opened.close()


def finding(key: str | None, kind: str, window: str = "w") -> dict[str, Any]:
    return {"key": [key, "é😀\0"], "window": window, "kind": kind, "money": "9007199254740993.0001"}


def test_later_ones_count_and_withdrawn_ones_are_gone(store: SqlStore) -> None:
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


def test_many_findings_are_paged_in_order(store: SqlStore) -> None:
    run = store.start_run("recon run", "hash", {}, {}, kind=StoredKind.RULES)
    store.add_window(run, RULE, {"window": "w", "state": "done"}, [finding(str(n), "a") for n in range(1200)])
    seen, after = 0, 0
    while page := store.findings(run, RULE, after=after, limit=500):
        assert [body["key"][0] for _, body in page] == [str(n) for n in range(seen, seen + len(page))]
        seen, after = seen + len(page), page[-1][0]
    assert seen == 1200


def test_a_store_from_before_there_were_rules_is_completed(url: str) -> None:
    first = open_store(url)
    assert isinstance(first, SqlStore)
    run = first.start_run("tables verify", "hash", {}, {}, kind=StoredKind.RULES)
    with first.engine.connect() as connection:
        for table in ("rule_windows", "findings", "finding_heads"):
            connection.execute(text(f"DROP TABLE migverify_{table}"))
        connection.commit()
    first.close()
    again = open_store(url)
    again.resume_run(run)
    again.add_window(run, RULE, {"window": "", "state": "done"}, [finding("1", "a")])
    assert len(again.findings(run, RULE)) == 1
    again.close()

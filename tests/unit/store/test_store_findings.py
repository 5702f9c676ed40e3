"""Windows and findings of rules in the SQLite store: what supersedes what, and what a window costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.errors import StoreError
from migverify.model import StoredKind, Verdict
from migverify.store import codec
from migverify.store.open import open_store
from migverify.store.results import ResultStore
from migverify_lab.fleet import result
from tests.fakes import FakeStore

RULE = "orders and payments 😀"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    opened = open_sqlite(tmp_path / "s.db")
    yield opened
    opened.close()


def open_sqlite(path: Path) -> ResultStore:
    return open_store(f"sqlite:///{path}")


def new_run(store: ResultStore) -> str:
    return store.start_run("recon run", "hash", {}, {}, kind=StoredKind.RULES)


def window(name: str = "", state: str = "done", **more: Any) -> dict[str, Any]:
    return {"window": name, "state": state, **more}


def finding(key: str | None, kind: str = "value mismatch", name: str = "", **more: Any) -> dict[str, Any]:
    return {"key": [key, "é😀"], "window": name, "kind": kind, **more}


def test_windows_come_in_the_order_of_their_text_and_the_last_body_counts(store: ResultStore) -> None:
    run = new_run(store)
    store.add_window(run, RULE, window("b", "open"), [])
    store.add_window(run, RULE, window("a", money="9007199254740993.0001"), [])
    store.add_window(run, RULE, window("b", "done", n=2**80), [])
    store.add_window(run, "another rule", window("c"), [])
    assert list(store.windows(run, RULE)) == [window("a", money="9007199254740993.0001"), window("b", "done", n=2**80)]
    assert list(store.windows(run, "unknown")) == []


def test_windows_are_paged(store: ResultStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migverify.store.results._PAGE", 3)
    run = new_run(store)
    for number in range(10):
        store.add_window(run, RULE, window(f"{number:02}"), [])
    assert [body["window"] for body in store.windows(run, RULE)] == [f"{n:02}" for n in range(10)]


@pytest.mark.parametrize("windows", [2, 3, 4, 6])
def test_a_full_page_of_windows_is_not_taken_for_the_last_one(
    store: ResultStore, monkeypatch: pytest.MonkeyPatch, windows: int
) -> None:
    monkeypatch.setattr("migverify.store.results._PAGE", 3)
    run = new_run(store)
    for number in range(windows):
        store.add_window(run, RULE, window(f"{number:02}"), [])
    assert len(list(store.windows(run, RULE))) == windows


def test_a_later_finding_of_the_same_key_and_window_counts(store: ResultStore) -> None:
    run = new_run(store)
    store.add_window(run, RULE, window("w1"), [finding("1", name="w1"), finding(None, name="w1")])
    store.add_window(run, RULE, window("w2"), [finding("1", "pending", name="w2")])
    store.add_window(run, RULE, window("w1"), [finding("1", "late then matched", name="w1", money="0.10")])
    found = store.findings(run, RULE)
    assert [(n, f["window"], f["kind"], f["key"][0]) for n, f in found] == [
        (2, "w1", "value mismatch", None), (3, "w2", "pending", "1"), (4, "w1", "late then matched", "1"),
    ]  # fmt: skip
    assert found[-1][1]["money"] == "0.10"
    assert store.count_findings(run, RULE) == {"value mismatch": 1, "pending": 1, "late then matched": 1}


def test_a_finding_without_a_kind_withdraws_the_earlier_one(store: ResultStore) -> None:
    run = new_run(store)
    store.add_window(run, RULE, window(), [finding("1"), finding("2")])
    store.add_window(run, RULE, window(), [finding("1", "")])
    assert [f["key"][0] for _, f in store.findings(run, RULE)] == ["2"]
    assert [f["key"][0] for _, f in store.findings(run, RULE, kinds=[""])] == ["1"]
    assert store.count_findings(run, RULE) == {"value mismatch": 1}
    store.add_window(run, RULE, window(), [finding("1", "pending")])
    assert [f["kind"] for _, f in store.findings(run, RULE)] == ["value mismatch", "pending"]


def test_findings_are_paged_and_chosen_by_kind(store: ResultStore) -> None:
    run = new_run(store)
    kinds = ["a", "b", "c"]
    store.add_window(run, RULE, window(), [finding(str(n), kinds[n % 3]) for n in range(30)])
    seen: list[str] = []
    after = 0
    while page := store.findings(run, RULE, kinds=["a", "c"], after=after, limit=7):
        assert len(page) <= 7
        seen += [f["key"][0] for _, f in page]
        after = page[-1][0]
    assert seen == [str(n) for n in range(30) if n % 3 != 1]
    assert store.findings(run, RULE, kinds=[]) == []
    assert store.findings(run, "unknown") == []


def test_window_and_findings_are_kept_both_or_neither(store: ResultStore) -> None:
    run = new_run(store)
    with pytest.raises(StoreError, match="no `key`, `window` or `kind`"):
        store.add_window(run, RULE, window(), [finding("1"), {"key": ["2"], "window": ""}])
    assert list(store.windows(run, RULE)) == []
    assert store.findings(run, RULE) == []


@pytest.mark.parametrize("body", [{}, {"window": "w"}, {"window": None, "state": "done"}, window("x" * 191)])
def test_a_window_without_a_name_or_a_state_is_refused(store: ResultStore, body: dict[str, Any]) -> None:
    with pytest.raises(StoreError, match="window"):
        store.add_window(new_run(store), RULE, body, [])


def test_a_rule_and_a_table_pair_of_one_name_share_a_run(store: ResultStore) -> None:
    run = new_run(store)
    store.add_sql(run, RULE, "source", "join", "SELECT 1")
    store.add_window(run, RULE, window(), [finding("1")])
    assert store.sql(run, RULE) == [("source", "join", "SELECT 1")]
    assert len(store.findings(run, RULE)) == 1


def test_the_findings_of_a_window_are_found_without_reading_those_of_others(
    store: ResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(store)
    for name in ("a", "b", "c"):
        store.add_window(run, RULE, window(name), [finding(str(n), name=name) for n in range(20)])
    store.add_window(run, RULE, window("b"), [finding("7", "", "b")])
    read: list[int] = []
    decode = codec.decode_object
    monkeypatch.setattr(codec, "decode_object", lambda body, what: (read.append(1), decode(body, what))[1])
    found = store.findings(run, RULE, window="b", limit=100)
    assert {(body["window"], body["key"][0]) for _, body in found} == {("b", str(n)) for n in range(20) if n != 7}
    assert len(read) == 19


KEYS = st.tuples(st.none() | st.text(max_size=3), st.none() | st.sampled_from(["N", "null", ""]))
WRITES = st.lists(
    st.tuples(st.sampled_from(["", "w"]), st.lists(st.tuples(KEYS, st.sampled_from(["", "a", "b"])), max_size=4)),
    max_size=6,
)


@settings(max_examples=12, deadline=None)
@given(writes=WRITES)
def test_the_store_and_the_fake_agree(tmp_path_factory: pytest.TempPathFactory, writes: Any) -> None:
    real, fake = open_sqlite(tmp_path_factory.mktemp("s") / "s.db"), FakeStore()
    runs = new_run(real), new_run(fake)
    for name, findings in writes:
        rows = [{"key": list(key), "window": name, "kind": kind} for key, kind in findings]
        for opened, run in zip((real, fake), runs, strict=True):
            opened.add_window(run, RULE, window(name), rows)
    for kinds in (None, ["a"], ["", "b"]):
        one = [f for _, f in real.findings(runs[0], RULE, kinds=kinds)]
        assert one == [f for _, f in fake.findings(runs[1], RULE, kinds=kinds)]
        for name in ("", "w", "none"):
            for after, limit in ((0, 1000), (2, 3)):
                more = {"kinds": kinds, "window": name, "after": after, "limit": limit}
                assert real.findings(runs[0], RULE, **more) == fake.findings(runs[1], RULE, **more)
    assert list(real.windows(runs[0], RULE)) == list(fake.windows(runs[1], RULE))
    assert real.count_findings(runs[0], RULE) == fake.count_findings(runs[1], RULE)
    real.close()


def test_verdicts_of_the_last_results_are_counted_by_the_database(store: ResultStore) -> None:
    run = new_run(store)
    assert store.verdict_counts(run) == {}
    for pair, verdict in (("a", Verdict.MATCH), ("b", Verdict.MATCH), ("a", Verdict.MISMATCH), ("c", Verdict.MATCH)):
        store.add_table_result(run, result(pair, verdict))
    store.add_table_result(new_run(store), result("d", Verdict.INCONCLUSIVE))
    assert store.verdict_counts(run) == {Verdict.MATCH: 2, Verdict.MISMATCH: 1}


def test_one_reading_is_of_one_moment_and_the_store_goes_on_after_it(store: ResultStore) -> None:
    run = new_run(store)
    with store.one_reading():
        before = [one.run_id for one in store.runs()]
        other = open_store(f"sqlite:///{store.database.label}")
        later = new_run(other)
        other.close()
        assert [one.run_id for one in store.runs()] == before == [run]
    assert [one.run_id for one in store.runs()] == [later, run]
    store.finish_run(run, Verdict.MATCH, {})
    assert store.load_run(run).verdict is Verdict.MATCH

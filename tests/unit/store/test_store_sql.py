"""The SQLite store: what is recorded, what counts, what survives, and who may write."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from migverify.errors import StoreError, UsageError
from migverify.model import (
    ChunkChecksum,
    ChunkResult,
    ChunkState,
    ColumnDiff,
    DiffKind,
    KeyRange,
    LiveState,
    NotCovered,
    RowDiff,
    StoredKind,
    TableResult,
    Verdict,
)
from migverify.store import results as store_sql
from migverify.store import runs
from migverify.store.open import open_store
from migverify.store.results import ResultStore

PAIR = "shop.orders 😀"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    opened = open_sqlite(tmp_path / "folder" / "store.db")
    yield opened
    opened.close()


def open_sqlite(path: Path) -> ResultStore:
    return open_store(f"sqlite:///{path}?timeout=5")


def new_run(store: ResultStore) -> str:
    return store.start_run("tables verify", "hash", {"tables": [PAIR]}, {"source": "8.0"}, kind=StoredKind.TABLES)


def diff(
    key: str | None,
    state: LiveState = LiveState.UNCONFIRMED,
    kind: DiffKind = DiffKind.VALUE_DIFFERS,
    pair: str = PAIR,
) -> RowDiff:
    return RowDiff(pair, (key, "é😀"), kind, state, (ColumnDiff("c", "1", None, "null"),), "aa", "bb", shard="s1")


def chunk(number: int, *, span: int = 0, state: ChunkState = ChunkState.EQUAL, rows: int = 10) -> ChunkResult:
    checksum = None if state is ChunkState.FAILED else ChunkChecksum(rows, rows, 2**64 + number, 2**70)
    key_range = KeyRange((str(number),), (str(number + 1),))
    return ChunkResult(PAIR, span, number, key_range, state, checksum, checksum, 1.5, 0.25, reason="")


def table_result(name: str, verdict: Verdict) -> TableResult:
    gaps = (NotCovered("rows", "timed out"),)
    return TableResult(
        name, name, name, verdict, ("why",), 1, None, 1, ("exact",), 0, 0, 0, gaps, (), 0.5, details={"n": 2**80}
    )


class TestRuns:
    def test_a_run_without_a_finish_is_inconclusive(self, store: ResultStore) -> None:
        run = store.load_run(new_run(store))
        assert (run.finished, run.verdict) == (None, Verdict.INCONCLUSIVE)
        assert run.plan == {"tables": [PAIR]}
        assert run.facts == {"source": "8.0"}

    def test_a_finish_gives_the_verdict_and_merges_facts(self, store: ResultStore) -> None:
        run_id = new_run(store)
        store.finish_run(run_id, Verdict.MATCH, {"seconds": 2, "source": "8.4"})
        run = store.load_run(run_id)
        assert run.verdict is Verdict.MATCH
        assert run.finished is not None
        assert run.finished >= run.started
        assert run.facts == {"source": "8.4", "seconds": 2}

    def test_a_resume_takes_the_verdict_back_until_the_next_finish(self, store: ResultStore) -> None:
        run_id = new_run(store)
        store.finish_run(run_id, Verdict.MATCH, {"seconds": 2})
        assert store.resume_run("last").run_id == run_id
        run = store.load_run(run_id)
        assert (run.finished, run.verdict, run.facts) == (None, Verdict.INCONCLUSIVE, {"source": "8.0"})
        store.finish_run(run_id, Verdict.MISMATCH, {"position": "p"})
        assert store.load_run(run_id).verdict is Verdict.MISMATCH
        assert store.load_run(run_id).facts == {"source": "8.0", "seconds": 2, "position": "p"}

    def test_runs_are_listed_newest_first_and_last_is_the_newest(self, store: ResultStore) -> None:
        ids = [new_run(store) for _ in range(20)]
        assert len(set(ids)) == 20
        assert [run.run_id for run in store.runs(5)] == ids[:-6:-1]
        assert store.load_run("last").run_id == ids[-1]
        assert store.runs(1)[0].plan == {}

    def test_last_is_the_run_recorded_last_even_when_the_clock_went_back(
        self, store: ResultStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        new_run(store)
        monkeypatch.setattr("migverify.store.runs.time.time", lambda: 1_000_000_000.5)
        run_id = new_run(store)
        assert run_id.startswith("20010909T014640-8")
        assert store.load_run("last").run_id == run_id

    @given(st.lists(st.floats(0, 4e9), min_size=2, max_size=2).map(sorted))
    def test_run_ids_sort_by_time(self, times: list[float]) -> None:
        earlier, later = (runs.new_run_id(now)[:19] for now in times)
        assert earlier <= later

    def test_an_unknown_run_is_a_usage_error(self, store: ResultStore) -> None:
        with pytest.raises(UsageError, match="no run yet"):
            store.load_run("last")
        run_id = new_run(store)
        for write in (
            lambda: store.load_run("20010909T014640-8"),
            lambda: store.resume_run("nope"),
            lambda: store.add_row_diffs("nope", [diff("1")]),
            lambda: store.finish_run("nope", Verdict.MATCH, {}),
        ):
            with pytest.raises(UsageError, match="holds no run"):
                write()
        assert store.load_run(run_id).verdict is Verdict.INCONCLUSIVE

    def test_a_large_plan_is_kept_in_parts(self, store: ResultStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runs, "_PART_BYTES", 100)
        plan = {str(n): str(n**9) for n in range(2000)}
        run_id = store.start_run("x", "h", plan, {}, kind=StoredKind.TABLES)
        assert store.load_run(run_id).plan == plan

    def test_facts_that_json_cannot_hold_start_no_run(self, store: ResultStore) -> None:
        with pytest.raises(StoreError, match="facts of a run"):
            store.start_run("x", "h", {}, {"when": object()}, kind=StoredKind.TABLES)
        assert store.runs() == []

    def test_the_process_that_was_replaced_may_not_write(self, store: ResultStore, tmp_path: Path) -> None:
        run_id = new_run(store)
        successor = open_sqlite(tmp_path / "folder" / "store.db")
        successor.resume_run(run_id)
        with pytest.raises(StoreError, match="resumed by another process"):
            store.add_chunks(run_id, [chunk(0)], [diff("1")])
        with pytest.raises(StoreError, match="resumed by another process"):
            store.finish_run(run_id, Verdict.MATCH, {})
        successor.add_chunks(run_id, [chunk(1)], [])
        assert [found.number for found in store.chunks(run_id, PAIR)] == [1]
        successor.close()


class TestSpansAndChunks:
    def test_spans_come_back_by_number(self, store: ResultStore) -> None:
        run_id = new_run(store)
        ranges = {1: KeyRange(("5",), None), 0: KeyRange(None, ("5",)), 7: KeyRange(nulls=True)}
        for span, key_range in ranges.items():
            store.add_span(run_id, PAIR, span, key_range)
        assert store.spans(run_id, PAIR) == sorted(ranges.items())
        assert store.spans(run_id, "other") == []

    def test_a_span_cannot_change(self, store: ResultStore) -> None:
        run_id = new_run(store)
        store.add_span(run_id, PAIR, 0, KeyRange(None, ("5",)))
        store.add_span(run_id, PAIR, 0, KeyRange(None, ("5",)))
        with pytest.raises(StoreError, match="cannot become"):
            store.add_span(run_id, PAIR, 0, KeyRange(None, ("6",)))
        assert store.spans(run_id, PAIR) == [(0, KeyRange(None, ("5",)))]

    @pytest.mark.parametrize("page", [1, 2, 3, 1000])
    def test_the_last_attempt_of_each_chunk_counts(
        self, store: ResultStore, monkeypatch: pytest.MonkeyPatch, page: int
    ) -> None:
        monkeypatch.setattr(store_sql, "_PAGE", page)
        run_id = new_run(store)
        failed = [chunk(n, span=s, state=ChunkState.FAILED) for s in (2, 0, 1) for n in (1, 0, 2)]
        store.add_chunks(run_id, failed, [])
        store.add_chunks(run_id, [chunk(0, span=1), chunk(2, span=2, state=ChunkState.DIFFERENT)], [])
        expected = {(found.span, found.number): found for found in failed}
        expected[1, 0] = chunk(0, span=1)
        expected[2, 2] = chunk(2, span=2, state=ChunkState.DIFFERENT)
        assert list(store.chunks(run_id, PAIR)) == [expected[key] for key in sorted(expected)]
        assert store.chunk_totals(run_id, PAIR) == {
            "chunks": 9,
            "equal": 1,
            "different": 1,
            "failed": 7,
            "rows_source": 20,
            "rows_target": 20,
            "unread_source": 7,
            "unread_target": 7,
        }

    def test_a_pair_without_chunks_has_none(self, store: ResultStore) -> None:
        run_id = new_run(store)
        assert list(store.chunks(run_id, PAIR)) == []
        assert set(store.chunk_totals(run_id, PAIR).values()) == {0}

    def test_runs_and_pairs_do_not_mix(self, store: ResultStore) -> None:
        first, second = new_run(store), new_run(store)
        store.add_chunks(first, [chunk(0)], [diff("1"), diff("1", pair="other")])
        store.add_chunks(second, [chunk(1)], [])
        assert [found.number for found in store.chunks(second, PAIR)] == [1]
        assert store.row_diffs(second, PAIR) == []
        assert [found.pair for _, found in store.row_diffs(first, "other")] == ["other"]

    def test_chunks_and_their_diffs_are_both_there_or_neither(self, store: ResultStore) -> None:
        run_id = new_run(store)
        with store.engine.begin() as connection:
            connection.execute(
                text("CREATE TRIGGER t BEFORE INSERT ON migverify_row_diff_heads BEGIN SELECT RAISE(ABORT, 'no'); END")
            )
        with pytest.raises(StoreError):
            store.add_chunks(run_id, [chunk(0)], [diff("1")])
        assert list(store.chunks(run_id, PAIR)) == []
        assert store.row_diffs(run_id, PAIR) == []
        with store.engine.begin() as connection:
            connection.execute(text("DROP TRIGGER t"))
        # The pair's number given in the failed transaction is gone with it: it must not be used again.
        store.add_chunks(run_id, [chunk(0)], [diff("1")])
        assert list(open_sqlite(Path(store.database.label)).chunks(run_id, PAIR)) == [chunk(0)]


class TestRowDiffs:
    @pytest.mark.parametrize("limit", [7, 600])
    def test_paging_sees_each_key_once(self, store: ResultStore, limit: int) -> None:
        run_id = new_run(store)
        states = list(LiveState)
        store.add_row_diffs(run_id, [diff(str(n), states[n % 4]) for n in range(601)])
        keys: list[str | None] = []
        after = 0
        while page := store.row_diffs(run_id, PAIR, after=after, limit=limit):
            assert len(page) <= limit
            keys += [found.key[0] for _, found in page]
            after = page[-1][0]
        assert keys == [str(n) for n in range(601)]

    def test_states_filter(self, store: ResultStore) -> None:
        run_id = new_run(store)
        store.add_row_diffs(run_id, [diff("1"), diff("2", LiveState.HOT), diff("3", LiveState.DIVERGED)])
        some = store.row_diffs(run_id, PAIR, states=["diverged", "hot"])
        assert [found.key[0] for _, found in some] == ["2", "3"]
        assert store.row_diffs(run_id, PAIR, states=[]) == []
        with pytest.raises(UsageError, match="fine"):
            store.row_diffs(run_id, PAIR, states=["fine"])

    def test_a_page_reads_no_more_than_the_index_of_its_rows(self, store: ResultStore) -> None:
        run_id = new_run(store)
        store.add_row_diffs(run_id, [diff("1")])
        plans: list[str] = []
        with store.engine.connect() as connection:
            scope = store._known_scope(connection, run_id, PAIR)
            for query in (
                "SELECT number FROM migverify_row_diff_heads"
                " WHERE scope = :s AND state = 'hot' AND number > 0 ORDER BY number LIMIT 9",
                "SELECT kind, state, COUNT(*) FROM migverify_row_diff_heads WHERE scope = :s GROUP BY state, kind",
                "SELECT * FROM migverify_row_diffs WHERE scope = :s AND number IN (1, 2)",
            ):
                plans += [row.detail for row in connection.execute(text("EXPLAIN QUERY PLAN " + query), {"s": scope})]
        assert all("SEARCH" in plan or "GROUP BY" in plan for plan in plans)
        assert "COVERING INDEX" in plans[0]
        assert "COVERING INDEX" in plans[1]

    def test_long_keys_and_odd_text(self, store: ResultStore) -> None:
        run_id = new_run(store)
        keys = ["x" * 100_000, "x" * 100_000 + "y", "", " ", "\x00", "a\x00b", "%s ?:n", "NULL"]
        store.add_row_diffs(run_id, [diff(key) for key in keys])
        assert [found.key[0] for _, found in store.row_diffs(run_id, PAIR)] == keys

    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        st.lists(
            st.lists(
                st.tuples(st.none() | st.text(max_size=2), st.sampled_from(LiveState), st.sampled_from(DiffKind)),
                max_size=6,
            ),
            max_size=6,
        ),
        st.integers(1, 4),
    )
    def test_any_history_reads_as_its_last_words(
        self, store: ResultStore, batches: list[list[tuple[str | None, LiveState, DiffKind]]], limit: int
    ) -> None:
        run_id = new_run(store)
        latest: dict[str | None, tuple[int, RowDiff]] = {}
        number = 0
        for batch in batches:
            rows = [diff(*item) for item in batch]
            store.add_row_diffs(run_id, rows)
            for row in rows:
                number += 1
                latest[row.key[0]] = (number, row)
        expected = sorted(latest.values(), key=lambda item: item[0])
        found: list[tuple[int, RowDiff]] = []
        while page := store.row_diffs(run_id, PAIR, after=found[-1][0] if found else 0, limit=limit):
            found += page
        assert found == expected
        counts = store.count_row_diffs(run_id, PAIR)
        assert sum(counts.values()) == len(expected)
        for (kind, state), count in counts.items():
            assert count == sum((row.kind, row.state) == (kind, state) for _, row in expected)


class TestTheRest:
    def test_the_last_table_result_counts_in_order_of_names(self, store: ResultStore) -> None:
        run_id = new_run(store)
        for name, verdict in (("b", Verdict.INCONCLUSIVE), ("a", Verdict.MATCH), ("b", Verdict.MISMATCH)):
            store.add_table_result(run_id, table_result(name, verdict))
        expected = [table_result("a", Verdict.MATCH), table_result("b", Verdict.MISMATCH)]
        assert store.table_results(run_id) == expected
        assert store.table_results(new_run(store)) == []

    def test_the_first_sql_of_a_purpose_stays(self, store: ResultStore) -> None:
        run_id = new_run(store)
        store.add_sql(run_id, PAIR, "source", "rows", "SELECT '%s', ':x' -- 😀")
        store.add_sql(run_id, PAIR, "source", "checksum", "SELECT 2")
        store.add_sql(run_id, PAIR, "source", "rows", "SELECT 3")
        assert store.sql(run_id, PAIR) == [
            ("source", "rows", "SELECT '%s', ':x' -- 😀"),
            ("source", "checksum", "SELECT 2"),
        ]
        with pytest.raises(StoreError, match="191 characters"):
            store.add_sql(run_id, PAIR, "source", "p" * 191, "")

    def test_blobs_stream_in_order(self, store: ResultStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runs, "_PART_BYTES", 10)
        run_id = new_run(store)
        contents = [bytes(range(256)), b"", b"x" * 10, b"\x00"]
        for content in contents:
            store.add_blob(run_id, PAIR, "sums", content)
        store.add_blob(run_id, PAIR, "other", b"1")
        assert list(store.blobs(run_id, PAIR, "sums")) == contents
        assert list(store.blobs(run_id, PAIR, "none")) == []
        assert list(store.blobs(run_id, "no pair", "sums")) == []

    def test_a_reader_goes_on_while_another_process_writes(self, store: ResultStore) -> None:
        run_id = new_run(store)
        reader = open_sqlite(Path(store.database.label))
        store.add_chunks(run_id, [chunk(n) for n in range(2500)], [])
        stream = reader.chunks(run_id, PAIR)
        assert next(stream).number == 0
        store.add_chunks(run_id, [chunk(2500)], [diff("1")])
        assert sum(1 for _ in stream) == 2500
        assert reader.count_row_diffs(run_id, PAIR) == {("value_differs", "unconfirmed"): 1}
        with store.engine.execution_options(migverify_write=True).connect() as writing:
            writing.execute(text("SELECT 1"))
            assert reader.load_run(run_id).finished is None
        reader.close()

    @pytest.mark.parametrize("odd", [{"reason": "\ud800"}, {"attempts": 2**63}])
    def test_what_the_database_cannot_hold_is_refused_whole(self, store: ResultStore, odd: dict[str, Any]) -> None:
        run_id = new_run(store)
        with pytest.raises(StoreError, match="cannot record chunks"):
            store.add_chunks(run_id, [chunk(0), replace(chunk(1), **odd)], [diff("1")])
        assert list(store.chunks(run_id, PAIR)) == []
        assert store.row_diffs(run_id, PAIR) == []

    def test_threads_may_share_a_store(self, store: ResultStore) -> None:
        run_id = new_run(store)
        errors: list[StoreError] = []

        def write(first: int) -> None:
            try:
                for n in range(first, first + 25):
                    store.add_chunks(run_id, [chunk(n)], [diff(str(n))])
            except StoreError as exc:
                errors.append(exc)

        threads = [threading.Thread(target=write, args=(n * 25,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert [found.number for found in store.chunks(run_id, PAIR)] == list(range(100))
        assert [n for n, _ in store.row_diffs(run_id, PAIR)] == list(range(1, 101))

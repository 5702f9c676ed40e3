"""A team's store on MySQL and on TiDB: the same results as in a file, and no loss when the server misbehaves."""

from __future__ import annotations

import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection, event, text

from migverify.errors import StoreError
from migverify.model import (
    ChunkChecksum,
    ChunkResult,
    ChunkState,
    ColumnDiff,
    DiffKind,
    KeyRange,
    LiveState,
    RowDiff,
    StoredKind,
    TableResult,
    Verdict,
)
from migverify.store.open import open_store
from migverify.store.results import ResultStore

pytestmark = pytest.mark.db

PAIR = "`d b`.t." + "😀" * 200


@pytest.fixture(params=["source", "target"])
def url(request: pytest.FixtureRequest, databases) -> str:  # type: ignore[no-untyped-def]
    server = getattr(databases.pair, request.param)
    return f"mysql+pymysql://{server.user}@{server.host}:{server.port}/{databases.name}"


@pytest.fixture
def store(url: str) -> Iterator[ResultStore]:
    opened = open_store(url)
    yield opened
    opened.close()


def diff(key: str | None, state: LiveState = LiveState.UNCONFIRMED) -> RowDiff:
    columns = (ColumnDiff("c 😀", "\x00é\\'%s", None, "null"),)
    return RowDiff(
        PAIR, (key, ""), DiffKind.VALUE_DIFFERS, state, columns, "aa", None, 1, 2, "s 😀", 1795231947.0339621
    )


def chunk(number: int, state: ChunkState = ChunkState.EQUAL) -> ChunkResult:
    checksum = None if state is ChunkState.FAILED else ChunkChecksum(2**40, 2**40, 2**64 + number, 2**70)
    key_range = KeyRange((None, "😀"), None)
    return ChunkResult(PAIR, 0, number, key_range, state, checksum, checksum, 1795231947.0339621, 0.1, reason="é😀")


def test_what_is_recorded_comes_back(store: ResultStore, url: str) -> None:
    run_id = store.start_run("verify 😀", "hash", {"pairs": [PAIR] * 3}, {"version": "8"}, kind=StoredKind.TABLES)
    store.add_span(run_id, PAIR, 0, KeyRange(None, ("é",)))
    store.add_chunks(run_id, [chunk(0, ChunkState.FAILED), chunk(1)], [diff("1"), diff(None)])
    store.add_chunks(run_id, [chunk(0)], [diff("1", LiveState.HOT), diff("1", LiveState.DIVERGED)])
    store.add_sql(run_id, PAIR, "source", "rows", "SELECT '%s', ':x' -- 😀")
    blobs = [b"", bytes(range(256)), b"\x00\xff" * 1_000_000]
    for blob in blobs:
        store.add_blob(run_id, PAIR, "sums", blob)
    result = TableResult(
        PAIR,
        "d.t",
        "d.t",
        Verdict.MISMATCH,
        ("é",),
        2**41,
        None,
        2,
        ("exact",),
        0,
        0,
        2,
        (),
        (),
        0.1,
        details={"n": 2**90},
    )
    store.add_table_result(run_id, result)
    store.finish_run(run_id, Verdict.MISMATCH, {"seconds": 1})

    reader = open_store(url)
    run = reader.load_run("last")
    assert (run.run_id, run.verdict, run.command) == (run_id, Verdict.MISMATCH, "verify 😀")
    assert run.plan == {"pairs": [PAIR] * 3}
    assert run.facts == {"version": "8", "seconds": 1}
    assert reader.runs()[0].finished == run.finished
    assert reader.spans(run_id, PAIR) == [(0, KeyRange(None, ("é",)))]
    assert list(reader.chunks(run_id, PAIR)) == [chunk(0), chunk(1)]
    totals = reader.chunk_totals(run_id, PAIR)
    assert (totals["chunks"], totals["equal"], totals["failed"], totals["rows_source"]) == (2, 2, 0, 2**41)
    assert reader.row_diffs(run_id, PAIR) == [(2, diff(None)), (4, diff("1", LiveState.DIVERGED))]
    assert reader.row_diffs(run_id, PAIR, states=["diverged"], after=3) == [(4, diff("1", LiveState.DIVERGED))]
    assert reader.count_row_diffs(run_id, PAIR, distinct=True) == {
        ("value_differs", "unconfirmed"): 1,
        ("value_differs", "diverged"): 1,
    }
    assert reader.count_row_diffs(run_id, PAIR) == {  # the target has each row twice
        ("value_differs", "unconfirmed"): 2,
        ("value_differs", "diverged"): 2,
    }
    assert reader.sql(run_id, PAIR) == [("source", "rows", "SELECT '%s', ':x' -- 😀")]
    assert list(reader.blobs(run_id, PAIR, "sums")) == blobs
    assert reader.table_results(run_id) == [result]
    reader.close()


def test_pages_and_counts_of_many_row_diffs(store: ResultStore) -> None:
    run_id = store.start_run("verify", "hash", {}, {}, kind=StoredKind.TABLES)
    store.add_row_diffs(run_id, [diff(str(n)) for n in range(5000)])
    store.add_row_diffs(run_id, [diff(str(n), LiveState.CONVERGED) for n in range(0, 5000, 2)])
    keys = []
    after = 0
    while page := store.row_diffs(run_id, PAIR, states=["unconfirmed"], after=after, limit=700):
        keys += [found.key[0] for _, found in page]
        after = page[-1][0]
    assert keys == [str(n) for n in range(1, 5000, 2)]
    assert store.count_row_diffs(run_id, PAIR, distinct=True) == {
        ("value_differs", "unconfirmed"): 2500,
        ("value_differs", "converged"): 2500,
    }


def test_a_long_key_and_a_long_value(store: ResultStore) -> None:
    run_id = store.start_run("verify", "hash", {}, {}, kind=StoredKind.TABLES)
    store.add_row_diffs(run_id, [diff("k" * 200_000), diff("k" * 200_000 + "x")])
    assert [len(found.key[0] or "") for _, found in store.row_diffs(run_id, PAIR)] == [200_000, 200_001]


def test_a_connection_cut_between_and_within_writes_is_taken_up(store: ResultStore, url: str) -> None:
    run_id = store.start_run("verify", "hash", {}, {}, kind=StoredKind.TABLES)
    _cut_pooled_connection(store, url)
    store.add_chunks(run_id, [chunk(0)], [diff("1")])

    append, tries = store._append_diffs, []

    def cut_first_then_append(connection, run, by_pair):  # type: ignore[no-untyped-def]
        tries.append(run)
        if len(tries) == 1:
            _cut(connection)
        append(connection, run, by_pair)

    store._append_diffs = cut_first_then_append  # type: ignore[method-assign]
    store.add_chunks(run_id, [chunk(1)], [diff("2")])
    assert len(tries) == 2
    assert [found.number for found in store.chunks(run_id, PAIR)] == [0, 1]
    assert [(n, found.key[0]) for n, found in store.row_diffs(run_id, PAIR)] == [(1, "1"), (2, "2")]


def test_runs_that_write_at_once_do_not_disturb_each_other(url: str) -> None:
    def write(name: str) -> tuple[str, ResultStore]:
        mine = open_store(url)
        run_id = mine.start_run(name, "hash", {}, {}, kind=StoredKind.TABLES)
        for n in range(10):
            mine.add_chunks(run_id, [chunk(n)], [diff(str(key)) for key in range(n * 30, n * 30 + 60)])
        return run_id, mine

    with ThreadPoolExecutor(4) as pool:
        written = list(pool.map(write, "abcd"))
    for run_id, mine in written:
        assert [found.number for found in mine.chunks(run_id, PAIR)] == list(range(10))
        assert mine.count_row_diffs(run_id, PAIR, distinct=True) == {("value_differs", "unconfirmed"): 330}
        mine.close()


def test_a_connection_cut_at_the_commit_repeats_no_blob(store: ResultStore) -> None:
    run_id = store.start_run("verify", "hash", {}, {}, kind=StoredKind.TABLES)
    event.listen(store.engine, "commit", _cut, once=True)
    with pytest.raises(StoreError, match="may or may not have arrived"):
        store.add_blob(run_id, PAIR, "sums", b"1")
    assert list(store.blobs(run_id, PAIR, "sums")) in ([], [b"1"])
    event.listen(store.engine, "commit", _cut, once=True)
    store.add_chunks(run_id, [chunk(0)], [diff("1")])
    assert list(store.chunks(run_id, PAIR)) == [chunk(0)]
    assert store.count_row_diffs(run_id, PAIR, distinct=True) == {("value_differs", "unconfirmed"): 1}


def _cut(connection: Connection) -> None:
    connection.connection.dbapi_connection._sock.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]


def _cut_pooled_connection(store: ResultStore, url: str) -> None:
    with store.engine.connect() as connection:
        number, version = connection.execute(text("SELECT CONNECTION_ID(), VERSION()")).one()
    other = open_store(url)
    with other.engine.connect() as killer:
        killer.execute(text(f"KILL {'TIDB' if 'TiDB' in version else ''} {number}"))
    other.close()


def test_processes_may_create_the_same_store_at_once(url: str) -> None:
    code = (
        "import sys; from migverify.store.open import open_store\nfrom migverify.model import StoredKind\n"
        "print(open_store(sys.argv[1]).start_run('x', 'h', {}, {}, kind=StoredKind.TABLES))"
    )
    jobs = [subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    ids = {job.communicate(timeout=120)[0].strip() for job in jobs}
    assert [job.returncode for job in jobs] == [0] * 4
    assert {run.run_id for run in open_store(url).runs()} == ids
    assert len(ids) == 4


def test_a_process_that_was_replaced_may_not_write(store: ResultStore, url: str) -> None:
    run_id = store.start_run("x", "h", {}, {}, kind=StoredKind.TABLES)
    successor = open_store(url)
    successor.resume_run(run_id)
    with pytest.raises(StoreError, match="resumed by another process"):
        store.add_chunks(run_id, [chunk(0)], [])
    successor.add_chunks(run_id, [chunk(1)], [])
    assert [found.number for found in successor.chunks(run_id, PAIR)] == [1]
    successor.close()


def test_a_wrong_password_and_a_missing_database_are_clear_errors(url: str) -> None:
    wrong = "p@ss:w/o%rd#'"
    with pytest.raises(StoreError, match="cannot open the store") as caught:
        open_store(url.split("://")[0] + "://nobody@" + url.split("@")[1], password=wrong)
    assert wrong not in "".join(traceback.format_exception(caught.value))
    assert "password" in caught.value.hint
    with pytest.raises(StoreError, match="nknown database") as caught:
        open_store(url + "_missing")
    assert "Create the database" in caught.value.hint


def test_a_newer_store_is_refused(store: ResultStore, url: str) -> None:
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE migverify_store SET value = '7'"))
    with pytest.raises(StoreError, match="schema version 7; this migverify reads version 2"):
        open_store(url)

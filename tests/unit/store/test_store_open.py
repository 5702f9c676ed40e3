"""Opening a store, and everything that can go wrong with one: clear errors, no secret, nothing lost."""

from __future__ import annotations

import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import traceback
from pathlib import Path
from urllib.parse import quote

import pytest
from sqlalchemy import event, text

from migverify.config import load_config
from migverify.errors import ConfigError, ExitCode, StoreError
from migverify.model import (
    ChunkChecksum,
    ChunkResult,
    ChunkState,
    DiffKind,
    KeyRange,
    LiveState,
    RowDiff,
    StoredKind,
    Verdict,
)
from migverify.store import open as opening
from migverify.store.open import open_configured, open_store
from migverify.store.results import ResultStore

PAIR = "d.t"
SECRET = "p@ss:w/o%rd#'\"x"


def open_sqlite(path: Path, timeout: float = 5) -> ResultStore:
    return open_store(f"sqlite:///{path}?timeout={timeout}")


def new_run(store: ResultStore) -> str:
    return store.start_run("tables verify", "hash", {}, {}, kind=StoredKind.TABLES)


def chunk(number: int) -> ChunkResult:
    checksum = ChunkChecksum(1, 1, 2**64, 0)
    return ChunkResult(PAIR, 0, number, KeyRange(), ChunkState.DIFFERENT, checksum, checksum, 1.0, 1.0)


def diffs(*keys: int) -> list[RowDiff]:
    return [RowDiff(PAIR, (str(key),), DiffKind.VALUE_DIFFERS, LiveState.UNCONFIRMED) for key in keys]


class TestSqliteFiles:
    def test_files_share_compiled_statements_and_nothing_else(self, tmp_path: Path) -> None:
        one, other = open_sqlite(tmp_path / "one.db", timeout=5), open_sqlite(tmp_path / "other.db", timeout=7)
        assert one.engine.dialect is other.engine.dialect
        runs = [new_run(one), new_run(one)]
        assert [run.run_id for run in one.runs()] == runs[::-1]
        assert other.runs() == []
        for store, milliseconds in ((one, 5_000), (other, 7_000)):
            with store.engine.connect() as connection:
                assert connection.scalar(text("PRAGMA busy_timeout")) == milliseconds
                assert connection.scalar(text("PRAGMA journal_mode")) == "wal"
        one.close()
        assert other.runs() == []
        other.close()

    def test_a_new_file_is_made_with_its_folder_for_its_owner_only(self, tmp_path: Path) -> None:
        path = tmp_path / "a" / "b" / "store.db"
        store = open_sqlite(path)
        new_run(store)
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
        assert modes["store.db"] == 0o600
        assert set(modes.values()) == {0o600}
        store.close()

    def test_a_bare_path_is_a_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        store = open_store("results/store.db")
        run_id = store.start_run("x", "h", {}, {}, kind=StoredKind.TABLES)
        store.close()
        assert open_sqlite(tmp_path / "results" / "store.db").load_run("last").run_id == run_id

    def test_it_is_in_wal_mode(self, tmp_path: Path) -> None:
        store = open_sqlite(tmp_path / "s.db")
        with store.engine.connect() as connection:
            assert connection.scalar(text("PRAGMA journal_mode")) == "wal"
            assert connection.scalar(text("PRAGMA synchronous")) == 1
            assert connection.scalar(text("PRAGMA busy_timeout")) == 5000

    @pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"])
    def test_a_store_in_memory_is_refused(self, url: str) -> None:
        with pytest.raises(StoreError, match="lost with its process"):
            open_store(url)

    def test_a_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="is a folder") as caught:
            open_store(f"sqlite:///{tmp_path}")
        assert caught.value.hint
        assert caught.value.exit_code is ExitCode.USAGE

    def test_a_folder_that_cannot_be_made_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(StoreError, match="cannot be created"):
            open_store(str(tmp_path / "file" / "store.db"))

    def test_a_file_of_something_else_is_refused_and_kept(self, tmp_path: Path) -> None:
        garbage = tmp_path / "notes.txt"
        garbage.write_bytes(b"not a database at all " * 100)
        with pytest.raises(StoreError, match="not a database") as caught:
            open_store(f"sqlite:///{garbage}")
        assert "another file" in caught.value.hint
        assert garbage.read_bytes() == b"not a database at all " * 100

    def test_an_sqlite_database_of_something_else_is_refused_and_kept(self, tmp_path: Path) -> None:
        path = tmp_path / "other.db"
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE customers (id INTEGER)")
        with pytest.raises(StoreError, match=r"of something else .*customers"):
            open_store(f"sqlite:///{path}")
        with sqlite3.connect(path) as other:
            assert other.execute("SELECT COUNT(*) FROM sqlite_master").fetchone() == (1,)

    @pytest.mark.parametrize(("version", "words"), [("3", "version 3; this .* version 2"), ("one", "never existed")])
    def test_another_version_is_refused(self, tmp_path: Path, version: str, words: str) -> None:
        path = tmp_path / "s.db"
        open_sqlite(path).close()
        with sqlite3.connect(path) as raw:
            raw.execute("UPDATE migverify_store SET value = ?", (version,))
        with pytest.raises(StoreError, match=words) as caught:
            open_sqlite(path)
        assert caught.value.hint

    def test_a_store_half_created_is_completed(self, tmp_path: Path) -> None:
        path = tmp_path / "s.db"
        open_sqlite(path).close()
        with sqlite3.connect(path) as raw:
            raw.execute("DROP TABLE migverify_blobs")
            raw.execute("DELETE FROM migverify_store")
        store = open_sqlite(path)
        run_id = new_run(store)
        store.add_blob(run_id, PAIR, "x", b"1")
        assert list(store.blobs(run_id, PAIR, "x")) == [b"1"]

    def test_processes_may_create_the_same_store_at_once(self, tmp_path: Path) -> None:
        code = (
            "import sys, time; from migverify.store.open import open_store\nfrom migverify.model import StoredKind\n"
            "time.sleep(max(0, float(sys.argv[2]) - time.time()))\n"
            "print(open_store(sys.argv[1]).start_run('x', 'h', {}, {}, kind=StoredKind.TABLES))"
        )
        path, at = tmp_path / "new" / "s.db", time.time() + 1.5
        jobs = [
            subprocess.Popen([sys.executable, "-c", code, str(path), str(at)], stdout=subprocess.PIPE, text=True)
            for _ in range(4)
        ]
        ids = [job.communicate(timeout=60)[0].strip() for job in jobs]
        assert [job.returncode for job in jobs] == [0] * 4
        assert {run.run_id for run in open_sqlite(path).runs()} == set(ids)


class TestFailingWrites:
    def test_a_full_disk_loses_nothing_committed(self, tmp_path: Path) -> None:
        store = open_sqlite(tmp_path / "s.db")
        run_id = new_run(store)
        store.add_chunks(run_id, [chunk(0)], diffs(0))
        store.engine.dispose()
        event.listen(store.engine, "connect", lambda raw, _: raw.execute("PRAGMA max_page_count=60"))
        done = 1
        with pytest.raises(StoreError, match="is full") as caught:  # noqa: PT012 - which write fails is not ours
            while done < 1000:
                store.add_chunks(run_id, [chunk(done)], diffs(*range(done * 20, done * 20 + 20)))
                done += 1
        assert 1 < done < 1000
        assert "Free space" in caught.value.hint
        after = open_sqlite(tmp_path / "s.db")
        assert [found.number for found in after.chunks(run_id, PAIR)] == list(range(done))
        assert sum(after.count_row_diffs(run_id, PAIR).values()) == 1 + 20 * (done - 1)
        after.resume_run(run_id)
        after.add_chunks(run_id, [chunk(done)], [])
        assert after.chunk_totals(run_id, PAIR)["chunks"] == done + 1

    def test_a_store_that_turned_read_only_can_still_be_read(self, tmp_path: Path) -> None:
        store = open_sqlite(tmp_path / "s.db")
        run_id = new_run(store)
        store.add_chunks(run_id, [chunk(0)], diffs(0))
        store.engine.dispose()
        event.listen(store.engine, "connect", lambda raw, _: raw.execute("PRAGMA query_only=ON"))
        with pytest.raises(StoreError, match="readonly") as caught:
            store.finish_run(run_id, Verdict.MATCH, {})
        assert "writable" in caught.value.hint
        assert store.load_run(run_id).verdict is Verdict.INCONCLUSIVE
        assert list(store.chunks(run_id, PAIR)) == [chunk(0)]

    def test_another_writer_that_holds_on_is_an_error_and_then_none(self, tmp_path: Path) -> None:
        store = open_sqlite(tmp_path / "s.db", timeout=0.2)
        run_id = new_run(store)
        other = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked") as caught:
            store.add_chunks(run_id, [chunk(0)], diffs(0))
        assert "timeout" in caught.value.hint
        assert list(store.chunks(run_id, PAIR)) == []
        assert open_sqlite(tmp_path / "s.db", timeout=0.2).load_run(run_id).finished is None
        other.rollback()
        other.close()
        store.add_chunks(run_id, [chunk(0)], diffs(0))
        assert list(store.chunks(run_id, PAIR)) == [chunk(0)]

    def test_a_damaged_file_is_an_error(self, tmp_path: Path) -> None:
        path = tmp_path / "s.db"
        store = open_sqlite(path)
        run_id = new_run(store)
        store.add_row_diffs(run_id, diffs(*range(2000)))
        store.close()
        size = path.stat().st_size
        with path.open("r+b") as raw:
            raw.seek(size // 2)
            raw.write(b"\xff" * (size // 2))
        with pytest.raises(StoreError):
            open_sqlite(path).row_diffs(run_id, PAIR, limit=5000)

    @pytest.mark.parametrize("seed", range(4))
    def test_kill_9_loses_nothing_acknowledged_and_leaves_no_half(self, tmp_path: Path, seed: int) -> None:
        code = (
            "import sys; sys.path.insert(0, sys.argv[2]); import test_store_open as t; from pathlib import Path\n"
            "store = t.open_sqlite(Path(sys.argv[1])); run_id = t.new_run(store); n = 0\n"
            "while True:\n"
            "    store.add_chunks(run_id, [t.chunk(n)], t.diffs(*range(n * 50, n * 50 + 50))); n += 1\n"
            "    print(n, flush=True)"
        )
        path = tmp_path / "s.db"
        here = str(Path(__file__).parent)
        writer = subprocess.Popen([sys.executable, "-c", code, str(path), here], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "1\n"
        time.sleep(random.Random(seed).uniform(0.0, 0.3))
        os.kill(writer.pid, signal.SIGKILL)
        acknowledged = int(([*writer.stdout.read().split()] or ["1"])[-1])
        writer.wait()
        store = open_sqlite(path)
        run = store.load_run("last")
        assert (run.finished, run.verdict) == (None, Verdict.INCONCLUSIVE)
        numbers = [found.number for found in store.chunks(run.run_id, PAIR)]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) in (acknowledged, acknowledged + 1)
        assert store.count_row_diffs(run.run_id, PAIR) == {("value_differs", "unconfirmed"): 50 * len(numbers)}
        store.resume_run(run.run_id)
        store.add_chunks(run.run_id, [chunk(len(numbers))], [])


class TestServers:
    @pytest.mark.parametrize(
        ("host", "forbidden"),
        [
            ("db.example", "DB.example."),
            ("127.0.0.1", "localhost"),
            ("localhost", "127.0.0.1"),
            ("127.0.0.1", "127.0.0.2"),
            ("[::1]", "localhost"),
            (socket.gethostname(), "localhost"),
            ("0.0.0.0", "localhost"),  # noqa: S104
        ],
    )
    def test_an_endpoint_under_test_is_refused(self, host: str, forbidden: str) -> None:
        with pytest.raises(StoreError, match="endpoint under test") as caught:
            open_store(f"mysql+pymysql://u@{host}/db", forbidden=[("other", 1), (forbidden, 3306)])
        assert "elsewhere" in caught.value.hint

    def test_another_port_is_another_server(self) -> None:
        with pytest.raises(StoreError, match="cannot open the store mysql"):
            open_store("mysql+pymysql://u@127.0.0.1:1/db", forbidden=[("localhost", 3306)])

    @pytest.mark.parametrize("apart", [True, False])
    def test_the_password_is_in_no_message(self, apart: bool) -> None:
        url = f"mysql+pymysql://u:{quote(SECRET, safe='')}@127.0.0.1:1/db"
        if apart:
            url = "mysql+pymysql://u@127.0.0.1:1/db"
        with pytest.raises(StoreError, match="onnect") as caught:
            open_store(url, password=SECRET if apart else None)
        assert SECRET not in "".join(traceback.format_exception(caught.value))
        assert caught.value.hint

    @pytest.mark.parametrize(
        "url",
        [
            "mysql+pymysql://u:hunter2@host:port/db",
            "mysql+pymysql://u:x@y:hunter2/z@host/db",
            "://u:hunter2@host/db",
            "nosuch://u:hunter2@host/db",
            "mysql+nosuch://u:hunter2@host/db",
            "postgresql+nosuch://u:hunter2@host/db?password=hunter2",
            "mysql+pymysql://u:hunter2@host",
            "mysql+pymysql://u@127.0.0.1:1/db?password=hunter2&nonsense=hunter2",
            "",
        ],
    )
    def test_a_wrong_url_is_one_clear_error(self, url: str) -> None:
        with pytest.raises(StoreError) as caught:
            open_store(url)
        assert "hunter2" not in "".join(traceback.format_exception(caught.value))
        assert caught.value.hint


@pytest.mark.attack(
    "store", "a URL with a password and without its //", "refused, and no part behind the scheme is shown"
)
@pytest.mark.parametrize("url", ["mysql+pymysql:sec:S3cr@host", "postgresql:sec:S3cr@host/db"])
def test_a_mistyped_url_is_no_name_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match="has no //") as caught:
        open_store(url)
    assert "S3cr" not in "".join(traceback.format_exception(caught.value))
    assert list(tmp_path.iterdir()) == []


def test_a_command_gives_the_password_of_the_own_store_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str | None] = []
    monkeypatch.setattr(opening, "open_store", lambda *_, password, **__: given.append(password))
    monkeypatch.setenv(opening.PASSWORD_VARIABLE, "of the variable")
    file = tmp_path / "migverify.yaml"
    file.write_text(
        "{source: {url: 'mysql://u@a'}, target: {url: 'tidb://u@b'}, tables: {include: ['x.*']},"
        " store: 'mysql+pymysql://runs@c/runs', store_password_command: 'echo printed'}"
    )
    config = load_config(file)
    open_configured(config)
    open_configured(config, "mysql+pymysql://runs@d/runs")
    assert given == ["printed", "of the variable"]
    file.write_text(file.read_text().replace("echo printed", "false"))
    with pytest.raises(ConfigError, match="store_password_command failed"):
        open_configured(load_config(file))

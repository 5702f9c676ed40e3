"""``changes archive`` on a real MySQL: the server's own bytes, during writes and after kills."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from migverify.changes.archive import archive, check_archive
from migverify.changes.decode import decoder
from migverify.changes.files import file_ranges
from migverify.changes.manifest import FileState, breaks, read_manifest
from migverify.changes.model import Rows
from migverify.changes.server import BinlogServer
from migverify.changes.source import read_range
from migverify.changes.storage import Storage
from migverify.errors import ChangeError, PurgedError
from tests.db.binlog_server import SourceServer, binlog_server
from tests.waiting import wait_for

pytestmark = pytest.mark.db

IN_USE_BYTE = 21


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceServer]:
    with binlog_server(tmp_path_factory.mktemp("archive"), "--max-allowed-packet=64M") as found:
        yield found


@pytest.fixture
def shop(source: SourceServer) -> SourceServer:
    """The server with an empty table and no binlog but one."""
    source.run("DROP DATABASE IF EXISTS shop", "RESET BINARY LOGS AND GTIDS", "CREATE DATABASE shop", "USE shop",
               "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v LONGTEXT)")  # fmt: skip
    return source


def run(server: SourceServer, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(server, folder, *options), capture_output=True, text=True, check=False, timeout=120)


def command(server: SourceServer, folder: Path, *options: str) -> list[str]:
    config = folder.parent / "migverify.yaml"
    if not config.exists():
        server.config(folder.parent)
    return [
        sys.executable, "-m", "migverify", "changes", "archive", "--to", str(folder), "--config", str(config), *options,
    ]  # fmt: skip


def assert_identical(server: SourceServer, folder: Path) -> None:
    """Every file of the server is in the archive; the last one may differ in the mark that it is in use."""
    paths = [Path(path) for path in server.files()]
    for path in paths:
        theirs, ours = bytearray(path.read_bytes()), (folder / path.name).read_bytes()
        if path == paths[-1]:
            assert theirs[IN_USE_BYTE] == 1
            theirs[IN_USE_BYTE] = 0
        assert ours == bytes(theirs), path.name


def test_the_bytes_are_the_servers(shop: SourceServer, tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    shop.run("INSERT INTO t (v) VALUES ('a'), ('b')", "UPDATE t SET v = 'c'", "FLUSH BINARY LOGS")
    # An event of more than 16 MB comes in several packets.
    shop.run("INSERT INTO t (v) VALUES (REPEAT('x', 17000000))", "INSERT INTO t (v) VALUES (REPEAT('y', 33554432))")
    shop.run("SET binlog_transaction_compression = ON", "INSERT INTO t (v) VALUES (REPEAT('z', 100000))",
             "SET binlog_transaction_compression = OFF")  # fmt: skip
    shop.run("SET gtid_next = 'AUTOMATIC:billing'", "INSERT INTO t (v) VALUES ('tagged')", "SET gtid_next = AUTOMATIC")
    shop.run("FLUSH BINARY LOGS")
    shop.run("SET GLOBAL binlog_checksum = NONE", "INSERT INTO t (v) VALUES ('no checksum')")
    shop.run("SET GLOBAL binlog_checksum = CRC32", "ALTER TABLE t ADD COLUMN w INT")
    done = run(shop, folder)
    assert done.returncode == 0, done.stderr
    assert_identical(shop, folder)
    manifest = read_manifest(Storage(str(folder)))
    executed = shop.run("SELECT @@GLOBAL.gtid_executed")[0][0].replace("\n", "")
    assert manifest.covered() == executed
    assert ":billing:1" in executed
    assert {file.checksum for file in manifest.files} == {"crc32", "none"}
    assert [file.state for file in manifest.files][-1] is FileState.GROWING
    assert check_archive(Storage(str(folder)), lambda _: None).findings == ()
    # A second run adds what is new and nothing else.
    shop.run("INSERT INTO t (v) VALUES ('later')")
    archive(Storage(str(folder)), BinlogServer(shop.endpoint, None))
    assert_identical(shop, folder)


def test_killed_again_and_again_while_the_server_writes(shop: SourceServer, tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    stop = threading.Event()

    def write() -> None:
        with shop.connect() as session, session.cursor() as cursor:
            count = 0
            while not stop.is_set():
                cursor.execute("INSERT INTO shop.t (v) VALUES (REPEAT('k', %s))", (count % 3000,))
                count += 1
                if count % 400 == 0:
                    cursor.execute("FLUSH BINARY LOGS")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(2):
            process = subprocess.Popen(
                command(shop, folder, "--follow"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            for _ in range(3):
                wait_for(partial(larger, folder, size(folder), process), "a larger archive", every=0.01)
            process.send_signal(signal.SIGKILL)
            process.wait()
    finally:
        stop.set()
        writer.join()
    assert run(shop, folder).returncode == 0
    assert_identical(shop, folder)
    storage = Storage(str(folder))
    assert check_archive(storage, lambda _: None).findings == ()
    found = [
        texts[0] for wanted in file_ranges(read_manifest(storage)) for item in read_range(storage, wanted)
        if isinstance(item, Rows) for texts in decoder(item.table, ["id"]).texts(item.images)
    ]  # fmt: skip
    assert found == [str(row[0]) for row in shop.run("SELECT id FROM t ORDER BY id")]


def larger(folder: Path, before: int, process: subprocess.Popen[Any]) -> bool:
    return size(folder) > before or process.poll() is not None


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("binlog.*")) if folder.is_dir() else 0


def test_following_sees_what_is_written(shop: SourceServer, tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    process = subprocess.Popen(command(shop, folder, "--follow"), stderr=subprocess.PIPE, text=True)
    try:
        shop.run("INSERT INTO t (v) VALUES ('followed')", "FLUSH BINARY LOGS", "INSERT INTO t (v) VALUES ('again')")
        storage = Storage(str(folder))
        end = shop.end()

        def archived(end: Any) -> bool:
            assert process.poll() is None
            last = read_manifest(storage).last
            return last is not None and (last.name, last.bytes) == (end.file, end.offset)

        wait_for(lambda: archived(end), "what was written, in the archive", every=0.05)
        # A dump thread that is ended is a lost connection.
        dump = shop.run("SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'")
        shop.run(f"KILL {dump[-1][0]}", "INSERT INTO t (v) VALUES ('after')")
        end = shop.end()
        wait_for(lambda: archived(end), "what was written after the lost connection, in the archive", every=0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    finally:
        process.kill()
        process.communicate()
    assert_identical(shop, folder)


def test_a_purged_file_is_a_gap(shop: SourceServer, tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    shop.run("INSERT INTO t (v) VALUES ('kept')")
    storage, server = Storage(str(folder)), BinlogServer(shop.endpoint, None)
    archive(storage, server)
    shop.run("INSERT INTO t (v) VALUES ('lost')", "FLUSH BINARY LOGS", "INSERT INTO t (v) VALUES ('kept too')")
    name = Path(shop.files()[-1]).name
    shop.run(f"PURGE BINARY LOGS TO '{name}'")
    with pytest.raises(PurgedError, match="deleted") as purged:
        archive(storage, server)
    assert f"--since {name}" in purged.value.hint
    archive(storage, server, since=name)
    assert_identical(shop, folder)
    assert check_archive(storage, lambda _: None).findings
    with pytest.raises(PurgedError, match="the server has no"):
        archive(Storage(str(tmp_path / "other")), server, since="binlog.000001")
    with pytest.raises(ChangeError, match="not complete"):
        file_ranges(read_manifest(storage))


@pytest.mark.parametrize("compression", ["OFF", "ON"])
def test_xa_over_files(shop: SourceServer, tmp_path: Path, compression: str) -> None:
    shop.run(f"SET binlog_transaction_compression = {compression}", "XA START 'a','b',7",
             "INSERT INTO t (v) VALUES ('xa')", "XA END 'a','b',7", "XA PREPARE 'a','b',7", "FLUSH BINARY LOGS",
             "XA COMMIT 'a','b',7", "SET binlog_transaction_compression = OFF")  # fmt: skip
    storage = Storage(str(tmp_path / "archive"))
    manifest = archive(storage, BinlogServer(shop.endpoint, None))
    assert [bool(file.xa_open) for file in manifest.files] == [True, False]
    assert manifest.files[0].xa_open[0].xid == manifest.files[1].xa_closed[0]
    assert not list(breaks(manifest))
    found = {
        wanted.file: [item for item in read_range(storage, wanted) if isinstance(item, Rows)]
        for wanted in file_ranges(manifest)
    }
    assert [len(rows) for rows in found.values()] == [0, 1]

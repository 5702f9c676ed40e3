"""Archived binlogs on Spark: every change once, whatever is killed, and an error for whatever is missing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from migverify.changes.archive import archive
from migverify.changes.storage import open_storage
from migverify.errors import ChangeError, ConfigError
from tests.binlog_files import SERVER, BinlogFile, FakeServer

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from tests.spark.cluster import Cluster

Read = Callable[..., Any]
ROOT = Path(__file__).parents[2]
FILES = 30
JOB = ROOT / "spark_jobs" / "read_changes.py"


@pytest.fixture
def session(sessions: Any) -> SparkSession:
    return sessions.get("local", slots=2)


def registered(session: SparkSession) -> SparkSession:
    pytest.importorskip("pyspark.sql.datasource", reason="Python data sources need pyspark 4")
    from migverify.spark.binlog_source import BinlogDataSource

    session.dataSource.register(BinlogDataSource)
    return session


def by_source(session: SparkSession, path: str, **options: str) -> Any:
    return registered(session).read.format("binlog").options(**options).load(path)


def by_frame(session: SparkSession, path: str, **options: str) -> Any:
    from migverify.spark.binlog_frame import read_archive

    return read_archive(session, path, **options)


@pytest.fixture(params=[by_frame, by_source])
def read(request: pytest.FixtureRequest) -> Read:
    """Both ways to read an archive at once: as a frame, and as a data source."""
    return request.param


def keep(files: list[BinlogFile], folder: Path) -> str:
    archive(open_storage(str(folder)), FakeServer(files))
    return str(folder)


def small() -> list[BinlogFile]:
    """Three files; an XA transaction is prepared in the first and committed in the third."""
    one = BinlogFile("binlog.000001").head()
    one.insert(1, (1, "a"), (2, None))
    one.xa_prepare(2, b"x", (50, "xa"))
    one.rotate("binlog.000002")
    two = BinlogFile("binlog.000002").head(f"{SERVER}:1-2")
    two.update(3, (1, "a"), (1, "é"))
    two.ddl(4, "ALTER TABLE t ADD COLUMN w INT")
    two.insert(5, (7, "other"), table="u")
    two.rotate("binlog.000003")
    three = BinlogFile("binlog.000003").head(f"{SERVER}:1-5")
    three.xa_commit(6, b"x")
    three.delete(7, (2, None))
    return [one, two, three]


EXPECTED = [
    ("insert", "t", None, {"id": "1", "v": "a"}, 1, "binlog.000001", 0, None),
    ("insert", "t", None, {"id": "2", "v": None}, 1, "binlog.000001", 1, None),
    ("update", "t", {"id": "1", "v": "a"}, {"id": "1", "v": "é"}, 3, "binlog.000002", 0, None),
    ("ddl", "t", None, None, 4, "binlog.000002", 0, "ALTER TABLE t ADD COLUMN w INT"),
    ("insert", "u", None, {"id": "7", "v": "other"}, 5, "binlog.000002", 0, None),
    ("insert", "t", None, {"id": "50", "v": "xa"}, 6, "binlog.000001", 0, None),
    ("delete", "t", {"id": "2", "v": None}, None, 7, "binlog.000003", 0, None),
]


# The rows of an XA transaction have the place where they were prepared, and the GTID of the commit.


def told(rows: list[Row]) -> list[tuple[Any, ...]]:
    ordered = sorted(rows, key=lambda row: (int(row.gtid.rpartition(":")[2]), row.ordinal))
    return [
        (row.op, row.table, row.before, row.after, int(row.gtid.rpartition(":")[2]), row.file, row.ordinal, row.sql)
        for row in ordered
    ]  # fmt: skip


def test_batch(session: SparkSession, read: Read, tmp_path: Path) -> None:
    frame = read(session, keep(small(), tmp_path))
    assert frame.rdd.getNumPartitions() == 3
    rows = frame.collect()
    assert told(rows) == EXPECTED
    assert {row.database for row in rows} == {"app"}
    assert {int(row.time.timestamp()) for row in rows} == {1_800_000_000}
    names = [(row.file, row.position, row.ordinal) for row in rows]
    assert len(set(names)) == len(names)


def test_tables_and_places(session: SparkSession, read: Read, tmp_path: Path) -> None:
    files = small()
    path = keep(files, tmp_path)
    assert [row.table for row in read(session, path, tables="app.u").collect()] == ["u"]
    part = read(session, path, since="binlog.000002", until="binlog.000003")
    assert [row.op for row in part.collect()] == ["update", "ddl", "insert"]
    place = f"binlog.000002:{files[1].ends[0]}"
    assert len(read(session, path, since=place).collect()) == 4
    last = f"binlog.000003:{files[2].ends[-1]}"
    assert read(session, path, since=last).collect() == []


def test_more_rows_than_a_batch(session: SparkSession, read: Read, tmp_path: Path) -> None:
    """More rows than one Arrow batch holds."""
    file = BinlogFile("binlog.000001").head()
    for number in range(1, 41):
        file.insert(number, *((number * 1000 + row, "x" * (row % 50)) for row in range(500)))
    frame = read(session, keep([file], tmp_path))
    keys = Counter(row.id for row in frame.selectExpr("after['id'] AS id").collect())
    assert len(keys) == 20_000
    assert set(keys.values()) == {1}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"file": "x"}, "no option file"),
        ({"maxFilesPerTrigger": "many"}, "number of files"),
        ({"since": "binlog.000001:x"}, "FILE or FILE:OFFSET"),
    ],
)
def test_wrong_options(options: dict[str, str], text: str) -> None:
    from migverify.spark.binlog_frame import read_options

    with pytest.raises(ConfigError, match=text):
        read_options({"path": "/a", **options})


def test_no_path() -> None:
    from migverify.spark.binlog_frame import read_options

    with pytest.raises(ConfigError, match="path"):
        read_options({})


def test_no_archive(session: SparkSession, read: Read, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="there is no archive at"):
        read(session, str(tmp_path)).collect()


def test_a_missing_file(session: SparkSession, read: Read, tmp_path: Path) -> None:
    path = keep(small(), tmp_path)
    (tmp_path / "manifest" / "binlog.000002.json").unlink()
    with pytest.raises(Exception, match="the archive is not complete"):
        read(session, path).collect()


def test_a_damaged_file(session: SparkSession, read: Read, tmp_path: Path) -> None:
    path = keep(small(), tmp_path)
    file = tmp_path / "binlog.000002"
    data = bytearray(file.read_bytes())
    data[-60] ^= 1
    file.write_bytes(data)
    with pytest.raises(Exception, match="fails its checksum"):
        read(session, path).collect()


def test_an_executor_with_nothing_but_the_wheel(sessions: Any, read: Read, cluster: Cluster, tmp_path: Path) -> None:
    session = sessions.get(cluster.url, slots=2)
    assert told(read(session, keep(small(), tmp_path)).collect()) == EXPECTED


CLIENT = """
import json, sys
from contextlib import closing
from migverify.spark.binlog_source import BinlogDataSource
from migverify.spark.changes_output import RUNNER, read_changes
from migverify.spark.engine import SparkEngine
from migverify.spark.session import open_session

url, archive, output = sys.argv[1:]
session = open_session(url, "binlogs", {}, 2)
session.dataSource.register(BinlogDataSource)
rows = session.read.format("binlog").load(archive).orderBy("gtid", "ordinal").collect()
with closing(SparkEngine(session, {}, 2, RUNNER)) as engine:
    done = read_changes(engine, archive, output)
print(json.dumps([[row.op for row in rows], done.changes]))
"""


def test_spark_connect(tmp_path: Path) -> None:
    """The server has its Python and the wheel that the client sends, and no more."""
    from tests.spark.cluster import connect_server

    pytest.importorskip("grpc")
    path = keep(small(), tmp_path / "archive")
    with connect_server() as server:
        # A process of its own: a client and a classic session do not share one.
        done = subprocess.run(
            [sys.executable, "-c", CLIENT, server.url, path, str(tmp_path / "output")],
            env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False, timeout=200,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [[row[0] for row in EXPECTED], len(EXPECTED)]


# The stream.


def grow(files: list[BinlogFile], count: int) -> None:
    """Finish the last file and add some more, one transaction each."""
    number = 1000 * len(files)
    for _ in range(count):
        last = files[-1]
        name = f"binlog.{len(files) + 1:06d}"
        last.rotate(name)
        done = sorted({int(one) for file in files for one in numbers(file)})
        files.append(BinlogFile(name).head(",".join(f"{SERVER}:{one}" for one in done)))
        number += 1
        files[-1].insert(number, (number, "new"))


def numbers(file: BinlogFile) -> Iterator[int]:
    for event in file.events(4):
        if event.type == 33:
            yield int.from_bytes(event.body[17:25], "little")


def drain(session: SparkSession, path: str, output: Path, **options: str) -> list[int]:
    """Read what there is; returns the rows of each micro-batch that had any."""
    reader = registered(session).readStream.format("binlog")
    for key, value in options.items():
        reader = reader.option(key, value)
    query = (
        reader.load(path).writeStream.format("parquet").option("checkpointLocation", str(output / "checkpoint"))
        .option("path", str(output / "data")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def test_a_stream_reads_each_change_once(session: SparkSession, tmp_path: Path) -> None:
    files = small()
    source, output = tmp_path / "archive", tmp_path / "output"
    path = keep(files, source)
    assert drain(session, path, output) == [len(EXPECTED)]
    assert drain(session, path, output) == []
    files[-1].insert(8, (8, "late"))
    grow(files, 4)
    keep(files, source)
    assert drain(session, path, output, maxFilesPerTrigger="2") == [2, 2, 1]
    rows = session.read.parquet(str(output / "data")).collect()
    assert told(rows)[: len(EXPECTED)] == EXPECTED
    assert len({(row.file, row.position, row.ordinal) for row in rows}) == len(rows) == len(EXPECTED) + 5


def test_a_stream_fails_when_a_file_is_gone(session: SparkSession, tmp_path: Path) -> None:
    files = small()
    source, output = tmp_path / "archive", tmp_path / "output"
    path = keep(files, source)
    drain(session, path, output)
    grow(files, 2)
    keep(files, source)
    (source / "manifest" / "binlog.000004.json").unlink()
    with pytest.raises(Exception, match="the archive is not complete"):
        drain(session, path, output)


# The job.


@pytest.fixture
def run(sessions: Any) -> Callable[..., Any]:
    """Run the job's function on the shared session."""
    from migverify.spark.changes_output import RUNNER, read_changes
    from migverify.spark.engine import SparkEngine

    def go(path: str, output: Path, **options: Any) -> Any:
        with closing(SparkEngine(sessions.get("local", slots=2), {}, 2, RUNNER, owns_session=False)) as engine:
            return read_changes(engine, path, str(output), **options)

    return go


def test_the_job_reads_each_change_once(session: SparkSession, run: Callable[..., Any], tmp_path: Path) -> None:
    files = small()
    source, output = tmp_path / "archive", tmp_path / "output"
    path = keep(files, source)
    first = run(path, output)
    assert (first.ranges, first.changes) == (3, len(EXPECTED))
    before = {found: found.stat().st_mtime_ns for found in output.rglob("*.parquet")}
    again = run(path, output)
    assert (again.ranges, again.changes) == (0, 0)
    files[-1].insert(8, (8, "late"))
    grow(files, 2)
    keep(files, source)
    later = run(path, output)
    assert (later.ranges, later.changes) == (3, 3)
    assert {found: found.stat().st_mtime_ns for found in before} == before
    rows = session.read.parquet(str(output)).collect()
    assert told(rows)[:5] == EXPECTED[:5]
    assert len({(row.file, row.position, row.ordinal) for row in rows}) == len(rows) == len(EXPECTED) + 3


def test_the_job_repeats_a_range_that_was_begun(run: Callable[..., Any], session: SparkSession, tmp_path: Path) -> None:
    """A task of a killed run may end after the next run began: both must write the same range."""
    files = small()
    source, output = tmp_path / "archive", tmp_path / "output"
    path = keep(files, source)
    run(path, output)
    gone = next((output / "binlog=binlog.000003").iterdir())
    gone.unlink()
    files[-1].insert(8, (8, "late"))
    keep(files, source)
    again = run(path, output)
    assert (again.ranges, again.changes) == (2, 3)
    assert gone.exists()
    rows = session.read.parquet(str(output)).collect()
    assert len({(row.file, row.position, row.ordinal) for row in rows}) == len(rows) == len(EXPECTED) + 1


def test_the_job_refuses_what_is_not_its_own(run: Callable[..., Any], tmp_path: Path) -> None:
    source, output = tmp_path / "archive", tmp_path / "output"
    path = keep(small(), source)
    run(path, output, tables=["app.t"])
    with pytest.raises(ChangeError, match="another archive or other tables"):
        run(path, output, tables=["app.u"])
    with pytest.raises(ChangeError, match="begins with"):
        run(path, output, tables=["app.t"], since="binlog.000002")
    piece = next((output / "binlog=binlog.000002").iterdir())
    copy = piece.with_name(f"{12:020d}-{99:020d}.parquet")
    copy.write_bytes(piece.read_bytes())
    with pytest.raises(ChangeError, match="Two jobs wrote here"):
        run(path, output, tables=["app.t"])


def test_the_job_tells_a_damaged_file(run: Callable[..., Any], tmp_path: Path) -> None:
    source, output = tmp_path / "archive", tmp_path / "output"
    path = keep(small(), source)
    file = source / "binlog.000002"
    data = bytearray(file.read_bytes())
    data[-60] ^= 1
    file.write_bytes(data)
    with pytest.raises(ChangeError, match="fails its checksum"):
        run(path, output)
    assert not list((output / "binlog=binlog.000002").glob("*")), "a half piece must not be seen"


@pytest.mark.timeout(400)
def test_the_job_is_killed_and_run_again(session: SparkSession, tmp_path: Path) -> None:
    """kill -9 of the driver, its JVM and its workers, with some files done and some not."""
    files = [BinlogFile("binlog.000001").head()]
    number = 0
    for place in range(FILES):
        for _ in range(10):
            number += 1
            files[-1].insert(number, *((number * 1000 + row, "x" * 40) for row in range(400)))
        if place < FILES - 1:
            files[-1].rotate(f"binlog.{place + 2:06d}")
            files.append(BinlogFile(f"binlog.{place + 2:06d}").head(f"{SERVER}:1-{number}"))
    path, output = keep(files, tmp_path / "archive"), tmp_path / "output"
    command = [sys.executable, str(JOB), path, str(output), "--master", "local", "--slots", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    job = subprocess.Popen(command, env=environment, start_new_session=True, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(list(output.rglob("*.parquet"))) < 2 and job.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    kill_all(job.pid)
    job.wait()
    done = len(list(output.rglob("*.parquet")))
    assert 2 <= done < FILES, f"killed too late for this test to mean anything: {done} of {FILES} files were done"
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert f"in {FILES - done} ranges" in finished.stdout
    rows = session.read.parquet(str(output)).selectExpr("file", "position", "ordinal", "after['id'] AS id").collect()
    assert len(rows) == FILES * 10 * 400
    assert len({row.id for row in rows}) == len(rows)
    assert json.loads((output / "_migverify.json").read_text())["version"] == 1


def kill_all(leader: int) -> None:
    """Kill a process and what descends from it; Python workers have process groups of their own."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    doomed, fresh = {leader}, {leader}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in doomed} - doomed
        doomed |= fresh
    for pid in doomed:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue

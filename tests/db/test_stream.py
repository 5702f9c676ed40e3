"""The change stream of a real MySQL: everything that a server writes, every way to stop and go on."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from migverify.changes.decode import decoder
from migverify.changes.model import Begin, Commit, Idle, Item, Op, Position, Rows, Statement
from migverify.changes.server import current_position
from migverify.changes.source import read_files, read_server
from migverify.db.session import open_session
from migverify.errors import PrivilegeError, PurgedError
from tests.db.binlog_server import SourceServer, binlog_server, tail

pytestmark = pytest.mark.db


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceServer]:
    with binlog_server(tmp_path_factory.mktemp("binlog")) as found:
        yield found


@pytest.fixture
def shop(source: SourceServer) -> SourceServer:
    """The server with an empty table ``shop.t (id, v)``, in a new binlog file."""
    source.run("DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop", "USE shop",
               "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(600))", "FLUSH BINARY LOGS")  # fmt: skip
    return source


def rows_of(found: list[Item]) -> list[tuple[Op, tuple[str | None, ...]]]:
    return [
        (item.op, texts) for item in found if isinstance(item, Rows) for texts in decoder(item.table).texts(item.images)
    ]


def both_ways(shop: SourceServer, start: Position) -> list[Item]:
    """Items from ``start`` by the server, which must be the items of its files; without times of reading."""
    live = list(read_server(shop.endpoint, None, start, follow=False))
    files = [path for path in shop.files() if Path(path).name >= start.file]
    from_files = list(read_files(files, start))
    assert [i for i in live if not isinstance(i, Idle)] == [i for i in from_files if not isinstance(i, Idle)]
    return live


WRITES = """
INSERT INTO t VALUES (1, 'one'), (2, NULL)
UPDATE t SET v = 'two' WHERE id = 2
DELETE FROM t WHERE id = 1
BEGIN
INSERT INTO t VALUES (3, 'kept')
SAVEPOINT s
INSERT INTO t VALUES (4, 'rolled back')
ROLLBACK TO s
COMMIT
SET SESSION binlog_transaction_compression = ON
INSERT INTO t VALUES (5, REPEAT('compressed ', 50))
SET SESSION binlog_transaction_compression = OFF
SET gtid_next = 'automatic:billing'
INSERT INTO t VALUES (6, 'tagged')
SET gtid_next = 'automatic'
XA START 'a'
INSERT INTO t VALUES (7, 'xa')
XA END 'a'
XA PREPARE 'a'
INSERT INTO u VALUES (1)
XA COMMIT 'a'
XA START 'b'
INSERT INTO t VALUES (8, 'xa')
XA END 'b'
XA PREPARE 'b'
XA ROLLBACK 'b'
XA START 'c'
INSERT INTO t VALUES (9, 'xa in one phase')
XA END 'c'
XA COMMIT 'c' ONE PHASE
ALTER TABLE t ADD COLUMN w INT DEFAULT 4
INSERT INTO t VALUES (10, 'wider', NULL)
CREATE TABLE copied AS SELECT id FROM t WHERE id < 4
TRUNCATE TABLE u
CREATE TEMPORARY TABLE passing (a INT)
INSERT INTO passing VALUES (1)
DROP TABLE passing
CREATE USER IF NOT EXISTS nobody
RENAME TABLE u TO renamed
BEGIN
INSERT INTO t VALUES (11, 'never', 1)
ROLLBACK
"""


def write_everything(shop: SourceServer) -> None:
    shop.run("CREATE TABLE u (a INT PRIMARY KEY)")
    other = shop.connect()
    with other.cursor() as cursor:
        cursor.execute("USE shop")
        in_xa = False
        for statement in filter(None, WRITES.splitlines()):
            if in_xa and statement.startswith("INSERT INTO u"):
                shop.run(statement)  # between XA PREPARE and XA COMMIT, by another session
            else:
                cursor.execute(statement)
            in_xa = statement.startswith("XA PREPARE")
    other.close()


def test_everything_that_a_server_writes(shop: SourceServer, tmp_path: Path) -> None:
    start = shop.end()
    write_everything(shop)
    loaded = tmp_path / "rows.csv"
    loaded.write_text("20\tloaded\t1\n21\tloaded\t2\n")
    shop.run(
        f"LOAD DATA LOCAL INFILE '{loaded}' INTO TABLE t", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (30, 'n', 0)"
    )
    found = both_ways(shop, Position(start.file, 4))
    expected = [
        (Op.INSERT, ("1", "one")), (Op.INSERT, ("2", None)), (Op.UPDATE, ("2", None)), (Op.UPDATE, ("2", "two")),
        (Op.DELETE, ("1", "one")), (Op.INSERT, ("3", "kept")), (Op.INSERT, ("5", "compressed " * 50)),
        (Op.INSERT, ("6", "tagged")), (Op.INSERT, ("1",)), (Op.INSERT, ("7", "xa")),
        (Op.INSERT, ("9", "xa in one phase")),
        (Op.INSERT, ("10", "wider", None)), (Op.INSERT, ("2",)), (Op.INSERT, ("3",)),
        (Op.INSERT, ("20", "loaded", "1")),
        (Op.INSERT, ("21", "loaded", "2")), (Op.INSERT, ("30", "n", "0")),
    ]  # fmt: skip
    assert rows_of(found) == expected
    assert [(item.op, item.tables) for item in found if isinstance(item, Statement)] == [
        (Op.DDL, (("shop", "u"),)), (Op.DDL, (("shop", "t"),)), (Op.DDL, (("shop", "copied"),)),
        (Op.TRUNCATE, (("shop", "u"),)), (Op.DDL, (("shop", "u"), ("shop", "renamed"))),
    ]  # fmt: skip
    last = [item for item in found if isinstance(item, Commit)][-1]
    assert last.end.gtids == str(current_position(open_session(shop.endpoint, None)).gtids)
    kinds = [type(item) for item in found if isinstance(item, Begin | Commit)]
    assert kinds == [Begin, Commit] * (len(kinds) // 2)


def test_every_commit_is_a_place_to_go_on(shop: SourceServer) -> None:
    start = shop.end()
    write_everything(shop)
    every = [item for item in both_ways(shop, start) if not isinstance(item, Idle)]
    commits = [place for place, item in enumerate(every) if isinstance(item, Commit)]
    for place in commits:
        end = every[place].end  # type: ignore[union-attr]
        for since in (end, Position(end.file, end.offset), Position("", 0, end.gtids)):
            again = read_server(shop.endpoint, None, since, follow=False)
            assert [item for item in again if not isinstance(item, Idle)] == every[place + 1 :], since


@pytest.mark.parametrize(
    ("setting", "statement", "why"),
    [
        ("binlog_row_image = MINIMAL", "UPDATE t SET v = 'x' WHERE id = 1", "binlog_row_image=FULL"),
        ("binlog_format = STATEMENT", "UPDATE t SET v = 'x' WHERE id = 1", "binlog_format=ROW"),
        ("binlog_format = STATEMENT", "UPDATE t SET v = RAND() WHERE id = 1", "binlog_format=ROW"),
    ],
)
def test_what_cannot_be_read_exactly_ends_after_what_is_certain(
    shop: SourceServer, setting: str, statement: str, why: str
) -> None:
    shop.run("FLUSH BINARY LOGS", "INSERT INTO t VALUES (1, 'certain')")
    other = shop.connect()
    with other.cursor() as cursor:
        cursor.execute("USE shop")
        cursor.execute(f"SET SESSION {setting}")
        cursor.execute(statement)
    other.close()
    shop.run("INSERT INTO t VALUES (2, 'after')")
    path = shop.flush()
    found, said = tail("--file", path, code=3)
    assert [change["table"] for change in found] == ["shop.t"]
    assert why in said


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
def test_rows_that_cannot_be_read_end_only_a_reader_that_has_their_table_in_scope(
    shop: SourceServer, image: str
) -> None:
    shop.run("CREATE TABLE shop.noisy (id INT PRIMARY KEY, v INT, b TEXT)", "INSERT INTO shop.noisy VALUES (1, 1, 'b')",
             "FLUSH BINARY LOGS")  # fmt: skip
    other = shop.connect()
    with other.cursor() as cursor:
        cursor.execute(f"SET SESSION binlog_row_image = {image}")
        cursor.execute("UPDATE shop.noisy SET v = 2")
    other.close()
    behind = shop.end()
    gtids = current_position(open_session(shop.endpoint, None)).gtids
    shop.run("INSERT INTO t VALUES (900, 'after')", "INSERT INTO shop.noisy VALUES (2, 1, NULL)")
    path = shop.flush()
    found, _ = tail("--file", path, "--tables", "shop.t", code=0)
    assert [change["after"]["id"] for change in found] == ["900"]
    _, said = tail("--file", path, code=3)
    assert "shop.noisy" in said
    assert f"at {behind} or {gtids}." in " ".join(said.split())
    found, _ = tail("--file", path, "--since", str(behind), code=0)
    assert [change["table"] for change in found] == ["shop.t", "shop.noisy"]


def test_a_stream_goes_on_over_killed_connections(shop: SourceServer) -> None:
    start, stop, written = current_position(open_session(shop.endpoint, None)), threading.Event(), [0]

    def write() -> None:
        connection = shop.connect()
        with connection.cursor() as cursor:
            while not stop.is_set():
                first = written[0]
                values = ",".join(f"({number}, REPEAT('x', 500))" for number in range(first, first + 40))
                cursor.execute(f"INSERT INTO shop.t VALUES {values}")
                written[0] = first + 40
        connection.close()

    def kill() -> None:
        connection = shop.connect()
        with connection.cursor() as cursor:
            for _ in range(6):
                time.sleep(0.3)
                cursor.execute("SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'")
                for (thread,) in cursor.fetchall():
                    cursor.execute(f"KILL {thread}")
        connection.close()
        stop.set()

    threads = [threading.Thread(target=work) for work in (write, kill)]
    for thread in threads:
        thread.start()
    found: list[str | None] = []
    for item in read_server(shop.endpoint, None, start, follow=True, heartbeat_seconds=0.5):
        if isinstance(item, Rows):
            found += [texts[0] for texts in decoder(item.table, ["id"]).texts(item.images)]
        if isinstance(item, Idle) and stop.is_set() and len(found) >= written[0]:
            break
    for thread in threads:
        thread.join()
    assert found == [str(number) for number in range(written[0])]


READER = """
import sys
from migverify.changes.model import Commit, Rows
from migverify.changes.positions import parse_position
from migverify.changes.model import Position
from migverify.changes.source import read_server
from migverify.changes.decode import decoder
from migverify.model import Endpoint
port, file, offset, gtids = sys.argv[1:]
ids = []
for item in read_server(Endpoint("source", "127.0.0.1", int(port), "root"), None, Position(file, int(offset), gtids),
                        follow=True, heartbeat_seconds=0.5):
    if isinstance(item, Rows):
        ids += [texts[0] for texts in decoder(item.table, ["id"]).texts(item.images)]
    elif isinstance(item, Commit):
        # One write, so that rows and position are kept together or not at all.
        sys.stdout.write(" ".join([*ids, "|", item.end.file, str(item.end.offset), item.end.gtids]) + chr(10))
        sys.stdout.flush()
        ids = []
"""


def test_killed_readers_go_on_from_their_last_position(shop: SourceServer) -> None:
    start = shop.end()
    for first in range(0, 3000, 30):
        if first % 450 == 0:
            shop.run("FLUSH BINARY LOGS")
        shop.run(f"INSERT INTO t VALUES {','.join(f'({n}, NULL)' for n in range(first, first + 30))}")
    at: tuple[str, ...] = (start.file, str(start.offset), "")
    found: list[str] = []
    source = random.Random(4)
    while len(found) < 3000:
        process = subprocess.Popen(
            [sys.executable, "-c", READER, str(shop.server.port), *at], stdout=subprocess.PIPE, text=True
        )  # fmt: skip
        assert process.stdout is not None
        lines = list(islice(process.stdout, source.randrange(1, 40)))
        process.send_signal(signal.SIGKILL)
        for line in lines:
            ids, _, place = line.rstrip("\n").partition("| ")
            found += ids.split()
            at = tuple(place.split(" "))
        process.stdout.close()
        process.wait()
    assert found == [str(number) for number in range(3000)]


def test_purged_positions(shop: SourceServer) -> None:
    first = shop.end()
    known = current_position(open_session(shop.endpoint, None))
    shop.run("INSERT INTO t VALUES (1, 'purged')")
    shop.flush()
    shop.run(f"PURGE BINARY LOGS TO '{shop.end().file}'")
    for since in (first, Position(first.file, first.offset, known.gtids), known):
        with pytest.raises(PurgedError) as error:
            list(read_server(shop.endpoint, None, since, follow=False))
        assert f"{shop.end().file}:4" in str(error.value)
        assert "verify the tables in full" in str(error.value)


def test_a_user_without_the_grant_is_told(shop: SourceServer) -> None:
    shop.run("CREATE USER IF NOT EXISTS reader@'%'", "GRANT REPLICATION CLIENT ON *.* TO reader@'%'")
    endpoint = shop.endpoint.__class__("source", "127.0.0.1", shop.server.port, "reader")
    with pytest.raises(PrivilegeError, match="REPLICATION SLAVE"):
        list(read_server(endpoint, None, shop.end(), follow=True))


def test_tail_of_files(shop: SourceServer, tmp_path: Path) -> None:
    start = shop.end()
    write_everything(shop)
    middle = shop.end()
    first = shop.flush()
    shop.run("INSERT INTO t VALUES (40, 'x', 1)")
    second = shop.flush()
    found, said = tail("--file", first, "--file", second)
    assert said == ""
    assert found[-1] == {
        "op": "insert", "table": "shop.t", "before": None, "after": {"id": "40", "v": "x", "w": "1"},
        "gtid": found[-1]["gtid"], "file": Path(second).name, "position": found[-1]["position"],
        "time": found[-1]["time"], "sql": "",
    }  # fmt: skip
    update = next(change for change in found if change["op"] == "update")
    assert (update["before"], update["after"]) == ({"id": "2", "v": None}, {"id": "2", "v": "two"})
    assert [(c["op"], c["table"]) for c in found if c["after"] is None and c["before"] is None] == [
        ("ddl", "shop.u"), ("ddl", "shop.t"), ("ddl", "shop.copied"), ("truncate", "shop.u"), ("ddl", "shop.u"),
        ("ddl", "shop.renamed"),
    ]  # fmt: skip
    assert all(change["sql"] for change in found if change["op"] in ("ddl", "truncate"))
    assert len(tail("--file", first, "--file", second, "--until", str(middle))[0]) == len(found) - 1
    assert tail("--file", first, "--file", second, "--since", str(middle))[0] == found[-1:]
    config = str(shop.config(tmp_path))
    assert tail("--config", config, "--since", str(Position(start.file, 4)))[0] == found
    some, _ = tail("--file", first, "--tables", "shop.u")
    assert {change["table"] for change in some} == {"shop.u"}
    assert "lies inside" in tail("--file", first, "--since", f"{Path(first).name}:300", code=3)[1]
    assert tail("--file", second, "--file", first, code=3)[1]
    assert tail("--since", "x", code=2)[1]
    assert tail("--file", first, "--follow", code=2)[1]


def test_follow_ends_with_control_c(shop: SourceServer, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "migverify", "changes", "tail", "--json", "--follow", "--config",
         str(shop.config(tmp_path)), "--since", str(shop.end())],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    shop.run("INSERT INTO t VALUES (1, 'seen')")
    assert '"seen"' in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said.strip() == "interrupted"


def test_a_reader_that_goes_away_is_no_error(shop: SourceServer) -> None:
    shop.run(f"INSERT INTO t VALUES {','.join(f'({n}, REPEAT(0, 500))' for n in range(3000))}")
    path = shop.flush()
    command = f"{sys.executable} -m migverify changes tail --json --file {path} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_a_huge_transaction_stays_out_of_memory(shop: SourceServer) -> None:
    shop.run("INSERT INTO t VALUES (0, REPEAT('x', 600))")
    shop.run("SET cte_max_recursion_depth = 100000",
             "INSERT INTO t WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000) "
             "SELECT i, REPEAT('x', 600) FROM n")  # fmt: skip
    path = shop.flush()
    code = (
        "import sys, resource; from migverify.changes.source import read_files;"
        "from migverify.changes.model import Rows;"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "total = sum(len(i.images) for i in read_files([sys.argv[1]]) if isinstance(i, Rows));"
        "print(total, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    total, grown = map(int, done.stdout.split())
    assert total > 36_000_000
    assert grown < 20_000  # KiB

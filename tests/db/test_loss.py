"""`tables loss` on the real pair, beside a reverse watch that lives, dies or lags: exactly the rows that are lost."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from migverify.changes.model import Begin, Commit, DecodedTable, Idle, Item, Op, Position, Rows
from migverify.changes.positions import shown_timestamp, tso_position, tso_time
from migverify.config import Config, load_config
from migverify.db.session import Session
from migverify.db.snapshot import current_timestamp
from migverify.model import Verdict
from migverify.signals import SignalEvent
from migverify.store.open import open_store
from migverify.tables import watch_run
from migverify.tables.prepare import prepared_run
from migverify.tables.repair_files import transactions
from migverify.tables.watch_run import TablesWatchRequest, watch_tables
from migverify.watch.applied import SettleTime
from migverify.watch.ledger import ledger_folder
from migverify.watch.stream import Stream
from migverify_lab.session import connect
from tests.conftest import Databases
from tests.db.test_repair import COLUMNS, EVERYTHING, RICH
from tests.db.verifying import execute, verify, write_config
from tests.db.watching import migverify

pytestmark = pytest.mark.db

RULES = """version: recon/v1
datasets:
  ours: {endpoint: source, table: DB.pay, key: id}
  theirs: {endpoint: target, table: DB.pay, key: id}
rules:
  - {name: paid, kind: same_rows, source: ours, target: theirs, compare: [amount], settle: 1s,
     money: {column: amount, currency: currency}}
  - {name: nameless, kind: same_rows, source: ours, target: theirs, compare: [amount], settle: 1s}
"""


class TidbWriter:
    """Writes the target and records each commit with the timestamp that TiDB gave it, as a changefeed would."""

    def __init__(self, databases: Databases, path: Path) -> None:
        self.databases, self.path = databases, path
        self.lock = threading.Lock()
        self.commits: list[int] = []
        self._stop, self.stalled = threading.Event(), threading.Event()
        self._connection = connect(databases.pair.target, databases.name)
        self._connection.autocommit(False)
        self._marks = threading.Thread(target=self._mark)
        path.touch()

    def write(self, *changes: tuple[str, str, str]) -> int:
        """Commit one transaction of (statement, table, key) and return its commit timestamp."""
        with self.lock, self._connection.cursor() as cursor:
            for statement, _, _ in changes:
                cursor.execute(statement)
            self._connection.commit()
            cursor.execute("SELECT @@tidb_last_txn_info")
            tso = int(json.loads(cursor.fetchone()[0])["commit_ts"])
            self._connection.commit()
            self._append({"commit": tso, "rows": [[table, key] for _, table, key in changes]})
        self.commits.append(tso)
        return tso

    @contextmanager
    def marking(self) -> Iterator[None]:
        """Let watermarks come, but while ``stalled``."""
        self._marks.start()
        try:
            yield
        finally:
            self._stop.set()
            self._marks.join()
            self._connection.close()

    def _mark(self) -> None:
        while not self._stop.wait(0.1):
            if not self.stalled.is_set():
                with self.lock:
                    self._append({"mark": self._now()})

    def _now(self) -> int:
        with self._connection.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT @@tidb_current_ts")
            tso = int(cursor.fetchone()[0])
        self._connection.rollback()
        return tso

    def _append(self, entry: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")


class WrittenCommits:
    """A ``FollowedSource`` of what a ``TidbWriter`` records."""

    hides_cascades: ClassVar[bool] = False

    def __init__(self, path: Path, database: str) -> None:
        self.path, self.database = path, database

    def open(self, since: Position | None) -> Iterator[Item]:
        begin, seen = since.offset if since is not None else 0, 0
        with self.path.open() as file:
            while True:
                line = file.readline()
                if not line.endswith("\n"):
                    file.seek(seen)
                    time.sleep(0.05)
                    continue
                seen = file.tell()
                entry = json.loads(line)
                tso = entry.get("mark") or entry["commit"]
                if tso <= begin:
                    continue
                at = tso_position(tso)
                if "mark" in entry:
                    yield Idle(at, time.time())
                    continue
                yield Begin("", at, tso_time(tso))
                for table, key in entry.get("rows", ()):
                    layout = DecodedTable.of(self.database, table, ("id",), ("id",))
                    yield Rows(Op.INSERT, layout, layout.packed([(key,)]), "tso", tso, int(tso_time(tso)))
                yield Commit("", at, tso_time(tso))

    def head(self, session: Session) -> Position:
        return tso_position(current_timestamp(session))

    def ordinal(self, position: Position) -> int:
        return position.offset

    def shown(self, ordinal: int, like: Position | None) -> str:
        del like
        return shown_timestamp(ordinal)


@pytest.fixture
def paid(databases: Databases) -> Databases:
    databases.both(
        "CREATE TABLE pay (id BIGINT PRIMARY KEY, amount DECIMAL(30,4), currency CHAR(3), note VARCHAR(40))",
        "CREATE TABLE city (id VARCHAR(20) PRIMARY KEY, people INT)",
        *(f"INSERT INTO pay VALUES ({n}, {n}.25, 'EUR', 'before')" for n in range(1, 21)),
        "INSERT INTO city VALUES ('Bern', 1), ('Chur', 2)",
    )
    return databases


class Back:
    """A reverse watch as a process of its own, and what ``tables loss`` says of it."""

    def __init__(self, databases: Databases, folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.databases, self.folder = databases, folder
        self.config = write_config(folder, databases.pair, databases.name, watch={"delay": 0.2}, **settings)
        self.writer = TidbWriter(databases, folder / "commits.jsonl")
        source = WrittenCommits(self.writer.path, databases.name)

        def stream(config: Config, start: Position, _run: str, _secrets: object, _types: object) -> Stream:
            return Stream(config.target, source, SettleTime(0.5), start)

        monkeypatch.setattr(watch_run, "reverse_stream", stream)
        self.process: Any = None
        self.run = ""

    def start(self, since: str = "") -> None:
        """Watch from a run, or verify and watch from there."""
        self._fork(TablesWatchRequest("watch", since=since or verify(self.config).run_id, reverse=True))

    def resume(self) -> None:
        self._fork(TablesWatchRequest("watch", resume=self.run, reverse=True))

    def _fork(self, request: TablesWatchRequest) -> None:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        self.process = context.Process(target=self._watch, args=(request, theirs))
        self.process.start()
        assert ours.poll(60)
        self.run = ours.recv()

    def _watch(self, request: TablesWatchRequest, say: Any) -> None:
        stopped = SignalEvent()
        signal.signal(signal.SIGTERM, lambda *_: stopped.set())
        with (
            prepared_run(self.config, None, current=True) as (loaded, secrets, prepared),
            closing(open_store(f"sqlite:///{self.folder}/runs.db")) as store,
        ):
            watch_tables(
                prepared, loaded, secrets, store, request, ledger_folder(load_config(self.config)),
                on_start=say.send, stop=stopped.is_set,
            )  # fmt: skip

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        os.kill(self.process.pid, number)
        self.process.join(60)

    def loss(self, *options: str) -> tuple[int, dict[str, Any]]:
        code, out, err = migverify("tables", "loss", "--config", str(self.config), "--json", *options)
        assert out, err
        return code, json.loads(out)

    def until(self, right: Callable[[int, dict[str, Any]], bool], *options: str) -> dict[str, Any]:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            code, found = self.loss(*options)
            if right(code, found):
                return found
            time.sleep(0.2)
        pytest.fail(f"nothing of the kind in 60 s: {found}")

    def apply(self, *statements: str) -> None:
        """Bring changes to the source, as the changefeed's sink does."""
        with connect(self.databases.pair.source, self.databases.name) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def source_rows(self) -> list[tuple[Any, ...]]:
        with connect(self.databases.pair.source, self.databases.name) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT * FROM pay ORDER BY id")
            rows = list(cursor.fetchall())
            cursor.execute("SELECT * FROM city ORDER BY id")
            return rows + list(cursor.fetchall())

    def play(self, path: Path) -> list[int]:
        """Execute a script on the source as the client would; returns the rows that each statement changed."""
        changed = []
        with connect(self.databases.pair.source, self.databases.name) as connection, connection.cursor() as cursor:
            settings, *batches = transactions(path)
            for statement in settings:
                cursor.execute(statement)
            for batch in batches:
                cursor.execute("BEGIN")
                changed += [cursor.execute(statement) for statement in batch]
                cursor.execute("COMMIT")
        return changed


@pytest.fixture
def back(paid: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Back]:
    made = Back(paid, tmp_path, monkeypatch)
    made.start()
    with made.writer.marking():
        try:
            carry_something(made)
            yield made
        finally:
            made.process.kill()
            made.process.join()


def carry_something(back: Back) -> None:
    """Write a row there and back: without any row, nothing ties the changefeed to this target."""
    back.writer.write(("UPDATE pay SET note=CONCAT(note,'!') WHERE id=6", "pay", "6"))
    back.writer.write(("UPDATE pay SET note=LEFT(note,CHAR_LENGTH(note)-1) WHERE id=6", "pay", "6"))


def knows(back: Back, commit: int) -> Callable[[int, dict[str, Any]], bool]:
    """Whether the watch has read to a commit, and every table is compared: one may be read again as a whole first."""
    del back
    return lambda _, found: bool(found["complete"]) and found["as_of"]["tso"] >= commit


def lost(found: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {(row["table"].partition(".")[2], row["key"][0], row["kind"]) for row in found["rows"]}


def write_some(back: Back) -> int:
    """Five transactions, of which the source gets the first two; returns the timestamp of the first that is lost."""
    writer = back.writer
    writer.write(("INSERT INTO pay VALUES (100, 5, 'EUR', 'applied')", "pay", "100"))
    writer.write(("UPDATE city SET people=7 WHERE id='Bern'", "city", "Bern"))
    back.apply("INSERT INTO pay VALUES (100, 5, 'EUR', 'applied')", "UPDATE city SET people=7 WHERE id='Bern'")
    first = writer.write(
        ("INSERT INTO pay VALUES (101, 90071992547409931234567890.0001, 'EUR', 'new')", "pay", "101"),
        ("UPDATE pay SET amount=0.25, note='older there' WHERE id=3", "pay", "3"),
    )
    writer.write(("DELETE FROM pay WHERE id=4", "pay", "4"))
    writer.write(
        ("INSERT INTO pay VALUES (102, 1.5, 'USD', 'new')", "pay", "102"),
        ("UPDATE city SET people=9 WHERE id='Chur'", "city", "Chur"),
    )
    return first


EXPECTED = {
    ("pay", "101", "missing_on_source"), ("pay", "102", "missing_on_source"), ("pay", "3", "value_differs"),
    ("pay", "4", "missing_on_target"), ("city", "Chur", "value_differs"),
}  # fmt: skip


def test_loss_lists_exactly_the_rows_that_are_not_on_the_source_and_the_sql_makes_it_nothing(back: Back) -> None:
    clean = back.until(lambda code, _: code == 0)
    assert (clean["verdict"], clean["complete"], clean["keys"]) == ("MATCH", True, 0)
    first = write_some(back)
    rules = back.folder / "recon.yaml"
    rules.write_text(RULES.replace("DB", back.databases.name))
    found = back.until(knows(back, back.writer.commits[-1]), "--rules", str(rules))
    assert (found["verdict"], found["keys"]) == ("MISMATCH", 5)
    assert lost(found) == EXPECTED
    assert found["transactions_at_least"] == 3
    assert found["oldest"]["tso"] == first
    assert 0 < found["oldest_seconds"] < 60
    assert (found["watch"]["alive"], found["complete"]) == (True, True)
    assert found["unread_seconds"] < 10
    assert found["rows"][0]["first_commit"]["tso"] == first
    by_table = {t["source"].partition(".")[2]: t["keys"] for t in found["tables"]}
    assert by_table == {"pay": 4, "city": 1}
    (amounts,) = found["amounts"]
    assert amounts["rule"] == "paid"
    # 101 is new, 3 went from 3.25 to 0.25, 4 (4.25) is deleted.
    assert amounts["currencies"]["EUR"] == {
        "at_risk": "90071992547409931234567897.2501", "difference": "90071992547409931234567882.7501",
        "source": "7.5000", "target": "90071992547409931234567890.2501",
    }  # fmt: skip
    assert amounts["currencies"]["USD"]["at_risk"] == "1.5000"
    assert found["amounts_unstated"] == ["rule nameless defines no amount (money)"]

    sql, inverse = back.folder / "carry.sql", back.folder / "carry.inverse.sql"
    out = back.folder / "lost.jsonl"
    code, written = back.loss("--sql", str(sql), "--out", str(out), "--limit", "1")
    assert code == 1
    assert len(written["rows"]) == 1
    assert written["rows_left_out"] == 4
    assert {json.loads(line)["key"][0] for line in out.read_text().splitlines()} == {"101", "102", "3", "4", "Chur"}
    assert sql.stat().st_mode & 0o777 == out.stat().st_mode & 0o777 == 0o600
    assert "MIGVERIFY NEVER EXECUTES THIS FILE" in sql.read_text()
    (script,) = written["sql"]
    assert script["statements"] == {"missing_on_source": 2, "value_differs": 2, "missing_on_target": 1}
    assert script["without_statement"] == {}
    assert lost(back.loss()[1]) == EXPECTED  # writing the file changed nothing
    before = back.source_rows()
    assert sum(back.play(sql)) == 5
    assert sum(back.play(sql)) == 0  # again it changes nothing
    code, after = back.loss()
    assert (code, after["verdict"], after["keys"]) == (0, "MATCH", 0), after
    assert sum(back.play(inverse)) == 5
    assert back.source_rows() == before
    # A file that may have been applied is not written over.
    assert migverify("tables", "loss", "--config", str(back.config), "--sql", str(sql))[0] == 2


@pytest.mark.attack(
    "reverse", "a row of the source changes after the SQL that carries lost rows over was written",
    "its statement changes nothing, the others do",
)  # fmt: skip
def test_a_row_that_changes_after_the_file_was_written_is_left_alone(back: Back) -> None:
    write_some(back)
    back.until(knows(back, back.writer.commits[-1]))
    sql = back.folder / "carry.sql"
    assert back.loss("--sql", str(sql))[0] == 1
    back.apply("UPDATE pay SET note='somebody else' WHERE id=3")
    assert sum(back.play(sql)) == 4
    assert lost(back.loss()[1]) == {("pay", "3", "value_differs")}


@pytest.mark.attack(
    "reverse", "the reverse watch is killed while the target is written",
    "the loss is `at least` what it knew, never MATCH; after --resume it is whole",
)  # fmt: skip
def test_a_watch_that_was_killed_proves_nothing_and_one_that_goes_on_knows_all(back: Back) -> None:
    write_some(back)
    back.until(knows(back, back.writer.commits[-1]))
    back.stop(signal.SIGKILL)
    back.writer.write(("INSERT INTO pay VALUES (103, 1, 'EUR', 'while it was dead')", "pay", "103"))
    found = back.until(lambda _, found: not found["watch"]["alive"], "--max-unread", "2")
    assert (found["verdict"], found["complete"]) == ("MISMATCH", False)  # at least what it knew
    assert lost(found) == EXPECTED
    assert any("is not alive" in reason for reason in found["reasons"])
    back.apply(
        "INSERT INTO pay SELECT 101, 90071992547409931234567890.0001, 'EUR', 'new'",
        "UPDATE pay SET amount=0.25, note='older there' WHERE id=3", "DELETE FROM pay WHERE id=4",
        "INSERT INTO pay VALUES (102, 1.5, 'USD', 'new')", "UPDATE city SET people=9 WHERE id='Chur'",
    )  # fmt: skip
    code, found = back.loss("--max-unread", "2")
    assert (code, found["verdict"], found["keys"]) == (3, "INCONCLUSIVE", 0)
    back.resume()
    found = back.until(knows(back, back.writer.commits[-1]))
    assert lost(found) == {("pay", "103", "missing_on_source")}
    back.stop()
    code, found = back.loss()
    assert code == 1
    assert not found["complete"]
    assert any("has ended" in reason for reason in found["reasons"])


@pytest.mark.attack(
    "reverse", "the changefeed stalls while the loss is asked",
    "INCONCLUSIVE after --max-unread seconds",
)  # fmt: skip
def test_a_changefeed_that_stalls_makes_it_unknown(back: Back) -> None:
    back.until(lambda code, _: code == 0)
    back.writer.stalled.set()
    found = back.until(lambda code, _: code == 3, "--max-unread", "3")
    assert found["unread_seconds"] > 3
    assert any("changefeed was read to" in reason for reason in found["reasons"])
    back.writer.stalled.clear()
    back.until(lambda code, _: code == 0, "--max-unread", "3")


def test_text_names_the_timestamp_and_no_run_is_an_error(back: Back) -> None:
    write_some(back)
    back.until(knows(back, back.writer.commits[-1]))
    code, out, _ = migverify("tables", "loss", "--config", str(back.config), "--limit", "2")
    assert code == 1
    assert out.startswith("MISMATCH: 5 keys of at least 3 transactions would be lost, as of tso:")
    assert "1 key (1 older on the source)" in out
    assert "... 3 keys more" in out
    code, _, err = migverify("tables", "loss", "--config", str(back.config), "nosuchrun")
    assert code == 2
    assert "nosuchrun" in err


@pytest.mark.attack(
    "reverse", "a client writes the source behind the end of the forward watch",
    "`tables armed`: MISMATCH with the number of rows",
)  # fmt: skip
def test_a_rollback_is_armed_when_nothing_is_between_the_two_watches(
    paid: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = Back(paid, tmp_path, monkeypatch)
    config = ("--config", str(back.config))
    verified = verify(back.config).run_id
    drain = ("--until-drained", "--timeout", "60", "--json")
    code, out, err = migverify("tables", "watch", *config, "--since", verified, *drain)
    assert code == 0, err
    forward = json.loads(out.splitlines()[-1])["run_id"]

    def armed(*options: str) -> tuple[int, dict[str, Any]]:
        code, out, err = migverify("tables", "armed", *config, "--json", *options)
        return code, json.loads(out) if out else {"error": err}

    assert armed()[0] == 2  # there is no reverse watch
    back.start(forward)
    with back.writer.marking():
        try:
            carry_something(back)
            deadline = time.monotonic() + 60
            while (found := armed())[0] != 0 and time.monotonic() < deadline:
                time.sleep(0.2)
            code, document = found
            assert (code, document["verdict"]) == (0, "MATCH"), document
            assert (document["forward"], document["run"]) == (forward, back.run)
            assert (document["unread_rows"], document["unread_statements"]) == (0, 0)
            code, out, _ = migverify("status", *config, "--json")
            both = json.loads(out)["directions"]
            assert (code, both["forward"]["run"], both["reverse"]["run"]) == (0, forward, back.run)
            assert both["hand_over"]["verdict"] == "MATCH", both
            # A client that was not stopped writes the source: the rows are between the two watches.
            back.apply("UPDATE pay SET note='late' WHERE id=5", "INSERT INTO pay VALUES (500, 1, 'EUR', 'late')")
            code, document = armed()
            assert (code, document["verdict"], document["unread_rows"]) == (1, "MISMATCH", 3)
            assert "written on the sources behind the end of watch" in "; ".join(document["reasons"])
            code, out, _ = migverify("tables", "armed", *config)
            assert out.startswith("MISMATCH: no rollback is armed, as of tso:")
            back.stop(signal.SIGKILL)
            deadline = time.monotonic() + 60
            while armed("--max-unread", "2")[1]["watch"]["alive"] and time.monotonic() < deadline:
                time.sleep(0.2)
            assert armed("--max-unread", "2")[1]["watch"]["alive"] is False
        finally:
            back.process.kill()
            back.process.join()


def test_rows_of_every_type_and_of_renamed_columns_are_carried_over(
    databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = EVERYTHING.replace("a INT, b VARCHAR(20)", "id VARCHAR(20)").replace("(a, b)", "(id)")
    databases.both(everything.format(collation="utf8mb4_bin"))
    name, pair = databases.name, databases.pair
    execute(pair.source, "CREATE TABLE ren (id INT PRIMARY KEY, old VARCHAR(20), more INT)", database=name)
    execute(pair.target, "CREATE TABLE ren (id INT PRIMARY KEY, new VARCHAR(20), more INT)", database=name)
    for server in (pair.source, pair.target):
        execute(server, "INSERT INTO ren VALUES (1, 'x', 1), (2, 'y', 2)", database=name)
    overrides = [{"table": f"{name}.ren", "rename": {"old": "new"}}]
    back = Back(databases, tmp_path, monkeypatch, overrides=overrides)
    back.start()
    with back.writer.marking():
        try:
            settings = "SET SESSION sql_mode='ALLOW_INVALID_DATES'"
            row = RICH.replace("{a},{b}", "'k é'").format(bit="0" * 63, text="27005C0AF09F9880", label="'b,c'")
            columns = COLUMNS.replace("a,b,", "id,", 1)
            back.writer.write(
                (settings, "everything", "k é"),
                (f"INSERT INTO everything ({columns}) VALUES {row}", "everything", "k é"),
                ("UPDATE ren SET new='it''s new' WHERE id=1", "ren", "1"), ("DELETE FROM ren WHERE id=2", "ren", "2"),
                ("INSERT INTO ren VALUES (3, NULL, NULL)", "ren", "3"),
            )  # fmt: skip
            found = back.until(knows(back, back.writer.commits[-1]))
            assert found["keys"] == 4, found
            sql = tmp_path / "carry.sql"
            code, found = back.loss("--sql", str(sql))
            assert (code, found["sql"][0]["without_statement"]) == (1, {})
            assert sum(back.play(sql)) == 4
            assert back.loss()[0] == 0
            assert execute(pair.source, "SELECT * FROM ren ORDER BY id", database=name) == [
                (1, "it's new", 1), (3, None, None),
            ]  # fmt: skip
            assert verify(back.config).verdict is Verdict.MATCH
            assert sum(back.play(tmp_path / "carry.inverse.sql")) == 4
            assert execute(pair.source, "SELECT * FROM ren ORDER BY id", database=name) == [(1, "x", 1), (2, "y", 2)]
        finally:
            back.process.kill()
            back.process.join()

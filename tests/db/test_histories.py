"""DDL and writes on either side beside a verification: MATCH only where it is true."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

import pymysql
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pymysql.constants import ER

from migverify.db.reader import Reader
from migverify.db.session import Row, Session
from migverify.errors import MigverifyError
from migverify.model import Verdict
from migverify.tables import run as tables_run
from migverify.tables.outcome import MOVES
from migverify_lab.session import connect
from tests.conftest import Databases
from tests.db.reconciling import reconcile
from tests.db.verifying import Ending, fill, verify, write_config

pytestmark = pytest.mark.db

ROWS = 3000


class Interrupted:
    """Runs steps before the reads of a verification: step ``n`` before read ``n`` of its side."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, steps: dict[tuple[str, int], Callable[[], None]]) -> None:
        self.steps, self.reads, self._lock = dict(steps), {"source": 0, "target": 0}, threading.Lock()
        read = Reader.query

        def query(reader: Reader, text: str) -> list[tuple[bytes | None, ...]]:
            with self._lock:
                side = reader.side.endpoint.name
                self.reads[side] += 1
                step = self.steps.pop((side, self.reads[side]), None)
                if step is not None:
                    step()
            return read(reader, text)

        monkeypatch.setattr(Reader, "query", query)


def run(databases: Databases, side: str, *statements: str) -> None:
    server = databases.pair.source if side == "source" else databases.pair.target
    with connect(server, databases.name) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


COPY = ("CREATE TABLE o LIKE t", "INSERT INTO o SELECT * FROM t", "UPDATE o SET v='other' WHERE id<=400")
"""Another table, whose rows differ in the first chunk only: that one is read before it comes into place."""

REPLACED = {
    "swap": ("RENAME TABLE t TO t_old, o TO t",),
    "swap and back": ("RENAME TABLE t TO t_old, o TO t", "RENAME TABLE t TO o, t_old TO t"),
    "drop and rename": ("DROP TABLE t", "RENAME TABLE o TO t"),
    "drop and create": (
        "DROP TABLE t", "CREATE TABLE t LIKE o", "INSERT INTO t SELECT * FROM o",
    ),
    "truncate": ("TRUNCATE TABLE t", "INSERT INTO t SELECT * FROM o"),
    "new column": ("ALTER TABLE t ADD COLUMN more INT", "UPDATE t SET more=id"),
}  # fmt: skip


def table_config(databases: Databases, tmp_path: Path, include: Sequence[str] = ()) -> Path:
    tables = {"include": list(include) or [f"{databases.name}.t"]}
    return write_config(tmp_path, databases.pair, databases.name, tables=tables)


def verified(databases: Databases, tmp_path: Path, include: Sequence[str] = ()) -> Ending:
    return verify(table_config(databases, tmp_path, include))


@pytest.mark.attack(
    "tables", "the table is replaced, emptied or altered on one side in the middle of a verification",
    "INCONCLUSIVE with what changed; never MATCH",
)  # fmt: skip
@pytest.mark.parametrize(
    ("side", "how"), [*(("source", how) for how in sorted(REPLACED)), ("target", "swap"), ("target", "new column")]
)
def test_a_table_that_changes_its_identity_while_it_is_verified_is_never_match(
    databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str, how: str
) -> None:
    fill(databases.pair, databases.name, ROWS)
    for end in ("source", "target"):
        run(databases, end, *COPY)
    first, *later = REPLACED[how]
    steps = {(side, 3): lambda: run(databases, side, first, *(() if "back" in how else later))}
    if "back" in how:
        steps[side, 4] = lambda: run(databases, side, *later)
    interrupted = Interrupted(monkeypatch, steps)
    end = verified(databases, tmp_path)
    assert not interrupted.steps
    assert end.verdict is Verdict.INCONCLUSIVE
    assert f"{side}: {databases.name}.t" in end.reasons
    assert ("columns changed" if how == "new column" else "was replaced or rebuilt") in end.reasons
    assert "more" in end.reasons or how != "new column"


def test_a_table_that_nobody_touched_matches(databases: Databases, tmp_path: Path) -> None:
    fill(databases.pair, databases.name, ROWS)
    databases.source("CREATE TABLE p (id INT PRIMARY KEY, v INT) PARTITION BY HASH (id) PARTITIONS 3")
    databases.target("CREATE TABLE p (id INT PRIMARY KEY, v INT) PARTITION BY HASH (id) PARTITIONS 3")
    databases.both("INSERT INTO p SELECT id, n FROM t")
    end = verified(databases, tmp_path, include=[f"{databases.name}.*"])
    assert end.verdict is Verdict.MATCH, end.reasons
    for result in end.results.values():
        assert isinstance(result.details["stamps"], list)
        assert all("?" not in stamp for stamp in result.details["stamps"])


def test_opposite_moves_between_ranges_are_said_in_the_verdict(
    own_databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that differs leaves a range before it is read while another comes: the count is right, so MATCH says it.

    On servers of its own: what other tests write is a source that does not stand still.
    """
    fill(own_databases.pair, own_databases.name, ROWS)
    config = table_config(own_databases, tmp_path)
    own_databases.target("UPDATE t SET v='planted' WHERE id=2900")
    moves = ("UPDATE t SET id=-1 WHERE id=2900", "UPDATE t SET id=9000 WHERE id=10")
    spots = {}

    def move() -> None:
        for side in ("source", "target"):
            run(own_databases, side, *moves)

    for written in (True, False):
        with monkeypatch.context() as patched:
            interrupted = Interrupted(patched, {("source", 4): move} if written else {})
            end = verify(config, slots=1)
        assert not interrupted.steps
        spots[written] = MOVES in end.results[f"{own_databases.name}.t"].blind_spots
        assert end.verdict is (Verdict.MATCH if written else Verdict.MISMATCH)
    assert spots == {True: True, False: False}


def test_an_exchanged_partition_is_never_match(
    databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(databases.pair, databases.name, ROWS)
    for side in ("source", "target"):
        run(
            databases, side,
            "CREATE TABLE p (id BIGINT PRIMARY KEY, v VARCHAR(60) NOT NULL, n INT)"
            " PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (1000), PARTITION p1 VALUES LESS THAN MAXVALUE)",
            "INSERT INTO p SELECT * FROM t", "CREATE TABLE o LIKE t",
            "INSERT INTO o SELECT id, 'other', n FROM t WHERE id < 1000",
        )  # fmt: skip
    for side in ("source", "target"):
        exchange = "ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE o"
        with monkeypatch.context() as patched:
            Interrupted(patched, {(side, 4): partial(run, databases, side, exchange)})
            end = verified(databases, tmp_path, [f"{databases.name}.p"])
        run(databases, side, exchange)  # back again
        assert end.verdict is Verdict.INCONCLUSIVE
        assert f"{side}: {databases.name}.p was replaced or rebuilt" in end.reasons


def test_a_table_without_a_key_is_watched_too(
    databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    databases.both("CREATE TABLE t (a INT, v VARCHAR(9))", "INSERT INTO t VALUES (1, 'x'), (2, 'y')",
                   "CREATE TABLE o LIKE t", "INSERT INTO o VALUES (1, 'x'), (2, 'z')")  # fmt: skip
    Interrupted(monkeypatch, {("source", 2): lambda: run(databases, "source", *REPLACED["drop and rename"])})
    databases.target("UPDATE t SET v='z' WHERE a=2")
    end = verified(databases, tmp_path)
    assert end.verdict is not Verdict.MATCH


def test_a_run_that_is_resumed_reads_the_same_tables_or_says_so(
    databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(databases.pair, databases.name, ROWS)
    run(databases, "source", *COPY)

    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    monkeypatch.setattr(tables_run, "LOCAL_BUDGET_SECONDS", 0.0)  # a chunk a task: some are recorded before the end
    runs: list[str] = []
    with monkeypatch.context() as patched:
        Interrupted(patched, {("source", 4): die})
        with pytest.raises(Killed):
            verify(table_config(databases, tmp_path), on_start=runs.append)
    run(databases, "source", *REPLACED["swap"])
    end = verify(table_config(databases, tmp_path), resume=runs[0])
    assert end.verdict is Verdict.INCONCLUSIVE
    assert "was replaced or rebuilt" in end.reasons
    again = verify(table_config(databases, tmp_path), recheck=runs[0])
    assert again.verdict is Verdict.MISMATCH  # nothing of the other table was taken over
    assert len(again.diffs) == 400


def test_immutable_rows_proved_in_another_table_are_no_proof(databases: Databases, tmp_path: Path) -> None:
    fill(databases.pair, databases.name, ROWS)
    databases.both("ALTER TABLE t ADD COLUMN at DATE", "UPDATE t SET at=IF(id<=1000, '2020-01-01', '2026-06-01')")
    run(databases, "source", *COPY)
    name = f"{databases.name}.t"
    override = [{"table": name, "immutable_before": {"column": "at", "value": "2026-01-01"}}]
    config = write_config(tmp_path, databases.pair, databases.name, tables={"include": [name]}, overrides=override)
    assert verify(config).verdict is Verdict.MATCH
    assert verify(config).verdict is Verdict.MATCH
    run(databases, "source", *REPLACED["swap"])
    end = verify(config)
    assert end.verdict is Verdict.INCONCLUSIVE
    assert "--full" in end.reasons


@pytest.mark.attack(
    "tables", "the table is replaced while a user without the PROCESS privilege verifies it",
    "recognized by its time of creation; what that cannot see is said in the blind spots",
)  # fmt: skip
def test_without_the_process_privilege_the_time_of_creation_tells_tables_apart(
    databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(databases.pair, databases.name, ROWS)
    user = f"low_{databases.name[-10:]}"
    databases.source(f"CREATE USER {user}", f"GRANT SELECT ON `{databases.name}`.* TO {user}")
    wait_for_the_next_second(databases)
    run(databases, "source", *COPY)
    server = databases.pair.source
    source = {"url": f"mysql://{user}@{server.host}:{server.port}"}
    tables = {"include": [f"{databases.name}.t"]}
    config = write_config(tmp_path, databases.pair, databases.name, tables=tables, source=source)
    Interrupted(monkeypatch, {("source", 3): lambda: run(databases, "source", *REPLACED["swap"])})
    end = verify(config)
    databases.source(f"DROP USER {user}")
    assert end.verdict is Verdict.INCONCLUSIVE
    assert "was replaced or rebuilt" in end.reasons
    assert "made in the same second" in " ".join(end.results[f"{databases.name}.t"].blind_spots)


def wait_for_the_next_second(databases: Databases) -> None:
    made = databases.source("SELECT CREATE_TIME FROM information_schema.TABLES WHERE TABLE_NAME='t'"
                            f" AND TABLE_SCHEMA='{databases.name}'")[0][0]  # fmt: skip
    while databases.source("SELECT NOW()")[0][0] <= made:
        time.sleep(0.05)


# --- random histories ------------------------------------------------------------------------------------------------

SMALL = 1200
STEPS = {
    "swap": "RENAME TABLE t TO spare, o TO t, spare TO o",
    "swap and back": "RENAME TABLE t TO spare, o TO t, spare TO o; RENAME TABLE t TO spare, o TO t, spare TO o",
    "drop and create": "DROP TABLE t; CREATE TABLE t LIKE o; INSERT INTO t SELECT * FROM o",
    "truncate": "TRUNCATE TABLE t; INSERT INTO t (id, v, n) SELECT id, v, n FROM o",
    "add column": "ALTER TABLE t ADD COLUMN more{c} INT; UPDATE t SET more{c}=id",
    "add index": "ALTER TABLE t ADD INDEX (n)",
    "update": "UPDATE t SET v='written' WHERE id BETWEEN {a} AND {a}+20",
    "update and back": "UPDATE t SET n=n+1 WHERE id={a}; UPDATE t SET n=n-1 WHERE id={a}",
    "delete": "DELETE FROM t WHERE id={a}",
    "insert": "REPLACE INTO t (id, v, n) VALUES ({a}+100000, 'new', 1)",
    "move": "UPDATE t SET id={a}+200000 WHERE id={a}; UPDATE t SET id={b}-200000 WHERE id={b}",
}  # fmt: skip
"""What happens to a side at once; ``;`` separates statements. The table o has rows of its own."""
NUMBERS = itertools.count()
OTHER_TABLE = {"swap", "drop and create", "truncate", "add column"}

Happening = tuple[str, str, int, int, int]
"""A step of ``STEPS``, the side or ``both``, before which read of the source it happens, and two keys."""

HAPPENINGS = st.lists(
    st.tuples(
        st.sampled_from(sorted(STEPS)), st.sampled_from(["source", "target", "both"]), st.integers(1, 7),
        st.integers(1, SMALL), st.integers(1, SMALL),
    ),
    max_size=4, unique_by=lambda found: found[2],
)  # fmt: skip


class Truth:
    """What the rows of both sides were after every step: which keys were equal, or different, at some moment."""

    def __init__(self, databases: Databases) -> None:
        self.databases = databases
        self.source_written = False
        self.moments: list[tuple[dict[int, tuple[object, ...]], dict[int, tuple[object, ...]]]] = []

    def look(self) -> None:
        sides = [self._rows(read) for read in (self.databases.source, self.databases.target)]
        self.moments.append((sides[0], sides[1]))

    @staticmethod
    def _rows(read: Callable[[str], list[tuple[Any, ...]]]) -> dict[int, tuple[object, ...]]:
        try:
            return {row[0]: row for row in read("SELECT id, v, n FROM t")}
        except pymysql.err.ProgrammingError as error:
            if error.args[0] != ER.NO_SUCH_TABLE:
                raise
            return {}

    def never_equal(self) -> set[int]:
        return {k for k in self._keys() if all(a.get(k) != b.get(k) for a, b in self.moments)}

    def ever_different(self) -> set[int]:
        return {k for k in self._keys() if any(a.get(k) != b.get(k) for a, b in self.moments)}

    def _keys(self) -> set[int]:
        return {key for sides in self.moments for side in sides for key in side}


def begin_history(databases: Databases, planted: int | None) -> Truth:
    """Make the tables of a history anew, with a row that differs or without; returns its truth, looked at once."""
    databases.both("DROP TABLE IF EXISTS t, o, spare")
    fill(databases.pair, databases.name, SMALL)
    for side in ("source", "target"):
        run(databases, side, *COPY)
    if planted is not None:
        databases.target(f"UPDATE t SET v='planted' WHERE id={planted}")
    truth = Truth(databases)
    truth.look()
    return truth


def run_history(
    databases: Databases, tmp_path: Path, planted: int | None, happenings: Sequence[Happening]
) -> tuple[Verdict, str]:
    """Verify while steps happen; returns the verdict, and what is false about it (empty: nothing)."""
    truth = begin_history(databases, planted)
    crossed: list[tuple[str, int]] = []
    interrupted: Interrupted

    def happen(step: str, sides: str, a: int, b: int) -> None:
        for side in ("source", "target") if sides == "both" else (sides,):
            run(databases, side, *STEPS[step].format(a=a, b=b, c=next(NUMBERS)).split("; "))
            truth.source_written |= side == "source"
            if step in OTHER_TABLE:
                crossed.append((side, interrupted.reads[side]))
        truth.look()

    with pytest.MonkeyPatch.context() as patched:
        steps = {("source", read): partial(happen, step, sides, a, b) for step, sides, read, a, b in happenings}
        interrupted = Interrupted(patched, steps)  # type: ignore[arg-type]
        config = write_config(
            tmp_path, databases.pair, databases.name, tables={"include": [f"{databases.name}.t"]},
            limits={"chunk_rows": 256, "max_chunk_rows": 256},
        )  # fmt: skip
        end = verify(config, slots=1)
    # The read that was counted last may have come before or after the step; one more before and behind is certain.
    mixed = [side for side, before in crossed if before >= 2 and interrupted.reads[side] > before]
    if end.verdict is Verdict.MATCH and truth.never_equal():
        return end.verdict, f"MATCH, and never equal: {sorted(truth.never_equal())[:5]}"
    result = end.results[f"{databases.name}.t"]
    if end.verdict is Verdict.MATCH and truth.source_written and MOVES not in result.blind_spots:
        return end.verdict, "MATCH, and the verdict does not say what a run beside writes cannot see"
    if end.verdict is Verdict.MATCH and mixed:
        return end.verdict, f"MATCH over two tables of the {mixed}"
    wrong = {int(key[0] or "") for _, key in end.diffs} - truth.ever_different()
    if wrong:
        return end.verdict, f"row diffs of rows that were always equal: {sorted(wrong)[:5]}"
    if not happenings and end.verdict is not (Verdict.MATCH if planted is None else Verdict.MISMATCH):
        return end.verdict, f"nothing happened, and the verdict is {end.verdict}: {end.reasons}"
    return end.verdict, ""


@pytest.mark.attack(
    "tables", "random histories of DDL, writes and moves of keys on either side or both beside a verification",
    "MATCH only where every row was equal at some moment and all reads were of one table; no row diff of an equal row",
)  # fmt: skip
@pytest.mark.parametrize("histories", [5, pytest.param(200, marks=pytest.mark.soak)])
def test_no_history_beside_a_verification_makes_a_false_verdict(
    databases: Databases, tmp_path: Path, histories: int
) -> None:
    verdicts: Counter[str] = Counter()

    @settings(max_examples=histories, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(planted=st.none() | st.integers(1, SMALL), happenings=HAPPENINGS)
    def check(planted: int | None, happenings: list[Happening]) -> None:
        verdict, false = run_history(databases, tmp_path, planted, happenings)
        verdicts[verdict.value] += 1
        assert not false, (planted, happenings)

    check()
    print(f"{sum(verdicts.values())} histories: {dict(verdicts)}")  # noqa: T201 - the figures of a soak
    assert verdicts


# --- the same histories beside recon ---------------------------------------------------------------------------------

RULES = """version: recon/v1
defaults: {{settle: 0s, rereads: 2, delay: 20ms, owner: ann}}
datasets:
  ours: {{endpoint: source, table: "{d}.t", key: [id]}}
  theirs: {{endpoint: target, table: "{d}.t", key: [id]}}
rules:
  - {{name: rows, kind: same_rows, source: ours, target: theirs, compare: [v, n]}}
  - {{name: groups, kind: same_groups, source: ours, target: theirs, groups: [n], measures: [count, 'checksum(id, v)']}}
"""
STEP_SECONDS = 1.0


class Beside:
    """Runs steps before reads of t on the source. One that waits for a read's transaction to end goes on behind it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, steps: dict[int, Callable[[], None]]) -> None:
        self.steps, self.reads, self._lock = dict(steps), 0, threading.Lock()
        self.thread = ThreadPoolExecutor(1)
        self.begun: list[Future[None]] = []
        rows, stream = Session.query_bytes, Session.stream

        def query_bytes(session: Session, sql: str) -> list[Row]:
            self.before(session, sql)
            return rows(session, sql)

        def streamed(session: Session, sql: str, rows_at_once: int = 1000) -> Iterator[Row]:
            self.before(session, sql)
            return stream(session, sql, rows_at_once)

        monkeypatch.setattr(Session, "query_bytes", query_bytes)
        monkeypatch.setattr(Session, "stream", streamed)

    def before(self, session: Session, sql: str) -> None:
        if session.endpoint.name != "source" or ".`t`" not in sql:
            return
        with self._lock:
            self.reads += 1
            step = self.steps.pop(self.reads, None)
            if step is not None:
                self.begun.append(self.thread.submit(step))
                wait(self.begun, timeout=STEP_SECONDS)

    def end(self) -> None:
        """Wait for the last step; raises what one raised."""
        self.thread.shutdown(wait=True)
        for step in self.begun:
            step.result()


def run_recon_history(
    databases: Databases, tmp_path: Path, planted: int | None, happenings: Sequence[Happening]
) -> tuple[str, str, int]:
    """Evaluate rules while steps happen; returns verdict, what is false about it (empty: nothing), and how many did."""
    truth = begin_history(databases, planted)

    def happen(step: str, sides: str, a: int, b: int) -> None:
        for side in ("source", "target") if sides == "both" else (sides,):
            for statement in STEPS[step].format(a=a, b=b, c=next(NUMBERS)).split("; "):
                run(databases, side, statement)
                truth.look()

    config = write_config(tmp_path, databases.pair, databases.name)
    rules = tmp_path / "recon.yaml"
    rules.write_text(RULES.format(d=databases.name))
    with pytest.MonkeyPatch.context() as patched:
        beside = Beside(patched, {read: partial(happen, step, sides, a, b) for step, sides, read, a, b in happenings})
        try:
            end = reconcile(config, rules)
        except MigverifyError as error:
            return f"refused: {type(error).__name__}", "", len(beside.begun)  # no run, so no verdict
        finally:
            beside.end()
    never, verdict, steps = truth.never_equal(), str(end.verdict), len(beside.begun)
    false = [name for name, result in end.results.items() if result.verdict is Verdict.MATCH]
    if false and never:
        return verdict, f"{false} MATCH, and never equal: {sorted(never)[:5]}", steps
    wrong = {int(key[0] or "") for key in end.findings["rows"]} - truth.ever_different()
    if wrong:
        return verdict, f"findings of rows that were always equal: {sorted(wrong)[:5]}", steps
    if not happenings and end.verdict is not (Verdict.MATCH if planted is None else Verdict.MISMATCH):
        return verdict, f"nothing happened, and the verdict is {verdict}: {end.reasons()}", steps
    return verdict, "", steps


@pytest.mark.attack(
    "recon", "random histories of DDL, writes and moves of keys on either side or both beside a run of rules",
    "MATCH only where every row was equal at some moment; no finding of an equal row",
)  # fmt: skip
@pytest.mark.parametrize("histories", [4, pytest.param(200, marks=pytest.mark.soak)])
def test_no_history_beside_recon_makes_a_false_verdict(databases: Databases, tmp_path: Path, histories: int) -> None:
    verdicts: Counter[str] = Counter()
    happened: list[int] = []

    @settings(max_examples=histories, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(planted=st.none() | st.integers(1, SMALL), happenings=HAPPENINGS)
    def check(planted: int | None, happenings: list[Happening]) -> None:
        verdict, false, steps = run_recon_history(databases, tmp_path, planted, happenings)
        verdicts[verdict] += 1
        happened.append(steps)
        assert not false, (planted, happenings)

    check()
    print(f"{sum(verdicts.values())} histories with {sum(happened)} steps: {dict(verdicts)}")  # noqa: T201 - the figures of a soak
    assert verdicts

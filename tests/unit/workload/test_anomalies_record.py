"""What a replay's statements read and wrote: only what is certain has a value, and nothing that writes is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from migverify.cli.main import run as run_command
from migverify.errors import PlanError, UsageError
from migverify.model import Side
from migverify.workload.anomalies.check import check_history
from migverify.workload.anomalies.history import read_history
from migverify.workload.anomalies.model import AnomalyName, Commitment, OperationKind
from migverify.workload.anomalies.record import write_histories
from migverify.workload.anomalies.statements import HistoryReading, operations
from migverify.workload.meaning import Meanings
from migverify.workload.replay.model import Answer, Call, Captured, TimedAnswer
from migverify.workload.replay.outcomes import Outcomes, SeenAnswer, begin_seeing, seen_answers
from migverify.workload.replay.runfile import (
    COMMITS,
    FIRST_OF_UNIT,
    WRITES,
    PlannedCall,
    RunFile,
    RunFileWriter,
)
from migverify.workload.replay.touches import TableKeys
from migverify.workload.replay.value_codes import value_hash
from migverify.workload.state import SessionState
from tests.unit.replaying import INT, TEXT, answer, column, failed

KEYS = {
    "d.t": TableKeys(("id",), columns=("id", "n", "name", "price", "twice"), integers=frozenset({"id", "n", "twice"}),
                     texts=frozenset({"name"}), generated=frozenset({"twice"})),
    "d.names": TableKeys(("name",), columns=("name", "n"), integers=frozenset({"n"}), texts=frozenset({"name"})),
    "d.child": TableKeys(("id",), related=("d.t",), columns=("id", "n"), integers=frozenset({"id", "n"})),
    "d.watched": TableKeys(("id",), triggers=True, columns=("id", "n"), integers=frozenset({"id", "n"})),
}  # fmt: skip
_meanings = Meanings("mysql")


def asked(sql: str, seen: SeenAnswer) -> list[str]:
    """Return what a statement did, as ``r|w key value``; ``?`` for a value that is not known, ``-`` for no row."""
    call = Call("s", 0, sql.encode(), "", SessionState(database="d"))
    planned = PlannedCall(0, call, _meanings.meaning(call.sql), "", 0, 0, 0, 0, 0)
    names = {value_hash(value): value.decode() for value in (b"5", b"7", b"ann", b"-3", b"1", b"2", b"a b")}
    made = []
    for each in operations(planned, seen, KEYS, HistoryReading(mask=False)):
        value = "?" if not each.known else ("-" if each.value is None else names.get(each.value, each.value))
        made.append(f"{'r' if each.kind is OperationKind.READ else 'w'} {each.key} {value}")
    return made


def test_padded_values_are_not_compared_with_what_was_written() -> None:
    call = Call("s", 0, b"SELECT n FROM t WHERE id = 1", "", SessionState("d", sql_mode="PAD_CHAR_TO_FULL_LENGTH"))
    planned = PlannedCall(0, call, _meanings.meaning(call.sql), "", 0, 0, 0, 0, 0)
    assert not list(operations(planned, read(("5",), columns=("n",)), KEYS, HistoryReading(mask=False)))


def wrote(affected: int = 1, warnings: int = 0) -> SeenAnswer:
    return SeenAnswer(1, 2, False, 0, affected, warnings)


def read(*rows: tuple[str, ...], columns: tuple[str, ...] = ("id", "n")) -> SeenAnswer:
    return SeenAnswer(1, 2, False, 0, 0, 0, columns, tuple(tuple(value_hash(v.encode()) for v in row) for row in rows))


@pytest.mark.parametrize(("sql", "seen", "expected"), [
    ("UPDATE t SET n = 5 WHERE id = 1", wrote(), ["w d.t/1/n 5"]),
    ("UPDATE t x SET x.n = '5', `name`='ann' WHERE x.id = 1", wrote(), ["w d.t/1/n ?", "w d.t/1/name ann"]),
    ("UPDATE t SET n = n + 1 WHERE id = 1", wrote(), ["w d.t/1/n ?"]),
    ("UPDATE t SET n = IF(1,2,3), name = 'a b' WHERE id = 1", wrote(), ["w d.t/1/n ?", "w d.t/1/name a b"]),
    ("UPDATE t SET n = NULL WHERE id IN (1, 2)", wrote(2), ["w d.t/1/n NULL", "w d.t/2/n NULL"]),
    ("UPDATE t SET n = 5 WHERE id IN (1, 2)", wrote(1), ["w d.t/* ?"]),
    ("UPDATE t SET n = 5 WHERE id = 1 AND name = 'x'", wrote(0), []),
    ("UPDATE t SET n = 5 WHERE id = 1", wrote(1, warnings=1), ["w d.t/* ?"]),
    ("UPDATE t SET price = 5 WHERE id = 1", wrote(), []),
    ("UPDATE t SET name = 'x ' WHERE id = 1", wrote(), ["w d.t/1/name ?"]),
    ("UPDATE t SET n = 5 WHERE name = 'ann'", wrote(), ["w d.t/* ?"]),
    ("UPDATE t SET n = 5", wrote(9), ["w d.t/* ?"]),
    ("UPDATE t, child SET t.n = 5 WHERE t.id = 1", wrote(), ["w d.t/* ?", "w d.child/* ?"]),
    ("UPDATE a_view SET n = 5 WHERE id = 1", wrote(), ["w * ?"]),
    ("UPDATE names SET n = 5 WHERE name = 'ann'", wrote(), ["w d.names/* ?"]),
    ("UPDATE child SET n = 5 WHERE id = 1", wrote(), ["w d.t/* ?", "w d.child/1/n 5"]),
    ("UPDATE watched SET n = 5 WHERE id = 1", wrote(), ["w * ?"]),
    ("CALL something()", wrote(0), ["w * ?"]),
    ("DELETE FROM t WHERE id = 1", wrote(), ["w d.t/1 -", "w d.t/1/n -", "w d.t/1/name -"]),
    ("DELETE FROM t WHERE id = 1", wrote(0), []),
    ("DELETE FROM t WHERE n > 1", wrote(3), ["w d.t/* ?"]),
    ("INSERT INTO t (id, n) VALUES (1, 5)", wrote(), [
        "r d.t/1 -", "r d.t/1/n -", "r d.t/1/name -", "w d.t/1 present", "w d.t/1/n 5", "w d.t/1/name ?"]),
    ("INSERT INTO t VALUES (1, 5, 'ann', 3, 4)", wrote(), [
        "r d.t/1 -", "r d.t/1/n -", "r d.t/1/name -", "w d.t/1 present", "w d.t/1/n 5", "w d.t/1/name ann"]),
    ("INSERT INTO t (id, n) VALUES (1, 5), (2, 5)", wrote(2), ["w d.t/* ?"]),
    ("INSERT IGNORE INTO t (id, n) VALUES (1, 5)", wrote(0), ["w d.t/* ?"]),
    ("REPLACE INTO t (id, n) VALUES (1, 5)", wrote(2), ["w * ?"]),
    ("INSERT INTO t (id, n) VALUES (1, 5) ON DUPLICATE KEY UPDATE n = 5", wrote(2), ["w d.t/* ?"]),
    ("INSERT INTO t (n) VALUES (5)", wrote(), ["w d.t/* ?"]),
    ("SELECT id, n FROM t WHERE id = 1", read(("1", "5")), ["r d.t/1 present", "r d.t/1/n 5"]),
    ("SELECT * FROM t WHERE id = 1", read(("1", "ann", "7"), columns=("id", "name", "twice")),
     ["r d.t/1 present", "r d.t/1/name ann"]),
    ("SELECT n AS m FROM t WHERE id = 1 FOR UPDATE", read(("5",), columns=("n",)), ["r d.t/1 present", "r d.t/1/n 5"]),
    ("SELECT n FROM t WHERE id = 1", read(columns=("n",)), ["r d.t/1 -", "r d.t/1/n -"]),
    ("SELECT n FROM t WHERE id = 1 AND name = 'x'", read(columns=("n",)), []),
    ("SELECT n FROM t WHERE id = 1 LIMIT 1 OFFSET 1", read(columns=("n",)), []),
    ("SELECT n + 1 FROM t WHERE id = 1", read(("5",), columns=("n",)), []),
    ("SELECT MAX(n) FROM t WHERE id = 1", read(("5",), columns=("n",)), []),
    ("SELECT id, n FROM t WHERE id IN (1, 2)", read(("2", "5")), ["r d.t/2 present", "r d.t/2/n 5", "r d.t/1 -",
                                                                  "r d.t/1/n -"]),
    ("SELECT n FROM t WHERE id IN (1, 2)", read(("5",), columns=("n",)), []),
    ("SELECT id, n FROM t WHERE n = 5", read(("2", "5")), []),
    ("SELECT t.n FROM t JOIN u ON t.id = u.id WHERE t.id = 1", read(("5",), columns=("n",)), []),
    ("SELECT name, n FROM names WHERE name = 'ann'", read(("ann", "5"), columns=("name", "n")), []),
    ("SELECT 1", read(("1",), columns=("",)), []),
])  # fmt: skip
def test_what_a_statement_did(sql: str, seen: SeenAnswer, expected: list[str]) -> None:
    assert sorted(asked(sql, seen)) == sorted(expected)


# --- transactions of a run file ------------------------------------------------------------------------------

BALANCE = "SELECT n FROM t WHERE id = 1"


def run_of(folder: Path, *calls: tuple[str, str, object], captured: int | None = None) -> RunFile:
    """Make a run file of (session, SQL, answer) in the order in which they were asked; None was cut off."""
    writer = RunFileWriter(folder)
    numbers = {}
    for session in dict.fromkeys(name for name, *_ in calls):
        open_transaction, position = False, 0
        for at, (name, sql, _) in enumerate(calls):
            if name != session:
                continue
            meaning = _meanings.meaning(sql.encode())
            found, word = meaning.classification, meaning.classification.words[0]
            flags = 0 if open_transaction and word != "BEGIN" else FIRST_OF_UNIT
            flags |= WRITES if found.may_write or found.locking else 0
            flags |= COMMITS if word in ("COMMIT", "ROLLBACK", "BEGIN") or found.kind.value == "ddl" else 0
            state = SessionState(database="d", isolation="REPEATABLE-READ", transaction=open_transaction)
            call = Call(session, position, sql.encode(), "", state, Captured(captured))
            numbers[at] = writer.add(call, meaning, "", at, at, flags)
            position += 1
            open_transaction = word == "BEGIN" or (open_transaction and word not in ("COMMIT", "ROLLBACK"))
        writer.end_session(session)
    run = writer.close()
    run.set_fact("attempts", 1)
    begin_seeing(run)
    outcomes = Outcomes(folder)
    for at, (_, _, seen) in enumerate(calls):
        if seen is None:  # intended, and cut off
            outcomes.intend(numbers[at])
        if isinstance(seen, Answer):
            outcomes.see(numbers[at], {side: TimedAnswer(seen, 0, at * 10, at * 10 + 5) for side in Side})
    outcomes.close()
    return run


def value(number: int) -> Answer:
    return answer([column("n", INT)], [(b"%d" % number,)])


DONE, CHANGED = Answer(), Answer(affected=1)
LOST_UPDATE: tuple[tuple[str, str, Answer], ...] = (
    ("a", "BEGIN", DONE), ("b", "BEGIN", DONE), ("a", BALANCE, value(100)), ("b", BALANCE, value(100)),
    ("a", "UPDATE t SET n = 90 WHERE id = 1", CHANGED), ("a", "COMMIT", DONE),
    ("b", "UPDATE t SET n = 80 WHERE id = 1", CHANGED), ("b", "COMMIT", DONE),
)  # fmt: skip


def outcomes_of(tmp_path: Path, *calls: tuple[str, str, object], captured: int | None = None) -> dict[str, Commitment]:
    with run_of(tmp_path / "run", *calls, captured=captured) as run:
        files = write_histories(run, KEYS, {Side.TARGET: "tidb 8.5"}, mask=False)
    return {each.name: each.outcome for each in read_history(files[Side.TARGET]).transactions}


def test_a_lost_update_of_a_replay_is_found_with_both_statements(tmp_path: Path) -> None:
    with run_of(tmp_path / "run", *LOST_UPDATE) as run:
        files = write_histories(run, KEYS, dict.fromkeys(Side, "tidb 8.5"), mask=False)
        masked = write_histories(run, KEYS, {Side.TARGET: "tidb 8.5"}, mask=True)
    checked = check_history(read_history(files[Side.SOURCE]))
    assert [each.name for each in checked.anomalies] == [AnomalyName.LOST_UPDATE]
    assert ("a/0", "UPDATE t SET n = 90 WHERE id = 1") in checked.anomalies[0].statements
    assert checked.anomalies[0].isolation == ("REPEATABLE READ",)
    assert checked.usability.share == 1.0
    text = masked[Side.TARGET].read_text()
    assert "90" not in [each["statement"] for line in text.splitlines()[1:] for each in json.loads(line)["operations"]]
    assert "n = 90" not in text
    assert "d.t/1" not in text


@pytest.mark.parametrize(("calls", "outcome"), [
    ([("a", BALANCE, value(1))], Commitment.COMMITTED),
    ([("a", BALANCE, failed(1205))], Commitment.ABORTED),
    ([("a", BALANCE, Answer(unanswered="lost"))], Commitment.UNKNOWN),
    ([("a", "BEGIN", DONE), ("a", BALANCE, value(1))], Commitment.UNKNOWN),
    ([("a", "BEGIN", DONE), ("a", BALANCE, value(1)), ("a", "ROLLBACK", DONE)], Commitment.ABORTED),
    ([("a", "BEGIN", DONE), ("a", BALANCE, failed(1213)), ("a", BALANCE, value(1)), ("a", "COMMIT", DONE)],
     Commitment.ABORTED),
    ([("a", "BEGIN", DONE), ("a", BALANCE, failed(1205)), ("a", BALANCE, value(1)), ("a", "COMMIT", DONE)],
     Commitment.COMMITTED),
    ([("a", "BEGIN", DONE), ("a", BALANCE, failed(1213)), ("a", "UPDATE t SET n = 1", CHANGED), ("a", "COMMIT", DONE)],
     Commitment.UNKNOWN),
    ([("a", "BEGIN", DONE), ("a", BALANCE, value(1)), ("a", "COMMIT", failed(9007))], Commitment.ABORTED),
    ([("a", "BEGIN", DONE), ("a", BALANCE, value(1)), ("a", "COMMIT", failed(8501))], Commitment.UNKNOWN),
    ([("a", "BEGIN", DONE), ("a", BALANCE, value(1)), ("a", "COMMIT", None)], Commitment.UNKNOWN),
    ([("a", "BEGIN", DONE), ("a", "SAVEPOINT x", DONE), ("a", BALANCE, value(1)), ("a", "COMMIT", DONE)],
     Commitment.UNKNOWN),
    ([("a", "BEGIN", DONE), ("a", BALANCE, value(1)), ("a", "CREATE TABLE x (id INT)", DONE)], Commitment.UNKNOWN),
])  # fmt: skip
def test_how_a_transaction_ended(tmp_path: Path, calls: list[tuple[str, str, object]], outcome: Commitment) -> None:
    assert list(outcomes_of(tmp_path, *calls).values()) == [outcome]


def test_what_production_lost_to_a_deadlock_the_replay_rolls_back(tmp_path: Path) -> None:
    assert outcomes_of(tmp_path, *LOST_UPDATE, captured=1213) == {"a/0": Commitment.ABORTED, "b/0": Commitment.ABORTED}


def test_a_write_that_may_have_run_makes_what_follows_ambiguous(tmp_path: Path) -> None:
    calls = [*LOST_UPDATE[:4], ("c", "UPDATE t SET n = 1 WHERE id = 1", None), ("c", BALANCE, value(5)),
             *LOST_UPDATE[4:], ("d", BALANCE, value(80))]  # fmt: skip
    with run_of(tmp_path / "run", *calls) as run:
        files = write_histories(run, KEYS, {Side.TARGET: "tidb 8.5"}, mask=False)
    usability = check_history(read_history(files[Side.TARGET])).usability
    assert usability.reads == 8  # the rows and their column
    assert usability.ambiguous == {"a write of unknown value may have made it": 8}


def test_histories_need_one_whole_run(tmp_path: Path) -> None:
    with run_of(tmp_path / "run", *LOST_UPDATE) as run:
        run.set_fact("attempts", 2)
        with pytest.raises(UsageError, match="resumed"):
            write_histories(run, KEYS, {Side.TARGET: ""}, mask=False)
        run.change("DROP TABLE seen")
        with pytest.raises(PlanError, match="no histories"):
            next(seen_answers(run, Side.TARGET))


def test_integers_are_hashed_by_their_number(tmp_path: Path) -> None:
    columns = [column("Id", INT), column("name", TEXT)]
    seen = answer(columns, [(b"007", b"007"), (None, None)])
    with run_of(tmp_path / "run", ("a", BALANCE, seen)) as run:
        (found,) = [each for _, each in seen_answers(run, Side.SOURCE)]
    assert found.columns == ("id", "name")
    assert found.rows == ((value_hash(b"7"), value_hash(b"007")), ("NULL", "NULL"))


def test_the_option_needs_writes_and_both_sides(capsys: pytest.CaptureFixture[str]) -> None:
    for more in (
        [],
        ["--writes", "--target-only"],
        ["--writes", "--resume", "last"],
        ["--writes", "--engine", "spark"],
    ):
        assert run_command(["workload", "replay", "capture", "--anomalies", *more]) == 2
        assert "--anomalies needs --writes" in capsys.readouterr().err

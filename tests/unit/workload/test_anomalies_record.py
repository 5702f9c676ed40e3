"""What a replay's statements read and wrote: only what is certain has a value, and nothing that writes is lost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from migverify.workload.replay.connections import EngineOptions
from migverify.workload.replay.keys import shared_keys
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
from migverify.workload.replay.value_codes import HASHED, ValueCodes, columns_added_to, value_hash
from migverify.workload.state import SessionState
from tests.unit.replaying import INT, TEXT, answer, column, failed

KEYS = {
    "d.t": TableKeys(("id",), columns=("id", "n", "name", "price", "twice"), integers=frozenset({"id", "n", "twice"}),
                     texts=frozenset({"name"}), generated=frozenset({"twice"})),
    "d.names": TableKeys(("name",), columns=("name", "n"), integers=frozenset({"n"}), texts=frozenset({"name"})),
    "d.child": TableKeys(("id",), related=("d.t",), columns=("id", "n"), integers=frozenset({"id", "n"})),
    "d.parent": TableKeys(("id",), related=("d.child",), columns=("id", "n", "code"),
                          integers=frozenset({"id", "n", "code"}), referenced=frozenset({"code"})),
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
    ("UPDATE parent SET n = 5 WHERE id = 1", wrote(), ["w d.parent/1/n 5"]),
    ("UPDATE parent SET code = 5 WHERE id = 1", wrote(), ["w d.child/* ?", "w d.parent/1/code 5"]),
    ("DELETE FROM parent WHERE id = 1", wrote(), [
        "w d.child/* ?", "w d.parent/1 -", "w d.parent/1/n -", "w d.parent/1/code -"]),
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


# --- ids that the server makes, defaults, increments ---------------------------------------------------------

AUTO = {
    "d.o": TableKeys(("id",), columns=("id", "n", "name"), integers=frozenset({"id", "n"}), texts=frozenset({"name"}),
                     auto="id", defaults={"n": "7", "name": None}),
    "d.line": TableKeys(("id",), related=("d.o",), columns=("id", "n"), integers=frozenset({"id", "n"}), auto="id"),
    "d.pair": TableKeys(("id", "n"), columns=("id", "n"), integers=frozenset({"id", "n"}), auto="id"),
}  # fmt: skip
CODES = ValueCodes(b"of one run", frozenset({"n"}))


def inserted(
    sql: str, insert_id: int = 5, affected: int = 1, *, increment: int = 0, warnings: int = 0,
    mode: str | None = "ANSI", rest: str = "",
) -> list[str]:  # fmt: skip
    """Return what an INSERT wrote, as ``key value``; ``?`` for a value that is not known."""
    call = Call("s", 0, sql.encode(), "", SessionState(database="d", sql_mode=mode, rest=rest))
    planned = PlannedCall(0, call, _meanings.meaning(call.sql), "", 0, 0, 0, 0, 0)
    seen = replace(wrote(affected, warnings), insert_id=insert_id)
    names = {value_hash(value): value.decode() for value in (b"1", b"2", b"7", b"ann")}
    made = operations(planned, seen, AUTO, HistoryReading(mask=False, increment=increment))
    writes = [each for each in made if each.kind is OperationKind.WRITE]
    return [f"{each.key} {names.get(each.value or '', each.value) if each.known else '?'}" for each in writes]


@pytest.mark.parametrize(("sql", "more", "expected"), [
    ("INSERT INTO o (n, name) VALUES (1, 'ann')", {}, ["d.o/5 present", "d.o/5/n 1", "d.o/5/name ann"]),
    ("INSERT INTO o (name) VALUES ('ann')", {}, ["d.o/5 present", "d.o/5/n 7", "d.o/5/name ann"]),
    ("INSERT INTO o (id, n) VALUES (NULL, 1)", {}, ["d.o/5 present", "d.o/5/n 1", "d.o/5/name NULL"]),
    ("INSERT INTO o VALUES (DEFAULT, 1, NULL)", {}, ["d.o/5 present", "d.o/5/n 1", "d.o/5/name NULL"]),
    ("INSERT INTO o (id, n) VALUES (0, 1)", {}, ["d.o/5 present", "d.o/5/n 1", "d.o/5/name NULL"]),
    ("INSERT INTO o (id, n) VALUES (0, 1)", {"mode": "NO_AUTO_VALUE_ON_ZERO"}, ["d.o/0 present", "d.o/0/n 1",
                                                                             "d.o/0/name NULL"]),
    ("INSERT INTO o (id, n) VALUES (0, 1)", {"mode": None}, ["d.o/* ?"]),
    ("INSERT INTO o (n, name) VALUES (n + 1, 'ann')", {}, ["d.o/5 present", "d.o/5/n ?", "d.o/5/name ann"]),
    ("INSERT INTO o (n) VALUES (1), (2)", {"affected": 2, "increment": 1}, [
        "d.o/5 present", "d.o/5/n 1", "d.o/5/name NULL", "d.o/6 present", "d.o/6/n 2", "d.o/6/name NULL"]),
    ("INSERT INTO line (n) VALUES (1), (2)", {"affected": 2, "increment": 10}, [
        "d.line/5 present", "d.line/5/n 1", "d.line/15 present", "d.line/15/n 2"]),
    ("INSERT INTO line (n) VALUES (1), (2)", {"affected": 2}, ["d.line/* ?"]),
    ("INSERT INTO line (n) VALUES (1), (2)", {
        "affected": 2, "increment": 1, "rest": '{"variables": {"auto_increment_offset": "2"}}'}, ["d.line/* ?"]),
    ("INSERT INTO line (id, n) VALUES (NULL, 1), (9, 2)", {"affected": 2, "increment": 1}, ["d.line/* ?"]),
    ("INSERT INTO line (n) VALUES (1)", {"insert_id": 0}, ["d.line/* ?"]),
    ("INSERT INTO line (n) VALUES (1)", {"warnings": 1}, ["d.line/* ?"]),
    ("INSERT INTO line (n) VALUES (LAST_INSERT_ID(3))", {}, ["d.line/* ?"]),
    ("INSERT IGNORE INTO line (n) VALUES (1)", {}, ["d.line/* ?", "d.o/* ?"]),
    ("INSERT INTO line (n) SELECT 1", {}, ["d.line/* ?", "d.o/* ?"]),
    ("INSERT INTO pair (n) VALUES (1)", {}, ["d.pair/* ?"]),
])  # fmt: skip
def test_rows_that_the_server_numbers(sql: str, more: dict[str, Any], expected: list[str]) -> None:
    assert sorted(inserted(sql, **more)) == sorted(expected)


@pytest.mark.parametrize(("sql", "delta"), [
    ("UPDATE t SET n = n + 3 WHERE id = 1", 3),
    ("UPDATE t x SET `n` = x.n-2 WHERE x.id = 1", -2),
    ("UPDATE t SET N = N + 1, name = 'ann' WHERE id = 1", 1),
    ("UPDATE t SET n = n * 2 WHERE id = 1", None),
    ("UPDATE t SET n = n + 1 + 1 WHERE id = 1", None),
    ("UPDATE t SET n = n + 1.5 WHERE id = 1", None),
    ("UPDATE t SET n = twice + 1 WHERE id = 1", None),
    ("UPDATE t SET n = n + 1, n = n + 1 WHERE id = 1", None),
])  # fmt: skip
def test_what_an_update_adds(sql: str, delta: int | None) -> None:
    call = Call("s", 0, sql.encode(), "", SessionState(database="d"))
    planned = PlannedCall(0, call, _meanings.meaning(call.sql), "", 0, 0, 0, 0, 0)
    made = list(operations(planned, wrote(), KEYS, HistoryReading(mask=False, codes=CODES)))
    assert [(each.delta, each.known) for each in made if each.key == "d.t/1/n"] == [(delta, False)]
    hashed = list(operations(planned, wrote(), KEYS, HistoryReading(mask=False)))
    assert [each.delta for each in hashed if each.key == "d.t/1/n"] == [None], "no number of the column is known"


def test_numbers_are_recorded_behind_an_offset_that_is_kept_nowhere(tmp_path: Path) -> None:
    texts = ["UPDATE `t` SET `N` = `t` . `n` + ? , `m` = ? WHERE `id` = ?", "SELECT `k` = `k` + ? FROM `t`"]
    assert columns_added_to(texts) == {"n"}
    assert int(CODES.of_integer("n", 9)) - int(CODES.of_integer("n", -4)) == 13
    assert CODES.of_integer("n", 9) != ValueCodes(b"of another", CODES.numbers).of_integer("n", 9)
    assert CODES.of_integer("m", 9) == value_hash(b"9")
    assert not CODES.of_text("n", b"9").isdigit()
    assert CODES.of_text("n", None) == "NULL"
    assert ValueCodes(numbers=CODES.numbers).of_integer("n", 9) == value_hash(b"9")
    assert "one run" not in repr(CODES) + repr(EngineOptions(history_key=CODES.key))
    with run_of(tmp_path / "run", *COUNTED, codes=CODES) as run:
        files = write_histories(run, KEYS, {Side.TARGET: "tidb 8.5"}, mask=True, codes=CODES)
    kept = files[Side.TARGET].read_text() + (tmp_path / "run" / "run.sqlite").read_bytes().decode("latin-1")
    assert value_hash(b"4") not in kept
    assert CODES.key.decode() not in kept
    plain = read_history(files[Side.TARGET])
    values = [op.value for each in plain.transactions for op in each.operations if op.delta is None and op.value]
    assert {value for value in values if value.isdigit()} <= {CODES.of_integer("n", number) for number in range(9)}


def test_a_lost_update_by_increments_is_found_behind_others(tmp_path: Path) -> None:
    with run_of(tmp_path / "run", *COUNTED, codes=CODES) as run:
        files = write_histories(run, KEYS, dict.fromkeys(Side, "tidb 8.5"), mask=True, codes=CODES)
        before = write_histories(run, KEYS, dict.fromkeys(Side, "tidb 8.5"), mask=True)
        assert check_history(read_history(before[Side.SOURCE])).usability.share < 1.0
        write_histories(run, KEYS, dict.fromkeys(Side, "tidb 8.5"), mask=True, codes=CODES)
    checked = check_history(read_history(files[Side.SOURCE]))
    assert [(each.name, each.transactions) for each in checked.anomalies] == [(AnomalyName.LOST_UPDATE, ("b/1", "a/3"))]
    assert checked.usability.share == 1.0


def test_the_insert_id_is_kept_and_older_runs_have_none(tmp_path: Path) -> None:
    made = Answer(affected=1, insert_id=77)
    with run_of(tmp_path / "run", ("a", "INSERT INTO t (n) VALUES (1)", made), ("a", BALANCE, value(4))) as run:
        assert [each.insert_id for _, each in seen_answers(run, Side.SOURCE)] == [77, 0]
        run.change("UPDATE seen SET body = ?", ('{"source": [1, 2, false, 0, 1, 0]}',))
        assert [each for _, each in seen_answers(run, Side.SOURCE)] == [SeenAnswer(1, 2, False, 0, 1, 0)] * 2


def test_a_server_that_numbers_or_fills_rows_otherwise_shares_neither() -> None:
    other = {"d.o": replace(AUTO["d.o"], auto="", defaults={"n": "8", "name": None})}
    shared = shared_keys(AUTO, other)
    assert (shared["d.o"].auto, shared["d.o"].defaults) == ("", {"name": None})
    assert shared["d.line"].auto == ""
    assert shared_keys(AUTO, AUTO) == AUTO


# --- transactions of a run file ------------------------------------------------------------------------------

BALANCE = "SELECT n FROM t WHERE id = 1"


def run_of(
    folder: Path, *calls: tuple[str, str, object], captured: int | None = None, codes: ValueCodes = HASHED
) -> RunFile:
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
    outcomes = Outcomes(folder, codes=codes)
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
ADD = "UPDATE t SET n = n + 1 WHERE id = 1"
COUNTED: tuple[tuple[str, str, Answer], ...] = (
    ("a", BALANCE, value(4)), ("a", ADD, CHANGED), ("b", BALANCE, value(5)), ("a", BALANCE, value(5)),
    *[step if step[1] in ("BEGIN", "COMMIT") else (step[0], BALANCE if step[1] == BALANCE else ADD,
                                                   value(5) if step[1] == BALANCE else CHANGED)
      for step in LOST_UPDATE],
    ("b", BALANCE, value(7)),
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

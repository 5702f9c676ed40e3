"""The wire over a socket whose other end the test holds: what is sent, what values become in a text, how it ends."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.db.session import Opened
from migverify.model import Flavor, Side
from migverify.sql.lexer import DEFAULT, Modes, tokens
from migverify.sql.lexer import TokenKind as Kind
from migverify.workload.binary import execute
from migverify.workload.model import Parameter
from migverify.workload.replay import wire as module
from migverify.workload.replay.model import Call
from migverify.workload.replay.wire import Limits, ServerWire, inlined
from migverify.workload.state import SessionState
from tests.unit.workload.test_replay_reader import column, eof, err, ok, result, stream


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(10)
    yield ours, theirs
    ours.close()
    theirs.close()


def made(ours: socket.socket, **limits: float) -> ServerWire:
    return ServerWire(Opened(ours, "8.0.0", Flavor.MYSQL, 7), Side.SOURCE, Limits(**limits))  # type: ignore[arg-type]


def call(sql: bytes, *parameters: Parameter) -> Call:
    return Call("1", 1, sql, "", SessionState(), parameters=parameters or None)


ONE = Parameter("integer", b"1")


def prepared(number: int, parameters: int) -> bytes:
    head = struct.pack("<BIHHBH", 0, number, 0, parameters, 0, 0)
    return stream([head, *[column("?")] * parameters, *([eof()] if parameters else [])])


def test_a_statement_and_its_answer(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    wire = made(ours)
    assert wire.receive() is None
    wire.send(call(b"SELECT 1"))
    assert theirs.recv(100) == b"\x09\0\0\0\x03SELECT 1"
    assert wire.receive() is None
    with pytest.raises(RuntimeError):
        wire.send(call(b"SELECT 2"))
    theirs.sendall(stream(result(["a"], [(b"1",)])))
    answer = wire.receive()
    assert answer is not None
    assert answer.rows == ((b"1",),)
    wire.close()
    assert theirs.recv(100) == b"\x01\0\0\0\x01"
    assert wire.run(call(b"SELECT 1")).unanswered == "not sent: closed"


def test_a_file_is_refused_by_an_empty_packet(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    wire = made(ours)
    wire.send(call(b"LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE t"))
    theirs.recv(1000)
    theirs.sendall(stream([b"\xfb/etc/passwd"]))
    assert wire.receive() is None
    assert theirs.recv(1000) == b"\0\0\0\2"
    theirs.sendall(stream([ok()], start=3))
    answer = wire.receive()
    assert answer is not None
    assert "refused" in answer.unanswered


def test_what_an_idle_server_said_is_no_answer_to_the_next_statement(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    wire = made(ours)
    theirs.sendall(stream([err(4031, "disconnected because of inactivity")], start=0))
    theirs.close()
    answer = wire.run(call(b"INSERT INTO t VALUES (1)"))
    assert answer.unanswered.startswith("connection lost")
    assert not answer.ok
    assert wire.closed


@pytest.mark.parametrize("errno", [1153, 1053])
def test_why_the_server_hung_up_while_it_was_sent_a_statement(
    ends: tuple[socket.socket, socket.socket], errno: int
) -> None:
    ours, theirs = ends
    wire = made(ours)
    wire.send(call(b"SELECT '" + b"x" * 5_000_000 + b"'"))
    assert wire.writing
    theirs.recv(100)
    theirs.sendall(stream([err(errno, "too large")]))
    theirs.shutdown(socket.SHUT_RDWR)
    theirs.close()
    answer = wire._wait()
    if errno == 1153:
        assert (answer.errno, answer.message) == (1153, "too large")
    else:
        assert answer.unanswered.startswith("connection lost")
    assert wire.closed


def test_a_cut_in_mid_answer(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    wire = made(ours)
    sent = stream(result(["a"], [(b"1",), (b"2",)]))
    wire.send(call(b"SELECT a FROM t"))
    theirs.recv(100)
    theirs.sendall(sent[:-7])
    assert wire.receive() is None
    theirs.close()
    answer = wire.receive()
    assert answer is not None
    assert answer.unanswered == "connection lost: the server closed it"
    assert answer.row_count == 0


def test_time_is_over(ends: tuple[socket.socket, socket.socket]) -> None:
    wire = made(ends[0], seconds=0.05)
    answer = wire.run(call(b"SELECT 1"))
    assert answer.unanswered == "time limit: no answer within 0.05 s"
    assert wire.deadline is None


def test_a_statement_is_prepared_once_a_set_of_types(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    wire = made(ours, statements=2)
    asked: list[bytes] = []

    def ask(sql: bytes, number: int, *values: Parameter) -> None:
        wire.send(call(sql, *values), prepared=True)
        first = theirs.recv(1000)
        asked.append(first)
        if b"\x16" + sql in first:
            theirs.sendall(prepared(number, len(values)))
            assert wire.receive() is None
            asked.append(theirs.recv(1000))
        theirs.sendall(stream([ok(1)]))
        answer = wire.receive()
        assert answer is not None
        assert answer.affected == 1

    ask(b"DO ?", 1, ONE)
    ask(b"DO ?", 0, ONE)
    assert [one[4] for one in asked] == [0x16, 0x17, 0x17]
    ask(b"DO ?", 2, Parameter("text", b"1"))
    asked.clear()
    ask(b"DO 3", 3)  # the oldest is let go for it, which the server learns in front of what is sent next
    assert asked[1].startswith(b"\x05\0\0\0\x19" + struct.pack("<I", 1))
    asked.clear()
    ask(b"DO ?", 4, ONE)
    assert asked[0] == b"\x05\0\0\0\x16DO ?"


def test_values_that_do_not_fit_are_not_sent(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    wire = made(ours)
    assert wire.run(call(b"DO ?, ?", ONE)).unanswered == "not sent: 1 values for 2 parameters"
    wire.send(call(b"DO ?, ?", ONE), prepared=True)
    theirs.recv(100)
    theirs.sendall(prepared(1, 2))
    answer = wire.receive()
    assert answer is not None
    assert answer.unanswered == "not sent: 1 values for 2 parameters"
    assert not wire.closed
    wire.send(call(b"DO ?", ONE))
    assert theirs.recv(100)[4:] == b"\x03DO 1"


def test_a_long_answer_leaves_the_others_their_turn(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TURN", 100_000)
    ours, theirs = ends
    wire = made(ours)
    sent = stream(result(["a"], [(b"x" * 1000,)] * 2000))
    writer = threading.Thread(target=theirs.sendall, args=(sent,))
    wire.send(call(b"SELECT a FROM t"))
    theirs.recv(100)
    writer.start()
    turns = 0
    while (answer := wire.receive()) is None:
        turns += 1
    writer.join()
    assert answer.row_count == 2000
    assert turns >= len(sent) // 200_000


TEXTS = st.text(alphabet="ab'\"\\%_n0\0\n\x1aé?", max_size=12).map(str.encode) | st.binary(max_size=12)
MODES = [DEFAULT, Modes(no_backslash_escapes=True), Modes(ansi_quotes=True)]


@given(TEXTS, st.sampled_from(MODES))
def test_a_text_value_stays_one_literal(value: bytes, modes: Modes) -> None:
    made = inlined(b"SELECT ? x", (Parameter("text", value),), modes)
    assert [one.kind for one in tokens(made, "mysql", modes)] == [Kind.WORD, Kind.STRING, Kind.WORD]


def test_values_must_fit() -> None:
    with pytest.raises(ValueError, match="values for"):
        inlined(b"SELECT ?", ())
    with pytest.raises(ValueError, match="values for"):
        inlined(b"SELECT '?'", (Parameter("integer", b"5"),))


@pytest.mark.parametrize(("parameter", "text"), [
    (Parameter("null", None), b"NULL"), (Parameter("integer", b"5"), b"5"), (Parameter("double", b"1.5"), b"1.5e0"),
    (Parameter("double", b"1e300"), b"1e300"), (Parameter("bytes", b"\x00'"), b"x'0027'"),
    (Parameter("integer", b"1; DROP TABLE t"), b"'1; DROP TABLE t'"), (Parameter("double", b"nan"), b"'nan'"),
    (Parameter("datetime", b"2024-01-01 00:00:00"), b"'2024-01-01 00:00:00'"),
])  # fmt: skip
def test_literals_of_values(parameter: Parameter, text: bytes) -> None:
    assert inlined(b"SELECT ?", (parameter,)) == b"SELECT " + text


KINDS = (
    "null", "integer", "unsigned", "double", "float", "decimal", "text", "bytes", "date", "datetime", "time", "strange",
)  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.binary(max_size=9) | st.none())))
def test_any_value_can_be_sent(values: list[tuple[str, bytes | None]]) -> None:
    payload = execute(1, [Parameter(*value) for value in values])
    assert payload[:1] == b"\x17"

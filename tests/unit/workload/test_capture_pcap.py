"""Packet traces: commands, values and outcomes, and what cannot be read is said."""

from __future__ import annotations

import gzip
import json
import random
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migverify.cli.main import run
from migverify.workload.binary import ProtocolError
from migverify.workload.formats import answers, conversation, packets
from migverify.workload.formats.pcap import Pcap
from migverify.workload.formats.protocol import PreparedText, query_text
from migverify.workload.formats.tcp import ByteStream
from migverify.workload.model import Command, Noise, Parameter, Piece, Record, Rejected
from tests.unit.capture_packets import (
    ATTRIBUTES,
    CAPABILITIES,
    Trace,
    column,
    counted,
    eof,
    error,
    greeting,
    login,
    ok,
    packet,
    result,
)


def pieces(folder: Path, data: bytes, form: Any = None) -> list[Piece]:
    path = folder / "trace"
    path.write_bytes(data)
    found = list((form or Pcap()).read(str(path)))
    expected = 0
    for piece in found:
        assert piece.origin.offset == expected
        expected += piece.origin.length
    assert expected == (len(gzip.decompress(data)) if data[:2] == b"\x1f\x8b" else len(data))
    return found


def records(folder: Path, data: bytes, form: Any = None) -> list[Record]:
    return [piece for piece in pieces(folder, data, form) if isinstance(piece, Record)]


def statements(folder: Path, trace: Trace) -> list[Record]:
    return [one for one in records(folder, trace.pcap()) if one.command in (Command.QUERY, Command.EXECUTE)]


def simple() -> Trace:
    trace = Trace()
    trace.connect()
    trace.ask(b"\x03select 1", result([b"1", b"2"]))
    trace.ask(b"\x03update t set a=1", packet(ok(affected=3, insert_id=9, status=3, warnings=1), 1))
    trace.ask(b"\x03select nope", packet(error(1054), 1))
    trace.ask(b"\x0e", packet(ok(), 1))
    trace.ask(b"\x02other", packet(ok(), 1))
    trace.client(packet(b"\x01"))
    return trace


@pytest.mark.parametrize("how", ["pcap", "nano", "pcapng", "gzip"])
def test_commands_and_outcomes(tmp_path: Path, how: str) -> None:
    trace = simple()
    data = {
        "pcap": trace.pcap, "nano": lambda: trace.pcap(nano=True), "pcapng": trace.pcapng,
        "gzip": lambda: gzip.compress(trace.pcap()),
    }[how]()  # fmt: skip
    form = Pcap()
    if how != "gzip":
        assert form.sniff(data[:65536]) > 0.9
    connect, select, update, wrong, ping, init, quit_ = records(tmp_path, data, form)
    assert (connect.command, connect.user, connect.database, connect.session) == (Command.CONNECT, "app", "pay", 7)
    assert (connect.details["charset"], connect.server, connect.host) == ("utf8mb4", "10.0.0.1:3306", "10.0.0.9")
    assert (select.sql, select.errno, select.rows_sent, select.partial) == (b"select 1", 0, 2, "")
    assert (select.start or 0) < (select.end or 0)
    assert select.duration == 1000
    assert select.start is not None
    assert select.start // 1_000_000 == 1_700_000_000
    assert (update.rows_affected, update.insert_id, update.rows_sent) == (3, 9, 0)
    assert (update.details["in_transaction"], update.details["warnings"]) == ("1", "1")
    assert (wrong.sql, wrong.errno, wrong.rows_sent) == (b"select nope", 1054, None)
    assert (ping.command, ping.details) == (Command.OTHER, {"command": "ping"})
    assert (init.command, init.sql) == (Command.INIT_DB, b"other")
    assert quit_.command is Command.QUIT
    assert not [one for one in pieces(tmp_path, data, form) if isinstance(one, Rejected)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
@given(
    texts=st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=6), size=st.integers(1, 200),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_segments_of_any_size_doubled_and_out_of_order(
    tmp_path: Path, texts: list[bytes], size: int, seed: int
) -> None:
    trace = Trace(size)
    trace.syn()
    trace.server(greeting())
    trace.client(login())
    trace.server(packet(ok(), 2))
    for text in texts:
        trace.ask(b"\x03" + text, result([text, text]))
    chance = random.Random(seed)
    head, rest = trace.packets[:4], trace.packets[4:]
    rest = [one for part in rest for one in [part] * chance.choice([1, 1, 2])]
    for at in range(len(rest) - 1):
        one, other = rest[at][1], rest[at + 1][1]
        if one[12:20] == other[12:20] and chance.random() < 0.4:  # the net changes the order of one direction
            rest[at], rest[at + 1] = rest[at + 1], rest[at]
    trace.packets = head + rest
    found = statements(tmp_path, trace)
    assert [one.sql for one in found] == texts
    assert {(one.errno, one.rows_sent, one.partial) for one in found} == {(0, 2, "")}


def test_deprecated_eof_and_many_results(tmp_path: Path) -> None:
    trace = Trace()
    trace.connect()
    trace.ask(b"\x03select 1", result([b"1"] * 5, deprecate_eof=True))
    many = result([b"1"], status=0x0A) + packet(ok(affected=2, status=0x0A), 6) + packet(ok(affected=1), 7)
    trace.ask(b"\x03call p()", many)
    trace.ask(b"\x03call q()", result([b"1"], status=0x0A) + packet(error(1644), 6))
    trace.ask(b"\x03select 2", result([]))
    found = statements(tmp_path, trace)
    assert [one.rows_sent for one in found] == [5, 1, None, 0]
    assert [one.rows_affected for one in found] == [0, 3, None, 0]
    assert [one.errno for one in found] == [0, 0, 1644, 0]


def test_query_attributes(tmp_path: Path) -> None:
    trace = Trace()
    trace.connect(capabilities=CAPABILITIES | ATTRIBUTES)
    trace.ask(b"\x03\x00\x01select 1", result([]))
    named = b"\x03\x01\x01" + b"\x00" + b"\x01" + b"\xfe\x00" + counted(b"trace") + counted(b"abc") + b"select 2"
    trace.ask(named, result([]))
    assert [one.sql for one in statements(tmp_path, trace)] == [b"select 1", b"select 2"]
    assert query_text(b"\x03\x00\x01select 3", None) == (b"select 3", True)
    assert query_text(named, None) == (b"select 2", True)
    assert query_text(b"\x03select 3", None) == (b"select 3", False)
    assert query_text(b"\x03\x00\x01x", attributes=False) == (b"\x00\x01x", False)


def prepared(trace: Trace, number: int, count: int) -> None:
    reply = packet(b"\x00" + struct.pack("<IHHBH", number, 1, count, 0, 0), 1)
    reply += b"".join(packet(column("?"), 2 + n) for n in range(count)) + packet(eof(), 2 + count)
    reply += packet(column("a"), 3 + count) + packet(eof(), 4 + count)
    trace.ask(b"\x16select ?", reply)


def execute(number: int, nulls: bytes, types: bytes | None, values: bytes, flags: int = 0) -> bytes:
    bound = b"\x00" if types is None else b"\x01" + types
    return b"\x17" + struct.pack("<IBI", number, flags, 1) + nulls + bound + values


CASES: list[tuple[bytes, bytes, Parameter]] = [
    (b"\x01\x00", b"\xff", Parameter("integer", b"-1")),
    (b"\x01\x80", b"\xff", Parameter("unsigned", b"255")),
    (b"\x02\x00", b"\x00\x80", Parameter("integer", b"-32768")),
    (b"\x03\x00", b"\xfe\xff\xff\xff", Parameter("integer", b"-2")),
    (b"\x08\x80", b"\xff" * 8, Parameter("unsigned", b"18446744073709551615")),
    (b"\x04\x00", struct.pack("<f", 0.1), Parameter("float", b"0.1")),
    (b"\x05\x00", struct.pack("<d", 1e300), Parameter("double", b"1e+300")),
    (b"\xf6\x00", counted(b"1.50"), Parameter("decimal", b"1.50")),
    (b"\xfd\x00", counted(b"it's"), Parameter("text", b"it's")),
    (b"\xfc\x00", counted(b"\xff\x00"), Parameter("bytes", b"\xff\x00")),
    (b"\x0a\x00", b"\x04\xe8\x07\x02\x1d", Parameter("date", b"2024-02-29")),
    (b"\x0c\x00", b"\x00", Parameter("datetime", b"0000-00-00 00:00:00")),
    (
        b"\x0c\x00",
        b"\x0b\xe8\x07\x02\x1d\x01\x02\x03\x40\x42\x0f\x00",
        Parameter("datetime", b"2024-02-29 01:02:03.1000000"),
    ),
    (
        b"\x07\x00",
        b"\x0b\xe8\x07\x02\x1d\x01\x02\x03\x01\x00\x00\x00",
        Parameter("datetime", b"2024-02-29 01:02:03.000001"),
    ),
    (b"\x0b\x00", b"\x08\x01\x02\x00\x00\x00\x03\x04\x05", Parameter("time", b"-51:04:05")),
    (b"\x0b\x00", b"\x00", Parameter("time", b"00:00:00")),
    (b"\x06\x00", b"", Parameter("null", None)),
]


@pytest.mark.parametrize(("types", "value", "expected"), CASES)
def test_typed_values(tmp_path: Path, types: bytes, value: bytes, expected: Parameter) -> None:
    trace = Trace()
    trace.connect()
    prepared(trace, 4, 1)
    trace.ask(execute(4, b"\x00", types, value), result([b"x"]))
    (found,) = statements(tmp_path, trace)
    assert (found.sql, found.statement_id, found.parameters, found.partial) == (b"select ?", 4, (expected,), "")
    assert found.rows_sent == 1


def test_prepared_statements(tmp_path: Path) -> None:
    trace = Trace()
    trace.connect()
    prepared(trace, 4, 2)
    text = b"\xfd\x00"
    trace.ask(execute(4, b"\x00", text * 2, counted(b"a") + counted(b"b")), result([]))
    trace.ask(execute(4, b"\x01", None, counted(b"c")), result([]))
    for part in (b"long ", b"data"):
        trace.client(packet(b"\x18" + struct.pack("<IH", 4, 0) + part))
    trace.ask(execute(4, b"\x00", None, counted(b"d")), result([], status=0x42))
    trace.ask(b"\x1c" + struct.pack("<II", 4, 10), packet(b"\x00\x00\x01x", 1) + packet(eof(), 2))
    trace.client(packet(b"\x19" + struct.pack("<I", 4)))
    trace.ask(execute(4, b"\x00", text, counted(b"e")), packet(error(1243), 1))
    trace.ask(b"\x16nope", packet(error(1064), 1))
    told = records(tmp_path, trace.pcap())
    found = [one for one in told if one.command is Command.EXECUTE]
    values = [None if one.parameters is None else [part.value for part in one.parameters] for one in found]
    assert values == [[b"a", b"b"], [None, b"c"], [b"long data", b"d"], None]
    assert [one.rows_sent for one in found] == [0, 0, None, None]  # a cursor's rows come by fetches
    assert found[3].partial == conversation.PREPARED_BEFORE
    assert [(one.errno, one.sql) for one in told if one.command is Command.PREPARE] == [
        (0, b"select ?"),
        (1064, b"nope"),
    ]
    assert [one.statement_id for one in told if one.command is Command.CLOSE_STATEMENT] == [4]


BOUND = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1).map(
        lambda n: (b"\x08\x00", struct.pack("<q", n), Parameter("integer", str(n).encode()))
    ),
    st.integers(0, 255).map(lambda n: (b"\x01\x80", bytes([n]), Parameter("unsigned", str(n).encode()))),
    st.binary(max_size=40).map(lambda text: (b"\xfd\x00", counted(text), Parameter("text", text))),
    st.binary(max_size=9).map(lambda text: (b"\xfc\x00", counted(text), Parameter("bytes", text))),
    st.sampled_from(CASES),
)


def execute_of(
    values: list[tuple[bytes, bytes, Parameter]],
    nulls: int,
    *,
    typed: bool,
    attributes: list[tuple[bytes, tuple[bytes, bytes, Parameter]]] | None,
    names: bytes,
) -> bytes:
    """Return the body of an execute as a client writes it; ``attributes`` is None where they were not negotiated."""
    named = attributes is not None
    sent = [*((names, one) for one in values), *(attributes or [])]
    head = struct.pack("<IBI", 4, 8 if attributes else 0, 1)
    if not sent or (not values and not attributes):
        return b"\x17" + head
    head += bytes([len(sent)]) if named else b""
    head += nulls.to_bytes((len(sent) + 7) // 8, "little") + bytes([typed])
    if typed:
        head += b"".join(one[0] + (counted(name) if named else b"") for name, one in sent)
    return b"\x17" + head + b"".join(one[1] for at, (_, one) in enumerate(sent) if not nulls >> at & 1)


@pytest.mark.attack(
    "capture",
    "prepared statements of clients that do, may or may not send query attributes, with any types and NULLs",
    "values are those that were bound, or the statement is marked",
)
@settings(deadline=None, max_examples=60)
@given(data=st.data(), negotiated=st.booleans(), known=st.booleans(), values=st.lists(BOUND, max_size=20))
def test_values_are_those_that_were_bound_or_marked(
    data: st.DataObject, negotiated: bool, known: bool, values: list[tuple[bytes, bytes, Parameter]]
) -> None:
    statement = PreparedText(b"select ?", len(values))
    told: bool | None = negotiated if known else None
    bound_before = False
    for number in range(data.draw(st.integers(1, 5))):
        nulls = data.draw(st.integers(0, (1 << len(values)) - 1))
        typed = data.draw(st.booleans()) or (known and not number)
        values = [data.draw(BOUND) for _ in values] if typed else values
        extra = data.draw(st.lists(st.tuples(st.binary(max_size=5), BOUND), max_size=3)) if negotiated and typed else []
        payload = execute_of(
            values, nulls, typed=typed, attributes=extra if negotiated else None, names=data.draw(st.binary(max_size=3))
        )
        expected = [Parameter("null", None) if nulls >> at & 1 else one[2] for at, one in enumerate(values)]
        try:
            found = statement.execute(payload, told)
        except ProtocolError:
            assert not known or not (typed or bound_before)
            bound_before = False
            continue
        assert list(found.parameters) == expected
        assert found.attributes in (None, negotiated)
        told = found.attributes if told is None else told
        bound_before = bound_before or typed


def test_a_connection_joined_midway_shows_by_a_query_whether_it_sends_attributes(tmp_path: Path) -> None:
    trace = Trace()
    prepared(trace, 4, 2)
    unclear = execute_of([CASES[0], CASES[3]], 1, typed=False, attributes=[], names=b"")
    trace.ask(unclear, result([]))
    trace.ask(b"\x03\x00\x01commit", packet(ok(), 1))
    typed = execute_of([CASES[0], CASES[3]], 1, typed=True, attributes=[], names=b"")
    trace.ask(typed, result([]))
    trace.ask(unclear, result([]))
    first, _, *others = statements(tmp_path, trace)
    assert (first.partial, first.parameters) == (conversation.VALUES_UNKNOWN, None)
    assert [(one.partial, one.parameters) for one in others] == [
        ("", (Parameter("null", None), Parameter("integer", b"-2")))
    ] * 2


@pytest.mark.attack(
    "capture", "an execute whose values cannot be read, then one with the types of before", "both are marked"
)
def test_an_unreadable_execute_leaves_no_types_for_the_next(tmp_path: Path) -> None:
    trace = Trace()
    trace.connect()
    prepared(trace, 4, 1)
    trace.ask(execute(4, b"\x00", b"\xfd\x00", counted(b"a")), result([]))
    trace.ask(execute(4, b"\x00", b"\xf1\x00", counted(b"ab")), result([]))  # a type that there is not
    trace.ask(execute(4, b"\x00", None, counted(b"b")), result([]))
    trace.ask(execute(4, b"\x00", b"\xfd\x00", counted(b"c")), result([]))
    found = [(one.partial, one.parameters) for one in statements(tmp_path, trace)]
    marked = (conversation.VALUES_UNKNOWN, None)
    assert found == [("", (Parameter("text", b"a"),)), marked, marked, ("", (Parameter("text", b"c"),))]


def test_lost_bytes_of_the_client_leave_types_and_values_sent_ahead_unknown(tmp_path: Path) -> None:
    trace = Trace()
    trace.connect()
    prepared(trace, 4, 1)
    trace.ask(execute(4, b"\x00", b"\xfd\x00", counted(b"a")), result([]))
    ahead = b"\x18" + struct.pack("<IH", 4, 0)
    trace.client(packet(ahead + b"lost"), lose=True)
    trace.ask(b"\x03select 1", result([b"1"]))
    trace.client(packet(ahead + b" and kept"))
    trace.ask(execute(4, b"\x00", b"\xfd\x00", b""), result([]))
    trace.ask(execute(4, b"\x00", b"\xfd\x00", counted(b"b")), result([]))
    found = [one for one in statements(tmp_path, trace) if one.command is Command.EXECUTE]
    assert [one.partial for one in found] == ["", conversation.VALUES_UNKNOWN, ""]


def test_a_reset_statement_drops_what_was_sent_ahead(tmp_path: Path) -> None:
    trace = Trace()
    trace.connect()
    prepared(trace, 4, 1)
    trace.client(packet(b"\x18" + struct.pack("<IH", 4, 0) + b"ahead"))
    trace.ask(b"\x1a" + struct.pack("<I", 4), packet(ok(), 1))
    trace.ask(execute(4, b"\x00", b"\xfd\x00", counted(b"b")), result([]))
    (found,) = statements(tmp_path, trace)
    assert (found.partial, found.parameters) == ("", (Parameter("text", b"b"),))


def test_values_without_types_are_said_to_be_unknown(tmp_path: Path) -> None:
    trace = Trace()
    trace.connect()
    prepared(trace, 4, 1)
    trace.ask(execute(4, b"\x00", None, counted(b"a")), result([]))
    (found,) = statements(tmp_path, trace)
    assert (found.sql, found.parameters, found.partial) == (b"select ?", None, conversation.VALUES_UNKNOWN)


def test_joined_midway(tmp_path: Path) -> None:
    trace = Trace()
    trace.server(result([b"1"])[9:])
    trace.ask(b"\x03select 1", result([b"1"]))
    trace.ask(execute(9, b"\x00", b"\xfd\x00", counted(b"a")), result([]))
    select, run = statements(tmp_path, trace)
    assert (select.sql, select.rows_sent, select.user, select.partial) == (b"select 1", 1, None, "")
    assert (select.session or 0) < 0
    assert (run.sql, run.statement_id, run.partial) == (b"", 9, conversation.PREPARED_BEFORE)


def test_tls_is_rejected(tmp_path: Path) -> None:
    trace = Trace()
    trace.syn()
    trace.server(greeting(capabilities=CAPABILITIES | 0x800))
    trace.client(packet(struct.pack("<IIB", CAPABILITIES | 0x800, 1 << 24, 255) + bytes(23), 1))
    trace.client(b"\x16\x03\x01\x00\x05hello")
    trace.client(b"\x17\x03\x03\x00\x05hello", port=52000)  # joined midway
    reasons = [one.reason for one in pieces(tmp_path, trace.pcap()) if isinstance(one, Rejected)]
    assert reasons == [conversation.TLS] * 3


def test_compression_is_rejected(tmp_path: Path) -> None:
    trace = Trace()
    trace.connect(capabilities=CAPABILITIES | 0x20)
    trace.client(b"\x0c\0\0\0\0\0\0" + packet(b"\x03select 1"))
    found = pieces(tmp_path, trace.pcap())
    assert [one.reason for one in found if isinstance(one, Rejected)] == [conversation.COMPRESSED]
    assert [one.command for one in found if isinstance(one, Record)] == [Command.CONNECT]


def test_refused_login(tmp_path: Path) -> None:
    trace = Trace()
    trace.syn()
    trace.server(greeting())
    trace.client(login())
    trace.server(packet(error(1045), 2))
    (found,) = records(tmp_path, trace.pcap())
    assert (found.command, found.errno, found.user) == (Command.FAILED_CONNECT, 1045, "app")
    assert b"secret" not in repr(found).encode()


def test_lost_packets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migverify.workload.formats.tcp._PATIENCE_SEGMENTS", 2)
    trace = Trace(size=64)
    trace.connect()
    trace.ask(b"\x03select 1", result([b"1"]))
    trace.client(packet(b"\x03select 2"))
    trace.server(result([b"x" * 60] * 2)[:64])
    trace.server(b"y" * 64, lose=True)
    for number in range(3, 9):
        trace.ask(f"\x03select {number}".encode(), result([b"1"]))
    trace.client(packet(b"\x03lost"), lose=True)
    for number in range(10, 16):
        trace.ask(f"\x03select {number}".encode(), result([b"1"]))
    found = statements(tmp_path, trace)
    assert [one.sql for one in found] == [f"select {n}".encode() for n in [*range(1, 9), *range(10, 16)]]
    unknown = [one.sql for one in found if one.partial]
    assert b"select 2" in unknown
    assert b"select 1" not in unknown
    assert not [one for one in found if one.partial and one.errno is not None]
    assert [one for one in found if not one.partial and one.rows_sent == 1]


def test_unanswered(tmp_path: Path) -> None:
    trace = Trace()
    trace.connect()
    trace.ask(b"\x03select 1", result([]))
    trace.client(packet(b"\x03select sleep(9)"))
    trace.connect(connection=8)  # the client's port is used again
    trace.ask(b"\x03select 2", result([]))
    trace.client(packet(b"\x03select 3"))
    found = statements(tmp_path, trace)
    assert [(one.session, one.partial) for one in found] == [
        (7, ""), (7, answers.UNANSWERED), (8, ""), (8, answers.UNANSWERED),
    ]  # fmt: skip


def test_an_answer_is_awaited_only_so_long(tmp_path: Path) -> None:
    trace = Trace()
    trace.connect()
    trace.client(packet(b"\x03select slow"))
    trace.connect(port=52000, connection=8)
    for _ in range(20):
        trace.ask(b"\x03select 1", result([]), port=52000)
    trace.server(result([]))
    trace.ask(b"\x03select 2", result([]))
    told = records(tmp_path, trace.pcap(), Pcap(most_held=10))
    found = {one.sql: one.partial for one in told if one.session == 7 and one.sql}
    assert found == {b"select slow": answers.UNANSWERED, b"select 2": ""}


def test_long_command_over_many_packets(tmp_path: Path) -> None:
    text = b"\x03select '" + b"x" * (0xFFFFFF + 10) + b"'"
    trace = Trace(size=60_000)
    trace.connect()
    trace.client(packet(text))
    trace.server(packet(ok(), 2))
    trace.ask(b"\x03select 2", result([b"1"]))
    long, short = statements(tmp_path, trace)
    assert long.sql == text[1:]
    assert (long.errno, long.rows_sent, short.rows_sent) == (0, 0, 1)


def test_several_commands_in_one_segment(tmp_path: Path) -> None:
    trace = Trace()
    trace.connect()
    trace.client(packet(b"\x03select 1") + packet(b"\x03select 2"))
    trace.server(result([b"1"]) + result([b"1", b"2"]))
    assert [one.rows_sent for one in statements(tmp_path, trace)] == [1, 2]


def test_other_traffic_and_damage(tmp_path: Path) -> None:
    trace = simple()
    data = trace.pcap()
    cut = pieces(tmp_path, data[:-3])
    assert isinstance(cut[-1], Rejected)
    assert cut[-1].reason == packets.CUT_RECORD
    (all_of_it,) = pieces(tmp_path, b"no trace at all")
    assert isinstance(all_of_it, Rejected)
    assert not records(tmp_path, data, Pcap(port=3307))
    assert {one.what for one in pieces(tmp_path, data, Pcap(port=3307)) if isinstance(one, Noise)} == {
        "file header", "packet of another port",
    }  # fmt: skip
    absurd = data[:24] + struct.pack("<IIII", 1, 1, 1 << 31, 1) + b"rest"
    assert [type(one) for one in pieces(tmp_path, absurd)] == [Noise, Rejected]


@given(st.data())
def test_a_stream_puts_segments_in_order(data: st.DataObject) -> None:
    whole = data.draw(st.binary(min_size=1, max_size=60))
    start = data.draw(st.sampled_from([0, 1, (1 << 32) - 20]))
    cuts = sorted({0, len(whole), *data.draw(st.lists(st.integers(0, len(whole)), max_size=6))})
    parts = list(pairwise(cuts))
    parts += data.draw(st.lists(st.sampled_from(parts), max_size=3)) if parts else []
    stream: ByteStream[int] = ByteStream()
    stream.start(start)
    for a, b in data.draw(st.permutations(parts)):
        stream.add((start + a) % (1 << 32), whole[a:b], a)
    assert bytes(stream.data) == whole
    for place in range(len(whole)):
        assert stream.tag_at(place) <= place


def test_values_beyond_a_packet_are_cut() -> None:
    from migverify.workload.formats.protocol import execute as read

    for size in range(10, 17):
        payload = execute(1, b"\x00", b"\xfd\x00", counted(b"abc"))[:size]
        for attributes in (None, False, True):
            with pytest.raises(ProtocolError):
                read(payload, 1, None, {}, attributes)


def vxlan(frame: bytes) -> bytes:
    udp = struct.pack(">HHHH", 1, 4789, 16 + len(frame), 0) + bytes(8) + frame
    return struct.pack(">BBHHHBBH8s", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0, bytes(8)) + udp


def ip6(data: bytes) -> bytes:
    tcp = data[20:]
    hop = b"\x06" + bytes(7)  # an extension header in front
    return (
        b"\x60\0\0\0"
        + struct.pack(">HBB", len(hop) + len(tcp), 0, 64)
        + bytes(12)
        + data[12:16]
        + bytes(12)
        + data[16:20]
        + hop
        + tcp
    )


@pytest.mark.parametrize(
    ("link", "wrap"),
    [
        (101, lambda ip: ip),
        (1, lambda ip: bytes(12) + b"\x81\x00\x00\x07\x08\x00" + ip),
        (1, lambda ip: bytes(12) + b"\x08\x00" + ip + b"\0" * 6),  # padding of a short frame
        (1, lambda ip: bytes(12) + b"\x08\x00" + vxlan(bytes(12) + b"\x08\x00" + ip)),
        (1, lambda ip: bytes(12) + b"\x86\xdd" + ip6(ip)),
        (0, lambda ip: b"\x02\0\0\0" + ip),
        (113, lambda ip: bytes(14) + b"\x08\x00" + ip),
        (276, lambda ip: b"\x08\x00" + bytes(18) + ip),
    ],
)
def test_links(tmp_path: Path, link: int, wrap: Callable[[bytes], bytes]) -> None:
    trace = simple()
    data = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, link)
    for moment, ip in trace.packets:
        frame = wrap(ip)
        data += struct.pack("<IIII", moment // 1_000_000, moment % 1_000_000, len(frame), len(frame)) + frame
    told = records(tmp_path, data)
    assert [one.sql for one in told if one.command is Command.QUERY] == [
        b"select 1",
        b"update t set a=1",
        b"select nope",
    ]
    assert [one.errno for one in told if one.command is Command.QUERY] == [0, 0, 1054]


def test_a_cut_packet_loses_its_outcome_and_no_other(tmp_path: Path) -> None:
    trace = Trace()
    trace.connect()
    trace.ask(b"\x03select 1", result([b"1"]))
    trace.ask(b"\x03select 2", result([b"2" * 200]))
    moment, data = trace.packets[-1]
    for number in range(3, 6):
        trace.ask(f"\x03select {number}".encode(), result([b"1"]))
    place = trace.packets.index((moment, data))
    file = trace.pcap()
    begin = 24 + sum(16 + 14 + len(one) for _, one in trace.packets[:place])
    whole = 14 + len(data)
    cut = file[: begin + 8] + struct.pack("<II", 100, whole) + file[begin + 16 :][:100] + file[begin + 16 + whole :]
    found = [one for one in records(tmp_path, cut) if one.command is Command.QUERY]
    assert [one.sql for one in found] == [f"select {n}".encode() for n in range(1, 6)]
    assert found[1].partial == answers.UNANSWERED
    assert [one.rows_sent for one in found] == [1, None, 1, 1, 1]


@pytest.mark.parametrize("sides", [0, 1, 2])
def test_a_connection_ends_with_the_fin_of_both_sides(tmp_path: Path, sides: int) -> None:
    trace = Trace()
    trace.connect()
    trace.client(packet(b"\x03select sleep(9)"))
    sent = trace.packets[-1][1]
    trace.end(sides)
    trace.packets.append((trace.clock + 1, sent))  # once more: no other connection begins with it
    closes: list[str] = []
    close = conversation.Conversation.close
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conversation.Conversation, "close", lambda self: (closes.append(""), close(self)))
        found = statements(tmp_path, trace)
    assert [one.sql for one in found] == [b"select sleep(9)"]
    assert len(closes) == 1 + (sides == 2)  # one of them at the end of the trace


def test_a_connection_joined_midway_is_in_the_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its session has a number of the reader's own, below 0: no reason to reject its statements."""
    trace = Trace()
    trace.ask(b"\x03select 1", result([b"1"]))
    trace.ask(b"\x03select 2", result([b"2"]))
    (tmp_path / "a.pcap").write_bytes(trace.pcap())
    assert run(["workload", "capture", str(tmp_path / "a.pcap"), "--out", str(tmp_path / "out"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rejected"], told["statements"]) == (0, 2)

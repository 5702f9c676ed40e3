"""Packets in, answers out: whatever the pieces are in which the bytes arrive."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.workload import binary
from migverify.workload.binary import MAX_PACKET, ProtocolError, framed
from migverify.workload.replay.model import Answer, Cell
from migverify.workload.replay.reader import AnswerReader, Limits, RowSums
from tests.unit.replaying import checksums

EVERYTHING = Limits(rows=1_000_000, bytes=1 << 40)
NULL = b"\xfb"


def stream(payloads: Iterable[bytes], start: int = 1) -> bytes:
    """Frame packets, split where they are long."""
    parts = []
    number = start
    for payload in payloads:
        at = 0
        while True:
            part = payload[at : at + MAX_PACKET]
            parts.append(len(part).to_bytes(3, "little") + bytes((number & 255,)) + part)
            number += 1
            at += len(part)
            if len(part) < MAX_PACKET:
                break
    return b"".join(parts)


def column(name: str, kind: int = 253, flags: int = 0, decimals: int = 0, table: str = "t") -> bytes:
    texts = b"".join(framed(text.encode()) for text in ("def", "db", table, table, name, name))
    return texts + struct.pack("<BHIBHBH", 12, 255, 100, kind, flags, decimals, 0)


def eof(status: int = 2, warnings: int = 0) -> bytes:
    return struct.pack("<BHH", 0xFE, warnings, status)


def ok(affected: int = 0, insert_id: bytes = b"\0", status: int = 2, warnings: int = 0, info: bytes = b"") -> bytes:
    return (
        b"\0" + bytes((affected,)) + insert_id + struct.pack("<HH", status, warnings) + (framed(info) if info else b"")
    )


def err(code: int, message: str) -> bytes:
    return struct.pack("<BH", 0xFF, code) + b"#42000" + message.encode()


def text_row(cells: Iterable[Cell]) -> bytes:
    return b"".join(NULL if cell is None else framed(cell) for cell in cells)


def result(names: list[str], rows: list[tuple[Cell, ...]], status: int = 2, warnings: int = 0) -> list[bytes]:
    return [bytes((len(names),)), *map(column, names), eof(), *map(text_row, rows), eof(status, warnings)]


def read(data: bytes, cuts: Iterable[int] = (), limits: Limits = EVERYTHING, *, binary: bool = False) -> Answer:
    reader = AnswerReader(limits)
    reader.begin(binary=binary)
    edges = [0, *sorted(cuts), len(data)]
    done = [reader.feed(data[a:b]) for a, b in itertools.pairwise(edges) if a < b]
    assert done[-1]
    assert not any(done[:-1])
    assert reader.answer is not None
    return reader.answer


CELLS = st.none() | st.binary(max_size=20) | st.integers(240, 70_000).map(lambda size: b"z" * size)
ROWS = st.lists(st.tuples(CELLS, CELLS), max_size=6)


@settings(max_examples=40)
@given(ROWS, st.data())
def test_any_cut_gives_the_same_answer(rows: list[tuple[Cell, ...]], data: st.DataObject) -> None:
    sent = stream(result(["a", "b"], rows))
    cuts = data.draw(st.lists(st.integers(0, len(sent)), max_size=12))
    answer = read(sent, cuts)
    assert answer.rows == tuple(rows)
    assert answer.row_count == len(rows)
    assert [one.name for one in answer.columns] == [b"a", b"b"]


@settings(max_examples=30)
@given(ROWS)
def test_checksums_go_on_beyond_any_limit(rows: list[tuple[Cell, ...]]) -> None:
    sent = stream(result(["a", "b"], rows))
    for limit in (Limits(rows=len(rows) - 1), Limits(bytes=1), Limits(rows=0)):
        answer = read(sent, limits=limit)
        if rows:
            assert answer.rows is None
            assert (answer.ordered, answer.unordered) == checksums(rows)
            assert checksums(list(reversed(rows)))[1] == answer.unordered
        assert answer.row_count == len(rows)


def test_byte_by_byte() -> None:
    rows: list[tuple[Cell, ...]] = [(b"1", None), (b"", b"x" * 300), (None, b"\xfe\xff\x00")]
    several = result(["a", "b"], rows, status=2 | binary.MORE_RESULTS)
    sent = stream([*several, ok(3, b"\xfe" + b"\xfd" + b"\xff" * 7, warnings=2, info=b"Records: 3")[:1] + b"\x03"
                   + b"\xfe\xfd" + b"\xff" * 7 + struct.pack("<HH", 2, 2) + framed(b"Records: 3")])  # fmt: skip
    answer = read(sent, range(len(sent)))
    assert answer.rows == tuple(rows)
    last = answer.more[0]
    assert (last.affected, last.insert_id, last.warnings, last.info) == (3, (1 << 64) - 3, 2, "Records: 3")
    assert read(sent) == answer


def test_frames_tell_rows_apart() -> None:
    alike = [
        (b"a,b", b"c"),
        (b"a", b"b,c"),
        (b"", b"a,bc"),
        (None, b"abc"),
        (b"N", b"abc"),
        (b"1:a", b"b"),
        (b"", None),
    ]
    assert len({checksums([row]) for row in alike}) == len(alike)
    assert checksums([(b"a",), (b"a",)]) != checksums([(b"b",), (b"b",)])  # equal rows do not cancel
    assert RowSums().unordered == 0


def test_an_error_in_mid_result_is_the_answer() -> None:
    answer = read(stream([b"\x01", column("a"), eof(), text_row([b"1"]), err(1317, "interrupted")]))
    assert (answer.errno, answer.sqlstate, answer.message, answer.rows) == (1317, "42000", "interrupted", ())
    assert not answer.ok


def test_an_error_in_a_later_result_stands_among_the_results() -> None:
    answer = read(stream([*result(["a"], [(b"1",)], status=2 | 8), err(1064, "no")]))
    assert answer.ok
    assert answer.more[0].errno == 1064


def test_more_results_than_can_be_told_apart_are_no_answer() -> None:
    answer = read(stream([ok(status=8)] * 5 + [ok()]), limits=Limits(results=3))
    assert answer.unanswered
    assert not answer.ok


def test_rows_of_16_mib_take_several_packets() -> None:
    for size in (MAX_PACKET - 9, MAX_PACKET - 4, MAX_PACKET, MAX_PACKET + 3):
        sent = stream(result(["a"], [(b"x" * size,), (b"y",)]))
        answer = read(sent, range(0, len(sent), 1_000_003))
        assert answer.rows is not None
        assert [len(row[0] or b"") for row in answer.rows] == [size, 1]


@pytest.mark.parametrize("size", [0, 1, MAX_PACKET - 1, MAX_PACKET, MAX_PACKET + 1, 2 * MAX_PACKET])
def test_what_is_sent_is_framed_as_the_protocol_wants(size: int) -> None:
    payload = b"q" * size
    assert binary.frame(payload) == stream([payload], start=0)


def test_a_server_that_asks_for_a_file_is_refused() -> None:
    reader = AnswerReader(EVERYTHING)
    reader.begin()
    assert not reader.feed(stream([b"\xfb/etc/passwd"]))
    assert reader.wants_refusal
    assert reader.feed(stream([ok()], start=3))
    assert reader.answer is not None
    assert "local file" in reader.answer.unanswered


@pytest.mark.parametrize("errno", [1053, 4031, 1927])
def test_a_server_that_leaves_gives_no_answer(errno: int) -> None:
    with pytest.raises(ProtocolError, match="shutting down"):
        read(stream([err(errno, "shutting down")]))


def test_words_behind_an_answer_are_not_the_next_one() -> None:
    reader = AnswerReader(EVERYTHING)
    reader.begin()
    assert reader.feed(stream([ok()]) + stream([err(4031, "idle")], start=0))
    assert reader.farewell == "idle"


@pytest.mark.parametrize("broken", [
    stream([ok()], start=2),  # out of order
    stream([err(4031, "idle")], start=0),  # said before the statement was asked
    stream([b"\x01", column("a"), eof(), b"\x05ab"]),  # a cell beyond its packet
    stream([b"\x01", column("a"), eof(), b"\x01ab"]),  # more than the columns
    stream([b"\x01", column("a")[:-8], eof()]),  # half a column
    stream([b"\x01", column("a"), ok()]),  # no end of the columns
    stream([b"\xfe"]), stream([b"\x00"]), stream([b"\xfc"]), stream([b"\x01\x02"]),
    stream([b"\x01", column("a"), eof(), b"\xfe\x00"]),  # an end that ends too early
])  # fmt: skip
def test_what_is_no_protocol_is_no_answer(broken: bytes) -> None:
    reader = AnswerReader(EVERYTHING)
    reader.begin()
    with pytest.raises(ProtocolError):
        reader.feed(broken)


@given(st.binary(min_size=5, max_size=200))
def test_any_bytes_are_an_answer_a_wait_or_a_protocol_error(data: bytes) -> None:
    reader = AnswerReader(EVERYTHING)
    reader.begin(binary=bool(data[0] & 1))
    payload = stream([b"\x01", column("a", kind=data[1]), eof(), data])
    try:
        reader.feed(payload)
    except ProtocolError:
        return


def test_an_answer_without_a_request() -> None:
    with pytest.raises(ProtocolError, match="without a request"):
        AnswerReader(EVERYTHING).feed(stream([ok()], start=0))


def test_binary_rows() -> None:
    columns = [column("i", 3), column("u", 8, 0x20), column("d", 5), column("f", 4), column("t", 253), column("n", 3)]
    row = b"\0" + bytes((1 << 7,)) + struct.pack("<iQdf", -5, (1 << 64) - 1, 0.1, 16777.216) + framed(b"x" * 300)
    sent = stream([bytes((len(columns),)), *columns, eof(), row, eof()])
    answer = read(sent, range(len(sent)), binary=True)
    assert answer.prepared
    assert answer.rows == ((b"-5", b"18446744073709551615", b"0.1", b"16777.217", b"x" * 300, None),)


def test_a_prepare_with_everything() -> None:
    head = struct.pack("<BIHHBH", 0, 7, 1, 2, 0, 0)
    sent = stream([head, column("?"), column("?"), eof(), column("a"), eof()])
    for cuts in ((), range(len(sent))):
        reader = AnswerReader(EVERYTHING)
        reader.begin_prepare()
        edges = [0, *cuts, len(sent)]
        done = [reader.feed(sent[a:b]) for a, b in itertools.pairwise(edges) if a < b]
        assert done[-1]
        assert reader.prepared is not None
        assert (reader.prepared.number, reader.prepared.parameters) == (7, 2)

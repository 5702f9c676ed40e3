"""Holes of NUL bytes in a log: nothing that was not in the log comes out as a whole statement."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.workload.formats import reading
from migverify.workload.formats.general import GeneralLog
from migverify.workload.formats.holes import HOLE
from migverify.workload.formats.reading import LogFormat, LogReading
from migverify.workload.formats.slow import SlowLog
from migverify.workload.model import Command, Record, Rejected
from tests.unit.log_writers import BANNER, Sent, read, records, rejects, write_general, write_slow

WRITERS = {"slow": (SlowLog(), write_slow), "general": (GeneralLog(), write_general)}
SENT = [
    Sent(b"select %d, 'it is %d' from t where a = \"%d\"" % (one, one, one), one % 5 + 1, end=10**15 + one * 10**6)
    for one in range(60)
]


def whole(form: LogFormat, data: bytes, folder: Path) -> list[tuple[bytes, int | None]]:
    """Return text and session of the statements that are whole."""
    return [(one.sql, one.session) for one in records(read(form, data, folder)) if not one.partial]


@pytest.mark.attack(
    "capture", "a hole of zero bytes in a slow or general log", "a counted reject; no statement is made of two"
)
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("length", [1_000, 5_000])
def test_a_hole_is_a_reject_with_its_bytes(name: str, length: int, tmp_path: Path) -> None:
    form, write = WRITERS[name]
    data = bytearray(write(SENT))
    begin = data.index(b"select 9,") + 12
    data[begin : begin + length] = bytes(length)
    del data[begin + length :]
    data += write(SENT)[len(data) :]
    pieces = read(form, bytes(data), tmp_path)
    damaged = [piece for piece in pieces if isinstance(piece, Rejected)]
    assert {piece.reason for piece in damaged} == {HOLE}
    assert sum(piece.origin.length for piece in damaged) >= length
    sent = {(one.sql, one.session) for one in SENT}
    found = [(one.sql, one.session) for one in records(pieces)]
    assert set(found) < sent
    assert all(not one.partial for one in records(pieces))
    assert found[:9] == [(one.sql, one.session) for one in SENT[:9]]
    if length == 1_000:
        assert found[-1] == (SENT[-1].sql, SENT[-1].session)


@pytest.mark.parametrize("name", WRITERS)
def test_a_log_that_was_truncated_while_it_was_written_begins_with_its_first_record(name: str, tmp_path: Path) -> None:
    form, write = WRITERS[name]
    log = write(SENT).removeprefix(BANNER)
    pieces = read(form, bytes(100_000) + log, tmp_path)
    assert rejects(pieces) == [HOLE]
    assert [one.sql for one in records(pieces)] == [one.sql for one in SENT]


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("value", [b"\0", b"a\0b\0\0", b"\0" * 7])
def test_nul_bytes_of_a_string_are_its_data(name: str, value: bytes, tmp_path: Path) -> None:
    form, write = WRITERS[name]
    sent = [SENT[0], Sent(b"insert into t values (_binary'" + value + b"', 3)", 4), SENT[1]]
    assert whole(form, write(sent), tmp_path) == [(one.sql, one.session) for one in sent]


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize(
    "sql", [b"select" + b"\0" * 8 + b"1", b"select '" + b"\0" * 8 + b"'", b"select 1 /*" + bytes(9) + b"*/"]
)
def test_other_nul_bytes_are_damage(name: str, sql: bytes, tmp_path: Path) -> None:
    form, write = WRITERS[name]
    sent = [SENT[0], Sent(sql, 4), SENT[1]]
    assert whole(form, write(sent), tmp_path) == [(one.sql, one.session) for one in (SENT[0], SENT[1])]


@pytest.mark.parametrize("name", WRITERS)
@settings(max_examples=120, deadline=None)
@given(st.integers(0, 4_000), st.one_of(st.integers(1, 40), st.integers(1, 3_000)), st.integers(64, 500))
def test_holes_anywhere_make_no_statement(name: str, begin: int, length: int, block: int) -> None:
    form, write = WRITERS[name]
    data = bytearray(write(SENT))
    length = min(length, len(data) - begin)
    data[begin : begin + length] = bytes(length)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "the.log"
        path.write_bytes(data)
        pieces = list(form.read(str(path)))
        patch.setattr(reading, "HEADER_BYTES", 4_096)
        assert list(LogReading(str(path), form.grammar(str(path)), 1 << 20, block)) == pieces
    assert sum(piece.origin.length for piece in pieces) == len(data)
    sent = {(one.sql, one.session) for one in SENT}
    for piece in pieces:
        if not isinstance(piece, Record) or piece.partial or piece.command is not Command.QUERY:
            continue
        # A few NULs inside of a statement cannot be told from those that a client sent.
        assert (piece.sql, piece.session) in sent or (0 < piece.sql.count(b"\0") < 8 and length < 8)


def test_the_database_behind_a_hole_is_not_that_of_before(tmp_path: Path) -> None:
    sent = [Sent(b"select %d" % one, database="a" if one < 3 else "b") for one in range(9)]
    data = bytearray(write_slow(sent))
    begin = data.index(b"select 2")
    end = data.index(b"use b")
    data[begin : end + 20] = bytes(end + 20 - begin)
    found = records(read(SlowLog(), bytes(data), tmp_path))
    assert [one.database for one in found] == ["a", "a", None, None, None, None, None]

"""A log that grows is read once and in order, wherever it was cut, rotated, copied or packed meanwhile."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.workload.formats.general import GeneralLog
from migverify.workload.formats.holes import GLUED
from migverify.workload.formats.reading import LogFormat
from migverify.workload.formats.slow import SlowLog
from migverify.workload.model import Record, Rejected
from migverify.workload.shadow.log import PATIENCE, LogPosition, LogTail
from tests.unit.log_writers import BANNER, FORGED, FORGED_GENERAL, Sent, write_general, write_slow

START = 1_767_323_045_678_901
NUMBERS = [Sent(b"SELECT %d" % one, end=START + one * 1000, database="shop") for one in range(1, 31)]
FORMATS: list[tuple[LogFormat, bytes]] = [(SlowLog(), write_slow(NUMBERS)), (GeneralLog(), write_general(NUMBERS))]


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def texts(tail: LogTail, *, most: int | None = None) -> list[str]:
    """Take what is certain, at most so many pieces; a gap and a reject begin with what they are."""
    found = []
    for number, piece in enumerate(tail.pieces(), 1):
        if isinstance(piece, str):
            found.append(f"gap: {piece}")
        elif isinstance(piece, Rejected):
            found.append(f"reject: {piece.reason}")
        elif isinstance(piece, Record):
            found.append(piece.sql.decode() + (f" ({piece.partial})" if piece.partial else ""))
        if number == most:
            break
    tail.settle()
    return found


def patiently(tail: LogTail, clock: Clock) -> list[str]:
    """Take everything, the last record as well."""
    found: list[str] = []
    for _ in range(4):
        found += texts(tail)
        clock.now += PATIENCE
    return found


def expected(first: int = 1, last: int = 30) -> list[str]:
    return [f"SELECT {one}" for one in range(first, last + 1)]


@given(cuts=st.lists(st.integers(0, 4_000), max_size=6), number=st.sampled_from([0, 1]), most=st.integers(1, 12))
@settings(max_examples=60)
def test_a_log_that_grows_byte_by_byte_gives_each_record_once(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], number: int, most: int
) -> None:
    form, data = FORMATS[number]
    path, clock = tmp_path_factory.mktemp("log") / "the.log", Clock()
    path.write_bytes(b"")
    position: LogPosition | None = None
    found: list[str] = []
    for cut in [*sorted({min(cut, len(data)) for cut in cuts}), len(data)]:
        path.write_bytes(data[:cut]) if not path.stat().st_size else append(path, data[path.stat().st_size : cut])
        tail = LogTail(path, form, position, clock)  # a new process each time
        while True:
            some = texts(tail, most=most)
            found += some
            if not some:
                break
        position = LogPosition.from_json(tail.settle().as_json())
    found += patiently(LogTail(path, form, position, clock), clock)
    assert found == expected()


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@pytest.mark.parametrize(("form", "forged"), [(SlowLog(), FORGED), (GeneralLog(), FORGED_GENERAL)])
def test_a_header_inside_a_literal_that_is_not_closed_yet_begins_no_record(
    tmp_path: Path, form: LogFormat, forged: bytes
) -> None:
    sent = [NUMBERS[0], Sent(b"SELECT '" + forged + b"', 2", end=START + 5_000), NUMBERS[9]]
    data = write_slow(sent) if form.name == "slow" else write_general(sent)
    path = tmp_path / "the.log"
    for cut in range(data.index(forged) + 2, data.index(forged) + len(forged) + 4):
        path.write_bytes(data[:cut])
        tail = LogTail(path, form, clock=Clock())
        assert texts(tail) == ["SELECT 1"]
        append(path, data[cut:])
        assert texts(tail) == [f"SELECT '{forged.decode()}', 2"]
        path.unlink()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("form", "data"), FORMATS)
def test_a_log_that_was_renamed_is_read_to_its_end(tmp_path: Path, form: LogFormat, data: bytes, packed: bool) -> None:
    path, old = tmp_path / "the.log", tmp_path / "the.log.1"
    middle = data.index(b"SELECT 20\n" if form.name == "general" else b"SELECT 20;")
    begin = data.rindex(b"\n", 0, middle - 300 if form.name == "slow" else middle) + 1
    begin = data.rindex(b"# Time", 0, middle) if form.name == "slow" else begin
    path.write_bytes(data[: len(data) // 3])
    clock = Clock()
    tail = LogTail(path, form, clock=clock)
    found = texts(tail)
    assert 3 < len(found) < 15
    path.write_bytes(data[:begin]) if False else append(path, data[len(data) // 3 : begin])
    path.rename(old)
    append(old, b"")
    found += texts(tail)  # the server writes the old file until it opens the new one
    rest = data[begin:] if form.name == "general" else data[begin:].replace(b"SET", b"use shop;\nSET", 1)
    path.write_bytes(BANNER + rest)
    if packed:
        (tmp_path / "the.log.1.gz").write_bytes(gzip.compress(old.read_bytes()))
        shutil.copystat(old, tmp_path / "the.log.1.gz")
        old.unlink()
    tail = LogTail(path, form, LogPosition.from_json(tail.settle().as_json()), clock)
    found += patiently(tail, clock)
    assert found == expected()


def test_several_rotations_while_nobody_read_are_read_in_their_order(tmp_path: Path) -> None:
    path, clock = tmp_path / "the.log", Clock()
    data = [write_general(NUMBERS[first : first + 10]) for first in (0, 10, 20)]
    path.write_bytes(data[0][:400])
    tail = LogTail(path, GeneralLog(), clock=clock)
    found = texts(tail)
    append(path, data[0][400:])
    path.rename(tmp_path / "the.log.2")
    (tmp_path / "the.log.1").write_bytes(data[1])
    for age, name in enumerate(("the.log.1", "the.log.2")):
        os.utime(tmp_path / name, (1_000_000 - age, 1_000_000 - age))
    path.write_bytes(data[2])
    found += patiently(tail, clock)
    assert found == expected()


def test_a_log_that_was_copied_and_truncated_goes_on(tmp_path: Path) -> None:
    path, clock = tmp_path / "the.log", Clock()
    data = write_slow(NUMBERS)
    first = data.rindex(b"# Time", 0, data.index(b"SELECT 20;"))
    path.write_bytes(data[: first // 2])
    tail = LogTail(path, SlowLog(), clock=clock)
    records = [piece for piece in tail.pieces() if isinstance(piece, Record)]
    append(path, data[first // 2 : first])
    shutil.copy(path, tmp_path / "the.log.1")
    path.write_bytes(b"")
    append(path, data[first:])
    for _ in range(3):
        records += [piece for piece in tail.pieces() if isinstance(piece, Record)]
        clock.now += PATIENCE
    assert [one.sql.decode() for one in records] == expected()
    assert {one.database for one in records} == {"shop"}  # the server does not name it again


def test_what_no_file_holds_any_more_is_a_gap(tmp_path: Path) -> None:
    path, clock = tmp_path / "the.log", Clock()
    data = write_general(NUMBERS)
    path.write_bytes(data[:600])
    tail = LogTail(path, GeneralLog(), clock=clock)
    before = texts(tail)
    path.write_bytes(write_general(NUMBERS[25:]))
    found = patiently(tail, clock)
    assert found[0].startswith("gap: the.log was truncated or removed before what is behind byte")
    assert (before[0], found[1:]) == ("SELECT 1", expected(26))


def test_a_record_that_breaks_off_waits_and_is_cut_when_its_file_is_over(tmp_path: Path) -> None:
    path, clock = tmp_path / "the.log", Clock()
    path.write_bytes(write_general(NUMBERS[:2]) + b"2026-01-02T03:04:05.900000Z\t    3 Query\tSELECT 'half")
    tail = LogTail(path, GeneralLog(), clock=clock)
    assert patiently(tail, clock) == expected(1, 2)
    assert tail.is_quiet
    assert tail.unread > 0
    path.rename(tmp_path / "the.log.1")
    path.write_bytes(write_general(NUMBERS[2:4]))
    found = patiently(tail, clock)
    assert found[0] == "SELECT 'half (statement cut by the end of the file)"
    assert found[1:] == expected(3, 4)


def damaged_headers() -> list[bytes]:
    sent = write_slow([Sent(b"SELECT %d" % one, end=START + one * 1000, database="shop") for one in (1, 2, 3)])
    at = sent.index(b"# Time", sent.index(b"SELECT 1"))
    head, second = sent[:at], sent[at:]
    windows = second.split(b"SELECT 3")[0]
    end = windows.index(b"SELECT 2;\n") + len(b"SELECT 2;\n")
    return [
        head + b"garbage\n" + second.replace(b"# Time", b"#Time", 1),
        head + b"garbage\n" + second,
        head + second.replace(b"# Time", b"#Time", 1).replace(b"# User@Host", b"#User@Host", 1),
        head + second[:end].replace(b"\n", b"\r\n") + second[end:],
    ]


@pytest.mark.parametrize("data", damaged_headers())
def test_records_that_a_damaged_header_joins_are_rejected(tmp_path: Path, data: bytes) -> None:
    path, clock = tmp_path / "slow.log", Clock()
    path.write_bytes(data)
    found = patiently(LogTail(path, SlowLog(), clock=clock), clock)
    assert f"reject: {GLUED}" in found
    assert not [text for text in found if "\n" in text]


def test_a_header_in_a_literal_or_an_ordinary_statement_is_no_damage(tmp_path: Path) -> None:
    path, clock = tmp_path / "slow.log", Clock()
    some = [
        b"SELECT '\n# Time: x\n# User@Host: y'",
        b"SET @a = 1",
        b"SELECT 1 # User@Host: no line of its own",
        b"XA END 'x'",
    ]
    path.write_bytes(write_slow([Sent(sql, end=START + one, database="shop") for one, sql in enumerate(some)]))
    assert patiently(LogTail(path, SlowLog(), clock=clock), clock) == [sql.decode() for sql in some]


def test_a_log_says_where_the_record_begins_that_breaks_off(tmp_path: Path) -> None:
    path, clock = tmp_path / "slow.log", Clock()
    whole = write_slow(NUMBERS[:3])
    path.write_bytes(whole + write_slow(NUMBERS[3:4])[:-5])
    tail = LogTail(path, SlowLog(), clock=clock)
    assert patiently(tail, clock)[:3] == expected(1, 3)
    assert tail.is_quiet
    assert tail.left_over.startswith("slow.log, byte ")
    assert LogTail(tmp_path / "none.log", SlowLog()).left_over == ""


def test_a_quote_that_nobody_closes_holds_nothing_up(tmp_path: Path) -> None:
    path, clock = tmp_path / "the.log", Clock()
    sent = [NUMBERS[0], Sent(b"SELECT 'it", end=START + 4_000), *NUMBERS[4:]]
    path.write_bytes(write_general(sent))
    found = patiently(LogTail(path, GeneralLog(), clock=clock), clock)
    assert found[0] == "SELECT 1"
    assert found[1].startswith("SELECT 'it (")
    assert found[2:] == expected(5)


def test_a_record_that_is_longer_than_any_may_be_is_rejected(tmp_path: Path) -> None:
    path, clock = tmp_path / "the.log", Clock()
    sent = [NUMBERS[0], Sent(b"SELECT '" + b"x" * (3 << 20) + b"'", end=START + 4_000), *NUMBERS[4:]]
    path.write_bytes(write_general(sent))
    found = patiently(LogTail(path, GeneralLog(), clock=clock), clock)
    assert found == ["SELECT 1", "reject: record longer than the limit", *expected(5)]


STEPS = st.sampled_from(["write", "rename", "copy", "pack", "touch", "read", "read two", "kill"])


@given(steps=st.lists(STEPS, max_size=24), number=st.sampled_from([0, 1]))
@settings(max_examples=200, deadline=None)
def test_every_record_comes_once_however_the_log_was_rotated(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], number: int
) -> None:
    form = FORMATS[number][0]
    world = RotatedLog(tmp_path_factory.mktemp("log"), (write_slow, write_general)[number])
    clock = Clock()
    tail, found = LogTail(world.path, form, clock=clock), list[str]()
    found += texts(tail)
    for step in steps:
        if step == "read":
            found += patiently(tail, clock)
        elif step == "read two":
            found += texts(tail, most=2)
        elif step == "kill":
            tail = LogTail(world.path, form, LogPosition.from_json(tail.settle().as_json()), clock)
        else:
            world.do(step)
    found += patiently(tail, clock)
    assert sorted(found) == sorted(expected(1, world.written))
    if "touch" not in steps:
        assert found == expected(1, world.written)


class RotatedLog:
    """A log and its rotated files, as servers and logrotate leave them."""

    def __init__(self, folder: Path, write: Callable[[list[Sent]], bytes]) -> None:
        self.path, self._write, self.written, self._moment = folder / "the.log", write, 0, 1_000
        self.path.write_bytes(write([]))

    def do(self, step: str) -> None:
        self._moment += 10
        rotated = sorted(self.path.parent.glob("the.log.*"), key=lambda one: int(one.name.split(".")[2]))
        if step == "write":
            some = [Sent(b"SELECT %d" % one, end=START + one * 1000, database="shop")
                    for one in range(self.written + 1, self.written + 4)]  # fmt: skip
            self.written += len(some)
            append(self.path, self._write(some) if not self.path.stat().st_size else self._write(some)[len(BANNER) :])
        elif step in ("rename", "copy"):
            for one in reversed(rotated):
                name, _, packed = one.name.removeprefix("the.log.").partition(".")
                one.rename(self.path.parent / f"the.log.{int(name) + 1}{'.gz' if packed else ''}")
            newest = self.path.parent / "the.log.1"
            if step == "rename":
                self.path.rename(newest)
                self.path.write_bytes(self._write([]))
            else:
                shutil.copy(self.path, newest)
                os.truncate(self.path, 0)
            os.utime(newest, (self._moment, self._moment))
        elif step == "pack" and rotated and rotated[-1].suffix != ".gz":
            packed_file = rotated[-1].with_name(rotated[-1].name + ".gz")
            packed_file.write_bytes(gzip.compress(rotated[-1].read_bytes()))
            os.utime(packed_file, ns=(rotated[-1].stat().st_mtime_ns,) * 2)
            rotated[-1].unlink()
        elif step == "touch" and rotated:
            os.utime(rotated[-1], (self._moment, self._moment))


def test_a_packed_file_that_is_damaged_is_a_gap_and_the_rest_is_read(tmp_path: Path) -> None:
    path, clock = tmp_path / "the.log", Clock()
    path.write_bytes(write_slow(NUMBERS[:5]))
    tail = LogTail(path, SlowLog(), clock=clock)
    assert patiently(tail, clock) == expected(1, 5)
    position = tail.settle()
    for age, first in ((3, 0), (2, 5), (1, 10)):
        data = gzip.compress(write_slow(NUMBERS[first : first + 5]))
        packed = tmp_path / f"the.log.{age}.gz"
        packed.write_bytes(data[: len(data) // 2] if age == 2 else data)
        os.utime(packed, (1_000 - age, 1_000 - age))
    path.write_bytes(write_slow(NUMBERS[15:20]))
    found = patiently(LogTail(path, SlowLog(), LogPosition.from_json(position.as_json()), clock), clock)
    gaps = [one for one in found if one.startswith("gap")]
    assert len(gaps) == 1
    assert "the.log.2.gz is damaged" in gaps[0]
    assert [one for one in found if one not in gaps][-10:] == expected(11, 20)


def test_a_name_with_brackets_has_rotated_files_too(tmp_path: Path) -> None:
    path, clock = tmp_path / "the[1].log", Clock()
    path.write_bytes(write_slow(NUMBERS[:5]))
    tail = LogTail(path, SlowLog(), clock=clock)
    found = patiently(tail, clock)
    append(path, write_slow(NUMBERS[5:10])[len(BANNER) :])
    path.rename(tmp_path / "the[1].log.1")
    path.write_bytes(write_slow(NUMBERS[10:15]))
    assert found + patiently(tail, clock) == expected(1, 15)


def test_many_quotes_that_nobody_closes_hold_nothing_up(tmp_path: Path) -> None:
    path, clock = tmp_path / "the.log", Clock()
    some = [Sent(b"SELECT 'open %d" % one, end=START + one * 1000, database="shop") for one in range(200)]
    path.write_bytes(write_slow(some))
    tail = LogTail(path, SlowLog(), clock=clock)
    texts(tail)
    for _ in range(2):
        clock.now += PATIENCE
        texts(tail)
    assert tail.is_quiet
    assert tail.unread == 0

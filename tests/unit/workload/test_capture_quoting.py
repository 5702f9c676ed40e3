"""General and slow logs of sessions that read quotes in unlike ways: no record is lost, made up or wrong unmarked."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.sql.lexer import DEFAULT, Modes
from migverify.workload.capture import CaptureInput, CaptureOptions, capture
from migverify.workload.formats.general import GeneralLog
from migverify.workload.formats.slow import SlowLog
from migverify.workload.model import CaptureFormat, Record
from migverify.workload.quotes import UNBALANCED, UNCERTAIN, closed, quoting
from migverify.workload.sessions import BEGAN_BEFORE
from tests.unit.log_writers import BANNER, FORGED, FORGED_GENERAL, Sent, read, records, write_general, write_slow

Writer = Callable[[Sequence[Sent]], bytes]
LOGS: list[tuple[CaptureFormat, Writer]] = [(GeneralLog(), write_general), (SlowLog(), write_slow)]
BOTH = pytest.mark.parametrize(("form", "write"), LOGS, ids=["general", "slow"])
MODES = {
    3: (b"", DEFAULT),
    4: (b"SET sql_mode = 'NO_BACKSLASH_ESCAPES'", Modes(no_backslash_escapes=True)),
    5: (b"SET SESSION sql_mode='ANSI_QUOTES,STRICT_TRANS_TABLES'", Modes(ansi_quotes=True)),
    6: (b"SET NAMES gbk", Modes(charset="gbk")),
}
AT = 1_767_323_045_000_000


def sent(*texts: tuple[int, bytes]) -> list[Sent]:
    return [Sent(sql, session, end=AT + 10_000 * number) for number, (session, sql) in enumerate(texts)]


def found(form: CaptureFormat, write: Writer, texts: Sequence[tuple[int, bytes]], folder: Path) -> list[Record]:
    return records(read(form, write(sent(*texts)), folder))


def check(form: CaptureFormat, write: Writer, texts: Sequence[tuple[int, bytes]]) -> int:
    """Check that what is unmarked is true, and that what is lost is inside of what is marked; return the marked."""
    heads = [len(write(sent(*texts[:number]))) for number in range(1, len(texts))]
    begins = [len(BANNER), *heads]
    true = dict(zip(begins, texts, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        read_back = found(form, write, texts, Path(folder))
    for one in read_back:
        if not one.partial:
            assert true.get(one.origin.offset) == (one.session, one.sql)
    marked = [range(one.origin.offset, one.origin.offset + one.origin.length) for one in read_back if one.partial]
    plain = {one.origin.offset for one in read_back if not one.partial}
    assert [at for at in begins if at not in plain and not any(at in span for span in marked)] == []
    return len(marked)


@BOTH
def test_a_session_that_set_its_mode_is_read_by_it(form: CaptureFormat, write: Writer, tmp_path: Path) -> None:
    forged = FORGED if form.name == "slow" else FORGED_GENERAL
    texts = [
        (4, b"SET sql_mode = 'STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES'"),
        (3, b"select 1"),
        (4, b"insert into f values ('C:\\')"),
        (5, b"delete from t"),
        (4, b"insert into f values ('\\', '" + forged + b"')"),
        (3, b"insert into f values (' x')"),
        (5, b"SET SQL_MODE=ANSI"),
        (5, b'select "a\\"'),
        (6, b"SET NAMES gbk"),
        (6, b"select '\xd5\\'"),
        (3, b"select ' x'"),
        (4, b"SET sql_mode = @old"),
        (3, b"select 2"),
    ]
    one = found(form, write, texts, tmp_path)
    assert [(record.session, record.sql, record.partial) for record in one] == [(*text, "") for text in texts]


@BOTH
def test_a_mode_holds_in_the_parts_of_a_file(form: CaptureFormat, write: Writer, tmp_path: Path) -> None:
    forged = FORGED if form.name == "slow" else FORGED_GENERAL
    text = b"insert into f values ('\\', '" + forged + b"')"
    log = tmp_path / "log"
    log.write_bytes(write(sent((4, MODES[4][0]), *[(4, text), (3, b"select 1")] * 60)))
    options = CaptureOptions(tmp_path / "out", part_bytes=3_000)
    summary = capture([CaptureInput(log, form)], options)
    assert (summary.statements, summary.rejected) == (121, 0)
    assert set(summary.partial) <= {BEGAN_BEFORE}


@BOTH
@pytest.mark.attack(
    "capture", "a literal of a NO_BACKSLASH_ESCAPES session that holds a record of the log", "is marked, not guessed"
)
def test_an_unknown_mode_is_not_guessed(form: CaptureFormat, write: Writer, tmp_path: Path) -> None:
    forged = FORGED if form.name == "slow" else FORGED_GENERAL
    texts = [(4, b"select '\\', ' " + forged + b"', 'x'"), (3, b"select 'next'")]
    one = found(form, write, texts, tmp_path)
    assert one[0].partial == UNCERTAIN
    check(form, write, texts)


@BOTH
def test_escaped_quotes_of_default_sessions_are_not_marked(form: CaptureFormat, write: Writer, tmp_path: Path) -> None:
    told = [
        b"select 'it\\'s'", b"select 1", b"insert into t values ('a\\'', \"{\\\"k\\\": 1}\", ' x')", b"select '\\''",
        b"update t set a = ' '", b"select '\\\\'", b"select \"\\\"\"", b"select 'na\xc3\xaf\\'ve \xe4\xb8\xad\\''",
    ]  # fmt: skip
    texts = [(3, sql) for sql in told * 4]
    one = found(form, write, texts, tmp_path)
    assert [(record.sql, record.partial) for record in one] == [(sql, "") for _, sql in texts]


@BOTH
def test_a_path_of_an_unknown_mode_is_marked(form: CaptureFormat, write: Writer, tmp_path: Path) -> None:
    texts = [(4, b"select 'C:\\'"), *[(3, b"select 'x'")] * 5]
    one = found(form, write, texts, tmp_path)
    assert [(record.sql, record.partial) for record in one] == [
        (b"select 'C:\\'", UNBALANCED), *[(b"select 'x'", "")] * 5
    ]  # fmt: skip


PARTS = st.lists(
    st.sampled_from([
        b"C:\\", b"\\", b"'", b'"', b"`", b" x", b"s", b"\xd5\\", b"\xe4\xb8\xad", FORGED, FORGED_GENERAL, b"\n", b",",
        b"# '", b"-- ", b"/*",
    ]), max_size=4,
).map(tuple)  # fmt: skip


def literal(parts: Sequence[bytes], quote: bytes, modes: Modes, *, doubled: bool) -> bytes:
    """Write a value as a client of a mode does."""
    escapes = not modes.no_backslash_escapes and not (quote == b'"' and modes.ansi_quotes) and quote != b"`"
    out = b""
    for part in parts:
        if modes.charset and part == b"\xd5\\":
            out += part
            continue
        text = part.replace(b"\\", b"\\\\") if escapes else part
        out += text.replace(quote, b"\\" + quote if escapes and not doubled else quote * 2)
    return quote + out + quote


@st.composite
def statement(draw: st.DrawFn) -> tuple[int, bytes]:
    session = draw(st.sampled_from(sorted(MODES)))
    modes = MODES[session][1]
    if draw(st.booleans()):
        return session, b"select 1"
    quotes = st.sampled_from([b"'", b"'", b'"', b"`"])
    literals = [
        literal(draw(PARTS), draw(quotes), modes, doubled=draw(st.booleans())) for _ in range(draw(st.integers(1, 3)))
    ]
    text = draw(st.sampled_from([b"select ", b"insert into t values ("]))
    return session, text + b", ".join(literals) + (b")" if text.endswith(b"(") else b"")


def is_valid(text: tuple[int, bytes]) -> bool:
    read_as = quoting(MODES[text[0]][1]).valid.match(text[1])
    return read_as is not None and read_as.end() == len(text[1])


STATEMENTS = st.lists(statement().filter(is_valid), min_size=1, max_size=7)


@BOTH
@settings(max_examples=30, deadline=None)
@given(texts=STATEMENTS, told=st.booleans())
def test_what_is_not_marked_is_true(
    form: CaptureFormat, write: Writer, texts: list[tuple[int, bytes]], *, told: bool
) -> None:  # fmt: skip
    sets = [(session, sql) for session, (sql, _) in MODES.items() if sql and told]
    check(form, write, [*sets, *texts])


@BOTH
@settings(max_examples=20, deadline=None)
@given(texts=st.lists(statement().filter(is_valid).filter(lambda one: one[0] != 3), max_size=7))
def test_known_modes_are_read_without_marks(form: CaptureFormat, write: Writer, texts: list[tuple[int, bytes]]) -> None:
    sets = [(session, sql) for session, (sql, _) in MODES.items() if sql]
    assert check(form, write, [*sets, *texts]) == 0


def test_default_readings_agree() -> None:
    assert closed(b"select 'C:\\\\'", 0, 13)
    assert not closed(b"select 'C:\\'", 0, 12)

"""No literal of what was captured is in what is written."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.sql.lexer import WIDE, Modes
from migverify.workload.capture import CaptureInput, CaptureOptions, capture
from migverify.workload.mask import length_class, mask_statement, mask_text, mask_value
from migverify.workload.model import Parameter
from migverify.workload.sessions import SessionStatement
from migverify.workload.state import SessionState
from tests.unit.capture_logs import Lines, record, write_lines


@pytest.mark.parametrize(
    ("sql", "masked"),
    [
        ("select 'it''s', \"a\\\"b\", 12, -3.50, 1.5e10", "select 'xxxx', \"xxxx\", 10, -1.00, 1.0e0"),
        ("select x'ABCD', 0xFF, b'101', 0b11", "select x'0000', 0x00, b'000', 0b00"),
        ("select DATE '2024-05-06', '2024-05-06 07:08:09.123', '12:30:00'",
         "select DATE '2000-01-01', '2000-01-01 00:00:00.000', '00:00:00'"),
        ("select '42', '{\"a\": 1}', ''", "select '10', '{}', ''"),
        ("select t1.c2, `3x` from db1.t1 /* id=77 */ -- 88\nwhere a=? # 99",
         "select t1.c2, `3x` from db1.t1 /**/ \nwhere a=? "),
        ("select /*+ SET_VAR(a = 'secret') INDEX(t1 i) */ 1 /*!80000 + 23 */",
         "select /*+ SET_VAR(a = 'xxxx') INDEX(t1 i) */ 1 /*!80000 + 10 */"),
        ("select 'cut off", "select 'xxxx'"),
        ("SET NAMES 'latin1', sql_mode = 'ANSI', @m = 'secret'", "SET NAMES 'latin1', sql_mode = 'ANSI', @m = 'xxxx'"),
        ("SET SESSION wait_timeout = 100", "SET SESSION wait_timeout = 100"),
        ("SET @@session.time_zone = '+02:00'", "SET @@session.time_zone = '+02:00'"),
        ("SET PASSWORD = 'secret'", "SET PASSWORD = 'xxxx'"),
        ("CREATE USER 'bob'@'%' IDENTIFIED BY 'secret'", "CREATE USER 'xx'@'x' IDENTIFIED BY 'xxxx'"),
    ],
)  # fmt: skip
def test_forms(sql: str, masked: str) -> None:
    assert mask_text(sql.encode()).decode() == masked


def test_modes() -> None:
    assert mask_text(b'select "name"', "ANSI_QUOTES") == b'select "name"'
    assert mask_text(b'select "name"') == b'select "xxxx"'
    assert mask_text(rb"select 'a\', 'secret'", "NO_BACKSLASH_ESCAPES") == b"select 'xx', 'xxxx'"
    assert mask_text(rb'select "a\", "secret"', "NO_BACKSLASH_ESCAPES") == b'select "xx", "xxxx"'
    wide = "select '\u8a31', 'secret'".encode("big5")  # its second byte is a backslash
    assert b"\\" in wide
    assert mask_text(wide, "", "big5") == b"select 'xx', 'xxxx'"


@pytest.mark.attack(
    "capture", "--mask of texts whose literals end elsewhere in another sql_mode, character set or version",
    "masked as the session reads them, or whole",
)  # fmt: skip
@pytest.mark.parametrize(
    "sql",
    [
        rb"select 'a\', QzQz, ' -- '",
        rb"select 'a\' , 'QzQz' , '\'",
        rb'select "a\", QzQz, " -- "',
        b"/*!99999 ' */ 'QzQz' -- '",
        b"select /*!1 '*/ /*!2 '*/ 'QzQz' '",
        b"select '\xbf\\', QzQz, ' -- '",
        b"select `\xbf`, 'QzQz', `\xbf`",
        b"select 1 --\x01'\n, 'QzQz' , '",
        b"select 1 --\xa0'\n, 'QzQz' , '",
        b"SET x = 1; INSERT INTO t VALUES ('QzQz')",
        b"SET names utf8; SELECT 'QzQz'",
        b"SET sql_mode = (SELECT 'QzQz')",
        b"SET sql_mode = CONCAT('QzQz', 1), time_zone = 'SYSTEM'",
        b"SET time_zone = 'SYSTEM', x = 'QzQz'",
        b"SET @a = 1, sql_mode = 'QzQz'",
        b"SELECT 1; SET x = 'QzQz'",
        b"SELECT @'QzQz'",
        b"SELECT N'QzQz', n'Qz', _utf8mb4'Qz'",
        b"SELECT /*+ SET_VAR(x = 'a\\'Qz Qz') */ 1",
        b"CREATE USER 'QzQz'@'Qz' IDENTIFIED BY 'Qz'",
    ],
)
def test_what_is_not_certain_is_masked_whole(sql: bytes) -> None:
    assert b"Qz" not in mask_text(sql)


def written(value: bytes, quote: bytes, modes: Modes) -> bytes:
    """Return a literal that stands for a value, as a client of this session writes it."""
    found = b"".join(
        part if len(part) > 1 or modes.no_backslash_escapes else part.replace(b"\\", b"\\\\")
        for part in re.findall(WIDE[modes.charset] + b"|." if modes.charset else b".", value, re.DOTALL)
    )
    return quote + found.replace(quote, quote * 2) + quote


pieces = st.sampled_from(
    [
        b"a",
        b" ",
        b"'",
        b'"',
        b"\\",
        b"`",
        b"\n",
        b";",
        b"#",
        b"-- ",
        b"/*",
        b"*/",
        b"/*!",
        b"\xbf\x5c",
        b"\x83\x5c",
        b"\xa5\x60",
        b"\x81\x30\x81\x30",
        b"%",
        b",",
        b"QzQz",
    ]
)


@pytest.mark.attack(
    "capture",
    "--mask of generated statements of any sql_mode and character set, known or not",
    "no byte of a literal is left",
)
@settings(deadline=None, max_examples=60)
@given(data=st.data(), known_mode=st.booleans(), known_charset=st.booleans())
def test_no_literal_of_a_generated_statement_is_left(
    data: st.DataObject, known_mode: bool, known_charset: bool
) -> None:
    sql_mode = data.draw(st.sampled_from(["", "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "ANSI,NO_BACKSLASH_ESCAPES"]))
    charset = data.draw(st.sampled_from(["utf8mb4", *WIDE]))
    modes = Modes.of(sql_mode, charset)
    quotes = [b"'"] if modes.ansi_quotes else [b"'", b'"']
    sql = data.draw(
        st.sampled_from([b"select 1", b"SET x = 1", b"SET NAMES utf8", b"SET sql_mode = ''", b"update t set a = 2"])
    )
    for _ in range(data.draw(st.integers(1, 4))):
        value = b"".join(data.draw(st.lists(pieces, max_size=6)))
        if modes.charset:  # half a character is none
            value = b"".join(re.findall(WIDE[modes.charset] + rb"|[\x00-\x7f]", value, re.DOTALL))
        elif not value.isascii():
            value = value.decode("latin-1").encode()
        value = b"Qz" + value + b"Qz"
        literal = written(value, data.draw(st.sampled_from(quotes)), modes)
        form = data.draw(
            st.sampled_from([b", (%s)", b", %s", b"; select %s", b" /* %s */, %s", b" /*! , %s */", b", @a = %s"])
        )
        plain = b"QzQz"
        sql += (
            form.replace(b"%s", plain, 1).replace(b"%s", literal)
            if form.count(b"%s") > 1
            else form.replace(b"%s", literal)
        )
        sql += data.draw(st.sampled_from([b"", b", `a`", b" -- Qz\n", b" # Qz\n", b", t.c"]))
    assert b"Qz" not in mask_text(sql, sql_mode if known_mode else None, charset if known_charset else None)


SECRET = "Qz"
literals = st.one_of(
    st.text(st.sampled_from("ab '\"\\%\n;#-/*`"), max_size=12).map(lambda text: SECRET + text + SECRET),
    st.integers(2_000, 10**15).filter(lambda n: n % 1000 != 0).map(lambda n: n),
)  # fmt: skip


def quoted(value: str | int, quote: str) -> str:
    if isinstance(value, int):
        return str(value)
    return quote + value.replace("\\", "\\\\").replace(quote, quote * 2) + quote


@given(values=st.lists(st.tuples(literals, st.sampled_from("'\"")), min_size=1, max_size=6), comment=st.booleans())
def test_no_literal_is_left(values: list[tuple[str | int, str]], comment: bool) -> None:
    parts = [f"c{n} = {quoted(value, quote)}" for n, (value, quote) in enumerate(values)]
    sql = f"select {'/* ' + SECRET + ' */' if comment else ''} a from `t` where " + " and ".join(parts)
    masked = mask_text(sql.encode()).decode()
    assert SECRET not in masked
    for value, _ in values:
        if isinstance(value, int):
            assert not re.search(rf"\b{value}\b", masked)
    assert re.findall(r"c\d = ", masked) == re.findall(r"c\d = ", sql)[: len(values)]
    assert mask_text(masked.encode()).decode() == masked


@given(st.binary(max_size=200))
def test_any_bytes(sql: bytes) -> None:
    masked = mask_text(sql)
    assert mask_text(masked) == masked or b"'" in sql or b'"' in sql or b"/" in sql or b"-" in sql or b"#" in sql


@given(st.integers(1, 1 << 20))
def test_a_masked_text_fits_where_the_text_did(size: int) -> None:
    assert size // 2 < length_class(size) <= size


def test_values_keep_their_kind() -> None:
    kinds = [
        ("integer", b"123456"),
        ("date", b"2024-05-06"),
        ("text", b"alice"),
        ("bytes", b"\x01\x02\x03"),
        ("null", None),
    ]
    statement = SessionStatement(
        record(
            "select ?", parameters=tuple(Parameter(*one) for one in kinds), details={"app": "alice", "warnings": "1"}
        ),
        "-/1/1", 0, SessionState(), "",
    )  # fmt: skip
    found = mask_statement(statement).record
    assert found.details == {"warnings": "1"}
    assert [(one.kind, one.value) for one in found.parameters or ()] == [
        ("integer", b"100000"), ("date", b"2000-01-01"), ("text", b"xxxx"), ("bytes", b"\0\0"), ("null", None),
    ]  # fmt: skip
    assert mask_value(b"+1.5e3") == b"+1.0e0"


def test_nothing_of_a_masked_capture_holds_a_literal(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from migverify.workload.mask import mask_text as text_mask

    texts = ["SET @mail = 'QzQz'", "select 'QzQz'", "PREPARE s FROM 'select QzQz'", "/* QzQz */ select 1", "select 'Qz",
             "SET SESSION my_plugin = 'QzQz'", "SET x = 1; SET y = 'QzQz'", "SET foo = '\\', bar = 'p, x = QzQz, \\'",
             "SET sql_mode = (SELECT 'QzQz')", "SET wait_timeout = 5",
             "SET @a = '\\', @b = 'QzQz'; SET y = 'QzQz'"]  # fmt: skip
    log = write_lines(
        tmp_path / "a.log",
        [{"sql": sql, "session": 1, "start": n, "details": {"x": "Qz"}} for n, sql in enumerate(texts)],
    )
    options = CaptureOptions(tmp_path / "out", mask=mask_statement, text_mask=text_mask)
    assert capture([CaptureInput(log, Lines())], options).masked
    import pyarrow.parquet as pq

    shown = repr(pq.read_table(tmp_path / "out").to_pylist()) + (tmp_path / "out" / "_summary.json").read_text()
    assert "mail" in shown
    assert "Qz" not in shown
    assert "wait_timeout" in shown


@pytest.mark.parametrize("umask", [0, 0o777])
def test_a_capture_is_for_its_owner_alone(tmp_path: Path, umask: int) -> None:
    pytest.importorskip("pyarrow")
    log = write_lines(tmp_path / "a.log", [{"sql": f"select {n}", "session": n % 7, "start": n} for n in range(300)])
    before = os.umask(umask)
    try:
        capture([CaptureInput(log, Lines())], CaptureOptions(tmp_path / "out", run_bytes=20_000))
    finally:
        os.umask(before)
    found = [tmp_path / "out", *(tmp_path / "out").rglob("*")]
    assert len(found) > 4
    for path in found:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path

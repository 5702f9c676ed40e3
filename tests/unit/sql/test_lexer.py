"""Tokens of statements: every byte belongs to a token, to space or to a comment; servers' traps."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.sql.lexer import (
    Dialect,
    Modes,
    TokenKind,
    executed,
    has_executable_comment,
    mysql_runs,
    tidb_runs,
    tokens,
)


def read(sql: str, dialect: Dialect = "mysql", modes: Modes | None = None) -> list[tuple[str, str]]:
    raw = sql.encode()
    return [
        (token.kind.name, raw[token.start : token.end].decode()) for token in tokens(raw, dialect, modes or Modes())
    ]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a.b c", [("NAMES", "a.b"), ("WORD", "c")]),
        ("1e5x 1b 0x1F 0x1G .5 1.", [("NUMBER", "1e5"), ("WORD", "x"), ("NAMES", "1b"), ("NUMBER", "0x1F"),
                                     ("NAMES", "0x1G"), ("NUMBER", ".5"), ("NUMBER", "1.")]),
        ("'it''s' 'a\\'b' \"q\" N'n' x'1F' b'01'", [("STRING", "'it''s'"), ("STRING", "'a\\'b'"), ("STRING", '"q"'),
                                                  ("STRING", "N'n'"), ("NUMBER", "x'1F'"), ("BITS", "b'01'")]),
        ("@a @'b c' @@session.x @", [("VARIABLE", "@a"), ("VARIABLE", "@'b c'"), ("VARIABLE", "@@session.x"),
                                     ("VARIABLE", "@")]),
        ("`x``y`.z", [("QUOTED", "`x``y`"), ("NAMES", ".z")]),
        ("a->>'$' := <=> --1", [("WORD", "a"), ("OPERATOR", "->>"), ("STRING", "'$'"), ("OPERATOR", ":="),
                               ("OPERATOR", "<=>"), ("OPERATOR", "-"), ("OPERATOR", "-"), ("INTEGER", "1")]),
        ("a -- b\n/* c */ d # e", [("WORD", "a"), ("WORD", "d")]),
        ("a --", [("WORD", "a")]),
        ("select /*+ h */ ?", [("WORD", "select"), ("HINT", "/*+ h */"), ("PARAMETER", "?")]),
        ("a 'open -- ", [("WORD", "a"), ("OPEN", "'open -- ")]),
        ("a /* open", [("WORD", "a"), ("OPEN", "/* open")]),
        ("a `open", [("WORD", "a"), ("OPEN", "`open")]),
        ("/*/ still */ a", [("WORD", "a")]),
        ("", []),
    ],
)  # fmt: skip
def test_tokens(sql: str, expected: list[tuple[str, str]]) -> None:
    assert read(sql) == expected


def test_the_dialects_part() -> None:
    assert read("t.5a") == [("NAMES", "t.5a")]
    assert read("t.5a", "tidb") == [("NAMES", "t"), ("NUMBER", ".5"), ("WORD", "a")]
    assert read("0X1F")[0][0] == "NAMES"
    assert read("0X1F", "tidb")[0][0] == "NUMBER"


def test_modes() -> None:
    assert read('"a"', modes=Modes(ansi_quotes=True)) == [("QUOTED", '"a"')]
    assert read(r"'\' x", modes=Modes(no_backslash_escapes=True)) == [("STRING", r"'\'"), ("WORD", "x")]
    assert read(r"'\' x") == [("OPEN", r"'\' x")]
    assert Modes.of("ansi, NO_BACKSLASH_ESCAPES") == Modes(
        ansi_quotes=True, no_backslash_escapes=True, ignore_space=True, pipes_as_concat=True
    )
    assert Modes.of("") == Modes()


def all_run(opening: re.Match[bytes]) -> int:
    return len(opening[0])


def test_executable_comments_keep_their_place() -> None:
    sql = b"a /*!40101 b */ c /*!99999 d /* x */ y */ e '/*! f */' /*M! g */ /*T![ttl] h */"
    mysql = executed(sql, mysql_runs(90704))
    assert len(mysql) == len(sql)
    assert mysql.split() == [b"a", b"b", b"c", b"e", b"'/*!", b"f", b"*/'"]
    assert executed(sql, tidb_runs).split()[:5] == [b"a", b"b", b"c", b"d", b"/*"]
    assert executed(b"x /*T![ttl] h */", tidb_runs).split() == [b"x", b"h"]
    assert executed(b"x /*T![unknown] h */", tidb_runs).split() == [b"x"]
    assert executed(b"x /*M! g */ /*! h */", all_run).split() == [b"x", b"g", b"h"]
    assert not has_executable_comment(b"/* a */ /*+ b */")


@given(st.binary(max_size=60), st.sampled_from(["mysql", "tidb"]), st.booleans(), st.booleans())
def test_any_bytes_are_read_and_nothing_is_lost(
    sql: bytes, dialect: Dialect, ansi_quotes: bool, no_backslash_escapes: bool
) -> None:
    modes = Modes(ansi_quotes=ansi_quotes, no_backslash_escapes=no_backslash_escapes)
    found = list(tokens(sql, dialect, modes))
    at = 0
    for token in found:
        assert at <= token.start < token.end <= len(sql)
        gap = sql[at : token.start]
        assert not gap.strip() or gap.strip()[:1] in (b"/", b"-", b"#", b"\x85", b"\xa0")
        at = token.end
    assert all(token.kind != TokenKind.OPEN for token in found[:-1])
    assert len(executed(sql, all_run)) == len(sql)

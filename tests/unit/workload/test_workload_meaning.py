"""The meaning found by what is left without literals is the meaning found directly, whatever was seen before."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from migverify.sql.lexer import DEFAULT, Dialect, Modes, TokenKind, tokens
from migverify.workload.classify import classify
from migverify.workload.digest import Digester
from migverify.workload.meaning import Meaning, Meanings
from migverify.workload.shape import RowOrder, Shape, shape
from tests.digest_corpus import corpus

_OTHERS = {
    TokenKind.STRING: [b"'x'", b"'it''s ) ; FOR UPDATE'", b"''", b"'/*! DELETE */'", b"'GROUP BY 1'", b"'\xff\xfe'",
                  b"'\\''"],
    TokenKind.INTEGER: [b"0", b"3", b"1000000"],
    TokenKind.NUMBER: [b"2.50", b"1e3", b"0.0"],
    TokenKind.BITS: [b"b'1'", b"b'0110'"],
}  # fmt: skip


def _direct(sql: bytes, dialect: Dialect, modes: Modes) -> Meaning:
    found = classify(sql, modes)
    return Meaning(*Digester(dialect, modes).digest(sql), found, shape(sql, volatile=bool(found.volatile)))


def _with_other_literals(sql: bytes, chosen: random.Random) -> bytes:
    parts, at = [], 0
    for token in tokens(sql):
        parts.append(sql[at : token.start])
        raw = sql[token.start : token.end]
        parts.append(chosen.choice([raw, *_OTHERS[token.kind]]) if token.kind in _OTHERS else raw)
        at = token.end
    return b"".join(parts) + sql[at:]


@pytest.mark.parametrize("dialect", ["mysql", "tidb"])
def test_the_corpus_with_other_literals(dialect: Dialect) -> None:
    """Every statement of the corpus and two versions of it with other literals, in one cache."""
    chosen = random.Random(3)
    meanings = Meanings(dialect)
    looked_up = 0
    for sql in corpus(50):
        for one in (sql, _with_other_literals(sql, chosen), _with_other_literals(sql, chosen)):
            before = len(meanings.seen)
            assert meanings.meaning(one) == _direct(one, dialect, DEFAULT), one
            looked_up += len(meanings.seen) == before
    assert looked_up > 30  # it was the cache that answered


PIECES = [
    "SELECT ", "a", " FROM t", " WHERE a = ", "1", "2.5", "'x'", "'*'", '"y"', "-", "+", ", ", "(", ")", "`n`", "f(",
    "last_insert_id(", "unix_timestamp(", " ORDER BY ", " GROUP BY ", " LIMIT ", "x'1F'", "b'01'", " IN (", "/* c */",
    "/*! + 1 */", "-- x\n", " FOR UPDATE", "; ", "DELETE FROM t", "EXPLAIN ", "ANALYZE ", "FORMAT = ", "UNION ",
    "UPDATE t SET a = ",
    "@v := ", " INTO OUTFILE ", "SET GLOBAL x = ", "SET ", "WITH c AS (", "\\", "'/*! z */'", "N'a'", "CALL p(",
    "INSERT INTO t VALUES (1, 'x')", ", (2, 'y')", "group_concat(a)", "count(*)",
]  # fmt: skip
_OTHER = {"1": "7", "2.5": "31", "'x'": "'FOR UPDATE'", "'*'": "'by 2'", '"y"': '"/*!"', "x'1F'": "x''",
          "b'01'": "b'1'",
          "'/*! z */'": "'z'", ", (2, 'y')": ", (2, 'y'), (3, 'z')", "/* c */": "/* d */"}  # fmt: skip


@settings(max_examples=150)
@given(
    st.lists(st.sampled_from(PIECES), max_size=14), st.sampled_from(["mysql", "tidb"]), st.booleans(), st.booleans(),
    st.booleans(),
)  # fmt: skip
@example(["SELECT ", "a", " FROM t", " ORDER BY ", "1"], "mysql", False, False, True)
@example(["EXPLAIN ", "1", ", ", "1", " ", "ANALYZE ", "DELETE FROM t"], "mysql", False, False, True)
@example(["SELECT ", "'x'", ", ", "'/*! z */'"], "mysql", False, False, True)
def test_any_text(
    pieces: list[str], dialect: Dialect, ansi_quotes: bool, no_backslash_escapes: bool, other_first: bool
) -> None:
    modes = Modes(ansi_quotes=ansi_quotes, no_backslash_escapes=no_backslash_escapes)
    texts = ["".join(pieces), "".join(_OTHER.get(piece, piece) for piece in pieces)]
    meanings = Meanings(dialect, shapes=False)
    for text in reversed(texts) if other_first else texts:
        sql = text.encode()
        found = meanings.meaning(sql, modes)
        assert (found.digest, found.text) == Digester(dialect, modes).digest(sql)
        assert found.classification == classify(sql, modes)


@pytest.mark.parametrize(
    "versions",
    [
        ["SELECT a FROM t ORDER BY FIELD(a, 'x', 'y')", "SELECT a FROM t ORDER BY FIELD(a, 'y', 'x')"],
        ["SELECT a+1 FROM t GROUP BY a+1 ORDER BY a+1", "SELECT a+1 FROM t GROUP BY a+1 ORDER BY a+2"],
        ["SELECT a FROM t ORDER BY 1", "SELECT a FROM t ORDER BY 2"],
        ["SELECT a FROM t WHERE b = 1 ORDER BY a LIMIT 5", "SELECT a FROM t WHERE b = 2 ORDER BY a LIMIT 70, 5"],
        ['SELECT a FROM t WHERE b = "x" ORDER BY a DESC', 'SELECT a FROM t WHERE b = "y" ORDER BY a DESC'],
        ["SELECT a FROM t /* 1 */ ORDER BY a + 1", "SELECT a FROM t /* 2 */ ORDER BY a + 2"],
        ["SELECT -'1', a FROM t", "SELECT -x'31', a FROM t"],
        ["EXPLAIN ANALYZE FORMAT='brief' SELECT 1", "EXPLAIN ANALYZE FORMAT='tree' DELETE FROM t"],
        ["SELECT unix_timestamp('2026-01-01')", "SELECT unix_timestamp()"],
        ["SELECT '/*! a */', 1", "SELECT 'a', 2"],
        ["SELECT a FROM t WHERE b = 'x'", "SELECT a FROM t WHERE b = 'FOR UPDATE'"],
    ],
)
def test_where_literals_could_matter(versions: list[str]) -> None:
    for order in (versions, versions[::-1]):
        meanings = Meanings()
        for text in [*order, *order]:
            assert meanings.meaning(text.encode()) == _direct(text.encode(), "mysql", DEFAULT), text


def test_structure_does_not_hang_on_bytes_of_a_literal() -> None:
    found = shape(b"SELECT a FROM t WHERE b = '\xff\xfe' ORDER BY a")
    assert (found.tables, found.order) == (("t",), RowOrder.TIES)
    assert shape("SELECT é FROM t".encode("latin-1")).tables is None


def test_memory_is_bounded() -> None:
    meanings = Meanings(shapes=False, memory=100_000)
    for number in range(2_000):
        meanings.meaning(f"SELECT a{number} FROM t ORDER BY {number}".encode())
        assert meanings.used <= 100_000
        assert len(meanings.seen) < 70


def test_without_shapes_every_shape_is_unknown() -> None:
    assert Meanings(shapes=False).meaning(b"SELECT a FROM t").shape == Shape(reasons=("not requested",))


def test_keys_make_an_order_total() -> None:
    meanings = Meanings(unique_keys={"t": [["a"]]})
    assert meanings.meaning(b"SELECT a FROM t WHERE b = 1 ORDER BY a").shape.order is RowOrder.TOTAL
    assert meanings.meaning(b"SELECT a FROM t WHERE b = 2 ORDER BY a").shape.order is RowOrder.TOTAL


def test_the_server_has_no_digest_for_ten_words() -> None:
    """Such a statement has a digest that no server's can be mistaken for, and it groups as the others do."""
    found = Meanings().meaning(b"SELECT sensitive FROM t WHERE a = 1")
    assert re.fullmatch(r"text-sha256:[0-9a-f]{64}", found.digest)
    assert found == Meanings().meaning(b"SELECT sensitive FROM t WHERE a = 2")

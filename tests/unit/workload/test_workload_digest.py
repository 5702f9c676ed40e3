"""Digests: what the servers answered, and that looking up a skeleton gives what reading the tokens gives."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from migverify.cli.main import run as command
from migverify.sql.lexer import Dialect, Modes
from migverify.workload import digest_mysql
from migverify.workload.digest import TEXT_HASH, Digest, Digester
from migverify.workload.meaning import Meanings
from tests.digest_corpus import corpus

GOLDENS = json.loads((Path(__file__).parents[2] / "snapshots" / "digests.json").read_text())["statements"]


def digest(sql: bytes, dialect: Dialect) -> Digest:
    return Digester(dialect).digest(sql)


def test_the_servers_answers() -> None:
    """Recorded from MySQL 9.7.4 and TiDB 8.5; tests/db asks the servers themselves."""
    wrong = []
    for golden in GOLDENS:
        sql = golden["sql"].encode()
        if golden["mysql"] is not None and list(Digester("mysql").digest(sql)) != golden["mysql"]:
            wrong.append(("mysql", sql))
        if Digester("tidb").digest(sql).digest != golden["tidb"]:
            wrong.append(("tidb", sql))
    assert wrong == []
    assert sum(golden["mysql"] is not None for golden in GOLDENS) > 350


@pytest.mark.parametrize(
    ("sql", "mysql", "tidb"),
    [
        ("SELECT -1, a - 1 FROM t", "SELECT ? , `a` - ? FROM `t`", "select ? , `a` - ? from `t`"),
        ("INSERT INTO t VALUES (1,2),(3,4)", "INSERT INTO `t` VALUES (...) /* , ... */",
         "insert into `t` values ( ... )"),
        ("SELECT a FROM t ORDER BY 1, 2", "SELECT `a` FROM `t` ORDER BY 1 , 2", "select `a` from `t` order by 1 , 2"),
        ("SELECT 1 /*!99999 + 2 */", "SELECT ?", "select ? + ?"),
        ("SELECT /*+ BKA(t) */ 1", "SELECT /*+ BKA ( `t` ) */ ?", "select ?"),
        ("SELECT name FROM t", "SELECT NAME FROM `t`", "select `name` from `t`"),
        ("SELECT a FROM t FORCE INDEX (i)", "SELECT `a` FROM `t` FORCE INDEX ( `i` )", "select `a` from `t`"),
        ("SELECT count(*) FROM t WHERE a = '*'", "SELECT COUNT ( * ) FROM `t` WHERE `a` = ?",
         "select count ( ? ) from `t` where `a` = *"),
    ],
)  # fmt: skip
def test_texts(sql: str, mysql: str, tidb: str) -> None:
    assert digest(sql.encode(), "mysql").text == mysql
    assert digest(sql.encode(), "tidb").text == tidb


PIECES = [
    "SELECT ", "a", " FROM t", " WHERE ", "1", "2.5", "'x'", "'*'", '"y"', "'it''s'", "\\'", "-", "+", ",", ", ", "(",
    ")", "`n`", "`it's`", "`a 1`", "`a 2`", " BY ", " ORDER BY ", "GROUP BY ", " LIMIT ", "x'1F'", "b'01'", "0x1F",
    " IN (", "/*", "*/", "/* c */", "--", "-- ", "#", "\n", " ", "N'a'", "@'u'", "@1", "t1", "1st", ".5", "t.1", ";",
    "?", "null", "_utf8mb4", "'", '"', "`", "\x01", "é", "order", "by", "1e5", "(1,2)", ", (3, 4)", ",(?)", "desc",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=25), st.sampled_from(["mysql", "tidb"]), st.booleans(), st.booleans())
@example(["SELECT ", "a", " ORDER BY ", "`n`", ", ", "1"], "mysql", False, False)
def test_a_skeleton_seen_before_gives_the_same_digest(
    pieces: list[str], dialect: Dialect, ansi_quotes: bool, no_backslash_escapes: bool
) -> None:
    modes = Modes(ansi_quotes=ansi_quotes, no_backslash_escapes=no_backslash_escapes)
    digester, meanings = Digester(dialect, modes), Meanings(dialect, shapes=False)
    other = {"1": "7", "2.5": "31", "'x'": "'other'", "'it''s'": "''", "x'1F'": "x''", "'*'": "'**'", "`a 1`": "`a 2`",
             "@'u'": "@'v'", "\\'": "\\\\", "0x1F": "5", "(1,2)": "(8, 9,10)", "@1": "@2"}  # fmt: skip
    first = "".join(pieces).encode()
    second = "".join(other.get(piece, piece) for piece in pieces).encode()
    for sql in (first, second):
        assert meanings.meaning(sql, modes).digest == digester.digest(sql).digest


def test_the_corpus_by_skeleton_and_by_token() -> None:
    for dialect in ("mysql", "tidb"):
        digester, meanings = Digester(dialect), Meanings(dialect, shapes=False)
        for sql in corpus(150):
            for variant in (sql, sql.replace(b"42", b"7"), sql.replace(b"'x'", b"'other'"), sql.replace(b"1", b"2")):
                assert meanings.meaning(variant).digest == digester.digest(variant).digest, variant


@given(st.binary(max_size=80))
def test_any_bytes_have_a_digest(sql: bytes) -> None:
    for dialect in ("mysql", "tidb"):
        found = Digester(dialect).digest(sql)
        assert len(found.digest) >= 64
    assert hashlib.sha256(found.text.encode()).hexdigest() == found.digest


def test_literals_do_not_matter_and_names_do() -> None:
    assert digest(b"SELECT a FROM t WHERE b = 1", "mysql") == digest(b"select a from t\nwhere b='x'", "mysql")
    assert digest(b"SELECT a FROM t", "mysql") != digest(b"SELECT b FROM t", "mysql")
    assert digest(b"SELECT a FROM t ORDER BY 1", "mysql") != digest(b"SELECT a FROM t ORDER BY 2", "mysql")


def test_max_digest_length() -> None:
    long = b"SELECT " + b",".join(b"a%d" % number for number in range(400))
    whole = Digester("mysql", max_digest_length=1 << 20).digest(long)
    cut = Digester("mysql").digest(long)
    assert whole.text.startswith(cut.text)
    assert cut.text.endswith("`a112` ,"), "as the server cuts"
    other = Digester("mysql").digest(long + b", z")
    assert other == cut, "what is behind the cut does not count"
    assert Digester("mysql", max_digest_length=0).digest(long).text == ""


def test_an_unknown_token_has_the_hash_of_its_text_by_name() -> None:
    found = Digester("mysql").digest(b"SELECT a ACCESSIBLE")
    assert found.digest == TEXT_HASH + hashlib.sha256(found.text.encode()).hexdigest()


def test_most_tokens_have_their_number() -> None:
    known = digest_mysql.vocabulary()
    unknown = {text for text in {*known.words.values(), *known.functions.values()} if text not in known.numbers}
    assert len(unknown) <= 12, unknown


def run(folder: Path, lines: bytes, *options: str) -> int:
    """Run the command on lines of its standard input."""
    (folder / "lines").write_bytes(lines)
    with (folder / "lines").open() as stdin, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", stdin)
        return command(["workload", "digest", *options])


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = b'{"sql": "SELECT 1"}\n\n{"sql": "DELETE FROM t WHERE a = \'\\udcff\'"}\n'
    assert run(tmp_path, lines, "--dialect", "mysql", "--classify") == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (first["digest"], first["digest_text"]) == tuple(Digester("mysql").digest(b"SELECT 1"))
    assert first["class"]["kind"] == "read"
    assert second["digest_text"] == "DELETE FROM `t` WHERE `a` = ?"
    assert second["class"]["may_write"]


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"sql": 1}', b'{"sql": "\\ud800"}', b"\xff"])
def test_the_command_refuses_other_lines(line: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, b'{"sql": "SELECT 1"}\n' + line + b"\n", "--dialect", "tidb") == 2
    assert "line 2" in capsys.readouterr().err

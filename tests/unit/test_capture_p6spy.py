"""Logs of p6spy: single lines and several, statements as prepared and with values, and what cannot be told apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.workload.formats.p6spy import BAD_TIME, BATCH, NOT_P6SPY, UNCLEAR_SPLIT, UNESCAPED, P6spy, split
from migverify.workload.model import Command
from migverify.workload.opening import open_format
from tests.unit.log_writers import read, records, rejects

URL = b"jdbc:mysql://db/shop"


@pytest.mark.parametrize(
    "data",
    [
        b"1767323045678|3|statement|connection 8|jdbc:mysql://db/shop|select ?, ?|select 1, 'a|b'\n",
        b"1767323045678|3|statement|connection8|select ?, ?|select 1, 'a|b'\n",
        b"1767323045678|3|statement|8|select ?, ?|select 1, 'a|b'\r\n",
        b"2026-01-02T03:04:05.678|3|statement|connection 8|select ?, ?|select 1, 'a|b'\n",
        b"#1767323045678 | took 3ms | statement | connection 8| url jdbc:mysql://db/s\nselect ?, ?\nselect 1, 'a|b';\n",
        b"#1767323045678 | took 3ms | statement | connection 8\nselect ?, ?\nselect 1, 'a|b';\n",
    ],
)
def test_a_statement_as_prepared_and_with_values(data: bytes, tmp_path: Path) -> None:
    for one in records(read(P6spy(), data * 2, tmp_path)):
        assert (one.sql, one.command, one.partial) == (b"select 1, 'a|b'", Command.QUERY, "")
        assert (one.session, one.duration, one.end) == (8, 3_000, 1_767_323_045_678_000)
        assert (one.start, one.details) == (1_767_323_045_675_000, {"prepared": "select ?, ?"})
    assert open_format("auto", str(tmp_path / "the.log"), 3306).name == "p6spy"


def test_texts_without_values_and_other_categories(tmp_path: Path) -> None:
    line = b"1767323045678|3|%s|connection 8|" + URL + b"|%s\n"
    for kind, text, sql, command, partial in (
        (b"statement", b"select 'a|b'|select 'a|b'", b"select 'a|b'", Command.QUERY, ""),
        (b"statement", b"|select 1", b"select 1", Command.QUERY, ""),
        (b"statement", b"select ?|select 'a\\b'", b"select 'a\\b'", Command.QUERY, UNESCAPED),
        (b"statement", b"?|?|1|2", b"", Command.QUERY, UNCLEAR_SPLIT),
        (b"batch", b"insert ?|insert 1", b"insert 1", Command.QUERY, BATCH),
        (b"commit", b"|", b"commit", Command.QUERY, ""),
        (b"rollback", b"|", b"rollback", Command.QUERY, ""),
    ):
        (one,) = records(read(P6spy(), line % (kind, text), tmp_path))
        assert (one.command, one.partial) == (command, partial), text
        if partial != UNCLEAR_SPLIT:
            assert one.sql == sql
    (one,) = records(read(P6spy(), line % (b"resultset", b"select 1|select 1"), tmp_path))
    assert (one.command, one.details["command"]) == (Command.OTHER, "resultset")


def test_a_statement_of_several_lines(tmp_path: Path) -> None:
    data = b"#1767323045678 | took 3ms | statement | connection 8| url x\nselect ?\nfrom t\nselect 'a\nb'\nfrom t;\n"
    (one,) = records(read(P6spy(), data, tmp_path))
    assert (one.sql, one.partial) == (b"select 'a\nb'\nfrom t", "")


def test_what_is_no_record_is_rejected(tmp_path: Path) -> None:
    data = b"java.lang.Error\n2026-13-01|3|statement|8|a|a\n1767323045678|x|statement|8|a|a\n"
    assert rejects(read(P6spy(), data, tmp_path)) == [NOT_P6SPY, BAD_TIME, NOT_P6SPY]


@given(st.lists(st.text("ab|'", max_size=5), min_size=1, max_size=3))
def test_values_are_told_from_the_prepared_text_or_marked(values: list[str]) -> None:
    shown = [("'" + value.replace("'", "''") + "'").encode() for value in values]
    prepared = b"select " + b", ".join([b"?"] * len(values)) + b" from t"
    sql = b"select " + b", ".join(shown) + b" from t"
    assert split(prepared + b"|" + sql, b"|") in ((prepared, sql, ""), (b"", sql, UNCLEAR_SPLIT))

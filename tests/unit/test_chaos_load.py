"""What a client of the bank notes about a write, by where it failed."""

from __future__ import annotations

import random
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pymysql
import pytest

from migverify.errors import LabError
from migverify.lab import chaos_load
from migverify.lab.chaos_ledger import ACKED, REFUSED, TRIED, UNKNOWN, LedgerWriter, read_ledger
from migverify.lab.chaos_load import LoadOptions, _pay
from migverify.lab.servers import LabServer

SERVER = LabServer("127.0.0.1", 1, "root", "mysql", "")


class Connection:
    """Fails where it is told to."""

    def __init__(self, fails: str = "", code: int = 2013) -> None:
        self.fails, self.code, self.closed = fails, code, False

    def _do(self, what: str) -> None:
        if self.fails == what:
            raise pymysql.err.OperationalError(self.code, "as it was told")

    def begin(self) -> None:
        self._do("begin")

    def cursor(self) -> Any:
        return nullcontext(self)

    def execute(self, _sql: str, _values: Any = None) -> None:
        self._do("execute")

    def commit(self) -> None:
        self._do("commit")

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("fails", "code", "end"),
    [("", 0, ACKED), ("begin", 2013, REFUSED), ("execute", 2013, REFUSED), ("execute", 1062, REFUSED),
     ("commit", 2013, UNKNOWN), ("commit", 2006, UNKNOWN), ("commit", 1105, UNKNOWN), ("commit", 1180, UNKNOWN),
     ("commit", 9007, REFUSED), ("commit", 1213, REFUSED)],
)  # fmt: skip
def test_only_a_commit_that_was_sent_can_be_unknown(tmp_path: Path, fails: str, code: int, end: str) -> None:
    path = tmp_path / "ledger"
    ledger = LedgerWriter(path)
    ledger.note(TRIED, 7)
    connection: Any = Connection(fails, code)
    left = _pay(LoadOptions(SERVER, path), ledger, connection, 7, random.Random(1), lambda: None)
    found = read_ledger(path)
    assert [(one.token, one.end, one.code) for one in found] == [(7, end, code)]
    assert (left is None) == bool(fails), "a connection that failed is not used again"
    assert connection.closed == bool(fails)


def test_who_is_not_let_in_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise LabError("no") from pymysql.err.OperationalError(1040, "Too many connections")

    monkeypatch.setattr(chaos_load, "app_session", refuse)
    path = tmp_path / "ledger"
    ledger = LedgerWriter(path)
    ledger.note(TRIED, 7)
    assert _pay(LoadOptions(SERVER, path), ledger, None, 7, random.Random(1), lambda: None) is None
    (one,) = read_ledger(path)
    assert (one.end, one.code, one.text) == (REFUSED, 1040, "(1040, 'Too many connections')")


def test_ids_of_an_unknown_kind_are_refused() -> None:
    with pytest.raises(LabError, match="nobody makes ids"):
        chaos_load.create(SERVER, "dice")

"""The load's transactions: a deadlock's victim begins again, everything else is told."""

from __future__ import annotations

from typing import Any

import pytest

from migverify_lab.workload import DEADLOCKS, _committed


class RefusedError(Exception):
    """A server's error."""


class Source:
    """A server that makes the first transactions victims of a deadlock, or refuses them."""

    def __init__(self, code: int, times: int) -> None:
        self.code, self.times, self.begun, self.committed = code, times, 0, 0

    def begin(self) -> None:
        self.begun += 1

    def query(self, _: str) -> int:
        if self.begun <= self.times:
            raise RefusedError(self.code, "no")
        return 1

    def commit(self) -> None:
        self.committed += 1


@pytest.mark.parametrize(("code", "times", "begun"), [(1213, 0, 1), (1213, 3, 4), (1213, DEADLOCKS, DEADLOCKS + 1)])
def test_a_victim_begins_again_and_commits_once(code: int, times: int, begun: int) -> None:
    source: Any = Source(code, times)
    _committed(source, [("UPDATE t SET a = 1", 1)], RefusedError)
    assert (source.begun, source.committed) == (begun, 1)


@pytest.mark.parametrize(("code", "times"), [(1062, 1), (1205, 1), (1213, DEADLOCKS + 1)])
def test_anything_else_is_told(code: int, times: int) -> None:
    source: Any = Source(code, times)
    with pytest.raises(RefusedError):
        _committed(source, [("UPDATE t SET a = 1", 1)], RefusedError)
    assert source.committed == 0

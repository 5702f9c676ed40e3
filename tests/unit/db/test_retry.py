"""Reads that fail for a while, and the end of what sessions run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.db.pool import kill_queries
from migverify.db.retry import ReadLimits, attempt
from migverify.errors import (
    CanceledError,
    EndpointError,
    LoginError,
    MigverifyError,
    PrivilegeError,
    ReadError,
    RetryableReadError,
    TimeLimitError,
)
from migverify.model import Endpoint, Flavor

PASSING = [RetryableReadError("lost"), EndpointError("no answer")]
FINAL = [PrivilegeError("denied"), LoginError("1045"), TimeLimitError("slow"), ReadError("1064"), CanceledError("stop")]


@given(st.lists(st.sampled_from([*PASSING, *FINAL]), max_size=6), st.integers(0, 4))
def test_a_read_is_repeated_as_long_as_that_can_help(failures: list[MigverifyError], retries: int) -> None:
    left, pauses, reads = list(failures), list[float](), [0]

    def read() -> str:
        reads[0] += 1
        if left:
            raise left.pop(0)
        return "answer"

    passing = 0
    while passing < len(failures) and failures[passing] in PASSING:
        passing += 1
    limits = ReadLimits(retries, 1.0)
    if passing > retries:
        with pytest.raises(ReadError, match=f"gave up after {retries + 1} attempts") as caught:
            attempt(read, limits, pauses.append)
        assert isinstance(caught.value, RetryableReadError) == (failures[retries] is PASSING[0])
        assert reads[0] == retries + 1
    elif passing < len(failures):
        with pytest.raises(type(failures[passing])) as final:
            attempt(read, limits, pauses.append)
        assert final.value is failures[passing]
    else:
        assert attempt(read, limits, pauses.append) == "answer"
    assert [p for p in pauses if p] == [2.0**n for n in range(len([p for p in pauses if p]))]


def test_the_order_to_stop_beats_the_last_failure() -> None:
    def pause(_: float) -> None:
        raise CanceledError("told to stop")

    def read() -> None:
        raise RetryableReadError("lost")

    with pytest.raises(CanceledError):
        attempt(read, ReadLimits(0), pause)


@dataclass
class Running:
    """A session that runs something."""

    endpoint: Endpoint
    thread_id: int
    flavor: Flavor = Flavor.MYSQL


def test_every_query_is_ended_over_one_connection_a_server() -> None:
    source, target = (Endpoint(name, "h", 1, "u") for name in ("source", "target"))
    opened, killed = [], []

    class Other:
        def execute(self, sql: str) -> int:
            killed.append(sql)
            if sql == "KILL QUERY 1":
                raise ReadError("Unknown thread id: 1")  # it ended by itself
            return 0

    @contextmanager
    def opener(endpoint: Endpoint) -> Iterator[Any]:
        opened.append(endpoint.name)
        if endpoint.name == "gone":
            raise EndpointError("no answer")
        yield Other()

    sessions: list[Any] = [
        Running(source, 1), Running(Endpoint("gone", "h", 1, "u"), 9), Running(target, 3, Flavor.TIDB),
        Running(source, 2), Running(Endpoint("gone", "h", 1, "u"), 10),
    ]  # fmt: skip
    kill_queries(sessions, opener)
    assert opened == ["source", "gone", "target"]
    assert killed == ["KILL QUERY 1", "KILL QUERY 2", "KILL TIDB QUERY 3"]

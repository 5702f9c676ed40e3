"""What a session makes of a server's refusal."""

from __future__ import annotations

import pymysql
import pytest

from migverify.connect import Session
from migverify.errors import ReadError, RetryableReadError, TimeLimitError
from migverify.model import Endpoint


def failure(code: int, text: str, query_seconds: float = 0.0) -> ReadError:
    session = object.__new__(Session)
    session.endpoint = Endpoint("target", "127.0.0.1", 4000, "root", query_seconds=query_seconds)
    found = session._failure(pymysql.OperationalError(code, text), "SELECT 1")
    assert isinstance(found, ReadError)
    return found


@pytest.mark.parametrize("text", ["context canceled", "context deadline exceeded"])
def test_tidb_has_two_more_words_for_its_time_limit(text: str) -> None:
    assert type(failure(1105, text, query_seconds=1.0)) is TimeLimitError
    assert type(failure(1105, text)) is not TimeLimitError


@pytest.mark.parametrize(("code", "kind"), [(3024, TimeLimitError), (2013, RetryableReadError), (1054, ReadError)])
def test_codes(code: int, kind: type[ReadError]) -> None:
    assert type(failure(code, "words")) is kind

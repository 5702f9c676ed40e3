"""What a session makes of a server's refusal."""

from __future__ import annotations

import pymysql
import pytest

from migverify.db.failures import query_failure
from migverify.errors import MigverifyError, ReadError, RetryableReadError, TimeLimitError, in_words
from migverify.model import Endpoint
from migverify.tables import run


def failure(code: int, text: str, query_seconds: float = 0.0) -> MigverifyError:
    endpoint = Endpoint("target", "127.0.0.1", 4000, "root", query_seconds=query_seconds)
    return query_failure(endpoint, pymysql.OperationalError(code, text), "SELECT 1")


@pytest.mark.parametrize("text", ["context canceled", "context deadline exceeded"])
def test_tidb_has_two_more_words_for_its_time_limit(text: str) -> None:
    assert type(failure(1105, text, query_seconds=1.0)) is TimeLimitError
    assert type(failure(1105, text)) is not TimeLimitError


@pytest.mark.parametrize(("code", "kind"), [(3024, TimeLimitError), (2013, RetryableReadError), (1054, ReadError)])
def test_codes(code: int, kind: type[ReadError]) -> None:
    assert type(failure(code, "words")) is kind


@pytest.mark.parametrize("code", [1142, 1045, 2013, 3024, 1054, 1105, 8055])
def test_remarks_beside_a_verdict_hold_no_words_of_a_server(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    error = failure(code, "SELECT command denied to user 'm'@'10.0.0.7' for table 'secret'")
    assert not {"secret", "10.0.0.7", "SELECT", str(code)} & set(in_words(error).replace("'", " ").split())
    assert "[" not in in_words(error)

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(run, "open_session", refuse)
    assert run._positions([Endpoint("source", "10.0.0.7", 3306, "m")], {}) == {"source": f"unknown: {in_words(error)}"}


@pytest.mark.parametrize(
    ("code", "text", "sql", "grant"),
    [
        (1044, "Access denied for user 'm'@'%' to database 'mysql'", "SHOW STATS_HEALTHY WHERE LOWER(db_name) = 'pay'",
         "GRANT SELECT ON `mysql`.* TO 'm'@'%'"),
        (1142, "SELECT command denied to user 'm'@'10.0.0.7' for table 'orders'", "SELECT 1 FROM `shop`.`orders`",
         "GRANT SELECT ON `shop`.`orders` TO that user"),
        (1142, "INSERT command denied to user 'm'@'10.0.0.7' for table 'orders'", "INSERT INTO shop.Orders VALUES (1)",
         "GRANT INSERT ON `shop`.`Orders` TO that user"),
        (1142, "SELECT command denied to user 'm'@'10.0.0.7' for table `shop`.`orders`", "SELECT 1",
         "GRANT SELECT ON `shop`.`orders` TO that user"),
        (1142, "SELECT command denied to user 'm'@'10.0.0.7' for table 'b'", "SELECT 1 FROM x.b JOIN y.b",
         "Grant SELECT on table b to that user"),
        (1142, "SELECT command denied to user 'm'@'10.0.0.7' for table 'orders'", "SELECT o.orders FROM orders AS o",
         "Grant SELECT on table orders to that user"),
    ],
)  # fmt: skip
def test_the_grant_that_is_missing_is_written_out(code: int, text: str, sql: str, grant: str) -> None:
    endpoint = Endpoint("target", "127.0.0.1", 4000, "m")
    hint = query_failure(endpoint, pymysql.OperationalError(code, text), sql).hint
    assert grant in hint
    assert "<" not in hint


@pytest.mark.parametrize("message", ["the server is gone", "the server is gone.", "is it gone?"])
def test_a_message_and_its_hint_are_joined_by_one_dot(message: str) -> None:
    assert ReadError(message, hint="Verify again.").line == message.rstrip(".") + (
        " Verify again." if message.endswith("?") else ". Verify again."
    )


def test_own_words_are_kept() -> None:
    assert in_words(ReadError("amounts below zero")) == "amounts below zero"

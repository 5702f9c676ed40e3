"""The page of metrics: on the loopback address unless another one is named, read-only, and open about the risk."""

from __future__ import annotations

import http.client
import re
import socket

import pytest
import typer

from migverify.cli.watching import ListenAddress, listen_address, metrics_page, period_seconds
from migverify.errors import UsageError
from migverify.exposition import Metric, page

ONE = [Metric("a", "One.", [({}, "1")])]
EVERYWHERE = "0.0.0.0"  # noqa: S104 - what is tested


@pytest.mark.parametrize(
    ("text", "address"),
    [("9108", ("127.0.0.1", 9108)), ("0", ("127.0.0.1", 0)), ("0.0.0.0:9108", (EVERYWHERE, 9108)),
     ("[::1]:9108", ("::1", 9108)), ("[::]:0", ("::", 0)), ("pod.example:9108", ("pod.example", 9108))],
)  # fmt: skip
def test_a_port_alone_is_of_this_machine(text: str, address: tuple[str, int]) -> None:
    assert listen_address(text) == address


@pytest.mark.parametrize("text", ["", "x", "-1", "65536", "٣", "host", "host:", ":9108", "::1:9108", "1.2.3.4:70000"])
def test_other_texts_are_no_address(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        listen_address(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("3s", 3), ("15m", 900), ("1h30m", 5400), ("30", 30), ("2.5", 2.5), (30.0, 30)]
)
def test_a_period_is_a_duration_or_plain_seconds(text: str | float, seconds: float) -> None:
    assert period_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "0", "0.5", "500ms", "-5m", "-5", "nan", "inf", "1e3", "3 x", "T"])
def test_what_is_no_period_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        period_seconds(text)


def ask(address: ListenAddress, path: str, host: str = "", method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection(*address, timeout=20)
    try:
        connection.request(method, path, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def served_at(said: str) -> ListenAddress:
    found = re.search(r"metrics on http://(.+):(\d+)/metrics", said)
    assert found is not None, said
    return ListenAddress(found[1], int(found[2]))


def test_metrics_are_read_only_and_none_before_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    with metrics_page(ListenAddress("127.0.0.1", 0)) as publish:
        said = capsys.readouterr().err
        assert "whoever" not in said
        address = served_at(said)
        assert ask(address, "/metrics")[0] == 503
        publish(ONE)
        assert ask(address, "/metrics") == (200, page(ONE))
        assert ask(address, "/") == (200, page(ONE))
        assert ask(address, "/x")[0] == 404
        assert ask(address, "/metrics", method="POST")[0] == 405
        assert ask(address, "/metrics", host="other.example")[0] == 421, "a page of others could read along"


def test_another_address_answers_for_every_name_and_says_who_can_read(capsys: pytest.CaptureFixture[str]) -> None:
    with metrics_page(ListenAddress(EVERYWHERE, 0)) as publish:
        said = capsys.readouterr().err
        assert "whoever reaches this address reads names of tables, rules and services" in said
        publish(ONE)
        assert ask(ListenAddress("127.0.0.1", served_at(said).port), "/metrics", host="10.0.0.7:9108") == (
            200,
            page(ONE),
        )


def test_an_address_that_is_taken_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with (
            pytest.raises(UsageError, match="cannot be listened on"),
            metrics_page(ListenAddress(*taken.getsockname())),
        ):
            pass

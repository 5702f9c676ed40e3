"""Monitors: every doubt is blind. Selectors, the HTTP client, and judges, with answers that are given."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.config import ExpectedJob, ExpectedSeries, MonitorSettings
from migverify.errors import ConfigError, ReadError
from migverify.guards.model import AnswerState, GuardAnswer
from migverify.guards.monitors import MonitorsGuard
from migverify.guards.prometheus import Prometheus, PrometheusLogin
from migverify.guards.promql import Selector, seconds, selectors

# --- selectors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("up", [("up", None)]),
        ('rate(http_total{job="x", a=~"y{}.*"}[5m])', [('http_total{job="x",a=~"y{}.*"}', 300)]),
        ("sum by (job) (rate(a:b[1m30s])) / on(job) group_left(x) max without(i) (d)", [("a:b", 90), ("d", None)]),
        ("max_over_time(rate(x[5m])[1h:1m])", [("x", 300)]),
        ('{__name__="x"}', [('{__name__="x"}', None)]),
        ("time() - foo > bool 5 and on(a) bar or vector(1)", [("foo", None), ("bar", None)]),
        ("histogram_quantile(0.99, sum(rate(h_bucket[5m])) by (le))", [("h_bucket", 300)]),
        ("1 + 2e3 - x * -y # up", [("x", None), ("y", None)]),
        ("topk(3, sum)", [("sum", None)]),
        ("x - x", [("x", None)]),
        ("vector(1)", []),
        ("-Inf", []),
    ],
)
def test_selectors(query: str, found: list[tuple[str, float | None]]) -> None:
    assert selectors(query) == tuple(Selector(*one) for one in found)


@pytest.mark.parametrize("query", ["x offset 5m", "x @ 1609746000", "rate(x[5m] offset 1w)", "x[5m", "x{a=", "x $ y"])
def test_what_has_no_age_is_said(query: str) -> None:
    with pytest.raises(ValueError, match=r"shifts|no PromQL|not closed"):
        selectors(query)


@given(st.text(alphabet='ab{}()[]",=@5m: ', max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert all(one.text for one in selectors(text))


@pytest.mark.parametrize(
    ("text", "value"),
    [("5m", 300), ("1h30m", 5400), ("15d", 1_296_000), ("100ms", 0.1), ("1y", 31_536_000), ("5", None), ("m", None),
     ("5m ", None), ("", None)],
)  # fmt: skip
def test_durations(text: str, value: float | None) -> None:
    assert seconds(text) == value


# --- a server whose answers are given ----------------------------------------------------------------------

Reply = tuple[int, bytes]


class Given:
    """An HTTP server; ``reply`` gets path and parameters."""

    def __init__(self) -> None:
        self.reply: Callable[[str, dict[str, str]], Reply | None] = lambda *_: (200, b"{}")
        self.headers: list[dict[str, str]] = []
        given = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                given.headers.append(dict(self.headers.items()))
                told = given.reply(url.path.removeprefix("/api/v1/"), {k: v[0] for k, v in parse_qs(url.query).items()})
                if told is None:
                    return  # the connection ends without a word
                self.send_response(told[0])
                if told[0] == 302:
                    self.send_header("Location", "/login")
                self.send_header("Content-Length", str(len(told[1])))
                self.end_headers()
                self.wfile.write(told[1])

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Given]:
    found = Given()
    yield found
    found.stop()


def told(data: object, **more: object) -> Reply:
    return 200, json.dumps({"status": "success", "data": data, **more}).encode()


def vector(*samples: tuple[dict[str, str], float | str]) -> Reply:
    result = [{"metric": labels, "value": [1.0, str(value)]} for labels, value in samples]
    return told({"resultType": "vector", "result": result})


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ((200, b"<html>login</html>"), "no JSON"),
        ((302, b""), "HTTP 302"),
        ((401, b"Unauthorized"), "HTTP 401"),
        ((503, b"Service Unavailable"), "HTTP 503"),
        ((400, b'{"status": "error", "error": "parse error"}'), "parse error"),
        ((200, b'{"status": "error", "error": "query timed out"}'), "timed out"),
        ((200, b"[]"), "HTTP 200"),
        ((200, b""), "an empty answer"),
        (told({"resultType": "vector", "result": []}, warnings=["store s1 is not there"]), "not whole.*s1"),
        (told({"resultType": "matrix", "result": []}), "matrix"),
        (told({"resultType": "vector", "result": [{"metric": {}, "histogram": [1, {}]}]}), "something else"),
        (told(None), "None"),
    ],
)  # fmt: skip
def test_every_doubt_is_an_error(server: Given, reply: Reply, words: str) -> None:
    server.reply = lambda *_: reply
    with pytest.raises(ReadError, match=words):
        Prometheus(server.url, 5.0).vector("up")


def test_a_server_that_falls_silent_is_asked_once(server: Given) -> None:
    server.reply = lambda *_: None
    prometheus = Prometheus(server.url, 5.0)
    for _ in range(3):
        with pytest.raises(ReadError, match="does not answer"):
            prometheus.vector("up")
    assert len(server.headers) == 1


def test_secrets_go_into_the_header_and_nowhere_else(server: Given) -> None:
    server.reply = lambda *_: (403, b"no")
    for login in (PrometheusLogin(user="u", password="hunter2"), PrometheusLogin(token="hunter2")):
        prometheus = Prometheus(server.url, 5.0, login)
        with pytest.raises(ReadError) as refused:
            prometheus.vector("up")
        assert "Authorization" in server.headers[-1]
        assert "hunter2" not in f"{refused.value}{prometheus.request('query', query='up')}{login!r}"


def test_a_certificate_that_is_not_there_is_said() -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        Prometheus("https://localhost:1", 1.0, PrometheusLogin(ca="/nowhere.pem"))


# --- judges ------------------------------------------------------------------------------------------------

ADDRESS = "db1:9104"
NOW = 1_795_272_721.0
"""The clock of the guard and of the server: both stand still, however busy the machine is."""


class World:
    """A Prometheus that is well; tests change one thing."""

    def __init__(self) -> None:
        self.offset = 0.0
        self.retention = "15d"
        self.info: dict[str, Any] = {
            "reloadConfigSuccess": True,
            "corruptionCount": 0,
            "startTime": "2026-11-01T00:00:00Z",
        }
        self.target: dict[str, Any] | None = {"health": "up", "lastError": "", "scrapeInterval": "10s"}
        self.scraped_ago = 3.0
        self.up: float | None = 1.0
        self.age = 3.0
        self.samples = 50.0
        self.rule: dict[str, Any] | None = {"name": "Watchdog", "health": "ok", "state": "firing"}
        self.evaluated_ago = 2.0
        self.values: list[tuple[dict[str, str], float | str]] = [({"instance": ADDRESS, "job": "mysql"}, 4.0)]
        self.value_age: float | None = 3.0
        self.in_window = 30.0
        self.heartbeat_ago = 1.0
        self.has_targets = True

    @property
    def now(self) -> float:
        return NOW + self.offset

    def moment(self, ago: float) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.now - ago))

    def reply(self, path: str, parameters: dict[str, str]) -> Reply:
        if path == "status/runtimeinfo":
            return told({**self.info, "storageRetention": self.retention})
        if path == "targets":
            if not self.has_targets:
                return 404, b"404 page not found"
            labels = {"job": "mysql", "instance": ADDRESS}
            scraped = self.moment(self.scraped_ago)
            found = [] if self.target is None else [{"labels": labels, "lastScrape": scraped, **self.target}]
            return told({"activeTargets": found})
        if path == "rules":
            rules = [] if self.rule is None else [{**self.rule, "lastEvaluation": self.moment(self.evaluated_ago)}]
            group = {"name": "g", "interval": 10, "lastEvaluation": self.moment(self.evaluated_ago), "rules": rules}
            return told({"groups": [group]})
        return self.query(parameters["query"])

    def query(self, query: str) -> Reply:
        labels = {"job": "mysql", "instance": ADDRESS}
        there = [] if self.up is None else [labels]
        if query == "time()":
            return told({"resultType": "scalar", "result": [1, str(self.now)]})
        if query.startswith("up{"):
            return vector(*((one, self.up or 0.0) for one in there))
        if query.startswith("time() - timestamp(up{"):
            return vector(*((one, self.age) for one in there))
        if query.startswith("scrape_samples_scraped"):
            return vector(*((one, self.samples) for one in there))
        if query.startswith("topk(1, time() - timestamp("):
            return vector(*([] if self.value_age is None else [(labels, self.value_age)]))
        if query.startswith("bottomk(1, count_over_time("):
            return vector((labels, self.in_window))
        if query == "beat":
            return vector(({}, self.now - self.heartbeat_ago))
        return vector(*self.values)


SETTINGS = MonitorSettings(
    watchdog="Watchdog", heartbeat="beat", jobs={"mysql": ExpectedJob(instances=(ADDRESS,))},
    series={"lag": ExpectedSeries(query="rate(lag[5m])", job="mysql", min=0.0, max=10.0)},
)  # fmt: skip


@pytest.fixture
def world(server: Given) -> World:
    found = World()
    server.reply = found.reply
    return found


def answers(server: Given, settings: MonitorSettings = SETTINGS) -> dict[str, GuardAnswer]:
    result = MonitorsGuard(settings.model_copy(update={"prometheus": server.url}), now=lambda: NOW).ask()
    assert not result.unasked
    return {a.name: a for a in result.answers}


def test_a_world_that_is_well_passes(server: Given, world: World) -> None:
    found = answers(server)
    assert {name: a.state for name, a in found.items()} == dict.fromkeys(
        ("clock", "server", "retention", "rules", "watchdog", "heartbeat", "targets", "value"), AnswerState.PASS
    )
    del world


CASES: list[tuple[str, dict[str, Any], AnswerState, str]] = [
    ("clock", {"offset": 30.0}, AnswerState.FAIL, r"\+30"),
    ("clock", {"offset": -30.0}, AnswerState.FAIL, "-30"),
    ("server", {"info": {"reloadConfigSuccess": False}}, AnswerState.FAIL, "refused"),
    ("server", {"info": {"reloadConfigSuccess": True, "corruptionCount": 2}}, AnswerState.WARN, "2 damaged"),
    ("server", {"info": {}}, AnswerState.INCONCLUSIVE, "not reported"),
    ("retention", {"retention": "2h"}, AnswerState.FAIL, "2h"),
    ("retention", {"retention": "15d or 10GiB"}, AnswerState.WARN, "full disk"),
    ("retention", {"retention": "10GiB"}, AnswerState.INCONCLUSIVE, "no time"),
    ("retention", {"retention": "for ever"}, AnswerState.INCONCLUSIVE, "no time"),
    ("retention", {"retention": ""}, AnswerState.INCONCLUSIVE, "nothing"),
    ("rules", {"rule": None}, AnswerState.WARN, "no rule"),
    ("rules", {"evaluated_ago": 500.0}, AnswerState.INCONCLUSIVE, "500"),
    ("watchdog", {"rule": None}, AnswerState.INCONCLUSIVE, "no alert"),
    ("watchdog", {"rule": {"name": "Watchdog", "health": "ok", "state": "inactive"}}, AnswerState.FAIL, "inactive"),
    ("watchdog", {"rule": {"name": "Watchdog", "health": "ok", "state": "pending"}}, AnswerState.FAIL, "pending"),
    ("watchdog", {"rule": {"name": "Watchdog", "health": "err", "lastError": "oh"}}, AnswerState.INCONCLUSIVE, "oh"),
    (
        "watchdog",
        {"rule": {"name": "Watchdog", "health": "unknown", "state": "firing"}},
        AnswerState.INCONCLUSIVE,
        "unknown",
    ),
    ("watchdog", {"evaluated_ago": 500.0}, AnswerState.INCONCLUSIVE, "last evaluated"),
    ("heartbeat", {"heartbeat_ago": 500.0}, AnswerState.INCONCLUSIVE, "500"),
    ("heartbeat", {"heartbeat_ago": -500.0}, AnswerState.INCONCLUSIVE, "ahead"),
    ("targets", {"target": {"health": "down", "lastError": "refused"}, "up": 0.0}, AnswerState.FAIL, "refused"),
    ("targets", {"up": 0.0}, AnswerState.FAIL, "is down"),
    ("targets", {"up": None, "target": None}, AnswerState.INCONCLUSIVE, "not scraped at all"),
    ("targets", {"target": None}, AnswerState.INCONCLUSIVE, "no target any more"),
    ("targets", {"up": None}, AnswerState.INCONCLUSIVE, "no sample of `up`"),
    ("targets", {"age": 200.0}, AnswerState.INCONCLUSIVE, "200 s"),
    ("targets", {"scraped_ago": 200.0}, AnswerState.INCONCLUSIVE, "was scraped"),
    ("targets", {"target": {"health": "unknown"}}, AnswerState.INCONCLUSIVE, "unknown"),
    ("targets", {"samples": 0.0}, AnswerState.INCONCLUSIVE, "without any sample"),
    ("targets", {"has_targets": False}, AnswerState.PASS, "1 of 1"),
    ("targets", {"has_targets": False, "up": None}, AnswerState.INCONCLUSIVE, "not scraped"),
    ("value", {"values": []}, AnswerState.INCONCLUSIVE, "absent"),
    ("value", {"values": [({"instance": "other"}, 1.0)]}, AnswerState.INCONCLUSIVE, "no series of db1"),
    ("value", {"values": [({"instance": ADDRESS}, "NaN")]}, AnswerState.INCONCLUSIVE, "NaN"),
    ("value", {"values": [({"instance": ADDRESS}, "+Inf")]}, AnswerState.INCONCLUSIVE, "infinite"),
    ("value", {"values": [({"instance": ADDRESS}, 11.0)]}, AnswerState.FAIL, "11"),
    ("value", {"values": [({"instance": ADDRESS}, -1.0)]}, AnswerState.FAIL, "-1"),
    ("value", {"values": [({"instance": ADDRESS}, 11.0)], "value_age": 99.0}, AnswerState.FAIL, "blind: .*99 s old"),
    ("value", {"value_age": 99.0}, AnswerState.INCONCLUSIVE, "99 s old"),
    ("value", {"value_age": None}, AnswerState.INCONCLUSIVE, "no sample of lag"),
    ("value", {"in_window": 10.0}, AnswerState.INCONCLUSIVE, "10 of 30 samples"),
]


@pytest.mark.parametrize(("name", "changed", "state", "words"), CASES, ids=lambda v: str(v)[:40])
def test_one_thing_is_wrong(
    server: Given, world: World, name: str, changed: dict[str, Any], state: AnswerState, words: str
) -> None:
    for key, value in changed.items():
        assert hasattr(world, key)
        setattr(world, key, value)
    answer = answers(server)[name]
    assert answer.state is state, answer.value
    assert re.search(words, answer.value), answer.value
    assert answer.value.startswith("blind:") == (state is AnswerState.INCONCLUSIVE)


def test_what_nobody_expects_cannot_be_missed(server: Given, world: World) -> None:
    del world
    found = answers(server, MonitorSettings())
    assert found["targets"].state is AnswerState.INCONCLUSIVE
    assert found["watchdog"].state is AnswerState.WARN


def test_an_age_that_cannot_be_told_is_blind_until_it_is_named(server: Given, world: World) -> None:
    del world
    shifted = ExpectedSeries(query="lag - lag offset 5m", max=10.0)
    assert "age_of" in answers(server, SETTINGS.model_copy(update={"series": {"lag": shifted}}))["value"].value
    named = shifted.model_copy(update={"age_of": ("lag",)})
    assert answers(server, SETTINGS.model_copy(update={"series": {"lag": named}}))["value"].state is AnswerState.PASS


def test_another_kind_of_server_is_blind(server: Given) -> None:
    server.reply = lambda *_: told({"something": "else"})
    assert {a.state for a in answers(server).values()} == {AnswerState.INCONCLUSIVE}

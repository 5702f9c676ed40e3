"""What a check may ask: SQL that only reads, and one value of a status page."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from migverify.errors import UsageError
from migverify.runbook.actions.action import Context, Outcome, Registry
from migverify.runbook.actions.builtin import reading
from migverify.runbook.actions.web import pointed, register

PAGES = {
    "/state": (200, json.dumps({"dr": {"state": "sync", "a/b": 1}, "stores": [1, 2, 3], "none": None})),
    "/text": (200, " ok \n"),
    "/broken": (200, "<html>"),
    "/gone": (503, json.dumps({"dr": {"state": "sync"}})),
}


class _Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, body = PAGES.get(self.path, (302, ""))
        self.send_response(status)
        self.send_header("Location", "/state")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A status page."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Pages) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_address[1]}"
        http.shutdown()


def ask(url: str, **more: object) -> tuple[Outcome, object]:
    """Ask for a value."""
    registry = Registry()
    register(registry)
    context = Context("run", "step", 1, 1, 5.0, threading.Event())
    result = registry.run("http.value", {"url": url, **more}, context)
    return result.outcome, result.value


def test_one_value_of_a_page(server: str) -> None:
    """A pointer leads to a text, a number, a member with a slash; of a list, how many."""
    assert ask(f"{server}/state", pointer="/dr/state") == (Outcome.OK, "sync")
    assert ask(f"{server}/state", pointer="/dr/a~1b") == (Outcome.OK, 1)
    assert ask(f"{server}/state", pointer="/stores/2") == (Outcome.OK, 3)
    assert ask(f"{server}/state", pointer="/stores") == (Outcome.OK, 3)
    assert ask(f"{server}/text", json=False) == (Outcome.OK, "ok")


@pytest.mark.parametrize("page", ["state", "broken", "gone", "elsewhere"])
def test_no_whole_answer_is_no_data(server: str, page: str) -> None:
    """A missing place, no JSON, another status and a redirect have no value."""
    assert ask(f"{server}/{page}", pointer="/dr/nothing") == (Outcome.NO_DATA, None)


def test_null_and_silence_are_no_data(server: str) -> None:
    """Null is no value; nobody listening is none either."""
    assert ask(f"{server}/state", pointer="/none") == (Outcome.NO_DATA, None)
    assert ask("http://127.0.0.1:1/", pointer="") == (Outcome.NO_DATA, None)
    assert ask("file:///etc/hostname", json=False) == (Outcome.FAILED, None)


@pytest.mark.parametrize("pointer", ["a", "/a/", "/list/2", "/list/-1", "/list/x", "/a/b/c"])
def test_a_pointer_that_leads_nowhere(pointer: str) -> None:
    """It is an error, never a default."""
    with pytest.raises(KeyError):
        pointed({"a": {"b": 1}, "list": [0, 1]}, pointer)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1", "select @@tidb_super_read_only;", "SHOW TABLE pay.orders NEXT_ROW_ID",
        "ADMIN CHECK TABLE pay.orders", "WITH a AS (SELECT 1) SELECT * FROM a", "SELECT 'INSERT INTO x; DELETE'",
        "SELECT `update` FROM t -- FOR UPDATE",
    ],
)  # fmt: skip
def test_what_reads_is_asked(sql: str) -> None:
    """Words in texts, names and comments do not count."""
    assert reading(sql) == sql


@pytest.mark.parametrize(
    "sql",
    [
        "", "DELETE FROM t", "SELECT 1; DROP TABLE t", "SELECT 1 INTO OUTFILE '/tmp/x'", "SELECT * FROM t FOR UPDATE",
        "SELECT * FROM t LOCK IN SHARE MODE", "WITH a AS (SELECT 1) UPDATE t SET x = 1", "ADMIN CANCEL DDL JOBS 1",
        "EXPLAIN ANALYZE DELETE FROM t", "SET GLOBAL read_only = 1", "SELECT 1 INTO @x", "/*!50000 DROP TABLE t */",
    ],
)  # fmt: skip
def test_what_writes_or_locks_is_refused(sql: str) -> None:
    """A check changes nothing."""
    with pytest.raises(UsageError):
        reading(sql)

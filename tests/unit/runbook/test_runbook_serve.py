"""The server of the page: it can only be read, and never shows what is not certain."""

from __future__ import annotations

import hashlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from migverify.errors import UsageError
from migverify.report.html import served_page
from migverify.runbook.events import EventKind
from migverify.runbook.page.metrics import metrics_text
from migverify.runbook.page.report_view import as_report
from migverify.runbook.page.run_report import report_of
from migverify.runbook.page.serve import PageServer
from migverify.runbook.page.watch_run import Watcher
from migverify.runbook.record.run_store import FILE, RunStore
from migverify.runbook.run import machine
from tests.unit.runbook_places import data_of, rewrite
from tests.unit.runbook_stories import MovedClock, Story, in_freeze, lost, with_loss_guard
from tests.waiting import wait_for

PATHS = {
    "/": "text/html", "/app.js": "text/javascript", "/style.css": "text/css", "/view.json": "application/json",
    "/report.html": "text/html", "/metrics": "text/plain",
}  # fmt: skip
Answer = tuple[int, dict[str, str], bytes]


@contextmanager
def page(folder: Path, run: str = "last", *, clock: Any = None, host: str = "127.0.0.1") -> Iterator[PageServer]:
    room, moved = RunStore(folder), clock or MovedClock()
    watcher = Watcher(room, run, clock=moved, fresh=0.0)
    server = PageServer(
        watcher, host, 0, report=lambda: served_page(as_report(report_of(room, "last", clock=moved))),
        metrics=lambda: metrics_text(watcher.look()),
    )  # fmt: skip
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ask(server: PageServer, path: str, method: str = "GET", **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def document(server: PageServer) -> dict[str, Any]:
    status, _, body = ask(server, "/view.json")
    assert status == 200
    told: dict[str, Any] = json.loads(body)
    return told


def tree(folder: Path) -> dict[str, str]:
    """Return the hashes of all journals and files; SQLite's own notes of who reads are left out."""
    found = {run: hashlib.sha256(data_of(folder, run)).hexdigest() for run in RunStore(folder).ids()}
    return found | {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith(FILE)
    }  # fmt: skip


def test_the_page_and_its_parts_come_from_here_with_strict_headers(tmp_path: Path) -> None:
    story = in_freeze(tmp_path)
    with page(tmp_path, clock=story.clock) as server:
        for path, kind in PATHS.items():
            status, headers, body = ask(server, path)
            assert (status, headers["content-type"].partition(";")[0]) == (200, kind)
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-store"
            assert headers["x-frame-options"] == "DENY"
            assert "python" not in headers["server"].lower()
            assert len(body) == int(headers["content-length"])
            assert ask(server, path, "HEAD")[::2] == (200, b"")
        assert b"<style" not in ask(server, "/")[2]
        assert b"style=" not in ask(server, "/")[2]
        assert ask(server, "/nowhere")[0] == 404
        assert ask(server, "/../journal.jsonl")[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_can_be_written(tmp_path: Path, method: str) -> None:
    story = in_freeze(tmp_path)
    before = tree(tmp_path)
    with page(tmp_path, clock=story.clock) as server:
        for path in ("/", "/view.json", "/call/freeze"):
            status, headers, _ = ask(server, path, method)
            assert (status, headers["allow"]) == (405, "GET, HEAD")
        assert ask(server, "/view.json")[0] == 200
        assert ask(server, "/report.html")[0] == 200
    assert tree(tmp_path) == before


def test_what_has_not_changed_is_not_sent_again(tmp_path: Path) -> None:
    story = in_freeze(tmp_path)
    with page(tmp_path, clock=story.clock) as server:
        _, headers, _ = ask(server, "/view.json")
        status, again, body = ask(server, "/view.json", If_None_Match=headers["etag"])
        assert (status, body) == (304, b"")
        assert float(again["x-now"]) >= float(headers["x-now"])
        story.says(machine.hold, "carol", "stop for a moment")
        status, fresh, body = ask(server, "/view.json", If_None_Match=headers["etag"])
        assert status == 200
        assert fresh["etag"] != headers["etag"]
        assert json.loads(body)["view"]["state"] == "held"


def test_it_is_compressed_for_those_who_can(tmp_path: Path) -> None:
    import gzip

    story = in_freeze(tmp_path)
    with page(tmp_path, clock=story.clock) as server:
        plain = ask(server, "/view.json")[2]
        _, headers, body = ask(server, "/view.json", Accept_Encoding="gzip")
        assert headers["content-encoding"] == "gzip"
        assert len(body) < len(plain) / 2
        assert gzip.decompress(body) == plain


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:1", 200),
        ("localhost", 200),
        ("[::1]:80", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
    ],
)
def test_another_name_that_points_here_is_refused(tmp_path: Path, host: str, status: int) -> None:
    story = in_freeze(tmp_path)
    with page(tmp_path, clock=story.clock) as server:
        assert ask(server, "/view.json", Host=host)[0] == status


def test_a_run_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    with page(tmp_path / "runs") as server:
        told = document(server)
        assert told["view"] is None
        assert told["problem"]["kind"] == "waiting"
        story = Story(tmp_path / "runs")
        told = document(server)
        assert told["problem"] is None
        assert told["view"]["run"] == story.status.run
    assert "waiting" not in json.dumps(told["problem"])


def test_the_newest_run_is_followed(tmp_path: Path) -> None:
    first = Story(tmp_path, ago=100)
    with page(tmp_path) as server:
        assert document(server)["view"]["run"] == first.status.run
        second = Story(tmp_path)
        assert document(server)["view"]["run"] == second.status.run
        assert document(server)["view"]["label"] == "REHEARSAL 2/4"
    with page(tmp_path, first.status.run) as server:
        assert document(server)["view"]["run"] == first.status.run


@pytest.mark.parametrize("harm", ["flip", "edit", "cut", "drop", "gone"])
def test_a_damaged_journal_shows_no_state_at_all(tmp_path: Path, harm: str) -> None:
    story = in_freeze(tmp_path)
    with page(tmp_path, story.status.run, clock=story.clock) as server:
        assert document(server)["view"]["state"] == "running"
        lines = data_of(tmp_path, story.status.run).splitlines(keepends=True)
        harmed = {
            "flip": [*lines[:-1], lines[-1].replace(b'"seq"', b'"sEq"')], "cut": lines[:-4],
            "edit": [line.replace(b"alice", b"alicE") for line in lines],
            "drop": lines[:10] + lines[11:], "gone": [],
        }[harm]  # fmt: skip
        rewrite(tmp_path, story.status.run, b"".join(harmed) + (lines[5] if harm == "flip" else b""))
        wait_for(lambda: document(server)["view"] is None, "the damage is noticed")
        for _ in range(3):  # and it does not become the truth by being asked again
            told = document(server)
            assert told["view"] is None
            assert told["problem"]["kind"] == ("damaged" if harm != "gone" else told["problem"]["kind"])
        assert ask(server, "/metrics")[2].decode().splitlines()[2] == "migverify_runbook_readable 0"


def test_the_executors_beat_is_seen(tmp_path: Path) -> None:
    story = in_freeze(tmp_path, ago=547.0)
    watcher = Watcher(RunStore(tmp_path), clock=story.clock, fresh=0.0)
    shown = watcher.look().view
    assert shown is not None
    story.clock.moved = 0.0
    story.beat()
    shown = watcher.look().view
    assert shown is not None
    assert shown.executor.state == "alive"
    story.wait(200)
    shown = watcher.look().view
    assert shown is not None
    assert shown.executor.state in ("gone", "silent")
    assert "No heartbeat of the executor since" in shown.stale
    story.beat()
    shown = watcher.look().view
    assert shown is not None
    assert (shown.executor.state, shown.stale) == ("alive", "")


def test_several_readers_see_the_same(tmp_path: Path) -> None:
    story = in_freeze(tmp_path)
    with page(tmp_path, clock=story.clock) as server:
        found: list[dict[str, Any]] = []
        threads = [threading.Thread(target=lambda: found.append(document(server))) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({json.dumps(one["view"]["steps"]) for one in found}) == 1
    assert len(found) == 12


def test_an_address_that_is_taken_is_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError, match="cannot be listened on"):
            PageServer(Watcher(RunStore(tmp_path)), "127.0.0.1", taken.getsockname()[1])


def test_metrics_tell_states_budgets_and_guards(tmp_path: Path) -> None:
    story = in_freeze(tmp_path)
    story.guard("lag", "inconclusive", "no data", None)
    with page(tmp_path, clock=story.clock) as server:
        text = ask(server, "/metrics")[2].decode()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    found = {name.partition("{")[0]: value for name, value in values.items()}
    assert found["migverify_runbook_steps_passed"] == "5"
    assert 280 < float(found["migverify_runbook_write_stop_left_seconds"]) <= 289
    states = [name for name, value in values.items() if "_state{" in name and value == "1"]
    assert len(states) == 1
    assert 'state="running"' in states[0]
    assert [value for name, value in values.items() if 'guard="lag"' in name] == ["NaN"]


def test_metrics_tell_what_a_rollback_would_lose(tmp_path: Path) -> None:
    story = with_loss_guard(tmp_path)
    for told, known in ((False, "NaN"), (True, "12")):
        if told:
            lost(story, behind=33.0)
        with page(tmp_path, clock=story.clock) as server:
            text = ask(server, "/metrics")[2].decode()
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        short = {name: name.partition("{")[0].removeprefix("migverify_runbook_rollback_loss_") for name in values}
        found = {short[name]: value for name, value in values.items()}
        assert found["keys"] == known
    assert (found["known"], found["oldest_seconds"], found["amount"]) == ("1", "34", "1250.00")
    # The wall clock, which may be slewed, tells how long ago it was.
    assert 30 < float(found["age_seconds"]) < 63
    assert any('currency="EUR"' in name for name in values)


def test_no_secret_of_the_journal_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from migverify.secrets import resolve_variable

    story = in_freeze(tmp_path)
    monkeypatch.setenv("CHAT_URL", "s3cr3t-of-the-chat")
    resolve_variable("CHAT_URL", "the sink")
    story.does(EventKind.NOTE, text="the hook is https://chat/s3cr3t-of-the-chat")
    with page(tmp_path, clock=story.clock) as server:
        for path in ("/view.json", "/report.html", "/metrics"):
            assert b"s3cr3t" not in ask(server, path)[2]

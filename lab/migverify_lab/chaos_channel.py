"""A fault of a run's channel: the webhook that it announces to is gone for a while."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from migverify.errors import LabError
from migverify_lab.chaos import Settings
from migverify_lab.chaos_runs import RUN, STEPS, WAIT, begin_run, is_over, kill_job, port_of, status_of
from migverify_lab.chaos_world import CaseWorkspace, case_fault
from migverify_lab.jobs import command_of
from migverify_lab.workspace import Proof, until


def prepare_channel(world: CaseWorkspace) -> None:
    """Start a webhook that keeps what it is sent, and a run that announces every step there."""
    (world.folder / "channel.txt").unlink(missing_ok=True)
    _start_channel(world)
    parts = "sinks:\n  chat: {kind: webhook, url_env: MIGVERIFY_LAB_WEBHOOK, timeout: 2}"
    url = f"http://127.0.0.1:{port_of(world, 'channel')}/hook"
    begin_run(world, parts, "".join(WAIT.format(number=number) for number in range(STEPS)),
           {"MIGVERIFY_LAB_WEBHOOK": url})  # fmt: skip


def _start_channel(world: CaseWorkspace) -> None:
    world.start_job("channel", command_of("channel", world.directory))
    seen = until(lambda: Proof(_channel_answers(world), "the channel"), 20.0)
    if not seen.good:
        raise LabError("the webhook does not answer", hint=world.job_log("channel"))


def _channel_answers(world: CaseWorkspace) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port_of(world, 'channel')}/", timeout=2.0) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def be_channel(directory: Path, _arguments: Sequence[str], ended: threading.Event) -> None:
    """Take what is posted, and keep its text."""
    world = CaseWorkspace(directory)
    path = world.folder / "channel.txt"

    class ChannelHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))))
            with path.open("a", encoding="utf-8") as messages:
                messages.write(str(body.get("text", "")).replace("\n", " ") + "\n")
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port_of(world, "channel")), ChannelHandler)

    def end() -> None:
        ended.wait()
        server.shutdown()

    threading.Thread(target=end, daemon=True).start()
    server.serve_forever(0.1)
    server.server_close()


def _undelivered(world: CaseWorkspace, _settings: Settings, _since: float) -> Proof:
    """The webhook is gone, deliveries of it are red, and steps go on being done: nothing waits for a channel."""
    answers, before = _channel_answers(world), status_of(world)
    time.sleep(1.5)
    after = status_of(world)
    text = (f"the webhook {'answers' if answers else 'is gone'}; {after['undelivered']} announcements wait;"
            f" {before['passed']} steps were done, then {after['passed']}")  # fmt: skip
    good = not answers and after["undelivered"] > 0 and after["passed"] > before["passed"]
    return Proof(good, text, {"undelivered": after["undelivered"]})


def _channel_back(world: CaseWorkspace, settings: Settings) -> dict[str, Any]:
    if world.job("channel") is None:
        _start_channel(world)
    if world.job(RUN) is None:
        return {"delivered": None}
    # The next try comes up to half a minute later: waits double with every one that failed.
    seen = until(lambda: _delivered(world, settings, 0.0), float(settings["delivered_within"]))
    return {"delivered": seen.good, "text": seen.text}


def _delivered(world: CaseWorkspace, _settings: Settings, _since: float) -> Proof:
    """The webhook answers, everything is delivered, and the channel holds the text of every step's end."""
    if is_over(world) and world.job("channel") is None:
        return Proof(True, "the case is over, and ended its channel")
    answers, status = _channel_answers(world), status_of(world)
    posted = (world.folder / "channel.txt").read_text(encoding="utf-8")
    passed = [one["id"] for one in status["steps"] if one["state"] == "done"]
    missing = [id_ for id_ in passed if f"{id_} " not in posted and f"{id_}(" not in posted]
    text = f"{status['undelivered']} announcements wait; of {len(passed)} steps {len(missing)} are not announced"
    return Proof(answers and status["undelivered"] == 0 and not missing and bool(passed), text, {"missing": missing})


FAULTS = (
    case_fault("webhook-down", "The channel that a run announces to is gone.", kill_job("channel"), _undelivered,
          _channel_back, _delivered, {"delivered_within": "80"}),
)  # fmt: skip

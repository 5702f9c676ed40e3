"""A harness in a process of its own: commands go in by standard input, facts come out as JSON lines.

Passwords are the first line of the standard input, so neither a process list nor a file ever holds one.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from migverify.errors import MigverifyError, UsageError
from migverify.secrets import Secret, scrub
from migverify.workload.clients.model import Observed
from migverify.workload.clients.proxy import NetworkController

START_SECONDS = 60.0
END_SECONDS = 10.0
SIDES = ("source", "target")


@dataclass(slots=True)
class _SideFacts:
    steps: list[Mapping[str, Any]] = field(default_factory=list)
    millis: list[int] = field(default_factory=list)
    ended: bool = False
    failure: str = ""

    def observed(self, failure: str = "") -> Observed:
        return Observed(tuple(self.steps), failure or self.failure, tuple(self.millis))


class HarnessProcess:
    """A running harness. ``run`` is for one thread; a harness that died or was stopped is ``broken``."""

    def __init__(self, command: Sequence[str], passwords: Mapping[str, Secret], controller: NetworkController) -> None:
        self._controller = controller
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._complaints: list[str] = []
        self.broken = ""
        try:
            self._process = subprocess.Popen(  # noqa: S603  (our own harness)
                list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            raise UsageError(f"{command[0]} cannot be started: {error}") from error
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._listen, self._drain)]
        for thread in self._threads:
            thread.start()
        self._send({"passwords": {side: secret.reveal() for side, secret in passwords.items()}})
        self.facts = self._first()

    def _first(self) -> dict[str, Any]:
        line = self._next(time.monotonic() + START_SECONDS)
        if line is None or not line.get("ready"):
            self.stop()
            refused = (line or {}).get("refused")
            self.broken = str(refused) if refused else f"the harness did not start: {self._last_words()}"
            return {}
        return line

    def run(self, number: int, seconds: float) -> dict[str, Observed]:
        """Run a cell on both sides at once and return what each showed; a harness that hangs is ended."""
        seen = {side: _SideFacts() for side in SIDES}
        for side in SIDES:
            self._controller.begin(side)
            self._send({"run": number, "side": side})
        deadline = time.monotonic() + seconds
        while not all(one.ended for one in seen.values()) and not self.broken:
            line = self._next(deadline)
            if line is None:
                late = time.monotonic() >= deadline
                self.broken = f"not done within {seconds:.0f} s" if late else f"the harness ended: {self._last_words()}"
                self.stop()
            elif "ask" in line:
                self._answer(line)
            elif line.get("cell") == number:
                _take(seen[line["side"]], line)
        return {side: one.observed("" if one.ended else self.broken) for side, one in seen.items()}

    def _answer(self, line: dict[str, Any]) -> None:
        try:
            facts = self._controller.do(str(line["side"]), line)
        except MigverifyError as error:  # a server that does not come back costs this cell, not the run
            facts = {"refused": error.message}
        self._send({"reply": line["ask"], **facts})

    def _send(self, message: Mapping[str, Any]) -> None:
        if self._process.stdin is None or self.broken:
            return
        try:
            self._process.stdin.write(json.dumps(message).encode("ascii") + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            self.broken = f"the harness ended: {self._last_words() or error}"

    def _next(self, deadline: float) -> dict[str, Any] | None:
        try:
            return self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return None

    def _listen(self) -> None:
        if self._process.stdout is not None:
            for raw in self._process.stdout:
                text = raw.decode("utf-8", "replace")
                try:
                    line = json.loads(text)
                except ValueError:
                    self._complaints.append(f"no JSON: {scrub(text)[:200]}")
                    continue
                # What a server says of a login may hold what was sent; texts are cleaned one by one, as the secret may
                # be a word of JSON itself.
                self._lines.put(line if scrub(text) == text else _clean(line))
        self._lines.put(None)

    def _drain(self) -> None:
        if self._process.stderr is not None:
            for raw in self._process.stderr:
                self._complaints.append(scrub(raw.decode("utf-8", "replace").rstrip()))
                del self._complaints[:-50]

    def _last_words(self) -> str:
        return " | ".join(self._complaints[-5:])[:1000]

    def stop(self) -> None:
        """End the process: by the end of its input first, by force when that is not enough."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            try:
                self._process.stdin.close()
            except OSError:
                self._complaints.append("its input was closed already")
        try:
            self._process.wait(0.2 if self.broken else END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join(END_SECONDS)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _clean(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_clean(one) for one in value]
    return scrub(value) if isinstance(value, str) else value


def _take(seen: _SideFacts, line: Mapping[str, Any]) -> None:
    if line.get("end"):
        seen.ended = True
        seen.failure = str(line.get("failure") or "")
    else:
        seen.steps.append(line["facts"])
        seen.millis.append(int(line.get("ms", 0)))

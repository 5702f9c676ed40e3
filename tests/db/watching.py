"""`tables watch` as a process, for tests of both directions: its statuses, its drain, and what it found."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


class Watching:
    """A watch as a process; ``lines`` are its statuses so far."""

    def __init__(self, config: Path, *options: str) -> None:
        command = [sys.executable, "-m", "migverify", "tables", "watch", "--config", str(config), "--json", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines: list[dict[str, Any]] = []
        self.said: list[str] = []
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._read, self._hear)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def _hear(self) -> None:
        assert self.process.stderr is not None
        self.said.extend(self.process.stderr)

    def wait_for(self, right: Callable[[dict[str, Any]], bool], seconds: float = 60.0) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.lines and right(self.lines[-1]):
                return self.lines[-1]
            if self.process.poll() is not None and not any(t.is_alive() for t in self._threads):
                pytest.fail(f"the watch ended: {self.lines[-1:]} {''.join(self.said)}")
            time.sleep(0.05)
        pytest.fail(f"nothing of the kind in {seconds} s: {self.lines[-1:]}")

    def join(self) -> None:
        """Wait until all that the process wrote is read; it has ended."""
        for thread in self._threads:
            thread.join()

    def stop(self, number: signal.Signals = signal.SIGINT) -> tuple[int, dict[str, Any]]:
        self.process.send_signal(number)
        code = self.process.wait(60)
        self.join()
        return code, self.lines[-1]

    @property
    def run(self) -> str:
        return str(self.lines[-1]["run_id"])


def migverify(*arguments: str) -> tuple[int, str, str]:
    ended = subprocess.run([sys.executable, "-m", "migverify", *arguments], capture_output=True, text=True, timeout=200)
    return ended.returncode, ended.stdout, ended.stderr


def drained(config: Path, run: str, *options: str) -> tuple[int, dict[str, Any]]:
    code, out, err = migverify("tables", "watch", "--config", str(config), "--resume", run, "--until-drained", "--json",
                               *options)  # fmt: skip
    assert out, err
    return code, json.loads(out.splitlines()[-1])


def reasons(status: dict[str, Any]) -> str:
    return "; ".join([*status["reasons"], *(r for t in status["tables"] for r in t["reasons"])])


def diffs(config: Path, run: str) -> set[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    code, out, err = migverify("tables", "diff", run, "--config", str(config), "--json")
    assert code in (0, 1), err
    found = [json.loads(line) for line in out.splitlines()]
    return {(d["pair"], tuple(d["key"]), tuple(sorted(c["column"] for c in d["columns"]))) for d in found}

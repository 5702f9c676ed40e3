"""The end of ``make demo``: two drills of a cutover on the lab's pair, readiness, the cutover, and the rollback.

The runbooks are those of ``runbooks/``. One process drives each run; its people are played by typing, as each of them,
the very commands that ``status`` shows them. Both drills have trouble: in the first a feed reports that it runs and
carries nothing, in the second the process that drives the run is killed while it stops writes. Readiness asks for four
drills, the last two clean, by people with logins of their own: so the cutover begins held, and two persons resume it.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from migverify.cli.main import run as migverify
from migverify.errors import ExitCode
from migverify_lab.process import find_by_environment

if TYPE_CHECKING:
    from migverify.runbook.record.run_record import RunRecord
    from migverify.runbook.record.run_store import RunStore
    from migverify.runbook.run.pending import PendingAction

RUNBOOK = Path("runbooks") / "cutover.yaml"
BACK = Path("runbooks") / "rollback-after-open.yaml"
LONGEST = 900.0
"""Seconds that one run may take, on a machine that is busy, too; then the demo has failed."""
HASTE = {RUNBOOK: ("settle=2", "patience=5", "apart=1", "window=5s"), BACK: ("settle=2",)}
"""Shorter waits than a night would have: they count with the steps, so all drills and the cutover have the same."""
PASSWORDS = ("MIGVERIFY_APP_PASSWORD", "MIGVERIFY_MARKER_PASSWORD", "MIGVERIFY_SOURCE_WRITER_PASSWORD")


@dataclass(slots=True)
class Drive:
    """A run that goes on: its folder, the process that drives it, and where that says what moves."""

    words: list[str]
    said: Path
    executor: subprocess.Popen[bytes] = field(init=False)
    record: RunRecord = field(init=False)
    troubled: bool = False

    def begin(self, *words: str) -> None:
        """Start a process that drives the run."""
        command = [sys.executable, "-m", "migverify", *(words or self.words)]
        with self.said.open("a") as file:
            self.executor = subprocess.Popen(command, stdout=file, stderr=file)  # noqa: S603 - ourselves

    @property
    def run(self) -> str:
        """The run's id."""
        return self.record.folder.name

    def state(self, step: str) -> str:
        """The state of a step."""
        return self.record.status.steps[step].state.value

    def type(self, *words: str) -> None:
        """Type a command of ``migverify runbook`` about this run."""
        typed("runbook", *words, "--run", self.run)


Trouble = Callable[[Drive], bool]
"""Looks at a run, and makes or mends trouble; whether it did something."""


@dataclass(frozen=True, slots=True)
class DemoDrills:
    """The story, in the folder of a demo whose pair is up."""

    root: Path
    lab: Path

    def run(self) -> list[str]:
        """Tell it; return the pages to look at.

        Raises
        ------
        SystemExit
            a run ended otherwise than it had to.
        """
        os.environ.update({"MIGVERIFY_LAB_DIR": str(self.lab.absolute()), "MIGVERIFY_RUNS": str(self.root / "runs"),
                           "MIGVERIFY": f"{sys.executable} -m migverify"})  # fmt: skip
        os.environ.update(dict.fromkeys(PASSWORDS, ""))  # the lab's accounts have none
        begun = time.monotonic()
        self._tell()
        print(f"\nThe drills took {time.monotonic() - begun:.0f} s.", flush=True)
        return ["cutover.html", "back.html"]

    def _tell(self) -> None:
        self._prepare("reverse-dead")
        self._drill("Drill 1. The reverse feed says that it runs, and carries nothing: a gate holds the run.",
                    trouble=self._mend)  # fmt: skip
        self._prepare()
        self._drill("Drill 2. The process that drives the run is killed while it stops writes.", trouble=self._kill)
        heading("Are we ready? It is computed from the journals of the drills.")
        typed("runbook", "readiness", str(RUNBOOK), "-e", "lab", *_haste(RUNBOOK), "--config", str(self._config),
              expect=ExitCode.MISMATCH)  # fmt: skip
        self._prepare()
        self._drill("The cutover, live. It begins held: two drills are not four, and one login played every role. "
                    "Two persons resume it.", kind="live", page=True, trouble=self._go_on)  # fmt: skip
        self._drill("An hour later, in small: the rollback, with every row that was written on the target.",
                    runbook=BACK, kind="rollback")  # fmt: skip
        typed("lab", "cutover", "proof", "source", "--dir", str(self.lab))
        typed("runbook", "report", "--compare", "--all", "--runbook", "cutover")

    def _prepare(self, mistake: str = "") -> None:
        planted = ("--mistake", mistake) if mistake else ()
        heading("A shop on both sides, a feed, and an application that writes.")
        typed("lab", "cutover", "prepare", *planted, "--dir", str(self.lab))
        typed("lab", "cutover", "feed", "forward", "start", "--dir", str(self.lab))
        typed("lab", "cutover", "app", "start", "--dir", str(self.lab))

    @property
    def _config(self) -> Path:
        return self.lab / "cutover" / "migverify.yaml"

    def _drill(
        self, title: str, *, runbook: Path = RUNBOOK, kind: str = "rehearsal", page: bool = False,
        trouble: Trouble | None = None,
    ) -> None:  # fmt: skip
        """Begin a run and play its people to its end; trouble that never came is a failure, too."""
        heading(title)
        words = ["runbook", "run", str(runbook), "--kind", kind, "-e", "lab", "--as", "alice", *_haste(runbook),
                 "--config", str(self._config)]  # fmt: skip
        print(f"$ migverify {shlex.join(words)}", flush=True)
        before = set(self._store().ids())
        drive = Drive(words, self.root / f"said-{len(before) + 1}.log")
        drive.begin()
        try:
            drive.record = self._begun(before, drive)
            with self._page(drive.run) if page else contextlib.nullcontext():
                play(drive, trouble or (lambda _: False))
            code = drive.executor.wait(60.0)
        except subprocess.TimeoutExpired:
            raise SystemExit(f"demo: the run above did not end; {drive.said} has what it said") from None
        finally:
            drive.executor.terminate()
        _tell_trouble(drive.said)
        if code:
            raise SystemExit(f"demo: the run above ended with {code}, not with 0; {drive.said} has what it said")
        if trouble is not None and not drive.troubled:
            raise SystemExit("demo: the run above ended before its trouble came")
        if kind != "rehearsal":
            name = "cutover.html" if runbook == RUNBOOK else "back.html"
            typed("runbook", "report", "--run", drive.run, "-o", str(self.root / name))

    def _store(self) -> RunStore:
        from migverify.runbook.record.run_store import RunStore

        return RunStore(self.root / "runs")

    def _begun(self, before: set[str], drive: Drive) -> RunRecord:
        until = time.monotonic() + 60.0
        while time.monotonic() < until and drive.executor.poll() is None:
            new = [one for one in self._store().ids() if one not in before]
            if new:
                return self._store().open(new[-1])
            time.sleep(0.1)
        raise SystemExit(f"demo: the run above did not begin; {drive.said} has what it said")

    @contextlib.contextmanager
    def _page(self, run: str) -> Iterator[None]:
        """Serve the live page while a run goes on, for whoever wants to look."""
        words = ["runbook", "serve", "--run", run, "--port", "0"]
        print(f"$ migverify {shlex.join(words)}", flush=True)
        with subprocess.Popen([sys.executable, "-m", "migverify", *words]) as server:  # noqa: S603 - ourselves
            try:
                yield
            finally:
                server.terminate()

    def _mend(self, drive: Drive) -> bool:
        """Drill 1: the gate of the reverse feed has failed; mend the feed, and ask again.

        On a busy machine the feed may need longer for its first marker than the gate waits: then it is asked once more.
        """
        if drive.state("way-back") != "failed" or drive.record.status.state.value != "held":
            return False
        if not drive.troubled:
            drive.troubled = True
            typed("lab", "cutover", "mend", "--dir", str(self.lab))
            typed("lab", "cutover", "feed", "reverse", "start", "canary", "--dir", str(self.lab))
        drive.type("resume", "the reverse feed was started again", "--as", "alice")
        drive.type("retry", "way-back", "--as", "alice")
        return True

    def _go_on(self, drive: Drive) -> bool:
        """The cutover: readiness holds it, as it is not met; two persons answer for going on."""
        if drive.troubled or "readiness" not in drive.record.status.hold_guards:
            return False
        drive.troubled = True
        for person in ("alice", "dana"):
            drive.type("resume", "a lab on one machine: one login is expected", "--as", person)
        return True

    def _kill(self, drive: Drive) -> bool:
        """Drill 2: kill the executor in mid-effect; two persons have another one take over.

        The hook has to run already: killed between the intent and the hook, nothing would have happened.
        """
        if drive.troubled or not find_by_environment(MIGVERIFY_RUN=drive.run, MIGVERIFY_STEP="freeze"):
            return False
        drive.troubled = True
        print("    kill -9: nobody knows whether writes are stopped", flush=True)
        drive.executor.send_signal(signal.SIGKILL)
        drive.executor.wait()
        drive.type("handover", "--takeover", "the machine of alice is gone", "--as", "dana")
        words = ["runbook", "run", "--run", drive.run, "--as", "erin", "--reason", "the machine of alice is gone",
                 "--config", str(self._config)]  # fmt: skip
        print(f"$ migverify {shlex.join(words)}", flush=True)
        drive.begin(*words)
        return True


def _haste(runbook: Path) -> list[str]:
    return [word for setting in HASTE[runbook] for word in ("--set", setting)]


def play(drive: Drive, trouble: Trouble) -> None:
    """Type what the people of a run have to type until it is over."""
    from migverify.runbook.run.pending import pending_actions

    until = time.monotonic() + LONGEST
    while drive.executor.poll() is None and time.monotonic() < until:
        status = drive.record.refresh() or drive.record.status
        if status.over:
            return
        if trouble(drive):
            continue
        mine = next(
            (one for one in pending_actions(status, drive.record.now()) if one.by_ack or one.verb == "approve"), None
        )
        if mine is None:
            time.sleep(0.05)
        else:
            _type(mine, drive.run)


def _type(action: PendingAction, run: str) -> None:
    words = shlex.split(action.command.replace("'WHAT-SHOWS-IT'", "'I looked at every gate: go.'"))[1:]
    words += ["--yes"] if action.by_ack else []
    person = words[words.index("--as") + 1]
    shown = " ".join(word for word in words[1:] if word not in ("--as", person))
    print(f"    {person:<6} {shown}", flush=True)
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = migverify([*words, "--run", run])
    # The run may have moved since it was looked at: then the word is refused, and the next look says what is due.
    if code not in (0, int(ExitCode.USAGE)):
        raise SystemExit(f"demo: {action.command} ended with {code}: {output.getvalue()}")


def _tell_trouble(said: Path) -> None:
    """Print what a coordinator would not have overlooked: failures, holds, what nobody knew, and the end."""
    lines = [one.rstrip() for one in said.read_text().splitlines() if " | " not in one]
    loud = [one for one in lines if any(word in one for word in ("FAILED", "HELD", "UNKNOWN"))]
    for line in dict.fromkeys([*loud, *lines[-1:]]):
        print(f"           {line[:200]}", flush=True)


BEGUN = time.monotonic()


def heading(title: str) -> None:
    """Print what comes next, and how many seconds the demo has taken so far."""
    print(f"\n=== {title}  [{time.monotonic() - BEGUN:.0f} s]", flush=True)


def typed(*words: str, expect: ExitCode = ExitCode.MATCH) -> None:
    """Run one migverify command in this process and insist on its exit code."""
    print(f"$ migverify {shlex.join(words)}", flush=True)
    code = migverify(list(words))
    if code != expect:
        raise SystemExit(f"demo: the command above ended with {code}, not with {int(expect)} ({expect.name})")

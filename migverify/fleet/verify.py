"""``fleet verify``: verifications of many services, each a process of our own command, within one budget and window.

All state is in the services' stores: what was interrupted or killed is resumed by the next ``fleet verify``, and a
proof that is young enough is not made again.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from migverify.errors import ExitCode, StoreError
from migverify.fleet.budget import ConnectionBudget, next_to_begin
from migverify.fleet.definition import Fleet
from migverify.fleet.judge import judge, newest_proof, whole_read_words
from migverify.fleet.model import FleetPart, ServiceEvidence, ServiceStanding, VerifyEvidence
from migverify.fleet.read import read_proof, rules_of
from migverify.fleet.verify_plan import ServiceVerification, VerifyAction, needed_action, never_begins, whole_instead
from migverify.fleet.verify_time import VerifySpeed, why_it_never_ends
from migverify.model import Verdict
from migverify.runbook.record.locks import open_own
from migverify.secrets import scrub
from migverify.store.open import PASSWORD_VARIABLE

LOCK = Path(".migverify") / "fleet-verify.lock"
LOCK_SECONDS = 20.0
"""How long children of a process that was killed may take to end."""
GRACE_SECONDS = 60.0
"""How long a verification that is asked to stop may take; what it is about to record is lost after that."""
_POLL = 0.1
_LAST_BYTES = 4_000


@dataclass(frozen=True, slots=True)
class VerifiedService:
    """How it ended for one service; ``reason`` says why it is no MATCH, or which proof was reused."""

    service: str
    action: VerifyAction
    verdict: Verdict
    run: str
    reason: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class FleetVerification:
    """All services in the order of work. ``is_stopped``: Ctrl-C ended it; ``is_closed``: the window did."""

    services: tuple[VerifiedService, ...]
    is_stopped: bool = False
    is_closed: bool = False

    @property
    def verdict(self) -> Verdict:
        """The worst of all services."""
        return Verdict.worst([one.verdict for one in self.services])

    @property
    def exit_code(self) -> ExitCode:
        """That of the verdict; 130 where somebody stopped it."""
        return ExitCode.INTERRUPTED if self.is_stopped else self.verdict.exit_code


@dataclass(slots=True)
class _Running:
    """A verification that runs."""

    task: ServiceVerification
    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    began: float
    asked: float | None = None
    is_killed: bool = False


@contextmanager
def verify_lock(fleet: Fleet, seconds: float = LOCK_SECONDS) -> Iterator[int]:
    """Hold the lock of a fleet's verifications; children inherit its handle, and hold it until they end.

    Raises
    ------
    StoreError
        another ``fleet verify`` of this file runs, here or as children of one that was killed.
    """
    path = fleet.path.resolve().parent / LOCK  # a link to the file, or to its folder, is the same fleet
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{path.parent} cannot be made: {error.strerror}") from error
    handle, until = open_own(path, os.O_RDWR | os.O_CREAT), time.monotonic() + seconds
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise StoreError(f"another fleet verify of {fleet.path} runs ({path} is locked)",
                                     hint="Let it end: budgets count once.") from None  # fmt: skip
                time.sleep(_POLL)
        yield handle
    finally:
        os.close(handle)


class FleetVerifier:
    """Runs planned verifications. Make it, call ``run``.

    Parameters
    ----------
    closes
        When the window closes, by ``clock``; None: never.
    is_stopped
        Whether somebody asked to stop.
    on_begin, on_end
        Called with each service that begins, and with how it ended.
    """

    def __init__(
        self, fleet: Fleet, closes: float | None, is_stopped: Callable[[], bool] = lambda: False,
        on_begin: Callable[[ServiceVerification], None] = lambda _: None,
        on_end: Callable[[VerifiedService], None] = lambda _: None, clock: Callable[[], float] = time.time,
        command: Sequence[str] = (sys.executable, "-m", "migverify.fleet.verify_child"),
    ) -> None:  # fmt: skip
        self._fleet, self._closes, self._is_stopped, self._clock = fleet, closes, is_stopped, clock
        self._on_begin, self._on_end, self._command = on_begin, on_end, tuple(command)
        self._budget = ConnectionBudget(fleet.limits.of)
        self._running: list[_Running] = []
        self._ended: list[VerifiedService] = []

    def run(self, tasks: Sequence[ServiceVerification], lock: int) -> FleetVerification:
        """Run what is needed, as the budget and the window permit; ``lock`` is the handle of ``verify_lock``."""
        waiting = [task for task in tasks if not self._is_settled(task)]
        try:
            while waiting or self._running:
                if waiting and not self._is_over():
                    begun = next_to_begin([task.demand for task in waiting], self._budget)
                    for place in begun:
                        self._begin(waiting[place], lock)
                    waiting = [task for place, task in enumerate(waiting) if place not in begun]
                elif self._is_over():
                    for task in waiting:
                        self._end(_not_verified(task, f"not begun: {self._over_why()}"))
                    waiting = []
                    self._ask_to_stop()
                waiting = [*self._look(), *waiting]
                if self._running:
                    time.sleep(_POLL)
        finally:
            self._kill()
        order = {task.service.name: place for place, task in enumerate(tasks)}
        ended = sorted(self._ended, key=lambda one: order[one.service])
        is_closed = self._closes is not None and self._clock() >= self._closes
        return FleetVerification(tuple(ended), self._is_stopped(), is_closed)

    def _is_settled(self, task: ServiceVerification) -> bool:
        """Whether nothing is run for a service; it is reported then."""
        name, action = task.service.name, task.action
        if action is VerifyAction.REUSE:
            self._end(VerifiedService(name, action, Verdict.MATCH, task.run, f"not verified again: {task.why}"))
        elif action is VerifyAction.NONE:
            self._end(VerifiedService(name, action, Verdict.INCONCLUSIVE, "", task.why))
        elif why := never_begins(self._fleet, task):
            self._end(_not_verified(task, why))
        else:
            return False
        return True

    def _is_over(self) -> bool:
        return self._is_stopped() or (self._closes is not None and self._clock() >= self._closes)

    def _over_why(self) -> str:
        return "it was stopped" if self._is_stopped() else "the window has closed"

    def _begin(self, task: ServiceVerification, lock: int) -> None:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when its words are read
        variable = task.service.store_password_env
        own = {PASSWORD_VARIABLE: os.environ[variable]} if variable is not None and variable in os.environ else {}
        process = subprocess.Popen(  # noqa: S603 - ourselves
            [*self._command, *task.arguments], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors,
            start_new_session=True, pass_fds=(lock,), env={**os.environ, **own},
        )  # fmt: skip
        self._running.append(_Running(task, process, errors, self._clock()))
        self._on_begin(task)

    def _ask_to_stop(self) -> None:
        """Interrupt what runs, once: it records what it has, and is resumed next time."""
        for one in self._running:
            if one.asked is None:
                one.asked = time.monotonic()
                one.process.send_signal(signal.SIGINT)
            elif not one.is_killed and time.monotonic() - one.asked > GRACE_SECONDS:
                one.is_killed = True
                one.process.kill()

    def _look(self) -> list[ServiceVerification]:
        """Report what has ended; return what is to be begun instead of what was refused."""
        instead: list[ServiceVerification] = []
        for one in [one for one in self._running if one.process.poll() is not None]:
            self._running.remove(one)
            self._budget.give_back(one.task.demand)
            words = _last_words(one.errors)
            if one.process.stdin is not None:
                one.process.stdin.close()
            whole = whole_instead(one.task, words) if one.process.returncode == ExitCode.USAGE else None
            if whole is not None:
                instead.append(whole)
                continue
            ended = self._concluded(one, words)
            refused = f"; {one.task.refusal}" if one.task.refusal else ""
            self._end(replace(ended, reason=f"{ended.reason}{refused}"))
        return instead

    def _concluded(self, one: _Running, words: str) -> VerifiedService:
        """Return what the store says now; the exit code alone makes no MATCH, and a proof counts as for the board."""
        task, seconds = one.task, self._clock() - one.began
        evidence = read_proof(self._fleet, task.service, self._clock())
        newest = evidence.verifications[0] if evidence.verifications else None
        proof = newest_proof(evidence)
        code = one.process.returncode
        part = judge(evidence, rules_of(self._fleet, task.service)).part(FleetPart.PROOF)
        if code == ExitCode.MATCH and proof is not None and proof is newest and part.standing is ServiceStanding.READY:
            tables = proof.shown_tables
            if proof.rests_on is not None:
                tables += f"; what was written since was read, on a {whole_read_words(proof.rests_on, evidence.now)}"
            return VerifiedService(task.service.name, task.action, Verdict.MATCH, proof.run, tables, seconds)
        if code in (ExitCode.MATCH, ExitCode.MISMATCH) and newest is not None and newest.mismatches:
            return VerifiedService(task.service.name, task.action, Verdict.MISMATCH, newest.run, _differ(newest),
                                   seconds)  # fmt: skip
        if one.asked is not None:
            why = f"{self._over_why()}, {self._goes_on(one, evidence)}"
        elif code < 0:
            why = f"its process was killed by {_signal_name(-code)}; {self._goes_on(one, evidence)}"
        elif code == ExitCode.MATCH and part.reasons:
            why = part.reasons[0].text
        else:
            why = words or f"exit code {code}"
        if newest is None or (newest == task.newest and task.action is not VerifyAction.RESUME):
            return _not_verified(task, why, seconds)  # it failed before it recorded anything
        if newest.ended is None and task.differs is not None:
            return _not_verified(task, f"run {newest.run} did not end: {why}", seconds)
        return VerifiedService(task.service.name, task.action, Verdict.INCONCLUSIVE, newest.run, why, seconds)

    def _goes_on(self, one: _Running, evidence: ServiceEvidence) -> str:
        """Return what the next ``fleet verify`` does with one that was cut off, in the next window at the earliest."""
        fleet, now, task = self._fleet, self._clock(), one.task
        window = fleet.limits.verify
        next_time = now if window is None or self._is_stopped() or not self._is_over() else window.opens(now)
        action, run, _ = needed_action(replace(evidence, now=next_time), fleet.proof_max_age, fleet.whole_read_max_age)
        cut_off = next((each for each in evidence.verifications if each.can_resume), None)
        words = "the next `fleet verify` begins it anew"
        if action is VerifyAction.RESUME:
            words = "the next `fleet verify` resumes it"
        elif action is VerifyAction.REUSE:
            words = f"the next `fleet verify` takes the proof of run {run}"
        if cut_off is None or not (cut_off.run == task.run or cut_off.began >= one.began):
            return words
        speed = VerifySpeed(cut_off.read - task.read, cut_off.tables, now - one.began)
        never = why_it_never_ends(speed, window, fleet.proof_max_age)
        return f"{words}; {never}" if never else words

    def _end(self, ended: VerifiedService) -> None:
        self._ended.append(ended)
        self._on_end(ended)

    def _kill(self) -> None:
        """End what still runs: nothing of ours outlives this process."""
        for one in self._running:
            one.process.kill()
            one.process.wait()
            one.errors.close()


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:  # a signal of real time has no name
        return f"signal {number}"


def _differ(verification: VerifyEvidence) -> str:
    count = verification.mismatches
    return "1 table differs" if count == 1 else f"{count:,} tables differ"


def _not_verified(task: ServiceVerification, why: str, seconds: float = 0.0) -> VerifiedService:
    """Return how it ended for a service that was not verified: what an earlier run found to differ still does."""
    name, known = task.service.name, task.differs
    if known is None:
        return VerifiedService(name, task.action, Verdict.INCONCLUSIVE, "", why, seconds)
    reason = f"{_differ(known)}, and it was not verified again: {why}"
    return VerifiedService(name, task.action, Verdict.MISMATCH, known.run, reason, seconds)


def _last_words(errors: IO[bytes]) -> str:
    """Return the last line of what a command said, without what it was given as a secret."""
    with errors:
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - _LAST_BYTES))
        lines = errors.read().decode("utf-8", "replace").strip().splitlines()
    found = [line for line in lines if line.startswith("error: ")] or lines[-1:]
    return scrub(" ".join(found[-1].split())) if found else ""

"""A run that is open: its journal and its state. Whoever acts reads, decides and appends under one lock.

Nothing is written that the fold would refuse: a command is judged by the same arrows as a journal that is read.
"""

from __future__ import annotations

import os
import pwd
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Self

from migverify.errors import JournalError, UsageError
from migverify.runbook.clock import Moment
from migverify.runbook.events import Event, EventKind
from migverify.runbook.fold.table import fold
from migverify.runbook.kinds import RunKind
from migverify.runbook.model import Runbook
from migverify.runbook.record.chain import Draft
from migverify.runbook.record.frozen import runbook_as_json
from migverify.runbook.record.heads import PREVIOUS, Head
from migverify.runbook.record.journal import RunJournal
from migverify.runbook.run.machine import Decision, Refusal
from migverify.runbook.state import RULES, RunStatus
from migverify.secrets import remember_environment

__all__ = ["RunRecord", "login", "new_run_id"]


def new_run_id(runbook: str, now: float | None = None) -> str:
    """Return an id for a run: time, runbook, and a few random letters, fit for a folder's name.

    At most 64 characters: markers are named by it, in a column of that length (docs/gates.md).
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() if now is None else now))
    name = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in runbook)[:40]
    return f"{stamp}-{name}-{secrets.token_hex(3)}"


def login() -> str:
    """Return ``user@host`` of this process: what shows when two persons act from one login.

    The user is the operating system's: USER and LOGNAME are what somebody wrote into the environment.
    """
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


class RunRecord:
    """A run's journal with its status, kept up to date.

    Parameters
    ----------
    journal
        Not shared by threads: each thread or process opens its own.
    """

    def __init__(self, journal: RunJournal) -> None:
        remember_environment()
        self.journal = journal
        self._status: RunStatus | None = None
        self._followers: list[deque[Event]] = []

    @classmethod
    def begin(
        cls, journal: RunJournal, runbook: Runbook, kind: RunKind, actor: str, *, schema_fingerprint: str = "",
        autopilot: bool = False, previous: Head | None = None,
    ) -> Self:  # fmt: skip
        """Start a run in a journal that has no event yet.

        Parameters
        ----------
        schema_fingerprint
            Of the pair, when it is known: a drill on another schema proves less.
        autopilot
            One program plays every role: no drill of people.
        previous
            The run begun before it, where the store does not hold it any more; by default the store's newest.

        Raises UsageError: there is such a run; JournalError: the runbook cannot be run: its needs go round, or two of
        its people may be one.
        """
        record = cls(journal)
        data = {
            "kind": kind.value, "runbook": runbook_as_json(runbook), "id": runbook.id, "text_sha": runbook.text_sha,
            "environment": runbook.environment, "schema_fingerprint": schema_fingerprint, "login": login(),
            "autopilot": autopilot, "rules": RULES,
        }  # fmt: skip

        def begin() -> list[Draft]:
            if record.refresh() is not None:
                raise UsageError(f"there is a run {journal.run}", hint="Leave the id out, and one is made.")
            before = previous or journal.run_before()
            return [Draft(EventKind.RUN_STARTED, actor, data={**data, PREVIOUS: asdict(before) if before else None})]

        record._append(begin, None)
        return record

    @classmethod
    def of(cls, journal: RunJournal) -> Self:
        """Open the run of a journal.

        Raises UsageError: it holds no event; JournalError: it is damaged.
        """
        record = cls(journal)
        if record.refresh() is None:
            raise UsageError(f"{journal.label} holds no run")
        return record

    @property
    def folder(self) -> Path:
        """Where the run lives."""
        return self.journal.folder

    @property
    def status(self) -> RunStatus:
        """Where the run stood when it was last looked at."""
        if self._status is None:
            raise JournalError(f"{self.journal.label} holds no event")
        return self._status

    def refresh(self) -> RunStatus | None:
        """Read what is new, and return the state of the run; None: it was not started."""
        events = list(self.journal.new())
        if events:
            self._status = self._fold(events, self._status)
            self._tell(events)
        return self._status

    def follow(self) -> deque[Event]:
        """Return a queue into which every event is put that this record reads or writes from now on."""
        self._followers.append(deque())
        return self._followers[-1]

    def _tell(self, events: Sequence[Event]) -> None:
        for follower in self._followers:
            follower.extend(events)

    def now(self) -> Moment:
        """Return this moment by the run's clock."""
        return self.journal.clock.now()

    def write(self, decide: Callable[[RunStatus, Moment], Sequence[Draft]], *, epoch: int | None = None) -> list[Event]:
        """Append what ``decide`` says about the newest status, under the journal's lock.

        Raises FencedError: ``epoch`` is over; JournalError: an event could not have happened; nothing is written.
        """

        def look() -> Sequence[Draft]:
            self.refresh()
            return decide(self.status, self.now())

        return self._append(look, epoch)

    def submit(self, command: Callable[[RunStatus, Moment], Decision]) -> list[Event]:
        """Carry out a person's command.

        Raises UsageError: it is refused; the message says why.
        """

        def decide(status: RunStatus, now: Moment) -> Sequence[Draft]:
            decision = command(status, now)
            if isinstance(decision, Refusal):
                raise UsageError(decision.reason, hint=decision.hint)
            return decision

        return self.write(decide)

    def _append(self, decide: Callable[[], Sequence[Draft]], epoch: int | None) -> list[Event]:
        after: list[RunStatus | None] = []

        def judge(events: list[Event]) -> None:
            after.append(self._fold(events, self._status))

        written = self.journal.append(decide, epoch=epoch, judge=judge)
        if after:
            self._status = after[-1]  # a database may have had it judged more than once
        self._tell(written)
        return written

    def _fold(self, events: list[Event], start: RunStatus | None) -> RunStatus | None:
        try:
            return fold(events, start)
        except JournalError as error:
            raise JournalError(f"{self.journal.label}: {error.message}") from None

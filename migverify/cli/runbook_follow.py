"""What moves in a run, as lines of a terminal: the clock, what happened, and who acts next."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from migverify.cli.console import visible
from migverify.errors import MigverifyError
from migverify.runbook.events import Event, EventKind
from migverify.runbook.fold.table import fold
from migverify.runbook.page.sentences import sentence, weight_of
from migverify.runbook.page.view_clock import utc_words
from migverify.runbook.run.pending import PendingAction, pending_actions

if TYPE_CHECKING:
    from migverify.runbook.record.run_record import RunRecord
    from migverify.runbook.state import RunStatus

__all__ = ["Follower", "action_line", "event_lines"]

_K = EventKind
_SECONDS = 0.2


def event_lines(before: RunStatus | None, event: Event) -> Iterator[str]:
    """Yield an event as a line for a terminal, or none; of what went wrong also the checks that do not pass."""
    words = sentence(event)
    if event.kind is _K.GUARD and before is not None:
        known = before.guards.get(str(event.data["guard"]))
        if known is not None and known.state == event.data["state"]:
            return  # written down from time to time, and the same as before
    if words:
        mark = "! " if weight_of(event) == "bad" else ""
        yield visible(f"{utc_words(event.wall, date=False)}  {mark}{words}", lines=False)
    if event.kind in (_K.FAILED, _K.INCONCLUSIVE, _K.TIMED_OUT, _K.ROLLBACK_VERIFIED):
        for check in event.data.get("checks", ()):
            if check.get("state") != "pass" and str(check.get("text")) not in str(event.data.get("reason", "")):
                yield visible(f"{'':10}{check.get('action')}: {check.get('state')}: {check.get('text')}", lines=False)


def action_line(action: PendingAction) -> str:
    """Return a action as one line: who, the command to type, and of several ways what each one means."""
    if not action.command:
        return f"-> {action.who}: {action.what}"
    words = f"   # {action.what}" if action.choice or action.several > 1 else ""
    return f"{'or' if action.choice else '->'} {action.who}: {action.command}{words}"


class Follower:
    """Follows a run in a thread and prints what moves, and what people have to do that they had not before.

    Parameters
    ----------
    record
        Its own: not the executor's.
    put
        Prints a line.
    suffix
        Added to the commands that are shown.
    """

    def __init__(self, record: RunRecord, put: Callable[[str], None], suffix: str = "") -> None:
        self._record, self._put, self._suffix = record, put, suffix
        self._status = record.status
        self._shown: set[tuple[str, str]] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
        self.problem: Exception | None = None

    def begin(self) -> None:
        """Print what people have to do, and what moves from now on."""
        self._thread.start()

    def end(self) -> None:
        """Print the last moves, and end."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.wait(_SECONDS):
                self._look()
            self._look()
        except (OSError, MigverifyError, ValueError) as error:
            self.problem = error  # the run goes on without being shown here; the caller says so

    def _look(self) -> None:
        moved = False
        for event in self._record.journal.new():
            before, after = self._status, fold((event,), self._status)
            if after is None:
                continue
            self._status, moved = after, True
            for line in event_lines(before, event):
                self._put(line)
        if moved or not self._shown:
            self._next()

    def _next(self) -> None:
        some = pending_actions(self._status, self._record.now(), self._suffix)
        # The executor is this program: that nobody drives the run is for `status` to say.
        some = tuple(one for one in some if one.step or self._status.executor)
        for action in some:
            key = (action.step, action.command or action.what)
            if key not in self._shown:
                self._put(f"{'':10}{action_line(action)}")
        self._shown = {(action.step, action.command or action.what) for action in some} or {("", "")}

"""``migverify runbook ack``: what waits for the caller is shown, asked about, and done."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import typer

from migverify.cli.console import visible
from migverify.errors import UsageError

if TYPE_CHECKING:
    from migverify.runbook.record.run_record import RunRecord
    from migverify.runbook.run.pending import PendingAction

__all__ = ["Acknowledger"]

_LOOK_SECONDS = 0.5
_DOES = {"call": "calls", "approve": "approves the start of", "start": "starts", "done": "ends", "accept": "accepts"}


class Acknowledger:
    """Does one person's pending actions, each shown before it is done.

    Parameters
    ----------
    person
        As the runbook names them.
    act
        Carries an action out; the text is what shows that a step by hand is done.
    ask
        Whether to ask before each.
    text
        For the first step by hand.
    """

    def __init__(
        self, record: RunRecord, person: str, act: Callable[[PendingAction, str], None], *, ask: bool, text: str
    ) -> None:
        self._record, self._person, self._act, self._ask, self._text = record, person, act, ask, text

    def run(self, step: str, *, follow: bool) -> None:
        """Do the next action, and what waits for the same person at the same step behind it.

        Parameters
        ----------
        follow
            Go on with every later step, until the run is over.

        Raises
        ------
        UsageError
            nothing waits for this person, nobody answers, or an action is refused.
        """
        action = self._next(step)
        if action is None and not follow:
            raise self._nothing(step)
        while action is not None or follow:
            if action is None:
                if self._record.status.over:
                    return
                time.sleep(_LOOK_SECONDS)
            elif not self._do(action):
                return
            same = action.step if action is not None else ""
            action = self._next(same)
            if action is not None and action.verb == "done" and not self._can_say():
                action = None  # what shows it is said by another `ack`, when it is done
            if action is None and follow:
                action = self._next("")

    def _next(self, step: str) -> PendingAction | None:
        from migverify.runbook.run.pending import next_of

        self._record.refresh()
        return next_of(self._record.status, self._record.now(), self._person, step)

    def _can_say(self) -> bool:
        """Tell whether there is a text that shows that a step by hand is done, or somebody to type one."""
        return bool(self._text) or (self._ask and sys.stdin.isatty())

    def _nothing(self, step: str) -> UsageError:
        """Return what is said when ``ack`` has nothing to do: who has, and what is approved apart."""
        from migverify.runbook.run.pending import pending_actions

        if step and step not in self._record.status.steps:
            return UsageError(f"there is no step {step}", hint="`runbook status` names them.")
        some = pending_actions(self._record.status, self._record.now())
        some = tuple(one for one in some if step in ("", one.step) and one.command)
        own = [one for one in some if self._person in one.persons] or list(some)
        hint = "; ".join(f"{one.who}: {one.command}" for one in own[:3]) or "`runbook status` shows how the run is."
        return UsageError(f"nothing{f' at {step}' if step else ''} waits for `ack` by {self._person}", hint=hint)

    def _do(self, action: PendingAction) -> bool:
        for line in self._shown(action):
            typer.echo(visible(line, lines=False))
        text = self._text
        if action.verb == "done" and not text and self._ask and sys.stdin.isatty():
            text = typer.prompt("What shows that it is done?")
        if self._ask:
            if not sys.stdin.isatty():
                raise UsageError("ack asks before it acts, and nobody can answer here", hint="Add --yes.")
            if not typer.confirm("Do it?"):
                return False
        self._act(action, text)
        self._text = ""
        return True

    def _shown(self, action: PendingAction) -> Iterator[str]:
        from migverify.runbook.page.view_steps import evidence_lines, evidence_view

        status = self._record.status
        step, one = status.definition(action.step), status.steps[action.step]
        yield f"{self._person} {_DOES[action.verb]} {step.id}: {step.title}"
        if action.verb == "start" and step.effect is not None:
            yield f"  does: {step.effect.action} {step.effect.arguments}"
            back = step.rollback.instruction if step.rollback is not None else "none"
            yield f"  rollback: {back}"
        elif action.verb in ("start", "done") and step.instruction:
            yield from (f"  {line}" for line in step.instruction.strip().splitlines())
        elif action.verb == "accept":
            yield from (f"  {line}" for piece in one.evidence for line in evidence_lines(evidence_view(piece)))
            yield f"  hash of step and evidence: {action.seen}"

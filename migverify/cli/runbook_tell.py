"""What moves in a run, as lines of a terminal: the clock, the step, what happened, and who acts next."""

from __future__ import annotations

import json
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from migverify.cli.console import visible
from migverify.cli.runbook_lint import clock
from migverify.errors import MigverifyError
from migverify.runbook.events import Event, EventKind, StepState
from migverify.runbook.fold.whole import fold
from migverify.runbook.run.duties import Duty, duties

if TYPE_CHECKING:
    from migverify.runbook.record.run_record import RunRecord
    from migverify.runbook.state import RunStatus

__all__ = ["Teller", "duty_line", "event_lines", "evidence_lines", "moment", "shown_state"]

_K = EventKind
_SECONDS = 0.2
_QUIET = frozenset({_K.ANNOUNCED, _K.DELIVERED})
"""Moves that people hear of elsewhere."""


def moment(wall: float) -> str:
    """Spell a time of the day, UTC."""
    return time.strftime("%H:%M:%SZ", time.gmtime(wall))


def shown_state(state: str) -> str:
    """Return a step's state so that trouble stands out."""
    return state.upper() if state in _LOUD else state


_LOUD = {StepState.FAILED.value, StepState.TIMED_OUT.value, StepState.INCONCLUSIVE.value, StepState.UNKNOWN.value}


def event_lines(before: RunStatus | None, event: Event, after: RunStatus) -> Iterator[str]:
    """Yield what an event says to a reader: no line, or one, and more only for what went wrong."""
    words = _words(before, event, after)
    if words:
        yield visible(f"{moment(event.wall)}  {event.step or 'run':<12}  {words}", lines=False)
    if event.kind in (_K.FAILED, _K.INCONCLUSIVE, _K.TIMED_OUT, _K.ROLLBACK_VERIFIED):
        for told in event.data.get("checks", ()):
            if told.get("state") != "pass" and str(told.get("text")) not in str(event.data.get("reason", "")):
                yield visible(f"{'':11}{'':13} {told.get('action')}: {told.get('state')}: {told.get('text')}",
                              lines=False)  # fmt: skip


def _words(before: RunStatus | None, event: Event, after: RunStatus) -> str:
    if event.kind in _QUIET or event.data.get("effect") is False:
        return ""
    if event.kind in (_K.ACCEPTED, _K.EVIDENCE):
        return _looked(event, after)
    if event.kind is _K.GUARD:
        told = before.guards.get(str(event.data["guard"])) if before is not None else None
        if told is not None and told.state == event.data["state"]:
            return ""  # the same as before, written down from time to time
        return f"guard {event.data['guard']}: {shown(str(event.data['state']))}: {event.data.get('text', '')}"
    if event.kind is _K.LEASE:
        return _lease(event)
    made = _SAY.get(event.kind)
    return made(event, event.data) if made is not None else f"{event.kind.value} by {event.actor}"


def shown(state: str) -> str:
    """Return a guard's or check's state so that trouble stands out."""
    return state if state == "pass" else state.upper()


def _by(event: Event) -> str:
    return f"by {event.actor}"


def _why(data: Mapping[str, Any]) -> str:
    return f": {data['reason']}" if data.get("reason") else ""


def _what(data: Mapping[str, Any]) -> str:
    arguments = data.get("arguments") or {}
    if isinstance(arguments.get("argv"), list):
        return shlex.join(str(one) for one in arguments["argv"])
    return f"{data.get('action', '')} {json.dumps(arguments, ensure_ascii=False) if arguments else ''}".strip()


def _looked(event: Event, after: RunStatus) -> str:
    one = after.steps[event.step]
    if event.data.get("dry"):
        return f"dry: {_dry(event.data)}"
    if event.kind is _K.EVIDENCE and not event.data.get("complete"):
        return f"evidence {_by(event)}: {event.data.get('text', '')}"
    span = f" in {clock(one.active.seconds)}" if one.active is not None else ""
    state = f"{shown_state(one.state.value)}{span}"
    if event.kind is _K.ACCEPTED:
        return f"accepted {_by(event)}: {state}"
    checks = len(event.data.get("checks", ()))
    passed = f"{checks} check{'s pass' if checks > 1 else ' passes'}: " if checks else ""
    return f"{passed}{state}"


def _dry(data: Mapping[str, Any]) -> str:
    checks, would = data.get("checks", ()), data.get("would")
    bad = sum(told.get("state") != "pass" for told in checks)
    said = [f"would do {_what(would)}"] if would else []
    said += [str(data["problems"])] if data.get("problems") else []
    said += [f"{bad} of {len(checks)} checks would not pass now"] if checks else []
    return "; ".join(said) or "nothing to do, nothing to ask"


def _lease(event: Event) -> str:
    if event.data.get("released"):
        return "nobody drives the run now"
    who = f"{event.data.get('person', event.actor)} on {event.data.get('host', '?')}"
    if event.data.get("reason"):
        return f"TAKEN OVER: driven by {who}{_why(event.data)} ({event.data.get('gone', '')})"
    return f"driven by {who}"


def _approved(event: Event, data: Mapping[str, Any]) -> str:
    signed = ", signed" if data.get("signature") else ""
    if data["of"] == "start":
        return f"start approved {_by(event)}{signed}"
    answer = f" ({data['answer']})" if data.get("answer") else ""
    return f"{event.actor} says {data['of']}{answer}{_why(data)}{signed}: one more person has to"


def _pair(data: Mapping[str, Any]) -> str:
    return " and ".join(str(one) for one in data.get("by", ()))


_SAY: dict[EventKind, Callable[[Event, Mapping[str, Any]], str]] = {
    _K.RUN_STARTED: lambda e, d: f"{str(d['kind']).upper()} of {d.get('id')} in {d.get('environment')} begun {_by(e)}",
    _K.RUN_ENDED: lambda _e, d: f"{str(d['state']).upper()}{_why(d)}",
    _K.CALLED: lambda e, _d: f"called {_by(e)}",
    _K.APPROVED: _approved,
    _K.STARTED: lambda e, _d: f"started {_by(e)}",
    _K.INTENT: lambda _e, d: f"does {_what(d)}",
    _K.EFFECT: lambda e, d: f"done {_by(e)}: {d.get('text', '')}" if d.get("manual") else str(d.get("text", "done")),
    _K.REJECTED: lambda e, d: f"REJECTED {_by(e)}{_why(d)}",
    _K.FAILED: lambda _e, d: f"FAILED{_why(d)}",
    _K.TIMED_OUT: lambda _e, d: f"TIMED OUT{_why(d)}",
    _K.INCONCLUSIVE: lambda _e, d: f"INCONCLUSIVE{_why(d)}",
    _K.UNKNOWN: lambda _e, d: f"UNKNOWN{_why(d)}",
    _K.RECONCILED: lambda _e, d: f"its effect {'happened' if d['happened'] else 'did not happen'}, say"
                                 f"{'s its probe' if d.get('how') == 'probe' else f' {_pair(d)}'}{_why(d)}",
    _K.RETRIED: lambda e, d: f"attempt {e.attempt}: {d.get('to')}{_why(d)}",
    _K.WAIVED: lambda _e, d: f"WAIVED by {_pair(d)}{_why(d)}",
    _K.HELD: lambda _e, d: f"HELD{_why(d)}",
    _K.PROMOTED: lambda e, d: f"{d.get('role')} is {d.get('person')} from now on, {_by(e)}{_why(d)}",
    _K.RESUMED: lambda e, d: f"goes on, says {_pair(d) or e.actor}{_why(d)}",
    _K.WENT: lambda _e, d: f"goes to {d.get('to')}{_why(d)}",
    _K.ROLLBACK_ORDERED: lambda e, d: f"ROLLBACK of {', '.join(d['steps'])} {_by(e)}{_why(d)}",
    _K.ROLLBACK_INTENT: lambda _e, d: "is to be taken back by hand" if d.get("manual") else f"takes back: {_what(d)}",
    _K.ROLLBACK_EFFECT: lambda _e, d: "taken back, not verified yet" if d.get("ok") else f"NOT TAKEN BACK{_why(d)}",
    _K.ROLLBACK_VERIFIED: lambda _e, d: "taken back, verified" if d.get("ok") else f"TAKEN BACK, NOT VERIFIED{_why(d)}",
    _K.DELIVERY_FAILED: lambda _e, d: f"announcement to {d.get('sink')} not delivered (try {d.get('tries')})"
                                      f"{', GIVEN UP' if d.get('given_up') else ''}{_why(d)}",
    _K.HEAD: lambda _e, d: f"journal's head {str(d.get('sha', ''))[:12]} announced",
    _K.NOTE: lambda _e, d: f"{d['alarm']}: {d.get('text', '')}" if d.get("alarm") else str(d.get("text", "")),
}  # fmt: skip


def evidence_lines(told: Mapping[str, Any]) -> Iterator[str]:
    """Yield one piece of evidence as lines for a reviewer: text, checks with their values, facts, what was printed."""
    text = told.get("text") or told.get("reason") or ""
    if "happened" in told:
        yield f"its effect {'happened' if told['happened'] else 'did not happen'}: {text}"
    elif text:
        yield str(text)
    for check in told.get("checks", ()):
        value = "" if check.get("value") is None else f" [{check['value']}]"
        yield f"{check.get('action')}: {shown(str(check.get('state')))}{value}: {check.get('text')}"
        yield from (f"    {line}" for line in _facts(check.get("evidence") or {}))
    yield from _facts(told.get("evidence") or {})


def _facts(facts: Mapping[str, Any]) -> Iterator[str]:
    for name, value in facts.items():
        if name in ("stdout", "stderr"):
            lines = str(value).rstrip().splitlines()
            yield from (f"{name}: {line}" for line in lines[-20:])
        elif name == "argv":
            yield f"$ {shlex.join(str(one) for one in value)}"
        elif name not in ("stdout_bytes", "stderr_bytes"):
            yield f"{name}: {value if isinstance(value, str | int | float) else json.dumps(value, ensure_ascii=False)}"


def duty_line(duty: Duty) -> str:
    """Return a duty as one line: who, the command to type, and of several ways what each one means."""
    if not duty.command:
        return f"-> {duty.who}: {duty.what}"
    words = f"   # {duty.what}" if duty.choice or duty.several > 1 else ""
    return f"{'or' if duty.choice else '->'} {duty.who}: {duty.command}{words}"


class Teller:
    """Follows a run in a thread and prints what moves, and whatever people have to do that they had not before.

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
        self._told: set[tuple[str, str]] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="teller", daemon=True)
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
            self.problem = error  # the run goes on without being told here; the caller says so

    def _look(self) -> None:
        moved = False
        for event in self._record.journal.new():
            before, after = self._status, fold((event,), self._status)
            if after is None:
                continue
            self._status, moved = after, True
            for line in event_lines(before, event, after):
                self._put(line)
        if moved or not self._told:
            self._next()

    def _next(self) -> None:
        some = duties(self._status, self._record.now(), self._suffix)
        # The executor is this program: that nobody drives the run is for `status` to say.
        some = tuple(one for one in some if one.step or self._status.executor)
        for duty in some:
            key = (duty.step, duty.command or duty.what)
            if key not in self._told:
                self._put(f"{'':11}{duty_line(duty)}")
        self._told = {(duty.step, duty.command or duty.what) for duty in some} or {("", "")}

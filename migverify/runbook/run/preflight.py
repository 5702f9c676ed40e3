"""What can be known before a run: every part that would stop it later, asked now. Nothing is changed.

Each item has a state of its own. ``warn`` and ``skipped`` are said and do not count; an answer that is missing is
``inconclusive``, never a pass.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import sys
import threading
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migverify.runbook.actions.action import Context, Registry, ask
from migverify.runbook.announce.sinks import Message, SinkError, open_sink, sink_problems
from migverify.runbook.cast import make_cast
from migverify.runbook.conditions import rollback_rules
from migverify.runbook.definition.findings import LintFinding
from migverify.runbook.graph import graph_of, reached
from migverify.runbook.history.readiness import Readiness
from migverify.runbook.kinds import RunKind, StepKind
from migverify.runbook.model import Check, Effect, Guard, Runbook, Sink, Step
from migverify.runbook.run.working import seconds_for
from migverify.runbook.state import RunStatus

__all__ = [
    "Item", "Preflight", "Question", "as_json", "asked", "linted", "people_of", "programs_of", "questions_of",
    "readiness_of", "room_of", "runs_of", "sinks_of", "variables_of", "verdict_of_items", "window_of",
]  # fmt: skip

AT_ONCE = 4
"""Checks that are asked side by side."""
CONNECT_SECONDS = 3.0
_ACTING = frozenset({StepKind.MANUAL, StepKind.COMMAND, StepKind.SQL, StepKind.TRAFFIC, StepKind.CHAOS})
_ASKING = frozenset({StepKind.CHECK, StepKind.GATE})


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that was looked at: ``state`` is ``pass``, ``warn``, ``fail``, ``inconclusive`` or ``skipped``."""

    part: str
    name: str
    state: str
    text: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Preflight:
    """All items, and the verdict: ``MATCH``, ``MISMATCH`` or ``INCONCLUSIVE``."""

    verdict: str
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A check to be asked now. ``later``: it need not pass yet, but has to have an answer."""

    part: str
    name: str
    check: Check
    later: str = ""


def verdict_of_items(items: Sequence[Item]) -> str:
    """Return ``MISMATCH`` over ``INCONCLUSIVE`` over ``MATCH``; no items at all are inconclusive."""
    states = {item.state for item in items}
    if "fail" in states:
        return "MISMATCH"
    return "MATCH" if "pass" in states and "inconclusive" not in states else "INCONCLUSIVE"


def linted(findings: Iterable[LintFinding]) -> Iterator[Item]:
    """Yield what lint says, refusals as failures."""
    some = list(findings)
    for one in some:
        state = "fail" if one.refused else "warn"
        yield Item("lint", f"{one.place} {one.rule}", state, one.text, one.hint)
    if not any(one.refused for one in some):
        yield Item("lint", "runbook", "pass", "nothing is refused")


# -- people -----------------------------------------------------------------------------------------------------------


def people_of(runbook: Runbook, kind: RunKind) -> Iterator[Item]:
    """Yield for each role of this kind of run whether somebody plays it, and who else could."""
    cast = make_cast(runbook, kind)
    keys = {name: person.ssh_key for name, person in runbook.people.items()}
    for role, held in cast.declared.items():
        if not held:
            yield Item("people", role, "fail", "nobody plays it", "Name a person under `roles`.")
        elif len(held) < 2:
            yield Item("people", role, "warn", f"{held[0]}, without a backup", "Name a backup: people are ill, too.")
        else:
            yield Item("people", role, "pass", f"{held[0]}, backup {', '.join(held[1:])}")
        for person in held if runbook.policy.signed_approvals else ():
            if not keys.get(person):
                yield Item("people", person, "fail", "approvals are signed, and there is no ssh_key of this person")
    if runbook.policy.signed_approvals and shutil.which("ssh-keygen") is None:
        yield Item("people", "ssh-keygen", "fail", "approvals are signed, and this machine has no ssh-keygen",
                   "Install the OpenSSH client.")  # fmt: skip


def room_of(path: Path) -> Item:
    """Return whether runs can be kept in a folder; it is made with the first run."""
    there = path.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        return Item("room", str(path), "fail", f"{there} is no folder", "Name another room with --runs.")
    if not os.access(there, os.W_OK | os.X_OK):
        return Item("room", str(path), "fail", f"{there} cannot be written by this user")
    return Item("room", str(path), "pass", "can be written")


def runs_of(open_runs: Sequence[str], last: RunStatus | None) -> Iterator[Item]:
    """Yield what earlier runs say: those that are not over, and persons who shared a login in the last one."""
    from migverify.runbook.people import shared_logins

    for run in open_runs:
        yield Item("runs", run, "warn", "is not over", "End it, or name the run with --run in every command.")
    for login, some in (shared_logins(last) if last is not None else {}).items():
        text = f"in the last run {', '.join(some)} acted from one login: four eyes may have been two"
        yield Item("people", login, "warn", text, "Have each person act from a login of their own, or sign approvals.")


# -- what it would run ------------------------------------------------------------------------------------------------


def _steps(runbook: Runbook, kind: RunKind) -> list[Step]:
    away = graph_of(runbook, kind).not_applicable
    return [step for step in runbook.steps if step.id not in away]


def _uses(runbook: Runbook, kind: RunKind) -> Iterator[tuple[str, Effect | Check]]:
    """Yield everything that a run could ask for, with the place it is for."""
    for step in _steps(runbook, kind):
        back = step.rollback
        some: list[Effect | Check | None] = [step.effect, *step.expect, step.reconcile]
        if back is not None:
            some += [back.effect, *back.verify]
        yield from ((step.id, one) for one in some if one is not None)
    for guard in (*runbook.guards, *rollback_rules(runbook)):
        yield f"guard {guard.id}", guard


def programs_of(runbook: Runbook, kind: RunKind) -> Iterator[Item]:
    """Yield for each program of a command whether it is there, and may be run by this user."""
    users: dict[tuple[str, str, str], list[str]] = {}
    for who, use in _uses(runbook, kind):
        argv = use.arguments.get("argv")
        if isinstance(argv, list | tuple) and argv:
            env = use.arguments.get("env")
            path = str(env.get("PATH", "")) if isinstance(env, Mapping) else ""
            users.setdefault((str(argv[0]), str(use.arguments.get("cwd") or ""), path), []).append(who)
    for (program, cwd, path), places in users.items():
        found, why = _program(program, cwd, path)
        needed = f"for {', '.join(dict.fromkeys(places))}"
        yield Item("programs", program, "fail" if why else "pass", f"{why or found} ({needed})",
                   "Install it, or mend the runbook." if why else "")  # fmt: skip


def _program(program: str, cwd: str, path: str) -> tuple[str, str]:
    if cwd and not Path(cwd).is_dir():
        return "", f"its working directory {cwd} is not there"
    if os.sep not in program:
        found = shutil.which(program, path=path or None)
        return (found, "") if found else ("", "is not on the PATH of this process")
    place = Path(cwd or ".") / program
    if not place.is_file():
        return "", f"{place} is not there"
    return (str(place), "") if os.access(place, os.X_OK) else ("", f"{place} may not be run by this user")


def variables_of(runbook: Runbook, kind: RunKind) -> Iterator[Item]:
    """Yield for each environment variable that an action names whether it is set; its value is not looked at."""
    wanted: dict[str, list[str]] = {}
    for who, use in _uses(runbook, kind):
        for key, value in use.arguments.items():
            names = value if key == "secrets" and isinstance(value, list | tuple) else ()
            if key.endswith("_env") and isinstance(value, str):
                names = (value,)
            for name in names:
                wanted.setdefault(str(name), []).append(who)
    for name, places in wanted.items():
        there = name in os.environ
        text = f"{'is' if there else 'is not'} set (for {', '.join(dict.fromkeys(places))})"
        yield Item("variables", name, "pass" if there else "fail", text)


# -- what can be asked now --------------------------------------------------------------------------------------------


def questions_of(runbook: Runbook, kind: RunKind, *, everything: bool = False) -> Iterator[Question]:
    """Yield the checks that make sense now: guards, and steps that ask before anything acts.

    Parameters
    ----------
    everything
        Also those of steps behind one that acts: they have to have an answer, and need not pass yet.
    """
    steps = _steps(runbook, kind)
    first = steps[0].phase if steps else ""
    for guard in (*runbook.guards, *rollback_rules(runbook)):
        yield Question("guards", guard.id, guard, "" if _soon(guard, first) else _when(guard))
    acted = _behind_an_act(runbook, kind)
    steady = runbook.case.steps.get("steady") if runbook.case is not None else None
    for step in steps:
        later = "" if step.id == steady or step.id not in acted else "behind a step that acts"
        if (step.kind in _ASKING or step.id == steady) and (everything or not later):
            for check in step.expect:
                yield Question("checks", step.id, check, later)


def _soon(guard: Guard, first: str) -> bool:
    return "*" in guard.armed_in or first in guard.armed_in


def _when(guard: Guard) -> str:
    phases = [phase for phase in guard.armed_in if phase.isprintable()]
    return f"armed in {', '.join(phases)}" if phases else "armed while something could be taken back"


def _behind_an_act(runbook: Runbook, kind: RunKind) -> set[str]:
    """Return the steps that wait for one that acts, and those that act."""
    graph = graph_of(runbook, kind)
    acting = {step.id for step in runbook.steps if step.kind in _ACTING and step.id not in graph.not_applicable}
    return acting | reached(acting, graph.dependents)


def asked(questions: Sequence[Question], registry: Registry, config: Path | None) -> list[Item]:
    """Ask each check once, as a guard would; ``for`` is not waited for."""

    def answer(question: Question) -> Item:
        check = question.check
        context = Context("preflight", question.name, 0, 0, seconds_for(check), threading.Event(), None, config)
        result = ask(registry, check, context)
        state, text = result.state, f"{result.action}: {result.text}".rstrip(": ")
        if state == "fail" and question.later:
            state, text = "warn", f"{text} ({question.later})"
        return Item(question.part, question.name, state, text)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(answer, questions))


# -- sinks, window, readiness -----------------------------------------------------------------------------------------


def sinks_of(sinks: Iterable[Sink], run: str, now: float, *, announce: bool) -> Iterator[Item]:
    """Yield for each sink whether an announcement would get through.

    Parameters
    ----------
    announce
        Send a test message; without, a webhook's host is connected to, and nothing is sent.
    """
    for sink in sinks:
        problems = sink_problems(sink) or _gone_program(sink)
        if problems:
            yield from (Item("sinks", sink.name, "fail", one.partition(": ")[2] or one) for one in problems)
        elif announce:
            yield _sent(sink, run, now)
        elif sink.kind == "webhook":
            yield _connected(sink)
        else:
            yield Item("sinks", sink.name, "pass", f"{sink.kind}; nothing was sent")


def _gone_program(sink: Sink) -> list[str]:
    if sink.kind != "command":
        return []
    argv = sink.arguments.get("argv") or shlex.split(str(sink.arguments["run"]))
    _, why = _program(str(argv[0]), "", "")
    return [f"sink {sink.name}: {argv[0]} {why}"] if why else []


def _sent(sink: Sink, run: str, now: float) -> Item:
    text = f"PREFLIGHT of {run}: a test message, nothing begins"
    try:
        open_sink(sink, stdout=sys.stderr).send(
            Message(f"preflight/{int(now)}", "preflight", "", "test", text, now), threading.Event()
        )
    except SinkError as error:
        return Item("sinks", sink.name, "fail", f"the test message did not get through: {error.reason}")
    return Item("sinks", sink.name, "pass", "a test message was delivered")


def _connected(sink: Sink) -> Item:
    parts = urllib.parse.urlsplit(os.environ[str(sink.arguments["url_env"])])
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), CONNECT_SECONDS).close()
    except OSError as error:
        why = error.strerror or type(error).__name__
        return Item("sinks", sink.name, "fail", f"its host does not answer: {why}")
    return Item("sinks", sink.name, "pass", "its host answers; nothing was sent (--announce sends a test)")


def window_of(runbook: Runbook, kind: RunKind, now: float) -> Iterator[Item]:
    """Yield whether the window of a live run is still to come, open, or closed for good."""
    window = runbook.window
    if kind is not RunKind.LIVE or window is None:
        return
    if now < window.opens:
        yield Item("window", "opens", "warn", f"in {_span(window.opens - now)}; until then the run is held")
    elif now >= window.closes:
        text = f"closed {_span(now - window.closes)} ago"
        yield Item("window", "closes", "fail", text, "Give the runbook the window of the night.")
    else:
        yield Item("window", "is open", "pass", f"for {_span(window.closes - now)} more")


def _span(seconds: float) -> str:
    hours, minutes = int(seconds) // 3600, int(seconds) // 60 % 60
    return f"{hours // 24} d {hours % 24} h" if hours >= 24 else f"{hours} h {minutes} min"


_READY = {"ok": "pass", "missing": "fail", "unknown": "inconclusive", "not asked": "skipped",
          "weaker": "warn"}  # fmt: skip


def readiness_of(found: Readiness) -> Iterator[Item]:
    """Yield the conditions that the policy sets before a live run."""
    for one in found.conditions:
        text = "; ".join(one.reasons) or one.found
        yield Item("readiness", one.id, _READY.get(one.state, "inconclusive"), text, one.do)


def as_json(found: Preflight) -> dict[str, Any]:
    """Return a preflight as JSON."""
    from dataclasses import asdict

    return asdict(found)

"""Drives a run: carries out what people started, asks what shows that it worked, watches clocks and guards.

One thread reads and writes the journal; effects, checks and guards have threads of their own. Nothing is remembered
that the journal does not hold, so an executor that is gone is replaced by one that folds the journal: what was under
way is UNKNOWN then, and is decided by its probe or by two persons. An effect begins only after its intent is on the
disk, under the newest epoch, with the lease held, and with every armed guard passing.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from migverify.errors import FencedError, JournalError, MigverifyError, StoreError
from migverify.runbook.actions.action import ActionKind, ActionResult, CheckOutcome, Context, Outcome, Registry
from migverify.runbook.actions.statements import end_statements
from migverify.runbook.announce.outbox import Outbox
from migverify.runbook.announce.sinks import open_sink
from migverify.runbook.clock import Moment
from migverify.runbook.definition.forecast import NO_DRILLS, Drills
from migverify.runbook.definition.hashing import changed_scripts
from migverify.runbook.events import Event, EventKind, RollbackState, RunState, StepState
from migverify.runbook.kinds import RunKind, StepKind
from migverify.runbook.model import Check, Effect, Step
from migverify.runbook.record.chain import Draft
from migverify.runbook.record.lease import RunLease
from migverify.runbook.record.process_lock import EffectFiles, at_work, process_lock, statements_of
from migverify.runbook.record.run_record import RunRecord
from migverify.runbook.run import machine
from migverify.runbook.run.effect_process import Carrier, in_own_process
from migverify.runbook.run.failures import FailureHandling
from migverify.runbook.run.undoing import Undoing
from migverify.runbook.run.watching import Readiness, Watching
from migverify.runbook.run.working import Bench, Key, ask_all, seconds_for, verdict_of
from migverify.runbook.state import RunStatus, StepStatus, between

__all__ = ["Executor"]

_K = EventKind
_WITHOUT_EXPECT = frozenset({StepKind.MANUAL, StepKind.DECISION, StepKind.WAIT, StepKind.ANNOUNCE})
_NEEDS_EFFECT = frozenset({StepKind.COMMAND, StepKind.SQL, StepKind.TRAFFIC, StepKind.CHAOS})


class Executor:
    """Carries a run out. One for each process; not shared by threads.

    Parameters
    ----------
    lease
        The lease of the run, taken (``lease.take``).
    config
        Path of ``migverify.yaml``, for actions that need endpoints.
    pause
        Seconds between two looks at the journal.
    readiness
        Tells whether a runbook may be run live. Only live runs ask; None, or no answer, holds them at their beginning.
    drills
        What earlier drills say: every announcement names which rehearsal this is, and forecasts by them.
    carry
        Carries effects out; tests whose actions change their own memory have them done in this process.
    """

    def __init__(
        self, record: RunRecord, registry: Registry, lease: RunLease, *, config: Path | None = None, pause: float = 0.2,
        readiness: Readiness | None = None, drills: Drills = NO_DRILLS, carry: Carrier = in_own_process,
    ) -> None:  # fmt: skip
        self.record, self.registry, self.lease, self._carry = record, registry, lease, carry
        self.bench = Bench()
        self.trouble = ""  # why the store does not answer
        self._config, self._pause = config, pause
        self.watching = Watching(self, readiness)
        self._undoing, self.failures = Undoing(self), FailureHandling(self)
        self.outbox = Outbox(
            record, lease, [open_sink(one) for one in record.status.runbook.sinks.values()], drills=drills
        )

    @property
    def status(self) -> RunStatus:
        """Where the run stood at the last look."""
        return self.record.status

    def run(self, stop: threading.Event | None = None) -> RunStatus:
        """Drive the run to its end, or until ``stop`` is set and nothing is under way.

        Raises
        ------
        FencedError
            another executor took the run over; programs that were started go on, and are its to decide about.
        """
        self.lease.begin()
        self.watching.begin()
        try:
            self.recover()
            while not self.status.over:
                if stop is not None and stop.is_set() and not len(self.bench):
                    break
                if not self._round():
                    time.sleep(self._pause)
        finally:
            self.watching.end()
            try:
                self.outbox.end()
            finally:  # a second Ctrl-C ends the waiting for a channel, and gives the run free all the same
                # Work that is under way keeps the lease from being given free: the next executor has to take it over.
                self.lease.end(self.record if not len(self.bench) and not self._fenced() else None)
        return self.status

    def _round(self) -> bool:
        """Look once at everything, and wait while the store does not answer: for as long as the lease lives."""
        try:
            if self.trouble:
                self.recover()  # an intent whose writing was in doubt
                self.write(_K.NOTE, alarm="store", text=f"the store did not answer: {self.trouble}")
                self.trouble = ""
            moved = self.tick()
            self.outbox.tick()
        except (FencedError, JournalError):
            raise
        except StoreError as error:
            self.trouble = error.message
            self.lease.check()
            return False
        return moved

    def _fenced(self) -> bool:
        try:
            self.lease.check()
            self.record.refresh()
        except MigverifyError:
            return True
        return self.status.epoch != self.lease.epoch

    def recover(self) -> None:
        """Say of every effect that was under way when the last executor went that nobody knows about it."""
        self.record.refresh()
        for id_ in sorted(self.status.busy):
            one = self.status.steps[id_]
            if (
                one.state is StepState.RUNNING
                and one.intent
                and not self.status.definition(id_).by_hand
                and not self.bench.of(id_)
            ):
                self.write(_K.UNKNOWN, id_, reason="the executor went while the effect was under way")

    def tick(self) -> bool:
        """Look once at everything; returns whether anything moved.

        Raises
        ------
        FencedError
            the lease is lost.
        """
        before = self.status.seq
        self.lease.check()
        self.record.refresh()
        if self.status.over:
            return True
        results = self.bench.results()
        for number, (key, result) in enumerate(results):
            try:
                self._take(key, result)
            except StoreError:
                self.bench.give_back(results[number:])  # what was done is not forgotten because a store is away
                raise
            self.watching.forget(key)
        self.watching.look()
        if self.status.order is not None:
            self._undoing.go_on()
        elif not self.status.over:
            self._go_on()
        return self.status.seq != before

    # -- writing ------------------------------------------------------------------------------------------------

    def write(self, kind: EventKind, step: str = "", **data: Any) -> list[Event]:
        """Append one event as the executor.

        Raises
        ------
        FencedError
            another epoch has begun.
        JournalError
            the event cannot happen any more.
        """
        return self._append(lambda _status: True, kind, step, data)

    def write_if(self, holds: Callable[[RunStatus], bool], kind: EventKind, step: str = "", **data: Any) -> bool:
        """Append one event as the executor if something still holds when the journal is locked; returns whether.

        Between the last look and the lock a person may have held the run, or rolled something back.
        """
        return bool(self._append(holds, kind, step, data))

    def _append(
        self, holds: Callable[[RunStatus], bool], kind: EventKind, step: str, data: dict[str, Any]
    ) -> list[Event]:
        def decide(status: RunStatus, _now: Moment) -> list[Draft]:
            if not holds(status):
                return []
            attempt = (status.steps[step].attempt if step else 0) + (kind is _K.RETRIED)
            return [Draft(kind, self.lease.executor, "executor", step, attempt, data)]

        return self.record.write(decide, epoch=self.lease.epoch)

    def context(self, step: str, attempt: int, timeout: float, canceled: threading.Event | None = None) -> Context:
        """Return what an action may know; a guard has no step, and is never canceled."""
        run, canceled = self.record.journal.run, canceled or threading.Event()
        return Context(run, step, attempt, self.lease.epoch, timeout, canceled, self.record.folder, self._config)

    # -- steps --------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        status = self.status
        if status.kind is RunKind.DRY:
            self._dry()
        self._start_gates()
        for id_ in sorted(self.status.busy):
            one = self.status.steps[id_]
            if one.rollback is RollbackState.RUNNING:
                self._undoing.verify_lost(one)
            elif one.state is StepState.RUNNING and not self.status.definition(id_).by_hand:
                self._begin(one)
            elif one.state is StepState.VERIFYING:
                self._verify(one)
        for id_ in [one.id for one in self.status.steps.values() if one.state in _BAD and not one.handled]:
            self.failures.handle(id_)
        if not self.status.undecided and not self.status.busy and self.status.state is RunState.RUNNING:
            end = RunState.DRY if status.kind is RunKind.DRY else RunState.COMPLETED
            self.write_if(
                lambda now: not now.undecided and now.state is RunState.RUNNING, _K.RUN_ENDED, state=end.value
            )

    def _start_gates(self) -> None:
        """Call and start the gates that only read, while writes are stopped: nobody is waited for."""
        status = self.status
        if status.write_stop_since is None or status.state is not RunState.RUNNING:
            return
        for id_ in sorted(status.graph.self_starting):
            if self.status.steps[id_].state is StepState.READY:
                self.record.write(partial(self._started_by_itself, step=id_), epoch=self.lease.epoch)

    def _started_by_itself(self, status: RunStatus, now: Moment, step: str) -> Sequence[Draft]:
        return machine.drafts_of(machine.begin_by_itself(status, self.lease.executor, step, now))

    def _begin(self, one: StepStatus) -> None:
        step, key = self.status.definition(one.id), Key(one.id, one.attempt, "effect")
        if one.intent or self.bench.has(key) or self.status.state is not RunState.RUNNING:
            return
        if step.effect is None:
            self._begin_nothing(step)
            return
        if self.watching.waits_for(step.phase):
            return
        effect, problems = step.effect, self._problems(step.effect) or changed_scripts(step)
        if problems:
            self.write(_K.FAILED, one.id, reason=problems)
            return
        changes = self.registry.find(effect.action).kind is ActionKind.EFFECT
        if changes:
            facts = {"action": effect.action, "arguments": effect.arguments, "timeout": effect.timeout}

            def still(now: RunStatus) -> bool:
                return now.state is RunState.RUNNING and now.steps[one.id] == one

            if not self.write_if(still, _K.INTENT, one.id, **facts):
                return
        self.bench.begin(key, lambda canceled: self.carry_out(effect, one.id, one.attempt, canceled))

    def _begin_nothing(self, step: Step) -> None:
        if step.kind in _NEEDS_EFFECT:
            self.write(_K.FAILED, step.id, reason=f"a {step.kind.value} step without an effect")
        else:
            self.write(_K.EFFECT, step.id, effect=False, outcome="ok", text="nothing to be done but to look")

    def _problems(self, effect: Effect) -> str:
        if effect.action not in self.registry:
            return f"no action is named {effect.action}"
        return "; ".join(self.registry.find(effect.action).problems(effect.arguments))

    def carry_out(self, effect: Effect, step: str, attempt: int, canceled: threading.Event) -> ActionResult:
        """Do it, from the thread of the work. What changes nothing needs no process of its own."""
        files = EffectFiles(self.record.folder, step, attempt)
        with process_lock(files) as handle:
            self.lease.check()
            context = replace(
                self.context(step, attempt, effect.timeout, canceled), handle=handle, mark=files.mark,
                record=files.record,
            )  # fmt: skip
            if self.registry.find(effect.action).kind is not ActionKind.EFFECT:
                return self.registry.run(effect.action, effect.arguments, context)
            return self._carry(self.registry, effect, context, self.lease.check)

    def at_work(self, one: StepStatus, attempt: int) -> list[str]:
        """Return what still works at an effect or its undoing here; it is written down when that begins to wait.

        Beyond the effect's own time limit people have to look: the run is held.
        """
        some = at_work(EffectFiles(self.record.folder, one.id, attempt))
        if some and "still running" not in one.alarms:
            text = f"{one.id}: {', '.join(some)} still works at its effect: nothing is concluded before it ends"
            self.write(_K.NOTE, one.id, alarm="still running", text=text)
        elif some and self.status.state is RunState.RUNNING and self._is_over_time(one):
            self.write(_K.HELD, reason=f"{one.id}: {', '.join(some)} still works at its effect, beyond its time limit:"
                       " end it, or have two persons decide")  # fmt: skip
        return some

    def _is_over_time(self, one: StepStatus) -> bool:
        effect = self.status.definition(one.id).effect
        return one.started is not None and between(one.started, self.record.now()).seconds > (
            effect.timeout if effect is not None else 0.0
        )

    def left_on_server(self, effect: Effect | None, step: str, attempt: int, canceled: threading.Event) -> str:
        """Return why a statement of an effect may still run, after it was ended; empty: none does."""
        if effect is None:
            return ""
        try:
            statements = statements_of(EffectFiles(self.record.folder, step, attempt))
            if not statements:
                return ""
            account = self.registry.find(effect.action).account
            if account is None:
                return f"it cannot be known whether its statements still run: {effect.action} does not say where"
            place = account(effect.arguments, self.context(step, attempt, effect.timeout, canceled))
        except MigverifyError as error:
            return f"it cannot be known whether its statements still run: {error.message}"
        return end_statements(place, statements)

    def _verify(self, one: StepStatus) -> None:
        key = Key(one.id, one.attempt, "verify")
        if self.bench.has(key):
            return
        step = self.status.definition(one.id)
        self.ask(key, step.expect, self._limit(step))

    def _limit(self, step: Step) -> float:
        longest = max((3 * check.for_seconds + seconds_for(check) for check in step.expect), default=0.0)
        return max(longest, step.times.maximum or 0.0)

    def ask(
        self, key: Key, checks: tuple[Check, ...], limit: float, *, effect: Effect | None = None, attempt: int = 0,
        if_not: tuple[Check, ...] = (),
    ) -> None:  # fmt: skip
        """Ask checks in a thread.

        Parameters
        ----------
        effect, attempt
            What has to be over first: while a server may still run a statement of it, nothing is asked.
        if_not
            Asked when the others say no.
        """

        def work(canceled: threading.Event) -> list[CheckOutcome] | tuple[list[CheckOutcome], list[CheckOutcome]]:
            def context(check: Check) -> Context:
                return self.context(key.step, key.attempt, seconds_for(check), canceled)

            why = self.left_on_server(effect, key.step, attempt, canceled)
            if why:
                return [CheckOutcome(effect.action if effect is not None else "", "inconclusive", why)]
            answers = ask_all(self.registry, checks, context, canceled, limit)
            more = verdict_of(answers) == "fail" and if_not
            return (answers, ask_all(self.registry, if_not, context, canceled, limit)) if more else answers

        self.bench.begin(key, work)

    def _dry(self) -> None:
        """Ask the checks of ready steps as probes, and go on with any answer: nothing is done in a dry run."""
        for one in [one for one in self.status.steps.values() if one.state is StepState.READY]:
            key = Key(one.id, one.attempt, "dry")
            if not self.bench.has(key):
                self.ask(key, self.status.definition(one.id).expect, 0.0)

    def _dry_over(self, one: StepStatus, answers: list[CheckOutcome]) -> None:
        effect = self.status.definition(one.id).effect
        facts = {"action": effect.action, "arguments": effect.arguments} if effect is not None else None
        problems = self._problems(effect) if effect is not None else ""
        checks = [answer.as_json() for answer in answers]
        self.write(_K.EVIDENCE, one.id, dry=True, would=facts, problems=problems, checks=checks)

    # -- results ------------------------------------------------------------------------------------------------

    def _take(self, key: Key, result: Any) -> None:
        if isinstance(result, FencedError):
            raise result
        if isinstance(result, BaseException):
            words = f"{type(result).__name__}: {result}"
            asked = key.purpose in ("verify", "probe", "undone", "dry")
            result = [CheckOutcome("", "inconclusive", words)] if asked else ActionResult(Outcome.UNKNOWN, words)
        one = self.status.steps[key.step]
        overdue = self.watching.is_overdue(key)
        if key.purpose in ("undo", "undone"):
            self._undoing.take(key, result)
        elif one.attempt != key.attempt:
            return
        elif key.purpose == "effect" and one.state is StepState.RUNNING:
            self._effect_over(one, result, overdue=overdue)
        elif key.purpose == "dry" and one.state is StepState.READY:
            self._dry_over(one, result)
        elif key.purpose == "verify" and one.state is StepState.VERIFYING:
            self._verified(one, result, overdue=overdue)
        elif key.purpose == "probe" and one.state in _BAD:
            answers, undone = result if isinstance(result, tuple) else (result, None)
            self.failures.probed(one, answers, undone)

    def _effect_over(self, one: StepStatus, result: ActionResult, *, overdue: bool) -> None:
        facts = {"outcome": result.outcome.value, "text": result.text, "value": result.value,
                "evidence": result.evidence}  # fmt: skip
        if result.outcome is Outcome.OK:
            self.write(_K.EFFECT, one.id, **facts, effect=one.intent)
            return
        kinds = {Outcome.TIMED_OUT: _K.TIMED_OUT, Outcome.NO_DATA: _K.INCONCLUSIVE}
        kind = _K.TIMED_OUT if overdue else kinds.get(result.outcome, _K.FAILED)
        if result.outcome is Outcome.UNKNOWN and one.intent:
            kind = _K.UNKNOWN
        self.write(kind, one.id, **facts, reason=result.text or result.outcome.value)

    def _verified(self, one: StepStatus, answers: list[CheckOutcome], *, overdue: bool) -> None:
        step, checks = self.status.definition(one.id), [answer.as_json() for answer in answers]
        verdict = verdict_of(answers)
        if not step.expect and step.kind in _WITHOUT_EXPECT:
            verdict = "pass"
        if verdict != "pass":
            bad = next((a for a in answers if a.state == verdict), None)
            reason = f"{bad.action}: {bad.text}" if bad is not None else "the step says not what shows that it worked"
            kind = _K.TIMED_OUT if overdue else _K.FAILED if verdict == "fail" else _K.INCONCLUSIVE
            self.write(kind, one.id, checks=checks, reason=reason)
            return
        span = self.status.active_time(one.id, self.record.now())
        short = step.times.minimum is not None and span is not None and span.seconds < step.times.minimum
        if short and span is not None:
            text = f"{one.id} took {span.seconds:.1f} s, and at least {step.times.minimum:g} s were expected"
            self.write(_K.NOTE, one.id, alarm="short", text=text)
            if step.reviewer is None:
                self.write(_K.INCONCLUSIVE, one.id, checks=checks, reason=f"{text}: nobody reviews it")
                return
        self.write(_K.EVIDENCE, one.id, complete=True, checks=checks)

    def unseen(self, one: StepStatus) -> str:
        """Return the machine on which a program of a step may still run without being seen here; empty: none."""
        return one.host if one.host != socket.gethostname() else ""


_BAD = frozenset({StepState.FAILED, StepState.TIMED_OUT, StepState.INCONCLUSIVE, StepState.UNKNOWN})

"""Reads what a report is made of out of a room: the run, earlier drills, scores, and the check of its journal."""

from __future__ import annotations

from migverify.runbook.clock import Clock, system_clock
from migverify.runbook.history.past import past_runs
from migverify.runbook.history.read import past_run
from migverify.runbook.history.scores import correctness_score, process_score
from migverify.runbook.page.run_report import RunReport, Scores, run_report
from migverify.runbook.page.watch_run import drills_of
from migverify.runbook.record.room import Room

__all__ = ["report_of"]


def report_of(room: Room, run: str, *, clock: Clock = system_clock, verify: bool = True) -> RunReport:
    """Return the report of a run by its id or ``last``.

    Parameters
    ----------
    verify
        Check the journal too: reads it once more.

    Raises
    ------
    UsageError
        there is no such run.
    JournalError
        its journal is damaged: nothing of it is certain, and there is no report.
    """
    status = room.open(run).status
    # Somebody may write on meanwhile: what is reported is what was folded.
    events = [event for event in room.events(status.run) if event.seq <= status.seq]
    drills = drills_of(past_runs(room, status.runbook.id), status)
    own = past_run(events)
    problems = [str(one) for one in room.verify(status.run) if one.fatal] if verify else None
    return run_report(
        status, events, clock.now(), drills.seconds, drill=drills.number, handoff=drills.handoff,
        scores=Scores(process_score(own), correctness_score(own)), problems=problems,
    )  # fmt: skip

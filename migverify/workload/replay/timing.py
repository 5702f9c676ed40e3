"""When the calls of a run were to begin and began, by its run file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from migverify.workload.replay.model import JudgedCall
from migverify.workload.replay.outcomes import unpack
from migverify.workload.replay.pace import Pace
from migverify.workload.replay.runfile import RunFile


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A call that has an outcome; times are microseconds after the beginning.

    ``arrival`` is by the captured clock, ``intended`` by the run's pace, ``begin`` when it was asked. ``waits`` tells
    whether the plan makes it wait for a call of another session.
    """

    session: int
    arrival: int
    intended: int
    waits: bool
    outcome: JudgedCall

    @property
    def begin(self) -> int:
        """When it was asked."""
        return self.intended + self.outcome.lag


def asked_calls(run: RunFile, pace: Pace) -> Iterator[AskedCall]:
    """Yield the calls that have an outcome, session by session, each in its order; some were asked on neither side.

    Raises PlanError: the run file is damaged.
    """
    first = run.db.execute("SELECT due, MIN(sequence) FROM calls").fetchone()[0] or 0
    sql = (
        "SELECT id, session, due, sequence, waits IS NOT NULL, body FROM calls JOIN outcomes ON call = id"
        " WHERE body IS NOT NULL ORDER BY id"
    )
    for index, session, due, sequence, waits, body in run.db.execute(sql):
        outcome = unpack(body, f"{run.folder}: the outcome of call {index}")
        intended = pace.due(due - first, sequence) // 1000
        yield AskedCall(session, due - first, intended, bool(waits), outcome)

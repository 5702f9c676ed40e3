"""Conflicts that a replay met: the errors its journal keeps, and the captured statements they are of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from migverify.errors import UsageError
from migverify.workload.conflict.message import parse
from migverify.workload.conflict.model import Conflict
from migverify.workload.replay.journal import judged, known
from migverify.workload.replay.model import Call, Judged
from migverify.workload.replay.spool import SessionSlice, Spool
from migverify.workload.replay.worker import JOURNAL, PLANNED


def replay_conflicts(folder: Path) -> Iterator[Conflict]:
    """Yield the conflicts of a replay's folder, each with the captured statement and session it is of.

    Raises
    ------
    UsageError
        the folder holds no replay.
    PlanError
        its calls or its journal are damaged.
    """
    if not (folder / JOURNAL).is_dir() or not (folder / PLANNED).is_dir():
        raise UsageError(f"{folder} holds no replay.", hint="Name the folder that `workload replay` wrote.")
    with Spool(folder / PLANNED) as spool:
        sessions = {one.name: one for one in spool.sessions}
        for one in judged(folder / JOURNAL, known(folder / JOURNAL, spool.count)):
            found = _conflict(one)
            if found is not None:
                call = _call(spool, sessions[one.session], one.position)
                yield replace(
                    found, where=f"replay of session {one.session}, position {one.position} ({call.origin})",
                    sql=call.sql.decode("utf-8", "backslashreplace"), user=call.user or "",
                )  # fmt: skip


def _conflict(one: Judged) -> Conflict | None:
    # the target's words; they are cut at a few hundred characters, behind the times and the key
    texts = (each.target for each in one.differences if each.aspect == "error")
    return next((found for text in texts if (found := parse(text)) is not None), None)


def _call(spool: Spool, session: SessionSlice, position: int) -> Call:
    low, high = session.first, session.first + session.count - 1
    while low < high:
        middle = (low + high) // 2
        if spool.read(middle).call.position < position:
            low = middle + 1
        else:
            high = middle
    return spool.read(low).call

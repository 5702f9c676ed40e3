"""One process of a replay: plays its share of the sessions, and stops when told to, or when its parent is gone."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migverify.errors import MigverifyError
from migverify.model import Endpoint, Side
from migverify.workload.replay.board import Board, Counters
from migverify.workload.replay.engine import Engine, Start
from migverify.workload.replay.journal import Journal, known
from migverify.workload.replay.links import EngineOptions, killer, openers
from migverify.workload.replay.lock import among_workers
from migverify.workload.replay.spool import Spool

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

JOURNAL = "journal"
PLANNED = "plan"
BOARD = "board"


@dataclass(frozen=True, slots=True)
class Share:
    """What one worker plays. ``folder`` is the run's; ``worker`` counts from 1, ``sessions`` are numbers of the plan.

    ``endpoints`` by side; the source may be missing. ``secrets`` by name of the endpoint; never shown.
    """

    folder: Path
    worker: int
    attempt: int
    sessions: tuple[int, ...]
    endpoints: Mapping[Side, Endpoint]
    secrets: Mapping[str, str]
    options: EngineOptions
    start: Start

    def __repr__(self) -> str:
        return f"Share({self.folder}, worker {self.worker}, {len(self.sessions)} sessions)"


def play(share: Share, *, parent: int | None = None, ended: bytes | None = None) -> tuple[Counters, str]:
    """Play a share to its end or to a stop; return what was counted and why it stopped.

    Parameters
    ----------
    parent
        The process that must stay alive, None for none: whose parent is gone stops at once.
    ended
        One byte a call, not 0 for those that have an end; None reads the run's journal.
    """
    board = Board(share.folder / BOARD, share.worker - 1)
    done = ended if ended is not None else known(share.folder / JOURNAL, _calls(share.folder)).state

    def stop() -> str:
        if parent is not None and os.getppid() != parent:
            return "the process that started the replay is gone"
        return board.stop_reason()

    with among_workers(share.folder), Spool(share.folder / PLANNED) as spool:
        engine = Engine(
            spool, share.sessions, openers(share.endpoints, share.secrets, share.options),
            Journal(share.folder / JOURNAL, share.worker, share.attempt), board, share.options, share.start,
            ended=lambda index: bool(done[index] & 1), stop=stop, kill=killer(share.endpoints, share.secrets),
        )  # fmt: skip
        try:
            counters = engine.run()
            if engine.stopped:
                board.ask_stop(engine.stopped)
            return counters, engine.stopped
        finally:
            board.close()


def _calls(folder: Path) -> int:
    with Spool(folder / PLANNED) as spool:
        return spool.count


def main(share: Share, parent: int, answer: Connection) -> None:
    """Run as a process of its own; what ended it goes back over ``answer``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent decides
    told: Any
    try:
        told = play(share, parent=parent)[1]
    except MigverifyError as error:
        told = error
    answer.send(told)
    answer.close()

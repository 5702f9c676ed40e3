"""Both directions of one configuration as one view: the newest forward watch, the newest reverse one, the hand-over.

Read from the store and the ledgers alone: no server is asked, and no watch waits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migverify.changes.model import Position
from migverify.changes.positions import shown, shown_timestamp, tso_position
from migverify.config import Config
from migverify.model import RunInfo, StoredKind, Verdict
from migverify.store.results import RUNS_SEARCHED, ResultStore
from migverify.store.run_leases import RunProcess, writer_of
from migverify.tables.last_status import LastStatus
from migverify.tables.run_facts import HAND_OVER, THROUGH, began_at, is_of_endpoints
from migverify.watch.ledger_read import read_state
from migverify.watch.run import DRAIN

if TYPE_CHECKING:
    from migverify.tables.handover import UnreadChanges

SILENT_SECONDS = 60.0
"""A watch keeps its status every second; one that was kept longer ago says nothing of now."""


@dataclass(frozen=True, slots=True)
class WatchView:
    """One watch as it is known now. ``verdict`` holds now, or at its end: one that was killed is INCONCLUSIVE.

    ``state`` is ``alive``, ``ended`` or ``not alive``: killed, or without heartbeats. ``last`` is the status that it
    kept last, None where that is not known here. ``began`` and ``through`` are the places from which on and up to which
    it read changes, as people read them; empty where they are not known. ``since`` is the run that it rests on.
    ``sweep_minutes``: no changefeed is read, each range is compared again within so many minutes.
    """

    run_id: str
    reverse: bool
    state: str
    verdict: Verdict
    reason: str
    last: LastStatus | None
    process: RunProcess | None
    ended: float | None
    began: str
    through: str
    since: str
    sweep_minutes: float | None


@dataclass(frozen=True, slots=True)
class HandOver:
    """What is known of the change from forward to reverse.

    ``unread`` is what the sources' binlogs held behind the end of the forward watch when the reverse watch read them,
    at ``read_at``; None: it has not. ``problems`` are gaps, ``unknown`` what is not proved.
    """

    unread: UnreadChanges | None
    read_at: float | None
    problems: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """MATCH: nothing was unread between the two watches, as of ``read_at``."""
        from migverify.tables.outcome import verdict_of

        return verdict_of(self.problems, self.unknown)


@dataclass(frozen=True, slots=True)
class Directions:
    """Both directions. ``proof`` is the newest reverse watch that was begun to end when it is drained."""

    forward: WatchView | None
    reverse: WatchView | None
    proof: WatchView | None
    hand_over: HandOver | None


def both_directions(
    config: Config, digest: str, store: ResultStore, ledgers: Path, runs: Sequence[RunInfo] | None = None
) -> Directions | None:
    """Return the watches of a configuration in both directions; None where it has none.

    Parameters
    ----------
    runs
        Among which its watches are looked for, the newest first; None: those of the store.

    Raises
    ------
    StoreError
        the store cannot be read.
    """
    watches = [
        run for run in (store.runs(RUNS_SEARCHED) if runs is None else runs)
        if run.kind is StoredKind.TABLES and run.facts.get("watch") and run.plan_hash == digest
        and is_of_endpoints(run, config)
    ]  # fmt: skip
    forward = next((run for run in watches if not run.facts.get("reverse")), None)
    proofs = [run for run in watches if run.facts.get("reverse") and run.facts.get(DRAIN)]
    services = [run for run in watches if run.facts.get("reverse") and not run.facts.get(DRAIN)]
    reverse = _newest_reverse(store, services or proofs, digest, ledgers)
    if forward is None and reverse is None:
        return None
    proof = next((run for run in proofs if reverse is None or run.run_id != reverse.run_id), None)

    def seen(run: RunInfo | None) -> WatchView | None:
        return None if run is None else _watch_view(config, store, run, ledgers / f"watch-{run.run_id}.db")

    hand_over = None
    if forward is not None and reverse is not None:
        hand_over = _hand_over(config, store, forward, reverse, ledgers / f"watch-{reverse.run_id}.db")
    return Directions(seen(forward), seen(reverse), seen(proof), hand_over)


def _newest_reverse(store: ResultStore, watches: Sequence[RunInfo], digest: str, ledgers: Path) -> RunInfo | None:
    if not watches:
        return None
    # With the readers of tables and changefeeds, which a board of many services with forward watches does not need.
    from migverify.tables.loss import best_reverse

    return best_reverse(store, watches, digest, ledgers)


def _watch_view(config: Config, store: ResultStore, run: RunInfo, ledger: Path) -> WatchView:
    process = writer_of(store.database, run.run_id) if run.finished is None else None
    last = LastStatus.of_run(run, ledger)
    reverse = bool(run.facts.get("reverse"))
    state = "ended" if run.finished is not None else "alive" if process and process.is_alive else "not alive"
    verdict, reason = run.verdict, next(iter(map(str, run.facts.get("reasons") or ())), "")
    if state != "ended":
        verdict, reason = _present(run, state, last)
    elif last is not None:
        reason = last.reason
    endpoints = [config.target] if reverse else config.sources
    places = [began_at(store, run, endpoint.name) for endpoint in endpoints]
    began = " ".join(_place(place) for place in places if place is not None)
    sweep = run.facts.get("sweep")
    return WatchView(
        run.run_id, reverse, state, verdict, reason if verdict is not Verdict.MATCH else "", last, process,
        run.finished, began, _through(run, last), str(run.facts.get("since") or ""), float(sweep) if sweep else None,
    )  # fmt: skip


def _present(run: RunInfo, state: str, last: LastStatus | None) -> tuple[Verdict, str]:
    """Return the verdict of a watch that has not ended, and why it is none: what was said long ago is not known now."""
    if state == "not alive":
        flag = " --reverse" if run.facts.get("reverse") else ""
        return Verdict.INCONCLUSIVE, (
            "its process has ended, or sends no heartbeats; "
            f"go on with: migverify tables watch{flag} --resume {run.run_id}"
        )
    if last is None:
        return Verdict.INCONCLUSIVE, "it has not kept a status yet, or its ledger is on another machine"
    if (silent := time.time() - last.at) > SILENT_SECONDS:
        return Verdict.INCONCLUSIVE, f"its last status ({last.verdict}) is {silent:,.0f} seconds old"
    return last.verdict, last.reason


def _place(position: Position) -> str:
    """Return a place as people read it: a timestamp with its time."""
    is_timestamp = position.file == tso_position(0).file
    return shown_timestamp(position.offset) if is_timestamp else shown(position)


def _through(run: RunInfo, last: LastStatus | None) -> str:
    """Return the places up to which a watch read changes."""
    ends = run.facts.get(THROUGH)
    if run.finished is not None and isinstance(ends, Mapping) and ends:
        return " ".join(_place(Position(str(e["file"]), int(e["offset"]), str(e["gtids"]))) for e in ends.values())
    return last.read if last is not None else ""


def _hand_over(config: Config, store: ResultStore, forward: RunInfo, reverse: RunInfo, ledger: Path) -> HandOver:
    from migverify.tables.armed import hand_over_gaps, hand_over_problems, is_proved_anew

    began = began_at(store, reverse, config.target.name)
    if is_proved_anew(store, forward, reverse):
        return HandOver(None, None, (), ())
    unread, read_at = _read_behind(forward, read_state(ledger, HAND_OVER))
    unknown = list(hand_over_gaps(config, forward, began.offset if began is not None else None))
    if unread is None:
        unknown.append(
            f"what was written on the sources behind the end of watch {forward.run_id} is not known here; "
            "migverify tables armed reads it"
        )
    problems = hand_over_problems(config, forward, began.offset if began is not None else None, unread)
    return HandOver(unread, read_at, tuple(problems), tuple(unknown))


def _read_behind(forward: RunInfo, text: str | None) -> tuple[UnreadChanges | None, float | None]:
    """Return what a reverse watch read behind the end of a forward watch, and when.

    A forward watch that went on after that has another end.
    """
    from migverify.tables.handover import UnreadChanges

    try:
        known: Any = json.loads(text) if text else {}
        is_its_end = forward.finished is not None and forward.finished <= float(known.get("at", 0))
        if known.get("forward") == forward.run_id and is_its_end:
            return UnreadChanges(int(known["rows"]), int(known["statements"])), float(known["at"])
    except (ValueError, TypeError, KeyError, AttributeError):
        pass  # of another release
    return None, None

"""Replays of each night's capture, one after the other, and what began to fail in the last of them.

A series is a folder of captures. Which of them were replayed is what the store holds: runs that got to their end and
name the capture. A digest fails in a run when its weight there is ``blocker`` or ``review``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from migverify.errors import UsageError
from migverify.model import RunInfo, StoredKind
from migverify.store.results import ResultStore
from migverify.workload.model import SUMMARY
from migverify.workload.replay.store import read_digests, read_trend, read_whole, write_trend

FAILING = ("blocker", "review")
_RUNS = 100_000
_SHOWN = 30
_LISTED = 200


@dataclass(frozen=True, slots=True)
class Capture:
    """A capture of the series; ``day`` is the UTC day of its first statement, of its folder where that is not known."""

    path: Path
    day: str


@dataclass(frozen=True, slots=True)
class Night:
    """One replay of the series. ``failing`` are digests to (text, aspects)."""

    run_id: str
    capture: str
    day: str
    verdict: str
    statements: int
    failing: Mapping[str, tuple[str, str]]


def captures(folder: Path) -> list[Capture]:
    """Return the captures in a folder, the oldest first; the folder itself may be one.

    Raises UsageError: there is no such folder, a summary in it cannot be read, or it holds no capture.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder", hint="Name the folder that holds the captures.")
    found = sorted(path.parent for path in (*folder.glob(SUMMARY), *folder.glob(f"*/{SUMMARY}")))
    if not found:
        raise UsageError(
            f"{folder} holds no capture", hint="Write one a night: workload capture LOG --out FOLDER/2026-01-31."
        )
    return sorted((_capture(path) for path in found), key=lambda one: (one.day, one.path))


def _capture(path: Path) -> Capture:
    summary = path / SUMMARY
    try:
        first = json.loads(summary.read_text()).get("first")
        at = None if first is None else datetime.fromisoformat(str(first))
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f"{summary} cannot be read: {error}", hint="Capture again, into a new folder.") from error
    moment = datetime.fromtimestamp(summary.stat().st_mtime, UTC) if at is None else at
    return Capture(path.resolve(), moment.date().isoformat())


def nights(store: ResultStore, folder: Path) -> list[Night]:
    """Return the replays of captures in this folder that got to their end, in the order of their days."""
    root = folder.resolve()
    found: dict[str, Night] = {}
    for brief in reversed(store.runs(_RUNS)):
        if brief.finished is None or brief.kind is not StoredKind.REPLAY:
            continue
        info = store.load_run(brief.run_id)
        capture = str(info.plan.get("capture", ""))
        if not capture:
            continue
        if Path(capture) != root and Path(capture).parent != root:
            continue
        night = _night(store, info, capture)
        if night is not None:
            found[capture] = night  # a later replay of the same capture counts
    return sorted(found.values(), key=lambda one: (one.day, one.run_id))


def _night(store: ResultStore, info: RunInfo, capture: str) -> Night | None:
    whole = read_whole(store, info.run_id)
    if whole is None or whole.get("run", {}).get("stopped"):
        return None
    trend = read_trend(store, info.run_id)
    day = str(trend.get("day") or datetime.fromtimestamp(info.started, UTC).date().isoformat())
    return night_of(store, info.run_id, capture, day)


def night_of(store: ResultStore, run_id: str, capture: str, day: str) -> Night:
    """Return a replay that was written as a night of a series."""
    whole = read_whole(store, run_id)
    failing = {
        one.tally.digest: (
            one.tally.text,
            ", ".join(found["aspect"] for found in one.verdict["findings"] if found["weight"] in FAILING),
        )
        for one in read_digests(store, run_id, FAILING)
    }  # fmt: skip
    return Night(
        run_id, capture, day, "INCONCLUSIVE" if whole is None else str(whole["verdict"]),
        0 if whole is None else int(whole["coverage"]["statements"]), failing,
    )  # fmt: skip


def trend(earlier: Sequence[Night], now: Night) -> dict[str, Any]:
    """Return the trend as JSON values.

    ``new`` began to fail in this run, ``gone`` failed in the one before and does not now (whether it was asked again is
    not said by that), ``failing`` are all that fail, each ``since`` the first day of the nights in a row that it fails.
    """
    nights_ = [*(one for one in earlier if one.run_id != now.run_id), now]
    before = nights_[-2] if len(nights_) > 1 else None
    failing = [
        {"digest": digest, "text": text, "aspects": aspects, "since": _since(nights_, digest)}
        for digest, (text, aspects) in sorted(now.failing.items())
    ]
    new = [one for one in failing if before is None or one["digest"] not in before.failing]
    gone = [] if before is None else [
        {"digest": digest, "text": text, "aspects": aspects}
        for digest, (text, aspects) in sorted(before.failing.items()) if digest not in now.failing
    ]  # fmt: skip
    return {
        "day": now.day, "first": before is None,
        "runs": [
            {"run_id": one.run_id, "day": one.day, "verdict": one.verdict, "statements": one.statements,
             "failing": len(one.failing)}
            for one in nights_[-_SHOWN:]
        ],
        "new": new[:_LISTED], "new_count": len(new), "gone": gone[:_LISTED], "gone_count": len(gone),
        "failing": failing[:_LISTED], "failing_count": len(failing),
    }  # fmt: skip


def _since(nights_: Sequence[Night], digest: str) -> str:
    day = nights_[-1].day
    for night in reversed(nights_):
        if digest not in night.failing:
            break
        day = night.day
    return day


def pending(found: Sequence[Capture], done: Sequence[Night]) -> list[Capture]:
    """Return the captures that were not replayed to their end."""
    known = {one.capture for one in done}
    return [one for one in found if str(one.path) not in known]


def record(store: ResultStore, run_id: str, capture: Capture, earlier: Sequence[Night]) -> tuple[Night, dict[str, Any]]:
    """Write the trend of a run that was written; return it as a night, and the trend."""
    now = night_of(store, run_id, str(capture.path), capture.day)
    found = trend(earlier, now)
    write_trend(store, run_id, found)
    return now, found

"""Both directions of one configuration side by side, as JSON and as text."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from migverify.figures import amount, utc

if TYPE_CHECKING:
    from migverify.tables.directions import Directions, HandOver, WatchView

_NAME, _CELL = 11, 56
"""Characters of the names at the left, and of each direction."""
_WORDS = {
    "MATCH": "nothing was unread",
    "MISMATCH": "something is between the two watches",
    "INCONCLUSIVE": "not proved that nothing is unread",
}


# --- JSON --------------------------------------------------------------------------------------------------------


def directions_as_dict(found: Directions) -> dict[str, Any]:
    """Return both directions as JSON; times are Unix seconds, what is not known is null."""
    watches = {"forward": found.forward, "reverse": found.reverse, "proof": found.proof}
    return {
        **{name: None if view is None else _watch(view) for name, view in watches.items()},
        "hand_over": None if found.hand_over is None else _hand_over(found.hand_over),
    }


def _watch(view: WatchView) -> dict[str, Any]:
    last, process = view.last, view.process
    holder = process.holder if process is not None else None
    return {
        "run": view.run_id, "state": view.state, "verdict": view.verdict.value, "reason": view.reason,
        "as_of": last.as_of or None if last else None, "status_at": last.at if last else None,
        "status_verdict": last.verdict.value if last else None,
        "open_keys": last.open_keys if last else None, "oldest_seconds": last.oldest_seconds if last else None,
        "diverged": last.diverged if last else None, "began": view.began or None, "through": view.through or None,
        "since": view.since or None, "ended": view.ended, "sweep_minutes": view.sweep_minutes,
        "host": holder.host if holder else None, "pid": holder.pid if holder else None,
        "heartbeat_seconds": process.heartbeat_seconds if process else None,
    }  # fmt: skip


def _hand_over(found: HandOver) -> dict[str, Any]:
    return {
        "verdict": found.verdict.value, "read_at": found.read_at,
        "unread_rows": None if found.unread is None else found.unread.rows,
        "unread_statements": None if found.unread is None else found.unread.statements,
        "reasons": [*found.problems, *found.unknown],
    }  # fmt: skip


# --- text --------------------------------------------------------------------------------------------------------


def directions_as_text(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield both directions side by side, then the hand-over, from their JSON."""
    forward, reverse = _cells(document["forward"]), _cells(document["reverse"])
    yield _row("", "forward: the target follows", "reverse: the source follows")
    for name in dict.fromkeys([*forward, *reverse]):
        yield from _rows(name, forward.get(name, ""), reverse.get(name, ""))
    for direction, flag in (("forward", ""), ("reverse", " --reverse")):
        if (watch := document[direction]) is None:
            yield f"no {direction} watch: start one: migverify tables watch{flag} --since RUN"
        elif watch["reason"]:
            yield f"{direction} {watch['verdict']}: {watch['reason']}"
    if (proof := document["proof"]) is not None:
        ended = f", ended {utc(proof['ended'])}" if proof["ended"] is not None else f", {proof['state']}"
        place = f" as of {proof['as_of']}" if proof["as_of"] else ""
        yield f"newest proof {proof['run']}: {proof['verdict']}{place}{ended}"
    if (hand_over := document["hand_over"]) is not None:
        yield from _hand_over_lines(hand_over)


def _cells(watch: Mapping[str, Any] | None) -> dict[str, str]:
    if watch is None:
        return {"run": "none"}
    cells = {"run": watch["run"], "state": _state(watch), "verdict": watch["verdict"]}
    if watch["sweep_minutes"]:
        cells["sweep"] = f"each range within {watch['sweep_minutes']:g} minutes, no changefeed"
    cells["as of"] = watch["as_of"] or "no place"
    cells["status"] = _status(watch)
    if watch["open_keys"] is not None:
        oldest = watch["oldest_seconds"]
        age = f", oldest {oldest:.0f} seconds" if oldest is not None else ""
        cells["open"] = amount(watch["open_keys"], "key") + age
        cells["diverged"] = amount(watch["diverged"], "key")
    cells["began"] = watch["began"] or "not known"
    cells["read to"] = watch["through"] or "not known"
    cells["since run"] = watch["since"] or "none"
    return cells


def _state(watch: Mapping[str, Any]) -> str:
    if watch["state"] == "ended":
        return f"ended {utc(watch['ended'])}"
    process = f" (process {watch['pid']} on {watch['host']})" if watch["pid"] is not None else ""
    return f"{watch['state']}{process}"


def _status(watch: Mapping[str, Any]) -> str:
    if watch["status_at"] is None:
        return "not known here"
    if watch["state"] == "ended":
        return utc(watch["status_at"])
    return f"{max(0.0, time.time() - watch['status_at']):.1f} seconds ago: {watch['status_verdict']}"


def _hand_over_lines(hand_over: Mapping[str, Any]) -> Iterator[str]:
    read = ""
    if hand_over["unread_rows"] is not None:
        rows, statements = amount(hand_over["unread_rows"], "row"), amount(hand_over["unread_statements"], "statement")
        read = f", as of {utc(hand_over['read_at'])}: {rows} and {statements} behind the end of the forward watch"
    yield f"hand-over: {hand_over['verdict']}: {_WORDS[hand_over['verdict']]}{read}"
    for reason in hand_over["reasons"]:
        yield f"  because: {reason}"
    if hand_over["read_at"] is not None:
        yield "  what was written on the sources since then, while the target is closed: migverify tables armed"


def _rows(name: str, forward: str, reverse: str) -> Iterator[str]:
    left, right = textwrap.wrap(forward, _CELL), textwrap.wrap(reverse, _CELL)
    for number in range(max(len(left), len(right), 1)):
        yield _row(name if number == 0 else "", "".join(left[number : number + 1]), "".join(right[number : number + 1]))


def _row(name: str, forward: str, reverse: str) -> str:
    return f"{name:<{_NAME}}{forward:<{_CELL + 2}}{reverse}".rstrip()

"""The faults that a replicator can be given, and how they are written on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from migverify.changes.model import TableMap
from migverify.errors import UsageError


class FaultKind(StrEnum):
    """What can be switched on.

    ``skip``: a change is not applied. ``twice``: a change is applied again after the next one of its row; in a table
    without a key, an insert twice. ``out-of-order``: an older update of a row is applied after a newer one. ``stall``:
    nothing is applied any more, the process lives. ``wrong-time-zone``: DATETIME and TIMESTAMP values are shifted.
    ``stop-at-ddl``: the replicator ends before a DDL. ``drop-column``: one column's new value is not applied.
    ``checkpoint-ahead``: the checkpoint passes changes in a row that are not applied. ``timestamp-shifted``: as
    ``wrong-time-zone``, TIMESTAMP alone. ``truncated-column``: a text is cut to its half.
    """

    SKIP = "skip"
    TWICE = "twice"
    OUT_OF_ORDER = "out-of-order"
    STALL = "stall"
    WRONG_TIME_ZONE = "wrong-time-zone"
    STOP_AT_DDL = "stop-at-ddl"
    DROP_COLUMN = "drop-column"
    CHECKPOINT_AHEAD = "checkpoint-ahead"
    TIMESTAMP_SHIFTED = "timestamp-shifted"
    TRUNCATED_COLUMN = "truncated-column"


@dataclass(frozen=True, slots=True)
class FaultRule:
    """One fault as it was requested.

    Attributes
    ----------
    every
        One of so many changes that the fault can act on, chosen by the seed; 0 when ``at`` says which.
    at
        The number of the change, counted from 1 among those the fault can act on; 0 when ``every`` counts.
    most
        How often at most; 0 is without limit.
    table
        Only changes of this table, ``table`` or ``database.table``; empty is any.
    column
        drop-column: the column; empty is one chosen by the seed.
    shift
        wrong-time-zone: seconds that are added.
    seconds
        stall: how long; 0 is forever.
    """

    kind: FaultKind
    every: int = 0
    at: int = 0
    most: int = 0
    table: str = ""
    column: str = ""
    shift: int = 9 * 3600
    seconds: float = 0.0

    def covers(self, table: TableMap) -> bool:
        """Whether the rule is about a table."""
        return self.table in ("", table.table, table.name)


_NUMBERS = ("every", "at", "most")
_DEFAULTS = {
    FaultKind.WRONG_TIME_ZONE: {"every": 1}, FaultKind.TIMESTAMP_SHIFTED: {"every": 1},
    FaultKind.STOP_AT_DDL: {"at": 1}, FaultKind.CHECKPOINT_AHEAD: {"every": 1, "most": 10},
}  # fmt: skip


def parse_fault(text: str) -> FaultRule:
    """Read ``KIND[:ARG[,ARG...]]``: a number N (every Nth), ``every=N``, ``at=K``, ``most=N``, ``table=T``, ...

    Raises
    ------
    UsageError
        no such fault or argument, or a value that does not fit it.
    """
    name, _, rest = text.partition(":")
    try:
        kind = FaultKind(name.strip())
    except ValueError as error:
        raise UsageError(
            f"the replicator has no fault {name!r}", hint=f"Faults: {', '.join(kind.value for kind in FaultKind)}."
        ) from error
    given: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in rest.split(","))):
        left, equals, value = part.partition("=")
        given.update(_argument(text, left if equals else "every", value if equals else left))
    if "every" in given and "at" in given:
        raise UsageError(f"fault {text!r}: every= and at= exclude each other", hint="Give one of them.")
    if "every" not in given and "at" not in given:
        given = {**_DEFAULTS.get(kind, {"every": 1000}), **given}
    if kind in (FaultKind.STALL, FaultKind.STOP_AT_DDL):
        given.setdefault("most", 1)
    return FaultRule(kind, **given)


def _argument(text: str, name: str, value: str) -> dict[str, Any]:
    if name in _NUMBERS and value.isdigit() and int(value) > 0:
        return {name: int(value)}
    if name in ("table", "column") and value:
        return {name: value}
    if name == "seconds" and value.replace(".", "", 1).isdigit():
        return {name: float(value)}
    if name == "shift":
        sign, hours, minutes = value[:1], value[1:3], value[4:6]
        if sign in "+-" and hours.isdigit() and minutes.isdigit() and value[3:4] == ":" and len(value) == 6:
            return {name: (-1 if sign == "-" else 1) * (int(hours) * 3600 + int(minutes) * 60)}
    raise UsageError(
        f"fault {text!r}: {name}={value!r} is not understood",
        hint="Arguments: every=N, at=K, most=N, table=[DATABASE.]TABLE, column=NAME, shift=+09:00, seconds=S.",
    )

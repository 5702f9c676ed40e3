"""One captured session while it is played: where it stands, and its connection to each side."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from migverify.model import Side
from migverify.workload.replay.model import Asked, Call, Judged, Warned
from migverify.workload.replay.spool import NOWHERE, Stored, Turn
from migverify.workload.replay.wire import ServerWire
from migverify.workload.state import State


class Opener(Protocol):
    """Opens a wire; ``open_wire`` with its endpoint and password, or a fake."""

    def __call__(self, side: Side) -> ServerWire:
        """Connect; raises EndpointError."""
        ...


@dataclass(slots=True, eq=False)
class Lane:
    """One side of one player: its wire and what is under way on it."""

    side: Side
    wire: ServerWire | None = None
    queue: deque[tuple[Call, bool, str]] = field(default_factory=deque)  # call, prepared, what it is for
    doing: str = ""
    begun: int = 0
    asked: list[Asked] = field(default_factory=list)
    warned: tuple[Warned, ...] | None = None
    writing: bool = False
    clocked: bool = False
    hurried: bool = False  # its lock waits are bounded, for a call that production gave up
    rolls_back: bool = False  # production's transaction was rolled back by a deadlock
    failed: str = ""  # why the session's state could not be set


@dataclass(slots=True, eq=False)
class Player:
    """One captured session while it is played."""

    number: int
    next: int
    stop: int
    lanes: tuple[Lane, ...]
    stored: Stored | None = None
    turn: Turn | None = None
    phase: str = "due"
    intended: int = 0
    begun: int = 0
    since: int = 0
    left: set[int] = field(default_factory=set)
    forms: list[tuple[Call, bool]] = field(default_factory=list)
    judged: Judged | None = None
    rounds: int = 1
    sampled: bool = False
    forced: bool = False
    held: bool = False
    connected: bool = False
    broken: bool = False  # the rest of its transaction cannot be played
    wrote: bool = False  # its transaction has written
    state: State | None = None  # what its connections were brought to
    position: int = -1
    rereads: bool = False  # its last call set how statements are read
    lost: str = ""
    tries: int = 0
    generated: dict[bytes, str] = field(default_factory=dict)  # ids that the sides generated differently
    other: int = NOWHERE  # a session played elsewhere that this call should come after

    @property
    def call(self) -> Call:
        """The call at hand."""
        if self.stored is None:
            raise ValueError("a player without a call")
        return self.stored.call


_NOT_SET = ("transaction", "rest")


def standing(state: State) -> State:
    """Return what of a state a connection keeps by itself: all but the transaction and what only names things."""
    return replace(state, transaction=False, rest=json.dumps(_variables(state), sort_keys=True))


def _variables(state: State) -> dict[str, Any]:
    rest: dict[str, Any] = json.loads(state.rest) if state.rest else {}
    return {name: rest[name] for name in ("variables", "user_variables", "unresolved") if name in rest}


def reachable(before: State, after: State) -> bool:
    """Tell whether SETs alone lead from one state to another: nothing goes back to a default that is not known."""
    for name in State.__dataclass_fields__:
        if name not in _NOT_SET and getattr(before, name) is not None and getattr(after, name) is None:
            return False
    old, new = _variables(before), _variables(after)
    return all(set(old.get(part, {})) <= set(new.get(part, {})) for part in old)

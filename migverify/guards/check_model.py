"""What the settings guard is made of: questions as data, and what a question may see."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from migverify.guards.model import State

if TYPE_CHECKING:
    from migverify.guards.check_read import Server

NAME = "check"
SHOWN = 10
"""So many tables are named in one answer; the rest is counted."""


class Work(StrEnum):
    """What is about to begin."""

    TABLES = "tables"
    CHANGES = "changes"
    RECON = "recon"
    WORKLOAD = "workload"
    CUTOVER = "cutover"


ALL = frozenset(Work)
MOVING = frozenset({Work.WORKLOAD, Work.CUTOVER})
"""Work in which applications meet the target."""
READING = frozenset({Work.TABLES, Work.CHANGES, Work.RECON, Work.CUTOVER})


class Of(StrEnum):
    """Whom a question is put to."""

    EACH = "each endpoint"
    SOURCE = "each source"
    TARGET = "the target"
    PAIR = "each source and the target"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a judge says. An empty text means the question's own; ``part`` names one of several answers."""

    state: State
    value: str
    todo: str = ""
    part: str = ""
    threshold: str = ""
    query: str = ""
    why: str = ""
    subject: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)


Judge = Callable[["Server"], Iterator[CheckResult]]
PairJudge = Callable[["Server", "Server"], Iterator[CheckResult]]
Route = Callable[[str, str, str], tuple[str, str]]
"""(endpoint, database, table) of a source -> (database, table) on the target."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question.

    ``judge`` gets one endpoint, ``pair`` a source and the target. A refusal that either raises is INCONCLUSIVE, with
    ``todo`` as what to do. ``others`` says that further endpoints of the configuration are asked too.
    """

    name: str
    of: Of
    work: frozenset[Work]
    threshold: str
    query: str
    why: str
    todo: str
    judge: Judge | None = None
    pair: PairJudge | None = None
    others: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What the work will need, as far as it is known.

    Parameters
    ----------
    verify_seconds
        How long the longest read is going to take, seconds; None: not said.
    ticdc
        Addresses of TiCDC servers (``http://host:8300``).
    marker
        ``database.table`` on the source that a watch may write to.
    checkpoint
        ``database.table`` on the target where a replicator keeps its place.
    """

    verify_seconds: float | None = None
    ticdc: Sequence[str] = ()
    marker: str | None = None
    checkpoint: str | None = None


def listed(names: Sequence[str]) -> str:
    """Return names for a reader: the first ones, and how many more."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more

"""What a watch knows at one moment, and how that is shown: a line, a table, JSON, Prometheus text.

Tables and rules have a status of their own, because what is known of them differs; everything that shows a status is
here, and asks for nothing that ``WatchStatus`` does not name.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

from migverify.exposition import VERDICTS, Metric, number
from migverify.model import NextStep, Verdict, judged_document

Complete = Callable[[NextStep], NextStep]
MOST_PARTS = 30
"""Parts of a status that a screen shows."""
MOST_LINES = 3
"""Reasons that a line of the log shows, unless parts are MISMATCH: those are all shown."""


class WatchedPart(Protocol):
    """The status of one watched thing: a table pair, or a rule."""

    @property
    def name(self) -> str:
        """What the user calls it."""
        ...

    @property
    def verdict(self) -> Verdict:
        """Its verdict at this moment."""
        ...

    @property
    def reasons(self) -> Sequence[str]:
        """Why the verdict is not MATCH, the most important first."""
        ...

    @property
    def rank(self) -> tuple[int, int]:
        """Mismatches and open questions: parts with more of them are shown first."""
        ...

    def cells(self) -> dict[str, str]:
        """Return what a table shows of it, by column."""
        ...

    def notes(self) -> Iterator[str]:
        """Yield what the last status says of it beside the reasons."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchStatus(ABC):
    """Everything at one moment; ``verdict`` is the worst of its parts and streams. ``at`` is Unix time.

    The fields are the JSON form. ``reasons`` say why the verdict is not MATCH beyond those of the parts.
    """

    prefix: ClassVar[str]
    """How its metrics begin."""

    run_id: str
    at: float
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    final: bool = False

    @property
    @abstractmethod
    def parts(self) -> Sequence[WatchedPart]:
        """What is watched."""

    @abstractmethod
    def headline(self) -> str:
        """Return the state of the watch in one line."""

    @abstractmethod
    def metrics(self) -> Iterator[Metric]:
        """Yield the gauges of its parts and sources."""

    def next_steps(self) -> Iterator[NextStep]:
        """Yield the commands that show more."""
        yield from ()

    def closing(self) -> Iterator[str]:
        """Yield the last lines of the last status: what restricts it, and which command shows more."""
        yield from (f"{step.command} {step.reason}" for step in self.next_steps())

    def covered(self) -> str:
        """Return what the verdict is about, empty where the parts say it."""
        return ""

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


def json_line(status: WatchStatus, complete: Complete = lambda step: step) -> str:
    """Return the status as one JSON object; ``complete`` adds the options of the watch to a command."""
    return json.dumps(judged_document(status.as_dict(), map(complete, status.next_steps())), ensure_ascii=False)


def lines(status: WatchStatus) -> Iterator[str]:
    """Yield the headline, then why the verdict is as it is."""
    yield status.headline()
    reasons = [f"  {p.name}: {p.reasons[0]}" for p in status.parts if p.verdict is status.verdict and p.reasons]
    if status.verdict is Verdict.MISMATCH:
        yield from reasons
    else:  # What concerns all parts comes first: a watch that rests on no run has no part that says so.
        yield from [*(f"  {reason}" for reason in status.reasons), *reasons][:MOST_LINES]


def final_text(status: WatchStatus) -> str:
    """Return the end of a watch as text: verdict first, then what keeps it from MATCH, then the notes."""
    found = [status.headline()]
    if status.covered():
        found.append(f"  covers {status.covered()}")
    found += [f"  {reason}" for reason in status.reasons]
    found += [f"  {part.name}: {reason}" for part in status.parts for reason in part.reasons]
    found += [f"  {part.name}: {note}" for part in status.parts for note in part.notes()]
    return "\n".join([*found, *(f"  {line}" for line in status.closing())])


def rows(status: WatchStatus) -> tuple[list[str], list[list[str]], int]:
    """Return a table of the parts, the worst first: its columns, its rows, and how many parts it leaves out."""
    order = sorted(status.parts, key=lambda part: (*(-count for count in part.rank), part.name))
    cells = [{"name": part.name, "verdict": part.verdict.value, **part.cells()} for part in order[:MOST_PARTS]]
    return list(cells[0]) if cells else [], [list(row.values()) for row in cells], max(0, len(order) - MOST_PARTS)


def status_metrics(status: WatchStatus) -> Iterator[Metric]:
    """Yield the status as gauges; the verdict is 0 MATCH, 1 MISMATCH, 3 INCONCLUSIVE.

    An unknown number is ``NaN``, never left out and never 0. Money has all its digits; Prometheus itself keeps a float.
    """
    prefix = status.prefix
    yield Metric(f"{prefix}_verdict", "0 match, 1 mismatch, 3 inconclusive.", [({}, VERDICTS[status.verdict])])
    # When the page was made, so that a watch that is gone is seen.
    yield Metric(f"{prefix}_time_seconds", "Unix time of this page.", [({}, f"{status.at:.3f}")])
    yield from status.metrics()


def gauges(prefix: str, label: str, parts: Iterable[Any], names: Iterable[tuple[str, str, str]]) -> Iterator[Metric]:
    """Yield a gauge for each (metric, attribute, help), with a series for each part; parts have a ``name``."""
    some = list(parts)
    for metric, attribute, text in names:
        yield Metric(
            f"{prefix}_{metric}", text, [({label: one.name}, number(getattr(one, attribute))) for one in some]
        )  # fmt: skip

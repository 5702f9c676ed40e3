"""What a watch knows at one moment, as frozen data: for the screen, the JSON lines and Prometheus."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from migverify.changes.model import Position
from migverify.model import Verdict


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """One source's stream. Lag is what the target has not applied of what was read; None while unknown.

    ``read_seconds`` is how long ago the server was last heard, None before the first time.
    """

    name: str
    read: str
    gtids: str
    commits: int
    applied_by: str
    lag_seconds: float | None
    lag_transactions: int | None
    read_seconds: float | None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table pair. ``verified_through`` is the place up to which every written key was proved, empty for none.

    ``keys`` counts proofs, ``images`` row images of the stream. ``reasons`` say why the verdict is not MATCH.
    """

    source: str
    target: str
    verdict: Verdict
    verified_through: str
    pending: int
    doubt: int
    hot: int
    diverged: int
    oldest_seconds: float | None
    keys: int
    images: int
    reasons: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WatchStatus:
    """Everything at one moment; ``verdict`` is the worst of its tables and streams. ``at`` is Unix time."""

    run_id: str
    at: float
    verdict: Verdict
    reasons: tuple[str, ...]
    sources: tuple[SourceStatus, ...]
    tables: tuple[TableStatus, ...]
    findings: tuple[str, ...] = ()
    final: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)

    @property
    def open_keys(self) -> int:
        """Keys that are neither proved nor diverged."""
        return sum(t.pending + t.doubt + t.hot for t in self.tables)


MOST_POINTS = 20_000


@dataclass(slots=True)
class Track:
    """How far one source was read, and points of it with their commit times: enough to say how far behind a place is.

    A point is (place, time of the commit on the source, commits up to it).
    """

    commits: int = 0
    last: Position | None = None
    last_seq: int = 0
    heard_at: float = 0.0
    points: deque[tuple[int, float, int]] = field(default_factory=deque)
    behind: int = -1

    def moved(self, position: Position, seq: int, points: Sequence[tuple[int, float, int]], heard_at: float) -> None:
        """Hear that the stream was read to a place; ``points`` are those since the last time."""
        if self.behind < 0:
            self.behind = self.commits
        self.last, self.last_seq, self.heard_at = position, seq, heard_at
        self.points.extend(points)
        if points:
            self.commits = points[-1][2]
        if len(self.points) > MOST_POINTS:
            self.points = deque(p for n, p in enumerate(self.points) if n % 2)

    def lag(self, applied: int | None, now: float) -> tuple[float | None, int | None]:
        """Return seconds and transactions that the applied place is behind what was read."""
        if applied is None or self.last is None:
            return None, None
        while self.points and self.points[0][0] <= applied:
            self.behind = self.points.popleft()[2]
        if not self.points:
            return 0.0, 0
        return max(0.0, now - self.points[0][1]), max(1, self.commits - self.behind)


def prometheus_text(status: WatchStatus) -> str:
    """Return the status in the Prometheus text format; the verdict is 0 MATCH, 1 MISMATCH, 3 INCONCLUSIVE."""
    codes = {Verdict.MATCH: 0, Verdict.MISMATCH: 1, Verdict.INCONCLUSIVE: 3}
    lines = ["# TYPE migverify_watch_verdict gauge", f"migverify_watch_verdict {codes[status.verdict]}"]
    of_source = {"lag_seconds": "lag_seconds", "lag_transactions": "lag_transactions",
                 "heard_seconds": "read_seconds", "commits": "commits"}  # fmt: skip
    of_table = ("pending", "doubt", "hot", "diverged", "keys", "images", "oldest_seconds")
    series: list[tuple[str, list[tuple[str, float | None]]]] = [
        *((f"migverify_watch_{name}", [(_labels(source=s.name), getattr(s, field)) for s in status.sources])
          for name, field in of_source.items()),
        *((f"migverify_watch_table_{name}", [(_labels(table=t.source), getattr(t, name)) for t in status.tables])
          for name in of_table),
        ("migverify_watch_table_verdict", [(_labels(table=t.source), codes[t.verdict]) for t in status.tables]),
    ]  # fmt: skip
    for metric, values in series:
        known = [f"{metric}{labels} {value:g}" for labels, value in values if value is not None]
        if known:
            lines += [f"# TYPE {metric} gauge", *known]
    lines += ["# TYPE migverify_watch_time_seconds gauge", f"migverify_watch_time_seconds {status.at:.3f}"]
    return "\n".join(lines) + "\n"


def _labels(**labels: str) -> str:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items()) + "}"

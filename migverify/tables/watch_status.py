"""What a watch knows at one moment, as frozen data: for the screen, the JSON lines and Prometheus."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from migverify.changes.model import Position
from migverify.exposition import VERDICTS, Metric, number, page, standing
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

    ``keys`` counts proofs, ``images`` row images of the stream. ``reasons`` say why the verdict is not MATCH. ``whole``
    says that all its rows were compared, by the run that the watch starts from or by the watch.
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
    whole: bool = False


@dataclass(frozen=True, slots=True)
class WatchStatus:
    """Everything at one moment; ``verdict`` is the worst of its tables and streams. ``at`` is Unix time.

    ``covers`` says which rows the verdict is about.
    """

    run_id: str
    at: float
    verdict: Verdict
    reasons: tuple[str, ...]
    sources: tuple[SourceStatus, ...]
    tables: tuple[TableStatus, ...]
    findings: tuple[str, ...] = ()
    final: bool = False
    covers: str = ""

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
    return page(_metrics(status))


def _metrics(status: WatchStatus) -> Iterator[Metric]:
    yield from standing("migverify_watch", status.verdict, status.at)
    of_source = (
        ("lag_seconds", "lag_seconds", "How far the target is behind what was read, by time."),
        ("lag_transactions", "lag_transactions", "How far the target is behind what was read, by transactions."),
        ("heard_seconds", "read_seconds", "How long ago the source was last heard."),
        ("commits", "commits", "Transactions that were read."),
    )
    for name, attribute, text in of_source:
        yield Metric(f"migverify_watch_{name}", text,
                     [({"source": s.name}, number(getattr(s, attribute))) for s in status.sources])  # fmt: skip
    of_table = (
        ("pending", "Keys that wait for their proof."),
        ("doubt", "Keys that differed once and are read again."),
        ("hot", "Keys whose row keeps changing."),
        ("diverged", "Keys that differ for good."),
        ("keys", "Proofs of keys."),
        ("images", "Row images of the stream."),
        ("oldest_seconds", "Age of the oldest key without a proof."),
    )
    for name, text in of_table:
        yield Metric(f"migverify_watch_table_{name}", text,
                     [({"table": t.source}, number(getattr(t, name))) for t in status.tables])  # fmt: skip
    yield Metric("migverify_watch_table_verdict", "Verdict of the table: 0 match, 1 mismatch, 3 inconclusive.",
                 [({"table": t.source}, VERDICTS[t.verdict]) for t in status.tables])  # fmt: skip

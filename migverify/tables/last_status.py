"""The last status of a watch in a few figures, for those who look at it from outside.

A watch keeps it in its ledger while it runs, and in the store when it ends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migverify.model import RunInfo, Verdict
from migverify.watch.ledger_read import read_state

if TYPE_CHECKING:
    from migverify.tables.watch_status import TablesStatus

LAST_STATUS = "last status"
"""Kind of the ledger's state, and fact of a watch that has ended, that holds it."""


@dataclass(frozen=True, slots=True)
class LastStatus:
    """The status of a watch at ``at``, Unix time.

    ``as_of`` is the place up to which every written key is proved, empty for none; ``read`` the places up to which
    changes were read. ``open_keys`` are not proved yet, the oldest of them was written ``oldest_seconds`` before
    ``at``. ``reason`` is the first one why the verdict is not MATCH. ``lag_seconds`` is how far the target is behind
    what was read, None where that is not known of some source.
    """

    at: float
    verdict: Verdict
    as_of: str
    read: str
    open_keys: int
    oldest_seconds: float | None
    diverged: int
    reason: str
    lag_seconds: float | None = None

    @classmethod
    def of(cls, status: TablesStatus) -> LastStatus:
        """Return the figures of a status."""
        ages = [table.oldest_seconds for table in status.tables if table.oldest_seconds is not None]
        of_tables = [f"{t.name}: {t.reasons[0]}" for t in status.tables if t.verdict is status.verdict and t.reasons]
        # A difference is of a table; what is not known is most often so of the stream, and of each table for it.
        is_mismatch = status.verdict is Verdict.MISMATCH
        reasons = [*of_tables, *status.reasons] if is_mismatch else [*status.reasons, *of_tables]
        return cls(
            status.at, status.verdict, status.as_of, " ".join(source.read for source in status.sources if source.read),
            sum(t.pending + t.doubt + t.hot for t in status.tables), max(ages, default=None),
            sum(t.diverged for t in status.tables), next(iter(reasons), ""), _lag(status),
        )  # fmt: skip

    def as_text(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def of_run(cls, run: RunInfo, ledger: Path) -> LastStatus | None:
        """Return that of a watch: the store's where it has ended, or else its ledger's.

        None where neither is there, or it is one of another release.
        """
        text = run.facts.get(LAST_STATUS) if run.finished is not None else read_state(ledger, LAST_STATUS)
        try:
            known: Any = json.loads(text) if text else None
            return cls(**{**known, "verdict": Verdict(known["verdict"])}) if isinstance(known, Mapping) else None
        except (ValueError, TypeError, KeyError):
            return None


def _lag(status: TablesStatus) -> float | None:
    lags = [source.lag_seconds for source in status.sources]
    known = [lag for lag in lags if lag is not None]
    return max(known) if known and len(known) == len(lags) else None

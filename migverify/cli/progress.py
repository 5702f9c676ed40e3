"""Progress of long work: a live line on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from migverify.cli.console import say
from migverify.report.text import amount

if TYPE_CHECKING:
    from migverify.tables.verify import Progress

LOG_SECONDS = 10.0
LIVE_SECONDS = 0.2


class ProgressLine:
    """Shows rows, bytes, rate, time left and row diffs so far; finished tables get a line each.

    Tables that match are told of in the live line only when there are many of them.
    """

    def __init__(self, *, quiet: bool, many: int = 50) -> None:
        self._quiet = quiet
        self._many = many
        self._live = sys.stderr.isatty()
        self._started = self._last = time.monotonic()
        self._shown = False

    def __call__(self, progress: Progress) -> None:
        """Take one event."""
        if self._quiet:
            return
        result = progress.finished
        if result is not None and (result.verdict != "MATCH" or progress.tables_total <= self._many):
            self.clear()
            rows = "?" if result.rows_source is None else f"{result.rows_source:,}"
            say(
                f"{result.verdict:<12} {result.source}  {rows} rows, {amount(result.chunks, 'chunk')}, "
                f"{result.seconds:.1f} s"
            )
            for reason in result.reasons[:5]:
                say(f"             {reason}")
            for diff in progress.examples:
                columns = ", ".join(f"{c.column} ({c.kind})" for c in diff.columns)
                key = ", ".join("NULL" if part is None else part for part in diff.key)
                say(f"             {diff.kind}: {key}" + (f": {columns}" if columns else ""))
        now = time.monotonic()
        if now - self._last >= (LIVE_SECONDS if self._live else LOG_SECONDS):
            self._last = now
            self._show(progress, now - self._started)

    def _show(self, progress: Progress, seconds: float) -> None:
        rate = progress.rows / seconds if seconds else 0.0
        left = max(0, progress.rows_total - progress.rows)
        eta = f"{left / rate:,.0f} s left" if rate and progress.rows_total else "time left unknown"
        text = (
            f"{progress.tables_done}/{progress.tables_total} tables  {progress.rows:,} rows  "
            f"{progress.bytes / 1e6:,.0f} MB  {rate:,.0f} rows/s  {eta}  {progress.differences:,} rows to look at"
            + ("  PAUSED" if progress.paused else "") + (f"  {progress.table}" if progress.table else "")
        )  # fmt: skip
        if self._live:
            sys.stderr.write("\r\x1b[2K" + text[:160])
            sys.stderr.flush()
            self._shown = True
        else:
            say(text)

    def clear(self) -> None:
        """Remove the live line."""
        if self._shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._shown = False

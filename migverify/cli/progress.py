"""Progress of long work: a live line on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from migverify.cli.console import raw_stream, say, visible
from migverify.figures import amount

if TYPE_CHECKING:
    from migverify.tables.verify import VerifyProgress

LOG_SECONDS = 10.0
LIVE_SECONDS = 0.2


class LiveLine:
    """A line that is written again and again on a terminal, and every so often as a line of its own in a log."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._live = sys.stderr.isatty()
        self._started = self._last = time.monotonic()
        self._shown = False

    def _due(self) -> float:
        """Return the seconds since the last line when the next one is due, and count it as printed; else 0."""
        since = time.monotonic() - self._last
        if self._quiet or since < (LIVE_SECONDS if self._live else LOG_SECONDS):
            return 0.0
        self._last += since
        return since

    def _tell(self, text: str) -> None:
        if self._live:
            raw_stream(sys.stderr).write("\r\x1b[2K" + visible(text[:160], lines=False))
            sys.stderr.flush()
            self._shown = True
        else:
            say(text)

    def clear(self) -> None:
        """Remove the live line."""
        if self._shown:
            raw_stream(sys.stderr).write("\r\x1b[2K")
            sys.stderr.flush()
            self._shown = False


def _say_line(text: str) -> None:
    """Print one line: a name with a line break in it must not make another, which could look like a verdict."""
    say(visible(text, lines=False))


class ProgressLine(LiveLine):
    """Shows rows, bytes, rate, time left and row diffs so far; finished tables get a line each.

    Tables that match are named in the live line only when there are many of them.
    """

    def __init__(self, *, quiet: bool, many: int = 50) -> None:
        super().__init__(quiet=quiet)
        self._many = many

    def __call__(self, progress: VerifyProgress) -> None:
        """Take one event."""
        if self._quiet:
            return
        result = progress.finished
        if result is not None and (result.verdict != "MATCH" or progress.tables_total <= self._many):
            self.clear()
            name = result.target if result.source == "(none)" else result.source  # a table of the target only
            rows = "? rows" if result.rows_source is None else amount(result.rows_source, "row")
            _say_line(f"{result.verdict:<12} {name}  {rows}, {amount(result.chunks, 'chunk')}, {result.seconds:.1f} s")
            for reason in result.reasons[:5]:
                _say_line(f"             {reason}")
            for diff in progress.examples:
                columns = ", ".join(f"{c.column} ({c.kind})" for c in diff.columns if c.kind != "row")
                key = ", ".join("NULL" if part is None else part for part in diff.key)
                _say_line(f"             {diff.kind}: {key}" + (f": {columns}" if columns else ""))
        if self._due():
            self._show(progress, self._last - self._started)

    def _show(self, progress: VerifyProgress, seconds: float) -> None:
        rate = progress.rows / seconds if seconds else 0.0
        left = max(0, progress.rows_total - progress.rows)
        eta = f"{left / rate:,.0f} s left" if rate and progress.rows_total else "time left unknown"
        text = (
            f"{progress.tables_done}/{amount(progress.tables_total, 'table')}  {amount(progress.rows, 'row')}  "
            f"{progress.bytes / 1e6:,.0f} MB  {rate:,.0f} rows/s  {eta}  {progress.differences:,} rows to look at"
            + ("  PAUSED" if progress.paused else "") + (f"  {progress.table}" if progress.table else "")
        )  # fmt: skip
        self._tell(visible(text, lines=False))

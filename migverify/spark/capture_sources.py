"""Files of a capture as batches of rows: whole, or a part of them that begins where another reading ended."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Protocol, Self

from migverify.spark.capture_audit import AuditSource
from migverify.spark.capture_audit_survey import survey_audit
from migverify.spark.capture_headers import GeneralHeaders, SlowHeaders
from migverify.spark.capture_logs import Batch, LogColumns
from migverify.spark.capture_rows import Names, rows_of
from migverify.spark.capture_times import Entry
from migverify.workload.capture import CaptureInput
from migverify.workload.formats.audit import Audit, AuditSurvey
from migverify.workload.formats.general import GeneralGrammar, GeneralLog
from migverify.workload.formats.reading import Reading
from migverify.workload.formats.slow import SlowGrammar, SlowLog
from migverify.workload.lines import BLOCK
from migverify.workload.model import Noise, Record, Rejected
from migverify.workload.state import is_plain

_PIECES = 4_000


class Source(Protocol):
    """One file, or a part of it."""

    def __enter__(self) -> Self:
        """Open the file."""
        ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the file."""
        ...

    def batches(self) -> Iterator[Batch]:
        """Yield rows and other pieces, block by block, without a gap."""
        ...


class LogSource:
    """A slow or general log.

    Parameters
    ----------
    stop
        Where the last record may begin, exclusive; None: the end of the file.
    seek
        Begin at the first header that begins at ``entry.begin`` or behind it.
    light
        Only what a first pass looks at.
    """

    def __init__(
        self, one: CaptureInput, rank: int, names: Names, entry: Entry, stop: int | None = None, block: int = BLOCK, *,
        seek: bool = False, light: bool = False,
    ) -> None:  # fmt: skip
        path = str(one.path)
        if isinstance(one.format, SlowLog):
            headers: SlowHeaders | GeneralHeaders = SlowHeaders(SlowGrammar(path, one.format.zone), names)
        elif isinstance(one.format, GeneralLog):
            headers = GeneralHeaders(GeneralGrammar(path, one.format.zone), names)
        else:
            raise TypeError(one.format.name)
        begin = entry.begin - 1 if seek else entry.begin  # the line end before a header is part of its mark
        self.reading = Reading(
            path, headers.grammar, one.format.limit, block, begin=begin, line=entry.line, carry=entry.carry, stop=stop
        )
        if seek:
            self.reading.seek_header()
        self._columns = LogColumns(self.reading, headers, names, rank, one.server, light=light)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.reading.__exit__(kind, error, at)

    def batches(self) -> Iterator[Batch]:
        """Yield rows and other pieces."""
        return self._columns.batches()


class RecordSource:
    """A file of any format, whole, by the reader of its format."""

    def __init__(self, one: CaptureInput, rank: int, names: Names) -> None:
        self._one, self._rank, self._names = one, rank, names

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        del kind, error, at

    def batches(self) -> Iterator[Batch]:
        """Yield rows and other pieces."""
        records: list[Record] = []
        others: list[Noise | Rejected] = []
        begin = end = 0
        for piece in self._one.format.read(str(self._one.path)):
            if isinstance(piece, Record):
                if self._one.server and not piece.server:
                    object.__setattr__(piece, "server", self._one.server)
                records.append(piece)
            else:
                others.append(piece)
            end = piece.origin.offset + piece.origin.length
            if len(records) + len(others) >= _PIECES:
                yield Batch(rows_of(records, self._names, self._rank, is_plain), others, begin, end)
                records, others, begin = [], [], end
        if records or others:
            yield Batch(rows_of(records, self._names, self._rank, is_plain), others, begin, end)


def open_source(
    one: CaptureInput, rank: int, names: Names, entry: Entry, stop: int | None = None, block: int = BLOCK,
    told: AuditSurvey | None = None,
) -> Source:  # fmt: skip
    """Open a file, at its first byte or where another reading ended; ``told``: what a pass over audit CSV found."""
    if isinstance(one.format, SlowLog | GeneralLog):
        return LogSource(one, rank, names, entry, stop, block)
    if isinstance(one.format, Audit):
        if told is None:
            told, _ = survey_audit(one, one.format, (), block)
        return AuditSource(
            one, one.format, rank, names, told, begin=entry.begin, line=entry.line, stop=stop, block=block
        )
    return RecordSource(one, rank, names)

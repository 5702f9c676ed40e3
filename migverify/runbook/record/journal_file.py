"""Journals as files: one event a line, as an export has them and earlier releases kept them.

A file is read and verified, never written to: runs live in a store (``run_store``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from migverify.errors import JournalError, StoreError
from migverify.runbook.events import Event
from migverify.runbook.fold.table import fold
from migverify.runbook.record.chain import ChainEnd, JournalProblem, line_of
from migverify.runbook.record.heads import HeadChecker
from migverify.runbook.state import RunStatus

__all__ = ["NAME", "JournalReader", "fold_journal", "read_events", "verify_journal", "verify_run"]

NAME = "journal.jsonl"


class JournalReader(ChainEnd):
    """Reads a journal file; memory is one line.

    Attributes
    ----------
    raw
        The last line, with its newline.
    torn
        Bytes after the last newline: a copy that was cut off.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.raw, self.torn = path, b"", 0

    def events(self) -> Iterator[Event]:
        """Yield all events; a torn last line is left out.

        Raises JournalError: there is no such file, a line is damaged, or is not chained to the one before; StoreError:
        the file cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                for raw in file:
                    if not raw.endswith(b"\n"):
                        self.torn = len(raw)
                        return
                    self.raw = raw
                    yield self.take(raw, str(self.path))
        except FileNotFoundError:
            raise JournalError(f"{self.path}: there is no such journal") from None
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read: {error.strerror}") from error


def read_events(path: Path) -> Iterator[Event]:
    """Yield all events of a journal file, streaming; raises as ``JournalReader.events``."""
    yield from JournalReader(path).events()


def fold_journal(path: Path) -> RunStatus:
    """Return the status of the run of a journal file.

    Raises JournalError: it is damaged or empty, or an event in it cannot have happened.
    """
    status = fold(read_events(path))
    if status is None:
        raise JournalError(f"{path} holds no event")
    return status


def verify_run(path: Path) -> list[JournalProblem]:
    """Check a journal offline: chain, hashes, signatures, and that each event can have happened at its place."""

    def judge(events: Iterator[Event]) -> None:
        status: RunStatus | None = None
        chain = HeadChecker()
        for event in events:
            why = chain.take(event)
            if why:
                raise JournalError(f"line {event.seq + 1}: {event.kind.value} by {event.actor}: {why}")
            status = fold([event], status)

    return verify_journal(path, judge)


def verify_journal(path: Path, judge: Callable[[Iterator[Event]], object] | None = None) -> list[JournalProblem]:
    """Check a journal offline, and return what is wrong, the first bad line first; empty: nothing.

    Parameters
    ----------
    judge
        Reads the events and raises JournalError where they say what cannot have happened (``fold``); None: the
        chain alone is checked.
    """
    reader = JournalReader(path)
    if not path.exists():
        return [JournalProblem(0, f"{path}: there is no such journal")]

    def watched() -> Iterator[Event]:
        for event in reader.events():
            if line_of(event) != reader.raw:
                raise JournalError(f"{path}:{reader.line}: is not written as canonical JSON")
            yield event

    try:
        if judge is None:
            for _ in watched():
                pass
        else:
            judge(watched())
    except JournalError as error:
        # The reader names a line that breaks the chain; what the fold refuses is the last line that was read.
        return [JournalProblem(reader.bad or reader.line, _without_line(error.message))]
    problems = [JournalProblem(0, "holds no event")] if reader.line == 0 else []
    if reader.torn:
        problems.append(JournalProblem(reader.line + 1, f"torn: {reader.torn} bytes without an end", fatal=False))
    return problems


def _without_line(message: str) -> str:
    place, _, rest = message.partition(": ")
    return rest if rest and (place.startswith("line ") or place.rpartition(":")[2].isdigit()) else message

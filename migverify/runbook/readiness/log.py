"""The log of a readiness watch: what was known last, what was announced, and what became of each delivery.

A line is on the disk before anything of it is sent. One line holds a change of state and its announcements together, so
that a watch that is killed at any point neither loses nor repeats one: the next watch compares with the state of the
last whole line, and sends on what that line announced and no later line says was delivered.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from migverify.codec import parse_json
from migverify.errors import StoreError, UsageError
from migverify.runbook.announce.lanes import LONGEST_WAIT, Noted
from migverify.runbook.announce.sinks import SinkError
from migverify.runbook.definition.fields import named
from migverify.runbook.model import Sink
from migverify.runbook.readiness.evaluation import ConditionAnnouncement, Known
from migverify.runbook.readiness.standing import DAY
from migverify.runbook.record.locks import locked, open_own
from migverify.secrets import scrub, without_secrets

TRIES = round(DAY / LONGEST_WAIT)
"""A watch goes on for weeks, and a sink that is down for an hour must not hide that a service is not ready any more."""

__all__ = ["PendingAnnouncement", "ReadinessLog", "WatchedRunbook", "last_watched", "open_log"]


@dataclass(frozen=True, slots=True)
class WatchedRunbook:
    """The runbook of a watch, as it was last read: who it is of, and its sinks, for when it cannot be read any more.

    ``file`` is its whole path, ``parameters`` the hash of the values given with ``--set``.
    """

    id: str
    service: str
    environment: str
    file: str
    parameters: str
    sinks: Mapping[str, Sink]

    @property
    def whose(self) -> tuple[str, str, str]:
        """Whose readiness it is; its file may move, and its parameters may change."""
        return self.id, self.service, self.environment

    @property
    def words(self) -> str:
        """Whose readiness it is, for people."""
        return f"runbook {self.id}, service {self.service}, environment {self.environment}"

    def as_json(self) -> dict[str, Any]:
        """Return it as a line of the log keeps it."""
        sinks = {name: one.model_dump(mode="json") for name, one in self.sinks.items()}
        return {
            "id": self.id, "service": self.service, "environment": self.environment, "file": self.file,
            "parameters": self.parameters, "sinks": sinks,
        }  # fmt: skip

    @staticmethod
    def of_json(line: Mapping[str, Any]) -> WatchedRunbook:
        """Return it as a line of the log has it."""
        return WatchedRunbook(
            str(line["id"]), str(line["service"]), str(line["environment"]), str(line["file"]), str(line["parameters"]),
            named({str(name): Sink.model_validate(one) for name, one in line["sinks"].items()}),
        )  # fmt: skip


@dataclass(slots=True)
class PendingAnnouncement:
    """An announcement that a sink still has to get, and how often that was tried.

    ``log`` is the id of the log then; empty in lines of earlier versions, which keep the ids that they were sent with.
    """

    at: float
    announcement: ConditionAnnouncement
    log: str
    tries: int = 0


class ReadinessLog:
    """The log, read and open for more; only one process has it.

    Attributes
    ----------
    id
        Tells the announcements of this log from those of others of the same runbook; empty before the first change.
    known, verdict
        What the last evaluation left; empty before the first.
    undelivered
        By number of the announcement and sink.
    given_up
        Deliveries that no further try is made of.
    sinks
        Those that know the state by what was announced; None before the first change.
    watched
        The runbook as it was last read; None where no line has it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = ""
        self.known: dict[str, Known] = {}
        self.verdict = ""
        self.undelivered: dict[tuple[int, str], PendingAnnouncement] = {}
        self.given_up = 0
        self.sinks: frozenset[str] | None = None
        self.watched: WatchedRunbook | None = None
        self._next = 1
        for number, line in enumerate(self._whole_lines(), start=1):
            try:
                self._take(parse_json(line))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise StoreError(
                    f"{path}:{number}: is no line of a readiness watch: {error!r}",
                    hint="Move the file away: the next watch then announces all that is missing anew.",
                ) from None

    def _whole_lines(self) -> list[bytes]:
        """Return the lines; a torn last one, of which nothing was sent, is cut off so that the next line is whole."""
        handle = open_own(self.path, os.O_RDWR | os.O_CREAT)
        try:
            with os.fdopen(handle, "r+b") as file:
                data = file.read()
                whole = data.rfind(b"\n") + 1
                if whole < len(data):
                    file.truncate(whole)
                    os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read: {error.strerror}") from error
        return data[:whole].splitlines()

    def note_watched(self, watched: WatchedRunbook) -> None:
        """Write down whose watch it is, where that is another one than before.

        Raises UsageError: the log is of another runbook or environment, whose state says nothing of this one.
        """
        if self.watched is not None and self.watched.whose != watched.whose:
            raise UsageError(
                f"{self.path} is the log of another watch: {self.watched.words}, and this one is of {watched.words}",
                hint="Give this one a log of its own with --log.",
            )
        if watched != self.watched:
            self._write({"kind": "watched", "runbook": watched.as_json()})

    def record(
        self,
        at: float,
        verdict: str,
        known: Mapping[str, Known],
        some: Sequence[ConditionAnnouncement],
        sinks: Iterable[str] = (),
    ) -> list[tuple[int, ConditionAnnouncement]]:
        """Write down what an evaluation changed, and return its announcements with their numbers.

        Nothing is written when nothing is different.
        """
        informed = frozenset(sinks)
        if verdict == self.verdict and dict(known) == self.known and not some and informed == self.sinks:
            return []
        numbered = list(enumerate(some, start=self._next))
        self._write({
            "kind": "changed", "log": self.id or token_hex(4), "at": at, "verdict": verdict,
            "known": {id_: [one.state, list(one.causes)] for id_, one in known.items()},
            "announced": [{"number": number, **one.as_json()} for number, one in numbered], "sinks": sorted(informed),
        })  # fmt: skip
        return [(number, self.undelivered[number, one.sinks[0]].announcement) for number, one in numbered]

    def note(self, of: int, sink: str, problem: SinkError | None) -> Noted:
        """Write down what became of a try; see ``Lanes``."""
        tries = self.undelivered[of, sink].tries + 1
        if problem is None:
            self._write({"kind": "delivered", "of": of, "sink": sink})
            return Noted(is_open=False, tries=tries)
        given_up = problem.final or tries >= TRIES
        reason = scrub(problem.reason)
        self._write({"kind": "delivery failed", "of": of, "sink": sink, "tries": tries, "reason": reason,
                     "given_up": given_up})  # fmt: skip
        return Noted(is_open=not given_up, tries=tries)

    def _write(self, line: Mapping[str, Any]) -> None:
        clean = _scrubbed(line)
        data = json.dumps(clean, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        try:
            handle = open_own(self.path, os.O_WRONLY | os.O_APPEND)
            with os.fdopen(handle, "ab", buffering=0) as file:
                written = file.write(data)
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(f"{self.path} cannot be written: {error.strerror}") from error
        if written != len(data):
            raise StoreError(f"{self.path}: only {written} of {len(data)} bytes could be written")
        self._take(clean)

    def _take(self, line: Any) -> None:
        match line["kind"]:
            case "changed":
                self.id = str(line.get("log", ""))
                self.known = {
                    str(id_): Known(str(one[0]), tuple(map(str, one[1]))) for id_, one in line["known"].items()
                }
                self.verdict = str(line["verdict"])
                if "sinks" in line:  # not in lines of earlier versions
                    self.sinks = frozenset(map(str, line["sinks"]))
                for one in line["announced"]:
                    made = ConditionAnnouncement(
                        one["what"], one["topic"], one["text"], dict(one["fields"]), tuple(one["sinks"])
                    )
                    self._next = int(one["number"]) + 1
                    for sink in made.sinks:
                        pending = PendingAnnouncement(float(line["at"]), made, self.id)
                        self.undelivered[int(one["number"]), sink] = pending
            case "watched":
                self.watched = WatchedRunbook.of_json(line["runbook"])
            case "delivered":
                del self.undelivered[int(line["of"]), line["sink"]]
            case "delivery failed":
                key = int(line["of"]), line["sink"]
                self.undelivered[key].tries = int(line["tries"])
                if line["given_up"]:
                    self.given_up += 1
                    del self.undelivered[key]
            case kind:
                raise ValueError(f"kind {kind!r}")


def _scrubbed(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line without secrets in what comes from others; the program's own words stay as they are."""
    clean = dict(line)
    if clean["kind"] == "changed":
        clean["known"] = {id_: [state, without_secrets(causes)] for id_, (state, causes) in clean["known"].items()}
        clean["announced"] = [
            {**one, "text": scrub(one["text"]), "fields": without_secrets(one["fields"])} for one in clean["announced"]
        ]
    return clean


def last_watched(files: Iterable[Path], file: str, environment: str | None, parameters: str) -> WatchedRunbook | None:
    """Return the runbook of this file as a watch read it last; None where no log has it, or several have.

    Parameters
    ----------
    environment
        None: any, where there is only one.
    """
    found = []
    for path in files:
        try:
            lines = [parse_json(line) for line in path.read_bytes().splitlines() if b'"kind":"watched"' in line]
            last = WatchedRunbook.of_json(lines[-1]["runbook"]) if lines else None
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue  # whoever opens that log is warned
        if last is not None and last.file == file and last.parameters == parameters:
            found.append(last)
    meant = [one for one in found if environment in (None, one.environment)]
    return meant[0] if len(meant) == 1 else None


@contextmanager
def open_log(path: Path) -> Iterator[ReadinessLog]:
    """Yield the log of a watch, for this process alone.

    Raises UsageError: another watch has it; StoreError: it is damaged, or cannot be read.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreError(f"{path.parent} cannot be made: {error.strerror}") from error
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(path.with_name(f"{path.name}.lock"), seconds=0.0))
        except StoreError as error:
            if "locked by somebody else" not in error.message:
                raise
            raise UsageError(
                f"another readiness watch keeps {path}", hint="End it, or give this one a log of its own with --log."
            ) from None
        yield ReadinessLog(path)

"""Captured records made by hand, and a format of them: one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from migverify.workload.model import Command, Noise, Origin, Piece, Record, Rejected


def record(sql: str = "", command: Command = Command.QUERY, **told: Any) -> Record:
    """Return a record; its place is made up where it is not told."""
    told.setdefault("session", 1)
    told.setdefault("origin", Origin("log", told.get("number", 0), 1, 1))
    return Record(command=command, sql=sql.encode(), **told)


class Lines:
    """A log of JSON lines: ``{"sql", "session", "end", ...}``; ``#`` begins noise, what is not JSON is rejected."""

    name = "lines"

    def sniff(self, head: bytes) -> float:
        return float(head.startswith(b"{"))

    def read(self, path: str) -> Iterator[Piece]:
        offset = 0
        for number, line in enumerate(Path(path).read_bytes().splitlines(keepends=True)):
            origin = Origin(path, offset, number + 1, len(line))
            offset += len(line)
            if line.startswith(b"#"):
                yield Noise(origin, "comment")
                continue
            try:
                told = json.loads(line)
            except ValueError:
                yield Rejected(origin, "not JSON")
                continue
            yield Record(
                origin=origin, command=Command(told.pop("command", "query")), sql=told.pop("sql", "").encode(), **told
            )


def write_lines(path: Path, told: Iterable[dict[str, Any] | str]) -> Path:
    """Write a log of ``Lines``."""
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in told))
    return path

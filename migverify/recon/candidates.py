"""Keys that differed once, kept on disk until they are read again: memory does not grow with their number."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import IO, Any, Self

from migverify.recon.relation import Held, Pairing


@dataclass(frozen=True, slots=True)
class Candidate:
    """A key that differed in every read so far.

    ``first`` is what was read first. ``still`` counts the last reads, this one included, that gave the same texts:
    rows that change between two reads are being written.
    """

    first: Pairing
    last: Pairing
    reads: int
    still: int

    @classmethod
    def of(cls, pairing: Pairing) -> Candidate:
        """Take a key that was read once."""
        return cls(pairing, pairing, 1, 1)

    def again(self, pairing: Pairing) -> Candidate:
        """Return the candidate after one more read."""
        same = _seen(pairing.source) == _seen(self.last.source) and _seen(pairing.target) == _seen(self.last.target)
        return Candidate(self.first, pairing, self.reads + 1, self.still + 1 if same else 1)


def _seen(held: Held | None) -> tuple[object, ...] | None:
    return None if held is None else (held.count, held.values, held.unlike, held.mixed)


class Candidates:
    """A file of candidates: written once from the start to the end, then read in batches. Deleted when closed."""

    def __init__(self) -> None:
        # surrogateescape: texts hold the server's bytes, whatever they are.
        self._file: IO[str] = tempfile.TemporaryFile(  # noqa: SIM115 - closed by close
            "w+", encoding="ascii", prefix="migverify-candidates-"
        )
        self.count = 0

    def add(self, candidate: Candidate) -> None:
        """Append one."""
        body = [_pairing(candidate.first), _pairing(candidate.last), candidate.reads, candidate.still]
        self._file.write(json.dumps(body, separators=(",", ":")) + "\n")
        self.count += 1

    def batches(self, size: int) -> Iterator[list[Candidate]]:
        """Yield all of them, ``size`` at a time."""
        self._file.seek(0)
        while lines := list(islice(self._file, size)):
            yield [_candidate(json.loads(line)) for line in lines]

    def close(self) -> None:
        """Delete the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _pairing(pairing: Pairing) -> list[Any]:
    return [pairing.key, _held(pairing.source), _held(pairing.target)]


def _held(held: Held | None) -> list[Any] | None:
    return None if held is None else [held.count, held.values, held.unlike, held.shards, held.mixed]


def _candidate(body: list[Any]) -> Candidate:
    return Candidate(_pairing_of(body[0]), _pairing_of(body[1]), body[2], body[3])


def _pairing_of(body: list[Any]) -> Pairing:
    return Pairing(tuple(body[0]), _held_of(body[1]), _held_of(body[2]))


def _held_of(body: list[Any] | None) -> Held | None:
    return None if body is None else Held(body[0], tuple(body[1]), body[2], tuple(body[3]), body[4])

"""A folder or bucket of finished pieces of a log: its objects in the order of their names, each once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from migverify.changes.storage import Storage
from migverify.workload.formats.reading import LogReading
from migverify.workload.model import CaptureFormat, Carry, Divisible, Part, Piece

REMEMBERED = 2_000
"""Names of objects that are kept, the last ones by their order: an older name that appears later is not noticed."""


@dataclass(frozen=True, slots=True)
class ObjectPosition:
    """Where the next piece is: in ``name``, behind ``offset`` bytes. ``known`` are the last names that were read."""

    name: str = ""
    offset: int = 0
    carry: Carry | None = None
    known: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the position as a JSON object."""
        carry = None if self.carry is None else repr((self.carry.database, self.carry.time, self.carry.sessions))
        return {"name": self.name, "offset": self.offset, "carry": carry, "known": list(self.known)}

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> ObjectPosition:
        """Return the position that ``as_json`` described."""
        carry = None if body["carry"] is None else Carry(*ast.literal_eval(body["carry"]))
        return cls(body["name"], body["offset"], carry, tuple(body["known"]))


class ObjectFolder:
    """Reads the objects of a folder or a URL as they appear. An object appears whole, and is not changed later."""

    def __init__(self, place: str, form: CaptureFormat, position: ObjectPosition | None = None) -> None:
        self._place, self._form = place.rstrip("/"), form
        self._storage = Storage(self._place)
        self.position = position or ObjectPosition()
        self.unread = 0
        self._part: Part | None = None

    def pieces(self) -> Iterator[Piece | str]:
        """Yield the pieces of new objects; a text names an object that came too late."""
        names, known = self._storage.names(), set(self.position.known)
        last = self.position.known[-1] if self.position.known else ""
        oldest = self.position.known[0] if len(known) >= REMEMBERED else ""
        for name in names:
            if name < last and name not in known and name > oldest and name != self.position.name:
                yield f"object {name} appeared after {last} was read: it is not asked"
                self._note(name)
        new = [name for name in names if name > last]
        self.unread = len(new)
        for name in new:
            yield from self._of(name)
            self.settle()
            self._note(name)
            self.position = replace(self.position, name="", offset=0)
            self.unread -= 1

    def settle(self) -> ObjectPosition:
        """Return the position behind the last piece that was taken."""
        if self._part is not None:
            self.position = replace(self.position, carry=self._part.carry)
        return self.position

    @property
    def is_quiet(self) -> bool:
        """Whether no object is left."""
        return not self.unread

    @property
    def left_over(self) -> str:
        """Nothing: an object is whole."""
        return ""

    def _note(self, name: str) -> None:
        known = tuple(sorted({*self.position.known, name})[-REMEMBERED:])
        self.position = replace(self.position, known=known)

    def _of(self, name: str) -> Iterator[Piece]:
        begin = self.position.offset if self.position.name == name else 0
        path, carry = f"{self._place}/{name}", self.position.carry
        pieces: Iterator[Piece] | Part = self._form.read(path)
        self._part = None
        if isinstance(self._form, Divisible):
            pieces = self._part = self._form.part(path, begin, None, carry)
        for piece in pieces:
            end = piece.origin.offset + piece.origin.length
            if end <= begin:
                continue  # a format that is read from its beginning only
            self.position = replace(self.position, name=name, offset=end)
            yield piece if not isinstance(self._part, LogReading) else self._part.whole(piece)

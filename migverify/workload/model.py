"""The nouns of captures: typed, without I/O.

Text of statements is bytes: a log holds any bytes that the client sent, in any character set.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeAlias, runtime_checkable


class Command(StrEnum):
    """What the client requested. Statements of a text protocol are QUERY, prepared ones EXECUTE."""

    QUERY = "query"
    PREPARE = "prepare"
    EXECUTE = "execute"
    CLOSE_STATEMENT = "close statement"
    CONNECT = "connect"
    FAILED_CONNECT = "failed connect"
    CHANGE_USER = "change user"
    INIT_DB = "init db"
    RESET_CONNECTION = "reset connection"
    QUIT = "quit"
    OTHER = "other"  # ping, statistics, field list ...: kept, never replayed


@dataclass(slots=True)  # frozen ones take five times as long to make, and there is one for each record
class Origin:
    """Where a record is: file, byte offset of its first byte, line from 1, bytes it takes."""

    file: str
    offset: int
    line: int
    length: int


@dataclass(slots=True)
class Record:
    """One record of a capture, as its format tells it; what it does not tell is None.

    ``session`` is the server's connection id. ``start`` and ``end`` are Unix time in microseconds. ``clock`` is the
    time the session had set by ``SET timestamp``, microseconds. ``database`` is the current database where the format
    names it, ``""`` for none. ``partial`` says why the record cannot be replayed as it is (truncated, values
    unknown ...), empty when it can. ``parameters`` are the typed values of a prepared statement, where the format has
    them apart from the text. ``number`` orders records of one session that bear the same time (query id, sequence in
    the file).
    """

    origin: Origin
    command: Command
    sql: bytes
    session: int | None = None
    user: str | None = None
    host: str | None = None
    database: str | None = None
    start: int | None = None
    end: int | None = None
    clock: int | None = None
    duration: int | None = None
    errno: int | None = None
    rows_sent: int | None = None
    rows_affected: int | None = None
    number: int = 0
    statement_id: int | None = None
    parameters: tuple[Parameter, ...] | None = None
    last_insert_id: int | None = None
    insert_id: int | None = None
    partial: str = ""
    server: str = ""
    details: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A bound value: ``kind`` is null, integer, unsigned, double, float, decimal, text, bytes, date, datetime or time.

    ``value`` is its text (its bytes for text and bytes), None for NULL.
    """

    kind: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Rejected:
    """Bytes of a capture that are no record: counted, never dropped. ``reason`` is one of a few fixed texts."""

    origin: Origin
    reason: str


@dataclass(frozen=True, slots=True)
class Noise:
    """Bytes that belong to the format and hold no record: banners, comments, empty lines. Counted too."""

    origin: Origin
    what: str


Piece: TypeAlias = Record | Rejected | Noise
"""The pieces of a file follow each other without a gap: their lengths add up to the file's."""


SUMMARY = "_summary.json"
"""The file of a capture that says what was read and written; it is there when the capture is whole."""

UNKNOWN = "\udc80"
"""The current database where a reading begins in the middle of a file: no name of a log decodes to it."""


@dataclass(frozen=True, slots=True)
class Carry:
    """What the records up to a place of a log say for those behind it.

    ``database`` is the current one, ``time`` the last time of a header. ``sessions`` is, by session, what decides how
    its later records are read; it is sorted.
    """

    database: str | None = None
    time: int | None = None
    sessions: tuple[tuple[int, Any], ...] = ()


def text_of(raw: bytes) -> str:
    """Return bytes as text; what is no UTF-8 becomes an escape."""
    return raw.decode("utf-8", "backslashreplace")


class CaptureFormat(Protocol):
    """Reads one file of one format."""

    name: str

    def sniff(self, head: bytes) -> float:
        """How likely these first bytes (64 KiB at most) are of this format, 0 to 1."""
        ...

    def read(self, path: str) -> Iterator[Piece]:
        """Yield the pieces of a file, streaming, in order of their offsets."""
        ...


class Part(Protocol):
    """A part of a file, which begins where a record may begin.

    ``begin`` is the offset of its first byte, ``end`` that behind its last, ``lines`` the line ends between them and
    ``carry`` what its records say for those behind them; the last three hold once it was read.
    """

    @property
    def begin(self) -> int: ...  # noqa: D102
    @property
    def end(self) -> int: ...  # noqa: D102
    @property
    def lines(self) -> int: ...  # noqa: D102
    @property
    def carry(self) -> Carry: ...  # noqa: D102

    def __iter__(self) -> Iterator[Piece]: ...


@runtime_checkable
class Divisible(CaptureFormat, Protocol):
    """A format whose files can be read in parts."""

    def part(self, path: str, begin: int = 0, stop: int | None = None, carry: Carry | None = None) -> Part:
        """Return the part whose records begin in [begin, stop).

        With a carry it begins at ``begin``, which is where the part before ended. Without one it begins at the first
        byte behind ``begin`` that looks like the beginning of a record, and knows nothing of what is before: what it
        read holds only if the part before ends there and its carry has no sessions.
        Lines of its pieces count from 1 at its first byte.
        """
        ...

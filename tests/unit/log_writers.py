"""How servers write their logs, for tests of what reads them; and what holds for every reader."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from migverify.workload.model import CaptureFormat, Noise, Piece, Record, Rejected

BANNER = (
    b"/rdsdbbin/mysql/bin/mysqld, Version: 8.0.36 (Source distribution). started with:\n"
    b"Tcp port: 3306  Unix socket: /tmp/mysql.sock\n"
    b"Time                 Id Command    Argument\n"
)
FORGED = (
    b"a;\n# Time: 2030-01-01T00:00:00.000000Z\n# User@Host: x[x] @ localhost []  Id: 9\n"
    b"# Query_time: 1.000000  Lock_time: 0.000000 Rows_sent: 9  Rows_examined: 9\n"
    b"SET timestamp=1893456000;\nselect 1;\n# Time: 2030-01-01T00:00:00.000000Z\nb"
)
FORGED_GENERAL = b"a\n2030-01-01T00:00:00.000000Z\t    9 Query\tdrop table t\n\t\t    9 Quit\t\nb"


def read(form: CaptureFormat, data: bytes, folder: Path, *, packed: bool = False) -> list[Piece]:
    """Read bytes as a file of a format; every byte has to end in one piece, in order."""
    path = folder / "the.log"
    path.write_bytes(gzip.compress(data) if packed else data)
    pieces = list(form.read(str(path)))
    contiguous(pieces, data)
    return pieces


def contiguous(pieces: Sequence[Piece], data: bytes, start: int = 0) -> None:
    """Check that pieces follow each other up to the end of the data, with their true lines."""
    for piece in pieces:
        assert piece.origin.offset == start
        assert piece.origin.length > 0
        assert piece.origin.line == data.count(b"\n", 0, start) + 1
        start += piece.origin.length
    assert start == len(data)


def records(pieces: Sequence[Piece]) -> list[Record]:
    """Return the records."""
    return [piece for piece in pieces if isinstance(piece, Record)]


def rejects(pieces: Sequence[Piece]) -> list[str]:
    """Return the reasons of the rejects."""
    return [piece.reason for piece in pieces if isinstance(piece, Rejected)]


def noises(pieces: Sequence[Piece]) -> list[str]:
    """Return what is noise."""
    return [piece.what for piece in pieces if isinstance(piece, Noise)]


@dataclass(frozen=True)
class Sent:
    """One statement as a client sent it, and what the server knows of it."""

    sql: bytes
    session: int = 3
    database: str = ""
    end: int = 1_767_323_045_678_901
    duration: int = 3_464
    errno: int = 0
    rows: int = 1
    own_clock: int | None = None


def iso(moment: int) -> bytes:
    """Return Unix microseconds as MySQL writes them."""
    from datetime import UTC, datetime

    whole, micros = divmod(moment, 1_000_000)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{micros:06d}Z".encode()


def write_slow(sent: Sequence[Sent], *, extra: bool = False) -> bytes:
    """Write a slow log as MySQL 8 does: the database when it is not the last one logged, whoever logged it."""
    out = bytearray(BANNER)
    last = ""
    for one in sent:
        start = one.end - one.duration
        clock = start if one.own_clock is None else one.own_clock
        out += b"# Time: %s\n# User@Host: app[app] @ web1 [10.0.0.9]  Id: %5d\n" % (iso(one.end), one.session)
        seconds = b"%d.%06d" % divmod(one.duration, 1_000_000)
        out += b"# Query_time: %s  Lock_time: 0.000324 Rows_sent: %d  Rows_examined: 2000" % (seconds, one.rows)
        if extra:
            out += b" Thread_id: %d Errno: %d Killed: 0 Bytes_received: 0 Bytes_sent: 56" % (one.session, one.errno)
            out += b" Read_first: 0 Count_hit_tmp_table_size: 0"
            out += b" Start: %s End: %s" % (iso(clock), iso(clock + one.duration))
        out += b"\n"
        if one.database and one.database != last:
            out += b"use %s;\n" % one.database.encode()
            last = one.database
        out += b"SET timestamp=%d;\n" % (clock // 1_000_000)
        out += one.sql + b";\n"
    return bytes(out)


def write_general(sent: Sequence[Sent]) -> bytes:
    """Write a general log as MySQL 8 does."""
    out = bytearray(BANNER)
    for one in sent:
        out += b"%s\t%5d Query\t%s\n" % (iso(one.end - one.duration), one.session, one.sql)
    return bytes(out)

"""Compressed transactions.

Source: MySQL internals, "Transaction_payload_event" (fields of type, length, value; type 0 ends them; algorithm 0 is
zstd, 255 none).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import BinaryIO

from migverify.changes.events import HEADER, HEADER_BYTES, RawEvent, split_event
from migverify.errors import ChangeError

_SIZE, _ALGORITHM, _UNPACKED_SIZE = 1, 2, 3
_ZSTD, _NONE = 0, 255
_PIECE = 1 << 16


def packed_integer(data: bytes, at: int) -> tuple[int, int]:
    """Read a length-encoded integer; returns it and the place after it."""
    if at >= len(data):
        raise ChangeError("an event ends inside a number.")
    first = data[at]
    if first < 251:
        return first, at + 1
    width = {252: 2, 253: 3, 254: 8}.get(first)
    if width is None or at + 1 + width > len(data):
        raise ChangeError("an event holds a number that is cut or damaged.")
    return int.from_bytes(data[at + 1 : at + 1 + width], "little"), at + 1 + width


def payload_events(body: bytes, where: str) -> Iterator[RawEvent]:
    """Yield the events inside a TRANSACTION_PAYLOAD event, unpacked piece by piece."""
    fields, at = _fields(body, where)
    if fields.get(_SIZE, -1) != len(body) - at:
        stated = fields.get(_SIZE, "no")
        raise ChangeError(f"{where}: a compressed transaction names {stated} bytes and has {len(body) - at}.")
    algorithm = fields.get(_ALGORITHM, _NONE)
    packed = memoryview(body)[at:]
    if algorithm == _NONE:
        yield from _inner(io.BytesIO(packed), len(packed), where)
    elif algorithm == _ZSTD:
        import zstandard

        # Read as a stream: a payload may unpack to the size of the largest transaction.
        with zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as reader:
            try:
                yield from _inner(reader, fields.get(_UNPACKED_SIZE, -1), where)
            except zstandard.ZstdError as error:
                raise ChangeError(f"{where}: a compressed transaction does not unpack: {error}") from error
    else:
        raise ChangeError(f"{where}: a transaction is compressed by algorithm {algorithm}, which is not known.")


def _fields(body: bytes, where: str) -> tuple[dict[int, int], int]:
    fields: dict[int, int] = {}
    at = 0
    while True:
        kind, at = packed_integer(body, at)
        if kind == 0:
            return fields, at
        size, at = packed_integer(body, at)
        if kind not in (_SIZE, _ALGORITHM, _UNPACKED_SIZE):
            raise ChangeError(f"{where}: a compressed transaction has a field {kind}, which is not known.")
        fields[kind], end = packed_integer(body, at)
        if end != at + size:
            raise ChangeError(f"{where}: a compressed transaction has a field of a wrong length.")
        at = end


def _inner(stream: BinaryIO, size: int, where: str) -> Iterator[RawEvent]:
    seen = 0
    while header := _exactly(stream, HEADER_BYTES, where, may_end=True):
        length = HEADER.unpack(header)[3]
        if length < HEADER_BYTES or length > size - seen:
            raise ChangeError(f"{where}: an event of {length} bytes does not fit its compressed transaction.")
        yield split_event(header + _exactly(stream, length - HEADER_BYTES, where), False, where)
        seen += length
    if seen != size:
        raise ChangeError(f"{where}: a compressed transaction unpacks to {seen} bytes, {size} were named.")


def _exactly(stream: BinaryIO, size: int, where: str, *, may_end: bool = False) -> bytes:
    data = stream.read(size)
    if len(data) == size or (may_end and not data):
        return data
    pieces = [data]
    missing = size - len(data)
    while missing and (more := stream.read(missing)):
        pieces.append(more)
        missing -= len(more)
    if missing:
        raise ChangeError(f"{where}: a compressed transaction ends inside an event.")
    return b"".join(pieces)

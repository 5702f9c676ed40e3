"""What a capture reads of MySQL's client protocol: logins, texts, bound values, the heads of answers."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from migverify.workload.binary import (
    COM_CHANGE_USER,
    COM_CLOSE,
    COM_EXECUTE,
    COM_INIT_DB,
    COM_PREPARE,
    COM_QUERY,
    COM_QUIT,
    COM_RESET_CONNECTION,
    KINDS,
    NULL_LENGTH,
    SIZES,
    ProtocolError,
    decoder,
    number,
)
from migverify.workload.model import Command, Parameter, text_of

COMMANDS: Mapping[int, Command] = {
    COM_QUIT: Command.QUIT, COM_INIT_DB: Command.INIT_DB, COM_QUERY: Command.QUERY, COM_PREPARE: Command.PREPARE,
    COM_EXECUTE: Command.EXECUTE, COM_CLOSE: Command.CLOSE_STATEMENT, COM_CHANGE_USER: Command.CHANGE_USER,
    COM_RESET_CONNECTION: Command.RESET_CONNECTION,
}  # fmt: skip
NAMES: Mapping[int, str] = {
    0x00: "sleep", 0x01: "quit", 0x02: "init db", 0x03: "query", 0x04: "field list", 0x05: "create db", 0x06: "drop db",
    0x07: "refresh", 0x08: "shutdown", 0x09: "statistics", 0x0A: "process list", 0x0B: "connect", 0x0C: "kill",
    0x0D: "debug", 0x0E: "ping", 0x0F: "time", 0x10: "delayed insert", 0x11: "change user", 0x12: "binlog dump",
    0x13: "table dump", 0x14: "connect out", 0x15: "register replica", 0x16: "prepare", 0x17: "execute",
    0x18: "long data", 0x19: "close statement", 0x1A: "reset statement", 0x1B: "set option", 0x1C: "fetch",
    0x1D: "daemon", 0x1E: "binlog dump gtid", 0x1F: "reset connection", 0x20: "clone", 0x21: "subscribe",
}  # fmt: skip

CAN_DB, CAN_COMPRESS, CAN_41, CAN_TLS = 1 << 3, 1 << 5, 1 << 9, 1 << 11
CAN_SECURE, CAN_LENENC_AUTH, CAN_ZSTD, CAN_ATTRIBUTES = 1 << 15, 1 << 21, 1 << 26, 1 << 27

_ATTRIBUTES_FOLLOW = 8
_NULL, _UNSIGNED = 0x06, 0x80
_MOST_ENDS = 4096

# The collations clients name in a handshake; what is not here stays unknown.
CHARSETS: Mapping[int, str] = {
    8: "latin1", 5: "latin1", 47: "latin1", 11: "ascii", 65: "ascii", 63: "binary", 28: "gbk", 24: "gb2312",
    33: "utf8mb3", 83: "utf8mb3", 192: "utf8mb3", 45: "utf8mb4", 46: "utf8mb4", 224: "utf8mb4", 255: "utf8mb4",
    248: "gb18030", 1: "big5", 13: "sjis", 95: "cp932", 51: "cp1251", 26: "cp1250", 57: "cp1256",
}  # fmt: skip


class TypesUnknownError(ProtocolError):
    """The values of an execute have the types of an earlier one that was not captured."""


@dataclass(frozen=True, slots=True)
class BoundType:
    """How one value of an execute is written: type code and sign."""

    code: int
    unsigned: bool


@dataclass(frozen=True, slots=True)
class Execute:
    """The values of an execute; ``types`` hold for later executes that do not repeat them.

    ``attributes`` is what the packet proves: did the connection negotiate CLIENT_QUERY_ATTRIBUTES? None: either.
    """

    statement_id: int
    parameters: tuple[Parameter, ...]
    types: tuple[BoundType, ...]
    attributes: bool | None


@dataclass(slots=True)
class PreparedText:
    """A prepared statement: its text, how many values it takes, their types and those sent ahead.

    ``gap``: bytes of the client were lost since the last execute.
    """

    sql: bytes
    count: int
    types: tuple[BoundType, ...] | None = None
    long_data: dict[int, bytes] = field(default_factory=dict)
    gap: bool = False

    def execute(self, payload: bytes, attributes: bool | None) -> Execute:
        """Return the values of an execute of this statement, and take in its types.

        Raises
        ------
        ProtocolError
            they cannot be known; nor can those of later executes, until one repeats its types.
        """
        types, ahead, gap = self.types, self.long_data, self.gap
        self.types, self.long_data, self.gap = None, {}, False
        if gap and ahead:
            raise ProtocolError  # a part of a value that was sent ahead may be lost
        found = execute(payload, self.count, types, ahead, attributes)
        self.types = found.types
        return found

    def lose(self) -> None:
        """Take in that bytes of the client were lost: an execute with other types may have been among them."""
        self.types, self.gap = None, True


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """The head of an OK or ERR packet, or the end of a result. ``status`` is 0 for an error."""

    errno: int
    affected: int = 0
    insert_id: int = 0
    status: int = 0
    warnings: int = 0


class FieldReader:
    """Takes fields from the front of a packet."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def take(self, size: int) -> bytes:
        """Return the next bytes. Raises ``ProtocolError`` when there are fewer."""
        end = self.at + size
        if end > len(self.data):
            raise ProtocolError
        part = self.data[self.at : end]
        self.at = end
        return part

    def integer(self, size: int) -> int:
        """Return the next little-endian unsigned integer."""
        return int.from_bytes(self.take(size), "little")

    def counted(self) -> int:
        """Return the next length-encoded integer."""
        first = self.integer(1)
        if first < NULL_LENGTH:
            return first
        found, self.at = number(self.data, self.at - 1)
        return found

    def text(self) -> bytes:
        """Return the next length-encoded string."""
        return self.take(self.counted())

    def line(self) -> bytes:
        """Return the bytes up to the next NUL, or to the end."""
        end = self.data.find(b"\0", self.at)
        if end < 0:
            return self.take(len(self.data) - self.at)
        part = self.take(end - self.at)
        self.at += 1
        return part


def query_text(payload: bytes, attributes: bool | None) -> tuple[bytes, bool]:
    """Return the text of a COM_QUERY packet, and whether query attributes were in front of it.

    Parameters
    ----------
    attributes
        Did the connection negotiate CLIENT_QUERY_ATTRIBUTES? None: unknown. Then the packet shows it: no statement has
        0x01 as its second byte, where a packet with attributes counts the sets of them (always 1).

    Raises
    ------
    ProtocolError
        the attributes cannot be read.
    """
    if attributes is None:
        attributes = len(payload) > 2 and payload[2] == 1
    if not attributes:
        return payload[1:], False
    reader = FieldReader(payload, 1)
    count = reader.counted()
    if reader.counted() != 1:
        raise ProtocolError
    if count:
        _values(reader, count, None, {}, named=True)
    return payload[reader.at :], True


def execute(
    payload: bytes,
    count: int,
    known: Sequence[BoundType] | None,
    long_data: Mapping[int, bytes],
    attributes: bool | None,
) -> Execute:
    """Return the values of a COM_STMT_EXECUTE packet.

    Parameters
    ----------
    count
        How many parameters the statement has.
    known
        The types of an earlier execute.
    long_data
        Values sent ahead, by their place.
    attributes
        Did the connection negotiate CLIENT_QUERY_ATTRIBUTES? None: the packet is read both ways, and one reading
        alone may consume it exactly.

    Raises
    ------
    ProtocolError
        the packet does not hold what it should, the types were never seen, or two readings give two answers.
    """
    found: list[Execute] = []
    ways = (True, False) if attributes is None else (attributes,)
    for named in ways:
        try:
            found.append(_execute(payload, count, known, long_data, named=named))
        except TypesUnknownError:
            raise  # this reading could be the true one, so the other proves nothing
        except ProtocolError:
            continue
    if not found or any((one.parameters, one.types) != (found[0].parameters, found[0].types) for one in found):
        raise ProtocolError
    return found[0] if len(found) == 1 else Execute(found[0].statement_id, found[0].parameters, found[0].types, None)


def _execute(
    payload: bytes, count: int, known: Sequence[BoundType] | None, long_data: Mapping[int, bytes], *, named: bool
) -> Execute:
    reader = FieldReader(payload, 1)
    statement_id = reader.integer(4)
    flags = reader.integer(1)
    reader.take(4)
    # The count is sent with flags of 0 too, where the statement has parameters; the flag adds it where it has none.
    total = reader.counted() if named and (count or flags & _ATTRIBUTES_FOLLOW) else count
    if total < count:
        raise ProtocolError
    parameters, types = _values(reader, total, known, long_data, named=named) if total else ((), ())
    if reader.at != len(payload):
        raise ProtocolError
    return Execute(statement_id, parameters[:count], types[:count], named)


def _values(
    reader: FieldReader, count: int, known: Sequence[BoundType] | None, long_data: Mapping[int, bytes], *, named: bool
) -> tuple[tuple[Parameter, ...], tuple[BoundType, ...]]:
    nulls = reader.take((count + 7) // 8)
    bound = reader.integer(1)
    if bound == 1:
        types = tuple(_type(reader, named=named) for _ in range(count))
    elif bound == 0 and known is None:
        raise TypesUnknownError if _could_hold(reader, count, nulls) else ProtocolError
    elif bound == 0 and known is not None and len(known) == count:
        types = tuple(known)
    else:
        raise ProtocolError
    parameters = []
    for place, one in enumerate(types):
        if place in long_data:
            parameters.append(Parameter("text" if KINDS[one.code] == "text" else "bytes", long_data[place]))
        elif nulls[place // 8] >> (place % 8) & 1 or one.code == _NULL:
            parameters.append(Parameter("null", None))
        else:
            parameters.append(_value(reader, one))
    return tuple(parameters), types


def _could_hold(reader: FieldReader, count: int, nulls: bytes) -> bool:
    """Tell whether the rest of a packet could be values of some types, and nothing else."""
    bits = int.from_bytes(nulls, "little")
    if bits >> count:
        return False
    data, ends = reader.data, {reader.at}
    for _ in range(count - bits.bit_count()):
        behind = {at + size for at in ends for size in (1, 2, 4, 8)}
        for at in ends:
            text = FieldReader(data, at)
            with suppress(ProtocolError):
                text.text()  # dates and times are written like texts
                behind.add(text.at)
        ends = {at for at in behind if at <= len(data)}
        if len(ends) > _MOST_ENDS:
            return True
    return len(data) in ends


def _type(reader: FieldReader, *, named: bool) -> BoundType:
    code, sign = reader.take(2)
    if named:
        reader.text()
    if code not in KINDS or sign not in (0, _UNSIGNED):
        raise ProtocolError
    return BoundType(code, bool(sign))


def _value(reader: FieldReader, one: BoundType) -> Parameter:
    data, at, kind = reader.data, reader.at, KINDS[one.code]
    try:
        if data[at] not in SIZES.get(kind, (data[at],)):
            raise ProtocolError
        value, reader.at = decoder(one.code, unsigned=one.unsigned)(data, at)
    except (IndexError, struct.error) as error:
        raise ProtocolError from error
    if reader.at > len(data):
        raise ProtocolError
    return Parameter("unsigned" if kind == "integer" and one.unsigned else kind, value)


def answer(payload: bytes) -> AnswerHead:
    """Return what an OK, ERR or EOF packet says.

    Raises
    ------
    ProtocolError
        it is none of these.
    """
    reader = FieldReader(payload)
    kind = reader.integer(1)
    if kind == 0xFF:
        return AnswerHead(reader.integer(2))
    if kind == 0xFE and len(payload) == 5:
        warnings, status = reader.integer(2), reader.integer(2)
        return AnswerHead(0, status=status, warnings=warnings)
    if kind in (0x00, 0xFE):
        affected, insert_id = reader.counted(), reader.counted()
        return AnswerHead(0, affected, insert_id, reader.integer(2), reader.integer(2))
    raise ProtocolError


@dataclass(frozen=True, slots=True)
class ClientLogin:
    """What a client says of itself when it connects or changes its user."""

    user: str
    database: str
    capabilities: int
    charset: str | None


def login(payload: bytes) -> ClientLogin:
    """Return what a handshake response says. Raises ``ProtocolError`` when it is none."""
    reader = FieldReader(payload)
    capabilities = reader.integer(4)
    if not capabilities & CAN_41:
        raise ProtocolError
    reader.take(4)
    collation = reader.integer(1)
    reader.take(23)
    user = reader.line()
    if capabilities & CAN_LENENC_AUTH:
        reader.text()
    elif capabilities & CAN_SECURE:
        reader.take(reader.integer(1))
    else:
        reader.line()
    database = reader.line() if capabilities & CAN_DB and reader.at < len(payload) else b""
    return ClientLogin(text_of(user), text_of(database), capabilities, CHARSETS.get(collation))


def change_user(payload: bytes, capabilities: int | None) -> ClientLogin:
    """Return what a COM_CHANGE_USER packet says."""
    reader = FieldReader(payload, 1)
    user = reader.line()
    if capabilities is None or capabilities & CAN_SECURE:
        reader.take(reader.integer(1))
    else:
        reader.line()
    database = reader.line()
    collation = reader.integer(2) if len(payload) - reader.at >= 2 else 0
    return ClientLogin(text_of(user), text_of(database), capabilities or 0, CHARSETS.get(collation))

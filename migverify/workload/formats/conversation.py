"""One client's connection in a packet trace: its login, its commands, and what cannot be read."""

from __future__ import annotations

from migverify.workload import binary
from migverify.workload.binary import MAX_PACKET, ProtocolError
from migverify.workload.formats import protocol
from migverify.workload.formats.answers import PacketEntry, PendingAnswers, PendingCommand, finish
from migverify.workload.formats.packets import TcpSegment, address
from migverify.workload.formats.tcp import ByteStream, joined_session
from migverify.workload.model import Command, Origin, Record

TLS = "encrypted connection (TLS)"
COMPRESSED = "compressed connection"
REPLICATION = "replication stream"
LOST = "bytes beside lost packets"
NOT_MYSQL = "not MySQL's protocol"

VALUES_UNKNOWN = "values of the prepared statement unknown"
PREPARED_BEFORE = "prepared before the capture"

_SILENT = frozenset({binary.COM_QUIT, binary.COM_CLOSE, binary.COM_LONG_DATA})


class Conversation:
    """Reads both directions of one connection.

    Parameters
    ----------
    path
        The file, for origins.
    client, server
        Address and port of both ends.
    fresh
        Was the connection seen from its first packet? Else it was joined midway.
    """

    def __init__(self, path: str, client: tuple[bytes, int], server: tuple[bytes, int], *, fresh: bool) -> None:
        self._path = path
        self._client, self._server = client, server
        self._up: ByteStream[PacketEntry] = ByteStream()
        self._down: ByteStream[PacketEntry] = ByteStream()
        self._down.lost = not fresh
        self._phase = "greeting" if fresh else "joined"
        self._blind = ""
        self._capabilities: int | None = None
        self._server_capabilities = 0
        self._attributes: bool | None = None  # was CLIENT_QUERY_ATTRIBUTES negotiated? None: not known yet
        self._session = joined_session(client, server)  # until the greeting tells the connection id
        self._user: str | None = None
        self._answers = PendingAnswers()
        self._more = b""
        self._ended = False

    @property
    def ended(self) -> bool:
        """True when the connection was closed."""
        return self._ended

    def open(self, segment: TcpSegment) -> None:
        """Take in a SYN."""
        stream = self._up if segment.source == self._client else self._down
        if stream.next is None:
            stream.start(segment.sequence + 1)

    def end(self, segment: TcpSegment) -> None:
        """Take in a FIN: the place where this side's bytes end."""
        stream = self._up if segment.source == self._client else self._down
        stream.end = (segment.sequence + len(segment.payload)) % (1 << 32)

    @property
    def ended_by_both(self) -> bool:
        """True when both sides sent a FIN and all bytes before it are here: it may come before data that it follows."""
        return all(one.end is not None and one.next in (None, one.end) for one in (self._up, self._down))

    def add(self, segment: TcpSegment, entry: PacketEntry) -> None:
        """Take in a segment with a payload."""
        from_client = segment.source == self._client
        if self._blind:
            self._note_blind(entry, from_client=from_client)
            return
        stream = self._up if from_client else self._down
        if segment.acknowledged is not None:
            self._catch_up(segment.acknowledged, from_client=from_client)
        if from_client:
            entry.open += 1
        stream.add(segment.sequence, segment.payload, entry)
        if from_client:
            self._read_client()
            self._release()
        else:
            self._read_server()
            stream.released.clear()
        if self.blind:
            self._note_blind(entry, from_client=from_client)

    @property
    def blind(self) -> str:
        """Why nothing more can be read; empty while all is well."""
        return self._blind

    def _catch_up(self, acknowledged: int, *, from_client: bool) -> None:
        """What one side acknowledges and the trace lacks is lost; without this, answers would meet wrong commands."""
        stream = self._down if from_client else self._up
        while stream.behind(acknowledged):
            if not stream.skip():
                stream.jump(acknowledged)
            (self._read_server if from_client else self._read_client)()
        if from_client:
            stream.released.clear()
        else:
            self._release()

    def close(self) -> None:
        """No more packets: what was asked and not answered stays so."""
        self._ended = True
        for stream in (self._down, self._up):
            while stream.skip():
                (self._read_server if stream is self._down else self._read_client)()
        self._up.take(len(self._up.data))
        self._release()
        self._answers.lose()

    def _release(self) -> None:
        for entry in self._up.released:
            entry.open -= 1
        self._up.released.clear()

    def _note_blind(self, entry: PacketEntry, *, from_client: bool) -> None:
        if self._blind == REPLICATION:
            entry.noise = REPLICATION
        elif from_client:
            entry.reject = self._blind
        else:
            entry.noise = self._blind

    def _go_blind(self, reason: str) -> None:
        self._blind = reason
        self._up.take(len(self._up.data))
        self._release()
        self._answers.lose()

    def _read_client(self) -> None:
        stream = self._up
        if stream.data and (stream.lost or self._phase == "joined") and not self._find_client_feet():
            return
        while len(stream.data) >= 4 and not self._blind:
            size = int.from_bytes(stream.data[:3], "little")
            if len(stream.data) < 4 + size:
                return
            sequence = stream.data[3]
            payload = bytes(stream.data[4 : 4 + size])
            first, last = stream.tag_at(0), stream.tag_at(3 + size)
            if size == MAX_PACKET and not self._whole_command():
                return
            if size == MAX_PACKET:
                payload, taken, last, sequence = self._join()
                stream.take(taken)
            else:
                stream.take(4 + size)
            self._from_client(payload, sequence, first, last)

    def _whole_command(self) -> bool:
        at, data = 0, self._up.data
        while len(data) >= at + 4:
            size = int.from_bytes(data[at : at + 3], "little")
            at += 4 + size
            if len(data) < at:
                return False
            if size < MAX_PACKET:
                return True
        return False

    def _join(self) -> tuple[bytes, int, PacketEntry, int]:
        at, data, parts = 0, self._up.data, []
        while True:
            size = int.from_bytes(data[at : at + 3], "little")
            parts.append(bytes(data[at + 4 : at + 4 + size]))
            at += 4 + size
            if size < MAX_PACKET:
                return b"".join(parts), at, self._up.tag_at(at - 1), 0

    def _find_client_feet(self) -> bool:
        """Joined midway, or behind a gap: a segment that begins like a command is one."""
        stream = self._up
        data = stream.data
        if bytes(data[:2]) in (b"\x16\x03", b"\x17\x03"):
            self._go_blind(TLS)
            return False
        if _commands(data):
            if stream.lost:
                for statement in self._answers.statements.values():
                    statement.lose()
            stream.lost = False
            self._phase = "commands"
            return True
        stream.tag_at(0).reject = LOST if stream.lost else NOT_MYSQL
        stream.take(len(data))
        return False

    def _from_client(self, payload: bytes, sequence: int, first: PacketEntry, last: PacketEntry) -> None:
        if first.settled:  # given out before the command was whole
            first = last
        if self._phase in ("greeting", "login"):
            self._login(payload, first, last)
        elif sequence == 0 and payload and self._phase == "commands":
            try:
                self._command(payload, first, last)
            except ProtocolError:
                first.reject = NOT_MYSQL

    def _login(self, payload: bytes, first: PacketEntry, last: PacketEntry) -> None:
        capabilities = int.from_bytes(payload[:4], "little")
        if len(payload) == 32 and capabilities & protocol.CAN_TLS:
            self._go_blind(TLS)
            return
        try:
            login = protocol.login(payload)
        except ProtocolError:
            self._go_blind(NOT_MYSQL)
            return
        self._capabilities = login.capabilities
        if not login.capabilities & protocol.CAN_ATTRIBUTES:
            self._attributes = False
        elif self._server_capabilities:
            self._attributes = bool(self._server_capabilities & protocol.CAN_ATTRIBUTES)
        self._user = login.user
        details = {"charset": login.charset} if login.charset else {}
        record = self._record(Command.CONNECT, b"", first, last, database=login.database, details=details)
        self._ask(record, first, binary.COM_CHANGE_USER, 2)
        self._phase = "answer to login"

    def _record(
        self,
        command: Command,
        sql: bytes,
        first: PacketEntry,
        last: PacketEntry,
        *,
        database: str | None = None,
        details: dict[str, str] | None = None,
    ) -> Record:
        origin = Origin(self._path, first.packet.offset, first.packet.line, first.packet.length)
        return Record(
            origin, command, sql, session=self._session, user=self._user, host=address(self._client[0]),
            database=database, start=last.packet.time, number=first.packet.line,
            server=f"{address(self._server[0])}:{self._server[1]}", details=details or {},
        )  # fmt: skip

    def _ask(self, record: Record, entry: PacketEntry, code: int, sequence: int) -> PendingCommand:
        asked = PendingCommand(record, entry, code, sequence)
        entry.open += 1
        entry.asked.append(asked)
        if code in _SILENT:
            finish(asked)
        else:
            self._answers.expect(asked)
        return asked

    def _command(self, payload: bytes, first: PacketEntry, last: PacketEntry) -> None:
        code = payload[0]
        if code in (binary.COM_BINLOG_DUMP, binary.COM_BINLOG_DUMP_GTID):
            self._go_blind(REPLICATION)
            return
        if code == binary.COM_LONG_DATA:
            self._long_data(payload)
            first.noise = "packets of a command"
            return
        command = protocol.COMMANDS.get(code, Command.OTHER)
        record = self._record(command, b"", first, last)
        match code:
            case binary.COM_QUERY:
                sql, self._attributes = protocol.query_text(payload, self._attributes)
                record.sql = sql
            case binary.COM_PREPARE | binary.COM_INIT_DB:
                record.sql = payload[1:]
            case binary.COM_EXECUTE:
                self._execute(record, payload)
            case binary.COM_RESET_STATEMENT:
                statement = self._answers.statements.get(protocol.FieldReader(payload, 1).integer(4))
                if statement is not None:
                    statement.long_data = {}
                record.details = {"command": protocol.NAMES[code]}
            case binary.COM_CLOSE:
                record.statement_id = protocol.FieldReader(payload, 1).integer(4)
                self._answers.statements.pop(record.statement_id, None)
            case binary.COM_CHANGE_USER:
                self._change_user(record, payload)
            case binary.COM_RESET_CONNECTION:
                self._answers.statements.clear()
            case _ if command is Command.OTHER:
                record.details = {"command": protocol.NAMES.get(code, str(code))}
            case _:
                pass
        parts = 1 + len(payload) // MAX_PACKET
        self._ask(record, first, code, parts % 256)

    def _long_data(self, payload: bytes) -> None:
        reader = protocol.FieldReader(payload, 1)
        statement = self._answers.statements.get(reader.integer(4))
        place = reader.integer(2)
        if statement is not None:
            statement.long_data[place] = statement.long_data.get(place, b"") + payload[reader.at :]

    def _execute(self, record: Record, payload: bytes) -> None:
        record.statement_id = protocol.FieldReader(payload, 1).integer(4)
        statement = self._answers.statements.get(record.statement_id)
        if statement is None:
            record.partial = PREPARED_BEFORE
            return
        record.sql = statement.sql
        try:
            values = statement.execute(payload, self._attributes)
        except ProtocolError:
            record.partial = VALUES_UNKNOWN
            return
        record.parameters = values.parameters
        self._attributes = values.attributes if self._attributes is None else self._attributes

    def _change_user(self, record: Record, payload: bytes) -> None:
        login = protocol.change_user(payload, self._capabilities)
        self._user = record.user = login.user
        self._answers.statements.clear()
        record.database = login.database
        record.details = {"charset": login.charset} if login.charset else {}

    def _read_server(self) -> None:
        stream = self._down
        if stream.lost:
            if not stream.data:
                self._answers.lose()
                return
            self._find_server_feet()
        while len(stream.data) >= 4 and not self._blind:
            size = int.from_bytes(stream.data[:3], "little")
            if len(stream.data) < 4 + size:
                return
            sequence = stream.data[3]
            payload = bytes(stream.data[4 : 4 + size])
            last = stream.tag_at(3 + size)
            stream.take(4 + size)
            if self._more:  # the rest of a row that was too long for one packet
                self._more = b"+" if size == MAX_PACKET else b""
                continue
            self._more = b"+" if size == MAX_PACKET else b""
            try:
                self._from_server(payload, sequence, last)
            except ProtocolError:
                self._answers.damaged()

    def _find_server_feet(self) -> None:
        """Behind a gap the answers under way are lost; the next one begins with the sequence number 1."""
        stream = self._down
        if len(stream.data) < 5:  # the shortest answer is longer
            self._answers.lose()
            stream.take(len(stream.data))
            return
        if self._phase == "joined" and not self._answers.waiting and bytes(stream.data[3:5]) == b"\x00\x0a":
            stream.lost = False  # only the SYN was missed
            return
        if not self._answers.between or stream.data[3] != 1:
            self._answers.lose()
        size = int.from_bytes(stream.data[:3], "little")
        if self._answers.waiting and stream.data[3] == 1 and size < MAX_PACKET:
            stream.lost = False
        else:
            stream.take(len(stream.data))
        self._more = b""

    def _from_server(self, payload: bytes, sequence: int, entry: PacketEntry) -> None:
        if self._phase in ("greeting", "joined") and sequence == 0 and payload[:1] == b"\x0a":
            self._greeting(payload)
        elif self._phase == "answer to login":
            self._login_answer(payload, entry)
        else:
            self._answers.take(payload, sequence, entry)

    def _greeting(self, payload: bytes) -> None:
        reader = protocol.FieldReader(payload, 1)
        reader.line()
        self._session = reader.integer(4)
        reader.take(9)
        self._server_capabilities = reader.integer(2)
        if len(payload) - reader.at >= 5:
            reader.take(3)
            self._server_capabilities |= reader.integer(2) << 16
        self._phase = "login"

    def _login_answer(self, payload: bytes, entry: PacketEntry) -> None:
        if payload[:1] not in (b"\x00", b"\xff"):
            return  # another step of the authentication
        asked = self._answers.waiting.popleft()
        answer = protocol.answer(payload)
        record = asked.record
        record.command = Command.FAILED_CONNECT if answer.errno else Command.CONNECT
        record.errno, record.end = answer.errno, entry.packet.time
        finish(asked)
        self._phase = "over" if answer.errno else "commands"
        both = (self._capabilities or 0) & self._server_capabilities
        if both & (protocol.CAN_COMPRESS | protocol.CAN_ZSTD) and not answer.errno:
            self._go_blind(COMPRESSED)


def _commands(data: bytes | bytearray) -> bool:
    """Tell whether these bytes look like commands, one behind the other."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 3], "little")
        if len(data) - at < 5 or not size or data[at + 3] or data[at + 4] > binary.LAST_COMMAND:
            return False
        at += 4 + size
    return True

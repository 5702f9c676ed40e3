"""A target whose capacity is known: a relay before a real server that carries out one marked statement at a time.

Each takes a fixed time by a clock of its own, which goes on from where the statement before ended: how much it carries
in a second depends on no speed of the machine.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

_QUERY = 3


class BusyTarget:
    """Relays connections to a server; statements that hold ``mark`` queue for ``seconds`` each.

    ``slow`` are further seconds of single statements, by their numbers from 0, which keep no other one waiting.
    """

    def __init__(self, host: str, port: int, mark: bytes, seconds: float, slow: Mapping[int, float]) -> None:
        self._server, self._mark, self._seconds, self._slow = (host, port), mark, seconds, slow
        self._free, self._count = 0.0, 0
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])

    def start(self) -> None:
        """Accept connections until ``close``."""
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End all connections."""
        for one in (self._listener, *self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._server)
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets += [client, server]
            threading.Thread(target=self._relay, args=(server, client), daemon=True).start()
            threading.Thread(target=self._relay_commands, args=(client, server), daemon=True).start()

    def _relay(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def _relay_commands(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while packet := _packet(client):
                if packet[3] == 0 and packet[4] == _QUERY and self._mark in packet:
                    time.sleep(max(0.0, self._turn() - time.monotonic()))
                server.sendall(packet)
        with suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def _turn(self) -> float:
        """Return when the next statement is over."""
        with self._lock:
            self._free = max(time.monotonic(), self._free) + self._seconds
            self._count += 1
            return self._free + self._slow.get(self._count - 1, 0.0)


def _packet(source: socket.socket) -> bytes:
    """Return the next packet with its header; empty at the end."""
    header = _exactly(source, 4)
    return header + _exactly(source, int.from_bytes(header[:3], "little")) if header else b""


def _exactly(source: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        data = source.recv(size - len(parts))
        if not data:
            return b""
        parts += data
    return parts


@contextmanager
def busy_target(host: str, port: int, mark: bytes, seconds: float, slow: Mapping[int, float]) -> Iterator[int]:
    """Start one; yield its port."""
    target = BusyTarget(host, port, mark, seconds, slow)
    target.start()
    try:
        yield target.port
    finally:
        target.close()

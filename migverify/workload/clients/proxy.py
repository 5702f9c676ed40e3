"""What scenarios may do to the network and to servers: a proxy for each side, and restarts where servers are ours.

A cut in the middle of a transaction has several forms for a client: the connection is reset at once; the server says
nothing any more; or, the worst, the COMMIT arrives and only its answer is lost.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from migverify.errors import UsageError

_BLOCK = 65536
_TICK_SECONDS = 0.05


class Mode(StrEnum):
    """What the proxy does with bytes."""

    PASS = "pass"  # noqa: S105  (a word, no secret)
    SILENCE = "silence"  # nothing moves, nobody is informed
    LOSE_ANSWER = "lose-answer"  # the client's next bytes arrive; the answer is dropped and the client cut off


@dataclass(slots=True)
class _ProxiedPair:
    client: socket.socket
    server: socket.socket
    asked: bool = field(default=False)  # in LOSE_ANSWER: the client has sent something since


class Proxy:
    """Listens on a free port of the loopback and forwards to one address, in a thread of its own."""

    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._mode = Mode.PASS
        self._pairs: dict[socket.socket, _ProxiedPair] = {}
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="proxy", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """``host:port`` for the client."""
        host, port = self._listener.getsockname()[:2]
        return f"{host}:{port}"

    def set(self, mode: Mode) -> None:
        """Change what happens to bytes from now on."""
        with self._lock:
            self._mode = mode
            for pair in self._pairs.values():
                pair.asked = False

    def cut(self) -> int:
        """Reset every connection, as a router or a crashed host does; returns how many."""
        with self._lock:
            pairs = {id(pair): pair for pair in self._pairs.values()}
            for pair in pairs.values():
                self._drop(pair, reset=True)
            return len(pairs)

    def close(self) -> None:
        """End the thread and every connection."""
        self._closing = True
        self._thread.join()
        self.cut()
        self._selector.unregister(self._listener)
        self._listener.close()
        self._selector.close()

    def _serve(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select(_TICK_SECONDS):
                with self._lock:
                    if key.fileobj is self._listener:
                        self._accept()
                    elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._pairs:
                        self._forward(key.fileobj, self._pairs[key.fileobj])

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(self._to, timeout=5)
        except OSError:
            client.close()  # the client sees what it would see of a server that is down
            return
        client.setblocking(True)
        server.settimeout(None)
        pair = _ProxiedPair(client, server)
        for side in (client, server):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs[side] = pair
            self._selector.register(side, selectors.EVENT_READ)

    def _forward(self, ready: socket.socket, pair: _ProxiedPair) -> None:
        if self._mode is Mode.SILENCE:
            # Not read on purpose; unregistered, or select would return at once for ever.
            self._selector.unregister(ready)
            return
        from_client = ready is pair.client
        try:
            data = ready.recv(_BLOCK)
            if self._mode is Mode.LOSE_ANSWER:
                pair.asked = pair.asked or (from_client and bool(data))
                if not from_client and pair.asked:
                    self._drop(pair, reset=True)
                    return
            if data:
                (pair.server if from_client else pair.client).sendall(data)
        except OSError:
            data = b""
        if not data:
            self._drop(pair, reset=False)

    def _drop(self, pair: _ProxiedPair, *, reset: bool) -> None:
        for side in (pair.client, pair.server):
            if self._pairs.pop(side, None) is None:
                continue
            with contextlib.suppress(KeyError, ValueError):  # silenced ones are not registered any more
                self._selector.unregister(side)
            if reset and side is pair.client:
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            side.close()


class NetworkController:
    """Proxies in front of both sides; ``restart`` stops and starts a server and returns when it answers again."""

    def __init__(self, addresses: Mapping[str, tuple[str, int]], restart: Callable[[str], None] | None = None) -> None:
        self.proxies = {side: Proxy(host, port) for side, (host, port) in addresses.items()}
        self._restart = restart

    def can(self, need: str) -> bool:
        """Whether ``proxy``, ``restart`` or ``own-servers`` (global settings may be changed) is possible here."""
        return need == "proxy" or (need in ("restart", "own-servers") and self._restart is not None)

    def begin(self, side: str) -> None:
        """Forward again: undo what an earlier cell did to the network of a side."""
        self.proxies[side].cut()
        self.proxies[side].set(Mode.PASS)

    def do(self, side: str, what: Mapping[str, Any]) -> dict[str, Any]:
        """Cut, silence or lose an answer (``cut``, ``network``), or restart the server."""
        action, mode = what.get("what"), what.get("mode")
        if action == "cut":
            self.proxies[side].cut()
        elif action == "network" and mode in set(Mode):
            self.proxies[side].set(Mode(str(mode)))
        elif action == "restart" and self._restart is not None:
            self._restart(side)
        else:
            raise UsageError(f"a scenario needs {action} {mode or ''}, which is not possible here")
        return {}

    def close(self) -> None:
        """End the proxies."""
        for proxy in self.proxies.values():
            proxy.close()

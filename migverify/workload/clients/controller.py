"""What scenarios may do to the network and to servers: a proxy for each side, and restarts where servers are ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from migverify.errors import UsageError
from migverify.workload.clients.proxy import Mode, Proxy


class NetworkController:
    """Proxies in front of both sides; ``restart`` stops and starts a server and returns when it answers again."""

    def __init__(self, addresses: Mapping[str, tuple[str, int]], restart: Callable[[str], None] | None = None) -> None:
        self.proxies = {side: Proxy(host, port) for side, (host, port) in addresses.items()}
        self._restart = restart

    def can(self, need: str) -> bool:
        """Whether ``proxy``, ``restart`` or ``own-servers`` (global settings may be changed) is possible here."""
        return need == "proxy" or (need in ("restart", "own-servers") and self._restart is not None)

    def begin(self, side: str) -> None:
        """Forward again, whatever an earlier cell left."""
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
            raise UsageError(f"a scenario asks for {action} {mode or ''}, which is not possible here")
        return {}

    def close(self) -> None:
        """End the proxies."""
        for proxy in self.proxies.values():
            proxy.close()

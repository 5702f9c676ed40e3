"""Two HTTP servers in one process: the old and the new side. Each keeps in a ledger what it accepted.

Run as ``python -m migverify_lab.nginx_sides FOLDER OLD_PORT NEW_PORT``.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

__all__ = ["main"]


class HttpSide:
    """One side. The ledger's line is written before the answer: what was acknowledged is in it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.errors, self.delay = name, 0.0, 0.0
        self._ledger = os.open(folder / f"{name}.ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection until it ends."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                status, body = await self._answer(head.split(b" ", 2)[1].decode("ascii", "replace"))
                text = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nX-Side: {self.name}\r\n\r\n{body}"
                writer.write(text.encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # the client went
        finally:
            writer.close()

    async def _answer(self, target: str) -> tuple[int, str]:
        parts = urlsplit(target)
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path == "/fault":
            self.errors, self.delay = float(asked.get("errors", 0)), float(asked.get("delay", 0))
            return 200, "set"
        if self.delay:
            await asyncio.sleep(self.delay)
        if parts.path != "/up" and random.random() < self.errors:
            return 500, "refused"
        if "id" in asked:
            os.write(self._ledger, f"{asked['id']}\t{asked.get('key', '')}\t{time.time():.3f}\n".encode())
        return 200, self.name


async def _serve(folder: Path, ports: dict[str, int]) -> None:
    servers = [
        await asyncio.start_server(HttpSide(name, folder).serve, "127.0.0.1", port) for name, port in ports.items()
    ]
    await asyncio.gather(*(server.serve_forever() for server in servers))


def main(arguments: list[str]) -> None:
    """Serve until ended."""
    folder, old, new = arguments
    asyncio.run(_serve(Path(folder), {"old": int(old), "new": int(new)}))


if __name__ == "__main__":
    main(sys.argv[1:])

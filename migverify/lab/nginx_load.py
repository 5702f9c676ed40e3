"""Writes with keys through nginx at a steady rate, a ledger of what was acknowledged, and the check of it.

Run as ``python -m migverify.lab.nginx_load FOLDER PORT,PORT RATE KEYS SEED`` until SIGTERM.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Balance", "balance", "main", "send"]

_CONNECTIONS = 4
_ANSWER_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Balance:
    """What the ledgers say together: acknowledged writes that are not exactly once on the side that said so, and so on.

    Parameters
    ----------
    missing
        Acknowledged, and in no ledger.
    elsewhere
        Acknowledged by one side, in the ledger of the other.
    twice
        In both ledgers, or twice in one.
    unknown
        In a ledger, and never sent.
    """

    sent: int
    acknowledged: int
    failed: int
    missing: int
    elsewhere: int
    twice: int
    unknown: int

    @property
    def good(self) -> bool:
        """Whether nothing is lost, doubled or in the wrong place, and there was something to look at."""
        return self.acknowledged > 0 and not (self.missing or self.elsewhere or self.twice or self.unknown)


class _Connection:
    """One connection to nginx that is opened again when nginx closes it, as it does on a reload."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, target: str) -> tuple[int, str]:
        """Send one request; returns status and side. A request is never sent twice: it might be done twice."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(f"GET {target} HTTP/1.1\r\nHost: lab\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        fields = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in head.split("\r\n")[1:])}
        await reader.readexactly(int(fields.get("content-length", "0")))
        if fields.get("connection", "").lower() == "close":
            self.close()
        return int(head.split(" ", 2)[1]), fields.get("x-side", "")

    def close(self) -> None:
        """Give the connection up."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def send(
    folder: Path, ports: Sequence[int], rate: float, keys: int, seed: int, stop: asyncio.Event, seconds: float = 1e9
) -> None:
    """Send writes until told to stop; each is in ``sent.ledger`` before it goes, its answer in ``acked.ledger``."""
    chance, began, until = random.Random(seed), time.time_ns(), time.monotonic() + seconds
    counter = itertools.count()
    sent, acked = (os.open(folder / f"{name}.ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND) for name in _OWN)

    async def work(port: int, wait: float) -> None:
        connection, due = _Connection(port), time.monotonic()
        while not stop.is_set() and time.monotonic() < until:
            id_, key = f"{began}-{next(counter)}", f"user-{chance.randrange(keys)}"
            os.write(sent, f"{id_}\n".encode())
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    status, side = await connection.ask(f"/pay?key={key}&id={id_}")
                os.write(acked, f"{id_}\t{key}\t{side if status == 200 else '-'}\t{port}\n".encode())
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                connection.close()
                await asyncio.sleep(0.02)
            due = max(due + wait, time.monotonic() - 1)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        connection.close()

    workers = [port for port in ports for _ in range(_CONNECTIONS)]
    await asyncio.gather(*(work(port, len(workers) / rate) for port in workers))
    for handle in (sent, acked):
        os.close(handle)


_OWN = ("sent", "acked")


def _lines(path: Path) -> Iterator[list[str]]:
    if path.exists():
        with path.open(encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n"):
                    yield line[:-1].split("\t")


def balance(folder: Path) -> Balance:
    """Hold the ledgers of both sides against what was sent and acknowledged."""
    # In this order, so that it may be asked under load: what is acknowledged is in a side's ledger before, and in that
    # of what was sent before that.
    acked = {line[0]: line[2] for line in _lines(folder / "acked.ledger")}
    where: dict[str, list[str]] = {}
    for side in ("old", "new"):
        for line in _lines(folder / f"{side}.ledger"):
            where.setdefault(line[0], []).append(side)
    sent = {line[0] for line in _lines(folder / "sent.ledger")}
    yes = {id_: side for id_, side in acked.items() if side != "-"}
    return Balance(
        len(sent), len(yes), len(sent) - len(yes),
        missing=sum(id_ not in where for id_ in yes),
        elsewhere=sum(id_ in where and side not in where[id_] for id_, side in yes.items()),
        twice=sum(len(sides) > 1 for sides in where.values()),
        unknown=sum(id_ not in sent for id_ in where),
    )  # fmt: skip


async def _main(arguments: list[str]) -> None:
    folder, ports, rate, keys, seed = arguments
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await send(Path(folder), [int(one) for one in ports.split(",")], float(rate), int(keys), int(seed), stop)


def main(arguments: list[str]) -> None:
    """Send until SIGTERM."""
    asyncio.run(_main(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])

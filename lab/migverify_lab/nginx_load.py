"""Writes with keys through nginx, and the check of the ledgers of both sides.

Run as ``python -m migverify_lab.nginx_load FOLDER PORT,PORT RATE KEYS SEED`` until SIGTERM.
"""

from __future__ import annotations

import http.client
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from migverify_lab.ledger import ACKED, UNKNOWN, LedgerCheck, compare_with_ledger, read_ledger
from migverify_lab.load import Load, TryOutcome

__all__ = ["LEDGER", "HttpClient", "balance", "main"]

LEDGER = "ledger.txt"
_CONNECTIONS = 4
_ANSWER_SECONDS = 15.0


class HttpClient:
    """One connection to nginx; opened again when nginx closes it, as it does on a reload.

    A request is never sent twice: it might be done twice.
    """

    def __init__(self, port: int, keys: int, seed: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_SECONDS)
        self._keys, self._rng = keys, random.Random(seed)

    def attempt(self, token: str) -> TryOutcome:
        """Send one write."""
        try:
            self._connection.request("GET", f"/pay?key=user-{self._rng.randrange(self._keys)}&id={token}")
            answer = self._connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            return TryOutcome(UNKNOWN, text=str(error))
        # Anything but 200 may come from nginx as well as from a side.
        done = ACKED if answer.status == http.HTTPStatus.OK else UNKNOWN
        return TryOutcome(done, answer.getheader("X-Side") or "", answer.status)

    def close(self) -> None:
        """Give the connection up."""
        self._connection.close()


def balance(folder: Path) -> LedgerCheck:
    """Compare the ledgers of both sides with that of the load; may be asked while writing goes on."""
    # Acknowledged writes are in a side's ledger before, and in that of the load as tries before that.
    attempts = read_ledger(folder / LEDGER, may_be_missing=True)
    rows: dict[str, list[str]] = {}
    for side in ("old", "new"):
        for token in _tokens(folder / f"{side}.ledger"):
            rows.setdefault(token, []).append(side)
    tried = {one.token for one in read_ledger(folder / LEDGER, may_be_missing=True)}
    return compare_with_ledger(attempts, rows, tried)


def _tokens(path: Path) -> Iterator[str]:
    if path.exists():
        with path.open(encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n"):
                    yield line.split("\t")[0]


def main(arguments: list[str]) -> None:
    """Send until SIGTERM."""
    folder, ports, rate, keys, seed = arguments
    clients = [
        HttpClient(int(port), int(keys), f"{seed} {port} {number}")
        for port in ports.split(",") for number in range(_CONNECTIONS)
    ]  # fmt: skip
    load = Load(clients, Path(folder) / LEDGER, float(rate))
    signal.signal(signal.SIGTERM, lambda *_: load.stopped.set())
    load.run()


if __name__ == "__main__":
    main(sys.argv[1:])

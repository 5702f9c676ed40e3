"""Wires to both test servers, and what is asked over them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from migverify.db.session import open_socket
from migverify.model import Endpoint, Side, Tls
from migverify.workload.model import Parameter
from migverify.workload.replay.model import Answer, Call
from migverify.workload.replay.wire import Limits, ServerWire
from migverify.workload.state import SessionState
from tests.conftest import Databases

SIDES = [Side.SOURCE, Side.TARGET]
EVERYTHING = Limits(rows=1_000_000, bytes=1 << 30)


def endpoint(databases: Databases, side: Side, mode: str = "preferred") -> Endpoint:
    server = databases.pair.source if side is Side.SOURCE else databases.pair.target
    return Endpoint(side.value, server.host, server.port, server.user, tls=Tls(mode))


@contextmanager
def wired(databases: Databases, side: Side, limits: Limits = EVERYTHING, **options: bool) -> Iterator[ServerWire]:
    wire = ServerWire(open_socket(endpoint(databases, side), None, **options), side, limits)
    try:
        assert wire.command(f"USE `{databases.name}`".encode()).ok
        yield wire
    finally:
        wire.close()


def call(sql: str | bytes, *parameters: Parameter) -> Call:
    text = sql.encode() if isinstance(sql, str) else sql
    return Call("1", 1, text, "", SessionState(), parameters=parameters or None)


def rows(answer: Answer) -> list[tuple[bytes | None, ...]]:
    assert answer.ok, answer
    assert answer.rows is not None
    return list(answer.rows)

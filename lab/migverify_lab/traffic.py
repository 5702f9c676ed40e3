"""The clients of a payment service at work on one server, written down by that server's own log.

A capture needs a log that a real server wrote of real sessions. ``prepare`` gives every server the same rows, before
the traffic and again before its replay, as a restored backup would.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from migverify.errors import LabError
from migverify_lab.servers import LabServer
from migverify_lab.session import connect
from migverify_lab.traffic_scripts import Script
from migverify_lab.workload import Workload, WorkloadOptions, create

CHANGES = 3000
CONNECTIONS = 2


class Log(StrEnum):
    """The log that keeps the traffic."""

    SLOW = "slow"
    GENERAL = "general"


@dataclass(slots=True)
class TrafficResult:
    """What was asked; ``errors`` counts the server's refusals by their number."""

    sessions: int = 0
    statements: int = 0
    seconds: float = 0.0
    errors: Counter[int] = field(default_factory=Counter)


def prepare(servers: Sequence[LabServer], database: str, accounts: int, seed: int) -> None:
    """Give every server the same payments; old rows of the tables are lost.

    Raises
    ------
    LabError
        a server does not answer.
    """
    create(tuple(servers), database, accounts, seed)
    for server in servers:
        Workload(WorkloadOptions(server, database, 0.0, CHANGES, CONNECTIONS, accounts=accounts, seed=seed)).run()


def run(server: LabServer, scripts: Sequence[Script]) -> TrafficResult:
    """Ask what the scripts say, each in a connection of its own, all at once.

    Raises
    ------
    LabError
        the server does not answer, or a connection was lost.
    """
    result = TrafficResult(sessions=len(scripts))
    lock = threading.Lock()
    failures: list[BaseException] = []
    began = time.monotonic()

    def work(script: Script) -> None:
        try:
            asked, errors = _ask(server, script)
        except BaseException as error:  # noqa: BLE001 - raised on the caller's thread
            failures.append(error)
            return
        with lock:
            result.statements += asked
            result.errors += errors

    threads = [threading.Thread(target=work, args=(script,), daemon=True) for script in scripts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    result.seconds = time.monotonic() - began
    return result


def _ask(server: LabServer, script: Script) -> tuple[int, Counter[int]]:
    import pymysql

    errors: Counter[int] = Counter()
    with connect(server) as connection, connection.cursor() as cursor:
        for pause, text in script.statements:
            time.sleep(pause)
            try:
                cursor.execute(text)
            except (pymysql.err.OperationalError, pymysql.err.InterfaceError) as error:
                if error.args[0] in (2006, 2013, 0):
                    raise LabError(f"{server} left a session of the traffic: {error}") from error
                errors[error.args[0]] += 1
            except pymysql.err.MySQLError as error:
                errors[error.args[0]] += 1
        # A server writes the record of a statement after its answer: this answer says that the last record is there.
        connection.ping(reconnect=False)
    return len(script.statements), errors


_SETTINGS = {
    Log.SLOW: ("slow_query_log_file", "slow_query_log",
               {"long_query_time": "0", "log_slow_extra": "ON", "log_output": "'FILE'"}),
    Log.GENERAL: ("general_log_file", "general_log", {"log_output": "'FILE'"}),
}  # fmt: skip


@contextmanager
def logged(server: LabServer, log: Log, path: Path) -> Iterator[None]:
    """Let a server of this machine write a log of everything into a file; its settings come back at the end.

    Raises
    ------
    LabError
        the file is there already, or the server knows no such log.
    """
    import pymysql

    if path.exists():
        raise LabError(f"{path} is there already", hint="A log is appended to: name another file, or remove it.")
    place, switch, settings = _SETTINGS[log]
    wanted = {**settings, place: f"'{path.resolve()}'", switch: "ON"}
    with connect(server) as connection, connection.cursor() as cursor:
        old: dict[str, str] = {}
        try:
            for name, value in wanted.items():
                cursor.execute(f"SELECT @@GLOBAL.{name}")
                found = cursor.fetchone()
                old[name] = _literal(found[0] if found else None)
                cursor.execute(f"SET GLOBAL {name} = {value}")
        except pymysql.err.MySQLError as error:
            _restore(cursor, old)
            raise LabError(f"{server} cannot write its {log} log to {path}: {error}",
                           hint="Only a server of this machine can write here.") from error  # fmt: skip
        try:
            yield
        finally:
            _restore(cursor, old)


def _restore(cursor: object, old: dict[str, str]) -> None:
    for name in reversed(old):  # the switch first: a log must not go on at its old place meanwhile
        cursor.execute(f"SET GLOBAL {name} = {old[name]}")  # type: ignore[attr-defined]


def _literal(value: object) -> str:
    if value is None:
        return "DEFAULT"
    return str(value) if isinstance(value, int | float) else f"'{value}'"

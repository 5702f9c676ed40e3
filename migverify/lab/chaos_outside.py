"""Faults around the servers: a disk that is full, a cache that is lost."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from migverify.errors import LabError
from migverify.lab import mysql, servers
from migverify.lab.cache import make_directory
from migverify.lab.chaos import Fault, Settings
from migverify.lab.chaos_load import ACCOUNTS, DATABASE, app_session, write_probe
from migverify.lab.chaos_world import Proof, World, rows_of, until
from migverify.lab.packages import REDIS, provide
from migverify.lab.process import free_port, spawn, stop, tail
from migverify.lab.servers import LabServer

# --- a disk that is full ------------------------------------------------------------------------------------------

DISK = "small"
"""Name of the server on the small disk, and of its folder."""
DISK_MEGABYTES = 360


def prepare_disk(world: World) -> None:
    """Start a MySQL whose data lie on a small file system of their own (tmpfs); needs the right to mount.

    Raises
    ------
    LabError
        it may not be mounted here, or the server does not start.
    """
    folder = make_directory(world.folder / DISK)
    end_disk(world)
    done = subprocess.run(  # noqa: S603
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MEGABYTES}m", "migverify-lab", str(folder)],  # noqa: S607
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise LabError(f"no small file system can be mounted here: {done.stderr.strip()}",
                       hint="This case needs root, or a container with CAP_SYS_ADMIN.")  # fmt: skip
    programs, data = mysql.provide(lambda _: None), folder / "data"
    make_directory(folder / "tmp")
    mysql.initialize(programs, folder, data)
    port = free_port()
    command = [*mysql.serve_command(programs, folder, data, port, 3), "--innodb-redo-log-capacity=8M",
               "--innodb-buffer-pool-size=64M"]  # fmt: skip
    process = spawn(command, folder / "server.log", folder)
    try:
        server = servers.wait_for(LabServer("127.0.0.1", port, "root", "mysql", ""))
    except LabError:
        stop(process)
        raise
    world.add_server(DISK, server)


def end_disk(world: World) -> bool:
    """Stop that server and give its file system back; returns whether there was one."""
    for process in world.processes(DISK):
        stop(process, 20.0)
    folder = world.folder / DISK
    if not os.path.ismount(folder):
        return False
    deadline = time.monotonic() + 20
    while True:  # a server that was killed holds its files until the kernel has put it away
        done = subprocess.run(["umount", str(folder)], capture_output=True, text=True, check=False)  # noqa: S603, S607
        if not done.returncode:
            return True
        if time.monotonic() > deadline:
            raise LabError(f"{folder} cannot be unmounted: {done.stderr.strip()}", hint="Look who uses it: `fuser -m`.")
        time.sleep(0.5)


def _fill(world: World, _settings: Settings) -> dict[str, Any]:
    path = world.folder / DISK / "filler"
    written = 0
    with path.open("wb", buffering=0) as filler:
        for piece in (b"\0" * (1 << 20), b"\0" * 4096):
            with suppress(OSError):
                while True:
                    written += filler.write(piece)
    return {"megabytes": written >> 20}


def _is_full(world: World, _settings: Settings, since: float) -> Proof:
    """The file system has no block left, clients that write hang or are refused, and a reader is answered."""
    free = os.statvfs(world.folder / DISK).f_bavail * os.statvfs(world.folder / DISK).f_frsize
    failed = world.failures_since(since)
    codes = sorted({one.code for one in failed})
    log = tail(world.folder / DISK / "server.log", 12)
    says = "disk is full" in log.lower() or "no space left" in log.lower()
    log = "says it" if says else "is silent about it"
    read = rows_of(world, DISK, f"SELECT COUNT(*) FROM {DATABASE}.accounts")[0][0] == ACCOUNTS  # noqa: S608
    text = f"{free} bytes left; {len(failed)} attempts failed or hang, codes {codes}; the log {log}"
    return Proof(
        free < 65536 and bool(failed) and read,
        f"{text}; a reader is answered",
        {"free": free, "codes": codes, "log_says": says},
    )


def _make_room(world: World, settings: Settings) -> dict[str, Any]:
    path = world.folder / DISK / "filler"
    path.unlink(missing_ok=True)
    # MySQL waits for room, and looks for it once a minute.
    seen = until(lambda: _has_room(world, settings, 0.0), float(settings["looks_within"]))
    return {"writes": seen.good, "text": seen.text}


def _has_room(world: World, _settings: Settings, _since: float) -> Proof:
    free = os.statvfs(world.folder / DISK).f_bavail * os.statvfs(world.folder / DISK).f_frsize
    if not os.path.ismount(world.folder / DISK) or free < 1 << 20:
        return Proof(False, f"{free} bytes left")
    write_probe(world.server(DISK))
    return Proof(True, f"{free >> 20} MiB left, and a write is taken")


# --- a cache that is lost -----------------------------------------------------------------------------------------

KEYS = 400
READS_PER_SECOND = 400
"""What the readers ask for; a busy machine may reach less."""
CALM, STORM = 10.0, 50.0
"""Reads per second that come through to the source: at most with a warm cache, at least without one."""


@dataclass(slots=True)
class Redis:
    """As much of Redis' protocol as a cache-aside reader needs, over one connection."""

    port: int
    _socket: socket.socket | None = None
    _file: Any = None

    def ask(self, *words: str) -> str | None:
        """Send one command; returns the answer as text, None for none.

        Raises
        ------
        OSError
            nobody answers; the next question tries a new connection.
        """
        try:
            if self._socket is None:
                self._socket = socket.create_connection(("127.0.0.1", self.port), 0.5)
                self._file = self._socket.makefile("rb")
            self._socket.sendall("".join([f"*{len(words)}\r\n", *(f"${len(w)}\r\n{w}\r\n" for w in words)]).encode())
            line = self._file.readline().decode().rstrip()
            if not line:
                raise ConnectionResetError("Redis closed the connection")
            if line[0] != "$":
                return str(line[1:])
            size = int(line[1:])
            return None if size < 0 else str(self._file.read(size + 2)[:-2].decode())
        except OSError:
            if self._socket is not None:
                self._socket.close()
            self._socket = None
            raise


def start_redis(world: World) -> int:
    """Start an empty Redis that keeps nothing on disk; returns its port.

    Raises
    ------
    LabError
        there is no way to get a redis-server, or it does not answer.
    """
    program = provide(REDIS, lambda _: None)
    port = int((world.read("redis") or {}).get("port") or free_port())
    world.write("redis", {"port": port})
    arguments = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                 "--dir", str(world.folder)]  # fmt: skip
    world.start_job("redis", arguments, command=program)
    deadline = time.monotonic() + 10
    while True:
        try:
            Redis(port).ask("PING")
        except OSError:
            if time.monotonic() > deadline:
                raise LabError("redis-server does not answer", hint=world.job_log("redis")) from None
            time.sleep(0.1)
        else:
            return port


def prepare_cache(world: World) -> None:
    """Start Redis, and readers that ask it before they ask the source."""
    start_redis(world)
    world.start_job("readers", ["lab", "chaos", "job", "readers", "--dir", str(world.directory)])


def be_readers(world: World, _arguments: Sequence[str], ended: threading.Event) -> None:
    """Read accounts: from the cache, else from the source and into the cache."""
    port = int((world.read("redis") or {})["port"])
    threads = [threading.Thread(target=_reader, args=(world, port, number, ended), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _reader(world: World, port: int, number: int, ended: threading.Event) -> None:
    import pymysql

    redis, connection, turn = Redis(port), None, number
    while not ended.wait(4 / READS_PER_SECOND):
        turn += 7
        key = f"account:{turn % KEYS}"
        value = None
        with suppress(OSError):
            value = redis.ask("GET", key)
        if value is not None:
            continue
        try:
            connection = connection or app_session(world.server("source"))
            with connection.cursor() as cursor:
                cursor.execute("SELECT /* cache miss */ balance FROM accounts WHERE id = %s", (turn % ACCOUNTS,))
                value = str(next(iter(cursor.fetchall()))[0])
        except (LabError, pymysql.err.MySQLError):
            connection = None
            continue
        with suppress(OSError):
            redis.ask("SET", key, value, "EX", "600")


def _reads(world: World) -> float:
    """Return the statements per second that the source answers for readers, measured on the source."""
    sql = ("SELECT COALESCE(SUM(COUNT_STAR), 0) FROM performance_schema.events_statements_summary_by_digest"  # noqa: S608
           f" WHERE SCHEMA_NAME = '{DATABASE}' AND DIGEST_TEXT LIKE 'SELECT `balance` FROM `accounts`%'")  # fmt: skip
    first, began = int(rows_of(world, "source", sql)[0][0]), time.monotonic()
    time.sleep(1.0)
    return (int(rows_of(world, "source", sql)[0][0]) - first) / (time.monotonic() - began)


def cache_is_warm(world: World) -> Proof:
    """Tell whether the cache answers nearly everything."""
    rate = _reads(world)
    good = world.job("readers") is not None and world.job("redis") is not None and rate <= CALM
    return Proof(good, f"readers ask the source {rate:.0f} times a second, of {READS_PER_SECOND} reads")


def _kill_cache(world: World, _settings: Settings) -> dict[str, Any]:
    process = world.job("redis")
    if process is None:
        raise LabError("no Redis runs", hint="Start the case with `migverify lab chaos start --with cache`.")
    os.kill(process.pid, 9)
    return {"pid": process.pid}


def _storms(world: World, _settings: Settings, _since: float) -> Proof:
    """Nobody answers for Redis, and the source is asked by nearly every reader."""
    port = int((world.read("redis") or {"port": 0})["port"])
    try:
        Redis(port).ask("PING")
        answers = True
    except OSError:
        answers = False
    rate = _reads(world)
    text = f"the cache {'answers' if answers else 'is gone'}; readers ask the source {rate:.0f} times a second"
    return Proof(not answers and rate >= STORM, text, {"rate": rate})


def _start_cache(world: World, _settings: Settings) -> dict[str, Any]:
    if world.job("redis") is None:
        start_redis(world)
    return {}


def _is_warm(world: World, _settings: Settings, _since: float) -> Proof:
    """Redis is younger than the fault, holds keys again, and the source is left in peace."""
    if "stopped" in (world.read("load") or {}) and world.job("redis") is None:
        return Proof(True, "the case is over, and ended its cache")
    port = int((world.read("redis") or {"port": 0})["port"])
    try:
        size = Redis(port).ask("DBSIZE")
    except OSError as error:
        return Proof(False, f"the cache does not answer: {error}")
    warm = cache_is_warm(world)
    return Proof(warm.good, f"the cache holds {size} keys; {warm.text}", {"keys": size})


FAULTS = (
    Fault("disk-full", "The file system of a server is filled to its last block.", _fill, _is_full, _make_room,
          _has_room, {"looks_within": "80"}),
    Fault("cache-lost", "The cache before the source is killed, and comes back empty.", _kill_cache, _storms,
          _start_cache, _is_warm, {}),
)  # fmt: skip

"""Faults of replication: the replicator is killed, or the source deletes the binlog that it has not read."""

from __future__ import annotations

import signal
import time
from typing import Any

from migverify.changes.model import Position
from migverify.errors import LabError
from migverify_lab.bank import DATABASE
from migverify_lab.chaos import Settings
from migverify_lab.chaos_start import NAME, REPLICATOR, caught_up, start_replicator
from migverify_lab.chaos_world import CaseWorkspace, case_fault
from migverify_lab.replicator_process import source_position
from migverify_lab.replicator_target import drop_checkpoint, place, read_checkpoint
from migverify_lab.session import connect
from migverify_lab.workspace import Proof, is_gone, signal_all

TABLES = ("accounts", "entries")
ROWS_OF_A_STATEMENT = 500


def _checkpoint(world: CaseWorkspace) -> Position | None:
    with connect(world.server("target"), seconds=10.0) as connection:
        found = read_checkpoint(connection, NAME)
    return None if found is None else found.at


def _oldest_log(world: CaseWorkspace) -> str:
    with connect(world.server("source"), seconds=10.0) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        return str(next(iter(cursor.fetchall()))[0])


# --- killed -----------------------------------------------------------------------------------------------------


def _kill(world: CaseWorkspace, _settings: Settings) -> dict[str, Any]:
    process = world.job(REPLICATOR)
    if process is None:
        raise LabError("no replicator runs", hint="Start it with `migverify lab chaos start --replicate`.")
    signal_all([process], signal.SIGKILL)
    is_gone(process, 10.0)
    return {"pid": process.pid}


def _is_stopped(world: CaseWorkspace, _settings: Settings, _since: float) -> Proof:
    """No process; the source goes on and the checkpoint on the target does not."""
    before, source_before = _checkpoint(world), source_position(world.server("source"))
    time.sleep(1.0)
    after, source_after = _checkpoint(world), source_position(world.server("source"))
    lives = world.job(REPLICATOR) is not None
    rests = before is not None and before == after
    moves = place(source_after) > place(source_before)
    text = (f"the replicator {'lives' if lives else 'is gone'}, its checkpoint {'rests at' if rests else 'moves:'}"
            f" {after}, the source {'goes on' if moves else 'does not move'}")  # fmt: skip
    return Proof(not lives and rests and moves, text, {"checkpoint": str(after), "source": str(source_after)})


def _go_on(world: CaseWorkspace, _settings: Settings) -> dict[str, Any]:
    if world.job(REPLICATOR) is None:
        start_replicator(world)
    return {"checkpoint": str(_checkpoint(world))}


def _follows(world: CaseWorkspace, _settings: Settings, _since: float) -> Proof:
    if "stopped" in (world.read("load") or {}) and world.job(REPLICATOR) is None:
        return Proof(True, "the case is over, and ended its replicator")
    return caught_up(world, 5.0)


# --- binlog purged ----------------------------------------------------------------------------------------------


def _purge(world: CaseWorkspace, _settings: Settings) -> dict[str, Any]:
    """Stop the replicator for longer than binlogs are kept, then start it again."""
    _kill(world, {})
    stood = _checkpoint(world)
    time.sleep(0.5)  # the source goes on: this is what will be missing
    with connect(world.server("source"), seconds=30.0) as connection, connection.cursor() as cursor:
        cursor.execute("FLUSH BINARY LOGS")
        time.sleep(0.3)
        cursor.execute("SHOW BINARY LOGS")
        last = str(list(cursor.fetchall())[-1][0])
        cursor.execute(f"PURGE BINARY LOGS TO '{last}'")
    start_replicator(world)
    return {"checkpoint": str(stood), "oldest": last}


def _is_a_hole(world: CaseWorkspace, _settings: Settings, _since: float) -> Proof:
    """The checkpoint's file is no more on the source, and the replicator ended, said why, and skipped nothing."""
    stood, oldest = _checkpoint(world), _oldest_log(world)
    lost = stood is not None and stood.file < oldest
    lives = world.job(REPLICATOR) is not None
    said = world.job_log(REPLICATOR)
    loud = "error:" in said and ("purged" in said.lower() or "deleted" in said.lower() or "not on the server" in said)
    reason = next((line for line in said.splitlines() if line.startswith("error:")), "nothing")[:200]
    text = (f"the checkpoint is at {stood}, the oldest binlog is {oldest}; the replicator"
            f" {'lives' if lives else 'ended'} and said {reason!r}")  # fmt: skip
    return Proof(lost and not lives and loud, text, {"checkpoint": str(stood), "oldest": oldest})


def _seed_again(world: CaseWorkspace, _settings: Settings) -> dict[str, Any]:
    """Copy everything at one position of the source, and replicate from there: never from the old checkpoint."""
    world.stop_job(REPLICATOR)
    rows = {}
    with connect(world.server("source"), DATABASE, seconds=60.0) as lock, \
            connect(world.server("source"), DATABASE, seconds=60.0) as reader, lock.cursor() as locking:  # fmt: skip
        locking.execute("FLUSH TABLES WITH READ LOCK")  # writes wait for as long as it takes to open a snapshot
        reader.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        at = source_position(world.server("source"))
        locking.execute("UNLOCK TABLES")
        with connect(world.server("target"), DATABASE, seconds=60.0) as target:
            drop_checkpoint(target, NAME)
            for table in TABLES:
                rows[table] = _copy(reader, target, table)
    start_replicator(world, f"{at.file}:{at.offset}")
    return {"at": str(at), "rows": rows}


def _copy(reader: Any, target: Any, table: str) -> int:
    with reader.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")  # noqa: S608 - a constant of this module
        rows = list(cursor.fetchall())
        marks = ", ".join(["%s"] * len(cursor.description))
    with target.cursor() as cursor:
        cursor.execute(f"TRUNCATE TABLE {table}")
        for first in range(0, len(rows), ROWS_OF_A_STATEMENT):
            cursor.executemany(f"INSERT INTO {table} VALUES ({marks})", rows[first : first + ROWS_OF_A_STATEMENT])  # noqa: S608
    return len(rows)


FAULTS = (
    case_fault("replicator-killed", "The replicator is killed (SIGKILL).", _kill, _is_stopped, _go_on, _follows, {}),
    case_fault("binlog-purged", "The source deletes the binlog before the replicator has read it.", _purge, _is_a_hole,
          _seed_again, _follows, {}),
)  # fmt: skip

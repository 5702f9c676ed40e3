"""Faults that clients make: a storm of connections, a forgotten transaction, ids that end, a hog, a wrong clock."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migverify.errors import LabError
from migverify_lab.bank import APP_USER, DATABASE, app_session
from migverify_lab.chaos import Settings
from migverify_lab.chaos_start import REPLICATOR, caught_up
from migverify_lab.chaos_world import CaseWorkspace, case_fault, rows_of
from migverify_lab.jobs import command_of
from migverify_lab.load import error_of
from migverify_lab.session import connect
from migverify_lab.snowflake import moment_of
from migverify_lab.workspace import Proof, until

if TYPE_CHECKING:
    import threading

REPORT = "nightly-report"
"""The name that the forgotten transaction's client gives of itself, as every client should."""
LAST_INT = 2_147_483_647
SHIFT_SEEN = 0.5
"""Seconds that an id's time and its row's may differ while all clocks are right."""


# --- a storm of connections -------------------------------------------------------------------------------------


def _storm(world: CaseWorkspace, _settings: Settings) -> dict[str, Any]:
    process = world.start_job("storm", command_of("storm", world.directory))
    return {"pid": process.pid}


def be_storm(directory: Path, _arguments: Sequence[str], ended: threading.Event) -> None:
    """Open connections as clients do after a failover, until there are no more, and keep them; then try again."""
    world = CaseWorkspace(directory)
    import pymysql

    server, kept = world.server("source"), []
    while not ended.is_set():
        try:
            kept.append(pymysql.connect(host=server.host, port=server.port, user=APP_USER, connect_timeout=5,
                                        read_timeout=5, ssl_disabled=True))  # fmt: skip
        except (pymysql.err.MySQLError, OSError):
            ended.wait(0.5)


_SESSIONS = (
    "SELECT (SELECT VARIABLE_VALUE FROM performance_schema.global_status WHERE VARIABLE_NAME = 'Threads_connected'),"
    " @@GLOBAL.max_connections"
)


def _is_full(world: CaseWorkspace, _settings: Settings, since: float) -> Proof:
    """The server counts as many sessions as it may have, refuses one more client, and did so to the load."""
    # In one session: root's one extra connection is also what every refused client takes for a moment.
    ((connected, most),) = rows_of(world, "source", _SESSIONS)
    refused = _refused(world)
    codes = [one.code for one in world.failures_since(since)]
    text = (f"{connected} sessions of at most {most}; one more client gets {refused or 'in'};"
            f" the load was refused {codes.count(1040)} times")  # fmt: skip
    good = int(connected) >= int(most) - 2 and refused == 1040 and 1040 in codes
    return Proof(good, text, {"connected": int(connected), "most": int(most), "refused": refused})


def _refused(world: CaseWorkspace) -> int:
    try:
        with app_session(world.server("source")):
            return 0
    except LabError as error:
        return error_of(error)[0]


def _end_storm(world: CaseWorkspace, _settings: Settings) -> dict[str, Any]:
    return {"ended": world.stop_job("storm")}


def _is_calm(world: CaseWorkspace, _settings: Settings, _since: float) -> Proof:
    connected = int(rows_of(world, "source", "SHOW GLOBAL STATUS LIKE 'Threads_connected'")[0][1])
    refused = _refused(world)
    return Proof(connected < 50 and not refused, f"{connected} sessions; one more client gets {refused or 'in'}")


# --- a long transaction against DDL -----------------------------------------------------------------------------

_WAITS = f"""
SELECT w.waiting_pid, w.waiting_query, w.blocking_pid, COALESCE(a.ATTR_VALUE, '')
FROM sys.schema_table_lock_waits w
LEFT JOIN performance_schema.session_connect_attrs a
  ON a.PROCESSLIST_ID = w.blocking_pid AND a.ATTR_NAME = 'program_name'
WHERE w.object_schema = '{DATABASE}' AND w.waiting_query LIKE 'ALTER%' AND w.blocking_pid <> w.waiting_pid
"""  # noqa: S608 - a constant of this module


def _block(world: CaseWorkspace, settings: Settings) -> dict[str, Any]:
    world.start_job("report", command_of("report", world.directory))
    seen = until(lambda: Proof(bool(_named(world)), "the report's session"), 15.0)
    if not seen.good:
        raise LabError("the long transaction did not begin", hint=world.job_log("report"))
    world.start_job("alter", command_of("alter", world.directory))
    return {"found_within": settings["found_within"]}


def be_report(directory: Path, _arguments: Sequence[str], ended: threading.Event) -> None:
    """Read in a transaction, and forget to end it; gives its name, so that it can be found."""
    world = CaseWorkspace(directory)
    import pymysql

    server = world.server("source")
    with pymysql.connect(host=server.host, port=server.port, user=APP_USER, database=DATABASE, ssl_disabled=True,
                         program_name=REPORT) as connection:  # fmt: skip
        connection.begin()
        connection.query("SELECT COUNT(*) FROM entries")
        while not ended.wait(0.2):
            pass


def be_alter(directory: Path, _arguments: Sequence[str], _ended: threading.Event) -> None:
    """Add a column, however long it takes."""
    world = CaseWorkspace(directory)
    with connect(world.server("source"), DATABASE, seconds=120.0) as connection, connection.cursor() as cursor:
        cursor.execute("ALTER TABLE entries ADD COLUMN note VARCHAR(20) NULL")


def _named(world: CaseWorkspace) -> list[int]:
    sql = f"SELECT PROCESSLIST_ID FROM performance_schema.session_connect_attrs WHERE ATTR_VALUE = '{REPORT}'"  # noqa: S608
    return [int(row[0]) for row in rows_of(world, "source", sql)]


def _is_blocked(world: CaseWorkspace, settings: Settings, since: float) -> Proof:
    """The ALTER waits, and the server itself names who it waits for, soon enough."""
    waits = rows_of(world, "source", _WAITS)
    took = time.monotonic() - since
    names = sorted({str(row[3]) for row in waits})
    hanging = world.failures_since(since)
    text = f"{len(waits)} waits for a metadata lock, blocked by {names or 'nobody'}, found after {took:.1f} s"
    good = REPORT in names and bool(hanging) and took <= float(settings["found_within"])
    return Proof(good, f"{text}; {len(hanging)} writes hang or failed behind it", {"blockers": names, "took": took})


def _kill_blocker(world: CaseWorkspace, _settings: Settings) -> dict[str, Any]:
    """Kill whoever the server names, and not whom the injector started: that is what a person on call can do."""
    found = sorted(set(_named(world)))
    with connect(world.server("source"), seconds=10.0) as connection, connection.cursor() as cursor:
        for id_ in found:
            cursor.execute(f"KILL {id_}")
    return {"killed": found}


def _is_unblocked(world: CaseWorkspace, _settings: Settings, _since: float) -> Proof:
    """Nobody waits, the session is gone, and no ALTER is under way any more."""
    waits, named = rows_of(world, "source", _WAITS), _named(world)
    altering = rows_of(world, "source", "SELECT ID FROM information_schema.processlist WHERE INFO LIKE 'ALTER%'")
    text = f"{len(waits)} waits, sessions of {REPORT}: {named or 'none'}, {len(altering)} ALTER under way"
    return Proof(not waits and not named and not altering, text)


# --- ids that end -----------------------------------------------------------------------------------------------


def _use_ids_up(world: CaseWorkspace, settings: Settings) -> dict[str, Any]:
    first = LAST_INT - int(settings["left"])
    with connect(world.server("source"), DATABASE, seconds=60.0) as connection, connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE entries AUTO_INCREMENT = {first}")
    return {"next": first}


def _ids_ended(world: CaseWorkspace, _settings: Settings, since: float) -> Proof:
    """The largest id of the column is used, and inserts fail as MySQL's manual foretells: 1062, or 1467."""
    largest = rows_of(world, "source", f"SELECT MAX(id) FROM {DATABASE}.entries")[0][0]  # noqa: S608
    codes = [one.code for one in world.failures_since(since)]
    foretold = sum(code in (1062, 1467) for code in codes)
    text = f"the largest id is {largest} of {LAST_INT}; {foretold} of {len(codes)} failed inserts got 1062 or 1467"
    return Proof(largest == LAST_INT and foretold > 0, text, {"largest": largest, "codes": sorted(set(codes))})


def _widen(world: CaseWorkspace, _settings: Settings) -> dict[str, Any]:
    with connect(world.server("source"), DATABASE, seconds=60.0) as connection, connection.cursor() as cursor:
        cursor.execute("ALTER TABLE entries MODIFY id BIGINT NOT NULL AUTO_INCREMENT")
    return {"type": "bigint"}


def _ids_go_on(world: CaseWorkspace, _settings: Settings, _since: float) -> Proof:
    """The column is wide, and rows were inserted in the last two seconds, by the server's clock."""
    kind = rows_of(world, "source", f"SHOW COLUMNS FROM {DATABASE}.entries LIKE 'id'")[0][1]
    sql = f"SELECT MAX(id), SUM(at > NOW(6) - INTERVAL 2 SECOND) FROM {DATABASE}.entries"  # noqa: S608
    largest, fresh = rows_of(world, "source", sql)[0]
    good = kind == "bigint" and (int(fresh) > 0 or world.job("load") is None)
    return Proof(good, f"id is {kind}, the largest {largest}, {fresh} rows are new")


# --- one query that eats memory ---------------------------------------------------------------------------------

_QUOTA = 8 << 20
_HOG = "SELECT /* hog */ a.s, b.s FROM hog a JOIN hog b ON a.k = b.k ORDER BY b.s DESC, a.s"
_SUMMARY = (
    "SELECT COALESCE(SUM(SUM_ERRORS), 0), COALESCE(MAX(MAX_MEM), 0) FROM information_schema.statements_summary"  # noqa: S608
    f" WHERE SCHEMA_NAME = '{DATABASE}' AND DIGEST_TEXT LIKE '%join `hog`%'"
)


def _hog(world: CaseWorkspace, _settings: Settings) -> dict[str, Any]:
    with connect(world.server("target"), DATABASE, seconds=60.0) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS hog (k INT NOT NULL, s VARCHAR(1000) NOT NULL)")
        cursor.execute("INSERT INTO hog VALUES " + ", ".join(f"({n % 4}, REPEAT('{n}', 300))" for n in range(250)))  # noqa: S608
        cursor.execute(f"SET GLOBAL tidb_mem_quota_query = {_QUOTA}")
        cursor.execute("SET GLOBAL tidb_enable_tmp_storage_on_oom = OFF")
    world.start_job("hog", command_of("hog", world.directory))
    return {"quota": _QUOTA}


def be_hog(directory: Path, _arguments: Sequence[str], ended: threading.Event) -> None:
    """Ask for more than the quota, again and again."""
    world = CaseWorkspace(directory)
    import pymysql

    while not ended.is_set():
        # The connection reports that it was killed; the proof is read from the server.
        with (
            suppress(LabError, pymysql.err.MySQLError),
            app_session(world.server("target"), seconds=30.0) as connection,
        ):
            connection.query(_HOG)
        ended.wait(0.3)


def _hog_killed(world: CaseWorkspace, _settings: Settings, since: float) -> Proof:
    """The server's own statement summary says that it ended the query, and nobody else was hurt."""
    errors, memory = rows_of(world, "target", _SUMMARY)[0]
    failed = world.failures_since(since)
    text = f"the server ended the query {int(errors)} times, at {int(memory) >> 20} MiB; {len(failed)} others failed"
    return Proof(int(errors) > 0 and not failed, text, {"errors": int(errors), "memory": int(memory)})


def _end_hog(world: CaseWorkspace, _settings: Settings) -> dict[str, Any]:
    world.stop_job("hog")
    with connect(world.server("target"), DATABASE, seconds=60.0) as connection, connection.cursor() as cursor:
        cursor.execute("SET GLOBAL tidb_mem_quota_query = DEFAULT")
        cursor.execute("SET GLOBAL tidb_enable_tmp_storage_on_oom = DEFAULT")
    return {}


def _hog_over(world: CaseWorkspace, _settings: Settings, _since: float) -> Proof:
    sql = "SELECT COUNT(*) FROM information_schema.processlist WHERE INFO LIKE 'SELECT /* hog */%'"
    running = int(rows_of(world, "target", sql)[0][0])
    quota = int(rows_of(world, "target", "SELECT @@GLOBAL.tidb_mem_quota_query")[0][0])
    return Proof(not running and quota > _QUOTA, f"{running} such queries run; the quota is {quota >> 20} MiB")


# --- a large transaction ----------------------------------------------------------------------------------------


def _large(world: CaseWorkspace, settings: Settings) -> dict[str, Any]:
    rows = int(settings["rows"])
    with connect(world.server("source"), DATABASE, seconds=120.0) as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS bulk")
        cursor.execute("CREATE TABLE bulk (id INT NOT NULL PRIMARY KEY, v INT NOT NULL, s VARCHAR(60) NOT NULL)")
        cursor.execute("SET SESSION cte_max_recursion_depth = 10000000")
        connection.begin()
        cursor.execute(
            f"INSERT INTO bulk WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < {rows})"  # noqa: S608
            " SELECT i, 0, REPEAT('x', 40) FROM n"
        )
        cursor.execute("UPDATE bulk SET v = 1")
        connection.commit()
    return {"rows": rows, "changes": 2 * rows}


_BULK = f"SELECT COUNT(*), COALESCE(SUM(v), 0) FROM {DATABASE}.bulk"  # noqa: S608


def _is_large(world: CaseWorkspace, settings: Settings, _since: float) -> Proof:
    """The source holds every row in its last state."""
    count, changed = rows_of(world, "source", _BULK)[0]
    return Proof(
        int(count) == int(changed) == int(settings["rows"]), f"the source holds {count} rows, {changed} changed"
    )


def _wait_applied(world: CaseWorkspace, _settings: Settings) -> dict[str, Any]:
    if world.job(REPLICATOR) is None:
        return {"applied": None, "text": "the replicator does not run"}
    seen = until(lambda: caught_up(world, 10.0), 90.0)
    return {"applied": seen.good, "text": seen.text}


def _is_applied(world: CaseWorkspace, settings: Settings, _since: float) -> Proof:
    """The replicator lives and is at the end, and the target holds every row in its last state."""
    there = rows_of(world, "source", f"SHOW TABLES FROM {DATABASE} LIKE 'bulk'")
    count, changed = rows_of(world, "target", _BULK)[0] if there else (0, 0)
    good = not there or int(count) == int(changed) == int(settings["rows"])
    if "stopped" in (world.read("load") or {}):  # the case is over, and ended its replicator
        return Proof(good, f"the target holds {count} rows, {changed} changed")
    seen = caught_up(world, 5.0)
    return Proof(good and seen.good, f"the target holds {count} rows, {changed} changed; {seen.text}")


# --- a clock that is set back -----------------------------------------------------------------------------------


def _shift(world: CaseWorkspace, settings: Settings) -> dict[str, Any]:
    world.clock_path.write_text(settings["milliseconds"])
    return {"milliseconds": int(settings["milliseconds"])}


def _apart(world: CaseWorkspace) -> tuple[float, int]:
    """Return by how many seconds the newest ids are behind the moments of their rows, and how many ids these are.

    The newest few, not those of the last moment: on a busy machine a second passes without a row.
    """
    side = (world.read("load") or {"side": "source"})["side"]
    rows = rows_of(world, side, "SELECT id, UNIX_TIMESTAMP(at) FROM"  # noqa: S608
                   f" {DATABASE}.entries WHERE at > NOW(6) - INTERVAL 10 SECOND ORDER BY at DESC LIMIT 3")  # fmt: skip
    return max((abs(float(at) - moment_of(int(id_))) for id_, at in rows), default=0.0), len(rows)


def _is_shifted(world: CaseWorkspace, _settings: Settings, _since: float) -> Proof:
    apart, rows = _apart(world)
    return Proof(rows > 0 and apart > SHIFT_SEEN, f"the newest {rows} ids are up to {apart:.1f} s away from their rows")


def _set_right(world: CaseWorkspace, _settings: Settings) -> dict[str, Any]:
    world.clock_path.unlink(missing_ok=True)
    return {}


def _is_right(world: CaseWorkspace, _settings: Settings, _since: float) -> Proof:
    if world.job("load") is None:
        return Proof(not world.clock_path.exists(), "no generator runs")
    apart, rows = _apart(world)
    return Proof(rows > 0 and apart < SHIFT_SEEN, f"the newest {rows} ids are up to {apart:.1f} s away from their rows")


FAULTS = (
    case_fault("connection-storm", "Clients take every connection that the source has.", _storm, _is_full, _end_storm,
          _is_calm, {}),
    case_fault("long-transaction-ddl", "A forgotten transaction blocks an ALTER, which blocks every write.", _block,
          _is_blocked, _kill_blocker, _is_unblocked, {"found_within": "10"}),
    case_fault("ids-exhausted", "The ids of an INT column end.", _use_ids_up, _ids_ended, _widen, _ids_go_on,
          {"left": "5"}),
    case_fault("memory-hog", "One query asks for more memory than its quota on the target.", _hog, _hog_killed,
          _end_hog, _hog_over, {}),
    case_fault("large-transaction", "One transaction of very many rows, under replication.", _large, _is_large,
          _wait_applied, _is_applied, {"rows": "10000"}),
    case_fault("clock-shift-ids", "The clock of the processes that make snowflake ids is set back.", _shift,
          _is_shifted, _set_right, _is_right, {"milliseconds": "-4000"}),
)  # fmt: skip

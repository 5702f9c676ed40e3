"""The world of a cutover rehearsal: a shop on the pair, its application, a feed each way, and who may write.

The verbs here are those that a runbook asks of its hooks (docs/cutover.md): stop and open writes of a side, start and
stop a feed and tell its status, send the application to a side, rebase ids. On real servers they are somebody's own
scripts. A planted mistake makes one of them do wrong and say that it did right: a gate has to notice.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migverify.errors import LabError
from migverify.sql.applied import MARKER_COLUMNS
from migverify_lab import servers
from migverify_lab.feed.outputs import path_of
from migverify_lab.jobs import command_of
from migverify_lab.replicator_process import source_position
from migverify_lab.replicator_target import CHECKPOINTS, drop_checkpoint, read_checkpoint
from migverify_lab.session import LabServer, LabServers, connect, execute, query
from migverify_lab.workspace import Workspace

if TYPE_CHECKING:
    from pymysql.connections import Connection

FOLDER = "cutover"
DATABASE, FORWARD, REVERSE = "shop", "ops_forward", "ops_reverse"
BARRIER, CANARY, WATCH_MARKER = f"{FORWARD}.barrier", f"{REVERSE}.canary", f"{REVERSE}.watch_marker"
APP_USER, MARKER_USER, FEED_USER = "shop_app", "shop_marker", "shop_feed"
FEED_NAME = "cutover"
SCOPES = {
    "canary": (CANARY, WATCH_MARKER),
    "all": (CANARY, WATCH_MARKER, f"{DATABASE}.customers", f"{DATABASE}.orders"),
}
"""What the reverse feed carries."""
CUSTOMERS = 20
SIDES = ("source", "target")
PARTITIONS = 2
"""Files of the reverse feed's messages."""
WATCH = "watch"
"""The process of the reverse watch."""
MISTAKES = {
    "keep-sessions": "stopping writes locks the account, and leaves its sessions open",
    "feed-keeps-running": "the forward feed goes on, and its status says stopped",
    "stale-ids": "rebasing ids sets the target's counter back",
    "reverse-dead": "the reverse feed says that it runs, and carries nothing",
    "reverse-drops": "the reverse feed says that it runs, and does not apply the rows of one table",
}
_FEED_FAULTS = {"reverse-dead": "message-lost:every=1", "reverse-drops": "row-not-applied:every=1,table=orders"}

_TABLES = (
    f"DROP DATABASE IF EXISTS {DATABASE}", f"DROP DATABASE IF EXISTS {FORWARD}", f"DROP DATABASE IF EXISTS {REVERSE}",
    f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    f"CREATE DATABASE {FORWARD}", f"CREATE DATABASE {REVERSE}",
    f"CREATE TABLE {DATABASE}.customers (id INT NOT NULL PRIMARY KEY, balance DECIMAL(20,2) NOT NULL,"
    " version BIGINT NOT NULL) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    f"CREATE TABLE {DATABASE}.orders (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, token VARCHAR(40) NOT NULL,"
    " customer INT NOT NULL, amount DECIMAL(20,2) NOT NULL, state VARCHAR(10) NOT NULL,"
    " changed_at DATETIME(6) NOT NULL, KEY by_token (token)) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    *(f"CREATE TABLE {table} ({MARKER_COLUMNS})" for table in (BARRIER, CANARY, WATCH_MARKER)),
    *(f"DROP USER IF EXISTS {user}" for user in (APP_USER, MARKER_USER, FEED_USER)),
    *(f"CREATE USER {user}" for user in (APP_USER, MARKER_USER, FEED_USER)),
    f"GRANT SELECT, INSERT, UPDATE, DELETE ON {DATABASE}.* TO {APP_USER}",
    f"GRANT SELECT, INSERT, DELETE ON {BARRIER} TO {MARKER_USER}",
    f"GRANT SELECT, INSERT, DELETE ON {CANARY} TO {MARKER_USER}",
    f"GRANT SELECT, INSERT, UPDATE, DELETE ON {DATABASE}.* TO {FEED_USER}",
    f"GRANT SELECT, INSERT, UPDATE, DELETE ON {REVERSE}.* TO {FEED_USER}",
)  # fmt: skip


class Rehearsal(Workspace):
    """A rehearsal of a cutover in a lab's folder: the pair, and what is remembered beside it."""

    def __init__(self, directory: Path, pair: LabServers) -> None:
        super().__init__(directory.absolute() / FOLDER)
        self.directory, self.pair = directory, pair

    def server(self, side: str) -> LabServer:
        """Return a side.

        Raises
        ------
        LabError
            there is no such side.
        """
        if side not in SIDES:
            raise LabError(f"there is no side {side!r}", hint="Say source or target.")
        return self.pair.source if side == "source" else self.pair.target

    @property
    def config(self) -> Path:
        """The configuration for migverify."""
        return self.folder / "migverify.yaml"

    @property
    def history_config(self) -> Path:
        """The configuration for the load of history."""
        return self.folder / "history.yaml"

    @property
    def ledger(self) -> Path:
        """The answer the application received to each of its transactions."""
        return self.folder / "ledger.txt"

    def recall(self, name: str) -> str:
        """Return a remembered word, empty where there is none."""
        return str((self.read(name) or {}).get("word", ""))

    def remember(self, name: str, word: str) -> None:
        """Remember a word."""
        self.write(name, {"word": word})


def rehearsal(directory: Path | None) -> Rehearsal:
    """Return the rehearsal of a lab that is up.

    Raises
    ------
    LabError
        a side is not up.
    """
    folder = servers.lab_directory(directory)
    return Rehearsal(folder, servers.running_servers(folder))


def prepare(one: Rehearsal, mistake: str = "") -> None:
    """Make the shop anew on both sides, equal; the application may write on the source only.

    Raises
    ------
    LabError
        there is no such mistake, or a server refuses.
    """
    if mistake and mistake not in MISTAKES:
        raise LabError(f"no mistake is called {mistake!r}", hint=f"Known: {', '.join(MISTAKES)}.")
    for name in ("app", "forward", "reverse", WATCH):
        one.stop_job(name)
    rows = ", ".join(f"({number}, 0, 0)" for number in range(CUSTOMERS))
    for side in SIDES:
        with connect(one.server(side)) as connection:
            execute(connection, *_TABLES, f"INSERT INTO {DATABASE}.customers VALUES {rows}")  # noqa: S608
    for side in SIDES:
        with connect(one.server(side)) as connection:
            drop_checkpoint(connection, FEED_NAME)
    shutil.rmtree(_feed_folder(one), ignore_errors=True)
    one.ledger.unlink(missing_ok=True)
    one.remember("mistake", mistake)
    one.config.write_text(_config(one))
    begin = source_position(one.pair.source)
    one.remember("position", f"{begin.file}:{begin.offset}")
    with connect(one.pair.target) as connection:
        connection.begin()
        one.remember("timestamp", str(query(connection, "SELECT TIDB_CURRENT_TSO()")[0][0]))
    writes(one, "target", "stop")
    traffic(one, "source")


def _config(one: Rehearsal) -> str:
    store, files = one.folder / "store.db", [str(path_of(_feed_folder(one), n, lines=True)) for n in range(PARTITIONS)]
    return f"""\
source: {{host: 127.0.0.1, port: {one.pair.source.port}, user: root}}
target: {{host: 127.0.0.1, port: {one.pair.target.port}, user: root}}
store: "sqlite:///{store}"
tables:
  include: ["{DATABASE}.*"]
watch:
  applied: checkpoint
  checkpoint: {CHECKPOINTS}
  checkpoint_id: {FEED_NAME}
reverse:
  carrier: {{format: canal-json, files: {json.dumps(files)}, time_zone: UTC}}
  applied: marker
  marker: {WATCH_MARKER}
"""


# --- verbs ---------------------------------------------------------------------------------------------------


def writes(one: Rehearsal, side: str, what: str) -> str:
    """Stop or open the application's writes on a side; returns what was done.

    Stopping locks the account and then ends its sessions: a lock alone leaves those that are open.

    Raises
    ------
    LabError
        there is no such word, or sessions do not end.
    """
    server = one.server(side)
    if what not in ("stop", "open"):
        raise LabError(f"writes can be stopped or opened, not {what!r}", hint="Say stop or open.")
    with connect(server) as connection:
        execute(connection, f"ALTER USER {APP_USER} ACCOUNT {'LOCK' if what == 'stop' else 'UNLOCK'}")
        if what == "open":
            return f"{APP_USER} may write on the {side}"
        if one.recall("mistake") == "keep-sessions":
            return f"{APP_USER} is locked on the {side}"
        ended = _end_sessions(connection, server)
    return f"{APP_USER} is locked on the {side}, {ended} sessions ended"


def _end_sessions(connection: Connection, server: LabServer) -> int:
    import pymysql

    ended, until = 0, time.monotonic() + 10.0
    while time.monotonic() < until:
        with connection.cursor() as cursor:
            table = "CLUSTER_PROCESSLIST" if server.flavor == "tidb" else "PROCESSLIST"
            cursor.execute(f"SELECT ID FROM information_schema.{table} WHERE USER = '{APP_USER}'")  # noqa: S608
            found = [int(row[0]) for row in cursor.fetchall()]
            if not found:
                return ended
            for number in found:
                try:
                    cursor.execute(f"KILL {'TIDB ' if server.flavor == 'tidb' else ''}{number}")
                    ended += 1
                except pymysql.err.MySQLError as error:
                    if error.args[0] != 1094:  # it has ended by itself
                        raise
        time.sleep(0.1)
    raise LabError(f"sessions of {APP_USER} do not end on {server}", hint="Look at its process list.")


def traffic(one: Rehearsal, side: str) -> str:
    """Send the application to a side, or to none."""
    if side not in (*SIDES, "none"):
        raise LabError(f"there is no side {side!r}", hint="Say source, target or none.")
    one.remember("traffic", side)
    return f"the application writes to {side}"


def feed(one: Rehearsal, way: str, what: str, scope: str = "all") -> str:
    """Start or stop a feed, or tell its status: ``running`` or ``stopped``.

    Parameters
    ----------
    scope
        Of the reverse feed: ``canary`` carries its canary table only, ``all`` the shop too.

    Raises
    ------
    LabError
        there is no such feed, word or scope.
    """
    if way not in ("forward", "reverse") or what not in ("start", "stop", "status") or scope not in ("all", "canary"):
        raise LabError(f"feed {way} {what} {scope}: there is no such thing", hint="See --help.")
    mistake = one.recall("mistake")
    if what == "status":
        lies = way == "forward" and mistake == "feed-keeps-running" and one.recall("forward.said") == "stopped"
        return "stopped" if lies or one.job(way) is None else "running"
    if what == "start":
        one.stop_job(way)
        one.start_job(way, _forward(one) if way == "forward" else _reverse(one, scope, _FEED_FAULTS.get(mistake, "")))
    elif not (way == "forward" and mistake == "feed-keeps-running"):
        one.stop_job(way)
    one.remember(f"{way}.said", "running" if what == "start" else "stopped")
    return one.recall(f"{way}.said")


def _forward(one: Rehearsal) -> list[str]:
    with connect(one.pair.target) as connection:
        begun = read_checkpoint(connection, FEED_NAME) is not None
    # The first time from where both sides were equal: by the time it runs, the application may have written.
    since = [] if begun else ["--since", one.recall("position")]
    return ["lab", "replicator", "--databases", f"{DATABASE},{FORWARD}", "--name", FEED_NAME,
            "--source", str(one.pair.source), "--target", str(one.pair.target), *since]  # fmt: skip


def _reverse(one: Rehearsal, scope: str, fault: str) -> list[str]:
    """Return the command of the feed. It reads its tables by snapshots, so that every writer's rows are carried.

    While nothing changes it writes nothing: gates ask whether the source rests.
    """
    return ["lab", "feed", "reverse", "--polled", ",".join(SCOPES[scope]), "--name", FEED_NAME, "--user", FEED_USER,
            "--source", str(one.pair.source), "--target", str(one.pair.target), "--out", str(_feed_folder(one)),
            "--since", one.recall("timestamp"), "--no-idle-checkpoints", "--partitions", str(PARTITIONS),
            *(["--fault", fault] if fault else [])]  # fmt: skip


def _feed_folder(one: Rehearsal) -> Path:
    return one.folder / "reverse-feed"


def mend(one: Rehearsal) -> str:
    """Take a planted mistake away. A reverse feed that lost every message begins anew, where both sides were equal."""
    if one.recall("mistake") == "reverse-dead":
        one.stop_job("reverse")
        shutil.rmtree(_feed_folder(one), ignore_errors=True)
    one.remember("mistake", "")
    return "nothing is planted any more"


def rebase_ids(one: Rehearsal) -> str:
    """Set the target's counters above what is in its tables."""
    with connect(one.pair.target) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT COALESCE(MAX(id), 0) + 1 FROM {DATABASE}.orders")  # noqa: S608
        row: Any = cursor.fetchone()
        stale = one.recall("mistake") == "stale-ids"
        # FORCE sets it back as well: without it TiDB never does.
        cursor.execute(f"ALTER TABLE {DATABASE}.orders {'FORCE ' if stale else ''}AUTO_INCREMENT = "
                       f"{1 if stale else int(row[0])}")  # fmt: skip
    return "ids are rebased"


def application(one: Rehearsal, what: str, clients: int = 3, rate: float = 20.0) -> str:
    """Start or stop the application."""
    if what == "start":
        one.stop_job("app")
        one.start_job("app", command_of("shop", one.directory, str(clients), f"{rate:g}"))
    else:
        one.stop_job("app")
    return f"the application {'is started' if what == 'start' else 'is stopped'}"


def server_as(server: LabServer, user: str) -> LabServer:
    """Return a server with another user."""
    return replace(server, user=user)

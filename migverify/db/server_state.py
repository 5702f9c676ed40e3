"""What a server reports of its binlog, replication, connections and settings, in the words of every version.

MySQL 8.0.22 renamed SLAVE to REPLICA, 8.2 MASTER STATUS to BINARY LOG STATUS and 8.4 dropped the old statements;
MariaDB and TiDB know MASTER STATUS only. TiDB reports its newest timestamp as a position.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from migverify.errors import PrivilegeError, ReadError, RetryableReadError
from migverify.model import Endpoint, Flavor
from migverify.sql.server import (
    BINLOG_STATUS,
    CLUSTER,
    CONNECTIONS,
    DDL_COUNTERS,
    EMBEDDED_CLUSTER,
    IDENTITY,
    LOGS,
    NODE,
    REPLICA,
    REPLICAS,
    TIDB_CONNECTIONS,
    TIDB_VERSION,
    Queries,
    ServerQuery,
)
from migverify.sql.settings import CHECKPOINT_TABLES, VARIABLES, checkpoint_rows

Named = list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class BinlogStatus:
    """The end of a server's binlog. ``gtids`` is the executed set, empty without GTIDs and on MariaDB.

    A server names file and offset of transactions that it has written but not committed yet, so set and offset of one
    answer need not agree. ``filters`` are databases that are kept in or out, by the name of their option.
    """

    file: str
    offset: int
    gtids: str = ""
    filters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BinaryLog:
    """A binlog file that a server has now. An encrypted file is 512 bytes longer than what the server sends of it."""

    name: str
    size: int
    encrypted: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One channel by which a server replicates. ``seconds_behind`` is None while it does not replicate.

    ``columns`` is the whole row, names in lower case, NULL as an empty text.
    """

    seconds_behind: float | None
    last_error: str
    columns: Mapping[str, str]

    @property
    def applier_runs(self) -> bool:
        """Whether the thread that applies changes is not stopped."""
        return "No" not in (self.columns.get("replica_sql_running"), self.columns.get("slave_sql_running"))


def first_known(session: Queries, statements: Sequence[str]) -> tuple[str, Named]:
    """Run the first statement that the server knows; returns it with the rows, NULL as an empty text.

    Column names are in lower case.

    Raises
    ------
    PrivilegeError
        the user lacks the grant.
    ReadError
        the server knows none of them, or refuses.
    """
    for statement in statements[:-1]:
        try:
            return statement, _lowered(session.query_named(statement))
        except (PrivilegeError, RetryableReadError):
            raise
        except ReadError:
            continue  # servers know either the new words or the old ones: the last statement's refusal counts
    return statements[-1], _lowered(session.query_named(statements[-1]))


def _lowered(rows: list[dict[str, str | None]]) -> Named:
    return [{name.lower(): value or "" for name, value in row.items()} for row in rows]


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """Which server answers: where it was reached, what it reports of itself, and its cluster if it is a TiDB.

    An address decides only where nothing else is known: one server has several names, and behind one address of a proxy
    are several servers. ``node`` and ``cluster`` are empty where they are not known.
    """

    address: tuple[str, int]
    node: tuple[str, ...] = ()
    cluster: str = ""

    def is_same_server(self, other: ServerIdentity) -> bool:
        """Whether both are one server, or SQL nodes of one TiDB cluster. A replica has an identity of its own."""
        if self.cluster and other.cluster:
            return self.cluster == other.cluster
        if self.node and other.node:
            return self.node == other.node
        return self.address == other.address


def server_identity(session: Queries, endpoint: Endpoint) -> ServerIdentity:
    """Ask the server of an endpoint which one it is; what this user may not read of that is left out."""
    cluster = _texts(session, CLUSTER) if session.flavor is Flavor.TIDB else ()
    return ServerIdentity(
        (endpoint.host, endpoint.port),
        _texts(session, IDENTITY if session.flavor is Flavor.MYSQL else NODE),
        # Every TiDB on embedded storage is cluster 1: there the node tells them apart.
        "" if cluster in ((), (EMBEDDED_CLUSTER,)) else cluster[0],
    )


def _texts(session: Queries, statement: str) -> tuple[str, ...]:
    try:
        rows = session.query(statement)
    except RetryableReadError:
        raise
    except (PrivilegeError, ReadError):
        return ()
    return tuple(text or "" for text in rows[0]) if rows else ()


def binlog_status(session: Queries) -> BinlogStatus | None:
    """Return where the binlog of a server ends; None where it writes none. Raises as ``first_known``."""
    # The new words are an error of syntax on these, and a round trip.
    old = session.flavor in (Flavor.MARIADB, Flavor.TIDB)
    _, rows = first_known(session, BINLOG_STATUS[1:] if old else BINLOG_STATUS)
    if not rows:
        return None
    row = rows[0]
    filters = {name: row[name] for name in ("binlog_do_db", "binlog_ignore_db") if row.get(name)}
    gtids = row.get("executed_gtid_set", "").replace("\n", "")
    return BinlogStatus(row["file"], int(row["position"] or 0), gtids, filters)


def binary_logs(session: Queries) -> list[BinaryLog]:
    """Return the binlog files of a server, the oldest first. Raises ReadError where it writes none."""
    return [
        BinaryLog(row["log_name"], int(row.get("file_size") or 0), row.get("encrypted", "No") not in ("No", ""))
        for row in _lowered(session.query_named(LOGS))
    ]


def executed_gtids(session: Queries) -> str:
    """Return the executed GTID set (MariaDB: the position of its binlog); empty without GTIDs."""
    if session.flavor is Flavor.TIDB:
        return ""
    name = "gtid_executed" if session.flavor is Flavor.MYSQL else "gtid_binlog_pos"
    return (session.query(f"SELECT @@GLOBAL.{name}")[0][0] or "").replace("\n", "")


def replica_status(session: Queries) -> tuple[str, list[ReplicaStatus]]:
    """Return the statement that was asked and the channels of a replica; none on a server that is no replica."""
    statement, rows = first_known(session, REPLICA)
    return statement, [_replica(row) for row in rows]


def _replica(row: Mapping[str, str]) -> ReplicaStatus:
    behind = row.get("seconds_behind_source", row.get("seconds_behind_master", ""))
    error = row.get("last_sql_error") or row.get("last_io_error") or ""
    return ReplicaStatus(float(behind) if behind else None, error, row)


def replica_ids(session: Queries) -> tuple[str, set[str]]:
    """Return the statement that was asked and the server ids of the readers that are connected now."""
    statement, rows = first_known(session, REPLICAS)
    return statement, {row.get("server_id", "") for row in rows} - {""}


def global_variables(session: Queries) -> dict[str, str]:
    """Return all global variables, names in lower case, NULL as an empty text."""
    return {(name or "").lower(): value or "" for name, value in session.query(VARIABLES)}


def connections_used(session: ServerQuery) -> int:
    """Return how many connections a server has, or the fullest server of a TiDB cluster: the limit is of each.

    A user of TiDB without PROCESS sees its own only: ask for that grant first.

    Raises
    ------
    ReadError
        the server does not report it.
    """
    rows = session.query(TIDB_CONNECTIONS if session.flavor is Flavor.TIDB else CONNECTIONS)
    counts = [row[1] or "" for row in rows]
    if not counts or not all(count.isdigit() for count in counts):
        raise ReadError("the server does not report how many connections it has")
    return max(map(int, counts))


@dataclass(frozen=True, slots=True)
class DmCheckpoint:
    """Where a DM task is with one source: a binlog position, and the seconds since it was written (None: unknown).

    ``query`` shows it again.
    """

    task: str
    source: str
    position: str
    age: float | None
    query: str


def checkpoint_tables(session: ServerQuery) -> list[tuple[str, str]]:
    """Return (database, table) of DM's checkpoints that the user may see."""
    return [(row[0] or "", row[1] or "") for row in session.query(CHECKPOINT_TABLES)]


def dm_checkpoints(session: ServerQuery) -> Iterator[DmCheckpoint]:
    """Yield the checkpoints that DM keeps in its default database of a server, one for each task and source."""
    for database, table in checkpoint_tables(session):
        query, task = checkpoint_rows(database, table), table.removesuffix("_syncer_checkpoint")
        for source, file, offset, gtids, age in session.query(query):
            position = f"{file} {offset}" + (f", {gtids}" if gtids else "")
            yield DmCheckpoint(task, source or "", position, None if age is None else float(age), query)


def ddl_counters(session: Queries) -> dict[str, str]:
    """Return numbers that a DDL raises, cheaply, by name; ``Uptime`` among them where a restart sets them back."""
    statement = TIDB_VERSION if session.flavor is Flavor.TIDB else DDL_COUNTERS
    return {name or "": value or "" for name, value in session.query(statement)}

"""Which tables the names of a watch mean, read again and again: a change that no binlog shows makes a pair stale.

DDL of the target is in no change stream, nor is that of a session with ``sql_log_bin=0``. A counter of the server says
cheaply that there was some; then, and at the end, the identities are read and compared with those last compared.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from migverify.codec import decode, encode
from migverify.db.pool import SessionPool
from migverify.db.server_state import ddl_counters
from migverify.model import Endpoint
from migverify.sql.identity import TableIdentity, read_identities
from migverify.sql.server import CASCADES, LOGS_CASCADES
from migverify.tables.tasks import PairPlan
from migverify.watch.touched import WatchedTable

LOOK_SECONDS = 2.0
FULL_SECONDS = 60.0
"""Another server of a cluster counts its own statements."""
SHARE = 20
"""Reading the identities of many tables may take this small a part of the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched(WatchedTable):
    """One source table of a pair, and how the pair is read."""

    pair: PairPlan


Identities: TypeAlias = Mapping[str, TableIdentity]
"""Identities of the tables of one pair, by ``endpoint/database.table``; one that is gone has none."""


def identities_text(identities: Identities) -> str:
    """Return identities as the ledger keeps them."""
    return json.dumps({name: encode(identity) for name, identity in identities.items()}, sort_keys=True)


def identities_of(stored: Mapping[str, object]) -> dict[str, TableIdentity]:
    """Return identities from their JSON form; raises ValueError for one that is none."""
    return {str(name): decode(TableIdentity, identity) for name, identity in stored.items()}


def changes(before: Identities, now: Identities) -> list[str]:
    """Return in words what changed between two readings of one pair."""
    found = [f"{name}: {change}" for name, one in before.items() if (change := one.changes_to(now.get(name)))]
    return found + [f"{name}: the table is new" for name in now.keys() - before.keys()]


def read_pairs(pool: SessionPool, target: Endpoint, pairs: Iterable[Watched]) -> dict[int, dict[str, TableIdentity]]:
    """Read the identities of all tables of some pairs.

    Raises
    ------
    ReadError
        a server does not answer.
    """
    asked: dict[Endpoint, dict[tuple[str, str], list[int]]] = {}
    found: dict[int, dict[str, TableIdentity]] = {}
    for watched in pairs:
        found[watched.number] = {}
        for side in watched.pair.sides:
            # The target as it is now, even where the pair reads a snapshot of it.
            endpoint = target if side is watched.pair.target_side else side.endpoint
            numbers = asked.setdefault(endpoint, {}).setdefault((side.database, side.table), [])
            if watched.number not in numbers:
                numbers.append(watched.number)
    for endpoint, names in asked.items():
        with pool.session(endpoint) as session:
            for (database, table), identity in read_identities(session, list(names)).items():
                for number in names[database, table]:
                    found[number][f"{endpoint.name}/{database}.{table}"] = identity
    return found


def hidden_cascades(
    pool: SessionPool, source: Endpoint, *, always: bool = False
) -> dict[tuple[str, str], set[tuple[str, str]]]:
    """Return per table those that its foreign keys change without a row in the binlog, children of children included.

    ``always``: also where the server logs them now, for changes of a time when it need not have.

    Raises
    ------
    ReadError, EndpointError
        the server does not answer.
    """
    with pool.session(source) as session:
        if not always and [value for _, value in session.query(LOGS_CASCADES)] == ["OFF"]:
            return {}
        rows = session.query(CASCADES)
    children: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for parent_database, parent, database, table in rows:
        children.setdefault((parent_database or "", parent or ""), set()).add((database or "", table or ""))
    found: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for parent_name in children:
        reached: set[tuple[str, str]] = set()
        waiting = [parent_name]
        while waiting:
            new = children.get(waiting.pop(), set()) - reached
            reached |= new
            waiting += new
        found[parent_name] = reached
    return found


def is_table(pool: SessionPool, endpoint: Endpoint, name: tuple[str, str]) -> bool:
    """Whether a name is a table at this moment, and not a view or nothing."""
    with pool.session(endpoint) as session:
        identity = read_identities(session, [name]).get(name)
    return identity is not None and identity.kind.upper() == "BASE TABLE"


@dataclass(slots=True)
class IdentityWatch:
    """Reads identities when a server counted DDL, once a minute, and when asked to.

    ``seen`` are those of the last reading; what they changed from is the watch's business.
    """

    pool: SessionPool
    target: Endpoint
    sources: Sequence[Endpoint]
    _counted: dict[str, dict[str, str]] = field(default_factory=dict)
    _look_at: float = 0.0
    _read_at: float = -FULL_SECONDS

    def look(self, pairs: Sequence[Watched], *, now: bool = False) -> dict[int, dict[str, TableIdentity]] | None:
        """Return the identities of all pairs when they may have changed, None when nothing says so.

        ``now`` reads them in any case.

        Raises
        ------
        ReadError, EndpointError
            a server does not answer; the next look reads in any case.
        """
        started = time.monotonic()
        if not now and started < self._look_at:
            return None
        self._look_at = started + LOOK_SECONDS
        # Counted before the identities are read: a statement between the two is seen at the next look.
        counted = {e.name: self._count(e) for e in (*self.sources, self.target)}
        if not now and counted == self._counted and started - self._read_at < FULL_SECONDS:
            return None
        self._counted = {}
        found = read_pairs(self.pool, self.target, pairs)
        self._counted, self._read_at = counted, started
        self._look_at = time.monotonic() + max(LOOK_SECONDS, SHARE * (time.monotonic() - started))
        return found

    def _count(self, endpoint: Endpoint) -> dict[str, str]:
        with self.pool.session(endpoint) as session:
            # A restart sets the counters back, and the time that the server runs only grows until then.
            return {**ddl_counters(session), "Uptime": ""}

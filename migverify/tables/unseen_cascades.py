"""Foreign keys by which the source changes rows that neither stream of a reverse watch shows.

InnoDB carries out ON DELETE and ON UPDATE below the binlog, up to MySQL 9.5. Where the target has the same foreign key,
its own changes of the child are in the changefeed; where it has none, a row that the source deleted with its parent is
touched by no change. A foreign key that only the target has is no such case: TiDB's changefeed carries what it does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from migverify.config import Config
from migverify.db.pool import SessionPool
from migverify.db.session import Session
from migverify.model import Endpoint
from migverify.sql.server import CASCADE_RULES, ENFORCES_KEYS, LOGS_CASCADES
from migverify.tables.watch_identity import Watched
from migverify.tables.watch_streams import watched_tables

_NOTHING = ("RESTRICT", "NO ACTION")

Name = tuple[str, str]
Cascade = tuple[Name, Name, str]
"""Parent, child, and what is done: ``ON DELETE CASCADE``."""


def unseen_cascades(config: Config, watched: Sequence[Watched], pool: SessionPool) -> list[str]:
    """Return in words the foreign keys of the source that change watched rows unseen.

    Parameters
    ----------
    watched
        The tables of the target that the watch follows.

    Raises
    ------
    ReadError, EndpointError
        a server does not answer.
    """
    target = _cascades(config.target, pool)
    found = []
    for endpoint in config.sources:
        names = {
            (ours.database, ours.table): (one.database, one.table)
            for one in watched for ours in watched_tables(config, one.number, one.pair)
            if ours.endpoint == endpoint.name
        }  # fmt: skip
        found += [
            f"{endpoint.name}: foreign key {name} of {'.'.join(child)} on {'.'.join(parent)} ({action}), which"
            f" {config.target.name} does not have, changes rows in no binlog; they are compared only where they are"
            " written, or by a sweep (watch.sweep_rows)"
            for (parent, child, action), name in sorted(_cascades(endpoint, pool).items())
            if child in names and _on_target(names, parent, child, action) not in target
        ]
    return found


def _on_target(names: Mapping[Name, Name], parent: Name, child: Name, action: str) -> Cascade:
    return names.get(parent, parent), names[child], action


def _cascades(endpoint: Endpoint, pool: SessionPool) -> dict[Cascade, str]:
    """Return the foreign keys of a server that change rows and are not seen by that, with their names."""
    with pool.session(endpoint) as session:
        if _is_off(session, LOGS_CASCADES) or _is_off(session, ENFORCES_KEYS):
            return {}
        rows = session.query(CASCADE_RULES)
    found = {}
    for parent_database, parent, database, table, name, on_delete, on_update in rows:
        for event, rule in (("DELETE", on_delete), ("UPDATE", on_update)):
            if (rule or "").upper() not in _NOTHING:
                action = f"ON {event} {rule}"
                key = ((parent_database or "", parent or ""), (database or "", table or ""), action)
                found[key] = name or ""
    return found


def _is_off(session: Session, statement: str) -> bool:
    return [value for _, value in session.query(statement)] == ["OFF"]

"""Configuration and catalogs -> a plan: everything that is known before the first row is read.

Pairs are planned one by one while the run goes on; what is held for all of them is their definitions only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from migverify.codec import encode
from migverify.config import (
    Config,
    TablePattern,
    chosen_patterns,
    comparison_digest,
    includes,
    load_config,
    override_for,
    route,
    unmatched_includes,
)
from migverify.db.retry import ReadLimits, attempt
from migverify.db.server_state import BinlogStatus, binlog_status, global_variables
from migverify.db.session import Session, open_session, session_statements
from migverify.db.snapshot import held_snapshot
from migverify.errors import ConfigError, PrivilegeError, ReadError, RetryableReadError
from migverify.model import Flavor, RunInfo, TableDef
from migverify.secrets import resolve_password
from migverify.sql.catalog import read_names, read_tables
from migverify.sql.checksum import HASHES, hash_probe_sql
from migverify.sql.fingerprint import digest, layout_fingerprint
from migverify.sql.identity import BY_CREATION, CREATED_LIMIT, TableIdentity, read_identities
from migverify.sql.server import CLOCK, PACKET
from migverify.tables.excluded import ExcludedTables
from migverify.tables.hidden import hidden_from, matched, open_ended, spelled_out
from migverify.tables.overrides import refuse_unfit_overrides
from migverify.tables.pairs import FoundPair, find_pairs, refuse_hidden, refuse_same_tables
from migverify.tables.plan import compared_in_part, plan_pair
from migverify.tables.quick import QuickRead
from migverify.tables.run_facts import IN_PART, ProofScope, is_of_servers, planned_pairs
from migverify.tables.tasks import PairPlan, Rules, Secrets

NO_BINARY_LOG = "no binary log"
UNKNOWN = "unknown"

Chosen = Callable[[str, str], bool]


@dataclass(frozen=True, slots=True)
class PreparedTables:
    """A plan whose pairs are made on demand.

    ``names`` are (pair id, source, target) of all pairs, ``facts`` what the servers report of themselves, ``digest``
    the hash of all that decides what is compared, ``read_at`` the Unix time before any row was read. ``skipped`` names
    views and the like, ``hidden`` the databases of which a user may see a part only: nothing over them is MATCH.
    ``layouts`` are fingerprints of the definitions by pair id and ``endpoint/database.table``: the plan keeps them, so
    that a later run can tell which results a change of a table made stale. ``identities`` say by the same names which
    table each was, read before its definition. ``chosen`` are the patterns of ``--tables``, empty for all tables.
    ``parts`` plans the pairs as a quick answer reads them. ``excluded`` are the tables that ``tables.exclude`` leaves
    out; ``in_part`` says by pair id why a table is compared in part. ``columns`` are the data types of all columns by
    name.
    """

    names: tuple[tuple[str, str, str], ...]
    rows: int
    hash: str
    facts: dict[str, Any]
    digest: str
    skipped: tuple[str, ...]
    read_at: float
    pairs: Callable[[], Iterator[PairPlan]]
    layouts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    identities: Mapping[str, Mapping[str, TableIdentity]] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    in_part: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    parts: Callable[[QuickRead], Iterator[PairPlan]] = lambda _: iter(())
    columns: Mapping[str, str] = field(default_factory=dict)

    def stored(self) -> dict[str, Any]:
        """Return the plan as the store keeps it; the statements are kept per pair when it begins."""
        pairs = [
            {"id": i, "source": s, "target": t, **({"layouts": self.layouts[i]} if i in self.layouts else {}),
             "identities": encode(self.identities.get(i, {})),
             **({IN_PART: list(self.in_part[i])} if i in self.in_part else {})}
            for i, s, t in self.names
        ]  # fmt: skip
        return {"pairs": pairs, "hash": self.hash, "comparison_digest": self.digest}

    @property
    def scope(self) -> ProofScope:
        """How much of the migration is compared."""
        why = sorted({one for reasons in self.in_part.values() for one in reasons})
        return ProofScope(len(self.names), len(self.in_part), tuple(why), self.excluded)

    def owns(self, run: RunInfo) -> bool:
        """Whether a run is of this configuration, as it is or as it was: of its servers, and of one of its tables.

        A run without its plan (``ResultStore.runs``) is judged by its servers alone.
        """
        if not is_of_servers(run, self.facts):
            return False
        names = (name for name, _, _ in self.names)
        return run.plan_hash == self.digest or not run.plan or not planned_pairs(run).keys().isdisjoint(names)


@contextmanager
def prepared_run(
    path: Path, tables: Sequence[str] | None, *, current: bool = False
) -> Iterator[tuple[Config, dict[str, str], PreparedTables]]:
    """Yield the configuration of a file, its passwords and the plan; a snapshot made for the run is held meanwhile.

    ``current`` leaves snapshots out: for a command that writes the target, or reads what is there now.
    """
    loaded = load_config(path)
    secrets = {e.name: resolve_password(e).reveal() for e in loaded.endpoints if e.password_env or e.password_command}
    patterns = chosen_patterns(tables or [])
    target = replace(loaded.target, snapshot=None) if current else loaded.target
    with held_snapshot(target, secrets.get(target.name)) as pinned:
        held = loaded.at_snapshot(pinned.snapshot)
        chosen = (lambda d, t: any(p.matches(d, t) for p in patterns)) if patterns else None
        # The digest is that of the configuration as written: a resumed run takes a snapshot of its own.
        prepared = prepare(held, secrets, chosen, patterns)
        yield held, secrets, replace(prepared, digest=comparison_digest(loaded))


def prepare(
    config: Config, secrets: Secrets, chosen: Chosen | None = None, patterns: Sequence[TablePattern] = ()
) -> PreparedTables:
    """Read both catalogs and pair the tables; a reading that is killed or cut off is begun again.

    Parameters
    ----------
    chosen
        Further restriction of source tables, by (database, table); None for none.
    patterns
        The patterns that ``chosen`` is made of. Where they, and ``tables.include``, do not spell out every table, the
        users have to be able to see whole databases.

    Raises
    ------
    EndpointError
        a server cannot be reached, refuses the user, or lacks a grant.
    ConfigError
        no table fits the patterns.
    """
    limits = ReadLimits(config.limits.retries, config.limits.retry_seconds)
    return attempt(lambda: _prepare_once(config, secrets, chosen, patterns), limits, passing=(RetryableReadError,))


def _prepare_once(
    config: Config, secrets: Secrets, chosen: Chosen | None, patterns: Sequence[TablePattern]
) -> PreparedTables:
    facts: dict[str, Any] = {}
    sources: dict[str, list[TableDef]] = {}
    skipped: list[str] = []
    known: list[tuple[str, str]] = []
    identities: dict[str, dict[tuple[str, str], TableIdentity]] = {}
    sessions: list[Session] = []
    open_patterns = open_ended(patterns or config.tables.include) if open_ended(config.tables.include) else []
    # One source must have what is spelled out; of several each may have it.
    spelled = spelled_out(patterns or config.tables.include) if len(config.sources) > 1 else set()
    hidden: list[str] = []
    excluded = ExcludedTables(config, chosen)
    try:
        for endpoint in config.sources:
            session = open_session(endpoint, secrets.get(endpoint.name))
            sessions.append(session)
            facts[endpoint.name] = endpoint_facts(session)
            names = read_names(session, excluded.lists)
            included = excluded.note(names.tables)
            known += included
            excluded.note_others((s.database, s.name) for s in names.skipped)
            views = [s for s in names.skipped if includes(config, s.database, s.name)]
            skipped += [f"{endpoint.name}: {s.kind} {s.database}.{s.name}" for s in views]
            tables = [n for n in included if chosen is None or chosen(*n)]
            partly = {database for database, _ in matched(open_patterns, tables)}
            hidden += hidden_from(session, partly, open_patterns, spelled - set(tables))
            identities[endpoint.name] = read_identities(session, tables)
            sources[endpoint.name] = list(read_tables(session, endpoint.name, tables))
        read_at = time.time()
        session = open_session(config.target, secrets.get(config.target.name))
        sessions.append(session)
        facts[config.target.name] = endpoint_facts(session)
        databases = _target_databases(config, sources)
        tables = list(read_names(session, lambda db, _: db.casefold() in databases).tables)
        hidden += hidden_from(session, {
            route(config, endpoint.partition(".")[2], *name)[0]
            for endpoint, defs in sources.items()
            for name in matched(open_patterns, [(one.ref.database, one.ref.table) for one in defs])
        })  # fmt: skip
        excluded.note_target(tables, sources)
        identities[config.target.name] = read_identities(session, tables)
        target = read_tables(session, config.target.name, tables)
        found = list(
            find_pairs(
                sources,
                target,
                included=_wanted(config, chosen),
                route=lambda shard, database, table: route(config, shard, database, table),
                ignored=lambda database, table: override_for(config, database, table).ignore,
            )
        )
        refuse_same_tables(config.path, found, sessions[:-1], session)
        refuse_hidden(found, sessions[:-1], session)
        hash_name = choose_hash(config.hash, sessions)
        if chosen is None or patterns:  # a watch plans a table anew, though an excluded one was dropped meanwhile
            excluded.refuse_misspelled(sessions)
    finally:
        for session in sessions:
            session.close()
    _refuse_empty(config, found, known)
    refuse_unfit_overrides(config, found, known)
    prepared = _prepared(config, found, hash_name, facts, tuple(skipped), read_at, identities)
    return replace(
        prepared, hidden=tuple(hidden), chosen=tuple(pattern.text for pattern in patterns), excluded=excluded.names
    )


def _refuse_empty(config: Config, found: Sequence[FoundPair], known: Sequence[tuple[str, str]]) -> None:
    """Refuse a pattern that fits nothing: what was misspelled would silently not be verified."""
    on_target = [(p.target.ref.database, p.target.ref.table) for p in found if p.target is not None]
    unmatched = unmatched_includes(config, [*known, *on_target])
    if unmatched or not found:
        patterns = ", ".join(pattern.text for pattern in unmatched)
        where = f"{config.path}: no table fits tables.include ({patterns})" if unmatched else "no table fits --tables"
        raise ConfigError(
            where,
            hint="Names are database.table as on the source; `migverify init` lists what is there. A user sees only"
            " tables that it may read: `migverify config --grants` prints the grants that are missing.",
        )


def _wanted(config: Config, chosen: Chosen | None) -> Chosen:
    def wanted(database: str, table: str) -> bool:
        return includes(config, database, table) and (chosen is None or chosen(database, table))

    return wanted


def _target_databases(config: Config, sources: Mapping[str, Sequence[TableDef]]) -> set[str]:
    routed = set()
    for endpoint, tables in sources.items():
        for table in tables:
            routed.add(route(config, endpoint.partition(".")[2], table.ref.database, table.ref.table)[0].casefold())
    # A pattern that names a database plainly speaks of the target too, though the source has nothing there.
    routed |= {p.database.literal.casefold() for p in config.tables.include if p.database.literal is not None}
    return routed


def _prepared(
    config: Config,
    found: list[FoundPair],
    hash_name: str,
    facts: dict[str, Any],
    skipped: tuple[str, ...],
    read_at: float,
    identities: Mapping[str, Mapping[tuple[str, str], TableIdentity]],
) -> PreparedTables:
    endpoints = {endpoint.name: endpoint for endpoint in config.endpoints}

    def pairs(read: QuickRead | None = None) -> Iterator[PairPlan]:
        for pair in found:
            table = (pair.sources[0] if pair.sources else pair.target).ref  # type: ignore[union-attr]
            override = override_for(config, table.database, table.table)
            planned = plan_pair(pair.sources, pair.target, endpoints, override, hash_name,
                                differences=pair.differences, reason=pair.reason, read=read)  # fmt: skip
            limited = [s.endpoint.name for s in planned.sides if facts[s.endpoint.name]["identity"] == BY_CREATION]
            spots = (f"{CREATED_LIMIT} ({', '.join(limited)})",) if limited else ()
            yield replace(planned, blind_spots=(*planned.blind_spots, *spots))

    names, layouts, known, in_part = [], {}, {}, {}
    for pair in found:
        target = str(pair.target.ref) if pair.target is not None else ""
        first = str(pair.sources[0].ref) if pair.sources else target
        pair_id = target if len(pair.sources) > 1 and target else first
        if pair.sources:
            table = pair.sources[0].ref
            override = override_for(config, table.database, table.table)
            if why := compared_in_part(pair.sources, pair.target, override):
                in_part[pair_id] = why
        names.append((pair_id, ", ".join(str(t.ref) for t in pair.sources), target))
        tables = [table for table in (*pair.sources, pair.target) if table is not None]
        layouts[pair_id] = {f"{t.ref.endpoint}/{t.ref}": layout_fingerprint(t) for t in tables}
        read = ((t.ref, identities.get(t.ref.endpoint, {}).get((t.ref.database, t.ref.table))) for t in tables)
        known[pair_id] = {f"{ref.endpoint}/{ref}": identity for ref, identity in read if identity is not None}
    for endpoint in endpoints:
        own = {name: v for of in layouts.values() for name, v in of.items() if name.startswith(f"{endpoint}/")}
        facts[endpoint]["layout"] = digest(own)
    everything = (table for pair in found for table in (*pair.sources, pair.target) if table is not None)
    columns = {column.name: column.data_type for table in everything for column in table.columns}
    rows = sum(sum(t.rows for t in p.sources) for p in found)
    return PreparedTables(
        tuple(names), rows, hash_name, facts, comparison_digest(config), skipped, read_at, pairs, layouts, known,
        in_part=in_part, parts=pairs, columns=columns,
    )  # fmt: skip


def endpoint_facts(session: Session) -> dict[str, Any]:
    """Return what a report states about an endpoint: flavor, version, position, how sessions are pinned."""
    endpoint = session.endpoint
    source = endpoint.name.split(".")[0] == "source"
    return {
        "flavor": session.flavor.value,
        "version": session.version,
        "host": endpoint.host,
        "port": endpoint.port,
        "user": endpoint.user,
        **_position_facts(session),
        "snapshot": endpoint.snapshot or "none",
        "identity": "table ids" if session.sees_table_ids else BY_CREATION,
        "connections": endpoint.connections,
        "max_allowed_packet": session.query(PACKET)[0][0],
        "session": session_statements(session.flavor, endpoint, source=source),
    }


def _position_facts(session: Session) -> dict[str, str]:
    """Return the position, file and offset beside a GTID set, which server that is, and its clock.

    Whoever reads on needs them all: a set alone does not say whether transactions without a GTID followed, or whether
    the binlog was begun anew.
    """
    text, status = _position(session)
    if status is None or session.flavor is Flavor.TIDB:
        return {"position": text}
    variables = global_variables(session)
    server = variables.get("server_uuid") or variables.get("server_uid") or ""
    return {
        "position": text, "binlog": f"{status.file}:{status.offset}", "server": server,
        "clock": str(session.query(CLOCK)[0][0]),
    }  # fmt: skip


def position(session: Session) -> str:
    """Return the position of the server's change stream: GTID set or file and position; the TSO on TiDB."""
    return _position(session)[0]


def _position(session: Session) -> tuple[str, BinlogStatus | None]:
    try:
        status = binlog_status(session)
    except PrivilegeError:
        return f"{UNKNOWN}: {session.endpoint.user} lacks the REPLICATION CLIENT privilege", None
    except RetryableReadError:
        raise
    except ReadError:
        return f"{UNKNOWN}: the server has no statement for it", None
    if status is None:
        return NO_BINARY_LOG, None
    return status.gtids or f"{status.file}:{status.offset}", status


def choose_hash(wanted: str, sessions: Sequence[Session]) -> str:
    """Return the hash function that every endpoint has: the configured one, else the first of ``HASHES``.

    Raises
    ------
    ConfigError
        an endpoint lacks it (MD5 and SHA1 need a component on MySQL 9.6 and later).
    """
    candidates = list(HASHES) if wanted == "auto" else [wanted.upper()]
    refused = []
    for name in candidates:
        lacking = [s.endpoint.name for s in sessions if not _has(s, name)]
        if not lacking:
            return name
        refused.append(f"{name} is missing on {', '.join(lacking)}")
    raise ConfigError("no hash function that every endpoint has: " + "; ".join(refused), hint="Set hash: auto.")


def _has(session: Session, name: str) -> bool:
    try:
        return bool(session.query(hash_probe_sql(name))[0][0])
    except RetryableReadError:
        raise
    except ReadError:
        return False


def rules_of(config: Config) -> Rules:
    """Return the worker's rules from the configured limits."""
    limits, recheck = config.limits, config.recheck
    return replace(
        Rules(), chunk_rows=limits.chunk_rows, chunk_seconds=limits.chunk_seconds,
        max_chunk_rows=max(limits.max_chunk_rows, limits.chunk_rows), retries=limits.retries,
        retry_seconds=limits.retry_seconds, max_threads_running=limits.max_threads_running,
        max_replica_lag=limits.max_replica_lag, delay_seconds=recheck.delay, rounds=recheck.rounds,
        still_reads=1 if config.consistency == "quiescent" else recheck.rounds,
        values=config.report.values, live=config.consistency == "live",
        max_row_diffs=limits.max_row_diffs, governed=limits.latency_factor is not None,
    )  # fmt: skip

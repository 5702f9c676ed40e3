"""Which tables and columns of the source and the target can be matched change by change, and what reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from migverify.changes.model import Position
from migverify.changes.server import refuse_incomplete
from migverify.config import Config, override_for
from migverify.config.reverse import ReverseSettings
from migverify.db.pool import SessionPool
from migverify.db.server_state import global_variables
from migverify.errors import ChangeError, ConfigError, MigverifyError, PrivilegeError
from migverify.model import ColumnDef, ColumnPair, Endpoint, Lane, TableDef
from migverify.sql.canonical import FAMILIES, pair_column, rule_named
from migverify.sql.catalog import read_tables
from migverify.sql.grants import check_grants
from migverify.tables.columns import column_pairs
from migverify.tables.tasks import Secrets
from migverify.tables.watch_identity import Watched
from migverify.tables.watch_streams import marker_name, watched_tables
from migverify.watch.applied import Marker
from migverify.watch.crossing import Crossing
from migverify.watch.id_workers import IdWorkers, InferWorkers
from migverify.watch.key_changes import DIGEST_FAMILIES, DigestedTable, KeyChangeReader
from migverify.watch.ledger import Ledger
from migverify.watch.old_side import LIMIT, OldSide, OldSideStatus
from migverify.watch.side_changes import MarkerRows, SideChanges
from migverify.watch.stream import FollowedBinlog, Stream

_HINT = "Without reverse.old_side: true the watch runs without it, and says so."
LEAST_FRACTION = 3
"""Digits of a second from which on a time of the last change is another one with each write."""


@dataclass(slots=True)
class MatchedTables:
    """The tables of both sides whose changes can be matched: pair number -> table.

    ``new_images`` and ``counters`` are pairs as ``Crossing`` takes them, ``integers`` those with one key column of
    integers that no counter fills; ``skipped`` are words for the others.
    """

    leading: dict[int, DigestedTable] = field(default_factory=dict)
    following: dict[int, DigestedTable] = field(default_factory=dict)
    new_images: set[int] = field(default_factory=set)
    counters: set[int] = field(default_factory=set)
    integers: set[int] = field(default_factory=set)
    skipped: list[str] = field(default_factory=list)


def make_old_side(
    config: Config,
    secrets: Secrets,
    watched: Sequence[Watched],
    stream: Stream,
    pool: SessionPool,
    ledger: Ledger,
    infer_workers: InferWorkers = lambda _: None,
) -> OldSide | OldSideStatus | None:
    """Return what matches the changes of both sides, why that cannot be, or None where it is switched off.

    Parameters
    ----------
    watched
        The tables of the target that the watch follows.
    stream
        The changes of the target.
    infer_workers
        What tells the layout of snowflake ids.

    Raises
    ------
    MigverifyError
        it cannot be, and the configuration demands it.
    """
    settings, source = config.reverse or ReverseSettings(), config.sources[0]
    if settings.old_side is False:
        return None
    if len(config.sources) > 1:
        return OldSideStatus("the sources", not_seen="there are several sources")
    if not isinstance(stream.applied, Marker) or stream.marker_table is None:
        reason = "reverse.applied is not marker, so nothing shows what the feed sends again"
        return OldSideStatus(source.name, not_seen=reason)
    binlog = FollowedBinlog(source, secrets.get(source.name))
    try:
        begin, step = _binlog_begin(binlog, {side.database for one in watched for side in one.pair.sources}, pool)
        tables = matched_tables(config, watched, pool)
        if not tables.leading and settings.old_side:
            raise ConfigError(f"reverse.old_side: no table can be matched: {'; '.join(tables.skipped)}", hint=_HINT)
    except MigverifyError as error:
        if settings.old_side:
            raise
        return OldSideStatus(source.name, not_seen=error.message)
    if not tables.leading:
        return OldSideStatus(source.name, not_seen="no table can be matched", left_out=tuple(tables.skipped))
    leading, following = _side_changes(settings, tables, stream, binlog)
    known = ledger.progress().get(0)
    led_from = known[0] if known is not None else stream.start
    crossing = Crossing(
        stream.changes.ordinal(led_from) if led_from is not None else 0, new_images=frozenset(tables.new_images),
        # Servers that count in steps, each from an offset of its own, never give out one id.
        generators=dict.fromkeys(tables.counters, lambda number: number % step),
        workers=IdWorkers(infer_workers, tables.integers), proves_texts=True, limit=LIMIT,
    )  # fmt: skip
    names = {number: (_name(table), _name(tables.leading[number])) for number, table in tables.following.items()}
    return OldSide(
        source.name, leading, following, binlog, begin, crossing, names=names,
        resent_seconds=settings.resent_seconds, skipped=tables.skipped,
    )  # fmt: skip


def _binlog_begin(binlog: FollowedBinlog, databases: Set[str], pool: SessionPool) -> tuple[Position, int]:
    """Return where the source's binlog ends now, and the step of its counters.

    Raises
    ------
    ChangeError
        it does not hold whole rows of all databases.
    PrivilegeError
        the user may not read it.
    """
    with pool.session(binlog.endpoint) as session:
        refuse_incomplete(session, databases)
        variables = global_variables(session)
        begin = binlog.head(session)
        if not check_grants(session).allows("REPLICATION SLAVE"):
            raise PrivilegeError(
                f"{binlog.endpoint.name}: {binlog.endpoint.user} lacks REPLICATION SLAVE, without which no binlog is"
                " sent.", hint=_HINT,
            )  # fmt: skip
    whole = {"binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_value_options": ""}
    for name, value in whole.items():
        if variables.get(name, value) != value:
            hint = f"Set {name} to {value or repr('')}; sessions that are connected keep theirs. {_HINT}"
            raise ChangeError(
                f"{binlog.endpoint.name}: its binlog does not hold whole rows ({name} is {variables[name]}).", hint=hint
            )
    return begin, max(1, int(variables.get("auto_increment_increment") or 1))


def _side_changes(
    settings: ReverseSettings, tables: MatchedTables, stream: Stream, binlog: FollowedBinlog
) -> tuple[SideChanges, SideChanges]:
    # The open protocol sends an update without the row before as an insert.
    has_old_values = settings.carrier is None or settings.carrier.format != "open-protocol"
    marker = MarkerRows(stream.marker_table or ("", ""), stream.marker_name)
    leading = KeyChangeReader(
        _by_name(tables.leading), stream.changes.ordinal, merges=False, has_old_values=has_old_values
    )
    following = KeyChangeReader(_by_name(tables.following), binlog.ordinal, merges=True)
    return SideChanges(leading, marker), SideChanges(following, marker)


def _name(table: DigestedTable) -> tuple[str, str]:
    return table.watched.database, table.watched.table


def _by_name(tables: Mapping[int, DigestedTable]) -> dict[tuple[str, str], DigestedTable]:
    return {_name(table): table for table in tables.values()}


def matched_tables(config: Config, watched: Sequence[Watched], pool: SessionPool) -> MatchedTables:
    """Read the catalogs of both sides and choose the columns of the digests.

    Raises
    ------
    MigverifyError
        a catalog cannot be read.
    """
    found = MatchedTables()
    sides = {}
    for one in watched:
        ours, *others = watched_tables(config, one.number, one.pair)
        if others:
            found.skipped.append(f"{one.pair.id}: it has several tables on the source")
        elif one.names and f"{ours.database}.{ours.table}" != marker_name(config):  # a forward watch writes its own
            sides[one.number] = ours, one
    sources = _definitions(pool, config.sources[0], [(ours.database, ours.table) for ours, _ in sides.values()])
    targets = _definitions(pool, config.target, [(theirs.database, theirs.table) for _, theirs in sides.values()])
    for ours, theirs in sides.values():
        source, target = sources.get((ours.database, ours.table)), targets.get((theirs.database, theirs.table))
        if source is None or target is None:
            found.skipped.append(f"{theirs.pair.id}: it is not on both sides")
        elif any(column.family not in DIGEST_FAMILIES for column in theirs.key):
            found.skipped.append(f"{theirs.pair.id}: its key has no exact text")
        else:
            _add(found, config, (ours, source), (theirs, target))
    return found


def _definitions(
    pool: SessionPool, endpoint: Endpoint, names: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], TableDef]:
    with pool.session(endpoint) as session:
        tables = read_tables(session, endpoint.name, names, estimates=False)
        return {(table.ref.database, table.ref.table): table for table in tables}


def _add(
    found: MatchedTables, config: Config, source: tuple[Watched, TableDef], target: tuple[Watched, TableDef]
) -> None:
    (ours, definition), (theirs, on_target) = source, target
    override = override_for(config, ours.database, ours.table)
    joined, _ = column_pairs(definition, on_target, override.rename, override.ignore)
    columns = [
        pair for one, other in joined
        if isinstance(pair := pair_column(one, other, override.tolerance(one.name)), ColumnPair) and _has_one_text(pair)
    ]  # fmt: skip
    number = theirs.number
    found.following[number] = DigestedTable(ours, tuple((c.source.name, _family(c.source)) for c in columns))
    found.leading[number] = DigestedTable(theirs, tuple((c.target.name, _family(c.target)) for c in columns))
    if any("on update" in c.target.extra.lower() and (c.target.fsp or 0) >= LEAST_FRACTION for c in columns):
        found.new_images.add(number)
    if len(ours.names) == 1 and ours.key[0].family == "integer":
        counts = "auto_increment" in definition.column(ours.names[0]).extra.lower()
        (found.counters if counts else found.integers).add(number)


def _family(column: ColumnDef) -> str:
    return FAMILIES[column.data_type]


def _has_one_text(pair: ColumnPair) -> bool:
    """Whether a value has the same text in the binlog of the source and in the target's changefeed."""
    ours, theirs = pair.source, pair.target
    return (
        pair.lane is Lane.EXACT and rule_named(pair.rule).compare == "text"
        and _family(ours) == _family(theirs) and _family(ours) in DIGEST_FAMILIES
        and not ours.generation and not theirs.generation
        and (ours.scale, ours.fsp) == (theirs.scale, theirs.fsp)
        and (ours.data_type == theirs.data_type or _family(ours) not in ("date", "datetime", "time"))
    )  # fmt: skip

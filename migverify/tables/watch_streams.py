"""What a watch follows: the streams of one direction, the tables in them, and who applies them.

Forward, the sources are written and the target follows; in reverse the target is written, and the sources follow. Table
pairs are the same in both: what a run proved of them counts in the other direction too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from migverify.changes.carriers.base import Types, UndecodableError
from migverify.changes.carriers.column_text import parse_type
from migverify.changes.carriers.followed import FollowedCarrier
from migverify.changes.carriers.formats import CarrierFormat, CarrierSource, read_types
from migverify.changes.carriers.kafka import KafkaLogin
from migverify.changes.model import Position
from migverify.changes.positions import time_tso
from migverify.config import Config, includes, override_for, route, shard_of
from migverify.config.reverse import ReverseSettings
from migverify.db.pool import SessionPool
from migverify.db.reader import SidePlan
from migverify.db.session import Session, open_session
from migverify.db.snapshot import current_timestamp
from migverify.errors import ConfigError, EndpointError, PrivilegeError, ReadError
from migverify.model import Endpoint, Flavor, TableDef
from migverify.sql.applied import MARKER_NAME_WIDTH
from migverify.sql.catalog import read_table, read_tables
from migverify.tables.tasks import PairPlan, Secrets
from migverify.tables.watch_identity import Watched
from migverify.watch.applied import Applied, CheckpointTable, Marker, SettleTime, TimedMarker
from migverify.watch.clock import CommitClock
from migverify.watch.stream import FollowedBinlog, Stream

if TYPE_CHECKING:
    from migverify.config.reverse import CarrierSettings


def marker_name(config: Config, *, reverse: bool = False) -> str | None:
    """Return the marker table as ``database.table``, None where the follower's position is learned otherwise."""
    settings = config.reverse if reverse else config.watch
    return settings.marker if settings is not None and settings.applied == "marker" else None


def watched_pairs(config: Config, pairs: Sequence[PairPlan], *, reverse: bool = False) -> list[Watched]:
    """Return the tables of pairs, numbered in their order, as the streams of a direction name them.

    The marker's own table goes another way: its rows are how the others are judged.
    """
    marker = marker_name(config, reverse=reverse)
    return [
        w for number, pair in enumerate(pairs) for w in watched_tables(config, number, pair, reverse=reverse)
        if f"{w.database}.{w.table}" != marker
    ]  # fmt: skip


def watched_tables(config: Config, number: int, pair: PairPlan, *, reverse: bool = False) -> Iterator[Watched]:
    """Yield a pair's tables as the streams of a direction name them."""
    written: Sequence[SidePlan] = pair.sources
    if reverse:
        written = () if pair.target_side is None or not pair.sources else (pair.target_side,)
    for side in written:
        of = pair.sources[0] if reverse else side
        override = override_for(config, of.database, of.table)
        before = override.immutable_before
        column = before and (dict(override.rename).get(before.column, before.column) if reverse else before.column)
        names = tuple(c.name[1:-1].replace("``", "`") for c in side.sql.key) if pair.readable else ()
        yield Watched(number, side.endpoint.name, side.database, side.table, names, side.sql.key,
                      (column, before.value) if before and column else None, pair=pair)  # fmt: skip


def is_followed(config: Config, pairs: Sequence[PairPlan], database: str, table: str) -> bool:
    """Whether a table of the target should have a pair: one of its name on a source would lead to it."""
    databases = {side.database for pair in pairs for side in pair.sources}
    return any(
        includes(config, one, table) and route(config, shard_of(endpoint), one, table) == (database, table)
        for one in databases for endpoint in config.sources
    )  # fmt: skip


def stream_of(config: Config, secrets: Secrets, endpoint: Endpoint, start: Position, run_id: str) -> Stream:
    """Return the change stream of one source from ``start`` on; the marker is that of the run."""
    marker = marker_name(config)
    database, _, table = (marker or "").partition(".")
    changes = FollowedBinlog(endpoint, secrets.get(endpoint.name))
    name = marker_row(endpoint, run_id)
    applied = applied_of(config, endpoint.name, name)
    return Stream(endpoint, changes, applied, start, (database, table) if marker else None, name)


def marker_row(endpoint: Endpoint, run_id: str) -> str:
    """Return the name of the row that one watch writes on one endpoint, in the width of its column.

    A row of its own for each watch: a proof runs beside the service, and one's higher number would let the other
    believe that its own marker has arrived.
    """
    row = f"migverify {endpoint.name} {run_id}"
    if len(row) > MARKER_NAME_WIDTH:
        row = f"migverify {sha256(endpoint.name.encode()).hexdigest()[:16]} {run_id}"
    return row


def applied_of(config: Config, name: str, row: str) -> Applied:
    """Return how the target says what it applied of a source; ``row`` is the marker's, see ``marker_row``."""
    settings = config.watch
    shard = name.partition(".")[2]
    if settings.applied == "checkpoint" and settings.checkpoint is not None:
        return CheckpointTable(settings.checkpoint, (settings.checkpoint_id or {}).get(shard))
    if settings.applied == "marker" and settings.marker is not None:
        database, _, table = settings.marker.partition(".")
        return Marker(settings.marker, ".".join(route(config, shard, database, table)), row)
    return SettleTime(settings.settle_seconds)


def reverse_stream(
    config: Config, start: Position, run_id: str, secrets: Secrets | None = None, types: Types | None = None
) -> Stream:
    """Return the changes of the target from ``start`` on, as a changefeed carries them; the marker is that of the run.

    With ``secrets`` the target is asked for its time: messages of another cluster, ahead of it, are refused. ``types``
    are those of the target's columns, for what messages leave open; declared ones go before them.

    Raises
    ------
    ConfigError
        no changefeed is configured, or its marker cannot reach several sources.
    """
    settings = config.reverse
    if settings is None or settings.carrier is None:
        raise ConfigError(
            "no changefeed of the target is configured, so nothing says which rows were written there",
            hint="Name one by reverse.carrier, or sweep all tables in rounds: --sweep MINUTES; see docs/reverse.md.",
        )
    marker = _reverse_marker(config)
    applied: Applied = SettleTime(settings.settle_seconds, has_timestamps=True)
    if marker is not None:
        applied = Marker(marker, marker, marker_row(config.target, run_id))
    database, _, table = (marker or "").partition(".")
    newest = None if secrets is None else clock_of(config.target, secrets.get(config.target.name))
    changes = replace(carrier_of(settings.carrier, newest, types or {}), reader=run_id)
    place = (database, table) if marker else None
    name = marker_row(config.target, run_id)
    return Stream(config.target, changes, applied, start, place, name, changes.set_aside)


def clock_of(endpoint: Endpoint, password: str | None) -> Callable[[], int]:
    """Return how to ask a TiDB for its present timestamp; where it does not answer, the clock of this machine is taken.

    A TiDB that is restarted must not end the stream of its changes, and the two clocks are within the margin that a
    carrier allows.
    """

    def ask() -> int:
        try:
            with open_session(endpoint, password) as session:
                return current_timestamp(session)
        except EndpointError:
            return time_tso(time.time())

    return ask


def column_types(pool: SessionPool, endpoint: Endpoint, names: Sequence[tuple[str, str]]) -> Types:
    """Return the types of the columns of some tables that a carrier's messages can be read by; raises ReadError.

    A message need not hold the labels of an ENUM or the width of a BIT. After DDL these are the types of before: what
    does not fit them is kept as a dead letter, and the table is compared.
    """
    with pool.session(endpoint) as session:
        return types_of(session, endpoint.name, names)


def types_of(session: Session, endpoint: str, names: Sequence[tuple[str, str]]) -> Types:
    """Return the types of the columns of some tables of an endpoint, as ``column_types``."""
    return {
        f"{one.ref.database}.{one.ref.table}": {
            column.name: column.column_type for column in one.columns if _is_known(column.column_type)
        }
        for one in read_tables(session, endpoint, names, estimates=False)
    }


def _is_known(column_type: str) -> bool:
    try:
        parse_type(column_type, Flavor.TIDB)
    except UndecodableError:
        return False
    return True


def carrier_of(
    settings: CarrierSettings, newest: Callable[[], int] | None = None, known: Types | None = None
) -> FollowedCarrier:
    """Return a changefeed as its settings describe it; ``newest`` as for ``CommittedChanges``, ``known`` are types.

    Raises
    ------
    ConfigError
        the file of column types cannot be read.
    """
    declared = read_types(Path(settings.types)) if settings.types else {}
    types = {name: {**(known or {}).get(name, {}), **declared.get(name, {})} for name in {**(known or {}), **declared}}
    kafka = settings.kafka
    login = None if kafka is None else KafkaLogin(
        kafka.servers, kafka.security_protocol, kafka.sasl_mechanism, kafka.username_env or "",
        kafka.password_env or "", kafka.ca_file or "",
    )  # fmt: skip
    source = CarrierSource(
        CarrierFormat(settings.format, types, settings.time_zone), login, kafka.topics if kafka is not None else (),
        tuple(map(Path, settings.files)),
    )  # fmt: skip
    return FollowedCarrier(source, Path(settings.dead_letters), settings.start_ts, newest)


def feed_name(settings: CarrierSettings) -> str:
    """Return the text that tells a changefeed from others: its format, and where its messages are."""
    kafka = settings.kafka
    places = (
        [kafka.servers, *kafka.topics] if kafka is not None else [str(Path(path).absolute()) for path in settings.files]
    )
    return " ".join([settings.format, *places])


def clock_stream(config: Config, secrets: Secrets, run_id: str) -> Stream:
    """Return the time of the target, which is followed where no changefeed carries its changes.

    Raises
    ------
    ConfigError
        the marker cannot reach several sources.
    """
    marker, settings = _reverse_marker(config), config.reverse or ReverseSettings()
    applied: Applied = SettleTime(settings.settle_seconds)
    if marker is not None:
        applied = TimedMarker(marker, marker, marker_row(config.target, run_id))
    return Stream(config.target, CommitClock(config.target, secrets.get(config.target.name)), applied, None)


def _reverse_marker(config: Config) -> str | None:
    marker = marker_name(config, reverse=True)
    if marker is not None and len(config.sources) > 1:
        raise ConfigError(
            "a marker reaches one source only, and there are several", hint="Set reverse.applied: settle."
        )
    return marker


def check_marker(stream: Stream, followers: Sequence[Endpoint], pool: SessionPool) -> None:
    """Refuse a marker that cannot work before anything is read; writes the first one.

    Raises
    ------
    ConfigError
        its table is missing on a side, is another one, or cannot be written.
    """
    marker = stream.applied
    if not isinstance(marker, Marker):
        return
    hint = "Make it on both sides as docs/reverse.md says, and let the changefeed carry it; or reverse.applied: settle."
    tables = [(stream.endpoint, marker.on_source), *((follower, marker.on_target) for follower in followers)]
    for endpoint, name in tables:
        with pool.session(endpoint) as session:
            problem = _marker_problem(read_table(session, endpoint.name, *name.split(".", 1)))
        if problem:
            raise ConfigError(f"the marker table {name} on {endpoint.name} {problem}", hint=hint)
    try:
        with pool.session(stream.endpoint) as session:
            number = marker.sample(session)
            written = marker.newest(session, marker.on_source)
    except (PrivilegeError, ReadError) as error:
        raise ConfigError(
            f"no marker can be written into {marker.on_source} on {stream.endpoint.name}: {error.message}",
            hint=f"The user of {stream.endpoint.name} needs SELECT, INSERT and DELETE on it.",
        ) from error
    if written < number:
        raise ConfigError(
            f"the marker table {marker.on_source} on {stream.endpoint.name} did not keep marker {number}", hint=hint
        )


def _marker_problem(table: TableDef | None) -> str:
    """Return why rows of markers cannot be kept in a table, empty where they can."""
    if table is None:
        return "does not exist, or the user may not see it"
    missing = {"name", "number", "written"} - {column.name.lower() for column in table.columns}
    if missing:
        return f"has no column {', '.join(sorted(missing))}"
    # Without it TiCDC carries no row, and a marker that is written again is one more row.
    keys = [tuple((name or "").lower() for name in index.columns) for index in table.indexes if index.primary]
    return "" if keys == [("name",)] else "has not the column name as its primary key"

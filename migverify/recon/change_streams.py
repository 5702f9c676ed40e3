"""Where the changes of a rule's window come from: a server's binlog, an archive, copied files, a TiDB's changefeed."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from datetime import UTC, datetime, timedelta
from time import time

from migverify.changes.files import file_ranges
from migverify.changes.manifest import read_manifest
from migverify.changes.model import Item, Position
from migverify.changes.positions import parse_position, time_tso
from migverify.changes.server import source_state
from migverify.changes.source import read_files, read_range, read_server
from migverify.changes.storage import Storage
from migverify.db.session import Session, open_session
from migverify.db.snapshot import ReadSnapshot
from migverify.errors import ChangeError, ConfigError
from migverify.model import Endpoint, Flavor, Side
from migverify.recon.changefeed import Changefeed, no_changefeed
from migverify.recon.relation import ChangeRead
from migverify.sql.server import PURGED, UTC_NOW

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FILE = re.compile(r".+\.[0-9]{6,}\Z")


class ChangeStream:
    """Items of a change stream, and what they cover.

    ``from_birth``: Nothing was ever written before its begin, or it proves by itself that it reaches back to the
    window. ``has_watermarks``: An Idle says up to which commit time it is complete.
    """

    def __init__(
        self, items: Generator[Item, None, None], name: str, flavor: str, *, from_birth: bool, seen_until: int | None,
        has_watermarks: bool = False,
    ) -> None:  # fmt: skip
        self.items = items
        self.name, self.flavor = name, flavor
        self.from_birth, self.seen_until = from_birth, seen_until
        self.has_watermarks = has_watermarks
        self.end = ""

    @property
    def snapshot(self) -> ReadSnapshot:
        """Up to where it was read."""
        return ReadSnapshot(self.name, self.flavor, "change stream", self.end, self.end, exact=True, at=time())


def open_stream(
    read: ChangeRead, endpoints: Mapping[str, Endpoint], secrets: Mapping[str, str], feeds: Mapping[str, Changefeed]
) -> ChangeStream:
    """Open the change stream of a read: of an endpoint, an archive, or files.

    Raises
    ------
    ConfigError
        There is no such endpoint, or no changefeed of a TiDB.
    ChangeError
        There is nothing to read, or the server cannot be read.
    """
    part = read.part
    since = parse_position(read.since) if read.since else None
    if part.endpoint:
        endpoint = endpoints.get(part.endpoint)
        if endpoint is None:
            raise ConfigError(f"there is no endpoint {part.endpoint}", hint=f"Known: {', '.join(endpoints)}.")
        password = secrets.get(endpoint.name)
        with open_session(endpoint, password, side=Side.SOURCE) as session:
            if session.flavor is Flavor.TIDB:
                return _carried(session, feeds.get(endpoint.name), read, since)
            return _server(session, password, since)
    return _files(part.path, since)


def _server(session: Session, password: str | None, since: Position | None) -> ChangeStream:
    endpoint = session.endpoint
    # The clock first: what is committed later has a later time, and is after the end that is read next.
    clock = micros(session.query(UTC_NOW)[0][0] or "")
    state = source_state(session)
    purged = "" if session.flavor is not Flavor.MYSQL else session.query(PURGED)[0][0]
    birth = since is None and state.gtids and not purged and state.first.file.endswith((".000001", ".0000001"))
    items = (item for item in read_server(endpoint, password, since or state.first, follow=False))
    return ChangeStream(items, endpoint.name, state.flavor.value, from_birth=birth, seen_until=clock)


def _carried(session: Session, feed: Changefeed | None, read: ChangeRead, since: Position | None) -> ChangeStream:
    name = session.endpoint.name
    if feed is None:
        raise no_changefeed(name)
    start, end = since.offset if since is not None else 0, None
    if read.window is not None:
        start, end = (time_tso(micros(text) / 1_000_000) for text in read.window)
        start -= 1
    items = feed.read(session, (read.part.database, read.part.table), start, end)
    return ChangeStream(items, name, Flavor.TIDB.value, from_birth=True, seen_until=None, has_watermarks=True)


def _files(path: str, since: Position | None) -> ChangeStream:
    storage = Storage(path)
    if _FILE.match(path):
        items = (item for item in read_files([path], since))
        return ChangeStream(items, path, "binlog", from_birth=False, seen_until=None)
    manifest = read_manifest(storage)
    if manifest.files:
        wanted = file_ranges(manifest, since)
        items = (item for one in wanted for item in read_range(storage, one))
        birth = since is None and manifest.files[0].name.endswith(".000001")
        return ChangeStream(items, path, "binlog", from_birth=birth, seen_until=None)
    names = [name for name in storage.names() if _FILE.match(name)]
    if not names:
        raise ChangeError(f"{path} holds no binlog files.", hint="Give an archive, or a folder of copied binlog files.")
    paths = [f"{path.rstrip('/')}/{name}" for name in names]
    items = (item for item in read_files(paths, since))
    birth = since is None and names[0].endswith(".000001")
    return ChangeStream(items, path, "binlog", from_birth=birth, seen_until=None)


def micros(text: str) -> int:
    """Return a UTC text as microseconds since 1970."""
    moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    return (moment - EPOCH) // timedelta(microseconds=1)

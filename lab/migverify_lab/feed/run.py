"""A reverse feed that runs: writers, the thread that reads snapshots and sends, the output, and the applier."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from migverify.changes.carriers.formats import CarrierFormat
from migverify.changes.positions import tso_position
from migverify.errors import LabError, MigverifyError
from migverify_lab import kafka
from migverify_lab.cache import make_directory
from migverify_lab.feed.applier import FollowedFiles, FollowedTopic, TypedRows, feed_user, make_applier, parser_of
from migverify_lab.feed.canal import CanalEncoder
from migverify_lab.feed.catalog import Catalog
from migverify_lab.feed.emitter import Dispatch, Emitter
from migverify_lab.feed.faults import CarrierFaults, FeedFault, as_feed, as_pair, parse_feed_fault
from migverify_lab.feed.old_side import write_rows
from migverify_lab.feed.open_protocol import OpenEncoder
from migverify_lab.feed.options import FeedOptions
from migverify_lab.feed.outputs import FeedOutput, FileOutput, KafkaOutput, StorageOutput
from migverify_lab.feed.polling import SnapshotPoller
from migverify_lab.feed.statements import Verb, parse_write
from migverify_lab.feed.writer import FedConnection, Timestamps
from migverify_lab.replicator import Replicator, ReplicatorOptions
from migverify_lab.replicator_faults import FaultDone, RowDifference
from migverify_lab.session import LabServer, LabServers, connect, execute, query

WAIT_SECONDS = 60.0
POSITION = "position.json"


@dataclass(slots=True)
class ReverseFeed:
    """A running feed; made by ``feed``.

    Attributes
    ----------
    start
        The timestamp at which it begins: changes up to it are not carried.
    servers, topic
        Kafka; empty for files.
    folder
        Of files and of the storage sink.
    applier
        The replicator that writes to MySQL, None with ``apply=False``.
    """

    pair: LabServers
    options: FeedOptions
    folder: Path
    emitter: Emitter
    catalog: Catalog
    servers: str = ""
    start: int = 0
    applier: Replicator | None = None
    failure: MigverifyError | None = None
    timestamps: Timestamps = field(default_factory=Timestamps)
    writers: list[threading.Thread] = field(default_factory=list)
    watermark: int = 0
    _moved: threading.Condition = field(default_factory=threading.Condition)
    _ended: threading.Event = field(default_factory=threading.Event)
    _connection: FedConnection | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _old_side: list[FaultDone] = field(default_factory=list)

    @property
    def topic(self) -> str:
        """The topic, empty for files."""
        return self.options.topic if self.servers else ""

    @property
    def format(self) -> CarrierFormat:
        """What a reader must know of the messages: format, declared types, time zone."""
        return CarrierFormat(self.options.protocol, self.catalog.types(), "UTC")

    @property
    def paths(self) -> list[Path]:
        """The files of the partitions; of the storage sink its folder."""
        output = self.emitter.output
        return output.paths if isinstance(output, FileOutput) else [self.folder]

    # --- writing ------------------------------------------------------------------------------------------------

    def connect(self, _server: LabServer | None = None, database: str = "") -> FedConnection:
        """Open a connection whose transactions are carried; each thread needs one of its own."""
        return FedConnection(self.pair.target, self.catalog, self.timestamps, self.emitter.report,
                             self.options.covers, database)  # fmt: skip

    def write(self, *statements: str) -> int:
        """Run statements on TiDB in one transaction, or one DDL; returns the commit timestamp."""
        self.check()
        with self._lock:
            if self._connection is None:
                self._connection = self.connect()
            if len(statements) == 1 and parse_write(statements[0]).verb is Verb.OTHER:
                return self._connection.run_ddl(statements[0])
            self._connection.begin()
            try:
                for sql in statements:
                    self._connection.query(sql)
            except BaseException:
                self._connection.rollback()
                raise
            return self._connection.commit()

    def write_old_side(self, *statements: str) -> None:
        """Run statements on MySQL, as a client does that did not move: nothing carries what they do."""
        with connect(self.pair.source) as connection:
            connection.begin()
            execute(connection, *statements)
            connection.commit()

    # --- waiting ------------------------------------------------------------------------------------------------

    def resolved(self, seconds: float = WAIT_SECONDS) -> int:
        """Wait until everything that was committed before this call was sent; returns the newest watermark.

        Raises
        ------
        LabError
            not in time; what ended the feed, where it has ended.
        """
        with connect(self.pair.target) as connection:
            connection.begin()
            now = int(query(connection, "SELECT TIDB_CURRENT_TSO()")[0][0])
        until = time.monotonic() + seconds
        # Twice: what a snapshot changed has its timestamp, which only the next watermark is behind.
        return self._wait_behind(self._wait_behind(now, until), until)

    def _wait_behind(self, timestamp: int, until: float) -> int:
        with self._moved:
            while self.watermark <= timestamp:
                self.check()
                if time.monotonic() > until:
                    raise LabError(f"the watermark is at {self.watermark}, not behind {timestamp}",
                                   hint="A transaction may be under way.")  # fmt: skip
                self._moved.wait(0.2)
            return self.watermark

    def drain(self, seconds: float = WAIT_SECONDS) -> int:
        """Wait until MySQL has everything that was committed before this call; returns the watermark.

        Raises
        ------
        LabError
            not in time, or there is no applier; what ended it, where it has ended.
        """
        if self.applier is None:
            raise LabError("this feed is not applied", hint="Say apply=True.")
        resolved, late = 0, True
        while late:
            resolved = self.resolved(seconds)
            late = self.emitter.is_late  # read before the wait: what is sent meanwhile needs one more
            self.applier.wait_until(tso_position(resolved - 1), seconds)
        return resolved

    def applied(self) -> float:
        """Return up to which commit timestamp the applier is."""
        applied = None if self.applier is None else self.applier.status.at
        return 0 if applied is None else applied.offset

    def settle(self, seconds: float = WAIT_SECONDS) -> None:
        """Wait until all that was committed was sent and, unless the applier is stalled, applied."""
        if self.applier is None or self.applier.status.stalled:
            self.resolved(seconds)
        else:
            self.drain(seconds)

    def check(self) -> None:
        """Raise what ended the feed or its applier, if anything did."""
        if self.applier is not None and self.applier.failure is not None:
            raise self.applier.failure
        if self.failure is not None:
            raise self.failure

    # --- faults -------------------------------------------------------------------------------------------------

    def fault(self, text: str) -> None:
        """Do a fault from now on, such as ``message-lost:at=3,table=orders``; see ``FeedFault``.

        ``old-side-writer`` is done at once: ``most=`` rows of ``table=`` get another value on MySQL alone.
        """
        rule = parse_feed_fault(text)
        if rule.fault is FeedFault.OLD_SIDE_WRITER:
            self._old_side += write_rows(self.pair.source, rule, self.options.seed, len(self._old_side))
        elif not rule.in_applier:
            self.emitter.faults.switch_on(rule)
        elif self.applier is None:
            raise LabError(f"{rule.fault} is a fault of the applier, and there is none", hint="Say apply=True.")
        else:
            self.applier.injector.switch_on(rule.rule)

    def fault_off(self, name: str) -> None:
        """Do a fault no more; what it did stays. ``stalled`` goes on at the place where it stopped."""
        rule = parse_feed_fault(name)
        self.emitter.faults.switch_off(rule.fault)
        if rule.in_applier and self.applier is not None:
            self.applier.injector.switch_off(rule.rule.kind)
            self.applier.resume()

    @property
    def fault_lists(self) -> tuple[list[FaultDone], ...]:
        """What the faults did so far, of the carrier, of the applier, and on the old side; each list only grows."""
        applied = self.applier.faults_done if self.applier is not None else []
        return [*map(as_feed, self.emitter.faults.faults_done)], [*map(as_feed, applied)], self._old_side

    @property
    def faults_done(self) -> list[FaultDone]:
        """What the faults did so far, with key and columns."""
        return [done for faults in self.fault_lists for done in faults]

    def standing(self) -> list[RowDifference]:
        """Return what differs now because of the faults, as a verification of the pair names it (MySQL: source)."""
        differences = self.emitter.faults.ledger.standing()
        if self.applier is not None:
            differences += self.applier.injector.standing()
        return [*as_pair(differences), *(difference for done in self._old_side for difference in done.differences)]

    # --- the thread that sends ------------------------------------------------------------------------------------

    def follow(self, poller: SnapshotPoller) -> None:
        """Send until ``end``: on each snapshot what the polled tables changed, and what was reported meanwhile."""
        try:
            while not self._ended.wait(self.options.interval):
                self._send(poller)
            self._send(poller)
        except MigverifyError as error:
            self.failure = error
        except Exception as error:  # noqa: BLE001 - a thread that dies silently would look like a stall
            self.failure = LabError(f"the reverse feed broke: {error!r}")

    def _send(self, poller: SnapshotPoller) -> None:
        timestamp, changes = poller.snapshot()
        # In this order: a transaction that holds after the snapshot's timestamp was given out commits above it.
        resolved = self.timestamps.resolved(timestamp)
        self.timestamps.see(timestamp)
        self.emitter.report(changes)
        self.emitter.flush(resolved)
        with self._moved:
            self.watermark = max(self.watermark, resolved)
            self._moved.notify_all()
        self._remember()

    def _remember(self) -> None:
        """Write down how far the feed is: what TiCDC keeps as the changefeed's checkpoint."""
        partial = self.folder / f".{POSITION}.new"
        partial.write_text(json.dumps({"resolved": self.watermark}) + "\n")
        partial.replace(self.folder / POSITION)

    def end(self) -> None:
        """Tell the sending thread to end after one more snapshot."""
        self._ended.set()
        if self._connection is not None:
            self._connection.close()


@contextmanager
def feed(pair: LabServers, folder: Path, **options: Any) -> Iterator[ReverseFeed]:
    """Run a reverse feed for a block; the parameters are those of ``FeedOptions``.

    Raises
    ------
    MigverifyError
        what ended the feed or its applier before.
    """
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in options.items()
    }
    chosen = FeedOptions(**given)
    with ExitStack() as stack:
        servers = chosen.servers
        if chosen.out == "kafka" and not servers:
            servers = stack.enter_context(kafka.broker(make_directory(folder / "kafka"))).servers
        running = _start(pair, make_directory(folder.absolute()), chosen, servers, stack)
        yield running
        if running.failure is not None:
            raise running.failure


def _start(pair: LabServers, folder: Path, options: FeedOptions, servers: str, stack: ExitStack) -> ReverseFeed:
    catalog = Catalog(pair.target)
    poller = SnapshotPoller(pair.target, catalog, options.polled)
    stack.callback(poller.close)
    start = poller.begin(_position(folder) or options.since)
    output = _output(options, folder, servers, start)
    stack.callback(output.close)
    emitter = Emitter(output, Dispatch(options.dispatch), CarrierFaults(options.seed))
    running = ReverseFeed(pair, options, folder, emitter, catalog, servers if options.out == "kafka" else "", start)
    running.timestamps.see(start)
    emitter.flush(start)  # readers that open the topic now find a leader and a message on every partition
    if options.apply:
        ended = threading.Event()
        running.applier = _applier(running, ended)
        emitter.applied = running.applied
        running.applier.start()
        stack.callback(running.applier.end)
        stack.callback(ended.set)
    for text in options.faults:
        running.fault(text)
    thread = threading.Thread(target=running.follow, args=(poller,), name="reverse-feed", daemon=True)
    thread.start()
    stack.callback(thread.join, WAIT_SECONDS)
    stack.callback(running.end)
    return running


def _position(folder: Path) -> int:
    path = folder / POSITION
    return int(json.loads(path.read_text())["resolved"]) if path.exists() else 0


def _output(options: FeedOptions, folder: Path, servers: str, start: int) -> FeedOutput:
    canal = CanalEncoder(options.old, options.full_types, key_only_deletes=options.old == "off")
    if options.out == "storage":
        return StorageOutput(canal, folder, start)
    encoder = canal if options.protocol == "canal-json" else OpenEncoder(options.old)
    if options.out == "files":
        return FileOutput(encoder, folder, options.partitions)
    return KafkaOutput(encoder, servers, options.topic, options.partitions)


def _applier(running: ReverseFeed, ended: threading.Event) -> Replicator:
    options, faults = running.options, running.emitter.faults
    mysql = feed_user(running.pair.source, options.user, options.databases)
    types = Catalog(running.pair.target)
    parser, lines = parser_of(options.protocol, types), options.protocol == "canal-json"

    def follow() -> FollowedTopic | FollowedFiles:
        if running.servers:
            return FollowedTopic(running.servers, options.topic, parser, ended)
        return FollowedFiles(running.folder, options.partitions, lines, parser, ended)

    typed = TypedRows(mysql, types, lambda name: name in faults.uncarried)
    chosen = ReplicatorOptions(mysql, options.databases, options.name, seed=options.seed,
                               idle_checkpoints=options.idle_checkpoints)  # fmt: skip
    return make_applier(chosen, follow, typed, running.start, running.folder / "dead-letters.jsonl")

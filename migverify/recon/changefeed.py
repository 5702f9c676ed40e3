"""The changes of a TiDB as rules read them: out of the messages of its changefeed.

Each read of a window reads the carrier from the window's start on, and proves by itself that the carrier reaches back
to there. Beside that, a watch follows the carrier on a thread: its watermark says up to when it is complete, and a
change that comes after a watermark that excluded it is noticed, in any window.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from migverify.changes.carriers.base import Reject, Types
from migverify.changes.carriers.committed import MARGIN_SECONDS, CommittedChanges
from migverify.changes.carriers.dead_letters import DeadLetterFile
from migverify.changes.carriers.followed import FollowedCarrier
from migverify.changes.carriers.table_range import TableRange
from migverify.changes.model import Idle, Item
from migverify.changes.positions import time_tso, tso_position
from migverify.config import Config
from migverify.db.session import Session, open_session
from migverify.errors import ConfigError, EndpointError, IncompleteReadError, MigverifyError, StoreError
from migverify.model import Endpoint
from migverify.tables.watch_streams import carrier_of, clock_of, types_of

RETRY_SECONDS = 10.0
"""How long brokers that do not answer are left alone."""
AGAIN_SECONDS = 1.0
"""So much of the changefeed is read again by a watch that goes on."""

TableName: TypeAlias = tuple[str, str]


@dataclass(slots=True)
class Changefeed:
    """The changefeed of an endpoint. ``make`` returns its carrier, given the types of columns that are known."""

    endpoint: Endpoint
    password: str | None = field(repr=False)
    make: Callable[[Types], FollowedCarrier] = field(repr=False)
    _letters: DeadLetterFile | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, config: Config, password: str | None) -> Changefeed | None:
        """Return that of the target, None where none is configured."""
        carrier = config.reverse.carrier if config.reverse is not None else None
        if carrier is None:
            return None
        newest = clock_of(config.target, password)
        return cls(config.target, password, lambda types: carrier_of(carrier, newest, types))

    def read(
        self, session: Session, table: TableName, start: int = 0, end: int | None = None
    ) -> Generator[Item, None, None]:
        """Return the transactions of a table between two timestamps of TiDB, complete up to the last Idle.

        ``start``: Exclusive; 0 is the first message. ``end``: Exclusive; None is the present end of the carrier.

        Raises
        ------
        ConfigError
            the carrier's settings are wrong.
        PurgedError
            the carrier does not reach back to the start.
        """
        followed = self.make(types_of(session, self.endpoint.name, [table]))
        carrier = TableRange(followed.source.carrier(keys_only=True), [table], start, end)
        return self._items(
            followed.changes(carrier, tso_position(start) if start else None, self.letters(followed))
        )  # fmt: skip

    def _items(self, changes: CommittedChanges) -> Generator[Item, None, None]:
        yield from changes.items()
        if not changes.has_watermark:
            raise IncompleteReadError(
                f"the changefeed of {self.endpoint.name} sent no watermark to every partition",
                hint="Let it send watermarks: enable-tidb-extension=true.",
            )

    def follower(self, run_id: str, tables: Sequence[TableName], position: int) -> ChangefeedFollower:
        """Return a follower for a watch, not begun yet; ``position`` is that of an earlier process, or 0."""
        with open_session(self.endpoint, self.password) as session:
            types = types_of(session, self.endpoint.name, tables)
        followed = replace(self.make(types), reader=f"recon-{run_id}")
        if position:
            # What came right behind that watermark may have been read, and not be kept yet.
            begin = position - time_tso(AGAIN_SECONDS)
        else:  # what rules read of before is proved by each read
            begin = time_tso(time.time() - MARGIN_SECONDS)
            followed = replace(followed, feed_start=begin)
        letters = self.letters(followed)

        def open_changes(since: int) -> CommittedChanges:
            carrier = TableRange(followed.carrier(), tables, since, endless=True)
            return followed.changes(carrier, tso_position(since), letters)

        broken_file = followed.dead_letters.with_name(f"{followed.dead_letters.name}.{followed.reader}.broken")
        return ChangefeedFollower(open_changes, begin, broken_file)

    def letters(self, followed: FollowedCarrier) -> DeadLetterFile:
        """Return the dead letters, opened once: opening the file removes a line that is being written."""
        with self._lock:
            if self._letters is None:
                self._letters = DeadLetterFile(followed.dead_letters)
            return self._letters


class ChangefeedFollower:
    """Follows a changefeed on a thread, and knows up to where it is complete.

    Parameters
    ----------
    open_changes
        Opens the changes of the tables that rules read, behind a timestamp.
    begin
        The timestamp to begin at.
    broken_file
        Keeps the promise that was broken, for a watch that goes on: no window read later shows the change.
    """

    def __init__(
        self, open_changes: Callable[[int], CommittedChanges], begin: int, broken_file: Path
    ) -> None:  # fmt: skip
        self._open, self._begin, self._broken_file = open_changes, begin, broken_file
        self.reached = 0
        """The timestamp up to which everything was read; 0 before the first watermark behind the beginning."""
        self.failure = ""
        """Why nothing more is read now; empty while the changefeed is followed."""
        self.broken = _text_of(broken_file)
        """Which promise of a watermark was broken, so that closed windows may lack a change; empty for none."""
        self._known = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="changefeed", daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread at its next item, which comes within a second."""
        self._stop.set()

    def wait(self, seconds: float) -> None:
        """Wait until something is known: a watermark, or a failure."""
        self._known.wait(seconds)

    def _run(self) -> None:
        again = True
        while again and not self._stop.is_set():
            again = False
            try:
                self._follow()
                if self._stop.is_set():
                    return
                self.failure = "the changefeed ended"
            except EndpointError as error:
                self.failure, again = error.line, True
            except MigverifyError as error:
                self.failure = error.line
            except Exception as error:  # noqa: BLE001 - a thread that dies silently would leave the mark where it was
                self.failure = f"the reader broke: {error!r}"
            self._known.set()
            if again:
                self._stop.wait(RETRY_SECONDS)

    def _follow(self) -> None:
        begin = max(self._begin, self.reached)
        changes = self._open(begin)
        for item in changes.items():
            if self._stop.is_set():
                return
            if changes.broken and not self.broken:
                self._keep_broken(changes.broken[0])
            # A heartbeat repeats the place, and a reader that begins again has proved nothing by the first one.
            if isinstance(item, Idle) and item.at.offset > begin:
                self.reached, self.failure = item.at.offset, ""
                self._known.set()

    def _keep_broken(self, promise: Reject) -> None:
        self.broken = f"{promise.place}: {promise.reason}"
        self._known.set()
        try:
            self._broken_file.write_text(self.broken, encoding="utf-8")
        except OSError as error:
            raise StoreError(f"cannot write {self._broken_file}: {error.strerror}") from error


def no_changefeed(endpoint: str) -> ConfigError:
    """Return the error of a TiDB whose changes cannot be read."""
    return ConfigError(
        f"the changes of {endpoint}, a TiDB, are read from a changefeed, and none of it is configured",
        hint="Name the changefeed of the target by reverse.carrier; see docs/reverse.md.",
    )


def _text_of(path: Path) -> str:
    """Return the text of a file, empty where there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"cannot read {path}: {error}") from error

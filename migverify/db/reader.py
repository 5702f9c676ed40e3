"""The one way to read a table: counts, checksums, keys, rows, lookups by key and cuts of its key space.

Every read is a single autocommit statement, so it is a consistent read of its own. A connection that failed is
thrown away; a read that fails is repeated up to ``retries`` times, each time later, and then raises.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from migverify.db.pool import SessionPool
from migverify.db.retry import ReadLimits, Throttle, attempt, running_statements
from migverify.db.session import Session
from migverify.errors import CanceledError, EndpointError, ReadError, ReplacedError
from migverify.model import ChunkChecksum, Endpoint, KeyRange, KeyText
from migverify.sql import checksum
from migverify.sql.catalog import read_table
from migverify.sql.checksum import SideSql
from migverify.sql.identity import stamp_sql, stamped, value_sql
from migverify.sql.key_range import KeyColumn, sure_bound

T = TypeVar("T")

VERIFY_AGAIN = "Verify the table in a new run, with --full if it has immutable rows, while no DDL runs on it."


def check_stamp(side: SidePlan, stamp: str, first: str) -> None:
    """Raise ReplacedError where two reads were not of one table; an empty stamp is that of no read."""
    now, before = stamp.rpartition("/")[0], first.rpartition("/")[0]
    if now and before and now != before:
        raise ReplacedError(
            f"{side.endpoint.name}: {side.database}.{side.table} was replaced or rebuilt while it was verified:"
            f" its id is {now}, and was {before}",
            hint=VERIFY_AGAIN,
        )


@dataclass(frozen=True, slots=True)
class SidePlan:
    """One table of a pair: where it is, and the parts of its statements.

    ``columns_number`` is the checksum of the columns it was planned with, ``stamp`` the stamp of its first read
    (``migverify.sql.identity``); a read that shows another one is not of this table. 0 and ``""`` expect nothing.
    """

    endpoint: Endpoint
    database: str
    table: str
    sql: SideSql
    columns_number: int = 0
    partitioned: bool = False
    stamp: str = ""


Rows = list[tuple[bytes | None, ...]]
KeyRow = tuple[str, tuple[bytes | None, ...]]
"""The checksums of a row, and the canonical texts of its columns as the server sent them."""


class Reader:
    """Reads one side of a pair on a thread of its own, one statement at a time.

    Statements whose answer decides read the stamp of their table too; ``stamp`` is that of the first of them.
    """

    stamp = ""

    def __init__(self, side: SidePlan, pool: SessionPool, limits: ReadLimits) -> None:
        self.side = side
        self.sql = side.sql
        self._pool = pool
        self._limits = limits
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=side.endpoint.name)
        self._throttle = Throttle(limits, self.pause)
        self._probe = checksum.probe_sql(side.sql)
        self.stamp = side.stamp

    def pause(self, seconds: float) -> None:
        """Wait; raises CanceledError as soon as the run is canceled."""
        self._pool.canceled.wait(max(0.0, seconds))
        self._pool.refuse_canceled(self.side.endpoint)

    def later(self, read: Callable[[], T]) -> Future[T]:
        """Run ``read`` on this side's thread, after what was asked before."""
        return self._thread.submit(read)

    def close(self) -> None:
        """Wait for what runs, drop what waits."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def checksum(self, key_range: KeyRange, *, wide: bool = False) -> tuple[ChunkChecksum, float]:
        """Return the chunk checksum and the seconds the server took."""
        text = checksum.checksum_sql(self.sql, key_range, wide=wide)
        started = time.monotonic()
        row = [None if part is None else part.decode("ascii") for part in self.query(text)[0]]
        return checksum.parse_checksum(row), time.monotonic() - started

    def row_list(self, key_range: KeyRange, *, wide: bool = False, share: tuple[int, int] | None = None) -> list[bytes]:
        """Return the elements of a range, or of one share of it; IncompleteReadError when the server cut the list."""
        text = checksum.rows_sql(self.sql, key_range, wide=wide, share=share)
        return checksum.parse_rows(self.query(text)[0], self.sql)

    def key_list(self, keys: Sequence[KeyText]) -> list[bytes]:
        """Return the elements of some keys, wherever they are in the table; raises as ``row_list``."""
        return checksum.parse_rows(self.query(checksum.keys_sql(self.sql, keys))[0], self.sql)

    def rows(self, keys: Sequence[KeyText], *, wide: bool = False) -> Rows:
        """Return the rows of some keys: element, then the canonical text of every compared column.

        A collation may find more than was requested.
        """
        return self.query(checksum.full_rows_sql(self.sql, keys, wide=wide))

    def lookup(
        self, keys: Sequence[KeyText], columns: Sequence[KeyColumn], *, wide: bool = False
    ) -> dict[KeyText, list[KeyRow]]:
        """Return the rows of some keys by key; a key that is absent has no entry.

        Parameters
        ----------
        columns
            The key columns of the target, by which both sides of a pair spell a key.
        """
        found: dict[KeyText, list[KeyRow]] = {}
        wanted = set(keys)
        for row in self.rows(keys, wide=wide):
            key, checksums = checksum.split_element(columns, row[0] or b"")
            if key in wanted:
                found.setdefault(key, []).append((checksums, row[1:]))
        return found

    def rows_by_checksum(self, checksums: Sequence[str]) -> Rows:
        """Return the rows of a table without a key by their row checksums, each as ``rows`` does."""
        return self.query(checksum.rows_by_checksum_sql(self.sql, checksums))

    def bucket_sums(self, buckets: int) -> list[tuple[int, ChunkChecksum]]:
        """Sum the whole table by bucket: its number and the checksum of its rows.

        Raises
        ------
        ReadError
            a row has no checksum (longer than max_allowed_packet): the wide frame is for ranges only.
        """
        sums = []
        for row in self.query(checksum.bucket_sql(self.sql, buckets)):
            parts = [None if part is None else part.decode("ascii") for part in row]
            total = checksum.parse_checksum(parts[1:])
            if total.hashed < total.rows:
                raise ReadError(
                    f"{self.side.database}.{self.side.table}: {total.rows - total.hashed} rows are longer than"
                    " max_allowed_packet",
                    hint="Give the table a key that both sides sort alike, or raise max_allowed_packet.",
                )
            sums.append((int(parts[0] or 0), total))
        return sums

    def stream(self, condition: str, take: Callable[[Iterator[bytes]], None]) -> None:
        """Give ``take`` the elements of the whole table under a condition, one by one; again after a failure."""
        text = checksum.stream_sql(self.sql, condition)
        self.check_table()
        self.attempt(lambda session: take(row[0] or b"" for row in session.stream(text)))
        self.check_table()

    def cut(self, key_range: KeyRange, rows: int) -> Iterator[KeyRange]:
        """Yield consecutive pieces of a range, of about ``rows`` rows each; reads on this side's thread."""
        lower = key_range.lower
        while True:
            rest = KeyRange(lower, key_range.upper)
            upper = self.later(partial(self.boundary, rest, rows)).result()
            if upper is None or upper in (lower, key_range.upper):
                yield rest
                return
            yield KeyRange(lower, upper)
            lower = upper

    def walk(self, key_range: KeyRange, rows: int) -> KeyText | None:
        """Return the key ``rows`` rows into the range or somewhat more, or None when the range holds fewer.

        A key that not every server sorts alike is no bound; the next one that is, is taken.
        """
        key = self._first_key(checksum.walk_sql(self.sql, key_range, rows))
        while key is not None and not sure_bound(self.sql.range_key, key):
            key = self._first_key(checksum.sure_bound_sql(self.sql, KeyRange(key, key_range.upper)))
        return key

    def _first_key(self, text: str) -> KeyText | None:
        found = self.attempt(lambda s: s.query(text))
        return self._key(found[0]) if found else None

    def boundary(self, key_range: KeyRange, rows: int) -> KeyText | None:
        """Return a bound about ``rows`` rows into the range, or None when the range holds fewer.

        The bound is the first key column alone where its value has fewer than ``rows`` rows left: a condition on one
        column is an index range and nothing else, while the OR of a composite bound is evaluated for every row.
        """
        key = self.walk(key_range, rows)
        if key is None or len(key) == 1 or key_range.upper in (key, key[:1]):
            return key
        short = key[:1]
        if key_range.lower is not None and key_range.lower[0] == short[0]:
            return key
        return key if self.walk(KeyRange(key, short), rows) is not None else short

    def edge(self, *, last: bool) -> str | None:
        """Return the first or last value of the first range-key column; None for no rows."""
        found = self.attempt(lambda s: s.query(checksum.edge_sql(self.sql, last=last)))
        return self._key(found[0])[0] if found else None

    def count(self) -> int:
        """Return the number of rows of the table (under the configured condition)."""
        return int(self.attempt(lambda s: s.query(checksum.count_sql(self.sql)))[0][0] or 0)

    def has_rows(self) -> bool:
        """Whether the table has a row, under the configured condition or not; reads one at most."""
        return bool(self.attempt(lambda s: s.query(self._probe)))

    def running(self) -> int | None:
        """Return how many statements run on the server; None where this user may not see it, or it gave no answer."""
        try:
            with self._pool.session(self.side.endpoint, self._probe) as session:
                return running_statements(session)
        except CanceledError:
            raise
        except (ReadError, EndpointError):
            return None  # a figure that helps to be gentle decides nothing

    def query(self, text: str) -> Rows:
        """Run one SELECT of ``migverify.sql`` and return its rows.

        Raises
        ------
        ReplacedError
            the rows are not of the table that was read before, or that was planned.
        """
        if not self.side.columns_number:
            return self.attempt(lambda s: s.query_bytes(text))
        rows = self.attempt(lambda s: s.query_bytes(stamped(text, self._stamp_sql(s))))
        if not rows:
            self.check_table()
            return []
        self._check(rows[0][0] or b"")
        return [row[1:] for row in rows]

    def check_table(self) -> None:
        """Read the stamp alone: for statements that cannot hold it. Raises ReplacedError as ``query`` does."""
        if self.side.columns_number:
            self._check(self.attempt(lambda s: s.query_bytes(value_sql(self._stamp_sql(s))))[0][0] or b"")

    def _stamp_sql(self, session: Session) -> str:
        side = self.side
        return stamp_sql(
            session.flavor, side.database, side.table, table_ids=session.sees_table_ids,
            partitioned=side.partitioned,
        )  # fmt: skip

    def _check(self, answer: bytes) -> None:
        stamp, side = answer.decode("ascii"), self.side
        check_stamp(side, stamp, self.stamp)
        if stamp.rpartition("/")[2] != str(side.columns_number):
            where = f"{side.endpoint.name}: {side.database}.{side.table}"
            now = self.attempt(lambda s: read_table(s, side.endpoint.name, side.database, side.table))
            names = ", ".join(c.name for c in now.columns) if now else "(the table is gone)"
            raise ReplacedError(
                f"{where}: its columns changed while it was verified, and are now {names}", hint=VERIFY_AGAIN
            )
        self.stamp = stamp

    def _key(self, row: tuple[str | None, ...]) -> KeyText:
        columns = self.sql.range_key
        return tuple(
            "0x" + part.encode("utf-8", "surrogateescape").hex() if c.family == "binary" and part is not None else part
            for c, part in zip(columns, row, strict=False)
        )

    def attempt(self, read: Callable[[Session], T]) -> T:
        """Run a read with retries and throttles.

        Raises
        ------
        ReadError
            the last failure, when the retries are used up or another attempt cannot help.
        """

        def once() -> T:
            with self._pool.session(self.side.endpoint, self._probe) as session:
                self._throttle.wait(session)
                return read(session)

        return attempt(once, self._limits, self.pause)

"""The seam between rules and what reads and joins their rows.

A relation is a bag of rows of canonical text: key texts, then value texts. A rule's datasets become relations
(``migverify.recon.build``); an ``Engine`` joins two of them by key, wherever they lie, and gives back only the keys
that do not agree to the byte. Whether different texts are a finding (tolerance, settle time, exceptions) is decided by
``migverify.recon.kinds``, so both engines give the same findings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

from migverify.db.snapshot import ReadSnapshot
from migverify.model import ColumnDef, KeyText
from migverify.recon.model import ChangesPart, FilePart
from migverify.sql.recon import Selection
from migverify.sql.recon_join import JoinFilter as JoinFilter

Texts: TypeAlias = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """A column by which a read can be cut into key ranges.

    ``name`` is quoted; the column holds whole numbers, with an index or cheap to filter. ``lower`` and
    ``upper`` are its least and greatest value, both inclusive; NULLs are a range of their own.
    """

    name: str
    lower: int
    upper: int
    nullable: bool


@dataclass(frozen=True, slots=True)
class SqlRead(Selection):
    """A SELECT of canonical texts from one endpoint.

    ``table`` is what follows FROM: a quoted name or ``(query) AS q``. ``key`` and ``values`` are expressions of
    canonical text, NULL for NULL; all of it is UTF-8, bytes are ``0x`` and hex. ``strings`` says per key column, then
    per value, whether its text may hold a comma. With ``grouped`` the values are aggregates over rows that share the
    key. ``rows`` and ``row_bytes`` (of one row) are estimates, or -1.

    The rows that ``migverify.sql.recon.read_sql`` selects are key texts, value texts, with ``grouped`` the count of
    rows of the group, and with ``lost`` a number that is 0 when all texts of the row are whole.

    ``lookup`` are the key columns as conditions need them. ``unique`` says that a unique index forbids two rows of one
    key in this read. ``population`` is a SELECT of (rows, keys) looked at, where the read gives back some of them only
    (``having``, or a condition that looks for violations); empty where every row that was looked at comes back.
    """

    cut: Cut | None = None
    shard: str = ""
    rows: int = -1
    unique: bool = False
    population: str = ""
    row_bytes: int = -1


@dataclass(frozen=True, slots=True)
class FileRead:
    """Canonical texts of Parquet files; ``key`` and ``values`` are column names, ``types`` how to make their texts."""

    part: FilePart
    key: tuple[str, ...]
    values: tuple[str, ...]
    types: tuple[ColumnDef, ...]
    time: str | None = None
    window: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ChangeRead:
    """Canonical texts of row changes; ``window`` are the commit times, UTC texts, start inclusive and end exclusive.

    ``mapped`` replaces, per column, canonical texts by others. ``changed`` names a column: updates that left
    it as it was are not among the rows. In an aggregated relation each change is a group of one row; there a name that
    begins with ``=`` is a constant text, and one that begins with ``?`` is 1 where the column is not NULL, else 0. The
    same holds for ``FileRead``.
    """

    part: ChangesPart
    key: tuple[str, ...]
    values: tuple[str, ...]
    window: tuple[str, str] | None = None
    since: str = ""
    changed: str = ""
    mapped: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()


Read: TypeAlias = SqlRead | FileRead | ChangeRead


class Combine(StrEnum):
    """How value texts of rows of one key are combined, over all reads of a relation."""

    ROW = "row"  # they are rows: equal rows are counted, different ones make the key a duplicate
    SUM = "sum"  # exact decimals (or whole numbers) that add up; NULL adds nothing
    MIN = "min"  # least number or text; NULL loses
    MAX = "max"
    TEXT_MIN = "text min"
    TEXT_MAX = "text max"


@dataclass(frozen=True, slots=True)
class Relation:
    """Rows of one side. ``combine`` holds one entry per value column; all ROW, or none.

    ``carried`` counts the last values that are read beside the others (money, currency) and make no rows different.
    """

    dataset: str
    reads: tuple[Read, ...]
    key: tuple[ColumnDef, ...]
    values: tuple[ColumnDef, ...]
    combine: tuple[Combine, ...]
    carried: int = 0

    @property
    def rows(self) -> bool:
        """Whether values are rows of their own, not aggregates."""
        return all(how is Combine.ROW for how in self.combine) and not any(
            isinstance(read, SqlRead) and read.grouped for read in self.reads
        )

    @property
    def compared(self) -> int:
        """How many values, from the first on, make rows different."""
        return len(self.values) - self.carried


@dataclass(frozen=True, slots=True)
class KeyRows:
    """What one side holds for a key: how many rows, and the value texts of (the least of) them.

    ``differing`` says that rows of this key have different compared values, ``mixed`` different carried ones. Of
    aggregates, ``count`` is the number of rows of the group.
    """

    count: int
    values: Texts
    differing: bool = False
    shards: tuple[str, ...] = ()
    mixed: bool = False


@dataclass(frozen=True, slots=True)
class Pairing:
    """A key that did not agree: what each side holds, None where it has no such row."""

    key: KeyText
    source: KeyRows | None
    target: KeyRows | None


@dataclass(frozen=True, slots=True)
class Totals:
    """What a join read: rows and distinct keys of each side, and keys on both sides that agreed to the byte."""

    rows_source: int
    rows_target: int
    keys_source: int
    keys_target: int
    matched: int


class Joined(Protocol):
    """An answer under way: read the pairings to their end, then ask for the totals."""

    def __iter__(self) -> Iterator[Sequence[Pairing]]:
        """Yield batches of at most some thousand pairings, in no order."""
        ...

    @property
    def totals(self) -> Totals:
        """Totals; RuntimeError before the pairings were read to their end."""
        ...

    @property
    def snapshots(self) -> tuple[ReadSnapshot, ...]:
        """The moments that were read, after the end."""
        ...


class RuleEngine(Protocol):
    """Joins relations. ``local`` does so in this process, ``spark`` on a cluster; both give the same pairings."""

    name: str

    def join(self, source: Relation, target: Relation | None, keep: JoinFilter) -> Joined:
        """Join by key, read at one snapshot per endpoint.

        Raises ReadError: a read failed after its retries; nothing that was yielded before is a verdict.
        """
        ...

    def lookup(self, relation: Relation, keys: Sequence[KeyText]) -> dict[KeyText, KeyRows]:
        """Read some keys again, at a new moment; keys without rows are not in the answer."""
        ...

    def query(self, endpoint: str, sql: str, limit: int) -> tuple[tuple[str, ...], list[Texts]]:
        """Run one SELECT on an endpoint at its snapshot: column names, and at most ``limit`` rows of text."""
        ...

    def close(self) -> None:
        """Release connections and sessions."""
        ...

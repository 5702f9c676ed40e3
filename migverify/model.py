"""The nouns of migverify: frozen, typed, without I/O.

Text of key values is *canonical text*: the bytes a server makes for a value (see ``migverify.sql.canonical``),
decoded as UTF-8 for character and number columns, and as lower-case hex after ``0x`` for binary ones. ``None``
means NULL. Keys never pass through a float.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any

from migverify.errors import CONTRACT_VERSION, ExitCode

KeyText = tuple[str | None, ...]
"""Canonical text of the key columns of one row, in key order; ``None`` is NULL."""


class Verdict(StrEnum):
    """The answer of a check. There is no default: whoever makes one says which, and why."""

    MATCH = "MATCH"
    MISMATCH = "MISMATCH"
    INCONCLUSIVE = "INCONCLUSIVE"

    @classmethod
    def worst(cls, verdicts: list[Verdict]) -> Verdict:
        """MISMATCH beats INCONCLUSIVE beats MATCH; no verdicts at all is INCONCLUSIVE."""
        if cls.MISMATCH in verdicts:
            return cls.MISMATCH
        if not verdicts or cls.INCONCLUSIVE in verdicts:
            return cls.INCONCLUSIVE
        return cls.MATCH

    @property
    def exit_code(self) -> ExitCode:
        """What a command ends with that concludes so."""
        return ExitCode[self.value]


@dataclass(frozen=True, slots=True)
class NextStep:
    """A command that a reader needs next, complete and quoted for a POSIX shell, and what it does or why it is next."""

    command: str
    reason: str


def judged_document(document: Mapping[str, Any], steps: Iterable[NextStep]) -> dict[str, Any]:
    """Return the JSON of something with a verdict: what it says, the version of its schema, and the next commands."""
    return {**document, "schema_version": CONTRACT_VERSION, "next_steps": [asdict(step) for step in steps]}


class Side(StrEnum):
    """Which end of the migration."""

    SOURCE = "source"
    TARGET = "target"


class Flavor(StrEnum):
    """What kind of server answers at an endpoint; read from the server, never configured."""

    MYSQL = "mysql"
    MARIADB = "mariadb"
    TIDB = "tidb"


@dataclass(frozen=True, slots=True)
class Tls:
    """Transport encryption of one endpoint.

    ``mode``: ``disabled``, ``preferred`` (encrypt when offered), ``required`` (no certificate check),
    ``verify-ca`` or ``verify-identity``. Paths are read by the process that connects; without ``ca`` the system's
    authorities count. ``allow_cleartext_password``: the password itself may be sent where the channel is not verified.
    """

    mode: str = "preferred"
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    allow_cleartext_password: bool = False


def is_loopback(host: str) -> bool:
    """Whether a host name or address, or the path of a socket file, is this machine by what it is called."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost" or host.startswith("/")


@cache
def default_tls_mode(host: str, *, verifies: bool) -> str:
    """Return the mode of an endpoint that states none.

    Parameters
    ----------
    verifies
        An authority's or a client's certificate is configured.
    """
    return "verify-identity" if verifies or not is_loopback(host) else "preferred"


READS_NOW = {
    "tidb_snapshot": "''", "tidb_read_staleness": "0", "tidb_enable_external_ts_read": "OFF",
    "tidb_low_resolution_tso": "OFF", "tidb_read_consistency": "'strict'",
}  # fmt: skip
"""Variables of TiDB by which a session reads the past or what may not be committed; each can be a server's default."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How to reach one server. Holds the *name* of a secret or a command that prints it, never the secret.

    ``name`` is ``source``, ``source.<shard>`` or ``target``: what messages and reports call it. ``snapshot``
    is a TiDB ``tidb_snapshot`` value (datetime or TSO as text) or None. ``session`` holds extra session
    variables to set. ``connections`` bounds how many connections one run opens to it.
    """

    name: str
    host: str
    port: int
    user: str
    password_env: str | None = None
    password_command: str | None = None
    tls: Tls = Tls()
    connections: int = 4
    query_seconds: float = 0.0
    snapshot: str | None = None
    resource_group: str | None = None
    low_priority: bool = True
    session: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class TableRef:
    """A table on one endpoint; ``endpoint`` is the endpoint's name."""

    endpoint: str
    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """One column as the server's catalog describes it.

    ``data_type`` is the lower-case base type (``varchar``), ``column_type`` the full text (``varchar(20)``).
    ``generation`` is the expression of a generated column, else ``""``. ``members`` are the labels of an ENUM
    or SET in their order.
    """

    name: str
    position: int
    data_type: str
    column_type: str
    nullable: bool
    unsigned: bool = False
    default: str | None = None
    charset: str | None = None
    collation: str | None = None
    char_length: int | None = None
    octet_length: int | None = None
    precision: int | None = None
    scale: int | None = None
    fsp: int | None = None
    generation: str = ""
    stored: bool = True
    extra: str = ""
    members: tuple[str, ...] = ()
    invisible: bool = False
    comment: str = ""


@dataclass(frozen=True, slots=True)
class IndexDef:
    """One index. ``columns`` holds None for an expression part; ``prefixes`` holds the prefix length or None.

    ``kind`` is the catalog's index type (``BTREE``, ``HASH``, ``FULLTEXT``, ``SPATIAL`` ...). An index whose kind
    has no order (full text, spatial, vector) has None for every column: no key range can be cut from it.
    ``expressions`` holds what each None is (an expression, or the column of an unordered kind), else None.
    ``descending`` says of each part whether it is sorted downwards; empty where none is.
    """

    name: str
    unique: bool
    columns: tuple[str | None, ...]
    prefixes: tuple[int | None, ...]
    visible: bool = True
    kind: str = "BTREE"
    expressions: tuple[str | None, ...] = ()
    comment: str = ""
    descending: tuple[bool, ...] = ()

    @property
    def primary(self) -> bool:
        """Whether this is the primary key."""
        return self.name == "PRIMARY"


@dataclass(frozen=True, slots=True)
class TableDef:
    """One table as the server's catalog describes it. ``rows`` and ``bytes`` are the server's estimates."""

    ref: TableRef
    columns: tuple[ColumnDef, ...]
    indexes: tuple[IndexDef, ...]
    rows: int
    bytes: int
    collation: str | None = None
    engine: str | None = None
    comment: str = ""
    auto_increment: int | None = None
    partitioned: bool = False
    create_options: str = ""

    def column(self, name: str) -> ColumnDef:
        """Return the column of that exact name; raises KeyError."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)


class SchemaClass(StrEnum):
    """How much a schema difference matters to the comparison and to the data."""

    BREAKS_COMPARISON = "breaks-comparison"
    MAY_LOSE_DATA = "may-lose-data"
    COSMETIC = "cosmetic"


@dataclass(frozen=True, slots=True)
class SchemaDifference:
    """One difference between two table definitions.

    ``where`` is a column, ``key <name>`` or ``table``; ``source`` and ``target`` are the two spellings, None
    where that side has nothing.
    """

    kind: str
    where: str
    source: str | None
    target: str | None
    level: SchemaClass
    message: str


class Lane(StrEnum):
    """The set of columns one checksum covers."""

    EXACT = "exact"  # equal text is equal value, and different text is different value
    VALUE = "value"  # different text may be the same value (JSON, floats with a tolerance): decided row by row


@dataclass(frozen=True, slots=True)
class ColumnPair:
    """One source column matched with one target column, and how both become one text.

    ``rule`` names the row of the type table that was used, ``source_sql`` and ``target_sql`` the expressions
    of the canonical text (non-NULL text for non-NULL values) built from it.
    """

    source: ColumnDef
    target: ColumnDef
    rule: str
    lane: Lane
    string: bool
    source_sql: str
    target_sql: str
    tolerance: float | None = None

    @property
    def name(self) -> str:
        """The name used in reports: the source's."""
        return self.source.name


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A range of key values: ``lower`` exclusive, ``upper`` inclusive, None = open.

    ``nulls`` selects instead the rows in which any range-key column is NULL; its bounds are None. A range
    without any range key (``lower = upper = None``, no columns) is the whole table.
    """

    lower: KeyText | None = None
    upper: KeyText | None = None
    nulls: bool = False

    def __str__(self) -> str:
        if self.nulls:
            return "NULL keys"
        low = "-inf" if self.lower is None else _show(self.lower)
        high = "+inf" if self.upper is None else _show(self.upper)
        return f"({low}, {high}]"


def _show(key: KeyText) -> str:
    return ",".join("NULL" if part is None else part for part in key)


@dataclass(frozen=True, slots=True)
class ChunkChecksum:
    """What one side answered for one chunk.

    ``hashed`` < ``rows`` when the framed text of a row exceeded max_allowed_packet. Sums are exact integers of
    60-bit row checksums, so they add up over chunks and shards.
    """

    rows: int
    hashed: int
    exact: int
    value: int = 0

    def __add__(self, other: ChunkChecksum) -> ChunkChecksum:
        return ChunkChecksum(
            self.rows + other.rows,
            self.hashed + other.hashed,
            self.exact + other.exact,
            self.value + other.value,
        )


class ChunkState(StrEnum):
    """What is known of one chunk after its last attempt."""

    EQUAL = "equal"
    DIFFERENT = "different"  # row diffs or an unlocated mismatch are stored with it
    FAILED = "failed"  # retries used up; ``reason`` says why; the table is INCONCLUSIVE


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """One finished chunk: what the store keeps and a resumed run does not read again.

    ``pair`` is the table pair's id, ``span`` the number of the span the chunk lies in, ``number`` its place in
    the span (from 0, without a gap). ``started`` is Unix time, ``seconds`` the wall time of the reads.
    """

    pair: str
    span: int
    number: int
    range: KeyRange
    state: ChunkState
    source: ChunkChecksum | None
    target: ChunkChecksum | None
    started: float
    seconds: float
    source_seconds: float = 0.0
    target_seconds: float = 0.0
    attempts: int = 1
    reason: str = ""


class DiffKind(StrEnum):
    """The three ways a row can differ."""

    MISSING_ON_TARGET = "missing_on_target"
    MISSING_ON_SOURCE = "missing_on_source"
    VALUE_DIFFERS = "value_differs"


class LiveState(StrEnum):
    """What a re-read said about a row that differed once."""

    UNCONFIRMED = "unconfirmed"  # read once; never reported as a difference
    CONVERGED = "converged"  # equal now: the target had not caught up
    HOT = "hot"  # the source row kept changing between reads
    DIVERGED = "diverged"  # the source row did not change and the target still differs


@dataclass(frozen=True, slots=True)
class ColumnDiff:
    """One column of a differing row.

    ``source`` and ``target`` are canonical text (None = NULL); they are None with ``masked`` True where values
    may not be kept. ``kind`` is the class of the difference: ``case``, ``trailing-space``, ``truncated``,
    ``appended`` (the target's is longer), ``shifted +1h``, ``null``, ``empty-or-null``, ``precision``, ``charset``,
    ``sign``, ``value``, ...; ``row`` for a column of a row that has no key.
    """

    column: str
    source: str | None
    target: str | None
    kind: str
    masked: bool = False


def rows_of(kind: str, source_count: int, target_count: int) -> int:
    """Return how many rows a row diff covers: all that one side has more of, or all that differ."""
    if kind == DiffKind.VALUE_DIFFERS:
        return max(1, source_count, target_count)
    return max(1, abs(source_count - target_count))


@dataclass(frozen=True, slots=True)
class RowDiff:
    """One key and its differing columns.

    ``key`` holds canonical text per key column. In a table without a unique key, ``key`` is the row checksum
    (one part) and ``source_count`` / ``target_count`` say how many such rows each side holds. ``shard`` names the
    sources that hold the key where more than one of them does.
    """

    pair: str
    key: KeyText
    kind: DiffKind
    state: LiveState
    columns: tuple[ColumnDiff, ...] = ()
    source_checksum: str | None = None
    target_checksum: str | None = None
    source_count: int = 1
    target_count: int = 1
    shard: str = ""
    read_at: float = 0.0

    @property
    def rows(self) -> int:
        """How many rows differ: more than one under a NULL key and in tables without a key."""
        return rows_of(self.kind, self.source_count, self.target_count)


@dataclass(frozen=True, slots=True)
class NotCovered:
    """Something of a table pair that was not compared, and why. ``what`` is a column, ``rows`` or the table."""

    what: str
    reason: str


KEYLESS = "keyless"
"""Detail of the result of a table without a key: its row diffs are named by checksum, and no statement repairs them."""
NO_TABLE = "(none)"
"""The name of a table of a result where a side has none."""


@dataclass(frozen=True, slots=True)
class TableResult:
    """The end of one table pair in one run."""

    pair: str
    source: str
    target: str
    verdict: Verdict
    reasons: tuple[str, ...]
    rows_source: int | None
    rows_target: int | None
    chunks: int
    lanes: tuple[str, ...]
    missing_on_target: int
    missing_on_source: int
    value_differs: int
    not_covered: tuple[NotCovered, ...]
    schema: tuple[SchemaDifference, ...]
    seconds: float
    hash_name: str = ""
    blind_spots: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)


class StoredKind(StrEnum):
    """What a run was about."""

    TABLES = "tables"
    RULES = "rules"
    GUARDS = "guards"
    REPLAY = "replay"
    CLIENTS = "clients"
    PROBE = "probe"
    PLANS = "plans"
    ANOMALIES = "anomalies"
    CONFLICTS = "conflicts"
    QUICK = "quick"
    UNKNOWN = "unknown"

    @property
    def words(self) -> str:
        """The kind in messages, after "a run"."""
        match self:
            case StoredKind.REPLAY | StoredKind.PROBE:
                return f"of a {self.value}"
            case StoredKind.QUICK:
                return "of a quick answer"
            case StoredKind.UNKNOWN:
                return "of an unknown kind"
        return f"of {self.value}"


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One run as the store remembers it. ``finished`` None means the run was cut off: INCONCLUSIVE.

    ``is_resumed``: a later process went on with it, so that a part of it was read long before its end.
    """

    run_id: str
    command: str
    started: float
    finished: float | None
    verdict: Verdict
    plan_hash: str
    plan: dict[str, Any]
    facts: dict[str, Any] = field(default_factory=dict)
    kind: StoredKind = StoredKind.UNKNOWN
    is_resumed: bool = False

    @property
    def known_at(self) -> float | None:
        """As of when all that it read is known, Unix seconds; None: it has no end.

        A run that was resumed is as old as its begin: what its first process read is not read again.
        """
        return self.started if self.finished is not None and self.is_resumed else self.finished

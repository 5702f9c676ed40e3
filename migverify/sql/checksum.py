"""Row framing -> row checksum -> chunk checksum.

**Framing.** ``CONCAT_WS(',', v1, ..., IFNULL(vn,'N'), len1, ..., lenm, s1, ..., sm)`` is injective: values that are not
strings hold no comma and none is the text ``N``; a string is announced by its byte length, or ``N`` for NULL. The
first n+m fields are therefore found by counting commas, and the lengths cut the rest, although CONCAT_WS drops NULLs.

**Row checksum.** The first 60 bits of a non-linear hash of the framed row. **Chunk checksum.** The sum of them. A sum
shows a pair of duplicate rows, which XOR does not, and no two changes cancel by construction, as they do with CRC32. A
row whose text exceeded max_allowed_packet has a NULL hash and would leave the sum silently; it adds 10**30 instead,
which no sum of real hashes reaches (10**11 rows of 2**60 stay below 1.2 * 10**29), so one evaluation gives both sum and
count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from migverify.errors import IncompleteReadError
from migverify.model import ChunkChecksum, ColumnPair, KeyRange, KeyText, Lane, Side
from migverify.sql.canonical import is_binary
from migverify.sql.key_range import KeyColumn, keys_predicate, predicate, sure_condition
from migverify.sql.quoting import quote_name

HASHES: dict[str, str] = {"SHA2": "SHA2({},256)", "MD5": "MD5({})", "SHA1": "SHA1({})"}
"""Hash functions in the order of preference; all give lower-case hex."""

CHECKSUM_DIGITS = 15
"""Hex digits of a row checksum: 60 bits, so that a sum of them is exact in a DECIMAL(65)."""

LOST_ROW = 10**30
"""What a row without a hash adds to the sum."""


@dataclass(frozen=True, slots=True)
class SideSql:
    """All that is needed to write statements about one table of a pair on one side.

    ``exact`` and ``value`` are the framed rows of the two lanes (``value`` is None without such columns),
    ``wide`` the frame for rows above max_allowed_packet, in which long strings are replaced by their hash.
    ``texts`` are the canonical texts of all compared columns in pair order. ``key`` identifies a row (empty:
    rows are a multiset), ``range_key`` cuts the table (empty: it is read whole).
    """

    table: str
    hash: str
    exact: str
    wide: str
    value: str | None
    texts: tuple[str, ...]
    key: tuple[KeyColumn, ...]
    range_key: tuple[KeyColumn, ...]
    where: str = ""

    def condition(self, key_range: KeyRange) -> str:
        """Return the condition of a range together with the configured one."""
        return self.within(predicate(self.range_key, key_range))

    def within(self, condition: str) -> str:
        """Return a condition together with the configured one."""
        return f"({self.where}) AND {condition}" if self.where else condition


def frame(columns: Sequence[ColumnPair], side: Side, lane: Lane) -> str:
    """Return the framed row of one lane; a constant for a lane without columns."""
    # Binary columns lead: behind two texts of different collations TiDB would convert them to characters (3854).
    ordered = sorted(columns, key=lambda c: 2 - is_binary(c.source) - is_binary(c.target))
    return framed((*_side(column, side), column.string) for column in ordered if column.lane is lane)


def framed(texts: Iterable[tuple[str, bool, bool]]) -> str:
    """Return the frame of (canonical text, whether it may be NULL, whether it may hold a comma); see the module."""
    values, lengths, strings = [], [], []
    for text, nullable, string in texts:
        if string:
            lengths.append(f"IFNULL(LENGTH({text}),'N')" if nullable else f"LENGTH({text})")
            strings.append(text)
        else:
            values.append(f"IFNULL({text},'N')" if nullable else text)
    parts = values + lengths + strings
    return f"CONCAT_WS(',',{','.join(parts)})" if parts else "'-'"


def wide_frame(columns: Sequence[ColumnPair], side: Side, hash_name: str) -> str:
    """Return a frame of the EXACT lane that stays short: every string as its hash.

    CONCAT is NULL, other than CONCAT_WS, when a part is: a string too long even for the hash makes the row lost
    again, and the chunk INCONCLUSIVE.
    """
    parts = []
    for column in columns:
        if column.lane is not Lane.EXACT:
            continue
        text, nullable = _side(column, side)
        if column.string:
            hashed = HASHES[hash_name].format(text)
            original = (column.source if side is Side.SOURCE else column.target).name
            parts.append(f"IF({quote_name(original)} IS NULL,'N',{hashed})" if nullable else hashed)
        else:
            parts.append(f"IFNULL({text},'N')" if nullable else text)
    return "CONCAT(" + ",',',".join(parts) + ")" if parts else "'-'"


def _side(column: ColumnPair, side: Side) -> tuple[str, bool]:
    if side is Side.SOURCE:
        return column.source_sql, column.source.nullable
    return column.target_sql, column.target.nullable


def row_checksum(row: str, hash_name: str) -> str:
    """Return the 60-bit row checksum as 15 hex digits."""
    return f"SUBSTRING({HASHES[hash_name].format(row)},1,{CHECKSUM_DIGITS})"


def checksum_sum(row: str, hash_name: str) -> str:
    """Return the aggregate: sum of row checksums, plus ``LOST_ROW`` for every row without one."""
    number = f"CAST(CONV({row_checksum(row, hash_name)},16,10) AS UNSIGNED)"
    return f"SUM(IFNULL({number},{LOST_ROW}))"


def checksum_sql(side: SideSql, key_range: KeyRange, *, wide: bool = False) -> str:
    """Return the statement of a chunk checksum: rows, sum of the EXACT lane, sum of the VALUE lane if there is one."""
    sums = [checksum_sum(side.wide if wide else side.exact, side.hash)]
    if side.value is not None:
        sums.append(checksum_sum(side.value, side.hash))
    return f"SELECT COUNT(*),{','.join(sums)} FROM {side.table} WHERE {side.condition(key_range)}"


def parse_checksum(row: Sequence[str | None]) -> ChunkChecksum:
    """Read the answer of ``checksum_sql``; sums of no rows are NULL and count as 0."""
    rows = int(row[0] or 0)
    sums = [int(part) if part is not None else 0 for part in row[1:]]
    lost = [total // LOST_ROW for total in sums]
    return ChunkChecksum(rows, rows - max(lost), sums[0] % LOST_ROW, sums[1] % LOST_ROW if len(sums) > 1 else 0)


def hash_probe_sql(hash_name: str) -> str:
    """Return the statement that fails, or gives NULL, on a server without this hash function."""
    return "SELECT " + HASHES[hash_name].format("'a'")


def count_sql(side: SideSql) -> str:
    """Return the statement that counts the table (under the configured condition)."""
    return f"SELECT COUNT(*) FROM {side.table}" + (f" WHERE {side.where}" if side.where else "")


def probe_sql(side: SideSql) -> str:
    """Return the cheapest statement that really reads the table."""
    return f"SELECT 1 FROM {side.table} LIMIT 1"


def walk_sql(side: SideSql, key_range: KeyRange, rows: int) -> str:
    """Return the statement that finds the key ``rows`` rows into the range; no row when the range has fewer."""
    names = ",".join(c.name for c in side.range_key)
    texts = ",".join(c.text for c in side.range_key)
    return (f"SELECT {texts} FROM {side.table} WHERE {side.condition(key_range)} "
            f"ORDER BY {names} LIMIT 1 OFFSET {rows - 1}")  # fmt: skip


def sure_bound_sql(side: SideSql, key_range: KeyRange) -> str:
    """Return the statement of the first key of a range that, most likely, both servers sort equally."""
    texts = ",".join(c.text for c in side.range_key)
    parts = [side.condition(key_range), sure_condition(side.range_key)]
    return (f"SELECT {texts} FROM {side.table} WHERE {' AND '.join(p for p in parts if p)} "
            f"ORDER BY {','.join(c.name for c in side.range_key)} LIMIT 1")  # fmt: skip


def edge_sql(side: SideSql, *, last: bool) -> str:
    """Return the statement of the smallest or largest value of the first range-key column."""
    column = side.range_key[0]
    where = side.within(f"{column.name} IS NOT NULL")
    return (
        f"SELECT {column.text} FROM {side.table} WHERE {where} ORDER BY {column.name}{' DESC' if last else ''} LIMIT 1"
    )


def element(side: SideSql, *, wide: bool = False) -> str:
    """Return the text of one row in a row list: key parts, then the row checksum of each lane, joined by commas.

    Character and binary key parts are hex, so neither ``,`` nor ``;`` can occur in a part. ``?`` is in the place of a
    checksum that a row does not have.
    """
    parts = [f"IFNULL({key_text(c)},'N')" if c.nullable else key_text(c) for c in side.key]
    parts.append(f"IFNULL({row_checksum(side.wide if wide else side.exact, side.hash)},'?')")
    if side.value is not None:
        parts.append(f"IFNULL({row_checksum(side.value, side.hash)},'?')")
    return f"CONCAT_WS(',',{','.join(parts)})"


def key_text(column: KeyColumn) -> str:
    """Return the key part of an element: hex for what could hold a separator."""
    return column.text if column.family in _PLAIN else f"HEX({column.text})"


_PLAIN = frozenset({"integer", "bit", "year", "decimal", "date", "datetime", "time", "float"})


def parse_key(columns: Sequence[KeyColumn], parts: Sequence[str]) -> KeyText:
    """Turn the key parts of an element back to canonical text."""
    key: list[str | None] = []
    for column, part in zip(columns, parts, strict=True):
        if part == "N" and column.nullable:
            key.append(None)
        elif column.family in _PLAIN:
            key.append(part)
        elif column.family == "binary":
            key.append("0x" + part.lower())
        else:
            key.append(bytes.fromhex(part).decode("utf-8", "surrogateescape"))
    return tuple(key)


def split_element(columns: Sequence[KeyColumn], element: bytes) -> tuple[KeyText, str]:
    """Split an element into its key and its checksums."""
    parts = element.decode("ascii").split(",")
    size = len(columns)
    return parse_key(columns, parts[:size]), ",".join(parts[size:])


def rows_sql(side: SideSql, key_range: KeyRange, *, wide: bool = False, share: tuple[int, int] | None = None) -> str:
    """Return the statement of a row list: the elements of a range in one text, and their count beside it.

    One text of a hundred thousand elements costs a client no more than one row. ``share`` is (how many shares, which
    one from 0): only the rows of that bucket.
    """
    condition = side.condition(key_range)
    if share is not None:
        condition += f" AND {bucket(side, share[0], wide=wide)}={share[1]}"
    return _list_sql(side, condition, wide=wide)


def keys_sql(side: SideSql, keys: Sequence[KeyText]) -> str:
    """Return the statement of a row list by key; like ``rows_sql``, for rows anywhere in the table."""
    return _list_sql(side, side.within(keys_predicate(side.key, keys)))


def _list_sql(side: SideSql, where: str, *, wide: bool = False) -> str:
    elements = f"GROUP_CONCAT({element(side, wide=wide)} SEPARATOR ';')"
    return f"SELECT COUNT(*),{elements} FROM {side.table} WHERE {where}"


def parse_rows(row: Sequence[bytes | None], side: SideSql) -> list[bytes]:
    """Split a row list into elements.

    Raises
    ------
    IncompleteReadError
        the server cut the text (group_concat_max_len, max_allowed_packet): the count of elements says so, or the
        last of them, which is not whole.
    """
    count = int(row[0] or 0)
    elements = row[1].split(b";") if row[1] else []
    if len(elements) != count or (elements and not _whole(elements[-1], side)):
        raise IncompleteReadError(f"a row list came with {len(elements)} of {count} rows: cut at max_allowed_packet")
    return elements


def _whole(element: bytes, side: SideSql) -> bool:
    parts = element.split(b",")
    lanes = 1 if side.value is None else 2
    return len(parts) == len(side.key) + lanes and (parts[-1] == b"?" or len(parts[-1]) == CHECKSUM_DIGITS)


def stream_sql(side: SideSql, condition: str) -> str:
    """Return the statement that streams elements of the whole table, one a row."""
    where = " AND ".join(f"({part})" for part in (side.where, condition) if part)
    return f"SELECT {element(side)} FROM {side.table}" + (f" WHERE {where}" if where else "")


def bucket(side: SideSql, buckets: int, *, wide: bool = False) -> str:
    """Return the bucket number of a row: of its key, or of the whole row where there is no key."""
    parts = ",".join(f"IFNULL({key_text(c)},'N')" for c in side.key)
    identity = f"CONCAT_WS(',',{parts})" if parts else side.wide if wide else side.exact
    return f"CRC32({identity})%{buckets}"


def bucket_sql(side: SideSql, buckets: int) -> str:
    """Return the statement that sums the whole table by bucket: number, rows, sum per lane."""
    sums = [checksum_sum(side.exact, side.hash)]
    if side.value is not None:
        sums.append(checksum_sum(side.value, side.hash))
    where = f" WHERE {side.where}" if side.where else ""
    number = bucket(side, buckets)  # no alias: a column of that name would be what is grouped by
    return f"SELECT {number},COUNT(*),{','.join(sums)} FROM {side.table}{where} GROUP BY {number}"


def full_rows_sql(side: SideSql, keys: Sequence[KeyText], *, wide: bool = False) -> str:
    """Return the statement that reads rows by key: element, then the canonical text of every compared column."""
    where = side.within(keys_predicate(side.key, keys))
    return f"SELECT {element(side, wide=wide)},{','.join(side.texts)} FROM {side.table} WHERE {where}"


def rows_by_checksum_sql(side: SideSql, checksums: Sequence[str]) -> str:
    """Return the statement that reads rows of a keyless table by their row checksum (15 hex digits each)."""
    wanted = ",".join(f"'{c}'" for c in checksums if c.isalnum())
    where = side.within(f"{row_checksum(side.exact, side.hash)} IN ({wanted})")
    return f"SELECT {element(side)},{','.join(side.texts)} FROM {side.table} WHERE {where}"

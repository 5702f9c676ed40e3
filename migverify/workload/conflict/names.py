"""Table and index ids -> names, asked of the target's information_schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeAlias

from migverify.workload.conflict.keys import Key
from migverify.workload.conflict.model import Conflict

Query: TypeAlias = Callable[[str], list[tuple[str | None, ...]]]
"""``connect.Session.query``."""

_TABLE = "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TIDB_TABLE_ID = {}"
_PARTITION = "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.PARTITIONS WHERE TIDB_PARTITION_ID = {}"
_INDEX = (
    "SELECT DISTINCT i.KEY_NAME FROM information_schema.TIDB_INDEXES i JOIN information_schema.TABLES t"
    " ON t.TABLE_SCHEMA = i.TABLE_SCHEMA AND t.TABLE_NAME = i.TABLE_NAME WHERE t.TIDB_TABLE_ID = {} AND i.INDEX_ID = {}"
)


class Names:
    """Asks once for each id. A table that was dropped or truncated since has no name any more."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._tables: dict[int, str] = {}
        self._indexes: dict[tuple[int, int], str] = {}

    def table(self, number: int) -> str:
        """Return database.table, ``""`` where no table has the id."""
        if number not in self._tables:
            rows = self._query(_TABLE.format(number)) or self._query(_PARTITION.format(number))
            self._tables[number] = ".".join(part or "" for part in rows[0]) if rows else ""
        return self._tables[number]

    def index(self, table: int, number: int) -> str:
        """Return the index's name, ``""`` where there is none (a partition's index ids are its table's)."""
        key = (table, number)
        if key not in self._indexes:
            rows = self._query(_INDEX.format(table, number))
            self._indexes[key] = rows[0][0] or "" if rows else ""
        return self._indexes[key]

    def name(self, key: Key | None) -> Key | None:
        """Return a key with its names."""
        if key is None or key.table_id is None:
            return key
        index = self.index(key.table_id, key.index_id) if key.index_id is not None else ""
        return key.named(key.table or self.table(key.table_id), index)


def with_names(found: Iterable[Conflict], query: Query | None) -> list[Conflict]:
    """Return conflicts whose keys have names."""
    if query is None:
        return list(found)
    names = Names(query)
    return [replace(one, key=names.name(one.key), primary=names.name(one.primary)) for one in found]

"""What may be repaired in one table, read from both definitions before any statement is written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from migverify.config import Config, override_for
from migverify.db.pool import SessionPool
from migverify.db.session import Session
from migverify.errors import PrivilegeError, ReadError, RepairError, in_words
from migverify.model import ColumnDef, ColumnPair, Flavor, SchemaClass, TableDef, TableResult
from migverify.sql import repair as statements
from migverify.sql.catalog import read_table
from migverify.sql.checksum import SideSql
from migverify.sql.grants import check_grants
from migverify.sql.quoting import quote_name
from migverify.sql.server import PACKET
from migverify.tables.diff import PairReader
from migverify.tables.repair_order import UniqueIndex, unique_indexes
from migverify.tables.schema import column_pairs
from migverify.tables.tasks import PairPlan, Rules


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What a repair knows of one table beyond the plan of its verification.

    ``sql`` writes statements about the target. ``columns`` are the target columns in the order of ``pair.columns``,
    ``key`` the positions of those that identify a row; ``extra`` further target columns that take no part in the
    comparison and can be read and written back; ``others`` checksum expressions of those; ``self_updating`` columns
    that change by themselves on UPDATE; ``packet`` the longest statement the target takes, in bytes. ``no_insert``,
    ``no_delete`` and ``no_exchange`` (rows deleted and inserted again together) are the reasons why such statements
    are refused, ``""`` when they are not; ``lost`` names a column that a deleted row could not be given back, ``""``
    when there is none.
    """

    pair: PairPlan
    sql: SideSql
    flavor: Flavor
    columns: tuple[ColumnDef, ...]
    key: frozenset[int]
    extra: tuple[ColumnPair, ...]
    others: tuple[str, ...]
    self_updating: tuple[str, ...]
    packet: int
    no_insert: str
    no_delete: str
    no_exchange: str
    lost: str
    unique: tuple[UniqueIndex, ...]
    notes: tuple[str, ...]

    def row_reader(self, pool: SessionPool, rules: Rules) -> PairReader:
        """Return readers whose rows hold all that is to be written or restored; the caller closes them.

        The configured conditions are left out: a row that is outside of them on one side is not absent, and must
        neither be inserted again nor deleted.
        """
        if self.pair.target_side is None:
            raise RepairError(f"{self.pair.id}: the target has no such table")
        sql = replace(self.sql, texts=(*self.sql.texts, *(column.target_sql for column in self.extra), *self.others))
        sources = tuple(replace(side, sql=replace(side.sql, where="")) for side in self.pair.sources)
        return PairReader.open(
            replace(self.pair, sources=sources, target_side=replace(self.pair.target_side, sql=sql)), pool, rules
        )


_HARMLESS = re.compile(
    r"[\d,]+ rows? (is|are) (missing on the target|missing on the source|different|still different)"
    r"( \([\d,]+ distinct\))?"
    r"|[\d,]+ of these keys are held by more than one shard, .*"
    r"|column .+ is not compared: .*|[\d,]+ rows kept changing .*|[\d,]+ rows differed once .*",
    re.DOTALL,
)


def why_no_delete(result: TableResult | None, totals: dict[str, int]) -> str:
    """Return why rows of a table must not be deleted, ``""`` when they may.

    A row may be missing on the source only because it was not read. So every reason of the table's result that is
    not known to leave the reads whole forbids it: an unknown reason forbids too.
    """
    if result is None:
        return "the run did not finish this table"
    failed = totals.get("failed", 0) + totals.get("unread_source", 0) + totals.get("unread_target", 0)
    if failed:
        return f"{totals.get('failed', 0)} of {totals.get('chunks', 0)} chunks of the table could not be read"
    if result.rows_source is None or result.rows_target is None:
        return "the table was not counted on both sides"
    known = {d.message for d in result.schema if d.level is SchemaClass.BREAKS_COMPARISON}
    for reason in result.reasons:
        if reason not in known and not _HARMLESS.fullmatch(reason):
            return f"the run did not read all of the table: {reason}"
    return ""


def why_not(pair: PairPlan) -> str:
    """Return why a pair cannot be repaired at all, ``""`` when it can."""
    if not pair.readable or pair.target_side is None:
        return pair.not_covered[0].reason if pair.not_covered else "no column can be compared"
    if not pair.target_side.sql.key:
        return ("the table has no unique key that is compared, so no statement can name one row; "
                "give it a key (overrides.key) or load it again")  # fmt: skip
    return ""


def current(pair: PairPlan) -> PairPlan:
    """Return the plan with the target read as it is now: a repair changes no snapshot."""
    target = pair.target_side
    if target is None:
        return pair
    return replace(pair, target_side=replace(target, endpoint=replace(target.endpoint, snapshot=None)))


def plan_repair(pool: SessionPool, pair: PairPlan, config: Config, no_delete: str) -> RepairPlan:
    """Read the definitions of a pair and work out what can be written.

    Raises
    ------
    RepairError
        a table is gone or its columns changed.
    """
    if pair.target_side is None:
        raise RepairError(f"{pair.id}: the target has no such table")
    first, side = pair.sources[0], pair.target_side
    with pool.session(first.endpoint) as session:
        source = _definition(session, first.database, first.table)
    with pool.session(side.endpoint) as session:
        target = _definition(session, side.database, side.table)
        packet = int(session.query(PACKET)[0][0] or 0)
        flavor, notes = session.flavor, _notes(session, side.database, side.table)
        no_exchange = _no_exchange(session, side.database, side.table)
    override = override_for(config, first.database, first.table)
    found, _ = column_pairs(source, target, override.rename, override.ignore)
    partner = {this.name: other for this, other in found}
    if gone := [c.name for c in pair.columns if c.name not in partner]:
        raise RepairError(f"{pair.id}: column {gone[0]} is gone", hint="The table changed: verify it again.")
    columns = tuple(partner[c.name] for c in pair.columns)
    compared = {c.name for c in columns}
    rest = [c for c in target.columns if c.name not in compared and not c.generation]
    extra, lost = statements.restorable(rest)
    if lost and not no_delete:
        no_delete = f"a deleted row could not be restored: column {lost[0]} has a type that cannot be written back"
    quoted = {column.name for column in side.sql.key}
    key = {column.name for column in columns if quote_name(column.name) in quoted}
    if not any(index.unique and set(index.columns) <= key for index in target.indexes):
        notes.append("the target has no unique key over the columns that identify a row")
    if rest:
        notes.append(f"not compared, so not written: {', '.join(c.name for c in rest)}")
    return RepairPlan(
        pair=pair, sql=replace(side.sql, where=""), flavor=flavor, columns=columns,
        key=frozenset(n for n, column in enumerate(columns) if column.name in key), extra=tuple(extra),
        others=statements.other_checksums(extra, pair.hash),
        self_updating=tuple(c.name for c in target.columns if "on update" in c.extra.lower()), packet=packet,
        no_insert=_no_insert(rest), no_delete=no_delete, no_exchange=no_exchange, lost=lost[0] if lost else "",
        unique=unique_indexes(target, [c.name for c in columns], key), notes=tuple(notes),
    )  # fmt: skip


def _definition(session: Session, database: str, table: str) -> TableDef:
    found = read_table(session, session.endpoint.name, database, table)
    if found is None:
        raise RepairError(f"{session.endpoint.name}: {database}.{table} is gone", hint="Verify the tables again.")
    return found


def _no_insert(rest: Sequence[ColumnDef]) -> str:
    for column in rest:
        if not column.nullable and column.default is None and "auto_" not in column.extra.lower():
            return f"target column {column.name} is not compared, and has neither a default nor NULL"
    return ""


def _notes(session: Session, database: str, table: str) -> list[str]:
    """Say what acts beside the statements; what cannot be asked is said too."""
    notes = []
    asked = (
        (statements.foreign_keys_sql(database, table), "foreign keys, which are not checked while the repair runs"),
        (statements.triggers_sql(database, table), "triggers, which fire and whose effects the inverse does not undo"),
    )
    for text, words in asked:
        try:
            rows = session.query(text)
        except (ReadError, PrivilegeError) as error:
            notes.append(f"unknown whether the table has {words}: {in_words(error)}")
            continue
        if rows:
            notes.append(f"the table has {words}: {', '.join(str(row[0]) for row in rows)}")
    return notes


def _no_exchange(session: Session, database: str, table: str) -> str:
    """Return why rows must not be deleted and inserted again: what triggers do then, no inverse undoes."""
    if session.flavor is Flavor.TIDB:
        return ""  # it has no triggers
    name = f"{database}.{table}"
    try:
        hidden = not check_grants(session).allows("TRIGGER", database, table)
        rows = session.query(statements.triggers_sql(database, table))
    except (ReadError, PrivilegeError) as error:
        return f"unknown whether the target's table {name} has DELETE or INSERT triggers: {in_words(error)}"
    if hidden:
        return (f"unknown whether the target's table {name} has DELETE or INSERT triggers, which this account cannot "
                "see: GRANT TRIGGER on the table to it, then repair again")  # fmt: skip
    if firing := [f"{row[0]} ({row[1]} {row[2]})" for row in rows if row[2] != "UPDATE"]:
        return (f"the target's table {name} has the trigger {', '.join(firing)}, which would fire: drop it, repair, "
                "create it again; or change these rows by hand")  # fmt: skip
    return ""

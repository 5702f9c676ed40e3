"""One table of a repair: the rows that differ, read again, become statements and what restores them.

A statement is written only where both rows still are what the run recorded: its values are of this read, and it
compares with this read before it sets. Rows come in pages and statements go to disk, so memory does not grow with the
differences.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from migverify.config import Config, override_for
from migverify.db.pool import SessionPool
from migverify.db.reader import KeyRow
from migverify.db.session import Session
from migverify.errors import PrivilegeError, ReadError, RepairError, in_words
from migverify.model import (
    ColumnDef,
    ColumnPair,
    DiffKind,
    Flavor,
    Lane,
    LiveState,
    RowDiff,
    SchemaClass,
    TableDef,
    TableResult,
)
from migverify.secrets import scrub
from migverify.sql import repair as statements
from migverify.sql.catalog import read_table
from migverify.sql.checksum import SideSql
from migverify.sql.quoting import quote_name
from migverify.sql.server import PACKET
from migverify.store.results import ResultStore
from migverify.tables.columns import column_pairs
from migverify.tables.diff import WIDE, PairReader, joined, rows_at_once, texts_of
from migverify.tables.repair_files import ScriptPair
from migverify.tables.tasks import PairPlan, Rules
from migverify.tables.values import same_value

PAGE = 500
PACKET_RESERVE = 4096
ORDER = (DiffKind.MISSING_ON_SOURCE, DiffKind.VALUE_DIFFERS, DiffKind.MISSING_ON_TARGET)
"""DELETE, UPDATE, INSERT: a deleted row makes room for one whose unique keys collide with it."""
# --- what may be repaired --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What a repair knows of one table beyond the plan of its verification.

    ``sql`` writes statements about the target. ``columns`` are the target columns in the order of ``pair.columns``,
    ``key`` the positions of those that identify a row; ``extra`` further target columns that take no part in the
    comparison and can be read and written back; ``others`` checksum expressions of those; ``self_updating`` columns
    that change by themselves on UPDATE; ``packet`` the longest statement the target takes, in bytes. ``no_insert`` and
    ``no_delete`` are the reasons why such statements are refused, ``""`` for none. ``written_side`` is how people call
    the side that is written.
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
    notes: tuple[str, ...]
    written_side: str = "target"

    def open_reader(self, pool: SessionPool, rules: Rules) -> PairReader:
        """Return readers whose rows hold all that is to be written or restored; the caller closes them.

        The configured conditions are left out: a row that is outside of them on one side is not absent, and must
        neither be inserted again nor deleted.
        """
        texts = (*self.sql.texts, *(column.target_sql for column in self.extra), *self.others)
        sources = tuple(replace(side, sql=replace(side.sql, where="")) for side in self.pair.sources)
        target = replace(self.pair.sides[-1], sql=replace(self.sql, texts=texts))
        return PairReader.open(replace(self.pair, sources=sources, target_side=target), pool, rules)


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
    if any(totals.get(name, 0) for name in ("failed", "unread_source", "unread_target")):
        return f"{totals.get('failed', 0)} of {totals.get('chunks', 0)} chunks of the table could not be read"
    if result.rows_source is None or result.rows_target is None:
        return "the table was not counted on both sides"
    known = {d.message for d in result.schema if d.level is SchemaClass.BREAKS_COMPARISON}
    unknown = (reason for reason in result.reasons if reason not in known and not _HARMLESS.fullmatch(reason))
    return next((f"the run did not read all of the table: {reason}" for reason in unknown), "")


def plan_repair(
    pool: SessionPool, pair: PairPlan, config: Config, no_delete: str, *, reverse: bool = False
) -> RepairPlan:
    """Read the definitions of a readable pair and work out what can be written.

    ``reverse``: the pair is turned round, so what the configuration calls the source is written.

    Raises
    ------
    RepairError
        a table is gone or its columns changed.
    """
    first, side = pair.sources[0], pair.sides[-1]
    with pool.session(first.endpoint) as session:
        source = _definition(session, first.database, first.table)
    with pool.session(side.endpoint) as session:
        target = _definition(session, side.database, side.table)
        packet = int(session.query(PACKET)[0][0] or 0)
        flavor, notes = session.flavor, _notes(session, side.database, side.table)
    written_side = "source" if reverse else "target"
    # Overrides and the columns of a pair go by the names of the configured source.
    named = side if reverse else first
    override = override_for(config, named.database, named.table)
    both = (target, source) if reverse else (source, target)
    matched = column_pairs(*both, override.rename, override.ignore)[0]
    partner = {this.name: this if reverse else other for this, other in matched}
    if gone := [c.name for c in pair.columns if c.name not in partner]:
        raise RepairError(f"{pair.id}: column {gone[0]} is gone", hint="The table changed: verify it again.")
    columns = tuple(partner[c.name] for c in pair.columns)
    names = [c.name for c in columns]
    rest = [c for c in target.columns if c.name not in names and not c.generation]
    extra, lost = statements.restorable(rest)
    if lost and not no_delete:
        no_delete = f"a deleted row could not be restored: column {lost[0]} has a type that cannot be written back"
    quoted = {column.name for column in side.sql.key}
    key = {name for name in names if quote_name(name) in quoted}
    if not any(index.unique and set(index.columns) <= key for index in target.indexes):
        notes.append(f"the {written_side} has no unique key over the columns that identify a row")
    if rest:
        notes.append(f"not compared, so not written: {', '.join(c.name for c in rest)}")
    required = (c.name for c in rest if not c.nullable and c.default is None and "auto_" not in c.extra.lower())
    no_insert = next(
        (f"{written_side} column {n} is not compared, and has neither a default nor NULL" for n in required), ""
    )
    return RepairPlan(
        pair=pair, sql=replace(side.sql, where=""), flavor=flavor, columns=columns,
        key=frozenset(n for n, name in enumerate(names) if name in key), extra=tuple(extra),
        others=statements.other_checksums(extra, pair.hash),
        self_updating=tuple(c.name for c in target.columns if "on update" in c.extra.lower()), packet=packet,
        no_insert=no_insert, no_delete=no_delete, notes=tuple(notes), written_side=written_side,
    )  # fmt: skip


def _definition(session: Session, database: str, table: str) -> TableDef:
    definition = read_table(session, session.endpoint.name, database, table)
    if definition is None:
        raise RepairError(f"{session.endpoint.name}: {database}.{table} is gone", hint="Verify the tables again.")
    return definition


def _notes(session: Session, database: str, table: str) -> list[str]:
    """Return what acts beside the statements, and what of it the server does not answer."""
    notes = []
    for text, words in (
        (statements.foreign_keys_sql(database, table), "foreign keys, which are not checked while the repair runs"),
        (statements.triggers_sql(database, table), "triggers, which fire and whose effects the inverse does not undo"),
    ):
        try:
            rows = session.query(text)
        except (ReadError, PrivilegeError) as error:
            notes.append(f"unknown whether the table has {words}: {in_words(error)}")
            continue
        if rows:
            notes.append(f"the table has {words}: {', '.join(str(row[0]) for row in rows)}")
    return notes


# --- row diffs -> statements -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Written:
    """What became of the row diffs of one table: statements by kind, and rows without one."""

    statements: Counter[str] = field(default_factory=Counter)
    equal: int = 0
    changed: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def rows(self) -> int:
        """The number of all row diffs that were examined."""
        return self.statements.total() + self.equal + self.changed.total() + self.refused.total()


@dataclass(frozen=True, slots=True)
class RowImage:
    """A row of the target before or after its repair.

    ``texts`` are those of the compared columns, ``values`` all that an INSERT of the row writes, ``guards`` the
    conditions that the compared columns hold this row, ``others`` the condition on columns outside of the comparison.
    """

    texts: tuple[bytes | None, ...]
    values: tuple[statements.Value, ...]
    guards: tuple[str, ...]
    others: str = ""


def diverged(store: ResultStore, run_id: str, pair: str, size: int = PAGE) -> Iterator[list[RowDiff]]:
    """Yield pages of the confirmed row diffs of a pair. Hot and unconfirmed rows are none."""
    after = 0
    while page := store.row_diffs(run_id, pair, states=[LiveState.DIVERGED.value], after=after, limit=size):
        after = page[-1][0]
        yield [diff for _, diff in page]


def write_statements(
    plan: RepairPlan, reader: PairReader, pages: Callable[[int], Iterator[list[RowDiff]]], scripts: ScriptPair
) -> Written:
    """Write the statements of one table; ``pages`` yields its row diffs, at most so many at a time, again and again.

    Raises
    ------
    ReadError
        a row could not be read: the table gets no script, so that nothing is deleted for want of a read.
    """
    written = Written()
    size = min(PAGE, rows_at_once(plan.pair))
    for kind in ORDER:
        for page in pages(size):
            for forward, inverse in _changes(plan, reader, [d for d in page if d.kind is kind], written):
                scripts.add(forward, inverse)
                written.statements[kind.value] += 1
    return written


def _changes(
    plan: RepairPlan, reader: PairReader, diffs: Sequence[RowDiff], written: Written
) -> Iterator[tuple[str, str]]:
    """Read the rows of a page again; yield what repairs each and what undoes it, count rows without a statement."""
    for wide in (False, True):
        page = [d for d in diffs if (d.source_checksum or d.target_checksum or "").startswith(WIDE) is wide]
        if not page:
            continue
        ours, theirs = reader.lookup([diff.key for diff in page], wide=wide)
        for diff in page:
            try:
                change = _change(plan, diff, ours.get(diff.key, []), theirs.get(diff.key, []), written, wide=wide)
            except RepairError as error:
                written.refused[scrub(error.message)] += 1
                continue
            if change is not None:
                yield change


def _change(
    plan: RepairPlan, diff: RowDiff, ours: list[KeyRow], theirs: list[KeyRow], written: Written, *, wide: bool
) -> tuple[str, str] | None:
    """Return what repairs a row and what undoes it; None (and counted) when it is equal by now or changed meanwhile.

    Raises
    ------
    RepairError
        the row must not or cannot be repaired; the message says why.
    """
    if len(ours) > 1:
        raise RepairError("two shards hold this key" if len(plan.pair.sources) > 1 else "several rows hold this key")
    if len(theirs) > 1:
        raise RepairError(f"several rows hold this key on the {plan.written_side}")
    if any("?" in checksums for checksums, _ in (*ours, *theirs)):
        raise RepairError("the row is longer than max_allowed_packet and has no checksum")
    differing = _differing(plan, ours, theirs)
    if differing == [] and len(ours) == len(theirs):
        written.equal += 1
        return None
    for side, rows, recorded in (("source", ours, diff.source_checksum), ("target", theirs, diff.target_checksum)):
        if joined([checksums for checksums, _ in rows], wide=wide) != recorded:
            written.changed[side] += 1
            return None
    before = _present(plan, theirs[0], wide=wide) if theirs else None
    after = _intended(plan, ours[0], before, differing, wide=wide) if ours else None
    if after is None and plan.no_delete:
        raise RepairError(f"no DELETE: {plan.no_delete}")
    if before is None and plan.no_insert:
        raise RepairError(f"no INSERT: {plan.no_insert}")
    settable = [n for n in differing if not plan.columns[n].generation and n not in plan.key]
    if before is not None and after is not None and not settable:
        raise RepairError("only generated columns differ")
    change = _statement(plan, diff, before, after, settable), _statement(plan, diff, after, before, settable)
    if any(len(t) * (1 if t.isascii() else 4) > plan.packet - PACKET_RESERVE for t in change):
        raise RepairError(f"the statement would be longer than the {plan.written_side}'s max_allowed_packet")
    return change


def _differing(plan: RepairPlan, ours: list[KeyRow], theirs: list[KeyRow]) -> list[int]:
    """Return the positions of the columns that differ; none where a side has no row."""
    if not ours or not theirs:
        return []
    columns = plan.pair.columns
    one, other = texts_of(columns, ours[0][1]), texts_of(columns, theirs[0][1][: len(columns)])
    differing = [n for n, column in enumerate(columns) if not same_value(column, one[n], other[n])]
    if not differing and _exact(ours[0]) != _exact(theirs[0]):
        raise RepairError("the checksums of the rows differ, but no column does")
    return differing


def _exact(row: KeyRow) -> str:
    return row[0].partition(",")[0]


def _present(plan: RepairPlan, row: KeyRow, *, wide: bool) -> RowImage:
    """Return the target's row as it was read."""
    size, more = len(plan.columns), len(plan.extra)
    texts, extra = row[1][:size], zip((p.target for p in plan.extra), row[1][size : size + more], strict=True)
    exact, _, value = row[0].partition(",")
    return RowImage(
        texts, _writable([*zip(plan.columns, texts, strict=True), *extra]),
        (statements.checksum_guard(plan.sql, exact, value or None, wide=wide),),
        statements.other_guard(plan.others, [(part or b"").decode("ascii") for part in row[1][size + more :]]),
    )  # fmt: skip


def _intended(
    plan: RepairPlan, row: KeyRow, before: RowImage | None, differing: Sequence[int], *, wide: bool
) -> RowImage:
    """Return the target's row as the repair leaves it: the source's values, the target's where both are one value."""
    new = row[1]
    texts = new if before is None else tuple(new[n] if n in differing else t for n, t in enumerate(before.texts))
    values = [*zip(plan.columns, texts, strict=True)]
    spelled = [v for v, column in zip(values, plan.pair.columns, strict=True) if column.lane is Lane.VALUE]
    guards = (
        statements.checksum_guard(plan.sql, _exact(row), wide=wide), statements.written_guard(_writable(spelled)),
    )  # fmt: skip
    return RowImage(texts, _writable(values), guards)


def _writable(values: Sequence[statements.Value]) -> tuple[statements.Value, ...]:
    return tuple((column, text) for column, text in values if not column.generation)


def _statement(
    plan: RepairPlan, diff: RowDiff, old: RowImage | None, new: RowImage | None, settable: Sequence[int]
) -> str:
    """Return what makes a row that is ``old`` the row ``new``; None is no row."""
    if old is None and new is not None:
        return statements.insert_sql(plan.sql, diff.key, new.values)
    if old is None:
        raise RepairError("neither side has the row")
    if new is None:
        return statements.delete_sql(plan.sql, diff.key, (*old.guards, old.others))
    names = {plan.columns[n].name for n in settable}
    unset = [name for name in plan.self_updating if name not in names]
    values = [(plan.columns[n], new.texts[n]) for n in settable]
    return statements.update_sql(plan.sql, diff.key, old.guards, values, unset)

"""Confirmed row diffs -> scripts that make the target's rows what the source's are, and their inverse.

Both rows of every diff are read again. A statement is written only where both still are what the run recorded:
its values are of this read, and it compares with this read before it sets. Rows come in pages, statements go to
disk, so memory does not grow with the differences.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from migverify.config import Config, override_for
from migverify.db.pool import SessionPool
from migverify.db.session import Session
from migverify.errors import PrivilegeError, ReadError, RepairError, in_words
from migverify.model import (
    ColumnDef,
    DiffKind,
    Flavor,
    KeyText,
    Lane,
    LiveState,
    RowDiff,
    SchemaClass,
    TableDef,
    TableResult,
)  # fmt: skip
from migverify.secrets import scrub
from migverify.sql import repair as statements
from migverify.sql.catalog import read_table
from migverify.sql.checksum import full_rows_sql
from migverify.sql.grants import check_grants
from migverify.sql.quoting import quote_name
from migverify.store.base import ResultStore
from migverify.tables.diff import WIDE, PairReader, joined, rows_at_once, split_element, texts_of
from migverify.tables.read import Reader
from migverify.tables.repair_files import Script, Stack
from migverify.tables.repair_order import Change, Exchange, Movers, UniqueIndex, unique_indexes, why_not_together
from migverify.tables.schema import column_pairs
from migverify.tables.tasks import PairPlan, Rules
from migverify.tables.values import same_value

PAGE = 500
PACKET_RESERVE = 4096
ORDER = (DiffKind.MISSING_ON_SOURCE, DiffKind.VALUE_DIFFERS, DiffKind.MISSING_ON_TARGET)
"""DELETE, UPDATE, INSERT: a row that goes makes room for one whose unique keys collide with it."""
EXCHANGED = "deleted_and_inserted_again"
"""Rows that exchange unique values, counted apart from the UPDATEs that they do not get."""

Row = tuple[str, tuple[bytes | None, ...]]
"""The checksums of a row, and the canonical texts of its columns as the server sent them."""

RowsByKey = dict[KeyText, list[Row]]


@dataclass(frozen=True, slots=True)
class Shape:
    """What a repair knows of one table beyond its plan.

    ``columns`` are the target columns in the order of ``pair.columns``; ``extra`` further target columns that take
    no part in the comparison and can be read and written back; ``others`` checksum expressions of those; ``kept``
    columns that change by themselves on UPDATE; ``packet`` the longest statement the target takes, in bytes.
    ``no_insert``, ``no_delete`` and ``no_exchange`` (rows deleted and inserted again together) say why such
    statements are refused, ``""`` when they are not; ``lost`` names a
    column that a deleted row could not be given back, ``""`` when there is none.
    """

    pair: PairPlan
    flavor: Flavor
    columns: tuple[ColumnDef, ...]
    extra: tuple[ColumnDef, ...]
    extra_texts: tuple[str, ...]
    others: tuple[str, ...]
    kept: tuple[str, ...]
    packet: int
    no_insert: str
    no_delete: str
    no_exchange: str
    lost: str
    unique: tuple[UniqueIndex, ...]
    notes: tuple[str, ...]


@dataclass(slots=True)
class Written:
    """What became of the row diffs of one table: statements by kind, and rows without one."""

    statements: Counter[str] = field(default_factory=Counter)
    equal: int = 0
    changed: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def rows(self) -> int:
        """All row diffs that were looked at."""
        return self.statements.total() + self.equal + self.changed.total() + self.refused.total()

    @property
    def whole(self) -> bool:
        """Whether every row has a statement or needs none."""
        return not self.changed and not self.refused


# --- what may be repaired --------------------------------------------------------------------------------------

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


def shape_of(pool: SessionPool, pair: PairPlan, config: Config, no_delete: str) -> Shape:
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
        packet = int(session.query("SELECT @@max_allowed_packet")[0][0] or 0)
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
    key = {columns[n].name for n in _key_places(pair, columns)}
    if not _has_key(target, key):
        notes.append("the target has no unique key over the columns that identify a row")
    if rest:
        notes.append(f"not compared, so not written: {', '.join(c.name for c in rest)}")
    return Shape(
        pair=pair, flavor=flavor, columns=columns, extra=tuple(p.target for p in extra),
        extra_texts=tuple(p.target_sql for p in extra), others=statements.other_checksums(extra, pair.hash),
        kept=tuple(c.name for c in target.columns if "on update" in c.extra.lower()), packet=packet,
        no_insert=_no_insert(rest), no_delete=no_delete, no_exchange=no_exchange, lost=lost[0] if lost else "",
        unique=unique_indexes(target, [c.name for c in columns], key), notes=tuple(notes),
    )  # fmt: skip


def _definition(session: Session, database: str, table: str) -> TableDef:
    found = read_table(session, session.endpoint.name, database, table)
    if found is None:
        raise RepairError(f"{session.endpoint.name}: {database}.{table} is gone", hint="Verify the tables again.")
    return found


def _key_places(pair: PairPlan, columns: Sequence[ColumnDef]) -> list[int]:
    names = {c.name for c in pair.target_side.sql.key} if pair.target_side else set()
    return [n for n, c in enumerate(columns) if quote_name(c.name) in names]


def _has_key(target: TableDef, key: set[str]) -> bool:
    return any(index.unique and set(index.columns) <= key for index in target.indexes)


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


# --- reading ---------------------------------------------------------------------------------------------------


def open_reader(pair: PairPlan, pool: SessionPool, rules: Rules) -> PairReader:
    """Return readers of all sides of a pair; the caller closes it."""
    if pair.target_side is None:
        raise RepairError(f"{pair.id}: the target has no such table")
    sources = [Reader(side, pool, rules) for side in pair.sources]
    return PairReader(pair, sources, Reader(pair.target_side, pool, rules), rules)


def row_reader(shape: Shape, pool: SessionPool, rules: Rules) -> PairReader:
    """Return readers whose rows hold all that is to be written or restored.

    The configured conditions are left out: a row that is outside of them on one side is not absent, and must
    neither be inserted again nor deleted.
    """
    pair, target = shape.pair, shape.pair.target_side
    if target is None:
        raise RepairError(f"{pair.id}: the target has no such table")
    sql = replace(target.sql, where="", texts=(*target.sql.texts, *shape.extra_texts, *shape.others))
    sources = tuple(replace(side, sql=replace(side.sql, where="")) for side in pair.sources)
    return open_reader(replace(pair, sources=sources, target_side=replace(target, sql=sql)), pool, rules)


def diverged(store: ResultStore, run_id: str, pair: str, size: int = PAGE) -> Iterator[list[RowDiff]]:
    """Yield pages of the confirmed row diffs of a pair. Hot and unconfirmed rows are none."""
    after = 0
    while page := store.row_diffs(run_id, pair, states=[LiveState.DIVERGED.value], after=after, limit=size):
        after = page[-1][0]
        yield [diff for _, diff in page]


def _read(reader: PairReader, keys: Sequence[KeyText], *, wide: bool) -> tuple[RowsByKey, RowsByKey]:
    """Read rows by key on both sides; a key that several shards hold has a row of each."""
    wanted = set(keys)

    def read(side: Reader) -> list[tuple[KeyText, Row]]:
        found = []
        for row in side.query(full_rows_sql(side.sql, keys, wide=wide)):
            key, checksums = split_element(reader, row[0] or b"")
            if key in wanted:  # a collation may have found more than was asked for
                found.append((key, (checksums, tuple(row[1:]))))
        return found

    futures = [r.later(partial(read, r)) for r in reader.readers]
    *ours, theirs = [f.result() for f in futures]
    return _grouped([entry for part in ours for entry in part]), _grouped(theirs)


def _grouped(rows: Sequence[tuple[KeyText, Row]]) -> RowsByKey:
    found: RowsByKey = {}
    for key, row in rows:
        found.setdefault(key, []).append(row)
    return found


# --- one table -------------------------------------------------------------------------------------------------


def write_statements(
    shape: Shape, reader: PairReader, store: ResultStore, run_id: str, forward: Script, inverse: Script
) -> Written:
    """Write the scripts of one table.

    Raises
    ------
    ReadError
        a row could not be read: the table gets no script, so that nothing is deleted for want of a read.
    """
    written = Written()
    size = min(PAGE, rows_at_once(shape.pair))
    with Stack() as undo:
        for kind in ORDER:
            with Movers() as movers:
                for page in diverged(store, run_id, shape.pair.id, size):
                    for change in _page(shape, reader, [d for d in page if d.kind is kind], written):
                        try:
                            if change.freed or change.taken:
                                movers.add(change)
                            else:
                                _write([change], kind, written, forward, undo)
                        except RepairError as error:
                            written.refused[error.message] += 1
                for changes in movers.in_order():
                    _write(changes, kind, written, forward, undo)
        for texts in undo.statements():
            inverse.add(*texts.split("\n"))
    return written


def _write(changes: Sequence[Change], kind: DiffKind, written: Written, forward: Script, undo: Stack) -> None:
    """Write the statements of one row, or of rows that exchange values."""
    reason = why_not_together(changes) if len(changes) > 1 else ""
    if reason:
        written.refused[reason] += len(changes)
        return
    if len(changes) == 1:
        forward.add(changes[0].forward)
        undo.push(changes[0].inverse)
    else:
        parts = [change.exchange for change in changes if isinstance(change.exchange, Exchange)]
        forward.add(*statements.exchange_sql([p.forward for p in parts]))
        undo.push("\n".join(statements.exchange_sql([p.inverse for p in parts])))
    written.statements[kind.value if len(changes) == 1 else EXCHANGED] += len(changes)


def _page(shape: Shape, reader: PairReader, diffs: Sequence[RowDiff], written: Written) -> Iterator[Change]:
    for wide in (False, True):
        some = [d for d in diffs if (d.source_checksum or d.target_checksum or "").startswith(WIDE) is wide]
        if not some:
            continue
        ours, theirs = _read(reader, [diff.key for diff in some], wide=wide)
        for diff in some:
            try:
                change = _change(shape, diff, ours.get(diff.key, []), theirs.get(diff.key, []), written, wide=wide)
            except RepairError as error:
                written.refused[scrub(error.message)] += 1
                continue
            if change is not None:
                yield change


def _change(
    shape: Shape, diff: RowDiff, ours: list[Row], theirs: list[Row], written: Written, *, wide: bool
) -> Change | None:
    """Return the statements of one row; None (and counted) when it is equal by now or changed since the run.

    Raises
    ------
    RepairError
        the row must not or cannot be repaired; the message says why.
    """
    if len(ours) > 1:
        raise RepairError("two shards hold this key" if len(shape.pair.sources) > 1 else "several rows hold this key")
    if len(theirs) > 1:
        raise RepairError("several rows hold this key on the target")
    if any("?" in checksums for checksums, _ in (*ours, *theirs)):
        raise RepairError("the row is longer than max_allowed_packet and has no checksum")
    places = _differing(shape, ours, theirs)
    if places is not None and not places:
        written.equal += 1
        return None
    if joined([c for c, _ in ours], wide=wide) != diff.source_checksum:
        written.changed["source"] += 1
        return None
    if joined([c for c, _ in theirs], wide=wide) != diff.target_checksum:
        written.changed["target"] += 1
        return None
    change = _statements(shape, diff, ours, theirs, places or [], wide=wide)
    _refuse_long(shape, change.forward, change.inverse)
    return change


def _refuse_long(shape: Shape, *texts: str) -> None:
    if any(len(t) * (1 if t.isascii() else 4) > shape.packet - PACKET_RESERVE for t in texts):
        raise RepairError("the statement would be longer than the target's max_allowed_packet")


def _differing(shape: Shape, ours: list[Row], theirs: list[Row]) -> list[int] | None:
    """Return the places of the columns that differ; None when a side has no row, empty when both have none."""
    if not ours and not theirs:
        return []
    if not ours or not theirs:
        return None
    columns = shape.pair.columns
    one, other = texts_of(columns, ours[0][1]), texts_of(columns, theirs[0][1][: len(columns)])
    found = [n for n, column in enumerate(columns) if not same_value(column, one[n], other[n])]
    if not found and _exact(ours[0]) != _exact(theirs[0]):
        raise RepairError("the checksums of the rows differ, but no column does")
    return found


def _exact(row: Row) -> str:
    return row[0].partition(",")[0]


def _statements(
    shape: Shape, diff: RowDiff, ours: list[Row], theirs: list[Row], places: list[int], *, wide: bool
) -> Change:
    side, key = shape.pair.target_side, diff.key
    if side is None:
        raise RepairError(f"{shape.pair.id}: the target has no such table")
    sql, columns = side.sql, shape.columns
    if diff.kind is DiffKind.MISSING_ON_SOURCE:
        if shape.no_delete:
            raise RepairError(f"no DELETE: {shape.no_delete}")
        return _deletion(shape, diff, theirs[0], wide=wide)
    new, exact = ours[0][1], _exact(ours[0])
    writable = [n for n, column in enumerate(columns) if not column.generation]
    # What the row will hold: the source's values where they are written, the target's where both are one value.
    held = list(new)
    if diff.kind is DiffKind.VALUE_DIFFERS:
        held = [new[n] if n in places else theirs[0][1][n] for n in range(len(columns))]
    lanes = [column.lane for column in shape.pair.columns]
    spelled = [(columns[n], held[n]) for n in statements.lane_columns(columns, lanes, Lane.VALUE)]
    after = [statements.checksum_guard(sql, exact, wide=wide), statements.written_guard(spelled)]
    if diff.kind is DiffKind.MISSING_ON_TARGET:
        if shape.no_insert:
            raise RepairError(f"no INSERT: {shape.no_insert}")
        return Change(
            statements.insert_sql(sql, key, [(columns[n], new[n]) for n in writable]),
            statements.delete_sql(sql, key, after),
        )
    keys = set(_key_places(shape.pair, columns))
    setting = [n for n in places if n in writable and n not in keys]
    if not setting:
        raise RepairError("only generated columns differ")
    kept = [name for name in shape.kept if name not in {columns[n].name for n in setting}]
    before, old = [_checksums(shape, theirs[0], wide=wide)], theirs[0][1]
    change = Change(
        statements.update_sql(sql, key, before, [(columns[n], new[n]) for n in setting], kept),
        statements.update_sql(sql, key, after, [(columns[n], old[n]) for n in setting], kept),
    )
    values = [(n, index.value(n, old), index.value(n, held)) for n, index in enumerate(shape.unique)]
    moved = [(freed, taken) for _, freed, taken in values if freed != taken]
    if not moved:
        return change
    held = [held[n] if n in setting else old[n] for n in range(len(columns))]
    return replace(
        change, freed=tuple(v for v, _ in moved if v), taken=tuple(v for _, v in moved if v),
        exchange=_exchange(shape, key, theirs[0], held, (before, after)),
    )  # fmt: skip


def _exchange(
    shape: Shape, key: KeyText, row: Row, held: Sequence[bytes | None], guards: tuple[list[str], list[str]]
) -> Exchange | str:
    """Return how a row goes and comes again with other values, or why it cannot."""
    if shape.no_exchange:
        return shape.no_exchange
    if shape.pair.target_side is None or shape.lost:
        return f"column {shape.lost} has a type that cannot be written back"
    sql = shape.pair.target_side.sql
    old, outside, guard = _whole_row(shape, row)
    before, after = ([*part, guard] for part in guards)
    try:
        found = Exchange(
            statements.exchange_row_sql(sql, key, before, [*_written(shape, held), *outside]),
            statements.exchange_row_sql(sql, key, after, [*_written(shape, old), *outside]),
        )
        _refuse_long(shape, *found.forward, *found.inverse)
    except RepairError as error:
        return scrub(error.message)
    return found


def _written(shape: Shape, texts: Sequence[bytes | None]) -> list[statements.Value]:
    return [(c, t) for c, t in zip(shape.columns, texts, strict=True) if not c.generation]


def _whole_row(shape: Shape, row: Row) -> tuple[tuple[bytes | None, ...], list[statements.Value], str]:
    """Split a row of the target: compared texts, the columns outside of the comparison, and the guard of these."""
    size, more = len(shape.columns), len(shape.extra)
    other = [(part or b"").decode("ascii") for part in row[1][size + more :]]
    outside = [(c, t) for c, t in zip(shape.extra, row[1][size : size + more], strict=True) if not c.generation]
    return row[1][:size], outside, statements.other_guard(shape.others, other)


def _checksums(shape: Shape, row: Row, *, wide: bool) -> str:
    exact, _, value = row[0].partition(",")
    if shape.pair.target_side is None:
        raise RepairError(f"{shape.pair.id}: the target has no such table")
    return statements.checksum_guard(shape.pair.target_side.sql, exact, value or None, wide=wide)


def _deletion(shape: Shape, diff: RowDiff, row: Row, *, wide: bool) -> Change:
    """Return the DELETE of a whole row and the INSERT that restores it, columns outside of the comparison included."""
    if shape.pair.target_side is None:
        raise RepairError(f"{shape.pair.id}: the target has no such table")
    sql = shape.pair.target_side.sql
    old, outside, guard = _whole_row(shape, row)
    guards = [_checksums(shape, row, wide=wide), guard]
    values = [*_written(shape, old), *outside]
    return Change(statements.delete_sql(sql, diff.key, guards), statements.insert_sql(sql, diff.key, values))

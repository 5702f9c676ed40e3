"""KeyRow diffs of one table -> statements that make the target's rows what the source's are, and what restores them.

Both rows of every diff are read again. A statement is written only where both still are what the run recorded:
its values are of this read, and it compares with this read before it sets. Rows come in pages, statements go to
disk, so memory does not grow with the differences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from migverify.db.reader import KeyRow
from migverify.errors import RepairError
from migverify.model import DiffKind, KeyText, Lane, LiveState, RowDiff
from migverify.secrets import scrub
from migverify.sql import repair as statements
from migverify.store.base import ResultStore
from migverify.tables.diff import WIDE, PairReader, joined, rows_at_once, texts_of
from migverify.tables.repair_files import Scripts
from migverify.tables.repair_order import Change, Exchange, Movers, why_not_together
from migverify.tables.repair_plan import RepairPlan
from migverify.tables.values import same_value

PAGE = 500
PACKET_RESERVE = 4096
ORDER = (DiffKind.MISSING_ON_SOURCE, DiffKind.VALUE_DIFFERS, DiffKind.MISSING_ON_TARGET)
"""DELETE, UPDATE, INSERT: a row that goes makes room for one whose unique keys collide with it."""
EXCHANGED = "deleted_and_inserted_again"
"""Rows that exchange unique values, counted apart from the UPDATEs that they do not get."""


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


def diverged(store: ResultStore, run_id: str, pair: str, size: int = PAGE) -> Iterator[list[RowDiff]]:
    """Yield pages of the confirmed row diffs of a pair. Hot and unconfirmed rows are none."""
    after = 0
    while page := store.row_diffs(run_id, pair, states=[LiveState.DIVERGED.value], after=after, limit=size):
        after = page[-1][0]
        yield [diff for _, diff in page]


def write_statements(
    plan: RepairPlan, reader: PairReader, store: ResultStore, run_id: str, scripts: Scripts
) -> Written:  # fmt: skip
    """Write the statements of one table.

    Raises
    ------
    ReadError
        a row could not be read: the table gets no script, so that nothing is deleted for want of a read.
    """
    written = Written()
    size = min(PAGE, rows_at_once(plan.pair))
    for kind in ORDER:
        with Movers() as movers:
            for page in diverged(store, run_id, plan.pair.id, size):
                for change in _page(plan, reader, [d for d in page if d.kind is kind], written):
                    try:
                        if change.freed or change.taken:
                            movers.add(change)
                        else:
                            _write([change], kind, written, scripts)
                    except RepairError as error:
                        written.refused[error.message] += 1
            for changes in movers.in_order():
                _write(changes, kind, written, scripts)
    return written


def _write(changes: Sequence[Change], kind: DiffKind, written: Written, scripts: Scripts) -> None:
    """Write the statements of one row, or of rows that exchange values."""
    if len(changes) == 1:
        scripts.add([changes[0].forward], [changes[0].inverse])
        written.statements[kind.value] += 1
        return
    if reason := why_not_together(changes):
        written.refused[reason] += len(changes)
        return
    parts = [change.exchange for change in changes if isinstance(change.exchange, Exchange)]
    scripts.add(
        statements.exchange_sql([p.forward for p in parts]), statements.exchange_sql([p.inverse for p in parts])
    )
    written.statements[EXCHANGED] += len(changes)


# --- reading both rows again -----------------------------------------------------------------------------------


def _page(plan: RepairPlan, reader: PairReader, diffs: Sequence[RowDiff], written: Written) -> Iterator[Change]:
    for wide in (False, True):
        some = [d for d in diffs if (d.source_checksum or d.target_checksum or "").startswith(WIDE) is wide]
        if not some:
            continue
        ours, theirs = reader.lookup([diff.key for diff in some], wide=wide)
        for diff in some:
            try:
                change = _change(plan, diff, ours.get(diff.key, []), theirs.get(diff.key, []), written, wide=wide)
            except RepairError as error:
                written.refused[scrub(error.message)] += 1
                continue
            if change is not None:
                yield change


def _change(
    plan: RepairPlan, diff: RowDiff, ours: list[KeyRow], theirs: list[KeyRow], written: Written, *, wide: bool
) -> Change | None:
    """Return the statements of one row; None (and counted) when it is equal by now or changed since the run.

    Raises
    ------
    RepairError
        the row must not or cannot be repaired; the message says why.
    """
    if len(ours) > 1:
        raise RepairError("two shards hold this key" if len(plan.pair.sources) > 1 else "several rows hold this key")
    if len(theirs) > 1:
        raise RepairError("several rows hold this key on the target")
    if any("?" in checksums for checksums, _ in (*ours, *theirs)):
        raise RepairError("the row is longer than max_allowed_packet and has no checksum")
    differing = _differing(plan, ours, theirs)
    if differing is not None and not differing:
        written.equal += 1
        return None
    if joined([c for c, _ in ours], wide=wide) != diff.source_checksum:
        written.changed["source"] += 1
        return None
    if joined([c for c, _ in theirs], wide=wide) != diff.target_checksum:
        written.changed["target"] += 1
        return None
    before = _present(plan, theirs[0], wide=wide) if theirs else None
    after = _intended(plan, ours[0], before, differing or (), wide=wide) if ours else None
    change = _transition(plan, diff.key, before, after, differing or ())
    _refuse_long(plan, change.forward, change.inverse)
    return change


def _differing(plan: RepairPlan, ours: list[KeyRow], theirs: list[KeyRow]) -> list[int] | None:
    """Return the positions of the columns that differ; None when a side has no row, empty when both have none."""
    if not ours and not theirs:
        return []
    if not ours or not theirs:
        return None
    columns = plan.pair.columns
    one, other = texts_of(columns, ours[0][1]), texts_of(columns, theirs[0][1][: len(columns)])
    found = [n for n, column in enumerate(columns) if not same_value(column, one[n], other[n])]
    if not found and _exact(ours[0]) != _exact(theirs[0]):
        raise RepairError("the checksums of the rows differ, but no column does")
    return found


def _exact(row: KeyRow) -> str:
    return row[0].partition(",")[0]


# --- one row, before and after ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowImage:
    """A row of the target before or after its repair.

    ``texts`` are those of the compared columns, ``values`` all that an INSERT of the row writes, ``guards`` the
    conditions that the compared columns hold this row, ``others`` the checksums of the columns outside of the
    comparison.
    """

    texts: tuple[bytes | None, ...]
    values: tuple[statements.Value, ...]
    guards: tuple[str, ...]
    others: tuple[str, ...] = ()


def _present(plan: RepairPlan, row: KeyRow, *, wide: bool) -> RowImage:
    """Return the target's row as it was read."""
    size, more = len(plan.columns), len(plan.extra)
    texts = row[1][:size]
    extra = [(p.target, t) for p, t in zip(plan.extra, row[1][size : size + more], strict=True)]
    others = tuple((part or b"").decode("ascii") for part in row[1][size + more :])
    exact, _, value = row[0].partition(",")
    guard = statements.checksum_guard(plan.sql, exact, value or None, wide=wide)
    values = [*zip(plan.columns, texts, strict=True), *extra]
    return RowImage(texts, _writable(values), (guard,), others)


def _intended(
    plan: RepairPlan, row: KeyRow, before: RowImage | None, differing: Sequence[int], *, wide: bool
) -> RowImage:  # fmt: skip
    """Return the target's row as the repair leaves it: the source's values, the target's where both are one value."""
    columns, new, settable = plan.columns, row[1], _settable(plan, differing)
    texts = new if before is None else tuple(new[n] if n in differing else t for n, t in enumerate(before.texts))
    values = [*zip(columns, texts, strict=True)]
    if before is not None:
        values = [(c, t if n in settable else before.texts[n]) for n, (c, t) in enumerate(values)]
    lanes = [column.lane for column in plan.pair.columns]
    spelled = [value for value, lane in zip(zip(columns, texts, strict=True), lanes, strict=True) if lane is Lane.VALUE]
    guards = (
        statements.checksum_guard(plan.sql, _exact(row), wide=wide), statements.written_guard(_writable(spelled)),
    )  # fmt: skip
    if before is None:
        return RowImage(texts, _writable(values), guards)
    extra = before.values[len(_writable(values)) :]
    return RowImage(texts, (*_writable(values), *extra), guards, before.others)


def _writable(values: Sequence[statements.Value]) -> tuple[statements.Value, ...]:
    return tuple((column, text) for column, text in values if not column.generation)


def _settable(plan: RepairPlan, differing: Sequence[int]) -> list[int]:
    return [n for n in differing if not plan.columns[n].generation and n not in plan.key]


def _transition(
    plan: RepairPlan, key: KeyText, before: RowImage | None, after: RowImage | None, differing: Sequence[int]
) -> Change:
    """Return what makes a row ``before`` the row ``after``, and back; None is no row.

    Raises
    ------
    RepairError
        the row may not be deleted or inserted, or nothing that differs can be set.
    """
    if after is None and plan.no_delete:
        raise RepairError(f"no DELETE: {plan.no_delete}")
    if before is None and plan.no_insert:
        raise RepairError(f"no INSERT: {plan.no_insert}")
    if before is None or after is None:
        return Change(_one_way(plan, key, before, after), _one_way(plan, key, after, before))
    if not _settable(plan, differing):
        raise RepairError("only generated columns differ")
    values = [(index.value(n, before.texts), index.value(n, after.texts)) for n, index in enumerate(plan.unique)]
    moved = [(freed, taken) for freed, taken in values if freed != taken]
    return Change(
        _update(plan, key, before, after, differing), _update(plan, key, after, before, differing),
        freed=tuple(v for v, _ in moved if v), taken=tuple(v for _, v in moved if v),
        exchange=_exchange(plan, key, before, after) if moved else "",
    )  # fmt: skip


def _one_way(plan: RepairPlan, key: KeyText, before: RowImage | None, after: RowImage | None) -> str:
    if after is not None:
        return statements.insert_sql(plan.sql, key, after.values)
    if before is None:
        raise RepairError("neither side has the row")
    return statements.delete_sql(plan.sql, key, _all_guards(plan, before))


def _update(plan: RepairPlan, key: KeyText, before: RowImage, after: RowImage, differing: Sequence[int]) -> str:
    setting = [(plan.columns[n], after.texts[n]) for n in _settable(plan, differing)]
    names = {column.name for column, _ in setting}
    unset = [name for name in plan.self_updating if name not in names]
    return statements.update_sql(plan.sql, key, before.guards, setting, unset)


def _exchange(plan: RepairPlan, key: KeyText, before: RowImage, after: RowImage) -> Exchange | str:
    """Return how a row goes and comes again with other values, or why it cannot."""
    if plan.no_exchange:
        return plan.no_exchange
    if plan.lost:
        return f"column {plan.lost} has a type that cannot be written back"
    try:
        found = Exchange(
            statements.exchange_row_sql(plan.sql, key, _all_guards(plan, before), after.values),
            statements.exchange_row_sql(plan.sql, key, _all_guards(plan, after), before.values),
        )
        _refuse_long(plan, *found.forward, *found.inverse)
    except RepairError as error:
        return scrub(error.message)
    return found


def _all_guards(plan: RepairPlan, image: RowImage) -> tuple[str, ...]:
    """Return the conditions that a row is this one, columns outside of the comparison included."""
    return (*image.guards, statements.other_guard(plan.others, image.others)) if image.others else image.guards


def _refuse_long(plan: RepairPlan, *texts: str) -> None:
    if any(len(t) * (1 if t.isascii() else 4) > plan.packet - PACKET_RESERVE for t in texts):
        raise RepairError("the statement would be longer than the target's max_allowed_packet")

"""Relations of the kinds that look at order: legal changes of a state, sequences without gaps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from migverify.model import ColumnDef
from migverify.recon.model import ChangesPart, QueryPart, TablePart
from migverify.recon.relation import ChangeRead, Combine, JoinFilter, Relation, SqlRead
from migverify.recon.shape import Built, RuleInputs, carried_slots, rows_of, time_checks
from migverify.recon.sides import BEFORE, OpenPart, Slot, expressions, read_column_of, slot, text_of
from migverify.sql import recon as sql
from migverify.sql import recon_order
from migverify.sql.key_range import KeyColumn
from migverify.sql.union_text import TEXT


def transitions(scene: RuleInputs) -> Built:
    """Return the changes of a state: from a change stream all of them, from a history those that are not allowed."""
    kinds = {isinstance(part.part, ChangesPart) for part in scene.source.parts}
    if len(kinds) > 1:
        raise scene.refusal.error(f"dataset {scene.source.dataset.name} mixes change streams with tables")
    return _changes(scene) if kinds == {True} else _history(scene)


def _changes(scene: RuleInputs) -> Built:
    column = scene.name("column")
    names = scene.key()
    # A change is told by its key and both states, so that one that happens twice is still one finding.
    key = scene.slots([*names, "_op", BEFORE + column, column], "key", exact=True)
    carried, times = carried_slots(scene, [s.names[0] or "" for s in key])
    time = slot(scene.sides, ["_time"], scene.refusal, "time column")
    relation = rows_of(scene, 0, key, (), [*carried, time])
    reads = tuple(replace(r, changed=column) if isinstance(r, ChangeRead) else r for r in relation.reads)
    columns = tuple(s.read_column for s in (*carried, time))
    return Built(replace(relation, reads=reads), None, JoinFilter(all=True), columns, (times[0] or "_time", None))


def _history(scene: RuleInputs) -> Built:
    column, order = scene.name("column"), scene.name("order")
    names = scene.key()
    key = scene.slots([*names, order], "key", exact=True)
    state = slot(scene.sides[:1], [column], scene.refusal, "state", exact=True)
    reads = tuple(_history_read(scene, part, key, state) for part in scene.source.parts)
    values = (replace(TEXT, name=BEFORE + column), replace(TEXT, name=column))
    relation = Relation(
        scene.source.dataset.name, reads, tuple(s.definition(0) for s in key), values, (Combine.ROW, Combine.ROW)
    )
    columns = tuple(read_column_of(value) for value in values)
    return Built(relation, None, JoinFilter(all=True), columns, (None, None), time_checks(scene.sides[:1]))


def _history_read(scene: RuleInputs, part: OpenPart, key: list[Slot], state: Slot) -> SqlRead:
    if not isinstance(part.part, TablePart | QueryPart):
        raise scene.refusal.error("the order of a history is asked of a database", "Use a table or sql.")
    made = expressions(part, 0, [*key, state])
    order = part.columns[key[-1].names[0] or ""]
    parted = [(part.columns[s.names[0] or ""].sql, text) for s, text in zip(key[:-1], made.texts[:-2], strict=True)]
    time, recent, outer = _window_of(scene, part)
    table = recon_order.transitions_sql(
        part.table, parted, made.texts[-1], (order.sql, made.texts[-2]), time, sql.both(part.base, recent[0]), recent[1]
    )
    allowed = scene.option("allowed")
    steps = (
        [(str(s), [str(n) for n in follow]) for s, follow in allowed.items()] if isinstance(allowed, Mapping) else []
    )
    initial = scene.option("initial")
    illegal = recon_order.illegal_condition(
        steps, list(scene.names("initial")) if initial else None, list(scene.names("final"))
    )  # fmt: skip
    texts = tuple(f"h.k{place}" for place in range(len(parted)))
    return SqlRead(
        endpoint=part.part.endpoint, table=table, key=(*texts, "h.o"), values=("h.p", "h.s"),
        where=sql.both(outer.replace("t.", "h."), illegal), shard=part.part.shard,
        strings=(*(s.unified.string for s in key), True, True),
        lookup=tuple(KeyColumn(text, text, "text", nullable=True) for text in (*texts, "h.o")),
        population=sql.rows_counted_sql(part.table, part.where),
    )  # fmt: skip


def _window_of(scene: RuleInputs, part: OpenPart) -> tuple[str, tuple[str, str], str]:
    """Return the time's SQL; conditions on all rows and on those that matter; and the one on what comes out (``t.t``).

    What lies before the window is read as well: a row of the window follows it.
    """
    name = scene.source.dataset.time
    bounds = scene.source.window
    if name is None or bounds is None or name not in part.columns:
        return "NULL", ("", ""), ""
    time = part.columns[name]
    until = sql.before_condition(time.sql, bounds[1])
    inside = sql.window_condition(time.sql, time.definition, *bounds)
    return time.sql, (until, inside), sql.window_condition("t.t", time.definition, *bounds)


def sequence(scene: RuleInputs) -> Built:
    """Return gaps of a sequence, and numbers whose time fell."""
    column, groups = scene.name("column"), scene.names("groups")
    rising = scene.option("increasing")
    key = scene.slots(groups, "group", exact=True)
    one = slot(scene.sides[:1], [column], scene.refusal, "number", exact=True)
    if one.unified.family not in ("integer", "decimal") or one.unified.widest.scale:
        raise scene.refusal.error(f"{column} is {one.unified.widest.column_type}: a sequence needs whole numbers")
    risen = slot(scene.sides[:1], [str(rising)], scene.refusal, "increasing column") if rising else None
    read = _sequence_read(scene, key, column, risen)
    numbers = ColumnDef(column, 0, "decimal", "decimal(65,0)", True, precision=sql.LARGEST, scale=0)
    names = ("gap_from", "gap_to", "fell_from", "fell_to")
    values = (replace(numbers, name=names[0]), replace(numbers, name=names[1]),
              *(replace(TEXT, name=name) for name in names[2:]))  # fmt: skip
    start = scene.option("start")
    first, last, gap = recon_order.gap_parts(start if isinstance(start, int) else None)
    shown = tuple(f"s.g{place}" for place in range(len(groups)))
    condition = read.where
    reads = []
    if scene.option("gaps", "report") == "report":
        reads.append(replace(
            read, key=(*shown, last), values=(first, last, "NULL", "NULL"), where=sql.both(condition, gap),
            lookup=_lookup(shown, last),
        ))  # fmt: skip
    if risen is not None:
        # The number of a row is never one that is missing, so keys of both reads stay apart.
        reads.append(replace(
            read, key=(*shown, "s.c"), values=("NULL", "NULL", "s.rpt", "s.rt"),
            where=sql.both(condition, recon_order.FELL), lookup=_lookup(shown, "s.c"),
            population="" if reads else read.population,
        ))  # fmt: skip
    if not reads:
        raise scene.refusal.error("nothing is asked: gaps are allowed, and no column must rise")
    relation = Relation(
        scene.source.dataset.name, tuple(reads), (*(s.definition(0) for s in key), numbers), values, (Combine.ROW,) * 4
    )
    columns = tuple(read_column_of(value) for value in values)
    return Built(relation, None, JoinFilter(all=True), columns, (None, None), time_checks(scene.sides[:1]))


def _lookup(shown: tuple[str, ...], last: str) -> tuple[KeyColumn, ...]:
    texts = [KeyColumn(text, text, "text", nullable=True) for text in shown]
    return (*texts, KeyColumn(last, last, "decimal", nullable=True))


def _sequence_read(scene: RuleInputs, key: list[Slot], column: str, risen: Slot | None) -> SqlRead:
    parts = [part for part in scene.source.parts if isinstance(part.part, TablePart | QueryPart)]
    endpoints = {part.part.endpoint for part in parts if isinstance(part.part, TablePart | QueryPart)}
    if len(parts) != len(scene.source.parts) or len(endpoints) != 1:
        raise scene.refusal.error(
            "a sequence is looked at by one database, and this dataset lies in several",
            "Write a rule for each shard, or read the union from one endpoint.",
        )
    first = parts[0]
    texts = expressions(first, 0, key).texts
    rising = None
    if risen is not None:
        value = first.columns[risen.names[0] or ""]
        rising = value.sql, text_of(value, risen.unified)
    time, recent, outer = _window_of(scene, first)
    table = recon_order.sequence_sql(
        [(part.table, sql.both(part.base, recent[0])) for part in parts], texts, first.columns[column].sql, rising, time
    )
    counted = sql.counts_added_sql([sql.rows_counted_sql(part.table, part.where) for part in parts])
    return SqlRead(
        endpoint=endpoints.pop(), table=table, key=(), values=(), where=outer.replace("t.", "s."),
        strings=(*(s.unified.string for s in key), *(True,) * 5), population=counted,
    )  # fmt: skip

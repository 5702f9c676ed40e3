"""Relations of groups: aggregates that the databases compute in one scan, one row per group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from migverify.errors import ReadError
from migverify.model import ColumnDef
from migverify.recon.fields import Measure
from migverify.recon.model import ChangesPart, FilePart
from migverify.recon.relation import ChangeRead, Combine, FileRead, Read, Relation, SqlRead
from migverify.recon.sides import (
    Column,
    DatasetSide,
    OpenPart,
    RuleRefusal,
    Slot,
    expressions,
    other_read,
    read_column_of,
    row_read,
    slot,
    text_of,
)
from migverify.sql import recon as sql
from migverify.sql.union_text import bytes_sql
from migverify.tables.tasks import ReadColumn

_NUMBERS = frozenset({"integer", "decimal", "bit", "year", "float"})
_SUMMED = frozenset({"integer", "decimal"})


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One value of a group: its name and type, how parts of a group are combined, and its SQL on a part of a side.

    ``plain`` is the value of a single row where no database aggregates (see ``ChangeRead``), or None where none is.
    ``lost`` gives the condition that a row's text is lost.
    """

    definition: ColumnDef
    combine: Combine
    sql: Callable[[OpenPart, int], str]
    plain: Callable[[int], str | None]
    lost: Callable[[OpenPart, int], str] = lambda _part, _side: ""


def read_columns(values: Sequence[Aggregate]) -> tuple[ReadColumn, ...]:
    """Return how texts of aggregates are compared: exactly."""
    return tuple(read_column_of(value.definition) for value in values)


def number(name: str, scale: int = 0) -> ColumnDef:
    """Return the type of a sum or a count."""
    return ColumnDef(name, 0, "decimal", f"decimal({sql.LARGEST},{scale})", True, precision=sql.LARGEST, scale=scale)


def count_of(name: str | None, columns: Sequence[str | None]) -> Aggregate:
    """Return the count of rows, or of those in which a column is not NULL; ``columns`` are its names by side."""

    def text(part: OpenPart, side: int) -> str:
        column = columns[side]
        return sql.counted(part.columns[column].sql) if column is not None else sql.counted()

    def plain(side: int) -> str:
        return f"?{columns[side]}" if columns[side] is not None else "=1"

    return Aggregate(number(f"count({name or '*'})"), Combine.SUM, text, plain)


def sum_of(name: str, one: Slot, refusal: RuleRefusal, label: str = "") -> Aggregate:
    """Return the exact sum of a slot.

    Raises ConfigError: it is no exact number, or too wide for a sum.
    """
    if one.unified.family not in _SUMMED:
        raise refusal.error(
            f"{name} is {one.unified.widest.column_type}: only whole numbers and DECIMAL have an exact sum",
            "Map it with `columns`: CAST(... AS DECIMAL(p, s)).",
        )
    scale = one.unified.widest.scale or 0
    try:
        sql.exact_sum("x", one.unified.widest, scale)
    except ReadError as error:
        raise refusal.error(f"{name}: {error.message}", error.hint) from error

    def text(part: OpenPart, side: int) -> str:
        column = part.columns[one.names[side] or ""]
        return sql.exact_sum(column.sql, column.definition, scale)

    return Aggregate(number(label or f"sum({name})", scale), Combine.SUM, text, lambda side: one.names[side])


def edge_of(name: str, one: Slot, refusal: RuleRefusal, *, greatest: bool) -> Aggregate:
    """Return the least or greatest value of a slot, as its canonical text.

    Raises ConfigError: values of its type have no order that the texts keep.
    """
    family = one.unified.family
    if family in ("time", "json", "labels") or one.unified.compare != "text":
        raise refusal.error(
            f"{name} is {one.unified.widest.column_type}: min and max are not taken of it",
            "Map it with `columns` to a number or a text.",
        )
    numeric = family in _NUMBERS

    def text(part: OpenPart, side: int) -> str:
        column = part.columns[one.names[side] or ""]
        if not numeric and family not in ("date", "datetime"):
            return sql.least(bytes_sql(text_of(column, one.unified)), greatest=greatest)
        if column.definition.data_type == "bit":
            column = Column(replace(column.definition, data_type="bigint", column_type="bigint"), f"({column.sql}+0)")
        return text_of(replace(column, sql=sql.least(column.sql, greatest=greatest)), one.unified)

    texts = (Combine.TEXT_MAX if greatest else Combine.TEXT_MIN, Combine.MAX if greatest else Combine.MIN)
    label = f"{'max' if greatest else 'min'}({name})"
    return Aggregate(
        replace(one.definition(0), name=label, nullable=True), texts[numeric], text, lambda side: one.names[side]
    )


def one_value_of(one: Slot, side_name: str) -> Aggregate:
    """Return the value that all rows of a group share, NULL where they do not; of one read only."""

    def text(part: OpenPart, side: int) -> str:
        column = part.columns[one.names[side] or ""]
        inner = text_of(replace(column, sql=sql.least(column.sql)), one.unified)
        return sql.one_value(column.sql, inner)

    return Aggregate(replace(one.definition(0), name=side_name), Combine.TEXT_MIN, text, lambda _side: None)


def checksum_of(name: str, slots: Sequence[Slot], refusal: RuleRefusal) -> Aggregate:
    """Return the sum of row checksums over some slots.

    Raises ConfigError: different texts of a slot may be one value.
    """
    for one in slots:
        if one.unified.compare != "text":
            raise refusal.error(
                f"checksum({name}): different texts of {one.unified.widest.column_type} may be one value",
                "Leave it out of the checksum, and compare it by rows.",
            )

    def both(part: OpenPart, side: int) -> tuple[str, str]:
        made = expressions(part, side, slots)
        return sql.rows_checksum(made.texts, made.strings, " OR ".join(made.lost))

    return Aggregate(
        number(f"checksum({name})"), Combine.SUM, lambda part, side: both(part, side)[0], lambda _side: None,
        lambda part, side: both(part, side)[1],
    )  # fmt: skip


def measure_of(measure: Measure, sides: Sequence[DatasetSide], refusal: RuleRefusal) -> Aggregate:
    """Return the aggregate of a measure.

    Raises ConfigError: an unknown column, or a type that the measure does not take.
    """
    name = measure.column
    if measure.function == "count":
        if name is None:
            return count_of(None, [None] * len(sides))
        for side in sides:
            if side.is_known and name not in side.names:
                raise refusal.unknown(name, side, side.names)
        return count_of(name, [name] * len(sides))
    if name is None:
        raise refusal.error(f"{measure.function}() needs a column")
    if measure.function == "checksum":
        names = [part.strip() for part in name.split(",")]
        slots = [slot(sides, [n] * len(sides), refusal, "column of a checksum") for n in names]
        return checksum_of(name, slots, refusal)
    one = slot(sides, [name] * len(sides), refusal, f"column of {measure.function}")
    if measure.function == "sum":
        return sum_of(name, one, refusal)
    return edge_of(name, one, refusal, greatest=measure.function == "max")


def group_relation(
    side: DatasetSide, number_of_side: int, key: Sequence[Slot], values: Sequence[Aggregate], refusal: RuleRefusal, *,
    having: str = "", where: Callable[[OpenPart], str] = lambda _part: "",
) -> Relation:  # fmt: skip
    """Return the relation of the groups of one side.

    ``having`` is a condition on groups that only a single read may have: parts of a group lie in several.

    Raises ConfigError: a part cannot be aggregated.
    """
    having = having if len(side.parts) == 1 else ""
    reads: list[Read] = []
    for part in side.parts:
        if isinstance(part.part, FilePart | ChangesPart):
            reads.append(_plain_read(part, side, number_of_side, key, values, refusal))
        else:
            reads.append(_group_read(part, number_of_side, key, values, side.window is not None, having, where(part)))
    definitions = tuple(value.definition for value in values)
    combine = tuple(value.combine for value in values)
    return Relation(
        side.dataset.name, tuple(reads), tuple(s.definition(number_of_side) for s in key), definitions, combine
    )


def _group_read(
    part: OpenPart, side: int, key: Sequence[Slot], values: Sequence[Aggregate], window: bool, having: str, where: str
) -> SqlRead:  # fmt: skip
    read = row_read(part, side, key, (), window)
    # Grouped by bytes: a collation would put groups together that the other side does not.
    texts = tuple(bytes_sql(t) if s.unified.string else t for t, s in zip(read.key, key, strict=True))
    lost = [x for x in (read.lost, *(value.lost(part, side) for value in values)) if x]
    condition = sql.both(read.where, where)
    return replace(
        read, key=texts, values=tuple(value.sql(part, side) for value in values), where=condition, grouped=True,
        having=having, cut=None, strings=(*read.strings, *(True for _ in values)),
        lost=" OR ".join(f"COALESCE({x},0)" for x in lost), unique=False,
        population=sql.groups_counted_sql(part.table, texts, condition) if having else "",
    )  # fmt: skip


def _plain_read(
    part: OpenPart,
    side: DatasetSide,
    number_of_side: int,
    key: Sequence[Slot],
    values: Sequence[Aggregate],
    refusal: RuleRefusal,
) -> FileRead | ChangeRead:
    read = other_read(part, side, number_of_side, key, ())
    names = []
    for value in values:
        name = value.plain(number_of_side)
        if name is None:
            raise refusal.error(
                f"{value.definition.name} of {side.dataset.name} cannot be computed: its rows lie in no database",
                "Use count, sum, min or max there.",
            )
        names.append(name)
    if isinstance(read, FileRead):
        return replace(read, values=tuple(names), types=(*read.types, *(value.definition for value in values)))
    return replace(read, values=tuple(names))

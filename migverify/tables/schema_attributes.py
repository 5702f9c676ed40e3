"""The attributes of a table's parts: what is equal on two servers, what a difference means, what reports print."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import Any

from migverify.model import ColumnDef, SchemaClass, SchemaDifference, TableDef
from migverify.sql.fingerprint import automatic, normal_collation, on_update, sharding
from migverify.sql.parts import CheckConstraint
from migverify.sql.spelling import fold_label, grouped_equally, normal_default, normal_expression, rewritten_equally
from migverify.tables.type_change import charset_change, collation_change, type_change

_LOSES, _COSMETIC = SchemaClass.MAY_LOSE_DATA, SchemaClass.COSMETIC

Judged = Iterable[tuple[SchemaClass, str]]


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of a column, key, constraint or table.

    ``form`` gives equal values for what means the same (None: ``judge`` decides that too). ``judge`` is what a
    difference means, or a function that yields it, not at all or several times. ``shown`` is what reports print;
    ``label`` introduces the two in the message, None leaves them out of it.
    """

    kind: str
    form: Callable[[Any], object] | None
    judge: tuple[SchemaClass, str] | Callable[[Any, Any], Judged]
    shown: Callable[[Any], str | None]
    label: str | None = ""


def walk(attributes: Iterable[Attribute], where: str, one: object, other: object) -> Iterator[SchemaDifference]:
    """Yield the differences of two parts that belong together."""
    for attribute in attributes:
        if attribute.form is not None and attribute.form(one) == attribute.form(other):
            continue
        judge = attribute.judge
        for level, text in [judge] if isinstance(judge, tuple) else judge(one, other):
            ours, theirs = attribute.shown(one), attribute.shown(other)
            if attribute.label is not None:
                became = f"{attribute.label}{ours or 'none'} became {theirs or 'none'}"
                text = f"{became}: {text}" if text else became
            yield difference(attribute.kind, where, ours, theirs, level, text)


def difference(
    kind: str, where: str, source: str | None, target: str | None, level: SchemaClass, text: str
) -> SchemaDifference:
    """Return a difference whose message begins with its place."""
    return SchemaDifference(kind, where, source, target, level, f"{where}: {text}")


def _word(word: str, otherwise: str, name: str) -> Callable[[Any], str]:
    return lambda part: word if getattr(part, name) else otherwise


def _filled(name: str) -> Callable[[Any], str | None]:
    return lambda form: str(form[name]) if form[name] else None


def comment_attribute(kind: str) -> Attribute:
    """Return the attribute of a comment."""
    return Attribute(
        kind, lambda part: fold_label(part.comment), (_COSMETIC, "the comments differ"), lambda part: part.comment, None
    )  # fmt: skip


@cache
def column_attributes(*, unique: bool) -> tuple[Attribute, ...]:
    """Return the attributes of a column; ``unique`` where a unique key holds it."""

    def collations(one: ColumnDef, other: ColumnDef) -> Judged:
        if one.collation and other.collation:
            text, otherwise = collation_change(one.collation, other.collation)
            level = _LOSES if otherwise or (unique and "single characters" in text) else _COSMETIC
            where = ", and a unique key holds this column" if unique else ""
            yield level, f"{one.collation} became {other.collation}{where}: {text}"

    collation = Attribute(
        "collation", lambda c: normal_collation(c.collation), collations, lambda c: c.collation, label=None
    )  # fmt: skip
    return (*_TYPES, collation, *_COLUMN)


def _names(one: ColumnDef, other: ColumnDef) -> Judged:
    in_case = one.name.casefold() == other.name.casefold()
    yield _COSMETIC, "the names differ in case" if in_case else "renamed by configuration"


def _table_names(one: TableDef, other: TableDef) -> Judged:
    if one.ref.table.casefold() == other.ref.table.casefold():
        yield _COSMETIC, "the names differ in case"


def _labels(source: ColumnDef, target: ColumnDef) -> Judged:
    """Compare the labels of two ENUMs or two SETs."""
    if source.data_type != target.data_type:
        return
    ours, theirs = [[fold_label(label) for label in column.members] for column in (source, target)]
    if ours == theirs:
        yield _COSMETIC, "the labels look the same, but one of the catalogs cannot tell them apart exactly"
        return
    missing = [label for label, folded in zip(source.members, ours, strict=True) if folded not in theirs]
    added = [label for label, folded in zip(target.members, theirs, strict=True) if folded not in ours]
    if missing:
        yield _LOSES, f"the target lacks {_some(missing)}"
    if added:
        yield _COSMETIC, f"only the target has {_some(added)}"
    if [label for label in ours if label in theirs] != [label for label in theirs if label in ours]:
        yield _LOSES, "the labels are in another order: their numbers, and what sorts by them, differ"
    elif added and theirs[: len(ours)] != ours and not missing:
        yield _LOSES, "labels were added before others: the numbers of the later ones differ"


def _some(labels: Sequence[str]) -> str:
    shown = ", ".join(repr(label) for label in labels[:5])
    return shown if len(labels) <= 5 else f"{shown} and {len(labels) - 5} more"


def _nullability(one: ColumnDef, other: ColumnDef) -> Judged:
    del other
    if one.nullable:
        yield _LOSES, "NULL is refused or becomes another value on the target"
    else:
        yield _COSMETIC, "NULL is accepted on the target"


def _generated(one: ColumnDef, other: ColumnDef) -> Judged:
    if not one.generation and not other.generation:
        return
    if bool(one.generation) != bool(other.generation):
        side = "source" if one.generation else "target"
        yield _LOSES, f"generated on the {side} only: the other side takes what is written, not what is computed"
    elif normal_expression(one.generation) != normal_expression(other.generation):
        if rewritten_equally(one.generation, other.generation):
            yield _COSMETIC, "conditions are printed differently; the values are compared row by row"
        else:
            yield _LOSES, "another generation expression, so that new rows may get other values"
    elif not grouped_equally(one.generation, other.generation):
        yield _LOSES, "the generation expression is grouped otherwise, so that new rows get other values"


def _defaults(one: ColumnDef, other: ColumnDef) -> Judged:
    if not one.generation and not other.generation:
        ours, theirs = ("none" if c.default is None else repr(c.default) for c in (one, other))
        lost = "rows written without this column get another value or are refused"
        yield _LOSES, f"default {ours} became {theirs}: {lost}"


def _automatic(one: ColumnDef, other: ColumnDef) -> Judged:
    ours, theirs = automatic(one), automatic(other)
    if not theirs:
        yield _LOSES, f"{ours} is missing on the target: inserts without an id are refused or all get one id"
    elif not ours:
        yield _COSMETIC, f"only the target has {theirs}"
    else:
        yield _COSMETIC, f"{ours} became {theirs}: new ids come from another sequence and need not ascend"


def _both_generated(one: ColumnDef, other: ColumnDef) -> Judged:
    if one.generation and other.generation:
        yield _COSMETIC, ""


def _grouping(one: CheckConstraint, other: CheckConstraint) -> Judged:
    if not grouped_equally(one.clause, other.clause):
        yield _LOSES, f"{one.clause} and {other.clause} are grouped otherwise: other rows are refused"


_TYPES = (
    Attribute("column-name", lambda c: c.name, _names, lambda c: c.name, None),
    Attribute("type", None, type_change, lambda c: c.column_type),
    Attribute("charset", lambda c: c.charset, charset_change, lambda c: c.charset),
    Attribute("members", lambda c: c.members, _labels, lambda c: c.column_type, None),
)
_COLUMN = (
    Attribute("nullability", lambda c: c.nullable, _nullability, _word("NULL", "NOT NULL", "nullable")),
    Attribute("generated", None, _generated, lambda c: c.generation or None, None),
    Attribute("generated", lambda c: c.stored, _both_generated, _word("STORED", "VIRTUAL", "stored")),
    Attribute("default", normal_default, _defaults, lambda c: c.default, None),
    Attribute("on-update", on_update, (_LOSES, "the time of the last change is not recorded equally"),
              lambda c: on_update(c) or None),
    Attribute("auto", automatic, _automatic, lambda c: automatic(c) or None, None),
    Attribute("visibility", lambda c: c.invisible, (_COSMETIC, "SELECT * gives other columns"),
              _word("INVISIBLE", "VISIBLE", "invisible")),
    comment_attribute("comment"),
)  # fmt: skip
KEY = (
    Attribute("key-name", lambda i: i.name, (_COSMETIC, "has another name"), lambda i: i.name, None),
    Attribute("key-visibility", lambda i: i.visible, (_COSMETIC, "queries may use another plan"),
              _word("VISIBLE", "INVISIBLE", "visible")),
    Attribute("key-kind", lambda i: i.kind, (_COSMETIC, ""), lambda i: i.kind),
    Attribute("key-order", lambda i: i.descending, (_COSMETIC, "queries that sort by it may use another plan"),
              lambda i: ", ".join("DESC" if down else "ASC" for down in i.descending) or "ASC"),
    comment_attribute("key-comment"),
)  # fmt: skip
OPTIONS = (
    Attribute("table-name", lambda t: t.ref.table, _table_names, lambda t: t.ref.table),
    Attribute("table-collation", lambda t: normal_collation(t.collation),
              (_COSMETIC, "columns added later get another collation"), lambda t: t.collation),
    Attribute("sharding", sharding, (_COSMETIC, "row ids are spread otherwise"), lambda t: sharding(t) or None),
    comment_attribute("comment"),
)  # fmt: skip
PARTITIONED = Attribute(
    "partitioning", lambda t: t.partitioned, (_COSMETIC, "rows are placed otherwise"),
    _word("partitioned", "not partitioned", "partitioned"),
)  # fmt: skip
ENGINE = Attribute(
    "engine", lambda t: (t.engine or "").casefold(), (_COSMETIC, ""), lambda t: t.engine, "engine "
)  # fmt: skip
FOREIGN_KEY = tuple(
    Attribute(f"foreign-key-{name.replace('_', '-')}", itemgetter(name),
              (_LOSES, "other child rows go or stay"), itemgetter(name), f"{words} ")
    for name, words in (("on_delete", "ON DELETE"), ("on_update", "ON UPDATE"))
)  # fmt: skip
CHECK = (
    Attribute("check-enforced", lambda c: c.enforced, (_LOSES, "other rows are refused"),
              _word("ENFORCED", "NOT ENFORCED", "enforced")),
    Attribute("check", None, _grouping, lambda c: c.clause, None),
)  # fmt: skip
PARTITIONING = tuple(
    Attribute(f"partition-{name.replace('_', '-')}", itemgetter(name),
              (_COSMETIC, "rows are placed otherwise"),
              _filled(name), f"partitions: {name.replace('_', ' ')} ")
    for name in ("method", "expression", "sub_method", "sub_expression", "sub_count")
)  # fmt: skip

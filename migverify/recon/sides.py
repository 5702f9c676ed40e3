"""A dataset with its columns known: what every kind of rule builds its relations from.

A side is one dataset, part by part. A slot is a column of the rule on all parts of all sides, with the one canonical
text that they share. Refusals name file, rule and line.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from migverify.db.server_state import ServerIdentity
from migverify.errors import ConfigError, ReadError, UsageError
from migverify.model import ColumnDef, Flavor, Lane
from migverify.recon.describe import Describe, Described
from migverify.recon.model import (
    ChangesPart,
    Dataset,
    FilePart,
    ParameterValue,
    Part,
    QueryPart,
    RulePlace,
    TablePart,
    Window,
)
from migverify.recon.parameters import bind
from migverify.recon.relation import ChangeRead, Cut, FileRead, SqlRead
from migverify.sql import recon as sql
from migverify.sql import union_text
from migverify.sql.canonical import FAMILIES
from migverify.sql.key_range import KeyColumn
from migverify.sql.quoting import quote_name
from migverify.sql.union_text import Unified
from migverify.tables.tasks import ReadColumn

CHANGE_COLUMNS: dict[str, ColumnDef] = {
    "_op": union_text.TEXT, "_gtid": union_text.TEXT, "_file": union_text.TEXT,
    "_position": ColumnDef("_position", 0, "bigint", "bigint", False),
    "_time": ColumnDef("_time", 0, "datetime", "datetime(6)", False, fsp=6),
}  # fmt: skip
"""What a change has besides the columns of its table."""
BEFORE = "_before."


@dataclass(frozen=True, slots=True)
class Column:
    """A column of one part: its type, and the SQL of its value (a quoted name, or an expression)."""

    definition: ColumnDef
    sql: str
    mapped: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class OpenPart:
    """One part of a dataset.

    ``columns`` is empty where they are not known before they are read (files, binlog files). ``where`` holds the
    condition of the window, ``base`` all but that.
    """

    part: Part
    table: str = ""
    where: str = ""
    base: str = ""
    columns: Mapping[str, Column] = field(default_factory=dict)
    described: Described | None = None

    @property
    def is_known(self) -> bool:
        """Whether the columns are known."""
        return bool(self.columns)


@dataclass(frozen=True, slots=True)
class DatasetSide:
    """A dataset whose parts are described; ``window`` are the UTC texts of its bounds."""

    dataset: Dataset
    parts: tuple[OpenPart, ...]
    window: tuple[str, str] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Columns that every described part has, in the order of the first."""
        known = [part for part in self.parts if part.is_known]
        return tuple(n for n in known[0].columns if all(n in part.columns for part in known)) if known else ()

    @property
    def is_known(self) -> bool:
        """Whether the columns of every part are known."""
        return all(part.is_known for part in self.parts)


@dataclass(frozen=True, slots=True)
class Slot:
    """A column of a rule, by its name on each side (None: this side has none), and the text both share."""

    names: tuple[str | None, ...]
    unified: Unified

    def definition(self, side: int) -> ColumnDef:
        """Return the column as messages and engines know it on one side."""
        name = self.names[side] or next(n for n in self.names if n is not None)
        return replace(self.unified.widest, name=name)

    @property
    def read_column(self) -> ReadColumn:
        """Return how two texts of the column are compared; see ``migverify.tables.values.same_value``."""
        lane = Lane.EXACT if self.unified.compare == "text" else Lane.VALUE
        name = next(n for n in self.names if n is not None)
        return ReadColumn(name, self.unified.family, lane, self.unified.compare, self.unified.binary)


def read_column_of(column: ColumnDef) -> ReadColumn:
    """Return how two texts of a made column (a measure) are compared: exactly."""
    return ReadColumn(column.name, FAMILIES.get(column.data_type, "text"), Lane.EXACT, "text", binary=False)


@dataclass(frozen=True, slots=True)
class RuleRefusal:
    """Makes the errors of one rule: they name file, line and rule."""

    place: RulePlace
    rule: str

    def error(self, message: str, hint: str = "") -> ConfigError:
        """Return the error."""
        return ConfigError(f"{self.place}: rule {self.rule}: {message}", hint=hint)

    def unknown(self, name: str, side: DatasetSide, known: Sequence[str]) -> ConfigError:
        """Return the error of a column that is not there."""
        close = difflib.get_close_matches(name, known, 1)
        hint = f"Did you mean {close[0]}? " if close else ""
        return self.error(
            f"dataset {side.dataset.name} ({side.dataset.place}) has no column {name}",
            f"{hint}It has {', '.join(known[:30])}{' ...' if len(known) > 30 else ''}.",
        )


def open_side(
    dataset: Dataset,
    refusal: RuleRefusal,
    describe: Describe,
    values: Mapping[str, ParameterValue],
    window: Window | None,
) -> DatasetSide:
    """Describe all parts of a dataset.

    Raises ConfigError: a table or column is not there, or a type is not known; names file, line and rule.
    """
    if not dataset.parts:
        raise refusal.error(f"dataset {dataset.name} ({dataset.place}) has no parts")
    # A change bears the time of its commit; rows of a table need a time column.
    cuts = dataset.time is not None or any(isinstance(part, ChangesPart) for part in dataset.parts)
    bounds = (_moment(window.start), _moment(window.end)) if window is not None and cuts else None
    try:
        parts = tuple(_open_part(dataset, part, describe, values, bounds) for part in dataset.parts)
    except (ConfigError, UsageError) as error:
        raise refusal.error(f"dataset {dataset.name} ({dataset.place}): {error.message}", error.hint) from error
    side = DatasetSide(dataset, parts, bounds)
    for name, _ in dataset.values:
        if side.is_known and name not in side.names:
            raise refusal.unknown(name, side, side.names)
    if dataset.time is not None and side.is_known:
        for part in parts:
            if dataset.time not in part.columns and not isinstance(part.part, ChangesPart):
                raise refusal.unknown(dataset.time, side, side.names)
    return side


def refuse_same_table(source: DatasetSide, target: DatasetSide, refusal: RuleRefusal) -> None:
    """Refuse two datasets of two endpoints that are one table of one server: they are equal, and prove nothing.

    Two datasets of one endpoint are another thing: the rule says there that it compares a table with itself.

    Raises ConfigError: names file, line, rule and both datasets.
    """
    named: dict[tuple[str, str], list[tuple[TablePart, ServerIdentity]]] = {}
    for part, server in _tables(target):
        named.setdefault((part.database, part.table), []).append((part, server))
    for part, server in _tables(source):
        for other, its in named.get((part.database, part.table), ()):
            if part.endpoint != other.endpoint and server.is_same_server(its):
                raise refusal.error(
                    f"datasets {source.dataset.name} and {target.dataset.name} are one table, {part.database}."
                    f"{part.table}: {part.endpoint} and {other.endpoint} are the same server, and equal by nature",
                    "Correct the url of one of them in migverify.yaml.",
                )


def _tables(side: DatasetSide) -> Iterator[tuple[TablePart, ServerIdentity]]:
    for one in side.parts:
        if isinstance(one.part, TablePart) and one.described is not None and one.described.server is not None:
            yield one.part, one.described.server


def _moment(moment: object) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S.%f}"


def _open_part(
    dataset: Dataset, part: Part, describe: Describe, values: Mapping[str, ParameterValue],
    bounds: tuple[str, str] | None,
) -> OpenPart:  # fmt: skip
    if isinstance(part, FilePart):
        return OpenPart(part)
    if isinstance(part, ChangesPart):
        return _open_changes(dataset, part, describe)
    columns = dataset.columns
    if columns and dataset.time is not None and dataset.time not in dict(columns):
        columns = (*columns, (dataset.time, quote_name(dataset.time)))
    # A list of names takes the columns as they are.
    columns = tuple(
        (name, bind(expression, values) if expression else quote_name(name)) for name, expression in columns
    )
    text = bind(part.where if isinstance(part, TablePart) else part.sql, values)
    described = describe(part, text, columns)
    if isinstance(part, TablePart):
        table = sql.table_sql(part.database, part.table)
        where = f"({text})" if text else ""
        if columns:
            table, where = sql.mapped_sql(table, columns, text), ""
    else:
        table, where = sql.query_sql(text), ""
        if columns:
            table = sql.mapped_sql(table, columns)
    mapped = dict(dataset.values)
    known = {c.name: Column(c, _value_sql(c, described), mapped.get(c.name, ())) for c in described.columns}
    opened = OpenPart(part, table, where, where, known, described)
    if bounds is not None and dataset.time is not None and dataset.time in known:
        time = known[dataset.time]
        try:
            condition = sql.window_condition(time.sql, time.definition, *bounds)
        except ReadError as error:
            raise ConfigError(error.message, hint=error.hint) from error
        opened = replace(opened, where=sql.both(where, condition))
    return opened


def _value_sql(column: ColumnDef, described: Described) -> str:
    name = quote_name(column.name)
    is_computed = column.name not in described.plain
    return union_text.stated_scale_sql(name, column) if is_computed else name


def _open_changes(dataset: Dataset, part: ChangesPart, describe: Describe) -> OpenPart:
    renamed = _renamed(dataset)
    mapped = dict(dataset.values)
    if not part.endpoint:
        return OpenPart(part)
    described = describe(TablePart(part.endpoint, part.database, part.table), "", ())
    table = {column.name: column for column in described.columns}
    columns: dict[str, Column] = {}
    for name, source in (renamed or {name: name for name in table}).items():
        if source not in table:
            raise ConfigError(f"{part.database}.{part.table} has no column {source}")
        column = replace(table[source], name=name)
        columns[name] = Column(column, source, mapped.get(name, ()))
        columns[BEFORE + name] = Column(replace(column, nullable=True), BEFORE + source, mapped.get(name, ()))
    columns |= {name: Column(replace(made, name=name), name) for name, made in CHANGE_COLUMNS.items()}
    return OpenPart(part, columns=columns)


def _renamed(dataset: Dataset) -> dict[str, str]:
    """Return name -> column of the changed table; no expression can be computed over a change stream."""
    found = {}
    for name, expression in dataset.columns:
        text = expression.strip() or name
        plain = text[1:-1].replace("``", "`") if text[:1] == text[-1:] == "`" else text
        if not plain.replace("_", "").replace("$", "").isalnum():
            raise ConfigError(
                f"columns.{name}: {expression} is an expression, and a change stream has columns only",
                hint="Rename columns, or use `values`; compute on the other side.",
            )
        found[name] = plain
    return found


def slot(
    sides: Sequence[DatasetSide], names: Sequence[str | None], refusal: RuleRefusal, what: str, *, exact: bool = False
) -> Slot:
    """Find the text that a column has on all sides.

    ``names``: Its name on each side; None where that side does not read it. ``what``: How an error calls it: ``key``,
    ``compared column``. ``exact``: Whether equal values must have equal texts, as keys must.

    Raises ConfigError: a side has no such column, or the types have no common text.
    """
    found: list[tuple[DatasetSide, OpenPart, Column]] = []
    for side, name in zip(sides, names, strict=True):
        for part in side.parts if name is not None else ():
            if part.is_known:
                if name not in part.columns:
                    raise refusal.unknown(name or "", side, side.names or tuple(part.columns))
                found.append((side, part, part.columns[name or ""]))
    named = " = ".join(dict.fromkeys(n for n in names if n is not None))
    if any(column.mapped for *_, column in found) or not found:
        made: Unified | str = union_text.unify([union_text.TEXT])
        own = [union_text.unify([column.definition]) for *_, column in found]
        if any(isinstance(one, str) or one.compare != "text" for one in own):
            made = "`values` needs types with one text for equal values"
    else:
        made = union_text.unify([column.definition for *_, column in found])
    changes = any(isinstance(part.part, ChangesPart) for side in sides for part in side.parts)
    if not isinstance(made, str) and made.family == "float" and changes:
        made = "FLOAT and DOUBLE of a change stream have no exact common text"
    maria = any(part.described is not None and part.described.flavor is Flavor.MARIADB for _, part, _ in found)
    if not isinstance(made, str) and made.family == "float" and maria:
        made = "MariaDB has no exact text of FLOAT and DOUBLE"
    if isinstance(made, str):
        where = ", ".join(dict.fromkeys(f"{c.definition.column_type} in {s.dataset.name}" for s, _, c in found))
        raise refusal.error(f"{what} {named}: {made} ({where})", "Map one of them with `columns`, as CAST(...).")
    if exact and made.compare != "text":
        raise refusal.error(
            f"{what} {named}: {made.widest.column_type} has no one text for equal values, so it cannot be a key",
            "Map it with `columns`: CAST(... AS DECIMAL(p, s)) or AS CHAR.",
        )
    return Slot(tuple(names), made)


def text_of(column: Column, made: Unified) -> str:
    """Return the expression of a column's canonical text under a slot's common form."""
    if made.widest.data_type == "longtext" and (column.mapped or column.definition.data_type != "longtext"):
        own = union_text.unify([column.definition])
        if not isinstance(own, str) and (column.mapped or own.family not in ("text", "label", "labels")):
            text = union_text.text_sql(column.sql, column.definition, own)
            return union_text.mapped_sql(text, column.mapped) if column.mapped else text
    return union_text.text_sql(column.sql, column.definition, made)


@dataclass(frozen=True, slots=True)
class Expressions:
    """The texts of some slots on one part, and what a read of them needs to know."""

    texts: tuple[str, ...]
    strings: tuple[bool, ...]
    lookup: tuple[KeyColumn, ...]
    lost: tuple[str, ...]


def expressions(part: OpenPart, side: int, slots: Sequence[Slot]) -> Expressions:
    """Return the texts of slots on a part of a database; NULL where the side has no such column."""
    texts, lookup, lost = [], [], []
    for one in slots:
        name = one.names[side]
        if name is None:
            texts.append("NULL")
            continue
        column = part.columns[name]
        text = text_of(column, one.unified)
        texts.append(text)
        if column.mapped:
            lookup.append(KeyColumn(text, text, "text", nullable=True))
        else:
            lookup.append(sql.key_column(column.sql, column.definition, text, binary=one.unified.binary))
        packet = part.described.packet if part.described is not None else 0
        lost.append(union_text.lost_sql(column.sql, column.definition, text, packet))
    return Expressions(tuple(texts), tuple(s.unified.string for s in slots), tuple(lookup), tuple(x for x in lost if x))


def row_read(part: OpenPart, side: int, key: Sequence[Slot], values: Sequence[Slot], window: bool) -> SqlRead:
    """Return the read of the rows of a part of a database."""
    made = expressions(part, side, [*key, *values])
    described = part.described
    keys = len(key)
    return SqlRead(
        endpoint=_endpoint(part.part), table=part.table, key=made.texts[:keys], values=made.texts[keys:],
        where=part.where, cut=None if window else _cut(part), shard=part.part.shard,
        rows=-1 if window or described is None else described.rows, strings=made.strings, lookup=made.lookup[:keys],
        lost=" OR ".join(made.lost), unique=_is_unique(part, [s.names[side] for s in key]),
        row_bytes=-1 if described is None else described.row_bytes,
    )  # fmt: skip


def other_read(
    opened: OpenPart, side: DatasetSide, number: int, key: Sequence[Slot], values: Sequence[Slot]
) -> FileRead | ChangeRead:
    """Return the read of a part that is no database's."""
    part = opened.part
    names = tuple(s.names[number] or "" for s in (*key, *values))
    keys = len(key)
    if isinstance(part, FilePart):
        types = tuple(s.definition(number) for s in (*key, *values))
        return FileRead(part, names[:keys], names[keys:], types, side.dataset.time, side.window)
    if isinstance(part, ChangesPart):
        renamed, texts = _renamed(side.dataset), dict(side.dataset.values)
        sources = tuple(_source_name(name, opened, renamed) for name in names)
        mapped = {
            source.removeprefix(BEFORE): texts[name.removeprefix(BEFORE)]
            for name, source in zip(names, sources, strict=True)
            if name.removeprefix(BEFORE) in texts
        }
        return ChangeRead(part, sources[:keys], sources[keys:], side.window, mapped=tuple(mapped.items()))
    raise ValueError(f"{part} is read by SQL")


def _source_name(name: str, opened: OpenPart, renamed: Mapping[str, str]) -> str:
    if opened.is_known and name in opened.columns:
        return opened.columns[name].sql
    plain = name.removeprefix(BEFORE)
    return name.removesuffix(plain) + renamed.get(plain, plain)


def _endpoint(part: Part) -> str:
    if isinstance(part, TablePart | QueryPart):
        return part.endpoint
    raise ValueError(f"{part} is not read by SQL")


def _cut(part: OpenPart) -> Cut | None:
    return part.described.cut if part.described is not None else None


def _is_unique(part: OpenPart, names: Sequence[str | None]) -> bool:
    """Whether a unique index without NULLs forbids two rows with equal texts of these columns."""
    if part.described is None or any(n is None or part.columns[n].mapped for n in names):
        return False
    plain = part.described.plain
    key = {plain[n] for n in names if n is not None and n in plain}
    nullable = {plain[c.name] for c in part.described.columns if c.name in plain and c.nullable}
    return any(
        index.unique and index.columns and not any(index.prefixes) and None not in index.columns
        and set(index.columns) <= key and not nullable.intersection(index.columns)
        for index in part.described.indexes
    )  # fmt: skip

"""Parquet as frames of packed texts, beside what tasks read from servers.

**Texts of Parquet.** Made in Spark SQL, to be the bytes that a server makes of an equal value:

| Parquet | text |
|---|---|
| whole numbers, boolean | digits; 1 and 0 |
| decimal | all digits; as many behind the point as the column on the other side has, more only where they are not 0 |
| date | ``2026-01-31``; with `` 00:00:00`` beside a DATETIME |
| timestamp, in UTC | ``2026-01-31 12:00:00.000000``, with the other side's fraction digits, more where they are not 0 |
| string | as it is; ``0x`` and hex beside a binary column |
| binary | ``0x`` and lower-case hex; its characters beside a text column |
| float, double | refused: no text of them is exact on both sides. Write them as decimal or string |
| lists, maps, structs, intervals | refused |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from migverify.errors import ConfigError
from migverify.model import ColumnDef
from migverify.recon.relation import FileRead, Relation
from migverify.sql.canonical import FAMILIES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

_WHOLE = frozenset({"tinyint", "smallint", "int", "bigint"})
_TEXTS = frozenset({"text", "label", "labels", "json"})
_MICROSECONDS = 6


def file_frame(session: SparkSession, relation: Relation, read: FileRead, side: int, number: int) -> DataFrame:
    """Return the rows of Parquet files as a frame of ``migverify.recon.rows.SCHEMA``.

    Raises ConfigError: a column is missing, or of a type without an exact text.
    """
    where = f"dataset {relation.dataset}: {read.part.path}"
    files = session.read.parquet(read.part.path)
    types = {field.name: field.dataType for field in files.schema.fields}
    if read.window is not None and read.time is not None:
        time = _moment(_column(types, read.time, where), read.time, where)
        files = files.where((time >= F.lit(read.window[0])) & (time < F.lit(read.window[1])))
    texts = [
        _text(types, name, definition, where, aggregate=not relation.rows and place >= len(read.key))
        for place, (name, definition) in enumerate(zip((*read.key, *read.values), read.types, strict=True))
    ]
    keys, compared = len(read.key), len(read.key) + relation.compared
    carried = texts[compared:] if relation.rows else []
    values = texts[keys:compared] if relation.rows else texts[keys:]
    return files.select(
        F.lit(side).cast("tinyint").alias("side"), F.lit(number).cast("int").alias("shard"),
        packed(texts[:keys]).alias("k"), packed(values).alias("v"), packed(carried).alias("c"),
        F.lit(1).cast("bigint").alias("n"),
    )  # fmt: skip


def _text(types: Mapping[str, DataType], name: str, wanted: ColumnDef, where: str, *, aggregate: bool) -> Column:
    """Return the text of one column by its name; for what ``=`` and ``?`` mean see ``ChangeRead``."""
    if not name:
        return F.lit(None).cast("string")
    if aggregate and name.startswith("="):
        return F.lit(name[1:])
    if aggregate and name.startswith("?"):
        _column(types, name[1:], where)
        return F.when(F.col(quoted(name[1:])).isNull(), "0").otherwise("1")
    return text_of(F.col(quoted(name)), _column(types, name, where), wanted, f"{where}: column {name}")


def quoted(name: str) -> str:
    """Return a column's name as ``col`` takes it, with any character in it."""
    return "`" + name.replace("`", "``") + "`"


def packed(texts: Sequence[Column]) -> Column:
    """Return texts as one packed section; see ``migverify.sql.packed``."""
    if not texts:
        return F.lit("").cast("binary")
    fields = []
    for text in texts:
        escaped = F.replace(F.replace(text, F.lit("\x01"), F.lit("\x01\x03")), F.lit("\x00"), F.lit("\x01\x02"))
        fields.append(F.coalesce(F.concat(F.lit("="), escaped), F.lit("-")))
    return F.concat_ws("\x00", *fields).cast("binary")


def text_of(value: Column, kind: DataType, wanted: ColumnDef, where: str) -> Column:
    """Return the canonical text of a Parquet column beside a column of the type ``wanted``.

    Raises ConfigError: the type has no exact text.
    """
    name = kind.simpleString()
    family = FAMILIES.get(wanted.data_type, "text")
    scale = wanted.scale or 0 if family == "decimal" else 0
    if name in _WHOLE or name == "boolean":
        text = (value.cast("int") if name == "boolean" else value).cast("string")
        return F.concat(text, F.lit(f".{'0' * scale}")) if scale else text
    if name.startswith("decimal"):
        return _fraction(value.cast("string"), scale)
    if name == "date":
        day = F.date_format(value, "yyyy-MM-dd")
        if family != "datetime":
            return day
        fsp = wanted.fsp or 0
        return F.concat(day, F.lit(" 00:00:00" + (f".{'0' * fsp}" if fsp else "")))
    if name in ("timestamp", "timestamp_ntz"):
        micros = F.date_format(value, "yyyy-MM-dd HH:mm:ss.SSSSSS")
        return _fraction(micros, wanted.fsp or 0 if family == "datetime" else _MICROSECONDS)
    if name == "binary":
        return value.cast("string") if family in _TEXTS else F.concat(F.lit("0x"), F.lower(F.hex(value)))
    if name == "string" or name.startswith(("varchar", "char")):
        return F.concat(F.lit("0x"), F.lower(F.hex(value))) if family == "binary" else value
    raise ConfigError(
        f"{where} is {name.upper()}, which has no text that is exact on both sides",
        hint="Write it to Parquet as a decimal or a string, or leave it out of the rule.",
    )


def _fraction(text: Column, digits: int) -> Column:
    """Return a number or time with ``digits`` digits behind the point, with more only where they are not 0."""
    whole = F.regexp_extract(text, r"^([^.]*)", 1)
    rest = F.regexp_extract(text, r"\.(.*)$", 1)
    rest = F.regexp_replace(
        # By name: the function of Spark 3.5 takes no column as the length.
        F.call_function("rpad", rest, F.greatest(F.length(rest), F.lit(digits)), F.lit("0")),
        f"^(.{{{digits}}}.*?)0*$",
        "$1",
    )
    return F.when(F.length(rest) > 0, F.concat(whole, F.lit("."), rest)).otherwise(F.when(text.isNotNull(), whole))


def _moment(kind: DataType, name: str, where: str) -> Column:
    if kind.simpleString() not in ("date", "timestamp", "timestamp_ntz"):
        raise ConfigError(
            f"{where}: the time column {name} is {kind.simpleString().upper()}, so no window can be cut",
            hint="Write it to Parquet as a timestamp or a date.",
        )
    value = F.col(quoted(name))
    return F.date_format(
        value.cast("timestamp") if kind.simpleString() == "date" else value, "yyyy-MM-dd HH:mm:ss.SSSSSS"
    )


def _column(types: Mapping[str, DataType], name: str, where: str) -> DataType:
    if name not in types:
        raise ConfigError(f"{where} has no column {name}", hint=f"It has {', '.join(list(types)[:30])}.")
    return types[name]

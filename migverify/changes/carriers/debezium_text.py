"""How Debezium encodes values: a table from the encoding that a message's schema names to the value it means.

Encodings are the names of Kafka Connect's schemas (debezium.io/documentation/reference/stable/connectors/mysql.html,
"Data type mappings"). The message says what a value is; the declared or propagated column type adds length, labels,
fraction and the like, and says what a plain integer, double or string was encoded from. A zero date in a NOT NULL
column arrives as day 0, which is also 1970-01-01: that value is refused.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from migverify.changes.carriers import column_text as texts
from migverify.changes.carriers import exact_json
from migverify.changes.carriers.base import UndecodableError
from migverify.changes.carriers.column_text import ColumnType
from migverify.changes.carriers.exact_json import Json, Number
from migverify.model import Flavor

BINARY_MODES = frozenset({"bytes", "base64", "base64-url-safe", "hex"})

_SAFE_DIGITS = 15  # decimal digits that a double always gives back
_LABELED = frozenset({"enum", "set"})
_ISO = re.compile(r"(-?\d{4,}-\d{2}-\d{2})(?:T(\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?Z?)?\Z")
_SCALE = re.compile(r"-?[0-9]{1,3}\Z")
_LENGTH = re.compile(r"[0-9]{1,3}\Z")
_PROPAGATED = "__debezium.source.column."


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a column's values are encoded: Connect's type and schema name, and the column's type where it is known."""

    what: str
    type: str
    name: str
    optional: bool
    parameters: dict[str, Json] = field(repr=False)
    column: ColumnType | None
    binary: str
    flavor: Flavor
    bare: bool = False
    """The column's type came without its parameters: no length does not mean the default length."""

    @classmethod
    def of(cls, what: str, schema: Json, declared: str | None, binary: str, flavor: Flavor) -> Encoding:
        """Join what the message's schema says and what was declared."""
        found = {} if schema is None else exact_json.mapping(schema, f"the schema of {what}")
        parameters = exact_json.mapping(found.get("parameters") or {}, f"the schema of {what}")
        full = declared or _propagated(parameters)
        written = full or found.get("tidb_type")
        column = texts.parse_type(exact_json.text(written, f"the type of {what}"), flavor) if written else None
        if schema is None and column is None:
            raise UndecodableError(f"the message has no schema: state the type of {what}")
        kind, name = exact_json.text(found.get("type", ""), "type"), exact_json.text(found.get("name") or "", "name")
        optional = found.get("optional") is not False
        return cls(what, kind, name, optional, parameters, column, binary, flavor, bare=not full)

    @property
    def base(self) -> str:
        """The column's data type, empty where it is not known."""
        return "" if self.column is None else self.column.base

    def fraction(self, most: int) -> int:
        """Return the digits of the column's fraction; ``most`` is what the encoding can hold."""
        if self.column is None or (self.bare and self.column.length is None):
            raise UndecodableError(f"the fraction's digits of {self.what} are not in the message: state its type")
        digits = self.column.length or 0
        if digits > most:
            raise UndecodableError(f"{self.what} has {digits} fraction digits, and its encoding keeps {most}")
        return digits


def value_text(value: Json, encoding: Encoding) -> str | None:
    """Return the text that SELECT gives."""
    if value is None:
        return None
    if not encoding.name and not encoding.type:
        encoding = _without_schema(value, encoding)
    decode = _ENCODINGS.get(encoding.name or encoding.type)
    if decode is None:
        known = encoding.name or encoding.type
        raise UndecodableError(f"the encoding of {encoding.what}, {known[:60]!r}, is not known")
    decoded = decode(value, encoding)
    if isinstance(decoded, str):
        return decoded
    base, plain = decoded
    kind = encoding.column
    if kind is None or kind.base != base:
        kind = ColumnType(base) if kind is None else replace(kind, base=base)
    return texts.value_text(plain, kind, encoding.what, encoding.flavor)


Decoded = str | tuple[str, str | int | bytes]
"""The text itself, or a data type and a value of it as ``column_text.value_text`` takes it."""
_Decode = Callable[[Json, Encoding], Decoded]


def _integer(value: Json, encoding: Encoding) -> Decoded:
    number, base = exact_json.integer(value, encoding.what), encoding.base
    if number < 0 and encoding.type == "int64":
        if encoding.column is None:
            raise UndecodableError(f"{encoding.what} is negative: BIGINT, or BIGINT UNSIGNED as long? State its type")
        number += encoding.column.unsigned << 64
    return base if base in texts.INTEGERS or base in ("year", "bit") else "bigint", number


def _floating(value: Json, encoding: Encoding) -> Decoded:
    if not isinstance(value, Number):
        raise UndecodableError(f"{encoding.what} is no number")
    base, column = encoding.base, encoding.column
    if base in texts.FLOATS:
        return base, value.text
    if not base and encoding.type == "float":
        return "float", value.text
    if column is None or base not in texts.DECIMALS or column.length is None:
        raise UndecodableError(f"{encoding.what} is a double: DOUBLE, or a DECIMAL sent so? State its type")
    if column.length > _SAFE_DIGITS:
        raise UndecodableError(f"{encoding.what} is a DECIMAL sent as double: {_SAFE_DIGITS} digits are certain")
    return base, f"{texts.number_of(value.text, encoding.what):.{column.scale or 0}f}"


def _boolean(value: Json, encoding: Encoding) -> Decoded:
    if not isinstance(value, bool):
        raise UndecodableError(f"{encoding.what} is no boolean")
    if encoding.column is None:
        raise UndecodableError(f"{encoding.what} is a boolean: BIT(1) or TINYINT(1)? State its type")
    return ("bigint", int(value)) if encoding.base == "bit" else ("tinyint", int(value))


def _binary(value: Json, encoding: Encoding, mode: str = "base64") -> Decoded:
    return encoding.base if encoding.base in texts.BINARIES else "varbinary", _bytes(value, encoding, mode)


def _string(value: Json, encoding: Encoding) -> Decoded:
    text, base = exact_json.text(value, encoding.what), encoding.base
    # TiCDC sends binary as base64 in a string, and text as it is.
    mode = "base64" if encoding.flavor is Flavor.TIDB else encoding.binary
    if not base:
        if mode != "bytes":
            raise UndecodableError(f"{encoding.what} is a string: text, or binary in {mode}? State its type")
        return text
    if base in texts.BINARIES:
        return _binary(text, encoding, mode)
    if base == "timestamp":
        return _zoned(text, encoding)
    if base in texts.TEXTS | texts.DECIMALS | texts.INTEGERS | _LABELED or base == "json":
        return base, text
    raise UndecodableError(f"{encoding.what} is {base} and was sent as a string")


def _text_of(base: str) -> _Decode:
    return lambda value, encoding: (base, exact_json.text(value, encoding.what))


def _decimal(value: Json, encoding: Encoding) -> Decoded:
    scale = encoding.parameters.get("scale")
    if not isinstance(scale, str) or not _SCALE.match(scale):
        raise UndecodableError(f"the schema of {encoding.what} has no scale")
    return texts.unscaled_text(_bytes(value, encoding), int(scale))


def _variable_decimal(value: Json, encoding: Encoding) -> Decoded:
    parts = exact_json.mapping(value, encoding.what)
    scale = exact_json.integer(parts.get("scale"), "scale")
    return texts.unscaled_text(_bytes(parts.get("value"), encoding), scale)


def _decimal_without_schema(value: Json, encoding: Encoding) -> Decoded:
    """Tell a number from base64 (``decimal.handling.mode`` string and precise): base64 has no point and no minus."""
    text = exact_json.text(value, encoding.what)
    scale = 0 if encoding.column is None else encoding.column.scale or 0
    if "." in text or "-" in text:
        return texts.decimal_text(text)
    if scale == 0 and text.isdigit():
        raise UndecodableError(f"{encoding.what} is {text[:40]!r}: base64 or a number? Send the schema")
    return texts.unscaled_text(_bytes(text, encoding), scale)


def _bits(value: Json, encoding: Encoding) -> Decoded:
    number, length = int.from_bytes(_bytes(value, encoding), "little"), encoding.parameters.get("length")
    if encoding.column is None and isinstance(length, str) and _LENGTH.match(length):
        return texts.bit_text(number, ColumnType("bit", int(length)), encoding.what)
    return "bit", number


def _datetime(per_second: int, most: int) -> _Decode:
    """Return a reader of DATETIME as units after 1970-01-01; ``per_second`` units hold ``most`` fraction digits."""

    def decode(value: Json, encoding: Encoding) -> Decoded:
        units = _not_zero(exact_json.integer(value, encoding.what), encoding)
        return texts.datetime_text(_microseconds(units, per_second), encoding.fraction(most))

    return decode


def _time(per_second: int, most: int) -> _Decode:
    def decode(value: Json, encoding: Encoding) -> Decoded:
        units = exact_json.integer(value, encoding.what)
        return texts.time_text(_microseconds(units, per_second), encoding.fraction(most))

    return decode


def _microseconds(units: int, per_second: int) -> int:
    whole, rest = divmod(units * texts.MICROSECONDS, per_second)
    if rest:
        raise UndecodableError(f"{units} holds parts of a microsecond, which no server stores")
    return whole


def _date(value: Json, encoding: Encoding) -> Decoded:
    return texts.days_text(_not_zero(exact_json.integer(value, encoding.what), encoding))


def _year(value: Json, encoding: Encoding) -> Decoded:
    return "year", exact_json.integer(value, encoding.what)


def _not_zero(units: int, encoding: Encoding) -> int:
    if units == 0 and not encoding.optional:
        raise UndecodableError(f"{encoding.what} is 1970-01-01 in a NOT NULL column: a zero date is sent as that too")
    return units


def _zoned(value: Json, encoding: Encoding) -> Decoded:
    """TIMESTAMP: ISO text in UTC. Its digits are kept where the column's are not known: the connector pads them."""
    text = exact_json.text(value, encoding.what)
    match = _ISO.match(text)
    if match is None or match[2] is None or not text.endswith("Z"):
        raise UndecodableError(f"{text[:40]!r} is no moment in UTC")
    if text.startswith("1970-01-01T00:00:00"):
        _not_zero(0, encoding)
    unknown = encoding.column is None or (encoding.bare and encoding.column.length is None)
    digits = len(match[3] or "") if unknown else encoding.fraction(6)
    return f"{match[1]} {match[2]}{_fraction(match[3], digits)}"


def _fraction(written: str | None, digits: int) -> str:
    return texts.fraction_text(texts.fraction_of(written or ""), digits)


def _bytes(value: Json, encoding: Encoding, mode: str = "base64") -> bytes:
    if mode == "base64":
        return exact_json.base64_bytes(value, encoding.what)
    text = exact_json.text(value, encoding.what)
    try:
        if mode == "hex":
            return bytes.fromhex(text)
        if mode == "base64-url-safe":
            return base64.urlsafe_b64decode(text)
    except ValueError as error:
        raise UndecodableError(f"{encoding.what} is not {mode}") from error
    raise UndecodableError(f"{encoding.what} is binary sent as a string: state the connector's binary.handling.mode")


def _propagated(parameters: dict[str, Json]) -> str | None:
    """Return the COLUMN_TYPE that ``column.propagate.source.type`` put into the schema's parameters."""
    base = parameters.get(_PROPAGATED + "type")
    if base is None:
        return None
    name, _, rest = f"{exact_json.text(base, 'type')} ".partition(" ")
    if name.lower() in _LABELED:
        return None
    numbers = [parameters[_PROPAGATED + part] for part in ("length", "scale") if _PROPAGATED + part in parameters]
    inside = ",".join(exact_json.text(number, "length") for number in numbers)
    return f"{name}({inside}) {rest}" if inside else f"{name} {rest}"


_ENCODINGS: dict[str, _Decode] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), _integer),
    **dict.fromkeys(("float", "double"), _floating),
    "boolean": _boolean,
    "bytes": _binary,
    "string": _string,
    "decimal without schema": _decimal_without_schema,
    "org.apache.kafka.connect.data.Decimal": _decimal,
    "io.debezium.data.VariableScaleDecimal": _variable_decimal,
    "io.debezium.data.Bits": _bits,
    "io.debezium.data.Enum": _text_of("enum"),
    "io.debezium.data.EnumSet": _text_of("set"),
    "io.debezium.data.Json": _text_of("json"),
    "io.debezium.time.Year": _year,
    "io.debezium.time.Date": _date,
    "org.apache.kafka.connect.data.Date": _date,
    "io.debezium.time.Timestamp": _datetime(1000, 3),
    "org.apache.kafka.connect.data.Timestamp": _datetime(1000, 3),
    "io.debezium.time.MicroTimestamp": _datetime(texts.MICROSECONDS, 6),
    "io.debezium.time.NanoTimestamp": _datetime(1_000_000_000, 6),
    "io.debezium.time.Time": _time(1000, 3),
    "org.apache.kafka.connect.data.Time": _time(1000, 3),
    "io.debezium.time.MicroTime": _time(texts.MICROSECONDS, 6),
    "io.debezium.time.NanoTime": _time(1_000_000_000, 6),
    "io.debezium.time.ZonedTimestamp": _zoned,
}

_DEFAULTS = {
    **dict.fromkeys(texts.INTEGERS, "int64"),
    **dict.fromkeys(texts.FLOATS, "double"),
    **dict.fromkeys(texts.TEXTS | _LABELED, "string"),
    "bit": "io.debezium.data.Bits", "json": "io.debezium.data.Json", "year": "io.debezium.time.Year",
    "date": "io.debezium.time.Date", "time": "io.debezium.time.MicroTime",
    "timestamp": "io.debezium.time.ZonedTimestamp",
}  # fmt: skip
"""Data type -> what the default settings of the connector send."""


def _without_schema(value: Json, encoding: Encoding) -> Encoding:
    """Return what the declared type says of a message without schema. Which columns are NOT NULL is not known."""
    base = encoding.base
    if isinstance(value, bool):
        name = "boolean"
    elif base in texts.DECIMALS:
        name = "decimal without schema" if isinstance(value, str) else "double"
    elif base in texts.BINARIES:
        name = "bytes" if encoding.binary == "bytes" else "string"
    elif base == "datetime":  # adaptive precision: milliseconds up to 3 digits, microseconds beyond
        name = f"io.debezium.time.{'' if encoding.fraction(6) <= 3 else 'Micro'}Timestamp"
    else:
        name = _DEFAULTS.get(base, "")
    if not name:
        raise UndecodableError(f"{encoding.what}, {base}, cannot be read without a schema")
    return replace(encoding, type=name, optional=False)

"""One value of a Debezium message to the text that SELECT gives.

The schema of the message says how the value was encoded, the declared or propagated column type what it was encoded
from. Encodings are told by the names of Kafka Connect's schemas (debezium.io/documentation/reference/stable/
connectors/mysql.html, "Data type mappings"). A zero date in a NOT NULL column arrives as day 0, which is also
1970-01-01: that value is refused.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from migverify.changes.carriers import column_text as texts
from migverify.changes.carriers import exact_json
from migverify.changes.carriers.base import UndecodableError
from migverify.changes.carriers.column_text import ColumnType
from migverify.changes.carriers.exact_json import Json, Number
from migverify.model import Flavor

BINARY_MODES = frozenset({"bytes", "base64", "base64-url-safe", "hex"})

_SAFE_DIGITS = 15  # decimal digits that a double always gives back
_SIGNED = {"int8", "int16", "int32", "int64"}
_ISO = re.compile(r"(-?\d{4,})-(\d{2})-(\d{2})(?:T(\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?Z?)?\Z")
_ISO_TIME = re.compile(r"(-?\d{2,3}:\d{2}:\d{2})(?:\.(\d{1,9}))?Z?\Z")
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
        return cls(
            what,
            exact_json.text(found.get("type", ""), "type"),
            exact_json.text(found.get("name") or "", "name"),
            found.get("optional") is not False,
            parameters,
            column,
            binary,
            flavor,
            bare=not full,
        )

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
    """Return the text of one value.

    Raises
    ------
    UndecodableError
        The value does not fit its encoding, or the encoding does not tell what SELECT gives.
    """
    if value is None:
        return None
    spell = _BY_NAME.get(encoding.name)
    if spell is not None:
        return spell(value, encoding)
    if encoding.name:
        raise UndecodableError(f"the encoding of {encoding.what}, {encoding.name[:60]!r}, is not known")
    if encoding.type in _SIGNED:
        return _integer(value, encoding)
    if encoding.type in ("float", "double"):
        return _floating(value, encoding)
    if encoding.type == "boolean":
        return _boolean(value, encoding)
    if encoding.type == "bytes":
        return texts.hex_text(_bytes(value, encoding, "base64"), encoding.column)
    if encoding.type == "string":
        return _string(value, encoding)
    if not encoding.type:
        return _by_column(value, encoding)
    raise UndecodableError(f"the encoding of {encoding.what}, {encoding.type[:40]!r}, is not known")


def _integer(value: Json, encoding: Encoding) -> str:
    number = exact_json.integer(value, encoding.what)
    if encoding.base == "year":
        return texts.year_text(number)
    if number < 0 and encoding.type == "int64":
        if encoding.column is None:
            raise UndecodableError(f"{encoding.what} is negative: BIGINT, or BIGINT UNSIGNED as long? State its type")
        if encoding.column.unsigned:
            number += 1 << 64
    if encoding.base == "bit" and encoding.column is not None:
        return texts.bit_text(number, encoding.column, encoding.what)
    return texts.integer_text(number, encoding.column or ColumnType("bigint"))


def _floating(value: Json, encoding: Encoding) -> str:
    if not isinstance(value, Number):
        raise UndecodableError(f"{encoding.what} is no number")
    number = texts.number_of(value.text, encoding.what)
    base = encoding.base
    if not base and encoding.type == "float":
        base = "float"
    if base == "float":
        return texts.float_text(number, encoding.flavor, encoding.column)
    if base in texts.FLOATS:
        return texts.double_text(number, encoding.flavor, encoding.column)
    if base in texts.DECIMALS and encoding.column is not None and encoding.column.length is not None:
        if encoding.column.length > _SAFE_DIGITS:
            raise UndecodableError(f"{encoding.what} is a DECIMAL sent as double: {_SAFE_DIGITS} digits are certain")
        return f"{number:.{encoding.column.scale or 0}f}"
    raise UndecodableError(f"{encoding.what} is a double: DOUBLE, or a DECIMAL sent so? State its type")


def _boolean(value: Json, encoding: Encoding) -> str:
    if not isinstance(value, bool):
        raise UndecodableError(f"{encoding.what} is no boolean")
    if encoding.column is None:
        raise UndecodableError(f"{encoding.what} is a boolean: BIT(1) or TINYINT(1)? State its type")
    if encoding.base == "bit":
        return texts.bit_text(int(value), ColumnType("bit", 1), encoding.what)
    return texts.integer_text(int(value), encoding.column)


def _string(value: Json, encoding: Encoding) -> str:
    text = exact_json.text(value, encoding.what)
    base, column = encoding.base, encoding.column
    if encoding.flavor is Flavor.TIDB and not base:
        # TiCDC sends binary as base64 in a string, and text as it is.
        raise UndecodableError(f"{encoding.what} is a string: text, or binary in base64? State its type")
    if encoding.binary != "bytes" and not base:
        raise UndecodableError(f"{encoding.what} is a string: text, or binary in {encoding.binary}? State its type")
    if base in texts.BINARIES:
        mode = "base64" if encoding.flavor is Flavor.TIDB else encoding.binary
        return texts.hex_text(_bytes(text, encoding, mode), column)
    if base in texts.DECIMALS:
        return texts.decimal_text(text)
    if base in texts.INTEGERS and column is not None:
        return texts.integer_text(text, column)
    if base == "json":
        return texts.json_text(text, encoding.flavor)
    if base == "timestamp":
        return _zoned(text, encoding)
    if base and base not in texts.TEXTS | {"enum", "set"}:
        raise UndecodableError(f"{encoding.what} is {base} and was sent as a string")
    return text


def _decimal(value: Json, encoding: Encoding) -> str:
    scale = encoding.parameters.get("scale")
    digits = int(exact_json.text(scale, "scale")) if isinstance(scale, str) and scale.lstrip("-").isdigit() else None
    if digits is None:
        raise UndecodableError(f"the schema of {encoding.what} has no scale")
    return texts.unscaled_text(_bytes(value, encoding, "base64"), digits)


def _variable_decimal(value: Json, encoding: Encoding) -> str:
    parts = exact_json.mapping(value, encoding.what)
    return texts.unscaled_text(
        _bytes(parts.get("value"), encoding, "base64"), exact_json.integer(parts.get("scale"), "scale")
    )


def _bits(value: Json, encoding: Encoding) -> str:
    length = encoding.parameters.get("length")
    width = int(length) if isinstance(length, str) and length.isdigit() else None
    kind = ColumnType("bit", width) if encoding.column is None else encoding.column
    return texts.bit_text(int.from_bytes(_bytes(value, encoding, "base64"), "little"), kind, encoding.what)


def _moment(per_second: int, most: int) -> Callable[[Json, Encoding], str]:
    """Return a reader of DATETIME as units after 1970-01-01; ``per_second`` units hold ``most`` fraction digits."""

    def spell(value: Json, encoding: Encoding) -> str:
        units = exact_json.integer(value, encoding.what)
        _refuse_zero(units, encoding)
        return texts.datetime_text(_microseconds(units, per_second), encoding.fraction(most))

    return spell


def _duration(per_second: int, most: int) -> Callable[[Json, Encoding], str]:
    def spell(value: Json, encoding: Encoding) -> str:
        units = exact_json.integer(value, encoding.what)
        return texts.time_text(_microseconds(units, per_second), encoding.fraction(most))

    return spell


def _microseconds(units: int, per_second: int) -> int:
    if per_second <= texts.MICROSECONDS:
        return units * (texts.MICROSECONDS // per_second)
    whole, rest = divmod(units, per_second // texts.MICROSECONDS)
    if rest:
        raise UndecodableError(f"{units} holds parts of a microsecond, which no server stores")
    return whole


def _days(value: Json, encoding: Encoding) -> str:
    days = exact_json.integer(value, encoding.what)
    _refuse_zero(days, encoding)
    return texts.days_text(days)


def _refuse_zero(units: int, encoding: Encoding) -> None:
    if units == 0 and not encoding.optional:
        raise UndecodableError(f"{encoding.what} is 1970-01-01 in a NOT NULL column: a zero date is sent as that too")


def _zoned(value: Json, encoding: Encoding) -> str:
    """TIMESTAMP: ISO text in UTC. Its digits are kept where the column's are not known: the connector pads them."""
    text = exact_json.text(value, encoding.what)
    match = _ISO.match(text)
    if match is None or match[4] is None or not text.endswith("Z"):
        raise UndecodableError(f"{text[:40]!r} is no moment in UTC")
    if text.startswith("1970-01-01T00:00:00") and not encoding.optional:
        _refuse_zero(0, encoding)
    unknown = encoding.column is None or (encoding.bare and encoding.column.length is None)
    digits = len(match[5] or "") if unknown else encoding.fraction(6)
    fraction = texts.fraction_text(texts.fraction_of(match[5] or ""), digits)
    return f"{match[1]}-{match[2]}-{match[3]} {match[4]}{fraction}"


def _iso_datetime(value: Json, encoding: Encoding) -> str:
    match = _ISO.match(exact_json.text(value, encoding.what))
    if match is None or match[4] is None:
        raise UndecodableError(f"{encoding.what} is no moment")
    fraction = texts.fraction_text(texts.fraction_of(match[5] or ""), encoding.fraction(6))
    return f"{match[1]}-{match[2]}-{match[3]} {match[4]}{fraction}"


def _iso_date(value: Json, encoding: Encoding) -> str:
    match = _ISO.match(exact_json.text(value, encoding.what).removesuffix("Z"))
    if match is None or match[4] is not None:
        raise UndecodableError(f"{encoding.what} is no date")
    return match[0]


def _iso_time(value: Json, encoding: Encoding) -> str:
    match = _ISO_TIME.match(exact_json.text(value, encoding.what))
    if match is None:
        raise UndecodableError(f"{encoding.what} is no time")
    return match[1] + texts.fraction_text(texts.fraction_of(match[2] or ""), encoding.fraction(6))


def _by_column(value: Json, encoding: Encoding) -> str:
    """A message without schema: the declared type says what the default settings of the connector would send."""
    base, column = encoding.base, encoding.column
    if column is None:
        raise UndecodableError(f"the message has no schema: state the type of {encoding.what}")
    if base in texts.INTEGERS and isinstance(value, Number):
        number = exact_json.integer(value, encoding.what)
        return texts.integer_text(number + (1 << 64) if number < 0 and column.unsigned else number, column)
    if base in texts.DECIMALS and isinstance(value, str):
        return _decimal_without_schema(value, encoding, column.scale or 0)
    if isinstance(value, Number) and base in texts.FLOATS | texts.DECIMALS:
        return _floating(value, encoding)
    if base in _NUMERIC_TIMES and isinstance(value, Number):
        return _NUMERIC_TIMES[base](value, encoding)
    if isinstance(value, bool):
        return _boolean(value, encoding)
    if base == "year":
        return texts.year_text(exact_json.integer(value, encoding.what))
    if base in texts.BINARIES:
        mode = "base64" if encoding.flavor is Flavor.TIDB or encoding.binary == "bytes" else encoding.binary
        return texts.hex_text(_bytes(value, encoding, mode), column)
    if base == "bit":
        return texts.bit_text(int.from_bytes(_bytes(value, encoding, "base64"), "little"), column, encoding.what)
    if base == "json" and isinstance(value, str):
        return texts.json_text(value, encoding.flavor)
    if base == "timestamp":
        return _zoned(value, encoding)
    if base in texts.TEXTS | {"enum", "set"}:
        return exact_json.text(value, encoding.what)
    raise UndecodableError(f"{encoding.what}, {base}, cannot be read without a schema")


def _decimal_without_schema(value: str, encoding: Encoding, scale: int) -> str:
    """Tell a number from base64 (``decimal.handling.mode`` string and precise): base64 has no point and no minus."""
    if "." in value or "-" in value:
        return texts.decimal_text(value)
    if scale == 0 and value.isdigit():
        raise UndecodableError(f"{encoding.what} is {value[:40]!r}: base64 or a number? Send the schema")
    return texts.unscaled_text(_bytes(value, encoding, "base64"), scale)


def _datetime_by_precision(value: Json, encoding: Encoding) -> str:
    """DATETIME in adaptive precision: milliseconds up to 3 digits, microseconds beyond; no schema, no NOT NULL."""
    units = exact_json.integer(value, encoding.what)
    if units == 0:
        raise UndecodableError(f"{encoding.what} is 1970-01-01: a zero date is sent as that too")
    digits = encoding.fraction(6)
    return texts.datetime_text(units * 1000 if digits <= 3 else units, digits)


def _date_without_schema(value: Json, encoding: Encoding) -> str:
    days = exact_json.integer(value, encoding.what)
    if days == 0:
        raise UndecodableError(f"{encoding.what} is 1970-01-01: a zero date is sent as that too")
    return texts.days_text(days)


def _bytes(value: Json, encoding: Encoding, mode: str) -> bytes:
    text = exact_json.text(value, encoding.what)
    try:
        if mode == "hex":
            return bytes.fromhex(text)
        if mode == "base64-url-safe":
            return base64.urlsafe_b64decode(text)
        if mode == "base64":
            return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UndecodableError(f"{encoding.what} is not {mode}") from error
    raise UndecodableError(f"{encoding.what} is binary sent as a string: state the connector's binary.handling.mode")


def _propagated(parameters: dict[str, Json]) -> str | None:
    """Return the COLUMN_TYPE that ``column.propagate.source.type`` put into the schema's parameters."""
    base = parameters.get(_PROPAGATED + "type")
    if base is None:
        return None
    name, _, rest = f"{exact_json.text(base, 'type')} ".partition(" ")
    if name.upper() in ("ENUM", "SET"):
        return None
    numbers = [parameters[_PROPAGATED + part] for part in ("length", "scale") if _PROPAGATED + part in parameters]
    inside = ",".join(exact_json.text(number, "length") for number in numbers)
    return f"{name}({inside}) {rest}" if inside else f"{name} {rest}"


_NUMERIC_TIMES: dict[str, Callable[[Json, Encoding], str]] = {
    "date": _date_without_schema,
    "datetime": _datetime_by_precision,
    "time": _duration(texts.MICROSECONDS, 6),
}

_BY_NAME: dict[str, Callable[[Json, Encoding], str]] = {
    "org.apache.kafka.connect.data.Decimal": _decimal,
    "io.debezium.data.VariableScaleDecimal": _variable_decimal,
    "io.debezium.data.Bits": _bits,
    "io.debezium.data.Enum": lambda value, encoding: exact_json.text(value, encoding.what),
    "io.debezium.data.EnumSet": lambda value, encoding: exact_json.text(value, encoding.what),
    "io.debezium.data.Json": lambda value, encoding: texts.json_text(
        exact_json.text(value, encoding.what), encoding.flavor
    ),
    "io.debezium.time.Year": lambda value, encoding: texts.year_text(exact_json.integer(value, encoding.what)),
    "io.debezium.time.Date": _days,
    "org.apache.kafka.connect.data.Date": _days,
    "io.debezium.time.Timestamp": _moment(1000, 3),
    "org.apache.kafka.connect.data.Timestamp": _moment(1000, 3),
    "io.debezium.time.MicroTimestamp": _moment(texts.MICROSECONDS, 6),
    "io.debezium.time.NanoTimestamp": _moment(1_000_000_000, 6),
    "io.debezium.time.Time": _duration(1000, 3),
    "org.apache.kafka.connect.data.Time": _duration(1000, 3),
    "io.debezium.time.MicroTime": _duration(texts.MICROSECONDS, 6),
    "io.debezium.time.NanoTime": _duration(1_000_000_000, 6),
    "io.debezium.time.ZonedTimestamp": _zoned,
    "io.debezium.time.IsoDate": _iso_date,
    "io.debezium.time.IsoTimestamp": _iso_datetime,
    "io.debezium.time.IsoTime": _iso_time,
}

"""SQL text of packed reads: many rows of key and value texts in one text, which a client takes apart at memory speed.

**Packed row.** A row has sections: the texts of its key, those of its values, and others beside. Every text gets a
mark: ``-`` is NULL, ``=`` leads any other. The marked texts of a section are parted by NUL; a section ends with
``SECTION_END``, the last of a row with ``ROW_END``. In a text, NUL is written ``01 02`` and 01 is written ``01 03``. So
a packed section is injective, and its bytes sort as the tuples of texts do, NULL first.

Escaping costs MySQL a quarter of the read for each string column, and texts with such bytes are rare. So a range is
read without it, and the bytes NUL and 01 are counted: texts can only add to what the ends of fields and rows give, so
the right count proves that no text held one. The count and the last ``ROW_END`` also prove that the server did not cut
the text at max_allowed_packet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FIELD_END = b"\x00"
SECTION_END = b"\x01\x05"
ROW_END = b"\x01\x04"

_MARK = b"="
_NULL = b"-"
_ESCAPED = ((b"\x01", b"\x01\x03"), (b"\x00", b"\x01\x02"))  # in this order


@dataclass(frozen=True, slots=True)
class PackedSql:
    """What is read: ``sections`` of expressions of canonical text over ``source``, all that follows FROM.

    ``where`` is a condition on it, or empty. ``lost`` is an expression that is 0 for rows whose texts are all whole, or
    empty.
    """

    source: str
    sections: tuple[tuple[str, ...], ...]
    where: str = ""
    lost: str = ""

    @property
    def field_ends(self) -> int:
        """How many ``FIELD_END`` a row has."""
        return sum(max(len(section) - 1, 0) for section in self.sections)


def pack(texts: Sequence[bytes | None]) -> bytes:
    """Return the packed form of one section."""
    return FIELD_END.join([_NULL if text is None else _MARK + _escape(text) for text in texts])


def unpack(packed: bytes) -> tuple[bytes | None, ...]:
    """Undo ``pack``; no texts for an empty section."""
    if not packed:
        return ()
    fields = packed.split(FIELD_END)
    if b"\x01" in packed:
        fields = [_unescape(field) for field in fields]
    return tuple([None if field == _NULL else field[1:] for field in fields])


def _escape(text: bytes) -> bytes:
    for plain, written in _ESCAPED:
        text = text.replace(plain, written)
    return text


def _unescape(text: bytes) -> bytes:
    for plain, written in reversed(_ESCAPED):
        text = text.replace(written, plain)
    return text


def packed_rows_sql(read: PackedSql, condition: str = "") -> str:
    """Return the statement of one packed text: count of rows, count of rows with lost texts, rows without escapes."""
    lost = f"IFNULL(SUM({read.lost}),0)" if read.lost else "0"
    return f"SELECT COUNT(*),{lost},GROUP_CONCAT({_row(read)} SEPARATOR '') FROM {_from(read, condition)}"


def split_rows(count: int, packed: bytes | None, read: PackedSql) -> list[list[bytes]] | None:
    """Return the packed sections of rows, one list a section.

    None when a text holds the bytes 0 or 1, or the server cut the text: read the range with ``packed_stream_sql``.
    """
    sections = len(read.sections)
    if not count or packed is None:
        return None if count or packed else [[] for _ in range(sections)]
    marks = packed.count(b"\x01"), packed.count(FIELD_END)
    if marks != (sections * count, read.field_ends * count) or not packed.endswith(ROW_END):
        return None
    parts = packed.replace(ROW_END, SECTION_END).split(SECTION_END)
    if len(parts) != sections * count + 1:
        return None
    found = [parts[number:-1:sections] for number in range(sections)]
    # Marks inside of values and a text that was cut may add up to the right numbers; not in every section, though.
    for section, texts in zip(read.sections, found, strict=True):
        if b"".join(texts).count(FIELD_END) != max(0, len(section) - 1) * count:
            return None
    return found


def packed_stream_sql(read: PackedSql, condition: str = "") -> str:
    """Return the statement that streams rows: a packed section a column, escaped by the server, then ``lost`` or 0."""
    columns = [_concat(_fields(section, escaped=True)) for section in read.sections]
    return f"SELECT {','.join(columns)},{read.lost or 0} FROM {_from(read, condition)}"


def too_long_condition(read: PackedSql) -> str:
    """Return the condition of the rows of ``packed_stream_sql`` with a section longer than max_allowed_packet."""
    return " OR ".join(f"{_concat(_fields(section, escaped=True))} IS NULL" for section in read.sections)


def slices_sql(read: PackedSql, cut: str, lower: int, width: int, condition: str) -> str:
    """Return the statement that counts rows by slices of ``width`` values of the cut column.

    A row is: number of the slice from 0, rows, least and greatest value of the cut column.
    """
    # Whole numbers of up to 64 bits, signed or not: the difference is taken exactly.
    number = f"(CAST({cut} AS DECIMAL(20,0))-({lower})) DIV {width}"
    return f"SELECT {number},COUNT(*),MIN({cut}),MAX({cut}) FROM {_from(read, condition)} GROUP BY 1 ORDER BY 1"


def span_condition(cut: str, lower: int | None, upper: int | None) -> str:
    """Return the condition of a range of the cut column: lower inclusive, upper exclusive, None open; or empty."""
    parts = [f"{cut}>={lower}"] if lower is not None else []
    parts += [f"{cut}<{upper}"] if upper is not None else []
    return " AND ".join(parts)


def nulls_condition(cut: str) -> str:
    """Return the condition of the rows that are in no range."""
    return f"{cut} IS NULL"


def _row(read: PackedSql) -> str:
    parts: list[str] = []
    for number, section in enumerate(read.sections):
        end = ROW_END if number == len(read.sections) - 1 else SECTION_END
        parts += [*([_fields(section, escaped=False)] if section else []), f"'{end.decode()}'"]
    return ",".join(parts)


def _fields(texts: Sequence[str], *, escaped: bool) -> str:
    return ",'\\0',".join(_field(text, _escaped(text) if escaped else text) for text in texts)


def _field(text: str, written: str) -> str:
    # CONCAT is NULL also where the mark makes a text longer than max_allowed_packet: that must not read as NULL.
    return f"IFNULL(CONCAT('=',{written}),IF({text} IS NULL,'-',NULL))"


def _escaped(text: str) -> str:
    return f"REPLACE(REPLACE({text},'\x01','\x01\x03'),'\\0','\x01\x02')"


def _concat(fields: str) -> str:
    return f"CONCAT({fields})" if fields else "''"


def _from(read: PackedSql, condition: str) -> str:
    where = " AND ".join(f"({one})" for one in (read.where, condition) if one)
    return f"{read.source} WHERE {where}" if where else read.source

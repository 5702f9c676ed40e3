"""Is a value of the binlog the value that a server shows? Text against text, by the rules of the type table.

The binlog's text is what SELECT gives on the source, but of a FLOAT all its digits; a server's is the canonical text of
the compared column, which pads and casts (fraction digits, scale, ZEROFILL, BIT as a number). Everything else is equal
text or not equal.
"""

from __future__ import annotations

from dataclasses import replace

from migverify.tables.tasks import ReadColumn
from migverify.tables.touched import DATE_LENGTH, key_form
from migverify.tables.values import same_value, value_form

_MOMENTS = frozenset({"date", "datetime", "time"})
_NUMBERS = frozenset({"integer", "year", "bit", "decimal"})


def same_image(column: ReadColumn, image: str | None, shown: str | None) -> bool:
    """Whether a text of the binlog and a server's canonical text are one value; NULL equals only NULL.

    Parameters
    ----------
    column
        How the column is compared.
    image, shown
        The binlog's text (of a decoder that is ``exact``) and the server's.
    """
    if image is None or shown is None:
        return image is shown
    if column.family == "float":
        return _same_float(column, image, shown)
    if column.compare == "number" and column.tolerance is not None:
        return same_value(column, image, shown)
    return image_form(column, image) == shown_form(column, shown)


def image_form(column: ReadColumn, text: str | None) -> str | None:
    """Return a text of the binlog in the form that ``shown_form`` gives an equal value; not for FLOAT and DOUBLE."""
    if text is None:
        return None
    if column.binary and column.family != "binary":  # text here, bytes on the other side
        return "0x" + text.encode("utf-8", "surrogateescape").hex()
    return _form(column, text)


def shown_form(column: ReadColumn, text: str | None) -> str | None:
    """Return a server's canonical text in one form per value; not for FLOAT and DOUBLE."""
    return None if text is None else _form(column, text)


def image_literal(column: ReadColumn, text: str | None) -> str | None:
    """Return a key value of the binlog as ``migverify.sql.key_range`` takes it."""
    if text is not None and column.family == "bit" and text.startswith("0x"):
        return str(int(text, 16))
    return image_form(column, text) if column.binary else text


def _form(column: ReadColumn, text: str) -> str:
    if column.binary:
        return text
    if column.compare in ("json", "labels"):
        return value_form(column, text)
    if column.family in _NUMBERS:
        number = str(int(text, 16)) if text.startswith("0x") else text
        return value_form(replace(column, compare="number", tolerance=None), number)
    if column.family in _MOMENTS:
        short = key_form(column.family, text)
        return f"{short} 00:00:00" if column.family != "time" and len(short) == DATE_LENGTH else short
    return text


def _same_float(column: ReadColumn, image: str, shown: str) -> bool:
    try:
        ours, theirs = float(image), float(shown)
    except (ValueError, OverflowError):
        return False
    return ours == theirs or (column.compare == "number" and same_value(column, image, shown))

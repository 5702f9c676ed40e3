"""Names and texts as SQL: nothing a name or a value holds can end its quotes.

Both forms mean the same under every ``sql_mode``. A backtick quotes a name with or without ``ANSI_QUOTES``. A
backslash means two things (``NO_BACKSLASH_ESCAPES``), so text that holds one is written in hex, as is text
that is not printable ASCII: the statement then does not depend on the character set of the connection either.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from migverify.errors import UsageError

MOST_DIGITS, MOST_SCALE = 65, 30  # of a DECIMAL


def quote_name(name: str) -> str:
    """Return ``name`` as a quoted identifier: in backticks, backticks doubled.

    Parameters
    ----------
    name
        A database, table, column or index name as the catalog gives it.

    Raises
    ------
    UsageError
        The name is empty, holds U+0000 or is not valid Unicode; no server has such a name.
    """
    if not name or "\0" in name:
        raise UsageError(
            f"{name!r} cannot be the name of a database, table, column or index",
            hint="A name has at least one character and no NUL; look at where this name came from.",
        )
    _utf8(name)
    return "`" + name.replace("`", "``") + "`"


def quote_path(*names: str) -> str:
    """Return quoted names joined by dots: ``quote_path("db", "t")`` is ```db`.`t```."""
    return ".".join(quote_name(name) for name in names)


def quote_text(text: str) -> str:
    """Return ``text`` as a string literal that every ``sql_mode`` reads as the same text.

    Printable ASCII without a backslash stays readable (quotes doubled); all else is hex with the introducer
    ``_utf8mb4``, because a bare hex literal is binary.

    Raises
    ------
    UsageError
        The text holds a lone surrogate, which no UTF-8 can carry.
    """
    data = _utf8(text)
    if text.isascii() and text.isprintable() and "\\" not in text:
        return "'" + text.replace("'", "''") + "'"
    return f"_utf8mb4 0x{data.hex().upper()}"


def quote_texts(texts: Iterable[str]) -> str:
    """Return the literals of ``texts`` joined by commas, for an ``IN`` list; empty for no text."""
    return ", ".join(quote_text(text) for text in texts)


def decimal_literal(value: Decimal) -> str:
    """Return a number as a literal that a server reads as an exact number, never as a DOUBLE.

    Raises
    ------
    UsageError
        It is not finite, or has more digits than a DECIMAL holds.
    """
    text = format(value, "f") if value.is_finite() else "1" * (MOST_DIGITS + 1)  # an exponent would make it a DOUBLE
    whole, _, fraction = text.lstrip("-").partition(".")
    if len(whole.lstrip("0") + fraction) > MOST_DIGITS or len(fraction) > MOST_SCALE:
        raise UsageError(
            f"{value} is not a number of {MOST_DIGITS} digits, at most {MOST_SCALE} of them after the point"
        )
    return text


def quote_bytes(data: bytes) -> str:
    """Return ``data`` as a binary literal; ``x''`` when empty, because ``0x`` alone is not a literal."""
    return f"x'{data.hex().upper()}'"


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{text!r} is not valid Unicode and cannot be sent to a server",
            hint="Save the file this text comes from as UTF-8.",
        ) from error

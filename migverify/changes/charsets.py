"""Character sets of the server: which collation belongs to which, and bytes to text as the server converts them.

The server's tables differ from Python's codecs of like names: latin1 is cp1252 with its five holes filled, swe7 is
ASCII with Swedish letters, and where a byte sequence has no character the server gives a question mark. The tables
here were read from MySQL 9.7 and MariaDB 10.11, which agree; tests/db reads them again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from migverify.changes.charset_data import COLLATIONS, SINGLE_BYTE
from migverify.changes.multi_byte import multi_byte_decoder
from migverify.errors import ChangeError

Decode = Callable[[bytes], str]
"""Bytes of a value -> its text; UnicodeDecodeError where they are not of the character set."""


def _expand(ranges: str) -> list[int]:
    found: list[int] = []
    for part in ranges.split():
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


_CHARSET_OF = {number: charset for charset, ranges in COLLATIONS.items() for number in _expand(ranges)}


def charset_of_collation(number: int) -> str:
    """Return the server's name of a collation's character set; ``collation-N`` where it is not known.

    An unknown collation is refused by ``text_decoder``, when somebody asks for the text, and not before.
    """
    return _CHARSET_OF.get(number, f"collation-{number}")


@lru_cache
def text_decoder(charset: str) -> Decode | None:
    """Return the function that decodes a character set, or None where there is none."""
    if charset in ("utf8mb4", "utf8mb3"):
        return bytes.decode
    if charset in SINGLE_BYTE:
        return _single_byte(charset)
    if charset in _FIXED:
        return _FIXED[charset]
    return multi_byte_decoder(charset)


def _single_byte(charset: str) -> Decode:
    codec, changed = SINGLE_BYTE[charset]
    table = [bytes((i,)).decode(codec, "replace").replace("\ufffd", "?") for i in range(256)]
    for i, character in changed.items():
        table[i] = character
    mapping = "".join(table)
    if mapping[:128].encode() == bytes(range(128)):
        import codecs

        charmap = codecs.charmap_decode
        return lambda data: data.decode("ascii") if data.isascii() else charmap(data, "strict", mapping)[0]
    import codecs

    charmap = codecs.charmap_decode
    return lambda data: charmap(data, "strict", mapping)[0]


def _ucs2(data: bytes) -> str:
    """Decode two bytes a character: what UTF-16 reads as a pair of surrogates is no character of the server's."""
    text = data.decode("utf-16-be")
    if 2 * len(text) != len(data):
        raise UnicodeDecodeError("ucs2", data, 0, len(data), "surrogates are no characters of ucs2")
    return text


_FIXED: dict[str, Decode] = {
    "utf16": lambda data: data.decode("utf-16-be"),
    "ucs2": _ucs2,
    "utf16le": lambda data: data.decode("utf-16-le"),
    "utf32": lambda data: data.decode("utf-32-be"),
}


def label_text(label: bytes, charset: str) -> str:
    """Return the text of an ENUM or SET label; ``0x`` and hex where the label is binary.

    Raises
    ------
    ChangeError
        the character set is not known here.
    """
    if charset == "binary":
        return f"0x{label.hex()}"
    decode = text_decoder(charset)
    if decode is None:
        raise ChangeError(f"labels of an ENUM or SET are in the character set {charset}, which is not known here.")
    return decode(label)

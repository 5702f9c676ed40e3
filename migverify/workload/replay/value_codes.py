"""What represents a value in a history, so that histories hold no data: a hash, or a number behind a secret offset.

Columns that the workload adds to (``SET n = n + 1``) need numbers that can still be added up. Each such column has an
offset that follows from a key that is made for one run and is in memory alone: the differences between the column's
values are recorded, the values are not.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

_OFFSET_BYTES = 16
"""Far more than an integer column has: the offset hides the size of a value as well."""
_ADDS = re.compile(r"`([^`]+)` = (?:`[^`]+` \. )?`([^`]+)` [+-] \?")
_SQL_NULL = "NULL"


def value_hash(text: bytes | None) -> str:
    """Return what represents a value in a history; ``NULL`` for NULL."""
    return _SQL_NULL if text is None else hashlib.blake2b(text, digest_size=8).hexdigest()


def columns_added_to(texts: Iterable[str]) -> frozenset[str]:
    """Return the columns, in lower case, that digest texts of an UPDATE set to themselves and a literal."""
    return frozenset(
        column.lower()
        for text in texts if text.startswith("UPDATE")
        for column, added_to in _ADDS.findall(text) if column.lower() == added_to.lower()
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ValueCodes:
    """What represents the values of each column. ``key`` is the run's, empty where there is none: then all are hashed.

    ``numbers`` are the columns, in lower case, whose integers are kept as numbers behind an offset.
    """

    key: bytes = b""
    numbers: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"ValueCodes({sorted(self.numbers)})"

    def adds_up(self, column: str) -> bool:
        """Tell whether differences between values of the column are known."""
        return bool(self.key) and column in self.numbers

    def of_integer(self, column: str, value: int) -> str:
        """Return what represents an integer."""
        if not self.adds_up(column):
            return value_hash(b"%d" % value)
        offset = hashlib.blake2b(column.encode(), key=self.key, digest_size=_OFFSET_BYTES).digest()
        return str(value + int.from_bytes(offset, "big"))

    def of_text(self, column: str, text: bytes | None) -> str:
        """Return what represents anything else: never a text that could be read as a number."""
        code = value_hash(text)
        return f"x{code}" if text is not None and self.adds_up(column) else code


HASHED = ValueCodes()
"""All values are hashes."""

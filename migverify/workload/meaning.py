"""What the statements of a capture mean: digest, classification and structure, found once for all that are alike.

Statements repeat, apart from their literals. ``Digester.skeleton`` cuts literals out; two statements with one skeleton
have the same tokens, except for the values of literals and for how many stand in a list. What can depend on those, and
how it is kept apart:

- items of ORDER BY and GROUP BY: they decide the digest (``ORDER BY 1``) and the keys of the order
  (``ORDER BY FIELD(state, 'new', 'old')``). Their key is the skeleton and the text from the first BY on.
- ``b'01'``, a sign before a string (the digest), and EXPLAIN ANALYZE, which looks a few tokens ahead: the whole text.
- texts with comments inside or double quotes have no skeleton: their tokens are the key, literals left out.
- executable comments: nothing is taken from another statement.

Nothing else that is told here looks at a literal: not LIMIT's number, not the arguments of functions. (A call of
literals only, as ``IF(1, 2)``, that no server takes may share the structure of one with more arguments.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from migverify.workload.classify import Classification, classify
from migverify.workload.digest import MAX_DIGEST_LENGTH, Digest, Digester, literals_matter
from migverify.workload.lexer import DEFAULT, Dialect, Kind, Modes, has_executable_comment, narrowed, tokens
from migverify.workload.shape import Shape, shape

MEMORY_BYTES = 64 << 20

_BY = re.compile(rb"\b[bB][yY]\b")
_WHOLE = re.compile(rb"\banalyze\b|b'\x01|[+\-]\s*+'\x01", re.IGNORECASE)
_LITERAL = re.compile(r"['\"]|\b\d|\bx'", re.IGNORECASE)
_NOT_ASKED = Shape(reasons=("not asked for",))
_OBJECTS_BYTES = 1_500  # an entry beside its key and text: objects, tuples, the place in the dictionary
_ITEM_LIMIT = 65_536  # longer keys are not kept
_HOLES = {
    Kind.STRING: b"''", Kind.INTEGER: b"1", Kind.NUMBER: b"1.0", Kind.BITS: b"b''",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a statement is: its digest and normalized text, what it does, how its answer is ordered."""

    digest: str
    text: str
    classification: Classification
    shape: Shape


class Meanings:
    """Finds the meaning of statements, and remembers it by what is left without literals.

    Parameters
    ----------
    dialect
        Whose digests: ``mysql`` for the source's statements.
    unique_keys
        As for ``shape``: unique keys over columns that are NOT NULL, by table.
    shapes
        False leaves the structure out (it takes sqlglot): every shape is unknown then.
    memory
        Bytes, estimated, after which everything is forgotten and found anew.
    """

    def __init__(
        self,
        dialect: Dialect = "mysql",
        *,
        unique_keys: Mapping[str, Sequence[Sequence[str]]] | None = None,
        shapes: bool = True,
        max_digest_length: int = MAX_DIGEST_LENGTH,
        memory: int = MEMORY_BYTES,
    ) -> None:
        self.dialect = dialect
        self._unique_keys = unique_keys
        self._shapes = shapes
        self._max_digest_length = max_digest_length
        self._memory = memory
        self._by_modes: dict[Modes, _OfModes] = {}

    def meaning(self, sql: bytes, modes: Modes = DEFAULT) -> Meaning:
        """Return the meaning of a statement sent under these modes. Any bytes have one; never raises."""
        found = self._by_modes.get(modes)
        if found is None:
            digester = Digester(self.dialect, modes, max_digest_length=self._max_digest_length)
            found = _OfModes(digester, self._unique_keys, self._shapes, self._memory)
            self._by_modes[modes] = found  # a session has one of 32 sets of modes
        return found.meaning(sql)


class _OfModes:
    def __init__(
        self,
        digester: Digester,
        unique_keys: Mapping[str, Sequence[Sequence[str]]] | None,
        shapes: bool,
        memory: int,
    ) -> None:
        self.digester = digester
        self.modes = digester.modes
        self.unique_keys = unique_keys
        self.shapes = shapes
        self.memory = memory
        self.used = 0
        self.seen: dict[bytes, Meaning | None] = {}  # None: the skeleton alone does not tell

    def meaning(self, sql: bytes) -> Meaning:
        if self.modes.no_backslash_escapes and b"\\" in sql:
            return self.directly(sql)  # digests of TiDB and sqlglot know nothing of this mode
        if self.modes.charset and not sql.isascii():
            return self.directly(sql)
        skeleton = self.digester.skeleton(sql)
        if skeleton is None or (b"/*" in sql and has_executable_comment(sql)):
            return self.by_tokens(sql)
        found = self.seen.get(skeleton)
        if found is not None:
            return found
        if skeleton in self.seen:
            return self.by_key(_narrow(skeleton, sql), sql)
        made = self.directly(sql)
        if literals_matter(skeleton) or _WHOLE.search(skeleton) or _orders_by_literals(made.shape):
            self.keep(skeleton, None)
            self.keep(_narrow(skeleton, sql), made)
        else:
            self.keep(skeleton, made)
        return made

    def by_tokens(self, sql: bytes) -> Meaning:
        """Look up a text with comments or double quotes; its digest is always made anew."""
        if has_executable_comment(sql):
            return self.directly(sql)
        found_tokens = tokens(sql, "mysql", self.modes)
        key = b"\x00" + b"\x00".join(_HOLES.get(one.kind) or sql[one.start : one.end] for one in found_tokens)
        digest = self.digester.digest(sql)
        found = self.seen.get(key)
        if found is None and key not in self.seen:
            found = self.directly(sql)
            self.keep(key, None if _WHOLE.search(key) or _orders_by_literals(found.shape) else found)
        if found is None:
            return self.by_key(b"\x01" + sql, sql)
        return found if found.digest == digest.digest else Meaning(*digest, found.classification, found.shape)

    def by_key(self, key: bytes, sql: bytes) -> Meaning:
        found = self.seen.get(key)
        if found is None:
            found = self.directly(sql)
            self.keep(key, found)
        return found

    def directly(self, sql: bytes) -> Meaning:
        found = classify(sql, self.modes)
        sql = narrowed(sql, self.modes)
        digest: Digest = self.digester.digest(sql)
        structure = shape(sql, self.unique_keys, bool(found.volatile)) if self.shapes else _NOT_ASKED
        return Meaning(digest.digest, digest.text, found, structure)

    def keep(self, key: bytes, found: Meaning | None) -> None:
        if len(key) > _ITEM_LIMIT:
            return
        size = _OBJECTS_BYTES + len(key) + (2 * len(found.text) if found is not None else 0)
        if self.used + size > self.memory:
            self.seen.clear()
            self.used = 0
        self.seen[key] = found
        self.used += size


def _narrow(skeleton: bytes, sql: bytes) -> bytes:
    """Return a key that also holds the literals that matter: those behind the first BY, or all."""
    by = None if _WHOLE.search(skeleton) else _BY.search(sql)
    return b"\x01" + sql if by is None else b"\x02" + skeleton + b"\x00" + sql[by.start() :]


def _orders_by_literals(structure: Shape) -> bool:
    return any(_LITERAL.search(item) for item in structure.order_by)

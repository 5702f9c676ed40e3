"""What the statements of a capture mean: digest, classification and structure, found once for all that are alike.

Statements repeat, apart from their literals. ``Digester.skeleton`` cuts literals out; two statements with one skeleton
have the same tokens, except for the values of literals and for how many stand in a list. What can depend on those, and
how it is distinguished:

- items of ORDER BY and GROUP BY: they decide the digest (``ORDER BY 1``) and the keys of the order
  (``ORDER BY FIELD(state, 'new', 'old')``). Their key is the skeleton and the text from the first BY on.
- ``b'01'``, a sign before a string (the digest), and EXPLAIN ANALYZE, which looks a few tokens ahead: the whole text.
- texts with comments inside or double quotes have no skeleton: their tokens are the key, literals left out.
- executable comments: nothing is taken from another statement.

Nothing else here depends on a literal: not LIMIT's number, not the arguments of functions. (A call of
literals only, as ``IF(1, 2)``, that no server takes may share the structure of one with more arguments.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from migverify.sql.lexer import DEFAULT, Dialect, Modes, TokenKind, has_executable_comment, narrowed, tokens
from migverify.workload.classify import Classification, classify
from migverify.workload.digest import MAX_DIGEST_LENGTH, Digester, literals_matter
from migverify.workload.shape import Shape, shape

MEMORY_BYTES = 64 << 20

_BY = re.compile(rb"\b[bB][yY]\b")
_WHOLE = re.compile(rb"\banalyze\b|b'\x01|[+\-]\s*+'\x01", re.IGNORECASE)
_LITERAL = re.compile(r"['\"]|\b\d|\bx'", re.IGNORECASE)
_NO_SHAPE = Shape(reasons=("not requested",))
_OBJECTS_BYTES = 1_500  # an entry beside its key and text: objects, tuples, the place in the dictionary
_ITEM_LIMIT = 65_536  # longer keys are not kept
_HOLES = {
    TokenKind.STRING: b"''", TokenKind.INTEGER: b"1", TokenKind.NUMBER: b"1.0", TokenKind.BITS: b"b''",
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
        self._digesters: dict[Modes, tuple[Digester, bytes]] = {}  # with a mark that begins the keys of these modes
        self.seen: dict[bytes, Meaning | None] = {}  # None: the skeleton alone does not tell
        self.used = 0

    def meaning(self, sql: bytes, modes: Modes = DEFAULT) -> Meaning:
        """Return the meaning of a statement sent under these modes. Any bytes have one; never raises."""
        known = self._digesters.get(modes)
        if known is None:
            digester = Digester(self.dialect, modes, max_digest_length=self._max_digest_length)
            known = self._digesters[modes] = digester, bytes([len(self._digesters)])  # there are fewer than 200
        digester, mark = known
        # digests of TiDB and sqlglot know nothing of NO_BACKSLASH_ESCAPES
        if (modes.no_backslash_escapes and b"\\" in sql) or (modes.charset and not sql.isascii()):
            return self._directly(sql, digester)
        skeleton = digester.skeleton(sql)
        if skeleton is None or (b"/*" in sql and has_executable_comment(sql)):
            return self._by_tokens(sql, digester, mark)
        key = mark + skeleton
        found = self.seen.get(key)
        if found is not None:
            return found
        if key in self.seen:
            return self._by_key(mark + _narrow(skeleton, sql), sql, digester)
        made = self._directly(sql, digester)
        if literals_matter(skeleton) or _WHOLE.search(skeleton) or _orders_by_literals(made.shape):
            self._keep(key, None)
            self._keep(mark + _narrow(skeleton, sql), made)
        else:
            self._keep(key, made)
        return made

    def _by_tokens(self, sql: bytes, digester: Digester, mark: bytes) -> Meaning:
        """Look up a text with comments or double quotes; its digest is always made anew."""
        if has_executable_comment(sql):
            return self._directly(sql, digester)
        parts = (_HOLES.get(one.kind) or sql[one.start : one.end] for one in tokens(sql, "mysql", digester.modes))
        key = mark + b"\x00" + b"\x00".join(parts)
        found = self.seen.get(key)
        if found is None and key not in self.seen:
            found = self._directly(sql, digester)
            self._keep(key, None if _WHOLE.search(key) or _orders_by_literals(found.shape) else found)
        if found is None:
            return self._by_key(mark + b"\x01" + sql, sql, digester)
        digest = digester.digest(sql)
        return found if found.digest == digest.digest else Meaning(*digest, found.classification, found.shape)

    def _by_key(self, key: bytes, sql: bytes, digester: Digester) -> Meaning:
        found = self.seen.get(key)
        if found is None:
            found = self._directly(sql, digester)
            self._keep(key, found)
        return found

    def _directly(self, sql: bytes, digester: Digester) -> Meaning:
        found = classify(sql, digester.modes)
        sql = narrowed(sql, digester.modes)
        structure = shape(sql, self._unique_keys, bool(found.volatile)) if self._shapes else _NO_SHAPE
        return Meaning(*digester.digest(sql), found, structure)

    def _keep(self, key: bytes, found: Meaning | None) -> None:
        if len(key) > _ITEM_LIMIT:
            return
        size = _OBJECTS_BYTES + len(key) + (2 * len(found.text) if found is not None else 0)
        if self.used + size > self._memory:
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

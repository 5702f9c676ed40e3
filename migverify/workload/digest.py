"""Digest of a statement as MySQL or TiDB makes it: normalized text and its hash.

Statements of a workload repeat: most differ in literals only. ``Digester.skeleton`` cuts the literals out by one
expression, so that what is left can be looked up (``meaning``). Where a literal could matter to the digest (a number in
ORDER BY, the string '*' on TiDB), it stays in the skeleton or there is none.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from migverify.sql.lexer import DEFAULT, Dialect, Modes
from migverify.workload import digest_mysql, digest_tidb

TEXT_HASH = "text-sha256:"
"""Before the hash of the text, where MySQL's own hash is not known, as the number of a token is not."""

MAX_DIGEST_LENGTH = 1024

_HEAD = re.compile(rb"\s*+/\*(?![!+MT])[^*]*+\*/")
_NAME = re.compile(rb"`[\w$]++`")
# In place of literals: \x01 for one, with a quote before it for a string; \x02 for what follows it in a list, \x03
# for rows that follow a row. The expressions begin with a character, and replace by constants: both are far faster.
_NUMBER = re.compile(
    rb"[0-9](?<![\w$.@`'\"\x80-\xff].)(?:(?<=0)x[0-9a-fA-F]++|[0-9]*+(?:\.[0-9]++)?+(?:[eE][+\-]?[0-9]++)?+)"
    rb"(?![\w$.\x80-\xff'\"`])",
    re.DOTALL,
)
_LISTS = re.compile(rb",(?<=\x01,)\s*+'?\x01(?:\s*+,\s*+'?\x01)*+")
_ROWS = re.compile(rb",(?<=\x02\),)\s*+\(\s*+'?\x01\x02\)(?:\s*+,\s*+\(\s*+'?\x01\x02\))++")
_STRING = re.compile(rb"[xX]'[0-9a-fA-F]*+'|'(?:[^'\\]++|\\.|'')*+'", re.DOTALL)
_PLAIN_STRING = re.compile(rb"[xX]'[0-9a-fA-F]*+'|'(?:[^']++|'')*+'")
# Literals that matter: items of ORDER BY, bits, and a sign before what may be a string or a hexadecimal number
_MATTERS = re.compile(
    rb"[bB][yY]\b(?:\s*+\(?\s*+\x01|(?:(?!\b[lL][iI][mM][iI][tT]\b).)*?(?:,\s*+'?\x01|\x02))"
    rb"|[bB]'\x01|[+\-]\s*+'\x01",
    re.DOTALL,
)
_MARKS = re.compile(rb"[\x01-\x03]")
_OPENS = re.compile(rb"[\"#]|/\*|--")  # quoted and commented text; a number or quote in it is none


class Digest(NamedTuple):
    """The hash in hexadecimal, and the normalized text."""

    digest: str
    text: str


class Digester:
    """Makes digests of one dialect.

    Parameters
    ----------
    dialect
        ``mysql`` (9.7's digests: SHA-256 over token numbers) or ``tidb`` (SHA-256 of the text).
    modes
        The session's modes. TiDB's digests know none: they are ignored there.
    version
        MySQL's version as in executable comments, 90704 for 9.7.4: content of newer ones is dropped.
    max_digest_length
        The server's setting, bytes of tokens; TiDB does not cut.
    """

    def __init__(
        self,
        dialect: Dialect,
        modes: Modes = DEFAULT,
        *,
        version: int = digest_mysql.VERSION,
        max_digest_length: int = MAX_DIGEST_LENGTH,
    ) -> None:
        self.dialect = dialect
        self.modes = modes
        self.version = version
        self.max_digest_length = max_digest_length
        self._string = _PLAIN_STRING if modes.no_backslash_escapes and dialect == "mysql" else _STRING

    def skeleton(self, sql: bytes) -> bytes | None:
        """Return what is left without literals and a comment in front; None where that takes reading token by token.

        Statements with one skeleton have the same digest, unless ``literals_matter``.
        """
        if sql[:2] == b"/*" and (head := _HEAD.match(sql)):
            sql = sql[head.end() :]
        if _MARKS.search(sql):
            return None
        skeleton = sql
        if b"'" in sql:
            if self.dialect == "tidb" and (b"*'" in sql or b"@'" in sql):
                return None
            skeleton = self._string.sub(b"'\x01", sql)
        # Strings before the first such opening are paired rightly, so it is still there if there was one.
        if _OPENS.search(skeleton):
            return None
        if b"`" in skeleton and b"`" in _NAME.sub(b"", skeleton):
            return None
        skeleton = _NUMBER.sub(b"\x01", skeleton)
        if b"," in skeleton:
            skeleton = _LISTS.sub(b"\x02", skeleton)
            if b"\x02)" in skeleton:
                skeleton = _ROWS.sub(b"\x03", skeleton)
        return skeleton

    def digest(self, sql: bytes) -> Digest:
        """Return the digest of a statement; any bytes have one, also those the server refuses to parse."""
        if self.dialect == "tidb":
            text = digest_tidb.normalized(sql)
            return Digest(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(), text)
        raw, hashed = digest_mysql.normalized(sql, self.modes, self.version, self.max_digest_length)
        own = digest_mysql.server_digest(hashed) if hashed is not None else TEXT_HASH + hashlib.sha256(raw).hexdigest()
        return Digest(own, raw.decode("utf-8", "replace"))


def literals_matter(skeleton: bytes) -> bool:
    """Tell whether the digest may depend on a literal that the skeleton leaves out."""
    return _MATTERS.search(skeleton) is not None

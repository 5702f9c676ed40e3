"""What a statement of the binlog does: transaction control, a change of tables, a change of rows, or neither.

In a stream of row images a statement is something that has no images. Each belongs to one kind:

- ``CONTROL``: BEGIN, COMMIT, ROLLBACK, savepoints and XA; ``verb`` says which.
- ``DDL``, ``TRUNCATE``: creates, changes, renames, empties or drops tables, views, sequences or databases.
- ``HARMLESS``: can change neither the rows nor the layout of a table: accounts, grants, roles, routines, triggers (what
  they write arrives as rows), events, servers, plugins, statistics, FLUSH, and temporary tables.
- ``ROWS``: changes rows by statement (INSERT, UPDATE, LOAD DATA, CALL, CREATE TABLE ... SELECT with its SELECT). Which
  rows is not known.
- ``UNKNOWN``: none of the above; nobody may guess.

The reader of SQL here cuts tokens only, and knows comments, executable comments, strings and quoted names; a kind is
decided by the first words, and table names are read at the places where the grammar has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from migverify.sql.lexer import Modes, TokenKind, executed, fine_tokens

Name = tuple[str, str]
"""Database and table; an empty table means the whole database."""


class QueryKind(Enum):
    """What a statement does, see the module."""

    CONTROL = "control"
    DDL = "ddl"
    TRUNCATE = "truncate"
    HARMLESS = "harmless"
    ROWS = "rows"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class QueryStatement:
    """A statement's kind, and what it names.

    ``verb`` is the upper-case command: of CONTROL ``BEGIN``, ``COMMIT``, ``ROLLBACK``, ``SAVEPOINT``, ``ROLLBACK TO``,
    ``RELEASE``, ``XA START`` and so on. ``tables`` are the tables it names. ``stays_open`` says that rows and a commit
    of its own follow (CREATE TABLE ... START TRANSACTION). ``xid`` is the id of an XA command.
    """

    kind: QueryKind
    verb: str = ""
    tables: tuple[Name, ...] = ()
    stays_open: bool = False
    xid: Xid | None = None


class Xid(NamedTuple):
    """The id of an XA transaction."""

    format: int
    gtrid: bytes
    bqual: bytes

    def __str__(self) -> str:
        return f"X'{self.gtrid.hex()}',X'{self.bqual.hex()}',{self.format}"


class _Token(NamedTuple):
    text: str
    quoted: str  # the quote sign, empty for a bare word, number or sign

    def word(self) -> str:
        return "" if self.quoted else self.text.upper()


def tokens(sql: str, *, backslash: bool = True) -> Iterator[_Token]:
    """Cut a statement into words, strings, quoted names and signs, without comments.

    The text of an executable comment (``/*!40000 ... */``) counts as text: a server runs it.
    """
    modes = Modes(no_backslash_escapes=not backslash)
    data = executed(sql.encode("utf-8", "surrogatepass"), lambda opening: len(opening[0]), modes)
    for kind, start, end in fine_tokens(data, modes):
        text = data[start:end].decode("utf-8", "surrogatepass")
        quote = text[0]
        if kind is TokenKind.QUOTED:
            yield _Token(text[1:-1].replace("``", "`"), quote)
        elif kind is TokenKind.STRING:
            yield _Token(text[1:-1].replace('""', '"') if quote == '"' else text[1:-1], quote)
        elif kind is not TokenKind.HINT:
            yield _Token(text, "")


_DML = {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "CALL", "DO", "SELECT", "WITH", "VALUES", "TABLE", "HANDLER",
        "EXECUTE", "(", "IMPORT"}  # fmt: skip
_HARMLESS = {"GRANT", "REVOKE", "FLUSH", "ANALYZE", "CHECK", "INSTALL", "UNINSTALL", "KILL", "SHUTDOWN", "OPTIMIZE",
             "CACHE", "RESET"}  # fmt: skip
_HARMLESS_OBJECTS = {"USER", "ROLE", "PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "SERVER", "PACKAGE", "LIBRARY",
                     "RESOURCE", "INSTANCE", "LOGFILE", "TABLESPACE", "UNDO", "SPATIAL_REFERENCE_SYSTEM", "PREPARE",
                     "AGGREGATE"}  # fmt: skip
_DATABASE_OPTIONS = {"CHARACTER", "CHARSET", "DEFAULT", "COLLATE", "ENCRYPTION"}
_BEFORE_OBJECT = {"OR", "REPLACE", "ONLINE", "OFFLINE", "IGNORE", "UNIQUE", "FULLTEXT", "VECTOR", "JSON", "RELATIONAL",
                  "DUALITY", "MATERIALIZED"}  # fmt: skip


def classify(sql: str, database: str, *, backslash: bool = True) -> QueryStatement:
    """Say what a statement does.

    Parameters
    ----------
    sql
        One statement as the binlog holds it.
    database
        The default database of its session, for names without one.
    backslash
        Whether a backslash escapes in strings (it does not under NO_BACKSLASH_ESCAPES).
    """
    reader = _Reader(list(tokens(sql, backslash=backslash)), database)
    first = reader.take_word() or (reader.take() or _Token("", "")).text
    if first in ("BEGIN", "START"):
        whole = first == "BEGIN" or reader.accept("TRANSACTION")
        return QueryStatement(QueryKind.CONTROL, "BEGIN") if whole else QueryStatement(QueryKind.UNKNOWN, first)
    if first in ("COMMIT", "SAVEPOINT", "RELEASE"):
        return QueryStatement(QueryKind.CONTROL, first)
    if first == "ROLLBACK":
        reader.accept("WORK")
        return QueryStatement(QueryKind.CONTROL, "ROLLBACK TO" if reader.accept("TO") else "ROLLBACK")
    if first == "XA":
        return reader.xa()
    if first == "TRUNCATE":
        reader.accept("TABLE")
        return QueryStatement(QueryKind.TRUNCATE, first, reader.names(1))
    if first == "RENAME":
        return reader.rename()
    if first in ("CREATE", "DROP", "ALTER"):
        return reader.definition(first)
    if first == "REPAIR":  # may lose rows of a damaged MyISAM table
        while reader.accept("NO_WRITE_TO_BINLOG", "LOCAL", "TABLE", "TABLES"):
            pass
        return QueryStatement(QueryKind.DDL, first, reader.names())
    if first == "SET":
        allowed = reader.accept("PASSWORD", "DEFAULT", "ROLE", "RESOURCE")
        return QueryStatement(QueryKind.HARMLESS if allowed else QueryKind.UNKNOWN, first)
    if first in _DML:
        return QueryStatement(QueryKind.ROWS, first)
    return QueryStatement(QueryKind.HARMLESS if first in _HARMLESS else QueryKind.UNKNOWN, first)


class _Reader:
    """Takes tokens from the front of a statement."""

    def __init__(self, all_tokens: list[_Token], database: str) -> None:
        self.tokens = all_tokens
        self.database = database
        self.at = 0

    def peek(self) -> _Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self) -> _Token | None:
        found = self.peek()
        self.at += 1
        return found

    def take_word(self) -> str:
        found = self.peek()
        if found is None or found.quoted or not (found.text[0].isalnum() or found.text[0] == "_"):
            return ""
        self.at += 1
        return found.word()

    def accept(self, *words: str) -> bool:
        found = self.peek()
        if found is not None and found.word() in words:
            self.at += 1
            return True
        return False

    def skip_if_exists(self) -> None:
        if self.accept("IF"):
            self.accept("NOT")
            self.accept("EXISTS")

    def name(self) -> Name | None:
        """One table name, with or without its database."""
        first = self._identifier()
        if first is None:
            return None
        if self.accept("."):
            second = self._identifier()
            return None if second is None else (first, second)
        return self.database, first

    def _identifier(self) -> str | None:
        found = self.peek()
        if found is None or found.quoted == "'":
            return None
        if not found.quoted and not re.fullmatch(r"[\w$\u0080-\U0010ffff]+", found.text):
            return None
        self.at += 1
        return found.text

    def names(self, most: int = 0) -> tuple[Name, ...]:
        """A list of table names; nothing where one of them cannot be read, as a part of them would mislead."""
        found = []
        while True:
            name = self.name()
            if name is None:
                return ()
            found.append(name)
            if len(found) == most or not self.accept(","):
                return tuple(found)

    def rename(self) -> QueryStatement:
        if self.accept("USER"):
            return QueryStatement(QueryKind.HARMLESS, "RENAME")
        if not self.accept("TABLE", "TABLES"):
            return QueryStatement(QueryKind.UNKNOWN, "RENAME")
        self.skip_if_exists()
        found: list[Name] = []
        while True:
            old = self.name()
            new = self.name() if self.accept("TO") else None
            if old is None or new is None:
                return QueryStatement(QueryKind.DDL, "RENAME")
            found += [old, new]
            if not self.accept(","):
                return QueryStatement(QueryKind.DDL, "RENAME", tuple(found))

    def definition(self, verb: str) -> QueryStatement:
        """CREATE, ALTER or DROP of something."""
        while self.accept(*_BEFORE_OBJECT):
            pass
        self._skip_definer()
        temporary = self.accept("TEMPORARY")
        thing = self.take_word()
        if thing in ("TABLE", "TABLES"):
            return self._of_table(verb, temporary=temporary)
        if temporary:
            return QueryStatement(QueryKind.HARMLESS, verb)
        if thing == "INDEX":
            return QueryStatement(QueryKind.DDL, verb, self._after_on())
        if thing in ("VIEW", "SEQUENCE"):
            self.skip_if_exists()
            return QueryStatement(QueryKind.DDL, verb, self.names(0 if verb == "DROP" else 1))
        if thing in ("DATABASE", "SCHEMA"):
            self.skip_if_exists()
            named = self._identifier()
            # ALTER DATABASE without a name means the session's own.
            if verb == "ALTER" and (named or "").upper() in _DATABASE_OPTIONS:
                named = self.database
            return QueryStatement(QueryKind.DDL, verb, ((named, ""),) if named else ())
        if thing == "SPATIAL":
            return QueryStatement(
                QueryKind.HARMLESS if self.accept("REFERENCE") else QueryKind.DDL, verb, self._after_on()
            )
        return QueryStatement(
            QueryKind.HARMLESS if thing in _HARMLESS_OBJECTS else QueryKind.UNKNOWN, f"{verb} {thing}".strip()
        )

    def _skip_definer(self) -> None:
        """Skip ALGORITHM = .., DEFINER = .. and SQL SECURITY .., in front of views and routines."""
        heads = {"ALGORITHM", "DEFINER", "SQL"}
        head = self.peek()
        if head is None or head.word() not in heads:
            return
        objects = {"VIEW", "PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "AGGREGATE", "PACKAGE"}
        while (found := self.peek()) is not None and found.word() not in objects:
            self.at += 1

    def _of_table(self, verb: str, *, temporary: bool) -> QueryStatement:
        self.skip_if_exists()
        if verb == "DROP":
            found = self.names()
            return QueryStatement(QueryKind.HARMLESS if temporary else QueryKind.DDL, verb, found)
        name = self.name()
        rest = [token.word() for token in self.tokens[self.at :]]
        if verb == "CREATE":
            if temporary:
                return QueryStatement(QueryKind.HARMLESS, verb)
            if "SELECT" in rest or _is_table_copy(rest):
                return QueryStatement(QueryKind.ROWS, "CREATE TABLE ... SELECT")
            return QueryStatement(
                QueryKind.DDL, verb, (name,) if name else (), stays_open=rest[-2:] == ["START", "TRANSACTION"]
            )
        return QueryStatement(QueryKind.DDL, verb, self._altered(name))

    def _altered(self, name: Name | None) -> tuple[Name, ...]:
        """The altered table, and the ones that RENAME TO and EXCHANGE PARTITION ... WITH TABLE name."""
        if name is None:
            return ()
        found, depth = [name], 0
        while (token := self.take()) is not None:
            word = token.word()
            depth += (word == "(") - (word == ")")
            if depth:
                continue
            other = None
            if word == "RENAME":
                kept = self.at
                self.accept("TO", "AS", "=")
                following = self.peek()
                if following is not None and following.word() in ("COLUMN", "INDEX", "KEY"):
                    # A table of such a name would be quoted here or followed by nothing.
                    self.at = kept
                    continue
                other = self.name()
            elif word == "WITH" and self.accept("TABLE"):
                other = self.name()
            else:
                continue
            if other is None:
                return ()
            found.append(other)
        return tuple(dict.fromkeys(found))

    def _after_on(self) -> tuple[Name, ...]:
        while (found := self.take()) is not None:
            if found.word() == "ON":
                return self.names(1)
        return ()

    def xa(self) -> QueryStatement:
        command = self.take_word()
        verb = f"XA {'START' if command == 'BEGIN' else command}"
        if command not in ("START", "BEGIN", "END", "PREPARE", "COMMIT", "ROLLBACK"):
            return QueryStatement(QueryKind.UNKNOWN, verb)
        xid = self._xid()
        return QueryStatement(QueryKind.CONTROL if xid else QueryKind.UNKNOWN, verb, xid=xid)

    def _xid(self) -> Xid | None:
        """``X'67',X'62',1`` as servers write it, or ``'text'`` forms."""
        parts: list[bytes] = []
        number = 1
        while (found := self.take()) is not None:
            if found.text == "," and not found.quoted:
                continue
            if found.word() == "X" and (body := self.peek()) is not None and body.quoted == "'":
                self.at += 1
                try:
                    parts.append(bytes.fromhex(body.text))
                except ValueError:
                    return None
            elif found.quoted in ("'", '"') and found.quoted:
                parts.append(found.text.encode())
            elif found.word().startswith("0X"):
                parts.append(bytes.fromhex(found.text[2:]))
            elif found.text.isdigit():
                number = int(found.text)
            else:
                break
        if not 1 <= len(parts) <= 2:
            return None
        return Xid(number, parts[0], parts[1] if len(parts) == 2 else b"")


def _is_table_copy(words: list[str]) -> bool:
    """Whether CREATE TABLE goes on with TABLE t or VALUES ROW(...), the other spellings of a SELECT."""
    depth = 0
    for word, following in zip(words, [*words, ""][1:], strict=True):
        depth += (word == "(") - (word == ")")
        if depth == 0 and (word == "TABLE" or (word == "VALUES" and following == "ROW")):
            return True
    return False

"""What a session's statements say about its state: database, character set, modes, variables, transaction.

The state of a statement is the one it runs *in*. It is inferred from what was captured, so None means "not set in
what was seen": the server's default for a session seen from its connect, unknown for one that was joined midway.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from migverify.sql.lexer import FIRST_WORD, Modes, TokenKind, executed_tokens
from migverify.workload.model import Command, Record, text_of
from migverify.workload.settings import OUTSIDE, assignments, variable

_ASSIGNS = re.compile(rb":=|\binto\s*+@", re.IGNORECASE)

_COMMITS = frozenset({
    b"alter", b"analyze", b"cache", b"change", b"check", b"flush", b"grant", b"install", b"lock", b"optimize",
    b"rename", b"repair", b"reset", b"revoke", b"truncate", b"uninstall",
})  # fmt: skip
OPENS = frozenset({
    b"call", b"delete", b"do", b"handler", b"insert", b"load", b"replace", b"select", b"table", b"update", b"values",
    b"with",
})  # fmt: skip
Short: TypeAlias = Literal["end", "open", "on", "off"]
SHORT: dict[bytes, Short] = {
    b"commit": "end", b"rollback": "end", b"begin": "open", b"start transaction": "open", b"set autocommit=1": "on",
    b"set autocommit=0": "off", b"set autocommit = 1": "on", b"set autocommit = 0": "off",
}  # fmt: skip
"""Texts that are nearly half of what a connection pool sends, in lower case, and what they do."""
_LONGEST_SHORT = max(map(len, SHORT))
DEADLOCK = 1213
COLUMNS = {
    "sql_mode": "sql_mode", "time_zone": "time_zone", "character_set_client": "charset",
    "transaction_isolation": "isolation", "tx_isolation": "isolation",
}  # fmt: skip
"""Session variables that a state has a column for, and the column."""
_KEPT = ("database", "charset", "sql_mode", "time_zone", "autocommit", "isolation")
_DEFAULT_CHARSET = "default"
_UNCERTAIN = "(masked)"


@dataclass(frozen=True, slots=True)
class SessionState:
    """The state one statement runs in.

    ``rest`` is a JSON object of what has no column: ``variables`` (other session variables), ``user_variables``
    (name to the text last assigned, null where it was computed), ``temporary_tables``, ``prepared_names``,
    ``prepared_ids``, ``next_transaction``, ``unresolved`` (variables set to what the text does not show). It
    is empty when there is nothing to say.
    """

    database: str | None = None
    charset: str | None = None
    sql_mode: str | None = None
    time_zone: str | None = None
    autocommit: bool | None = None
    isolation: str | None = None
    transaction: bool = False
    rest: str = ""

    @property
    def modes(self) -> Modes:
        """How the session's statements are read; what is unknown as the servers' defaults have it."""
        return Modes.of(self.sql_mode, self.charset)

    @property
    def parts(self) -> dict[str, Any]:
        """What has no column; see ``rest``. Raises ValueError: it is no JSON."""
        return json.loads(self.rest) if self.rest else {}

    def as_json(self) -> dict[str, Any]:
        """Return what is known as a JSON object, but whether a transaction is open."""
        known = {name: getattr(self, name) for name in _KEPT if getattr(self, name) is not None}
        return known | ({"rest": self.parts} if self.rest else {})

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> SessionState:
        """Read what ``as_json`` returned."""
        rest = body.get("rest")
        known: dict[str, Any] = {name: body.get(name) for name in _KEPT}
        return cls(**known, rest=json.dumps(rest) if rest else "")


class Tracker:
    """Follows one session. ``state()`` before a record, ``apply(record)`` after it.

    Parameters
    ----------
    mask
        What becomes of the values of user variables; None keeps them.

    Attributes
    ----------
    transaction
        Is a transaction open?
    opened
        How many transactions were opened so far.
    """

    def __init__(self, mask: Callable[[bytes], bytes] | None = None) -> None:
        self._mask = mask
        self.opened = 0
        self._variants: dict[tuple[bool | None, bool], SessionState] = {}
        self._clear()
        self._database: str | None = None
        self._charset: str | None = None

    @classmethod
    def of(cls, state: SessionState) -> Tracker:
        """Return a tracker of a session that is in this state."""
        made, rest = cls(), state.parts
        known = {"charset": state.charset, "sql_mode": state.sql_mode, "time_zone": state.time_zone,
                 "isolation": state.isolation}  # fmt: skip
        made._columns = {name: value for name, value in known.items() if value is not None}
        made._database, made._autocommit, made.transaction = state.database, state.autocommit, state.transaction
        made._variables, made._user = rest.get("variables", {}), rest.get("user_variables", {})
        made._unresolved, made._next = rest.get("unresolved", {}), rest.get("next_transaction", "")
        made._tables, made._names, made._ids = (
            dict.fromkeys(rest.get(name, ())) for name in ("temporary_tables", "prepared_names", "prepared_ids")
        )
        return made

    def _clear(self) -> None:
        self._columns: dict[str, str | None] = {}
        self._autocommit: bool | None = None
        self.transaction = False
        self._variables: dict[str, str] = {}
        self._user: dict[str, str | None] = {}
        self._unresolved: dict[str, str] = {}
        self._tables: dict[str, None] = {}
        self._names: dict[str, None] = {}
        self._ids: dict[int, None] = {}
        self._next: str = ""
        self._known: SessionState | None = None
        self._variants.clear()

    def state(self, record: Record) -> SessionState:
        """Return the state ``record`` runs in; the database it names counts more than the inferred one."""
        return self.state_in(record.database)

    def state_in(self, database: str | None) -> SessionState:
        """Return the state of a record that names a database, or none."""
        if database is not None and database != self._database:
            self._database = database
            self._forget()
        if self._known is None:
            self._known = SessionState(
                self._database, self._columns.get("charset", self._charset), self._columns.get("sql_mode"),
                self._columns.get("time_zone"), self._autocommit, self._columns.get("isolation"), self.transaction,
                self._rest(),
            )  # fmt: skip
            self._variants[self._autocommit, self.transaction] = self._known
        return self._known

    def _forget(self) -> None:
        self._known = None
        self._variants.clear()

    def _turned(self) -> None:
        """Nothing but the transaction and autocommit changed: both turn often, and few states come of it."""
        self._known = self._variants.get((self._autocommit, self.transaction))

    def _rest(self) -> str:
        parts: dict[str, object] = {
            "variables": self._variables, "user_variables": self._user, "unresolved": self._unresolved,
            "temporary_tables": list(self._tables), "prepared_names": list(self._names),
            "prepared_ids": list(self._ids), "next_transaction": self._next,
        }  # fmt: skip
        parts = {name: part for name, part in parts.items() if part}
        return json.dumps(parts, ensure_ascii=False) if parts else ""

    def apply(self, record: Record) -> None:
        """Take in what a record changes. A record that failed changes nothing, except what ends a transaction."""
        if record.command in (Command.QUERY, Command.EXECUTE):
            self.apply_text(record.sql, record.errno)
            flag = record.details.get("in_transaction")
            if flag is not None and (flag == "1") != self.transaction:
                self.transaction = flag == "1"
                self.opened += self.transaction
                self._turned()
        elif not record.errno:
            self._apply_command(record)

    def _apply_command(self, record: Record) -> None:
        match record.command:
            case Command.CONNECT | Command.CHANGE_USER:
                self._clear()
                self._database = record.database or ""
                self._charset = record.details.get("charset", self._charset)
            case Command.RESET_CONNECTION:
                self._clear()  # the current database stays
            case Command.INIT_DB:
                if record.database is None and record.sql:
                    self._database = text_of(record.sql)
                self._forget()
            case Command.PREPARE if record.statement_id is not None:
                self._ids[record.statement_id] = None
                self._forget()
            case Command.CLOSE_STATEMENT if record.statement_id is not None:
                self._ids.pop(record.statement_id, None)
                self._forget()
            case _:
                pass

    def apply_text(self, sql: bytes, errno: int | None) -> None:
        """Take in what a text changes; see ``apply``."""
        failed = bool(errno)
        if len(sql) <= _LONGEST_SHORT and (short := SHORT.get(sql.lower())):
            self.apply_short(short, failed=failed)
        elif self._mask is not None and (b"\\" in sql or not sql.isascii()) and b"set" in sql.lower():
            self._unresolved[_UNCERTAIN] = ""  # a value cut out in the wrong place would not be masked
            self._forget()
        elif b";" in sql.rstrip(b"; \t\r\n"):
            for part in _statements(sql):
                self._apply_statement(part, failed=failed)
        else:
            self._apply_statement(sql, failed=failed)
        if errno == DEADLOCK:
            self._end_transaction()

    def apply_short(self, short: Short, *, failed: bool) -> None:
        """Take in what a text of ``SHORT`` changes."""
        if short == "end":
            self._end_transaction()
        elif not failed:
            if short == "open":
                self.open_transaction()
            else:
                self._set_autocommit("1" if short == "on" else "0")
                self._turned()

    def _apply_statement(self, sql: bytes, *, failed: bool) -> None:
        first = FIRST_WORD.match(sql)
        if first is None:
            return
        word = first[1].lower()
        if word in OPENS:
            if self._autocommit is False and not self.transaction and not failed:
                self.open_transaction()
            if not failed and b"@" in sql and _ASSIGNS.search(sql):
                self._assigned_in_query(_words(sql))
            return
        if word in (b"commit", b"rollback"):
            self._end_by_words(_words(sql))
        elif failed:
            return
        elif word in _COMMITS:
            self._end_transaction()
        else:
            action = getattr(self, f"_on_{word.decode().lower()}", None)
            if action is not None:
                action(_words(sql), sql)

    def open_transaction(self) -> None:
        """Begin a transaction."""
        self.transaction = True
        self.opened += 1
        self._turned()

    def _end_transaction(self) -> None:
        if self.transaction or self._next:
            self.transaction = False
            self._turned()
        if self._next:
            self._next = ""
            self._forget()

    def _end_by_words(self, found: list[_Word]) -> None:
        words = [token.word for token in found[:6]]
        if "to" in words[1:4]:  # ROLLBACK TO SAVEPOINT
            return
        self._end_transaction()
        if "chain" in words and "no" not in words:
            self.open_transaction()

    def _on_begin(self, found: list[_Word], sql: bytes) -> None:
        del found, sql
        self.open_transaction()

    def _on_start(self, found: list[_Word], sql: bytes) -> None:
        if len(found) > 1 and found[1].word == "transaction":
            self._on_begin(found, sql)
        else:  # START REPLICA, START SLAVE
            self._end_transaction()

    def _on_xa(self, found: list[_Word], sql: bytes) -> None:
        del sql
        word = found[1].word if len(found) > 1 else ""
        if word in ("start", "begin"):
            self.open_transaction()
        elif word in ("commit", "rollback", "prepare"):
            self._end_transaction()

    def _on_use(self, found: list[_Word], sql: bytes) -> None:
        del sql
        if len(found) > 1:
            self._database = _name_of(found[1])
            self._forget()

    def _on_create(self, found: list[_Word], sql: bytes) -> None:
        del sql
        words = [token.word for token in found[:6]]
        if words[1:3] != ["temporary", "table"]:
            self._end_transaction()
            return
        at = 6 if words[3:6] == ["if", "not", "exists"] else 3
        if len(found) > at:
            self._tables[_dotted(found, at)[0]] = None
            self._forget()

    def _on_drop(self, found: list[_Word], sql: bytes) -> None:
        words = [token.word for token in found[:6]]
        if words[1:2] == ["prepare"]:
            self._on_deallocate(found, sql)
            return
        if words[1:2] != ["temporary"]:
            self._end_transaction()
        at = 1 + (words[1:2] == ["temporary"])
        if words[at : at + 1] not in (["table"], ["tables"]):
            return
        at += 1
        at += 2 if words[at : at + 2] == ["if", "exists"] else 0
        while at < len(found):
            name, at = _dotted(found, at)
            self._tables.pop(name, None)
            at += 1  # the comma
        self._forget()

    def _on_prepare(self, found: list[_Word], sql: bytes) -> None:
        del sql
        if len(found) > 1:
            self._names[_name_of(found[1])] = None
            self._forget()

    def _on_deallocate(self, found: list[_Word], sql: bytes) -> None:
        del sql
        if len(found) > 2:
            self._names.pop(_name_of(found[2]), None)
            self._forget()

    def _on_set(self, found: list[_Word], sql: bytes) -> None:
        self._forget()
        if self._mask is not None and not self._mask(sql):
            self._unresolved[_UNCERTAIN] = ""
            return
        behind = found[1 : next((n for n, one in enumerate(found) if one.raw == b";"), len(found))]
        scope = "session"
        for written, start, end in assignments([text_of(one.raw) for one in behind]):
            scope = written or scope
            if start < end:
                self._set(behind[start:end], sql, scope, explicit=bool(written))

    def _set(self, part: list[_Word], sql: bytes, scope: str, *, explicit: bool) -> None:
        word = part[0].word
        if part[0].is_user_variable:
            if len(part) > 2:
                self._assign(part[0], sql[part[2].start : part[-1].end])
        elif word == "transaction" and not (len(part) > 1 and part[1].raw in (b"=", b":=")):
            self._set_transaction(part, sql, scope if explicit else "next")
        elif word == "names" and len(part) > 1:
            self._set_charset(part[1])
        elif word in ("character", "charset"):
            at = 2 if word == "character" else 1
            if len(part) > at:
                self._set_charset(part[at])
        elif len(part) > 2 and part[1].raw in (b"=", b":="):
            self._set_variable(part, sql, scope)

    def _set_charset(self, token: _Word) -> None:
        name = _value_of(token).lower()
        if name == _DEFAULT_CHARSET and token.is_bare:
            self._columns.pop("charset", None)
        else:
            self._columns["charset"] = name

    def _set_transaction(self, part: list[_Word], sql: bytes, scope: str) -> None:
        if scope in OUTSIDE:
            return
        words = [token.word for token in part]
        if scope == "next":
            self._next = text_of(self._masked(sql[part[0].start : part[-1].end]))
            return
        if words[1:3] == ["isolation", "level"]:
            level = [
                word for word in words[3:] if word in ("read", "committed", "uncommitted", "repeatable", "serializable")
            ]
            self._columns["isolation"] = "-".join(level[:2]).upper()
        if "only" in words or "write" in words:
            self._variables["transaction_read_only"] = "1" if "only" in words else "0"

    def _set_variable(self, part: list[_Word], sql: bytes, scope: str) -> None:
        name = part[0].word if part[0].is_bare else _name_of(part[0]).lower()
        if name.startswith("@@"):
            scope, name = variable(name)
        if scope in OUTSIDE:
            return
        value = self._resolve(part[2:], sql)
        if self._mask is not None and value is not None:
            assignment = f"SET {name} = ".encode() + sql[part[2].start : part[-1].end]
            value = value if self._mask(assignment) == assignment else None
        if name == "autocommit":
            self._set_autocommit(value)
            return
        self._unresolved.pop(name, None)
        column = COLUMNS.get(name)
        if value is None:
            self._unresolved[name] = text_of(self._masked(sql[part[2].start : part[-1].end]))
            value_text: str | None = None
        else:
            value_text = None if value.upper() == "DEFAULT" and part[2].is_bare else value
        if column is not None:
            self._columns.pop(column, None)
            if value_text is not None:
                self._columns[column] = value_text
        elif value_text is None:
            self._variables.pop(name, None)
        else:
            self._variables[name] = value_text

    def _set_autocommit(self, value: str | None) -> None:
        autocommit = {"1": True, "ON": True, "TRUE": True, "0": False, "OFF": False, "FALSE": False}.get(
            (value or "").upper()
        )
        if autocommit and not self._autocommit:
            self._end_transaction()
        self._autocommit = autocommit

    def _resolve(self, value: list[_Word], sql: bytes) -> str | None:
        """Return a value as text where the text of the statement tells it, else None."""
        if len(value) == 1:
            token = value[0]
            if token.is_quoted:
                return _value_of(token)
            if token.is_user_variable:
                return self._user.get(_user_name(token))
            name = token.word.removeprefix("@@").removeprefix("session.").removeprefix("local.")
            if token.raw.startswith(b"@@"):
                return self._current(name)
            return text_of(token.raw)
        if len(value) == 2 and value[0].raw in (b"-", b"+"):
            return text_of(sql[value[0].start : value[1].end])
        return None

    def _current(self, name: str) -> str | None:
        if name == "autocommit":
            return None if self._autocommit is None else str(int(self._autocommit))
        column = COLUMNS.get(name)
        return self._columns.get(column) if column else self._variables.get(name)

    def _assign(self, token: _Word, value: bytes) -> None:
        found = _words(value)
        resolved = self._resolve(found, value)
        if self._mask is not None and resolved is not None and found[0].raw[:2] != b"@@":
            resolved = text_of(self._mask(value)) or None
        self._user[_user_name(token)] = resolved

    def _masked(self, value: bytes) -> bytes:
        return value if self._mask is None else self._mask(value)

    def _assigned_in_query(self, found: list[_Word]) -> None:
        """``SELECT @x := ...`` and ``SELECT ... INTO @x, @y``: the values are not in the text."""
        into = False
        for token, after in zip(found, [*found[1:], None], strict=True):
            if token.is_user_variable:
                if into or (after is not None and after.raw == b":="):
                    self._user[_user_name(token)] = None
                    self._forget()
            elif token.raw != b",":
                into = token.word == "into"


class _Word(NamedTuple):
    """A token of a statement, with its text."""

    kind: TokenKind
    raw: bytes
    start: int
    end: int

    @property
    def word(self) -> str:
        """The token in lower case, as text."""
        return text_of(self.raw).lower()

    @property
    def is_user_variable(self) -> bool:
        return self.kind is TokenKind.VARIABLE and not self.raw.startswith(b"@@")

    @property
    def is_quoted(self) -> bool:
        return self.raw[:1] in (b"'", b'"', b"`")

    @property
    def is_bare(self) -> bool:
        return not (self.is_quoted or self.is_user_variable)


def _words(sql: bytes) -> list[_Word]:
    return [_Word(kind, sql[start:end], start, end) for kind, start, end in executed_tokens(sql)]


def _statements(sql: bytes) -> Iterator[bytes]:
    start = 0
    for token in executed_tokens(sql):
        if sql[token.start : token.end] == b";":
            yield sql[start : token.start]
            start = token.end
    yield sql[start:]


def _dotted(found: list[_Word], at: int) -> tuple[str, int]:
    """Return the name that begins at ``at``, with its database where it has one, and the place behind it."""
    name = _name_of(found[at])
    at += 1
    while at < len(found) and found[at].raw[:1] == b".":
        name += _name_of(found[at])
        at += 1
        if name.endswith(".") and at < len(found):
            name += _name_of(found[at])
            at += 1
    return name, at


def _name_of(token: _Word) -> str:
    """Return a name without its quotes."""
    raw = token.raw
    return text_of(raw[1:-1].replace(b"``", b"`") if raw[:1] == b"`" else raw)


def _user_name(token: _Word) -> str:
    """Return the name of a user variable, in lower case."""
    return text_of(token.raw[1:]).strip("`'\"").lower()


def _value_of(token: _Word) -> str:
    """Return the value of a text or a name."""
    raw = token.raw
    if raw[:1] in (b"'", b'"'):
        quote = raw[:1]
        body = raw[1:-1].replace(quote + quote, quote)
        return text_of(re.sub(rb"\\(.)", rb"\1", body, flags=re.DOTALL))
    return _name_of(token)

"""What a statement does: reads, writes, defines, sets, locks; its side effects; what in it is volatile.

By tokens, for every statement. It fails closed: a statement whose first word is not known, that does not end, or that
servers read in two ways (an executable comment that changes its kind) is ``unknown``, and unknown may write. A function
that is no built-in one is a possible stored function, and may write too.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from importlib import resources

from migverify.workload.lexer import DEFAULT, Kind, Modes, executed, has_executable_comment, tokens


class StatementKind(StrEnum):
    """What a statement is for. In a text of several statements, the most dangerous one's."""

    READ = "read"
    SESSION = "session"
    TRANSACTION = "transaction"
    WRITE = "write"
    DDL = "ddl"
    ADMINISTRATIVE = "administrative"
    UNKNOWN = "unknown"


_DANGER = list(StatementKind)
_MAY_WRITE = frozenset({
    StatementKind.WRITE, StatementKind.DDL, StatementKind.ADMINISTRATIVE, StatementKind.UNKNOWN,
})  # fmt: skip
_WRITING_EFFECTS = frozenset({
    "into file", "sequence", "sets last_insert_id", "stored function possible", "call", "execute",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Classification:
    """What a text does.

    ``effects`` are side effects by name; ``volatile`` the functions whose answer differs from call to call or session
    to session, in lower case; ``statements`` how many statements the text holds; ``words`` the first word of each.
    """

    kind: StatementKind
    locking: bool = False
    effects: frozenset[str] = frozenset()
    volatile: frozenset[str] = frozenset()
    statements: int = 1
    executable_comment: bool = False
    words: tuple[str, ...] = ()

    @property
    def may_write(self) -> bool:
        """Can it change data, definitions, accounts or files? True wherever it is not known that it cannot."""
        return self.kind in _MAY_WRITE or bool(self.effects & _WRITING_EFFECTS)

    def as_json(self) -> dict[str, object]:
        """Return the classification as a JSON object."""
        return {
            "kind": self.kind.value, "may_write": self.may_write, "locking": self.locking,
            "effects": sorted(self.effects), "volatile": sorted(self.volatile), "statements": self.statements,
            "executable_comment": self.executable_comment,
        }  # fmt: skip


_R, _S, _T, _W, _D, _A = (
    StatementKind.READ, StatementKind.SESSION, StatementKind.TRANSACTION, StatementKind.WRITE, StatementKind.DDL,
    StatementKind.ADMINISTRATIVE,
)  # fmt: skip
_KINDS: dict[str, StatementKind] = {
    **dict.fromkeys(("SELECT", "TABLE", "VALUES", "SHOW", "DESC", "DESCRIBE", "EXPLAIN", "HELP", "CHECKSUM", "DO",
                     "HANDLER", "TRACE"), _R),
    **dict.fromkeys(("USE", "SET", "PREPARE", "DEALLOCATE", "GET", "SIGNAL", "RESIGNAL"), _S),
    **dict.fromkeys(("BEGIN", "START", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "XA", "LOCK", "UNLOCK"), _T),
    **dict.fromkeys(("INSERT", "REPLACE", "UPDATE", "DELETE", "LOAD", "CALL", "BATCH", "EXECUTE"), _W),
    **dict.fromkeys(("CREATE", "ALTER", "DROP", "TRUNCATE", "RENAME", "RECOVER", "FLASHBACK", "SPLIT"), _D),
    **dict.fromkeys(("GRANT", "REVOKE", "FLUSH", "KILL", "ANALYZE", "OPTIMIZE", "CHECK", "REPAIR", "RESET", "PURGE",
                     "CHANGE", "STOP", "INSTALL", "UNINSTALL", "SHUTDOWN", "RESTART", "CACHE", "BINLOG", "CLONE",
                     "ADMIN", "BACKUP", "RESTORE", "IMPORT", "CANCEL"), _A),
}  # fmt: skip
_MAIN = frozenset({"SELECT", "INSERT", "REPLACE", "UPDATE", "DELETE", "TABLE", "VALUES"})
_ACCOUNTS = frozenset({"USER", "ROLE", "SERVER", "INSTANCE", "TABLESPACE", "RESOURCE", "BINDING", "PLACEMENT"})
_GLOBAL = frozenset({"GLOBAL", "PERSIST", "PERSIST_ONLY", "PASSWORD", "CONFIG", "BINDING"})
_EFFECTS = {
    "get_lock": "lock by name", "release_lock": "lock by name", "release_all_locks": "lock by name",
    "sleep": "sleep", "benchmark": "sleep", "master_pos_wait": "sleep", "source_pos_wait": "sleep",
    "wait_for_executed_gtid_set": "sleep", "nextval": "sequence", "setval": "sequence", "load_file": "reads a file",
}  # fmt: skip
_VOLATILE = frozenset({
    "now", "sysdate", "curdate", "curtime", "current_date", "current_time", "current_timestamp", "localtime",
    "localtimestamp", "utc_date", "utc_time", "utc_timestamp", "unix_timestamp", "uuid", "uuid_short", "rand",
    "random_bytes", "connection_id", "user", "current_user", "session_user", "system_user", "current_role",
    "last_insert_id", "found_rows", "row_count", "version", "database", "schema", "sleep", "benchmark", "get_lock",
    "release_lock", "release_all_locks", "is_free_lock", "is_used_lock", "nextval", "lastval", "tidb_version",
    "tidb_current_tso", "ps_current_thread_id", "load_file", "statement_digest", "icu_version",
})  # fmt: skip
_WITHOUT_PARENTHESES = frozenset({
    "current_date", "current_time", "current_timestamp", "localtime", "localtimestamp", "utc_date", "utc_time",
    "utc_timestamp", "current_user",
})  # fmt: skip
_TIED_TO_NO_ARGUMENT = frozenset({"unix_timestamp"})  # volatile without an argument only
_NO_CALL_BEHIND = frozenset({
    "INTO", "TABLE", "JOIN", "FROM", "AS", "INDEX", "KEY", "REFERENCES", "UPDATE", "EXISTS", "VIEW", "WITH",
    "RECURSIVE", "CONSTRAINT", "PROCEDURE", "FUNCTION", "ON", "IGNORE",
})  # fmt: skip


@lru_cache(maxsize=1)
def _functions() -> frozenset[str]:
    data = json.loads(resources.files("migverify.workload").joinpath("data/functions.json").read_text())
    keywords = json.loads(resources.files("migverify.workload").joinpath("data/mysql-9.7.json").read_text())["words"]
    return frozenset(data["mysql"]) | frozenset(data["tidb"]) | frozenset(word.lower() for word in keywords)


def classify(sql: bytes, modes: Modes = DEFAULT) -> Classification:
    """Return what a text does, by its tokens. Never raises: what cannot be told is ``unknown``."""
    if not has_executable_comment(sql):
        return _classify(sql, modes, executable=False)
    readings = [_classify(text, modes, executable=True) for text in _readings(sql)]
    opened = readings[0]
    kinds = {one.kind for one in readings if one.words}
    # One server may write where another reads: then no reading may be trusted.
    unsure = len(kinds) > 1 and not kinds.isdisjoint(_MAY_WRITE)
    return replace(
        opened,
        kind=StatementKind.UNKNOWN if unsure or len(readings) > 1 << _MOST_COMMENTS else opened.kind,
        locking=any(one.locking for one in readings),
        effects=frozenset[str]().union(*(one.effects for one in readings)),
        volatile=frozenset[str]().union(*(one.volatile for one in readings)),
    )


_MOST_COMMENTS = 4
"""Up to so many executable comments each combination is read; a text with more versions than that is unknown."""


def _readings(sql: bytes) -> list[bytes]:
    """Return the text as servers may read it: every executable comment run first, then every other combination.

    Comments that bear the same version run together or not at all.
    """
    openings: list[bytes] = []

    def note(match: re.Match[bytes]) -> int:
        if match[0] not in openings:
            openings.append(match[0])
        return len(match[0])

    whole = executed(sql, note)
    if len(openings) > _MOST_COMMENTS:
        return [whole] * ((1 << _MOST_COMMENTS) + 1)  # unknown
    found = [whole]
    for chosen in range((1 << len(openings)) - 1):
        runs = {opening for number, opening in enumerate(openings) if chosen >> number & 1}
        found.append(executed(sql, lambda match, runs=runs: len(match[0]) if match[0] in runs else None))  # type: ignore[misc]
    return found


def _classify(sql: bytes, modes: Modes, *, executable: bool) -> Classification:
    statement: list[tuple[int, str]] = []
    found: list[Classification] = []
    open_end = False
    for token in tokens(sql, "mysql", modes):
        raw = sql[token.start : token.end]
        if token.kind == Kind.OPEN:
            open_end = True
            break
        if token.kind == Kind.OPERATOR and raw == b";" and not _in_body(statement):
            if statement:
                found.append(_one(statement))
            statement = []
        else:
            text = raw.decode("latin-1")
            statement.append((int(token.kind), text.upper() if token.kind == Kind.WORD else text))
    if statement:
        found.append(_one(statement))
    known = found and not open_end
    kind = max((one.kind for one in found), key=_DANGER.index) if known else StatementKind.UNKNOWN
    effects = frozenset[str]().union(*(one.effects for one in found))
    return Classification(
        kind=kind,
        locking=any(one.locking for one in found),
        effects=effects | {"several statements"} if len(found) > 1 else effects,
        volatile=frozenset[str]().union(*(one.volatile for one in found)),
        statements=len(found),
        executable_comment=executable,
        words=tuple(word for one in found for word in one.words),
    )


def _in_body(statement: list[tuple[int, str]]) -> bool:
    """Tell whether a semicolon here is one inside the body of a stored program."""
    return bool(statement) and statement[0][1] in ("CREATE", "ALTER") and (Kind.WORD, "BEGIN") in statement


def _one(found: list[tuple[int, str]]) -> Classification:
    words = [text if kind == Kind.WORD else "" for kind, text in found]
    first, at = _first(found, words)
    kind = _kind(first, at, found, words)
    locking = kind is _R and _locks(words)
    effects, volatile = _effects(found, words, first)
    return Classification(kind, locking, effects, volatile, words=(first,))


def _first(found: list[tuple[int, str]], words: list[str]) -> tuple[str, int]:
    """Return the word that decides: behind opening parentheses, WITH clauses and EXPLAIN ANALYZE."""
    at = 0
    while at < len(found) and found[at][1] == "(":
        at += 1
    first = words[at] if at < len(found) else ""
    if first in ("EXPLAIN", "DESC", "DESCRIBE") and "ANALYZE" in words[at + 1 : at + 7]:
        at = words.index("ANALYZE", at) + 1
        while at < len(found) and (found[at][1] in ("(", "=") or words[at] in ("FORMAT", "TREE", "JSON", "TRADITIONAL")
                                   or found[at][0] == Kind.STRING):  # fmt: skip
            at += 1
        first = words[at] if at < len(found) else ""
    elif first == "TRACE":
        at = next((place for place in range(at + 1, len(found)) if words[place] in _KINDS), len(found))
        first = words[at] if at < len(found) else ""
    if first == "WITH":
        depth = 0
        for place in range(at, len(found)):
            depth += (found[place][1] == "(") - (found[place][1] == ")")
            if depth <= 0 and words[place] in _MAIN and found[place - 1][1] == ")":
                return words[place], place
        return "", at
    return first, at


def _kind(first: str, at: int, found: list[tuple[int, str]], words: list[str]) -> StatementKind:
    kind = _KINDS.get(first, StatementKind.UNKNOWN)
    following = words[at + 1] if at + 1 < len(words) else ""
    if first == "SET":
        settings = any(
            (one in _GLOBAL and (place == 1 or found[place - 1][1] == ","))
            for place, one in enumerate(words[at:], at)
        ) or any(
            token == Kind.VARIABLE and text[:9].lower().startswith(("@@global.", "@@persist"))
            for token, text in found[at:]
        )  # fmt: skip
        if settings or (following == "DEFAULT" and "ROLE" in words):
            return _A
        return _T if following == "TRANSACTION" else kind
    if first == "START" and following != "TRANSACTION":
        return _A
    if first == "LOCK" and following == "INSTANCE":
        return _A
    if kind is _D and following in _ACCOUNTS:
        return _A
    if first == "EXECUTE":
        return StatementKind.UNKNOWN  # what was prepared decides
    return kind


def _locks(words: list[str]) -> bool:
    for place, word in enumerate(words[:-1]):
        after = words[place + 1]
        if word == "FOR" and after in ("UPDATE", "SHARE"):
            return True
        if word == "LOCK" and after == "IN":
            return True
    return False


def _effects(found: list[tuple[int, str]], words: list[str], first: str) -> tuple[frozenset[str], frozenset[str]]:
    effects: set[str] = set()
    volatile: set[str] = set()
    if first in ("CALL", "EXECUTE", "PREPARE"):
        effects.add(first.lower())
    for place, (kind, text) in enumerate(found):
        after = found[place + 1][1] if place + 1 < len(found) else ""
        if text == ":=" and kind == Kind.OPERATOR:
            effects.add("user variable")
        elif kind == Kind.VARIABLE:
            if text[1:2] != "@" and ((first == "SET" and after == "=") or (place and words[place - 1] == "INTO")):
                effects.add("user variable")
        elif text == "INTO" and kind == Kind.WORD and after in ("OUTFILE", "DUMPFILE"):
            effects.add("into file")
        elif text == "NEXT" and after == "VALUE" and kind == Kind.WORD:
            effects.add("sequence")
        elif kind in (Kind.WORD, Kind.NAMES, Kind.QUOTED) and after == "(":
            _call(text.lower(), kind, place, found, words, effects, volatile)
        elif kind == Kind.WORD and text.lower() in _WITHOUT_PARENTHESES:
            volatile.add(text.lower())
    return frozenset(effects), frozenset(volatile)


def _call(
    name: str,
    kind: int,
    place: int,
    found: list[tuple[int, str]],
    words: list[str],
    effects: set[str],
    volatile: set[str],
) -> None:
    empty = found[place + 2][1] == ")" if place + 2 < len(found) else True
    before = words[place - 1] if place else ""
    if kind == Kind.WORD and name in _functions():
        if name in _VOLATILE and not (name in _TIED_TO_NO_ARGUMENT and not empty):
            volatile.add(name)
        if name in _EFFECTS:
            effects.add(_EFFECTS[name])
        if name == "last_insert_id" and not empty:
            effects.add("sets last_insert_id")
    elif before not in _NO_CALL_BEHIND and words[0] not in ("CREATE", "ALTER", "DROP", "CALL", "GRANT"):
        effects.add("stored function possible")

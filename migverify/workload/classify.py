"""What a statement does: reads, writes, defines, sets, locks; its side effects; what in it is volatile.

By tokens, for every statement. It fails closed: a statement whose first word or form is not known, that does not end,
or that servers read in two ways (an executable comment that changes its kind) is ``unknown``, and unknown may write. A
function that is no built-in one is a possible stored function, and may write too.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from importlib import resources
from itertools import pairwise

from migverify.sql.lexer import DEFAULT, Modes, TokenKind, executed, has_executable_comment, tokens
from migverify.workload.settings import SCOPES, assignments


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
                     "TRACE"), _R),
    **dict.fromkeys(("USE", "SET", "PREPARE", "DEALLOCATE", "GET", "SIGNAL", "RESIGNAL"), _S),
    **dict.fromkeys(("BEGIN", "START", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "XA", "LOCK", "UNLOCK",
                     "HANDLER"), _T),
    **dict.fromkeys(("INSERT", "REPLACE", "UPDATE", "DELETE", "LOAD", "CALL", "BATCH", "EXECUTE"), _W),
    **dict.fromkeys(("CREATE", "ALTER", "DROP", "TRUNCATE", "RENAME", "RECOVER", "FLASHBACK", "SPLIT"), _D),
    **dict.fromkeys(("GRANT", "REVOKE", "FLUSH", "KILL", "ANALYZE", "OPTIMIZE", "CHECK", "REPAIR", "RESET", "PURGE",
                     "CHANGE", "STOP", "INSTALL", "UNINSTALL", "SHUTDOWN", "RESTART", "CACHE", "BINLOG", "CLONE",
                     "ADMIN", "BACKUP", "RESTORE", "IMPORT", "CANCEL"), _A),
}  # fmt: skip
_MAIN = frozenset({"SELECT", "INSERT", "REPLACE", "UPDATE", "DELETE", "TABLE", "VALUES"})
_ACCOUNTS = frozenset({"USER", "ROLE", "SERVER", "INSTANCE", "TABLESPACE", "RESOURCE", "BINDING", "PLACEMENT"})
_GLOBAL = frozenset(
    {"GLOBAL", "PERSIST", "PERSIST_ONLY", "PASSWORD", "CONFIG", "BINDING", "RESOURCE", "ROLE", "DEFAULT"}
)
_OWN_VARIABLE = re.compile(r"@@(?:(?:session|local)\.)?[a-z_0-9$]+", re.IGNORECASE)
_READING = frozenset({"SQL_MODE", "CHARACTER_SET_CLIENT", "NAMES", "CHARSET", "CHARACTER"})
_ISOLATION = frozenset({"TRANSACTION_ISOLATION", "TX_ISOLATION"})
_NOT_LOCKING = frozenset({"READ-COMMITTED", "READ-UNCOMMITTED", "REPEATABLE-READ"})
_READ_ONLY = frozenset({"TRANSACTION_READ_ONLY", "TX_READ_ONLY"})
_EXPLAINS = frozenset({"EXPLAIN", "DESC", "DESCRIBE"})
_EXPLAINED = frozenset({"SELECT", "INSERT", "REPLACE", "UPDATE", "DELETE", "TABLE", "VALUES", "WITH", "FOR"})
_ASKS = frozenset({"SELECT", "TABLE", "VALUES", "DO"})
_NOT_IN_READS = frozenset({"DELETE", "DROP", "ALTER", "CREATE", "GRANT", "REVOKE", "LOAD", "CALL", "PURGE", "RENAME"})
_BEHIND: dict[str, frozenset[str]] = {  # all words that these statements may go on with
    "BEGIN": frozenset({"WORK", "OPTIMISTIC", "PESSIMISTIC"}),
    "COMMIT": frozenset({"WORK", "AND", "NO", "CHAIN", "RELEASE"}),
    "START": frozenset({"TRANSACTION", "WITH", "CONSISTENT", "SNAPSHOT", "READ", "ONLY", "WRITE", "CAUSAL",
                        "CONSISTENCY", "OPTIMISTIC", "PESSIMISTIC"}),
}  # fmt: skip
_BEHIND["ROLLBACK"] = _BEHIND["COMMIT"]
_EFFECTS = {
    "get_lock": "lock by name", "release_lock": "lock by name", "release_all_locks": "lock by name",
    "sleep": "sleep", "benchmark": "sleep", "master_pos_wait": "sleep", "source_pos_wait": "sleep",
    "wait_for_executed_gtid_set": "sleep", "nextval": "sequence", "setval": "sequence", "load_file": "reads a file",
}  # fmt: skip
CLOCK = frozenset({
    "now", "curdate", "curtime", "current_date", "current_time", "current_timestamp", "localtime", "localtimestamp",
    "utc_date", "utc_time", "utc_timestamp", "unix_timestamp",
})  # fmt: skip
"""Volatile functions that tell the session's clock: determined once it is set. SYSDATE is none of them."""
_VOLATILE = CLOCK | frozenset({
    "sysdate", "uuid", "uuid_short", "rand", "random_bytes", "connection_id", "user", "current_user", "session_user",
    "system_user", "current_role", "last_insert_id", "found_rows", "row_count", "version", "database", "schema",
    "sleep", "benchmark", "get_lock", "release_lock", "release_all_locks", "is_free_lock", "is_used_lock", "nextval",
    "lastval", "tidb_version", "tidb_current_tso", "ps_current_thread_id", "load_file", "statement_digest",
    "icu_version",
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


_NO_CALL_BEHIND_IN_READS = frozenset({"WITH", "RECURSIVE", "AS"})
_GRAMMAR = frozenset({
    "ALL", "AND", "AS", "AVG", "BETWEEN", "BINARY", "BY", "CASE", "CHAR", "CHARACTER", "CROSS", "CUME_DIST", "DEC",
    "DECIMAL", "DENSE_RANK", "DISTINCT", "DISTINCTROW", "DIV", "DOUBLE", "ELSE", "EXCEPT", "EXISTS", "FIRST_VALUE",
    "FLOAT", "FOR", "FORCE", "FROM", "GEOMCOLLECTION", "GEOMETRYCOLLECTION", "GROUP", "GROUPING", "HAVING", "IF",
    "IGNORE", "IN", "INDEX", "INNER", "INTERSECT", "INTERVAL", "IS", "JOIN", "JSON_TABLE", "JSON_VALUE", "KEY", "LAG",
    "LAST_VALUE", "LATERAL", "LEAD", "LEFT", "LIKE", "LIMIT", "LINESTRING", "MATCH", "MOD", "MULTILINESTRING",
    "MULTIPOINT", "MULTIPOLYGON", "NATURAL", "NOT", "NTH_VALUE", "NTILE", "NUMERIC", "OF", "ON", "OR", "ORDER", "OUTER",
    "OVER", "PARTITION", "PERCENT_RANK", "POINT", "POLYGON", "RANK", "REGEXP", "RIGHT", "RLIKE", "ROW", "ROW_NUMBER",
    "SELECT", "SET", "STRAIGHT_JOIN", "TABLE", "THEN", "UNION", "USE", "USING", "VALUES", "VARBINARY", "VARCHAR",
    "WHEN", "WHERE", "WINDOW", "WITH", "XOR",
})  # fmt: skip
"""Words that may stand before a parenthesis in a read, and that no stored function can have for a name."""


@lru_cache(maxsize=1)
def _built_in() -> frozenset[str]:
    """Return what is no stored function before a parenthesis in a read, in upper case."""
    data = json.loads(resources.files("migverify.workload").joinpath("data/functions.json").read_text())
    return frozenset(name.upper() for name in (*data["mysql"], *data["tidb"])) | _GRAMMAR


@lru_cache(maxsize=1)
def _functions() -> frozenset[str]:
    data = json.loads(resources.files("migverify.workload").joinpath("data/functions.json").read_text())
    keywords = json.loads(resources.files("migverify.workload").joinpath("data/mysql-9.7.json").read_text())["words"]
    return frozenset(data["mysql"]) | frozenset(data["tidb"]) | frozenset(word.lower() for word in keywords)


def classify(sql: bytes, modes: Modes = DEFAULT) -> Classification:
    """Return what a text does, by its tokens. Never raises: what is not certain is ``unknown``."""
    texts = _readings(sql, modes) if has_executable_comment(sql) else []
    if not texts:  # what looks like such a comment may be a part of a literal
        return _classify(sql, modes, executable=False)
    readings = [_classify(text, replace(modes, charset=""), executable=True) for text in texts]
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


def _readings(sql: bytes, modes: Modes) -> list[bytes]:
    """Return the text as servers may read it: every executable comment run first, then every other combination.

    Comments that bear the same version run together or not at all. Empty where there is no such comment.
    """
    openings: list[bytes] = []

    def note(match: re.Match[bytes]) -> int:
        if match[0] not in openings:
            openings.append(match[0])
        return len(match[0])

    whole = executed(sql, note, modes)
    if not openings:
        return []
    if len(openings) > _MOST_COMMENTS:
        return [whole] * ((1 << _MOST_COMMENTS) + 1)  # unknown
    found = [whole]
    for chosen in range((1 << len(openings)) - 1):
        runs = {opening for number, opening in enumerate(openings) if chosen >> number & 1}
        found.append(executed(sql, lambda match, runs=runs: len(match[0]) if match[0] in runs else None, modes))  # type: ignore[misc]
    return found


_DISPUTED = re.compile(
    rb"--[\x01-\x08\x0e-\x1f\x7f]|\x00"
)  # a comment for MySQL and none for TiDB; the end of the text
_SPACE_OF_TIDB = (b"\x85", b"\xa0")
_HALF_CHARACTER = re.compile(rb'[\x80-\xff]"')


def _classify(sql: bytes, modes: Modes, *, executable: bool) -> Classification:
    statement: list[tuple[int, str]] = []
    found: list[Classification] = []
    # MySQL skips the byte behind the first one of a character in a quoted name, be it a part of the character or not.
    unsure = bool(modes.charset and modes.ansi_quotes and _HALF_CHARACTER.search(sql))
    behind = 0
    for token in tokens(sql, "mysql", modes):
        raw = sql[token.start : token.end]
        unsure = unsure or raw.startswith(_SPACE_OF_TIDB) or raw == b"\0"
        unsure = unsure or _DISPUTED.search(sql, behind, token.start) is not None
        behind = token.end
        if token.kind == TokenKind.OPEN:
            unsure = True
            break
        if token.kind == TokenKind.OPERATOR and raw == b";" and not _in_body(statement):
            if statement:
                found.append(_one(statement))
            statement = []
        elif token.kind != TokenKind.HINT:  # where no hint is due it is a comment
            text = raw.decode("latin-1")
            statement.append((int(token.kind), text.upper() if token.kind == TokenKind.WORD else text))
    if statement:
        found.append(_one(statement))
    unsure = unsure or not found or _DISPUTED.search(sql, behind) is not None
    effects = frozenset[str]().union(*(one.effects for one in found))
    if len(found) > 1:
        effects |= {"several statements"}
        unsure = unsure or "reading" in effects  # the statements behind it are read in another way
    return Classification(
        kind=StatementKind.UNKNOWN if unsure else max((one.kind for one in found), key=_DANGER.index),
        locking=any(one.locking for one in found),
        effects=effects,
        volatile=frozenset[str]().union(*(one.volatile for one in found)),
        statements=len(found),
        executable_comment=executable,
        words=tuple(word for one in found for word in one.words),
    )


def _in_body(statement: list[tuple[int, str]]) -> bool:
    """Tell whether a semicolon here is one inside the body of a stored program."""
    return bool(statement) and statement[0][1] in ("CREATE", "ALTER") and (TokenKind.WORD, "BEGIN") in statement


def _one(found: list[tuple[int, str]]) -> Classification:
    words = [text if kind == TokenKind.WORD else "" for kind, text in found]
    first, at = _first(found, words)
    kind = _kind(first, at, found, words)
    locking = kind in (_R, _S, _T) and _locks(words)
    effects, volatile = _effects(found, words, first, reads=kind in (_R, _S, _T))
    if first == "SET" and kind is not _A:
        settings = _settings(found[at + 1 :], words[at + 1 :])
        kind, effects = (StatementKind.UNKNOWN, effects) if settings is None else (kind, effects | settings)
    if first in ("START", "SET") and any(pair == ("READ", "WRITE") for pair in pairwise(words)):
        effects |= {"read write"}
    return Classification(kind, locking, effects, volatile, words=(first,))


def _first(found: list[tuple[int, str]], words: list[str]) -> tuple[str, int]:
    """Return the word that decides, and its place: behind parentheses, WITH, EXPLAIN ANALYZE and TRACE."""
    at = 0
    while True:
        while at < len(found) and found[at][1] == "(":
            at += 1
        first = words[at] if at < len(found) else ""
        if first in _EXPLAINS:
            behind, runs = _explained(found, words, at + 1)
            if not runs:
                return first, at
            at = behind
        elif first == "TRACE":
            at = _traced(found, words, at + 1)
        else:
            break
    if first == "WITH":
        depth = 0
        for place in range(at, len(found)):
            depth += (found[place][1] == "(") - (found[place][1] == ")")
            if depth <= 0 and words[place] in _MAIN and found[place - 1][1] == ")":
                return words[place], place
        return "", at
    return first, at


def _explained(found: list[tuple[int, str]], words: list[str], at: int) -> tuple[int, bool]:
    """Return where the statement behind EXPLAIN begins, and whether it is run."""
    runs = False
    while at < len(found):
        following = found[at + 1][1] if at + 1 < len(found) else ""
        if words[at] in ("ANALYZE", "EXTENDED", "PARTITIONS"):
            runs = runs or words[at] == "ANALYZE"
            at += 1
        elif words[at] == "FORMAT" and following == "=":
            at += 3
        elif words[at] == "INTO" or (words[at] == "FOR" and following in ("SCHEMA", "DATABASE")):
            at += 2 if words[at] == "INTO" else 3
        else:
            break
    return at, runs


def _traced(found: list[tuple[int, str]], words: list[str], at: int) -> int:
    """Return where the statement behind TiDB's TRACE begins: TRACE runs it."""
    at += at < len(words) and words[at] == "PLAN"
    while at + 2 < len(found) and words[at] in ("FORMAT", "TARGET") and found[at + 1][1] == "=":
        at += 3
    return at


def _kind(first: str, at: int, found: list[tuple[int, str]], words: list[str]) -> StatementKind:
    kind = _KINDS.get(first, StatementKind.UNKNOWN)
    following = words[at + 1] if at + 1 < len(words) else ""
    if first == "SET":
        starts = (0, *(place for place, (_, text) in enumerate(found[at:]) if text == ","))
        scopes = {words[at + place + 1] for place in starts if at + place + 1 < len(words)}
        outside = any(token == TokenKind.VARIABLE and _is_outside(text) for token, text in found[at:])
        if outside or scopes & _GLOBAL:
            return _A
        return _T if following == "TRANSACTION" else kind
    if first in _EXPLAINS:
        behind = _explained(found, words, at + 1)[0]
        token, text = found[behind] if behind < len(found) else (0, "")
        name = token in (TokenKind.NAMES, TokenKind.QUOTED) or (token == TokenKind.WORD and text not in _KINDS)
        return kind if name or text in _EXPLAINED or text == "(" else StatementKind.UNKNOWN
    if first == "START" and following != "TRANSACTION":
        return _A
    if first in _BEHIND and not set(words[at + 1 :]) <= _BEHIND[first]:
        savepoint = first == "ROLLBACK" and "TO" in words[at + 1 : at + 3]
        snapshot = first == "START" and {"READ", "ONLY", "AS", "OF", "TIMESTAMP"} <= set(words[at + 1 :])
        return _T if savepoint or snapshot else StatementKind.UNKNOWN
    if first in ("LOCK", "UNLOCK") and following not in ("TABLE", "TABLES"):
        return _A
    if kind is _D and following in _ACCOUNTS:
        return _A
    if first == "EXECUTE":
        return StatementKind.UNKNOWN  # what was prepared decides
    if first in _ASKS and _writes_inside(found, words, at):
        return StatementKind.UNKNOWN
    return kind


def _is_outside(variable: str) -> bool:
    return re.match(r"@@\s*`?(?:global|persist|persist_only)\b", variable, re.IGNORECASE) is not None


def _writes_inside(found: list[tuple[int, str]], words: list[str], at: int) -> bool:
    """Tell whether a read holds words that no read of ours does: then it is none that we know."""
    for place in range(at, len(words)):
        word, before = words[place], words[place - 1] if place else ""
        after = found[place + 1] if place + 1 < len(found) else (0, "")
        if not word or (place and found[place - 1][1] == "."):
            continue
        if word in _NOT_IN_READS or (word in ("INSERT", "REPLACE") and after[1] != "("):
            return True
        if word == "UPDATE" and before != "FOR":
            return True
        own = after[0] == TokenKind.VARIABLE and not after[1].startswith("@@")
        if word == "INTO" and after[1] not in ("OUTFILE", "DUMPFILE") and not own:
            return True
    return False


def _settings(found: list[tuple[int, str]], words: list[str]) -> set[str] | None:
    """Return the effects of what follows SET; None where it is more than settings of the session."""
    if words[bool(words) and words[0].lower() in SCOPES :][:1] == ["TRANSACTION"]:
        return {"serializable"} if "SERIALIZABLE" in words else set()
    effects: set[str] = set()
    for scope, start, end in assignments([text for _, text in found]):
        item = _setting(found[start:end], words[start:end], scoped=bool(scope))
        if item is None:
            return None
        effects |= item
    return effects


def _setting(item: list[tuple[int, str]], words: list[str], *, scoped: bool) -> set[str] | None:
    """Return the effects of one assignment of a SET."""
    if not item:
        return None
    if not scoped and words[0] in ("NAMES", "CHARSET", "CHARACTER"):
        value = item[2 if words[0] == "CHARACTER" else 1 :]
        plain = all(kind in (TokenKind.STRING, TokenKind.WORD, TokenKind.QUOTED) for kind, _ in value)
        return {"reading"} if value and plain and (words[0] != "CHARACTER" or words[1] == "SET") else None
    kind, text = item[0]
    if len(item) < 3 or item[1][1] not in ("=", ":="):
        return None
    if kind == TokenKind.VARIABLE and not text.startswith("@@"):
        return set()
    if not (
        kind in (TokenKind.WORD, TokenKind.QUOTED) or (kind == TokenKind.VARIABLE and _OWN_VARIABLE.fullmatch(text))
    ):
        return None
    name = text.rpartition(".")[2].strip('@`"').upper()
    value = item[2:]
    if name in _READING:  # a value that is computed leaves it open how later statements are read
        return (
            {"reading"}
            if len(value) == 1 and value[0][0] in (TokenKind.STRING, TokenKind.WORD, TokenKind.INTEGER)
            else None
        )
    if name in _ISOLATION:
        plain = len(value) == 1 and value[0][1].strip("'\"").upper().replace(" ", "-") in _NOT_LOCKING
        return set() if plain else {"serializable"}
    return {"read write"} if name in _READ_ONLY else set()


def _locks(words: list[str]) -> bool:
    for place, word in enumerate(words[:-1]):
        after = words[place + 1]
        if word == "FOR" and after in ("UPDATE", "SHARE"):
            return True
        if word == "LOCK" and after == "IN":
            return True
    return False


def _effects(
    found: list[tuple[int, str]], words: list[str], first: str, *, reads: bool
) -> tuple[frozenset[str], frozenset[str]]:
    effects: set[str] = set()
    volatile: set[str] = set()
    if first in ("CALL", "EXECUTE", "PREPARE", "HANDLER"):
        effects.add(first.lower())
    for place, (kind, text) in enumerate(found):
        after = found[place + 1][1] if place + 1 < len(found) else ""
        if text == ":=" and kind == TokenKind.OPERATOR:
            effects.add("user variable")
        elif kind == TokenKind.VARIABLE:
            if text[1:2] != "@" and ((first == "SET" and after == "=") or (place and words[place - 1] == "INTO")):
                effects.add("user variable")
        elif text == "INTO" and kind == TokenKind.WORD and after in ("OUTFILE", "DUMPFILE"):
            effects.add("into file")
        elif (kind == TokenKind.WORD and (text, after) == ("NEXT", "VALUE")) or (
            kind == TokenKind.NAMES and text.lower().endswith(".nextval")
        ):
            effects.add("sequence")
        elif kind in (TokenKind.WORD, TokenKind.NAMES, TokenKind.QUOTED) and after == "(":
            _call(text.lower(), kind, place, found, words, effects, volatile, reads=reads)
        elif kind == TokenKind.WORD and text.lower() in _WITHOUT_PARENTHESES:
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
    *,
    reads: bool,
) -> None:
    empty = found[place + 2][1] == ")" if place + 2 < len(found) else True
    before = words[place - 1] if place else ""
    known = name.upper() in _built_in() or _is_grammar(name, place, found) if reads else name in _functions()
    if kind == TokenKind.WORD and known:
        if name in _VOLATILE and not (name in _TIED_TO_NO_ARGUMENT and not empty):
            volatile.add(name)
        if name in _EFFECTS:
            effects.add(_EFFECTS[name])
        if name == "last_insert_id" and not empty:
            effects.add("sets last_insert_id")
    elif before not in (_NO_CALL_BEHIND_IN_READS if reads else _NO_CALL_BEHIND) and words[0] not in _NO_CALLS:
        effects.add("stored function possible")


_NO_CALLS = frozenset({"CREATE", "ALTER", "DROP", "CALL", "GRANT"})


def _is_grammar(name: str, place: int, found: list[tuple[int, str]]) -> bool:
    """Tell whether a word before a parenthesis is one of the grammar here, though a function may have its name."""
    before = found[place - 1] if place else (0, "")
    behind = found[place + 2][1] if place + 2 < len(found) else ""
    return (
        (
            name in ("any", "some")
            and before[0] == TokenKind.OPERATOR
            and behind in ("(", "SELECT", "TABLE", "VALUES", "WITH")
        )
        or (name == "columns" and before[0] == TokenKind.STRING)
        or (name == "against" and before[1] == ")")
    )

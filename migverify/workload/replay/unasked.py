"""Why a call is not asked, and what to do about it; and how a locking read is asked without its lock."""

from __future__ import annotations

import re

from migverify.workload.lexer import DEFAULT, Kind, Modes, has_executable_comment, tokens

FIRST_TRANSACTION = (
    "its transaction began before the capture: begin the capture earlier; what follows this transaction is asked"
)
UNLOCKED = "asked without its locking clause: no permission to lock (--locking)"

# What to do, by what the reason says; the first that is found counts.
_REMEDIES = (
    (r"database is not known", "give --sessions FILE (migverify workload sessions) or --assume-database NAME"),
    (r"prepared before the capture|prepared statement not logged",
     "begin the capture before the clients connect, or capture by the general log, which holds the text"),
    (r"open at the end of the capture", "capture until the transactions have ended"),
    (r"no session id", "capture by a format that names the connection (docs/capture-formats.md)"),
    (r"masked", "capture without masking, on a machine that may hold the values"),
    (r"transaction is not chosen whole", "choose by session or time instead of by digest"),
    (r"truncat|\bcut\b|too long|missing|lost|unknown values|values unknown",
     "raise the source's limit on logged text, or capture by packets, and capture again"),
    (r"prepare that failed", "its error cannot be asked without executing it; check the statement by hand"),
    (r"^write|may write|sequence|XA |read-only mode|another statement|executable comments",
     "ask it on marked clones with --writes, or leave writes out by name with --reads-only"),
    (r"^DDL|unknown statement", "ask it on marked clones with --writes --ddl, or leave it out with --reads-only"),
    (r"^locking read|named lock|LOCK TABLES", "allow it with --locking"),
    (r"several statements", "capture with the client's multi-statement option off, or run it by hand on both sides"),
    (r"never replayed", "run it by hand on both sides if its answer matters"),
)  # fmt: skip
_OTHERWISE = "see what the capture holds: migverify workload capture-quality DIR"
_PLAIN = frozenset({Kind.WORD, Kind.NAMES, Kind.QUOTED, Kind.INTEGER, Kind.OPERATOR})
_FOLLOWS = {b"NOWAIT", b"SKIP", b"LOCKED"}


def with_remedy(reason: str) -> str:
    """Return why a call is not asked, ending with what to do about it."""
    for pattern, remedy in _REMEDIES:
        if re.search(pattern, reason, re.IGNORECASE):
            return f"{reason}: {remedy}"
    return f"{reason}: {_OTHERWISE}"


def unlocked(sql: bytes, modes: Modes = DEFAULT) -> bytes | None:
    """Return a locking read without the locking clauses at its end; None where there are none that can be left out."""
    if has_executable_comment(sql):
        return None
    found = [one for one in tokens(sql, "mysql", modes) if sql[one.start : one.end] != b";"]
    texts = [sql[one.start : one.end].upper() if one.kind in _PLAIN else b"" for one in found]
    end: int | None = len(found)
    kept = len(found)
    while end:
        kept = end
        end = _clause(texts[:kept])
    return None if kept in (0, len(found)) else sql[: found[kept - 1].end]


def _clause(texts: list[bytes]) -> int | None:
    """Return where the locking clause begins that a text ends with, None where it ends with none."""
    if texts[-4:] == [b"LOCK", b"IN", b"SHARE", b"MODE"]:
        return len(texts) - 4
    at = len(texts)
    while at and texts[at - 1] in _FOLLOWS:
        at -= 1
    if at > 1 and texts[at - 1].isdigit() and texts[at - 2] == b"WAIT":
        at -= 2
    for begin in range(at - 2, 0, -1):
        if texts[begin] == b"FOR":
            names = texts[begin + 2 : at]
            whole = not names or (names[0] == b"OF" and all(names))
            return begin if texts[begin + 1] in (b"UPDATE", b"SHARE") and whole else None
    return None

"""Error messages and lines with locks -> conflicts. The words are those of TiDB 2.1 to 8.5 and TiKV."""

from __future__ import annotations

import re

from migverify.workload.conflict import keys
from migverify.workload.conflict.keys import TidbKey
from migverify.workload.conflict.model import LATEST, ConflictKind, TransactionConflict

_NUMBER = r"[=:]\s*(\d{15,20})"
_START = re.compile(r"(?:txnStartTS|\bstartTS|start_ts|Txn_start_ts)" + _NUMBER)
_STALE = re.compile(r"txnStartTS (\d{15,20}) is stale")
_OTHER_START = re.compile(r"(?:conflictStartTS|conflictTS|conflict_start_ts|conflict_ts)" + _NUMBER)
_OTHER_COMMIT = re.compile(r"(?:conflictCommitTS|conflict_commit_ts)" + _NUMBER)
_LOCK_VERSION = re.compile(r"(?:lock_version|lock_ts|lockTS|lock start ts|StartTS)[=:]\s*(\d{15,20})")
_KEY = re.compile(r"(?<![A-Za-z_])key=(\{.*?\}+|\[\]byte\{[^}]*\})(?=[ ,\]]|$)", re.DOTALL)
_PRIMARY = re.compile(r"(?<![A-Za-z_])primary=(\{.*?\}+|\[\]byte\{[^}]*\}|\[\]byte\(nil\))(?=[ ,\]]|$)", re.DOTALL)
_ORIGINAL = re.compile(r"originalKey=([0-9a-fA-F]*)(?=[,\s\]])")  # a message may be cut inside
_ORIGINAL_PRIMARY = re.compile(r"originalPrimaryKey=([0-9a-fA-F]*)(?=[,\s\]])")
_LOCKED_KEY = re.compile(r"(?<![A-Za-z_])key:\s*(?:\"((?:[^\"\\]|\\.)*)\"|([0-9a-fA-F]{18,}))")
_PRIMARY_LOCK = re.compile(r"primary_lock:\s*(?:\"((?:[^\"\\]|\\.)*)\"|([0-9a-fA-F]{18,}))")
_REASON = re.compile(r"reason=(\w+)")
_BACKOFFS = re.compile(r"backoff_types:\s*\[?([\w, ]+)\]?")
_BACKOFF_MS = re.compile(r"backoff_ms:\s*(\d+)")
_LOCK_LOST = re.compile(r"TxnLockNotFound.*?\[([\d, ]+)\]", re.DOTALL)
_CONNECTION = re.compile(r"\[(\d+)\] can not retry select")
_CODE = re.compile(r"(?:\[\w+:|\b(?:ERROR|error|Error|errno|code)[=: ]+|\()(9007|8002|8022|8028|8027|8005|8147)\b")
_KEY_LOCKED = re.compile(r"KeyIsLocked|key is locked|txnLockFast|locked primary_lock|primary_lock:|lock_version:")

_KINDS = {
    9007: ConflictKind.WRITE, 8005: ConflictKind.WRITE, 8022: ConflictKind.LOST, 8002: ConflictKind.REFUSED,
    8028: ConflictKind.SCHEMA, 8027: ConflictKind.SCHEMA,
    8147: ConflictKind.UNIQUENESS,
}  # fmt: skip
_WORDS = (
    (8147, "lazy uniqueness check is enabled"), (9007, "rite conflict"), (9007, "WriteConflict"),
    (8022, "KV error safe to retry"), (8002, "can not retry select for update"),
    (8028, "nformation schema is changed"), (8027, "nformation schema is out of date"),
)  # fmt: skip


def parse(text: str, where: str = "") -> TransactionConflict | None:
    """Return the conflict that a message tells of; None when it tells of none."""
    code = _code(text)
    if code is None:
        return _locked(text, where) if _KEY_LOCKED.search(text) else None
    start = _tso(_START, text) or _tso(_STALE, text)
    return TransactionConflict(
        _KINDS[code], code, text, where, start, _tso(_OTHER_START, text), _tso(_OTHER_COMMIT, text),
        _key(_KEY, _ORIGINAL, text) or _lost_key(text), _key(_PRIMARY, _ORIGINAL_PRIMARY, text),
        (reason[1] if (reason := _REASON.search(text)) else ""),
        (session[1] if (session := _CONNECTION.search(text)) else ""),
    )  # fmt: skip


def _code(text: str) -> int | None:
    by_words = next((code for code, words in _WORDS if words in text), None)
    if by_words == 9007 and "is stale" in text:
        return 8005
    if by_words is not None:
        return by_words
    found = _CODE.search(text)
    return int(found[1]) if found else None


def _locked(text: str, where: str) -> TransactionConflict | None:
    backoffs = _BACKOFFS.search(text)
    kinds = tuple(one.strip() for one in backoffs[1].split(",") if one.strip()) if backoffs else ()
    waited = _BACKOFF_MS.search(text)
    lock = _tso(_LOCK_VERSION, text)
    start = _tso(_START, text)
    if start is None and lock is None:
        return None
    # reads wait by txnLockFast; a write that meets a lock waits by txnLock
    kind = ConflictKind.WAIT if kinds and "txnLockFast" not in kinds else ConflictKind.READ
    return TransactionConflict(
        kind, None, text, where, start, lock, None, _escaped(_LOCKED_KEY, text), _escaped(_PRIMARY_LOCK, text),
        waited=int(waited[1]) * 1000 if waited else None, backoffs=kinds,
    )  # fmt: skip


def _tso(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    if found is None:
        return None
    tso = int(found[1])
    return tso if tso <= LATEST else None


def _key(pattern: re.Pattern[str], original: re.Pattern[str], text: str) -> TidbKey | None:
    hexadecimal = original.search(text)
    raw = keys.from_hex(hexadecimal[1]) if hexadecimal else None
    spelled = pattern.search(text)
    return keys.from_words(spelled[1], raw) if spelled else raw


def _escaped(pattern: re.Pattern[str], text: str) -> TidbKey | None:
    found = pattern.search(text)
    if found is None:
        return None
    return keys.from_hex(found[2]) if found[2] else keys.from_hex(found[1]) or keys.from_escapes(found[1])


def _lost_key(text: str) -> TidbKey | None:
    found = _LOCK_LOST.search(text)
    numbers = [int(one) for one in re.findall(r"\d+", found[1])] if found else []
    return keys.decode(bytes(numbers)) if len(numbers) > 10 and max(numbers) < 256 else None

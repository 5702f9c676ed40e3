"""An explanation as text and as JSON."""

from __future__ import annotations

from collections.abc import Callable

from migverify.workload.conflict.causes import CAUSES, UNKNOWN
from migverify.workload.conflict.model import (
    LATEST,
    EvidenceState,
    Explanation,
    Party,
    SeenStatement,
    TransactionConflict,
    span_text,
    time_text,
    tso_time,
)
from migverify.workload.model import text_of

_WIDTH = 300

Mask = Callable[[bytes], bytes]


def as_text(explanation: Explanation, mask: Mask | None = None) -> str:
    """Return what a person reads. ``mask`` replaces literals of statements."""
    conflict = explanation.conflict
    lines = [_title(conflict)]
    if conflict.key is not None:
        lines.append(f"  key        {conflict.key if mask is None else _nameless(conflict)}")
    if conflict.reason:
        lines.append(f"  reason     {conflict.reason}")
    lines += _party("ours", explanation.ours, mask)
    lines += _party("the other", explanation.other, mask)
    lines += [f"  {one}" for one in explanation.story]
    cause = CAUSES.get(explanation.cause)
    lines.append(
        f"  cause      {explanation.cause}{f': {cause.meaning}' if cause else ': the evidence does not decide.'}"
    )
    for one in explanation.candidates:
        if one.hold is EvidenceState.EXCLUDED and explanation.cause == UNKNOWN and not one.evidence:
            continue
        if one.hold is not EvidenceState.SHOWN and explanation.cause != UNKNOWN:
            continue
        lines.append(f"    {one.hold.value:<9}{one.cause}")
        lines += [f"             - {text}" for text in (one.evidence if mask is None else ())]
        if one.confirm:
            lines.append(f"             ? {one.confirm}")
    lines += [f"  missing    {one}" for one in explanation.missing]
    lines.append(f"  remedy     {explanation.remedy}")
    return "\n".join(lines)


def _title(conflict: TransactionConflict) -> str:
    code = f"{conflict.code} " if conflict.code else ""
    where = f" ({conflict.where})" if conflict.where else ""
    return f"{code}{conflict.kind.value}{where}"


def _nameless(conflict: TransactionConflict) -> str:
    key = conflict.key
    if key is None or key.kind not in ("row", "index"):
        return "masked"
    index = f", index {key.index or key.index_id}" if key.kind == "index" else ", row"
    return f"{key.table or f'table id {key.table_id}'}{index} (masked)"


def _party(title: str, party: Party, mask: Mask | None) -> list[str]:
    start = f"start {_tso(party.start)}" if party.start is not None else "start not known"
    commit = f", commit {_tso(party.commit)}" if party.commit is not None else ""
    session = f"session {party.session}" if party.session else "session not known"
    user = f" ({party.user}@{party.host})" if party.user else ""
    lines = [f"  {title:<10} {session}{user}, {start}{commit}"]
    if party.statement is not None:
        lines.append(f"             {_statement(party.statement, mask)}")
        if party.ended is not None:
            lines.append(f"             {_statement(party.ended, mask)}")
        lines.append(f"             found by {party.found}")
    elif party.known_sql:
        text = party.known_sql.encode("utf-8", "surrogateescape")
        lines.append(f"             {_cut(text if mask is None else mask(text))}")
    return lines


def _statement(seen: SeenStatement, mask: Mask | None) -> str:
    times = ""
    if seen.begin is not None and seen.end is not None:
        times = f"{time_text(seen.begin)} + {span_text(seen.end - seen.begin)}  "
    return f"{times}{_cut(seen.sql if mask is None else mask(seen.sql))}  [{seen.where}]"


def _cut(sql: bytes) -> str:
    text = " ".join(text_of(sql).split())
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}... ({len(text)} characters)"


def _tso(tso: int) -> str:
    if tso == LATEST:
        return "newest (no TSO)"
    return f"{time_text(tso_time(tso))} (TSO {tso})"


def as_json(explanation: Explanation, mask: Mask | None = None) -> dict[str, object]:
    """Return the explanation as a JSON object; times are text in UTC."""
    conflict = explanation.conflict
    key = conflict.key.as_json() if conflict.key else None
    primary = conflict.primary.as_json() if conflict.primary else None
    if mask is not None:
        for one in (key, primary):
            if one is not None:
                one.update(values=[], hex=None, text=_nameless(conflict) if one is key else "masked")
    return {
        "kind": conflict.kind.value, "code": conflict.code, "where": conflict.where or None,
        "reason": conflict.reason or None, "key": key, "primary": primary,
        "ours": _party_json(explanation.ours, mask), "other": _party_json(explanation.other, mask),
        "overlap": None if explanation.overlap is None else {
            "from": time_text(explanation.overlap[0]), "to": time_text(explanation.overlap[1]),
            "ms": (explanation.overlap[1] - explanation.overlap[0]) / 1000,
        },
        "waited_ms": None if conflict.waited is None else conflict.waited / 1000,
        "backoffs": list(conflict.backoffs), "story": list(explanation.story), "cause": explanation.cause,
        "candidates": [
            {"cause": one.cause, "hold": one.hold.value, "evidence": list(one.evidence) if mask is None else [],
             "confirm": one.confirm or None} for one in explanation.candidates
        ],
        "missing": list(explanation.missing), "remedy": explanation.remedy,
    }  # fmt: skip


def _party_json(party: Party, mask: Mask | None) -> dict[str, object]:
    return {
        "session": party.session or None, "user": party.user or None, "host": party.host or None,
        "start_tso": party.start if party.start != LATEST else None,
        "start": time_text(tso_time(party.start)) if party.start and party.start != LATEST else None,
        "commit_tso": party.commit, "commit": time_text(tso_time(party.commit)) if party.commit else None,
        "statement": _seen_json(party.statement, mask) or (
            {"sql": party.known_sql if mask is None else mask(party.known_sql.encode()).decode("utf-8", "replace")}
            if party.known_sql else None
        ),
        "ended_by": _seen_json(party.ended, mask), "found_by": party.found or None,
    }  # fmt: skip


def _seen_json(seen: SeenStatement | None, mask: Mask | None) -> dict[str, object] | None:
    if seen is None:
        return None
    sql = seen.sql if mask is None else mask(seen.sql)
    return {
        "sql": text_of(sql), "where": seen.where,
        "begin": None if seen.begin is None else time_text(seen.begin),
        "end": None if seen.end is None else time_text(seen.end), "ok": seen.ok, "errno": seen.errno,
    }  # fmt: skip

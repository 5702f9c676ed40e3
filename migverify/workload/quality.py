"""What a capture is worth: where it is silent, what was cut, what is partial, whose outcome is known.

A replay proves something only about what was captured; this says how much that is.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from migverify.errors import UsageError
from migverify.load import MOST_REJECTED
from migverify.workload.capture import WITHOUT_CONNECTS, time_text
from migverify.workload.model import SUMMARY
from migverify.workload.server_sessions import SessionDump, unseen_by_slow_log
from migverify.workload.sessions import BEGAN_BEFORE, OPEN_AT_END
from migverify.workload.statement_files import read_rows

LEAST_GAP_S = 10
"""A shorter silence is never a gap."""
USUAL = 0.9
TIMES_USUAL = 20
"""A silence is a gap when it is so many times as long as nine of ten others: for calls that come by chance (an
exponential law) that is one in 10^20."""
_SHOWN = 20
_COLUMNS = ("server", "session", "start", "end", "errno", "rows_sent", "duration_s", "partial", "command", "details")
_NEVER = {
    "slow": "a slow log never holds statements of connections that were open when long_query_time was lowered, unless"
    " they are slower than its old value",
    "pcap": "packets never show the statements of connections with TLS, nor the text of statements prepared before",
    "polled": "performance_schema shows what its ring still holds: statements between two polls may be missing",
}  # fmt: skip
"""What a format can never see, by its name."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A silence of one server that is longer than the usual."""

    server: str
    first: str
    last: str
    seconds: int


@dataclass(slots=True)
class ServerQuality:
    """One server's statements over time. ``coverage`` is the share of seconds from first to last outside of gaps."""

    server: str
    statements: int = 0
    first: str = ""
    last: str = ""
    seconds: int = 0
    usual_silence_s: int = 0
    gaps: int = 0
    gap_seconds: int = 0
    coverage: float = 1.0


@dataclass(slots=True)
class Quality:
    """The judgment of a capture. Shares are 0 to 1, None where there is nothing to share.

    ``joined_statements`` and ``joined_sessions`` began before the capture; that alone makes no statement partial. Of
    ``sessions_known``, those of dumps, ``sessions_never_seen`` keep a threshold that hides them from a slow log.
    """

    capture: str
    formats: list[str] = field(default_factory=list)
    statements: int = 0
    sessions: int = 0
    whole: int = 0
    rejected: int = 0
    rejected_bytes: int = 0
    rejected_share: float | None = None
    rejects: dict[str, int] = field(default_factory=dict)
    partial: dict[str, int] = field(default_factory=dict)
    partial_share: float | None = None
    partial_sessions: int = 0
    edge_statements: int = 0
    joined_statements: int = 0
    joined_sessions: int = 0
    sessions_known: int = 0
    sessions_never_seen: int = 0
    cut_statements: int = 0
    outcome_known: float | None = None
    rows_known: float | None = None
    duration_known: float | None = None
    errors: int = 0
    untimed: int = 0
    disordered: int = 0
    disorder_s: float = 0.0
    overlapping: int = 0
    clock_off: int = 0
    servers: list[ServerQuality] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    @property
    def usable(self) -> bool:
        """True when there is a statement that can be replayed and judged."""
        return self.whole > 0

    def as_json(self) -> dict[str, Any]:
        """Return the judgment as a JSON object."""
        return {**asdict(self), "usable": self.usable}


def judge(folder: Path, dumps: Sequence[SessionDump] = ()) -> Quality:
    """Read a capture and judge it; ``dumps`` are what the server knew of its sessions while it was captured.

    Raises
    ------
    UsageError
        the folder holds no complete capture.
    """
    try:
        summary = json.loads((folder / SUMMARY).read_text())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{folder} holds no capture.", hint="Make one: migverify workload capture FILE --out DIR."
        ) from error
    quality = Quality(str(folder))
    seconds: dict[str, Counter[int]] = {}
    known: Counter[str] = Counter()
    partial_sessions: set[str] = set()
    joined: set[str] = set()
    session, last_end = "", -1
    for fields in read_rows(folder, _COLUMNS):
        if fields["session"] != session:
            session, last_end = fields["session"], -1
            quality.sessions += 1
        if BEGAN_BEFORE in (fields["partial"] or ""):
            joined.add(fields["session"])
        _count(quality, fields, known, seconds, partial_sessions)
        start, end = fields["start"], fields["end"]
        if start is not None and last_end >= 0 and start < last_end - 1000:
            quality.overlapping += 1
        last_end = last_end if end is None else max(last_end, end)
    quality.partial_sessions, quality.joined_sessions = len(partial_sessions), len(joined)
    _from_summary(quality, summary)
    _shares(quality, known)
    for server in sorted(seconds):
        _over_time(quality, server, seconds[server])
    formats = [name for name in _NEVER if name in summary.get("formats", ())]
    if "slow" in formats:
        quality.sessions_never_seen, quality.sessions_known = unseen_by_slow_log(dumps)
    quality.findings = [*_findings(quality), *_never_seen(quality, formats)]
    return quality


def _count(
    quality: Quality,
    fields: Mapping[str, Any],
    known: Counter[str],
    seconds: dict[str, Counter[int]],
    partial_sessions: set[str],
) -> None:
    quality.statements += 1
    known["outcome"] += fields["errno"] is not None or '"failed"' in (fields["details"] or "")
    known["rows"] += fields["rows_sent"] is not None
    known["duration"] += fields["duration_s"] is not None
    quality.errors += bool(fields["errno"])
    reasons = [one for one in (fields["partial"] or "").split("; ") if one not in ("", BEGAN_BEFORE)]
    quality.joined_statements += BEGAN_BEFORE in (fields["partial"] or "")
    if reasons:
        for reason in reasons:
            quality.partial[reason] = quality.partial.get(reason, 0) + 1
        quality.edge_statements += OPEN_AT_END in reasons
        quality.cut_statements += any("truncat" in reason or "cut" in reason for reason in reasons)
        partial_sessions.add(fields["session"])
    else:
        quality.whole += 1
    start, end, duration = fields["start"], fields["end"], fields["duration_s"]
    if start is not None and end is not None and duration is not None:
        quality.clock_off += abs((end - start) / 1e6 - duration) > 1
    moment = start if start is not None else end
    if moment is not None:
        seconds.setdefault(fields["server"], Counter())[moment // 1_000_000] += 1


def _never_seen(quality: Quality, formats: Sequence[str]) -> Iterator[str]:
    if quality.joined_statements:
        yield (
            f"{quality.joined_statements / quality.statements:.1%} of the statements are of sessions that began before"
            f" the capture ({quality.joined_sessions:,} of {quality.sessions:,}): give the replay their state"
            " by --sessions FILE (migverify workload sessions, while the capture runs) or --assume-database NAME"
        )
    silent = sorted(set(quality.formats) & WITHOUT_CONNECTS)
    if silent:
        yield (
            f"the format {', '.join(silent)} logs no connects: whether a session"
            " began before the capture is not known, so its state is assumed to be what its own statements show; give"
            " the replay --sessions FILE (migverify workload sessions, while the capture runs)"
        )
    for name in formats:
        yield _NEVER[name]
    if quality.sessions_known:
        yield (
            f"{quality.sessions_never_seen:,} of {quality.sessions_known:,} sessions"
            f" ({quality.sessions_never_seen / quality.sessions_known:.1%}) keep a greater long_query_time than"
            " the server's: their faster statements are never in this slow log. Let the clients reconnect, or capture"
            " by the general log"
        )
    elif "slow" in formats:
        yield "which share of the sessions that is, is not known: give --sessions FILE"


def _from_summary(quality: Quality, summary: Mapping[str, Any]) -> None:
    quality.rejected = summary["rejected"]
    quality.rejected_bytes = summary["rejected_bytes"]
    quality.rejects = dict(summary["rejects"])
    quality.rejected_share = summary["rejected_bytes"] / summary["bytes"] if summary["bytes"] else None
    quality.untimed = summary["untimed"]
    quality.formats = list(summary.get("formats", ()))
    quality.disordered = sum(one["disordered"] for one in summary["files"])
    quality.disorder_s = max((one["disorder_s"] for one in summary["files"]), default=0.0)


def _shares(quality: Quality, known: Counter[str]) -> None:
    if not quality.statements:
        return
    quality.partial_share = 1 - quality.whole / quality.statements
    quality.outcome_known = known["outcome"] / quality.statements
    quality.rows_known = known["rows"] / quality.statements
    quality.duration_known = known["duration"] / quality.statements


def _over_time(quality: Quality, server: str, counts: Counter[int]) -> None:
    active = sorted(counts)
    quality_of = ServerQuality(server, sum(counts.values()), _second(active[0]), _second(active[-1]))
    quality_of.seconds = active[-1] - active[0] + 1
    found, quality_of.usual_silence_s = gaps(active)
    quality_of.gaps = len(found)
    quality_of.gap_seconds = sum(last - first - 1 for first, last in found)
    quality_of.coverage = 1 - quality_of.gap_seconds / quality_of.seconds
    quality.servers.append(quality_of)
    quality.gaps += [Gap(server, _second(first), _second(last), last - first) for first, last in found]
    quality.gaps.sort(key=lambda gap: -gap.seconds)


def gaps(active: Sequence[int]) -> tuple[list[tuple[int, int]], int]:
    """Return the silences that are longer than the usual, and the usual.

    Parameters
    ----------
    active
        The seconds that have a statement, in order.

    Returns
    -------
    tuple
        Pairs of the last second before a silence and the first one behind it; the silence, in seconds, that nine of
        ten do not exceed.
    """
    silences = sorted(after - before for before, after in pairwise(active))
    if not silences:
        return [], 0
    usual = silences[int((len(silences) - 1) * USUAL)]
    if len(silences) < 10:  # so few that the longest would be its own measure
        usual = silences[(len(silences) - 1) // 2]
    limit = max(LEAST_GAP_S, TIMES_USUAL * usual)
    return [(a, b) for a, b in pairwise(active) if b - a > limit], usual


def _second(second: int) -> str:
    return time_text(second * 1_000_000)[:19] + "Z"


def _findings(quality: Quality) -> Iterator[str]:
    if not quality.statements:
        yield "no statement was captured"
        return
    if not quality.whole:
        yield "every statement is partial: none can be judged"
    if quality.rejected:
        beyond = (quality.rejected_share or 0.0) > MOST_REJECTED
        yield f"{quality.rejected:,} pieces ({quality.rejected_share:.2%} of the bytes) could not be read" + (
            f": more than {MOST_REJECTED:.0%}, so its rates are not known" if beyond else ""
        )
    for server in quality.servers:
        if server.gaps:
            yield (
                f"{server.server or 'the server'} is silent for {server.gap_seconds:,} s in {server.gaps:,} gaps:"
                f" {server.coverage:.1%} of its time is covered"
            )
    if quality.partial_share:
        yield (
            f"{quality.partial_share:.1%} of the statements, in {quality.partial_sessions:,} sessions, are partial and"
            " stay out of verdicts"
        )
    if quality.cut_statements:
        yield f"{quality.cut_statements:,} statements were cut by the source: raise its limit on logged text"
    if quality.outcome_known is not None and quality.outcome_known < 1:
        yield (
            f"the outcome is known for {quality.outcome_known:.1%} of the statements: for the others an error on the"
            " target cannot be distinguished from one that the source had too"
        )
    if quality.untimed:
        yield f"{quality.untimed:,} records have no time and stand by their place in the file"
    if quality.overlapping:
        yield f"{quality.overlapping:,} statements begin before the one before them in their session ended"
    if quality.clock_off:
        yield f"{quality.clock_off:,} statements have a start that their duration contradicts: a client set the clock"


def quality_text(quality: Quality) -> str:
    """Return the judgment as lines for a terminal."""
    lines = [
        f"{quality.capture}: {quality.statements:,} statements in {quality.sessions:,} sessions,"
        f" {quality.whole:,} of them whole"
    ]
    lines += [
        f"  {server.server or '-'}: {server.first} to {server.last}, {server.coverage:.1%} covered, {server.gaps} gaps"
        for server in quality.servers
    ]
    lines += [
        f"    silent {gap.seconds:,} s: {gap.first} to {gap.last} ({gap.server or '-'})"
        for gap in quality.gaps[:_SHOWN]
    ]
    if len(quality.gaps) > _SHOWN:
        lines.append(f"    and {len(quality.gaps) - _SHOWN} shorter gaps")
    lines += [f"  rejected {count:,}: {reason}" for reason, count in quality.rejects.items()]
    lines += [f"  partial {count:,}: {reason}" for reason, count in quality.partial.items()]
    if quality.statements:
        lines.append(
            f"  known: outcome {quality.outcome_known:.1%}, rows {quality.rows_known:.1%},"
            f" duration {quality.duration_known:.1%}"
        )
    if quality.disordered:
        lines.append(
            f"  out of order in the files: {quality.disordered:,} records, by {quality.disorder_s:,.1f} s at most"
        )
    lines.append("  findings:" if quality.findings else "  findings: none")
    lines += [f"    - {finding}" for finding in quality.findings]
    return "\n".join(lines)

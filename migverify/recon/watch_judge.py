"""Open findings of closed windows that are read again, and sums of groups over the border of a window.

Two services stamp one event with two times, so a row and its counterpart may lie in two windows. An evaluation looks
for rows over the border itself. Sums of groups are compared over both windows together, for a row that crosses the
border is missing in one sum and too much in the next; what differs there too waits until the next window is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from migverify.model import LiveState
from migverify.recon.evaluate import Sink
from migverify.recon.model import MISMATCHES, Class, RuleFinding, RuleResult, Window
from migverify.recon.rule import Rule
from migverify.recon.watermark import SourceWatermark
from migverify.recon.windows import around, reach
from migverify.watch.lifecycle import Criteria, Finding, Read, advance

CARRIED = "carried: a sum that differs is judged when the next window is closed"


class RuleReads(Protocol):
    """What a watch reads; every method raises ``MigverifyError`` for what is not known.

    ``migverify.recon.watch_reads`` reads through an engine; tests have a world of their own.
    """

    def watermarks(self, rule: Rule) -> Sequence[SourceWatermark]:
        """Return up to when each source of the rule is complete."""
        ...

    def evaluate(self, rule: Rule, window: Window | None, sink: Sink) -> RuleResult:
        """Evaluate one window, with the re-reads of the rule; findings go to the sink."""
        ...

    def look(
        self, rule: Rule, span: Window | None, findings: Sequence[RuleFinding]
    ) -> Sequence[RuleFinding | None] | None:
        """Read the keys of findings again, over a span of time.

        Return for each finding what differs now, None where nothing does. None instead of a
        sequence: findings of this rule have no key to read by.
        """
        ...

    def signature(self, rule: Rule, window: Window) -> str | None:
        """Return a checksum of the window's rows on all sides, made by the databases; None where there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Again:
    """Findings that changed when they were read again; those that ``crossed`` were pending and are none any more."""

    changed: list[RuleFinding]
    crossed: list[RuleFinding]


def spans(rule: Rule, window: Window, settle: float) -> list[Window]:
    """Return the spans over which a finding may turn out to agree, the window itself first."""
    steps = reach(window, settle)
    halves = [around(window, 0, steps), around(window, steps, 0)] if rule.sums_groups else []
    return [window, *halves, around(window, steps, steps)]


def judge_sums(
    reads: RuleReads, rule: Rule, window: Window, findings: Sequence[RuleFinding], settle: float, *, last: bool
) -> tuple[list[RuleFinding], int]:
    """Return what is left of unequal sums after a look over the border, and how many agree there.

    ``settle``: Seconds, the offset of the clocks included. ``last``: The windows within reach are complete already:
    nothing needs to be carried.
    """
    left = list(findings)
    for span in spans(rule, window, settle)[1:]:
        looked = reads.look(rule, span, left) if left else []
        if looked is None:
            return list(findings), 0
        left = [finding for finding, now in zip(left, looked, strict=True) if now is not None]
    if settle > 0 and not last:
        left = [f if f.kind is Class.KNOWN_EXCEPTION else replace(f, kind=Class.PENDING, reason=CARRIED) for f in left]
    return left, crossings([f for f in findings if f.key not in {one.key for one in left}])


def crossings(findings: Sequence[RuleFinding]) -> int:
    """Count keys that matched across the border: once, in the window of the source's row."""
    return sum(finding.of is not Class.MISSING_ON_SOURCE for finding in findings)


def judge_again(
    reads: RuleReads, rule: Rule, window: Window | None, findings: Sequence[RuleFinding], settle: float, now: float, *,
    decided: bool, same: Callable[[RuleFinding, RuleFinding], bool],
) -> Again | None:  # fmt: skip
    """Read open findings of a closed window again.

    ``now``: Unix time to write into what changes. ``decided``: The windows within reach are closed: what was carried is
    judged. ``same``: Whether a finding differs as it did at the last read: a row that changed meanwhile is being
    written.

    Returns
    -------
    Again or None
        the findings that changed, to be recorded; None where they have no key to read by, so that the window must be
        evaluated again.
    """
    places = [None] if window is None else spans(rule, window, settle)
    left = list(range(len(findings)))
    own: dict[int, RuleFinding] = {}
    found: dict[int, RuleFinding] = {}
    crossed: list[int] = []
    for span in places:
        looked = reads.look(rule, span, [findings[n] for n in left]) if left else []
        if looked is None:
            return None
        for n, differs in zip(left, looked, strict=True):
            if differs is None and span != window and findings[n].kind is Class.PENDING:
                crossed.append(n)
            elif differs is None:
                # What was reported as a mismatch stays to be seen: its counterpart came after that.
                found[n] = _matched(findings[n], now, "" if span == window else f"its counterpart lies in {span}")
            else:
                # A group is reported as its own window has it, a row as it is over the border.
                own[n] = own.get(n, differs) if rule.sums_groups else differs
        left = [n for n in left if n not in found and n not in crossed]
    for n in left:
        changed = _still_open(rule, findings[n], own[n], now, decided=decided, same=same(findings[n], own[n]))
        if changed is not None:
            found[n] = changed
    return Again([found[n] for n in sorted(found)], [findings[n] for n in crossed])


def _matched(finding: RuleFinding, now: float, reason: str) -> RuleFinding:
    return replace(
        finding, kind=Class.LATE_MATCHED, reads=finding.reads + 1, at=now, reason=reason or "equal at a later read"
    )


def _still_open(
    rule: Rule, before: RuleFinding, differs: RuleFinding, now: float, *, decided: bool, same: bool
) -> RuleFinding | None:
    """What becomes of a finding that still differs; None when there is nothing new to record."""
    fresh = replace(differs, rule=before.rule, key=before.key, window=before.window, at=now,
        shard=differs.shard or before.shard,
    )  # fmt: skip
    if differs.kind is Class.KNOWN_EXCEPTION:
        return None if before.kind is differs.kind and same else fresh
    known = Finding(look=True, reads=before.reads, still=before.reads - 1, reported=before.kind in MISMATCHES)
    # Whether it differs as it did is what the look is: a row that changed between two reads is being written.
    read = Read(same, applied_past=decided or before.reason != CARRIED)
    now_known = advance(known, read, Criteria(rule.rereads))
    if now_known.reported and known.reported:
        return None if same else replace(fresh, kind=differs.of, reads=before.reads + 1)
    reads = now_known.still + 1
    if now_known.state is LiveState.DIVERGED:
        return replace(fresh, kind=differs.of, reads=reads, reason="")
    return replace(fresh, kind=Class.PENDING, reads=reads, reason=before.reason)

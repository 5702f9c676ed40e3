"""Findings on the border of a window, and findings of closed windows that are read again.

Two services stamp one event with two times, so a row and its counterpart may lie in two windows. A key that is missing
is looked for in the neighbor windows first. Of what is not there either, rows on the last part of the window are
carried: they are judged once the next window is closed. Sums of groups are compared over both windows together, for a
row that crosses the border is missing in one sum and too much in the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from migverify.model import LiveState
from migverify.recon.model import MISMATCHES, Class, Kind, Rule, RuleFinding, RuleResult, Window
from migverify.recon.watermark import Watermark
from migverify.recon.windows import around, border, reach
from migverify.watch.lifecycle import Criteria, Finding, Read, advance

CARRIED = "carried: on the border of the window, judged when the next one is closed"
ONE_SIDED = frozenset({Class.MISSING_ON_SOURCE, Class.MISSING_ON_TARGET})
GROUPED = frozenset({Kind.SAME_GROUPS, Kind.ZERO_SUM, Kind.BALANCE})
"""Kinds that compare sums: what crosses a border makes two findings, and none over both windows."""


Sink: TypeAlias = Callable[[Sequence[RuleFinding]], None]
"""Takes findings in batches."""


class RuleReads(Protocol):
    """What a watch reads; every method raises ``MigverifyError`` when it cannot be told.

    ``migverify.recon.watch_reads`` reads through an engine; tests have a world of their own.
    """

    def watermarks(self, rule: Rule) -> Sequence[Watermark]:
        """Return up to when each source of the rule is complete."""
        ...

    def evaluate(self, rule: Rule, window: Window | None, sink: Sink) -> RuleResult:
        """Evaluate one window, with the re-reads of the rule; findings go to the sink."""
        ...

    def look(
        self, rule: Rule, span: Window | None, findings: Sequence[RuleFinding]
    ) -> Sequence[RuleFinding | None] | None:
        """Read the keys of findings again, over a span of time.

        Returns
        -------
        sequence or None
            for each finding what differs now, None where nothing does. None instead of a sequence: findings of this
            rule have no key to read by.
        """
        ...

    def near(self, rule: Rule, edge: Window, findings: Sequence[RuleFinding]) -> Sequence[bool]:
        """Say of each finding whether its key has a row on either side in that part of a window."""
        ...

    def signature(self, rule: Rule, window: Window) -> str | None:
        """Return a checksum of the window's rows on all sides, made by the databases; None where there is none."""
        ...

    def touched(self, rule: Rule) -> Sequence[Window]:
        """Return windows whose rows a change stream saw written since it was asked last; empty without a stream."""
        ...


@dataclass(frozen=True, slots=True)
class JudgedKey:
    """Findings after a look over the border.

    ``crossed`` keys matched across it: their counterpart lies in a neighbor window, within the settle time. They are
    counted as matched and are no findings.
    """

    findings: list[RuleFinding]
    crossed: int = 0


@dataclass(frozen=True, slots=True)
class Again:
    """Findings that changed when they were read again; those that ``crossed`` were pending and are none any more."""

    changed: list[RuleFinding]
    crossed: list[RuleFinding]


def spans(rule: Rule, window: Window, settle: float, *, own: bool) -> list[Window]:
    """Return the spans over which a finding may turn out to agree, the window itself first (with ``own``)."""
    steps = reach(window, settle)
    found = [window] if own else []
    if rule.kind in GROUPED:
        found += [around(window, 0, steps), around(window, steps, 0)]
    return [*found, around(window, steps, steps)]


def judge_fresh(
    reads: RuleReads, rule: Rule, window: Window, findings: Sequence[RuleFinding], settle: float, *, last: bool
) -> JudgedKey:
    """Judge what an evaluation of one window found.

    Parameters
    ----------
    settle
        Seconds, the offset of the clocks included.
    last
        The windows within reach are complete already: nothing needs to be carried.
    """
    asked = [n for n, f in enumerate(findings) if _may_cross(rule, f)]
    kept: list[RuleFinding | None] = list(findings)
    for span in spans(rule, window, settle, own=False):
        if not asked:
            break
        looked = reads.look(rule, span, [findings[n] for n in asked])
        if looked is None:
            return JudgedKey(list(findings))
        for n, now in zip(asked, looked, strict=True):
            kept[n] = None if now is None else _over_the_border(findings[n], now)
        asked = [n for n in asked if kept[n] is not None]
    crossed = _still_apart(reads, rule, window, findings, kept)
    edge = border(window, settle)
    if edge is not None and asked and not last:
        on_edge = reads.near(rule, edge, [findings[n] for n in asked])
        for n, near in zip(asked, on_edge, strict=True):
            finding = kept[n]
            if near and finding is not None and finding.kind is not Class.KNOWN_EXCEPTION:
                kept[n] = replace(finding, kind=Class.PENDING, reason=CARRIED)
    return JudgedKey([f for f in kept if f is not None], crossed)


def _still_apart(
    reads: RuleReads, rule: Rule, window: Window, findings: Sequence[RuleFinding], kept: list[RuleFinding | None]
) -> int:
    """Count the keys that matched across the border; one that agrees in its own window by now was late instead."""
    gone = [n for n, finding in enumerate(kept) if finding is None]
    looked = reads.look(rule, window, [findings[n] for n in gone]) if gone else []
    for n, now in zip(gone, looked or (), strict=True):
        if now is None:
            late = replace(findings[n], money=None, currency=None, also=())
            kept[n] = _matched(late, findings[n].at, "")
    return crossings(findings[n] for n in gone if kept[n] is None)


def crossings(findings: Iterable[RuleFinding]) -> int:
    """Count keys that matched across the border: once, in the window of the source's row."""
    return sum(finding.of is not Class.MISSING_ON_SOURCE for finding in findings)


def _may_cross(rule: Rule, finding: RuleFinding) -> bool:
    return finding.of in ONE_SIDED or rule.kind in GROUPED or rule.kind in (Kind.ORPHANS, Kind.UNIQUE)


def _over_the_border(own: RuleFinding, wide: RuleFinding) -> RuleFinding:
    """What to report of a key that agrees neither in its window nor with its neighbors.

    The window's own finding, unless the other side holds the key in a neighbor window in another number: then it is no
    missing row, it is a doubled one.
    """
    if own.of in ONE_SIDED and wide.of is Class.DUPLICATE:
        kind = own.kind if own.kind in (Class.PENDING, Class.KNOWN_EXCEPTION) else wide.of
        return replace(
            own, kind=kind, of=wide.of, message=wide.message, counts=wide.counts, deviations=wide.deviations,
            money=wide.money if wide.money is not None else own.money, currency=wide.currency or own.currency,
            shard=wide.shard or own.shard,
        )  # fmt: skip
    return own


def judge_again(
    reads: RuleReads, rule: Rule, window: Window | None, findings: Sequence[RuleFinding], settle: float, now: float, *,
    decided: bool, same: Callable[[RuleFinding, RuleFinding], bool],
) -> Again | None:  # fmt: skip
    """Read open findings of a closed window again.

    Parameters
    ----------
    now
        Unix time to write into what changes.
    decided
        The windows within reach are closed: what was carried is judged.
    same
        Whether a finding differs as it did at the last read: a row that changed meanwhile is being written.

    Returns
    -------
    Again or None
        the findings that changed, to be recorded; None where they have no key to read by, so that the window must be
        evaluated again.
    """
    places = [None] if window is None else spans(rule, window, settle, own=True)
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
                # What was told as a mismatch stays to be seen: its counterpart came after that.
                found[n] = _matched(findings[n], now, "" if span == window else f"its counterpart lies in {span}")
            else:
                own[n] = _over_the_border(own[n], differs) if n in own else differs
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

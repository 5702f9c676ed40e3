"""One evaluation of readiness, and what changed since the one before. Pure: a sequence of evaluations says all.

A condition that was not evaluated (the runbook's file cannot be read) keeps its last known state, and the verdict of
that evaluation is not ready or not known for the condition that says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from migverify.runbook.announce.moments import READINESS, takes
from migverify.runbook.announce.words import one_line
from migverify.runbook.history.readiness import INCONCLUSIVE, MISSING, NOT_ASKED, NOT_READY, READY, UNKNOWN, Condition
from migverify.runbook.model import Sink
from migverify.secrets import scrub

__all__ = [
    "ConditionAnnouncement",
    "ConditionChange",
    "Known",
    "ReadinessEvaluation",
    "announced",
    "changes",
    "known_after",
    "standing_changes",
    "without_figures",
]  # fmt: skip

_FIGURES = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?"  # a date, or a moment
    r"|(?<=\.)\d{6,}"  # the number of a log's file
    r"|(?<![\w.:])(?<!\w-)(?!\d+\.\d+\.\d+\.\d)\d[\d.,:]*"  # a number by itself: that in a name or an address is none
)
_LONGEST_REASON = 2000
DECISION = "decision"


@dataclass(frozen=True, slots=True)
class Known:
    """What was known of a condition last: its state, and by what, without what changes by itself from hour to hour."""

    state: str
    causes: tuple[str, ...] = ()

    @property
    def is_bad(self) -> bool:
        """Whether a live run may not begin for it."""
        return self.state in (MISSING, UNKNOWN)


@dataclass(frozen=True, slots=True)
class ReadinessEvaluation:
    """Every condition at one moment, Unix time.

    Parameters
    ----------
    measured
        Conditions whose reasons hold figures of that moment: another figure is no other reason.
    following
        Conditions that are not known for what another one says (a server that does not answer): they are not ready
        either, keep their last known state, and are not announced besides.
    """

    at: float
    runbook: str
    service: str
    environment: str
    conditions: tuple[Condition, ...]
    measured: frozenset[str] = frozenset({DECISION})
    following: frozenset[str] = frozenset()

    @property
    def verdict(self) -> str:
        """``not ready`` when something is missing, ``inconclusive`` when something is unknown or nothing was asked."""
        states = {one.state for one in self.conditions}
        if MISSING in states:
            return NOT_READY
        return INCONCLUSIVE if not states or UNKNOWN in states else READY

    @property
    def bad(self) -> tuple[Condition, ...]:
        """The conditions that keep it from being ready."""
        return tuple(one for one in self.conditions if one.state in (MISSING, UNKNOWN))

    @property
    def own(self) -> tuple[Condition, ...]:
        """The conditions that stand for themselves."""
        return tuple(one for one in self.conditions if one.id not in self.following)

    def known(self, condition: Condition) -> Known:
        """Return what is to be remembered of a condition."""
        if condition.state not in (MISSING, UNKNOWN):
            return Known(condition.state)
        reasons = condition.reasons or (condition.found,)
        if condition.id in self.measured:
            reasons = tuple(without_figures(one) for one in reasons)
        # As the log keeps it, or a secret in a reason would make it another one at every evaluation.
        return Known(condition.state, tuple(sorted(map(scrub, reasons))))


@dataclass(frozen=True, slots=True)
class ConditionChange:
    """A condition that is another one than before; ``before`` is empty for one that was never evaluated."""

    condition: Condition
    before: str
    verdict_before: str
    verdict: str

    @property
    def what(self) -> str:
        """Return the kind of announcement."""
        return READINESS[self.condition.state if self.condition.state in (MISSING, UNKNOWN) else "ok"]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return why, or what is there now."""
        return self.condition.reasons or (self.condition.found,)

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "condition": self.condition.id, "before": self.before, "after": self.condition.state,
            "verdict_before": self.verdict_before, "verdict": self.verdict, "reasons": list(self.reasons),
        }  # fmt: skip


def without_figures(text: str) -> str:
    """Return a reason without its figures: an age or a count that grows is no other reason, another name is one."""
    return _FIGURES.sub("#", text)


def changes(
    before: Mapping[str, Known], verdict_before: str, evaluation: ReadinessEvaluation
) -> tuple[ConditionChange, ...]:
    """Return what is to be announced: conditions that became bad or good again, and bad ones for another reason.

    A condition that is not asked any more became nothing.
    """
    found = []
    for condition in evaluation.own:
        last, now = before.get(condition.id, Known("")), evaluation.known(condition)
        if now.state == NOT_ASKED:
            continue  # whoever leaves a question out does not answer it
        if (now.is_bad and now != last) or (last.is_bad and not now.is_bad):
            found.append(ConditionChange(condition, last.state, verdict_before, evaluation.verdict))
    return tuple(found)


def standing_changes(evaluation: ReadinessEvaluation, some: tuple[ConditionChange, ...]) -> tuple[ConditionChange, ...]:
    """Return what somebody has to learn who received nothing so far: bad conditions that are not among the changes."""
    said = {one.condition.id for one in some}
    verdict = evaluation.verdict
    bad = (one for one in evaluation.own if evaluation.known(one).is_bad and one.id not in said)
    return tuple(ConditionChange(one, one.state, verdict, verdict) for one in bad)


def known_after(before: Mapping[str, Known], evaluation: ReadinessEvaluation) -> dict[str, Known]:
    """Return what is known after an evaluation; what is bad stays so until it is asked again."""
    found = {one.id: evaluation.known(one) for one in evaluation.own}
    open_ = {id_: before[id_] for id_, now in found.items() if now.state == NOT_ASKED and id_ in before}
    return {**before, **found, **{id_: last for id_, last in open_.items() if last.is_bad}}


# --- words -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConditionAnnouncement:
    """What is sent of a change, and to which sinks; ``topic`` is the same for all that is said of one condition."""

    what: str
    topic: str
    text: str
    fields: Mapping[str, str]
    sinks: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as a line of the log keeps it."""
        return asdict(replace(self, fields=dict(self.fields)))


def announced(
    evaluation: ReadinessEvaluation, some: tuple[ConditionChange, ...], sinks: Mapping[str, Sink], command: str
) -> tuple[ConditionAnnouncement, ...]:
    """Return the announcements of an evaluation's changes, for the sinks that take them; none without sinks.

    Parameters
    ----------
    command
        What to type to see all conditions.
    """
    found = []
    for change in some:
        taking = tuple(name for name, sink in sinks.items() if takes(sink, change.what))
        if taking:
            topic = f"readiness/{evaluation.service}/{evaluation.environment}/{change.condition.id}"
            fields = _fields(evaluation, change, command)
            found.append(ConditionAnnouncement(change.what, topic, _text(evaluation, change), fields, taking))
    return tuple(found)


def _text(evaluation: ReadinessEvaluation, change: ConditionChange) -> str:
    tag = f"READINESS {evaluation.service} {evaluation.environment}".rstrip()
    id_, lost = change.condition.id, change.verdict_before == READY
    if change.condition.state == MISSING:
        return one_line(tag, f"{'NO LONGER READY' if lost else 'NOT READY'}: {id_}: {'; '.join(change.reasons)}")
    if change.condition.state == UNKNOWN:
        return one_line(tag, f"{'NO LONGER KNOWN' if lost else 'NOT KNOWN'}: {id_}: {'; '.join(change.reasons)}")
    if change.verdict == READY:
        left_out = ", ".join(one.id for one in evaluation.conditions if one.state == NOT_ASKED)
        return one_line(tag, f"READY AGAIN: {id_} is met", f"not asked: {left_out}" if left_out else "")
    return one_line(tag, f"MET AGAIN: {id_}", f"{change.verdict} for {', '.join(one.id for one in evaluation.bad)}")


def _fields(evaluation: ReadinessEvaluation, change: ConditionChange, command: str) -> dict[str, str]:
    reason = "; ".join(change.reasons)
    found = {
        "service": evaluation.service, "runbook": evaluation.runbook, "environment": evaluation.environment,
        "state": change.what, "condition": change.condition.id, "wants": change.condition.wants,
        "reason": reason if len(reason) <= _LONGEST_REASON else f"{reason[: _LONGEST_REASON - 1]}…",
        "do": change.condition.do, "verdict": change.verdict, "verdict_before": change.verdict_before,
        "command": command,
    }  # fmt: skip
    return {name: value for name, value in found.items() if value}

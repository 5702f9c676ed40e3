"""What the store keeps of a watch beyond a run's results, and what is held in memory of it.

The store holds all of the state. In memory are sums, the windows that have open findings and the last few others;
they are made again from the store when a watch goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from migverify.errors import StoreError
from migverify.model import Verdict
from migverify.recon.bodies import DONE, OPEN, result_body, result_of, window_text
from migverify.recon.model import MISMATCHES, Class, CoveredWindows, RuleResult, Severity, Window
from migverify.recon.rule import Rule, RuleSet
from migverify.recon.verdict import FindingTally
from migverify.store.results import ResultStore


class WindowPhase(StrEnum):
    """The state of a window in a watch."""

    EVALUATING = "evaluating"  # some findings are stored, not all: it is evaluated again after a restart
    REOPENED = "reopened"  # rows came or changed after it closed: it is evaluated again
    CARRYING = "carrying"  # closed; keys on its border wait for the next window, or differences to be read again
    UNSURE = "unsure"  # evaluated, and something of it could not be read
    MATCHED = "matched"
    MISMATCH = "mismatch"


UNDONE = frozenset({WindowPhase.EVALUATING, WindowPhase.REOPENED})
UNREAD = ("not read:", "not evaluated:")
"""How reasons begin that another read may take away."""

OPEN_KINDS = tuple(sorted(str(kind) for kind in {*MISMATCHES, Class.PENDING}))
"""Findings that are looked up again."""


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """How a watch goes about it; times in seconds.

    ``recheck`` lies between two reads of open findings and of the last ``lookback`` windows, ``whole`` between two
    evaluations of a rule without windows. ``burst`` windows of one rule are evaluated before the next rule has its
    turn, ``keys`` open findings are read in one turn. After ``idle`` windows without any row a rule is said to stand
    still; 0 never says so.
    """

    recheck: float = 30.0
    whole: float = 300.0
    lookback: int = 3
    burst: int = 8
    keys: int = 5_000
    idle: int = 3


@dataclass(slots=True)
class WindowState:
    """One window as it is held in memory.

    ``gaps`` are reasons why its evaluation proves less than it should, other than open findings. ``signature`` is the
    checksum of its rows before the last evaluation.
    """

    window: Window | None
    phase: WindowPhase
    tally: FindingTally = field(default_factory=FindingTally)
    covered: CoveredWindows = field(default_factory=CoveredWindows)
    gaps: tuple[str, ...] = ()
    signature: str | None = None
    evaluations: int = 0
    at: float = 0.0
    stamp: float = 0.0
    seconds: float = 0.0
    snapshots: tuple[Any, ...] = ()
    marks: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows, groups and events that its evaluation read."""
        covered = self.covered
        return covered.rows_source + covered.rows_target + covered.groups + covered.events

    @property
    def unread(self) -> bool:
        """Whether something of it could not be read, so that reading it again may help."""
        return any(gap.startswith(UNREAD) for gap in self.gaps)

    @property
    def name(self) -> str:
        """Its name in the store."""
        return window_text(self.window)

    @property
    def is_undone(self) -> bool:
        """Whether all of it is evaluated again."""
        return self.phase in UNDONE

    @property
    def is_open(self) -> bool:
        """Whether something of it is read again, or may expire; a rule without windows is evaluated for ever."""
        # Reading again what no read can prove would say the same.
        done = self.phase is WindowPhase.MATCHED or (self.phase is WindowPhase.UNSURE and not self.unread)
        return self.window is None or not done or bool(self.tally.open or self.tally.counts.get(Class.KNOWN_EXCEPTION))

    def cross(self, count: int) -> None:
        """Count keys that matched across the border of the window."""
        self.covered = self.covered + CoveredWindows(matched=count, crossed=count)

    def settle(self, rule: Rule) -> None:
        """Set the state from the findings and gaps."""
        self.tally.prune()
        if self.tally.mismatches and rule.severity is not Severity.WARNING:
            self.phase = WindowPhase.MISMATCH
        elif self.tally.pending:
            self.phase = WindowPhase.CARRYING
        else:
            self.phase = WindowPhase.UNSURE if self.gaps else WindowPhase.MATCHED

    def result(self, rule: Rule) -> RuleResult:
        """Return the end of the rule in this window, as a run would."""
        verdicts = {WindowPhase.MATCHED: Verdict.MATCH, WindowPhase.MISMATCH: Verdict.MISMATCH}
        reasons = list(self.gaps)
        if self.tally.mismatches:
            reasons.append(f"{self.tally.mismatches:,} mismatches")
        if self.tally.pending:
            waiting = f"{self.tally.pending:,} {'key waits' if self.tally.pending == 1 else 'keys wait'}"
            reasons.append(f"{waiting} for the next window or for another read")
        if self.phase in UNDONE:
            reasons.append("it is to be evaluated again")
        return RuleResult(
            rule.name, self.window, verdicts.get(self.phase, Verdict.INCONCLUSIVE), tuple(reasons), self.covered,
            dict(self.tally.counts), dict(self.tally.money), self.snapshots, self.seconds, self.tally.at_risk(),
            self.gaps,
        )  # fmt: skip

    def body(self, rule: Rule) -> dict[str, Any]:
        """Return the JSON form that the store keeps: the result of a run, and beside it what a watch needs."""
        body = result_body(self.result(rule))
        body["state"] = OPEN if self.phase in UNDONE else DONE
        body["watch"] = {
            "state": str(self.phase), "gaps": list(self.gaps), "signature": self.signature,
            "crossed": self.covered.crossed, "evaluations": self.evaluations, "at": self.at, "stamp": self.stamp,
            "watermarks": {name: None if mark is None else repr(mark) for name, mark in self.marks.items()},
        }  # fmt: skip
        return body


def kept_of(body: Mapping[str, Any]) -> WindowState:
    """Read what ``WindowState.body`` made.

    Raises StoreError: it is damaged, or no watch wrote it.
    """
    result = result_of(body)
    try:
        own = body["watch"]
        return WindowState(
            result.window, WindowPhase(own["state"]),
            FindingTally(Counter(result.counts), dict(result.money)), result.covered,
            tuple(own["gaps"]), own["signature"], int(own["evaluations"]), float(own["at"]),
            float(own["stamp"]), result.seconds, result.snapshots,
            {name: None if mark is None else float(mark) for name, mark in own["watermarks"].items()},
        )  # fmt: skip
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise StoreError(
            f"window {body.get('window')} in the store was not written by a watch: {error}",
            hint="Start a new watch, without --resume.",
        ) from error


def newest_mark(store: ResultStore, run_id: str, rules: RuleSet, source: str) -> float:
    """Return the newest watermark of a source that windows of a watch were evaluated with, 0 for none."""
    marks = (
        kept_of(body).marks.get(source) for rule in rules.rules for body in store.windows(run_id, rule.name)
    )  # fmt: skip
    return max((mark for mark in marks if mark is not None), default=0.0)


def gaps_of(result: RuleResult) -> tuple[str, ...]:
    """Return what was not read or is not known; findings and notes are no gaps."""
    if result.verdict is Verdict.MATCH:
        return ()
    decided = result.verdict is Verdict.MISMATCH or result.counts.get(Class.PENDING, 0)
    if result.gaps or decided:
        return result.gaps
    return result.reasons or ("the evaluation does not say why it is inconclusive",)


@dataclass(slots=True)
class Sums:
    """Windows of a rule over the whole watch: how many in which state, and what they hold together."""

    states: Counter[WindowPhase] = field(default_factory=Counter)
    tally: FindingTally = field(default_factory=FindingTally)
    covered: CoveredWindows = field(default_factory=CoveredWindows)

    def put(self, state: WindowState, sign: int = 1) -> None:
        """Count a window in, or out with -1."""
        self.states[state.phase] += sign
        self.tally.join(state.tally, sign)
        signed = state.covered if sign > 0 else _negative(state.covered)
        self.covered = self.covered + signed

    @property
    def closed(self) -> int:
        """Windows whose evaluation is complete."""
        return sum(count for state, count in self.states.items() if state not in UNDONE)


def _negative(covered: CoveredWindows) -> CoveredWindows:
    return replace(covered, **{name: -getattr(covered, name) for name in CoveredWindows.__slots__})

"""How well a run went, as two numbers that are never added: how people worked, and whether what they did was right.

Both begin at 100, and every deduction is listed: points a piece times pieces, at most the cap of its kind; the sum
does not go below 0. The tables here are the formula.
"""

from __future__ import annotations

from dataclasses import dataclass

from migverify.runbook.events import RollbackState, RunState, StepState
from migverify.runbook.history.drills import ENOUGH_ANSWERS
from migverify.runbook.history.past import PastRun
from migverify.runbook.kinds import RunKind, StepKind

__all__ = ["CORRECTNESS", "PROCESS", "Deduction", "Score", "ScoreRule", "correctness_score", "process_score"]

FULL = 100


@dataclass(frozen=True, slots=True)
class ScoreRule:
    """Points for each piece, and at most how many in all."""

    points: int
    cap: int
    about: str


PROCESS: dict[str, ScoreRule] = {
    "late": ScoreRule(3, 24, "a step that took longer than planned"),
    "holds": ScoreRule(6, 24, "a hold that was not planned"),
    "retries": ScoreRule(4, 20, "a step that was tried again"),
    "undelivered": ScoreRule(3, 18, "an announcement that did not arrive"),
    "silent": ScoreRule(20, 20, "nothing was announced although the runbook has sinks"),
    "backups": ScoreRule(3, 12, "a role that its backup played"),
    "unsigned": ScoreRule(5, 5, "approvals without a signature"),
    "logins": ScoreRule(5, 10, "a login from which several persons acted"),
    "nags": ScoreRule(2, 10, "a step that waited for somebody longer than `unattended_nag`"),
    "takeovers": ScoreRule(5, 10, "a takeover by another executor"),
}
"""What the process score loses points for."""

CORRECTNESS: dict[str, ScoreRule] = {
    "gates": ScoreRule(15, 45, "a gate or check that failed, was inconclusive or timed out"),
    "failures": ScoreRule(10, 40, "another step that failed, was inconclusive or timed out"),
    "unknown": ScoreRule(15, 30, "an effect of which nobody knew whether it had happened"),
    "waived": ScoreRule(15, 30, "a step that was waived"),
    "guards": ScoreRule(10, 30, "a guard that failed"),
    "blind": ScoreRule(
        5, 20, f"a guard without answers, or that answered less than {ENOUGH_ANSWERS:.0%} of its questions"
    ),
    "rollbacks": ScoreRule(20, 60, "a rollback that failed or was not verified"),
    "evidence": ScoreRule(5, 20, "a step that is done, and has nothing to show"),
    "short": ScoreRule(5, 15, "a step that was suspiciously short"),
    "write_stop": ScoreRule(15, 15, "a write stop longer than its budget"),
    "not_completed": ScoreRule(20, 20, "a run that did not complete"),
    "dirty": ScoreRule(60, 60, "a run that ended with effects that stand, or past the point of no return"),
}
"""What the correctness score loses points for."""


@dataclass(frozen=True, slots=True)
class Deduction:
    """Points that a score lost for one kind of thing, and what it was."""

    rule: str
    points: int
    about: str
    pieces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """Points from 0 to 100, and where the others went; None: there is nothing to score, and ``why``."""

    points: int | None
    deductions: tuple[Deduction, ...] = ()
    why: str = ""


def process_score(run: PastRun) -> Score:
    """Score how people worked: lateness, holds, retries, announcements, backups, signatures, nags.

    A dry run has no people, nor has one of the autopilot: no score.
    """
    if run.kind is RunKind.DRY or run.autopilot:
        return Score(None, (), "nobody acted in it" if run.kind is RunKind.DRY else "the autopilot played every role")
    steps = run.steps.values()
    given = run.signed + run.unsigned
    backups = dict.fromkeys(f"{one.role}: {one.person}" for one in run.parts if one.backup)
    return _scored(PROCESS, {
        "late": [one.id for one in steps if one.late],
        "holds": [one.reason for one in run.unplanned_holds],
        "retries": [one.id for one in steps for _ in range(one.attempts - 1)],
        "undelivered": [f"{one.what} to {one.sink}" if one.sink else one.reason for one in run.undelivered],
        "silent": ["no announcement"] if run.silent else [],
        "backups": list(backups),
        "unsigned": [f"{run.unsigned} of {given} approvals"] if run.unsigned else [],
        "logins": [f"{login}: {', '.join(some)}" for login, some in run.shared_logins.items()],
        "nags": [one.id for one in steps if "waiting" in one.alarms],
        "takeovers": [f"{run.takeovers} takeovers"] * run.takeovers,
    })  # fmt: skip


def correctness_score(run: PastRun) -> Score:
    """Score whether what was done was right: gates, failures, unknown effects, guards, rollbacks, evidence, the end.

    A dry run does nothing that could be right or wrong: no score. A run that is not over is scored as not completed.
    """
    if run.kind is RunKind.DRY:
        return Score(None, (), "nothing was done in it")
    steps = run.steps.values()
    bad = [(one, state) for one in steps for state in one.bad]
    asking = (StepKind.GATE, StepKind.CHECK)
    known = [(one, state) for one, state in bad if state is not StepState.UNKNOWN]
    stand = run.state in (RunState.ABORTED_DIRTY, RunState.FAILED_PAST_PNR)
    over = run.write_stop_budget is not None and not run.write_stop <= run.write_stop_budget
    well = run.state is RunState.COMPLETED or (run.state is RunState.ROLLED_BACK and run.rollback_by_person)
    return _scored(CORRECTNESS, {
        "gates": [f"{one.id} was {state.value}" for one, state in known if one.kind in asking],
        "failures": [f"{one.id} was {state.value}" for one, state in known if one.kind not in asking],
        "unknown": [one.id for one, state in bad if state is StepState.UNKNOWN],
        "waived": [one.id for one in steps if one.state is StepState.WAIVED],
        "guards": [one.id for one in run.guards if one.failed],
        "blind": [one.id for one in run.guards if one.inconclusive or not one.share >= ENOUGH_ANSWERS],
        "rollbacks": [f"{one.step}: {one.state.value}" for one in run.undone
                      if one.state is not RollbackState.UNDONE_VERIFIED],
        "evidence": [one.id for one in steps if one.state is StepState.DONE and not one.evidence],
        "short": [one.id for one in steps if "short" in one.alarms],
        "write_stop": [f"{run.write_stop:.0f} s of {run.write_stop_budget:g} s"] if over else [],
        "not_completed": [run.state.value] if not well and not stand else [],
        "dirty": [run.state.value] if stand else [],
    })  # fmt: skip


def _scored(rules: dict[str, ScoreRule], found: dict[str, list[str]]) -> Score:
    lost = []
    for name, rule in rules.items():
        pieces = found[name]
        if pieces:
            lost.append(Deduction(name, min(rule.cap, rule.points * len(pieces)), rule.about, tuple(pieces)))
    return Score(max(0, FULL - sum(one.points for one in lost)), tuple(lost))

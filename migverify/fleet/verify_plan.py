"""Which verification each service needs: none where a proof is young enough, else the cheapest that proves it. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from migverify.config import Config
from migverify.decision.decide import age_text
from migverify.errors import CHANGED_SINCE, NOTHING_TO_RECHECK
from migverify.figures import amount
from migverify.fleet.budget import ConnectionBudget, demand_of
from migverify.fleet.definition import Fleet, FleetService
from migverify.fleet.judge import newest_proof, whole_read_words
from migverify.fleet.model import FleetPart, ServiceEvidence, ServiceStanding, VerifyEvidence
from migverify.fleet.read import ServiceView
from migverify.model import Verdict

SKEW = 120.0
"""Seconds by which clocks may differ before a proof is of the future, and does not count."""


class VerifyAction(StrEnum):
    """What is done for a service."""

    REUSE = "reuse"
    RESUME = "resume"
    RECHECK = "recheck"
    SINCE = "since"
    WHOLE = "whole"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ServiceVerification:
    """One service in the order of work.

    Parameters
    ----------
    run
        The run that it reuses, resumes, rechecks or rests on.
    read
        Tables that the run to resume has read.
    demand
        Connections by server.
    why
        In words; for ``NONE`` why nothing is done.
    refusal
        In words, which cheaper action was refused before; empty: none was.
    newest
        The newest verification when this was planned: a child that fails early leaves it as it was.
    differs
        The newest verification that found tables to differ, as far as no full proof is newer; None: there is none.
    """

    service: FleetService
    action: VerifyAction
    run: str = ""
    why: str = ""
    demand: Mapping[str, int] = field(default_factory=dict)
    read: int = 0
    refusal: str = ""
    newest: VerifyEvidence | None = None
    differs: VerifyEvidence | None = None

    @property
    def is_begun(self) -> bool:
        """Whether something is run for the service."""
        return self.action not in (VerifyAction.REUSE, VerifyAction.NONE)

    @property
    def arguments(self) -> tuple[str, ...]:
        """Arguments of the command; a store's password is never one of them."""
        service, store = self.service, () if self.service.store is None else ("--store", self.service.store)
        option = {VerifyAction.RESUME: "--resume", VerifyAction.RECHECK: "--recheck", VerifyAction.SINCE: "--since"}
        more = (option[self.action], self.run) if self.action in option else ()
        return ("tables", "verify", "--quiet", "--config", service.config, *store, *more)


def plan_verifications(
    fleet: Fleet, views: Sequence[ServiceView], name_servers: Callable[[Iterable[Config]], Mapping[str, str]]
) -> list[ServiceVerification]:
    """Return what each service that is not cut over needs, in the order of work: by wave, the oldest proof first.

    ``name_servers`` names the servers of what is begun (``server_names`` asks them).
    """
    waves = [wave.name for wave in fleet.waves]

    def order(view: ServiceView) -> tuple[int, float]:
        proof = newest_proof(view.evidence)
        proved = proof.proved_at if proof is not None and proof.proved_at is not None else 0.0
        return waves.index(view.service.wave), proved

    left = [view for view in views if view.state.standing is not ServiceStanding.CUT_OVER]
    needed = [(_needed(fleet, view), view.config) for view in sorted(left, key=order)]
    names = name_servers(config for task, config in needed if config is not None and task.is_begun)
    return [task if config is None else replace(task, demand=demand_of(config, names)) for task, config in needed]


def whole_instead(task: ServiceVerification, words: str) -> ServiceVerification | None:
    """Return the whole verification that follows where a run cannot be resumed or rechecked.

    None where the words of the command say anything else: it would be the same then, or is worth another attempt.
    """
    is_refused = any(text in words for text in (CHANGED_SINCE, NOTHING_TO_RECHECK))
    if task.action not in (VerifyAction.RESUME, VerifyAction.RECHECK) or not is_refused:
        return None
    refusal = f"{task.action} of run {task.run} was refused: {words.removeprefix('error: ')}"
    return replace(task, action=VerifyAction.WHOLE, run="", why=refusal, refusal=refusal)


def _needed(fleet: Fleet, view: ServiceView) -> ServiceVerification:
    service, config = view.service, view.config
    if config is None:
        problem = view.evidence.unread.get(FleetPart.PROOF, "its configuration cannot be read")
        return ServiceVerification(service, VerifyAction.NONE, why=problem)
    action, run, why = needed_action(view.evidence, fleet.proof_max_age, fleet.whole_read_max_age)
    runs = view.evidence.verifications
    return ServiceVerification(
        service, action, run, why, read=runs[0].read if action is VerifyAction.RESUME else 0,
        newest=runs[0] if runs else None, differs=known_difference(view.evidence),
    )  # fmt: skip


def known_difference(evidence: ServiceEvidence) -> VerifyEvidence | None:
    """Return the newest verification in which tables differ, and that no full proof follows; None: there is none."""
    proof = newest_proof(evidence)
    newer = itertools.takewhile(lambda one: one is not proof, evidence.verifications)
    return next((one for one in newer if one.mismatches and not one.strange), None)


def never_begins(fleet: Fleet, task: ServiceVerification) -> str:
    """Return why a verification can never begin within the limits of the fleet; empty: it can, or nothing is run."""
    if not task.is_begun:
        return ""
    why = ConnectionBudget(fleet.limits.of).exceeded(task.demand)
    return why and f"not begun: {why}; lower `connections` in {task.service.config}, or raise limits.connections"


def needed_action(
    evidence: ServiceEvidence, most_age: float, whole_read_max_age: float | None = 7 * 86_400.0
) -> tuple[VerifyAction, str, str]:
    """Return the action, the run that it uses, and why."""
    proof = newest_proof(evidence)
    newest = evidence.verifications[0] if evidence.verifications else None

    def is_young(moment: float | None) -> bool:
        return moment is not None and -SKEW <= evidence.now - moment <= most_age

    if (
        proof is not None
        and proof is newest
        and is_young(proof.proved_at)
        and not _needs_whole_read(evidence, proof, whole_read_max_age)
    ):
        age = age_text(evidence.now - (proof.proved_at or 0.0))
        left_out = f", of {proof.shown_tables}" if proof.left_out else ""
        rests = "" if proof.rests_on is None else f"; it rests on a {whole_read_words(proof.rests_on, evidence.now)}"
        return VerifyAction.REUSE, proof.run, f"full proof {proof.run} is {age} old{left_out}{rests}"
    stale = ""
    if newest is not None and newest.can_resume and not newest.partial:
        if is_young(newest.began):
            return VerifyAction.RESUME, newest.run, f"run {newest.run} was not finished"
        stale = (
            f"run {newest.run} read {newest.read:,} of {amount(newest.tables, 'table')}, and began longer ago than"
            f" proof_max_age ({age_text(most_age)}), so it begins anew"
        )
    is_open = newest is not None and newest.verdict is not Verdict.MATCH and not newest.strange and not newest.partial
    if newest is not None and is_open and not stale and is_young(newest.proved_at):
        return VerifyAction.RECHECK, newest.run, f"run {newest.run} was {newest.verdict.value}"
    if proof is None:
        return VerifyAction.WHOLE, "", stale or "there is no full proof"
    if why := _needs_whole_read(evidence, proof, whole_read_max_age):
        return VerifyAction.WHOLE, "", why
    if not stale and newest is not None and is_young(proof.proved_at):
        age, why = age_text(evidence.now - (proof.proved_at or 0.0)), newest.partial or newest.strange
        stale = f"full proof {proof.run} is {age} old, and run {newest.run} is newer: {why or 'it is no full proof'}"
    return VerifyAction.SINCE, proof.run, stale or f"full proof {proof.run} is too old"


def _needs_whole_read(evidence: ServiceEvidence, proof: VerifyEvidence, most_age: float | None) -> str:
    """Return why what the source wrote since a proof is not enough; empty: it is."""
    newer = itertools.takewhile(lambda one: one is not proof, evidence.verifications)
    differs = [one.run for one in newer if one.mismatches and not one.strange]
    if found := (*differs, *proof.unrefuted):
        return f"tables differ in run {found[0]}, and a change on the target alone is in no binlog"
    read = proof.rests_on
    if read is None or most_age is None:
        return ""
    if read.at is None:
        return f"of when the whole read {read.run} is, on which proof {proof.run} rests, is not known"
    age = evidence.now - read.at
    return "" if age <= most_age else f"the whole read {read.run}, on which proof {proof.run} rests, is too old"

"""Rules of steps: evidence, rollback, what happens on failure, and what they refer to."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Iterator
from itertools import pairwise

from migverify.runbook.conditions import taken_ids
from migverify.runbook.definition.findings import LintFinding, finding
from migverify.runbook.definition.lint_ground import Ground, kinds_of, places_of
from migverify.runbook.graph import ACTING, acts
from migverify.runbook.kinds import OnFail, Repeat, RunbookKind, RunKind, StepKind
from migverify.runbook.model import CASE_PARTS, Check, Effect, Step

Way = tuple[str | int, ...]


def step_rules(ground: Ground) -> Iterator[LintFinding]:
    """Yield what is wrong with steps, and with what they and the guards refer to."""
    yield from _ids(ground)
    for number, step in enumerate(ground.runbook.steps):
        yield from _evidence(ground, number, step)
        yield from _rollback(ground, number, step)
        yield from _failure(ground, number, step)
        yield from _references(ground, number, step)
        yield from _gates(ground, number, step)
        yield from _twin(ground, number, step)
    yield from _circles(ground)
    yield from _actions(ground)
    yield from _commands(ground)
    yield from _guards(ground)
    yield from _cases(ground)


def _ids(ground: Ground) -> Iterator[LintFinding]:
    book = ground.runbook
    seen: set[str] = set()
    for number, step in enumerate(book.steps):
        if step.id in seen:
            yield ground.at("duplicate-id", number, ("id",), "a step of this id is there already")
        seen.add(step.id)
    for key, ids in (("phases", book.phase_ids), ("guards", tuple(guard.id for guard in book.guards))):
        for number, id_ in enumerate(ids):
            if id_ in ids[:number]:
                text = f"{key} {id_}: the id is there already"
                yield finding("duplicate-id", ground.places.at(key, number, "id"), text)


def _evidence(ground: Ground, number: int, step: Step) -> Iterator[LintFinding]:
    free = step.kind in (StepKind.WAIT, StepKind.ANNOUNCE) or (step.kind is StepKind.DECISION and step.requires)
    if step.attest and (step.kind is not StepKind.MANUAL or step.reviewer is None):
        yield ground.at("attest-unfit", number, ("attest",), "nobody could attest it, or nobody accepts it")
    if not step.expect and not free and not step.attest:
        yield ground.at("no-expect", number, (), "nothing proves that it worked")
    if step.effect is None and step.kind in (*ACTING, StepKind.WAIT):
        key = "wait" if step.kind is StepKind.WAIT else "do"
        yield ground.at("no-effect", number, ("kind",), f"a step of kind {step.kind.value} without {key}")
    if not step.instruction and (acts(step) or step.kind in (StepKind.MANUAL, StepKind.DECISION)):
        yield ground.at("no-instruction", number, (), "nothing says how it is done by hand")
    if acts(step) and step.effect is not None and step.repeat is not Repeat.YES and step.reconcile is None:
        text = f"repeat: {step.repeat.value}, and nothing tells whether the effect happened when the executor dies"
        yield ground.at("no-reconcile", number, ("repeat",), text)


def _rollback(ground: Ground, number: int, step: Step) -> Iterator[LintFinding]:
    one = step.rollback
    if one is None:
        if acts(step) and not step.point_of_no_return:
            yield ground.at("no-rollback", number, (), "it acts, and cannot be taken back")
        return
    if not one.verify:
        yield ground.at("rollback-without-verify", number, ("rollback",), "nothing proves that it is taken back")
    if one.effect is None and not one.instruction:
        yield ground.at("rollback-without-way", number, ("rollback",), "nothing says how it is taken back")
    if one.plan is None and ground.runbook.window is not None:
        text = "its rollback has no planned time, so nobody knows until when it fits the window"
        yield ground.at("rollback-without-time", number, ("rollback",), text)
    end = ground.network.number.get(one.valid_until) if one.valid_until else None
    if end is not None and not ground.network.stuck and not ground.is_before(number, end):
        text = f"it may act when {one.valid_until} has begun, and its rollback has expired then"
        yield ground.at("rollback-expired-before", number, ("rollback", "valid_until"), text)


def _failure(ground: Ground, number: int, step: Step) -> Iterator[LintFinding]:
    if step.on_fail.then is OnFail.RETRY:
        if step.on_fail.times <= 0:
            yield ground.at("retry-without-bound", number, ("on_fail",), f"{step.on_fail.times} retries")
        if step.repeat is Repeat.NO and step.effect is not None:
            yield ground.at("retry-of-unrepeatable", number, ("on_fail",), "a retry could make its effect happen twice")
    if (
        step.on_fail.then is OnFail.GOTO
        and step.on_fail.goto is not None
        and step.on_fail.goto in ground.network.number
    ):
        # An unordered step, too, can lead back here; only a step behind this one is certainly ahead.
        ahead = ground.is_before(number, ground.network.number[step.on_fail.goto])
        if not ahead and step.on_fail.times <= 0:
            yield ground.at(
                "goto-without-bound", number, ("on_fail",), f"it goes back to {step.on_fail.goto} without end"
            )


def _references(ground: Ground, number: int, step: Step) -> Iterator[LintFinding]:
    book, known = ground.runbook, ground.network.number
    ends = step.rollback.valid_until if step.rollback else None
    for way, ids in (
        (("needs",), step.needs), (("on_fail",), (step.on_fail.goto,)), (("requires",), step.requires),
        (("rollback", "valid_until"), (ends,)), (("twin",), (step.twin,)),
    ):  # fmt: skip
        for id_ in ids:
            if id_ is not None and id_ not in known:
                yield ground.at("unknown-step", number, way, f"there is no step {id_}", nearest(id_, known))
    order = {phase: one for one, phase in enumerate(book.phase_ids)}
    for id_ in step.needs:
        if id_ in known and order[book.steps[known[id_]].phase] > order[step.phase]:
            phase = book.steps[known[id_]].phase
            yield ground.at("needs-later-phase", number, ("needs",), f"{id_} is in the later phase {phase}")
    sinks = list(book.sinks)
    for name in step.announce.to:
        if name not in sinks:
            text = f"there is no sink {name}"
            yield ground.at("unknown-sink", number, ("announce", "to"), text, nearest(name, sinks))
    for name in step.only.environments:
        if name not in book.environments:
            text = f"there is no environment {name}"
            yield ground.at("unknown-environment", number, ("only", "env"), text, nearest(name, book.environments))


def _gates(ground: Ground, number: int, step: Step) -> Iterator[LintFinding]:
    book, known = ground.runbook, ground.network.number
    if step.point_of_no_return and not step.requires:
        text = "a point of no return that requires nothing"
        yield ground.at("no-gate", number, ("point_of_no_return",), text)
    for id_ in step.requires:
        if id_ not in known:
            continue
        gate = book.steps[known[id_]]
        if not ground.network.stuck and not ground.is_before(known[id_], number):
            yield ground.at("gate-not-before", number, ("requires",), f"{id_} need not be finished before it")
        if not (kinds_of(step) <= kinds_of(gate) and places_of(step, book) <= places_of(gate, book)):
            yield ground.at("gate-not-applicable", number, ("requires",), f"{id_} does not apply wherever it does")


def _twin(ground: Ground, number: int, step: Step) -> Iterator[LintFinding]:
    book = ground.runbook
    if not acts(step):
        return
    elsewhere = frozenset(book.environments) - frozenset(book.production)
    rehearsed = RunKind.REHEARSAL in kinds_of(step) or not kinds_of(step) & {RunKind.LIVE}
    if rehearsed and (not book.production or not elsewhere or places_of(step, book) & elsewhere):
        return
    if step.twin is None:
        where = "live" if not rehearsed else "in production"
        yield ground.at("no-staging-twin", number, ("only",), f"it acts {where} only, and nothing rehearses it")
        return
    found = ground.network.number.get(step.twin)
    if found is None:
        return  # unknown-step says it
    twin = book.steps[found]
    runs = RunKind.REHEARSAL in kinds_of(twin) and (not elsewhere or bool(places_of(twin, book) & elsewhere))
    same = twin.effect is not None and step.effect is not None and twin.effect.action == step.effect.action
    if found == number or not runs or (not same and step.effect is not None):
        why = "is never rehearsed itself" if found == number or not runs else "has another action"
        yield ground.at("no-staging-twin", number, ("twin",), f"its twin {step.twin} {why}")


def _circles(ground: Ground) -> Iterator[LintFinding]:
    """One finding a circle: walk back from a stuck step along stuck needs until a step comes again."""
    stuck = set(ground.network.stuck)
    seen: set[int] = set()
    for first in ground.network.stuck:
        way: dict[int, int] = {}
        one = first
        while one not in way and one not in seen:
            way[one] = len(way)
            one = next(need for need in ground.network.needs[one] if need in stuck)
        if one in way:
            circle = [n for n, rank in way.items() if rank >= way[one]]
            names = " needs ".join(ground.runbook.steps[n].id for n in [*circle, circle[0]][:6])
            more = f" ... ({len(circle)} steps)" if len(circle) > 5 else ""
            yield ground.at("circular-needs", one, ("needs",), f"{names}{more}")
        seen.update(way)


_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "ssh", "find")
"""Programs to which such words may be meant: what follows them is not looked at."""
_OPERATOR = re.compile(r"(?:\|\|?|&&?|;|\d?>>?(?:&\d)?|<<?<?|2>&1|&>>?)|(?:\d?>>?|<)[^<>(=].*|[^;]+;|`.*`|.*\$\(.*")
_VARIABLE = re.compile(r"\$\{?[A-Za-z_][A-Za-z0-9_]*\}?(?:[/.:].*)?")
_ASSIGNED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*")
_VOID = (("true",), (":",), ("exit", "0"), ("sh", "-c", "true"), ("sh", "-c", "exit 0"), ("sh", "-c", ":"))


def _words(use: Check | Effect) -> list[str]:
    argv = use.arguments.get("argv")
    return [str(word) for word in argv] if isinstance(argv, list | tuple) else []


def shell_syntax(words: list[str]) -> str:
    """Return the first word that only a shell would understand, and that is passed as it is; empty: there is none."""
    if words and _ASSIGNED.fullmatch(words[0]):
        return words[0]
    for place, word in enumerate(words):
        if word.rpartition("/")[2] in _SHELLS:
            return ""
        if " " not in word and (_OPERATOR.fullmatch(word) or _VARIABLE.fullmatch(word)):
            return word
        if place == 0 and word.startswith("~/"):
            return word
    return ""


def _cannot_fail(words: list[str]) -> bool:
    if not words:
        return False
    plain = (words[0].rpartition("/")[2], *words[1:])
    return plain in _VOID or plain[0] == "echo"


def _commands(ground: Ground) -> Iterator[LintFinding]:
    for number, step in enumerate(ground.runbook.steps):
        back = step.rollback.effect if step.rollback is not None else None
        for where, effect in ((("do",), step.effect), (("rollback", "do"), back)):
            word = shell_syntax(_words(effect)) if effect is not None else ""
            if word:
                yield ground.at("shell-syntax", number, where, f"{word} would be passed to the program as it is")
    for step_number, way, check in ground.checks():
        words = _words(check)
        if word := shell_syntax(words):
            yield ground.of_check("shell-syntax", step_number, way, f"{word} would be passed to the program as it is")
        if check.action == "command.exit" and _cannot_fail(words):
            yield ground.of_check("check-cannot-fail", step_number, way, f"`{' '.join(words)}` proves nothing")


def _actions(ground: Ground) -> Iterator[LintFinding]:
    for number, step in enumerate(ground.runbook.steps):
        if step.effect is not None:
            wanted = ("effect", "check") if step.kind is StepKind.WAIT else ("effect",)
            yield from _effect(ground, number, ("do",), step.effect, wanted)
        if step.rollback is not None and step.rollback.effect is not None:
            yield from _effect(ground, number, ("rollback", "do"), step.rollback.effect, ("effect",))
    for step_number, way, check in ground.checks():
        known = ground.actions.get(check.action)
        if known is None or known.kind != "check":
            what = "no action is named" if known is None else "it is an effect, and no check:"
            hint = nearest(check.action, [name for name, one in ground.actions.items() if one.kind == "check"])
            yield ground.of_check("unknown-action", step_number, (*way, "check"), f"{what} {check.action}", hint)
            continue
        for problem in known.problems(check.arguments):
            yield ground.of_check("wrong-arguments", step_number, way, problem)
        bounds = [one for one in (check.minimum, check.maximum) if one is not None]
        if not all(math.isfinite(one) for one in bounds) or (len(bounds) == 2 and bounds[0] > bounds[1]):
            yield ground.of_check("bounds-contradict", step_number, way, f"no answer of {check.action} could pass")
        elif not bounds and check.equals is None and known.default is None:
            yield ground.of_check("no-bounds", step_number, way, f"{check.action} passes only if it answers yes or no")


def _effect(ground: Ground, number: int, way: Way, effect: Effect, wanted: tuple[str, ...]) -> Iterator[LintFinding]:
    known = ground.actions.get(effect.action)
    if known is None or known.kind not in wanted:
        what = "no action is named" if known is None else "it is a check, and has no effect:"
        hint = nearest(effect.action, [name for name, one in ground.actions.items() if one.kind in wanted])
        yield ground.at("unknown-action", number, way, f"{what} {effect.action}", hint)
        return
    for problem in known.problems(effect.arguments):
        yield ground.at("wrong-arguments", number, way, problem)


def _guards(ground: Ground) -> Iterator[LintFinding]:
    book, taken = ground.runbook, taken_ids(ground.runbook)
    for number, guard in enumerate(book.guards):
        if guard.id in taken:
            text = f"guard {guard.id}: the run has one of this name itself"
            yield finding("guard-name-taken", ground.places.at("guards", number, "id"), text)
        for phase in guard.armed_in:
            if phase != "*" and phase not in book.phase_ids:
                where = ground.places.at("guards", number, "armed_in")
                text = f"guard {guard.id}: there is no phase {phase}"
                yield finding("unknown-phase", where, text, nearest(phase, book.phase_ids))
    if book.environment not in book.environments:
        text = f"there is no environment {book.environment}"
        yield finding("unknown-environment", ground.places.at("environments"), text)


def _cases(ground: Ground) -> Iterator[LintFinding]:
    book, at = ground.runbook, ground.places.at
    where = ("policy", "readiness", "dr_cases", "required")
    for id_ in book.policy.readiness.dr_cases.required:
        if ground.cases is None or id_ not in ground.cases:
            text = f"there is no case {id_}" if ground.cases is not None else f"case {id_}: no catalogue to look in"
            hint = "" if ground.cases is not None else "Name its folder: --cases FOLDER."
            yield finding("unknown-case", at(*where), text, hint)
    if book.kind is not RunbookKind.DR_CASE:
        return
    if book.case is None:
        yield finding("case-incomplete", at("kind"), "a disaster recovery case without `case`")
        return
    steps = book.case.steps
    for part in CASE_PARTS:
        if part not in steps:
            yield finding("case-incomplete", at("case", "steps"), f"no step is named for {part}")
        elif steps[part] not in ground.network.number:
            yield finding("unknown-step", at("case", "steps", part), f"case: there is no step {steps[part]}")
    known = [(part, ground.network.number[steps[part]]) for part in CASE_PARTS
             if steps.get(part) in ground.network.number]  # fmt: skip
    for (one, first), (other, second) in pairwise(known):
        if not ground.network.stuck and first != second and not ground.is_before(first, second):
            yield finding("case-incomplete", at("case", "steps", other), f"{other} need not come after {one}")


def nearest(name: str, known: Collection[str]) -> str:
    """Advice for an unknown name: the one that was meant; empty where none is near."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"Did you mean {close[0]}?" if close else ""

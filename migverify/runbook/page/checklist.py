"""A runbook on paper: what is to be done, by whom, with boxes to tick, for when every tool is down. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from migverify.runbook.cast import Cast, make_cast
from migverify.runbook.definition.plan import Plan, applies, plan_of
from migverify.runbook.model import Approval, Effect, Runbook, RunKind, Step
from migverify.runbook.page.report_text import cell, clock_words, utc_words
from migverify.runbook.page.view_steps import action_words, check_words

__all__ = ["Checklist", "Part", "Todo", "Who", "checklist", "checklist_markdown"]


@dataclass(frozen=True, slots=True)
class Who:
    """A role with its people, and how they are reached."""

    role: str
    person: str
    contact: str
    backup: str


@dataclass(frozen=True, slots=True)
class Todo:
    """A step on paper. ``approve``: who has to agree before it starts; ``danger``: why it is one to stop at."""

    number: str
    id: str
    title: str
    kind: str
    instruction: str
    dri: str
    reviewer: str
    plan: float | None
    maximum: float | None
    needs: tuple[str, ...]
    does: str
    expects: tuple[str, ...]
    undo: str
    approve: str
    danger: str


@dataclass(frozen=True, slots=True)
class Part:
    """A phase on paper."""

    id: str
    steps: tuple[Todo, ...]


@dataclass(frozen=True, slots=True)
class Checklist:
    """A runbook on paper. ``times`` and ``guards`` are pairs of name and words."""

    runbook: Runbook
    kind: RunKind
    people: tuple[Who, ...]
    times: tuple[tuple[str, str], ...]
    guards: tuple[tuple[str, str], ...]
    phases: tuple[Part, ...]


def checklist(runbook: Runbook, kind: RunKind) -> Checklist:
    """Return the steps that apply to a kind of run, in their order.

    Raises
    ------
    ConfigError
        steps wait for each other.
    """
    cast, plan = make_cast(runbook, kind), plan_of(runbook, kind)
    contacts = {one.name: one.contact for one in runbook.people}
    people = tuple(
        Who(role, held[0], contacts.get(held[0], ""),
            f"{held[1]}{f', {contacts[held[1]]}' if contacts.get(held[1]) else ''}" if len(held) > 1 else "")
        for role, held in cast.declared.items() if held
    )  # fmt: skip
    guards = tuple((one.id, check_words(one.check)) for one in runbook.guards)
    return Checklist(
        runbook, kind, people, tuple(_times(runbook, plan)), guards, tuple(_phases(runbook, kind, cast, plan))
    )


def _times(runbook: Runbook, plan: Plan) -> Iterator[tuple[str, str]]:
    yield "planned", f"{'at least ' if plan.unknown else ''}{clock_words(plan.total)}"
    if runbook.window is not None:
        yield "window", f"{utc_words(runbook.window.opens)} to {utc_words(runbook.window.closes)}"
    budgets = runbook.budgets
    if budgets.write_stop is not None:
        yield "write stop", f"at most {clock_words(budgets.write_stop)}; then go back"
    if budgets.decision_by is not None:
        yield "decide", f"go or back, at the latest {clock_words(budgets.decision_by)} after the start"
    yield "critical path", " > ".join(plan.critical_path)


def _phases(runbook: Runbook, kind: RunKind, cast: Cast, plan: Plan) -> Iterator[Part]:
    planned = {one.id: one.duration for one in plan.steps if one.known}
    for number, phase in enumerate(dict.fromkeys(one.phase for one in runbook.steps), start=1):
        some = [one for one in runbook.steps if one.phase == phase and applies(one, runbook.environment, kind)]
        todos = tuple(
            _todo(f"{number}.{place}", step, cast, planned.get(step.id)) for place, step in enumerate(some, start=1)
        )
        if todos:
            yield Part(phase, todos)


def _todo(number: str, step: Step, cast: Cast, plan: float | None) -> Todo:
    dangers = {"soft": "point of no return (soft)", "hard": "POINT OF NO RETURN"}
    danger = [dangers[step.point_of_no_return]] if step.point_of_no_return else []
    danger += [f"writes {'stop' if step.write_stop == 'begin' else 'open'} here"] if step.write_stop else []
    return Todo(
        number, step.id, step.title, step.kind.value, step.instruction, _person(cast, step.dri),
        _person(cast, step.reviewer) if step.reviewer else "", plan, step.times.maximum, step.needs,
        _effect(step.effect), tuple(check_words(one) for one in step.expect), _undo(step),
        _approve(step, step.approval, cast), ", ".join(danger),
    )  # fmt: skip


def _person(cast: Cast, part: str) -> str:
    held = cast.holders(part)
    if not held:
        return f"nobody ({part})"
    return held[0] if held[0] == part else f"{held[0]} ({part})"


def _effect(effect: Effect | None) -> str:
    if effect is None:
        return ""
    return action_words(effect.action, effect.arguments)


def _undo(step: Step) -> str:
    rollback = step.rollback
    if rollback is None:
        return ""
    parts = [rollback.instruction.strip().rstrip("."), _effect(rollback.effect)]
    parts += [f"proved by {check_words(one)}" for one in rollback.verify]
    valid = f"valid until {rollback.valid_until.removeprefix('step:')}" if rollback.valid_until else ""
    plan = f"planned for {clock_words(rollback.plan)}" if rollback.plan is not None else "without a planned time"
    parts += [plan, valid, f"data loss: {rollback.data_loss.value}"]
    return "; ".join(one for one in parts if one)


def _approve(step: Step, approval: Approval | None, cast: Cast) -> str:
    if step.point_of_no_return and cast.holders("decision_owner"):
        return f"{cast.holders('decision_owner')[0]} agrees"
    if approval is not None and approval.before in ("start", "both") and step.reviewer:
        return f"{_person(cast, step.reviewer)} agrees"
    return ""


def checklist_markdown(paper: Checklist) -> str:
    """Return the checklist as Markdown, which reads as plain text too; it ends with a line break."""
    return "\n".join(_lines(paper)) + "\n"


def _lines(paper: Checklist) -> Iterator[str]:
    book = paper.runbook
    yield f"# {cell(book.title)}"
    yield ""
    where = f"run of kind {paper.kind.value} in {cell(book.environment)}"
    yield f"{book.kind.value} {cell(book.id)}, {where}, {book.sha[:16]}"
    yield ""
    for one in paper.people:
        reached = f", {cell(one.contact)}" if one.contact else ""
        yield f"- {cell(one.role)}: {cell(one.person)}{reached}{f' (backup {cell(one.backup)})' if one.backup else ''}"
    yield from (f"- {name}: {cell(words)}" for name, words in paper.times)
    if paper.guards:
        yield ""
        yield "Hold the run when one of these does not hold:"
        yield ""
        yield from (f"- {cell(name)}: `{_code(words)}`" for name, words in paper.guards)
    yield ""
    yield "Began at ________"
    for part in paper.phases:
        yield f"\n## {cell(part.id)}"
        for todo in part.steps:
            yield from _todo_lines(todo)


def _todo_lines(todo: Todo) -> Iterator[str]:
    yield f"\n### {todo.number} {cell(todo.id)}: {cell(todo.title)}"
    yield ""
    danger = f"**! {cell(todo.danger)}** " if todo.danger else ""
    limit = f", at most {clock_words(todo.maximum)}" if todo.maximum is not None else ""
    reviewer = f", reviewer {cell(todo.reviewer)}" if todo.reviewer else ""
    after = f" After {cell(', '.join(todo.needs))}." if todo.needs else ""
    yield f"{danger}{todo.kind}. DRI {cell(todo.dri)}{reviewer}. Plan {clock_words(todo.plan)}{limit}.{after}"
    yield ""
    if todo.instruction:
        yield from (f"> {cell(line)}" for line in todo.instruction.strip().splitlines())
        yield ""
    if todo.does:
        yield f"- Do: `{_code(todo.does)}`"
    yield from (f"- It worked when: `{_code(one)}`" for one in todo.expects)
    if todo.undo:
        yield f"- Back: {cell(todo.undo)}"
    yield from (f"- [ ] {word} ________" for word in (
        *([cell(todo.approve)] if todo.approve else []), "called", "started", "done",
        *(["accepted"] if todo.reviewer else []),
    ))  # fmt: skip


def _code(text: str) -> str:
    return " ".join(text.replace("`", "'").split())

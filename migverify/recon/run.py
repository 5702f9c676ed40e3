"""A run of rules, from its beginning to its end in the store.

    rules -> steps (rule, window) -> build -> join -> judge -> read again -> findings -> store -> one result a rule

``explain`` walks the same list of steps. An error of one rule is that rule's reason; what is in the store stays, so a
run that was cut off goes on with what it had not finished.
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Protocol

from migverify import __version__
from migverify.errors import CanceledError, MigverifyError, PlanError, StoreError, UsageError
from migverify.model import RunInfo, StoredKind, TableResult, Verdict
from migverify.recon.bodies import DONE, result_of, window_text
from migverify.recon.build import Built
from migverify.recon.evaluate import Conditions, Sink, evaluate, inconclusive
from migverify.recon.fit import refuse_unfit
from migverify.recon.keep import keep_window, known_windows
from migverify.recon.model import Kind, ParameterValue, Rule, RuleResult, RuleSet, Window
from migverify.recon.outcome import rule_result
from migverify.recon.relation import Engine
from migverify.recon.steps import Span, Step, plan_body, rests, steps_of, widened
from migverify.recon.volume import volume_of
from migverify.store.base import ResultStore, named_run

IMMUTABLE = "immutable: read and matched in run"
Build = Callable[[Rule, Window | None], Built]


class Suite(Protocol):
    """What evaluates rules of kind ``expectations``; ``migverify.recon.suites.SuiteRunner`` is one."""

    def __call__(self, rule: Rule, window: Window | None, run_id: str, sink: Sink) -> RuleResult:
        """Run the suite of a rule; findings go to the sink."""
        ...

    def prepared(self, rule: Rule, window: Window | None) -> object:
        """Raise ``ConfigError`` where the suite does not fit the dataset."""
        ...


@dataclass(frozen=True, slots=True)
class Tools:
    """What a run works with. ``build`` makes the relations of a rule in a window; ``suite`` runs expectations."""

    engine: Engine
    build: Build
    suite: Suite | None = None
    conditions: Conditions = field(default_factory=Conditions)


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for. ``resume`` names a run to go on with; ``full`` reads immutable windows again."""

    command: str
    span: Span = field(default_factory=Span)
    values: Mapping[str, ParameterValue] = field(default_factory=dict)
    resume: str | None = None
    full: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress:
    """What a run tells: the step that begins, or the result of a rule that ended."""

    done: int
    total: int
    rule: str
    window: str
    findings: int
    finished: TableResult | None = None


def run_rules(
    rules: RuleSet,
    tools: Tools,
    store: ResultStore,
    request: Request,
    on_progress: Callable[[Progress], None] = lambda _: None,
    on_start: Callable[[str], None] = lambda _: None,
) -> tuple[str, Verdict]:
    """Evaluate rules and return the run id and the verdict.

    Raises
    ------
    ConfigError, UsageError
        a rule does not fit its datasets, or the span holds no closed window; nothing was run.
    PlanError
        the run to resume was begun with other rules, windows or parameters.
    StoreError
        results cannot be kept; what is in the store stays valid and the run can be resumed.
    KeyboardInterrupt
        passed on; finished windows stay, and the run can be resumed.
    """
    started = time.time()
    steps, run_id = begin(rules, tools, store, request)
    on_start(run_id)
    verdicts: list[Verdict] = []
    done = 0
    try:
        for rule in rules.rules:
            mine = [step for step in steps if step.rule.name == rule.name]
            known = known_windows(store, run_id, rule.name)
            proved = {} if request.full else proved_windows(store, run_id, rules, rule)
            for step in mine:
                name = window_text(step.window)
                on_progress(Progress(done, len(steps), rule.name, name, 0))
                if not known.get(name, False):
                    evaluator = _evaluator(step, rules, tools, run_id, proved.get(name))
                    show = tools.conditions.show
                    keep_window(store, run_id, rule.name, step.window, evaluator, show=show, begun=name in known)
                done += 1
            result = sum_up(rule, rules, store, run_id, len(mine))
            verdicts.append(result.verdict)
            on_progress(Progress(done, len(steps), rule.name, "", 0, result))
    except KeyboardInterrupt:
        facts = {"reasons": ["interrupted; resume it"], "seconds": time.time() - started}
        store.finish_run(run_id, Verdict.INCONCLUSIVE, facts)
        raise
    verdict = Verdict.worst(verdicts)
    store.finish_run(run_id, verdict, {"seconds": time.time() - started, "reasons": []})
    return run_id, verdict


def begin(rules: RuleSet, tools: Tools, store: ResultStore, request: Request) -> tuple[list[Step], str]:
    """Plan the steps, refuse rules that do not fit their datasets, and start or resume the run."""
    plan = plan_body(rules, request.span, request.values)
    digest = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()
    if request.resume is not None:
        info = named_run(store, request.resume, StoredKind.RULES, digest, suits=lambda one: "windows at" in one.facts)
        if info.plan_hash != digest:
            raise PlanError(
                f"run {info.run_id} had other rules, windows or parameters",
                hint="Put them back as they were, or start a new run. Limits and secrets may change.",
            )
        steps = _planned(rules, request, info)
        store.resume_run(info.run_id)
        return steps, info.run_id
    now = tools.conditions.now()
    steps = list(steps_of(rules, request.span, now))
    if not steps:
        raise UsageError(
            "no window is closed yet: every one ends after now less the settle time",
            hint="Give an earlier --from, or wait.",
        )
    firsts = ((rule, next(group).window) for rule, group in groupby(steps, key=lambda step: step.rule))
    refuse_unfit(rules, firsts, lambda rule, window: fits(rule, window, tools.build, tools.suite))
    facts = {
        "engine": tools.engine.name, "migverify": __version__, "python": platform.python_version(),
        "rules": rules.path, "windows at": now, **request.facts,
    }  # fmt: skip
    return steps, store.start_run(request.command, digest, plan, facts, kind=StoredKind.RULES)


def _planned(rules: RuleSet, request: Request, info: RunInfo) -> list[Step]:
    """Return the steps as they were when the run began: windows that closed since then belong to another run."""
    at = info.facts.get("windows at")
    if not isinstance(at, int | float):
        raise PlanError(f"run {info.run_id} is no run of rules", hint="`migverify recon run` starts one.")
    return list(steps_of(rules, request.span, float(at)))


def fits(rule: Rule, window: Window | None, build: Build, suite: Suite | None) -> None:
    """Raise ``ConfigError`` where a rule does not fit its datasets, or its suite does not fit its dataset."""
    if rule.kind is not Kind.EXPECTATIONS:
        build(rule, window)
    elif suite is not None:
        suite.prepared(rule, window)


def _evaluator(
    step: Step, rules: RuleSet, tools: Tools, run_id: str, proved: RuleResult | None
) -> Callable[[Sink], RuleResult]:
    if proved is not None and rests(step, tools.conditions.now()):
        return lambda _: proved
    return lambda sink: evaluate_step(step, rules, tools, run_id, sink)


def evaluate_step(step: Step, rules: RuleSet, tools: Tools, run_id: str, sink: Sink) -> RuleResult:
    """Evaluate one rule in one window; what hinders it is its reason, and hinders no other rule."""
    try:
        if step.rule.kind is Kind.EXPECTATIONS:
            if tools.suite is None:
                return inconclusive(step.rule, step.window, "expectations cannot be run here")
            return tools.suite(step.rule, step.window, run_id, sink)
        reads = tools.build(step.rule, step.window)
        further = widened(step, rules)
        wide = None if further is None else tools.build(step.rule, further)
        volume, note = volume_of(step.rule, step.window, tools.build)
        result = evaluate(
            step.rule, rules, step.window, tools.engine, reads, sink, tools.conditions, wide=wide, volume=volume
        )
        return replace(result, reasons=(*result.reasons, note)) if note else result
    except CanceledError:
        raise KeyboardInterrupt from None
    except StoreError:
        raise
    except MigverifyError as error:
        return inconclusive(step.rule, step.window, f"not evaluated: {error.line}")


def sum_up(rule: Rule, rules: RuleSet, store: ResultStore, run_id: str, planned: int) -> TableResult:
    """Sum up the windows of a rule that are in the store, and keep the rule's result."""
    ended = (result_of(body) for body in store.windows(run_id, rule.name) if body["state"] == DONE)
    result = rule_result(rule, rules, ended, planned=planned)
    store.add_table_result(run_id, result)
    return result


def proved_windows(store: ResultStore, run_id: str, rules: RuleSet, rule: Rule) -> dict[str, RuleResult]:
    """Return windows that matched in an earlier run of the same rules, by name, where the rule has immutable ones."""
    found: dict[str, RuleResult] = {}
    if rule.window is None or rule.window.immutable is None:
        return found
    for info in store.runs():
        if info.run_id == run_id or store.load_run(info.run_id).plan.get("digest") != rules.digest:
            continue
        for body in store.windows(info.run_id, rule.name):
            name = str(body["window"])
            if name in found or body["state"] != DONE or body["verdict"] != Verdict.MATCH:
                continue
            result = result_of(body)
            before = next((text for text in result.reasons if text.startswith(IMMUTABLE)), None)
            note = before or f"{IMMUTABLE} {info.run_id}"
            found[name] = replace(result, reasons=(note,), seconds=0.0)
    return found

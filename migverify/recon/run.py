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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby
from typing import Any

from migverify import __version__
from migverify.errors import CanceledError, MigverifyError, PlanError, StoreError, TimeLimitError, UsageError
from migverify.model import RunInfo, StoredKind, TableResult, Verdict
from migverify.recon.bodies import DONE, bodies, open_body, result_body, result_of, window_text, withdrawn
from migverify.recon.build import Built
from migverify.recon.evaluate import TIME_LIMIT_HIT, Conditions, Sink, evaluate, inconclusive
from migverify.recon.fit import refuse_unfit
from migverify.recon.model import Class, ParameterValue, RuleFinding, RuleResult, Window
from migverify.recon.relation import RuleEngine
from migverify.recon.rule import Rule, RuleSet
from migverify.recon.steps import EvaluationPeriod, RuleStep, is_of_rules_servers, plan_body, rests, steps_of, widened
from migverify.recon.verdict import rule_result
from migverify.recon.windows import unix_time
from migverify.store.results import ResultStore, named_run
from migverify.tables.run_facts import refuse_other_servers

PAGE = 1000
IMMUTABLE = "immutable: read and matched in run"
Build = Callable[[Rule, Window | None], Built]


@dataclass(frozen=True, slots=True)
class RuleTools:
    """What a run works with. ``build`` makes the relations of a rule in a window."""

    engine: RuleEngine
    build: Build
    conditions: Conditions = field(default_factory=Conditions)


@dataclass(frozen=True, slots=True)
class RulesRequest:
    """What a run does. ``resume`` names a run to go on with; ``full`` reads immutable windows again."""

    command: str
    span: EvaluationPeriod = field(default_factory=EvaluationPeriod)
    values: Mapping[str, ParameterValue] = field(default_factory=dict)
    resume: str | None = None
    full: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RulesProgress:
    """What a run tells: the step that begins, or the result of a rule that ended."""

    done: int
    total: int
    rule: str
    window: str
    findings: int
    finished: TableResult | None = None


def run_rules(
    rules: RuleSet,
    tools: RuleTools,
    store: ResultStore,
    request: RulesRequest,
    on_progress: Callable[[RulesProgress], None] = lambda _: None,
    on_start: Callable[[str], None] = lambda _: None,
) -> tuple[str, Verdict]:
    """Evaluate rules and return the run id and the verdict.

    Raises ConfigError, UsageError: a rule does not fit its datasets, or the span holds no closed window; nothing was
    run; PlanError: the run to resume was begun with other rules, windows or parameters; StoreError: results cannot be
    kept; what is in the store stays valid and the run can be resumed; KeyboardInterrupt: passed on; finished windows
    stay, and the run can be resumed.
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
            now = tools.conditions.now()
            expired = any(one.rule == rule.name and unix_time(one.expires) <= now for one in rules.exceptions)
            proved = {} if request.full else proved_windows(store, run_id, rule, has_expired=expired)
            for step in mine:
                name = window_text(step.window)
                on_progress(RulesProgress(done, len(steps), rule.name, name, 0))
                if not known.get(name, False):
                    evaluator = _evaluator(step, rules, tools, proved.get(name))
                    show = tools.conditions.show
                    keep_window(store, run_id, rule.name, step.window, evaluator, show=show, begun=name in known)
                done += 1
            result = sum_up(rule, rules, store, run_id, len(mine))
            verdicts.append(result.verdict)
            on_progress(RulesProgress(done, len(steps), rule.name, "", 0, result))
    except KeyboardInterrupt:
        facts = {"reasons": ["interrupted; resume it"], "seconds": time.time() - started}
        store.finish_run(run_id, Verdict.INCONCLUSIVE, facts)
        raise
    verdict = Verdict.worst(verdicts)
    store.finish_run(run_id, verdict, {"seconds": time.time() - started, "reasons": []})
    return run_id, verdict


def begin(rules: RuleSet, tools: RuleTools, store: ResultStore, request: RulesRequest) -> tuple[list[RuleStep], str]:
    """Plan the steps, refuse rules that do not fit their datasets, and start or resume the run."""
    plan = plan_body(rules, request.span, request.values)
    digest = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()
    if request.resume is not None:
        info = named_run(
            store, request.resume, StoredKind.RULES, digest, suits=lambda one: "windows at" in one.facts,
            is_own=lambda one: is_of_rules_servers(one, request.facts),
        )  # fmt: skip
        if info.plan_hash != digest:
            raise PlanError(
                f"run {info.run_id} had other rules, windows or parameters",
                hint="Put them back as they were, or start a new run. Limits and secrets may change.",
            )
        refuse_other_servers(info, request.facts.get("endpoints") or {})
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
    refuse_unfit(rules, firsts, tools.build)
    facts = {
        "engine": tools.engine.name, "migverify": __version__, "python": platform.python_version(),
        "rules": rules.path, "windows at": now, **request.facts,
    }  # fmt: skip
    return steps, store.start_run(request.command, digest, plan, facts, kind=StoredKind.RULES)


def _planned(rules: RuleSet, request: RulesRequest, info: RunInfo) -> list[RuleStep]:
    """Return the steps as they were when the run began: windows that closed since then belong to another run."""
    at = info.facts.get("windows at")
    if not isinstance(at, int | float):
        raise PlanError(f"run {info.run_id} is no run of rules", hint="`migverify recon run` starts one.")
    return list(steps_of(rules, request.span, float(at)))


def _evaluator(
    step: RuleStep, rules: RuleSet, tools: RuleTools, proved: RuleResult | None
) -> Callable[[Sink], RuleResult]:
    if proved is not None and rests(step, tools.conditions.now()):
        return lambda _: proved
    return lambda sink: evaluate_step(step, rules, tools, sink)


def evaluate_step(step: RuleStep, rules: RuleSet, tools: RuleTools, sink: Sink) -> RuleResult:
    """Evaluate one rule in one window; what hinders it is its reason, and hinders no other rule."""
    try:
        reads = tools.build(step.rule, step.window)
        further = widened(step, rules)
        wide = None if further is None else tools.build(step.rule, further)
        return evaluate(step.rule, rules, step.window, tools.engine, reads, sink, tools.conditions, wide=wide)
    except CanceledError:
        raise KeyboardInterrupt from None
    except StoreError:
        raise
    except TimeLimitError as error:
        return inconclusive(step.rule, step.window, f"not evaluated: {TIME_LIMIT_HIT}: {error.line}")
    except MigverifyError as error:
        return inconclusive(step.rule, step.window, f"not evaluated: {error.line}")


def sum_up(rule: Rule, rules: RuleSet, store: ResultStore, run_id: str, planned: int) -> TableResult:
    """Sum up the windows of a rule that are in the store, and keep the rule's result."""
    ended = (result_of(body) for body in store.windows(run_id, rule.name) if body["state"] == DONE)
    result = rule_result(rule, rules, ended, planned=planned)
    store.add_table_result(run_id, result)
    return result


def proved_windows(
    store: ResultStore, run_id: str, rule: Rule, *, has_expired: bool = False
) -> dict[str, RuleResult]:  # fmt: skip
    """Return windows that matched in an earlier run of the same rules, by name, where the rule has immutable ones.

    That run had the same values of parameters, and read the same servers: those of other services share the store.
    ``has_expired``: a known exception of the rule has, so that windows which matched by one are read again.
    """
    found: dict[str, RuleResult] = {}
    if rule.window is None or rule.window.immutable is None:
        return found
    own = store.load_run(run_id)

    @cache
    def asks_the_same(name: str) -> bool:
        try:
            return _asks_the_same(store.load_run(name), own)
        except UsageError:
            return False  # the run that read a window is not in the store any more

    for info in store.runs():
        if info.run_id == run_id or not asks_the_same(info.run_id):
            continue
        for body in store.windows(info.run_id, rule.name):
            name = str(body["window"])
            if name in found or body["state"] != DONE or body["verdict"] != Verdict.MATCH:
                continue
            result = result_of(body)
            before = next((text for text in result.reasons if text.startswith(IMMUTABLE)), None)
            note = before or f"{IMMUTABLE} {info.run_id}"
            if not asks_the_same(note.removeprefix(IMMUTABLE).strip()):
                continue  # earlier releases took windows over from any run of the rules
            if not (has_expired and result.counts.get(Class.KNOWN_EXCEPTION)):
                found[name] = replace(result, reasons=(note,), seconds=0.0)
    return found


def _asks_the_same(run: RunInfo, own: RunInfo) -> bool:
    """Whether a run has the same rules, values of parameters and servers."""
    is_same = all(run.plan.get(name) == own.plan.get(name) for name in ("digest", "parameters"))
    return is_same and is_of_rules_servers(run, own.facts)


# --- one window in the store ------------------------------------------------------------------------------


def keep_window(
    store: ResultStore, run_id: str, rule: str, window: Window | None, evaluate: Callable[[Sink], RuleResult],
    *, show: bool, begun: bool = True,
) -> RuleResult:  # fmt: skip
    """Evaluate a window and keep its findings and its result: opened, filled with findings as they come, then closed.

    While a window is open, its findings count for nothing: a run that was killed evaluates it again. Findings of an
    earlier evaluation are withdrawn first, so that what does not differ any more does not stay.

    ``evaluate``: Called once with the sink of the window. ``show``: Values of columns may be kept; else they are masked
    before they reach the store. ``begun``: Whether the run may hold findings of this window already; False saves
    looking for them.

    Raises StoreError: what was found cannot be kept.
    """
    batches = 0
    if begun:
        _take_back(store, run_id, rule, window)

    def sink(findings: Sequence[RuleFinding]) -> None:
        nonlocal batches
        batches += 1
        store.add_window(run_id, rule, open_body(rule, window, batches), list(bodies(findings, show=show)))

    store.add_window(run_id, rule, open_body(rule, window, 0), [])
    result = evaluate(sink)
    store.add_window(run_id, rule, result_body(result), [])
    return result


def _take_back(store: ResultStore, run_id: str, rule: str, window: Window | None) -> int:
    """Take back the findings that an earlier evaluation of the window left; return how many there were."""
    name = window_text(window)
    if all(body["window"] != name for body in store.windows(run_id, rule)):
        return 0
    taken, after = 0, 0
    while page := store.findings(run_id, rule, after=after, limit=PAGE, window=name):
        after = page[-1][0]
        taken += len(page)
        store.add_window(run_id, rule, open_body(rule, window, 0), [withdrawn(body) for _, body in page])
    return taken


def known_windows(store: ResultStore, run_id: str, rule: str) -> dict[str, bool]:
    """Return the windows of a rule that the run holds, by name, and whether each was evaluated to its end."""
    return {str(body["window"]): body["state"] == DONE for body in store.windows(run_id, rule)}

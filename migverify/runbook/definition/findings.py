"""What is wrong with a runbook: one finding for each thing, with its rule, its place and what to do.

The rules are data: id, whether it refuses, what it refuses, what to do. The page is made from them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from migverify.config.yaml_text import Steps, YamlDocument
from migverify.runbook.kinds import Place


class LintRule(NamedTuple):
    """One rule. ``id`` never changes its meaning; ``refused`` False: a warning, the runbook runs."""

    id: str
    refused: bool
    what: str
    todo: str


RULES = (
    # the file
    LintRule("shape", True, "a key that is unknown, missing or of another type", "See the table of keys."),
    LintRule("placeholder-left", True, "`{{name}}` without a value, or `__NAME__`",
             "Declare the parameter, or fill it in."),
    LintRule("parameter-missing", True, "a parameter without default that is not given", "Give it: --set NAME=VALUE."),
    LintRule("parameter-unknown", True, "`--set` of a name that the file does not declare",
             "Declare it under `parameters`."),
    LintRule("parameter-unfit", True, "a value that is not of its parameter's type", "Give a value of that type."),
    LintRule("text-in-command", True, "a parameter of type `text` in `run` or `sql`",
             "Give it the type `name` or a number."),
    LintRule("secret-in-file", True, "a password, token or URL with one in the file",
             "Name a variable: `url_env`, `password_env`."),
    LintRule("duplicate-id", True, "two steps, phases or guards of one id", "Give one of them another id."),
    LintRule("guard-name-taken", True,
             "a guard named like one that every run has: `window`, `readiness`, `write-stop`, `decision-by`, "
             "`rollback-when-1`",
             "Give it another id."),
    # people
    LintRule("no-coordinator", True, "no role `coordinator`", "Add it under `roles`: someone calls every step."),
    LintRule("unknown-person", True, "a role or person that the file does not know",
             "Declare it under `roles` or `people`."),
    LintRule("same-person-twice", True, "two people who share a name, alias or key, or look alike",
             "Make them one, with aliases."),
    LintRule("backup-is-person", True, "a role whose backup is the same person", "Name another backup."),
    LintRule("no-reviewer", True, "a step without a reviewer", "Name a reviewer: another person than the DRI."),
    LintRule("reviewer-is-dri", True, "one person who can be DRI and reviewer, also by alias or as backup",
             "Name another reviewer or backup."),
    LintRule("reviewer-excluded", True, "a reviewer whom the policy excludes (the coordinator)",
             "Name another reviewer."),
    LintRule("approval-impossible", True, "more approvals than there are people who count",
             "Ask for fewer, or exclude fewer."),
    LintRule("double-booked", True, "one DRI on steps that may run at once",
             "Order them with `needs`, or name another DRI."),
    LintRule("no-decision-owner", True,
             "a point of no return, or a decision, without a role `decision_owner` in live runs",
             "Add the role `decision_owner`."),
    # steps
    LintRule("no-expect", True, "a step without evidence", "Say under `expect` what proves that it worked."),
    LintRule("check-cannot-fail", True,
             "a command as evidence that always passes (`true`, `:`, `echo`, `exit 0`)",
             "Ask what proves it; a `manual` step that no check can prove takes `attest: what is stated`."),
    LintRule("attest-unfit", True, "`attest` on a step that is not manual, or without a reviewer",
             "Only what a person does is attested, and another person accepts it."),
    LintRule("shell-syntax", True,
             "shell syntax (`|`, `>`, `&&`, `$NAME`, a leading `NAME=`, ...) in `run` or `argv`: there is no shell, "
             "and it would be passed as an argument",
             "Put it into a script, or write `run: sh -c \"...\"`; variables of a command go under `env`."),
    LintRule("no-effect", True, "a step whose kind acts, without `do`",
             "Say under `do` what it does, or make it manual."),
    LintRule("no-instruction", True, "a step that acts, without instruction by hand",
             "Automation may fail: write how it is done."),
    LintRule("rollback-without-verify", True, "a rollback that nothing proves",
             "Say under `rollback.verify` what proves it."),
    LintRule("rollback-without-way", True, "a rollback without `do` and instruction", "Say how it is taken back."),
    LintRule("no-rollback", False, "a step that acts, and cannot be taken back",
             "Add `rollback`, or make it a point of no return."),
    LintRule("no-reconcile", True, "`repeat: no` or `check` without `reconcile` on a step that acts",
             "Add the check that tells whether the effect happened, or `repeat: yes`."),
    LintRule("retry-of-unrepeatable", True, "a retry of a step with `repeat: no`",
             "An effect could happen twice: stop, or `repeat: check`."),
    LintRule("retry-without-bound", True, "a retry of 0 or fewer times", "Say how many times: `retry(3, 10s)`."),
    LintRule("goto-without-bound", True, "a `goto` backwards without `at_most`", "Write `{goto: step, at_most: 2}`."),
    LintRule("no-gate", True, "a point of no return that requires no step", "Name the gates under `requires`."),
    LintRule("gate-not-before", True, "a step that requires one which is not before it", "Add it to `needs`."),
    LintRule("gate-not-applicable", True, "a step that requires one which does not apply where it does",
             "Let the gate apply there too."),
    LintRule("no-staging-twin", True,
             "a step that acts in production only, or live only, without a twin that is rehearsed",
             "Name the step that rehearses it: `twin: id`."),
    LintRule("bounds-contradict", True, "a check whose `min` is above its `max`, or with a bound that is no number",
             "Mend the bounds."),
    LintRule("no-bounds", False, "a check without bounds of an action that has none of its own",
             "Add `min`, `max` or `equals`."),
    # references
    LintRule("unknown-step", True, "a step that is not there", "Mend the id."),
    LintRule("unknown-phase", True, "a guard armed in a phase that is not there", "Mend the id, or write `*`."),
    LintRule("unknown-sink", True, "a sink that is not there", "Declare it under `sinks`."),
    LintRule("unknown-environment", True, "an environment that is not there", "Declare it under `environments`."),
    LintRule("unknown-action", True, "an action that is not registered, or not for this use", "Use a registered one."),
    LintRule("wrong-arguments", True, "arguments that the action does not take, or lacks", "Mend the arguments."),
    LintRule("unknown-case", True, "a required disaster recovery case that is not in the catalogue",
             "Mend the id, or write the case."),
    LintRule("circular-needs", True, "steps that wait for each other", "Take one of the needs away."),
    LintRule("needs-later-phase", True, "a step that needs one of a later phase", "Move one of them."),
    LintRule("rollback-expired-before", True, "an effect at or after the step that ends its rollback",
             "Mend `valid_until`."),
    LintRule("case-incomplete", True, "a `dr-case` without `case`, or with steps of it missing or out of order",
             "Name steps for all parts, in their order."),
    # times
    LintRule("bad-time", True, "a time that is negative, zero or not a number", "Give a time above 0."),
    LintRule("times-out-of-order", True, "times of a step that are not min <= plan <= max", "Mend the times."),
    LintRule("no-plan-time", False, "a step without planned time: it counts 0 until drills have measured it",
             "Add `time.plan`."),
    LintRule("timeout-over-max", True, "an effect's `timeout`, a `wait` or a check's `for` above the step's `max`",
             "Mend one of them."),
    LintRule("over-budget", True, "a timeout, wait or maximum in the write stop above its budget",
             "Shorten it, or move it out."),
    LintRule("write-stop-over-plan", True, "planned steps of the write stop above its budget",
             "Move work out of the write stop."),
    LintRule("handoffs-over-write-stop", True, "more hand-offs between people than the write stop allows",
             "Have fewer people wait for each other inside it: reading gates start by themselves; move reviews out; "
             "or ask for a longer stop."),
    LintRule("write-stop-unpaired", True, "a write stop without begin, end or budget",
             "Mark both steps, and set `budgets.write_stop`."),
    LintRule("window-backwards", True, "a window that closes before it opens", "Mend the window."),
    LintRule("plan-over-window", True, "a critical path that does not fit the window",
             "Shorten the plan, or ask for more time."),
    LintRule("rollback-over-window", True,
             "a moment of the plan at which everything armed could not be taken back in the window",
             "Shorten the plan or the rollbacks."),
    LintRule("rollback-without-time", True, "a rollback without planned time in a runbook with a window",
             "Add `rollback.plan`."),
    LintRule("limit-over-window", True, "`sign_off_ttl` or `decision_by` longer than the window", "Shorten it."),
    LintRule("readiness-contradicts", True, "more clean drills required than drills", "Mend `policy.readiness`."),
    LintRule("no-sink", False, "steps are announced, and there is no sink", "Declare one under `sinks`."),
)  # fmt: skip

RULES_BY_ID = {rule.id: rule for rule in RULES}


def rules_markdown() -> str:
    """Return the table of rules of docs/runbooks.md."""
    lines = ["| rule | refuses | what to do |", "|---|---|---|"]
    for rule in RULES:
        what = rule.what if rule.refused else f"{rule.what} (a warning)"
        lines.append(f"| `{rule.id}` | {what} | {rule.todo} |")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One thing that is wrong; ``rule`` is an id of ``RULES``."""

    rule: str
    place: Place
    text: str
    hint: str

    @property
    def refused(self) -> bool:
        """Whether a runbook with it does not run; otherwise it is a warning."""
        return RULES_BY_ID[self.rule].refused


@dataclass(frozen=True, slots=True)
class Places:
    """Where the parts of a runbook stand in its file; ``steps`` and ``guards`` in the order of the runbook."""

    file: str
    document: YamlDocument = field(default_factory=YamlDocument)
    steps: tuple[Steps, ...] = ()

    def at(self, *way: str | int) -> Place:
        """Return the place of a key, or of the nearest one above it that the file has."""
        found = self.document.place(way)
        return Place((found and found.file) or self.file, found.line if found else 1)

    def in_step(self, number: int, *way: str | int) -> Place:
        """Return the place of a key of a step, by its number in the runbook."""
        return self.at(*(self.steps[number] if number < len(self.steps) else ()), *way)


def finding(rule: str, place: Place, text: str, hint: str = "") -> LintFinding:
    """Return a finding; without a hint it has that of its rule.

    Raises KeyError: there is no such rule.
    """
    return LintFinding(rule, place, text, hint or RULES_BY_ID[rule].todo)

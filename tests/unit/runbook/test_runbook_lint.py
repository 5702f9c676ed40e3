"""One planted fault for each lint rule, in a runbook that is clean without it."""

# ruff: noqa: E501 - a table of planted faults

from __future__ import annotations

import ast
import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from migverify.cli import runbook_check
from migverify.config.yaml_text import read_yaml
from migverify.errors import ConfigError
from migverify.runbook.actions.action import Action, ActionKind, ActionResult, Argument
from migverify.runbook.actions.registry import full_registry
from migverify.runbook.definition.findings import RULES, RULES_BY_ID, LintFinding, Places, rules_markdown
from migverify.runbook.definition.lint import lint, lint_file
from migverify.runbook.definition.lint_steps import shell_syntax
from migverify.runbook.definition.load import known_cases, load_runbook

ROOT = Path(__file__).parents[3]
ACTIONS = {action.name: action for action in full_registry()}

CLEAN = """\
version: runbook/v1
id: cutover
title: Cut {{service}} over
kind: cutover
parameters:
  service: {default: pay}
  words: {type: text, default: some words}
environments:
  staging: {}
  prod: {production: true}
people:
  alice: {aliases: [al]}
  bob: {}
  carol: {}
  dana: {}
  erin: {}
  fred: {}
roles:
  coordinator: {person: alice, backup: erin}
  db1: {person: bob}
  db2: {person: carol, backup: fred}
  decision_owner: {person: dana, only: [live]}
policy:
  sign_off_ttl: 20m
  readiness: {drills_min: 4, clean_last: 2, dr_cases: {required: [p0]}}
window: {opens: "2026-02-02T02:00+09:00", closes: "2026-02-02T03:00+09:00"}
budgets: {write_stop: 3m, decision_by: T+30m, margin: 60s}
sinks:
  chat: {kind: webhook, url_env: CHAT_URL}
guards:
  - {id: lag, check: prom.query, url: "http://p:9090", query: lag, max: 5, for: 10s, every: 30s, armed_in: [cut]}
rollback_when:
  - {check: prom.query, url: "http://p:9090", query: errors, max: 10}
phases:
  - id: prep
    steps:
      - id: gate
        kind: gate
        dri: db1
        reviewer: db2
        time: {plan: 2m, max: 5m, min: 5s}
        expect: [{check: migverify, arguments: [tables, verify]}]
      - id: rest
        kind: wait
        dri: db1
        wait: 30s
        time: {plan: 30s, max: 1m}
  - id: cut
    steps:
      - id: freeze
        kind: command
        instruction: Revoke the account.
        dri: db1
        reviewer: db2
        approve: {min: 1, not: [dri], before: start}
        time: {plan: 20s, max: 1m, min: 1s}
        write_stop: begin
        do: {run: "cut freeze {{service}}", timeout: 45s}
        expect: [{check: command.exit, run: cut frozen}]
        repeat: check
        reconcile: {check: command.exit, run: cut frozen}
        on_fail: rollback
        rollback:
          do: {run: cut thaw}
          instruction: Grant it again.
          verify: [{check: command.exit, run: cut thawed}]
          plan: 15s
          valid_until: step:open
          data_loss: none
        announce: {to: [chat]}
      - id: open
        kind: command
        instruction: Grant the account on the target.
        dri: db1
        reviewer: db2
        time: {plan: 20s, max: 1m}
        write_stop: end
        do: {run: cut open}
        expect: [{check: command.exit, run: cut opened}]
        repeat: check
        reconcile: {check: command.exit, run: cut opened}
        on_fail: retry(2, 5s)
        point_of_no_return: soft
        requires: [gate, freeze]
      - id: hosts
        kind: manual
        instruction: Look at the hosts.
        dri: db1
        reviewer: db2
        time: {plan: 1m, max: 2m}
        expect: [{check: command.exit, run: hosts ok}]
"""

MORE = """\
      - id: more
        kind: check
        dri: {dri}
        reviewer: db2
        needs: [{needs}]
        time: {{plan: 10s, max: 1m}}
        expect: [{{check: command.exit, run: cut more}}]
"""

ACT = """\
      - id: more
        kind: command
        instruction: By hand.
        dri: db1
        reviewer: db2
        time: {plan: 10s, max: 2m}
        do: {run: cut more}
        expect: [{check: command.exit, run: cut done}]
        repeat: yes
        rollback: {instruction: By hand., verify: [{check: command.exit, run: cut undone}], plan: 5s}
"""

CASE = """\
case:
  priority: p0
  tier: L
  expectation: It comes back.
  bar: 30 s
  steps: {steady: gate, inject: freeze, hit: freeze, remove: open, gone: open, steady_again: hosts, data: hosts}
"""

# rule, what stands in the clean file, what is planted instead, text of the line that the finding has to name
PLANTED: list[tuple[str, str, str, str]] = [
    ("shape", "margin: 60s}", "margin: 60s, mergin: 1s}", "mergin"),
    ("shape", "time: {plan: 20s, max: 1m}\n        write_stop: end", "time: {plan: soon}\n        write_stop: end", "soon"),
    ("placeholder-left", "Look at the hosts.", "Look at {{hosts}}.", "{{hosts}}"),
    ("placeholder-left", "Look at the hosts.", "Look at __HOSTS__.", "__HOSTS__"),
    ("parameter-missing", "service: {default: pay}", "service: {}", "service: {}"),
    ("parameter-unfit", "{default: pay}", '{default: "a; rm -rf"}', "rm -rf"),
    ("parameter-unfit", "{default: pay}", "{default: pay, one_of: [orders]}", "one_of"),
    ("text-in-command", "run: cut thaw}", 'run: "cut thaw {{words}}"}', "{{words}}"),
    ("secret-in-file", "url_env: CHAT_URL", "url: http://chat/x", "url: http"),
    ("secret-in-file", "run: cut thaw}", 'run: cut thaw, password: x}', "password"),
    ("secret-in-file", "run: cut thaw}", 'run: "cut thaw mysql://a:b@h"}', "mysql://"),
    ("duplicate-id", "id: hosts", "id: open", "id: open"),
    ("duplicate-id", "id: cut\n", "id: prep\n", "id: prep"),
    ("duplicate-id", "rollback_when:", "  - {id: lag, check: command.exit, run: x}\nrollback_when:", "run: x"),
    ("duplicate-id", "  fred: {}", "  fred: {}\n  db1: {}", "db1: {person"),
    ("no-coordinator", "coordinator: {", "conductor: {", "roles:"),
    ("unknown-person", "db1: {person: bob}", "db1: {person: bod}", "bod"),
    ("unknown-person", "dri: db1\n        wait", "dri: db9\n        wait", "db9"),
    ("unknown-person", "policy:\n", "policy:\n  reviewer_must_differ_from: [dri, boss]\n", "boss"),
    ("same-person-twice", "  bob: {}", "  bob: {aliases: [AL]}", "people:"),
    ("backup-is-person", "{person: alice, backup: erin}", "{person: alice, backup: al}", "backup: al"),
    ("no-reviewer", "dri: db1\n        reviewer: db2\n        time: {plan: 1m", "dri: db1\n        time: {plan: 1m", "id: hosts"),
    ("reviewer-is-dri", "db2: {person: carol, backup: fred}", "db2: {person: carol, backup: bob}", "reviewer: db2"),
    ("reviewer-is-dri", "dri: db1\n        reviewer: db2\n        time: {plan: 1m", "dri: alice\n        reviewer: al\n        time: {plan: 1m", "reviewer: al"),
    ("reviewer-excluded", "reviewer: db2\n        time: {plan: 1m", "reviewer: erin\n        time: {plan: 1m", "reviewer: erin"),
    ("approval-impossible", "{min: 1,", "{min: 6,", "min: 6"),
    ("double-booked", "<end>", MORE.format(dri="bob", needs="open"), "dri: bob"),
    ("no-decision-owner", "only: [live]", "only: [rehearsal]", "point_of_no_return"),
    ("no-expect", "        expect: [{check: command.exit, run: hosts ok}]\n", "", "id: hosts"),
    ("no-effect", "kind: manual", "kind: sql", "kind: sql"),
    ("no-effect", "        wait: 30s\n", "", "kind: wait"),
    ("no-instruction", "        instruction: Look at the hosts.\n", "", "id: hosts"),
    ("rollback-without-verify", "          verify: [{check: command.exit, run: cut thawed}]\n", "", "rollback:"),
    ("rollback-without-way", "<end>", ACT.replace("instruction: By hand., v", "v"), "rollback: {verify"),
    ("no-rollback", "<end>", ACT[: ACT.index("        rollback")], "id: more"),
    ("no-reconcile", "<end>", ACT.replace("repeat: yes", "repeat: no"), "repeat: no"),
    ("retry-of-unrepeatable", "repeat: check\n        reconcile: {check: command.exit, run: cut opened}",
     "repeat: no\n        reconcile: {check: command.exit, run: cut opened}", "on_fail: retry"),
    ("retry-without-bound", "retry(2, 5s)", "retry(0)", "retry(0)"),
    ("goto-without-bound", "on_fail: retry(2, 5s)", "on_fail: {goto: open}", "goto: open"),
    ("no-gate", "        requires: [gate, freeze]\n", "", "point_of_no_return"),
    ("gate-not-before", "requires: [gate, freeze]", "requires: [gate, hosts]", "requires"),
    ("gate-not-applicable", "        expect: [{check: migverify,", "        only: {env: [staging]}\n        expect: [{check: migverify,", "requires"),
    ("no-staging-twin", "<end>", ACT + "        only: {env: [prod]}\n", "only:"),
    ("no-staging-twin", "<end>", ACT + "        only: {runs: [live]}\n", "only:"),
    ("no-staging-twin", "<end>", ACT + "        only: {env: [prod]}\n        twin: more\n", "twin: more"),
    ("no-staging-twin", "<end>", ACT + "        only: {env: [prod]}\n        twin: rest\n", "twin: rest"),
    ("bounds-contradict", "query: errors, max: 10}", "query: errors, max: 10, min: 11}", "errors"),
    ("no-bounds", "query: errors, max: 10}", "query: errors}", "errors"),
    ("unknown-step", "requires: [gate, freeze]", "requires: [gate, freeze, gates]", "requires"),
    ("unknown-step", "valid_until: step:open", "valid_until: step:opn", "opn"),
    ("unknown-step", "<end>", MORE.format(dri="erin", needs="hosts, nothing"), "nothing"),
    ("guard-name-taken", "{id: lag, check", "{id: rollback-when-1, check", "rollback-when-1"),
    ("unknown-phase", "armed_in: [cut]", "armed_in: [cat]", "cat"),
    ("unknown-sink", "to: [chat]", "to: [chad]", "chad"),
    ("unknown-environment", "<end>", MORE.format(dri="erin", needs="hosts") + "        only: {env: [prd, staging]}\n", "prd"),
    ("unknown-action", "{check: command.exit, run: hosts ok}", "{check: command.exist, run: hosts ok}", "exist"),
    ("unknown-action", "{check: command.exit, run: hosts ok}", "{check: command, run: hosts ok}", "hosts ok"),
    ("unknown-action", "do: {run: cut open}", "do: {action: sql.value, endpoint: target, sql: select 1}", "sql.value"),
    ("wrong-arguments", "{check: command.exit, run: hosts ok}", "{check: command.exit, run: hosts ok, mx: 3}", "mx: 3"),
    ("unknown-case", "required: [p0]", "required: [p0, d99]", "d99"),
    ("circular-needs", "<end>", MORE.format(dri="erin", needs="last") + MORE.format(dri="erin", needs="more").replace("id: more", "id: last"), "needs: [last]"),
    ("needs-later-phase", "dri: db1\n        wait", "dri: db1\n        needs: [gate, hosts]\n        wait", "needs: [gate, hosts]"),
    ("rollback-expired-before", "valid_until: step:open", "valid_until: step:rest", "step:rest"),
    ("case-incomplete", "kind: cutover", "kind: dr-case", "kind: dr-case"),
    ("case-incomplete", "kind: cutover\n", "kind: dr-case\n" + CASE.replace("hit: freeze, ", ""), "steady: gate"),
    ("case-incomplete", "kind: cutover\n", "kind: dr-case\n" + CASE.replace("remove: open", "remove: gate"), "steady: gate"),
    ("bad-time", "plan: 1m, max: 2m", "plan: -1m, max: 2m", "-1m"),
    ("bad-time", "timeout: 45s", "timeout: .inf", ".inf"),
    ("bad-time", "sign_off_ttl: 20m", "sign_off_ttl: .nan", "sign_off_ttl"),
    ("times-out-of-order", "max: 1m, min: 1s", "max: 1m, min: 30s", "min: 30s"),
    ("no-plan-time", "        time: {plan: 1m, max: 2m}\n", "", "id: hosts"),
    ("timeout-over-max", "timeout: 45s", "timeout: 61s", "timeout: 61s"),
    ("timeout-over-max", "run: hosts ok}", "run: hosts ok, for: 1h}", "for: 1h"),
    ("over-budget", "max: 1m, min: 1s", "max: 4m, min: 1s", "max: 4m"),
    ("write-stop-over-plan", "write_stop: 3m", "write_stop: 30s", "write_stop: 30s"),
    ("handoffs-over-write-stop", "write_stop: 3m", "write_stop: 1m", "write_stop: 1m"),
    ("write-stop-unpaired", "        write_stop: end\n", "", "write_stop: begin"),
    ("write-stop-unpaired", "write_stop: 3m, ", "", "write_stop: begin"),
    ("write-stop-unpaired", "        write_stop: begin\n", "        write_stop: end\n", "write_stop: end"),
    ("window-backwards", "closes: \"2026-02-02T03", "closes: \"2026-02-02T01", "closes"),
    ("plan-over-window", "time: {plan: 2m, max: 5m", "time: {plan: 2h, max: 5h", "window:"),
    ("rollback-over-window", "plan: 15s", "plan: 58m", "window:"),
    ("rollback-without-time", "          plan: 15s\n", "", "rollback:"),
    ("limit-over-window", "sign_off_ttl: 20m", "sign_off_ttl: 2h", "2h"),
    ("limit-over-window", "T+30m", "T+90m", "T+90m"),
    ("readiness-contradicts", "clean_last: 2", "clean_last: 5", "clean_last: 5"),
    ("check-cannot-fail", "run: hosts ok}", 'run: "true"}', '"true"'),
    ("check-cannot-fail", "run: hosts ok}", "run: \"sh -c 'exit 0'\"}", "exit 0"),
    ("attest-unfit", "instruction: Revoke the account.", "instruction: Revoke the account.\n        attest: It is.", "attest: It is."),
    ("shell-syntax", "run: cut thaw}", 'run: "cut thaw | logger"}', "| logger"),
    ("shell-syntax", "run: cut thaw}", 'run: "cut thaw >log"}', ">log"),
    ("shell-syntax", "run: cut thaw}", 'run: "cut thaw && echo ok"}', "&& echo"),
    ("shell-syntax", "run: cut thaw}", 'run: "cut thaw $HOME/x"}', "$HOME"),
    ("shell-syntax", "run: cut thaw}", 'run: "A=1 cut thaw"}', "A=1"),
    ("shell-syntax", "run: hosts ok}", 'argv: [hosts, "2>&1"]}', "2>&1"),
    ("no-sink", "sinks:\n  chat: {kind: webhook, url_env: CHAT_URL}\n", "", "phases:"),
]  # fmt: skip

# What a planted fault brings with it of necessity.
ALSO = {
    "no-sink": {"unknown-sink"},
    "no-coordinator": {"unknown-person"},
    "reviewer-is-dri": {"reviewer-excluded"},
    "duplicate-id": {"circular-needs", "unknown-phase", "double-booked"},
    "needs-later-phase": {"circular-needs"},
    "over-budget": {"write-stop-over-plan"},
    "write-stop-over-plan": {"over-budget"},
    "secret-in-file": {"wrong-arguments"},
    "no-effect": {"no-instruction", "no-rollback", "no-reconcile"},
    "bad-time": {"times-out-of-order", "timeout-over-max", "over-budget"},
    "unknown-person": {"no-decision-owner"},
}


def planted(tmp_path: Path, old: str, new: str) -> tuple[Path, str]:
    assert old == "<end>" or CLEAN.count(old) >= 1, old
    text = CLEAN + new if old == "<end>" else CLEAN.replace(old, new, 1)
    path = tmp_path / "cutover.yaml"
    path.write_text(text, encoding="utf-8")
    return path, text


def look(path: Path, given: dict[str, str] | None = None, environment: str = "staging") -> tuple[LintFinding, ...]:
    return lint_file(path, given or {}, environment, ACTIONS, {"p0", "d01"})[1]


def test_the_clean_runbook_is_clean(tmp_path: Path) -> None:
    path, _ = planted(tmp_path, "<end>", "")
    for environment in ("staging", "prod"):
        assert look(path, environment=environment) == ()


@pytest.mark.parametrize(
    ("rule", "old", "new", "line"), PLANTED, ids=[f"{n}-{one[0]}" for n, one in enumerate(PLANTED)]
)
def test_a_planted_fault_is_found_where_it_stands(tmp_path: Path, rule: str, old: str, new: str, line: str) -> None:
    path, text = planted(tmp_path, old, new)
    findings = look(path)
    found = [one for one in findings if one.rule == rule]
    assert found, [str(one) for one in findings]
    lines = text.splitlines()
    assert any(line in lines[one.place.line - 1] for one in found), [(one, lines[one.place.line - 1]) for one in found]
    assert all(one.hint and str(one.place).startswith(str(path)) for one in found)
    assert {one.rule for one in findings} - {rule} <= ALSO.get(rule, set())


def test_every_rule_has_a_planted_fault() -> None:
    assert {one[0] for one in PLANTED} | {"parameter-unknown"} == set(RULES_BY_ID)
    assert len(RULES_BY_ID) == len(RULES)


def test_every_rule_is_used() -> None:
    """No rule stands in the table only, and none in the code only."""
    names: set[str] = set()
    for path in (ROOT / "migverify" / "runbook").rglob("*.py"):
        if path.name != "findings.py":
            names |= {
                n.value
                for n in ast.walk(ast.parse(path.read_text()))
                if isinstance(n, ast.Constant) and isinstance(n.value, str)
            }
    assert set(RULES_BY_ID) <= names


def test_a_value_for_no_parameter_is_refused(tmp_path: Path) -> None:
    path, _ = planted(tmp_path, "<end>", "")
    assert [one.rule for one in look(path, {"servcie": "x"})] == ["parameter-unknown"]


def test_a_value_given_is_looked_at_like_one_of_the_file(tmp_path: Path) -> None:
    path, _ = planted(tmp_path, "<end>", "")
    assert [one.rule for one in look(path, {"service": "__SERVICE__"})] == ["placeholder-left"]
    findings = look(path, {"words": "mysql://a:hunter2@h"})
    assert [one.rule for one in findings] == ["secret-in-file"]
    assert "hunter2" not in str(findings)


def test_an_unknown_environment_is_refused(tmp_path: Path) -> None:
    path, _ = planted(tmp_path, "<end>", "")
    assert [one.rule for one in look(path, environment="moon")] == ["unknown-environment"]


def test_all_findings_come_at_once_and_in_order(tmp_path: Path) -> None:
    text = CLEAN.replace("reviewer: db2", "reviewer: db1").replace("max: 2m", "max: -2m").replace("[chat]", "[chad]")
    path = tmp_path / "r.yaml"
    path.write_text(text)
    findings = look(path)
    assert {"reviewer-is-dri", "bad-time", "unknown-sink"} <= {one.rule for one in findings}
    assert [one.place.line for one in findings] == sorted(one.place.line for one in findings)
    assert sum(one.rule == "reviewer-is-dri" for one in findings) == text.count("reviewer: db1")


def test_shape_and_parameters_are_told_together(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(CLEAN.replace("service: {default: pay}", "service: {}").replace("kind: manual", "kind: manaul"))
    assert {one.rule for one in look(path)} == {"parameter-missing", "shape"}


def test_a_secret_is_never_repeated(tmp_path: Path) -> None:
    path, _ = planted(tmp_path, "run: cut thaw}", "run: cut thaw, password: hunter2-hunter2}")
    assert "hunter2" not in " ".join(str(one) for one in look(path))


def test_a_value_that_is_no_yaml_type_of_its_key_is_a_finding(tmp_path: Path) -> None:
    path, _ = planted(tmp_path, "run: cut thaw}", 'run: "cut \'thaw"}')
    assert [one.rule for one in look(path)] == ["shape"]


def test_lint_is_pure_over_the_runbook(tmp_path: Path) -> None:
    """Without places every finding is still there, at line 1."""
    path, _ = planted(tmp_path, "reviewer: db2\n        time: {plan: 1m", "reviewer: db1\n        time: {plan: 1m")
    book = load_runbook(path, {}, "staging")
    assert [(one.rule, one.place.line) for one in lint(book, Places("x"), ACTIONS, {"p0"})] == [("reviewer-is-dri", 1)]


def test_actions_of_other_roads_are_asked(tmp_path: Path) -> None:
    def never(*_: Any) -> ActionResult:
        raise AssertionError("lint runs nothing")

    own = Action("hosts.up", ActionKind.CHECK, "", (Argument("region", "text", "", required=True),), never)
    path, _ = planted(tmp_path, "{check: command.exit, run: hosts ok}", "{check: hosts.up, region: eu, min: 3}")
    assert lint_file(path, {}, "staging", {**ACTIONS, "hosts.up": own}, {"p0"})[1] == ()
    path.write_text(path.read_text().replace("region: eu", "zone: eu"))
    rules = [one.rule for one in lint_file(path, {}, "staging", {**ACTIONS, "hosts.up": own}, {"p0"})[1]]
    assert rules == ["wrong-arguments", "wrong-arguments"]


def test_a_catalogue_gives_ids_and_priorities(tmp_path: Path) -> None:
    text = CLEAN.replace("kind: cutover\n", "kind: dr-case\n" + CASE).replace("id: cutover", "id: d01")
    (tmp_path / "d01.yaml").write_text(text)
    assert known_cases(tmp_path) == {"d01", "p0"}
    assert [one.rule for one in look(tmp_path / "d01.yaml")] == []


def test_without_a_catalogue_a_required_case_is_refused(tmp_path: Path) -> None:
    path, _ = planted(tmp_path, "<end>", "")
    assert [one.rule for one in lint_file(path, {}, "staging", ACTIONS, None)[1]] == ["unknown-case"]


def test_the_page_has_the_rules() -> None:
    page = (ROOT / "docs" / "runbooks.md").read_text(encoding="utf-8")
    assert rules_markdown() in page, "put findings.rules_markdown() between the marks"


def test_the_shipped_rehearsal_is_clean() -> None:
    for environment in ("lab", "staging"):
        assert lint_file(ROOT / "runbooks" / "rehearsal.yaml", {}, environment, full_registry().by_name())[1] == ()


WEIRD: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        "",
        -1,
        0,
        10**30,
        math.nan,
        math.inf,
        [],
        {},
        [[]],
        [None],
        "x",
        "{{",
        "{{service}}",
        "__X__",
        True,
        "step:",
        "*",
    ]
)


def ways(data: Any, way: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place of a document."""
    found = [way] if way else []
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        found += ways(value, (*way, key))
    return found


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_whatever_stands_in_a_file_is_told_and_nothing_breaks(tmp_path: Path, data: st.DataObject) -> None:
    """A value anywhere is replaced or taken away: findings or one ConfigError, never another exception."""
    document = read_yaml(CLEAN, variables=False).data
    for _ in range(data.draw(st.integers(1, 3))):
        *way, last = data.draw(st.sampled_from(ways(document)))
        inside: Any = document
        for one in way:
            inside = inside[one]
        if data.draw(st.booleans()):
            inside[last] = copy.deepcopy(data.draw(WEIRD))  # the same list twice could hold itself
        else:
            del inside[last]
    path = tmp_path / "weird.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    try:
        reading, findings = lint_file(path, {}, "staging", ACTIONS, {"p0"})
    except ConfigError:
        return
    assert reading.runbook is not None or any(one.refused for one in findings)


def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(runbook_check.check)
    return made


def test_the_command_tells_file_line_rule_and_advice(tmp_path: Path) -> None:
    path, text = planted(tmp_path, "to: [chat]", "to: [chad]")
    (tmp_path / "dr").mkdir()
    case = CLEAN.replace("kind: cutover\n", "kind: dr-case\n" + CASE)
    (tmp_path / "dr" / "d01.yaml").write_text(case)
    answer = CliRunner().invoke(app(), [str(path), "--offline"])
    line = next(n for n, one in enumerate(text.splitlines(), 1) if "chad" in one)
    assert answer.exit_code == 2
    assert f"{path}:{line}: step freeze: there is no sink chad [unknown-sink]\n    Did you mean chat?" in answer.stdout
    told = json.loads(CliRunner().invoke(app(), [str(path), "--offline", "--json"]).stdout)
    assert told["lint"]["refused"] == 1
    assert told["lint"]["findings"][0]["line"] == line
    path.write_text(CLEAN)
    clean = CliRunner().invoke(app(), [str(path), "--offline", "--commands"])
    assert clean.exit_code == 0
    assert 'freeze does command {"argv": ["cut", "freeze", "pay"]}' in clean.stdout


def test_the_plan_is_shown(tmp_path: Path) -> None:
    path, _ = planted(tmp_path, "<end>", "")
    (tmp_path / "dr").mkdir()
    (tmp_path / "dr" / "d01.yaml").write_text(CLEAN.replace("kind: cutover\n", "kind: dr-case\n" + CASE))
    answer = CliRunner().invoke(app(), [str(path), "--offline", "-e", "staging", "--kind", "live"])
    assert answer.exit_code == 0
    assert "total 6:50, critical path: gate > rest > freeze > open > hosts" in answer.stdout
    told = json.loads(CliRunner().invoke(app(), [str(path), "--offline", "-e", "staging", "--json"]).stdout)["plan"]
    assert told["total"] == 410
    assert (told["write_stop"], told["write_stop_work"], told["write_stop_handoffs"]) == (80, 40, 4)
    assert "writes stop for 1:20 of 3:00: 0:40 of work and 4 hand-offs between people" in answer.stdout
    assert "hand-offs between people: 10 s each" in answer.stdout


def test_a_manual_step_may_be_attested_in_place_of_a_check(tmp_path: Path) -> None:
    old = "        expect: [{check: command.exit, run: hosts ok}]\n"
    path, _ = planted(tmp_path, old, "        attest: Every host answers.\n")
    assert look(path) == ()


@pytest.mark.parametrize(
    "words",
    [["sh", "-c", "a | b"], ["ssh", "h", "a", "&&", "b"], ["find", ".", "-exec", "x", ";"], ["awk", "{print $1}"],
     ["jq", ".a|.b"], ["mysql", "-e", "SELECT 1 < 2"], ["mysql", "--where=a<b"], ["test", "!", "-e", "x"]],
)  # fmt: skip
def test_words_that_are_meant_are_no_shell_syntax(words: list[str]) -> None:
    assert shell_syntax(words) == ""

"""Gates: what they conclude, what has no value, how commands are read; every action documented, every runbook clean."""

from __future__ import annotations

import json
import os
import re
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from migverify.guards.layouts import moment_text
from migverify.model import Flavor
from migverify.runbook.actions import commands, gate_reads
from migverify.runbook.actions import gate_judges as gates
from migverify.runbook.actions.action import ActionResult, Context, Outcome, ask
from migverify.runbook.actions.builtin import Finished
from migverify.runbook.actions.commands import COMMAND_CHECKS, CommandCheck, command_of, options_of
from migverify.runbook.actions.gate_judges import BarrierRow, Canary, NextId, Open, WriteProbe, WriteProbeResult
from migverify.runbook.actions.gate_reads import missing_servers
from migverify.runbook.actions.registry import full_registry
from migverify.runbook.actions.rollback_loss import numbers_of
from migverify.runbook.definition.lint import lint_file
from migverify.runbook.model import Check

ROOT = Path(__file__).parents[3]
OURS = ("cutover", "rollback-before-open", "rollback-after-open", "history-load")
REFUSED, ACCEPTED, UNKNOWN = (
    WriteProbe("s", "INSERT t", told)
    for told in (WriteProbeResult.REFUSED, WriteProbeResult.ACCEPTED, WriteProbeResult.UNKNOWN)
)


@pytest.mark.parametrize(
    ("attempts", "refused", "accepted"),
    [
        ([], None, None),
        ([REFUSED], 0, 1),
        ([ACCEPTED], 1, 0),
        ([UNKNOWN], None, None),
        ([REFUSED, UNKNOWN], None, 1),
        ([REFUSED, ACCEPTED, UNKNOWN], 1, 1),
    ],
)
def test_a_freeze_is_proved_by_refusals_only(
    attempts: list[WriteProbe], refused: float | None, accepted: float | None
) -> None:
    assert gates.refused(attempts).value == refused
    assert gates.accepted(attempts).value == accepted


class List:
    """A server whose process list changes with every look."""

    flavor, thread_id = Flavor.MYSQL, 1

    def __init__(self, *looks: list[tuple[int, str]]) -> None:
        self._looks = list(looks)

    def query_named(self, _: str) -> list[dict[str, str | None]]:
        look = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        return [{"Id": str(id_), "User": "app", "Host": "h", "Command": command, "Time": "0"} for id_, command in look]


@pytest.mark.parametrize(
    ("looks", "left"),
    [
        (([],), 0),
        (([(5, "Sleep")],), 1),
        (([(5, "Connect")], []), 0),
        (([(5, "Connect")], [(6, "Connect")]), 0),
        (([(5, "Connect")], [(5, "Sleep")]), 1),
        (([(5, "Connect")], [(6, "Connect"), (7, "Query")]), 1),
        (([(5, "Connect")],), 1),
    ],
)
def test_a_login_that_is_turned_away_is_no_session(
    looks: tuple[list[tuple[int, str]], ...], left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_reads, "_need_process", lambda _: None)
    monkeypatch.setattr(gate_reads, "_LOGIN_SECONDS", 0.2)
    session, door = List(*looks), SimpleNamespace(name="source")
    assert len(gate_reads.sessions(session, door, ["app"], [])) == left  # type: ignore[arg-type]


def test_what_is_open_counts_when_its_age_is_unknown() -> None:
    found = [Open("s", "old", 9.0), Open("s", "young", 1.0), Open("s", "unknown")]
    assert gates.nothing_open(found, "transactions", older_than=5).value == 2
    assert gates.nothing_open([], "transactions").value == 0


@pytest.mark.parametrize(
    ("positions", "value"),
    [(["a:1"] * 3, 0), (["a:1", "a:2", "a:2"], 1), (["a:1", "a:2", "a:1"], 2), (["a:1", None, "a:1"], None)],
)
def test_a_position_rests_when_all_readings_say_the_same(positions: list[str | None], value: float | None) -> None:
    told = iter(positions)
    assert gates.stable(lambda: next(told), lambda _: False).value == value


def test_one_reading_or_a_canceled_one_is_no_value() -> None:
    assert gates.stable(lambda: "a:1", lambda _: False, readings=1).value is None
    assert gates.stable(lambda: "a:1", lambda _: True).value is None


@pytest.mark.parametrize(
    ("marker", "seen", "value"),
    [
        (None, 5, None),
        (BarrierRow(5), 5, "arrived"),
        (BarrierRow(5, 4), 5, "arrived"),
        (BarrierRow(5, 5), 5, "stale"),
        (BarrierRow(5, 9), 5, "stale"),
        (BarrierRow(5), None, "missing"),
        (BarrierRow(5), 4, "missing"),
        (BarrierRow(5), 6, "missing"),
    ],
)
def test_a_barrier_is_strictly_newer_than_everything_else(
    marker: BarrierRow | None, seen: int | None, value: str | None
) -> None:
    assert gates.arrived(marker, seen).value == value


@pytest.mark.parametrize(
    ("canary", "seen", "status", "value"),
    [
        (None, None, "stopped", None),
        (Canary(5, 20), None, "stopped", "stopped"),
        (Canary(5, 20), 4, "stopped", "stopped"),
        (Canary(5, 20), 5, "stopped", "running"),
        (Canary(5, 20), None, "running", "running"),
        (Canary(5, 20), None, None, None),
        (Canary(5, 3), None, "stopped", None),
    ],
)
def test_a_feed_is_stopped_when_status_and_canary_say_so(
    canary: Canary | None, seen: int | None, status: str | None, value: str | None
) -> None:
    assert gates.stopped(canary, seen, status, expected="stopped", after=10).value == value


@pytest.mark.parametrize(
    ("found", "missing", "value"),
    [
        ([], [], None),
        ([NextId("a", "t", 11, 10)], [], 0),
        ([NextId("a", "t", 10, 10)], [], 1),
        ([NextId("a", "t", 11, 10), NextId("b", "t", 3, 10)], [], 1),
        ([NextId("a", "t", 11, 10), NextId("b", "t", None, 10, "no grant")], [], None),
        ([NextId("a", "t", None, 10, "duplicate", taken=True)], [], 1),
        ([NextId("a", "t", 11, 10)], ["b"], None),
        ([NextId("a", "t", 1, None)], [], 0),
    ],
)
def test_ids_are_asked_through_every_server(found: list[NextId], missing: list[str], value: float | None) -> None:
    assert gates.above(found, missing).value == value


@pytest.mark.parametrize(
    ("before", "after", "changed", "exempt", "value"),
    [
        ("a:1", "a:1", None, [], 0),
        ("a:1", "a:2", None, [], 1),
        ("a:1", None, None, [], None),
        ("a:1", "a:2", None, ["feed"], None),
        ("a:1", "a:2", {"feed": 7, "app": 0}, ["feed"], 0),
        ("a:1", "a:2", {"feed": 7, "app": 2}, ["feed"], 2),
        ("a:1", "a:2", {"feed": 0}, ["feed"], None),
    ],
)
def test_quiet_tells_feeds_from_others(
    before: str, after: str | None, changed: dict[str, int] | None, exempt: list[str], value: float | None
) -> None:
    assert gates.quiet(before, after, changed, exempt, 5).value == value


class Cluster:
    """What a TiDB session tells of its cluster."""

    flavor = Flavor.TIDB

    def __init__(self, *servers: str) -> None:
        self._servers = servers

    def query(self, _: str) -> list[tuple[str]]:
        return [(one,) for one in self._servers]


@pytest.mark.parametrize(
    ("servers", "asked_", "missing"),
    [(("a", "b"), 2, 0), (("a", "b", "c"), 2, 3), (("a",), 1, 0), ((), 1, 1)],
)
def test_every_server_of_a_cluster_has_to_be_asked(servers: tuple[str, ...], asked_: int, missing: int) -> None:
    session: Any = Cluster(*servers)
    assert len(missing_servers(session, asked_)) == missing


# --- commands of migverify -------------------------------------------------------------------------------------------


def asked(action: str, code: int | None, output: str, monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> Any:
    def program(argv: list[str], _: Context, **__: Any) -> Finished:
        facts = {"stdout_bytes": len(output), "seconds": 0.1, "argv": argv}
        return Finished(code, Outcome.OK if code is not None else Outcome.TIMED_OUT, output, "the last line", facts)

    monkeypatch.setattr(commands, "run_program", program)
    return ask(
        full_registry(), Check(action=action, arguments=arguments), Context("r", "s", 1, 1, 9.0, threading.Event())
    )


GUARDS = '{"run": "1", "verdict": "%s", "guards": [{"unasked": [], "answers": []}]}'


@pytest.mark.parametrize(
    ("code", "output", "state"),
    [
        (0, GUARDS % "MATCH", "pass"),
        (1, GUARDS % "MISMATCH", "fail"),
        (3, GUARDS % "INCONCLUSIVE", "inconclusive"),
        (0, GUARDS % "MISMATCH", "inconclusive"),
        (1, GUARDS % "MATCH", "inconclusive"),
        (0, "", "inconclusive"),
        (0, "[]", "inconclusive"),
        (0, '"MATCH"', "inconclusive"),
        (2, "", "inconclusive"),
        (None, GUARDS % "MATCH", "inconclusive"),
    ],
)
def test_a_guard_passes_when_exit_code_and_json_agree(
    code: int | None, output: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked("schema.unchanged", code, output, monkeypatch).state == state


@pytest.mark.parametrize(
    ("action", "output"),
    [("ids.headroom", "[]"), ("tables.verify", '{"run_id": "1", "verdict": "MATCH", "tables": []}'),
     ("recon.holds", '{"run_id": "1", "verdict": "MATCH", "rules": []}'),
     ("plans.fine", '{"run_id": "1", "verdict": "MATCH", "digests": []}'),
     ("anomalies.none", '{"verdict": "MATCH", "reasons": [], "anomalies": []}'),
     ("decision.go", '{"decision": "GO", "verdict": "MATCH", "reasons": [], "parts": []}'),
     ("tables.drained", '{"verdict": "MATCH", "final": false, "tables": [], "reasons": [], "sources": []}'),
     ("schema.alike", '{"tables": [], "fingerprints": {}}'), ("schema.fingerprint", '{"fingerprints": {}}')],
)  # fmt: skip
def test_an_answer_about_nothing_is_no_pass(action: str, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"recon.holds": {"rules": "r.yaml"}, "tables.drained": {"since": "last"}, "plans.fine": {"capture": "c"},
             "anomalies.none": {"source": "a", "target": "b"}}  # fmt: skip
    assert asked(action, 0, output, monkeypatch, **given.get(action, {})).state == "inconclusive"


def test_a_gate_over_plans_names_the_digests_that_hurt(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = {"digest": "ab" * 32, "state": "hurts", "changed": "a became b", "doubts": [],
           "findings": [{"harm": "full scan", "reason": "whole table o"}]}  # fmt: skip
    output = json.dumps({"run_id": "1", "verdict": "MISMATCH", "digests": [bad]})
    found = asked("plans.fine", 1, output, monkeypatch, capture="c", since="last")
    assert found.state == "fail"
    assert "abababababababab: full scan: whole table o" in found.text


@pytest.mark.parametrize(
    ("code", "verdict", "decision", "state"),
    [(0, "MATCH", "GO", "pass"), (1, "MISMATCH", "NO-GO", "fail"), (3, "INCONCLUSIVE", "NOT KNOWN", "inconclusive"),
     (0, "INCONCLUSIVE", "NOT KNOWN", "inconclusive"), (1, "MATCH", "GO", "inconclusive")],
)  # fmt: skip
def test_the_gate_of_the_decision_passes_with_go_alone(
    code: int, verdict: str, decision: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = {"part": "plans", "decision": decision, "run": "r"}
    reasons = [] if decision == "GO" else ["plans: index lost"]
    output = json.dumps({"decision": decision, "verdict": verdict, "reasons": reasons, "parts": [part]})
    found = asked("decision.go", code, output, monkeypatch)
    assert found.state == state
    assert decision == "GO" or "plans: index lost" in found.text


def test_the_gate_of_anomalies_names_their_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = {"permitted_by": "target only", "name": "lost update", "transactions": ["s1/4", "s2/7"]}
    side = {"usable": 9}
    output = json.dumps({"verdict": "MISMATCH", "reasons": [], "anomalies": [lost], "source": side, "target": side})
    found = asked("anomalies.none", 1, output, monkeypatch, source="a", target="b")
    assert found.state == "fail"
    assert "lost update: s1/4, s2/7" in found.text


def test_the_watch_is_judged_by_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    line = '{"run_id": "1", "verdict": "%s", "final": %s, "tables": [], "reasons": [], "sources": []}\n'
    output = line % ("INCONCLUSIVE", "false") + line % ("MATCH", "true")
    assert asked("tables.drained", 0, output, monkeypatch, since="last").state == "pass"


def test_a_rollback_is_proved_by_a_reverse_watch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    line = (
        '{"run_id": "1", "verdict": "MATCH", "final": true, "tables": [], "reasons": [], "sources": [], '
        '"as_of": "tso:1", "reverse": %s}'
    )
    assert asked("rollback.proved", 0, line % "true", monkeypatch, watch="1").state == "pass"
    assert asked("rollback.proved", 0, line % "false", monkeypatch, watch="1").state == "inconclusive"
    assert asked("rollback.proved", 3, line % "true", monkeypatch, watch="1").state == "inconclusive"
    checks = {one.name: one for one in COMMAND_CHECKS}
    assert command_of(checks["rollback.proved"], {"watch": "1", "within": 9}) == [
        "tables", "watch", "--reverse", "--until-drained", "--resume", "1", "--timeout", "9",
    ]  # fmt: skip
    assert asked("rollback.proved", 0, line % "true", monkeypatch, since="last").state == "pass"
    # Without either it would be a watch that began now, which proves nothing of what was written before.
    assert asked("rollback.proved", 0, line % "true", monkeypatch).state == "inconclusive"
    both = asked("rollback.proved", 0, line % "true", monkeypatch, watch="1", since="last")
    assert both.state == "inconclusive"


ARMED = {
    "run": "2", "forward": "1", "as_of": None, "began": None, "unread_seconds": 1.0, "unread_rows": 0,
    "unread_statements": 0, "watch": {"alive": True},
}  # fmt: skip


@pytest.mark.parametrize(
    ("code", "verdict", "state"),
    [(0, "MATCH", "pass"), (1, "MISMATCH", "fail"), (3, "INCONCLUSIVE", "inconclusive"),
     (0, "MISMATCH", "inconclusive"), (3, "MATCH", "inconclusive")],
)  # fmt: skip
def test_a_rollback_is_armed_when_exit_code_and_json_agree(
    code: int, verdict: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = json.dumps({**ARMED, "verdict": verdict, "reasons": ["why"]})
    assert asked("rollback.armed", code, output, monkeypatch).state == state
    assert asked("rollback.armed", code, json.dumps({"verdict": verdict}), monkeypatch).state == "inconclusive"


def loss_of(**changes: Any) -> dict[str, Any]:
    amounts = [
        {"rule": "paid", "table": "s.pay", "without_amount": 0, "currencies": {"EUR": {"at_risk": "90071992547409.93"}}}
    ]
    return {
        "run": "2", "verdict": "MISMATCH", "complete": True, "as_of": {"tso": 9, "time": 1.0, "text": "tso:9 (then)"},
        "read_at": None, "watch": {"alive": True}, "keys": 3, "missing_on_source": 1, "value_differs": 2,
        "missing_on_target": 0, "transactions_at_least": 2, "oldest": None, "oldest_seconds": 12.5,
        "unread_seconds": 1.0, "amounts": amounts, "amounts_unstated": [], "reasons": [], "rows": [],
    } | changes  # fmt: skip


NONE_LOST = {"keys": 0, "verdict": "MATCH", "oldest_seconds": None, "amounts": []}


@pytest.mark.parametrize(
    ("code", "document", "limits", "state"),
    [
        (0, loss_of(**NONE_LOST), {}, "pass"),
        (1, loss_of(), {}, "fail"),  # without any limit nothing may be lost
        (1, loss_of(), {"max_keys": 3}, "pass"),
        (1, loss_of(), {"max_keys": 2}, "fail"),
        (1, loss_of(), {"max_seconds": 13}, "pass"),
        (1, loss_of(), {"max_seconds": 12}, "fail"),
        (1, loss_of(), {"max_amount": 90071992547409.93}, "pass"),
        (1, loss_of(), {"max_amount": 90071992547409.92}, "fail"),
        (1, loss_of(), {"max_keys": 9, "max_seconds": 9}, "fail"),
        # What is known to be too much is too much; what is not known in full is never acceptable.
        (1, loss_of(complete=False, reasons=["unread"]), {"max_keys": 3}, "inconclusive"),
        (1, loss_of(complete=False, reasons=["unread"]), {"max_keys": 2}, "fail"),
        (1, loss_of(complete=False), {"max_keys": 3}, "inconclusive"),
        (3, loss_of(**NONE_LOST | {"verdict": "INCONCLUSIVE"}, complete=False, reasons=["dead"]), {}, "inconclusive"),
        (1, loss_of(oldest_seconds=None), {"max_seconds": 13}, "inconclusive"),
        (1, loss_of(amounts=[], amounts_unstated=["no rule"]), {"max_amount": 1}, "inconclusive"),
        (1, loss_of(amounts_unstated=["rule x defines no amount"]), {"max_amount": 1e15}, "inconclusive"),
        # Exit code and document have to agree.
        (0, loss_of(), {"max_keys": 9}, "inconclusive"),
        (2, loss_of(**NONE_LOST), {}, "inconclusive"),
        (None, loss_of(**NONE_LOST), {}, "inconclusive"),
        (0, {"verdict": "MATCH"}, {}, "inconclusive"),
        (0, [], {}, "inconclusive"),
    ],
)
def test_a_loss_is_held_against_every_limit(
    code: int | None, document: Any, limits: dict[str, Any], state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = asked("rollback.loss", code, json.dumps(document), monkeypatch, **limits)
    assert answer.state == state, answer


def test_the_evidence_of_a_loss_is_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = asked("rollback.loss", 1, json.dumps(loss_of()), monkeypatch, max_keys=3)
    facts = answer.evidence
    assert (facts["keys"], facts["oldest_seconds"], facts["at_risk"]) == (3, 12.5, {"EUR": "90071992547409.93"})
    assert facts["as_of"]["tso"] == 9
    assert answer.value == "acceptable"
    assert "as of tso:9 (then)" in answer.text
    assert numbers_of(answer)["loss"]["keys"] == 3
    rows = [{"table": "s.pay", "key": [str(n)], "kind": "value_differs"} for n in range(2)]
    answer = asked("rollback.loss", 1, json.dumps(loss_of(rows=rows)), monkeypatch)
    assert answer.text.startswith("3 keys would be lost (s.pay 0, s.pay 1, ...), oldest 12 s")
    assert answer.evidence["rows"] == rows
    assert numbers_of(replace(answer, action="sql.value")) == {}


def test_options_of_a_check_are_those_of_its_command() -> None:
    checks = {one.name: one for one in COMMAND_CHECKS}
    given = {"min_days": 30, "javascript": True, "layout": ["a.b.c=x", "d.e.f=y"]}
    assert command_of(checks["ids.headroom"], given) == [
        "guard", "ids", "--min-days", "30", "--javascript", "--layout", "a.b.c=x", "--layout", "d.e.f=y",
    ]  # fmt: skip
    assert command_of(checks["recon.holds"], {"rules": "r.yaml", "from": "2026-01-01"})[:3] == [
        "recon",
        "run",
        "r.yaml",
    ]
    assert command_of(checks["tables.drained"], {"since": "last", "within": 9})[-2:] == ["--timeout", "9"]


@pytest.mark.parametrize("check", COMMAND_CHECKS, ids=lambda one: one.name)
def test_every_option_of_a_check_is_there(check: CommandCheck) -> None:
    import typer.main

    from migverify.cli.main import COMMANDS

    entry = next(one for one in COMMANDS if one.name == check.words[0])
    module = __import__(entry.module, fromlist=["app"])
    command: Any = typer.main.get_command(module.app)
    if hasattr(command, "commands"):
        command = command.commands[check.words[1]]
    words = [*check.words, *check.always]
    for form in getattr(command, "forms", ()):
        if set(words) & set(form.flags):
            command = form.command()
    known = {name for parameter in command.params for name in parameter.opts}
    assert {*options_of(check).values()} | {one for one in check.always if one.startswith("--")} | {
        "--json",
        "--config",
    } <= known


# --- arguments that would make a gate lie ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "arguments", "says"),
    [
        ("source.writes_refused", {"tables": ["a.b"]}, "user is missing"),
        ("source.sessions", {}, "say whose sessions"),
        ("ids.rebased", {"endpoint": "source"}, "give `user`"),
        ("source.position_stable", {"readings": 100, "apart": 60}, "do not fit"),
        ("source.quiet", {"seconds": 600}, "do not fit"),
        ("feed.stopped", {"table": "a.b", "argv": ["true"], "after": 600}, "does not fit"),
    ],
)
def test_arguments_that_prove_nothing_are_refused(action: str, arguments: dict[str, Any], says: str) -> None:
    answer = ask(
        full_registry(), Check(action=action, arguments=arguments), Context("r", "s", 1, 1, 30.0, threading.Event())
    )
    assert answer.state == "inconclusive"
    assert says in answer.text


def test_the_source_gets_no_marker_without_an_account_of_its_own() -> None:
    told: ActionResult = full_registry().run(
        "marker.write", {"endpoint": "source", "table": "ops.barrier"}, Context("r", "s", 1, 1, 5.0, threading.Event())
    )
    assert told.outcome is Outcome.FAILED
    assert "needs `user`" in told.text


def test_a_server_that_is_not_there_is_no_data_and_its_password_is_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "migverify.yaml"
    config.write_text(
        "source: {host: 127.0.0.1, port: 1, user: reader}\ntarget: {host: 127.0.0.1, port: 1, user: reader}\n"
        f'store: "sqlite:///{tmp_path}/s.db"\ntables: {{include: ["a.*"]}}\n'
    )
    monkeypatch.setenv("APP_PASSWORD", "hunter2-secret")
    context = Context("r", "s", 1, 1, 9.0, threading.Event(), config=config)
    for action in ("source.writes_refused", "source.writes_accepted", "target.readonly"):
        arguments = {"user": "app", "password_env": "APP_PASSWORD", "tables": ["a.b"]}
        answer = ask(full_registry(), Check(action=action, arguments=arguments), context)
        assert answer.state == "inconclusive"
        assert "hunter2-secret" not in str(answer)


def test_an_end_beyond_all_calendars_is_a_year() -> None:
    assert moment_text(1e25).startswith("year ")


# --- pages and runbooks ----------------------------------------------------------------------------------------------


def table() -> str:
    """Return every action of the registry as rows of the page."""
    rows = ["| action | kind | arguments | what |", "|---|---|---|---|"]
    for action in sorted(full_registry(), key=lambda one: one.name):
        given = "; ".join(
            f"`{one.name}` ({one.kind}{', required' if one.required else ''}): {one.about.rstrip('.')}"
            for one in action.arguments
        )
        rows.append(f"| `{action.name}` | {action.kind.value} | {given or 'none'} | {action.about} |")
    return "\n".join(rows).replace("<", "&lt;") + "\n"


def test_every_action_is_documented_with_its_arguments() -> None:
    page = ROOT / "docs" / "gates.md"
    begin, end = "<!-- actions: made from the registry -->\n", "<!-- end of actions -->"
    text = page.read_text()
    if os.environ.get("REGEN") == "1":
        text = text[: text.index(begin) + len(begin)] + table() + text[text.index(end) :]
        page.write_text(text)
    assert text[text.index(begin) + len(begin) : text.index(end)] == table(), (
        "run the tests once with REGEN=1 and look at the change"
    )


def test_an_argument_is_not_a_key_of_the_file() -> None:
    keys = {"check", "action", "min", "max", "equals", "for", "run"}
    assert not [action.name for action in full_registry() if keys & {one.name for one in action.arguments}]


def test_every_gate_that_a_runbook_asks_is_explained() -> None:
    page = (ROOT / "docs" / "gates.md").read_text().partition("## Which actions are there?")[0]
    used = {name for one in OURS for name in re.findall(r"check: ([a-z]+\.[a-z_]+)", _text(one))}
    gates_used = {
        name for name in used if name.split(".")[0] in ("source", "target", "marker", "feed", "reverse", "tso")
    }
    assert gates_used
    assert not [name for name in sorted(gates_used) if f"`{name}`" not in page]


def _text(name: str) -> str:
    return (ROOT / "runbooks" / f"{name}.yaml").read_text()


@pytest.mark.parametrize("name", OURS)
def test_runbooks_lint_clean_in_every_environment(name: str) -> None:
    known = full_registry().by_name()
    environments = yaml.safe_load(_text(name))["environments"]
    assert {"lab", "staging", "production"} == set(environments)
    for environment in environments:
        reading, found = lint_file(ROOT / "runbooks" / f"{name}.yaml", {}, environment, known)
        assert reading.runbook is not None
        assert not found, [f"{one.place}: {one.rule}: {one.text}" for one in found]


def test_the_target_opens_only_behind_every_gate() -> None:
    reading, _ = lint_file(ROOT / "runbooks" / "cutover.yaml", {}, "production", full_registry().by_name())
    assert reading.runbook is not None
    opening = reading.runbook.step("open")
    assert opening.point_of_no_return == "soft"
    decided = set(reading.runbook.step("decide").requires) | set(opening.requires)
    asks = {check.action for id_ in decided for check in reading.runbook.step(id_).expect}
    assert asks >= {
        "source.writes_refused", "source.sessions", "source.transactions", "source.position_stable", "marker.arrived",
        "tables.drained", "feed.stopped", "ids.rebased", "reverse.canary", "tables.verify", "tso.record",
    }  # fmt: skip

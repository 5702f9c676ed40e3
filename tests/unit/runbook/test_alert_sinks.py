"""The sinks for PagerDuty and Slack against servers that behave as documented; what is secret of them shows nowhere."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify import secrets
from migverify.cli.main import run
from migverify.runbook.announce import lanes, pagerduty, slack
from migverify.runbook.announce.http import escaped
from migverify.runbook.announce.message import Message, SinkError
from migverify.runbook.announce.moments import GROUPS, takes
from migverify.runbook.announce.sinks import OpenSink, open_sink, sink_problems
from migverify.runbook.model import Sink
from migverify.runbook.run import machine
from migverify.secrets import Secret
from tests.unit.alert_services import (
    CHANNEL,
    HOOK_PATH,
    ROUTING_KEY,
    TOKEN,
    AlertServices,
    alert_services,
    event_errors,
    message_error,
)
from tests.unit.runbook_hooks import Loud
from tests.unit.runbook_runs import CAROL, runbook, step
from tests.unit.runbook_small import HEAD, STEPS

QUIET = threading.Event()
SECRET = {"PD_KEY": ROUTING_KEY, "SLACK_TOKEN": TOKEN}
KINDS = [what for kinds in GROUPS.values() for what in kinds]
FIELDS = {
    "service": "orders", "environment": "prod", "condition": "grants", "reason": "target: SELECT is gone",
    "do": "GRANT SELECT ON `pay`.* TO 'migverify'@'%';", "verdict": "not ready",
    "command": "migverify runbook readiness x.yaml --environment prod --watch --times 1",
}  # fmt: skip
LOST = Message(
    "readiness-orders-prod/7", "readiness-orders-prod", "", "readiness missing",
    "NO LONGER READY: grants: target: SELECT is gone | READINESS orders prod", 1_800_000_000.0, FIELDS,
    topic="readiness/orders/prod/grants",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _own_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_known", set())


def pager(services: AlertServices, **more: Any) -> OpenSink:
    given = {"routing_key_env": "PD_KEY", "api": f"{services.address}/v2/enqueue", **more}
    return open_sink(Sink(name="pager", kind="pagerduty", arguments=given), SECRET)


def channel(services: AlertServices, **more: Any) -> OpenSink:
    given = {
        "token_env": "SLACK_TOKEN", "channel": CHANNEL, "api": f"{services.address}/api/chat.postMessage", **more,
    }  # fmt: skip
    return open_sink(Sink(name="chat", kind="slack", arguments=given), SECRET)


def hooked(services: AlertServices, **more: Any) -> OpenSink:
    sink = Sink(name="chat", kind="slack", arguments={"url_env": "SLACK_URL", **more})
    return open_sink(sink, {"SLACK_URL": services.hook})


def refusal(sink: OpenSink, message: Message = LOST) -> SinkError:
    with pytest.raises(SinkError) as caught:
        sink.send(message, QUIET)
    return caught.value


# --- PagerDuty -----------------------------------------------------------------------------------------------------


def test_what_is_met_again_resolves_the_incident_that_was_triggered() -> None:
    with alert_services() as services:
        sink = pager(services, link="https://cutover.example.com/")
        sink.send(LOST, QUIET)
        key = "migverify/readiness/orders/prod/grants"
        assert services.incidents == {key: "triggered"}
        sink.send(replace(LOST, id="r/8", text="NOT READY: grants: for another reason"), QUIET)
        sink.send(replace(LOST, id="r/9", what="readiness missing", topic="readiness/orders/prod/cast"), QUIET)
        sink.send(replace(LOST, id="r/10", what="readiness ok"), QUIET)
        assert services.incidents == {key: "resolved", "migverify/readiness/orders/prod/cast": "triggered"}
        first = services.events[0]
        assert first["payload"]["severity"] == "error"
        assert first["payload"]["custom_details"]["do"] == FIELDS["do"]
        assert first["links"] == [{"href": "https://cutover.example.com/", "text": "Show the run"}]
        assert services.refused == []


def test_a_step_that_failed_is_acknowledged_when_it_is_tried_again_and_resolved_when_it_is_accepted() -> None:
    with alert_services() as services:
        sink = pager(services)
        for number, what in enumerate(("failed", "retried", "accepted")):
            sink.send(Message(f"r1/{number}", "r1", "freeze", what, what, 1.0, {}, topic="r1/freeze"), QUIET)
        assert [one["event_action"] for one in services.events] == ["trigger", "acknowledge", "resolve"]
        assert services.incidents == {"migverify/r1/freeze": "resolved"}


def test_an_acknowledgement_of_an_incident_holds_over_a_later_trigger() -> None:
    with alert_services() as services:
        sink = pager(services)
        for what in ("failed", "retried", "failed"):
            sink.send(Message("r1/1", "r1", "freeze", what, what, 1.0, {}, topic="r1/freeze"), QUIET)
        assert services.incidents == {"migverify/r1/freeze": "acknowledged"}


def test_a_test_message_leaves_no_incident_open() -> None:
    with alert_services() as services:
        pager(services).send(Message("preflight/1", "preflight", "", "test", "PREFLIGHT: a test message", 1.0), QUIET)
        assert [one["event_action"] for one in services.events] == ["trigger", "resolve"]
        assert services.events[0]["payload"]["severity"] == "info"
        assert services.incidents == {"migverify/preflight/run": "resolved"}


def test_every_kind_has_an_action_or_is_not_sent() -> None:
    actions = {what: pagerduty.action_of(what) for what in KINDS}
    assert {what for what, action in actions.items() if action is None} == {
        "run started", "takeover", "promoted", "head",
    }  # fmt: skip
    assert all(actions[what] == "trigger" for what in (*GROUPS["urgent"], *GROUPS["reminder"]))
    assert actions["guard pass"] == actions["readiness ok"] == actions["resumed"] == "resolve"
    with alert_services() as services:
        pager(services).send(Message("r1/0", "r1", "", "head", "HEAD r1 0 abc", 1.0), QUIET)
        assert services.events == []


@settings(max_examples=50, deadline=None)
@given(
    what=st.sampled_from(KINDS), text=st.text(max_size=3000), topic=st.text(max_size=400),
    fields=st.dictionaries(st.sampled_from(["service", "environment", "reason", "do", "link"]), st.text(max_size=9000)),
)  # fmt: skip
def test_any_announcement_is_an_event_as_documented(what: str, text: str, topic: str, fields: dict[str, str]) -> None:
    fields = {name: value for name, value in fields.items() if name != "link"}
    message = Message("r/1", "r1", "a", what, text, 1_800_000_000.0, fields, topic)
    action = pagerduty.action_of(what)
    if action is not None:
        event = json.loads(json.dumps(pagerduty.event_of(message, action, Secret(ROUTING_KEY))))
        assert event_errors(event) == []
        assert len(json.dumps(event).encode("ascii")) <= pagerduty.LIMIT_BYTES


def test_keys_that_are_cut_stay_different() -> None:
    keys = {pagerduty.dedup_key(replace(LOST, topic="x" * 400 + end)) for end in "ab"}
    assert len(keys) == 2
    assert {len(key) for key in keys} == {255}


@pytest.mark.parametrize(
    ("status", "wait", "final"), [(429, "7", False), (503, "", False), (500, "", False), (403, "", True)]
)
def test_a_busy_service_is_asked_again_and_one_that_refuses_is_not(status: int, wait: str, final: bool) -> None:
    for open_one in (pager, channel, hooked):
        with alert_services((status, wait)) as services:
            error = refusal(open_one(services))
        assert (error.final, error.wait) == (final, float(wait or 0))
        assert error.reason.startswith(f"status {status}")


def test_an_event_that_is_refused_is_not_sent_again_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pagerduty, "severity_of", lambda _: "huge")
    with alert_services() as services:
        error = refusal(pager(services))
    assert error.final
    assert error.reason == ("status 400: 'payload.severity' is invalid (must be one of critical, error, warning, info)")


@pytest.mark.parametrize("answer", ["[]", "[[1]]", "7", "{}", '{"errors": {}}', "<html>", "[" * 9000, ""])
def test_a_refusal_in_no_known_words_is_one_by_its_status(answer: str) -> None:
    with alert_services() as services:
        services.answer = lambda *_: (400, answer, {})  # type: ignore[method-assign]
        error = refusal(pager(services))
    assert (error.reason, error.final) == ("status 400", True)


@pytest.mark.parametrize("key", ["short", "x" * 33, "with a space in it, 32 characters"[:32]])
def test_a_key_that_is_none_is_refused_before_anything_is_sent(key: str) -> None:
    sink = Sink(name="pager", kind="pagerduty", arguments={"routing_key_env": "PD_KEY"})
    error = refusal(open_sink(sink, {"PD_KEY": key}))
    assert error.final
    assert key not in error.reason


# --- Slack ---------------------------------------------------------------------------------------------------------


def test_a_channel_gets_blocks_with_the_command_to_type_and_a_text_for_those_without() -> None:
    with alert_services() as services:
        for sink in (channel(services, link="https://cutover.example.com/"), hooked(services)):
            sink.send(LOST, QUIET)
        with_link, plain = services.messages
    assert with_link["channel"] == CHANNEL
    assert plain["text"] == LOST.text
    texts = [block["text"]["text"] for block in plain["blocks"] if "text" in block]
    assert f"To be typed:\n```{FIELDS['command']}```" in texts
    assert "*Why*\ntarget: SELECT is gone" in texts
    buttons = [one for block in with_link["blocks"] if block["type"] == "actions" for one in block["elements"]]
    assert [one["url"] for one in buttons] == ["https://cutover.example.com/"]


def test_nothing_in_a_message_acts_by_a_click() -> None:
    text = json.dumps(slack.message_of(replace(LOST, fields={**FIELDS, "link": "https://x.example.com/"}), CHANNEL))
    assert "value" not in text
    assert "confirm" not in text
    assert text.count('"button"') == text.count('"url"') == 1


def test_a_pager_resolves_whichever_groups_it_takes() -> None:
    sink = Sink(name="pager", kind="pagerduty", arguments={"routing_key_env": "PD_KEY", "only": ["urgent"]})
    assert [what for what in ("readiness missing", "readiness ok", "accepted", "late") if takes(sink, what)] == [
        "readiness missing", "readiness ok", "accepted",
    ]  # fmt: skip
    chat = Sink(name="chat", kind="slack", arguments={"url_env": "URL", "only": ["urgent"]})
    assert not takes(chat, "readiness ok")


@pytest.mark.parametrize("word", ["@channel", "@here", "@all", "@Everyone"])
def test_no_text_wakes_everybody(word: str) -> None:
    assert word not in escaped(f"ask {word}: now")
    assert escaped("ask @alice or a@allied.example") == "ask @alice or a@allied.example"


def test_somebodys_words_wake_nobody() -> None:
    words = "<!channel> & <https://evil.example.com|click here>"
    with alert_services() as services:
        hooked(services).send(
            replace(LOST, text=words, fields={"reason": words, "command": f"say '{words}```'"}), QUIET
        )
        message = services.messages[0]
    assert message["text"] == "&lt;!channel&gt; &amp; &lt;https://evil.example.com|click here&gt;"
    assert "<" not in json.dumps(message)
    assert json.dumps(message).count("```") == 2


@settings(max_examples=50, deadline=None)
@given(
    what=st.sampled_from(KINDS), text=st.text(min_size=1, max_size=5000),
    fields=st.dictionaries(
        st.sampled_from(["condition", "step", "reason", "do", "command", "rollback", "verdict"]),
        st.text(st.sampled_from("<>&;a \n`*_"), max_size=9000),
    ),
)  # fmt: skip
def test_any_announcement_is_a_message_as_documented(what: str, text: str, fields: dict[str, str]) -> None:
    message = slack.message_of(Message("r/1", "r1", "a", what, text, 1.0, fields), CHANNEL)
    assert message_error(json.loads(json.dumps(message))) == ""


@pytest.mark.parametrize(("code", "final"), [("channel_not_found", True), ("invalid_auth", True)])
def test_the_web_api_refuses_with_status_200(code: str, final: bool) -> None:
    with alert_services() as services:
        more = {"channel": "C-gone"} if code == "channel_not_found" else {}
        sink = channel(services, **more)
        if code == "invalid_auth":
            services.answer = lambda *_: (200, json.dumps({"ok": False, "error": code}), {})  # type: ignore[method-assign]
        error = refusal(sink)
    assert (error.reason, error.final) == (f"refused: {code}", final)


@pytest.mark.parametrize(
    ("answer", "reason", "final"),
    [
        ('{"ok": false, "error": "ratelimited"}', "refused: ratelimited", False),
        ('{"ok": false, "error": "see https://x/secret"}', "refused: without a reason", True),
        ('{"ok": "yes"}', "refused: without a reason", True),
        ("<html>", "the answer is no JSON of Slack", False),
        ("[]", "the answer is no JSON of Slack", False),
    ],
)
def test_an_answer_is_taken_by_what_it_says(answer: str, reason: str, final: bool) -> None:
    with alert_services() as services:
        services.answer = lambda *_: (200, answer, {})  # type: ignore[method-assign]
        error = refusal(channel(services))
    assert (error.reason, error.final) == (reason, final)


def test_a_webhook_says_its_code_and_nothing_of_any_other_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with alert_services() as services:
        sink = hooked(services)
        monkeypatch.setattr(slack, "blocks_of", lambda _: [{"type": "section"}])
        error = refusal(sink)
        assert (error.reason, error.final) == ("status 400: invalid_blocks", True)
        services.answer = lambda *_: (403, f"go to {HOOK_PATH}", {})  # type: ignore[method-assign]
        assert refusal(sink).reason == "status 403"


# --- what a runbook says of them -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "arguments", "words"),
    [
        ("pagerduty", {}, "routing_key_env is missing"),
        ("pagerduty", {"routing_key": ROUTING_KEY}, "a routing key is a secret: say routing_key_env"),
        ("pagerduty", {"routing_key_env": "PD_KEY", "api": "http://events.example.com/"}, "api is the address"),
        ("pagerduty", {"routing_key_env": "PD_KEY", "api": "https://events.example.com/?k=1"}, "api is the address"),
        ("slack", {}, "url_env (an incoming webhook) or token_env"),
        ("slack", {"url_env": "SLACK_TOKEN", "token_env": "SLACK_TOKEN", "channel": "C1"}, "and not both"),
        ("slack", {"token_env": "SLACK_TOKEN"}, "channel is missing"),
        ("slack", {"token": TOKEN}, "a token is a secret: say token_env"),
        ("slack", {"url_env": "SLACK_TOKEN", "channel": "C1"}, "belong to token_env"),
    ],
)
def test_a_wrong_definition_says_what_is_wrong(kind: Any, arguments: dict[str, Any], words: str) -> None:
    problems = sink_problems(Sink(name="x", kind=kind, arguments=arguments), SECRET)
    assert any(words in one for one in problems), problems
    assert not [one for one in problems if ROUTING_KEY in one or TOKEN in one]


def test_a_variable_that_is_not_set_is_named() -> None:
    sink = Sink(name="x", kind="pagerduty", arguments={"routing_key_env": "PD_KEY"})
    assert sink_problems(sink, {}) == ["sink x: the environment variable PD_KEY is not set"]


@pytest.mark.parametrize("key", ["routing_key", "token"])
def test_lint_refuses_a_secret_in_the_file(tmp_path: Path, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    kind = "pagerduty" if key == "routing_key" else "slack"
    path = tmp_path / "small.yaml"
    path.write_text(f"{HEAD}sinks:\n  x: {{kind: {kind}, {key}: {ROUTING_KEY}}}\n{STEPS}")
    assert run(["runbook", "check", str(path), "--offline", "-e", "lab"]) != 0
    shown = capsys.readouterr()
    assert ROUTING_KEY not in shown.out + shown.err
    assert key in shown.out + shown.err


# --- nothing of a secret shows ---------------------------------------------------------------------------------------


def test_keys_tokens_and_addresses_are_in_nothing_that_a_run_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "FIRST_WAIT", 0.001)
    with alert_services((429, ""), (500, ""), (503, "")) as services:
        for name, value in {**SECRET, "SLACK_URL": services.hook}.items():
            monkeypatch.setenv(name, value)
        sinks = (
            Sink(name="pager", kind="pagerduty",
                 arguments={"routing_key_env": "PD_KEY", "api": f"{services.address}/v2/enqueue"}),
            Sink(name="channel", kind="slack", arguments={
                "token_env": "SLACK_TOKEN", "channel": CHANNEL, "api": f"{services.address}/api/chat.postMessage"}),
            Sink(name="hook", kind="slack", arguments={"url_env": "SLACK_URL"}),
        )  # fmt: skip
        room = Loud(tmp_path, runbook(step("a"), sinks=sinks))
        room.man()
        room.say(machine.hold, CAROL, f"look at {services.hook} with {ROUTING_KEY} and {TOKEN}")
        room.deliver()
        assert services.refused == []
        assert {one.state.value for one in room.status.deliveries.values()} == {"sent"}
        shown = json.dumps([*(event["payload"] for event in services.events if "payload" in event), *services.messages])
    hidden = [ROUTING_KEY, TOKEN, HOOK_PATH, "abcdefghijklmnopqrstuvwx"]
    assert not [one for one in hidden if one in shown]
    held = [event for event in services.events if event["event_action"] == "trigger"]
    assert [event["dedup_key"].rpartition("/")[2] for event in held] == ["run"]
    assert room.executor is not None
    left = repr(room.executor.__dict__) + repr(room.status)
    assert not [one for one in hidden if one in left]
    for path in (one for one in tmp_path.rglob("*") if one.is_file()):
        assert not [one for one in hidden if one.encode() in path.read_bytes()], path


def test_keys_are_in_nothing_that_a_readiness_watch_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with alert_services() as services:
        for name, value in {**SECRET, "SLACK_URL": services.hook}.items():
            monkeypatch.setenv(name, value)
        Path("small.yaml").write_text(
            f"{HEAD}sinks:\n"
            f"  pager: {{kind: pagerduty, routing_key_env: PD_KEY, api: '{services.address}/v2/enqueue'}}\n"
            f"  hook: {{kind: slack, url_env: SLACK_URL}}\n{STEPS}"
        )
        command = ["runbook", "readiness", "small.yaml", "-e", "prod", "--watch", "--times", "1", "-vv"]
        assert run([*command[:2], *command[2:-1], "--metrics-file", "m.prom"]) == 1
        assert services.refused == []
        assert set(services.incidents.values()) == {"triggered"}
        assert "migverify/readiness/small-orders/prod/drills" in services.incidents
        assert len(services.messages) == len(services.incidents)
    shown = capsys.readouterr()
    for text in (shown.out, shown.err, *(one.read_text() for one in tmp_path.rglob("*") if one.is_file())):
        assert not [one for one in (ROUTING_KEY, TOKEN, HOOK_PATH) if one in text]

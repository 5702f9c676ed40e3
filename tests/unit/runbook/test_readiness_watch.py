"""The watch of readiness: every change is announced once, whenever the watch is killed, and nothing else is."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migverify import secrets
from migverify.cli import watching
from migverify.cli.main import run
from migverify.cli.runbook_history import drill_command
from migverify.errors import StoreError, UsageError
from migverify.exposition import page
from migverify.runbook.announce import lanes
from migverify.runbook.announce.sinks import SinkError
from migverify.runbook.history.readiness import Condition
from migverify.runbook.model import Sink
from migverify.runbook.readiness.evaluation import (
    Known,
    ReadinessEvaluation,
    announced,
    changes,
    known_after,
    without_figures,
)
from migverify.runbook.readiness.log import ReadinessLog, open_log
from migverify.runbook.readiness.metrics import change_line, heartbeat, readiness_metrics, status_as_json
from migverify.runbook.readiness.watch import ReadinessStatus, ReadinessWatch
from migverify.secrets import Secret, remember
from migverify.store.open import open_store
from tests.unit.runbook_hooks import Scripted, hook
from tests.unit.runbook_small import HEAD, STEPS
from tests.waiting import wait_for

CHAT = Sink(name="chat", kind="file", arguments={"path": "/nowhere"})
SINKS = {"chat": CHAT}
IDS = ("cast", "grants", "watch")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "FIRST_WAIT", 0.001)
    monkeypatch.setattr(secrets, "_known", set())


def condition(id_: str, state: str = "ok", *reasons: str) -> Condition:
    return Condition(id_, state, f"{id_} is as it has to be", "found", reasons, "Do it." if reasons else "")


def evaluation(*conditions: Condition, at: float = 1_800_000_000.0) -> ReadinessEvaluation:
    return ReadinessEvaluation(at, "cutover", "orders", "prod", conditions, frozenset({"watch"}))


def of_states(states: Sequence[tuple[str, str]]) -> ReadinessEvaluation:
    return evaluation(
        *(condition(id_, state, *([reason] if state in ("missing", "unknown") else []))
          for id_, (state, reason) in zip(IDS, states, strict=True))
    )  # fmt: skip


STATES = st.tuples(st.sampled_from(["ok", "missing", "unknown", "not asked"]), st.sampled_from(["dana left", "no key"]))
EVALUATIONS = st.lists(st.tuples(STATES, STATES, STATES).map(of_states), min_size=1, max_size=8)


# --- what a change is --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "verdict"),
    [
        ((), "inconclusive"),
        (("ok", "not asked", "weaker"), "ready"),
        (("ok", "unknown"), "inconclusive"),
        (("unknown", "missing"), "not ready"),
    ],
)
def test_nothing_is_ready_that_is_missing_unknown_or_was_not_asked_at_all(
    states: tuple[str, ...], verdict: str
) -> None:
    assert evaluation(*(condition(f"c{n}", state) for n, state in enumerate(states))).verdict == verdict


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (None, condition("cast"), None),
        (None, condition("cast", "missing", "dana left"), "readiness missing"),
        (condition("cast"), condition("cast", "missing", "dana left"), "readiness missing"),
        (condition("cast"), condition("cast", "unknown", "no file"), "readiness unknown"),
        (condition("cast", "missing", "dana left"), condition("cast", "missing", "dana left"), None),
        (condition("cast", "missing", "dana left"), condition("cast", "missing", "bob left"), "readiness missing"),
        (condition("cast", "missing", "dana left"), condition("cast", "unknown", "dana left"), "readiness unknown"),
        (condition("cast", "missing", "dana left"), condition("cast"), "readiness ok"),
        (condition("cast", "missing", "dana left"), condition("cast", "not asked"), None),
        (condition("cast"), condition("cast", "not asked"), None),
        (condition("watch", "missing", "61 s ago"), condition("watch", "missing", "1,234.5 s ago"), None),
        (condition("watch", "missing", "61 s ago"), condition("watch", "missing", "it ended"), "readiness missing"),
    ],
)
def test_what_is_announced_of_a_condition(before: Condition | None, after: Condition, what: str | None) -> None:
    known = {} if before is None else known_after({}, evaluation(before))
    found = changes(known, "ready", evaluation(after))
    assert [one.what for one in found] == ([what] if what else [])


def test_an_evaluation_that_leaves_a_condition_out_keeps_its_last_state() -> None:
    known = known_after({}, evaluation(condition("cast", "missing", "dana left"), condition("definition")))
    cut = evaluation(condition("definition", "unknown", "line 3: no YAML"))
    assert [one.condition.id for one in changes(known, "not ready", cut)] == ["definition"]
    known = known_after(known, cut)
    whole = evaluation(condition("cast", "missing", "dana left"), condition("definition"))
    assert [(one.condition.id, one.what) for one in changes(known, cut.verdict, whole)] == [
        ("definition", "readiness ok")
    ]


def test_what_is_not_asked_any_more_stays_open_until_it_is_asked_again() -> None:
    bad = condition("proof", "missing", "3 tables differ")
    left_out = evaluation(condition("proof", "not asked"), condition("cast"))
    known = known_after(known_after({}, evaluation(bad, condition("cast", "missing", "dana left"))), left_out)
    assert known["proof"] == Known("missing", ("3 tables differ",))
    assert changes(known, "ready", evaluation(bad)) == ()
    assert [one.what for one in changes(known, "ready", evaluation(condition("proof")))] == ["readiness ok"]
    known = known_after({}, evaluation(condition("cast", "missing", "dana left")))
    (said,) = announced(left_out, changes(known, "not ready", left_out), SINKS, "")
    assert said.text == "READY AGAIN: cast is met; not asked: proof | READINESS orders prod"


def test_what_is_unknown_for_a_silent_server_is_announced_as_that_server_alone() -> None:
    known = known_after({}, evaluation(condition("servers"), condition("grants", "missing", "SELECT")))
    silent = evaluation(condition("servers", "unknown", "no answer"), condition("grants", "unknown", "not asked"))
    silent = replace(silent, following=frozenset({"grants"}))
    assert silent.verdict == "inconclusive"
    assert [one.condition.id for one in changes(known, "not ready", silent)] == ["servers"]
    assert known_after(known, silent)["grants"] == Known("missing", ("SELECT",))
    again = evaluation(condition("servers"), condition("grants"))
    found = changes(known_after(known, silent), "inconclusive", again)
    assert [(one.condition.id, one.what) for one in found] == [("servers", "readiness ok"), ("grants", "readiness ok")]


def test_words_say_what_happened_first_and_by_whom() -> None:
    first = evaluation(condition("cast"), condition("grants"))
    known = known_after({}, first)
    lost = evaluation(condition("cast", "missing", "dana left"), condition("grants"))
    made = announced(lost, changes(known, "ready", lost), SINKS, "migverify runbook readiness x.yaml")
    assert [one.text for one in made] == ["NO LONGER READY: cast: dana left | READINESS orders prod"]
    assert made[0].topic == "readiness/orders/prod/cast"
    assert made[0].fields["do"] == "Do it."
    assert made[0].fields["command"] == "migverify runbook readiness x.yaml"
    more = evaluation(lost.conditions[0], condition("grants", "unknown", "no answer"))
    known = known_after(known, lost)
    made = announced(more, changes(known, "not ready", more), SINKS, "")
    assert [one.text for one in made] == ["NOT KNOWN: grants: no answer | READINESS orders prod"]
    back = evaluation(condition("cast"), more.conditions[1])
    made = announced(back, changes(known_after(known, more), "not ready", back), SINKS, "")
    assert [one.text for one in made] == ["MET AGAIN: cast; inconclusive for grants | READINESS orders prod"]
    made = announced(first, changes(known_after(known, back), "inconclusive", first), SINKS, "")
    assert [one.text for one in made] == ["READY AGAIN: grants is met | READINESS orders prod"]


def test_only_the_sinks_that_take_a_group_get_it() -> None:
    quiet = Sink(name="quiet", kind="file", arguments={"path": "/x", "only": ["run"]})
    loud = Sink(name="loud", kind="file", arguments={"path": "/x", "only": ["urgent"]})
    bad, good = evaluation(condition("cast", "missing", "dana left")), evaluation(condition("cast"))
    sinks = {"quiet": quiet, "loud": loud}
    assert [one.sinks for one in announced(bad, changes({}, "", bad), sinks, "")] == [("loud",)]
    known = known_after({}, bad)
    assert [one.sinks for one in announced(good, changes(known, "not ready", good), sinks, "")] == [("quiet",)]
    assert announced(bad, changes({}, "", bad), {}, "") == ()


# --- every change once, whenever it is killed --------------------------------------------------------------------


class KilledError(Exception):
    """The process is gone."""


class Mortal(ReadinessLog):
    """A log whose process may be killed while it writes a line: some bytes of it are on the disk then."""

    kills: list[int | None]

    def _write(self, line: Any) -> None:
        size = self.path.stat().st_size
        super()._write(line)
        cut = self.kills.pop(0) if self.kills else None
        if cut is not None:
            whole = self.path.stat().st_size
            with self.path.open("r+b") as file:
                file.truncate(min(whole, size + cut))
            raise KilledError


def watch_of(log: ReadinessLog, chat: Any, some: Sequence[ReadinessEvaluation]) -> ReadinessWatch:
    left = iter(some)
    return ReadinessWatch(
        lambda: next(left), log, SINKS, [chat], name="readiness-orders-prod", every=0.0, times=len(some), command="",
        on_status=lambda _: None,
    )  # fmt: skip


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some=EVALUATIONS, kills=st.lists(st.none() | st.integers(0, 900), max_size=12))
def test_any_sequence_announces_exactly_its_changes_wherever_it_is_killed(
    tmp_path_factory: pytest.TempPathFactory, some: list[ReadinessEvaluation], kills: list[int | None]
) -> None:
    path, chat, left = tmp_path_factory.mktemp("log") / "x.jsonl", Scripted("chat"), list(kills)
    remaining, expected = list(some), list[tuple[str, str]]()
    known: dict[str, Known] = {}
    verdict = ""
    while remaining:
        one = remaining[0]
        log = Mortal(path)
        log.kills = left
        before = log.known
        assert (before, log.verdict) == (known, verdict)  # what a killed process left is what it had written whole
        watch = watch_of(log, chat, [one])
        try:
            watch.run()
        except KilledError:
            log = ReadinessLog(path)
        if log.known == known_after(known, one):  # the line of this evaluation is whole
            expected += [(change.condition.id, change.what) for change in changes(known, verdict, one)]
            known, verdict = known_after(known, one), one.verdict
            remaining.pop(0)
    watch_of(ReadinessLog(path), chat, [some[-1]]).run()  # what the last process had not delivered
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    written = [one for line in lines for one in line.get("announced", ())]
    assert [(one["fields"]["condition"], one["what"]) for one in written] == expected
    assert [one["number"] for one in written] == list(range(1, len(written) + 1))
    numbers = [int(message.id.rpartition("/")[2]) for message in chat.got]
    assert sorted(set(numbers)) == list(range(1, len(written) + 1))
    if not kills:
        assert len(numbers) == len(set(numbers))
    assert not ReadinessLog(path).undelivered


def test_a_sink_that_is_down_gets_everything_when_it_is_up_again_in_a_later_process(tmp_path: Path) -> None:
    path, bad = tmp_path / "x.jsonl", evaluation(condition("cast", "missing", "dana left"))
    chat = Scripted("chat", SinkError("status 503"), SinkError("status 503", wait=3600.0))
    watch = watch_of(ReadinessLog(path), chat, [bad])
    last = watch.run()
    assert last is not None
    assert (last.undelivered, chat.got) == (1, [])
    later = Scripted("chat")
    last = watch_of(ReadinessLog(path), later, [bad]).run()
    assert last is not None
    assert (last.undelivered, last.changes) == (0, ())
    assert [message.id for message in later.got] == [f"readiness-orders-prod-{ReadinessLog(path).id}/1"]


def test_announcements_of_two_logs_have_other_ids_and_those_of_earlier_versions_keep_theirs(tmp_path: Path) -> None:
    some, ids = [evaluation(condition("a", "missing"))], list[str]()
    for name in ("one", "two", "one, begun anew"):
        chat = Scripted("chat")
        with open_log(tmp_path / name) as log:
            watch_of(log, chat, some).run(wait=lambda _: None)
        ids += [message.id for message in chat.got]
    assert len(set(ids)) == len(ids) == 3
    early = tmp_path / "early"
    with open_log(early) as log:
        watch_of(log, Scripted("chat", SinkError("status 503")), some).run(wait=lambda _: None)
    lines = [json.loads(line) for line in early.read_text().splitlines() if '"changed"' in line]
    early.write_text("".join(json.dumps({key: one[key] for key in one if key != "log"}) + "\n" for one in lines))
    chat = Scripted("chat")
    with open_log(early) as log:
        assert log.id == ""
        watch_of(log, chat, [*some, evaluation(condition("a"))]).run(wait=lambda _: None)
        assert [message.id for message in chat.got] == ["readiness-orders-prod/1", f"readiness-orders-prod-{log.id}/2"]
    with open_log(early) as again:
        assert again.id


def test_a_sink_that_refuses_is_given_up_and_counted(tmp_path: Path) -> None:
    chat = Scripted("chat", SinkError("status 404", final=True))
    last = watch_of(ReadinessLog(tmp_path / "x"), chat, [evaluation(condition("cast", "missing", "left"))]).run()
    assert last is not None
    assert (last.undelivered, last.given_up) == (0, 1)
    assert heartbeat(last).endswith("; given up: 1")


def test_nothing_new_writes_nothing(tmp_path: Path) -> None:
    path, bad = tmp_path / "x", evaluation(condition("cast", "missing", "dana left"))
    watch_of(ReadinessLog(path), Scripted("chat"), [bad]).run()
    size = path.stat().st_size
    watch_of(ReadinessLog(path), Scripted("chat"), [bad, bad, bad]).run()
    assert path.stat().st_size == size


def test_one_log_has_one_watch(tmp_path: Path) -> None:
    another = pytest.raises(UsageError, match="another readiness watch")
    with open_log(tmp_path / "folder" / "x"), another, open_log(tmp_path / "folder" / "x"):
        pass
    with open_log(tmp_path / "folder" / "x"):
        pass


@pytest.mark.parametrize("line", ["{}", "[]", "no JSON", '{"kind":"delivered","of":7,"sink":"chat"}', '{"kind":"x"}'])
def test_a_damaged_log_is_refused_and_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "x").write_text(f"{line}\n")
    with pytest.raises(StoreError, match=r"x:1: is no line of a readiness watch"):
        ReadinessLog(tmp_path / "x")


def test_a_link_in_place_of_the_log_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to(tmp_path / "other")
    with pytest.raises(StoreError, match="symbolic link"):
        ReadinessLog(tmp_path / "x")


def test_a_log_that_is_taken_away_ends_the_watch_and_the_next_one_announces(tmp_path: Path) -> None:
    path, chat = tmp_path / "x.jsonl", Scripted("chat")
    log = ReadinessLog(path)
    path.unlink()
    with pytest.raises(StoreError, match="cannot be opened") as refused:
        watch_of(log, chat, [evaluation(condition("cast", "missing", "dana left"))]).run()
    assert "taken away" in refused.value.hint
    assert chat.got == []
    watch_of(ReadinessLog(path), chat, [evaluation(condition("cast", "missing", "dana left"))]).run()
    assert len(chat.got) == 1


def test_a_secret_in_a_reason_is_in_no_line_and_announced_once(tmp_path: Path) -> None:
    remember(Secret("correct-horse-battery"))
    path, chat = tmp_path / "x", Scripted("chat")
    bad = evaluation(condition("cast", "missing", "the key is correct-horse-battery"))
    for _ in range(2):
        watch_of(ReadinessLog(path), chat, [bad]).run()
    assert "correct-horse-battery" not in path.read_text()
    assert [message.text for message in chat.got] == ["NOT READY: cast: the key is *** | READINESS orders prod"]
    assert "correct-horse-battery" not in str(chat.got[0].fields)


def test_a_watch_ends_when_it_is_stopped(tmp_path: Path) -> None:
    stopped, seen = threading.Event(), []

    def evaluate() -> ReadinessEvaluation:
        seen.append(1)
        if len(seen) == 3:
            stopped.set()
        return evaluation(condition("cast"))

    watch = ReadinessWatch(
        evaluate, ReadinessLog(tmp_path / "x"), {}, [], name="n", every=0.0, times=None, command="",
        on_status=lambda _: None,
    )  # fmt: skip
    last = watch.run(stopped.is_set, stopped.wait)
    assert last is not None
    assert last.number == 3


def test_a_sink_that_is_new_hears_what_stands_and_one_that_is_gone_waits_for_nothing(tmp_path: Path) -> None:
    path, some = tmp_path / "x.jsonl", [evaluation(condition("cast", "missing", "dana left"), condition("grants"))]
    down = Scripted("chat", *[SinkError("status 503", wait=3600.0)] * 9)
    last = watch_of(ReadinessLog(path), down, some).run()
    assert last is not None
    assert last.undelivered == 1
    pager = Scripted("pager")
    sinks = {"pager": Sink(name="pager", kind="file", arguments={"path": "/nowhere"})}
    for expected in (1, 1):  # once
        left = iter(some)
        watch = ReadinessWatch(
            lambda left=left: next(left), ReadinessLog(path), sinks, [pager], name="n", every=0.0, times=1, command="",
            on_status=lambda _: None,
        )  # fmt: skip
        last = watch.run()
        assert last is not None
        assert (last.undelivered, last.given_up, len(pager.got)) == (0, 1, expected)
    assert pager.got[0].text == "NOT READY: cast: dana left | READINESS orders prod"


@pytest.mark.parametrize(
    ("before", "after", "is_other"),
    [
        ("it is 61 s old", "it is 1,234.5 s old", False),
        ("85.3% are used", "9% are used", False),
        ("began 2026-11-28 10:00:00, 3 days ago", "began 2026-11-29T11:30:05.5, 4 days ago", False),
        ("binlog.000007 is purged in 3h", "binlog.000008 is purged in 2h", False),
        ("source.1 was not asked", "source.2 was not asked", True),
        ("shard1 was not asked", "shard2 was not asked", True),
        ("tikv-1 has 12% left", "tikv-2 has 12% left", True),
        ("10.0.0.1:20160 has 12 GiB", "10.0.0.2:20160 has 12 GiB", True),
        ("10.0.0.1:20160 has 12 GiB", "10.0.0.1:20161 has 12 GiB", True),
    ],
)
def test_another_figure_is_no_other_reason_and_another_name_is_one(before: str, after: str, is_other: bool) -> None:
    assert (without_figures(before) != without_figures(after)) is is_other


@pytest.mark.parametrize("step", [(-86_400.0, 901.0), (901.0, 0.0)], ids=["set back by a day", "the machine slept"])
def test_an_evaluation_is_due_by_either_clock(tmp_path: Path, step: tuple[float, float]) -> None:
    clocks = [1_800_000_000.0, 50.0]
    watch = ReadinessWatch(
        lambda: evaluation(condition("cast")), ReadinessLog(tmp_path / "x"), {}, [], name="n", every=900.0, times=None,
        command="", on_status=lambda _: None, clocks=(lambda: clocks[0], lambda: clocks[1]),
    )  # fmt: skip
    assert watch.check(lambda: False) is not None
    assert watch.check(lambda: False) is None
    assert watch.due(0.0) == 900.0
    for number, seconds in enumerate(step):
        clocks[number] += seconds
    assert watch.due(0.0) < 0
    assert watch.check(lambda: False) is not None
    assert watch.due(0.0) == 900.0


def test_a_sink_that_is_down_for_hours_gets_it_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "FIRST_WAIT", 0.0)
    path, bad = tmp_path / "x.jsonl", evaluation(condition("cast", "missing", "dana left"))
    chat = Scripted("chat", *[SinkError("status 503")] * 200)
    last = watch_of(ReadinessLog(path), chat, [bad]).run()
    assert last is not None
    assert (len(chat.tried), len(chat.got), last.given_up, last.undelivered) == (201, 1, 0, 0)


# --- how it shows --------------------------------------------------------------------------------------------------


def shown() -> ReadinessStatus:
    found = evaluation(condition("cast", "missing", "dana left"), condition("grants", "not asked"), condition("x"))
    return ReadinessStatus(2, found, changes({}, "ready", found), 1, 0)


def test_metrics_a_heartbeat_and_json() -> None:
    text = page(readiness_metrics(shown(), 900.0))
    of = 'service="orders",runbook="cutover",environment="prod"'
    assert f"migverify_readiness_verdict{{{of}}} 1" in text
    assert f'migverify_readiness_condition{{{of},condition="cast"}} 1' in text
    assert f'migverify_readiness_condition{{{of},condition="grants"}} NaN' in text
    assert f"migverify_readiness_undelivered{{{of}}} 1" in text
    assert heartbeat(shown()) == (
        "2027-01-15T08:00:00Z orders prod: NOT READY (3 conditions, bad: cast); announcements not delivered: 1"
    )
    assert change_line(shown().changes[0]) == "  new -> missing  cast: dana left"
    found = status_as_json(shown())
    assert (found["verdict"], found["number"], found["undelivered"]) == ("not ready", 2, 1)
    assert found["changes"] == [
        {"condition": "cast", "before": "", "after": "missing", "verdict_before": "ready", "verdict": "not ready",
         "reasons": ["dana left"]}
    ]  # fmt: skip


# --- the command ----------------------------------------------------------------------------------------------------


def small(folder: Path) -> Path:
    path = folder / "small.yaml"
    path.write_text(f"{HEAD}sinks:\n  log: {{kind: file, path: {folder / 'announced'}}}\n{STEPS}")
    return path


def test_the_command_evaluates_announces_and_exits_by_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    book = small(tmp_path)
    command = ["runbook", "readiness", str(book), "-e", "prod", "--watch", "--times", "1", "--metrics-file", "m.prom"]
    assert run(command) == 1
    out = capsys.readouterr().out
    assert "small-orders prod: NOT READY" in out
    assert "MISSING drills: 4 drills that went through" in out
    lines = Path("announced").read_text().splitlines()
    assert all("READINESS small-orders prod" in line for line in lines)
    assert any("NOT READY: drills: 0 of 4 drills went through" in line for line in lines)
    assert 'migverify_readiness_verdict{service="small-orders",runbook="small",environment="prod"} 1' in (
        Path("m.prom").read_text()
    )
    assert run([*command, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["changes"] == []
    assert Path("announced").read_text().splitlines() == lines


def test_a_runbook_that_cannot_be_read_any_more_is_not_known_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    book, turns = small(tmp_path), []
    text = book.read_text()
    from migverify.cli import runbook_readiness_watch as command

    evaluate = command._Questions.evaluate

    def turn(asked: Any) -> Any:
        turns.append(1)
        book.write_text("id: [" if len(turns) == 2 else text)
        return evaluate(asked)

    monkeypatch.setattr(command._Questions, "evaluate", turn)
    monkeypatch.setattr(watching, "_LEAST_PERIOD", 0.01)
    arguments = [
        "runbook",
        "readiness",
        str(book),
        "-e",
        "prod",
        "--watch",
        "--times",
        "3",
        "--every",
        "10ms",
        "--json",
    ]
    assert run(arguments) == 1
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [[one["condition"] for one in each["changes"]] for each in found[1:]] == [["definition"], ["definition"]]
    assert found[1]["verdict"] == "inconclusive"
    assert "small.yaml" in found[1]["changes"][0]["reasons"][0]


@pytest.mark.parametrize("more", [["-e", "prod"], [], ["-e", "prod", "--log", "own.log"]])
def test_one_evaluation_announces_a_runbook_that_cannot_be_read_any_more(
    more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    book = small(tmp_path)
    text = book.read_text()
    command = ["runbook", "readiness", str(book), *more, "--watch", "--times", "1", "--json"]
    book.write_text("id: [")
    assert run(command) == 2  # no earlier line says whose it is and where to announce it
    book.write_text(text)
    assert run(command) == 1
    capsys.readouterr()
    for broken in ("id: [", None):
        book.write_text(broken) if broken is not None else book.unlink()
        assert run(command) == 3
        (change,) = json.loads(capsys.readouterr().out)["changes"]
        assert (change["condition"], change["after"]) == ("definition", "unknown")
    assert all("NOT KNOWN: definition" in line for line in Path("announced").read_text().splitlines()[-2:])
    assert run([*command, "--set", "service=else"]) == 2
    book.write_text(text)
    assert run(command) == 1
    assert [one["after"] for one in json.loads(capsys.readouterr().out)["changes"]] == ["ok"]


def test_the_command_that_is_announced_repeats_what_the_watch_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORDERS_PASSWORD", "hunter2hunter2")
    book = small(tmp_path).name
    given = [
        "runbook", "readiness", book, "--environment", "prod", "--set", "service=hunter2hunter2",
        "--without", "watch", "--without", "capacity", "--proof-age", "3d", "--watch-lag", "9m",
        "--for", "tables verify",
        "--runs", "my runs", "--config", "cfg/migverify.yaml", "--watch",
    ]  # fmt: skip
    assert run([*given, "--times", "1"]) == 1
    log = next(Path("my runs/readiness").glob("*.jsonl")).read_text()
    commands = {one["fields"]["command"] for line in log.splitlines() for one in json.loads(line).get("announced", ())}
    (command,) = commands
    assert "hunter2" not in command
    words = shlex.split(command)
    assert words[0] == "migverify"
    assert [word for word in words[1:] if not word.startswith("service=")] == [
        word for word in (*given, "--no-announce") if not word.startswith("service=")
    ]


def test_commands_in_remedies_have_the_configuration_of_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my own.yaml").write_text(
        "source: {url: 'mysql://u@127.0.0.1:1/'}\ntarget: {url: 'tidb://u@127.0.0.1:1/'}\n"
        "tables: {include: [a.*]}\nstore: sqlite:///runs.db\n"
    )
    open_store("sqlite:///runs.db").close()
    words = ["runbook", "readiness", str(small(tmp_path)), "-e", "prod", "--watch", "--times", "1", "--json"]
    assert run([*words, "--config", "my own.yaml"]) == 1
    found = json.loads(capsys.readouterr().out)
    do = {one["id"]: one["do"] for one in found["conditions"]}
    assert do["proof"] == "migverify tables verify --config 'my own.yaml', or `--since` the last one"
    steps = {one["command"] for one in found["next_steps"]}
    assert {
        "migverify config --grants --config 'my own.yaml'",
        "migverify tables verify --config 'my own.yaml'",
    } <= steps


def test_the_command_that_is_announced_works_beside_the_watch_and_announces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["runbook", "readiness", str(small(tmp_path)), "-e", "prod", "--watch"]
    assert run([*command, "--times", "1"]) == 1
    (log,) = Path("runs/readiness").glob("*.jsonl")
    before, announced = log.read_bytes(), Path("announced").read_bytes()
    capsys.readouterr()
    with open_log(log):  # a watch goes on
        assert run([*command, "--times", "1"]) == 2
        assert run([*command, "--no-announce", "--json"]) == 1
        shown = json.loads(capsys.readouterr().out)
    assert (shown["verdict"], shown["changes"]) == ("not ready", [])
    assert (log.read_bytes(), Path("announced").read_bytes()) == (before, announced)
    log.unlink()
    assert run([*command, "--no-announce"]) == 1
    assert not log.exists()


@pytest.mark.parametrize("every", ["60", "1m"])
def test_times_are_durations_or_plain_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: str) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["runbook", "readiness", str(small(tmp_path)), "-e", "prod", "--watch", "--times", "1", "--every", every]
    assert run(words) == 1


def refused_by_lint(text: str) -> str:
    return text.replace("  dana: {}\n", "")


def test_a_runbook_that_lint_refuses_is_not_ready_and_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    book = small(tmp_path)
    command = ["runbook", "readiness", str(book), "-e", "prod", "--watch", "--times", "1", "--json"]
    assert run(command) == 1
    first = {one["id"]: one for one in json.loads(capsys.readouterr().out)["conditions"]}
    assert first["definition"]["state"] == "ok"
    book.write_text(refused_by_lint(book.read_text()))
    assert run(command) == 1
    found = json.loads(capsys.readouterr().out)
    (change,) = found["changes"]
    assert [one["command"].partition(str(book))[0] for one in found["next_steps"]] == [
        "migverify runbook check ", "migverify runbook run ", "migverify guard settings", "migverify config --grants",
        "migverify guard capacity", "migverify tables watch --since last", "migverify tables verify",
    ]  # fmt: skip
    assert (change["condition"], change["before"], change["after"]) == ("definition", "ok", "missing")
    assert "small.yaml" in change["reasons"][0]
    assert change["reasons"][0].endswith("[unknown-person]")
    assert "NOT READY: definition: " in Path("announced").read_text().splitlines()[-1]


@pytest.mark.parametrize("watched", [(), ("--watch", "--no-announce")], ids=["once", "watch"])
def test_the_command_of_a_rehearsal_lacks_only_who_acts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], watched: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    book = small(tmp_path)
    run(["runbook", "readiness", str(book), "-e", "prod", "--runs", "elsewhere", "--json", *watched])
    found = json.loads(capsys.readouterr().out)
    (drill,) = [one["command"] for one in found["next_steps"] if "rehearsal" in one["command"]]
    assert run(shlex.split(drill)[1:]) == 2
    assert "'PERSON' is none of the runbook's people" in capsys.readouterr().err
    assert "--runs elsewhere" in drill


def test_a_rehearsal_of_production_is_in_the_other_environment_and_without_its_configuration(tmp_path: Path) -> None:
    book, pay = small(tmp_path), Path("pay/migverify.yaml")
    assert drill_command(book, {"service": "orders"}, "prod", "runs", Path("dr"), pay) == (
        f"migverify runbook run {book} --kind rehearsal --environment lab --as PERSON --set service=orders --cases dr"
    )
    assert drill_command(book, {}, "lab", "runs", None, pay).endswith(
        "--environment lab --as PERSON --config " + str(pay)
    )
    book.write_text(book.read_text().replace("  lab: {}\n", ""))
    assert drill_command(book, {}, "prod", "runs", None, pay).endswith("prod --as PERSON --config pay/migverify.yaml")
    book.write_text("another: file")
    assert drill_command(book, {}, "prod", "runs", None, None).endswith("--environment prod --as PERSON")


def test_readiness_without_a_watch_says_what_lint_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from migverify.cli import runbook_history
    from tests.unit.runbook_past import NO_FLOOR

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runbook_history, "floor_of", lambda _: NO_FLOOR)
    book = small(tmp_path)
    book.write_text(
        book.read_text().replace(
            "drills_min: 1, clean_last: 1,",
            "drills_min: 0, clean_last: 0, same_runbook: false, same_schema: false, full_cast_last: false,",
        )
    )
    command = ["runbook", "readiness", str(book), "-e", "prod", "--json"]
    assert run(command) == 0
    capsys.readouterr()
    book.write_text(refused_by_lint(book.read_text()))
    assert run(command) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "not ready"
    (bad,) = [one for one in found["conditions"] if one["state"] == "missing"]
    assert bad["id"] == "definition"
    (step,) = found["next_steps"]
    assert step["command"].startswith("migverify runbook check ")
    assert step["reason"].startswith("definition: ")
    assert "migverify runbook check" in bad["do"]


@pytest.mark.parametrize("text", ["0.5", "0s", "-5m", "soon"])
def test_a_time_that_is_none_is_refused(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["runbook", "readiness", str(small(tmp_path)), "-e", "prod", "--watch", "--every", text]) == 2
    assert "--every" in capsys.readouterr().err


def test_runs_on_a_server_need_a_log_of_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    arguments = ["runbook", "readiness", str(small(tmp_path)), "-e", "prod", "--watch", "--times", "1", "--runs", url]
    assert run(arguments) == 2
    assert "--log" in capsys.readouterr().err
    assert run([*arguments, "--log", str(tmp_path / "log")]) == 1


def test_two_services_whose_names_join_to_the_same_have_logs_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = small(tmp_path)
    book.write_text(book.read_text().replace("  prod:", "  eu-prod: {production: true}\n  prod:", 1))

    def command(name: str, environment: str) -> list[str]:
        words = ["runbook", "readiness", str(book), "-e", environment, "--set", f"service={name}", "--watch"]
        return [*words, "--times", "1", "--runs", str(tmp_path / "runs")]

    for name, environment in (("pay", "eu-prod"), ("pay-eu", "prod")):
        assert run(command(name, environment)) == 1
    one, two = (tmp_path / "runs" / "readiness").glob("*.jsonl")
    assert set(ReadinessLog(one).known) == set(ReadinessLog(two).known)
    capsys.readouterr()
    name = ReadinessLog(one).watched
    assert name is not None
    other = ("pay-eu", "prod") if name.environment == "eu-prod" else ("pay", "eu-prod")
    before = one.read_bytes()
    assert run([*command(*other), "--log", str(one)]) == 2
    assert f"is the log of another watch: runbook small, service {name.service}" in capsys.readouterr().err
    assert one.read_bytes() == before


def test_a_text_for_the_terminal_is_between_no_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    book = tmp_path / "small.yaml"
    book.write_text(f"{HEAD}sinks:\n  here: {{kind: stdout}}\n{STEPS}")
    words = ["runbook", "readiness", str(book), "-e", "prod", "--watch", "--times", "1", "--runs", str(tmp_path / "r")]
    assert run([*words, "--json"]) == 1
    found = capsys.readouterr()
    assert json.loads(found.out)["verdict"] == "not ready"
    assert "NOT READY: drills" in found.err


def test_a_variable_that_is_not_set_is_said_and_the_next_watch_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOOK", raising=False)
    book = tmp_path / "small.yaml"
    book.write_text(f"{HEAD}sinks:\n  chat: {{kind: webhook, url_env: HOOK}}\n{STEPS}")
    words = ["runbook", "readiness", str(book), "-e", "prod", "--watch", "--times", "1"]
    assert run(words) == 1
    found = capsys.readouterr()
    assert "sink chat: the environment variable HOOK is not set; its announcements wait in runs/readiness/" in found.err
    assert "not delivered yet" in found.err
    with hook() as there:
        monkeypatch.setenv("HOOK", there.url)
        assert run(words) == 1
        assert any("NOT READY: drills" in text for text in there.got)


def test_what_is_given_up_is_said_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    book = tmp_path / "small.yaml"
    with hook(404) as there:
        monkeypatch.setenv("HOOK", there.url)
        book.write_text(f"{HEAD}sinks:\n  chat: {{kind: webhook, url_env: HOOK}}\n{STEPS}")
        assert run(["runbook", "readiness", str(book), "-e", "prod", "--watch", "--times", "1"]) == 1
    assert "announcements could not be delivered and are given up; runs/readiness/" in capsys.readouterr().err


def test_kill_9_neither_loses_nor_repeats_a_change(tmp_path: Path) -> None:
    book = small(tmp_path)
    whole, folder = book.read_text(), tmp_path / "runs" / "readiness"
    command = [sys.executable, "-m", "migverify", "runbook", "readiness", str(book), "-e", "prod", "--watch"]

    def lines_of_changes() -> int:
        return sum(one.read_bytes().count(b'"kind":"changed"') for one in folder.glob("*.jsonl"))

    # KilledError as soon as the last change is on the disk: most of it is not delivered then.
    for texts in ((whole, "id: ["), (whole,)):
        before = lines_of_changes()
        book.write_text(texts[0])
        process = subprocess.Popen(
            [*command, "--every", "1s"], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_for(lambda n=before: lines_of_changes() > n, "the first change")
            for text in texts[1:]:
                book.write_text(text)
                wait_for(lambda n=before: lines_of_changes() > n + 1, "the next change")
        finally:
            process.kill()
            process.wait()
    (log,) = folder.glob("*.jsonl")
    last = subprocess.run([*command, "--times", "1", "--json"], cwd=tmp_path, capture_output=True, check=False)
    assert last.returncode == 1
    assert json.loads(last.stdout)["changes"] == []
    written = [one for line in log.read_text().splitlines() for one in json.loads(line).get("announced", ())]
    of_file = [one["what"] for one in written if one["fields"]["condition"] == "definition"]
    assert of_file == ["readiness unknown", "readiness ok"]
    of_others = [one["fields"]["condition"] for one in written if one["fields"]["condition"] != "definition"]
    assert len(of_others) == len(set(of_others))
    delivered = {line.partition("[")[2].partition("]")[0] for line in (tmp_path / "announced").read_text().splitlines()}
    assert delivered == {f"readiness-small-orders-prod-{ReadinessLog(log).id}/{one['number']}" for one in written}

"""What a run leaves behind: report, checklist, and a journal that the Chaos Toolkit's tools read."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from migverify.cli.runbook import app
from migverify.errors import UsageError
from migverify.runbook.events import EventKind
from migverify.runbook.model import Case, RunKind
from migverify.runbook.page.chaostoolkit import chaostoolkit_journal
from migverify.runbook.page.checklist import checklist, checklist_markdown
from migverify.runbook.page.html import checklist_html, report_html
from migverify.runbook.page.report_of import report_of
from migverify.runbook.page.report_text import as_markdown, cell, clock_words
from migverify.runbook.page.run_report import RunReport, report_as_json
from migverify.runbook.record.chain import Problem
from migverify.runbook.record.room import FolderRoom
from migverify.runbook.run import machine
from tests.unit.runbook_stories import Story, cutover, in_freeze
from tests.unit.test_runbook_view import ALL

_K = EventKind
ROOT = Path(__file__).parents[2]


def made(room: Path, story: Story) -> RunReport:
    return report_of(FolderRoom(room), story.status.run, clock=story.clock)


def troubled(room: Path) -> Story:
    """A run with everything in it that is worth an action item, and that ends rolled back."""
    story = in_freeze(room, ago=3000).end("freeze", 35).begin("drained").wait(4)
    story.does(_K.FAILED, "drained", reason="3 rows are missing").does(_K.HELD, "drained", reason="drained failed")
    story.wait(30).says(machine.resume, "alice", "look again").says(machine.retry, "alice", "drained")
    story.does(_K.NOTE, "drained", alarm="waiting", text="drained waits")
    story.says(machine.start, "carol", "drained").end("drained", 5)
    story.begin("stop-feed").does(_K.INCONCLUSIVE, "stop-feed", reason="no answer")
    story.does(_K.HELD, "stop-feed", reason="stop-feed is inconclusive")
    story.says(machine.waive, "carol", "stop-feed", "seen by hand", "tomorrow")
    story.says(machine.waive, "bob", "stop-feed", "seen by hand", "tomorrow")
    story.wait(20).says(machine.rollback, "dana", "error rate above 2 %")
    for id_ in ("stop-feed", "freeze", "reverse"):
        if story.status.steps[id_].rollback.value == "armed":
            checks = [{"action": "command.exit", "state": "pass", "text": "exit 0", "value": 0}]
            story.does(_K.ROLLBACK_INTENT, id_, action="command", arguments={}).wait(6)
            story.does(_K.ROLLBACK_EFFECT, id_, ok=True, text="undone")
            story.does(_K.ROLLBACK_VERIFIED, id_, ok=True, checks=checks)
    return story.does(_K.RUN_ENDED, state="rolled back", reason="error rate above 2 %")


def test_everything_that_went_wrong_is_an_action_item(tmp_path: Path) -> None:
    report = made(tmp_path, troubled(tmp_path))
    found = {(one.source, one.step) for one in report.items}
    assert found >= {
        ("late", "freeze"), ("late", "ids"), ("failure", "drained"), ("waiver", "stop-feed"), ("announcement", ""),
        ("people", "drained"),
    }  # fmt: skip
    assert any("3 rows are missing" in one.text and one.owner == "carol" for one in report.items)
    assert any("seen by hand" in one.text and "tomorrow" in one.text for one in report.items)
    assert [(one.step, one.attempt, one.state) for one in report.attempts] == [("drained", 1, "failed")]
    assert [state for _, state in report.failures] == ["failed", "inconclusive"]
    assert len(report.holds) == 2
    assert report.holds[0].until is not None
    assert "error rate above 2 %" in report.holds[1].reasons
    assert report.view.reasons == ("error rate above 2 %",)
    assert report.verified is True
    assert report.scores is not None
    assert report.scores.correctness.points is not None
    assert report.scores.correctness.points < 100


def test_a_run_without_trouble_asks_for_little(tmp_path: Path) -> None:
    story = Story(tmp_path, ago=2000).drive()
    for id_, seconds in ALL:
        story.wait(1).begin(id_).end(id_, min(seconds, 3.0))
    for guard in ("schema", "lag", "monitors"):
        story.guard(guard)
    report = made(tmp_path, story.does(_K.RUN_ENDED, state="completed"))
    assert {one.source for one in report.items} == {"people"}  # nobody signed


def test_a_journal_that_does_not_verify_is_the_first_action_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = in_freeze(tmp_path)
    problem = Problem(7, "its hash is not that of its text")
    monkeypatch.setattr(FolderRoom, "verify", lambda _self, _run: [problem])
    report = made(tmp_path, story)
    assert report.verified is False
    assert "line 7" in report.items[0].text
    assert "DOES NOT VERIFY" in report_html(report)
    assert "DOES NOT VERIFY" in as_markdown(report)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "action", "data") and value and not value.startswith(("#", "data:")):
                self.outside.append(value)
            assert not name.startswith("on"), (tag, name)
            assert name != "style", tag


def hostile(room: Path) -> Story:
    evil = "<script>alert(1)</script>\u202e\"'&|`"
    book = cutover(1_800_000_000.0)
    steps = tuple(replace(one, title=f"{one.title} {evil}", instruction=evil) for one in book.steps)
    story = in_freeze(room, book=replace(book, title=evil, steps=steps))
    return story.does(_K.FAILED, "freeze", reason=evil).does(_K.HELD, "freeze", reason=evil)


def test_the_page_holds_everything_and_hostile_texts_are_texts(tmp_path: Path) -> None:
    report = made(tmp_path, hostile(tmp_path))
    text = report_html(report)
    tags = Tags()
    tags.feed(text)
    assert "script" not in tags.tags
    assert tags.outside == []
    assert "\u202e" not in text
    assert "script-src &#39;none&#39;" in text
    assert "&lt;script&gt;" in text
    for section in ("items", "scores", "steps", "evidence", "holds", "guards", "said", "journal", "log"):
        assert f'id="{section}"' in text
    markdown = as_markdown(report)
    assert "<script>" not in markdown
    assert "\u202e" not in markdown


def test_markdown_tables_stay_tables(tmp_path: Path) -> None:
    lines = as_markdown(made(tmp_path, hostile(tmp_path))).splitlines()
    begin = lines.index("## Steps") + 2
    table = lines[begin : begin + 2 + 16]
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 10 for line in table), table
    assert cell("a|b\n`c`") == "a\\|b \\`c\\`"


def test_the_report_as_json_is_json(tmp_path: Path) -> None:
    told = json.loads(json.dumps(report_as_json(made(tmp_path, troubled(tmp_path))), allow_nan=False))
    assert told["view"]["state"] == "rolled back"
    assert told["scores"]["process"]["points"] is not None
    assert len(told["view"]["log"]) > 50


@pytest.mark.parametrize(
    ("seconds", "words"), [(None, "-"), (0, "0:00"), (59.9, "0:59"), (61, "1:01"), (3661, "1:01:01"), (-61, "-1:01")]
)
def test_times_are_spelled(seconds: float | None, words: str) -> None:
    assert clock_words(seconds) == words


def test_the_checklist_has_a_box_for_every_word() -> None:
    book = cutover(1_800_000_000.0)
    rehearsal, live = checklist(book, RunKind.REHEARSAL), checklist(book, RunKind.LIVE)
    assert sum(len(part.steps) for part in rehearsal.phases) == 15
    assert sum(len(part.steps) for part in live.phases) == 16
    text = checklist_markdown(live)
    assert "carol (target\\_dba) agrees" in text
    assert "POINT OF NO RETURN" in text
    assert "./cutover.sh freeze undo" in text
    assert "backup erin" in text
    assert text.count("- [ ] accepted") == sum(one.reviewer is not None for one in book.steps)
    html = checklist_html(live)
    tags = Tags()
    tags.feed(html)
    assert tags.outside == []
    assert "Revoke the write account" in html


NEEDED = {"chaoslib-version", "platform", "node", "experiment", "start", "end", "duration", "status", "deviated",
          "steady_states", "run", "rollbacks"}  # fmt: skip


def activity(told: dict[str, Any]) -> None:
    assert told["type"] in ("action", "probe")
    assert told["name"]
    provider = told["provider"]
    keys = {"process": {"path"}, "python": {"module", "func"}}[provider["type"]]
    assert keys <= set(provider)
    assert told["type"] == "action" or "tolerance" in told


def ran(told: dict[str, Any]) -> None:
    activity(told["activity"])
    assert {"output", "start", "end", "duration", "status"} <= set(told)
    assert told["status"] in ("succeeded", "failed")
    assert told["duration"] >= 0
    assert (told["status"] == "failed") == ("exception" in told)


def test_the_chaos_toolkits_journal_has_what_its_readers_read(tmp_path: Path) -> None:
    journal = json.loads(json.dumps(chaostoolkit_journal(troubled(tmp_path).status), allow_nan=False))
    assert set(journal) == NEEDED
    assert journal["status"] == "aborted"
    for one in (*journal["run"], *journal["rollbacks"]):
        ran(one)
    for one in journal["experiment"]["method"]:
        activity(one)
    actions = [one for one in journal["run"] if one["activity"]["type"] == "action"]
    states = {one["activity"]["name"].partition(":")[0]: one["status"] for one in actions}
    assert states["stop-feed"] == "failed", "a waived step has not succeeded"
    names = [one["activity"]["name"] for one in journal["run"]]
    assert any(name.startswith("drained (attempt 1)") for name in names)
    assert [one["activity"]["name"] for one in journal["rollbacks"]][-1] == "undo stop-feed"


def test_a_run_that_is_not_over_is_interrupted_and_a_dry_one_has_no_journal(tmp_path: Path) -> None:
    assert chaostoolkit_journal(in_freeze(tmp_path / "a").status)["status"] == "interrupted"
    with pytest.raises(UsageError, match="dry"):
        chaostoolkit_journal(Story(tmp_path / "b", kind=RunKind.DRY).status)


@pytest.mark.parametrize(("passes", "deviated"), [(True, False), (False, True)])
def test_a_case_has_its_steady_states(tmp_path: Path, passes: bool, deviated: bool) -> None:
    parts = {"steady": "settings", "inject": "reverse", "steady_again": "tables", "data": "drained"}
    book = replace(cutover(1_800_000_000.0), case=Case("p0", "L", "Writes fail, reads go on", "30 s", parts))
    story = Story(tmp_path, ago=2000, book=book).drive().play(*ALL[:6]).begin("drained")
    if passes:
        story.end("drained", 5)
    else:
        checks = [{"action": "command.exit", "state": "fail", "text": "exit 1", "value": 1}]
        story.does(_K.EFFECT, "drained", outcome="ok", text="", effect=False)
        story.does(_K.FAILED, "drained", checks=checks, reason="exit 1")
    journal = chaostoolkit_journal(story.status)
    assert journal["steady_states"]["before"]["steady_state_met"] is True
    assert journal["steady_states"]["after"]["steady_state_met"] is passes
    assert journal["deviated"] is deviated
    assert journal["experiment"]["steady-state-hypothesis"]["title"] == "Writes fail, reads go on"
    assert [one["tolerance_met"] for one in journal["steady_states"]["after"]["probes"]] == [True, passes]


def test_the_commands_write_files(tmp_path: Path) -> None:
    story = troubled(tmp_path / "runs")
    runs = ["--runs", str(tmp_path / "runs")]
    for suffix, sign in ((".html", "<!DOCTYPE html>"), (".md", "# REHEARSAL"), (".json", '{\n  "view"')):
        file = tmp_path / f"report{suffix}"
        result = CliRunner().invoke(app, ["report", *runs, "-o", str(file)])
        assert result.exit_code == 0, result.output
        assert file.read_text().startswith(sign)
    result = CliRunner().invoke(app, ["report", *runs, "--run", story.status.run])
    assert "# REHEARSAL 1/4" in result.output
    result = CliRunner().invoke(app, ["export", *runs, "--chaostoolkit-journal", "-"])
    assert json.loads(result.output)["status"] == "aborted"
    copy = tmp_path / "copy.jsonl"
    assert CliRunner().invoke(app, ["export", *runs, "--journal", str(copy)]).exit_code == 0
    assert copy.read_bytes() == story.record.journal.path.read_bytes()
    assert isinstance(CliRunner().invoke(app, ["export", *runs]).exception, UsageError)
    assert isinstance(CliRunner().invoke(app, ["report", *runs, "--run", "none"]).exception, UsageError)


def test_the_checklist_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "checklist.html"
    book = str(ROOT / "runbooks" / "rehearsal.yaml")
    result = CliRunner().invoke(app, ["report", "--checklist", book, "-e", "lab", "-o", str(file)])
    assert result.exit_code == 0, result.output
    assert "runbooks/lab/cutover.sh writes source stop" in file.read_text()
    assert isinstance(CliRunner().invoke(app, ["report", "--checklist", book]).exception, UsageError)
    wrong = CliRunner().invoke(app, ["report", "--checklist", book, "-e", "lab", "--kind", "party"])
    assert isinstance(wrong.exception, UsageError)

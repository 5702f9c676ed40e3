"""The report of a run: action items, hostile texts, and every format of it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from migverify.report.render import Format, render
from migverify.runbook.events import EventKind
from migverify.runbook.page.report_view import as_report
from migverify.runbook.page.run_report import RunReport, report_as_json, report_of
from migverify.runbook.page.view_clock import clock_words
from migverify.runbook.record.chain import JournalProblem
from migverify.runbook.record.run_store import RunStore
from migverify.runbook.run import machine
from tests.unit.runbook.test_runbook_view import ALL
from tests.unit.runbook_runs import replace
from tests.unit.runbook_stories import Story, cutover, in_freeze

_K = EventKind
ROOT = Path(__file__).parents[3]


def made(room: Path, story: Story) -> RunReport:
    return report_of(RunStore(room), story.status.run, clock=story.clock)


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
    assert (report.scores["correctness"].points or 0) < 100


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
    problem = JournalProblem(7, "its hash is not that of its text")
    monkeypatch.setattr(RunStore, "verify", lambda _self, _run: [problem])
    report = made(tmp_path, story)
    assert report.verified is False
    assert "line 7" in report.items[0].text
    assert "DOES NOT VERIFY" in render(as_report(report), Format.HTML)
    assert "DOES NOT VERIFY" in render(as_report(report), Format.TEXT)


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
    text = render(as_report(report), Format.HTML)
    tags = Tags()
    tags.feed(text)
    assert "script" not in tags.tags
    assert tags.outside == []
    assert "\u202e" not in text
    assert "script-src &#39;none&#39;" in text
    assert "&lt;script&gt;" in text
    for section in ("items", "scores", "steps", "evidence", "holds", "guards", "said", "journal", "log"):
        assert f'id="{section}"' in text
    plain = render(as_report(report), Format.TEXT)
    assert "\u202e" not in plain
    assert "<script>alert(1)</script>\\u202e" in plain


def test_each_step_is_a_test_case_and_a_gauge(tmp_path: Path) -> None:
    report = as_report(made(tmp_path, troubled(tmp_path)))
    suite = ElementTree.fromstring(render(report, Format.JUNIT))[0]  # noqa: S314 - our own text
    cases = {case.get("name"): [child.tag for child in case] for case in suite.findall("testcase")}
    assert cases["drained"] == []
    assert cases["stop-feed"] == ["error"]  # waived: it did not pass
    assert len(cases) == len(report.cases)
    gauges = render(report, Format.PROMETHEUS)
    assert re.search(r'migverify_runbook_step\{[^}]*step="stop-feed",[^}]*state="waived"\} 1', gauges)


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

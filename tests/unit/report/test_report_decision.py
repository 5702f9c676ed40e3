"""The page of a decision, and the reports of anomalies and conflicts: every form, and nothing in them is markup."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from sqlalchemy import text as sql

from migverify.decision.decide import decide
from migverify.decision.model import DecisionRules, EvidenceReason, PartEvidence, ReasonKind, Standing
from migverify.decision.run import evidence
from migverify.model import Verdict
from migverify.report.decision import decision_report
from migverify.report.model import Report
from migverify.report.read import read_report
from migverify.report.render import Format, render
from migverify.secrets import Secret, remember
from migverify.store.open import open_store
from migverify.store.results import ResultStore
from tests.unit import decision_store as made
from tests.unit.decision_store import all_fine, reading

HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    with closing(open_store(f"sqlite:///{tmp_path}/store.db")) as opened:
        yield opened


def page(store: ResultStore, links: dict[str, str] | None = None, **changes: object) -> Report:
    asked = reading(store, **changes)
    return decision_report(decide(evidence(asked, time.time()), asked.rules), "orders", links)


@pytest.mark.parametrize("form", list(Format))
def test_every_form_says_the_decision(store: ResultStore, form: Format) -> None:
    all_fine(store, plans={"scan": True})
    text = render(page(store), form)
    needles = {
        Format.TEXT: "NO-GO  orders", Format.JSON: '"decision": "NO-GO"', Format.JUNIT: 'failures="1"',
        Format.PROMETHEUS: 'migverify_decision{decision="NO-GO"} 1', Format.HTML: "NO-GO</h1>",
    }  # fmt: skip
    assert needles[form] in text
    if form is not Format.PROMETHEUS:
        assert "ADD INDEX" in text


def test_the_first_screen_has_the_three_worst_reasons_with_what_to_do(store: ResultStore) -> None:
    all_fine(store, replay={"differs": True}, anomalies={"lost": True}, plans={"scan": True}, hotspots={"hot": True})
    data = page(store)
    assert (data.verdict, data.word, int(data.exit_code)) == (Verdict.MISMATCH, "NO-GO", 1)
    assert [one.partition(":")[0] for one in data.reasons] == ["answers", "answers", "anomalies"]
    assert len(data.remedies) == 3
    head = render(data, Format.HTML).partition("</header>")[0]
    assert head.count('class="reason"') == head.count('class="remedy"') == 3
    assert "workload reproduce" in head
    lines = render(data, Format.TEXT).splitlines()
    assert lines[1].startswith("  answers: ")
    assert lines[2].startswith("    -> migverify workload reproduce")


def test_a_page_asks_for_nothing_and_links_the_reports_beside_it(store: ResultStore) -> None:
    runs = all_fine(store)
    html = render(page(store, {runs["plans"]: f"orders.runs/{runs['plans']}.html"}), Format.HTML)
    assert f'href="./orders.runs/{runs["plans"]}.html"' in html
    hrefs = re.findall(r'(?:href|src)="([^"]+)"', html)
    assert all(one.startswith(("#", "./orders.runs/", "data:,")) for one in hrefs)
    assert "default-src &#39;none&#39;" in html
    evil = render(page(store, {runs["plans"]: "javascript:alert(1)"}), Format.HTML)
    assert 'href="./javascript%3Aalert%281%29"' in evil


def test_what_is_not_required_is_said(store: ResultStore) -> None:
    from migverify.decision.model import DecisionPart

    all_fine(store)
    required = frozenset({DecisionPart.PLANS})
    data = page(store, rules=DecisionRules(required=required))
    assert data.word == "GO"
    assert "latency forecast (not required)" in render(data, Format.HTML)
    junit = Xml.fromstring(render(data, Format.JUNIT).partition("\n")[2])  # noqa: S314 - our own
    assert (junit.get("failures"), junit.get("errors")) == ("0", "0")
    assert data.document["required"] == ["plans"]


def test_what_is_not_known_fails_junit_as_an_error(store: ResultStore) -> None:
    junit = Xml.fromstring(render(page(store), Format.JUNIT).partition("\n")[2])  # noqa: S314 - our own
    assert (junit.get("tests"), junit.get("errors"), junit.get("failures")) == ("7", "7", "0")


@pytest.mark.parametrize("form", list(Format))
def test_no_secret_and_no_markup_of_a_run_reaches_a_page(store: ResultStore, form: Format) -> None:
    all_fine(store, replay={"differs": True}, conflicts={"cause": "ttl"}, anomalies={"lost": True})
    asked = reading(store)
    found = evidence(asked, time.time())
    url = "mysql://app:hunter2@db/shop"
    hostile = EvidenceReason(ReasonKind.HARM, f"{HOSTILE} {url}", f"migverify x {url} {HOSTILE}", 1e9)
    waived = EvidenceReason(ReasonKind.WAIVED, url, "", 0.0, f"{url} {HOSTILE}")
    parts: list[PartEvidence] = [
        replace(one, reasons=(*one.reasons, hostile, waived), covered=url, again=url) for one in found.parts
    ]
    remember(Secret("s3cret-of-the-store"))
    data = decision_report(decide(replace(found, parts=tuple(parts), unread=f"{url} s3cret-of-the-store")), HOSTILE)
    text = render(data, form)
    assert "hunter2" not in text
    assert "s3cret-of-the-store" not in text
    assert made.SECRET not in text
    assert "\x1b" not in text
    if form is Format.HTML:
        assert "<script>alert" not in text


# -- anomalies and conflicts


@pytest.mark.parametrize("form", list(Format))
def test_anomalies_are_a_report_in_every_form(store: ResultStore, form: Format) -> None:
    run = all_fine(store, anomalies={"lost": True})["anomalies"]
    data = read_report(store, run)
    assert data.verdict is Verdict.MISMATCH
    text = render(data, form)
    if form is not Format.PROMETHEUS:
        assert "lost update" in text
    else:
        assert 'migverify_run_anomalies{permitted_by="target only"} 1' in text
    if form is Format.JSON:
        document = json.loads(text)
        assert (document["kind"], document["anomalies"][0]["permitted_by"]) == ("anomalies", "target only")


def test_a_run_of_anomalies_says_no_more_than_the_store_holds(store: ResultStore) -> None:
    runs = all_fine(store, anomalies={"lost": True})
    fine = made.anomalies(store, runs["replay"])
    assert read_report(store, fine).verdict is Verdict.MATCH
    with store.engine.begin() as connection:
        connection.execute(sql("DELETE FROM migverify_finding_heads"))
    cut = read_report(store, runs["anomalies"])
    assert (cut.verdict, "0 of the anomalies" in cut.reasons[0]) == (Verdict.INCONCLUSIVE, True)
    with store.engine.begin() as connection:
        connection.execute(sql("DELETE FROM migverify_run_events WHERE event = 'run_finished'"))
    assert read_report(store, fine).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("form", list(Format))
@pytest.mark.parametrize(
    ("cause", "verdict"),
    [("", Verdict.MATCH), ("ttl", Verdict.MISMATCH), ("UNKNOWN", Verdict.INCONCLUSIVE), ("internal", Verdict.MATCH)],
)
def test_conflicts_are_a_report_in_every_form(store: ResultStore, form: Format, cause: str, verdict: Verdict) -> None:
    recorded = made.replay(store)
    data = read_report(store, made.conflicts(store, recorded, cause=cause))
    assert data.verdict is verdict
    text = render(data, form)
    assert made.SECRET not in text
    if cause and form in (Format.TEXT, Format.JSON, Format.HTML):
        assert cause in text


def test_logs_alone_never_show_that_there_is_no_conflict(store: ResultStore) -> None:
    assert read_report(store, made.conflicts(store, "")).verdict is Verdict.INCONCLUSIVE


def test_the_decision_of_a_store_without_runs_is_not_known(store: ResultStore) -> None:
    data = page(store)
    assert (data.word, int(data.exit_code)) == (Standing.NOT_KNOWN.value, 3)
    assert data.next_steps[0].command == "migverify workload replay captures/peak"

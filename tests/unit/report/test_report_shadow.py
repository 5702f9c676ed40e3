"""A shadow replay as a report: what it recorded last while it runs, in every form, and what it did not ask."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from migverify.model import StoredKind, Verdict
from migverify.report.html import render_html
from migverify.report.model import Table
from migverify.report.read import read_report
from migverify.report.render import Format, render
from migverify.report.shadow import live_report
from migverify.store.open import open_store
from migverify.store.results import ResultStore
from migverify.workload.shadow.evidence import RULE, evidence_of

HOUR = {
    "hour": "2026-11-27T20Z", "verdict": "MISMATCH", "digests": {"MISMATCH": 1}, "left": {"writes": 7}, "unreadable": 0,
    "reads": {"same": 90, "assumed": 2, "different": 3, "undecided": 1, "unasked": 4}, "gaps": 0,
    "reasons": ["1 digests are not decided"],
}  # fmt: skip
DIGEST = {
    "digest": "d" * 64, "text": "SELECT <u> FROM pay WHERE id = ?", "verdict": "MISMATCH", "reads": 100, "same": 90,
    "different": 3, "undecided": 1, "unasked": 6, "mismatch_hours": ["2026-11-27T20Z"], "reasons": ["other rows"],
}  # fmt: skip
STATUS: dict[str, Any] = {
    "log": "/var/log/slow.log", "at": 1_795_000_000.0, "verdict": "MISMATCH", "reasons": ["a gap in the log"],
    "counts": {"reads": 100, "same": 90, "different": 3, "undecided": 1, "unasked": 6},
    "digests_by_verdict": {"MISMATCH": 1, "MATCH": 4}, "digests": [DIGEST], "hours": [HOUR], "final": False,
}  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    made = open_store(f"sqlite:///{tmp_path / 'runs.db'}")
    yield made
    made.close()


def begun(store: ResultStore) -> str:
    return store.start_run("workload replay --follow", "h", {}, {"shadow": True}, kind=StoredKind.REPLAY)


def keep(store: ResultStore, run: str, **changes: Any) -> None:
    store.add_window(run, RULE, {"window": "", "state": "running", "shadow": {**STATUS, **changes}}, [])


@pytest.mark.parametrize("form", list(Format))
def test_a_run_that_goes_on_is_shown_as_it_was_recorded_last(store: ResultStore, form: Format) -> None:
    run = begun(store)
    keep(store, run)
    report = read_report(store, run)
    assert report.verdict is Verdict.MISMATCH
    text = render(report, form)
    assert run in text
    if form is not Format.PROMETHEUS:
        assert "<u>" not in text or form in (Format.TEXT, Format.JSON)
        assert "WHERE id = ?" in text


def test_its_hours_say_what_was_not_asked(store: ResultStore) -> None:
    run = begun(store)
    keep(store, run)
    document = json.loads(render(read_report(store, run), Format.JSON))
    assert document["hours"] == [HOUR]
    hours = read_report(store, run).sections[0].blocks[0]
    assert isinstance(hours, Table)
    row = [cell if isinstance(cell, str) else cell.text for cell in hours.rows[0]]
    assert row == ["2026-11-27T20Z", "MISMATCH", "90", "3", "1", "6", "1 digests are not decided"]
    page = render_html(read_report(store, run))
    assert "2026-11-27T20Z" in page
    assert 'http-equiv="refresh"' not in page


def test_a_page_that_is_written_anew_loads_itself_anew(store: ResultStore) -> None:
    run = begun(store)
    report = live_report(evidence_of(run, STATUS), store.load_run(run))
    assert '<meta http-equiv="refresh" content="15">' in render_html(replace(report, refresh_seconds=15))
    assert report.private, "it shows statements"


def test_without_a_status_it_is_a_replay_without_an_end(store: ResultStore) -> None:
    report = read_report(store, begun(store))
    assert report.verdict is Verdict.INCONCLUSIVE


def test_one_without_a_read_is_no_match(store: ResultStore) -> None:
    run = begun(store)
    keep(
        store, run, verdict="INCONCLUSIVE", digests=[], hours=[], counts={}, reasons=["no read was asked and answered"]
    )
    report = read_report(store, run)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "No hour was asked yet." in render(report, Format.TEXT)

"""The history example end to end: many old tables, one re-modelled table, months that are verified once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from migverify.model import Verdict
from migverify.sql.quoting import quote_name
from migverify_lab import history
from migverify_lab.history import FAULTS, History, plant, take_back
from migverify_lab.servers import LabServers
from migverify_lab.session import connect, run
from tests.db.reconciling import Found, Outcome, example, reconcile
from tests.db.verifying import write_config

pytestmark = pytest.mark.db

SHARDS, ROWS, MONTHS = 3, 60, 4
HOT, COLD = date(2026, 4, 1), date(2026, 1, 1)
NOW = datetime(2026, 5, 1, tzinfo=UTC).timestamp()
"""The newest month has ended, so that all are read; only the oldest is immutable."""


@dataclass(frozen=True)
class Bench:
    """The tables, and the example's files for them."""

    pair: LabServers
    made: History
    folder: Path

    def run(self, *names: str, now: float = NOW, full: bool = False) -> Outcome:
        # Time stands still but for the settle time's sake.
        ticks = iter(range(1, 1 << 30))
        return reconcile(self.folder / "migverify.yaml", self.folder / "recon.yaml", *names,
                         now=lambda: now + next(ticks), full=full)  # fmt: skip


@pytest.fixture(scope="module")
def tables(pair: LabServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    mark = uuid.uuid4().hex[:8]
    made = History(f"old_{mark}", f"new_{mark}", SHARDS, ROWS, MONTHS, HOT)
    folder = tmp_path_factory.mktemp("history")
    plain = {"tls": {"mode": "disabled"}}
    write_config(folder, pair, made.old, source=plain, target=plain)
    example("history", folder, {"history_old": made.old, "history_new": made.new}, ("00..63", f"00..{SHARDS - 1:02}"),
            ("start: 2025-12-01", "start: 2025-12-31"))  # fmt: skip
    try:
        counts = history.load(pair.source, pair.target, made)
        assert set(counts.values()) == {SHARDS * ROWS}
        yield Bench(pair, made, folder)
    finally:
        for server, name in ((pair.source, made.old), (pair.target, made.new)):
            with connect(server) as connection:
                run(connection, [f"DROP DATABASE IF EXISTS {quote_name(name)}"])


@pytest.fixture
def bench(tables: Bench) -> Bench:
    """No run of another test has seen anything."""
    (tables.folder / "runs.db").unlink(missing_ok=True)
    return tables


def test_what_agrees_is_a_match(bench: Bench) -> None:
    ended = bench.run()
    assert ended.verdict is Verdict.MATCH, ended.reasons()
    months, windows = ended.recon("months_agree"), ended.recon("immutable_months")
    assert months["covered"]["groups"] == MONTHS * 3
    assert windows["covered"]["rows_source"] == windows["covered"]["rows_target"] == SHARDS * ROWS
    assert windows["windows"]["count"] == MONTHS


@pytest.mark.parametrize("name", [fault.name for fault in FAULTS])
def test_a_fault_is_found_in_its_row(bench: Bench, name: str) -> None:
    planted = plant(bench.pair.target, bench.made, name, COLD, seed=2)
    try:
        ended = bench.run()
    finally:
        take_back(bench.pair.target, planted)
    kind = {"row-lost": "missing on target", "row-doubled": "missing on source"}.get(name, "value mismatch")
    amount = Decimal(planted.facts["amount"])
    at_risk = {"cent-lost": Decimal("0.01"), "sign-lost": 2 * abs(amount), "row-lost": abs(amount),
               "row-doubled": abs(amount)}.get(name, Decimal(0))  # fmt: skip
    assert ended.mismatches == {"months_agree", "immutable_months"}, ended.reasons()
    currency = planted.facts["currency"]
    assert ended.findings["immutable_months"] == {(planted.facts["key"],): Found(kind, {currency: at_risk})}
    assert ended.findings["months_agree"] == {
        (planted.facts["month"], currency): Found("value mismatch", {currency: at_risk}),
        ("row", planted.facts["key"]): Found(kind, {}),
    }
    assert ended.at_risk("months_agree") == ended.at_risk("immutable_months") == {currency: at_risk}


def test_immutable_months_are_verified_once(bench: Bench) -> None:
    first = bench.run("immutable_months")
    assert first.verdict is Verdict.MATCH, first.reasons()
    cold = plant(bench.pair.target, bench.made, "cent-lost", COLD)
    hot = plant(bench.pair.target, bench.made, "cent-lost", HOT)
    try:
        second = bench.run("immutable_months")
        again = bench.run("immutable_months", full=True)
    finally:
        take_back(bench.pair.target, cold)
        take_back(bench.pair.target, hot)
    # The hot month is read again; what was promised not to change is not, unless the whole is asked for.
    assert set(second.findings["immutable_months"]) == {(hot.facts["key"],)}
    assert any("immutable" in reason for reason in second.results["immutable_months"].reasons)
    assert set(again.findings["immutable_months"]) == {(hot.facts["key"],), (cold.facts["key"],)}
    assert bench.run("immutable_months").verdict is Verdict.MATCH, "a month that did not match is read again"

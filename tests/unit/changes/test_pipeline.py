"""The audit of the pipeline: every question can pass, fail, and stay without an answer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from migverify.changes.carriers.base import (
    Carried,
    CarriedItem,
    Carrier,
    CarrierMessage,
    MessageHead,
    MessagePosition,
    SourceOrder,
    Watermark,
)
from migverify.changes.carriers.dead_letters import DeadLetterFile
from migverify.changes.carriers.formats import CarrierFormat
from migverify.changes.carriers.sequence import Completeness, OrderCounts, OrderTracker
from migverify.changes.model import Begin, Commit, Item, Op, Position, Rows, TableMap
from migverify.changes.pipeline import (
    CarriedCounts,
    PartitionTraffic,
    PipelineFacts,
    PipelineFinding,
    PipelineLimits,
    PipelineOutcome,
    SizeCollector,
    SourceCounts,
    TrafficCounter,
    TransactionSizes,
    audit,
    count_source,
    measure,
)
from migverify.changes.positions import tso_position
from migverify.cli.changes_pipeline import render_json, render_text
from migverify.errors import UsageError
from migverify.model import Verdict
from tests.json_outputs import problems

NOW = 1_000_000.0
BATCHED = TransactionSizes(10, 100, (0, 10, 0, 0, 0), 10)


def partition(number: int, rows: int, **more: Any) -> PartitionTraffic:
    return replace(PartitionTraffic("t", number, rows, NOW - 110, NOW - 10, rows, rows, 0, None), **more)


def sound() -> PipelineFacts:
    parts = (partition(0, 50), partition(1, 50))
    carried = CarriedCounts({"d.t": 100}, {"d.t": 100}, BATCHED, parts, 0.4, NOW - 10)
    complete = Completeness(int((NOW - 5) * 1000) << 18, ())
    return PipelineFacts(NOW, carried, OrderCounts(changes=100), complete, SourceCounts({"d.t": 100}, BATCHED), 0)


def findings(facts: PipelineFacts, limits: PipelineLimits | None = None) -> dict[str, PipelineFinding]:
    return {finding.name: finding for finding in audit(facts, limits or PipelineLimits()).findings}


def test_a_sound_pipeline_matches() -> None:
    report = audit(sound(), PipelineLimits())
    assert {finding.outcome for finding in report.findings} == {PipelineOutcome.PASS}
    assert report.verdict is Verdict.MATCH
    assert report.partitions[0].rows_per_second == 0.5


def carried(**more: Any) -> PipelineFacts:
    facts = sound()
    return replace(facts, carried=replace(facts.carried, **more))


def counted(**more: Any) -> PipelineFacts:
    return replace(sound(), counts=replace(sound().counts, **more))


SINGLE = TransactionSizes(100, 100, (100, 0, 0, 0, 0), 1)

FAILING = [
    ("lag", replace(sound(), completeness=Completeness(int((NOW - 31) * 1000) << 18, ()))),
    ("longest transit", carried(longest_transit=11.0)),
    (
        "oldest unapplied",
        carried(partitions=(partition(0, 50), partition(1, 50, applied=40, pending=10, oldest_pending=NOW - 61))),
    ),
    ("skew", carried(partitions=(partition(0, 97), *(partition(number, 1) for number in (1, 2, 3))))),
    ("rows written one by one", carried(sizes=SINGLE)),
    ("rows carried", carried(tables={"d.t": 99})),
    ("rows carried", carried(tables={"d.t": 100, "d.u": 1})),
    ("rows applied", carried(applied={"d.t": 99})),
    ("duplicates", counted(duplicates=2)),
    ("out of order", counted(out_of_order=1)),
    ("moved between partitions", counted(moved=1)),
    ("after their watermark", counted(late=1)),
    ("undecodable", counted(rejects=1)),
    ("dead letters kept", replace(sound(), dead_letters=1)),
]


@pytest.mark.parametrize(("name", "facts"), FAILING)
def test_each_question_can_fail(name: str, facts: PipelineFacts) -> None:
    found = findings(facts)
    assert found[name].outcome is PipelineOutcome.FAIL
    assert found[name].reason
    assert audit(facts, PipelineLimits()).verdict is Verdict.MISMATCH


UNKNOWN = [
    (
        "lag",
        replace(sound(), completeness=Completeness(None, ()), carried=replace(sound().carried, last_time=NOW - 100)),
    ),
    ("longest transit", carried(longest_transit=None)),
    ("oldest unapplied", carried(partitions=(partition(0, 50, applied=None, pending=None),))),
    ("skew", carried(partitions=())),
    ("skew", carried(partitions=(partition(0, 0),))),
    ("rows written one by one", carried(sizes=TransactionSizes(0, 0, (0,) * 5, 0))),
    ("rows written one by one", carried(sizes=replace(BATCHED, exact=False))),
    ("rows carried", replace(sound(), source=None)),
    ("rows applied", carried(applied=None)),
    ("duplicates", counted(exact=False)),
    ("out of order", counted(exact=False)),
    ("moved between partitions", counted(exact=False)),
    ("missing offsets", counted(offset_gaps=1)),
    ("without key", counted(without_key=1)),
]


@pytest.mark.parametrize(("name", "facts"), UNKNOWN)
def test_what_was_not_measured_is_never_a_pass(name: str, facts: PipelineFacts) -> None:
    found = findings(facts)
    assert found[name].outcome is PipelineOutcome.INCONCLUSIVE
    assert found[name].reason
    assert audit(facts, PipelineLimits()).verdict is Verdict.INCONCLUSIVE


def test_without_a_watermark_a_fresh_change_shows_that_there_is_no_lag() -> None:
    facts = replace(sound(), completeness=Completeness(None, ()))
    assert findings(facts)["lag"].outcome is PipelineOutcome.PASS


def test_single_rows_of_the_source_are_named() -> None:
    facts = replace(carried(sizes=SINGLE), source=SourceCounts({"d.t": 100}, BATCHED))
    assert findings(facts)["rows written one by one"].reason == "100 rows in 100 transactions; on the source 0.00"


def test_text_and_json_say_the_same() -> None:
    report = audit(counted(out_of_order=3), PipelineLimits())
    text = render_text(report)
    assert text.startswith("MISMATCH  pipeline\n")
    assert "out of order" in text
    assert "complete up to 1970-01-12 13:46:35+00:00 (TSO " in text
    assert "d.t" in text
    document = json.loads(render_json(report))
    problems("changes-audit-pipeline", document)
    assert document["verdict"] == "MISMATCH"
    by_name = {finding["name"]: finding for finding in document["findings"]}
    assert by_name["out of order"] == {
        "name": "out of order",
        "value": 3,
        "limit": 0,
        "unit": "changes",
        "outcome": "fail",
        "reason": "a later change of the row came before",
    }
    assert document["partitions"][0]["rows_per_second"] == 0.5
    assert document["tables"] == [{"table": "d.t", "source": 100, "carried": 100, "applied": 100}]


def item(row: int, transaction: int, part: int, offset: int, when: float, **more: Any) -> Carried:
    message = CarrierMessage(MessagePosition("t", part, offset), None, None, when + 2)
    head = MessageHead(message, "d", "t", when, str(transaction), SourceOrder(tso_position(transaction)))
    return replace(head.rows(Op.INSERT, None, {"id": str(row)}, ["id"]), **more)


def test_traffic_counts_rows_once_and_what_is_pending() -> None:
    items: list[CarriedItem] = [
        item(1, 10, 0, 0, 100.0),
        item(2, 10, 1, 0, 100.0),
        item(3, 11, 0, 1, 101.0),
        item(3, 11, 0, 2, 101.0),
        item(4, 12, 0, 3, 99.0, snapshot=True),
        item(5, 13, 1, 1, 103.0),
        Watermark(13 << 18, MessagePosition("t", 0, 4)),
    ]
    traffic = TrafficCounter(OrderTracker(), {("t", 0): 2, ("t", 1): None})
    assert list(traffic.through(items)) == items
    found = traffic.result({("t", 0): 5, ("t", 1): 2})
    assert (found.tables, found.applied) == ({"d.t": 4}, {"d.t": 2})
    assert (found.sizes.count, found.sizes.classes[0], found.sizes.largest) == (3, 2, 2)
    first, second = found.partitions
    assert (first.rows, first.pending, first.oldest_pending) == (2, 3, None)
    assert (second.rows, second.pending, second.oldest_pending) == (2, 2, 100.0)
    assert found.longest_transit == 2.0


def test_source_rows_count_with_their_commit() -> None:
    table = TableMap("d", "t", ())
    at = Position("f", 4)

    def rows(images: bytes) -> Rows:
        return Rows(Op.INSERT, table, images, "f", 4, 0)

    items: list[Item] = [
        Begin("g:1", at, 0.0),
        rows(b"aa"),
        rows(b"a"),
        Commit("g:1", at, 0.0),
        Begin("g:2", at, 0.0),
        rows(b"a"),
        Commit("g:2", at, 0.0),
        Begin("g:3", at, 0.0),
        rows(b"aaaa"),
    ]
    found = count_source(items, lambda event: len(event.images))
    assert found.tables == {"d.t": 4}
    assert (found.sizes.count, found.sizes.rows, found.sizes.classes[0]) == (2, 4, 1)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 30), max_size=200), st.integers(1, 40))
def test_sizes_add_up(transactions: list[int], limit: int) -> None:
    sizes = SizeCollector(limit)
    for transaction in transactions:
        sizes.row(str(transaction))
    found = sizes.result()
    assert found.rows == len(transactions)
    assert sum(found.classes) == found.count
    if limit > 30:
        assert found.exact
        assert found.count == len(set(transactions))


def event(number: int, **more: Any) -> str:
    body = {
        "database": "d",
        "table": "t",
        "pkNames": ["id"],
        "isDdl": False,
        "type": "INSERT",
        "es": 1,
        "sqlType": {"id": 4},
        "mysqlType": {"id": "int"},
        "data": [{"id": str(number)}],
        "old": None,
        "_tidb": {"commitTs": 5 << 18},
    }
    return json.dumps(body | more) + "\n"


def canal_files(*paths: Path) -> Carrier:
    return CarrierFormat("canal-json").files(paths)


def test_measure_keeps_the_rejects(tmp_path: Path) -> None:
    path = tmp_path / "events.json"
    path.write_text(event(1) + "{\n" + event(1) + event(2))
    letters = DeadLetterFile(tmp_path / "letters")
    for _ in range(2):
        facts = measure(canal_files(path), letters=letters)
        assert (facts.counts.changes, facts.counts.duplicates, facts.counts.rejects) == (3, 1, 1)
        assert facts.carried.tables == {"d.t": 2}
        assert (len(letters), facts.dead_letters) == (1, 0)
        assert findings(facts)["undecodable"].reason.startswith("most often: not JSON at character 1")
    path.write_text(event(1))
    assert measure(canal_files(path), letters=letters).dead_letters == 1


def test_a_folder_is_read_alone(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="read alone"):
        canal_files(tmp_path, tmp_path / "x")


def command(*arguments: str) -> Any:
    from migverify.cli.changes_pipeline import pipeline

    app = typer.Typer()
    app.command()(pipeline)
    return CliRunner().invoke(app, list(arguments))


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "events.json"
    path.write_text("".join(event(number) for number in range(5)))
    done = command("--format", "canal-json", "--file", str(path), "--json")
    assert done.exit_code == 3, done.output
    document = json.loads(done.output)
    assert document["tables"] == [{"table": "d.t", "source": None, "carried": 5, "applied": None}]
    path.write_text(event(1) + "broken")
    done = command("--format", "canal-json", "--file", str(path), "--dead-letters", str(tmp_path / "dead"))
    assert done.exit_code == 1, done.output
    assert "undecodable" in done.output
    assert len(DeadLetterFile(tmp_path / "dead")) == 1
    for wrong in (
        (),
        ("--file", str(path), "--kafka", "h:1"),
        ("--kafka", "h:1"),
        ("--file", str(path), "--group", "g"),
    ):
        assert isinstance(command("--format", "canal-json", *wrong).exception, UsageError)

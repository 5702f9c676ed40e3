"""What a watch reads through an engine, its metrics, and how its command begins and ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from migverify.cli.main import run
from migverify.cli.watching import metrics_page
from migverify.errors import ConfigError, PlanError, ReadError, UsageError
from migverify.exposition import Metric, page
from migverify.model import ColumnDef, KeyText, StoredKind, Verdict
from migverify.recon.build import Built
from migverify.recon.evaluate import Conditions
from migverify.recon.exceptions import KnownException
from migverify.recon.fields import WindowRule
from migverify.recon.model import Class, Dataset, FilePart, QueryPart, RuleFinding, RulePlace, TablePart, Window
from migverify.recon.relation import Combine, FileRead, JoinFilter, KeyRows, Relation, SqlRead
from migverify.recon.rule import Rule, RuleSet
from migverify.recon.run import RuleTools
from migverify.recon.watch import RulesWatchRequest, watch_rules
from migverify.recon.watch_reads import EngineReads, WatermarkCache
from migverify.recon.watch_state import WatchLimits
from migverify.recon.watch_status import Patience, RulesStatus, RuleStatus, SourceMark
from migverify.recon.watermark import SourceWatermark
from migverify.sql.recon import signature_sql
from migverify.watch.status import status_metrics
from tests.fakes import FakeStore
from tests.recon_world import START, World, make_rule
from tests.rule_fakes import changed, excused

PLACE = RulePlace("rules.yaml", 1)
WINDOW = Window(START, START + timedelta(seconds=60))
WIDE = Window(START - timedelta(seconds=60), START + timedelta(seconds=120))
ID = ColumnDef("id", 1, "bigint", "bigint", nullable=False)
AMOUNT = ColumnDef("amount", 2, "decimal", "decimal(10,2)", nullable=True, precision=10, scale=2)


class Tables:
    """An engine over two dicts by window; ``now`` is what a lookup sees."""

    name = "toy"

    def __init__(self, **sides: dict[Window | None, dict[str, str]]) -> None:
        self.sides = sides
        self.asked: list[tuple[str, int]] = []

    def lookup(self, relation: Relation, keys: Sequence[KeyText]) -> dict[KeyText, KeyRows]:
        name, _, where = relation.dataset.partition("@")
        rows = next(rows for window, rows in self.sides[name].items() if str(window) == where)
        self.asked.append((relation.dataset, len(keys)))
        return {key: KeyRows(1, (rows[key[0] or ""],)) for key in keys if key[0] in rows}

    def build(self, rule: Rule, window: Window | None) -> Built:
        sides = [
            Relation(f"{name}@{window}", (), (ID,), (AMOUNT,), (Combine.ROW,)) for name in (rule.source, rule.target)
        ]
        return Built(sides[0], sides[1], JoinFilter(), ())


def rule_set(*rules: Rule, exceptions: tuple[KnownException, ...] = (), sql: str = "") -> RuleSet:
    part = QueryPart("source", sql) if sql else TablePart("source", "app", "orders")
    datasets = {
        "orders": Dataset("orders", (part,), PLACE, time="at"),
        "payments": Dataset("payments", (TablePart("target", "app", "payments"),), PLACE, time="at"),
    }
    return RuleSet("rules.yaml", rules, datasets, {}, exceptions, "digest")


def reads_of(tables: Tables, rules: RuleSet) -> EngineReads:
    marks: Any = None
    tools = RuleTools(tables, tables.build, conditions=Conditions(show=True))  # type: ignore[arg-type]
    return EngineReads(rules, tools, marks)


def missing(key: str, window: Window | None = WINDOW) -> RuleFinding:
    of = Class.MISSING_ON_TARGET
    return RuleFinding("paid", (key,), of, of, key, window=window, counts=(1, 0))


def test_a_look_says_what_differs_now() -> None:
    rule = make_rule()
    tables = Tables(orders={WINDOW: {"1": "1.00", "2": "2.00", "3": "3.00"}},
                    payments={WINDOW: {"1": "1.00", "2": "2.50"}})  # fmt: skip
    found = reads_of(tables, rule_set(rule)).look(rule, WINDOW, [missing(k) for k in ("1", "2", "3", "4")])
    assert found is not None
    assert [f.of if f else None for f in found] == [None, Class.VALUE_MISMATCH, Class.MISSING_ON_TARGET, None]
    assert [d.target for d in found[1].deviations] == ["2.50"]  # type: ignore[union-attr]


def test_a_look_knows_exceptions_and_when_they_expire() -> None:
    rule = make_rule()
    tables = Tables(orders={WINDOW: {"3": "3.00"}}, payments={WINDOW: {}})
    for expires, kind in (
        (datetime(2099, 1, 1), Class.KNOWN_EXCEPTION),
        (datetime(2020, 1, 1), Class.MISSING_ON_TARGET),
    ):
        known = excused("paid", ("3",), "ann", "test data", expires)
        found = reads_of(tables, rule_set(rule, exceptions=(known,))).look(rule, WINDOW, [missing("3")])
        assert found is not None
        assert found[0] is not None
        assert found[0].kind is kind


@pytest.mark.parametrize("kind", ["no_rows", "transitions", "sequence", "freshness", "expectations"])
def test_findings_that_are_of_no_key_cannot_be_looked_at(kind: str) -> None:
    rule = make_rule(kind=kind)
    assert reads_of(Tables(), rule_set(rule)).look(rule, WINDOW, [missing("1")]) is None


def test_keys_of_another_form_cannot_be_looked_at() -> None:
    rule = make_rule()
    finding = replace(missing("1"), key=("EUR", "1"))
    reads = reads_of(Tables(), rule_set(rule))
    assert reads.look(rule, WINDOW, [finding]) is None


def test_rows_behind_a_group_are_looked_at_as_rows_and_the_group_as_a_group() -> None:
    rule = make_rule(kind="same_groups")
    tables = Tables(orders={WINDOW: {"1": "1.00", "EUR": "3.00"}}, payments={WINDOW: {"EUR": "3.00"}})
    reads = reads_of(tables, rule_set(rule))
    drilled = lambda rule, window: replace(tables.build(rule, window), drill=tables.build(rule, window))  # noqa: E731
    reads.tools = replace(reads.tools, build=drilled)
    findings = [replace(missing("x"), key=("row", "1")), replace(missing("x"), key=("row", "2")), missing("EUR")]
    found = reads.look(rule, WINDOW, findings)
    assert found is not None
    assert [f and (f.of, f.key) for f in found] == [(Class.MISSING_ON_TARGET, ("row", "1")), None, None]


def test_sql_that_cuts_the_window_itself_is_not_asked_over_a_wider_one() -> None:
    rule = make_rule()
    tables = Tables(orders={WIDE: {"1": "1.00"}}, payments={WIDE: {"1": "1.00"}})
    assert reads_of(tables, rule_set(rule)).look(rule, WIDE, [missing("1")]) == [None]
    bound = reads_of(tables, rule_set(rule, sql="SELECT * FROM t WHERE at >= :window_start"))
    assert bound.look(rule, WIDE, [missing("1")]) == [missing("1")]


def test_files_have_no_checksum() -> None:
    rule, reads = make_rule(), reads_of(Tables(), rule_set(make_rule()))
    files = Relation("orders", (FileRead(FilePart("x.parquet"), ("id",), (), ()),), (ID,), (), ())
    reads.tools = replace(reads.tools, build=lambda *_: Built(files, None, JoinFilter(), ()))
    assert reads.signature(rule, WINDOW) is None


def test_who_does_not_answer_has_no_watermark_and_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    marks: Any = WatermarkCache(None, {}, None)  # type: ignore[arg-type]

    def server(name: str) -> SourceWatermark:
        if name == "orders":
            raise ReadError("orders: no answer")
        return SourceWatermark(name, 5.0, "clock")

    monkeypatch.setattr(WatermarkCache, "_server", lambda _, name: server(name))
    parts = (TablePart("orders", "a", "b"), TablePart("payments", "a", "b"), FilePart("/nowhere/x.parquet"))
    found = {m.source: m for m in marks.of(Dataset("all", parts, PLACE))}
    assert (found["orders"].at, found["orders"].reason) == (None, "orders: no answer")
    assert found["payments"].at == 5.0
    assert found["/nowhere/x.parquet"].at is None
    assert [m.at for m in marks.of(Dataset("old", parts, PLACE, static=True))] == [float("inf")]


# -- the run -----------------------------------------------------------------------------------------------------------


def ended(world: World, store: FakeStore, rule: Rule, **request: Any) -> RulesStatus:
    asked = RulesWatchRequest("migverify recon watch", once=True, **request)
    limits = WatchLimits(recheck=0.0, idle=0)
    return watch_rules(rule_set(rule), lambda _: world, store, asked, limits, Patience(1e12, 1e12))  # type: ignore[arg-type,return-value]


def test_a_watch_ends_in_the_store_as_a_run_does() -> None:
    world, store, rule = World(now=200.0), FakeStore(), make_rule(rereads=0)
    for n in range(30):
        world.event(f"k{n}", 5.0 * n, lost=n == 3)
    status = ended(world, store, rule)
    info = store.load_run("last")
    assert (status.verdict, info.verdict) == (Verdict.MISMATCH, Verdict.MISMATCH)
    assert info.facts["recon_watch"] == {"paid": "2026-01-01T00:00:00"}
    result = store.table_results(info.run_id)[0]
    assert (result.pair, result.verdict, result.missing_on_target) == ("paid", Verdict.MISMATCH, 1)
    assert result.chunks == 3

    again = ended(world, store, rule, resume="last")
    assert again.run_id == status.run_id
    assert len(world.evaluated) == 3, "nothing is read twice"
    with pytest.raises(PlanError):
        ended(world, store, make_rule("other"), resume=info.run_id)
    with pytest.raises(PlanError):
        ended(world, store, make_rule("other"), resume="last")
    with pytest.raises(UsageError):
        ended(world, store, rule, resume=store.start_run("verify", "x", {}, {}, kind=StoredKind.TABLES))


def test_windows_without_a_name_are_refused() -> None:
    rule = changed(make_rule(), window=WindowRule(every=0.5))
    with pytest.raises(ConfigError, match="rule paid"):
        ended(World(), FakeStore(), rule)


# -- metrics -----------------------------------------------------------------------------------------------------------


def a_status(**rule: Any) -> RulesStatus:
    one: dict[str, Any] = {
        "rule": 'pa"id', "kind": "same_rows", "severity": "critical", "owner": "team\\a", "verdict": Verdict.MISMATCH,
        "through": "", "windows": {"matched": 3, "mismatch": 1}, "findings": {"missing on target": 2},
        "money": {"missing on target": {"EUR": "9007199254740993.0001"}}, "rows_source": 7, "rows_target": 5,
        "matched": 5, "crossed": 0, "reopened": 0, "late": 1.5, "seconds": 0.25, "error": "", **rule,
    }  # fmt: skip
    sources = (
        SourceMark("a", "now", 2.0, "clock", "", True, 0.1),
        SourceMark("b", "", None, "clock", "dead", True, None),
    )
    return RulesStatus(run_id="r", at=1000.0, verdict=Verdict.MISMATCH, rules=(RuleStatus(**one),), sources=sources)


def test_metrics_are_complete_and_money_is_exact() -> None:
    text = page(status_metrics(a_status()))
    rule = 'rule="pa\\"id",severity="critical"'
    for line in (
        "migverify_recon_verdict 1",
        f'migverify_recon_rule_verdict{{{rule},owner="team\\\\a"}} 1',
        f'migverify_recon_windows{{{rule},state="matched"}} 3',
        f'migverify_recon_windows{{{rule},state="carrying"}} 0',
        f'migverify_recon_findings{{{rule},class="missing on target"}} 2',
        f'migverify_recon_findings{{{rule},class="duplicate"}} 0',
        f'migverify_recon_money_at_risk{{{rule},class="missing on target",currency="EUR"}} 9007199254740993.0001',
        'migverify_recon_watermark_age_seconds{source="a"} 2',
        'migverify_recon_watermark_age_seconds{source="b"} NaN',
        'migverify_recon_clock_offset_seconds{source="b"} NaN',
        f"migverify_recon_failing{{{rule}}} 0",
    ):
        assert line in text.splitlines()
    assert f"migverify_recon_failing{{{rule}}} 1" in page(status_metrics(a_status(error="dead")))
    assert text.count("# HELP") == text.count("# TYPE")


def test_a_metrics_file_is_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "recon.prom"
    with metrics_page(None, file) as publish:
        publish([Metric("a", "", [({}, "1")])])
        publish([Metric("a", "", [({}, "2")])])
    assert file.read_text() == page([Metric("a", "", [({}, "2")])])
    assert list(tmp_path.iterdir()) == [file]
    with pytest.raises(UsageError), metrics_page(None, tmp_path / "no" / "recon.prom"):
        pass


# -- the command -------------------------------------------------------------------------------------------------------


def test_a_time_limit_needs_an_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recon", "watch", "--timeout", "5"]) == 2
    assert "--timeout belongs to --once and --until" in capsys.readouterr().err


def test_a_time_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recon", "watch", "--config", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml" in capsys.readouterr().err


def test_the_checksum_of_groups_is_that_of_all_of_them() -> None:
    read = SqlRead("source", "`a`.`b`", ("k",), ("SUM(x)", "s"), "y=1", grouped=True, having="SUM(x)<>0",
                   strings=(False, False, True), lost="l")  # fmt: skip
    text = signature_sql(read)
    inner = "(SELECT k AS k0,SUM(x) AS v0,s AS v1,COUNT(*) AS n,SUM(l) AS l FROM `a`.`b` WHERE y=1 GROUP BY 1) AS w"
    assert f"FROM {inner}" in text
    assert "HAVING" not in text
    frame = "CONCAT_WS(',',IFNULL(k0,'N'),IFNULL(v0,'N'),IFNULL(n,'N'),IFNULL(LENGTH(v1),'N'),v1)"
    assert f"SHA2(IF(l,NULL,{frame}),256)" in text


def test_the_checksum_of_rows_is_one_scan() -> None:
    read = SqlRead("source", "`a`.`b`", ("k",), ("v",), "y=1", strings=(False, False))
    text = signature_sql(read)
    assert text.startswith("SELECT COUNT(*) AS n,SUM(")
    assert text.endswith("FROM `a`.`b` WHERE y=1")

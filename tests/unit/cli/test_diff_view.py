"""``tables diff``: it is never silent on what differs, be it a row, a column or a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from migverify.cli.main import run as run_command
from migverify.model import (
    NO_TABLE,
    ColumnDiff,
    DiffKind,
    NotCovered,
    RowDiff,
    SchemaClass,
    SchemaDifference,
    StoredKind,
    TableResult,
    Verdict,
)
from migverify.report.read import read_report
from migverify.store.open import open_store
from migverify.store.results import ResultStore
from tests.json_outputs import compare_with_schema
from tests.report_runs import FACTS, result, row_diff

LOST = SchemaDifference(
    "column-missing", "amt", "int NOT NULL", None, SchemaClass.BREAKS_COMPARISON,
    "column amt: the target has no such column; it is not compared",
)  # fmt: skip
EXTRA = replace(LOST, kind="column-extra", where="more", source=None, target="int", message="only the target has it")
SHORTER = replace(LOST, kind="type", where="note", target="char(3)", level=SchemaClass.MAY_LOSE_DATA, message="short")
NAMES = {"stock": ("shop.stock", NO_TABLE), "extra": (NO_TABLE, "shop.extra")}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def store(folder: Path) -> Iterator[ResultStore]:
    with closing(open_store(f"sqlite:///{folder}/runs.db")) as opened:
        yield opened


def ended(
    store: ResultStore, *results: TableResult, rows: tuple[RowDiff, ...] = (), planned: tuple[str, ...] = (),
    is_over: bool = True, kind: StoredKind = StoredKind.TABLES, **facts: object,
) -> str:  # fmt: skip
    """Store a run of these results; those of ``planned`` have none."""
    names = [*(one.pair for one in results), *planned]
    pairs = [{"id": name, "source": f"shop.{name}", "target": f"shop.{name}"} for name in names]
    run = store.start_run("migverify tables verify", "", {"pairs": pairs}, {**FACTS, **facts}, kind=kind)
    store.add_row_diffs(run, list(rows))
    for one in results:
        source, target = NAMES.get(one.pair, (one.source, one.target))
        store.add_table_result(run, replace(one, source=source, target=target))
    if is_over:
        worst = Verdict.worst([*(one.verdict for one in results), *(Verdict.INCONCLUSIVE for _ in planned)])
        store.finish_run(run, worst, {})
    return run


def diff(folder: Path, capsys: pytest.CaptureFixture[str], run: str, *options: str) -> tuple[list[str], str]:
    """Return the lines of ``tables diff``, and what it says on standard error."""
    words = ["tables", "diff", run, "--store", f"sqlite:///{folder}/runs.db", *options]
    assert run_command(words) == 0
    out, err = capsys.readouterr()
    if "--json" in options:
        compare_with_schema(words, out)
    return out.splitlines(), err


def steps(store: ResultStore, run: str) -> list[str]:
    return [step.command.removeprefix("migverify ").replace(run, "RUN") for step in read_report(store, run).next_steps]


def test_a_row_without_a_key_is_said_how_to_find_and_no_repair_is_offered(
    store: ResultStore, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keyless = replace(result("logs", Verdict.MISMATCH, missing_on_source=1), details={"keyless": True})
    row = replace(row_diff("logs", 7, DiffKind.MISSING_ON_SOURCE), key=("950ca5",), source_count=4, target_count=5)
    run = ended(store, keyless, rows=(replace(row, columns=()),))
    assert diff(folder, capsys, run)[0] == [
        "logs  missing_on_source  950ca5 (source 4, target 5)",
        "logs  the table has no key, so the checksum of a row names it; a new run with `report: {values: true}` in the"
        " configuration keeps and shows its columns",
    ]
    assert len(diff(folder, capsys, run, "--json")[0]) == 1
    assert not [step for step in steps(store, run) if "repair" in step]
    columns = (ColumnDiff("v", None, "1", "row"),)
    run = ended(store, keyless, result("t", Verdict.MISMATCH, value_differs=1), rows=(replace(row, columns=columns),))
    assert diff(folder, capsys, run)[0][0] == "logs  missing_on_source  v=1 (source 4, target 5)"
    assert [step for step in steps(store, run) if "repair" in step]


def test_tables_and_columns_that_a_side_lacks_are_lines_beside_the_rows(
    store: ResultStore, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing table gave nothing, and a missing column nothing beside rows of another table."""
    run = ended(
        store,
        result("accounts", Verdict.MISMATCH, schema=(LOST, SHORTER), value_differs=1),
        result("stock", Verdict.MISMATCH), result("extra", Verdict.MISMATCH),
        result("orders", Verdict.MATCH, schema=(EXTRA,)),
        rows=(row_diff("accounts", 7, DiffKind.MISSING_ON_TARGET),),
    )  # fmt: skip
    lines, said = diff(folder, capsys, run)
    assert [line for line in lines if not line.startswith("accounts  missing_on_target  7")] == [
        "accounts  column amt: the target has no such column; it is not compared",
        "stock  the target has no such table",
        "extra  the source has no such table",
    ]
    assert (len(lines), said) == (4, "")
    found = [json.loads(line) for line in diff(folder, capsys, run, "--json")[0]]
    assert [(one["pair"], one["kind"], one["key"], one.get("reason", "")) for one in found] == [
        ("accounts", "missing_on_target", [], LOST.message),
        ("accounts", "missing_on_target", ["7"], ""),
        ("stock", "missing_on_target", [], "the target has no such table"),
        ("extra", "missing_on_source", [], "the source has no such table"),
    ]
    assert [(one["column"], one["source"], one["target"]) for one in found[0]["columns"]] == [
        ("amt", "int NOT NULL", None)
    ]
    assert found[2]["columns"] == []
    assert steps(store, run) == [
        "tables diff RUN", "tables repair RUN --out repair/", "tables verify",
        "report RUN -o report.html",
    ]  # fmt: skip


def test_a_missing_table_alone_has_a_line_and_is_not_to_be_repaired_by_rows(
    store: ResultStore, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ended(store, result("stock", Verdict.MISMATCH))
    assert diff(folder, capsys, run)[0] == ["stock  the target has no such table"]
    assert steps(store, run) == [
        "tables diff RUN", "tables verify --recheck RUN", "report RUN -o report.html",
    ]  # fmt: skip


def test_a_mismatch_without_a_row_and_a_definition_has_its_reasons(
    store: ResultStore, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = "counts differ: 3 / 2 rows (source / target)"
    run = ended(store, result("orders", Verdict.MISMATCH, reasons=(counts,)), kind=StoredKind.QUICK)
    assert diff(folder, capsys, run)[0] == [f"orders  {counts}"]
    assert json.loads(diff(folder, capsys, run, "--json")[0][0])["reason"] == counts


def test_a_run_without_a_difference_says_why(
    store: ResultStore, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    equal = result("orders", Verdict.MATCH, not_covered=(NotCovered("geo", "ignored by configuration"),))
    failed = result("payments", Verdict.INCONCLUSIVE, reasons=("1 of 2 chunks could not be read",))
    run = ended(store, equal)
    assert diff(folder, capsys, run) == ([], f"run {run} has no confirmed difference: every table is MATCH\n")
    run = ended(store, equal, failed)
    more = f"  migverify report {run} --store sqlite:///{folder}/runs.db  # why they are not proved\n"
    lines, said = diff(folder, capsys, run)
    assert (lines, said) == ([], f"run {run} has no confirmed difference: 1 of 2 tables not proved\n{more}")
    run = ended(store, equal, planned=("late",), is_over=False)
    assert "1 of 2 tables not proved; it has no end: it was cut off, or goes on" in diff(folder, capsys, run)[1]
    assert steps(store, run) == ["tables verify --resume RUN", "report RUN -o report.html"]
    lines, said = diff(folder, capsys, run, "--tables", "shop.other", "--json")
    assert (lines, said) == ([], f"run {run} has no table that is chosen\n")


def test_a_run_that_is_not_over_is_resumed_before_it_is_repaired(store: ResultStore) -> None:
    differs = result("orders", Verdict.MISMATCH, value_differs=1)
    run = ended(store, differs, planned=("late",), is_over=False)
    assert steps(store, run) == ["tables diff RUN", "tables verify --resume RUN", "report RUN -o report.html"]


@pytest.mark.parametrize(
    ("facts", "is_over", "command"),
    [
        ({}, True, "tables verify --recheck RUN"),
        ({}, False, "tables verify --resume RUN"),
        ({"watch": True}, True, "tables verify --recheck RUN"),
        ({"watch": True}, False, "tables watch --resume RUN"),
        ({"watch": True, "reverse": True}, False, "tables watch --reverse --resume RUN"),
        ({"repairs": "v1"}, True, "tables verify --recheck v1"),
        ({"repairs": "v1"}, False, "tables verify --recheck v1"),
    ],
)
def test_what_reads_again_is_a_command_that_takes_this_kind_of_run(
    store: ResultStore, facts: dict[str, object], is_over: bool, command: str
) -> None:
    """A watch that was cut off, and a repair, were to be gone on with by commands that refuse them."""
    run = ended(store, result("orders", Verdict.INCONCLUSIVE), is_over=is_over, **facts)
    assert steps(store, run)[0] == command


def test_last_is_the_run_of_the_servers_of_the_configuration(
    store: ResultStore, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = 'source: {url: "mysql://app@db1"}\ntarget: {url: "tidb://root@tidb"}\ntables: {include: ["shop.*"]}\n'
    (folder / "migverify.yaml").write_text(f'{config}store: "sqlite:///runs.db"\n')

    def of(host: str) -> str:
        named = {"source": {"host": host, "port": 3306}, "target": {"host": "tidb", "port": 4000}}
        return ended(
            store,
            result("stock", Verdict.MISMATCH),
            rows=(row_diff("stock", host, DiffKind.VALUE_DIFFERS),),
            endpoints=named,
        )

    mine = of("db1")
    other = of("staging")
    assert run_command(["tables", "diff", "last"]) == 0
    assert "db1" in capsys.readouterr().out
    assert run_command(["tables", "diff", other]) == 0
    assert "staging" in capsys.readouterr().out
    (folder / "migverify.yaml").unlink()
    assert run_command(["tables", "diff", "last", "--store", "sqlite:///runs.db"]) == 0
    assert "staging" in capsys.readouterr().out, "without a configuration it is the newest"
    assert mine != other

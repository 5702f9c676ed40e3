"""Adapters of bench/faults, run on programs that behave as the tools are documented, and as they should not."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql
import pytest

from bench.faults import run as runs
from bench.faults.adapter import Endpoint, Pair, Task, merge, run_process
from bench.faults.adapters import KNOWN, adapters
from bench.faults.adapters.data_validation import DataValidation
from bench.faults.adapters.migverify import Migverify
from bench.faults.adapters.pt_table_checksum import PtTableChecksum
from bench.faults.adapters.reladiff import Reladiff
from bench.faults.adapters.sync_diff_inspector import SyncDiffInspector
from bench.faults.cases import Case, load_cases
from bench.faults.judge import Ending, Outcome, ReportedDifferences, Rows, TableDifference
from bench.faults.run import Result, Results, Tool, read_results

SIDE = Endpoint("127.0.0.1", 1, "root", "app")
TABLE = load_cases().tables["one_row"]


@pytest.fixture
def task(tmp_path: Path) -> Task:
    folder = tmp_path / "task"
    folder.mkdir()
    return Task(SIDE, SIDE, (TABLE,), 60.0, folder)


def program(folder: Path, body: str) -> str:
    """Write a program of Python and return its path."""
    path = folder / "program"
    path.write_text(f"#!{sys.executable}\nimport sys, pathlib\n{body}\n")
    path.chmod(0o755)
    return str(path)


# --- processes ----------------------------------------------------------------------------------------------------


def test_a_process_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    body = "import subprocess; subprocess.run(['sleep', '600'])"
    ended = run_process([program(tmp_path, body)], Task(SIDE, SIDE, (), 0.5, tmp_path))
    assert ended.exit_code is None
    assert ended.report({0: False}, equal=["t"]).ending is Ending.TIMED_OUT


@pytest.mark.parametrize("body", ["sys.exit(7)", "import os; os.kill(os.getpid(), 9)"], ids=["code", "signal"])
def test_an_exit_code_without_a_meaning_is_a_crash(task: Task, tmp_path: Path, body: str) -> None:
    report = run_process([program(tmp_path, body)], task).report({0: False, 1: True}, equal=["t"])
    assert report.ending is Ending.CRASHED
    assert not report.equal


def test_one_run_that_failed_fails_all_tables() -> None:
    fine = ReportedDifferences(Ending.FINISHED, 0, False, frozenset({"a"}))
    crash = ReportedDifferences(Ending.CRASHED, 3, detail="no")
    assert merge([fine, crash]) is crash
    differs = ReportedDifferences(Ending.FINISHED, 1, True, different={"b": TableDifference()})
    joined = merge([fine, differs])
    assert (joined.exit_differs, joined.equal, set(joined.different)) == (True, {"a"}, {"b"})


# --- tools --------------------------------------------------------------------------------------------------------


def verified(verdict: str, exit_code: int) -> str:
    diffs = {"missing_on_target": int(verdict == "MISMATCH"), "missing_on_source": 0, "value_differs": 0}
    rows = [{"key": ["1"]}] if verdict == "MISMATCH" else []
    pair = {"source": "app.one_row", "verdict": verdict, "reasons": [], "row_diffs": diffs,
            "row_diff_samples": {"shown": len(rows), "stored": len(rows), "rows": rows}}  # fmt: skip
    return f"print({json.dumps({'tables': [pair]})!r}); sys.exit({exit_code})"


@pytest.mark.parametrize(
    ("body", "ending", "equal", "different"),
    [
        (verified("MATCH", 0), Ending.FINISHED, {"one_row"}, {}),
        (verified("MISMATCH", 1), Ending.FINISHED, set(), {"one_row": TableDifference(1, frozenset({("1",)}))}),
        (verified("INCONCLUSIVE", 3), Ending.FINISHED, set(), {}),
        ("sys.exit(2)", Ending.CRASHED, set(), {}),
    ],
    ids=["MATCH", "MISMATCH", "INCONCLUSIVE", "refused"],
)
def test_migverify(
    task: Task, tmp_path: Path, body: str, ending: Ending, equal: set[str], different: dict[str, TableDifference]
) -> None:
    adapter = Migverify()
    adapter.command = (program(tmp_path, body),)
    report = adapter.run(task)
    assert (report.ending, set(report.equal), report.different) == (ending, equal, different)


@pytest.mark.parametrize(
    ("body", "ending", "equal", "different"),
    [
        ("print('Duration: 1', file=sys.stderr)", Ending.FINISHED, {"one_row"}, set()),
        ('print(\'["-", ["1", "x"]]\'); print(\'Duration: 1\', file=sys.stderr)', Ending.FINISHED, set(), {"one_row"}),
        ("print('no such column', file=sys.stderr)", Ending.CRASHED, set(), set()),
        ("print('Cannot use a column of type Text() as a key', file=sys.stderr)", Ending.NOT_SUPPORTED, set(), set()),
    ],
    ids=["equal", "different", "an exception that ends with 0", "a key that it refuses"],
)
def test_reladiff(task: Task, tmp_path: Path, body: str, ending: Ending, equal: set[str], different: set[str]) -> None:
    adapter = Reladiff()
    adapter.program = program(tmp_path, body)
    report = adapter.run(task)
    assert (report.ending, set(report.equal), set(report.different)) == (ending, equal, different)
    if different:
        assert report.different["one_row"].keys == {("1",)}


INSPECTED = (
    "out = next(pathlib.Path().glob('inspector-*')) / 'out'; out.mkdir(); (out / 'summary.txt').write_text({!r})"
)


@pytest.mark.parametrize(
    ("body", "ending", "equal"),
    [
        (INSPECTED.format("The table structure and data are equivalent"), Ending.FINISHED, {"one_row"}),
        (INSPECTED.format("| `app`.`one_row` | +0/-1 |") + "; sys.exit(1)", Ending.FINISHED, set()),
        ("sys.exit(1)", Ending.CRASHED, set()),
    ],
    ids=["equal", "different", "no summary"],
)
def test_sync_diff_inspector(task: Task, tmp_path: Path, body: str, ending: Ending, equal: set[str]) -> None:
    adapter = SyncDiffInspector()
    adapter.program = program(tmp_path, body)
    report = adapter.run(task)
    assert (report.ending, set(report.equal)) == (ending, equal)


@pytest.mark.parametrize(
    ("status", "equal", "different"), [("success", {"one_row"}, set()), ("fail", set(), {"one_row"})]
)
def test_data_validation(task: Task, tmp_path: Path, status: str, equal: set[str], different: set[str]) -> None:
    adapter = DataValidation()
    text = json.dumps({"0": {"validation_status": status}})
    adapter.program = program(tmp_path, f"print({text!r} if 'validate' in sys.argv else '')")
    report = adapter.run(task)
    assert (report.ending, set(report.equal), set(report.different)) == (Ending.FINISHED, equal, different)


@pytest.mark.parametrize(
    ("exit_code", "target", "equal", "different"),
    [(0, "abc", {"one_row"}, set()), (0, "abd", set(), {"one_row"}), (64, None, set(), set())],
    ids=["equal", "different", "table skipped"],
)
def test_pt_table_checksum(
    task: Task, tmp_path: Path, exit_code: int, target: str | None, equal: set[str], different: set[str]
) -> None:
    checksums = iter([{}, {}] if target is None else [{"one_row": [(1, "abc")]}, {"one_row": [(1, target)]}])
    adapter = PtTableChecksum()
    adapter.program = program(tmp_path, f"sys.exit({exit_code})")
    adapter._read = lambda *_: next(checksums)
    report = adapter.run(task)
    assert (report.ending, set(report.equal), set(report.different)) == (Ending.FINISHED, equal, different)


def test_pt_table_checksum_that_failed_on_one_side_reports_nothing(task: Task, tmp_path: Path) -> None:
    adapter = PtTableChecksum()
    adapter.program = program(tmp_path, "print('no privileges', file=sys.stderr); sys.exit(255)")
    report = adapter.run(task)
    assert report.ending is Ending.CRASHED
    assert "no privileges" in report.detail


def test_every_adapter_says_how_it_is_run() -> None:
    tools = adapters()
    assert [tool.name for tool in tools] == list(KNOWN)
    assert adapters(["bench.faults.adapters.spirit:Spirit"])[0].name == "spirit"
    assert all(tool.settings and isinstance(tool.pair, Pair) for tool in tools)
    with pytest.raises(ValueError, match="no tool is called nothing"):
        adapters(["nothing"])


# --- a run --------------------------------------------------------------------------------------------------------


class Stub:
    """A tool that calls every table equal."""

    settings = "none"

    def __init__(self, name: str, pair: Pair = Pair.MYSQL_TIDB, unavailable: str | None = None) -> None:
        self.name, self.pair, self.unavailable = name, pair, unavailable

    def version(self) -> str:
        return "1"

    def available(self) -> str | None:
        return self.unavailable

    def run(self, task: Task) -> ReportedDifferences:
        return ReportedDifferences(Ending.FINISHED, equal=frozenset(table.name for table in task.tables))


class Broken(Stub):
    def run(self, task: Task) -> ReportedDifferences:
        raise KeyError(task.tables[0].name)


CASE = load_cases().choose(["equal/one_row"])[0]


def run_stubs(monkeypatch: pytest.MonkeyPatch, *stubs: Stub, refused: str = "") -> Results:
    """Run stubs on one case without servers; loading into the target database ``refused`` fails."""

    @contextmanager
    def loaded(_case: Case, _source: Endpoint, target: Endpoint) -> Iterator[None]:
        if target.database == refused:
            raise pymysql.MySQLError(1064, "no such type")
        yield

    monkeypatch.setattr(runs, "loaded", loaded)
    monkeypatch.setattr(runs, "_version", lambda _: "8")
    return runs.run(stubs, [CASE], SIDE, SIDE, print)


def test_a_tool_that_is_not_available_has_a_reason_and_no_results(monkeypatch: pytest.MonkeyPatch) -> None:
    results = run_stubs(monkeypatch, Stub("here"), Stub("away", unavailable="not installed"))
    assert [(tool.name, tool.unavailable) for tool in results.tools] == [("here", ""), ("away", "not installed")]
    assert [(result.tool, result.outcome) for result in results.results] == [("here", Outcome.EQUAL)]


def test_what_an_adapter_raises_is_an_error_of_its_tool_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    broken, well = run_stubs(monkeypatch, Broken("broken"), Stub("well")).results
    assert (broken.outcome, well.outcome) == (Outcome.ERROR, Outcome.EQUAL)
    assert "KeyError: 'one_row'" in broken.reason


def test_a_side_that_mysql_cannot_hold_is_no_error_of_a_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    stubs = Stub("cross"), Stub("copy", Pair.MYSQL_MYSQL)
    results = run_stubs(monkeypatch, *stubs, refused="app_target").results
    assert [result.outcome for result in results] == [Outcome.EQUAL, Outcome.NOT_SUPPORTED]
    with pytest.raises(pymysql.MySQLError):
        run_stubs(monkeypatch, *stubs, refused="app")


def test_results_are_stored_and_joined(tmp_path: Path) -> None:
    def result(tool: str, case: str, outcome: Outcome) -> Result:
        return Result(case, tool, outcome, Rows.NOT_NAMED, 1.0)

    one, two = Tool("one", "1", "s", "p"), Tool("two", "1", "s", "p")
    servers = {"source": "8", "target": "9"}
    earlier = Results(servers, (one, two), (result("one", "a", Outcome.ERROR), result("two", "a", Outcome.EQUAL)))
    path = tmp_path / "results.json"
    path.write_text(earlier.as_json())
    assert read_results(path) == earlier
    joined = Results(servers, (one,), (result("one", "a", Outcome.FOUND),)).over(earlier)
    assert {(r.tool, r.outcome) for r in joined.results} == {("one", Outcome.FOUND), ("two", Outcome.EQUAL)}
    assert {tool.name for tool in joined.tools} == {"one", "two"}

"""The cases of bench/faults: apart from migverify, the same as the lab's tables, each used as it should be."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from bench.faults import export
from bench.faults.cases import EQUAL, CaseFile, load_cases
from bench.faults.page import page
from bench.faults.run import read_results
from migverify_lab.faults import FAULTS

ROOT = Path(__file__).parents[3]
RESULTS, PAGE = ROOT / "docs" / "faults-benchmark-results.json", ROOT / "docs" / "faults-benchmark.md"


@pytest.fixture(scope="module")
def file() -> CaseFile:
    return load_cases()


def test_data_judge_and_adapters_import_nothing_of_migverify() -> None:
    code = (
        "import sys, json; from bench.faults import judge, cases; early = sorted(sys.modules);"
        "from bench.faults import __main__, adapters, load, page, run; adapters.adapters();"
        "print(json.dumps([early, sorted(sys.modules)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    early, late = json.loads(done.stdout)
    ours = {"migverify", "migverify_lab"}
    assert not ours & {name.partition(".")[0] for name in late}
    assert "bench.faults.judge" in early
    assert [name for name in early if name.startswith("bench.")] == [
        "bench.faults", "bench.faults.cases", "bench.faults.judge",
    ]  # fmt: skip
    assert "pymysql" not in early


def test_tables_and_equal_pairs_are_those_of_the_lab(file: CaseFile) -> None:
    tables, cases = export.equal_entries()
    assert file.document["tables"] == tables, "run `python -m bench.faults.export`"
    assert [case for case in file.document["cases"] if case["fault"] == EQUAL] == cases


def test_every_fault_of_the_lab_has_cases(file: CaseFile) -> None:
    wanted = {f"{fault.name}/{name}" for fault in FAULTS for name in export.homes(fault.name)}
    assert wanted <= {case.name for case in file.cases}, "run `python -m bench.faults.export`"
    assert {case.fault for case in file.cases} == {EQUAL, *(fault.name for fault in FAULTS)}


def test_a_case_differs_if_and_only_if_it_has_a_fault(file: CaseFile) -> None:
    for case in file.cases:
        assert bool(case.differs) == bool(case.changes) == (case.fault != EQUAL), case.name
        names = {table.name for table in case.tables}
        assert case.differs.keys() <= names, case.name
        for name, difference in case.differs.items():
            assert difference.rows, case.name
            assert (difference.keys is not None) == bool(file.tables[name].key), case.name


def test_each_table_that_carries_a_fault_is_an_equal_pair_too(file: CaseFile) -> None:
    equal = {case.tables[0].name for case in file.cases if case.fault == EQUAL}
    assert {name for case in file.cases for name in case.differs} <= equal
    kinds = Counter(case.fault == EQUAL for case in file.cases)
    assert kinds[True] > 50
    assert any(len(case.tables) > 1 for case in file.cases)


def test_statements_name_no_database(file: CaseFile) -> None:
    for case in file.cases:
        for side in ("source", "target"):
            assert not [text for text in case.statements(side) if export.DATABASE in text], case.name


def test_cases_are_chosen_by_name_and_by_fault(file: CaseFile) -> None:
    assert {case.fault for case in file.choose(["row-deleted"])} == {"row-deleted"}
    assert [case.name for case in file.choose(["equal/one_row"])] == ["equal/one_row"]
    assert file.choose([]) == file.cases
    with pytest.raises(ValueError, match="no case or fault is called nothing"):
        file.choose(["nothing"])


def test_the_page_is_that_of_the_stored_results(file: CaseFile) -> None:
    results = read_results(RESULTS)
    assert results.as_json() == RESULTS.read_text()
    assert PAGE.read_text() == page(results, file.cases), "run `python -m bench.faults` with -o and --page"


def test_stored_results_are_of_these_cases(file: CaseFile) -> None:
    results = read_results(RESULTS)
    names = [case.name for case in file.cases]
    for tool in {result.tool for result in results.results}:
        assert sorted(r.case for r in results.results if r.tool == tool) == sorted(names), tool

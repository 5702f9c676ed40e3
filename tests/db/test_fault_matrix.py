"""Every fault alone and in pairs, found by migverify with the right kind, key and columns; and the page that says so.

One fault at a time in every table of docs/faults.md, some pairs, and all pairs under the marker ``soak``.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from migverify.errors import LabError
from migverify.model import Verdict
from migverify.tables import whole
from migverify.tables.diff import ListDifference
from migverify_lab import museum_loader, tpch
from migverify_lab.faults import FAULTS
from migverify_lab.matrix.examine import Examiner, Sight
from migverify_lab.matrix.gallery import EVERYTHING, LOOSE, OWN_TABLES
from migverify_lab.matrix.page import REGENERATE, SERVERS, page, summary_lines
from migverify_lab.matrix.run import TOOLS, Matrix, examiner, install_md5, run
from migverify_lab.museum_loader import choose
from migverify_lab.servers import LabServers
from tests.table_pairs import RULES, road

pytestmark = [pytest.mark.db, pytest.mark.xdist_group("fault_matrix")]

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
NAMES = [fault.name for fault in FAULTS]
PAIRS = list(itertools.combinations(NAMES, 2))
SAMPLE = random.Random(20).sample(PAIRS, 60)
SEEDS = (1, 2, 3)


@pytest.fixture(scope="module")
def matrix(pair: LabServers, tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    folder = tmp_path_factory.mktemp("matrix")
    if not os.environ.get("MIGVERIFY_TEST_SOURCE"):  # servers of this test run only; others stay as they are
        install_md5(pair.source)
        install_md5(pair.target)
    return run(pair, folder, print, database=f"mv_matrix_{os.getpid()}")


@pytest.fixture(scope="module")
def tools(pair: LabServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Examiner]:
    """An examiner of the two tables that hold all that faults need: one with a key, one without."""
    folder = tmp_path_factory.mktemp("pairs")
    tables = (EVERYTHING.name, LOOSE.name)
    with examiner(pair, tables, folder, print, database=f"mv_pairs_{os.getpid()}") as found:
        yield found


# --- one fault at a time ----------------------------------------------------------------------------------------


def test_nothing_is_reported_of_tables_without_a_fault(matrix):
    assert len(matrix.untouched) > 70
    assert [one for one in matrix.untouched if one.problem] == []


def test_every_fault_is_found_with_kind_key_and_columns(matrix):
    assert {trial.fault for trial in matrix.trials} == set(NAMES)
    wrong = [trial for trial in matrix.trials if trial.cells["migverify"] is not Sight.SEEN]
    assert wrong == [], "\n\n".join(f"{trial.fault}: {trial.problem}" for trial in wrong)


def test_the_docs_say_what_this_run_found(matrix):
    """The page is compared whole where the servers are of the versions it was made with, else what is migverify's."""
    new, old = page(matrix), PAGE.read_text(encoding="utf-8")
    message = f"docs/faults.md is not what this run found: `{REGENERATE}`, and read what changed"
    if _servers(new) == _servers(old):
        assert new == old, message
    ours = [2 + TOOLS.index(name) for name in ("row count", "migverify")]
    for fault, line in summary_lines(new).items():
        cells, shown = (text.strip("| ").split(" | ") for text in (line, summary_lines(old)[fault]))
        assert [cells[n + 1] for n in ours] == [shown[n + 1] for n in ours], message


def _servers(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(SERVERS))


def test_the_other_tools_expressions_are_not_blind_by_mistake(matrix):
    """Each sees most faults of tables it calls equal before: a slip in writing them down would flatter migverify."""
    for tool in TOOLS[2:]:
        able = [t for t in matrix.trials if t.cells[tool] in {Sight.SEEN, Sight.MISSED}]
        assert len(able) > len(matrix.trials) // 2, tool
        assert sum(1 for t in able if t.cells[tool] is Sight.SEEN) > 0.9 * len(able), tool


@pytest.mark.parametrize(
    ("tool", "fault", "table"),
    [
        ("sync-diff-inspector", "null-for-zero", "readings"),  # ROUND makes 0 a NULL
        ("sync-diff-inspector", "column-boundary", "everyday"),  # commas are not escaped
        ("sync-diff-inspector", "float-ulp", "readings"),
        ("pt-table-checksum", "flag-lost-on-100-rows", "flags"),  # CRC32 is linear, XOR cancels
        ("pt-table-checksum", "all-datetimes-shifted", "flags"),
        ("pt-table-checksum", "swapped-rows", "flags"),
        ("spirit", "flag-lost-on-100-rows", "flags"),
        ("spirit", "all-datetimes-shifted", "flags"),
        ("reladiff", "float-ulp", "readings"),  # digits are taken from the catalog's precision
    ],
)
def test_known_blind_spots_of_other_tools_are_shown(matrix, tool, fault, table):
    (trial,) = [t for t in matrix.trials if (t.fault, t.table) == (fault, table)]
    assert trial.cells[tool] is Sight.MISSED


def test_what_is_equal_by_rule_is_equal(matrix):
    assert {one.name: one.cells["migverify"] for one in matrix.blind} == dict.fromkeys(
        (one.name for one in matrix.blind), Sight.MISSED
    )


def test_tpch_without_a_fault_matches(databases, tmp_path):
    """All eight tables at scale 0.01."""
    rows = tpch.load(databases.pair, databases.name, 0.01, (), 0, tmp_path, lambda _: None)
    assert len(rows) == 8
    with road(databases, slots=2) as way:
        for table, count in rows.items():
            found = way.verify(table, rules=RULES)
            assert (found.verdict, found.diffs) == (Verdict.MATCH, ()), found.result.reasons
            assert (found.result.rows_source, found.result.rows_target) == (count, count)


def test_unlike_sums_without_unlike_rows_never_match(databases, monkeypatch):
    """Whatever makes the locating of rows miss them, as when it reads other buckets than were summed."""
    (room,) = choose(("no_key",))
    for side, connection in zip(("source", "target"), databases.connections, strict=True):
        museum_loader.hang(connection, side, databases.name, room)
    databases.target(f"DELETE FROM `{databases.name}`.no_key WHERE a = 4")
    with road(databases) as way:
        assert way.verify("no_key").verdict is Verdict.MISMATCH
        monkeypatch.setattr(whole, "compare_lists", lambda *_: ListDifference((), ()))
        found = way.verify("no_key")
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "the checksums differ, and no row that does was found" in "".join(found.result.reasons)


# --- two faults in one table ------------------------------------------------------------------------------------


def test_every_fault_fits_the_table_of_all_types(tools):
    """With other seeds than the page has; what needs a table without a key goes into the one without."""
    for name in NAMES:
        table = LOOSE.name if name == "duplicate-in-keyless" else EVERYTHING.name
        for seed in SEEDS:
            trial = tools.try_fault(name, table, seed)
            assert trial.cells["migverify"] is Sight.SEEN, trial.problem


def test_two_faults_in_one_table_are_both_found(tools):
    assert _wrong(tools, SAMPLE) == []


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_all_pairs_of_faults_are_found(tools):
    assert _wrong(tools, PAIRS) == []


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_every_fault_in_every_table_that_it_fits(pair, tmp_path):
    tables = [table.name for table in (*choose(()), *OWN_TABLES)] + [
        "region",
        "nation",
        "supplier",
        "customer",
        "orders",
    ]
    wrong, planted = [], 0
    with examiner(pair, tables, tmp_path, print, database=f"mv_all_{os.getpid()}") as tools:
        for table, name in itertools.product(tables, NAMES):
            try:
                trial = tools.try_fault(name, table, seed=4)
            except LabError:
                continue  # the table holds nothing for it
            planted += 1
            if trial.cells["migverify"] is not Sight.SEEN:
                wrong.append(f"{name}: {trial.problem}")
    assert wrong == []
    assert planted > 600


def _wrong(tools: Examiner, pairs: list[tuple[str, str]]) -> list[str]:
    wrong = []
    for faults in pairs:
        table = LOOSE.name if "duplicate-in-keyless" in faults else EVERYTHING.name
        said = tools.try_pair(faults, table)
        if said is None and table == LOOSE.name and not _fits(tools, faults, table):
            continue  # one of the two needs a key or a type that no row could be named by
        if said != "":
            wrong.append(f"{faults}: {'do not fit together' if said is None else said}")
    return wrong


def _fits(tools: Examiner, faults: tuple[str, str], table: str) -> bool:
    try:
        for fault in faults:
            tools.try_fault(fault, table)
    except LabError:
        return False
    return True

"""The fault matrix without a server: the page, the other tools' expressions, and how answers are judged."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from migverify.errors import LabError
from migverify.model import ColumnDef, DiffKind, Side
from migverify_lab.columns import ColumnFacts, Family
from migverify_lab.faults import FAULTS
from migverify_lab.matrix import competitors, gallery
from migverify_lab.matrix.examine import Sight, Trial, net_difference
from migverify_lab.matrix.page import REGENERATE, page, summary_lines
from migverify_lab.matrix.run import TOOLS, Blind, Matrix, Untouched
from migverify_lab.museum import TABLES

PAGE = Path(__file__).parents[3] / "docs" / "faults.md"


# --- docs/faults.md ---------------------------------------------------------------------------------------------


def test_every_fault_has_its_row_in_the_docs():
    missing = {fault.name for fault in FAULTS} - summary_lines(PAGE.read_text()).keys()
    assert not missing, f"docs/faults.md lacks {sorted(missing)}: run `{REGENERATE}`"


def test_the_docs_count_the_tables_that_the_matrix_uses():
    for fault, line in summary_lines(PAGE.read_text()).items():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[2] == str(len(gallery.homes(fault))), f"{fault} is of another run: `{REGENERATE}`"


def test_the_docs_show_migverify_right_everywhere():
    for line in summary_lines(PAGE.read_text()).values():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[3 + TOOLS.index("migverify")] == f"seen {cells[2]}"


# --- tables -----------------------------------------------------------------------------------------------------


def test_every_fault_is_shown_in_two_tables_that_exist():
    known = {table.name for table in (*TABLES, *gallery.OWN_TABLES)} | set(gallery.TPCH_TABLES)
    for fault in FAULTS:
        homes = gallery.homes(fault.name)
        assert len(set(homes)) == len(homes) >= 2, fault.name
        assert set(homes) <= known


def test_a_fault_without_a_table_is_an_error():
    with pytest.raises(LabError, match="no table for the fault new-fault"):
        gallery.homes("new-fault")


# --- other tools' expressions -----------------------------------------------------------------------------------


def _column(name: str, data_type: str, **more: object) -> ColumnDef:
    return ColumnDef(name, 1, data_type, data_type, **{"nullable": True, **more})


def _both(name: str, source: str, target: str | None = None, **more: object) -> competitors.Both:
    return _column(name, source, **more), _column(name, target or source, **more)


def test_sync_diff_inspector_rounds_floats_and_maps_the_rounded_null():
    sql = competitors.sync_diff_inspector([_both("id", "int"), _both("d", "double")], Side.SOURCE, "MD5")
    rounded = "ROUND(`d`,14-FLOOR(LOG10(ABS(`d`))))"
    row = f"MD5(CONCAT_WS(',',`id`,{rounded},CONCAT(ISNULL(`id`),ISNULL({rounded}))))"
    assert sql == (
        f"BIT_XOR(CAST(CONV(SUBSTRING({row},1,16),16,10) AS UNSIGNED) ^ "
        f"CAST(CONV(SUBSTRING({row},17,16),16,10) AS UNSIGNED))"
    )


def test_pt_table_checksum_converts_by_the_type_of_the_source():
    columns = [
        _both("id", "int", nullable=False),
        _both("at", "timestamp", "datetime"),
        _both("v", "varchar"),
        _both("b", "blob"),
    ]
    sql = competitors.pt_table_checksum(columns, Side.TARGET, "MD5")
    values = (
        "`id`,UNIX_TIMESTAMP(`at`),CONVERT(`v` USING utf8mb4),CRC32(`b`),CONCAT(ISNULL(`at`),ISNULL(`v`),ISNULL(`b`))"
    )
    assert sql == f"COALESCE(LOWER(CONV(BIT_XOR(CAST(CRC32(CONCAT_WS('#',{values})) AS UNSIGNED)),10,16)),0)"


def test_reladiff_reads_fractions_with_the_smaller_precision():
    columns = [
        (_column("d", "decimal", precision=10, scale=2), _column("d", "decimal", precision=14, scale=4)),
        (_column("t", "datetime", fsp=3), _column("t", "datetime", fsp=6)),
        _both("s", "varchar"),
    ]
    assert competitors.reladiff(columns, Side.SOURCE, "MD5") == (
        "SUM(CAST(CONV(SUBSTRING(MD5(CONCAT(COALESCE(CAST(CAST(`d` AS DECIMAL(38,2)) AS CHAR),'<null>'),'|',"
        "COALESCE(CAST(CAST(CAST(`t` AS DATETIME(3)) AS DATETIME(6)) AS CHAR),'<null>'),'|',"
        "COALESCE(CAST(`s` AS CHAR),'<null>'))),18,15),16,10) AS UNSIGNED))"
    )


def test_spirit_casts_to_the_target_and_reads_json_of_the_source_twice():
    columns = [
        _both("n", "int", "bigint"),
        _both("j", "json"),
        (_column("g", "int"), _column("g", "int", generation="n")),
    ]
    source, target = (competitors.spirit(columns, side, "MD5") for side in (Side.SOURCE, Side.TARGET))
    end = ",''),'#',ISNULL(`j`))))"
    start = "BIT_XOR(CRC32(CONCAT(IFNULL(CAST(`n` AS SIGNED),''),'#',ISNULL(`n`),'#',IFNULL("
    assert source == f"{start}CAST(CAST(`j` AS CHAR CHARACTER SET utf8mb4) AS JSON){end}"
    assert target == f"{start}CAST(`j` AS JSON){end}"


@pytest.mark.parametrize("tool", competitors.COMPETITORS, ids=lambda tool: tool.name)
def test_a_name_cannot_leave_its_quotes(tool):
    sql = tool.expression([_both("a`) FROM x -- ", "int")], Side.SOURCE, "MD5")
    assert "`a``) FROM x -- `" in sql
    assert "`a`)" not in sql


# --- judging ----------------------------------------------------------------------------------------------------

KEY = (ColumnFacts("Id", 1, "int", "int", Family.INT, False, in_key=True),)


def test_the_difference_of_rows_names_kind_key_and_columns():
    before = [{"Id": 1, "A": "x", "b": 1}, {"Id": 2, "A": "y", "b": 2}, {"Id": 3, "A": None, "b": 3}]
    now = [{"Id": 1, "A": "X", "b": 1}, {"Id": 3, "A": None, "b": 3}, {"Id": 4, "A": "y", "b": 2}]
    assert net_difference(KEY, before, now) == Counter(
        {
            (DiffKind.VALUE_DIFFERS, ("1",), frozenset({"a"})): 1,
            (DiffKind.MISSING_ON_TARGET, ("2",), frozenset()): 1,
            (DiffKind.MISSING_ON_SOURCE, ("4",), frozenset()): 1,
        }
    )


def test_rows_of_one_key_are_a_multiset():
    one = [{"Id": 1, "v": 1}, {"Id": 1, "v": 2}]
    assert net_difference(KEY, one, one[::-1]) == Counter()
    assert net_difference(KEY, one, one[:1]) == Counter({(DiffKind.MISSING_ON_TARGET, ("1",), frozenset()): 1})
    assert net_difference(KEY, one, [one[0], one[0]]) == Counter({(DiffKind.VALUE_DIFFERS, ("1",), frozenset()): 1})


# --- the page ---------------------------------------------------------------------------------------------------


def _matrix(sight: Sight = Sight.SEEN, problem: str = "") -> Matrix:
    cells = dict.fromkeys(TOOLS, Sight.MISSED) | {"migverify": sight}
    trials = tuple(Trial("case", table, table != "no_key", 1, cells, problem) for table in ("integers", "no_key"))
    return Matrix(
        ("9.7.4", "8.0.11-TiDB"), "MD5", (Untouched("integers", 8, problem),), trials,
        (Blind("zero", "-0.0 | 0.0", dict.fromkeys(TOOLS, Sight.MISSED)),),
    )  # fmt: skip


def test_the_page_counts_and_names_what_was_missed():
    text = page(_matrix())
    assert "**2 faults of 1 kinds planted, 2 found by migverify**" in text
    assert summary_lines(text)["case"].endswith(
        "| 2 | *missed* 2 | seen 2 | *missed* 2 | *missed* 2 | *missed* 2 | *missed* 2 |"
    )
    assert "no_key (no key)" in text
    assert "-0.0 \\| 0.0" in text
    wrong = page(_matrix(Sight.MISPLACED, "key 2 is not reported"))
    assert "2 found" not in wrong
    assert "*seen, wrong place* 2" in wrong
    assert "1 reported by migverify: integers (key 2 is not reported)" in wrong


def test_what_migverify_got_wrong_is_listed():
    assert _matrix().problems == ()
    assert _matrix(Sight.MISSED, "no row was found").problems == (
        "integers without a fault: no row was found",
        "case: no row was found",
        "case: no row was found",
    )

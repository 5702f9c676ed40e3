"""Repairs without a server: literals, scripts, refusals."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.errors import PlanError, RepairError
from migverify.model import ColumnDef, Flavor, RunInfo, TableResult, Verdict
from migverify.sql.checksum import SideSql
from migverify.sql.key_range import KeyColumn
from migverify.sql.repair import (
    SQL_MODE,
    checksum_guard,
    delete_sql,
    insert_sql,
    literal,
    session_sql,
    update_sql,
    written_guard,
)
from migverify.tables.prepare import PreparedTables
from migverify.tables.repair import TableRepair, _judge, refuse_run
from migverify.tables.repair_files import (
    BATCH,
    MANIFEST,
    ScriptPair,
    SqlScript,
    clear_folder,
    file_stem,
    transactions,
    write_manifest,
)
from migverify.tables.repair_rows import why_no_delete
from tests.toy_tables import make_pair


def column(data_type: str, name: str = "c", *, members: tuple[str, ...] = ()) -> ColumnDef:
    return ColumnDef(name, 1, data_type, data_type, nullable=True, members=members)


SIDE = SideSql(
    table="`d`.`t`", hash="SHA2", exact="CONCAT_WS(',',`id`,`v`)", wide="CONCAT(`id`)", value="CONCAT_WS(',',`j`)",
    texts=("`id`", "`v`"), key=(KeyColumn("`id`", "`id`", "integer", False), KeyColumn("`k`", "`k`", "text", True)),
    range_key=(), where="`id` > 5",
)  # fmt: skip


@pytest.mark.parametrize(
    ("data_type", "text", "written"),
    [
        ("int", b"-5", "-5"),
        ("bigint", b"18446744073709551615", "18446744073709551615"),
        ("bit", b"5", "5"),
        ("year", b"0", "0"),
        ("decimal", b"-0.000000000000000000000000000001", "-0.000000000000000000000000000001"),
        ("float", b"0.10000000149011612", "0.10000000149011612e0"),
        ("double", b"1e300", "1e300"),
        ("date", b"2020-00-00", "'2020-00-00'"),
        ("time", b"-838:59:59.000000", "'-838:59:59.000000'"),
        ("varchar", b"it's", "'it''s'"),
        ("varchar", b"", "''"),
        ("varchar", b"\\", "_utf8mb4 0x5C"),
        ("text", "\0\n😀".encode(), "_utf8mb4 0x000AF09F9880"),
        ("blob", b"\xff\x00", "x'FF00'"),
        ("blob", b"", "x''"),
        ("enum", b"b,c", "'b,c'"),
        ("set", b"", "''"),
        ("json", b'{"a": 1}', "CAST('{\"a\": 1}' AS JSON)"),
        ("int", None, "NULL"),
        ("geometry", None, "NULL"),
    ],
)
def test_literal(data_type: str, text: bytes | None, written: str) -> None:
    assert literal(column(data_type, members=("b,c",)), text) == written


@pytest.mark.parametrize(
    ("data_type", "text"),
    [
        ("int", b"1; DROP TABLE t"), ("int", b""), ("int", "\u0661".encode()), ("decimal", b"1\n"), ("double", b"nan"),
        ("date", b"2020-01-01' OR '"), ("time", b"12:00\n"), ("varchar", b"\xff"), ("enum", b""), ("geometry", b"x"),
    ],
)  # fmt: skip
def test_literal_refuses(data_type: str, text: bytes) -> None:
    with pytest.raises(RepairError, match="column c"):
        literal(column(data_type, members=("a",)), text)


@given(st.sampled_from(["varchar", "blob", "json", "set"]), st.text())
def test_no_literal_ends_its_line_or_its_quotes(data_type: str, text: str) -> None:
    written = literal(column(data_type), text.encode("utf-8", "replace"))
    assert "\n" not in written
    assert "\\" not in written
    assert written.count("'") % 2 == 0
    assert written.isascii()


def test_statements_compare_before_they_set() -> None:
    key = ("7", None)
    values = [(column("int", "id"), b"7"), (column("varchar", "v"), None)]
    where = "`id` = 7 AND `k` IS NULL"
    checksum = "SUBSTRING(SHA2(CONCAT_WS(',',`id`,`v`),256),1,15) = '0123456789abcde'"
    value = "SUBSTRING(SHA2(CONCAT_WS(',',`j`),256),1,15) = 'fedcba987654321'"
    guard = checksum_guard(SIDE, "0123456789abcde", "fedcba987654321")
    assert guard == f"{checksum} AND {value}"
    assert insert_sql(SIDE, key, values) == (
        "INSERT INTO `d`.`t` (`id`, `v`) SELECT 7, NULL FROM DUAL "
        f"WHERE NOT EXISTS (SELECT 1 FROM `d`.`t` WHERE {where})"
    )
    assert update_sql(SIDE, key, [guard, ""], values[1:], ["up"]) == (
        f"UPDATE `d`.`t` SET `v` = NULL, `up` = `up` WHERE {where} AND {guard}"
    )
    assert delete_sql(SIDE, key, [guard]) == f"DELETE FROM `d`.`t` WHERE {where} AND {guard}"
    assert "CONCAT(`id`)" in checksum_guard(SIDE, "0" * 15, wide=True)


@pytest.mark.parametrize("checksum", ["?", "", "0" * 14, "' OR '1'='1' --", "0" * 15 + "\n"])
def test_a_guard_takes_checksums_only(checksum: str) -> None:
    with pytest.raises(RepairError, match="not a row checksum"):
        checksum_guard(SIDE, checksum)


def test_written_guard_spells_sets_in_the_targets_order() -> None:
    members = ("x", "y", "z")
    assert written_guard([(column("set", members=members), b"z,x")]) == "CAST(`c` AS CHAR) <=> 'x,z'"
    assert written_guard([(column("json"), None)]) == "`c` <=> NULL"
    assert written_guard([]) == ""


def test_session_is_strict_and_in_utc() -> None:
    for flavor in Flavor:
        text = ";".join(session_sql(flavor))
        assert SQL_MODE in text
        assert "time_zone='+00:00'" in text
        assert ("allow_auto_random_explicit_insert=1" in text) is (flavor is Flavor.TIDB)
    assert "STRICT_ALL_TABLES" in SQL_MODE


# --- scripts ---------------------------------------------------------------------------------------------------


def write(path: Path, count: int) -> None:
    with SqlScript(path, ["what\nit is"], ["SET a", "SET b"]) as script:
        for n in range(count):
            script.add(f"S{n}")
        script.close()


@pytest.mark.parametrize("count", [0, 1, BATCH, BATCH + 1, 3 * BATCH - 1])
def test_script_is_whole_transactions(tmp_path: Path, count: int) -> None:
    path = tmp_path / "a.sql"
    write(path, count)
    settings, *batches = transactions(path)
    assert settings == ["SET a", "SET b"]
    assert [s for batch in batches for s in batch] == [f"S{n}" for n in range(count)]
    assert all(len(batch) <= BATCH for batch in batches)
    assert path.read_text().startswith("-- what it is\n")
    assert path.stat().st_mode & 0o077 == 0


def test_a_script_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.sql"
    write(path, 3)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(RepairError, match="write the repair anew"):
            list(transactions(path))


def test_an_abandoned_script_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RepairError), SqlScript(tmp_path / "a.sql", [], []) as script:
        script.add("a\nb")
    assert list(tmp_path.iterdir()) == []


LINES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"))


@given(st.lists(st.tuples(LINES, LINES)))
def test_the_inverse_undoes_the_last_change_first(tmp_path_factory: pytest.TempPathFactory, changes: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("scripts")
    paths = folder / "a.repair.sql", folder / "a.inverse.sql"
    with ScriptPair(*(SqlScript(path, [], []) for path in paths)) as scripts:
        for forward, inverse in changes:
            scripts.add(f"F {forward}", f"I {inverse}")
        facts = scripts.close()
    assert [one.statements for one in facts] == [len(changes)] * 2
    written = [[s for batch in transactions(path) for s in batch] for path in paths]
    assert written[0] == [f"F {forward}" for forward, _ in changes]
    assert written[1] == [f"I {inverse}" for _, inverse in reversed(changes)]


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=64)


@given(NAMES, NAMES, NAMES, NAMES)
def test_file_stems_differ_and_stay_in_the_folder(a: str, b: str, c: str, d: str) -> None:
    one, other = file_stem(a, b), file_stem(c, d)
    assert (one == other) is ((a, b) == (c, d))
    assert "/" not in one
    assert "\0" not in one
    assert not one.startswith((".", "-"))
    assert len(f"{one}.inverse.sql.part".encode()) <= 255


def test_plain_names_stay_readable() -> None:
    assert file_stem("app", "order_items") == "app.order_items"


def test_an_earlier_repair_is_set_aside(tmp_path: Path) -> None:
    assert clear_folder(tmp_path / "out") == ""
    for number in (1, 2, 3):
        (tmp_path / "out" / "a.b.inverse.sql").write_text(str(number))
        (tmp_path / "out" / "mine.sql").write_text("mine")
        write_manifest(tmp_path / "out", {"n": number})
        assert clear_folder(tmp_path / "out") == str(tmp_path / "out" / f"earlier-{number}")
        assert (tmp_path / "out" / f"earlier-{number}" / "a.b.inverse.sql").read_text() == str(number)
        assert (tmp_path / "out" / f"earlier-{number}" / MANIFEST).exists()
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["earlier-1", "earlier-2", "earlier-3", "mine.sql"]


# --- refusals --------------------------------------------------------------------------------------------------

RESULT = TableResult(
    pair="d.t", source="d.t", target="d.t", verdict=Verdict.MISMATCH, reasons=("1 row is missing on the source",),
    rows_source=1, rows_target=2, chunks=1, lanes=("exact",), missing_on_target=0, missing_on_source=1,
    value_differs=0, not_covered=(), schema=(), seconds=0.0,
)  # fmt: skip
TOTALS = {"chunks": 1, "equal": 0, "different": 1, "failed": 0, "unread_source": 0, "unread_target": 0}


def test_deletes_need_a_whole_read() -> None:
    assert why_no_delete(RESULT, TOTALS) == ""
    assert why_no_delete(None, TOTALS)
    assert why_no_delete(dataclasses.replace(RESULT, rows_source=None), TOTALS)
    for name in ("failed", "unread_source", "unread_target"):
        assert why_no_delete(RESULT, {**TOTALS, name: 1})


@pytest.mark.parametrize(
    "reason",
    ["not read: (-inf, 5]: connection lost", "1 of 3 chunks could not be read, the first: x", "nothing was read",
     "the table was not counted", "the chunks hold 1 / 2 rows, the tables 3 / 2", "a reason of another version"],
)  # fmt: skip
def test_an_unknown_reason_forbids_deletes(reason: str) -> None:
    assert reason in why_no_delete(dataclasses.replace(RESULT, reasons=(*RESULT.reasons, reason)), TOTALS)


@pytest.mark.parametrize(
    "reason",
    ["1,234 rows are different", "column c is not compared: x", "3 rows kept changing while they were read (hot)",
     "2 rows differed once and were not read again", "2 rows are still different"],
)  # fmt: skip
def test_a_known_reason_does_not(reason: str) -> None:
    assert why_no_delete(dataclasses.replace(RESULT, reasons=(reason,)), TOTALS) == ""


FACTS = {"host": "h", "port": 1, "flavor": "mysql", "version": "8"}
BOTH = {"source": FACTS, "target": FACTS}
INFO = RunInfo("r", "verify", 0.0, 1.0, Verdict.MISMATCH, "digest", {}, {"endpoints": BOTH})


def prepared(**changes: object) -> PreparedTables:
    made = PreparedTables((), 0, "SHA2", {"source": FACTS, "target": FACTS}, "digest", (), 0.0, lambda: iter(()))
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def test_a_run_of_these_servers_is_taken() -> None:
    refuse_run(INFO, prepared())


@pytest.mark.parametrize("fact", list(FACTS))
def test_another_server_is_refused(fact: str) -> None:
    with pytest.raises(RepairError, match=f"another target: {fact}"):
        refuse_run(INFO, prepared(facts={"source": FACTS, "target": {**FACTS, fact: "other"}}))


def test_an_unknown_endpoint_is_refused() -> None:
    with pytest.raises(RepairError, match=r"no endpoint source\.b"):
        refuse_run(INFO, prepared(facts={"source.b": FACTS}))


def test_another_plan_or_an_open_run_is_refused() -> None:
    with pytest.raises(PlanError, match="something else"):
        refuse_run(INFO, prepared(digest="another"))
    with pytest.raises(RepairError, match="not over"):
        refuse_run(dataclasses.replace(INFO, finished=None), prepared())


def test_tables_that_share_no_comparable_column_are_not_called_one_sided() -> None:
    pair = dataclasses.replace(make_pair(), target_side=None, columns=())
    result = _judge(TableRepair(pair, refused="no column can be compared"), None, "r1", 1.0)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert not any("is on the" in reason for reason in result.reasons)


@pytest.mark.attack("repair", "links, or files that all may read, lie where the scripts are written first",
                    "replaced: what they point to stays, and the scripts are for their owner only")  # fmt: skip
def test_a_link_in_the_folder_of_a_repair_is_not_followed(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.write_text("precious")
    foreign.chmod(0o644)
    (tmp_path / "a.sql.part").symlink_to(foreign)
    with SqlScript(tmp_path / "a.sql", [], []) as script:
        script.add("DELETE FROM t")
        script.close()
    assert foreign.read_text() == "precious"
    assert not (tmp_path / "a.sql").is_symlink()
    assert (tmp_path / "a.sql").stat().st_mode & 0o777 == 0o600

"""Quick answers on the real pair: what each of them finds, what it cannot show, and that none of them is a proof."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from migverify.errors import MigverifyError, UsageError
from migverify.model import KeyRange, Verdict
from migverify.store.open import open_store
from migverify.tables import confirm
from migverify.tables.diff import PairReader
from migverify.tables.quick import Level, QuickRead
from tests.conftest import Databases
from tests.db.verifying import run_command, verify, write_config

pytestmark = pytest.mark.db

COUNTS, KEYS = QuickRead(Level.COUNTS), QuickRead(Level.KEYS)
NOW = f"'{datetime.now(UTC) - timedelta(minutes=10):%F %T}'"
"""One moment for both sides: two statements that ask for the time may get two seconds."""
SAMPLE = QuickRead(share="10%", seed=5)
RECENT = QuickRead(column="updated_at", interval="2h")
ROWS = ", ".join(f"({n}, 'v{n}', '2020-01-01 00:00:00')" for n in range(1, 2001))
TABLE = "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), updated_at DATETIME NULL, KEY (updated_at))"


@pytest.fixture
def filled(databases: Databases) -> Databases:
    databases.both(TABLE, f"INSERT INTO t VALUES {ROWS}")
    return databases


@pytest.mark.parametrize(
    ("fault", "counts", "keys"),
    [
        ("", "counts are equal: 2,000 rows on each side", "keys are equal"),
        ("UPDATE t SET id = 5000 WHERE id = 7", "counts are equal", "1 row is missing on the source"),
        ("UPDATE t SET v = 'x' WHERE id = 7", "counts are equal", "keys are equal"),
        (
            "DELETE FROM t WHERE id IN (7, 1999)",
            "counts differ: 2,000 / 1,998 rows",
            "2 rows are missing on the target",
        ),
    ],
    ids=["equal", "another key", "another value", "deleted"],
)
def test_each_level_finds_what_it_reads_and_says_what_it_cannot_show(
    filled: Databases, tmp_path: Path, fault: str, counts: str, keys: str
) -> None:
    if fault:
        filled.target(fault)
    config = write_config(tmp_path, filled.pair, filled.name)
    for read, expected, unseen in (
        (COUNTS, counts, "counts cannot show rows with other values"),
        (KEYS, keys, "keys cannot show other values in the columns outside of the key (id)"),
    ):
        end = verify(config, quick=read)
        assert end.verdict is (Verdict.INCONCLUSIVE if "equal" in expected else Verdict.MISMATCH)
        assert expected in end.reasons
        assert unseen in end.reasons


@pytest.mark.parametrize(
    ("column", "keys"),
    [
        ("BIGINT UNSIGNED", [str(2**64 - n) for n in range(1, 40)]),
        ("DECIMAL(30,10)", [f"'{n}.0000000001'" for n in range(10**19, 10**19 + 40)]),
        ("VARBINARY(20)", [f"x'FF00{n:02X}'" for n in range(40)]),
        ("VARCHAR(20) COLLATE utf8mb4_general_ci", [f"'ä{n}'" for n in range(40)]),
    ],
    ids=["unsigned", "decimal", "bytes", "collation"],
)
def test_keys_of_any_type_are_compared_and_sampled(
    databases: Databases, tmp_path: Path, column: str, keys: list[str]
) -> None:
    rows = ", ".join(f"({key}, 1)" for key in keys)
    databases.both(f"CREATE TABLE t (k {column} PRIMARY KEY, v INT)", f"INSERT INTO t VALUES {rows}")
    config = write_config(tmp_path, databases.pair, databases.name)
    sampled = QuickRead(share="50%", seed=1)
    for read in (COUNTS, KEYS, sampled):
        assert verify(config, quick=read).verdict is Verdict.INCONCLUSIVE
    databases.target("DELETE FROM t ORDER BY k LIMIT 1", "UPDATE t SET v = 2")
    assert verify(config, quick=COUNTS).verdict is Verdict.MISMATCH
    end = verify(config, quick=KEYS)
    assert end.verdict is Verdict.MISMATCH
    assert end.results[f"{databases.name}.t"].missing_on_target == 1
    assert end.results[f"{databases.name}.t"].value_differs == 0
    assert verify(config, quick=sampled).verdict is Verdict.MISMATCH


def test_keys_that_differ_in_case_alone_are_other_keys(databases: Databases, tmp_path: Path) -> None:
    databases.source(
        "CREATE TABLE t (k VARCHAR(9) COLLATE utf8mb4_0900_ai_ci PRIMARY KEY)", "INSERT INTO t VALUES ('A')"
    )
    databases.target("CREATE TABLE t (k VARCHAR(9) COLLATE utf8mb4_bin PRIMARY KEY)", "INSERT INTO t VALUES ('a')")
    config = write_config(tmp_path, databases.pair, databases.name)
    assert verify(config, quick=COUNTS).verdict is Verdict.INCONCLUSIVE
    assert verify(config, quick=KEYS).verdict is Verdict.MISMATCH
    end = verify(config, quick=SAMPLE)
    assert end.verdict is Verdict.INCONCLUSIVE
    assert "not read: no key that both sides sort alike" in end.reasons


def test_a_table_without_a_key_is_counted_and_otherwise_refused(databases: Databases, tmp_path: Path) -> None:
    databases.both("CREATE TABLE t (v INT)", "INSERT INTO t VALUES (1), (1), (2)")
    config = write_config(tmp_path, databases.pair, databases.name)
    assert "counts are equal: 3 rows" in verify(config, quick=COUNTS).reasons
    for read, words in ((KEYS, "no unique key"), (SAMPLE, "no key that both sides sort alike")):
        end = verify(config, quick=read)
        assert end.verdict is Verdict.INCONCLUSIVE
        assert words in end.reasons


def test_a_count_that_differs_once_while_rows_are_on_their_way_is_no_mismatch(
    filled: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.target("DELETE FROM t WHERE id = 7")
    counted, count = [], confirm._counts

    def arrives_after_the_first_read(reader: PairReader) -> tuple[int, ...]:
        counts = count(reader)
        if not counted:
            filled.target("INSERT INTO t SELECT 7, 'v7', '2020-01-01'")
        counted.append(counts)
        return counts

    monkeypatch.setattr(confirm, "_counts", arrives_after_the_first_read)
    end = verify(write_config(tmp_path, filled.pair, filled.name, consistency="live"), quick=COUNTS)
    assert counted == [(2000, 1999), (2000, 2000)]
    assert end.verdict is Verdict.INCONCLUSIVE
    assert "counts are equal: 2,000 rows" in end.reasons


# --- samples -------------------------------------------------------------------------------------------------


def test_a_sample_finds_what_is_in_its_ranges_and_the_same_seed_reads_the_same(
    filled: Databases, tmp_path: Path
) -> None:
    config = write_config(tmp_path, filled.pair, filled.name)
    first = verify(config, quick=SAMPLE)
    ranges = first.results[f"{filled.name}.t"].details["ranges"]
    assert "rows are equal in the sample: 200 rows read on the source" in first.reasons
    assert "differences outside of its key ranges (10% of the key space, seed 5)" in first.reasons
    inside = spans(tmp_path, first.run_id, f"{filled.name}.t")
    read = {
        n
        for span in inside
        for n in range(int((span.lower or ("0",))[0] or 0) + 1, int((span.upper or ("",))[0] or 0) + 1)
    }
    assert len(read) == 200
    filled.target(f"UPDATE t SET v = 'x' WHERE id = {min(set(range(1, 2001)) - read)}")
    again = verify(config, quick=SAMPLE)
    assert again.results[f"{filled.name}.t"].details["ranges"] == ranges
    assert again.verdict is Verdict.INCONCLUSIVE
    assert verify(config, quick=QuickRead(share="10%", seed=6)).results[f"{filled.name}.t"].details["ranges"] != ranges
    filled.target(f"UPDATE t SET v = 'x' WHERE id = {min(read)}")
    found = verify(config, quick=SAMPLE)
    assert found.verdict is Verdict.MISMATCH
    assert found.diffs == {(f"{filled.name}.t", (str(min(read)),))}


def spans(folder: Path, run_id: str, table: str) -> list[KeyRange]:
    store = open_store(f"sqlite:///{folder / 'runs.db'}")
    found = [key_range for _, key_range in store.spans(run_id, table)]
    store.close()
    return found


# --- rows of an interval -------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [True, False], ids=["index", "no index"])
def test_rows_of_the_interval_on_either_side_are_compared(filled: Databases, tmp_path: Path, *, index: bool) -> None:
    if not index:
        filled.target("ALTER TABLE t DROP INDEX updated_at")
    filled.both(f"UPDATE t SET updated_at = {NOW} WHERE id <= 700")
    filled.target(
        "UPDATE t SET v = 'x' WHERE id IN (3, 1500)",  # recent; and old on both sides, which nobody reads
        "UPDATE t SET updated_at = '2020-01-01' WHERE id = 4",  # recent on the source only
        "UPDATE t SET updated_at = UTC_TIMESTAMP() WHERE id = 1600",  # recent on the target only
        "UPDATE t SET updated_at = NULL WHERE id IN (5, 1700)",  # recent on the source only, and on neither
        "DELETE FROM t WHERE id IN (6, 1800)",
        "INSERT INTO t VALUES (9000, 'new', UTC_TIMESTAMP())",
    )
    end = verify(write_config(tmp_path, filled.pair, filled.name), quick=RECENT)
    assert end.verdict is Verdict.MISMATCH
    assert end.diffs == {(f"{filled.name}.t", (str(key),)) for key in (3, 4, 5, 6, 1600, 9000)}
    result = end.results[f"{filled.name}.t"]
    assert (result.value_differs, result.missing_on_target, result.missing_on_source) == (4, 1, 1)
    assert "reading by updated_at cannot show deleted rows" in end.reasons
    assert ("no index of target begins with updated_at: the whole table is read there" in end.reasons) is not index


def test_an_equal_interval_says_so_and_a_column_that_is_no_time_is_refused(filled: Databases, tmp_path: Path) -> None:
    filled.both(f"UPDATE t SET updated_at = {NOW} WHERE id <= 10")
    filled.both("CREATE TABLE u (id INT PRIMARY KEY, updated_at INT)", "CREATE TABLE w (id INT PRIMARY KEY)")
    config = write_config(tmp_path, filled.pair, filled.name)
    end = verify(config, quick=RECENT)
    assert end.verdict is Verdict.INCONCLUSIVE
    assert "rows are equal in the interval: 10 rows read on the source, 10 on the target" in end.reasons
    assert "updated_at is int: an interval needs DATETIME or TIMESTAMP" in end.reasons
    assert "no column updated_at that both sides have" in end.reasons


# --- the command, and who may use its runs -------------------------------------------------------------------


def test_the_command_has_its_exit_codes_and_json_and_resumes(filled: Databases, tmp_path: Path) -> None:
    config = write_config(tmp_path, filled.pair, filled.name)
    code, document, _ = run_command(config, "--level", "counts")
    assert (code, document["verdict"], document["quick"]["level"]) == (3, "INCONCLUSIVE", "counts")
    assert document["tables"][0]["rows_source"] == 2000
    code, resumed, _ = run_command(config, "--resume", "last")
    assert (code, resumed["run_id"], resumed["quick"]) == (3, document["run_id"], document["quick"])
    filled.target("DELETE FROM t WHERE id <= 5")
    code, document, _ = run_command(config, "--level", "counts")
    assert (code, document["verdict"]) == (1, "MISMATCH")
    code, document, messages = run_command(config, "--updated-since", "updated_at", "2h", "--level", "keys")
    assert document, messages
    assert "warning" not in messages
    assert (code, document["quick"]["column"], document["quick"]["level"]) == (3, "updated_at", "keys")
    code, document, messages = run_command(config, "--updated-since", "updated", "2h")
    assert (code, document) == (2, {}), "a typo does not end like a night of equal rows"
    assert "no table has a column updated\n" in messages
    assert "Did you mean updated_at?" in messages
    filled.target("ALTER TABLE t DROP INDEX updated_at")
    _, _, messages = run_command(config, "--updated-since", "updated_at", "2h")
    assert f"warning: {filled.name}.t: no index of target begins with updated_at" in messages


def test_nothing_rests_on_a_quick_answer(filled: Databases, tmp_path: Path) -> None:
    config = write_config(tmp_path, filled.pair, filled.name)
    quick = verify(config, quick=KEYS).run_id
    used: tuple[dict[str, Any], ...] = ({"since": quick}, {"recheck": quick}, {"recheck": "last"})
    for how in used:
        with pytest.raises(UsageError):
            verify(config, **how)
    code, document, messages = run_command(config, "--since", "last", "--quiet")
    assert (code, document["verdict"]) == (0, "MATCH"), messages
    assert "all tables: this configuration has no earlier run to rest on: it is read whole" in messages
    assert document["tables"][0]["rows_source"] == 2000
    assert verify(config, quick=COUNTS).verdict is Verdict.INCONCLUSIVE
    with pytest.raises(MigverifyError, match="nothing to recheck"):
        verify(config, recheck="last")  # the proof, and not the newer quick answer

"""What a capture asks of tables, keys and transactions: counts, peaks and orders whose truth is known."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.load import CaptureLoad
from migverify.workload.rates import COLUMNS, MOST_KEYS, _Counts, _TopKeys, read_load
from migverify.workload.replay.touches import TableKeys

T = TableKeys(("id",), {}, columns=("id", "v"), integers=frozenset({"id", "v"}))
KEYS = {"shop.t": T, "shop.other": T, "shop.twokeys": TableKeys(("id",), {"u": ("v",)}, columns=("id", "v"))}


def load(
    tmp_path: Path, *statements: str | dict[str, Any], seconds: float = 10.0,
    summary: Mapping[str, Any] = MappingProxyType({}), **more: Any,
) -> CaptureLoad:  # fmt: skip
    """Statements spread over some seconds, one session each unless they name it."""
    rows = []
    for number, given_row in enumerate(statements):
        row = {"sql": given_row} if isinstance(given_row, str) else given_row
        at = round(seconds * number / max(1, len(statements)) * 1e6)
        base: dict[str, Any] = dict.fromkeys(COLUMNS) | {
            "session": str(number), "command": "query", "database": "shop", "start": at, "end": at + 1000,
            "in_transaction": False, "source_file": "log", "source_line": number,
        }  # fmt: skip
        rows.append(base | row | {"sql": str(row["sql"]).encode()})
    ends = {"first": "1970-01-01T00:00:00Z", "last": f"1970-01-01T00:{int(seconds // 60):02}:{seconds % 60:09.6f}Z"}
    (tmp_path / "_summary.json").write_text(json.dumps({**ends, "formats": ["general"], **summary}))

    def reader(folder: Path, columns: Sequence[str]) -> Iterator[dict[str, list[object]]]:
        assert folder == tmp_path
        yield {name: [row[name] for row in rows] for name in columns}

    options = {"columns": {"shop.t": frozenset({"id", "v"})}, "row_bytes": {}, **more}
    return read_load(tmp_path, reader, KEYS, **options)


@given(st.lists(st.integers(0, 200), max_size=200), st.integers(1, 30))
def test_the_busiest_stretch_is_the_largest_sum_of_any_window(moments: list[int], stretch: int) -> None:
    counts = _Counts(1.0)
    for moment in moments:
        counts.add(moment * 1_000_000)
    most = max((sum(start <= one < start + stretch for one in moments) for start in range(201)), default=0)
    assert counts.frequency(1000.0, stretch).peak == pytest.approx(most / stretch)


def test_a_key_that_is_written_a_lot_is_held_among_many() -> None:
    top, random = _TopKeys(1.0), Random(3)
    for number in range(200_000):
        top.add("t", (b"PRIMARY", b"7" if number % 50 == 0 else str(random.getrandbits(40)).encode()), number)
    assert len(top.held) < 2 * MOST_KEYS
    _, counts = top.held["t", (b"PRIMARY", b"7")]
    assert 4_000 - top.missed <= counts.count <= 4_000
    assert top.missed <= 200_000 / MOST_KEYS


@pytest.mark.parametrize(
    ("statement", "affected", "inserts", "changes", "uncounted"),
    [
        ("INSERT INTO t VALUES (1, 2), (3, 4)", None, 2, 0, 0),
        ("INSERT INTO t SET id = 1, v = 2", None, 1, 0, 0),
        ("insert into shop.t (v) values ((1 + 2))", None, 1, 0, 0),
        ("INSERT INTO t SELECT id, v FROM other", 500, 500, 0, 0),
        ("INSERT INTO t SELECT id, v FROM other", None, 0, 0, 1),
        ("INSERT INTO t VALUES (1, 2) ON DUPLICATE KEY UPDATE v = 3", None, 0, 1, 0),
        ("INSERT INTO t VALUES (1, 'DUPLICATE')", None, 1, 0, 0),
        ("REPLACE INTO t VALUES (1, 2)", None, 0, 1, 0),
        ("REPLACE INTO t SELECT id, v FROM other", None, 0, 1, 1),
        ("UPDATE t JOIN other USING (id) SET t.v = 1", None, 0, 1, 0),
        ("DELETE FROM t WHERE id = 1", None, 0, 1, 0),
    ],
)
def test_what_a_statement_writes(
    tmp_path: Path, statement: str, affected: int | None, inserts: int, changes: int, uncounted: int
) -> None:
    found = load(tmp_path, {"sql": statement, "rows_affected": affected})
    table = found.tables["shop.t"]
    assert (table.inserts.count, table.changes.count, table.uncounted, table.written) == (
        inserts, changes, uncounted, 1,
    )  # fmt: skip
    assert table.upserts.count == ("VALUES" in statement and changes)
    assert found.elsewhere.count == 0


def test_what_fails_or_is_only_prepared_writes_nothing_and_what_no_text_tells_is_counted(tmp_path: Path) -> None:
    found = load(
        tmp_path, {"sql": "INSERT INTO t VALUES (1, 2)", "errno": 1062},
        {"sql": "INSERT INTO t VALUES (1, 2)", "command": "prepare"},
        "CALL work()", {"sql": "LOAD DATA INFILE 'x' INTO TABLE t", "rows_affected": 9}, "SELECT v FROM t WHERE id = 1",
    )  # fmt: skip
    assert (found.elsewhere.count, found.unnamed) == (10, 2)
    assert (found.tables["shop.t"].written, sum(table.written for table in found.tables.values())) == (0, 0)
    assert found.tables["shop.t"].inserts.count == 0
    assert found.tables["shop.t"].reads.count == 1


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        (lambda n, _: str(n << 22), 1.0, 1.0), (lambda _n, _: "NOW()", 1.0, 1.0),
        (lambda n, _: f"'2026-01-01 00:{n // 60 % 60:02}:{n % 60:02}'", 0.95, 1.0),
        (lambda _, random: str(random.getrandbits(60)), 0.3, 0.7),
        (lambda _, random: f"'{random.getrandbits(120):030x}'", 0.3, 0.7),
        (lambda n, _: str(n % 17), 0.2, 0.8),
    ],
)  # fmt: skip
def test_the_order_of_inserted_values(tmp_path: Path, value: Any, least: float, most: float) -> None:
    """By time, over all sessions: these lie one after the other in a capture."""
    random = Random(5)
    rows = [{"sql": f"INSERT INTO t VALUES ({value(n, random)}, 1)", "start": n * 1000, "end": n * 1000 + 5}
            for n in range(3000)]  # fmt: skip
    random.shuffle(rows)
    found = load(tmp_path, *rows)
    assert least <= found.tables["shop.t"].ascending["id"] <= most
    assert "v" not in found.tables["shop.t"].ascending, "equal values have no order"


def test_keys_of_writes_and_locks(tmp_path: Path) -> None:
    prepared = {"sql": "UPDATE t SET v = ? WHERE id = ?", "command": "execute",
                "parameters": [{"kind": "integer", "value": b"5"}, {"kind": "integer", "value": b"1"}]}  # fmt: skip
    found = load(
        tmp_path, "UPDATE t SET v = v + 1 WHERE id = 1", prepared, "SELECT v FROM t WHERE id = 1 FOR UPDATE",
        "INSERT INTO t VALUES (1, 2) ON DUPLICATE KEY UPDATE v = 3", "DELETE FROM t WHERE id = 2",
        "INSERT INTO t VALUES (9, 2)", "UPDATE t SET v = 1", "SELECT v FROM t WHERE id = 1",
    )  # fmt: skip
    assert [(one.key, one.writes.count) for one in found.keys] == [("id=1", 4), ("id=2", 1)]


def test_transactions_are_measured_from_begin_to_end(tmp_path: Path) -> None:
    def at(second: float, sql: str, *, inside: bool = True, session: str = "a") -> dict[str, Any]:
        moment = round(second * 1e6)
        return {"sql": sql, "session": session, "start": moment, "end": moment + 500_000, "in_transaction": inside}

    found = load(
        tmp_path, at(0, "BEGIN", inside=False), at(1, "SELECT v FROM t"), at(2, "UPDATE t SET v = 1 WHERE id = 1"),
        at(7, "COMMIT"), at(8, "INSERT INTO t VALUES (1, 2)", inside=False),
        at(0, "BEGIN", inside=False, session="b"), at(1, "SELECT v FROM t", session="b"),
        at(900, "COMMIT", session="b"),
        at(3, "DELETE FROM t WHERE id IN (1, 2, 3)", inside=False, session="c") | {"rows_affected": 3},
        row_bytes={"shop.t": 1000.0},
    )  # fmt: skip
    assert (found.longest.seconds, found.longest.statements, found.longest.origin) == (7.5, 2, "log:0")
    assert (found.largest.bytes, found.largest.rows) == (3000, 3)


def test_the_share_of_bytes_that_could_not_be_read(tmp_path: Path) -> None:
    assert load(tmp_path, summary={"bytes": 558_007, "rejected_bytes": 557_824}).rejected_share > 0.99
    assert load(tmp_path, summary={"bytes": 0, "rejected_bytes": 0}).rejected_share == 0

"""Rows rebuilt from a stream, and their texts beside a server's: what counts as one value, and what does not."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.changes import delivered as module
from migverify.changes.delivered import LastImages, what_it_breaks
from migverify.changes.events import EventType
from migverify.changes.files import read_files
from migverify.changes.model import Begin, ColumnMap, Commit, Item, Op, Position, Rows, Statement, TableMap
from migverify.model import Lane, Verdict
from migverify.tables.delivered import TableDelivery, Wait, conclude
from migverify.tables.image_values import image_literal, same_image
from migverify.tables.tasks import ReadColumn
from tests.binlog_events import SERVER, TIME, Binlog, image

NAME = ("d", "t")
INT, VARCHAR, DOUBLE_TYPE = 3, 15, 5
LAYOUT = TableMap(
    "d", "t", (ColumnMap("id", INT, 0, False, False), ColumnMap("v", VARCHAR, 80, False, True, "utf8mb4")), (0,)
)


def fold(items: Iterator[Item], keys: Mapping[tuple[str, str], tuple[str, ...] | None] | None = None) -> LastImages:
    images = LastImages(keys or {NAME: ("id",)})
    for item in items:
        images.take(item)
    return images


def left(images: LastImages, name: tuple[str, str] = NAME, size: int = 3) -> dict[str | None, str | None]:
    """What the range leaves: key -> value of ``v``, ``gone`` for a deleted key."""
    return {
        one.key[0]: "gone" if one.image is None else one.image[1]
        for batch in images.batches(name, size)
        for one in batch
    }


def transaction(number: int, *parts: Rows | Statement) -> Iterator[Item]:
    at = Position("f", number)
    yield Begin(f"{SERVER}:{number}", at, TIME)
    yield from parts
    yield Commit(f"{SERVER}:{number}", at, TIME)


def rows(op: Op, *images: bytes, layout: TableMap = LAYOUT) -> Rows:
    return Rows(op, layout, b"".join(images), "f", 4, TIME)


def statement(op: Op, sql: str, *tables: tuple[str, str]) -> Statement:
    return Statement(op, tables, sql, "d", "f", 4, TIME)


def test_the_last_image_of_a_key_counts(tmp_path: Path) -> None:
    log = Binlog().insert(1, "a").insert(2, "b").begin().table()
    log.rows(image(1, "a"), image(1, "c"), image(2, "b"), image(9, "b"), kind=EventType.UPDATE_ROWS).xid()
    log.insert(3, "d").begin().table().rows(image(3, "d"), kind=EventType.DELETE_ROWS).xid().insert(2, "again")
    with fold(read_files([log.write(tmp_path)])) as images:
        assert left(images) == {"1": "c", "2": "again", "9": "b", "3": "gone"}
        assert images.counts(NAME).here == 3
        assert images.counts(NAME).gone == 1
        found = {one.key[0]: (one.seq, one.at) for batch in images.batches(NAME, 10) for one in batch}
        assert found["1"] == (3, f"{SERVER}:3")
        assert found["3"] == (5, f"{SERVER}:5")


Step = tuple[str, int, int, str | None]
steps = st.lists(
    st.tuples(st.sampled_from(["insert", "update", "delete", "truncate"]), st.integers(0, 6), st.integers(0, 6),
              st.sampled_from(["a", "é", "", None])), max_size=60,
)  # fmt: skip


@settings(deadline=None)
@given(steps, st.integers(1, 5))
def test_a_range_leaves_what_a_table_would_hold(plan: list[Step], waiting: int) -> None:
    table: dict[int, str | None] = {}
    touched: set[int] = set()
    items: list[Item] = []
    for number, (kind, one, other, text) in enumerate(plan, 1):
        part: Rows | Statement
        if kind == "insert" and one not in table:
            part = rows(Op.INSERT, image(one, text))
            table[one] = text
        elif kind == "update" and one in table and (other == one or other not in table):
            part = rows(Op.UPDATE, image(one, table.pop(one)), image(other, text))
            table[other] = text
            touched.add(other)
        elif kind == "delete" and one in table:
            part = rows(Op.DELETE, image(one, table.pop(one)))
        elif kind == "truncate":
            part = statement(Op.TRUNCATE, "TRUNCATE t", NAME)
            table.clear()
        else:
            continue
        if kind != "truncate":
            touched.add(one)
        items += transaction(number, part)
    before = module.ROWS_AT_ONCE
    module.ROWS_AT_ONCE = waiting  # the buffer is emptied in the middle
    try:
        with fold(iter(items)) as images:
            assert left(images) == {str(k): table.get(k, "gone") for k in touched}
    finally:
        module.ROWS_AT_ONCE = before


def test_doubtful_keys_alone_come_back() -> None:
    items = [*transaction(1, rows(Op.INSERT, *(image(n, "x") for n in range(9))))]
    with fold(iter(items)) as images:
        images.doubt(NAME, [("3",), ("7",)])
        found = [one.key for batch in images.batches(NAME, 1, doubtful=True) for one in batch]
        assert found == [("3",), ("7",)]


def test_a_layout_that_only_grows_keeps_old_images() -> None:
    wider = TableMap("d", "t", (*LAYOUT.columns, ColumnMap("n", INT, 0, False, True)), (0,))
    items = [*transaction(1, rows(Op.INSERT, image(1, "a"))),
             *transaction(2, rows(Op.INSERT, image(2, "b") + struct.pack("<i", 5), layout=wider))]  # fmt: skip
    with fold(iter(items)) as images:
        kept = [one for batch in images.batches(NAME, 9) for one in batch]
        assert [(one.image, len(one.layout.columns)) for one in kept if one.layout] == [
            (("1", "a"), 2), (("2", "b", "5"), 3),
        ]  # fmt: skip
        assert images.void(NAME) == ""


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        (TableMap("d", "t", (LAYOUT.columns[0], ColumnMap("v", VARCHAR, 200, False, True, "utf8mb4"))), "v"),
        (TableMap("d", "t", (LAYOUT.columns[0],)), "v"),
        (TableMap("d", "t", (ColumnMap("other", INT, 0, False, False), LAYOUT.columns[1])), "key columns"),
    ],
    ids=["changed", "dropped", "key-gone"],
)
def test_a_layout_that_changes_voids_the_table(layout: TableMap, reason: str) -> None:
    items = [*transaction(1, rows(Op.INSERT, image(1, "a"))),
             *transaction(2, rows(Op.INSERT, image(2, "b"), layout=layout))]  # fmt: skip
    with fold(iter(items)) as images:
        assert reason in images.void(NAME)
        assert left(images) == {}
        assert images.changed(NAME)


def test_a_table_without_rows_to_follow_is_known_to_be_changed() -> None:
    with fold(transaction(1, rows(Op.INSERT, image(1, "a"))), {NAME: None, ("d", "u"): None}) as images:
        assert images.changed(NAME)
        assert not images.changed(("d", "u"))
        assert left(images) == {}


def test_statements_on_other_tables_change_nothing() -> None:
    items = [
        *transaction(1, rows(Op.INSERT, image(1, "a"))),
        *transaction(2, statement(Op.DDL, "DROP TABLE x", ("d", "x"))),
        *transaction(3, statement(Op.TRUNCATE, "TRUNCATE x", ("d", "x"))),
    ]
    with fold(iter(items)) as images:
        assert left(images) == {"1": "a"}


@pytest.mark.parametrize("tables", [(NAME,), (("d", ""),), ()], ids=["table", "database", "anything"])
def test_a_drop_voids_what_it_may_concern(tables: tuple[tuple[str, str], ...]) -> None:
    items = [
        *transaction(1, rows(Op.INSERT, image(1, "a"))),
        *transaction(2, statement(Op.DDL, "DROP TABLE t", *tables)),
    ]
    with fold(iter(items)) as images:
        assert "DROP TABLE within the range" in images.void(NAME)


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "create index i on t (v)",
        "DROP INDEX i ON t",
        "ALTER TABLE t ADD COLUMN n INT DEFAULT 5, ADD KEY (n), ALGORITHM=INSTANT",
        "ALTER TABLE `d`.`t` ADD n ENUM('a,b','DROP')",
        "ALTER TABLE d.t ADD (n INT, m INT)",
        "ALTER TABLE t DROP INDEX i, DROP FOREIGN KEY f",
        "ALTER TABLE t RENAME INDEX a TO b",
        "ALTER TABLE t COMMENT 'DROP COLUMN v'",
        "/* DROP */ ALTER TABLE t ENGINE=InnoDB",
        "CREATE DATABASE d",
        "ALTER TABLE t AUTO_INCREMENT = 5",
        "ALTER DATABASE d CHARACTER SET utf8mb4",
    ],
)
def test_what_only_adds_breaks_nothing(sql: str) -> None:
    assert what_it_breaks(statement(Op.DDL, sql, NAME)) == ""


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE t DROP COLUMN v",
        "ALTER TABLE t DROP v",
        "ALTER TABLE t ADD n INT, MODIFY v INT",
        "ALTER TABLE t CHANGE v w INT",
        "ALTER TABLE t RENAME TO u",
        "ALTER TABLE t RENAME COLUMN v TO w",
        "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4",
        "ALTER TABLE t TRUNCATE PARTITION p0",
        "ALTER TABLE t DROP PARTITION p0",
        "ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE u",
        "ALTER TABLE t DROP PRIMARY KEY",
        "RENAME TABLE t TO u",
        "DROP TABLE t",
        "DROP DATABASE d",
        "ALTER IGNORE TABLE t ADD UNIQUE (v)",
        "REPAIR TABLE t",
        "ALTER TABLE t",
        "SOMETHING NEW",
        "ALTER TABLE t IMPORT TABLESPACE",
    ],
)
def test_what_does_more_than_add_breaks_the_images(sql: str) -> None:
    assert "within the range" in what_it_breaks(statement(Op.DDL, sql, NAME))


def column(family: str, compare: str = "text", *, binary: bool = False, tolerance: float | None = None) -> ReadColumn:
    lane = Lane.EXACT if compare == "text" else Lane.VALUE
    return ReadColumn("c", family, lane, compare, binary or family == "binary", tolerance)


@pytest.mark.parametrize(
    ("of", "image_text", "shown"),
    [
        (column("integer"), "00042", "42"),
        (column("integer"), "7", "7.00"),
        (column("bit"), "0x0201", "513"),
        (column("year"), "0000", "0"),
        (column("decimal"), "1.50", "1.5000"),
        (column("decimal"), "-0.00", "0"),
        (column("datetime"), "2026-01-31 10:00:00", "2026-01-31 10:00:00.000"),
        (column("date"), "2026-01-31", "2026-01-31 00:00:00.000000"),
        (column("time"), "-12:00:00.50", "-12:00:00.500"),
        (column("text"), "é ", "é "),
        (column("text", binary=True), "é", "0xc3a9"),
        (column("binary"), "0x0102", "0x0102"),
        (column("labels", "labels"), "a,b", "b,a"),
        (column("json", "json"), '{"b": 1, "a": 2}', '{"a":2,"b":1.0}'),
        (column("float"), "1.100000023841858", "1.1000000238418580"),
        (column("float"), "16777216", "16777216.0"),
        (column("float"), "1e300", "1e300"),
        (column("float"), "-0", "0.0"),
        (column("float", "number", tolerance=0.1), "1.0", "1.05"),
        (column("decimal", "number", tolerance=0.1), "1.0", "1.05"),
        (column("text"), None, None),
        (column("date"), "0000-00-00", "0000-00-00"),
    ],
)
def test_one_value_in_two_spellings(of: ReadColumn, image_text: str | None, shown: str | None) -> None:
    assert same_image(of, image_text, shown)


@pytest.mark.parametrize(
    ("of", "image_text", "shown"),
    [
        (column("integer"), "42", "43"),
        (column("integer"), "9007199254740993", "9007199254740992"),
        (column("decimal"), "0.10000000000000000001", "0.1"),
        (column("datetime"), "2026-01-31 10:00:00", "2026-01-31 10:00:01"),
        (column("text"), "a", "A"),
        (column("text"), "a ", "a"),
        (column("text"), "1.0", "1"),
        (column("text"), "", None),
        (column("text"), None, ""),
        (column("binary"), "0x01", "0x0100"),
        (column("float"), "1.1", "1.2"),
        (column("float"), "12345.6796875", "12345.6904296875"),
        (column("float"), "16777200", "16777216"),
        (column("float"), "0.1", "0.10000000000000002"),
        (column("float"), "1.100000023841858", "1.1"),
        (column("float"), "x", "1"),
        (column("json", "json"), "[1, 2]", "[2, 1]"),
        (column("label"), "a", "b"),
        (column("decimal", "number", tolerance=0.1), "1.0", "1.2"),
        (column("time"), "-12:00:00", "12:00:00"),
    ],
)
def test_two_values_are_two(of: ReadColumn, image_text: str | None, shown: str | None) -> None:
    assert not same_image(of, image_text, shown)


def test_literals_of_keys() -> None:
    assert image_literal(column("bit"), "0x0201") == "513"
    assert image_literal(column("binary"), "0x0201") == "0x0201"
    assert image_literal(column("text", binary=True), "é") == "0xc3a9"
    assert image_literal(column("text"), "0x41") == "0x41"
    assert image_literal(column("text"), None) is None


class TestVerdict:
    LATE = Wait(0.0)
    SURE = Wait(0.0, applied=True)

    def test_all_equal_is_a_match(self) -> None:
        assert conclude([TableDelivery("t", equal=5)], self.LATE).verdict is Verdict.MATCH

    def test_nothing_judged_is_no_match(self) -> None:
        assert conclude([TableDelivery("t", changed=False)], self.LATE).verdict is Verdict.INCONCLUSIVE
        assert conclude([], self.LATE).verdict is Verdict.INCONCLUSIVE

    def test_a_table_not_judged_counts_only_if_it_was_changed(self) -> None:
        quiet = TableDelivery("u", changed=False, not_covered="no key")
        assert conclude([TableDelivery("t", equal=1), quiet], self.LATE).verdict is Verdict.MATCH
        loud = TableDelivery("u", not_covered="no key")
        assert conclude([TableDelivery("t", equal=1), loud], self.LATE).verdict is Verdict.INCONCLUSIVE

    @pytest.mark.parametrize("field", ["pending", "unlogged", "null_keys"])
    def test_what_is_not_judged_is_said(self, field: str) -> None:
        found = conclude([TableDelivery("t", equal=1, **{field: 2})], self.LATE)  # type: ignore[arg-type]
        assert found.verdict is Verdict.INCONCLUSIVE
        assert "2 keys" in found.reasons[0]

    @pytest.mark.parametrize(
        ("wait", "first_bad", "last_good", "verdict"),
        [
            (LATE, 3, 4, Verdict.MISMATCH), (LATE, 4, 3, Verdict.INCONCLUSIVE), (LATE, 4, 0, Verdict.INCONCLUSIVE),
            (SURE, 4, 3, Verdict.MISMATCH),
        ],
    )  # fmt: skip
    def test_what_is_missing_before_something_that_arrived_is_lost(
        self, wait: Wait, first_bad: int, last_good: int, verdict: Verdict
    ) -> None:
        table = TableDelivery("t", equal=1, missing=1, first_bad=first_bad, last_good=last_good)
        # Another table that is up to date proves nothing: tables may come on lanes of their own.
        other = TableDelivery("u", equal=9, last_good=9)
        assert conclude([table, other], wait).verdict is verdict

    def test_mismatch_beats_doubts(self) -> None:
        found = conclude([TableDelivery("t", missing=1, pending=1, first_bad=1, last_good=2)], self.LATE)
        assert found.verdict is Verdict.MISMATCH
        assert len(found.reasons) == 2

    def test_rows_that_a_truncate_left(self) -> None:
        lost = TableDelivery("t", extra_rows=1, first_bad=3, last_good=4)
        assert conclude([lost], self.LATE).verdict is Verdict.MISMATCH
        late = TableDelivery("t", extra_rows=1, first_bad=3, last_good=2)  # the TRUNCATE itself may be on its way
        assert conclude([late], self.LATE).verdict is Verdict.INCONCLUSIVE

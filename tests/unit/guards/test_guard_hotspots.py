"""Hot spots: which keys have an end, and what a rate, a limit or a doubt makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from migverify.cli.main import run
from migverify.config import Config
from migverify.guards.capacity_read import Sizes, TableSize
from migverify.guards.hotspots_capture import capture
from migverify.guards.hotspots_judge import QUESTIONS, hot_keys, insert_order, small_tables, transactions
from migverify.guards.hotspots_model import HotspotLimits, KeyOrder, insert_ranges
from migverify.guards.hotspots_read import DEFAULTS, REGION_BYTES, HotspotFacts, HotspotReading
from migverify.guards.ids_model import IdKind, IdReading, IdSpace
from migverify.guards.model import AnswerState, CheckResult
from migverify.guards.scope import Scope
from migverify.load import CaptureLoad, Frequency, KeyLoad, TableLoad, TransactionLoad
from migverify.model import ColumnDef, Flavor, IndexDef, TableDef, TableRef

PASS, WARN, FAIL, UNKNOWN = AnswerState.PASS, AnswerState.WARN, AnswerState.FAIL, AnswerState.INCONCLUSIVE
NOW = 1_795_270_000_000.0
CONFIG = Config.model_validate({
    "source": {"host": "a", "user": "u"}, "target": {"host": "b", "user": "u"}, "tables": {"include": ["shop.*"]},
})  # fmt: skip


def column(name: str, data_type: str = "bigint", extra: str = "", default: str | None = None) -> ColumnDef:
    return ColumnDef(
        name=name, position=1, data_type=data_type, column_type=data_type, nullable=False, unsigned=False,
        default=default, charset=None, collation=None, char_length=None, octet_length=None, precision=None, scale=None,
        extra=extra,
    )  # fmt: skip


def table(
    *columns: ColumnDef, indexes: Mapping[str, tuple[str, ...]] | None = None, options: str = "", size: int = 1 << 30
) -> TableDef:
    keys = {"PRIMARY": (columns[0].name,), **(indexes or {})}
    found = tuple(IndexDef(name, name == "PRIMARY", parts, (None,) * len(parts)) for name, parts in keys.items())
    return TableDef(TableRef("target", "shop", "t"), columns, found, 1000, size, create_options=options)


AUTO = column("id", extra="auto_increment")
AUTO_INCREMENT = table(AUTO)
RATE = Frequency(20_000, 2000.0, 2000.0)


def load(**more: Any) -> CaptureLoad:
    return replace(CaptureLoad(("general",), statements=900, seconds=10.0, stretch=10.0), **more)


def inserts(peak: float, **more: Any) -> CaptureLoad:
    return load(tables={"shop.t": TableLoad(inserts=Frequency(int(peak * 10), peak, peak), **more)})


def facts(
    given_table: TableDef | None = AUTO_INCREMENT, given_load: CaptureLoad | None = None, *,
    clustered: bool = True, spaces: Iterable[IdSpace] = (), partitions: tuple[str, int] | None = None, **more: Any,
) -> HotspotFacts:  # fmt: skip
    target = HotspotReading(CONFIG.target, Flavor.TIDB, version="8.0.11-TiDB-v8.5.3", settings=dict(DEFAULTS))
    if given_table is not None:
        target.tables["shop.t"] = given_table
        target.clustered["shop.t"] = clustered
    if partitions is not None:
        target.partitions["shop.t"] = partitions
    for name, value in more.items():
        setattr(target, name, value)
    sizes = {"source": Sizes({("shop", "t"): TableSize(1000, 100)}, "", "")}
    return HotspotFacts(Scope(CONFIG, {}), target, sizes, tuple(spaces), NOW, given_load, HotspotLimits())


def by_part(results: Iterable[CheckResult]) -> dict[str, CheckResult]:
    return {one.part: one for one in results}


def rows(given_facts: HotspotFacts) -> CheckResult:
    return by_part(insert_order(given_facts))["rows"]


# --- ranges ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "clustered", "partitions", "expected"),
    [
        (AUTO_INCREMENT, True, 1, [("rows", "increasing", 1)]),
        (AUTO_INCREMENT, True, 8, [("rows", "increasing", 8)]),
        (AUTO_INCREMENT, False, 1, [("rows", "increasing", 1), ("index PRIMARY", "increasing", 1)]),
        (table(AUTO, options="SHARD_BITS=4"), False, 1, [("rows", "increasing", 16)]),
        (table(AUTO, options="SHARD_BITS=4"), False, 4, [("rows", "increasing", 64)]),
        (table(column("id", extra="auto_random(5)")), True, 1, [("rows", "increasing", 32)]),
        (table(column("id", "char")), True, 1, [("rows", "scattered", 1)]),
        (table(column("id", "binary")), True, 1, [("rows", "scattered", 1)]),
        (table(column("id")), True, 1, [("rows", "not known", 1)]),
        (table(column("created_at", "datetime")), True, 1, [("rows", "increasing", 1)]),
        (table(column("birthday", "date")), True, 1, [("rows", "not known", 1)]),
        (table(column("at", "timestamp", default="CURRENT_TIMESTAMP")), True, 1, [("rows", "increasing", 1)]),
        (table(AUTO, column("n", "varchar"), indexes={"k": ("n",)}), True, 1,
         [("rows", "increasing", 1), ("index k", "scattered", 1)]),
    ],
)  # fmt: skip
def test_where_inserts_go(
    made: TableDef, clustered: bool, partitions: int, expected: list[tuple[str, str, int]]
) -> None:
    found = insert_ranges(made, clustered=clustered, partitions=partitions, kinds={}, ascending={})
    assert [(one.name, one.order.value, one.spread) for one in found] == expected


@pytest.mark.parametrize(
    ("kind", "share", "order"),
    [
        (IdKind.SNOWFLAKE, None, KeyOrder.INCREASING), (IdKind.RANDOM, None, KeyOrder.SCATTERED),
        (IdKind.AUTO_INCREMENT, None, KeyOrder.INCREASING), (IdKind.INTEGER, None, KeyOrder.UNKNOWN),
        (IdKind.INTEGER, 0.99, KeyOrder.INCREASING),
        (IdKind.INTEGER, 0.5, KeyOrder.SCATTERED), (None, 0.95, KeyOrder.INCREASING),
    ],
)  # fmt: skip
def test_the_order_of_ids_of_an_application(kind: IdKind | None, share: float | None, order: KeyOrder) -> None:
    kinds, ascending = {"id": kind} if kind else {}, {"id": share} if share is not None else {}
    (found,) = insert_ranges(table(column("id")), clustered=True, partitions=1, kinds=kinds, ascending=ascending)
    assert found.order is order


# --- rates -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("peak", "state"), [(999, PASS), (1000, WARN), (1999, WARN), (2000, FAIL)])
def test_the_captured_rate_decides(peak: float, state: AnswerState) -> None:
    found = rows(facts(given_load=inserts(peak)))
    assert found.state is state
    assert "AUTO_RANDOM(5)" in found.todo
    assert rows(facts(given_load=inserts(peak), partitions=("HASH", 2))).state is (WARN if peak == 2000 else PASS)
    assert rows(facts(given_load=inserts(peak), partitions=("RANGE", 99))).state is state


def test_rates_of_shards_add_up_and_an_int_key_has_to_be_widened() -> None:
    both = facts(replace(AUTO_INCREMENT, columns=(column("id", "int", "auto_increment"),)), inserts(1000))
    both.sizes["source.2"] = Sizes({("shop", "t"): TableSize(1000, 100)}, "", "")  # type: ignore[index]
    assert rows(both).state is WARN, "one name in one capture is one table"
    assert rows(both).todo.startswith("AUTO_RANDOM needs BIGINT")


def test_what_the_capture_does_not_count_is_not_known() -> None:
    assert rows(facts(given_load=inserts(5, uncounted=1))).state is UNKNOWN
    assert rows(facts(given_load=inserts(5, upserts=Frequency(1, 1, 999)))).state is UNKNOWN
    assert rows(facts(given_load=inserts(5, upserts=Frequency(1, 1, 900)))).state is PASS
    assert rows(facts(table(column("id", "char")), inserts(5, uncounted=1))).state is PASS
    assert rows(facts(table(column("id")), inserts(2000))).state is UNKNOWN
    assert rows(facts(table(column("id")), inserts(2000, ascending={"id": 0.5}))).state is PASS
    assert rows(facts(table(column("id")), inserts(2000, ascending={"id": 1.0}))).state is FAIL
    masked = replace(inserts(2000, ascending={"id": 0.5}), masked=True)
    assert rows(facts(table(column("id")), masked)).state is UNKNOWN, "masked values have no order"


def counter(used: int, earlier: int | None, seconds: float) -> IdSpace:
    history = () if earlier is None else (IdReading(NOW - seconds * 1000, earlier),)
    return IdSpace("source", "shop.t", "id", IdKind.AUTO_INCREMENT, used, 2**63 - 1, "", history=history)


@pytest.mark.parametrize(
    ("spaces", "state"),
    [
        ((), UNKNOWN),
        ((counter(50_000, None, 0),), PASS),
        ((counter(90_000_000, None, 0),), UNKNOWN),
        ((counter(90_000_000, 90_000_000 - 99 * 3600, 3600),), PASS),
        ((counter(90_000_000, 90_000_000 - 500 * 3600, 3600),), UNKNOWN),
        ((counter(90_000_000, 90_000_000 - 1000 * 3600, 3600),), WARN),
        ((counter(90_000_000, 90_000_000 - 2000 * 3600, 3600),), FAIL),
        ((counter(10_000_000, 90_000_000, 3600),), UNKNOWN),  # set back
    ],
)
def test_without_a_capture_the_growth_of_the_counter_decides(spaces: tuple[IdSpace, ...], state: AnswerState) -> None:
    assert rows(facts(spaces=spaces)).state is state
    assert next(iter(capture(facts(spaces=spaces)))).state is UNKNOWN, "the rest is not known"


def test_growth_counts_beside_a_quiet_capture() -> None:
    assert rows(facts(given_load=inserts(3), spaces=(counter(90_000_000, 80_000_000, 3600),))).state is FAIL


def test_indexes_in_order_and_tables_that_are_not_there() -> None:
    made = table(
        column("id", extra="auto_random(5)"), column("at", "timestamp", "on update CURRENT_TIMESTAMP"),
        column("customer"), indexes={"by_time": ("at",), "by_customer": ("customer",)},
    )  # fmt: skip
    found = by_part(insert_order(facts(made, inserts(2000, ascending={"customer": 0.5}))))
    assert {name: one.state for name, one in found.items()} == {"rows": PASS, "index by_time": FAIL}
    changed = load(tables={"shop.t": TableLoad(changes=RATE)})
    assert by_part(insert_order(facts(made, changed)))["index by_time"].state is FAIL, "each change moves the entry"
    (gone,) = insert_order(facts(None, inserts(2000)))
    assert gone.state is UNKNOWN


# --- tables, keys, transactions ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "asked", "more", "state", "todo"),
    [
        (1 << 20, {"changes": RATE}, {}, FAIL, "SPLIT TABLE"),
        (1 << 20, {"reads": Frequency(1, 1, 3000)}, {}, WARN, "CACHE"),
        (9 << 20, {"reads": Frequency(1, 1, 3000)}, {}, WARN, "SPLIT TABLE"),
        (1 << 20, {"reads": Frequency(1, 1, 2999), "changes": Frequency(1, 1, 999)}, {}, None, ""),
        (1 << 20, {"inserts": RATE}, {}, None, ""),  # it grows, and is split
        (97 << 20, {"changes": RATE}, {}, None, ""),
        (97 << 20, {"changes": RATE}, {"settings": {REGION_BYTES: 256 << 20}}, FAIL, "SPLIT TABLE"),
        (1 << 20, {"changes": RATE}, {"regions": {"shop.t": 4}}, None, ""),
    ],
)
def test_small_tables(
    size: int, asked: dict[str, Any], more: dict[str, Any], state: AnswerState | None, todo: str
) -> None:
    made = facts(replace(AUTO_INCREMENT, bytes=size), load(tables={"shop.t": TableLoad(**asked)}), **more)
    found = by_part(small_tables(made))
    assert (found["shop.t"].state if "shop.t" in found else None) is state
    assert todo in (found["shop.t"].todo if state else "")


def test_hot_keys() -> None:
    def keys(*peaks: float, **more: Any) -> dict[str, AnswerState]:
        found = tuple(KeyLoad("shop.t", f"id={n}", Frequency(9, peak, peak)) for n, peak in enumerate(peaks))
        return {one.part: one.state for one in hot_keys(facts(given_load=load(keys=found, **more)))}

    assert keys(200, 50, 49) == {"id=0": FAIL, "id=1": WARN, "": PASS}
    assert keys() == {"": PASS}
    assert keys(missed=500) == {"": UNKNOWN}
    assert keys(200, masked=True) == {}


@pytest.mark.parametrize(
    ("part", "measured", "state"),
    [
        ("time", {"longest": TransactionLoad(seconds=600)}, PASS),
        ("time", {"longest": TransactionLoad(seconds=601)}, WARN),
        ("time", {"longest": TransactionLoad(seconds=3601)}, FAIL),
        ("statements", {"most": TransactionLoad(statements=5001)}, WARN),
        ("size", {"largest": TransactionLoad(bytes=100 << 20)}, PASS),
        ("size", {"largest": TransactionLoad(bytes=200 << 20)}, WARN),
        ("size", {"largest": TransactionLoad(bytes=(1 << 30) + 1)}, FAIL),
        ("row", {"widest": TransactionLoad(bytes=6 << 20)}, PASS),
        ("row", {"widest": TransactionLoad(bytes=7 << 20)}, WARN),
        ("row", {"widest": TransactionLoad(bytes=13 << 20)}, FAIL),
    ],
)
def test_transactions(part: str, measured: dict[str, TransactionLoad], state: AnswerState) -> None:
    assert by_part(transactions(facts(given_load=load(**measured))))[part].state is state


def test_limits_that_are_not_shown_pass_nothing_near_them() -> None:
    found = by_part(transactions(facts(given_load=load(longest=TransactionLoad(seconds=61)), settings={})))
    assert found["time"].state is UNKNOWN
    assert found["size"].state is PASS
    old = facts(given_load=load(largest=TransactionLoad(bytes=101 << 20)), version="5.7.25-TiDB-v5.4.0")
    assert by_part(transactions(old))["size"].state is FAIL, "before 6.5 the limit itself counts"


@pytest.mark.parametrize(
    ("more", "state"),
    [
        ({}, PASS), ({"formats": ("slow",)}, WARN), ({"masked": True}, UNKNOWN),
        ({"elsewhere": Frequency(9, 1, 1000)}, UNKNOWN), ({"elsewhere": Frequency(9, 1, 999)}, PASS),
        ({"statements": 0}, UNKNOWN), ({"statements": 99}, UNKNOWN), ({"statements": 100}, PASS),
        ({"seconds": 9.9}, UNKNOWN), ({"rejected_share": 0.01}, PASS), ({"rejected_share": 0.011}, UNKNOWN),
        ({"rejected_share": 0.5, "formats": ("slow",)}, UNKNOWN),
    ],
)  # fmt: skip
def test_what_the_capture_shows(more: dict[str, Any], state: AnswerState) -> None:
    assert shown(**more).state is state


def shown(**more: Any) -> CheckResult:
    (found,) = capture(facts(given_load=load(**more)))
    return found


@pytest.mark.parametrize(
    ("more", "value", "todo"),
    [
        ({"statements": 0}, "it holds no statement", "Capture again"),
        ({"rejected_share": 557_824 / 558_007}, "99.97% of its bytes could not be read", "--quality"),
        ({"statements": 27, "seconds": 1.0}, "27 statements in 1 s or less; rates need 10 s and 100", "busiest hour"),
        ({"statements": 27, "seconds": 60.0}, "in 60 s; rates need 10 s and 100 statements", "busiest hour"),
    ],
)  # fmt: skip
def test_a_capture_that_cannot_tell_rates_says_why_and_what_to_do(more: dict[str, Any], value: str, todo: str) -> None:
    found = shown(**more)
    assert value in found.value
    assert todo in found.todo


OUTSIDE = {f"pay.t{number}": TableLoad(written=number) for number in range(1, 8)}


def test_writes_to_tables_outside_of_the_scope_are_counted_and_named() -> None:
    found = shown(tables={"shop.t": TableLoad(written=28), **OUTSIDE})
    assert found.state is WARN
    assert "28 of 56 statements that write (50%) are outside of tables.include: pay.t7 (7), pay.t6 (6)," in found.value
    assert found.value.endswith("pay.t3 (3) and 2 more")
    assert (found.numbers["elsewhere"], found.numbers["out_of_scope"]) == (28, 28)
    assert "tables.include" in found.todo
    assert shown(tables={"shop.t": TableLoad(written=27), **OUTSIDE}).state is UNKNOWN, "most of it is not judged"
    assert shown(tables=OUTSIDE).state is UNKNOWN


def test_system_databases_are_no_part_of_the_load_and_unnamed_tables_are_elsewhere() -> None:
    found = shown(tables={"shop.t": TableLoad(written=5), "mysql.rds_heartbeat2": TableLoad(written=900)}, unnamed=3)
    assert (found.state, found.numbers["elsewhere"], found.numbers["out_of_scope"]) == (PASS, 3, 0)


@pytest.mark.parametrize("rates", [("--warn-rate", "5000", "--fail-rate", "10"), ("--warn-rate", "2000")])
def test_a_rate_that_warns_is_below_the_one_that_fails(
    rates: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["guard", "hotspots", *rates, "--config", str(tmp_path / "none.yaml")]) == 2
    assert "is not below --fail-rate" in capsys.readouterr().err


def test_every_question_says_why() -> None:
    assert all(one.why and one.ask for one in QUESTIONS)

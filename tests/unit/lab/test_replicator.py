"""The lab's replicator without servers: batches that keep the order of a key, and faults that do what they print."""

from __future__ import annotations

import queue
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.changes.model import Begin, ColumnMap, Commit, Idle, Item, Op, Position, Rows, Statement, TableMap, Texts
from migverify.errors import LabError, UsageError
from migverify.model import DiffKind
from migverify_lab import replicator as replicator_module
from migverify_lab import replicator_stream
from migverify_lab.replicator import Replicator, ReplicatorOptions
from migverify_lab.replicator_faults import Injector, RowDifference, shifted
from migverify_lab.replicator_plan import (
    BatchPlan,
    LiteralForm,
    RowChange,
    TableNet,
    literal,
    make_change,
    statements,
    target_table,
)
from migverify_lab.replicator_rules import FaultKind, FaultRule, parse_fault
from migverify_lab.replicator_stream import transactions
from migverify_lab.servers import LabServer

INT, VARCHAR, DATETIME = 3, 15, 18
AT = Position("binlog.000001", 100)


def layout(name: str = "t") -> TableMap:
    return TableMap(
        "db", name,
        (
            ColumnMap("id", INT, 0, unsigned=False, nullable=False),
            ColumnMap("v", VARCHAR, 40, unsigned=False, nullable=True, charset="utf8mb4"),
            ColumnMap("w", VARCHAR, 40, unsigned=False, nullable=True, charset="utf8mb4"),
            ColumnMap("at", DATETIME, 0, unsigned=False, nullable=True),
        ),
        (0,),
    )  # fmt: skip


KEYED = target_table(layout("keyed"), ["id"])
OTHER = target_table(layout("other"), ["id"])
KEYLESS = target_table(layout("keyless"), [])


def row(key: int, v: str | None = "a", w: str | None = "b", at: str | None = "2026-01-02 03:04:05") -> Texts:
    return (str(key), v, w, at)


# --- an in-memory target ------------------------------------------------------------------------------------------


class Memory:
    """Tables as a server keeps them: one row per key, or a bag of rows."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[Texts, Texts]] = {}
        self.bags: dict[str, Counter[Texts]] = {}

    def one(self, change: RowChange) -> None:
        name = change.table.map.name
        if not change.table.key:
            bag = self.bags.setdefault(name, Counter())
            bag.subtract([change.before] if change.before is not None and bag[change.before] else [])
            bag.update([change.after] if change.after is not None else [])
            return
        rows = self.rows.setdefault(name, {})
        if change.before is not None:
            rows.pop(change.table.key_of(change.before), None)
        if change.after is not None:
            rows[change.table.key_of(change.after)] = change.after

    def net(self, net: TableNet) -> None:
        name = net.table.map.name
        rows = self.rows.setdefault(name, {})
        for key in net.gone():
            rows.pop(key, None)
        for image in net.there():
            rows[net.table.key_of(image)] = image
        bag = self.bags.setdefault(name, Counter())
        for added, image in net.steps:
            if added or bag[image]:
                bag[image] += 1 if added else -1

    def seen(self) -> dict[str, object]:
        rows = {name: found for name, found in self.rows.items() if found}
        bags = {name: +bag for name, bag in self.bags.items() if +bag}
        return {**rows, **bags}


@st.composite
def streams(draw: st.DrawFn, most: int = 40) -> list[RowChange]:
    """Changes that a source could have made: each before image is what the row was."""
    made: list[RowChange] = []
    keyed: dict[str, dict[int, Texts]] = {"keyed": {}, "other": {}}
    bag: list[Texts] = []
    values = st.sampled_from(["a", "b", "c", None])
    for _ in range(draw(st.integers(0, most))):
        table = draw(st.sampled_from([KEYED, OTHER, KEYLESS]))
        if table is KEYLESS:
            kind = draw(st.sampled_from(["insert", "delete", "update"])) if bag else "insert"
            before = None if kind == "insert" else bag.pop(draw(st.integers(0, len(bag) - 1)))
            after = None if kind == "delete" else row(draw(st.integers(0, 2)), draw(values))
            if after is not None:
                bag.append(after)
        else:
            rows = keyed[table.map.table]
            key = draw(st.integers(0, 5))
            before = rows.pop(key, None)
            new_key = draw(st.sampled_from([key, *(k for k in range(6) if k not in rows)])) if before else key
            after = row(new_key, draw(values), draw(values)) if before is None or draw(st.booleans()) else None
            if after is not None:
                rows[new_key] = after
        made.append(make_change(table, before, after, AT))
    return made


@settings(max_examples=40)
@given(streams(), st.lists(st.integers(1, 15), max_size=10))
def test_batches_leave_what_single_changes_leave(changes: list[RowChange], sizes: list[int]) -> None:
    single, batched = Memory(), Memory()
    for change in changes:
        single.one(change)
    rest = list(changes)
    for size in [*sizes, len(changes) + 1]:
        batch, rest = rest[:size], rest[size:]
        plan = BatchPlan()
        for change in batch:
            plan.add(change)
        for net in plan.nets():
            batched.net(net)
    assert batched.seen() == single.seen()


# --- SQL ----------------------------------------------------------------------------------------------------------


def sql_of(*changes: RowChange) -> list[str]:
    plan = BatchPlan()
    for change in changes:
        plan.add(change)
    return [sql for net in plan.nets() for sql in statements(net)]


def test_statements_of_a_keyed_table() -> None:
    found = sql_of(
        make_change(KEYED, None, row(1), AT), make_change(KEYED, row(1), row(1, "it's \\"), AT),
        make_change(KEYED, row(2), None, AT), make_change(KEYED, row(3), row(4, None), AT),
    )  # fmt: skip
    assert found == [
        "DELETE FROM `db`.`keyed` WHERE `id` IN (2,3)",
        "REPLACE INTO `db`.`keyed` (`id`, `v`, `w`, `at`) VALUES (1,'it''s \\\\','b','2026-01-02 03:04:05'),"
        "(4,NULL,'b','2026-01-02 03:04:05')",
    ]


def test_statements_of_a_table_without_a_key_keep_their_order() -> None:
    found = sql_of(make_change(KEYLESS, None, row(1), AT), make_change(KEYLESS, row(1), row(2, None), AT))
    assert [sql.split(" ")[0] for sql in found] == ["INSERT", "DELETE", "INSERT"]
    assert found[1].endswith(
        "WHERE `id` = 1 AND CAST(CONVERT(`v` USING utf8mb4) AS BINARY) = x'61' AND CAST(CONVERT(`w` USING utf8mb4)"
        " AS BINARY) = x'62' AND `at` = '2026-01-02 03:04:05' LIMIT 1"
    )


@pytest.mark.parametrize(
    ("form", "text", "sql"),
    [
        (LiteralForm.NUMBER, "-5", "-5"), (LiteralForm.TEXT, None, "NULL"),
        (LiteralForm.HEX, "0x", "x''"), (LiteralForm.HEX, "0x00ff", "0x00ff"),
        (LiteralForm.TEXT, "0x41", "'0x41'"), (LiteralForm.TEXT, "a\0\\'\n", "'a\\0\\\\''\\n'"),
        (LiteralForm.JSON, '{"a":"\\n"}', "'{\"a\":\"\\\\n\"}'"), (LiteralForm.BIT, "513", "513"),
    ],
)  # fmt: skip
def test_literals(form: LiteralForm, text: str | None, sql: str) -> None:
    assert literal(form, text) == sql


def test_a_type_without_a_common_literal_is_refused() -> None:
    table = TableMap("db", "g", (ColumnMap("p", 255, 4, unsigned=False, nullable=True),))
    with pytest.raises(LabError, match="type number 255"):
        target_table(table, [])


# --- faults -------------------------------------------------------------------------------------------------------


def run(changes: list[RowChange], *rules: FaultRule | str, seed: int = 1) -> tuple[Injector, Memory, Memory]:
    """Send changes through an injector; returns it, the source's rows and the target's."""
    injector = Injector([parse_fault(rule) if isinstance(rule, str) else rule for rule in rules], seed)
    source, target = Memory(), Memory()
    for change in changes:
        source.one(change)
        for emitted in injector.take(change, "gtid"):
            target.one(emitted)
    return injector, source, target


def real_differences(source: Memory, target: Memory) -> list[RowDifference]:
    found = []
    names = ("id", "v", "w", "at")
    for name in {*source.rows, *target.rows}:
        left, right = source.rows.get(name, {}), target.rows.get(name, {})
        for key in {*left, *right}:
            if key not in right:
                found.append(RowDifference(name, key, DiffKind.MISSING_ON_TARGET))
            elif key not in left:
                found.append(RowDifference(name, key, DiffKind.MISSING_ON_SOURCE))
            elif left[key] != right[key]:
                columns = tuple(n for n, a, b in zip(names, left[key], right[key], strict=True) if a != b)
                found.append(RowDifference(name, key, DiffKind.VALUE_DIFFERS, columns))
    for name in {*source.bags, *target.bags}:
        more = target.bags.get(name, Counter()) - source.bags.get(name, Counter())
        found += [RowDifference(name, image, DiffKind.MISSING_ON_SOURCE) for image in more.elements()]
        assert not source.bags.get(name, Counter()) - target.bags.get(name, Counter())
    return sorted(found, key=lambda one: (one.table, [part or "" for part in one.key], one.kind))


KINDS = [FaultKind.SKIP, FaultKind.TWICE, FaultKind.OUT_OF_ORDER, FaultKind.DROP_COLUMN, FaultKind.WRONG_TIME_ZONE]


@settings(max_examples=40)
@given(streams(50), st.lists(st.sampled_from(KINDS), min_size=1, max_size=3), st.integers(1, 6), st.integers(0, 9))
def test_what_stands_is_what_differs(
    changes: list[RowChange], kinds: list[FaultKind], every: int, seed: int
) -> None:  # fmt: skip
    injector, source, target = run(changes, *(FaultRule(kind, every=every) for kind in kinds), seed=seed)
    assert injector.standing() == real_differences(source, target)
    assert len(injector.done) == sum(injector.counts().values())


CHANGES = [
    make_change(KEYED, None, row(1), AT),
    make_change(KEYED, None, row(2), AT),
    make_change(KEYED, row(1), row(1, "x", "y"), AT),
    make_change(KEYED, row(2), None, AT),
    make_change(KEYLESS, None, row(3), AT),
]


@pytest.mark.parametrize(
    ("fault", "differences"),
    [
        ("skip:at=1,most=1", []),  # the update brings the row after all
        ("skip:at=2", []),  # deleted later
        ("skip:at=3", [RowDifference("db.keyed", ("1",), DiffKind.VALUE_DIFFERS, ("v", "w"))]),
        ("skip:at=4", [RowDifference("db.keyed", ("2",), DiffKind.MISSING_ON_SOURCE)]),
        ("twice:at=1", [RowDifference("db.keyed", ("1",), DiffKind.VALUE_DIFFERS, ("v", "w"))]),
        ("twice:at=2", [RowDifference("db.keyed", ("2",), DiffKind.MISSING_ON_SOURCE)]),
        ("twice:at=3", [RowDifference("db.keyless", row(3), DiffKind.MISSING_ON_SOURCE)]),
        ("twice:at=1,table=keyless", [RowDifference("db.keyless", row(3), DiffKind.MISSING_ON_SOURCE)]),
        ("out-of-order:at=1", [RowDifference("db.keyed", ("1",), DiffKind.VALUE_DIFFERS, ("v", "w"))]),
        ("drop-column:at=1,column=w", [RowDifference("db.keyed", ("1",), DiffKind.VALUE_DIFFERS, ("w",))]),
        ("wrong-time-zone", [RowDifference("db.keyed", ("1",), DiffKind.VALUE_DIFFERS, ("at",))]),
        ("stall:at=1", []),
    ],
)
def test_each_fault(fault: str, differences: list[RowDifference]) -> None:
    injector, source, target = run(CHANGES, fault)
    assert injector.done
    assert injector.standing() == differences == real_differences(source, target)


def test_a_later_change_heals() -> None:
    later = make_change(KEYED, row(1, "x", "y"), row(1, "x", "z"), AT)
    injector, *_ = run([*CHANGES, later], "drop-column:at=1,column=w")
    assert (injector.standing(), injector.healed, len(injector.done)) == ([], 1, 1)


def test_stop_at_ddl() -> None:
    injector = Injector([parse_fault("stop-at-ddl")])
    empty = Statement(Op.TRUNCATE, (("db", "t"),), "TRUNCATE t", "db", "binlog.000001", 5, 0)
    alter = Statement(Op.DDL, (("db", "t"),), "ALTER TABLE t ADD x INT", "db", "binlog.000001", 9, 0)
    assert not injector.stops_at(empty)
    assert injector.stops_at(alter, "gtid", "binlog.000001:9")
    assert injector.done[0].as_dict()["sql"] == "ALTER TABLE t ADD x INT"


@pytest.mark.parametrize("text", ["explode", "skip:every=0", "skip:at=1,every=2", "skip:x=1", "wrong-time-zone:shift=9",
                                  "stall:seconds=-1", "skip:table="])  # fmt: skip
def test_a_fault_that_is_not_understood(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_fault(text)
    assert caught.value.hint


def test_fault_arguments() -> None:
    assert parse_fault("skip:100") == FaultRule(FaultKind.SKIP, every=100)
    assert parse_fault("skip") == FaultRule(FaultKind.SKIP, every=1000)
    assert parse_fault("wrong-time-zone:shift=-05:30").shift == -19800
    assert parse_fault("drop-column:at=3,table=db.t,column=c,most=2") == FaultRule(
        FaultKind.DROP_COLUMN, at=3, table="db.t", column="c", most=2
    )


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("2026-01-31 23:30:00.123456", "2026-02-01 08:30:00.123456"), ("0000-00-00 00:00:00", "0000-00-00 00:00:00"),
        ("9999-12-31 23:59:59", "9999-12-31 23:59:59"), ("2026-02-30 00:00:00", "2026-02-30 00:00:00"),
    ],
)  # fmt: skip
def test_shift(text: str, moved: str) -> None:
    assert shifted(text, 9 * 3600) == moved


# --- the loop, with a target that only remembers ------------------------------------------------------------------


def rows_event(table: TableMap, op: Op = Op.INSERT, images: bytes = b"") -> Rows:
    return Rows(op, table, images, "binlog.000001", 1, 0)


def transaction(end: int, *events: Rows | Statement) -> list[Item]:
    at = Position("binlog.000001", end)
    return [Begin(f"g:{end}", Position("binlog.000001", end - 1), 1.0), *events, Commit(f"g:{end}", at, 1.0)]


def test_transactions_keep_what_is_in_scope() -> None:
    mine, other = layout(), TableMap("else", "t", layout().columns)
    create = Statement(Op.DDL, (("else", "x"),), "CREATE TABLE x (a INT)", "db", "binlog.000001", 5, 0)
    unknown = Statement(Op.DDL, (), "CREATE SOMETHING", "db", "binlog.000001", 5, 0)
    items = [
        *transaction(10, rows_event(mine), rows_event(other)), *transaction(20, create), *transaction(30, unknown),
        Idle(Position("binlog.000001", 40), 2.0), *transaction(50, rows_event(mine))[:-1],  # cut off: begins again
        *transaction(50, rows_event(mine)),
    ]  # fmt: skip
    found = list(transactions(iter(items), frozenset({"db"})))
    assert [(t.end.offset, len(t.events)) for t in found] == [(10, 1), (20, 0), (30, 1), (40, 0), (50, 1)]


class Recorder:
    """A target that keeps the positions and changes it is given."""

    def __init__(self, *_: object) -> None:
        self.checkpoint = None
        self.applied: list[tuple[int, int]] = []
        self.run: list[str] = []

    def open(self, _since: Position | None = None) -> None: ...

    def close(self) -> None: ...

    def table(self, found: TableMap) -> object:
        return target_table(found, ["id"])

    def apply(self, plan: BatchPlan | None, at: Position, _time: float, _gtids: str) -> None:
        self.applied.append((at.offset, plan.changes if plan else 0))

    def run_statement(self, item: Statement, _at: Position, _time: float) -> None:
        self.run.append(item.sql)


class OneRow:
    """A decoder of images of one byte: the key."""

    def texts(self, images: bytes) -> list[Texts]:
        return [row(key) for key in images]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    made = Recorder()
    monkeypatch.setattr(replicator_module, "TargetWriter", lambda *_: made)
    monkeypatch.setattr(replicator_stream, "decoder", lambda _table, **_: OneRow())
    return made


def replicate(items: Iterator[Item], *faults: str, batch_rows: int = 5) -> Replicator:
    options = ReplicatorOptions(
        LabServer("nowhere", 0, "root", "tidb", ""), ("db",), batch_rows=batch_rows,
        faults=tuple(map(parse_fault, faults)),
    )  # fmt: skip
    return Replicator(options, lambda _: items, lambda: Position("binlog.000001", 4))


def test_batches_hold_whole_transactions_and_end_at_statements(recorder: Recorder) -> None:
    empty = Statement(Op.TRUNCATE, (("db", "t"),), "TRUNCATE t", "db", "binlog.000001", 5, 0)
    items = [
        *transaction(10, rows_event(layout(), images=b"abc")), *transaction(20, rows_event(layout(), images=b"defg")),
        *transaction(30, rows_event(layout(), images=b"h")), *transaction(40, empty),
        *transaction(50, rows_event(layout(), images=b"i")), *transaction(60),
    ]  # fmt: skip
    replicator = replicate(iter(items))
    replicator.run()
    batches = [entry for entry in recorder.applied if entry[1]]
    assert sum(changes for _, changes in batches) == 9
    assert {at for at, _ in batches} <= {10, 20, 30, 50, 60}
    assert 30 in {at for at, _ in batches}, "what came before the statement was applied before it"
    assert recorder.run == ["TRUNCATE t"]
    assert replicator.status.at == Position("binlog.000001", 60)
    assert recorder.applied[0] == (4, 0), "the beginning is recorded before anything is read"


def test_a_changed_layout_is_not_mixed_into_a_batch(recorder: Recorder) -> None:
    wider = TableMap("db", "t", (*layout().columns, ColumnMap("x", INT, 0, unsigned=False, nullable=True)), (0,))
    items = [*transaction(10, rows_event(layout(), images=b"a")), *transaction(20, rows_event(wider, images=b"b"))]
    replicate(iter(items)).run()
    assert [entry for entry in recorder.applied if entry[1]] == [(10, 1), (20, 1)]


def test_stop_at_ddl_ends_before_it(recorder: Recorder) -> None:
    alter = Statement(Op.DDL, (("db", "t"),), "ALTER TABLE t ADD x INT", "db", "binlog.000001", 5, 0)
    items = [*transaction(10, rows_event(layout(), images=b"a")), *transaction(20, alter),
             *transaction(30, rows_event(layout(), images=b"b"))]  # fmt: skip
    replicator = replicate(iter(items), "stop-at-ddl:at=1")
    replicator.run()
    assert replicator.status.stopped_at == "ALTER TABLE t ADD x INT"
    assert recorder.run == []
    assert [entry for entry in recorder.applied if entry[1]] == [(10, 1)]


def test_a_stall_applies_nothing_more_and_stays_alive(recorder: Recorder) -> None:
    feed: queue.Queue[Item] = queue.Queue()
    for number in range(1, 9):
        for item in transaction(number * 10, rows_event(layout(), images=b"a")):
            feed.put(item)
    replicator = replicate(iter(feed.get, None), "stall:at=3", batch_rows=1)
    replicator.start()
    with pytest.raises(LabError, match=r"not at binlog.000001:80"):
        replicator.wait_until(Position("binlog.000001", 80), seconds=0.5)
    assert replicator.running
    assert replicator.status.stalled
    assert [entry for entry in recorder.applied if entry[1]] == [(10, 1), (20, 1), (30, 1)]
    replicator.stop()
    assert not replicator.running


def test_a_stream_that_breaks_ends_the_replicator(recorder: Recorder) -> None:
    def broken() -> Iterator[Item]:
        yield from transaction(10, rows_event(layout(), images=b"a"))
        raise LabError("the stream is damaged", hint="none")

    replicator = replicate(broken())
    with pytest.raises(LabError, match="damaged"):
        replicator.run()
    assert [entry for entry in recorder.applied if entry[1]] == [(10, 1)], "what was certain was applied"

"""What others write on the source: two streams on threads, markers of both, and what cannot be judged is said."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from migverify.changes.model import Begin, Commit, DecodedTable, Idle, Item, Op, Position, Rows, Statement
from migverify.changes.positions import tso_position
from migverify.config import Config, load_config
from migverify.errors import ChangeError, ConfigError, ReadError
from migverify.exposition import page
from migverify.model import ColumnDef, TableDef, TableRef, Verdict
from migverify.sql.key_range import KeyColumn
from migverify.tables import old_side as tables_old_side
from migverify.tables.old_side import make_old_side, matched_tables
from migverify.tables.watch import TablesWatch
from migverify.tables.watch_identity import Watched
from migverify.tables.watch_status import WatchFacts, WatchRules, status_of
from migverify.tables.watch_streams import reverse_stream, watched_pairs
from migverify.watch import old_side as watch_old_side
from migverify.watch import side_changes
from migverify.watch.crossing import Crossing
from migverify.watch.crossing_model import CrossingKind
from migverify.watch.key_changes import DigestedTable, KeyChangeReader
from migverify.watch.ledger import Ledger
from migverify.watch.old_side import MOST_NOTES, OLD_SIDE, OldSide, OldSideStatus
from migverify.watch.side_changes import MarkerCommit, MarkerPairs, MarkerRows, SideChanges
from migverify.watch.status import final_text, status_metrics
from migverify.watch.stream import FollowedBinlog
from migverify.watch.touched import WatchedTable
from tests.toy_tables import make_pair
from tests.waiting import PATIENCE

TABLE = DecodedTable.of("app", "t", ("id", "v"), ("id",))
MARKS = DecodedTable.of("ops", "m", ("name", "number"), ("name",))
MARKER = MarkerRows(("ops", "m"), "me")


def transaction(at: int, *rows: tuple[str, str], marker: int = 0, op: Op = Op.UPDATE) -> list[Item]:
    """A transaction that ends at an ordinal, a second of time for each ten."""
    items: list[Item] = [Begin(str(at), tso_position(at), at / 10)]
    for key, value in rows:
        images = [(key, value)] if op is not Op.UPDATE else [(key, "before"), (key, value)]
        items.append(Rows(op, TABLE, TABLE.packed(images), "f", at, 0))
    if marker:
        images = [("another", "99"), ("me", str(marker))]
        items.append(Rows(Op.INSERT, MARKS, MARKS.packed(images), "f", at, 0))
    return [*items, Commit(str(at), tso_position(at), at / 10)]


def side(*, merges: bool) -> SideChanges:
    key = (KeyColumn("`id`", "`id`", "integer", nullable=False),)
    table = DigestedTable(WatchedTable(0, "e", "app", "t", ("id",), key), (("id", "integer"), ("v", "text")))
    return SideChanges(KeyChangeReader({("app", "t"): table}, lambda p: p.offset, merges=merges), MARKER)


@dataclass
class Source:
    """The source's stream: what is put in ``items``, until an error is."""

    hides_cascades = True
    items: list[Item | Exception] = field(default_factory=list)
    began: list[Position | None] = field(default_factory=list)

    def open(self, since: Position | None) -> Iterator[Item]:
        self.began.append(since)
        at = 0
        while True:
            while at < len(self.items):
                item = self.items[at]
                at += 1
                if isinstance(item, Exception):
                    raise item
                yield item
            time.sleep(0.002)

    def head(self, session: Any) -> Position:
        del session
        return Position("f", 0)

    def ordinal(self, position: Position) -> int:
        return position.offset

    def shown(self, ordinal: int, like: Position | None) -> str:
        return f"place {ordinal}" if like is not None else ""


@dataclass
class Pair:
    """Both sides of one table, matched."""

    source: Source = field(default_factory=Source)
    crossing: Crossing = field(default_factory=lambda: Crossing(0, limit=1000))
    head: int = 1_000_000

    def __post_init__(self) -> None:
        self.leading = side(merges=False)
        self.side = OldSide(
            "source", self.leading, side(merges=True), self.source, Position("f", 7), self.crossing,
            names={0: (("app", "t"), ("app", "t"))}, resent_seconds=3, skipped=("app.f: its key has no exact text",),
        )  # fmt: skip
        self.kinds: list[str] = []
        self.places: list[Any] = []

    def lead(self, *items: Item) -> None:
        for item in items:
            self.leading.take_item(item)

    def follow(self, *items: Item | Exception) -> None:
        self.source.items += items

    def settle(self, at: int) -> None:
        """Both sides have markers from which on nothing that was committed up to now comes again."""
        for number in (1, 2):
            self.lead(*transaction(at + 40 * number, marker=number))
            self.follow(*transaction(at + 40 * number + 5, marker=number))

    def mark(self, at: int, number: int = 3) -> None:
        """A marker comes to the source."""
        self.follow(*transaction(at, marker=number))

    def collect(self, until: int) -> None:
        """Take what comes until the source was read and judged to an ordinal."""
        deadline = time.monotonic() + PATIENCE
        self.lead(Idle(tso_position(self.head), 0))
        while time.monotonic() < deadline:
            findings, places = self.side.collect(lambda: self.head)
            self.kinds += [finding.kind.value for finding in findings]
            self.places += places
            status = self.side.status()
            read = int(status.read.removeprefix("place ") or 0)
            if status.not_seen or (read >= until and self.crossing.counts.following >= self.expected):
                return
            time.sleep(0.002)
        pytest.fail("not read")

    @property
    def expected(self) -> int:
        return sum(isinstance(item, Rows) and item.table is TABLE for item in self.source.items)


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr(watch_old_side, "HEAD_SECONDS", 0.0)
    made = Pair()
    made.side.start()
    yield made
    made.side.stop()


def test_what_the_feed_brings_is_explained_and_the_rest_is_found(pair: Pair) -> None:
    pair.settle(10)
    pair.lead(*transaction(200, ("1", "a"), ("2", "b")))
    pair.follow(*transaction(210, ("1", "a"), ("2", "b")), *transaction(220, ("7", "client")))
    pair.mark(230)
    pair.collect(230)
    assert (pair.kinds, pair.places) == (["written"], [(0, ("7",))])
    status = pair.side.status()
    assert (status.explained, status.written, status.at_least) == (2, {"written": 1}, False)
    assert pair.source.began == [Position("f", 7)]
    assert status.lines() == [
        "written on source by another than the feed: 1 finding (written 1)",
        "writes of others are not judged in app.f: its key has no exact text",
    ]


def test_a_finding_waits_for_a_newer_marker_and_its_row_does_not(pair: Pair) -> None:
    pair.settle(10)
    pair.follow(*transaction(220, ("7", "client")))
    pair.collect(220)
    assert (pair.kinds, pair.places, pair.side.status().written) == ([], [(0, ("7",))], {})
    pair.mark(230)
    pair.collect(230)
    assert (pair.kinds, pair.places, pair.side.status().written) == (["written"], [(0, ("7",))], {"written": 1})


def test_where_no_marker_comes_a_finding_is_given_out_after_a_while(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migverify.watch.pending_findings.PENDING_SECONDS", 0.2)
    pair.settle(10)
    pair.follow(*transaction(220, ("7", "client")))
    pair.collect(220)
    assert pair.kinds == []
    time.sleep(0.25)
    pair.collect(220)
    assert pair.kinds == ["written"]


@pytest.mark.parametrize("is_read_at_once", [True, False])
def test_a_feed_that_begins_again_far_back_is_no_finding(pair: Pair, is_read_at_once: bool) -> None:
    pair.settle(10)
    pair.lead(*transaction(200, marker=20), *transaction(240, marker=21))
    pair.follow(*transaction(205, marker=20), *transaction(245, marker=21))
    pair.collect(245)
    pair.follow(*transaction(250, ("7", "from before the watch"), ("8", "from before the watch")))
    if not is_read_at_once:
        pair.collect(250)
    pair.mark(255, 2)
    pair.follow(*transaction(260, ("9", "from before the watch")))
    pair.mark(265, 22)
    pair.collect(265)
    status = pair.side.status()
    assert (pair.kinds, sorted(pair.places)) == ([], [(0, (key,)) for key in "789"])
    assert (status.written, status.at_least, status.not_seen) == ({}, True, "")
    # It is judged again when the feed is known to be past all of that.
    at = pair.head + 10
    for n in range(30, 150):
        pair.lead(*transaction(at + n * 10, marker=n))
        pair.follow(*transaction(270 + n, marker=n))
    pair.follow(*transaction(500, ("7", "client")), *transaction(510, marker=200))
    pair.head = at + 5000
    pair.collect(510)
    assert (pair.kinds, pair.side.status().written) == (["written"], {"written": 1})


def test_a_feed_may_carry_out_a_truncate_row_by_row(pair: Pair) -> None:
    pair.settle(10)
    truncate = Statement(Op.TRUNCATE, (("app", "t"),), "TRUNCATE t", "app", "f", 0, 0)
    pair.lead(Begin("200", tso_position(200), 20), truncate, Commit("200", tso_position(200), 20))
    pair.follow(*transaction(210, ("1", "a"), ("2", "b"), op=Op.DELETE))
    pair.mark(220)
    pair.collect(220)
    assert (pair.kinds, sorted(pair.places)) == ([], [(0, ("1",)), (0, ("2",))])


def test_a_table_whose_texts_differ_on_both_sides_is_named_and_nothing_of_it_found(pair: Pair) -> None:
    pair.crossing = Crossing(0, proves_texts=True, limit=1000)
    pair.side._crossing = pair.crossing
    pair.settle(10)
    for n in range(40):
        pair.lead(*transaction(200 + n, (str(n), "12:00")))
        pair.follow(*transaction(300 + n, (str(n), "14:00")))
    pair.lead(Idle(tso_position(pair.head), 0))
    pair.mark(400)
    deadline = time.monotonic() + PATIENCE
    found: list[Any] = []
    while pair.side.status().read != "place 400" and time.monotonic() < deadline:
        found += pair.side.collect(lambda: pair.head)[0]
    assert (found, pair.side.status().written) == ([], {})
    assert pair.side.status().left_out[-1] == (
        "app.t: its values in the changefeed are not those of the binlog (a time zone, a type)"
    )


def test_before_the_first_markers_nothing_is_judged_and_the_rows_are_read(pair: Pair) -> None:
    pair.follow(*transaction(20, ("7", "client")))
    pair.collect(20)
    assert (pair.kinds, pair.places) == ([], [(0, ("7",))])
    status = pair.side.status()
    assert (status.unjudged, status.at_least, status.total) == (1, True, 0)
    assert status.lines()[:2] == [
        "source was read to place 20: no write of another than the feed is known, and not all changes could be judged",
        "1 changes on source could not be judged; their rows were read on both sides",
    ]


def test_a_table_that_a_statement_changes_is_judged_no_more(pair: Pair) -> None:
    pair.settle(10)
    ddl = Statement(Op.DDL, (("APP", "t"),), "ALTER TABLE t ADD x INT", "app", "f", 0, 0)
    pair.follow(*transaction(200, ("7", "client")))
    pair.mark(205)
    pair.collect(205)
    pair.lead(Begin("300", tso_position(300), 30), ddl, Commit("300", tso_position(300), 30))
    pair.follow(*transaction(310, ("8", "client")))
    deadline = time.monotonic() + PATIENCE
    while pair.side.status().read != "place 310" and time.monotonic() < deadline:
        pair.side.collect(lambda: pair.head)
    status = pair.side.status()
    assert (pair.kinds, status.written, status.at_least) == (["written"], {"written": 1}, True)
    assert status.left_out[-1] == "app.t since a statement on the target: ALTER TABLE t ADD x INT"


@pytest.mark.parametrize("names", [(), (("app", ""),)])
def test_a_statement_without_a_table_is_about_all_and_a_truncate_about_none(
    pair: Pair, names: Sequence[tuple[str, str]]
) -> None:
    pair.lead(Statement(Op.TRUNCATE, (("app", "t"),), "TRUNCATE t", "app", "f", 0, 0))
    pair.lead(Statement(Op.DDL, (("app", "other"),), "DROP TABLE other", "app", "f", 0, 0))
    pair.side.collect(lambda: 0)
    assert pair.crossing.ignored == set()
    pair.lead(Statement(Op.DDL, tuple(names), "a message cannot be decoded", "app", "f", 0, 0))
    pair.side.collect(lambda: 0)
    assert pair.crossing.ignored == {0}


def test_a_stream_that_ends_is_said_and_nothing_is_judged_after_it(pair: Pair) -> None:
    pair.follow(*transaction(20, ("1", "a")), ChangeError("purged"))
    pair.collect(1000)
    status = pair.side.status()
    assert status.not_seen == "purged"
    assert status.lines()[0] == "writes of others on source after place 20 are not seen: purged"
    assert pair.side.collect(lambda: 0) == ([], [])


def test_a_change_of_the_target_that_cannot_be_read_ends_the_matching_and_not_the_watch(pair: Pair) -> None:
    pair.lead(Rows(Op.INSERT, TABLE, TABLE.packed([("no number", "a")]), "f", 1, 0))
    pair.lead(*transaction(20, ("1", "a")))
    pair.side.collect(lambda: 0)
    assert "a change cannot be read" in pair.side.status().not_seen


def test_a_target_that_does_not_answer_loses_nothing(pair: Pair) -> None:
    def broken() -> int:
        raise ReadError("gone")

    pair.settle(10)
    pair.follow(*transaction(220, ("7", "client")))
    deadline = time.monotonic() + PATIENCE
    failures = 0
    while not failures and time.monotonic() < deadline:
        try:
            pair.side.collect(broken)
        except ReadError:
            failures += 1
    assert failures
    pair.mark(230)
    pair.collect(230)
    assert pair.kinds == ["written"]


def test_a_thread_waits_for_the_loop_and_ends_when_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_changes, "MOST_CHANGES", 2)
    changes = side(merges=False)
    done = threading.Event()

    def read() -> None:
        for n in range(1, 40):
            for item in transaction(n, ("1", "a"), ("2", "b")):
                changes.take_item(item)
        done.set()

    threading.Thread(target=read, daemon=True).start()
    assert not done.wait(0.1)
    assert 0 < len(changes.take().transactions) <= 2
    changes.stop()
    assert done.wait(PATIENCE)


def test_silence_takes_no_memory() -> None:
    changes = side(merges=False)
    for n in range(1, 100):
        changes.take_item(Idle(tso_position(n), 0))
    assert changes.take().transactions == [([], 99)]


# -- markers -----------------------------------------------------------------------------------------------------------


def pairs_of(markers: MarkerPairs) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    markers.take(lambda leading, following: found.append((leading, following)))
    return found


def test_a_marker_is_settled_by_one_that_is_old_enough_and_came_to_the_source() -> None:
    markers = MarkerPairs(30)
    markers.lead(MarkerCommit(n, n * 100, float(n)) for n in range(1, 61))
    markers.follow([MarkerCommit(31, 5, 0), MarkerCommit(5, 6, 0)])
    assert pairs_of(markers) == [(100, 5)]
    assert pairs_of(markers) == []
    markers.follow([MarkerCommit(40, 7, 0), MarkerCommit(61, 8, 0)])
    assert pairs_of(markers) == [(1000, 7)]
    markers.lead([MarkerCommit(61, 6100, 61.0)])
    assert pairs_of(markers) == [(3100, 8)]


def test_a_marker_that_comes_again_counts_where_it_came_first() -> None:
    markers = MarkerPairs(3)
    markers.lead([MarkerCommit(1, 10, 1.0), MarkerCommit(1, 900, 90.0), MarkerCommit(2, 20, 5.0)])
    markers.follow([MarkerCommit(2, 7, 0)])
    assert pairs_of(markers) == [(10, 7)]


def test_a_marker_from_before_the_watch_settles_nothing() -> None:
    markers = MarkerPairs(3)
    markers.lead([MarkerCommit(9, 10, 1.0)])
    markers.follow([MarkerCommit(8, 7, 0)])
    assert pairs_of(markers) == []


def test_only_the_own_marker_is_taken_and_late_ones_at_their_own_place() -> None:
    changes = side(merges=False)
    for item in transaction(30, marker=4):
        changes.take_item(item)
    changes.take_item(Begin("25", tso_position(30), 2))
    changes.take_item(Rows(Op.INSERT, MARKS, MARKS.packed([("me", "5")]), "f", 1, 0))
    changes.take_item(Commit("25", tso_position(30), 2))
    assert changes.take().markers == [MarkerCommit(4, 30, 3.0), MarkerCommit(5, 25, 2)]


# -- which tables, and whether at all ----------------------------------------------------------------------------------

TEXT = (
    'source: {url: "mysql://app@db1"}\ntarget: {url: "tidb://root@tidb"}\ntables: {include: ["app.*"]}\n'
    "reverse: {carrier: {format: canal-json, files: [sink.json]}, old_side: true, applied: marker, marker: ops.m%s}\n"
)


def config_of(folder: Path, text: str) -> Config:
    path = folder / "migverify.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(path)


def column(name: str, kind: str, **facts: Any) -> ColumnDef:
    return ColumnDef(name, 1, kind, kind, nullable=True, **facts)


def definition(endpoint: str, *columns: ColumnDef) -> dict[tuple[str, str], TableDef]:
    return {("app", "t"): TableDef(TableRef(endpoint, "app", "t"), columns, (), 0, 0)}


def test_columns_take_part_whose_texts_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = [
        column("id", "bigint", extra="auto_increment"), column("a", "varchar"), column("d", "double"),
        column("n", "decimal", precision=10, scale=2), column("w", "decimal", precision=10, scale=2),
        column("t", "datetime", fsp=6), column("u", "timestamp", fsp=3), column("j", "json"),
        column("g", "int", generation="id + 1"),
    ]  # fmt: skip
    theirs = [
        column("id", "bigint"), column("a", "text"), column("d", "double"),
        column("n", "decimal", precision=10, scale=2), column("w", "decimal", precision=10, scale=4),
        column("t", "datetime", fsp=6, extra="on update CURRENT_TIMESTAMP(6)"), column("u", "datetime", fsp=3),
        column("j", "json"), column("g", "int"),
    ]  # fmt: skip
    config = config_of(tmp_path, TEXT % "")
    sides = {"source": definition("source", *ours), "target": definition("target", *theirs)}
    monkeypatch.setattr(tables_old_side, "_definitions", lambda _pool, endpoint, _names: sides[endpoint.name])
    found = matched_tables(config, watched_pairs(config, [make_pair()], reverse=True), SimpleNamespace())  # type: ignore[arg-type]
    assert [name for name, _ in found.leading[0].columns] == ["id", "a", "n", "t"]
    assert [name for name, _ in found.following[0].columns] == ["id", "a", "n", "t"]
    assert (found.new_images, found.counters, found.skipped) == ({0}, {0}, [])
    assert found.following[0].watched.endpoint == "source"


def test_a_table_with_a_key_of_floats_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(tmp_path, TEXT % "")
    (one,) = watched_pairs(config, [make_pair()], reverse=True)
    key = (KeyColumn("`id`", "`id`", "float", nullable=False),)
    watched = Watched(0, "target", "app", "t", ("id",), key, pair=one.pair)
    monkeypatch.setattr(
        tables_old_side,
        "_definitions",
        lambda _pool, endpoint, _names: definition(endpoint.name, column("id", "float")),
    )
    found = matched_tables(config, [watched], SimpleNamespace())  # type: ignore[arg-type]
    assert (found.leading, found.skipped) == ({}, ["app.t: its key has no exact text"])


def refused(*_: Any) -> Any:
    raise ChangeError("no binlog")


@pytest.mark.parametrize(("settings", "reason"), [("", "no binlog"), ("old_side: false, ", None)])
def test_where_the_source_cannot_be_read_the_status_says_so(tmp_path: Path, settings: str, reason: str | None) -> None:
    config = config_of(tmp_path, (TEXT % "").replace("old_side: true, ", settings))
    watched = watched_pairs(config, [make_pair()], reverse=True)
    pool = SimpleNamespace(session=refused)
    made = make_old_side(
        config, {}, watched, reverse_stream(config, tso_position(5), "run"), pool, Ledger(tmp_path / "l.db")
    )  # type: ignore[arg-type]
    if reason is None:
        assert made is None
    else:
        assert isinstance(made, OldSideStatus)
        assert made.lines() == [f"writes of others on source are not seen: {reason}"]


def test_where_it_is_demanded_and_the_source_cannot_be_read_the_watch_does_not_begin(tmp_path: Path) -> None:
    config = config_of(tmp_path, TEXT % "")
    watched = watched_pairs(config, [make_pair()], reverse=True)
    pool = SimpleNamespace(session=refused)
    stream = reverse_stream(config, tso_position(5), "run")
    with pytest.raises(ChangeError, match="no binlog"):
        make_old_side(config, {}, watched, stream, pool, Ledger(tmp_path / "l.db"))  # type: ignore[arg-type]


@pytest.mark.parametrize("other", ["applied: settle", "sweep_minutes: 5"])
def test_it_cannot_be_demanded_without_marker_and_changefeed(tmp_path: Path, other: str) -> None:
    text = TEXT % ""
    if other.startswith("sweep"):
        text = text.replace("carrier: {format: canal-json, files: [sink.json]}", other)
    with pytest.raises(ConfigError, match="`old_side: true` needs `carrier` and `applied: marker`"):
        config_of(
            tmp_path, text.replace("applied: marker", other if other.startswith("applied") else "applied: marker")
        )


def test_without_a_marker_or_with_shards_it_is_not_judged(tmp_path: Path) -> None:
    settled = TEXT.replace("old_side: true, applied: marker", "applied: settle") % ""
    shards = settled.replace(
        'source: {url: "mysql://app@db1"}', 'sources: {a: {url: "mysql://app@db1"}, b: {url: "mysql://app@db2"}}'
    )
    for text, reason in (
        (settled, "reverse.applied is not marker"), (shards, "there are several sources"),
    ):  # fmt: skip
        config = config_of(tmp_path, text)
        stream = reverse_stream(config, tso_position(5), "run")
        made = make_old_side(config, {}, [], stream, SimpleNamespace(), Ledger(tmp_path / "l.db"))  # type: ignore[arg-type]
        assert isinstance(made, OldSideStatus)
        assert reason in made.not_seen


def granted(monkeypatch: pytest.MonkeyPatch, *privileges: str) -> None:
    monkeypatch.setattr(
        tables_old_side, "check_grants", lambda _: SimpleNamespace(allows=lambda privilege: privilege in privileges)
    )


def test_a_user_who_may_not_read_the_binlog_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(tmp_path, (TEXT % "").replace("old_side: true, ", ""))
    monkeypatch.setattr(tables_old_side, "refuse_incomplete", lambda *_: None)
    monkeypatch.setattr(tables_old_side, "global_variables", lambda _: {})
    monkeypatch.setattr(FollowedBinlog, "head", lambda *_: Position("b", 4))
    granted(monkeypatch, "REPLICATION CLIENT")
    pool: Any = SimpleNamespace(session=lambda _: nullcontext())
    made = make_old_side(
        config, {}, [], reverse_stream(config, tso_position(5), "run"), pool, Ledger(tmp_path / "l.db")
    )
    assert isinstance(made, OldSideStatus)
    assert made.not_seen == "source: app lacks REPLICATION SLAVE, without which no binlog is sent."


@pytest.mark.parametrize(("name", "value"), [("binlog_format", "MIXED"), ("binlog_row_image", "MINIMAL"),
                                               ("binlog_row_value_options", "PARTIAL_JSON")])  # fmt: skip
def test_a_binlog_without_whole_rows_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    config = config_of(tmp_path, (TEXT % "").replace("old_side: true, ", ""))
    monkeypatch.setattr(tables_old_side, "refuse_incomplete", lambda *_: None)
    monkeypatch.setattr(tables_old_side, "global_variables", lambda _: {name: value})
    monkeypatch.setattr(FollowedBinlog, "head", lambda *_: Position("b", 4))
    granted(monkeypatch, "REPLICATION SLAVE")
    pool: Any = SimpleNamespace(session=lambda _: nullcontext())
    made = make_old_side(
        config, {}, [], reverse_stream(config, tso_position(5), "run"), pool, Ledger(tmp_path / "l.db")
    )
    assert isinstance(made, OldSideStatus)
    assert "does not hold whole rows" in made.not_seen


def test_reading_begins_at_the_end_of_the_binlog_and_at_the_place_of_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tmp_path, TEXT % "")
    monkeypatch.setattr(tables_old_side, "refuse_incomplete", lambda *_: None)
    monkeypatch.setattr(tables_old_side, "global_variables", lambda _: {"auto_increment_increment": "2"})
    monkeypatch.setattr(FollowedBinlog, "head", lambda *_: Position("b.000001", 44))
    columns = column("id", "bigint", extra="auto_increment"), column("v", "text")
    monkeypatch.setattr(tables_old_side, "_definitions", lambda _pool, end, _names: definition(end.name, *columns))
    granted(monkeypatch, "REPLICATION SLAVE")
    ledger = Ledger(tmp_path / "l.db")
    ledger.touch({}, {0: (tso_position(77), 1)}, 0)
    pool: Any = SimpleNamespace(session=lambda _: nullcontext())
    watched = watched_pairs(config, [make_pair()], reverse=True)
    made = make_old_side(config, {}, watched, reverse_stream(config, tso_position(5), "run"), pool, ledger)
    assert isinstance(made, OldSide)
    assert (made._begin, made._crossing._forgotten) == (Position("b.000001", 44), 77)
    assert [made._crossing._ranges.generators[0](number) for number in (4, 5)] == [0, 1]


# -- the watch ---------------------------------------------------------------------------------------------------------


def watch_of(tmp_path: Path, old_side: OldSide | OldSideStatus) -> TablesWatch:
    config = config_of(tmp_path, TEXT % "")
    pairs = watched_pairs(config, [make_pair()], reverse=True)
    stub: Any = SimpleNamespace()
    return TablesWatch(
        pairs, [], Ledger(tmp_path / "w.db"), stub, "r1", stub, config.sources, config.target, stub,
        WatchRules(reverse=True), {}, lambda _d, _t: False, old_side=old_side,
    )  # fmt: skip


def test_a_finding_becomes_a_note_and_its_key_is_read(
    tmp_path: Path, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watch_of(tmp_path, pair.side)
    monkeypatch.setattr(TablesWatch, "_head", lambda _self, _number: pair.head)
    pair.settle(10)
    pair.follow(*transaction(220, *((str(n), "client") for n in range(MOST_NOTES + 20))))
    pair.mark(230)
    pair.lead(Idle(tso_position(pair.head), 0))
    deadline = time.monotonic() + PATIENCE
    while not watch.ledger.notes() and time.monotonic() < deadline:
        watch._collect_old_side()
    notes = [text for number, kind, text in watch.ledger.notes() if (number, kind) == (0, "written")]
    assert len(notes) == MOST_NOTES
    assert any(text.startswith("key 0 was written on source at place 220 (1970-01-01 00:00:22 UTC)") for text in notes)
    assert pair.side.status().written == {"written": MOST_NOTES + 20}
    due = watch.ledger.due({0: 0}, time.time() + 1, 1000)
    assert (len(due), {key.origin for key in due}) == (MOST_NOTES + 20, {OLD_SIDE})


def test_what_is_found_does_not_change_the_verdict_and_is_in_the_last_lines() -> None:
    pair = make_pair()
    one = Watched(0, "target", "app", "t", ("id",), pair.sources[0].sql.key, pair=pair)
    rules = WatchRules(reverse=True)
    old_side = OldSideStatus("source", "b:5", 9, 7, 1, {"written": 1, "collision": 2}, 3, at_least=True)
    facts = WatchFacts("r1", [], rules, [one], {}, {}, {}, [], final=True, old_side=old_side)
    without = status_of(WatchFacts("r1", [], rules, [one], {}, {}, {}, [], final=True))
    status = status_of(facts)
    assert (status.verdict, status.reasons) == (without.verdict, without.reasons)
    assert status.verdict is Verdict.INCONCLUSIVE
    text = final_text(status)
    assert "3 findings of writes on source" in status.headline()
    assert "written on source by another than the feed: at least 3 findings (written 1, collision 2)" in text
    assert "3 keys go in circles: what the feed brings to source is carried back" in text
    assert 'migverify_watch_old_side_findings{kind="collision"} 2' in page(status_metrics(status))
    assert status.as_dict()["old_side"]["written"] == {"written": 1, "collision": 2}
    assert without.as_dict()["old_side"] is None
    assert CrossingKind.STALE.value not in old_side.written

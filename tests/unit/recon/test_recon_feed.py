"""Changes of a TiDB as rules read them: written messages of a changefeed, its windows, and its watermark."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from migverify.changes.carriers.base import MessagePosition, Reject
from migverify.changes.carriers.committed import CommittedChanges
from migverify.changes.carriers.dead_letters import DeadLetterFile
from migverify.changes.model import AfterImages, Begin, DecodedTable, Idle, Item, Op, Rows
from migverify.changes.positions import shown_timestamp, time_tso, tso_position, tso_time
from migverify.cli.console import EngineName
from migverify.cli.recon_setup import changed_tables, set_up
from migverify.config import load_config
from migverify.db.snapshot import ReadSnapshot
from migverify.errors import (
    ChangeError,
    ConfigError,
    EndpointError,
    IncompleteReadError,
    PurgedError,
    StoreError,
    UsageError,
)
from migverify.model import ColumnDef, Endpoint, Flavor, StoredKind
from migverify.recon import change_rows, change_streams, changefeed, watch_reads, watermark
from migverify.recon.change_streams import ChangeStream
from migverify.recon.changefeed import Changefeed, ChangefeedFollower
from migverify.recon.model import ChangesPart, Dataset, RulePlace, TablePart, Window
from migverify.recon.relation import ChangeRead, Combine, Relation
from migverify.recon.rule import Rule, RuleSet
from migverify.recon.watch_reads import WatermarkCache, changes_name
from migverify.recon.watch_state import WindowPhase, WindowState, newest_mark
from migverify.recon.watermark import ClockReading, SourceWatermark, earlier_mark
from tests.fakes import FakeStore
from tests.recon_world import START, make_rule

PLACE = RulePlace("rules.yaml", 1)
NOON = 1_795_780_800.0
WINDOW = ("2026-11-27 12:00:10.000000", "2026-11-27 12:00:20.000000")
"""From 10 to 20 seconds after noon."""
ENDPOINT = Endpoint("target", "tidb", 4000, "root")
ID = ColumnDef("id", 1, "bigint", "bigint", nullable=False)
STATE = ColumnDef("state", 2, "enum", "enum('new','paid')", nullable=True, members=("new", "paid"))
RAW = ColumnDef("raw", 3, "varbinary", "varbinary(9)", nullable=True)
TYPES = {"d.t": {"id": "bigint", "state": "enum('new','paid')", "raw": "varbinary(9)"}}


def at(seconds: float) -> int:
    return time_tso(NOON + seconds)


def message(number: int, seconds: float, kind: str = "INSERT", state: str = "1", old: str = "", **more: Any) -> bytes:
    row = {"id": str(number), "state": state, "raw": "\xff"}
    before = [{**row, "state": old}] if old else None
    body = {
        "id": 0, "database": "d", "table": "t", "pkNames": ["id"], "isDdl": False, "type": kind, "es": 1, "ts": 1,
        "sql": "", "mysqlType": {"id": "bigint", "state": "enum", "raw": "varbinary"},
        "sqlType": {"id": -5, "state": 4, "raw": 2004}, "data": [row], "old": before,
        "_tidb": {"commitTs": at(seconds)}, **more,
    }  # fmt: skip
    return json.dumps(body).encode() + b"\n"


def mark(seconds: float) -> bytes:
    body = {"database": "", "table": "", "isDdl": False, "type": "TIDB_WATERMARK", "es": 1, "ts": 1, "sql": "",
            "data": None, "old": None, "_tidb": {"watermarkTs": at(seconds)}}  # fmt: skip
    return json.dumps(body).encode() + b"\n"


@pytest.fixture(autouse=True)
def tidb(monkeypatch: pytest.MonkeyPatch) -> None:
    """A TiDB that answers for its types and its time."""

    @contextmanager
    def session(endpoint: Endpoint, *_: Any, **__: Any) -> Iterator[Any]:
        yield SimpleNamespace(endpoint=endpoint, flavor=Flavor.TIDB)

    for module in (change_streams, changefeed):
        monkeypatch.setattr(module, "open_session", session)
    monkeypatch.setattr(changefeed, "types_of", lambda *_: TYPES)
    monkeypatch.setattr(changefeed, "clock_of", lambda *_: lambda: at(3600))


def feed_of(folder: Path, *messages: bytes, **carrier: Any) -> Changefeed:
    sink = folder / "sink.json"
    sink.write_bytes(b"".join(messages))
    settings = {"format": "canal-json", "files": [str(sink)], "dead_letters": str(folder / "dead.jsonl"), **carrier}
    config = folder / "migverify.yaml"
    config.write_text(json.dumps({
        "source": {"url": "mysql://app@db1"}, "target": {"url": "tidb://root@tidb"}, "tables": {"include": ["d.*"]},
        "reverse": {"carrier": settings},
    }))  # fmt: skip
    feed = Changefeed.of(load_config(config), None)
    assert feed is not None
    return feed


def rows(
    feed: Changefeed | None, *values: str, window: tuple[str, str] | None = WINDOW, key: str = "id", **part: Any
) -> list[tuple[str | None, ...]]:
    """What a rule reads of the table: the key, and the values that it names."""
    return records(feed, values, window, key, **part)[0]


def records(
    feed: Changefeed | None,
    values: Sequence[str],
    window: tuple[str, str] | None = WINDOW,
    key: str = "id",
    **part: Any,
) -> tuple[list[tuple[str | None, ...]], list[ReadSnapshot]]:
    read = ChangeRead(ChangesPart("target", "", part.pop("database", "d"), "t", **part), (key,), tuple(values), window)
    columns = {"state": STATE, "raw": RAW, "_before.state": STATE, "_op": RAW}
    definitions = tuple(columns.get(name, ID) for name in values)
    relation = Relation("d", (read,), (ID,), definitions, (Combine.ROW,) * len(values))
    snapshots: list[ReadSnapshot] = []
    found = change_rows.change_records(
        relation, read, 0, {"target": ENDPOINT}, {}, threading.Event(), snapshots.append,
        {} if feed is None else {"target": feed},
    )  # fmt: skip
    texts = [
        tuple(None if text is None else text.decode() for text in (*key_texts, *value_texts))
        for key_texts, value_texts, _, _ in found
    ]  # fmt: skip
    return texts, snapshots


# -- windows -----------------------------------------------------------------------------------------------------------


def test_a_window_holds_the_rows_committed_in_it(tmp_path: Path) -> None:
    feed = feed_of(tmp_path, mark(5), message(1, 9.999), message(2, 10), message(3, 19.999), message(4, 20), mark(21))
    found, snapshots = records(feed, ("state", "raw"))
    assert found == [("2", "new", "0xff"), ("3", "new", "0xff")]
    (snapshot,) = snapshots
    assert (snapshot.endpoint, snapshot.flavor, snapshot.position) == ("target", "tidb", f"tso:{at(21) - 1}")


def test_what_the_carrier_sends_again_is_one_change(tmp_path: Path) -> None:
    again = message(2, 11)
    feed = feed_of(tmp_path, mark(5), again, again, mark(12), again, message(3, 13), again, mark(21))
    assert rows(feed) == [("2",), ("3",)]


def test_a_change_that_comes_again_late_does_not_undo_a_later_one(tmp_path: Path) -> None:
    first, second = message(2, 11), message(2, 13, "UPDATE", "2", "1")
    feed = feed_of(tmp_path, mark(5), first, mark(12), second, mark(14), first, mark(21))
    assert rows(feed, "state", state=True) == [("2", "paid")]


def test_names_are_taken_in_any_case(tmp_path: Path) -> None:
    feed = feed_of(tmp_path, mark(5), message(2, 11), mark(21))
    assert rows(feed, database="D") == [("2",)]


def test_a_read_without_a_window_holds_all_that_is_complete(tmp_path: Path) -> None:
    feed = feed_of(tmp_path, message(1, 3), mark(5), message(2, 11), mark(21), message(3, 22))
    assert rows(feed, window=None) == [("1",), ("2",)]


def test_steps_are_read_from_both_images(tmp_path: Path) -> None:
    feed = feed_of(tmp_path, mark(5), message(2, 11, "UPDATE", "2", "1"), mark(21))
    assert rows(feed, "_op", "_before.state", "state") == [("2", "update", "new", "paid")]


# -- what is no answer -------------------------------------------------------------------------------------------------


def test_a_tidb_without_a_changefeed_cannot_be_read() -> None:
    with pytest.raises(ConfigError, match="the changes of target, a TiDB, are read from a changefeed"):
        rows(None)


def test_a_changefeed_that_is_not_past_the_window_is_no_answer(tmp_path: Path) -> None:
    feed = feed_of(tmp_path, mark(5), message(2, 11), mark(19.999), message(3, 21))
    with pytest.raises(IncompleteReadError, match=r"read up to 2026-11-27 12:00:19\.999000, before the window's end"):
        rows(feed)


def test_a_changefeed_without_watermarks_is_no_answer(tmp_path: Path) -> None:
    for window in (WINDOW, None):
        with pytest.raises(IncompleteReadError, match="sent no watermark to every partition"):
            rows(feed_of(tmp_path, message(1, 9), message(2, 11)), window=window)


def test_a_changefeed_that_began_in_the_window_is_no_answer(tmp_path: Path) -> None:
    messages = (message(2, 11), mark(21))
    with pytest.raises(PurgedError, match="the first timestamp of the messages is"):
        rows(feed_of(tmp_path, *messages))
    assert rows(feed_of(tmp_path, *messages, start_ts=at(9))) == [("2",)]
    with pytest.raises(PurgedError):
        rows(feed_of(tmp_path, *messages, start_ts=at(10.5)))


def test_a_message_that_cannot_be_decoded_voids_its_window_and_no_other(tmp_path: Path) -> None:
    feed = feed_of(tmp_path, mark(5), mark(11), message(2, 12, state="7"), mark(13), mark(40))
    with pytest.raises(IncompleteReadError, match=r"the changefeed of target: .*sink\.json/0@2: .*state") as caught:
        rows(feed)
    assert "migverify tables verify" in caught.value.hint
    assert [letter.place.offset for letter in DeadLetterFile(tmp_path / "dead.jsonl").read()] == [2]
    assert rows(feed, window=("2026-11-27 12:00:20.000000", "2026-11-27 12:00:30.000000")) == []
    assert rows(feed, window=("2026-11-27 12:00:06.000000", "2026-11-27 12:00:11.000000")) == []


def test_a_message_about_another_table_voids_nothing(tmp_path: Path) -> None:
    feed = feed_of(tmp_path, mark(5), message(2, 12), message(9, 12, state="x", table="other"), mark(40))
    assert rows(feed) == [("2",)]


def test_a_timestamp_that_goes_back_is_no_answer(tmp_path: Path) -> None:
    feed = feed_of(tmp_path, mark(5), message(2, 11), mark(15), mark(12), mark(21))
    with pytest.raises(IncompleteReadError, match=r"a watermark of \d+ comes after one of \d+: another changefeed"):
        rows(feed)


def test_messages_ahead_of_the_tidb_are_those_of_another_cluster(tmp_path: Path) -> None:
    feed = feed_of(tmp_path, mark(5), message(2, 11), mark(7300))
    with pytest.raises(ChangeError, match="ahead of the configured TiDB: the messages are those of another cluster"):
        rows(feed)


def test_a_truncated_table_is_no_answer(tmp_path: Path) -> None:
    ddl = message(0, 12, "QUERY", sql="TRUNCATE TABLE d.t", isDdl=True, data=None, mysqlType=None, sqlType=None)
    with pytest.raises(IncompleteReadError, match="was truncated"):
        rows(feed_of(tmp_path, mark(5), ddl, mark(21)))


@pytest.mark.parametrize(("key", "values", "part", "is_read"), [
    ("id", ("state",), {}, True), ("id", ("state",), {"state": True}, True), ("id", ("_before.state",), {}, False),
    ("state", ("id",), {"state": True}, False), ("state", ("id",), {}, True),
])  # fmt: skip
def test_updates_without_old_values_are_read_where_the_row_before_is_not_needed(
    key: str, values: tuple[str, ...], part: dict[str, Any], is_read: bool
) -> None:
    table = AfterImages.of("d", "t", ("id", "state"), ("id",))
    items: list[Item] = [
        Begin("1", tso_position(at(11)), NOON + 11),
        Rows(Op.UPDATE, table, table.packed([("2", "paid"), ("3", "new")]), "t/0", 1, int(NOON)),
        Idle(tso_position(at(21)), NOON + 21),
    ]
    read = ChangeRead(ChangesPart("target", "", "d", "t", **part), (key,), values, WINDOW)
    columns = {"id": ID, "state": STATE, "_before.state": STATE}
    relation = Relation("d", (read,), (columns[key],), tuple(columns[name] for name in values), (Combine.ROW,))
    stream = ChangeStream(
        (item for item in items), "target", "tidb", from_birth=True, seen_until=None, has_watermarks=True
    )  # fmt: skip
    if not is_read:
        with pytest.raises(ChangeError, match="sends no old values"):
            list(change_rows._rows(relation, read, stream, threading.Event()))
        return
    found = [change.texts for change in change_rows._rows(relation, read, stream, threading.Event())]
    rows_read = [(b"2", b"paid"), (b"3", b"new")]
    assert found == (rows_read if key == "id" else [row[::-1] for row in rows_read])


# -- what follows ------------------------------------------------------------------------------------------------------


class Changes:
    """Changes of given steps: an item, a broken promise, or an error."""

    def __init__(self, steps: Sequence[Any]) -> None:
        self.steps, self.broken = steps, CommittedChanges(None).broken  # type: ignore[arg-type]

    def items(self) -> Iterator[Item]:
        for step in self.steps:
            if isinstance(step, Exception):
                raise step
            if isinstance(step, Reject):
                self.broken.append(step)
            else:
                yield step


def follower(folder: Path, *runs: Sequence[Any], begin: int = 10) -> tuple[ChangefeedFollower, list[int]]:
    begun: list[int] = []

    def opened(since: int) -> Any:
        begun.append(since)
        return Changes(runs[len(begun) - 1])

    return ChangefeedFollower(opened, begin, folder / "broken"), begun


def idle(offset: int) -> Idle:
    return Idle(tso_position(offset), 0.0)


def broken() -> Reject:
    return Reject("a change came late", MessagePosition("t", 0, 7), None, None)


def ended(one: ChangefeedFollower) -> ChangefeedFollower:
    one.start()
    one.wait(5)
    one._thread.join(5)
    return one


def test_a_follower_knows_up_to_where_the_carrier_is_complete(tmp_path: Path) -> None:
    one, begun = follower(tmp_path, [idle(10), idle(12), idle(15)])
    ended(one)
    assert (one.reached, one.failure, begun) == (15, "the changefeed ended", [10])


def test_a_heartbeat_before_the_first_watermark_proves_nothing(tmp_path: Path) -> None:
    one, _ = follower(tmp_path, [idle(10), idle(10), PurgedError("gone", hint="Verify.")])
    ended(one)
    assert (one.reached, one.failure) == (0, "gone. Verify.")


def test_brokers_that_do_not_answer_are_asked_again_from_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changefeed, "RETRY_SECONDS", 0.01)
    one, begun = follower(tmp_path, [idle(12), EndpointError("no broker")], [idle(12), idle(14), ChangeError("cut")])
    ended(one)
    assert (one.reached, one.failure, begun) == (14, "cut", [10, 12])


def test_a_reader_that_breaks_is_a_failure(tmp_path: Path) -> None:
    one, _ = follower(tmp_path, [ValueError("x")])
    assert "the reader broke: ValueError" in ended(one).failure


def test_a_broken_promise_stays_for_a_watch_that_goes_on(tmp_path: Path) -> None:
    one, _ = follower(tmp_path, [idle(12), broken(), idle(14)])
    ended(one)
    assert (one.broken, one.reached) == ("t/0@7: a change came late", 14)
    again, _ = follower(tmp_path, [idle(30)])
    assert again.broken == one.broken


def test_a_broken_promise_that_cannot_be_kept_ends_the_follower(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    one, _ = follower(tmp_path, [broken(), idle(14)])
    one._broken_file = tmp_path / "folder"
    ended(one)
    assert (one.broken, "cannot write" in one.failure) == ("t/0@7: a change came late", True)
    with pytest.raises(StoreError, match="cannot read"):
        ChangefeedFollower(lambda _: Changes([]), 1, tmp_path / "folder")  # type: ignore[arg-type,return-value]


def until(right: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not right():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_watch_follows_the_carrier_and_goes_on_from_its_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changefeed.time, "time", lambda: NOON + 70)  # the first process begins 10 s after noon
    feed = feed_of(tmp_path, mark(11), message(2, 12), mark(13))
    one = feed.follower("run", [("d", "t")], 0)
    one.start()
    until(lambda: one.reached == at(13) - 1)
    with (tmp_path / "sink.json").open("ab") as file:
        file.write(message(3, 14) + mark(15))
    until(lambda: one.reached == at(15) - 1)
    one.stop()
    one._thread.join(5)
    assert (one.failure, one.broken) == ("", "")
    again = feed.follower("run", [("d", "t")], at(15))
    again.start()
    with (tmp_path / "sink.json").open("ab") as file:
        file.write(mark(17) + message(4, 16) + mark(18))
    again.wait(10)
    until(lambda: again.broken != "")
    again.stop()
    assert "comes after a watermark that excluded it" in again.broken
    assert (tmp_path / "dead.jsonl.recon-run.broken").read_text() == again.broken
    assert (tmp_path / "dead.jsonl.recon-run.files.json").exists()


def test_what_a_watch_follows_of_other_tables_voids_nothing_and_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changefeed.time, "time", lambda: NOON + 70)
    others = [message(n, 12, state="x", table="other") for n in range(30)]
    feed = feed_of(tmp_path, mark(11), *others, mark(13), message(1, 11.5, table="other"), mark(15))
    one = feed.follower("run", [("d", "t")], 0)
    one.start()
    until(lambda: one.reached == at(15) - 1)
    one.stop()
    assert (one.failure, one.broken) == ("", "")
    assert list(DeadLetterFile(tmp_path / "dead.jsonl").read()) == []


def test_a_watch_that_goes_on_proves_its_position(tmp_path: Path) -> None:
    one = ended(feed_of(tmp_path, mark(30)).follower("run", [("d", "t")], at(15)))
    assert "the first timestamp of the messages is" in one.failure
    assert one.reached == 0


# -- the watermark -----------------------------------------------------------------------------------------------------


def cache(monkeypatch: pytest.MonkeyPatch, **followers: Any) -> WatermarkCache:
    @contextmanager
    def session(_: Endpoint) -> Iterator[Any]:
        yield SimpleNamespace(flavor=Flavor.TIDB)

    monkeypatch.setattr(watermark, "read_clock", lambda _: ClockReading(NOON + 30, 0.25, 0.01))
    return WatermarkCache(
        None, {"target": ENDPOINT}, SimpleNamespace(session=session), followers=followers  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize("reader", ["20261127T203622-da00bb", "20261127T203622-da00bc"])
def test_each_watch_has_a_row_of_its_own_in_the_marker_table(monkeypatch: pytest.MonkeyPatch, reader: str) -> None:
    """A second watch's higher number would let the first one believe that its own marker has arrived."""
    marks = cache(monkeypatch)
    marks.reader = reader
    source = SimpleNamespace(name="source")
    settings = SimpleNamespace(applied="marker", marker="app.marker", checkpoint=None)
    marks.config = SimpleNamespace(watch=settings, sources=[source])  # type: ignore[assignment]
    monkeypatch.setattr(watch_reads, "route", lambda _config, _shard, *table: table)
    ((name, way),) = marks._ways(syncpoints=False)
    assert (name, way.name, way.on_source) == ("source", f"migverify source {reader}", "app.marker")  # type: ignore[attr-defined]


def changes(*endpoints: str) -> Dataset:
    return Dataset("c", tuple(ChangesPart(name, "", "d", "t") for name in endpoints), PLACE)


def test_the_watermark_is_the_newest_that_the_changefeed_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = follower(tmp_path, [idle(at(21) - 1)])
    marks = cache(monkeypatch, target=lambda: one)
    (found,) = marks.of(changes("target"))
    one._thread.join(5)
    assert (found.source, found.offset) == (changes_name("target"), 0.25)
    one.failure = ""
    marks._asked.clear()
    (found,) = marks.of(changes("target"))
    assert (found.at, found.proof, found.reason) == (NOON + 21, True, "")
    assert shown_timestamp(at(21) - 1) in found.how
    assert found.at == tso_time(at(21))
    marks.close()
    assert one._stop.is_set()


@pytest.mark.parametrize(("steps", "reason"), [
    ([idle(at(21)), ChangeError("cut", hint="Look.")], "cut. Look."), ([idle(at(21)), broken(), idle(at(22))], "late"),
    ([idle(10)], "the changefeed ended"),
])  # fmt: skip
def test_without_a_watermark_that_counts_windows_stay_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: list[Any], reason: str
) -> None:
    one, _ = follower(tmp_path, steps)
    ended(one)
    one.start = lambda: None  # type: ignore[method-assign]
    (found,) = cache(monkeypatch, target=lambda: one).of(changes("target"))
    assert found.at is None
    assert reason in found.reason


def test_a_changefeed_that_is_still_read_has_no_watermark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_reads, "FIRST_SECONDS", 0.01)
    one, _ = follower(tmp_path)
    one.start = lambda: None  # type: ignore[method-assign]
    (found,) = cache(monkeypatch, target=lambda: one).of(changes("target"))
    assert found.at is None
    assert "still being read" in found.reason


def test_a_tidb_without_a_changefeed_has_no_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="none of it is configured"):
        cache(monkeypatch).of(changes("target"))


def reverse_cache(
    folder: Path, monkeypatch: pytest.MonkeyPatch, reverse: dict[str, Any], sources: int = 1
) -> WatermarkCache:
    """Watermarks of a pair whose target is written: the source's own clock is 40 s after noon."""
    url = "mysql://app@db1"
    named = {"source": {"url": url}} if sources == 1 else {"sources": {str(n): {"url": url} for n in range(sources)}}
    (folder / "migverify.yaml").write_text(json.dumps({
        **named, "target": {"url": "tidb://root@tidb"}, "tables": {"include": ["d.*"]},
        "reverse": {"carrier": {"format": "canal-json", "files": ["sink.json"]}, **reverse},
    }))  # fmt: skip
    config = load_config(folder / "migverify.yaml")
    marks = cache(monkeypatch, target=lambda: None)
    marks.config, marks.reader = config, "run"
    marks.endpoints = {one.name: one for one in config.all_endpoints}
    monkeypatch.setattr(watch_reads, "writer_mark", lambda _, name: SourceWatermark(name, NOON + 40, "server clock"))
    return marks


def tables(*endpoints: str) -> Dataset:
    return Dataset("c", tuple(TablePart(name, "d", "t") for name in endpoints), PLACE)


def test_a_source_is_complete_up_to_what_the_changefeed_brought_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def applied(_: Any, name: str, how: str, ways: dict[str, Any], __: Any) -> SourceWatermark:
        asked.append(ways["target"].applied)
        return SourceWatermark(name, None, how, "no marker yet")

    monkeypatch.setattr(watch_reads, "applied_mark", applied)
    marks = reverse_cache(tmp_path, monkeypatch, {"applied": "marker", "marker": "ops.m"})
    (found,) = marks.of(tables("source"))
    assert (found.at, found.reason) == (None, "no marker yet")
    assert [(one.on_source, one.on_target, one.name) for one in asked] == [
        ("ops.m", "ops.m", "migverify target run")
    ]  # fmt: skip
    marks.followers = {}
    marks._asked.clear()
    assert marks.of(tables("source"))[0].at == NOON + 40, "without a rule over the changefeed, nothing is fed back"


def test_without_a_marker_what_the_changefeed_brought_is_a_guess(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = reverse_cache(tmp_path, monkeypatch, {"settle_seconds": 7})
    (found,) = marks.of(tables("source"))
    assert (found.at, found.proof) == (NOON + 23, False)
    assert "(reverse.applied: settle)" in found.how


def test_a_marker_does_not_reach_several_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marks = reverse_cache(tmp_path, monkeypatch, {"applied": "marker", "marker": "ops.m"}, sources=2)
    with pytest.raises(ConfigError, match="a marker reaches one source only"):
        marks.of(tables("source.0"))


def test_the_earlier_of_two_watermarks_counts() -> None:
    early, late = SourceWatermark("a", 5.0, "marker"), SourceWatermark("a", 7.0, "clock", proof=False)
    assert earlier_mark(early, late) == earlier_mark(late, early) == SourceWatermark("a", 5.0, "marker", proof=False)
    unknown = SourceWatermark("a", None, "clock", "why")
    assert earlier_mark(early, unknown) == earlier_mark(unknown, early) == unknown


# -- the command -------------------------------------------------------------------------------------------------------


def test_a_watch_goes_on_from_the_newest_watermark_of_its_windows() -> None:
    store, rule = FakeStore(), make_rule()
    rules = rule_set(rule)
    run = store.start_run("watch", "x", {}, {}, kind=StoredKind.RULES)
    assert newest_mark(store, run, rules, "changes of target") == 0.0
    for number, newest in enumerate((NOON + 1, NOON + 3, None)):
        window = Window(START + timedelta(seconds=60 * number), START + timedelta(seconds=60 * number + 60))
        state = WindowState(window, WindowPhase.MATCHED, marks={"changes of target": newest, "source": NOON + 9})
        store.add_window(run, rule.name, state.body(rule), [])
    assert newest_mark(store, run, rules, "changes of target") == NOON + 3


def rule_set(rule: Rule) -> RuleSet:
    sides = {name: Dataset(name, (TablePart(name, "d", "t"),), PLACE, time="at") for name in ("orders", "payments")}
    return RuleSet("rules.yaml", (rule,), sides, {}, (), "digest")


def rules_file(folder: Path) -> Path:
    path = folder / "recon.yaml"
    path.write_text(json.dumps({
        "version": "recon/v1",
        "datasets": {"steps": {"endpoint": "target", "changes": "d.t", "key": "id"}},
        "rules": [{"name": "r", "kind": "transitions", "source": "steps", "column": "state", "allowed": {"a": ["b"]}}],
    }))  # fmt: skip
    return path


def test_the_rules_of_a_command_have_the_changefeed_that_is_configured(tmp_path: Path) -> None:
    feed_of(tmp_path, mark(5))
    config = tmp_path / "migverify.yaml"
    setup = set_up(config, rules_file(tmp_path), None, None, None, None, None)
    assert list(setup.feeds) == ["target"]
    assert changed_tables(setup.rules, "target") == [("d", "t")]
    assert changed_tables(setup.rules, "source") == []
    with pytest.raises(UsageError, match="which Spark does not read"):
        set_up(config, rules_file(tmp_path), None, None, None, None, EngineName.SPARK)
    document = json.loads(config.read_text())
    del document["reverse"]
    config.write_text(json.dumps(document))
    assert set_up(config, rules_file(tmp_path), None, None, None, None, EngineName.SPARK).feeds == {}


def test_a_layout_of_texts_has_no_character_sets() -> None:
    table = DecodedTable.of("d", "t", ("raw",), ())
    read = ChangeRead(ChangesPart("target", "", "d", "t"), ("raw",), ())
    taker = change_rows._Taker(Relation("d", (read,), (RAW,), (), ()), read, table)
    event = Rows(Op.INSERT, table, table.packed([("0xff",)]), "t/0", 1, 1)
    assert [one.texts for one in taker.take(event, Begin("1", tso_position(1), 1.0))] == [(b"0xff",)]


@pytest.mark.parametrize("seed", range(12))
def test_windows_one_after_the_other_hold_each_change_once(tmp_path: Path, seed: int) -> None:
    """Two files with watermarks of their own, messages that come again behind them, and a last line that is cut."""
    rng = random.Random(seed)
    written: dict[int, float] = {}
    lines: list[list[bytes]] = [[mark(0)], [mark(0)]]
    sent: list[list[bytes]] = [[], []]
    for second in range(1, 31):
        for number in range(second * 10, second * 10 + rng.randrange(4)):
            seconds = second - 1 + rng.random()
            part = number % 2
            line = message(number, seconds)
            written[number] = float(f"{seconds:.3f}")
            lines[part].append(line)
            sent[part].append(line)
            for _ in range(rng.randrange(3)):
                lines[part].append(rng.choice(sent[part]))
        for part in range(2):
            if rng.random() < 0.8 or second == 30:
                lines[part].append(mark(second))
                lines[part] += [rng.choice(sent[part]) for _ in range(rng.randrange(3)) if sent[part]]
    paths = [tmp_path / "p0.json", tmp_path / "p1.json"]
    for path, part_lines in zip(paths, lines, strict=True):
        path.write_bytes(b"".join(part_lines) + b'{"type": "INS')
    feed = feed_of(tmp_path, files=[str(path) for path in paths])
    found: list[str | None] = []
    for start in range(3, 30, 3):
        window = tuple(f"2026-11-27 12:00:{second:02}.000000" for second in (start, start + 3))
        found += [row[0] for row in rows(feed, window=window)]  # type: ignore[arg-type]
    assert sorted(found) == sorted(str(n) for n, seconds in written.items() if seconds >= 3)
    assert not list(DeadLetterFile(tmp_path / "dead.jsonl").read())

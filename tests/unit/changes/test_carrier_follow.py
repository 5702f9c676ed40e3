"""A carrier that is followed: growing files, restarts at any timestamp, and voids that do not end it."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migverify.changes.carriers import file_marks, files, formats, topics
from migverify.changes.carriers.base import (
    Carried,
    CarriedItem,
    CarrierMessage,
    Heartbeat,
    MessageHead,
    MessagePosition,
    Reject,
    Watermark,
)
from migverify.changes.carriers.canal_json import CanalJson
from migverify.changes.carriers.committed import VOID, CommittedChanges
from migverify.changes.carriers.dead_letters import DeadLetterFile
from migverify.changes.carriers.files import MessageFiles, json_lines, open_protocol_events
from migverify.changes.carriers.followed import FollowedCarrier
from migverify.changes.carriers.formats import CarrierFormat, CarrierSource
from migverify.changes.carriers.kafka import BrokerErrors, KafkaSettings
from migverify.changes.carriers.open_protocol import OpenProtocol
from migverify.changes.carriers.storage_folder import StorageFolder
from migverify.changes.carriers.topics import KafkaTopics
from migverify.changes.decode import decoder
from migverify.changes.model import Begin, Commit, Idle, Item, Op, Position, Rows, Statement
from migverify.changes.positions import shown_timestamp, time_tso, tso_position
from migverify.errors import ChangeError, PurgedError, StoreError


class Messages:
    """A carrier of given items; it ends where one that is followed would wait."""

    def __init__(self, items: Sequence[CarriedItem | Heartbeat], partitions: int = 1) -> None:
        self._items = items
        self.ends = {("t", number): 1 for number in range(partitions)}
        self.partitions = set(self.ends)
        self.added: set[tuple[str, int]] = set()

    def kept_with(self, topic: str, partition: int) -> tuple[str, int] | None:
        return topic, partition

    def is_added(self, part: tuple[str, int], since: Position, reaching: Set[tuple[str, int]]) -> bool:
        del since
        return bool(reaching) and part in self.added

    def read(self, since: Position | None = None) -> Iterator[CarriedItem]:
        del since
        return (item for item in self._items if not isinstance(item, Heartbeat))

    def follow(self, since: Position | None) -> Iterator[CarriedItem | Heartbeat]:
        del since
        return iter(self._items)


def head(commit: int, partition: int = 0) -> MessageHead:
    return MessageHead.of_commit(CarrierMessage(MessagePosition("t", partition, 0), None, None), "d", "t", commit)


def row(number: int, commit: int, partition: int = 0, value: str = "v") -> Carried:
    return head(commit, partition).rows(Op.INSERT, None, {"id": str(number), "v": value}, ["id"])


def mark(complete_to: int, partition: int = 0) -> Watermark:
    return Watermark(complete_to, MessagePosition("t", partition, 0))


def bad(partition: int = 0, offset: int = 0, tables: tuple[tuple[str, str], ...] = ()) -> Reject:
    return Reject("it is cut", MessagePosition("t", partition, offset), None, b"{", tables)


@pytest.fixture
def letters(tmp_path: Path) -> DeadLetterFile:
    return DeadLetterFile(tmp_path / "dead.jsonl")


def followed(
    items: Sequence[CarriedItem | Heartbeat], letters: DeadLetterFile, partitions: int = 1, since: int = 0, **more: int
) -> list[Item]:
    start = tso_position(since) if since else None
    return list(CommittedChanges(Messages(items, partitions), start, letters=letters, **more).items())


def voids(items: Sequence[Item]) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
    return [(item.sql.removeprefix(VOID), item.tables) for item in items if isinstance(item, Statement)]


def keys(items: Sequence[Item]) -> set[tuple[str, str]]:
    """(commit, key) of every row."""
    found, gtid = set(), ""
    for item in items:
        if isinstance(item, Begin):
            gtid = item.gtid
        elif isinstance(item, Rows):
            found |= {(gtid, image[0] or "") for image in decoder(item.table, ("id",)).texts(item.images)}
    return found


def places(items: Sequence[Item]) -> list[int]:
    return [item.end.offset if isinstance(item, Commit) else item.at.offset
            for item in items if isinstance(item, Commit | Idle)]  # fmt: skip


# --- life ---


def test_a_heartbeat_repeats_the_place_that_a_watermark_proved(letters: DeadLetterFile) -> None:
    found = followed([Heartbeat(), mark(10), Heartbeat(), row(1, 12), Heartbeat(), mark(13), Heartbeat()], letters)
    assert places(found) == [9, 9, 9, 12, 12, 12]
    assert places(followed([Heartbeat()], letters, since=7)) == [7]


# --- voids ---


def test_an_undecodable_message_is_a_statement_on_any_table_and_a_dead_letter(letters: DeadLetterFile) -> None:
    items = [row(1, 10), mark(11), bad(offset=7), row(2, 12), mark(15), row(3, 16), mark(17)]
    found = followed(items, letters)
    assert keys(found) == {("10", "1"), ("12", "2"), ("16", "3")}
    assert voids(found) == [("t/0@7: it is cut", ())] * 2
    assert [reject.place.offset for reject in letters.read()] == [7]
    first = next(at for at, item in enumerate(found) if isinstance(item, Statement))
    assert isinstance(found[first], Statement)
    begin, commit = found[first - 1], found[first + 1]
    assert (begin, commit) == (Begin("", tso_position(10), 0.0), Commit("", tso_position(10), 0.0)), "before it moves"
    last = max(at for at, item in enumerate(found) if isinstance(item, Statement))
    assert found[last + 1] == Commit("", tso_position(14), 0.0), "and at the watermark that closes it"
    assert places(found) == sorted(places(found))


def test_a_void_waits_for_the_watermark_of_its_own_partition(letters: DeadLetterFile) -> None:
    items = [mark(10), mark(10, 1), bad(1, 3), mark(20), mark(15, 1), mark(30), mark(30, 1)]
    found = followed(items, letters, 2)
    ends = [found[at + 1].end.offset for at, item in enumerate(found) if isinstance(item, Statement)]  # type: ignore[union-attr]
    assert ends == [9, 14]


def test_the_tables_that_a_message_names_are_those_of_its_void(letters: DeadLetterFile) -> None:
    found = followed([mark(10), bad(tables=(("d", "t"),)), mark(11)], letters)
    assert {tables for _, tables in voids(found)} == {(("d", "t"),)}


def test_a_change_that_comes_too_late_is_given_and_voids_its_table(letters: DeadLetterFile) -> None:
    items = [row(1, 10), mark(15), row(1, 10), row(2, 12), mark(20)]
    found = followed(items, letters)
    assert keys(found) == {("10", "1"), ("12", "2")}
    assert voids(found)[0][0].endswith("comes after a watermark that excluded it, and did not come before")
    assert {tables for _, tables in voids(found)} == {(("d", "t"),)}
    with pytest.raises(ChangeError, match="t/0@0: a change committed at 12 comes after a watermark"):
        list(CommittedChanges(Messages(items)).items())


def test_a_change_that_comes_again_is_harmless(letters: DeadLetterFile) -> None:
    statement = head(11).statement("ALTER TABLE t ADD n INT")
    items = [row(1, 10), statement, mark(15), row(1, 10), statement, mark(20)]
    found = followed(items, letters)
    assert {text for text, _ in voids(found)} == {"ALTER TABLE t ADD n INT"}
    assert len(letters) == 0


def test_a_watermark_that_goes_back_voids_everything(letters: DeadLetterFile) -> None:
    items = [mark(50), mark(40), mark(60)]
    found = followed(items, letters)
    assert "a watermark of 40 comes after one of 50" in voids(found)[0][0]
    assert voids(found)[0][1] == ()
    assert places(found)[-1] == 59
    with pytest.raises(ChangeError, match="a watermark of 40 comes after one of 50"):
        list(CommittedChanges(Messages(items)).items())


def test_messages_of_another_format_end_it(letters: DeadLetterFile) -> None:
    place = MessagePosition("t", 0, 0)
    event = CarrierMessage(place, b"\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\2{}", b"")
    with pytest.raises(ChangeError, match=r"t/0@0: the messages are open-protocol") as caught:
        followed(CanalJson().parse(event), letters)
    assert "--format" in (caught.value.hint or "")
    canal = CarrierMessage(place, None, b'{"isDdl": false, "mysqlType": {}}')
    for parser, seen in ((OpenProtocol(), canal),):
        with pytest.raises(ChangeError, match="the messages are canal-json"):
            followed(parser.parse(seen), letters)
    with pytest.raises(ChangeError, match="none of the first 10 messages can be decoded"):
        followed([bad(offset=n) for n in range(12)], letters)
    assert voids(followed([mark(2), *CanalJson().parse(event), mark(9)], letters)), "later, it is one message"


def test_a_topic_of_another_cluster_ends_it(letters: DeadLetterFile) -> None:
    now = time_tso(1_000_000.0)
    asked: list[int] = []

    def newest() -> int:
        asked.append(1)
        return now

    fine = [mark(now - 5), mark(now + time_tso(59.0))]
    list(CommittedChanges(Messages(fine), letters=letters, newest=newest).items())
    assert len(asked) == 1
    ahead = [mark(now + time_tso(90.0))]
    with pytest.raises(ChangeError, match="is 90 s ahead of the configured TiDB"):
        list(CommittedChanges(Messages(ahead), letters=letters, newest=newest).items())


@pytest.mark.parametrize(("since", "is_void"), [(8, True), (9, False), (15, False)])
def test_a_watermark_that_went_back_before_the_start_voids_nothing(
    letters: DeadLetterFile, since: int, is_void: bool
) -> None:
    """The process that came to the start gave the void; a verification that begins there has what it may hide."""
    found = followed([mark(5), mark(9), mark(6), mark(12), mark(30)], letters, since=since)
    assert bool(voids(found)) == is_void


# --- the start is proved ---


def test_a_start_that_nothing_proves_is_refused(letters: DeadLetterFile) -> None:
    items = [row(1, 20), mark(30)]
    with pytest.raises(PurgedError, match="the first timestamp of the messages is 20, after the position 15"):
        followed(items, letters, since=15)
    assert keys(followed(items, letters, since=15, feed_start=12)) == {("20", "1")}
    assert keys(followed([mark(16), *items], letters, since=15)) == {("20", "1")}
    assert keys(followed([row(7, 14), *items], letters, since=15)) == {("20", "1")}
    with pytest.raises(PurgedError):
        followed([mark(17), *items], letters, since=15)


def test_each_partition_proves_the_start_by_itself(letters: DeadLetterFile) -> None:
    items = [mark(10), row(1, 20), mark(30), mark(21, 1), mark(30, 1)]
    with pytest.raises(PurgedError, match=r"first timestamp of the messages is 20, after the position 15 \(t/1\)"):
        followed(items, letters, 2, since=15)
    assert keys(followed([mark(16, 1), *items], letters, 2, since=15)) == {("20", "1")}
    assert keys(followed(items, letters, 2, since=15, feed_start=15)) == {("20", "1")}
    with pytest.raises(PurgedError):
        followed(items, letters, 2, since=15, feed_start=16)


def test_a_partition_that_was_added_while_nobody_read_proves_the_start_by_its_beginning(
    letters: DeadLetterFile,
) -> None:
    items = [mark(10), row(1, 20), mark(30), row(2, 25, 1), mark(30, 1)]
    carrier = Messages(items, 2)
    with pytest.raises(PurgedError, match=r"is 25, after the position 15 \(t/1\)"):
        list(CommittedChanges(carrier, tso_position(15), letters=letters).items())
    carrier.added = {("t", 1)}
    found = list(CommittedChanges(carrier, tso_position(15), letters=letters).items())
    assert keys(found) == {("20", "1"), ("25", "2")}
    carrier.added = {("t", 0), ("t", 1)}
    with pytest.raises(PurgedError, match="after the position 5"):  # nothing shows that the changefeed ran then
        list(CommittedChanges(carrier, tso_position(5), letters=letters).items())


@pytest.mark.parametrize(
    ("part", "reaching", "compacted", "added"),
    [
        (("t", 1), {("t", 0)}, False, True),
        (("t", 9), {("t", 0)}, False, True),  # found while it was followed: read from its first offset
        (("t", 2), {("t", 0)}, False, False),  # messages were deleted from it
        (("t", 1), {("u", 0)}, False, False),  # the topic may have been made anew
        (("t", 1), set(), False, False),
        (("t", 1), {("t", 0)}, True, False),
    ],
)
def test_a_partition_is_added_where_it_is_whole_and_its_topic_is_older(
    monkeypatch: pytest.MonkeyPatch, part: tuple[str, int], reaching: set[tuple[str, int]], compacted: bool, added: bool
) -> None:
    carrier = KafkaTopics.__new__(KafkaTopics)
    carrier._login = KafkaSettings("b", {})
    carrier.bounds = {("t", 0): (7, 9), ("t", 1): (0, 9), ("t", 2): (3, 9)}
    monkeypatch.setattr(topics, "is_compacted", lambda *_: compacted)
    assert carrier.is_added(part, tso_position(5), reaching) is added


def version_file(table: Path, version: int, *lines: bytes, number: int = 1) -> Path:
    path = table / str(version) / f"CDC{number:06d}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(lines))
    return path


def test_a_table_that_was_made_while_nobody_read_the_storage_folder_is_read(
    tmp_path: Path, letters: DeadLetterFile
) -> None:
    root = tmp_path / "sink"
    version_file(root / "d" / "old", 1, canal(1, 5), canal(2, 15))
    table = root / "d" / "t"
    first = version_file(table, 12, canal(3, 25))
    version_file(table, 26, canal(4, 28))
    (root / "metadata").write_text('{"checkpoint-ts": 30}')

    def stream(since: int = 10) -> set[tuple[str, str]]:
        changes = CommittedChanges(StorageFolder(root, CanalJson()), tso_position(since), letters=letters)
        return keys(until(changes.items(), reached(29)))

    refused = pytest.raises(PurgedError, match="first timestamp of the messages is 25, after the position 10")
    with refused:
        stream()  # nothing says when it was made
    schema_file(table, 26, "ALTER TABLE t ADD c int")
    with refused:
        stream()
    schema_file(table, 12, "create  table t (id int)")
    schema_file(table, 13, "")
    assert stream() == {("15", "2"), ("25", "3"), ("28", "4")}
    with pytest.raises(PurgedError):
        stream(13)  # it is older than the position
    first.rename(table / "12" / "CDC000002.json")
    with pytest.raises(PurgedError, match="no file number 1"):
        stream()
    (table / "12" / "CDC000002.json").unlink()
    with pytest.raises(PurgedError, match="is 28, after the position 10"):
        stream()  # those of its first version are gone
    version_file(table, 12, canal(3, 25))
    (root / "d" / "old" / "1" / "CDC000001.json").write_bytes(canal(2, 15))
    with pytest.raises(PurgedError, match="is 25, after the position 10"):
        stream()  # no other table shows that the changefeed ran then
    (root / "d" / "old" / "1" / "CDC000001.json").write_bytes(canal(1, 5))
    (table / "meta" / "schema_9_1.json").write_text("{")
    with refused:
        stream()


def test_in_folders_of_days_nothing_shows_that_a_new_table_is_whole(tmp_path: Path, letters: DeadLetterFile) -> None:
    root = tmp_path / "sink"
    day_file(root / "d" / "old", "2026-01-01", canal(1, 5))
    day_file(root / "d" / "t", "2026-01-02", canal(3, 25))
    schema_file(root / "d" / "t", 12, "CREATE TABLE t (id int)")
    (root / "metadata").write_text('{"checkpoint-ts": 30}')
    with pytest.raises(PurgedError, match="is 25, after the position 10"):
        list(CommittedChanges(StorageFolder(root, CanalJson()), tso_position(10), letters=letters).items())


def test_a_file_that_was_rotated_proves_no_start(tmp_path: Path, letters: DeadLetterFile) -> None:
    paths = [tmp_path / "one", tmp_path / "two"]
    paths[0].write_bytes(canal(1, 5) + canal_mark(7) + canal_mark(40))
    paths[1].write_bytes(canal(2, 30) + canal_mark(40))
    stream = CommittedChanges(MessageFiles(paths, CanalJson(), json_lines), tso_position(10), letters=letters)
    with pytest.raises(PurgedError, match="after the position 10"):
        list(stream.items())


def schema_file(table: Path, version: int, query: str) -> None:
    (table / "meta").mkdir(parents=True, exist_ok=True)
    body = {"Table": "t", "Schema": "d", "TableVersion": version, "Query": query}
    (table / "meta" / f"schema_{version}_1.json").write_text(json.dumps(body))


def day_file(table: Path, day: str, *lines: bytes) -> Path:
    path = table / "1" / day / "CDC000001.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(lines))
    return path


def test_a_day_of_a_storage_folder_that_expired_is_noticed(tmp_path: Path, letters: DeadLetterFile) -> None:
    root = tmp_path / "sink"
    expired = day_file(root / "d" / "t", "2026-01-01", canal(1, 5), canal(2, 15))
    day_file(root / "d" / "t", "2026-01-02", canal(3, 25))
    day_file(root / "d" / "u", "2026-01-01", canal(4, 6))
    schema_file(root / "d" / "t", 1, "CREATE TABLE t (id int)")
    (root / "metadata").write_text('{"checkpoint-ts": 30}')

    def stream() -> Iterator[Item]:
        return CommittedChanges(StorageFolder(root, CanalJson()), tso_position(10), letters=letters).items()

    assert keys(until(stream(), reached(29))) == {("15", "2"), ("25", "3")}
    expired.unlink()
    with pytest.raises(PurgedError, match=r"is 25, after the position 10 \(.*/d/t/0\)"):
        list(stream())
    (root / "metadata").write_text('{"checkpoint-ts": 11}')
    resumed = stream()
    assert places([next(resumed)]) == [10], "all that is behind the position is yet to come"
    (root / "metadata").write_text('{"checkpoint-ts": 30}')
    assert keys(until(resumed, reached(29))) == {("25", "3")}


Sent = tuple[int, int, int]


def stream_of(sent: Sequence[Sent], partitions: int, chance: random.Random) -> list[CarriedItem]:
    """Partitions run ahead of each other, send again and repeat watermarks; a restarted sender sends old ones again."""
    queues: list[list[CarriedItem]] = [[mark(1, partition)] for partition in range(partitions)]
    for number, commit, partition in sorted(sent, key=lambda change: change[1]):
        queue = queues[partition]
        if chance.random() < 0.4:
            queue.append(mark(commit, partition))
        queue.append(row(number, commit, partition))
        if chance.random() < 0.2:
            queue.append(chance.choice([item for item in queue if isinstance(item, Carried)]))
    end = max((commit for _, commit, _ in sent), default=1) + 1
    for partition, queue in enumerate(queues):
        queue.append(mark(end, partition))
    found: list[CarriedItem] = []
    while any(queues):
        found.append(chance.choice([queue for queue in queues if queue]).pop(0))
    return found


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 40), st.integers(1, 4), st.integers(0, 2**32))
def test_kills_and_restarts_at_any_place_lose_nothing(
    letters: DeadLetterFile, count: int, partitions: int, seed: int
) -> None:
    chance = random.Random(seed)
    sent = [(number, chance.randrange(1, 2 * count + 2), number % partitions) for number in range(count)]
    original = {(str(commit), str(number)) for number, commit, _ in sent}
    found: set[tuple[str, str]] = set()
    at = 0
    while True:
        items = followed(stream_of(sent, partitions, chance), letters, partitions, since=at)
        assert not voids(items)
        stop = chance.randrange(len(items) + 1) if chance.random() < 0.8 else len(items)
        seen = items[:stop]
        # What came behind the last Commit or Idle is not kept by a reader that is killed.
        last = max((n for n, item in enumerate(seen) if isinstance(item, Commit | Idle)), default=-1)
        found |= keys(seen[: last + 1])
        at = max([at, *places(seen)])
        if stop == len(items):
            break
    assert found == original


# --- files ---


def canal(number: int, commit: int) -> bytes:
    return json.dumps({
        "id": 0, "database": "d", "table": "t", "pkNames": ["id"], "isDdl": False, "type": "INSERT", "es": 1, "ts": 1,
        "sql": "", "sqlType": {"id": 4}, "mysqlType": {"id": "int"}, "old": None, "data": [{"id": str(number)}],
        "_tidb": {"commitTs": commit},
    }).encode() + b"\n"  # fmt: skip


def canal_mark(complete_to: int) -> bytes:
    return json.dumps({"id": 0, "database": "", "table": "", "isDdl": False, "type": "TIDB_WATERMARK", "es": 1,
                       "_tidb": {"watermarkTs": complete_to}}).encode() + b"\n"  # fmt: skip


def opened(number: int, commit: int) -> bytes:
    key = json.dumps({"ts": commit, "scm": "d", "tbl": "t", "t": 1}).encode()
    return part(key) + part(json.dumps({"u": {"id": {"t": 3, "f": 11, "v": number}}}).encode())


def opened_mark(complete_to: int) -> bytes:
    return part(json.dumps({"ts": complete_to, "t": 3}).encode()) + part(b"")


def part(raw: bytes) -> bytes:
    return len(raw).to_bytes(8, "big") + raw


def until(stream: Iterator[Item], stop: Callable[[Item], bool]) -> list[Item]:
    found = []
    for item in stream:
        found.append(item)
        if stop(item):
            return found
    raise AssertionError("the stream ended")


def reached(place: int) -> Callable[[Item], bool]:
    return lambda item: isinstance(item, Idle) and item.at.offset >= place


@pytest.mark.parametrize("form", ["canal-json", "open-protocol"])
def test_growing_files_are_followed_byte_by_byte(tmp_path: Path, letters: DeadLetterFile, form: str) -> None:
    make, close, begin = (
        (canal, canal_mark, b"") if form == "canal-json" else (opened, opened_mark, (1).to_bytes(8, "big"))
    )
    paths = [tmp_path / "one", tmp_path / "two"]
    for path in paths:
        path.write_bytes(b"")
    parts = [begin + b"".join(make(n, 10 + n) for n in range(5)) + close(20), begin + make(9, 12) + close(30)]
    stop = threading.Event()

    def write() -> None:
        with paths[0].open("ab", buffering=0) as one, paths[1].open("ab", buffering=0) as two:
            for raw, file in zip(parts, (one, two), strict=True):
                for at in range(0, len(raw), 37):
                    file.write(raw[at : at + 37])
                    if stop.wait(0.001):
                        return

    writer = threading.Thread(target=write)
    writer.start()
    source = CarrierSource(CarrierFormat(form), files=tuple(paths))
    try:
        stream = CommittedChanges(source.carrier(), letters=letters).items()
        found = until(stream, reached(19))
    finally:
        stop.set()
        writer.join()
    assert keys(found) == {(str(10 + n), str(n)) for n in range(5)} | {("12", "9")}
    assert not voids(found)
    with paths[1].open("ab") as file:
        file.write(close(40)[:-1] if form == "canal-json" else close(40))
    with paths[0].open("ab") as file:
        file.write(close(40))
    assert places(until(stream, reached(39)))[-1] == 39, "a whole JSON object needs no end of its line"


def test_a_silent_file_gives_an_idle_every_second(tmp_path: Path, letters: DeadLetterFile) -> None:
    path = tmp_path / "one"
    path.write_bytes(canal(1, 5) + canal_mark(7) + b'{"half": ')
    stream = CommittedChanges(MessageFiles([path], CanalJson(), json_lines), letters=letters).items()
    until(stream, reached(6))
    next(stream)
    begun = time.monotonic()
    assert [item for item in (next(stream), next(stream)) if isinstance(item, Idle) and item.at.offset == 6]
    assert time.monotonic() - begun < 3.0


def test_a_file_that_becomes_shorter_or_another_ends_it(tmp_path: Path, letters: DeadLetterFile) -> None:
    for change in ("shorter", "another"):
        path = tmp_path / change
        path.write_bytes(canal(1, 5) + canal_mark(7))
        stream = CommittedChanges(MessageFiles([path], CanalJson(), json_lines), letters=letters).items()
        until(stream, reached(6))
        if change == "shorter":
            path.write_bytes(b"")
        else:
            (tmp_path / "new").write_bytes(canal(1, 5) + canal_mark(7) + canal_mark(8))
            (tmp_path / "new").rename(path)
        with pytest.raises(ChangeError, match="became shorter or was replaced"):
            list(stream)


def test_an_open_protocol_file_read_as_canal_json(tmp_path: Path, letters: DeadLetterFile) -> None:
    path = tmp_path / "one"
    path.write_bytes((1).to_bytes(8, "big") + opened(1, 5) + opened_mark(6))
    with pytest.raises(ChangeError, match="the messages are open-protocol"):
        list(CommittedChanges(MessageFiles([path], CanalJson(), json_lines)).items())
    path.write_bytes(canal(1, 5))
    with pytest.raises(ChangeError, match="the messages are canal-json"):
        list(CommittedChanges(MessageFiles([path], OpenProtocol(), open_protocol_events), letters=letters).items())


def test_a_storage_folder_is_followed(tmp_path: Path, letters: DeadLetterFile) -> None:
    root = tmp_path / "sink"
    day = root / "d" / "t" / "1" / "2026-01-02"
    day.mkdir(parents=True)
    (root / "metadata").write_text('{"checkpoint-ts": 10}')
    (day / "CDC000001.json").write_bytes(canal(1, 5) + canal(2, 12)[:30])
    folder = StorageFolder(root, CanalJson())
    stream = CommittedChanges(folder, tso_position(3), letters=letters, feed_start=1).items()
    assert places([next(stream), next(stream)]) == [3, 3], "the last line is waited for"
    (day / "CDC000001.json").write_bytes(canal(1, 5) + canal(2, 12))
    assert keys(until(stream, reached(9))) == {("5", "1")}
    (day / "CDC000002.json").write_bytes(canal(3, 13))
    meta = root / "d" / "t" / "meta"
    meta.mkdir()
    schema = {"Table": "t", "Schema": "d", "TableVersion": 14, "Query": "TRUNCATE TABLE t"}
    (meta / "schema_14_1.json").write_text(json.dumps(schema))
    (root / "metadata").write_text('{"checkpoint-ts": 20}')
    found = until(stream, reached(19))
    assert keys(found) == {("12", "2"), ("13", "3")}
    assert [item.op for item in found if isinstance(item, Statement)] == [Op.TRUNCATE]
    (day / "CDC000001.json").unlink()  # read and finished: it may be deleted
    (day / "CDC000003.json").write_bytes(canal(4, 23))
    (root / "metadata").write_text('{"checkpoint-ts": 30}')
    assert keys(until(stream, reached(29))) == {("23", "4")}
    (day / "CDC000005.json").write_bytes(canal(5, 33))
    with pytest.raises(PurgedError, match="has no file number 4"):
        list(stream)


def test_a_file_of_a_storage_folder_that_cannot_be_read_on_ends_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, letters: DeadLetterFile
) -> None:
    """The folder's timestamp goes on, and would promise what lies behind a line that is too long."""
    monkeypatch.setattr(files, "LONGEST", 500)
    root = tmp_path / "sink"
    day_file(root / "d" / "t", "2026-01-02", canal(1, 5), b"x" * 600 + b"\n", canal(2, 12))
    (root / "metadata").write_text('{"checkpoint-ts": 20}')
    stream = CommittedChanges(StorageFolder(root, CanalJson()), tso_position(3), letters=letters, feed_start=1).items()
    with pytest.raises(ChangeError, match="cannot be read behind a line of more than"):
        until(stream, reached(19))


def test_the_source_of_a_watch(tmp_path: Path) -> None:
    path = tmp_path / "one"
    now = time_tso(time.time())
    path.write_bytes(canal_mark(now - time_tso(120.0)) + canal(1, now) + canal_mark(now + 1))
    source = FollowedCarrier(CarrierSource(CarrierFormat("canal-json"), files=(path,)), tmp_path / "dead.jsonl")
    found = until(source.open(None), reached(now))
    assert keys(found) == {(str(now), "1")}
    assert source.ordinal(tso_position(now)) == now
    assert source.shown(now, None) == shown_timestamp(now)


# --- files that change while nobody reads them ---


def followed_once(path: Path, dead: Path, place: int, since: int = 4) -> list[Item]:
    source = FollowedCarrier(CarrierSource(CarrierFormat("canal-json"), files=(path,)), dead)
    stream = source.open(tso_position(since))
    try:
        return until(stream, reached(place))
    finally:
        del stream  # the last reference: as the end of the thread that follows


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: -len(canal(2, 8))])


def a_file_of(form: str, chance: random.Random, count: int) -> bytes:
    """Return changes out of order, some sent again, with their watermarks, and messages that cannot be decoded."""
    make, close = (canal, canal_mark) if form == "canal-json" else (opened, opened_mark)
    sent = list(range(10, 10 + count))
    lines, promised = [close(5)], 5
    while sent:
        lines.append(make(sent[0], sent.pop(chance.randrange(min(3, len(sent)))) * 10))
        if chance.random() < 0.3:
            promised = max(promised, 10 * min(sent, default=10 + count))
            lines.append(close(promised))
        if chance.random() < 0.1:
            lines.append(chance.choice(lines))  # a watermark that goes back, or a change once more
        if chance.random() < 0.1:
            lines.append(b'{"broken": 1}\n' if form == "canal-json" else part(b"{") + part(b"{"))
    begin = b"" if form == "canal-json" else (1).to_bytes(8, "big")
    return begin + b"".join(lines) + close(promised + 10_000)


@pytest.mark.parametrize("form", ["canal-json", "open-protocol"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32))
def test_a_file_is_read_again_from_a_place_that_has_all_behind_the_position(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, form: str, seed: int
) -> None:
    monkeypatch.setattr(file_marks, "_APART", 1)
    monkeypatch.setattr(file_marks, "_SAVE_SECONDS", 0.0)
    monkeypatch.setattr(files, "_READ", 300)
    monkeypatch.setattr(files, "_TURN", 3)
    monkeypatch.setattr(files, "_POLL_SECONDS", 0.001)
    chance, folder = random.Random(seed), tmp_path_factory.mktemp("files")
    paths = [folder / name for name in ("one", "two")]
    for path in paths:
        path.write_bytes(a_file_of(form, chance, 40))
    source = FollowedCarrier(CarrierSource(CarrierFormat(form), files=tuple(paths)), folder / "dead.jsonl")

    def kept(since: int, most: int) -> list[Item]:
        stream, found = source.open(tso_position(since)), list[Item]()
        for item in stream:
            found.append(item)
            if len(found) >= most or reached(10_000)(item):
                break
        stream.close()  # type: ignore[attr-defined]
        last = max((n for n, item in enumerate(found) if isinstance(item, Commit | Idle)), default=-1)
        return found[: last + 1]

    whole = kept(5, 10**6)
    (folder / "dead.jsonl.files.json").unlink()
    at, found = 5, list[Item]()
    while at < 10_000:
        found += kept(at, chance.randrange(1, 60))
        at = max([at, *places(found)])
    assert keys(found) == keys(whole)
    assert set(voids(found)) >= set(voids(whole))


def test_a_file_that_is_resumed_is_not_read_from_its_beginning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(file_marks, "_APART", 1)
    monkeypatch.setattr(files, "_READ", 300)
    path, dead = tmp_path / "one", tmp_path / "dead.jsonl"
    path.write_bytes(canal_mark(5) + b"".join(canal(n, n) + canal_mark(n + 1) for n in range(10, 60)))
    assert len(keys(followed_once(path, dead, 59, since=5))) == 50
    places_read: list[int] = []
    split = files.json_lines

    def noted(path: Path, following: bool, start: files.FilePlace) -> Iterator[Any]:
        places_read.append(start.byte)
        return split(path, following, start)

    monkeypatch.setitem(formats._FORMATS, "canal-json", formats._FORMATS["canal-json"]._replace(split=noted))
    with path.open("ab") as file:
        file.write(canal(60, 60) + canal_mark(61))
    assert keys(followed_once(path, dead, 60, since=59)) == {("60", "60")}
    assert len(keys(followed_once(path, dead, 60, since=30))) == 30
    assert keys(followed_once(path, dead, 60, since=4)) == {(str(n), str(n)) for n in range(10, 61)}
    assert places_read[0] > places_read[1] > places_read[2] == 0


@pytest.mark.parametrize("between", [b"", canal_mark(44)])
def test_an_undecodable_message_is_read_again_by_a_watch_that_was_killed_at_its_beginning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, between: bytes
) -> None:
    """It began at 50, which no watermark of the file had come to; the message may hold a change of 55."""
    monkeypatch.setattr(file_marks, "_APART", 1)
    monkeypatch.setattr(file_marks, "_SAVE_SECONDS", 0.0)
    path, dead = tmp_path / "one", tmp_path / "dead.jsonl"
    path.write_bytes(canal_mark(40) + b'{"broken": 1}\n' + between + canal(1, 45))
    source = FollowedCarrier(CarrierSource(CarrierFormat("canal-json"), files=(path,)), dead)
    stream = source.open(tso_position(50))
    assert places([next(stream), next(stream)]) == [50, 50], "the watermark behind the message has not come"
    stream.close()  # type: ignore[attr-defined]
    with path.open("ab") as file:
        file.write(canal(2, 55) + canal_mark(60))
    found = until(source.open(tso_position(50)), reached(59))
    assert keys(found) == {("55", "2")}
    assert 1 <= len(voids(found)) <= 2
    assert not voids(until(source.open(tso_position(59)), reached(59))), "it was given"


def test_a_change_that_is_sent_again_after_a_resume_is_given(letters: DeadLetterFile) -> None:
    """The sender went back behind the position: the following side may hold the older row again."""
    items = [mark(15), row(1, 10), mark(31), row(2, 35), row(1, 10, value="again"), mark(40)]
    assert keys(followed(items, letters, since=20)) == {("35", "2")}, "a range has nothing from before it"
    found = followed(items, letters, since=20, gives_earlier=True)
    assert keys(found) == {("35", "2"), ("10", "1")}
    late = [item for item in found if isinstance(item, Commit) and item.is_late]
    assert [item.end.offset for item in late] == [30]
    assert not voids(found)


def replaced(path: Path) -> None:
    path.with_name("new").write_bytes(canal_mark(3) + canal(1, 5) + canal_mark(7) + canal(3, 8))
    path.with_name("new").rename(path)


@pytest.mark.parametrize("change", [cut, replaced])
def test_a_file_that_lost_its_end_while_nobody_read_it_is_refused(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    path, dead = tmp_path / "one", tmp_path / "dead.jsonl"
    path.write_bytes(canal_mark(3) + canal(1, 5) + canal_mark(7) + canal(2, 8))
    assert keys(followed_once(path, dead, 6)) == {("5", "1")}
    marks = tmp_path / "dead.jsonl.files.json"
    assert marks.stat().st_mode & 0o777 == 0o600
    assert list(json.loads(marks.read_text())) == [str(path)]
    change(path)
    with path.open("ab") as file:
        file.write(canal(4, 9) + canal_mark(20))
    for _ in range(2):  # a refused file is not marked
        with pytest.raises(ChangeError, match="became shorter or was replaced while nobody read it"):
            followed_once(path, dead, 19, since=6)
    another = FollowedCarrier(CarrierSource(CarrierFormat("canal-json"), files=(path,)), dead, reader="a new watch")
    assert keys(until(another.open(tso_position(8)), reached(19))) == {("9", "4")}, "it proves its own beginning"
    marks.unlink()
    assert keys(followed_once(path, dead, 19, since=8)) == {("9", "4")}


def test_a_file_that_grew_or_was_copied_while_nobody_read_it_is_read_on(tmp_path: Path) -> None:
    path, dead = tmp_path / "one", tmp_path / "dead.jsonl"
    path.write_bytes(canal_mark(3) + canal(1, 5) + canal_mark(7) + b'{"half": ')
    followed_once(path, dead, 6)
    whole = path.read_bytes() + b"0}\n" + canal(2, 8) + canal_mark(9)
    path.unlink()
    path.write_bytes(whole)
    assert keys(followed_once(path, dead, 8, since=6)) == {("8", "2")}


def test_a_file_that_is_cut_and_grows_again_at_once_is_refused(tmp_path: Path) -> None:
    path, dead = tmp_path / "one", tmp_path / "dead.jsonl"
    whole = canal_mark(3) + canal(1, 5) + canal_mark(7) + canal(2, 8)
    path.write_bytes(whole)
    source = FollowedCarrier(CarrierSource(CarrierFormat("canal-json"), files=(path,)), dead)
    stream = source.open(tso_position(4))
    until(stream, reached(6))
    next(stream)
    with path.open("r+b") as file:
        file.write(canal_mark(3) + canal(3, 5) + canal_mark(7) + canal(4, 8) + canal_mark(9))
    with pytest.raises(ChangeError, match="became shorter or was replaced"):
        list(stream)


@pytest.mark.parametrize("content", ["[]", "{", '{"/a": {"size": "x", "last_bytes": ""}}', '{"/a": 1}'])
def test_marks_that_cannot_be_read_end_it(tmp_path: Path, content: str) -> None:
    path = tmp_path / "one"
    path.write_bytes(canal_mark(3))
    (tmp_path / "dead.jsonl.files.json").write_text(content)
    with pytest.raises(StoreError, match="holds no marks of followed files"):
        followed_once(path, tmp_path / "dead.jsonl", 9)


def test_each_broker_says_what_is_wrong_with_it() -> None:
    errors = BrokerErrors()
    for text in (
        "b1:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused (after 0ms in state CONNECT)",
        "b2:9092/bootstrap: Connect to ipv4#10.0.0.2:9092 failed: Connection timed out (after 9ms in state CONNECT)",
        "2/2 brokers are down",
        "b2:9092/2: Failed to resolve 'b2:9092': Name or service not known (after 1ms in state CONNECT)",
    ):
        errors(SimpleNamespace(str=lambda text=text: text))  # type: ignore[arg-type]
    assert errors.text() == (
        "b1:9092: Connect to ipv4#10.0.0.1:9092 failed: Connection refused; "
        "b2:9092: Failed to resolve 'b2:9092': Name or service not known"
    )


@pytest.mark.attack(
    "reverse", "one of the changefeed's partition files is not named",
    "one error that names the missing files",
)  # fmt: skip
@pytest.mark.parametrize(
    ("there", "given", "missing"),
    [
        (["p-0.jsonl", "p-1.jsonl"], ["p-0.jsonl"], "p-1.jsonl"),
        (["p-0.jsonl", "p-2.jsonl"], ["p-0.jsonl", "p-2.jsonl"], "p-1.jsonl"),
        (["p-1.jsonl", "p-2.jsonl"], ["p-1.jsonl", "p-2.jsonl"], ""),  # some begin to count at 1
        (["p-00.jsonl", "p-01.jsonl", "p-03.jsonl"], ["p-01.jsonl", "p-03.jsonl"], "p-00.jsonl, p-02.jsonl"),
        (["p-0.jsonl", "p-1.jsonl"], ["p-1.jsonl", "p-0.jsonl"], ""),
        (["p-0.jsonl", "p-1.cdc", "q-1.jsonl", "p.jsonl"], ["p-0.jsonl"], ""),
        (["changes.jsonl"], ["changes.jsonl"], ""),
        (["shop1.jsonl", "shop2.jsonl"], ["shop1.jsonl"], ""),  # two changefeeds
        (["p-7.jsonl"], ["p-7.jsonl"], ""),  # one alone may be named by anything
        (["c-20261101.jsonl", "c-20261105.jsonl"], ["c-20261105.jsonl"], ""),  # a day is no partition
    ],
)
def test_a_partition_file_that_is_not_named_is_missed(
    tmp_path: Path, there: list[str], given: list[str], missing: str
) -> None:
    for name in there:
        (tmp_path / name).write_text("")
    files = MessageFiles([tmp_path / name for name in given], CanalJson(), json_lines)
    if not missing:
        assert isinstance(next(files.follow(None)), Heartbeat)
        return
    with pytest.raises(ChangeError) as caught:
        next(files.follow(None))
    assert caught.value.message.startswith(f"{tmp_path}: partition files are missing: {missing}; named ")
    assert "reverse.carrier.files" in caught.value.hint

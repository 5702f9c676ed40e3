"""The reverse direction: the target is written, the sources follow, and nothing lies unread between the directions."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.changes.carriers.dead_letters import DeadLetterFile
from migverify.changes.model import AfterImages, Commit, DecodedTable, Idle, Op, Position, Rows, Statement, TableMap
from migverify.changes.positions import parse_position, time_tso, tso_position, tso_time
from migverify.config import Config, load_config
from migverify.errors import (
    ChangeError,
    ConfigError,
    EndpointError,
    PlanError,
    PrivilegeError,
    ReadError,
    UsageError,
)
from migverify.exposition import page
from migverify.model import (
    ColumnDef,
    Endpoint,
    Flavor,
    IndexDef,
    RunInfo,
    StoredKind,
    TableDef,
    TableRef,
    Verdict,
)
from migverify.sql.applied import MARKER_NAME_WIDTH
from migverify.sql.key_range import KeyColumn
from migverify.store.open import open_store
from migverify.store.results import ResultStore
from migverify.tables import handover, watch_status, watch_streams
from migverify.tables.handover import read_unread, through_of
from migverify.tables.last_status import LAST_STATUS, LastStatus
from migverify.tables.loss import reverse_run
from migverify.tables.recheck import proof_run
from migverify.tables.run_facts import BEGAN, position_of_run
from migverify.tables.watch_identity import Watched
from migverify.tables.watch_run import _new_tables
from migverify.tables.watch_status import Base, TablesStatus, TableStatus, WatchFacts, WatchRules, status_of, uncarried
from migverify.tables.watch_streams import (
    check_marker,
    is_followed,
    marker_name,
    reverse_stream,
    stream_of,
    watched_pairs,
)
from migverify.watch.applied import Marker, SettleTime
from migverify.watch.ledger import Ledger, PairCounts
from migverify.watch.run import WatchRun
from migverify.watch.status import status_metrics
from migverify.watch.stream import Collected, SourceProgress, StreamReader
from migverify.watch.touched import WatchedTable
from tests.fakes import FakeStore
from tests.toy_tables import make_pair

TSO = 462_190_000_000_000_000
PLAIN = 'source: {url: "mysql://app@db1"}\ntarget: {url: "tidb://root@tidb"}\ntables: {include: ["app.*"]}\n'
REVERSE = PLAIN + "reverse: {carrier: {format: canal-json, files: [sink.json]}"


def config_of(folder: Path, text: str) -> Config:
    path = folder / "migverify.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(path)


@given(st.integers(10**15, 2**63 - 1))
def test_a_timestamp_is_a_position(tso: int) -> None:
    assert parse_position(str(tso)) == parse_position(f"tso:{tso}") == parse_position(str(tso_position(tso)))
    assert parse_position(f"tidb-binlog:{tso}") == tso_position(tso)


def test_the_tables_of_the_target_are_watched(tmp_path: Path) -> None:
    config = config_of(tmp_path, REVERSE + ", applied: marker, marker: ops.m}")
    pairs = [make_pair(), make_pair(name="ops.m")]
    found = watched_pairs(config, pairs, reverse=True)
    assert [(w.number, w.endpoint, w.database, w.table) for w in found] == [(0, "target", "app", "t")]
    assert marker_name(config, reverse=True) == "ops.m"
    assert marker_name(config) is None


def test_a_table_that_a_source_table_would_lead_to_is_in_scope(tmp_path: Path) -> None:
    text = PLAIN.replace('["app.*"]', '["app.*"], exclude: ["app.logs"]') + 'routes: [{from: "app.*", to: "shop.*"}]\n'
    config, pairs = config_of(tmp_path, text), [make_pair()]
    asked = [("shop", "new"), ("shop", "logs"), ("app", "new"), ("other", "t")]
    assert [name for name in asked if is_followed(config, pairs, *name)] == [("shop", "new")]


def test_tables_that_had_no_pair_at_the_start_are_found_in_the_catalog(tmp_path: Path) -> None:
    pairs = [make_pair(), replace(make_pair(name="app.only"), source="", sources=(), target_side=None)]
    in_scope = partial(is_followed, config_of(tmp_path, PLAIN), pairs)
    rows = [("app", "t", "BASE TABLE"), ("app", "only", "BASE TABLE"), ("app", "m", "BASE TABLE"),
            ("app", "later", "BASE TABLE"), ("app", "view", "VIEW"), ("other", "t", "BASE TABLE")]  # fmt: skip
    session: Any = SimpleNamespace(query=lambda _: rows)
    assert list(_new_tables(pairs, in_scope, "app.m", session)) == [("app", "later")]


def test_what_the_source_applied_is_a_marker_or_time_and_no_checkpoint(tmp_path: Path) -> None:
    config = config_of(tmp_path, REVERSE + ", settle_seconds: 7}")
    stream = reverse_stream(config, tso_position(TSO), "run")
    assert (type(stream.applied), stream.applied.proof, stream.endpoint.name) == (SettleTime, False, "target")
    config = config_of(tmp_path, REVERSE + ", applied: marker, marker: ops.m}")
    stream = reverse_stream(config, tso_position(TSO), "run")
    assert isinstance(stream.applied, Marker)
    assert (stream.applied.on_source, stream.applied.on_target, stream.marker_table) == ("ops.m", "ops.m", ("ops", "m"))
    with pytest.raises(ConfigError, match="applied"):
        config_of(tmp_path, REVERSE + ", applied: checkpoint}")


def carried_at(tmp_path: Path, ahead: float) -> Iterator[Any]:
    """Follow a changefeed whose watermark is ahead of the target's time, 2 days from now."""
    first, last = (time_tso(time.time() + 2 * 86_400 + seconds) for seconds in (-600.0, ahead))
    sink = tmp_path / f"sink{ahead:.0f}.json"
    marks = ({"type": "TIDB_WATERMARK", "es": 1, "_tidb": {"watermarkTs": at}} for at in (first, last))
    sink.write_text("".join(json.dumps(mark) + "\n" for mark in marks))
    text = REVERSE.replace("sink.json]", f"{sink}], dead_letters: {tmp_path / 'dead'}") + "}\n"
    stream = reverse_stream(config_of(tmp_path, text), tso_position(first), "run", {"target": "secret"})
    assert "secret" not in repr(stream)
    return stream.changes.open(tso_position(first))


def test_a_watermark_ahead_of_the_target_is_that_of_another_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def connect(endpoint: Endpoint, password: str | None) -> object:
        asked.append((endpoint.name, password))
        return nullcontext()

    monkeypatch.setattr(watch_streams, "open_session", connect)
    monkeypatch.setattr(watch_streams, "current_timestamp", lambda _: time_tso(time.time() + 2 * 86_400))
    assert isinstance(next(carried_at(tmp_path, 5.0)), Idle)
    with pytest.raises(ChangeError, match=r"36\d\d s ahead of the configured TiDB"):
        list(carried_at(tmp_path, 3600.0))
    assert set(asked) == {("target", "secret")}


def test_a_target_that_does_not_answer_has_the_time_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> object:
        raise EndpointError("no answer")

    monkeypatch.setattr(watch_streams, "open_session", refuse)
    with pytest.raises(ChangeError, match="ahead of the configured TiDB"):
        list(carried_at(tmp_path, 5.0))


def test_without_a_changefeed_there_is_nothing_to_follow(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no changefeed of the target is configured"):
        reverse_stream(config_of(tmp_path, PLAIN), tso_position(TSO), "run")


def test_a_marker_does_not_reach_several_sources(tmp_path: Path) -> None:
    text = (REVERSE + ", applied: marker, marker: ops.m}").replace(
        'source: {url: "mysql://app@db1"}', 'sources: {a: {url: "mysql://app@db1"}, b: {url: "mysql://app@db2"}}'
    )
    with pytest.raises(ConfigError, match="one source only"):
        reverse_stream(config_of(tmp_path, text), tso_position(TSO), "run")


@pytest.mark.parametrize("places", ["", ", kafka: {servers: b, topics: [t]}, files: [x]"])
def test_a_carrier_is_read_from_one_place(tmp_path: Path, places: str) -> None:
    with pytest.raises(ConfigError, match="`kafka` or from `files`"):
        config_of(tmp_path, PLAIN + f"reverse: {{carrier: {{format: canal-json{places}}}}}\n")


def run_of(**facts: Any) -> RunInfo:
    return RunInfo("r1", "watch", 0.0, None, Verdict.INCONCLUSIVE, "h", {}, facts)


def test_a_watch_begins_where_the_last_process_of_the_other_direction_began() -> None:
    endpoints = {"target": {"position": f"tidb-binlog:{TSO}"}}
    assert position_of_run([run_of(endpoints=endpoints)], "target") == tso_position(TSO)
    later = {BEGAN: {"target": f"tidb-binlog:{TSO + 5}"}}
    assert position_of_run([run_of(endpoints=endpoints, **later)], "target") == tso_position(TSO + 5)


def test_a_forward_watch_that_has_not_ended_is_no_beginning() -> None:
    with pytest.raises(PlanError, match="it has not ended") as caught:
        through_of(run_of(watch=True), "source")
    assert "--until-drained" in str(caught.value.hint)
    place = {"file": "b.000001", "offset": 40, "gtids": "x:1-3"}
    assert through_of(run_of(through={"source": place}), "source") == Position("b.000001", 40, "x:1-3")


def test_what_was_written_behind_the_end_of_the_forward_watch_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = make_pair()
    side = pair.sources[0]
    watched = [Watched(0, "source", "app", "t", ("id",), side.sql.key, pair=pair)]
    items = [
        Rows(Op.INSERT, TableMap("app", "t", ()), b"7", "b.000001", 60, 0),
        Rows(Op.INSERT, TableMap("app", "other", ()), b"8", "b.000001", 70, 0),
        Statement(Op.DDL, (("app", "t"),), "ALTER TABLE t ADD x INT", "app", "b.000001", 80, 0),
        Statement(Op.DDL, (("app", "other"),), "DROP TABLE other", "app", "b.000001", 90, 0),
    ]
    asked: list[Position] = []

    def behind(*arguments: Any) -> Any:
        asked.append(arguments[2])
        return iter(items)

    monkeypatch.setattr(handover, "_behind", behind)
    monkeypatch.setattr(handover, "touched_keys", lambda _, event: iter([(event.images.decode(),)]))
    ledger = Ledger(tmp_path / "w.db")
    run = run_of(through={"source": {"file": "b.000001", "offset": 40, "gtids": ""}})
    found = read_unread(config_of(tmp_path, PLAIN), {}, run, watched, None, ledger)  # type: ignore[arg-type]
    assert (found.rows, found.statements, asked) == (1, 1, [Position("b.000001", 40)])
    assert ledger.counts(0)[0].pending == 1
    assert [(pair, kind) for pair, kind, _ in ledger.notes()] == [(0, "stale")]


def test_whether_the_last_unread_change_of_a_key_left_a_row_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a key that is found on neither side would be proved by that. Batches change nothing."""
    side = make_pair().sources[0]
    watched = [Watched(0, "source", "app", "t", ("id",), side.sql.key, pair=make_pair())]
    table = DecodedTable.of("app", "t", ("id",), ("id",))
    changes = [(Op.INSERT, "1"), (Op.INSERT, "2"), (Op.DELETE, "3"), (Op.DELETE, "2"), (Op.INSERT, "3")]
    items = [Rows(op, table, table.packed([(key,)]), "b.000001", 60, 0) for op, key in changes]
    monkeypatch.setattr(handover, "_behind", lambda *_: iter(items))
    run = run_of(through={"source": {"file": "b.000001", "offset": 40, "gtids": ""}})
    for at_once in (1, 2, 100):
        monkeypatch.setattr(handover, "KEYS_AT_ONCE", at_once)
        ledger = Ledger(tmp_path / f"{at_once}.db")
        ledger.touch({(0, ("1",)): (1, 0, 0)}, {}, 0.0, origin="run r0")
        read_unread(config_of(tmp_path, PLAIN), {}, run, watched, None, ledger)  # type: ignore[arg-type]
        found = {entry.key[0]: entry.there for entry in ledger.due({0: 0}, time.time(), 10)}
        assert found == {"1": True, "2": False, "3": True}, at_once


@pytest.mark.parametrize("text", ["abc", "", "1_0", "٣", " 7", None])
@pytest.mark.parametrize("families", [("integer",), ("integer", "decimal")])
def test_a_key_that_its_type_cannot_hold_is_a_dead_letter_and_its_table_is_compared(
    tmp_path: Path, families: tuple[str, ...], text: str | None
) -> None:
    stream = reverse_stream(config_of(tmp_path, REVERSE + ", }"), tso_position(TSO), "run")
    letters = stream.changes.dead_letters  # type: ignore[attr-defined]
    object.__setattr__(stream, "changes", Carried())
    names = tuple(f"k{n}" for n in range(len(families)))
    key = tuple(KeyColumn(f"`{n}`", n, family, nullable=True) for n, family in zip(names, families, strict=True))
    watched = WatchedTable(0, "target", "app", "t", names, key)
    reader = StreamReader(0, stream, {("app", "t"): watched}, lambda *_: False, None)
    table = DecodedTable.of("app", "t", names, names)
    for offset, value in enumerate(("007", text, text, "8")):
        reader._take_item(Rows(Op.INSERT, table, table.packed([(value,) * len(names)]), "topic/a/3", offset, 0))
    reader._take_item(Commit("", tso_position(TSO + 1), 0.0))
    taken = reader.take()
    keys = {key for _, key in taken.keys}
    assert {("7",) * len(names), ("8",) * len(names)} == keys - {(None,) * len(names)}
    assert [one.kind for one in taken.findings] == ([] if text is None else ["ddl"])
    if text is not None:
        assert "is no key of the types" in taken.findings[0].text
        kept = list(DeadLetterFile(letters).read())
        assert [str(reject.place) for reject in kept] == ["topic/a/3@1", "topic/a/3@2"]


def test_rows_of_a_table_without_a_key_are_written_behind_the_end_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = [Watched(0, "source", "app", "t", (), (), pair=make_pair())]
    rows = Rows(Op.INSERT, TableMap("app", "t", ()), b"7", "b.000001", 60, 0)
    monkeypatch.setattr(handover, "_behind", lambda *_: iter([rows]))
    monkeypatch.setattr(handover, "count_rows", lambda _: 3)
    run = run_of(through={"source": {"file": "b.000001", "offset": 40, "gtids": ""}})
    with closing(Ledger(tmp_path / "w.db")) as ledger:
        found = read_unread(config_of(tmp_path, PLAIN), {}, run, watched, None, ledger)  # type: ignore[arg-type]
        assert [kind for _, kind, _ in ledger.notes()] == ["keyless"]
    assert found.rows == 3


class Carried:
    """Places of a changefeed."""

    hides_cascades = False

    def open(self, since: Position | None) -> Any:
        del since
        return iter(())

    def ordinal(self, position: Position) -> int:
        return position.offset

    def shown(self, ordinal: int, like: Position | None) -> str:
        del like
        return f"tso:{ordinal}"


VERIFIED = Base("r0", Verdict.MATCH)


def reverse_status(
    tmp_path: Path, since: dict[int, dict[int, int]], applied: int | None, drained_to: int | None = None, *,
    base: Base = VERIFIED, **counts: Any,
) -> TablesStatus:  # fmt: skip
    stream = reverse_stream(config_of(tmp_path, REVERSE + "}"), tso_position(TSO), "run")
    object.__setattr__(stream, "changes", Carried())
    progress = SourceProgress(
        stream, position=tso_position(TSO + 9), ordinal=TSO + 9, applied=applied, received_at=1e12
    )
    watched = watched_pairs(config_of(tmp_path, REVERSE + "}"), [make_pair()], reverse=True)
    rules = WatchRules(reverse=True, is_as_of=True, until=None if drained_to is None else {0: drained_to})
    facts = WatchFacts("r", [progress], rules, watched, {0: base}, {0: PairCounts(**counts)},
                       since, [], final=drained_to is not None)  # fmt: skip
    return status_of(facts)


def test_the_headline_says_as_of_which_timestamp_a_rollback_is_proved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now = tso_time(TSO) + 3.0
    monkeypatch.setattr(watch_status, "time", SimpleNamespace(time=lambda: now, monotonic=time.monotonic))
    status = reverse_status(tmp_path, {}, TSO + 9, proved=5, images=5)
    assert (status.verdict, status.as_of, status.reverse) == (Verdict.MATCH, f"tso:{TSO + 9}", True)
    assert status.headline().startswith(f"rollback MATCH as of tso:{TSO + 9}, 0 keys open; target read to")


def test_tables_that_no_message_came_of_are_named(tmp_path: Path) -> None:
    """A filter of the changefeed looks like a table that nobody writes."""
    (finding,) = reverse_status(tmp_path, {}, TSO + 9, proved=5, images=0).findings
    assert finding.startswith("the changefeed carried no row of app.t: where its filter leaves a table out")
    assert reverse_status(tmp_path, {}, TSO + 9, proved=5, images=5).findings == ()


def stood_still(tmp_path: Path, behind: float, stood: float) -> TablesStatus:
    """Return the status of a watch whose carrier is alive, and whose watermark stands."""
    place = time_tso(time.time() - behind)
    config = config_of(tmp_path, REVERSE + ", applied: marker, marker: ops.m}")
    stream = reverse_stream(config, tso_position(place), "run")
    object.__setattr__(stream, "changes", Carried())
    progress = SourceProgress(
        stream, position=tso_position(place), ordinal=place, applied=place, received_at=time.time(),
        moved_at=time.monotonic() - stood,
    )  # fmt: skip
    watched, counts = watched_pairs(config, [make_pair()], reverse=True), {0: PairCounts(proved=5, images=5)}
    return status_of(WatchFacts("r", [progress], WatchRules(reverse=True), watched, {0: VERIFIED}, counts, {}, []))


@pytest.mark.attack(
    "reverse", "the changefeed's watermark stands still, and its brokers or files answer",
    "INCONCLUSIVE after a minute, also where no key is open",
)  # fmt: skip
def test_a_changefeed_that_stands_still_is_no_match(tmp_path: Path) -> None:
    status = stood_still(tmp_path, 5.0, 5.0)
    assert (status.verdict, status.as_of_verdict) == (Verdict.MATCH, Verdict.MATCH)
    status = stood_still(tmp_path, 90.0, 5.0)
    assert (status.verdict, status.as_of_verdict) == (Verdict.MATCH, Verdict.INCONCLUSIVE), "it catches up"
    status = stood_still(tmp_path, 3600.0, 3600.0)
    assert (status.verdict, status.as_of_verdict) == (Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE)
    assert "target: the changefeed's watermark has stood at tso:" in status.reasons[0]
    assert status.headline().startswith("rollback INCONCLUSIVE as of tso:")


def test_a_watermark_that_moves_on_is_noted(tmp_path: Path) -> None:
    stream = reverse_stream(config_of(tmp_path, REVERSE + "}"), tso_position(TSO), "run")
    progress = SourceProgress(stream, moved_at=0.0)
    progress.moved(Collected(position=tso_position(TSO), received_at=time.time()))
    moved = progress.moved_at
    assert moved > 0.0
    progress.moved(Collected(position=tso_position(TSO), received_at=time.time()))
    assert progress.moved_at == moved


def test_metrics_name_the_direction_and_the_time_that_is_proved(tmp_path: Path) -> None:
    text = page(status_metrics(reverse_status(tmp_path, {}, TSO + 9, proved=5, images=5)))
    assert 'migverify_watch_info{direction="reverse",run="r"} 1' in text
    assert f"migverify_watch_as_of_seconds {tso_time(TSO + 9)}" in text
    assert "migverify_watch_as_of_seconds NaN" in page(status_metrics(reverse_status(tmp_path, {}, None)))


def test_open_keys_hold_the_timestamp_back(tmp_path: Path) -> None:
    status = reverse_status(tmp_path, {0: {0: TSO + 4}}, TSO + 9, pending=3, oldest=1.0)
    assert (status.verdict, status.as_of) == (Verdict.INCONCLUSIVE, f"tso:{TSO + 3}")
    assert "3 keys open, oldest " in status.headline()


@pytest.mark.parametrize(
    ("place", "diverged", "verdict"),
    [(TSO + 4, 0, Verdict.INCONCLUSIVE), (TSO + 5, 0, Verdict.INCONCLUSIVE), (TSO + 6, 0, Verdict.MATCH),
     (TSO + 6, 1, Verdict.MISMATCH), (0, 0, Verdict.INCONCLUSIVE)],
)  # fmt: skip
def test_a_drain_under_load_is_as_of_its_place(tmp_path: Path, place: int, diverged: int, verdict: Verdict) -> None:
    """Keys that were first written behind it are not what it is about; 0 is a key whose writes are not known."""
    status = reverse_status(tmp_path, {0: {0: place}}, TSO + 9, TSO + 5, pending=3, doubt=1, hot=1, oldest=1.0,
                            diverged=diverged, proved=5, images=9)  # fmt: skip
    assert status.verdict is verdict
    assert verdict is not Verdict.MATCH or status.as_of == f"tso:{TSO + 5}"


def test_before_the_source_is_known_to_have_applied_there_is_no_timestamp(tmp_path: Path) -> None:
    status = reverse_status(tmp_path, {}, None, proved=5)
    assert (status.verdict, status.as_of) == (Verdict.INCONCLUSIVE, "")
    assert "rollback INCONCLUSIVE as of no place yet" in status.headline()
    assert any("what the source has applied is not known yet" in reason for reason in status.reasons)


def test_the_last_status_of_a_watch_is_kept_for_others(tmp_path: Path) -> None:
    status = reverse_status(tmp_path, {0: {0: TSO + 4}}, TSO + 9, pending=2, doubt=1, oldest=time.time() - 5, images=3)
    kept = LastStatus.of(status)
    assert (kept.verdict, kept.as_of, kept.open_keys, kept.diverged) == (Verdict.INCONCLUSIVE, f"tso:{TSO + 3}", 3, 0)
    assert kept.oldest_seconds == pytest.approx(5, abs=1)
    assert kept.reason.startswith("app.t: 2 written keys are not proved yet")
    different = LastStatus.of(reverse_status(tmp_path, {}, TSO + 9, diverged=1))
    assert (different.verdict, different.reason) == (Verdict.MISMATCH, "app.t: 1 key is diverged")
    with closing(Ledger(tmp_path / "w.db")) as ledger:
        ledger.keep(LAST_STATUS, kept.as_text())
    assert LastStatus.of_run(run_of(watch=True), tmp_path / "w.db") == kept
    assert LastStatus.of_run(run_of(watch=True), tmp_path / "none.db") is None
    ended = replace(run_of(watch=True, **{LAST_STATUS: kept.as_text()}), finished=1.0)
    assert LastStatus.of_run(ended, tmp_path / "none.db") == kept


def test_a_base_that_proved_less_names_its_origin_and_the_command(tmp_path: Path) -> None:
    status = reverse_status(
        tmp_path, {}, TSO + 9, base=Base("r2", Verdict.INCONCLUSIVE, "3 chunks unread", "r1"), proved=5
    )
    assert (
        "run r2 did not prove this table, as it rests on run r1: 3 chunks unread "
        "(migverify tables verify --recheck r2 reads it again)"
    ) in status.tables[0].reasons


def test_table_status_is_exported() -> None:
    assert {"pending", "doubt", "hot", "diverged"} <= set(TableStatus.__slots__)


def test_a_changefeed_that_carried_nothing_may_be_that_of_another_cluster(tmp_path: Path) -> None:
    status = reverse_status(tmp_path, {}, TSO + 9)
    assert status.verdict is Verdict.INCONCLUSIVE
    assert any("whether it is that of this target is not known" in reason for reason in status.reasons)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=30), st.integers(0, 60), st.integers(0, 30))
def test_a_stream_that_was_read_past_a_marker_has_shown_it(steps: list[int], read: int, shown: int) -> None:
    """Marker n is committed before place p of the stream: once that was read, n or a later one must have come."""
    marker, place, expected = Marker("ops.m", "ops.m", "w", grace=0.0), 0, []
    for number, step in enumerate(steps, 1):
        place += step
        marker.expect(number, place)
        expected.append((number, place))
    if shown:
        marker.passed(shown, 0)
    missing = [number for number, at in expected if at <= read and number > shown]
    assert bool(marker.lacks(read)) is bool(missing)
    assert not missing or f"marker {missing[0]} " in marker.lacks(read)


def test_a_marker_of_another_watch_in_the_same_table_is_none(tmp_path: Path) -> None:
    """The forward feed carries that of the forward watch onto the target; a proof runs beside the service."""
    stream = reverse_stream(
        config_of(tmp_path, REVERSE + ", applied: marker, marker: ops.m}"), tso_position(TSO), "run"
    )
    object.__setattr__(stream, "changes", Carried())
    reader = StreamReader(0, stream, {}, lambda *_: False, None)
    table = DecodedTable.of("ops", "m", ("name", "number", "written"), ("name",))
    for name, number in (("migverify source", "500"), ("migverify target other", "9"), ("migverify target run", "3")):
        reader._take_item(Rows(Op.INSERT, table, table.packed([(name, number, "2026-01-01")]), "tso", TSO, 0))
    reader._take_item(Commit("", tso_position(TSO + 1), 0.0))
    assert isinstance(stream.applied, Marker)
    assert (stream.applied._seen, stream.applied._ordinals) == (3, {3: TSO + 1})


@pytest.mark.parametrize("number", ["x", "", None, "-1", "9" * 5000, "9" * 19, "1.5"])
def test_a_marker_row_without_a_number_is_none(tmp_path: Path, number: str | None) -> None:
    stream = reverse_stream(
        config_of(tmp_path, REVERSE + ", applied: marker, marker: ops.m}"), tso_position(TSO), "run"
    )
    object.__setattr__(stream, "changes", Carried())
    reader = StreamReader(0, stream, {}, lambda *_: False, None)
    table = DecodedTable.of("ops", "m", ("name", "number"), ("name",))
    images = table.packed([("migverify target run", "3"), ("migverify target run", number)])
    reader._take_item(Rows(Op.INSERT, table, images, "tso", TSO, 0))
    reader._take_item(Commit("", tso_position(TSO + 1), 0.0))
    assert isinstance(stream.applied, Marker)
    assert (stream.applied._seen, stream.applied._ordinals) == (3, {3: TSO + 1})


@pytest.mark.parametrize(
    ("layout", "named", "stale"),
    [(AfterImages, ("id",), True), (AfterImages, (), True), (AfterImages, ("id", "code"), False),
     (AfterImages, ("code",), False), (DecodedTable, ("id",), False)],
)  # fmt: skip
def test_an_update_without_the_old_value_of_the_watched_key_makes_the_table_stale(
    tmp_path: Path, layout: type[DecodedTable], named: tuple[str, ...], stale: bool
) -> None:
    stream = reverse_stream(config_of(tmp_path, REVERSE + "}"), tso_position(TSO), "run")
    object.__setattr__(stream, "changes", Carried())
    watched = WatchedTable(
        0, "target", "app", "t", ("code",), (KeyColumn("`code`", "`code`", "string", nullable=False),)
    )
    reader = StreamReader(0, stream, {("app", "t"): watched}, lambda *_: False, None)
    table = layout.of("app", "t", ("id", "code"), named)
    for number in ("1", "2"):
        images = [(number, f"c{number}")] * (1 if layout is AfterImages else 2)
        reader._take_item(Rows(Op.UPDATE, table, table.packed(images), "tso", TSO, 0))
    reader._take_item(Commit("", tso_position(TSO + 1), 0.0))
    taken = reader.take()
    assert {key for _, key in taken.keys} == {("c1",), ("c2",)}
    text = "rows were updated, and the changefeed sends no old values of the key column code"
    assert [(one.kind, one.pair, one.text) for one in taken.findings] == ([("ddl", 0, text)] if stale else [])


MARKER_TABLE = TableDef(
    TableRef("", "ops", "m"),
    tuple(ColumnDef(name, 1, "x", "x", nullable=False) for name in ("NAME", "number", "written")),
    (IndexDef("PRIMARY", True, ("NAME",), (None,)), IndexDef("n", False, ("number",), (None,))), 0, 0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("target", "source", "failure", "kept", "words"),
    [
        (MARKER_TABLE, MARKER_TABLE, None, True, ""),
        (None, MARKER_TABLE, None, True, "ops.m on target does not exist"),
        (MARKER_TABLE, None, None, True, "ops.m on source does not exist"),
        (replace(MARKER_TABLE, columns=MARKER_TABLE.columns[:1]), MARKER_TABLE, None, True, "has no column number"),
        (replace(MARKER_TABLE, indexes=()), MARKER_TABLE, None, True, "on target has not the column name as its"),
        (MARKER_TABLE, replace(MARKER_TABLE, indexes=MARKER_TABLE.indexes[1:]), None, True, "on source has not"),
        (MARKER_TABLE, MARKER_TABLE, PrivilegeError("INSERT command denied"), True, "no marker can be written.*denied"),
        (MARKER_TABLE, MARKER_TABLE, ReadError("Data too long"), True, "no marker can be written.*too long"),
        (MARKER_TABLE, MARKER_TABLE, None, False, "did not keep marker 1"),
    ],
)  # fmt: skip
def test_a_marker_that_cannot_work_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: TableDef | None, source: TableDef | None,
    failure: Exception | None, kept: bool, words: str,
) -> None:  # fmt: skip
    config = config_of(tmp_path, REVERSE + ", applied: marker, marker: ops.m}")
    tables, rows = {"target": target, "source": source}, []

    class Pool:
        @contextmanager
        def session(self, endpoint: Endpoint) -> Iterator[Any]:
            def execute(sql: str) -> None:
                assert (endpoint.name, "`ops`.`m`" in sql) == ("target", True)
                if failure is not None:
                    raise failure
                rows.extend([("1",)] if kept else [])

            yield SimpleNamespace(flavor=Flavor.TIDB, execute=execute, query=lambda _: rows)

    monkeypatch.setattr(watch_streams, "read_table", lambda _session, endpoint, *_: tables[endpoint])
    stream = reverse_stream(config, tso_position(TSO), "run")
    with pytest.raises(ConfigError, match=words) if words else nullcontext():
        check_marker(stream, config.sources, Pool())  # type: ignore[arg-type]
    assert bool(rows) is (not words)


@pytest.mark.parametrize("shard", ["a", "shard-of-a-rather-long-name-eu-west-1"])
def test_each_forward_watch_has_a_marker_row_of_its_own(tmp_path: Path, shard: str) -> None:
    """A second one beside it counted on in the row of the first: its marker seemed to have arrived."""
    text = PLAIN.replace('source: {url: "mysql://app@db1"}', f'sources: {{{shard}: {{url: "mysql://app@db1"}}, '
                         f'{shard}2: {{url: "mysql://app@db2"}}}}')  # fmt: skip
    config = config_of(tmp_path, text + "watch: {applied: marker, marker: ops.m}\n")
    runs = ("20261127T000907-3f0a11", "20261127T000907-3f0a12")
    streams = [
        stream_of(config, {}, endpoint, Position("b.000001", 4), run) for run in runs for endpoint in config.sources
    ]
    rows = {stream.applied.name for stream in streams if isinstance(stream.applied, Marker)}
    assert (len(rows), rows) == (4, {stream.marker_name for stream in streams})
    assert max(map(len, rows)) <= MARKER_NAME_WIDTH


def test_a_settle_time_needs_no_marker(tmp_path: Path) -> None:
    config = config_of(tmp_path, REVERSE + "}")
    check_marker(reverse_stream(config, tso_position(TSO), "run"), config.sources, None)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    with closing(open_store(f"sqlite:///{tmp_path}/runs.db")) as opened:
        yield opened


def stored(store: ResultStore, verdict: Verdict | None = None, **facts: bool) -> str:
    """Record a run of the tables; without a verdict it goes on."""
    run = store.start_run("tables", "digest", {}, dict(facts), kind=StoredKind.TABLES)
    if verdict is not None:
        store.finish_run(run, verdict, {})
    return run


SERVICE: dict[str, bool] = {"watch": True, "reverse": True, "drain": False}
PROOF: dict[str, bool] = {"watch": True, "reverse": True, "drain": True}


def test_a_proof_rests_on_the_newest_run_that_proved_something(store: ResultStore) -> None:
    """Not on the watch beside it, which goes on, nor on a proof that did not come to its end in time."""
    verified = stored(store, Verdict.MATCH)
    stored(store, **SERVICE)
    stored(store, Verdict.INCONCLUSIVE, **PROOF)
    assert proof_run(store, "last", "digest", watches="proved").run_id == verified
    proof = stored(store, Verdict.MATCH, **PROOF)
    stored(store, Verdict.MISMATCH, **PROOF)
    assert proof_run(store, "last", "digest", watches="proved").run_id == proof
    assert proof_run(store, "last", "digest").run_id == verified


def test_the_watch_that_runs_all_the_time_is_found_behind_newer_proofs(store: ResultStore) -> None:
    service = stored(store, Verdict.INCONCLUSIVE, **SERVICE)
    stored(store, Verdict.MATCH, watch=True)
    stored(store, Verdict.MATCH, **PROOF)
    assert reverse_run(store, "last", "digest").run_id == service
    run = WatchRun(store, StoredKind.TABLES, "watch", "digest", {}, reverse=True)
    assert run.resume("last").run_id == service


@pytest.mark.parametrize("arrived", [False, True])
def test_a_marker_that_is_sent_again_does_not_move_the_place(arrived: bool) -> None:
    """Behind its later place nothing is applied: the marker was on the source long before."""
    marker = Marker("ops.m", "ops.m", "w")
    target: Any = SimpleNamespace(query=lambda _: [("3",)])
    marker.passed(3, 100)
    if arrived:
        assert marker.ordinal(target) == 100
    marker.passed(3, 900)
    assert marker.ordinal(target) == 100


@pytest.mark.parametrize("reverse", [False, True])
def test_a_watch_goes_on_in_its_own_direction(reverse: bool) -> None:
    store = FakeStore()
    ids = [store.start_run("watch", "h", {}, {"watch": True, "reverse": way}, kind=StoredKind.TABLES)
           for way in (reverse, not reverse)]  # fmt: skip
    run = WatchRun(store, StoredKind.TABLES, "watch", "h", {}, reverse)  # type: ignore[arg-type]
    assert run.resume("last").run_id == ids[0]
    with pytest.raises(UsageError, match="cannot go on as"):
        run.resume(ids[1])


def test_a_watch_that_is_refused_does_not_pass_for_one_that_runs() -> None:
    store = FakeStore()
    run = WatchRun(store, StoredKind.TABLES, "watch", "h", {})  # type: ignore[arg-type]
    run.start("watch", {"watch": True})
    with pytest.raises(UsageError), run.interruptible():
        raise UsageError("the marker is missing")
    (info,) = store.runs(10)
    assert (info.verdict, info.facts["reasons"]) == (Verdict.INCONCLUSIVE, ["ended by an error: the marker is missing"])
    assert info.finished is not None


def test_a_table_that_no_changefeed_carries_is_no_match() -> None:
    assert uncarried(make_pair()) == ""
    assert "its writes are not seen" in uncarried(make_pair(nullable=True))

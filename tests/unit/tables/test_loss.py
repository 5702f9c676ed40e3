"""What would be lost: from a ledger that is being written, to counts, reasons and SQL, without a server."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import update

from migverify.changes.positions import shown_timestamp, tso_position, tso_time
from migverify.cli.loss_view import loss_as_dict, loss_as_text, lost_key_as_dict
from migverify.config import load_config
from migverify.errors import ReadError, RepairError, StoreError, UsageError
from migverify.model import DiffKind, Endpoint, KeyText, LiveState, RowDiff, StoredKind, Verdict
from migverify.recon.load import load_rules
from migverify.recon.lost_amounts import LostAmounts
from migverify.store import run_leases, schema
from migverify.store.open import open_store
from migverify.store.results import ResultStore
from migverify.tables import loss as loss_module
from migverify.tables.armed import forward_run
from migverify.tables.loss import Loss, find_loss, reverse_run
from migverify.tables.loss_sql import refuse_existing, turned, turned_diff, why_no_statement
from migverify.tables.lost_keys import LostKeys
from migverify.tables.run_facts import is_of_servers
from migverify.tables.sweep import TableRounds
from migverify.watch.ledger import Ledger
from migverify.watch.ledger_read import UnprovedKey, read_ledger
from tests.toy_tables import make_pair

SECOND = 1000 << 18
T0 = int(time.time() * 1000) << 18
PLAIN = 'source: {url: "mysql://app@db1"}\ntarget: {url: "tidb://root@tidb"}\ntables: {include: ["app.*"]}\n'


class World:
    """Two tables in memory, the ledger of a reverse watch over them, and its run in a store."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "migverify.yaml").write_text(PLAIN)
        self.config = load_config(folder / "migverify.yaml")
        self.pair = make_pair()
        self.source: dict[str, int] = {}
        self.target: dict[str, int] = {}
        self.now = T0
        self.path = folder / ".migverify" / "watch.db"
        self.ledger = Ledger(self.path)
        self.store: ResultStore = open_store(f"sqlite:///{folder}/runs.db")
        self.read = 0
        self.largest = 0
        monkeypatch.setattr(loss_module, "differing_rows", self._differing)
        monkeypatch.setattr(loss_module, "current_timestamp", lambda _: self.now)
        monkeypatch.setattr(loss_module.PairReader, "open", classmethod(lambda *_: self))
        self.run = self.start()
        self.key = self.pair.sides[-1].sql.key

    def start(self, **facts: Any) -> str:
        plan = {"pairs": [{"id": "app.t", "source": "app.t", "target": "app.t"}]}
        known = {"watch": True, "reverse": True, "start": str(tso_position(T0 - 60 * SECOND)), **facts}
        return self.store.start_run("watch", "digest", plan, known, kind=StoredKind.TABLES)

    def write(self, *commits: tuple[int, str], read: int | None = None) -> None:
        """Put written keys into the ledger, and move its position."""
        keys: dict[tuple[int, KeyText], tuple[int, int, int]] = {}
        for tso, key in commits:
            self.ledger.touch({(0, (key,)): (1, tso, 0)}, {}, time.time())
        self.ledger.touch(keys, {0: (tso_position(read if read is not None else self.now), len(commits))}, time.time())

    @contextmanager
    def session(self, _: Endpoint) -> Iterator[None]:
        yield None

    def close(self) -> None:
        """A reader of the toy tables has nothing to release."""

    def _differing(self, reader: object, keys: Sequence[KeyText]) -> tuple[list[RowDiff], set[KeyText]]:
        del reader
        self.read += len(keys)
        self.largest = max(self.largest, len(keys))
        found = []
        for key in keys:
            one, other = self.source.get(key[0] or ""), self.target.get(key[0] or "")
            if one != other:
                kind = (DiffKind.MISSING_ON_SOURCE if one is None else DiffKind.MISSING_ON_TARGET if other is None
                        else DiffKind.VALUE_DIFFERS)  # fmt: skip
                found.append(RowDiff("app.t", key, kind, LiveState.UNCONFIRMED, source_checksum=str(one),
                                     target_checksum=str(other)))  # fmt: skip
        return found, set()

    def loss(self, lost: LostKeys | None = None, max_unread: float = 10.0) -> Loss:
        prepared: Any = type("P", (), {"pairs": lambda _: iter([self.pair])})()
        run = reverse_run(self.store, self.run, "digest")
        pool: Any = self
        return find_loss(
            prepared, self.config, self.store, run, self.path, pool, lost or LostKeys(), None, max_unread
        )[0]  # fmt: skip


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path, monkeypatch)
    yield made
    made.ledger.close()
    made.store.close()


def test_nothing_is_lost_as_of_the_place_that_was_read(world: World) -> None:
    world.source = world.target = {"1": 1}
    world.write((T0 - 5 * SECOND, "1"), read=T0 - SECOND)
    found = world.loss()
    assert found.verdict is Verdict.MATCH
    assert found.watch.read == T0 - SECOND
    assert found.watch.unread_seconds == pytest.approx(1.0)
    assert found.watch.unproved == 1
    assert found.reasons == ()
    document = loss_as_dict(found, None, [], [])
    lines = list(loss_as_text(document))
    assert lines[0] == (
        f"MATCH: no key written on the target since {shown_timestamp(T0 - 60 * SECOND)} is missing or older on the "
        f"source, as of {shown_timestamp(T0 - SECOND)}"
    )
    assert lines[-1] == f"not seen: {document['not_seen'][0]}"
    assert document["not_seen"][0].endswith("unless the watch reads the source's binlog (reverse.old_side)")


def test_lost_keys_are_counted_by_kind_and_write(world: World) -> None:
    world.source, world.target = {"2": 1, "3": 1, "9": 9}, {"1": 1, "2": 2, "9": 9}
    tso = T0 - 30 * SECOND
    world.write((tso, "1"), (tso + 5, "1"), (tso + 5, "2"), (tso + 7, "3"), (tso + 9, "9"))
    lost = LostKeys()
    found = world.loss(lost)
    assert found.verdict is Verdict.MISMATCH
    counts = found.counts
    assert (counts.keys, counts.missing_on_source, counts.value_differs, counts.missing_on_target) == (3, 1, 1, 1)
    assert counts.transactions == 2  # the first write of key 1 had a transaction of its own: at least
    assert counts.oldest == tso
    assert found.oldest_seconds == pytest.approx(30.0, abs=0.1)
    assert [(key.key, key.since) for key in lost.lost()] == [(("1",), tso), (("2",), tso + 5), (("3",), tso + 7)]
    assert len(list(lost.lost(2))) == 2


def test_a_key_that_no_write_put_there_is_lost_too_and_has_no_commit(world: World) -> None:
    world.target = {"1": 1}
    world.ledger.touch({(0, ("1",)): (1, 0, 0)}, {0: (tso_position(T0), 1)}, time.time(), origin="sweep")
    found = world.loss()
    assert (found.counts.keys, found.counts.no_write, found.counts.oldest) == (1, 1, None)
    assert (found.counts.transactions, found.oldest_seconds) == (0, None)
    assert next(loss_as_text(loss_as_dict(found, None, [], []))).startswith("MISMATCH: 1 key would be lost, as of tso:")


def test_a_row_is_older_on_the_source_only_where_the_last_write_of_the_target_is_not_proved(world: World) -> None:
    world.source, world.target = {"1": 1, "2": 1}, {"1": 2, "2": 2}
    world.ledger.touch({(0, ("2",)): (1, 0, 0)}, {}, time.time(), origin="written on source")
    world.write((T0 - SECOND, "1"))
    lost = LostKeys()
    found = world.loss(lost)
    assert (found.counts.value_differs, found.counts.order_unknown) == (2, 1)
    rows = [lost_key_as_dict(found.tables[0], key) for key in lost.lost(20)]
    lines = list(loss_as_text(loss_as_dict(found, None, rows, [])))
    kinds = "1 older on the source, 1 different on the source"
    assert f"app.t: 2 keys ({kinds}); no write of the target is known for 1 of them" in lines
    assert any(line.startswith("  app.t  1  older on the source, last written tso:") for line in lines)
    assert "  app.t  2  different on the source, written on source" in lines


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        ("unread", "the changefeed was read to 11 seconds ago"),
        ("nothing", "nothing was read from the changefeed yet"),
        ("ended", "has ended (MATCH)"),
        ("dead", "is not alive"),
        ("stale", "app.t: it may hold other rows, and is not compared again yet: TRUNCATE"),
        ("keyless", "the table has no key"),
        ("uncovered", "target: app.new is written, and no table pair covers it"),
        ("unreadable", "not all of its keys could be read: a timeout"),
        ("gone", "the table is not on both sides now"),
    ],
)
def test_what_is_not_known_is_never_a_match(
    world: World, monkeypatch: pytest.MonkeyPatch, spoil: str, why: str
) -> None:
    world.source = world.target = {"1": 1}
    if spoil != "nothing":
        world.write((T0 - 20 * SECOND, "1"), read=T0 - (11 if spoil == "unread" else 1) * SECOND)
    if spoil == "ended":
        world.store.finish_run(world.run, Verdict.MATCH, {})
    elif spoil == "dead":
        end_process(world)
    elif spoil == "stale":
        world.ledger.note(0, "ddl", "TRUNCATE", stale=True)
        world.ledger.note(0, "stale", "TRUNCATE")
    elif spoil == "keyless":
        world.ledger.note(0, "keyless", "rows")
    elif spoil == "uncovered":
        world.ledger.note(-1, "uncovered", json.dumps(["target", "app", "new"]))
    elif spoil == "unreadable":

        def fails(*_: object) -> None:
            raise ReadError("a timeout")

        monkeypatch.setattr(loss_module, "differing_rows", fails)
    elif spoil == "gone":
        world.pair = make_pair(name="app.other")
    found = world.loss()
    assert found.verdict is Verdict.INCONCLUSIVE
    assert why in "; ".join(found.reasons)
    assert found.watch.is_alive is (spoil not in ("ended", "dead"))
    document = loss_as_dict(found, None, [], [])
    assert next(loss_as_text(document)).startswith("INCONCLUSIVE: it is not known what would be lost")


@pytest.mark.parametrize("keyless", [True, False])
def test_a_table_that_no_changefeed_carries_is_named_and_never_a_match(world: World, keyless: bool) -> None:
    pair = world.pair = make_pair(nullable=True)
    if keyless:
        sql = replace(pair.target_side.sql, key=())
        world.pair = replace(pair, target_side=replace(pair.target_side, sql=sql))
    world.source = world.target = {"1": 1}
    world.write((T0 - SECOND, "1"))
    found = world.loss()
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "app.t: a changefeed carries no table without a primary key" in "; ".join(found.reasons)
    world.source = {}
    assert world.loss().verdict is Verdict.MISMATCH


def end_process(world: World) -> None:
    """Let the process of the watch be one that has ended: its number was given again."""
    table, this = schema.runbook_leases, run_leases._this_process()
    pid, space, _ = this.process.split(" ")
    body = json.dumps(asdict(replace(this, process=f"{pid} {space} 1")))
    query = update(table).where(table.c.run == f"run {world.run}").values(body=body)
    world.store.database.write("", lambda connection: connection.execute(query))


@pytest.mark.parametrize("ledger_age", [0, 12])
def test_a_watch_whose_changefeed_is_silent_is_alive(
    world: World, monkeypatch: pytest.MonkeyPatch, ledger_age: int
) -> None:
    world.source = world.target = {"1": 1}
    world.write((T0 - 20 * SECOND, "1"))
    real = time.time
    monkeypatch.setattr(loss_module.time, "time", lambda: real() + ledger_age)
    world.now = T0 + 12 * SECOND
    found = world.loss()
    assert (found.verdict, found.watch.is_alive) == (Verdict.INCONCLUSIVE, True)
    reasons = "; ".join(found.reasons)
    assert "is alive, and the changefeed has been silent for 12 seconds" in reasons
    assert "resume" not in reasons
    document = loss_as_dict(found, None, [], [])
    assert document["watch"]["alive"] is True
    assert any(f"alive (process {os.getpid()} on " in line for line in loss_as_text(document))


def test_what_is_lost_counts_also_where_more_may_be(world: World) -> None:
    world.target = {"1": 1}
    world.write((T0 - 20 * SECOND, "1"), read=T0 - 15 * SECOND)
    found = world.loss()
    assert found.verdict is Verdict.MISMATCH
    document = loss_as_dict(found, None, [], [])
    assert document["complete"] is False
    assert "at least 1 key of at least 1 transaction would be lost" in next(loss_as_text(document))


def swept(world: World, moment: int | None = T0 - 240 * SECOND) -> None:
    """Make the watch of the world one without a changefeed, whose oldest range was compared at a moment."""
    world.run = world.start(sweep=5.0)
    rounds = TableRounds()
    if moment is not None:
        rounds.took(None, 1, moment)
    world.ledger.keep_round(0, rounds.text())


def test_a_sweep_knows_its_bound_and_is_never_a_match(world: World) -> None:
    world.source = world.target = {"1": 1}
    world.write((T0 - 5 * SECOND, "1"))  # the ledger of a sweep has the time of the target as its place
    swept(world)
    found = world.loss()
    assert (found.verdict, found.watch.read) == (Verdict.INCONCLUSIVE, None)
    assert found.reasons == (
        "without a changefeed only the bound of the sweep is known (5 minutes): "
        "rows that were written on the target in the last 4.0 minutes are not seen",
    )
    document = loss_as_dict(found, None, [], [])
    assert (document["complete"], document["as_of"], document["sweep_minutes"]) == (False, None, 5.0)
    first = next(loss_as_text(document))
    assert first.startswith(f"INCONCLUSIVE: it is not known what would be lost, read at tso:{T0} (")


@pytest.mark.parametrize("begun", [True, False])
def test_a_sweep_that_has_not_read_all_yet_says_so(world: World, begun: bool) -> None:
    if begun:
        swept(world, None)
    else:
        world.run = world.start(sweep=5.0)
    world.write()
    assert "not every table was compared yet" in "; ".join(world.loss().reasons)


def test_what_a_sweep_found_is_at_least_what_is_lost(world: World) -> None:
    world.target = {"1": 1}
    world.ledger.touch({(0, ("1",)): (1, 0, 0)}, {0: (tso_position(T0), 1)}, time.time(), origin="sweep")
    swept(world)
    found = world.loss()
    assert found.verdict is Verdict.MISMATCH
    assert next(loss_as_text(loss_as_dict(found, None, [], []))).startswith("MISMATCH: at least 1 key ")


def test_tables_that_are_not_swept_are_named(world: World) -> None:
    world.pair = replace(world.pair, whole=True)
    swept(world)
    world.write()
    assert "app.t: it is not swept: it has no key by which both sides can be cut alike" in world.loss().reasons


def test_keys_are_read_in_bounded_batches(world: World) -> None:
    keys = {(0, (str(n),)): (1, T0, 0) for n in range(3000)}
    world.ledger.touch(keys, {0: (tso_position(T0), 1)}, time.time())
    world.loss()
    assert world.read == 3000
    assert world.largest <= loss_module.KEYS_AT_ONCE


def test_a_run_that_is_no_reverse_watch_is_refused(world: World) -> None:
    forward = world.start(reverse=False)
    with pytest.raises(UsageError, match="no reverse watch"):
        reverse_run(world.store, forward, "digest")
    assert reverse_run(world.store, "last", "digest").run_id == world.run


def ledger_of(world: World, run: str, *, read: bool) -> None:
    """Make the ledger of a run, which has read something or not."""
    ledger = Ledger(world.path.with_name(f"watch-{run}.db"))
    if read:
        ledger.touch({}, {0: (tso_position(T0), 1)}, time.time())
    ledger.close()


def last(world: World) -> str:
    return reverse_run(world.store, "last", "digest", world.path.parent).run_id


def test_the_last_reverse_watch_is_the_one_that_is_alive_not_one_that_was_refused(world: World) -> None:
    service = world.run
    ledger_of(world, service, read=True)
    world.run = world.start()  # refused at its start: no ledger, no end
    end_process(world)
    assert last(world) == service
    ledger_of(world, world.run, read=False)
    assert last(world) == service
    another = world.start()  # it has just begun, and may be refused
    assert last(world) == service
    world.store.finish_run(service, Verdict.INCONCLUSIVE, {})
    assert last(world) == another
    world.store.finish_run(another, Verdict.INCONCLUSIVE, {})
    assert last(world) == service  # the newest that read something
    drained = world.start(drain=True)
    ledger_of(world, drained, read=True)
    assert last(world) == service


def test_the_last_reverse_watch_is_of_the_servers_that_are_asked_about(world: World) -> None:
    """In a store that services share, a newer one of other servers said what would be lost."""
    own = {"source": {"host": "db1", "port": 1}}
    world.start(endpoints={"source": {"host": "staging", "port": 1}})
    is_own = partial(is_of_servers, endpoints=own)
    assert reverse_run(world.store, "last", "digest", is_own=is_own).run_id == world.run  # it does not say which
    mine = world.start(endpoints=own)
    world.start(endpoints={"source": {"host": "staging", "port": 1}})
    assert reverse_run(world.store, "last", "digest", is_own=is_own).run_id == mine
    with pytest.raises(UsageError, match="no reverse watch of these servers"):
        reverse_run(world.store, "last", "digest", is_own=lambda _: False)


def test_without_a_reverse_watch_the_error_says_how_to_start_one(tmp_path: Path) -> None:
    with closing(open_store(f"sqlite:///{tmp_path}/empty.db")) as store:
        with pytest.raises(UsageError, match="no reverse watch") as caught:
            reverse_run(store, "last", "digest", tmp_path)
        assert "migverify tables watch --reverse --since RUN" in caught.value.hint
        with pytest.raises(UsageError, match="no forward watch"):
            forward_run(store, "last", "digest")


# --- the ledger --------------------------------------------------------------------------------------------------


def test_the_ledger_is_read_while_it_is_written_and_never_waits(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.db")
    keys: dict[tuple[int, KeyText], tuple[int, int, int]] = {(0, (str(n),)): (1, 1, 0) for n in range(20_000)}
    ledger.touch(keys, {0: (tso_position(10), 1)}, time.time())
    seen: list[UnprovedKey] = []
    slowest = [0.0]

    def take(some: Sequence[UnprovedKey]) -> None:
        # In the middle of the reader's snapshot the watch writes.
        begun = time.perf_counter()
        number = len(seen)
        ledger.touch({(0, (f"new {number}",)): (1, 20 + number, 0)}, {0: (tso_position(20 + number), 2)}, time.time())
        slowest[0] = max(slowest[0], time.perf_counter() - begun)
        seen.extend(some)

    state = read_ledger(ledger.path, take)
    assert len(seen) == 20_000  # one snapshot: nothing of what came meanwhile, as the position says
    assert state.read[0] == tso_position(10)
    assert slowest[0] < 5.0
    again: list[UnprovedKey] = []
    assert read_ledger(ledger.path, again.extend).read[0].offset > 20
    assert len(again) == 20_004
    ledger.close()


def test_a_reader_does_not_hold_up_a_watch_on_another_thread(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.db")
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            ledger.touch({(0, (str(number),)): (1, number, 0)}, {0: (tso_position(number), number)}, time.time())

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(20):
            found: list[UnprovedKey] = []
            state = read_ledger(ledger.path, found.extend)
            # Keys and position are of one moment.
            assert len(found) == (state.read[0].offset if state.read else 0)
    finally:
        stop.set()
        thread.join()
        ledger.close()


def test_a_ledger_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        read_ledger(tmp_path / "none.db", lambda _: None)
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "bad.db").write_text("no database" * 100)
    with pytest.raises(StoreError, match=r"bad\.db"):
        read_ledger(tmp_path / "bad.db", lambda _: None)


# --- SQL ---------------------------------------------------------------------------------------------------------


def test_a_pair_is_turned_round_and_back() -> None:
    pair = make_pair()
    there = turned(pair)
    assert there.sources == (pair.target_side,)
    assert there.target_side == pair.sources[0]
    assert turned(there) == pair
    with pytest.raises(RepairError, match="several sources"):
        turned(replace(pair, sources=(pair.sources[0], pair.sources[0])))
    diff = RowDiff("p", ("1",), DiffKind.MISSING_ON_SOURCE, LiveState.DIVERGED, target_checksum="a", source_count=0)
    assert turned_diff(diff).kind is DiffKind.MISSING_ON_TARGET
    assert turned_diff(turned_diff(diff)) == diff


@pytest.mark.parametrize(
    ("kind", "origin", "refused"),
    [
        (DiffKind.MISSING_ON_TARGET, "", False),
        (DiffKind.VALUE_DIFFERS, "", False),
        (DiffKind.MISSING_ON_TARGET, "sweep", True),  # no write of the target removed it
        (DiffKind.VALUE_DIFFERS, "sweep", False),
        (DiffKind.VALUE_DIFFERS, "after run 1", True),  # somebody wrote it on the source
        (DiffKind.MISSING_ON_SOURCE, "after run 1", True),
    ],
)
def test_a_row_of_the_source_s_own_gets_no_statement(kind: DiffKind, origin: str, refused: bool) -> None:
    diff = RowDiff("p", ("1",), kind, LiveState.DIVERGED)
    assert bool(why_no_statement(diff, origin)) is refused


def test_a_file_that_exists_is_not_written_over(tmp_path: Path) -> None:
    refuse_existing(tmp_path / "a.sql")
    (tmp_path / "a.inverse.sql").write_text("")
    with pytest.raises(UsageError, match=r"a\.inverse\.sql exists"):
        refuse_existing(tmp_path / "a.sql")
    with pytest.raises(UsageError, match="does not exist"):
        refuse_existing(tmp_path / "none" / "a.sql")


# --- amounts -----------------------------------------------------------------------------------------------------

RULES = """version: recon/v1
datasets:
  ours: {endpoint: source, table: app.t, key: id%s}
  theirs: {endpoint: target, table: app.t, key: id%s}
rules:
  - {name: paid, kind: same_rows, source: ours, target: theirs, compare: [v], settle: 1s%s}
"""
MONEY = ", money: {column: v, currency: \"'EUR'\"}"


def amounts_of(folder: Path, ours: str = "", theirs: str = "", money: str = MONEY, family: str = "decimal") -> Any:
    path = folder / "recon.yaml"
    path.write_text(RULES % (ours, theirs, money))
    pair = make_pair()
    pair = replace(pair, columns=(pair.columns[0], replace(pair.columns[1], family=family)))
    rules = load_rules(path, ["source", "target"])
    return LostAmounts(rules, [pair], lambda _: {}), pair


@given(st.lists(st.tuples(*[st.none() | st.decimals(-(10**20), 10**20, places=4)] * 2), max_size=20))
def test_amounts_are_exact_and_what_one_gains_does_not_hide_what_another_loses(
    rows: list[tuple[Decimal | None, Decimal | None]],
) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        amounts, pair = amounts_of(Path(folder))
    amounts.add(pair, [([("1", f"{a:f}")] if a is not None else [], [("1", f"{b:f}")] if b is not None else [])
                       for a, b in rows])  # fmt: skip
    (found,) = amounts.sums()
    scaled = [(int((a or 0) * 10_000), int((b or 0) * 10_000)) for a, b in rows]
    assert int(found.at_risk.get("EUR", Decimal(0)) * 10_000) == sum(abs(b - a) for a, b in scaled)
    assert int(found.difference("EUR") * 10_000) == sum(b - a for a, b in scaled)


def test_rows_without_an_amount_are_counted(tmp_path: Path) -> None:
    amounts, pair = amounts_of(tmp_path)
    amounts.add(pair, [([("1", None)], [("1", "2.5")])])
    (found,) = amounts.sums()
    assert (found.without, found.at_risk) == (1, {"EUR": Decimal("2.5")})


@pytest.mark.parametrize(
    ("given_", "why"),
    [
        ({"money": ""}, "rule paid defines no amount (money)"),
        ({"ours": ", where: 'v > 0'", "theirs": ", where: 'v > 0'"}, "has a condition"),
        ({"family": "float"}, "which is not summed exactly"),
        ({"ours": ", columns: {id: id, v: v/100}", "theirs": ", columns: {id: id, v: v/100}"}, "is an expression"),
    ],
)
def test_an_amount_that_cannot_be_stated_is_not_guessed(tmp_path: Path, given_: dict[str, str], why: str) -> None:
    amounts, _ = amounts_of(tmp_path, **given_)
    assert amounts.sums() == []
    assert why in "; ".join(amounts.unstated)


# --- text --------------------------------------------------------------------------------------------------------


def test_the_text_says_as_of_when_in_units_and_numbers(world: World) -> None:
    world.target = {"1": 1}
    world.write((T0 - 90 * SECOND, "1"), read=T0 - 2 * SECOND)
    lost = LostKeys()
    found = world.loss(lost)
    rows = [lost_key_as_dict(found.tables[0], key) for key in lost.lost(20)]
    lines = list(loss_as_text(loss_as_dict(found, None, rows, [])))
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(tso_time(T0 - 2 * SECOND)))
    assert lines[0].startswith(
        f"MISMATCH: 1 key of at least 1 transaction would be lost, as of tso:{T0 - 2 * SECOND} ("
    )
    assert moment in lines[0]
    assert lines[0].endswith("the oldest write 90 seconds ago")
    assert lines[1].startswith("unread: 2.0 seconds of writes after that are not known.")
    assert "app.t: 1 key (1 missing on the source)" in lines
    assert "amount not stated: no rule was named (--rules)" in lines

"""The local engine's join: through files, in parts, and after bucket checksums it gives what a naive join gives."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal, localcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.db.snapshot import Anchor
from migverify.errors import CanceledError, ConfigError, PrivilegeError, ReadError, RetryableReadError, TimeLimitError
from migverify.model import ColumnDef, Endpoint, Flavor
from migverify.recon import local_join, pushdown, spill
from migverify.recon.local import LocalEngine
from migverify.recon.model import FilePart
from migverify.recon.relation import Combine, Cut, FileRead, Held, Keep, Pairing, Relation, SqlRead, Totals
from migverify.sql.key_range import KeyColumn

TEXT = ColumnDef("c", 1, "varchar", "varchar(9)", True)
Row = tuple[tuple[str | None, ...], tuple[str | None, ...]]

words = st.sampled_from([None, "", "a", "b", "A", "a,b", "é", "1"])
rows = st.lists(st.tuples(st.tuples(words), st.tuples(words, words)), max_size=12)
keeps = st.builds(Keep, *(st.booleans() for _ in range(5)))


def relation(reads: Sequence[Any], *, carried: int = 0, combine: Combine = Combine.ROW) -> Relation:
    return Relation("d", tuple(reads), (TEXT,), (TEXT, TEXT), (combine,) * 2, carried)


# --- what a join has to give, written without any cleverness ----------------------------------------------


def order(values: tuple[str | None, ...]) -> tuple[tuple[bool, bytes], ...]:
    return tuple((v is not None, (v or "").encode()) for v in values)


def naive_side(parts: Sequence[Sequence[Row]], compared: int) -> dict[tuple[str | None, ...], Held]:
    held: dict[tuple[str | None, ...], list[tuple[str | None, ...]]] = defaultdict(list)
    for part in parts:
        for key, values in part:
            held[key].append(values)
    return {
        key: Held(
            len(found),
            min(found, key=order),
            len({v[:compared] for v in found}) > 1,
            (),
            len({v[compared:] for v in found}) > 1,
        )
        for key, found in held.items()
    }


def naive_join(
    ours: dict[Any, Held], theirs: dict[Any, Held] | None, keep: Keep, compared: int
) -> tuple[list[Pairing], Totals]:
    found, matched = [], 0
    for key in ours.keys() | (theirs or {}).keys():
        one, other = ours.get(key), (theirs or {}).get(key)
        if theirs is None:
            wanted = keep.all or (keep.repeated and one is not None and one.count > 1)
            matched += not wanted
        elif one is None or other is None:
            wanted = keep.all or (keep.missing_source if one is None else keep.missing_target)
        else:
            alike = one.values[:compared] == other.values[:compared] and not one.unlike and not other.unlike
            twice = keep.repeated and max(one.count, other.count) > 1
            matched += alike and not twice
            wanted = keep.all or twice or (keep.unlike and not alike)
        if wanted:
            found.append(Pairing(key, one, other))
    count = [sum(h.count for h in side.values()) for side in (ours, theirs or {})]
    return found, Totals(count[0], count[1], len(ours), len(theirs or {}), matched)


def as_bytes(values: Sequence[str | None]) -> tuple[bytes | None, ...]:
    return tuple(None if v is None else v.encode() for v in values)


def spilled(folder: Path, parts: Sequence[Sequence[Row] | Sequence[Any]], partitions: int = 4) -> spill.Spill:
    files = spill.Spill(folder, partitions)
    for number, part in enumerate(parts):
        writer = files.writer(str(number))
        for key, values in part:
            writer.add(as_bytes(key), as_bytes(values), 1, number)
        writer.flush()
    return files


def by_key(pairings: Sequence[Pairing]) -> dict[Any, Pairing]:
    assert len({p.key for p in pairings}) == len(pairings)
    return {p.key: p for p in pairings}


@given(
    ours=st.lists(rows, min_size=1, max_size=3), theirs=st.none() | st.lists(rows, min_size=1, max_size=2), keep=keeps,
    carried=st.integers(0, 2), large=st.sampled_from([2, 200, 1 << 30]),
)  # fmt: skip
def test_the_spill_join_is_the_naive_join(
    ours: list[list[Row]], theirs: list[list[Row]] | None, keep: Keep, carried: int, large: int
) -> None:
    compared = 2 - carried
    expected, totals = naive_join(
        naive_side(ours, compared), naive_side(theirs, compared) if theirs is not None else None, keep, compared
    )
    reads = [SqlRead("e", "t", ("k",), ("a", "b"))] * 3
    source, target = relation(reads, carried=carried), relation(reads, carried=carried) if theirs is not None else None
    counts = spill.Counts()
    before = spill.LARGE_BYTES
    with TemporaryDirectory() as folder:
        spills = spilled(Path(folder, "s"), ours), spilled(Path(folder, "t"), theirs) if theirs is not None else None
        spill.LARGE_BYTES = large
        try:
            found = [p for batch in spill.join(source, target, keep, spills, counts) for p in batch]
        finally:
            spill.LARGE_BYTES = before
    assert by_key(found) == by_key(expected)
    assert (
        Totals(counts.rows_source, counts.rows_target, counts.keys_source, counts.keys_target, counts.matched) == totals
    )


numbers = st.none() | st.decimals(
    allow_nan=False, allow_infinity=False, places=4, min_value=-(10**30), max_value=10**30
)


@given(parts=st.lists(st.lists(st.tuples(st.sampled_from("ab"), numbers), max_size=6), min_size=1, max_size=4))
def test_parts_of_groups_add_up_exactly(parts: list[list[tuple[str, Decimal | None]]]) -> None:
    hows = (Combine.SUM, Combine.MIN, Combine.MAX)
    given_rows = [[((k,), (None if n is None else f"{n:f}",) * 3) for k, n in part] for part in parts]
    source = Relation("d", (SqlRead("e", "t", ("k",), ("x",) * 3, grouped=True),) * 4, (TEXT,), (TEXT,) * 3, hows)
    counts = spill.Counts()
    with TemporaryDirectory() as folder:
        spills = spilled(Path(folder), given_rows)
        found = [p for batch in spill.join(source, None, Keep(all=True), (spills, None), counts) for p in batch]
    for pairing in found:
        values = [n for part in parts for k, n in part if k == pairing.key[0]]
        known = [n for n in values if n is not None]
        assert pairing.source
        assert pairing.source.count == len(values)
        texts = pairing.source.values
        if not known:
            assert texts == (None, None, None)
            continue
        assert [Decimal(t or "nan") for t in texts] == [exact_sum(known), min(known), max(known)]


def exact_sum(values: list[Decimal]) -> Decimal:
    with localcontext(prec=200):
        return sum(values, Decimal(0))


@pytest.mark.parametrize("how", [Combine.TEXT_MIN, Combine.TEXT_MAX])
def test_texts_are_least_by_their_bytes(how: Combine) -> None:
    assert spill.combined(how, b"B", b"a") == (b"B" if how is Combine.TEXT_MIN else b"a")
    assert spill.combined(how, None, b"a") == spill.combined(how, b"a", None) == b"a"


def test_values_of_rows_are_never_combined() -> None:
    with pytest.raises(ReadError):
        spill.combined(Combine.ROW, b"1", b"2")


def test_a_writer_that_begins_anew_leaves_nothing_of_before(tmp_path: Path) -> None:
    files = spill.Spill(tmp_path, 2)
    for value in (b"old", b"new"):
        writer = files.writer("0")
        writer.add((b"k",), (value,), 1, 0)
        writer.flush()
    assert [r[1] for p in range(2) for r in spill.read_records(files.files(p))] == [(b"new",)]


def test_buffers_are_written_before_they_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "BUFFER_BYTES", 1000)
    files = spill.Spill(tmp_path, 2)
    writer = files.writer("0")
    for number in range(20):
        writer.add((b"%d" % number,), (b"x" * 100,), 1, 0)
    assert list(tmp_path.iterdir())


# --- the engine over a toy database -----------------------------------------------------------------------


KILLED: list[str] = []


class ToySession:
    """SQLite with the functions of the statements of ``migverify.sql.recon``; enough for texts and counts."""

    def __init__(self, tables: Mapping[str, Sequence[Row]], before: Callable[[str], None] = lambda _sql: None) -> None:
        self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        self._before = before
        self.aborted = False
        self.endpoint: Any = None
        self.flavor, self.thread_id = Flavor.MYSQL, 7
        make = self._connection.create_function
        make("CRC32", 1, lambda text: zlib.crc32(text.encode()))
        make("CONCAT_WS", -1, lambda mark, *parts: mark.join(str(p) for p in parts if p is not None))
        make("SHA2", 2, lambda text, _: hashlib.sha256(text.encode()).hexdigest())
        make("CONV", 3, lambda text, *_: str(int(text, 16)))
        make("LENGTH", 1, lambda text: None if text is None else len(text.encode()))
        self._connection.create_aggregate("SUM", 1, _Sum)  # type: ignore[arg-type]
        for name, found in tables.items():
            self._connection.execute(f"CREATE TABLE {name} (n INTEGER, k TEXT, a TEXT, b TEXT)")
            listed = [(n, *key, *values) for n, (key, values) in enumerate(found)]
            self._connection.executemany(f"INSERT INTO {name} VALUES (?,?,?,?)", listed)

    def stream(self, sql: str) -> Iterator[tuple[bytes | None, ...]]:
        yield from self.query_bytes(sql)

    def query_bytes(self, sql: str) -> list[tuple[bytes | None, ...]]:
        self._before(sql)
        # AS BINARY is a number to SQLite; its texts compare by bytes anyhow.
        found = self._connection.execute(sql.replace(" AS BINARY)", " AS BLOB)"))
        return [
            tuple(None if v is None else v if isinstance(v, bytes) else str(v).encode() for v in row) for row in found
        ]

    def query(self, sql: str) -> list[tuple[str | None, ...]]:
        return [tuple(None if v is None else v.decode() for v in row) for row in self.query_bytes(sql)]

    def execute(self, sql: str) -> int:
        KILLED.append(sql)
        return 0

    def abort(self) -> None:
        self.aborted = True

    def __enter__(self) -> ToySession:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


class _Sum:
    def __init__(self) -> None:
        self.total: int | None = None

    def step(self, value: Any) -> None:
        if value is not None:
            self.total = (self.total or 0) + int(value)

    def finalize(self) -> str | None:
        return None if self.total is None else str(self.total)


def toy_engine(
    tables: Mapping[str, Sequence[Row]], folder: Path | None = None, before: Callable[[str], None] = lambda _sql: None,
    connections: int = 2, **fields: Any,
) -> LocalEngine:  # fmt: skip
    @contextmanager
    def anchor(endpoint: Endpoint, secrets: Mapping[str, str], wanted: int, probe: str) -> Iterator[Any]:
        del secrets, probe
        assert 1 <= wanted <= endpoint.connections
        sessions = tuple(ToySession(tables, before) for _ in range(wanted))
        for session in sessions:
            session.endpoint = endpoint
        yield SimpleNamespace(
            sessions=sessions, anchor=Anchor(endpoint.name, "toy", "toy", "1", "1", exact=True, at=0.0)
        )

    endpoints = {name: Endpoint(name, "h", 1, "u", connections=connections) for name in ("one", "two")}
    opener: Any = lambda _endpoint, _password: ToySession(tables, before)  # noqa: E731
    return LocalEngine(endpoints, {}, folder=folder, retry_seconds=0.0, opener=opener, anchor=anchor, **fields)


def toy_read(
    endpoint: str, table: str, found: Sequence[Row], *, cut: bool = False, unique: bool | None = None
) -> SqlRead:
    once = len({key for key, _ in found}) == len(found) if unique is None else unique
    return SqlRead(
        endpoint, table, ("k",), ("a", "b"), strings=(True,) * 3, rows=len(found), unique=once,
        lookup=(KeyColumn("k", "k", "text", nullable=True),),
        cut=Cut("n", 0, len(found), nullable=False) if cut else None,
    )  # fmt: skip


@settings(max_examples=100)
@given(
    ours=st.lists(rows, min_size=1, max_size=2), theirs=st.lists(rows, min_size=1, max_size=2), keep=keeps,
    carried=st.integers(0, 2), cut=st.booleans(), buckets=st.integers(1, 9), alike=st.booleans(),
)  # fmt: skip
def test_a_pushed_down_join_is_the_naive_join(
    ours: list[list[Row]], theirs: list[Any], keep: Keep, carried: int, cut: bool, buckets: int, alike: bool
) -> None:
    if alike:
        theirs = [*ours[:-1], [row for row in ours[-1] if row[1][0] != "b"]]
    compared = 2 - carried
    expected, totals = naive_join(naive_side(ours, compared), naive_side(theirs, compared), keep, compared)
    tables = {f"s{n}": part for n, part in enumerate(ours)} | {f"t{n}": part for n, part in enumerate(theirs)}
    source = relation([toy_read("one", f"s{n}", part, cut=cut) for n, part in enumerate(ours)], carried=carried)
    target = relation([toy_read("two", f"t{n}", part, cut=cut) for n, part in enumerate(theirs)], carried=carried)
    before = pushdown.FEWEST, local_join.RANGE_ROWS
    with TemporaryDirectory() as folder:
        pushdown.FEWEST, local_join.RANGE_ROWS = buckets, 3
        try:
            joined = toy_engine(tables, Path(folder)).join(source, target, keep)
            found = [p for batch in joined for p in batch]
        finally:
            pushdown.FEWEST, local_join.RANGE_ROWS = before
        assert not list(Path(folder).iterdir())
    assert by_key(found) == by_key(expected)
    if pushdown.can_push_down(source, target, keep):
        assert joined.totals == replace(totals, pushed_down=True)
    else:
        assert joined.totals == totals
    assert [a.endpoint for a in joined.anchors] == ["one", "two"]


def some(count: int) -> list[Row]:
    return [((str(n),), (f"v{n}", "x")) for n in range(count)]


ANY = Keep()


def join_all(engine: LocalEngine, *sides: Relation | None, keep: Keep = ANY) -> list[Pairing]:
    joined = engine.join(sides[0], sides[1], keep)  # type: ignore[arg-type]
    return [p for batch in joined for p in batch]


def test_only_rows_of_unlike_buckets_are_read() -> None:
    ours, theirs = some(5000), some(5000)
    theirs[7] = (("7",), ("other", "x"))
    read: list[str] = []
    engine = toy_engine({"s": ours, "t": theirs}, before=read.append)
    sides = relation([toy_read("one", "s", ours)]), relation([toy_read("two", "t", theirs)])
    assert [p.key for p in join_all(engine, *sides)] == [("7",)]
    assert len([sql for sql in read if sql.startswith("SELECT k, a, b") and " IN (" in sql]) == 2
    assert not [sql for sql in read if sql.startswith("SELECT k, a, b") and " IN (" not in sql]


def test_equal_sides_are_not_read_at_all() -> None:
    read: list[str] = []
    engine = toy_engine({"s": some(100), "t": some(100)}, before=read.append)
    sides = relation([toy_read("one", "s", some(100))]), relation([toy_read("two", "t", some(100))])
    assert not join_all(engine, *sides)
    assert not [sql for sql in read if sql.startswith("SELECT k, a, b")]


def test_totals_are_not_told_before_the_end() -> None:
    engine = toy_engine({"s": some(3)})
    joined = engine.join(relation([toy_read("one", "s", some(3))]), None, Keep(all=True))
    with pytest.raises(RuntimeError):
        _ = joined.totals


def failing(times: int, error: Exception) -> Callable[[str], None]:
    left = [times]
    lock = threading.Lock()

    def before(sql: str) -> None:
        with lock:
            if left[0] and sql.startswith("SELECT k, a, b"):
                left[0] -= 1
                raise error

    return before


def test_a_read_that_fails_for_a_while_begins_anew(tmp_path: Path) -> None:
    engine = toy_engine({"s": some(9)}, tmp_path, failing(2, RetryableReadError("gone")))
    found = join_all(engine, relation([toy_read("one", "s", some(9))]), None, keep=Keep(all=True))
    assert len(found) == 9
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "times", "kind"),
    [(RetryableReadError("gone"), 9, ReadError), (ReadError("no"), 1, ReadError),
     (TimeLimitError("slow"), 1, TimeLimitError),
     (PrivilegeError("no"), 1, PrivilegeError)],
)  # fmt: skip
def test_a_read_that_keeps_failing_yields_nothing(
    tmp_path: Path, error: Exception, times: int, kind: type[Exception]
) -> None:
    engine = toy_engine({"s": some(9), "t": some(9)}, tmp_path, failing(times, error))
    joined = engine.join(
        relation([toy_read("one", "s", some(9))]), relation([toy_read("two", "t", [])]), Keep(all=True)
    )
    with pytest.raises(kind):
        next(iter(joined))
    assert not list(tmp_path.iterdir())


def test_a_canceled_engine_reads_nothing(tmp_path: Path) -> None:
    engine = toy_engine({"s": some(9)}, tmp_path)
    joined = engine.join(relation([toy_read("one", "s", some(9))]), None, Keep(all=True))
    engine.cancel()
    with pytest.raises(CanceledError):
        list(joined)
    with pytest.raises(CanceledError):
        engine.lookup(relation([toy_read("one", "s", some(9))]), [("1",)])


def test_canceling_cuts_the_sessions_of_a_join_under_way() -> None:
    engine = toy_engine({"s": some(9)}, before=lambda _sql: engine.cancel())
    KILLED.clear()
    with pytest.raises(CanceledError):
        join_all(engine, relation([toy_read("one", "s", some(9))]), None, keep=Keep(all=True))
    assert KILLED == ["KILL QUERY 7"], "the server does not go on for nobody"


def test_lookups_find_the_asked_keys_only() -> None:
    found = [*some(3), (("1",), ("w", "x"))]
    engine = toy_engine({"s": found})
    side = relation([toy_read("one", "s", found)])
    held = engine.lookup(side, [("1",), ("9",), ("2",)])
    assert held == {("1",): Held(2, ("v1", "x"), unlike=True), ("2",): Held(1, ("v2", "x"))}


def test_what_this_engine_cannot_read_is_refused_before_it_reads() -> None:
    engine = toy_engine({})
    files = relation([FileRead(FilePart("/x"), ("k",), ("a", "b"), (TEXT,) * 3)])
    with pytest.raises(ConfigError, match="Spark engine"):
        engine.join(files, None, Keep())
    with pytest.raises(ConfigError, match="no endpoint three"):
        engine.join(relation([toy_read("three", "s", [])]), None, Keep())


def test_a_repeated_key_needs_a_proof_that_it_is_not() -> None:
    one = relation([toy_read("one", "s", [], unique=True)])
    shards = relation([toy_read("one", "s", [], unique=True)] * 2)
    assert pushdown.can_push_down(one, shards, Keep())
    assert not pushdown.can_push_down(shards, shards, Keep())
    assert not pushdown.can_push_down(one, one, Keep(all=True))
    assert not pushdown.can_push_down(one, None, Keep())

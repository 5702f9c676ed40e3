"""The local engine's join: through files, in passes, and by key ranges it gives what a naive join gives."""

from __future__ import annotations

import hashlib
import signal
import sqlite3
import subprocess
import sys
import threading
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal, localcontext
from pathlib import Path
from random import Random
from shutil import rmtree
from tempfile import TemporaryDirectory
from time import sleep
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.db.snapshot import ReadSnapshot
from migverify.errors import CanceledError, ConfigError, PrivilegeError, ReadError, RetryableReadError, TimeLimitError
from migverify.model import ColumnDef, Endpoint, Flavor
from migverify.recon import reads as recon_reads
from migverify.recon import row_store
from migverify.recon.join import pairing, statement
from migverify.recon.local import LocalEngine
from migverify.recon.model import FilePart
from migverify.recon.reads import share_ranges
from migverify.recon.relation import Combine, Cut, FileRead, JoinFilter, KeyRows, Pairing, Relation, SqlRead, Totals
from migverify.recon.row_store import RowStore
from migverify.recon.rows import PartCombiner, Record, combined, comes_in_parts, record_batch, sections_of
from migverify.sql.key_range import KeyColumn
from migverify.sql.recon_join import TOTALS

TEXT = ColumnDef("c", 1, "varchar", "varchar(9)", True)
Row = tuple[tuple[str | None, ...], tuple[str | None, ...]]

words = st.sampled_from([None, "", "a", "b", "A", "a,b", "é", "1"])
rows = st.lists(st.tuples(st.tuples(words), st.tuples(words, words)), max_size=12)
keeps = st.builds(JoinFilter, *(st.booleans() for _ in range(5)))


def relation(reads: Sequence[Any], *, carried: int = 0, combine: Combine = Combine.ROW) -> Relation:
    return Relation("d", tuple(reads), (TEXT,), (TEXT, TEXT), (combine,) * 2, carried)


# --- what a join has to give, written without any cleverness ----------------------------------------------


def order(values: tuple[str | None, ...]) -> tuple[tuple[bool, bytes], ...]:
    return tuple((v is not None, (v or "").encode("utf-8", "surrogateescape")) for v in values)


def naive_side(parts: Sequence[Sequence[Row]], compared: int) -> dict[tuple[str | None, ...], KeyRows]:
    held: dict[tuple[str | None, ...], list[tuple[str | None, ...]]] = defaultdict(list)
    for part in parts:
        for key, values in part:
            held[key].append(values)
    return {
        key: KeyRows(
            len(found),
            min(found, key=order),
            len({v[:compared] for v in found}) > 1,
            (),
            len({v[compared:] for v in found}) > 1,
        )
        for key, found in held.items()
    }


def naive_join(
    ours: dict[Any, KeyRows], theirs: dict[Any, KeyRows] | None, keep: JoinFilter, compared: int
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
            alike = one.values[:compared] == other.values[:compared] and not one.differing and not other.differing
            twice = keep.repeated and max(one.count, other.count) > 1
            matched += alike and not twice
            wanted = keep.all or twice or (keep.differing and not alike)
        if wanted:
            found.append(Pairing(key, one, other))
    count = [sum(h.count for h in side.values()) for side in (ours, theirs or {})]
    return found, Totals(count[0], count[1], len(ours), len(theirs or {}), matched)


def as_bytes(values: Sequence[str | None]) -> tuple[bytes | None, ...]:
    return tuple(None if v is None else v.encode("utf-8", "surrogateescape") for v in values)


def store_join(
    folder: Path, source: Relation, target: Relation | None, keep: JoinFilter, sides: Sequence[Sequence[Sequence[Any]]]
) -> tuple[list[Pairing], Totals]:
    """Join rows of reads, (key, values) each, as the local engine does after reading them."""
    relations = (source, target)
    found, sums = [], dict.fromkeys(TOTALS, 0)
    with RowStore(folder) as store:
        for side, (relation, reads) in enumerate(zip(relations, sides, strict=False)):
            for number, read in enumerate(reads):
                assert relation is not None
                records: Iterator[Record] = ((as_bytes(key), as_bytes(values), 1, number) for key, values in read)
                for sections in sections_of(relation, records):
                    batch = record_batch(side, number, sections, counted=not relation.rows)
                    store.add(batch, parts=comes_in_parts(relation))
        store.combine(PartCombiner.of(relations))
        for row in store.join(lambda rows: statement(relations, keep, rows)):
            found += [] if row["k"] is None else [pairing(row, relations)]
            for name in TOTALS:
                sums[name] += row[name]
        store.check_joined(sums["rows0"] + sums["rows1"])
    return found, Totals(sums["rows0"], sums["rows1"], sums["keys0"], sums["keys1"], sums["matched"])


def by_key(pairings: Sequence[Pairing]) -> dict[Any, Pairing]:
    assert len({p.key for p in pairings}) == len(pairings)
    return {p.key: p for p in pairings}


ODD = (None, "", "a", "b", "A", "-", "=", "a,b", "é", "\x00", "\x01", "a\x00", "a\x01\x02", "\udcff", "a\udc80", "😀")


@pytest.mark.parametrize(
    ("seed", "keep"),
    list(enumerate([JoinFilter(), JoinFilter(all=True), JoinFilter(repeated=False, differing=False)])),
)
def test_thousands_of_keys_are_joined_as_the_naive_join_does(tmp_path: Path, seed: int, keep: JoinFilter) -> None:
    """Each key is a case of its own: none to three rows on each side, of texts of all sorts, also none of UTF-8."""
    random = Random(seed)
    compared = seed % 3
    sides: list[list[list[Row]]] = [[[], []], [[]]]
    for case in range(2000):
        values = [tuple(random.choices(ODD, k=2)) for _ in range(2)]
        for side in sides:
            for _ in range(random.choice((0, 1, 1, 1, 2, 3))):
                random.choice(side).append(((str(case), random.choice(ODD[:9])), random.choice(values)))
    for side in sides:
        random.shuffle(side[0])
    reads = [SqlRead("e", "t", ("k", "l"), ("a", "b"))] * 2
    source, target = (
        Relation("d", tuple(reads[: len(side)]), (TEXT,) * 2, (TEXT,) * 2, (Combine.ROW,) * 2, 2 - compared)
        for side in sides
    )
    found, totals = store_join(tmp_path, source, target, keep, sides)
    expected = naive_join(naive_side(sides[0], compared), naive_side(sides[1], compared), keep, compared)
    assert by_key(found) == by_key(expected[0])
    assert totals == expected[1]


def test_a_key_names_the_shards_of_all_its_reads(tmp_path: Path) -> None:
    reads = [SqlRead("e", "t", ("k",), ("a", "b"), shard=f"s{n:03}") for n in range(130)]
    listed: list[list[Row]] = [[(("x",), ("1", "2"))] if n in (0, 61, 62, 129) else [] for n in range(130)]
    for combine in (Combine.ROW, Combine.SUM):
        source = relation(reads, combine=combine)
        folder = tmp_path / combine
        folder.mkdir()
        found, _ = store_join(folder, source, None, JoinFilter(all=True), [listed])
        assert found[0].source is not None
        assert found[0].source.shards == ("s000", "s061", "s062", "s129")
        assert found[0].source.count == 4


numbers = st.none() | st.decimals(
    allow_nan=False, allow_infinity=False, places=4, min_value=-(10**30), max_value=10**30
)


@settings(max_examples=10, deadline=None)
@given(
    parts=st.lists(st.lists(st.tuples(st.sampled_from("ab"), numbers), max_size=6), min_size=1, max_size=4),
    flush=st.sampled_from([0, 1 << 30]),
)
def test_parts_of_groups_add_up_exactly(parts: list[list[tuple[str, Decimal | None]]], flush: int) -> None:
    hows = (Combine.SUM, Combine.MIN, Combine.MAX)
    given_rows = [[((k,), (None if n is None else f"{n:f}",) * 3) for k, n in part] for part in parts]
    source = Relation("d", (SqlRead("e", "t", ("k",), ("x",) * 3, grouped=True),) * 4, (TEXT,), (TEXT,) * 3, hows)
    with TemporaryDirectory() as folder, patch.object(row_store, "FLUSH_BYTES", flush):
        found, _ = store_join(Path(folder), source, None, JoinFilter(all=True), [given_rows])
    for group in found:
        values = [n for part in parts for k, n in part if k == group.key[0]]
        known = [n for n in values if n is not None]
        assert group.source
        assert group.source.count == len(values)
        texts = group.source.values
        if not known:
            assert texts == (None, None, None)
            continue
        assert [Decimal(t or "nan") for t in texts] == [exact_sum(known), min(known), max(known)]


def exact_sum(values: list[Decimal]) -> Decimal:
    with localcontext(prec=200):
        return sum(values, Decimal(0))


def test_texts_are_least_by_their_bytes_and_the_order_of_parts_decides_nothing() -> None:
    assert (combined(Combine.TEXT_MIN, b"B", b"a"), combined(Combine.TEXT_MAX, b"B", b"a")) == (b"B", b"a")
    for how in (Combine.MIN, Combine.MAX):
        assert combined(how, b"1.0", b"1.00") == combined(how, b"1.00", b"1.0")
    with pytest.raises(ReadError):
        combined(Combine.ROW, b"1", b"2")


def test_a_store_that_begins_anew_leaves_nothing_of_before(tmp_path: Path) -> None:
    side = relation([SqlRead("e", "t", ("k",), ("a", "b"))])
    with RowStore(tmp_path) as store:
        for value in (b"=old", b"=new"):
            store.clear()
            store.add(record_batch(0, 0, [[b"=k"], [value], [b""]], counted=False))
        found = list(store.join(lambda rows: statement((side, None), JoinFilter(all=True), rows)))
    assert [row["v0"] for row in found] == [b"=new"]


def filled(folder: Path, keys: int) -> RowStore:
    """Return a store whose rows are in files."""
    store = RowStore(folder)
    listed = [b"=%d" % number for number in range(keys)]
    with patch.object(row_store, "FLUSH_BYTES", 0):
        store.add(record_batch(0, 0, [listed, listed, [b""] * keys], counted=False))
    return store


def test_a_disk_that_fails_is_an_error_and_never_a_shorter_answer(tmp_path: Path) -> None:
    side = relation([SqlRead("e", "t", ("k",), ("a", "b"))])
    with filled(tmp_path, 1000) as store:
        broken = next(iter(tmp_path.glob("rows/*/*.parquet")))
        broken.write_bytes(broken.read_bytes()[:-20])
        with pytest.raises(ReadError, match="could not be joined"):
            list(store.join(lambda rows: statement((side, None), JoinFilter(all=True), rows)))
    with RowStore(tmp_path) as store:
        rmtree(tmp_path)
        tmp_path.write_text("no folder any more")
        with patch.object(row_store, "FLUSH_BYTES", 0), pytest.raises(ReadError, match="could not be joined"):
            store.add(record_batch(0, 0, [[b"=k"], [b"=v"], [b""]], counted=False))
    tmp_path.unlink()


def test_rows_of_a_file_that_is_gone_are_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = RowStore.join

    def robbed(store: RowStore, statement: Callable[[str], str]) -> Iterator[dict[str, Any]]:
        rmtree(next(iter(store.folder.glob("rows/p=*"))))
        return whole(store, statement)

    monkeypatch.setattr(RowStore, "join", robbed)
    monkeypatch.setattr(row_store, "FLUSH_BYTES", 0)
    engine = toy_engine({"s": some(300)}, tmp_path)
    with pytest.raises(ReadError, match=r"300 rows were written to .*, and \d+ were read back"):
        list(engine.join(relation([toy_read("one", "s", some(300))]), None, JoinFilter(all=True)))


def test_a_part_of_a_group_that_is_gone_is_missed(tmp_path: Path) -> None:
    sums = relation([SqlRead("e", "t", ("k",), ("a",), grouped=True)] * 2, combine=Combine.SUM)
    with RowStore(tmp_path) as store:
        keys = [b"=%d" % number for number in range(200)]
        with patch.object(row_store, "FLUSH_BYTES", 0):
            store.add(record_batch(0, 1, [keys, [b"=1"] * 200, [b"=3"] * 200], counted=True), parts=True)
        next(iter(tmp_path.glob("parts/*/*.parquet"))).unlink()
        with pytest.raises(ReadError, match="600 rows were written"):
            store.combine(PartCombiner.of((sums, None)))


def test_memory_that_does_not_suffice_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "MEMORY", "1MB")
    with pytest.raises(ReadError, match=r"could not be joined.*[Mm]emory"):
        filled(tmp_path, 200_000)


def test_duckdb_reads_the_folder_of_its_rows_and_nothing_else(tmp_path: Path) -> None:
    outside = tmp_path / "outside.csv"
    outside.write_text("a,b\n1,2\n")
    folder = tmp_path / "rows"
    folder.mkdir()
    with filled(folder, 10) as store:
        for text in (
            f"SELECT * FROM read_csv('{outside}')", f"COPY (SELECT 1) TO '{tmp_path}/new.parquet'", "INSTALL httpfs",
            "LOAD httpfs", "SET threads=9", "SELECT * FROM read_parquet('http://localhost/x')",
        ):  # fmt: skip
            with pytest.raises(ReadError):
                list(store.join(lambda _rows, text=text: text))  # type: ignore[misc]


def endless(rows: str) -> str:
    return f"SELECT count(*) FROM {rows} JOIN {rows.removesuffix('r')}s ON r.k<>s.k||s.v||r.v"


def test_a_statement_that_runs_is_ended_from_another_thread(tmp_path: Path) -> None:
    with filled(tmp_path, 200_000) as store:
        timer = threading.Timer(1.0, store.interrupt)
        timer.start()
        with pytest.raises(CanceledError):
            list(store.join(endless))
        timer.join()
        with pytest.raises(CanceledError):
            list(store.join(lambda rows: f"SELECT * FROM {rows}"))


def test_ctrl_c_ends_a_statement_that_runs(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.unit.recon.test_recon_local import endless, filled\n"
        "with filled(Path(sys.argv[1]), 400_000) as store:\n"
        "    print('ready', flush=True)\n"
        "    list(store.join(endless))\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    sleep(1)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=20)
    assert "KeyboardInterrupt" in errors
    assert not list(tmp_path.glob("sorts/*"))


def test_the_programs_help_loads_neither_duckdb_nor_pyarrow() -> None:
    code = "import sys; from migverify.cli.main import main; import migverify.recon.local\n" \
        "print(sorted({'duckdb', 'pyarrow'} & set(sys.modules)))"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


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
        make("CONCAT", -1, lambda *parts: None if None in parts else "".join(str(part) for part in parts))
        make("IF", 3, lambda condition, one, other: one if condition else other)
        self._connection.create_aggregate("GROUP_CONCAT", -1, _Joined)  # type: ignore[arg-type]
        self._connection.create_aggregate("SUM", 1, _Sum)  # type: ignore[arg-type]
        for name, found in tables.items():
            self._connection.execute(f"CREATE TABLE {name} (n INTEGER, k TEXT, a TEXT, b TEXT)")
            listed = [(int(key[0]) if key[0] and key[0].isdigit() else None, *key, *values) for key, values in found]
            self._connection.executemany(f"INSERT INTO {name} VALUES (?,?,?,?)", listed)

    def stream(self, sql: str) -> Iterator[tuple[bytes | None, ...]]:
        yield from self.query_bytes(sql)

    def query_bytes(self, sql: str) -> list[tuple[bytes | None, ...]]:
        self._before(sql)
        # AS BINARY is a number to SQLite; its texts compare by bytes anyhow.
        for ours, theirs in (
            (" AS BINARY)", " AS BLOB)"),
            (" SEPARATOR '')", ")"),
            ("'\\0'", "CHAR(0)"),
            (" DIV ", "/"),
        ):
            sql = sql.replace(ours, theirs)
        found = self._connection.execute(sql)
        return [
            tuple(None if v is None else v if isinstance(v, bytes) else str(v).encode() for v in row) for row in found
        ]

    def query(self, sql: str) -> list[tuple[str | None, ...]]:
        return [tuple(None if v is None else v.decode() for v in row) for row in self.query_bytes(sql)]

    def refuse_altered(self, *allowed: str) -> None:
        """SQLite does not warn."""

    def execute(self, sql: str) -> int:
        KILLED.append(sql)
        return 0

    def abort(self) -> None:
        self.aborted = True

    def __enter__(self) -> ToySession:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


class _Joined:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def step(self, *parts: Any) -> None:
        self.texts += map(str, parts)

    def finalize(self) -> str | None:
        return "".join(self.texts) or None


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
    def snapshot(endpoint: Endpoint, secrets: Mapping[str, str], wanted: int, probe: str) -> Iterator[Any]:
        del secrets, probe
        assert 1 <= wanted <= endpoint.connections
        sessions = tuple(ToySession(tables, before) for _ in range(wanted))
        for session in sessions:
            session.endpoint = endpoint
        yield SimpleNamespace(
            sessions=sessions, snapshot=ReadSnapshot(endpoint.name, "toy", "toy", "1", "1", exact=True, at=0.0)
        )

    endpoints = {name: Endpoint(name, "h", 1, "u", connections=connections) for name in ("one", "two")}
    opener: Any = lambda _endpoint, _password: ToySession(tables, before)  # noqa: E731
    return LocalEngine(endpoints, {}, folder=folder, retry_seconds=0.0, opener=opener, snapshot=snapshot, **fields)


def toy_read(endpoint: str, table: str, found: Sequence[Row], *, cut: bool = False, row_bytes: int = -1) -> SqlRead:
    """A read of a toy table; with ``cut`` its keys are whole numbers or NULL, and ranges of them are read."""
    key = KeyColumn("n", "k", "integer", nullable=True) if cut else KeyColumn("k", "k", "text", nullable=True)
    return SqlRead(
        endpoint, table, ("k",), ("a", "b"), strings=(True,) * 3, rows=len(found), lookup=(key,), row_bytes=row_bytes,
        cut=Cut("n", 1, 9, nullable=True) if cut else None,
    )  # fmt: skip


numbered = st.lists(
    st.tuples(st.tuples(st.sampled_from([None, *"123456789"])), st.tuples(words, words)), max_size=12
)  # fmt: skip
two_sides = st.sampled_from([rows, numbered]).flatmap(
    lambda of: st.tuples(
        st.just(of is numbered), st.lists(of, min_size=1, max_size=2), st.lists(of, min_size=1, max_size=2)
    )
)


@settings(max_examples=25, deadline=None)
@given(
    sides=two_sides, keep=keeps, carried=st.integers(0, 2), most=st.integers(1, 5), alike=st.booleans(),
    sizes=st.sampled_from([(0, 200), (0, 1 << 30), (1 << 30, 0)]),
)  # fmt: skip
def test_what_the_engine_reads_and_joins_is_the_naive_join(
    sides: tuple[bool, list[list[Row]], list[list[Row]]], keep: JoinFilter, carried: int, most: int, alike: bool,
    sizes: tuple[int, int],
) -> None:  # fmt: skip
    cut, ours, theirs = sides
    if alike:
        theirs = [*ours[:-1], [row for row in ours[-1] if row[1][0] != "b"]]
    compared = 2 - carried
    expected, totals = naive_join(naive_side(ours, compared), naive_side(theirs, compared), keep, compared)
    tables = {f"s{n}": part for n, part in enumerate(ours)} | {f"t{n}": part for n, part in enumerate(theirs)}
    source = relation([toy_read("one", f"s{n}", part, cut=cut) for n, part in enumerate(ours)], carried=carried)
    target = relation([toy_read("two", f"t{n}", part, cut=cut) for n, part in enumerate(theirs)], carried=carried)
    assert share_ranges((source, target), keep) == (cut and not keep.all)
    with (
        TemporaryDirectory() as folder, patch.object(recon_reads, "STEP_ROWS", most),
        patch.object(row_store, "FLUSH_BYTES", sizes[0]), patch.object(row_store, "LARGE_BYTES", sizes[1]),
    ):  # fmt: skip
        joined = toy_engine(tables, Path(folder)).join(source, target, keep)
        found = [p for batch in joined for p in batch]
        assert not list(Path(folder).iterdir())
    assert by_key(found) == by_key(expected)
    assert joined.totals == totals
    assert [a.endpoint for a in joined.snapshots] == ["one", "two"]


def some(count: int) -> list[Row]:
    return [((str(n),), (f"v{n}", "x")) for n in range(count)]


ANY = JoinFilter()


def is_read(sql: str) -> bool:
    """Whether a statement reads rows: many packed into one text, or one by one."""
    return sql.startswith(("SELECT COUNT(*),0,GROUP_CONCAT(", "SELECT CONCAT(IFNULL("))


def join_all(engine: LocalEngine, *sides: Relation | None, keep: JoinFilter = ANY) -> list[Pairing]:
    joined = engine.join(sides[0], sides[1], keep)  # type: ignore[arg-type]
    return [p for batch in joined for p in batch]


def test_rows_that_agree_in_a_shared_range_are_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = some(5000), some(5000)
    theirs[7] = (("7",), ("other", "x"))
    joined: list[int] = []
    whole = RowStore.check_joined

    def check(store: RowStore, rows: int) -> None:
        joined.append(rows)
        whole(store, rows)

    monkeypatch.setattr(RowStore, "check_joined", check)
    engine = toy_engine({"s": ours, "t": theirs})
    source, target = (relation([toy_read(*of, ours, cut=True)]) for of in (("one", "s"), ("two", "t")))
    answer = engine.join(source, target, ANY)
    assert [p.key for batch in answer for p in batch] == [("7",)]
    assert answer.totals == Totals(5000, 5000, 5000, 5000, 4999)
    assert joined == [2]


def test_a_range_that_is_too_large_for_memory_is_joined_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recon_reads, "GATHER_BYTES", 100)
    ours = some(500)
    engine = toy_engine({"s": ours, "t": ours[1:]})
    source, target = (relation([toy_read(*of, ours, cut=True)]) for of in (("one", "s"), ("two", "t")))
    answer = engine.join(source, target, ANY)
    assert [p.key for batch in answer for p in batch] == [("0",)]
    assert answer.totals == Totals(500, 499, 500, 499, 499)


def failing(times: int, error: Exception) -> Callable[[str], None]:
    left = [times]
    lock = threading.Lock()

    def before(sql: str) -> None:
        with lock:
            if left[0] and is_read(sql):
                left[0] -= 1
                raise error

    return before


def test_a_read_that_fails_for_a_while_begins_anew(tmp_path: Path) -> None:
    engine = toy_engine({"s": some(9)}, tmp_path, failing(2, RetryableReadError("gone")))
    found = join_all(engine, relation([toy_read("one", "s", some(9))]), None, keep=JoinFilter(all=True))
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
        relation([toy_read("one", "s", some(9))]), relation([toy_read("two", "t", [])]), JoinFilter(all=True)
    )
    with pytest.raises(kind):
        next(iter(joined))
    assert not list(tmp_path.iterdir())


def test_a_canceled_engine_reads_nothing(tmp_path: Path) -> None:
    engine = toy_engine({"s": some(9)}, tmp_path)
    joined = engine.join(relation([toy_read("one", "s", some(9))]), None, JoinFilter(all=True))
    engine.cancel()
    with pytest.raises(CanceledError):
        list(joined)
    with pytest.raises(CanceledError):
        engine.lookup(relation([toy_read("one", "s", some(9))]), [("1",)])


def test_canceling_cuts_the_sessions_of_a_join_under_way() -> None:
    engine = toy_engine({"s": some(9)}, before=lambda _sql: engine.cancel())
    KILLED.clear()
    with pytest.raises(CanceledError):
        join_all(engine, relation([toy_read("one", "s", some(9))]), None, keep=JoinFilter(all=True))
    assert KILLED == ["KILL QUERY 7"], "the server does not go on for nobody"


def test_lookups_find_the_asked_keys_only() -> None:
    found = [*some(3), (("1",), ("w", "x"))]
    engine = toy_engine({"s": found})
    side = relation([toy_read("one", "s", found)])
    held = engine.lookup(side, [("1",), ("9",), ("2",)])
    assert held == {("1",): KeyRows(2, ("v1", "x"), differing=True), ("2",): KeyRows(1, ("v2", "x"))}


def test_what_this_engine_cannot_read_is_refused_before_it_reads() -> None:
    engine = toy_engine({})
    files = relation([FileRead(FilePart("/x"), ("k",), ("a", "b"), (TEXT,) * 3)])
    with pytest.raises(ConfigError, match="Spark engine"):
        engine.join(files, None, JoinFilter())
    with pytest.raises(ConfigError, match="no endpoint three"):
        engine.join(relation([toy_read("three", "s", [])]), None, JoinFilter())

"""Runs for the tests of the reports: each function fills a store and returns the run's id."""

from __future__ import annotations

from typing import Any

from migverify.model import (
    ChunkChecksum,
    ChunkResult,
    ChunkState,
    ColumnDiff,
    DiffKind,
    KeyRange,
    LiveState,
    NotCovered,
    RowDiff,
    SchemaClass,
    SchemaDifference,
    StoredKind,
    TableResult,
    Verdict,
)
from migverify.store.results import ResultStore
from tests.fakes import FakeStore

START = 1_800_000_000.0
HOSTILE = (
    "<script>alert(1)</script>",
    "quote\"'`;--",
    "rtl\u202eabc\u2066",
    "emoji 🐘 ❤️",
    "long_" + "x" * 495,
    "ctl\x00\x1b[31m\x85\ufffe",
    "]]>&amp;</style><!--",
    "{{ 7*7 }}",
    "lone \udc80 surrogate",
    "tab\tline\nreturn\r",
)
FACTS: dict[str, Any] = {
    "engine": "spark local[*]",
    "migverify": "0.1.0",
    "endpoints": {
        "source": {"flavor": "mysql", "version": "9.7.4", "position": "binlog.000012:4711"},
        "target": {"flavor": "tidb", "version": "8.0.11-TiDB-v8.5.0", "position": "TSO 470606899199344640"},
    },
}


def result(name: str, verdict: Verdict = Verdict.MATCH, **more: Any) -> TableResult:
    """A table result of a thousand rows; ``more`` overrides any field."""
    fields: dict[str, Any] = {
        "pair": name,
        "source": f"shop.{name}",
        "target": f"shop.{name}",
        "verdict": verdict,
        "reasons": (),
        "rows_source": 1000,
        "rows_target": 1000,
        "chunks": 4,
        "lanes": ("exact",),
        "missing_on_target": 0,
        "missing_on_source": 0,
        "value_differs": 0,
        "not_covered": (),
        "schema": (),
        "seconds": 1.25,
        "hash_name": "sha2-256/60",
        "blind_spots": ("A collision of a 60-bit sum has a chance of about 2^-60.",),
    }
    return TableResult(**{**fields, **more})


def chunk(pair: str, number: int, state: ChunkState = ChunkState.EQUAL, **more: Any) -> ChunkResult:
    """One chunk of 250 rows, half a second after the one before."""
    fields: dict[str, Any] = {
        "pair": pair,
        "span": 0,
        "number": number,
        "range": KeyRange((str(number * 250),), (str(number * 250 + 250),)),
        "state": state,
        "source": ChunkChecksum(250, 250, 7),
        "target": ChunkChecksum(250, 250, 7),
        "started": START + number / 2,
        "seconds": 0.4 + number / 100,
        "source_seconds": 0.4 + number / 100,
        "target_seconds": 0.3,
    }
    return ChunkResult(**{**fields, **more})


def start(store: ResultStore, plan: dict[str, Any] | None = None, facts: dict[str, Any] | None = None) -> str:
    """Begin a run with the usual facts."""
    return store.start_run(
        "tables verify --engine spark", "plan-5f2c", plan or {}, {**FACTS, **(facts or {})}, kind=StoredKind.TABLES
    )


def store_at_fixed_times() -> FakeStore:
    """A store whose first call of the clock is START, the next START + 12.5, and so on."""
    times = (START + 12.5 * n for n in range(1_000_000))
    return FakeStore(lambda: next(times))


def match_run(store: ResultStore) -> str:
    """Two equal tables."""
    run = start(store)
    for name in ("customers", "orders"):
        store.add_span(run, name, 0, KeyRange())
        store.add_chunks(run, [chunk(name, n) for n in range(4)], [])
        store.add_table_result(run, result(name))
        store.add_sql(run, name, "source", "checksum", "SELECT COUNT(*), SUM(...) FROM `shop`.`customers`")
        store.add_sql(run, name, "target", "checksum", "SELECT COUNT(*), SUM(...) FROM `shop`.`customers`")
    store.finish_run(run, Verdict.MATCH, {"seconds": 3.5})
    return run


def row_diff(pair: str, key: object, kind: DiffKind, *columns: ColumnDiff, **more: Any) -> RowDiff:
    """A diverged row diff."""
    return RowDiff(pair, (str(key),), kind, more.pop("state", LiveState.DIVERGED), columns, **more)


VALUE_DIFFS = (
    ColumnDiff("name", "Müller ", "Müller", "trailing-space"),
    ColumnDiff("email", "Ann@example.org", "ann@example.org", "case"),
    ColumnDiff("note", "", None, "empty-or-null"),
    ColumnDiff("flags", "0", None, "null"),
    ColumnDiff("created", "2026-01-31 12:00:00.000000", "2026-01-31 13:00:00.000000", "shifted +1h"),
    ColumnDiff("memo", "a\tb\u200bc", "a    bc", "value"),
    ColumnDiff("amount", "1234.5600", "1234.5599", "precision"),
    ColumnDiff("title", "<b>bold</b> & \u202eevil", "<b>bold</b> &amp; evil", "value"),
    ColumnDiff("body", "x" * 5000 + "1" + "y" * 3000, "x" * 5000 + "2" + "y" * 3000, "value"),
    ColumnDiff("secret", None, None, "value", masked=True),
    ColumnDiff("city", "Zürich", "ZÃ¼rich", "charset"),
)


def mismatch_run(store: ResultStore) -> str:
    """Every kind of difference, a failed table, a keyless table, schema differences, an equal table."""
    run = start(store, facts={"throttle": {"connections_per_endpoint": 4}})
    diffs = [row_diff("accounts", 7 + i, DiffKind.VALUE_DIFFERS, c) for i, c in enumerate(VALUE_DIFFS)]
    diffs += [row_diff("accounts", 9_007_199_254_740_993, DiffKind.MISSING_ON_TARGET)]
    diffs += [row_diff("accounts", 5000 + i, DiffKind.MISSING_ON_SOURCE, shard="source.eu") for i in range(3)]
    diffs += [row_diff("accounts", 6000, DiffKind.VALUE_DIFFERS, state=LiveState.CONVERGED)]
    chunks = [chunk("accounts", n, ChunkState.DIFFERENT if n in {0, 3} else ChunkState.EQUAL) for n in range(12)]
    store.add_span(run, "accounts", 0, KeyRange())
    store.add_chunks(run, chunks, diffs)
    store.add_sql(run, "accounts", "source", "rows", "SELECT `id`, `name` FROM `shop`.`accounts` WHERE `id` > 0")
    store.add_table_result(
        run,
        result(
            "accounts",
            Verdict.MISMATCH,
            reasons=("15 row diffs",),
            rows_target=1002,
            missing_on_target=1,
            missing_on_source=3,
            value_differs=11,
            lanes=("exact", "value"),
            seconds=8.75,
            chunks=12,
            not_covered=(NotCovered("column `geo`", "its type POINT has no canonical text on TiDB"),),
            schema=(
                SchemaDifference(
                    "type",
                    "name",
                    "varchar(20)",
                    "varchar(10)",
                    SchemaClass.MAY_LOSE_DATA,
                    "the target holds fewer characters",
                ),
                SchemaDifference("missing", "geo", "point", None, SchemaClass.BREAKS_COMPARISON, "no such column"),
                SchemaDifference("comment", "table", "old", "new", SchemaClass.COSMETIC, "the comments differ"),
            ),
        ),
    )
    failed = chunk(
        "payments",
        1,
        ChunkState.FAILED,
        target=None,
        attempts=5,
        reason="query ran into its time limit of 60 s",
    )
    store.add_chunks(run, [chunk("payments", 0), failed], [])
    store.add_table_result(
        run,
        result(
            "payments",
            Verdict.INCONCLUSIVE,
            rows_target=None,
            reasons=("1 of 2 chunks could not be read",),
            seconds=61.0,
        ),
    )
    keyless = row_diff("audit_log", "3f2a90", DiffKind.VALUE_DIFFERS, source_count=2, target_count=1)
    store.add_chunks(run, [chunk("audit_log", 0, ChunkState.DIFFERENT)], [keyless])
    store.add_table_result(run, result("audit_log", Verdict.MISMATCH, value_differs=1, target="archive.audit_log"))
    store.add_table_result(run, result("customers"))
    store.finish_run(run, Verdict.MISMATCH, {"seconds": 75.25})
    return run


def unfinished_run(store: ResultStore) -> str:
    """A run that was killed: one table done, one begun, one never reached."""
    plan = {"pairs": [{"pair": n, "source": f"shop.{n}", "target": f"shop.{n}"} for n in ("a", "b", "c")]}
    run = start(store, plan)
    store.add_table_result(run, result("a"))
    store.add_chunks(run, [chunk("b", 0)], [])
    return run


def empty_run(store: ResultStore) -> str:
    """A run that found no table pair."""
    run = start(store, facts={"reasons": ["no table pair matches --tables"]})
    store.finish_run(run, Verdict.INCONCLUSIVE, {})
    return run


def hostile_run(store: ResultStore) -> str:
    """Every name, reason, key and value is an attack."""
    run = start(store, facts={name: name for name in HOSTILE})
    for name in HOSTILE:
        column = ColumnDiff(name, name, name[::-1], name)
        diff = RowDiff(name, (name, None), DiffKind.VALUE_DIFFERS, LiveState.DIVERGED, (column,), shard=name)
        failed = chunk(name, 0, ChunkState.FAILED, range=KeyRange((name,), (name,)), reason=name)
        store.add_chunks(run, [failed], [diff])
        store.add_sql(run, name, "source", name, f"SELECT '{name}'")
        schema = SchemaDifference(name, name, name, None, SchemaClass.COSMETIC, name)
        store.add_table_result(
            run,
            result(
                name,
                Verdict.MISMATCH,
                source=f"{name}.{name}",
                target=name,
                reasons=(name,),
                value_differs=1,
                not_covered=(NotCovered(name, name),),
                schema=(schema,),
                blind_spots=(name,),
                hash_name=name,
                details={name: name},
                lanes=(name,),
            ),
        )
    store.finish_run(run, Verdict.MISMATCH, {})
    return run


def large_run(store: ResultStore, tables: int) -> str:
    """Many tables: each 40th is MISMATCH, each 97th INCONCLUSIVE."""
    run = start(store)
    for n in range(tables):
        name = f"t{n:05d}"
        verdict = Verdict.MISMATCH if n % 40 == 0 else Verdict.INCONCLUSIVE if n % 97 == 0 else Verdict.MATCH
        diffs = []
        if verdict is Verdict.MISMATCH:
            diffs = [row_diff(name, k, DiffKind.VALUE_DIFFERS, VALUE_DIFFS[k % 9]) for k in range(30)]
        store.add_chunks(run, [chunk(name, 0, started=START + n / 5, seconds=0.1 + n % 17 / 10)], diffs)
        reasons = () if verdict is Verdict.MATCH else (f"stated reason of {name}",)
        store.add_table_result(
            run,
            result(
                name,
                verdict,
                seconds=0.1 + n % 17 / 10,
                value_differs=len(diffs),
                rows_source=n * 13,
                rows_target=n * 13,
                reasons=reasons,
            ),
        )
    store.finish_run(run, Verdict.MISMATCH, {"seconds": tables / 5})
    return run

"""Questions of the hotspots guard."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from migverify.guards.capacity_judge import shown_bytes, shown_seconds
from migverify.guards.hotspots_capture import capture
from migverify.guards.hotspots_model import ROW_ID, ROWS, InsertRange, KeyOrder, follows_updates
from migverify.guards.hotspots_read import DEFAULTS, REGION_BYTES, Growth, HotspotFacts
from migverify.guards.model import AnswerState, CheckResult, GuardQuestion, passed, unknown
from migverify.load import TableLoad, TransactionLoad
from migverify.model import TableDef
from migverify.sql import settings as sql
from migverify.sql.settings import version_number


def insert_order(facts: HotspotFacts) -> Iterator[CheckResult]:
    """Judge each range that inserts add to, by the rate of one region at its end."""
    here = facts.target.endpoint.name
    for name in sorted(facts.sources.keys() | facts.target.tables.keys()):
        table = facts.target.tables.get(name)
        if table is None:
            yield unknown("not on the target, or not seen there: its keys are not known", "Create it first.",
                          subject=f"{here}/{name}")  # fmt: skip
            continue
        for part in facts.ranges(name):
            result = _range(facts, name, table, part)
            if part.name == ROWS or (part.order is KeyOrder.INCREASING or result.state is AnswerState.INCONCLUSIVE):
                yield replace(result, part=part.name, subject=f"{here}/{table.ref}")


def _range(facts: HotspotFacts, name: str, table: TableDef, part: InsertRange) -> CheckResult:
    limits, load, growth = facts.limits, facts.loads.get(name, TableLoad()), facts.growth.get(name, Growth(None, None))
    peak = load.inserts.peak + (load.changes.peak if follows_updates(table, part.column) else 0.0)
    value = f"{part.column}: {part.cause}, {part.order.value}" + (f" in {part.spread} places" * (part.spread > 1))
    numbers = {"places": float(part.spread)}
    if facts.load is not None:
        value += f"; {peak:,.0f}/s over {facts.load.stretch:.0f} s, {load.inserts.mean:,.1f} inserts/s on the average"
        numbers |= {"inserts_per_second": peak, "inserts_mean": load.inserts.mean}
    if growth.rate is not None:
        value += f"; {growth.rate:,.1f} ids/s by earlier runs of `guard ids`"
        numbers["ids_per_second"] = growth.rate
    if part.order is KeyOrder.SCATTERED:
        return passed(value, numbers=numbers)
    rate = max(peak, growth.rate or 0.0) / part.spread
    state = AnswerState.FAIL if rate >= limits.fail else AnswerState.WARN if rate >= limits.warn else AnswerState.PASS
    if state is AnswerState.PASS and facts.load is None:
        most = growth.most(limits.peak_factor)
        value += "" if growth.rate is not None else "; its insert rate is not known"
        if (most is None or most / part.spread >= limits.warn) and (
            part.name == ROWS or part.order is not KeyOrder.UNKNOWN
        ):
            state = AnswerState.INCONCLUSIVE
    elif state is AnswerState.PASS and (load.uncounted or rate + load.upserts.peak / part.spread >= limits.warn):
        value += f"; {load.uncounted:,} statements insert rows that the capture does not count, and of upserts with"
        value += f" {load.upserts.peak:,.0f} rows/s it does not tell the new ones"
        state = AnswerState.INCONCLUSIVE
    if part.order is KeyOrder.UNKNOWN and state is not AnswerState.PASS:
        state = AnswerState.INCONCLUSIVE
        value += "; whether its values increase is known by a capture with its literals only"
    return CheckResult(state, value, _remedy(table, part), numbers=numbers)


def _remedy(table: TableDef, part: InsertRange) -> str:
    """Return TiDB's documented remedy for a range with an end, and what it breaks for the application."""
    ref = table.ref
    if part.name != ROWS:
        return (
            f"Put a column of many values before {part.column}, or partition the table by HASH: reads by {part.column}"
            " alone then ask many ranges. Drop the index where nothing reads by it."
        )
    if part.column == ROW_ID:
        return (
            f"{sql.sharded_rows(ref.database, ref.table)} (with PRE_SPLIT_REGIONS where it is created): rows without"
            " ORDER BY then come in another order."
        )
    if part.cause == "AUTO_RANDOM":
        return "Give AUTO_RANDOM more shard bits: fewer are left for the ids themselves."
    if part.cause != "AUTO_INCREMENT":
        return (
            "Create the table with PRIMARY KEY ... NONCLUSTERED, SHARD_ROW_ID_BITS = 4 and PRE_SPLIT_REGIONS = 4: a"
            " lookup by key then reads twice, and a clustered key cannot be changed later. Or use ids that are"
            " scattered: rows are then not in the order of time."
        )
    column = table.column(part.column)
    text = sql.auto_random(ref.database, ref.table, column.name, column.column_type)
    if column.data_type != "bigint":
        text = f"AUTO_RANDOM needs BIGINT: widen {column.name} and what refers to it, then {text}"
    return (
        f"{text}. Then ids jump, and ORDER BY id or `id > last` is no order of insertion any more; the id has to stay"
        " the first column of the key; clients need 64 bits (JavaScript rounds), and an INSERT with an id of its own, a"
        " replication's too, needs allow_auto_random_explicit_insert."
    )


def small_tables(facts: HotspotFacts) -> Iterator[CheckResult]:
    """Judge tables that fit into one region by what is asked of it; rows that are inserted make it grow, and split."""
    load, limits = facts.load, facts.limits
    if load is None:
        return
    reads, changes = (sum(getattr(one, of).count for one in load.tables.values()) or 1 for of in ("reads", "changes"))
    region = facts.target.settings.get(REGION_BYTES, DEFAULTS[REGION_BYTES])
    small = [name for name in facts.target.tables if facts.bytes_of(name) < region]
    for name in small:
        asked, ref, size = facts.loads.get(name, TableLoad()), facts.target.tables[name].ref, facts.bytes_of(name)
        regions = max(facts.target.regions.get(name, 1), facts.target.partitions.get(name, ("", 1))[1])
        writing, reading = asked.changes.peak / regions, asked.reads.peak / regions
        if writing < limits.warn and reading < limits.reads:
            continue
        value = (
            f"{shown_bytes(size)} in {regions} regions: {asked.reads.peak:,.0f} reads/s"
            f" ({asked.reads.count / reads:.0%} of all), {asked.changes.peak:,.0f} changes/s"
            f" ({asked.changes.count / changes:.0%} of all)"
        )
        todo = f"{sql.split_rows(ref.database, ref.table)}: small regions are merged again."
        if size < limits.cached_bytes and asked.changes.mean < limits.cached_writes:
            todo = f"{sql.cached(ref.database, ref.table)}: writes then wait for tidb_table_cache_lease (3 s)."
        yield CheckResult(
            AnswerState.FAIL if writing >= limits.fail else AnswerState.WARN, value, todo, str(ref),
            subject=f"{facts.target.endpoint.name}/{ref}", numbers={"bytes": float(size), "regions": float(regions),
            "reads_per_second": asked.reads.peak, "changes_per_second": asked.changes.peak},
        )  # fmt: skip
    yield passed(f"{len(small)} tables are smaller than a region of {shown_bytes(region)}")


def hot_keys(facts: HotspotFacts) -> Iterator[CheckResult]:
    """Judge the rows that are written most: pessimistic locks queue behind each other."""
    load, limits = facts.load, facts.limits
    if load is None or load.masked:
        return
    targets = {f"{d}.{t}".lower(): target for target, names in facts.sources.items() for _, d, t in names}
    keys = [one for one in load.keys if one.table in targets]
    for one in keys:
        if one.writes.peak >= limits.key_warn:
            yield CheckResult(
                AnswerState.FAIL if one.writes.peak >= limits.key_fail else AnswerState.WARN,
                f"{one.writes.peak:,.0f} writes/s over {load.stretch:.0f} s, {one.writes.count:,} in all", part=one.key,
                subject=f"{facts.target.endpoint.name}/{targets[one.table]}",
                numbers={"writes_per_second": one.writes.peak, "writes": float(one.writes.count)},
            )  # fmt: skip
    top = f"most: {keys[0].table} ({keys[0].key}), {keys[0].writes.peak:,.1f} writes/s" if keys else "no key is written"
    if load.missed / load.seconds >= limits.key_warn:
        yield unknown(f"{top}; others with up to {load.missed / load.seconds:,.0f} writes/s may have been missed")
    else:
        yield passed(top)


def transactions(facts: HotspotFacts) -> Iterator[CheckResult]:
    """Judge the longest and the largest transactions that write against the target's limits."""
    load, settings = facts.load, facts.target.settings
    if load is None:
        return

    def of(name: str) -> float:
        return float(settings.get(name, DEFAULTS[name]))

    def limited(
        part: str, which: TransactionLoad, measured: float, shown: str, name: str, warn: float, fail: float, todo: str
    ) -> CheckResult:
        state = AnswerState.FAIL if measured > fail else AnswerState.WARN if measured > warn else AnswerState.PASS
        value = f"at most {shown}" + (f" ({which.origin})" if which.origin else "")
        if name not in settings:
            value += f"; {name} is not shown: TiDB's default counts"
            state = AnswerState.INCONCLUSIVE if state is AnswerState.PASS and measured > warn / 10 else state
        threshold = f"{name}: warns above {warn:,.0f}" + (f", fails above {fail:,.0f}" if fail < math.inf else "")
        return CheckResult(state, value, todo, part, threshold, subject=facts.target.endpoint.name,
                           numbers={"measured": measured, "warn": warn})  # fmt: skip

    life, name = load.longest.seconds, "performance.max-txn-ttl"
    yield limited("time", load.longest, life, shown_seconds(life), name, of("tidb_gc_life_time"), of(name) / 1000,
                  "Commit earlier: TiDB rolls back what is older than max-txn-ttl; what is older than tidb_gc_life_time"
                  " holds garbage collection up, and scans get slower.")  # fmt: skip
    count, name = load.most.statements, "performance.stmt-count-limit"
    yield limited("statements", load.most, count, f"{count:,} statements", name, of(name), math.inf,
                  "Commit in batches: an optimistic transaction that is retried fails beyond this.")  # fmt: skip
    size, name = load.largest.bytes, "performance.txn-total-size-limit"
    warn, fail = of(name) / 2, of(name)
    if fail == DEFAULTS[name] and version_number(facts.target.version.partition("TiDB-v")[2]) >= (6, 5):
        name = "tidb_mem_quota_query"  # from 6.5 on the default means that the session's memory is the limit
        warn, fail = of(name) / facts.limits.memory_factor, of(name)
    yield limited("size", load.largest, size, f"{shown_bytes(size)} in {load.largest.rows:,} rows", name, warn, fail,
                  "Write in batches, or by BATCH ... LIMIT: it is then no longer one transaction.")  # fmt: skip
    wide, name = load.widest.bytes, "performance.txn-entry-size-limit"
    entry = float(settings.get("tidb_txn_entry_size_limit") or of(name))
    yield limited("row", load.widest, wide, shown_bytes(wide), name, entry, 2 * entry,  # a text may be twice its value
                  "Raise tidb_txn_entry_size_limit, or keep large values elsewhere.")  # fmt: skip


QUESTIONS = (
    GuardQuestion("capture", "shows the load", "", "What it does not show is not judged.", "", capture, "capture"),
    GuardQuestion("insert order", "below the limit of one region at the end of a range of keys", sql.KEY_KINDS,
                  "Inserts in the order of the key go to one region, and so to one store, however many there are.", "",
                  insert_order),
    GuardQuestion("small table", "spread over regions, or not asked that much", "",
                  "A table below the size of a region is on one store.", "", small_tables, "target"),
    GuardQuestion("hot key", "few writes of one row a second", "",
                  "Each write waits for the lock of the one before, until its two-phase commit ends.",
                  "Spread it: several rows whose sum counts, one statement for many events, or a queue. A read then"
                  " adds them up, and a check of the sum (stock, balance) needs another lock.", hot_keys, "target"),
    GuardQuestion("transaction", "", sql.LIMITS_CONFIGURATION,
                  "MySQL has no such limits: nothing was ever tested against them.", "", transactions, "target"),
)  # fmt: skip

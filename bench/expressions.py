"""Cost of each part of the checksum statement on each server, and of the statements beside it.

Every variant is one statement over a sixth of lineitem on one connection, in turn. ``base`` is what migverify sends.
``injective`` says whether different rows always give different texts; a variant that is not is measured to know the
price of being exact, never as a candidate.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass

import pymysql

from bench.setting import Setting, add_arguments, connect, execute, open_setting, plan
from migverify.db.session import open_session
from migverify.model import Endpoint, KeyRange
from migverify.sql.checksum import SideSql, checksum_sql, checksum_sum, count_sql, element, rows_sql, walk_sql

INTS = ("l_orderkey", "l_partkey", "l_suppkey", "l_linenumber")
DECIMALS = ("l_quantity", "l_extendedprice", "l_discount", "l_tax")
DATES = ("l_shipdate", "l_commitdate", "l_receiptdate")
STRINGS = ("l_returnflag", "l_linestatus", "l_shipinstruct", "l_shipmode", "l_comment")


@dataclass(frozen=True, slots=True)
class Variant:
    """One select list. ``what`` is what it tries."""

    name: str
    sql: str
    what: str
    injective: bool = True


def pack_ints(columns: tuple[str, ...]) -> list[str]:
    """Pack pairs of 32-bit integers into one 64-bit number: a * 2^32 + (b + 2^31) overflows for no pair."""
    pairs = zip(columns[::2], columns[1::2], strict=True)
    return [f"{a}*4294967296+({b}+2147483648)" for a, b in pairs]


def pack_dates(columns: tuple[str, ...]) -> list[str]:
    """Pack two dates as YYYYMMDD * 10^8 + YYYYMMDD: zero and partial dates keep a number of their own."""
    first, second, third = columns
    return [f"CAST({first} AS SIGNED)*100000000+CAST({second} AS SIGNED)", f"CAST({third} AS SIGNED)"]


def lengths() -> list[str]:
    """Return the byte length of each string."""
    return [f"LENGTH({s})" for s in STRINGS]


def pack_lengths() -> list[str]:
    """Pack the lengths of five short strings (each below 1000 bytes) into one number."""
    text = lengths()[0]
    for length in lengths()[1:]:
        text = f"({text}*1000+{length})"
    return [text]


def framed(*parts: list[str] | tuple[str, ...]) -> str:
    """Return the row text."""
    return f"CONCAT_WS(',',{','.join(p for part in parts for p in part)})"


def number(hashed: str) -> str:
    """Return 60 bits of a hex hash as a number."""
    return f"CAST(CONV(SUBSTRING({hashed},1,15),16,10) AS UNSIGNED)"


def summed(row: str, hashed: str = "SHA2({},256)") -> str:
    """Return the sum of 60 bits of a hash of the row text; no mark for rows without a hash."""
    return f"SUM({number(hashed.format(row))})"


BASE = framed(INTS, DECIMALS, DATES, lengths(), STRINGS)
PACKED = framed(pack_ints(INTS), DECIMALS, pack_dates(DATES), pack_lengths(), STRINGS)
COLUMNS = (*INTS, *DECIMALS, *DATES, *STRINGS)
NULLS = framed(COLUMNS, ["CONCAT(" + ",".join(f"ISNULL({c})" for c in COLUMNS) + ")"])
INSPECTOR = (
    f"BIT_XOR(CAST(CONV(SUBSTRING(MD5({NULLS}),1,16),16,10) AS UNSIGNED)^"
    f"CAST(CONV(SUBSTRING(MD5({NULLS}),17,16),16,10) AS UNSIGNED))"
)
DAYS = ["TO_DAYS(l_shipdate)*4194304+TO_DAYS(l_commitdate)", "TO_DAYS(l_receiptdate)"]
DATE_NUMBERS = ["(l_shipdate+0)*100000000+(l_commitdate+0)", "l_receiptdate+0"]
DECIMAL_INTS = [f"CAST({d}*100 AS SIGNED)" for d in DECIMALS]
DECIMAL_PAIRS = ["l_quantity*1000000000000000+l_extendedprice", "l_discount*1000000000000000+l_tax"]
DECIMAL_ALL = [f"((l_quantity*1{'0' * 15}+l_extendedprice)*1{'0' * 15}+l_discount)*1{'0' * 15}+l_tax"]


def variants(base_sum: str) -> list[Variant]:
    """Return what is tried; ``base_sum`` is migverify's own aggregate."""
    plain = summed(BASE, "SHA2({},256)")
    return [
        Variant("base", base_sum, "what migverify sends"),
        Variant("scan only", "COUNT(*)", "read the rows, make nothing", injective=False),
        Variant("text only", f"SUM(LENGTH({BASE}))", "the row text without a hash", injective=False),
        Variant("no LOST_ROW", plain, "without the mark for rows above max_allowed_packet"),
        Variant("no lengths", summed(framed(INTS, DECIMALS, DATES, STRINGS)),
                "the price of framing strings", injective=False),
        Variant("lengths packed", summed(framed(INTS, DECIMALS, DATES, pack_lengths(), STRINGS)),
                "five lengths as one number"),
        Variant("dates packed", summed(framed(INTS, DECIMALS, pack_dates(DATES), lengths(), STRINGS)),
                "two dates as one number"),
        Variant("dates as days", summed(framed(INTS, DECIMALS, DAYS, lengths(), STRINGS)),
                "TO_DAYS: NULL for zero dates", injective=False),
        Variant("dates +0 packed", summed(framed(INTS, DECIMALS, DATE_NUMBERS, lengths(), STRINGS)),
                "(date + 0), no CAST"),
        Variant("ints packed", summed(framed(pack_ints(INTS), DECIMALS, DATES, lengths(), STRINGS)),
                "two INT as one BIGINT"),
        Variant("decimals x100", summed(framed(INTS, DECIMAL_INTS, DATES, lengths(), STRINGS)),
                "DECIMAL(15,2) as integer"),
        Variant("decimals paired", summed(framed(INTS, DECIMAL_PAIRS, DATES, lengths(), STRINGS)),
                "two DECIMAL as one wider DECIMAL"),
        Variant("decimals in one", summed(framed(INTS, DECIMAL_ALL, DATES, lengths(), STRINGS)),
                "four DECIMAL(15,2) as one DECIMAL(60,2)"),
        Variant("all packed", summed(PACKED), "ints, dates and lengths packed"),
        Variant("ints and dates packed",
                summed(framed(pack_ints(INTS), DECIMALS, pack_dates(DATES), lengths(), STRINGS)),
                "lengths apart"),
        Variant("all packed + LOST_ROW", checksum_sum(PACKED, "SHA2"), "the same, with the mark"),
        Variant("hash MD5", summed(BASE, "MD5({})"), "MD5 in place of SHA2-256"),
        Variant("hash SHA1", summed(BASE, "SHA1({})"), "SHA1 in place of SHA2-256"),
        Variant("hash SHA2-224", summed(BASE, "SHA2({},224)"), "SHA2-224"),
        Variant("hash SHA2-512", summed(BASE, "SHA2({},512)"), "SHA2-512"),
        Variant("CRC32 of SHA2", f"SUM(CRC32(SHA2({BASE},256)))", "32 bits without CONV"),
        Variant("two CRC32 of SHA2", f"SUM(CRC32(SHA2({BASE},256))),SUM(CRC32(SUBSTRING(SHA2({BASE},256),9)))",
                "64 bits without CONV, if the server evaluates SHA2 once"),
        Variant("hash as DECIMAL", f"SUM(CAST(CONV(SUBSTRING(SHA2({BASE},256),1,15),16,10) AS DECIMAL(20)))",
                "SUM adds decimals anyway"),
        Variant("XOR in place of SUM", f"BIT_XOR({number(f'SHA2({BASE},256)')})", "blind to pairs: refused",
                injective=False),
        Variant("XOR of CRC32", f"BIT_XOR(CRC32({NULLS}))", "linear: refused", injective=False),
        Variant("map of ISNULLs", summed(NULLS, "SHA2({},256)"), "sync-diff-inspector's framing, our hash",
                injective=False),
        Variant("sync-diff-inspector", INSPECTOR, "its published expression", injective=False),
    ]  # fmt: skip


def main(setting: Setting) -> None:
    table = f"`{setting.database}`.`{setting.table}`"
    largest = int(str(execute(setting.source, f"SELECT MAX(l_orderkey) FROM {table}")[0][0]))
    condition = f"l_orderkey<={largest // 6}"
    rows = execute(setting.source, f"SELECT COUNT(*) FROM {table} WHERE {condition}")[0][0]
    print(f"\nexpressions over {rows} rows, one connection, CPU seconds of the server: min / median / max")
    tried = variants(checksum_sum(BASE, setting.hash))
    statements = {v.name: f"SELECT COUNT(*),{v.sql} FROM {table} WHERE {condition}" for v in tried}
    found = {where.name: _time(setting, where, statements) for where in (setting.source, setting.target)}
    pushed = {name: _pushed(setting.target, text) for name, text in statements.items()}
    print(f"{'variant':<24}{'source':>20}{'/base':>7}{'target':>22}{'/base':>7}  {'both/base':>9}  pushed  what")
    for variant in tried:
        cells, both, base = "", 0.0, 0.0
        for where in ("source", "target"):
            values, reference = found[where][variant.name], found[where]["base"]
            middle, other = statistics.median(values), statistics.median(reference)
            cells += f"{min(values):8.2f}{middle:7.2f}{max(values):7.2f}{middle / other:7.2f}"
            both, base = both + middle, base + other
        mark = "" if variant.injective else " (not injective)"
        print(f"{variant.name:<24}{cells}  {both / base:9.2f}  {pushed[variant.name]:<6}  {variant.what}{mark}")


def _time(setting: Setting, where: Endpoint, statements: dict[str, str]) -> dict[str, list[float]]:
    clock = setting.clock
    found: dict[str, list[float]] = {name: [] for name in statements}
    with connect(where) as connection, connection.cursor() as cursor:
        for turn in range(setting.rounds + 1):
            for name, text in statements.items():
                clock.start()
                try:
                    cursor.execute(text)
                    cursor.fetchall()
                except pymysql.MySQLError as error:
                    print(f"  {where.name} cannot run {name}: {error}")
                    found[name].append(float("nan"))
                    continue
                figures = clock.stop()
                if turn:
                    found[name].append(figures.source_cpu if where is setting.source else figures.target_cpu)
    return found


def _pushed(where: Endpoint, text: str) -> str:
    lines = [" ".join(str(cell) for cell in row) for row in execute(where, "EXPLAIN " + text)]
    return "yes" if any("Agg" in line and "cop[tikv]" in line for line in lines) else "NO"


def reads(setting: Setting) -> None:
    """Cost of the statements beside the checksum: count, walk, row lists, streams, bounds."""
    pair = plan(setting)
    print("\nstatements beside the checksum: server CPU seconds (median), wall seconds (median)")
    for side in pair.sides:
        sql = side.sql
        low, high = ("100000",), ("300000",)
        exact = KeyRange(low, high)
        composite = KeyRange((*low, "7"), (*high, "7"))
        texts = {
            "count of the table": [count_sql(sql)],
            "walk of the table, 128 k rows a step": _walks(side.endpoint, sql, 131072),
            "walk of the table, 32 k rows a step": _walks(side.endpoint, sql, 32768),
            "checksum of a range, bounds of one column": [checksum_sql(sql, exact)],
            "checksum of a range, bounds of two columns (OR)": [checksum_sql(sql, composite)],
            "row list of a range (GROUP_CONCAT)": [rows_sql(sql, exact)],
            "row stream of a range": [f"SELECT {element(sql)} FROM {sql.table} WHERE {sql.condition(exact)}"],
        }
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in texts}
        with open_session(side.endpoint, None) as session:
            for turn in range(setting.rounds + 1):
                for name, several in texts.items():
                    clock, used = setting.clock, time.process_time()
                    clock.start()
                    for text in several:
                        session.query_bytes(text)
                    figures = clock.stop()
                    cpu = figures.source_cpu if side is pair.sides[0] else figures.target_cpu
                    if turn:
                        found[name].append((cpu, figures.wall, time.process_time() - used))
        for name, values in found.items():
            cpu, wall, client = (statistics.median(v[n] for v in values) for n in range(3))
            print(f"{side.endpoint.name:<8}{name:<50}{cpu:7.2f}{wall:7.2f}  client CPU {client:5.2f}")


def _walks(where: Endpoint, sql: SideSql, rows: int) -> list[str]:
    """Return the walk statements of the whole table, found by walking it once."""
    texts: list[str] = []
    lower = None
    with open_session(where, None) as session:
        while True:
            text = walk_sql(sql, KeyRange(lower), rows)
            texts.append(text)
            found = session.query(text)
            if not found:
                return texts
            lower = found[0][:1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    chosen = open_setting(parser.parse_args())
    main(chosen)
    reads(chosen)

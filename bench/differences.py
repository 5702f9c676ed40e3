"""Wall time and memory of runs that find differences: 3 rows, 1 % scattered, 1 % in one block, every row.

The source side gets a changed copy of the table per case, in a database of its own (``h_bench_...``); the target stays
as it is. Two rates are printed: row diffs over the whole run, and over the time beyond the equal run of the same round.
Every difference is read twice (``recheck.delay``, 1 s by default, lies between the reads and is part of the run).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

from bench import contenders
from bench.measure import Figures, interleave, print_table
from bench.setting import Setting, add_arguments, execute, open_setting

SLOTS = 4


@dataclass(frozen=True, slots=True)
class Case:
    """One changed copy: ``statements`` change it, ``{t}`` is its name; ``peers`` says whether peers run it too."""

    name: str
    database: str
    statements: tuple[str, ...]
    peers: bool = False


SCATTERED = "CRC32(CONCAT(l_orderkey,':',l_linenumber))%300"
CASES = (
    Case("3 rows", "h_bench_three", (
        "UPDATE {t} SET l_tax=l_tax+0.01 ORDER BY l_orderkey LIMIT 1",
        "DELETE FROM {t} WHERE l_orderkey>900000 ORDER BY l_orderkey LIMIT 1",
        "UPDATE {t} SET l_comment=CONCAT(LEFT(l_comment,40),'!') ORDER BY l_orderkey DESC LIMIT 1",
    ), peers=True),
    Case("1 % scattered", "h_bench_scattered", (
        f"UPDATE {{t}} SET l_quantity=l_quantity+1 WHERE {SCATTERED}=1",
        f"DELETE FROM {{t}} WHERE {SCATTERED}=2",
        f"UPDATE {{t}} SET l_linenumber=l_linenumber+100 WHERE {SCATTERED}=3",
    ), peers=True),
    Case("1 % in one block", "h_bench_block", (
        "UPDATE {t} SET l_quantity=l_quantity+1 WHERE l_orderkey BETWEEN 600000 AND 617990",
    )),
    Case("every row", "h_bench_all", ("UPDATE {t} SET l_quantity=l_quantity+1",)),
)  # fmt: skip

USUAL = tuple(case.name for case in CASES if case.name != "every row")
"""What ``python -m bench`` runs; every row takes long, name it with ``--case``."""


def make(setting: Setting, case: Case) -> None:
    """Make the changed copy, unless it is there."""
    copy = f"`{case.database}`.`{setting.table}`"
    if execute(setting.source, f"SHOW DATABASES LIKE '{case.database}'"):
        return
    print(f"making {copy}", flush=True)
    execute(
        setting.source, f"CREATE DATABASE `{case.database}`",
        f"CREATE TABLE {copy} LIKE `{setting.database}`.`{setting.table}`",
        f"INSERT INTO {copy} SELECT * FROM `{setting.database}`.`{setting.table}`",
        *(statement.format(t=copy) for statement in case.statements), f"ANALYZE TABLE {copy}",
    )  # fmt: skip


def drop(setting: Setting) -> None:
    """Drop all changed copies."""
    for case in CASES:
        execute(setting.source, f"DROP DATABASE IF EXISTS `{case.database}`")


def main(setting: Setting, names: list[str], engines: list[str]) -> None:
    cases = [case for case in CASES if not names or case.name in names]
    for case in cases:
        make(setting, case)
    for engine in engines:
        print(f"\nmigverify {engine}")
        runs = {"equal": contenders.migverify(setting, engine=engine, slots=SLOTS)}
        for case in cases:
            runs[case.name] = contenders.migverify(setting, engine=engine, slots=SLOTS, source_database=case.database)
        found = interleave(runs, setting.rounds)
        _print_rates(found)
        print_table(found, ["equal"])
    if setting.sdi:
        print("\nsync-diff-inspector")
        runs = {"equal": contenders.sync_diff_inspector(setting, threads=SLOTS)}
        for case in cases:
            if case.peers:
                runs[case.name] = contenders.sync_diff_inspector(setting, threads=SLOTS, source_database=case.database)
        print_table(interleave(runs, setting.rounds), ["equal"])


def _print_rates(found: dict[str, list[Figures]]) -> None:
    print(f"\n{'row diffs':<24}{'diffs':>10}{'diffs/s of the run':>20}{'diffs/s beyond the equal run':>30}")
    for name, runs in found.items():
        if name == "equal":
            continue
        pairs = sorted(zip(runs, found["equal"], strict=True), key=lambda pair: pair[0].wall)
        run, equal = pairs[len(pairs) // 2]
        beyond = run.wall - equal.wall
        rate = f"{run.extra['diffs'] / beyond:,.0f}" if beyond > 0 else "-"
        print(f"{name:<24}{run.extra['diffs']:>10,.0f}{run.extra['diffs'] / run.wall:>20,.0f}{rate:>30}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--case", action="append", default=[], choices=[case.name for case in CASES])
    parser.add_argument("--engine", action="append", default=[], choices=["local", "spark"])
    parser.add_argument("--drop", action="store_true", help="drop the changed copies at the end")
    arguments = parser.parse_args()
    chosen = open_setting(arguments)
    main(replace(chosen), arguments.case, arguments.engine or ["local"])
    if arguments.drop:
        drop(chosen)

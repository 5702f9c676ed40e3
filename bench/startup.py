"""Wall time of whole processes: `migverify --help`, and a 100-row table verified by `verify --engine local`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from bench.contenders import url
from bench.measure import Contender, Figures, interleave, print_table, run_command
from bench.setting import Setting, add_arguments, execute, open_setting

DATABASE = "h_bench_small"
CONFIG = """\
source: {{url: "{source}"}}
target: {{url: "{target}"}}
store: "sqlite:///{folder}/runs.db"
tables: {{include: ["{database}.*"]}}
"""


def make(setting: Setting) -> None:
    """Make a table of 100 rows on both sides."""
    for where in (setting.source, setting.target):
        execute(
            where, f"CREATE DATABASE IF NOT EXISTS `{DATABASE}`", f"DROP TABLE IF EXISTS `{DATABASE}`.t",
            f"CREATE TABLE `{DATABASE}`.t (id INT PRIMARY KEY, name VARCHAR(50), amount DECIMAL(12,2), at DATETIME(6))",
            f"INSERT INTO `{DATABASE}`.t VALUES "
            + ",".join(f"({n},'name {n}',{n}.25,'2026-01-01 00:00:{n % 60:02}')" for n in range(100)),
        )  # fmt: skip


def main(setting: Setting) -> None:
    make(setting)
    program = [sys.executable, "-m", "migverify"]
    installed = Path(sys.executable).with_name("migverify")
    if installed.exists():
        program = [str(installed)]
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        config = Path(folder, "migverify.yaml")
        config.write_text(CONFIG.format(source=url(setting.source), target=url(setting.target), folder=folder,
                                        database=DATABASE))  # fmt: skip
        verify = [*program, "tables", "verify", "--engine", "local", "--quiet", "--json", "--config", str(config)]
        runs = {
            "python -c pass": _command(setting, [sys.executable, "-c", "pass"]),
            "migverify --help": _command(setting, [*program, "--help"]),
            "verify 100 rows, local": _command(setting, verify),
        }
        print_table(interleave(runs, max(setting.rounds, 10)), ["python -c pass"])
    for where in (setting.source, setting.target):
        execute(where, f"DROP DATABASE `{DATABASE}`")


def _command(setting: Setting, command: list[str]) -> Contender:
    def run() -> Figures:
        figures, _ = run_command(command, setting.clock)
        return replace(figures, source_cpu=0.0, target_cpu=0.0)

    return run


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    main(open_setting(parser.parse_args()))

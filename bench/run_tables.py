"""Wall and CPU of a whole-table run on equal data, beside its peers and the bare scan of its own statements.

Peers run with their own defaults (4 threads). sync-diff-inspector and reladiff need MD5() on both servers, which
MySQL 9.6 and later has only after ``INSTALL COMPONENT 'file://component_classic_hashing'``.
"""

from __future__ import annotations

import argparse

from bench import contenders
from bench.measure import interleave, print_table
from bench.setting import Setting, add_arguments, open_setting

SLOTS = 4


def main(setting: Setting) -> None:
    found = interleave(dict(contenders.available({
        "migverify local": lambda: contenders.migverify(setting, slots=SLOTS),
        "migverify spark": lambda: contenders.migverify(setting, engine="spark", slots=SLOTS),
        "migverify, whole process": lambda: contenders.command_line(setting),
        "bare scan": lambda: contenders.bare_scan(setting, SLOTS),
        "sync-diff-inspector": lambda: contenders.sync_diff_inspector(setting, threads=SLOTS),
        "its statements alone": lambda: contenders.inspector_statements(setting, SLOTS),
        "reladiff": lambda: contenders.reladiff(setting, threads=SLOTS),
    })), setting.rounds)  # fmt: skip
    print_table(found, [name for name in ("bare scan", "sync-diff-inspector", "its statements alone") if name in found])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    main(open_setting(parser.parse_args()))

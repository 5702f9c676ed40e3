"""What a second proof costs beside a full one, by the share of rows that were written since: whole processes.

Rows are written on both sides in random places. Two databases that are not tuned use CPU while nobody asks them
anything, so an idle wait of about the same seconds is printed beside the figures.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from bench.contenders import url
from bench.measure import Contender, Figures, interleave, print_table, run_command
from bench.setting import Setting, add_arguments, connect, execute, open_setting

SHARES = (0.0001, 0.001, 0.01)
IDLE_SECONDS = 5.0


def main(setting: Setting) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-since-") as folder:
        config = Path(folder, "migverify.yaml")
        config.write_text(yaml.safe_dump({
            "source": {"url": url(setting.source)}, "target": {"url": url(setting.target)},
            "store": "sqlite:///runs.db", "tables": {"include": [f"{setting.database}.{setting.table}"]},
        }))  # fmt: skip
        full = _verify(setting, config)
        full()
        keys = _keys(setting)
        contenders: dict[str, Contender] = {"full": full, f"idle {IDLE_SECONDS:g} s": _idle(setting)}
        for share in SHARES:
            written = _after(_writes(setting, keys, share), _verify(setting, config, "--since", "last"))
            contenders[f"since, {share:.2%} written"] = written
        print_table(interleave(contenders, setting.rounds), ["full"])


def _verify(setting: Setting, config: Path, *options: str) -> Contender:
    command = [sys.executable, "-m", "migverify", "tables", "verify", "-c", str(config), "--quiet", *options]

    def run() -> Figures:
        return run_command(command, setting.clock)[0]

    return run


def _idle(setting: Setting) -> Contender:
    def run() -> Figures:
        clock = setting.clock
        clock.start()
        time.sleep(IDLE_SECONDS)
        return clock.stop()

    return run


def _after(before: Callable[[], None], contender: Contender) -> Contender:
    def run() -> Figures:
        before()
        return contender()

    return run


def _keys(setting: Setting) -> list[tuple[int, int]]:
    names = f"`{setting.database}`.`{setting.table}`"
    return [(int(str(a)), int(str(b))) for a, b in execute(
        setting.source, f"SELECT l_orderkey, l_linenumber FROM {names}")]  # fmt: skip


def _writes(setting: Setting, keys: list[tuple[int, int]], share: float) -> Callable[[], None]:
    statement = (
        f"UPDATE `{setting.database}`.`{setting.table}` SET l_tax = l_tax + 0.01"
        " WHERE l_orderkey=%s AND l_linenumber=%s"
    )

    def run() -> None:
        chosen = random.sample(keys, int(len(keys) * share))
        for where in (setting.source, setting.target):
            with connect(where) as connection, connection.cursor() as cursor:
                connection.autocommit(False)
                for start in range(0, len(chosen), 500):
                    for key in chosen[start : start + 500]:
                        cursor.execute(statement, key)
                    connection.commit()

    return run


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    main(open_setting(parser.parse_args()))

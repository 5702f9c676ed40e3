"""Wall and server CPU of equal runs by chunk size, by connections, and by the defaults of the configuration."""

from __future__ import annotations

import argparse

from bench.contenders import migverify
from bench.measure import interleave, print_table
from bench.setting import Setting, add_arguments, open_setting

CHUNKS = (8_192, 32_768, 131_072, 524_288)
CONNECTIONS = (1, 2, 4, 8)
NO_TARGET = 1000.0
"""Chunk seconds that are never reached: the size stays what it is."""


def main(setting: Setting) -> None:
    """Measure every size in turn, then every number of connections."""
    print("\nfixed chunk sizes, 4 connections a side")
    sizes = {
        f"{rows:,} rows": migverify(
            setting, rules={"chunk_rows": rows, "max_chunk_rows": rows, "chunk_seconds": NO_TARGET}
        )
        for rows in CHUNKS
    }
    print_table(interleave(sizes, setting.rounds), ["131,072 rows"], ["wall s", "server CPU s", "driver MB"])
    print("\nconnections a side, adaptive chunks as configured by default")
    configured = {"chunk_rows": 32_768, "max_chunk_rows": 1_000_000}
    several = {f"{n} connections": migverify(setting, slots=n, rules=configured) for n in CONNECTIONS}
    print_table(interleave(several, setting.rounds), ["4 connections"], ["wall s", "server CPU s", "driver MB"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    main(open_setting(parser.parse_args()))

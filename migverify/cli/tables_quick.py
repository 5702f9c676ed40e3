"""The options of ``migverify tables verify`` for quick answers."""

from __future__ import annotations

from typing import Annotated

import typer

from migverify.errors import UsageError
from migverify.tables.quick import Level, QuickRead, parse_interval, parse_share

LevelOption = Annotated[
    Level,
    typer.Option(
        help="What is compared: counts of the tables, their keys, or rows with all columns. Only rows can be MATCH."
    ),
]
SampleOption = Annotated[
    str | None,
    typer.Option(metavar="SHARE", help="Read this share of each table, such as 1%, in key ranges drawn by --seed."),
]
SeedOption = Annotated[
    int | None, typer.Option(min=0, help="Seed of --sample: the same seed draws the same ranges. Default: 1.")
]
UpdatedSinceOption = Annotated[
    tuple[str, str] | None,
    typer.Option(
        metavar="COLUMN INTERVAL",
        help="Read only rows whose COLUMN is in the last INTERVAL (90s, 15m, 2h, 7d) on either side.",
    ),
]


def quick_options(
    level: Level, sample: str | None, seed: int | None, updated_since: tuple[str, str] | None
) -> QuickRead | None:
    """Return what the options read; None for whole tables.

    Raises
    ------
    UsageError
        they exclude each other, or a value is none.
    """
    if seed is not None and sample is None:
        raise UsageError("--seed belongs to --sample")
    if sample is not None and updated_since is not None:
        raise UsageError("--sample and --updated-since exclude each other")
    if level is Level.COUNTS and (sample is not None or updated_since is not None):
        raise UsageError("--level counts counts whole tables: leave out --sample and --updated-since")
    column, interval = updated_since or ("", "")
    if sample is not None:
        parse_share(sample)
    if updated_since is not None:
        parse_interval(interval)
    drawn = (1 if seed is None else seed) if sample is not None else 0
    read = QuickRead(level, sample or "", drawn, column, interval)
    return read if read.is_partial else None

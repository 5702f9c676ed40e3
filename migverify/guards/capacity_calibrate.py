"""A short verification whose only result is its speed."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from migverify.config import Config
from migverify.guards.capacity_speed import Measured, measure
from migverify.store.open import open_store
from migverify.tables.local import LocalEngine
from migverify.tables.prepare import prepare
from migverify.tables.run import Request, run_tables


def calibrate(config: Config, secrets: Mapping[str, str], slots: int, seconds: float) -> Measured | None:
    """Verify the largest tables for so many seconds, on threads, and return how fast that was.

    The way is that of `tables verify`, with all its throttles; the verdict is thrown away, for a part proves nothing.

    Raises
    ------
    EndpointError, ConfigError, ReadError
        the tables cannot be read.
    """
    limits = config.limits.model_copy(update={"run_seconds": seconds})
    short = config.model_copy(update={"limits": limits})
    prepared = prepare(short, dict(secrets))
    largest = replace(prepared, pairs=lambda: iter(sorted(prepared.pairs(), key=lambda pair: -pair.rows)))
    with (
        tempfile.TemporaryDirectory(prefix="migverify-calibration-") as folder,
        closing(open_store(f"sqlite:///{Path(folder) / 'runs.db'}")) as store,
        closing(LocalEngine(dict(secrets), slots)) as engine,
    ):
        run_id, _ = run_tables(largest, short, dict(secrets), engine, store, Request("migverify capacity"))
        found = measure(store, store.load_run(run_id))
    return None if found is None else replace(found, calibration=True)

"""The adapters of this repository, by name; others are named as ``module:Class``."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from bench.faults.adapter import Adapter

KNOWN = {
    "row-count": "bench.faults.adapters.baselines:RowCount",
    "checksum-table": "bench.faults.adapters.baselines:ChecksumTable",
    "migverify": "bench.faults.adapters.migverify:Migverify",
    "reladiff": "bench.faults.adapters.reladiff:Reladiff",
    "pt-table-checksum": "bench.faults.adapters.pt_table_checksum:PtTableChecksum",
    "sync-diff-inspector": "bench.faults.adapters.sync_diff_inspector:SyncDiffInspector",
    "spirit": "bench.faults.adapters.spirit:Spirit",
    "data-validation": "bench.faults.adapters.data_validation:DataValidation",
}


def adapters(names: Sequence[str] = ()) -> tuple[Adapter, ...]:
    """Return adapters by their names; all of this repository when none is given. Raises ValueError for others."""
    places = [KNOWN.get(name, name) for name in names or KNOWN]
    unknown = [place for place in places if ":" not in place]
    if unknown:
        raise ValueError(f"no tool is called {', '.join(unknown)}; there are {', '.join(KNOWN)}, and module:Class")
    return tuple(_make(place) for place in places)


def _make(place: str) -> Adapter:
    module, _, name = place.partition(":")
    adapter: Adapter = getattr(importlib.import_module(module), name)()
    return adapter

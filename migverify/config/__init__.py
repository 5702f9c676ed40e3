"""``migverify.yaml`` -> frozen Config.

``yaml_text`` reads the text and remembers places, ``settings`` (with ``endpoints``, ``tables`` and ``monitors``) holds
the models of the file, which are the settings; ``patterns`` and ``matching`` answer what the configuration says about
one table. The models load when they are first used: pydantic costs a tenth of a second.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from migverify.config.digest import comparison_digest, describe, full_digest
from migverify.config.load import DEFAULT_NAME, load_config
from migverify.config.matching import (
    database_patterns,
    includes,
    is_system_database,
    override_for,
    route,
    shard_of,
    unmatched_includes,
)
from migverify.config.patterns import Route, TablePattern, make_route, parse_pattern

if TYPE_CHECKING:
    from migverify.config.monitors import ExpectedJob, ExpectedSeries, MonitorSettings, SqlProbes
    from migverify.config.settings import Config, ReadinessFloor, ServiceLevel
    from migverify.config.tables import TableOverride

_MODELS = {
    "monitors": ("ExpectedJob", "ExpectedSeries", "MonitorSettings", "SqlProbes"),
    "settings": ("Config", "ReadinessFloor", "ServiceLevel"),
    "tables": ("TableOverride",),
}

__all__ = [
    "DEFAULT_NAME",
    "Config",
    "ExpectedJob",
    "ExpectedSeries",
    "MonitorSettings",
    "ReadinessFloor",
    "Route",
    "ServiceLevel",
    "SqlProbes",
    "TableOverride",
    "TablePattern",
    "comparison_digest",
    "database_patterns",
    "describe",
    "full_digest",
    "includes",
    "is_system_database",
    "load_config",
    "make_route",
    "override_for",
    "parse_pattern",
    "route",
    "shard_of",
    "unmatched_includes",
]


def __getattr__(name: str) -> Any:
    for module, names in _MODELS.items():
        if name in names:
            return getattr(import_module(f"migverify.config.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""``migverify.yaml`` -> frozen Config.

``yaml_text`` reads the text and remembers places, ``document`` knows the shape (pydantic), ``load`` joins
both into ``settings``; ``patterns`` and ``matching`` answer what the configuration says about one table.
"""

from __future__ import annotations

from migverify.config.digest import comparison_digest, describe, full_digest
from migverify.config.load import DEFAULT_NAME, load_config
from migverify.config.matching import (
    database_patterns,
    includes,
    is_system_database,
    override_for,
    route,
    unmatched_includes,
)
from migverify.config.patterns import Route, TablePattern, make_route, parse_pattern
from migverify.config.settings import (
    Config,
    ExpectedJob,
    ExpectedSeries,
    ImmutableBefore,
    Limits,
    MonitorSettings,
    OverrideRule,
    Recheck,
    ReportSettings,
    ServiceLevel,
    SparkSettings,
    SqlProbes,
    StoreSettings,
    TableFilter,
    TableOverride,
    WatchSettings,
    WorkloadSettings,
    shard_of,
)

__all__ = [
    "DEFAULT_NAME",
    "Config",
    "ExpectedJob",
    "ExpectedSeries",
    "ImmutableBefore",
    "Limits",
    "MonitorSettings",
    "OverrideRule",
    "Recheck",
    "ReportSettings",
    "Route",
    "ServiceLevel",
    "SparkSettings",
    "SqlProbes",
    "StoreSettings",
    "TableFilter",
    "TableOverride",
    "TablePattern",
    "WatchSettings",
    "WorkloadSettings",
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

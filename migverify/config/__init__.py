"""``migverify.yaml`` -> frozen Config.

``yaml_text`` reads the text and remembers places, ``settings`` (with ``endpoints``, ``tables`` and ``monitors``) holds
the models of the file, which are the settings; ``patterns`` and ``matching`` say what they mean for a table. The models
load when they are first used: pydantic costs a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migverify.config.digest import comparison_digest, describe, full_digest
from migverify.config.matching import (
    database_patterns,
    includes,
    is_excluded,
    is_in_scope,
    is_system_database,
    override_for,
    route,
    shard_of,
    unmatched_excludes,
    unmatched_includes,
)
from migverify.config.patterns import Route, TablePattern, chosen_patterns, make_route, parse_pattern
from migverify.config.problems import read_document, validate
from migverify.errors import ConfigError

if TYPE_CHECKING:
    from migverify.config.monitors import ExpectedJob, ExpectedSeries, MonitorSettings, SqlProbes
    from migverify.config.settings import Config, ReadinessFloor, ServiceLevel
    from migverify.config.tables import TableOverride

DEFAULT_NAME = "migverify.yaml"
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
    "chosen_patterns",
    "comparison_digest",
    "database_patterns",
    "describe",
    "full_digest",
    "includes",
    "is_excluded",
    "is_in_scope",
    "is_system_database",
    "load_config",
    "make_route",
    "override_for",
    "parse_pattern",
    "route",
    "shard_of",
    "unmatched_excludes",
    "unmatched_includes",
]


def load_config(path: Path, *, environment: Mapping[str, str] | None = None) -> Config:
    """Read and check a configuration file.

    Parameters
    ----------
    path
        The file. Relative paths in it (an SQLite store, the pause file) start at its folder; TLS files do
        not, because they are opened by whichever machine connects.
    environment
        Variables for ``${NAME}``; the process's own by default.

    Raises
    ------
    ConfigError
        The file is missing, is not YAML, or says something it cannot; the message names file, line and column
        and never shows a value.
    """
    _, document = read_document(
        path,
        "configuration file",
        "Run `migverify init` to write one, or name another with --config.",
        environment=environment,
    )
    if document.data is None:
        raise ConfigError(f"{path}: the file is empty", hint=f"Run `migverify init --force -o {path}`.")
    from migverify.config.settings import Config  # pydantic costs a tenth of a second

    return validate(path, document, Config)


def __getattr__(name: str) -> Any:
    for module, names in _MODELS.items():
        if name in names:
            return getattr(import_module(f"migverify.config.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

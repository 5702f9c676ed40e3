"""Digests of a configuration, and a view of it that may be stored and shown."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from migverify.config.patterns import Route
from migverify.config.settings import Config, MonitorSettings, OverrideRule, WorkloadSettings
from migverify.model import Endpoint

_SECRET_WORDS = ("password", "secret", "token", "credential", "access.key", "account.key")
HIDDEN = "(hidden)"


def comparison_digest(config: Config) -> str:
    """Return the sha256 over what is compared and how, as hex.

    Two configurations with the same digest give the same chunks the same verdict, so a run may be resumed:
    how a server is reached, secrets, limits, rechecks, the store, reports and Spark are left out. Tables,
    routes, overrides, hash, consistency, shard names, snapshots and session variables are in.
    """
    view = describe(config)
    meaning = {name: view[name] for name in ("tables", "routes", "overrides", "consistency", "hash")}
    meaning["endpoints"] = [
        {"name": endpoint.name, "snapshot": endpoint.snapshot, "session": sorted(endpoint.session)}
        for endpoint in config.endpoints
    ]
    return _sha256(meaning)


def full_digest(config: Config) -> str:
    """Return the sha256 over everything the configuration says, save secrets and its own path."""
    return _sha256({name: value for name, value in describe(config).items() if name != "path"})


def describe(config: Config) -> dict[str, Any]:
    """JSON-safe view without secrets: a password command and secret-looking Spark settings are hidden."""
    return {
        "path": str(config.path),
        "sources": [_endpoint(endpoint) for endpoint in config.sources],
        "target": _endpoint(config.target),
        "endpoints": [_endpoint(endpoint) for endpoint in config.others],
        "store": config.store.url,
        "tables": {
            "include": [pattern.text for pattern in config.tables.include],
            "exclude": [pattern.text for pattern in config.tables.exclude],
        },
        "routes": [_route(entry) for entry in config.routes],
        "overrides": [_override(rule) for rule in config.overrides],
        "limits": _slots(config.limits),
        "recheck": _slots(config.recheck),
        "watch": _slots(config.watch),
        "consistency": config.consistency,
        "report": _slots(config.report),
        "hash": config.hash,
        "spark": {
            "master": config.spark.master,
            "conf": {name: HIDDEN if _secret_name(name) else value for name, value in config.spark.conf},
        },
        "workload": _workload(config.workload),
        "monitors": _monitors(config.monitors),
    }


def _monitors(settings: MonitorSettings) -> dict[str, Any]:
    view = _slots(settings)
    view["jobs"] = [_slots(job) for job in settings.jobs]
    view["series"] = [_slots(series) for series in settings.series]
    view["sql"] = _slots(settings.sql)
    return view


def _workload(settings: WorkloadSettings) -> dict[str, Any]:
    view = _slots(settings)
    view["waivers"] = None if settings.waivers is None else str(settings.waivers)
    view["folder"] = str(settings.folder)
    view["service_levels"] = [_slots(level) for level in settings.service_levels]
    return view


def _endpoint(endpoint: Endpoint) -> dict[str, Any]:
    view = _slots(endpoint)
    view["tls"] = _slots(endpoint.tls)
    view["session"] = dict(endpoint.session)
    if endpoint.password_command is not None:
        view["password_command"] = HIDDEN  # people write `echo ...` there
    return view


def _route(entry: Route) -> dict[str, Any]:
    return {"from": entry.pattern.text, "to": entry.to, "shard": entry.shard}


def _override(rule: OverrideRule) -> dict[str, Any]:
    view = _slots(rule.override)
    before = rule.override.immutable_before
    view["immutable_before"] = None if before is None else _slots(before)
    return {"table": rule.tables.text} | view


def _slots(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def _secret_name(name: str) -> bool:
    return any(word in name.lower() for word in _SECRET_WORDS)


def _sha256(value: object) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()

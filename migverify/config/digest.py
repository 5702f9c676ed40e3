"""Digests of a configuration, and a view of it that may be stored and shown."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from migverify.config.fields import Strict
    from migverify.config.monitors import MonitorSettings
    from migverify.config.settings import Config, LoadLimits, WatchSettings, WorkloadSettings
    from migverify.config.tables import OverrideRule
    from migverify.model import Endpoint

_SECRET_WORDS = ("password", "secret", "token", "credential", "access.key", "account.key")
HIDDEN = "(hidden)"


def comparison_digest(config: Config) -> str:
    """Return the sha256 over what is compared and how, as hex.

    Two configurations with the same digest give the same chunks the same verdict, so a run may be resumed:
    how a server is reached, secrets, limits, rechecks, the store, reports and Spark are left out. Tables,
    routes, overrides, hash, consistency, shard names, snapshots and session variables are in.
    """
    return _sha256(comparison_meaning(config))


def comparison_meaning(config: Config) -> dict[str, Any]:
    """Return what ``comparison_digest`` is made of."""
    endpoints = [
        {"name": endpoint.name, "snapshot": endpoint.snapshot, "session": sorted(endpoint.session)}
        for endpoint in config.endpoints
    ]
    return _compared(config) | {"consistency": config.consistency, "hash": config.hash, "endpoints": endpoints}


def _compared(config: Config) -> dict[str, Any]:
    return {
        "tables": {
            "include": [pattern.text for pattern in config.tables.include],
            "exclude": [pattern.text for pattern in config.tables.exclude],
        },
        "routes": [{"from": rule.from_, "to": rule.to, "shard": rule.shard} for rule in config.route_rules],
        "overrides": [_override(rule) for rule in config.overrides],
    }


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
        **_compared(config),
        "limits": _limits(config.limits),
        "recheck": _fields(config.recheck),
        "watch": _watch(config.watch),
        "consistency": config.consistency,
        "report": _fields(config.report),
        "hash": config.hash,
        "spark": {
            "master": config.spark.master,
            "conf": {name: HIDDEN if is_secret_name(name) else value for name, value in config.spark.conf.items()},
        },
        "workload": _workload(config.workload),
        "monitors": _monitors(config.monitors),
        **({"reverse": config.reverse.model_dump(mode="json")} if config.reverse is not None else {}),
        **({"decision": config.decision.model_dump(mode="json")} if config.decision.model_fields_set else {}),
    }


def _monitors(settings: MonitorSettings) -> dict[str, Any]:
    jobs = [
        {"name": name, "count": job.count, "instances": job.labels, "max_age": settings.max_age_of(job)}
        for name, job in settings.jobs.items()
    ]
    series = [
        {"name": name} | _fields(series, max_age_seconds="max_age") | {"max_age": settings.max_age_of(series)}
        for name, series in settings.series.items()
    ]
    renamed = {"timeout_seconds": "timeout", "max_age_seconds": "max_age", "max_offset_seconds": "max_offset"}
    view = _fields(settings, retention_hours="retention", **renamed)
    view["retention"] *= 3600
    return view | {"jobs": jobs, "series": series, "sql": _fields(settings.sql)}


def _limits(settings: LoadLimits) -> dict[str, Any]:
    view = _fields(settings)
    for name in ("rule_query_seconds", "latency_factor"):
        if getattr(settings, name) == type(settings).model_fields[name].default:
            del view[name]  # earlier releases did not have it: their digests stay
    return view


def _watch(settings: WatchSettings) -> dict[str, Any]:
    return _fields(settings, checkpoint_id="checkpoint_ids") | {
        "checkpoint_ids": sorted((settings.checkpoint_id or {}).items())
    }


def _workload(settings: WorkloadSettings) -> dict[str, Any]:
    levels = [
        {"name": name} | _without_defaults(level, ("statements", "headroom"))
        for name, level in settings.service_levels.items()
    ]
    view = _without_defaults(settings, ("forecast_seconds", "target_parallelism")) | {"service_levels": levels}
    shadow = view.pop("shadow")  # earlier releases did not have it either
    return view if shadow == type(shadow)() else view | {"shadow": shadow.model_dump(mode="json")}


def _without_defaults(settings: Strict, names: tuple[str, ...]) -> dict[str, Any]:
    """Return a view without these fields where they are not set: earlier releases did not have them."""
    view, model = _fields(settings), type(settings).model_fields
    return {name: value for name, value in view.items() if name not in names or value != model[name].default}


def _endpoint(endpoint: Endpoint) -> dict[str, Any]:
    view = asdict(endpoint) | {"session": dict(endpoint.session)}
    if endpoint.password_command is not None:
        view["password_command"] = HIDDEN  # people write `echo ...` there
    return view


def _override(rule: OverrideRule) -> dict[str, Any]:
    tolerances = dict(rule.float_tolerance)
    return {
        "table": rule.table.text,
        "key": rule.key,
        "ignore": rule.ignore,
        "rename": list(rule.rename.items()),
        "where_source": rule.where.source,
        "where_target": rule.where.target,
        "float_tolerance": tolerances.pop("*", None),
        "column_tolerances": list(tolerances.items()),
        "immutable_before": None if rule.immutable_before is None else _fields(rule.immutable_before),
    }


def _fields(part: Strict, **renamed: str) -> dict[str, Any]:
    """Values by the names that digests of earlier runs hold: ``renamed`` maps today's name to that one."""
    return {renamed.get(name, name): getattr(part, name) for name in type(part).model_fields}


def is_secret_name(name: str) -> bool:
    """Whether a setting's name says that its value is a secret."""
    return any(word in name.lower() for word in _SECRET_WORDS)


def _sha256(value: object) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()

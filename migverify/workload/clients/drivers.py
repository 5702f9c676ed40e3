"""Which drivers and pools there are: read from ``drivers.json``; how a driver says an option of a scenario."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any, TypeVar

from migverify.errors import UsageError
from migverify.workload.clients.model import Driver, Jar, Kind, Pool

T = TypeVar("T")


@cache
def _document() -> dict[str, Any]:
    text = (resources.files("migverify.workload.clients") / "drivers.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


@cache
def drivers() -> dict[str, Driver]:
    """Return every driver by its name, in the order of the file."""
    found: dict[str, Driver] = {}
    for entry in _document()["drivers"]:
        like = found.get(entry.get("like", ""))
        options = {**(like.options if like else {}), **entry.get("options", {})}
        found[entry["name"]] = Driver(
            entry["name"], Kind(entry["kind"]), entry["title"], entry["entry"],
            entry.get("url") or (like.url if like else ""), entry.get("base", ""),
            entry.get("tls") or (like.tls if like else {}), options, _jars(entry.get("jars", [])),
        )  # fmt: skip
    return found


@cache
def pools() -> dict[str, Pool]:
    """Return every pool by its name."""
    return {one["name"]: Pool(one["name"], one["title"], _jars(one.get("jars", []))) for one in _document()["pools"]}


def all_jars() -> tuple[Jar, ...]:
    """Return every jar that any driver, any pool or the harness needs."""
    parts = [harness_jars(), *(d.jars for d in drivers().values()), *(p.jars for p in pools().values())]
    return tuple(jar for part in parts for jar in part)


def harness_jars() -> tuple[Jar, ...]:
    """Return what the Java harness itself needs besides drivers and pools."""
    return _jars(_document()["harness"])


def _jars(entries: Iterable[Mapping[str, str]]) -> tuple[Jar, ...]:
    return tuple(Jar(one["group"], one["artifact"], one["version"], one["sha256"]) for one in entries)


def chosen_drivers(names: Iterable[str]) -> list[Driver]:
    """Return the named drivers, all when none is named; raises UsageError for a name that is none."""
    return _chosen(drivers(), names, "--driver")


def chosen_pools(names: Iterable[str]) -> list[Pool]:
    """Return the named pools, all when none is named; raises UsageError for a name that is none."""
    return _chosen(pools(), names, "--pool")


def _chosen(known: Mapping[str, T], names: Iterable[str], option: str) -> list[T]:
    wanted = list(names) or list(known)
    for name in wanted:
        if name not in known:
            raise UsageError(f"{option} {name!r} is not known", hint=f"Known are {', '.join(known)}.")
    return [known[name] for name in dict.fromkeys(wanted)]


def missing_option(driver: Driver, options: Mapping[str, str]) -> str:
    """Return why a driver cannot run with these options, empty when it can."""
    for name, value in options.items():
        values = driver.options.get(name)
        if values is None:
            return f"{driver.title} has no option for {name}"
        if value not in values:
            return f"{driver.title} has no {name}={value}"
    return ""


def parameters(driver: Driver, options: Mapping[str, str]) -> dict[str, str]:
    """Return the driver's own parameters: its base, and the options over it."""
    texts = [driver.base] + [driver.options[name][value] for name, value in options.items()]
    pairs = [pair.partition("=") for text in texts for pair in text.split("&") if pair]
    return {name: value for name, _, value in pairs}


def url(driver: Driver, options: Mapping[str, str]) -> str:
    """Return the URL of a JDBC driver, for a Python driver its options; it never holds a login.

    ``{address}``, ``{database}`` and ``{tls}`` (``tls_words``) are left open: each side fills in its own.
    """
    listed = "&".join(f"{name}={value}" for name, value in parameters(driver, options).items())
    return f"{driver.url}?{{tls}}&{listed}" if driver.kind is Kind.JDBC else listed


def tls_words(driver: Driver, mode: str) -> str:
    """Return how a driver says ``disabled`` or ``required`` (encrypted, no certificate check)."""
    return driver.tls.get(mode, "")

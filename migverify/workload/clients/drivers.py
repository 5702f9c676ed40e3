"""Which drivers and pools there are: read from ``drivers.json``; how a driver says an option of a scenario."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any, TypeVar

from migverify.errors import UsageError
from migverify.workload.clients.model import ClientDriver, DriverKind, Jar, Pool

T = TypeVar("T")


@cache
def _document() -> dict[str, Any]:
    text = (resources.files("migverify.workload.clients") / "drivers.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


@cache
def drivers() -> dict[str, ClientDriver]:
    """Return every driver by its name, in the order of the file; one ``like`` another adds to that one."""
    entries: dict[str, dict[str, Any]] = {}
    for entry in _document()["drivers"]:
        like = entries.get(entry.pop("like", ""), {})
        inherited: dict[str, Any] = {name: like[name] for name in ("url", "tls") if name in like}
        options = {**like.get("options", {}), **entry.get("options", {})}
        entries[entry["name"]] = {**inherited, **entry, "options": options}
    return {name: ClientDriver.model_validate(entry, strict=False) for name, entry in entries.items()}


@cache
def pools() -> dict[str, Pool]:
    """Return every pool by its name."""
    return {one["name"]: Pool.model_validate(one, strict=False) for one in _document()["pools"]}


def harness_jars() -> tuple[Jar, ...]:
    """Return what the Java harness itself needs besides drivers and pools."""
    return tuple(Jar.model_validate(one) for one in _document()["harness"])


def chosen(known: Mapping[str, T], names: Iterable[str], option: str) -> list[T]:
    """Return what an option names, all when it names nothing; raises UsageError for a name that is not known."""
    wanted = list(names) or list(known)
    for name in wanted:
        if name not in known:
            raise UsageError(f"{option} {name!r} is not known", hint=f"Known are {', '.join(known)}.")
    return [known[name] for name in dict.fromkeys(wanted)]


def missing_option(driver: ClientDriver, options: Mapping[str, str]) -> str:
    """Return why a driver cannot run with these options, empty when it can."""
    for name, value in options.items():
        values = driver.options.get(name)
        if values is None:
            return f"{driver.title} has no option for {name}"
        if value not in values:
            return f"{driver.title} has no {name}={value}"
    return ""


def url(driver: ClientDriver, options: Mapping[str, str]) -> str:
    """Return the URL of a JDBC driver, for a Python driver its options; it never holds a login.

    Later parameters replace those of the driver's base. ``{address}``, ``{database}`` and ``{tls}`` (the driver's words
    for the TLS mode) are left open: each side fills in its own.
    """
    texts = [driver.base] + [driver.options[name][value] for name, value in options.items()]
    pairs = [pair.partition("=") for text in texts for pair in text.split("&") if pair]
    listed = "&".join(f"{name}={value}" for name, value in {name: value for name, _, value in pairs}.items())
    return f"{driver.url}?{{tls}}&{listed}" if driver.kind is DriverKind.JDBC else listed

"""Faults of disaster recovery cases: each is injected, proved from outside to have hit, removed, proved to be gone.

The four are functions that share nothing in memory: each runs in a process of its own. ``hit`` and ``gone`` look at the
process list, at sockets, at the server as a client, and at the load's ledger; never at what the injector says it did.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from migverify.errors import LabError, UsageError
from migverify.lab.chaos_world import Proof, World, until

Settings = Mapping[str, str]
Act = Callable[[World, Settings], dict[str, Any]]
Look = Callable[[World, Settings, float], Proof]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes
    ----------
    inject, remove
        Do it; answer with facts for the record. ``remove`` can be done twice, and where nothing was injected.
    hit, gone
        Look once; the third argument is the moment of the injection, or of the removal.
    settings
        What ``--set`` takes, and its defaults.
    """

    name: str
    about: str
    inject: Act
    hit: Look
    remove: Act
    gone: Look
    settings: Settings


_ROOMS = {
    "chaos_servers": ("mysql-killed", "mysql-restarted", "tidb-killed", "tidb-restarted-stale-ids", "server-frozen"),
    "chaos_statements": ("connection-storm", "long-transaction-ddl", "ids-exhausted", "memory-hog", "large-transaction",
                         "clock-shift-ids"),
    "chaos_stream": ("replicator-killed", "binlog-purged"),
    "chaos_runs": ("monitors-lost", "ddl-during-replication", "executor-killed"),
    "chaos_channel": ("webhook-down",),
    "chaos_outside": ("disk-full", "cache-lost"),
    "chaos_tls": ("certificate-expired",),
}  # fmt: skip
"""Which module has which faults: a command imports the one that it needs, and takes a third of the time."""


def find(name: str) -> Fault:
    """Return a fault; raises UsageError where there is none of that name."""
    for room, names in _ROOMS.items():
        if name in names:
            faults: tuple[Fault, ...] = import_module(f"migverify.lab.{room}").FAULTS
            return next(fault for fault in faults if fault.name == name)
    raise UsageError(f"no fault is called {name!r}", hint="See `migverify lab chaos list`.")


def catalog() -> dict[str, Fault]:
    """Return all faults by name."""
    return {name: find(name) for names in _ROOMS.values() for name in names}


def settings_of(fault: Fault, given: Settings) -> dict[str, str]:
    """Return a fault's settings with what was given.

    Raises
    ------
    UsageError
        it has no such setting.
    """
    strange = sorted(set(given) - set(fault.settings))
    if strange:
        known = ", ".join(fault.settings) or "none"
        raise UsageError(f"{fault.name} has no setting {strange[0]!r}", hint=f"It has: {known}.")
    return {**fault.settings, **given}


def inject(world: World, fault: Fault, settings: Settings, *, dud: bool = False) -> dict[str, Any]:
    """Inject a fault, and write down when.

    Parameters
    ----------
    dud
        Do nothing, and say that it was done: a case that does not notice is worth nothing.
    """
    with world.lock():
        begun = time.monotonic()
        record: dict[str, Any] = {"fault": fault.name, "settings": dict(settings), "injected": begun, "removed": None}
        world.write(f"faults/{fault.name}", record)
        facts = {} if dud else fault.inject(world, settings)
        world.write(f"faults/{fault.name}", record | {"inject_facts": facts})
        return {"fault": fault.name, "seconds": round(time.monotonic() - begun, 3)} | facts


def remove(world: World, fault: Fault, settings: Settings, *, dud: bool = False) -> dict[str, Any]:
    """Remove a fault, and write down when. It can be removed twice; recovery is measured from the first time."""
    with world.lock():
        begun = time.monotonic()
        record = world.read(f"faults/{fault.name}") or {"fault": fault.name, "injected": None}
        facts = fault.remove(world, settings) if not dud else {}
        if record.get("removed") is None:
            record |= {"removed": begun, "remove_facts": facts}
        world.write(f"faults/{fault.name}", record | {"removed_last": begun})
        return {"fault": fault.name, "seconds": round(time.monotonic() - begun, 3)} | facts


def hit(world: World, fault: Fault, settings: Settings, seconds: float) -> Proof:
    """Tell whether a fault hit, seen from outside, within ``seconds``."""
    since = world.fault(fault.name)["injected"]
    if since is None:
        raise LabError(f"{fault.name} was not injected here", hint=f"Run `migverify lab chaos inject {fault.name}`.")
    return until(lambda: fault.hit(world, settings, since), seconds)


def gone(world: World, fault: Fault, settings: Settings, seconds: float) -> Proof:
    """Tell whether a fault is gone, seen from outside, within ``seconds``."""
    known = world.read(f"faults/{fault.name}") or {}
    return until(lambda: fault.gone(world, settings, known.get("removed_last") or 0.0), seconds)

"""The fault model: each fault is injected, proved from outside to have hit, removed, proved to be gone.

The four are functions that share nothing in memory: each runs in a process of its own. ``hit`` and ``gone`` look at the
process list, at sockets, at the server as a client, and at the load's ledger; never at what the injector says it did.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar

from migverify.errors import LabError, UsageError
from migverify_lab.workspace import Proof, Workspace, until

Space = TypeVar("Space", bound=Workspace)
Settings = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Fault(Generic[Space]):
    """One fault.

    Attributes
    ----------
    inject, remove
        Do it; answer with facts for the record. ``remove`` can be done twice, and where nothing was injected.
    hit, gone
        Look once; the third argument is the moment of the injection, or of the removal.
    settings
        What ``--set`` takes, and its defaults.
    opens
        Opens the workspace of the fault from the folder of ``--dir``.
    """

    name: str
    about: str
    inject: Callable[[Space, Settings], dict[str, Any]]
    hit: Callable[[Space, Settings, float], Proof]
    remove: Callable[[Space, Settings], dict[str, Any]]
    gone: Callable[[Space, Settings, float], Proof]
    settings: Settings
    opens: Callable[[Path], Space]

    def settings_with(self, given: Settings) -> dict[str, str]:
        """Return the settings with what was given; raises UsageError where there is no such setting."""
        strange = sorted(set(given) - set(self.settings))
        if strange:
            known = ", ".join(self.settings) or "none"
            raise UsageError(f"{self.name} has no setting {strange[0]!r}", hint=f"It has: {known}.")
        return {**self.settings, **given}


_MODULES = {
    "chaos_servers": ("mysql-killed", "mysql-restarted", "tidb-killed", "tidb-restarted-stale-ids", "server-frozen"),
    "chaos_statements": ("connection-storm", "long-transaction-ddl", "ids-exhausted", "memory-hog", "large-transaction",
                         "clock-shift-ids"),
    "chaos_stream": ("replicator-killed", "binlog-purged"),
    "chaos_runs": ("monitors-lost", "ddl-during-replication", "executor-killed"),
    "chaos_channel": ("webhook-down",),
    "chaos_outside": ("disk-full",),
    "chaos_tls": ("certificate-expired",),
    "nginx_faults": ("stolen-port", "broken-config", "dead-master", "failing-side", "slow-side"),
}  # fmt: skip
"""Which module has which faults: a command imports the one that it needs, and takes a third of the time."""


def find(name: str) -> Fault[Any]:
    """Return a fault; raises UsageError where there is none of that name."""
    for module, names in _MODULES.items():
        if name in names:
            faults: tuple[Fault[Any], ...] = import_module(f"migverify_lab.{module}").FAULTS
            return next(fault for fault in faults if fault.name == name)
    raise UsageError(f"no fault is called {name!r}", hint="See `migverify lab chaos list`.")


def catalog(*, nginx: bool = True) -> dict[str, Fault[Any]]:
    """Return all faults by name; without ``nginx`` those of the pair and its clients."""
    return {
        name: find(name) for module, names in _MODULES.items() if nginx or module != "nginx_faults" for name in names
    }


def inject(space: Workspace, fault: Fault[Any], settings: Settings, *, dud: bool = False) -> dict[str, Any]:
    """Inject a fault, and write down when.

    Parameters
    ----------
    dud
        Do nothing, and say that it was done: a case that does not notice is worth nothing.
    """
    with space.lock():
        begun = time.monotonic()
        record: dict[str, Any] = {"fault": fault.name, "settings": dict(settings), "injected": begun, "removed": None}
        space.write(f"faults/{fault.name}", record)
        facts = {} if dud else fault.inject(space, settings)
        space.write(f"faults/{fault.name}", record | {"inject_facts": facts})
        return {"fault": fault.name, "seconds": round(time.monotonic() - begun, 3)} | facts


def remove(space: Workspace, fault: Fault[Any], settings: Settings, *, dud: bool = False) -> dict[str, Any]:
    """Remove a fault, and write down when. It can be removed twice; recovery is measured from the first time."""
    with space.lock():
        begun = time.monotonic()
        record = space.read(f"faults/{fault.name}") or {"fault": fault.name, "injected": None}
        facts = fault.remove(space, settings) if not dud else {}
        if record.get("removed") is None:
            record |= {"removed": begun, "remove_facts": facts}
        space.write(f"faults/{fault.name}", record | {"removed_last": begun})
        return {"fault": fault.name, "seconds": round(time.monotonic() - begun, 3)} | facts


def record_of(space: Workspace, name: str) -> dict[str, Any]:
    """Return what is known of a fault's injection: ``injected`` and ``removed`` by CLOCK_MONOTONIC, and its facts.

    Raises
    ------
    LabError
        it was not injected.
    """
    found = space.read(f"faults/{name}")
    if found is None:
        raise LabError(f"{name} was not injected here", hint=f"Run `migverify lab chaos inject {name}` first.")
    return found


def hit(space: Workspace, fault: Fault[Any], settings: Settings, seconds: float) -> Proof:
    """Prove that a fault hit, seen from outside, within ``seconds``."""
    since = record_of(space, fault.name)["injected"]
    if since is None:
        raise LabError(f"{fault.name} was not injected here", hint=f"Run `migverify lab chaos inject {fault.name}`.")
    return until(lambda: fault.hit(space, settings, since), seconds)


def gone(space: Workspace, fault: Fault[Any], settings: Settings, seconds: float) -> Proof:
    """Prove that a fault is gone, seen from outside, within ``seconds``."""
    known = space.read(f"faults/{fault.name}") or {}
    return until(lambda: fault.gone(space, settings, known.get("removed_last") or 0.0), seconds)

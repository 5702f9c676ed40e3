"""Faults of the lab's nginx: each is injected, proved to have hit, removed and proved to be gone, all from outside.

``stolen-port`` is the treacherous one: another process holds a port that the configuration names. ``nginx -t`` passes,
``nginx -s reload`` ends with 0, and the master goes on with its old workers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from migverify.errors import LabError
from migverify.lab.nginx import Instance, World, config_test

__all__ = ["FAULTS", "Fault", "fault"]

_RELOAD_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. ``hit`` and ``gone`` answer with whether, and what was seen."""

    name: str
    about: str
    inject: Callable[[World, Instance], None]
    hit: Callable[[World, Instance], tuple[bool, str]]
    remove: Callable[[World, Instance], None]


def _extra(instance: Instance) -> Path:
    return instance.folder / "conf.d" / "fault.conf"


def _steal(world: World, instance: Instance) -> None:
    _extra(instance).write_text(f"server {{ listen 127.0.0.1:{world.old}; }}\n")


def _stolen(_world: World, instance: Instance) -> tuple[bool, str]:
    """Try a reload: the configuration test passes, and no new worker comes."""
    if instance.master() is None:
        return False, f"{instance.name} has no master"
    before = {one.pid for one in instance.workers()}
    tested = config_test(instance).returncode
    _reload(instance)
    time.sleep(_RELOAD_SECONDS)
    fresh = {one.pid for one in instance.workers()} - before
    text = f"the test of {instance.name} ends with {tested}, a reload makes {len(fresh)} new workers"
    return tested == 0 and not fresh, text


def _break(_world: World, instance: Instance) -> None:
    _extra(instance).write_text("no_such_directive on;\n")


def _broken(_world: World, instance: Instance) -> tuple[bool, str]:
    tested = config_test(instance).returncode
    return tested != 0, f"the configuration test of {instance.name} ends with {tested}"


def _clear(_world: World, instance: Instance) -> None:
    _extra(instance).unlink(missing_ok=True)
    _reload(instance)


def _kill(_world: World, instance: Instance) -> None:
    instance.kill_master()


def _killed(_world: World, instance: Instance) -> tuple[bool, str]:
    answer = instance.ask()
    dead = instance.master() is None
    serving = f"its workers answer {answer}" if answer else "nothing answers"
    return dead, f"{instance.name} has {'no' if dead else 'a'} master; {serving}"


def _restart(_world: World, instance: Instance) -> None:
    instance.start()


def _fail(world: World, _instance: Instance) -> None:
    world.set_fault("new", errors=0.3)


def _slow(world: World, _instance: Instance) -> None:
    world.set_fault("new", delay=0.4)


def _sound(world: World, _instance: Instance) -> None:
    world.set_fault("new")


def _of_new(world: World) -> tuple[float, float]:
    """Ask the new side itself, past nginx: the part of failures, and the median time in seconds."""
    import http.client

    failed, times = 0, []
    for _ in range(40):
        connection, begun = http.client.HTTPConnection("127.0.0.1", world.new, timeout=5), time.monotonic()
        connection.request("GET", "/probe")
        failed += connection.getresponse().status >= 500
        connection.close()
        times.append(time.monotonic() - begun)
    return failed / 40, sorted(times)[20]


def _failing(world: World, _instance: Instance) -> tuple[bool, str]:
    part, _ = _of_new(world)
    return part > 0.05, f"{100 * part:.0f} % of what the new side is asked fails"


def _slowed(world: World, _instance: Instance) -> tuple[bool, str]:
    _, median = _of_new(world)
    return median > 0.2, f"the new side takes {1000 * median:.0f} ms"


def _reload(instance: Instance) -> None:
    import subprocess

    done = subprocess.run(instance.argv("-s", "reload"), capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise LabError(f"nginx -s reload of {instance.name} ended with {done.returncode}: {done.stderr.strip()[-300:]}")


FAULTS = (
    Fault("stolen-port", "A port that the configuration names is held by another process: the test passes, a reload is"
          " not taken and does not say so.", _steal, _stolen, _clear),
    Fault("broken-config", "A word that nginx does not know in another file: the test fails.", _break, _broken, _clear),
    Fault("dead-master", "The master is killed with SIGKILL: workers go on, nothing can be reloaded.", _kill, _killed,
          _restart),
    Fault("failing-side", "The new side fails three of ten requests.", _fail, _failing, _sound),
    Fault("slow-side", "The new side takes 0.4 s longer.", _slow, _slowed, _sound),
)  # fmt: skip


def fault(name: str) -> Fault:
    """Return a fault by name.

    Raises
    ------
    LabError
        there is none.
    """
    for one in FAULTS:
        if one.name == name:
            return one
    raise LabError(f"no fault is named {name}", hint=f"There are {', '.join(one.name for one in FAULTS)}.")

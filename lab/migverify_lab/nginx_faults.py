"""Faults of the lab's nginx.

``stolen-port`` is the treacherous one: another process holds a port that the configuration names. ``nginx -t`` passes,
``nginx -s reload`` ends with 0, and the master goes on with its old workers.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

from migverify.errors import LabError
from migverify_lab.chaos import Fault, Settings
from migverify_lab.nginx import Instance, NginxFleet
from migverify_lab.workspace import Proof

_RELOAD_SECONDS = 1.5


def _extra(instance: Instance) -> Path:
    return instance.folder / "conf.d" / "fault.conf"


def _steal(fleet: NginxFleet, settings: Settings) -> dict[str, Any]:
    instance = fleet.instance(settings["instance"])
    _extra(instance).write_text(f"server {{ listen 127.0.0.1:{fleet.old}; }}\n")
    return {}


def _stolen(fleet: NginxFleet, settings: Settings, _since: float) -> Proof:
    """Try a reload: the configuration test passes, and no new worker comes."""
    instance = fleet.instance(settings["instance"])
    if instance.master() is None:
        return Proof(False, f"{instance.name} has no master")
    before = {one.pid for one in instance.workers()}
    tested = _config_test(instance)
    _reload(instance)
    time.sleep(_RELOAD_SECONDS)
    fresh = {one.pid for one in instance.workers()} - before
    text = f"the test of {instance.name} ends with {tested}, a reload makes {len(fresh)} new workers"
    return Proof(tested == 0 and not fresh, text)


def _break(fleet: NginxFleet, settings: Settings) -> dict[str, Any]:
    instance = fleet.instance(settings["instance"])
    _extra(instance).write_text("no_such_directive on;\n")
    return {}


def _broken(fleet: NginxFleet, settings: Settings, _since: float) -> Proof:
    instance = fleet.instance(settings["instance"])
    tested = _config_test(instance)
    return Proof(tested != 0, f"the configuration test of {instance.name} ends with {tested}")


def _clear(fleet: NginxFleet, settings: Settings) -> dict[str, Any]:
    instance = fleet.instance(settings["instance"])
    _extra(instance).unlink(missing_ok=True)
    _reload(instance)
    return {}


def _kill(fleet: NginxFleet, settings: Settings) -> dict[str, Any]:
    instance = fleet.instance(settings["instance"])
    instance.kill_master()
    return {}


def _killed(fleet: NginxFleet, settings: Settings, _since: float) -> Proof:
    instance = fleet.instance(settings["instance"])
    answer = instance.ask()
    dead = instance.master() is None
    serving = f"its workers answer {answer}" if answer else "nothing answers"
    return Proof(dead, f"{instance.name} has {'no' if dead else 'a'} master; {serving}")


def _restart(fleet: NginxFleet, settings: Settings) -> dict[str, Any]:
    instance = fleet.instance(settings["instance"])
    instance.start()
    return {}


def _fail(fleet: NginxFleet, _settings: Settings) -> dict[str, Any]:
    fleet.set_fault("new", errors=0.3)
    return {}


def _slow(fleet: NginxFleet, _settings: Settings) -> dict[str, Any]:
    fleet.set_fault("new", delay=0.4)
    return {}


def _sound(fleet: NginxFleet, _settings: Settings) -> dict[str, Any]:
    fleet.set_fault("new")
    return {}


def _of_new(fleet: NginxFleet) -> tuple[float, float]:
    """Ask the new side itself, past nginx: the part of failures, and the median time in seconds."""
    import http.client

    failed, times = 0, []
    for _ in range(40):
        connection, begun = http.client.HTTPConnection("127.0.0.1", fleet.new, timeout=5), time.monotonic()
        connection.request("GET", "/probe")
        failed += connection.getresponse().status >= 500
        connection.close()
        times.append(time.monotonic() - begun)
    return failed / 40, sorted(times)[20]


def _failing(fleet: NginxFleet, _settings: Settings, _since: float) -> Proof:
    part, _ = _of_new(fleet)
    return Proof(part > 0.05, f"{100 * part:.0f} % of what the new side is asked fails")


def _slowed(fleet: NginxFleet, _settings: Settings, _since: float) -> Proof:
    _, median = _of_new(fleet)
    return Proof(median > 0.2, f"the new side takes {1000 * median:.0f} ms")


def _reload(instance: Instance) -> None:
    done = subprocess.run(instance.argv("-s", "reload"), capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise LabError(f"nginx -s reload of {instance.name} ended with {done.returncode}: {done.stderr.strip()[-300:]}")


def _config_test(instance: Instance) -> int:
    return subprocess.run(instance.argv("-t", "-q"), capture_output=True, check=False).returncode  # noqa: S603


def _fault(name: str, about: str, inject: Any, hit: Any, remove: Any) -> Fault[NginxFleet]:
    """Return a fault that is gone when it no longer hits."""

    def gone(fleet: NginxFleet, settings: Settings, since: float) -> Proof:
        seen: Proof = hit(fleet, settings, since)
        return Proof(not seen.good, seen.text)

    return Fault(name, about, inject, hit, remove, gone, {"instance": "a"}, NginxFleet)


FAULTS = (
    _fault("stolen-port", "A port that the configuration names is held by another process: the test passes, a reload is"
           " not taken and does not say so.", _steal, _stolen, _clear),
    _fault("broken-config", "A word in another file that nginx does not know: its test fails.", _break, _broken,
          _clear),
    _fault("dead-master", "The master is killed with SIGKILL: workers go on, nothing can be reloaded.", _kill, _killed,
           _restart),
    _fault("failing-side", "The new side fails three of ten requests.", _fail, _failing, _sound),
    _fault("slow-side", "The new side takes 0.4 s longer.", _slow, _slowed, _sound),
)  # fmt: skip

"""A real nginx in front of two small HTTP servers that stand for the old and the new side; for tests and rehearsals.

A folder holds everything: one folder for each instance, the ledgers of both sides, and ``world.json`` with ports and
processes. Any number of instances share the traffic; each has its own include file, log and status address.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from migverify.errors import LabError
from migverify.lab import packages
from migverify.lab.cache import Progress
from migverify.lab.process import ProcessId, find_by_title, free_port, identify, is_alive, spawn, stop, tail

__all__ = ["NAME", "Instance", "World", "find", "make", "open_world", "provide"]

READY_SECONDS = 20.0
NAME = "pay"
"""Name of the split: nginx gets ``$pay_side``."""

_CONF = """\
daemon off;
{user}worker_processes 2;
worker_shutdown_timeout 5s;
pid {folder}/nginx.pid;
error_log {folder}/error.log notice;
events {{ worker_connections 512; }}
http {{
    include {folder}/traffic.conf;
    include {folder}/conf.d/*.conf;
    client_body_temp_path {folder}/tmp/body;
    proxy_temp_path {folder}/tmp/proxy;
    fastcgi_temp_path {folder}/tmp/fastcgi;
    uwsgi_temp_path {folder}/tmp/uwsgi;
    scgi_temp_path {folder}/tmp/scgi;
    access_log off;
    upstream old {{ server 127.0.0.1:{old}; keepalive 8; }}
    upstream new {{ server 127.0.0.1:{new}; keepalive 8; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            access_log {folder}/access.log migverify_{name};
            if (${name}_side = held) {{ return 503; }}
            proxy_pass http://${name}_side;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_next_upstream off;
        }}
    }}
    server {{
        listen 127.0.0.1:{status};
        location = /traffic {{
            allow 127.0.0.1;
            deny all;
            default_type text/plain;
            return 200 "${name}_traffic\\n";
        }}
    }}
}}
"""


def find() -> tuple[str, ...] | None:
    """Return the command of an nginx of this machine; None where there is none."""
    return packages.find(packages.NGINX)


def provide(on_progress: Progress) -> tuple[str, ...]:
    """Return the command of an nginx, after downloading it into the cache where that is needed (about 3 MB).

    Raises
    ------
    LabError
        there is no way to get one on this machine, or the download fails.
    """
    return packages.provide(packages.NGINX, on_progress)


@dataclass(frozen=True, slots=True)
class Instance:
    """One nginx of a world: where it listens, and its folder."""

    name: str
    folder: Path
    port: int
    status: int
    command: tuple[str, ...]

    @property
    def include(self) -> Path:
        """The file that holds the split."""
        return self.folder / "traffic.conf"

    @property
    def access_log(self) -> Path:
        """Its log in our format."""
        return self.folder / "access.log"

    def argv(self, *more: str) -> list[str]:
        """Return a command line of this instance."""
        return [
            *self.command, "-p", f"{self.folder}/", "-c", str(self.folder / "nginx.conf"),
            "-e", str(self.folder / "error.log"), *more,
        ]  # fmt: skip

    def master(self) -> ProcessId | None:
        """Return the running master; None: there is none."""
        try:
            return identify(int((self.folder / "nginx.pid").read_text()))
        except (OSError, ValueError):
            return None

    def workers(self) -> list[ProcessId]:
        """Return the workers of the running master."""
        master = self.master()
        if master is None:
            return []
        try:
            children = Path(f"/proc/{master.pid}/task/{master.pid}/children").read_text().split()
        except OSError:
            return []
        return [one for one in (identify(int(child)) for child in children) if one is not None]

    def start(self) -> None:
        """Start it and wait until it answers; orphaned workers of a killed master are ended first.

        Raises
        ------
        LabError
            it does not start; the message holds the end of its log.
        """
        self.end_orphans()
        if self.master() is not None:
            return
        process = spawn(self.argv(), self.folder / "output.log", self.folder)
        deadline = time.monotonic() + READY_SECONDS
        # An answer alone may be that of somebody else who holds the port: it has to be this master that runs.
        while self.master() != process or self.ask() is None:
            if not is_alive(process) or time.monotonic() > deadline:
                raise LabError(f"nginx {self.name} does not start\n{tail(self.folder / 'error.log')}")
            time.sleep(0.05)

    def ask(self) -> str | None:
        """Return what the status address answers; None: nothing."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.status}/traffic", timeout=2) as answer:
                return str(answer.read().decode("ascii", "replace")).strip()
        except (OSError, urllib.error.URLError):
            return None

    def kill_master(self) -> None:
        """Kill the master with SIGKILL; its workers go on without one, until ``end_orphans``."""
        master = self.master()
        if master is None:
            raise LabError(f"nginx {self.name} does not run")
        os.kill(master.pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while is_alive(master) and time.monotonic() < deadline:
            time.sleep(0.01)

    def end_orphans(self) -> None:
        """End the workers of masters that were killed: they hold the ports.

        They are found by what they are. No list that is made before a kill would do: a master killed in the
        middle of its reload may have made workers since.
        """
        master = self.master()
        known = {one.pid for one in (*self.workers(), *((master,) if master else ()))}
        for one in find_by_title("nginx: ", self.folder):
            if one.pid not in known:
                stop(one, 5)

    def stop(self) -> None:
        """Stop it."""
        self.end_orphans()
        master = self.master()
        if master is not None:
            stop(master, 10)


@dataclass(frozen=True, slots=True)
class World:
    """A folder with instances and sides. ``old`` and ``new`` are ports."""

    folder: Path
    old: int
    new: int
    instances: tuple[Instance, ...]

    @property
    def traffic(self) -> Path:
        """The traffic file."""
        return self.folder / "traffic.yaml"

    def instance(self, name: str) -> Instance:
        """Return an instance by name.

        Raises
        ------
        LabError
            there is none.
        """
        for one in self.instances:
            if one.name == name:
                return one
        raise LabError(f"no instance is named {name}", hint=f"There are {', '.join(i.name for i in self.instances)}.")

    def start(self) -> None:
        """Start the sides and every instance; what runs already is left alone. Include files have to be there."""
        if self._running("sides") is None:
            argv = ["migverify.lab.nginx_sides", str(self.folder), str(self.old), str(self.new)]
            self._spawn("sides", argv)
            _until(lambda: _answers(self.old) and _answers(self.new), "the sides give no answer")
        for one in self.instances:
            one.start()

    def stop(self) -> None:
        """Stop the load, every instance and the sides."""
        self.stop_load()
        for one in self.instances:
            one.stop()
        sides = self._running("sides")
        if sides is not None:
            stop(sides, 5)

    def start_load(self, *, rate: float, keys: int, seed: int = 1) -> None:
        """Send writes to all instances until ``stop_load``, each with a key and an id, and keep who acknowledged it."""
        if self._running("load") is not None:
            raise LabError("there is load already")
        ports = ",".join(str(one.port) for one in self.instances)
        self._spawn("load", ["migverify.lab.nginx_load", str(self.folder), ports, str(rate), str(keys), str(seed)])

    def stop_load(self) -> None:
        """End the load and wait until its last answers are written."""
        load = self._running("load")
        if load is not None:
            stop(load, 15)

    def loaded(self) -> bool:
        """Tell whether there is load."""
        return self._running("load") is not None

    def set_fault(self, side: str, *, errors: float = 0.0, delay: float = 0.0) -> None:
        """Have a side fail a part of its requests, or take longer by so many seconds."""
        port = {"old": self.old, "new": self.new}[side]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/fault?errors={errors}&delay={delay}", timeout=5) as got:
            got.read()

    def _spawn(self, name: str, module: Sequence[str]) -> None:
        process = spawn([sys.executable, "-m", *module], self.folder / f"{name}.log", self.folder)
        (self.folder / f"{name}.json").write_text(json.dumps(asdict(process)))

    def _running(self, name: str) -> ProcessId | None:
        path = self.folder / f"{name}.json"
        if not path.exists():
            return None
        process = ProcessId(**json.loads(path.read_text()))
        return process if is_alive(process) else None

    def traffic_text(self, *, carries: str = "writes", settle: float = 6.0, more: str = "") -> str:
        """Return the traffic file of this world; ``more`` are further lines of its top level."""
        lines = [
            "version: traffic/v1", "id: pay", f"carries: {carries}", *more.splitlines(), "driver:", "  kind: nginx",
            "  key: $arg_key", "  held: held", f"  variable: {NAME}", f"  settle: {settle:g}s",
            f'  old: {{value: old, addresses: ["127.0.0.1:{self.old}"]}}',
            f'  new: {{value: new, addresses: ["127.0.0.1:{self.new}"]}}', "  instances:",
        ]  # fmt: skip
        for one in self.instances:
            lines += [
                f"    - name: {one.name}", f"      include: {one.include}",
                f"      test: {json.dumps(one.argv('-t', '-q'))}",
                f"      reload: {json.dumps(one.argv('-s', 'reload'))}",
                f"      status: http://127.0.0.1:{one.status}/traffic", f"      access_log: {one.access_log}",
                f"      pid: {one.folder / 'nginx.pid'}",
            ]  # fmt: skip
        return "\n".join(lines) + "\n"


def make(folder: Path, instances: int, command: tuple[str, ...]) -> World:
    """Make a world in a new folder; nothing is started, and the include files are the caller's to write.

    Raises
    ------
    LabError
        the folder holds one already, or cannot be made.
    """
    folder = folder.absolute()
    if (folder / "world.json").exists():
        raise LabError(f"{folder} holds a world already", hint="Take it down first, or choose another folder.")
    ports: list[int] = []
    for _ in range(2 + 2 * instances):
        ports.append(free_port(frozenset(ports)))
    names = [chr(ord("a") + n) for n in range(instances)]
    told = {
        "old": ports[0], "new": ports[1], "command": list(command),
        "instances": {name: [ports[2 + 2 * n], ports[3 + 2 * n]] for n, name in enumerate(names)},
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    world = _world(folder, told)
    for one in world.instances:
        for part in ("tmp", "conf.d"):
            (one.folder / part).mkdir(parents=True)
        text = _CONF.format(
            folder=one.folder, user="user root;\n" if os.geteuid() == 0 else "", old=world.old, new=world.new,
            port=one.port, status=one.status, name=NAME,
        )  # fmt: skip
        (one.folder / "nginx.conf").write_text(text)
    (folder / "world.json").write_text(json.dumps(told))
    return world


def open_world(folder: Path) -> World:
    """Return the world of a folder.

    Raises
    ------
    LabError
        there is none.
    """
    try:
        return _world(folder.absolute(), json.loads((folder / "world.json").read_text()))
    except (OSError, ValueError):
        raise LabError(f"{folder} holds no nginx of the lab", hint="Make one: migverify lab nginx up.") from None


def _world(folder: Path, told: dict[str, object]) -> World:
    ports: dict[str, list[int]] = told["instances"]  # type: ignore[assignment]
    command: list[str] = told["command"]  # type: ignore[assignment]
    instances = tuple(Instance(name, folder / name, one[0], one[1], tuple(command)) for name, one in ports.items())
    return World(folder, int(str(told["old"])), int(str(told["new"])), instances)


def _answers(port: int) -> bool:
    with suppress(OSError, urllib.error.URLError), urllib.request.urlopen(f"http://127.0.0.1:{port}/up", timeout=1):
        return True
    return False


def _until(holds: Callable[[], bool], else_: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise LabError(else_)
        time.sleep(0.05)


def config_test(instance: Instance) -> subprocess.CompletedProcess[str]:
    """Run the configuration test of an instance, for a look at it."""
    return subprocess.run(instance.argv("-t", "-q"), capture_output=True, text=True, check=False)  # noqa: S603

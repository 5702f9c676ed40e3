"""A real nginx in front of two small HTTP servers that stand for the old and the new side; for tests and rehearsals.

A folder holds everything: one folder for each instance, the ledgers of the load and of both sides, and ``world.json``
with ports. Any number of instances share the traffic; each has its own include file, log and status address.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from migverify.errors import LabError
from migverify_lab import packages
from migverify_lab.cache import Progress
from migverify_lab.process import ProcessId, find_by_title, free_ports, identify, spawn, stop, tail, wait_for_answer
from migverify_lab.workspace import Workspace, is_gone

__all__ = ["NAME", "Instance", "NginxFleet", "find", "make", "provide"]

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
        # An answer alone may be that of somebody else who holds the port: it has to be this master that runs.
        wait_for_answer(lambda: self.ask() if self.master() == process else None, f"nginx {self.name}", READY_SECONDS,
                        process, lambda: tail(self.folder / "error.log"))  # fmt: skip

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
        is_gone(master, 10.0)

    def end_orphans(self) -> None:
        """End the workers of masters that were killed: they hold the ports.

        They are found by what they are. No list that is made before a kill would do: a master killed in the
        middle of its reload may have made workers since.
        """
        master = self.master()
        known = {one.pid for one in (*self.workers(), *((master,) if master else ()))}
        # Until there is none: a worker that is being made while the processes are listed is in the next list.
        while orphans := [one for one in find_by_title("nginx: ", self.folder) if one.pid not in known]:
            for one in orphans:
                stop(one, 5)

    def stop(self) -> None:
        """Stop it."""
        self.end_orphans()
        master = self.master()
        if master is not None:
            stop(master, 10)


class NginxFleet(Workspace):
    """A folder with instances and sides. ``old`` and ``new`` are ports."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        known = self.read("world")
        if known is None:
            raise LabError(f"{folder} holds no nginx of the lab", hint="Make one: migverify lab nginx up.")
        self.old, self.new = int(known["old"]), int(known["new"])
        self.instances = tuple(
            Instance(name, self.folder / name, port, status, tuple(known["command"]))
            for name, (port, status) in known["instances"].items()
        )

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
        if self.job("sides") is None:
            process = self._start("sides", "nginx_sides", str(self.folder), str(self.old), str(self.new))
            wait_for_answer(lambda: (_answers(self.old) and _answers(self.new)) or None, "the sides", READY_SECONDS,
                            process, lambda: self.job_log("sides"))  # fmt: skip
        for one in self.instances:
            one.start()

    def stop(self) -> None:
        """Stop the load, every instance and the sides."""
        self.stop_job("load", 20.0)
        for one in self.instances:
            one.stop()
        self.stop_job("sides", 5.0)

    def start_load(self, *, rate: float, keys: int, seed: int = 1) -> None:
        """Send writes to all instances until the job ``load`` is stopped; its ledger is in the folder."""
        ports = ",".join(str(one.port) for one in self.instances)
        self._start("load", "nginx_load", str(self.folder), ports, str(rate), str(keys), str(seed))

    def _start(self, name: str, module: str, *arguments: str) -> ProcessId:
        return self.start_job(name, arguments, command=(sys.executable, "-m", f"migverify_lab.{module}"))

    def set_fault(self, side: str, *, errors: float = 0.0, delay: float = 0.0) -> None:
        """Have a side fail a part of its requests, or take longer by so many seconds."""
        port = {"old": self.old, "new": self.new}[side]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/fault?errors={errors}&delay={delay}", timeout=5) as got:
            got.read()

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


def make(folder: Path, instances: int, command: tuple[str, ...]) -> NginxFleet:
    """Make a fleet in a new folder; nothing is started, and the include files are the caller's to write.

    Raises
    ------
    LabError
        the folder holds one already, or cannot be made.
    """
    space = Workspace(folder)
    if space.read("world") is not None:
        raise LabError(f"{folder} holds a world already", hint="Take it down first, or choose another folder.")
    ports = free_ports(2 + 2 * instances)
    names = [chr(ord("a") + n) for n in range(instances)]
    space.write("world", {
        "old": ports[0], "new": ports[1], "command": list(command),
        "instances": {name: [ports[2 + 2 * n], ports[3 + 2 * n]] for n, name in enumerate(names)},
    })  # fmt: skip
    fleet = NginxFleet(folder)
    for one in fleet.instances:
        for part in ("tmp", "conf.d"):
            (one.folder / part).mkdir(parents=True)
        text = _CONF.format(
            folder=one.folder, user="user root;\n" if os.geteuid() == 0 else "", old=fleet.old, new=fleet.new,
            port=one.port, status=one.status, name=NAME,
        )  # fmt: skip
        (one.folder / "nginx.conf").write_text(text)
    return fleet


def _answers(port: int) -> bool:
    with suppress(OSError, urllib.error.URLError), urllib.request.urlopen(f"http://127.0.0.1:{port}/up", timeout=1):
        return True
    return False

"""Runners for the tests. A worker imports this module by name, so its folder is on the workers' path."""

# ruff: noqa: ARG001 - every runner takes both

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import migverify
from migverify.errors import PrivilegeError


def echo(task: str, secrets: Mapping[str, str]) -> str:
    return f"{task}|{','.join(sorted(secrets))}"


def length_of_secret(task: str, secrets: Mapping[str, str]) -> str:
    return str(len(secrets[task]))


def where_am_i(task: str, secrets: Mapping[str, str]) -> str:
    import sys

    heavy = [name for name in ("pandas", "pyarrow", "numpy", "sqlalchemy", "pydantic") if name in sys.modules]
    return json.dumps({"file": migverify.__file__, "heavy": heavy, "pid": os.getpid()})


def refuse(task: str, secrets: Mapping[str, str]) -> str:
    raise PrivilegeError(f"user lacks SELECT on {task}, password {secrets['source']}", hint="GRANT SELECT ON ...")


def stumble(task: str, secrets: Mapping[str, str]) -> str:
    raise ValueError(f"cannot do {task} with {secrets['source']}")


def number(task: str, secrets: Mapping[str, str]) -> str:
    return 7  # type: ignore[return-value]


def wait_for(task: str, secrets: Mapping[str, str]) -> str:
    """Leave a file that says "I run", with the pid, and wait until the file ``go`` beside it exists."""
    asked = json.loads(task)
    started = Path(asked["folder"]) / f"started-{os.getpid()}-{time.monotonic_ns()}"
    started.write_text(json.dumps({"pid": os.getpid(), "executor": _executor()}))
    deadline = time.monotonic() + 100
    while not (Path(asked["folder"]) / "go").exists():
        if time.monotonic() > deadline:
            raise TimeoutError("nobody said go")
        time.sleep(0.02)
    return f"done:{asked['name']}"


def die_once(task: str, secrets: Mapping[str, str]) -> str:
    """Kill this Python worker in the middle of the first attempt."""
    mark = Path(task)
    if not mark.exists():
        mark.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    return f"killed {mark.read_text()}"


def die_always(task: str, secrets: Mapping[str, str]) -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


def _executor() -> int:
    """Return the process id of the JVM: worker -> daemon -> JVM."""
    parent = os.getppid()
    status = Path(f"/proc/{parent}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("PPid:")).split()[1])

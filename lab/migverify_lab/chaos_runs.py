"""Faults of the machinery itself: a run goes on while its monitoring, schema or executor is taken away.

The run is one of another, small runbook: a process that is driven by `migverify runbook`, and looked at only with its
commands and in its journal.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from migverify.errors import LabError
from migverify_lab import prometheus
from migverify_lab.bank import DATABASE
from migverify_lab.cache import make_directory
from migverify_lab.chaos import Settings
from migverify_lab.chaos_world import Act, CaseWorkspace, case_fault, rows_of
from migverify_lab.process import free_port
from migverify_lab.session import connect
from migverify_lab.workspace import Proof, is_gone, signal_all, until

RUN = "victim"
"""The process that drives the run; after a takeover a second one, ``heir``."""
LIMIT = 400
STEPS = 100
"""Of a second each: the run is still under way when the fault is gone, and `stop` ends it."""

_BOOK = """\
# Written by `migverify lab chaos`: a run for faults of the machinery to meet.
version: runbook/v1
id: victim
title: A run that is disturbed
kind: rehearsal
environments: {{lab: {{}}}}
people: {{alice: {{}}, bob: {{}}, carol: {{}}}}
roles:
  coordinator: {{person: alice}}
  doer: {{person: bob}}
  watcher: {{person: carol}}
{parts}
phases:
  - id: way
    steps:
{steps}
"""
_EFFECT = """\
      - id: effect
        kind: command
        instruction: Append one line to the file, slowly.
        dri: doer
        reviewer: watcher
        time: {{plan: 1m, max: 3m}}
        do: {{argv: [sh, -c, "echo done >> {file}; while ! test -e {file}.go; do sleep 0.1; done"], timeout: 2m}}
        expect:
          - {{check: command.output, argv: [wc, -l, {file}], equals: "1 {file}"}}
        repeat: check
        reconcile: {{check: command.exit, argv: [test, -s, {file}]}}
        rollback:
          do: {{argv: [rm, -f, {file}]}}
          instruction: Delete the file.
          verify:
            - {{check: command.exit, argv: [test, "!", -e, {file}]}}
          data_loss: none
"""
WAIT = """\
      - {{id: wait-{number}, kind: wait, dri: doer, wait: 1s, time: {{plan: 2s, max: 1m}}}}
"""


def _folder(world: CaseWorkspace) -> Path:
    return make_directory(world.folder / "victim")


def begin_run(world: CaseWorkspace, parts: str, steps: str, environment: dict[str, str] | None = None) -> None:
    """Write the runbook and begin its run, in a room of its own."""
    room = _room(world)
    (_folder(world) / "victim.yaml").write_text(_BOOK.format(parts=parts, steps=steps))
    world.write("victim/begun", {"room": str(room)})
    arguments = ["runbook", "run", str(_folder(world) / "victim.yaml"), "--environment", "lab", "--as", "alice",
                 "--autopilot", "--limit", str(LIMIT), "--runs", str(room), "--config",
                 str(_folder(world) / "none")]  # fmt: skip
    command = (*(f"{name}={value}" for name, value in (environment or {}).items()), sys.executable, "-m", "migverify")
    world.start_job(RUN, arguments, command=("env", *command))
    seen = until(
        lambda: Proof(any(one["state"] == "done" for one in status_of(world)["steps"]), "a step is done"), 40.0
    )
    if not seen.good:
        raise LabError("the run to be disturbed did not begin", hint=world.job_log(RUN))


def _room(world: CaseWorkspace) -> Path:
    """A new room for each start, so that `last` is the run of this case."""
    return _folder(world) / f"runs-{time.time_ns()}"


def status_of(world: CaseWorkspace) -> dict[str, Any]:
    """Ask `migverify runbook status`.

    Raises
    ------
    LabError
        it does not tell.
    """
    done = _runbook(world, "status", "--run", "last", "--json")
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise LabError(f"`runbook status` tells nothing: {done.stderr.strip()[-300:]}") from None
    return found


def _runbook(world: CaseWorkspace, *words: str) -> subprocess.CompletedProcess[str]:
    room = (world.read("victim/begun") or {}).get("room", "")
    command = [sys.executable, "-m", "migverify", "runbook", *words, "--runs", room]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603


def _completes(world: CaseWorkspace, name: str = RUN) -> Proof:
    """Wait for the end of the run; returns whether it was completed."""
    status = status_of(world)
    return Proof(status["state"] == "completed", f"the run is {status['state']} {'; '.join(status['reasons'])[:300]}",
                 {"state": status["state"], "log": world.job_log(name)[-500:]})  # fmt: skip


def _held(world: CaseWorkspace, guard: str) -> tuple[bool, str]:
    """Tell whether the run is held by a guard, and in which words."""
    status = status_of(world)
    words = "; ".join(str(one) for one in status["reasons"])
    started = [one for one in status["steps"] if one["state"] == "running"]
    return status["state"] == "held" and guard in words and not started, f"the run is {status['state']}: {words[:200]}"


# --- monitors ---------------------------------------------------------------------------------------------------


def prepare_monitors(world: CaseWorkspace) -> None:
    """Start a real Prometheus, and a run that asks it before every step."""
    _start_prometheus(world)
    url = f"http://127.0.0.1:{port_of(world, 'prometheus')}"
    guard = (f'guards:\n  - {{id: monitors, check: prom.query, url: "{url}", query: "min(up)", min: 1, every: 500ms,'
             ' on_fail: hold}')  # fmt: skip
    begin_run(world, guard, "".join(WAIT.format(number=number) for number in range(STEPS)))


def _start_prometheus(world: CaseWorkspace) -> None:
    programs, folder = prometheus.provide(lambda _: None), make_directory(world.folder / "prometheus")
    port = port_of(world, "prometheus")
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
        f"scrape_configs: [{{job_name: self, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}]\n"
    )
    command = prometheus.serve_command(programs, folder / "prometheus.yml", folder / "data", port)
    world.start_job("prometheus", command[1:], command=command[:1])
    seen = until(lambda: Proof(_monitors(world) == 1.0, "min(up)"), 40.0)
    if not seen.good:
        raise LabError("Prometheus does not answer", hint=world.job_log("prometheus"))


def port_of(world: CaseWorkspace, name: str) -> int:
    """Return the port of a server beside the pair: the same one after a restart."""
    found = (world.read("ports") or {}).get(name)
    if found is None:
        found = free_port()
        world.write("ports", (world.read("ports") or {}) | {name: found})
    return int(found)


def _monitors(world: CaseWorkspace) -> float | None:
    """Ask Prometheus as somebody outside of it; None: it does not answer."""
    url = f"http://127.0.0.1:{port_of(world, 'prometheus')}/api/v1/query?query=min(up)"
    try:
        with urllib.request.urlopen(url, timeout=2.0) as answer:
            result = json.load(answer)["data"]["result"]
    except (OSError, ValueError, urllib.error.URLError):
        return None
    return float(result[0]["value"][1]) if result else None


def kill_job(name: str) -> Act:
    """Return what kills a process of the case."""

    def kill(world: CaseWorkspace, _settings: Settings) -> dict[str, Any]:
        process = world.job(name)
        if process is None:
            raise LabError(f"{name} does not run", hint="Start the case again.")
        signal_all([process], signal.SIGKILL)
        is_gone(process, 10.0)
        return {"pid": process.pid}

    return kill


def _blind(world: CaseWorkspace, settings: Settings, since: float) -> Proof:
    """Nobody answers for Prometheus; the run is held for that, soon enough; both servers still tell by SQL."""
    value = _monitors(world)
    held, words = _held(world, "monitors")
    took = time.monotonic() - since
    answers = [int(rows_of(world, side, "SELECT 1")[0][0]) for side in ("source", "target")]
    good = value is None and held and took <= float(settings["noticed_within"]) and answers == [1, 1]
    text = f"Prometheus {'is gone' if value is None else 'answers'}; {words}, after {took:.0f} s; SQL tells of both"
    return Proof(good, text, {"took": took})


def _monitors_back(world: CaseWorkspace, _settings: Settings) -> dict[str, Any]:
    if world.job("prometheus") is None:
        _start_prometheus(world)
    return {}


def _sees(world: CaseWorkspace, _settings: Settings, _since: float) -> Proof:
    """Prometheus sees its targets, and the run goes on: steps are done since."""
    if is_over(world):
        return Proof(True, "the case is over, and ended its Prometheus and its run")
    value, status = _monitors(world), status_of(world)
    good = value == 1.0 and status["state"] in ("running", "completed")
    return Proof(good, f"min(up) is {value}; the run is {status['state']}, {status['passed']} steps are done")


def is_over(world: CaseWorkspace) -> bool:
    """Tell whether the case has come to its end, and ended the run."""
    return "stopped" in (world.read("load") or {}) and world.job(RUN) is None


# --- the schema -------------------------------------------------------------------------------------------------


def prepare_schema(world: CaseWorkspace) -> None:
    """Keep the definitions as they are now, and begin a run that is held as soon as they change."""
    store, config = world.folder / "runs.db", str(world.config_path)
    store.unlink(missing_ok=True)
    done = subprocess.run([sys.executable, "-m", "migverify", "guard", "schema", "--snapshot", "--config", config],  # noqa: S603
                          capture_output=True, text=True, check=False, timeout=120)  # fmt: skip
    if done.returncode:
        raise LabError(f"no snapshot of the definitions: {done.stderr.strip()[-300:]}", hint="Look at both servers.")
    argv = json.dumps([sys.executable, "-m", "migverify", "guard", "schema", "--baseline", "last", "--config", config])
    guard = f"guards:\n  - {{id: schema, check: command.exit, argv: {argv}, every: 2s, on_fail: hold}}"
    begin_run(world, guard, "".join(WAIT.format(number=number) for number in range(STEPS)))


def _alter(world: CaseWorkspace, _settings: Settings) -> dict[str, Any]:
    with connect(world.server("source"), DATABASE, seconds=60.0) as connection, connection.cursor() as cursor:
        cursor.execute("ALTER TABLE entries ADD COLUMN surprise VARCHAR(20) NULL")
    return {}


def _columns(world: CaseWorkspace) -> dict[str, bool]:
    sql = f"SHOW COLUMNS FROM {DATABASE}.entries LIKE 'surprise'"
    return {side: bool(rows_of(world, side, sql)) for side in ("source", "target")}


def _noticed(world: CaseWorkspace, settings: Settings, since: float) -> Proof:
    """The source has the column, and the run is held by the guard of the schema, soon enough."""
    there, (held, words) = _columns(world), _held(world, "schema")
    took = time.monotonic() - since
    good = there["source"] and held and took <= float(settings["noticed_within"])
    return Proof(good, f"the column is there: {there}; {words}, after {took:.0f} s", {"took": took})


def _alter_back(world: CaseWorkspace, _settings: Settings) -> dict[str, Any]:
    there = _columns(world)
    if there["source"]:
        with connect(world.server("source"), DATABASE, seconds=60.0) as connection, connection.cursor() as cursor:
            cursor.execute("ALTER TABLE entries DROP COLUMN surprise")
    return {"was": there}


def _as_before(world: CaseWorkspace, _settings: Settings, _since: float) -> Proof:
    there = _columns(world)
    if is_over(world):
        return Proof(not any(there.values()), f"the column is there: {there}")
    status = status_of(world)
    good = not any(there.values()) and status["state"] in ("running", "completed")
    return Proof(good, f"the column is there: {there}; the run is {status['state']}")


# --- the executor -----------------------------------------------------------------------------------------------


def prepare_run(world: CaseWorkspace) -> None:
    """Begin a run whose second step appends one line to a file."""
    file = _folder(world) / "effects"
    for path in (file, file.with_name("effects.go")):
        path.unlink(missing_ok=True)
    begin_run(world, "", WAIT.format(number=0) + _EFFECT.format(file=file) + WAIT.format(number=1))


def _effects(world: CaseWorkspace) -> int:
    path = _folder(world) / "effects"
    return len(path.read_text().splitlines()) if path.exists() else 0


def _kill_in_effect(world: CaseWorkspace, settings: Settings) -> dict[str, Any]:
    seen = until(lambda: Proof(_effects(world) == 1, "the effect has begun"), 30.0)
    if not seen.good:
        raise LabError("the run did not come to its effect", hint=world.job_log(RUN))
    done = dict(kill_job(RUN)(world, settings))
    (_folder(world) / "effects.go").touch()  # the effect's own program outlives its executor, and comes to its end
    return done


def _orphaned(world: CaseWorkspace, _settings: Settings, _since: float) -> Proof:
    """No process; the journal still says that the step runs, and its effect was begun once."""
    lives, status = world.job(RUN) is not None, status_of(world)
    step = next(one for one in status["steps"] if one["id"] == "effect")
    good = not lives and step["state"] == "running" and not status["over"]
    return Proof(good, f"the executor {'lives' if lives else 'is gone'}; by the journal the step is {step['state']},"
                 f" its effect was begun {_effects(world)} times")  # fmt: skip


def _take_over(world: CaseWorkspace, _settings: Settings) -> dict[str, Any]:
    """Two persons take the run over: one agrees, the other goes on."""
    (_folder(world) / "effects.go").touch()
    if world.job(RUN) is not None or world.job("heir") is not None or status_of(world)["over"]:
        return {"taken": False}
    reason = "the executor's machine is gone"
    agreed = _runbook(world, "handover", "--takeover", reason, "--run", "last", "--as", "carol")
    if agreed.returncode:
        raise LabError(f"the takeover was refused: {agreed.stderr.strip()[-300:]}")
    room = (world.read("victim/begun") or {})["room"]
    arguments = ["runbook", "run", "--run", "last", "--as", "bob", "--reason", reason, "--autopilot", "--limit",
                 str(LIMIT), "--runs", room, "--config", str(_folder(world) / "none")]  # fmt: skip
    world.start_job("heir", arguments)
    return {"taken": True}


def _inherited(world: CaseWorkspace, settings: Settings, since: float) -> Proof:
    """The run is completed, in doubt the probe decided, the effect happened once, the journal holds."""
    seen = _completes(world, "heir")
    from migverify.runbook.record.run_store import RunStore

    store = RunStore(Path((world.read("victim/begun") or {})["room"]))
    kinds = [event.kind.value for run in store.ids() for event in store.events(run)]
    doubt = [kind for kind in kinds if kind.lower() in ("unknown", "reconciled")]
    sound = _runbook(world, "report", "--verify", "last").returncode in (0, 3)  # 3: it is not over
    taken_over = kinds.count("lease") > 1  # an executor that nobody killed left nothing in doubt
    good = bool(seen.good) and len(doubt) == 2 * taken_over and _effects(world) == 1 and sound
    took = time.monotonic() - since
    text = (f"{seen.text}; {', '.join(doubt) or 'nothing was in doubt'}; the effect happened {_effects(world)} times;"
            f" the journal is {'sound' if sound else 'NOT sound'}; {took:.0f} s after the takeover")  # fmt: skip
    return Proof(good and took <= float(settings["within"]), text, {"took": took})


_SOON = {"noticed_within": "60"}
FAULTS = (
    case_fault("monitors-lost", "The Prometheus that a run's guard asks is killed.", kill_job("prometheus"), _blind,
          _monitors_back, _sees, _SOON),
    case_fault("ddl-during-replication", "A column is added on the source while a run is under way.", _alter, _noticed,
          _alter_back, _as_before, _SOON),
    case_fault("executor-killed", "The executor of a run is killed while a step's effect is under way.",
          _kill_in_effect, _orphaned, _take_over, _inherited, {"within": "180"}),
)  # fmt: skip

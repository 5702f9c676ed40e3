"""A fleet that exists on disk alone: stores, ledgers and journals of many services, for tests and benchmarks.

No server is needed: everything that a board reads is evidence that commands keep. Each service is ready to cut over
until something is planted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from migverify.config import comparison_digest, load_config
from migverify.guards.ids_model import NAME as IDS
from migverify.guards.keep import GuardRecorder, begin
from migverify.guards.model import AnswerState, GuardAnswer, GuardResult
from migverify.guards.schema_model import NAME as SCHEMA
from migverify.guards.scope import CONFIGURATION
from migverify.model import StoredKind, TableResult, Verdict
from migverify.recon.model import CHOSEN as RULES_CHOSEN
from migverify.runbook.conditions import READINESS
from migverify.runbook.definition.load import load_runbook
from migverify.runbook.events import EventKind, RunState
from migverify.runbook.kinds import RunKind
from migverify.runbook.model import Runbook
from migverify.runbook.record.chain import Draft
from migverify.runbook.record.run_store import RunStore
from migverify.runbook.run.schema_now import fingerprint_of
from migverify.store.open import open_store
from migverify.store.results import ResultStore
from migverify.tables.last_status import LAST_STATUS, LastStatus
from migverify.tables.run_facts import CHOSEN, pair_addresses
from migverify.watch.ledger import Ledger

RUNBOOK = """\
version: runbook/v1
id: cutover
title: Cut {{service}} over
kind: cutover
parameters:
  service: {type: name, description: Name of the service.}
environments: {staging: {}, prod: {production: true}}
people: {alice: {}, bob: {aliases: [bobby]}, carol: {}}
roles:
  coordinator: {person: alice, backup: carol}
  dba: {person: bob}
policy:
  readiness: {drills_min: 2, clean_last: 2, rollback_drills_min: 0, full_cast_last: false}
phases:
  - id: night
    steps:
"""
STEP = """\
      - id: step-%d
        kind: command
        title: Part %d
        dri: dba
        time: {plan: 60s, max: 10m}
        do: {run: "cut {{service}} part %d", timeout: 45s}
        expect:
          - {check: command.exit, run: "cut {{service}} part %d done"}
        repeat: yes
"""
CONFIG = """\
source: {url: 'mysql://app@%(host)s:%(source)d', connections: 2}
target: {url: 'tidb://app@%(host)s:%(target)d', connections: 3}
store: '%(store)s'
tables: {include: ['%(name)s.*']}
readiness: {drills_min: 2, clean_last: 2, rollback_drills_min: 0, full_cast_last: false}
"""
PRINTS = {"source": "5" * 64, "target": "7" * 64}


@dataclass(frozen=True, slots=True)
class MadeService:
    """One service of the fleet: its folder with its configuration, and where its store is."""

    name: str
    config: Path
    store: str


@dataclass(slots=True)
class MadeFleet:
    """A fleet in a folder. ``services`` are made; each method plants evidence of one service.

    Parameters
    ----------
    store
        URL of one store for all services; empty: each has its own.
    tables
        Table pairs of each service.
    """

    folder: Path
    store: str = ""
    tables: int = 3
    steps: int = 4
    services: dict[str, MadeService] = field(default_factory=dict)
    _stores: dict[str, ResultStore] = field(default_factory=dict)

    def close(self) -> None:
        """Close the stores."""
        for one in self._stores.values():
            one.close()
        self._stores.clear()

    def add(self, name: str, host: str = "", *, source: int = 3306, target: int = 4000) -> MadeService:
        """Add a service whose evidence is all fine, but for what is written later."""
        folder = self.folder / name
        folder.mkdir(parents=True)
        store = self.store or "sqlite:///runs.db"
        config = folder / "migverify.yaml"
        values = {"host": host or f"{name}.example", "source": source, "target": target, "store": store, "name": name}
        config.write_text(CONFIG % values)
        made = self.services[name] = MadeService(name, config, self.store or f"sqlite:///{folder / 'runs.db'}")
        return made

    def adopt(self, name: str) -> None:
        """Take over a service whose folder is there already, copied from another fleet."""
        folder = self.folder / name
        url = self.store or f"sqlite:///{folder / 'runs.db'}"
        self.services[name] = MadeService(name, folder / "migverify.yaml", url)

    def all_fine(self, name: str) -> dict[str, str]:
        """Write evidence of every part; return the runs."""
        proof = self.verify(name)
        return {"proof": proof, "watch": self.watch(name, proof), "rules": self.rules(name), "ids": self.ids(name),
                "schema": self.schema(name), "drills": " ".join(self.drill(name, n) for n in range(2))}  # fmt: skip

    def write(self, **more: Any) -> Path:
        """Write the fleet file, its runbook, and return its path."""
        self.write_runbook()
        opens = time.gmtime(time.time() + 3_600)
        document: dict[str, Any] = {
            "schema_version": 1,
            "waves": [{"name": "first", "window": {"start": time.strftime("%Y-%m-%dT%H:%M", opens), "duration": "4h"},
                       "parallel": 2}],
            "requires": ["proof", "watch", "rules", "schema", "ids", "drills", "people"],
            "services": [self.entry(name) for name in self.services], **more,
        }  # fmt: skip
        path = self.folder / "fleet.yaml"
        path.write_text(json.dumps(document, indent=1))
        return path

    def entry(self, name: str, **more: Any) -> dict[str, Any]:
        """Return what the fleet file says of a service."""
        runbook = {"path": "cutover.yaml", "environment": "prod", "parameters": {"service": name}, "runs": "drills"}
        return {"name": name, "owner": f"team-{name}", "wave": "first", "config": f"{name}/migverify.yaml",
                "runbook": runbook, "on_call": ["alice", "bobby"], **more}  # fmt: skip

    # -- runs of the store -----------------------------------------------------------------------------------------

    def opened(self, name: str) -> ResultStore:
        """Return the store of a service, created when it is new."""
        url = self.services[name].store
        if url not in self._stores:
            self._stores[url] = open_store(url)
        return self._stores[url]

    def facts(self, name: str, **more: Any) -> dict[str, Any]:
        """Return what runs of guards and rules keep of the service."""
        config = load_config(self.services[name].config)
        known = {end: {"address": address} for end, address in pair_addresses(config).items()}
        return {"endpoints": known, CONFIGURATION: comparison_digest(config), **more}

    def verify(
        self, name: str, differs: Sequence[str] = (), *, ends: bool = True, chosen: str | None = "all",
        verdict: Verdict | None = None, kind: StoredKind = StoredKind.TABLES, rests_on: str = "", **facts: Any,
    ) -> str:  # fmt: skip
        """Write a verification of all tables; without ``ends`` it was cut off.

        With ``rests_on`` it read of each table only what was written since that run.
        """
        store, config = self.opened(name), load_config(self.services[name].config)
        pairs = [f"{name}.t{number}" for number in range(self.tables)]
        ends_at = {e.name: {"host": e.host, "port": e.port, "version": "9.7"} for e in config.endpoints}
        known = {"endpoints": ends_at, **({} if chosen is None else {CHOSEN: chosen}), **facts}
        known |= {"since_run": rests_on} if rests_on else {}
        details = {"rests_on": {"run": rests_on, "ranges": 1, "positions": {}}} if rests_on else {}
        plan = {"pairs": [{"id": pair, "source": pair, "target": pair} for pair in pairs]}
        run = store.start_run(f"migverify tables verify {name}", comparison_digest(config), plan, known,
                              kind=kind)  # fmt: skip
        equal = Verdict.INCONCLUSIVE if kind is StoredKind.QUICK else Verdict.MATCH
        for pair in pairs if ends else pairs[:1]:
            store.add_table_result(run, result(pair, Verdict.MISMATCH if pair in differs else equal, details))
        if ends:
            store.finish_run(run, verdict or (Verdict.MISMATCH if differs else equal), {"reasons": []})
        return run

    def watch(
        self, name: str, since: str, verdict: Verdict = Verdict.MATCH, *, ends: bool = False, **figures: Any
    ) -> str:
        """Write a watch whose process is this one, so that it is alive while the test runs."""
        store, config = self.opened(name), load_config(self.services[name].config)
        known = {"watch": True, "since": since, "start": "binlog.000002:4", "reverse": False}
        ends_at = {e.name: {"host": e.host, "port": e.port} for e in config.endpoints}
        run = store.start_run("migverify tables watch", comparison_digest(config), {"pairs": []},
                              {**known, "endpoints": ends_at}, kind=StoredKind.TABLES)  # fmt: skip
        told: dict[str, Any] = {"as_of": "binlog.000003:99", "read": "binlog.000003:99", "open_keys": 0,
                                "oldest_seconds": None, "diverged": 0, "reason": "", "lag_seconds": 0.2}  # fmt: skip
        # A minute ahead of a slow test: a status of long ago says nothing of now.
        text = LastStatus(at=time.time() + 60, verdict=verdict, **{**told, **figures}).as_text()
        with closing(Ledger(self.services[name].config.parent / ".migverify" / f"watch-{run}.db")) as ledger:
            ledger.keep(LAST_STATUS, text)
        if ends:
            store.finish_run(run, verdict, {LAST_STATUS: text})
        return run

    def rules(
        self, name: str, verdict: Verdict = Verdict.MATCH, *, money: Mapping[str, str] | None = None, ends: bool = True,
        chosen: str = "all", names: Sequence[str] = ("balance", "payments"), **asked: Any,
    ) -> str:  # fmt: skip
        """Write a run of two rules, the second of which has the verdict; ``asked`` is what else its plan has."""
        store = self.opened(name)
        pairs = [{"id": rule, "source": rule, "target": rule} for rule in names]
        plan: dict[str, Any] = {
            "rules": [*names],
            "file": "recon.yaml",
            "from": None,
            "to": None,
            "parameters": {},
            "pairs": pairs,
        }
        plan |= asked
        known = self.facts(name, **{RULES_CHOSEN: chosen})
        run = store.start_run("migverify recon run", "rules", plan, known, kind=StoredKind.RULES)
        details = {"recon": {"kind": "match", "severity": "critical", "unexplained": dict(money or {})}}
        store.add_table_result(run, result(names[0], Verdict.MATCH))
        store.add_table_result(run, result(names[1], verdict, details))
        if ends:
            store.finish_run(run, verdict, {"reasons": []})
        return run

    def ids(self, name: str, days: float = 900.0, state: AnswerState = AnswerState.PASS) -> str:
        """Write answers about the id space of each table."""
        answers = tuple(
            GuardAnswer(IDS, "headroom", f"source/{name}.t{number}.id", state, f"until then, {days:.1f} days", "", "",
                        "", numbers={"days_left": days + number}) for number in range(self.tables)
        )  # fmt: skip
        return self._guard(name, IDS, answers, {})

    def schema(self, name: str, prints: Mapping[str, str] | None = None, state: AnswerState = AnswerState.PASS) -> str:
        """Write answers about definitions, with the fingerprint of each side."""
        answer = GuardAnswer(SCHEMA, "alike", f"target/{name}.t0", state, "no difference", "", "", "")
        return self._guard(name, SCHEMA, (answer,), {"fingerprints": dict(prints or PRINTS)})

    def _guard(self, name: str, guard: str, answers: tuple[GuardAnswer, ...], facts: Mapping[str, Any]) -> str:
        store = self.opened(name)
        recorder = GuardRecorder(store, begin(store, f"migverify guard {guard}", [guard], self.facts(name)))
        found = GuardResult(guard, answers, time.time(), 0.1, (), facts)
        recorder.add(found)
        recorder.finish([found])
        return recorder.run_id

    # -- journals --------------------------------------------------------------------------------------------------

    def write_runbook(self) -> Path:
        """Write the runbook of all services, where it is not there."""
        path = self.folder / "cutover.yaml"
        if not path.exists():
            path.write_text(RUNBOOK + "".join(STEP % ((number,) * 4) for number in range(self.steps)))
        return path

    def runbook(self, name: str, environment: str = "prod") -> Runbook:
        """Return the runbook of a service."""
        return load_runbook(self.write_runbook(), {"service": name}, environment)

    def drill(self, name: str, number: int, *, live: bool = False, ends: bool = True, fails: bool = False) -> str:
        """Write a clean drill in staging, or the live run itself, all its lines in one append."""
        kind, run = (RunKind.LIVE, f"{name}-live-{number}") if live else (RunKind.REHEARSAL, f"{name}-drill-{number}")
        return self.journal(name, kind, run, "prod" if live else "staging", ends=ends, fails=fails)

    def journal(
        self, name: str, kind: RunKind, run: str, environment: str, *, ends: bool = True, fails: bool = False
    ) -> str:
        """Write a run of the service's runbook; return its name."""
        book, live = self.runbook(name, environment), kind is RunKind.LIVE
        room = RunStore(self.folder / "drills")
        record = room.create(book, kind, "alice", run=run, schema_fingerprint=fingerprint_of(PRINTS))
        drafts = [Draft(EventKind.LEASE, "x", "executor", data={"epoch": 1, "person": "alice"})]
        if live:
            ready = {"guard": READINESS, "state": "pass", "text": "ready", "value": 1, "asked": 1, "due": 1}
            drafts.append(Draft(EventKind.GUARD, "x", "executor", data=ready))
        for step in book.steps:
            drafts += [Draft(kind, actor, role, step.id, 1, data) for kind, actor, role, data in _TOLD]
        if fails:
            seen = {"login": "bob@b", "reason": "it did not work", "outcome": "failed", "text": "it did not work"}
            drafts[-1] = Draft(EventKind.FAILED, "x", "executor", book.steps[-1].id, 1, seen)
        if ends:
            state = RunState.ABORTED_DIRTY if fails else RunState.COMPLETED
            drafts.append(Draft(EventKind.RUN_ENDED, "x", "executor", data={"state": state.value}))
        record.write(lambda _status, _now: drafts)
        return run


_TOLD: tuple[tuple[EventKind, str, str, dict[str, Any]], ...] = (
    (EventKind.CALLED, "alice", "coordinator", {"login": "alice@a"}),
    (EventKind.STARTED, "bob", "dri", {"login": "bob@b"}),
    (EventKind.INTENT, "x", "executor", {"action": "command", "arguments": {}, "timeout": 45.0}),
    (EventKind.EFFECT, "x", "executor", {"outcome": "ok", "text": "done", "value": 0, "evidence": {}, "effect": True}),
    (EventKind.EVIDENCE, "x", "executor", {"complete": True, "checks": [{"action": "command.exit", "state": "pass"}]}),
)


def result(pair: str, verdict: Verdict, details: Mapping[str, Any] | None = None) -> TableResult:
    """Return the end of a table pair or of a rule."""
    reasons = () if verdict is Verdict.MATCH else (f"{pair} is {verdict.value}",)
    return TableResult(pair, pair, pair, verdict, reasons, 10, 10, 1, (), 0, 0, 0, (), (), 0.1,
                       details=dict(details or {}))  # fmt: skip

"""The shipped examples of the recon road on real servers, in this process."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from migverify.config import load_config
from migverify.model import TableResult, Verdict
from migverify.recon.describe import Describer
from migverify.recon.evaluate import Conditions
from migverify.recon.load import load_rules
from migverify.recon.local import LocalEngine
from migverify.recon.rule import build, values_for
from migverify.recon.run import RulesRequest, RuleTools, run_rules
from migverify.recon.steps import chosen
from migverify.store.open import open_store
from migverify_lab import mariadb
from migverify_lab.engine import temporary_server
from migverify_lab.session import LabServer

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str, folder: Path, databases: Mapping[str, str], *replaced: tuple[str, str]) -> Path:
    """Copy an example's rules into a folder, with other names of databases and short waits."""
    text = (EXAMPLES / name / "recon.yaml").read_text()
    for old, new in databases.items():
        text = re.sub(rf"(?<![\w.]){old}\.(?=[a-z`])", f"{new}.", text)
    for old, new in (("settle: 2s", "settle: 100ms"), ("delay: 1s", "delay: 20ms"), ("delay: 500ms", "delay: 20ms"),
                     *replaced):  # fmt: skip
        text = text.replace(old, new)
    path = folder / "recon.yaml"
    path.write_text(text)
    return path


@dataclass(frozen=True)
class Found:
    """One finding: its class, and what is at risk by currency."""

    kind: str
    money: dict[str, Decimal]


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    run_id: str
    verdict: Verdict
    results: dict[str, TableResult]
    findings: dict[str, dict[tuple[str | None, ...], Found]]

    @property
    def mismatches(self) -> set[str]:
        return {name for name, result in self.results.items() if result.verdict is Verdict.MISMATCH}

    def reasons(self) -> str:
        return "\n".join(
            f"{name} {result.verdict}: {'; '.join(result.reasons)}" for name, result in self.results.items()
        )

    def recon(self, rule: str) -> dict[str, Any]:
        details = self.results[rule].details
        assert details is not None
        found: dict[str, Any] = details["recon"]
        return found

    def at_risk(self, rule: str) -> dict[str, Decimal]:
        return {currency: Decimal(text) for currency, text in self.recon(rule)["unexplained"].items()}


def reconcile(
    config: Path, rules: Path, *names: str, sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.time, full: bool = False,
) -> Outcome:  # fmt: skip
    """Run rules with the local engine; all of them for no names."""
    settings = load_config(config)
    endpoints = {endpoint.name: endpoint for endpoint in settings.all_endpoints}
    every = chosen(load_rules(rules, list(endpoints)), names)
    store = open_store(f"sqlite:///{config.parent / 'runs.db'}")
    engine = LocalEngine(endpoints, {})
    describe = Describer(endpoints, {})
    try:
        tools = RuleTools(
            engine, lambda rule, window: build(rule, every, window, describe, values_for(every, {}, window)),
            conditions=Conditions(show=True, now=now, sleep=sleep),
        )  # fmt: skip
        run_id, verdict = run_rules(every, tools, store, RulesRequest("recon run", full=full))
        results = {result.pair: result for result in store.table_results(run_id)}
        findings = {name: _findings(store.findings(run_id, name)) for name in results}
        return Outcome(run_id, verdict, results, findings)
    finally:
        engine.close()
        store.close()


def _findings(rows: Sequence[tuple[int, dict[str, Any]]]) -> dict[tuple[str | None, ...], Found]:
    found = {}
    for _, body in rows:
        money = {} if body["money"] is None else {body["currency"]: Decimal(body["money"])}
        found[tuple(body["key"])] = Found(body["kind"], money | {name: Decimal(value) for name, value in body["also"]})
    return found


@contextmanager
def ledger_server(folder: Path) -> Iterator[LabServer]:
    """Start a MariaDB in a folder, stop it at the end; ``mariadb.find`` has said that there is one."""
    with temporary_server(mariadb.ENGINE, folder, "--event-scheduler=ON") as server:
        yield server


def mariadb_missing() -> bool:
    return mariadb.find() is None

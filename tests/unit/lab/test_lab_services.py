"""The shipped examples without servers: rules, faults and commands speak of the same things."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest
from typer.testing import CliRunner

from migverify.config import load_config
from migverify.errors import LabError, UsageError
from migverify.recon.load import load_rules
from migverify_lab import history, services
from migverify_lab.cli.lab import app
from migverify_lab.scenario import PlantedChange
from migverify_lab.services import KINDS, STATES, ServiceNames
from migverify_lab.services_faults import FAULTS, plant
from migverify_lab.session import LabServer, LabServers
from migverify_lab.workload_tables import TABLES
from tests.rule_fakes import KINDS as RULE_KINDS

EXAMPLES = Path(__file__).parents[3] / "examples"
ENDPOINTS = ("source", "target", "orders", "ledger")


def test_every_rule_of_the_services_is_seen_to_fail_by_a_fault() -> None:
    rules = load_rules(EXAMPLES / "services" / "recon.yaml", ENDPOINTS)
    names = {rule.name for rule in rules.rules}
    assert len(names) == 12
    assert {rule for fault in FAULTS for rule in fault.rules} == names
    assert all(rule.owner and rule.description for rule in rules.rules)


def test_the_examples_use_each_kind_but_two() -> None:
    used = {rule.kind for name in ("services", "history") for rule in load_rules(EXAMPLES / name / "recon.yaml",
                                                                               ENDPOINTS).rules}  # fmt: skip
    assert set(RULE_KINDS) - used == {"coverage", "expectations"}


def test_every_state_and_kind_of_the_payments_is_mapped() -> None:
    for table, words in (("payments", STATES), ("ledger_entries", KINDS)):
        assert all(f"'{word}'" in TABLES[table] for word in words)
    mapped = dict(load_rules(EXAMPLES / "services" / "recon.yaml", ENDPOINTS).datasets["orders"].values)["state"]
    assert {text: int(code) for code, text in mapped} == STATES


@pytest.mark.parametrize(("name", "variables"), [("services", ("PAY_SOURCE", "PAY_TARGET", "ORDERS", "LEDGER")),
                                                 ("history", ("HISTORY_SOURCE", "HISTORY_TARGET"))])  # fmt: skip
def test_the_endpoints_come_from_the_environment(name: str, variables: tuple[str, ...]) -> None:
    environment = {variable: f"mysql://reader@{variable.lower()}.example:3306" for variable in variables}
    config = load_config(EXAMPLES / name / "migverify.yaml", environment=environment)
    assert [endpoint.host for endpoint in config.all_endpoints] == [f"{v.lower()}.example" for v in variables]


def test_what_up_writes_is_a_configuration(tmp_path: Path) -> None:
    servers = [LabServer("127.0.0.1", port, "root", flavor, "") for port, flavor in ((1001, "mysql"), (1002, "tidb"))]
    ledger = LabServer("127.0.0.1", 1003, "root", "mariadb", "")
    made = services.named(LabServers(*servers), ledger, ServiceNames())
    (tmp_path / "migverify.yaml").write_text(services.configuration(made))
    config = load_config(tmp_path / "migverify.yaml")
    assert {endpoint.name: endpoint.port for endpoint in config.all_endpoints} == {
        "source": 1001, "target": 1002, "orders": 1001, "ledger": 1003,
    }  # fmt: skip


def test_a_fault_tells_what_it_did() -> None:
    steps = tuple(("ledger", f"UPDATE t SET a = {number}") for number in range(6))
    planted = PlantedChange("gap", "a number is missing", {"missing": "7"}, ("a_rule",), steps)
    assert planted.describe().splitlines()[-2:] == ["  and 2 more statements", "  seen by: a_rule"]
    assert json.loads(json.dumps(planted.as_dict()))["statements"][5] == {
        "endpoint": "ledger", "sql": "UPDATE t SET a = 5",
    }  # fmt: skip


def test_commands_list_their_faults_and_refuse_others() -> None:
    runner = CliRunner()
    shown = runner.invoke(app, ["fault", "--list"]).output
    assert all(fault.name in shown for fault in (*FAULTS, *history.FAULTS))
    for arguments in (["fault", "nonsense"], ["fault", "cent-lost", "--month", "yesterday"]):
        assert isinstance(runner.invoke(app, arguments).exception, UsageError)


def test_services_that_are_not_up_are_said_so(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="not up"):
        services.of_lab(tmp_path)


def test_an_unknown_fault_touches_nothing() -> None:
    nowhere = LabServer("127.0.0.1", 1, "root", "mysql", "")
    with pytest.raises(UsageError, match="no fault"):
        plant(services.named(LabServers(nowhere, nowhere), nowhere, ServiceNames()), "nonsense")


def test_months_of_the_history() -> None:
    made = history.History(months=12, last=date(2026, 3, 1))
    assert made.first == date(2025, 4, 1)
    assert history.History(months=3, last=date(2026, 1, 1)).first == date(2025, 11, 1)
    for wrong in ({"last": date(2026, 3, 2)}, {"shards": 65}, {"rows": 0}):
        with pytest.raises(LabError):
            history.History(**wrong)  # type: ignore[arg-type]

"""What a MATCH does not say: rows outside of a condition, ignored values, excluded tables, a table beside itself."""

from __future__ import annotations

import html
import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from migverify.cli.main import run
from migverify.config import load_config
from migverify.model import Verdict
from migverify.runbook.readiness import standing
from migverify.runbook.readiness.standing_reads import newest_proof
from migverify.store.open import open_store
from tests.conftest import Databases
from tests.db.verifying import verify, write_config

pytestmark = pytest.mark.db

FORMATS = ("text", "json", "html", "junit")


@pytest.fixture
def filled(databases: Databases) -> Databases:
    """Three tables with rows, and an empty one."""
    for name in ("a", "b", "c", "nothing"):
        databases.both(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)")
    for name in ("a", "b", "c"):
        databases.both(f"INSERT INTO {name} VALUES (1, 1), (2, 2), (3, 3)")
    return databases


def figures(config: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, str, str]:
    """Return what is said of the proof: the fleet's figure and sentence, and the value of the readiness condition."""
    fleet = config.parent / "fleet.yaml"
    fleet.write_text(json.dumps({
        "schema_version": 1, "requires": ["proof"],
        "waves": [{"name": "first", "window": {"start": "2030-01-01T22:00", "duration": "4h"}}],
        "services": [{"name": "orders", "owner": "us", "wave": "first", "config": str(config)}],
    }))  # fmt: skip
    capsys.readouterr()
    run(["fleet", "status", "--json", "--fleet", str(fleet)])
    service = json.loads(capsys.readouterr().out)["services"][0]
    proof = next(part for part in service["parts"] if part["part"] == "proof")
    with closing(open_store(f"sqlite:///{config.parent / 'runs.db'}")) as store:
        condition = standing.proof(newest_proof(load_config(config), store), time.time(), 86_400.0)
    return proof["figure"], service["sentence"], condition.found


def reports(config: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    found = {}
    for form in FORMATS:
        capsys.readouterr()
        run(["report", "last", "--config", str(config), "--format", form])
        found[form] = capsys.readouterr().out
    return found


@pytest.mark.attack(
    "tables", "a condition of `overrides.where` that is true for no row of a table that has rows",
    "INCONCLUSIVE; the condition is among what is not covered",
)  # fmt: skip
def test_a_condition_that_leaves_no_row_of_a_table_proves_nothing(filled: Databases, tmp_path: Path) -> None:
    overrides = [{"table": f"{filled.name}.*", "where": "1=0"}]
    end = verify(write_config(tmp_path, filled.pair, filled.name, overrides=overrides))
    assert end.verdict is Verdict.INCONCLUSIVE
    assert end.results[f"{filled.name}.nothing"].verdict is Verdict.MATCH
    result = end.results[f"{filled.name}.a"]
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "the condition of overrides.where leaves none of " in result.reasons[0]
    assert result.reasons[0].endswith(" on source and target: nothing was compared")
    filled.target("DELETE FROM a")
    one_side = verify(write_config(tmp_path, filled.pair, filled.name, overrides=overrides))
    assert " on source: nothing" in one_side.results[f"{filled.name}.a"].reasons[0]


def test_a_condition_is_in_every_report_and_wherever_match_is_said(
    filled: Databases, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = filled.name
    overrides: list[dict[str, Any]] = [
        {"table": f"{name}.a", "where": "id < 3"},
        {"table": f"{name}.b", "where": {"source": "v = 2"}, "ignore": ["v"]},
    ]
    filled.target("UPDATE a SET v = 9 WHERE id = 3", "DELETE FROM b WHERE id <> 2")
    config = write_config(tmp_path, filled.pair, name, overrides=overrides)
    assert run(["tables", "verify", "--config", str(config), "--quiet"]) == 0
    assert "4 MATCH, 2 of them in part (only the key, where)" in capsys.readouterr().out
    for form, text in reports(config, capsys).items():
        plain = html.unescape(text)
        assert "rows for which (id < 3) is not true: left out by configuration" in plain or form == "json", text
        assert "rows of the source for which (v = 2) is not true" in plain, form
        assert "all values outside of the key" in plain, form
    tables = {one["pair"]: one for one in json.loads(reports(config, capsys)["json"])["tables"]}
    assert tables[f"{name}.a"]["not_covered"] == [
        {"what": "rows for which (id < 3) is not true", "reason": "left out by configuration (overrides.where)"}
    ]
    assert tables[f"{name}.a"]["blind_spots"] == ["rows for which the condition of overrides.where is not true"]
    assert not tables[f"{name}.c"]["not_covered"]
    figure, sentence, proof = figures(config, capsys)
    assert figure == "MATCH, 4 tables, 2 of them in part (only the key, where)"
    assert sentence == (
        "Every required part is proved; the proof is of 4 tables, 2 of them in part (only the key, where)."
    )
    assert proof.endswith("0.0 days old; 4 tables, 2 of them in part (only the key, where)")


def test_excluded_tables_are_named_and_an_excluded_name_that_is_nowhere_is_refused(
    filled: Databases, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = filled.name
    filled.target("CREATE TABLE beyond (id INT PRIMARY KEY)")
    filled.source("CREATE VIEW seen AS SELECT 1 AS one")
    exclude = [f"{name}.{pattern}" for pattern in ("c", "tmp_*", "beyond", "seen", "c?", "marker")]
    tables, watch = {"include": [f"{name}.*"], "exclude": exclude}, {"applied": "marker", "marker": f"{name}.marker"}
    config = write_config(tmp_path, filled.pair, name, tables=tables, watch=watch)
    assert run(["tables", "verify", "--config", str(config), "--quiet"]) == 0
    assert "3 MATCH, 2 excluded" in capsys.readouterr().out
    for form, text in reports(config, capsys).items():
        if form in ("text", "html"):
            for one in ("beyond", "c"):
                assert f"table {name}.{one}: excluded by configuration (tables.exclude)" in text, form
        assert "2 tables (tables.exclude)" in text or form in ("text", "json"), text
    assert json.loads(reports(config, capsys)["json"])["not_covered"] == [
        {"what": f"table {name}.{one}", "reason": "excluded by configuration (tables.exclude)"}
        for one in ("beyond", "c")
    ]
    figure, sentence, proof = figures(config, capsys)
    assert figure == "MATCH, 3 tables, 2 excluded"
    assert sentence == "Every required part is proved; the proof is of 3 tables, 2 excluded."
    assert proof.endswith("; 3 tables, 2 excluded")
    config = write_config(tmp_path, filled.pair, name, tables={**tables, "exclude": [*exclude, f"{name}.t9"]})
    capsys.readouterr()
    assert run(["tables", "verify", "--config", str(config), "--quiet"]) == 2
    refused = capsys.readouterr().err
    assert f"tables.exclude: there is no table {name}.t9" in refused
    assert "migverify.yaml:" in refused


@pytest.mark.attack(
    "tables", "`target.url` leads to the source, by another name of the same server",
    "refused before anything is read, also by plans, quick answers, watches, repairs and rules",
)  # fmt: skip
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_table_is_not_compared_with_itself(
    filled: Databases, tmp_path: Path, side: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server, name = getattr(filled.pair, side), filled.name
    scheme = "mysql" if side == "source" else "tidb"
    config = write_config(
        tmp_path, filled.pair, name, source={"url": f"{scheme}://root@127.0.0.1:{server.port}"},
        target={"url": f"{scheme}://root@localhost:{server.port}"},
    )  # fmt: skip
    for command in ("verify", "verify --level counts", "plan", "watch", "repair last --out fix"):
        capsys.readouterr()
        assert run(["tables", *command.split(), "--config", str(config)]) == 2
        refused = capsys.readouterr().err
        assert f"target (localhost:{server.port}) are the same server" in refused, command
        assert f"{name}.a and 3 more would be compared with itself" in refused
        assert "Correct target.url" in refused
    assert run(["check", "--config", str(config)]) == 1
    answers = capsys.readouterr().out
    assert f"target (localhost:{server.port}) are the same server, and {name}.a and 3 more would be" in answers
    rules = tmp_path / "rules.yaml"
    rules.write_text(json.dumps({
        "version": "recon/v1",
        "datasets": {end: {"endpoint": end, "table": f"{name}.a", "key": ["id"]} for end in ("source", "target")},
        "defaults": {"owner": "ann", "settle": "1s"},
        "rules": [{"name": "same", "kind": "same_rows", "source": "source", "target": "target"}],
    }))  # fmt: skip
    assert run(["recon", "run", str(rules), "--config", str(config)]) == 2
    refused = capsys.readouterr().err
    assert f"datasets source and target are one table, {name}.a: source and target are the same server" in refused
    other = f"{name}_other"
    run_on = getattr(filled, side)
    run_on(f"CREATE DATABASE {other}")
    try:
        for table in ("a", "b", "c", "nothing"):
            run_on(f"CREATE TABLE {other}.{table} LIKE {table}", f"INSERT INTO {other}.{table} SELECT * FROM {table}")
        document = {**json.loads(json.dumps(load_yaml(config))), "routes": [{"from": f"{name}.*", "to": f"{other}.*"}]}
        config.write_text(json.dumps(document))
        assert run(["tables", "verify", "--config", str(config), "--quiet"]) == 0, "two databases of one server"
    finally:
        run_on(f"DROP DATABASE {other}")


def load_yaml(path: Path) -> Any:
    import yaml

    return yaml.safe_load(path.read_text())

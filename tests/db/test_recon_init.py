"""``recon init`` and typed parameters on real servers."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from migverify.cli.main import run
from migverify.recon.load import load_rules
from migverify.recon.model import ParameterValue
from migverify.recon.parameters import bind

pytestmark = pytest.mark.db

TABLES = (
    "CREATE TABLE customers (id BIGINT PRIMARY KEY, name VARCHAR(40))",
    "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer_id BIGINT NULL, amount DECIMAL(20,4) NOT NULL,"
    " currency CHAR(3) NOT NULL, state ENUM('new','paid') NOT NULL, created_at DATETIME(6) NOT NULL,"
    " CONSTRAINT c FOREIGN KEY (customer_id) REFERENCES customers (id))",
    "CREATE TABLE `odd.na``me {shard}` (`a b` INT PRIMARY KEY, `${X}` INT)",
    "CREATE TABLE keyless (a INT)",
)


def test_what_init_writes_fits_the_servers(databases, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    databases.source(*TABLES)
    databases.target(*TABLES)
    config, rules = tmp_path / "migverify.yaml", tmp_path / "recon.yaml"
    config.write_text(
        f'source: {{url: "mysql://root@{databases.pair.source}"}}\ntarget: {{url: "tidb://root@{databases.pair.target}"}}\n'
        f'tables: {{include: ["{databases.name}.*"]}}\n'
    )
    assert run(["recon", "init", "-c", str(config), "-o", str(rules), "--database", databases.name]) == 0
    found = load_rules(rules, ["source", "target"])
    assert sorted(rule.kind for rule in found.rules) == sorted(["same_rows"] * 3 + ["same_groups"] + ["orphans"] * 2)
    capsys.readouterr()
    assert run(["recon", "check", str(rules), "-c", str(config)]) == 0, capsys.readouterr().err
    assert "6 rules, the servers know every table and column" in capsys.readouterr().out


def test_check_names_what_the_servers_do_not_have(
    databases, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    databases.source(*TABLES)
    databases.target("CREATE TABLE orders (id VARCHAR(20) PRIMARY KEY, amont DECIMAL(20,4))")
    config, rules = tmp_path / "migverify.yaml", tmp_path / "recon.yaml"
    config.write_text(
        f'source: {{url: "mysql://root@{databases.pair.source}"}}\ntarget: {{url: "tidb://root@{databases.pair.target}"}}\n'
    )
    rules.write_text(
        "version: recon/v1\ndefaults: {settle: 1s}\ndatasets:\n"
        f"  a: {{endpoint: source, table: {databases.name}.orders, key: id}}\n"
        f"  b: {{endpoint: target, table: {databases.name}.orders, key: id}}\n"
        f"  c: {{endpoint: target, table: {databases.name}.gone, key: id}}\n"
        "rules:\n"
        "  - {name: column, kind: same_rows, source: a, target: b, compare: amount}\n"
        "  - {name: table, kind: same_rows, source: a, target: c, compare: amount}\n"
    )
    assert run(["recon", "check", str(rules), "-c", str(config), "--offline"]) == 0
    capsys.readouterr()
    assert run(["recon", "check", str(rules), "-c", str(config)]) == 2
    shown = capsys.readouterr().err
    assert f"{rules}:8: rule column: " in shown
    assert f"{rules}:9: rule table: " in shown
    assert "gone" in shown


@pytest.mark.parametrize(
    ("value", "sql", "expected"),
    [
        ("it's \\ `é` 🙈\0\n", "HEX(:v)", "69742773205C2060C3A96020F09F9988000A"),
        ("", "CONCAT('[', :v, ']')", "[]"),
        ("a", "CONCAT(:v, 'b') = 'ab'", "1"),
        (-5, "1-:v", "6"),
        (18446744073709551615, ":v", "18446744073709551615"),
        (Decimal("9007199254740993.0001"), ":v + 0", "9007199254740993.0001"),
        (Decimal("-0.10"), "1-:v", "1.10"),
        (date(2026, 2, 28), "DATE_ADD(:v, INTERVAL 1 DAY)", "2026-03-01"),
        (datetime(2026, 2, 28, 1, 2, 3, 4), "CAST(:v AS CHAR)", "2026-02-28 01:02:03.000004"),
        (datetime(2026, 2, 28), ":v < TIMESTAMP'2026-02-28 00:00:00.000001'", "1"),
    ],
)
def test_servers_read_a_bound_value_as_that_value(databases, value: ParameterValue, sql: str, expected: str) -> None:
    from migverify.db.session import open_session
    from migverify.model import Endpoint

    for place in (databases.pair.source, databases.pair.target):
        host, _, port = str(place).partition(":")
        with open_session(Endpoint("source", host, int(port), "root"), None) as session:
            assert session.query(f"SELECT {bind(sql, {'v': value})}") == [(expected,)]

"""``migverify recon init | check | schema | keys`` at the command line, without servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from migverify.cli.main import run

CONFIG = """\
source: {url: "mysql://app@db1.invalid", password_env: R_PASSWORD}
target: {url: "tidb://root@tidb.invalid"}
endpoints: {ledger: {url: "mysql://app@ledger.invalid", password_env: R_PASSWORD}}
"""
RULES = """\
version: recon/v1
defaults: {owner: pay, settle: 30s}
parameters: {tenant: integer}
datasets:
  a: {endpoint: source, table: d.a, where: "tenant = :tenant", key: id, time: created}
  b: {endpoint: ledger, table: d.b, key: id, time: created}
rules:
  - {name: both, kind: same_rows, source: a, target: b, compare: amount, tolerance: {amount: 0.01}, window: 1h,
     money: {column: amount, currency: "'JPY'"}}
exceptions:
  - {rule: both, key: 7, owner: pay, reason: old, expires: 2020-01-01}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "migverify.yaml").write_text(CONFIG)
    (tmp_path / "recon.yaml").write_text(RULES)
    return tmp_path


def test_check_says_what_each_rule_will_do(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recon", "check", "--offline"]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0] == (
        "both: rows of a (source: d.a) and b (ledger: d.b) by id have equal amount; tolerance amount 0.01;"
        " money amount in 'JPY'; windows of 1h; settle 30s; 2 re-reads; critical, owner pay"
    )
    assert "recon.yaml: 1 rule, no server was asked (digest " in shown.out
    assert "recon.yaml:11: the exception of both expired on 2020-01-01; it counts no more" in shown.err
    assert folder.joinpath("recon.yaml").read_text() == RULES


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["recon", "check", "--offline", "--param", "tenant=x"], "--param tenant: this is a whole number"),
        (["recon", "check", "--offline", "--param", "tennant=1"], "the rules have no such parameter"),
        (["recon", "check", "other.yaml", "--offline"], "there is no rules file other.yaml"),
        (["recon", "check", "--offline", "-c", "no.yaml"], "there is no configuration file no.yaml"),
        (["recon", "init"], "recon.yaml exists already"),
        (["recon", "init", "-o", "x.yaml", "--endpoint", "ledgr"], "no endpoint is named ledgr"),
        (["recon", "init", "-o", "no/x.yaml"], "there is no folder no"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_bad_input_is_one_error(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    shown = capsys.readouterr()
    assert says in shown.err
    assert shown.out == ""


@pytest.mark.usefixtures("folder")
def test_a_time_is_refused_by_the_name_of_its_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("R_PASSWORD", "hunter2")
    for command, option in (("watch", "--since"), ("watch", "--until"), ("run", "--from"), ("run", "--to")):
        assert run(["recon", command, "--param", "tenant=1", option, "yesterday"]) == 2
        assert f"{option} 'yesterday': " in capsys.readouterr().err


def test_a_parameter_without_a_value_is_an_error(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    del folder
    monkeypatch.setenv("R_PASSWORD", "s3cret-word")
    assert run(["recon", "check"]) == 2
    shown = capsys.readouterr().err
    assert "recon.yaml:3: the parameter tenant has no default and was not given" in shown
    assert "s3cret-word" not in shown


def test_a_server_that_cannot_be_reached_shows_no_secret(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    del folder
    monkeypatch.setenv("R_PASSWORD", "s3cret-word")
    assert run(["recon", "check", "--param", "tenant=1"]) == 3
    shown = capsys.readouterr()
    assert "both:" not in shown.out
    assert "s3cret-word" not in shown.err + shown.out


@pytest.mark.usefixtures("folder")
def test_other_endpoints_are_in_the_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config"]) == 0
    assert "ledger: app@ledger.invalid:3306, password from R_PASSWORD" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["source", "target", "sources", "a.b", "a b"])
def test_names_of_other_endpoints(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "migverify.yaml").write_text(CONFIG.replace("ledger:", f"{name}:"))
    assert run(["config"]) == 2
    assert "endpoints" in capsys.readouterr().err


def test_schema_and_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "--schema", "recon"]) == 0
    assert '"title": "migverify reconciliation rules"' in capsys.readouterr().out
    assert run(["config", "--keys", "recon"]) == 0
    assert "| `rules[].name` | required |" in capsys.readouterr().out


def test_suites_are_read_before_anything_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = "version: recon/v1\ndatasets: {a: {endpoint: source, table: d.a, key: id}}\nrules:\n"
    (folder / "recon.yaml").write_text(
        f"{rules}  - {{name: one, kind: expectations, source: a, suite: gone.json}}\n"
        "  - {name: two, kind: expectations, source: a, suite: [{type: expect_magic, kwargs: {}}]}\n"
    )
    assert run(["recon", "check", "--offline"]) == 2
    shown = capsys.readouterr().err
    assert "recon.yaml: 2 problems" in shown
    assert "recon.yaml:4:48: rule one: " in shown
    assert "gone.json" in shown
    assert "expect_magic" in shown

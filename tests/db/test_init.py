"""``migverify init`` against real servers."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from migverify import secrets
from migverify.cli.main import run
from migverify.config import load_config
from tests.conftest import fresh_databases

pytestmark = pytest.mark.db

PASSWORD = "@:/%#'\"\\ p🙈"


@pytest.fixture
def user(databases) -> Iterator[str]:
    """A user with a difficult password on both sides, who may read the test's database."""
    name = f"u_{uuid.uuid4().hex[:12]}"
    quoted = PASSWORD.replace("\\", "\\\\").replace("'", "''")
    for side in (databases.source, databases.target):
        side(
            f"CREATE USER '{name}'@'%' IDENTIFIED BY '{quoted}'",
            f"GRANT SELECT ON `{databases.name}`.* TO '{name}'@'%'",
        )
    yield name
    for side in (databases.source, databases.target):
        side(f"DROP USER '{name}'@'%'")


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_known", set())
    monkeypatch.setenv("PW_FOR_INIT", PASSWORD)


def urls(databases, user: str = "root") -> list[str]:
    pair = databases.pair
    return ["--source", f"mysql://{user}@{pair.source}", "--target", f"tidb://{user}@{pair.target}"]


def test_looks_at_both_sides(databases, user: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    databases.source(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE `odd ``na.me*` (id INT PRIMARY KEY)",
        "CREATE TABLE keyless (v INT)",
        "CREATE TABLE nullable_key (v INT, UNIQUE KEY k (v))",
        "CREATE TABLE prefix_key (v VARCHAR(99) NOT NULL, UNIQUE KEY k (v(5)))",
        "CREATE TABLE expression_key (v INT NOT NULL, UNIQUE KEY k ((v + 1)))",
        "CREATE TABLE part_1 (id INT PRIMARY KEY)",
        "CREATE TABLE part_2 (id INT PRIMARY KEY)",
    )
    databases.target("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE part (id INT PRIMARY KEY)")
    output = tmp_path / "m.yaml"
    assert run(["init", *urls(databases, user), "--password-env", "PW_FOR_INIT", "-o", str(output)]) == 0
    text = output.read_text(encoding="utf-8")
    config = load_config(output)
    assert [pattern.text for pattern in config.tables.include] == [f"{databases.name}.*"]
    assert [(entry.pattern.text, entry.to) for entry in config.routes] == [
        (f"{databases.name}./part_[0-9]+/", f"{databases.name}.part")
    ]
    assert config.sources[0].password_env == config.target.password_env == "PW_FOR_INIT"
    assert "8 tables" in text
    assert "2 on the target" in text
    keyless = text[text.index("Without a usable unique key") : text.index("# overrides")]
    assert "unique key (4)" in keyless
    for table in ("keyless", "nullable_key", "prefix_key", "expression_key"):
        assert f'"{databases.name}.{table}"' in keyless
    shown = capsys.readouterr()
    assert "8 tables" in shown.err
    for form in (PASSWORD, PASSWORD[:-1].strip()):
        assert form not in text + shown.err + shown.out


def test_what_the_user_sees_in_part_is_there(databases, tmp_path: Path) -> None:
    databases.both("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE u (id INT PRIMARY KEY)")
    name, output = f"u_{uuid.uuid4().hex[:12]}", tmp_path / "m.yaml"
    databases.both(f"CREATE USER '{name}'@'%'", f"GRANT SELECT ON `{databases.name}`.t TO '{name}'@'%'")
    try:
        assert run(["init", *urls(databases, name), "-o", str(output), "--database", databases.name]) == 0
    finally:
        databases.both(f"DROP USER '{name}'@'%'")
    text = output.read_text(encoding="utf-8")
    assert "# 1 table, about 0 rows; 1 on the target" in text
    assert "Databases of the target only" not in text


def test_databases_that_were_not_chosen_are_not_of_the_target_only(databases, tmp_path: Path) -> None:
    databases.both("CREATE TABLE t (id INT PRIMARY KEY)")
    with fresh_databases(databases.pair) as other:
        other.both("CREATE TABLE t (id INT PRIMARY KEY)")
        assert run(["init", *urls(databases), "-o", str(tmp_path / "m"), "--database", databases.name]) == 0
        text = (tmp_path / "m").read_text(encoding="utf-8")
        assert other.name not in text
        other.source("DROP TABLE t", f"DROP DATABASE `{other.name}`")
        assert run(["init", *urls(databases), "-o", str(tmp_path / "n"), "--database", databases.name]) == 0
        assert other.name in (tmp_path / "n").read_text(encoding="utf-8")


def test_versions_and_notes(databases, tmp_path: Path) -> None:
    databases.source("CREATE TABLE t (id INT PRIMARY KEY)")
    output = tmp_path / "m.yaml"
    assert run(["init", *urls(databases), "--database", databases.name, "-o", str(output)]) == 0
    text = output.read_text(encoding="utf-8")
    assert f"# source: {databases.source('SELECT VERSION()')[0][0]} (mysql)" in text
    assert "(tidb)" in text
    cases = [side("SELECT @@GLOBAL.lower_case_table_names")[0][0] for side in (databases.source, databases.target)]
    assert ("Note: lower_case_table_names is" in text) == (cases[0] != cases[1])


def test_shards(databases, tmp_path: Path) -> None:
    databases.source("CREATE TABLE t (id INT PRIMARY KEY)")
    source, target = databases.pair.source, databases.pair.target
    output = tmp_path / "m.yaml"
    arguments = ["--source", f"eu=mysql://root@{source}", "--source", f"us=mysql://root@{source}"]
    arguments += ["--target", f"tidb://root@{target}", "--database", databases.name, "-o", str(output)]
    assert run(["init", *arguments]) == 0
    assert load_config(output).shards == ("eu", "us")


def test_wrong_password(databases, user: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "m.yaml"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PW_FOR_INIT", "wrong-" + PASSWORD)
        assert run(["init", *urls(databases, user), "--password-env", "PW_FOR_INIT", "-o", str(output)]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: source: ")
    assert "refuses the user" in shown
    assert "PW_FOR_INIT" in shown
    assert PASSWORD not in shown
    assert not output.exists()


def test_unknown_database(databases, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "m.yaml"
    wanted = databases.name[:-1] + "~"
    assert run(["init", *urls(databases), "--database", wanted, "-o", str(output)]) == 2
    shown = capsys.readouterr().err
    assert f"source has no database {wanted}" in shown
    assert "Did you mean" in shown
    assert not output.exists()


def test_unreachable(databases, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound but not listening: nobody else gets it, nothing answers
        port = free.getsockname()[1]
        arguments = ["--source", f"mysql://root@{databases.pair.source}", "--target", f"tidb://root@127.0.0.1:{port}"]
        assert run(["init", *arguments, "-o", str(tmp_path / "m.yaml")]) == 3
    shown = capsys.readouterr().err
    assert f"error: target: root@127.0.0.1:{port}: cannot connect" in shown
    assert shown.count("\n") == 2
    assert list(tmp_path.iterdir()) == []

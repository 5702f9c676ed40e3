"""What a user needs, what is said when it is missing, and where a password must never appear."""

from __future__ import annotations

import os
import re
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from migverify.db.session import open_session
from migverify.errors import EndpointError, PrivilegeError
from migverify.model import Endpoint, Verdict
from migverify.store.open import open_store
from migverify_lab.servers import LabServer
from migverify_lab.session import connect
from tests.conftest import Databases
from tests.db.verifying import begin, command, execute, fill, run_command, verify, write_config

pytestmark = pytest.mark.db

PASSWORD = "p@:/%#'\"\\ x"
GRANTS = Path(__file__).parents[2] / "docs" / "privileges.md"


@dataclass
class Users:
    """A user of one name without any grant on both sides, and the pair's tables ``t`` and ``u``."""

    databases: Databases
    name: str
    side: str = "source"

    @property
    def server(self) -> LabServer:
        server: LabServer = getattr(self.databases.pair, self.side)
        return server

    def grant(self, *grants: str, side: str | None = None) -> None:
        server = getattr(self.databases.pair, side or self.side)
        for grant in grants:
            execute(server, f"GRANT {grant} TO `{self.name}`".replace("{db}", f"`{self.databases.name}`"))

    def config(self, folder: Path, **more: Any) -> Path:
        scheme = "tidb" if self.server.flavor == "tidb" else "mysql"
        ends = {self.side: {"url": f"{scheme}://{self.name}@{self.server.host}:{self.server.port}"}}
        return write_config(folder, self.databases.pair, self.databases.name, **ends, **more)


@pytest.fixture(params=["source", "target"])
def users(databases: Databases, request: pytest.FixtureRequest) -> Iterator[Users]:
    fill(databases.pair, databases.name, 1000)
    fill(databases.pair, databases.name, 1000, "u")
    found = Users(databases, f"mv_{uuid.uuid4().hex[:12]}", request.param)
    for server in (databases.pair.source, databases.pair.target):
        execute(server, f"CREATE USER `{found.name}`")
    yield found
    for server in (databases.pair.source, databases.pair.target):
        execute(server, f"DROP USER IF EXISTS `{found.name}`")


def refused(users: Users, folder: Path) -> PrivilegeError:
    with pytest.raises(PrivilegeError) as caught:
        verify(users.config(folder))
    said = str(caught.value)
    assert users.name in said
    assert users.side in said
    assert "docs/privileges.md" in said
    assert "GRANT SELECT" in said
    return caught.value


def test_a_table_without_a_grant_is_no_missing_table(users: Users, tmp_path: Path) -> None:
    users.grant("SELECT ON {db}.t")
    assert "for table 'u'" in refused(users, tmp_path).message


def test_no_grant_on_the_database_is_no_empty_database(users: Users, tmp_path: Path) -> None:
    assert "denied" in refused(users, tmp_path).message


def test_a_grant_on_some_columns_is_not_the_table(users: Users, tmp_path: Path) -> None:
    users.grant("SELECT ON {db}.u", "SELECT (id, v) ON {db}.t")
    assert re.search(r"for (table 't'|column 'n' in table 't')", refused(users, tmp_path).message)


def test_a_grant_that_is_taken_away_in_mid_run_is_inconclusive(users: Users, tmp_path: Path) -> None:
    users.grant("SELECT ON {db}.t", "SELECT ON {db}.u")
    config = users.config(tmp_path, limits={"chunk_rows": 100, "max_chunk_rows": 100})

    def revoke(_: str) -> None:
        execute(users.server, f"REVOKE SELECT ON `{users.databases.name}`.u FROM `{users.name}`")
        if users.server.flavor == "mysql":
            execute(users.server, "FLUSH PRIVILEGES")
        time.sleep(0.3)

    end = verify(config, on_start=revoke)
    results = {name.split(".")[1]: result for name, result in end.results.items()}
    assert results["t"].verdict is Verdict.MATCH
    assert results["u"].verdict is Verdict.INCONCLUSIVE
    assert "SELECT command denied" in end.reasons


def test_no_user_of_that_name_and_a_wrong_password_say_what_to_check(users: Users) -> None:
    server = users.server
    execute(server, f"ALTER USER `{users.name}` IDENTIFIED BY 'right'")
    for name, password in ((users.name, "wrong"), (users.name + "x", None)):
        end = Endpoint(users.side, server.host, server.port, name, password_env="THE_VARIABLE")
        with pytest.raises(EndpointError, match="refuses the user") as caught, open_session(end, password):
            pass
        assert "THE_VARIABLE" in caught.value.hint
        assert "wrong" not in str(caught.value).replace("wrong password", "")


def test_throttling_by_replica_lag_needs_a_grant_and_says_so(users: Users, tmp_path: Path) -> None:
    users.grant("SELECT ON {db}.*")
    end = verify(users.config(tmp_path, limits={"max_replica_lag": 5}))
    if users.server.flavor == "tidb":
        assert end.verdict is Verdict.MATCH  # TiDB is never a replica, so nothing is asked
        return
    assert end.verdict is Verdict.INCONCLUSIVE
    assert "REPLICATION CLIENT" in end.reasons
    users.grant("REPLICATION CLIENT ON *.*")
    assert verify(users.config(tmp_path, limits={"max_replica_lag": 5})).verdict is Verdict.MATCH


def test_throttling_by_running_statements_needs_a_grant_on_tidb_and_says_so(users: Users, tmp_path: Path) -> None:
    """TiDB shows a user without PROCESS its own sessions only, and does not say so."""
    users.grant("SELECT ON {db}.*")
    config = users.config(tmp_path, limits={"max_threads_running": 1000})
    if users.server.flavor == "tidb":
        end = verify(config)
        assert end.verdict is Verdict.INCONCLUSIVE
        assert "lacks PROCESS" in end.reasons
        users.grant("PROCESS ON *.*")
    assert verify(config).verdict is Verdict.MATCH


def test_a_governed_run_needs_no_grant_and_says_what_it_could_not_see(users: Users, tmp_path: Path) -> None:
    users.grant("SELECT ON {db}.*")
    end = verify(users.config(tmp_path, limits={"latency_factor": 2}))
    assert end.verdict is Verdict.MATCH
    store = open_store(f"sqlite:///{tmp_path / 'runs.db'}")
    used = store.load_run(end.run_id).facts["connections used"]
    store.close()
    seen = {"seconds a row", "running statements of the source", "running statements of the target"}
    assert set(used["signals"]) == seen - ({"running statements of the target"} if users.side == "target" else set())
    assert 1 <= used["most"] <= used["limit"]


def documented(side: str) -> list[str]:
    """The statements of docs/privileges.md for one side, without the CREATE USER."""
    text = GRANTS.read_text().split(f"<!-- grants: {side} -->")[1].split("```")[1]
    return [line.removesuffix(";") for line in text.splitlines() if line.startswith("GRANT")]


def test_the_documented_grants_are_enough_and_none_is_too_many(users: Users, tmp_path: Path) -> None:
    name = users.databases.name
    statements = documented(users.side)
    assert statements
    for statement in statements:
        text = statement.replace("`app`", f"`{name}`").replace("'migverify'@'%'", f"`{users.name}`")
        assert text != statement
        execute(users.server, text)
    end = verify(users.config(tmp_path))
    assert end.verdict is Verdict.MATCH
    with connect(users.server) as connection, connection.cursor() as cursor:
        cursor.execute(f"SHOW GRANTS FOR `{users.name}`")
        granted = " ".join(str(row[0]) for row in cursor.fetchall())
    assert not re.search(r"INSERT|UPDATE|DELETE|SUPER|ALL PRIVILEGES|CREATE|DROP", granted)


# --- secrets ---------------------------------------------------------------------------------------------------------


SPELLINGS = {
    PASSWORD, PASSWORD.strip(), "p@:/%#", "p%40%3A%2F%25%23", "p%40:", PASSWORD.replace("'", "\\'"),
    PASSWORD.encode().hex(), PASSWORD.replace('"', '\\"'), "p@:/%#&#39;", "p@:/%#&#x27;",
}  # fmt: skip


def leaks(content: bytes) -> list[str]:
    return [spelling for spelling in SPELLINGS if spelling.encode() in content]


def locked_by_password(users: Users) -> dict[str, dict[str, Any]]:
    ends = {}
    quoted = PASSWORD.replace("\\", "\\\\").replace("'", "''")
    for side in ("source", "target"):
        server = getattr(users.databases.pair, side)
        execute(server, f"ALTER USER `{users.name}` IDENTIFIED BY '{quoted}'")
        users.grant("SELECT ON {db}.*", side=side)
        scheme = "tidb" if server.flavor == "tidb" else "mysql"
        ends[side] = {"url": f"{scheme}://{users.name}@{server.host}:{server.port}"}
    return ends


def by_env(end: dict[str, Any], _: Path) -> None:
    end["password_env"] = "MV_TEST_PASSWORD"


def by_command(end: dict[str, Any], folder: Path) -> None:
    secret = folder.parent / f"{folder.name}.secret"
    secret.write_text(PASSWORD + "\n")
    end["password_command"] = f"cat {secret}"


@pytest.mark.parametrize("users", ["source"], indirect=True)
@pytest.mark.parametrize("way", [by_env, by_command])
@pytest.mark.parametrize("broken", [False, True])
def test_a_password_of_any_characters_works_and_appears_nowhere(
    users: Users, tmp_path: Path, way: Callable[[dict[str, Any], Path], None], broken: bool
) -> None:
    ends = locked_by_password(users)
    for end in ends.values():
        way(end, tmp_path)
    config = write_config(tmp_path, users.databases.pair, users.databases.name, **ends)
    environment = {"MV_TEST_PASSWORD": PASSWORD, "MIGVERIFY_TRACEBACK": "1"}
    if broken:
        execute(users.databases.pair.target, f"ALTER USER `{users.name}` IDENTIFIED BY 'another'")
    process = begin(config, env=environment)
    commands = b"".join(
        path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if str(os.getpid()) not in path.parts
        and path.exists()
    )  # fmt: skip
    output, messages = process.communicate(timeout=120)
    messages = process.first_line + messages  # type: ignore[attr-defined]
    assert process.returncode == (2 if broken else 0), messages
    seen = {"commands": commands, "output": output.encode(), "messages": messages.encode()}
    if not broken:
        for form in ("text", "json", "html", "junit", "prometheus"):
            seen[form] = report(config, form, environment)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            seen[path.name] = path.read_bytes()
    assert broken or "runs.db" in seen
    assert {name: found for name, content in seen.items() if (found := leaks(content))} == {}


def report(config: Path, form: str, environment: dict[str, str]) -> bytes:
    arguments = [*command(config)[:3], "report", "last", "--config", str(config), "--format", form]
    done = subprocess.run(
        arguments, capture_output=True, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environment},
    )  # fmt: skip
    assert done.stdout, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("users", ["source"], indirect=True)
def test_a_password_appears_in_no_message_of_a_run_that_fails(users: Users, tmp_path: Path) -> None:
    ends = locked_by_password(users)
    for end in ends.values():
        by_env(end, tmp_path)
    ends["source"]["session"] = {"sql_mode_that_does_not_exist": "1"}
    config = write_config(tmp_path, users.databases.pair, users.databases.name, **ends)
    code, _, messages = run_command(config, env={"MV_TEST_PASSWORD": PASSWORD, "MIGVERIFY_TRACEBACK": "1"})
    assert code == 2
    assert "Traceback" in messages
    assert not leaks(messages.encode())

"""``runbook readiness --watch`` on real servers: what stops a service from being ready is named, and what mends it."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from migverify.cli.main import run
from migverify.runbook.definition.load import load_runbook
from migverify.runbook.kinds import RunKind
from migverify.runbook.readiness import standing
from migverify.runbook.record.run_store import RunStore
from migverify.runbook.run.schema_now import schema_fingerprint
from migverify_lab import chaos_tls
from migverify_lab.servers import LabServer
from tests.conftest import Databases
from tests.db.test_missing_grants import asked, config, paste, user
from tests.db.verifying import execute
from tests.db.watching import Watching
from tests.unit.runbook_small import HEAD, STEPS
from tests.waiting import wait_for

__all__ = ["user"]

pytestmark = pytest.mark.db


@pytest.fixture
def databases(own_databases: Databases) -> Databases:
    """These tests change settings, grants and logs of whole servers."""
    return own_databases


@dataclass
class Readiness:
    """Evaluations of one log, one by one: each tells what changed since the one before."""

    folder: Path
    config: Path
    capsys: pytest.CaptureFixture[str]
    granted: dict[str, list[str]]

    def evaluate(self) -> dict[str, Any]:
        self.capsys.readouterr()
        code = run([
            "runbook", "readiness", str(self.folder / "small.yaml"), "-e", "prod", "--watch", "--times", "1", "--json",
            "--runs", str(self.folder / "runs"), "-c", str(self.config),
        ])  # fmt: skip
        shown = self.capsys.readouterr()
        assert code in (0, 1, 3), shown.err
        self.last: dict[str, Any] = json.loads(shown.out)
        return self.last

    def state(self, id_: str) -> str:
        return next(str(one["state"]) for one in self.last["conditions"] if one["id"] == id_)

    def changed(self, id_: str) -> tuple[str, str] | None:
        """Evaluate; return how a condition changed, with its reasons."""
        found = [one for one in self.evaluate()["changes"] if one["condition"] == id_]
        return (f"{found[0]['before']} -> {found[0]['after']}", "; ".join(found[0]["reasons"])) if found else None

    def why(self, id_: str) -> str:
        """Evaluate; return why a condition is not met, or what was found."""
        self.evaluate()
        return next("; ".join([*one["reasons"], one["found"]]) for one in self.last["conditions"] if one["id"] == id_)


@pytest.fixture
def readiness(
    databases: Databases, user: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Readiness:
    """A service with an account of its own, its grants as `config --grants` says them, and a proof."""
    monkeypatch.chdir(tmp_path)
    databases.both("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    path = config(tmp_path, databases, user, watch={"delay": 0.3, "settle_seconds": 0.3})
    (tmp_path / "small.yaml").write_text(f"{HEAD}sinks:\n  log: {{kind: file, path: {tmp_path / 'log'}}}\n{STEPS}")
    _, missing = asked(path, capsys)
    paste(databases, missing)
    assert run(["tables", "verify", "-c", str(path), "-q"]) == 0
    return Readiness(tmp_path, path, capsys, missing)


def test_grants_schema_and_retention(readiness: Readiness, databases: Databases, user: str) -> None:
    source, target, name = databases.pair.source, databases.pair.target, databases.name
    book = load_runbook(readiness.folder / "small.yaml", {}, "prod")
    RunStore(readiness.folder / "runs").create(
        book, RunKind.REHEARSAL, "alice", schema_fingerprint=schema_fingerprint(readiness.config)
    )
    readiness.evaluate()
    assert {id_: readiness.state(id_) for id_ in standing.STANDING[1:] if id_ not in ("capacity", "retention")} == {
        "servers": "ok", "grants": "ok", "limits": "ok", "certificate": "ok", "proof": "ok", "watch": "not asked",
        "tables": "ok",
    }  # fmt: skip

    given = next(line for line in readiness.granted["target"] if "`.*" in line and "SELECT" in line)
    of = given.partition(" ON ")[2].partition(" TO ")[0]
    execute(target, f"REVOKE SELECT ON {of} FROM `{user}`@`%`")
    how, why = readiness.changed("grants") or ("", "")
    assert how == "ok -> missing"
    assert f"target: {user}@% lacks SELECT on {of}" in why
    assert readiness.changed("grants") is None  # once
    execute(target, f"GRANT SELECT ON {of} TO `{user}`@`%`")
    assert (readiness.changed("grants") or ("",))[0] == "missing -> ok"

    execute(target, f"TRUNCATE TABLE `{name}`.t")
    how, why = readiness.changed("tables") or ("", "")
    assert how == "ok -> unknown"
    assert why.startswith(f"target/{name}.t was emptied")
    execute(target, f"INSERT INTO `{name}`.t VALUES (1, 1)")
    assert run(["tables", "verify", "-c", str(readiness.config), "-q"]) == 0
    assert readiness.changed("tables") is not None

    before = readiness.state("schema")
    execute(target, f"ALTER TABLE `{name}`.t ADD COLUMN w INT")
    how, why = readiness.changed("schema") or ("", "")
    assert how == f"{before} -> missing"
    assert "ran on" in why
    (read,) = (one["reasons"] for one in readiness.last["changes"] if one["condition"] == "tables")
    assert len(read) == 1
    assert read[0].startswith(f"target/{name}.t is defined otherwise than run ")

    days = execute(source, "SELECT @@GLOBAL.binlog_expire_logs_seconds")[0][0]
    try:
        execute(source, "SET GLOBAL binlog_expire_logs_seconds = 864000", "FLUSH BINARY LOGS")
        assert "purged" not in readiness.why("retention")
        execute(source, "SET GLOBAL binlog_expire_logs_seconds = 7200")
        assert "is purged in" in readiness.why("retention")
        assert readiness.state("retention") == "missing"
        newest = execute(source, "SHOW BINARY LOGS")[-1][0]
        execute(source, f"PURGE BINARY LOGS TO '{newest}'")
        assert "goes on, is purged;" in f"{readiness.why('retention')};"
    finally:
        execute(source, f"SET GLOBAL binlog_expire_logs_seconds = {days}")
    announced = (readiness.folder / "log").read_text()
    assert announced.count("grants:") == 1
    assert announced.count("MET AGAIN: grants") + announced.count("READY AGAIN: grants") == 1


def test_a_watch_that_stalls_and_one_that_is_gone(readiness: Readiness, monkeypatch: pytest.MonkeyPatch) -> None:
    watching = Watching(readiness.config, "--since", "last")
    try:
        watching.wait_for(lambda status: bool(status["verdict"] == "MATCH"))
        wait_for(lambda: readiness.evaluate() and readiness.state("watch") == "ok", "the watch is known", every=0.2)
        monkeypatch.setattr(standing, "SILENT_SECONDS", 2.0)
        watching.process.send_signal(signal.SIGSTOP)
        how, why = wait_for(lambda: readiness.changed("watch"), "the watch is stalled", every=0.3)
        assert how == "ok -> missing"
        assert "is stalled" in why
        assert readiness.changed("watch") is None
        watching.process.send_signal(signal.SIGCONT)
        how, _ = wait_for(lambda: readiness.changed("watch"), "the watch goes on", every=0.3)
        assert how == "missing -> ok"
        watching.process.kill()
        watching.process.wait()
        how, why = wait_for(lambda: readiness.changed("watch"), "the watch is gone", every=0.3)
        assert "not alive" in why
    finally:
        watching.process.kill()
        watching.process.wait()
        watching.join()


@dataclass
class World:
    """What the lab's fault of certificates needs."""

    folder: Path
    source: LabServer

    def server(self, name: str) -> LabServer:
        assert name == "source"
        return self.source


@pytest.fixture
def certificates(databases: Databases, tmp_path: Path) -> Iterator[World]:
    """An authority of the lab, and a server with its own certificate, which lasts for years and is of ``own.pem``."""
    source = databases.pair.source
    names = ("ssl_ca", "ssl_cert", "ssl_key")
    *values, data = execute(source, f"SELECT {', '.join(f'@@GLOBAL.{one}' for one in names)}, @@GLOBAL.datadir")[0]
    back = ", ".join(f"GLOBAL {name} = '{value}'" for name, value in zip(names, values, strict=True))
    world = World(tmp_path, source)
    chaos_tls.prepare_certificates(world)  # type: ignore[arg-type]
    execute(source, f"SET {back}", "ALTER INSTANCE RELOAD TLS")
    shutil.copy(Path(data) / "ca.pem", tmp_path / "own.pem")
    yield world
    execute(source, f"SET {back}", "ALTER INSTANCE RELOAD TLS")


def test_a_certificate_that_is_about_to_end(readiness: Readiness, certificates: World) -> None:
    document = yaml.safe_load(readiness.config.read_text())

    def trust(authority: Path) -> None:
        document["source"]["tls"] = {"mode": "verify-ca", "ca": str(authority)}
        readiness.config.write_text(yaml.safe_dump(document))

    trust(certificates.folder / "own.pem")
    readiness.evaluate()
    assert readiness.state("certificate") == "ok"
    chaos_tls._issue(certificates, timedelta(days=3))  # type: ignore[arg-type]
    trust(certificates.folder / "tls" / "ca.pem")
    how, why = readiness.changed("certificate") or ("", "")
    assert how == "ok -> missing", (readiness.why("servers"), readiness.why("certificate"))
    assert "the certificate ends in 3 days" in why
    chaos_tls._issue(certificates, timedelta(days=2))  # type: ignore[arg-type]
    assert readiness.changed("certificate") is None  # another figure is no other reason

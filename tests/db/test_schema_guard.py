"""Definitions on real servers: one meaning is one fingerprint, and every planted change is found and told."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migverify.cli import main
from migverify.config import load_config
from migverify.db.session import Session, open_session
from migverify.errors import MigverifyError
from migverify.guards.schema_diff import compare_snapshot
from migverify.guards.schema_model import SideSchema, path_of
from migverify.guards.schema_read import read_side, read_snapshot
from migverify.guards.scope import Scope
from migverify.model import Endpoint, SchemaClass
from migverify.tables.schema import compare_tables
from migverify_lab.servers import LabServer, LabServers
from tests.db.binlog_server import binlog_server
from tests.db.decoding import decoded_mariadb
from tests.db.schema_changes import BASE, CHANGES, OTHERS, Planted
from tests.db.schema_tables import CHILDREN, END, OTHERWISE_ON_TIDB, PARENT, SIMILAR
from tests.db.verifying import verify, write_config

if TYPE_CHECKING:
    from tests.conftest import Databases

pytestmark = pytest.mark.db


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    """A MariaDB of the module's own."""
    with decoded_mariadb(tmp_path_factory.mktemp("mariadb")) as server:
        with server.session.cursor() as cursor:
            cursor.execute("SELECT @@port, VERSION()")
            ((port, version),) = cursor.fetchall()
        yield LabServer("127.0.0.1", int(port), "root", "mariadb", version)


@pytest.fixture(scope="module")
def three(pair: LabServers, mariadb: LabServer) -> Iterator[dict[str, Session]]:
    """Sessions in a database of one name on MySQL, MariaDB and TiDB."""
    name = f"h_schema_{uuid.uuid4().hex[:8]}"
    servers = {"mysql": pair.source, "mariadb": mariadb, "tidb": pair.target}
    opened = {kind: open_session(Endpoint("target", s.host, s.port, s.user), None) for kind, s in servers.items()}
    for session in opened.values():
        make_database(session, name)
    yield opened
    for session in opened.values():
        session.execute(f"DROP DATABASE {name}")
        session.close()


def make_database(session: Session, name: str) -> None:
    session.execute(f"DROP DATABASE IF EXISTS {name}")
    session.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    session.execute(f"USE {name}")


def create(session: Session, name: str, body: str) -> None:
    head, word, partitions = body.format(name=name, parent="parent").partition(" PARTITION BY ")
    session.execute(f"DROP TABLE IF EXISTS {name}")
    session.execute(f"CREATE TABLE {name} {head} {'' if 'COLLATE=' in head else END}{word}{partitions}")


def read(session: Session) -> SideSchema:
    mine = session.query("SELECT DATABASE()")[0][0]
    return read_side(session, lambda database, _: database == mine, lambda d, t: (d, t))


def differing(ours: SideSchema, theirs: SideSchema) -> dict[str, set[str]]:
    """Paths by table name; checks that equal definitions have one fingerprint, and unequal ones do not."""
    found = {}
    others = {t.table.ref.table: t for t in theirs.tables}
    for one in ours.tables:
        other = others[one.table.ref.table]
        told = compare_tables(one.table, other.table, parts=(one.parts, other.parts))
        assert (one.fingerprint == other.fingerprint) == (told == []), (one.name, told)
        if told:
            found[one.table.ref.table] = {path_of(difference) for difference in told}
    return found


def test_one_statement_is_one_definition_on_three_servers(three: dict[str, Session]) -> None:
    otherwise = {name: body for name, (body, _, _) in OTHERWISE_ON_TIDB.items()}
    for session in three.values():
        create(session, "parent", PARENT)
        for name, body in {**SIMILAR, **CHILDREN, **otherwise}.items():
            create(session, f"t_{name}", body)
    sides = {kind: read(session) for kind, session in three.items()}
    expected = {
        f"t_{name}": {path.format(name=f"t_{name}") for path in paths}
        for name, (_, paths, _) in OTHERWISE_ON_TIDB.items()
    }  # fmt: skip
    assert differing(sides["mysql"], sides["tidb"]) == expected
    assert differing(sides["mariadb"], sides["tidb"]) == expected
    assert differing(sides["mysql"], sides["mariadb"]) == {}


def test_what_the_servers_lose_of_one_meaning_is_a_difference(three: dict[str, Session]) -> None:
    plain = "(id INT PRIMARY KEY, a INT UNSIGNED)"
    bodies = {
        "lost": ("(id INT PRIMARY KEY, a INT(5) ZEROFILL)", plain, {"columns.a.zerofill"}),
        "new": (plain, "(id INT PRIMARY KEY, a INT(5) ZEROFILL)", {"columns.a.zerofill"}),
        "brackets": (
            "(id INT PRIMARY KEY, a INT AS ((id + 1) * 2))", "(id INT PRIMARY KEY, a INT AS (id + 1 * 2))",
            {"columns.a.generated"},
        ),
        "list": (
            "(id INT PRIMARY KEY) PARTITION BY LIST (id) (PARTITION p VALUES IN (1,2,3))",
            "(id INT PRIMARY KEY) PARTITION BY LIST (id) (PARTITION p VALUES IN (3,1,2))",
            set(),
        ),
    }  # fmt: skip
    for name, (ours, theirs, _) in bodies.items():
        create(three["mysql"], f"l_{name}", ours)
        create(three["tidb"], f"l_{name}", theirs)
    sides = [{t.table.ref.table: t for t in read(three[kind]).tables} for kind in ("mysql", "tidb")]
    for name, (_, _, paths) in bodies.items():
        one, other = (side[f"l_{name}"] for side in sides)
        told = compare_tables(one.table, other.table, parts=(one.parts, other.parts))
        assert {path_of(difference) for difference in told} == paths, (name, told)


# --- statements that nobody thought of -----------------------------------------------------------------------

TYPES = st.sampled_from([
    "INT", "INTEGER(7)", "BOOL", "TINYINT(1) UNSIGNED", "SMALLINT(3)", "MEDIUMINT UNSIGNED", "BIGINT(20)",
    "DECIMAL(9,3)", "NUMERIC(5)", "FLOAT", "DOUBLE", "DATE", "DATETIME", "DATETIME(3)", "TIME(2)", "YEAR",
    "CHAR(7)", "VARCHAR(31)",
    "BINARY(3)", "VARBINARY(30)", "TEXT", "MEDIUMBLOB", "ENUM('a','b c','it''s')", "SET('x','y')", "JSON", "BIT(3)",
    "VARCHAR(9) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin", "VARCHAR(9) COLLATE utf8mb4_unicode_ci",
])  # fmt: skip
DEFAULTS = {
    "INT": ["0", "-7", "'5'"], "BOOL": ["TRUE", "FALSE"], "DEC": ["1.50", "-0.5", "0"], "NUM": ["7"], "DATETIME": [
        "'2020-01-02 03:04:05'", "'2020-01-02'"], "DATE": ["'2020-01-02'"], "CHAR": ["''", "'x'", "'it''s'", "'NULL'"],
    "VARCHAR": ["''", "'a\"b'", "'now()'", "'\\\\'"], "ENUM": ["'a'", "'it''s'"], "FLOAT": ["1.5", "0"],
    "TIME": ["'10:00:00'"], "YEAR": ["2020"], "BIT": ["b'101'"], "BIGINT": ["9223372036854775807"], "SET": ["'x,y'"],
}  # fmt: skip
EXPRESSIONS = st.recursive(
    st.sampled_from(["n", "1", "2", "0"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        st.tuples(inner, inner).map(lambda p: f"COALESCE({p[0]}, {p[1]})"),
        st.tuples(inner, inner).map(lambda p: f"GREATEST({p[0]}, {p[1]})"),
        inner.map(lambda one: f"ABS({one})"),
    ),
    max_leaves=4,
)  # fmt: skip


@st.composite
def column_text(draw: st.DrawFn, name: str) -> str:
    kind = draw(TYPES)
    null = draw(st.sampled_from(["", " NULL", " NOT NULL"]))
    word = next((w for w in sorted(DEFAULTS, key=len, reverse=True) if kind.startswith(w)), "")
    default = draw(st.sampled_from(["", *DEFAULTS.get(word, [])]))
    comment = draw(st.sampled_from(["", " COMMENT 'why'", " COMMENT 'it''s \"é\"'"]))
    return f"{name} {kind}{null}{f' DEFAULT {default}' if default else ''}{comment}"


@st.composite
def table_body(draw: st.DrawFn) -> str:
    columns = [draw(column_text(f"c{n}")) for n in range(draw(st.integers(1, 5)))]
    generated = draw(st.lists(st.tuples(EXPRESSIONS, st.sampled_from(["VIRTUAL", "STORED"])), max_size=2))
    columns += [f"g{n} BIGINT AS ({text}) {how}" for n, (text, how) in enumerate(generated)]
    keys = ["PRIMARY KEY (n)", *draw(st.sampled_from([[], ["KEY (m)"], ["UNIQUE KEY z (m, n)", "KEY a (m)"]]))]
    if draw(st.booleans()):
        keys.append("FOREIGN KEY (m) REFERENCES parent (id)" + draw(st.sampled_from(
            ["", " ON DELETE CASCADE", " ON DELETE SET NULL ON UPDATE NO ACTION", " ON UPDATE RESTRICT"])))  # fmt: skip
    return f"(n INT NOT NULL, m INT, {', '.join([*columns, *draw(st.permutations(keys))])})"


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(table_body(), min_size=3, max_size=3))
def test_made_up_statements_are_one_definition_too(three: dict[str, Session], bodies: list[str]) -> None:
    for session in three.values():
        for number in range(len(bodies)):  # children before the parent
            session.execute(f"DROP TABLE IF EXISTS h{number}")
        if not _has(session, "parent"):
            create(session, "parent", PARENT)
        for number, body in enumerate(bodies):
            create(session, f"h{number}", body)
    made = {f"h{number}" for number in range(len(bodies))}
    sides = {}
    for kind, session in three.items():
        mine = session.query("SELECT DATABASE()")[0][0]
        sides[kind] = read_side(session, lambda d, t, mine=mine: d == mine and t in made, lambda d, t: (d, t))  # type: ignore[misc]
    for one, other in (("mysql", "tidb"), ("mariadb", "tidb"), ("mysql", "mariadb")):
        assert differing(sides[one], sides[other]) == {}, bodies


def _has(session: Session, table: str) -> bool:
    return bool(session.query(f"SHOW TABLES LIKE '{table}'"))


# --- every planted change is found ---------------------------------------------------------------------------


class Bed:
    """A fresh pair of databases with the tables of the matrix, and a scope on them."""

    def __init__(self, scope: Scope, sessions: dict[str, Session], name: str) -> None:
        self.scope, self.sessions, self.name = scope, sessions, name
        for side in sessions:
            self.fresh(side)

    def fresh(self, side: str) -> None:
        make_database(self.sessions[side], self.name)
        for statement in (*OTHERS, "CREATE TABLE t " + BASE.format(table="t")):
            self.sessions[side].execute(statement)

    def found(self) -> list[tuple[str, SchemaClass]]:
        told = compare_snapshot(self.scope, read_snapshot(self.scope))
        assert told
        return [(one.path, one.level) for comparison in told for one in comparison.differences]


@pytest.fixture(scope="module")
def bed(pair: LabServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    name = f"h_schema_{uuid.uuid4().hex[:8]}"
    config = load_config(write_config(tmp_path_factory.mktemp("bed"), pair, name))
    servers = {"source": pair.source, "target": pair.target}
    sessions = {side: open_session(Endpoint("target", s.host, s.port, s.user), None) for side, s in servers.items()}
    yield Bed(Scope(config, {}), sessions, name)
    for session in sessions.values():
        session.execute(f"DROP DATABASE {name}")
        session.close()


# On the target only where that is another difference than on the source.
PLANTED = [
    (p, side) for p in CHANGES for side in ("source", "target") if side == "source" or p.on_target != p.on_source
]


@pytest.mark.parametrize(("planted", "side"), PLANTED, ids=lambda value: getattr(value, "name", value))
def test_every_planted_change_is_found(bed: Bed, planted: Planted, side: str) -> None:
    wanted = planted.on_source if side == "source" else planted.on_target
    try:
        for statement in planted.sql.split("; "):
            bed.sessions[side].execute(statement)
    except MigverifyError:
        assert wanted is None, f"the {side} refuses {planted.sql}"
        bed.fresh(side)
        return
    found = bed.found()
    bed.fresh(side)
    path = planted.path.format("ka" if side == "target" else "kz")
    assert found == ([] if wanted is None else [(path, wanted)])


# --- the commands --------------------------------------------------------------------------------------------


def run(*arguments: str, code: int | None = None) -> str:
    """Run the command in this process; return what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        found = main.run(["guard", "schema", *arguments])
    assert code in (None, found), out.getvalue() + err.getvalue()
    return out.getvalue()


def test_diff_as_json(pair: LabServers, databases: Databases, tmp_path: Path) -> None:
    databases.both(f"CREATE TABLE a (id INT PRIMARY KEY) {END}", f"CREATE TABLE b (id INT PRIMARY KEY, v INT) {END}")
    config = str(write_config(tmp_path, pair, databases.name))
    alike = json.loads(run("--json", "-c", config, code=0))
    assert alike["equal"]
    assert alike["fingerprints"]["source"] == alike["fingerprints"]["target"]
    databases.target("ALTER TABLE b MODIFY v SMALLINT")
    told = json.loads(run("--json", "-c", config, code=1))
    tables = {one["table"]: one for one in told["tables"]}
    assert tables[f"{databases.name}.a"]["equal"]
    (difference,) = tables[f"{databases.name}.b"]["differences"]
    assert (difference["path"], difference["source"], difference["target"]) == ("columns.v.type", "int", "smallint")
    assert difference["class"] == "may-lose-data"
    assert not told["equal"]


def test_what_all_tables_have_in_common_is_one_line_behind_the_drift(
    pair: LabServers, databases: Databases, tmp_path: Path
) -> None:
    tables = [f"CREATE TABLE t{n} (id INT PRIMARY KEY, v VARCHAR(20), CHECK (id > {n})) DEFAULT CHARSET utf8mb4"
              for n in range(20)]  # fmt: skip
    databases.both(*tables, "CREATE TABLE pay (id INT PRIMARY KEY, amount DECIMAL(10,2), a INT, KEY by_a (a DESC))")
    databases.both("CREATE TABLE late (id INT PRIMARY KEY, c INT, d INT)")
    databases.target("ALTER TABLE pay RENAME COLUMN amount TO amount_total", "ALTER TABLE t3 MODIFY v VARCHAR(10)",
                     "RENAME TABLE late TO late_v2")  # fmt: skip
    text = run("-c", str(write_config(tmp_path, pair, databases.name)), code=1)
    lines = text.splitlines()
    drift, expected = lines.index("  drift:"), lines.index("  expected between MySQL and TiDB:")
    name = databases.name
    for part in ("varchar(20) -> varchar(10)", "renamed? amount_total of the target", f"renamed? {name}.late_v2"):
        (at,) = [number for number, line in enumerate(lines) if part in line]
        assert drift < at < expected, part
    (at,) = [n for n, line in enumerate(lines) if "options.collation: utf8mb4_0900_ai_ci -> utf8mb4_bin" in line]
    assert at > expected
    (checks,) = [line for line in lines if "checks.*: only on the source; 20 tables" in line]
    assert lines.index(checks) > expected
    assert len(lines) < 25, text
    everything = run("--all", "-c", str(write_config(tmp_path, pair, databases.name)), code=1)
    assert all(f"{name}.t{n}" in everything for n in range(20))


def test_allowed_drift_is_shown_and_does_not_fail(pair: LabServers, databases: Databases, tmp_path: Path) -> None:
    databases.both(f"CREATE TABLE b (id INT PRIMARY KEY, v INT) {END}")
    databases.target("ALTER TABLE b MODIFY v SMALLINT")
    config, drift = str(write_config(tmp_path, pair, databases.name)), tmp_path / "drift.yaml"
    entry = (
        f"allowed:\n  - {{table: '{databases.name}.*', path: 'columns.*.type', class: %s, owner: ana, reason: 'x',"
        " expires: %s}\n"
    )
    soon = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 86400))
    drift.write_text(entry % ("may-lose-data", soon))
    told = json.loads(run("--json", "-c", config, "--allow", str(drift), code=0))
    assert "ana" in told["tables"][0]["differences"][0]["allowed"]
    drift.write_text(entry % ("cosmetic", soon))
    run("-c", config, "--allow", str(drift), code=1)
    drift.write_text(entry % ("may-lose-data", "2020-01-01"))
    assert f"{drift}:2" in run("-c", config, "--allow", str(drift), code=1)


def test_snapshot_and_diff_over_time(pair: LabServers, databases: Databases, tmp_path: Path) -> None:
    databases.both(f"CREATE TABLE b (id INT PRIMARY KEY, v INT) {END}")
    config, file = str(write_config(tmp_path, pair, databases.name)), str(tmp_path / "before.json")
    run("--snapshot", "-c", config, "--out", file, code=0)
    still = json.loads(run("--json", "-c", config, "--from", file, code=0))
    assert still["equal"]
    assert {one["table"] for one in still["tables"]} == {f"{side}/{databases.name}.b" for side in ("source", "target")}
    databases.source("ALTER TABLE b ADD w INT")
    (changed,) = json.loads(run("--json", "-c", config, "--from", file, "--to", "source", code=1))["tables"]
    assert [one["path"] for one in changed["differences"]] == ["columns.w"]


def test_the_guard_tells_who_changed_what_and_which_runs_are_stale(
    pair: LabServers, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    name = f"h_schema_{uuid.uuid4().hex[:8]}"
    with binlog_server(tmp_path_factory.mktemp("mysql")) as source:
        target = open_session(Endpoint("target", pair.target.host, pair.target.port, "root"), None)
        make_database(target, name)
        source.run(f"CREATE DATABASE {name} COLLATE utf8mb4_bin", f"USE {name}")
        for table in ("b", "calm"):
            statement = f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT) {END}"
            source.run(statement)
            target.execute(statement)
        source.run("CREATE USER eve@'%' IDENTIFIED BY 'x'", f"GRANT ALL ON {name}.* TO eve@'%'")
        config = write_config(tmp_path, LabServers(source.server, pair.target), name)
        try:
            verified = verify(config).run_id
            run("--snapshot", "-c", str(config), code=0)
            asking = Asking(config)
            asking.until(lambda told: told.get("turn") == 1)
            eve = open_session(Endpoint("target", "127.0.0.1", source.server.port, "eve"), "x")
            eve.execute(f"ALTER TABLE {name}.b ADD extra INT")
            change = asking.until_change("change 1", f"source/{name}.b")
            assert change["state"] == "fail"
            assert "columns.extra" in change["value"]
            assert "by eve@localhost" in change["value"] or "by eve@127.0.0.1" in change["value"]
            assert verified in change["value"]
            target.execute("ALTER TABLE calm ADD KEY kv (v)")
            change = asking.until_change("change 1", f"target/{name}.calm")
            assert (change["state"], change["numbers"]["stale_runs"]) == ("warn", 1)
            eve.execute(f"ALTER TABLE {name}.b DROP COLUMN extra")
            asking.until_change("unchanged", "source")
            eve.execute(f"TRUNCATE TABLE {name}.calm")
            told = asking.until_change("ddl without effect", f"source/{name}.calm")
            assert "TRUNCATE" in told["value"]
            eve.close()
            assert asking.stop() == 130
            # Asked once, without a watch: the snapshot is what counts.
            answers = json.loads(run("--baseline", "last", "--json", "-c", str(config)))["guards"][0]["answers"]
            states = {(one["name"], one["subject"]): one["state"] for one in answers}
            assert states["unchanged", "source"] == "pass"
            assert states["change 1", f"target/{name}.calm"] == "warn"
        finally:
            target.execute(f"DROP DATABASE {name}")
            target.close()


class Asking:
    """A guard that watches, as a process of its own; reads what it tells."""

    def __init__(self, config: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "migverify", "guard", "schema", "--every", "1s", "--json", "-c", str(config)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def until(self, wanted: Any) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told: dict[str, Any] = json.loads(line)
            if wanted(told):
                return told
        raise AssertionError("the guard ended before it told")

    def until_change(self, name: str, subject: str) -> dict[str, Any]:
        def there(told: dict[str, Any]) -> bool:
            return any(c["name"] == name and c["subject"] == subject and c["answer"] for c in told.get("changes", []))

        told = self.until(there)
        answer: dict[str, Any] = next(
            c["answer"] for c in told["changes"] if c["name"] == name and c["subject"] == subject and c["answer"]
        )
        return answer

    def stop(self) -> int:
        self.process.send_signal(2)
        self.process.communicate(timeout=30)
        return self.process.returncode


def test_a_server_that_does_not_answer_is_inconclusive(pair: LabServers, tmp_path: Path) -> None:
    nobody = LabServers(LabServer("127.0.0.1", 1, "root", "mysql", ""), pair.target)
    config = str(write_config(tmp_path, nobody, "mysql_nothing"))
    told = json.loads(run("--json", "-c", config, code=3))
    assert not told["equal"]
    assert told["unasked"]
    run("--baseline", "last", "-c", config, code=3)

"""Every probe of the catalogue answers on the pair as the catalogue says; scratch databases are given back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from migverify.cli.main import app
from migverify.db.session import open_session
from migverify.errors import EndpointError, UsageError
from migverify.model import Endpoint, Side, Verdict
from migverify.store.open import open_store
from migverify.workload.catalogue.errors import error_classes
from migverify.workload.catalogue.load import load
from migverify.workload.catalogue.model import CatalogueEntry, Needs, Probe, ProbeState, ProbeStep
from migverify.workload.probe import ProbeResult, expectations
from migverify.workload.probe_run import MARKER, ProbeOptions, Prober, ProbeSide
from migverify.workload.probe_store import last_probe, probe_states
from migverify_lab.servers import LabServers

pytestmark = pytest.mark.db

PROBED = [entry for entry in load().entries if entry.probe is not None]


SEEN_ON = ("9.7", "lab")
"""Parts of the versions of the servers that the expectations were seen on; others may answer otherwise."""


@pytest.fixture(scope="module")
def ends(pair: LabServers) -> tuple[ProbeSide, ProbeSide]:
    source = Endpoint("source", pair.source.host, pair.source.port, pair.source.user)
    target = Endpoint("target", pair.target.host, pair.target.port, pair.target.user)
    return ProbeSide(Side.SOURCE, source, None), ProbeSide(Side.TARGET, target, None)


@pytest.fixture(scope="module")
def prober(ends: tuple[ProbeSide, ProbeSide]) -> Iterator[Prober]:
    options = ProbeOptions(f"f_probe_{os.getpid()}", source_clone=True, accounts=True, seconds=60)
    with Prober(*ends, options) as found:
        yield found


@pytest.mark.parametrize("entry", PROBED, ids=lambda entry: entry.id)
def test_the_expectation_holds_here(entry: CatalogueEntry, prober: Prober) -> None:
    result = prober.run_one(entry)
    assert result.state is not ProbeState.NOT_RUN, result.reason
    texts = [prober.servers[side].text for side in (Side.SOURCE, Side.TARGET)]
    if not all(part in text for part, text in zip(SEEN_ON, texts, strict=True)):
        return  # it ran; what other versions answer is for their users to see
    assert result.state in (ProbeState.HOLDS, ProbeState.DOES_NOT_HOLD), result.reason
    assert entry.probe is not None
    for side, answer in ((Side.SOURCE, result.source), (Side.TARGET, result.target)):
        expected = expectations(entry.probe, prober.servers[side])
        assert expected is not None
        for wanted, outcome in zip(expected.outcomes, answer.outcomes, strict=True):
            assert wanted.differences(outcome) == [], f"{side.value}: {outcome.sql}"


OTHERS = {1927, 1969, *range(2000, 2056)}
"""Numbers of MariaDB and of clients, which MySQL's server does not list."""

OLD = {1021, 1028, 1077, 1349}
"""Numbers of MySQL 5.7, which later servers do not list."""


def test_the_classes_of_errors_name_numbers_that_there_are(pair: LabServers) -> None:
    source = Endpoint("source", pair.source.host, pair.source.port, pair.source.user)
    with closing(open_session(source, None)) as session:
        rows = session.query("SELECT error_number FROM performance_schema.events_errors_summary_global_by_error")
    known = {int(row[0]) for row in rows if row[0] is not None}
    assert len(known) > 5000
    named = {code for one in error_classes().classes.values() for code in one.codes}
    if SEEN_ON[0] in pair.source.version:
        assert named - known - OTHERS == OLD


def databases(endpoint: Endpoint) -> set[str]:
    with closing(open_session(endpoint, None, side=Side.TARGET)) as session:
        return {str(row[0]) for row in session.query("SHOW DATABASES")}


def execute(endpoint: Endpoint, *statements: str) -> None:
    with closing(open_session(endpoint, None, side=Side.TARGET)) as session:
        for statement in statements:
            session.execute(statement)


def made_up(entry: CatalogueEntry, *steps: ProbeStep, needs: Needs = Needs.SCRATCH) -> CatalogueEntry:
    assert entry.probe is not None
    probe = Probe.model_construct(needs=needs, steps=steps, answers=entry.probe.answers)
    return entry.model_copy(update={"probe": probe})


def test_without_a_clone_the_source_gets_no_tables(ends: tuple[ProbeSide, ProbeSide]) -> None:
    name = f"f_probe_only_{os.getpid()}"
    with Prober(*ends, ProbeOptions(name)) as prober:
        result = prober.run_one(load().entry("handler-001"))
        assert name not in databases(ends[0].endpoint)
        assert name in databases(ends[1].endpoint)
    assert result.state is ProbeState.HOLDS
    assert result.target_only
    assert name not in databases(ends[1].endpoint)


def test_a_foreign_database_is_left_alone(ends: tuple[ProbeSide, ProbeSide]) -> None:
    name = f"f_probe_theirs_{os.getpid()}"
    execute(ends[1].endpoint, f"CREATE DATABASE {name}", f"CREATE TABLE {name}.payments (id INT PRIMARY KEY)")
    try:
        with Prober(*ends, ProbeOptions(name)) as prober, pytest.raises(UsageError, match="not of probes"):
            prober.run_one(load().entry("handler-001"))
        with closing(open_session(ends[1].endpoint, None)) as session:
            assert session.query(f"SELECT COUNT(*) FROM {name}.payments") == [("0",)]
    finally:
        execute(ends[1].endpoint, f"DROP DATABASE {name}")


def test_what_a_crashed_run_left_is_dropped(ends: tuple[ProbeSide, ProbeSide]) -> None:
    name = f"f_probe_left_{os.getpid()}"
    execute(
        ends[1].endpoint, f"CREATE DATABASE {name}", f"CREATE TABLE {name}.{MARKER} (made DATETIME PRIMARY KEY)",
        f"CREATE TABLE {name}.t (other INT)",
    )  # fmt: skip
    with Prober(*ends, ProbeOptions(name)) as prober:
        assert prober.run_one(load().entry("handler-001")).state is ProbeState.HOLDS
    assert name not in databases(ends[1].endpoint)


def test_two_runs_do_not_share_a_scratch_database(ends: tuple[ProbeSide, ProbeSide]) -> None:
    name = f"f_probe_twice_{os.getpid()}"
    with Prober(*ends, ProbeOptions(name)) as first, Prober(*ends, ProbeOptions(name)) as second:
        first.run_one(load().entry("handler-001"))
        with pytest.raises(UsageError, match="another run"):
            second.run_one(load().entry("handler-001"))


def test_a_probe_that_breaks_leaves_no_tables(ends: tuple[ProbeSide, ProbeSide]) -> None:
    name = f"f_probe_broken_{os.getpid()}"
    steps = (ProbeStep(sql="CREATE TABLE t (id INT PRIMARY KEY)"), ProbeStep(sql="NOT SQL"), ProbeStep(ask="DO 0"))
    entry = made_up(load().entry("handler-001"), *steps)
    with Prober(*ends, ProbeOptions(name)) as prober:
        result = prober.run_one(entry)
        assert result.state is ProbeState.NOT_RUN
        assert "1064" in result.reason
        with closing(open_session(ends[1].endpoint, None)) as session:
            assert session.query(f"SHOW TABLES IN {name}") == [(MARKER,)]


def test_a_statement_over_its_time_is_stopped_on_the_server(ends: tuple[ProbeSide, ProbeSide]) -> None:
    entry = made_up(load().entry("handler-001"), ProbeStep(ask="DO SLEEP(987)"))
    with Prober(*ends, ProbeOptions(f"f_probe_slow_{os.getpid()}", seconds=1)) as prober:
        result = prober.run_one(entry)
    assert result.state is ProbeState.NOT_RUN
    assert "no answer within 1 s" in result.reason
    assert not running(ends[1].endpoint, "SLEEP(987)")


def running(endpoint: Endpoint, text: str) -> bool:
    with closing(open_session(endpoint, None)) as session:
        rows = session.query("SELECT INFO FROM information_schema.PROCESSLIST WHERE INFO IS NOT NULL")
    return any(text in str(row[0]) and "PROCESSLIST" not in str(row[0]) for row in rows)


def test_an_interrupt_gives_everything_back(ends: tuple[ProbeSide, ProbeSide]) -> None:
    name = f"f_probe_stop_{os.getpid()}"

    def interrupted(_: ProbeResult) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Prober(*ends, ProbeOptions(name)) as prober:
        prober.run([load().entry("handler-001")], interrupted)
    assert name not in databases(ends[1].endpoint)


def test_probes_that_need_nothing_cannot_write_on_the_source(ends: tuple[ProbeSide, ProbeSide]) -> None:
    entry = made_up(
        load().entry("handler-001"), ProbeStep(sql="CREATE DATABASE f_probe_never"), ProbeStep(ask="DO 0"),
        needs=Needs.NONE
    )  # fmt: skip
    with Prober(*ends) as prober:
        result = prober.run_one(entry)
    assert "1792" in result.reason
    assert "f_probe_never" not in databases(ends[0].endpoint)
    execute(ends[1].endpoint, "DROP DATABASE IF EXISTS f_probe_never")


@pytest.fixture
def configuration(tmp_path: Path, pair: LabServers) -> Path:
    path = tmp_path / "migverify.yaml"
    sides = "\n".join(
        f"{name}: {{host: {end.host}, port: {end.port}, user: {end.user}}}"
        for name, end in (("source", pair.source), ("target", pair.target))
    )
    path.write_text(f'{sides}\ntables: {{include: ["x.*"]}}\nstore: sqlite:///{tmp_path}/store.db\n')
    return path


def test_the_command_keeps_what_it_found(configuration: Path, tmp_path: Path) -> None:
    ids = ["xa-001", "savepoint-001", "version-string-001"]
    only = [word for identity in ids for word in ("--only", identity)]
    options = ["-c", str(configuration), "--json", "--database", f"f_probe_cli_{os.getpid()}"]
    run = CliRunner().invoke(app, ["workload", "probe", *options, *only])
    assert run.exit_code == 1, run.output
    told = json.loads(run.stdout.splitlines()[-1])
    assert told["verdict"] == "MISMATCH"
    assert {one["id"]: one["state"] for one in told["results"]} == {
        "xa-001": "holds", "savepoint-001": "does not hold", "version-string-001": "holds",
    }  # fmt: skip
    with closing(open_store(f"sqlite:///{tmp_path}/store.db")) as store:
        last = last_probe(store)
        assert last is not None
        assert last.run_id == told["run"]
        assert last.verdict is Verdict.MISMATCH
        assert probe_states(store, "last") == {
            "xa-001": ProbeState.HOLDS, "savepoint-001": ProbeState.DOES_NOT_HOLD,
            "version-string-001": ProbeState.HOLDS,
        }  # fmt: skip


def test_a_run_without_blockers_matches(configuration: Path) -> None:
    arguments = ["workload", "probe", "-c", str(configuration), "--only", "version-string-001"]
    run = CliRunner().invoke(app, arguments)
    assert run.exit_code == 0, run.output
    assert "MATCH: all 1 probe ran" in run.stdout


def test_what_does_not_run_is_inconclusive(configuration: Path) -> None:
    arguments = ["workload", "probe", "-c", str(configuration), "--only", "column-privileges-001"]
    run = CliRunner().invoke(app, arguments)
    assert run.exit_code == 3, run.output
    assert "not run" in run.stdout


def test_a_refused_password_is_not_shown(ends: tuple[ProbeSide, ProbeSide]) -> None:
    from dataclasses import replace

    secret = "walnut-57-river"
    for number in (0, 1):
        wrong = [*ends]
        wrong[number] = replace(ends[number], password=secret)
        with pytest.raises(EndpointError) as caught:
            Prober(wrong[0], wrong[1]).__enter__()
        assert secret not in str(caught.value)
        assert ends[number].endpoint.name in str(caught.value)

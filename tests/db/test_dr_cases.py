"""Every disaster recovery case of this machine, run for real, and with an injector that does nothing."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migverify.runbook.events import RunState, StepState
from migverify.runbook.history.read import StepMoments, case_of
from migverify.runbook.state import RunStatus
from migverify_lab import chaos, chaos_start, mysql, prometheus, servers, tidb
from migverify_lab.chaos_world import CaseWorkspace
from tests.unit.runbook_effects import run_unattended

pytestmark = pytest.mark.db

CASES = Path(__file__).parents[2] / "runbooks" / "dr"
RESULTS = Path(__file__).parents[2] / "docs" / "dr-results.json"
LIMIT = 400.0
EACH_TIME = frozenset({"mysql-killed", "clock-shift-ids"})
"""A server that dies and a fault of the data; the others are `soak`: the suite of a release runs them all."""
HERE = tuple(sorted(chaos.catalog(nginx=False)))
_count = itertools.count()


_REQUIRED = os.environ.get("MIGVERIFY_REQUIRE_DB", "") not in {"", "0"}


def _missing(name: str) -> None:
    if _REQUIRED:
        pytest.fail(name)
    pytest.skip(name)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CaseWorkspace]:
    """A lab of its own: these cases kill its servers."""
    if mysql.find() is None or tidb.find() is None:
        _missing("MySQL or TiDB is not in the cache: run `migverify lab build` once")
    found = CaseWorkspace(tmp_path_factory.mktemp("dr"))
    old = {name: os.environ.get(name) for name in ("MIGVERIFY_LAB_DIR", "PATH")}
    os.environ["MIGVERIFY_LAB_DIR"] = str(found.directory)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    try:
        yield found
    finally:
        chaos_start.down(found)
        servers.down(found.directory, purge=True)
        for name, value in old.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def run_case(case: str, folder: Path, **parameters: str) -> RunStatus:
    # In CI the case itself gets what is missing.
    if case == "monitors-lost" and prometheus.find() is None and not _REQUIRED:
        pytest.skip("Prometheus is neither on PATH nor in the cache")
    if case == "disk-full" and os.geteuid() != 0:
        _missing("only root may mount a small file system")
    room = folder / f"runs-{next(_count)}"
    return run_unattended(
        CASES / f"{case}.yaml",
        room=room,
        environment="lab",
        parameters=parameters,
        limit=LIMIT,
    )


def told(status: RunStatus) -> str:
    """What a failed assertion shows."""
    steps = [f"{one.id}: {one.state.value} {one.reason}" for one in status.steps.values()]
    return "\n".join([f"{status.state.value} {status.hold_reasons}", *steps])


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.soak) if case not in EACH_TIME else case for case in HERE]
)
def test_case(case: str, world: CaseWorkspace, tmp_path: Path) -> None:
    status = run_case(case, tmp_path)
    assert status.state is RunState.COMPLETED, told(status)
    assert all(one.state is StepState.DONE for one in status.steps.values()), told(status)
    graded = case_of(status, StepMoments())
    assert graded is not None
    assert graded.grade in ("pass", "pass-with-late-recovery"), graded
    measured = fault_record(world, case)["measured"]
    assert measured["rpo_rows"] == 0
    assert measured["from_inject"] is not None
    assert not world.jobs(), "a case leaves nothing behind but the servers"
    if os.environ.get("REGEN") == "1":
        write_down(case, measured)


def write_down(case: str, measured: dict[str, Any]) -> None:
    """Keep the figures of a run, for the table of docs/dr.md."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    names = ("failed", "codes", "stall", "from_inject", "from_remove", "rpo_rows")
    kept[case] = {name: round(measured[name], 1) if isinstance(measured[name], float) else measured[name]
                  for name in names}  # fmt: skip
    RESULTS.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")


def fault_record(world: CaseWorkspace, case: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((world.folder / "faults" / f"{case}.json").read_text())
    return found


def failed_step(status: RunStatus) -> str:
    return next(one.id for one in status.steps.values() if one.state is StepState.FAILED)


DUDS = ("mysql-killed",)


@pytest.mark.parametrize(
    "case", [*DUDS, *(pytest.param(one, marks=pytest.mark.soak) for one in HERE if one not in DUDS)]
)
def test_a_fault_that_did_not_hit_is_never_a_pass(case: str, world: CaseWorkspace, tmp_path: Path) -> None:
    status = run_case(case, tmp_path, dud="inject")
    assert failed_step(status) == "hit", told(status)
    assert status.state is RunState.ABORTED_CLEAN, told(status)
    graded = case_of(status, StepMoments())
    assert graded is not None
    assert graded.grade == "invalid"
    assert not world.jobs()


# Where nothing has to be removed but only to be waited for, a removal that does nothing cannot be told from one.
BY_ITSELF = frozenset({"tidb-restarted-stale-ids", "large-transaction"})
STAYING = ("server-frozen",)


@pytest.mark.parametrize(
    "case",
    [*STAYING, *(pytest.param(one, marks=pytest.mark.soak) for one in HERE if one not in {*STAYING, *BY_ITSELF})],
)
def test_a_fault_that_was_not_removed_is_never_a_pass(case: str, world: CaseWorkspace, tmp_path: Path) -> None:
    status = run_case(case, tmp_path, dud="remove")
    assert failed_step(status) == "gone", told(status)
    assert status.state is RunState.ABORTED_CLEAN, told(status)
    graded = case_of(status, StepMoments())
    assert graded is not None
    assert graded.grade == "invalid"
    assert not world.jobs()


def test_ids_that_repeat_are_a_failure(world: CaseWorkspace, tmp_path: Path) -> None:
    status = run_case("clock-shift-ids", tmp_path, ids="naive")
    assert status.state is not RunState.COMPLETED, told(status)
    graded = case_of(status, StepMoments())
    assert graded is not None
    assert graded.grade in ("fail", "invalid")
    assert any(one.code == 1062 for one in world.attempts()), "two ids were the same"


def test_a_lost_row_is_found_by_the_data_check(world: CaseWorkspace) -> None:
    from migverify_lab.chaos_data import data_check, steady
    from migverify_lab.session import connect
    from migverify_lab.workspace import until

    chaos_start.start(world)
    assert until(lambda: steady(world, 1.0), 60.0).good
    chaos_start.stop(world)
    assert data_check(world).good
    with connect(world.server("source")) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT token FROM chaos.entries ORDER BY id LIMIT 1")
        token = str(next(iter(cursor.fetchall()))[0])
        cursor.execute("CREATE TABLE chaos.kept AS SELECT * FROM chaos.entries WHERE token = %s", (token,))
        cursor.execute("DELETE FROM chaos.entries WHERE token = %s", (token,))
        found = data_check(world)
        assert found.good is False
        assert found.facts["lost"] == (token,)
        assert found.facts["invariants"], "and the balances do not add up"
        cursor.execute("INSERT INTO chaos.entries SELECT * FROM chaos.kept")
        assert data_check(world).good
        cursor.execute("INSERT INTO chaos.entries SELECT 0, token, payer, payee, 0, at FROM chaos.kept")
        assert data_check(world).facts["twice"] == (token,)

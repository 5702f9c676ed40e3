"""kill -9 at every append and every effect: no effect happens twice, and what nobody knows is said to be unknown."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from migverify.errors import UsageError
from migverify.runbook.events import EventKind, RunState, StepState
from migverify.runbook.fold import fold, verify_run
from migverify.runbook.journal import NAME, read_events
from migverify.runbook.record import RunRecord
from tests.unit.runbook_crash import VARIABLE, Killer, Outside, run_until_killed, take_over, to_the_end


def killed(folder: Path, point: str) -> bool:
    """Run in a child that is killed at a point; returns whether it was, and not at its own end."""
    child = os.fork()
    if child == 0:
        os.environ[VARIABLE] = point
        try:
            run_until_killed(folder)
        except BaseException:  # noqa: BLE001 - nothing of this process may go on in the tests
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, f"the child failed at {point}"
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    folder = tmp_path_factory.mktemp("whole")
    return folder, run_until_killed(folder)


def check_end(folder: Path, point: str) -> None:
    outside = Outside(folder / "world", Killer())
    record = RunRecord.open(folder / "runs" / "r1")
    path = record.journal.path
    if not record.status.over:  # killed behind its very last line otherwise
        record, executor = take_over(folder)
        check_doubt(record, point)
        to_the_end(record, executor, outside)
    assert record.status.state is RunState.ROLLED_BACK, point
    assert sorted(outside.log()) == ["set a", "set b", "unset a", "unset b"], point
    assert verify_run(path) == [], point


def check_doubt(record: RunRecord, point: str) -> None:
    path = record.journal.path
    events = list(read_events(path))
    for id_ in ("a", "b"):
        intents = [event.seq for event in events if event.kind is EventKind.INTENT and event.step == id_]
        told = {EventKind.EFFECT, EventKind.FAILED}
        ends = [event.seq for event in events if event.kind in told and event.step == id_]
        doubt = bool(intents) and not ends
        assert (record.status.steps[id_].state is StepState.UNKNOWN) == doubt, (point, id_)


def points(counts: dict[str, int]) -> list[str]:
    found = []
    for number in range(1, counts["write"]):  # before the first line there is no run
        found += [f"write:{number}:{part}" for part in (0.0, 0.5, 0.999)]
        found += [f"sync:{number}", f"synced:{number}"]
    return found + [f"{when}:{number}" for when in ("before", "after") for number in range(counts["before"])]


@pytest.fixture
def memory() -> Iterator[Path]:
    # kill -9 loses nothing that was written: a folder in memory tells the same, without waiting for a disk.
    shared = Path("/dev/shm")  # noqa: S108
    folder = Path(tempfile.mkdtemp(dir=shared if os.access(shared, os.W_OK) else None))
    yield folder
    shutil.rmtree(folder)


def test_a_kill_at_every_point_doubles_no_effect(whole: tuple[Path, dict[str, int]], memory: Path) -> None:
    some = points(whole[1])
    assert len(some) > 100
    for number, point in enumerate(some):
        folder = memory / str(number)
        was_killed = killed(folder, point)
        if was_killed:
            check_end(folder, point)
        else:
            # The end of the run was the last append of some other order of events; nothing was left to be killed.
            assert RunRecord.open(folder / "runs" / "r1").status.over, point
        shutil.rmtree(folder)


def test_a_journal_cut_at_every_byte_is_read_as_its_whole_lines(
    whole: tuple[Path, dict[str, int]], tmp_path: Path
) -> None:
    data = (whole[0] / "runs" / "r1" / NAME).read_bytes()
    events = list(read_events(whole[0] / "runs" / "r1" / NAME))
    known = {0: None} | {count: fold(events[:count]) for count in range(1, len(events) + 1)}
    cut = tmp_path / NAME
    lines = 0
    cut.write_bytes(b"")
    with cut.open("ab") as file:
        for place, byte in enumerate(data):
            file.write(bytes([byte]))
            lines += byte == 10
            if byte == 10 or data[place + 1 : place + 2] == b"\n" or place % 97 == 0:
                file.flush()
                found = list(read_events(cut))
                assert found == events[:lines]
                assert fold(found) == known[lines]


def test_a_takeover_waits_for_a_live_executor(tmp_path: Path) -> None:
    from tests.unit.runbook_crash import begin

    begin(tmp_path, Killer())
    with pytest.raises(UsageError, match="holds the run and may live"):
        take_over(tmp_path)

"""kill -9 on either side of every commit and every effect: none happens twice, and doubt is said to be doubt."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from migverify.errors import UsageError
from migverify.runbook.events import EventKind, RunState, StepState
from migverify.runbook.fold.table import fold
from migverify.runbook.record.journal_file import JournalReader, read_events
from migverify.runbook.record.run_record import RunRecord
from tests.unit.runbook_crash import (
    VARIABLE,
    Killer,
    Outside,
    begin,
    go_on_until_killed,
    run_until_killed,
    take_over,
    to_the_end,
)
from tests.unit.runbook_places import place, saved

Counts = dict[str, int]


def killed(folder: Path, point: str, run: Callable[[Path], Counts] = run_until_killed) -> bool:
    """Run in a child that is killed at a point; returns whether it was, and not at its own end."""
    child = os.fork()
    if child == 0:
        os.environ[VARIABLE] = point
        try:
            run(folder)
        except BaseException:  # noqa: BLE001 - nothing of this process may go on in the tests
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, f"the child failed at {point}"
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def check_end(folder: Path, point: str) -> None:
    outside, home = Outside(folder / "world", Killer()), place(folder / "runs")
    record = home.open("r1")
    if not record.status.over:  # killed behind its very last line otherwise
        record, executor = take_over(folder)
        check_doubt(record, point)
        to_the_end(record, executor, outside)
    assert record.status.state is RunState.ROLLED_BACK, point
    assert sorted(outside.log()) == ["set a", "set b", "unset a", "unset b"], point
    assert home.verify("r1") == [], point


def check_doubt(record: RunRecord, point: str) -> None:
    events = list(record.journal.events())
    for id_ in ("a", "b"):
        intents = [event.seq for event in events if event.kind is EventKind.INTENT and event.step == id_]
        told = {EventKind.EFFECT, EventKind.FAILED, EventKind.RECONCILED}
        ends = [event.seq for event in events if event.kind in told and event.step == id_]
        doubt = bool(intents) and not ends
        assert (record.status.steps[id_].state is StepState.UNKNOWN) == doubt, (point, id_)


def points(counts: Counts, first: int = 1) -> list[str]:
    """Return every point of a run; before the first line there is no run.

    Behind a commit the store is as before the next one, but for the effects in between, which are points of their own:
    one side of each commit is enough, and behind the last one.
    """
    found = [f"commit:{number}" for number in range(first, counts["commit"])]
    found.append(f"committed:{counts['commit'] - 1}")
    return found + [f"{when}:{number}" for when in ("before", "after") for number in range(counts["before"])]


@pytest.fixture
def memory() -> Iterator[Path]:
    # kill -9 loses nothing that was written: a folder in memory tells the same, without waiting for a disk.
    shared = Path("/dev/shm")  # noqa: S108
    folder = Path(tempfile.mkdtemp(dir=shared if os.access(shared, os.W_OK) else None))
    yield folder
    shutil.rmtree(folder)


def kill_at_all(some: list[str], memory: Path) -> None:
    for number, point in enumerate(some):
        folder = memory / str(number)
        if killed(folder, point):
            check_end(folder, point)
        else:
            # The end of the run was the last append of some other order of events; nothing was left to be killed.
            assert place(folder / "runs").open("r1").status.over, point
        shutil.rmtree(folder)


def test_a_kill_at_every_point_doubles_no_effect(memory: Path) -> None:
    some = points(run_until_killed(memory / "whole"))
    # Both effects and both undoings have two sides.
    assert [point for point in some if point.startswith("after")] == [f"after:{number}" for number in range(4)]
    assert len(some) > 25
    kill_at_all(some, memory)


@pytest.mark.parametrize("first", ["after:0", pytest.param("after:1", marks=pytest.mark.soak), "before:2", "after:3"])
def test_a_kill_at_every_point_of_a_takeover_doubles_no_effect(memory: Path, first: str) -> None:
    """The one who takes over dies, too: with an effect in doubt, or an undoing; a third brings it to its end."""
    assert killed(memory / "whole", first)
    some = points(copied(memory / "whole", go_on_until_killed), first=0)
    assert len(some) >= 5
    for number, point in enumerate(some):
        folder = memory / str(number)
        shutil.copytree(memory / "whole", folder, symlinks=True)
        if killed(folder, point, go_on_until_killed):
            check_end(folder, f"{first}, then {point}")
        shutil.rmtree(folder)


def copied(folder: Path, run: Callable[[Path], Counts]) -> Counts:
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    try:
        return run(copy)
    finally:
        shutil.rmtree(copy)


def test_a_copy_of_a_journal_that_is_cut_off_is_read_as_its_whole_lines(tmp_path: Path) -> None:
    run_until_killed(tmp_path)
    path = saved(place(tmp_path / "runs").open("r1"))
    data, events = path.read_bytes(), list(read_events(path))
    known = {0: None} | {count: fold(events[:count]) for count in range(1, len(events) + 1)}
    ends = [place for place, byte in enumerate(data, start=1) if byte == 10]
    for size in sorted({*ends, *(end - 1 for end in ends), *range(1, len(data), 211)}):
        path.write_bytes(data[:size])
        lines = sum(end <= size for end in ends)
        reader = JournalReader(path)
        assert list(reader.events()) == events[:lines]
        assert (reader.line, reader.torn) == (lines, size - max((end for end in ends if end <= size), default=0))
        assert fold(read_events(path)) == known[lines]


def test_a_takeover_waits_for_a_live_executor(tmp_path: Path) -> None:
    begin(tmp_path, Killer())
    with pytest.raises(UsageError, match="holds the run and may live"):
        take_over(tmp_path)

"""The run file: whatever a crash leaves, nothing is invented, nothing is run twice."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.errors import PlanError
from migverify.workload.meaning import Meanings
from migverify.workload.replay.model import Call, Difference, DifferenceSeverity, JudgedCall, Judgement
from migverify.workload.replay.outcomes import (
    UNKNOWN,
    Outcomes,
    alone,
    among_workers,
    begin_attempt,
    judged,
)
from migverify.workload.replay.runfile import (
    COMMITS,
    FIRST_OF_UNIT,
    RUN_FILE,
    WRITES,
    RunFile,
    RunFileWriter,
)
from migverify.workload.state import SessionState

MEANINGS = Meanings(shapes=False)


def one(index: int, state: Judgement = Judgement.SAME, **more: object) -> JudgedCall:
    return JudgedCall("s", index, f"d{index % 3}", state, **more)  # type: ignore[arg-type]


def run_of(folder: Path, flags: list[int]) -> RunFile:
    writer = RunFileWriter(folder)
    for number, flag in enumerate(flags):
        sql = b"SELECT 1"
        call = Call("s", number, sql, "d", SessionState())
        writer.add(call, MEANINGS.meaning(sql), "", number, number, flag)
    writer.end_session("s")
    return writer.close()


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    difference = Difference("value", DifferenceSeverity.BLOCKER, "1", "2\n\u2603", "c", "why")
    full = JudgedCall(
        "a/1/1", 7, "d", Judgement.DIFFERENT, (difference,), "reason", "source", 1, 2, 3, None, 5, True, True, 4,
        {"sql": "SELECT '\udcff'"},
    )  # fmt: skip
    with run_of(tmp_path, [FIRST_OF_UNIT] * 3) as run:
        outcomes = Outcomes(tmp_path)
        outcomes.intend(2)
        outcomes.end(0, full)
        outcomes.end(1, one(1))
        outcomes.close()
        assert list(judged(run)) == [(0, full), (1, one(1))]
        assert list(run.known()) == [1, 1, 2]


@settings(max_examples=25)
@given(data=st.data())
def test_any_cut_tail_leaves_what_was_committed_before_it(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder, copy = tmp_path_factory.mktemp("run"), tmp_path_factory.mktemp("killed")
    log = folder / f"{RUN_FILE}-wal"
    commits = [(0, [0] * 6)]
    with run_of(folder, [FIRST_OF_UNIT] * 6) as run:
        outcomes = Outcomes(folder)
        for index in range(6):
            if index % 2:
                outcomes.intend(index)
                assert outcomes.flush()
                commits.append((log.stat().st_size, list(run.known())))
            outcomes.end(index, one(index))
            assert outcomes.flush()
            commits.append((log.stat().st_size, list(run.known())))
        whole = log.read_bytes()
        cut = data.draw(st.integers(0, len(whole)))
        shutil.copyfile(folder / RUN_FILE, copy / RUN_FILE)
        (copy / log.name).write_bytes(whole[:cut] + data.draw(st.sampled_from([b"", b"\x00" * 5])))
        outcomes.close()
    with RunFile(copy) as run:
        assert list(run.known()) == [known for size, known in commits if size <= cut][-1]


def test_a_changed_outcome_is_refused(tmp_path: Path) -> None:
    with run_of(tmp_path, [FIRST_OF_UNIT] * 3) as run:
        outcomes = Outcomes(tmp_path)
        for index in range(3):
            outcomes.end(index, one(index))
        outcomes.close()
        run.change("UPDATE outcomes SET body = replace(body, 'd1', 'd2')")
        with pytest.raises(PlanError, match="damaged"):
            list(judged(run))


def test_a_commit_waits_for_that_of_another_process(tmp_path: Path) -> None:
    run_of(tmp_path, [FIRST_OF_UNIT] * 2).close()
    first, second = Outcomes(tmp_path, 1), Outcomes(tmp_path, 2)
    other = sqlite3.connect(tmp_path / RUN_FILE, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    first.end(0, one(0))
    assert not first.flush()
    other.execute("COMMIT")
    other.close()
    assert first.flush()
    second.end(1, one(1))
    first.close()
    second.close()
    with RunFile(tmp_path) as run:
        assert list(run.known()) == [1, 1]


def test_a_run_is_played_by_one_replay_at_a_time(tmp_path: Path) -> None:
    with among_workers(tmp_path), pytest.raises(PlanError, match="another replay"), alone(tmp_path, 0):
        pass
    with alone(tmp_path, 0) as lock:
        with pytest.raises(PlanError, match="another replay"), alone(tmp_path, 0):
            pass
        lock.share()
        with among_workers(tmp_path):
            pass
    with alone(tmp_path, 0):
        pass


BEGIN, WRITE, READ, COMMIT, ALONE = FIRST_OF_UNIT, WRITES, 0, COMMITS, FIRST_OF_UNIT | WRITES


@pytest.mark.parametrize(
    ("flags", "before", "again", "unknown"),
    [
        # autocommit: an intent without an end may have run
        ([ALONE], ["I0"], (), (0,)),
        ([ALONE], ["I0", "E0"], (), ()),
        ([ALONE, ALONE], ["I0", "E0"], (), ()),
        # a transaction whose COMMIT was not sent was rolled back
        ([BEGIN, WRITE, COMMIT], ["E0", "I1"], (0, 1), ()),
        ([BEGIN, WRITE, COMMIT], ["E0", "I1", "E1"], (0, 1), ()),
        # once COMMIT may have been sent, nothing is repeated
        ([BEGIN, WRITE, COMMIT], ["E0", "I1", "E1", "I2"], (), (2,)),
        ([BEGIN, WRITE, COMMIT], ["E0", "I1", "E1", "I2", "E2"], (), ()),
        # reads of a transaction that was cut start again, the commit of none says nothing
        ([BEGIN, READ, READ, COMMIT], ["E0", "E1"], (0, 1), ()),
        ([BEGIN, READ, COMMIT], [], (), ()),
        # an implicit commit in the middle: what stands behind it is asked, what stood before it is not repeated
        ([BEGIN, WRITE, WRITES | COMMITS, WRITE, COMMIT], ["E0", "I1", "E1", "I2", "E2"], (), ()),
        ([BEGIN, WRITE, WRITES | COMMITS, WRITE, COMMIT], ["E0", "I1", "E1", "I2", "E2", "I3"], (), (3,)),
    ],
)
def test_what_a_resumed_run_does(
    tmp_path: Path, flags: list[int], before: list[str], again: tuple[int, ...], unknown: tuple[int, ...]
) -> None:
    with run_of(tmp_path, flags) as run:
        assert begin_attempt(run) == 0
        outcomes = Outcomes(tmp_path)
        for text in before:
            if text[0] == "I":
                outcomes.intend(int(text[1:]))
            else:
                outcomes.end(int(text[1:]), one(int(text[1:])))
            outcomes.flush()
        outcomes.close()
        ended = {int(text[1:]) for text in before if text[0] == "E"}
        assert begin_attempt(run) == 1
        found = dict(judged(run))
    assert {index for index, each in found.items() if each.reason == UNKNOWN} == set(unknown)
    assert found.keys() == ended - set(again) | set(unknown)
    assert all(found[index].state is Judgement.UNJUDGED and found[index].written for index in unknown)

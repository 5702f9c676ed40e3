"""The journal: whatever a crash leaves, nothing is invented, nothing is run twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.errors import PlanError
from migverify.workload.meaning import Meanings
from migverify.workload.replay.journal import UNKNOWN, Journal, attempts, judged, known, recover
from migverify.workload.replay.lock import alone, among_workers
from migverify.workload.replay.model import Call, Difference, Judged, Judgement, Severity
from migverify.workload.replay.spool import COMMITS, FIRST_OF_UNIT, WRITES, SessionSlice, Spool, SpoolWriter
from migverify.workload.state import State

MEANINGS = Meanings(shapes=False)


def one(index: int, state: Judgement = Judgement.SAME, **more: object) -> Judged:
    return Judged("s", index, f"d{index % 3}", state, **more)  # type: ignore[arg-type]


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    difference = Difference("value", Severity.BLOCKER, "1", "2\n\u2603", "c", "why")
    full = Judged(
        "a/1/1", 7, "d", Judgement.DIFFERENT, (difference,), "reason", "source", 1, 2, 3, None, 5, True, True, 4,
        {"sql": "SELECT '\udcff'"},
    )  # fmt: skip
    journal = Journal(tmp_path, 1, 0)
    journal.ended(0, full)
    journal.ended(1, one(1))
    journal.close()
    found = known(tmp_path, 2)
    assert list(judged(tmp_path, found)) == [full, one(1)]
    assert (found.ended(0), found.intended(0), found.attempts) == (True, False, 1)


@settings(max_examples=60)
@given(data=st.data())
def test_any_cut_tail_leaves_what_stood_before_it(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    journal = Journal(folder, 1, 0)
    sizes = []
    for index in range(6):
        if index % 2:
            journal.intent(index)
            sizes.append((journal.path.stat().st_size, "I", index))
        journal.ended(index, one(index))
        journal.flush()
        sizes.append((journal.path.stat().st_size, "E", index))
    journal.close()
    whole = journal.path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    journal.path.write_bytes(whole[:cut] + data.draw(st.sampled_from([b"", b"\x00" * 5])))
    found = known(folder, 6)
    assert [index for index in range(6) if found.ended(index)] == [
        i for size, kind, i in sizes if kind == "E" and size <= cut
    ]
    assert [index for index in range(6) if found.intended(index)] == [
        i for size, kind, i in sizes if kind == "I" and size <= cut
    ]


def test_a_changed_line_inside_is_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 1, 0)
    for index in range(3):
        journal.ended(index, one(index))
    journal.close()
    data = journal.path.read_bytes()
    journal.path.write_bytes(data.replace(b'"d1"', b'"d2"'))
    with pytest.raises(PlanError, match="damaged"):
        known(tmp_path, 3)


def test_a_call_that_is_asked_again_counts_once(tmp_path: Path) -> None:
    first = Journal(tmp_path, 1, 0)
    for index in range(4):
        first.ended(index, one(index, Judgement.UNJUDGED))
    first.close()
    assert attempts(tmp_path) == 1
    second = Journal(tmp_path, 0, 1)
    second.again(1, 2)
    second.flush()
    assert [found.position for found in judged(tmp_path, known(tmp_path, 4))] == [0, 3]
    worker = Journal(tmp_path, 1, 1)
    worker.ended(1, one(1, Judgement.DIFFERENT))
    worker.close()
    second.close()
    found = known(tmp_path, 4)
    assert [found.ended(index) for index in range(4)] == [True, True, False, True]
    assert {f.position: f.state for f in judged(tmp_path, found)}[1] is Judgement.DIFFERENT


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


def spool_of(folder: Path, flags: list[int]) -> Spool:
    writer = SpoolWriter(folder)
    for number, flag in enumerate(flags):
        sql = b"SELECT 1"
        call = Call("s", number, sql, "d", State())
        writer.add(call, MEANINGS.meaning(sql), "", number, number, flag)
    writer.end_session(SessionSlice("s", 0, len(flags)))
    writer.close()
    return Spool(folder)


BEGIN, WRITE, READ, COMMIT, ALONE = FIRST_OF_UNIT, WRITES, 0, COMMITS, FIRST_OF_UNIT | WRITES


@pytest.mark.parametrize(
    ("flags", "lines", "again", "unknown"),
    [
        # autocommit: an intent without an end may have run
        ([ALONE], ["I0"], (), ((0, UNKNOWN),)),
        ([ALONE], ["I0", "E0"], (), ()),
        ([ALONE, ALONE], ["I0", "E0"], (), ()),
        # a transaction whose COMMIT was not sent was rolled back
        ([BEGIN, WRITE, COMMIT], ["E0", "I1"], ((0, 1),), ()),
        ([BEGIN, WRITE, COMMIT], ["E0", "I1", "E1"], ((0, 1),), ()),
        # once COMMIT may have been sent, nothing is repeated
        ([BEGIN, WRITE, COMMIT], ["E0", "I1", "E1", "I2"], (), ((2, UNKNOWN),)),
        ([BEGIN, WRITE, COMMIT], ["E0", "I1", "E1", "I2", "E2"], (), ()),
        # reads of a transaction that was cut start again, the commit of none says nothing
        ([BEGIN, READ, READ, COMMIT], ["E0", "E1"], ((0, 1),), ()),
        ([BEGIN, READ, COMMIT], [], (), ()),
        # an implicit commit in the middle: what stands behind it is asked, what stood before it is not repeated
        ([BEGIN, WRITE, WRITES | COMMITS, WRITE, COMMIT], ["E0", "I1", "E1", "I2", "E2"], (), ()),
        ([BEGIN, WRITE, WRITES | COMMITS, WRITE, COMMIT], ["E0", "I1", "E1", "I2", "E2", "I3"], (), ((3, UNKNOWN),)),
    ],
)
def test_what_a_resumed_run_does(
    tmp_path: Path, flags: list[int], lines: list[str], again: tuple[object, ...], unknown: tuple[object, ...]
) -> None:
    journal = Journal(tmp_path / "journal", 1, 0)
    for line in lines:
        if line[0] == "I":
            journal.intent(int(line[1:]))
        else:
            journal.ended(int(line[1:]), one(int(line[1:])))
    journal.close()
    with spool_of(tmp_path / "plan", flags) as spool:
        found = recover(spool, known(tmp_path / "journal", len(flags)))
    assert (found.again, found.unknown) == (again, unknown)
